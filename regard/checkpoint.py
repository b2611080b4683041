"""A run is a folder: config.toml, tokenizer.json, model.safetensors (best), last/ (all that resuming needs), log.jsonl.

Every file is written beside its place, flushed to the disk and renamed over it, so a reader, or a run that is killed,
finds the old file or the new one and never half of one. Weights are safetensors; nothing here can execute anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
from torch import Tensor

from regard.interface import UserError


class Folder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.tokenizer = self.path / "tokenizer.json"
        self.best = self.path / "model.safetensors"
        self.last = self.path / "last" / "state.safetensors"
        self.log = self.path / "log.jsonl"
        self.samples = self.path / "samples.txt"
        self.environment = self.path / "environment.json"
        self.data = self.path / "data"
        self.lock = self.path / "lock"

    def must_exist(self) -> Folder:
        if not self.config.is_file():
            what = "is not a run (it has no config.toml)" if self.path.exists() else "does not exist"
            raise UserError(f"The run {self.path} {what}: give the folder that `regard train` or `regard demo` wrote.")
        return self

    def sweep(self) -> None:
        """Remove what processes that were killed while they wrote have left; only for the one writer."""
        for place in (self.path, self.last.parent, self.data):
            for file in place.glob(".*"):
                if file.suffix[1:].isdecimal():
                    file.unlink()

    def facts(self) -> dict[str, Any]:
        """What environment.json says."""
        try:
            facts = json.loads(self.environment.read_bytes())
            if not {"data", "precision"} <= facts.keys():
                raise ValueError("data or precision is missing")
        except (ValueError, AttributeError, OSError) as problem:
            raise UserError(f"{self.environment} is damaged ({problem}): restore it, or start anew with -o.") from None
        return cast(dict[str, Any], facts)

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """One process at a time may train here; the system frees the lock however that process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"Another process is training in {self.path}: wait for it, or choose another folder with -o."
                ) from None
            yield


def write_atomically(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Tensors with a JSON-able dictionary of facts beside them, in one safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(plain, {"facts": json.dumps(facts or {})}))


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(str(path), framework="pt", device=device) as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise UserError(f"The weights {path} are missing: train the run again.") from None
    except (safetensors.SafetensorError, OSError, ValueError) as problem:
        reason = str(problem).splitlines()[0]
        raise UserError(f"{path} cannot be read as safetensors ({reason}): restore it or train again.") from None


def append_log(path: Path, entry: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
