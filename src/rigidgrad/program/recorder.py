"""The recorder scalar: arithmetic on it writes down a graph instead of computing.

Nodes are hash-consed, so equal work is shared. A `Value` is a node with a sign, so negations cost
nothing and vanish into the additions and products around them. Constants are folded: 0, ±1,
products and sums of constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.program import Node, Program

Number = float | int
_COMMUTATIVE = frozenset(("add", "mul", "min", "max"))


class TooLong(Exception):
    """More nodes than were asked for at most."""


class Graph:
    """The nodes recorded so far, `most` of them: ("input", name, k), ("const", x) with x > 0, or
    (operation, operand, …) by index.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.nodes: list[Node] = []
        self._index: dict[Node, int] = {}
        self._most = most

    def node(self, *node: Any) -> int:
        index = self._index.get(node)
        if index is None:
            index = self._index[node] = len(self.nodes)
            if index >= self._most:
                raise TooLong
            self.nodes.append(node)
        return index

    def input(self, name: str, k: int) -> Value:
        return Value(self, 1, self.node("input", name, k))

    def constant(self, x: Number) -> Value:
        x = float(x)
        return Value(self, -1 if x < 0 else 1, self.node("const", abs(x)))


class Value:
    """±node of a graph."""

    __slots__ = ("graph", "index", "sign")
    __array_ufunc__ = None  # a NumPy number on the left leaves the work to us

    def __init__(self, graph: Graph, sign: int, index: int):
        self.graph, self.sign, self.index = graph, sign, index

    def __repr__(self) -> str:
        return f"{'-' if self.sign < 0 else ''}%{self.index}"

    # --- arithmetic -------------------------------------------------------------------------------

    def __neg__(self) -> Value:
        return Value(self.graph, -self.sign, self.index)

    def __pos__(self) -> Value:
        return self

    def __add__(self, other: Value | Number) -> Any:
        graph = self.graph
        if not isinstance(other, Value):
            if other == 0:
                return self
            if (own := self._constant()) is not None:
                return own + float(other)
            other = graph.constant(other)
        i, j = self.index, other.index
        if i == j:
            return 0.0 if self.sign != other.sign else self * 2.0
        kind = "add" if self.sign == other.sign else "sub"
        return (
            Value(graph, self.sign, graph.node(kind, i, j))
            if i < j
            else Value(graph, other.sign, graph.node(kind, j, i))
        )

    __radd__ = __add__

    def __sub__(self, other: Value | Number) -> Any:
        return self + (-other)

    def __rsub__(self, other: Number) -> Any:
        return (-self) + other

    def __mul__(self, other: Value | Number) -> Any:
        graph = self.graph
        if not isinstance(other, Value):
            other = float(other)
            if other == 0.0:
                return 0.0
            if other == 1.0:
                return self
            if other == -1.0:
                return -self
            kind, *operands = graph.nodes[self.index]
            if kind == "mul" and graph.nodes[operands[0]][0] == "const":  # c·(d·x) = (c d)·x
                return Value(graph, self.sign, operands[1]) * (other * graph.nodes[operands[0]][1])
            other = graph.constant(other)
        i, j = self.index, other.index
        if i > j:
            i, j = j, i
        if graph.nodes[j][0] == "const":  # the constant, if any, first
            i, j = j, i
        return Value(graph, self.sign * other.sign, graph.node("mul", i, j))

    __rmul__ = __mul__

    def __truediv__(self, other: Value | Number) -> Any:
        if not isinstance(other, Value):
            if math.frexp(float(other))[0] in (0.5, -0.5):  # a power of two: exact
                return self * (1.0 / other)
            other = self.graph.constant(other)
        if self.index == other.index:
            return float(self.sign * other.sign)
        return Value(
            self.graph, self.sign * other.sign, self.graph.node("div", self.index, other.index)
        )

    def __rtruediv__(self, other: Number) -> Any:
        return 0.0 if other == 0 else self.graph.constant(other) / self

    # --- functions --------------------------------------------------------------------------------

    def __pow__(self, n: Any) -> Any:
        if isinstance(n, bool) or not isinstance(n, int):
            return NotImplemented
        if n < 0:
            return 1.0 / self**-n
        if n == 0:
            return 1.0
        half = self ** (n // 2)
        return half * half * self if n % 2 else half * half

    def __abs__(self) -> Any:
        return (self < 0.0).select(-self, self)

    def sincos(self) -> tuple[Value, Value]:
        graph = self.graph
        return Value(graph, self.sign, graph.node("sin", self.index)), Value(
            graph, 1, graph.node("cos", self.index)
        )

    def sqrt(self) -> Value:
        return self._apply("sqrt", self)

    def atan2(self, y: Any, x: Any) -> Value:
        return self._apply("atan2", y, x)

    def minimum(self, other: Any) -> Value:
        return self._apply("min", self, other)

    def maximum(self, other: Any) -> Value:
        return self._apply("max", self, other)

    def __lt__(self, other: Any) -> Condition:
        return Condition(self, other)

    def __gt__(self, other: Any) -> Condition:
        return Condition(other, self)

    def _apply(self, kind: str, *operands: Any) -> Value:
        indices = [self._plain(x) for x in operands]
        if kind in _COMMUTATIVE:
            indices.sort()
        return Value(self.graph, 1, self.graph.node(kind, *indices))

    def _plain(self, x: Any) -> int:
        """The index of a node that equals x, sign included."""
        value = x if isinstance(x, Value) else self.graph.constant(x)
        return value.index if value.sign > 0 else self.graph.node("neg", value.index)

    def _constant(self) -> float | None:
        node = self.graph.nodes[self.index]
        return self.sign * node[1] if node[0] == "const" else None


class Truth:
    """What is not yet decided; `&` and `|` join two of them."""

    __slots__ = ()

    def select(self, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def __and__(self, other: Truth) -> Truth:
        return Joined(self, other, both=True)

    def __or__(self, other: Truth) -> Truth:
        return Joined(self, other, both=False)

    def __bool__(self) -> bool:
        raise TypeError(
            "a recorded comparison has no value yet: use rigidgrad.scalars.select(condition, a, b)"
            " instead of if"
        )


class Joined(Truth):
    """Both of two, or one of them at least."""

    __slots__ = ("both", "first", "second")

    def __init__(self, first: Truth, second: Truth, both: bool):
        self.first, self.second, self.both = first, second, both

    def select(self, x: Any, y: Any) -> Any:
        rest = self.second.select(x, y)
        return self.first.select(rest, y) if self.both else self.first.select(x, rest)


class Condition(Truth):
    """a < b."""

    __slots__ = ("a", "b", "value")

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b
        self.value: Value = a if isinstance(a, Value) else b

    def select(self, x: Any, y: Any) -> Any:
        if not isinstance(x, Value) and not isinstance(y, Value) and x == y:
            return x
        return self.value._apply(
            "select",
            *(Value(self.value.graph, 1, self.value._plain(v)) for v in (self.a, self.b, x, y)),
        )


def record(
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Mapping[str, tuple[int, ...]],
    function: Callable[[dict[str, Any]], tuple[Any, ...]],
    most: float = math.inf,
) -> Program:
    """Runs `function` once on recorders. It takes a dictionary of nested tuples shaped as `inputs`
    and returns one result an output. Of more than `most` nodes it makes TooLong.
    """
    graph = Graph(most)
    values = {
        name: nest([graph.input(name, k) for k in range(math.prod(shape))], shape)
        for name, shape in inputs.items()
    }
    results = function(values)
    flat: list[tuple[int, int] | float] = []
    for result, (name, shape) in zip(results, outputs.items(), strict=True):
        scalars = list(flatten(result))
        if len(scalars) != math.prod(shape):
            raise ValueError(
                f"output {name!r} has {len(scalars)} numbers, not the {math.prod(shape)} of its"
                f" shape {shape}"
            )
        flat.extend((x.sign, x.index) if isinstance(x, Value) else float(x) for x in scalars)
    return Program.from_graph(dict(inputs), dict(outputs), graph.nodes, flat)
