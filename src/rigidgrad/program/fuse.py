"""Multiply-adds chosen in the Program, so that every target and every width rounds a state in the same way."""

from __future__ import annotations

from rigidgrad.program.program import Node, Program


def fuse(program: Program) -> Program:
    """a·b ± c as one operation wherever the product has no other use."""
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
    return Program.from_graph(program.inputs, program.outputs, fused, program.results)
