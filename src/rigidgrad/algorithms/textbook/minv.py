"""The inverse of the mass matrix without the mass matrix (Plancher 2022, Algorithm 9, for joints
with any number of freedoms).
"""

from __future__ import annotations

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.joints import (
    Matrix,
    Vector,
    body_transforms,
    combine,
    inertias,
    joint_space,
    subspaces,
)
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.algorithms.textbook.articulated import joint_inertia, without_joint
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, neg, sub
from rigidgrad.spatial import ZERO_FORCE, Force, Motion


def minv(model: Model, q: Vector) -> Matrix:
    """M(q)⁻¹, both triangles: nv x nv. With mimic joints, through the factorised projected mass
    matrix.
    """
    if model.has_mimic:
        return ltl.inverse(ltl.factorize(crba(model, q), supports(model), model.joints))
    X, S = body_transforms(model, q), subspaces(model)
    IA = [inertia.articulated() for inertia in inertias(model)]
    n = model.dofs
    inverse: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    U: list[list[Force]] = [[] for _ in model.bodies]
    D: list[ltl.Factor] = [None] * len(U)  # type: ignore[list-item]
    F: list[dict[int, Force]] = [{} for _ in model.bodies]  # column -> force
    for i in reversed(model.bodies):
        own = range(model.joints[i].dof, model.joints[i].dof + model.joints[i].nv)
        U[i] = [IA[i].times(s) for s in S[i]]
        D[i] = joint_inertia(model, i, S[i], U[i])
        block = ltl.inverse(D[i])
        for k, row in zip(own, block, strict=True):
            inverse[k][own.start : own.stop] = row
        for column, f in F[i].items():
            for k, x in zip(own, ltl.solve(D[i], joint_space(S[i], f)), strict=True):
                inverse[k][column] = neg(x)
        parent = model.parents[i]
        if parent != WORLD:
            for column in (*own, *F[i]):
                f = F[i].get(column, ZERO_FORCE)
                for k, u in zip(own, U[i], strict=True):
                    f = f + u.scale(inverse[k][column])
                # no other child of the parent has this column
                F[parent][column] = X[i].force_back(f)
            IA[parent] = IA[parent] + X[i].articulated_back(without_joint(IA[i], U[i], D[i]))
    A: list[dict[int, Motion]] = [{} for _ in model.bodies]  # column -> acceleration
    for i in model.bodies:
        own = range(model.joints[i].dof, model.joints[i].dof + model.joints[i].nv)
        carried: dict[int, Motion] = {}
        if model.parents[i] != WORLD:
            carried = {c: X[i].motion(a) for c, a in A[model.parents[i]].items() if c >= own.start}
            for column, a in carried.items():
                for k, x in zip(own, ltl.solve(D[i], [u.dot(a) for u in U[i]]), strict=True):
                    inverse[k][column] = sub(inverse[k][column], x)
        columns = sorted({*own, *F[i], *carried})
        for column in columns:
            a = combine(S[i], [inverse[k][column] for k in own])
            A[i][column] = a + carried[column] if column in carried else a
    return tuple(tuple(inverse[min(i, j)][max(i, j)] for j in range(n)) for i in range(n))
