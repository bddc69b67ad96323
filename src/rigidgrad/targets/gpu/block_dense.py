"""Forward dynamics for the threads of a block where M has no tree's zeros: mimic joints couple
limbs, and what goes from body to body does not see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rigidgrad.targets.gpu.block_algorithms import Work
from rigidgrad.targets.gpu.schedule import Number, Value

Entries = Mapping[tuple[int, int], Number]


def rows_of(w: Work, M: Entries) -> list[Value]:
    """A matrix as vectors."""
    n = w.model.nv
    zero = w.constant((0.0, 0.0))[0]
    rows = [w.block.value(n, array=True) for _ in range(n)]
    for i, row in enumerate(rows):
        for j in range(n):
            w.block.add("copy", (M.get((i, j), zero),), (row[j],))
    return rows


def invert(w: Work, rows: Sequence[Value], inverse: Value) -> None:
    """The inverse of a symmetric positive definite matrix into an array (n, n), by Gauss and
    Jordan.
    """
    n = len(rows)
    current: list[Value | Number] = list(rows)
    for p in range(n):
        last = p == n - 1
        made: list[Value | Number] = []
        for i in range(n):
            target = inverse[n * i] if last else w.block.value(n)
            w.block.add(
                w.call("pivot", int(i == p)),
                (current[i], current[p], p, n),
                (target,),
                together=f"pivot {p}",
            )
            made.append(target)
        current = made


def accelerations(
    w: Work, rows: Sequence[Value], inverse: Value, tau: Value, bias: Sequence[Number]
) -> Value:
    """q̈ with M q̈ = τ - c. The product with M⁻¹ alone would not be backward stable: what it leaves
    is brought in once more.
    """
    n = len(rows)

    def made(kind: str, fields: Sequence[Sequence[Value | Number | int]]) -> Value:
        result = w.block.value(n, array=True)
        for k, reads in enumerate(fields):
            w.block.add(kind, reads, (result[k],))
        return result

    zero = w.constant((0.0, 0.0))[0]
    wanted = made("less", [(tau[k], bias[k]) for k in range(n)])
    first = made("row_times(0)", [(inverse[n * k], wanted, n, zero) for k in range(n)])
    left = made("row_times(1)", [(rows[k], first, n, wanted[k]) for k in range(n)])
    return made("row_times(0)", [(inverse[n * k], left, n, first[k]) for k in range(n)])
