"""Circuits in the tools that others made: Verilator and Icarus run them bit for bit under random
stalls and resets, yosys finds the resources that were planned.
"""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from test_verilog import three_links

import rigidgrad as rg
from rigidgrad import cli, fpga
from rigidgrad.fixed import Fixed
from rigidgrad.program.recorder import record
from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.design import design
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.simulate import Icarus, Verilator

needs_verilator = pytest.mark.skipif(
    not tools.find("verilator"), reason=f"Verilator is not installed: {tools.ADVICE['verilator']}"
)
needs_icarus = pytest.mark.skipif(
    not tools.find("iverilog"), reason=f"Icarus is not installed: {tools.ADVICE['iverilog']}"
)
needs_yosys = pytest.mark.skipif(
    not tools.find("yosys"), reason=f"yosys is not installed: {tools.ADVICE['yosys']}"
)

CIRCUITS = {
    "least latency": (three_links, "rnea", {"multipliers": 2, "adders": 1}),
    "stream, sines inside, float32": (
        three_links,
        "fused_gradient",
        {"multipliers": 4, "interval": "shortest", "trig": "table", "floats": True},
    ),
    "narrow words that wrap, odd lanes, deep units": (
        three_links,
        "rnea_derivatives",
        {
            "multipliers": 3,
            "format": Fixed(12, 14, "truncate", "wrap"),
            "lanes": 5,
            "multiplier_stages": 6,
            "adder_stages": 3,
        },
    ),
    "wide words": (
        three_links,
        "rnea",
        {"multipliers": 2, "format": Fixed(14, 22), "trig": "table", "interval": "shortest"},
    ),
    "arm": (lambda: rg.load("iiwa14"), "fused_gradient", {"multipliers": 16, "interval": 120}),
    "the inverse of an arm's mass matrix": (
        lambda: rg.load("iiwa14"),
        "minv",
        {"multipliers": 4, "format": Fixed(14, 26)},
    ),
    "legs": (lambda: rg.load("hyq"), "rnea", {"multipliers": 8, "interval": "shortest"}),
}


@needs_verilator
@pytest.mark.parametrize("title", CIRCUITS)
def test_every_bit_is_that_of_the_final_program_whoever_waits(title, tmp_path):
    make, function, options = CIRCUITS[title]
    robot = make()
    circuit = fpga.build(robot, function, **options)
    simulator = Verilator(circuit, tmp_path)
    machine = Coprocessor(circuit, 1.0)
    words = machine.stream(fpga.states(robot, circuit, 60, seed=1))
    free = simulator.compare(words)
    assert free.mismatches == 0 and free.states == 60 and free.invalid == 0
    assert free.between == max(circuit.schedule.interval, circuit.circuit.output_beats)
    assert (
        circuit.schedule.cycles
        < free.round_trip
        <= circuit.schedule.cycles + circuit.circuit.input_beats + circuit.circuit.output_beats + 12
    )
    for seed, (in_stall, out_stall) in enumerate(((50, 0), (0, 80), (90, 30), (30, 95))):
        stalled = simulator.compare(words, in_stall=in_stall, out_stall=out_stall, seed=seed + 1)
        assert stalled.mismatches == 0 and stalled.states == 60
        reset = simulator.compare(
            words, in_stall=in_stall, out_stall=out_stall, resets=4 * free.round_trip, seed=seed + 1
        )
        assert reset.mismatches == 0 and reset.states == 60
    assert simulator.compare(words[:0]).states == 0
    _hostile_inputs(circuit, simulator, machine, words)


@needs_icarus
@pytest.mark.parametrize("title", [t for t in CIRCUITS if not t.endswith(("arm", "legs"))])
def test_one_cycle_of_reset_is_enough_where_registers_start_unknown(title, tmp_path):
    make, function, options = CIRCUITS[title]
    robot = make()
    circuit = fpga.build(robot, function, **options)
    simulator, machine = Icarus(circuit, tmp_path), Coprocessor(circuit, 1.0)
    words = machine.stream(fpga.states(robot, circuit, 20, seed=2))
    free = simulator.compare(words)
    assert free.mismatches == 0 and free.states == 20
    assert free.between == max(circuit.schedule.interval, circuit.circuit.output_beats)
    for seed in range(3):
        disturbed = simulator.compare(
            words, in_stall=30, out_stall=60, resets=4 * free.round_trip, seed=seed
        )
        assert disturbed.mismatches == 0 and disturbed.states == 20


@needs_icarus
@pytest.mark.parametrize("cured", ["phase1 <= 0; state1 <= 0;", "out_used <= 0; ", "dones <= 0; "])
def test_a_register_that_is_not_reset_is_found(cured, tmp_path):
    robot = three_links()
    circuit = fpga.build(robot, "rnea", multipliers=2, interval="shortest")
    simulator, machine = Icarus(circuit, tmp_path), Coprocessor(circuit, 1.0)
    file = tmp_path / f"{circuit.name}.v"
    assert cured in file.read_text()
    file.write_text(file.read_text().replace(cured, ""))
    words = machine.stream(fpga.states(robot, circuit, 4))
    with pytest.raises(tools.ToolError, match="Icarus"):
        simulator.compare(words)


@needs_icarus
@pytest.mark.parametrize(
    "f",
    [
        Fixed(4, 4),
        Fixed(2, 1),
        Fixed(5, 3, "truncate"),
        Fixed(2, 8),
        Fixed(16, 16),
        Fixed(12, 28),
        Fixed(20, 20, "truncate"),
    ],
    ids=str,
)
def test_every_reciprocal_is_the_rounded_quotient(f, tmp_path):
    """Of all numbers of a small format; of large ones, some of every size."""
    program = record({"x": (1,)}, {"y": (1,)}, lambda v: ((1.0 / v["x"][0],),))
    circuit = design(program, "inverse", "inverse", format=f, lanes=1, interval=1)
    raw = np.arange(f.lowest, f.highest + 1) if f.width <= 10 else _of_every_size(f, 3000)
    results, flags, _ = Icarus(circuit, tmp_path).run(raw[:, None])
    exact = [f.divide(f.quantize(1.0), int(x)) for x in raw]
    assert results[:, 0].tolist() == exact
    beyond = [
        x == 0 or abs(Fraction(1 << 2 * f.fraction_bits, int(x))) > f.highest + 1 for x in raw
    ]
    assert all(flags[beyond] == 1) and not np.any(flags[np.abs(results[:, 0]) < f.highest])


def _of_every_size(f, n):
    rng = np.random.default_rng(0)
    raw = rng.integers(f.lowest, f.highest, n, endpoint=True) >> rng.integers(0, f.width, n)
    raw[:6] = 0, 1, -1, f.lowest, f.highest, 1 << f.fraction_bits
    return raw


@needs_icarus
@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("minv", {"format": Fixed(14, 26)}),
        ("aba_derivatives", {"multipliers": 4, "interval": "shortest"}),
        ("aba", {"multiplier_stages": 1, "adder_stages": 1}),
        ("fused_gradient", {"multiplier_stages": 2, "adder_stages": 1}),
        ("rnea", {"multiplier_stages": 3, "adder_stages": 1, "trig": "table"}),
        ("rnea", {"multiplier_stages": 5, "adder_stages": 3, "code_stages": 2}),
        ("rnea", {"interval": "shortest", "code_stages": 2}),
        ("rnea", {"interval": "shortest", "code_stages": 2, "floats": True, "trig": "table"}),
    ],
)
def test_functions_that_divide_and_units_of_few_stages(function, options, tmp_path):
    robot = three_links()
    circuit = fpga.build(robot, function, **{"multipliers": 3} | options)
    words = Coprocessor(circuit, 1.0).stream(fpga.states(robot, circuit, 12, seed=4))
    simulation = Icarus(circuit, tmp_path).compare(words, in_stall=20, out_stall=20, resets=1000)
    assert simulation.mismatches == 0 and simulation.saturated == 0


def _hostile_inputs(circuit, simulator, machine, words):
    """Numbers far out of range, NaN and infinities: the same bits as in Python, a flag on just
    those states, and nothing hangs.
    """
    bad = words.copy()
    if circuit.floats:
        odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, -0.0, 32767.9], np.float32)
        bad[5, : len(odd)] = odd.view(np.int32)
    else:
        bad[5] = np.where(
            np.arange(bad.shape[1]) % 2, circuit.format.highest, circuit.format.lowest
        )
    results, flags, _ = simulator.run(bad, in_stall=20, out_stall=20, seed=9)
    assert np.array_equal(results, machine.expected(bad))
    assert flags[5] & (2 if circuit.floats else 1)
    clean = np.delete(np.arange(len(words)), 5)
    assert np.array_equal(results[clean], machine.expected(words)[clean]) and not np.any(
        flags[clean] & 2
    )
    _, untouched, _ = simulator.run(words)
    assert np.array_equal(flags[clean], untouched[clean])


@needs_yosys
@needs_verilator
def test_the_whole_flow_ends_with_a_report_of_the_planned_multipliers_and_memories(tmp_path):
    robot = rg.load("pendulum")
    circuit = fpga.build(robot, "rnea", multipliers=2, adders=2)
    report = fpga.check(robot, circuit, tmp_path, count=50, area=True)
    said = fpga.summary(report)
    found = said["synthesis"]
    assert found["dsp"] == circuit.dsps == 8
    assert found["bram36"] > 0 and found["lut_memory"] > 0
    assert found["lut_levels"] <= 12 and found["lut"] < 20_000
    assert said["generic_cells"]["transistors"] > 10_000
    assert all(s["mismatches"] == 0 for s in said["simulation"].values())
    page = fpga.page(report)
    assert "yosys, xcup" in page and "Verilator, stalled" in page


@needs_verilator
def test_the_command_takes_its_default_folder_which_is_relative(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = [
        "fpga",
        "pendulum",
        "--function",
        "rnea",
        "--multipliers",
        "2",
        "--states",
        "4",
        "--no-synthesis",
        "--json",
    ]
    assert cli.main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert (
        said["simulation"]["free"]["states"] == 4
        and said["simulation"]["stalled"]["mismatches"] == 0
    )
    assert (tmp_path / "build" / "fpga" / "pendulum_rnea.html").exists()


def test_a_tool_that_cannot_be_started_is_an_error_of_ours(tmp_path):
    with pytest.raises(tools.ToolError, match="cannot be started"):
        tools.run([str(tmp_path / "nothing")], tmp_path)
