"""Parallel preconditioners of a symmetric positive definite block-tridiagonal matrix S (Plancher
2022, 2.4.4 and 6.2.2), compiled.

Each is applied as a block-tridiagonal matrix Φ⁻¹ with diagonal blocks P and lower blocks O, so that
every block row needs its neighbours only:
- none, jacobi, block_jacobi: the inverse of nothing, of the diagonal, of the diagonal blocks;
- alternating: the mean of the inverses of the two splittings into 2 x 2 blocks, (0,1)(2,3)… and
  (0)(1,2)(3,4)…;
- overlapping: the sum of the inverses of all 2 x 2 blocks (0,1), (1,2), (2,3), …;
- stair: Ψ⁻¹ of (6.2), in which odd rows know their neighbours and even rows do not;
- symmetric_stair: (6.3), both; the same as block_jacobi with a polynomial of order 1.

With S = D^½ (I + F) D^½, F couples even blocks with odd ones only, and its eigenvalues are ±f with
|f| < 1. Block Jacobi's spectrum is therefore 1 ± f, within (0, 2); the symmetric stair's 1 - f²,
within (0, 1]. The polynomial of order p, Σ (I - Ψ⁻¹S)^i Ψ⁻¹ for i = 0 … p (2.16), turns an
eigenvalue μ into 1 - (1 - μ)^{p+1}: positive definite for every p where μ is within (0, 2).
Splittings that promise less are scaled first, by ½ (overlapping) or Gershgorin's bound (none,
Jacobi).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rigidgrad.control.linear.blocks import (
    cholesky,
    compiled,
    dense,
    invert,
    multiply,
    solve_factored,
)
from rigidgrad.errors import InputError, unknown_name

PRECONDITIONERS = (
    "none",
    "jacobi",
    "block_jacobi",
    "alternating",
    "overlapping",
    "stair",
    "symmetric_stair",
)

# how Φ⁻¹ is applied
IDENTITY, DIAGONAL, SYMMETRIC, STAIR = range(4)
_SHAPES = {"none": IDENTITY, "jacobi": DIAGONAL, "block_jacobi": DIAGONAL, "stair": STAIR}


@dataclass(frozen=True)
class Preconditioner:
    """Φ⁻¹ before the polynomial: blocks P (K, n, n), O (K - 1, n, n), and `shape`, how they are
    used; `scale` of the identity.
    """

    shape: int
    P: np.ndarray
    O: np.ndarray
    scale: float = 1.0

    def dense(self) -> np.ndarray:
        """Φ⁻¹ written out."""
        K, n = self.P.shape[:2]
        if self.shape == IDENTITY:
            return self.scale * np.eye(K * n)
        if self.shape == DIAGONAL:
            return dense(self.P, np.zeros_like(self.O))
        if self.shape == SYMMETRIC:
            return dense(self.P, self.O)
        odd = (np.arange(K - 1) % 2 == 1)[:, None, None]
        return dense(self.P, np.where(odd, 0.0, self.O), np.where(odd, self.O.swapaxes(1, 2), 0.0))


def check(name: str, polynomial: int) -> str:
    if name not in PRECONDITIONERS:
        raise unknown_name("preconditioner", name, PRECONDITIONERS)
    if not isinstance(polynomial, int | np.integer) or polynomial < 0:
        raise InputError(
            "polynomial is the order of the preconditioner, a whole number from 0, not"
            f" {polynomial!r}"
        )
    return name


def build(name: str, D: np.ndarray, E: np.ndarray, polynomial: int = 0) -> Preconditioner | None:
    """The preconditioner of the matrix (D, E); None where a block is not positive definite."""
    check(name, polynomial)
    P, O = np.zeros_like(D), np.zeros_like(E)
    scale = _safe_scale(name, D, E) if polynomial else 1.0
    if name == "jacobi":
        diagonal = np.einsum("kii->ki", D)
        if not (diagonal > 0).all():
            return None
        np.einsum("kii->ki", P)[:] = scale / diagonal
    elif name in ("alternating", "overlapping"):
        if not _pairs(D, E, 0.5 if name == "alternating" else scale, name == "alternating", P, O):
            return None
    elif name != "none" and not _stair(D, E, name != "block_jacobi", P, O):
        return None
    return Preconditioner(_SHAPES.get(name, SYMMETRIC), P, O, scale)


def _safe_scale(name: str, D: np.ndarray, E: np.ndarray) -> float:
    """A factor that brings the eigenvalues of Φ⁻¹S below 2."""
    if name == "overlapping":
        return 0.5
    if name not in ("none", "jacobi"):
        return 1.0
    weight = 1 / np.sqrt(np.einsum("kii->ki", D)) if name == "jacobi" else np.ones(D.shape[:2])
    rows = np.einsum("ki,kij,kj->ki", weight, np.abs(D), weight)
    rows[1:] += np.einsum("ki,kij,kj->ki", weight[1:], np.abs(E), weight[:-1])
    rows[:-1] += np.einsum("kj,kij,ki->kj", weight[:-1], np.abs(E), weight[1:])
    return 1.0 / float(rows.max())


@compiled
def _stair(
    D: np.ndarray, E: np.ndarray, off_diagonal: bool, P: np.ndarray, O: np.ndarray
) -> bool:  # pragma: no cover (compiled)
    """P_k = D_k⁻¹, O_k = -D_{k+1}⁻¹ E_k D_k⁻¹."""
    n = D.shape[1]
    work = np.empty((n, n))
    for k in range(D.shape[0]):
        if not invert(D[k], work, P[k]):
            return False
    if off_diagonal:
        for k in range(E.shape[0]):
            multiply(E[k], P[k], work)
            multiply(P[k + 1], work, O[k])
            for i in range(n):
                for j in range(n):
                    O[k, i, j] = -O[k, i, j]
    return True


@compiled
def _pairs(
    D: np.ndarray, E: np.ndarray, weight: float, ends: bool, P: np.ndarray, O: np.ndarray
) -> bool:  # pragma: no cover (compiled)
    """Adds weight times the inverse of each 2 x 2 block, and of the single blocks at the two ends
    where `ends`.
    """
    K, n = D.shape[0], D.shape[1]
    a, inverse = np.empty((2 * n, 2 * n)), np.empty((2 * n, 2 * n))
    single, work = np.empty((n, n)), np.empty((n, n))
    for k in range(E.shape[0]):
        a[:n, :n] = D[k]
        a[n:, n:] = D[k + 1]
        a[n:, :n] = E[k]
        a[:n, n:] = E[k].T
        inverse[:] = 0.0
        for i in range(2 * n):
            inverse[i, i] = weight
        if not cholesky(a):
            return False
        solve_factored(a, inverse)
        for i in range(n):
            for j in range(n):
                P[k, i, j] += inverse[i, j]
                P[k + 1, i, j] += inverse[n + i, n + j]
                O[k, i, j] = inverse[n + i, j]
    if ends or K == 1:
        for k in (0, K - 1):
            if not invert(D[k], work, single):
                return False
            for i in range(n):
                for j in range(n):
                    P[k, i, j] += weight * single[i, j]
    return True


@compiled
def apply(
    shape: int, P: np.ndarray, O: np.ndarray, scale: float, r: np.ndarray, z: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """z = Φ⁻¹ r."""
    K, n = P.shape[0], P.shape[1]
    if shape == IDENTITY:
        for k in range(K):
            for i in range(n):
                z[k, i] = scale * r[k, i]
        return
    for k in range(K):
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += P[k, i, j] * r[k, j]
            z[k, i] = s
    if shape == DIAGONAL:
        return
    for k in range(K - 1):
        down = shape == SYMMETRIC or k % 2 == 0  # block row k + 1 is odd
        up = shape == SYMMETRIC or k % 2 == 1
        for i in range(n):
            s = 0.0
            y = r[k + 1, i] if up else 0.0
            for j in range(n):
                o = O[k, i, j]
                s += o * r[k, j]
                z[k, j] += o * y
            if down:
                z[k + 1, i] += s
