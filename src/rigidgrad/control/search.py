"""Which of the step sizes is taken, and by which numbers a descent of parallel DDP ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rigidgrad.control.pddp import PDDP

ARMIJO = 0.05  # where there are defects: of the fall that the slope promises, the part that a step must bring
FIRST = 4  # step sizes that are simulated first: a vector of float64 has so many at least on most CPUs
TELLING = 0.5  # a step at least so large tells, by how little the cost falls, that a descent which need not be exact has come far enough
STALLED = 100.0  # where no step can be taken any more, the promise may be so many times the tolerance: rounding and sharp corners of penalties hide the rest
PATIENCE = 20  # steps in a row that hardly lower the cost, after which a descent is called slow


class Search:
    """Which of the step sizes is taken: plain numbers, since a handful of them is quicker so than in arrays."""

    def __init__(self, options: PDDP):
        self.alphas: list[float] = options.step_sizes.tolist()
        self.whole = min(range(len(self.alphas)), key=lambda k: abs(self.alphas[k] - 1.0))
        self.choose, (self.low, self.high) = options.choose, options.accept
        # how many there are after each turn: the small ones wait until the first few are refused, unless the best of all is wanted
        count = len(self.alphas)
        self.turns = (FIRST, count) if count > FIRST and self.choose != "best" else (count,)

    def expected(self, slope: Any, curve: Any) -> Any:
        """The fall of the cost that a whole step promises, of one problem or of each of many."""
        alpha = self.alphas[self.whole]
        return -(alpha * slope + alpha * alpha * 0.5 * curve)

    def pick(self, J: float, costs: list[float], slope: float, curve: float) -> int | None:
        """By the costs of the first few step sizes, where it is J now (4.2). NaN is never acceptable."""
        fine = []
        for k, cost in enumerate(costs):
            alpha = self.alphas[k]
            expected = -(alpha * slope + alpha * alpha * 0.5 * curve)
            if expected != 0.0 and self.low < (J - cost) / expected < self.high:
                fine.append(k)
        return self.among(fine, costs)

    def pick_each(self, J: np.ndarray, costs: np.ndarray, slope: np.ndarray, curve: np.ndarray) -> np.ndarray:
        """The same for many problems, costs (problems, step sizes); -1 where none will do."""
        alpha = np.array(self.alphas[: costs.shape[1]])
        expected = -(alpha * slope[:, None] + alpha * alpha * 0.5 * curve[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (J[:, None] - costs) / expected
            fine = (self.low < ratio) & (ratio < self.high)
        first, best = fine.argmax(axis=1), np.where(fine, costs, np.inf).argmin(axis=1)
        return np.where(fine.any(axis=1), np.where(self._wants_best(fine), best, first), -1)

    def _wants_best(self, fine: np.ndarray) -> np.ndarray | bool:
        return self.choose == "best" or (self.choose == "balanced" and fine[:, self.whole])

    def among(self, fine: list[int], costs: list[float]) -> int | None:
        if not fine:
            return None
        if self.choose == "best" or (self.choose == "balanced" and self.whole in fine):
            return min(fine, key=costs.__getitem__)
        return fine[0]
