"""Motions that must succeed, checked by simulating them with others' dynamics; limits that bind,
against exact optima; problems that cannot be solved, and what they say.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.remaining import Remaining
from rigidgrad.control.solution import ADVICE
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from motion_cases import MOTIONS, WAYPOINTS, Moves, deviation, end_error, excess

C = rg.costs
PI = np.pi


def solved(name):
    problem = MOTIONS[name]()
    solution = rg.solve(problem)
    assert solution.converged, solution
    return problem, solution


def assert_simulated(problem, solution):
    """Every step is the integrator's with the accelerations of Pinocchio or MuJoCo, up to
    rounding.
    """
    pytest.importorskip("pinocchio")
    pytest.importorskip("mujoco")
    scale = max(1.0, np.abs(solution.x).max())
    assert deviation(problem, solution) < 1e-12 * scale


# --- motions --------------------------------------------------------------------------------------


def test_the_pendulum_swings_up():
    problem, solution = solved("pendulum, swing-up")
    angle, rate = end_error(problem, solution)
    assert abs(angle) < 0.15 and abs(rate) < 0.05
    assert_simulated(problem, solution)
    # it must have been given the energy of the upright pendulum, 2 · 9.81 J, and a hanging one that
    # is pushed straight up by 1 N m never gets there
    robot = problem.system.robot
    energy = [sum(robot.energy(x[:1], x[1:])) for x in solution.x]
    assert energy[-1] - energy[0] > 0.98 * 2 * 9.81
    assert abs(solution.cost - 94.817718) < 1e-4


def test_the_cart_pole_swings_up_and_its_feedback_holds_in_fine_simulation():
    mujoco = pytest.importorskip("mujoco")
    problem, solution = solved("cart-pole, swing-up")
    place, angle, *rates = end_error(problem, solution)
    assert abs(angle) < 0.03 and abs(place) < 0.3 and max(map(abs, rates)) < 0.05
    assert_simulated(problem, solution)
    # MuJoCo at a hundredth of the step, with the solution's feedback: it ends near where 39 steps
    # of Euler's method said
    from motion_cases import _urdf

    model = mujoco.MjModel.from_xml_path(_urdf(problem.system))
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    model.opt.integrator, model.opt.timestep = mujoco.mjtIntegrator.mjINT_RK4, problem.dt / 100
    data = mujoco.MjData(model)
    for x, u, K in zip(solution.x, solution.u, solution.gains, strict=False):
        data.qfrc_applied[:] = [(u + K @ (np.r_[data.qpos, data.qvel] - x))[0], 0.0]
        for _ in range(100):
            mujoco.mj_step(model, data)
    assert abs(data.qpos[1] - PI) < 0.1


@pytest.mark.parametrize("coordinates", ["angles", "body"])
def test_the_quadrotor_flies_to_a_hover(coordinates):
    problem, solution = solved(f"quadrotor, flight ({coordinates})")
    error = np.abs(end_error(problem, solution))
    assert error[:3].max() < 0.25 and error[3:6].max() < 0.2 and error[6:].max() < 0.15
    # the two charge angles and rates a little differently
    assert abs(solution.cost / 3558.5 - 1) < 1e-3
    if coordinates == "body":
        assert_simulated(problem, solution)


def test_the_quadrotor_passes_its_waypoints_with_rotors_that_only_push():
    problem, solution = solved("quadrotor, waypoints")
    for knot, point in WAYPOINTS.items():
        assert np.linalg.norm(solution.x[knot, :3] - point) < 0.01
    assert solution.u.min() >= 0.0 and solution.u.max() == 1.6  # some rotor is at its limit
    assert abs(np.linalg.norm(solution.x[:, 3:7], axis=1) - 1).max() < 1e-12
    assert_simulated(problem, solution)


def test_hyq_takes_a_posture():
    problem, solution = solved("HyQ, posture")
    assert np.abs(end_error(problem, solution)).max() < 1e-3
    assert max(excess(problem.system.robot, solution).values()) == 0.0
    assert_simulated(problem, solution)


@pytest.mark.parametrize("weights", ["code", "calm"])
def test_the_arm_moves_between_random_configurations_within_its_limits(weights):
    moves = Moves(30, weights, seed=7)
    base = moves.problem()
    robot, solutions = base.system.robot, []
    for k, problem in enumerate(moves.each(base)):
        solution = rg.solve(problem)
        solutions.append(solution)
        assert solution.status in ADVICE
        over = excess(robot, solution)
        assert over["torque"] == 0.0 and max(over.values()) <= 1e-4
        assert abs(max(over["position"], over["velocity"]) - solution.stats["violation"]) < 1e-12
        if k < 3:
            assert_simulated(problem, solution)
    assert Counter(s.status for s in solutions)["converged"] >= 29
    assert (
        max(
            np.abs(s.x[-1, :7] - g[:7]).max()
            for s, g in zip(solutions, moves.drawn()[1], strict=True)
        )
        < 0.15
    )
    together = rg.solve(moves.problems()[:7])
    for alone, one in zip(solutions, together, strict=False):
        assert one.status == alone.status and abs(one.cost / alone.cost - 1) < 1e-6


# --- limits that bind, against exact optima -------------------------------------------------------

DOUBLE_INTEGRATOR = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1, name="double_integrator")


def move(limits, steps=40, **changes):
    """A metre in a second, at rest in the end."""
    arguments = {"start": [0.0, 0.0], "steps": steps, "dt": 1 / steps, "integrator": "euler"}
    arguments["costs"] = [C.State([1.0, 0.0], final=1e4), C.Effort(0.01)]
    return rg.Problem(DOUBLE_INTEGRATOR, limits=limits, **arguments | changes)


def exact_optimum(steps, most_speed=np.inf, most_push=np.inf):
    """The same as a quadratic program in the controls, by Hildreth's method on its dual: min ½ uᵀHu
    + gᵀu + c with Gu ≤ b.
    """
    h = 1 / steps
    A, B = np.array([[1.0, h], [0.0, 1.0]]), np.array([0.0, h])
    states = np.zeros((steps + 1, 2, steps))  # x_k = states[k] u
    for k in range(steps):
        states[k + 1] = A @ states[k]
        states[k + 1][:, k] += B
    last, goal = states[-1], np.array([1.0, 0.0])
    H, g = 0.01 * np.eye(steps) + 1e4 * last.T @ last, -1e4 * last.T @ goal
    rows = [s * r for s in (1, -1) for r in (*states[1:, 1], *np.eye(steps))]
    b = np.repeat([[most_speed] * steps, [most_push] * steps] * 2, 1, axis=0).ravel()
    G, b = np.array(rows)[np.isfinite(b)], b[np.isfinite(b)]
    inverse = np.linalg.inv(H)
    P, d, dual = G @ inverse @ G.T, b + G @ inverse @ g, np.zeros(len(b))
    for _ in range(20_000):
        before = dual.copy()
        for i in range(len(b)):
            dual[i] = max(0.0, dual[i] - (P[i] @ dual + d[i]) / P[i, i])
        if np.abs(dual - before).max() < 1e-12 * max(1.0, np.abs(dual).max()):
            break
    u = -inverse @ (g + G.T @ dual)
    return 0.5 * u @ H @ u + g @ u + 0.5 * 1e4, u


def test_a_velocity_limit_that_binds_gives_the_exact_optimum():
    cost, u = exact_optimum(40, most_speed=1.2)
    solution = rg.solve(move(rg.Limits(constraints=[rg.Inequality(lambda x, u: x[1], -1.2, 1.2)])))
    assert solution.converged and solution.stats["violation"] < 1e-4
    assert (solution.x[:, 1] > 1.2 - 1e-4).sum() > 10  # it binds for a while
    assert abs(solution.cost / cost - 1) < 1e-4  # a violation of 1e-4 is worth this much
    assert np.abs(solution.u[:, 0] - u).max() < 1e-2 * np.abs(u).max()


@pytest.mark.parametrize(
    "solver", [None, rg.PDDP(blocks=4), rg.Direct()], ids=["iLQR", "blocks", "direct"]
)
def test_a_push_limit_that_binds_gives_the_exact_optimum(solver):
    cost, u = exact_optimum(40, most_push=4.5)
    solution = rg.solve(move(rg.Limits(torque=4.5)), solver)
    assert solution.converged and (np.abs(solution.u) == 4.5).sum() > 10
    assert abs(solution.cost / cost - 1) < 1e-7
    np.testing.assert_allclose(solution.u[:, 0], u, rtol=0, atol=1e-4)


def test_torque_limits_that_do_not_bind_change_nothing():
    """The first steps would be far beyond the limits, the optimum is not: no iteration more is
    needed.
    """
    moves = Moves(1, "code", seed=3)
    base, found = moves.problem(), []
    for limits in (None, rg.Limits(torque=True)):
        problem = rg.Problem(
            base.system,
            start=base.start,
            steps=base.steps,
            dt=base.dt,
            costs=list(base.costs),
            limits=limits,
        )
        found.append(rg.solve(problem))
    assert (
        found[0].iterations == found[1].iterations and abs(found[0].cost / found[1].cost - 1) < 1e-9
    )
    assert np.abs(found[0].u).max() < base.system.robot.limits.effort.max()


@pytest.mark.parametrize("width", [0.0, 0.01, 0.3])
def test_rounded_penalties_have_exact_derivatives(width):
    problem = move(
        rg.Limits(
            constraints=[
                rg.Inequality(lambda x, u: x[1] * x[1], 0.0, 1.0),
                rg.Equality(lambda x, u: x[0] * u[0], 0.2),
            ]
        )
    )
    rng = np.random.default_rng(5)
    x, u = rng.normal(size=(41, 2)), rng.normal(size=(40, 1))
    columns = problem.programs.columns
    problem.p[:, columns["multiplier"]] = rng.normal(size=(41, 2))
    problem.soften(width)
    found, eps = problem.linearize(x, u), 1e-6
    for i in range(2):
        step = eps * np.eye(2)[i]
        plus, minus = (
            [
                problem.programs.evaluation(
                    x[:-1] + s * step, u, np.full(40, problem.dt), problem.p[:-1]
                )[1].sum(1)
            ]
            for s in (1, -1)
        )
        # central differences: eps² times third derivatives, which rounded corners of width w have
        # of order 1/w, plus rounding over eps
        np.testing.assert_allclose(
            found.lx[:-1, i],
            (plus[0] - minus[0]) / (2 * eps),
            rtol=1e-5,
            atol=1e-6 * np.abs(found.lx).max(),
        )


# --- problems that cannot be solved ---------------------------------------------------------------

START = np.r_[0.1, 0.4, 0.1, -1.2, 0.1, 0.6, 0.0, np.zeros(7)]


def arm(**changes):
    arguments = {
        "start": START,
        "steps": 20,
        "dt": 0.03,
        "costs": [C.State(START + 0.1, weight=0.1, final=100.0), C.Effort(1e-4)],
    }
    return rg.Problem(rg.load("iiwa14"), **arguments | changes)


def custom(rate, costs=None, **changes):
    arguments = {"start": [1.0], "steps": 30, "dt": 0.1, "integrator": "euler"}
    arguments["costs"] = costs or [C.State([0.0], 1.0, 1.0), C.Effort(1.0)]
    return rg.Problem(rg.CustomSystem(rate, 1, 1, name="custom"), **arguments | changes)


def at_the_end(value):
    return rg.Equality(lambda x, u: x[0], value, at="final")


ERRORS = {
    "NaN start": (lambda: arm(start=START * np.nan), "start holds NaN"),
    "zero horizon": (lambda: arm(steps=0), "at least 1"),
    "zero time step": (lambda: arm(dt=0.0), "positive"),
    "zero weights": (
        lambda: arm(costs=[C.State(START), C.Effort(0.0)]),
        "all weights are zero.*give the costs a weight",
    ),
    "crossed limits": (
        lambda: arm(limits=rg.Limits(velocity=(1.0, -1.0))),
        "nothing lies between: exchange or widen",
    ),
    "start outside": (
        lambda: arm(limits=rg.Limits(position=0.2)),
        "outside of its position limits; start inside, widen",
    ),
    "start off its manifold": (
        lambda: rg.Problem(
            rg.load("quadrotor"),
            start=np.r_[np.zeros(6), 2.0, np.zeros(6)],
            steps=5,
            dt=0.1,
            costs=[C.Effort(1.0)],
        ),
        "length is not 1; pass its q through robot.normalize",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_wrong_problem_is_an_error_that_says_what_to_change(name):
    make, fragment = ERRORS[name]
    with pytest.raises(InputError, match=fragment):
        make()


# what is wrong: the problem, the statuses that may be, and words of the advice
TROUBLES = {
    "target out of reach": (
        lambda: arm(
            costs=[
                C.Reach("iiwa_link_7", (2.0, 0.0, 1.0), final=1000.0),
                C.State(START, weight=0.1),
                C.Effort(1e-3),
            ]
        ),
        ("converged", "iterations"),
        (
            "Reach 'iiwa_link_7' ends 1.* from its target; if that is too far, check that it can be"
            " reached"
        ),
    ),
    "goal outside of the limits": (
        lambda: arm(
            costs=[
                C.State(np.r_[0.1, 0.4, 0.1, -2.6, np.zeros(10)], weight=1.0, final=100.0),
                C.Effort(1e-3),
            ],
            limits=rg.Limits(position=2.0),
        ),
        ("converged",),
        "State ends 0.* from its target",
    ),
    "contradictory equalities": (
        lambda: move(rg.Limits(constraints=[at_the_end(1.0), at_the_end(2.0)])),
        ("infeasible",),
        "widen them, give more time.*violated by up to 0.5",
    ),
    "too weak for its limits": (
        lambda: move(rg.Limits(torque=0.1, constraints=[at_the_end(1.0)])),
        ("infeasible",),
        "widen them, give more time.*violated by up to 0.9",
    ),
    "dynamics that explode": (
        lambda: custom(lambda x, u: (x[0] * x[0] * x[0] + u[0],), start=[50.0]),
        ("diverged",),
        "give guess=, a smaller dt, or a better integrator",
    ),
    "dynamics that are undefined": (
        lambda: custom(lambda x, u: (rg.math.sqrt(x[0] - 2.0) + u[0],)),
        ("diverged",),
        "not numbers",
    ),
    "a control that does nothing": (
        lambda: custom(lambda x, u: (0.0 * x[0],), costs=[C.State([0.0], 1.0, 1.0)]),
        ("singular",),
        "give rg.costs.Effort a positive weight",
    ),
    "a derivative that is infinite": (
        lambda: custom(
            lambda x, u: (u[0],),
            costs=[C.Custom(lambda x, u: rg.math.sqrt(x[0] - 1.0), 1.0), C.Effort(1.0)],
        ),
        ("undefined",),
        "a root or a norm of 0",
    ),
}


@pytest.mark.parametrize("way", ["alone", "together"])
@pytest.mark.parametrize("name", TROUBLES)
def test_a_problem_that_cannot_be_solved_ends_with_advice(name, way):
    make, statuses, words = TROUBLES[name]
    problem = make()
    solver = rg.PDDP(iterations=100)
    solution = (
        rg.solve(problem, solver) if way == "alone" else rg.solve([problem, problem], solver)[1]
    )
    assert solution.status in statuses, solution
    assert re.search(words, solution.message), solution.message


def test_very_unstable_dynamics_are_solved_by_all_ways():
    """The guess runs away to 1e59: the cost of the first step is not the difference of two such
    numbers.
    """
    problem = custom(lambda x, u: (30.0 * x[0] + u[0],), steps=100)
    found = [rg.solve(problem), rg.solve([problem, problem])[1], rg.solve(problem, rg.Direct())]
    problem.update(guess=(np.zeros((101, 1)), np.zeros((100, 1))))
    found.append(rg.solve(problem))
    for solution in found:
        assert solution.converged and solution.cost == pytest.approx(750.5333, rel=1e-6)


def test_no_effort_at_all_is_fine_where_every_control_moves_something_that_costs():
    solution = rg.solve(arm(costs=[C.State(START + 0.1, weight=0.1, final=100.0)]))
    assert solution.converged and np.isfinite(solution.u).all()


def test_an_optimum_of_zero_is_found_and_recognised():
    for costs in (
        [C.State([1.0, 0.0], final=1.0)],
        [C.Effort(1.0)],
        [C.State([0.0, 0.0], 1.0, 1.0), C.Effort(1.0)],
    ):
        for problem in (move(None, costs=costs), [move(None, costs=costs)] * 2):
            solution = rg.solve(problem)
            solution = solution[1] if isinstance(solution, list) else solution
            assert solution.converged and solution.cost < 1e-20


def test_remaining_is_measured_where_there_is_a_weight():
    problem = arm(
        costs=[
            C.State(START + 0.1, weight=0.1, final=np.r_[np.full(7, 100.0), np.zeros(7)]),
            C.Reach("iiwa_link_7", (0.5, 0.2, 0.6), final=10.0),
            C.Effort(1e-4),
        ]
    )
    solution = rg.solve(problem)
    robot = problem.system.robot
    reached = robot.forward_kinematics(solution.x[-1, :7])["iiwa_link_7"][:3, 3]
    left = {name: each.by_name() for name, each in solution.remaining.items()}
    assert left == {
        "State": {
            "angle": pytest.approx(np.linalg.norm(solution.x[-1, :7] - START[:7] - 0.1), rel=1e-9)
        },
        "Reach 'iiwa_link_7'": {
            "position": pytest.approx(np.linalg.norm(reached - [0.5, 0.2, 0.6]), rel=1e-9)
        },
    }


def test_a_missed_pose_is_told_in_metres_and_radians():
    """148 mm are less than a tenth of a way that is mostly rotation; as one norm they went without
    a word.
    """
    robot = rg.load("iiwa14")
    T = robot.forward_kinematics(START[:7])["iiwa_link_7"]
    x = np.tile(START, (3, 1))
    x[0, 1] += 2.0  # it came from far
    problem = arm(costs=[C.Reach("iiwa_link_7", T, final=1.0), C.Effort(1e-3)])
    solution = dataclasses.replace(
        rg.solve(problem, rg.PDDP(iterations=0)), status="converged", x=x
    )

    def ended(target):
        problem.costs[0].target = target
        problem.update()
        return dataclasses.replace(solution, aims=problem.aims())

    off = T.copy()
    off[:3, 3] += (0.0, 0.148, 0.0)
    missed = ended(off)
    (left,) = missed.remaining.values()
    assert (
        left.position == pytest.approx(0.148)
        and left.angle == pytest.approx(0.0, abs=1e-9)
        and left.speed is None
    )
    assert "Reach 'iiwa_link_7' ends 0.148 m from its target" in missed.message
    turned = T.copy()
    turned[:3, :3] = T[:3, :3] @ [
        [np.cos(0.01), -np.sin(0.01), 0],
        [np.sin(0.01), np.cos(0.01), 0],
        [0, 0, 1],
    ]
    # below 1% of the way, yet above a milliradian
    assert "ends 0.01 rad from its target" in ended(turned).message
    assert "Note" not in ended(T).message


@pytest.mark.parametrize("kind", ["floating", "planar"])
@pytest.mark.parametrize("angle", [0.0, 1.0, 3.0])
def test_what_remains_of_a_base_is_a_straight_distance_and_the_angle_of_one_turn(kind, angle):
    builder = (
        rg.Builder("base")
        .link("ground")
        .link("body", 1.0, (0, 0, 0), (1, 1, 1))
        .joint("base", kind, "ground", "body")
    )
    system = RobotSystem(builder.build(engine="numpy"), "all")
    turned = (
        (0, 0, np.sin(angle / 2), np.cos(angle / 2))
        if kind == "floating"
        else (np.cos(angle), np.sin(angle))
    )
    goal = np.r_[0.6, 0.8, (0.0,) * (kind == "floating"), turned, np.zeros(system.nv)]
    start = np.zeros(system.nx)
    start[system.nq - 1 if kind == "floating" else 2] = 1.0
    aims = rg.Problem(system, start, 2, 0.1, costs=[C.State(goal, final=1.0), C.Effort(1.0)]).aims()
    for x, position, turn in ((start, 1.0, angle), (goal, 0.0, 0.0)):
        left = aims[0].remaining(system, x)
        assert left.position == pytest.approx(position, abs=1e-12) and left.angle == pytest.approx(
            turn, abs=1e-12
        )


def test_a_miss_that_is_next_to_nothing_is_not_measured_by_a_way_of_nothing():
    left = Remaining(position=9e-5, angle=9e-5)
    assert not left.missed(left).by_name()
    assert Remaining(position=2e-4).missed(Remaining(position=1e-2)).position == 2e-4
