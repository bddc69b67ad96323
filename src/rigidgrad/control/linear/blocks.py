"""Small dense matrices and block-tridiagonal systems, compiled.

The innermost loops run along rows in memory, which compilers turn into SIMD. A symmetric
block-tridiagonal matrix is its diagonal blocks D (K, n, n) and the blocks E (K - 1, n, n) below
them: block (k + 1, k) is E[k], block (k, k + 1) its transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import numpy as np

from rigidgrad.runtime.loops import Kernel, kernel

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[[*Arguments], Result]) -> Kernel[*Arguments, Result]:
    """A kernel whose sums may be reordered for SIMD."""
    return kernel(function, reorder=True)


# a pivot smaller than this share of its diagonal entry is rounding: the matrix counts as singular
SINGULAR = 1e-13


@compiled
def multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover (compiled)
    """out = a b."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            out[i, j] = 0.0
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += x * b[k, j]


@compiled
def add_product_transposed(
    scale: float, a: np.ndarray, b: np.ndarray, out: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """out += scale a bᵀ."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[j, k]
            out[i, j] += scale * s


@compiled
def add_matrix_vector(
    scale: float, a: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """out += scale a x."""
    for i in range(a.shape[0]):
        s = 0.0
        for j in range(a.shape[1]):
            s += a[i, j] * x[j]
        out[i] += scale * s


@compiled
def add_transposed_vector(
    scale: float, a: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """out += scale aᵀ x."""
    for k in range(a.shape[0]):
        s = scale * x[k]
        for j in range(a.shape[1]):
            out[j] += s * a[k, j]


@compiled
def symmetrize(a: np.ndarray) -> None:  # pragma: no cover (compiled)
    """Both triangles become their mean: rounding must not grow into asymmetry."""
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] = a[j, i] = (a[i, j] + a[j, i]) / 2


@compiled
def cholesky(a: np.ndarray) -> bool:  # pragma: no cover (compiled)
    """The lower factor, in place; False where a is not positive definite beyond rounding."""
    n = a.shape[0]
    for j in range(n):
        d = a[j, j]
        for k in range(j):
            d -= a[j, k] * a[j, k]
        if not d > SINGULAR * abs(a[j, j]):
            return False
        d = np.sqrt(d)
        a[j, j] = d
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[j, k]
            a[i, j] = s / d
    return True


@compiled
def solve_factored(L: np.ndarray, b: np.ndarray) -> None:  # pragma: no cover (compiled)
    """b := (L Lᵀ)⁻¹ b, for a matrix b."""
    n = L.shape[0]
    for i in range(n):
        for k in range(i):
            x = L[i, k]
            for j in range(b.shape[1]):
                b[i, j] -= x * b[k, j]
        x = 1.0 / L[i, i]
        for j in range(b.shape[1]):
            b[i, j] *= x
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x = L[k, i]
            for j in range(b.shape[1]):
                b[i, j] -= x * b[k, j]
        x = 1.0 / L[i, i]
        for j in range(b.shape[1]):
            b[i, j] *= x


@compiled
def solve_lower(L: np.ndarray, b: np.ndarray) -> None:  # pragma: no cover (compiled)
    """b := L⁻¹ b, for a vector b."""
    for i in range(L.shape[0]):
        s = b[i]
        for k in range(i):
            s -= L[i, k] * b[k]
        b[i] = s / L[i, i]


@compiled
def solve_upper(L: np.ndarray, b: np.ndarray) -> None:  # pragma: no cover (compiled)
    """b := L⁻ᵀ b, for a vector b."""
    for i in range(L.shape[0] - 1, -1, -1):
        b[i] /= L[i, i]
        s = b[i]
        for k in range(i):
            b[k] -= L[i, k] * s


@compiled
def invert(a: np.ndarray, work: np.ndarray, out: np.ndarray) -> bool:  # pragma: no cover (compiled)
    """out = a⁻¹ of a symmetric positive definite a, through its Cholesky factor in `work`; False
    where it is not.
    """
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            work[i, j] = a[i, j]
            out[i, j] = 1.0 if i == j else 0.0
    if not cholesky(work):
        return False
    solve_factored(work, out)
    symmetrize(out)
    return True


@compiled
def tridiagonal_times(
    D: np.ndarray, E: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """out = S x; each block is read once."""
    n = D.shape[1]
    for k in range(D.shape[0]):
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += D[k, i, j] * x[k, j]
            out[k, i] = s
    for k in range(E.shape[0]):
        for i in range(n):
            s = 0.0
            y = x[k + 1, i]
            for j in range(n):
                e = E[k, i, j]
                s += e * x[k, j]
                out[k, j] += e * y
            out[k + 1, i] += s


def dense(D: np.ndarray, lower: np.ndarray, upper: np.ndarray | None = None) -> np.ndarray:
    """A block-tridiagonal matrix written out; the upper blocks are the lower ones' transposes
    unless given.
    """
    K, n = D.shape[:2]
    result = np.zeros((K * n, K * n))
    for k in range(K):
        here, after = slice(k * n, (k + 1) * n), slice((k + 1) * n, (k + 2) * n)
        result[here, here] = D[k]
        if k + 1 < K:
            result[after, here] = lower[k]
            result[here, after] = lower[k].T if upper is None else upper[k]
    return result
