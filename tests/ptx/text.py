"""PTX text as modules of functions: statements, labels, registers, memory that is there at the
start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

TYPES = {
    f"{kind}{bits}": np.dtype(f"{numpy}{bits // 8}")
    for kind, numpy, sizes in (
        ("b", "u", (8, 16, 32, 64)),
        ("u", "u", (8, 16, 32, 64)),
        ("s", "i", (8, 16, 32, 64)),
        ("f", "f", (32, 64)),
    )
    for bits in sizes
} | {"pred": np.dtype(bool)}
# where spaces begin: an address tells its space, so that generic ones need no conversion
SHARED, LOCAL, GLOBAL = 1 << 20, 1 << 24, 1 << 28
_ENDS = ("bra", "ret", "exit", "call", "bar", "trap")


@dataclass(frozen=True)
class Statement:
    operation: str
    operands: tuple[str, ...]
    guard: str | None = None  # a predicate register
    negated: bool = False

    @property
    def name(self) -> str:
        return self.operation.partition(".")[0]

    @property
    def type(self) -> str:
        return self.operation.rpartition(".")[2]


@dataclass
class Function:
    """`code` by place; `pieces` are where straight pieces of it start and end."""

    name: str
    entry: bool
    parameters: list[str]
    results: list[str]
    registers: dict[str, str] = field(default_factory=dict)  # their types
    code: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # of variables of its own
    local_bytes: int = 0

    @property
    def starts(self) -> list[int]:
        after = {k + 1 for k, s in enumerate(self.code) if s.name in _ENDS}
        at = {k for k, s in enumerate(self.code) if s.name in ("bar", "call")}
        return sorted(k for k in {0, *self.labels.values(), *after, *at} if k < len(self.code))


class Module:
    """`image` is global memory at the start; `places` are addresses of variables."""

    def __init__(self, text: str):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        text = re.sub(r"//[^\n]*", "", text)
        self.image = bytearray()
        self.places: dict[str, int] = {}
        self.constants: list[range] = []  # addresses of what is in constant memory
        self.shared_bytes = 0
        self.functions: dict[str, Function] = {}
        outside = list(self._split(text))
        for head, body in outside:
            for declaration in re.split(r";", head)[: None if body is None else -1]:
                self._variable(declaration)
        for head, body in outside:
            if body is not None:
                self._function(head.rpartition(";")[2], body)

    def _split(self, text: str):
        """(what stands before a function's body with its head, the body)."""
        at = 0
        for match in re.finditer(r"^\{[ \t]*$", text, re.M):
            if match.start() < at:
                continue
            end = re.compile(r"^\}", re.M).search(text, match.end())
            assert end is not None
            yield text[at : match.start()], text[match.end() : end.start()]
            at = end.end()
        yield text[at:], None

    def _variable(self, declaration: str) -> tuple[str, str] | None:
        """Gives a variable its place; says the space of those in local memory."""
        found = re.search(
            r"\.(global|const|shared|local)\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)"
            r"(?:\[(\d*)\])?(?:\s*=\s*(.*))?$",
            declaration.strip(),
            re.S,
        )
        if not found:
            return None
        space, align, kind, name, count, values = found.groups()
        size = int(count or (1 if count is None else 0)) * TYPES[kind].itemsize
        if space == "local":
            return name, str(size)
        if space == "shared":
            self.shared_bytes = -(-self.shared_bytes // 16) * 16
            self.places[name] = SHARED + self.shared_bytes
            self.shared_bytes += size
            return None
        self.image += bytes(-len(self.image) % max(int(align), 16))
        self.places[name] = GLOBAL + len(self.image)
        listed = [number(x, kind) for x in re.findall(r"[\w.+-]+", values or "")]
        numbers = np.zeros(size // TYPES[kind].itemsize, TYPES[kind])
        numbers[: len(listed)] = listed
        if space == "const":
            start = self.places[name]
            self.constants.append(range(start, start + size))
        self.image += numbers.tobytes()
        return None

    def _function(self, head: str, body: str) -> None:
        found = re.search(r"\.(entry|func)\s+(\([^)]*\))?\s*([\w$]+)\s*\(([^)]*)\)", head)
        if not found:
            return
        kind, result, name, parameters = found.groups()
        names = [
            re.findall(r"[\w$]+", p.partition("[")[0])[-1]
            for p in parameters.split(",")
            if p.strip()
        ]
        results = [re.findall(r"[\w$]+", result.partition("[")[0])[-1]] if result else []
        f = self.functions[name] = Function(name, kind == "entry", names, results)
        body = _SCOPE.sub(_unscoped(), body)
        for piece in body.split(";"):
            rest = piece.strip()
            while label := re.match(r"([\w$]+):\s*", rest):
                f.labels[label.group(1)] = len(f.code)
                rest = rest[label.end() :]
            if rest:
                self._statement(f, rest)

    def _statement(self, f: Function, text: str) -> None:
        if registers := re.match(r"\.reg\s+\.(\w+)\s+(.*)", text, re.S):
            for x in registers.group(2).split(","):
                many = re.match(r"\s*(%\w+)<(\d+)>", x)
                names = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [x.strip()]
                f.registers |= dict.fromkeys(names, registers.group(1))
        elif text.startswith("."):
            if local := self._variable(text):
                name, size = local
                f.places[name] = f.local_bytes
                f.local_bytes += -(-int(size) // 16) * 16
        else:
            found = re.match(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)", text, re.S)
            assert found, text
            negated, guard, operation, operands = found.groups()
            f.code.append(Statement(operation, _operands(operands), guard, negated == "!"))


# braces of operands stand inside a line
_SCOPE = re.compile(r"^[ \t]*\{((?:[^{}]|\{[^{}\n]*\})*)\}[ \t]*$", re.M)


def _unscoped():
    """Gives registers of a scope names of their own."""
    scopes = iter(range(1 << 30))

    def replaced(found: re.Match[str]) -> str:
        text, scope = found.group(1), next(scopes)
        for names in re.findall(r"\.reg\s+\.\w+\s+([^;]*);", text):
            for name in names.split(","):
                text = re.sub(rf"{name.strip()}\b", f"{name.strip()}_{scope}", text)
        return text

    return replaced


def _operands(text: str) -> tuple[str, ...]:
    """Between commas outside brackets."""
    found, depth = [""], 0
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return tuple(x.strip() for x in found if x.strip())


def number(text: str, kind: str) -> np.generic:
    """A constant as a number of a type."""
    dtype = TYPES[kind]
    if text[:2] in ("0f", "0F"):
        return np.uint32(int(text[2:], 16)).view(np.float32).astype(dtype)
    if text[:2] in ("0d", "0D"):
        return np.uint64(int(text[2:], 16)).view(np.float64).astype(dtype)
    if kind == "pred":
        return np.bool_(text in ("1", "true", "-1"))
    if dtype.kind == "f":
        return dtype.type(float(text))
    whole = int(text.rstrip("U"), 0) & ((1 << 8 * dtype.itemsize) - 1)
    return np.dtype(f"u{dtype.itemsize}").type(whole).view(dtype)
