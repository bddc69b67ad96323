"""One datapath for each gradient column, as Plancher et al. (2021, section IV-C) lay them out: an
operation that only one column of the results needs is done by units of that column alone.

Operations that several columns need have units of their own, too, so that the passes of the
algorithm overlap as far as their operands allow.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from rigidgrad.program.program import LEAVES, Program
from rigidgrad.targets.verilog.lower import KIND
from rigidgrad.targets.verilog.schedule import Resources, Unit

SHARED = 0


@dataclass(frozen=True)
class Datapaths:
    """Of each node its datapath, 0 for what several columns need; of each datapath and kind its
    units.
    """

    of_node: tuple[int, ...]
    units: dict[tuple[int, str], list[Unit]]

    @property
    def count(self) -> int:
        return max(self.of_node) + 1


def columns(program: Program) -> tuple[int, ...]:
    """The datapath of each node. A column of each output with two axes has one."""
    reached: list[set[int]] = [set() for _ in program.nodes]
    start, first = 0, 1
    for shape in program.outputs.values():
        wide = shape[-1] if len(shape) == 2 else 0
        for k in range(math.prod(shape)):
            r = program.results[start + k]
            if isinstance(r, tuple):
                reached[r[1]].add(first + k % wide if wide else SHARED)
        start, first = start + math.prod(shape), first + wide
    for i in range(len(program.nodes) - 1, -1, -1):
        if program.nodes[i][0] not in LEAVES:
            for j in program.nodes[i][1:]:
                reached[j] |= reached[i]
    numbers = [next(iter(x)) if len(x) == 1 else SHARED for x in reached]
    used = {n: k for k, n in enumerate(sorted({SHARED, *numbers}))}
    return tuple(used[n] for n in numbers)


def by_columns(program: Program, resources: Resources) -> Datapaths:
    """Units are shared out by the number of operations; units of which there are fewer than
    datapaths are everybody's.
    """
    of_node = columns(program)
    count = max(of_node) + 1
    units: dict[tuple[int, str], list[Unit]] = {}
    for kind in sorted(set(KIND.values())):
        every = resources.units(kind)
        work = Counter(
            of_node[i] for i, node in enumerate(program.nodes) if KIND.get(node[0]) == kind
        )
        if len(every) < max(len(work), 2):
            units |= {(k, kind): every for k in range(count)}
            continue
        left, total, begin = len(every) - len(work), sum(work.values()), 0
        done = 0
        for k in range(count):
            if not work[k]:
                units[k, kind] = every
                continue
            done += work[k]
            end = len([w for w in range(k + 1) if work[w]]) + left * done // total
            units[k, kind] = every[begin:end]
            begin = end
    return Datapaths(of_node, units)
