"""Rows written by the kernel itself, as LLVM IR: results are transposed in registers as soon as
those of neighbouring columns are known.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rigidgrad.targets.llvm_rows import Walk, transpose

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes, OutputLayout


class Windows:
    """Where a kernel's results go: windows of neighbouring columns of W rows, each written when its
    last column is known; %o0, %o1, … are the first row's numbers of each output.
    """

    def __init__(self, lanes: Lanes, outputs: list[OutputLayout]):
        self.lanes, self.outputs = lanes, outputs
        self.align = lanes.bytes * lanes.width
        self.parameters = [f"ptr %o{k}" for k in range(len(outputs))]
        self._known: dict[tuple[int, int], str] = {}  # (output, column) -> its value
        self._waiting: dict[
            tuple[int, int], set[int]
        ] = {}  # (output, first column) of a window -> columns that it lacks
        self._windows_of: dict[tuple[int, int], list[int]] = {}  # (output, column) -> windows
        for output, layout in enumerate(outputs):
            for j in self.starts(output):
                columns = {
                    c for c in range(j, j + self.window(output)) if layout.columns[c] is not None
                }
                self._waiting[output, j] = columns
                for c in columns:
                    self._windows_of.setdefault((output, c), []).append(j)
                if not columns:
                    self.write(output, j)

    def window(self, output: int) -> int:
        """Columns that are transposed together, a power of two."""
        size = len(self.outputs[output].columns)
        return min(self.lanes.width, 1 << (size.bit_length() - 1)) if size else 1

    def starts(self, output: int) -> list[int]:
        """First columns of windows that cover all columns; the last may overlap the one before."""
        size, p = len(self.outputs[output].columns), self.window(output)
        return [min(j, size - p) for j in range(0, size, p)]

    def store(self, value: str, output: int, column: int) -> None:
        self._known[output, column] = value
        for j in self._windows_of[output, column]:
            self._waiting[output, j].discard(column)
            if not self._waiting[output, j]:
                self.write(output, j)

    in_place = False

    def end(self) -> None:
        """Called after the last operation."""

    def advance(self, done: int, work: int) -> None:
        """Called between operations, when `done` of all their `work` is done."""

    def write(self, output: int, first: int) -> None:
        """A window of all W rows."""
        lanes, p, size = self.lanes, self.window(output), len(self.outputs[output].columns)
        columns = [self._known.get((output, first + c), "zeroinitializer") for c in range(p)]
        for group in range(0, lanes.width, p):
            picked = columns
            if p < lanes.width:
                mask = ", ".join(f"i32 {lane}" for lane in range(group, group + p))
                picked = [
                    lanes.emit(
                        f"shufflevector {lanes.vector} {x}, {lanes.vector} poison, <{p} x i32>"
                        f" <{mask}>"
                    )
                    for x in columns
                ]
            for lane, x in enumerate(transpose(lanes.emit, lanes.scalar, picked, p)):
                at = lanes.emit(
                    f"getelementptr {lanes.scalar}, ptr %o{output}, i64"
                    f" {(group + lane) * size + first}"
                )
                lanes.do(f"store <{p} x {lanes.scalar}> {x}, ptr {at}, align {lanes.bytes}")


def rows(dtype: str, width: int, inputs: list[int], outputs: list[OutputLayout]) -> str:
    return _DirectWalk(dtype, width, inputs, outputs).lanes()


class _DirectWalk(Walk):
    """W rows at a time; those that do not follow each other, and fewer than W, are copied from a
    buffer.
    """

    def buffers(self) -> None:
        vector = self.bytes * self.width
        self.reserve(
            self.input_sizes()
            | {f"obuf{k}": len(layout.columns) * vector for k, layout in enumerate(self.outputs)}
        )
        self.steps("i", "is", len(self.inputs))

    def call_direct(self, targets: list[str]) -> None:
        self.call([*(f"%ibuf{k}" for k in range(len(self.inputs))), *targets])

    def full_block(self) -> None:
        targets, apart = [], []
        for k, layout in enumerate(self.outputs):
            start = self.at(f"%out{k}", self.emit(f"mul i64 %b, %os{k}"))
            apart.append(self.emit(f"icmp ne i64 %os{k}, {len(layout.columns)}"))
            targets.append(self.emit(f"select i1 {apart[k]}, ptr %obuf{k}, ptr {start}"))
        self.call_direct(targets)
        for k in range(len(self.outputs)):
            self.when(apart[k], partial(self.copy_rows, k, "%b", self.width))

    def partial_block(self) -> None:
        self.read_partial()
        self.call_direct([f"%obuf{k}" for k in range(len(self.outputs))])
        for k in range(len(self.outputs)):
            self.copy_rows(k, "%t", "%rest")

    def copy_rows(self, k: int, first: str, count: str | int) -> None:
        size = len(self.outputs[k].columns)

        def row(lane: str) -> None:
            target = self.at(
                f"%out{k}", self.emit(f"mul i64 {self.emit(f'add i64 {first}, {lane}')}, %os{k}")
            )
            self.copy(self.at(f"%obuf{k}", self.emit(f"mul i64 {lane}, {size}")), target, size)

        if size:
            self.loop(count, row, "lane")
