"""A run is a folder: config.toml, fields.json, model.safetensors (best), last/ (all that resuming needs), log.jsonl.

Every file is written beside its place, flushed to the disk and renamed over it, so a reader, or a run that is killed,
finds the old file or the new one and never half of one. Weights are safetensors with a checksum; nothing here can
execute anything. What the system refuses, a full disk perhaps, becomes a sentence, and what was saved before is whole.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard.interface import UserError

FORMAT = 2  # of a run folder's files; another one is refused
AGAIN = "give the same command again"
ELSEWHERE = "or choose another place with -o"
REMEDIES = {  # what to do, and for which of the system's errors
    f"make room and {AGAIN}": (errno.ENOSPC, errno.EDQUOT),
    f"raise the limit on a file's size (ulimit -f) and {AGAIN}": (errno.EFBIG,),
    f"make its folder first, {ELSEWHERE}": (errno.ENOENT,),
    f"make it writable for you, {ELSEWHERE}": (errno.EROFS, errno.EACCES, errno.EPERM),
    f"move what is in its place, {ELSEWHERE}": (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP),
}
# what a process that was killed while it wrote leaves beside a run's file: its name between a dot and a number
UNFINISHED = re.compile(
    r"\.(?:config\.toml|fields\.json|environment\.json|(?:model|state)\.safetensors"
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
        self.tensorboard = self.path / "tensorboard"  # event files, if train.tensorboard
        self.lock = self.path / "lock"

    def begun(self) -> bool:
        """Whether this is a run, and not a folder that has a config.toml of something else."""
        return self.config.is_file() and (self.fields.is_file() or self.environment.is_file())

    def must_exist(self) -> Folder:
        if self.config.is_file():
            return self
        path = self.path
        if path.is_file() and Folder(path.parent).begun():
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
        """Remove what processes that were killed while they wrote have left; only for the one writer."""
        for place in (self.path, self.last.parent, self.data):
            for file in place.glob(".*"):
                if UNFINISHED.fullmatch(file.name):
                    with writing(file):
                        file.unlink()

    def facts(self) -> dict[str, Any]:
        """What environment.json says."""
        try:
            facts = json.loads(self.environment.read_bytes())
            if not isinstance(facts, dict) or not isinstance(facts.get("data"), str):
                raise ValueError("it does not say what the data was")
            if facts.get("precision") not in ("float32", "bfloat16"):
                raise ValueError("it does not say what the precision was")
        except (ValueError, RecursionError, OSError) as problem:
            wrong = f"is damaged ({reason(problem)})"
            raise UserError(f"{self.environment} {wrong}: restore it, or start anew with -o.") from None
        return facts

    def changed(self, what: str, which: str, anew: str = "-o") -> UserError:
        """The error for what must be as it was when the run was begun."""
        since = f"The {what} has changed since {self.path} was begun"
        return UserError(f"{since} ({which}): restore it, or start anew with {anew}.")

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        write_atomically(self.environment, json.dumps(facts, indent=2) + "\n")

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """One process at a time may train here; the system frees the lock however that process ends."""
        with contextlib.ExitStack() as stack:
            with writing(self.lock):
                make_folder(self.path)
                handle = stack.enter_context(self.lock.open("a"))
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UserError(
                        f"Another process is training in {self.path}: wait for it, or choose another folder with -o."
                    ) from None
            yield


def of_another_version(recipe: Mapping[str, Any]) -> bool:
    """Whether this is the recipe of a run, which says where its relative paths start, and not in this format."""
    return "folder" in recipe and recipe.get("format") != FORMAT


def refuse_another_version(recipe: Mapping[str, Any], folder: Path) -> None:
    if of_another_version(recipe):
        raise UserError(
            f"{folder} was trained by another version of regard (its format is {str(recipe.get('format', 1))[:40]}, "
            f"this version's is {FORMAT}): train it again from your own recipe, with another -o."
        )


def reason(problem: BaseException) -> str:
    """An error in a few words on one line."""
    words = isinstance(problem, OSError) and problem.strerror or str(problem) or type(problem).__name__
    return words.splitlines()[0]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where the system refuses to write, a sentence that says what to do."""
    try:
        yield
    except OSError as problem:
        remedies = (remedy for remedy, numbers in REMEDIES.items() if problem.errno in numbers)
        what = f"{reason(problem)}; {next(remedies, f'mend that and {AGAIN}')}"
        raise UserError(f"{path} cannot be written: {what}: what was saved before is whole.") from None


def make_folder(path: Path) -> None:
    """A folder and those that it is in; the entry of each new one is on the disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        flush_folder(path.parent)


def flush_file(file: IO[Any]) -> None:
    """To the disk, before the file takes its place."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_atomically(path: Path, content: bytes | str) -> None:
    """All or nothing, and on the disk when it returns."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, that takes its place when it is whole and on the disk. A link stays a link: what it points to
    is replaced."""
    with writing(path):
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():  # renaming would do away with a device
            raise FileExistsError(errno.EEXIST, "there is a folder or a device of that name")
        make_folder(place.parent)
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                yield file
                flush_file(file)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
        flush_folder(place.parent)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Tensors with a JSON-able dictionary of facts beside them, in one safetensors file."""
    plain = {name: owned(tensor) for name, tensor in tensors.items()}
    said = json.dumps(facts or {})
    write_atomically(path, safetensors.torch.save(plain, {"facts": said, "sha256": checksum(plain, said)}))


def owned(tensor: Tensor) -> Tensor:
    """On the CPU and contiguous in fact: of a single element PyTorch says so whatever its stride."""
    tensor = tensor.detach().cpu()
    return tensor.contiguous() if tensor.numel() > 1 else tensor.clone(memory_format=torch.contiguous_format)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(str(path), framework="pt", device="cpu") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if not {"facts"} <= said.keys() <= {"facts", "sha256"}:
            raise ValueError("regard did not write it")
        if "sha256" in said and said["sha256"] != checksum(tensors, said["facts"]):
            raise ValueError("its checksum is wrong")
        facts = json.loads(said["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its facts are no dictionary")
        return tensors, facts
    except FileNotFoundError:
        raise UserError(f"The weights {path} are missing: restore them, or train again with another -o.") from None
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError) as problem:
        wrong = f"cannot be read as weights ({reason(problem)})"
        raise UserError(f"{path} {wrong}: restore it, or train again with another -o.") from None


def checksum(tensors: Mapping[str, Tensor], facts: str) -> str:
    """Of all that a file says: safetensors itself does not notice a changed bit."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def append(path: Path, text: str) -> None:
    """Add lines with one write, on a line of their own whatever a writer that was killed or ran out of room left."""
    with writing(path):
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            rest = ("\n" * torn + text).encode()
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def append_log(path: Path, entry: Mapping[str, Any]) -> None:
    append(path, json.dumps(entry) + "\n")
