"""Whatever is measured, whatever the clock says and whoever calls: MPC's controls are finite and
within their bounds, and what was wrong is counted.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_mpc import READY, drive, eight, errors, reaching, tip

import rigidgrad as rg
from rigidgrad.control.mpc.observer import DisturbanceObserver

EFFORT = rg.load("iiwa14").limits.effort


def tracking(seconds=0.3, **options):
    problem = reaching(limits=rg.Limits(torque=True))
    plant = rg.plants.Simulator(problem.system.robot, READY, dt=2e-3)
    mpc = rg.MPC(problem, period=0.004, target=eight, **options)
    drive(mpc, plant, seconds)
    return mpc, plant


def sane(u):
    return np.isfinite(u).all() and (np.abs(u) <= EFFORT + 1e-9).all()


def spoilt(x, velocity):
    return np.r_[x[:7], np.full(7, velocity)]


@pytest.mark.parametrize("observer", [False, True])
@pytest.mark.parametrize(
    ("velocity", "age"),
    [(100.0, 0.05), (1e4, 0.0), (1e155, 0.0), (1e155, 0.05), (1e11, 0.1), (-1e308, 0.0)],
)
def test_one_wild_sample_is_neither_followed_nor_remembered(velocity, age, observer):
    mpc, plant = tracking(observer=observer)
    usual = np.abs(mpc.log.u).max()
    plant.advance(mpc.step(spoilt(plant.x, velocity), plant.time, plant.time - age))
    states = drive(mpc, plant, 0.2)
    assert sane(mpc.log.u) and np.abs(mpc.log.u).max() < 1.5 * usual  # no saturation
    # it is still on its way to the target
    assert errors(states, plant, eight).max() < 0.3 and np.abs(states[:, 7:]).max() < 3.0
    assert mpc.counts["outlier"] + mpc.counts["missing"] == 1


@pytest.mark.parametrize("observer", [False, True])
@pytest.mark.parametrize("velocity", [100.0, 1e4, 1e10, 1e155])
def test_a_wild_first_sample(velocity, observer):
    problem = reaching(limits=rg.Limits(torque=True))
    mpc = rg.MPC(problem, period=0.004, target=eight, observer=observer)
    x = spoilt(READY, velocity)
    for k in range(20):
        assert sane(mpc.step(x, 0.0, -0.05) if k == 0 else mpc.step(READY, 0.004 * k))
    # it plans from where the robot is
    assert mpc.log.solve_cost[-1] < 1e4 and np.abs(mpc.plan.x).max() < 100.0


@pytest.mark.parametrize("gap", [0, 125])
@pytest.mark.parametrize(
    "wild",
    [
        np.r_[np.full(7, 3.0), np.zeros(7)],
        np.r_[np.full(7, 1e4), np.zeros(7)],
        np.r_[np.zeros(7), np.full(7, 1e4)],
    ],
)
def test_a_wild_sample_where_nothing_is_known_throws_no_arm(wild, gap):
    """At first, or after a quarter of a second without samples: what is far beyond the joints'
    limits is not believed.
    """
    mpc, plant = tracking(0.1 if gap else 0.0)
    for _ in range(gap):
        plant.advance(mpc.step(None, plant.time))
    plant.advance(mpc.step(plant.x + wild, plant.time))
    states = drive(mpc, plant, 0.3)
    assert sane(mpc.log.u) and mpc.counts["outlier"] >= 1
    assert np.abs(states[:, 7:]).max() < 10.0 and errors(states, plant, eight)[-1] < 0.3


def test_what_a_caller_does_to_a_control_was_not_given():
    runs = []
    for spoil in (False, True):
        mpc, plant = tracking()
        for _ in range(100):
            u = mpc.step(plant.x, plant.time, plant.time - 0.018)
            plant.advance(u.copy())
            if spoil:
                u *= 0.01
        runs.append(plant.x)
    np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize("observer", [False, True])
def test_wild_samples_alone_never_give_controls_that_are_no_numbers(observer):
    problem = reaching(limits=rg.Limits(torque=True))
    for steady in (False, True):  # what is said three times in a row is believed
        mpc = rg.MPC(problem, period=0.004, target=eight, observer=observer)
        rng = np.random.default_rng(1)
        for k in range(200):
            x = (
                spoilt(READY, 1e6)
                if steady
                else READY + rng.choice([-1, 1], 14) * 10.0 ** rng.uniform(-3, 13, 14)
            )
            assert sane(mpc.step(x, 0.004 * k, 0.004 * k - rng.choice([0.0, 0.05])))


def test_a_real_jump_is_believed_after_three_samples():
    mpc, plant = tracking(observer=True)
    moved = plant.x.copy()
    moved[0] += 1.0  # someone turned the base, and with it the plant
    t = plant.time
    for k in range(3):
        mpc.step(moved, t + 0.004 * k)
        assert mpc.counts["outlier"] == min(k + 1, 2)
    assert mpc.plan.x[0, 0] == moved[0]
    assert np.abs(mpc.observer.force).max() < 50.0  # the jump is no force


def test_a_wild_sample_that_comes_again_and_again_stays_one_sample():
    mpc, plant = tracking()
    bad, seen = spoilt(plant.x, 1e4), plant.time
    for k in range(10):
        mpc.step(bad, plant.time + 0.004 * k, seen)
    assert np.abs(mpc.log.u[-10:]).max() < 150.0
    assert mpc.counts["outlier"] == 10


def test_hard_pushes_are_no_outliers():
    mpc, plant = tracking()
    plant.push((0.0, 300.0, 0.0), 0.05, "iiwa_link_7")
    states = drive(mpc, plant, 0.3)
    assert np.abs(states[:, 7:]).max() > 2.0 and mpc.counts["outlier"] == 0


def test_an_observer_is_bounded_and_starts_anew():
    robot = rg.load("iiwa14")
    observer = DisturbanceObserver(rg.RobotSystem(robot), 20.0)
    np.testing.assert_array_equal(observer.most, robot.limits.effort)
    still = np.zeros(7)
    observer.update(READY, 0.0, still)
    observer.update(spoilt(READY, 1e6), 0.01, still)
    assert (np.abs(observer.force) <= observer.most).all() and np.abs(observer.force).max() > 0
    with np.errstate(all="ignore"):
        observer.update(spoilt(READY, 1e200), 0.02, still)
        observer.update(READY, 0.03, still)
    assert np.isfinite(observer.force).all()
    assert np.isfinite(DisturbanceObserver(rg.RobotSystem(rg.load("pendulum"))).most).all()


# --- the clock, and who calls ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "jump", [1e9, -1e9, 5.0, -5.0, 1e300, np.inf, -np.inf, np.nan, "soon", None, 10**400]
)
@pytest.mark.parametrize("latency", [0.0, 0.004])
def test_one_wrong_reading_of_the_clock(jump, latency):
    mpc, plant = tracking(1.0, latency=latency, observer=True, integral=True)
    wrong = plant.time + jump if isinstance(jump, float) else jump
    plant.advance(mpc.step(plant.x, wrong))
    states = drive(mpc, plant, 0.6)
    assert sane(mpc.log.u)
    assert mpc.counts["clock"] == 1
    assert errors(states, plant, eight)[-1] < 0.03
    assert mpc.counts["held"] == 0


def test_a_clock_that_starts_again():
    """The plan goes on, with times moved."""
    mpc, plant = tracking(0.5)
    plant.reset(plant.x)
    mpc.target = tip(plant.x)
    states = drive(mpc, plant, 0.5)
    assert plant.time == pytest.approx(0.5) and mpc.counts["clock"] == 1 and mpc.counts["cold"] == 0
    assert np.linalg.norm(tip(states[-1]) - mpc.target) < 0.01


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(3),
        "state",
        [None] * 14,
        np.zeros((14, 1)),
        [[1.0], 2.0],
        1j * np.ones(14),
        object(),
    ],
)
@pytest.mark.parametrize("seen", [None, 0.29, np.nan, "then"])
def test_wrong_kinds_of_measurements_are_missing(x, seen):
    mpc, plant = tracking()
    assert sane(mpc.step(x, plant.time, seen))
    assert mpc.counts["missing"] == 1 and mpc.trouble


@pytest.mark.parametrize("seen", [np.nan, "then", object()])
def test_a_wrong_time_of_a_measurement(seen):
    mpc, plant = tracking()
    assert sane(mpc.step(plant.x, plant.time, seen))
    assert mpc.counts["missing"] == 1 and mpc.trouble


def test_a_target_that_raises_is_counted():
    """With integral action it is asked in every step."""

    def target(t):
        if np.max(t) > 0.8:  # the plans at 0.3 s and after see it coming
            raise RuntimeError("no target")
        return eight(t)

    problem = reaching(limits=rg.Limits(torque=True))
    plant = rg.plants.Simulator(problem.system.robot, READY, dt=2e-3)
    mpc = rg.MPC(problem, period=0.004, target=target, integral=True)
    drive(mpc, plant, 1.0)
    assert sane(mpc.log.u)
    assert mpc.counts["kept"] >= 2 and mpc.counts["held"] >= 1 and mpc.counts["refused"] >= 50
    assert "no target" in mpc.trouble


def test_errors_of_construction_are_still_raised():
    with pytest.raises(rg.errors.InputError, match="violation"):
        rg.MPC(reaching(), violation=-1.0)
    with pytest.raises(rg.errors.UnknownNameError, match="on_violation"):
        rg.MPC(reaching(), on_violation="stop")
    with pytest.raises(RuntimeError):
        rg.MPC(reaching(), target=lambda t: (_ for _ in ()).throw(RuntimeError("no target")))
    for wrong in (lambda t: "there", lambda t: [1.0] * (2 + (t > 0.1)), lambda t: None):
        with pytest.raises(rg.errors.InputError, match="target"):
            rg.MPC(reaching(), target=wrong)
