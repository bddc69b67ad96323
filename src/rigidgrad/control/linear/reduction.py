"""Cyclic reduction of a symmetric positive definite block-tridiagonal system, compiled.

One level eliminates the odd blocks (red-black ordering) and leaves a system of the same kind over
the even ones:
    D'_j = D_{2j} - E_{2j-1} D_{2j-1}⁻¹ E_{2j-1}ᵀ - E_{2j}ᵀ D_{2j+1}⁻¹ E_{2j},    E'_j = -E_{2j+1}
    D_{2j+1}⁻¹ E_{2j}.
The eliminations of a level do not depend on each other. Levels down to one block solve the system
directly; after a few, conjugate gradients need few iterations.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.control.linear.blocks import (
    add_product,
    add_transposed_product,
    cholesky,
    compiled,
    solve_factored,
    solve_lower,
    solve_upper,
    symmetrize,
)


@compiled
def reduce(
    D: np.ndarray,
    E: np.ndarray,
    L: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    D2: np.ndarray,
    E2: np.ndarray,
) -> bool:  # pragma: no cover (compiled)
    """One level. Fills, for each odd block 2j + 1, its factor L[j] and D⁻¹ E_{2j} (`left`) and D⁻¹
    E_{2j+1}ᵀ (`right`); and the reduced D2, E2.

    False where a block is not positive definite.
    """
    K, n = D.shape[0], D.shape[1]
    for j in range(D2.shape[0]):
        D2[j] = D[2 * j]
    for j in range(K // 2):
        k = 2 * j + 1
        L[j] = D[k]
        if not cholesky(L[j]):
            return False
        left[j] = E[k - 1]
        solve_factored(L[j], left[j])
        add_transposed_product(-1.0, E[k - 1], left[j], D2[j])
        if k + 1 < K:
            for a in range(n):
                for b in range(n):
                    right[j, a, b] = E[k, b, a]
            solve_factored(L[j], right[j])
            add_product(-1.0, E[k], right[j], D2[j + 1])
            E2[j] = 0.0
            add_product(-1.0, E[k], left[j], E2[j])
    for j in range(D2.shape[0]):
        symmetrize(D2[j])
    return True


@compiled
def reduce_vector(
    left: np.ndarray, right: np.ndarray, gamma: np.ndarray, gamma2: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """The right-hand side of the reduced system."""
    K, n = gamma.shape
    for j in range(gamma2.shape[0]):
        gamma2[j] = gamma[2 * j]
    for j in range(K // 2):
        for a in range(n):
            x = gamma[2 * j + 1, a]
            for b in range(n):
                gamma2[j, b] -= left[j, a, b] * x
            if 2 * j + 2 < K:
                for b in range(n):
                    gamma2[j + 1, b] -= right[j, a, b] * x


@compiled
def expand(
    L: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    gamma: np.ndarray,
    lam2: np.ndarray,
    lam: np.ndarray,
) -> None:  # pragma: no cover (compiled)
    """The unknowns of a level from those of the reduced one."""
    K, n = gamma.shape
    for j in range(lam2.shape[0]):
        lam[2 * j] = lam2[j]
    for j in range(K // 2):
        k = 2 * j + 1
        lam[k] = gamma[k]
        solve_lower(L[j], lam[k])
        solve_upper(L[j], lam[k])
        for a in range(n):
            s = 0.0
            for b in range(n):
                s += left[j, a, b] * lam[k - 1, b]
            if k + 1 < K:
                for b in range(n):
                    s += right[j, a, b] * lam[k + 1, b]
            lam[k, a] -= s


class Reduction:
    """Levels of cyclic reduction of systems with K blocks of n: `D`, `E`, `gamma` hold each level's
    system, the given one first.
    """

    def __init__(self, K: int, n: int, levels: int | None = None):
        self.sizes = [K]
        while self.sizes[-1] > 1 and (levels is None or len(self.sizes) <= levels):
            self.sizes.append((self.sizes[-1] + 1) // 2)
        blocks = [np.zeros((k, n, n)) for k in self.sizes]
        self.D, self.E = blocks, [np.zeros((k - 1, n, n)) for k in self.sizes]
        self.gamma, self.lam = (
            [np.zeros((k, n)) for k in self.sizes],
            [np.zeros((k, n)) for k in self.sizes],
        )
        odd = [k // 2 for k in self.sizes[:-1]]
        self.L, self.left, self.right = ([np.zeros((k, n, n)) for k in odd] for _ in range(3))

    def factor(self, D: np.ndarray, E: np.ndarray) -> bool:
        self.D[0], self.E[0] = D, E
        return all(
            reduce(
                self.D[i],
                self.E[i],
                self.L[i],
                self.left[i],
                self.right[i],
                self.D[i + 1],
                self.E[i + 1],
            )
            for i in range(len(self.sizes) - 1)
        )

    def reduce(self, gamma: np.ndarray) -> None:
        self.gamma[0] = gamma
        for i in range(len(self.sizes) - 1):
            reduce_vector(self.left[i], self.right[i], self.gamma[i], self.gamma[i + 1])

    def restrict(self, lam: np.ndarray) -> np.ndarray:
        """The part of a λ that the last level has."""
        self.lam[-1][:] = lam[:: 2 ** (len(self.sizes) - 1)]
        return self.lam[-1]

    def expand(self, out: np.ndarray) -> None:
        """λ of the given system, from the last level's in `lam[-1]`."""
        if len(self.sizes) == 1:
            out[:] = self.lam[0]
        for i in range(len(self.sizes) - 2, -1, -1):
            expand(
                self.L[i],
                self.left[i],
                self.right[i],
                self.gamma[i],
                self.lam[i + 1],
                self.lam[i] if i else out,
            )
