"""The machine: processor, memory, devices, threads and allocator."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from regard.interface import UserError

MOST_THREADS = 1024
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "neon", "asimd")
PARENT = "REGARD_PARENT"  # environment variable: the id of the process that this one must not outlive

# Measured in a separate process: some virtual machines advertise bf16 units that fault when used.
_BF16_PROBE = """
import torch
from regard.machine import matmul_seconds
torch.set_num_threads(1)  # less affected by other programs
print(matmul_seconds(torch.float32, 512) / matmul_seconds(torch.bfloat16, 512))
"""


def end_with_parent() -> None:
    """On Linux, receive SIGTERM when the parent process that set PARENT ends, however it ends."""
    if sys.platform == "linux" and os.environ.get(PARENT) == str(os.getppid()):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def memory() -> float:
    """Return the peak memory of this process, in megabytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)


@cache
def probe_bf16() -> subprocess.Popen[str]:
    """Start the bf16 measurement in a child process; it takes seconds and runs in the background."""
    command = [sys.executable, "-P", "-c", _BF16_PROBE]  # -P: no modules from the current folder
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@cache
def bf16_gain() -> float:
    """Return how many times faster than float32 a bf16 matmul is on this machine; 0 where it does not run."""
    probe = probe_bf16()
    answer, _ = probe.communicate(timeout=120)
    return float(answer) if probe.returncode == 0 else 0.0


def amx_faults() -> bool:
    """Return whether the processor advertises AMX and faults when it is used, as on some virtual machines: products in
    bf16 and int8 would end the process."""
    return "amx_tile" in cpu_info() and bf16_gain() == 0


def matmul_seconds(kind: torch.dtype, width: int) -> float:
    """Return the shortest time of several products of two square matrices."""
    a, b = torch.randn(width, width, dtype=kind), torch.randn(width, width, dtype=kind)
    best = math.inf
    for _ in range(30):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return best


@cache
def matmul_gflops() -> float:
    """Return the peak speed of float32 matrix products on this machine."""
    width = 768
    return 2 * width**3 / matmul_seconds(torch.float32, width) / 1e9


@cache
def glibc() -> ctypes.CDLL | None:
    """Return the C library of this process where it is glibc, whose allocator the next functions are about."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def tune_allocator() -> None:
    """Keep freed memory: glibc otherwise returns it to the system and faults the pages of every large tensor again."""
    if libc := glibc():
        trim_threshold, top_pad, mmap_threshold = -1, -2, -3
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
        libc.mallopt(top_pad, 1 << 26)


def share_memory() -> None:
    """Let all threads allocate from two arenas: what each of many threads keeps for itself adds up. Call it before
    there are threads."""
    if libc := glibc():
        arena_max = -8
        libc.mallopt(arena_max, 2)


def release_memory() -> None:
    """Return freed memory to the system: between tensors of many sizes it otherwise lies in gaps that nothing fits."""
    if libc := glibc():
        libc.malloc_trim(0)


def use_threads(threads: int) -> None:
    if not 0 <= threads <= MOST_THREADS:
        raise UserError(f"threads = {threads} is not possible: give at most {MOST_THREADS}, or 0 for all cores.")
    if threads:
        torch.set_num_threads(threads)


def processes() -> int:
    """Return how many processes `torchrun` has started to train together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def devices() -> list[str]:
    """List the torch devices of this machine."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, there in present.items() if there]


def device(name: str) -> torch.device:
    """Return the torch device of that name, if this machine has it; each process that `torchrun` starts has its own."""
    if name not in devices():
        raise UserError(f"The device {name!r} is not available: choose one of {', '.join(devices())}.")
    return torch.device(name, int(os.environ.get("LOCAL_RANK", "0"))) if name == "cuda" else torch.device(name)


def cpu_info() -> str:
    """Read /proc/cpuinfo on Linux; "" elsewhere."""
    place = Path("/proc/cpuinfo")
    return place.read_text() if place.is_file() else ""


def cpu_name() -> str:
    named = (line.split(":", 1)[1].strip() for line in cpu_info().splitlines() if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def require(package: str, what: str) -> None:
    """Refuse what needs a package of the extra `export` that is not installed."""
    if find_spec(package) is None:
        remedy = 'install it with pip install "regard[export]"'
        raise UserError(f"{what} needs the package {package}, which is not installed: {remedy}.")


def facts() -> dict[str, str]:
    """Collect versions and hardware, for bug reports and for every run."""
    packages = ("regard", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu")
    present = set(cpu_info().split())
    return {
        **{name: package_version(name) for name in packages},
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": cpu_name(),
        "features": " ".join(feature for feature in CPU_FEATURES if feature in present),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "devices": " ".join(devices()),
    }
