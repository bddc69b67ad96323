"""Plans of a walker keep forces in the friction cones of all feet, within 1e-3 of the normal force;
where they do not, the controller says so.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.gaits.grip import Grip

mujoco = pytest.importorskip("mujoco", reason="needs MuJoCo (pip install rigidgrad[plants])")
FRICTION = 0.6


def forces_of(walker, problem, x, u):
    """Of the feet that stand, (forces, 3), by the robot's dynamics."""
    robot, held = walker.robot, walker.stance.contacts(problem.dt)
    rows = problem.p[:-1, problem.programs.inputs][:, problem.system.contact_numbers]
    tau = np.concatenate([np.zeros((len(u), 6)), u], axis=1)
    q, v = x[:-1, : robot.nq], x[:-1, robot.nq :]
    force = robot.contact_dynamics(q, v, tau, contacts=held, active=rows).force
    return force.reshape(len(u), -1, 3)[rows > 0]


def outside(force, weight):
    """How far forces leave their pyramids, beside the normal force or 1% of the weight."""
    off = np.maximum(np.abs(force[:, :2]).max(axis=1) - FRICTION * force[:, 2], -force[:, 2])
    return float((off / np.maximum(force[:, 2], 0.01 * weight)).max())


def test_every_plan_of_a_light_robot_keeps_to_the_cones():
    """Go2 starts, walks sideways, and stops, with one iteration a plan; a fifth of its plans would
    leave the cones by more without a margin and further iterations.
    """
    pytest.importorskip("pinocchio", reason="example-robot-data comes with pinocchio")
    from rigidgrad.play.scenes import scene

    go2 = scene("go2")
    walker = go2.walker()
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    plant = go2.plant(mpc.system, 0.8, 0.0)
    weight = 9.81 * sum(m for m, *_ in go2.robot.model.inertias)
    worst, most, seen = 0.0, 0, -1.0
    while plant.time < 2.4:
        walker.command = (0.3, 0.2, 0.0) if plant.time < 1.4 else (0.0, 0.0, 0.0)
        u = mpc.step(plant.x, plant.time)
        if mpc.plan.start > seen:
            seen = mpc.plan.start
            force = forces_of(walker, mpc.problem, mpc.plan.x, mpc.plan.u)
            worst = max(worst, outside(force, weight))
            most = max(most, int(mpc.log.solve_iterations[-1]) if seen else 0)
        plant.advance(u)
    assert worst <= 1e-3 and not any(mpc.counts.values())
    assert 1 < most <= 6, "some plans got further iterations, none more than five"
    assert plant.x[0] > 0.2 and plant.x[2] > 0.2


@pytest.fixture(scope="module")
def standing():
    robot = rg.load("hyq", floating_base=True)
    feet = [
        rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=FRICTION)
        for leg in ("lf", "rf", "lh", "rh")
    ]
    walker = rg.gaits.Walker(robot, feet, rg.gaits.standing(robot, feet))
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    mpc.step(walker.stance.x, 0.0)
    mpc.step(walker.stance.x, 0.02)
    return walker, mpc


def test_what_is_accepted_is_inside_of_the_cones(standing):
    walker, mpc = standing
    weight = 9.81 * sum(m for m, *_ in walker.robot.model.inertias)
    x, u = mpc.plan.x.copy(), mpc.plan.u.copy()
    assert walker.accepts(mpc.problem, x, u)
    random = np.random.default_rng(0)
    told = []
    for size in (0.0, 1.0, 10.0, 30.0, 100.0):
        pushed = u + size * random.normal(size=u.shape)
        expected = outside(forces_of(walker, mpc.problem, x, pushed), weight)
        assert walker.grip.outside(mpc.problem, x, pushed) == pytest.approx(
            max(expected, 0.0), rel=1e-6, abs=1e-9
        )
        told.append(walker.accepts(mpc.problem, x, pushed))
        assert told[-1] == (expected <= 1e-3)
    assert True in told and False in told
    u[3, 2] = np.nan
    assert not walker.accepts(mpc.problem, x, u)


def test_plans_that_are_not_accepted_are_improved_and_counted(standing, monkeypatch):
    walker, mpc = standing
    asked = []
    monkeypatch.setattr(walker, "accepts", lambda *_: asked.append(None))
    x = walker.stance.x.copy()
    x[walker.robot.nq + 1] = 0.2  # off its plan
    mpc.step(x, 0.04)
    assert mpc.counts["slips"] == 1 and 1 < mpc.log.solve_iterations[-1] <= 6
    monkeypatch.setattr(walker, "accepts", lambda *_: True)
    mpc.step(x, 0.06)
    assert mpc.counts["slips"] == 1 and mpc.log.solve_iterations[-1] == 1
    mpc.reset()
    assert mpc.counts["slips"] == 0


def test_plans_that_no_warm_start_led_to_are_improved_as_well(standing, monkeypatch):
    """Hind legs whip: no roll-out of the last plan stays finite, and a plan is found from states
    instead. If it is not accepted, iterations go on from there.
    """
    walker, mpc = standing
    x = walker.stance.x.copy()
    for leg in ("lh", "rh"):
        x[walker.robot.nq + 5 + walker.robot.joints.index(f"{leg}_kfe_joint")] = -24.0
    costs, iterations = [], []
    for accepted in (True, False):
        monkeypatch.setattr(walker, "accepts", lambda *_, accepted=accepted: accepted)
        mpc.reset()
        walker.reset()
        mpc.step(walker.stance.x, 0.0)
        mpc.step(x, 0.02)
        assert mpc.counts["kept"] == 0 and mpc.counts["slips"] == 2 * (not accepted)
        costs.append(mpc.log.solve_cost[-1])
        iterations.append(int(mpc.log.solve_iterations[-1]))
        assert mpc._planner.further == 20
    assert iterations[0] < iterations[1] <= iterations[0] + 20 and costs[1] < costs[0]
    # it is a motion from where the robot is
    plan = mpc.plan
    after, _ = mpc.problem.evaluate(plan.x, plan.u)
    np.testing.assert_allclose(after, plan.x[1:], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(plan.x[0], x)


def test_the_margin_is_a_part_of_the_friction(standing):
    walker, _ = standing
    foot = walker.feet[0]
    cone = Grip(walker.robot, [foot], 0.25).cost(foot, 2.0)
    assert cone.contact.friction == pytest.approx(0.75 * FRICTION)
    for margin in (1.0, -0.1):
        with pytest.raises(InputError, match="margin"):
            rg.gaits.Walker(walker.robot, walker.feet, walker.stance.x, margin=margin)
