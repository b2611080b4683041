"""captioning: a sentence about a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from regard.data.captions import CaptionField, Scenes
from regard.data.pictures import PictureField
from regard.data.text import BETWEEN
from regard.data.tokens import TextTokens
from regard.data.world.scenes import Scene, coverage
from regard.interface import Generates, Learns
from regard.look.captions import caption_closely, grid_of, look_at_caption, written
from regard.look.weights import attends
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import Line, best_of, generated
from regard.run import Run
from regard.score.captions import CAPTION_METRICS, words_of
from regard.score.labels import score_answers
from regard.score.translation import log_prob_of_each_pair
from regard.show.caption_page import caption_page
from regard.tasks import Task, Words
from regard.tasks.pictures import given, inputs
from regard.train.corpus import Corpus

LENGTH = 32  # tokens of a caption, about, for the size of a batch
SHOWN = 2  # pictures after a demo


class CaptionCorpus(Corpus):
    def fits(self, example: Any) -> bool:
        """Whether the caption is neither empty nor too long; a picture always fits."""
        return 0 < len(example[1]) <= self.recipe.tokens.longest


def answer(run: Run, pictures: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Write a caption for each picture."""
    how = how or run.task.decoding or Decoding()
    at_once = max(1, how.batch_tokens // (LENGTH * how.width))
    tokenizer, found = run.tokenizer("target"), []
    for first in range(0, len(pictures), at_once):
        some = pictures[first : first + at_once]
        lines = [Line(first + place, "", [], cut=False) for place in range(len(some))]
        for line, hypotheses in zip(
            lines, generated(run, lines, run.batch(source=some), how, first_line), strict=True
        ):
            texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
            found.append(best_of(run, line, hypotheses, texts))
    return found


def pointing(run: Run, data: Scenes, scenes: Sequence[Scene]) -> tuple[float, float]:
    """The share of attention inside the region of each word, and the region's share of the picture: means over the
    words of right captions."""
    inside, sizes = [], []
    for scene in scenes:
        picture, caption = data.example(scene)
        words, weights = written(run, picture, caption)
        grid = grid_of(picture.shape, weights.shape[1])
        regions = scene.regions(data.language, data.side)
        for share, region in zip(weights, regions, strict=True) if len(words) == len(regions) else ():
            inside.append(float((share.reshape(grid) * coverage(region, *grid)).sum() / max(1e-9, share.sum())))
            sizes.append(float(region.mean()))
    return float(np.mean(inside)), float(np.mean(sizes))


def demo(run: Run) -> Iterator[Any]:
    """Exact match on unseen scenes, with held-out combinations and without, and where the model looked."""
    data = run.recipe.data
    assert isinstance(data, Scenes)
    splits = {"unseen scenes": False, "scenes with a combination of colour and shape that training never shows": True}
    for name, held_out in splits.items():
        scenes = list(data.drawn("test", held_out=held_out))
        examples = [data.example(scene) for scene in scenes]
        outputs = [prediction.text for prediction in run.predict([picture for picture, _ in examples])]
        references = [caption for _, caption in examples]
        yield f"\n{len(scenes)} {name}:"
        for metric in CAPTION_METRICS:
            yield f"  {metric.name:12} {metric.of(outputs, references):6.2f}"
        if attends(run.model) and not held_out:
            share, size = pointing(run, data, scenes)
            yield f"  attention inside the word's region {share:.1%}   (the region's share of the picture: {size:.1%})"
    if attends(run.model):
        for scene in list(data.drawn("test"))[:SHOWN]:
            seen = look_at_caption(run, data.example(scene)[0])
            yield f"\n{' '.join(seen.words)}\n"
            yield seen.text(100)


def right(output: str, reference: str) -> float:
    return 100.0 * (words_of(output) in [words_of(caption) for caption in reference.split(BETWEEN)])


TASK = Task(
    name="captioning",
    about="Pictures of one or two things, drawn by a small grammar, and captions in English.",
    words=Words(
        example="picture",
        file="captions.tsv",
        units="rows of pixels",
        reads="picture",
        sides=("picture", "caption"),
        another="another caption of an earlier picture",
    ),
    fields={"source": PictureField, "target": CaptionField},
    sources={"scenes": Scenes},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "start(batch) and step(tokens, state)": Generates},
    metrics=CAPTION_METRICS,
    model="show_attend_tell",
    contenders=("show_attend_tell", "captioner"),
    demo_model="show_attend_tell",
    toy=((np.zeros((16, 16, 3), np.uint8), "a b c"), (np.full((16, 16, 3), 255, np.uint8), "c")),
    corpus=CaptionCorpus,
    new=lambda asked: None,
    check=lambda *_: None,
    answer=answer,
    score=score_answers,
    demo=demo,
    right=right,
    inputs=inputs,
    given=given,
    decoding=Decoding(beam=5),
    look=look_at_caption,
    look_closely=caption_closely,
    page=caption_page,
    log_probs=log_prob_of_each_pair,
)
