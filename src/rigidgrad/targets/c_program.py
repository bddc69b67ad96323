"""A Program as functions in C, over macros for the type of its numbers.

A function is cut into parts of a few hundred statements, which pass what they share through a work
array: compilers take time that grows faster than a function's length, and one of 40,000 statements
took gcc minutes instead of seconds.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rigidgrad.program.program import LEAVES
from rigidgrad.targets.cstyle_kernel import Step, indented

PART = 300  # statements; both the time to compile and to run have a flat minimum around it

_STATEMENTS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "fma": "FMA({}, {}, {})",
    "fms": "FMS({}, {}, {})",
    "fnma": "FNMA({}, {}, {})",
    "fnms": "FNMS({}, {}, {})",
    "sin": "SIN({})",
    "cos": "COS({})",
    "sqrt": "SQRT({})",
    "atan2": "ATAN2({}, {})",
    "min": "MIN({}, {})",
    "max": "MAX({}, {})",
    "select": "SELECT({}, {}, {}, {})",
}


def render(step: Step) -> str:
    """The parts of a function, and the function that calls them, over REAL."""
    program = step.program
    steps = [i for i, node in enumerate(program.nodes) if node[0] not in LEAVES]
    part_of = {i: place // PART for place, i in enumerate(steps)}
    last: dict[int, int] = {}  # the last part that uses a value
    for i in steps:
        for j in program.nodes[i][1:]:
            last[j] = part_of[i]
    writes, direct = _writes(step)
    slots = _Slots()
    declared = (
        dict(step.arguments)
        | {"work": "REAL *restrict work"}
        | ({"late": "REAL *restrict late"} if step.late else {})
    )
    texts, calls = [], []
    count = max(part_of.values(), default=-1) + 1
    for part in range(count):
        slots.reuse(part)
        lines: list[str] = []
        loaded: set[int] = set()

        def operand(
            j: int, part: int = part, lines: list[str] = lines, loaded: set[int] = loaded
        ) -> str:
            kind, *rest = program.nodes[j]
            if kind == "const":
                return number(rest[0])
            if kind == "input":
                return step.read(rest[0], rest[1])
            if part_of[j] != part and j not in loaded:
                loaded.add(j)
                lines.append(f"const REAL t{j} = work[{slots.of[j]}];")
            return f"t{j}"

        for i in steps[part * PART : (part + 1) * PART]:
            kind, *operands = program.nodes[i]
            lines.append(f"const REAL t{i} = {_STATEMENTS[kind].format(*map(operand, operands))};")
            lines += [
                step.write(key, k, f"{'-' if sign < 0 else ''}t{i}") for sign, key, k in writes[i]
            ]
            if last.get(i, part) > part:
                lines.append(f"work[{slots.take(i, last[i])}] = t{i};")
        if count == 1:
            calls = lines
            break
        names = _named_in(lines, declared)
        name = f"NAME({step.name}__part{part})"
        texts.append(
            "\n".join(
                [
                    f"static void {name}({', '.join(declared[x] for x in names)})",
                    "{",
                    *indented(lines),
                    "}",
                    "",
                ]
            )
        )
        calls.append(f"{name}({', '.join(names)});")
    arrays = [
        f"REAL {name}[{size}];"
        for name, size in (("work", slots.size), ("late", step.late))
        if size
    ]
    lines = [*direct, *calls, *step.after]
    named = _named_in(lines, step.arguments)
    lines += [f"(void){name};" for name in step.arguments if name not in named]
    texts.append(
        "\n".join(
            [
                f"static void NAME({step.name})({', '.join(step.arguments.values())})",
                "{",
                *indented([*arrays, *lines]),
                "}",
            ]
        )
    )
    return "\n".join(texts)


def _named_in(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    found = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
    return [name for name in names if name in found]


class _Slots:
    """Places in the work array for values that later parts need; a place is free again after the
    last of them.
    """

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.size = 0
        self._free: list[int] = []
        self._until: dict[int, list[int]] = defaultdict(list)

    def take(self, i: int, last_part: int) -> int:
        if not self._free:
            self._free.append(self.size)
            self.size += 1
        self.of[i] = self._free.pop()
        self._until[last_part].append(self.of[i])
        return self.of[i]

    def reuse(self, part: int) -> None:
        self._free += self._until.pop(part - 1, [])


def _writes(step: Step) -> tuple[dict[int, list[tuple[int, str, int]]], list[str]]:
    """Per node the outputs that it is; and statements for outputs that are constants or inputs."""
    program = step.program
    writes: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    direct: list[str] = []
    start = 0
    for key, shape in program.outputs.items():
        constants: dict[int, str] = {}
        for k, r in enumerate(program.results[start : start + math.prod(shape)]):
            if (key, k) in step.left_out:
                continue
            if isinstance(r, float):
                constants[k] = number(r)
                continue
            kind, *rest = program.nodes[r[1]]
            if kind not in LEAVES:
                writes[r[1]].append((r[0], key, k))
            elif kind == "const":
                constants[k] = number(r[0] * rest[0])
            else:
                direct.append(
                    step.write(key, k, f"{'-' if r[0] < 0 else ''}{step.read(rest[0], rest[1])}")
                )
        direct += (
            step.fill(key, constants)
            if step.fill
            else [step.write(key, k, x) for k, x in constants.items()]
        )
        start += math.prod(shape)
    return writes, direct


def filled(name: str, constants: Mapping[int, str]) -> list[str]:
    """Statements that store constants, a loop where many neighbours are the same."""
    lines, places = [], list(constants)
    while places:
        first = places[0]
        end = first
        while constants.get(end) == constants[first]:
            end += 1
        if end - first > 3:
            lines.append(
                f"{{ int i; for (i = {first}; i < {end}; ++i) {name}[i] = {constants[first]}; }}"
            )
        else:
            lines += [f"{name}[{k}] = {constants[k]};" for k in range(first, end)]
        places = places[end - first :]
    return lines


def number(x: float) -> str:
    """A constant of the type REAL."""
    if math.isnan(x):
        return "WIDE(NAN)"
    if math.isinf(x):
        return "WIDE(INFINITY)" if x > 0 else "-WIDE(INFINITY)"
    return f"NUMBER({x!r})" if x >= 0 else f"-NUMBER({-x!r})"
