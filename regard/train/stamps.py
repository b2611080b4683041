"""What encoded data was made from, and whether it has changed: sizes, times of the last change and hashes of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.checkpoint import SMALL, Folder
from regard.config import counted, values_of
from regard.data.files import own_file, read_own, write_atomically
from regard.data.text import content_hash
from regard.interface import UserError
from regard.recipe import Recipe

Stamp = list[Any]  # size, time of the last change and hash of a file
ARRAYS = ("tokens", "offsets")  # the two files of a side


def record_file(data: Path) -> Path:
    return data / "encoding.json"


def settings_of(recipe: Recipe) -> str:
    """A hash of the settings that decide how the data is encoded."""
    data = {key: value for key, value in values_of(recipe.data).items() if key not in recipe.data.FILES}
    return hash_of(
        [recipe.task.name, recipe.data_name, data, values_of(recipe.tokens), recipe.train.from_, recipe.train.parts]
    )


def hash_of(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(recipe: Recipe, data: Path) -> str:
    """Changes when the data changes. Where there are several files, one is not read again if it has the size, and the
    time of the last change, with which it was encoded."""
    if len(recipe.data.parts(recipe.folder)) == 1:
        return recipe.data.fingerprint(recipe.folder)
    return " ".join(contents(stamps(recipe, read_json(record_file(data)))))


def refuse_changed_data(recipe: Recipe, folder: Folder, before: str, now: str) -> None:
    """Refuse data that has changed since the run was started, by its fingerprints, and name the files."""
    if before != now:
        files = [str(file) for file in recipe.data.files(recipe.folder).values()]
        each = zip(files, before.split(), now.split(), strict=False)
        changed = ", ".join(file for file, was, new in each if was != new) or "what the recipe describes"
        if len(before.split()) != len(now.split()):
            changed = f"it was {counted(len(before.split()), 'file')}, and is {len(now.split())}"
        raise folder.changed("data", changed)


def stamps(recipe: Recipe, record: dict[str, Any]) -> dict[str, Stamp]:
    """By path, size, time of the last change and hash of each file of the data."""
    known, found = stamps_of(record), {}
    for file in recipe.data.files(recipe.folder).values():
        stat = file.stat()
        before = known.get(str(file))
        same = before is not None and before[:2] == [stat.st_size, stat.st_mtime_ns]
        found[str(file)] = before if before and same else stamp_of(file)
    return found


def stamps_of(record: dict[str, Any]) -> dict[str, Stamp]:
    sources = record.get("sources")
    return sources if isinstance(sources, dict) and all(map(is_stamp, sources.values())) else {}


def is_stamp(value: Any) -> bool:
    return isinstance(value, list) and [type(each) for each in value] == [int, int, str]


def stamp_of(file: Path) -> Stamp:
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, _hashed(file, stat.st_size, stat.st_mtime_ns)]


@lru_cache(maxsize=1 << 16)  # a session needs it several times
def _hashed(file: Path, size: int, changed: int) -> str:
    return content_hash(file)


def unchanged(file: Path, stamp: Any) -> bool:
    """Whether a file of a run is as it was written: of the same size and time, or else of the same content."""
    try:
        now = own_file(file).stat()
        return is_stamp(stamp) and (
            stamp[:2] == [now.st_size, now.st_mtime_ns] or (stamp[0] == now.st_size and stamp[2] == content_hash(file))
        )
    except (OSError, UserError):
        return False


def read_json(path: Path) -> dict[str, Any]:
    """A small file of JSON in a run; {} where it cannot be read."""
    try:
        found = json.loads(read_own(path, most=SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def training_files(recipe: Recipe) -> list[Path]:
    return [file for key, file in recipe.data.files(recipe.folder).items() if not key.startswith("valid")]


def contents(sources: Mapping[str, Stamp]) -> list[str]:
    """The hashes of files."""
    return [stamp[2] for stamp in sources.values()]


def write_manifest(data: Path, name: str, key: str, sides: Iterable[str], left_out: Mapping[str, int]) -> None:
    """Write beside encoded files what they were made from; without this file they do not count. `left_out`: how many
    examples of each split."""
    paths = [data / f"{side}.{array}.npy" for side in sides for array in ARRAYS]
    found = {"key": key, "left_out": left_out, "files": {path.name: stamp_of(own_file(path)) for path in paths}}
    write_atomically(data / name, json.dumps(found), own=True)


def read_manifest(data: Path, name: str, key: str, sides: Sequence[str]) -> dict[str, int] | None:
    """How many examples of each split were left out of these files; None where they are to be written again."""
    found = read_json(data / name)
    files, left_out = found.get("files"), found.get("left_out")
    if found.get("key") != key or not isinstance(files, dict) or not isinstance(left_out, dict):
        return None
    if files.keys() != {f"{side}.{array}.npy" for side in sides for array in ARRAYS}:
        return None
    if not all(type(count) is int for count in left_out.values()):
        return None
    return left_out if all(unchanged(data / file, stamp) for file, stamp in files.items()) else None
