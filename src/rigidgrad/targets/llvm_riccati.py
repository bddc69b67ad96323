"""The backward pass of differential dynamic programming as LLVM IR, for one system's sizes: SIMD inside one problem (Plancher 2022, 2.7-2.9, 4.4, 4.5).

The module's function `riccati(context, begin, end)` runs blocks of knots, each from its last knot to its first, from the cost-to-go at its end. With
F = [A, B] it forms H = L + Fᵀ V F and g = l + Fᵀ v, eliminates the controls (Gauss-Jordan; H_uu is positive definite or the block fails), and passes on V and v.

Euler's methods on a robot whose coordinates are a vector space have F = P + E G with G = ∂v'/∂(q, v, u), E = [eI; I] and P = [[I, cI, 0], [0, 0, 0]]
(explicit: e = 0, c = h; semi-implicit: e = h, c = 0): only G is read, and products are half as long.

Bounds on the controls are kept by an active set: a clamped control gets a huge diagonal and the right-hand side that puts it onto its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rigidgrad.targets.llvm_matrix import Matrix, MatrixCode, Row

# 64-bit words of the context
CONTEXT = ("ranges", "F", "l", "L", "gains", "end", "start", "numbers", "results", "defects", "lower", "upper", "u", "active", "scratch")
NUMBERS = ("rho", "h")  # of the array `numbers`, of each block
RESULTS = ("slope", "curve", "fine")  # of the array `results`, of each block: Σ κᵀg_u, Σ κᵀH_uu κ, 1 or 0
_HUGE = 1e12
_SMALL = 32  # states up to which V is mirrored without loops
_SWITCHES = 10  # times an active set may change at a knot


@dataclass(frozen=True)
class Layout:
    """Sizes, and the columns of a row [state | control, gradient]; each group is whole vectors. With `form` "dense" the state is one group, else two (q, v)."""

    n: int
    m: int
    form: str  # "dense", "explicit" or "implicit"
    dtype: str
    width: int
    diagonal: bool = False  # L is a row, the diagonal
    bounded: bool = False
    gaps: bool = False

    def whole(self, count: int) -> int:
        return -(-count // self.width) * self.width

    @property
    def half(self) -> int:
        """Numbers of a part of the state."""
        return self.n if self.form == "dense" else self.n // 2

    @property
    def rows(self) -> int:
        """Rows of F or G."""
        return self.half

    @property
    def state_columns(self) -> int:
        return self.whole(self.half) * (1 if self.form == "dense" else 2)

    @property
    def columns(self) -> int:
        return self.state_columns + self.whole(self.m + 1)

    def state(self, i: int) -> int:
        return i if i < self.half else self.whole(self.half) + i - self.half

    def control(self, i: int) -> int:
        return self.state_columns + i

    @property
    def gradient(self) -> int:
        """The column of H's rows that takes g, and of the gains that holds κ."""
        return self.state_columns + self.m

    @property
    def value_size(self) -> int:
        """Numbers of a cost-to-go: rows of V, then v."""
        return (self.n + 1) * self.state_columns

    @property
    def scratch_size(self) -> int:
        c, s = self.columns, self.state_columns
        middle = self.n * c if self.form == "dense" else 2 * self.half * c + 2 * self.half * s
        return 2 * self.value_size + (self.n + 1) * c + 4 * (self.m + 1) * c + middle + 8 * self.width


def render(layout: Layout, registers: int) -> str:
    code = _Riccati(layout, registers)
    code.write()
    vector, scalar = code.vector, code.scalar
    kind = "f64" if layout.dtype == "float64" else "f32"
    declarations = {
        f"declare {vector} @llvm.fma.{code.suffix}({vector}, {vector}, {vector})",
        f"declare {scalar} @llvm.fma.{kind}({scalar}, {scalar}, {scalar})",
    }
    return "\n".join(
        ["define void @riccati(ptr %context, i64 %from, i64 %to) nounwind {", "entry:", *code.lines, "}", "", *sorted(declarations), ""]
    )


class _Riccati(MatrixCode):
    def __init__(self, layout: Layout, registers: int):
        super().__init__(layout.dtype, layout.width)
        self.layout, self.registers = layout, registers
        o = layout
        self.state_vectors = o.state_columns // o.width
        self.vectors = o.columns // o.width

    # --- the frame: blocks and knots ---------------------------------------------------------------------------------------------

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
        self.rough_by_rho = self.emit(f"fcmp ogt {self.scalar} {self.rho}, {self.number(0.0)}")
        self.slice("scratch", "%b", o.scratch_size)
        self.slice("end", "%b", o.value_size)
        self.slice("start", "%b", o.value_size)
        self.slice("results", "%b", len(RESULTS), "double")
        self.allocate()
        for i in range(o.n + 1):
            for j in range(self.state_vectors):
                self.store(self.load(Matrix("%end", o.state_columns), i, j), self.V, i, j)
        for k in range(len(RESULTS)):
            self.result(k, "0.0")
        self.do("br label %knot")
        self.label("knot")
        self.do("%k1 = phi i64 [ %last, %block.start ], [ %k, %knot.done ]")
        self.do("%k = sub i64 %k1, 1")
        left = self.emit("icmp sge i64 %k, %first")
        self.do(f"br i1 {left}, label %knot.start, label %block.end")
        self.label("knot.start")
        self.slice("F", "%k", o.rows * o.columns)
        self.slice("l", "%k", o.columns)
        self.slice("L", "%k", o.columns * (1 if o.diagonal else o.n + o.m))
        self.slice("gains", "%k", o.m * o.columns, "double")
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
        for i in range(o.n + 1):
            for j in range(self.state_vectors):
                self.store(self.load(self.V, i, j), Matrix("%start", o.state_columns), i, j)
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

    def allocate(self) -> None:
        o, used = self.layout, 0

        def matrix(rows: int, stride: int) -> Matrix:
            nonlocal used
            place = self.emit(f"getelementptr {self.scalar}, ptr %scratch, i64 {used}")
            used += rows * stride
            return Matrix(place, stride)

        c, s = o.columns, o.state_columns
        self.V = matrix(o.n + 1, s)  # V, then v
        self.H = matrix(o.n + 1, c)  # its rows of the state, then g
        self.U = matrix(o.m, c)  # its rows of the control, with g_u in the last column
        self.R = matrix(o.m, c)  # the same, regularised
        self.K = matrix(o.m, c)  # gains
        self.Y = matrix(o.m, c)
        if o.form == "dense":
            self.VF = matrix(o.n, c)
        else:
            self.T, self.N = matrix(o.half, c), matrix(o.half, c)
            self.W, self.Z = matrix(o.half, s), matrix(o.half, s)
        assert used <= o.scratch_size

    def real(self, pointer: str, k: int) -> str:
        """A float64 of memory in the code's own type."""
        place = self.emit(f"getelementptr double, ptr {pointer}, i64 {k}")
        value = self.emit(f"load double, ptr {place}, align 8")
        return value if self.dtype == "float64" else self.emit(f"fptrunc double {value} to float")

    def double(self, value: str) -> str:
        return value if self.dtype == "float64" else self.emit(f"fpext float {value} to double")

    def result(self, k: int, value: str) -> None:
        place = self.emit(f"getelementptr double, ptr %results, i64 {k}")
        self.do(f"store double {value}, ptr {place}, align 8")

    def accumulate(self, k: int, value: str) -> None:
        place = self.emit(f"getelementptr double, ptr %results, i64 {k}")
        before = self.emit(f"load double, ptr {place}, align 8")
        self.result(k, self.emit(f"fadd double {before}, {self.double(value)}"))

    # --- one knot ----------------------------------------------------------------------------------------------------------------

    def knot(self) -> None:
        self.F = Matrix("%F", self.layout.columns)
        if self.layout.gaps:
            self.shift_by_defect()
        if self.layout.form == "dense":
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
        return self.with_lane(self.zero, column % self.width, self.get(Matrix("%L", o.columns), 0, column))

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
        self.gradient([self.zero] * self.vectors, [self.everywhere(self.V, o.n, o.state(k)) for k in range(o.n)])

    def euler_hamiltonian(self) -> None:
        """See the module's text: W = EᵀV, Z = W E, T = Eᵀ V F = W P + Z G, N = the first half of V F."""
        o, G, nv = self.layout, self.F, self.layout.half
        part = o.whole(nv) // o.width  # vectors of q, and of v
        implicit = o.form == "implicit"
        h = self.splat(self.h)
        W = self.W if implicit else Matrix(self.at(self.V, nv), o.state_columns)
        Z, shift = (self.Z, 0) if implicit else (W, part * o.width)
        if implicit:
            for i in range(nv):
                rows = [self.fma(h, self.load(self.V, i, j), self.load(self.V, nv + i, j)) for j in range(2 * part)]
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
            weights.append(self.splat(self.scalar_fma(self.h, self.get(v, 0, k), w) if implicit else w))
        self.gradient(begin, weights)

    def into(self, m: Matrix) -> Callable[[Row, int, str], None]:
        return lambda i, j, x: self.store(x, m, i, j)

    def onto(self, m: Matrix) -> Callable[[Row, int], str]:
        return lambda i, j: self.load(m, i, j)

    def transposed(self, m: Matrix, column: int) -> Callable[[Row, int], str]:
        """Addresses of m[k, column + i]."""
        return lambda i, k: self.across(m, k, column, i)

    def across(self, m: Matrix, k: int, column: int, i: Row) -> str:
        """The address of m[k, column + i]."""
        place = self.at(m, k, column + i.offset)
        return place if i.counted is None else self.emit(f"getelementptr {self.scalar}, ptr {place}, i64 {i.counted}")

    def hamiltonian(self, T: Matrix, inner: int, carried: Callable[[int, Row, int], str]) -> None:
        """H's rows: L + carried + Σ_k F[k, i] T[k]; of the state only its own columns. `carried` gets the first row of its part."""
        o = self.layout
        parts = [(0, o.half, self.state_vectors, self.H, 0)]
        if o.half < o.n:
            parts.append((o.half, o.half, self.state_vectors, Matrix(self.at(self.H, o.half), o.columns), o.state(o.half)))
        parts.append((o.n, o.m, self.vectors, self.U, o.control(0)))
        for first, count, vectors, out, column in parts:

            def begin(i: Row, j: int, first: int = first) -> str:
                found = [self.cost(i + first, j), carried(first, i, j) if first < o.n else self.zero]
                found = [x for x in found if x != self.zero]
                return self.zero if not found else found[0] if len(found) == 1 else self.binary("fadd", *found)

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
        """g = l + begin + Σ_k w_k F[k]; g_u also goes into the last column of the control's rows."""
        o = self.layout
        sums = []
        for j, x in enumerate(begin):
            cost = self.load(Matrix("%l", o.columns), 0, j)
            sums.append(cost if x == self.zero else self.binary("fadd", cost, x))
        for k, w in enumerate(weights):
            sums = [self.fma(w, self.load(self.F, k, j), x) for j, x in enumerate(sums)]
        for j, x in enumerate(sums):
            self.store(x, self.H, o.n, j)
        self.g_u = [self.lane(sums[o.control(i) // o.width], o.control(i) % o.width) for i in range(o.m)]
        for i, x in enumerate(self.g_u):
            self.put(x, self.U, i, o.gradient)

    # --- the controls ------------------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Gains [K, κ] = -R⁻¹ [H_ux, g_u]; R is H_uu with ρ BᵀB and H_ux with ρ BᵀA added."""
        o, name = self.layout, self.unique("solve")
        here = self.unique("before")
        self.do(f"br label %{here}")
        self.label(here)
        self.do(f"br i1 {self.rough_by_rho}, label %{name}.rough, label %{name}")
        self.label(f"{name}.rough")
        self.regularize()
        self.do(f"br label %{name}.rough.done")
        self.label(f"{name}.rough.done")
        self.do(f"br label %{name}")
        self.label(name)
        used = self.emit(f"phi ptr [ {self.U.pointer}, %{here} ], [ {self.R.pointer}, %{name}.rough.done ]")
        rows = Matrix(used, o.columns)
        if o.bounded:
            self.bounded_elimination(rows)
        else:
            fine = self.eliminate([[self.load(rows, i, j) for j in range(self.vectors)] for i in range(o.m)])
            self.fail_unless(fine)
            self.rough = self.rough_by_rho

    def fail_unless(self, fine: str | None) -> None:
        if fine is None:
            return
        name = self.unique("fine")
        self.do(f"br i1 {fine}, label %{name}, label %block.done")
        self.label(name)

    def regularize(self) -> None:
        o = self.layout
        rho = self.splat(self.rho)
        if o.form == "dense":
            S = self.F
        else:  # S = EᵀF = (1 + e²) G + e [I, cI, 0], of which c or e is 0
            S, implicit = self.T, o.form == "implicit"  # T is not needed any more
            square = self.splat(self.scalar_fma(self.h, self.h, self.number(1.0))) if implicit else None
            for k in range(o.half):
                for j in range(self.vectors):
                    x = self.load(self.F, k, j)
                    if square is not None:
                        x = self.binary("fmul", square, x)
                        if k // o.width == j:
                            x = self.with_lane(x, k % o.width, self.scalar_op("fadd", self.lane(x, k % o.width), self.h))
                    self.store(x, S, k, j)
        for i in range(o.m):
            sums = [self.load(self.U, i, j) for j in range(self.vectors)]
            for k in range(o.rows):
                factor = self.binary("fmul", rho, self.everywhere(self.F, k, o.control(i)))
                sums = [self.fma(factor, self.load(S, k, j), x) for j, x in enumerate(sums)]
            for j, x in enumerate(sums):
                self.store(x, self.R, i, j)

    def eliminate(self, rows: list[list[str]]) -> str | None:
        """Gauss-Jordan on rows in registers; stores the gains; whether all pivots were positive."""
        o, fine = self.layout, None
        for i in range(o.m):
            v, lane = divmod(o.control(i), o.width)
            pivot = self.lane(rows[i][v], lane)
            positive = self.emit(f"fcmp ogt {self.scalar} {pivot}, {self.number(0.0)}")
            fine = positive if fine is None else self.emit(f"and i1 {fine}, {positive}")
            inverse = self.splat(self.scalar_op("fdiv", self.number(1.0), pivot))
            rows[i] = [self.binary("fmul", x, inverse) for x in rows[i]]
            for r in range(o.m):
                if r != i:
                    factor = self.negate(self.spread(rows[r][v], lane))
                    rows[r] = [self.fma(factor, p, x) for p, x in zip(rows[i], rows[r], strict=True)]
        for i in range(o.m):
            for j in range(self.vectors):
                self.store(self.negate(rows[i][j]), self.K, i, j)
        return fine

    def bounded_elimination(self, rows: Matrix) -> None:
        o, name = self.layout, self.unique("box")
        low, high = ([self.scalar_op("fsub", self.real(f"%{b}", i), self.real("%u", i)) for i in range(o.m)] for b in ("lower", "upper"))
        zero = self.number(0.0)
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"%{name}.i = phi i64 [ 0, %{name}.before ], [ %{name}.n, %{name}.again ]")
        work, held = [], []
        for i in range(o.m):
            state = self.real("%active", i)
            up = self.emit(f"fcmp ogt {self.scalar} {state}, {zero}")
            down = self.emit(f"fcmp olt {self.scalar} {state}, {zero}")
            clamped = self.emit(f"or i1 {up}, {down}")
            bound = self.emit(f"select i1 {up}, {self.scalar} {high[i]}, {self.scalar} {low[i]}")
            row = [self.load(rows, i, j) for j in range(self.vectors)]
            v, lane = divmod(o.control(i), o.width)
            diagonal = self.lane(row[v], lane)
            huge = self.scalar_fma(self.number(_HUGE), diagonal, self.number(_HUGE))
            heavy = self.emit(f"select i1 {clamped}, {self.scalar} {huge}, {self.scalar} {diagonal}")
            row[v] = self.with_lane(row[v], lane, heavy)
            v, lane = divmod(o.gradient, o.width)
            right = self.scalar_op("fmul", huge, self.emit(f"fneg {self.scalar} {bound}"))
            right = self.emit(f"select i1 {clamped}, {self.scalar} {right}, {self.scalar} {self.lane(row[v], lane)}")
            row[v] = self.with_lane(row[v], lane, right)
            work.append(row)
            held.append((up, down, clamped, bound))
        self.fail_unless(self.eliminate(work))
        changed, any_clamped = "false", "false"
        kappa = [self.get(self.K, i, o.gradient) for i in range(o.m)]
        for i, (up, down, clamped, _) in enumerate(held):
            slope = self.get(rows, i, o.gradient)
            for k in range(o.m):
                slope = self.scalar_fma(self.get(rows, i, o.control(k)), kappa[k], slope)
            over = self.emit(f"fcmp ogt {self.scalar} {kappa[i]}, {high[i]}")
            under = self.emit(f"fcmp olt {self.scalar} {kappa[i]}, {low[i]}")
            outward = self.emit(f"fcmp olt {self.scalar} {slope}, {zero}")  # the cost falls with a larger control
            inward = self.emit(f"fcmp ogt {self.scalar} {slope}, {zero}")
            stays_up, stays_down = self.emit(f"and i1 {up}, {outward}"), self.emit(f"and i1 {down}, {inward}")
            free_up = self.emit(f"select i1 {clamped}, i1 {stays_up}, i1 {over}")
            free_down = self.emit(f"select i1 {clamped}, i1 {stays_down}, i1 {under}")
            same_up, same_down = self.emit(f"icmp eq i1 {up}, {free_up}"), self.emit(f"icmp eq i1 {down}, {free_down}")
            same = self.emit(f"and i1 {same_up}, {same_down}")
            changed = self.emit(f"or i1 {changed}, {self.emit(f'xor i1 {same}, true')}")
            state = self.emit(f"select i1 {free_down}, double -1.0, double 0.0")
            state = self.emit(f"select i1 {free_up}, double 1.0, double {state}")
            place = self.emit(f"getelementptr double, ptr %active, i64 {i}")
            self.do(f"store double {state}, ptr {place}, align 8")
            any_clamped = self.emit(f"or i1 {any_clamped}, {clamped}")
        self.do(f"br label %{name}.again")
        self.label(f"{name}.again")
        self.do(f"%{name}.n = add i64 %{name}.i, 1")
        few = self.emit(f"icmp slt i64 %{name}.n, {_SWITCHES}")
        self.do(f"br i1 {self.emit(f'and i1 {changed}, {few}')}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")
        # a clamped control neither feeds back nor, should the set not have settled, leaves its bounds
        for i, (_, _, clamped, bound) in enumerate(held):
            for j in range(self.vectors):
                kept = self.emit(f"select i1 {clamped}, {self.vector} {self.zero}, {self.vector} {self.load(self.K, i, j)}")
                self.store(kept, self.K, i, j)
            kept = self.emit(f"select i1 {clamped}, {self.scalar} {bound}, {self.scalar} {kappa[i]}")
            for predicate, limit in (("olt", high[i]), ("ogt", low[i])):
                inside = self.emit(f"fcmp {predicate} {self.scalar} {kept}, {limit}")
                kept = self.emit(f"select i1 {inside}, {self.scalar} {kept}, {self.scalar} {limit}")
            self.put(kept, self.K, i, o.gradient)
        self.rough = self.emit(f"or i1 {self.rough_by_rho}, {self.emit(f'or i1 {any_clamped}, {changed}')}")

    # --- the cost-to-go ----------------------------------------------------------------------------------------------------------

    def cost_to_go(self) -> None:
        """V = H_xx + H_xu K and v = g_x + H_xu κ, to which Kᵀ Y is added where Y = H_uu [K, κ] + [H_ux, g_u] is not zero."""
        o = self.layout
        gains = Matrix("%gains", o.columns)
        for i in range(o.m):
            for j in range(self.vectors):
                self.store_double(self.load(self.K, i, j), gains, i, j)
        for first, count in ((0, o.half), (o.half, o.n - o.half)):
            base, H = Matrix(self.at(self.V, first), o.state_columns), Matrix(self.at(self.H, first), o.columns)
            column = o.state(first) if count else 0
            self.product(
                count,
                o.m,
                self.state_vectors,
                self.transposed(self.U, column),
                self.K,
                self.onto(H),
                self.into(base),
            )
        kappa = [self.get(self.K, k, o.gradient) for k in range(o.m)]
        sums = [self.load(self.H, o.n, j) for j in range(self.state_vectors)]
        slope = self.number(0.0)
        for k in range(o.m):
            factor = self.splat(kappa[k])
            sums = [self.fma(factor, self.load(self.U, k, j), x) for j, x in enumerate(sums)]
            slope = self.scalar_fma(kappa[k], self.g_u[k], slope)
        for j, x in enumerate(sums):
            self.store(x, self.V, o.n, j)
        self.accumulate(0, slope)
        self.accumulate(1, self.emit(f"fneg {self.scalar} {slope}"))
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
        for first, count in ((0, o.half), (o.half, o.n - o.half)):
            base, column = Matrix(self.at(self.V, first), o.state_columns), o.state(first) if count else 0
            self.product(
                count,
                o.m,
                self.state_vectors,
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
        self.accumulate(1, curve)  # κᵀH_uu κ = κᵀ(y - g_u); the second part is there already

    def mirror(self) -> None:
        """Rounding leaves V slightly unsymmetric, which grows from knot to knot: the mean of both halves is taken."""
        o, half = self.layout, self.number(0.5)

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
                    one = self.across(Matrix(self.at(self.V, Row(first, row)), 0), 0, o.state(second), Row(0, column))
                    mean(one, self.across(Matrix(self.at(self.V, Row(second, column)), 0), 0, o.state(first), Row(0, row)))

    def store_double(self, value: str, m: Matrix, row: int, j: int) -> None:
        place = self.emit(f"getelementptr double, ptr {m.pointer}, i64 {row * m.stride + j * self.width}")
        kind = f"<{self.width} x double>" if self.width > 1 else "double"
        wide = value if self.dtype == "float64" else self.emit(f"fpext {self.vector} {value} to {kind}")
        self.do(f"store {kind} {wide}, ptr {place}, align 8")
