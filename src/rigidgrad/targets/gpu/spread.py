"""A Program as several small ones that are alike, for threads that share it out.

Results that need no common operation are parts of their own. Parts are alike where they do the same
operations on numbers whose places move on by the same step from part to part, as the columns of a
triangular solve or the numbers of a sum of two rows do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rigidgrad.kernels.language import Call
from rigidgrad.program.program import LEAVES, Node, Output, Program, operands

_CHEAP = 2  # operations that parts may repeat rather than be one part
_KINDS = 4  # of parts, at most; else one thread runs the whole


@dataclass(frozen=True)
class Place:
    """Of a number: the argument it is in, and how far from its begin: first + part · step."""

    name: str
    first: int
    step: int


@dataclass(frozen=True)
class Parts:
    """`count` parts that are alike: `program` has one input and one output, whose numbers are at
    these places.
    """

    program: Program
    count: int
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]


# what parts that are alike have in common: nodes, results, names that are read and written
Kind = tuple[tuple[Node, ...], tuple[Output, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class _Part:
    nodes: tuple[Node, ...]
    results: tuple[Output, ...]
    reads: tuple[tuple[str, int], ...]
    writes: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> Kind:
        return (
            self.nodes,
            self.results,
            tuple(n for n, _ in self.reads),
            tuple(n for n, _ in self.writes),
        )


def spread(call: Call) -> tuple[Parts, ...]:
    """Parts of a call, or none where its Program is one piece or its parts are too different."""
    groups: dict[Kind, list[_Part]] = defaultdict(list)
    for part in _parts(call):
        groups[part.kind].append(part)
    if len(groups) > _KINDS or sum(map(len, groups.values())) == 1:
        return ()
    found = [_alike(parts) for parts in groups.values()]
    if any(x is None for x in found) or _overtakes(call, [p for g in groups.values() for p in g]):
        return ()
    return tuple(x for x in found if x is not None)


def _alike(parts: list[_Part]) -> Parts | None:
    """None where places do not move on evenly."""
    first = parts[0]
    found = []
    for own in ([p.reads for p in parts], [p.writes for p in parts]):
        places = []
        for numbers in zip(*own, strict=True):
            name, begin = numbers[0]
            steps = {b[1] - a[1] for a, b in pairwise(numbers)} or {0}
            if len(steps) > 1:
                return None
            places.append(Place(name, begin, steps.pop()))
        found.append(tuple(places))
    reads, writes = found
    program = Program({"x": (len(reads),)}, {"y": (len(writes),)}, first.nodes, first.results)
    return Parts(program, len(parts), reads, writes)


def _overtakes(call: Call, parts: list[_Part]) -> bool:
    """Whether a part may write what another one has still to read."""
    ins = {v.array for v in call.inputs.values()}
    shared = {name: v for name, v in call.outputs.items() if v.array in ins}
    if not shared:
        return False
    if any(
        v.array is w.array and v.offset != w.offset
        for v in shared.values()
        for w in call.inputs.values()
    ):
        return True
    readers: dict[tuple[str, int], set[int]] = defaultdict(set)
    for k, part in enumerate(parts):
        for name, place in part.reads:
            readers[call.inputs[name].array.name, place].add(k)
    return any(
        readers[shared[name].array.name, place] - {k}
        for k, part in enumerate(parts)
        for name, place in part.writes
        if name in shared
    )


def _parts(call: Call) -> Iterator[_Part]:
    """In the order of their first results."""
    program = call.program
    cones = _cones(program)
    root = list(range(len(program.nodes)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    heavy = [n is not None and len(n) > _CHEAP for n in cones]
    for i, node in enumerate(program.nodes):
        if heavy[i]:
            for j in operands(node):
                if heavy[j]:
                    root[find(i)] = find(j)
    members: dict[object, list[int]] = defaultdict(list)
    for r, result in enumerate(program.results):
        alone = not isinstance(result, tuple) or not heavy[result[1]]
        members[("alone", r) if alone else find(result[1])].append(r)  # type: ignore[index]
    targets = [
        (name, place)
        for (name, view), shape in zip(call.outputs.items(), program.outputs.values(), strict=True)
        for place in view.places()[: math.prod(shape)]
    ]
    places = {name: view.places() for name, view in call.inputs.items()}
    for numbers in members.values():
        yield _part(program, numbers, targets, places)


def _part(
    program: Program,
    numbers: list[int],
    targets: list[tuple[str, int]],
    places: dict[str, list[int]],
) -> _Part:
    results = [program.results[r] for r in numbers]
    order = _below(program, [r[1] for r in results if isinstance(r, tuple)])
    here: dict[int, int] = {}
    nodes: list[Node] = []
    reads: list[tuple[str, int]] = []
    for i in order:
        node = program.nodes[i]
        here[i] = len(nodes)
        if node[0] == "input":
            nodes.append(("input", "x", len(reads)))
            reads.append((node[1], places[node[1]][node[2]]))
        elif node[0] == "const":
            nodes.append(node)
        else:
            nodes.append((node[0], *(here[j] for j in node[1:])))
    return _Part(
        tuple(nodes),
        tuple((r[0], here[r[1]]) if isinstance(r, tuple) else r for r in results),
        tuple(reads),
        tuple(targets[r] for r in numbers),
    )


def _below(program: Program, roots: list[int]) -> list[int]:
    """Nodes that others need, operands first, in the order in which these ask for them: the same
    for parts that are alike.
    """
    found: dict[int, None] = {}
    stack = [(i, False) for i in reversed(roots)]
    while stack:
        i, ready = stack.pop()
        if i in found:
            continue
        if ready:
            found[i] = None
        else:
            stack.append((i, True))
            stack += [(j, False) for j in reversed(operands(program.nodes[i]))]
    return list(found)


def _cones(program: Program) -> list[frozenset[int] | None]:
    """The operations that each node takes, where they are few; None of leaves."""
    many = frozenset(range(-_CHEAP - 1, 0))  # stands for all that are more
    found: list[frozenset[int] | None] = []
    for i, node in enumerate(program.nodes):
        if node[0] in LEAVES:
            found.append(None)
            continue
        own = frozenset({i}).union(*(found[j] or () for j in operands(node)))
        found.append(own if len(own) <= _CHEAP else many)
    return found


def used_inputs(program: Program) -> tuple[tuple[str, int], ...]:
    """The numbers of its inputs that a Program reads."""
    return tuple(
        (node[1], node[2])
        for node, uses in zip(program.nodes, program.uses, strict=True)
        if node[0] == "input" and uses
    )
