"""Small dense matrices as LLVM IR: fixed sizes, rows of whole vectors, columns in SIMD lanes.

A product is written as sums of rows, out[i] += a(i, k) · b[k], with a(i, k) a number from anywhere
in memory: transposing a costs nothing. A few rows at a time stay in registers. Small products are
unrolled; large ones loop over their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rigidgrad.targets.llvm import Lanes

_UNROLLED = 2500  # multiply-adds of a product that is written without a loop


@dataclass(frozen=True)
class Row:
    """The number of a row: known when the code is written, or that plus what a loop counts."""

    offset: int
    counted: str | None = None

    def __add__(self, more: int) -> Row:
        return Row(self.offset + more, self.counted)


@dataclass(frozen=True)
class Matrix:
    """Rows in memory from `pointer` on, `stride` numbers apart."""

    pointer: str
    stride: int


class MatrixCode(Lanes):
    """Lines of IR about matrices."""

    registers: int = 16  # vector registers of the CPU
    _labels: int = 0

    # --- types ------------------------------------------------------------------------------------

    @property
    def scalar_suffix(self) -> str:
        return "f64" if self.dtype == "float64" else "f32"

    def double_at(self, pointer: str, k: int) -> str:
        return self.emit(f"getelementptr double, ptr {pointer}, i64 {k}")

    def unique(self, name: str) -> str:
        self._labels += 1
        return f"{name}{self._labels}"

    # --- memory -----------------------------------------------------------------------------------

    def at(self, m: Matrix, row: Row | int, column: int = 0) -> str:
        """The address of a number."""
        r = row if isinstance(row, Row) else Row(row)
        place = self.emit(
            f"getelementptr {self.scalar}, ptr {m.pointer}, i64 {r.offset * m.stride + column}"
        )
        if r.counted is None:
            return place
        moved = self.emit(f"mul i64 {r.counted}, {m.stride}")
        return self.emit(f"getelementptr {self.scalar}, ptr {place}, i64 {moved}")

    def get(self, m: Matrix, row: Row | int, column: int) -> str:
        return self.emit(f"load {self.scalar}, ptr {self.at(m, row, column)}, align {self.bytes}")

    def put(self, value: str, m: Matrix, row: Row | int, column: int) -> None:
        self.do(f"store {self.scalar} {value}, ptr {self.at(m, row, column)}, align {self.bytes}")

    def load(self, m: Matrix, row: Row | int, vector: int) -> str:
        return self.emit(
            f"load {self.vector}, ptr {self.at(m, row, vector * self.width)}, align {self.bytes}"
        )

    def store(self, value: str, m: Matrix, row: Row | int, vector: int) -> None:
        self.do(
            f"store {self.vector} {value}, ptr {self.at(m, row, vector * self.width)}, align"
            f" {self.bytes}"
        )

    def everywhere(self, m: Matrix, row: Row | int, column: int) -> str:
        """One number of memory in all lanes."""
        return self.splat(self.get(m, row, column))

    # --- lanes ------------------------------------------------------------------------------------

    def lane(self, vector: str, k: int) -> str:
        return (
            vector
            if self.width == 1
            else self.emit(f"extractelement {self.vector} {vector}, i64 {k}")
        )

    def with_lane(self, vector: str, k: int, value: str) -> str:
        return (
            value
            if self.width == 1
            else self.emit(f"insertelement {self.vector} {vector}, {self.scalar} {value}, i64 {k}")
        )

    def spread(self, vector: str, k: int) -> str:
        """Lane k in all lanes."""
        if self.width == 1:
            return vector
        mask = ", ".join([f"i32 {k}"] * self.width)
        return self.emit(
            f"shufflevector {self.vector} {vector}, {self.vector} poison, <{self.width} x i32>"
            f" <{mask}>"
        )

    @property
    def zero(self) -> str:
        return "zeroinitializer" if self.width > 1 else self.number(0.0)

    def scalar_op(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} {self.scalar} {a}, {b}")

    def scalar_fma(self, a: str, b: str, c: str) -> str:
        s = self.scalar
        return self.emit(f"call {s} @llvm.fma.{self.scalar_suffix}({s} {a}, {s} {b}, {s} {c})")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.emit(f"select i1 {condition}, {self.scalar} {a}, {self.scalar} {b}")

    def compared(self, predicate: str, a: str, b: str) -> str:
        return self.emit(f"fcmp {predicate} {self.scalar} {a}, {b}")

    def logical(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} i1 {a}, {b}")

    # --- control flow -----------------------------------------------------------------------------

    @contextmanager
    def loop(self, count: int) -> Iterator[str]:
        """The lines inside are run `count` times; gives the counter."""
        name = self.unique("loop")
        counter, more = f"%{name}.i", f"%{name}.next"
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"{counter} = phi i64 [ 0, %{name}.before ], [ {more}, %{name}.last ]")
        yield counter
        self.do(f"br label %{name}.last")
        self.label(f"{name}.last")
        self.do(f"{more} = add i64 {counter}, 1")
        left = self.emit(f"icmp slt i64 {more}, {count}")
        self.do(f"br i1 {left}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        name = self.unique("when")
        self.do(f"br i1 {condition}, label %{name}, label %{name}.done")
        self.label(name)
        yield
        self.do(f"br label %{name}.done")
        self.label(f"{name}.done")

    # --- whole matrices ---------------------------------------------------------------------------

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
        return (
            place
            if i.counted is None
            else self.emit(f"getelementptr {self.scalar}, ptr {place}, i64 {i.counted}")
        )

    def copy(self, source: Matrix, target: Matrix, rows: int, vectors: int) -> None:
        with self.loop(rows) as row:
            for j in range(vectors):
                self.store(self.load(source, Row(0, row), j), target, Row(0, row), j)

    def product(
        self,
        rows: int,
        inner: int,
        vectors: int,
        a: Callable[[Row, int], str],
        b: Matrix,
        begin: Callable[[Row, int], str],
        finish: Callable[[Row, int, str], None],
        unrolled: bool = False,
    ) -> None:
        """finish(i, j, begin(i, j) + Σ_k a(i, k) · b[k, j]) for all rows i and vectors j; `a` gives
        a number's address.

        `unrolled` keeps row numbers known where the callbacks need them.
        """
        if not rows:
            return
        block = min(rows, max(1, (self.registers - 6) // vectors))

        def some(start: Row, count: int) -> None:
            columns = range(vectors)
            sums = [[begin(start + r, j) for j in columns] for r in range(count)]
            for k in range(inner):
                terms = [self.load(b, k, j) for j in columns]
                for r in range(count):
                    factor = self.splat(
                        self.emit(f"load {self.scalar}, ptr {a(start + r, k)}, align {self.bytes}")
                    )
                    sums[r] = [self.fma(factor, t, s) for t, s in zip(terms, sums[r], strict=True)]
            for r in range(count):
                for j, s in zip(columns, sums[r], strict=True):
                    finish(start + r, j, s)

        whole = rows // block
        if whole == 1 or unrolled or rows * inner * vectors <= _UNROLLED:
            for i in range(whole):
                some(Row(i * block), block)
        else:
            with self.loop(whole) as counter:
                moved = self.emit(f"mul i64 {counter}, {block}")
                some(Row(0, moved), block)
        if rows % block:
            some(Row(whole * block), rows % block)
