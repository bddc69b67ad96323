"""Results with several parts: nested tuples of scalars where an algorithm computes them, arrays
where a user gets them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from rigidgrad.algorithms.joints import Value


class RneaDerivatives(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value
    da: Value


class RneaSecondDerivatives(NamedTuple, Generic[Value]):
    """∂²τ_i/∂·_j∂·_k at [i, j, k], or Σ w_i ∂²τ_i/∂·_j∂·_k at [j, k]: dqdv is by q_j and v_k, dadq
    by a_j and q_k; dqdq is the derivative by q_k of that by q_j.
    """

    dqdq: Value
    dvdv: Value
    dqdv: Value
    dadq: Value


class AbaDerivatives(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value
    dtau: Value


class FusedGradient(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value


class FactoredGradient(NamedTuple, Generic[Value]):
    """∂a/∂q = W Z_dq, ∂a/∂v = W Z_dv: W = L⁻¹ of M = LᵀDL lives on what carries each joint, Z on
    that and on what it carries.
    """

    W: Value
    Z_dq: Value
    Z_dv: Value


class ContactDynamics(NamedTuple, Generic[Value]):
    """The acceleration, and the forces of all constraints in turn, world axes, on the robot.
    `damping`: None, or how redundant constraints were solved.
    """

    a: Value
    force: Value
    damping: str | None = None


class ContactDynamicsDerivatives(NamedTuple, Generic[Value]):
    a_dq: Value
    a_dv: Value
    a_dtau: Value
    force_dq: Value
    force_dv: Value
    force_dtau: Value
    damping: str | None = None


class Impact(NamedTuple, Generic[Value]):
    """The velocity after an impact, and the impulses of all constraints in turn, world axes, on the
    robot.
    """

    v: Value
    impulse: Value
    damping: str | None = None


class ImpactDerivatives(NamedTuple, Generic[Value]):
    v_dq: Value
    v_dv: Value
    impulse_dq: Value
    impulse_dv: Value
    damping: str | None = None


class ContactInverseDynamics(NamedTuple, Generic[Value]):
    """Joint forces, contact forces as in `ContactDynamics`, the generalised forces that are
    missing, and 1 where these are optimal, else 0.
    """

    tau: Value
    force: Value
    residual: Value
    converged: Value


class FrameAccelerationDerivatives(NamedTuple, Generic[Value]):
    """Each (6, nv)."""

    dq: Value
    dv: Value
    da: Value


class Energy(NamedTuple, Generic[Value]):
    kinetic: Value
    potential: Value
