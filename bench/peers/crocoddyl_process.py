"""Crocoddyl in a process and an environment of its own: its wheel needs exactly one version of Pinocchio, and gives wrong physics with others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cases import Missing

from peers import build

VERSIONS = {"crocoddyl": "3.2.1", "pin": "4.0.0"}
ENVIRONMENT = build.FOLDER / "crocoddyl"
WORKER = build.SOURCES / "crocoddyl_worker.py"
URDF = Path(__file__).resolve().parents[2] / "src" / "rigidgrad" / "model" / "robots" / "iiwa14.urdf"


def interpreter() -> str:
    """A Python with these versions: that of RIGIDGRAD_BENCH_CROCODDYL, or of bench/build/crocoddyl, which is made if need be."""
    given = os.environ.get("RIGIDGRAD_BENCH_CROCODDYL")
    python = given or str(ENVIRONMENT / "bin" / "python")
    if versions(python) != VERSIONS and not given:
        _install(python)
    found = versions(python)
    if found != VERSIONS:
        raise Missing(
            f"{python} has {found}; Crocoddyl's results are right with {VERSIONS} only. Name another in RIGIDGRAD_BENCH_CROCODDYL, or unset it, remove {os.path.relpath(ENVIRONMENT)} and run again"
        )
    return python


def versions(python: str) -> dict[str, str]:
    code = f"import importlib.metadata as m; print(*(m.version(p) for p in {tuple(VERSIONS)!r}))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return {}
    return {} if done.returncode else dict(zip(VERSIONS, done.stdout.split(), strict=True))


def _install(python: str) -> None:
    packages = [f"{name}=={version}" for name, version in VERSIONS.items()]
    if sys.stderr.isatty():
        print(f"installing {' '.join(packages)} into {os.path.relpath(ENVIRONMENT)} (once)", file=sys.stderr)
    for command in ([sys.executable, "-m", "venv", str(ENVIRONMENT)], [python, "-m", "pip", "install", "--quiet", *packages]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


class Crocoddyl:
    """A running worker, on the caller's cores or on one `core`; it ends with this object."""

    def __init__(self, python: str, core: int | None = None, worker: Path = WORKER):
        command = [python, str(worker), *([str(core)] if core is not None else [])]
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | single)

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Crocoddyl process ended with code {self._process.wait()}")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def open(self, task: dict[str, Any]) -> int:
        return self.ask("open", urdf=str(URDF), **task)["problem"]

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Crocoddyl:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
