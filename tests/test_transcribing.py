"""Laws of transcripts: mates in a batch change nothing, a long recording is the sum of its pieces, times lie inside it,
a score is the log-probability of what was written; a language model beside a model must know its tokens."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from made import text_fields

import regard
from regard.data.fields import Fields
from regard.data.frames import Samples
from regard.data.recordings import recording_of
from regard.data.silences import pieces
from regard.data.sounds import SoundField
from regard.interface import UserError
from regard.models.ngram import NGram
from regard.predict import transcribing
from regard.predict.decoding import Decoding
from regard.predict.language_model import language_model, with_language_model
from regard.predict.transcribing import log_prob_of_each_transcript, times_of_texts
from regard.recipe import parse_recipe
from regard.run import Run, build_model
from regard.tasks.registry import TASKS

RATE, BANDS = 8000, 16
WORDS = ("one", "two", "three", "four")
STACK: dict[str, Any] = {"dim": 12, "heads": 2, "feed_forward": 7, "layers": 2}
SPELL: dict[str, Any] = {"embedding": 7, "hidden": 6, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "ctc": {"name": "ctc", **STACK, "hidden": 7},
    "las": {"name": "las", **SPELL},
    "las, attention alone": {"name": "las", **SPELL, "ctc": 0.0},
    "speech_transformer": {"name": "speech_transformer", **STACK, "decoder_layers": 1},
}
each = pytest.mark.parametrize("name", MODELS)
SHORT = [0.9, 0.4, 1.3, 0.6, 0.05]  # seconds


def sound(seconds: float, seed: int = 1) -> Samples:
    """Noise that becomes louder and quieter."""
    random = np.random.default_rng(seed)
    count = round(seconds * RATE)
    waves = np.sin(np.arange(count) / RATE * 2 * np.pi * random.uniform(1, 3))
    return np.asarray(0.2 * waves * random.standard_normal(count), np.float32)


@cache
def built(name: str, kind: str = "words") -> Run:
    """A model of this kind with random weights, larger than at first: its distributions are not flat."""
    model = MODELS[name]
    facts = {"task": "speech", "data": {"name": "spoken"}, "tokens": {"kind": kind, "size": 0}, "model": model}
    recipe = parse_recipe({**facts, "train": {"steps": 1}}, tasks=TASKS)
    texts = text_fields(lambda: [(" ".join(WORDS),)], "target", kind=kind, size=0)
    fields = Fields({"source": SoundField(RATE, BANDS, -8.0, 2.0), "target": texts["target"]})
    made = build_model(recipe, fields)
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.25 * torch.randn(parameter.shape, generator=random))
    return Run(recipe, fields, made.eval(), torch.device("cpu"), name=name)


@cache
def counted(kind: str = "words", text: str = "two one two three four one two", **data: Any) -> Run:
    """Bigrams of a text."""
    facts = {"task": "language", "data": {"name": "world", **data}, "tokens": {"kind": kind, "size": 0}}
    recipe = parse_recipe({**facts, "model": {"name": "ngram", "order": 2}, "train": {"steps": 1}}, tasks=TASKS)
    fields = text_fields(lambda: [(text,)], "target", kind=kind, size=0)
    made = build_model(recipe, fields)
    assert isinstance(made, NGram)
    ids = fields.encode({"target": [text]})["target"]
    made.fit(Joined(np.concatenate(ids), np.cumsum([0, *map(len, ids)])))
    return Run(recipe, fields, made.eval(), torch.device("cpu"), name="counts")


@dataclasses.dataclass
class Joined:
    tokens: Any
    offsets: Any


WAYS = {"greedy": Decoding(), "beam": Decoding(beam=4, n_best=3)}


@each
@pytest.mark.parametrize("way", WAYS)
def test_recordings_together_get_what_each_gets_alone(name: str, way: str) -> None:
    run, recordings = built(name), [sound(seconds, number) for number, seconds in enumerate(SHORT)]
    together = run.predict(recordings, WAYS[way])
    assert len({answer.text for answer in together}) > 1
    for raw, answer in zip(recordings, together, strict=True):
        alone = run.predict([raw], WAYS[way])[0]
        assert (alone.text, alone.tokens, alone.times) == (answer.text, answer.tokens, answer.times)
        assert alone.score == pytest.approx(answer.score, abs=1e-3)
        assert [other.text for other in alone.alternatives] == [other.text for other in answer.alternatives]


@each
def test_every_word_has_a_time_inside_the_recording(name: str) -> None:
    run = built(name)
    for number, seconds in enumerate(SHORT):
        answer = run.predict([sound(seconds, number)])[0]
        assert answer.times is not None and [timed.word for timed in answer.times] == answer.text.split()
        assert all(0 <= timed.start < timed.end <= seconds + 0.01 for timed in answer.times)
        if "alone" not in name:  # CTC reads from left to right
            starts = [timed.start for timed in answer.times]
            assert starts == sorted(starts)


@each
def test_a_long_recording_is_transcribed_piece_by_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcribing, "LONGEST", 1.0)
    run, samples = (
        built(name),
        np.concatenate([sound(0.7, 1), np.zeros(2400, np.float32), sound(0.8, 2), sound(0.9, 3)]),
    )
    some = list(pieces(recording_of(samples, RATE), RATE, 1.0))
    alone = [run.predict([piece.samples(RATE)])[0] for piece in some]
    answer = run.predict([samples])[0]
    assert len(some) > 2 and answer.text == " ".join(part.text for part in alone if part.text)
    assert answer.score == pytest.approx(sum(part.score for part in alone), abs=1e-3)
    moved = [
        (timed.word, round(timed.start + piece.start, 3), round(timed.end + piece.start, 3))
        for piece, part in zip(some, alone, strict=True)
        for timed in part.times or ()
    ]
    assert [tuple(timed) for timed in answer.times or ()] == moved
    beside = run.predict([sound(0.4), samples, sound(0.3)])
    assert beside[1].text == answer.text and beside[1].times == answer.times


def test_a_score_is_the_log_probability_of_what_was_written() -> None:
    raw = sound(0.2)
    by_ctc = built("ctc")
    several = [each for each in listed(by_ctc, raw, Decoding(beam=500, n_best=300)) if known(each)]
    assert len(several) > 3
    for answer in several:
        assert answer.score == pytest.approx(by_ctc.log_prob((raw, answer.text)), abs=2e-2)
    attending = built("las, attention alone")
    answer = attending.predict([sound(1.1)], beam=4, max_length=6)[0]
    if len(answer.tokens) < 6:  # which ended by itself
        assert answer.score == pytest.approx(attending.log_prob((sound(1.1), answer.text)), abs=1e-3)


def test_a_ranking_by_both_is_the_weighted_sum_of_both() -> None:
    run, raw = built("las"), sound(0.8)
    how = Decoding(beam=4, n_best=4, max_length=5)
    by_words = {answer.text: answer.score for answer in listed(run, raw, dataclasses.replace(how, ctc_weight=0.0))}
    both = listed(run, raw, dataclasses.replace(how, ctc_weight=0.4))
    assert {answer.text for answer in both} == {*by_words} and any(map(known, both))
    for answer in filter(known, both):
        by_steps = by_ctc_of(run, raw, answer.text)
        assert answer.score == pytest.approx(0.6 * by_words[answer.text] + 0.4 * by_steps, rel=1e-3)
    scores = [answer.score for answer in listed(run, raw, dataclasses.replace(how, ctc_weight=0.4))]
    assert scores == sorted(scores, reverse=True)


def test_what_ctc_has_too_few_steps_for_is_left_out_of_a_ranking_by_both() -> None:
    run, raw = built("las"), sound(0.03)  # one step, for one token
    for how in (Decoding(beam=8, n_best=8), Decoding(beam=4, n_best=4, min_length=3)):
        answers = listed(run, raw, how)
        assert answers and all(np.isfinite(answer.score) for answer in answers)
        alone = listed(run, raw, dataclasses.replace(how, ctc_weight=0.0))
        assert any(len(answer.tokens) > 1 for answer in alone)
        if how.min_length:
            assert [answer.score for answer in answers] == [answer.score for answer in alone]
        else:
            assert all(len(answer.tokens) <= 1 for answer in answers)


def listed(run: Run, raw: Any, how: Decoding) -> list[Any]:
    best = run.predict([raw], how)[0]
    return [best, *best.alternatives]


def known(answer: Any) -> bool:
    """Whether its text has the same tokens again."""
    return "<unk>" not in answer.tokens


def by_ctc_of(run: Run, raw: Any, text: str) -> float:
    from regard.interface import Emits
    from regard.layers.ctc import total

    assert isinstance(run.model, Emits)
    batch = run.batch(source=[raw], target=[text])
    assert batch.target is not None
    with torch.no_grad():
        return float(total(run.model.emit(batch), batch.target))


def test_all_by_ctc_needs_a_model_with_ctc() -> None:
    raw = sound(0.2)
    several = [
        each for each in listed(built("las"), raw, Decoding(beam=500, n_best=300, ctc_weight=1.0)) if known(each)
    ]
    assert several
    for answer in several:
        assert answer.score == pytest.approx(by_ctc_of(built("las"), raw, answer.text), abs=2e-2)
    with pytest.raises(UserError, match="ctc_weight = 1 needs a model with CTC, and las"):
        built("las, attention alone").predict([raw], ctc_weight=1.0)
    with pytest.raises(UserError, match="transcribes by CTC: leave it out"):
        built("ctc").predict([raw], sample=True)


@each
def test_known_texts_are_placed_in_their_recordings(name: str) -> None:
    run = built(name)
    examples = [(sound(1.2, 1), "one two three"), (sound(0.7, 2), "four"), (sound(0.9, 3), "two two")]
    found = list(times_of_texts(run, examples))
    for (raw, text), times in zip(examples, found, strict=True):
        assert [timed.word for timed in times] == text.split()
        assert all(0 <= timed.start < timed.end <= len(raw) / RATE + 0.01 for timed in times)
    assert list(log_prob_of_each_transcript([run], examples)) == pytest.approx(
        [run.log_prob(example) for example in examples], abs=1e-3
    )


# --- with a language model ---------------------------------------------------------------------------------------


@each
def test_a_language_model_without_weight_changes_nothing_and_with_weight_it_decides(name: str) -> None:
    run, raw = built(name), sound(1.0)
    beside = with_language_model(run, counted())
    how = Decoding(beam=8, ctc_weight=0.0, max_length=6)
    plain = run.predict([raw], how)[0]
    without = beside.predict([raw], dataclasses.replace(how, lm_weight=0.0))[0]
    assert without.text == plain.text and without.score == pytest.approx(plain.score, abs=1e-3)
    texts = {beside.predict([raw], dataclasses.replace(how, lm_weight=weight))[0].text for weight in (0.0, 3.0, 10.0)}
    assert len(texts) > 1


def test_a_reward_makes_outputs_longer() -> None:
    beside = with_language_model(built("ctc"), counted())
    lengths = [
        len(beside.predict([sound(1.0)], Decoding(beam=8, length_reward=reward))[0].tokens) for reward in (-3.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


def test_a_language_model_shares_the_tokens_or_says_why_not() -> None:
    run = built("ctc")
    assert language_model(run, counted()).ids.tolist() != []
    for lm, wrong in (
        (counted(text="one two"), "does not know 'four', 'three', which ctc writes"),
        (counted("characters"), "ctc writes words and counts reads characters: train the language model with the same"),
        (built("las"), "las is for speech: a language model is needed beside ctc"),
    ):
        with pytest.raises(UserError, match=wrong):
            with_language_model(run, lm)
    translator = regard.load(Path(__file__).parent / "runs" / "translation")
    with pytest.raises(UserError, match="stands beside a model of recordings, and .* is for translation: leave it out"):
        with_language_model(translator, counted())


def test_the_commands_take_a_language_model(call: Call) -> None:
    runs = Path(__file__).parent / "runs"
    done = call("predict", runs / "translation", "--lm", runs / "language", "x.txt")
    assert done.code == 1 and "stands beside a model of recordings" in done.err and len(done.err.splitlines()) == 1
