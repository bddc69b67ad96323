"""The backward pass of iLQR, compiled: from the last knot to the first, the control corrections κ + K δx and the cost-to-go (Plancher 2022, 2.7-2.9, 4.4).

Loops are written so that the innermost one runs along rows in memory, which compilers turn into SIMD.
"""

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy")


@_compiled
def _multiply(a, b, out):  # pragma: no cover (compiled)
    """out = a b."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            out[i, j] = 0.0
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += x * b[k, j]


@_compiled
def _add_transposed_product(a, b, out):  # pragma: no cover (compiled)
    """out += aᵀ b."""
    for k in range(a.shape[0]):
        for i in range(a.shape[1]):
            x = a[k, i]
            for j in range(b.shape[1]):
                out[i, j] += x * b[k, j]


@_compiled
def _cholesky(a):  # pragma: no cover (compiled)
    """Lower factor in place; False where a is not positive definite."""
    n = a.shape[0]
    for j in range(n):
        d = a[j, j]
        for k in range(j):
            d -= a[j, k] * a[j, k]
        if not d > 0.0:
            return False
        d = np.sqrt(d)
        a[j, j] = d
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[j, k]
            a[i, j] = s / d
    return True


@_compiled
def _solve(L, b):  # pragma: no cover (compiled)
    """b := (L Lᵀ)⁻¹ b, for the rows of b."""
    n = L.shape[0]
    for i in range(n):
        for k in range(i):
            x = L[i, k]
            for j in range(b.shape[1]):
                b[i, j] -= x * b[k, j]
        for j in range(b.shape[1]):
            b[i, j] /= L[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x = L[k, i]
            for j in range(b.shape[1]):
                b[i, j] -= x * b[k, j]
        for j in range(b.shape[1]):
            b[i, j] /= L[i, i]


@_compiled
def backward(A, B, lx, lu, lxx, luu, final_lx, final_lxx, rho, kappa, K):  # pragma: no cover (compiled)
    """Fills κ (N, nu) and K (N, nu, ndx); returns (True, Σ κᵀQ_u, Σ κᵀQ_uu κ), or False where Q_uu is not positive definite."""
    steps, n, m = A.shape[0], A.shape[1], B.shape[2]
    Vx, Vxx = final_lx.copy(), final_lxx.copy()
    Wide = np.empty((n, n + m))  # [A, B]
    VW = np.empty((n, n + m))
    Q = np.empty((n + m, n + m))  # [[Q_xx, ·], [Q_ux, Q_uu]]
    q = np.empty(n + m)
    gains = np.empty((m, n + 1))
    factor = np.empty((m, m))
    QuuK = np.empty((m, n + 1))
    slope = 0.0
    curve = 0.0
    for step in range(steps - 1, -1, -1):
        for i in range(n):
            for j in range(n):
                Wide[i, j] = A[step, i, j]
            for j in range(m):
                Wide[i, n + j] = B[step, i, j]
        _multiply(Vxx, Wide, VW)
        Q[:, :] = 0.0
        for i in range(n):
            for j in range(n):
                Q[i, j] = lxx[step, i, j]
        for i in range(m):
            for j in range(m):
                Q[n + i, n + j] = luu[step, i, j]
        _add_transposed_product(Wide, VW, Q)
        for i in range(n):
            q[i] = lx[step, i]
        for i in range(m):
            q[n + i] = lu[step, i]
        for k in range(n):
            x = Vx[k]
            for j in range(n + m):
                q[j] += x * Wide[k, j]
        for i in range(m):
            for j in range(m):
                s = Q[n + i, n + j]
                if rho > 0.0:
                    for k in range(n):
                        s += rho * B[step, k, i] * B[step, k, j]
                factor[i, j] = s
            for j in range(n):
                s = Q[n + i, j]
                if rho > 0.0:
                    for k in range(n):
                        s += rho * B[step, k, i] * A[step, k, j]
                gains[i, j] = -s
            gains[i, n] = -q[n + i]
        if not _cholesky(factor):
            return False, 0.0, 0.0
        _solve(factor, gains)
        for i in range(m):
            kappa[step, i] = gains[i, n]
            if not np.isfinite(gains[i, n]):
                return False, 0.0, 0.0
            for j in range(n):
                K[step, i, j] = gains[i, j]
        # Q_uu [K, κ] + [Q_ux, Q_u]: what is left of the control's gradient, zero where nothing was regularised
        for i in range(m):
            for j in range(n):
                QuuK[i, j] = Q[n + i, j]
            QuuK[i, n] = q[n + i]
            for k in range(m):
                x = Q[n + i, n + k]
                for j in range(n + 1):
                    QuuK[i, j] += x * gains[k, j]
        for i in range(m):
            slope += gains[i, n] * q[n + i]
            curve += gains[i, n] * (QuuK[i, n] - q[n + i])
        for i in range(n):
            s = q[i]
            for k in range(m):
                s += gains[k, i] * QuuK[k, n] + Q[n + k, i] * gains[k, n]
            Vx[i] = s
            for j in range(n):
                Vxx[i, j] = Q[i, j]
        for k in range(m):
            for i in range(n):
                x = gains[k, i]
                y = Q[n + k, i]
                for j in range(n):
                    Vxx[i, j] += x * QuuK[k, j] + y * gains[k, j]
        for i in range(n):
            for j in range(i):
                Vxx[i, j] = Vxx[j, i] = (Vxx[i, j] + Vxx[j, i]) / 2
    return True, slope, curve
