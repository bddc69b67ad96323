"""The backward pass of differential dynamic programming as LLVM IR, for one system's sizes: SIMD
inside one problem (Plancher 2022, 2.7-2.9, 4.4, 4.5).

The module's function `riccati(context, begin, end)` runs blocks of knots, each from its last knot
to its first, from the cost-to-go at its end. With F = [A, B] it forms H = L + Fᵀ V F and g = l + Fᵀ
v, eliminates the controls (Gauss-Jordan; H_uu is positive definite or the block fails), and passes
on V and v.

Euler's methods on a robot whose coordinates are a vector space have F = P + E G with G = ∂v'/∂(q,
v, u), E = [eI; I] and P = [[I, cI, 0], [0, 0, 0]] (explicit: e = 0, c = h; semi-implicit: e = h, c
= 0): only G is read, and products are half as long.

Bounds on the controls are kept by an active set: a clamped control gets a huge diagonal and the
right-hand side that puts it onto its bound.
"""

from __future__ import annotations

from collections.abc import Callable

from rigidgrad.targets.llvm_free_base import FreeBase
from rigidgrad.targets.llvm_matrix import Matrix, Row
from rigidgrad.targets.riccati_layout import Layout

# 64-bit words of the context
CONTEXT = (
    "ranges",
    "F",
    "l",
    "L",
    "gains",
    "end",
    "start",
    "numbers",
    "results",
    "defects",
    "lower",
    "upper",
    "u",
    "active",
    "move",
    "scratch",
)
NUMBERS = ("rho", "h")  # of the array `numbers`, of each block
# of the array `results`, of each block: Σ κᵀg_u, Σ κᵀH_uu κ, 1 or 0
RESULTS = ("slope", "curve", "fine")
_SMALL = 32  # states up to which V is mirrored without loops


def render(layout: Layout, registers: int) -> str:
    code = _Riccati(layout, registers)
    code.write()
    vector, scalar = code.vector, code.scalar
    declarations = {
        f"declare {vector} @llvm.fma.{code.suffix}({vector}, {vector}, {vector})",
        f"declare {scalar} @llvm.fma.{code.scalar_suffix}({scalar}, {scalar}, {scalar})",
    }
    return "\n".join(
        [
            "define void @riccati(ptr %context, i64 %from, i64 %to) nounwind {",
            "entry:",
            *code.lines,
            "}",
            "",
            *sorted(declarations),
            "",
        ]
    )


class _Riccati(FreeBase):
    # --- the frame: blocks and knots --------------------------------------------------------------

    def write(self) -> None:
        o = self.layout
        for k, name in enumerate(CONTEXT):
            place = self.emit(f"getelementptr i64, ptr %context, i64 {k}")
            self.do(f"%{name}.all = load ptr, ptr {place}, align 8")
        self.do("br label %block")
        self.label("block")
        self.do("%b = phi i64 [ %from, %entry ], [ %b.next, %block.done ]")
        more = self.emit("icmp slt i64 %b, %to")
        self.do(f"br i1 {more}, label %block.start, label %finish")
        self.label("block.start")
        self.slice("ranges", "%b", 2, "i64")
        for name, at in (("first", 0), ("last", 1)):
            place = self.emit(f"getelementptr i64, ptr %ranges, i64 {at}")
            self.do(f"%{name} = load i64, ptr {place}, align 8")
        self.slice("numbers", "%b", len(NUMBERS), "double")
        self.rho, self.h = self.real("%numbers", 0), self.real("%numbers", 1)
        self.rough_by_rho = self.compared("ogt", self.rho, self.number(0.0))
        self.slice("scratch", "%b", o.scratch_size)
        self.slice("end", "%b", o.value_size)
        self.slice("start", "%b", o.value_size)
        self.slice("results", "%b", len(RESULTS), "double")
        self.allocate()
        self.copy(Matrix("%end", o.state_columns), self.V, o.n + 1, self.state_vectors)
        for k, x in enumerate((0.0, 0.0, 0.0)):
            self.result(k, repr(x))
        self.do("br label %block.ready")
        self.label("block.ready")
        self.do("br label %knot")
        self.label("knot")
        self.do("%k1 = phi i64 [ %last, %block.ready ], [ %k, %knot.done ]")
        self.do("%k = sub i64 %k1, 1")
        left = self.emit("icmp sge i64 %k, %first")
        self.do(f"br i1 {left}, label %knot.start, label %block.end")
        self.label("knot.start")
        self.slice("F", "%k", o.rows * o.columns)
        self.slice("l", "%k", o.columns)
        self.slice("L", "%k", o.columns * (1 if o.diagonal else o.n + o.m))
        self.slice("gains", "%k", o.m * o.columns, "double")
        if o.form == "floating":
            self.slice("move", "%k", o.move_size)
        if o.gaps:
            self.slice("defects", "%k", o.n, "double")
        if o.bounded:
            for name in ("lower", "upper", "u", "active"):
                self.slice(name, "%k", o.m, "double")
        self.knot()
        self.do("br label %knot.done")
        self.label("knot.done")
        self.do("br label %knot")
        self.label("block.end")
        self.result(2, "1.0")
        self.copy(self.V, Matrix("%start", o.state_columns), o.n + 1, self.state_vectors)
        self.do("br label %block.done")
        self.label("block.done")
        self.do("%b.next = add i64 %b, 1")
        self.do("br label %block")
        self.label("finish")
        self.do("ret void")

    def slice(self, name: str, index: str, size: int, kind: str | None = None) -> None:
        """%name, the part of %name.all that belongs to a knot or a block."""
        moved = self.emit(f"mul i64 {index}, {size}")
        self.do(f"%{name} = getelementptr {kind or self.scalar}, ptr %{name}.all, i64 {moved}")

    # --- one knot ---------------------------------------------------------------------------------

    def knot(self) -> None:
        self.F = Matrix("%F", self.layout.columns)
        if self.layout.gaps:
            self.shift_by_defect()
        if self.layout.form == "floating":
            self.free_hamiltonian()
        elif self.layout.form == "dense":
            self.dense_hamiltonian()
        else:
            self.euler_hamiltonian()
        self.solve()
        self.cost_to_go()

    def shift_by_defect(self) -> None:
        """v += V d."""
        o = self.layout
        sums = [self.load(self.V, o.n, j) for j in range(self.state_vectors)]
        for k in range(o.n):
            d = self.splat(self.real("%defects", k))
            sums = [self.fma(d, self.load(self.V, k, j), x) for j, x in enumerate(sums)]
        for j, x in enumerate(sums):
            self.store(x, self.V, o.n, j)

    def cost(self, row: Row, j: int) -> str:
        """Vector j of L's row."""
        o = self.layout
        if not o.diagonal:
            return self.load(Matrix("%L", o.columns), row, j)
        i = row.offset
        column = o.state(i) if i < o.n else o.control(i - o.n)
        if column // self.width != j:
            return self.zero
        return self.with_lane(
            self.zero, column % self.width, self.get(Matrix("%L", o.columns), 0, column)
        )

    def dense_hamiltonian(self) -> None:
        o, F = self.layout, self.F
        self.product(
            o.n,
            o.n,
            self.vectors,
            lambda i, k: self.at(self.V, i, o.state(k)),
            F,
            lambda i, j: self.zero,
            self.into(self.VF),
        )
        self.hamiltonian(self.VF, o.n, lambda first, i, j: self.zero)
        self.gradient(
            [self.zero] * self.vectors,
            [self.everywhere(self.V, o.n, o.state(k)) for k in range(o.n)],
        )

    def euler_hamiltonian(self) -> None:
        """See the module's text: W = EᵀV, Z = W E, T = Eᵀ V F = W P + Z G, N = the first half of V
        F.
        """
        o, G, nv = self.layout, self.F, self.layout.half
        part = o.whole(nv) // o.width  # vectors of q, and of v
        implicit = o.form == "implicit"
        h = self.splat(self.h)
        W = self.W if implicit else Matrix(self.at(self.V, nv), o.state_columns)
        Z, shift = (self.Z, 0) if implicit else (W, part * o.width)
        if implicit:
            for i in range(nv):
                rows = [
                    self.fma(h, self.load(self.V, i, j), self.load(self.V, nv + i, j))
                    for j in range(2 * part)
                ]
                for j, x in enumerate(rows):
                    self.store(x, W, i, j)
                for j in range(part):
                    self.store(self.fma(h, rows[j], rows[part + j]), Z, i, j)

        def placed(m: Matrix, i: Row, j: int) -> str:
            """(m P) of which m has the rows: [m_q, c m_q, 0]."""
            if j < part:
                return self.load(m, i, j)
            if j < 2 * part and not implicit:
                return self.binary("fmul", h, self.load(m, i, j - part))
            return self.zero

        self.product(
            nv,
            nv,
            self.state_vectors,
            self.transposed(W, 0),
            G,
            lambda i, j: placed(self.V, i, j),
            self.into(self.N),
        )
        self.product(
            nv,
            nv,
            self.vectors,
            lambda i, k: self.at(Z, i, shift + k),
            G,
            lambda i, j: placed(W, i, j),
            self.into(self.T),
        )

        def carried(first: int, i: Row, j: int) -> str:
            if first == 0:
                return self.load(self.N, i, j)
            return self.zero if implicit else self.binary("fmul", h, self.load(self.N, i, j))

        self.hamiltonian(self.T, nv, carried)
        v = Matrix(self.at(self.V, o.n), o.state_columns)
        begin = [placed(v, Row(0), j) for j in range(self.vectors)]
        weights = []
        for k in range(nv):
            w = self.get(v, 0, o.state(nv + k))
            weights.append(
                self.splat(self.scalar_fma(self.h, self.get(v, 0, k), w) if implicit else w)
            )
        self.gradient(begin, weights)

    def hamiltonian(self, T: Matrix, inner: int, carried: Callable[[int, Row, int], str]) -> None:
        """H's rows: L + carried + Σ_k F[k, i] T[k]; of the state only its own columns. `carried`
        gets the first row of its part.
        """
        o = self.layout
        parts = [(0, o.half, self.state_vectors, self.H, 0)]
        if o.half < o.n:
            parts.append(
                (
                    o.half,
                    o.half,
                    self.state_vectors,
                    Matrix(self.at(self.H, o.half), o.columns),
                    o.state(o.half),
                )
            )
        parts.append((o.n, o.m, self.vectors, self.U, o.control(0)))
        for first, count, vectors, out, column in parts:

            def begin(i: Row, j: int, first: int = first) -> str:
                found = [
                    self.cost(i + first, j),
                    carried(first, i, j) if first < o.n else self.zero,
                ]
                found = [x for x in found if x != self.zero]
                return (
                    self.zero
                    if not found
                    else found[0]
                    if len(found) == 1
                    else self.binary("fadd", *found)
                )

            self.product(
                count,
                inner,
                vectors,
                self.transposed(self.F, column),
                T,
                begin,
                self.into(out),
                unrolled=o.diagonal,
            )

    def gradient(self, begin: list[str], weights: list[str]) -> None:
        """g = l + begin + Σ_k w_k F[k]; g_u also goes into the last column of the control's
        rows.
        """
        o = self.layout
        sums = []
        for j in range(self.vectors):
            cost = self.load(Matrix("%l", o.columns), 0, j)
            sums.append(cost if begin[j] == self.zero else self.binary("fadd", cost, begin[j]))
        for k, w in enumerate(weights):
            sums = [self.fma(w, self.load(self.F, k, j), x) for j, x in enumerate(sums)]
        for j, x in enumerate(sums):
            self.store(x, self.H, o.n, j)
        self.g_u = [self.get(self.H, o.n, o.control(i)) for i in range(o.m)]
        for i, x in enumerate(self.g_u):
            self.put(x, self.U, i, o.gradient)

    # --- the cost-to-go ---------------------------------------------------------------------------

    def cost_to_go(self) -> None:
        """V = H_xx + H_xu K and v = g_x + H_xu κ, to which Kᵀ Y is added where Y = H_uu [K, κ] +
        [H_ux, g_u] is not zero.
        """
        o = self.layout
        gains = Matrix("%gains", o.columns)
        for i in range(o.m):
            for j in range(self.vectors):
                self.store_double(self.load(self.K, i, j), gains, i, j)
        for first, count, vectors in self.halves if o.form != "floating" else ():
            base, H = (
                Matrix(self.at(self.V, first), o.state_columns),
                Matrix(self.at(self.H, first), o.columns),
            )
            column = o.state(first)
            self.product(
                count,
                o.m,
                vectors,
                self.transposed(self.U, column),
                self.K,
                self.onto(H),
                self.into(base),
            )
        if o.form == "floating":
            self.free_cost_to_go()
        kappa = [self.get(self.K, k, o.gradient) for k in range(o.m)]
        sums = [self.load(self.H, o.n, j) for j in range(self.state_vectors)]
        slope = self.number(0.0)
        for k in range(o.m):
            factor = self.splat(kappa[k])
            sums = [self.fma(factor, self.load(self.U, k, j), x) for j, x in enumerate(sums)]
            slope = self.scalar_fma(kappa[k], self.g_u[k], slope)
        for j, x in enumerate(sums):
            self.store(x, self.V, o.n, j)
        self.accumulate(0, "fadd", self.double(slope))
        self.accumulate(1, "fsub", self.double(slope))
        with self.when(self.rough):
            self.correct(kappa)
        self.mirror()

    def correct(self, kappa: list[str]) -> None:
        o = self.layout
        self.product(
            o.m,
            o.m,
            self.vectors,
            lambda i, k: self.at(self.U, i, o.control(k)),
            self.K,
            self.onto(self.U),
            self.into(self.Y),
        )
        for first, count, vectors in self.halves:
            base, column = Matrix(self.at(self.V, first), o.state_columns), o.state(first)
            self.product(
                count,
                o.m,
                vectors,
                self.transposed(self.K, column),
                self.Y,
                self.onto(base),
                self.into(base),
            )
        sums = [self.load(self.V, o.n, j) for j in range(self.state_vectors)]
        curve = self.number(0.0)
        for k in range(o.m):
            y = self.get(self.Y, k, o.gradient)
            factor = self.splat(y)
            sums = [self.fma(factor, self.load(self.K, k, j), x) for j, x in enumerate(sums)]
            curve = self.scalar_fma(kappa[k], y, curve)
        for j, x in enumerate(sums):
            self.store(x, self.V, o.n, j)
        # κᵀH_uu κ = κᵀ(y - g_u); the second part is there already
        self.accumulate(1, "fadd", self.double(curve))

    def mirror(self) -> None:
        """Rounding leaves V slightly unsymmetric, which grows from knot to knot: the mean of both
        sides is taken.
        """
        o, half = self.layout, self.number(0.5)
        if o.form == "floating":
            self.mirror_lower(self.V, o.n)
            return

        def mean(a: str, b: str) -> None:
            x, y = (self.emit(f"load {self.scalar}, ptr {p}, align {self.bytes}") for p in (a, b))
            middle = self.scalar_op("fmul", half, self.scalar_op("fadd", x, y))
            for p in (a, b):
                self.do(f"store {self.scalar} {middle}, ptr {p}, align {self.bytes}")

        if o.n <= _SMALL:
            for i in range(o.n):
                for k in range(i):
                    mean(self.at(self.V, i, o.state(k)), self.at(self.V, k, o.state(i)))
            return
        starts = [0] if o.half == o.n else [0, o.half]
        for first in starts:
            for second in starts:
                with self.loop(o.half) as row, self.loop(o.half) as column:
                    one = self.across(
                        Matrix(self.at(self.V, Row(first, row)), 0),
                        0,
                        o.state(second),
                        Row(0, column),
                    )
                    other = self.across(
                        Matrix(self.at(self.V, Row(second, column)), 0),
                        0,
                        o.state(first),
                        Row(0, row),
                    )
                    mean(one, other)

    def store_double(self, value: str, m: Matrix, row: int, j: int) -> None:
        place = self.emit(
            f"getelementptr double, ptr {m.pointer}, i64 {row * m.stride + j * self.width}"
        )
        kind = self.of("double")
        wide = (
            value
            if self.dtype == "float64"
            else self.emit(f"fpext {self.vector} {value} to {kind}")
        )
        self.do(f"store {kind} {wide}, ptr {place}, align 8")
