"""The gradient of forward dynamics as a kernel: a Program up to the factor of the mass matrix and
the gradient of inverse dynamics, then products of their blocks.

With M = LᵀDL, W = L⁻¹ and X the gradient of inverse dynamics, Z = -D⁻¹WᵀX and ∂a = W Z. Rows are
taken in segments: neighbouring freedoms of one chain, s. With A(s) the freedoms that carry the
segment, S(s) those that it carries, both by the numbers of W, and R(s) the columns of its rows,

    Z[A(s), R(s)] += (-W D⁻¹)[s, A(s)]ᵀ X[s, R(s)],      ∂a[S(s), R(S(s))] += W[S(s), s] Z[s,
    R(S(s))],      M⁻¹[S(s), S(s)] += W[S(s), s] D⁻¹ W[S(s), s]ᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rigidgrad.algorithms.fast.subtree_gradient import SolveParts
from rigidgrad.algorithms.sparsity import Supports, of_inverse
from rigidgrad.kernels.blocks import (
    Matrix,
    carried,
    columns_of,
    expand,
    inverse,
    record_parts,
    reduce,
)
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program, Shape


def multiplications(supports: Supports) -> int:
    """Multiply-adds of W Z, both gradients together."""
    below, columns = carried(supports), columns_of(supports)
    return sum(2 * len(b) * len(set().union(*(columns[k] for k in b))) for b in below)


def forward_gradient_kernel(
    inputs: Mapping[str, Shape],
    parts: Callable[[Mapping[str, Any]], SolveParts],
    supports: Supports,
    *,
    dtau: bool = True,
    factored: bool = False,
    most: float = math.inf,
) -> Kernel:
    """The kernel from what gives its parts: ∂a/∂q, ∂a/∂v and M⁻¹, unless `dtau` is False; or W,
    Z_dq and Z_dv.
    """
    n, supports = len(supports), of_inverse(supports)
    head, free = _head(inputs, parts, n, most)
    k = Kernel()
    arguments = {
        name: k.input(name, *shape).matrix(1, _size(shape)) for name, shape in inputs.items()
    }
    w = k.output("W", n, n) if factored else k.scratch("W", n, n)
    names = ("Z_dq", "Z_dv") if factored else ("dq", "dv")
    q, v = (k.output(name, n, n) for name in names)
    minv = k.output("dtau", n, n) if dtau and not factored else None
    W, by_q, by_v, x_q, x_v = (
        a.matrix(n, n)
        for a in (w, *(k.scratch(name, n, n) for name in ("by_q", "by_v", "x_q", "x_v")))
    )
    results = {"W": W, "by_q": by_q, "by_v": by_v, "dq": x_q, "dv": x_v}
    rows = n if factored else 3
    if free:
        results |= {
            "gravity_turn": q.matrix(rows, 3, 3, n),
            "speed_turn": v.matrix(rows, 3, 0, n),
            "spin_turn": v.matrix(rows, 3, 3, n),
        }
    k.call(head, arguments, results)
    for source, scaled, output, closed in ((x_q, by_q, q, 6 * free), (x_v, by_v, v, 3 * free)):
        target = Matrix.of(output, n)
        if free:
            target.written[:rows, 3:6] = True
        z = target if factored else Matrix.of(k.scratch(f"Z_{output.name}", n, n), n)
        columns = columns_of(supports, closed)
        reduce(k, supports, scaled, source, z, columns)
        if not factored:
            expand(k, supports, W, z.whole, target, columns)
    if minv is not None:
        inverse(k, supports, W, by_q, Matrix.of(minv, n))
    return k


def _head(
    inputs: Mapping[str, Shape],
    parts: Callable[[Mapping[str, Any]], SolveParts],
    n: int,
    most: float,
) -> tuple[Program, bool]:
    """The Program of the parts, and whether the base is free."""
    head = record_parts(inputs, parts, most)
    return head, "spin_turn" in head.outputs


def _size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=int))
