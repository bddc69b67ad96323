"""A Kernel: what a Program cannot say, loops and matrices, written once for all targets.

A kernel works on arrays of numbers. Every number stands for one state: who evaluates many states,
lanes, threads or a loop, is the target's business. Its statements are calls of Programs, products
of small matrices, loops, and a choice among bodies by an integer. `each` promises that the rounds
of a loop may run in any order or at once; `along` runs them in order.

    k = Kernel()
    A, B, C = k.input("A", 12), k.input("B", 12), k.output("C", 9)
    k.product(C.matrix(3, 3), A.matrix(3, 4), B.matrix(4, 3))
    with k.along(3) as i:
        k.call(program, {"x": A.at(4 * i, 4)}, {"y": C.at(3 * i, 3)})

The order of all roundings is part of the language, so that every target gives the same bits: a
product starts with the target if it is accumulated with a factor of 1 or -1, otherwise with the
first term, and adds the terms by fused multiply-adds from the first to the last; another factor is
applied at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record

Role = Literal["input", "output", "carried", "scratch", "constant"]


@dataclass(frozen=True)
class Table:
    """Integers that are known when the kernel is made, such as the parent of each body."""

    name: str
    numbers: tuple[int, ...]

    def __getitem__(self, index: Index | int) -> Index:
        return Index(((Lookup(self, as_index(index)), 1),))


@dataclass(frozen=True)
class Variable:
    """The number of the round of a loop."""

    name: str


@dataclass(frozen=True)
class Lookup:
    table: Table
    index: Index


Atom = Variable | Lookup


@dataclass(frozen=True)
class Index:
    """Σ coefficient · (variable or number of a table) + constant."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Index | int) -> Index:
        other = as_index(other)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return Index(tuple((a, c) for a, c in sums.items() if c), self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Index:
        return Index(
            tuple((a, c * factor) for a, c in self.terms if factor), self.constant * factor
        )

    __rmul__ = __mul__

    def __sub__(self, other: Index | int) -> Index:
        return self + as_index(other) * -1


def as_index(x: Index | int) -> Index:
    return x if isinstance(x, Index) else Index((), x)


@dataclass(frozen=True)
class Array:
    """Numbers of each state, in rows; `values` of a constant array, which are the same for all
    states.
    """

    name: str
    shape: Shape
    role: Role
    values: tuple[float, ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def at(self, offset: Index | int, size: int, stride: int = 1) -> View:
        """`size` numbers from `offset` on."""
        return View(self, as_index(offset), (1, size), (0, stride))

    def matrix(
        self, rows: int, columns: int, offset: Index | int = 0, stride: int | None = None
    ) -> View:
        """A matrix whose rows are `stride` numbers apart; one after the other, unless said."""
        return View(
            self, as_index(offset), (rows, columns), (columns if stride is None else stride, 1)
        )


@dataclass(frozen=True)
class View:
    """Numbers of an array as a matrix: number (i, j) is at offset + i strides[0] + j strides[1]."""

    array: Array
    offset: Index
    shape: tuple[int, int]
    strides: tuple[int, int]

    @property
    def T(self) -> View:
        return View(self.array, self.offset, self.shape[::-1], self.strides[::-1])

    def part(self, rows: range, columns: range) -> View:
        """Some neighbouring rows and columns."""
        offset = self.offset + (rows.start * self.strides[0] + columns.start * self.strides[1])
        return View(self.array, offset, (len(rows), len(columns)), self.strides)

    def places(self) -> list[int]:
        """Where the numbers are, row by row, from the offset on."""
        return [
            i * self.strides[0] + j * self.strides[1]
            for i in range(self.shape[0])
            for j in range(self.shape[1])
        ]


@dataclass(frozen=True)
class Call:
    """A Program, from some views to others. All inputs are read before the first result is written,
    so that they may be the same numbers.
    """

    program: Program
    inputs: Mapping[str, View]
    outputs: Mapping[str, View]


@dataclass(frozen=True)
class Product:
    """target = factor · left · right, added to the target if `accumulate`. Of a `symmetric` one the
    lower triangle is computed and written twice.
    """

    target: View
    left: View
    right: View
    factor: float
    accumulate: bool
    symmetric: bool


@dataclass(frozen=True)
class Loop:
    """Rounds 0 … count - 1 of a body; `count` may be a number of a table. None begins once `done`
    is positive for all states that run together.
    """

    variable: Variable
    count: Index
    body: tuple[Statement, ...]
    ordered: bool
    reverse: bool
    done: View | None = None


@dataclass(frozen=True)
class Choose:
    """The body whose number the index is."""

    index: Index
    bodies: tuple[tuple[Statement, ...], ...]


Statement = Call | Product | Loop | Choose


class Kernel:
    """Statements in the order in which they are written down."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._open: list[list[Statement]] = [[]]
        self._variables = 0
        self._rounds: list[
            tuple[Array, Array]
            # of rounds that are open: whether a state was done before this one, and why it failed
        ] = []
        self.known_pattern: dict[str, list[bool]] | None = (
            None  # once it was asked for, by `structure.pattern`
        )

    @property
    def body(self) -> tuple[Statement, ...]:
        return tuple(self._open[0])

    @property
    def inputs(self) -> dict[str, Shape]:
        return {a.name: a.shape for a in self.of("input")}

    @property
    def outputs(self) -> dict[str, Shape]:
        return {a.name: a.shape for a in self.of("output")}

    def of(self, role: Role) -> list[Array]:
        return [a for a in self.arrays.values() if a.role == role]

    def with_programs(self, change: Callable[[Program], Program]) -> Kernel:
        """The same kernel with other forms of its Programs."""
        other = Kernel()
        other.arrays, other._variables = self.arrays, self._variables
        known: dict[int, Program] = {}

        def changed(body: Sequence[Statement]) -> Iterator[Statement]:
            for s in body:
                match s:
                    case Call():
                        if id(s.program) not in known:
                            known[id(s.program)] = change(s.program)
                        yield replace(s, program=known[id(s.program)])
                    case Loop():
                        yield replace(s, body=tuple(changed(s.body)))
                    case Choose():
                        yield replace(s, bodies=tuple(tuple(changed(b)) for b in s.bodies))
                    case _:
                        yield s

        other._open = [list(changed(self.body))]
        return other

    # --- arrays -----------------------------------------------------------------------------------

    def input(self, name: str, *shape: int) -> Array:
        return self._array(Array(name, shape, "input"))

    def output(self, name: str, *shape: int) -> Array:
        """Zero where nothing is written."""
        return self._array(Array(name, shape, "output"))

    def carried(self, name: str, *shape: int) -> Array:
        """What a kernel that runs along knots gets from the knot before, changes, and hands on."""
        return self._array(Array(name, shape, "carried"))

    def scratch(self, name: str, *shape: int) -> Array:
        """Zero where nothing was ever written; elsewhere a state may find what another one left."""
        return self._array(Array(name, shape, "scratch"))

    def constant(self, name: str, values: Sequence[float]) -> Array:
        return self._array(Array(name, (len(values),), "constant", tuple(values)))

    def _array(self, array: Array) -> Array:
        if array.name in self.arrays:
            raise ValueError(f"there are two arrays {array.name!r}")
        self.arrays[array.name] = array
        return array

    # --- statements -------------------------------------------------------------------------------

    def call(
        self, program: Program, inputs: Mapping[str, View], outputs: Mapping[str, View]
    ) -> None:
        for views, shapes in ((inputs, program.inputs), (outputs, program.outputs)):
            if list(views) != list(shapes):
                raise ValueError(f"the program has {', '.join(shapes)}, not {', '.join(views)}")
            for name, shape in shapes.items():
                _check_size(name, views[name], shape)
        self._add(Call(program, dict(inputs), dict(outputs)))

    def product(
        self,
        target: View,
        left: View,
        right: View,
        factor: float = 1.0,
        *,
        accumulate: bool = False,
        symmetric: bool = False,
    ) -> None:
        if left.shape[1] != right.shape[0] or target.shape != (left.shape[0], right.shape[1]):
            raise ValueError(f"{left.shape} times {right.shape} is not {target.shape}")
        if "constant" in (left.array.role, right.array.role):
            raise ValueError(
                "a product has no constant matrix: let a Program do it, which skips zeros"
            )
        self._add(Product(target, left, right, float(factor), accumulate, symmetric))

    @contextmanager
    def each(self, count: Index | int) -> Iterator[Index]:
        """Rounds in any order, or at once."""
        with self._loop(count, ordered=False, reverse=False) as i:
            yield i

    @contextmanager
    def along(
        self, count: Index | int, *, reverse: bool = False, unless: View | None = None
    ) -> Iterator[Index]:
        """Rounds one after the other, from the first to the last or back.

        None begins once the number `unless` is positive for all states that run together. Where it
        is, a further round that others need must change nothing that is read later.
        """
        with self._loop(count, ordered=True, reverse=reverse, done=unless) as i:
            yield i

    @contextmanager
    def until(self, limit: int, done: Array, failed: Array) -> Iterator[Index]:
        """Rounds one after the other until the body makes `done` positive, at most `limit` of them;
        both arrays have one number.

        What a state has then, it keeps, whatever rounds other states still take. A round in which
        `require` fails is undone and is the state's last; `failed` is its reason, else zero.
        """
        if (done.size, failed.size) != (1, 1):
            raise ValueError("done and failed are arrays of one number")
        here = len(self.arrays)
        self._variables += 1
        variable = Variable(f"i{self._variables}")
        self.call(
            _program((), 2, lambda v: (0.0, 0.0)), {}, {"y0": done.at(0, 1), "y1": failed.at(0, 1)}
        )
        before = self.scratch(f"done before {variable.name}", 1)
        self._open.append([])
        self._rounds.append((before, failed))
        yield Index(((variable, 1),))
        self._rounds.pop()
        body = self._open.pop()
        kept = sorted(
            {a.name for a in _written(body)}
            - {done.name, failed.name}
            - {*list(self.arrays)[here:]}
        )
        copy = _program(("x",), 1, lambda v: (v["x"],))
        end = _program(
            ("before", "failed", "now"),
            1,
            lambda v: ((v["before"] > 0.0).select(1.0, (v["failed"] > 0.0).select(1.0, v["now"])),),
        )
        blend = _program(
            ("before", "failed", "old", "new"),
            1,
            lambda v: (
                (v["before"] > 0.0).select(
                    v["old"], (v["failed"] > 0.0).select(v["old"], v["new"])
                ),
            ),
        )
        one = {"before": before.at(0, 1), "failed": failed.at(0, 1)}
        self._open.append([])
        self.call(copy, {"x": done.at(0, 1)}, {"y0": before.at(0, 1)})
        pairs = [
            (
                self.arrays[name],
                self.scratch(f"{name} before {variable.name}", self.arrays[name].size),
            )
            for name in kept
        ]
        for array, old in pairs:
            with self.each(array.size) as i:
                self.call(copy, {"x": array.at(i, 1)}, {"y0": old.at(i, 1)})
        self._open[-1] += body
        for array, old in pairs:
            with self.each(array.size) as i:
                self.call(
                    blend,
                    one | {"old": old.at(i, 1), "new": array.at(i, 1)},
                    {"y0": array.at(i, 1)},
                )
        self.call(end, one | {"now": done.at(0, 1)}, {"y0": done.at(0, 1)})
        self._add(
            Loop(variable, as_index(limit), tuple(self._open.pop()), True, False, done.at(0, 1))
        )

    def require(self, number: View, reason: int) -> None:
        """Within `until`: a state whose number is not positive, or is NaN, ends with this reason,
        which is positive; the first one counts.
        """
        if not self._rounds or reason <= 0:
            raise ValueError("require is a statement of rounds of `until`, with a positive reason")
        before, failed = (x.at(0, 1) for x in self._rounds[-1])

        def first(v: dict[str, Any]) -> Sequence[Any]:
            now = (v["x"] > 0.0).select(0.0, float(reason))
            return (
                (v["before"] > 0.0).select(
                    v["failed"], (v["failed"] > 0.0).select(v["failed"], now)
                ),
            )

        self.call(
            _program(("before", "x", "failed"), 1, first),
            {"before": before, "x": number, "failed": failed},
            {"y0": failed},
        )

    @contextmanager
    def _loop(
        self, count: Index | int, *, ordered: bool, reverse: bool, done: View | None = None
    ) -> Iterator[Index]:
        self._variables += 1
        variable = Variable(f"i{self._variables}")
        self._open.append([])
        yield Index(((variable, 1),))
        body = self._open.pop()
        self._add(Loop(variable, as_index(count), tuple(body), ordered, reverse, done))

    @contextmanager
    def choose(self, index: Index) -> Iterator[Choice]:
        """`with k.choose(kind) as choice:`, then `with choice.case():` for each value from 0 on."""
        choice = Choice(self)
        yield choice
        self._add(Choose(index, tuple(choice.bodies)))

    def _add(self, statement: Statement) -> None:
        self._open[-1].append(statement)


@dataclass
class Choice:
    """The bodies of a choice so far."""

    kernel: Kernel
    bodies: list[tuple[Statement, ...]] = field(default_factory=list)

    @contextmanager
    def case(self) -> Iterator[None]:
        self.kernel._open.append([])
        yield
        self.bodies.append(tuple(self.kernel._open.pop()))


def _program(
    inputs: Sequence[str], outputs: int, function: Callable[[dict[str, Any]], Sequence[Any]]
) -> Program:
    """Of single numbers."""
    shapes: dict[str, Shape] = dict.fromkeys(inputs, ())
    return record(shapes, {f"y{k}": () for k in range(outputs)}, lambda v: tuple(function(v)))


def _written(body: Sequence[Statement]) -> Iterator[Array]:
    for s in body:
        match s:
            case Call():
                yield from (view.array for view in s.outputs.values())
            case Product():
                yield s.target.array
            case Loop():
                yield from _written(s.body)
            case Choose():
                for inner in s.bodies:
                    yield from _written(inner)


def _check_size(name: str, view: View, shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    if view.shape[0] * view.shape[1] != size:
        raise ValueError(f"{name!r} has {size} numbers, its view {view.shape[0] * view.shape[1]}")
