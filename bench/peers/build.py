"""Shared libraries compiled once and kept in bench/build, named by a hash of all that went into
them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cases import Batch, Missing, Task

FOLDER = Path(__file__).resolve().parents[1] / "build"
SOURCES = Path(__file__).resolve().parent
DOUBLES = ctypes.POINTER(ctypes.c_double)


def compilers(language: str) -> dict[str, str]:
    """The compilers that are here, by family: {"clang": "/usr/bin/clang++", "gcc": …}; `language`
    is "c" or "c++".
    """
    commands = (
        {"clang": "clang", "gcc": "gcc"} if language == "c" else {"clang": "clang++", "gcc": "g++"}
    )
    found = {
        family: path for family, command in commands.items() if (path := shutil.which(command))
    }
    if not found:
        raise Missing("no C compiler: apt-get install clang")
    return found


def version(command: str) -> str:
    return subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]


def shared_library(
    name: str, source: Path, compiler: str, flags: list[str], depends: str = "", slow: bool = False
) -> Path:
    """The library of `source`; `depends` is whatever else must change its name, such as a header's
    version.

    One that is `slow` to compile counts as missing where it is not there yet and
    RIGIDGRAD_BENCH_BUILD is "no".
    """
    text = "\0".join(
        [source.read_text(), compiler, version(compiler), *flags, depends, native_features()]
    )
    path = FOLDER / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.so"
    if not path.exists():
        if slow and os.environ.get("RIGIDGRAD_BENCH_BUILD") == "no":
            raise Missing(
                f"{name} is not compiled yet, which takes minutes: python bench/dynamics.py --quick"
            )
        FOLDER.mkdir(exist_ok=True)
        if sys.stderr.isatty():
            print(f"compiling {path.name} with {compiler} (once)", file=sys.stderr)
        unfinished = path.with_suffix(f".{os.getpid()}")
        command = [compiler, "-shared", "-fPIC", "-o", str(unfinished), str(source), *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
            raise RuntimeError(
                f"{' '.join(command)} failed:\n" + "\n".join(errors or [done.stderr[-2000:]])
            )
        unfinished.rename(path)
    return path


def native_features() -> str:
    """What -march=native depends on."""
    try:
        return next(
            line
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("flags", "Features"))
        )
    except (OSError, StopIteration):
        return ""


class CLoop:
    """A contender whose library exports `function(handle, repeats, count, q, v, x, out)` for each
    function: loops in C over the rows.
    """

    def __init__(
        self, name: str, library: ctypes.CDLL, handle: int | None, functions: tuple[str, ...]
    ):
        self.name = name
        self.functions = functions
        self._library = library
        self._handle = ctypes.c_void_p(handle)

    def offers(self, function: str, count: int) -> bool:
        return function in self.functions

    def bind(self, function: str, batch: Batch, outputs: tuple) -> Task:
        call = self._library[function]
        call.restype = None
        inputs = [array.ctypes.data_as(DOUBLES) for array in batch]
        out = (DOUBLES * len(outputs))(*(array.ctypes.data_as(DOUBLES) for array in outputs))
        count = ctypes.c_long(batch.count)

        def run(repeats: int, _alive=(batch, outputs)) -> None:
            call(self._handle, ctypes.c_long(repeats), count, *inputs, out)

        return Task(run, lambda: outputs)
