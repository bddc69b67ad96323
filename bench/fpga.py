"""Circuits measured: bit-exact simulation, resources by yosys, cycles against DSPs, batches behind an assumed link. Writes bench/results/fpga.json.

    python bench/fpga.py [--states 10000] [--only exact,designs,curve,area] [--designs "256 DSPs"] [--json bench/results/fpga.json]

Every part is written as soon as it is there; parts and designs that were not asked for keep what the file has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

import rigidgrad as rg
from rigidgrad import fpga
from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.simulate import Simulator
from rigidgrad.targets.verilog.synthesise import generic_area

RESULTS = Path(__file__).parent / "results" / "fpga.json"
EXACT = [("iiwa14", f) for f in ("rnea", "rnea_derivatives", "fused_gradient")] + [("hyq", "fused_gradient")]
QUICK = [("iiwa14", "fused_gradient")]
DESIGNS: dict[str, dict[str, Any]] = {
    "128 DSPs, least latency": {"multipliers": 32},
    "128 DSPs, stream": {"multipliers": 32, "interval": "shortest"},
    "256 DSPs, stream": {"multipliers": 64, "interval": 27},
    "512 DSPs, stream": {"multipliers": 128, "interval": 24},
    "128 DSPs, sines inside, float32 stream": {"multipliers": 32, "trig": "table", "floats": True},
}
CURVE = (4, 8, 16, 32, 64, 128)


def exact(states: int, cases: list[tuple[str, str]] = EXACT) -> dict[str, Any]:
    """Verilator against the final Program, 32 multipliers, on free and on stalled streams."""
    results = {}
    for name, function in cases:
        robot = rg.load(name)
        circuit = fpga.build(robot, function, format=(16, 16))
        inputs = fpga.states(robot, circuit, states)
        errors, ranges = fpga.accuracy(circuit, inputs)
        with tempfile.TemporaryDirectory() as folder:
            simulator = Simulator(circuit, Path(folder), optimised=True)
            words = Coprocessor(circuit, 1.0).stream(inputs)
            free, stalled = simulator.compare(words), simulator.compare(words, in_stall=40, out_stall=40, seed=3)
        results[f"{name} {function}"] = {
            "format": str(circuit.format),
            "cycles": circuit.schedule.cycles,
            "free": free.summary(),
            "stalled": stalled.summary(),
            "error_against_float64": float(errors.max()),
            "error_bound": float(ranges.error_seen_bound.max()),
            "inside_bound": bool((errors <= ranges.error_seen_bound).all()),
            "overflow": ranges.overflow,
        }
        print(name, function, results[f"{name} {function}"], flush=True)
    return results


def designs(states: int, wanted: str = "") -> dict[str, Any]:
    """iiwa14's fused gradient through Verilator and yosys."""
    robot, results = rg.load("iiwa14"), {}
    for title, options in DESIGNS.items():
        if wanted not in title:
            continue
        circuit = fpga.build(robot, "fused_gradient", **options)
        with tempfile.TemporaryDirectory() as folder:
            report = fpga.check(robot, circuit, Path(folder), count=min(states, 1000))
        results[title] = fpga.summary(report)
        print(title, {k: results[title].get(k) for k in ("synthesis", "simulation")}, flush=True)
    return results


def curve(_: int) -> list[dict[str, Any]]:
    """Cycles against DSPs: least latency, and the shortest interval that was found."""
    robot, rows = rg.load("iiwa14"), []
    for multipliers in CURVE:
        began = time.monotonic()
        alone = fpga.build(robot, "fused_gradient", multipliers=multipliers)
        stream = fpga.build(robot, "fused_gradient", multipliers=multipliers, interval="shortest")
        rows.append(
            {
                "multipliers": multipliers,
                "dsps": alone.dsps,
                "cycles": alone.schedule.cycles,
                "critical_path": alone.describe()["critical_path"],
                "stream_interval": stream.schedule.interval,
                "stream_cycles": stream.schedule.cycles,
                "interval_bound": -(-alone.describe()["operations"]["multiplications"] // multipliers),
                "seconds_to_schedule": time.monotonic() - began,
            }
        )
        print(rows[-1], flush=True)
    return rows


def area(_: int) -> dict[str, Any]:
    """The same circuit in generic CMOS cells (no real library)."""
    circuit = fpga.build(rg.load("iiwa14"), "fused_gradient")
    with tempfile.TemporaryDirectory() as folder:
        found = generic_area(circuit, Path(folder))
    return {"transistors": found.transistors, "nand2": found.gates, "memory_bits": found.memory_bits}


PARTS = {"exact": exact, "designs": designs, "curve": curve, "area": area}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="of the exact part, iiwa14's gradient of forward dynamics alone")
    parser.add_argument("--designs", default="", help="only those whose title has this")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for tool in ("verilator", "yosys"):
        tools.need(tool)
    for part in arguments.only.split(","):
        if part == "designs":
            value = designs(arguments.states, arguments.designs)
        elif part == "exact" and arguments.quick:
            value = exact(arguments.states, QUICK)
        else:
            value = PARTS[part](arguments.states)
        stored = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        if part == "designs":
            value = stored.get(part, {}) | value
        stored |= {part: value, "date": time.strftime("%Y-%m-%d"), "machine": machine.describe({})}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
