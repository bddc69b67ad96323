"""Knots of parallel differential dynamic programming (Plancher 2022, 4.3-4.7): the backward pass of
`kernels.riccati`, which here leaves what makes the consensus sweep short, and a knot of that sweep.

The sweep goes along dx' = (A + B K) dx + d + B κ with du = K dx + κ. It passes all knots, while
blocks of them are swept backward side by side; so those do the product with B.
"""

from __future__ import annotations

import math

from rigidgrad.kernels import matrices
from rigidgrad.kernels.language import Kernel, View
from rigidgrad.kernels.riccati import RESULTS, Knot, Sizes, whole
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record


def backward(sizes: Sizes, curvature: Program | None = None) -> Kernel:
    """A knot of the backward pass with gaps: what `riccati.knot` has, and `closed`, [A + B K, d + B
    κ]. F has all rows, also of Euler's methods. A pivot that is at most `singular` times its
    diagonal entry counts as zero.

    `curvature` (x, u, h, v, p) is C, the second derivatives of the dynamics weighted by v: `curved`
    becomes L + C where `newton` is positive, else L, and is used in place of L.
    """
    k = Kernel()
    n, m, z = sizes.n, sizes.m, sizes.z
    F = whole(k.input("F", n, z))
    of = {
        name: whole(k.input(name, *shape)) for name, shape in sizes.of_knot().items() if name != "F"
    }
    of["F"] = F.part(range(n - sizes.rows, n), range(z))  # of Euler's methods G, ∂v'/∂(q, v, u)
    singular = k.input("singular", 1).at(0, 1)
    of |= {"rho": whole(k.input("rho", 1)), "gains": whole(k.output("gains", m, n + 1))}
    of |= {
        "V": whole(k.carried("V", n + 1, n)),
        "results": whole(k.carried("results", len(RESULTS))),
    }
    closed = whole(k.output("closed", n, n + 1))
    x, u = range(n), range(n, z)
    matrices.copy_rows(k, F.part(x, x), closed.part(x, x))
    matrices.copy_rows(k, of["d"], closed.part(x, range(n, n + 1)).T)
    if sizes.bounded:  # threads read gains and held controls again and again: from scratch
        held, of["held"] = whole(k.carried("held", m)), whole(k.scratch("own held", m))
        matrices.copy_rows(k, held, of["held"])

    def bend(L: View, v: View) -> View:
        assert curvature is not None
        sizes_of = {name: math.prod(shape) for name, shape in curvature.inputs.items()}
        inputs = {
            name: v if name == "v" else of[name] if name in of else k.input(name, size).at(0, size)
            for name, size in sizes_of.items()
        }
        newton, plain = k.input("newton", 1).at(0, 1), k.scratch("plain", 1).at(0, 1)
        curved = whole(k.output("curved", z, z))
        bent = whole(k.scratch("bent", z, z))
        matrices.copy_rows(k, L, curved)
        k.call(_not, {"x": newton}, {"y": plain})
        with k.along(1, unless=plain):
            k.call(curvature, inputs, {"C": bent})
            matrices.add_rows(k, bent, curved)
        return curved

    knot = Knot(k, sizes, wide=True, singular=singular)
    knot.write(of, bend if curvature else None)
    k.product(closed, F.part(x, u), knot.gains, accumulate=True)
    if sizes.bounded:
        matrices.copy_rows(k, of["held"], held)
    return k


def consensus(n: int, m: int) -> Kernel:
    """A knot of the consensus sweep: `step` is [dx, du], and dx, of which `y` has a one behind,
    goes on to the next knot.
    """
    k = Kernel()
    gains, closed = whole(k.input("gains", m, n + 1)), whole(k.input("closed", n, n + 1))
    step, y = k.output("step", n + m), whole(k.carried("y", n + 1))
    after = whole(k.scratch("after", n))
    matrices.copy_rows(k, y.part(range(1), range(n)), step.at(0, n))
    k.product(step.at(n, m).T, gains, y.T)
    k.product(after.T, closed, y.T)
    matrices.copy_rows(k, after, y.part(range(1), range(n)))
    return k


_not = record({"x": ()}, {"y": ()}, lambda v: ((v["x"] > 0.0).select(0.0, 1.0),))
