"""C++ compiled once for all workers and, in pytest's cache, from run to run: a library's name is a
hash of its text, the shim, the compiler and its options.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
CXX = shutil.which("g++") or shutil.which("clang++")
FOLDER = "RIGIDGRAD_TEST_BUILDS"  # conftest.py sets it
_OPTIONS = ("-std=c++17", "-fno-math-errno", "-ffp-contract=off", "-w", "-shared", "-fPIC")


@cache
def _surroundings() -> str:
    said = subprocess.run([str(CXX), "--version"], capture_output=True, text=True, check=True)
    headers = [path.read_text() for path in sorted(HERE.glob("*.h"))]
    return "\n".join([said.stdout, *_OPTIONS, *headers])


def library(text: str, effort: str) -> Path:
    """The shared library of a text, compiled at this effort, -O0 to -O3."""
    folder = Path(os.environ[FOLDER])
    key = hashlib.sha256(f"{_surroundings()}\n{effort}\n{text}".encode()).hexdigest()[:32]
    made = folder / f"{key}.so"
    if made.exists():
        os.utime(made)  # it is young again
        return made
    with tempfile.TemporaryDirectory(dir=folder) as place:
        source, fresh = Path(place, "kernels.cpp"), Path(place, "kernels.so")
        source.write_text(text)
        subprocess.run([str(CXX), *_OPTIONS, effort, "-o", fresh, source], check=True)
        fresh.replace(made)  # whole, or not there
    return made
