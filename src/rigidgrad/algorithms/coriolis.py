"""The Coriolis matrix C(q, v) with Ṁ - 2C skew-symmetric (Echeandia and Wensing 2021), in compact form.

For one body the 6x6 factor B with B v = v ×* I v needs 12 numbers: with Σ = ½ tr(I)·1 - I, K = ω×Σ + v hᵀ and the linear momentum p,
B = [[tr(K)·1 - K, 0], [-p×, 0]]. Both K and p add up over a subtree.
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.algorithms.crba import composite_inertias
from rigidgrad.algorithms.joints import Matrix, Vector, body_transforms, inertias, joint_space, project, subspaces
from rigidgrad.algorithms.momentum import body_velocities
from rigidgrad.model.model import WORLD, Model
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
        return Force(add3(sub3(scale3(self._trace(), w), rotate_back(self.K, w)), cross3(self.p, v)), ZERO3)

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
    shifted: Matrix3 = tuple(tuple(add(K[i][j], mul(p[i], X.r[j])) for j in range(3)) for i in range(3))
    return CoriolisFactor(shifted, p)


def coriolis_matrix(model: Model, q: Vector, v: Vector) -> Matrix:
    """C(q, v): nv x nv, with C v + g = bias."""
    X, S = body_transforms(model, q), subspaces(model)
    velocity, composite = body_velocities(model, X, v), composite_inertias(model, X)
    B = [body_factor(I, m) for I, m in zip(inertias(model), velocity, strict=True)]
    for i in reversed(model.bodies):
        parent = model.parents[i]
        if parent != WORLD:
            B[parent] = B[parent] + factor_back(X[i], B[i])
    rate = [[velocity[i].cross(s) for s in S[i]] for i in model.bodies]  # dS/dt seen from the ground
    C: list[list[Scalar]] = [[0.0] * model.dofs for _ in range(model.dofs)]
    for j in model.bodies:
        for column, (s, s_rate) in enumerate(zip(S[j], rate[j], strict=True), model.joints[j].dof):
            f1 = composite[j].times(s_rate) + B[j].times(s)
            f2, f3 = composite[j].times(s), B[j].transposed_times(s)
            i = j
            while True:
                for k, row in enumerate(range(model.joints[i].dof, model.joints[i].dof + model.joints[i].nv)):
                    C[row][column] = joint_space(S[i], f1)[k]
                    if i != j:
                        C[column][row] = add(f2.dot(rate[i][k]), f3.dot(S[i][k]))
                if model.parents[i] == WORLD:
                    break
                f1, f2, f3 = X[i].force_back(f1), X[i].force_back(f2), X[i].force_back(f3)
                i = model.parents[i]
    return project(model, C)
