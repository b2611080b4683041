"""Laws of imported tokenizers: the ids of `transformers`, in our order; back again; damaged files are one sentence."""

from __future__ import annotations

import json
import os
import random
import shutil
from itertools import groupby
from pathlib import Path
from typing import Any

import folders
import pytest
from test_tokens import CORPUS, HARD

from regard.data.fields import Fields, TextField
from regard.data.imported_tokens import Imported
from regard.data.sentencepiece import SentencePieceModel
from regard.data.tokens import Tokenizer
from regard.exchange.own_tokenizers import write_own
from regard.exchange.tokenizer_files import read_tokenizers
from regard.interface import BOS, EOS, PAD, SPECIALS, UNK, UserError

pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")

FAMILIES = list(folders.FAMILIES)
SIDES = [
    (family, side) for family in FAMILIES for side in ("source", "target") if side == "source" or "marian" in family
]
TEXTS = folders.texts(200)
SPELT = ["[MASK]", "[CLS]", "[SEP]", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>", "<extra_id_0>"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of each family."""
    root = tmp_path_factory.mktemp("families")
    for family, make in folders.FAMILIES.items():
        make(root / family)
    return root


def theirs_of(peer: Any, texts: list[str], side: str) -> list[list[int]]:
    """The ids by `transformers`."""
    if side == "target":
        return [peer(text_target=text, add_special_tokens=False)["input_ids"] for text in texts]
    return [peer(text, add_special_tokens=False)["input_ids"] for text in texts]


def ours_of(tokenizer: Imported, texts: list[str]) -> list[list[int]]:
    return [[tokenizer.theirs[token] for token in ids] for ids in tokenizer.encode_all(texts)]


def peer_of(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("family", "side"), SIDES)
def test_ids_are_those_of_transformers(made: Path, family: str, side: str) -> None:
    assert ours_of(read_tokenizers(made / family)[side], TEXTS) == theirs_of(peer_of(made / family), TEXTS, side)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("family", "side"), SIDES)
def test_ids_are_those_of_transformers_on_many_texts(made: Path, family: str, side: str, seed: int) -> None:
    texts = folders.texts(2000, seed)
    assert ours_of(read_tokenizers(made / family)[side], texts) == theirs_of(peer_of(made / family), texts, side)


@pytest.mark.parametrize("family", [family for family in FAMILIES if "marian" not in family])
def test_a_folder_saved_by_transformers_has_the_same_tokenizer(made: Path, tmp_path: Path, family: str) -> None:
    peer = peer_of(made / family)
    peer.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    shutil.copy(made / family / "config.json", tmp_path)
    first, again = read_tokenizers(made / family)["source"], read_tokenizers(tmp_path)["source"]
    assert (again.theirs, again.specials, again.predicted) == (first.theirs, first.specials, first.predicted)
    assert again.encode_all(TEXTS) == first.encode_all(TEXTS)


@pytest.mark.parametrize(("family", "side"), SIDES)
def test_decoding_is_that_of_transformers(made: Path, family: str, side: str) -> None:
    tokenizer, peer = read_tokenizers(made / family)[side], peer_of(made / family)
    how = {"use_source_tokenizer": side == "source"} if "marian" in family else {}
    if side == "source" and family == "marian-apart":
        pytest.skip("`transformers` decodes the target alone where the vocabularies are two")
    compared = 0
    for ids in tokenizer.encode_all(TEXTS):
        if UNK not in ids:
            their = [tokenizer.theirs[token] for token in ids]
            text = peer.decode(their, skip_special_tokens=True, clean_up_tokenization_spaces=False, **how)
            assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
            compared += 1
    assert compared > 10


def test_decoding_shows_what_is_unknown(made: Path) -> None:
    bert, t5, marian = (read_tokenizers(made / family)["source"] for family in ("bert", "t5", "marian"))
    assert bert.decode(bert.encode("the ꙮꙮ dog")) == "the <unk> dog"
    assert bert.decode(bert.encode("the ꙮꙮ dog"), ["n't"]) == "the n't dog"
    for tokenizer in (t5, marian):
        assert tokenizer.decode(tokenizer.encode("the ꙮꙮ dog")) == "the <unk> dog"


@pytest.mark.parametrize(("family", "side"), SIDES)
def test_each_id_of_the_folder_has_one_of_ours_that_speaks(made: Path, family: str, side: str) -> None:
    tokenizer = read_tokenizers(made / family)[side]
    predicted = [their for their, predicted in zip(tokenizer.theirs, tokenizer.predicted, strict=True) if predicted]
    assert sorted(predicted) == list(range(tokenizer.rows))
    assert tokenizer.specials[:4] == SPECIALS and len(tokenizer.theirs) == tokenizer.size
    texts = tokenizer.theirs[tokenizer.offset :]
    assert texts == sorted(texts)


def test_special_tokens_are_where_the_families_have_them(made: Path) -> None:
    found = {family: read_tokenizers(made / family)["source"] for family in FAMILIES}
    peers = {family: peer_of(made / family) for family in FAMILIES}
    for family in ("bert", "bert-cased", "distilbert", "electra", "albert", "roberta", "bart"):
        peer, tokenizer = peers[family], found[family]
        assert tokenizer.theirs[:5] == [
            *(peer.pad_token_id, peer.cls_token_id, peer.sep_token_id, peer.unk_token_id, peer.mask_token_id),
        ]
        assert tokenizer.mask == 4 and tokenizer.specials[4] == peer.mask_token
        assert all(tokenizer.predicted)
    end, gpt2 = peers["gpt2"].eos_token_id, found["gpt2"]
    assert (gpt2.theirs[:4], gpt2.predicted[:4], gpt2.mask) == ([-1, end, end, end], [False, False, True, False], None)
    t5 = found["t5"]
    assert t5.theirs[:4] == [0, 0, 1, 2] and t5.predicted[:4] == [True, False, True, True]
    assert t5.specials[4:7] == ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")
    assert t5.theirs[4] == peers["t5"].convert_tokens_to_ids("<extra_id_0>") == t5.rows - 1
    marian, ids = found["marian"], peers["marian"].encoder
    assert marian.theirs[:4] == [ids["<pad>"], ids["<pad>"], ids["</s>"], ids["<unk>"]]
    # what a decoder begins with
    assert {found[family].start for family in ("t5", "marian", "gpt2", "bert")} == {BOS}
    assert found["bart"].start == EOS


def test_rows_without_a_token_are_special_tokens_without_text(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "t5", tmp_path, dirs_exist_ok=True)
    few = read_tokenizers(tmp_path)["source"]
    config = json.loads((tmp_path / "config.json").read_text())
    folders.write(tmp_path, "config.json", config | {"vocab_size": few.rows + 7})
    more = read_tokenizers(tmp_path)["source"]
    assert (more.rows, more.size, more.offset) == (few.rows + 7, few.size + 7, few.offset + 7)
    assert more.vocabulary == few.vocabulary
    assert more.theirs[few.offset : more.offset] == list(range(few.rows, more.rows)) and all(
        more.predicted[few.offset :]
    )
    assert ours_of(more, TEXTS) == ours_of(few, TEXTS)
    folders.write(tmp_path, "config.json", config | {"vocab_size": few.rows - 150})
    with pytest.raises(UserError, match=f"its model only {few.rows - 150} ids"):
        read_tokenizers(tmp_path)


def test_a_padding_token_beyond_the_rows_of_the_model_is_none(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "gpt2", tmp_path, dirs_exist_ok=True)
    folders.write(tmp_path, "tokenizer_config.json", {"pad_token": "[PAD]"})
    tokenizer, peer = read_tokenizers(tmp_path)["source"], peer_of(tmp_path)
    assert tokenizer.theirs[PAD] == -1 and peer.pad_token_id == tokenizer.rows
    config = json.loads((tmp_path / "config.json").read_text())
    folders.write(tmp_path, "config.json", config | {"vocab_size": tokenizer.rows + 1})
    assert read_tokenizers(tmp_path)["source"].theirs[PAD] == peer.pad_token_id


ADDED = ["a newword b", "anewword", "newword [X1]newword", "newwords"]


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta", "t5"])
def test_tokens_that_were_added_later_are_found_in_text(made: Path, tmp_path: Path, family: str) -> None:
    peer = peer_of(made / family)
    peer.add_tokens(["newword"])
    peer.add_special_tokens({"additional_special_tokens": ["[X1]", "[X10]", "[X2]"]})
    peer.save_pretrained(tmp_path)
    folders.write(tmp_path, "config.json", {"model_type": family, "vocab_size": len(peer)})
    tokenizer = read_tokenizers(tmp_path)["source"]
    texts = [text.replace("[X1]", "") for text in ADDED]
    assert ours_of(tokenizer, [*texts, *TEXTS]) == theirs_of(peer_of(tmp_path), [*texts, *TEXTS], "source")
    assert tokenizer.vocabulary.index("newword") + tokenizer.offset in tokenizer.encode(ADDED[0])
    assert [name for name in tokenizer.specials if "[X" in name] == ["[X1]", "[X2]", "[X10]"]
    assert tokenizer.specials.index("[X1]") not in tokenizer.encode("a [X1]")
    assert tokenizer.theirs[tokenizer.specials.index("[X10]")] == peer.convert_tokens_to_ids("[X10]")


def test_added_tokens_in_files_of_earlier_versions_are_read(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "bert", tmp_path, dirs_exist_ok=True)
    size = json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    folders.write(tmp_path, "config.json", {"model_type": "bert", "vocab_size": size + 2})
    folders.write(tmp_path, "added_tokens.json", {"[X1]": size + 1, "newword": size})
    folders.write(tmp_path, "special_tokens_map.json", {"cls_token": "[CLS]", "extra_special_tokens": ["[X1]"]})
    tokenizer, peer = read_tokenizers(tmp_path)["source"], peer_of(tmp_path)
    assert ours_of(tokenizer, [ADDED[0], *TEXTS]) == theirs_of(peer, [ADDED[0], *TEXTS], "source")
    assert tokenizer.theirs[tokenizer.specials.index("[X1]")] == peer.convert_tokens_to_ids("[X1]") == size + 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_keeps_an_imported_tokenizer(made: Path, family: str) -> None:
    sides = read_tokenizers(made / family)
    fields = Fields({side: TextField(tokenizer, begins=side == "target") for side, tokenizer in sides.items()})
    assert fields.joint is (family != "marian-apart")
    again = Fields.from_json(fields.to_json(), {"source": TextField, "target": TextField})
    assert again.joint is fields.joint
    for side, tokenizer in sides.items():
        copy = again.tokenizer(side)
        assert type(copy) is type(tokenizer) and copy.to_json() == json.loads(json.dumps(tokenizer.to_json()))
        assert copy.encode_all(TEXTS) == tokenizer.encode_all(TEXTS)
        assert (copy.theirs, copy.predicted, copy.start) == (tokenizer.theirs, tokenizer.predicted, tokenizer.start)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_the_same_for_transformers(made: Path, tmp_path: Path, family: str) -> None:
    sides = read_tokenizers(made / family)
    sides["source"].write(tmp_path, sides["target"])
    shutil.copy(made / family / "config.json", tmp_path)
    before, after = peer_of(made / family), peer_of(tmp_path)
    assert after.special_tokens_map.items() <= before.special_tokens_map.items()
    dressed = TEXTS if "marian" in family else [*TEXTS, *SPELT]  # with special tokens around them and inside
    assert [after(text)["input_ids"] for text in dressed] == [before(text)["input_ids"] for text in dressed]
    assert theirs_of(after, TEXTS, "target") == theirs_of(before, TEXTS, "target")
    again = read_tokenizers(tmp_path)
    assert {side: again[side].to_json() for side in again} == {side: sides[side].to_json() for side in sides}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spelt", SPELT)
def test_typed_special_tokens_are_characters(made: Path, family: str, spelt: str) -> None:
    tokenizer = read_tokenizers(made / family)["source"]
    for text in (spelt, f"a {spelt} b", f"a{spelt}{spelt}"):
        assert min((i for i in tokenizer.encode(text) if i != UNK), default=UNK) >= UNK
        assert all(i == UNK or i >= tokenizer.offset for i in tokenizer.encode(text))
    if family in ("gpt2", "bart"):
        assert tokenizer.decode(tokenizer.encode(f"a {spelt}")) == f"a {spelt}"


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_stand_where_they_say(made: Path, family: str) -> None:
    tokenizer = read_tokenizers(made / family)["source"]
    for text in [*TEXTS, *HARD, "a \ud83d b"]:
        pieces = tokenizer.pieces(text)
        assert [piece.id for piece in pieces] == tokenizer.encode(text)
        assert all(piece.text == text[piece.start : piece.end] for piece in pieces)
        assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)
        assert all(piece.text.isspace() or not piece.text.startswith(" ") for piece in pieces)
        words = [piece.word for piece in pieces]
        assert words == sorted(words)
    pieces = tokenizer.pieces("the watcher watching")
    merged = ["".join(piece.text for piece in group) for _, group in groupby(pieces, key=lambda piece: piece.word)]
    assert merged == ["the", "watcher", "watching"]
    assert tokenizer.words([BOS, *(piece.id for piece in pieces), EOS]) == [-1, *(piece.word for piece in pieces), -1]


@pytest.mark.parametrize("family", FAMILIES)
def test_surfaces_can_be_read(made: Path, family: str) -> None:
    tokenizer = read_tokenizers(made / family)["source"]
    assert all(shown.isprintable() and shown for shown in tokenizer.surface(range(tokenizer.size)))
    starts = [not tokenizer.continues(token) for token in tokenizer.encode("dog the dogss")]
    first = 1 + (family in ("gpt2", "bart"))  # whose first word has no space before it, as if it continued one
    assert sum(starts) == 4 - first
    ids = tokenizer.encode("the watchers")
    assert "".join(tokenizer.surface(ids)) in ("thewatchers", "▁thewatchers", "␣thewatchers")


# What is damaged

DAMAGE: list[tuple[str, str, Any]] = [
    ("bert", "vocab.txt", None),
    ("bert", "vocab.txt", b"\xff\xfe"),
    ("bert", "vocab.txt", b""),
    ("bert", "vocab.txt", b"a\nb\n"),
    ("bert", "tokenizer_config.json", b"{"),
    ("bert", "tokenizer_config.json", b"[1]"),
    ("bert", "tokenizer_config.json", b"[" * 100_000),
    ("bert", "tokenizer_config.json", b'{"unk_token": "[ZZZ]"}'),
    ("bert", "config.json", b'{"vocab_size": 3}'),
    ("bert", "config.json", b'{"vocab_size": 99999999999}'),
    ("gpt2", "vocab.json", None),
    ("gpt2", "vocab.json", b'{"a": "b"}'),
    ("gpt2", "vocab.json", b'{"a": -1}'),
    ("gpt2", "vocab.json", b"{}"),
    ("gpt2", "vocab.json", b'{"<|endoftext|>": 4294967295}'),
    ("gpt2", "merges.txt", b"a b c\n"),
    ("gpt2", "merges.txt", "#version\n日 本\n".encode()),
    ("gpt2", "merges.txt", b"alone\n"),
    ("t5", "spiece.model", b""),
    ("t5", "spiece.model", b"not a model"),
    ("t5", "spiece.model", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("t5", "tokenizer.json", b"{}"),
    ("t5", "tokenizer.json", b'{"model": 5}'),
    ("t5", "tokenizer.json", b'{"model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}}'),
    ("t5", "tokenizer.json", b'{"model": {"type": "Unigram", "unk_id": null, "vocab": [["a", 0.0]]}}'),
    (
        "t5",
        "tokenizer.json",
        b'{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]},'
        b' "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}',
    ),
    ("t5", "tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}'),
    (
        "t5",
        "tokenizer.json",
        b'{"model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},'
        b' "decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true}}',
    ),
    ("marian", "vocab.json", None),
    ("marian", "vocab.json", b'{"a": 0}'),
    ("marian", "target.spm", None),
    ("marian", "target.spm", b"\x00" * 99),
]


@pytest.mark.parametrize(("family", "name", "content"), DAMAGE, ids=lambda part: str(part)[-40:])
def test_a_damaged_folder_is_one_sentence(made: Path, tmp_path: Path, family: str, name: str, content: Any) -> None:
    shutil.copytree(made / family, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_tokenizers(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


JUNK: list[Any] = [None, True, -1, 2**40, 1e300, "", "\ud800", "[MASK]", [], [[]], {}, {"type": "Split"}]


def spoilt(content: Any, choose: random.Random) -> Any:
    """The content with something in it replaced or left out."""
    inside = isinstance(content, dict | list) and content and choose.random() < 0.9
    if not inside:
        return choose.choice(JUNK)
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key = choose.choice(keys)
    copy = content.copy()
    if choose.random() < 0.1:
        del copy[key]
    else:
        copy[key] = spoilt(content[key], choose)
    return copy


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_spoilt_json_is_a_sentence_or_a_tokenizer(made: Path, tmp_path: Path, family: str) -> None:
    choose = random.Random(11)
    read_tokenizers(made / family)["source"].write(tmp_path)
    shutil.copy(made / family / "config.json", tmp_path)
    names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json"]
    whole = {name: json.loads((tmp_path / name).read_text()) for name in names}
    refused = 0
    for _ in range(60):
        for name in names:
            spoil = choose.random() < 0.5
            content = spoilt(whole[name], choose) if spoil else whole[name]
            (tmp_path / name).write_text(json.dumps(content))
        try:
            tokenizer = read_tokenizers(tmp_path)["source"]
            assert max(tokenizer.encode("the watcher été"), default=0) < tokenizer.size
            Fields.from_json(
                Fields({"target": TextField(tokenizer, begins=True)}).to_json(),
                {"target": TextField},
            )
        except UserError as problem:
            refused += 1
            assert "\n" not in str(problem) and str(tmp_path) in str(problem)
    assert 0 < refused < 60


@pytest.mark.parametrize("family", ["t5", "marian"])
def test_a_cut_or_flipped_model_is_a_sentence_or_a_tokenizer(made: Path, tmp_path: Path, family: str) -> None:
    name = "spiece.model" if family == "t5" else "source.spm"
    shutil.copytree(made / family, tmp_path, dirs_exist_ok=True)
    whole = (made / family / name).read_bytes()
    for place in range(1, len(whole), len(whole) // 23):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]):
            (tmp_path / name).write_bytes(damaged)
            try:
                tokenizer = read_tokenizers(tmp_path)["source"]
                assert max(tokenizer.encode("the watcher é été ½ ①"), default=0) < tokenizer.size
            except UserError as problem:
                assert "\n" not in str(problem)


def test_a_sentencepiece_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    for kind, how in (("bpe", {}), ("char", {}), ("unigram", {"byte_fallback": True})):
        folders.sentence_piece(tmp_path / "spiece.model", 400, model_type=kind, **how)
        with pytest.raises(UserError, match="which cannot be run"):
            read_tokenizers(tmp_path)


def test_pipes_and_huge_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="there is no tokenizer.json"):
        read_tokenizers(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").touch()
    with (tmp_path / "tokenizer.json").open("r+b") as file:
        file.truncate(200_000_000)
    with pytest.raises(UserError, match="more than 125,000 KiB"):
        read_tokenizers(tmp_path)
    with pytest.raises(UserError, match="there is no tokenizer.json"):
        read_tokenizers(tmp_path / "nowhere")


MODEL = SentencePieceModel(["<unk>", "a"], [0.0, -1.0], [2, 1]).to_json()
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"named": {"pad": "[PAD]"}}),
    ("bert", {"named": {"pad_token": 5}}),
    ("bert", {"others": "[PAD]"}),
    ("bert", {"rows": "5"}),
    ("bert", {"rows": -1}),
    ("bert", {"rows": 10**12}),
    ("bert", {"start": "5"}),
    ("bert", {"pipeline": []}),
    ("bert", {"pipeline": {}}),
    ("bert", {"pipeline": {"model": {"type": "Script"}}}),
    ("marian", {"ids": []}),
    ("marian", {"ids": {"a": 1.5}}),
    ("marian", {"model": None}),
    ("marian", {"model": {}}),
    *(("marian", {"model": {**MODEL, name: wrong}}) for name in MODEL for wrong in (None, [[]], [5], "é", 7)),
]


@pytest.mark.parametrize(("family", "wrong"), WRONG, ids=lambda part: str(part)[-40:])
def test_a_damaged_fields_file_is_one_sentence(made: Path, family: str, wrong: dict[str, Any]) -> None:
    sides = read_tokenizers(made / family)
    saved = json.loads(Fields({"target": TextField(sides["target"], begins=True)}).to_json())
    saved["sides"]["target"]["tokenizer"] |= wrong
    with pytest.raises(UserError, match="fields.json is damaged"):
        Fields.from_json(json.dumps(saved), {"target": TextField})


def test_a_sentencepiece_model_is_written_as_it_was_read(made: Path) -> None:
    import sentencepiece

    content = (made / "marian" / "source.spm").read_bytes()
    model = SentencePieceModel.parse(content)
    assert SentencePieceModel.parse(model.serialise()) == model
    before, after = (sentencepiece.SentencePieceProcessor(model_proto=each) for each in (content, model.serialise()))
    assert after.encode(TEXTS, out_type=str) == before.encode(TEXTS, out_type=str)
    assert [after.decode(ids) for ids in after.encode(TEXTS)] == [before.decode(ids) for ids in before.encode(TEXTS)]


SETTINGS: list[dict[str, Any]] = [
    {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": False},
    {"normalization_rule_name": "identity"},
    {"normalization_rule_name": "nfkc_cf"},
    {"user_defined_symbols": "Straße,##,a"},
]


@pytest.mark.parametrize("how", SETTINGS, ids=str)
def test_sentencepiece_models_of_all_settings_split_as_the_original(tmp_path: Path, how: dict[str, Any]) -> None:
    import sentencepiece

    folders.sentence_piece(tmp_path / "any.spm", 260, **how)
    original = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "any.spm"))
    model = SentencePieceModel.parse((tmp_path / "any.spm").read_bytes())
    for text in TEXTS:
        normalised, origins = model.normalise(text)
        assert len(origins) == len(normalised)
        pieces = [normalised[start:end] for start, end in model.split(normalised)]
        assert pieces == original.encode(text, out_type=str), text


# Tokenizers that were trained here

OWN = [*TEXTS, *CORPUS, *HARD, *SPECIALS, "a <eos> b"]


@pytest.mark.parametrize("kind", ["bpe", "characters", "given"])
def test_a_tokenizer_trained_here_is_the_same_in_transformers(tmp_path: Path, kind: str) -> None:
    lines = [" ".join(line.split()) for line in CORPUS] if kind == "given" else CORPUS
    tokenizer = Tokenizer.train(kind, lines, size=400 if kind == "bpe" else None, specials=(*SPECIALS, "<mask>"))
    write_own(tokenizer, tmp_path, template="$A <eos>")
    peer = peer_of(tmp_path)
    for text in OWN:
        ids = tokenizer.encode(text)
        assert peer(text)["input_ids"] == [*ids, EOS]
        assert UNK in ids or peer.decode([*ids, EOS], skip_special_tokens=True) == tokenizer.decode(ids)
    assert [peer.pad_token_id, peer.bos_token_id, peer.eos_token_id, peer.unk_token_id] == [PAD, BOS, EOS, UNK]
    assert len(peer) == tokenizer.size


@pytest.mark.parametrize("kind", ["bpe", "characters", "given"])
def test_a_tokenizer_trained_here_comes_back(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.train(kind, CORPUS, size=400 if kind == "bpe" else None)
    write_own(tokenizer, tmp_path)
    folders.write(tmp_path, "config.json", {"model_type": "bert", "vocab_size": tokenizer.size})
    again = read_tokenizers(tmp_path)["source"]
    assert again.theirs == list(range(tokenizer.size)) and all(again.predicted)
    assert (again.specials, again.vocabulary) == (tokenizer.specials, tokenizer.vocabulary)
    for text in OWN:
        ids = tokenizer.encode(text)
        assert again.encode(text) == ids and again.decode(ids) == tokenizer.decode(ids)
        assert again.surface(ids) == tokenizer.surface(ids) and again.words(ids) == tokenizer.words(ids)
    assert [again.pieces(text) for text in CORPUS] == [tokenizer.pieces(text) for text in CORPUS]


def test_words_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kind words"):
        write_own(Tokenizer.train("words", CORPUS, size=None), tmp_path)
    with pytest.raises(UserError, match="spelt as a special token"):
        write_own(Tokenizer.train("given", ["a <eos>"], size=None), tmp_path)
    assert list(tmp_path.iterdir()) == []
