"""A plan in time: what to do, where that should lead, and how to correct; read at any moment,
shifted to any start.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.pddp import Iterate

_ROUNDING = 1e-9


class Plan:
    """States x (N + 1, nx), controls u (N, nu) and gains, as the backward pass lays them out, from
    time `start` on, `dt` apart; where steps differ, `knots` (N + 1,) are its seconds at each, and
    two at an impact are alike. It began after so many steps of a motion as have `passed`.
    """

    def __init__(self, problem: LiveProblem):
        s, n = problem.system, problem.steps
        self.problem, self.flat = problem, s.flat
        self.start, self.dt, self.steps = -np.inf, problem.dt, n
        self.even, self.passed = problem.programs.uniform, 0
        self.knots = problem.seconds_ahead
        layout = problem.programs.layout
        self.x, self.u, self.gains = (
            np.zeros((n + 1, s.nx)),
            np.zeros((n, s.nu)),
            np.zeros((n, s.nu, layout.columns)),
        )
        # of the gains, where the state is
        self.columns = np.array([layout.state(i) for i in range(layout.n)])
        self._away = np.zeros(layout.state_columns)
        self.pace = 1.0  # the part of its speed at which it is followed
        self.held = False  # whether the posture is held instead

    def take(self, start: float, found: Iterate) -> None:
        """Becomes a plan from a time on, copied from what a solver found for the problem as it is
        now.
        """
        self.start, self.dt, self.passed = start, self.problem.dt, self.problem.passed
        self.knots = self.problem.seconds_ahead
        self.x[:], self.u[:], self.gains[:] = found.x, found.u, found.gains

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def duration(self) -> float:
        return self.steps * self.dt if self.even else float(self.knots[-1])

    @property
    def last_step(self) -> int:
        """The last step that is no impact."""
        return self.steps - 1 if self.even else int(np.flatnonzero(np.diff(self.knots))[-1])

    def phase(self, t: float) -> float:
        """The plan's own time, which passes at its pace, and not at all where the posture is held
        instead.
        """
        return self.start if self.held else self.start + self.pace * (t - self.start)

    def state(self, t: float) -> np.ndarray:
        """Where the plan is at a time."""
        k, part = self._step(t)
        return self._between(self.x[k], self.x[k + 1], part).copy()

    def control(self, t: float, x: np.ndarray | None = None) -> np.ndarray:
        """The control of a time, corrected for being at x instead of where the plan is."""
        k, part = self._step(t)
        if x is None:
            planned: np.ndarray = self.u[k].copy()
            return planned
        reference = self._between(self.x[k], self.x[k + 1], part)
        self._away[self.columns] = self.problem.minus(x, reference)
        if not (part or self.even) and k and self.knots[k - 1] == self.knots[k]:
            # at the moment of an impact the state may be the one before it as well
            before = self.problem.minus(x, self.x[k - 1])
            if before @ before < self._away @ self._away:
                self._away[self.columns] = before
        corrected: np.ndarray = self.u[k] + self.gains[k, :, : len(self._away)] @ self._away
        return corrected

    def acceleration(self, t: float, positions: int) -> np.ndarray:
        """The mean change of a robot's velocities, which follow the positions in its state, over
        the step that a time is in.
        """
        k, _ = self._step(t)
        seconds = self.dt if self.even else self.knots[k + 1] - self.knots[k]
        return (self.x[k + 1, positions:] - self.x[k, positions:]) / seconds

    def _step(self, t: float) -> tuple[int, float]:
        """The step that a time is in, and the part of it that has passed."""
        k, part = self._knot(t)
        return (k, part) if k < self.steps else (self.last_step, 1.0)

    def _knot(self, t: float) -> tuple[int, float]:
        """The knot before a time, and the part of a step beyond it; a time just before a knot is
        there, and that of an impact after it.
        """
        return self._knot_after(t - self.start)

    def _knot_after(self, seconds: float) -> tuple[int, float]:
        if not self.even:
            k = int(np.searchsorted(self.knots, seconds + _ROUNDING, side="right")) - 1
            k = min(max(k, 0), self.steps)
            if k == self.steps:
                return k, 0.0
            part = (seconds - self.knots[k]) / (self.knots[k + 1] - self.knots[k])
            return k, min(max(float(part), 0.0), 1.0)
        s = min(max(seconds / self.dt, 0.0), float(self.steps))
        k = int(s + _ROUNDING)
        return k, max(s - k, 0.0)

    def _between(self, a: np.ndarray, b: np.ndarray, part: float) -> np.ndarray:
        if not part:
            return a
        if self.flat:
            flat: np.ndarray = a + part * (b - a)
            return flat
        return self.problem.plus(a, part * self.problem.minus(b, a))

    def shifted_into(
        self, t: float, x: np.ndarray, u: np.ndarray, gains: np.ndarray, tail: np.ndarray
    ) -> None:
        """Fills states, controls and gains of a plan from t on. Controls hold from knot to knot, so
        theirs are means; beyond the end it is `tail`, or what was a cycle before.
        """
        whole, part = self._moved(t - self.start)
        left = self.steps - whole
        x[:left] = self._between(self.x[whole:-1], self.x[whole + 1 :], part)
        x[left:] = self.x[-1]
        gains[:left], gains[left:] = self.gains[whole:], self.gains[self.last_step]
        inside = left - 1 if part and left else left  # steps whose means lie within the plan
        before = self.u[whole : whole + inside]
        u[:inside] = (
            before + part * (self.u[whole + 1 : whole + 1 + inside] - before) if part else before
        )
        u[inside:] = tail
        if not self.even and left and self.problem.h[0]:
            x[0] = self.state(t)  # in the middle of a step; later knots are the motion's
        cycle = self.problem.cycle
        if cycle:
            for k in range(max(inside, cycle), self.steps):
                u[k], gains[k] = u[k - cycle], 0.0

    def shift_rows(self, seconds: float, rows: np.ndarray) -> None:
        """Numbers (N + 1, …), one row per knot, become those of a plan that begins later; the last
        row stays.
        """
        whole, part = self._moved(seconds)
        left = self.steps - whole
        rows[:left] = rows[whole:-1] + part * (rows[whole + 1 :] - rows[whole:-1])
        rows[left:] = rows[-1]

    def _moved(self, seconds: float) -> tuple[int, float]:
        """By how many knots, and which part of a step, a plan that begins so much later is apart
        from this one. Where steps differ, knots are those of the motion.
        """
        if self.even:
            return self._knot_after(seconds)
        return min(max(self.problem.passed - self.passed, 0), self.steps), 0.0
