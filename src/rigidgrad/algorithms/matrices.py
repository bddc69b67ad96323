"""Products of joint-space matrices."""

from __future__ import annotations

from collections.abc import Sequence

from rigidgrad.algorithms.joints import Matrix
from rigidgrad.scalars import Scalar, mul, neg, total


def transposed_product(a: Matrix, b: Matrix) -> Matrix:
    """aᵀ b."""
    columns = list(zip(*b, strict=True))
    return tuple(
        tuple(total(mul(x, y) for x, y in zip(row, column, strict=True)) for column in columns)
        for row in zip(*a, strict=True)
    )


def minus_product(a: Sequence[Sequence[Scalar]], b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return tuple(
        tuple(neg(total(mul(x, y) for x, y in zip(row, column, strict=True))) for column in columns)
        for row in a
    )
