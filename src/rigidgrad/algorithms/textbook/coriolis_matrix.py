"""The Coriolis matrix C(q, v) with Ṁ - 2C skew-symmetric (Echeandia and Wensing 2021)."""

from __future__ import annotations

from rigidgrad.algorithms.coriolis_factor import body_factor, factor_back
from rigidgrad.algorithms.crba import composite_inertias
from rigidgrad.algorithms.joints import (
    Matrix,
    Vector,
    body_transforms,
    inertias,
    joint_space,
    project,
    subspaces,
)
from rigidgrad.algorithms.textbook.momentum import body_velocities
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, add


def coriolis_matrix(model: Model, q: Vector, v: Vector) -> Matrix:
    """C(q, v): nv x nv, with C v + g = bias."""
    X, S = body_transforms(model, q), subspaces(model)
    velocity, composite = body_velocities(model, X, v), composite_inertias(model, X)
    B = [body_factor(I, m) for I, m in zip(inertias(model), velocity, strict=True)]
    for i in reversed(model.bodies):
        parent = model.parents[i]
        if parent != WORLD:
            B[parent] = B[parent] + factor_back(X[i], B[i])
    # dS/dt seen from the ground
    rate = [[velocity[i].cross(s) for s in S[i]] for i in model.bodies]
    C: list[list[Scalar]] = [[0.0] * model.dofs for _ in range(model.dofs)]
    for j in model.bodies:
        for column, (s, s_rate) in enumerate(zip(S[j], rate[j], strict=True), model.joints[j].dof):
            f1 = composite[j].times(s_rate) + B[j].times(s)
            f2, f3 = composite[j].times(s), B[j].transposed_times(s)
            i = j
            while True:
                for k, row in enumerate(
                    range(model.joints[i].dof, model.joints[i].dof + model.joints[i].nv)
                ):
                    C[row][column] = joint_space(S[i], f1)[k]
                    if i != j:
                        C[column][row] = add(f2.dot(rate[i][k]), f3.dot(S[i][k]))
                if model.parents[i] == WORLD:
                    break
                f1, f2, f3 = X[i].force_back(f1), X[i].force_back(f2), X[i].force_back(f3)
                i = model.parents[i]
    return project(model, C)
