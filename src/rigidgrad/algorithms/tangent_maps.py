"""Derivatives of `integrate` and `difference` on the configuration manifold, joint by joint.

With q' = q ⊕ ξ, a change δ of q, in the tangent at q, changes q' by Ad(exp ξ)⁻¹ δ, and a change of
ξ by J_r(ξ), the right Jacobian; with ξ = q1 ⊖ q0, a change of q1 changes ξ by J_r(ξ)⁻¹.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.model.model import Model
from rigidgrad.scalars import Scalar, add, mul


def transport(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q ⊕ dv)/∂q, one block a joint."""
    return [j.kind.transport(dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic]


def right_jacobian(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q ⊕ dv)/∂dv, one block a joint."""
    return [j.kind.right_jacobian(dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic]


def right_jacobian_inverse(model: Model, dv: Vector) -> list[Matrix]:
    """∂(q1 ⊖ q0)/∂q1 where q1 ⊖ q0 = dv, one block a joint."""
    return [
        j.kind.right_jacobian_inverse(dv[j.v : j.v + j.nv]) for j in model.joints if not j.is_mimic
    ]


def block_times(blocks: list[Matrix], matrix: Matrix) -> Matrix:
    """A block-diagonal matrix times a matrix."""
    rows: list[Vector] = []
    start = 0
    for block in blocks:
        part = matrix[start : start + len(block)]
        start += len(block)
        columns = list(zip(*part, strict=True))
        rows += [tuple(_dot(row, column) for column in columns) for row in block]
    return tuple(rows)


def _dot(a: Vector, b: Vector) -> Scalar:
    result: Scalar = 0.0
    for x, y in zip(a, b, strict=True):
        result = add(result, mul(x, y))
    return result
