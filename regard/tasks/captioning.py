"""captioning: a sentence about a picture."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.check.faults import Checked
from regard.check.pictures import check_pictures
from regard.config import counted, values_of
from regard.data.captions import CaptionField, Captions, Scenes, caption_fields
from regard.data.in_memory import keep_captions
from regard.data.pictures import PictureField, size_of
from regard.data.text import BETWEEN, one_line
from regard.data.tokens import TextTokens
from regard.data.world.scenes import Scene
from regard.interface import Generates, Learns, UserError
from regard.look.captions import caption_closely, look_at_caption
from regard.look.weights import attends
from regard.models import MODELS
from regard.new.choices import Made, Request, by_size, first_key, hold_out
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import Line, best_of, generated
from regard.recipe import Recipe
from regard.run import Run
from regard.score.captions import CAPTION_METRICS, POINTING
from regard.score.gold import Gold
from regard.score.labels import score_answers
from regard.score.metrics import CHRF_OF_SEVERAL
from regard.score.translation import log_prob_of_each_pair
from regard.show.caption_page import caption_page
from regard.tasks import Task, Words, entry_of, nothing, with_file
from regard.tasks import entry as usual_entry
from regard.tasks.pictures import (
    BATCH,
    MOVED,
    crop_of,
    given,
    headers_of,
    inputs,
    patch_side,
    side_of,
)
from regard.train.pictures import PictureReading
from regard.train.training import TrainConfig

LENGTH = 32  # tokens of a caption, about, for the size of a batch
LONGEST = 60  # tokens of a caption that is written
STEPS = 3000
FEW_WORDS = 200_000
SHOWN = 2  # pictures after a demo
SMALL = "embedding=64 hidden=128 dropout=0"  # of the comparison


class CaptionCorpus(PictureReading):
    def fits(self, example: Any) -> bool:
        """Whether the caption is neither empty nor too long; a picture always fits."""
        return bool(0 < len(example[1]) <= self.recipe.tokens.longest)


def answer(run: Run, pictures: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Write a caption for each picture."""
    how = how or run.task.decoding or Decoding()
    at_once = max(1, how.batch_tokens // (LENGTH * how.width))
    tokenizer, found = run.tokenizer("target"), []
    for first in range(0, len(pictures), at_once):
        some = pictures[first : first + at_once]
        lines = [Line(first + place, "", [], cut=False) for place in range(len(some))]
        for line, hypotheses in zip(lines, generated(run, lines, run.batch(source=some), how, first_line), strict=True):
            texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
            found.append(best_of(run, line, hypotheses, texts))
    return found


def plain(raw: Any, prediction: Prediction) -> str:
    return with_file(one_line(prediction.text), raw)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return entry_of(raw, usual_entry(raw, prediction))


def new(asked: Request) -> Made:
    """A recipe for a table of pictures and captions."""
    asked.refuse("unit", "second")
    files = asked.train_and_valid()
    path = asked.first_file(files["train"])
    source, target = caption_fields(path)
    data = Captions(**files, source=asked.source or source, target=asked.target or target)
    reasons = {} if asked.target else {"data.target": "of the fields of the table, this one has the most words."}
    every = [(picture, caption) for _, picture, caption in data.labelled(path, nothing)]  # `check` names the others
    if not every:
        deque(data.labelled(path, None), 0)  # where there are only others, the first of them is refused
        raise UserError(f"{path} has no captions: give at least a few pictures with theirs.")
    if data.source:
        chosen, grey, reasons["data.side"] = side_of(headers_of([picture for picture, _ in every], path))
        data = replace(data, side=chosen, channels=1 if grey else 3)
        height = width = chosen
    else:
        height, width, _ = size_of(every[0][0])
    data = replace(data, crop=crop_of(height, width))
    reasons["data.crop"] = MOVED
    if data.hold_out:
        share = min(0.1, 500 / len(every)) if len(every) >= 500 else 0.1
        data = replace(data, hold_out=round(share, 4))
        reasons["data.hold_out"] = hold_out(len(every), share, "picture")
    texts = [text for _, captions in every for text in captions.split(BETWEEN)]
    words = sum(len(text.split()) for text in texts)
    kind = asked.kind or ("words" if words < FEW_WORDS else "bpe")
    if kind == "words":
        reasons["tokens.kind"] = "`look` then shows one map for each word of a caption."
    config = by_size(len(every), *MODELS[asked.model_name].sizes)
    if "patch" in values_of(config):
        config = replace(config, patch=patch_side(height, width))
        reasons["model.patch"] = "few patches make attention fast, and each still shows a part of the picture."
    an_epoch = max(1, len(texts) * max(height, LENGTH) // BATCH)
    epochs = min(40, max(4, round(STEPS / an_epoch)))
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=BATCH,
        learning_rate=2e-3,
        schedule="linear",
        warmup=min(300, max(1, an_epoch * epochs // 10)),
        validate_every=max(20, an_epoch),
        patience=8,
        metric=CHRF_OF_SEVERAL.key,
    )
    reasons[first_key(config)] = f"the size is for {counted(len(every), 'picture')} and {words:,} words."
    tokens = TextTokens(kind=kind, size=0 if kind == "words" else 4000, at_least=2 if words > FEW_WORDS else 1)
    return asked.recipe(data, tokens, config, train), reasons


def check(recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None) -> Checked:
    return check_pictures(recipe, write, on_example, labels=False)


def gold(data: Any, examples: Sequence[tuple[Any, str]]) -> Gold | None:
    """The grammar of scenes knows what each word is about; a word is pointed at by chance as often as its region is
    large."""
    return gold_regions(data, data.drawn("test")) if isinstance(data, Scenes) else None


def gold_regions(data: Scenes, drawn: Iterable[Scene]) -> Gold:
    regions = tuple(np.stack(scene.regions(data.language, data.side)) for scene in drawn)
    size = 100 * float(np.concatenate([each.mean((1, 2)) for each in regions]).mean())
    return Gold(POINTING, regions, maps_of, size, "the region's share of the picture")


def maps_of(run: Run, examples: Sequence[tuple[Any, str]]) -> list[Any]:
    return [look_at_caption(run, picture, caption).weights for picture, caption in examples]


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
            known = gold_regions(data, scenes)
            share = known.metric.over(known.statistics(run, examples))
            yield f"  {known.metric.name} {share:.1f} %   ({known.baseline_name}: {known.baseline:.1f} %)"
    if attends(run.model):
        for scene in list(data.drawn("test"))[:SHOWN]:
            seen = look_at_caption(run, data.example(scene)[0])
            yield f"\n{' '.join(seen.words)}\n"
            yield seen.text(100)
    yield "\nNext:"
    yield f"  regard look {run.name} photo.png --html look.html"
    yield f"  regard train {run.name}/config.toml data.language=french -o runs/french"


def right(output: str, reference: str) -> float:
    return CHRF_OF_SEVERAL.of([output], [reference])


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
        judged="chrF of the caption",
        try_with=" photo.jpg",
    ),
    fields={"source": PictureField, "target": CaptionField},
    sources={"scenes": Scenes, "captions": Captions},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "start(batch) and step(tokens, state)": Generates},
    metrics=CAPTION_METRICS,
    model="show_attend_tell",
    contenders=("show_attend_tell", "captioner"),
    demo_model="show_attend_tell",
    toy=((np.zeros((16, 16, 3), np.uint8), "a b c"), (np.full((16, 16, 3), 255, np.uint8), "c")),
    corpus=CaptionCorpus,
    keep=keep_captions,
    new=new,
    check=check,
    answer=answer,
    score=score_answers,
    demo=demo,
    right=right,
    plain=plain,
    entry=entry,
    inputs=inputs,
    given=given,
    decoding=Decoding(beam=5, max_length=LONGEST),
    look=look_at_caption,
    look_closely=caption_closely,
    page=caption_page,
    log_probs=log_prob_of_each_pair,
    contest={
        "no attention": f"show_attend_tell attention=none {SMALL}",
        "show_attend_tell": f"show_attend_tell {SMALL}",
        "captioner": "captioner patch=8 dim=96 heads=4 feed_forward=192 layers=3 dropout=0 label_smoothing=0",
    },
    gold=gold,
)
