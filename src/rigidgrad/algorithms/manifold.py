"""Positions as points of a manifold: integrate, difference, normalize, neutral, joint by joint.
Tangents are laid out as v, in each joint's own frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rigidgrad.algorithms.joints import Vector
from rigidgrad.model.model import Joint, Model
from rigidgrad.scalars import Scalar


def neutral(model: Model) -> Vector:
    """The position in which every joint is at its zero."""
    return _per_joint(model, lambda j: j.kind.neutral)


def integrate(model: Model, q: Vector, dv: Vector) -> Vector:
    """q ⊕ dv: where the tangent dv (velocity times time) leads from q."""
    return _per_joint(model, lambda j: j.kind.integrate(q[j.q : j.q + j.nq], dv[j.v : j.v + j.nv]))


def difference(model: Model, q0: Vector, q1: Vector) -> Vector:
    """q1 ⊖ q0: the tangent at q0 that leads to q1."""
    return _per_joint(
        model, lambda j: j.kind.difference(q0[j.q : j.q + j.nq], q1[j.q : j.q + j.nq])
    )


def separation(model: Model, q0: Vector, q1: Vector) -> Vector:
    """How far apart positions are, in the layout of `difference` and the axes at q0: bases along
    straight lines, where `difference` goes along the screw that leads from one to the other.
    """
    return _per_joint(
        model, lambda j: j.kind.separation(q0[j.q : j.q + j.nq], q1[j.q : j.q + j.nq])
    )


def normalize(model: Model, q: Vector) -> Vector:
    """q with quaternions and (cos, sin) pairs scaled to length one."""
    return _per_joint(model, lambda j: j.kind.normalize(q[j.q : j.q + j.nq]))


def _per_joint(model: Model, function: Callable[[Joint], Iterable[Scalar]]) -> Vector:
    return tuple(x for j in model.joints if not j.is_mimic for x in function(j))
