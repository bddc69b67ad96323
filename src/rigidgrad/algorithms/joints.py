"""The joints of a model over any scalar: transforms across them, their motion subspaces, and the
numbers of q and v that belong to each.

With mimic joints, q_full = G q + o: `positions` and `velocities` expand the user's numbers to all
joints, `gather` and `project` bring forces (Gᵀ X) and matrices (Gᵀ X G) back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rigidgrad.model.model import WORLD, Joint, Model
from rigidgrad.scalars import Scalar, add, mul, neg
from rigidgrad.spatial import (
    ZERO3,
    ZERO_MOTION,
    Force,
    Inertia,
    Motion,
    Transform,
    is_zero3,
    transpose,
)

Vector = tuple[Scalar, ...]
Matrix = tuple[Vector, ...]
External = Mapping[int, Force]  # body -> the wrench on it, in that body's frame
# of a result: scalars where an algorithm computes them, arrays where a user gets them
Value = TypeVar("Value")


def positions(model: Model, q: Vector) -> list[Vector]:
    """The numbers of q that belong to each joint."""
    return [
        (add(mul(j.multiplier, q[j.q]), j.offset),) if j.is_mimic else tuple(q[j.q : j.q + j.nq])
        for j in model.joints
    ]


def velocities(model: Model, v: Vector) -> list[Vector]:
    """The numbers of v (or a, or any tangent) that belong to each joint."""
    return [
        (mul(j.multiplier, v[j.v]),) if j.is_mimic else tuple(v[j.v : j.v + j.nv])
        for j in model.joints
    ]


def gather(model: Model, forces: Sequence[Sequence[Scalar]]) -> Vector:
    """Gᵀ x for one tuple of joint forces a joint: the user's nv numbers."""
    result: list[Scalar] = [0.0] * model.nv
    for j, force in zip(model.joints, forces, strict=True):
        for k, x in enumerate(force):
            result[j.v + k] = add(result[j.v + k], mul(j.multiplier, x))
    return tuple(result)


def project_rows(model: Model, matrix: Sequence[Sequence[Scalar]]) -> Matrix:
    """Gᵀ X for a matrix with one row a degree of freedom of all joints."""
    if not model.has_mimic:
        return tuple(tuple(row) for row in matrix)
    columns = zip(*matrix, strict=True)
    per_joint = ([column[j.dof : j.dof + j.nv] for j in model.joints] for column in columns)
    return tuple(zip(*(gather(model, forces) for forces in per_joint), strict=True))


def project(model: Model, matrix: Sequence[Sequence[Scalar]]) -> Matrix:
    """Gᵀ X G."""
    if not model.has_mimic:
        return tuple(tuple(row) for row in matrix)
    half = project_rows(model, matrix)
    return tuple(zip(*project_rows(model, tuple(zip(*half, strict=True))), strict=True))


def motion_subspace(joint: Joint) -> tuple[Motion, ...]:
    """The columns of S, constant in the child's frame for every joint type."""
    return joint.kind.subspace(joint)


def joint_transform(joint: Joint, q: Vector) -> Transform:
    """X_J: from the joint's frame on the parent to the child's frame."""
    return joint.kind.transform(joint, q)


def body_transform(model: Model, i: int, q_i: Vector) -> Transform:
    """ᵢX_λ: from the parent's frame to body i's."""
    fixed = model.placements[i]
    return joint_transform(model.joints[i], q_i) @ Transform(transpose(fixed.R), fixed.p)


def body_transforms(model: Model, q: Vector) -> list[Transform]:
    """ᵢX_λ of every body."""
    return [body_transform(model, i, q_i) for i, q_i in enumerate(positions(model, q))]


def subspaces(model: Model) -> list[tuple[Motion, ...]]:
    return [motion_subspace(j) for j in model.joints]


def inertias(model: Model) -> list[Inertia]:
    return [Inertia(*x) for x in model.inertias]


def combine(S: Sequence[Motion], x: Sequence[Scalar]) -> Motion:
    """S x."""
    result = ZERO_MOTION
    for s, xk in zip(S, x, strict=True):
        result = result + s.scale(xk)
    return result


def across(X: Transform, motion: Motion) -> Motion:
    """X m, free where m is structurally zero (at the root)."""
    return motion if is_zero3(motion.angular) and is_zero3(motion.linear) else X.motion(motion)


def gravity_acceleration(model: Model) -> Motion:
    """a_0 = -gravity: the base accelerates upwards instead of gravity pulling down."""
    x, y, z = model.gravity
    return Motion(ZERO3, (neg(x), neg(y), neg(z)))


def parent_value(values: Sequence[Value], model: Model, i: int, root: Value) -> Value:
    """values[λ(i)], or `root` where the parent is the world."""
    return root if model.parents[i] == WORLD else values[model.parents[i]]


def joint_space(S: Sequence[Motion], f: Force) -> list[Scalar]:
    """Sᵀ f."""
    return [f.dot(s) for s in S]


def transmit(
    model: Model, X: list[Transform], S: list[tuple[Motion, ...]], f: list[Force], qdd: list[Vector]
) -> list[list[Scalar]]:
    """The inward pass: adds each body's force to its parent's, in place, and reads off the joint
    forces, armature included.
    """
    tau: list[list[Scalar]] = [[] for _ in model.bodies]
    for i in reversed(model.bodies):
        rotor = model.armature[model.joints[i].dof :]
        tau[i] = [add(t, mul(rotor[k], qdd[i][k])) for k, t in enumerate(joint_space(S[i], f[i]))]
        parent = model.parents[i]
        if parent != WORLD:
            f[parent] = f[parent] + X[i].force_back(f[i])
    return tau
