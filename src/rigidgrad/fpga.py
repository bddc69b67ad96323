"""A robot's gradient as a circuit, generated, simulated bit for bit, synthesised, and reported on one page."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.fixed.ranges import Ranges, analyse
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.robot import Robot
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.names import identifier
from rigidgrad.targets.verilog import chart, tools
from rigidgrad.targets.verilog.design import MARK, Design, design
from rigidgrad.targets.verilog.driver import BATCHES, LINKS, Coprocessor
from rigidgrad.targets.verilog.simulate import QUICK, Simulation, Simulator
from rigidgrad.targets.verilog.synthesise import VCU118_DSPS, Area, Synthesis, generic_area, synthesise

ACCELERATION = 50.0  # rad/s² or m/s², of the states that a circuit is checked with
VELOCITY = 10.0  # where the robot has no limit, or a larger one


@dataclass
class Report:
    design: Design
    ranges: Ranges
    clock: float
    error: float = 0.0
    error_inside: bool = True
    simulations: dict[str, Simulation] = field(default_factory=dict)
    synthesis: Synthesis | None = None
    area: Area | None = None
    missing: dict[str, str] = field(default_factory=dict)


def build(robot: Robot, function: str = "fused_gradient", **options: Any) -> Design:
    """The circuit of a function; options as `rg.generate(…, target="verilog", …)` takes them."""
    return design(program_of(robot.model, function), function, identifier(f"{robot.name}_{function}"), **options)


def states(robot: Robot, circuit: Design, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name, (count, numbers): positions and velocities within the robot's limits, and M⁻¹ at those positions."""
    rng = np.random.default_rng(seed)
    q = robot.random(batch=(count,), seed=seed).q
    velocity = np.minimum(np.nan_to_num(robot.limits.velocity, posinf=VELOCITY), VELOCITY)
    given = {"q": q, "sin": np.sin(q), "cos": np.cos(q)}
    inputs = {}
    for name, shape in circuit.program.inputs.items():
        if name in given:
            inputs[name] = given[name]
        elif name == "v":
            inputs[name] = rng.uniform(-1, 1, (count, *shape)) * velocity
        elif name == "minv":
            inputs[name] = robot.minv(q).reshape(count, -1)
        else:
            inputs[name] = rng.uniform(-ACCELERATION, ACCELERATION, (count, *shape)).reshape(count, -1)
    return inputs


def bounds_of(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The assumption under which ranges are proved: every input stays within what the given states have."""
    return {name: np.abs(x).max(axis=0) for name, x in inputs.items()}


def accuracy(circuit: Design, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, Ranges]:
    """The largest error of each result against float64, and the ranges with the bound that they predict for it."""
    machine = Coprocessor(circuit, 1.0)
    fixed = np.concatenate([x.reshape(len(x), -1) for x in machine(inputs).values()], axis=1)
    columns = {name: [np.ascontiguousarray(c) for c in x.T] for name, x in inputs.items()}
    nested = {name: nest(columns[name], shape) for name, shape in circuit.program.inputs.items()}
    exact = np.stack([np.broadcast_to(x, fixed.shape[:1]) for x in flatten(circuit.program.interpret(nested))], axis=1)
    return np.abs(fixed - exact).max(axis=0), analyse(circuit.program, circuit.format, samples=inputs, bounds=bounds_of(inputs))


def check(
    robot: Robot,
    circuit: Design,
    folder: Path,
    *,
    count: int = 200,
    clock: float = 200e6,
    simulation: bool = True,
    synthesis: bool = True,
    area: bool = False,
    say: Any = lambda text: None,
) -> Report:
    """Whatever the installed tools can say about a circuit; what is missing is named, with how to get it."""
    inputs = states(robot, circuit, count)
    errors, ranges = accuracy(circuit, inputs)
    bound = ranges.error_seen_bound
    report = Report(circuit, ranges, clock, float(errors.max()), bool(bound is not None and np.all(errors <= bound)))
    if simulation:
        _simulated(report, circuit, inputs, folder, count, say)
    if synthesis:
        if tools.find("yosys"):
            say("synthesising with yosys: minutes for a large circuit")
            report.synthesis = synthesise(circuit, folder / "synthesis")
            if area:
                say("counting generic cells with yosys")
                report.area = generic_area(circuit, folder / "synthesis")
        else:
            report.missing["synthesis"] = tools.ADVICE["yosys"]
    return report


def _simulated(report: Report, circuit: Design, inputs: Mapping[str, np.ndarray], folder: Path, count: int, say: Any) -> None:
    if not tools.find("verilator"):
        report.missing["simulation"] = tools.ADVICE["verilator"]
        return
    say("compiling the circuit with Verilator")
    simulator = Simulator(circuit, folder / "simulation", optimised=count > QUICK)
    words = Coprocessor(circuit, 1.0).stream(inputs)
    report.simulations["free"] = simulator.compare(words)
    report.simulations["stalled"] = simulator.compare(words[: min(count, 1000)], in_stall=40, out_stall=40, seed=7)


# --- the page ------------------------------------------------------------------------------------------------------------------------


def summary(report: Report) -> dict[str, Any]:
    """Everything measured, for machines."""
    d, machine = report.design.describe(), Coprocessor(report.design, report.clock)
    result: dict[str, Any] = {
        "design": d,
        "clock_assumed_hz": report.clock,
        "latency_us": machine.latency() * 1e6,
        "states_per_second": report.clock / d["interval"],
        "overflow": report.ranges.overflow,
        "error_against_float64": report.error,
        "error_inside_bound": report.error_inside,
        "error_bound_at_samples": None if report.ranges.error_seen_bound is None else float(report.ranges.error_seen_bound.max()),
        "error_bound_proved": None if report.ranges.error_proved is None else float(report.ranges.error_proved.max()),
        "simulation": {name: s.summary() for name, s in report.simulations.items()},
        "missing_tools": report.missing,
        "batches": {
            link.name: {str(n): Coprocessor(report.design, report.clock, link).timing(n).total * 1e6 for n in BATCHES}
            for link in LINKS.values()
        },
    }
    if report.synthesis:
        r = report.synthesis.resources
        result["synthesis"] = {
            "tool": "yosys synth_xilinx -family xcup",
            "dsp": r.dsp,
            "dsp_share_of_vcu118": r.dsp / VCU118_DSPS,
            "lut": r.lut,
            "lut_logic": r.lut_logic,
            "lut_memory": r.lut_memory,
            "ff": r.ff,
            "bram36": r.bram36,
            "lut_levels": r.levels,
            "seconds": report.synthesis.seconds,
        }
    if report.area:
        result["generic_cells"] = {
            "transistors": report.area.transistors,
            "nand2": report.area.gates,
            "memory_bits": report.area.memory_bits,
        }
    return result


def page(report: Report) -> str:
    """One HTML page, nothing to load from elsewhere."""
    s = summary(report)
    d = s["design"]
    rows = [
        ("function", f"{d['function']}, sines {'inside' if d['sines'] == 'table' else 'as inputs'}, stream of {d['stream']}"),
        (
            "numbers",
            f"{report.design.format}, constants with {d['constant_bits']} fraction bits; rounding {d['rounding']}; {d['overflow']}",
        ),
        (
            "units",
            f"{d['multipliers']} multipliers of {d['multiplier_stages']} stages, {d['adders']} adders of {d['adder_stages']}, {d['load_lanes']} load lanes",
        ),
        ("operations", ", ".join(f"{n} {name}" for name, n in d["operations"].items())),
        ("cycles", f"{d['cycles']} for a state (critical path {d['critical_path']}), a state every {d['interval']}"),
        (
            "at the stated clock",
            f"{report.clock / 1e6:g} MHz: {s['latency_us']:.3f} µs a state, {s['states_per_second'] / 1e6:.3f} million states a second",
        ),
        ("overflow", f"{report.ranges.overflow} ({report.ranges.samples} states)"),
        (
            "error against float64",
            f"{report.error:.3g}; bound at the same states {s['error_bound_at_samples']:.3g}, for all inputs within their ranges {s['error_bound_proved']:.3g}",
        ),
    ]
    for name, sim in report.simulations.items():
        rows.append(
            (
                f"Verilator, {name}",
                f"{sim.mismatches} of {sim.numbers} words differ, {sim.states} states in {sim.cycles} cycles, round trip {sim.round_trip}, saturated {sim.saturated}",
            )
        )
    if report.synthesis:
        y = s["synthesis"]
        rows.append(
            (
                "yosys, xcup",
                f"{y['dsp']} DSP ({y['dsp_share_of_vcu118']:.1%} of a VCU-118's {VCU118_DSPS}), {y['lut']} LUT ({y['lut_memory']} as memory), {y['ff']} FF, "
                f"{y['bram36']:g} BRAM36, at most {y['lut_levels']} LUT levels between registers; {y['seconds']:.0f} s",
            )
        )
    if report.area:
        rows.append(
            (
                "generic CMOS cells",
                f"{report.area.transistors} transistors ({report.area.gates:.0f} NAND2) and {report.area.memory_bits} bits of memory; no real library",
            )
        )
    for link, times in s["batches"].items():
        rows.append((f"batches, {link} (assumed)", ", ".join(f"{n}: {t:.1f} µs" for n, t in times.items())))
    rows += [(f"no {what}", f"to get it: {how}") for what, how in report.missing.items()]
    table = "\n".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows)
    return f"""<!doctype html>
<!-- {MARK} -->
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(d["name"])}</title>
<style>body{{font-family:sans-serif;margin:2em;max-width:1150px}}th{{text-align:left;vertical-align:top;padding:.25em 1.5em .25em 0;white-space:nowrap}}pre{{background:#f4f4f4;padding:1em}}</style>
</head><body>
<h1>{html.escape(d["name"])}</h1>
<table>{table}</table>
<h2>Schedule</h2>
{chart.svg(report.design.schedule)}
<h2>Ranges</h2>
<pre>{html.escape(str(report.ranges))}</pre>
</body></html>
"""


def told(report: Report) -> str:
    """What was found, in a few lines."""
    s = summary(report)
    d = s["design"]
    lines = [
        f"{d['name']}: {d['cycles']} cycles a state, a state every {d['interval']}, {d['dsps_of_multipliers']} DSPs; "
        f"{s['latency_us']:.3f} µs at the stated {report.clock / 1e6:g} MHz",
        f"error against float64 {report.error:.3g} (bound {s['error_bound_at_samples']:.3g}), overflow {report.ranges.overflow}",
    ]
    for name, sim in report.simulations.items():
        lines.append(f"Verilator, {name}: {sim.mismatches} of {sim.numbers} words differ in {sim.states} states")
    if report.synthesis:
        y = s["synthesis"]
        lines.append(
            f"yosys: {y['dsp']} DSP, {y['lut']} LUT, {y['ff']} FF, {y['bram36']:g} BRAM36, {y['lut_levels']} LUT levels at most, in {y['seconds']:.0f} s"
        )
    lines += [f"no {what}: {how}" for what, how in report.missing.items()]
    return "\n".join(lines)
