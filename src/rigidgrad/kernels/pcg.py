"""Conjugate gradients for the Schur complement of an LQ problem, preconditioned by the symmetric
stair (Plancher 2022, Algorithm 5).

S and the preconditioner are the matrices W and Φ of `kernels.schur`. Vectors of neighbouring knots
lie one after the other, with zeros around them, so that a row is one product.

`conjugate_gradients` is for one owner of a whole trajectory; `KnotGradients` for owners of single
knots, who exchange vectors with their neighbours. Both give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    sums = _Sums(k, k.scratch("sums of knots", knots))
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
    sums.dot(r.at(n, size), t.at(0, size), n, eta)
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
        sums.dot(p.at(0, size), t.at(0, size), n, one["curvature"])
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
        sums.dot(r.at(n, size), t.at(0, size), n, one["after"])
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
    of groups. `first` has the sums of knots.
    """

    def __init__(self, k: Kernel, first: Array):
        self.k, self.levels = k, [first]
        while self.levels[-1].size > _GROUP:
            groups = -(-self.levels[-1].size // _GROUP)
            self.levels.append(k.scratch(f"sums {len(self.levels)}", groups))

    def dot(self, x: View, y: View, n: int, result: View) -> None:
        """Of vectors with n numbers a knot."""
        k, first = self.k, self.levels[0]
        knots = first.size
        with k.each(knots) as i:
            a, b = (row_of(View(v.array, v.offset, (knots, n), (n, 1)), i) for v in (x, y))
            k.product(first.at(i, 1), a, b.T)
        self.total(result)

    def total(self, result: View) -> None:
        """Of what knots have."""
        k = self.k
        for numbers, groups in zip(self.levels, self.levels[1:], strict=False):
            whole, rest = divmod(numbers.size, _GROUP)
            with k.each(whole) as i:
                k.call(_sum(_GROUP), {"x": numbers.at(_GROUP * i, _GROUP)}, {"y": groups.at(i, 1)})
            if rest:
                last = numbers.at(_GROUP * whole, rest)
                k.call(_sum(rest), {"x": last}, {"y": groups.at(whole, 1)})
        top = self.levels[-1]
        k.call(_sum(top.size), {"x": top.at(0, top.size)}, {"y": result})


# --- a knot ------------------------------------------------------------------------------------

_NUMBERS = ("eta", "bound", "iterations", "alpha", "beta", "broken", "begun", "stop")


@dataclass(frozen=True)
class KnotGradients:
    """Conjugate gradients as the work of one knot, between exchanges with others.

    Each has p and r of three knots, the one before, its own and the next one, and changes all three
    as their owners do; so there are two exchanges an iteration. Beyond the ends of a trajectory
    there are zeros. The owner

    - fills `r` with γ, and `p`, `delta` and `numbers` with zeros; `precondition`;
    - hands on `found` (Φr) and `part`; brings those of three knots, as `halo`, and `sums`, of all;
    - `direction`: the next p, or the end, where the number `stop` is 1;
    - hands on `found` (S p) and `part`, and brings as before;
    - `step`, `precondition`, and again.
    """

    knots: int
    n: int
    m: int

    # in this order; what a knot keeps from one exchange to the next
    arrays = (
        *("F", "W", "phi", "p", "r", "delta", "numbers"),
        *("halo", "sums", "found", "part"),
    )
    kept = ("p", "r", "delta", "numbers")
    numbers = _NUMBERS

    def precondition(self) -> Kernel:
        k = self._kernel()
        a, n = k.arrays, self.n
        t, r = a["found"].at(0, n), a["r"].at(0, 3 * n)
        k.product(t.T, a["phi"].matrix(3 * n, n).T, r.T)
        k.product(a["part"].at(0, 1), a["r"].at(n, n), t.T)
        return k

    def direction(self) -> Kernel:
        k = self._kernel()
        a, n, m = k.arrays, self.n, self.m
        z = n + m
        tolerance, limit = k.input("tolerance", 1).at(0, 1), k.input("limit", 1).at(0, 1)
        after, y = k.scratch("after", 1).at(0, 1), k.scratch("y", z + n)
        _Sums(k, a["sums"]).total(after)
        known = {x: _number(k, x) for x in ("begun", "eta", "bound", "iterations", "broken")}
        found = {x: known[x] for x in ("eta", "bound", "iterations", "begun")}
        found |= {x: _number(k, x) for x in ("beta", "stop")}
        k.call(
            _numbers((*known, "after", "tolerance", "limit"), tuple(found), _turn),
            known | {"after": after, "tolerance": tolerance, "limit": limit},
            found,
        )
        with k.each(3) as i:
            t, p = (a[x].at(n * i, n) for x in ("halo", "p"))
            k.call(_direction(n), {"beta": found["beta"], "t": t, "p": p}, {"p": p})
        with k.each(2) as i:
            k.call(_copy(n), {"x": a["p"].at(n * i, n)}, {"y": y.at(z * i, n)})
        with k.each(2) as i:
            A = a["F"].matrix(n, n, n * z * i, z)
            k.product(y.at(z * i, n).T, A.T, a["p"].at(n * i + n, n).T, -1.0, accumulate=True)
        B = a["F"].matrix(n, m, n, z)
        k.product(y.at(n, m).T, B.T, a["p"].at(n, n).T, -1.0)
        own = a["found"].at(0, n)
        k.product(own.T, a["W"].matrix(z + n, n).T, y.at(0, z + n).T)
        k.product(a["part"].at(0, 1), a["p"].at(n, n), own.T)
        return k

    def step(self) -> Kernel:
        k = self._kernel()
        a, n = k.arrays, self.n
        curvature = k.scratch("curvature", 1).at(0, 1)
        _Sums(k, a["sums"]).total(curvature)
        lengths = {x: _number(k, x) for x in ("alpha", "broken")}
        k.call(
            _numbers(("eta", "curvature"), ("alpha", "broken"), _length),
            {"eta": _number(k, "eta"), "curvature": curvature},
            lengths,
        )
        delta = a["delta"].at(0, n)
        along = {"delta": delta, "p": a["p"].at(n, n)}
        k.call(_solution(n), lengths | along, {"delta": delta})
        with k.each(3) as i:
            r = a["r"].at(n * i, n)
            k.call(_residual(n), lengths | {"r": r, "t": a["halo"].at(n * i, n)}, {"r": r})
        return k

    def _kernel(self) -> Kernel:
        """Without statements. F has two knots, the one before and its own."""
        k, n = Kernel(), self.n
        z = n + self.m
        k.input("F", 2, n, z)
        k.input("W", z + n, n)
        k.input("phi", 3 * n, n)
        k.carried("p", 3, n)
        k.carried("r", 3, n)
        k.carried("delta", n)
        k.carried("numbers", len(_NUMBERS))
        k.input("halo", 3, n)
        k.input("sums", self.knots)
        k.output("found", n)
        k.output("part", 1)
        return k


def _number(k: Kernel, name: str) -> View:
    return k.arrays["numbers"].at(_NUMBERS.index(name), 1)


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


def _turn(
    begun: Any,
    eta: Any,
    bound: Any,
    iterations: Any,
    broken: Any,
    after: Any,
    tolerance: Any,
    limit: Any,
) -> Any:
    """`_begin`, and later on `_judge`, of a knot's own numbers."""
    first_bound, none, first_stop = _begin(after, tolerance, limit)
    now, count, beta, stop = _judge(eta, iterations, after, broken, bound, limit)
    later = less(0.0, begun)
    return (
        select(later, now, after),
        select(later, bound, first_bound),
        select(later, count, none),
        1.0,
        select(later, beta, 0.0),
        select(later, stop, first_stop),
    )


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


def _along(alpha: Any, broken: Any, delta: Any, p: Any) -> Any:
    return select(less(0.0, broken), delta, delta + alpha * p)


def _left(alpha: Any, broken: Any, r: Any, t: Any) -> Any:
    return select(less(0.0, broken), r, r - alpha * t)


def _step(n: int) -> Any:
    def moved(alpha: Any, broken: Any, delta: Any, r: Any, p: Any, t: Any) -> Any:
        return _along(alpha, broken, delta, p), _left(alpha, broken, r, t)

    return _vectors(n, ("alpha", "broken"), ("delta", "r", "p", "t"), ("delta", "r"), moved)


def _solution(n: int) -> Any:
    def moved(alpha: Any, broken: Any, delta: Any, p: Any) -> Any:
        return (_along(alpha, broken, delta, p),)

    return _vectors(n, ("alpha", "broken"), ("delta", "p"), ("delta",), moved)


def _residual(n: int) -> Any:
    def moved(alpha: Any, broken: Any, r: Any, t: Any) -> Any:
        return (_left(alpha, broken, r, t),)

    return _vectors(n, ("alpha", "broken"), ("r", "t"), ("r",), moved)


def _direction(n: int) -> Any:
    return _vectors(n, ("beta",), ("t", "p"), ("p",), lambda beta, t, p: (t + beta * p,))


def _sum(count: int) -> Any:
    return record({"x": (count,)}, {"y": ()}, lambda v: (total(v["x"]),))
