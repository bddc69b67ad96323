"""Kernels as text of C and its relatives: Programs and products are functions, loops stay loops. A
`Dialect` says how a language spells it.

One state at a time: a number is a REAL of the dialect, which in C may be a vector whose lanes are
states. Neighbouring numbers of a state are `stride` places apart, so that threads of a GPU that
work on neighbouring states read neighbouring addresses.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rigidgrad.kernels.language import (
    Array,
    Call,
    Choose,
    Index,
    Kernel,
    Lookup,
    Loop,
    Product,
    Role,
    Statement,
    Table,
    Variable,
    View,
)
from rigidgrad.kernels.structure import written_once
from rigidgrad.program.program import Program
from rigidgrad.targets.names import comment

LINE = 136  # characters of a line of a table


@dataclass(frozen=True)
class Step:
    """A Program as a function: its name, the declarations of its arguments by name, and how its
    numbers are read and written.

    Results that are left out are zero already. With `late` numbers to be kept in an array of that
    name, statements `after` it write them.
    """

    name: str
    program: Program
    arguments: Mapping[str, str]
    read: Callable[[str, int], str]
    write: Callable[[str, int, str], str]
    left_out: frozenset[tuple[str, int]] = frozenset()
    late: int = 0
    after: Sequence[str] = ()
    fill: Callable[[str, Mapping[int, str]], list[str]] | None = (
        None  # several constants of a result at once
    )


class Dialect(ABC):
    """A language of the family: types, qualifiers, names."""

    real: str  # a number of a state
    function = "static void"
    state = ""  # address space of a state's numbers
    constant = ""  # and of what is the same for all states
    restrict = ""
    stride = 1

    @abstractmethod
    def name(self, name: str) -> str:
        """A function's name where it is defined or called."""

    @abstractmethod
    def constant_name(self, name: str) -> str: ...

    @abstractmethod
    def constant_type(self) -> str: ...

    @abstractmethod
    def widened(self, constant: str) -> str:
        """A number of a constant array as one of a state."""

    def ended(self, x: str) -> str:
        """Whether a number is positive, for all states that run together."""
        return f"{x} > 0"

    @abstractmethod
    def number(self, x: float) -> str: ...

    @abstractmethod
    def step(self, step: Step) -> str:
        """The text of a function that runs a Program."""

    def place(self, places: int) -> int:
        return self.stride * places

    def pointer(
        self, name: str, *, written: bool = False, constant: bool = False, restrict: bool = True
    ) -> str:
        """The declaration of an argument."""
        space, kind = (self.constant, self.constant_type()) if constant else (self.state, self.real)
        return (
            f"{space}{'' if written else 'const '}{kind} *{self.restrict if restrict else ''}{name}"
        )


class Statements(ABC):
    """Loops and choices as text; who derives from it writes calls and products. `tables` are those
    that indices name, `functions` what stands before.
    """

    prefix: str
    tables: dict[Table, str]
    functions: list[str]

    @abstractmethod
    def _call(self, call: Call) -> str: ...

    @abstractmethod
    def _product(self, product: Product) -> str: ...

    @abstractmethod
    def _ended(self, done: View) -> str:
        """Whether the number of a loop's condition is positive."""

    def constant_name(self, k: int) -> str:
        return f"{self.prefix}_constant{k}"

    def _statements(self, body: Sequence[Statement]) -> Iterator[str]:
        for statement in body:
            match statement:
                case Call():
                    yield self._call(statement)
                case Product():
                    yield self._product(statement)
                case Loop(body=inner, done=done):
                    yield self._loop_head(statement)
                    if done:
                        yield f"    if ({self._ended(done)}) break;"
                    yield from indented(self._statements(inner))
                    yield "}"
                case Choose(index, bodies):
                    yield from self._switch(index, [self._statements(inner) for inner in bodies])

    def _loop_head(self, loop: Loop) -> str:
        i, n = loop.variable.name, self._index(loop.count)
        if loop.reverse:
            return f"for (int {i} = {n} - 1; {i} >= 0; --{i}) {{"
        return f"for (int {i} = 0; {i} < {n}; ++{i}) {{"

    def _switch(self, index: Index, bodies: Sequence[Iterator[str]]) -> Iterator[str]:
        yield f"switch ({self._index(index)}) {{"
        for k, inner in enumerate(bodies):
            yield f"case {k}:"
            yield from indented([*inner, "break;"])
        yield "default:"
        yield "    break;"
        yield "}"

    def _index(self, index: Index) -> str:
        terms = []
        for atom, coefficient in index.terms:
            x = (
                f"{self._table(atom.table)}[{self._index(atom.index)}]"
                if isinstance(atom, Lookup)
                else _variable(atom)
            )
            terms.append(x if coefficient == 1 else f"{coefficient} * {x}")
        if index.constant or not terms:
            terms.append(str(index.constant))
        return " + ".join(terms)

    def _table(self, table: Table) -> str:
        return self.tables.setdefault(table, f"{self.prefix}_table{len(self.tables)}")


@dataclass
class KernelText(Statements):
    """The text of a kernel: `tables` and `constants` by name, `functions` in order, `{prefix}`
    last. Arrays `in_work` are places of its work, others its arguments.
    """

    dialect: Dialect
    kernel: Kernel
    prefix: str
    in_work: Sequence[Array]
    tables: dict[Table, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    _bases: dict[Array, str] = field(default_factory=dict)
    _parts: dict[tuple[object, ...], str] = field(default_factory=dict)
    _products: dict[tuple[object, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        d, kernel = self.dialect, self.kernel
        roles: tuple[Role, ...] = ("input", "carried", "output")
        arguments = [a for role in roles for a in kernel.of(role) if a not in self.in_work]
        for k, a in enumerate(arguments):
            self._bases[a] = f"x{k}"
        for k, a in enumerate(kernel.of("constant")):
            self._bases[a] = d.constant_name(self.constant_name(k))
        local, offset = {}, 0
        for k, a in enumerate(self.in_work):
            self._bases[a] = f"w{k}"
            local[f"w{k}"] = (a, offset)
            offset += a.size
        self.work = offset
        self._alone = written_once(kernel.body)
        body = list(self._statements(kernel.body))
        used = set(re.findall(r"\b[wx]\d+\b", "\n".join(body)))
        lines = [
            f"{d.state}{d.real} *const {name} = work + {d.place(start)}; /* {comment(a.name)}"
            f" {comment(str(a.shape))} */"
            for name, (a, start) in local.items()
            if name in used
        ]
        silent = [f"(void){self._bases[a]};" for a in arguments if self._bases[a] not in used]
        if not lines:
            silent.append("(void)work;")
        declared = [d.pointer(self._bases[a], written=a.role != "input") for a in arguments]
        head = (
            f"{d.function}"
            f" {d.name(self.prefix)}({', '.join([*declared, d.pointer('work', written=True)])})"
        )
        self.functions.append("\n".join([head, "{", *indented([*lines, *silent, *body]), "}"]))

    def _ended(self, done: View) -> str:
        return self.dialect.ended(f"*({self._pointer(done)})")

    def _call(self, call: Call) -> str:
        views = (*call.inputs.values(), *call.outputs.values())
        zeros = tuple(view.array in self._alone for view in call.outputs.values())
        shared = tuple(view.array.role == "constant" for view in call.inputs.values())
        in_place = not {v.array for v in call.inputs.values()}.isdisjoint(
            v.array for v in call.outputs.values()
        )
        program = call.program
        same = (
            tuple(program.inputs.items()),
            tuple(program.outputs.items()),
            program.nodes,
            program.results,
        )
        key = same, tuple(tuple(v.places()) for v in views), zeros, shared, in_place
        if key not in self._parts:
            name = self._parts[key] = f"{self.prefix}_step{len(self._parts)}"
            self.functions.append(
                self.dialect.step(self._step(name, call, zeros, shared, in_place))
            )
        return (
            f"{self.dialect.name(self._parts[key])}({', '.join(self._pointer(v) for v in views)});"
        )

    def _step(
        self, name: str, call: Call, zeros: Sequence[bool], shared: Sequence[bool], in_place: bool
    ) -> Step:
        """Where results may be a Program's own inputs, they are written after all of these have
        been read.
        """
        d, program = self.dialect, call.program
        names = {key: f"a{k}" for k, key in enumerate(program.inputs)}
        targets = {key: f"b{k}" for k, key in enumerate(program.outputs)}
        places = {key: [d.place(p) for p in v.places()] for key, v in call.outputs.items()}
        constants = dict(zip(program.inputs, shared, strict=True))
        sources = {
            key: v.places() if constants[key] else [d.place(p) for p in v.places()]
            for key, v in call.inputs.items()
        }
        arguments = {
            names[key]: d.pointer(names[key], constant=constants[key], restrict=not in_place)
            for key in program.inputs
        }
        arguments |= {
            targets[key]: d.pointer(targets[key], written=True, restrict=not in_place)
            for key in program.outputs
        }
        left_out: set[tuple[str, int]] = set()
        late: dict[tuple[str, int], int] = {}
        start = 0
        for (key, view), silent in zip(call.outputs.items(), zeros, strict=True):
            size = view.shape[0] * view.shape[1]
            for k, r in enumerate(program.results[start : start + size]):
                if silent and isinstance(r, float) and r == 0.0:
                    left_out.add((key, k))
                else:
                    late[key, k] = len(late)
            start += size

        def read(key: str, k: int) -> str:
            x = f"{names[key]}[{sources[key][k]}]"
            return d.widened(x) if constants[key] else x

        def write(key: str, k: int, x: str) -> str:
            return (
                f"late[{late[key, k]}] = {x};"
                if in_place
                else f"{targets[key]}[{places[key][k]}] = {x};"
            )

        after = (
            [f"{targets[key]}[{places[key][k]}] = late[{n}];" for (key, k), n in late.items()]
            if in_place
            else []
        )
        return Step(
            name,
            program,
            arguments,
            read,
            write,
            frozenset(left_out),
            len(late) if in_place else 0,
            after,
        )

    def _product(self, product: Product) -> str:
        d = self.dialect
        views = product.target, product.left, product.right
        key = (*(v.strides for v in views), product.factor, product.accumulate, product.symmetric)
        if key not in self._products:
            name = self._products[key] = f"{self.prefix}_product{len(self._products)}"
            self.functions.append(self._product_function(name, product))
        sizes = (product.target.shape[0], product.target.shape[1], product.left.shape[1])
        return f"{d.name(self._products[key])}({', '.join([*(self._pointer(v) for v in views), *map(str, sizes)])});"

    def _product_function(self, name: str, p: Product) -> str:
        d = self.dialect

        def at(name: str, view: View) -> Callable[[str, str], str]:
            return lambda i, j: f"{name}[{sum_of_steps(map(d.place, view.strides), (i, j))}]"

        target = at("c", p.target)
        inner = product_entry(p, d, target, at("a", p.left), at("b", p.right), "terms")
        inner.append(f"{target('i', 'j')} = {product_result(p, d, target)};")
        if p.symmetric:
            inner.append(f"{target('j', 'i')} = {target('i', 'j')};")
        # the matrices may be parts of one array
        pointers = [
            d.pointer("c", written=True, restrict=False),
            d.pointer("a", restrict=False),
            d.pointer("b", restrict=False),
        ]
        return "\n".join(
            [
                (
                    f"{d.function}"
                    f" {d.name(name)}({', '.join([*pointers, 'int rows', 'int columns', 'int terms'])})"
                ),
                "{",
                *(["    (void)columns;"] if p.symmetric else []),
                "    for (int i = 0; i < rows; ++i)",
                f"        for (int j = 0; {'j <= i' if p.symmetric else 'j < columns'}; ++j) {{",
                *indented(inner, 3),
                "        }",
                "}",
            ]
        )

    # --- places -----------------------------------------------------------------------------------

    def _pointer(self, view: View) -> str:
        place = self._index(view.offset)
        stride = 1 if view.array.role == "constant" else self.dialect.stride
        if place == "0":
            return self._bases[view.array]
        return f"{self._bases[view.array]} + {place if stride == 1 else f'{stride} * ({place})'}"


At = Callable[[str, str], str]  # an entry of a matrix, by its row and column


def product_entry(p: Product, d: Dialect, target: At, left: At, right: At, terms: str) -> list[str]:
    """`sum` of the terms of entry (i, j), in the order of the language: the target or the first
    term, then a multiply-add for each further one.
    """
    unit = abs(p.factor) == 1.0
    sign = "-" if unit and p.factor < 0 else ""
    first, begin = (
        (0, target("i", "j"))
        if p.accumulate and unit
        else (1, f"{sign}{left('i', '0')} * {right('0', 'j')}")
    )
    return [
        f"{d.real} sum = {begin};",
        f"for (int k = {first}; k < {terms}; ++k)",
        f"    sum = FMA({sign}{left('i', 'k')}, {right('k', 'j')}, sum);",
    ]


def product_result(p: Product, d: Dialect, target: At) -> str:
    """The entry, of the `sum` of its terms: a factor comes last."""
    if abs(p.factor) == 1.0:
        return "sum"
    factor = d.number(p.factor)
    return f"FMA({factor}, sum, {target('i', 'j')})" if p.accumulate else f"{factor} * sum"


def sum_of_steps(strides: Iterable[int], numbers: Sequence[str]) -> str:
    """Σ stride · number, without what is zero."""
    steps = [
        x if s == 1 else f"{s} * {x}"
        for x, s in zip(numbers, strides, strict=True)
        if s and x != "0"
    ]
    return " + ".join(steps) or "0"


def _variable(variable: Variable) -> str:
    return variable.name


def indented(lines: Sequence[str] | Iterator[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


def array(declaration: str, items: Sequence[str]) -> str:
    """A table with its numbers in lines of readable length."""
    lines, line = [], " "
    for item in items or ["0"]:
        if len(line) + len(item) > LINE:
            lines.append(line)
            line = " "
        line += f" {item},"
    return "\n".join([f"{declaration}[{max(len(items), 1)}] = {{", *lines, line, "};"])
