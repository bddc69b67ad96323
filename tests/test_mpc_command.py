"""`rigidgrad mpc` and simulated time: what would have been late, and what was outside of limits, is
said.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from test_tasks import TASK, file  # noqa: F401

import rigidgrad as rg
from rigidgrad.cli import main


def balancing(solver=None, period=0.02):
    robot = rg.load("pendulum")
    costs = [rg.costs.State([1.0, 0.0], 1.0), rg.costs.Effort(0.1)]
    problem = rg.Problem(robot, start=np.zeros(2), steps=10, dt=0.02, costs=costs)
    return rg.MPC(problem, solver, period=period), rg.plants.Simulator(robot, np.zeros(2), dt=0.01)


class Slow:
    """A solver that takes its time."""

    iterations = 1

    def solve(self, problem):
        time.sleep(0.03)
        return rg.PDDP(iterations=1).solve(problem)


def test_in_simulated_time_plans_longer_than_a_period_are_late():
    mpc, plant = balancing(Slow())
    log = mpc.run(plant, 0.2)
    assert log.simulated and mpc.counts["late"] == log.solves == 10
    assert (log.solve_seconds > 0.02).sum() == 10
    mpc, plant = balancing(period=10.0)
    assert mpc.run(plant, 0.2).counts["late"] == 0
    assert not mpc.run(plant, 0.02, realtime=True).simulated


def test_the_command_says_that_time_is_simulated(file, capsys):  # noqa: F811
    Path(file).write_text(TASK.replace("period = 0.01", "period = 0.000001\nlatency = 0.0"))
    assert main(["mpc", file, "--duration", "0.02"]) == 0
    said = capsys.readouterr().out
    assert (
        "simulated: 20 of 20 plans took longer than the period on this machine; on a robot they"
        " would come late" in said
    )
    # it is no fallback of simulated time
    assert "late " not in said.split("fallbacks")[1].splitlines()[0]
    assert main(["mpc", file, "--duration", "0.02", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["simulated"] is True and data["counts"]["late"] == 20
    assert main(["mpc", file, "--duration", "0.02", "--realtime"]) == 0
    assert "by the clock" in capsys.readouterr().out


def test_the_command_fails_where_limits_were_left(file, capsys):  # noqa: F811
    assert main(["mpc", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["violation"] < 0.01
    left = TASK.replace(
        "duration = 0.5", 'duration = 0.1\non_violation = "report"\nviolation = 1e-3'
    ).replace("velocity = [8.0, 8.0]", "velocity = [0.2, 0.2]")
    Path(file).write_text(left + "\n[mpc.plant]\nstart = [0.3, -0.2, 1.5, 0.0]\n")
    assert main(["mpc", file]) == 1
    assert "outside of them by 1." in capsys.readouterr().out


@pytest.mark.parametrize(("key", "value"), [("on_violation", '"stop"'), ("violation", "-1.0")])
def test_wrong_keys(file, capsys, key, value):  # noqa: F811
    Path(file).write_text(TASK + f"{key} = {value}\n")
    assert main(["mpc", file]) == 2 and key in capsys.readouterr().err
