"""Streamed results of long code, as LLVM IR: loops that write whole cache lines, called now and
then while the next rows are computed.

The same work as in `llvm_stream`, but not written out: code that is longer than the cache of
instructions is bound by how fast these come, and a loop's come from the cache. Every row gives one
line in each round, in one piece or in a few that follow each other. Rows may begin at different
places in their lines: then a line has the last numbers of the round before and the first ones of
this one. What is before a row's first whole line and after its last is written through the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rigidgrad.targets.llvm_rows import transpose

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes, OutputLayout

_LINE = 64  # bytes of a cache line
# of a call: many enough that its registers are saved seldom, few enough that their lines do not
# wait for memory
_ROUNDS = 8
_PAST_CACHES = "!nontemporal !0"


class RowLoops:
    """The W rows of an output, by a function `name(source, target, first, last)` of rounds, and one
    of their ends.
    """

    def __init__(self, output: int, layout: OutputLayout, skew: int, bytes: int, width: int):
        self.output, self.layout, self.bytes, self.width = output, layout, bytes, width
        self.size = len(layout.columns)
        self.line = _LINE // bytes  # numbers of a line
        self.piece = min(width, self.line)  # numbers written at once
        # the column with which the first row's first whole line begins
        self.first = -skew % _LINE // bytes
        self.rounds = (self.size - self.first) // self.line - 1
        # numbers of a row's line that come before the column at which the first row's begins
        self.before = [lane * self.size % self.line for lane in range(width)]

    @staticmethod
    def fits(size: int, bytes: int) -> bool:
        """Whether a row has enough lines."""
        return size * bytes >= 4 * _LINE

    def steps(self, lanes: Lanes) -> list[Callable[[], None]]:
        def call(name: str, bounds: str) -> Callable[[], None]:
            return lambda: lanes.do(
                f"call void @{name}{self.output}(ptr %s{self.output}, ptr %p{self.output}{bounds})"
            )

        rounds = range(1, self.rounds + 1, _ROUNDS)
        calls = [
            call("stream", f", i64 {i}, i64 {min(i + _ROUNDS, self.rounds + 1)}") for i in rounds
        ]
        return [*calls, call("stream_ends", "")]

    # --- functions --------------------------------------------------------------------------------

    def functions(self, lanes: Lanes) -> str:
        return "\n".join(
            [
                self._table(),
                self._lines(lanes.another(f"stream{self.output}")),
                self._ends(lanes.another(f"stream_ends{self.output}")),
            ]
        )

    def _table(self) -> str:
        slots = ", ".join(f"i32 {slot * self.width}" for slot in self.layout.slots)
        return (
            f"@stream_slots{self.output} = internal constant [{self.size} x i32] [{slots}]"
            if self.layout.gathered
            else ""
        )

    def _lines(self, b: Lanes) -> str:
        b.label("entry")
        b.do("%begin = sub i64 %first, 1")
        seamed = [lane for lane in range(self.width) if self.before[lane]]
        ahead = self._transposed(b, self._column(b, "%begin"), seamed)
        b.do("br label %round")
        b.label("round")
        b.do("%i = phi i64 [ %first, %entry ], [ %next, %round ]")
        kind = f"<{self.piece} x {b.scalar}>"
        last = {
            (lane, m): b.emit(f"phi {kind} [ {x}, %entry ], [ %kept{lane}x{m}, %round ]")
            for lane in seamed
            for m, x in enumerate(ahead[lane])
        }
        column = self._column(b, "%i")
        now = self._transposed(b, column, range(self.width))
        for lane in range(self.width):
            back = self.before[lane]
            sources = (
                [last[lane, m] for m in range(len(now[lane]))] + now[lane] if back else now[lane]
            )
            start = (
                self.line if back else 0
            ) - back  # where the line begins in the numbers of `sources`
            place = b.emit(f"add i64 {column}, {lane * self.size - back}")
            for m in range(self.line // self.piece):
                value = self._window(b, sources, start + m * self.piece)
                there = b.emit(
                    f"getelementptr {b.scalar}, ptr %target, i64"
                    f" {b.emit(f'add i64 {place}, {m * self.piece}')}"
                )
                b.do(
                    f"store {kind} {value}, ptr {there}, align {self.piece * self.bytes},"
                    f" {_PAST_CACHES}"
                )
        for lane in seamed:
            for m, x in enumerate(now[lane]):
                b.do(f"%kept{lane}x{m} = bitcast {kind} {x} to {kind}")
        b.do("%next = add i64 %i, 1")
        b.do(f"br i1 {b.emit('icmp slt i64 %next, %last')}, label %round, label %done")
        b.label("done")
        return self._function(b, ", i64 %first, i64 %last")

    def _ends(self, b: Lanes) -> str:
        b.label("entry")
        kind = f"<{self.piece} x {b.scalar}>"
        for column in sorted({0, self.line, self.size - 2 * self.line, self.size - self.line}):
            found = self._transposed(b, str(column), range(self.width))
            for lane in range(self.width):
                for m, x in enumerate(found[lane]):
                    place = b.emit(
                        f"getelementptr {b.scalar}, ptr %target, i64"
                        f" {lane * self.size + column + m * self.piece}"
                    )
                    b.do(f"store {kind} {x}, ptr {place}, align {self.bytes}")
        return self._function(b, "")

    def _function(self, b: Lanes, bounds: str) -> str:
        body = "\n".join(b.lines)
        return (
            f"define internal void @{b.name}(ptr noalias %source, ptr noalias %target{bounds})"
            f" nounwind noinline {{\n{body}\n  ret void\n}}\n"
        )

    def _column(self, b: Lanes, i: str) -> str:
        """The column of a round's first number."""
        return b.emit(f"add i64 {b.emit(f'mul i64 {i}, {self.line}')}, {self.first}")

    def _transposed(self, b: Lanes, column: str, lanes: Sequence[int]) -> dict[int, list[str]]:
        """A line's worth of numbers from a column on, of some lanes: in pieces."""
        found: dict[int, list[str]] = {lane: [] for lane in lanes}
        kind = f"<{self.piece} x {b.scalar}>"
        for group in range(0, self.width, self.piece):
            several = range(group, group + self.piece)
            if not any(lane in found for lane in several):
                continue
            for m in range(0, self.line, self.piece):
                loaded = []
                for c in range(m, m + self.piece):
                    number = self._number(b, b.emit(f"add i64 {column}, {c}"))
                    place = b.emit(
                        f"getelementptr {b.scalar}, ptr %source, i64"
                        f" {b.emit(f'add i64 {number}, {group}')}"
                    )
                    loaded.append(
                        b.emit(f"load {kind}, ptr {place}, align {self.piece * self.bytes}")
                    )
                for lane, x in zip(
                    several, transpose(b.emit, b.scalar, loaded, self.piece), strict=True
                ):
                    if lane in found:
                        found[lane].append(x)
        return found

    def _number(self, b: Lanes, column: str) -> str:
        """Where in the lane buffer a column's numbers begin."""
        if not self.layout.gathered:
            return b.emit(f"mul i64 {column}, {self.width}")
        place = b.emit(f"getelementptr i32, ptr @stream_slots{self.output}, i64 {column}")
        return b.emit(f"sext i32 {b.emit(f'load i32, ptr {place}')} to i64")

    def _window(self, b: Lanes, sources: list[str], start: int) -> str:
        """A piece of the numbers of several, which follow each other."""
        first, shift = divmod(start, self.piece)
        if shift == 0:
            return sources[first]
        kind = f"<{self.piece} x {b.scalar}>"
        mask = ", ".join(f"i32 {shift + c}" for c in range(self.piece))
        return b.emit(
            f"shufflevector {kind} {sources[first]}, {kind} {sources[first + 1]}, <{self.piece} x"
            f" i32> <{mask}>"
        )
