"""French forms and how they meet: agreement, conjugation, elision (l'ami) and contraction (de + le: du)."""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiouyàâäéèêëîïôöùûüœh"  # with the mute h
# no elision before these, whatever their first letter
ASPIRATED = frozenset({"huit", "onze", "huitième", "onzième"})
WITH_ETRE = frozenset({"arriver", "partir", "venir", "tomber", "revenir", "rester", "entrer", "devenir"})
ELIDED = {w: w[:-1] + "'" for w in ("le", "la", "de", "ne", "que", "je", "me", "te", "se", "puisque")}
# articles are written in capitals until the sentence is joined, so that "de le voir" is never taken for "du"
ARTICLES = {"LE": "le", "LA": "la", "LES": "les"}
CONTRACTED = {("de", "LE"): "du", ("de", "LES"): "des", ("à", "LE"): "au", ("à", "LES"): "aux"}

CHANGING = frozenset({*ARTICLES, *ELIDED, "si"})

Token = tuple[str, *tuple[int, ...]]  # a French word and the source words it says


@dataclass(frozen=True, slots=True)
class Conjugation:
    """Six persons of each simple tense (je tu il nous vous ils) and the participle in its four agreements."""

    infinitive: str
    tenses: dict[str, tuple[str, ...]]  # present, imperfect, future, conditional
    participle: tuple[str, ...]
    with_etre: bool
    reflexive: bool


def plural(word: str) -> str:
    if word[-1] in "sxz":
        return word
    return word + ("x" if word.endswith(("eau", "eu")) and word != "bleu" else "s")


def agreements(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """Masculine, feminine, masculine plural, feminine plural."""
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    masculines = masculine[:-2] + "aux" if masculine.endswith("al") and masculine != "final" else plural(masculine)
    return masculine, feminine, masculines, plural(feminine)


def conjugate(infinitive: str, irregular: dict[str, str]) -> Conjugation:
    """Every form of a verb, by the longest ending listed as irregular or else by its group."""
    reflexive = infinitive.startswith(("s'", "se "))
    verb = infinitive.removeprefix("s'").removeprefix("se ")
    endings = [e for e in irregular if verb.endswith(e)]
    stem = verb[:-2]
    if endings:
        ending = max(endings, key=len)
        head = verb[: len(verb) - len(ending)]
        forms, future, participle = (part.strip() for part in irregular[ending].split("|"))
        present = tuple(head + form for form in forms.split())
        future, participle = head + future, head + participle
    elif verb.endswith("er"):
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        present = (stem + "e", stem + "es", stem + "e", soft + "ons", stem + "ez", stem + "ent")
        future, participle = verb, stem + "é"
    elif verb.endswith("ir"):
        present = tuple(stem + e for e in ("is", "is", "it", "issons", "issez", "issent"))
        future, participle = verb, stem + "i"
    else:
        present = tuple(stem + e for e in ("s", "s", "", "ons", "ez", "ent"))
        future, participle = verb[:-1], stem + "u"
    past = "ét" if verb == "être" else present[3].removesuffix("ons")
    hard = past[:-1] + "c" if past.endswith("ç") else past.removesuffix("e") if past.endswith("ge") else past
    ais, ions = ("ais", "ais", "ait"), ("ions", "iez")
    return Conjugation(
        infinitive=verb,
        tenses={
            "present": present,
            "imperfect": (*(past + e for e in ais), *(hard + e for e in ions), past + "aient"),
            "future": tuple(future + e for e in ("ai", "as", "a", "ons", "ez", "ont")),
            "conditional": tuple(future + e for e in (*ais, *ions, "aient")),
        },
        participle=agreements(participle) if not participle.endswith("û") else (participle,) * 4,
        with_etre=verb in WITH_ETRE or reflexive,
        reflexive=reflexive,
    )


class _Elides(dict[str, bool]):
    """Does a vowel sound open this word?  Remembered, because it is asked of every word written."""

    def __missing__(self, word: str) -> bool:
        first = word[:1].lower()
        self[word] = first != "" and first in VOWELS and word not in ASPIRATED
        return self[word]


opens_with_vowel = _Elides()


def join(tokens: list[Token]) -> tuple[list[str], list[tuple[int, int]]]:
    """The words as written, elided and contracted, and their links (source, target) with them."""
    words: list[str] = []
    links: list[tuple[int, int]] = []
    before: Token = ("",)
    following = iter(tokens)
    next(following)
    for token in tokens:
        word, here = token[0], len(words)
        after = next(following, ("",))[0]
        if word in CHANGING:
            if word in ARTICLES:
                contracted = CONTRACTED.get((before[0], word))
                word = ARTICLES[word]
                if word != "les" and opens_with_vowel[after]:
                    word = "l'"
                elif contracted:
                    words[-1] = contracted
                    links += [(source, here - 1) for source in token[1:] if source not in before[1:]]
                    continue
            elif word == "si":
                word = "s'" if after in ("il", "ils") else word
            elif opens_with_vowel[after]:
                word = ELIDED[word]
        elif "_" in word:
            *parts, word = word.split("_")
            for part in parts:
                links += [(source, len(words)) for source in token[1:]]
                words.append(part)
            here = len(words)
        words.append(word)
        for source in token[1:]:
            links.append((source, here))
        before = token
    return words, links
