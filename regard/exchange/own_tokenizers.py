"""Tokenizers that were trained here, written for `transformers` with the same ids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner

from regard.data.fields import TextField
from regard.data.imported_tokens import STRIPPED
from regard.data.pipelines import write_json, write_pipeline
from regard.data.tokens import SPLIT_WITH_SPACE, BytePairs, Listed, Tokenizer
from regard.interface import BOS, EOS, PAD, SPECIALS, UNK, UserError
from regard.run import Run

LISTED = "vocabulary.json"  # tokens by id, where there is no tokenizer.json
UNTYPED = "\ufffe"  # a word that no text has


def write_sides(run: Run, folder: Path) -> None:
    """Write the tokenizer of each side of a run in a folder of its name, with the ids of the run; or the tokens by id
    where the `tokenizers` library cannot split a text in the same way."""
    for side, field in run.fields.items():
        assert isinstance(field, TextField)
        place = folder / side
        place.mkdir()
        around = ["$A", SPECIALS[EOS]] if side == "source" else ["$A"]
        if "source" not in run.fields and max(run.opening) < len(SPECIALS):
            around = [*(SPECIALS[token] for token in run.opening), "$A"]
        if isinstance(field.tokenizer, BytePairs | Listed) and field.tokenizer.kind != "words":
            write_own(field.tokenizer, place, template=" ".join(around))
        else:
            write_json(place / LISTED, tokens_of(field.tokenizer))


def tokens_of(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens by id, each different from the others."""
    tokens = [*tokenizer.specials, *tokenizer.vocabulary]
    if len(set(tokens)) < len(tokens):
        raise UserError("This tokenizer has a token that is spelt as a special token: it cannot be exported.")
    return tokens


def write_own(tokenizer: Tokenizer, folder: Path, *, template: str = "$A") -> None:
    """Write a tokenizer that was trained here for `transformers`, with the same ids; `template`: what is put around a
    text, such as "<bos> $A" or "$A <eos>". Typed special tokens stay characters there, too."""
    ids = {token: i for i, token in enumerate(tokens_of(tokenizer))}
    steps: list[Any] = [normalizers.NFC()]
    if isinstance(tokenizer, BytePairs):
        inner = Inner(models.BPE(ids, tokenizer.merges))
        steps.append(normalizers.Prepend(" "))
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.pre_tokenizer = pre_tokenizers.Sequence([SPLIT_WITH_SPACE, level])
        decoder: dict[str, Any] | None = STRIPPED
    elif isinstance(tokenizer, Listed) and tokenizer.kind in ("characters", "given"):
        inner = Inner(models.WordLevel(ids, unk_token=SPECIALS[UNK]))
        one = tokenizer.kind == "characters"
        if not one:  # a word that is spelt as a special token is an unknown one
            typed = "|".join(map(re.escape, tokenizer.specials))
            steps.append(normalizers.Replace(Regex(f"(?<![^ ])(?:{typed})(?![^ ])"), UNTYPED))
        pattern, behaviour = (Regex(r"(?m)."), "isolated") if one else (" ", "removed")
        inner.pre_tokenizer = pre_tokenizers.Split(pattern, behaviour)
        decoder = {"type": "Fuse"} if one else None
    else:
        wrong = "a model of words leaves out spaces that it never read, which the `tokenizers` library cannot do"
        raise UserError(f'Its tokens are of the kind {tokenizer.kind}: {wrong}: train one with tokens.kind = "bpe".')
    inner.normalizer = normalizers.Sequence(steps)
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokenizer.specials])
    used = [(token, i) for token, i in ids.items() if token in template.split()]
    inner.post_processor = processors.TemplateProcessing(single=template, pair=f"{template} $B:1", special_tokens=used)
    known = {"pad_token": SPECIALS[PAD], "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS]}
    known |= {"unk_token": SPECIALS[UNK], "mask_token": "<mask>"}
    named = {what: token for what, token in known.items() if token in tokenizer.specials}
    write_pipeline(
        folder,
        {**json.loads(inner.to_str()), "decoder": decoder},
        named,
        [token for token in tokenizer.specials if token not in named.values()],
        {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True},
    )
