"""demo: train a translator on the built-in corpus and measure it on sentences it has never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path

from regard.config import unknown
from regard.data import world
from regard.data.batches import pad
from regard.data.sources import World
from regard.data.tokens import Piece
from regard.interface import Batch, UserError
from regard.look import forced_weights, merge
from regard.models import MODELS
from regard.models.encoder_decoder import EncoderDecoder
from regard.predict import Decoding
from regard.recipe import Recipe, read_recipe
from regard.run import Run
from regard.score import Links, Score, alignment_error, bleu, diagonal_links, strongest_links

RECIPES = files("regard") / "recipes"
BEAM = 5


def demo_recipe(model: str) -> Recipe:
    """The recipe that ships for this model."""
    if model not in MODELS:
        raise unknown(model, MODELS, "The model")
    return read_recipe(Path(str(RECIPES / f"demo-{model}.toml")))[0]


@dataclass(frozen=True)
class Result:
    sentences: int
    bleu: Score
    alignment_error: float | None  # None where the model does not attend
    diagonal_error: float  # of guessing the word at the same place
    lengths: tuple[int, int, int]  # shortest, median and longest test source, in words


def measure(run: Run, *, layer: int | None = None) -> Result:
    """BLEU and alignment error on the recipe's test pairs."""
    pairs = test_pairs(run)
    sources = [" ".join(pair.source) for pair in pairs]
    references = [" ".join(pair.target) for pair in pairs]
    outputs = [prediction.text for prediction in run.predict(sources, Decoding(beam=BEAM))]
    gold = [frozenset(pair.links) for pair in pairs]
    guessed = [diagonal_links(len(pair.source), len(pair.target)) for pair in pairs]
    assert isinstance(run.model, EncoderDecoder)
    error = None
    if run.model.decoder.looks_back():
        error = alignment_error(links(run, list(zip(sources, references, strict=True)), layer=layer), gold)
    lengths = sorted(len(pair.source) for pair in pairs)
    return Result(
        sentences=len(pairs),
        bleu=bleu(outputs, references),
        alignment_error=error,
        diagonal_error=alignment_error(guessed, gold),
        lengths=(lengths[0], lengths[len(lengths) // 2], lengths[-1]),
    )


def test_pairs(run: Run) -> list[world.Pair]:
    data = run.recipe.data
    if not isinstance(data, World):
        raise UserError("This run was not trained on the built-in corpus.")
    return list(islice(world.pairs("test", seed=data.grammar_seed, longest=data.longest), data.test))


def links(run: Run, pairs: list[tuple[str, str]], *, layer: int | None = None) -> Iterator[Links]:
    """The links between white-space words that the model's attention shows while it reads each reference."""
    model = run.model
    assert isinstance(model, EncoderDecoder)
    for at in range(0, len(pairs), 64):
        together = pairs[at : at + 64]
        sources = [run.tokenizers.source.pieces(source) for source, _ in together]
        targets = [run.tokenizers.target.pieces(target) for _, target in together]
        batch = Batch(
            pad([[piece.id for piece in pieces] for pieces in sources]),
            pad([[piece.id for piece in pieces] for pieces in targets], begin=True),
        ).to(run.device)
        weights = forced_weights(model, batch, layer=layer).cpu().numpy()
        for row, (source, target) in enumerate(together):
            source_words = spaced_words(source, sources[row])
            target_words = spaced_words(target, targets[row])
            yield strongest_links(merge(weights[row], source_words, target_words))


def spaced_words(text: str, pieces: list[Piece]) -> list[int]:
    """Which white-space word of the text each piece belongs to."""
    return [len(text[: piece.start + 1].split()) - 1 for piece in pieces]
