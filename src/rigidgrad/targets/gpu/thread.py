"""Thread-per-state kernels: a Program in the registers of one thread.

The threads of a block read and write the rows of the arrays together, through a tile of shared
memory: global memory sees neighbouring threads at neighbouring addresses, whatever the length of a
row. Results leave through the tile a few columns at a time, as soon as they are known. A Program
with more values alive than registers is cut into parts, functions that pass what they share through
an array of the thread: the compiler keeps that in memory where neighbouring threads are neighbours,
and each part in registers.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.program.program import LEAVES, Program
from rigidgrad.targets.cstyle_kernel import Step, array
from rigidgrad.targets.gpu.text import real_number

COLUMNS = 32  # of the tile for results
SHARED_NUMBERS = 48 * 1024 // 8  # that fit every GPU, in float64
REGISTERS = (
    120  # values alive at once beyond which a Program is cut; 255 registers hold as many doubles
)
PART = 350  # statements of a part


@dataclass(frozen=True)
class Spelling:
    """How a language writes the statements of a thread. `angle(j, x)` are those that bring `s{j}`
    and `c{j}`, sine and cosine.
    """

    operations: Mapping[str, str]
    declare: str  # of a name and a value
    work: str  # a number that parts share
    number: Callable[[float], str]
    angle: Callable[[int, str], list[str]]


_C = Spelling(
    {
        "add": "{} + {}",
        "sub": "{} - {}",
        "mul": "{} * {}",
        "div": "{} / {}",
        "neg": "-{}",
        "fma": "FMA({}, {}, {})",
        "fms": "FMA({}, {}, -{})",
        "fnma": "FMA(-{}, {}, {})",
        "fnms": "FMA(-{}, {}, -{})",
        "sqrt": "SQRT({})",
        "atan2": "ATAN2({}, {})",
        "min": "({1} < {0}) ? {1} : {0}",
        "max": "({0} < {1}) ? {1} : {0}",
        "select": "({} < {}) ? {} : {}",
    },
    "const real {} = {};",
    "work[{}]",
    real_number,
    lambda j, x: [f"real s{j}, c{j};", f"SINCOS({x}, &s{j}, &c{j});"],
)


Names = Mapping[str, str]


@dataclass(frozen=True)
class ThreadFunction:
    """A Program with what its kernel needs: how many threads share a block, which inputs pass
    through shared memory.
    """

    name: str
    program: Program

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        return self.program.inputs

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        return self.program.outputs

    @cached_property
    def staged(self) -> dict[str, int]:
        """Inputs that are read through shared memory, and where in a row; a matrix that leaves no
        room for 32 threads is read from where it is.
        """
        places: dict[str, int] = {}
        used = 0
        for key, shape in sorted(self.program.inputs.items(), key=lambda item: math.prod(item[1])):
            size = math.prod(shape)
            if 32 * (_odd(used + size) + _odd(COLUMNS)) <= SHARED_NUMBERS:
                places[key] = used
                used += size
        return places

    @cached_property
    def input_stride(self) -> int:
        return _odd(sum(math.prod(self.program.inputs[k]) for k in self.staged))

    @cached_property
    def threads(self) -> int:
        row = self.input_stride + _odd(COLUMNS)
        return next(t for t in (128, 64, 32) if t * row <= SHARED_NUMBERS)

    @property
    def shared_numbers(self) -> int:
        return self.threads * (self.input_stride + _odd(COLUMNS))

    def shared_bytes(self, dtype: str) -> int:
        return self.shared_numbers * (8 if dtype == "float64" else 4)

    @cached_property
    def cut(self) -> bool:
        """Whether registers do not suffice."""
        return self.program.counts().live > REGISTERS


def _odd(n: int) -> int:
    """Rows of odd length keep the columns of neighbouring threads in different banks of shared
    memory.
    """
    return n | 1


@dataclass
class Segment:
    """Statements, and the results that leave after them: (place in the tile, output, index)."""

    lines: list[str]
    flush: list[tuple[int, str, int]]


def render(f: ThreadFunction, prefix: str, ins: Names, outs: Names) -> str:
    """The kernel `{prefix}_thread_kernel` and its parts."""
    writer = Writer(f.program, lambda key, k: _read(f, ins, key, k), cut=f.cut)
    segments = writer.segments()
    parts, body, tables = [], [], []
    large = [k for k in f.program.inputs if k not in f.staged]
    for i, segment in enumerate(segments):
        if f.cut:
            more = "".join(f", GLOBAL const real *{ins[k]}_row" for k in large)
            parts.append(
                "\n".join(
                    [
                        (
                            f"PART void {prefix}_part{i}(LOCAL const real *in, LOCAL real *tile,"
                            f" real *work{more}) {{"
                        ),
                        *_indented(segment.lines, "  "),
                        *(
                            ["  (void)work;"]
                            if not any("work[" in x for x in segment.lines)
                            else []
                        ),
                        *(["  (void)in;"] if not any("ld(in" in x for x in segment.lines) else []),
                        *(
                            ["  (void)tile;"]
                            if not any("st(tile" in x for x in segment.lines)
                            else []
                        ),
                        *(
                            f"  (void){ins[k]}_row;"
                            for k in large
                            if not any(f"{ins[k]}_row[" in x for x in segment.lines)
                        ),
                        "}",
                    ]
                )
            )
            body.append(
                f"{prefix}_part{i}(in, tile, work{''.join(f', {ins[k]}_row' for k in large)});"
            )
        else:
            body += segment.lines
        flushed, table = _flush(f, outs, f"{prefix}_flush{i}", segment.flush)
        tables += table
        body += flushed
    filled, table = _fills(f, prefix, outs)
    tables += table
    arguments = ", ".join(
        [f"GLOBAL const real *{ins[k]}" for k in f.program.inputs]
        + [f"GLOBAL real *{outs[k]}" for k in f.program.outputs]
    )
    inputs = [
        f"for (int t = TID; t < rows * {size}; t += NTHR) st(s, (t / {size}) * {f.input_stride} +"
        f" {f.staged[k]} + t % {size}, {ins[k]}[(size_t)base * {size} + t]);"
        for k in f.staged
        if (size := math.prod(f.program.inputs[k]))
    ]
    rows = [
        f"GLOBAL const real *{ins[k]}_row = {ins[k]} + (size_t)(base + row) *"
        f" {math.prod(f.program.inputs[k])};"
        for k in large
    ]
    text = [
        f"KERNEL THREADS({f.threads}) {prefix}_thread_kernel(int n, {arguments}) {{",
        f"  ARENA(s, {f.shared_numbers});",
        *([f"  real work[{max(writer.slots, 1)}];"] if f.cut else []),
        "  for (int base = BID * NTHR; base < n; base += NBLK * NTHR) {",
        (
            "    const int rows = n - base < NTHR ? n - base : NTHR, row = TID < rows ? TID : 0; /*"
            " threads beyond the last row compute the first once more */"
        ),
        f"    LOCAL real *tile = s + {f.threads * f.input_stride} + {_odd(COLUMNS)} * TID;",
        f"    LOCAL const real *in = s + {f.input_stride} * row;",
        *_indented(inputs + rows, "    "),
        *(["    (void)row;"] if not f.staged and not large else []),
        "    SYNC",
        *_indented(filled, "    "),
        *_indented(body, "    "),
        "    SYNC",
        "  }",
        "}",
    ]
    return "\n".join([*tables, *parts, *text])


def render_state(
    f: ThreadFunction,
    prefix: str,
    ins: Names,
    outs: Names,
    *,
    in_global: Collection[str] = (),
    out_local: bool = False,
) -> str:
    """`{prefix}_state`: the function of one state for one thread, on pointers of its own, but for
    inputs `in_global` memory; for the host too.

    With `out_local`, results go to shared memory, where zeros are already, and there is none for
    the host.
    """

    def put(key: str, k: int, x: str) -> str:
        return f"st({outs[key]}, {k}, (real)({x}));" if out_local else f"{outs[key]}[{k}] = {x};"

    writer = Writer(f.program, lambda key, k: f"{ins[key]}[{k}]", cut=f.cut, store=put)
    function, part, out = (
        ("DEVICE", "PART", "LOCAL real") if out_local else ("BOTH", "BOTH_PART", "real")
    )
    arguments = ", ".join(
        [f"{'GLOBAL ' if k in in_global else ''}const real *{ins[k]}" for k in f.program.inputs]
        + [f"{out} *{outs[k]}" for k in f.program.outputs]
    )
    segments = writer.segments()
    names = [*(ins[k] for k in f.program.inputs), *(outs[k] for k in f.program.outputs)]
    parts = []
    lines = [
        put(key, k, real_number(x)) for key, k, x in constants(f.program) if x or not out_local
    ]
    for i, segment in enumerate(segments):
        if f.cut:
            unused = [
                x
                for x in names
                if not any(f"{x}[" in line or f"st({x}, " in line for line in segment.lines)
            ]
            silent = [f"(void){x};" for x in unused]
            parts.append(
                "\n".join(
                    [
                        f"{part} void {prefix}_state{i}({arguments}, real *work) {{",
                        *_indented(segment.lines + silent + ["(void)work;"], "  "),
                        "}",
                    ]
                )
            )
            lines.append(f"{prefix}_state{i}({', '.join(names)}, work);")
        else:
            lines += segment.lines
    work = [f"real work[{max(writer.slots, 1)}];"] if f.cut else []
    return "\n".join(
        [
            *parts,
            f"{function} void {prefix}_state({arguments}) {{",
            *_indented(work + lines, "  "),
            "}",
        ]
    )


def render_step(step: Step, function: str = "PART") -> str:
    """A Program of a kernel: a function, and its parts where registers do not suffice."""
    cut = step.program.counts().live > REGISTERS
    writer = Writer(step.program, step.read, cut=cut, store=step.write)
    fixed = [(key, k, x) for key, k, x in constants(step.program) if (key, k) not in step.left_out]
    lines = [step.write(key, k, real_number(x)) for key, k, x in fixed]
    arguments = (
        dict(step.arguments)
        | ({"late": "real *late"} if step.late else {})
        | ({"work": "real *work"} if cut else {})
    )
    parts = []
    for i, segment in enumerate(writer.segments()):
        if cut:
            name = f"{step.name}_part{i}"
            silent = [f"(void){x};" for x in arguments if not named(x, segment.lines)]
            text = [
                f"PART void {name}({', '.join(arguments.values())}) {{",
                *_indented(segment.lines + silent, "  "),
                "}",
            ]
            parts.append("\n".join(text))
            lines.append(f"{name}({', '.join(arguments)});")
        else:
            lines += segment.lines
    arrays = [
        f"real {name}[{size}];"
        for name, size in (("work", writer.slots if cut else 0), ("late", step.late))
        if size
    ]
    lines += step.after
    silent = [f"(void){x};" for x in step.arguments if not cut and not named(x, lines)]
    head = f"{function} void {step.name}({', '.join(step.arguments.values())}) {{"
    return "\n".join([*parts, head, *_indented([*arrays, *lines, *silent], "  "), "}"])


def named(name: str, lines: Sequence[str]) -> bool:
    word = re.compile(rf"\b{name}\b")
    return any(word.search(line) for line in lines)


def _indented(lines: list[str], by: str) -> list[str]:
    return [by + line for line in lines]


def _read(f: ThreadFunction, names: Names, key: str, k: int) -> str:
    return f"ld(in, {f.staged[key] + k})" if key in f.staged else f"{names[key]}_row[{k}]"


def _flush(
    f: ThreadFunction, names: Names, table: str, results: list[tuple[int, str, int]]
) -> tuple[list[str], list[str]]:
    """All threads write the tile's columns to their places, neighbours together."""
    if not results:
        return [], []
    lines, tables = ["SYNC"], []
    origin = f.threads * f.input_stride
    for o, key in enumerate(f.program.outputs):
        columns = sorted((index, slot) for slot, name, index in results if name == key)
        if not columns:
            continue
        size, count = math.prod(f.program.outputs[key]), len(columns)
        tables.append(
            array(
                f"TABLE unsigned short {table}_{o}",
                [str(x) for index, slot in columns for x in (slot, index)],
            )
        )
        lines += [
            f"for (int t = TID; t < rows * {count}; t += NTHR) {{",
            f"  const int r = t / {count}, c = t % {count};",
            (
                f"  {names[key]}[(size_t)(base + r) * {size} + {table}_{o}[2 * c + 1]] = ld(s,"
                f" {origin} + {_odd(COLUMNS)} * r + {table}_{o}[2 * c]);"
            ),
            "}",
        ]
    return [*lines, "SYNC"], tables


def constants(program: Program) -> list[tuple[str, int, float]]:
    """Results that do not depend on the inputs."""
    found, start = [], 0
    for key, shape in program.outputs.items():
        size = math.prod(shape)
        for k, r in enumerate(program.results[start : start + size]):
            if isinstance(r, float):
                found.append((key, k, r))
            elif program.nodes[r[1]][0] == "const":
                found.append((key, k, r[0] * program.nodes[r[1]][1]))
        start += size
    return found


def _fills(f: ThreadFunction, prefix: str, names: Names) -> tuple[list[str], list[str]]:
    by_value: dict[tuple[str, float], list[int]] = defaultdict(list)
    for key, k, x in constants(f.program):
        by_value[key, x].append(k)
    lines, tables = [], []
    for i, ((key, x), places) in enumerate(by_value.items()):
        size, count = math.prod(f.program.outputs[key]), len(places)
        tables.append(array(f"TABLE unsigned short {prefix}_fill{i}", [str(k) for k in places]))
        lines.append(
            f"for (int t = TID; t < rows * {count}; t += NTHR) {names[key]}[(size_t)(base + t /"
            f" {count}) * {size} + {prefix}_fill{i}[t % {count}]] = {real_number(x)};"
        )
    return lines, tables


class Writer:
    """Statements of a Program, in segments: results leave after each; with `cut`, each is a
    function of its own.
    """

    def __init__(
        self,
        program: Program,
        read: Callable[[str, int], str],
        *,
        cut: bool,
        store: Callable[[str, int, str], str] | None = None,
        spelling: Spelling = _C,
        part: int = PART,
    ):
        self.program, self.read, self.cut, self.store = program, read, cut, store
        self.spelling, self.part = spelling, part
        self.slots = 0
        self._free: list[int] = []
        self._slot: dict[int, int] = {}

    def segments(self) -> list[Segment]:
        program = self.program
        results = self._results()
        steps = [i for i, node in enumerate(program.nodes) if node[0] not in LEAVES or i in results]
        pieces = self._pieces(steps, results)
        piece_of = {i: p for p, piece in enumerate(pieces) for i in piece}
        last: dict[int, int] = {}
        for i in steps:
            if program.nodes[i][0] not in LEAVES:
                for j in program.nodes[i][1:]:
                    last[j] = max(last.get(j, 0), piece_of[i])
        ends: dict[int, list[int]] = defaultdict(list)
        for j, p in last.items():
            ends[p].append(j)
        segments = []
        for p, piece in enumerate(pieces):
            segment = Segment([], [])
            loaded: set[int] = set()
            angles: set[int] = set()
            for i in piece:
                self._statement(i, segment, loaded, angles, piece_of)
                for sign, key, k in results.get(i, ()):
                    x = f"{'-' if sign < 0 else ''}{self._operand(i, segment, loaded, piece_of, p)}"
                    if self.store:
                        segment.lines.append(self.store(key, k, x))
                    else:
                        slot = len(segment.flush)
                        segment.flush.append((slot, key, k))
                        segment.lines.append(f"st(tile, {slot}, (real)({x}));")
                if self.cut and last.get(i, p) > p and program.nodes[i][0] not in LEAVES:
                    segment.lines.append(f"{self.spelling.work.format(self._take(i))} = t{i};")
            if self.cut:
                self._free += [self._slot[j] for j in ends[p] if j in self._slot]
            segments.append(segment)
        return segments

    def _results(self) -> dict[int, list[tuple[int, str, int]]]:
        found: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
        start = 0
        for key, shape in self.program.outputs.items():
            size = math.prod(shape)
            for k, r in enumerate(self.program.results[start : start + size]):
                if isinstance(r, tuple) and self.program.nodes[r[1]][0] != "const":
                    found[r[1]].append((r[0], key, k))
            start += size
        return found

    def _pieces(
        self, steps: list[int], results: Mapping[int, list[tuple[int, str, int]]]
    ) -> list[list[int]]:
        """Where to cut: when the tile is full, and, where registers do not suffice, after so many
        statements.
        """
        pieces: list[list[int]] = []
        piece: list[int] = []
        columns = 0
        for i in steps:
            more = 0 if self.store else len(results.get(i, ()))
            if piece and (columns + more > COLUMNS or (self.cut and len(piece) >= self.part)):
                pieces.append(piece)
                piece, columns = [], 0
            piece.append(i)
            columns += more
        return [*pieces, piece] if piece else pieces

    def _take(self, i: int) -> int:
        if not self._free:
            self._free.append(self.slots)
            self.slots += 1
        self._slot[i] = self._free.pop()
        return self._slot[i]

    def _operand(
        self, j: int, segment: Segment, loaded: set[int], piece_of: Mapping[int, int], piece: int
    ) -> str:
        kind, *rest = self.program.nodes[j]
        if kind == "const":
            return self.spelling.number(rest[0])
        if kind == "input":
            return self.read(rest[0], rest[1])
        if self.cut and piece_of[j] != piece and j not in loaded:
            loaded.add(j)
            self._declare(segment, f"t{j}", self.spelling.work.format(self._slot[j]))
        return f"t{j}"

    def _statement(
        self,
        i: int,
        segment: Segment,
        loaded: set[int],
        angles: set[int],
        piece_of: Mapping[int, int],
    ) -> None:
        kind, *operands = self.program.nodes[i]
        if kind in LEAVES:
            return
        piece = piece_of[i]
        if kind in ("sin", "cos"):
            # sine and cosine of one angle come together
            j = operands[0]
            name = f"{kind[0]}{j}"
            if self.cut or j not in self._angles:
                if j not in angles:
                    angles.add(j)
                    x = self._operand(j, segment, loaded, piece_of, piece)
                    segment.lines += self.spelling.angle(j, x)
                if not self.cut:
                    self._angles.add(j)
            self._declare(segment, f"t{i}", name)
            return
        values = [self._operand(j, segment, loaded, piece_of, piece) for j in operands]
        self._declare(segment, f"t{i}", self.spelling.operations[kind].format(*values))

    def _declare(self, segment: Segment, name: str, value: str) -> None:
        segment.lines.append(self.spelling.declare.format(name, value))

    @cached_property
    def _angles(self) -> set[int]:
        """Angles whose sine and cosine are known, where all segments are one function."""
        return set()
