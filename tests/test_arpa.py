"""Laws of ARPA files: KenLM gives our scores, what was written comes back, and what is wrong has a line number."""

from __future__ import annotations

import gzip
import importlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made import text

from regard.data.batches import Encoded
from regard.exchange import arpa
from regard.interface import BOS, EOS, PAD, UNK, Batch, UserError
from regard.models.ngram import NGram

WORDS = ["a", "b", "", " ", "\n", "<s>", "</s>", "<unk>", "é", "a\u00a0b", "<U+000A>", "<join>", "\\end\\", "-1.5", "<"]
UNKNOWN = "zebra"
lines_of_words = st.lists(st.lists(st.sampled_from(WORDS[:-1]), max_size=7), max_size=11)
sentences = st.lists(st.lists(st.sampled_from([*WORDS, UNKNOWN]), max_size=9), min_size=1, max_size=5)

SMALL = """\
\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-1\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.5\ta\t-0.2
-0.6\tb\t0.1

\\2-grams:
-0.2\t<s> a\t-0.1
-0.3\ta b
-0.25\tb a
-0.4\tb </s>

\\3-grams:
-0.05\t<s> a b

\\end\\
"""


def ids_of(line: Sequence[str], words: Sequence[str] = WORDS) -> list[int]:
    return [4 + words.index(word) if word in words else UNK for word in line]


def fitted(lines: Sequence[Sequence[str]], *, order: int, discounts: str = "three", is_open: bool = True) -> NGram:
    model = NGram(vocab=4 + len(WORDS), order=order, discounts=discounts, open=is_open)
    tokens = [token for line in lines for token in ids_of(line)]
    model.fit(Encoded(np.array(tokens, dtype=np.int32), np.cumsum([0, *map(len, lines)])))
    return model


def score(model: NGram, line: Sequence[str], words: Sequence[str] = WORDS) -> float:
    """log₁₀ of a line's probability."""
    log_probs, _ = model.log_probs(text([[BOS, *ids_of(line, words), EOS, PAD]]))
    return log_probs.double().sum().item() / math.log(10)


def kenlm_of(path: Path) -> Any:
    """KenLM's reading of a file. Without KenLM, which needs a compiler, a test is skipped; in CI that is a failure."""
    try:
        kenlm = importlib.import_module("kenlm")
    except ImportError as problem:
        missing = f"KenLM is not installed ({problem}): pip install kenlm"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    config = kenlm.Config()
    config.show_progress = False
    return kenlm.Model(str(path), config)


def same(left: NGram, right: NGram) -> bool:
    return left.order == right.order and all(
        torch.equal(one, other)
        for one, other in zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    )


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.arpa"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("arpa") / "written.arpa"


# with KenLM


@settings(max_examples=60, deadline=None)
@given(lines_of_words, sentences, st.integers(2, 6), st.sampled_from(["one", "three"]), st.sampled_from([True, False]))
@example([["a", "b", "a", UNKNOWN]] * 2, [[], ["a", UNKNOWN, "b"], [UNKNOWN, UNKNOWN], ["a", "b"]], 3, "three", False)
def test_kenlm_gives_our_scores(place, lines, scored, order, discounts, is_open):
    model = fitted(lines, order=order, discounts=discounts, is_open=is_open)
    arpa.write(place, model, WORDS)
    theirs = kenlm_of(place)
    for line in [*scored, [], *lines]:
        ours = score(model, line)
        if ours > -math.inf:  # for KenLM nothing is impossible, only very unlikely
            assert theirs.score(" ".join(map(arpa.escape, line))) == pytest.approx(ours, abs=1e-4)
        else:
            assert theirs.score(" ".join(map(arpa.escape, line))) < -98


def test_kenlm_gives_our_scores_of_much_text(place):
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(997)]
    lines = [np.minimum(2 + random.zipf(1.3, random.integers(0, 23)), 1000).tolist() for _ in range(2003)]
    model = NGram(vocab=1001, order=5, discounts="three", open=True)
    lines = [line + line[:4] for line in lines]
    model.fit(Encoded(np.array([token for line in lines for token in line]), np.cumsum([0, *map(len, lines)])))
    arpa.write(place, model, words)
    theirs = kenlm_of(place)
    for line in lines[:199]:
        text = [words[token - 4] if token > UNK else "<unk>" for token in (*line[::2], *line)]
        assert theirs.score(" ".join(text)) == pytest.approx(score(model, text, words), abs=1e-4)


def test_others_files_are_scored_as_kenlm_does(tmp_path):
    path = written(tmp_path, SMALL)
    words, model = arpa.read(path)
    assert words == ["a", "b"]
    assert (model.order, model.vocab, model.open) == (3, 6, True)
    theirs = kenlm_of(path)
    for line in ("", "a", "a b", "b a b a", "a a", "zebra a b zebra", "b b zebra"):
        assert score(model, line.split(), words) == pytest.approx(theirs.score(line), abs=1e-5)


# writing and reading


@settings(max_examples=60, deadline=None)
@given(lines_of_words, st.integers(1, 5), st.sampled_from(["one", "three"]), st.sampled_from([True, False]))
def test_what_was_written_comes_back(place, lines, order, discounts, is_open):
    model = fitted(lines, order=order, discounts=discounts, is_open=is_open)
    arpa.write(place, model, WORDS)
    words, again = arpa.read(place)
    assert words == WORDS
    assert same(model, again)


@given(st.text(st.sampled_from("<U+03CA>join s/unk\n\t\u2028\0x")), st.text(st.sampled_from("<U+03C0> \n")))
def test_escapes(word, other):
    for each in (word, other, *WORDS):
        escaped = arpa.escape(each)
        assert arpa.unescape(escaped) == each
        assert escaped not in arpa.MARKS
        assert re.fullmatch(r"[^\s\0]+", escaped)


def test_what_others_wrote_means_itself():
    for word in ("<U+0041>", "<U+110000>", "<U+D800>", "<U+A>", "<tag>", "U+000A"):
        assert arpa.unescape(word) == word


def test_the_format(tmp_path):
    arpa.write(tmp_path / "new" / "lm.arpa", fitted([["a", "\n", ""]], order=2), WORDS)
    lines = (tmp_path / "new" / "lm.arpa").read_text().split("\n")
    assert lines[:5] == ["\\data\\", f"ngram 1={3 + len(WORDS)}", "ngram 2=4", "", "\\1-grams:"]
    assert lines[-3:] == ["", "\\end\\", ""]
    assert re.fullmatch(r"-99\t<s>\t-0\.\d+", lines[5])
    assert {line.split("\t")[1] for line in lines[-7:-3]} == {
        "<s> a", "a <U+000A>", "<U+000A> <join>", "<join> </s>",
    }  # fmt: skip
    assert all(line.count("\t") == 1 for line in lines[-7:-3])


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = written(tmp_path, "before")
    monkeypatch.setattr(arpa, "_lines", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        arpa.write(path, fitted([["a"]], order=2), WORDS)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError, match="there is a folder or a device of that name"):
        arpa.write(tmp_path, fitted([["a"]], order=2), WORDS)


def test_words_must_be_those_of_the_model(tmp_path):
    with pytest.raises(ValueError, match="14 words for a vocabulary of 19"):
        arpa.write(tmp_path / "lm.arpa", fitted([], order=2), WORDS[1:])


def test_gzip_comments_and_spaces_are_read(tmp_path):
    _, plain = arpa.read(written(tmp_path, SMALL))
    packed = tmp_path / "lm.gz"
    packed.write_bytes(gzip.compress(SMALL.encode()))
    loose = "# made by hand\n\n" + SMALL.replace("\t", "  ").replace("\n\n", "\n\n\n").replace("\n", "\r\n")
    assert same(arpa.read(packed)[1], plain)
    assert same(arpa.read(written(tmp_path, loose))[1], plain)


def test_what_is_absent_has_no_probability(tmp_path):
    closed = SMALL.replace("ngram 1=5", "ngram 1=4").replace("-1\t<unk>\n", "")
    words, model = arpa.read(written(tmp_path, closed))
    assert not model.open
    assert score(model, ["a", "zebra"], words) == -math.inf
    assert score(model, ["a", "b"], words) == score(arpa.read(written(tmp_path, SMALL))[1], ["a", "b"], words)


def test_the_beginning_is_never_predicted(tmp_path):
    text = SMALL.replace("-99\t<s>", "0\t<s>").replace("-0.3\ta b", "-0.3\ta <s>").replace("<s> a b", "<s> a <s>")
    _, model = arpa.read(written(tmp_path, text.replace("-0.3\ta", "-0.3\ta")))
    logits, state = model.step(torch.tensor([4]), model.start(Batch.of_text(torch.tensor([[BOS, 4]]))))
    assert logits[0, [PAD, BOS]].eq(-torch.inf).all()
    assert logits[0, EOS] > -torch.inf
    model.restore(model.state_dict())


def test_a_file_may_have_any_backoff(tmp_path):
    text = SMALL.replace("-0.05\t<s> a b", "").replace("ngram 3=1", "ngram 3=0").replace("\ta b\n", "\ta b\t-inf\n")
    words, model = arpa.read(written(tmp_path, text.replace(":\n\n\n", ":\n\n")))
    assert score(model, ["a", "b"], words) == -math.inf
    assert score(model, ["a"], words) == pytest.approx(-0.2 - 0.1 - 0.2 - 0.7)


WRONG = {
    "line 2: 'ngram 2=4' is where 'ngram 1=' and a number should be": ("ngram 1=5\n", ""),
    "line 3: 'ngram 2=x' is where": ("ngram 2=4", "ngram 2=x"),
    "line 2: the numbers of n-grams are missing": ("ngram 1=5\nngram 2=4\nngram 3=1\n", ""),
    "line 6: 'hello' is where \\\\1-grams: should be": ("\\1-grams:", "hello"),
    r"line 12: '' is not one of the 6 1-grams": ("1=5", "1=6"),
    r"line 11: '-0.6\\tb\\t0.1' is where \\2-grams: should be": ("1=5", "1=4"),
    r"line 10: 'x\\ta\\t-0.2' is not one": ("-0.5\ta", "x\ta"),
    "line 10: its probability is above 1": ("-0.5\ta", "0.5\ta"),
    "line 9: its probability is above 1": ("-0.7\t<", "nan\t<"),
    "line 8: its probability is above 1, or a number is not finite": ("-0.3\n", "nan\n"),
    "line 11: its probability is above 1, or a number is not finite": ("0.1\n", "1e300\n"),
    "line 11: 'a' occurs twice": ("-0.6\tb", "-0.6\ta"),
    "line 11: '</s>' occurs twice": ("-0.6\tb", "-0.6\t</s>"),
    "line 8: '<UNK>' occurs twice": ("-99\t<s>", "-1\t<UNK>"),
    "line 15: 'c' is not among the 1-grams": ("-0.3\ta b", "-0.3\ta c"),
    r"line 14: '-0.2\\t<s> a\\t-0.1\\t4' is not one of the 4 2-grams": ("a\t-0.1", "a\t-0.1\t4"),
    r"line 15: '-0.3\\ta' is not one": ("-0.3\ta b", "-0.3\ta"),
    "line 17: its words occur twice": ("b </s>", "a b"),
    "line 20: its first 2 words are not among the 2-grams": ("<s> a b", "<s> b a"),
    "ends after line 21, before": ("\\end\\\n", ""),
    "line 22: 'end' is where": ("\\end\\", "end"),
    "ends after line 22, before": ("\\data\\", "data"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_has_a_line(tmp_path, message):
    old, new = WRONG[message]
    assert old in SMALL
    with pytest.raises(UserError, match=message) as caught:
        arpa.read(written(tmp_path, SMALL.replace(old, new, 1)))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_context_is_missed_where_there_is_none_at_all(tmp_path):
    text = SMALL.replace("ngram 2=4", "ngram 2=0")
    start, end = text.index("-0.2\t<s> a"), text.index("\n\\3-grams:")
    with pytest.raises(UserError, match="line 16: its first 2 words are not among the 2-grams"):
        arpa.read(written(tmp_path, text[:start] + text[end:]))


def test_a_missing_and_an_empty_file(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        arpa.read(tmp_path / "none.arpa")
    with pytest.raises(UserError, match="ends after line 0"):
        arpa.read(written(tmp_path, ""))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_a_sentence(tmp_path_factory, data):
    """A line lost, doubled, cut or swapped: read, or refused in a sentence."""
    lines = SMALL.splitlines(keepends=True)
    first, second = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    damage = data.draw(st.sampled_from(["lose", "double", "cut", "swap"]))
    if damage == "lose":
        del lines[first]
    elif damage == "double":
        lines.insert(second, lines[first])
    elif damage == "cut":
        lines[first] = lines[first][: data.draw(st.integers(0, len(lines[first])))]
    else:
        lines[first], lines[second] = lines[second], lines[first]
    path = tmp_path_factory.getbasetemp() / "damaged.arpa"
    path.write_text("".join(lines))
    try:
        words, model = arpa.read(path)
    except UserError:
        return
    model.restore(model.state_dict())
    assert len(words) == model.vocab - 4
