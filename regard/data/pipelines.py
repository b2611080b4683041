"""Pipelines of the `tokenizers` library, as tokenizer.json describes them: checked, made ready to run, and written."""

from __future__ import annotations

import contextlib
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken
from tokenizers.models import Unigram

from regard.data.files import reason, write_atomically
from regard.interface import UserError

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
HIDDEN = "\uffff "  # before the name of a special token, so that no text is split into it: there is a space in it

Pipeline = dict[str, Any]  # what tokenizer.json says


@contextlib.contextmanager
def library(doing: str) -> Iterator[None]:
    """Turn an error of the `tokenizers` library into one sentence; its panics are no usual exceptions."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as problem:
        raise UserError(f"its tokenizer cannot {doing} ({reason(problem)[:200]})") from None


def running(pipeline: Pipeline, specials: set[str]) -> tokenizers.Tokenizer:
    """The pipeline as it splits texts here: the same every time, without padding, and blind to special tokens."""
    with library("be read"):
        run = {**pipeline, "truncation": None, "padding": None, "post_processor": None}
        model = run["model"] = {**pipeline["model"]}
        model.pop("dropout", None)
        if (kind := model.get("type")) not in ("BPE", "Unigram", "WordPiece", "WordLevel", None):
            raise UserError(f"its tokenizer is of the kind {kind!r}, which cannot be run")
        check_charsmaps(pipeline.get("normalizer"))
        vocabulary = model["vocab"]

        def hidden(token: str) -> str:
            return HIDDEN + token if token in specials else token

        whole = "merges" not in model or model.get("ignore_merges")  # a word of the vocabulary is found as it is
        if whole and isinstance(vocabulary, list):
            model["vocab"] = [(hidden(token), score) for token, score in vocabulary]
        elif whole:
            model["vocab"] = {hidden(token): i for token, i in vocabulary.items()}
            if isinstance(model.get("unk_token"), str):
                model["unk_token"] = hidden(model["unk_token"])
        added = pipeline.get("added_tokens") or []
        # a token that only this list has is given the next id, with its own name or a hidden one
        run["added_tokens"] = [
            {**each, "content": hidden(each["content"]) if whole else each["content"], "special": True}
            if each["content"] in specials
            else each
            for each in added
        ]
        if not isinstance(vocabulary, list):
            inner = tokenizers.Tokenizer.from_str(json.dumps(run))
        else:  # the library reads scores in JSON without their last bit, which may decide
            empty = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
            parts = tokenizers.Tokenizer.from_str(json.dumps({**run, "model": empty, "added_tokens": []}))
            unigram = Unigram(model["vocab"], model.get("unk_id"), bool(model.get("byte_fallback")))
            inner = tokenizers.Tokenizer(unigram)
            inner.normalizer, inner.pre_tokenizer = parts.normalizer, parts.pre_tokenizer
            inner.decoder = parts.decoder
            inner.add_tokens(
                [AddedToken(**{name: each[name] for name in each if name != "id"}) for each in run["added_tokens"]]
            )
        inner.encode_special_tokens = True
        return inner


def without_prepended(pipeline: Pipeline) -> Pipeline:
    """The pipeline for a text that continues another: nothing is put before it."""
    normaliser = pipeline.get("normalizer") or {}
    steps = normaliser.get("normalizers") or ()
    kept = [step for step in steps if step.get("type") != "Prepend"]
    return {**pipeline, "normalizer": {**normaliser, "normalizers": kept}} if len(kept) < len(steps) else pipeline


def check_charsmaps(normaliser: Any) -> None:
    """Refuse tables of characters on which the library would panic."""
    if isinstance(normaliser, dict):
        for each in normaliser.get("normalizers") or ():
            check_charsmaps(each)
        if normaliser.get("type") == "Precompiled":
            charsmap = b64decode(normaliser["precompiled_charsmap"], validate=True)
            size = int.from_bytes(charsmap[:4], "little")
            if size % 4 or not 1024 <= size <= len(charsmap) - 4:
                raise UserError("its table of characters is damaged")
            charsmap[4 + size :].decode()


def plain_settings(settings: Mapping[str, Any]) -> dict[str, bool | int | str]:
    """The settings that are switches, numbers and words; those that name code or other files are left out."""
    out = ("auto_map", "name_or_path", "tokenizer_file", "vocab_file", "merges_file", "chat_template", *NAMED)
    return {name: each for name, each in settings.items() if isinstance(each, bool | int | str) and name not in out}


def write_pipeline(
    folder: Path, pipeline: Pipeline, named: Mapping[str, str], others: Sequence[str], settings: Mapping[str, Any]
) -> None:
    """Write tokenizer.json and what `transformers` reads beside it."""
    more = {"additional_special_tokens": list(others)} if others else {}
    write_json(folder / "tokenizer.json", pipeline)
    write_json(folder / "tokenizer_config.json", {**settings, **named, **more})
    write_json(folder / "special_tokens_map.json", {**named, **more})


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
