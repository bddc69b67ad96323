"""Riccati's recursion for the whole LQ problem, cross terms and defects included: the kernels of
the backward pass (`kernels.riccati`), run along the knots with one problem in one lane. Serial in
the knots; the cheapest way on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from rigidgrad.control.linear.blocks import SINGULAR
from rigidgrad.control.linear.lq import LQ
from rigidgrad.kernels import riccati, riccati_again
from rigidgrad.kernels.language import Kernel
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.bound import Bound
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job, Knots


class Recursion:
    """Buffers of problems of one size, and sweeps over them. A problem without controls has one
    that does nothing.
    """

    def __init__(self, steps: int, n: int, m: int):
        self.sizes = n, max(m, 1)
        N, m = steps, max(m, 1)
        self.F, self.L, self.l = _zeros(N, n, n + m), _zeros(N, n + m, n + m), _zeros(N, n + m)
        self.L[:, n:, n:] = np.eye(m)
        self.d, self.V = _zeros(N + 1, n), _zeros(N + 1, n + 1, n)
        self.gains, self.factors = _zeros(N, m, n + 1), _zeros(N, m, m)
        self.results = _zeros(1, len(riccati.RESULTS))
        self.dx, self.du, self.lam = _zeros(N + 1, n), _zeros(N, m), _zeros(N + 1, n)

    def factor(self, lq: LQ) -> bool:
        """Factors, gains and the cost-to-go V; whether H_uu is positive definite everywhere."""
        _, n, m = lq.sizes
        self.F[:, :, :n], self.F[:, :, n : n + m] = lq.A, lq.B
        self.L[:, :n, :n], self.L[:, n : n + m, :n] = lq.Q[:-1], lq.S
        self.L[:, n : n + m, n : n + m] = lq.R
        self._take(lq.q, lq.r, lq.d)
        self.V[-1, :n] = lq.Q[-1]
        self.results[:] = 0.0, 0.0, 1.0
        self._backward.run()
        return bool(self.results[0, riccati.RESULTS.index("fine")])

    def again(self, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        """Gradients of the cost-to-go and κ of another right-hand side."""
        self._take(q, r, d)
        self._another.run()

    def forward(self) -> None:
        """dx, du and λ."""
        n, _ = self.sizes
        self.dx[0] = self.d[0]
        self.lam[0] = self.V[0, :n] @ self.d[0] + self.V[0, n]
        self._forward.run()

    def _take(self, q: np.ndarray, r: np.ndarray, d: np.ndarray) -> None:
        n, m = self.sizes[0], r.shape[1]
        self.l[:, :n], self.l[:, n : n + m], self.d[:] = q[:-1], r, d
        self.V[-1, n] = q[-1]

    @cached_property
    def _backward(self) -> Bound:
        n, m = self.sizes
        sizes = riccati.Sizes(n, m, gaps=True)
        arrays = {"F": self.F, "l": self.l, "L": self.L, "d": self.d[1:], "after": self.V[1:]}
        arrays |= {"V": self.V[:-1], "gains": self.gains, "factor": self.factors}
        return self._bound(
            f"riccati, kept, pivots above {SINGULAR}",
            lambda: riccati.knot(sizes, kept=True, singular=SINGULAR),
            arrays,
            {"rho": _zeros(1, 1), "results": self.results},
            back=True,
        )

    @cached_property
    def _another(self) -> Bound:
        n, m = self.sizes
        arrays = {"F": self.F, "l": self.l, "d": self.d[1:], "after": self.V[1:]}
        arrays |= {"V": self.V[:-1], "gains": self.gains, "factor": self.factors}
        return self._bound("riccati again", lambda: riccati_again.another(n, m), arrays, back=True)

    @cached_property
    def _forward(self) -> Bound:
        n, m = self.sizes
        arrays = {"F": self.F, "d": self.d[1:], "gains": self.gains, "after": self.V[1:]}
        arrays |= {"x": self.dx[:-1], "u": self.du, "next": self.dx[1:], "lam": self.lam[1:]}
        return self._bound("riccati forward", lambda: riccati_again.forward(n, m), arrays)

    def _bound(
        self,
        name: str,
        build: Callable[[], Kernel],
        arrays: Mapping[str, np.ndarray],
        shared: Mapping[str, np.ndarray] | None = None,
        back: bool = False,
    ) -> Bound:
        """A sweep over arrays of knots, and over such as all knots share."""
        n, m = self.sizes
        own = f"{n} states, {m} controls"
        code = Code.of(Job(name, own, own, build, width=1, knots=Knots()))
        steps = len(self.F)
        placed = {a: x.reshape(1, steps, -1, 1) for a, x in arrays.items()}
        placed = {a: x[:, ::-1] if back else x for a, x in placed.items()}
        placed |= {
            a: np.broadcast_to(x.reshape(1, 1, -1, 1), (1, steps, x.size, 1))
            for a, x in (shared or {}).items()
        }
        return code.bind(placed, placed)


def _zeros(*shape: int) -> np.ndarray:
    return aligned_zeros(shape)
