"""An order of a Program's operations that keeps few values alive, so that registers suffice for
more of them.

The recorded order goes subtree by subtree and is good within a limb. Limbs that do not depend on
each other are put one after the other, and operations that free a register come somewhat earlier;
whether that pays is judged by how many values have to be stored and fetched again
(`program/registers.py`).
"""

from __future__ import annotations

import heapq

from rigidgrad.program.program import LEAVES, Program, operands
from rigidgrad.program.registers import transfers

# below this many operations, work on several limbs at once hides more delay than the fewer
# transfers save
_LARGE = 1000
# above this many, the recorded order stays: another one saved 0.5 to 2% of the transfers of
# humanoids, and took a second to find
_LONG = 20_000
# places by which an operation comes earlier for each register that it frees; more saves more
# transfers, but leaves less to do at once
_AHEAD = 10


def best_order(program: Program, registers: int) -> Program:
    """The program in the order, of those tried, that moves the fewest values to memory and back."""
    if not _LARGE <= program.instructions <= _LONG:
        return program
    best, least = program, memory_traffic(program, registers)
    for order in (grouped, freeing):
        other = best.reordered(order(best))
        traffic = memory_traffic(other, registers)
        if traffic < least:
            best, least = other, traffic
    return best


def grouped(program: Program) -> list[int]:
    """The recorded order, with parts that share nothing but inputs and constants, such as the legs
    of a fixed trunk, one after the other.
    """
    root = list(range(len(program.nodes)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for i, node in enumerate(program.nodes):
        for j in operands(node):
            if program.nodes[j][0] not in LEAVES:
                root[find(i)] = find(j)
    first: dict[int, int] = {}  # part -> its first node
    for i, node in enumerate(program.nodes):
        if node[0] not in LEAVES:
            first.setdefault(find(i), i)
    return sorted(
        range(len(program.nodes)),
        key=lambda i: -1 if program.nodes[i][0] in LEAVES else first[find(i)],
    )


def freeing(program: Program) -> list[int]:
    """The order of the program, except that an operation which is the last to need a value comes up
    to some places earlier.
    """
    nodes = program.nodes
    inner = [node[0] not in LEAVES for node in nodes]
    needs = [{j for j in operands(node) if inner[j]} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for i, values in enumerate(needs):
        for j in values:
            users[j].append(i)
    waits = [len(values) for values in needs]
    left = [len(u) for u in users]
    rest = [sum(u) for u in users]  # of one user left, its number
    freed = [0] * len(nodes)
    for j, count in enumerate(left):
        if count == 1:
            freed[rest[j]] += 1
    ready: list[tuple[int, int]] = []  # (place, operation), entries of a later place included

    def offer(i: int) -> None:
        if not waits[i]:
            heapq.heappush(ready, (i + _AHEAD * (bool(users[i]) - freed[i]), i))

    order = [i for i, own in enumerate(inner) if not own]
    done = [not own for own in inner]
    for i, own in enumerate(inner):
        if own:
            offer(i)
    while ready:
        i = heapq.heappop(ready)[1]
        if done[i]:
            continue
        done[i] = True
        order.append(i)
        for j in needs[i]:
            left[j] -= 1
            rest[j] -= i
            if left[j] == 1:
                freed[rest[j]] += 1
                offer(rest[j])
        for user in users[i]:
            waits[user] -= 1
            offer(user)
    return order


def memory_traffic(program: Program, registers: int) -> int:
    """Stores and fetches of a register file that gives up the value needed last."""
    return transfers(program, registers).traffic
