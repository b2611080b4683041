"""speech: the text of a recording (speech recognition)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from regard.check.sounds import check_transcripts
from regard.config import counted
from regard.data.fields import TextField
from regard.data.in_memory import keep_recordings
from regard.data.recordings import Recording
from regard.data.sound_sources import Recordings, file_and_transcript
from regard.data.sounds import SoundField
from regard.data.spoken import Spoken
from regard.data.text import one_line
from regard.data.tokens import Kind, TextTokens
from regard.interface import Emits, Generates, Learns, UserError
from regard.look.recordings import look_at_recording, recording_closely
from regard.models import MODELS
from regard.new.choices import Made, Request, first_key, hold_out
from regard.predict.decoding import Decoding, Prediction
from regard.predict.transcribing import log_prob_of_each_transcript, times_of_texts, transcribe
from regard.run import Run
from regard.score.error_rates import RECOGNITION_METRICS, TIMING, TIMING_DISTANCE, WER, equally_spaced
from regard.score.gold import Gold
from regard.score.nearest_spectrum import NearestSpectrum
from regard.score.recognition import score_transcripts
from regard.show.sound_page import sound_page
from regard.tasks import Task, Words, entry_of, nothing, with_file
from regard.tasks import entry as usual_entry
from regard.tasks.sounds import given, inputs, usual_rate
from regard.train.sounds import TranscriptCorpus
from regard.train.training import TrainConfig

BATCH = 6000  # frames: a minute
FEW_TYPES = 300  # words that are tokens of their own, at most
TIMES = 5  # how often such a word occurs, on average, at least
LOOKED_AT = 200  # recordings from which `new` chooses
MINUTES = (30.0, 300.0, 3000.0)  # of sound, up to which a size of a model is chosen
FITTED = 500  # utterances that the baseline learns from


def plain(raw: Any, prediction: Prediction) -> str:
    return with_file(one_line(prediction.text), raw)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    times = [timed._asdict() for timed in prediction.times or ()]
    return entry_of(raw, {**usual_entry(raw, prediction), "times": times})


def new(asked: Request) -> Made:
    """A recipe for a table of recordings and their transcripts."""
    asked.refuse("unit", "second")
    files = asked.train_and_valid()
    path = asked.first_file(files["train"])
    source, target = file_and_transcript(path)
    data = Recordings(**files, source=asked.source or source, target=asked.target or target)
    every = [(recording, text) for _, recording, text in data.read(path, nothing)]  # `check` names the others
    if not every:
        for _ in data.read(path, None):  # the first that cannot be used is refused
            pass
        raise UserError(f"{path} has no recordings: give at least a few with their transcripts.")
    reasons = {} if asked.target else {"data.target": "of the fields of the table, this one has the most words."}
    some = [recording for recording, _ in every[:: max(1, len(every) // LOOKED_AT)]]
    rate = usual_rate(some)
    minutes = mean_seconds(some) * len(every) / 60
    data = replace(data, rate=rate, mask=True)
    reasons["data.rate"] = "samples per second, as most of the files have at least."
    reasons["data.mask"] = "SpecAugment, a form of data augmentation, helps wherever recordings are few."
    if data.hold_out:
        share = min(0.1, 500 / len(every)) if len(every) >= 500 else 0.1
        data = replace(data, hold_out=round(share, 4))
        reasons["data.hold_out"] = hold_out(len(every), share, "recording")
    texts = [text for _, text in every]
    kind, reasons["tokens.kind"] = (asked.kind, "as asked.") if asked.kind else kind_of(texts)
    config = MODELS[asked.model_name].sizes[sum(minutes > most for most in MINUTES)]
    an_epoch = max(1, round(minutes * 6000 / BATCH))
    epochs = min(100, max(10, round(4000 / an_epoch)))
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=BATCH,
        learning_rate=2e-3,
        schedule="linear",
        warmup=min(300, max(1, an_epoch * epochs // 10)),
        validate_every=max(20, 2 * an_epoch),
        patience=12,
        metric=WER.key,
        smooth=0.1,
    )
    words = sum(len(text.split()) for text in texts)
    length = counted(round(minutes), "minute") if minutes >= 1 else f"{60 * minutes:.0f} seconds"
    amount = f"{length} of sound and {words:,} words"
    reasons[first_key(config)] = f"the size is for {amount}."
    tokens = TextTokens(kind=kind, size=0 if kind != "bpe" else 1000)
    return asked.recipe(data, tokens, config, train), reasons


def mean_seconds(recordings: Sequence[Recording]) -> float:
    """The mean length of these files; those that cannot be read are left for `check`."""
    lengths = list[float]()
    for recording in recordings:
        with suppress(UserError):
            lengths.append(recording.seconds)
    return sum(lengths) / max(1, len(lengths))


def kind_of(texts: Sequence[str]) -> tuple[Kind, str]:
    """The kind of tokens for these transcripts, and the reason."""
    counts = Counter(word for text in texts for word in text.split())
    if len(counts) <= FEW_TYPES and counts.total() >= TIMES * len(counts):
        return "words", f"the transcripts have {counted(len(counts), 'different word')} only; others become <unk>."
    return "characters", "any word can be spelled."


def gold(data: Any, examples: Sequence[tuple[Any, str]]) -> Gold | None:
    """The synthesiser knows when it says each word."""
    return gold_times(list(data.drawn("test"))) if isinstance(data, Spoken) else None


def placed(run: Run, examples: Sequence[tuple[Any, str]]) -> list[Any]:
    """When a run places each word of the reference, in seconds."""
    return [np.array([(timed.start + timed.end) / 2 for timed in times]) for times in times_of_texts(run, examples)]


def gold_times(utterances: Sequence[Any]) -> Gold:
    spans = tuple(np.array(each.spans) for each in utterances)
    even = [equally_spaced(each.seconds, len(each.words)) for each in utterances]
    baseline = float(TIMING.of(even, spans))
    return Gold(TIMING, spans, placed, baseline, "words equally spaced")


def demo(run: Run) -> Iterator[Any]:
    """Word error rate on unseen strings beside a baseline without a sequence, and when each word was spoken."""
    data = run.recipe.data
    assert isinstance(data, Spoken)
    utterances = list(data.drawn("test"))
    examples = [data.example(each) for each in utterances]
    outputs = [answer.text for answer in run.predict([recording for recording, _ in examples])]
    references = [text for _, text in examples]
    lengths = [len(text.split()) for text in references]
    yield f"\n{len(examples)} unseen strings of {min(lengths)} to {max(lengths)} words:"
    for metric in RECOGNITION_METRICS:
        yield f"  {metric.name:22} {metric.of(outputs, references):6.2f} %"
    nearest = NearestSpectrum.fit(islice(data.drawn("train"), FITTED), rate=data.rate, bands=data.bands)
    guesses = nearest.recognise(utterances)
    note = "(a baseline that knows when each word begins and ends)"
    yield f"  {'nearest mean spectrum':22} {WER.of(guesses, references):6.2f} %   {note}"
    known = gold_times(utterances)
    statistics = known.statistics(run, examples)
    share, apart = known.metric.over(statistics), TIMING_DISTANCE.over(statistics)
    yield f"  {known.metric.name} {share:.1f} %   ({known.baseline_name}: {known.baseline:.1f} %)"
    yield f"  {TIMING_DISTANCE.name} to a unit's middle {apart:.0f} ms"
    seen = look_at_recording(run, examples[0][0])
    yield f"\n{outputs[0]}\n"
    yield seen.text(100)
    yield "\nNext:"
    yield f"  regard look {run.name} recording.wav --html look.html"
    yield f"  regard train {run.name}/config.toml model.name=las -o runs/las"


def right(output: str, reference: str) -> float:
    return max(0.0, 100 - WER.of([output], [reference]))


TASK = Task(
    name="speech",
    about="Spoken numbers: strings of digits, from a small synthesiser.",
    words=Words(
        example="recording",
        file="recordings.tsv",
        units="frames",
        reads="recording",
        sides=("recording", "transcript"),
        another="another transcript of an earlier recording",
        judged="100 less the word error rate of the transcript",
        try_with=" recording.wav",
    ),
    fields={"source": SoundField, "target": TextField},
    sources={"spoken": Spoken, "recordings": Recordings},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "start(batch) and step(tokens, state), or emit(batch)": Generates | Emits},
    metrics=RECOGNITION_METRICS,
    model="ctc",
    contenders=("ctc", "las", "speech_transformer"),
    demo_model="ctc",
    toy=(
        (Recording(held=np.zeros(4000, np.float32), held_rate=8000, rate=8000, bands=16), "a b"),
        (Recording(held=np.ones(6000, np.float32), held_rate=8000, rate=8000, bands=16), "c"),
    ),
    corpus=TranscriptCorpus,
    keep=keep_recordings,
    new=new,
    check=check_transcripts,
    answer=transcribe,
    score=score_transcripts,
    demo=demo,
    right=right,
    plain=plain,
    entry=entry,
    inputs=inputs,
    given=given,
    decoding=Decoding(beam=8),
    look=look_at_recording,
    look_closely=recording_closely,
    page=sound_page,
    log_probs=log_prob_of_each_transcript,
    contest={
        "ctc": "ctc dim=96 hidden=96 layers=2 dropout=0.1",
        "las": "las embedding=96 hidden=96 layers=2 dropout=0.1",
        "speech_transformer": "speech_transformer dim=96 feed_forward=192 layers=3 decoder_layers=1 dropout=0.1",
    },
    gold=gold,
    lm=True,
)
