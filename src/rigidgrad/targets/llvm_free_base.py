"""The backward pass for robots on a free base, whose positions move by their new velocities: v'
tells all but for how the base's position moves (`llvm_riccati`).

With G = ∂v'/∂(q, v, u) (`F`), and of the base's position T = ∂q'/∂q and S = ∂q'/∂v', of other
joints 1 and h,

    F = P + E G,        P = [[T, 0], [0, 0]],        E = [S; 1],
    FᵀVF = Pᵀ N + Gᵀ (W P + Z G)        with W = EᵀV, Z = W E, N = V_q P + W_qᵀ G.

V and H_xx are symmetric: their blocks on and below the diagonal are computed, and mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rigidgrad.targets.llvm_controls import Controls
from rigidgrad.targets.llvm_matrix import Matrix, Row
from rigidgrad.targets.llvm_rows import transpose

Begin = Callable[[int, int], str]


class FreeBase(Controls):
    # --- rows times E and P -----------------------------------------------------------------------

    def ready(self) -> None:
        """The numbers of a knot: rows of T, rows of S, h."""
        o = self.layout
        self.T_base, self.S_base = (
            Matrix(
                self.emit(
                    f"getelementptr {self.scalar}, ptr %move, i64 {k * o.base * o.base_columns}"
                ),
                o.base_columns,
            )
            for k in range(2)
        )
        self.h = self.get(Matrix("%move", 0), 0, 2 * o.base * o.base_columns)
        self.part = o.whole(o.half) // o.width  # vectors of q
        self.base_part = o.base_columns // o.width
        self.joint_h = [
            self.masked(self.splat(self.h), range(o.base, o.half), j) for j in range(self.part)
        ]

    def masked(self, vector: str, columns: range, j: int) -> str:
        """Vector j with zeros but in some columns."""
        marks = [c in columns for c in range(j * self.width, (j + 1) * self.width)]
        if all(marks):
            return vector
        if self.width == 1:
            return self.zero
        mask = f"<{self.width} x i1> <{', '.join(f'i1 {str(x).lower()}' for x in marks)}>"
        return self.emit(f"select {mask}, {self.vector} {vector}, {self.vector} {self.zero}")

    def by_base(self, m: Matrix, row: Row | int, base: Matrix, begin: list[str]) -> list[str]:
        """begin + Σ_k m[row, k] base[k]."""
        found = list(begin)
        for k in range(self.layout.base):
            factor = self.everywhere(m, row, k)
            for j in range(self.base_part):
                found[j] = self.fma(factor, self.load(base, k, j), found[j])
        return found

    def times_E(self, m: Matrix, row: Row | int) -> list[str]:
        """The row of m E: vectors of whole joints, of which columns beyond have any numbers."""
        moved = Matrix(self.at(m, 0, self.layout.half), m.stride)
        found = [
            self.fma(self.joint_h[j], self.load(m, row, j), self.load(moved, row, j))
            for j in range(self.part)
        ]
        return self.by_base(m, row, self.S_base, found)

    def times_P(self, m: Matrix, row: Row | int) -> list[str]:
        """The row of m P, all vectors: zero beyond q."""
        o = self.layout
        kept = [
            self.masked(self.load(m, row, j), range(o.base, o.half), j) for j in range(self.part)
        ]
        return self.by_base(m, row, self.T_base, kept) + [self.zero] * (self.vectors - self.part)

    # --- products ---------------------------------------------------------------------------------

    def looped(
        self,
        rows: int,
        inner: int,
        vectors: int,
        a: Callable[[Row, str], str],
        b: Matrix,
        begin: Callable[[Row, int], str],
        out: Matrix,
    ) -> None:
        """out = begin + a b as a loop over a few rows at a time, with a loop over the terms inside:
        code that stays in the first cache. `a` gives the address of a number.
        """
        block = min(rows, max(1, (self.registers - 6) // vectors))

        def some(start: Row, count: int) -> None:
            self.sums(
                inner,
                [[begin(start + r, j) for j in range(vectors)] for r in range(count)],
                lambda r, k: a(start + r, k),
                b,
                out,
                start,
            )

        if rows // block > 1:
            with self.loop(rows // block) as counter:
                some(Row(0, self.emit(f"mul i64 {counter}, {block}")), block)
        else:
            some(Row(0), block)
        if rows % block:
            some(Row(rows - rows % block), rows % block)

    def sums(
        self,
        inner: int,
        begin: list[list[str]],
        a: Callable[[int, str], str],
        b: Matrix,
        out: Matrix,
        start: Row,
    ) -> None:
        """Rows of sums of `inner` terms, whose numbers are added up in registers."""
        name, count = self.unique("sum"), range(len(begin))
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        k = f"%{name}.k"
        self.do(f"{k} = phi i64 [ 0, %{name}.before ], [ {k}.next, %{name} ]")
        running = [[f"%{name}.{r}.{j}" for j in range(len(begin[r]))] for r in count]
        for r in count:
            for j, x in enumerate(begin[r]):
                self.do(
                    f"{running[r][j]} = phi {self.vector} [ {x}, %{name}.before ], ["
                    f" {running[r][j]}.next, %{name} ]"
                )
        longest = max(len(row) for row in begin)
        terms = [self.load(b, Row(0, k), j) for j in range(longest)]
        for r in count:
            factor = self.splat(self.emit(f"load {self.scalar}, ptr {a(r, k)}, align {self.bytes}"))
            for x, term in zip(running[r], terms, strict=False):
                call = (
                    f"call {self.vector} @llvm.fma.{self.suffix}({self.vector} {factor},"
                    f" {self.vector} {term}, {self.vector} {x})"
                )
                self.do(f"{x}.next = {call}")
        self.do(f"{k}.next = add i64 {k}, 1")
        more = self.emit(f"icmp slt i64 {k}.next, {inner}")
        self.do(f"br i1 {more}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")
        for r in count:
            for j, x in enumerate(running[r]):
                self.store(f"{x}.next", out, start + r, j)

    def lower(
        self,
        rows: int,
        inner: int,
        m: Matrix,
        column: int,
        b: Matrix,
        begin: Begin,
        out: Matrix,
        least: int = 1,
    ) -> None:
        """out[i] = begin(i) + Σ_k m[k, column + i] b[k], of each row the vectors up to that of the
        diagonal, at least the first few.
        """
        row = 0
        while row < rows:
            vectors = max(row // self.width + 1, least)
            last = min(
                rows,
                (row // self.width + 1) * self.width,
                row + max(1, (self.registers - 4 - vectors) // vectors),
            )
            first = row
            starts = [[begin(i, j) for j in range(vectors)] for i in range(first, last)]
            self.sums(
                inner,
                starts,
                lambda r, k, first=first: self.at(  # type: ignore[misc]
                    m, Row(0, k), column + first + r
                ),
                b,
                out,
                Row(first),
            )
            row = last

    def mirror_lower(self, m: Matrix, rows: int) -> None:
        """Blocks above the diagonal from those below; within a block on the diagonal, its lower
        half counts.
        """
        w = self.width
        blocks = -(-rows // w)
        for r in range(blocks):
            count = min(w, rows - r * w)
            for c in range(r + 1):
                block = [self.load(m, r * w + i, c) if i < count else self.zero for i in range(w)]
                turned = self.turned(block)
                if c < r:
                    for i, x in enumerate(turned):
                        self.store(x, m, c * w + i, r)
                    continue
                for i in range(count):
                    self.store(
                        self.masked_choice(range(i + 1), block[i], turned[i]), m, r * w + i, c
                    )

    def turned(self, block: Sequence[str]) -> list[str]:
        return (
            transpose(self.emit, self.scalar, list(block), self.width)
            if self.width > 1
            else list(block)
        )

    def masked_choice(self, lanes: range, a: str, b: str) -> str:
        """a in some lanes, b in the others."""
        if self.width == 1:
            return a
        mask = (
            f"<{self.width} x i1>"
            f" <{', '.join(f'i1 {str(k in lanes).lower()}' for k in range(self.width))}>"
        )
        return self.emit(f"select {mask}, {self.vector} {a}, {self.vector} {b}")

    # --- H ----------------------------------------------------------------------------------------

    def free_hamiltonian(self) -> None:
        """H's rows and g; see the module's text."""
        o, G, nv = self.layout, self.F, self.layout.half
        self.ready()
        state, L = range(self.state_vectors), Matrix("%L", o.columns)
        for i in range(o.base):
            row = [self.load(self.V, nv + i, j) for j in state]
            for k in range(o.base):
                factor = self.everywhere(self.S_base, k, i)
                row = [self.fma(factor, self.load(self.V, k, j), x) for j, x in enumerate(row)]
            for j, x in enumerate(row):
                self.store(x, self.W, i, j)
        h = self.splat(self.h)
        with self.loop(nv - o.base) as counter:
            for j in state:
                at = Row(o.base, counter)
                self.store(
                    self.fma(h, self.load(self.V, at, j), self.load(self.V, at + nv, j)),
                    self.W,
                    at,
                    j,
                )
        with self.loop(nv) as counter:
            at = Row(0, counter)
            for j, x in enumerate(self.times_E(self.W, at)):
                self.store(x, self.Z, at, j)
            for m, out in ((self.W, self.T), (self.V, self.N)):
                for j, x in enumerate(self.times_P(m, at)):
                    self.store(x, out, at, j)
        self.looped(
            nv,
            nv,
            self.vectors,
            lambda i, k: self.emit_at(self.Z, i, k),
            G,
            self.onto(self.T),
            self.T,
        )
        self.lower(
            nv, nv, self.W, 0, G, lambda i, j: self.load(self.N, i, j), self.N, least=self.base_part
        )
        # Pᵀ N: rows of the base
        sums = [[self.zero] * self.base_part for _ in range(o.base)]
        for k in range(o.base):
            row = [self.load(self.N, k, j) for j in range(self.base_part)]
            for i in range(o.base):
                factor = self.everywhere(self.T_base, k, i)
                sums[i] = [self.fma(factor, x, y) for x, y in zip(row, sums[i], strict=True)]
        for i, row in enumerate(sums):
            for j, x in enumerate(row):
                self.store(x, self.N, i, j)

        def begin(i: int, j: int) -> str:
            cost = self.load(L, i, j)
            return cost if i >= nv else self.binary("fadd", cost, self.load(self.N, i, j))

        self.lower(o.n, nv, G, 0, self.T, begin, self.H)
        self.looped(
            o.m,
            nv,
            self.vectors,
            lambda i, k: self.across_loop(G, o.control(0), i, k),
            self.T,
            lambda i, j: self.load(L, i + o.n, j),
            self.U,
        )
        self.free_gradient()

    def emit_at(self, m: Matrix, row: Row, k: str) -> str:
        """The address of m[row, k]."""
        return self.emit(f"getelementptr {self.scalar}, ptr {self.at(m, row)}, i64 {k}")

    def across_loop(self, m: Matrix, column: int, i: Row, k: str) -> str:
        """The address of m[k, column + i]."""
        return self.across(Matrix(self.at(m, Row(0, k)), 0), 0, column, i)

    def free_gradient(self) -> None:
        """g = l + Pᵀ v + Gᵀ Eᵀ v."""
        o = self.layout
        v = Matrix(self.at(self.V, o.n), o.state_columns)
        weights = Matrix(self.W.pointer, self.W.stride)
        for j, x in enumerate(self.times_E(v, 0)):
            self.store(x, weights, 0, j)
        sums = [
            self.binary("fadd", self.load(Matrix("%l", o.columns), 0, j), x)
            for j, x in enumerate(self.times_P(v, 0))
        ]
        self.sums(
            o.half, [sums], lambda r, k: self.emit_at(weights, Row(0), k), self.F, self.H, Row(o.n)
        )
        self.g_u = [self.get(self.H, o.n, o.control(i)) for i in range(o.m)]
        for i, x in enumerate(self.g_u):
            self.put(x, self.U, i, o.gradient)

    def regularize_free(self) -> None:
        """S = EᵀF, so that ρ FᵀF of the controls' rows is ρ Gᵀ S."""
        o, G, S, nv = self.layout, self.F, self.T, self.layout.half
        columns = range(self.vectors)
        top = []  # rows of the base's position of F
        for i in range(o.base):
            row = [
                self.load(self.T_base, i, j) if j < self.base_part else self.zero for j in columns
            ]
            for k in range(o.base):
                factor = self.everywhere(self.S_base, i, k)
                row = [self.fma(factor, self.load(G, k, j), x) for j, x in enumerate(row)]
            top.append(row)
        rho = self.splat(self.rho)
        for i in range(o.base):
            row = [self.load(G, i, j) for j in columns]
            for k in range(o.base):
                factor = self.everywhere(self.S_base, k, i)
                row = [self.fma(factor, x, y) for x, y in zip(top[k], row, strict=True)]
            for j, x in enumerate(row):
                self.store(self.binary("fmul", rho, x), S, i, j)
        scale = self.splat(
            self.scalar_op("fmul", self.rho, self.scalar_fma(self.h, self.h, self.number(1.0)))
        )
        by_h = self.scalar_op("fmul", self.rho, self.h)
        for i in range(o.base, nv):
            for j in columns:
                self.store(self.binary("fmul", scale, self.load(G, i, j)), S, i, j)
            self.put(self.scalar_op("fadd", self.get(S, i, i), by_h), S, i, i)
        self.product(
            o.m,
            nv,
            self.vectors,
            self.transposed(G, o.control(0)),
            S,
            self.onto(self.U),
            self.into(self.R),
        )

    def free_cost_to_go(self) -> None:
        """V = H_xx + H_xu K, on and below the diagonal."""
        self.lower(
            self.layout.n,
            self.layout.m,
            self.U,
            0,
            self.K,
            lambda i, j: self.load(self.H, i, j),
            self.V,
        )
