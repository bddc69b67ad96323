"""Atlas walks on two soles under control, in MuJoCo, whose contacts the controller does not
know.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.play.balancing import balancing

mujoco = pytest.importorskip("mujoco", reason="needs MuJoCo (pip install rigidgrad[plants])")
SOLE = (0.13, 0.065)


@pytest.fixture(scope="module")
def scene():
    return balancing()


def walker_of(scene, **options):
    return rg.gaits.Walker(
        scene.robot,
        scene.feet,
        scene.start,
        gait="walk",
        swing=0.5,
        support=0.1,
        step_height=0.05,
        steps=40,
        weights=rg.gaits.BipedWeights(),
        half_lengths=SOLE,
        acceleration=0.3,
        **{"integral": 1.0} | options,
    )


def test_it_walks_as_fast_as_told_is_pushed_and_stops(scene):
    """0.2 m/s forward and 0.2 rad/s of turning; a tenth of its weight from the side for 0.3 s; and
    a stop.
    """
    walker = walker_of(scene)
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=2), period=0.02, target=walker)
    plant, robot = scene.plant(mpc.system, 0.8), scene.robot
    limits = mpc.problem.own_bounds[1][0]
    seen, lifted = [], np.zeros(2, bool)
    while plant.time < 7.5:
        t = plant.time
        walker.command = (0.2, 0.0, 0.2) if 0.2 < t < 4.5 else (0.0, 0.0, 0.0)
        if abs(t - 4.0) < 1e-3:
            plant.push((0.0, 160.0, 0.0), 0.3, scene.trunk)
        u = mpc.step(plant.x, t)
        assert np.all(np.abs(u) <= limits * (1 + 1e-12))
        plant.advance(u)
        seen.append(plant.x)
        assert not walker.has_fallen(plant.x)
        soles = walker.stance.feet_of(plant.x)[:, 2]
        lifted |= soles > 0.03
    x = np.array(seen)
    walking = x[750:1950, robot.nq :]  # two cycles of 1.2 s, from 1.5 s on
    assert walking[:, 0].mean() == pytest.approx(0.2, rel=0.15) and abs(walking[:, 1].mean()) < 0.03
    assert walking[:, 5].mean() == pytest.approx(0.2, rel=0.15)
    assert lifted.all() and np.abs(x[-1, robot.nq : robot.nq + 2]).max() < 0.05  # it stands again
    # single plans that fail after the push are bridged by the last one
    assert mpc.counts["held"] == mpc.counts["fallen"] == 0, mpc.counts


def test_soles_are_planned_to_land_level_and_turned_with_the_trunk(scene):
    walker = walker_of(scene)
    problem = walker.problem()
    walker.command = (0.2, 0.0, 0.5)
    for k in range(60):
        walker.steer(problem, 0.02 * k)
    for k, foot in enumerate(scene.feet):
        part = problem.programs.slices[2 + k]
        rows = problem.p[:, part["target"]]
        R, yaw = (
            rows[:, 3:].reshape(-1, 3, 3),
            2 * np.arctan2(*problem.p[:, problem.programs.slices[0]["target"]][:, 5:7].T),
        )
        assert problem.p[:, part["weight"]].any(), foot.frame
        np.testing.assert_allclose(R[:, :, 2], np.tile((0, 0, 1), (41, 1)), atol=1e-9)
        np.testing.assert_allclose(np.arctan2(R[:, 1, 0], R[:, 0, 0]), yaw, atol=1e-9)


def test_soles_need_edges(scene):
    with pytest.raises(InputError, match="half_lengths"):
        rg.gaits.Walker(scene.robot, scene.feet, scene.start, gait="walk")
    with pytest.raises(InputError, match="four feet"):
        rg.gaits.Walker(scene.robot, scene.feet, scene.start, gait="trot", half_lengths=SOLE)
