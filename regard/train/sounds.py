"""Training data that is recordings: encoded once as frames, and changed a little in each epoch (augmentation)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

from regard.data.batches import Examples, validation_plan
from regard.data.corruption import Batches
from regard.data.fields import Fields
from regard.data.frames import HOP
from regard.data.sound_augmentation import augmented_sounds
from regard.data.sound_sources import LabelledSounds
from regard.data.sounds import SoundField
from regard.interface import Sample
from regard.predict.transcribing import greedy_texts
from regard.run import Run
from regard.train.corpus import SHOWN_SAMPLES, VALID_TOKENS, Corpus, Metrics, Sides, loss_over

LONGEST = 30.0  # seconds of a recording; training leaves longer ones out


class SoundReading(Corpus):
    """Recordings, changed a little in each epoch where the data asks for augmentation."""

    def fits(self, example: Sequence[Any]) -> bool:
        """Whether a recording is short enough, and its text neither empty nor too long."""
        data: Any = self.recipe.data
        frames, answer = len(example[0]) // data.bands, example[1]
        short = self.recipe.task.decoding is None or 0 < len(answer) <= self.recipe.tokens.longest
        return frames <= LONGEST / HOP and short

    def batches(self, fields: Fields, encoded: Sides, model: object) -> Batches:
        recordings, data, field = super().batches(fields, encoded, model), self.recipe.data, fields["source"]
        if not isinstance(data, LabelledSounds) or not isinstance(field, SoundField):
            return cast(Batches, recordings)
        return augmented_sounds(recordings, data.augmentation, field, self.recipe.seed)


class TranscriptCorpus(SoundReading):
    """Recordings and their transcripts."""

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """Return the validation loss, the task's metrics and a few transcripts, from frames encoded before."""
        examples = Examples(run.fields, encoded)
        found = loss_over(run, examples)
        texts = [""] * len(examples)
        for some in validation_plan(*examples.lengths, tokens=VALID_TOKENS):
            for place, text in zip(some, greedy_texts(run, examples.collate(some).to(run.device)), strict=True):
                texts[place] = text
        tokenizer = run.tokenizer("target")
        references = [tokenizer.decode(ids.tolist()) for ids in map(encoded["target"].__getitem__, range(len(texts)))]
        found |= {metric.key: metric.of(texts, references) for metric in run.task.metrics}
        shown = islice(zip(references, texts, strict=True), SHOWN_SAMPLES)
        return found, tuple(Sample("", *each) for each in shown)
