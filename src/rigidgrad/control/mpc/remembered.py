"""Iterations of parallel DDP for problems with a cost of the control's rate: what goes in and comes
out has the robot's states, and the run knows the control of the step before.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rigidgrad.control.hidden import check_solver
from rigidgrad.control.memory import remembering, with_controls
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.pddp import PDDP, Iterate, Run


class Remembered:
    """What `Run` offers a controller; numbers of `problem`, with its `previous` control, are read
    at each start and whenever it is followed. Gains are those of the robot's state.
    """

    def __init__(self, problem: LiveProblem, options: PDDP):
        check_solver(options, problem)
        own = problem.private_copy()
        assert isinstance(own, LiveProblem)
        self.problem = own
        self._run = Run(remembering(own), options)
        s, steps = own.system, own.steps
        outer, inner = own.programs.layout, self._run.problem.programs.layout
        self._columns = np.array([outer.state(i) for i in range(s.ndx)])
        self._inner_columns = np.array([inner.state(i) for i in range(s.ndx)])
        self._x, self._u, self._gains = (
            np.zeros((steps + 1, s.nx)),
            np.zeros((steps, s.nu)),
            np.zeros((steps, s.nu, outer.columns)),
        )

    def forget(self) -> None:
        self._run.forget()

    def warm_start(self, write: Callable[[np.ndarray, np.ndarray, np.ndarray], None]) -> bool:
        self._read()

        def write_all(x: np.ndarray, u: np.ndarray, gains: np.ndarray) -> None:
            write(self._x, self._u, self._gains)
            before = self._run.problem.start[self._x.shape[1] :]
            x[:], u[:] = with_controls(self._x, self._u, before, self.problem.h), self._u
            gains[:] = 0.0
            gains[:, :, self._inner_columns] = self._gains[:, :, self._columns]

        return self._run.warm_start(write_all)

    def cold_start(self, x: np.ndarray, u: np.ndarray, K: np.ndarray) -> bool:
        self._read()
        return self._run.cold_start(
            np.concatenate([x, u]), u, np.concatenate([K, np.zeros((len(u), len(u)))], axis=1)
        )

    def follow(self) -> bool:
        self._read()
        return self._run.follow()

    def count_from(self, iterations: int) -> None:
        self._run.count_from(iterations)

    def linearize(self) -> None:
        self._run.linearize()

    def iterate(self, most: int, deadline: float = math.inf, linearized: bool = False) -> str:
        return self._run.iterate(most, deadline, linearized)

    def result(self) -> Iterate:
        found = self._run.result()
        self._gains[:, :, self._columns] = found.gains[:, :, self._inner_columns]
        return Iterate(
            found.x[:, : self._x.shape[1]], found.u, self._gains, found.J, found.iterations
        )

    def _read(self) -> None:
        self._run.problem.copy_numbers(remembering(self.problem))
