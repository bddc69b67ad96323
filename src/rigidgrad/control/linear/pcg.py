"""Preconditioned conjugate gradients on a block-tridiagonal system, compiled (Plancher 2022, Alg. 1
and 5). Nothing is allocated per iteration.

The plain stair is not symmetric, which conjugate gradients need. But where the odd rows' residual
is zero it acts as block Jacobi on the even rows' Schur complement, and the odd rows' residual then
stays zero: so with the stair, the odd unknowns of the start are solved for.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import compiled, tridiagonal_times
from rigidgrad.control.linear.preconditioners import STAIR, apply

CONVERGED, LIMIT, BREAKDOWN = range(3)


@compiled
def _dot(a: np.ndarray, b: np.ndarray) -> float:  # pragma: no cover (compiled)
    s = 0.0
    for k in range(a.shape[0]):
        for i in range(a.shape[1]):
            s += a[k, i] * b[k, i]
    return s


@compiled
def _precondition(
    shape: int,
    P: np.ndarray,
    O: np.ndarray,
    scale: float,
    order: int,
    D: np.ndarray,
    E: np.ndarray,
    r: np.ndarray,
    z: np.ndarray,
    t: np.ndarray,
    v: np.ndarray,
) -> None:  # pragma: no cover (compiled)
    """z = Σ_{i ≤ order} (I - Ψ⁻¹S)^i Ψ⁻¹ r; t and v are scratch."""
    apply(shape, P, O, scale, r, z)
    for _ in range(order):
        tridiagonal_times(D, E, z, t)
        for k in range(t.shape[0]):
            for i in range(t.shape[1]):
                t[k, i] = r[k, i] - t[k, i]
        apply(shape, P, O, scale, t, v)
        for k in range(t.shape[0]):
            for i in range(t.shape[1]):
                z[k, i] += v[k, i]


@compiled
def _solve_odd(
    D: np.ndarray, E: np.ndarray, P: np.ndarray, gamma: np.ndarray, lam: np.ndarray, t: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """λ_k := D_k⁻¹ (γ_k - its neighbours' part), for odd k."""
    n = D.shape[1]
    for k in range(1, D.shape[0], 2):
        for i in range(n):
            s = gamma[k, i]
            for j in range(n):
                s -= E[k - 1, i, j] * lam[k - 1, j]
            t[k, i] = s
        if k + 1 < D.shape[0]:
            for i in range(n):
                for j in range(n):
                    t[k, j] -= E[k, i, j] * lam[k + 1, i]
        for i in range(n):
            s = 0.0
            for j in range(n):
                s += P[k, i, j] * t[k, j]
            lam[k, i] = s


@compiled
# pragma: no cover (compiled)
def pcg(
    D: np.ndarray,
    E: np.ndarray,
    gamma: np.ndarray,
    lam: np.ndarray,
    shape: int,
    P: np.ndarray,
    O: np.ndarray,
    scale: float,
    order: int,
    absolute: float,
    relative: float,
    limit: int,
    work: np.ndarray,
    history: np.ndarray,
) -> tuple[int, float, int]:
    """Solves S λ = γ from the λ given, in place; stops where |η| = |rᵀ Φ⁻¹ r| ≤ absolute, or ≤
    relative times what it was at first.

    `work` (5, K, n) is scratch; `history` takes η before each iteration, as far as it reaches.
    Returns (iterations, last η, how it ended).
    """
    r, z, p, t, v = work[0], work[1], work[2], work[3], work[4]
    K, n = D.shape[0], D.shape[1]
    if shape == STAIR:
        _solve_odd(D, E, P, gamma, lam, t)
    tridiagonal_times(D, E, lam, r)
    for k in range(K):
        for i in range(n):
            r[k, i] = gamma[k, i] - r[k, i]
    _precondition(shape, P, O, scale, order, D, E, r, z, t, v)
    eta = _dot(r, z)
    bound = max(absolute, relative * abs(eta))
    for k in range(K):
        for i in range(n):
            p[k, i] = z[k, i]
    for iteration in range(limit + 1):
        if iteration < history.shape[0]:
            history[iteration] = eta
        if abs(eta) <= bound:
            return iteration, eta, CONVERGED
        if iteration == limit:
            break
        tridiagonal_times(D, E, p, t)
        curvature = _dot(p, t)
        # S or Φ is not positive definite, or something is not a number
        if not (curvature > 0.0 and eta > 0.0):
            return iteration, eta, BREAKDOWN
        alpha = eta / curvature
        for k in range(K):
            for i in range(n):
                lam[k, i] += alpha * p[k, i]
                r[k, i] -= alpha * t[k, i]
        _precondition(shape, P, O, scale, order, D, E, r, z, t, v)
        after = _dot(r, z)
        beta = after / eta
        for k in range(K):
            for i in range(n):
                p[k, i] = z[k, i] + beta * p[k, i]
        eta = after
    return limit, eta, LIMIT


def workspace(K: int, n: int) -> np.ndarray:
    return np.empty((5, K, n))
