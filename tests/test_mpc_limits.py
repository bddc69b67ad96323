"""Limits of the state in closed loop: they hold whatever the weights' scale, move at run time, and
what is violated all the same is measured, counted and answered.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_mpc import POINT, READY, drive, tip

import rigidgrad as rg
from rigidgrad.control.mpc.log import Log
from rigidgrad.errors import InputError

START = READY + np.r_[-0.5, np.zeros(13)]
TARGET = tip(READY + np.r_[0.5, np.zeros(13)])
BETWEEN = 0.5 * (tip(START) + TARGET) + np.array([0.04, 0.0, 0.02])
RADII = 0.08 + 0.05


def passing(scale=1.0, center=BETWEEN, **limits):
    """From one side of an obstacle to the other, the straight way through it; all weights times
    `scale`.
    """
    robot = rg.load("iiwa14")
    still = np.r_[np.zeros(7), np.ones(7)]
    costs = [
        rg.costs.Reach(
            "iiwa_link_7", TARGET, offset=POINT, weight=20.0 * scale, final=1000.0 * scale
        ),
        rg.costs.State(np.zeros(14), weight=0.1 * scale * still, final=10 * scale * still),
        rg.costs.Effort(1e-3 * scale, reference="gravity"),
    ]
    given = {
        "torque": True,
        "obstacles": [rg.Obstacle(center, 0.08)],
        "spheres": [rg.LinkSphere("iiwa_link_7", 0.05, POINT)],
    }
    return rg.Problem(
        robot, start=START, steps=40, dt=0.0125, costs=costs, limits=rg.Limits(**given | limits)
    )


def controlled(problem, iterations=1, **options):
    plant = rg.plants.Simulator(problem.system.robot, START, dt=0.002)
    return rg.MPC(problem, rg.PDDP(iterations=iterations), period=0.01, **options), plant


def clearance(states, center=BETWEEN):
    return np.linalg.norm(tip(states) - center, axis=-1) - RADII


# --- obstacles that stand still -------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e3, 1.0, 1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_an_obstacle_in_the_way_is_passed_by_whatever_the_weights(scale, iterations):
    mpc, plant = controlled(passing(scale), iterations)
    states = drive(mpc, plant, 1.2)
    assert clearance(states).min() > -1e-3
    assert np.linalg.norm(tip(states[-1]) - TARGET) < 0.02  # and it gets there
    assert mpc.counts["violated"] == 0 and np.nanmax(mpc.log.solve_violation) < 1e-3


def test_where_no_roll_out_stays_finite_the_first_plan_begins_from_held_states(monkeypatch):
    """As with the light wrist of a humanoid's arm and long steps, which run away from every posture
    that is held.
    """
    mpc, plant = controlled(passing())
    begin = mpc._planner.begin
    monkeypatch.setattr(
        mpc._planner, "begin", lambda last, *rest: last is not None and begin(last, *rest)
    )
    states = drive(mpc, plant, 1.2)
    assert clearance(states).min() > -1e-3 and np.linalg.norm(tip(states[-1]) - TARGET) < 0.02
    assert not any(mpc.counts.values())


def test_the_straight_way_goes_through_the_obstacle():
    """Otherwise the test above would say nothing."""
    mpc, plant = controlled(passing(center=(5.0, 5.0, 5.0)))
    assert clearance(drive(mpc, plant, 0.6)).min() < -0.03


@pytest.mark.parametrize("scale", [1e3, 1.0, 1e-3])
def test_position_and_velocity_limits_hold_whatever_the_weights(scale):
    robot = rg.load("iiwa14")
    upper = np.where(np.arange(7) == 0, -0.2, robot.limits.upper)  # the base would turn farther
    mpc, plant = controlled(
        passing(scale, center=(5.0, 5.0, 5.0), position=(robot.limits.lower, upper), velocity=0.8)
    )
    states = drive(mpc, plant, 1.5)
    assert states[:, 0].max() < -0.2 + 1e-3
    assert np.abs(states[:, 7:]).max() < 0.8 + 0.02
    assert states[:, 0].max() > -0.25 and np.abs(states[:, 7:]).max() > 0.7  # both mattered
    assert np.linalg.norm(tip(states[-1]) - TARGET) < 0.08  # by other joints


# --- numbers that change --------------------------------------------------------------------------


def test_numbers_take_effect_at_the_next_plan_and_multipliers_stay():
    problem = passing()
    mpc, plant = controlled(problem)
    drive(mpc, plant, 0.15)
    multipliers = mpc._planner.multipliers.copy()
    assert np.abs(multipliers).max() > 1.0
    problem.limits.obstacles[0].center = BETWEEN + np.array([0.0, 0.0, 0.001])
    mpc.problem.update()
    np.testing.assert_array_equal(mpc._planner.multipliers, multipliers)
    states = drive(mpc, plant, 1.0)
    assert clearance(states, BETWEEN + np.array([0.0, 0.0, 0.001])).min() > -1e-3
    assert mpc.counts["cold"] == mpc.counts["refused"] == 0
    assert np.allclose(
        mpc.problem.p[:, mpc.problem.programs.slices[3]["target"]][:, 2], BETWEEN[2] + 0.001
    )


@pytest.mark.parametrize("iterations", [1, 3])
def test_an_obstacle_that_comes_is_given_way_to(iterations):
    """It moves through the tool's place, unforeseen, at 20 cm/s: between two plans it comes 2 mm
    nearer.
    """
    problem = passing()
    mpc, plant = controlled(problem, iterations, target=tip(START))
    plant, least = rg.plants.Simulator(problem.system.robot, START, dt=0.005), np.inf
    for k in range(280):
        center = tip(START) + np.array([0.03, 0.3 - 0.2 * plant.time, 0.02])
        problem.limits.obstacles[0].center = center
        mpc.problem.update()
        plant.advance(mpc.step(plant.x, plant.time))
        least = min(least, clearance(plant.x, center))
        assert np.isfinite(mpc.log.u[-1]).all(), k
    assert -0.004 < least < 0.002  # it was touched, and yielded
    assert mpc.counts["held"] == mpc.counts["kept"] == mpc.counts["refused"] == 0


@pytest.mark.parametrize("depth", [0.02, 0.1])
def test_an_obstacle_that_appears_around_the_tool_is_left(depth):
    problem = passing(center=(5.0, 5.0, 5.0))
    mpc, plant = controlled(problem, target=tip(START))
    drive(mpc, plant, 0.1)
    center = tip(START) + (RADII - depth) * np.array([0.6, 0.64, 0.48])
    problem.limits.obstacles[0].center = center
    mpc.problem.update()
    states = drive(mpc, plant, 0.6)
    assert clearance(states[150:], center).min() > -1e-3
    assert 0 < mpc.counts["violated"] < 30
    assert np.nanmax(mpc.log.solve_violation) == pytest.approx(depth, abs=0.01)


@pytest.mark.parametrize("observer", [False, True])
def test_torque_limits_that_change_are_kept_from_the_next_step_on(observer):
    problem = passing()
    mpc, plant = controlled(problem, observer=observer)
    plant.set_payload(3.0, "iiwa_link_7", POINT)
    drive(mpc, plant, 0.11)
    assert np.abs(mpc.log.u).max() > 20.0
    problem.limits.torque = 5.0
    mpc.problem.update()
    for _ in range(20):
        u = mpc.step(plant.x, plant.time)
        assert np.abs(u).max() <= 5.0
        plant.advance(u)
    problem.limits.torque = (-np.full(7, 40.0), np.full(7, 30.0))
    mpc.problem.update()
    u = mpc.step(plant.x, plant.time)
    assert u.max() <= 30.0 and u.min() >= -40.0 and np.abs(u).max() > 5.0


def test_wrong_numbers_are_refused_and_the_last_ones_stay():
    problem = passing()
    mpc, plant = controlled(problem)
    drive(mpc, plant, 0.05)
    before = mpc.problem.p.copy()
    problem.costs[2].weight = 1e-2  # not taken over alone, either
    for wrong in ((np.nan, 0.0, 0.0), "there", (1.0, 2.0), None):
        problem.limits.obstacles[0].center = wrong
        mpc.problem.update()
        assert np.isfinite(mpc.step(plant.x, plant.time)).all()
        assert "centre" in mpc.trouble
    assert mpc.counts["refused"] == 4
    weights = mpc.problem.programs.slices[2]["weight"]
    np.testing.assert_array_equal(mpc.problem.p[:, weights], before[:, weights])
    problem.limits.obstacles[0].center = BETWEEN
    mpc.problem.update()
    states = drive(mpc, plant, 1.0)
    assert mpc.counts["refused"] == 4 and clearance(states).min() > -1e-3
    assert (mpc.problem.p[:-1, weights] == 1e-2).all()


def test_a_time_step_that_changes_begins_from_cold():
    mpc, plant = controlled(passing())
    drive(mpc, plant, 0.05)
    mpc.problem.update(dt=0.02)
    drive(mpc, plant, 0.05)
    assert mpc.counts["cold"] == 1 and mpc.plan.dt == 0.02
    mpc.problem.update(dt=-1.0)
    drive(mpc, plant, 0.05)
    assert mpc.counts["refused"] == 1 and mpc.plan.dt == 0.02


# --- what is violated all the same ----------------------------------------------------------------


def popping_up(policy, distance=0.03):
    """An obstacle appears in front of a tool that moves at more than 1 m/s; the least clearance,
    and its controller.
    """
    problem = passing(center=(5.0, 5.0, 5.0))
    mpc, plant = controlled(problem, on_violation=policy)
    states = drive(mpc, plant, 0.12)
    way = tip(states[-1]) - tip(states[-2])
    center = tip(states[-1]) + (RADII + distance) * way / np.linalg.norm(way)
    assert np.linalg.norm(way) / plant.dt > 1.0
    problem.limits.obstacles[0].center = center
    mpc.update()
    paces, held = [], []

    def each(_):
        paces.append(mpc._schedule.acting.pace)
        held.append(mpc._schedule.acting.held)

    states = drive(mpc, plant, 1.5, each)
    assert np.linalg.norm(tip(states[-1]) - TARGET) < 0.02  # it gets there in the end
    return clearance(states, center).min(), mpc, np.array(paces), np.array(held)


def test_a_violation_that_cannot_be_avoided_is_counted_and_logged():
    least, mpc, paces, held = popping_up("report")
    assert least < -1e-3  # no actuator stops so fast
    assert mpc.counts["violated"] >= 2 and np.nanmax(mpc.log.solve_violation) > -0.9 * least
    assert (paces == 1.0).all() and not held.any()


def test_the_motion_is_slowed_before_a_violation():
    least, mpc, paces, held = popping_up("slow")
    assert mpc._guard.policy == controlled(passing())[0]._guard.policy == "slow"  # the default
    assert paces.min() < 0.5 and not held.any() and (paces[-50:] == 1.0).all()
    assert mpc.counts["violated"] >= 1 and mpc.counts["held"] == 0
    assert least > popping_up("report")[0] - 2e-3


def test_the_posture_is_held_before_a_violation():
    _, mpc, paces, held = popping_up("hold")
    assert held.any() and not held[-50:].any() and (paces == 1.0).all()
    assert mpc.counts["held"] >= 1


def test_a_slowed_plan_is_followed_along_its_path():
    """At half of its speed the plan's states come twice as late."""
    mpc, plant = controlled(passing(center=(5.0, 5.0, 5.0)))
    mpc.step(START, 0.0)
    plan = mpc.plan
    plan.pace, mpc._clock.due = 0.5, np.inf
    for _ in range(150):
        plant.advance(mpc.step(plant.x, plant.time))
    assert np.abs(plant.x[:7] - plan.state(0.15)[:7]).max() < 0.02
    assert np.abs(plant.x[7:] - 0.5 * plan.state(0.15)[7:]).max() < 0.15
    assert np.abs(plan.state(0.3)[:7] - plan.state(0.15)[:7]).max() > 0.1  # they differ


def weak_wrist():
    """An arm whose last joint has a light link and a motor of 1 Nm: what the others do to it is
    more than it can resist.
    """
    builder = rg.Builder("arm").link("base")
    for k, (mass, length, effort) in enumerate(
        [(4.0, 0.4, 80.0), (3.0, 0.4, 60.0), (0.6, 0.25, 1.0)]
    ):
        size = np.diag([mass * length**2 / 12 + 1e-3] * 2 + [2e-3])
        builder.link(f"link{k}", mass, (0, 0, -length / 2), size)
        parent, xyz = ("base", (0, 0, 0)) if k == 0 else (f"link{k - 1}", (0, 0, -0.4))
        builder.joint(
            f"j{k}",
            "revolute",
            parent,
            f"link{k}",
            xyz,
            axis=(0, 1, 0),
            limit=(-2.5, 2.5, 4.0, effort),
        )
    return builder.build().add_frame("tool", "link2", (0, 0, -0.25))


@pytest.mark.parametrize("policy", ["slow", "hold"])
def test_braking_throws_no_weak_joint(policy):
    """More deceleration than the actuators have: every joint gets the same part of it. Cut one by
    one at their bounds, torques would whip the wrist.
    """
    robot = weak_wrist()
    x = np.r_[0.2, 0.3, 0.1, 3.0, 3.0, -1.0]
    still = np.r_[np.zeros(3), np.ones(3)]
    costs = [
        rg.costs.State(np.r_[1.5, 1.0, 0.5, 0, 0, 0], weight=1.0, final=100.0),
        rg.costs.Effort(1e-3),
        rg.costs.State(np.zeros(6), weight=0.1 * still),
    ]
    problem = rg.Problem(
        robot,
        x,
        40,
        0.0125,
        costs=costs,
        limits=rg.Limits(torque=True, position=True, velocity=True),
    )
    mpc, plant = (
        rg.MPC(problem, period=0.01, on_violation=policy),
        rg.plants.Simulator(robot, x, dt=0.002),
    )
    plant.advance(mpc.step(plant.x, 0.0))
    if policy == "slow":
        mpc._schedule.acting.pace = 0.2
    else:
        mpc._schedule.acting.held = True
        mpc._fallback.hold(plant.x)
    mpc._clock.due = np.inf  # the plan stays as it is
    speeds = []
    for _ in range(40):
        plant.advance(mpc.step(plant.x, plant.time))
        speeds.append(np.abs(plant.x[3:]))
    speeds = np.array(speeds)
    assert (speeds[-1, :2] < 2.0).all()  # it brakes
    assert speeds[:, 2].max() < 4.0, speeds[:, 2].max()  # the wrist's own limit


def test_what_can_slow_down_or_hold():
    cart = rg.RobotSystem(rg.load("cartpole"), actuation=[[1.0], [0.0]])
    costs = [rg.costs.State(np.zeros(4), 1.0), rg.costs.Effort(0.1)]
    problem = rg.Problem(
        cart,
        start=np.zeros(4),
        steps=10,
        dt=0.02,
        costs=costs,
        limits=rg.Limits(position=([-1, -np.inf], [1, np.inf])),
    )
    assert (
        rg.MPC(problem)._guard.policy == "report"
        and rg.MPC(problem, on_violation="hold")._guard.policy == "hold"
    )
    with pytest.raises(InputError, match="driven"):
        rg.MPC(problem, on_violation="slow")
    system = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    custom = rg.Problem(
        system,
        start=np.zeros(2),
        steps=10,
        dt=0.02,
        costs=[rg.costs.State([1.0, 0.0], 1.0), rg.costs.Effort(0.1)],
    )
    with pytest.raises(InputError, match="posture"):
        rg.MPC(custom, on_violation="hold")


def test_margins_grow_where_states_were_outside_and_fade():
    problem = passing()
    mpc, _ = controlled(problem)
    live, inside = mpc.problem, START
    live.start = inside
    assert not live.fit(0.01).any() and not live.margin.any()
    problem.limits.obstacles[0].center = tip(START) + np.array([RADII - 0.004, 0.0, 0.0])
    live.update()
    live.read()
    for _ in range(5):
        assert live.fit(0.01)[0] == pytest.approx(0.004, rel=1e-2)
    margin = live.margin[0]
    assert 0.003 < margin < 0.005
    lower = live.p[:, live.programs.columns["lower"][0]]
    # 0.5 m/s brings it out in less than two knots
    np.testing.assert_allclose(lower[2:], margin, rtol=1e-6)
    for _ in range(100):
        live.fit(0.1)
    assert live.margin[0] == 0.02  # the most
    problem.limits.obstacles[0].center = BETWEEN
    live.update()
    live.read()
    live.fit(5.0)
    assert 0 < live.margin[0] < 2e-4
    mpc.reset()
    assert not live.margin.any()


def test_other_solvers_are_judged_alike():
    problem = passing()
    mpc = rg.MPC(problem, rg.Direct(iterations=2), period=0.02)
    plant = rg.plants.Simulator(problem.system.robot, START, dt=0.01)
    drive(mpc, plant, 0.1)
    assert len(mpc.log.solve_violation) == 5 and np.isfinite(mpc.log.solve_violation).all()
    assert mpc.counts["violated"] == (mpc.log.solve_violation > 1e-3).sum()


def test_the_log_keeps_violations(tmp_path):
    mpc, plant = controlled(passing())
    drive(mpc, plant, 0.1)
    mpc.log.save(tmp_path / "log.npz")
    np.testing.assert_array_equal(
        Log.load(tmp_path / "log.npz").solve_violation, mpc.log.solve_violation
    )
    with np.load(tmp_path / "log.npz") as file:
        older = {
            name: file[name] for name in file.files if name not in ("solve_violation", "simulated")
        }
    np.savez(tmp_path / "older.npz", **older)
    assert np.isnan(Log.load(tmp_path / "older.npz").solve_violation).all()
