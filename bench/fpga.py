"""Circuits measured: bit-exact simulation, resources by yosys, cycles against DSPs, batches behind
an assumed link. Writes bench/results/fpga.json.

    python bench/fpga.py [--states 10000] [--four-state 10000]
    [--only exact,designs,curve,area,ecp5,latency,cpu] [--designs "256 DSPs"] [--cases hyq]
    [--json bench/results/fpga.json]

Every part is written as soon as it is there; parts and designs that were not asked for keep what
the file has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
from fpga_exact import CASES, QUICK, exact
from fpga_latency import cpu, latency

import rigidgrad as rg
from rigidgrad import fpga
from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.place import place_and_route
from rigidgrad.targets.verilog.synthesise import generic_area

RESULTS = Path(__file__).parent / "results" / "fpga.json"
DESIGNS: dict[str, dict[str, Any]] = {
    "128 DSPs, least latency": {"multipliers": 32},
    "128 DSPs, stream": {"multipliers": 32, "interval": "shortest"},
    "256 DSPs, stream": {"multipliers": 64, "interval": 27},
    "512 DSPs, stream": {"multipliers": 128, "interval": 24},
    "128 DSPs, sines inside, float32 stream": {"multipliers": 32, "trig": "table", "floats": True},
}
# on an ECP5, where registers after rounding and behind the microcode are for the clock
ECP5: dict[str, dict[str, Any]] = {
    "registered after rounding": {"multiplier_stages": 5, "adder_stages": 3, "code_stages": 2},
    "fewest registers": {},
}
ECP5_UNITS = {"multipliers": 2, "adders": 2, "lanes": 4, "loads": 2}
ECP5_CLOCK = 130e6  # wished for
CURVE = (4, 8, 16, 32, 64, 128)


def designs(states: int, wanted: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """iiwa14's fused gradient through Verilator and yosys."""
    robot = rg.load("iiwa14")
    for title, options in DESIGNS.items():
        if wanted not in title:
            continue
        circuit = fpga.build(robot, "fused_gradient", **options)
        with tempfile.TemporaryDirectory() as folder:
            report = fpga.check(robot, circuit, Path(folder), count=min(states, 1000))
        yield title, fpga.summary(report)


def ecp5(wanted: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """iiwa14's inverse dynamics placed and routed by nextpnr."""
    for title, options in ECP5.items():
        if wanted not in title:
            continue
        circuit = fpga.build(rg.load("iiwa14"), "rnea", **ECP5_UNITS, **options)
        with tempfile.TemporaryDirectory() as folder:
            placed = place_and_route(circuit, Path(folder), clock=ECP5_CLOCK)
        yield title, {"cycles": circuit.schedule.cycles, **placed.summary()}


def curve() -> Iterator[list[dict[str, Any]]]:
    """Cycles against DSPs: least latency, and the shortest interval that was found; all rows so
    far.
    """
    robot, rows = rg.load("iiwa14"), []
    for multipliers in CURVE:
        began = time.monotonic()
        alone = fpga.build(robot, "fused_gradient", multipliers=multipliers)
        stream = fpga.build(robot, "fused_gradient", multipliers=multipliers, interval="shortest")
        d = alone.describe()
        rows.append(
            {
                "multipliers": multipliers,
                "dsps": alone.dsps,
                "cycles": alone.schedule.cycles,
                "critical_path": d["critical_path"],
                "stream_interval": stream.schedule.interval,
                "stream_cycles": stream.schedule.cycles,
                "interval_bound": -(-d["operations"]["multiplications"] // multipliers),
                "seconds_to_schedule": time.monotonic() - began,
            }
        )
        print(rows[-1], flush=True)
        yield rows


def area() -> dict[str, Any]:
    """The same circuit in generic CMOS cells (no real library)."""
    circuit = fpga.build(rg.load("iiwa14"), "fused_gradient")
    with tempfile.TemporaryDirectory() as folder:
        found = generic_area(circuit, Path(folder))
    return {
        "transistors": found.transistors,
        "nand2": found.gates,
        "memory_bits": found.memory_bits,
    }


PARTS = ("exact", "designs", "curve", "area", "ecp5", "latency", "cpu")


def store(path: Path, part: str, value: Any, *, among: bool = False) -> None:
    """A part of the results in the file; `among` the others of its part."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    described = machine.describe({})
    stored |= {
        part: (stored.get(part, {}) | value) if among else value,
        "date": time.strftime("%Y-%m-%d"),
        "machine": described | {"command": "python bench/fpga.py"},
        "again": stored.get("again", {}) | {part: described["command"]},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--four-state", type=int, default=10_000, help="states in Icarus")
    parser.add_argument("--cases", default="", help="exact cases whose title has this")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument(
        "--quick",
        action="store_true",
        help="of the exact part, iiwa14's gradient of forward dynamics alone",
    )
    parser.add_argument("--designs", default="", help="only those whose title has this")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for tool in ("verilator", "yosys"):
        tools.need(tool)
    for part in arguments.only.split(","):
        if part == "exact":
            cases = QUICK if arguments.quick else CASES
            counts = arguments.states, arguments.four_state
            for title, found in exact(*counts, cases, arguments.cases):
                print(title, found, flush=True)
                store(arguments.json, part, {title: found}, among=True)
        elif part == "ecp5":
            for title, found in ecp5(arguments.designs):
                print(title, found, flush=True)
                store(arguments.json, part, {title: found}, among=True)
        elif part == "designs":
            for title, found in designs(arguments.states, arguments.designs):
                print(title, {k: found.get(k) for k in ("synthesis", "simulation")}, flush=True)
                store(arguments.json, part, {title: found}, among=True)
        elif part == "curve":
            for rows in curve():
                store(arguments.json, part, rows)
        else:
            rest = {"area": area, "latency": latency, "cpu": cpu}
            store(arguments.json, part, rest[part]())


if __name__ == "__main__":
    main()
