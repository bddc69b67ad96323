"""Kernels as LLVM IR, one state per lane: Programs are functions, loops stay loops, and products of
matrices keep small tiles of their results in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rigidgrad.kernels.language import (
    Array,
    Call,
    Choose,
    Index,
    Kernel,
    Lookup,
    Loop,
    Product,
    Statement,
    Table,
    Variable,
    View,
)
from rigidgrad.kernels.structure import counts, pattern, programs, written_once
from rigidgrad.targets import llvm_math, llvm_rows, llvm_stream
from rigidgrad.targets.llvm import (
    Buffers,
    Lanes,
    OutputLayout,
    declarations,
    kernel_function,
    written_ahead,
)
from rigidgrad.targets.llvm_tiles import (
    Factors,
    Group,
    Tiles,
    best_tile,
    function,
    tile_size,
    tiles,
)


@dataclass(frozen=True)
class PlacedLayout(OutputLayout):
    """Where the numbers of an output are in its lane buffer: those of a dense row, at their own
    places.
    """

    places: tuple[int, ...]
    size: int

    @property
    def sparse(self) -> bool:
        return False

    @property
    def slots(self) -> list[int]:
        return list(self.places)

    @property
    def gathered(self) -> bool:
        return self.places != tuple(range(len(self.places)))

    @property
    def vectors(self) -> int:
        return max(self.size, 1)


def output_layout(kernel: Kernel, packed: bool) -> list[OutputLayout]:
    layouts: list[OutputLayout] = []
    for marks in pattern(kernel).values():
        places = tuple(k for k, mark in enumerate(marks) if mark or not packed)
        layouts.append(
            PlacedLayout(tuple(k if marks[k] else None for k in places), places, len(marks))
        )
    return layouts


def render(
    kernel: Kernel,
    dtype: str,
    width: int,
    *,
    packed: bool = False,
    streaming: Sequence[int] | None = None,
    registers: int = 16,
) -> str:
    """The module's text, as `llvm.render` for a Program; `registers` of the CPU for vectors."""
    outputs = output_layout(kernel, packed)
    lanes = Lanes(dtype, width)
    inputs, scratch = (
        [a.size for a in kernel.of("input")],
        sum(a.size for a in kernel.of("scratch")),
    )
    if streaming is not None:
        work = counts(kernel).instructions
        code = _Code(
            lanes, kernel, "sp", lambda inner: llvm_stream.steps(inner, outputs, streaming, work)
        )
        walk_rows = llvm_stream.StreamWalk(dtype, width, inputs, outputs, scratch).lanes()
        rows = "\n".join([llvm_stream.functions(lanes, outputs, streaming, work), walk_rows])
    else:
        code = _Code(lanes, kernel, "p", lambda inner: written_ahead(inner, outputs))
        walk = llvm_rows.Walk(dtype, width, inputs, outputs, scratch)
        rows = walk.scalar() if width == 1 else walk.lanes()
    code.registers = registers
    return _module(lanes, kernel, code.text(), rows)


def render_knot(
    kernel: Kernel, dtype: str, width: int, wide: frozenset[str], registers: int
) -> str:
    """The function `kernel(libm, inputs, carried, outputs, work)` of arrays in lane order, for
    `llvm_sweep`. Arrays named `wide` are float64 in memory, whatever the type of the code.
    """
    lanes = Lanes(dtype, width)
    code = _Code(
        lanes, kernel, "", lambda inner: [], wide=wide if dtype != "float64" else frozenset()
    )
    code.registers = registers
    return _module(lanes, kernel, code.text())


def _module(lanes: Lanes, kernel: Kernel, *parts: str) -> str:
    any_lane = (
        f"declare i1 @llvm.vector.reduce.or.v{lanes.width}i1({lanes.of('i1')})"
        if lanes.width > 1
        else ""
    )
    return "\n".join(
        [llvm_math.functions(lanes, *programs(kernel)), *parts, declarations(lanes), any_lane]
    )


class _Placed(Buffers):
    """Results of a called Program, at places of views. Where they may be its own inputs, they are
    written after the last of these has been read.
    """

    def __init__(
        self,
        lanes: Lanes,
        outputs: list[OutputLayout],
        places: Sequence[Sequence[int]],
        further: list[str],
        steps: list[Callable[[], None]],
        in_place: bool,
        wide: Sequence[bool],
    ):
        super().__init__(lanes, outputs, steps=steps)
        self.places, self.in_place, self.wide = places, in_place, wide
        self.late: list[tuple[str, int, int]] = []
        self.parameters = [f"ptr %to{k}" for k in range(len(outputs))] + [
            f"ptr {x}" for x in further
        ]

    def store(self, value: str, output: int, column: int) -> None:
        if self.in_place:
            self.late.append((value, output, column))
        else:
            self.write(value, output, column)

    def write(self, value: str, output: int, column: int) -> None:
        if self.wide[output]:
            double = self.lanes.of("double")
            place = self.lanes.emit(
                f"getelementptr {double}, ptr %to{output}, i64 {self.places[output][column]}"
            )
            self.lanes.do(
                f"store {double}"
                f" {self.lanes.emit(f'fpext {self.lanes.vector} {value} to {double}')}, ptr"
                f" {place}, align 8"
            )
            return
        place = self.lanes.emit(
            f"getelementptr {self.lanes.vector}, ptr %to{output}, i64 {self.places[output][column]}"
        )
        self.lanes.do(f"store {self.lanes.vector} {value}, ptr {place}, align {self.align}")

    def end(self) -> None:
        for late in self.late:
            self.write(*late)


@dataclass
class _Code:
    lanes: Lanes
    kernel: Kernel
    pointers: str
    meanwhile: Callable[[Lanes], list[Callable[[], None]]]
    functions: list[str] = field(default_factory=list)
    tables: dict[Table, str] = field(default_factory=dict)
    variables: dict[Variable, str] = field(default_factory=dict)
    bases: dict[Array, str] = field(default_factory=dict)
    parts: dict[tuple[Any, ...], str] = field(default_factory=dict)
    labels: int = 0
    registers: int = 16
    tile_functions: dict[Tiles, str] = field(default_factory=dict)
    busiest: Call | None = None
    alone: set[Array] = field(default_factory=set)
    wide: frozenset[str] = frozenset()

    def text(self) -> str:
        lanes, kernel = self.lanes, self.kernel
        offset = 0
        for role, letter in (("input", "i"), ("carried", "c"), ("output", "o")):
            self.bases |= {a: f"%{letter}{k}" for k, a in enumerate(kernel.of(role))}  # type: ignore[arg-type]
        constants = []
        for k, a in enumerate(kernel.of("constant")):
            self.bases[a] = f"@kernel_array{k}"
            numbers = ", ".join(f"{lanes.scalar} {lanes.number(x)}" for x in a.values)
            constants.append(
                f"@kernel_array{k} = internal constant [{a.size} x {lanes.scalar}] [{numbers}],"
                " align 64"
            )
        for a in kernel.of("scratch"):
            self.bases[a] = lanes.emit(f"getelementptr {lanes.vector}, ptr %work, i64 {offset}")
            offset += a.size
        self.busiest = max(
            _calls(kernel.body), key=lambda call: len(call.program.nodes), default=None
        )
        # of what is not prepared by the rows around it, only scratch memory begins with zeros
        self.alone = {a for a in written_once(kernel.body) if self.pointers or a.role == "scratch"}
        self.statements(kernel.body)
        buffers = [
            f"ptr noalias {self.bases[a]}"
            for role in ("input", "carried", "output")
            for a in kernel.of(role)
        ]
        arguments = [
            "ptr %libm",
            *buffers,
            *(f"ptr {x}" for x in self.further()),
            "ptr noalias %work",
        ]
        body = "\n".join(lanes.lines)
        tables = [
            f"@{name} = internal constant [{len(t.numbers)} x i32]"
            f" [{', '.join(f'i32 {x}' for x in t.numbers)}]"
            for t, name in self.tables.items()
        ]
        own = (
            f"define internal void @kernel({', '.join(arguments)}) nounwind {{\nentry:\n{body}\n "
            " ret void\n}\n"
        )
        return "\n".join([*constants, *tables, *self.functions, own])

    def further(self) -> list[str]:
        """Parameters that the steps taken meanwhile use."""
        return [f"%{x}{k}" for x in self.pointers for k in range(len(self.kernel.outputs))]

    # --- statements -------------------------------------------------------------------------------

    def statements(self, body: Sequence[Statement]) -> None:
        for statement in _together(body):
            match statement:
                case list():
                    self.products(statement)
                case Call():
                    self.call(statement)
                case Loop():
                    self.loop(statement)
                case Choose():
                    self.choose(statement)

    def call(self, call: Call) -> None:
        program = call.program
        busiest = call is self.busiest  # what is done meanwhile is spread over the longest Program
        places = tuple(
            tuple(view.places()) for view in (*call.inputs.values(), *call.outputs.values())
        )
        zeros = tuple(view.array in self.alone for view in call.outputs.values())
        shared = frozenset(
            name for name, view in call.inputs.items() if view.array.role == "constant"
        )
        in_place = not {v.array for v in call.inputs.values()}.isdisjoint(
            v.array for v in call.outputs.values()
        )
        same = (
            tuple(program.inputs.items()),
            tuple(program.outputs.items()),
            program.nodes,
            program.results,
        )
        wide = tuple(
            view.array.name in self.wide for view in (*call.inputs.values(), *call.outputs.values())
        )
        key = (same, places, zeros, shared, busiest, in_place, wide)
        if key not in self.parts:
            name = self.parts[key] = f"part{len(self.parts)}"
            inner = self.lanes.another(name)
            layouts, start = [], 0
            for view, silent in zip(call.outputs.values(), zeros, strict=True):
                columns = range(start, start + view.shape[0] * view.shape[1])
                layouts.append(
                    OutputLayout(
                        tuple(None if silent and _zero(program.results[k]) else k for k in columns)
                    )
                )
                start = columns.stop
            n = len(program.inputs)
            further, ahead = (self.further(), self.meanwhile(inner)) if busiest else ([], [])
            placed = _Placed(inner, layouts, places[n:], further, ahead, in_place, wide[n:])
            inputs = dict(zip(program.inputs, places[:n], strict=True))
            wide_inputs = frozenset(
                name for name, is_wide in zip(program.inputs, wide, strict=False) if is_wide
            )
            self.functions.append(
                kernel_function(inner, program, placed, shared, inputs, self.registers, wide_inputs)
            )
        pointers = [self.pointer(view) for view in (*call.inputs.values(), *call.outputs.values())]
        if busiest:
            pointers += self.further()
        self.lanes.do(
            f"call void @{self.parts[key]}(ptr %libm, {', '.join(f'ptr {x}' for x in pointers)})"
        )

    def loop(self, loop: Loop) -> None:
        count = self.index(loop.count)

        def body(i: str) -> None:
            if loop.reverse:
                i = self.lanes.emit(f"sub i64 {self.lanes.emit(f'sub i64 {count}, 1')}, {i}")
            self.variables[loop.variable] = i
            self.statements(loop.body)

        self.rounds(count, body, loop.done)

    def rounds(
        self, count: str | int, body: Callable[[str], None], done_by: View | None = None
    ) -> None:
        """for i in 0 … count - 1: body(i), unless all lanes are done."""
        if str(count) == "0":
            return
        if str(count) == "1" and done_by is None:
            body("0")
            return
        lanes, name = self.lanes, self.label("loop")
        entry, done = f"{name}_entry", f"{name}_done"
        lanes.do(f"br label %{entry}")
        lanes.label(entry)
        if not str(count).isdigit():
            some = lanes.emit(f"icmp sgt i64 {count}, 0")
            lanes.do(f"br i1 {some}, label %{name}, label %{done}")
        else:
            lanes.do(f"br label %{name}")
        lanes.label(name)
        index = lanes.emit(f"phi i64 [ 0, %{entry} ], [ %{name}_next, %{name}_end ]")
        if done_by is not None:
            flags = lanes.emit(
                f"load {lanes.vector}, ptr {self.pointer(done_by)}, align {self.align}"
            )
            busy = lanes.compare("ule", flags, lanes.constant(0.0))
            if lanes.width > 1:
                busy = lanes.emit(
                    f"call i1 @llvm.vector.reduce.or.v{lanes.width}i1({lanes.of('i1')} {busy})"
                )
            lanes.do(f"br i1 {busy}, label %{name}_round, label %{done}")
            lanes.label(f"{name}_round")
        body(index)
        lanes.do(f"br label %{name}_end")
        lanes.label(f"{name}_end")
        lanes.do(f"%{name}_next = add i64 {index}, 1")
        more = lanes.emit(f"icmp slt i64 %{name}_next, {count}")
        lanes.do(f"br i1 {more}, label %{name}, label %{done}")
        lanes.label(done)

    def choose(self, choose: Choose) -> None:
        lanes, name = self.lanes, self.label("choose")
        targets = " ".join(f"i64 {k}, label %{name}_{k}" for k in range(len(choose.bodies)))
        lanes.do(f"switch i64 {self.index(choose.index)}, label %{name}_done [ {targets} ]")
        for k, body in enumerate(choose.bodies):
            lanes.label(f"{name}_{k}")
            self.statements(body)
            lanes.do(f"br label %{name}_done")
        lanes.label(f"{name}_done")

    # --- products ---------------------------------------------------------------------------------

    def products(self, several: list[Product]) -> None:
        """Products that are added up in one target: their sums stay in registers from the first to
        the last.
        """
        first = several[0]
        for p in several:
            if mixed := self.wide & {v.array.name for v in (p.target, p.left, p.right)}:
                raise ValueError(
                    "a product takes no arrays of another type: let a Program copy"
                    f" {', '.join(sorted(mixed))}"
                )
        rows, columns = first.target.shape
        if first.symmetric:
            groups = tiles(rows, min(tile_size(self.registers)))
            for a, down in enumerate(groups):
                for across in groups[:a]:
                    self.call_tiles(several, down, across)
                self.call_tiles(several, down, down, triangle=True)
            return
        size = tile_size(self.registers)
        if len(several) > 1:
            size = best_tile(rows, columns, sum(p.left.shape[1] for p in several), self.registers)
        for down in tiles(rows, size[0]):
            for across in tiles(columns, size[1]):
                self.call_tiles(several, down, across)

    def call_tiles(
        self, several: list[Product], down: Group, across: Group, triangle: bool = False
    ) -> None:
        """All tiles of a size. Products that differ in where and how large their matrices are alone
        share a function.
        """
        first = several[0]
        factors = tuple(Factors(p.left.strides, p.right.strides, p.factor) for p in several)
        t = Tiles(
            first.target.strides,
            factors,
            first.accumulate,
            first.symmetric,
            down.size,
            across.size,
            triangle,
        )
        if t not in self.tile_functions:
            name = self.tile_functions[t] = f"tiles{len(self.tile_functions)}"
            self.functions.append(function(self.lanes.another(name), t))
        target, start, other = self.pointer(first.target), down.start, across.start
        arguments = [f"ptr {self.at(target, start * t.target[0] + other * t.target[1])}"]
        if first.symmetric:
            arguments.append(f"ptr {self.at(target, start * t.target[1] + other * t.target[0])}")
        arguments += [f"i64 {down.count}", f"i64 {across.count}"]
        for p in several:
            left, right = (
                self.at(self.pointer(p.left), start * p.left.strides[0]),
                self.at(self.pointer(p.right), other * p.right.strides[1]),
            )
            arguments += [f"ptr {left}", f"ptr {right}", f"i64 {p.left.shape[1]}"]
        self.lanes.do(f"call void @{self.tile_functions[t]}({', '.join(arguments)})")

    # --- places -----------------------------------------------------------------------------------

    @property
    def align(self) -> int:
        return self.lanes.bytes * self.lanes.width

    def kind(self, array: Array) -> str:
        """What a number of an array is in memory: constants are the same in all lanes."""
        if array.name in self.wide:
            return self.lanes.of("double")
        return self.lanes.scalar if array.role == "constant" else self.lanes.vector

    def pointer(self, view: View) -> str:
        place = self.index(view.offset)
        base = self.bases[view.array]
        return (
            base
            if place == "0"
            else self.lanes.emit(f"getelementptr {self.kind(view.array)}, ptr {base}, i64 {place}")
        )

    def at(self, base: str, place: int | str) -> str:
        return (
            base
            if place == 0
            else self.lanes.emit(f"getelementptr {self.lanes.vector}, ptr {base}, i64 {place}")
        )

    def index(self, index: Index) -> str:
        lanes, total = self.lanes, str(index.constant)
        for atom, coefficient in index.terms:
            x = self.look_up(atom) if isinstance(atom, Lookup) else self.variables[atom]
            if coefficient != 1:
                x = lanes.emit(f"mul i64 {x}, {coefficient}")
            total = x if total == "0" else lanes.emit(f"add i64 {total}, {x}")
        return total

    def look_up(self, lookup: Lookup) -> str:
        name = self.tables.setdefault(lookup.table, f"table{len(self.tables)}")
        place = self.lanes.emit(f"getelementptr i32, ptr @{name}, i64 {self.index(lookup.index)}")
        return self.lanes.emit(f"sext i32 {self.lanes.emit(f'load i32, ptr {place}')} to i64")

    def label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"


def _together(body: Sequence[Statement]) -> list[Statement | list[Product]]:
    """Statements, and of products those that are added to the same numbers one right after the
    other, together: that changes no rounding.
    """
    found: list[Statement | list[Product]] = []
    for s in body:
        if not isinstance(s, Product):
            found.append(s)
            continue
        before = found[-1] if found else None
        if isinstance(before, list) and _continues(before, s):
            before.append(s)
        else:
            found.append([s])
    return found


def _continues(several: list[Product], p: Product) -> bool:
    first, each = several[0], (*several, p)
    apart = all(first.target.array not in (x.left.array, x.right.array) for x in each)
    return (
        p.accumulate
        and p.target == first.target
        and apart
        and all(abs(x.factor) == 1.0 and not x.symmetric for x in each)
    )


def _zero(result: object) -> bool:
    return isinstance(result, float) and result == 0.0


def _calls(body: Sequence[Statement]) -> list[Call]:
    """Calls that are made once; what a kernel does meanwhile cannot be in a loop."""
    return [s for s in body if isinstance(s, Call)]
