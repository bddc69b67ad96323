"""Small quadratic programs over scalars: minimise ½ xᵀH x + cᵀx with A x ≤ b.

`exchange` is a round of a primal-dual active set method for bounds alone (M. Hintermüller, K. Ito,
K. Kunisch, The primal-dual active set strategy as a semismooth Newton method, 2002). Where no bound
is active, its first round ends with the optimum.

`advance` is a round of Mehrotra's predictor and corrector, for all rows: it factors
H + Aᵀ diag(z/s) A once, along its zeros, and solves with it twice (Nocedal and Wright, Numerical
Optimization, 2006, section 16.6). Rows of A are sparse: {column: coefficient}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.joints import Vector
from rigidgrad.algorithms.sparsity import Supports
from rigidgrad.scalars import Scalar, add, is_constant, less, mul, neg, select, sub, total

Row = Mapping[int, Scalar]
Square = Sequence[Sequence[Scalar]]
_LEAST = 1e-30
_BACK = 0.99  # of the way to the nearest bound
_FIRST = 0.1  # slack of a bound that the first x touches, of the problem's scale


class Iterate(NamedTuple):
    """x, slacks s = b - A x > 0, multipliers z > 0."""

    x: Vector
    s: Vector
    z: Vector


def exchange(
    H: Square,
    c: Sequence[Scalar],
    lower: Mapping[int, Scalar],
    upper: Mapping[int, Scalar],
    held: Mapping[int, Scalar],
) -> tuple[Vector, dict[int, Scalar]]:
    """The optimum with each number where `held` has it, at its lower bound (-1), at its upper one
    (1) or free (0), and which bounds are to hold next: those that x violates, and those held ones
    that x is pushed against. Where these are the same, x is the optimum within the bounds.
    """
    n = len(c)
    at_low = {i: less(held[i], -0.5) for i in lower}
    at_high = {i: less(0.5, held[i]) for i in upper}
    free: dict[int, Scalar] = {}
    value: dict[int, Scalar] = {}
    for i in held:
        free[i], value[i] = 1.0, 0.0
        for at, bounds in ((at_low, lower), (at_high, upper)):
            if i in at:
                free[i] = select(at[i], 0.0, free[i])
                value[i] = select(at[i], bounds[i], value[i])
    K = [
        [
            mul(mul(H[i][j], free.get(i, 1.0)), free.get(j, 1.0))
            if i != j
            else add(mul(H[i][i], free.get(i, 1.0)), sub(1.0, free.get(i, 1.0)))
            for j in range(n)
        ]
        for i in range(n)
    ]
    right = []
    for i in range(n):
        pull = neg(add(c[i], total(mul(H[i][j], value[j]) for j in value)))
        right.append(add(mul(free[i], pull), value[i]) if i in free else pull)
    x = ltl.solve(ltl.factorize(K, supports(H)), right)
    after: dict[int, Scalar] = {}
    for i in held:
        slope = add(c[i], total(mul(h, y) for h, y in zip(H[i], x, strict=True)))
        now: Scalar = 0.0
        if i in lower:
            now = select(less(x[i], lower[i]), -1.0, now)
        if i in upper:
            now = select(less(upper[i], x[i]), 1.0, now)
        if i in lower:
            now = select(at_low[i], select(less(slope, 0.0), 0.0, -1.0), now)
        if i in upper:
            now = select(at_high[i], select(less(0.0, slope), 0.0, 1.0), now)
        after[i] = now
    return x, after


def first(c: Sequence[Scalar], b: Sequence[Scalar], length: Scalar) -> Iterate:
    """x = 0; `length` is how large x may become."""
    push = largest([absolute(x) for x in c])
    least = mul(_FIRST, length)
    return Iterate(
        tuple(0.0 * x for x in c),
        tuple(select(less(x, least), least, x) for x in b),
        tuple(add(push, 1e-12) + 0.0 * x for x in b),
    )


def advance(
    H: Square, c: Sequence[Scalar], A: Sequence[Row], b: Sequence[Scalar], at: Iterate
) -> Iterate:
    """One round."""
    x, s, z = at
    n, m = len(c), len(b)
    dual = [
        add(add(total(mul(h, y) for h, y in zip(row, x, strict=True)), k), 0.0)
        for row, k in zip(H, c, strict=True)
    ]
    for row, y in zip(A, z, strict=True):
        for i, a in row.items():
            dual[i] = add(dual[i], mul(a, y))
    primal = [sub(add(_apply(row, x), y), k) for row, y, k in zip(A, s, b, strict=True)]
    ratio = [y / k for y, k in zip(z, s, strict=True)]
    K = [list(row) for row in H]
    for row, r in zip(A, ratio, strict=True):
        for i, a in row.items():
            for j, d in row.items():
                K[i][j] = add(K[i][j], mul(mul(a, r), d))
    factor = ltl.factorize(K, supports(K))

    def direction(product: Sequence[Scalar]) -> tuple[Vector, list[Scalar], list[Scalar]]:
        """The step after which s z has changed by -product, to first order."""
        right = [neg(d) for d in dual]
        for row, r, p, y, k in zip(A, ratio, primal, product, s, strict=True):
            pull = sub(y / k, mul(r, p))
            for i, a in row.items():
                right[i] = add(right[i], mul(a, pull))
        dx = ltl.solve(factor, right)
        ds = [sub(neg(p), _apply(row, dx)) for row, p in zip(A, primal, strict=True)]
        dz = [neg(add(y / k, mul(r, d))) for y, k, r, d in zip(product, s, ratio, ds, strict=True)]
        return dx, ds, dz

    gap = [mul(y, k) for y, k in zip(s, z, strict=True)]
    _, ds, dz = direction(gap)
    room = _room(s, ds, z, dz)
    mean = mul(1.0 / m, total(gap))
    after = mul(
        1.0 / m,
        total(
            mul(add(y, mul(room, d)), add(k, mul(room, e)))
            for y, d, k, e in zip(s, ds, z, dz, strict=True)
        ),
    )
    share = after / add(mean, _LEAST)
    center = mul(mul(share, mul(share, share)), mean)
    dx, ds, dz = direction(
        [sub(add(g, mul(d, e)), center) for g, d, e in zip(gap, ds, dz, strict=True)]
    )
    room = mul(_BACK, _room(s, ds, z, dz))
    return Iterate(
        tuple(add(x[i], mul(room, dx[i])) for i in range(n)),
        tuple(_above(add(y, mul(room, d))) for y, d in zip(s, ds, strict=True)),
        tuple(_above(add(y, mul(room, d))) for y, d in zip(z, dz, strict=True)),
    )


def gap(at: Iterate) -> Scalar:
    """The largest product of a slack and its multiplier: how much is left to gain there."""
    return largest([mul(a, b) for a, b in zip(at.s, at.z, strict=True)])


def excess(A: Sequence[Row], b: Sequence[Scalar], x: Sequence[Scalar]) -> list[Scalar]:
    """A x - b."""
    return [sub(_apply(row, x), k) for row, k in zip(A, b, strict=True)]


def infeasibility(A: Sequence[Row], b: Sequence[Scalar], at: Iterate) -> Scalar:
    """The largest error of s = b - A x."""
    return largest(
        [absolute(sub(add(_apply(row, at.x), y), k)) for row, y, k in zip(A, at.s, b, strict=True)]
    )


def supports(A: Square) -> Supports:
    """Where the factor of a symmetric matrix is not zero, from the last row up."""
    rows = [{i for i in range(k) if not is_constant(A[k][i], 0.0)} for k in range(len(A))]
    for k in reversed(range(len(A))):
        for i in rows[k]:
            rows[i] |= {j for j in rows[k] if j < i}
    return tuple(tuple(sorted(row, reverse=True)) for row in rows)


def largest(values: Sequence[Scalar]) -> Scalar:
    """Of numbers that are not negative."""
    result: Scalar = 0.0
    for x in values:
        result = x if is_constant(result, 0.0) else select(less(result, x), x, result)
    return result


def absolute(x: Scalar) -> Scalar:
    return select(less(x, 0.0), -x, x)


def _room(
    s: Sequence[Scalar], ds: Sequence[Scalar], z: Sequence[Scalar], dz: Sequence[Scalar]
) -> Scalar:
    """The longest step, up to 1, that keeps slacks and multipliers positive."""
    fastest = largest(
        [
            select(less(d, 0.0), -d / x, 0.0 * x)
            for x, d in (*zip(s, ds, strict=True), *zip(z, dz, strict=True))
        ]
    )
    return select(less(1.0, fastest), 1 / select(less(1.0, fastest), fastest, 1.0), 1.0)


def _above(x: Scalar) -> Scalar:
    return select(less(x, _LEAST), _LEAST, x)


def _apply(row: Row, x: Sequence[Scalar]) -> Scalar:
    return total(mul(a, x[i]) for i, a in row.items())
