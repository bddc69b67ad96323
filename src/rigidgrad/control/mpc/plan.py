"""A plan in time: what to do, where that should lead, and how to correct; read at any moment,
shifted to any start.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.problem import Problem

_ROUNDING = 1e-9


class Plan:
    """States x (N + 1, nx), controls u (N, nu) and gains, as the backward pass lays them out, from
    time `start` on, `dt` apart.
    """

    def __init__(self, problem: Problem):
        s, n = problem.system, problem.steps
        self.problem, self.flat = problem, s.flat
        self.start, self.dt, self.steps = -np.inf, problem.dt, n
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

    @property
    def end(self) -> float:
        return self.start + self.steps * self.dt

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
        corrected: np.ndarray = self.u[k] + self.gains[k, :, : len(self._away)] @ self._away
        return corrected

    def acceleration(self, t: float, positions: int) -> np.ndarray:
        """The mean change of a robot's velocities, which follow the positions in its state, over
        the step that a time is in.
        """
        k, _ = self._step(t)
        return (self.x[k + 1, positions:] - self.x[k, positions:]) / self.dt

    def _step(self, t: float) -> tuple[int, float]:
        """The step that a time is in, and the part of it that has passed."""
        k, part = self._knot(t)
        return (k, part) if k < self.steps else (k - 1, 1.0)

    def _knot(self, t: float) -> tuple[int, float]:
        """The knot before a time, and the part of a step beyond it; a time just before a knot is
        there.
        """
        return self._knot_after(t - self.start)

    def _knot_after(self, seconds: float) -> tuple[int, float]:
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
        theirs are means; beyond the end it is `tail`.
        """
        whole, part = self._knot(t)
        left = self.steps - whole
        x[:left] = self._between(self.x[whole:-1], self.x[whole + 1 :], part)
        x[left:] = self.x[-1]
        gains[:left], gains[left:] = self.gains[whole:], self.gains[-1]
        inside = left - 1 if part and left else left  # steps whose means lie within the plan
        before = self.u[whole : whole + inside]
        u[:inside] = (
            before + part * (self.u[whole + 1 : whole + 1 + inside] - before) if part else before
        )
        u[inside:] = tail

    def shift_rows(self, seconds: float, rows: np.ndarray) -> None:
        """Numbers (N + 1, …), one row per knot, become those of a plan that begins later; the last
        row stays.
        """
        whole, part = self._knot_after(seconds)
        left = self.steps - whole
        rows[:left] = rows[whole:-1] + part * (rows[whole + 1 :] - rows[whole:-1])
        rows[left:] = rows[-1]
