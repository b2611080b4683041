"""predict and score where names are given: to sentences, or to each of their words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.shell import err, print_plain, written_to

if TYPE_CHECKING:
    from regard.run import Run
    from regard.score.labels import Name, NamesScored

AT_ONCE = 512  # lines
MOST_LABELS = 12  # in a table as wide as a terminal


def predict_names(run: Run, lines: Iterator[str], output: Path | None, *, conll: bool, as_json: bool) -> None:
    """A label and its probability a line; or tags, one a word, or in CoNLL's columns."""
    from regard.data.text import one_line
    from regard.interface import UserError
    from regard.score.labels import name

    per_word = run.recipe.task == "tagging"
    if conll and not per_word:
        raise UserError(f"--conll is for tags: {run.name} names whole lines.")
    number = 0
    with written_to(output) as write:
        while some := list(islice(lines, AT_ONCE)):
            for line, named in zip(some, name(run, some), strict=True):
                number += 1
                if as_json:
                    write(one_line(json.dumps(entry(number, line, named, per_word=per_word), ensure_ascii=False)))
                elif conll:
                    words = [word for word in line.split(" ") if word]
                    pairs = zip(words, named.text.split(" "), strict=True) if words else ()
                    write("".join(f"{one_line(word)}\t{tag}\n" for word, tag in pairs))
                elif named.probabilities is None:
                    write(named.text)
                else:
                    write(f"{one_line(named.text)}\t{named.probabilities[named.text]:.4f}")


def entry(number: int, line: str, named: Name, *, per_word: bool) -> dict[str, object]:
    if per_word:
        return {"line": number, "words": [word for word in line.split(" ") if word], "tags": named.text.split()}
    return {"line": number, "label": named.text, "probabilities": named.probabilities or {}}


def score_names(run: Run, file: Path, *, as_json: bool) -> None:
    from regard.interface import UserError
    from regard.score.labels import name, named_in, score

    per_word = run.recipe.task == "tagging"
    gold = list(named_in(run.recipe, file))
    if not gold:
        raise UserError(f"{file} is empty: give at least one sentence.")
    with err.status("Naming …"):
        said = [named.text for named in name(run, [text for text, _ in gold])]
    found = score([names for _, names in gold], said, per_word=per_word)
    if as_json:
        print_plain(json.dumps(dataclasses.asdict(found), ensure_ascii=False))
        return
    what = "words" if per_word else "sentences"
    print_plain(f"accuracy   {100 * found.accuracy:7.2f}   {found.count:,} {what}")
    if found.spans:
        right, told, there = (sum(kind[place] for kind in found.spans.values()) for place in range(3))
        print_plain(f"entity F1  {100 * found.f1:7.2f}   {right:,} right of {told:,} said and {there:,} there")
        for kind, (right, told, there) in found.spans.items():
            value = 200 * right / max(1, told + there)
            print_plain(f"  {kind:20} F1 {value:7.2f}   {right:,} of {told:,} and {there:,}")
        return
    print_plain(f"macro F1   {100 * found.f1:7.2f}\nMatthews   {100 * found.matthews:7.2f}")
    show_confusion(found)


def show_confusion(found: NamesScored) -> None:
    labels = list(found.confusion)
    if len(labels) > MOST_LABELS:
        print_plain(f"{len(labels)} labels: --json has the whole confusion matrix.")
        return
    wide = max(8, *(len(label) for label in labels))
    print_plain(f"\n{'gold, said':{wide}} " + " ".join(f"{label:>{wide}}" for label in labels))
    for label in labels:
        print_plain(f"{label:{wide}} " + " ".join(f"{found.confusion[label].get(s, 0):{wide}}" for s in labels))
