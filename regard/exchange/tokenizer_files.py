"""Tokenizers of Hugging Face folders, read from the files of each family.

tokenizer.json              a pipeline of the `tokenizers` library, whatever else is there
vocab.txt                   WordPiece (BERT, DistilBERT, ELECTRA)
vocab.json, merges.txt      byte-level BPE (GPT-2, RoBERTa, BART)
spiece.model                a unigram model (T5, ALBERT)
source.spm, target.spm, vocab.json    one unigram model for each side (Marian)

The files beside them (tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json) say which tokens
are special; what they leave out is as `transformers` has it for the family. Nothing in them is ever executed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner

from regard.data.files import read_limited, reason
from regard.data.imported_tokens import Imported, valid_ids
from regard.data.marian_tokens import Marian
from regard.data.pipelines import NAMED, Pipeline, library, plain_settings
from regard.data.sentencepiece import CONTROL, SPACE, USER, SentencePieceModel
from regard.interface import UserError

LARGEST = 128_000_000  # bytes of a file
BEFORE = "restore the folder's own file"

BERT = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
T5 = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
ROBERTA = T5 | {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
ALBERT = BERT | {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "[CLS]", "eos_token": "[SEP]"}
GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
# special tokens of a family, by the model_type of its config.json, where the folder does not name others
FAMILIES = {"bert": BERT, "distilbert": BERT, "electra": BERT, "roberta": ROBERTA, "bart": ROBERTA, "gpt2": GPT2}
FAMILIES |= {"albert": ALBERT, "t5": T5, "mt5": T5, "marian": T5}


def read_tokenizers(folder: Path) -> dict[str, Imported]:
    """The tokenizers of a folder, by side: one for both, except where each side has its own."""
    files = Files(folder)
    try:
        with library("be read"):
            if files.has("source.spm"):
                return {side: files.marian(side) for side in ("source", "target")}
            one = files.tokenizer()
            return {"source": one, "target": one}
    except UserError as problem:
        if str(problem).startswith(str(folder)):
            raise
        raise UserError(f"{folder} has no tokenizer that can be used: {problem}: {BEFORE}.") from None


class Files:
    """The files of a folder that concern its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config, self.how = self.optional("config.json"), self.optional("tokenizer_config.json")
        if "added_tokens_decoder" not in self.how:
            self.how = self.how | self.optional("special_tokens_map.json")

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def bytes(self, name: str) -> bytes:
        try:
            return read_limited(self.folder / name, most=LARGEST)
        except OSError as problem:
            raise UserError(f"{self.folder / name} cannot be read ({reason(problem)}): {BEFORE}.") from None

    def text(self, name: str) -> str:
        try:
            return self.bytes(name).decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{self.folder / name} is not UTF-8: {BEFORE}.") from None

    def json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads(self.text(name))
        except (ValueError, RecursionError):
            raise UserError(f"{self.folder / name} is not JSON: {BEFORE}.") from None
        if not isinstance(content, dict):
            raise UserError(f"{self.folder / name} is not a JSON object: {BEFORE}.")
        return content

    def optional(self, name: str) -> dict[str, Any]:
        return self.json(name) if self.has(name) else {}

    @property
    def family(self) -> dict[str, str]:
        """The special tokens of its kind of model, or else of its kind of files."""
        if self.how.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):  # those of no family
            return {}
        kind = self.config.get("model_type")
        guess = BERT if self.has("vocab.txt") else T5 if self.has("spiece.model") else {}
        return FAMILIES.get(kind, guess) if isinstance(kind, str) else guess

    def number(self, name: str) -> int | None:
        """A number of config.json that is not negative."""
        value = self.config.get(name)
        return value if type(value) is int and value >= 0 else None

    def switch(self, name: str, otherwise: bool) -> bool:
        value = self.how.get(name)
        return value if isinstance(value, bool) else otherwise

    def special_tokens(self) -> tuple[dict[str, str], list[AddedToken]]:
        """The named special tokens, and all tokens that the folder adds to its vocabulary, in their order."""
        tokens = {what: _added(self.how.get(what, self.family.get(what))) for what in NAMED}
        named = {what: token for what, token in tokens.items() if token is not None}
        listed = self.how.get("added_tokens_decoder")
        before = sorted(listed.items(), key=lambda item: _place(item[0])) if isinstance(listed, dict) else []
        legacy = self.optional("added_tokens.json")
        before += [(token, token) for token in sorted(legacy, key=lambda token: _place(legacy[token]))]
        more = [_added(token, special=None) for _, token in before]
        extra = self.how.get("extra_special_tokens") or self.how.get("additional_special_tokens") or []
        more += [*named.values(), *(_added(token) for token in (extra if isinstance(extra, list) else []))]
        return {what: token.content for what, token in named.items()}, [token for token in more if token is not None]

    def tokenizer(self) -> Imported:
        """The one tokenizer of a folder."""
        named, added = self.special_tokens()
        pipeline = self.json("tokenizer.json") if self.has("tokenizer.json") else self.built(named)
        ids = _add_tokens(pipeline, added)
        special = [each["content"] for each in pipeline["added_tokens"] if each["special"]]
        if not self.family:  # names that only config.json gives
            found = {what: self.number(f"{what}_id") for what in ("bos_token", "eos_token", "pad_token")}
            named = {what: token for token, i in ids.items() for what in found if i == found[what]} | named
        others = [token for token in special if token not in named.values()]
        rows, start = self.number("vocab_size"), self.number("decoder_start_token_id")
        unnamed = {} if self.family else {"tokenizer_class": "PreTrainedTokenizerFast"}
        return Imported(pipeline, named, others, rows=rows, start=start, settings=unnamed | plain_settings(self.how))

    def built(self, named: dict[str, str]) -> Pipeline:
        """The pipeline of a family's own files, as tokenizer.json would have it."""
        if self.has("vocab.txt"):
            inner = self.word_piece(named)
        elif self.has("merges.txt"):
            inner = self.byte_pairs()
        elif self.has("spiece.model"):
            inner = self.unigram()
        else:
            raise UserError("there is no tokenizer.json, vocab.txt, merges.txt, spiece.model or source.spm")
        self.finish(inner, named)
        pipeline: Pipeline = json.loads(inner.to_str())
        return pipeline

    def finish(self, inner: Inner, named: dict[str, str]) -> None:
        """Let `transformers` put the special tokens around a text that it puts there for this family."""
        cls, sep = named.get("cls_token"), named.get("sep_token")
        if cls is None or sep is None:
            cls, sep = None, named.get("eos_token") if self.has("spiece.model") else None
        places = {token: inner.token_to_id(token) for token in (cls, sep) if token is not None}
        used = [(token, i) for token, i in places.items() if i is not None]
        if not used or len(used) < len(places):
            return
        if cls is not None and self.has("merges.txt"):
            space = self.switch("add_prefix_space", False)
            inner.post_processor = processors.RobertaProcessing(used[1], used[0], True, space)
        else:
            pair = [f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"]
            pair = pair[cls is None :]
            inner.post_processor = processors.TemplateProcessing(single=pair[:-2], pair=pair, special_tokens=used)

    def word_piece(self, named: dict[str, str]) -> Inner:
        lines = self.text("vocab.txt").split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        vocabulary = {line.rstrip(): place for place, line in enumerate(lines)}
        inner = Inner(models.WordPiece(vocabulary, unk_token=named.get("unk_token", "[UNK]")))
        inner.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.switch("tokenize_chinese_chars", True),
            strip_accents=self.switch("strip_accents", False) if self.how.get("strip_accents") is not None else None,
            lowercase=self.switch("do_lower_case", True),
        )
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece(prefix="##")
        return inner

    def byte_pairs(self) -> Inner:
        lines = (line for line in self.text("merges.txt").split("\n") if not line.startswith("#version"))
        merges = [(left, right) for left, right in (line.split(" ") for line in lines if line.strip())]
        ids = valid_ids(self.json("vocab.json"))
        inner = Inner(models.BPE(ids, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self.switch("add_prefix_space", False))
        inner.decoder = decoders.ByteLevel()
        return inner

    def unigram(self) -> Inner:
        model, extra = self.spm("spiece.model"), 0
        steps: list[normalizers.Normalizer] = []
        if self.family == ALBERT:
            steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
            if not self.switch("keep_accents", False):
                steps += [normalizers.NFKD(), normalizers.StripAccents()]
            if self.switch("do_lower_case", True):
                steps.append(normalizers.Lowercase())
        else:
            extra = self.how.get("extra_ids", 100)
        if model.charsmap:
            steps.append(normalizers.Precompiled(model.charsmap))
        sentinels = [f"<extra_id_{i}>" for i in reversed(range(min(extra, 10_000)))]
        sentinels = [token for token in sentinels if token not in model.pieces]
        pieces = [*zip(model.pieces, model.scores, strict=True), *((token, 0.0) for token in sentinels)]
        inner = Inner(models.Unigram(pieces, unk_id=model.unknown, byte_fallback=False))
        inner.normalizer = normalizers.Sequence(steps)
        space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
        inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
        inner.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
        every = [*zip(model.pieces, model.kinds, strict=True), *((token, CONTROL) for token in sentinels)]
        added = [(token, kind == CONTROL) for token, kind in every if kind in (CONTROL, USER)]
        inner.add_tokens([AddedToken(token, normalized=False, special=special) for token, special in added])
        return inner

    def spm(self, name: str) -> SentencePieceModel:
        try:
            return SentencePieceModel.parse(self.bytes(name))
        except UserError as problem:
            raise UserError(f"{self.folder / name} cannot be used: {problem}: {BEFORE}.") from None

    def marian(self, side: str) -> Marian:
        """One side of Marian; the ids are shared, unless there is a vocabulary for the target."""
        apart = side == "target" and self.has("target_vocab.json")
        ids = valid_ids(self.json("target_vocab.json" if apart else "vocab.json"))
        named, _ = self.special_tokens()
        if missing := [token for token in named.values() if token not in ids]:
            raise UserError(f"its vocabulary lacks the token {missing[0]!r}")
        size = self.number("decoder_vocab_size") if apart else self.number("vocab_size")
        rows = max(ids.values()) + 1 if size is None else size
        return Marian(self.spm(f"{side}.spm"), ids, named, rows=rows, start=self.number("decoder_start_token_id"))


def _added(token: Any, special: bool | None = True) -> AddedToken | None:
    """A token as the files write it: a text, or a text and how it is looked for; None: nothing that is one."""
    if isinstance(token, str):
        return AddedToken(token, special=bool(special), normalized=not special)
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        return None
    flags = {key: bool(token.get(key, False)) for key in ("lstrip", "rstrip", "single_word", "normalized")}
    return AddedToken(token["content"], special=bool(token.get("special")) if special is None else special, **flags)


def _add_tokens(pipeline: Pipeline, added: list[AddedToken]) -> dict[str, int]:
    """Add the tokens that a pipeline does not list yet, and return the ids of all tokens."""
    vocabulary, listed = pipeline["model"]["vocab"], list(pipeline.get("added_tokens") or [])
    listing = isinstance(vocabulary, list)
    ids = {token: i for i, (token, _) in enumerate(vocabulary)} if listing else dict(vocabulary)
    ids |= {each["content"]: each["id"] for each in listed}
    known, after = {each["content"] for each in listed}, max(ids.values(), default=-1) + 1
    special = {token.content for token in added if token.special}
    for token in added:
        if (name := token.content) not in known:
            known.add(name)
            after += name not in ids
            about = {"id": ids.setdefault(name, after - 1), "content": name, "special": name in special}
            strips = {"lstrip": token.lstrip, "rstrip": token.rstrip}
            listed.append(about | strips | {"single_word": token.single_word, "normalized": token.normalized})
    pipeline["added_tokens"] = listed
    return ids


def _place(number: Any) -> int:
    try:
        return int(number)
    except (TypeError, ValueError):
        raise UserError("its added tokens are not numbered") from None
