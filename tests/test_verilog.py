"""Circuits: what is scheduled and driven by microcode is the final Program over fixed-point
numbers, in every bit; and choices that cannot be are refused.
"""

from __future__ import annotations

import argparse
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import errors, fpga, scalars
from rigidgrad.commands import fpga as fpga_command
from rigidgrad.fixed import Fixed
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.verilog import netlist, reciprocal, tools
from rigidgrad.targets.verilog.datapaths import columns
from rigidgrad.targets.verilog.design import design
from rigidgrad.targets.verilog.driver import BATCHES, PCIE1, PCIE3, Coprocessor
from rigidgrad.targets.verilog.lower import Delays, critical_path, lower, operation_counts
from rigidgrad.targets.verilog.schedule import Port, Unit
from rigidgrad.targets.verilog.scheduler import bound_text, least_interval
from rigidgrad.targets.verilog.units import dsps_per_product


def three_links():
    builder = rg.Builder("three").link("base")
    for k in range(3):
        builder = builder.link(
            f"l{k}", mass=1.0 + k, com=(0.1, 0.02 * k, 0.2), inertia=(0.02, 0.03, 0.01)
        )
    axes = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    for k, axis in enumerate(axes):
        builder = builder.joint(
            f"j{k}",
            "revolute",
            f"l{k - 1}" if k else "base",
            f"l{k}",
            xyz=(0.05, 0, 0.3),
            axis=axis,
            limit=(-3, 3),
        )
    return builder.build()


class Emulator:
    """The circuit's microcode executed row by row in Python: an independent reading of what the
    Verilog does, a state every interval.
    """

    def __init__(self, circuit):
        self.c, self.s, self.f = circuit, circuit.schedule, circuit.format
        self.memory = {p: [0] * (1 << m.address_bits) for p, m in circuit.memories.items()}
        for p, m in circuit.memories.items():
            for address, raw in m.constants.items():
                self.memory[p][address] = raw
        # unit -> cycle of arrival -> value
        self.pipes = {u: {} for u in circuit.codes if isinstance(u, Unit)}

    def run(self, words):
        n, s, c = len(words), self.s, self.c
        results = np.zeros((n, c.output_words), np.int64)
        for k, r in enumerate(c.program.results):
            if isinstance(r, float):
                results[:, k] = self.f.quantize(r)
        for cycle in range((n - 1) * s.interval + s.cycles):
            row = cycle % c.rows
            self._start(cycle, row, words)
            self._write(cycle, row, results, n)
        return results

    def _state(self, instance, cycle):
        """The number of the state that an instance works on in a cycle."""
        began = (cycle // self.s.interval) - instance
        return instance + began // self.s.instances * self.s.instances if began >= 0 else -1

    def _start(self, cycle, row, words):
        d = self.s.delays
        for unit, pipe in self.pipes.items():
            code = self.c.codes[unit].rows[row]
            if unit.kind == "load":
                state = self._state(code.get("state", 0), cycle)
                raw = (
                    int(words[state][code["word"]])
                    if "word" in code and 0 <= state < len(words)
                    else 0
                )
                pipe[cycle + d.load - 1] = self.f.fit(-raw) if code.get("negate") else raw
                continue
            a, b = (
                (
                    self.memory[Port(unit, side)][code.get(f"read{side}", 0)]
                    if Port(unit, side) in self.memory
                    else 0
                )
                for side in (0, 1)
            )
            if unit.kind == "multiplier":
                pipe[cycle + d.multiplier - 1] = self.f.multiply(
                    a, b, self.f.constant_fraction if code.get("constant") else None
                )
            elif unit.kind == "adder":
                other = a if code.get("double") else b
                pipe[cycle + d.adder - 1] = (
                    self.f.sub(a, other) if code.get("subtract") else self.f.add(a, other)
                )
            elif unit.kind == "reciprocal":
                pipe[cycle + d.reciprocal - 1] = self.f.divide(self.f.quantize(1.0), a)
            else:
                table = self.f.trigonometry
                pipe[cycle + d.trig - 1] = (table.cosine if code.get("cosine") else table.sine)(a)

    def _write(self, cycle, row, results, n):
        made = {unit: pipe.pop(cycle, 0) for unit, pipe in self.pipes.items()}
        for port, m in self.c.memories.items():
            code = self.c.codes[port.unit].rows[row]
            if code.get(f"write{port.side}"):
                self.memory[port][code[f"to{port.side}"]] = made[
                    m.sources[code[f"from{port.side}"]]
                ]
        for bank, sources in self.c.bank_sources.items():
            code = self.c.codes[bank].rows[row]
            if code.get("write"):
                age = -(-self.s.cycles // self.s.interval)
                state = self._state(code["state"], cycle)
                if 0 <= state < n and cycle - state * self.s.interval < age * self.s.interval:
                    results[state, code["beat"] * self.c.lanes + bank] = made[sources[code["from"]]]


def check_microcode(robot, function, n=4, **options):
    circuit = fpga.build(robot, function, **options)
    words = Coprocessor(circuit, 1.0).stream(fpga.states(robot, circuit, n, seed=3))
    assert np.array_equal(
        Emulator(circuit.circuit).run(words), Coprocessor(circuit, 1.0).expected(words)
    )
    return circuit


@pytest.mark.parametrize("function", ["rnea", "rnea_derivatives", "fused_gradient", "aba"])
@pytest.mark.parametrize("interval", [None, "shortest"])
@pytest.mark.parametrize("trig", ["inputs", "table"])
def test_microcode_gives_the_final_program_bit_for_bit(function, interval, trig):
    check_microcode(three_links(), function, multipliers=3, adders=2, interval=interval, trig=trig)


@pytest.mark.parametrize("seed", range(10))
def test_microcode_on_random_trees_with_random_units(seed):
    rng = np.random.default_rng(seed)
    robot = random_tree(6000 + seed, 1 + seed % 5).robot()
    check_microcode(
        robot,
        "rnea" if seed % 2 else "rnea_derivatives",
        multipliers=int(rng.integers(1, 9)),
        adders=int(rng.integers(1, 9)),
        trig="table",
        interval=[None, "shortest"][int(rng.integers(2))],
        lanes=int(rng.integers(1, 20)),
        loads=int(rng.integers(1, 6)),
        multiplier_stages=int(rng.integers(1, 7)),
        adder_stages=int(rng.integers(1, 4)),
        format=Fixed(
            16,
            int(rng.integers(8, 17)),
            ["nearest", "truncate"][seed % 2],
            ["saturate", "wrap"][seed // 2 % 2],
        ),
    )


def test_the_arms_gradient_takes_few_cycles_on_128_dsps():
    circuit = check_microcode(rg.load("iiwa14"), "fused_gradient", n=2, multipliers=32)
    d = circuit.describe()
    assert circuit.dsps == 128 and d["multiplier_stages"] >= 4 and d["adder_stages"] >= 2
    assert d["cycles"] <= 220
    assert d["cycles"] >= d["critical_path"]


def test_the_counts_in_docs_and_results_are_those_of_the_code():
    root = Path(__file__).parents[1]
    said = " ".join((root / "docs" / "fpga.md").read_text().split())
    final = lower(
        program_of(rg.load("iiwa14").model, "fused_gradient"),
        trig="inputs",
        lanes=16,
        delays=Delays(),
    )
    counts, chain = operation_counts(final), critical_path(final, Delays())
    for text in (
        f"{counts['multiplications']:,} multiplications, {counts['by constants']} of them by",
        f"and {counts['additions']:,} additions",
        f"longest chain, {chain} cycles",
    ):
        assert text in said
    results = json.loads((root / "bench" / "results" / "fpga.json").read_text())
    assert all(row["critical_path"] == chain for row in results["curve"])
    for found in results["designs"].values():
        if found["design"]["sines"] == "inputs":
            assert found["design"]["operations"] == counts
    for title, found in results["latency"]["designs"].items():
        if "column" not in title:
            assert found["operations"] == counts
    for found in results["exact"].values():
        runs = [v for v in found.values() if isinstance(v, dict) and "mismatches" in v]
        assert runs and all(run["mismatches"] == 0 for run in runs)


def test_each_column_of_a_gradient_has_a_datapath_of_its_own():
    circuit = check_microcode(
        three_links(), "fused_gradient", datapaths="columns", multipliers=24, adders=24
    )
    schedule, where = circuit.schedule, columns(circuit.program)
    assert len(set(where)) == 6  # what all need, two columns by q (no torque turns with the first
    # joint), three by v
    reached = {}
    for o in schedule.operations:
        if not o.move:
            reached.setdefault(o.unit, set()).add(where[o.node])
    assert all(len(datapaths) == 1 for datapaths in reached.values())
    for k, result in enumerate(circuit.program.results):
        if isinstance(result, tuple):
            assert where[result[1]] == k % 3 + 3 * (k // 9)
    d = circuit.describe()
    assert d["cycles"] <= 1.2 * d["critical_path"]


def test_a_budget_of_dsps_is_kept_and_not_used_for_nothing():
    large = fpga.build(three_links(), "rnea", dsps=100_000)
    assert large.describe()["cycles"] == large.describe()["critical_path"]
    assert large.dsps <= 128
    for options, message in (
        ({"dsps": 10}, "64 DSPs, more than 10"),
        ({"dsps": 100, "multipliers": 2}, "not both"),
        ({"datapaths": "rows"}, "datapaths is one of"),
        ({"datapaths": "columns", "interval": "shortest"}, "least latency"),
    ):
        with pytest.raises(errors.InputError, match=message):
            fpga.build(three_links(), "rnea", **options)


@pytest.mark.parametrize("seed", range(8))
def test_lowering_keeps_the_function_and_uses_sums_and_products_only(seed):
    robot = random_tree(7000 + seed, 1 + seed).robot()
    program = program_of(robot.model, "rnea_derivatives")
    final = lower(program, trig="table", lanes=4, delays=Delays())
    assert {node[0] for node in final.nodes} <= {
        "input",
        "const",
        "add",
        "sub",
        "mul",
        "neg",
        "sin",
        "cos",
    }
    assert all(
        program_kind[0] != "neg" or final.nodes[program_kind[1]][0] == "input"
        for program_kind in final.nodes
    )
    assert all(
        r if isinstance(r, float) else r[0] == 1 for r in final.results if not isinstance(r, float)
    )
    lanes_used = [(r[1], k % 4) for k, r in enumerate(final.results) if isinstance(r, tuple)]
    assert len(lanes_used) == len(set(lanes_used))
    rng = np.random.default_rng(seed)
    q = robot.random(seed=seed).q
    values = {k: q if k == "q" else rng.normal(size=s) for k, s in program.inputs.items()}
    values = {k: nest([float(x) for x in values[k].ravel()], s) for k, s in program.inputs.items()}
    before, after = (np.array(list(flatten(p.interpret(values)))) for p in (program, final))
    # sums in another order
    assert np.max(np.abs(before - after)) <= 1e-12 * max(np.max(np.abs(before)), 1.0)
    assert critical_path(final, Delays()) <= critical_path(
        lower(program, trig="table", lanes=4, delays=Delays(5, 3)), Delays(5, 3)
    )


def test_sines_as_inputs_take_the_place_of_positions():
    robot = three_links()
    final = lower(program_of(robot.model, "rnea"), trig="inputs", lanes=16, delays=Delays())
    assert list(final.inputs) == ["sin", "cos", "v", "a"]
    assert operation_counts(final)["sines and cosines"] == 0
    sliding = (
        rg.Builder("s")
        .link("b")
        .link("l", mass=1.0, com=(0.1, 0, 0), inertia=(1, 1, 1))
        .link("m", mass=1.0, com=(0.1, 0, 0), inertia=(1, 1, 1))
    )
    robot = (
        sliding.joint("r", "revolute", "b", "l", axis=(0, 1, 0), limit=(-1, 1))
        .joint("p", "prismatic", "l", "m", axis=(1, 0, 0), limit=(-1, 1))
        .build()
    )
    final = lower(program_of(robot.model, "rnea"), trig="inputs", lanes=16, delays=Delays())
    assert list(final.inputs) == ["sin", "cos", "q", "v", "a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multipliers": 0}, "multipliers is at least 1"),
        ({"trig": "cordic"}, "trig is one of"),
        ({"format": (1, 16)}, "at least 2 integer bits"),
        ({"format": Fixed(8, 8, "even")}, "not to the even neighbour"),
        ({"format": (8, 31), "trig": "table"}, "too large"),
        ({"multiplier_stages": 0}, "at least 1 stage"),
        ({"interval": 2}, "an interval of 2 cycles is below"),
        ({"interval": "short"}, "interval is None"),
    ],
)
def test_impossible_choices_are_refused(options, message):
    with pytest.raises(errors.InputError, match=message):
        fpga.build(three_links(), "rnea", **({"multipliers": 2} | options))


def test_what_has_no_unit_is_refused_by_its_name():
    program = record({"x": (1,)}, {"y": (1,)}, lambda v: ((scalars.sqrt(v["x"][0]),),))
    with pytest.raises(errors.InputError, match=r"root cannot be a circuit.*'sqrt'"):
        design(program, "root", "root")
    with pytest.raises(errors.InputError, match="minv divides: its numbers saturate"):
        fpga.build(three_links(), "minv", format=Fixed(16, 16, overflow="wrap"))


@pytest.mark.parametrize("width", [*range(3, 41)])
def test_the_table_of_reciprocals_is_good_to_its_bits(width):
    n, entries = reciprocal._Widths(width), reciprocal.table(width)
    for i, y in enumerate(entries):
        ends = (Fraction((1 << n.k) + i + e, 1 << n.k) for e in (0, 1))
        assert all(abs(1 - m * Fraction(y, 1 << n.y0)) < Fraction(1, 1 << n.k) for m in ends)


def test_constants_that_meet_are_rounded_once():
    """The circuit takes the sum of two constants from Python, as the final Program does."""
    terms = (0.0067, 0.0090338, 0.0285)
    program = record(
        {"x": (1,)},
        {"y": (1,)},
        lambda v: ((((v["x"][0] + terms[0]) + terms[1]) + terms[2],),),
    )
    final = lower(program, trig="inputs", lanes=1, delays=Delays())
    constants = [node[1] for node in final.nodes if node[0] == "const"]
    assert constants == [pytest.approx(sum(terms))]


def test_generate_writes_a_circuit_its_harness_and_its_description(tmp_path):
    files = rg.generate(
        three_links(),
        ["rnea", "fused_gradient"],
        target="verilog",
        out=tmp_path,
        multipliers=2,
        adders=2,
        format=Fixed(12, 12),
    )
    assert sorted(f.name for f in files) == sorted(
        f"three_{f}{e}"
        for f in ("rnea", "fused_gradient")
        for e in (".v", ".json", "_harness.cpp", "_testbench.v")
    )
    about = json.loads((tmp_path / "three_fused_gradient.json").read_text())
    assert (
        about["format"] == [12, 12]
        and about["inputs"]["minv"] == [3, 3]
        and about["multipliers"] == 2
    )
    assert "module three_rnea (" in (tmp_path / "three_rnea.v").read_text()
    # replaces its own files
    assert rg.generate(three_links(), ["rnea"], target="verilog", out=tmp_path, multipliers=1)
    with pytest.raises(errors.UnknownNameError, match="multipliers"):
        rg.generate(three_links(), ["rnea"], target="verilog", out=tmp_path, multiplier=2)
    with pytest.raises(errors.UnknownNameError):
        rg.generate(three_links(), ["rnea"], target="c", out=tmp_path, multipliers=2)


def test_dsps_of_a_product():
    assert [dsps_per_product(w) for w in (16, 18, 19, 27, 28, 32, 35, 40)] == [
        1,
        1,
        2,
        2,
        4,
        4,
        4,
        6,
    ]


def test_bounds_are_named():
    circuit = fpga.build(three_links(), "rnea", multipliers=2)
    resources = circuit.schedule.resources
    assert "2 multipliers need" in bound_text(circuit.program, resources)
    assert least_interval(circuit.program, resources) == math.ceil(
        operation_counts(circuit.program)["multiplications"] / 2
    )


# --- the driver model -----------------------------------------------------------------------------


def test_the_driver_returns_the_functions_results():
    robot = rg.load("iiwa14")
    circuit = fpga.build(robot, "fused_gradient", multipliers=32, floats=True)
    machine = Coprocessor(circuit, 200e6)
    q = robot.random(batch=(16,), seed=0).q
    v = a = np.full((16, 7), 0.5)
    d = machine({"q": q, "v": v, "a": a, "minv": robot.minv(q)})
    exact = robot.fused_gradient(q, v, a, robot.minv(q))
    assert d["dq"].dtype == np.float32 and d["dq"].shape == (16, 7, 7)
    assert np.max(np.abs(d["dq"] - exact.dq)) < 1e-3 * np.max(np.abs(exact.dq))
    with pytest.raises(errors.InputError, match="'minv' is missing"):
        machine({"q": q, "v": v, "a": a})
    with pytest.raises(errors.InputError, match="positive"):
        Coprocessor(circuit, 0.0)


def test_batches_take_longer_behind_a_slower_link_and_less_a_state():
    circuit = fpga.build(three_links(), "fused_gradient", multipliers=4, interval="shortest")
    fast, slow = (Coprocessor(circuit, 200e6, link) for link in (PCIE3, PCIE1))
    times = [fast.timing(n).total for n in BATCHES]
    assert times == sorted(times) and times[-1] / 128 < times[0] / 16
    assert all(slow.timing(n).total > fast.timing(n).total for n in BATCHES)
    assert fast.timing(128).total >= 2 * PCIE3.latency + 127 * circuit.schedule.interval / 200e6


# --- counting levels ------------------------------------------------------------------------------


def cell(kind, inputs, outputs, parameters=None):
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": kind,
        "connections": inputs | outputs,
        "port_directions": directions,
        "parameters": parameters or {},
    }


def test_levels_are_counted_across_the_hierarchy_and_end_at_registers(tmp_path):
    inner = {
        "ports": {"a": {"bits": [2]}, "y": {"bits": [3]}},
        "cells": {
            "l": cell("LUT2", {"I0": [2], "I1": ["0"]}, {"O": [4]}),
            "c": cell("CARRY4", {"S": [4]}, {"O": [3]}),
        },
    }
    top = {
        "ports": {},
        "cells": {
            "f0": cell("FDRE", {"D": [9]}, {"Q": [2]}),
            "i0": {"type": "$paramod\\dut_part", "connections": {"a": [2], "y": [3]}},
            "i1": {"type": "$paramod\\dut_part", "connections": {"a": [3], "y": [4]}},
            "m": cell("RAM32M16", {"ADDRA": [4], "DIA": [4]}, {"DOA": [9]}),
            "r": cell("RAM32M16", {"ADDRA": [2], "DIA": [9]}, {"DOA": [10]}),
            "d": cell("DSP48E2", {"A": [10]}, {"P": [11]}, {"MREG": "0"}),
            "f1": cell("FDRE", {"D": [11]}, {"Q": [12]}),
        },
    }
    path = tmp_path / "netlist.json"
    path.write_text(json.dumps({"modules": {"dut": top, "$paramod\\dut_part": inner}}))
    found = netlist.resources(path, "dut")
    assert found.levels == 3  # two LUTs and a memory's read; a memory's write ends a path
    assert (found.lut_logic, found.lut_memory, found.ff, found.dsp) == (2, 16, 2, 1)


# --- the command ----------------------------------------------------------------------------------


def command(*arguments):
    parser = argparse.ArgumentParser()
    fpga_command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["fpga", *arguments])
    parsed.run(parsed)


def test_the_command_works_without_tools_and_says_how_to_get_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tools, "find", lambda tool: None)
    command(
        "iiwa14",
        "--function",
        "rnea",
        "--multipliers",
        "4",
        "--states",
        "20",
        "--out",
        str(tmp_path),
        "--json",
    )
    said = json.loads(capsys.readouterr().out)
    assert (
        said["missing_tools"].keys() == {"simulation", "synthesis"}
        and "apt-get install yosys" in said["missing_tools"]["synthesis"]
    )
    assert said["error_inside_bound"]
    page = (tmp_path / "iiwa14_rnea.html").read_text()
    assert "<svg" in page and "critical path" in page and "verilator" in page
    command(
        "iiwa14",
        "--function",
        "rnea",
        "--multipliers",
        "4",
        "--states",
        "20",
        "--out",
        str(tmp_path),
    )  # replaces its own files
    assert "no synthesis: apt-get" in capsys.readouterr().out


def test_wrong_arguments_of_the_command_are_explained(tmp_path):
    for arguments, message in (
        (("--format", "sixteen"), "two numbers of bits"),
        (("--interval", "soon"), "number of cycles or 'shortest'"),
    ):
        with pytest.raises(errors.InputError, match=message):
            command("iiwa14", "--out", str(tmp_path), *arguments)


def test_a_circuit_is_designed_from_any_program_of_sums_and_products():
    robot = three_links()
    assert (
        design(
            program_of(robot.model, "crba"), "crba", "m", multipliers=2, trig="inputs"
        ).schedule.cycles
        > 0
    )
