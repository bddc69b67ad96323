"""The Schur complement of the LQ problem's optimality conditions, compiled (Plancher 2022, (2.13), (6.4)-(6.6), with S = C G⁻¹ Cᵀ positive definite).

Cross terms are condensed first: du = du' - R⁻¹(S dx + r) leaves A - B R⁻¹ S and Q - Sᵀ R⁻¹ S, and no cross term. Then, with d and λ as in `lq`,
    θ_k = A_k Q_k⁻¹ A_kᵀ + B_k R_k⁻¹ B_kᵀ + Q_{k+1}⁻¹,    φ_k = -A_k Q_k⁻¹,    θ_{-1} = Q_0⁻¹
are the diagonal blocks and the blocks below them, and γ = d + C G⁻¹ g.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import (
    add_matrix_vector,
    add_product,
    add_product_transposed,
    add_transposed_product,
    add_transposed_vector,
    compiled,
    invert,
    multiply,
    symmetrize,
)


@compiled
def _inverse(a, least, work, out):  # pragma: no cover (compiled)
    """out = (a + ρ I)⁻¹ with ρ = 0 where a is positive definite, else the first of least, 100 least, … that makes it so; ρ, or -1 (NaN in a)."""
    n = a.shape[0]
    rho = 0.0
    for _ in range(20):
        if invert(a, work, out):
            return rho
        more = least if rho == 0.0 else 99.0 * rho
        for i in range(n):
            a[i, i] += more
        rho += more
    return -1.0


@compiled
def form(A, B, Q, S, R, cross, least_Q, least_R, At, RS, Qi, Ri, D, E):  # pragma: no cover (compiled)
    """Fills the condensed At (N, n, n), RS = R⁻¹ S (N, m, n), Qi and Ri (the inverses), and the blocks D, E of the Schur complement.

    The largest ρ that was added to a Q or an R to make it positive definite; -1 where nothing finite does.
    """
    N, n, m = A.shape[0], A.shape[1], B.shape[2]
    q, qw = np.empty((n, n)), np.empty((n, n))
    r, rw = np.empty((m, m)), np.empty((m, m))
    BR = np.empty((n, m))
    largest = 0.0
    for k in range(N + 1):
        q[:] = Q[k]
        if k < N:
            r[:] = R[k]
            rho = _inverse(r, least_R, rw, Ri[k])
            if rho < 0.0:
                return -1.0
            largest = max(largest, rho)
            At[k] = A[k]
            if cross:
                multiply(Ri[k], S[k], RS[k])
                add_transposed_product(-1.0, S[k], RS[k], q)
                add_product(-1.0, B[k], RS[k], At[k])
        rho = _inverse(q, least_Q, qw, Qi[k])
        if rho < 0.0:
            return -1.0
        largest = max(largest, rho)
        if k == 0:
            D[0] = Qi[0]
        else:
            for i in range(n):
                for j in range(n):
                    D[k, i, j] += Qi[k, i, j]
            symmetrize(D[k])
        if k < N:
            D[k + 1] = 0.0
            multiply(At[k], Qi[k], E[k])
            add_product_transposed(1.0, E[k], At[k], D[k + 1])
            multiply(B[k], Ri[k], BR)
            add_product_transposed(1.0, BR, B[k], D[k + 1])
            for i in range(n):
                for j in range(n):
                    E[k, i, j] = -E[k, i, j]
    return largest


@compiled
def right_hand_side(B, At, RS, cross, Qi, Ri, q, r, d, dx, du, gamma):  # pragma: no cover (compiled)
    """Fills γ, and dx = -Qi q (condensed q), du = -Ri r: the step without multipliers."""
    N = At.shape[0]
    n, m = At.shape[1], B.shape[2]
    w = np.empty(n)
    for k in range(N + 1):
        for i in range(n):
            w[i] = -q[k, i]
            dx[k, i] = 0.0
        if k < N:
            for i in range(m):
                du[k, i] = 0.0
            add_matrix_vector(-1.0, Ri[k], r[k], du[k])
            if cross:
                add_transposed_vector(1.0, RS[k], r[k], w)
        add_matrix_vector(1.0, Qi[k], w, dx[k])
        for i in range(n):
            gamma[k, i] = d[k, i] - dx[k, i]
        if k > 0:
            add_matrix_vector(1.0, At[k - 1], dx[k - 1], gamma[k])
            add_matrix_vector(1.0, B[k - 1], du[k - 1], gamma[k])


@compiled
def recover(B, At, RS, cross, Qi, Ri, lam, dx, du):  # pragma: no cover (compiled)
    """dZ = G⁻¹(Cᵀ λ - g), from the step without multipliers in dx, du."""
    N = At.shape[0]
    n, m = At.shape[1], B.shape[2]
    w, v = np.empty(n), np.empty(m)
    for k in range(N + 1):
        w[:] = lam[k]
        if k < N:
            add_transposed_vector(-1.0, At[k], lam[k + 1], w)
        add_matrix_vector(1.0, Qi[k], w, dx[k])
        if k < N:
            v[:] = 0.0
            add_transposed_vector(-1.0, B[k], lam[k + 1], v)
            add_matrix_vector(1.0, Ri[k], v, du[k])
            if cross:
                add_matrix_vector(-1.0, RS[k], dx[k], du[k])
