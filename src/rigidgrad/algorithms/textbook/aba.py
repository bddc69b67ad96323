"""Articulated bodies: forward dynamics in one pass down and up the tree (Featherstone 2008, table
7.1).
"""

from __future__ import annotations

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.joints import (
    External,
    Vector,
    across,
    body_transforms,
    combine,
    gather,
    gravity_acceleration,
    inertias,
    joint_space,
    parent_value,
    subspaces,
    velocities,
)
from rigidgrad.algorithms.textbook.articulated import joint_inertia, without_joint
from rigidgrad.algorithms.textbook.forward_dynamics import forward_dynamics_ltl
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar, sub
from rigidgrad.spatial import ZERO_MOTION, ArticulatedInertia, Force, Motion


def aba(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> Vector:
    """a = M(q)⁻¹ (τ - c(q, v) + Jᵀ f_ext). A model with mimic joints is no free tree: its projected
    mass matrix is factorised instead.
    """
    if model.has_mimic:
        return forward_dynamics_ltl(model, q, v, tau, external)
    X, S, I = body_transforms(model, q), subspaces(model), inertias(model)
    qd, taus = velocities(model, v), velocities(model, tau)
    vs: list[Motion] = []
    c: list[Motion] = []
    IA: list[ArticulatedInertia] = []
    pA: list[Force] = []
    for i in model.bodies:
        vJ = combine(S[i], qd[i])
        vs.append(across(X[i], parent_value(vs, model, i, ZERO_MOTION)) + vJ)
        c.append(vs[i].cross(vJ))
        IA.append(I[i].articulated())
        p = vs[i].cross_force(I[i].times(vs[i]))
        pA.append(p - external[i] if external and i in external else p)
    U: list[list[Force]] = [[] for _ in model.bodies]
    D: list[ltl.Factor] = [None] * len(U)  # type: ignore[list-item]
    u: list[list[Scalar]] = [[] for _ in model.bodies]
    for i in reversed(model.bodies):
        U[i] = [IA[i].times(s) for s in S[i]]
        D[i] = joint_inertia(model, i, S[i], U[i])
        u[i] = [sub(t, x) for t, x in zip(taus[i], joint_space(S[i], pA[i]), strict=True)]
        parent = model.parents[i]
        if parent != WORLD:
            Ia = without_joint(IA[i], U[i], D[i])
            pa = pA[i] + Ia.times(c[i])
            for x, force in zip(ltl.solve(D[i], u[i]), U[i], strict=True):
                pa = pa + force.scale(x)
            IA[parent] = IA[parent] + X[i].articulated_back(Ia)
            pA[parent] = pA[parent] + X[i].force_back(pa)
    as_: list[Motion] = []
    qdd: list[Vector] = []
    a0 = gravity_acceleration(model)
    for i in model.bodies:
        a = across(X[i], parent_value(as_, model, i, a0)) + c[i]
        qdd.append(
            ltl.solve(D[i], [sub(x, force.dot(a)) for x, force in zip(u[i], U[i], strict=True)])
        )
        as_.append(a + combine(S[i], qdd[i]))
    return gather(model, qdd)
