"""An order of a Program's operations that keeps few values alive, so that registers suffice for more of them.

The recorded order goes subtree by subtree and is good within a limb. Limbs that do not depend on each other are put one after the other; whether that
pays is judged by simulating a register file that always gives up the value needed last (Belady's rule): what counts is how many values
have to be stored and fetched again.
"""

from __future__ import annotations

import heapq

from rigidgrad.program.program import LEAVES, Program, operands

# below this many operations, work on several limbs at once hides more delay than the fewer transfers save
_LARGE = 1000


def best_order(program: Program, registers: int) -> Program:
    """The program in the recorded order or limb by limb, whichever moves fewer values to memory and back."""
    if program.counts().instructions < _LARGE:
        return program
    return min((program, program.reordered(grouped(program))), key=lambda p: memory_traffic(p, registers))


def grouped(program: Program) -> list[int]:
    """The recorded order, with parts that share nothing but inputs and constants, such as the legs of a fixed trunk, one after the other."""
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
    return sorted(range(len(program.nodes)), key=lambda i: -1 if program.nodes[i][0] in LEAVES else first[find(i)])


def memory_traffic(program: Program, registers: int) -> int:
    """Stores and fetches of a register file that gives up the value needed last; constants are operands in memory, results are not kept."""
    uses: list[list[int]] = [[] for _ in program.nodes]
    for i, node in enumerate(program.nodes):
        for j in operands(node):
            uses[j].append(i)
    for u in uses:
        u.reverse()  # the next use is the last entry
    held: set[int] = set()
    queue: list[tuple[int, int]] = []  # (-next use, value), stale entries included
    stored = [node[0] == "input" for node in program.nodes]
    traffic = 0

    def hold(value: int) -> int:
        cost = 0
        while len(held) >= registers:
            when, victim = heapq.heappop(queue)
            if victim not in held or not uses[victim] or uses[victim][-1] != -when:
                continue
            held.discard(victim)
            if not stored[victim]:
                stored[victim] = True
                cost += 1
        held.add(value)
        heapq.heappush(queue, (-uses[value][-1], value))
        return cost

    for i, node in enumerate(program.nodes):
        if node[0] in LEAVES:
            continue
        needed = [j for j in dict.fromkeys(operands(node)) if program.nodes[j][0] != "const"]
        for j in needed:
            if j not in held:
                traffic += 1
                traffic += hold(j)
        for j in operands(node):
            uses[j].pop()
        for j in needed:
            if uses[j]:
                heapq.heappush(queue, (-uses[j][-1], j))
            else:
                held.discard(j)
        if uses[i]:
            traffic += hold(i)
    return traffic
