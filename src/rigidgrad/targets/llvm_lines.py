"""Streamed results of long code whose rows are whole cache lines, as LLVM IR: a line of each state
goes to memory as soon as its numbers are known, from registers and past the caches.

Sums of which only results are made, such as the products at the end of a gradient, are put off
until all else that their line needs is known. The numbers of a line are then at hand together, and
are transposed in registers. No buffer of results is needed, and writing overlaps with the
arithmetic between one line and the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rigidgrad.program.program import FUSED, LEAVES, Node, Program, operands
from rigidgrad.targets.llvm_rows import transpose
from rigidgrad.targets.llvm_stream import LINE, PAST_CACHES, StreamWalk

if TYPE_CHECKING:
    from rigidgrad.targets.llvm import Lanes, OutputLayout

# the kind of a node that is no operation: the numbers of a window are at hand
WINDOW = "window"


class Window(NamedTuple):
    """As many columns of an output as a line has numbers. The first one may begin before the rows,
    the last one end after them.
    """

    output: int
    start: int


class Arranged(NamedTuple):
    """A Program with sums put off, and after those of each window a node that has what is needed
    for it.
    """

    program: Program
    windows: tuple[Window, ...]


def arranged(
    program: Program, lanes: Lanes, outputs: Sequence[OutputLayout], skews: Sequence[int]
) -> Arranged | None:
    """None where a vector does not hold a line, or where lines of different rows begin at different
    columns.
    """
    if lanes.bytes * lanes.width != LINE or any(len(o.columns) % lanes.width for o in outputs):
        return None
    nodes, late = program.nodes, put_off(program)
    known = [0] * len(nodes)  # after which node all is known for it that is not put off
    for i, node in enumerate(nodes):
        known[i] = max((known[j] for j in operands(node)), default=0) if late[i] else i
    due: dict[int, list[tuple[Window, list[int]]]] = {}
    for window in _windows(lanes, outputs, skews):
        needed = sorted({n for _, n in numbers(program, outputs, lanes.width, window).values()})
        due.setdefault(max((known[i] for i in needed), default=0), []).append((window, needed))
    place: dict[int, int] = {}
    found: list[Node] = []
    windows: list[Window] = []
    for i in range(len(nodes)):
        if not late[i]:
            _append(found, place, nodes, i)
        for window, needed in due.get(i, ()):
            for j in _pending(nodes, needed, place):
                _append(found, place, nodes, j)
            found.append((WINDOW, *(place[j] for j in needed)))
            windows.append(window)
    results = tuple((r[0], place[r[1]]) if isinstance(r, tuple) else r for r in program.results)
    return Arranged(Program(program.inputs, program.outputs, tuple(found), results), tuple(windows))


def put_off(program: Program) -> list[bool]:
    """Operations that add to sums of which only results are made."""
    nodes, users = program.nodes, list(program.uses)
    for result in program.results:
        if isinstance(result, tuple):
            users[result[1]] -= 1
    late = [False] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        kind = nodes[i][0]
        if users[i] or not (kind in FUSED or kind in ("add", "sub")):
            continue
        late[i] = True
        for j in nodes[i][3:] if kind in FUSED else nodes[i][1:]:
            users[j] -= 1
    return late


def numbers(
    program: Program, outputs: Sequence[OutputLayout], width: int, window: Window
) -> dict[int, tuple[int, int]]:
    """Of the columns of a window that are no constants: sign and node."""
    columns = outputs[window.output].columns
    found = {}
    for c in range(max(window.start, 0), min(window.start + width, len(columns))):
        k = columns[c]
        result = 0.0 if k is None else program.results[k]
        if isinstance(result, tuple):
            found[c] = result
    return found


def _append(found: list[Node], place: dict[int, int], nodes: Sequence[Node], i: int) -> None:
    node = nodes[i]
    place[i] = len(found)
    found.append(node if node[0] in LEAVES else (node[0], *(place[j] for j in node[1:])))


def _pending(nodes: Sequence[Node], needed: Sequence[int], place: dict[int, int]) -> list[int]:
    """What is still to be computed for some nodes, in the Program's order."""
    found: set[int] = set()
    rest = [i for i in needed if i not in place]
    while rest:
        i = rest.pop()
        if i not in found:
            found.add(i)
            rest += [j for j in nodes[i][1:] if j not in place]
    return sorted(found)


def _windows(lanes: Lanes, outputs: Sequence[OutputLayout], skews: Sequence[int]) -> list[Window]:
    """All windows: outputs side by side, each from its first column to its last."""
    found = []
    for k, (layout, skew) in enumerate(zip(outputs, skews, strict=True)):
        first = -skew % LINE // lanes.bytes
        starts = range(first - lanes.width if first else 0, len(layout.columns), lanes.width)
        found += [(n / len(starts), Window(k, start)) for n, start in enumerate(starts)]
    return [window for _, window in sorted(found)]


class Lines:
    """Where a kernel's results go: window after window to the W rows from %p0, %p1, … on."""

    in_place = False  # whether results may be where inputs are

    def __init__(self, lanes: Lanes, program: Arranged, outputs: Sequence[OutputLayout]):
        self.lanes, self.align = lanes, LINE
        self.program, self.windows = program.program, iter(program.windows)
        self.layouts = outputs
        self.outputs: list[OutputLayout] = []  # no result is stored on its own
        self.parameters = [f"ptr noalias %p{k}" for k in range(len(outputs))]

    def store(self, value: str, output: int, column: int) -> None:
        raise AssertionError("results are written in windows")

    def advance(self, done: int, work: int) -> None:
        """Nothing is done meanwhile."""

    def end(self) -> None:
        """Everything has been written."""

    def write(self, values: dict[int, str]) -> None:
        """The next window, from the values of its nodes."""
        window = next(self.windows)
        vectors = self._vectors(window, values)
        lanes, zero = self.lanes, "zeroinitializer"
        if any(v != zero for v in vectors):
            vectors = transpose(lanes.emit, lanes.scalar, vectors, lanes.width)
        size = len(self.layouts[window.output].columns)
        inside = [0 <= c < size for c in self._columns(window)]
        mask = ", ".join(f"i1 {int(x)}" for x in inside)
        for lane, v in enumerate(vectors):
            place = lanes.emit(
                f"getelementptr {lanes.scalar}, ptr %p{window.output}, i64"
                f" {lane * size + window.start}"
            )
            if all(inside):
                lanes.do(f"store {lanes.vector} {v}, ptr {place}, align {LINE}, {PAST_CACHES}")
            else:  # the rest of the line is another row's
                lanes.do(
                    f"call void @llvm.masked.store.{lanes.suffix}.p0({lanes.vector} {v}, ptr"
                    f" {place}, i32 {LINE}, <{lanes.width} x i1> <{mask}>)"
                )

    def _columns(self, window: Window) -> range:
        return range(window.start, window.start + self.lanes.width)

    def _vectors(self, window: Window, values: dict[int, str]) -> list[str]:
        """The columns of a window, in lanes."""
        lanes, columns = self.lanes, self.layouts[window.output].columns
        known = numbers(self.program, self.layouts, lanes.width, window)
        found = []
        for c in self._columns(window):
            k = columns[c] if 0 <= c < len(columns) else None
            result = 0.0 if k is None else self.program.results[k]
            if c in known:
                sign, node = known[c]
                found.append(values[node] if sign > 0 else lanes.negate(values[node]))
            elif isinstance(result, float) and result != 0.0:
                found.append(lanes.constant(result))
            else:
                found.append("zeroinitializer")
        return found

    @staticmethod
    def declarations(lanes: Lanes) -> str:
        return (
            f"declare void @llvm.masked.store.{lanes.suffix}.p0({lanes.vector}, ptr, i32,"
            f" <{lanes.width} x i1>)"
        )


class LineWalk(StreamWalk):
    """W rows at a time, which the kernel writes itself."""

    def buffers(self) -> None:
        self.reserve(self.input_sizes() | self.spare_sizes())
        self.steps("i", "is", len(self.inputs))
        for k in range(len(self.outputs)):
            self.spare(k)

    def run(self, targets: list[str]) -> None:
        self.call([*(f"%ibuf{k}" for k in range(len(self.inputs))), *targets])

    def rows_from(self, first: str) -> list[str]:
        """The addresses of users' rows."""
        return [
            self.at(f"%out{k}", self.emit(f"mul i64 {first}, %os{k}"))
            for k in range(len(self.outputs))
        ]

    def full_block(self) -> None:
        self.run(self.rows_from("%b"))

    def settle(self) -> None:
        """Nothing is left of the last full block."""

    def partial_block(self) -> None:
        """All rows of a block go to spare ones, and those that are there from there to users'."""
        self.read_partial()
        self.run([f"%spare{k}" for k in range(len(self.outputs))])
        for k, (layout, row) in enumerate(zip(self.outputs, self.rows_from("%t"), strict=True)):
            self.copy(f"%spare{k}", row, self.emit(f"mul i64 %rest, {len(layout.columns)}"))
