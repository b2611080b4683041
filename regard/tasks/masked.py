"""masked: which words are missing in a text (a masked language model)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from regard.config import counted
from regard.data.batches import Examples, Ordered
from regard.data.corruption import HIDDEN, Batches, Masked, Pairs
from regard.data.fields import MULTIPLE, Fields, TextField
from regard.data.in_memory import keep_texts
from regard.data.shards import shuffled
from regard.data.sources import Text
from regard.data.streams import Packed
from regard.data.tokens import TextTokens
from regard.interface import Fills, Learns, Sample, UserError
from regard.look.attention import look_at_text, text_closely
from regard.new.choices import Made, Request
from regard.new.text import new_text_model
from regard.predict.blanks import fill_in, log_prob_of_each, pseudo_log_probs
from regard.predict.decoding import Decoding
from regard.predict.search import room
from regard.recipe import Recipe
from regard.run import Run
from regard.score.likelihood import perplexity
from regard.score.metrics import LOSS, PERPLEXITY
from regard.score.prompted import score_prompted
from regard.score.result import Options, Scored
from regard.tasks import Task, Words
from regard.tasks.language import ImportedText, WorldText, refuse_check
from regard.train.corpus import SHOWN_SAMPLES, VALID_TOKENS, Corpus, Metrics, Sides

BLANK = "[MASK]"
SHOWN_WORDS = 40  # of a sample


class CorruptedCorpus(Corpus):
    """Texts, packed or by themselves, that are corrupted differently in each epoch, and in one way for validation."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.noun = recipe.data.unit
        self.whole_file = recipe.data.unit == "file"
        if self.whole_file and not recipe.data.pack:
            what = f'data.unit = "file" is read in windows for {recipe.task.name}'
            raise UserError(f"{what}: set data.pack to true, or data.unit to line or paragraph.")

    def amount(self, encoded: Sides) -> str:
        tokens = counted(len(encoded["source"].tokens), "token")
        return tokens if self.whole_file else f"{super().amount(encoded)} of {tokens}"

    def texts(self, fields: Fields, encoded: Sides, model: object, *, seed: int | None, tokens: int) -> Batches:
        """Batches of texts as sources; with `seed` None always the same."""
        if self.recipe.data.pack:
            return Packed(encoded["source"], tokens=tokens, window=self.window(model), seed=seed)
        examples = Examples(fields, {"source": encoded["source"]})
        return Ordered(examples, tokens=tokens) if seed is None else shuffled(examples, tokens=tokens, seed=seed)

    def window(self, model: object) -> int:
        """The tokens of packed texts, or of a pair, that are read at once."""
        most: int = vars(self.recipe.data).get("window", self.recipe.tokens.longest + 2)  # and two <eos> of a pair
        longest = room(model)
        return most if longest is None else min(most, longest // MULTIPLE * MULTIPLE)  # padding included

    @abstractmethod
    def corrupted(self, texts: Batches, fields: Fields, seed: int) -> Batches: ...

    def batches(self, fields: Fields, encoded: Sides, model: object) -> Batches:
        seed, tokens = self.recipe.seed, self.recipe.train.batch_tokens
        return self.corrupted(self.texts(fields, encoded, model, seed=seed, tokens=tokens), fields, seed)

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """The loss over the validation texts, and a few blanks filled in."""
        texts = self.texts(run.fields, encoded, run.model, seed=None, tokens=VALID_TOKENS)
        batches, nll, tokens = self.corrupted(texts, run.fields, 0), 0.0, 0
        with torch.inference_mode():
            for index in range(batches.count(0)):
                loss = run.model.loss(batches.get(0, index).to(run.device))  # type: ignore[operator]
                nll, tokens = nll + float(loss.nll), tokens + loss.tokens
        found = {LOSS.key: nll / tokens, "tokens": float(tokens), PERPLEXITY.key: perplexity(-nll, tokens)}
        return found, tuple(samples(run, [text for text, *_ in islice(self.held("valid"), SHOWN_SAMPLES)]))


class MaskedCorpus(CorruptedCorpus):
    """Texts with hidden words; pairs of texts where the model is also to say which of them follow each other."""

    def texts(self, fields: Fields, encoded: Sides, model: object, *, seed: int | None, tokens: int) -> Batches:
        if not vars(self.recipe.model).get("follows"):
            return super().texts(fields, encoded, model, seed=seed, tokens=tokens)
        return Pairs(fields, encoded["source"], tokens=tokens, window=self.window(model), seed=seed or 0)

    def corrupted(self, texts: Batches, fields: Fields, seed: int) -> Batches:
        tokenizer = fields.tokenizer()
        share = vars(self.recipe.model).get("masked", HIDDEN)
        return Masked(texts, first=tokenizer.offset, vocab=tokenizer.size, seed=seed, share=share)


def samples(run: Run, texts: Sequence[str]) -> Iterator[Sample]:
    """Each text, or its first words, with the middle word hidden, and what the model puts there."""
    for text in texts:
        words = text.split()[:SHOWN_WORDS]
        if words:
            shown = " ".join([*words[: len(words) // 2], BLANK, *words[len(words) // 2 + 1 :]])
            yield Sample(shown, " ".join(words), run.task.answer(run, [shown], Decoding(blank=BLANK))[0].text)


def outcomes(run: Run, examples: Sequence[tuple[str]], how: Decoding | None) -> list[Any]:
    return list(pseudo_log_probs(run, [text for (text,) in examples]))


def score(runs: Sequence[Run], texts: Sequence[tuple[str]], asked: Options) -> Scored:
    """Pseudo-perplexity: each token is predicted from all others."""
    (run,) = runs
    every = []
    for values in pseudo_log_probs(run, [text for (text,) in texts]):
        every.append(values)
        if asked.on_answer is not None:
            asked.on_answer(f"{values.sum():.4f}")
    each = np.concatenate(every) if every else np.zeros(0)
    if not len(each):
        raise UserError("The text is empty: give at least one line.")
    value = perplexity(float(each.sum()), len(each))
    lines = [f"pseudo-perplexity per token {value:10.3f}   {len(each):,} tokens, each hidden by itself"]
    return Scored(lines, {"pseudo_perplexity": value, "tokens": len(each), "log_prob": float(each.sum())})


def new(asked: Request) -> Made:
    return new_text_model(replace(asked, unit=asked.unit or "line"))


def demo(run: Run) -> Iterator[str]:
    """How probable hidden words of unseen sentences are, and a few that were filled in."""
    texts = [text for _, text in run.recipe.data.lines("test", run.recipe.folder)]
    each = np.concatenate(list(pseudo_log_probs(run, texts)))
    yield f"\n{len(texts)} unseen sentences, {len(each):,} tokens, each hidden by itself:"
    yield f"  pseudo-perplexity {perplexity(float(each.sum()), len(each)):.2f} per token"
    for sample in samples(run, texts[:5]):
        yield f"  {sample.source}\n    {sample.output}"
    yield "\nNext:"
    yield f'  regard predict {run.name} "The small {BLANK} eats the soup ." --n-best 5'
    yield f"  regard score {run.name} sentences.txt"


TASK = Task(
    name="masked",
    about="English sentences from a small grammar, with hidden words.",
    words=Words(example="text", file="corpus.txt", sides=("text", "text"), try_with=f' "… {BLANK} …"'),
    fields={"source": TextField},
    sources={"world": WorldText, "text": Text, "imported": ImportedText},
    tokens=TextTokens,
    specials=("<mask>",),
    promises={"loss(batch)": Learns, "fill(batch)": Fills},
    metrics=(PERPLEXITY,),
    model="bert",
    contenders=("bert", "roberta", "albert", "electra"),
    demo_model="bert",
    toy=(("a b c",), ("c",)),
    keep=keep_texts,
    corpus=MaskedCorpus,
    new=new,
    check=refuse_check,
    answer=fill_in,
    outcomes=outcomes,
    score=score,
    demo=demo,
    decoding=Decoding(blank=BLANK),
    look=look_at_text,
    look_closely=text_closely,
    log_probs=log_prob_of_each,
    prompted=score_prompted,
    fills=True,
    checked=False,
)
