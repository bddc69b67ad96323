"""Dynamics in the form of the inverse: the optimum of the forward form, motions that obey the
equations of motion, limits that hold.
"""

from __future__ import annotations

import numpy as np
import pytest
from hopper import DRIVEN, START, foot, hopper, stance_costs, torques

import rigidgrad as rg
from rigidgrad.errors import InputError

FOOT = foot()
CONE = rg.Inequality(rg.costs.FrictionCone(FOOT), upper=0.0)
LIMITS = {"free": None, "joints": rg.Limits(velocity=(-8.0, 8.0))}


@pytest.fixture(scope="module")
def robot():
    return hopper()


def motion(
    robot: rg.Robot, limits: rg.Limits | None = None, cone: bool = False, **options
) -> rg.Problem:
    """Stand, fly, land, stand: forces of the ground are charged for, and kept in their cone where
    asked.
    """
    held = rg.Limits(constraints=[CONE]) if cone else None
    phases = [
        rg.Phase(15, FOOT, limits=held),
        rg.Phase(8, dt=0.015),
        rg.Impact(FOOT),
        rg.Phase(10, FOOT, costs=[rg.costs.ContactForce(FOOT, 1e-4)]),
    ]
    return rg.Problem(
        robot,
        START,
        dt=0.02,
        actuation=DRIVEN,
        phases=phases,
        costs=stance_costs(0.1),
        limits=limits,
        **options,
    )


@pytest.mark.parametrize("limits", LIMITS)
def test_both_forms_have_the_same_optimum(robot, limits):
    problem = motion(robot, LIMITS[limits])
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert forward.status == inverse.status == "converged"
    # limits of the state are kept to the tolerance of `violation`, 1e-4, which leaves as much of
    # the cost
    assert inverse.cost == pytest.approx(forward.cost, rel=1e-4 if limits == "joints" else 1e-7)
    np.testing.assert_allclose(inverse.x, forward.x, atol=2e-3 if limits == "joints" else 2e-4)


def test_cones_of_forces_are_kept(robot):
    problem = motion(robot, cone=True)
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert inverse.status == "converged" and inverse.cost == pytest.approx(forward.cost, rel=1e-5)
    force = np.asarray(
        robot.contact_dynamics(
            inverse.x[:15, :4], inverse.x[:15, 4:], torques(inverse.u[:15]), [FOOT]
        ).force
    ).reshape(15, 3)
    assert (np.abs(force[:, 0]) <= 0.3 * force[:, 2] + 1e-3 * force[:, 2].max()).all()


def test_what_is_returned_is_a_motion(robot):
    """Equations of motion and contacts are unknowns' equations, and are solved in the end: each
    state is the step of the one before.
    """
    solution = rg.solve(motion(robot), rg.PDDP(form="inverse"))
    x, u = solution.x, solution.u
    a = np.asarray(robot.contact_dynamics(x[:15, :4], x[:15, 4:], torques(u[:15]), [FOOT]).a)
    v = x[:15, 4:] + 0.02 * a
    np.testing.assert_allclose(
        x[1:16], np.concatenate([x[:15, :4] + 0.02 * v, v], axis=1), atol=1e-9
    )


@pytest.mark.parametrize("most", [20.0, 14.0])
def test_torques_keep_their_limits_and_the_optimum_is_the_same(robot, most):
    free = rg.solve(motion(robot), rg.PDDP(form="inverse"))
    assert np.abs(free.u).max() > most
    problem = motion(robot, rg.Limits(torque=most))
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert forward.converged and inverse.converged
    assert np.abs(inverse.u).max() == pytest.approx(most, abs=1e-9)
    assert inverse.cost == pytest.approx(forward.cost, rel=1e-6) and inverse.cost > free.cost
    np.testing.assert_allclose(inverse.x, forward.x, atol=1e-3)


def test_an_arm_with_little_torque():
    robot = rg.load("iiwa14")
    goal = np.r_[0.5, 0.8, 0.3, -1.0, 0.2, 0.5, 0.1, np.zeros(7)]
    costs = [rg.costs.State(goal, weight=[0.1] * 7 + [0.01] * 7, final=1e3), rg.costs.Effort(1e-3)]
    limits = rg.Limits(torque=45.0)
    problem = rg.Problem(robot, np.zeros(14), steps=32, dt=0.02, costs=costs, limits=limits)
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert inverse.converged and inverse.cost == pytest.approx(forward.cost, rel=1e-6)
    assert np.abs(inverse.u).max() <= 45.0 and np.mean(np.abs(inverse.u) > 45.0 - 1e-9) > 0.05


def test_an_arm_without_contacts():
    robot = rg.load("iiwa14")
    goal = np.r_[0.5, 0.8, 0.3, -1.0, 0.2, 0.5, 0.1, np.zeros(7)]
    costs = [rg.costs.State(goal, weight=[0.1] * 7 + [0.01] * 7, final=1e3), rg.costs.Effort(1e-3)]
    problem = rg.Problem(robot, np.zeros(14), steps=32, dt=0.02, costs=costs)
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert inverse.status == "converged" and inverse.cost == pytest.approx(forward.cost, rel=1e-7)


def test_a_free_base_on_its_feet():
    """HyQ rises on four feet, with friction cones and small weights on forces."""
    robot = rg.load("hyq", floating_base=True)
    feet = [
        rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6)
        for leg in ("lf", "rf", "lh", "rh")
    ]
    x0 = np.zeros(37)
    x0[6] = 1.0
    x0[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x0[2] = 0.02 - rg.gaits.Stance(robot, feet, x0).ground
    problem = rg.Problem(robot, x0, phases=rg.gaits.stand(robot, feet, x0, time=0.4, rise=0.05))
    forward, inverse = (rg.solve(problem, rg.PDDP(form=form)) for form in ("forward", "inverse"))
    assert forward.status == inverse.status == "converged"
    assert inverse.cost == pytest.approx(forward.cost, rel=1e-6)
    assert inverse.iterations <= forward.iterations + 3


def test_a_batch_and_a_guess_of_controls(robot):
    plain = motion(robot)
    problem = motion(robot, guess=plain.guess)
    solutions = rg.solve([problem] * 3, rg.PDDP(form="inverse"))
    assert [s.status for s in solutions] == ["converged"] * 3
    assert solutions[0].cost == pytest.approx(rg.solve(plain).cost, rel=1e-7)


def test_what_it_cannot_do_is_said(robot):
    for options in (
        {"blocks": 2},
        {"second_order": True},
        {"dtype": "float32"},
        {"device": "opencl"},
    ):
        with pytest.raises(InputError, match='form="inverse"'):
            rg.PDDP(form="inverse", **options)
    with pytest.raises(InputError, match="'forward' or 'inverse', not 'both'"):
        rg.PDDP(form="both")
    arm = rg.Problem(
        robot, START, steps=5, dt=0.02, actuation=DRIVEN, costs=stance_costs(), integrator="rk4"
    )
    with pytest.raises(InputError, match="semi_implicit_euler"):
        rg.solve(arm, rg.PDDP(form="inverse"))
    with pytest.raises(InputError, match="under control"):
        rg.MPC(
            rg.Problem(robot, START, steps=5, dt=0.02, actuation=DRIVEN, costs=stance_costs()),
            rg.PDDP(form="inverse"),
            period=0.02,
        )
