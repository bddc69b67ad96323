"""Interpreters with packages that must not share an environment with ours, and workers that run in
them: one line of JSON asks, one answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cases import Missing

from peers import build


def interpreter(name: str, wanted: dict[str, str]) -> str:
    """A Python with these versions: that of RIGIDGRAD_BENCH_<NAME>, or of bench/build/<name>, which
    is made if need be.
    """
    variable, folder = f"RIGIDGRAD_BENCH_{name.upper()}", build.FOLDER / name
    given = os.environ.get(variable)
    python = given or str(folder / "bin" / "python")
    if versions(python, wanted) != wanted and not given:
        _install(folder, python, wanted)
    found = versions(python, wanted)
    if found != wanted:
        raise Missing(
            f"{python} has {found}; what is measured belongs to {wanted}. Name another in"
            f" {variable}, or unset it, remove {os.path.relpath(folder)} and run again"
        )
    return python


def versions(python: str, wanted: dict[str, str]) -> dict[str, str]:
    code = f"import importlib.metadata as m; print(*(m.version(p) for p in {tuple(wanted)!r}))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return {}
    return {} if done.returncode else dict(zip(wanted, done.stdout.split(), strict=True))


def _install(folder: Path, python: str, wanted: dict[str, str]) -> None:
    packages = [f"{name}=={version}" for name, version in wanted.items()]
    if sys.stderr.isatty():
        print(
            f"installing {' '.join(packages)} into {os.path.relpath(folder)} (once)",
            file=sys.stderr,
        )
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--quiet", *packages],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def packages(python: str) -> str:
    """The folder of an interpreter's packages, for those that may share ours."""
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


class Worker:
    """A running worker, on the caller's cores or on one `core`; it ends with this object."""

    def __init__(
        self,
        python: str,
        script: Path,
        core: int | None = None,
        environment: dict[str, str] | None = None,
    ):
        command = [python, str(script), *([str(core)] if core is not None else [])]
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | single | (environment or {}),
        )

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with code {self._process.wait()}")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
