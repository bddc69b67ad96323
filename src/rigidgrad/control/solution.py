"""What a solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

ADVICE = {
    "converged": "the cost no longer falls by more than the tolerance",
    "iterations": "the iteration limit was reached; raise iterations=, or accept the trajectory, which is feasible",
    "stalled": "no step along the search direction lowers the cost; the trajectory is the best found. Try other weights or a better guess",
    "diverged": "the first guess leads to infinite states; give guess=, a smaller dt, or a better integrator",
}


@dataclass(frozen=True)
class Solution:
    """A feasible trajectory: x (steps + 1, nx), u (steps, nu), and the feedback gains (steps, nu, ndx) around it: u + gains (x' ⊖ x)."""

    status: str
    cost: float
    x: np.ndarray
    u: np.ndarray
    gains: np.ndarray
    iterations: int
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """What the status means and what to do about it."""
        return ADVICE[self.status]

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def __repr__(self) -> str:
        return f"<Solution: {self.status} after {self.iterations} iterations, cost {self.cost:.9g}; {self.message}>"
