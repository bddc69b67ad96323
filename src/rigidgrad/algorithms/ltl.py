"""LᵀDL factorisation of a joint-space matrix and solves with it (Featherstone 2008, section 6.5),
along the sparsity of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.sparsity import Supports
from rigidgrad.errors import ModelError
from rigidgrad.scalars import Scalar, add, is_constant, mul, sub, total


class Factor(NamedTuple):
    """M = Lᵀ D L with unit lower triangular L; `inverse_d` holds 1/D."""

    L: list[dict[int, Scalar]]
    inverse_d: list[Scalar]
    supports: Supports


def factorize(
    M: Sequence[Sequence[Scalar]], supports: Supports, joints: Sequence[Any] = ()
) -> Factor:
    """The factor of M; `joints` are those of the model, for what is said of a singular one."""
    n = len(supports)
    H = [{i: M[k][i] for i in (k, *supports[k])} for k in range(n)]
    L: list[dict[int, Scalar]] = [{} for _ in range(n)]
    inverse_d: list[Scalar] = [0.0] * n
    for k in reversed(range(n)):
        if is_constant(H[k][k], 0.0):
            name = next(
                (f"joint {j.name!r} (velocity {k} of v)" for j in joints if j.v <= k < j.v + j.nv),
                f"velocity {k} of v",
            )
            raise ModelError(
                f"the mass matrix is singular: nothing resists {name}; give what that joint moves a"
                " mass, or the joint armature"
            )
        inverse_d[k] = 1 / H[k][k]
        for i in supports[k]:
            L[k][i] = mul(H[k][i], inverse_d[k])
            for j in supports[k]:
                if j <= i:
                    H[i][j] = sub(H[i][j], mul(L[k][i], H[k][j]))
    return Factor(L, inverse_d, supports)


def solve(factor: Factor, b: Sequence[Scalar]) -> Vector:
    """M⁻¹ b; zeros of b are skipped."""
    return other_half(
        factor, [mul(d, x) for d, x in zip(factor.inverse_d, half_solve(factor, b), strict=True)]
    )


def half_solve(factor: Factor, b: Sequence[Scalar]) -> list[Scalar]:
    """L⁻ᵀ b; zeros of b are skipped."""
    x = list(b)
    for k in reversed(range(len(x))):
        for i in factor.supports[k]:
            x[i] = sub(x[i], mul(factor.L[k][i], x[k]))
    return x


def other_half(factor: Factor, b: Sequence[Scalar]) -> Vector:
    """L⁻¹ b."""
    x = list(b)
    for k in range(len(x)):
        for i in factor.supports[k]:
            x[k] = sub(x[k], mul(factor.L[k][i], x[i]))
    return tuple(x)


def lower_times(factor: Factor, b: Sequence[Scalar]) -> Vector:
    """L b for a vector of which only the first numbers, those in b, are not zero."""
    b = [*b, *[0.0] * (len(factor.supports) - len(b))]
    return tuple(
        total((bk, *(mul(row[i], b[i]) for i in row))) for bk, row in zip(b, factor.L, strict=True)
    )


def inverse_triangle(factor: Factor) -> list[dict[int, Scalar]]:
    """The rows of W = L⁻¹: in a tree without mimic joints, row k lives on the support of k."""
    W: list[dict[int, Scalar]] = []
    for k, support in enumerate(factor.supports):
        row: dict[int, Scalar] = {k: 1.0}
        for i in support:
            for j, w in W[i].items():
                row[j] = sub(row.get(j, 0.0), mul(factor.L[k][i], w))
        W.append(row)
    return W


def multiply(W: list[dict[int, Scalar]], d: Sequence[Scalar], b: Sequence[Scalar]) -> Vector:
    """W diag(d) Wᵀ b: as many operations as to solve with L, in fewer steps one after the other,
    and fewer where b has zeros, which are skipped.
    """
    y: list[Scalar] = [0.0] * len(W)
    for row, bk in zip(W, b, strict=True):
        for i, w in row.items():
            y[i] = add(y[i], mul(w, bk))
    z = [mul(dk, yk) for dk, yk in zip(d, y, strict=True)]
    x: list[Scalar] = [0.0] * len(W)
    for k, row in enumerate(W):
        for i, w in row.items():
            x[k] = add(x[k], mul(w, z[i]))
    return tuple(x)


def inverse(factor: Factor) -> Matrix:
    """M⁻¹ = W D⁻¹ Wᵀ with W = L⁻¹."""
    W, n = inverse_triangle(factor), len(factor.supports)
    result: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    for i in range(n):
        scaled = {k: mul(w, factor.inverse_d[k]) for k, w in W[i].items()}
        for j in range(i + 1):
            t = 0.0
            for k in scaled:
                if k in W[j]:
                    t = add(t, mul(scaled[k], W[j][k]))
            result[i][j] = result[j][i] = t
    return tuple(tuple(row) for row in result)
