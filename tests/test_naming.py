"""Names of sentences and of words: metrics that others agree with; commands that do what they say.

What every model that gives names must keep to is in test_contract.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Call
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.data.fields import spelt
from regard.data.sources import Conll
from regard.data.spans import spans_of, tags_of, with_words
from regard.data.text import read_columns, read_fields
from regard.data.tokens import Tokenizer
from regard.exchange.word_vectors import load_word_vectors
from regard.interface import Ids, Label, Shapes, UserError
from regard.layers.convolution import Windows
from regard.layers.crf import CRF
from regard.layers.encoders import Encoded
from regard.layers.pooling import POOLS, Attentive
from regard.loading import read_recipe
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.recipe import parse_recipe
from regard.run import Run, build_model
from regard.score.labels import label_scores, tag_scores
from regard.tasks.registry import TASKS
from regard.train.session import Session

# --- spans -------------------------------------------------------------------------------------------------------

kinds = st.sampled_from(("person", "creative-work", "x"))
any_tags = st.lists(st.one_of(st.just("O"), st.builds("{}-{}".format, st.sampled_from("BIES"), kinds)), max_size=9)


def test_people_read_tags_with_their_words():
    words = ["Ada", "Lovelace", "wrote", "to", "Mary", "in", "London"]
    tags = ["B-person", "I-person", "O", "O", "B-person", "O", "S-place"]
    assert with_words(words, tags) == "Ada Lovelace (person); Mary (person); London (place)"
    assert with_words(words, ["O"] * 7) == ""
    assert with_words(words[:3], ["NAME", "NAME", "VERB"]) == "Ada/NAME Lovelace/NAME wrote/VERB"


@given(any_tags, st.booleans())
def test_corrected_tags_mark_the_same_spans_by_the_rules(tags: list[str], ends: bool) -> None:
    corrected = tags_of(spans_of(tags), len(tags), ends=ends)
    assert list(spans_of(corrected)) == list(spans_of(tags))
    assert tags_of(spans_of(corrected), len(corrected), ends=ends) == corrected
    for before, tag, after in zip(["O", *corrected], corrected, [*corrected[1:], "O"], strict=False):
        mark, _, kind = tag.partition("-")
        assert mark in ("OBIES" if ends else "OBI")
        if mark in ("I", "E"):
            assert before in (f"B-{kind}", f"I-{kind}")
        if ends and mark in ("B", "I"):
            assert after in (f"I-{kind}", f"E-{kind}")


def test_tags_against_the_rules_are_corrected_and_reported(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "t.conll"
    file.write_text("EU B-ORG\nsees O\nBonn I-LOC\n\nHe O\nis O\n\nPeter I-PER\nBlack I-PER\n")
    found = [(text, tags) for _, text, tags in Conll(train=str(file), valid=str(file)).lines("train", tmp_path)]
    assert found == [("EU sees Bonn", "B-ORG O B-LOC"), ("He is", "O O"), ("Peter Black", "B-PER I-PER")]
    recipe = tmp_path / "t.toml"
    assert call("new", "tagging", file, "--valid", file, "-o", recipe).code == 0
    checked = call("check", recipe)
    assert checked.code == 0
    assert "2 sentences (1, 3) have tags that are corrected when read (I-LOC is read as B-LOC" in checked.out
    trained = call("train", recipe, "train.epochs=0", "train.steps=1", "-o", tmp_path / "run")
    assert trained.code == 0 and "In 2 sentences tags were corrected" in trained.out
    file.write_text("EU S-ORG\nNew B-LOC\nYork I-LOC\n\nBonn B-LOC\nis O\n")
    found = [(text, tags) for _, text, tags in Conll(train=str(file), valid=str(file)).lines("train", tmp_path)]
    assert found == [("EU New York", "S-ORG B-LOC E-LOC"), ("Bonn is", "S-LOC O")]


def test_check_says_how_labels_are_shared_out(call: Call, tmp_path: Path) -> None:
    train, valid, recipe = tmp_path / "t.jsonl", tmp_path / "v.jsonl", tmp_path / "s.toml"
    rows = [{"text": f"film number {n}", "label": int(n % 12 == 0)} for n in range(36)]
    train.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": "film number 1", "label": 1}]))
    valid.write_text('{"text": "film with a sequel", "label": 0}\n{"text": "another film", "label": 7}\n')
    assert call("new", "classification", train, "--valid", valid, "-o", recipe).code == 0
    checked = call("check", recipe)
    assert checked.code == 1 and "valid has labels that train never has (7)" in checked.out
    assert "train.balance" not in checked.out
    assert "labels: 0 33 (89.2%), 1 4 (10.8%)" in checked.out and "1 with other labels" in checked.out, checked.out
    valid.write_text('{"text": "film with a sequel", "label": 0}\n')
    train.write_text("".join(json.dumps({**row, "label": int(row["text"].endswith(" 0"))}) + "\n" for row in rows))
    checked = call("check", recipe)
    assert checked.code == 0 and "'0' 35 times and '1' 1 time: set train.balance" in checked.out
    assert call("check", recipe, "--write", tmp_path / "clean").code == 1
    assert not (tmp_path / "clean").exists()


# --- the chain of tags -------------------------------------------------------------------------------------------


def every_tagging(length: int, tags: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(tags), repeat=length))


@torch.no_grad()
def test_the_chain_equals_brute_force() -> None:
    """Its total, its scores and its best path, of rows of several lengths at once."""
    torch.manual_seed(5)
    chain, tags = CRF(4).double(), 4
    for parameter in chain.parameters():
        parameter.copy_(torch.randn_like(parameter))
    lengths = torch.tensor([4, 1, 3])
    emissions = torch.randn(3, 4, tags, dtype=torch.float64)
    mask = torch.arange(4) < lengths[:, None]
    totals, best = chain.log_total(emissions, mask), chain.best(emissions, mask)
    for row, length in enumerate(lengths.tolist()):
        scores = {}
        for tagging in every_tagging(length, tags):
            score = chain.first[tagging[0]] + chain.last[tagging[-1]]
            score = score + sum(emissions[row, place, tag] for place, tag in enumerate(tagging))
            scores[tagging] = float(score + sum(chain.after[a, b] for a, b in itertools.pairwise(tagging)))
        assert float(totals[row]) == pytest.approx(float(torch.tensor(list(scores.values())).logsumexp(0)))
        assert tuple(best[row, :length].tolist()) == max(scores, key=scores.__getitem__)
        assert not best[row, length:].any()
        said = torch.tensor([[*next(iter(scores)), *[0] * (4 - length)]])
        own = chain.score(emissions[row : row + 1], said, mask[row : row + 1])
        assert float(own) == pytest.approx(next(iter(scores.values())))


def test_the_chain_has_right_gradients() -> None:
    torch.manual_seed(6)
    chain = CRF(3).double()
    emissions = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    tags = torch.tensor([[0, 2, 1], [1, 1, 0]])
    assert torch.autograd.gradcheck(lambda e: chain.log_total(e, mask) - chain.score(e, tags, mask), (emissions,))


# --- parts -------------------------------------------------------------------------------------------------------


def test_each_pool_is_its_equation() -> None:
    states = torch.randn(2, 4, 6, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    final = torch.randn(2, 6, dtype=torch.float64)
    encoded = Encoded(states, mask, ((final,),), states)
    pools = {name: make(6).double() for name, make in {**POOLS, "attention": lambda dim: Attentive(dim=dim)}.items()}
    found = {name: pool(encoded) for name, pool in pools.items()}
    assert torch.equal(found["last"], final) and torch.equal(found["first"], states[:, 0])
    torch.testing.assert_close(found["mean"][1], states[1, :2].mean(0))
    torch.testing.assert_close(found["max"][1], states[1, :2].amax(0))
    pool = pools["attention"]
    keys = torch.tanh(
        states[1, :2] @ pool.attention.score.keys.weight.t() + pool.query @ pool.attention.score.query.weight.t()
    )
    weights = (keys @ pool.attention.score.out.weight.t()).softmax(0)
    torch.testing.assert_close(found["attention"][1], (weights * states[1, :2]).sum(0))


def test_windows_equal_a_convolution() -> None:
    windows = Windows(input_dim=3, filters=5, widths=(1, 2, 3, 4)).double()
    x, mask = torch.randn(2, 6, 3, dtype=torch.float64), torch.ones(2, 6, dtype=torch.bool)
    parts = []
    for width, kernel in zip(windows.widths, windows.kernels, strict=True):
        weight = kernel.weight.view(5, width, 3).transpose(1, 2)
        before = (width - 1) // 2
        padded = torch.nn.functional.pad(x.transpose(1, 2), (before, width - 1 - before))
        parts.append(torch.nn.functional.conv1d(padded, weight, kernel.bias).relu().transpose(1, 2))
    torch.testing.assert_close(windows(x, mask), torch.cat(parts, -1))


def test_a_word_is_spelt_by_its_bytes_and_a_long_one_by_its_ends() -> None:
    assert spelt("né")[:4] == [1 + byte for byte in "né".encode()] + [0]
    long = "".join(chr(97 + i) for i in range(20))
    assert bytes(letter - 1 for letter in spelt(long)) == (long[:8] + long[-8:]).encode()


# --- metrics -----------------------------------------------------------------------------------------------------


def test_confusion_and_spans_are_what_the_metrics_count() -> None:
    chance = random.Random(7)
    for marks in ("ABC", ("O", "B-per", "I-per", "B-loc")):
        gold = [[chance.choice(marks) for _ in range(chance.randint(1, 9))] for _ in range(30)]
        said = [[tag if chance.random() < 0.7 else chance.choice(marks) for tag in one] for one in gold]
        found = tag_scores([" ".join(one) for one in gold], [" ".join(one) for one in said])
        assert sum(sum(row.values()) for row in found.confusion.values()) == found.count == sum(map(len, gold))
        right = sum(row.get(label, 0) for label, row in found.confusion.items())
        assert found.accuracy == pytest.approx(100 * right / found.count)
        if marks == "ABC":
            assert not found.spans
        else:
            both, guessed, there = map(sum, zip(*found.spans.values(), strict=True))
            assert found.f1 == pytest.approx(200 * both / (guessed + there)) and set(found.spans) == {"per", "loc"}
    alone = label_scores(["very good", "bad"], ["very good", "very good"])
    assert alone.confusion == {"bad": {"very good": 1}, "very good": {"very good": 1}}
    assert (alone.count, alone.accuracy) == (2, 50)


# --- data --------------------------------------------------------------------------------------------------------


def test_columns_are_read_between_tabs_or_spaces_and_sentences_end_at_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.conll"
    file.write_text("-DOCSTART- O\n\nThe DT O\ncat NN B-animal\n  \n\nNew York\tNN\tB-place\n\t\n")
    assert list(read_columns(file, word=1, tag=-1)) == [[("The", "O"), ("cat", "B-animal")], [("New_York", "B-place")]]
    with pytest.raises(UserError, match="line 3: 3 columns, but column 5"):
        list(read_columns(file, word=1, tag=5))
    found = list(Conll(train=str(file), valid=str(file)).lines("train", tmp_path))
    assert found == [(1, "The cat", "O B-animal"), (2, "New_York", "B-place")]


def test_a_csv_file_is_read_with_its_quotes(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('text,label\n"good, very\ngood",yes\nbad,no\n')
    assert [row for _, row in read_fields(file, ["text", "label"])] == [["good, very good", "yes"], ["bad", "no"]]


# --- commands ----------------------------------------------------------------------------------------------------

GOOD, BAD, THINGS = ("lovely", "fine", "great"), ("awful", "poor", "sad"), ("film", "book", "song", "play")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(9)
    rows, tagged = [], []
    for _ in range(200):
        good = chance.random() < 0.5
        word, thing = chance.choice(GOOD if good else BAD), chance.choice(THINGS)
        rows.append(f"{'pos' if good else 'neg'}\ta {word} {thing}")
        tagged.append(f"a\tO\n{word}\tO\n{thing}\tB-thing\nof\tI-thing\nmine\tI-thing\n")
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    (folder / "train.conll").write_text("\n".join(tagged))
    return folder


@pytest.mark.parametrize("model", ["birnn", "attentive_birnn", "encoder", "cnn"])
def test_from_a_table_to_labels(call: Call, corpus: Path, tmp_path: Path, model: str) -> None:
    recipe, run = tmp_path / "s.toml", tmp_path / "run"
    made = call("new", "classification", corpus / "train.tsv", "--model", model, "-o", recipe)
    assert made.code == 0 and 'source = "2"' in recipe.read_text() and 'target = "1"' in recipe.read_text()
    settings = ["train.epochs=0", "train.steps=60", "train.learning_rate=0.01", "train.precision=float32"]
    assert call("train", recipe, *settings, "-o", run).code == 0
    scored = json.loads(call("score", run, corpus / "train.tsv", "--json").out)
    assert scored["accuracy"] > 95 and scored["count"] == 200
    (tmp_path / "other.tsv").write_text("pos\ta great book\nodd\ta sad song\n")
    other = call("score", run, tmp_path / "other.tsv").out
    assert "2 examples" in other and "labels that the model does not know count as wrong: odd (1 example)" in other
    (tmp_path / "lines").write_text("a great book\n\na sad song\n")
    lines = call("predict", run, tmp_path / "lines").out.split("\n")
    assert [line.split("\t")[0] for line in lines] == ["pos", "", "neg", ""]
    assert 0.5 < float(lines[0].split("\t")[1]) <= 1
    seen = json.loads(call("look", run, "a great book", "--json").out)
    assert seen["source"] == ["a", "great", "book", "<eos>"]
    assert [row[: row.index(",")] for row in seen["target"]] == ["pos"] * len(seen["weights"])
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in seen["weights"])
    if model == "attentive_birnn":
        assert [row.split(", ")[1] for row in seen["target"]] == ["attention", "saliency"]
    assert call("look", run, "a great book", "--html", tmp_path / "look.html").code == 0
    assert "importance of each word" in (tmp_path / "look.html").read_text()
    nearest = json.loads(call("look", run, "--neighbours", "lovely", "--json").out)["nearest"]
    assert len(nearest) > 5


def test_from_columns_to_tags(call: Call, corpus: Path, tmp_path: Path) -> None:
    recipe, run = tmp_path / "t.toml", tmp_path / "run"
    assert call("new", "tagging", corpus / "train.conll", "-o", recipe).code == 0
    settings = ["train.epochs=0", "train.steps=40", "train.learning_rate=0.01", "train.precision=float32"]
    assert call("train", recipe, *settings, "-o", run).code == 0
    scored = call("score", run, corpus / "train.conll").out
    assert "entity F1   100.00   200 right of 200 predicted and 200 gold" in scored
    (tmp_path / "lines").write_text("a great book of mine\n\n")
    assert call("predict", run, tmp_path / "lines").out == "O O B-thing I-thing I-thing\n\n"
    assert call("predict", run, tmp_path / "lines", "--conll").out.startswith("a\tO\ngreat\tO\nbook\tB-thing\n")
    entry = json.loads(call("predict", run, tmp_path / "lines", "--json").out.split("\n")[0])
    tags = ["O", "O", "B-thing", "I-thing", "I-thing"]
    assert entry == {"line": 1, "words": ["a", "great", "book", "of", "mine"], "tags": tags, "cut": False}


def test_what_cannot_be_is_told_in_a_sentence(call: Call, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a\tx\nb\tx\n")
    said = call("new", "classification", tmp_path / "one", "-o", tmp_path / "a.toml")
    assert said.code == 1 and "one label only" in said.err
    (tmp_path / "single").write_text("only text\n" * 3)
    said = call("new", "classification", tmp_path / "single", "-o", tmp_path / "a.toml")
    assert said.code == 1 and "two fields" in said.err
    assert not (tmp_path / "a.toml").exists()
    recipe = tmp_path / "t.toml"
    assert call("new", "tagging", corpus / "train.conll", "-o", recipe).code == 0
    for setting, words in (
        ("tokens.kind=bpe", "tokens.size = 0 is too small for bpe"),
        ("model.name=rnn_lm", "birnn"),
        ("train.balance=true", "balance"),
    ):
        said = call("train", recipe, setting, "-o", tmp_path / "run")
        assert said.code == 1 and words in said.err


def test_two_texts_are_read_as_one(call: Call, tmp_path: Path) -> None:
    """Whether they are the same: no word of either alone tells."""
    rows = [
        f"{a}\t{b}\t{'same' if a == b else 'other'}" for a in "vwxyz" for b in "vwxyz" for _ in range(1 + 3 * (a == b))
    ]
    (tmp_path / "p.tsv").write_text("\n".join(rows) + "\n")
    recipe, run = tmp_path / "p.toml", tmp_path / "run"
    made = call(
        "new", "classification", tmp_path / "p.tsv", "--source", 1, "--target", 3, "--valid", tmp_path / "p.tsv",
        "-o", recipe,
    )  # fmt: skip
    assert made.code == 0
    settings = ["data.second='2'", "train.epochs=0", "train.steps=150", "train.learning_rate=0.01", "model.dropout=0"]
    assert call("train", recipe, *settings, "-o", run).code == 0
    (tmp_path / "lines").write_text("v\tv\nv\tw\nz\tz\n")
    said = call("predict", run, tmp_path / "lines").out.split("\n")
    assert [line.split("\t")[0] for line in said[:3]] == ["same", "other", "same"]
    assert json.loads(call("score", run, tmp_path / "p.tsv", "--json").out)["accuracy"] == 100


def test_a_label_that_training_has_not_is_refused_before_training(call: Call, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "v.tsv").write_text("pos\ta great film\nmeh\ta poor song\n")
    (tmp_path / "v.conll").write_text("a\tO\nfilm\tB-other\n")
    for task, suffix, label in (("classification", "tsv", "meh"), ("tagging", "conll", "O B-other")):
        recipe = tmp_path / f"{task}.toml"
        made = call("new", task, corpus / f"train.{suffix}", "--valid", tmp_path / f"v.{suffix}", "-o", recipe)
        assert made.code == 0
        said = call("train", recipe, "-o", tmp_path / task)
        assert said.code == 1 and f"{label!r} holds a label that the training data does not have" in said.err


def test_training_can_begin_with_vectors(call: Call, corpus: Path, tmp_path: Path) -> None:
    recipe, run, file = tmp_path / "s.toml", tmp_path / "run", tmp_path / "v.txt"
    assert call("new", "classification", corpus / "train.tsv", "-o", recipe).code == 0
    file.write_text("great " + " ".join(["0.5"] * 64) + "\nGreat " + " ".join(["9"] * 64) + "\n")
    least = ["train.epochs=0", "train.steps=1", "train.learning_rate=1e-9", "train.weight_decay=0", "train.smooth=0"]
    assert call("train", recipe, f"train.vectors={file}", *least, "-o", run).code == 0
    loaded = regard.load(run)
    (place,) = loaded.tokenizer("source").encode("great")
    torch.testing.assert_close(
        loaded.model.encoder.embed.embed.weight[place], torch.full((64,), 0.5 / 8), atol=1e-6, rtol=0
    )
    said = call("train", recipe, f"train.vectors={file}", f"train.from={run}", "-o", tmp_path / "other")
    assert said.code == 1 and "exclude each other" in said.err


def test_what_names_says_what_cannot_be_looked_into(call: Call, corpus: Path, tmp_path: Path) -> None:
    recipe, run = tmp_path / "t.toml", tmp_path / "run"
    assert call("new", "tagging", corpus / "train.conll", "-o", recipe).code == 0
    assert call("train", recipe, "train.epochs=0", "train.steps=1", "-o", run).code == 0
    for options, words in (
        (["a film"], "no attention to look at in tagging"),
        (["--gradients"], "birnn does not"),
    ):
        said = call("look", run, *options)
        assert said.code == 1 and words in said.err
    layers = json.loads(call("look", run, "a film", "--gates", "--json").out)["layers"]
    assert [layer["tokens"] for layer in layers] == [["a", "film", "<eos>"], ["<eos>", "film", "a"]]
    for content in ("", "{", "[1, 2]\n"):
        (tmp_path / "odd.jsonl").write_text(content)
        said = call("new", "classification", tmp_path / "odd.jsonl", "-o", tmp_path / "odd.toml")
        assert said.code == 1 and "unexpected" not in said.err


def test_rare_labels_can_weigh_as_much_as_frequent_ones(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("good day\tpos\n" * 30 + "bad day\tneg\n" * 10)
    recipe, run = tmp_path / "s.toml", tmp_path / "run"
    assert call("new", "classification", tmp_path / "t.tsv", "--valid", tmp_path / "t.tsv", "-o", recipe).code == 0
    settings = ["train.balance=true", "train.epochs=0", "train.steps=3"]
    assert call("train", recipe, *settings, "-o", run).code == 0
    for out in (run, tmp_path / "new"):  # they follow from the data, also where training goes on
        session: Any = Session(read_recipe(recipe, settings)[0], out)
        assert session.run.model.head.weights.tolist() == pytest.approx([40 / 60, 40 / 20])


def test_a_model_can_begin_with_vectors_that_somebody_else_made(tmp_path: Path) -> None:
    model = MODELS["cnn"].build(MODELS["cnn"].config(embedding=6, filters=4, dropout=0.0), Shapes(Ids(23), Label(3)))
    tokenizer = Tokenizer.train("words", ["a cat sat"], size=None)
    (tmp_path / "v.txt").write_text("2 6\ncat 1 2 3 4 5 6\nDOG 0 0 0 0 0 0\n")
    assert load_word_vectors(model, tokenizer, tmp_path / "v.txt") == 1
    (place,) = tokenizer.encode("cat")
    torch.testing.assert_close(model.encoder.embed.embed(torch.tensor([place]))[0], torch.arange(1.0, 7.0))
    (tmp_path / "v.txt").write_text("cat 1 2 3\n")
    with pytest.raises(UserError, match="3 numbers, but the model's vectors have 6"):
        load_word_vectors(model, tokenizer, tmp_path / "v.txt")


# --- long lines --------------------------------------------------------------------------------------------------


def untrained(task: str, model: str, **settings: object) -> Run:
    lines = ["a lovely film", "a poor book of mine"]
    recipe = parse_recipe(
        {
            "task": task,
            "data": {"name": "world"},
            "tokens": {"kind": "given" if task == "tagging" else "words", "size": 0},
            "model": {"name": model, **settings},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    examples = [(line, line.replace("film", "book") if task == "tagging" else line[:3]) for line in lines]
    fields = recipe.task.learn(lambda: examples, recipe.tokens)
    return Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"), "untrained")


@pytest.mark.parametrize("task", ["classification", "tagging"])
@pytest.mark.parametrize("model", ["birnn", "encoder", "cnn"])
def test_a_long_line_beside_short_ones_makes_no_large_batch(task: str, model: str) -> None:
    run = untrained(task, model)
    shapes: list[tuple[int, int]] = []
    run.model.get_submodule("encoder").register_forward_pre_hook(
        lambda _, given: shapes.append(tuple(given[0].mask.shape))
    )
    lines = [f"a {word} film of mine" for word in ("lovely", "poor", "mine") * 21]
    lines.insert(17, " ".join(["poor film"] * 2500))
    found = run.predict(lines)
    assert sum(rows for rows, _ in shapes) == 64
    assert all(rows == 1 or rows * time <= Decoding().batch_tokens for rows, time in shapes)
    assert [prediction.cut for prediction in found] == [len(line) > 1000 for line in lines]
    assert [each.text for each in found[:3]] == [run.predict(line).text for line in lines[:3]]


@pytest.mark.parametrize("task, places", [("classification", 61), ("tagging", 63)])
def test_an_encoder_with_learned_positions_cuts_a_longer_line_and_goes_on(
    call: Call, corpus: Path, tmp_path: Path, task: str, places: int
) -> None:
    """Of 64 positions a class token takes one and <eos> another; lengths are rounded to even numbers."""
    recipe, run, lines = tmp_path / "r.toml", tmp_path / "run", tmp_path / "lines"
    suffix = {"classification": "tsv", "tagging": "conll"}[task]
    assert call("new", task, corpus / f"train.{suffix}", "--model", "encoder", "-o", recipe).code == 0
    settings = ["model.positions=learned", "model.longest=64", "train.epochs=0", "train.steps=1"]
    assert call("train", recipe, *settings, "-o", run).code == 0
    lines.write_text("a great book\n" + "poor " * places + "\n" + "poor " * (places + 1) + "\na sad song\n")
    done = call("predict", run, lines, "--json")
    entries = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0 and [entry["cut"] for entry in entries] == [False, False, True, False]
    said = f"Line 3 is too long: only its beginning was read, at most {places} tokens."
    assert " ".join(done.err.split()) == said
    if task == "tagging":
        assert [len(entry["tags"]) for entry in entries] == [3, places, places, 3]
    long = {"classification": f"pos\t{'poor ' * 99}\n", "tagging": "poor\tO\n" * 99}[task]
    (tmp_path / f"test.{suffix}").write_text(long)
    scored = call("score", run, tmp_path / f"test.{suffix}", "--json")
    assert json.loads(scored.out)["count"] == {"classification": 1, "tagging": 99}[task]
    looked = call("look", run, "poor " * (places + 1))
    assert task == "tagging" or f"at most {places} can be looked at" in looked.err


def test_words_that_were_not_read_count_as_wrong() -> None:
    found = tag_scores(["A B B", "A"], ["A B", "A"])
    assert (found.count, found.accuracy) == (4, 75) and found.confusion["B"] == {"(not read)": 1, "B": 1}


# --- gates -------------------------------------------------------------------------------------------------------


def test_a_recurrent_classifier_shows_its_layers_in_both_directions(call: Call, corpus: Path, tmp_path: Path) -> None:
    recipe, run = tmp_path / "s.toml", tmp_path / "run"
    assert call("new", "classification", corpus / "train.tsv", "--model", "birnn", "-o", recipe).code == 0
    assert call("train", recipe, "model.layers=2", "train.epochs=0", "train.steps=1", "-o", run).code == 0
    texts = ("a sad song", "a great play")
    seen, other = (json.loads(call("look", run, text, "--gates", "--json").out) for text in texts)
    assert seen["output"] in ("pos", "neg")
    forwards = ["a", "sad", "song", "<eos>"]
    names = [layer["layer"] for layer in seen["layers"]]
    assert names == ["encoder 1 →", "encoder 2 →", "encoder 1 ←", "encoder 2 ←"]
    for name, layer in zip(names, seen["layers"], strict=True):
        assert layer["tokens"] == (forwards if "→" in name else forwards[::-1])
        assert all(len(values) == 4 for values in [*layer["gates"].values(), *layer["states"].values()])
    for layer, its in zip(seen["layers"], other["layers"], strict=True):
        if " 1 " in layer["layer"]:  # "a" is what both sentences begin with, and <eos> what they end in
            assert layer["states"]["h"][0] == its["states"]["h"][0] and layer["states"]["h"][1] != its["states"]["h"][1]
    shown = call("look", run, "a sad song", "--gates")
    assert shown.code == 0 and all(name in shown.out for name in names)
    assert call("look", run, "a sad song", "--gates", "--html", tmp_path / "gates.html").code == 0
