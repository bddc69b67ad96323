"""The gradient of dynamics with contacts as a kernel: a Program up to its parts, then products of
matrices.

    H = G Wᵀ,        F = B Wᵀ,        P = M⁻¹ + Hᵀ F,        ∂a = a - P r + Fᵀ b,        ∂f = f - F
    r - X b.

W and M⁻¹ have the sparsity of the tree. P is dense, r and b are not: columns that have numbers in
the same rows of r and b are taken together, and all products of their results follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rigidgrad.algorithms.fast.contact_dynamics import GradientParts
from rigidgrad.kernels.blocks import Matrix, inverse, record_parts, runs, segments
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.program.program import Shape

_OUTPUTS = {
    "a_dq": "a_q",
    "a_dv": "a_v",
    "a_dtau": "P",
    "force_dq": "f_q",
    "force_dv": "f_v",
    "force_dtau": "F",
}


def by_torque(
    k: Kernel, filled: Mapping[str, np.ndarray], views: Mapping[str, View], P: View, F: View
) -> None:
    """P = ∂a/∂τ and F = ∂f/∂τ, from `GradientParts` in `views`, of which `filled` says what is not
    zero.
    """
    m, n = F.shape
    H, W = k.scratch("J / M", m, n).matrix(m, n), views["W"]
    above = tuple(
        tuple(np.flatnonzero(line[:i])[::-1].tolist()) for i, line in enumerate(filled["W"])
    )
    for target, name in ((H, "G"), (F, "B")):
        used = np.any(filled[name], axis=0).tolist()
        for s in segments(above):
            there = False
            for rows in runs(i for i in {*s, *above[s.start]} if used[i]):
                k.product(
                    target.part(range(m), s),
                    views[name].part(range(m), rows),
                    W.part(s, rows).T,
                    accumulate=there,
                )
                there = True
    k.product(P, H.T, F, symmetric=True)
    inverse(k, above, W, views["scaled_W"], Matrix(P, np.ones((n, n), dtype=bool)))


class ContactGradient:
    """The kernel of a function that gives parts, and what it takes."""

    def __init__(
        self,
        inputs: Mapping[str, Shape],
        parts: Callable[[Mapping[str, Any]], GradientParts],
        most: float = math.inf,
    ):
        self.head = record_parts(inputs, parts, most)
        self.filled = {
            name: np.reshape(marks, self.head.outputs[name])
            for name, marks in self.head.pattern().items()
        }

    @property
    def multiplications(self) -> int:
        """Multiply-adds of the products with r and b."""
        rows = sum(self.head.outputs[name][0] for name in ("r_q", "B"))
        return rows * sum(int(self.filled[name].sum()) for name in ("r_q", "r_v", "b_q", "b_v"))

    def kernel(self) -> Kernel:
        """P, then all columns."""
        (n, _), (m, _) = self.head.outputs["W"], self.head.outputs["B"]
        k = Kernel()
        arguments = {
            name: k.input(name, *shape).matrix(1, int(np.prod(shape, dtype=int)))
            for name, shape in self.head.inputs.items()
        }
        out = {
            part: k.output(name, n if name.startswith("a") else m, n)
            for name, part in _OUTPUTS.items()
        }
        views: dict[str, View] = {}
        for name, (rows, columns) in self.head.outputs.items():
            array = out[name] if name in out else k.scratch(name, rows, columns)
            views[name] = array.matrix(rows, columns)
        k.call(self.head, arguments, views)
        P, F, X = out["P"].matrix(n, n), out["F"].matrix(m, n), views["X"]
        by_torque(k, self.filled, views, P, F)
        for of in "qv":
            a, f = (
                Matrix.within(out[f"{x}_{of}"].matrix(rows, n)) for x, rows in (("a", n), ("f", m))
            )
            for matrix, name in ((a, f"a_{of}"), (f, f"f_{of}")):
                if name in views:
                    matrix.written[: self.head.outputs[name][0]] = True
            r, b = views[f"r_{of}"], views[f"b_{of}"]
            for alike in self._alike(of):
                for target, by_r, by_b, sign in ((a, P.T, F.T, 1.0), (f, F, X, -1.0)):
                    self._add(k, target, alike, ((by_r, r, -1.0), (by_b, b, sign)))
        return k

    def _alike(self, of: str) -> Iterator[range]:
        """Neighbouring columns with the same rows of r and b, which are not all zeros."""
        marks = np.concatenate([self.filled[f"r_{of}"], self.filled[f"b_{of}"]]).T
        start = 0
        for column in range(1, len(marks) + 1):
            if column == len(marks) or (marks[column] != marks[start]).any():
                if marks[start].any():
                    yield range(start, column)
                start = column

    def _add(
        self,
        k: Kernel,
        target: Matrix,
        columns: range,
        products: tuple[tuple[View, View, float], ...],
    ) -> None:
        """Columns of target += Σ factor · left · right."""
        terms = []
        for left, right, factor in products:
            filled = np.flatnonzero(self.filled[right.array.name][:, columns.start]).tolist()
            terms += [(left, right, factor, rows) for rows in runs(filled)]
        for over, across, there in target.blocks(range(target.whole.shape[0]), columns):
            for left, right, factor, rows in terms:
                k.product(
                    target.whole.part(over, across),
                    left.part(over, rows),
                    right.part(rows, across),
                    factor,
                    accumulate=there,
                )
                there = True
