"""Programs of Newton's method for ½ (z - z₀)ᵀ M (z - z₀) + Σ s(J z - aref): rows of single freedoms
(limits, dry friction), the step p = -H⁻¹ g along the tree, and the step size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.sparsity import Supports
from rigidgrad.program.program import Program, Shape
from rigidgrad.scalars import Scalar, add, less, mul, select, sub, total
from rigidgrad.worlds.physics import Physics
from rigidgrad.worlds.recording import recorded

LINE_TOLERANCE = 0.2  # of the slope at the start of a step


def row_count(physics: Physics) -> int:
    return 2 * len(physics.limits) + len(physics.frictions)


def row_numbers(
    physics: Physics, q: Sequence[Scalar], v: Sequence[Scalar]
) -> tuple[list[Scalar], list[Scalar]]:
    """D and aref of each row."""
    D: list[Scalar] = []
    aref: list[Scalar] = []
    for limit in physics.limits:
        soft = limit.soft
        for side, at in ((1.0, limit.lower), (-1.0, limit.upper)):
            r = sub(mul(side, sub(q[limit.q], at)), limit.margin)
            d = soft.impedance(r)
            R = soft.regularisation(d, soft.weight)
            D.append(select(less(r, 0.0), 1.0 / R, 0.0))
            aref.append(sub(mul(-soft.B, mul(side, v[limit.v])), mul(soft.K, mul(d, r))))
    for friction in physics.frictions:
        soft = friction.soft
        R = soft.regularisation(soft.impedance(0.0), soft.weight)
        D.append(1.0 / R)
        aref.append(mul(-soft.B, v[friction.v]))
    return D, aref


def rows(physics: Physics) -> Program:
    """D and aref of the rows of single freedoms: of each limit the lower and the upper, then dry
    frictions.
    """
    n = max(row_count(physics), 1)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        D, aref = row_numbers(physics, v["q"], v["v"])
        return tuple(D) or (0.0,), tuple(aref) or (0.0,)

    shapes: dict[str, Shape] = {"q": (physics.nq,), "v": (physics.nv,)}
    return recorded(shapes, {"D": (n,), "aref": (n,)}, evaluate)


def row_terms(
    physics: Physics, x: Sequence[Scalar], D: Sequence[Scalar], aref: Sequence[Scalar]
) -> list[tuple[int, float, Scalar, Scalar]]:
    """(velocity, sign of J, force f = -∂s/∂y, ∂²s/∂y²) of each row."""
    found = []
    for k, limit in enumerate(physics.limits):
        for side, row in ((1.0, 2 * k), (-1.0, 2 * k + 1)):
            y = sub(mul(side, x[limit.v]), aref[row])
            w = select(less(y, 0.0), D[row], 0.0)
            found.append((limit.v, side, -(w * y), w))
    first = 2 * len(physics.limits)
    for k, friction in enumerate(physics.frictions, start=first):
        y, most = x[friction.v] - aref[k], friction.loss
        force = -(D[k] * y)
        over, under = less(most, force), less(force, -most)
        w = select(over, 0.0, select(under, 0.0, D[k]))
        found.append((friction.v, 1.0, select(over, most, select(under, -most, force)), w))
    return found


def start(physics: Physics) -> Program:
    """H and g without slots, of which H is written on and below the diagonal."""
    n, m = physics.nv, max(row_count(physics), 1)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        H = [[v["M"][i][j] if j <= i else 0.0 for j in range(n)] for i in range(n)]
        g = [a - b for a, b in zip(v["Mz"], v["rhs"], strict=True)]
        for i, side, force, w in row_terms(physics, v["z"], v["D"], v["aref"]):
            H[i][i] = add(H[i][i], w)
            g[i] = sub(g[i], mul(side, force))
        return tuple(tuple(row) for row in H), tuple(g)

    inputs: dict[str, Shape] = {
        "M": (n, n),
        "Mz": (n,),
        "rhs": (n,),
        "z": (n,),
        "D": (m,),
        "aref": (m,),
    }
    return recorded(inputs, {"H": (n, n), "g": (n,)}, evaluate)


def times_mass(supports: Supports) -> Program:
    """M x, of the entries of M on the tree."""
    n = len(supports)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        M, x = v["M"], v["x"]
        y: list[Scalar] = [M[i][i] * x[i] for i in range(n)]
        for i in range(n):
            for j in supports[i]:
                y[i] = y[i] + M[i][j] * x[j]
                y[j] = y[j] + M[i][j] * x[i]
        return (tuple(y),)

    return recorded({"M": (n, n), "x": (n,)}, {"y": (n,)}, evaluate)


def direction(supports: Supports) -> Program:
    """p = -H⁻¹ g by H = LᵀDL, from the last freedom to the first. Where entries are zero, one with
    more supports has the same bits.
    """
    n = len(supports)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        factor = ltl.factorize(v["H"], supports)
        return (ltl.solve(factor, [-x for x in v["g"]]),)

    return recorded({"H": (n, n), "g": (n,)}, {"p": (n,)}, evaluate)


def judge(physics: Physics, tolerance: float) -> Program:
    """Whether the step is the last one, as what it promises, ½ gᵀH⁻¹g, is small; the slope gᵀp, and
    where the search begins. A world that has ended stays where it is.
    """
    n = physics.nv
    small = 2.0 * tolerance * physics.mean_inertia * max(n, 1)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        falls = -total(mul(a, b) for a, b in zip(v["g"], v["p"], strict=True))
        ended = less(0.5, v["done"])
        # of NaN nothing is less: the world ends
        last = select(less(small, falls), 0.0, 1.0)
        last = select(ended, 1.0, last)
        linear = total(mul(p, a - b) for p, a, b in zip(v["p"], v["Mz"], v["rhs"], strict=True))
        square = total(mul(a, b) for a, b in zip(v["p"], v["Mp"], strict=True))
        return last, select(ended, 0.0, 1.0), falls, linear, square, 0.0, -1.0

    inputs: dict[str, Shape] = dict.fromkeys(("g", "p", "Mz", "Mp", "rhs"), (n,)) | {"done": ()}
    outputs: dict[str, Shape] = dict.fromkeys(
        ("last", "alpha", "falls", "linear", "square", "low", "high"), ()
    )
    return recorded(inputs, outputs, evaluate)


def slope(physics: Physics) -> Program:
    """The derivatives by α of the cost without slots."""
    n, m = physics.nv, max(row_count(physics), 1)

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        alpha, p = v["alpha"], v["p"]
        first = v["linear"] + alpha * v["square"]
        second = v["square"]
        x = list(v["z"])
        for i in {r.v for r in physics.limits} | {r.v for r in physics.frictions}:
            x[i] = x[i] + alpha * p[i]
        for i, side, force, w in row_terms(physics, x, v["D"], v["aref"]):
            first = first - mul(side, force) * p[i]
            second = second + w * (p[i] * p[i])
        return first, second

    inputs: dict[str, Shape] = {
        "alpha": (),
        "linear": (),
        "square": (),
        "p": (n,),
        "z": (n,),
        "D": (m,),
        "aref": (m,),
    }
    return recorded(inputs, {"first": (), "second": ()}, evaluate)


def propose() -> Program:
    """The next step size: Newton's, between what is known to be too short and too long (negative
    while nothing is). `found` where the slope is small against that at the start, or where the step
    is the last one, which is taken whole.
    """

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        alpha, first = v["alpha"], v["first"]
        enough = less(abs(first), LINE_TOLERANCE * v["falls"])
        found = select(less(0.5, v["found"]), 1.0, select(enough, 1.0, 0.0))
        short = less(first, 0.0)
        low = select(short, alpha, v["low"])
        high = select(short, v["high"], alpha)
        newton = alpha - first / v["second"]
        bounded = less(0.0, high)
        middle = 0.5 * (low + high)
        within = select(less(low, newton), newton, middle)
        kept = select(bounded, select(less(newton, high), within, middle), newton)
        here = less(0.5, found)
        return (
            select(here, alpha, kept),
            found,
            select(here, v["low"], low),
            select(here, v["high"], high),
        )

    names = ("alpha", "found", "low", "high")
    inputs: dict[str, Shape] = dict.fromkeys((*names, "first", "second", "falls"), ())
    return recorded(inputs, dict.fromkeys(names, ()), evaluate)


def update(physics: Physics) -> Program:
    """z + α p, M z + α M p. Where no α was found, it is the longest that is known to be too short:
    up to there the cost falls.
    """
    n = physics.nv

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        alpha = select(less(0.5, v["found"]), v["alpha"], v["low"])
        return (
            tuple(a + alpha * b for a, b in zip(v["z"], v["p"], strict=True)),
            tuple(a + alpha * b for a, b in zip(v["Mz"], v["Mp"], strict=True)),
            v["last"],
            alpha,
        )

    inputs: dict[str, Shape] = dict.fromkeys(("z", "p", "Mz", "Mp"), (n,))
    inputs |= dict.fromkeys(("alpha", "found", "low", "last"), ())
    outputs: dict[str, Shape] = {"z": (n,), "Mz": (n,), "done": (), "alpha": ()}
    return recorded(inputs, outputs, evaluate)
