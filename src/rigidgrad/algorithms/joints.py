"""Joints over any scalar: the transform across a joint, its motion subspace, and the numbers of q and v that belong to it.

With mimic joints, q_full = G q + o: `positions` and `velocities` expand the user's numbers to all joints, `gather` and `project` bring forces
(Gᵀ X) and matrices (Gᵀ X G) back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rigidgrad.model.model import WORLD, Joint, Model
from rigidgrad.scalars import Scalar, add, mul, neg, sincos, sub
from rigidgrad.spatial import (
    IDENTITY3,
    ZERO3,
    ZERO_MOTION,
    Force,
    Inertia,
    Matrix3,
    Motion,
    Transform,
    Vector3,
    is_zero3,
    scale3,
    transpose,
)

Vector = tuple[Scalar, ...]
Matrix = tuple[Vector, ...]
Value = TypeVar("Value")  # of a result: scalars where an algorithm computes them, arrays where a user gets them


def positions(model: Model, q: Vector) -> list[Vector]:
    """The numbers of q that belong to each joint."""
    return [(add(mul(j.multiplier, q[j.q]), j.offset),) if j.is_mimic else tuple(q[j.q : j.q + j.nq]) for j in model.joints]


def velocities(model: Model, v: Vector) -> list[Vector]:
    """The numbers of v (or a, or any tangent) that belong to each joint."""
    return [(mul(j.multiplier, v[j.v]),) if j.is_mimic else tuple(v[j.v : j.v + j.nv]) for j in model.joints]


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
    units: Matrix3 = IDENTITY3
    match joint.type:
        case "revolute" | "continuous":
            return (Motion(joint.axis, ZERO3),)
        case "prismatic":
            return (Motion(ZERO3, joint.axis),)
        case "helical":
            return (Motion(joint.axis, scale3(joint.pitch, joint.axis)),)
        case "spherical":
            return tuple(Motion(e, ZERO3) for e in units)
        case "planar":
            return Motion(ZERO3, units[0]), Motion(ZERO3, units[1]), Motion(units[2], ZERO3)
        case "floating":
            return tuple(Motion(ZERO3, e) for e in units) + tuple(Motion(e, ZERO3) for e in units)
    raise AssertionError(joint.type)


def rotation_about(axis: Vector3, s: Scalar, c: Scalar) -> Matrix3:
    """R = c·1 + s·axis× + (1 - c)·axis axisᵀ, with sine and cosine of the angle given."""
    x, y, z = axis
    t = 1 - c

    def diagonal(k: Scalar) -> Scalar:
        if type(k) is float and k in (0.0, 1.0, -1.0):
            return c if k == 0.0 else 1.0
        return add(c, mul(t, mul(k, k)))

    xy, xz, yz = mul(t, mul(x, y)), mul(t, mul(x, z)), mul(t, mul(y, z))
    sx, sy, sz = mul(s, x), mul(s, y), mul(s, z)
    return (
        (diagonal(x), sub(xy, sz), add(xz, sy)),
        (add(xy, sz), diagonal(y), sub(yz, sx)),
        (sub(xz, sy), add(yz, sx), diagonal(z)),
    )


def rotation_from_quaternion(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Matrix3:
    """R of a unit quaternion."""
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz = x2 * x, y2 * y, z2 * z
    xy, xz, yz = x2 * y, x2 * z, y2 * z
    wx, wy, wz = w * x2, w * y2, w * z2
    return (1 - (yy + zz), xy - wz, xz + wy), (xy + wz, 1 - (xx + zz), yz - wx), (xz - wy, yz + wx, 1 - (xx + yy))


def joint_transform(joint: Joint, q: Vector) -> Transform:
    """X_J: from the joint's frame on the parent to the child's frame."""
    match joint.type:
        case "revolute" | "continuous":
            return Transform(transpose(rotation_about(joint.axis, *sincos(q[0]))), ZERO3)
        case "prismatic":
            return Transform(IDENTITY3, scale3(q[0], joint.axis))
        case "helical":
            return Transform(transpose(rotation_about(joint.axis, *sincos(q[0]))), scale3(mul(joint.pitch, q[0]), joint.axis))
        case "spherical":
            return Transform(transpose(rotation_from_quaternion(*q)), ZERO3)
        case "planar":
            x, y, c, s = q
            return Transform(((c, s, 0.0), (neg(s), c, 0.0), (0.0, 0.0, 1.0)), (x, y, 0.0))
        case "floating":
            return Transform(transpose(rotation_from_quaternion(*q[3:])), (q[0], q[1], q[2]))
    raise AssertionError(joint.type)


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


def parent_value(values: Sequence, model: Model, i: int, root):
    """values[λ(i)], or `root` where the parent is the world."""
    return root if model.parents[i] == WORLD else values[model.parents[i]]


def joint_space(S: Sequence[Motion], f: Force) -> list[Scalar]:
    """Sᵀ f."""
    return [f.dot(s) for s in S]
