"""Cyclic reduction of a symmetric positive definite block-tridiagonal system.

One level eliminates the odd blocks (red-black ordering) and leaves a system of the same kind over
the even ones (`kernels.reduction`, a block in each lane); right-hand sides and unknowns follow in
loops, as a product of a matrix and a vector for each block is less work than to bring it into
lanes. Levels down to one block solve the system directly; after a few, conjugate gradients need few
iterations.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rigidgrad.control.linear.blocks import (
    SINGULAR,
    add_matrix_vector,
    add_transposed_vector,
    compiled,
)
from rigidgrad.control.linear.lanes import BlocksInLanes
from rigidgrad.kernels import reduction as kernel
from rigidgrad.runtime.job import Job, Knots


@compiled
def reduce_vector(
    kept: np.ndarray, gamma: np.ndarray, gamma2: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """The right-hand side of the reduced system."""
    K = gamma.shape[0]
    for j in range(gamma2.shape[0]):
        gamma2[j] = gamma[2 * j]
    for j in range(K // 2):
        add_transposed_vector(1.0, kept[j, 1], gamma[2 * j + 1], gamma2[j])
        if 2 * j + 2 < K:
            add_transposed_vector(1.0, kept[j, 2], gamma[2 * j + 1], gamma2[j + 1])


@compiled
def expand(
    kept: np.ndarray, gamma: np.ndarray, lam2: np.ndarray, lam: np.ndarray
) -> None:  # pragma: no cover (compiled)
    """The unknowns of a level from those of the reduced one."""
    K, n = gamma.shape
    for j in range(lam2.shape[0]):
        lam[2 * j] = lam2[j]
    for j in range(K // 2):
        k = 2 * j + 1
        factor, x = kept[j, 0], lam[k]
        x[:] = gamma[k]
        for a in range(n):
            for b in range(a):
                x[a] += factor[a, b] * x[b]
        for a in range(n):
            x[a] *= factor[a, a]
        for a in range(n - 1, -1, -1):
            for b in range(a):
                x[b] += factor[a, b] * x[a]
        add_matrix_vector(1.0, kept[j, 1], lam[k - 1], x)
        if k + 1 < K:
            add_matrix_vector(1.0, kept[j, 2], lam[k + 1], x)


class Reduction:
    """Levels of cyclic reduction of systems with K blocks of n: `D`, `E`, `gamma` hold each level's
    system, the given one first.
    """

    def __init__(self, K: int, n: int, levels: int | None = None):
        self.n, self.sizes = n, [K]
        while self.sizes[-1] > 1 and (levels is None or len(self.sizes) <= levels):
            self.sizes.append((self.sizes[-1] + 1) // 2)
        # with zeros behind the last blocks of E, so that all have a pair of them
        self._D, self._E = ([np.zeros((k, n, n)) for k in self.sizes] for _ in range(2))
        self.D, self.E = self._D, [E[:-1] for E in self._E]
        self.gamma, self.lam = (
            [np.zeros((k, n)) for k in self.sizes],
            [np.zeros((k, n)) for k in self.sizes],
        )
        self.kept = [np.zeros((k // 2, 3, n, n)) for k in self.sizes[:-1]]

    @cached_property
    def _lanes(self) -> BlocksInLanes:
        n = self.n
        job = Job(
            "cyclic reduction",
            f"{n} states",
            f"{n} states, pivots above {SINGULAR}",
            lambda: kernel.eliminate(n, singular=SINGULAR),
            knots=Knots(),
        )
        return BlocksInLanes(job, self.sizes[0] // 2, {"D": np.tile(np.eye(n), (2, 1))})

    def factor(self, D: np.ndarray, E: np.ndarray) -> bool:
        self.D[0][:], self.E[0][:] = D, E
        if len(self.sizes) == 1:
            return True
        lanes = self._lanes
        lanes.rows["fine"][:] = 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            for i, kept in enumerate(self.kept):
                self._eliminate(i, kept)
        return bool(lanes.rows["fine"].all())

    def _eliminate(self, level: int, kept: np.ndarray) -> None:
        lanes, odd, even = self._lanes, len(kept), self.sizes[level + 1]
        for name, own in (("D", self._D[level]), ("E", self._E[level])):
            lanes.write(name, own[: 2 * odd].reshape(odd, -1))
        lanes.run(odd)
        kept[:] = lanes.read("kept", odd, *kept.shape[1:])
        given, D = lanes.read("given", odd, *kept.shape[1:]), self.D[level + 1]
        D[:odd] = given[:, 0]
        if even > odd:
            D[odd] = self.D[level][-1]
        D[1:] -= given[: even - 1, 2]
        self.E[level + 1][:] = given[: even - 1, 1]

    def reduce(self, gamma: np.ndarray) -> None:
        self.gamma[0] = gamma
        for i in range(len(self.sizes) - 1):
            reduce_vector(self.kept[i], self.gamma[i], self.gamma[i + 1])

    def restrict(self, lam: np.ndarray) -> np.ndarray:
        """The part of a λ that the last level has."""
        self.lam[-1][:] = lam[:: 2 ** (len(self.sizes) - 1)]
        return self.lam[-1]

    def expand(self, out: np.ndarray) -> None:
        """λ of the given system, from the last level's in `lam[-1]`."""
        if len(self.sizes) == 1:
            out[:] = self.lam[0]
        for i in range(len(self.sizes) - 2, -1, -1):
            expand(self.kept[i], self.gamma[i], self.lam[i + 1], self.lam[i] if i else out)
