"""A run is a folder: config.toml, fields.json, model.safetensors (best checkpoint), last/ (to resume from), log.jsonl.

Weights are safetensors with a checksum; nothing here can execute code. A run may come from somebody else: its files
are regular files of a sensible size, never links, whether they are read or written (data/files.py).
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from regard.data.files import (
    LINK,
    append,
    make_folder,
    own_file,
    read_own,
    reason,
    replacing,
    write_atomically,
    writing,
)
from regard.interface import UserError

SMALL = 8 << 20  # most bytes of a recipe or of the facts about a run
LARGE = 1 << 30  # most bytes of a log
STEP = re.compile(rb"step (\d{1,15})\n")  # the first line of a sample
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL"}
DTYPES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
FORMAT = 2  # version of a run folder's files; other versions are refused
# temporary files that a killed process leaves: the name of a run's file between a dot and a number
UNFINISHED = re.compile(
    r"\.(?:config\.toml|fields\.json|environment\.json|(?:model|state|shortlist)\.safetensors"
    r"|(?:train|valid)(?:\.\w+\.(?:tokens|offsets)\.npy)?)\.\d+"
)


class Folder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.fields = self.path / "fields.json"
        self.best = self.path / "model.safetensors"
        self.last = self.path / "last" / "state.safetensors"
        self.log = self.path / "log.jsonl"
        self.samples = self.path / "samples.txt"
        self.environment = self.path / "environment.json"
        self.data = self.path / "data"
        self.shortlist = self.path / "shortlist.safetensors"  # what predict --shortlist learnt from the data
        self.examples = self.path / "examples"  # data given from Python
        self.tensorboard = self.path / "tensorboard"  # event files, if train.tensorboard

    def is_run(self) -> bool:
        """Return whether this is a run, and not a folder with a config.toml of something else."""
        return self.config.is_file() and (self.fields.is_file() or self.environment.is_file())

    def refuse_links(self) -> None:
        """Refuse a run whose recipe or inner folders are links, through which files elsewhere would be replaced."""
        for place in (self.config, self.last.parent, self.data, self.examples, self.tensorboard):
            if place.is_symlink():
                raise UserError(f"{place} cannot be used: {LINK}; put the file or folder itself there.")

    def must_exist(self) -> Folder:
        self.refuse_links()
        if self.config.is_file():
            return self
        path = self.path
        if path.is_file() and Folder(path.parent).is_run():
            raise UserError(f"{path} is a file of a run: give its folder, {path.parent}.")
        if path.is_file() and path.suffix == ".toml":
            raise UserError(
                f"{path} is a recipe, not a run: train it with `regard train {path}`, and give runs/{path.stem}."
            )
        what = "is not a run (it has no config.toml)" if path.exists() else "does not exist"
        raise UserError(
            f"The run {path} {what}: {self.near()}give the folder that `regard train` or `regard demo` wrote."
        )

    def near(self) -> str:
        """Which run may be meant: one that is inside, or one beside it or in runs/ with nearly the same name."""
        inside, *around = (
            {config.parent.name: config.parent for config in place.glob("*/config.toml")}
            for place in (self.path, Path("runs"), self.path.parent)
        )
        others = around[0] | around[1]
        close = sorted(inside) or difflib.get_close_matches(self.path.name, others, n=1)
        return f"did you mean {(others | inside)[close[0]]}? " if close else ""

    def sweep(self) -> None:
        """Remove the temporary files of killed processes; only the process that holds the lock may do this."""
        for place in (self.path, self.last.parent, self.data):
            for file in place.glob(".*"):
                if UNFINISHED.fullmatch(file.name):
                    with writing(file):
                        file.unlink()

    def facts(self) -> dict[str, Any]:
        """Read environment.json."""
        try:
            facts = json.loads(read_own(self.environment, most=SMALL))
            if not isinstance(facts, dict) or not isinstance(facts.get("data"), str):
                raise ValueError("the hash of the data is missing")
            if facts.get("precision") not in ("float32", "bfloat16"):
                raise ValueError("the precision is missing")
            if not isinstance(facts.get("new", []), list):
                raise ValueError("the names of new weights are not a list")
        except (ValueError, RecursionError, OSError) as problem:
            wrong = f"is damaged ({reason(problem)})"
            raise UserError(f"{self.environment} {wrong}: restore it, or start a new run in another folder.") from None
        return facts

    def changed(self, what: str, which: str, where: str = "in another folder") -> UserError:
        """Return the error for data or code that has changed since the run was started."""
        since = f"The {what} has changed since {self.path} was started"
        return UserError(f"{since} ({which}): restore it, or start a new run {where}.")

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        write_atomically(self.environment, json.dumps(facts, indent=2) + "\n", own=True)

    def forget_after(self, step: int) -> None:
        """Drop what was logged after this step, from which the run is resumed: it will be logged again."""
        log, samples = _lines(self.log), _lines(self.samples)
        logged: dict[int, bytes] = {}  # earlier versions may have logged a step twice
        for line in log:
            with contextlib.suppress(ValueError, OverflowError, RecursionError, TypeError, KeyError):
                logged[int(json.loads(line)["step"])] = line
        if log != (kept := [line for at, line in logged.items() if at <= step]):
            write_atomically(self.log, b"".join(kept), own=True)
        later = (at for at, line in enumerate(samples) if (found := STEP.match(line)) and int(found[1]) > step)
        if (first := next(later, None)) is not None:
            write_atomically(self.samples, b"".join(samples[:first]), own=True)

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """Lock the folder, so that one process at a time trains here; the system frees the lock when it ends."""
        self.refuse_links()
        with writing(self.path):
            make_folder(self.path)
            try:
                handle = self._locked(fcntl.LOCK_EX)
            except BlockingIOError:
                raise UserError(
                    f"Another process is training in {self.path}: wait for it, or choose another output folder."
                ) from None
        try:
            yield
        finally:
            os.close(handle)

    def in_use(self) -> bool:
        """Return whether a process writes to the folder, by trying to take the lock for an instant."""
        try:
            os.close(self._locked(fcntl.LOCK_SH))
        except BlockingIOError:
            return True
        except OSError:  # it cannot be opened
            pass
        return False

    def _locked(self, kind: int) -> int:
        """Lock the folder itself, which cannot be removed while there is anything in it, and return its descriptor.

        NFS does not lock folders: there, a file in the folder is locked.
        """
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                create = os.O_CREAT if kind == fcntl.LOCK_EX else 0
                file = os.open("lock", os.O_RDWR | os.O_NOFOLLOW | create, 0o666, dir_fd=handle)
                os.dup2(file, handle, inheritable=False)
                os.close(file)
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle


def _lines(path: Path) -> list[bytes]:
    """Read the lines of a log; where there is none that can be read, appending to it will say why."""
    try:
        return read_own(path, most=LARGE).splitlines(keepends=True)
    except OSError:
        return []


def of_another_version(recipe: Mapping[str, Any]) -> bool:
    """Return whether this is the recipe of a run (it names its folder) in another format."""
    return "folder" in recipe and recipe.get("format") != FORMAT


def refuse_another_version(recipe: Mapping[str, Any], folder: Path) -> None:
    if of_another_version(recipe):
        raise UserError(
            f"{folder} was trained by another version of regard (its format is {str(recipe.get('format', 1))[:40]}, "
            f"this version's is {FORMAT}): train it again from your own recipe, in another folder."
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Write tensors, with a JSON-able dictionary of facts as metadata, to one safetensors file of a run."""
    text = json.dumps(facts or {})
    write_safetensors(path, tensors, {"facts": text, "sha256": checksum(tensors, text)}, own=True)


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], *, own: bool = False
) -> None:
    """Write a safetensors file, one tensor after another, so that a mapping may make each when it is asked for.

    The same tensors are the same bytes, which safetensors' own writer does not promise: the header is the length of
    JSON, the JSON, and spaces up to a multiple of 8; then come the tensors, those with the widest numbers first.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    order = sorted((-(tensor := tensors[name]).element_size(), name, tensor.dtype, tensor.shape) for name in tensors)
    end = 0
    for width, name, dtype, shape in order:
        start, end = end, end - width * shape.numel()
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    written = json.dumps(header, separators=(",", ":")).encode()
    written += b" " * (-len(written) % 8)
    with replacing(path, own=own) as file:
        file.write(len(written).to_bytes(8, "little") + written)
        for _, name, _, _ in order:
            file.write(bytes_of(tensors[name]))


def bytes_of(tensor: Tensor) -> memoryview:
    view: memoryview = owned(tensor).reshape(-1).view(torch.uint8).numpy().data
    return view


def owned(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU and make it contiguous; PyTorch calls any single element contiguous."""
    tensor = tensor.detach().cpu()
    return tensor.contiguous() if tensor.numel() > 1 else tensor.clone(memory_format=torch.contiguous_format)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with refused(path):
        with safetensors.safe_open(str(own_file(path)), framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if not {"facts"} <= metadata.keys() <= {"facts", "sha256"}:
            raise ValueError("regard did not write it")
        if "sha256" in metadata and metadata["sha256"] != checksum(tensors, metadata["facts"]):
            raise ValueError("its checksum is wrong")
        facts = json.loads(metadata["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its metadata is not a dictionary")
        return tensors, facts


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a file, of which only the header is read."""
    with refused(path), safetensors.safe_open(str(own_file(path)), framework="pt", device="cpu") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Turn what is wrong with a file of weights into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"The weights {path} are missing: restore them, or train again in another folder.") from None
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError, RecursionError) as problem:
        wrong = f"cannot be read as weights ({reason(problem)})"
        raise UserError(f"{path} {wrong}: restore it, or train again in another folder.") from None


def checksum(tensors: Mapping[str, Tensor], facts: str) -> str:
    """Hash tensors and facts: safetensors itself does not notice a changed bit."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def append_log(path: Path, entry: Mapping[str, Any]) -> None:
    append(path, json.dumps(entry) + "\n")
