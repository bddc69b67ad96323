"""Gravity, payloads, wrenches and inertias as inputs of a problem: per knot, per problem of a
batch, and without recording anything again.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import RigidgradError
from rigidgrad.plants.mismatch import inertial_parameters

LINK, OFFSET = "lower_rod", (0.1, 0.2, -0.3)
STEPS = 6


@pytest.fixture(scope="module")
def arm():
    return rg.load("double_pendulum")


def bodies(robot, **payload) -> np.ndarray:
    """(bodies, 10), the robot's own or with a payload, by the plants' code."""
    load = rg.plants.Payload(**payload) if payload else None
    return np.array(
        [
            (m, *h, *I)
            for m, h, I in inertial_parameters(robot.model, np.ones(len(robot.model.joints)), load)
        ]
    )


def problem(robot, parameters, **options):
    start = np.r_[robot.neutral(), np.zeros(robot.nv)]
    options = {
        "costs": [rg.costs.State(start, weight=0.1, final=10.0), rg.costs.Effort(1e-2)],
        "start": start,
    } | options
    return rg.Problem(robot, steps=STEPS, dt=0.02, parameters=parameters, **options)


def all_of(robot, rng):
    knots = STEPS + 1
    return {
        "gravity": rng.normal(size=(knots, 3)),
        "payload": {
            LINK: {"mass": rng.uniform(0.5, 2.0, knots), "offset": OFFSET},
            "upper_rod": 0.3,
        },
        "external": {LINK: rng.normal(size=(knots, 6))},
        "inertia": bodies(robot) * rng.uniform(0.9, 1.1, (len(robot.joints), 1)),
    }


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
@pytest.mark.parametrize(
    "kinds", [("gravity", "payload", "external"), ("gravity", "payload", "external", "inertia")]
)
def test_every_knot_moves_by_its_own_numbers(arm, integrator, kinds):
    rng = np.random.default_rng(0)
    given = {kind: value for kind, value in all_of(arm, rng).items() if kind in kinds}
    made = problem(arm, given, integrator=integrator)
    x, u = rng.normal(size=(STEPS + 1, 4)), rng.normal(size=(STEPS, 2))
    after, _ = made.evaluate(x, u)
    dynamics = arm.compile("aba", parameters=("inertia", "gravity"), external=(LINK,))
    for k in range(STEPS):
        loads = bodies(
            arm, frame=LINK, mass=given["payload"][LINK]["mass"][k], offset=OFFSET
        ) + bodies(arm, frame="upper_rod", mass=0.3)
        inertia = given.get("inertia", bodies(arm)) + loads - 2 * bodies(arm)

        def rate(y, k=k, inertia=inertia):
            wrench = {
                f"external:{LINK}": given["external"][LINK][k],
                "inertia": inertia,
                "gravity": given["gravity"][k],
            }
            inputs = [wrench[name] for name in list(dynamics.inputs)[3:]]
            return np.r_[y[2:], dynamics(y[:2], y[2:], u[k], *inputs)]

        if integrator == "rk4":
            a = rate(x[k])
            b = rate(x[k] + 0.01 * a)
            c = rate(x[k] + 0.01 * b)
            d = rate(x[k] + 0.02 * c)
            known = x[k] + 0.02 / 6 * (a + 2 * b + 2 * c + d)
        else:
            v = x[k, 2:] + 0.02 * rate(x[k])[2:]
            known = np.r_[x[k, :2] + 0.02 * v, v]
        assert after[k] == pytest.approx(known, abs=1e-10)
    e, h = made.linearize(x, u), 1e-6
    for j in range(4):
        moved = [made.evaluate(x + s * h * np.eye(4)[j], u)[0] for s in (1, -1)]
        assert e.A[:, :, j] == pytest.approx((moved[0] - moved[1]) / (2 * h), abs=1e-6)


def test_a_free_body_and_quaternions():
    robot = rg.load("quadrotor")
    made = problem(
        robot,
        {
            "gravity": (0.1, 0.2, -3.0),
            "payload": {"body": {"mass": 0.2, "offset": (0.05, 0, 0)}},
            "external": {"rotor_2": np.ones(6)},
        },
    )
    rng = np.random.default_rng(1)
    x, u = (
        np.concatenate(
            [robot.random(STEPS + 1, seed=1).q, rng.normal(size=(STEPS + 1, 6))], axis=1
        ),
        rng.uniform(0, 1, (STEPS, 4)),
    )
    x[:, 3:7] /= np.linalg.norm(x[:, 3:7], axis=1, keepdims=True)
    after, _ = made.evaluate(x, u)
    dynamics = robot.compile("aba", parameters=("inertia", "gravity"), external=("rotor_2",))
    given = {
        "inertia": bodies(robot, frame="body", mass=0.2, offset=(0.05, 0, 0)),
        "gravity": np.array([0.1, 0.2, -3.0]),
    }
    inputs = [given.get(name, np.ones(6)) for name in list(dynamics.inputs)[3:]]
    a = np.array(
        [
            dynamics(y[:7], y[7:], w @ np.array(made.system.actuation).T, *inputs)
            for y, w in zip(x[:-1], u, strict=True)
        ]
    )
    assert after[:, 7:] == pytest.approx(x[:-1, 7:] + 0.02 * a, abs=1e-9)
    e, h = made.linearize(x, u), 1e-6
    for j in range(12):
        moved = [
            made.evaluate(made.plus(x, np.tile(s * h * np.eye(12)[j], (STEPS + 1, 1))), u)[0]
            for s in (1, -1)
        ]
        assert e.A[:, :, j] == pytest.approx(
            (made.minus(moved[0], after) - made.minus(moved[1], after)) / (2 * h), abs=1e-5
        )


def test_numbers_change_without_recording(arm):
    made = problem(
        arm, {"payload": {LINK: {"mass": 1.0, "offset": OFFSET}}, "gravity": (0, 0, -9.81)}
    )
    programs, light = made.programs, rg.solve(made)
    made.update(parameters={"payload": {LINK: {"mass": 3.0, "offset": OFFSET}}})
    heavy = rg.solve(made)
    assert made.programs is programs and heavy.cost != pytest.approx(light.cost, rel=1e-3)
    fresh = problem(
        arm, {"payload": {LINK: {"mass": 3.0, "offset": OFFSET}}, "gravity": (0, 0, -9.81)}
    )
    assert fresh.programs is programs and rg.solve(fresh).cost == pytest.approx(
        heavy.cost, rel=1e-9
    )
    again = pickle.loads(pickle.dumps(made))
    assert np.array_equal(again.p, made.p) and "payload on lower_rod" in str(again)
    none = problem(arm, {"payload": {LINK: 0.0}})
    assert rg.solve(none).cost == pytest.approx(rg.solve(problem(arm, None)).cost, rel=1e-9)


def test_a_mass_alone_leaves_the_offset(arm):
    made = problem(arm, {"payload": {LINK: {"mass": 3.0, "offset": OFFSET}}})
    expected = problem(arm, {"payload": {LINK: {"mass": 2.0, "offset": OFFSET}}}).p
    (one,) = made.batch(parameters={"payload": {LINK: {"mass": np.array([2.0])}}})
    assert np.array_equal(one.p, expected)
    for change in (2.0, {"mass": 2.0}):
        made.update(parameters={"payload": {LINK: 9.0}})
        made.update(parameters={"payload": {LINK: change}})
        assert np.array_equal(made.p, expected)


def test_a_batch_has_numbers_of_its_own(arm):
    made = problem(arm, {"payload": {LINK: 1.0}, "gravity": (0, 0, -9.81)})
    masses = np.array([0.5, 1.0, 2.0, 4.0])
    gravity = np.tile([0.0, 0.0, -9.81], (4, STEPS + 1, 1))
    gravity[3] *= 0.2
    many = made.batch(parameters={"payload": {LINK: {"mass": masses}}, "gravity": gravity})
    assert all(p.programs is made.programs for p in many)
    found = rg.solve(many)
    for one, mass, g in zip(found, masses, gravity, strict=True):
        alone = rg.solve(problem(arm, {"payload": {LINK: mass}, "gravity": g}))
        assert one.converged and one.cost == pytest.approx(alone.cost, rel=1e-7)
    assert made.parameters["payload"] == {LINK: 1.0}  # the original is as it was


def test_gravity_compensation_and_second_derivatives_know_the_payload(arm):
    start = np.r_[0.4, 0.3, 0.0, 0.0]
    costs = [
        rg.costs.State(start, weight=1.0, final=1.0),
        rg.costs.Effort(1.0, reference="gravity"),
    ]
    made = problem(
        arm, {"payload": {LINK: {"mass": 2.0, "offset": OFFSET}}}, start=start, costs=costs
    )
    solution = rg.solve(made)
    assert solution.cost < 1e-15 and solution.iterations <= 1  # held by the first guess, at no cost
    away = problem(
        arm,
        {"payload": {LINK: 2.0}, "external": {LINK: (1.0, 0, 0, 0, 0, 0)}},
        start=[0.4, 0.3, 1.0, 0.0],
    )
    first, second = (
        rg.solve(away, rg.PDDP(second_order=order, tolerance=1e-12)) for order in (False, True)
    )
    assert second.converged and second.cost == pytest.approx(first.cost, rel=1e-8)


def test_the_controller_predicts_with_the_payload(arm):
    made = problem(arm, {"payload": {LINK: 2.0}})
    mpc = rg.MPC(made, rg.PDDP(iterations=2), period=0.02, latency=0.01)
    assert (
        np.isfinite(mpc.step(made.start, 0.0)).all()
        and np.isfinite(mpc.step(made.start, 0.02)).all()
    )


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"gravty": (0, 0, 0)}, "'gravity'"),
        ({"gravity": (0, 0)}, "gravity has shape"),
        ({"payload": {"lower_rd": 1.0}}, "lower_rod"),
        ({"payload": {"mount": 1.0}}, "does not move"),
        ({"payload": {LINK: -1.0}}, "at least 0"),
        ({"payload": {LINK: {"weight": 1.0}}}, "'mass' and 'offset'"),
        ({"payload": 1.0}, "frame: mass"),
        ({"external": {LINK: np.ones(3)}}, "wrench on 'lower_rod'"),
        ({"inertia": np.ones((3, 10))}, "inertia has shape"),
        ([1.0], "a dict of gravity"),
    ],
)
def test_wrong_parameters_are_refused(arm, parameters, text):
    with pytest.raises(RigidgradError, match=text):
        problem(arm, parameters)


def test_what_was_not_recorded_cannot_change(arm):
    made = problem(arm, {"payload": {LINK: 1.0}})
    before = made.p.copy()
    for change, text in (
        ({"gravity": (0, 0, 0)}, "no parameter of this problem"),
        ({"payload": {"upper_rod": 1.0}}, "no payload on 'upper_rod'"),
    ):
        with pytest.raises(RigidgradError, match=text):
            made.update(parameters=change)
    with pytest.raises(RigidgradError, match="at least 0"):
        made.update(parameters={"payload": {LINK: -1.0}})
    made.update()
    assert np.array_equal(made.p, before)
    own = rg.CustomSystem(lambda x, u: (u[0],), 1, 1)
    with pytest.raises(RigidgradError, match="needs a robot"):
        rg.Problem(
            own, [0.0], 2, 0.1, costs=[rg.costs.Effort(1.0)], parameters={"gravity": (0, 0, 0)}
        )
