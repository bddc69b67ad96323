"""The factor M = LᵀDL of a large mass matrix and W = L⁻¹, block by block along the tree
(`algorithms.ltl`).

Segments from the last to the first: with M_ss = L_ssᵀ D L_ss of the segment itself and A the
freedoms that carry it, T = L_ss⁻ᵀ M_sA, L_sA = D⁻¹ T and M_AA -= Tᵀ L_sA. Then from the first to
the last, W_sA = -W_ss L_sA W_AA.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.sparsity import Supports, dense
from rigidgrad.kernels.blocks import Matrix, runs, segments
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.scalars import mul, neg


def factorize(k: Kernel, supports: Supports, M: View, W: View, scaled: View) -> None:
    """W = L⁻¹ and scaled = -W D⁻¹; M is overwritten."""
    n = len(supports)
    inner, minus_d, T, L, U = (
        k.scratch(name, n, n).matrix(n, n) for name in ("W_ss / D", "-1 / D", "T", "L", "L W")
    )
    chains = segments(supports)
    for s in reversed(chains):
        corner = (
            M.part(s, s),
            {"W": W.part(s, s), "scaled": inner.part(s, s), "minus": minus_d.part(s, s)},
        )
        k.call(_small_factor(len(s)), {"M": corner[0]}, corner[1])
        above = runs(supports[s.start])
        for a in above:
            k.product(T.part(s, a), W.part(s, s).T, M.part(s, a))
            k.product(L.part(s, a), inner.part(s, s).T, M.part(s, a))
        for i, a in enumerate(above):
            for b in above[: i + 1]:
                k.product(
                    M.part(a, b),
                    T.part(s, a).T,
                    L.part(s, b),
                    -1.0,
                    accumulate=True,
                    symmetric=a == b,
                )
    for s in chains:
        above_s = set(supports[s.start])
        carried_by = Matrix.within(U)
        for c in chains:
            if c.start in above_s:
                for rows, across, there in carried_by.blocks(s, {*supports[c.start], *c}):
                    k.product(
                        U.part(rows, across), L.part(rows, c), W.part(c, across), accumulate=there
                    )
        for a in runs(above_s):
            k.product(W.part(s, a), W.part(s, s), U.part(s, a), -1.0)
        for a in chains:
            if a.start in above_s or a == s:
                k.product(scaled.part(s, a), W.part(s, a), minus_d.part(a, a))


def solve(k: Kernel, supports: Supports, W: View, scaled: View, b: View, x: View) -> None:
    """x = M⁻¹ b, for one column."""
    n = len(supports)
    y, target = Matrix.within(k.scratch("Wᵀ b", n, 1).matrix(n, 1)), Matrix.within(x)
    for s in segments(supports):
        above = {i for row in s for i in (row, *supports[row])}
        for rows, across, there in y.blocks(above, {0}):
            k.product(
                y.whole.part(rows, across), W.part(s, rows).T, b.part(s, across), accumulate=there
            )
    for s in segments(supports):
        below = [r for r in range(n) if s.start == r or s.start in supports[r]]
        for rows, across, there in target.blocks(below, {0}):
            k.product(
                x.part(rows, across),
                scaled.part(rows, s),
                y.whole.part(s, across),
                -1.0,
                accumulate=there,
            )


@cache
def _small_factor(n: int) -> Program:
    """W = L⁻¹, W D⁻¹ and -D⁻¹ of a small dense matrix."""

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        factor = ltl.factorize(values["M"], dense(n))
        W = [[row.get(i, 0.0) for i in range(n)] for row in ltl.inverse_triangle(factor)]
        scaled = [[mul(w, d) for w, d in zip(row, factor.inverse_d, strict=True)] for row in W]
        minus = [[neg(factor.inverse_d[i]) if i == j else 0.0 for j in range(n)] for i in range(n)]
        return tuple(tuple(tuple(row) for row in m) for m in (W, scaled, minus))

    return fuse(record({"M": (n, n)}, {"W": (n, n), "scaled": (n, n), "minus": (n, n)}, evaluate))
