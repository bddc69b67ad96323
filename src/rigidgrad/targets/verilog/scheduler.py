"""Which unit does which operation in which cycle: list scheduling by critical path, modulo the
initiation interval.

Operands wait where they are used. Each unit has a small memory at each of its inputs (a port),
which takes one word a cycle from the results of that cycle and can be read at any address. So an
operation fits a unit only if that unit is free in its cycle, and each of its operands either is at
the port already or found the port's write slot free in the cycle in which it was made. The sources
that a port ever takes words from are its multiplexer: units are chosen so that few are added. This
takes the place of fixed clusters and of a network between them with delays of its own.

Inputs wait in a buffer and are put on one of a few load lanes, once or again, when a port needs
them. A result that no port of a free unit could take when it was made is made again: an adder that
has it adds zero (a move). So that this is always possible, a result is only made in a cycle in
which some port of an adder, and of each kind of unit that needs it, is free for it, and that place
is kept for it (a pledge). Results go to output banks, one write slot a cycle each.

In a stream, state i starts `interval` cycles after state i - 1, so everything that is used in cycle
t is used in every cycle t modulo the interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rigidgrad.errors import InputError
from rigidgrad.program.program import LEAVES, Node, Program
from rigidgrad.targets.verilog.datapaths import Datapaths
from rigidgrad.targets.verilog.lower import KIND, Delays
from rigidgrad.targets.verilog.schedule import (
    Delivery,
    Load,
    Operation,
    Port,
    Resources,
    Schedule,
    Unit,
)

FOREVER = 1 << 30
# what adding one to a port costs; a new source's cost is the scheduler's
NEW_CONSTANT, NEW_LOAD, NEW_MOVE = (3, 2, 12)
PORTS = {"multiplier": 2, "adder": 2, "trig": 1, "reciprocal": 1}


def schedule(
    program: Program,
    resources: Resources,
    delays: Delays,
    interval: int | None = None,
    datapaths: Datapaths | None = None,
) -> Schedule:
    """`interval` cycles from one state to the next; None: the next state starts when one is done,
    which gives the least latency. With `datapaths` a unit does operations of its own alone.
    """
    _check(program, resources)
    if interval is not None and interval < least_interval(program, resources):
        raise InputError(
            f"an interval of {interval} cycles is below {least_interval(program, resources)}:"
            f" {bound_text(program, resources)}"
        )
    found = _attempt(program, resources, delays, interval or FOREVER, datapaths=datapaths)
    if found is None:
        raise InputError(
            f"no schedule with an interval of {interval} cycles was found: try a longer one, more"
            " units or more load lanes"
        )
    return found


def shortest_interval(program: Program, resources: Resources, delays: Delays) -> Schedule:
    """The schedule of the least interval that is found from the lower bound upwards; at worst one
    state after the other.
    """
    alone = schedule(program, resources, delays)
    interval = least_interval(program, resources)
    while interval < alone.interval:
        found = _attempt(program, resources, delays, interval, weights=(4,))
        if found is not None:
            return found
        interval += max(1, interval // 20)
    return alone


def _attempt(
    program: Program,
    resources: Resources,
    delays: Delays,
    interval: int,
    weights: tuple[int, ...] = (8, 3, 0),
    datapaths: Datapaths | None = None,
) -> Schedule | None:
    """Greedy placement has luck: where it finds no place, it is tried again with less regard for
    the size of multiplexers.
    """
    for new_source in weights:
        found = _Scheduler(program, resources, delays, interval, new_source, datapaths).run()
        if found is not None:
            return found
    return None


def least_interval(program: Program, resources: Resources) -> int:
    return max(_bounds(program, resources).values())


def bound_text(program: Program, resources: Resources) -> str:
    return ", ".join(
        f"{name} need {cycles} cycles" for name, cycles in _bounds(program, resources).items()
    )


def _bounds(program: Program, resources: Resources) -> dict[str, int]:
    count: dict[str, int] = defaultdict(int)
    for node in program.nodes:
        if node[0] in KIND:
            count[KIND[node[0]]] += 1
    inputs = sum(node[0] == "input" for node in program.nodes)
    per_bank = -(-len(program.results) // resources.lanes)
    words = sum(math.prod(s) for s in program.inputs.values())
    bounds = {
        f"{len(resources.units(k))} {k}s": -(-n // len(resources.units(k)))
        for k, n in count.items()
    }
    return bounds | {
        f"{resources.loads} load lanes": -(-inputs // resources.loads),
        f"beats of {resources.lanes} words": max(per_bank, -(-words // resources.lanes)),
    }


def _check(program: Program, resources: Resources) -> None:
    for name in ("multipliers", "adders", "loads", "lanes"):
        if getattr(resources, name) < 1:
            raise InputError(f"{name} is at least 1, not {getattr(resources, name)}")
    if not resources.trig and any(node[0] in ("sin", "cos") for node in program.nodes):
        raise InputError(
            "the program takes sines: give it a trig unit, or sines and cosines as inputs"
        )
    if not resources.reciprocals and any(node[0] == "rcp" for node in program.nodes):
        raise InputError("the program divides: give it a unit for reciprocals")


class _Port:
    """What a port holds and when it is written."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}  # cycle modulo the interval -> cycle
        self.held: dict[tuple[int, int], Delivery] = {}  # (node, cycle written)
        self.sources: set[Unit] = set()
        self.constants: dict[float, None] = {}


class _Room:
    """Write slots of all ports of a kind of unit in each cycle: how many are taken, and how many
    pledged to results that have to go somewhere.
    """

    def __init__(self, program: Program, ports: dict[str, int]):
        self.ports = ports
        self.taken: dict[tuple[str, int], int] = defaultdict(int)
        self.pledged: dict[tuple[str, int], int] = defaultdict(int)
        self.pledges: dict[tuple[int, str], tuple[int, int]] = {}  # (node, kind) -> cycle and slot
        self.waiting: dict[int, int] = defaultdict(int)  # node -> operands of operations to come
        self.kinds: dict[int, set[str]] = defaultdict(set)
        for node in program.nodes:
            if node[0] in KIND:
                for j in node[1:]:
                    self.waiting[j] += 1
                    self.kinds[j] |= {KIND[node[0]], "adder"}

    def _left(self, kind: str, slot: int) -> int:
        return self.ports[kind] - self.taken[kind, slot] - self.pledged[kind, slot]

    def can_pledge(self, i: int, slot: int) -> bool:
        return all(self._left(kind, slot) > 0 for kind in self.kinds[i])

    def pledge(self, i: int, written: int, slot: int) -> None:
        for kind in self.kinds[i]:
            self.pledged[kind, slot] += 1
            self.pledges[i, kind] = (written, slot)

    def is_pledged(self, kind: str, i: int, written: int | None) -> bool:
        return (i, kind) in self.pledges and self.pledges[i, kind][0] == written

    def has_left(self, kind: str, slot: int, also: int) -> bool:
        """Beyond those also asked for, and one more if there are many: the operation's own result,
        or a move's other end, may fall into the same slot.
        """
        return self._left(kind, slot) > also + (self.ports[kind] > 4)

    def take(self, kind: str, i: int, written: int, slot: int) -> None:
        self.taken[kind, slot] += 1
        if self.is_pledged(kind, i, written):
            self._release(i, kind)

    def used_by_one(self, i: int) -> None:
        self.waiting[i] -= 1
        if not self.waiting[i]:
            for kind in self.kinds[i]:
                if (i, kind) in self.pledges:
                    self._release(i, kind)

    def _release(self, i: int, kind: str) -> None:
        _, slot = self.pledges.pop((i, kind))
        self.pledged[kind, slot] -= 1


@dataclass
class _Plan:
    """How an operand would reach a port: as it is, by a new load, or by a move through a port of an
    adder.
    """

    cost: int
    node: int
    port: Port
    written: int | None = None
    source: Unit | None = None
    load: bool = False
    move: tuple[Port, int, Unit] | None = (
        None  # the adder's port, the cycle in which it gets the value, and from where
    )

    def deliveries(self) -> Iterator[tuple[Port, int, int]]:
        if self.written is not None:
            yield self.port, self.node, self.written
        if self.move is not None:
            yield self.move[0], self.node, self.move[1]


class _Scheduler:
    def __init__(
        self,
        program: Program,
        resources: Resources,
        delays: Delays,
        interval: int,
        new_source: int,
        datapaths: Datapaths | None,
    ):
        self.datapaths = datapaths
        self.new_source = new_source
        self.program, self.resources, self.delays, self.interval = (
            program,
            resources,
            delays,
            interval,
        )
        self.nodes = program.nodes
        self.units = {kind: resources.units(kind) for kind in (*PORTS, "load")}
        self.busy: set[tuple[Unit, int]] = set()
        self.ports: dict[Port, _Port] = defaultdict(_Port)
        self.made: dict[
            int, list[tuple[int, Unit]]
        ] = {}  # node -> (cycle written, unit), once and for each move
        # input -> (cycle written, lane)
        self.loads: dict[int, list[tuple[int, Unit]]] = defaultdict(list)
        self.loads_made = 0
        self.operations: list[Operation] = []
        self.room = _Room(program, {kind: len(self.units[kind]) * PORTS[kind] for kind in PORTS})
        self.bank_slots: set[tuple[int, int]] = set()
        self.bank_sources: dict[int, set[Unit]] = defaultdict(set)
        self.words: dict[int, list[int]] = defaultdict(list)
        for k, r in enumerate(program.results):
            if isinstance(r, tuple):
                self.words[r[1]].append(k)

    def run(self) -> Schedule | None:
        for i in self._order():
            if not self._place(i):
                return None
        cycles = max((made[0][0] + 1 for made in self.made.values()), default=1)
        interval = min(cycles, self.interval)  # nothing is left to wait for once a state is done
        writes = [
            (k, self.made[i][0][1], self.made[i][0][0], i)
            for i, words in self.words.items()
            for k in words
        ]
        return Schedule(
            self.program,
            self.resources,
            self.delays,
            interval,
            cycles,
            self.operations,
            [
                Load(i, lane, written - 1)
                for i, found in self.loads.items()
                for written, lane in found
            ],
            {p: list(s.held.values()) for p, s in self.ports.items()},
            {p: list(s.constants) for p, s in self.ports.items()},
            writes,
        )

    def _order(self) -> list[int]:
        """Operations by the length of the longest chain that waits for them: what is needed first
        comes first, and after its operands.
        """
        tail = [0] * len(self.nodes)
        for i in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[i]
            if node[0] in LEAVES:
                continue
            for j in node[1:]:
                tail[j] = max(tail[j], tail[i] + self.delays.of(node[0]))
        operations = [i for i, node in enumerate(self.nodes) if node[0] in KIND]
        return sorted(operations, key=lambda i: -(tail[i] + self.delays.of(self.nodes[i][0])))

    def _place(self, i: int) -> bool:
        node = self.nodes[i]
        kind, delay = KIND[node[0]], self.delays.of(node[0])
        units = (
            self.datapaths.units[self.datapaths.of_node[i], kind]
            if self.datapaths
            else self.units[kind]
        )
        first = max((self._ready(j) for j in node[1:]), default=0)
        for start in range(first, first + min(self.interval, 4000)):
            written = start + delay - 1
            banks = {k % self.resources.lanes for k in self.words[i]}
            if any(
                (bank, written % self.interval) in self.bank_slots for bank in banks
            ) or not self.room.can_pledge(i, written % self.interval):
                continue
            best: tuple[int, Unit, list[_Plan], tuple[int, ...]] | None = None
            for unit in units:
                if (unit, start % self.interval) in self.busy:
                    continue
                extra = sum(
                    self.new_source for bank in banks if unit not in self.bank_sources[bank]
                )
                for operands in self._orientations(node):
                    plans = self._plans(unit, operands, start)
                    if plans is None:
                        continue
                    cost = extra + sum(p.cost for p in plans)
                    if best is None or cost < best[0]:
                        best = (cost, unit, plans, operands)
                if best and best[0] == 0:
                    break
            if best:
                self._commit(i, start, written, *best[1:])
                for bank in banks:
                    self.bank_slots.add((bank, written % self.interval))
                    self.bank_sources[bank].add(best[1])
                return True
        return False

    def _ready(self, j: int) -> int:
        """The first cycle in which a port can have the value."""
        if self.nodes[j][0] == "const":
            return 0
        return self.made[j][0][0] + 1 if j in self.made else self.delays.load

    def _orientations(self, node: Node) -> Iterator[tuple[int, ...]]:
        operands = node[1:]
        if node[0] == "mul" and self.nodes[operands[0]][0] == "const":
            yield operands[::-1]  # constants wait at one side only
            return
        if node[0] == "add" and operands[0] == operands[1]:
            yield operands[:1]  # an adder can double its first operand
            return
        yield operands
        if node[0] in ("add", "mul") and operands[0] != operands[1]:
            yield operands[::-1]

    def _plans(self, unit: Unit, operands: tuple[int, ...], start: int) -> list[_Plan] | None:
        plans: list[_Plan] = []
        for side, j in enumerate(operands):
            port = Port(unit, side)
            if self.nodes[j][0] == "const":
                plans.append(
                    _Plan(
                        0 if self.nodes[j][1] in self.ports[port].constants else NEW_CONSTANT,
                        j,
                        port,
                    )
                )
                continue
            plan = (
                self._computed(port, j, start, plans)
                if j in self.made
                else self._loaded(port, j, start, plans)
            )
            if plan is None:
                return None
            plans.append(plan)
        return plans

    def _open(self, port: Port, j: int, written: int, plans: list[_Plan]) -> bool:
        """Whether the port could have taken the value when it was written, with what is pledged to
        others left to them.
        """
        slot, kind = written % self.interval, port.unit.kind
        if slot in self.ports[port].slots:
            return False
        if not plans:
            return self.room.is_pledged(kind, j, written) or self.room.has_left(kind, slot, 0)
        same = [
            (to, node, w)
            for p in plans
            for to, node, w in p.deliveries()
            if w % self.interval == slot and to.unit.kind == kind
        ]
        if any(to == port for to, _, _ in same):
            return False
        pledged = self.room.is_pledged(kind, j, written) and not any(
            node == j for _, node, _ in same
        )
        return pledged or self.room.has_left(
            kind, slot, sum(not self.room.is_pledged(kind, node, w) for _, node, w in same)
        )

    def _free(self, unit: Unit, start: int, plans: list[_Plan], delay: int) -> bool:
        """Whether a load lane or a moving adder has nothing to do yet, neither by the schedule nor
        by the plans for the other operand.
        """
        if (unit, start % self.interval) in self.busy:
            return False
        taken = [
            p.written - delay + 1
            for p in plans
            if (p.load or p.move) and p.source == unit and p.written is not None
        ]
        return not any(t % self.interval == start % self.interval for t in taken)

    def _computed(self, port: Port, j: int, start: int, plans: list[_Plan]) -> _Plan | None:
        best: _Plan | None = None
        at = self.ports[port]
        for written, source in self.made[j]:
            if written >= start:
                continue
            if (j, written) in at.held:
                return _Plan(0, j, port, written, source)
            if self._open(port, j, written, plans):
                cost = 0 if source in at.sources else self.new_source
                if best is None or cost < best.cost:
                    best = _Plan(cost, j, port, written, source)
        return best or self._moved(port, j, start, plans)

    def _moved(self, port: Port, j: int, start: int, plans: list[_Plan]) -> _Plan | None:
        """Through an adder that has the value, or could have it. The adder must not be needed in
        the cycle of the operation itself.
        """
        delay = self.delays.adder
        written, source = self.made[j][0]
        if written + delay >= start:
            return None
        for adder in self.units["adder"]:
            for side in (0, 1):
                way = Port(adder, side)
                at = self.ports[way]
                if (j, written) not in at.held and not self._open(way, j, written, plans):
                    continue
                for arrival in range(start - 1, written + delay - 1, -1):
                    begin = arrival - delay + 1
                    if (
                        adder == port.unit and (begin - start) % self.interval == 0
                    ) or not self._free(adder, begin, plans, delay):
                        continue
                    if (way == port and (arrival - written) % self.interval == 0) or not self._open(
                        port, j, arrival, plans
                    ):
                        continue
                    cost = (
                        NEW_MOVE
                        + (0 if adder in self.ports[port].sources else self.new_source)
                        + (0 if source in at.sources else self.new_source)
                    )
                    return _Plan(cost, j, port, arrival, adder, move=(way, written, source))
        return None

    def _loaded(self, port: Port, j: int, start: int, plans: list[_Plan]) -> _Plan | None:
        """From a load that other ports had use for, or a new one as late as possible."""
        best: _Plan | None = None
        at = self.ports[port]
        for written, lane in self.loads[j]:
            if written >= start:
                continue
            if (j, written) in at.held:
                return _Plan(0, j, port, written, lane)
            if not self._open(port, j, written, plans):
                continue
            cost = 0 if lane in at.sources else self.new_source
            if best is None or (cost, -written) < (best.cost, -(best.written or 0)):
                best = _Plan(cost, j, port, written, lane)
        if best is not None and best.cost == 0:
            return best
        delay = self.delays.load
        for written in range(start - 1, max(delay - 2, start - 1 - min(self.interval, 60)), -1):
            if not self._open(port, j, written, plans):
                continue
            lanes = [
                lane
                for lane in self.units["load"]
                if self._free(lane, written - delay + 1, plans, delay)
            ]
            if not lanes:
                continue
            known = next((lane for lane in lanes if lane in at.sources), None)
            cost = self._load_cost() + (0 if known else self.new_source)
            plan = _Plan(cost, j, port, written, known or lanes[0], load=True)
            return plan if best is None or plan.cost < best.cost else best
        return best

    def _load_cost(self) -> int:
        """More when few slots of the lanes are left."""
        return NEW_LOAD + 16 * self.loads_made // (len(self.units["load"]) * self.interval)

    def _commit(
        self,
        i: int,
        start: int,
        written: int,
        unit: Unit,
        plans: list[_Plan],
        operands: tuple[int, ...],
    ) -> None:
        self.busy.add((unit, start % self.interval))
        self.made[i] = [(written, unit)]
        taken: list[tuple[int, int] | float] = []
        for side, (j, plan) in enumerate(zip(operands, plans, strict=True)):
            port = self.ports[Port(unit, side)]
            if plan.written is None or plan.source is None:
                taken.append(self.nodes[j][1])
                port.constants[self.nodes[j][1]] = None
                continue
            taken.append((j, plan.written))
            if plan.load and (plan.written, plan.source) not in self.loads[j]:
                self.busy.add((plan.source, (plan.written - self.delays.load + 1) % self.interval))
                self.loads[j].append((plan.written, plan.source))
                self.loads_made += 1
            if plan.move and (plan.written, plan.source) not in self.made[j]:
                self._commit_move(j, plan.written, plan.source, *plan.move)
            self._deliver(unit.kind, port, j, plan.source, plan.written, start)
        self.room.pledge(i, written, written % self.interval)
        for j in self.nodes[i][1:]:
            self.room.used_by_one(j)
        self.operations.append(Operation(i, unit, start, tuple(taken)))

    def _commit_move(
        self, j: int, written: int, adder: Unit, way: Port, made: int, source: Unit
    ) -> None:
        start = written - self.delays.adder + 1
        self.busy.add((adder, start % self.interval))
        self.made[j].append((written, adder))
        self._deliver("adder", self.ports[way], j, source, made, start)
        self.ports[Port(adder, 1 - way.side)].constants[0.0] = None
        operands: list[tuple[int, int] | float] = [0.0, 0.0]
        operands[way.side] = (j, made)
        self.operations.append(Operation(j, adder, start, tuple(operands), move=True))

    def _deliver(
        self, kind: str, port: _Port, j: int, source: Unit, written: int, read: int
    ) -> None:
        if (j, written) not in port.held:
            self.room.take(kind, j, written, written % self.interval)
        port.slots[written % self.interval] = written
        port.sources.add(source)
        held = port.held.setdefault((j, written), Delivery(j, source, written, read))
        held.last = max(held.last, read)
