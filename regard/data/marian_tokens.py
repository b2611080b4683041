"""The tokenizers of Marian: pieces by one sentencepiece model per side, ids by a vocabulary, which both may share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import decoders

from regard.data.files import write_atomically
from regard.data.imported_tokens import Imported, valid_ids, valid_names
from regard.data.pipelines import write_json
from regard.data.sentencepiece import SPACE, SentencePieceModel
from regard.interface import UNK


class Marian(Imported):
    """One side of a Marian model: pieces by a sentencepiece model, ids by a vocabulary, which both sides may share. A
    text may begin with a language code of the vocabulary, such as >>fra<<."""

    writes = "marian"

    def __init__(
        self, model: SentencePieceModel, ids: dict[str, int], named: dict[str, str], *, rows: int, start: int | None
    ) -> None:
        self.model, self.ids, self.named, self.others = model, ids, named, ()
        self.decoder_kind, self.decoder = "Metaspace", decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
        self._number(ids, rows, start)

    def _id(self, piece: str) -> int:
        return self.ours[self.ids[piece]] if piece in self.ids else UNK

    def _encode_all(self, texts: Sequence[str], *, continued: bool) -> list[list[int]]:
        return [[token for token, _, _ in self.spans(text)] for text in texts]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        behind = text.find("<<") + 2 if text.startswith(">>") and "<<" in text else 0
        spans = [(self._id(text[:behind]), 0, behind)] if behind else []
        normalised, origins = self.model.normalise(text[behind:])
        for start, end in self.model.split(normalised):
            piece = normalised[start:end]
            first = min(start + len(piece) - len(piece.lstrip(SPACE)), end - 1)  # without the space before it
            spans.append((self._id(piece), behind + origins[first][0], behind + origins[end - 1][1]))
        return spans

    def chunks(self, ids: Sequence[int], unknowns: Iterator[str]) -> list[str]:
        chunks = super().chunks(ids, unknowns)
        for place in range(len(chunks)):
            chunks[place] = chunks[place].lstrip()
            if chunks[place]:
                break
        for place in reversed(range(len(chunks))):
            chunks[place] = chunks[place].rstrip()
            if chunks[place]:
                break
        return chunks

    def to_json(self) -> dict[str, Any]:
        rest = {"rows": self.rows, "start": self.start_row, "ids": self.ids, "model": self.model.to_json()}
        return {"kind": self.kind, "named": self.named} | rest

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> Marian:
        named, rows, start = valid_names(saved)
        return cls(
            SentencePieceModel.from_json(saved.get("model")), valid_ids(saved.get("ids")), named, rows=rows, start=start
        )

    def write(self, folder: Path, target: Imported | None = None) -> None:
        """Write the files from which `transformers` reads the same tokenizer; `target`: that of the other side."""
        other = target if isinstance(target, Marian) else self
        apart = other.ids != self.ids
        write_atomically(folder / "source.spm", self.model.serialise())
        write_atomically(folder / "target.spm", other.model.serialise())
        write_json(folder / "vocab.json", self.ids)
        if apart:
            write_json(folder / "target_vocab.json", other.ids)
        how = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": apart, "clean_up_tokenization_spaces": False}
        write_json(folder / "tokenizer_config.json", how | self.named)
        write_json(folder / "special_tokens_map.json", self.named)
