"""What a solver returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.control.ground_forces import Holding
from rigidgrad.control.remaining import Remaining, largest
from rigidgrad.control.surroundings import Force, Surroundings

if TYPE_CHECKING:
    from rigidgrad.control.problem import FinalAim, Problem

ADVICE = {
    "converged": (
        "an optimum, or of a problem that is not convex perhaps a saddle: the gradient promises no"
        " fall of the cost beyond the tolerance, and all limits hold"
    ),
    "iterations": (
        "the iteration limit was reached; raise iterations=, try rg.PDDP(second_order=True) where a"
        " cost is flat in the controls, as fuel is, or take the trajectory as it is, a true"
        " roll-out of its controls"
    ),
    "slow": (
        "slow progress: the cost hardly falls from step to step, but its gradient says that this is"
        " no optimum yet; raise iterations=, try rg.PDDP(second_order=True), other weights or"
        " another guess; or take the trajectory as it is, a true roll-out of its controls"
    ),
    "stalled": (
        "no step along the search direction lowers the cost; the trajectory is the best found. Try"
        " rg.PDDP(second_order=True) where a cost is flat in the controls, as fuel is; other"
        " weights or another guess; where the dynamics are unstable, shooting blocks, a guess of"
        " states, or rg.Direct"
    ),
    "infeasible": (
        "no motion was found that keeps all limits; widen them, give more time (steps, dt), or"
        " another guess"
    ),
    "diverged": (
        "the first guess leads to states that are infinite or not numbers; give guess=, a smaller"
        " dt, or a better integrator"
    ),
    "singular": (
        "some control changes nothing that costs anything, so that none is best: give"
        " rg.costs.Effort a positive weight for every control"
    ),
    "undefined": (
        "a cost, a constraint or a derivative is infinite or not a number, though the states are"
        " finite: a division by 0, or a root or a norm of 0 or less, in a function of yours?"
        " (rg.math.norm takes smooth=); or the states became too large"
    ),
}
_VIOLATED = 1e-6  # what is worth a word
_FAR_AWAY = 1e100  # states so large have costs that overflow


def knot_times(h: np.ndarray) -> np.ndarray:
    """Of knots that are h (steps,) seconds apart, (steps + 1,)."""
    if (h == h[0]).all():
        times: np.ndarray = h[0] * np.arange(len(h) + 1)
        return times
    return np.concatenate([[0.0], np.cumsum(h)])


def most_common(h: np.ndarray) -> float:
    """Of the steps that take time, the length of most."""
    lengths, counts = np.unique(h[h > 0.0], return_counts=True)
    return float(lengths[counts.argmax()])


def relative_fall(expected: float, cost: float, negligible: float, tolerance: float) -> float:
    """A fall of the cost that a step promises, as a share of the cost, or of the smallest one that
    counts; at most `tolerance` at an optimum.
    """
    if not (math.isfinite(expected) and math.isfinite(cost)):
        return math.inf
    return abs(expected) / max(abs(cost), negligible / max(tolerance, 1e-300), 1e-300)


@dataclass(frozen=True)
class Solution:
    """A feasible trajectory and the feedback around it: u + gains (x' ⊖ x)."""

    status: str
    """As "converged", or what stopped it: `print(solution)` says what to do next."""
    cost: float
    """Of the trajectory, without penalties."""
    x: np.ndarray
    """States (steps + 1, nx)."""
    u: np.ndarray
    """Controls (steps, nu)."""
    gains: np.ndarray
    """Feedback (steps, nu, ndx)."""
    iterations: int
    """How many there were."""
    stats: dict[str, Any] = field(default_factory=dict)
    """Numbers of the solve: seconds, and what else the solver counts."""
    dt: float | None = None
    """Seconds from knot to knot, of most steps."""
    system: Any = field(default=None, repr=False)
    """What moves."""
    aims: tuple[FinalAim, ...] = field(default=(), repr=False)
    """What the last knot's costs wanted."""
    multipliers: np.ndarray | None = field(default=None, repr=False)
    """Of the constraints (steps + 1, constraints): positive at upper bounds and negative at lower
    ones.
    """
    penalties: np.ndarray | None = field(default=None, repr=False)
    """Of the constraints, where the solve ended."""
    surroundings: Surroundings = field(default_factory=Surroundings, repr=False)
    """Obstacles and targets, for pictures."""
    h: np.ndarray | None = field(default=None, repr=False)
    """Seconds of each step (steps,), 0 of an impact."""
    holding: Holding | None = field(default=None, repr=False)
    """What contacts hold, for their forces."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        status: str,
        x: np.ndarray,
        u: np.ndarray,
        gains: np.ndarray,
        iterations: int,
        stats: dict[str, Any],
    ) -> Solution:
        """Of a problem, whose numbers may change afterwards."""
        cost = math.inf if status == "diverged" else problem.cost(x, u)
        if (
            status == "diverged"
            and np.abs(x).max() < _FAR_AWAY
            and np.abs(problem.evaluate(x, u)[0]).max() < _FAR_AWAY
        ):
            status = "undefined"  # the motion is fine, its cost is not
        multipliers = penalties = None
        if problem.constraints:
            stats["violation"] = problem.violation(x, u)
        if problem.constraints and math.isfinite(cost):
            found = problem.constraint_status(x, u)
            multipliers, penalties = found.multiplier, problem.penalties.copy()
            stats["complementarity"] = problem.relative_gap(found.gap, cost)
        facts = (
            problem.dt,
            problem.system,
            problem.aims(),
            multipliers,
            penalties,
            Surroundings.of(problem),
            problem.h.copy(),
            Holding.of(problem),
        )
        return cls(status, cost, x.copy(), u.copy(), gains, iterations, stats, *facts)

    @property
    def times(self) -> np.ndarray:
        """Of the knots, in seconds from the start, (steps + 1,)."""
        return knot_times(np.full(len(self.u), self.dt or 1.0) if self.h is None else self.h)

    @cached_property
    def ground_forces(self) -> tuple[Force, ...]:
        """Of the ground on each contact, at each step: `.frame`, `.newtons` (steps, 3) in the
        world, `.point` (steps, 3) where they act, `.pressing` (steps,) along the normal. None
        without contacts; of impacts, whose forces are impulses, zero.
        """
        if self.holding is None or self.status == "diverged":
            return ()
        return self.holding.forces(self.system, self.x, self.u)

    @property
    def drawn(self) -> Surroundings:
        """What is around it, and forces of the ground."""
        return replace(self.surroundings, forces=self.ground_forces)

    @property
    def remaining(self) -> dict[str, Remaining]:
        """How far the last knot is from what each cost aims at there: `.position` in metres,
        `.angle` in radians, `.speed`, `.rate`, `.other`.
        """
        return {aim.name: aim.remaining(self.system, self.x[-1]) for aim in self.aims}

    @property
    def message(self) -> str:
        """What the status means and what to do about it; and what the trajectory falls short of."""
        notes = [ADVICE[self.status]]
        if "guess" in self.stats:
            notes.append(f"the first guess was {self.stats['guess']}")
        violation = self.stats.get("violation", 0.0)
        if violation > _VIOLATED and self.status != "converged":
            notes.append(f"limits are violated by up to {violation:.2g}")
        if math.isfinite(self.cost):
            for aim in self.aims:
                way = [aim.remaining(self.system, self.x[k]) for k in (0, len(self.x) // 2, -1)]
                missed = way[-1].missed(largest(way))
                if missed.by_name():
                    notes.append(
                        f"{aim.name} ends {missed} from its target; if that is too far, check that"
                        " it can be reached, or give more time or weight"
                    )
        return ". Note: ".join([notes[0], "; ".join(notes[1:])]) if notes[1:] else notes[0]

    @property
    def converged(self) -> bool:
        """Whether the tolerance was reached, and all limits hold."""
        return self.status == "converged"

    def __repr__(self) -> str:
        return (
            f"<Solution: {self.status} after {self.iterations} iterations, cost {self.cost:.9g};"
            f" {self.message}>"
        )
