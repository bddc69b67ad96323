"""What a solver returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rigidgrad.control.problem import Aim, Problem

ADVICE = {
    "converged": "the cost no longer falls by more than the tolerance",
    "iterations": "the iteration limit was reached; raise iterations=, or take the trajectory as it is, a true roll-out of its controls",
    "stalled": "no step along the search direction lowers the cost; the trajectory is the best found. Try other weights or another guess; where the dynamics are unstable, "
    "shooting blocks, a guess of states, or rg.Direct",
    "infeasible": "no motion was found that keeps all limits; widen them, give more time (steps, dt), or another guess",
    "diverged": "the first guess leads to states that are infinite or not numbers; give guess=, a smaller dt, or a better integrator",
    "singular": "some control changes nothing that costs anything, so that none is best: give rg.costs.Effort a positive weight for every control",
    "undefined": "a derivative is infinite or not a number: a root or a norm of 0 in a function of yours? (rg.math.norm takes smooth=); or the states became too large",
}
# what is worth a word: an aim that is missed by more than this part of the way, and by more than a millimetre or milliradian; a violation that is larger
_MISSED, _CLOSE, _VIOLATED = 0.1, 1e-3, 1e-6


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
    dt: float | None = None  # seconds from knot to knot
    system: Any = field(default=None, repr=False)  # what moves
    aims: tuple[Aim, ...] = field(default=(), repr=False)  # what the last knot's costs wanted

    @classmethod
    def of(
        cls, problem: Problem, status: str, x: np.ndarray, u: np.ndarray, gains: np.ndarray, iterations: int, stats: dict[str, Any]
    ) -> Solution:
        """Of a problem, whose numbers may change afterwards."""
        cost = math.inf if status == "diverged" else problem.cost(x, u)
        if problem.constraints:
            stats["violation"] = problem.violation(x, u)
        return cls(status, cost, x.copy(), u.copy(), gains, iterations, stats, problem.dt, problem.system, problem.aims())

    @property
    def remaining(self) -> dict[str, float]:
        """How far the last knot is from what its costs aim at: of each, the norm of the residuals that have a weight there (metres and radians)."""
        return {aim.name: aim.distance(self.system, self.x[-1]) for aim in self.aims}

    @property
    def message(self) -> str:
        """What the status means and what to do about it; and what the trajectory falls short of."""
        notes = [ADVICE[self.status]]
        violation = self.stats.get("violation", 0.0)
        if violation > _VIOLATED and self.status != "converged":
            notes.append(f"limits are violated by up to {violation:.2g}")
        if self.status != "diverged":
            for aim in self.aims:
                way = [aim.distance(self.system, self.x[k]) for k in (0, len(self.x) // 2, -1)]
                last = way[-1]
                if last > max(_MISSED * max(way), _CLOSE):
                    notes.append(
                        f"{aim.name} ends {last:.3g} from its target; if that is too far, check that it can be reached, or give more time or weight"
                    )
        return ". Note: ".join([notes[0], "; ".join(notes[1:])]) if notes[1:] else notes[0]

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def __repr__(self) -> str:
        return f"<Solution: {self.status} after {self.iterations} iterations, cost {self.cost:.9g}; {self.message}>"
