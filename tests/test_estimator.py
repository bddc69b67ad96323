"""Estimates of where a robot on legs is, from an inertial unit, encoders and contacts: compared
with the truth of MuJoCo, while the controller knows the estimates alone.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.gaits.estimator import _exp, _quaternion
from rigidgrad.gaits.stance import heading
from rigidgrad.rotations import rotation_from_quaternion

LEGS, RADIUS = ("lf", "rf", "lh", "rh"), 0.02
SENSORS = {  # of an inexpensive unit and of hydraulic joints, of single readings at 1 kHz
    "gyro_noise": 0.01,
    "accelerometer_noise": 0.2,
    "gyro_bias": (0.02, -0.03, 0.01),
    "accelerometer_bias": (0.2, -0.15, 0.1),
    "joint_noise": 1e-3,
    "speed_noise": 0.02,
}


@pytest.fixture(scope="module")
def robot():
    return rg.load("hyq", floating_base=True)


@pytest.fixture(scope="module")
def feet():
    return [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6) for leg in LEGS]


@pytest.fixture(scope="module")
def x0(robot, feet):
    return rg.gaits.standing(robot, feet, ground=RADIUS)


def tilt_of(x):
    """The angle between the estimated or true vertical and the trunk's axes, as the third row of
    its rotation.
    """
    return np.array(rotation_from_quaternion(*x[3:7]))[2]


def test_rotations():
    for seed in range(20):
        w = np.random.default_rng(seed).normal(size=3) * (3.0 if seed % 2 else 1e-6)
        R, angle = _exp(w), np.linalg.norm(w)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(R @ w, w, atol=1e-12)
        assert np.trace(R) == pytest.approx(1 + 2 * math.cos(angle), abs=1e-12)
        np.testing.assert_allclose(
            np.array(rotation_from_quaternion(*_quaternion(R))), R, atol=1e-12
        )


def walked(robot, feet, x0, seconds, sensors, contacts=True, command=(0.3, 0.0, 0.2)):
    """(estimates, truths, estimator, counts) of a walk on estimates; without contacts, of one on
    the truth beside which the estimator goes by the inertial unit alone.
    """
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rigidgrad[plants]'")
    walker = rg.gaits.Walker(robot, feet, x0)
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    plant = rg.plants.MuJoCo(
        mpc.system, x0, 1e-3, ground=rg.plants.Ground({f.frame: (RADIUS, f.offset) for f in feet})
    )
    unit, estimator = rg.plants.Inertial(plant, **sensors), rg.gaits.Estimator(robot, feet, x0)
    estimates, truths = [], []
    while plant.time < seconds:
        reading = unit.read()
        x = estimator.update(*reading, plant.touching if contacts else np.zeros(4, bool))
        estimates.append(x)
        truths.append(plant.x)
        walker.command = command if plant.time > 1.0 else (0.0, 0.0, 0.0)
        u = mpc.step(x if contacts else plant.x, plant.time)
        assert np.all(np.abs(u) <= mpc.problem.own_bounds[1][0] * (1 + 1e-12))
        plant.advance(u)
        assert not walker.has_fallen(plant.x)
    return np.array(estimates), np.array(truths), estimator, mpc.counts


def test_it_walks_on_estimates(robot, feet, x0):
    estimates, truths, estimator, counts = walked(robot, feet, x0, 4.0, SENSORS)
    late, nq = slice(1500, None), robot.nq
    error = estimates[late, nq : nq + 6] - truths[late, nq : nq + 6]
    assert np.sqrt((error[:, :3] ** 2).mean()) < 0.05  # m/s
    tilts = [tilt_of(a) - tilt_of(b) for a, b in zip(estimates[late], truths[late], strict=True)]
    assert np.abs(tilts).max() < 0.03  # rad
    assert np.abs(estimates[late, 2] - truths[late, 2]).max() < 0.02
    np.testing.assert_allclose(estimator.gyro_bias, SENSORS["gyro_bias"], atol=0.01)
    speed = truths[2500:, nq].mean()
    # the trunk's, while it knows nothing but its sensors
    assert speed == pytest.approx(0.3, rel=0.15)
    turned = math.remainder(heading(truths[-1, 3:7]) - heading(truths[2500, 3:7]), 2 * math.pi)
    assert turned == pytest.approx(0.2 * 1.5, rel=0.15)
    assert counts["fallen"] == counts["held"] == 0


def test_contacts_are_what_holds_the_estimate(robot, feet, x0):
    """By the inertial unit alone, its biases add up to metres per second."""
    estimates, truths, _, _ = walked(robot, feet, x0, 3.0, SENSORS, contacts=False)
    nq = robot.nq
    # more than 0.2 m/s² of bias for 3 s
    assert np.linalg.norm(estimates[-1, nq : nq + 3] - truths[-1, nq : nq + 3]) > 0.4


def test_without_noise_estimates_are_the_truth(robot, feet, x0):
    estimates, truths, _, _ = walked(robot, feet, x0, 2.0, {})
    away = np.abs(estimates - truths)
    # feet of MuJoCo's give way a little, and slip where they land
    assert away[:, :3].max() < 0.01 and away[:, robot.nq : robot.nq + 3].max() < 0.1
    np.testing.assert_allclose(estimates[:, 7 : robot.nq], truths[:, 7 : robot.nq])


def test_a_standing_robot_leans_as_it_is_told(robot, feet, x0):
    """Begun 0.05 rad off, at rest: gravity tells which way is up."""
    estimator, nq = (
        rg.gaits.Estimator(
            robot, feet, x0, noise=rg.gaits.SensorNoise(tilt=0.1, accelerometer_bias=1e-3)
        ),
        robot.nq,
    )
    wrong = x0.copy()
    wrong[3:7] = math.sin(0.025), 0.0, 0.0, math.cos(0.025)
    estimator.reset(wrong)
    for k in range(1500):
        x = estimator.update(
            1e-3 * k, np.zeros(3), (0.0, 0.0, 9.81), x0[7:nq], np.zeros(12), np.ones(4, bool)
        )
    assert np.abs(tilt_of(x) - (0, 0, 1)).max() < 5e-3 and np.abs(x[nq : nq + 3]).max() < 0.01
    eigenvalues = np.linalg.eigvalsh(estimator.covariance)
    assert eigenvalues.min() > -1e-12 and estimator.covariance[6, 6] < 0.1**2


def test_readings_that_are_none_are_passed_over(robot, feet, x0):
    estimator, nq = rg.gaits.Estimator(robot, feet, x0), robot.nq
    good = (np.zeros(3), (0.0, 0.0, 9.81), x0[7:nq], np.zeros(12), np.ones(4, bool))
    before = estimator.update(0.0, *good)
    np.testing.assert_array_equal(estimator.update(0.001, (math.nan, 0, 0), *good[1:]), before)
    np.testing.assert_array_equal(estimator.update(math.nan, *good), before)
    np.testing.assert_array_equal(estimator.update(-1.0, *good), before)
    assert np.all(np.isfinite(estimator.update(100.0, *good)))  # after a long silence
    with pytest.raises(InputError, match="speeds"):
        estimator.update(101.0, *good[:3], np.zeros(3), good[4])
    with pytest.raises(InputError, match="touching"):
        estimator.update(101.0, *good[:4], np.ones(3, bool))
    with pytest.raises(InputError, match="terrain"):
        rg.gaits.Estimator(robot, feet, x0, terrain="flat")
    with pytest.raises(InputError, match="floating_base"):
        rg.gaits.Estimator(rg.load("hyq"), feet, np.zeros(12))
