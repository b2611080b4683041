"""Makes the runs in this folder: `python tests/runs/make.py` trains those that are missing, in about a minute.

They were made once and are kept as they are: whatever regard becomes, it loads them and answers as they answered
(tests/test_kept_runs.py). Make one anew only if what is in it was wrong from the start. A run is kept as its recipe,
its fields and its best weights, beside what it answered (expected.json); it names no place on the machine it was made
on.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import regard
from regard.predict.decoding import Decoding, Prediction
from regard.train.session import Session

HERE = Path(__file__).parent
FILES = ("config.toml", "fields.json", "model.safetensors")
WORLD = '[data]\nname = "world"\nsentences = 2000\nlongest = 6\nvalid = 100\ntest = 10\n'
TRAIN = '[train]\nsteps = 600\nbatch_tokens = 512\nlearning_rate = 0.01\nwarmup = 20\nprecision = "float32"\n'
RECIPES = {
    "translation": """
[tokens]
kind = "words"
at_least = 20
joint = false
[model]
name = "rnnsearch"
embedding = 12
hidden = 12
dropout = 0.0
""",
    "language": """
[tokens]
kind = "bpe"
size = 320
[model]
name = "gpt"
dim = 16
heads = 2
feed_forward = 16
layers = 1
context = 64
dropout = 0.0
""",
    "classification": """
[tokens]
kind = "words"
at_least = 20
[model]
name = "attentive_birnn"
embedding = 12
hidden = 8
""",
    "tagging": """
[tokens]
at_least = 60
[model]
name = "birnn"
embedding = 8
hidden = 12
letters = 4
""",
}
INPUTS = {
    "translation": ["The book was boring .", "The old man is not good .", "Anna slept in the zoo .", ""],
    "language": ["", "The man", "I am "],
    "classification": ["The wine was disgusting .", "The soup is excellent .", "They are watching the train .", ""],
    "tagging": ["The old man bought a table .", "Hélène zzyxed quickly", "I am", ""],
}
DECODING = {"language": (Decoding(max_length=12), Decoding(beam=3, max_length=12))}


def answers(run: regard.Run, task: str) -> list[dict[str, Any]]:
    """What a run says to the inputs of its task."""
    found: list[Prediction] = []
    for how in DECODING.get(task, (None,)):
        found += run.predict(INPUTS[task], how)
    return [
        {
            "text": each.text,
            "tokens": list(each.tokens),
            "score": each.score,
            "probabilities": each.probabilities or {},
        }
        for each in found
    ]


def make(task: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(f'task = "{task}"\n{WORLD}{RECIPES[task]}{TRAIN}validate_every = 200\n')
        for _ in Session(regard.read_recipe(recipe)[0], Path(folder) / "run").steps():
            pass
        kept = HERE / task
        kept.mkdir()
        for name in FILES:
            shutil.copy(Path(folder) / "run" / name, kept / name)
    config = kept / "config.toml"
    config.write_text(re.sub(r"(?m)^folder = \S+", 'folder = "."', config.read_text()))
    expected = json.dumps(answers(regard.load(kept), task), ensure_ascii=False, indent=1)
    (kept / "expected.json").write_text(expected + "\n")


if __name__ == "__main__":
    for name in RECIPES:
        if not (HERE / name).exists():
            make(name)
