"""The LQ problem with bounds on its controls, lower ≤ du ≤ upper, by LQ problems without.

First a primal-dual active set (Hintermüller, Ito and Kunisch 2003): controls are held at the bounds that the last solution pushed them across. From the right set it needs one
problem, from a near one a few; far away it may go in circles. Then a primal-dual interior point method finds the set: it only adds to R and r, takes ten to twenty
problems, and cannot circle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import Step

Solve = Callable[[LQ], Step]

_SETS = 6  # active sets tried in a row
_INTERIOR = 40  # iterations of the interior point method
_BACK = 0.995  # how much of the way to the boundary a step may go
_DONE = 1e-10  # complementarity, relatively to the first


def solve(lq: LQ, lower: np.ndarray, upper: np.ndarray, held: np.ndarray, solve_free: Solve) -> tuple[Step, np.ndarray]:
    """The step, and which controls it holds: -1 at the lower bound, 1 at the upper one, else 0; `held` is a guess of these.

    Bounds may be infinite, or equal. `solve_free` solves LQ problems without bounds. A step that is not optimal has a status other than "solved".
    """
    same = np.isfinite(lower) & np.isfinite(upper) & (upper - lower <= 1e-12 * np.maximum(1.0, np.abs(upper)))
    if same.any():
        values = np.where(same, lower, 0.0)
        free = np.where(same, -np.inf, lower), np.where(same, np.inf, upper)
        step, held = solve(lq.fixed(same, values), *free, np.where(same, 0.0, held), solve_free)
        step.du[same] = values[same]
        return step, held
    held = np.where(np.isfinite(np.where(held > 0, upper, lower)), held, 0.0)
    step, held, settled = _active_set(lq, lower, upper, held, solve_free)
    if settled or step.status == "indefinite":
        return step, held
    inside, guess = _interior_point(lq, lower, upper, solve_free)
    if inside.status == "indefinite":
        return inside, held
    step, held, settled = _active_set(lq, lower, upper, guess, solve_free)
    return (step, held) if settled else (inside, guess)


def _active_set(lq: LQ, lower: np.ndarray, upper: np.ndarray, held: np.ndarray, solve_free: Solve) -> tuple[Step, np.ndarray, bool]:
    """(step, held, whether the step confirms what was held)."""
    scale = np.maximum(np.einsum("kii->ki", lq.R), 1e-300)
    for _ in range(_SETS):
        step = _held_step(lq, lower, upper, held, solve_free)
        if step.status == "indefinite":
            return step, held, False
        # against the gradient of the Lagrangian, as a distance in u: where that leads across a bound, it holds
        push = step.du - lq.residuals(step.dx, step.du, step.lam)[1] / scale
        slack = 1e-9 * np.maximum(1.0, np.abs(step.du))
        after = np.where(push > upper + slack, 1.0, np.where(push < lower - slack, -1.0, 0.0))
        if (after == held).all():
            return step, held, True
        held = after
    return step, held, False


def _held_step(lq: LQ, lower: np.ndarray, upper: np.ndarray, held: np.ndarray, solve_free: Solve) -> Step:
    which = held != 0
    if not which.any():
        return solve_free(lq)
    values = np.where(held > 0, upper, lower)
    step = solve_free(lq.fixed(which, np.where(which, values, 0.0)))
    step.du[which] = values[which]
    return step


def _interior_point(lq: LQ, lower: np.ndarray, upper: np.ndarray, solve_free: Solve) -> tuple[Step, np.ndarray]:
    """(a step near the optimum and strictly inside, which bounds it nears)."""
    below, above = np.isfinite(lower), np.isfinite(upper)
    du = _inside(lower, upper)
    step = solve_free(lq.fixed(np.ones(du.shape, bool), du))
    # multipliers begin as large as the gradient that bounds have to hold against
    z = float(np.abs(lq.residuals(step.dx, du, step.lam)[1]).mean()) or 1.0
    z_low, z_up = np.where(below, z, 0.0), np.where(above, z, 0.0)
    count, first, centring, dx = int(below.sum() + above.sum()), 0.0, 0.1, step.dx
    step = replace(step, du=du, status="limit")
    for _ in range(_INTERIOR):
        s_low, s_up = np.where(below, du - lower, 1.0), np.where(above, upper - du, 1.0)
        mu = float((z_low * s_low).sum() + (z_up * s_up).sum()) / count
        first = first or mu
        if not mu > _DONE * first:
            step = replace(step, status="solved")
            break
        weight = z_low / s_low + z_up / s_up
        push = centring * mu * (above / s_up - below / s_low)
        found = solve_free(replace(lq, R=lq.R + weight[:, :, None] * np.eye(lq.R.shape[1]), r=lq.r - weight * du + push))
        if found.status == "indefinite":
            break
        move = found.du - du
        dz_low = np.where(below, (centring * mu - z_low * move) / s_low - z_low, 0.0)
        dz_up = np.where(above, (centring * mu + z_up * move) / s_up - z_up, 0.0)
        changes = (s_low, move, below), (s_up, -move, above), (z_low, dz_low, below), (z_up, dz_up, above)
        length = min(_longest(*change) for change in changes)
        du, dx = du + length * move, dx + length * (found.dx - dx)
        z_low, z_up = z_low + length * dz_low, z_up + length * dz_up
        step = replace(found, dx=dx, du=du, status="limit")
        centring = 0.01 if length > 0.9 else 0.1 if length > 0.5 else 0.5
    scale = np.maximum(np.einsum("kii->ki", lq.R), 1e-300)
    near_low, near_up = below & (z_low / scale > du - lower), above & (z_up / scale > upper - du)
    return step, np.where(near_up, 1.0, np.where(near_low, -1.0, 0.0))


def _inside(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Near zero and away from bounds: by a tenth of the range, or where there is one bound alone, by a tenth of its size."""
    below, above = np.isfinite(lower), np.isfinite(upper)
    one = np.maximum(1.0, np.abs(np.where(below, lower, np.where(above, upper, 0.0))))
    margin = 0.1 * np.where(below & above, np.where(above, upper, 0.0) - np.where(below, lower, 0.0), one)
    return np.clip(0.0, lower + margin, upper - margin)


def _longest(value: np.ndarray, change: np.ndarray, where: np.ndarray) -> float:
    """The largest step, at most 1, that keeps values positive."""
    falling = where & (change < 0)
    return min(1.0, _BACK * float(np.min(-value[falling] / change[falling], initial=np.inf)))
