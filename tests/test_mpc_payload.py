"""A payload that MPC is told of: carried without an offset, set down and taken up without recording
again.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_mpc import POINT, READY, drive, reaching, tip

import rigidgrad as rg
from rigidgrad.errors import InputError

GOAL = np.array([0.6, 0.1, 0.5])
CARRIED = {"iiwa_link_7": {"mass": 5.0, "offset": POINT}}


def carrying(payload, **options):
    problem = reaching(limits=rg.Limits(torque=True))
    plant = rg.plants.Simulator(problem.system.robot, READY, dt=2e-3)
    plant.set_payload(5.0, "iiwa_link_7", POINT)
    return rg.MPC(problem, period=0.004, target=GOAL, payload=payload, **options), plant


def offset(mpc, plant, seconds=2.0):
    return np.linalg.norm(tip(drive(mpc, plant, seconds)[-50:]) - GOAL, axis=-1).mean()


def test_a_payload_that_is_known_leaves_no_offset():
    assert offset(*carrying(None)) > 0.015
    assert offset(*carrying(CARRIED)) < 0.003


def test_an_observer_does_not_cancel_it_again():
    mpc, plant = carrying(CARRIED, observer=True)
    assert offset(mpc, plant) < 0.003
    assert np.abs(mpc.observer.force).max() < 1.0


def test_a_payload_is_set_down_and_taken_up_in_the_loop():
    mpc, plant = carrying({"iiwa_link_7": {"mass": 0.0, "offset": POINT}})
    programs = mpc.problem.programs
    mpc.payload = CARRIED
    assert mpc.payload == CARRIED and mpc.problem.stale
    assert offset(mpc, plant) < 0.003
    plant.set_payload(0.0, "iiwa_link_7")
    mpc.payload = {"iiwa_link_7": 0.0}
    assert offset(mpc, plant, 1.5) < 0.003
    assert mpc.problem.programs is programs and mpc.counts["cold"] == mpc.counts["refused"] == 0
    mpc.payload = {"iiwa_link_7": -1.0}  # refused in the loop, and the last one stays
    assert np.isfinite(mpc.step(plant.x, plant.time)).all() and mpc.counts["refused"] == 1
    assert mpc.payload == {"iiwa_link_7": {"mass": 0.0, "offset": POINT}}


def test_a_posture_is_held_with_the_payload(monkeypatch):
    mpc, plant = carrying(CARRIED)
    mpc.step(READY, 0.0)
    mpc._clock.due = np.inf
    mpc._fallback.hold(READY)
    states = drive(mpc, plant, 0.5)
    assert np.abs(states[-1] - READY).max() < 1e-3


def test_wrong_payloads():
    problem = reaching()
    with pytest.raises(InputError, match="payload"):
        rg.MPC(problem, payload=3.0)
    with pytest.raises(rg.errors.RigidgradError, match="no_such"):
        rg.MPC(problem, payload={"no_such": 1.0})
    system = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    custom = rg.Problem(
        system, [0.0, 0.0], 5, 0.1, costs=[rg.costs.State([1.0, 0.0], 1.0), rg.costs.Effort(0.1)]
    )
    with pytest.raises(InputError, match="robot"):
        rg.MPC(custom, payload={"a": 1.0})
    mpc = rg.MPC(problem, payload={"iiwa_link_7": 1.0})
    with pytest.raises(InputError, match="iiwa_link_5"):
        mpc.payload = {"iiwa_link_5": 1.0}
