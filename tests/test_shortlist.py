"""Laws of the vocabulary shortlist: it computes what the whole vocabulary would, of fewer types; associations are those
of IBM model 1, learnt once for a run."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from made import on_disk, pairs, source_of

import regard
from regard.checkpoint import Folder
from regard.data import association
from regard.data.association import ROUNDS, Associations, associate
from regard.data.tensors import read_tensors, write_tensors
from regard.interface import BOS, EOS, SPECIALS, Batch, Ids, Shapes, UserError
from regard.layers.fast.packed import pack
from regard.models import convs2s, rnnsearch, seq2seq, transformer
from regard.models.design import size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.predict import shortlist
from regard.predict.decoding import Decoding
from regard.predict.search import generate
from regard.predict.shortlist import Shortlisted, associations_of
from regard.run import Run, mixture

SOURCE, TARGET = 13, 17  # types

# --- associations ---


def corpus(seed: int, count: int = 40) -> tuple[list[list[int]], list[list[int]]]:
    """Random pairs of different lengths, some words twice."""
    random = np.random.default_rng(seed)

    def side(size: int) -> list[list[int]]:
        return [random.integers(4, size, random.integers(1, 7)).tolist() for _ in range(count)]

    return side(SOURCE), side(TARGET)


def learnt(place: Path, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Associations:
    sides = [on_disk(place, name, rows) for name, rows in (("source", source), ("target", target))]
    return associate(*sides, source_size=SOURCE, target_size=TARGET)


def of(found: Associations, source: int) -> list[int]:
    types: list[int] = found.types[found.offsets[source] : found.offsets[source + 1]].tolist()
    return types


@pytest.mark.parametrize("seed", range(3))
def test_associations_are_those_of_ibm_model_1(tmp_path, seed):
    """The textbook's loop, pair by pair."""
    sources, targets = corpus(seed)
    found = learnt(tmp_path, sources, targets)
    share: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(ROUNDS):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for y in set(target):
                total = sum(share[x, y] for x in set(source))
                for x in set(source):
                    counts[x, y] += share[x, y] / total
        sums: dict[int, float] = defaultdict(float)
        for (x, _), count in counts.items():
            sums[x] += count
        share = defaultdict(float, {(x, y): count / sums[x] for (x, y), count in counts.items()})
    for x in range(SOURCE):
        expected = {y: value for (z, y), value in share.items() if z == x and value}
        assert set(of(found, x)) == set(expected)
        values = [expected[y] for y in of(found, x)]
        assert values == pytest.approx(sorted(values, reverse=True))


def test_a_word_belongs_to_its_translation_not_to_what_is_frequent(tmp_path):
    """Source word w is target word w + 2; 4 and 6 are in every sentence, as "the" and "." are."""
    random = np.random.default_rng(0)
    sources = [[4, *random.choice(np.arange(5, SOURCE), 3, replace=False).tolist()] for _ in range(60)]
    found = learnt(tmp_path, sources, [[word + 2 for word in sentence] for sentence in sources])
    assert [of(found, word)[0] for word in range(4, SOURCE)] == [word + 2 for word in range(4, SOURCE)]
    assert found.frequent[0] == 6
    assert found.fits(SOURCE, TARGET)


def test_the_shortlist_has_the_frequent_and_the_associated(tmp_path):
    found = learnt(tmp_path, *corpus(5))
    for k in range(1, TARGET + 3):
        ids = found.shortlist(np.array([[4, 7, 7], [EOS, 4, 0]]), k)
        assert ids.tolist() == sorted({*of(found, 4)[:k], *of(found, 7)[:k], *found.frequent[:k].tolist()})
    assert ids.tolist() == list(range(TARGET))


def test_of_a_large_corpus_only_some_sentences_are_read(tmp_path, monkeypatch):
    sources, targets = corpus(1)
    monkeypatch.setattr(association, "MOST", 200)
    some = learnt(tmp_path / "some", sources, targets)
    cells = sum(len(x) * len(y) for x, y in zip(sources, targets, strict=True))
    step = -(-cells // 200)
    assert step > 1
    monkeypatch.undo()
    few = learnt(tmp_path / "few", sources[::step], targets[::step])
    assert all(np.array_equal(one, other) for one, other in zip(some, few, strict=True))


def test_wrong_arrays_do_not_fit(tmp_path):
    found = learnt(tmp_path, *corpus(2))
    assert found.fits(SOURCE, TARGET) and not found.fits(SOURCE + 1, TARGET) and not found.fits(SOURCE, TARGET + 1)
    beyond, before = found.types.copy(), found.offsets.copy()
    beyond[0], before[5] = TARGET, before[6] + 1
    twice = found.frequent.copy()
    twice[0] = twice[1]
    wrong = [{"types": beyond}, {"types": -beyond}, {"types": found.types[1:]}, {"types": found.types.astype(float)}]
    wrong += [{"offsets": before}, {"offsets": found.offsets + 1}, {"frequent": twice}, {"frequent": twice[:-1]}]
    for change in wrong:
        assert not found._replace(**change).fits(SOURCE, TARGET)


# --- a narrowed model ---

SHAPES = Shapes(Ids(SOURCE), Ids(TARGET))
WORDS = {"embedding": 10, "hidden": 12, "dropout": 0.0}
BUILT: dict[str, Any] = {
    "seq2seq": lambda: seq2seq.build(seq2seq.Config(**WORDS), SHAPES),
    "rnnsearch": lambda: rnnsearch.build(rnnsearch.Config(**WORDS), SHAPES),
    "convs2s": lambda: convs2s.build(convs2s.Config(dropout=0.0, layers=2), SHAPES),
    "transformer": lambda: transformer.build(
        transformer.Config(dim=8, heads=2, feed_forward=16, layers=2, dropout=0.0), SHAPES
    ),
}
each_model = pytest.mark.parametrize("name", BUILT)
each_way = pytest.mark.parametrize(
    "how", [Decoding(), Decoding(beam=3, n_best=3), Decoding(sample=True, n_best=2), Decoding(beam=2, no_repeat=1)]
)
IDS = torch.tensor([0, 1, 2, 3, 6, 7, 11, 12, 16])


def built(name: str) -> EncoderDecoder:
    torch.manual_seed(5)
    model: EncoderDecoder = BUILT[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
        model.decoder.head.bias.copy_(torch.randn(TARGET))  # type: ignore[attr-defined]
    return model


def batch() -> Batch:
    return pairs([[4, 5, 6, EOS], [12, EOS], [9, 9, EOS]])


def whole(hypothesis: Any) -> tuple[int, ...]:
    return (*hypothesis.tokens, EOS) if hypothesis.finished else hypothesis.tokens


@each_model
@each_way
def test_a_shortlist_of_everything_changes_nothing(name, how):
    model, limits = built(name), torch.tensor([7, 5, 11])
    plain = generate(model, batch(), how, limits=limits)
    narrow = Shortlisted(model, torch.arange(TARGET))
    for one, other in zip(plain, generate(narrow, batch(), how, limits=limits), strict=True):
        assert [each.tokens for each in one] == [narrow.original(each).tokens for each in other]
        assert [each.log_prob for each in one] == pytest.approx([each.log_prob for each in other], abs=1e-9)


@each_model
@each_way
def test_only_the_shortlist_is_written_and_scores_are_relative_to_it(name, how):
    model = built(name)
    narrow, most = Shortlisted(model, IDS), torch.tensor([7, 5, 11])
    found = generate(narrow, batch(), how, limits=most)
    for source, hypotheses in zip(source_of(batch()), found, strict=True):
        for hypothesis in map(narrow.original, hypotheses):
            tokens = torch.tensor([[BOS, *whole(hypothesis)]])
            assert set(tokens[0].tolist()) <= set(IDS.tolist())
            logits = model.logits(pairs(source[None], tokens))[0].detach()
            log_probs = logits - logits[:, IDS].logsumexp(-1, keepdim=True)
            expected = float(log_probs.gather(-1, tokens[0, 1:, None]).sum())
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_packed_head_is_narrowed_as_it_is_packed(precision):
    """Some columns of the same product; in int8 they are the same bits."""
    head = BUILT["transformer"]().decoder.head
    with torch.no_grad():
        head.bias.copy_(torch.randn(TARGET))
    hidden = torch.randn(5, 8)
    pack(head, precision, least=0, small=0, large=0)
    with torch.inference_mode():
        narrow, wide = head.narrowed(IDS), head.logits(hidden)[:, IDS]
        assert narrow.packed is not None
        assert torch.allclose(narrow.logits(hidden), wide, atol=0 if precision == "int8" else 1e-6, rtol=0)


# --- a run ---

PAIRS = [(f"w{i} w{j} .", f"v{j} v{i} !") for i in range(9) for j in range(9) if i != j]
SMALL = {"train.steps": 3, "train.epochs": 0, "train.validate_every": 3, "train.precision": "float32"}
TABLE = {
    "task": "translation",
    "model": {"name": "rnnsearch", "embedding": 8, "hidden": 8},
    "tokens": {"kind": "words"},
}
LINES = ["w1 w2 .", "w3 w4 w5 .", "w0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shortlist") / "run"
    regard.train(TABLE, folder, data=PAIRS, valid=PAIRS[:24], settings=SMALL, progress=False, threads=1)
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place, tmp_path / "run")
    shortlist._associations.cache_clear()
    return tmp_path / "run"


def test_a_run_translates_with_a_shortlist(copy: Path) -> None:
    run = regard.load(copy)
    size = size_of(run.fields.shapes.target)
    plain, every = (run.predict(LINES, beam=3, n_best=2, shortlist=k) for k in (0, size))
    assert [each.tokens for each in every] == [each.tokens for each in plain]
    assert [each.score for each in every] == pytest.approx([each.score for each in plain], abs=1e-4)
    found = associations_of(run)
    for line in LINES:
        source = np.array(run.tokenizer("source").encode_all([line])[0])
        allowed = set(run.tokenizer("target").surface([*range(len(SPECIALS)), *found.shortlist(source, 2).tolist()]))
        answer = run.predict(line, sample=True, n_best=30, max_length=9, shortlist=2)
        written = {token for each in (answer, *answer.alternatives) for token in each.tokens}
        assert len(written) > 2 and written <= allowed and len(allowed) < size


def test_associations_are_learnt_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = regard.load(copy), Folder(copy)
    first = associations_of(run)
    monkeypatch.setattr(shortlist, "associate", None)  # cannot be called any more
    shortlist._associations.cache_clear()
    shutil.rmtree(folder.data)
    again = associations_of(run)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    saved = run.save(copy.parent / "saved")
    shortlist._associations.cache_clear()
    assert saved.predict(LINES, shortlist=2) == run.predict(LINES, shortlist=2)


def damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def stale(file: Path) -> None:
    tensors, facts = read_tensors(file)
    write_tensors(file, tensors | {"types": tensors["types"].flip(0)}, facts | {"bound": "other data"})


def foreign(file: Path) -> None:
    tensors, facts = read_tensors(file)
    write_tensors(file, tensors | {"types": tensors["types"] + 1000}, facts)


def other_numbers(file: Path) -> None:
    tensors, facts = read_tensors(file)
    write_tensors(file, tensors | {"types": tensors["types"].bfloat16()}, facts)


@pytest.mark.parametrize("change", [damaged, stale, foreign, other_numbers, Path.unlink])
def test_what_cannot_be_used_is_learnt_again(copy: Path, change: Any) -> None:
    run, folder = regard.load(copy), Folder(copy)
    first = associations_of(run)
    before = folder.shortlist.read_bytes()
    change(folder.shortlist)
    shortlist._associations.cache_clear()
    again = associations_of(run)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert folder.shortlist.read_bytes() == before


def test_it_is_bound_to_the_tokenizer_and_the_data(copy: Path) -> None:
    run, folder = regard.load(copy), Folder(copy)
    associations_of(run)
    bound = read_tensors(folder.shortlist)[1]["bound"]
    folder.write_facts(folder.facts() | {"data": "another"})
    associations_of(run)
    other = read_tensors(folder.shortlist)[1]["bound"]
    assert other != bound and other.split()[0] == bound.split()[0]
    folder.fields.write_text(folder.fields.read_text() + " ")
    associations_of(run)
    assert read_tensors(folder.shortlist)[1]["bound"].split()[0] != other.split()[0]
    folder.fields.unlink()
    with pytest.raises(UserError, match=r"fields.json cannot be read \(.*\): restore it"):
        associations_of(run)


def test_a_run_without_its_data_says_so(copy: Path, call: Call) -> None:
    shutil.rmtree(Folder(copy).data)
    done = call("predict", copy, "w1 w2 .", "--shortlist", "5")
    assert done.code == 1 and "--shortlist needs the encoded training data" in done.err and "leave it out" in done.err


def test_data_with_other_ids_is_refused(copy: Path) -> None:
    run, folder = regard.load(copy), Folder(copy)
    on_disk(folder.data, "train.target", [[999]] * len(PAIRS))
    with pytest.raises(UserError, match="missing or damaged"):
        associations_of(run)
    on_disk(folder.data, "train.target", [[4]] * (len(PAIRS) - 1))
    with pytest.raises(UserError, match="missing or damaged"):
        associations_of(run)


def test_others_refuse_in_one_sentence(copy: Path, tmp_path: Path) -> None:
    run = regard.load(copy)
    twice: Run = mixture([run, replace(run, name="other")])
    with pytest.raises(UserError, match="shortlist needs a model that can narrow .* leave it out"):
        twice.predict("w1", shortlist=3)
    language = {"task": "language", "model": {"name": "ngram", "order": 2}, "tokens": {"kind": "words"}}
    texts = [source for source, _ in PAIRS]
    counted = regard.train(language, tmp_path / "language", data=texts, valid=texts[:24], progress=False, threads=1)
    with pytest.raises(UserError, match=r"shortlist needs a translator, and ngram .* leave it out"):
        counted.predict("w1", shortlist=3)
