"""Block Cholesky factorisation of a symmetric positive definite block-tridiagonal matrix, compiled.
Serial in the blocks.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import (
    add_matrix_vector,
    add_product_transposed,
    add_transposed_vector,
    cholesky,
    compiled,
    solve_lower,
    solve_upper,
)


@compiled
def factor(
    D: np.ndarray, E: np.ndarray, L: np.ndarray, W: np.ndarray
) -> bool:  # pragma: no cover (compiled)
    """S = 𝐋 𝐋ᵀ with diagonal blocks L_k (lower triangles) and W_k = E_k L_k⁻ᵀ below them; False
    where S is not positive definite.
    """
    n = D.shape[1]
    for k in range(D.shape[0]):
        L[k] = D[k]
        if k > 0:
            add_product_transposed(-1.0, W[k - 1], W[k - 1], L[k])
        if not cholesky(L[k]):
            return False
        if k < E.shape[0]:
            for i in range(n):  # each row w of W fulfils L w = the row of E
                for j in range(n):
                    W[k, i, j] = E[k, i, j]
                solve_lower(L[k], W[k, i])
    return True


@compiled
def solve(
    L: np.ndarray, W: np.ndarray, gamma: np.ndarray, lam: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """λ = S⁻¹ γ."""
    K = L.shape[0]
    for k in range(K):
        lam[k] = gamma[k]
        if k > 0:
            add_matrix_vector(-1.0, W[k - 1], lam[k - 1], lam[k])
        solve_lower(L[k], lam[k])
    for k in range(K - 1, -1, -1):
        if k < K - 1:
            add_transposed_vector(-1.0, W[k], lam[k + 1], lam[k])
        solve_upper(L[k], lam[k])
