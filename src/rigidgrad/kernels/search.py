"""The policy of a descent, over scalars: which step sizes will do, which of them is taken, how the
regularisation follows, when a fall is none, and when that was the end.

Written once for floats (one problem), NumPy arrays (many at once) and recorded numbers: `programs`
has what devices call, where a truth is 1 or 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from rigidgrad.program import recorder
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, select

Truth = Any  # a bool, an array of them, or a recorded one


def expected_fall(alpha: Scalar, slope: Scalar, curve: Scalar) -> Scalar:
    """Of the cost with a step of α, by the quadratic model along the step: -(α s + ½ α² c)."""
    return -(alpha * slope + 0.5 * (alpha * alpha) * curve)


def acceptable(fall: Scalar, expected: Scalar, low: Scalar, high: Scalar) -> Truth:
    """Whether low < fall / expected < high (Plancher 2022, 4.2). NaN is never acceptable, nor is
    anything where nothing is expected.
    """
    both, square = fall * expected, expected * expected
    return (low * square < both) & (both < high * square)


def acceptable_with_defects(
    fall: Scalar,
    alpha: Scalar,
    slope: Scalar,
    closing: Scalar,
    worst: Scalar,
    armijo: Scalar,
    limit: Scalar,
) -> Truth:
    """Whether the merit function falls by enough of what its slope promises, `closing` being σ
    Σ|d|, and no defect is beyond the limit (2.11, 2.12).
    """
    return (armijo * alpha * (closing - slope) < fall) & (worst < limit)


# a penalty of defects so many times what the multipliers ask for now is of another trajectory, such
# as a guess that ran away: it begins again
FORGOTTEN = 1e8


def penalty(sigma: Scalar, closing: Scalar, slope: Scalar, curve: Scalar) -> Scalar:
    """σ, or more where a step that closes defects by that sum would not go downhill otherwise
    (Nocedal and Wright, 18.36).
    """
    needed = (slope + 0.5 * select(curve > 0.0, curve, 0.0)) / (0.5 * closing)
    return select(sigma < needed, needed, sigma)


def takes_over(fine: Truth, merit: Scalar, chosen: Scalar, least: Scalar, best: Truth) -> Truth:
    """Whether a step size is taken instead of the one `chosen` so far (-1: none), whose merit is
    `least`: the first that is fine, or the best.
    """
    return fine & ((chosen < 0.0) | (best & (merit < least)))


def choose(fine: Sequence[Truth], merits: Sequence[Scalar], best: Truth) -> Scalar:
    """The number of the first step size that is fine, or of the best; -1 where there is none."""
    chosen, least = -1.0, math.inf
    for k, merit in enumerate(merits):
        now = takes_over(fine[k], merit, chosen, least, best)
        if now is True:  # as `select` does, but sooner
            chosen, least = float(k), merit
        elif now is not False:
            chosen, least = select(now, float(k), chosen), select(now, merit, least)
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


JUDGED = ("running", "converged", "stalled", "slow", "trouble")  # what `judged` may say


def judged(
    taken: Scalar,
    usable: Scalar,
    expected: Scalar,
    fall: Scalar,
    cost: Scalar,
    alpha: Scalar,
    left: Scalar,
    rho: Scalar,
    low: Scalar,
    high: Scalar,
    tolerance: Scalar,
    negligible: Scalar,
    loose: Scalar,
    telling: Scalar,
    doubtful: Scalar,
    last_try: Scalar,
    singular: Scalar,
    slow: Scalar,
    patience: Scalar,
) -> tuple[Scalar, ...]:
    """After a backward pass with ρ and its trials: (a number in `JUDGED`, and the next ρ, last_try,
    singular, slow). Truths are 1 or 0.

    `usable`: the pass came through; a whole step then promises the fall `expected`. `taken`: there
    is a step, of size α, with this `fall` to the `cost`, which leaves σ Σ|d| = `left` of the
    defects; else `cost` is that of now. Small promises tell only without regularisation, or with
    the least one where there is no step without (`singular`); so where ρ held a step back, it is
    tried once more without (`last_try`). With `loose`, small falls of large steps tell, too. Falls
    expected up to `doubtful` may be lost in rounding. After `patience` small falls in a row a
    descent is slow.
    """
    small = nothing(tolerance, cost, negligible)
    light, bare = select(low < rho, 0.0, 1.0), select(rho > 0.0, 0.0, 1.0 - usable)
    measured = usable * select(rho > 0.0, singular * light, 1.0)
    promised = select(small < expected, 0.0, usable)  # nothing
    size = select(fall < 0.0, -fall, fall)
    fell = select(small < size, 0.0, 1.0)  # hardly
    little = loose * fell * select(alpha < telling, 0.0, 1.0)
    enough = (
        select(promised * measured > 0.0, 1.0, little)
        * light
        * select(10.0 * small < left, 0.0, 1.0)
    )
    count = fell * (slow + 1.0)
    after_step = select(enough > 0.0, 1.0, select(count < patience, 0.0, 3.0))

    refused, higher = 1.0 - promised, raised(rho, low)
    given_up = last_try * (1.0 - bare)
    exhausted = select(high < higher, select(usable > 0.0, 2.0, 4.0), 0.0)
    without = select(
        given_up > 0.0, select(doubtful < expected, 2.0, select(usable > 0.0, 1.0, 2.0)), exhausted
    )
    after_none = select(refused > 0.0, without, measured)
    once_more = promised * (1.0 - measured)
    raising = refused * (1.0 - given_up)
    next_rho = select(once_more > 0.0, 0.0, select(raising > 0.0, higher, rho))

    def of(step: Scalar, none: Scalar) -> Scalar:
        return select(taken > 0.0, step, none)

    again = select(once_more > 0.0, 1.0, last_try)
    flat = select(bare > 0.0, 1.0, singular)
    return (
        of(after_step, after_none),
        of(lowered(rho, low), next_rho),
        of(0.0, again),
        of(0.0, flat),
        of(count, slow),
    )


def judged_direct(
    taken: Scalar,
    definite: Scalar,
    small: Scalar,
    rho: Scalar,
    low: Scalar,
    high: Scalar,
    least: Scalar,
    refused: Scalar,
) -> tuple[Scalar, ...]:
    """After an LQ problem of the direct method with ρ, and its trials: (a number in `JUDGED`, and
    the next ρ, least, refused). Truths are 1 or 0.

    `definite`: it had a minimum; `small`: its step promises nothing; `taken`: a step was. `least`
    is the smallest ρ with which there is a minimum here, `refused` whether a step was refused here.
    A small step proves nothing where ρ is larger than it must be; nor is it an optimum where ρ must
    be there at all: a maximum or a saddle has no step either.
    """
    higher = raised(rho, low)
    unsure = small * select(least < rho, 1.0, 0.0)
    at_rest = select(unsure > 0.0, 2.0 * refused, select(low < least, 2.0, 1.0))
    moving = select(taken > 0.0, 0.0, select(high < higher, 2.0, 0.0))
    raising = (1.0 - small) * (1.0 - taken)
    next_rho = select(
        unsure > 0.0,
        0.0,
        select(taken > 0.0, lowered(rho, low), select(raising > 0.0, higher, rho)),
    )
    needed = select(raising * (1.0 - definite) > 0.0, higher, least)
    again = select(raising * definite > 0.0, 1.0, refused)
    return (
        select(small > 0.0, at_rest, moving),
        next_rho,
        select(taken > 0.0, 0.0, needed),
        select(taken > 0.0, 0.0, again),
    )


def programs() -> dict[str, Program]:
    """All of them by name, with numbers for arguments."""
    functions: tuple[Callable[..., Any], ...] = (
        expected_fall,
        acceptable,
        acceptable_with_defects,
        penalty,
        takes_over,
        raised,
        lowered,
        nothing,
        judged,
        judged_direct,
    )
    return {f.__name__: _program(f) for f in functions}


def _program(function: Callable[..., Any]) -> Program:
    parameters = signature(function).parameters
    inputs: dict[str, Shape] = dict.fromkeys(parameters, ())

    def evaluate(v: dict[str, Scalar]) -> tuple[Any, ...]:
        found = function(
            **{
                name: x > 0.0 if parameters[name].annotation == "Truth" else x
                for name, x in v.items()
            }
        )
        return (found.select(1.0, 0.0) if isinstance(found, recorder.Truth) else found,)

    several: Shape = {judged: (5,), judged_direct: (4,)}.get(function, ())
    return recorder.record(inputs, {"y": several}, evaluate)
