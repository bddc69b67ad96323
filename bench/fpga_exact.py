"""The `exact` part of fpga.py: circuits against their final Programs in Verilator and in Icarus,
while both sides wait at random and resets of one cycle come at random moments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rigidgrad as rg
from rigidgrad import fpga
from rigidgrad.play.walking import published
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.simulate import Icarus, Verilator


class Case(NamedTuple):
    robot: str  # of ours, or a file of example-robot-data
    function: str
    options: dict[str, Any]


WIDE = {"format": (16, 24)}
CASES = (
    Case("iiwa14", "fused_gradient", {}),
    Case("iiwa14", "aba_derivatives", WIDE),
    Case("hyq", "fused_gradient", {}),
    Case("ur_description/urdf/ur10_robot.urdf", "fused_gradient", {"format": (20, 20)}),
    Case("iiwa14", "rnea", {}),
    Case("iiwa14", "rnea_derivatives", {}),
    Case("iiwa14", "minv", WIDE),
    Case("iiwa14", "aba", WIDE),
)
QUICK = CASES[:1]
DISTURBED = {"in_stall": 40, "out_stall": 40, "seed": 3}  # percent of cycles
STATES_BETWEEN_RESETS = 6  # about


def exact(
    states: int, four_state: int, cases: tuple[Case, ...], wanted: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case as soon as it is done: `states` in Verilator, `four_state` of them in Icarus, whose
    circuit has 2 multipliers: fewer units are fewer events.
    """
    for robot_name, function, options in cases:
        robot = rg.load(
            published(robot_name, robot_name) if "/" in robot_name else robot_name, strict=False
        )
        title = f"{robot.name} {function}"
        if wanted not in title:
            continue
        circuit = fpga.build(robot, function, multipliers=16, **options)
        inputs = fpga.states(robot, circuit, states)
        found = fpga.accuracy(circuit, inputs)
        words = Coprocessor(circuit, 1.0).stream(inputs)
        resets = STATES_BETWEEN_RESETS * (circuit.schedule.cycles + 40)
        result: dict[str, Any] = {
            "format": str(circuit.format),
            "multipliers": 16,
            "cycles": circuit.schedule.cycles,
            **found.summary(),
        }
        with tempfile.TemporaryDirectory() as folder:
            simulator = Verilator(circuit, Path(folder), optimised=True)
            result["free"] = simulator.compare(words).summary()
            result["stalled and reset"] = simulator.compare(
                words, resets=resets, **DISTURBED
            ).summary()
        yield title, result
        if four_state:
            small = fpga.build(robot, function, multipliers=2, **options)
            words = Coprocessor(small, 1.0).stream(inputs)[:four_state]
            resets = STATES_BETWEEN_RESETS * (small.schedule.cycles + 40)
            with tempfile.TemporaryDirectory() as folder:
                result["Icarus, stalled and reset"] = (
                    Icarus(small, Path(folder)).compare(words, resets=resets, **DISTURBED).summary()
                )
            yield title, result
