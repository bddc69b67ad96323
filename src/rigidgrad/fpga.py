"""A robot's gradient as a circuit, generated, simulated bit for bit, synthesised, and reported on
one page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.fixed.ranges import Ranges, analyse
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.robot import Robot
from rigidgrad.runtime.formulation import program_of, textbook_program
from rigidgrad.targets.names import identifier
from rigidgrad.targets.verilog import chart, tools
from rigidgrad.targets.verilog.design import MARK, Design, design
from rigidgrad.targets.verilog.driver import BATCHES, LINKS, Coprocessor
from rigidgrad.targets.verilog.place import Placement, place_and_route
from rigidgrad.targets.verilog.simulate import QUICK, Simulation, Verilator
from rigidgrad.targets.verilog.synthesise import (
    VCU118_DSPS,
    Area,
    Synthesis,
    generic_area,
    synthesise,
)

ACCELERATION = 50.0  # rad/s² or m/s², of the states that a circuit is checked with
VELOCITY = 10.0  # where the robot has no limit, or a larger one


@dataclass(frozen=True)
class Accuracy:
    """Of a circuit at some states, against float64: the largest error of each result, the largest
    magnitude of each output's numbers, and the ranges with the bounds that they predict.
    """

    errors: np.ndarray  # per number of all outputs
    sizes: dict[str, float]
    shapes: dict[str, tuple[int, ...]]
    ranges: Ranges

    @property
    def relative(self) -> dict[str, float]:
        """Of each output the largest error over the largest magnitude."""
        result, start = {}, 0
        for name, shape in self.shapes.items():
            end = start + math.prod(shape)
            size = self.sizes[name]
            result[name] = float(self.errors[start:end].max()) / size if size else 0.0
            start = end
        return result

    @property
    def inside(self) -> bool:
        """Whether no error is larger than its bound at the sampled states."""
        bound = self.ranges.error_seen_bound
        return bool(bound is not None and np.all(self.errors <= bound))

    def summary(self) -> dict[str, Any]:
        bounds = {
            "error_bound_at_samples": self.ranges.error_seen_bound,
            "error_bound_proved": self.ranges.error_proved,
        }
        return {
            "overflow": self.ranges.overflow,
            "error_against_float64": float(self.errors.max()),
            "relative_error": self.relative,
            "error_inside_bound": self.inside,
            **{
                name: None if x is None or not np.isfinite(x).all() else float(x.max())
                for name, x in bounds.items()
            },
        }


@dataclass
class Report:
    design: Design
    accuracy: Accuracy
    clock: float
    simulations: dict[str, Simulation] = field(default_factory=dict)
    synthesis: Synthesis | None = None
    area: Area | None = None
    placement: Placement | None = None
    missing: dict[str, str] = field(default_factory=dict)


def build(robot: Robot, function: str = "fused_gradient", **options: Any) -> Design:
    """The circuit of a function; options as `rg.generate(…, target="verilog", …)` takes them. With
    datapaths="columns" the textbook's formulation, which works column by column.
    """
    by_columns = options.get("datapaths") == "columns"
    recorded = textbook_program if by_columns else program_of
    return design(
        recorded(robot.model, function),
        function,
        identifier(f"{robot.name}_{function}"),
        **options,
    )


def states(robot: Robot, circuit: Design, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name, (count, numbers): positions and velocities within the robot's limits,
    and M⁻¹ at those positions.
    """
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
            inputs[name] = rng.uniform(-ACCELERATION, ACCELERATION, (count, *shape)).reshape(
                count, -1
            )
    return inputs


def bounds_of(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The assumption under which ranges are proved: every input stays within what the given states
    have.
    """
    return {name: np.abs(x).max(axis=0) for name, x in inputs.items()}


def accuracy(circuit: Design, inputs: Mapping[str, np.ndarray]) -> Accuracy:
    """What fixed-point numbers cost at these states."""
    machine = Coprocessor(circuit, 1.0)
    fixed = np.concatenate([x.reshape(len(x), -1) for x in machine(inputs).values()], axis=1)
    columns = {name: [np.ascontiguousarray(c) for c in x.T] for name, x in inputs.items()}
    nested = {name: nest(columns[name], shape) for name, shape in circuit.program.inputs.items()}
    exact = np.stack(
        [np.broadcast_to(x, fixed.shape[:1]) for x in flatten(circuit.program.interpret(nested))],
        axis=1,
    )
    magnitudes, sizes, start = np.abs(exact).max(axis=0), {}, 0
    for name, shape in circuit.program.outputs.items():
        end = start + math.prod(shape)
        sizes[name] = float(magnitudes[start:end].max())
        start = end
    return Accuracy(
        np.abs(fixed - exact).max(axis=0),
        sizes,
        dict(circuit.program.outputs),
        analyse(circuit.program, circuit.format, samples=inputs, bounds=bounds_of(inputs)),
    )


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
    place: bool = False,
    say: Any = lambda text: None,
) -> Report:
    """Whatever the installed tools can say about a circuit; what is missing is named, with how to
    get it.
    """
    inputs = states(robot, circuit, count)
    report = Report(circuit, accuracy(circuit, inputs), clock)
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
    if place:
        lacking = [tool for tool in ("yosys", "nextpnr-ecp5") if not tools.find(tool)]
        if lacking:
            report.missing["placement"] = tools.ADVICE[lacking[0]]
        else:
            say("placing and routing with nextpnr: minutes even for a small circuit")
            report.placement = place_and_route(circuit, folder / "ecp5", clock=clock)
    return report


def _simulated(
    report: Report,
    circuit: Design,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    count: int,
    say: Any,
) -> None:
    if not tools.find("verilator"):
        report.missing["simulation"] = tools.ADVICE["verilator"]
        return
    say("compiling the circuit with Verilator")
    simulator = Verilator(circuit, folder / "simulation", optimised=count > QUICK)
    words = Coprocessor(circuit, 1.0).stream(inputs)
    report.simulations["free"] = simulator.compare(words)
    report.simulations["stalled"] = simulator.compare(
        words[: min(count, 1000)], in_stall=40, out_stall=40, seed=7
    )


# --- the page -------------------------------------------------------------------------------------


def summary(report: Report) -> dict[str, Any]:
    """Everything measured, for machines."""
    d, machine = report.design.describe(), Coprocessor(report.design, report.clock)
    result: dict[str, Any] = {
        "design": d,
        "clock_assumed_hz": report.clock,
        "latency_us": machine.latency() * 1e6,
        "states_per_second": report.clock / d["interval"],
        **report.accuracy.summary(),
        "simulation": {name: s.summary() for name, s in report.simulations.items()},
        "missing_tools": report.missing,
        "batches": {
            link.name: {
                str(n): Coprocessor(report.design, report.clock, link).timing(n).total * 1e6
                for n in BATCHES
            }
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
    if report.placement:
        result["placement"] = report.placement.summary()
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
        (
            "function",
            (
                f"{d['function']}, sines {'inside' if d['sines'] == 'table' else 'as inputs'},"
                f" stream of {d['stream']}"
            ),
        ),
        (
            "numbers",
            (
                f"{report.design.format}, constants with {d['constant_bits']} fraction bits;"
                f" rounding {d['rounding']}; {d['overflow']}"
            ),
        ),
        (
            "units",
            (
                f"{d['multipliers']} multipliers of {d['multiplier_stages']} stages, {d['adders']}"
                f" adders of {d['adder_stages']}, {d['load_lanes']} load lanes"
            ),
        ),
        ("operations", ", ".join(f"{n} {name}" for name, n in d["operations"].items())),
        (
            "cycles",
            (
                f"{d['cycles']} for a state (critical path {d['critical_path']}), a state every"
                f" {d['interval']}"
            ),
        ),
        (
            "at the stated clock",
            (
                f"{report.clock / 1e6:g} MHz: {s['latency_us']:.3f} µs a state,"
                f" {s['states_per_second'] / 1e6:.3f} million states a second"
            ),
        ),
        ("overflow", f"{s['overflow']} ({report.accuracy.ranges.samples} states)"),
        (
            "error against float64",
            (
                f"{s['error_against_float64']:.3g}; bound at the same states"
                f" {_number(s['error_bound_at_samples'])}, for all inputs within their ranges"
                f" {_number(s['error_bound_proved'])}"
            ),
        ),
        (
            "relative error, of an output's largest number",
            ", ".join(f"{name} {x:.2g}" for name, x in s["relative_error"].items()),
        ),
    ]
    for name, sim in report.simulations.items():
        rows.append(
            (
                f"Verilator, {name}",
                (
                    f"{sim.mismatches} of {sim.numbers} words differ, {sim.states} states in"
                    f" {sim.cycles} cycles, round trip {sim.round_trip}, saturated {sim.saturated}"
                ),
            )
        )
    if report.synthesis:
        y = s["synthesis"]
        rows.append(
            (
                "yosys, xcup",
                (
                    f"{y['dsp']} DSP ({y['dsp_share_of_vcu118']:.1%} of a VCU-118's {VCU118_DSPS}),"
                    f" {y['lut']} LUT ({y['lut_memory']} as memory), {y['ff']} FF, {y['bram36']:g}"
                    f" BRAM36, at most {y['lut_levels']} LUT levels between registers;"
                    f" {y['seconds']:.0f} s"
                ),
            )
        )
    if report.placement:
        rows.append(("nextpnr, ECP5", _placed(report.placement)))
    if report.area:
        rows.append(
            (
                "generic CMOS cells",
                (
                    f"{report.area.transistors} transistors ({report.area.gates:.0f} NAND2) and"
                    f" {report.area.memory_bits} bits of memory; no real library"
                ),
            )
        )
    for link, times in s["batches"].items():
        rows.append(
            (f"batches, {link} (assumed)", ", ".join(f"{n}: {t:.1f} µs" for n, t in times.items()))
        )
    rows += [(f"no {what}", f"to get it: {how}") for what, how in report.missing.items()]
    table = "\n".join(
        f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows
    )
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
<pre>{html.escape(str(report.accuracy.ranges))}</pre>
</body></html>
"""


def _placed(p: Placement) -> str:
    used = ", ".join(f"{n} of {total} {kind}" for kind, (n, total) in p.used.items())
    return (
        f"{p.reached / 1e6:.1f} MHz of {p.wanted / 1e6:g} wished for"
        f" ({'met' if p.met else 'not met'}); {used}; critical path {p.path[0][0]} to"
        f" {p.path[-1][1]}"
    )


def _number(bound: float | None) -> str:
    return "none" if bound is None else f"{bound:.3g}"


def format_report(report: Report) -> str:
    """What was found, in a few lines."""
    s = summary(report)
    d = s["design"]
    lines = [
        (
            f"{d['name']}: {d['cycles']} cycles a state, a state every {d['interval']},"
            f" {d['dsps_of_multipliers']} DSPs; {s['latency_us']:.3f} µs at the stated"
            f" {report.clock / 1e6:g} MHz"
        ),
        (
            f"error against float64 {s['error_against_float64']:.3g} (bound"
            f" {_number(s['error_bound_at_samples'])}), relative"
            f" {max(s['relative_error'].values()):.2g}, overflow {s['overflow']}"
        ),
    ]
    for name, sim in report.simulations.items():
        lines.append(
            f"Verilator, {name}: {sim.mismatches} of {sim.numbers} words differ in {sim.states}"
            " states"
        )
    if report.synthesis:
        y = s["synthesis"]
        lines.append(
            f"yosys: {y['dsp']} DSP, {y['lut']} LUT, {y['ff']} FF, {y['bram36']:g} BRAM36,"
            f" {y['lut_levels']} LUT levels at most, in {y['seconds']:.0f} s"
        )
    if report.placement:
        lines.append(f"nextpnr, ECP5: {_placed(report.placement)}")
    lines += [f"no {what}: {how}" for what, how in report.missing.items()]
    return "\n".join(lines)
