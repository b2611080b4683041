"""Tensors in safetensors files, with a checksum: the weights of a run."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from regard.config import UserError
from regard.data.files import own_file, reason, replacing

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL"}
DTYPES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}


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
