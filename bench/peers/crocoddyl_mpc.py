"""Crocoddyl in our controller's place for a solver: time, prediction, shift, feedback and fallbacks
are rg.MPC's, the plans Crocoddyl's.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from mpc_cases import Tracking

import rigidgrad as rg
from peers import build, crocoddyl_process
from peers.crocoddyl_process import URDF, Crocoddyl
from rigidgrad.control.mpc import planner
from rigidgrad.control.mpc.clock import Stopwatch
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.pddp import Iterate

WORKER = build.SOURCES / "crocoddyl_mpc_worker.py"
# goals, start and a roll-out in Python; the roll-out again in C++; the solver
PHASES = ("python", "roll_out", "solve")
COLD_ITERATIONS = 20


class Planner(Crocoddyl):
    """A running worker."""

    def __init__(self, python: str, task: Tracking, core: int | None = None):
        super().__init__(python, core, WORKER)
        self.ask("open", urdf=str(URDF), **task.as_data())

    def plan(self, iterations: int, **arrays: np.ndarray) -> dict[str, Any]:
        found = self.ask(
            "plan", iterations=iterations, **{name: packed(array) for name, array in arrays.items()}
        )
        return {name: unpacked(value) for name, value in found.items()}


class TheirPlans(planner.Planner):
    """`taken`: seconds of every plan, by PHASES: wall (plans, phases) and CPU time."""

    def __init__(self, worker: Planner, problem: LiveProblem, period: float, iterations: int):
        super().__init__(problem, None, period)
        self.worker, self.iterations = worker, iterations
        self.taken: dict[str, list[list[float]]] = {"wall": [], "cpu": []}

    def make(self, last: Plan | None, begin: float, watch: Stopwatch, prepared: bool) -> Iterate:
        p = self.problem
        x, u = np.empty((p.steps + 1, p.system.nx)), np.empty((p.steps, p.system.nu))
        if last is not None:
            last.shifted_into(begin, x, u, self.gains, self.posture.resting(last.x[-1]))
        else:
            x[:], u[:], self.gains[:] = p.start, self.posture.resting(p.start), 0.0
        goals = p.p[:, p.programs.slices[0]["target"]]
        iterations = self.iterations if last is not None else max(COLD_ITERATIONS, self.iterations)
        found = self.worker.plan(
            iterations, start=p.start, goals=goals, x=x, u=u, gains=self.gains[:, :, self.columns]
        )
        if last is not None:
            for kind, times in self.taken.items():
                times.append(found[kind])
        self.gains[:, :, self.columns] = found["gains"]
        watch.stop("iterate")
        return Iterate(found["x"], found["u"], self.gains, found["cost"], found["iterations"])


class TheirMPC(rg.MPC):
    """Everything but the plans is ours; `taken` is that of `TheirPlans`."""

    def __init__(self, worker: Planner, problem: rg.Problem, iterations: int = 1, **options: Any):
        super().__init__(problem, rg.Direct(), **options)
        self._planner = plans = TheirPlans(worker, self.problem, self.period, iterations)
        self.taken = plans.taken


def packed(array: np.ndarray) -> dict[str, Any]:
    return {
        "shape": array.shape,
        "data": base64.b64encode(np.ascontiguousarray(array, dtype=float).tobytes()).decode(),
    }


def unpacked(value: Any) -> Any:
    if isinstance(value, dict) and "data" in value:
        return np.frombuffer(base64.b64decode(value["data"])).reshape(value["shape"])
    return value


def interpreter() -> str:
    return crocoddyl_process.interpreter()
