"""The least of ½ zᵀHz + gᵀz + ½ω |Az - b|² where blocks of z lie in cones: an interior-point
method, one round at a time.

A block of three, (z₀, z₁, z₂), has |(z₁, z₂)| ≤ z₀; a block of one is not negative; numbers outside
of blocks are free. With the multipliers y = ω (b - Az) and s of the blocks, which lie in the same
cones,

    Hz + g - Aᵀy = s,        Az + y/ω = b,        z ∘ s = 0.

No number of the size of ω appears. A round replaces the last by σμ, μ the mean of z·s, and
linearises it at the scaling W of Nesterov and Todd, which turns z and s into one point. With K = H
+ W⁻² = LᵀDL and z⁻¹ the inverse of the cone's algebra,

    K δ - Aᵀ δy = -(Hz + g - Aᵀy) + p,        A δ + δy/ω = b - Az - y/ω,        δs = -s + p - W⁻² δ,
    p = σμ z⁻¹ - W⁻¹ u.

A first solve with p = 0 says how far one could go, α; then σ = (1 - α)³, and λ ∘ u = (W⁻¹ δ) ∘ (W
δs) with λ = W⁻¹ z = W s is what that solve left out: Mehrotra's choice. Where linear conditions
nearly hold, a round that follows one without progress leaves u out and returns to the middle of the
cones, σ ≥ 0.3, or it might go round in circles. Andersen, Roos and Terlaky 2003.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.sparsity import dense
from rigidgrad.scalars import Scalar, add, div, less, mul, neg, select, sqrt, sub, total

ROUNDS = 50
_INTERIOR = 0.99  # of the way to the border of the cones
_PROGRESS = 0.7  # of the error before
_EARLY = 0.01  # while linear conditions fail by more, no progress is expected of each round
_CENTRAL = 0.3  # the least σ of a round that has to find the middle of the cones
_SHORTEST = 1e-8  # of a direction, or rounding has made it
_FLAT = 1e-30  # of a block's length squared: below this it has no direction left

Blocks = tuple[tuple[int, ...], ...]  # the numbers of z that lie in a cone together


class Program(NamedTuple):
    """What is to be solved; constants 0.0 in H and A are zero for all states."""

    H: Matrix
    g: Vector
    A: Matrix
    b: Vector
    weak: Scalar  # 1/ω
    rounding: Scalar  # of the numbers that it is solved with


class Iterate(NamedTuple):
    """z, the multipliers y, and s, as long as z and zero for what is free; by how much the
    conditions of optimality fail.
    """

    z: Vector
    y: Vector
    s: Vector
    error: Scalar
    eager: Scalar  # 1, or 0 after a round without progress


def start(size: int, equations: int, blocks: Blocks) -> Iterate:
    inside = [0.0] * size
    for block in blocks:
        inside[block[0]] = 1.0
    return Iterate(tuple(inside), (0.0,) * equations, tuple(inside), 1.0, 1.0)


def is_done(p: Program, error: Scalar) -> Scalar:
    """1 where no further round is worth it, else 0: the error is below rounding^¾."""
    root = sqrt(p.rounding)
    return _holds(less(error, mul(root, sqrt(root))))


def is_solved(p: Program, error: Scalar) -> Scalar:
    """1 where the conditions of optimality hold to √rounding, else 0."""
    return _holds(less(error, sqrt(p.rounding)))


def one_round(p: Program, x: Iterate, blocks: Blocks) -> tuple[Iterate, Scalar]:
    """The next iterate, and whether it is to be taken (1): not (0) where rounding has the better of
    it, which the round before then is the last for.
    """
    z, y, s, _, _ = x
    n = len(z)
    slope, missing, gap = _conditions(p, x, blocks)
    K = [list(line) for line in p.H]
    scalings = [Scaling.of([z[i] for i in block], [s[i] for i in block]) for block in blocks]
    for block, scaling in zip(blocks, scalings, strict=True):
        for i, line in zip(block, scaling.square(), strict=True):
            for j, k in zip(block, line, strict=True):
                K[i][j] = add(K[i][j], k)
    factor = ltl.factorize(K, dense(n))
    Y = [ltl.half_solve(factor, line) for line in p.A]
    scaled = [[mul(k, d) for k, d in zip(line, factor.inverse_d, strict=True)] for line in Y]
    S = [
        [add(_dot(scaled[i], Y[j]), p.weak if i == j else 0.0) for j in range(i + 1)]
        for i in range(len(Y))
    ]
    schur = ltl.factorize(S, dense(len(Y)))

    def direction(pull: Sequence[Scalar]) -> Iterate:
        half = ltl.half_solve(factor, [sub(k, rise) for k, rise in zip(pull, slope, strict=True)])
        change_y = ltl.solve(
            schur, [sub(k, _dot(line, half)) for k, line in zip(missing, scaled, strict=True)]
        )
        whole = [
            add(k, total(mul(line[i], c) for line, c in zip(Y, change_y, strict=True)))
            for i, k in enumerate(half)
        ]
        change = ltl.other_half(
            factor, [mul(k, d) for k, d in zip(whole, factor.inverse_d, strict=True)]
        )
        back: list[Scalar] = [0.0] * n
        for block, scaling in zip(blocks, scalings, strict=True):
            for i, line in zip(block, scaling.square(), strict=True):
                back[i] = sub(sub(pull[i], s[i]), _dot(line, [change[j] for j in block]))
        return Iterate(change, change_y, tuple(back), 0.0, 0.0)

    def reach(d: Iterate) -> Scalar:
        """How far z and s stay inside, at most 1."""
        deepest: Scalar = _INTERIOR
        for block in blocks:
            for here, there in ((z, d.z), (s, d.s)):
                deepest = _larger(
                    deepest, neg(_lowest([here[i] for i in block], [there[i] for i in block]))
                )
        return div(_INTERIOR, deepest)

    first = direction([0.0] * n)
    left = sub(1.0, reach(first))
    sigma = _larger(mul(left, mul(left, left)), mul(_CENTRAL, sub(1.0, x.eager)))
    mu = div(mul(gap, sigma), float(max(len(blocks), 1)))
    pull: list[Scalar] = [0.0] * n
    for block, scaling in zip(blocks, scalings, strict=True):
        out = scaling.left_out([first.z[i] for i in block], [first.s[i] for i in block])
        for i, k, c in zip(block, _inverse([z[i] for i in block]), out, strict=True):
            pull[i] = sub(mul(mu, k), mul(x.eager, c))
    d = direction(pull)
    alpha = reach(d)

    def moved(here: Vector, there: Vector) -> Vector:
        return tuple(add(k, mul(alpha, c)) for k, c in zip(here, there, strict=True))

    new = Iterate(moved(z, d.z), moved(y, d.y), moved(s, d.s), 0.0, 0.0)
    unmet, gap = _errors(p, new, blocks)
    error = add(unmet, gap)
    new = new._replace(
        error=error,
        eager=select(less(error, mul(_PROGRESS, x.error)), 1.0, _holds(less(_EARLY, unmet))),
    )
    # a small error that grows again is rounding's; NaN is in no order
    sound = select(less(error, x.error), 1.0, _holds(less(sqrt(p.rounding), x.error)))
    return new, mul(mul(sound, _holds(less(_SHORTEST, alpha))), _holds(less(0.0, error)))


def _conditions(
    p: Program, x: Iterate, blocks: Blocks
) -> tuple[list[Scalar], list[Scalar], Scalar]:
    """Hz + g - Aᵀy, b - Az - y/ω and z·s."""
    pushed = [
        total(mul(line[i], k) for line, k in zip(p.A, x.y, strict=True)) for i in range(len(x.z))
    ]
    slope = [
        sub(add(_dot(line, x.z), k), push) for line, k, push in zip(p.H, p.g, pushed, strict=True)
    ]
    missing = [
        sub(sub(k, _dot(line, x.z)), mul(p.weak, force))
        for line, k, force in zip(p.A, p.b, x.y, strict=True)
    ]
    return slope, missing, total(mul(x.z[i], x.s[i]) for block in blocks for i in block)


def _errors(p: Program, x: Iterate, blocks: Blocks) -> tuple[Scalar, Scalar]:
    """What is left of the conditions of optimality, of the linear ones and of z·s, each beside its
    terms and 1, the size of what is asked for. NaN where a number is.
    """
    slope, missing, gap = _conditions(p, x, blocks)
    apart = _distance(sub(k, m) for k, m in zip(slope, x.s, strict=True))
    value = _larger(_dot(x.y, p.b), 1.0)
    return add(div(apart, add(1.0, _distance([*x.s, *x.y]))), _distance(missing)), div(gap, value)


def _holds(condition: Scalar) -> Scalar:
    return select(condition, 1.0, 0.0)


class Scaling(NamedTuple):
    """W of a block: W⁻¹ z = W s = λ. Of three numbers, W⁻² = ratio (2 w wᵀ - J), J the diagonal
    matrix of 1, -1, -1; of one, W⁻² = ratio and w is (1).
    """

    w: list[Scalar]
    ratio: Scalar  # √(det s / det z)
    point: list[Scalar]  # λ
    size: Scalar  # det λ

    @classmethod
    def of(cls, z: Sequence[Scalar], s: Sequence[Scalar]) -> Scaling:
        if len(z) == 1:
            size = mul(z[0], s[0])
            return cls([1.0], div(s[0], z[0]), [sqrt(size)], size)
        root_z, root_s = sqrt(_determinant(z)), sqrt(_determinant(s))
        zn, sn = [div(k, root_z) for k in z], [div(k, root_s) for k in s]
        gamma = sqrt(mul(2.0, add(1.0, _dot(zn, sn))))
        # half way between s and z⁻¹, of length one in the cone's sense
        w = [
            div(add(zn[0], sn[0]), gamma),
            div(sub(sn[1], zn[1]), gamma),
            div(sub(sn[2], zn[2]), gamma),
        ]
        half = cls(w, div(root_s, root_z), [], mul(root_z, root_s))
        return half._replace(point=half.down(z))

    def square(self) -> list[list[Scalar]]:
        """W⁻²."""
        if len(self.w) == 1:
            return [[self.ratio]]
        signs = (1.0, -1.0, -1.0)
        w = self.w
        return [
            [
                mul(self.ratio, sub(mul(2.0, mul(w[i], w[j])), signs[i] if i == j else 0.0))
                for j in range(3)
            ]
            for i in range(3)
        ]

    def down(self, x: Sequence[Scalar]) -> list[Scalar]:
        """W⁻¹ x."""
        root = sqrt(self.ratio)
        if len(self.w) == 1:
            return [mul(root, x[0])]
        across = _dot(self.w[1:], x[1:])
        share = add(x[0], div(across, add(1.0, self.w[0])))
        return [
            mul(root, add(mul(self.w[0], x[0]), across)),
            *(mul(root, add(k, mul(w, share))) for k, w in zip(x[1:], self.w[1:], strict=True)),
        ]

    def up(self, x: Sequence[Scalar]) -> list[Scalar]:
        """W x."""
        first, *rest = self.down([x[0], *map(neg, x[1:])])
        return [div(first, self.ratio), *(neg(div(k, self.ratio)) for k in rest)]

    def left_out(self, dz: Sequence[Scalar], ds: Sequence[Scalar]) -> list[Scalar]:
        """W⁻¹ u with λ ∘ u = (W⁻¹ dz) ∘ (W ds)."""
        a, b, point = self.down(dz), self.up(ds), self.point
        c = [
            _dot(a, b),
            *(add(mul(a[0], k), mul(b[0], m)) for k, m in zip(b[1:], a[1:], strict=True)),
        ]
        first = (
            div(sub(mul(point[0], c[0]), _dot(point[1:], c[1:])), self.size)
            if len(point) == 3
            else div(c[0], point[0])
        )
        return self.down(
            [
                first,
                *(
                    div(sub(k, mul(first, m)), point[0])
                    for k, m in zip(c[1:], point[1:], strict=True)
                ),
            ]
        )


def _lowest(z: Sequence[Scalar], d: Sequence[Scalar]) -> Scalar:
    """The least eigenvalue of d seen from z: z + α d stays inside while 1 + α of it is positive."""
    if len(z) == 1:
        return div(d[0], z[0])
    root = sqrt(_determinant(z))
    zn, dn = [div(k, root) for k in z], [div(k, root) for k in d]
    first = sub(sub(mul(zn[0], dn[0]), mul(zn[1], dn[1])), mul(zn[2], dn[2]))
    share = div(add(first, dn[0]), add(zn[0], 1.0))
    rest = [sub(dn[i], mul(share, zn[i])) for i in (1, 2)]
    return sub(first, sqrt(_dot(rest, rest)))


def _inverse(z: Sequence[Scalar]) -> list[Scalar]:
    if len(z) == 1:
        return [div(1.0, z[0])]
    d = _determinant(z)
    return [div(z[0], d), neg(div(z[1], d)), neg(div(z[2], d))]


def _determinant(z: Sequence[Scalar]) -> Scalar:
    """z₀² - |(z₁, z₂)|², by a form without cancellation at the border."""
    length = sqrt(_dot(z[1:], z[1:]))
    return _larger(mul(sub(z[0], length), add(z[0], length)), _FLAT)


def _dot(x: Sequence[Scalar], y: Sequence[Scalar]) -> Scalar:
    return total(mul(a, b) for a, b in zip(x, y, strict=True))


def _absolute(x: Scalar) -> Scalar:
    return select(less(x, 0.0), neg(x), x)


def _distance(numbers: Iterable[Scalar]) -> Scalar:
    return total(_absolute(x) for x in numbers)


def _larger(x: Scalar, y: Scalar) -> Scalar:
    return select(less(x, y), y, x)
