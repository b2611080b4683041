"""sounds: one label for a recording, such as a keyword, a speaker or what made the sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.check.sounds import check_sounds
from regard.data.batches import Examples
from regard.data.fields import LabelField
from regard.data.in_memory import keep_recordings
from regard.data.recordings import Recording, header_of, recording_of
from regard.data.sound_sources import LabelledSounds, sound_files
from regard.data.sounds import SoundField
from regard.interface import Sample, UserError
from regard.look.recordings import Heard, heard, sound_field
from regard.look.sounds import label_of_recording_closely, look_at_label_of
from regard.new.choices import Made, Request
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import some_at_once
from regard.predict.labels import labels_of
from regard.run import Run
from regard.show.sound_map import SoundMap
from regard.show.sound_page import Transcribed, sound_page
from regard.tasks import entry_of, nothing, with_file
from regard.tasks.classification import TASK as CLASSIFICATION
from regard.tasks.classification import LabelCorpus
from regard.tasks.pictures import NoTokens
from regard.train.corpus import SHOWN_SAMPLES, Metrics, Sides, loss_over
from regard.train.sounds import SoundReading

AT_ONCE = 64  # recordings
LONGEST = 10.0  # seconds of a recording that are read for its label
BATCH = 4000  # frames
RATES = (8000, 16000)  # samples per second, from which `new` chooses
LOOKED_AT = 200  # recordings from which it chooses


class LabelledSoundCorpus(SoundReading, LabelCorpus):
    """Recordings and their labels."""

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """Return the validation loss, the task's metrics and a few labels, from frames that were encoded before."""
        examples, names = Examples(run.fields, encoded), run.fields.names()
        outputs = list[str]()
        for some in some_at_once(range(len(examples)), AT_ONCE):
            outputs += [label.text for label in labels_of(run, examples.collate(some).to(run.device))]
        references = [names[number] for number in encoded["target"].tokens.tolist()]
        found = loss_over(run, examples) | {metric.key: metric.of(outputs, references) for metric in run.task.metrics}
        return found, tuple(Sample("", *each) for each in islice(zip(references, outputs, strict=True), SHOWN_SAMPLES))


def answer(run: Run, raws: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    field = run.fields["source"]
    assert isinstance(field, SoundField)
    found = []
    for some in some_at_once(raws, AT_ONCE):
        several = [recording_of(raw, field.rate) for raw in some]
        shorter = [beginning(each) for each in several]
        labels = labels_of(run, run.batch(source=shorter))
        found += [
            replace(label, cut=short is not whole) for label, short, whole in zip(labels, shorter, several, strict=True)
        ]
    return found


def beginning(recording: Recording) -> Recording:
    """As much as is read for a label."""
    if recording.seconds <= LONGEST:
        return recording
    held = recording.held
    part = held if held is None else held[: round(LONGEST * recording.held_rate)]
    return replace(recording, end=recording.start + LONGEST, held=part)


def look(run: Run, raw: Any, target: str | None = None, layer: int | None = None) -> SoundMap:
    return look_at_label_of(run, opening(run, raw), target, layer)


def look_closely(run: Run, raw: Any, target: str | None = None) -> Transcribed:
    return label_of_recording_closely(run, opening(run, raw), target)


def opening(run: Run, raw: Any) -> Heard:
    return heard(run, raw, beginning(recording_of(raw, sound_field(run).rate)))


# --- what both tasks of recordings have --------------------------------------------------------------------------


def inputs(file: Path | None, errors: str = "strict") -> Iterator[Recording]:
    """The recordings that a file or a folder holds."""
    if file is None:
        raise UserError("Recordings are read from files: give some after the run, or a folder, or a table of files.")
    return iter(sound_files(file))


def given(text: str) -> list[Recording]:
    return list(inputs(Path(text)))


def usual_rate(recordings: Sequence[Recording]) -> int:
    """The rate that most of these files have, and that models are made for; those that cannot be read are left for
    `check`, unless all are."""
    rates, problem = list[int](), None
    for recording in recordings[:: max(1, len(recordings) // LOOKED_AT)]:
        try:
            rates.append(header_of(recording.path).rate)
        except UserError as refused:
            problem = refused
    if not rates and problem is not None:
        raise problem
    return RATES[-1] if np.median(rates) >= RATES[-1] else RATES[0]


# -----------------------------------------------------------------------------------------------------------------


def plain(raw: Any, prediction: Prediction) -> str:
    return with_file(CLASSIFICATION.plain(raw, prediction), raw)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return entry_of(raw, CLASSIFICATION.entry(raw, prediction))


def new(asked: Request) -> Made:
    """A recipe for a folder of class folders, or a table of files and labels."""
    asked.refuse("kind", "unit", "second")
    files = asked.train_and_valid()
    path = asked.first_file(files["train"])
    data = LabelledSounds(**files, source=asked.source or "", target=asked.target or "")
    rate = usual_rate([recording for _, recording, _ in data.labelled(path, nothing)])
    data = replace(data, rate=rate, bands=40, mask=True)
    reasons = {"data.mask": "SpecAugment, a form of data augmentation, helps where recordings are few."}
    recipe, reasons = new_labelled(asked, data, NoTokens(), reasons)
    train = replace(recipe.train, epochs=max(30, recipe.train.epochs), batch_tokens=BATCH, learning_rate=2e-3)
    return replace(recipe, train=train), reasons


TOY = [Recording(held=np.full(4000, level, np.float32), held_rate=8000, rate=8000, bands=16) for level in (0.0, 0.5)]

TASK = replace(
    CLASSIFICATION,
    name="sounds",
    about="Recordings, each with a label.",
    words=replace(
        CLASSIFICATION.words,
        example="recording",
        file="recordings/",
        units="frames",
        reads="recording",
        try_with=" recording.wav",
    ),
    fields={"source": SoundField, "target": LabelField},
    sources={"sounds": LabelledSounds},
    tokens=NoTokens,
    model="birnn",
    contenders=("birnn", "attentive_birnn", "encoder"),
    toy=((TOY[0], "x"), (TOY[1], "y")),
    keep=keep_recordings,
    corpus=LabelledSoundCorpus,
    new=new,
    check=check_sounds,
    answer=answer,
    plain=plain,
    entry=entry,
    demo=nothing,
    inputs=inputs,
    given=given,
    look=look,
    look_closely=look_closely,
    page=sound_page,
)
