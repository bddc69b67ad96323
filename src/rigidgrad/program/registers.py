"""Which values of a Program are in registers, and which are stored to memory and fetched again: a
register file that gives up the value needed last (Belady's rule).
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.program.program import LEAVES, Program

_NEVER = 1 << 60


class Transfers(NamedTuple):
    """What moves between registers and memory. Of each node, before it is computed: values that are
    stored, then values that are fetched, inputs among them.
    """

    stores: dict[int, list[int]]
    fetches: dict[int, list[int]]
    slots: dict[int, int]  # value -> its place in memory; inputs have their own
    size: int  # places in memory

    @property
    def traffic(self) -> int:
        return len(self.slots) + sum(map(len, self.fetches.values()))


def transfers(program: Program, registers: int) -> Transfers:
    """Of all orders of giving up registers, that with the fewest fetches. Constants are operands in
    memory; so is one value of an operation without a constant. Results are not kept.
    """
    nodes = program.nodes
    constant = [node[0] == "const" for node in nodes]
    after, first = _next_uses(program)
    held: dict[int, int] = {}  # value -> its next use
    saved = [node[0] == "input" for node in nodes]
    slots: dict[int, int] = {}
    used: list[int] = []  # how often each place is
    free: list[int] = []
    stores: dict[int, list[int]] = {}
    fetches: dict[int, list[int]] = {}
    pending: list[int] = []

    def give_up() -> None:
        value = max(held, key=held.__getitem__)
        del held[value]
        if not saved[value]:
            saved[value] = True
            if not free:
                free.append(len(used))
                used.append(0)
            slots[value] = free.pop()  # that freed last, which is the likeliest to be in the cache
            used[slots[value]] += 1
            pending.append(value)

    for i, node in enumerate(nodes):
        if node[0] in LEAVES:
            continue
        needs = {j: when for j, when in zip(node[1:], after[i], strict=True) if not constant[j]}
        missing = [j for j in needs if j not in held]
        operand = None
        if missing:
            fetches[i] = missing
            for j in needs:
                if j in held:
                    held[j] = i
            if len(needs) == len(node) - 1:
                operand = max(missing, key=needs.__getitem__)
            for j in missing:
                if j in slots:
                    used[slots[j]] += 1
                if j != operand:
                    if len(held) >= registers:
                        give_up()
                    held[j] = i
        if pending:
            stores[i], pending = pending, []
        for j, when in needs.items():
            if when == _NEVER:
                held.pop(j, None)
                if j in slots:
                    free.append(slots[j])
            elif j in held:
                held[j] = when
        if operand is not None and needs[operand] != _NEVER:
            held[operand] = needs[operand]
            if len(held) > registers:
                give_up()
        if first[i] != _NEVER:
            held[i] = first[i]
            if len(held) > registers:
                give_up()
    # those used most come first, where their addresses are short
    place = {old: new for new, old in enumerate(sorted(range(len(used)), key=lambda k: -used[k]))}
    return Transfers(
        stores, fetches, {value: place[slot] for value, slot in slots.items()}, len(used)
    )


def _next_uses(program: Program) -> tuple[list[tuple[int, ...]], list[int]]:
    """Of each node the next use of its operands after it, and its own first use."""
    later = [_NEVER] * len(program.nodes)
    after: list[tuple[int, ...]] = [()] * len(later)
    first = later.copy()
    for i in range(len(later) - 1, -1, -1):
        node = program.nodes[i]
        first[i] = later[i]
        if node[0] not in LEAVES:
            after[i] = tuple([later[j] for j in node[1:]])
            for j in node[1:]:
                later[j] = i
    return after, first
