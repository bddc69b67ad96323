"""The walk over users' arrays, as LLVM IR: W rows at a time, transposed in registers into and out
of lanes.

`rows(context, start, stop)` evaluates rows start to stop. The context is an array of 64-bit words:
for each input, then for each output, an address and a stride between rows in numbers (0 repeats one
row); then the addresses of `llvm_math.C_FUNCTIONS` and of `MEMORY`. Nothing outside the rows named
is read or written: the last, partial block goes through the lane buffers number by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rigidgrad.targets.llvm_math import C_FUNCTIONS

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import OutputLayout

_LINE = 64  # bytes of a cache line
# functions of Python that need no GIL; called by address, as those of the C library are
MEMORY = ("PyMem_RawMalloc", "PyMem_RawFree", "Py_FatalError")
# bytes of lane buffers above which they are on the heap: a thread's stack may be as small as a
# megabyte
_MOST_STACK = 256 * 1024
_NO_MEMORY = "rigidgrad: no memory for the lane buffers of a compiled function"


def transpose(emit: Callable[[str], str], scalar: str, vectors: list[str], w: int) -> list[str]:
    """Vectors of w numbers, as many as they have or fewer: each square of them, by swapping blocks
    of half, a quarter, … of its width.
    """
    half, v, kind = len(vectors) // 2, list(vectors), f"<{w} x {scalar}>"

    def shuffle(a: str, b: str, mask: list[int]) -> str:
        return emit(
            f"shufflevector {kind} {a}, {kind} {b}, <{w} x i32>"
            f" <{', '.join(f'i32 {k}' for k in mask)}>"
        )

    while half:
        low = [w + k - half if k & half else k for k in range(w)]
        high = [w + k if k & half else k + half for k in range(w)]
        for i in range(len(v)):
            if not i & half:
                v[i], v[i + half] = (
                    shuffle(v[i], v[i + half], low),
                    shuffle(v[i], v[i + half], high),
                )
        half //= 2
    return v


def rows(dtype: str, width: int, inputs: list[int], outputs: list[OutputLayout]) -> str:
    walk = Walk(dtype, width, inputs, outputs)
    return walk.scalar() if width == 1 else walk.lanes()


class Walk:
    halves = 1  # blocks whose results are kept

    def __init__(
        self,
        dtype: str,
        width: int,
        inputs: list[int],
        outputs: Sequence[OutputLayout],
        scratch: int | None = None,
    ):
        """`scratch`: numbers of a state that the kernel keeps between its parts, if it has a
        parameter for them.
        """
        self.scratch = scratch
        self.scalar_type = "double" if dtype == "float64" else "float"
        self.bytes = 8 if dtype == "float64" else 4
        self.width = width
        self.vector = f"<{width} x {self.scalar_type}>"
        self.inputs, self.outputs = inputs, outputs
        self.lines: list[str] = []
        self.tables: list[str] = []
        self.count = 0
        self.heap = False  # whether lane buffers are there, and not on the stack

    # --- writing ----------------------------------------------------------------------------------

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %w{self.count} = {text}")
        return f"%w{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def at(self, base: str, index: str | int) -> str:
        return self.emit(f"getelementptr {self.scalar_type}, ptr {base}, i64 {index}")

    def load_context(self) -> None:
        """%in0, %is0, …: address and stride of each input; %out0, %os0, … of each output."""
        names = [("in", "is", k) for k in range(len(self.inputs))] + [
            ("out", "os", k) for k in range(len(self.outputs))
        ]
        for place, (address, stride, k) in enumerate(names):
            first = self.emit(f"getelementptr i64, ptr %context, i64 {2 * place}")
            self.do(f"%{address}{k} = load ptr, ptr {first}")
            second = self.emit(f"getelementptr i64, ptr %context, i64 {2 * place + 1}")
            self.do(f"%{stride}{k} = load i64, ptr {second}")
        self.do(f"%libm = getelementptr i64, ptr %context, i64 {2 * len(names)}")

    def loop(self, count: str | int, body: Callable[[str], None], name: str = "loop") -> None:
        """for index in 0 … count - 1 (at least once): body(index)."""
        head, done, before = (
            self.fresh(name),
            self.fresh(name + "_done"),
            self.fresh(name + "_before"),
        )
        self.do(f"br label %{before}")
        self.label(before)
        self.do(f"br label %{head}")
        self.label(head)
        index, following = f"%{head}_i", f"%{head}_n"
        self.do(f"{index} = phi i64 [ 0, %{before} ], [ {following}, %{head}_end ]")
        body(index)
        self.do(f"br label %{head}_end")
        self.label(f"{head}_end")
        self.do(f"{following} = add i64 {index}, 1")
        more = self.emit(f"icmp slt i64 {following}, {count}")
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        self.label(done)

    def when(self, condition: str, body: Callable[[], None]) -> None:
        """if condition: body()."""
        then, done = self.fresh("then"), self.fresh("else")
        self.do(f"br i1 {condition}, label %{then}, label %{done}")
        self.label(then)
        body()
        self.do(f"br label %{done}")
        self.label(done)

    def zero(self, address: str, kind: str, count: int) -> None:
        """Sets `count` values of a type to zero; a loop, as a call of memset would have to be
        linked.
        """

        def one(i: str) -> None:
            place = self.emit(f"getelementptr {kind}, ptr {address}, i64 {i}")
            self.do(
                f"store volatile {kind} {'0.0' if kind == self.scalar_type else 'zeroinitializer'},"
                f" ptr {place}, align {self.bytes}"
            )

        self.loop(count, one, "zero")

    def copy(self, source: str, target: str, count: str | int) -> None:
        """`count` numbers, at least one."""

        def one(i: str) -> None:
            x = self.emit(f"load {self.scalar_type}, ptr {self.at(source, i)}, align {self.bytes}")
            self.do(f"store {self.scalar_type} {x}, ptr {self.at(target, i)}, align {self.bytes}")

        self.loop(count, one, "copy")

    def function(self) -> str:
        text = (
            "define void @rows(ptr %context, i64 %start, i64 %stop) nounwind {\n"
            + "\n".join(self.lines)
            + "\n}\n"
        )
        return "\n".join([text, *self.tables])

    # --- one state at a time ----------------------------------------------------------------------

    def scalar(self) -> str:
        """The kernel reads and writes the user's rows themselves."""
        self.label("entry")
        self.load_context()
        # results that are no row yet
        apart = {k: o for k, o in enumerate(self.outputs) if o.gathered and not o.sparse}
        self.reserve(
            {f"obuf{k}": o.vectors * self.bytes for k, o in apart.items()} | self.scratch_sizes()
        )
        self.clear_scratch()
        for k, layout in apart.items():
            self.zero(f"%obuf{k}", self.scalar_type, layout.vectors)
        self.do("br label %begin")
        self.label("begin")
        any_rows = self.emit("icmp slt i64 %start, %stop")
        self.do(f"br i1 {any_rows}, label %row, label %end")
        self.label("row")
        self.do("%r = phi i64 [ %start, %begin ], [ %next, %row_end ]")
        pointers = []
        for kind, stride, items in (("in", "is", self.inputs), ("out", "os", self.outputs)):
            for k, _ in enumerate(items):
                pointers.append(self.at(f"%{kind}{k}", self.emit(f"mul i64 %r, %{stride}{k}")))
        rows = pointers[len(self.inputs) :]
        for k, layout in enumerate(self.outputs):
            if k in apart:
                pointers[len(self.inputs) + k] = f"%obuf{k}"
            elif None in layout.columns:
                self.zero(rows[k], self.scalar_type, len(layout.columns))
        self.call([*pointers, *pointers[len(self.inputs) :]])
        for k, layout in apart.items():
            if layout.columns:
                self.gather(k, layout, rows[k])
        self.do("br label %row_end")
        self.label("row_end")
        self.do("%next = add i64 %r, 1")
        more = self.emit("icmp slt i64 %next, %stop")
        self.do(f"br i1 {more}, label %row, label %end")
        self.label("end")
        self.do("ret void")
        return self.function()

    def gather(self, k: int, layout: OutputLayout, row: str) -> None:
        """Copies the columns of one state from their places in the buffer."""
        slots = self.table(f"slots{k}", layout.slots)

        def one(j: str) -> None:
            x = self.emit(
                f"load {self.scalar_type}, ptr {self.at(f'%obuf{k}', self.look_up(slots, j))},"
                f" align {self.bytes}"
            )
            self.do(f"store {self.scalar_type} {x}, ptr {self.at(row, j)}, align {self.bytes}")

        self.loop(len(layout.columns), one, "gather")

    def call(self, pointers: list[str]) -> None:
        """The kernel, with its scratch behind all other pointers."""
        pointers = [*pointers, "%work"] if self.scratch is not None else pointers
        self.do(f"call void @kernel(ptr %libm, {', '.join(f'ptr {x}' for x in pointers)})")

    def scratch_sizes(self) -> dict[str, int]:
        return {} if self.scratch is None else {"work": self.scratch * self.bytes * self.width}

    def clear_scratch(self) -> None:
        if self.scratch:
            self.zero("%work", self.scalar_type if self.width == 1 else self.vector, self.scratch)

    # --- W states at a time -----------------------------------------------------------------------

    def lanes(self) -> str:
        w = self.width
        self.label("entry")
        self.load_context()
        self.buffers()
        self.do(f"%last = sub i64 %stop, {w}")
        self.do("br label %begin")
        self.label("begin")
        full = self.emit("icmp sle i64 %start, %last")
        self.do(f"br i1 {full}, label %block, label %tail")
        self.label("block")
        self.do("%b = phi i64 [ %start, %begin ], [ %next, %block_end ]")
        for k, size in enumerate(self.inputs):
            self.read_block(k, size)
        self.full_block()
        self.do("br label %block_end")
        self.label("block_end")
        self.do(f"%next = add i64 %b, {w}")
        more = self.emit("icmp sle i64 %next, %last")
        self.do(f"br i1 {more}, label %block, label %tail")
        self.label("tail")
        self.do("%t = phi i64 [ %start, %begin ], [ %next, %block_end ]")
        self.settle()
        self.do("%rest = sub i64 %stop, %t")
        self.when(self.emit("icmp sgt i64 %rest, 0"), self.partial_block)
        self.leave()
        if self.heap:
            self.do(f"call void {self.memory_function('PyMem_RawFree')}(ptr %heap)")
        self.do("ret void")
        return self.function()

    def full_block(self) -> None:
        """The rows from %b on, their inputs being in lanes."""
        self.call_kernel([self.prepare(k, layout, "%b") for k, layout in enumerate(self.outputs)])
        for k, layout in enumerate(self.outputs):
            self.write_block(k, layout, "%b", f"%obuf{k}")

    def settle(self) -> None:
        """After the last full block, which ends before row %t."""

    def leave(self) -> None:
        """After all rows."""

    def buffers(self) -> None:
        """Lane buffers; structural zeros of outputs are set once and never touched by the
        kernel.
        """
        vector = self.bytes * self.width
        sizes = self.input_sizes()
        sizes |= {
            f"obuf{k}": self.halves * self.slots(k) * vector for k in range(len(self.outputs))
        }
        self.reserve(sizes | self.spare_sizes() | self.scratch_sizes())
        self.clear_scratch()
        self.steps("i", "is", len(self.inputs))
        self.steps("o", "os", len(self.outputs))
        for k, layout in enumerate(self.outputs):
            self.spare(k)
            if None in layout.columns:
                self.zero(f"%obuf{k}", self.vector, self.halves * self.slots(k))

    def reserve(self, sizes: dict[str, int]) -> None:
        """Buffers of some bytes, each from the start of a cache line on: on the stack or, where
        they are large, on the heap of this call.
        """
        rounded = {name: -(-max(size, 1) // _LINE) * _LINE for name, size in sizes.items()}
        self.heap = sum(rounded.values()) > _MOST_STACK
        if not self.heap:
            for name, size in rounded.items():
                self.do(f"%{name} = alloca [{size} x i8], align {_LINE}")
            return
        self.do(
            f"%heap = call ptr {self.memory_function('PyMem_RawMalloc')}(i64"
            f" {sum(rounded.values()) + _LINE})"
        )
        self.tables.append(
            f"@no_memory = private unnamed_addr constant [{len(_NO_MEMORY) + 1} x i8]"
            f' c"{_NO_MEMORY}\\00"'
        )

        def stop() -> None:
            """There is no way to report it, and numbers that were never computed must not be
            returned.
            """
            self.do(f"call void {self.memory_function('Py_FatalError')}(ptr @no_memory)")

        self.when(self.emit("icmp eq ptr %heap, null"), stop)
        begin = self.emit(f"and i64 {self.emit('ptrtoint ptr %heap to i64')}, {_LINE - 1}")
        place = self.emit(
            f"getelementptr i8, ptr %heap, i64 {self.emit(f'sub i64 {_LINE}, {begin}')}"
        )
        for name, size in rounded.items():
            self.do(f"%{name} = getelementptr i8, ptr {place}, i64 0")
            place = self.emit(f"getelementptr i8, ptr {place}, i64 {size}")

    def memory_function(self, name: str) -> str:
        place = self.emit(
            f"getelementptr ptr, ptr %libm, i64 {len(C_FUNCTIONS) + MEMORY.index(name)}"
        )
        return self.emit(f"load ptr, ptr {place}")

    def input_sizes(self) -> dict[str, int]:
        return {f"ibuf{k}": size * self.bytes * self.width for k, size in enumerate(self.inputs)}

    def spare_sizes(self) -> dict[str, int]:
        """%spare0, …: rows for what the kernel writes meanwhile and is not to be seen."""
        return {
            f"spare{k}": len(o.columns) * self.bytes * self.width
            for k, o in enumerate(self.outputs)
            if o.sparse
        }

    def spare(self, k: int) -> None:
        """Prepares the spare rows of an output."""

    def slots(self, k: int) -> int:
        """Vectors of a block's results."""
        return self.outputs[k].vectors

    def steps(self, kind: str, stride: str, count: int) -> None:
        """%i0x2, %i0x3, …: the distance of further lanes' rows from the first one's."""
        for k in range(count):
            for lane in range(2, self.width):
                self.do(f"%{kind}{k}x{lane} = mul i64 %{stride}{k}, {lane}")

    def call_kernel(self, ahead: list[str]) -> None:
        self.call(
            [f"%ibuf{k}" for k in range(len(self.inputs))]
            + [f"%obuf{k}" for k in range(len(self.outputs))]
            + ahead
        )

    def lane_rows(self, kind: str, k: int, first: str) -> list[str]:
        """The addresses of W consecutive rows, the first one being row `first`."""
        base, stride = ("in", "is") if kind == "i" else ("out", "os")
        row = self.at(f"%{base}{k}", self.emit(f"mul i64 {first}, %{stride}{k}"))
        steps = [None, f"%{stride}{k}"] + [f"%{kind}{k}x{lane}" for lane in range(2, self.width)]
        return [row if step is None else self.at(row, step) for step in steps]

    def starts(self, size: int, p: int) -> list[int]:
        """First columns of blocks of p that cover `size` ≥ p columns; the last may overlap the one
        before.
        """
        return [min(j, size - p) for j in range(0, size, p)]

    def block(self, size: int) -> int:
        """How many columns are transposed at a time: the width, or the largest power of two that
        fits into a row.
        """
        return min(self.width, 1 << (size.bit_length() - 1)) if size else 1

    def read_block(self, k: int, size: int) -> None:
        row = self.lane_rows("i", k, "%b")
        w, p = self.width, self.block(size)
        part = self.scalar_type if p == 1 else f"<{p} x {self.scalar_type}>"
        for j in self.starts(size, p):
            columns: list[list[str]] = [[] for _ in range(p)]  # each as W/p pieces of p lanes
            for group in range(0, w, p):
                loaded = [
                    self.emit(
                        f"load {part}, ptr {self.at(row[group + lane], j)}, align {self.bytes}"
                    )
                    for lane in range(p)
                ]
                for column, x in zip(
                    columns, transpose(self.emit, self.scalar_type, loaded, p), strict=True
                ):
                    column.append(x)
            for c, pieces in enumerate(columns):
                self.do(
                    f"store {self.vector} {self.joined(pieces, p)}, ptr"
                    f" {self.at(f'%ibuf{k}', (j + c) * w)}, align {self.bytes * w}"
                )

    def joined(self, pieces: list[str], p: int) -> str:
        """Pieces of p lanes side by side as one vector."""
        if p == 1:
            vector = "poison"
            for lane, x in enumerate(pieces):
                vector = self.emit(
                    f"insertelement {self.vector} {vector}, {self.scalar_type} {x}, i32 {lane}"
                )
            return vector
        while len(pieces) > 1:
            mask = ", ".join(f"i32 {n}" for n in range(2 * p))
            part = f"<{p} x {self.scalar_type}>"
            pairs = zip(pieces[::2], pieces[1::2], strict=True)
            pieces = [
                self.emit(f"shufflevector {part} {x}, {part} {y}, <{2 * p} x i32> <{mask}>")
                for x, y in pairs
            ]
            p *= 2
        return pieces[0]

    def write_block(self, k: int, layout: OutputLayout, first: str, source: str) -> None:
        """Transposed from lanes to rows: all columns in blocks of W, or zeros everywhere and then
        the few columns that are not structurally zero.
        """
        row = self.lane_rows("o", k, first)
        size, w = len(layout.columns), self.width
        if not size:
            return
        if not layout.gathered:
            self.write_columns(source, row, size)
            return
        # the zeros, if there are any, are there already
        p = min(self.block(size), 4)
        starts = self.windows(layout)
        places = [x for j in starts for x in (j, *(layout.slots[j + c] * w for c in range(p)))]
        table = self.table(f"windows{k}", places)

        def write(i: str) -> None:
            entry = self.emit(f"mul i64 {i}, {p + 1}")
            j, *columns = (
                self.look_up(table, self.emit(f"add i64 {entry}, {c}")) for c in range(p + 1)
            )
            self.write_window(source, row, j, columns, p)

        if starts:
            self.loop(len(starts), write)

    def table(self, name: str, numbers: list[int]) -> str:
        """A constant array; its name."""
        kind = f"[{len(numbers)} x i32]"
        self.tables.append(
            f"@{name} = private unnamed_addr constant {kind}"
            f" [{', '.join(f'i32 {x}' for x in numbers)}]"
        )
        return f"@{name}"

    def look_up(self, table: str, index: str) -> str:
        place = self.emit(f"getelementptr i32, ptr {table}, i64 {index}")
        return self.emit(f"sext i32 {self.emit(f'load i32, ptr {place}')} to i64")

    def prepare(self, k: int, layout: OutputLayout, first: str) -> str:
        """Where the kernel may write zeros, or fetch cache lines, for the W rows from `first` on:
        the address of their first whole vector.

        Rows that do not follow each other are zeroed here, and the kernel gets a buffer to spend
        its zeros on.
        """
        size, w, whole = len(layout.columns), self.width, self.width * self.bytes
        start = self.at(f"%out{k}", self.emit(f"mul i64 {first}, %os{k}"))
        if not layout.sparse:
            return start
        apart, together, ready = self.fresh("apart"), self.fresh("together"), self.fresh("ready")
        self.do(
            f"br i1 {self.emit(f'icmp eq i64 %os{k}, {size}')}, label %{together}, label %{apart}"
        )
        self.label(together)
        zero = f"store {self.vector} zeroinitializer, ptr"
        self.do(f"{zero} {start}, align {self.bytes}")
        self.do(f"{zero} {self.at(start, size * w - w)}, align {self.bytes}")
        place = self.emit(f"ptrtoint ptr {start} to i64")
        up = self.emit(f"and i64 {self.emit(f'add i64 {place}, {whole - 1}')}, {-whole}")
        aligned = self.emit(
            f"getelementptr i8, ptr {start}, i64 {self.emit(f'sub i64 {up}, {place}')}"
        )
        self.do(f"br label %{ready}")
        self.label(apart)
        for row in self.lane_rows("o", k, first):
            self.fill_zeros(row, size)
        self.do(f"br label %{apart}_end")
        self.label(f"{apart}_end")
        self.do(f"br label %{ready}")
        self.label(ready)
        return self.emit(f"phi ptr [ {aligned}, %{together} ], [ %spare{k}, %{apart}_end ]")

    def fill_zeros(self, row: str, size: int) -> None:
        w = self.width
        full, rest = divmod(size, w)

        def store(i: str) -> None:
            self.do(
                f"store {self.vector} zeroinitializer, ptr"
                f" {self.at(row, self.emit(f'mul i64 {i}, {w}'))}, align {self.bytes}"
            )

        self.loop(full, store, "fill")
        if rest:
            self.do(
                f"store {self.vector} zeroinitializer, ptr {self.at(row, size - w)}, align"
                f" {self.bytes}"
            )

    def windows(self, layout: OutputLayout) -> list[int]:
        """First columns of windows of up to four columns that cover all but structural zeros."""
        size = len(layout.columns)
        p, starts, covered = min(self.block(size), 4), [], 0
        for j, column in enumerate(layout.columns):
            if column is not None and j >= covered:
                starts.append(min(j, size - p))
                covered = j + p
        return starts

    def write_columns(self, source: str, row: list[str], size: int) -> None:
        """All columns of W rows, block by block."""
        w, p = self.width, self.block(size)
        starts = self.starts(size, p)

        def write(j: str) -> None:
            first = self.emit(f"mul i64 {j}, {w}")
            self.write_window(
                source,
                row,
                j,
                [first if c == 0 else self.emit(f"add i64 {first}, {c * w}") for c in range(p)],
                p,
            )

        even = len(starts) - (starts[-1] % p != 0)
        if even <= 4:
            for j in starts:
                write(str(j))
            return
        self.loop(even, lambda i: write(self.emit(f"mul i64 {i}, {p}")))
        if size % p == 1:
            self.write_column(source, row, size - 1)
            return
        for j in starts[even:]:
            write(str(j))

    def write_column(self, source: str, row: list[str], j: int) -> None:
        """One column of W rows, number by number."""
        column = self.emit(
            f"load {self.vector}, ptr {self.at(source, j * self.width)}, align"
            f" {self.bytes * self.width}"
        )
        for lane in range(self.width):
            x = self.emit(f"extractelement {self.vector} {column}, i64 {lane}")
            self.do(
                f"store {self.scalar_type} {x}, ptr {self.at(row[lane], j)}, align {self.bytes}"
            )

    def write_window(self, source: str, row: list[str], j: str, columns: list[str], p: int) -> None:
        """p columns of W rows, p by p; `columns` are their places in the lane buffer."""
        w, part = self.width, self.scalar_type if p == 1 else f"<{p} x {self.scalar_type}>"
        bases = [self.at(source, c) for c in columns]
        for group in range(0, w, p):
            loaded = [
                self.emit(f"load {part}, ptr {self.at(base, group)}, align {self.bytes * p}")
                for base in bases
            ]
            for lane, x in enumerate(transpose(self.emit, self.scalar_type, loaded, p)):
                self.do(
                    f"store {part} {x}, ptr {self.at(row[group + lane], j)}, align {self.bytes}"
                )

    def read_partial(self) -> None:
        """Fewer than W rows: lanes beyond the last row repeat it."""
        w, s = self.width, self.scalar_type
        self.do("%end_row = sub i64 %stop, 1")
        for k, size in enumerate(self.inputs):
            if not size:
                continue

            def read_lane(lane: str, k: int = k, size: int = size) -> None:
                r = self.emit(f"add i64 %t, {lane}")
                inside = self.emit(f"icmp slt i64 {r}, %stop")
                r = self.emit(f"select i1 {inside}, i64 {r}, i64 %end_row")
                row = self.at(f"%in{k}", self.emit(f"mul i64 {r}, %is{k}"))

                def read(j: str) -> None:
                    x = self.emit(f"load {s}, ptr {self.at(row, j)}, align {self.bytes}")
                    place = self.emit(f"add i64 {self.emit(f'mul i64 {j}, {w}')}, {lane}")
                    self.do(f"store {s} {x}, ptr {self.at(f'%ibuf{k}', place)}, align {self.bytes}")

                self.loop(size, read, "read")

            self.loop(w, read_lane, "lane")

    def run_partial(self) -> None:
        # what the kernel would write ahead goes into a buffer: rows beyond the last are not ours
        self.call_kernel(
            [
                f"%spare{k}" if layout.sparse else f"%obuf{k}"
                for k, layout in enumerate(self.outputs)
            ]
        )

    def partial_block(self) -> None:
        w, s = self.width, self.scalar_type
        self.read_partial()
        self.run_partial()
        for k, layout in enumerate(self.outputs):
            size = len(layout.columns)
            if not size:
                continue

            slots = self.table(f"slots{k}", layout.slots) if layout.gathered else None

            def write_lane(
                lane: str, k: int = k, size: int = size, slots: str | None = slots
            ) -> None:
                row = self.at(
                    f"%out{k}", self.emit(f"mul i64 {self.emit(f'add i64 %t, {lane}')}, %os{k}")
                )

                def write(j: str) -> None:
                    slot = self.look_up(slots, j) if slots else j
                    place = self.emit(f"add i64 {self.emit(f'mul i64 {slot}, {w}')}, {lane}")
                    x = self.emit(
                        f"load {s}, ptr {self.at(f'%obuf{k}', place)}, align {self.bytes}"
                    )
                    self.do(f"store {s} {x}, ptr {self.at(row, j)}, align {self.bytes}")

                self.loop(size, write, "write")

            self.loop("%rest", write_lane, "lane")
