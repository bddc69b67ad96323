"""Conjugate gradients for the Schur complement of an LQ problem, preconditioned by the symmetric
stair (Plancher 2022, Algorithm 5).

S and the preconditioner are the matrices W and Φ of `kernels.schur`. Vectors of neighbouring knots
lie one after the other, with zeros around them, so that a row is one product.
"""

from __future__ import annotations

from typing import Any

from rigidgrad.kernels import matrices
from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.kernels.matrices import row_of
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import less, select, total

RESULTS = ("eta", "bound", "iterations")
_ROUNDS = 1 << 30  # more than there will be
_GROUP = 8  # numbers that one round of a sum adds


def conjugate_gradients(knots: int, n: int, m: int) -> Kernel:
    """The solution `delta` of S δ = `gamma`, from zero; it is added to `lam`, too.

    It ends where |η| = |rᵀΦr| is at most `tolerance` times what it was at first, the `bound`; after
    `limit` iterations; or where rounding, or something that is no number, makes η or a curvature
    not positive: then the step before stands.
    """
    k = Kernel()
    z, size = n + m, knots * n
    F, W = k.input("F", knots, n, z), k.input("W", knots, z + n, n)
    phi, gamma = k.input("phi", knots, 3 * n, n), k.input("gamma", knots, n)
    tolerance, limit = k.input("tolerance", 1).at(0, 1), k.input("limit", 1).at(0, 1)
    lam, delta = k.carried("lam", knots, n), k.output("delta", knots, n)
    results = k.output("results", len(RESULTS))
    eta, bound, iterations = (results.at(i, 1) for i in range(len(RESULTS)))
    p, t, r = k.scratch("p", size), k.scratch("t", size), k.scratch("r", size + 2 * n)
    y = k.scratch("y", (knots + 1) * z)  # of Cᵀ p, with zeros in front
    sums = _Sums(k, knots, n)
    one = {name: k.scratch(name, 1).at(0, 1) for name in ("curvature", "after", "alpha", "beta")}
    broken, stop = k.scratch("broken", 1).at(0, 1), k.scratch("stop", 1).at(0, 1)

    def own(a: Array, i: Index) -> View:
        return a.at(n * i + (n if a is r else 0), n)

    def precondition() -> None:
        with k.each(knots) as i:
            k.product(own(t, i).T, phi.matrix(3 * n, n, 3 * n * n * i).T, r.at(n * i, 3 * n).T)

    with k.each(knots) as i:
        k.call(_start(n), {"gamma": own(gamma, i)}, {"r": own(r, i), "delta": own(delta, i)})
    precondition()
    sums.dot(r.at(n, size), t.at(0, size), eta)
    matrices.copy_rows(k, t.matrix(knots, n), p.matrix(knots, n))
    k.call(
        _numbers(("eta", "tolerance", "limit"), ("bound", "iterations", "stop"), _begin),
        {"eta": eta, "tolerance": tolerance, "limit": limit},
        {"bound": bound, "iterations": iterations, "stop": stop},
    )
    with k.along(_ROUNDS, unless=stop):
        with k.each(knots) as i:
            k.call(_copy(n), {"x": own(p, i)}, {"y": y.at(z * i + z, n)})
        with k.each(knots - 1) as i:
            A = F.matrix(n, n, n * z * i, z)
            k.product(y.at(z * i + z, n).T, A.T, own(p, i + 1).T, -1.0, accumulate=True)
        with k.each(knots - 1) as i:
            B = F.matrix(n, m, n * z * i + n, z)
            k.product(y.at(z * i + z + n, m).T, B.T, own(p, i + 1).T, -1.0)
        with k.each(knots) as i:
            rows = z + n
            k.product(own(t, i).T, W.matrix(rows, n, rows * n * i).T, y.at(z * i, rows).T)
        sums.dot(p.at(0, size), t.at(0, size), one["curvature"])
        k.call(
            _numbers(("eta", "curvature"), ("alpha", "broken"), _length),
            {"eta": eta, "curvature": one["curvature"]},
            {"alpha": one["alpha"], "broken": broken},
        )
        with k.each(knots) as i:
            both = {"delta": own(delta, i), "r": own(r, i)}
            numbers = {"alpha": one["alpha"], "broken": broken}
            k.call(_step(n), numbers | both | {"p": own(p, i), "t": own(t, i)}, both)
        precondition()
        sums.dot(r.at(n, size), t.at(0, size), one["after"])
        known = {"eta": eta, "iterations": iterations}
        k.call(
            _numbers(
                ("eta", "iterations", "after", "broken", "bound", "limit"),
                ("eta", "iterations", "beta", "stop"),
                _judge,
            ),
            known | {"after": one["after"], "broken": broken, "bound": bound, "limit": limit},
            known | {"beta": one["beta"], "stop": stop},
        )
        with k.each(knots) as i:
            k.call(
                _direction(n),
                {"beta": one["beta"], "t": own(t, i), "p": own(p, i)},
                {"p": own(p, i)},
            )
    matrices.add_rows(k, delta.matrix(knots, n), lam.matrix(knots, n))
    return k


class _Sums:
    """Sums over all numbers: those of a knot one after the other, then groups of knots, and groups
    of groups.
    """

    def __init__(self, k: Kernel, knots: int, n: int):
        self.k, self.knots, self.n, self.levels = k, knots, n, [k.scratch("sums of knots", knots)]
        while self.levels[-1].size > _GROUP:
            groups = -(-self.levels[-1].size // _GROUP)
            self.levels.append(k.scratch(f"sums {len(self.levels)}", groups))

    def dot(self, x: View, y: View, result: View) -> None:
        k, n, first = self.k, self.n, self.levels[0]
        with k.each(self.knots) as i:
            a, b = (row_of(View(v.array, v.offset, (self.knots, n), (n, 1)), i) for v in (x, y))
            k.product(first.at(i, 1), a, b.T)
        for numbers, groups in zip(self.levels, self.levels[1:], strict=False):
            whole, rest = divmod(numbers.size, _GROUP)
            with k.each(whole) as i:
                k.call(_sum(_GROUP), {"x": numbers.at(_GROUP * i, _GROUP)}, {"y": groups.at(i, 1)})
            if rest:
                last = numbers.at(_GROUP * whole, rest)
                k.call(_sum(rest), {"x": last}, {"y": groups.at(whole, 1)})
        top = self.levels[-1]
        k.call(_sum(top.size), {"x": top.at(0, top.size)}, {"y": result})


# --- Programs -------------------------------------------------------------------------------------


def _numbers(inputs: tuple[str, ...], outputs: tuple[str, ...], function: Any) -> Any:
    shapes: dict[str, Shape] = dict.fromkeys(inputs, ())
    return fuse(record(shapes, dict.fromkeys(outputs, ()), lambda v: tuple(function(**v))))


def _size(x: Any) -> Any:
    return select(less(x, 0.0), -x, x)


def _begin(eta: Any, tolerance: Any, limit: Any) -> Any:
    bound = tolerance * _size(eta)
    return bound, 0.0, select(less(bound, _size(eta)), select(less(0.0, limit), 0.0, 1.0), 1.0)


def _length(eta: Any, curvature: Any) -> Any:
    """The step along p, and whether something broke down."""
    fine = select(less(0.0, eta), select(less(0.0, curvature), 1.0, 0.0), 0.0)
    return eta / curvature, 1.0 - fine


def _judge(eta: Any, iterations: Any, after: Any, broken: Any, bound: Any, limit: Any) -> Any:
    now, count = select(less(0.0, broken), eta, after), iterations + (1.0 - broken)
    on = select(less(bound, _size(now)), select(less(count, limit), 1.0 - broken, 0.0), 0.0)
    return now, count, after / eta, 1.0 - on


def _vectors(n: int, numbers: tuple[str, ...], vectors: tuple[str, ...], out: Any, f: Any) -> Any:
    shapes: dict[str, Shape] = dict.fromkeys(numbers, ())
    shapes |= dict.fromkeys(vectors, (n,))

    def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
        rows = [f(*(v[a] for a in numbers), *x) for x in zip(*(v[a] for a in vectors), strict=True)]
        return tuple(tuple(y) for y in zip(*rows, strict=True))

    return fuse(record(shapes, dict.fromkeys(out, (n,)), evaluate))


def _start(n: int) -> Any:
    return _vectors(n, (), ("gamma",), ("r", "delta"), lambda x: (x, 0.0))


def _copy(n: int) -> Any:
    return _vectors(n, (), ("x",), ("y",), lambda x: (x,))


def _step(n: int) -> Any:
    def moved(alpha: Any, broken: Any, delta: Any, r: Any, p: Any, t: Any) -> Any:
        stays = less(0.0, broken)
        return select(stays, delta, delta + alpha * p), select(stays, r, r - alpha * t)

    return _vectors(n, ("alpha", "broken"), ("delta", "r", "p", "t"), ("delta", "r"), moved)


def _direction(n: int) -> Any:
    return _vectors(n, ("beta",), ("t", "p"), ("p",), lambda beta, t, p: (t + beta * p,))


def _sum(count: int) -> Any:
    return record({"x": (count,)}, {"y": ()}, lambda v: (total(v["x"]),))
