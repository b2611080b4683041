"""Languages by their ISO 639-1 codes, and the pair of languages that a translator is for: "en:de"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

TABLE = """
aa Afar; ab Abkhazian; ae Avestan; af Afrikaans; ak Akan; am Amharic; an Aragonese; ar Arabic; as Assamese;
av Avaric; ay Aymara; az Azerbaijani; ba Bashkir; be Belarusian; bg Bulgarian; bi Bislama; bm Bambara; bn Bengali;
bo Tibetan; br Breton; bs Bosnian; ca Catalan; ce Chechen; ch Chamorro; co Corsican; cr Cree; cs Czech;
cu Church Slavonic; cv Chuvash; cy Welsh; da Danish; de German; dv Divehi; dz Dzongkha; ee Ewe; el Greek; en English;
eo Esperanto; es Spanish; et Estonian; eu Basque; fa Persian; ff Fulah; fi Finnish; fj Fijian; fo Faroese; fr French;
fy Western Frisian; ga Irish; gd Scottish Gaelic; gl Galician; gn Guarani; gu Gujarati; gv Manx; ha Hausa; he Hebrew;
hi Hindi; ho Hiri Motu; hr Croatian; ht Haitian Creole; hu Hungarian; hy Armenian; hz Herero; ia Interlingua;
id Indonesian; ie Interlingue; ig Igbo; ii Sichuan Yi; ik Inupiaq; io Ido; is Icelandic; it Italian; iu Inuktitut;
ja Japanese; jv Javanese; ka Georgian; kg Kongo; ki Kikuyu; kj Kuanyama; kk Kazakh; kl Greenlandic; km Khmer;
kn Kannada; ko Korean; kr Kanuri; ks Kashmiri; ku Kurdish; kv Komi; kw Cornish; ky Kyrgyz; la Latin;
lb Luxembourgish; lg Ganda; li Limburgish; ln Lingala; lo Lao; lt Lithuanian; lu Luba-Katanga; lv Latvian;
mg Malagasy; mh Marshallese; mi Maori; mk Macedonian; ml Malayalam; mn Mongolian; mr Marathi; ms Malay; mt Maltese;
my Burmese; na Nauru; nb Norwegian Bokmål; nd North Ndebele; ne Nepali; ng Ndonga; nl Dutch; nn Norwegian Nynorsk;
no Norwegian; nr South Ndebele; nv Navajo; ny Chichewa; oc Occitan; oj Ojibwa; om Oromo; or Odia; os Ossetian;
pa Punjabi; pi Pali; pl Polish; ps Pashto; pt Portuguese; qu Quechua; rm Romansh; rn Rundi; ro Romanian; ru Russian;
rw Kinyarwanda; sa Sanskrit; sc Sardinian; sd Sindhi; se Northern Sami; sg Sango; si Sinhala; sk Slovak;
sl Slovenian; sm Samoan; sn Shona; so Somali; sq Albanian; sr Serbian; ss Swati; st Southern Sotho; su Sundanese;
sv Swedish; sw Swahili; ta Tamil; te Telugu; tg Tajik; th Thai; ti Tigrinya; tk Turkmen; tl Tagalog; tn Tswana;
to Tonga; tr Turkish; ts Tsonga; tt Tatar; tw Twi; ty Tahitian; ug Uyghur; uk Ukrainian; ur Urdu; uz Uzbek; ve Venda;
vi Vietnamese; vo Volapük; wa Walloon; wo Wolof; xh Xhosa; yi Yiddish; yo Yoruba; za Zhuang; zh Chinese; zu Zulu
"""
NAMES = dict(entry.split(maxsplit=1) for entry in TABLE.split(";"))
CODE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
NOT_A_LANGUAGE = {"gz", "xz", "bz2", "txt"}  # endings that may follow that of the language

Pair = tuple[str, str]  # the codes of the source and of the target


def name_of(code: str) -> str:
    """Return the English name of a language; a code that the table does not have is its own name."""
    base, _, region = code.partition("-")
    name = NAMES.get(base.lower(), code)
    return f"{name} ({region})" if region and name != code else name


def pair_in(text: str) -> Pair:
    """Read a pair of codes; another text raises a ValueError that says what to write."""
    source, colon, target = text.partition(":")
    if not (colon and CODE.fullmatch(source) and CODE.fullmatch(target)) or source == target:
        raise ValueError(f"languages = {text[:80]!r} must be two codes, the source first, such as en:de.")
    return source, target


def guessed(names: Iterable[str]) -> str:
    """Return the pair of languages that files named train.en.gz and train.de.gz have, or fields named en and de; "" if
    the names do not say."""
    codes = [ending_of(name).lower() for name in names]
    return ":".join(codes) if all(code in NAMES for code in codes) and len(set(codes)) == 2 else ""


def ending_of(name: str) -> str:
    """Return the last part of a file's name, without endings that do not say what is in it; a name without dots is its
    own."""
    parts = [part for part in Path(name).name.split(".") if part not in NOT_A_LANGUAGE]
    return parts[-1] if parts else ""
