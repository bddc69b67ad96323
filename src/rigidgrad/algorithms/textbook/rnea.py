"""Recursive Newton-Euler: inverse dynamics (Plancher et al. 2021, Algorithm 1, with a_0 =
-gravity).
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.algorithms.joints import (
    External,
    Vector,
    across,
    body_transforms,
    combine,
    gather,
    gravity_acceleration,
    inertias,
    parent_value,
    subspaces,
    transmit,
    velocities,
)
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar
from rigidgrad.spatial import ZERO_MOTION, Force, Inertia, Motion, Transform


class Sweep(NamedTuple):
    """What the recursion leaves for others: per body the transforms, velocities, accelerations, and
    the forces of whole subtrees.
    """

    X: list[Transform]
    S: list[tuple[Motion, ...]]
    I: list[Inertia]
    vJ: list[Motion]  # S q̇
    v: list[Motion]
    a: list[Motion]
    f: list[Force]  # transmitted across joint i
    tau: list[list[Scalar]]


def rnea(model: Model, q: Vector, v: Vector, a: Vector, external: External | None = None) -> Vector:
    """τ = M(q) a + c(q, v) - Jᵀ f_ext: nv joint forces. `external` maps a body to the wrench on it,
    in that body's frame.
    """
    return gather(model, rnea_sweep(model, q, v, a, external).tau)


def bias(model: Model, q: Vector, v: Vector, external: External | None = None) -> Vector:
    """c(q, v): Coriolis, centrifugal and gravity forces, minus external ones."""
    return rnea(model, q, v, (0.0,) * model.nv, external)


def gravity_torque(model: Model, q: Vector) -> Vector:
    """g(q): the joint forces that hold the robot still."""
    return rnea(model, q, (0.0,) * model.nv, (0.0,) * model.nv)


def rnea_sweep(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None = None
) -> Sweep:
    X, S, I = body_transforms(model, q), subspaces(model), inertias(model)
    qd, qdd = velocities(model, v), velocities(model, a)
    a0 = gravity_acceleration(model)
    vJ: list[Motion] = []
    vs: list[Motion] = []
    as_: list[Motion] = []
    fs: list[Force] = []
    for i in model.bodies:
        vJ.append(combine(S[i], qd[i]))
        vs.append(across(X[i], parent_value(vs, model, i, ZERO_MOTION)) + vJ[i])
        as_.append(
            across(X[i], parent_value(as_, model, i, a0))
            + combine(S[i], qdd[i])
            + vs[i].cross(vJ[i])
        )
        f = I[i].times(as_[i]) + vs[i].cross_force(I[i].times(vs[i]))
        if external and i in external:
            f = f - external[i]
        fs.append(f)
    return Sweep(X, S, I, vJ, vs, as_, fs, transmit(model, X, S, fs, qdd))
