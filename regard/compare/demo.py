"""demo: the comparisons that ship, on the built-in corpus."""

from __future__ import annotations

from pathlib import Path

from regard.compare.plan import Contender
from regard.demo import RECIPES

JOBS = 2  # side by side, a thread each: a small model's products are too small for two threads
DEMOS: dict[str, dict[str, str]] = {  # what each takes part as, and with which settings
    "translation": {
        "seq2seq": "seq2seq embedding=256 hidden=384 layers=1 context=first lexical=true dropout=0",
        "rnnsearch": "rnnsearch embedding=192 hidden=224 cell=gru-after dropout=0",
        "transformer": "transformer dim=192 feed_forward=512 layers=2 dropout=0 label_smoothing=0 "
        "train.learning_rate=0.003",
    },
    "language": {
        "KN5": "ngram",
        "neural_lm": "neural_lm embedding=64 hidden=256 dropout=0 train.learning_rate=0.002",
        "rnn_lm tanh": "rnn_lm cell=tanh embedding=128 hidden=256 tie=false dropout=0 train.learning_rate=0.002",
        "rnn_lm lstm": "rnn_lm cell=lstm embedding=128 hidden=256 tie=false dropout=0",
        "gpt": "gpt dim=128 heads=4 feed_forward=512 layers=3 context=64 dropout=0 train.learning_rate=0.003",
    },
}


def recipe_of(task: str) -> Path:
    return Path(str(RECIPES / f"compare-{task}.toml"))


def contenders_of(task: str) -> list[Contender]:
    return [Contender.read(text, name=name) for name, text in DEMOS[task].items()]
