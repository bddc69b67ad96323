"""The linear-quadratic problem of a horizon of N steps: what one Newton step of a trajectory asks
for.

Minimise Σ ½ dx_kᵀ Q_k dx_k + du_kᵀ S_k dx_k + ½ du_kᵀ R_k du_k + q_kᵀ dx_k + r_kᵀ du_k over k = 0 …
N (no control at N), subject to dx_0 = d_0 and dx_{k+1} = A_k dx_k + B_k du_k + d_{k+1}. The defects
are d_0 = x_s ⊖ x_0 and d_{k+1} = f(x_k, u_k) ⊖ x_{k+1}.

With Z = [dx_0, du_0, dx_1, …], G = ∇²J, g = ∇J and C dZ = d, its solution fulfils (Plancher 2022,
(2.10), with one sign throughout)
    G dZ + g = Cᵀ λ,    C dZ = d,
so that λ_k is the gradient of the cost-to-go by dx_k.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from rigidgrad.control.linear.blocks import add_matrix_vector, compiled
from rigidgrad.errors import InputError


@dataclass(frozen=True)
class LQ:
    """A (N, n, n), B (N, n, m); Q (N + 1, n, n), S (N, m, n), R (N, m, m), q (N + 1, n), r (N, m);
    d (N + 1, n).
    """

    A: np.ndarray
    B: np.ndarray
    Q: np.ndarray
    S: np.ndarray
    R: np.ndarray
    q: np.ndarray
    r: np.ndarray
    d: np.ndarray

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(
                self, f.name, np.ascontiguousarray(getattr(self, f.name), dtype=float)
            )
        if self.B.ndim != 3:
            raise InputError(f"B has shape {self.B.shape}; expected (steps, n, m)")
        N, n, m = self.B.shape
        expected = {
            "A": (N, n, n),
            "Q": (N + 1, n, n),
            "S": (N, m, n),
            "R": (N, m, m),
            "q": (N + 1, n),
            "r": (N, m),
            "d": (N + 1, n),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"{name} has shape {getattr(self, name).shape}; expected {shape} for {N} steps,"
                    f" {n} states and {m} controls"
                )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, n, m."""
        N, n, m = self.B.shape
        return N, n, m

    def damped(self, rho: float) -> LQ:
        """With ρ I added to every Q and R."""
        _, n, m = self.sizes
        return replace(self, Q=self.Q + rho * np.eye(n), R=self.R + rho * np.eye(m))

    def fixed(self, which: np.ndarray, values: np.ndarray) -> LQ:
        """The problem in which the controls `which` (N, m) are held at `values`: solve it, then add
        `held` values to its du.
        """
        held = np.where(which, values, 0.0)
        free = ~which
        scale = np.maximum(np.abs(np.einsum("kii->ki", self.R)).max(initial=0.0), 1e-300)
        B = self.B * free[:, None, :]
        S = self.S * free[:, :, None]
        R = self.R * (free[:, :, None] & free[:, None, :]) + scale * which[:, :, None] * np.eye(
            which.shape[1]
        )
        d, q = self.d.copy(), self.q.copy()
        d[1:] += _times(self.B, held)
        q[:-1] += _times(self.S.swapaxes(1, 2), held)
        return LQ(self.A, B, self.Q, S, R, q, (self.r + _times(self.R, held)) * free, d)

    def cost_gradient(self, dx: np.ndarray, du: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G dZ + g, by states and controls."""
        gx, gu = self.q + _times(self.Q, dx), self.r + _times(self.R, du) + _times(self.S, dx[:-1])
        gx[:-1] += _times(self.S.swapaxes(1, 2), du)
        return gx, gu

    def residuals(
        self, dx: np.ndarray, du: np.ndarray, lam: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is left of the optimality conditions: G dZ + g - Cᵀλ by states and by controls, and
        d - C dZ; all zero at the solution.
        """
        gx, gu = self.cost_gradient(dx, du)
        gx -= lam
        gx[:-1] += _times(self.A.swapaxes(1, 2), lam[1:])
        gu += _times(self.B.swapaxes(1, 2), lam[1:])
        return gx, gu, self.defects(dx, du)

    def defects(self, dx: np.ndarray, du: np.ndarray) -> np.ndarray:
        """d - C dZ: what a step leaves of the defects, by the linearised dynamics."""
        left: np.ndarray = self.d - dx
        left[1:] += _times(self.A, dx[:-1]) + _times(self.B, du)
        return left

    def propagate(self, du: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        """The dx that these controls lead to, with the problem's defects or others."""
        dx = np.empty_like(self.q)
        _propagate(self.A, self.B, self.d if d is None else d, du, dx)
        return dx

    def value(self, dx: np.ndarray, du: np.ndarray) -> float:
        """The quadratic cost."""
        gx, gu = self.cost_gradient(dx, du)
        return float((dx * (gx + self.q)).sum() + (du * (gu + self.r)).sum()) / 2


@compiled
def _propagate(
    A: np.ndarray, B: np.ndarray, d: np.ndarray, du: np.ndarray, dx: np.ndarray
) -> None:  # pragma: no cover (compiled)
    dx[0] = d[0]
    for k in range(A.shape[0]):
        dx[k + 1] = d[k + 1]
        add_matrix_vector(1.0, A[k], dx[k], dx[k + 1])
        add_matrix_vector(1.0, B[k], du[k], dx[k + 1])


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    products: np.ndarray = np.matmul(matrices, vectors[..., None])[..., 0]
    return products
