"""Which of the step sizes is taken, and by which numbers a descent of parallel DDP ends: the policy
of `kernels.search` with a solver's options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.kernels import search as policy

if TYPE_CHECKING:
    from rigidgrad.control.pddp import PDDP

# where there are defects: of the fall that the slope promises, the part that a step must bring
ARMIJO = 0.05
FIRST = (
    4  # step sizes that are simulated first: a vector of float64 has so many at least on most CPUs
)
# a step at least so large tells, by how little the cost falls, that a descent which need not be
# exact has come far enough
TELLING = 0.5
# where no step can be taken any more, the promise may be so many times the tolerance: rounding and
# sharp corners of penalties hide the rest
STALLED = 100.0
PATIENCE = 20  # steps in a row that hardly lower the cost, after which a descent is called slow


class Search:
    """Which of the step sizes is taken, of one problem by plain numbers, which are quicker than
    arrays for a handful, or of many.
    """

    def __init__(self, options: PDDP):
        self.alphas: list[float] = options.step_sizes.tolist()
        self.whole = min(range(len(self.alphas)), key=lambda k: abs(self.alphas[k] - 1.0))
        self.choose, (self.low, self.high) = options.choose, options.accept
        # how many there are after each turn: the small ones wait until the first few are refused,
        # unless the best of all is wanted
        count = len(self.alphas)
        self.turns = (FIRST, count) if count > FIRST and self.choose != "best" else (count,)

    def expected(self, slope: Any, curve: Any) -> Any:
        """The fall of the cost that a whole step promises, of one problem or of each of many."""
        return policy.expected_fall(self.alphas[self.whole], slope, curve)

    def pick(self, J: float, costs: list[float], slope: float, curve: float) -> int | None:
        """By the costs of the first few step sizes, where it is J now (4.2)."""
        chosen = self._chosen(J, costs, slope, curve)
        return None if chosen < 0 else int(chosen)

    def pick_each(
        self, J: np.ndarray, costs: np.ndarray, slope: np.ndarray, curve: np.ndarray
    ) -> np.ndarray:
        """The same for many problems, costs (problems, step sizes); -1 where none will do."""
        with np.errstate(invalid="ignore", over="ignore"):
            chosen: np.ndarray = self._chosen(J, costs.T, slope, curve).astype(int)
            return chosen

    def pick_by_merit(
        self,
        falls: list[float],
        merits: list[float],
        worst: list[float],
        slope: float,
        closing: float,
        limit: float,
    ) -> int | None:
        """Where there are defects, of the falls of the merit function and the largest defects that
        are left; `closing` is σ times the sum of those there are.
        """
        rows = zip(falls, self.alphas, worst, strict=True)
        chosen = self.among(
            [
                policy.acceptable_with_defects(fall, a, slope, closing, w, ARMIJO, limit)
                for fall, a, w in rows
            ],
            merits,
        )
        return None if chosen < 0 else int(chosen)

    def _chosen(self, J: Any, costs: Any, slope: Any, curve: Any) -> Any:
        low, high = self.low, self.high
        if isinstance(costs, np.ndarray):
            alphas = np.array(self.alphas[: len(costs)])[:, None]
            fine = policy.acceptable(
                J - costs, policy.expected_fall(alphas, slope, curve), low, high
            )
        else:
            pairs = zip(costs, self.alphas, strict=False)
            fine = [
                policy.acceptable(J - cost, policy.expected_fall(alpha, slope, curve), low, high)
                for cost, alpha in pairs
            ]
        return self.among(fine, costs)

    def among(self, fine: Sequence[Any], merits: Sequence[Any]) -> Any:
        """The number of the step size that is taken of those that are fine, or -1."""
        best = (
            fine[self.whole]
            if self.choose == "balanced" and self.whole < len(fine)
            else self.choose == "best"
        )
        return policy.choose(fine, merits, best)
