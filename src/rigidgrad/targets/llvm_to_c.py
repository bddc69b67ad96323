"""LLVM IR that was written here, as C: what is emitted for this process can then run elsewhere,
with the same operations in the same order and so with the same bits.

It knows the instructions that `llvm_matrix` writes, no others: each value becomes a constant of its
own, a block a label, a phi a variable that is set before the jump. Vectors are the type `vec` of
`c_solver/code/vectors.h`, by name only, so that any C99 compiler can have one.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence

from rigidgrad.errors import RigidgradError

_NAME = re.compile(r"%[\w.]+")
_ASSIGN = re.compile(r"^(%[\w.]+) = (.*)$")
_TYPES = {"double": "double", "i64": "long", "i1": "int", "ptr": "double *"}
_DECLARED = re.compile(r"    (?:const )?(?:double |long |int |vec |double \*const )(t_\w+) = ")
_COMPARE = {"ogt": ">", "olt": "<", "oge": ">=", "ole": "<="}
_INTEGER = {"slt": "<", "sge": ">=", "sgt": ">", "sle": "<="}
_BINARY = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
_LOGICAL = {"and": "&", "or": "|", "xor": "^", "add": "+", "sub": "-", "mul": "*"}
_VECTOR_OF = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def function(ir: str, name: str, context: Mapping[str, str]) -> str:
    """The one function of a module, `define void @…(ptr %context, i64 %from, i64 %to)`, as C:
    `static void name(const name__context *context, long from, long to)` with a structure of
    pointers. `context` has their names and the C types of what they point to, in the order of its
    words.
    """
    lines = [line.strip() for line in ir.splitlines()]
    first = next(k for k, line in enumerate(lines) if line.startswith("define"))
    last = lines.index("}", first)
    body = [line for line in lines[first + 1 : last] if line]
    return _Function(body, list(context)).text(name, context)


def number(literal: str) -> str:
    """A constant of the IR as one of C, exactly."""
    if literal.startswith("0x"):
        value = struct.unpack(">d", bytes.fromhex(literal[2:].rjust(16, "0")))[0]
        if value != value or value in (float("inf"), float("-inf")):
            return "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"
        return repr(value) if value >= 0 else f"({value!r})"
    if literal in ("true", "false"):
        return "1" if literal == "true" else "0"
    return literal


class _Function:
    def __init__(self, body: Sequence[str], words: Sequence[str]):
        self.body, self.words = body, words
        self.kinds: dict[str, str] = {}
        self.address: dict[str, tuple[str, int]] = {}  # base and offset, of pointers to numbers
        self.word: dict[str, int] = {}  # pointers to words of the context
        self.alias: dict[str, str] = {}
        self.phis: dict[str, list[tuple[str, str, dict[str, str]]]] = {}
        self._find_phis()

    def _find_phis(self) -> None:
        block = ""
        for line in self.body:
            if line.endswith(":"):
                block = line[:-1]
            elif (m := _ASSIGN.match(line)) and m[2].startswith("phi"):
                kind, rest = _typed(m[2].removeprefix("phi "))
                pairs = re.findall(r"\[ ([^,]+), %([\w.]+) \]", rest)
                incoming = {source: value for value, source in pairs}
                self.phis.setdefault(block, []).append((m[1], kind, incoming))

    def text(self, name: str, context: Mapping[str, str]) -> str:
        lines: list[str] = []
        block = "entry"
        for line in self.body:
            if line.endswith(":"):
                block = line[:-1]
                if block != "entry":
                    lines.append(f"{_label(block)}:;")
            elif m := _ASSIGN.match(line):
                if not m[2].startswith("phi"):
                    lines += self._value(m[1], m[2])
            else:
                lines += [f"    {x}" for x in self._effect(line, block)]
        declared = [
            f"    {_c_type(kind)}{_variable(value)};"
            for phis in self.phis.values()
            for value, kind, _ in phis
        ]
        lines = _without_idle(lines)
        members = "\n".join(f"    {kind} *{word};" for word, kind in context.items())
        return "\n".join(
            [
                f"typedef struct {{\n{members}\n}} {name}__context;",
                "",
                f"static void {name}(const {name}__context *context, long from, long to)",
                "{",
                *declared,
                *lines,
                "}",
            ]
        )

    # --- values -----------------------------------------------------------------------------------

    def _value(self, name: str, text: str) -> list[str]:
        operation, _, rest = text.partition(" ")
        kind, expression = self._expression(name, operation, rest)
        self.kinds[name] = kind
        if not expression:
            return []
        constant = "const " if not kind.startswith("ptr") else ""
        declared = _c_type(kind)
        if kind == "ptr":
            declared = "double *const "
            constant = ""
        return [f"    {constant}{declared}{_variable(name)} = {expression};"]

    def _expression(self, name: str, operation: str, rest: str) -> tuple[str, str]:
        """A value's type and expression; none of what is only an address or another's name."""
        match operation:
            case "getelementptr":
                return "ptr", self._element(name, rest)
            case "load":
                kind, place = re.fullmatch(r"(.+), ptr ([^,]+)(?:, align \d+)?", rest).groups()  # type: ignore[union-attr]
                if kind == "ptr":
                    self.alias[name] = f"context->{self.words[self.word[place]]}"
                    return "ptr", ""
                return kind, f"vec_load({self._place(place)})" if _is_vector(
                    kind
                ) else f"*({self._place(place)})"
            case "call":
                m = re.fullmatch(r"(.+) @llvm\.(\w+)\.\w+\((.*)\)", rest)
                assert m is not None
                kind = m[1]
                arguments = [self._typed_operand(x) for x in _split(m[3])]
                call = f"vec_{m[2]}" if _is_vector(kind) else {"fma": "fma", "sqrt": "sqrt"}[m[2]]
                return kind, f"{call}({', '.join(arguments)})"
            case "fadd" | "fsub" | "fmul" | "fdiv":
                kind, rest = _typed(rest)
                a, b = (self._operand(x, kind) for x in _split(rest))
                sign = _BINARY[operation]
                if _is_vector(kind):
                    return kind, f"vec_{_VECTOR_OF[sign]}({a}, {b})"
                return kind, f"{a} {sign} {b}"
            case "fneg":
                kind, rest = _typed(rest)
                a = self._operand(rest, kind)
                return kind, f"vec_neg({a})" if _is_vector(kind) else f"-{a}"
            case "and" | "or" | "xor" | "add" | "sub" | "mul":
                kind, rest = _typed(rest)
                a, b = (self._operand(x, kind) for x in _split(rest))
                return kind, f"{a} {_LOGICAL[operation]} {b}"
            case "icmp" | "fcmp":
                predicate, _, rest = rest.partition(" ")
                kind, rest = _typed(rest)
                a, b = (self._operand(x, kind) for x in _split(rest))
                signs = _INTEGER if operation == "icmp" else _COMPARE
                return "i1", f"{a} {signs[predicate]} {b}"
            case "select":
                return self._select(rest)
            case "insertelement" | "extractelement" | "shufflevector":
                return self._lanes(operation, _split(rest), name)
        raise RigidgradError(f"there is no C for the instruction {operation!r}")

    def _element(self, name: str, rest: str) -> str:
        kind, base, offset = re.fullmatch(r"(\S+), ptr (\S+), i64 (\S+)", rest).groups()  # type: ignore[union-attr]
        if base == "%context":
            self.word[name] = int(offset)
            return ""
        if not offset.startswith("%"):
            own, known = self.address.get(base, (base, 0))
            self.address[name] = own, known + int(offset)
            return ""
        if kind not in ("double", "i64"):
            raise AssertionError(f"elements of type {kind}")
        if kind == "i64":
            self.alias[name] = f"({self._place(base)} + {_variable(offset)})"
            return ""
        return f"{self._place(base)} + {_variable(offset)}"

    def _place(self, pointer: str) -> str:
        base, offset = self.address.get(pointer, (pointer, 0))
        text = self.alias.get(base) or _variable(base)
        return f"{text} + {offset}" if offset else text

    def _select(self, rest: str) -> tuple[str, str]:
        condition, a, b = _split(rest)
        mask, chosen = _typed(condition)
        kind, first = _typed(a)
        second = _typed(b)[1]
        first, second = self._operand(first, kind), self._operand(second, kind)
        if _is_vector(mask):
            bits = [x.split()[1] == "true" for x in _split(chosen[1:-1])]
            number = sum(1 << k for k, bit in enumerate(bits) if bit)
            return kind, f"vec_blend({first}, {second}, {number})"
        return kind, f"{self._operand(chosen, 'i1')} ? {first} : {second}"

    def _lanes(self, operation: str, parts: list[str], name: str) -> tuple[str, str]:
        kind, vector = _typed(parts[0])
        if operation == "insertelement":
            value, lane = self._typed_operand(parts[1]), parts[2].split()[1]
            if vector == "poison":  # a number in all lanes: the shuffle behind does nothing more
                self.alias[name] = value
                return "splat", ""
            return kind, f"vec_with({self._operand(vector, kind)}, {lane}, {value})"
        if operation == "extractelement":
            return "double", f"vec_at({self._operand(vector, kind)}, {parts[1].split()[1]})"
        if self.kinds.get(vector) == "splat":
            return kind, f"vec_splat({self.alias[vector]})"
        other, mask = _typed(parts[1])[1], parts[2]
        places = (
            [0] * _width(kind)
            if mask.endswith("zeroinitializer")
            else [int(x) for x in re.findall(r"i32 (\d+)", mask)]
        )
        a = self._operand(vector, kind)
        if len(set(places)) == 1:
            return kind, f"vec_spread({a}, {places[0]})"
        b = a if other == "poison" else self._operand(other, kind)
        return kind, f"vec_shuffle({a}, {b}, {', '.join(map(str, places))})"

    # --- what is no value -------------------------------------------------------------------------

    def _effect(self, line: str, block: str) -> list[str]:
        if line == "ret void":
            return ["return;"]
        if line.startswith("store "):
            m = re.fullmatch(r"store (.+), ptr ([^,]+)(?:, align \d+)?", line)
            assert m is not None
            kind, value = _typed(m[1])
            place = self._place(m[2])
            if _is_vector(kind):
                return [f"vec_store({place}, {self._operand(value, kind)});"]
            return [f"*({place}) = {self._operand(value, kind)};"]
        if m := re.fullmatch(r"br label %([\w.]+)", line):
            return [*self._before(block, m[1]), f"goto {_label(m[1])};"]
        if m := re.fullmatch(r"br i1 (\S+), label %([\w.]+), label %([\w.]+)", line):
            condition = self._operand(m[1], "i1")
            yes, no = (
                " ".join([*self._before(block, target), f"goto {_label(target)};"])
                for target in (m[2], m[3])
            )
            return [f"if ({condition}) {{ {yes} }}", no]
        raise RigidgradError(f"there is no C for {line!r}")

    def _before(self, block: str, target: str) -> list[str]:
        """Sets the phis of a block that is jumped to, as if all at once."""
        moves = [
            (value, kind, incoming[block]) for value, kind, incoming in self.phis.get(target, ())
        ]
        own = {value for value, _, _ in moves}
        kept = [
            (value, kind, source)
            for value, kind, source in moves
            if source in own and source != value
        ]
        lines = [
            f"{_c_type(kind)}{_variable(value)}_ = {self._operand(source, kind)};"
            for value, kind, source in kept
        ]
        lines += [
            f"{_variable(value)} = {self._operand(source, kind)};"
            for value, kind, source in moves
            if source != value and (value, kind, source) not in kept
        ]
        lines += [f"{_variable(value)} = {_variable(value)}_;" for value, _, _ in kept]
        return ["{", *lines, "}"] if kept else lines

    def _typed_operand(self, text: str) -> str:
        kind, value = _typed(text)
        return self._operand(value, kind)

    def _operand(self, text: str, kind: str) -> str:
        if text.startswith("%"):
            return self._place(text) if kind == "ptr" else _variable(text)
        if text == "zeroinitializer":
            return "vec_splat(0.0)"
        if text.startswith("<"):
            items = {x.split()[1] for x in _split(text[1:-1])}
            if len(items) == 1:
                return f"vec_splat({number(items.pop())})"
            raise RigidgradError(f"there is no C for the constant {text!r}")
        return number(text)


def _is_vector(kind: str) -> bool:
    return kind.startswith("<")


def _width(kind: str) -> int:
    return int(kind[1:].split()[0])


def _c_type(kind: str) -> str:
    return "vec " if _is_vector(kind) else _TYPES[kind] + ("" if kind == "ptr" else " ")


def _variable(name: str) -> str:
    if name in ("%from", "%to"):
        return name[1:]
    return "t_" + re.sub(r"\W", "_", name[1:])


def _label(name: str) -> str:
    return "l_" + re.sub(r"\W", "_", name)


def _typed(text: str) -> tuple[str, str]:
    """ "<4 x double> %x" as its type and the rest."""
    if text.startswith("<"):
        end = text.index(">") + 1
        return text[:end], text[end:].strip()
    kind, _, rest = text.partition(" ")
    return kind, rest


def _split(text: str) -> list[str]:
    """At commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += (c in "<([") - (c in ">)]")
        if c == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    return [*parts, text[start:].strip()]


def _without_idle(lines: list[str]) -> list[str]:
    """Without values that nobody reads, as addresses of which only a part is told apart."""
    while True:
        wanted = Counter(re.findall(r"\bt_\w+", "\n".join(lines)))
        kept = [x for x in lines if not ((m := _DECLARED.match(x)) and wanted[m[1]] == 1)]
        if len(kept) == len(lines):
            return lines
        lines = kept
