"""Laws of language models: blind to the future, the same in pieces as in one, written as scored, resumed as if never
stopped."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import pairs, target_of
from torch import Tensor, nn

from regard import recipe as recipes
from regard.checkpoint import Folder
from regard.data.batches import Encoded
from regard.data.streams import Carried
from regard.data.tensors import read_tensors, write_tensors
from regard.data.tokens import PairTokens, TextTokens
from regard.interface import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Carries,
    Generates,
    Ids,
    Scores,
    Shapes,
    State,
    Tree,
    UserError,
    Windowed,
)
from regard.layers.cells import CELLS
from regard.layers.positions import POSITIONS
from regard.models import MODELS, gpt, neural_lm, ngram, rnn_lm
from regard.models.mixture import Mixture
from regard.models.ngram import NGram
from regard.predict.decoding import Decoding
from regard.predict.search import generate
from regard.predict.text import continue_texts, stream_text
from regard.recipe import Recipe
from regard.run import Run, build_model, mixture
from regard.score.likelihood import encoded, fit_weights, fitted_weights, mixed, score_texts, token_log_probs
from regard.tasks.registry import TASKS
from regard.train.loop import train_steps
from regard.train.session import Session
from regard.train.training import TrainConfig, Training
from regard.train.weights import weights

VOCAB, CONTEXT = 13, 7
CPU = torch.device("cpu")


def parse_recipe(table: dict[str, Any], folder: Path = Path()) -> Recipe:
    return recipes.parse_recipe(table, tasks=TASKS, folder=folder)


def table() -> dict[str, tuple[str, Any]]:
    apart: dict[str, Any] = {"embedding": 5, "hidden": 17, "tie": False, "dropout": 0.0}
    stack: dict[str, Any] = {"dim": 12, "heads": 3, "feed_forward": 11, "layers": 2, "context": CONTEXT, "dropout": 0.0}
    cases: dict[str, tuple[str, Any]] = {
        f"ngram {discounts}": ("ngram", ngram.Config(order=4, discounts=discounts)) for discounts in ("one", "three")
    }
    for direct in (True, False):
        config = neural_lm.Config(order=4, embedding=5, hidden=7, direct=direct, dropout=0.0)
        cases[f"neural_lm direct={direct}"] = ("neural_lm", config)
    cases["neural_lm adaptive"] = ("neural_lm", dataclasses.replace(config, hidden=17, head="adaptive"))
    for cell in CELLS:
        cases[f"rnn_lm {cell}"] = ("rnn_lm", rnn_lm.Config(**apart, cell=cell, layers=2))
    for head in ("softmax", "adaptive", "features"):
        cases[f"rnn_lm {head}"] = ("rnn_lm", rnn_lm.Config(**apart, head=head, reach=3, rows=19))
    for norm in ("pre", "post"):
        for positions in POSITIONS:
            cases[f"gpt {norm} {positions}"] = ("gpt", gpt.Config(**stack, norm=norm, positions=positions))
    cases["gpt adaptive"] = ("gpt", gpt.Config(**{**stack, "dim": 18}, tie=False, head="adaptive"))
    return cases


CASES = table()
GPTS = [name for name in CASES if name.startswith("gpt")]
CARRYING = [name for name in CASES if name not in GPTS]
SOME = ["ngram three", "neural_lm direct=True", "rnn_lm lstm", "rnn_lm features", "gpt pre learned", "gpt post rotary"]
every = pytest.mark.parametrize("name", CASES)
carrying = pytest.mark.parametrize("name", CARRYING)
some = pytest.mark.parametrize("name", SOME)


@pytest.fixture(autouse=True)
def without_gradients(request: pytest.FixtureRequest) -> Any:
    with torch.set_grad_enabled("tmp_path" in request.fixturenames):  # those who train ask for a folder
        yield


def tokens_of(rows: int, time: int, *, seed: int = 2, vocab: int = VOCAB) -> Tensor:
    """(rows, time): <bos> and words, skewed as those of texts are."""
    random = np.random.default_rng(seed)
    words = UNK + random.zipf(1.4, (rows, time)) % (vocab - UNK)
    return torch.from_numpy(np.concatenate([np.full((rows, 1), BOS), words[:, 1:]], 1).astype(np.int64))


@torch.no_grad()
def lively(model: nn.Module, texts: Encoded | None = None) -> Any:
    """Ready to use and exact: counted, or with no weight at a value such as 0 or 1 that could hide what it does."""
    if isinstance(model, NGram):
        assert texts is not None
        model.fit(texts)
        return model.double().eval()
    model = model.double()
    for tensor in weights(model).values():
        tensor.add_(0.3 * torch.rand_like(tensor) - 0.15)
    return model.eval()


def built(name: str, *, seed: int = 1) -> Any:
    model, config = CASES[name]
    torch.manual_seed(seed)
    lines = tokens_of(97, 12, seed=seed)[:, 1:]
    texts = Encoded(lines.flatten().numpy().astype(np.int32), np.arange(98) * 11)
    return lively(MODELS[model].build(config, Shapes(None, Ids(VOCAB))), texts)


def log_probs(model: Scores, tokens: Tensor, state: Tree = None) -> Tensor:
    return model.log_probs(Batch.of_text(tokens, state))[0].double()


def close(left: Tensor, right: Tensor, tolerance: float = 1e-8) -> bool:
    return left.shape == right.shape and torch.allclose(left, right, atol=tolerance, rtol=1e-9)


def near(name: str) -> float:
    """An n-gram's logarithms are kept in float32, and what they sum to is 1 as nearly as that allows."""
    return 1e-5 if name.startswith("ngram") else 1e-8


# --- Scoring -----------------------------------------------------------------------------------------------------


@every
def test_it_keeps_its_promises(name):
    model = built(name)
    assert isinstance(model, Scores)
    assert isinstance(model, Generates)
    assert isinstance(model, Carries) == (name not in GPTS)
    assert (model.context if isinstance(model, Windowed) else None) == (CONTEXT if name in GPTS else None)


@every
def test_no_token_changes_what_was_predicted_before_it(name):
    model, tokens = built(name), tokens_of(3, CONTEXT + 1)
    before = log_probs(model, tokens)
    for place in range(1, CONTEXT + 1):
        changed = tokens.clone()
        changed[:, place] = 4 + (changed[:, place] - 3) % (VOCAB - 4)
        assert (changed[:, place] != tokens[:, place]).all()
        after = log_probs(model, changed)
        assert close(after[:, : place - 1], before[:, : place - 1])
        assert ((after[:, place - 1] - before[:, place - 1]).abs() > 1e-9).any()


@every
def test_padding_and_batch_mates_change_nothing(name):
    model, tokens = built(name), tokens_of(3, CONTEXT + 1)
    lengths = (CONTEXT + 1, 5, 2)
    for row, length in enumerate(lengths):
        tokens[row, length:] = PAD
    together = log_probs(model, tokens)
    for row, length in enumerate(lengths):
        assert close(log_probs(model, tokens[row : row + 1, :length]), together[row : row + 1, : length - 1])
        assert (together[row, length - 1 :] == 0).all()


@every
def test_next_token_probabilities_sum_to_1_and_equal_scoring(name):
    """Σᵥ P(v | before) = 1, whether v is asked for by a step or scored as the last token of a text."""
    model, tokens = built(name), tokens_of(1, CONTEXT)
    for length in range(1, CONTEXT):
        prefix = tokens[:, :length]
        logits, _ = model.step(prefix[:, -1], model.start(Batch.of_text(prefix)))
        stepped = logits.double().log_softmax(-1)[0]  # (vocab,)
        followed = torch.cat([prefix.expand(VOCAB, -1), torch.arange(VOCAB)[:, None]], 1)
        scored = log_probs(model, followed)[:, -1]  # 0 for <pad>, which is none of a text's tokens
        assert close(scored[1:], stepped[1:], near(name))
        assert float(scored[1:].exp().sum() + stepped[PAD].exp()) == pytest.approx(1, abs=near(name))
        if name.startswith("ngram"):  # nothing is left to be normalised
            assert float(logits.double().exp().sum()) == pytest.approx(1, abs=1e-5)


@carrying
@given(data=st.data())
@settings(max_examples=5)
def test_a_text_in_pieces_is_as_likely_as_in_one(name, data):
    model, time = built(name), 23
    tokens = tokens_of(3, time, seed=data.draw(st.integers(0, 100)))
    cuts = sorted(data.draw(st.sets(st.integers(1, time - 2))))
    whole, state, pieces = log_probs(model, tokens), None, []
    with torch.no_grad():  # hypothesis runs outside of the fixture
        for begin, end in zip([0, *cuts], [*cuts, time - 1], strict=True):
            scored, state = model.log_probs(Batch.of_text(tokens[:, begin : end + 1], state))
            pieces.append(scored.double())
    assert close(torch.cat(pieces, 1), whole)


@carrying
def test_beginning_is_what_nothing_carried_means(name):
    model, tokens = built(name), tokens_of(3, 11)
    assert close(log_probs(model, tokens, model.begin(3)), log_probs(model, tokens))


@carrying
def test_a_long_text_is_scored_as_if_read_at_once(name, monkeypatch):
    model, texts = built(name), [tokens_of(1, time, seed=time)[0].numpy() for time in (29, 2, 1, 11)]
    at_once = token_log_probs(model, texts, device=CPU)
    monkeypatch.setattr("regard.score.likelihood.WINDOW", 5)
    in_windows = token_log_probs(model, texts, device=CPU)
    monkeypatch.setattr("regard.score.likelihood.TOKENS_AT_ONCE", 1)
    alone = token_log_probs(model, texts, device=CPU)
    for one, other, third in zip(at_once, in_windows, alone, strict=True):
        assert np.allclose(one, other, atol=1e-8)
        assert np.allclose(one, third, atol=1e-8)
    assert [len(one) for one in at_once] == [28, 1, 0, 10]


@pytest.mark.parametrize("stride", [1, 3, CONTEXT, 100, 0])
def test_a_window_has_each_token_counted_with_what_is_before_it_in_that_window(stride):
    model, text = built("gpt pre learned"), tokens_of(1, 24)[0]
    (found,) = token_log_probs(model, [text.numpy()], device=CPU, stride=stride)
    stride = min(stride or CONTEXT // 2, CONTEXT)
    expected, begin, done = [], 0, 0
    while done < 23:
        end = min(begin + CONTEXT, 23)
        expected += log_probs(model, text[None, begin : end + 1])[0, done - begin :].tolist()
        begin, done = begin + stride, end
    assert np.allclose(found, expected, atol=1e-8)


# --- Writing -----------------------------------------------------------------------------------------------------


@every
def test_steps_give_what_scoring_gives(name):
    model, tokens = built(name), tokens_of(3, CONTEXT + 1)
    expected = log_probs(model, tokens)
    for given_ in (1, 3, CONTEXT):
        state = model.start(Batch.of_text(tokens[:, :given_]))
        for place in range(given_ - 1, CONTEXT):
            logits, state = model.step(tokens[:, place], state)
            chosen = logits.double().log_softmax(-1).gather(1, tokens[:, place + 1 :][:, :1])[:, 0]
            assert close(chosen, expected[:, place], near(name))


@carrying
def test_prompts_of_several_lengths_start_together(name):
    model, tokens = built(name), tokens_of(3, 11)
    lengths = (11, 6, 1)
    padded = tokens.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = PAD
    last = torch.tensor([int(tokens[row, length - 1]) for row, length in enumerate(lengths)])
    together, _ = model.step(last, model.start(Batch.of_text(padded)))
    for row, length in enumerate(lengths):
        prompt = tokens[row : row + 1, :length]
        alone, _ = model.step(prompt[:, -1], model.start(Batch.of_text(prompt)))
        assert close(together[row : row + 1].double(), alone.double())


@pytest.mark.parametrize("name", GPTS)
@pytest.mark.parametrize("given_", [1, 4, 19])
def test_beyond_its_context_it_has_read_the_last_half_again(name, given_):
    """Its caches hold 1, 2, … context tokens, then context / 2, … context again: never more than it can see."""
    model, tokens = built(name), tokens_of(2, 31)
    state = model.start(Batch.of_text(tokens[:, :given_]))
    seen = 0
    for place in range(31):
        seen = seen + 1 if seen < CONTEXT else CONTEXT // 2
        if place >= given_ - 1:
            logits, state = model.step(tokens[:, place], state)
            if given_ < CONTEXT:  # a longer prompt is read in larger strides
                window = tokens[:, place - seen + 1 : place + 1]
                again = torch.cat([window, window[:, -1:]], 1)
                assert close(logits, model.logits(Batch.of_text(again))[:, -1])
            _, vectors = state.carry[0]
            assert vectors.longest <= CONTEXT


@pytest.mark.parametrize("name", GPTS)
def test_texts_of_different_ages_outgrow_their_context_each_by_itself(name):
    model, tokens = built(name), tokens_of(3, 31)

    def alone(row, begins):
        state, found = model.start(Batch.of_text(tokens[row : row + 1, :begins])), []
        for place in range(begins - 1, 31):
            logits, state = model.step(tokens[row : row + 1, place], state)
            found.append(logits[0])
        return found

    expected = [alone(0, 1), alone(1, 5), alone(2, 2)]
    state = model.start(Batch.of_text(tokens[:1, :1]))
    rows, places = [0], [0]
    for step in range(31):
        for row, begins, joins in ((1, 5, 3), (2, 2, 9)):
            if step == joins:
                state = state.join(model.start(Batch.of_text(tokens[row : row + 1, :begins])))
                rows, places = [*rows, row], [*places, begins - 1]
        left = [number for number, place in enumerate(places) if place < 31]
        if len(left) < len(rows):
            state = state.keep(torch.tensor(left))
            rows, places = [rows[number] for number in left], [places[number] for number in left]
        logits, state = model.step(tokens[rows, places], state)
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            assert close(logits[number], expected[row][place - (0, 4, 1)[row]])
        places = [place + 1 for place in places]


@every
def test_a_beam_as_wide_as_the_vocabulary_finds_the_likeliest_of_all(name):
    model = built(name)
    prompt = tokens_of(1, 3)
    how = Decoding(beam=VOCAB, n_best=VOCAB, length_penalty=0.0)
    (found,) = generate(model, Batch.of_text(prompt), how, limits=torch.tensor([2]))
    possible = range(EOS, VOCAB)
    pairs = torch.tensor([(first, second) for first in possible for second in possible if first != EOS])
    read = torch.cat([prompt.expand(len(pairs), -1), pairs], 1)
    both = log_probs(model, read)[:, -2:].sum(1)
    ended = log_probs(model, torch.cat([prompt, torch.tensor([[EOS]])], 1))[0, -1]
    likeliest = max(found, key=lambda one: one.log_prob)
    assert likeliest.log_prob == pytest.approx(max(float(both.max()), float(ended)), abs=1e-4)
    # one that was cut off has not paid for its end: those that ended come first
    assert found == sorted(found, key=lambda one: (not one.finished, -one.log_prob))


@some
def test_sampling_follows_the_models_distribution(name):
    """The first token of many samples: its share is its probability."""
    model, draws = built(name), 997
    prompt = tokens_of(1, 4)
    how = Decoding(sample=True, n_best=draws)
    (found,) = generate(model, Batch.of_text(prompt), how, limits=torch.tensor([1]))
    first = [one.tokens[0] if one.tokens else EOS for one in found]
    shares = torch.bincount(torch.tensor(first), minlength=VOCAB) / draws
    logits, _ = model.step(prompt[:, -1], model.start(Batch.of_text(prompt)))
    expected = logits[0].double().softmax(-1)
    expected[:EOS] = 0
    expected /= expected.sum()
    assert float((shares - expected).abs().max()) < 0.06


# --- Runs: text in, text out -------------------------------------------------------------------------------------

LINES = ["the cat sees a dog", "a dog sees the cat", "the dog sleeps", "a cat sleeps", "the sad cat sees the dog"]
PROMPTS = ["", "the c", "a", "the dog sees a cat", "the d"]


def run_of(
    name: str = "rnn_lm lstm", *, unit: str = "line", kind: str = "characters", lines: list[str] = LINES, seed: int = 3
) -> Run:
    """A run that was never trained, which is enough to be judged."""
    model_name, config = CASES[name]
    recipe = parse_recipe(
        {
            "task": "language",
            "seed": seed,
            "data": {"name": "text", "train": "a", "valid": "b", "unit": unit},
            "tokens": {"kind": kind, "size": 300 if kind == "bpe" else 0},
            "model": {"name": model_name, **dataclasses.asdict(config)},
            "train": {"steps": 1},
        }
    )
    texts = [f"{line}\n" for line in lines] if unit == "file" else lines
    size = 300 if kind == "bpe" else 0
    fields = TASKS["language"].learn(lambda: ((text,) for text in texts), TextTokens(kind=kind, size=size))
    ids = fields.tokenizer("target").encode_all(texts, continued=unit == "file")
    if unit == "file":
        ids = [[token for line in ids for token in line]]
    offsets = np.cumsum([0, *map(len, ids)])
    encoded_ = Encoded(np.array([token for line in ids for token in line], dtype=np.int32), offsets)
    return Run(recipe, fields, lively(build_model(recipe, fields), encoded_), CPU, name)


@every
@pytest.mark.parametrize("unit", ["line", "file"])
def test_what_is_written_has_the_score_that_scoring_gives_it(name, unit):
    """log P of what was added to the prompt, whatever the filters; of a line its end belongs to it."""
    run = run_of(name, unit=unit)
    most = 5 if name not in GPTS else 3
    prompts = PROMPTS if name not in GPTS else ["", "the", "a"]  # within its context
    fewest = most if unit == "file" else 0  # a whole file does not end
    compared = 0
    for seed in range(9):
        how = Decoding(sample=True, seed=seed, max_length=most, min_length=fewest, temperature=0.6, top_k=7, n_best=2)
        for prompt, best in zip(prompts, continue_texts(run, prompts, how), strict=True):
            for written in (best, *best.alternatives):
                if "<unk>" in written.tokens:
                    continue  # its text says nothing of it
                assert written.text.startswith(prompt)
                (scored,) = score_texts([run], [written.text]).each
                given_ = len(encoded(run, [prompt])[0]) - len(run.opening) - (unit == "line")
                added = scored[given_:] if unit == "file" or len(written.tokens) < most else scored[given_:-1]
                assert written.score == pytest.approx(float(added.sum()), abs=1e-4)
                compared += 1
    assert compared > 5


@some
@pytest.mark.parametrize("unit", ["line", "file"])
def test_each_prompt_gets_what_it_gets_alone(name, unit):
    run = run_of(name, unit=unit)
    for how in (Decoding(sample=True, max_length=13), Decoding(beam=3, n_best=2, max_length=5), Decoding(max_length=7)):
        together = continue_texts(run, PROMPTS, how)
        for number, prompt in enumerate(PROMPTS):
            (alone,) = continue_texts(run, [prompt], how, first_line=number)
            assert alone.text == together[number].text
            assert alone.score == pytest.approx(together[number].score, abs=1e-6)
            assert [one.text for one in alone.alternatives] == [one.text for one in together[number].alternatives]


@pytest.mark.parametrize("name", ["ngram three", "rnn_lm lstm"])
@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
@pytest.mark.parametrize("unit", ["line", "file"])
def test_what_is_shown_as_it_is_written_is_the_text(name, kind, unit):
    run = run_of(name, unit=unit, kind=kind, lines=[*LINES, "a naïve café, très  cher…", "“日本語” 日本"])
    for seed, prompt in enumerate(["", "the c", "日", "the cat "]):
        shown: list[str] = []
        how = Decoding(sample=True, seed=seed, max_length=29, min_length=23)
        written = stream_text(run, prompt, how, shown.append)
        assert "".join(shown) == written.text
        assert shown[0] == prompt
        assert len([part for part in shown if part]) > 5
        (same,) = continue_texts(run, [prompt], how)
        assert (same.text, same.tokens) == (written.text, written.tokens)
        assert same.score == pytest.approx(written.score)


@pytest.mark.parametrize("name", GPTS)
def test_it_writes_far_beyond_its_context_and_always_the_same(name):
    run = run_of(name, unit="file")
    how = Decoding(sample=True, max_length=7 * CONTEXT, min_length=7 * CONTEXT, seed=5)
    once, again = (continue_texts(run, ["the cat sees a dog sleeps", "a"], how) for _ in range(2))
    assert once == again
    assert all(len(one.tokens) == 7 * CONTEXT for one in once)
    assert all(math.isfinite(one.score) for one in once)
    beam = Decoding(beam=3, max_length=3 * CONTEXT, min_length=3 * CONTEXT)
    assert continue_texts(run, ["a"], beam) == continue_texts(run, ["a"], beam)


def test_a_long_prompt_is_read_from_its_end():
    run = run_of("rnn_lm lstm")
    how = Decoding(max_length=5, longest_source=4)
    cut, short = continue_texts(run, ["the sad dog", " dog"], how)
    assert cut.cut
    assert not short.cut
    assert (cut.tokens, cut.score) == (short.tokens, short.score)
    assert cut.text.startswith("the sad dog")


def test_a_language_model_samples_by_default():
    run = run_of()
    assert run.predict(PROMPTS) == run.predict(PROMPTS, Decoding(sample=True))
    assert run.predict([]) == []


def test_replacing_unknowns_is_for_translators():
    with pytest.raises(UserError, match="replace_unknown needs a translator"):
        run_of().predict(["a"], Decoding(replace_unknown=True))


# --- Mixture -----------------------------------------------------------------------------------------------------

MIXED = ["ngram three", "rnn_lm lstm", "gpt pre learned"]
SHARES = (0.2, 0.5, 0.3)


def test_a_mixture_is_the_weighted_sum():
    models, tokens = [built(name) for name in MIXED], tokens_of(3, CONTEXT + 1)
    both = Mixture(models, [2.0, 5.0, 3.0]).eval()
    expected = sum(share * log_probs(model, tokens).exp() for share, model in zip(SHARES, models, strict=True))
    assert close(log_probs(both, tokens).exp(), expected)
    state = both.start(Batch.of_text(tokens[:, :2]))
    for place in range(1, CONTEXT):
        logits, state = both.step(tokens[:, place], state)
        assert close(logits.double().exp().sum(-1), torch.ones(3).double(), 1e-5)
        chosen = logits.double().log_softmax(-1).exp().gather(1, tokens[:, place + 1, None])[:, 0]
        assert close(chosen, expected[:, place], 1e-5)


def test_mixture_weights_are_equal_by_default():
    assert Mixture([built(name) for name in MIXED]).weights.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("chosen", range(3))
def test_all_of_the_weight_on_one_model_is_that_model(chosen):
    models, tokens = [built(name) for name in MIXED], tokens_of(3, CONTEXT + 1)
    both = Mixture(models, [float(place == chosen) for place in range(3)]).eval()
    assert close(log_probs(both, tokens), log_probs(models[chosen], tokens))
    runs = [run_of(name) for name in MIXED]
    one = mixture(runs, [float(place == chosen) for place in range(3)])
    how = Decoding(sample=True, max_length=5)
    for together, alone in zip(
        continue_texts(one, PROMPTS, how), continue_texts(runs[chosen], PROMPTS, how), strict=True
    ):
        assert together.text == alone.text
        assert together.score == pytest.approx(alone.score, abs=1e-4)


def test_a_mixture_carries_and_sees_as_little_as_its_parts():
    tokens = tokens_of(2, 19)
    both = Mixture([built("ngram one"), built("rnn_lm gru")], [1.0, 2.0]).eval()
    first, state = both.log_probs(Batch.of_text(tokens[:, :8]))
    second, _ = both.log_probs(Batch.of_text(tokens[:, 7:], state))
    assert close(torch.cat([first, second], 1), log_probs(both, tokens))
    assert isinstance(both, Carries)
    assert not isinstance(both, Windowed)
    windowed = Mixture([built(name) for name in MIXED])
    assert isinstance(windowed, Windowed) and windowed.context == CONTEXT
    assert not isinstance(windowed, Carries)


def test_runs_mixed_are_scored_as_the_mixture_that_writes():
    runs = [run_of(name) for name in ("ngram three", "rnn_lm lstm")]
    one = mixture(runs, (0.3, 0.7))
    for written in continue_texts(one, PROMPTS, Decoding(sample=True, max_length=9, min_length=9, top_k=7)):
        if "<unk>" not in written.tokens:
            (scored,) = score_texts(runs, [written.text], weights=(0.3, 0.7)).each
            assert written.score == pytest.approx(float(scored[-10:-1].sum()), abs=1e-4)
    together, alone = score_texts(runs, LINES, weights=(0.3, 0.7)), score_texts([one], LINES)
    assert together.likelihood.log_prob == pytest.approx(alone.likelihood.log_prob, abs=1e-6)
    assert together.weights == (0.3, 0.7)
    assert score_texts(runs, LINES).weights == (0.5, 0.5)


def test_one_run_is_a_mixture_of_one():
    run = run_of()
    assert mixture([run]) is run


@given(seed=st.integers(0, 1000), runs=st.integers(1, 5), tokens=st.integers(1, 37))
def test_fitted_weights_make_the_text_likelier_than_any_other(seed, runs, tokens):
    random = np.random.default_rng(seed)
    found = np.log(random.beta(0.5, 1, (runs, tokens)).clip(1e-9))
    fitted = fitted_weights(found)
    assert sum(fitted) == pytest.approx(1)
    best = float(mixed(found, fitted).sum())
    others = [*np.eye(runs), np.full(runs, 1 / runs), *random.dirichlet(np.ones(runs), 7)]
    for other in others:
        assert float(mixed(found, other).sum()) <= best + 0.01 + 1e-3 * abs(best)


def test_fitted_weights_ignore_tokens_that_are_impossible_for_all():
    impossible = np.array([[-np.inf, -1.0, -np.inf], [-np.inf, -np.inf, -2.0]])
    assert fitted_weights(impossible) == pytest.approx((0.5, 0.5))
    assert sum(fitted_weights(np.full((2, 3), -np.inf))) == pytest.approx(1)


def test_weights_fitted_on_validation_beat_each_run_and_equal_shares_there(tmp_path):
    (tmp_path / "b").write_text("".join(f"{line}\n" for line in LINES))
    runs = [run_of(name) for name in ("rnn_lm lstm", "ngram three", "neural_lm direct=True")]
    runs = [dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, folder=tmp_path)) for run in runs]
    fitted = fit_weights(runs)
    assert np.argmax(fitted) == 1  # the only one that has read anything
    best = score_texts(runs, LINES, weights=fitted).likelihood.per_token
    for other in (*np.eye(3).tolist(), None):
        assert best <= score_texts(runs, LINES, weights=other).likelihood.per_token + 1e-6


def test_what_does_not_mean_the_same_is_not_mixed():
    run = run_of()
    for other, reason in (
        (run_of(lines=["something else"]), "different vocabularies"),
        (run_of(unit="file", lines=[line.removesuffix("\n") for line in LINES]), "different vocabularies"),
        (dataclasses.replace(run_of(unit="file"), fields=run.fields), "data.unit = file"),
        (translator(seed=1), "is for language"),
    ):
        for use in (lambda runs: mixture(runs), lambda runs: score_texts(runs, LINES)):
            with pytest.raises(UserError, match=reason):
                use([run, other])


PAIRS = [(line, " ".join(reversed(line.split()))) for line in LINES]


def translator(*, seed: int) -> Run:
    recipe = parse_recipe(
        {
            "task": "translation",
            "seed": seed,
            "data": {"name": "world"},
            "tokens": {"kind": "words", "size": 0},
            "model": {"name": "seq2seq", "embedding": 5, "hidden": 7, "dropout": 0.0},
            "train": {"steps": 1},
        }
    )
    fields = TASKS["translation"].learn(lambda: PAIRS, PairTokens(kind="words", size=0))
    return Run(recipe, fields, lively(build_model(recipe, fields)), CPU, f"translator {seed}")


def test_translators_make_an_ensemble():
    one, other = (translator(seed=seed) for seed in (1, 2))
    both = mixture([one, other])
    for how in (Decoding(beam=3), Decoding(), Decoding(sample=True)):
        found = both.predict([*LINES, ""], how)
        assert len(found) == len(LINES) + 1
        assert found[-1].text == ""
        twice = mixture([one, one]).predict(LINES, how)
        for same, alone in zip(twice, one.predict(LINES, how), strict=True):
            assert same.text == alone.text
            assert same.score == pytest.approx(alone.score, abs=1e-4)
    source = pairs([[4, 5, EOS], [6, EOS]])
    state: list[State] = [run.model.start(source) for run in (one, other, both)]
    logits = [
        run.model.step(torch.tensor([BOS, BOS]), each)[0] for run, each in zip((one, other, both), state, strict=True)
    ]
    mean = (logits[0].softmax(-1) + logits[1].softmax(-1)) / 2
    assert close(logits[2].double().exp(), mean.double(), 1e-6)


# --- Resuming ----------------------------------------------------------------------------------------------------

STEPS = 7
RNN: dict[str, Any] = {"name": "rnn_lm", "embedding": 7, "hidden": 7, "dropout": 0.3}


def session(folder: Path, out: str, *, model: dict[str, Any] = RNN, unit: str = "file") -> Session:
    """Three rows of a short text: an epoch is a few steps, and a step is two windows."""
    train, valid = folder / "train.txt", folder / "valid.txt"
    if not train.exists():
        train.write_text("".join(f"{line}.\n" for line in LINES))
        valid.write_text("a sad dog sleeps\n")
    recipe = {
        "task": "language",
        "seed": 5,
        "data": {"name": "text", "train": "train.txt", "valid": "valid.txt", "unit": unit, "window": 5},
        "tokens": {"kind": "characters", "size": 0},
        "model": model,
        "train": {
            "steps": STEPS,
            "batch_tokens": 15,
            "accumulate": 2,
            "average": 2,
            "warmup": 1,
            "learning_rate": 0.05,
            "precision": "float32",
            "validate_every": 3,
        },
    }
    return Session(parse_recipe(recipe, folder=folder), folder / out)


def left_by(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Tensor]]:
    """What a run has saved: all of its state but the time it took, and the best model."""
    last, facts = read_tensors(Folder(folder).last)
    return (
        last,
        {name: value for name, value in facts.items() if name != "seconds"},
        read_tensors(Folder(folder).best)[0],
    )


def stopped_after(steps: int, opened: Callable[[], Session]) -> None:
    """Some steps, a stop, and in new sessions the rest."""
    begun = opened()
    for progress in begun.steps():
        if progress.step == steps:
            begun.save()
            break
    resumed = opened()
    assert resumed.training.step == steps
    assert [progress.step for progress in resumed.steps()] == list(range(steps + 1, STEPS + 1))


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_training_reads_on_from_window_to_window_and_each_epoch_begins_anew():
    """With weights that stand still, the loss of an epoch is that of its rows read at once."""
    run = run_of("rnn_lm lstm", unit="file")
    tokens = encoded(run, [f"{line}\n" for line in LINES])[0]
    stream = Carried(tokens, rows=3, window=5, seed=1)
    steps = [stream.count(epoch) for epoch in range(2)]
    assert min(steps) > 2
    config = TrainConfig(steps=sum(steps), learning_rate=1e-15, validate_every=99, precision="float32")
    with torch.enable_grad():
        reports = list(
            train_steps(
                Training(run.model, config), stream, validate=lambda: ({"loss": 1.0}, ()), save_best=lambda: None
            )
        )
    expected, count = 0.0, 0
    for epoch, end in zip(range(2), accumulate(steps), strict=True):
        windows = [target_of(stream.get(epoch, index)) for index in range(steps[epoch])]
        rows = torch.cat([windows[0][:, :1], *(window[:, 1:] for window in windows)], 1)
        found = log_probs(run.model, rows)
        expected, count = expected - float(found.sum()), count + found.numel()
        assert math.log(reports[end - 1].perplexity) == pytest.approx(expected / count, rel=1e-9)


def test_stopped_anywhere_in_a_carried_stream_it_ends_bit_for_bit_as_if_it_was_not(tmp_path):
    whole = session(tmp_path, "straight")
    places = [(whole.training.epoch, whole.training.index) for _ in whole.steps()]
    assert len({epoch for epoch, _ in places}) >= 2
    assert len({index for _, index in places}) > 2  # also in the middle of an epoch
    expected = left_by(tmp_path / "straight")
    assert expected[1]["carried"] == 3  # h, c, and the latest tokens
    assert expected[0]["carry.0"].shape == (3, 7)
    for steps in range(1, STEPS):
        stopped_after(steps, lambda out=f"after-{steps}": session(tmp_path, out))
        last, facts, best = left_by(tmp_path / f"after-{steps}")
        assert same(last, expected[0]), steps
        assert facts == expected[1]
        assert same(best, expected[2])


@pytest.mark.parametrize(
    "model, unit",
    [
        ({**RNN, "cell": "gru", "layers": 2}, "file"),
        ({**RNN, "head": "features", "reach": 3, "rows": 19}, "file"),
        ({"name": "neural_lm", "order": 4, "embedding": 5, "hidden": 7, "dropout": 0.3}, "file"),
        ({"name": "gpt", "dim": 6, "heads": 3, "feed_forward": 11, "layers": 1, "context": 5, "dropout": 0.3}, "file"),
        ({"name": "elmo", "embedding": 5, "hidden": 7, "context": 5, "dropout": 0.3}, "file"),
        (RNN, "line"),
    ],
    ids=["gru", "features", "neural_lm", "gpt", "elmo", "lines"],
)
def test_every_model_resumes_bit_for_bit(tmp_path, model, unit):
    list(session(tmp_path, "straight", model=model, unit=unit).steps())
    stopped_after(3, lambda: session(tmp_path, "stopped", model=model, unit=unit))
    straight, stopped = left_by(tmp_path / "straight"), left_by(tmp_path / "stopped")
    assert same(straight[0], stopped[0])
    assert straight[1] == stopped[1]
    assert same(straight[2], stopped[2])
    assert bool(straight[1]["carried"]) == (unit == "file" and model["name"] not in ("gpt", "elmo"))


def test_the_table_of_features_learns_faster_than_the_network(tmp_path):
    training = session(tmp_path, "run", model={**RNN, "head": "features", "reach": 3, "rows": 19}).training
    names = {parameter: name for name, parameter in training.model.named_parameters()}
    paces = {names[each]: group["pace"] for group in training.optimiser.param_groups for each in group["params"]}
    assert paces.pop("head.features.table") == 10.0
    assert set(paces.values()) == {1.0}


def test_what_was_counted_is_not_counted_again(tmp_path):
    counts = {"name": "ngram", "order": 3}
    (only,) = session(tmp_path, "run", model=counts).steps()
    assert only.finished
    assert list(session(tmp_path, "run", model=counts).steps()) == []


Damage = Callable[[dict[str, Tensor], dict[str, Any]], None]
DAMAGES: dict[str, Damage] = {
    "fewer rows in one": lambda tensors, facts: tensors.update({"carry.1": tensors["carry.1"][:2].clone()}),
    "fewer rows in all": lambda tensors, facts: tensors.update(
        {f"carry.{place}": tensors[f"carry.{place}"][:2].clone() for place in range(3)}
    ),
    "no rows": lambda tensors, facts: tensors.update({"carry.0": torch.tensor(1.0)}),
    "another width": lambda tensors, facts: tensors.update({"carry.0": torch.zeros(3, 5)}),
    "another kind": lambda tensors, facts: tensors.update({"carry.0": tensors["carry.0"].double()}),
    "one missing": lambda tensors, facts: tensors.__delitem__("carry.1"),
    "one more": lambda tensors, facts: tensors.update({"carry.3": torch.zeros(3, 7)}),
    "all forgotten": lambda tensors, facts: facts.update(carried=0),
    "too many": lambda tensors, facts: facts.update(carried=4),
    "no number": lambda tensors, facts: facts.update(carried=None),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was stopped in the middle of its stream."""
    folder = tmp_path_factory.mktemp("begun")
    with torch.enable_grad():
        opened = session(folder, "run")
        next(iter(opened.steps()))
    opened.save()
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_carried_state_that_does_not_fit_is_refused(begun, damage):
    last = Folder(begun / "run").last
    as_it_was = last.read_bytes()
    tensors, facts = read_tensors(last)
    DAMAGES[damage](tensors, facts)
    write_tensors(last, tensors, facts)
    try:
        with pytest.raises(UserError, match=r"^The state in .* does not fit the run \(.*carr[^.]*") as refused:
            session(begun, "run")
        assert "\n" not in str(refused.value)
    finally:
        last.write_bytes(as_it_was)
    assert session(begun, "run").training.step == 1


@pytest.mark.parametrize("name", ["rnn_lm", "gpt"])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_text_of_one_token_predicts_nothing_and_is_refused(tmp_path, name, split):
    for each in ("train", "valid"):
        (tmp_path / f"{each}.txt").write_text("\n" if each == split else "some text\n")
    with pytest.raises(UserError, match=f"The {split} data is too short"):
        session(tmp_path, "run", model={"name": name})


def test_a_line_longer_than_the_context_is_refused_before_training(tmp_path):
    small = {"name": "gpt", "dim": 6, "heads": 3, "layers": 1}
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("the dog\nthe cat sees the dog now\n")
    with pytest.raises(UserError, match="longest text has 25 tokens .* tokens.longest = 23"):
        session(tmp_path, "short", model={**small, "context": 24}, unit="line")
    fits = session(tmp_path, "fits", model={**small, "context": 25}, unit="line")  # though padded it would not
    assert [progress.step for progress in fits.steps()] == list(range(1, STEPS + 1))


def test_the_shortest_text_trains(tmp_path):
    for each in ("train", "valid"):
        (tmp_path / f"{each}.txt").write_text("a\n")
    for model in (RNN, {"name": "ngram"}, {"name": "gpt", "dim": 6, "heads": 3, "layers": 1}):
        *_, end = session(tmp_path, f"run-{model['name']}", model=model).steps()
        assert end.finished
        assert end.valid is not None
        assert math.isfinite(end.valid["loss"])
