"""A Program made ready for a circuit: products and sums of two terms only, sums as shallow trees,
no negations, doubling by addition, quotients as products with a reciprocal ("rcp").

The outcome is again a Program, the final one: what the circuit computes is what this Program gives
over fixed-point numbers, in every bit.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.program.program import LEAVES, Node, Output, Program, Shape
from rigidgrad.program.recorder import Graph

Term = tuple[int, int]  # (sign, node)
# the unit that does an operation
KIND = {
    "mul": "multiplier",
    "add": "adder",
    "sub": "adder",
    "sin": "trig",
    "cos": "trig",
    "rcp": "reciprocal",
}
_UNFUSED = {"fma": (1, 1), "fms": (1, -1), "fnma": (-1, 1), "fnms": (-1, -1)}


@dataclass(frozen=True)
class Delays:
    """Cycles from the start of an operation to the earliest start of one that uses its result."""

    multiplier: int = 4
    adder: int = 2
    trig: int = 7
    reciprocal: int = 18
    load: int = 2
    code: int = 1  # of the microcode, before anything happens; no operation waits for it

    def of(self, operation: str) -> int:
        return self.of_unit(KIND[operation]) if operation in KIND else 0

    def of_unit(self, kind: str) -> int:
        cycles: int = getattr(self, kind)
        return cycles


def lower(program: Program, *, trig: str, lanes: int, delays: Delays) -> Program:
    """The final Program. With trig="inputs" the sines and cosines of q are inputs instead of q
    (which stays where it is used otherwise).

    No two results of one word lane (the result's number modulo `lanes`) are the same node, as a
    lane's memory takes one word a cycle.
    """
    builder = _Builder(delays)
    plain = _unfused(program, trig)
    inputs = _sines_as_inputs(program) if trig == "inputs" else dict(program.inputs)
    terms = builder.rebuild(plain.nodes, plain.results)
    results = builder.results(terms, lanes)
    return Program.from_graph(inputs, program.outputs, builder.graph.nodes, results)


def _sines_as_inputs(program: Program) -> dict[str, Shape]:
    used = {node[1] for node in program.nodes if node[0] in ("sin", "cos")}
    if not used:
        return dict(program.inputs)
    for i in used:
        if program.nodes[i][0] != "input" or program.nodes[i][1] != "q":
            raise InputError(
                "a sine here is not that of a joint position: sines cannot be inputs, generate with"
                " trig='table'"
            )
    direct = any(
        program.nodes[j][:2] == ("input", "q")
        for node in program.nodes
        if node[0] not in (*LEAVES, "sin", "cos")
        for j in node[1:]
    )
    shape = program.inputs["q"]
    rest = {name: s for name, s in program.inputs.items() if name != "q" or direct}
    return {"sin": shape, "cos": shape} | rest


def _unfused(program: Program, trig: str) -> Program:
    """Multiply-adds as a product and a sum; an unknown operation is an error."""
    graph = Graph()
    place: list[int] = []
    for node in program.nodes:
        kind = node[0]
        if kind in LEAVES:
            place.append(graph.node(*node))
            continue
        operands = [place[j] for j in node[1:]]
        if kind in _UNFUSED:
            product_sign, sign = _UNFUSED[kind]
            product = graph.node("mul", *operands[:2])
            c = operands[2]
            if product_sign == sign:
                total = graph.node("add", product, c)
                place.append(total if sign > 0 else graph.node("neg", total))
            else:
                place.append(
                    graph.node("sub", product, c)
                    if product_sign > 0
                    else graph.node("sub", c, product)
                )
        elif kind in ("sin", "cos") and trig == "inputs":
            place.append(graph.node("input", kind, program.nodes[node[1]][2]))
        elif kind == "div":
            divisor = graph.nodes[operands[1]]
            place.append(
                graph.node(
                    "mul",
                    operands[0],
                    graph.node("const", 1.0 / divisor[1])
                    if divisor[0] == "const"
                    else graph.node("rcp", operands[1]),
                )
            )
        elif kind in ("add", "sub", "mul", "neg", "sin", "cos"):
            place.append(graph.node(kind, *operands))
        else:
            raise InputError(
                f"a circuit has no unit for {kind!r}: this function cannot be generated as Verilog"
            )
    return Program(
        program.inputs,
        program.outputs,
        tuple(graph.nodes),
        tuple((r[0], place[r[1]]) if isinstance(r, tuple) else r for r in program.results),
    )


class _Builder:
    """The graph of the final Program, with the cycle in which each node's value is there at the
    earliest.
    """

    def __init__(self, delays: Delays):
        self.graph = Graph()
        self.delays = delays
        self._ready: list[int] = []

    def node(self, *node: Any) -> int:
        if node[0] in ("add", "sub", "mul"):
            a, b = (self.graph.nodes[j] for j in node[1:])
            if a[0] == b[0] == "const":  # the sum of what was rounded is not what is rounded once
                x, y = a[1], b[1]
                node = ("const", {"add": x + y, "sub": x - y, "mul": x * y}[node[0]])
        index = self.graph.node(*node)
        if index == len(self._ready):
            kind = node[0]
            if kind == "const":
                ready = 0
            elif kind == "input" or (kind == "neg" and self.graph.nodes[node[1]][0] == "input"):
                ready = self.delays.load
            else:
                ready = max(self._ready[j] for j in node[1:]) + self.delays.of(kind)
            self._ready.append(ready)
        return index

    # --- terms ------------------------------------------------------------------------------------

    def rebuild(self, nodes: Sequence[Node], results: Sequence[Output]) -> list[Term | float]:
        uses = Counter(j for node in nodes if node[0] not in LEAVES for j in node[1:])
        uses.update(r[1] for r in results if isinstance(r, tuple))
        inner = {
            j
            for node in nodes
            if node[0] in ("add", "sub", "neg")
            for j in node[1:]
            if uses[j] == 1 and nodes[j][0] in ("add", "sub", "neg")
        }
        terms: dict[int, Term] = {}

        def leaves(i: int, sign: int) -> list[Term]:
            kind = nodes[i][0]
            if kind in ("add", "sub", "neg") and (i in inner or i not in terms):
                signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}[kind]
                return [
                    term
                    for j, s in zip(nodes[i][1:], signs, strict=True)
                    for term in leaves(j, sign * s)
                ]
            return [(sign * terms[i][0], terms[i][1])]

        for i, node in enumerate(nodes):
            kind = node[0]
            if i in inner:
                continue
            if kind in ("add", "sub", "neg"):
                terms[i] = self.total(leaves(i, 1))
            elif kind == "mul":
                terms[i] = self.product(terms[node[1]], terms[node[2]])
            elif kind in ("sin", "cos"):
                sign, operand = terms[node[1]]
                if sign < 0:
                    operand = self.negative(operand)
                terms[i] = (1, self.node(kind, operand))
            elif kind == "rcp":
                sign, operand = terms[node[1]]
                terms[i] = (sign, self.node(kind, operand))
            else:
                terms[i] = (1, self.node(*node))
        return [
            (r[0] * terms[r[1]][0], terms[r[1]][1]) if isinstance(r, tuple) else r for r in results
        ]

    def product(self, a: Term, b: Term) -> Term:
        (s, i), (t, j) = a, b
        if self.graph.nodes[j][0] == "const":
            i, j = j, i
        sign = s * t
        if self.graph.nodes[i][0] == "const":
            whole = self.graph.nodes[i][1]
            # one or two additions are quicker than a product, and need no multiplier
            if whole == 1.0:
                return sign, j
            if whole in (2.0, 3.0, 4.0):
                double = self.node("add", j, j)
                return sign, (
                    double
                    if whole == 2.0
                    else self.node("add", double, j if whole == 3.0 else double)
                )
        elif i > j:
            i, j = j, i
        return sign, self.node("mul", i, j)

    def total(self, terms: list[Term]) -> Term:
        """The sum, always of the two terms that are there first. It has a minus sign only where
        every term has one.
        """
        if len(terms) > 1 and all(sign < 0 for sign, _ in terms):
            terms = self._one_positive(terms)
        heap = [(self._ready[i], k, (sign, i)) for k, (sign, i) in enumerate(terms)]
        heapq.heapify(heap)
        count = len(heap)
        while len(heap) > 1:
            (*_, a), (*_, b) = heapq.heappop(heap), heapq.heappop(heap)
            if a[0] == b[0]:
                term = (a[0], self.node("add", *sorted((a[1], b[1]))))
            elif a[1] == b[1]:
                term = (1, self.node("const", 0.0))
            else:
                plus, minus = (a, b) if a[0] > 0 else (b, a)
                term = (1, self.node("sub", plus[1], minus[1]))
            heapq.heappush(heap, (self._ready[term[1]], count, term))
            count += 1
        return heap[0][2]

    def _one_positive(self, terms: list[Term]) -> list[Term]:
        """-x·y as (-x)·y where x is an input: the circuit can negate what it loads."""
        candidates = []
        for k, (_, i) in enumerate(terms):
            node = self.graph.nodes[i]
            if node[0] == "mul":
                candidates += [
                    (self.graph.nodes[x], k, x, y)
                    for x, y in (node[1:], node[:0:-1])
                    if self.graph.nodes[x][0] == "input"
                ]
        if not candidates:
            return terms
        _, k, x, y = min(candidates, key=lambda c: (c[0][1:], c[1]))
        changed = list(terms)
        changed[k] = self.product((1, self.node("neg", x)), (1, y))
        return changed

    def negative(self, i: int) -> int:
        if self.graph.nodes[i][0] == "input":
            return self.node("neg", i)
        if self.graph.nodes[i][0] == "const":
            return self.node("const", -self.graph.nodes[i][1])
        if self.graph.nodes[i][0] == "sub":
            return self.node("sub", *self.graph.nodes[i][:0:-1])
        return self.node("sub", self.node("const", 0.0), i)

    # --- results ----------------------------------------------------------------------------------

    def results(self, terms: Sequence[Term | float], lanes: int) -> list[Output]:
        taken: set[tuple[int, int]] = set()
        out: list[Output] = []
        for k, term in enumerate(terms):
            if isinstance(term, float):
                out.append(term)
                continue
            sign, i = term
            if self.graph.nodes[i][0] == "const":
                out.append(sign * self.graph.nodes[i][1])
                continue
            i = i if sign > 0 else self.negative(i)
            while self.graph.nodes[i][0] in ("input", "neg") or (i, k % lanes) in taken:
                i = self.node("add", i, self.node("const", 0.0))  # a move
            taken.add((i, k % lanes))
            out.append((1, i))
        return out


def critical_path(program: Program, delays: Delays) -> int:
    """Cycles that the longest chain of operations takes, however many units there are."""
    ready: list[int] = []
    for node in program.nodes:
        if node[0] in LEAVES:
            ready.append(delays.load if node[0] == "input" else 0)
        elif node[0] == "neg":
            ready.append(ready[node[1]])
        else:
            ready.append(max(ready[j] for j in node[1:]) + delays.of(node[0]))
    return max((ready[r[1]] for r in program.results if isinstance(r, tuple)), default=0)


def operation_counts(program: Program) -> dict[str, int]:
    kinds = Counter(node[0] for node in program.nodes)
    constants = sum(
        node[0] == "mul" and program.nodes[node[1]][0] == "const" for node in program.nodes
    )
    return {
        "multiplications": kinds["mul"],
        "by constants": constants,
        "additions": kinds["add"] + kinds["sub"],
        "sines and cosines": kinds["sin"] + kinds["cos"],
        "reciprocals": kinds["rcp"],
        "inputs": sum(math.prod(s) for s in program.inputs.values()),
        "results": len(program.results),
    }
