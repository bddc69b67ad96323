"""What the backward pass does with single numbers and rows, over scalars: the bodies of
`kernels.riccati`. Vectors are tuples; of one number, that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigidgrad.scalars import Scalar, less, select, total

Rows = Sequence[Any]  # one of each output: a row of numbers, or a number

FAR = 1e30  # a bound that does not hold


def numbers(x: Any) -> list[Scalar]:
    return list(x) if isinstance(x, tuple) else [x]


def dot(x: Any, y: Any) -> Scalar:
    return total(a * b for a, b in zip(numbers(x), numbers(y), strict=True))


def sums(h: Scalar, a: Any, b: Any) -> list[Scalar]:
    return [y + h * x for x, y in zip(numbers(a), numbers(b), strict=True)]


def scaled(factor: Scalar, x: Any) -> list[Scalar]:
    return [factor * a for a in numbers(x)]


def added(g: Any, l: Any) -> Rows:
    return [[x + y for x, y in zip(numbers(g), numbers(l), strict=True)]]


def mixed(h: Scalar, a: Any, b: Any) -> Rows:
    """Rows of W = h V_q + V_v, and of Z = h W_q + W_v."""
    W = sums(h, a, b)
    half = len(W) // 2
    return W[:half], W[:half], sums(h, tuple(W[:half]), tuple(W[half:]))


def placed(h: Scalar, b: Any) -> Rows:
    """Rows of W = V_v, of [W_q, h W_q] and of Z = V_vv."""
    b = numbers(b)
    half = len(b) // 2
    return b[:half], b[:half], scaled(h, tuple(b[:half])), b[half:]


def behind(h: Scalar, V: Any, N: Any) -> Rows:
    """Rows of N_q = V_qq + VᵀG_q, h N_q and h N_v with N_v = h V_qq + VᵀG_v."""
    V, N = numbers(V), numbers(N)
    half = len(V)
    first = [x + y for x, y in zip(V, N[:half], strict=True)]
    return (
        first,
        scaled(h, tuple(first)),
        [h * (y + h * x) for x, y in zip(V, N[half:], strict=True)],
    )


def carried_gradient(g: Any, v: Any, h: Scalar, f: Any = None) -> Rows:
    first = [x + y for x, y in zip(numbers(g), numbers(v), strict=True)]
    return [first] if f is None else [first, sums(h, v, f)]


def room(u: Any, lower: Any, upper: Any, held: Any) -> Rows:
    """How far controls that are at a bound may go beyond it: not at all; others as they like. What
    was held and is at its bound no more, is not.
    """
    lows, highs, helds = [], [], []
    for x, low, high, own in zip(*map(numbers, (u, lower, upper, held)), strict=True):
        below, above = low - x, high - x
        lows.append(select(less(x, low), below, select(less(low, x), -FAR, 0.0)))
        highs.append(select(less(high, x), above, select(less(x, high), FAR, 0.0)))
        touched = select(less(low, x), select(less(x, high), 0.0, own), own)
        helds.append(touched)
    return lows, highs, helds, 0.0


def is_held(x: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    return select(less(0.0, x), yes, select(less(x, 0.0), yes, no))


def bound(held: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Where a held control goes; 0 of others."""
    return select(less(0.0, held), high, select(less(held, 0.0), low, 0.0))


def freed(R: Any = None, **v: Any) -> Rows:
    """A row of R and of the right-hand side: a held control's own has only where it goes, and
    others meet it there. Its diagonal follows.
    """
    helds, lows, highs, H = (numbers(v[name]) for name in ("held", "low", "high", "H"))
    own = v["i_held"]
    right = v["i_g"]
    for x, held, low, high in zip(H, helds, lows, highs, strict=True):
        right = right + x * bound(held, low, high)
    row = [is_held(held, 0.0, is_held(own, 0.0, x)) for x, held in zip(H, helds, strict=True)]
    return row, is_held(own, -bound(own, v["i_low"], v["i_high"]), right), own


def ones(held: Any, d: Any) -> Rows:
    return [[is_held(x, 1.0, y) for x, y in zip(numbers(held), numbers(d), strict=True)]]


def judged(**v: Any) -> Rows:
    """Whether a control is held next, and whether that is so now."""
    own, kappa = v["i_held"], v["i_kappa"]
    slope = v["i_g"] + dot(v["H"], v["kappa"])
    # where the slope is negative the cost falls with a larger control
    free = select(less(v["i_high"], kappa), 1.0, select(less(kappa, v["i_low"]), -1.0, 0.0))
    up, down = select(less(slope, 0.0), 1.0, 0.0), select(less(0.0, slope), -1.0, 0.0)
    after = select(less(0.0, own), up, select(less(own, 0.0), down, free))
    return after, select(less(after, own), 0.0, select(less(own, after), 0.0, v["settled"]))


def where_free(one: Scalar, x: Any) -> Rows:
    return [[is_held(one, 0.0, y) for y in numbers(x)]]


def clamped(x: Any, low: Any, high: Any) -> Rows:
    found = []
    for y, a, b in zip(*map(numbers, (x, low, high)), strict=True):
        y = select(less(y, b), y, b)
        found.append(select(less(a, y), y, a))
    return [found]


def calm_within(calm: Scalar, set: Any, settled: Scalar) -> Rows:
    """Whether the gains solve the equations of H itself: without ρ, and with no control held."""
    for x in numbers(set):
        calm = is_held(x, 0.0, calm)
    return [select(less(0.0, settled), calm, 0.0)]


def ended(kappa: Any, g: Any, g_x: Any, slope: Scalar, curve: Scalar) -> Rows:
    own = dot(kappa, g)
    return numbers(g_x), slope + own, curve - own


def corrected(calm: Scalar, x: Any, U: Any, H: Any = None) -> Rows:
    """x + U, and U - H; zero where there is nothing to correct, so that a problem does not feel
    others.
    """
    own = [select(less(0.0, calm), 0.0, a + b) for a, b in zip(numbers(x), numbers(U), strict=True)]
    return (
        [own]
        if H is None
        else [
            own,
            [
                select(less(0.0, calm), 0.0, a - b)
                for a, b in zip(numbers(U), numbers(H), strict=True)
            ],
        ]
    )
