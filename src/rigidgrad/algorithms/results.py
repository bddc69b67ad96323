"""Results with several parts: nested tuples of scalars where an algorithm computes them, arrays where a user gets them."""

from __future__ import annotations

from typing import Generic, NamedTuple

from rigidgrad.algorithms.joints import Value


class RneaDerivatives(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value
    da: Value


class AbaDerivatives(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value
    dtau: Value


class FusedGradient(NamedTuple, Generic[Value]):
    dq: Value
    dv: Value


class FactoredGradient(NamedTuple, Generic[Value]):
    """∂a/∂q = W Z_dq, ∂a/∂v = W Z_dv: W = L⁻¹ of M = LᵀDL lives on what carries each joint, Z on that and on what it carries."""

    W: Value
    Z_dq: Value
    Z_dv: Value


class Energy(NamedTuple, Generic[Value]):
    kinetic: Value
    potential: Value
