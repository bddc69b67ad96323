"""Composite rigid bodies: the joint-space mass matrix (Featherstone 2008, table 6.2)."""

from __future__ import annotations

from rigidgrad.algorithms.joints import (
    Matrix,
    Vector,
    body_transforms,
    inertias,
    joint_space,
    project,
    subspaces,
)
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, add
from rigidgrad.spatial import Inertia, Transform


def crba(model: Model, q: Vector) -> Matrix:
    """M(q), both triangles: nv x nv."""
    return project(model, mass_matrix(model, body_transforms(model, q)))


def composite_inertias(model: Model, X: list[Transform]) -> list[Inertia]:
    """Inertia of each body with all that hangs on it, in its frame."""
    composite = inertias(model)
    for i in reversed(model.bodies):
        parent = model.parents[i]
        if parent != WORLD:
            composite[parent] = composite[parent] + X[i].inertia_back(composite[i])
    return composite


def mass_matrix(model: Model, X: list[Transform]) -> list[list[Scalar]]:
    """M over all degrees of freedom, mimic joints counted on their own."""
    S, composite = subspaces(model), composite_inertias(model, X)
    M: list[list[Scalar]] = [[0.0] * model.dofs for _ in range(model.dofs)]
    for j in model.bodies:
        column = model.joints[j].dof
        for k, s in enumerate(S[j]):
            f = composite[j].times(s)
            for row, x in enumerate(joint_space(S[j][: k + 1], f), column):
                M[row][column + k] = M[column + k][row] = x
            M[column + k][column + k] = add(M[column + k][column + k], model.armature[column + k])
            i = j
            while model.parents[i] != WORLD:
                f = X[i].force_back(f)
                i = model.parents[i]
                for row, x in enumerate(joint_space(S[i], f), model.joints[i].dof):
                    M[row][column + k] = M[column + k][row] = x
    return M
