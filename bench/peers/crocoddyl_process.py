"""Crocoddyl in a process and an environment of its own: its wheel needs exactly one version of
Pinocchio, and gives wrong physics with others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import build, environment

VERSIONS = {"crocoddyl": "3.2.1", "pin": "4.0.0"}
WORKER, GAITS = build.SOURCES / "crocoddyl_worker.py", build.SOURCES / "crocoddyl_gaits_worker.py"
URDF = (
    Path(__file__).resolve().parents[2] / "src" / "rigidgrad" / "model" / "robots" / "iiwa14.urdf"
)


def interpreter() -> str:
    return environment.interpreter("crocoddyl", VERSIONS)


class Crocoddyl(environment.Worker):
    """A running worker, on the caller's cores or on one `core`; it ends with this object."""

    def __init__(self, python: str, core: int | None = None, worker: Path = WORKER):
        super().__init__(python, worker, core)

    def open(self, task: dict[str, Any]) -> int:
        return self.ask("open", urdf=str(URDF), **task)["problem"]


class Gaits(Crocoddyl):
    """A worker with Crocoddyl's own gait problems."""

    def __init__(self, python: str, core: int | None = None):
        super().__init__(python, core, GAITS)

    def open(self, task: dict[str, Any]) -> int:
        return self.ask("open", **task)["problem"]
