"""Forward dynamics through the mass matrix: a = M⁻¹ (τ - c), by factorisation or by the inverse
(Plancher et al. 2021, equation 1).
"""

from __future__ import annotations

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.joints import External, Vector
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.algorithms.textbook.minv import minv
from rigidgrad.algorithms.textbook.rnea import bias
from rigidgrad.model.model import Model
from rigidgrad.scalars import mul, sub, total


def forward_dynamics_ltl(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> Vector:
    """CRBA, then a solve with M = LᵀDL."""
    c = bias(model, q, v, external)
    return ltl.solve(
        ltl.factorize(crba(model, q), supports(model), model.joints),
        [sub(t, x) for t, x in zip(tau, c, strict=True)],
    )


def forward_dynamics_minv(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> Vector:
    """The direct inverse of the mass matrix, times τ - c."""
    c = bias(model, q, v, external)
    b = [sub(t, x) for t, x in zip(tau, c, strict=True)]
    return tuple(total(mul(x, y) for x, y in zip(row, b, strict=True)) for row in minv(model, q))
