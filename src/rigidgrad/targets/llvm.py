"""Programs as LLVM IR: one state a SIMD lane, W states at a time.

The module has two functions. `kernel` evaluates W states from and to buffers in which each number
of the program is one vector. `rows`, in `llvm_rows`, walks the user's arrays. Multiply-adds are
explicit and no flag lets LLVM change a rounding, so a state's bits do not depend on W.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from rigidgrad.program.program import LEAVES, Program
from rigidgrad.program.registers import Transfers, transfers
from rigidgrad.targets import llvm_direct, llvm_lines, llvm_math, llvm_rows, llvm_stream

# bytes of a state's results between which fetching their cache lines ahead was found to pay
_PREFETCH_FROM, _PREFETCH_TO = 512, 49152
# operations after which an input or a constant is loaded again
_RELOAD_AFTER = 40
# operations from which on registers are given out here: LLVM takes most of its time for it where
# code is long; its shorter code is up to 3% faster
PLANNED_FROM = 12_000
_LINE = 64  # bytes of a vector of AVX-512, and of a cache line
# vectors of AVX-512 that are reached from one register: their distance from it takes one byte of an
# instruction, and four beyond
_NEAR = 256
_SPARE = 8  # one register of so many is left to LLVM, for what is no value of the Program
_BLOCK = (
    500  # operations of a block: LLVM searches a block for what memory operations may be joined
)
_TABLE_VECTOR = 32  # bytes of vectors whose constants are operands in memory
# part of a row's numbers that are no structural zeros, below which zeros are written first and
# these on their own
_SPARSE = 0.6
_SPARSE_FROM = 64  # numbers of a row, more than any width
_FEW = 64  # below this many results a state, kernels write rows themselves


@dataclass
class Lanes:
    """The vector type of W lanes, and lines of IR written so far."""

    dtype: str  # "float64" or "float32"
    width: int
    name: str = "kernel"  # of the function
    lines: list[str] = field(default_factory=list)
    _count: int = 0
    _table: dict[str, int] = field(default_factory=dict)  # constants in memory -> their places

    def another(self, name: str) -> Lanes:
        """The same vectors for another function."""
        return Lanes(self.dtype, self.width, name)

    @property
    def scalar(self) -> str:
        return "double" if self.dtype == "float64" else "float"

    @property
    def integer(self) -> str:
        """The scalar integer type of the same size."""
        return "i64" if self.dtype == "float64" else "i32"

    @property
    def bytes(self) -> int:
        return 8 if self.dtype == "float64" else 4

    @cached_property
    def vector(self) -> str:
        return self.of(self.scalar)

    @cached_property
    def suffix(self) -> str:
        """Of an intrinsic's name."""
        kind = "f64" if self.dtype == "float64" else "f32"
        return kind if self.width == 1 else f"v{self.width}{kind}"

    def of(self, scalar: str) -> str:
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def constant(self, x: float) -> str:
        text = self.number(x)
        return (
            text
            if self.width == 1
            else "<" + ", ".join([f"{self.scalar} {text}"] * self.width) + ">"
        )

    def fetched(self, x: float) -> str:
        """A constant for one use. Instructions of AVX2 take vectors from memory as operands, but
        would need another one to repeat a number.
        """
        if self.bytes * self.width != _TABLE_VECTOR or abs(x) == 2:  # twice is a sum
            return self.constant(x)
        index = self._table.setdefault(self.constant(x), len(self._table))
        place = self.emit(f"getelementptr {self.vector}, ptr @{self.name}_constants, i64 {index}")
        return self.emit(f"load {self.vector}, ptr {place}, align {_TABLE_VECTOR}")

    def constants(self) -> str:
        """The table of constants fetched so far."""
        if not self._table:
            return ""
        vectors = ", ".join(f"{self.vector} {x}" for x in self._table)
        return (
            f"@{self.name}_constants = internal constant [{len(self._table)} x {self.vector}]"
            f" [{vectors}], align {_TABLE_VECTOR}\n"
        )

    def number(self, x: float) -> str:
        """A float in LLVM's exact notation."""
        value = float(np.float32(x)) if self.dtype == "float32" else float(x)
        return "0x" + struct.pack(">d", value).hex().upper()

    def integers(self, x: int) -> str:
        return (
            str(x)
            if self.width == 1
            else "<" + ", ".join([f"{self.integer} {x}"] * self.width) + ">"
        )

    def emit(self, text: str) -> str:
        """One instruction with a result; gives the result's name."""
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def splat(self, a: str) -> str:
        """A scalar in all lanes."""
        if self.width == 1:
            return a
        first = self.emit(f"insertelement {self.vector} poison, {self.scalar} {a}, i64 0")
        return self.emit(
            f"shufflevector {self.vector} {first}, {self.vector} poison, <{self.width} x i32>"
            " zeroinitializer"
        )

    # --- arithmetic on vectors --------------------------------------------------------------------

    def binary(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} {self.vector} {a}, {b}")

    def integer_binary(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} {self.of(self.integer)} {a}, {b}")

    def negate(self, a: str) -> str:
        return self.emit(f"fneg {self.vector} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        v = self.vector
        return self.emit(f"call {v} @llvm.fma.{self.suffix}({v} {a}, {v} {b}, {v} {c})")

    def unary_intrinsic(self, name: str, a: str) -> str:
        return self.emit(f"call {self.vector} @llvm.{name}.{self.suffix}({self.vector} {a})")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.emit(
            f"select {self.of('i1')} {condition}, {self.vector} {a}, {self.vector} {b}"
        )

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.emit(f"fcmp {predicate} {self.vector} {a}, {b}")

    def bits(self, a: str) -> str:
        return self.emit(f"bitcast {self.vector} {a} to {self.of(self.integer)}")

    def from_bits(self, a: str) -> str:
        return self.emit(f"bitcast {self.of(self.integer)} {a} to {self.vector}")


def render(
    program: Program,
    dtype: str,
    width: int,
    *,
    packed: bool = False,
    streaming: Sequence[int] | None = None,
    registers: int = 0,
) -> str:
    """The module's text. `packed` leaves structural zeros out of the outputs. `registers` of the
    CPU for vectors, or 0: all is left to LLVM.

    With `streaming`, results go past the caches, into rows that follow each other; it has of each
    output how many bytes of a line are before it.
    """
    outputs = output_layout(program, packed)
    lanes = Lanes(dtype, width)
    inputs = [math.prod(s) for s in program.inputs.values()]
    results: Buffers | llvm_direct.Windows | llvm_lines.Lines
    lines = (
        llvm_lines.arranged(program, lanes, outputs, streaming)
        if streaming is not None and registers and program.instructions >= PLANNED_FROM
        else None
    )
    if lines is not None:
        program, results = lines.program, llvm_lines.Lines(lanes, lines, outputs)
        rows = "\n".join(
            [
                results.declarations(lanes),
                llvm_lines.LineWalk(dtype, width, inputs, outputs).lanes(),
            ]
        )
    elif streaming is not None:
        about = (lanes, outputs, streaming, program.instructions)
        results = Buffers(lanes, outputs, "sp", llvm_stream.steps(*about))
        rows = "\n".join(
            [
                llvm_stream.functions(*about),
                llvm_stream.StreamWalk(dtype, width, inputs, outputs).lanes(),
            ]
        )
    elif width > 1 and sum(len(layout.columns) for layout in outputs) < _FEW:
        results = llvm_direct.Windows(lanes, outputs)
        rows = llvm_direct.rows(dtype, width, inputs, outputs)
    else:
        results = Buffers(lanes, outputs, "p", written_ahead(lanes, outputs))
        rows = llvm_rows.rows(dtype, width, inputs, outputs)
    kernel = kernel_function(lanes, program, results, registers=registers)
    return "\n".join([llvm_math.functions(lanes, program), kernel, rows, declarations(lanes)])


def in_blocks(ir: str) -> bool:
    """Whether code is so long that it was cut into blocks, which must not be joined again."""
    return "\nblock1:\n" in ir


@dataclass(frozen=True)
class OutputLayout:
    """Where the program's results go: for each number of a row the index in `Program.results`, or
    None for a structural zero.
    """

    columns: tuple[int | None, ...]

    @property
    def sparse(self) -> bool:
        """Whether zeros are written first, and then the few columns that are none."""
        size = len(self.columns)
        return size >= _SPARSE_FROM and size - self.columns.count(None) < _SPARSE * size

    @cached_property
    def slots(self) -> list[int]:
        """The vector of the lane buffer that holds each column: its own number or, where there are
        many zeros, without gaps; all zeros share the last.
        """
        if not self.sparse:
            return list(range(len(self.columns)))
        filled = iter(range(len(self.columns)))
        last = len(self.columns) - self.columns.count(None)
        return [last if c is None else next(filled) for c in self.columns]

    @property
    def gathered(self) -> bool:
        """Whether columns are elsewhere in the lane buffer than in the row."""
        return self.sparse

    @property
    def vectors(self) -> int:
        """The size of the lane buffer."""
        return max(self.slots, default=0) + 1


def output_layout(program: Program, packed: bool) -> list[OutputLayout]:
    layouts, start = [], 0
    for shape in program.outputs.values():
        size = math.prod(shape)
        columns: list[int | None] = []
        for k in range(start, start + size):
            result = program.results[k]
            zero = isinstance(result, float) and result == 0.0
            if not (zero and packed):
                columns.append(None if zero else k)
        layouts.append(OutputLayout(tuple(columns)))
        start += size
    return layouts


class Buffers:
    """Where a kernel's results go: lane buffers, one vector a result, as soon as it is known.
    Meanwhile, spread over its work, the kernel takes some other steps.

    `pointers`: letters of parameters that the steps have of each output. Without steps, buffers are
    aligned to numbers, not to vectors.
    """

    def __init__(
        self,
        lanes: Lanes,
        outputs: list[OutputLayout],
        pointers: str = "",
        steps: list[Callable[[], None]] | None = None,
    ):
        self.lanes, self.outputs = lanes, outputs
        self.align = lanes.bytes if lanes.width == 1 or steps is None else lanes.bytes * lanes.width
        self.steps = steps or []
        self.taken = 0
        each = range(len(outputs))
        self.parameters = [f"ptr noalias %o{k}" for k in each] + [
            f"ptr %{x}{k}" for x in pointers for k in each
        ]

    def store(self, value: str, output: int, column: int) -> None:
        slot = self.outputs[output].slots[column] if self.lanes.width > 1 else column
        place = self.lanes.emit(f"getelementptr {self.lanes.vector}, ptr %o{output}, i64 {slot}")
        self.lanes.do(f"store {self.lanes.vector} {value}, ptr {place}, align {self.align}")

    in_place = False  # whether results may be where inputs are

    def end(self) -> None:
        """Called after the last operation."""

    def advance(self, done: int, work: int) -> None:
        """Called between operations, when `done` of all their `work` is done."""
        while self.taken < len(self.steps) * done // work:
            self.steps[self.taken]()
            self.taken += 1


def kernel_function(
    lanes: Lanes,
    program: Program,
    results: Buffers | llvm_direct.Windows | llvm_lines.Lines,
    shared: frozenset[str] = frozenset(),
    places: Mapping[str, Sequence[int]] | None = None,
    registers: int = 0,
    wide: frozenset[str] = frozenset(),
) -> str:
    """Straight-line code from the input vectors to where `results` takes them, each as soon as it
    is known.

    Where it is long and the CPU's `registers` are known, values that do not fit into them go to
    memory and back as planned here. Of the inputs named `shared` all lanes have the same numbers,
    one after the other in memory. `places`: where in memory the numbers of each input are, unless
    they follow each other. Those named `wide` are float64 there, whatever the type of the code.
    """
    names = list(program.inputs)
    stores: dict[int, list[tuple[int, int, int]]] = {}  # node -> (output, column, sign)
    for output, layout in enumerate(results.outputs):
        for column, k in enumerate(layout.columns):
            if k is None:
                continue
            result = program.results[k]
            if isinstance(result, float):
                results.store(lanes.constant(result), output, column)
            else:
                stores.setdefault(result[1], []).append((output, column, result[0]))
    value: list[str] = []
    pairs: dict[int, tuple[str, str]] = {}
    work = program.instructions
    done = 0
    loaded: dict[
        int, tuple[str, int]
    ] = {}  # input or constant -> its value, and when it was loaded
    angles = {i: group for group in llvm_math.angle_groups(program) for i in group}
    plan = (
        transfers(program, registers - registers // _SPARE)
        if registers and work >= PLANNED_FROM
        else None
    )

    def use(i: int) -> str:
        """The value of a node. An input or a constant is loaded again after a while, which is
        cheaper than keeping it in a register.
        """
        if value[i]:
            return value[i]
        if i not in loaded or done - loaded[i][1] > _RELOAD_AFTER:
            loaded[i] = load(program.nodes[i]), done
        return loaded[i][0]

    def load(leaf: tuple[Any, ...]) -> str:
        if leaf[0] == "const":
            return lanes.fetched(leaf[1])
        _, name, k = leaf
        if places is not None:
            k = places[name][k]
        if name in shared and lanes.width > 1:
            place = lanes.emit(f"getelementptr {lanes.scalar}, ptr %i{names.index(name)}, i64 {k}")
            return lanes.splat(lanes.emit(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}"))
        if name in wide:
            double = lanes.of("double")
            place = lanes.emit(f"getelementptr {double}, ptr %i{names.index(name)}, i64 {k}")
            return lanes.emit(
                f"fptrunc {double} {lanes.emit(f'load {double}, ptr {place}, align 8')} to"
                f" {lanes.vector}"
            )
        place = lanes.emit(f"getelementptr {lanes.vector}, ptr %i{names.index(name)}, i64 {k}")
        return lanes.emit(f"load {lanes.vector}, ptr {place}, align {results.align}")

    def sincos(i: int, kind: str) -> str:
        """Of an angle, and of the other one in its group at the same time."""
        if i not in pairs:
            pairs.update(
                zip(angles[i], llvm_math.sincos(lanes, [use(k) for k in angles[i]]), strict=True)
            )
        return pairs[i][kind == "cos"]

    def slot(k: int) -> str:
        base, place = divmod(k, _NEAR) if near else (k, 0)
        return lanes.emit(
            f"getelementptr {lanes.vector}, ptr %slots{base}, i64 {place - near // 2}"
        )

    def move(plan: Transfers, i: int) -> None:
        """What the plan says before an operation. Stores are volatile, or LLVM would keep the
        value.
        """
        for j in plan.stores.get(i, ()):
            lanes.do(f"store volatile {lanes.vector} {value[j]}, ptr {slot(plan.slots[j])}")
        for j in plan.fetches.get(i, ()):
            if j in plan.slots:
                value[j] = lanes.emit(f"load {lanes.vector}, ptr {slot(plan.slots[j])}")
            else:
                value[j] = load(program.nodes[j])

    near = _NEAR if lanes.bytes * lanes.width == _LINE else 0
    if plan and near:
        lanes.do(f"%slots = alloca [{plan.size} x {lanes.vector}]")
        for k in range(-(-plan.size // near)):
            middle = k * near + near // 2
            place = lanes.emit(f"getelementptr {lanes.vector}, ptr %slots, i64 {middle}")
            # by way of memory, or LLVM would count from the first slot again
            lanes.do(f"%middle{k} = alloca ptr")
            lanes.do(f"store volatile ptr {place}, ptr %middle{k}")
            lanes.do(f"%slots{k} = load volatile ptr, ptr %middle{k}")
    elif plan:
        for k in range(plan.size):
            lanes.do(f"%slots{k} = alloca {lanes.vector}")
    for i, node in enumerate(program.nodes):
        if node[0] not in LEAVES:
            done += 1
            results.advance(done, work)
            if plan and done % _BLOCK == 0:
                lanes.do(f"br label %block{done // _BLOCK}")
                lanes.label(f"block{done // _BLOCK}")
                loaded.clear()
            if plan:
                move(plan, i)
        if node[0] in LEAVES:
            value.append("")
        elif node[0] == llvm_lines.WINDOW:
            assert isinstance(results, llvm_lines.Lines)
            results.write({k: use(k) for k in node[1:]})
            value.append("")
        elif node[0] in ("sin", "cos"):
            value.append(sincos(node[1], node[0]))
        else:
            value.append(_operation(lanes, node[0], [use(k) for k in node[1:]]))
        negated = None
        for output, column, sign in stores.get(i, ()):
            if sign < 0 and negated is None:
                negated = lanes.negate(use(i))
            results.store(use(i) if sign > 0 else str(negated), output, column)
    results.advance(1, 1)
    results.end()
    kind = "ptr" if results.in_place else "ptr noalias"
    arguments = ", ".join(
        ["ptr %libm", *(f"{kind} %i{k}" for k in range(len(names))), *results.parameters]
    )
    # vectors that do not fit into registers are aligned too: one that straddles two pages would
    # make its stores wait for all before
    aligned = f"alignstack({min(lanes.bytes * lanes.width, 64)})" if lanes.width > 1 else ""
    return (
        lanes.constants()
        + f"define internal void @{lanes.name}({arguments}) nounwind {aligned} {{\n"
        + "\n".join(lanes.lines)
        + "\n  ret void\n}\n"
    )


def written_ahead(lanes: Lanes, outputs: list[OutputLayout]) -> list[Callable[[], None]]:
    """Users' rows from %p0, %p1, … on are prepared for results that will be copied there: zeros are
    written, or cache lines fetched.
    """
    if lanes.width == 1:
        return []
    vector = lanes.bytes * lanes.width
    row = lanes.bytes * sum(len(o.columns) for o in outputs)

    def zeros(output: int, offset: int) -> None:
        place = lanes.emit(f"getelementptr i8, ptr %p{output}, i64 {offset}")
        lanes.do(f"store {lanes.vector} zeroinitializer, ptr {place}, align {vector}")

    def fetch(output: int, offset: int) -> None:
        place = lanes.emit(f"getelementptr i8, ptr %p{output}, i64 {offset}")
        lanes.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 1, i32 2, i32 1)")

    steps: list[Callable[[], None]] = []
    for k, layout in enumerate(outputs):
        size = len(layout.columns) * vector
        if layout.sparse:
            steps += [partial(zeros, k, offset) for offset in range(0, size - vector, vector)]
        elif _PREFETCH_FROM <= row <= _PREFETCH_TO:
            steps += [partial(fetch, k, offset) for offset in range(0, size, 64)]
    return steps


def _operation(lanes: Lanes, kind: str, x: list[str]) -> str:
    v = lanes.vector
    match kind:
        case "add" | "sub" | "mul" | "div":
            return lanes.binary(f"f{kind}", *x)
        case "fma":
            return lanes.fma(*x)
        case "fms":
            return lanes.fma(x[0], x[1], lanes.negate(x[2]))
        case "fnma":
            return lanes.fma(lanes.negate(x[0]), x[1], x[2])
        case "fnms":
            return lanes.fma(lanes.negate(x[0]), x[1], lanes.negate(x[2]))
        case "neg":
            return lanes.negate(x[0])
        case "sqrt":
            return lanes.unary_intrinsic("sqrt", x[0])
        case "min":
            return lanes.select(lanes.compare("olt", x[1], x[0]), x[1], x[0])
        case "max":
            return lanes.select(lanes.compare("olt", x[0], x[1]), x[1], x[0])
        case "select":
            return lanes.select(lanes.compare("olt", x[0], x[1]), x[2], x[3])
        case "atan2":
            return lanes.emit(f"call {v} @lanes_atan2(ptr %libm, {v} {x[0]}, {v} {x[1]})")
    raise AssertionError(kind)


def declarations(lanes: Lanes) -> str:
    v, f = lanes.vector, lanes.suffix
    return "\n".join(
        [
            f"declare {v} @llvm.fma.{f}({v}, {v}, {v})",
            f"declare {v} @llvm.sqrt.{f}({v})",
            f"declare {v} @llvm.fabs.{f}({v})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        ]
    )
