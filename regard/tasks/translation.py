"""translation: from a text in one language to the same text in another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from regard.check.examples import check_examples
from regard.data import world
from regard.data.fields import TextField
from regard.data.sources import UNDECIDED, Imported, PairTable, Parallel, World
from regard.data.tokens import PairTokens
from regard.interface import Generates, Learns
from regard.look.attention import look_at_translation, translation_closely
from regard.new.text import new_translator
from regard.predict.decoding import Decoding
from regard.predict.text import translate
from regard.run import Run
from regard.score.gold import Gold
from regard.score.metrics import BLEU, CHRF, TER
from regard.score.result import Options
from regard.score.translation import gold_links, log_prob_of_each_pair, score_translations, translated
from regard.tasks import Task, Words
from regard.train.corpus import Corpus


class WorldPairs(World):
    """English and French sentences of the built-in grammar."""

    form = Parallel(source="", target="", hold_out=UNDECIDED)
    languages = "en:fr"

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        return " ".join(pair.source), " ".join(pair.target)


class ImportedPairs(Imported):
    form = WorldPairs.form


def right(output: str, reference: str) -> float:
    return CHRF.of([output], [reference])


def gold(data: Any, examples: Sequence[tuple[str, str]]) -> Gold | None:
    """The grammar knows which words belong together."""
    if not isinstance(data, WorldPairs):
        return None
    return gold_links(examples, [frozenset(pair.links) for pair in data.pairs("test")])


def demo(run: Run) -> Iterator[Any]:
    """BLEU and alignment error on the grammar's test pairs, and its attention in two unseen sentences."""
    data = run.recipe.data
    assert isinstance(data, WorldPairs)
    pairs = list(data.pairs("test"))
    sources, references = zip(*map(data.sides, pairs), strict=True)
    found = translated(run, sources, references, Options(gold=[frozenset(pair.links) for pair in pairs]))
    lengths = sorted(len(pair.source) for pair in pairs)
    median = lengths[len(lengths) // 2]
    yield f"\n{len(pairs)} unseen sentences of {lengths[0]} to {lengths[-1]} words (median {median}):"
    yield f"  BLEU {found.values[BLEU.key]:.2f}   {BLEU.note()}"
    if found.alignment_error is not None:
        yield f"  alignment error {found.alignment_error:.3f}   (diagonal baseline: {found.diagonal_error:.3f})"
    for sentence in world.SHOWN:
        seen = look_at_translation(run, sentence)
        yield f"\n{sentence}\n{' '.join(seen.rows)}\n"
        yield seen.text(100)
    yield "\nNext:"
    yield f'  regard look {run.name} "The small cat does not eat the soup ."'
    yield f"  regard predict {run.name} --beam 5 < sentences.txt"
    yield f"  regard train {run.name}/config.toml model.hidden=512 -o runs/mine"


TASK = Task(
    name="translation",
    about="English to French, with the shorter sentences of a small grammar.",
    words=Words(
        example="pair",
        file="pairs.tsv",
        reads="source",
        sides=("source", "target"),
        another="another target for an earlier source",
        judged="chrF of the sentence",
    ),
    fields={"source": TextField, "target": TextField},
    sources={"world": WorldPairs, "parallel": Parallel, "table": PairTable, "imported": ImportedPairs},
    tokens=PairTokens,
    promises={"loss(batch)": Learns, "start(batch) and step(tokens, state)": Generates},
    metrics=(BLEU, CHRF, TER),
    model="transformer",
    contenders=("seq2seq", "rnnsearch", "convs2s", "transformer"),
    demo_model="rnnsearch",
    toy=(("a b c", "d e f"), ("c", "e")),
    corpus=Corpus,
    new=new_translator,
    check=check_examples,
    answer=translate,
    score=score_translations,
    demo=demo,
    right=right,
    decoding=Decoding(beam=5),
    look=look_at_translation,
    look_closely=translation_closely,
    log_probs=log_prob_of_each_pair,
    contest={
        "seq2seq": "seq2seq embedding=256 hidden=384 layers=1 context=first lexical=true dropout=0",
        "rnnsearch": "rnnsearch embedding=192 hidden=224 cell=gru-after dropout=0",
        "transformer": "transformer dim=192 feed_forward=512 layers=2 dropout=0 label_smoothing=0 "
        "train.learning_rate=0.003",
    },
    gold=gold,
    aligned=True,
)
