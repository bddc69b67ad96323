"""From what is measured to the state now: checked, held against what is possible, and brought
forward by the model.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from rigidgrad.control.mpc.clock import HUGE, ROUNDING
from rigidgrad.control.mpc.gate import Gate
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.system import CustomSystem
from rigidgrad.errors import InputError

_STEP = 0.002  # seconds of a simulated step
_OLDEST = 0.2  # seconds; what was measured longer ago is missing


class Missing(Exception):
    """There is no measurement."""


class Outlier(Exception):
    """A measurement that cannot be true."""


class Measured:
    """Remembers the controls given and the last state that was true; `jumped` where the last one
    was believed against all before.
    """

    def __init__(self, problem: LiveProblem):
        self.problem = problem
        self.discrete = isinstance(problem.system, CustomSystem) and problem.system.discrete
        self._gate = Gate(problem, self.forward, self.simulate)
        self.reset()

    def reset(self) -> None:
        self._given: deque[tuple[float, np.ndarray]] = deque()  # controls, and since when
        self.cancelled: Any = 0.0  # what a disturbance observer takes off every control
        self._gate.reset()

    def shift(self, seconds: float) -> None:
        """The clock was moved."""
        self._given = deque((begin + seconds, u) for begin, u in self._given)
        self._gate.shift(seconds)

    @property
    def jumped(self) -> bool:
        return self._gate.jumped

    def remember(self, t: float, u: np.ndarray) -> None:
        """The control that acts from t on."""
        self._given.append((t, u))
        while len(self._given) > 1 and self._given[1][0] < t - _OLDEST:
            self._given.popleft()

    def state(
        self,
        x: Any,
        t: float,
        measured_at: Any,
        u: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray],
    ) -> np.ndarray:
        """The state now, from one that was measured at a time; u acts, within the bounds (nu,) of
        now. An exception says why there is none.
        """
        if x is None:
            raise Missing
        state = x.copy() if type(x) is np.ndarray and x.dtype == np.float64 else _numbers(x)
        nx = self.problem.system.nx
        if state.shape != (nx,):
            raise InputError(f"the state has shape {state.shape}; expected ({nx},)")
        seen = t if measured_at is None else min(float(measured_at), t)
        if not t - seen <= _OLDEST:
            raise InputError(
                f"the state was measured at {measured_at!r}, which is not within {_OLDEST:g} s of"
                " the time"
            )
        if not self._gate.passes(state, seen):
            if not float(np.abs(state).max()) < HUGE:
                raise InputError("the measured state holds NaN, infinity or numbers beyond 1e12")
            if not self._gate.admits(state, seen, u, bounds):
                raise Outlier
        if seen < t - ROUNDING:
            with np.errstate(all="ignore"):
                state = self.forward(state, seen, t)
            if not float(np.abs(state).max()) < HUGE:
                raise InputError(
                    f"the state measured at {seen:g} s leads to numbers that are not finite"
                )
        return state

    def forward(self, x: np.ndarray, since: float, t: float) -> np.ndarray:
        """The state at a time, from one at an earlier time, under the controls given since."""
        if not self._given:
            return x
        parts: list[
            tuple[np.ndarray, float]
        ] = []  # controls and how long they acted, the last first
        end = t
        for begin, u in reversed(self._given):
            if begin < end:
                parts.append((u, end - max(begin, since)))
                end = begin
            if begin <= since:
                break
        for u, seconds in reversed(parts):
            if seconds > ROUNDING:
                x = self.simulate(x, u + self.cancelled, seconds)
        return x

    def simulate(self, x: np.ndarray, u: np.ndarray, duration: float) -> np.ndarray:
        """The state after holding a control for a while."""
        length = self.problem.dt if self.discrete else _STEP
        count = (
            round(duration / length)
            if self.discrete
            else max(1, math.ceil(duration / length - ROUNDING))
        )
        for _ in range(count):
            x = self.problem.programs.step(
                x, u, np.array(duration / count), *self.problem.inputs_now()
            )
        return x


def _numbers(x: Any) -> np.ndarray:
    if np.iscomplexobj(x):
        raise InputError("the measured state is complex")
    return np.array(x, dtype=float)
