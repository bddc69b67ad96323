"""Levels of LUTs between registers, counted in a synthesised netlist across its whole hierarchy.

A LUT, and the asynchronous read of a memory in LUTs, is one level; carry chains and the wide
multiplexers of a slice pass a level on, and so does a DSP block without registers. Paths start and
end at flip-flops, memories' writes and block RAM. No delay is known here: levels say whether a
clock is plausible, not what it is.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LUTS_OF_MEMORY = {
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM64X8SW": 8,
}
_PASSING = ("MUXF7", "MUXF8", "MUXF9", "CARRY4", "CARRY8", "BUFG", "IBUF", "OBUF")
_SEQUENTIAL = ("FDRE", "FDSE", "FDCE", "FDPE", "RAMB18E2", "RAMB36E2", "SRL16E", "SRLC32E")
_READS = ("ADDRA", "ADDRB", "ADDRC", "ADDRD", "ADDRE", "ADDRF", "ADDRG", "DPRA")


@dataclass(frozen=True)
class Resources:
    dsp: int
    lut_logic: int
    lut_memory: int
    ff: int
    bram36: float
    levels: int
    cells: dict[str, int]

    @property
    def lut(self) -> int:
        return self.lut_logic + self.lut_memory


def resources(path: Path, top: str) -> Resources:
    """Of a netlist as yosys writes it with write_json."""
    modules = json.loads(path.read_text("utf-8"))["modules"]
    flat = _Flat(modules, top)
    n = Counter(cell for cell, _, _ in flat.cells)
    logic = sum(n[f"LUT{k}"] for k in range(1, 7)) + n["INV"]
    memory = (
        sum(count * n[cell] for cell, count in LUTS_OF_MEMORY.items()) + n["SRL16E"] + n["SRLC32E"]
    )
    ff = sum(n[cell] for cell in ("FDRE", "FDSE", "FDCE", "FDPE"))
    return Resources(
        n["DSP48E2"],
        logic,
        memory,
        ff,
        n["RAMB36E2"] + n["RAMB18E2"] / 2,
        flat.levels(),
        dict(sorted(n.items())),
    )


class _Flat:
    """Every cell of the design with nets of its own."""

    def __init__(self, modules: dict[str, Any], top: str):
        self.modules, self.top = modules, top
        self.cells: list[
            tuple[str, dict[str, list[int]], dict[str, list[int]]]
        ] = []  # (kind, inputs, outputs)
        self._nets = 0
        self._add(top, {})

    def _new(self) -> int:
        self._nets += 1
        return self._nets

    def _add(self, name: str, outside: dict[int, int]) -> None:
        module = self.modules[name]
        nets = dict(outside)

        def net(bit: Any) -> int:
            if isinstance(bit, str):
                return 0  # a constant
            if bit not in nets:
                nets[bit] = self._new()
            return nets[bit]

        for cell in module["cells"].values():
            kind, bits = cell["type"], cell["connections"]
            # the device's own cells are modules too
            if kind in self.modules and kind.startswith(("$paramod", self.top)):
                inner: dict[int, int] = {}
                for port, info in self.modules[kind]["ports"].items():
                    for inside, bit in zip(info["bits"], bits.get(port, []), strict=False):
                        if not isinstance(inside, str):
                            inner[inside] = net(bit)
                self._add(kind, inner)
                continue
            directions = cell.get("port_directions", {})
            pins = {port: [net(b) for b in connection] for port, connection in bits.items()}
            if kind == "DSP48E2" and any(
                _number(cell["parameters"].get(r, 0)) for r in ("AREG", "BREG", "MREG", "PREG")
            ):
                kind = "DSP48E2 registered"
            ins = {p: x for p, x in pins.items() if directions.get(p) == "input"}
            self.cells.append(
                (kind, ins, {p: x for p, x in pins.items() if directions.get(p) == "output"})
            )

    def levels(self) -> int:
        """The longest way, by depth-first search without recursion."""
        driver: dict[int, int] = {}
        reads: list[list[int]] = []
        cost: list[int] = []
        ends: list[int] = []
        for index, (kind, ins, outs) in enumerate(self.cells):
            through, own = _through(kind, ins)
            reads.append(through)
            cost.append(own)
            if own >= 0:
                for bits in outs.values():
                    for bit in bits:
                        driver[bit] = index
            ends += [
                bit for port, bits in ins.items() for bit in bits if own < 0 or bit not in through
            ]
        depth: dict[int, int] = {}
        for end in ends:
            stack = [driver[end]] if end in driver and driver[end] not in depth else []
            while stack:
                cell = stack[-1]
                below = [driver[b] for b in reads[cell] if b in driver]
                missing = [c for c in below if c not in depth]
                if missing:
                    stack += missing
                    if len(stack) > 5 * len(self.cells):
                        raise ValueError("the netlist has a loop without a register")
                    continue
                depth[cell] = cost[cell] + max((depth[c] for c in below), default=0)
                stack.pop()
        return max((depth[driver[e]] for e in ends if e in driver), default=0)


def _number(parameter: Any) -> int:
    return int(parameter, 2) if isinstance(parameter, str) else int(parameter)


def _through(kind: str, ins: dict[str, list[int]]) -> tuple[list[int], int]:
    """Nets that reach the cell's outputs without a register, and the levels they cost; -1 where
    none does.
    """
    if kind in _SEQUENTIAL or kind == "DSP48E2 registered":
        return [], -1
    if kind in LUTS_OF_MEMORY:
        return [
            bit for port, bits in ins.items() if port.rstrip("0123456789") in _READS for bit in bits
        ], 1
    return [
        bit for bits in ins.values() for bit in bits
    ], 0 if kind in _PASSING or kind == "DSP48E2" else 1
