"""Inverse dynamics by Newton and Euler's laws for 3-vectors: angular velocity and acceleration and
the acceleration of each origin, no linear velocities.

With U = α× + ω×ω× the matrix of a rotating frame's accelerations, a body with first moment h and
pseudo-inertia Σ needs the force m a + U h and the moment of the skew part of U Σ, plus h × a. Fewer
operations than the spatial recursion where Σ and h are sparse.
"""

from __future__ import annotations

from typing import Any

from rigidgrad.algorithms.joints import (
    External,
    Vector,
    body_transforms,
    combine,
    gather,
    gravity_acceleration,
    parent_value,
    subspaces,
    transmit,
    velocities,
)
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, add, mul, neg, sub
from rigidgrad.spatial import (
    ZERO3,
    Force,
    Matrix3,
    Symmetric3,
    Vector3,
    add3,
    cross3,
    is_zero3,
    multiply3,
    rotate,
    scale3,
    symmetric_matrix,
)


def newton_euler(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None = None
) -> Vector:
    """τ of rnea(q, v, a)."""
    X, S = body_transforms(model, q), subspaces(model)
    qd, qdd = velocities(model, v), velocities(model, a)
    omega: list[Vector3] = []
    alpha: list[Vector3] = []
    accel: list[Vector3] = []
    U: list[Matrix3] = []
    forces: list[Force] = []
    a0 = gravity_acceleration(model).linear
    for i in model.bodies:
        joint_velocity, joint_acceleration = combine(S[i], qd[i]), combine(S[i], qdd[i])
        wJ, vJ = joint_velocity
        w_parent = rotate(X[i].E, parent_value(omega, model, i, ZERO3))
        omega.append(add3(w_parent, wJ))
        turned = rotate(X[i].E, parent_value(alpha, model, i, ZERO3))
        alpha.append(add3(add3(turned, cross3(w_parent, wJ)), joint_acceleration.angular))
        base = a0 if model.parents[i] == WORLD else accel[model.parents[i]]
        if model.parents[i] != WORLD and not is_zero3(X[i].r):
            base = add3(base, rotate(U[model.parents[i]], X[i].r))
        own = joint_acceleration.linear
        if not is_zero3(vJ):
            own = add3(own, cross3(add3(add3(w_parent, w_parent), wJ), vJ))
        accel.append(add3(rotate(X[i].E, base), own))
        U.append(frame_acceleration(omega[i], alpha[i]))
        forces.append(body_force(model.inertias[i], U[i], accel[i]))
        if external and i in external:
            forces[i] = forces[i] - external[i]
    return gather(model, transmit(model, X, S, forces, qdd))


def newton_euler_bias(
    model: Model, q: Vector, v: Vector, external: External | None = None
) -> Vector:
    """c of bias(q, v)."""
    return newton_euler(model, q, v, (0.0,) * model.nv, external)


def newton_euler_gravity(model: Model, q: Vector) -> Vector:
    """g of gravity_torque(q)."""
    return newton_euler(model, q, (0.0,) * model.nv, (0.0,) * model.nv)


def frame_acceleration(w: Vector3, a: Vector3) -> Matrix3:
    """U = α× + ω×ω×."""
    xx, yy, zz = mul(w[0], w[0]), mul(w[1], w[1]), mul(w[2], w[2])
    xy, xz, yz = mul(w[0], w[1]), mul(w[0], w[2]), mul(w[1], w[2])
    return (
        (neg(add(yy, zz)), sub(xy, a[2]), add(xz, a[1])),
        (add(xy, a[2]), neg(add(xx, zz)), sub(yz, a[0])),
        (sub(xz, a[1]), add(yz, a[0]), neg(add(xx, yy))),
    )


def pseudo_moments(rotational: Symmetric3) -> Matrix3:
    """Σ = ½ tr(I)·1 - I."""
    xx, xy, yy, xz, yz, zz = rotational

    def half(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        return mul(0.5, sub(add(a, b), c))

    return symmetric_matrix(
        (half(yy, zz, xx), neg(xy), half(xx, zz, yy), neg(xz), neg(yz), half(xx, yy, zz))
    )


def body_force(inertia: tuple[Any, ...], U: Matrix3, a: Vector3) -> Force:
    """The wrench about the origin that gives a body the accelerations U and a."""
    m, h, rotational = inertia
    Q = multiply3(U, pseudo_moments(rotational))
    moment = sub(Q[2][1], Q[1][2]), sub(Q[0][2], Q[2][0]), sub(Q[1][0], Q[0][1])
    return Force(add3(moment, cross3(h, a)), add3(scale3(m, a), rotate(U, h)))
