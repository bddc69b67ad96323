"""What a plant did: times, states and controls."""

from __future__ import annotations

import numpy as np


class Log:
    """One row a step: the state `x` (n, nx) at the time `t` (n,), and the control `u` (n, nu) that
    acted from then on. Memory grows with the number of steps.
    """

    def __init__(self, nx: int, nu: int):
        self._rows = np.empty((1024, 1 + nx + nu))
        self._nx = nx
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, t: float, x: np.ndarray, u: np.ndarray) -> None:
        """A step: time, state and control. One step: the time, the state then, and the control that
        followed.
        """
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        row = self._rows[self._count]
        row[0] = t
        row[1 : 1 + self._nx] = x
        row[1 + self._nx :] = u
        self._count += 1

    def clear(self) -> None:
        """Forgets all steps."""
        self._count = 0

    @property
    def t(self) -> np.ndarray:
        """Times (steps,)."""
        return self._rows[: self._count, 0]

    @property
    def x(self) -> np.ndarray:
        """States (steps, nx)."""
        return self._rows[: self._count, 1 : 1 + self._nx]

    @property
    def u(self) -> np.ndarray:
        """Controls (steps, nu)."""
        return self._rows[: self._count, 1 + self._nx :]
