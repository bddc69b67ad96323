"""Costs and constraints of motions with contacts: exact derivatives on every kind of joint,
Pinocchio's numbers, forces that keep to their cones, and clear errors.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import random_tree
from test_costs import assert_jacobian_is_exact, knot

import rigidgrad as rg
from rigidgrad.control.held import Held
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError

costs = rg.costs
ALL_TYPES = ("revolute", "planar", "spherical", "helical", "floating", "prismatic")
TILTED = (0.3, -0.2, 0.9)


@pytest.fixture(scope="module")
def touching():
    """A floating tree with every type of joint, that holds a point and a surface; the system with
    its contacts' numbers, and the contacts.
    """
    robot = random_tree(5, 9, floating=True, mimic=True, types=ALL_TYPES).robot()
    far = [robot.model.frames[name] for name in robot.frames if robot.model.frames[name].body >= 0]
    last, other = max(far, key=lambda f: f.body), next(f for f in far if f.body == 3)
    point = rg.Contact(last.name, offset=(0.1, -0.2, 0.3), friction=0.6, normal=TILTED)
    surface = rg.Contact(other.name, kind="surface", friction=0.4, normal=TILTED)
    held = Held((point.constraint, surface.constraint), impacts=True)
    system = RobotSystem(robot, "all").holding(held)
    return system, held, point, surface


def force_terms(point, surface):
    yield costs.ContactForce(point, target=(1.0, 2.0, 3.0))
    yield costs.ContactForce(surface)
    for contact in (point, surface):
        for facets in (3, 4, 7, None):
            yield costs.FrictionCone(contact, facets=facets)
    yield costs.CenterOfPressure(surface, (0.1, 0.05))


@pytest.mark.parametrize("impact", [False, True])
def test_terms_of_forces_have_exact_jacobians(touching, impact):
    system, held, point, surface = touching
    given = system.given(tuple(held.values([point, surface], 0.3 if impact else None).tolist()))
    x, u = knot(given, 2)
    terms = list(force_terms(point, surface))
    targets = [tuple(term.targets(given, 2)[0].tolist()) for term in terms]
    found = [
        np.hstack([np.array(J, float) for J in t.jacobian(given, x, u, p)])
        for t, p in zip(terms, targets, strict=True)
    ]
    expected = [[] for _ in terms]
    for k in range(given.ndx + given.nu):  # the terms share the dynamics of a perturbation
        step = [1e-30j if i == k else 0.0 for i in range(given.ndx + given.nu)]
        moved = (
            given.plus(x, tuple(step[: given.ndx])),
            tuple(a + b for a, b in zip(u, step[given.ndx :], strict=True)),
        )
        for column, term, p in zip(expected, terms, targets, strict=True):
            column.append([np.imag(r) / 1e-30 for r in term.residual(given, *moved, p)])
    for term, J, columns in zip(terms, found, expected, strict=True):
        J_exact = np.array(columns).T
        # forces are products with the inverse of an ill-conditioned matrix: its condition number,
        # about 1e3, times rounding
        np.testing.assert_allclose(
            J, J_exact, rtol=0, atol=1e-10 * np.abs(J_exact).max(), err_msg=term.label()
        )


def test_terms_of_a_contact_that_does_not_hold_are_those_of_no_force(touching):
    system, held, point, surface = touching
    given = system.given(tuple(held.values([surface]).tolist()))
    x, u = knot(given, 2)
    for term in (
        costs.ContactForce(point),
        costs.FrictionCone(point),
        costs.FrictionCone(point, facets=None),
    ):
        assert not np.any(term.residual(given, x, u, tuple(term.targets(given, 2)[0])))
        assert not any(
            np.any(np.array(J, float))
            for J in term.jacobian(given, x, u, tuple(term.targets(given, 2)[0]))
        )
    assert np.any(costs.ContactForce(surface).residual(given, x, u, (0.0,) * 6))


def motion_terms(robot):
    rng, frame = np.random.default_rng(3), robot.frames[-1]
    yield costs.CentroidalMomentum(rng.normal(size=6))
    for axes in ("world", "local", "spatial"):
        yield costs.FrameVelocity(
            frame, rng.normal(size=6), expressed_in=axes, offset=(0.1, -0.2, 0.3)
        )
    yield costs.Height(frame, 0.4, offset=(0.1, -0.2, 0.3))


def test_terms_of_motion_have_exact_jacobians(touching):
    system, held, point, surface = touching
    given = system.given(tuple(held.values([point, surface]).tolist()))
    x, u = knot(given, 4)
    for term in motion_terms(given.robot):
        assert_jacobian_is_exact(term, given, x, u, 1e-12)


def test_terms_of_motion_are_what_the_robot_computes(touching):
    """`robot.…` of these functions is compared with Pinocchio elsewhere."""
    robot = touching[0].robot
    x, _ = knot(touching[0], 5)
    q, v = np.array(x[: robot.nq]), np.array(x[robot.nq :])
    frame = robot.frames[-1]
    plain = RobotSystem(robot, "all")
    for term, expected in [
        (costs.CentroidalMomentum(), robot.centroidal_momentum(q, v)),
        (costs.FrameVelocity(frame), robot.frame_velocity(q, v, frame)),
        (
            costs.FrameVelocity(frame, expressed_in="local"),
            robot.frame_velocity(q, v, frame, expressed_in="local"),
        ),
        (costs.Height(frame, 0.25), robot.forward_kinematics(q)[frame][2:3, 3] - 0.25),
    ]:
        found = term.residual(plain, x, (), tuple(term.targets(plain, 3)[0].tolist()))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert len(term.units(plain)) == term.size(plain)


def test_terms_of_motion_take_varied_inertias():
    """The Jacobian of momentum is that of the robot with its payload."""
    robot = leg()
    payload = {"payload": {"foot": 3.0}}
    start = np.r_[robot.neutral(), np.zeros(robot.nv)]
    problem = rg.Problem(
        robot,
        start,
        2,
        0.01,
        costs=[costs.CentroidalMomentum(np.arange(6.0), 1.0), costs.Effort(1.0)],
        parameters=payload,
    )
    system = problem.system.given(tuple(problem.p[0, problem.programs.inputs].tolist()))
    x, u = knot(system, 3)
    assert_jacobian_is_exact(problem.costs[0], system, x, u, 1e-12)
    bare = RobotSystem(robot)
    assert (
        np.abs(
            np.subtract(
                problem.costs[0].residual(system, x, u, (0.0,) * 6),
                problem.costs[0].residual(bare, x, u, (0.0,) * 6),
            )
        ).max()
        > 0.1
    )


# --- friction cones and centres of pressure, by hand ----------------------------------------------


@pytest.mark.parametrize("facets", [3, 4, 8, None])
@pytest.mark.parametrize("normal", [(0, 0, 1), TILTED, (1, 0, 0), (1e-5, 0, 1), (0, -1, 0)])
def test_a_cone_is_left_where_the_tangential_force_exceeds_friction_times_the_normal_one(
    facets, normal
):
    contact = rg.Contact("foot", friction=0.6, normal=normal)
    cone = costs.FrictionCone(contact, facets=facets)
    n = np.array(contact.normal)
    rng = np.random.default_rng(0)
    A = np.array(cone.matrix(None, ()), float)
    for force in rng.normal(size=(200, 3)):
        up = force @ n
        side = np.linalg.norm(force - up * n)
        if facets is None:
            length, along = cone._side(tuple(force.tolist()))
            assert length == pytest.approx(side, abs=2e-6)
            np.testing.assert_allclose(np.array(along) * side, force - up * n, atol=2e-6)
            continue
        r = A @ force
        assert r[-1] == pytest.approx(-up, abs=1e-14)
        # a pyramid around the cone: never narrower, and wider by 1/cos(π/facets) at most
        assert r[:-1].max() <= side - 0.6 * up + 1e-12
        assert r[:-1].max() >= side * np.cos(np.pi / facets) - 0.6 * up - 1e-12


def test_the_centre_of_pressure_is_inside_exactly_where_no_row_is_positive(touching):
    system, _, _, surface = touching
    cost = costs.CenterOfPressure(surface, (0.1, 0.05))
    x, _ = knot(system, 6)
    A = np.array(cost.matrix(system, x), float)
    R = system.robot.forward_kinematics(np.array(x[: system.nq]))[surface.frame][:3, :3]
    rng = np.random.default_rng(0)
    inside = 0
    for p in rng.uniform(-1, 1, (100, 2)) * (0.15, 0.08):
        f = np.r_[rng.normal(size=2), rng.uniform(1, 10)]
        m = np.cross(np.r_[p, 0.0], f)  # a force at p on the sole, without a moment about that
        wrench = np.r_[R @ f, R @ m]
        fits = abs(p[0]) <= 0.1 and abs(p[1]) <= 0.05
        inside += fits
        assert ((A @ wrench).max() <= 0) == fits
    assert 20 < inside < 80


# --- activations ----------------------------------------------------------------------------------

ACTIVATIONS = [
    costs.Huber(0.3),
    costs.SmoothAbsolute(0.2),
    costs.Barrier(upper=0.1),
    costs.Barrier(lower=-0.4),
    costs.Barrier(-0.2, 0.5),
    costs.Barrier(lower=[-0.1, -np.inf, 0.0], upper=[0.2, 0.3, np.inf]),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activations_are_smooth_and_bend_upwards(activation):
    """The slope is that of the value, the curvature is not negative; Huber's and SmoothAbsolute's
    majorise: a parabola with it lies nowhere below.
    """
    for k in range(3):
        for r in np.r_[np.linspace(-2.0, 2.0, 41) + 0.003, 0.0]:
            found = activation.charge(k, float(r))
            assert found.slope == pytest.approx(
                np.imag(activation.charge(k, complex(r, 1e-30)).value) / 1e-30, rel=1e-13, abs=1e-15
            )
            assert found.value >= 0 and found.bend >= 0
            if not isinstance(activation, costs.Barrier):
                for other in np.linspace(-3, 3, 13):
                    d = other - r
                    above = found.value + found.slope * d + 0.5 * found.bend * d * d
                    assert activation.charge(k, float(other)).value <= above + 1e-12


def test_activations_are_what_they_say():
    huber, smooth, barrier = costs.Huber(0.5), costs.SmoothAbsolute(0.3), costs.Barrier(-1.0, 2.0)
    assert huber.charge(0, 0.4).value == pytest.approx(0.08)
    assert huber.charge(0, -2.0).value == pytest.approx(0.5 * 2.0 - 0.125)
    assert smooth.charge(0, 0.4).value == pytest.approx(np.hypot(0.4, 0.3) - 0.3)
    assert [barrier.charge(0, r).value for r in (-3.0, -0.5, 1.9, 4.0)] == pytest.approx(
        [2.0, 0.0, 0.0, 2.0]
    )
    assert [barrier.charge(0, r).slope for r in (-3.0, -0.5, 1.9, 4.0)] == pytest.approx(
        [-2.0, 0.0, 0.0, 2.0]
    )
    assert [barrier.charge(0, r).bend for r in (-3.0, -0.5, 1.9, 4.0)] == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("activation", ACTIVATIONS[:5], ids=repr)
def test_every_cost_expands_with_its_activation(touching, activation):
    """The gradient against complex steps of the value, through a residual of several numbers."""
    robot = touching[0].robot
    system = RobotSystem(robot, "all")
    x, u = knot(system, 7)
    cost = costs.FrameVelocity(robot.frames[-1], 0.1, activation=activation)
    target, weight = (0.1,) * 6, tuple(np.linspace(1, 2, 6).tolist())
    q = cost.expand(system, x, u, target, weight)
    for k in range(system.ndx):
        step = tuple(1e-30j if i == k else 0.0 for i in range(system.ndx))
        moved = cost.value(system, system.plus(x, step), u, target, weight)
        assert q.lx[k] == pytest.approx(np.imag(moved) / 1e-30, rel=1e-10, abs=1e-10)
    assert np.linalg.eigvalsh(np.array(q.lxx, float)).min() > -1e-9


# --- joint limits ---------------------------------------------------------------------------------


def leg(limit=(-1.0, 2.0, 5.0, 80.0), floating=True):
    """A body of 4 kg on a leg that turns at the hip and slides at the knee; its foot is a frame at
    its end.
    """
    build = rg.Builder("hopper").link("body", 4.0, (0, 0, 0), (0.1, 0.1, 0.1))
    build.link("thigh", 0.5, (0, 0, -0.1), (0.004, 0.004, 0.001)).link(
        "shin", 0.3, (0, 0, -0.1), (0.003, 0.003, 0.0005)
    )
    build.joint("hip", "revolute", "body", "thigh", axis=(0, 1, 0), limit=limit)
    build.joint(
        "roll",
        "revolute",
        "thigh",
        "shin",
        xyz=(0, 0, -0.2),
        axis=(1, 0, 0),
        limit=(-0.5, 0.5, 5.0, 80.0),
    )
    return build.frame("foot", "shin", (0, 0, -0.25)).build(floating_base=floating)


def test_joint_limits_charge_for_what_is_outside():
    robot = leg()
    system = RobotSystem(robot)
    term = costs.JointLimits()
    assert term.size(system) == 4 and term.units(system) == ("rad", "rad", "rad/s", "rad/s")
    target = tuple(term.targets(system, 2)[0].tolist())
    x = np.r_[robot.neutral(), np.zeros(robot.nv)]
    x[[7, 8, -2, -1]] = 2.3, -0.6, 1.0, 7.0
    x = tuple(x.tolist())
    np.testing.assert_allclose(
        term.residual(system, x, (), target), [0.3, -0.1, 0.0, 2.0], atol=1e-15
    )
    assert_jacobian_is_exact(term, system, x, (0.0,) * system.nu)
    term.margin = 0.5
    target = tuple(term.targets(system, 2)[0].tolist())
    np.testing.assert_allclose(
        term.residual(system, x, (), target), [2.3 - 1.25, -0.35, 0.0, 4.5], atol=1e-15
    )


def test_joint_limits_need_limits():
    free = (
        rg.Builder("free")
        .link("base")
        .link("arm", 1.0, (0, 0, 0.1), (1, 1, 1))
        .joint("j", "continuous", "base", "arm")
        .build()
    )
    with pytest.raises(InputError, match="no finite limits"):
        costs.JointLimits(1.0).targets(RobotSystem(free), 3)
    with pytest.raises(InputError, match="below 1, not 1"):
        costs.JointLimits(1.0, margin=1.0).targets(RobotSystem(leg()), 3)


def test_joint_limits_keep_a_motion_inside_for_a_price():
    """The same aim with and without them."""
    robot = leg(floating=False)
    start = np.zeros(4)

    def solved(*more):
        aim = costs.State([3.0, 0.0, 0.0, 0.0], 0.01, final=[10.0, 10.0, 0.1, 0.1])
        return rg.solve(rg.Problem(robot, start, 20, 0.05, costs=[aim, costs.Effort(1e-3), *more]))

    free, kept = solved(), solved(costs.JointLimits(1e4, final=1e4))
    assert free.converged and kept.converged
    assert free.x[:, 0].max() > 2.5
    assert kept.x[:, 0].max() < 2.01
    assert kept.remaining["JointLimits"].angle < 0.01
