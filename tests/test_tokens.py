"""Laws of tokens: nothing typed is lost, nothing typed is special, every piece knows where it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.text import read_lines
from regard.data.tokens import Tokenizer
from regard.interface import BOS, EOS, PAD, SPECIALS, UNK, UserError

KINDS = ["words", "characters", "bpe"]
CORPUS = [
    "They are watching the man .",
    "The man isn't watching them ; they 're watching him .",
    "l' homme n' a pas vu l' été , hélas .",
    "watching, watching and watching",
    "3.5 or 1,000 dogs... (well-known) -- don't-stop!?",
]
HARD = [
    "",
    " ",
    "   ",
    "\t",
    " leading",
    "trailing ",
    "double  space",
    "tab\there \t and there",
    "don't-stop!?",
    "▁ Ġ Ċ ‿ <eos> <unk> </s>",
    "▁under▁score_s",
    "Ġthe Ġ",
    "👩‍💻❤️😀😀",
    "हिन्दी भाषा",
    "e\u0301te\u0301 \u0301 a\u0323\u0307",
    "a\u0327\u0301 \u0f40\u0f73\u0f71",
    "\u1112\u1161\u11ab한",
    "a\nb\r\nc\x1c\x1d\x85\u2028\u00a0d",
    "\0\x01\x7f",
    "''quoted'' ``so'' 'tis l'homme l’homme rock'n'roll '' ' ",
    "1.5.7,9 3. .5 1,a",
]

# letters that compose, white space of every sort, apostrophes and digits, so that rare rules meet often
awkward = st.text(
    st.sampled_from(" \t\n\x1c\x85\u00a0\u2028'’.,-!aeX19_\u0301\u0323\u0327ा\u1100\u1161\u11a8가éĠ▁‿😀\u200d")
)
texts = st.one_of(st.text(), awkward, st.sampled_from(HARD))


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def trained(kind: str, *lines: str) -> Tokenizer:
    return Tokenizer.train(kind, [*CORPUS, *lines], size=331 if kind == "bpe" else None)


_small = {kind: trained(kind) for kind in KINDS}


def saved(tokenizer: Tokenizer) -> Any:
    """What its file says."""
    return json.loads(json.dumps(tokenizer.to_json()))


def tokens(text: str) -> list[str]:
    """What a tokenizer of words makes of a text, as strings."""
    tokenizer = trained("words", text)
    return [tokenizer.vocabulary[i - len(SPECIALS)] for i in tokenizer.encode(text)]


@settings(deadline=None)
@given(texts)
def test_bpe_loses_nothing(text):
    bpe = _small["bpe"]
    ids = bpe.encode(text)
    assert bpe.decode(ids) == nfc(text)
    assert all(len(SPECIALS) <= i < bpe.size for i in ids)


@pytest.mark.parametrize("kind", ["words", "characters"])
@settings(deadline=None)
@given(texts)
def test_a_text_trained_on_is_lossless(kind, text):
    tokenizer = Tokenizer.train(kind, [text], size=None)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == nfc(text)
    assert all(len(SPECIALS) <= i < tokenizer.size for i in ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HARD)
def test_hard_texts_are_lossless(kind, text):
    tokenizer = trained(kind, text)
    assert tokenizer.decode(tokenizer.encode(text)) == nfc(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(texts)
def test_any_text_encodes_without_pad_bos_eos(kind, text):
    tokenizer = _small[kind]
    ids = tokenizer.encode(text)
    assert not {PAD, BOS, EOS} & set(ids)
    assert max(ids, default=0) < tokenizer.size
    # an unknown is something never seen, and there are no unseen bytes
    unknown = {nfc(piece.text) for piece in tokenizer.pieces(text) if piece.id == UNK}
    assert not unknown & set(tokenizer.vocabulary)
    assert kind != "bpe" or not unknown


@pytest.mark.parametrize("kind", KINDS)
def test_typed_specials_are_letters(kind):
    tokenizer = trained(kind, *SPECIALS)
    for special in SPECIALS:
        ids = tokenizer.encode(f"a {special}{special}")
        assert min(ids) >= len(SPECIALS)
        assert tokenizer.decode(ids) == f"a {special}{special}"


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_does_no_harm(kind):
    tokenizer = trained(kind, "a \ufffd b")
    assert tokenizer.decode(tokenizer.encode("a \ud83d b")) == "a \ufffd b"
    assert tokenizer.pieces("a \ud83d b")[-1].end == 5


def test_words_split_as_documented():
    assert tokens("They are watching .") == ["They", "are", "watching", "."]
    assert tokens("They are watching.") == ["They", "are", "watching", "", "."]
    assert tokens("l' homme n' a pas") == ["l'", "homme", "n'", "a", "pas"]
    assert tokens("l'homme d’un don't they'll it 's") == [
        *("l'", "", "homme", "d’un", "don't", "they'll", "it", "'s"),
    ]
    assert tokens("3.5kg 1,000 3.") == ["3.5kg", "1,000", "3", "", "."]
    assert tokens("wait ... -- what!?") == ["wait", "...", "--", "what", "", "!", "", "?"]
    assert tokens(" a  b ") == [" ", "a", " ", " ", "b", " "]
    assert tokens("हिन्दी ❤️") == ["हिन्दी", "❤️"]


def test_spacing_that_training_never_had_is_left_out():
    tokenizer = Tokenizer.train("words", ["They are watching ."], size=None)
    assert tokenizer.encode("They are\twatching.") == tokenizer.encode("They are watching .")
    assert [piece.text for piece in tokenizer.pieces("They are\twatching.")] == ["They", "are", "watching", "."]


def test_a_word_is_one_type_wherever_it_stands():
    words = _small["words"]
    (alone,) = words.encode("watching")
    assert alone >= len(SPECIALS)
    for text in ("watching man", "man watching", "(watching)", " watching"):
        assert words.encode(text).count(alone) == 1
    bpe = Tokenizer.train("bpe", ["watching watching"] * 5, size=400)
    assert bpe.encode("watching watching") == bpe.encode("watching") * 2
    assert len(bpe.encode("watching")) == 1


def test_unknown_is_for_the_unseen_only():
    words, characters = _small["words"], _small["characters"]
    assert [i == UNK for i in words.encode("They are zebras.")] == [False, False, True, False, False]
    assert words.decode(words.encode("They are zebras.")) == "They are <unk>."
    assert [i == UNK for i in characters.encode("aЖ.")] == [False, True, False]
    assert characters.decode(characters.encode("aЖ.")) == "a<unk>."


@pytest.mark.parametrize("kind", KINDS)
def test_specials_say_nothing(kind):
    tokenizer = _small[kind]
    ids = tokenizer.encode("They are watching.")
    middle = len(ids) // 2
    dressed = [BOS, *ids[:middle], EOS, PAD, *ids[middle:], EOS, PAD]
    assert tokenizer.decode(dressed) == "They are watching."
    assert tokenizer.decode([BOS, EOS, PAD]) == tokenizer.decode([]) == ""
    words = tokenizer.words(dressed)
    assert [word for word in words if word >= 0] == tokenizer.words(ids)
    assert [i for i, word in zip(dressed, words, strict=True) if word < 0] == [BOS, EOS, PAD, EOS, PAD]
    assert tokenizer.surface([BOS, UNK]) == ["<bos>", "<unk>"]
    assert tokenizer.words([]) == []


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(texts)
def test_pieces_stand_where_they_say(kind, text):
    tokenizer = Tokenizer.train(kind, [text], size=None) if kind != "bpe" else _small[kind]
    pieces = tokenizer.pieces(text)
    assert [piece.id for piece in pieces] == tokenizer.encode(text)
    assert all(piece.text == text[piece.start : piece.end] for piece in pieces)
    assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)
    # no piece shows the space before it, unless a mark was typed on top of that space
    bare = all(piece.text.isspace() or not piece.text.startswith(" ") for piece in pieces)
    assert bare or text != nfc(text)
    # together they cover everything but spaces, which may be silent
    covered = {i for piece in pieces for i in range(piece.start, piece.end)}
    assert all(i in covered or text[i] == " " for i in range(len(text)))
    # the words come in order and none is skipped
    words = [piece.word for piece in pieces]
    assert [word for word, _ in groupby(words)] == list(range(len(set(words))))
    # what is seen of a typed text is what would be seen if it had been generated
    assert tokenizer.words([piece.id for piece in pieces]) == words


def test_pieces_of_decomposed_text_point_into_it():
    text = "un e\u0301te\u0301 !"
    assert [piece.text for piece in trained("words", text).pieces(text)] == ["un", "e\u0301te\u0301", "!"]
    assert [piece.text for piece in trained("characters", text).pieces(text)] == [
        *("u", "n", " ", "e\u0301", "t", "e\u0301", " ", "!"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_merge_into_words(kind):
    text = "They aren't  watching, they doze."
    merged = {
        word: "".join(piece.text for piece in group).strip()
        for word, group in groupby(trained(kind, text).pieces(text), key=lambda piece: piece.word)
    }
    assert list(merged.values()) == ["They", "aren't", "watching", ",", "they", "doze", "."]


@pytest.mark.parametrize("kind", KINDS)
def test_white_space_belongs_to_the_word_that_follows_or_to_the_last(kind):
    text = "  a  b  "
    tokenizer = trained(kind, text)
    marked = [(piece.text, piece.word) for piece in tokenizer.pieces(text) if piece.text]
    assert {word for piece, word in marked if piece == "a"} == {0}
    assert {word for piece, word in marked if piece == "b"} == {1}
    assert [word for _, word in marked][0] == 0
    assert [word for _, word in marked][-1] == 1
    assert {piece.word for piece in tokenizer.pieces("   ")} == {0}


def test_generated_unknowns_are_words_of_their_own():
    words = trained("words", "l' a")
    assert words.words(words.encode("l'zebra zebra, a")) == [0, 1, 1, 2, 3, 3, 4]


def test_surfaces_can_be_read():
    words, bpe = trained("words", "watching  the man."), Tokenizer.train("bpe", ["the man"] * 7, size=400)
    assert words.surface(words.encode("watching  the man.")) == ["watching", "␣", "␣", "the", "man", "‿", "."]
    assert bpe.surface(bpe.encode("the man\té")) == ["the", "man", "⇥", "\\xc3", "\\xa9"]
    assert bpe.surface(bpe.encode("\x07")) == ["␣", "\\x07"]
    assert all(shown.isprintable() and shown for shown in bpe.surface(range(bpe.size)))


def test_invalid_bytes_still_decode():
    bpe = _small["bpe"]
    lead, rest = bpe.encode("ж")[-2:]
    assert bpe.decode([lead]) == "�"
    assert bpe.decode([lead, UNK]) == "�<unk>"
    assert bpe.decode([lead, rest]) == "ж"


def test_size_counts_the_specials():
    for size in (11, 17):
        assert Tokenizer.train("words", CORPUS, size=size).size == size
        assert Tokenizer.train("characters", CORPUS, size=size).size == size
    assert Tokenizer.train("bpe", CORPUS, size=277).size == 277
    # the most frequent are kept
    assert UNK not in Tokenizer.train("words", CORPUS, size=11).encode("watching .")


def test_no_token_has_two_ids():
    for kind in KINDS:
        vocabulary = trained(kind, *HARD).vocabulary
        assert len(set(vocabulary)) == len(vocabulary)


def test_training_sees_composed_text():
    decomposed = [unicodedata.normalize("NFD", line) for line in CORPUS]
    assert decomposed != CORPUS
    for kind in KINDS:
        assert (
            Tokenizer.train(kind, decomposed, size=331).to_json() == Tokenizer.train(kind, CORPUS, size=331).to_json()
        )


def test_rare_tokens_are_left_out():
    lines = ["a a a b b c"]
    sizes = [Tokenizer.train("characters", lines, size=None, at_least=n).size for n in (1, 2, 3, 4)]
    assert sizes == [8, 7, 6, 5]  # specials, space and what is left of a, b, c
    merged = [Tokenizer.train("bpe", lines, size=300, at_least=n).size - 260 for n in (1, 2, 3, 4)]
    assert merged == [3, 2, 1, 0]  # " a", " b", " c"


@pytest.mark.parametrize(
    ("kind", "size"), [("words", 4), ("characters", 4), ("bpe", 259), ("bpe", None), ("syllables", 50)]
)
def test_impossible_requests_are_sentences(kind, size):
    with pytest.raises(UserError):
        Tokenizer.train(kind, CORPUS, size=size)


@pytest.mark.parametrize("kind", KINDS)
def test_json_keeps_everything(kind):
    tokenizer = trained(kind, *HARD)
    again = Tokenizer.from_json(saved(tokenizer))
    assert (again.kind, again.size) == (tokenizer.kind, tokenizer.size)
    assert again.encode_all(CORPUS + HARD) == tokenizer.encode_all(CORPUS + HARD)
    assert again.to_json() == tokenizer.to_json()


@pytest.mark.parametrize("other", [{}, {"kind": "bpe", "vocabulary": ["a"]}, {"kind": "odd", "vocabulary": []}])
def test_what_was_not_saved_by_us_is_a_sentence(other):
    with pytest.raises(UserError):
        Tokenizer.from_json(other)


# Special tokens of one's own

MORE = (*SPECIALS, "<mask>", "<cls>")


def with_more(kind: str) -> Tokenizer:
    """As _small[kind], with two special tokens more."""
    size = 331 + 2 if kind == "bpe" else None
    return Tokenizer.train(kind, CORPUS, size=size, specials=MORE)


_more = {kind: with_more(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_more_special_tokens_belong_to_the_tokenizers_file(kind):
    tokenizer = _more[kind]
    again = Tokenizer.from_json(saved(tokenizer))
    assert again.specials == tokenizer.specials == MORE
    assert (again.offset, again.size) == (len(MORE), tokenizer.size)
    assert again.to_json() == tokenizer.to_json()
    assert again.encode_all(CORPUS + HARD) == tokenizer.encode_all(CORPUS + HARD)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(texts)
def test_more_special_tokens_change_nothing_but_where_text_begins(kind, text):
    few, more = _small[kind], _more[kind]
    assert more.vocabulary == few.vocabulary
    assert few.offset == len(SPECIALS)  # ids of a tokenizer without them are where they were
    assert more.size == few.size + 2
    moved = [i if i == UNK else i + 2 for i in few.encode(text)]
    assert more.encode(text) == moved
    assert more.decode(moved) == few.decode(few.encode(text))
    assert more.words(moved) == few.words(few.encode(text))
    assert [piece._replace(id=0) for piece in more.pieces(text)] == [piece._replace(id=0) for piece in few.pieces(text)]
    assert more.surface(moved) == few.surface(few.encode(text))


@pytest.mark.parametrize("kind", KINDS)
def test_more_special_tokens_say_nothing(kind):
    tokenizer = _more[kind]
    mask, cls = MORE.index("<mask>"), MORE.index("<cls>")
    ids = tokenizer.encode("They are watching.")
    middle = len(ids) // 2
    dressed = [cls, *ids[:middle], mask, *ids[middle:], EOS]
    assert tokenizer.decode(dressed) == "They are watching."
    assert tokenizer.decode([cls, mask]) == ""
    assert [i for i, word in zip(dressed, tokenizer.words(dressed), strict=True) if word < 0] == [cls, mask, EOS]
    assert tokenizer.surface([cls, mask, UNK]) == ["<cls>", "<mask>", "<unk>"]
    assert tokenizer.decode([UNK]) == "<unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_of_ones_own_are_letters_where_they_are_typed(kind):
    typed = "a <mask> <cls><mask>"
    tokenizer = Tokenizer.train(kind, [*CORPUS, typed], size=340 if kind == "bpe" else None, specials=MORE)
    ids = tokenizer.encode(typed)
    assert min(ids) >= len(MORE)
    assert tokenizer.decode(ids) == typed


def test_size_counts_special_tokens_of_ones_own():
    assert Tokenizer.train("words", CORPUS, size=11, specials=MORE).size == 11
    assert Tokenizer.train("bpe", CORPUS, size=262, specials=MORE).size == 262
    for kind, size in (("words", 6), ("characters", 6), ("bpe", 261)):
        with pytest.raises(UserError, match=str(size)):
            Tokenizer.train(kind, CORPUS, size=size, specials=MORE)


DAMAGED = [
    None,
    "<pad><bos><eos><unk>",
    [],
    list(SPECIALS[:3]),
    [*SPECIALS[::-1]],
    ["<mask>", *SPECIALS],
    [*SPECIALS, 5],
    [*SPECIALS, "<mask>", "<mask>"],
    [*SPECIALS, "<eos>"],
    [*SPECIALS, "\ud800"],
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("specials", DAMAGED, ids=repr)
def test_damaged_special_tokens_are_refused(kind, specials):
    with pytest.raises(UserError, match="special tokens"):
        Tokenizer.from_json({**saved(_small[kind]), "specials": specials})


def test_special_tokens_that_no_file_would_give_back_are_refused_in_training():
    for specials in (("<mask>",), (*SPECIALS, "<mask>", "<mask>"), ("<cls>", *SPECIALS)):
        with pytest.raises(UserError, match="special tokens"):
            Tokenizer.train("words", CORPUS, size=None, specials=specials)


@pytest.mark.parametrize(
    "damage",
    [
        {"vocabulary": [*_small["bpe"].vocabulary, "日本"]},
        {"vocabulary": _small["bpe"].vocabulary[1:]},
        {"vocabulary": [*_small["bpe"].vocabulary, "a"]},
        {"merges": [["a"]]},
        {"merges": [["a", "日"]]},
        {"merges": "ab"},
        {"kind": "given "},
    ],
    ids=lambda damage: str(damage)[-20:],
)
def test_a_damaged_vocabulary_is_refused(damage):
    with pytest.raises(UserError):
        Tokenizer.from_json({**saved(_small["bpe"]), **damage})


@pytest.mark.parametrize("kind", KINDS)
def test_one_by_one_is_as_all_together(kind):
    tokenizer = _small[kind]
    assert tokenizer.encode_all(CORPUS + HARD) == [tokenizer.encode(text) for text in CORPUS + HARD]
    assert tokenizer.encode_all([]) == []


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_the_order_of_lines_does_not_matter(kind):
    forwards, backwards = (Tokenizer.train(kind, lines, size=29) for lines in (CORPUS, CORPUS[::-1]))
    assert forwards.to_json() == backwards.to_json()


ELSEWHERE = """
import json, sys
from regard.data.tokens import Tokenizer
print(json.dumps(Tokenizer.train("bpe", json.load(sys.stdin), size=331).to_json()))
"""


def test_training_is_the_same_in_another_process():
    environment = {**os.environ, "PYTHONHASHSEED": "101", "PYTHONPATH": str(Path(__file__).parents[1])}
    answer = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps(CORPUS),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Tokenizer.from_json(json.loads(answer.stdout)).to_json() == trained("bpe").to_json()


DATA = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(DATA is None, reason="REGARD_DATA is not set: no real captions to read")
@pytest.mark.parametrize("kind", KINDS)
def test_real_captions_are_lossless(kind):
    lines = list(read_lines(Path(DATA or "") / "multi30k" / "train.fr.gz"))
    tokenizer = Tokenizer.train(kind, lines, size=8000 if kind == "bpe" else None)
    encoded = tokenizer.encode_all(lines)
    assert [tokenizer.decode(ids) for ids in encoded] == [nfc(line) for line in lines]
