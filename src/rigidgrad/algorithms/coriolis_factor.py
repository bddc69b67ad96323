"""The Coriolis factor of a body or a subtree: the 6x6 matrix B with B v = v ×* I v (Echeandia and
Wensing 2021), in compact form.

It needs 12 numbers: with Σ = ½ tr(I)·1 - I, K = ω×Σ + v hᵀ and the linear momentum p, B = [[tr(K)·1
- K, 0], [-p×, 0]]. Both K and p add up over a subtree.
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.scalars import Scalar, add, mul, neg, sub
from rigidgrad.spatial import (
    ZERO3,
    Force,
    Inertia,
    Matrix3,
    Motion,
    Transform,
    Vector3,
    add3,
    cross3,
    rotate,
    rotate_back,
    rotate_matrix,
    scale3,
    sub3,
    transpose,
)


class CoriolisFactor(NamedTuple):
    """B of a body or of a whole subtree."""

    K: Matrix3
    p: Vector3

    def __add__(self, other: CoriolisFactor) -> CoriolisFactor:  # type: ignore[override]
        K: Matrix3 = tuple(add3(x, y) for x, y in zip(self.K, other.K, strict=True))
        return CoriolisFactor(K, add3(self.p, other.p))

    def times(self, m: Motion) -> Force:
        w = m.angular
        return Force(sub3(scale3(self._trace(), w), rotate(self.K, w)), cross3(w, self.p))

    def transposed_times(self, m: Motion) -> Force:
        w, v = m
        return Force(
            add3(sub3(scale3(self._trace(), w), rotate_back(self.K, w)), cross3(self.p, v)), ZERO3
        )

    def _trace(self) -> Scalar:
        return add(add(self.K[0][0], self.K[1][1]), self.K[2][2])


def body_factor(inertia: Inertia, velocity: Motion) -> CoriolisFactor:
    m, h, (xx, xy, yy, xz, yz, zz) = inertia
    w, v = velocity
    half = _half(add(add(xx, yy), zz))
    sigma: Matrix3 = (
        (sub(half, xx), neg(xy), neg(xz)),
        (neg(xy), sub(half, yy), neg(yz)),
        (neg(xz), neg(yz), sub(half, zz)),
    )
    turned = transpose(tuple(cross3(w, column) for column in sigma))
    K: Matrix3 = tuple(add3(turned[i], scale3(v[i], h)) for i in range(3))
    return CoriolisFactor(K, add3(scale3(m, v), cross3(w, h)))


def _half(x: Scalar) -> Scalar:
    return 0.0 if type(x) is float and x == 0.0 else x / 2


def factor_back(X: Transform, factor: CoriolisFactor) -> CoriolisFactor:
    """A child's factor in its parent's frame."""
    p = rotate_back(X.E, factor.p)
    K = rotate_matrix(transpose(X.E), factor.K)
    shifted: Matrix3 = tuple(
        tuple(add(K[i][j], mul(p[i], X.r[j])) for j in range(3)) for i in range(3)
    )
    return CoriolisFactor(shifted, p)
