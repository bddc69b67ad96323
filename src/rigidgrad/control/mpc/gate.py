"""Which measurements can be true: what is farther from where the model leads than actuators could
have brought it is an outlier.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import numpy as np

from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.system import RobotSystem

_CALM = 0.1  # a change of the state whose norm is below needs no look at the model
_LONGEST = 0.2  # seconds; what happened in a longer time is not known
_BEYOND = 4.0  # times what the actuators can do: pushes and a wrong model do something, too
_POSITION, _VELOCITY = 0.1, 1.0  # rad and rad/s (m, m/s) that noise may add
_PART = 0.1  # likewise, as a part of a velocity, or of the state of a system that is no robot
# of a joint's range, how far beyond its limits a position may be where nothing else is known
_RANGE = 0.25
# samples in a row that fit one another, after which they are right and what was known before is
# wrong
_AGREE = 3
_INSTANT = 1e-9  # seconds

Sample = tuple[np.ndarray, float]  # a state and its time


class Gate:
    """Compares samples with the last one that was taken for true, brought forward by `foresee(x,
    since, until)` under the controls given.

    A robot's sample is true if joint forces within four times the actuators' range explain how far
    it is from there, or from there after an impact of its motion, noise aside; of another system,
    if it is within four times the box that `move(x, u, seconds)` reaches with all controls. Where
    nothing is known, at first and after a while without samples, a robot's is true if it is not far
    beyond the limits of its joints.
    """

    def __init__(
        self,
        problem: LiveProblem,
        foresee: Callable[[np.ndarray, float, float], np.ndarray],
        move: Callable[[np.ndarray, np.ndarray, float], np.ndarray],
    ):
        self.problem, self._foresee, self._move = problem, foresee, move
        self.reset()

    def reset(self) -> None:
        self._true: Sample | None = None
        self._doubted: Sample | None = None
        self._agreed = 0
        self.jumped = False  # whether the last sample was believed against all before

    def shift(self, seconds: float) -> None:
        """The clock was moved."""
        self._true, self._doubted = (
            s and (s[0], s[1] + seconds) for s in (self._true, self._doubted)
        )

    def passes(self, x: np.ndarray, t: float) -> bool:
        """Whether a state is so near to the last true one that nothing need be asked; never where a
        number of it is none.
        """
        if self._true is None:
            return False
        # quicker than arrays, and without a warning of overflow
        if not math.dist(x.tolist(), self._true[0].tolist()) <= _CALM:
            return False
        self._true, self._doubted, self._agreed, self.jumped = (x, t), None, 0, False
        return True

    def admits(
        self, x: np.ndarray, t: float, u: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]
    ) -> bool:
        """Whether a state (nx,) at a time can be true; u (nu,) is the control that acts, within the
        bounds (nu,) of now.
        """
        self.jumped = False
        if self._fits(self._true, x, t, u, bounds) if self._true else self._is_possible(x):
            self._true, self._doubted, self._agreed = (x, t), None, 0
            return True
        if self._doubted is not None and t <= self._doubted[1] + _INSTANT:
            return False  # the same sample again says nothing new
        agrees = self._doubted is not None and self._fits(self._doubted, x, t, u, bounds)
        self._agreed, self._doubted = self._agreed + 1 if agrees else 1, (x, t)
        if self._agreed < _AGREE:
            return False
        self._true, self._doubted, self._agreed, self.jumped = (x, t), None, 0, True
        return True

    def _fits(
        self,
        earlier: Sample,
        x: np.ndarray,
        t: float,
        u: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray],
    ) -> bool:
        before, since = earlier
        h = max(t - since, 0.0)
        if h > _LONGEST:
            return self._is_possible(x)
        with np.errstate(all="ignore"):
            foreseen = self._foresee(before, since, t) if h > _INSTANT else before
            if not np.isfinite(foreseen).all():  # what was believed was nonsense
                self.jumped = True
                return True
            away, width = self.problem.minus(x, foreseen), bounds[1] - bounds[0]
            # without bounds, what they do now and as much again
            width = np.where(np.isfinite(width), width, 2.0 * (1.0 + np.abs(u).max(initial=0.0)))
            if isinstance(self.problem.system, RobotSystem):
                # a foot may have landed meanwhile, whenever it was to
                ways = chain(
                    [away], (self.problem.minus(x, a) for a in self.problem.landed(foreseen))
                )
                return any(self._is_driven(self.problem.system, before, a, width, h) for a in ways)
            return bool(
                np.all(
                    np.abs(away)
                    <= _PART * (1.0 + np.abs(before)) + _BEYOND * self._reach(before, u, width, h)
                )
            )

    def _is_possible(self, x: np.ndarray) -> bool:
        """Whether a robot's joints are within their limits, a quarter of a range beyond them, and
        their speeds within four times theirs.
        """
        s = self.problem.system
        if not isinstance(s, RobotSystem):
            return True
        limits = s.robot.limits
        with np.errstate(all="ignore"):
            beyond = np.maximum(_RANGE * (limits.upper - limits.lower), _POSITION)
            q, v = x[: s.nq], np.abs(x[s.nq :])
            fine = np.all(~(q < limits.lower - beyond) & ~(q > limits.upper + beyond))
        return bool(
            fine
            and np.all(
                v <= _BEYOND * np.where(limits.velocity > 0.0, limits.velocity, np.inf) + _VELOCITY
            )
        )

    @staticmethod
    def _is_driven(
        s: RobotSystem, x: np.ndarray, away: np.ndarray, width: np.ndarray, h: float
    ) -> bool:
        """Whether forces of the actuators, M Δv / h and M Δq / h², explain being away by (Δq,
        Δv).
        """
        M = s.robot.crba(x[: s.nq])
        force = _BEYOND * (width if s.actuation is None else np.abs(np.array(s.actuation)) @ width)
        noise = (
            np.abs(M)
            @ np.array([np.full(s.nv, _POSITION), _VELOCITY + _PART * np.abs(x[s.nq :])]).T
        )
        needed = np.abs(M @ np.array([away[: s.nv], away[s.nv :]]).T)
        return bool(np.all(needed <= noise + np.array([h * h * force, h * force]).T))

    def _reach(self, x: np.ndarray, u: np.ndarray, width: np.ndarray, h: float) -> np.ndarray:
        """How far the controls can bring the state away in h seconds, (ndx,): all of them by their
        whole range.
        """
        own = self._move(x, u, h)
        reach: np.ndarray = np.abs(self.problem.minus(own, x))
        for j in range(len(u)):
            other = u.copy()
            other[j] += width[j]
            reach = reach + np.abs(self.problem.minus(self._move(x, other, h), own))
        return reach
