"""Analytical gradient of inverse dynamics, column by column (Plancher et al. 2021, Algorithm 2; the
printed line 3 has v_λ for v_i).

A joint's position is perturbed in its tangent space, q ⊕ ε e_k, which moves the child by the
constant twist S_k: so ∂(ᵢX_λ u)/∂q_k = (ᵢX_λ u) × S_k for joints of any kind.
"""

from __future__ import annotations

from rigidgrad.algorithms.crba import mass_matrix
from rigidgrad.algorithms.joints import (
    External,
    Matrix,
    Vector,
    across,
    gravity_acceleration,
    joint_space,
    parent_value,
    project,
)
from rigidgrad.algorithms.results import RneaDerivatives
from rigidgrad.algorithms.textbook.rnea import Sweep, rnea_sweep
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar
from rigidgrad.spatial import ZERO_FORCE, ZERO_MOTION, Force, Motion


def rnea_derivatives(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None = None
) -> RneaDerivatives[Matrix]:
    """∂τ/∂q (tangent), ∂τ/∂v, ∂τ/∂a = M: each nv x nv. External wrenches stay constant in their
    body's frame.
    """
    sweep = rnea_sweep(model, q, v, a, external)
    dq, dv = gradient_columns(model, sweep)
    return RneaDerivatives(
        project(model, dq), project(model, dv), project(model, mass_matrix(model, sweep.X))
    )


def gradient_columns(model: Model, sweep: Sweep) -> tuple[list[list[Scalar]], list[list[Scalar]]]:
    """∂c/∂q and ∂c/∂q̇ over all degrees of freedom, from what RNEA left."""
    X, S, _, vJ, v, a, f, _ = sweep
    a0 = gravity_acceleration(model)
    dc_dq: list[list[Scalar]] = [[0.0] * model.dofs for _ in range(model.dofs)]
    dc_dv: list[list[Scalar]] = [[0.0] * model.dofs for _ in range(model.dofs)]
    for j in model.bodies:
        Xv = across(X[j], parent_value(v, model, j, ZERO_MOTION))
        Xa = across(X[j], parent_value(a, model, j, a0))
        for column, s in enumerate(S[j], model.joints[j].dof):
            dv = Xv.cross(s)
            da = Xa.cross(s) + dv.cross(vJ[j])
            _column(model, sweep, j, dv, da, s.cross_force(f[j]), column, dc_dq)
            dv = s
            da = v[j].cross(s) + dv.cross(vJ[j])
            _column(model, sweep, j, dv, da, ZERO_FORCE, column, dc_dv)
    return dc_dq, dc_dv


def _column(
    model: Model,
    sweep: Sweep,
    j: int,
    dv_j: Motion,
    da_j: Motion,
    df_up: Force,
    column: int,
    out: list[list[Scalar]],
) -> None:
    """Carries the perturbation of joint j out to its subtree, and the change of forces back to the
    root.
    """
    X, S, I, vJ, v, _, _, _ = sweep
    dv, da = {j: dv_j}, {j: da_j}
    order = [j]
    for i in order:
        if i != j:
            parent = model.parents[i]
            dv[i] = X[i].motion(dv[parent])
            da[i] = X[i].motion(da[parent]) + dv[i].cross(vJ[i])
        order.extend(model.children[i])
    df = {
        i: (
            I[i].times(da[i])
            + dv[i].cross_force(I[i].times(v[i]))
            + v[i].cross_force(I[i].times(dv[i]))
        )
        for i in order
    }
    path = list(reversed(order)) + list(model.ancestors[j][1:])
    for i in path:
        for row, x in enumerate(joint_space(S[i], df[i]), model.joints[i].dof):
            out[row][column] = x
        parent = model.parents[i]
        if parent != WORLD:
            up = df[i] + df_up if i == j else df[i]
            df[parent] = df.get(parent, ZERO_FORCE) + X[i].force_back(up)
