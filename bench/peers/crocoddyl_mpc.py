"""Crocoddyl in our controller's place for a solver: time, prediction, shift, feedback and fallbacks are rg.MPC's, the plans Crocoddyl's."""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np
from mpc_cases import Tracking

import rigidgrad as rg
from peers import build, crocoddyl_process
from peers.crocoddyl_process import URDF, Crocoddyl

WORKER = build.SOURCES / "crocoddyl_mpc_worker.py"
PHASES = ("python", "roll_out", "solve")  # goals, start and a roll-out in Python; the roll-out again in C++; the solver
COLD_ITERATIONS = 20


class Planner(Crocoddyl):
    """A running worker."""

    def __init__(self, python: str, task: Tracking, core: int | None = None):
        super().__init__(python, core, WORKER)
        self.ask("open", urdf=str(URDF), **task.as_data())

    def plan(self, iterations: int, **arrays: np.ndarray) -> dict[str, Any]:
        found = self.ask("plan", iterations=iterations, **{name: packed(array) for name, array in arrays.items()})
        return {name: unpacked(value) for name, value in found.items()}


class TheirMPC(rg.MPC):
    """`taken`: seconds of every plan, by PHASES: wall (plans, phases) and CPU time."""

    def __init__(self, planner: Planner, problem: rg.Problem, iterations: int = 1, **options: Any):
        self.iterations = iterations
        self._planner = planner
        self.taken: dict[str, list[list[float]]] = {"wall": [], "cpu": []}
        super().__init__(problem, self, **options)

    def solve(self, problem: rg.Problem) -> rg.Solution:
        raise NotImplementedError("plans are made by _solve_elsewhere, which knows the time")

    def _solve_elsewhere(self, begin: float, began: float, warm: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        p, last = self.problem, self._latest
        x, u = np.empty_like(last.x), np.empty_like(last.u)
        if warm:
            last.shifted_into(begin, x, u, self._gains, self._resting(last.x[-1]))
        else:
            x[:], u[:], self._gains[:] = p.start, self._resting(p.start), 0.0
        goals = p.p[:, p.programs.slices[0]["target"]]
        iterations = self.iterations if warm else max(COLD_ITERATIONS, self.iterations)
        found = self._planner.plan(iterations, start=p.start, goals=goals, x=x, u=u, gains=self._gains[:, :, last.columns])
        if warm:
            for kind, times in self.taken.items():
                times.append(found[kind])
        self.seconds["iterate"] = time.perf_counter() - began
        return found["x"], found["u"], found["gains"], found["cost"], found["iterations"]


def packed(array: np.ndarray) -> dict[str, Any]:
    return {"shape": array.shape, "data": base64.b64encode(np.ascontiguousarray(array, dtype=float).tobytes()).decode()}


def unpacked(value: Any) -> Any:
    if isinstance(value, dict) and "data" in value:
        return np.frombuffer(base64.b64decode(value["data"])).reshape(value["shape"])
    return value


def interpreter() -> str:
    return crocoddyl_process.interpreter()
