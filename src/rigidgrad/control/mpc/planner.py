"""Plans by a solver that takes whole problems, warm from the last plan shifted in time, or cold."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from rigidgrad.control.mpc.clock import Stopwatch
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.posture import Posture
from rigidgrad.control.pddp import Iterate

COLD = 20  # iterations of a plan without a warm start, at least
FURTHER = 5  # that a plan gets besides while its target does not accept it


class Planner:
    """Makes plans of `problem`, whose start, bounds and target a controller sets before. `period`
    is the seconds between two of them.
    """

    further = FURTHER  # iterations that the plan made last gets at most if it is not accepted
    prepares = False  # whether a part of the work can be done before the start is known

    def __init__(self, problem: LiveProblem, solver: Any, period: float):
        self.problem, self.solver = problem, solver
        self.posture = Posture(problem, period)
        layout = problem.programs.layout
        # of the gains, where the state is
        self.columns = np.array([layout.state(i) for i in range(layout.n)])
        self.gains = np.zeros((problem.steps, problem.system.nu, layout.columns))

    def reset(self) -> None:
        """Forgets what was learnt from plan to plan."""

    def rescale(self) -> None:
        """Costs have other weights."""

    def prepare(self, last: Plan, begin: float) -> bool:
        """Does what can be done for a plan from `begin` on before its start is measured; whether
        that succeeded.
        """
        return False

    def make(self, last: Plan | None, begin: float, watch: Stopwatch, prepared: bool) -> Iterate:
        """A plan from `begin` on, from the last one, or without a warm start where that is None.
        `prepared`: what `prepare` did is used.
        """
        p, solver = self.problem, self.solver
        if last is not None:
            x, u = np.empty_like(last.x), np.empty_like(last.u)
            last.shifted_into(last.phase(begin), x, u, self.gains, self.posture.tail(last))
            x[0] = p.start
            p.guess_states, p.guess = x, np.clip(u, *p.bounds)
        else:
            p.guess_states, p.guess = (
                None,
                np.clip(np.tile(self.posture.resting(p.start), (p.steps, 1)), *p.bounds),
            )
            if dataclasses.is_dataclass(solver) and getattr(solver, "iterations", COLD) < COLD:
                solver = dataclasses.replace(solver, iterations=COLD)  # type: ignore[type-var]
        watch.lap("shift")
        found = solver.solve(p)
        self.gains[:, :, self.columns] = found.gains
        watch.lap("iterate")
        return Iterate(found.x, found.u, self.gains, found.cost, found.iterations)

    def improve(self, deadline: float) -> Iterate | None:
        """The plan made last after one more iteration; None where there is none to take before a
        `deadline` of time.perf_counter.
        """
        return None

    def keep(self) -> None:
        """The plan made last is followed from now on."""
