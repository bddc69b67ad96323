"""The policy of a descent, over scalars: which step sizes will do, which of them is taken, how the regularisation follows, and when a fall is none.

Written once for floats (one problem), NumPy arrays (many at once) and recorded numbers: `programs` has what devices call. Truth is 1 or 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature

from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, select


def expected_fall(alpha: Scalar, slope: Scalar, curve: Scalar) -> Scalar:
    """Of the cost with a step of α, by the quadratic model along the step: -(α s + ½ α² c)."""
    return -(alpha * slope + 0.5 * (alpha * alpha) * curve)


def acceptable(fall: Scalar, expected: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Whether low < fall / expected < high (Plancher 2022, 4.2). NaN is never acceptable, nor is anything where nothing is expected."""
    sign = select(expected < 0.0, -1.0, 1.0)
    e, f = sign * expected, sign * fall
    return select(e > 0.0, select(low * e < f, select(f < high * e, 1.0, 0.0), 0.0), 0.0)


def acceptable_with_defects(
    fall: Scalar, alpha: Scalar, slope: Scalar, closing: Scalar, worst: Scalar, armijo: Scalar, limit: Scalar
) -> Scalar:
    """Whether the merit function falls by enough of what its slope promises, `closing` being σ Σ|d|, and no defect is beyond the limit (2.11, 2.12)."""
    return select(armijo * alpha * (closing - slope) < fall, select(worst < limit, 1.0, 0.0), 0.0)


def penalty(sigma: Scalar, closing: Scalar, slope: Scalar, curve: Scalar) -> Scalar:
    """σ, or more where a step that closes defects by that sum would not go downhill otherwise (Nocedal and Wright, 18.36)."""
    needed = (slope + 0.5 * select(curve > 0.0, curve, 0.0)) / (0.5 * closing)
    return select(sigma < needed, needed, sigma)


def taken(number: Scalar, fine: Scalar, merit: Scalar, chosen: Scalar, least: Scalar, best: Scalar) -> tuple[Scalar, Scalar]:
    """The step size chosen so far and its merit, after that of this number: the first one that is fine, or the best."""
    better = select(chosen < 0.0, 1.0, select(merit < least, best, 0.0))
    now = select(fine > 0.0, better, 0.0)
    return select(now > 0.0, number, chosen), select(now > 0.0, merit, least)


def choose(fine: Sequence[Scalar], merits: Sequence[Scalar], best: Scalar) -> Scalar:
    """The number of the first step size that is fine, or of the best; -1 where there is none."""
    chosen, least = -1.0, math.inf
    for k, (own, merit) in enumerate(zip(fine, merits, strict=True)):
        chosen, least = taken(float(k), own, merit, chosen, least, best)
    return chosen


def raised(rho: Scalar, low: Scalar) -> Scalar:
    """The regularisation after a step that was refused."""
    return select(10.0 * rho < low, low, 10.0 * rho)


def lowered(rho: Scalar, low: Scalar) -> Scalar:
    """And after one that was taken."""
    return select(low < rho, rho / 10.0, 0.0)


def nothing(tolerance: Scalar, J: Scalar, negligible: Scalar) -> Scalar:
    """A fall of the cost that counts for nothing."""
    part = tolerance * select(J < 0.0, -J, J)
    return select(part < negligible, negligible, part)


def programs() -> dict[str, Program]:
    """All of them by name, with numbers for arguments."""
    functions: tuple[Callable, ...] = (expected_fall, acceptable, acceptable_with_defects, penalty, taken, raised, lowered, nothing)
    return {f.__name__: _program(f) for f in functions}


def _program(function: Callable) -> Program:
    inputs: dict[str, Shape] = dict.fromkeys(signature(function).parameters, ())

    def evaluate(v: dict[str, Scalar]) -> tuple:
        found = function(**v)
        return found if isinstance(found, tuple) else (found,)

    count = 2 if function is taken else 1
    return record(inputs, {f"y{k}": () for k in range(count)}, evaluate)
