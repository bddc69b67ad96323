"""The part of the backward pass that finds a knot's controls: gains from H_uu, H_ux and g_u,
regularised and within bounds (`llvm_riccati`).
"""

from __future__ import annotations

from rigidgrad.errors import RigidgradError
from rigidgrad.targets.llvm_matrix import Matrix, MatrixCode
from rigidgrad.targets.riccati_layout import Layout

_HUGE = 1e12
_SWITCHES = 10  # times an active set may change at a knot


class Controls(MatrixCode):
    rho: str
    h: str
    rough_by_rho: str  # whether ρ is not 0
    rough: str  # whether the gains do not solve the equations of H itself
    F: Matrix

    def __init__(self, layout: Layout, registers: int):
        super().__init__(layout.dtype, layout.width)
        self.layout, self.registers = layout, registers
        o = layout
        self.state_vectors = o.state_columns // o.width
        self.vectors = o.columns // o.width
        half = o.n if o.joined else o.half
        self.halves = [(0, half, self.state_vectors)] + [(half, o.n - half, self.state_vectors)] * (
            half < o.n
        )

    # --- memory -----------------------------------------------------------------------------------

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
        if used > o.scratch_size:
            raise RigidgradError(
                f"the backward pass needs {used} numbers of scratch memory; its layout has"
                f" {o.scratch_size}"
            )

    def real(self, pointer: str, k: int) -> str:
        """A float64 of memory in the code's own type."""
        value = self.emit(f"load double, ptr {self.double_at(pointer, k)}, align 8")
        return (
            value
            if self.dtype == "float64"
            else self.emit(f"fptrunc double {value} to {self.scalar}")
        )

    def double(self, value: str) -> str:
        return (
            value
            if self.dtype == "float64"
            else self.emit(f"fpext {self.scalar} {value} to double")
        )

    def result(self, k: int, value: str) -> None:
        self.do(f"store double {value}, ptr {self.double_at('%results', k)}, align 8")

    def accumulate(self, k: int, operation: str, value: str) -> None:
        before = self.emit(f"load double, ptr {self.double_at('%results', k)}, align 8")
        self.result(k, self.emit(f"{operation} double {before}, {value}"))

    # --- the controls -----------------------------------------------------------------------------

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
        used = self.emit(
            f"phi ptr [ {self.U.pointer}, %{here} ], [ {self.R.pointer}, %{name}.rough.done ]"
        )
        rows = Matrix(used, o.columns)
        if o.bounded:
            self.bounded_elimination(rows)
        else:
            self.fail_unless(
                self.gauss_jordan(
                    [[self.load(rows, i, j) for j in range(self.vectors)] for i in range(o.m)]
                )
            )
            self.rough = self.rough_by_rho

    def fail_unless(self, fine: str | None) -> None:
        """A block fails."""
        if fine is None:
            return
        name = self.unique("fine")
        self.do(f"br i1 {fine}, label %{name}, label %block.done")
        self.label(name)

    def regularize(self) -> None:
        o, implicit = self.layout, self.layout.form == "implicit"
        if o.form == "floating":
            self.regularize_free()
            return
        # ρ S = ρ EᵀF, where E is 1 or, of Euler's forms, S = (1 + e²) G + e [I, cI, 0] of which c
        # or e is 0
        S = self.VF if o.form == "dense" else self.T  # neither is needed any more
        scale = (
            self.scalar_op("fmul", self.rho, self.scalar_fma(self.h, self.h, self.number(1.0)))
            if implicit
            else self.rho
        )
        by_h = self.scalar_op("fmul", self.rho, self.h)
        for k in range(o.rows):
            for j in range(self.vectors):
                self.store(self.binary("fmul", self.splat(scale), self.load(self.F, k, j)), S, k, j)
            if implicit:
                self.put(self.scalar_op("fadd", self.get(S, k, k), by_h), S, k, k)
        self.product(
            o.m,
            o.rows,
            self.vectors,
            self.transposed(self.F, o.control(0)),
            S,
            self.onto(self.U),
            self.into(self.R),
        )

    def regularize_free(self) -> None:
        raise NotImplementedError

    def gauss_jordan(self, rows: list[list[str]]) -> str | None:
        """Stores the gains; whether all pivots were positive. The rows are in registers."""
        o, fine = self.layout, None
        for i in range(o.m):
            v, lane = divmod(o.control(i), o.width)
            pivot = self.lane(rows[i][v], lane)
            positive = self.compared("ogt", pivot, self.number(0.0))
            fine = positive if fine is None else self.logical("and", fine, positive)
            inverse = self.splat(self.scalar_op("fdiv", self.number(1.0), pivot))
            rows[i] = [self.binary("fmul", x, inverse) for x in rows[i]]
            for r in range(o.m):
                if r != i:
                    factor = self.negate(self.spread(rows[r][v], lane))
                    rows[r] = [
                        self.fma(factor, p, x) for p, x in zip(rows[i], rows[r], strict=True)
                    ]
        for i in range(o.m):
            for j in range(self.vectors):
                self.store(self.negate(rows[i][j]), self.K, i, j)
        return fine

    def bounded_elimination(self, rows: Matrix) -> None:
        o, name = self.layout, self.unique("box")
        low, high = (
            [self.scalar_op("fsub", self.real(f"%{b}", i), self.real("%u", i)) for i in range(o.m)]
            for b in ("lower", "upper")
        )
        zero = self.number(0.0)
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"%{name}.i = phi i64 [ 0, %{name}.before ], [ %{name}.n, %{name}.again ]")
        work, held = [], []
        for i in range(o.m):
            state = self.real("%active", i)
            up = self.compared("ogt", state, zero)
            down = self.compared("olt", state, zero)
            clamped = self.logical("or", up, down)
            bound = self.choose(up, high[i], low[i])
            row = [self.load(rows, i, j) for j in range(self.vectors)]
            v, lane = divmod(o.control(i), o.width)
            diagonal = self.lane(row[v], lane)
            huge = self.scalar_fma(self.number(_HUGE), diagonal, self.number(_HUGE))
            heavy = self.choose(clamped, huge, diagonal)
            row[v] = self.with_lane(row[v], lane, heavy)
            v, lane = divmod(o.gradient, o.width)
            right = self.scalar_op("fmul", huge, self.emit(f"fneg {self.scalar} {bound}"))
            right = self.choose(clamped, right, self.lane(row[v], lane))
            row[v] = self.with_lane(row[v], lane, right)
            work.append(row)
            held.append((up, down, clamped, bound))
        self.fail_unless(self.gauss_jordan(work))
        changed = any_clamped = "false"
        kappa = [self.get(self.K, i, o.gradient) for i in range(o.m)]
        for i, (up, down, clamped, _) in enumerate(held):
            slope = self.get(rows, i, o.gradient)
            for k in range(o.m):
                slope = self.scalar_fma(self.get(rows, i, o.control(k)), kappa[k], slope)
            over, under = (
                self.compared("ogt", kappa[i], high[i]),
                self.compared("olt", kappa[i], low[i]),
            )
            # where the slope is negative the cost falls with a larger control
            stays_up = self.logical("and", up, self.compared("olt", slope, zero))
            stays_down = self.logical("and", down, self.compared("ogt", slope, zero))
            t = "i1"
            free_up = self.emit(f"select {t} {clamped}, {t} {stays_up}, {t} {over}")
            free_down = self.emit(f"select {t} {clamped}, {t} {stays_down}, {t} {under}")
            for before, after in ((up, free_up), (down, free_down)):
                changed = self.logical("or", changed, self.logical("xor", before, after))
            d = "double"
            state = self.emit(f"select {t} {free_down}, {d} {-1.0}, {d} {0.0}")
            state = self.emit(f"select {t} {free_up}, {d} {1.0}, {d} {state}")
            self.do(f"store {d} {state}, ptr {self.double_at('%active', i)}, align 8")
            any_clamped = self.logical("or", any_clamped, clamped)
        self.do(f"br label %{name}.again")
        self.label(f"{name}.again")
        self.do(f"%{name}.n = add i64 %{name}.i, 1")
        few = self.emit(f"icmp slt i64 %{name}.n, {_SWITCHES}")
        self.do(f"br i1 {self.emit(f'and i1 {changed}, {few}')}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")
        # a clamped control neither feeds back nor, should the set not have settled, leaves its
        # bounds
        for i, (_, _, clamped, bound) in enumerate(held):
            for j in range(self.vectors):
                kept = self.emit(
                    f"select i1 {clamped}, {self.vector} {self.zero}, {self.vector}"
                    f" {self.load(self.K, i, j)}"
                )
                self.store(kept, self.K, i, j)
            kept = self.choose(clamped, bound, kappa[i])
            for predicate, limit in (("olt", high[i]), ("ogt", low[i])):
                kept = self.choose(self.compared(predicate, kept, limit), kept, limit)
            self.put(kept, self.K, i, o.gradient)
        self.rough = self.logical("or", self.rough_by_rho, self.logical("or", any_clamped, changed))
