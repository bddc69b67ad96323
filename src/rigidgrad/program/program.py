"""Straight-line code in SSA form: what an algorithm does to one state of one robot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rigidgrad import scalars
from rigidgrad.program.nesting import flatten, nest

Node = tuple[Any, ...]
Shape = tuple[int, ...]
Output = tuple[int, int] | float  # (sign, node) or a constant

LEAVES = ("input", "const")
# fma: a·b + c, fms: a·b - c, fnma: c - a·b, fnms: -a·b - c; select(a, b, x, y): x where a < b, else
# y
FUSED = ("fma", "fms", "fnma", "fnms")


def operands(node: Node) -> tuple[int, ...]:
    return () if node[0] in LEAVES else node[1:]


@dataclass(frozen=True)
class Counts(Mapping[str, int]):
    """Operations by kind. `flops` counts additions, products, quotients and roots, a fused
    multiply-add as two; sines and cosines aside.
    """

    kinds: Mapping[str, int]
    depth: int
    live: int

    @property
    def flops(self) -> int:
        k = self.kinds
        single = ("add", "sub", "mul", "div", "sqrt", "min", "max")
        return sum(k.get(x, 0) for x in single) + 2 * sum(k.get(x, 0) for x in FUSED)

    @property
    def instructions(self) -> int:
        return sum(n for kind, n in self.kinds.items() if kind not in LEAVES)

    def _all(self) -> dict[str, int]:
        named = {
            "flops": self.flops,
            "instructions": self.instructions,
            "depth": self.depth,
            "live": self.live,
        }
        return dict(self.kinds) | named

    def __getitem__(self, key: str) -> int:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __str__(self) -> str:
        return ", ".join(f"{n} {key}" for key, n in sorted(self._all().items()))


@dataclass(frozen=True)
class Program:
    """`nodes` in an order in which every operand comes before its use; `results`: the outputs'
    numbers, flat, one output after the other.
    """

    inputs: dict[str, Shape]
    outputs: dict[str, Shape]
    nodes: tuple[Node, ...]
    results: tuple[Output, ...]

    @classmethod
    def from_graph(
        cls,
        inputs: dict[str, Shape],
        outputs: dict[str, Shape],
        nodes: Sequence[Node],
        results: Sequence[Output],
    ) -> Program:
        """Keeps what the results need, in the order given."""
        alive = bytearray(len(nodes))
        for r in results:
            if isinstance(r, tuple):
                alive[r[1]] = 1
        for i in range(len(nodes) - 1, -1, -1):
            if alive[i] and nodes[i][0] not in LEAVES:
                for j in nodes[i][1:]:
                    alive[j] = 1
        return cls._renumbered(
            inputs, outputs, nodes, results, [i for i, needed in enumerate(alive) if needed]
        )

    @classmethod
    def _renumbered(
        cls,
        inputs: dict[str, Shape],
        outputs: dict[str, Shape],
        nodes: Sequence[Node],
        results: Sequence[Output],
        order: Sequence[int],
    ) -> Program:
        place = [0] * len(nodes)
        for new, old in enumerate(order):
            place[old] = new
        kept = []
        for i in order:
            node = nodes[i]
            if node[0] in LEAVES:
                kept.append(node)
            elif len(node) == 3:  # written out: most of all nodes
                kept.append((node[0], place[node[1]], place[node[2]]))
            else:
                kept.append((node[0], *[place[j] for j in node[1:]]))
        return cls(
            inputs,
            outputs,
            tuple(kept),
            tuple((r[0], place[r[1]]) if isinstance(r, tuple) else r for r in results),
        )

    def reordered(self, order: Sequence[int]) -> Program:
        """The same program with its nodes in another valid order."""
        return self._renumbered(self.inputs, self.outputs, self.nodes, self.results, order)

    @cached_property
    def uses(self) -> list[int]:
        """How often each node is used, by nodes and results."""
        count = [0] * len(self.nodes)
        for node in self.nodes:
            if node[0] not in LEAVES:
                for i in node[1:]:
                    count[i] += 1
        for r in self.results:
            if isinstance(r, tuple):
                count[r[1]] += 1
        return count

    @property
    def instructions(self) -> int:
        """Operations, whatever their kind."""
        return sum(node[0] not in LEAVES for node in self.nodes)

    def counts(self) -> Counts:
        kinds = Counter(node[0] for node in self.nodes)
        depth = [0] * len(self.nodes)
        for i, node in enumerate(self.nodes):
            if node[0] not in LEAVES:
                depth[i] = 1 + max([depth[j] for j in node[1:]])
        return Counts(dict(kinds), max(depth, default=0), self._most_alive())

    def _most_alive(self) -> int:
        last = {}
        for i, node in enumerate(self.nodes):
            if node[0] not in LEAVES:
                for j in node[1:]:
                    last[j] = i
        alive = most = 0
        ends = Counter(last.values())
        for i, node in enumerate(self.nodes):
            alive -= ends.get(i, 0)
            alive += i in last and node[0] != "const"
            most = max(most, alive)
        return most

    def pattern(self) -> dict[str, list[bool]]:
        """Per output, which of its numbers are not structurally zero."""
        marks = [not (isinstance(r, float) and r == 0.0) for r in self.results]
        result, start = {}, 0
        for name, shape in self.outputs.items():
            size = math.prod(shape)
            result[name] = marks[start : start + size]
            start += size
        return result

    # --- running it in Python ---------------------------------------------------------------------

    def interpret(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs, as nested tuples, for inputs given as nested sequences of any scalars."""
        flat = {name: tuple(flatten(_tuples(values[name]))) for name in self.inputs}
        x: list[Any] = []
        for node in self.nodes:
            x.append(evaluate(node, x, flat))
        results = [
            r if isinstance(r, float) else (x[r[1]] if r[0] > 0 else -x[r[1]]) for r in self.results
        ]
        outputs, start = [], 0
        for shape in self.outputs.values():
            size = math.prod(shape)
            outputs.append(nest(results[start : start + size], shape))
            start += size
        return tuple(outputs)

    def __str__(self) -> str:
        lines = [f"inputs  {', '.join(f'{k}{list(s)}' for k, s in self.inputs.items())}"]
        for i, node in enumerate(self.nodes):
            if node[0] == "input":
                text = f"{node[1]}[{node[2]}]"
            elif node[0] == "const":
                text = repr(node[1])
            else:
                text = " ".join([node[0], *(f"%{j}" for j in node[1:])])
            lines.append(f"%{i} = {text}")
        start = 0
        for name, shape in self.outputs.items():
            for k in range(math.prod(shape)):
                r = self.results[start + k]
                value = repr(r) if isinstance(r, float) else f"{'-' if r[0] < 0 else ''}%{r[1]}"
                lines.append(f"{name}[{k}] = {value}")
            start += math.prod(shape)
        return "\n".join(lines)


def _tuples(x: Any) -> Any:
    """Nested sequences, NumPy arrays of data among them, as nested tuples; a column of a batch
    stays one scalar.
    """
    return tuple(_tuples(y) for y in x) if isinstance(x, tuple | list) else x


def evaluate(node: Node, x: list[Any], inputs: Mapping[str, tuple[Any, ...]]) -> Any:
    kind = node[0]
    if kind == "input":
        return inputs[node[1]][node[2]]
    if kind == "const":
        return node[1]
    a = x[node[1]]
    match kind:
        case "add":
            return a + x[node[2]]
        case "sub":
            return a - x[node[2]]
        case "mul":
            return a * x[node[2]]
        case "div":
            return a / x[node[2]]
        case "fma":
            return a * x[node[2]] + x[node[3]]
        case "fms":
            return a * x[node[2]] - x[node[3]]
        case "fnma":
            return x[node[3]] - a * x[node[2]]
        case "fnms":
            return -(a * x[node[2]]) - x[node[3]]
        case "neg":
            return -a
        case "rcp":  # of circuits alone
            return 1.0 / a
        case "sin":
            return scalars.sincos(a)[0]
        case "cos":
            return scalars.sincos(a)[1]
        case "sqrt":
            return scalars.sqrt(a)
        case "atan2":
            return scalars.atan2(a, x[node[2]])
        case "min":
            return scalars.select(scalars.less(x[node[2]], a), x[node[2]], a)
        case "max":
            return scalars.select(scalars.less(a, x[node[2]]), x[node[2]], a)
        case "select":
            return scalars.select(scalars.less(a, x[node[2]]), x[node[3]], x[node[4]])
    raise AssertionError(kind)
