"""A schedule as a circuit: addresses in the port memories, multiplexers, and the microcode that
drives each unit.

The microcode has a row for each cycle of `instances` intervals, after which it repeats. State i
uses the rows from (i mod instances)·interval on, with addresses of its own, so that the states
under way do not meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rigidgrad.fixed.format import Fixed
from rigidgrad.program.program import Program
from rigidgrad.targets.verilog.schedule import Port, Schedule, Unit


@dataclass(frozen=True)
class Memory:
    """What stands at a port: `sources` in the order of the multiplexer's inputs, constants as raw
    values by address.
    """

    port: Port
    sources: tuple[Unit, ...]
    depth: int
    constants: dict[int, int]

    @property
    def address_bits(self) -> int:
        return bits(self.depth)

    @property
    def select_bits(self) -> int:
        return bits(len(self.sources))


@dataclass
class Code:
    """Microcode of one unit: named fields of a row, lowest first."""

    fields: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, int]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(self.fields.values())

    def offset(self, name: str) -> int:
        names = list(self.fields)
        return sum(self.fields[n] for n in names[: names.index(name)])

    def words(self) -> list[int]:
        return [sum(value << self.offset(name) for name, value in row.items()) for row in self.rows]


@dataclass(frozen=True)
class Circuit:
    schedule: Schedule
    format: Fixed
    memories: dict[Port, Memory]
    codes: dict[Unit | int, Code]  # of each unit, and of each output bank by its number
    bank_sources: dict[int, tuple[Unit, ...]]
    word_of: dict[tuple[str, int], int]  # input number -> place in the stream

    @property
    def program(self) -> Program:
        return self.schedule.program

    @property
    def rows(self) -> int:
        return self.schedule.instances * self.schedule.interval

    @property
    def input_words(self) -> int:
        return sum(math.prod(shape) for shape in self.program.inputs.values())

    @property
    def output_words(self) -> int:
        return len(self.program.results)

    @property
    def lanes(self) -> int:
        return self.schedule.resources.lanes

    @property
    def input_beats(self) -> int:
        return -(-self.input_words // self.lanes)

    @property
    def output_beats(self) -> int:
        return -(-self.output_words // self.lanes)

    @property
    def input_slots(self) -> int:
        """States in the input buffer: those being read and one being filled."""
        return 1 << bits(-(-(self.schedule.last_load + 1) // self.schedule.interval) + 1)

    @property
    def output_slots(self) -> int:
        return 1 << bits(self.schedule.instances + 1)

    @property
    def code_bits(self) -> int:
        return self.rows * sum(code.width for code in self.codes.values())


def bits(count: int) -> int:
    """Of a number below `count`."""
    return max((count - 1).bit_length(), 1)


def assemble(schedule: Schedule, format: Fixed) -> Circuit:
    return _Assembler(schedule, format).circuit()


class _Assembler:
    def __init__(self, schedule: Schedule, format: Fixed):
        self.schedule, self.format = schedule, format
        self.period = schedule.instances * schedule.interval
        self.nodes = schedule.program.nodes
        self.codes: dict[Unit | int, Code] = {}
        self.memories: dict[Port, Memory] = {}
        self.addresses: dict[
            tuple[Port, int, int, int], int
        ] = {}  # (port, node, cycle written, instance)
        self.constant_addresses: dict[tuple[Port, float], int] = {}
        self.word_of: dict[tuple[str, int], int] = {}
        for name, shape in schedule.program.inputs.items():
            for k in range(math.prod(shape)):
                self.word_of[name, k] = len(self.word_of)

    def circuit(self) -> Circuit:
        working = {o.unit for o in self.schedule.operations}
        for port in sorted(p for p in self.schedule.deliveries if p.unit in working):
            self._store(port)
        self._unit_codes()
        bank_sources = self._bank_codes()
        return Circuit(
            self.schedule, self.format, self.memories, self.codes, bank_sources, self.word_of
        )

    def _row(self, cycle: int, instance: int) -> int:
        return (cycle + instance * self.schedule.interval) % self.period

    # --- addresses --------------------------------------------------------------------------------

    def _store(self, port: Port) -> None:
        """First fit, in the order of writing; what an address holds is a set of rows, as the bits
        of an integer.
        """
        occupied: list[int] = []
        deliveries = self.schedule.deliveries[port]
        arrivals = [
            (self._row(d.written, k), k, d)
            for d in deliveries
            for k in range(self.schedule.instances)
        ]
        for _, instance, d in sorted(arrivals, key=lambda x: x[:2]):
            mask = 0
            for cycle in range(d.written + 1, d.last + 1):
                mask |= 1 << self._row(cycle, instance)
            address = next(
                (a for a, taken in enumerate(occupied) if not taken & mask), len(occupied)
            )
            if address == len(occupied):
                occupied.append(0)
            occupied[address] |= mask
            self.addresses[port, d.node, d.written, instance] = address
        factor = port.unit.kind == "multiplier"
        constants: dict[int, int] = {}
        for x in self.schedule.constants[port]:
            address = len(occupied) + len(constants)
            constants[address] = self.format.quantize(
                x, self.format.constant_fraction if factor else None
            )
            self.constant_addresses[port, x] = address
        sources = tuple(sorted({d.source for d in deliveries}))
        self.memories[port] = Memory(
            port, sources, max(len(occupied) + len(constants), 2), constants
        )

    # --- microcode --------------------------------------------------------------------------------

    def _code(self, unit: Unit | int, fields: dict[str, int]) -> Code:
        code = self.codes[unit] = Code(fields, [{} for _ in range(self.period)])
        return code

    def _unit_codes(self) -> None:
        instance_bits = bits(self.schedule.instances)
        units = sorted({o.unit for o in self.schedule.operations})
        for unit in units:
            fields: dict[str, int] = {}
            for memory in (m for p, m in self.memories.items() if p.unit == unit):
                side = memory.port.side
                fields |= {
                    f"read{side}": memory.address_bits,
                    f"write{side}": 1,
                    f"to{side}": memory.address_bits,
                    f"from{side}": memory.select_bits,
                }
            fields |= {
                "multiplier": {"constant": 1},
                "adder": {"subtract": 1, "double": 1},
                "trig": {"cosine": 1},
                "reciprocal": {},
            }[unit.kind]
            self._code(unit, fields | {"made": 1, "state": instance_bits})
        for lane in sorted({load.unit for load in self.schedule.loads}):
            self._code(lane, {"word": bits(len(self.word_of)), "state": instance_bits, "negate": 1})
        for instance in range(self.schedule.instances):
            self._operations(instance)
            self._deliveries(instance)
            self._loads(instance)

    def _operations(self, instance: int) -> None:
        for o in self.schedule.operations:
            rows = self.codes[o.unit].rows
            row, done = (
                rows[self._row(o.start, instance)],
                rows[self._row(o.start + self.schedule.delays.of_unit(o.unit.kind) - 1, instance)],
            )
            for side, operand in enumerate(o.operands):
                port = Port(o.unit, side)
                row[f"read{side}"] = (
                    self.constant_addresses[port, operand]
                    if isinstance(operand, float)
                    else self.addresses[port, *operand, instance]
                )
            kind = "add" if o.move else self.nodes[o.node][0]
            if kind == "mul":
                row["constant"] = int(isinstance(o.operands[1], float))
            elif kind in ("add", "sub"):
                row["subtract"], row["double"] = int(kind == "sub"), int(len(o.operands) == 1)
            elif kind != "rcp":
                row["cosine"] = int(kind == "cos")
            done["made"], done["state"] = 1, instance

    def _deliveries(self, instance: int) -> None:
        for port, memory in self.memories.items():
            deliveries, side = self.schedule.deliveries[port], port.side
            for d in deliveries:
                row = self.codes[port.unit].rows[self._row(d.written, instance)]
                row[f"write{side}"], row[f"to{side}"] = (
                    1,
                    self.addresses[port, d.node, d.written, instance],
                )
                row[f"from{side}"] = memory.sources.index(d.source)

    def _loads(self, instance: int) -> None:
        for load in self.schedule.loads:
            row = self.codes[load.unit].rows[self._row(load.start, instance)]
            node = self.nodes[load.node]
            row["negate"] = int(node[0] == "neg")
            name, k = (self.nodes[node[1]] if node[0] == "neg" else node)[1:]
            row["word"], row["state"] = self.word_of[name, k], instance

    def _bank_codes(self) -> dict[int, tuple[Unit, ...]]:
        lanes = self.schedule.resources.lanes
        beats = -(-len(self.schedule.program.results) // lanes)
        sources: dict[int, tuple[Unit, ...]] = {}
        for bank in range(lanes):
            writes = [w for w in self.schedule.writes if w[0] % lanes == bank]
            if not writes:
                continue
            sources[bank] = tuple(sorted({source for _, source, _, _ in writes}))
            code = self._code(
                bank,
                {
                    "write": 1,
                    "from": bits(len(sources[bank])),
                    "beat": bits(beats),
                    "state": bits(self.schedule.instances),
                },
            )
            for result, source, cycle, _ in writes:
                for instance in range(self.schedule.instances):
                    code.rows[self._row(cycle, instance)] = {
                        "write": 1,
                        "from": sources[bank].index(source),
                        "beat": result // lanes,
                        "state": instance,
                    }
        return sources
