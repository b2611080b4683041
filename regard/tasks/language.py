"""language: how probable a text is, and how it continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.config import counted
from regard.data import world
from regard.data.batches import Encoded, Examples
from regard.data.corruption import Batches
from regard.data.fields import Fields, TextField
from regard.data.in_memory import keep_texts
from regard.data.shards import shuffled
from regard.data.sources import UNDECIDED, Arpa, Imported, Text, World
from regard.data.streams import Anywhere, Carried, Joined, Packed
from regard.data.tokens import TextTokens
from regard.interface import BOS, EOS, Fits, Generates, Learns, Sample, Scores, UserError, Windowed
from regard.look.attention import look_at_text, text_closely
from regard.new.text import new_text_model
from regard.predict.decoding import Decoding
from regard.predict.text import continue_texts, stream_text
from regard.recipe import Recipe
from regard.run import Run
from regard.score.likelihood import (
    carried_log_probs,
    log_prob_of_each,
    score_language,
    score_texts,
    token_log_probs,
)
from regard.score.metrics import LOSS, PERPLEXITY
from regard.score.prompted import score_prompted
from regard.tasks import Task, Words
from regard.train.corpus import SHOWN_SAMPLES, Corpus, Metrics, Sides

SAMPLE_LENGTH = 100  # tokens of a sample that is shown after validation
VALID_ROWS = 32  # positions of a whole file that are read side by side in validation
BLOCK = 64  # tokens of one long text that count as one example


class WorldText(World):
    """English sentences of the built-in grammar."""

    form = Text(train="", hold_out=UNDECIDED)

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        return (" ".join(pair.source),)


class ImportedText(Imported):
    form = WorldText.form


class TextCorpus(Corpus):
    """Separate texts, or one long text that is read in windows."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.noun = recipe.data.unit
        self.whole_file = recipe.data.unit == "file"
        self.packed = recipe.data.pack and not self.whole_file

    def amount(self, encoded: Sides) -> str:
        tokens = counted(len(encoded["target"].tokens), "token")
        return tokens if self.whole_file else f"{super().amount(encoded)} of {tokens}"

    def batches(self, fields: Fields, encoded: Sides, model: object) -> Batches:
        """A model that carries its state reads a whole file, or packed texts, in order; one that sees a window reads
        random parts of a file, or all windows of packed texts."""
        train, seed, texts = self.recipe.train, self.recipe.seed, encoded["target"]
        context = model.context if isinstance(model, Windowed) else None
        if self.packed and isinstance(model, Fits):
            raise UserError("data.pack is for models that read windows, and this one counts texts: set it to false.")
        if self.packed and context is not None:
            return Packed(texts, tokens=train.batch_tokens, window=context, seed=seed, ahead=True)
        if not self.whole_file and not self.packed:
            if context is not None and (longest := int(texts.lengths.max()) + 1) > context:
                raise UserError(
                    f"The longest text has {longest} tokens with its end, more than model.context = {context}: "
                    f"set model.context to {longest} or more, or leave longer texts out with "
                    f"tokens.longest = {context - 1}."
                )
            return shuffled(Examples(fields, encoded, most=context), tokens=train.batch_tokens, seed=seed)
        if context is not None:
            rows = max(1, train.batch_tokens // context)
            return Anywhere(texts.tokens, rows=rows, window=context, seed=seed)
        window = self.recipe.data.window
        rows = max(1, train.batch_tokens // window)
        return Carried(Joined(texts) if self.packed else texts.tokens, rows=rows, window=window, seed=seed)

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """The loss over the validation text, and a few samples."""
        log_prob, tokens = self._likelihood(cast(Scores, run.model), encoded["target"], run.device)
        how = Decoding(sample=True, max_length=SAMPLE_LENGTH)
        samples = (Sample("", "", each.text) for each in run.predict([""] * SHOWN_SAMPLES, how))
        found = {LOSS.key: -log_prob / tokens, "tokens": float(tokens)}
        found[PERPLEXITY.key] = float(PERPLEXITY.value(np.array([-log_prob, tokens])))
        return found, tuple(samples)

    def _likelihood(self, model: Scores, texts: Encoded, device: torch.device) -> tuple[float, int]:
        context = model.context if isinstance(model, Windowed) else None
        joined = Joined(texts)
        tokens = joined[np.arange(-1, len(joined))] if self.packed else texts.tokens
        if not self.whole_file and not self.packed:
            each = [np.concatenate([[BOS], texts[i], [EOS]]) for i in range(len(texts))]
        elif context is not None:
            each = [tokens]
        else:  # side by side, each position as if a text began there: quick, and only slightly too high
            rows = max(1, min(VALID_ROWS, (len(tokens) - 1) // (2 * self.recipe.data.window)))
            span = (len(tokens) - 1) // rows
            starts = np.arange(rows)[:, None] * span
            found = carried_log_probs(model, tokens[starts + np.arange(span + 1)], device=device)
            return float(found.sum()), found.size
        scored = token_log_probs(model, each, device=device, stride=context or 0)
        return float(sum(values.sum() for values in scored)), sum(map(len, scored))


def outcomes(run: Run, examples: Sequence[tuple[str]], how: Decoding | None) -> list[Any]:
    """ln p of the tokens of each text, or of stretches of one long text."""
    each: list[Any] = score_texts([run], [text for (text,) in examples]).each
    if run.whole_file:
        (long,) = each
        each = [long[at : at + BLOCK] for at in range(0, len(long), BLOCK)]
    return each


def refuse_check(recipe: Recipe, write: Path | None, on_example: object = None) -> None:
    raise UserError(
        f"check reads pairs or labels, and {recipe.task.name} has neither: train on the text without a check."
    )


def demo(run: Run) -> Iterator[str]:
    """Bits per character on unseen sentences, and a few samples."""
    data = run.recipe.data
    found = score_texts([run], [text for _, text in data.lines("test", run.recipe.folder)]).likelihood
    yield f"\n{found.ends} unseen sentences, {found.characters:,} characters:"
    yield f"  {found.bits_per_character:.3f} bits per character; perplexity {found.per_word:.2f} per word"
    yield "\nSampled sentences:"
    for written in run.predict([""] * 5, Decoding(sample=True, temperature=0.5)):
        yield f"  {written.text}"
    yield "\nNext:"
    yield f'  regard predict {run.name} --prompt "The small cat" --temperature 0.5'
    yield f"  regard score {run.name} --each sentences.txt"
    yield "  regard new language your.txt -o lm.toml"


TASK = Task(
    name="language",
    about="English sentences from a small grammar, as characters.",
    words=Words(example="text", file="corpus.txt", sides=("text", "text"), try_with=' --prompt "…"'),
    fields={"target": TextField},
    sources={"world": WorldText, "text": Text, "arpa": Arpa, "imported": ImportedText},
    tokens=TextTokens,
    promises={
        "loss(batch), or fit(texts) and restore(tensors)": Learns | Fits,
        "log_probs(batch)": Scores,
        "start(batch) and step(tokens, state)": Generates,
    },
    metrics=(PERPLEXITY,),
    model="rnn_lm",
    contenders=("ngram", "neural_lm", "rnn_lm cell=tanh", "rnn_lm cell=lstm", "gpt"),
    demo_model="rnn_lm",
    toy=(("a b c",), ("c",)),
    keep=keep_texts,
    corpus=TextCorpus,
    new=new_text_model,
    check=refuse_check,
    answer=continue_texts,
    outcomes=outcomes,
    score=score_language,
    demo=demo,
    decoding=Decoding(sample=True),
    look=look_at_text,
    look_closely=text_closely,
    log_probs=log_prob_of_each,
    prompted=score_prompted,
    contest={
        "KN5": "ngram",
        "neural_lm": "neural_lm embedding=64 hidden=256 dropout=0 train.learning_rate=0.002",
        "rnn_lm tanh": "rnn_lm cell=tanh embedding=128 hidden=256 tie=false dropout=0 train.learning_rate=0.002",
        "rnn_lm lstm": "rnn_lm cell=lstm embedding=128 hidden=256 tie=false dropout=0",
        "gpt": "gpt dim=128 heads=4 feed_forward=512 layers=3 context=64 dropout=0 train.learning_rate=0.003",
    },
    mixes=True,
    stream=stream_text,
    checked=False,
)
