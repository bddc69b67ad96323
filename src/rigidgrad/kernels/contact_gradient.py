"""The gradient of dynamics with contacts as a kernel: a Program up to its parts, then products of matrices.

    P = M⁻¹ - Vᵀ (D⁻¹ V),        ∂a = a - P r + Fᵀ b,        ∂f = f - F r - X b.

P is dense, r and b are not: neighbouring rows with the same columns are taken together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rigidgrad.algorithms.fast.contact_dynamics import GradientParts
from rigidgrad.kernels.blocks import Matrix, record_parts
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.program.program import Shape

_LONGEST = 8  # rows that are taken together
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
            self._add(k, a, P, views[f"r_{of}"], -1.0)
            self._add(k, a, F.T, views[f"b_{of}"], 1.0)
            self._add(k, f, F, views[f"r_{of}"], -1.0)
            self._add(k, f, X, views[f"b_{of}"], -1.0)
        return k

    def _add(self, k: Kernel, target: Matrix, left: View, right: View, factor: float) -> None:
        """target += factor · left · right."""
        for rows, columns in _groups(self.filled[right.array.name]):
            for over, across, there in target.blocks(range(target.whole.shape[0]), columns):
                k.product(target.whole.part(over, across), left.part(over, rows), right.part(rows, across), factor, accumulate=there)


def _groups(pattern: np.ndarray) -> list[tuple[range, list[int]]]:
    """Neighbouring rows with the same columns, and these."""
    found: list[tuple[range, list[int]]] = []
    for row, columns in enumerate(pattern):
        here = np.flatnonzero(columns).tolist()
        if found and found[-1][1] == here and len(found[-1][0]) < _LONGEST:
            found[-1] = range(found[-1][0].start, row + 1), here
        else:
            found.append((range(row, row + 1), here))
    return [(rows, columns) for rows, columns in found if columns]
