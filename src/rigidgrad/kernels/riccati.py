"""The backward pass of differential dynamic programming, written once (Plancher 2022, 2.7-2.9, 4.4,
4.5).

From the cost-to-go ½ dxᵀV dx + vᵀdx behind a knot, with its dynamics dx' = F [dx, du] + d and costs
l and L, it forms H = L + FᵀVF and g = l + Fᵀ(v + V d), solves for the gains [K, κ] = -R⁻¹ [H_ux,
g_u] where R is H_uu with ρ BᵀB, and H_ux with ρ BᵀA, added, and has the cost-to-go in front of the
knot, V = H_xx - H_xu R⁻¹ H_ux and v = g_x + H_xu κ; where ρ made a difference E = H_u - (H_u with
ρ), EᵀK + KᵀY and Eᵀκ + Kᵀy are added with [Y, y] = H_uu [K, κ] + [H_ux, g_u]. The Schur complement
is that of a Cholesky factor of all of H: with H_xx + H_xu K instead, float32 loses what keeps V
positive.

Euler's methods on a robot whose coordinates are a vector space have F = P + E G with G = ∂v'/∂(q,
v, u), E = [eI; I] and P = [[I, cI, 0], [0, 0, 0]] (explicit: e = 0, c = h; semi-implicit: e = h, c
= 0): only G is read, and products are half as long.

Bounds on the controls are those that controls are at now (projected Newton, Bertsekas 1982): others
may step over theirs, and roll-outs clamp them. A set of controls that are held there is changed
until it is right, a few times: one that steps over its bound is held, and one is let go where the
cost falls inwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rigidgrad.kernels import matrices, riccati_steps as on_rows
from rigidgrad.kernels.language import Array, Index, Kernel, View
from rigidgrad.kernels.matrices import diagonal, row_of
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar, less, select

# Σ κᵀg_u, Σ κᵀH_uu κ, and 1 if H_uu was positive definite everywhere, else 0
RESULTS = ("slope", "curve", "fine")
_SWITCHES = 10  # times a set of held controls may change at a knot


@dataclass(frozen=True)
class Sizes:
    """Of a problem: n numbers of a state's tangent, m controls, and what it has beyond a plain one.
    `form` is that of the dynamics: "dense", "explicit" or "implicit" (Euler).
    """

    n: int
    m: int
    form: str = "dense"
    diagonal: bool = False  # L is a row, the diagonal
    bounded: bool = False
    gaps: bool = False

    @property
    def rows(self) -> int:
        """Of F or G."""
        return self.n if self.form == "dense" else self.n // 2

    @property
    def z(self) -> int:
        return self.n + self.m

    # columns of F, l, L, V and the gains, as a `Layout` of one problem has them
    columns = z

    @property
    def state_columns(self) -> int:
        return self.n

    @property
    def gain_columns(self) -> int:
        return self.n + 1

    @property
    def correction(self) -> int:
        """The column of the gains that holds κ."""
        return self.n

    def state(self, i: int) -> int:
        return i

    def control(self, i: int) -> int:
        return self.n + i

    def of_knot(self) -> dict[str, Shape]:
        """What a pass reads of each knot."""
        n, m, z = self.n, self.m, self.z
        shapes: dict[str, Shape] = {
            "F": (self.rows, z),
            "l": (z,),
            "L": (z,) if self.diagonal else (z, z),
        }
        shapes |= {} if self.form == "dense" else {"h": (1,)}
        shapes |= {"d": (n,)} if self.gaps else {}
        return shapes | ({"lower": (m,), "upper": (m,), "u": (m,)} if self.bounded else {})


def knot(sizes: Sizes, wide: bool = False, *, kept: bool = False, singular: float = 0.0) -> Kernel:
    """One knot of many problems, for a sweep from the last to the first: V (n + 1, n; v is its last
    row), `results` and `held` are carried. With `wide`, gains are of another type than the rest.

    With `kept`, of dense dynamics without bounds, the cost-to-go of every knot and its factor of
    H_uu stay: V is an output, read from the input `after` of the next knot. A pivot that is at most
    `singular` times its diagonal entry counts as zero.
    """
    if kept and (sizes.form != "dense" or sizes.bounded):
        raise ValueError("what is kept is that of dense dynamics without bounds")
    k = Kernel()
    n, m = sizes.n, sizes.m
    views = {name: whole(k.input(name, *shape)) for name, shape in sizes.of_knot().items()}
    views |= {"rho": whole(k.input("rho", 1))}
    if kept:
        views |= {"after": whole(k.input("after", n + 1, n))}
    gains = k.output("gains", m, n + 1)
    changed = {"V": k.output("V", n + 1, n) if kept else k.carried("V", n + 1, n)}
    changed["results"] = k.carried("results", len(RESULTS))
    if kept:
        changed["factor"] = k.output("factor", m, m)
    if sizes.bounded:
        changed["held"] = k.carried("held", m)
    Knot(k, sizes, wide, kept, singular).write(
        views | {name: whole(a) for name, a in changed.items()} | {"gains": whole(gains)}
    )
    return k


def backward_pass(sizes: Sizes, steps: int) -> Kernel:
    """All knots, from the last to the first: the cost-to-go `end` behind the last one; arrays of
    knots have all of them, one after the other. `held` (0 at first) is -1 or 1 of controls that
    were held at a bound the last time, and `holds` what it is now. `failed` is the number of the
    knot, from 1 on, whose H_uu is not positive definite, or 0: where it is not, gains of knots
    before mean nothing.
    """
    k = Kernel()
    n, m = sizes.n, sizes.m
    inputs = {name: k.input(name, steps, *shape) for name, shape in sizes.of_knot().items()}
    rho, end = k.input("rho", 1), k.input("end", n + 1, n)
    held = k.input("held", steps, m) if sizes.bounded else None
    gains, start = k.output("gains", steps, m, n + 1), k.output("start", n + 1, n)
    results, failed = k.output("results", len(RESULTS)), k.output("failed", 1)
    holds = k.output("holds", steps, m) if sizes.bounded else None
    V = k.scratch("V", n + 1, n)
    matrices.copy_rows(k, whole(end), whole(V))
    k.call(
        _program({}, {"y": (len(RESULTS),), "f": ()}, lambda v: ((0.0, 0.0, 1.0), 0.0)),
        {},
        {"y": results.at(0, 3), "f": failed.at(0, 1)},
    )
    writer = Knot(k, sizes, False)
    left = k.scratch("knots left", 1)
    k.call(_program({}, {"y": ()}, lambda v: (float(steps),)), {}, {"y": left.at(0, 1)})
    with k.along(steps, reverse=True, unless=failed.at(0, 1)) as i:
        views = {name: _at(array, i) for name, array in inputs.items()}
        views |= {
            "rho": whole(rho),
            "V": whole(V),
            "results": whole(results),
            "gains": _at(gains, i),
        }
        if held is not None and holds is not None:
            matrices.copy_rows(k, _at(held, i), _at(holds, i))
            views["held"] = _at(holds, i)
        writer.write(views)
        one = {name: a.at(0, 1) for name, a in (("left", left), ("failed", failed))}
        k.call(
            _program({"left": (), "failed": (), "fine": ()}, {"left": (), "failed": ()}, _count),
            one | {"fine": results.at(2, 1)},
            one,
        )
    matrices.copy_rows(k, whole(V), whole(start))
    return k


def _count(v: Mapping[str, Scalar]) -> tuple[Any, ...]:
    now = select(less(0.0, v["fine"]), 0.0, v["left"])
    return v["left"] - 1.0, select(less(0.0, v["failed"]), v["failed"], now)


def whole(array: Array) -> View:
    rows, columns = (1, array.shape[0]) if len(array.shape) == 1 else array.shape
    return array.matrix(rows, columns)


def _at(array: Array, i: Index) -> View:
    """A knot's own part."""
    shape = array.shape[1:]
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape
    return array.matrix(rows, columns, i * (rows * columns))


def _program(inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], function: Any) -> Program:
    return fuse(record(inputs, outputs, function))


class Knot:
    """Statements of a knot, and what they need of scratch memory."""

    def __init__(
        self,
        k: Kernel,
        sizes: Sizes,
        wide: bool,
        kept: bool = False,
        singular: float | View = 0.0,
    ):
        self.k, self.s, self.kept, self.singular = k, sizes, kept, singular
        n, m, z, rows = sizes.n, sizes.m, sizes.z, sizes.rows
        self.q, self.v, self.x, self.u = range(rows), range(rows, n), range(n), range(n, z)
        self.T = self._matrix("T", rows, z)  # V F, or EᵀV F
        self.H = self._matrix("H", m, z)  # rows of the controls, regularised where there is a ρ
        # the same as they were; only where they differ, or controls are bounded
        self.U = self._matrix("U", m, z)
        self.g = self._matrix("g", 1, z)
        self.w = self._matrix("w", 1, n)
        if not kept:
            self.factor = self._matrix("factor", m, m)
        self.half = self._matrix("half", m, n)
        self.Y = self._matrix("Y", m, n + 1)
        self.K = self._matrix("K", m, n + 1) if wide else None
        self.calm = k.scratch("calm", 1).at(0, 1)
        if sizes.form != "dense":
            self.W, self.Z = self._matrix("W", rows, rows), self._matrix("Z", rows, rows)
        if sizes.form == "explicit":
            self.N = self._matrix("N", rows, n)
        if sizes.bounded:
            self.R = self._matrix("R", m, m)
            self.low, self.high, self.set, self.right = (
                self._matrix(name, 1, m) for name in ("low", "high", "set", "right")
            )
            self.settled = k.scratch("settled", 1).at(0, 1)

    def _matrix(self, name: str, rows: int, columns: int) -> View:
        return self.k.scratch(name, rows, columns).matrix(rows, columns)

    def _call(self, outputs: Mapping[str, View], inputs: Mapping[str, View], function: Any) -> None:
        """A function of flat vectors; a vector of one number is that number."""

        def shape(view: View) -> Shape:
            size = view.shape[0] * view.shape[1]
            return () if size == 1 else (size,)

        def evaluate(v: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(function(**v))

        program = _program(
            {a: shape(v) for a, v in inputs.items()},
            {a: shape(v) for a, v in outputs.items()},
            evaluate,
        )
        self.k.call(program, inputs, outputs)

    def write(
        self, of: Mapping[str, View], bend: Callable[[View, View], View] | None = None
    ) -> None:
        """`bend` gives the L to use, of L and the gradient v + V d of the cost-to-go."""
        n = self.s.n
        self.F, self.l, self.L, self.rho = of["F"], of["l"], of["L"], of["rho"]
        self.V, self.value = of["V"].part(self.x, self.x), row_of(of["V"], n)
        self.h, self.gains = of.get("h"), self.K or of["gains"]
        self.slope, self.curve, self.fine = (
            of["results"].part(range(1), range(i, i + 1)) for i in range(3)
        )
        self.V_next, self.value_next = self.V, self.value  # of the cost-to-go behind the knot
        if self.kept:
            self.factor = of["factor"]
            self.V_next = of["after"].part(self.x, self.x)
            self.value_next = row_of(of["after"], n)
        if self.s.gaps:  # v += V d
            if self.kept:
                matrices.copy_rows(self.k, self.value_next, self.w)
                self.value_next = self.w
            self.k.product(self.value_next, of["d"], self.V_next, accumulate=True)
        if bend is not None:
            self.L = bend(self.L, self.value_next)
        if self.s.form == "dense":
            self.dense_hamiltonian()
        else:
            self.euler_hamiltonian()
        self.add_costs()
        self.regularize()
        self.solve_within(of) if self.s.bounded else self.solve()
        self.cost_to_go()
        if self.K is not None:
            matrices.copy_rows(self.k, self.K, of["gains"])

    # --- H and g; V becomes H_xx ------------------------------------------------------------------

    def dense_hamiltonian(self) -> None:
        k, F = self.k, self.F
        A, B = F.part(self.x, self.x), F.part(self.x, self.u)
        k.product(self.T, self.V_next, F)
        k.product(self.g, self.value_next, F)
        k.product(self.V, A.T, self.T.part(self.x, self.x), symmetric=True)
        self.of_controls(B, self.T)

    def euler_hamiltonian(self) -> None:
        """With W = EᵀV, Z = W E: T = EᵀV F = W P + Z G, and H = PᵀN + GᵀT with the first rows N of
        V F.
        """
        k, G, V, h = self.k, self.F, self.V, self.h
        q, v, nv = self.q, self.v, len(self.q)
        assert h is not None
        implicit = self.s.form == "implicit"
        T_q, W, Z = self.T.part(q, q), self.W, self.Z
        with k.each(nv) as i:
            above, below = row_of(V, i), row_of(V.part(v, self.x), i)
            if implicit:
                self._call(
                    {"W": row_of(W, i), "T": row_of(T_q, i), "Z": row_of(Z, i)},
                    {"h": h, "a": above, "b": below},
                    on_rows.mixed,
                )
            else:
                outputs = {
                    "W": row_of(W, i),
                    "T": row_of(T_q, i),
                    "S": row_of(self.T.part(q, v), i),
                    "Z": row_of(Z, i),
                }
                self._call(outputs, {"h": h, "b": below}, on_rows.placed)
        # g = [v_q, c v_q, 0] + Gᵀ (e v_q + v_v)
        first, second = (self.value.part(range(1), part) for part in (q, v))
        w = self.w.part(range(1), q)
        self._call(
            {"w": w},
            {"h": h, "a": first, "b": second},
            lambda h, a, b: [on_rows.sums(h, a, b) if implicit else on_rows.numbers(b)],
        )
        k.product(self.g, w, G)
        places = (
            {"g": self.g.part(range(1), q)}
            if implicit
            else {"g": self.g.part(range(1), q), "f": self.g.part(range(1), v)}
        )
        self._call(places, places | {"h": h, "v": first}, on_rows.carried_gradient)
        k.product(T_q, Z, G.part(q, q), accumulate=True)
        if implicit:
            k.product(self.T.part(q, range(nv, self.s.z)), Z, G.part(q, range(nv, self.s.z)))
            k.product(V.part(q, q), W.T, G.part(q, q), accumulate=True, symmetric=True)
            k.product(V.part(v, q), G.part(q, v).T, T_q)
            k.product(V.part(v, v), G.part(q, v).T, self.T.part(q, v), symmetric=True)
        else:
            k.product(self.T.part(q, v), Z, G.part(q, v), accumulate=True)
            k.product(self.T.part(q, self.u), Z, G.part(q, self.u))
            k.product(self.N, W.T, G.part(q, self.x))
            with k.each(nv) as i:
                outputs = {
                    "N": row_of(V.part(q, q), i),
                    "S": row_of(V.part(v, q), i),
                    "D": row_of(V.part(v, v), i),
                }
                self._call(
                    outputs,
                    {"h": h, "V": row_of(V.part(q, q), i), "N": row_of(self.N, i)},
                    on_rows.behind,
                )
            k.product(V.part(v, q), G.part(q, v).T, T_q, accumulate=True)
            k.product(
                V.part(v, v), G.part(q, v).T, self.T.part(q, v), accumulate=True, symmetric=True
            )
        k.product(V.part(q, q), G.part(q, q).T, T_q, accumulate=True, symmetric=True)
        self.of_controls(G.part(q, self.u), self.T)

    def of_controls(self, B: View, T: View) -> None:
        rows, own = range(self.s.m), range(self.s.rows)
        self.k.product(self.H.part(rows, self.x), B.T, T.part(own, self.x))
        self.k.product(self.H.part(rows, self.u), B.T, T.part(own, self.u), symmetric=True)

    def add_costs(self) -> None:
        self._call({"g": self.g}, {"g": self.g, "l": self.l}, on_rows.added)
        both = ((self.V, self.x), (self.H, self.u))
        if self.s.diagonal:
            for M, part in both:
                own = diagonal(M if M is self.V else M.part(range(self.s.m), self.u))
                self._call({"g": own}, {"g": own, "l": self.L.part(range(1), part)}, on_rows.added)
            return
        for M, part in both:
            with self.k.each(len(part)) as i:
                row, cost = row_of(M, i), row_of(self.L.part(part, range(M.shape[1])), i)
                self._call({"g": row}, {"g": row, "l": cost}, on_rows.added)

    # --- the controls -----------------------------------------------------------------------------

    @property
    def g_u(self) -> View:
        return self.g.part(range(1), self.u)

    def regularize(self) -> None:
        """H += ρ FᵤᵀF in the rows of the controls; U is what they were."""
        k, s, G = self.k, self.s, self.F
        if s.bounded:
            matrices.copy_rows(k, self.H, self.U)
        self._call(
            {"calm": self.calm}, {"rho": self.rho}, lambda rho: [select(less(0.0, rho), 0.0, 1.0)]
        )
        with k.along(1, unless=self.calm):
            if not s.bounded:
                matrices.copy_rows(k, self.H, self.U)
            with k.each(s.rows) as i:
                row = {"y": row_of(self.T, i)}
                if s.form == "implicit":
                    assert self.h is not None
                    self._call(
                        row,
                        {"rho": self.rho, "h": self.h, "x": row_of(G, i)},
                        lambda rho, h, x: [on_rows.scaled(rho * (h * h + 1.0), x)],
                    )
                else:
                    self._call(
                        row,
                        {"rho": self.rho, "x": row_of(G, i)},
                        lambda rho, x: [on_rows.scaled(rho, x)],
                    )
            if s.form == "implicit":
                assert self.h is not None
                own = diagonal(self.T.part(self.q, self.q))
                self._call(
                    {"y": own},
                    {"rho": self.rho, "h": self.h, "x": own},
                    lambda rho, h, x: [[a + rho * h for a in on_rows.numbers(x)]],
                )
            rows = range(s.m)
            k.product(
                self.H.part(rows, self.x),
                G.part(range(s.rows), self.u).T,
                self.T.part(range(s.rows), self.x),
                accumulate=True,
            )
            corner = self.H.part(rows, self.u)
            k.product(
                corner,
                G.part(range(s.rows), self.u).T,
                self.T.part(range(s.rows), self.u),
                accumulate=True,
                symmetric=True,
            )

    def solve(self) -> None:
        k, s, rows = self.k, self.s, range(self.s.m)
        corner = self.H.part(rows, self.u)
        matrices.factorize(k, corner, self.factor, self.fine, self.singular)
        matrices.solve(
            k, self.factor, self.H.part(rows, self.x), self.gains.part(rows, self.x), self.half
        )
        matrices.solve(k, self.factor, self.g_u.T, self.gains.part(rows, range(s.n, s.n + 1)))

    def solve_within(self, of: Mapping[str, View]) -> None:
        k, s, rows = self.k, self.s, range(self.s.m)
        corner, held, low, high = self.H.part(rows, self.u), of["held"], self.low, self.high
        inputs = {"u": of["u"], "lower": of["lower"], "upper": of["upper"], "held": held}
        self._call(
            {"low": low, "high": high, "held": held, "settled": self.settled}, inputs, on_rows.room
        )
        kappa = self.gains.part(rows, range(s.n, s.n + 1))
        bounds = {"low": low, "high": high}
        with k.along(_SWITCHES, unless=self.settled):
            with k.each(s.m) as i:
                row, one = row_of(self.R, i), row_of(self.set.T, i)
                own = {
                    "i_held": row_of(held.T, i),
                    "i_low": row_of(low.T, i),
                    "i_high": row_of(high.T, i),
                    "i_g": row_of(self.g_u.T, i),
                }
                self._call(
                    {"R": row, "right": row_of(self.right.T, i), "one": one},
                    own | bounds | {"held": held, "H": row_of(corner, i)},
                    on_rows.freed,
                )
            self._call({"d": diagonal(self.R)}, {"held": held, "d": diagonal(self.R)}, on_rows.ones)
            matrices.factorize(k, self.R, self.factor, self.fine, self.singular)
            matrices.solve(k, self.factor, self.right.T, kappa)
            self._call({"none": self.settled}, {}, lambda: [1.0])
            with k.along(s.m) as i:
                own = {
                    name: row_of(view.T, i)
                    for name, view in (
                        ("i_held", held),
                        ("i_low", low),
                        ("i_high", high),
                        ("i_g", self.g_u),
                    )
                }
                own |= {
                    "kappa": kappa,
                    "i_kappa": row_of(kappa, i),
                    "H": row_of(corner, i),
                    "settled": self.settled,
                }
                self._call(
                    {"held": row_of(held.T, i), "settled": self.settled}, own, on_rows.judged
                )
        # a held control neither feeds back nor, should the set not have settled, leaves its bounds
        with k.each(s.m) as i:
            row = self.H.part(rows, self.x)
            self._call(
                {"y": row_of(row, i)},
                {"one": row_of(self.set.T, i), "x": row_of(row, i)},
                on_rows.where_free,
            )
        matrices.solve(k, self.factor, row, self.gains.part(rows, self.x), self.half)
        self._call({"y": kappa.T}, {"x": kappa.T} | bounds, on_rows.clamped)
        self._call(
            {"calm": self.calm},
            {"calm": self.calm, "set": self.set, "settled": self.settled},
            on_rows.calm_within,
        )

    # --- the cost-to-go ---------------------------------------------------------------------------

    def cost_to_go(self) -> None:
        k, s, rows = self.k, self.s, range(self.s.m)
        K, kappa = self.gains.part(rows, self.x), self.gains.part(rows, range(s.n, s.n + 1))
        H, U = self.H.part(rows, self.x), self.U.part(rows, self.x)
        k.product(self.V, self.half.T, self.half, -1.0, accumulate=True, symmetric=True)
        ends = {
            "kappa": kappa.T,
            "g": self.g_u,
            "g_x": self.g.part(range(1), self.x),
            "slope": self.slope,
            "curve": self.curve,
        }
        self._call({"v": self.value, "slope": self.slope, "curve": self.curve}, ends, on_rows.ended)
        k.product(self.value, kappa.T, U if s.bounded else H, accumulate=True)
        with k.along(1, unless=self.calm):
            Y, y = self.Y.part(rows, self.x), self.Y.part(rows, range(s.n, s.n + 1))
            k.product(self.Y, self.U.part(rows, self.u), self.gains.part(rows, range(s.n + 1)))
            with k.each(s.m) as i:
                row, difference = row_of(Y, i), row_of(H, i)
                inputs = {"calm": self.calm, "x": row, "U": row_of(U, i), "H": difference}
                self._call({"y": row, "E": difference}, inputs, on_rows.corrected)
            self._call({"y": y.T}, {"calm": self.calm, "x": y.T, "U": self.g_u}, on_rows.corrected)
            k.product(self.V, H.T, K, accumulate=True, symmetric=True)
            k.product(self.V, K.T, Y, accumulate=True, symmetric=True)
            if not s.bounded:
                k.product(self.value, kappa.T, H, accumulate=True)
            k.product(self.value, y.T, K, accumulate=True)
            # κᵀH_uu κ = κᵀ(y - g_u); the second part is there already
            curve = {"curve": self.curve}
            self._call(
                curve,
                {"kappa": kappa.T, "y": y.T} | curve,
                lambda kappa, y, curve: [curve + on_rows.dot(kappa, y)],
            )
