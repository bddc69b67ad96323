"""Results larger than the caches, as LLVM IR: rows go to memory past the caches, while the rows
after them are computed.

The kernel leaves results in lanes, in one of two buffers. Meanwhile it transposes those of the W
rows before, in the other buffer, into whole cache lines and writes them, from their first column to
their last and spread evenly over its arithmetic. Which numbers share a line depends on where in one
the output begins, which is therefore part of the code; a line of nothing but structural zeros costs
no more than its stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rigidgrad.targets.llvm_rows import Walk, transpose
from rigidgrad.targets.llvm_stream_loops import RowLoops

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes, OutputLayout

LINE = 64  # bytes of a cache line
_STORE = 32  # bytes written at once, where they are aligned
_WINDOW = 16  # bytes to which all rows are aligned
_EACH = LINE // _WINDOW  # windows of a line
PAST_CACHES = "!nontemporal !0"
LOOPS_FROM = 25_000  # operations of a kernel from which on lines are written by loops


def fits(size: int, bytes: int, width: int) -> bool:
    """Whether rows of `size` numbers can be streamed W at a time."""
    return width * bytes >= _WINDOW and size * bytes % _WINDOW == 0 and size * bytes >= 2 * LINE


def skews(addresses: Sequence[int]) -> tuple[int, ...] | None:
    """Bytes of a line before the first number of each output, if they can be streamed to."""
    found = tuple(address % LINE for address in addresses)
    return None if any(skew % _WINDOW for skew in found) else found


def steps(
    lanes: Lanes, outputs: list[OutputLayout], skews: Sequence[int], work: int
) -> list[Callable[[], None]]:
    """What a kernel of some `work` does meanwhile: results in lanes from %s0, %s1, … on become rows
    from %p0, %p1, … on.
    """
    loops = _loops(lanes, outputs, skews, work)
    return [
        step
        for output, layout in enumerate(outputs)
        for step in (
            loops[output].steps(lanes)
            if output in loops
            else _Rows(lanes, output, layout, skews[output]).steps()
        )
    ]


def functions(lanes: Lanes, outputs: list[OutputLayout], skews: Sequence[int], work: int) -> str:
    """What the steps call."""
    return "\n".join(
        loops.functions(lanes) for loops in _loops(lanes, outputs, skews, work).values()
    )


def _loops(
    lanes: Lanes, outputs: list[OutputLayout], skews: Sequence[int], work: int
) -> dict[int, RowLoops]:
    """The outputs whose rows are written by loops."""
    sizes = [len(layout.columns) for layout in outputs]
    return {
        k: RowLoops(k, layout, skew, lanes.bytes, lanes.width)
        for k, (layout, skew) in enumerate(zip(outputs, skews, strict=True))
        if work >= LOOPS_FROM and RowLoops.fits(sizes[k], lanes.bytes)
    }


class _Rows:
    """The W rows of an output, as windows of columns that take 16 bytes of a row. Lines begin at
    different windows of different rows.
    """

    def __init__(self, lanes: Lanes, output: int, layout: OutputLayout, skew: int):
        self.lanes, self.output, self.layout = lanes, output, layout
        # lanes that are transposed at a time
        self.together = min(lanes.width, _STORE // lanes.bytes)
        self.columns = _WINDOW // lanes.bytes  # of a window
        self.size = len(layout.columns)
        self.windows = self.size // self.columns
        self.found: dict[
            int, list[str]
        ] = {}  # windows of the lanes at hand, transposed: the first ones and the last
        self.before: dict[int, list[str]] = {}  # those of the lanes before
        phases = [(skew + lane * self.size * lanes.bytes) % LINE for lane in range(lanes.width)]
        # the window with which the first whole line of each row begins
        self.begins = [(-phase % LINE) // _WINDOW for phase in phases]

    def steps(self) -> Iterator[Callable[[], None]]:
        for first in range(0, self.lanes.width, self.together):
            several = range(first, first + self.together)
            begin = 0
            for end in range(1, self.windows + 1):
                complete = [
                    lane
                    for lane in several
                    if end - _EACH >= self.begins[lane] and (end - self.begins[lane]) % _EACH == 0
                ]
                if complete or end == self.windows:
                    yield partial(self.write, several, range(begin, end), complete)
                    begin = end
            yield from (partial(self.write_seam, several, lane) for lane in several)

    def write(self, several: range, windows: range, complete: list[int]) -> None:
        """The lines of some lanes that are complete with these windows."""
        if windows.start == 0:
            self.before, self.found = self.found, {}
        self.found |= {w: self.transposed(several.start, w) for w in windows}
        for lane in complete:
            self.store(lane, range(windows.stop - _EACH, windows.stop), self.found)
        # the first windows are needed once more, for seams
        self.found = {w: x for w, x in self.found.items() if w < _EACH or w > windows.stop - _EACH}

    def write_seam(self, several: range, lane: int) -> None:
        """The line that a row shares with the one before; the first and the last row's share one
        with rows of other blocks.
        """
        if lane > 0:
            self.store(
                lane - 1, self.ending(lane - 1), self.found if lane > several.start else self.before
            )
        self.store(lane, range(self.begins[lane]), self.found)
        if lane == self.lanes.width - 1:
            self.store(lane, self.ending(lane), self.found)

    def ending(self, lane: int) -> range:
        """Windows after a row's last whole line."""
        return range(self.windows - (self.windows - self.begins[lane]) % _EACH, self.windows)

    def transposed(self, first: int, window: int) -> list[str]:
        """A window's columns of several lanes from `first` on: 16 bytes of a few rows in each
        vector; nothing if all are zeros.
        """
        lanes, kind = self.lanes, f"<{self.together} x {self.lanes.scalar}>"
        columns = range(window * self.columns, (window + 1) * self.columns)
        if all(self.layout.columns[c] is None for c in columns):
            return []
        vectors = []
        for c in columns:
            if self.layout.columns[c] is None:
                vectors.append("zeroinitializer")
                continue
            number = self.layout.slots[c] * lanes.width + first
            place = lanes.emit(f"getelementptr {lanes.scalar}, ptr %s{self.output}, i64 {number}")
            vectors.append(
                lanes.emit(f"load {kind}, ptr {place}, align {lanes.bytes * self.together}")
            )
        return transpose(lanes.emit, lanes.scalar, vectors, self.together)

    def store(self, lane: int, windows: range, found: dict[int, list[str]]) -> None:
        """A row's numbers in neighbouring windows of one line."""
        place = list(windows)
        while place:
            aligned = (place[0] - self.begins[lane]) % 2 == 0 and len(place) > 1
            self.store_together(lane, place[: 1 + aligned], found)
            place = place[1 + aligned :]

    def store_together(self, lane: int, windows: list[int], found: dict[int, list[str]]) -> None:
        """One window, or two that are 32 aligned bytes."""
        lanes, n = self.lanes, self.columns
        kind, value = f"<{n * len(windows)} x {lanes.scalar}>", "zeroinitializer"
        if any(found[w] for w in windows):
            part, which = divmod(lane % self.together, n)
            whole = f"<{self.together} x {lanes.scalar}>"
            pair = [found[w][which] if found[w] else "zeroinitializer" for w in windows]
            mask = [k * self.together + part * n + c for k in range(len(windows)) for c in range(n)]
            text = ", ".join(f"i32 {k}" for k in mask)
            value = lanes.emit(
                f"shufflevector {whole} {pair[0]}, {whole} {pair[-1]}, <{len(mask)} x i32> <{text}>"
            )
        number = lane * self.size + windows[0] * n
        place = lanes.emit(f"getelementptr {lanes.scalar}, ptr %p{self.output}, i64 {number}")
        lanes.do(
            f"store {kind} {value}, ptr {place}, align {_WINDOW * len(windows)}, {PAST_CACHES}"
        )


class StreamWalk(Walk):
    """W rows at a time into outputs whose rows follow each other; a block's results are written
    while the next one's are computed.
    """

    halves = 2

    def spare_sizes(self) -> dict[str, int]:
        return {
            f"room{k}": len(o.columns) * self.width * self.bytes + LINE
            for k, o in enumerate(self.outputs)
        }

    def spare(self, k: int) -> None:
        """As aligned as the output."""
        begin = self.emit(f"and i64 {self.emit(f'ptrtoint ptr %out{k} to i64')}, {LINE - 1}")
        self.do(f"%spare{k} = getelementptr i8, ptr %room{k}, i64 {begin}")

    def results(self, k: int, half: str) -> str:
        """The half of a buffer of results, 0 or 1."""
        return self.emit(
            f"getelementptr [{self.slots(k)} x {self.vector}], ptr %obuf{k}, i64 {half}"
        )

    def run_kernel(self, half: str, targets: list[str]) -> None:
        each, other = range(len(self.outputs)), self.emit(f"sub i64 1, {half}")
        pointers = [f"%ibuf{k}" for k in range(len(self.inputs))]
        pointers += (
            [self.results(k, half) for k in each] + [self.results(k, other) for k in each] + targets
        )
        self.call(pointers)

    def half(self, row: str) -> str:
        """Where the results of the block from `row` on are."""
        block = self.emit(f"sdiv i64 {self.emit(f'sub i64 {row}, %start')}, {self.width}")
        return self.emit(f"and i64 {block}, 1")

    def full_block(self) -> None:
        first = self.emit("icmp eq i64 %b, %start")
        before = self.emit(f"sub i64 %b, {self.width}")
        targets = []
        for k in range(len(self.outputs)):
            there = self.at(f"%out{k}", self.emit(f"mul i64 {before}, %os{k}"))
            targets.append(self.emit(f"select i1 {first}, ptr %spare{k}, ptr {there}"))
        self.run_kernel(self.half("%b"), targets)

    def settle(self) -> None:
        """The last block is still in its buffer."""

        def write() -> None:
            row = self.emit(f"sub i64 %t, {self.width}")
            half = self.half(row)
            for k, layout in enumerate(self.outputs):
                if layout.sparse:
                    for target in self.lane_rows("o", k, row):
                        self.fill_zeros(target, len(layout.columns))
                self.write_block(k, layout, row, self.results(k, half))

        self.when(self.emit("icmp sgt i64 %t, %start"), write)

    def run_partial(self) -> None:
        self.run_kernel("0", [f"%spare{k}" for k in range(len(self.outputs))])

    def leave(self) -> None:
        self.do("fence seq_cst")  # streamed stores are weakly ordered

    def function(self) -> str:
        return super().function() + "\n!0 = !{i32 1}"
