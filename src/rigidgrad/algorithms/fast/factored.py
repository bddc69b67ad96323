"""Forward dynamics and the inverse of the mass matrix from its LᵀDL factor."""

from __future__ import annotations

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast.newton_euler import newton_euler_bias
from rigidgrad.algorithms.joints import External, Matrix, Vector
from rigidgrad.algorithms.sparsity import supports
from rigidgrad.model.model import Model
from rigidgrad.scalars import sub


def solved_dynamics(
    model: Model, q: Vector, v: Vector, tau: Vector, external: External | None = None
) -> Vector:
    """Forward dynamics by CRBA and LᵀDL, the bias by Newton and Euler."""
    factor = ltl.factorize(crba(model, q), supports(model), model.joints)
    c = newton_euler_bias(model, q, v, external)
    return ltl.solve(factor, [sub(t, x) for t, x in zip(tau, c, strict=True)])


def factored_minv(model: Model, q: Vector) -> Matrix:
    """M⁻¹ = L⁻¹ D⁻¹ L⁻ᵀ."""
    return ltl.inverse(ltl.factorize(crba(model, q), supports(model), model.joints))
