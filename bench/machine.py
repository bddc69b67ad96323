"""The machine and the versions that a result belongs to."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from cases import Missing
from peers import build

FEATURES = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "asimd", "sve")
PACKAGES = ("rigidgrad", "numpy", "llvmlite", "pin", "mujoco")


def pin_to(core: int | None) -> None:
    """This process, and the threads it starts from now on, on one core; None gives all of them
    back.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1) if core is None else {core})


def describe(peers: dict[str, str]) -> dict:
    """`peers` are versions that live elsewhere than in this environment."""
    cpu = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            cpu.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    return {
        "cpu": cpu.get("model name") or platform.processor(),
        "family": cpu.get("cpu family"),
        "model": cpu.get("model"),
        "features": [name for name in FEATURES if name in flags],
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(
            [Path(sys.executable).name, f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]
        ),
        "versions": versions() | peers,
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    with contextlib.suppress(Missing):
        found |= {
            family: build.version(command) for family, command in build.compilers("c++").items()
        }
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "describe", "--always", "--dirty"]
        found["commit"] = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip()
    return found


def fma_peak() -> dict[str, float]:
    """GFLOP/s of one core, by dtype: the best of all vector widths; empty without a compiler."""
    try:
        compiler = next(iter(build.compilers("c").values()))
    except Missing:
        return {}
    flags = ["-O2", "-march=native", "-ffp-contract=fast"]
    library = ctypes.CDLL(
        str(build.shared_library("fma-peak", build.SOURCES / "fma_peak.c", compiler, flags))
    )
    peaks = {}
    for dtype in ("float64", "float32"):
        best = 0.0
        for width in (16, 32, 64):
            run, flops = library[f"{dtype}_{width}"], library[f"{dtype}_{width}_flops"]()
            for _ in range(10):
                start = time.perf_counter()
                run(ctypes.c_long(400_000))
                best = max(best, flops * 400_000 / (time.perf_counter() - start) / 1e9)
        peaks[dtype] = best
    return peaks
