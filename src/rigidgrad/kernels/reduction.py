"""One elimination of cyclic reduction of a symmetric positive definite block-tridiagonal system.

An odd block D_{2j+1} and the blocks beside it, E_{2j} and E_{2j+1}, leave for the even ones
    D'_j = D_{2j} - E_{2j}ᵀ D_{2j+1}⁻¹ E_{2j},    E'_j = -E_{2j+1} D_{2j+1}⁻¹ E_{2j},
and of D'_{j+1} the part E_{2j+1} D_{2j+1}⁻¹ E_{2j+1}ᵀ that is taken from it. The eliminations of a
level do not depend on each other.
"""

from __future__ import annotations

from rigidgrad.kernels import matrices
from rigidgrad.kernels.language import Kernel


def eliminate(n: int, *, singular: float) -> Kernel:
    """From `D` = [D_{2j}; D_{2j+1}] and `E` = [E_{2j}; E_{2j+1}]: `kept` = [factor of D_{2j+1};
    -D⁻¹ E_{2j}; -D⁻¹ E_{2j+1}ᵀ], which its unknowns follow from, and `given` = [D'_j; E'_j; what is
    taken from D'_{j+1}]. `fine` becomes 0 where D_{2j+1} is not positive definite.
    """
    k = Kernel()
    rows = [range(i * n, (i + 1) * n) for i in range(3)]
    D, E = k.input("D", 2 * n, n).matrix(2 * n, n), k.input("E", 2 * n, n).matrix(2 * n, n)
    kept, given = (k.output(name, 3 * n, n).matrix(3 * n, n) for name in ("kept", "given"))
    fine, x = k.carried("fine", 1).at(0, 1), range(n)
    halves = [k.scratch(f"half {name}", n, n).matrix(n, n) for name in ("left", "right")]
    factor = kept.part(rows[0], x)
    matrices.factorize(k, D.part(rows[1], x), factor, fine, singular)
    sides = E.part(rows[0], x), E.part(rows[1], x).T
    for side, half, own in zip(sides, halves, rows[1:], strict=True):
        matrices.solve(k, factor, side, kept.part(own, x), half)
    even, between, after = (given.part(own, x) for own in rows)
    matrices.copy_rows(k, D.part(rows[0], x), even)
    k.product(even, halves[0].T, halves[0], -1.0, accumulate=True, symmetric=True)
    k.product(between, halves[1].T, halves[0], -1.0)
    k.product(after, halves[1].T, halves[1], symmetric=True)
    return k
