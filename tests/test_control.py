"""Trajectory optimisation: exact Jacobians of every integrator, known optima, feasible solutions,
clear errors.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.algorithms import tangent_maps
from rigidgrad.control.integrators import METHODS, linearize, step
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError, RigidgradError, UnknownNameError
from rigidgrad.program.recorder import record
from rigidgrad.scalars import sincos

PI = np.pi
P1_START = np.r_[PI * np.array([-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5]), np.zeros(7)]
P1_GOAL = np.r_[PI * np.array([0, 0, 0, -0.25, 0, 0.25, 0.5]), np.zeros(7)]


def p1(q_weight=0.1, r_weight=1e-4, **options):
    """The arm across its workspace (Plancher 2022, section 4.3.2), with the weights of the
    published code.
    """
    weight = np.r_[np.full(7, q_weight), np.full(7, 0.001)]
    costs = [rg.costs.State(P1_GOAL, weight=weight, final=1000.0), rg.costs.Effort(r_weight)]
    return rg.Problem(
        rg.load("iiwa14"), start=P1_START, steps=63, dt=0.5 / 63, costs=costs, **options
    )


def blocks(parts):
    n = sum(len(b) for b in parts)
    result, start = np.zeros((n, n)), 0
    for b in parts:
        result[start : start + len(b), start : start + len(b)] = np.array(b, float)
        start += len(b)
    return result


@pytest.mark.parametrize("kind", ["spherical", "planar", "floating"])
@pytest.mark.parametrize("angle", [1e-6, 0.1, 0.49, 0.51, 1.0, 2.5])
def test_tangent_maps_equal_pinocchios(kind, angle):
    pin = pytest.importorskip("pinocchio")
    joint = {
        "spherical": pin.JointModelSpherical,
        "planar": pin.JointModelPlanar,
        "floating": pin.JointModelFreeFlyer,
    }[kind]()
    robot = (
        rg.Builder("x")
        .link("a")
        .link("b", 1, (0, 0, 0), (1, 1, 1))
        .joint("j", kind, "a", "b")
        .build(engine="numpy")
    )
    model = pin.Model()
    model.addJoint(0, joint, pin.SE3.Identity(), "j")
    dv = np.random.default_rng(1).normal(size=robot.nv)
    dv *= angle / np.linalg.norm(dv[2:] if kind == "planar" else dv[-3:])
    by_q, by_dv = pin.dIntegrate(model, robot.random(seed=1).q, dv)
    numbers = tuple(dv)
    scale = max(1.0, abs(by_dv).max())
    assert abs(blocks(tangent_maps.transport(robot.model, numbers)) - by_q).max() < 1e-13 * scale
    assert (
        abs(blocks(tangent_maps.right_jacobian(robot.model, numbers)) - by_dv).max() < 1e-12 * scale
    )
    assert (
        abs(
            blocks(tangent_maps.right_jacobian_inverse(robot.model, numbers)) @ by_dv
            - np.eye(robot.nv)
        ).max()
        < 1e-11 * scale
    )


def systems():
    yield "arm", RobotSystem(rg.load("double_pendulum"))
    yield "cart-pole", RobotSystem(rg.load("cartpole"), actuation=[[1.0], [0.0]])
    yield "quadrotor", RobotSystem(rg.load("quadrotor"), "all")
    yield "custom", CustomSystem(lambda x, u: (x[1], u[0] - 9.81 * sincos(x[0])[0]), 2, 1)
    yield (
        "discrete",
        CustomSystem(lambda x, u: (x[0] + 0.1 * x[1], x[1] + u[0] * x[0]), 2, 1, discrete=True),
    )


@pytest.mark.parametrize(
    ("label", "system"), list(systems()), ids=lambda x: x if isinstance(x, str) else ""
)
@pytest.mark.parametrize("method", METHODS)
def test_jacobians_of_a_step_are_exact(label, system, method):
    rng = np.random.default_rng(2)
    if isinstance(system, RobotSystem):
        x = np.r_[system.robot.random(seed=3).q, rng.normal(size=system.nv)]
    else:
        x = rng.normal(size=system.nx)
    u, h = rng.normal(size=system.nu), 0.05
    shapes = {"x": (system.nx,), "u": (system.nu,)}
    program = record(
        shapes,
        {"A": (system.ndx, system.ndx), "B": (system.ndx, system.nu)},
        lambda p: linearize(system, method, p["x"], p["u"], h)[1:],
    )
    A, B = (np.array(m, float) for m in program.interpret({"x": tuple(x), "u": tuple(u)}))
    y = step(system, method, tuple(x), tuple(u), h)
    eps = 1e-6
    for matrix, n, moved in (
        (
            A,
            system.ndx,
            lambda e: step(system, method, system.plus(tuple(x), tuple(e)), tuple(u), h),
        ),
        (B, system.nu, lambda e: step(system, method, tuple(x), tuple(u + e), h)),
    ):
        for k in range(n):
            e = eps * np.eye(n)[k]
            # central differences: their error is eps² times third derivatives, plus rounding over
            # eps
            numeric = (
                np.array(system.minus(moved(e), y), float)
                - np.array(system.minus(moved(-e), y), float)
            ) / (2 * eps)
            np.testing.assert_allclose(
                matrix[:, k], numeric, rtol=0, atol=2e-8 * max(1.0, abs(matrix).max())
            )


def test_integrators_have_their_order():
    system = RobotSystem(rg.load("double_pendulum"))
    x, u = (0.3, -0.7, 0.5, 1.1), (0.2, -0.1)

    def after(method, steps):
        state = x
        for _ in range(steps):
            state = step(system, method, state, u, 0.2 / steps)
        return np.array(state, float)

    exact = after("rk4", 2000)
    for method, order in (
        ("euler", 1),
        ("semi_implicit_euler", 1),
        ("midpoint", 2),
        ("rk3", 3),
        ("rk4", 4),
    ):
        coarse, fine = (abs(after(method, n) - exact).max() for n in (10, 20))
        assert order - 0.3 < np.log2(coarse / fine) < order + 0.5, method


@pytest.mark.parametrize(
    ("options", "optimum"), [({}, 23.234346), ({"integrator": "euler"}, 23.67524)]
)
@pytest.mark.parametrize("choose", ["largest", "best"])
def test_the_arm_reaches_the_known_optimum(options, optimum, choose):
    solution = rg.solve(p1(**options), rg.PDDP(choose=choose))
    assert solution.converged
    assert abs(solution.cost - optimum) < 1e-6 * optimum
    falls = np.diff(solution.stats["history"])
    assert (falls <= 0).all()


def test_the_text_weights_reach_their_optimum():
    assert abs(rg.solve(p1(0.01, 1e-3), rg.PDDP(iterations=400)).cost - 69.18687) < 1e-5 * 69.18687


def test_a_solution_is_feasible_and_its_cost_true():
    """By an independent simulation: Pinocchio's forward dynamics, and sums written out here."""
    pin = pytest.importorskip("pinocchio")
    from importlib import resources

    solution = rg.solve(p1())
    model = pin.buildModelFromUrdf(
        str(resources.files("rigidgrad.model") / "robots" / "iiwa14.urdf")
    )
    data = model.createData()
    q, v, h, cost = P1_START[:7].copy(), P1_START[7:].copy(), 0.5 / 63, 0.0
    weight = np.r_[np.full(7, 0.1), np.full(7, 0.001)]
    for k, u in enumerate(solution.u):
        np.testing.assert_allclose(np.r_[q, v], solution.x[k], rtol=0, atol=1e-7)
        e = np.r_[q, v] - P1_GOAL
        cost += e @ (weight * e) / 2 + 1e-4 * (u @ u) / 2
        v = v + h * pin.aba(model, data, q, v, u)
        q = q + h * v
    e = np.r_[q, v] - P1_GOAL
    assert abs(cost + 1000 * (e @ e) / 2 - solution.cost) < 1e-9 * solution.cost


def test_reaching_a_point():
    robot = rg.load("iiwa14")
    target = np.array([0.5, 0.2, 0.6])
    costs = [
        rg.costs.Reach("iiwa_link_7", target, offset=(0, 0, 0.0635), weight=1.0, final=1000.0),
        rg.costs.State(np.zeros(14), weight=1e-3, final=np.r_[np.zeros(7), np.ones(7)]),
        rg.costs.Effort(1e-4),
    ]
    start = np.r_[0.1, 0.4, 0.1, -1.2, 0.1, 0.6, 0.0, np.zeros(7)]
    solution = rg.solve(rg.Problem(robot, start=start, steps=50, dt=0.02, costs=costs))
    assert solution.converged
    T = robot.forward_kinematics(solution.x[-1, :7])["iiwa_link_7"]
    assert np.linalg.norm((T @ [0, 0, 0.0635, 1])[:3] - target) < 0.01


def test_a_quadrotor_flies_to_a_pose_on_its_manifold():
    robot = rg.load("quadrotor")
    arm, drag = 0.175, 0.0245
    actuation = np.zeros((6, 4))
    actuation[2] = 1.0
    actuation[3], actuation[4], actuation[5] = (
        (0, arm, 0, -arm),
        (-arm, 0, arm, 0),
        (drag, -drag, drag, -drag),
    )
    goal = np.r_[1.0, -0.5, 1.5, 0, 0, np.sin(0.4), np.cos(0.4), np.zeros(6)]
    start = np.r_[np.zeros(6), 1.0, np.zeros(6)]
    costs = [
        rg.costs.State(goal, weight=0.01, final=100.0),
        rg.costs.Effort(0.01, reference=0.5 * 9.81 / 4),
    ]
    from rigidgrad.control.system import RobotSystem as System

    solution = rg.solve(
        rg.Problem(System(robot, actuation), start=start, steps=60, dt=0.03, costs=costs)
    )
    assert solution.converged
    assert np.linalg.norm(robot.difference(goal[:7], solution.x[-1, :7])) < 0.05
    assert abs(np.linalg.norm(solution.x[:, 3:7], axis=1) - 1).max() < 1e-9


def test_a_pendulum_swings_up():
    pendulum = CustomSystem(
        lambda x, u: (x[1], u[0] - 9.81 * sincos(x[0])[0]), 2, 1, name="pendulum"
    )
    costs = [rg.costs.State([PI, 0.0], weight=0.01, final=1000.0), rg.costs.Effort(0.01)]
    solution = rg.solve(
        rg.Problem(pendulum, start=[0.0, 0.0], steps=100, dt=0.03, integrator="rk4", costs=costs)
    )
    assert solution.converged
    np.testing.assert_allclose(solution.x[-1], [PI, 0.0], rtol=0, atol=0.02)


def test_new_targets_weights_and_starts_compile_nothing(monkeypatch):
    problem = p1()
    rg.solve(problem, rg.PDDP(iterations=1))
    from rigidgrad.runtime import code, native

    def refuse(*_, **__):
        raise AssertionError("compiled again")

    monkeypatch.setattr(native, "compile_ir", refuse)
    monkeypatch.setattr(code, "Code", refuse)
    problem.costs[0].goal = P1_START
    problem.costs[1].weight = 0.01
    problem.update(start=P1_GOAL, dt=0.01)
    history = rg.solve(problem).stats["history"]
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize(
    ("change", "error", "fragment"),
    [
        ({"steps": 0}, InputError, "at least 1"),
        ({"steps": 1.5}, InputError, "whole number"),
        ({"dt": 0.0}, InputError, "positive"),
        ({"dt": np.nan}, InputError, "positive"),
        ({"dt": np.array([0.01, 0.02])}, InputError, "one for all steps"),
        ({"dt": [0.01]}, InputError, "one for all steps"),
        ({"dt": None}, InputError, "positive"),
        ({"dt": "0.01"}, InputError, "positive"),
        ({"dt": True}, InputError, "positive"),
        ({"dt": 1j}, InputError, "positive"),
        ({"start": np.zeros(3)}, InputError, "start has shape"),
        ({"start": [np.nan] * 14}, InputError, "NaN"),
        ({"integrator": "rk5"}, UnknownNameError, "rk4"),
        ({"costs": []}, InputError, "needs costs"),
        ({"costs": [rg.costs.State(np.zeros(3), 1.0)]}, InputError, "goal of State"),
        ({"costs": [rg.costs.Effort(-1.0)]}, InputError, "negative"),
        ({"costs": [rg.costs.Effort([1.0, 2.0])]}, InputError, "broadcast"),
        ({"guess": np.zeros((3, 7))}, InputError, "guess has shape"),
        ({"limits": True}, InputError, "limits are robot.limits or rg.Limits"),
        ({"system": "arm"}, InputError, "Robot or a system"),
    ],
)
def test_wrong_problems_say_what_is_wrong(change, error, fragment):
    arguments = {
        "system": rg.load("iiwa14", engine="numpy"),
        "start": np.zeros(14),
        "steps": 5,
        "dt": 0.01,
        "costs": [rg.costs.State(np.zeros(14), 1.0)],
    }
    with pytest.raises(error, match=fragment):
        rg.Problem(**arguments | change)


def test_dynamics_that_explode_end_with_a_status():
    wild = CustomSystem(lambda x, u: (x[0] * x[0] * x[0] + u[0],), 1, 1, name="wild")
    costs = [rg.costs.State([0.0], 1.0, 1.0), rg.costs.Effort(1.0)]
    solution = rg.solve(
        rg.Problem(wild, start=[50.0], steps=50, dt=0.1, integrator="euler", costs=costs)
    )
    assert solution.status == "diverged" and "smaller dt" in solution.message


def test_wrong_solvers_say_what_is_wrong():
    with pytest.raises(InputError, match="Problem"):
        rg.solve("p1")


def small(**options):
    options = {"costs": [rg.costs.Effort(1.0)]} | options
    return rg.Problem(
        options.pop("system", rg.load("double_pendulum")),
        options.pop("start", np.zeros(4)),
        3,
        0.1,
        **options,
    )


def first_angle(x, u):
    return x[0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: small(costs=[rg.costs.Effort(1.0), rg.costs.Custom(lambda x, u: x[0], 1.0)]),
            r"cost 1 is the function .*<lambda>.*top level of a module",
        ),
        (
            lambda: small(
                limits=rg.Limits(constraints=[rg.Inequality(lambda x, u: x[0], upper=1.0)])
            ),
            "constraint 0 is the function",
        ),
        (
            lambda: small(system=rg.CustomSystem(lambda x, u: (u[0],), 1, 1), start=[0.0]),
            "the dynamics is the function",
        ),
    ],
)
def test_pickling_names_the_function_that_cannot_go_along(make, text):
    problem = make()
    with pytest.raises(InputError, match=text):
        pickle.dumps(problem)
    assert copy.copy(problem).steps == 3  # a copy needs no names
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(cloudpickle.dumps(problem)).steps == 3  # and this takes functions along


def test_what_can_be_pickled_comes_back():
    problem = small(
        costs=[rg.costs.Effort(1.0), rg.costs.Custom(first_angle, 1.0)], start=np.full(4, 0.1)
    )
    assert rg.solve(pickle.loads(pickle.dumps(problem))).cost == rg.solve(problem).cost
    with pytest.raises(InputError, match=r"a controller is not pickled.*rg\.MPC"):
        pickle.dumps(rg.MPC(problem, period=0.1))


NO_NUMBERS = [
    None,
    object(),
    np.array([None] * 4),
    [[1, 2], [3]],
    [10**400] * 4,
    10**400,
    "x",
    {"a": 1},
    np.array([1j] * 4),
    set(),
]


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=lambda b: repr(b)[:20])
def test_what_is_no_number_is_refused_in_our_own_words(bad):
    C, problem = rg.costs, small()
    for make in (
        lambda: small(start=bad),
        lambda: small(costs=[C.State(bad, 1.0)]),
        lambda: small(costs=[C.State(np.zeros(4), weight=bad)]),
        lambda: small(costs=[C.Reach("lower_rod", bad, weight=1.0)]),
        lambda: small(costs=[C.Reach("lower_rod", np.eye(4), weight=bad)]),
        lambda: small(costs=bad),
        lambda: small(integrator=bad),
        lambda: small(limits=rg.Limits(torque=(bad, 1.0), position=[bad])),
        lambda: small(guess=(bad, bad)),
        lambda: small(actuation={"a": bad}),
        lambda: small(parameters={"gravity": bad}),
        lambda: problem.batch(start=bad, targets={0: bad}),
        lambda: problem.batch(weights=[bad]),
        lambda: rg.CustomSystem(lambda x, u: x, bad, 1),
        lambda: small(system=rg.CustomSystem(bad, 1, 1)),
    ):
        with pytest.raises(RigidgradError):
            make()


def test_dynamics_that_fail_are_named():
    wrong = rg.CustomSystem(lambda x, u: (x[7],), 1, 1, name="wrong")
    problem = rg.Problem(wrong, [0.0], 3, 0.1, costs=[rg.costs.Effort(1.0)])
    with pytest.raises(InputError, match=r"dynamics of 'wrong' failed .IndexError.*rg.math"):
        rg.solve(problem)
