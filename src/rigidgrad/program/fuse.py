"""Multiply-adds chosen in the Program, so that every target and every width rounds a state in the
same way.
"""

from __future__ import annotations

from collections import Counter

from rigidgrad.program.program import Node, Output, Program


def fuse(program: Program) -> Program:
    """a·b ± c as one operation wherever the product has no other use."""
    nodes, results, _ = _fused(program)
    return Program.from_graph(program.inputs, program.outputs, nodes, results)


def fused_kinds(program: Program) -> Counter[str]:
    """Operations by kind that `fuse` would leave."""
    nodes, _, absorbed = _fused(program)
    return Counter(node[0] for i, node in enumerate(nodes) if i not in absorbed)


def _fused(program: Program) -> tuple[list[Node], list[Output], set[int]]:
    """The nodes and results, and which products are no longer needed."""
    nodes, uses = program.nodes, program.uses
    fused: list[Node] = list(nodes)
    absorbed: set[int] = set()

    def single_product(i: int) -> bool:
        return nodes[i][0] == "mul" and uses[i] == 1 and i not in absorbed

    for i, node in enumerate(nodes):
        if node[0] not in ("add", "sub"):
            continue
        _, a, b = node
        # of two products the later one is fused: the earlier can be under way meanwhile
        if single_product(b) and (b > a or not single_product(a)):
            absorbed.add(b)
            fused[i] = ("fma" if node[0] == "add" else "fnma", *nodes[b][1:], a)
        elif single_product(a):
            absorbed.add(a)
            fused[i] = ("fma" if node[0] == "add" else "fms", *nodes[a][1:], b)
    return fused, _unsigned(fused, uses, program.results), absorbed


# the operation that gives the negative; for a difference the operands change places
_NEGATIVE = {"fma": "fnms", "fnms": "fma", "fms": "fnma", "fnma": "fms"}


def _unsigned(nodes: list[Node], uses: list[int], results: tuple[Output, ...]) -> list[Output]:
    """Results without a minus sign where the operation that makes them can take it; changes those
    nodes.
    """
    negative = Counter(r[1] for r in results if isinstance(r, tuple) and r[0] < 0)
    flipped = set()
    for i, count in negative.items():
        kind = nodes[i][0]
        if count != uses[i]:
            continue
        if kind in _NEGATIVE:
            nodes[i] = (_NEGATIVE[kind], *nodes[i][1:])
            flipped.add(i)
        elif kind == "sub":
            nodes[i] = ("sub", nodes[i][2], nodes[i][1])
            flipped.add(i)
    return [(1, r[1]) if isinstance(r, tuple) and r[1] in flipped else r for r in results]
