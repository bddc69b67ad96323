"""The LQ problem with bounds on its controls, lower ≤ du ≤ upper, by LQ problems without.

First a primal-dual active set (Hintermüller, Ito and Kunisch 2003): controls are held at the bounds
that the last solution pushed them across. From the right set it needs one problem, from a near one
a few; far away it may go in circles. Then a primal-dual interior point method finds the set: it
only adds to R and r, takes ten to twenty problems, and cannot circle.

`trials` asks for one LQ problem after the other and never sees a matrix: who answers may be on the
CPU (`solve`) or on a device, for one problem or for many in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np

from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import Step

Solve = Callable[[LQ], Step]

_SETS = 6  # active sets tried in a row
_INTERIOR = 40  # iterations of the interior point method
_BACK = 0.995  # how much of the way to the boundary a step may go
_DONE = 1e-10  # complementarity, relatively to the first
ACCURACY = 1e-9  # of du, relatively, where answers are float64's


@dataclass(frozen=True)
class Trial:
    """An LQ problem to be solved: with the controls `which` (N, m) held at `values`, `weight` added
    to the diagonals of R and `push` to r; the latter two may be zero.
    """

    which: np.ndarray
    values: np.ndarray
    weight: np.ndarray | float = 0.0
    push: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Found:
    """Its solution, held controls included, and (N, m) the gradient of the Lagrangian by controls
    there, of the problem without `weight` and `push`; the diagonals of R.
    """

    step: Step
    gradient: np.ndarray
    diagonal: np.ndarray


Trials = Generator[Trial, Found, tuple[Step, np.ndarray]]


def solve(
    lq: LQ, lower: np.ndarray, upper: np.ndarray, held: np.ndarray, solve_free: Solve
) -> tuple[Step, np.ndarray]:
    """The step, and which controls it holds: -1 at the lower bound, 1 at the upper one, else 0;
    `held` is a guess of these.

    Bounds may be infinite, or equal. `solve_free` solves LQ problems without bounds. A step that is
    not optimal has a status other than "solved".
    """
    asked = trials(lower, upper, held)
    try:
        trial = next(asked)
        while True:
            trial = asked.send(_answer(lq, trial, solve_free))
    except StopIteration as ended:
        found: tuple[Step, np.ndarray] = ended.value
        return found


def _answer(lq: LQ, trial: Trial, solve_free: Solve) -> Found:
    weighted = lq
    if np.any(trial.weight) or np.any(trial.push):
        weighted = replace(
            lq,
            R=lq.R + np.asarray(trial.weight)[..., None] * np.eye(lq.R.shape[1]),
            r=lq.r + trial.push,
        )
    step = solve_free(weighted.fixed(trial.which, trial.values) if trial.which.any() else weighted)
    step.du[trial.which] = trial.values[trial.which]
    gradient = (
        np.zeros_like(step.du)
        if step.status == "indefinite"
        else lq.residuals(step.dx, step.du, step.lam)[1]
    )
    return Found(step, gradient, np.einsum("kii->ki", lq.R))


def trials(
    lower: np.ndarray, upper: np.ndarray, held: np.ndarray, accuracy: float = ACCURACY
) -> Trials:
    """Asks for trials, is sent what was found, and returns (the step, which controls it holds), as
    `solve` does.
    """
    same = (
        np.isfinite(lower)
        & np.isfinite(upper)
        & (upper - lower <= 1e-12 * np.maximum(1.0, np.abs(upper)))
    )
    values = np.where(same, lower, 0.0)
    lower, upper = np.where(same, -np.inf, lower), np.where(same, np.inf, upper)
    held = np.where(np.isfinite(np.where(held > 0, upper, lower)), held, 0.0)
    box = _Box(same, values, lower, upper, accuracy)
    step, held, settled = yield from box.active_set(held)
    if settled or step.status == "indefinite":
        return step, held
    inside, guess = yield from box.interior_point()
    if inside.status == "indefinite":
        return inside, held
    step, held, settled = yield from box.active_set(guess)
    return (step, held) if settled else (inside, guess)


@dataclass(frozen=True)
class _Box:
    """Bounds, and controls whose bounds are the `same` and which are held at `values` throughout;
    theirs are infinite here.
    """

    same: np.ndarray
    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    accuracy: float

    def active_set(
        self, held: np.ndarray
    ) -> Generator[Trial, Found, tuple[Step, np.ndarray, bool]]:
        """(step, held, whether the step confirms what was held)."""
        for _ in range(_SETS):
            at = np.where(held > 0, self.upper, self.lower)
            found = yield Trial(self.same | (held != 0), np.where(held != 0, at, self.values))
            step = found.step
            if step.status == "indefinite":
                return step, held, False
            # against the gradient of the Lagrangian, as a distance in u: where that leads across a
            # bound, it holds
            push = step.du - found.gradient / np.maximum(found.diagonal, 1e-300)
            slack = self.accuracy * np.maximum(1.0, np.abs(step.du))
            after = np.where(
                push > self.upper + slack, 1.0, np.where(push < self.lower - slack, -1.0, 0.0)
            )
            if (after == held).all():
                return step, held, True
            held = after
        return step, held, False

    def interior_point(self) -> Generator[Trial, Found, tuple[Step, np.ndarray]]:
        """(a step near the optimum and strictly inside, which bounds it nears)."""
        lower, upper = self.lower, self.upper
        below, above = np.isfinite(lower), np.isfinite(upper)
        du = np.where(self.same, self.values, _inside(lower, upper))
        found = yield Trial(np.ones(du.shape, bool), du)
        # multipliers begin as large as the gradient that bounds have to hold against
        z = float(np.abs(np.where(self.same, 0.0, found.gradient)).mean()) or 1.0
        z_low, z_up = np.where(below, z, 0.0), np.where(above, z, 0.0)
        count, first, centring, dx = int(below.sum() + above.sum()), 0.0, 0.1, found.step.dx
        step = replace(found.step, du=du, status="limit")
        for _ in range(_INTERIOR):
            s_low, s_up = np.where(below, du - lower, 1.0), np.where(above, upper - du, 1.0)
            mu = float((z_low * s_low).sum() + (z_up * s_up).sum()) / count
            first = first or mu
            if not mu > _DONE * first:
                step = replace(step, status="solved")
                break
            weight = z_low / s_low + z_up / s_up
            push = centring * mu * (above / s_up - below / s_low)
            found = yield Trial(self.same, self.values, weight, push - weight * du)
            if found.step.status == "indefinite":
                break
            move = found.step.du - du
            dz_low = np.where(below, (centring * mu - z_low * move) / s_low - z_low, 0.0)
            dz_up = np.where(above, (centring * mu + z_up * move) / s_up - z_up, 0.0)
            changes = (
                (s_low, move, below),
                (s_up, -move, above),
                (z_low, dz_low, below),
                (z_up, dz_up, above),
            )
            length = min(_longest(*change) for change in changes)
            du, dx = du + length * move, dx + length * (found.step.dx - dx)
            z_low, z_up = z_low + length * dz_low, z_up + length * dz_up
            step = replace(found.step, dx=dx, du=du, status="limit")
            centring = 0.01 if length > 0.9 else 0.1 if length > 0.5 else 0.5
        scale = np.maximum(found.diagonal, 1e-300)
        near_low, near_up = (
            below & (z_low / scale > du - lower),
            above & (z_up / scale > upper - du),
        )
        return step, np.where(near_up, 1.0, np.where(near_low, -1.0, 0.0))


def _inside(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Near zero and away from bounds: by a tenth of the range, or where there is one bound alone,
    by a tenth of its size.
    """
    below, above = np.isfinite(lower), np.isfinite(upper)
    one = np.maximum(1.0, np.abs(np.where(below, lower, np.where(above, upper, 0.0))))
    margin = 0.1 * np.where(
        below & above, np.where(above, upper, 0.0) - np.where(below, lower, 0.0), one
    )
    inside: np.ndarray = np.clip(0.0, lower + margin, upper - margin)
    return inside


def _longest(value: np.ndarray, change: np.ndarray, where: np.ndarray) -> float:
    """The largest step, at most 1, that keeps values positive."""
    falling = where & (change < 0)
    return min(1.0, _BACK * float(np.min(-value[falling] / change[falling], initial=np.inf)))
