"""Analytical gradient of forward dynamics: minus M⁻¹ times that of inverse dynamics (Plancher et
al. 2021, Algorithm 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.joints import External, Matrix, Vector, project
from rigidgrad.algorithms.matrices import minus_product, transposed_product
from rigidgrad.algorithms.results import AbaDerivatives, FactoredGradient, FusedGradient
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.algorithms.textbook.rnea import bias, rnea_sweep
from rigidgrad.algorithms.textbook.rnea_derivatives import gradient_columns
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, mul, neg, sub


def aba_derivatives(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> AbaDerivatives[Matrix]:
    """∂a/∂q (tangent), ∂a/∂v, ∂a/∂τ = M⁻¹: each nv x nv."""
    c = bias(model, q, v, external)
    factor = ltl.factorize(crba(model, q), supports(model), model.joints)
    a = ltl.solve(factor, [sub(t, x) for t, x in zip(tau, c, strict=True)])
    dq, dv = _inverse_dynamics_gradient(model, q, v, a, external)
    return AbaDerivatives(_solved(factor, dq), _solved(factor, dv), ltl.inverse(factor))


def fused_gradient(
    model: Model,
    q: Vector,
    v: Vector,
    a: Vector,
    minv: Sequence[Sequence[Scalar]],
    external: External | None = None,
) -> FusedGradient[Matrix]:
    """The completely fused kernel: ∂a/∂q and ∂a/∂v from an acceleration and an M⁻¹ that are known
    already.
    """
    dq, dv = _inverse_dynamics_gradient(model, q, v, a, external)
    return FusedGradient(minus_product(minv, dq), minus_product(minv, dv))


def aba_state_derivatives(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> FusedGradient[Matrix]:
    """∂a/∂q and ∂a/∂v, without M⁻¹."""
    d = aba_derivatives(model, q, v, tau, external)
    return FusedGradient(d.dq, d.dv)


def aba_derivatives_factored(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> FactoredGradient[Matrix]:
    """The two factors of the gradient, not multiplied: W and Z = -D⁻¹ Wᵀ ∂τ."""
    c = bias(model, q, v, external)
    factor = ltl.factorize(crba(model, q), supports(model), model.joints)
    a = ltl.solve(factor, [sub(t, x) for t, x in zip(tau, c, strict=True)])
    W = tuple(
        tuple(row.get(i, 0.0) for i in range(model.nv)) for row in ltl.inverse_triangle(factor)
    )
    minus = tuple(
        tuple(neg(mul(w, d)) for w, d in zip(row, factor.inverse_d, strict=True)) for row in W
    )
    dq, dv = _inverse_dynamics_gradient(model, q, v, a, external)
    return FactoredGradient(W, transposed_product(minus, dq), transposed_product(minus, dv))


def _inverse_dynamics_gradient(
    model: Model, q: Vector, v: Vector, a: Vector, external: External | None
) -> tuple[Matrix, Matrix]:
    dq, dv = gradient_columns(model, rnea_sweep(model, q, v, a, external))
    return project(model, dq), project(model, dv)


def _solved(factor: ltl.Factor, matrix: Matrix) -> Matrix:
    """-M⁻¹ X, column by column."""
    columns = [ltl.solve(factor, [neg(x) for x in column]) for column in zip(*matrix, strict=True)]
    return tuple(zip(*columns, strict=True))
