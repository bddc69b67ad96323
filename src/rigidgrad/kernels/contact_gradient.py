"""The gradient of dynamics with contacts as a kernel: a Program up to its parts, then products of matrices.

    P = M⁻¹ - Vᵀ (D⁻¹ V),        ∂a = a - P r + Fᵀ b,        ∂f = f - F r - X b.

P is dense, r and b are not: columns that have numbers in the same rows of r and b are taken together, and all products of their results follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rigidgrad.algorithms.fast.contact_dynamics import GradientParts
from rigidgrad.kernels.blocks import Matrix, record_parts, runs
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.program.program import Shape

_OUTPUTS = {"a_dq": "a_q", "a_dv": "a_v", "a_dtau": "M_inverse", "force_dq": "f_q", "force_dv": "f_v", "force_dtau": "F"}


class ContactGradient:
    """The kernel of a function that gives parts, and what it takes."""

    def __init__(self, inputs: Mapping[str, Shape], parts: Callable[[Mapping[str, Any]], GradientParts], most: float = math.inf):
        self.head = record_parts(inputs, parts, most)
        self.filled = {name: np.reshape(marks, self.head.outputs[name]) for name, marks in self.head.pattern().items()}

    @property
    def multiplications(self) -> int:
        """Multiply-adds of the products with r and b."""
        rows = sum(self.head.outputs[name][0] for name in ("r_q", "F"))
        return rows * sum(int(self.filled[name].sum()) for name in ("r_q", "r_v", "b_q", "b_v"))

    def kernel(self) -> Kernel:
        """P, then all columns."""
        (n, _), (m, _) = self.head.outputs["M_inverse"], self.head.outputs["F"]
        k = Kernel()
        arguments = {name: k.input(name, *shape).matrix(1, int(np.prod(shape, dtype=int))) for name, shape in self.head.inputs.items()}
        out = {part: k.output(name, n if name.startswith("a") else m, n) for name, part in _OUTPUTS.items()}
        views: dict[str, View] = {}
        for name, (rows, columns) in self.head.outputs.items():
            array = out[name] if name in out else k.scratch(name, rows, columns)
            views[name] = array.matrix(rows, columns)
        k.call(self.head, arguments, views)
        P, F, X = views["M_inverse"], views["F"], views["X"]
        k.product(P, views["V"].T, views["scaled_V"], -1.0, accumulate=True, symmetric=True)
        for of in "qv":
            a, f = (Matrix.within(out[f"{x}_{of}"].matrix(rows, n)) for x, rows in (("a", n), ("f", m)))
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

    def _add(self, k: Kernel, target: Matrix, columns: range, products: tuple[tuple[View, View, float], ...]) -> None:
        """Columns of target += Σ factor · left · right."""
        terms = []
        for left, right, factor in products:
            filled = np.flatnonzero(self.filled[right.array.name][:, columns.start]).tolist()
            terms += [(left, right, factor, rows) for rows in runs(filled)]
        for over, across, there in target.blocks(range(target.whole.shape[0]), columns):
            for left, right, factor, rows in terms:
                k.product(target.whole.part(over, across), left.part(over, rows), right.part(rows, across), factor, accumulate=there)
                there = True
