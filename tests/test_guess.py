"""First guesses: what they are, that they are kept, and what happens where the default one runs
away.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError

START = np.r_[0.3, 0.4, 0.5, -0.6, 0.2, 0.3, 0.1, np.zeros(7)]
GOAL = np.r_[-0.9, 0.8, 0.2, -1.2, 0.4, 0.9, 0.0, np.zeros(7)]


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


def moving(robot, **options):
    costs = [rg.costs.State(GOAL, weight=0.1, final=100.0), rg.costs.Effort(1e-4)]
    return rg.Problem(
        robot, start=options.pop("start", START), steps=30, dt=0.02, costs=costs, **options
    )


def light() -> rg.Problem:
    """An arm that moves at its start, whose last two links weigh next to nothing."""
    build = rg.Builder("light").link("base", mass=1.0, inertia=(1, 1, 1))
    for k, (mass, arm, turn) in enumerate(
        [(1.0, 0.05, 1e-3), (1e-2, 1e-4, 1e-10), (1e-2, 1e-4, 1e-10)]
    ):
        build = build.link(f"l{k}", mass=mass, com=(arm, 0, arm / 3), inertia=(turn,) * 3)
        build = build.joint(
            f"j{k}",
            "revolute",
            f"l{k - 1}" if k else "base",
            f"l{k}",
            xyz=(0, 0, 0.2),
            axis=(k == 2, k < 2, 0),
        )
    x0 = np.r_[0.3, 0.4, 0.5, 2.0, 3.0, 4.0]
    costs = [
        rg.costs.State(np.r_[0.6, 0.7, 0.8, 0, 0, 0], weight=0.1, final=100.0),
        rg.costs.Effort(1e-4),
    ]
    return rg.Problem(build.build(), start=x0, steps=50, dt=0.05, costs=costs)


def test_where_the_default_runs_away_states_held_at_the_start_take_its_place():
    problem = light()
    assert rg.PDDP().solve(problem).status == "diverged"
    best = rg.solve(problem, rg.Direct())
    assert best.converged
    for options in (rg.PDDP(), rg.PDDP(blocks=4)):
        solution = rg.solve(problem, options)
        assert solution.converged and solution.cost == pytest.approx(best.cost, rel=1e-6)
        assert "held at the start" in solution.message and "runs away" in solution.stats["guess"]
    for solution in rg.solve(problem.batch(start=np.tile(problem.start, (4, 1)))):
        assert solution.converged and "held at the start" in solution.stats["guess"]
    problem.update(guess=problem.guess)  # the user's own is not replaced in silence
    assert rg.solve(problem).status == "diverged" and "guess" not in rg.solve(problem).stats


def test_the_joints_of_what_falls_are_left_alone():
    build = rg.Builder("free")
    for name in ("trunk", "arm"):
        build = build.link(name, mass=1.0, com=(0.1, 0, 0), inertia=(0.1, 0.1, 0.1))
    fixed = build.joint("shoulder", "revolute", "trunk", "arm", axis=(0, 1, 0)).build()
    robot = rg.load(fixed.to_urdf(), floating_base=True)
    x0 = np.r_[robot.neutral(), np.zeros(robot.nv)]
    problem = rg.Problem(robot, start=x0, steps=3, dt=0.01, costs=[rg.costs.Effort(1.0)])
    assert np.abs(problem.guess).max() < 1e-12
    pole = rg.load("cartpole")
    problem = rg.Problem(
        pole, start=[0.0, 0.7, 0.0, 0.0], steps=3, dt=0.01, costs=[rg.costs.Effort(1.0)]
    )
    q, energy = np.array([0.0, 0.7]), []
    # Gauss: no other force moves it less
    for u in (problem.guess[0, 0] + np.array([-0.1, 0.0, 0.1])).tolist():
        a = pole.aba(q, np.zeros(2), [u, 0.0])
        energy.append(a @ pole.crba(q) @ a)
    assert energy[1] < min(energy[0], energy[2])


@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_a_line_leads_to_the_goal_and_leaves_no_gaps(arm, speed):
    start = START + np.r_[np.zeros(7), np.full(7, speed)]
    problem = moving(arm, guess="line", start=start)
    x = problem.guess_states
    assert np.array_equal(x[0], start) and x[-1, :7] == pytest.approx(GOAL[:7], abs=1e-9)
    after, _ = problem.evaluate(x, problem.guess)
    assert after == pytest.approx(x[1:], abs=1e-9)
    if not speed:
        away = (x[:, :7] - START[:7]) / (GOAL - START)[:7]
        assert away == pytest.approx(np.tile(away[:, :1], 7), abs=1e-9)  # straight
        assert np.abs(x[-1, 7:]).max() < 0.1
    assert rg.solve(problem).converged


def test_a_line_leaves_alone_what_has_no_weight(arm):
    weight = np.r_[1.0, np.zeros(13)]
    problem = rg.Problem(
        arm,
        start=START,
        steps=10,
        dt=0.02,
        costs=[rg.costs.State(GOAL, final=weight), rg.costs.Effort(1.0)],
        guess="line",
    )
    assert problem.guess_states[-1, :7] == pytest.approx(np.r_[GOAL[0], START[1:7]])


def test_a_line_of_states_of_ones_own_and_on_a_manifold():
    own = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)
    problem = rg.Problem(
        own,
        [0.0, 0.0],
        10,
        0.1,
        costs=[rg.costs.State([1.0, 0.0], final=1.0), rg.costs.Effort(1.0)],
        guess="line",
    )
    assert problem.guess_states[-1] == pytest.approx([1.0, 0.0]) and problem.guess_states[
        5, 0
    ] == pytest.approx(0.5)
    drone = rg.load("quadrotor")
    goal = np.r_[1.0, 0.0, 1.0, 0.0, 0.0, np.sin(0.4), np.cos(0.4), np.zeros(6)]
    costs = [rg.costs.State(goal, final=1.0), rg.costs.Effort(1.0)]
    problem = rg.Problem(
        drone, np.r_[np.zeros(6), 1.0, np.zeros(6)], 10, 0.1, costs=costs, guess="line"
    )
    assert problem.guess_states[-1] == pytest.approx(goal, abs=0.2)
    assert np.linalg.norm(problem.guess_states[:, 3:7], axis=1) == pytest.approx(np.ones(11))


@pytest.mark.parametrize("pose", [False, True])
def test_a_guess_that_reaches_the_target_within_the_limits(arm, pose):
    target = arm.forward_kinematics(GOAL[:7])["iiwa_link_7"]
    reach = rg.costs.Reach(
        "iiwa_link_7", target if pose else target[:3, 3], offset=(0.0, 0.02, 0.0635), final=100.0
    )
    problem = rg.Problem(
        arm, start=START, steps=30, dt=0.02, costs=[reach, rg.costs.Effort(1e-4)], guess="reach"
    )
    end = problem.guess_states[-1]
    (aim,) = problem.aims()
    assert max(aim.remaining(problem.system, end).by_name().values()) < 1e-5
    assert np.all(end[:7] >= arm.limits.lower) and np.all(end[:7] <= arm.limits.upper)


def test_an_arm_without_motors_on_its_base_reaches_with_the_others():
    pole = rg.load("cartpole")
    costs = [
        rg.costs.Reach("rod", (0.4, 0.0, 0.0), offset=(0.0, 0.0, -1.0), final=1.0),
        rg.costs.Effort(1.0),
    ]
    end = rg.Problem(pole, np.zeros(4), 5, 0.1, costs=costs, guess="reach").guess_states[-1]
    assert end[:2] == pytest.approx([0.4, 0.0], abs=1e-5)  # the pole is not driven, so it hangs


def test_a_guess_is_kept_when_the_start_changes(arm):
    other = START + 0.1
    for guess in ("line", np.full((30, 7), 0.5), (np.tile(START, (31, 1)), np.full((30, 7), 0.5))):
        problem = moving(arm, guess=guess)
        problem.update(start=other)
        fresh = moving(arm, guess=guess, start=other)
        for same in (problem, pickle.loads(pickle.dumps(problem)), problem.batch(start=[other])[0]):
            assert np.array_equal(same.guess, fresh.guess) and np.array_equal(
                same.guess_states, fresh.guess_states
            )
    problem.update(guess="hold")
    assert problem.guess_states is None and problem.guess[0] == pytest.approx(
        arm.gravity_torque(other[:7])
    )


def test_a_batch_takes_guesses_of_states(arm):
    problem = moving(arm)
    one, two = moving(arm, guess="line"), moving(arm, guess="line", start=START + 0.1)
    states = np.array([one.guess_states, two.guess_states])
    found = rg.solve(
        problem.batch(start=states[:, 0], guess=(states, np.array([one.guess, two.guess])))
    )
    for solution, alone in zip(found, (one, two), strict=True):
        assert solution.cost == rg.solve(alone).cost
    lines = problem.batch(start=states[:, 0], guess="line")
    assert np.array_equal(lines[1].guess_states, two.guess_states)
    with pytest.raises(InputError, match="first axes agree"):
        problem.batch(start=states[:, 0], guess=(states[:1], np.zeros((2, 30, 7))))


@pytest.mark.parametrize(
    ("guess", "text"),
    [
        ("lin", "'line'"),
        ("reach", "a cost Reach"),
        ((np.zeros((31, 14)),), "states, controls"),
        (np.zeros((3, 7)), "shape"),
    ],
)
def test_what_is_no_guess_is_refused(arm, guess, text):
    with pytest.raises(RigidgradError, match=text):
        moving(arm, guess=guess)


def test_a_wrong_guess_changes_nothing(arm):
    problem = moving(arm, guess="line")
    with pytest.raises(InputError):
        problem.update(guess=np.zeros((3, 7)))
    problem.update(start=START + 0.1)
    assert problem.guess_states is not None and problem.asked_guess == "line"


def test_a_line_needs_a_goal(arm):
    costs = [rg.costs.State(START, final=np.r_[np.zeros(7), np.ones(7)]), rg.costs.Effort(1.0)]
    with pytest.raises(InputError, match="needs a cost State"):
        rg.Problem(arm, start=START, steps=3, dt=0.01, costs=costs, guess="line")


def test_a_controller_of_an_arm_with_very_light_links_makes_its_first_plan():
    """From cold it rolls out a posture that is held by feedback; in open loop the links run away,
    and no plan is made.
    """
    mpc = rg.MPC(light(), period=0.05)
    u = mpc.step(mpc.problem.start, 0.0)
    assert np.isfinite(u).all() and mpc.counts["kept"] == mpc.counts["held"] == 0, mpc.trouble
    assert np.isfinite(mpc.log.solve_cost).all()
