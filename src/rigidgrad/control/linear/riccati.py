"""Riccati's recursion for the whole LQ problem, cross terms and defects included, compiled. Serial in the knots; the cheapest way on one core."""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import (
    add_matrix_vector,
    add_transposed_product,
    add_transposed_vector,
    cholesky,
    compiled,
    multiply,
    solve_factored,
    solve_lower,
    solve_upper,
    symmetrize,
)


@compiled
def factor(A, B, Q, S, R, V, K, L):  # pragma: no cover (compiled)
    """Fills the cost-to-go's Hessians V (N + 1, n, n), the gains K (N, m, n) and the Cholesky factors L of H_uu (N, m, m).

    The index of the knot where H_uu is not positive definite, or -1.
    """
    N, n, m = A.shape[0], A.shape[1], B.shape[2]
    VA, VB = np.empty((n, n)), np.empty((n, m))
    Hux = np.empty((m, n))
    V[N] = Q[N]
    for k in range(N - 1, -1, -1):
        multiply(V[k + 1], A[k], VA)
        multiply(V[k + 1], B[k], VB)
        V[k] = Q[k]
        L[k] = R[k]
        Hux[:] = S[k]
        add_transposed_product(1.0, A[k], VA, V[k])
        add_transposed_product(1.0, B[k], VB, L[k])
        add_transposed_product(1.0, B[k], VA, Hux)
        if not cholesky(L[k]):
            return k
        for i in range(m):
            for j in range(n):
                K[k, i, j] = -Hux[i, j]
        solve_factored(L[k], K[k])
        add_transposed_product(1.0, Hux, K[k], V[k])
        symmetrize(V[k])
    return -1


@compiled
def solve(A, B, V, K, L, q, r, d, dx, du, lam):  # pragma: no cover (compiled)
    """One backward and one forward sweep with the factors: fills dx, du, λ."""
    N, n = A.shape[0], A.shape[1]
    w = np.empty(n)
    lam[N] = q[N]  # on the way back, the gradient v of the cost-to-go
    for k in range(N - 1, -1, -1):
        w[:] = lam[k + 1]
        add_matrix_vector(1.0, V[k + 1], d[k + 1], w)
        du[k] = r[k]
        add_transposed_vector(1.0, B[k], w, du[k])  # H_u
        lam[k] = q[k]
        add_transposed_vector(1.0, A[k], w, lam[k])
        add_transposed_vector(1.0, K[k], du[k], lam[k])  # H_x + H_xu κ = H_x + Kᵀ H_u
        for i in range(du.shape[1]):
            du[k, i] = -du[k, i]
        solve_lower(L[k], du[k])
        solve_upper(L[k], du[k])  # κ
    dx[0] = d[0]
    for k in range(N):
        add_matrix_vector(1.0, K[k], dx[k], du[k])
        dx[k + 1] = d[k + 1]
        add_matrix_vector(1.0, A[k], dx[k], dx[k + 1])
        add_matrix_vector(1.0, B[k], du[k], dx[k + 1])
    for k in range(N + 1):
        add_matrix_vector(1.0, V[k], dx[k], lam[k])
