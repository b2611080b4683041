"""Small but real tokenizer files of each family, trained offline on generated text in several scripts."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = """the of and a film was good bad watching watched watcher dog dogs house l'homme été hélas naïve café Straße
größer über señor mañana Œuvre don't isn't they'll well-known 3.5 1,000 42 2024 Москва собака быстро ελληνικά λόγος
हिन्दी भाषा 日本 語 中文 東京 한국 말 שלום سلام İstanbul ﬁne e\u0301te\u0301 ½ ① Ⅳ"""
WORDS = TEXT.split()
RARE = list("😀👩‍💻❤️\u0301\u0323\u0327ꙮ𝔘𝛀ﷺ\u1112\u1161\u11ab〆々ｶﾞ﷼ǅ") + [
    "\u00ad",
    "\u200b",
    "\ufeff",
    "\ufffd",
    "e\u0301",
]
SIGNS = list(".,;:!?()[]{}<>/\\|@#$%^&*-_=+~`'\"’“”«»—…") + ["``", "''", "...", "##", "▁", "Ġ", "</", "n't", "[", "M"]
SPACES = [
    " ",
    " ",
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\x00",
    "\x07",
    "\x1f",
    "\x85",
]


def texts(count: int, seed: int = 7) -> list[str]:
    """Texts of words, punctuation, accents, CJK, emoji, combining marks, control characters and odd white space."""
    choose = random.Random(seed)

    def part() -> str:
        kind = choose.random()
        if kind < 0.5:
            word = choose.choice(WORDS)
            return choose.choice([word, word, word.upper(), word.capitalize(), word[: choose.randint(1, len(word))]])
        if kind < 0.65:
            return choose.choice(SIGNS)
        if kind < 0.75:
            return choose.choice(RARE)
        if kind < 0.8:
            return chr(choose.choice([choose.randrange(0x20, 0x250), choose.randrange(0x300, 0xD800)]))
        return "".join(choose.choices("abcdefghijklmnopqrstuvwxyz", k=choose.randint(1, 12)))

    made = ["", " ", "  ", "\t\n", "a", "▁", " a b  c "]
    while len(made) < count:
        made.append("".join(part() + choose.choice([*SPACES, "", ""]) for _ in range(choose.randint(0, 12))))
    return made[:count]


def corpus() -> list[str]:
    choose = random.Random(3)
    return [" ".join(choose.choices([*WORDS, *WORDS, *".,;!?()[]", "M"], k=12)) for _ in range(400)]


def write(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    (folder / name).write_text(text, encoding="utf-8", newline="")


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]


def word_piece(folder: Path, kind: str, **how: Any) -> None:
    """vocab.txt, as of BERT, DistilBERT and ELECTRA."""
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=how.get("do_lower_case", True))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.train_from_iterator(
        corpus(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=BERT, show_progress=False)
    )
    ids = inner.get_vocab()
    write(folder, "vocab.txt", "".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__)))
    write(folder, "tokenizer_config.json", how)
    write(folder, "config.json", {"model_type": kind, "vocab_size": len(ids)})


def byte_pairs(folder: Path, kind: str, **how: Any) -> None:
    """vocab.json and merges.txt, as of GPT-2, RoBERTa and BART."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    specials = [] if kind == "gpt2" else ROBERTA
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(corpus(), trainer)
    ids = inner.get_vocab()
    ids["<|endoftext|>" if kind == "gpt2" else "<mask>"] = len(ids)
    merges = json.loads(inner.to_str())["model"]["merges"]
    write(folder, "vocab.json", ids)
    write(folder, "merges.txt", "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    write(folder, "tokenizer_config.json", how)
    start = {"decoder_start_token_id": 2} if kind == "bart" else {}
    write(folder, "config.json", {"model_type": kind, "vocab_size": len(ids)} | start)


def sentence_piece(path: Path, size: int, seed: int = 0, **how: Any) -> None:
    import sentencepiece

    path.parent.mkdir(parents=True, exist_ok=True)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()[seed:]),
        model_writer=made,
        vocab_size=size,
        **{"model_type": "unigram", "hard_vocab_limit": False, "character_coverage": 0.99, "minloglevel": 2} | how,
    )
    path.write_bytes(made.getvalue())


def t5(folder: Path) -> None:
    sentence_piece(folder / "spiece.model", 300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    write(folder, "tokenizer_config.json", {"extra_ids": 100})
    write(
        folder, "config.json", {"model_type": "t5", "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    )


def albert(folder: Path) -> None:
    sentence_piece(
        folder / "spiece.model",
        300,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        user_defined_symbols="(,),-,.,–,£,€",
    )
    write(folder, "tokenizer_config.json", {})
    write(folder, "config.json", {"model_type": "albert"})


def marian(folder: Path, *, apart: bool = False) -> None:
    """Two models and one vocabulary, which lacks some of their pieces; or two vocabularies."""
    import sentencepiece

    sides = {}
    for side, seed in (("source", 0), ("target", 200)):
        sentence_piece(folder / f"{side}.spm", 260 + seed // 4, seed, bos_id=-1)
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        sides[side] = [model.id_to_piece(i) for i in range(2, model.get_piece_size()) if i % 17 != 9]

    def ids(*pieces: str) -> dict[str, int]:
        kept = list(dict.fromkeys(["</s>", "<unk>", "▁", *pieces, ">>fra<<", "日", "<pad>"]))
        return {piece: i for i, piece in enumerate(kept)}

    source, target = (
        (ids(*sides["source"]), ids(*sides["target"])) if apart else [ids(*sides["source"], *sides["target"])] * 2
    )
    write(folder, "vocab.json", source)
    if apart:
        write(folder, "target_vocab.json", target)
    config = {"model_type": "marian", "vocab_size": len(source), "decoder_vocab_size": len(target)}
    write(folder, "config.json", config | {"decoder_start_token_id": source["<pad>"]})
    write(folder, "tokenizer_config.json", {"separate_vocabs": apart, "tokenizer_class": "MarianTokenizer"})


FAMILIES: dict[str, Any] = {
    "bert": lambda folder: word_piece(folder, "bert"),
    "bert-cased": lambda folder: word_piece(folder, "bert", do_lower_case=False, strip_accents=False),
    "distilbert": lambda folder: word_piece(folder, "distilbert", tokenize_chinese_chars=False),
    "electra": lambda folder: word_piece(folder, "electra", do_lower_case=True, strip_accents=False),
    "gpt2": lambda folder: byte_pairs(folder, "gpt2"),
    "roberta": lambda folder: byte_pairs(folder, "roberta", add_prefix_space=True),
    "bart": lambda folder: byte_pairs(folder, "bart"),
    "t5": t5,
    "albert": albert,
    "marian": marian,
    "marian-apart": lambda folder: marian(folder, apart=True),
}
