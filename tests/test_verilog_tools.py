"""Circuits in the tools that others made: Verilator runs them bit for bit under random stalls, yosys finds the resources that were planned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_verilog import three_links

import rigidgrad as rg
from rigidgrad import cli, fpga
from rigidgrad.fixed import Fixed
from rigidgrad.targets.verilog import tools
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.simulate import Simulator
from rigidgrad.targets.verilog.synthesise import synthesise

needs_verilator = pytest.mark.skipif(not tools.find("verilator"), reason=f"Verilator is not installed: {tools.ADVICE['verilator']}")
needs_yosys = pytest.mark.skipif(not tools.find("yosys"), reason=f"yosys is not installed: {tools.ADVICE['yosys']}")

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
        {"multipliers": 3, "format": Fixed(12, 14, "truncate", "wrap"), "lanes": 5, "multiplier_stages": 6, "adder_stages": 3},
    ),
    "wide words": (three_links, "rnea", {"multipliers": 2, "format": Fixed(14, 22), "trig": "table", "interval": "shortest"}),
    "arm": (lambda: rg.load("iiwa14"), "fused_gradient", {"multipliers": 16, "interval": 120}),
    "legs": (lambda: rg.load("hyq"), "rnea", {"multipliers": 8, "interval": "shortest"}),
}


@needs_verilator
@pytest.mark.parametrize("title", CIRCUITS)
def test_every_bit_is_that_of_the_final_program_whoever_waits(title, tmp_path):
    make, function, options = CIRCUITS[title]
    robot = make()
    circuit = fpga.build(robot, function, **options)
    simulator = Simulator(circuit, tmp_path)
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
    assert simulator.compare(words[:0]).states == 0
    _hostile_inputs(circuit, simulator, machine, words)


def _hostile_inputs(circuit, simulator, machine, words):
    """Numbers far out of range, NaN and infinities: the same bits as in Python, a flag on just those states, and nothing hangs."""
    bad = words.copy()
    if circuit.floats:
        odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, -0.0, 32767.9], np.float32)
        bad[5, : len(odd)] = odd.view(np.int32)
    else:
        bad[5] = np.where(np.arange(bad.shape[1]) % 2, circuit.format.highest, circuit.format.lowest)
    results, flags, _ = simulator.run(bad, in_stall=20, out_stall=20, seed=9)
    assert np.array_equal(results, machine.expected(bad))
    assert flags[5] & (2 if circuit.floats else 1)
    clean = np.delete(np.arange(len(words)), 5)
    assert np.array_equal(results[clean], machine.expected(words)[clean]) and not np.any(flags[clean] & 2)
    _, untouched, _ = simulator.run(words)
    assert np.array_equal(flags[clean], untouched[clean])


@needs_yosys
def test_yosys_finds_the_planned_multipliers_memories_and_few_levels(tmp_path):
    circuit = fpga.build(three_links(), "rnea", multipliers=2, adders=2)
    found = synthesise(circuit, tmp_path).resources
    assert found.dsp == circuit.dsps == 8
    assert found.bram36 > 0 and found.lut_memory > 0
    assert found.levels <= 12
    assert found.lut < 20_000


@needs_yosys
@needs_verilator
def test_the_whole_flow_ends_with_a_report(tmp_path):
    robot = three_links()
    circuit = fpga.build(robot, "rnea", multipliers=1)
    report = fpga.check(robot, circuit, tmp_path, count=50, area=True)
    said = fpga.summary(report)
    assert said["synthesis"]["dsp"] == 4 and said["generic_cells"]["transistors"] > 10_000
    assert all(s["mismatches"] == 0 for s in said["simulation"].values())
    page = fpga.page(report)
    assert "yosys, xcup" in page and "Verilator, stalled" in page


@needs_verilator
def test_the_command_takes_its_default_folder_which_is_relative(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["fpga", "pendulum", "--function", "rnea", "--multipliers", "2", "--states", "4", "--no-synthesis", "--json"]
    assert cli.main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["simulation"]["free"]["states"] == 4 and said["simulation"]["stalled"]["mismatches"] == 0
    assert (tmp_path / "build" / "fpga" / "pendulum_rnea.html").exists()


def test_a_tool_that_cannot_be_started_is_an_error_of_ours(tmp_path):
    with pytest.raises(tools.ToolError, match="cannot be started"):
        tools.run([str(tmp_path / "nothing")], tmp_path)
