"""The peers. Each module offers what it needs once (libraries, an interpreter) and
`contenders(subject, that)`; what is absent is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cases import Contender, Missing, Subject

from peers import casadi_c, mujoco_c, pinocchio_cpp

PEERS: dict[str, tuple[Callable[[], Any], Callable[[Subject, Any], list]]] = {
    "pinocchio": (pinocchio_cpp.libraries, pinocchio_cpp.contenders),
    "mujoco": (mujoco_c.library, mujoco_c.contenders),
    "casadi": (casadi_c.interpreter, casadi_c.contenders),
}


class Peers:
    """Those of the asked-for peers that are on this machine; `missing` tells how to get the
    others.
    """

    def __init__(self, names: list[str]):
        self.missing: dict[str, str] = {}
        self._found: dict[str, Any] = {}
        for name in names:
            try:
                self._found[name] = PEERS[name][0]()
            except Missing as absent:
                self.missing[name] = str(absent)

    @property
    def versions(self) -> dict[str, str]:
        return casadi_c.versions(self._found["casadi"]) if "casadi" in self._found else {}

    def contenders(self, subject: Subject) -> list[Contender]:
        return [
            contender
            for name, found in self._found.items()
            for contender in PEERS[name][1](subject, found)
        ]
