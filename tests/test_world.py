"""The built-in corpus: French is a function of English, splits share nothing, every word has its links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import islice

import pytest
from sacrebleu.metrics import BLEU

from regard.data.world import (
    SHOWN,
    Pair,
    Split,
    dictionary,
    example,
    held_out,
    lemma_of,
    lemmas,
    masked,
    pairs,
    reserved,
)
from regard.data.world.french import conjugate, join
from regard.data.world.lexicon import lexicon

TAGS = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "VERB"),
}


@cache
def sample(split: Split, count: int, longest: int = 50, seed: int = 0) -> tuple[Pair, ...]:
    return tuple(islice(pairs(split, seed=seed, longest=longest), count))


@cache
def training() -> tuple[Pair, ...]:
    """Both lengths, more than fifty thousand pairs."""
    return sample("train", 26_000) + sample("train", 26_000, longest=14)


def crosses(pair: Pair) -> bool:
    return any(i < k and j > m for i, j in pair.links for k, m in pair.links)


# ── one sentence, one translation ──────────────────────────────────────────────────────────────────


def test_french_and_everything_else_is_a_function_of_english() -> None:
    seen: dict[tuple[str, ...], Pair] = {}
    repeated = 0
    for pair in (*training(), *sample("train", 13_001, longest=7), *sample("test", 5_000, longest=9)):
        other = seen.setdefault(pair.source, pair)
        repeated += other is not pair
        assert other == pair
    assert repeated > 500  # or the law was never put to the test


def test_they_and_it_take_their_gender_from_the_first_subject() -> None:
    nouns = [noun for kind in lexicon().nouns.values() for noun in kind]
    elles = {noun.plural: "elles" if noun.feminine else "ils" for noun in nouns}
    elle = {noun.lemma: "elle" if noun.feminine else "il" for noun in nouns if noun.kind not in ("person", "kin")}
    said = Counter[str]()
    for pair in training():
        french = {i: pair.target[j].lower() for i, j in pair.links}
        expected = {"they": elles.get(pair.source[1]), "it": elle.get(pair.source[1])}
        for at, word in enumerate(pair.source):
            simple = pair.source[0] in ("The", "These", "This") and pair.tags[2] not in ("NOUN", "PART")
            if simple and french[at] in ("il", "elle", "ils", "elles"):
                assert word not in expected or french[at] == (expected[word] or french[at]), pair
                said[french[at]] += word in expected and expected[word] is not None
        assert pair.source[0] != "They" or french[0] == "ils"
    assert min(said[word] for word in ("il", "elle", "ils", "elles")) > 20


def test_the_same_seed_gives_the_same_pairs_whatever_the_hash_seed() -> None:
    code = (
        "from itertools import islice; from regard.data.world import pairs\n"
        "for split in ('train', 'valid', 'test'): print(list(islice(pairs(split, seed=7), 97)))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert said[0] == said[1] != ""
    assert sample("train", 97, seed=7) != sample("train", 97, seed=8)


# ── size and shape ─────────────────────────────────────────────────────────────────────────────────


def test_lengths_reach_from_three_to_fifty() -> None:
    lengths = sorted(len(pair.source) for pair in sample("train", 26_000))
    assert lengths[0] == 3 and 48 <= lengths[-1] <= 50
    assert 12 <= lengths[len(lengths) // 2] <= 16
    assert sum(length >= 30 for length in lengths) > 0.07 * len(lengths)
    short = sorted(len(pair.source) for pair in sample("train", 26_000, longest=14))
    assert short[-1] == 14 and short[len(short) // 2] >= 8


@pytest.mark.parametrize("longest", [3, 4, 5, 11])
def test_no_sentence_is_longer_than_asked(longest: int) -> None:
    assert all(len(pair.source) <= longest for pair in sample("train", 53, longest=longest))


def test_what_cannot_be_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        next(pairs("train", longest=2))
    with pytest.raises(ValueError, match="train, valid, test"):
        next(pairs("dev"))  # type: ignore[arg-type]


def test_the_words_are_many_and_most_are_met() -> None:
    forms = lemma_of()
    words = {word for pair in training() for word in pair.source}
    met = {forms[word] for word in words | {w[0].lower() + w[1:] for w in words} if word in forms}
    assert len(met) >= 650
    assert len(lemmas() - met) < 0.02 * len(lemmas())


def test_every_word_has_a_tag_and_entities_are_spans_of_names() -> None:
    labels = Counter[str]()
    for pair in sample("train", 5_003):
        assert len(pair.tags) == len(pair.source) and set(pair.tags) <= TAGS
        end = 0
        for start, stop, label in pair.entities:
            assert end <= start < stop <= len(pair.source)
            assert set(pair.tags[start:stop]) <= {"PROPN", "NUM"}
            labels[label] += 1
            end = stop
        named = {i for start, stop, _ in pair.entities for i in range(start, stop)}
        assert named >= {i for i, tag in enumerate(pair.tags) if tag == "PROPN"}
    assert set(labels) == {"PERSON", "PLACE", "ORG", "DATE"}


# ── alignment ──────────────────────────────────────────────────────────────────────────────────────


def test_every_word_of_both_sides_is_linked() -> None:
    for pair in (*sample("train", 5_003), *sample("test", 1_009)):
        assert list(pair.links) == sorted(set(pair.links))
        assert {i for i, _ in pair.links} == set(range(len(pair.source)))
        assert {j for _, j in pair.links} == set(range(len(pair.target)))


@pytest.mark.parametrize("longest", [14, 50])
def test_many_alignments_cross(longest: int) -> None:
    chosen = sample("test", 2_003, longest)
    assert sum(map(crosses, chosen)) >= 0.4 * len(chosen)


def test_links_join_what_they_should() -> None:
    want = {
        ("not", "pas"),
        ("not", "ne"),
        ("'s", "de"),
        ("the", "du"),
        ("of", "du"),
        ("will", "mangera"),
        ("them", "les"),
    }
    want |= {
        ("of", "de"),
        ("was", "été"),
        ("ago", "y"),
        ("than", "que"),
        ("him", "lui"),
        ("her", "lui"),
        ("all", "tous"),
    }
    met = {(pair.source[i].lower(), pair.target[j].lower()) for pair in training() for i, j in pair.links}
    assert want <= met
    never = {("not", "le"), ("the", "un"), ("a", "le"), ("and", "mais"), ("he", "elle"), ("his", "leur")}
    assert not never & met


# ── French ─────────────────────────────────────────────────────────────────────────────────────────


def test_french_words_meet_as_they_should() -> None:
    vowels = tuple("aeiouéèêàâîôœh")
    closed = {"le", "la", "de", "ne", "que", "je", "me", "se", "ce", "ma", "sa", "puisque"}
    elided = {"l'", "d'", "n'", "qu'", "j'", "m'", "s'", "puisqu'"}
    unjoined = {
        ("de", "le"),
        ("de", "les"),
        ("à", "le"),
        ("à", "les"),
        ("de", "des"),
        ("si", "il"),
        ("si", "ils"),
    }
    # "les vieux ours" is right: a noun whose plural looks like its singular tells nothing
    every = [noun.french for kind in lexicon().nouns.values() for noun in kind]
    nouns = {singular for singular, plural in every if singular != plural}
    met = set()
    for pair in (*sample("train", 5_003), *sample("test", 1_009, 14)):
        words = [word.lower() for word in pair.target]
        for word, after in zip(words, words[1:], strict=False):
            opens = after.startswith(vowels) and after not in ("huit", "onze")
            assert not (word in closed and opens), words
            assert not (word in elided and not opens and after != "y"), words
            assert (word, after) not in unjoined, words
            assert not (word in ("vieux", "nouveau", "beau") and after in nouns and opens), words
            assert "_" not in word
        assert pair.source[0][0].isupper() and pair.target[0][0].isupper()
        met |= set(words)
    assert met >= elided | {"du", "des", "au", "aux", "vieil", "nouvel", "cet", "lui", "leur"}


def test_articles_and_adjectives_agree_with_their_noun() -> None:
    gender = {}
    for noun in (n for kind in lexicon().nouns.values() for n in kind):
        for form in noun.french:
            gender.setdefault(form, set()).add(noun.feminine)
    articles = {"un": False, "une": True, "le": False, "la": True, "cet": False, "cette": True, "du": False}
    checked = 0
    for pair in sample("train", 5_003):
        for word, after in zip(pair.target, pair.target[1:], strict=False):
            if word.lower() in articles and len(gender.get(after, ())) == 1:
                assert gender[after] == {articles[word.lower()]}, pair
                checked += 1
    assert checked > 5_000


def test_negation_surrounds_the_finite_verb() -> None:
    for pair in sample("train", 5_003):
        words = [word.lower() for word in pair.target]
        closers = sum(word in ("pas", "jamais") for word in words)
        assert sum(word in ("ne", "n'") for word in words) >= closers
        for at, word in enumerate(words):
            if word in ("ne", "n'"):
                assert {"pas", "jamais", "plus"} & set(words[at + 2 : at + 5])


def test_object_pronouns_move_before_the_verb() -> None:
    objects = {"le", "la", "l'", "les", "lui", "leur", "me", "m'"}
    moved = Counter[str]()
    for pair in sample("train", 26_000):
        verbs = {j for i, j in pair.links if pair.tags[i] in ("VERB", "AUX")}
        for i, j in pair.links:
            if pair.source[i] in ("him", "her", "it", "them", "me") and pair.target[j] in objects:
                assert j + 1 in verbs, pair
                moved[pair.target[j]] += 1
    assert set(moved) == objects


def test_conjugation_of_verbs_everyone_knows() -> None:
    table = {
        "manger": ("mangeons", "mangeait", "mangions", "mangera", "mangée"),
        "commencer": ("commençons", "commençait", "commencions", "commencera", "commencée"),
        "finir": ("finissons", "finissait", "finissions", "finira", "finie"),
        "vendre": ("vendons", "vendait", "vendions", "vendra", "vendue"),
    }
    for infinitive, (we, he_did, we_did, he_will, done) in table.items():
        verb = conjugate(infinitive, {})
        past = verb.tenses["imperfect"]
        assert (verb.tenses["present"][3], past[2], past[3]) == (we, he_did, we_did)
        assert (verb.tenses["future"][2], verb.participle[1]) == (he_will, done)


def test_joining_elides_contracts_and_keeps_links() -> None:
    assert join([("de", 0), ("LE", 1), ("roi", 2)]) == (["du", "roi"], [(0, 0), (1, 0), (2, 1)])
    assert join([("de", 0), ("LE", 1), ("ami", 2)])[0] == ["de", "l'", "ami"]
    assert join([("de", 0), ("le", 1), ("voir", 2)])[0] == ["de", "le", "voir"]
    assert join([("LE", 0), ("onze", 0)])[0] == ["le", "onze"]
    assert join([("pomme_de_terre", 5)]) == (["pomme", "de", "terre"], [(5, 0), (5, 1), (5, 2)])


# ── splits ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("longest", [14, 50])
def test_splits_share_no_sentence_even_with_names_exchanged(longest: int) -> None:
    splits = {
        split: {
            masked(pair) for pair in sample(split, {"train": 26_000, "valid": 1_009, "test": 5_000}[split], longest)
        }
        for split in ("train", "valid", "test")
    }
    assert not splits["train"] & splits["test"]
    assert not splits["train"] & splits["valid"]
    assert not splits["valid"] & splits["test"]


def test_training_never_sees_a_reserved_combination() -> None:
    assert not any(reserved(*use) for pair in training() for use in pair.uses)
    assert not any(map(held_out, training()))


@pytest.mark.parametrize("longest", [14, 50])
def test_a_fifth_of_the_test_pairs_join_words_never_seen_together(longest: int) -> None:
    seen = {use for pair in training() for use in pair.uses}
    chosen = sample("test", 2_000, longest)
    assert sum(any(use not in seen for use in pair.uses) for pair in chosen) >= 0.2 * len(chosen)


@pytest.mark.parametrize("longest", [14, 50])
def test_held_out_sentences_are_otherwise_like_training(longest: int) -> None:
    train, test = sample("train", 26_000, longest), sample("test", 5_000, longest)
    mean = [sum(len(pair.source) for pair in chosen) / len(chosen) for chosen in (train, test)]
    assert abs(mean[0] - mean[1]) < 0.1 * mean[0]


@pytest.mark.parametrize("longest", [14, 50])
def test_word_by_word_is_not_translation(longest: int) -> None:
    words = dictionary()
    chosen = sample("test", 2_000, longest)
    said = [" ".join(words.get(word, word) for word in pair.source) for pair in chosen]
    truth = [" ".join(pair.target) for pair in chosen]
    bleu = BLEU(tokenize="none", force=True)
    assert 5 < bleu.corpus_score(said, [truth]).score < 45
    assert bleu.corpus_score(truth, [truth]).score > 99.99


# ── the shown sentences ────────────────────────────────────────────────────────────────────────────


def test_the_shown_sentences_are_written_by_the_grammar() -> None:
    french = (
        "Ils regardent .",
        "Le traité sur la zone économique européenne a été signé en mars 1994 .",
    )
    for text, said in zip(SHOWN, french, strict=True):
        pair = example(text)
        assert (" ".join(pair.source), " ".join(pair.target)) == (text, said)
    links = example(SHOWN[1]).links
    assert {(4, 6), (5, 5), (6, 4), (7, 7), (7, 8), (8, 9)} <= set(links)
    with pytest.raises(ValueError, match="They are watching"):
        example("They are sleeping .")


def test_the_shown_sentences_are_held_out_but_their_neighbours_are_not() -> None:
    shown = {masked(example(text)) for text in SHOWN}
    seen = (*training(), *sample("train", 9_001, longest=5))
    assert not shown & {masked(pair) for pair in seen}
    assert all(held_out(example(text)) for text in SHOWN)
    words = [" ".join(pair.source) for pair in seen]
    for near in (
        "They are ",
        " are watching",
        " treaty on the ",
        " was signed in ",
        " on the European Economic ",
    ):
        assert any(near in text for text in words), near


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("longest", [14, 50])
def test_verdicts_are_balanced(longest: int) -> None:
    counts = Counter(pair.sentiment for pair in sample("train", 26_000, longest))
    assert set(counts) == {"positive", "negative", "neutral"}
    assert all(0.25 < count / 26_000 < 0.45 for count in counts.values())


def test_a_degree_decides_nothing_and_not_turns_it_round() -> None:
    verdicts: dict[str, set[str]] = {}
    for pair in (*training(), *sample("train", 13_001, longest=7)):
        words = pair.source
        if (
            len(words) < 8
            and words[-2] in ("boring", "exciting", "ugly", "kind")
            and not {"but", "although"} & set(words)
        ):
            key = ("not " if words[-3] == "not" else "") + words[-2]
            verdicts.setdefault(key, set()).add(pair.sentiment)
            if words[-3] in ("terribly", "awfully"):
                verdicts.setdefault(f"{words[-3]} {words[-2]}", set()).add(pair.sentiment)
    assert verdicts["boring"] == verdicts["ugly"] == verdicts["not exciting"] == {"negative"}
    assert verdicts["exciting"] == verdicts["kind"] == verdicts["not boring"] == {"positive"}
    assert verdicts["terribly boring"] == verdicts["awfully boring"] == {"negative"}
    assert verdicts["terribly exciting"] == verdicts["awfully exciting"] == {"positive"}
