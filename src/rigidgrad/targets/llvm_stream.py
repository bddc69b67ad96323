"""Results larger than the caches, as LLVM IR: rows go to memory past the caches, while the rows after them are computed.

The kernel transposes results in registers into a buffer of W rows, and moves each line of the W rows before out of it in time, spread evenly over its
arithmetic. The buffer lies in its lines as the rows do in the output's, so that whole lines are moved. A line that two blocks share waits in the buffer for its second
part. Only the first and the last line of all, which may hold numbers that are not ours, are written number by number, into the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rigidgrad.targets.llvm_direct import Windows
from rigidgrad.targets.llvm_rows import Walk

if TYPE_CHECKING:
    from rigidgrad.program.program import Program
    from rigidgrad.targets.llvm import Lanes, OutputLayout

_LINE, _PAGE = 64, 4096  # bytes of a cache line, and of a page
_PAST_CACHES = "!nontemporal !0"


def fits(size: int, bytes: int, width: int) -> bool:
    """Whether W rows of `size` numbers are several whole lines, as all outputs of a streaming kernel must be."""
    length = size * bytes * width
    return length > _LINE and length % _LINE == 0


@dataclass(frozen=True)
class _Block:
    """The part of the buffer for W rows of an output."""

    output: int
    layout: OutputLayout
    bytes: int  # of a number
    width: int
    mask: int  # where the line is that tells which numbers of the first one belong to the block before

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return len(self.layout.columns)

    @property
    def length(self) -> int:
        """Bytes of W rows."""
        return self.size * self.width * self.bytes

    @property
    def vector(self) -> str:
        """The type of a line."""
        return f"<{_LINE // self.bytes} x {'double' if self.bytes == 8 else 'float'}>"

    @property
    def lines(self) -> int:
        return self.length // _LINE

    @property
    def start(self) -> int:
        return self.mask + _LINE

    @property
    def end(self) -> int:
        return self.start + self.length + _LINE

    @property
    def window(self) -> int:
        """Columns that are transposed together, a power of two."""
        fits = min(self.width, 1 << (self.size.bit_length() - 1))
        return min(fits, 4) if self.layout.sparse else fits

    def windows(self) -> list[int]:
        """First columns of windows that cover all but structural zeros."""
        starts, covered = [], 0
        for j, column in enumerate(self.layout.columns):
            if column is not None and j >= covered:
                starts.append(min(j, self.size - self.window))
                covered = starts[-1] + self.window
        return starts

    def touched(self, first: int) -> set[int]:
        """Lines that a window's numbers may lie in, wherever in a line the rows begin. What is left over after the last one counts as the first, to which it is carried."""
        lines: set[int] = set()
        for row in range(self.width):
            begin = (row * self.size + first) * self.bytes
            lines.update(range(begin // _LINE, (begin + self.window * self.bytes + _LINE - self.bytes - 1) // _LINE + 1))
        return {n % self.lines for n in lines}

    def straddles(self, place: int) -> bool:
        """Whether a window's numbers in one row, from `place` on, may lie in two pages; storing them at once would then wait for all stores before it."""
        begin = self.start + place * self.bytes
        return begin // _PAGE != (begin + self.window * self.bytes + _LINE - self.bytes - 1) // _PAGE


def _blocks(bytes: int, width: int, outputs: Sequence[OutputLayout]) -> list[_Block]:
    blocks: list[_Block] = []
    for k, layout in enumerate(outputs):
        blocks.append(_Block(k, layout, bytes, width, blocks[-1].end if blocks else 0))
    return blocks


class Rows(Windows):
    """Where a kernel's results go: rows of the buffer. Lines of the block before go from %s to %p0, %p1, …"""

    def __init__(self, lanes: Lanes, program: Program, outputs: list[OutputLayout]):
        self.blocks = _blocks(lanes.bytes, lanes.width, outputs)
        super().__init__(lanes, outputs)
        self.parameters = ["ptr %s", *(f"ptr %{name}{k}" for name in "opq" for k in range(len(outputs)))]
        deadline: dict[tuple[int, int], int] = {}  # (output, line) -> the node after which it is overwritten
        for block in self.blocks:
            for j in block.windows():
                results = [program.results[k] for k in block.layout.columns[j : j + block.window] if k is not None]
                complete = max(-1 if isinstance(r, float) else r[1] for r in results)
                for line in block.touched(j):
                    deadline[block.output, line] = min(complete, deadline.get((block.output, line), complete))
        lines = [(b.output, n) for b in self.blocks for n in range(b.lines)]
        never = len(program.nodes)
        self.lines = sorted(lines, key=lambda x: (deadline.get(x, never), x))
        self.place = {line: n for n, line in enumerate(self.lines)}
        self.moved = 0

    def window(self, output: int) -> int:
        return self.blocks[output].window

    def starts(self, output: int) -> list[int]:
        return self.blocks[output].windows()

    def advance(self, done: int, work: int) -> None:
        self._move(len(self.lines) * done // work)

    def _move(self, until: int) -> None:
        while self.moved < until:
            output, n = self.lines[self.moved]
            block = self.blocks[output]
            x = self._line(block, n)
            target = self.lanes.emit(f"getelementptr i8, ptr %{'p' if n else 'q'}{output}, i64 {n * _LINE}")
            self.lanes.do(f"store {block.vector} {x}, ptr {target}, align {_LINE}, {_PAST_CACHES}")
            if n == 0:
                self._carry(block, x)
            self.moved += 1

    def _line(self, block: _Block, n: int) -> str:
        place = self.lanes.emit(f"getelementptr i8, ptr %s, i64 {block.start + n * _LINE}")
        return self.lanes.emit(f"load {block.vector}, ptr {place}, align {_LINE}")

    def _carry(self, block: _Block, first: str) -> None:
        """The numbers after the last whole line go to the front; what is behind them there belongs to the next block, with its zeros."""
        lanes, kind = self.lanes, f"<{_LINE // block.bytes} x {self.lanes.integer}>"
        mask = lanes.emit(f"load {kind}, ptr {lanes.emit(f'getelementptr i8, ptr %s, i64 {block.mask}')}, align {_LINE}")
        carried = lanes.emit(f"icmp slt {kind} {mask}, zeroinitializer")
        last = self._line(block, block.lines)
        x = lanes.emit(f"select <{_LINE // block.bytes} x i1> {carried}, {block.vector} {last}, {block.vector} {first}")
        lanes.do(f"store {block.vector} {x}, ptr {lanes.emit(f'getelementptr i8, ptr %s, i64 {block.start}')}, align {_LINE}")

    def write(self, output: int, first: int) -> None:
        """A window of all W rows, once what lies there has been moved."""
        self._move(max(self.place[output, n] + 1 for n in self.blocks[output].touched(first)))
        super().write(output, first)

    def put(self, kind: str, value: str, output: int, place: int) -> None:
        if not self.blocks[output].straddles(place):
            super().put(kind, value, output, place)
            return
        for c in range(self.window(output)):
            super().put(self.lanes.scalar, self.lanes.emit(f"extractelement {kind} {value}, i64 {c}"), output, place + c)


def rows(dtype: str, width: int, inputs: list[int], outputs: list[OutputLayout]) -> str:
    return _StreamWalk(dtype, width, inputs, outputs).lanes()


class _StreamWalk(Walk):
    """W rows at a time into outputs whose rows follow each other."""

    def buffers(self) -> None:
        self.input_buffers()
        self.blocks = _blocks(self.bytes, self.width, self.outputs)
        size = self.blocks[-1].end
        self.do(f"%buffer = alloca [{size} x i8], align {_PAGE}")
        self.zero("%buffer", f"<{_LINE // self.bytes} x {self.scalar_type}>", size // _LINE)
        for b in self.blocks:
            first = self.emit(f"ptrtoint ptr {self.rows_at(b, '%start')} to i64")
            self.do(f"%skew{b.output} = and i64 {first}, {_LINE - 1}")
            self.do(f"%base{b.output} = getelementptr i8, ptr %buffer, i64 {b.start}")
            self.do(f"%o{b.output} = getelementptr i8, ptr %base{b.output}, i64 %skew{b.output}")
            self.do(f"%skipped{b.output} = udiv i64 %skew{b.output}, {self.bytes}")
            mask = self.emit(f"getelementptr i8, ptr %buffer, i64 {b.mask}")
            for i in range(_LINE // self.bytes):
                before = self.emit(f"icmp ult i64 {i}, %skipped{b.output}")
                word = self.emit(f"sext i1 {before} to i{8 * self.bytes}")
                self.do(f"store i{8 * self.bytes} {word}, ptr {self.at(mask, i)}, align {self.bytes}")

    def rows_at(self, b: _Block, row: str) -> str:
        return self.at(f"%out{b.output}", self.emit(f"mul i64 {row}, {b.size}"))

    def lines_at(self, b: _Block, row: str) -> str:
        """The line in which the rows from `row` on begin."""
        return self.emit(f"getelementptr i8, ptr {self.rows_at(b, row)}, i64 {self.emit(f'sub i64 0, %skew{b.output}')}")

    def run_kernel(self, targets: list[str], first_targets: list[str]) -> None:
        inputs, outputs = (range(len(items)) for items in (self.inputs, self.outputs))
        pointers = [*(f"%ibuf{k}" for k in inputs), "%buffer", *(f"%o{k}" for k in outputs), *targets, *first_targets]
        self.do(f"call void @kernel(ptr %libm, {', '.join(f'ptr {x}' for x in pointers)})")

    def full_block(self) -> None:
        self.do(f"%before = sub i64 %b, {self.width}")
        second = self.emit("icmp eq i64 %before, %start")
        for b in self.blocks:
            self.when(second, partial(self.begin, b))
        # the kernel may move what is not to be moved onto itself
        none, not_all = self.emit("icmp slt i64 %before, %start"), self.emit("icmp sle i64 %before, %start")
        lines = [self.lines_at(b, "%before") for b in self.blocks]
        bases = [f"%base{b.output}" for b in self.blocks]
        self.run_kernel(
            [self.emit(f"select i1 {none}, ptr {x}, ptr {y}") for x, y in zip(bases, lines, strict=True)],
            [self.emit(f"select i1 {not_all}, ptr {x}, ptr {y}") for x, y in zip(bases, lines, strict=True)],
        )

    def begin(self, b: _Block) -> None:
        """The numbers in the very first line, which is not all ours."""
        own = self.emit(f"sub i64 {_LINE // self.bytes}, %skipped{b.output}")
        self.copy(f"%o{b.output}", self.rows_at(b, "%start"), own)

    def settle(self) -> None:
        """The last full block is still in the buffer."""
        self.do(f"%held = sub i64 %t, {self.width}")
        some, only = self.emit("icmp sge i64 %held, %start"), self.emit("icmp eq i64 %held, %start")
        self.do(f"%whole = zext i1 {only} to i64")  # the first line that is all ours
        for b in self.blocks:
            self.when(only, partial(self.begin, b))
            self.when(some, partial(self.move_out, b))

    def move_out(self, b: _Block) -> None:
        target = self.lines_at(b, "%held")

        def move(i: str) -> None:
            place = self.emit(f"mul i64 {self.emit(f'add i64 {i}, %whole')}, {_LINE}")
            source, there = (self.emit(f"getelementptr i8, ptr {x}, i64 {place}") for x in (f"%base{b.output}", target))
            x = self.emit(f"load {b.vector}, ptr {source}, align {_LINE}")
            self.do(f"store {b.vector} {x}, ptr {there}, align {_LINE}, {_PAST_CACHES}")

        self.loop(self.emit(f"sub i64 {b.lines}, %whole"), move, "move")
        source, there = (self.emit(f"getelementptr i8, ptr {x}, i64 {b.length}") for x in (f"%base{b.output}", target))
        self.when(self.emit(f"icmp ne i64 %skew{b.output}, 0"), lambda: self.copy(source, there, f"%skipped{b.output}"))

    def partial_block(self) -> None:
        self.read_partial()
        bases = [f"%base{b.output}" for b in self.blocks]
        self.run_kernel(bases, bases)
        for b in self.blocks:
            self.copy(f"%o{b.output}", self.rows_at(b, "%t"), self.emit(f"mul i64 %rest, {b.size}"))

    def leave(self) -> None:
        self.do("fence seq_cst")  # streamed stores are weakly ordered

    def function(self) -> str:
        return super().function() + "\n!0 = !{i32 1}"
