"""Limits: what users write becomes the right bounds, distances and Jacobians are exact,
contradictions and bad starts are told.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
import rigidgrad.math as rm
from rigidgrad.control.costs import Effort, Reach, State
from rigidgrad.control.limits import (
    Clearance,
    Constraint,
    Equality,
    Inequality,
    Limits,
    LinkSphere,
    Obstacle,
    Position,
    Velocity,
    as_limits,
)
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job

KNOTS, STEPS = 6, 5
INF, NAN = float("inf"), float("nan")
SYSTEMS = {
    "arm": lambda: RobotSystem(rg.load("iiwa14")),
    "quadrotor": lambda: RobotSystem(rg.load("quadrotor"), "all"),
    "floating hyq": lambda: RobotSystem(rg.load("hyq", floating_base=True), "all"),
    "all joint types": lambda: RobotSystem(
        random_tree(
            5,
            9,
            floating=True,
            mimic=True,
            types=("revolute", "planar", "spherical", "helical", "floating", "prismatic"),
        ).robot()
    ),
    "custom": lambda: CustomSystem(lambda x, u: (x[1], u[0]), 2, 1),
}


def arm():
    return SYSTEMS["arm"]()


def knot(system, seed=1):
    rng = np.random.default_rng(seed)
    x = (
        np.r_[system.robot.random(seed=seed).q, rng.normal(size=system.nv)]
        if isinstance(system, RobotSystem)
        else rng.normal(size=system.nx)
    )
    return tuple(x.tolist()), tuple(rng.normal(size=system.nu).tolist())


def spheres_on(system):
    frames = system.robot.frames
    return [LinkSphere(frames[-1], 0.1, (0.1, 0, 0.2)), LinkSphere(frames[len(frames) // 2], 0.2)]


def constraints(system):
    obstacles = [
        Obstacle((0.3, 0.4, 0.5), 0.2),
        Obstacle(np.random.default_rng(1).normal(size=(KNOTS, 3)), np.linspace(0.1, 0.3, KNOTS)),
    ]
    position = 2.0 if any(j.nq == 1 for j in system.model.joints) else True
    yield from Limits(
        position=position, velocity=1.0, obstacles=obstacles, spheres=spheres_on(system)
    ).constraints(system)
    yield Inequality(
        lambda x, u, p: (x[0] * u[0], rm.sin(x[1]) + p[0]), lower=-1.0, parameters=[0.5]
    )
    yield Equality(Reach(system.robot.frames[-1], np.eye(4)), at="final")


@pytest.mark.parametrize("name", [n for n in SYSTEMS if n != "custom"])
def test_jacobians_are_exact(name):
    """Against complex steps; what is left is rounding."""
    system = SYSTEMS[name]()
    x, u = knot(system)
    h = 1e-30
    for c in constraints(system):
        target = tuple(c.targets(system, KNOTS)[2].tolist())
        assert len(target) == c.target_size(system)
        J_x, J_u = c.jacobian(system, x, u, target)
        assert (J_x is not None, J_u is not None) == (c.uses_state, c.uses_control)
        size = c.size(system)
        assert len(c.residual(system, x, u, target)) == size
        for J, n, by_state in ((J_x, system.ndx, True), (J_u, system.nu, False)):
            columns = []
            for k in range(n):
                e = tuple(1j * h if i == k else 0.0 for i in range(n))
                state, control = (
                    (system.plus(x, e), u)
                    if by_state
                    else (x, tuple(a + b for a, b in zip(u, e, strict=True)))
                )
                columns.append([np.imag(v) / h for v in c.residual(system, state, control, target)])
            expected = np.array(columns, float).T.reshape(size, n)
            found = np.zeros((size, n)) if J is None else np.array(J, float).reshape(size, n)
            np.testing.assert_allclose(
                found, expected, rtol=0, atol=1e-12 * max(1.0, abs(expected).max())
            )


# --- torque, position, velocity -------------------------------------------------------------------


def test_a_robots_own_limits_are_all_of_its_limits():
    system = arm()
    own = system.robot.limits
    for limits in (as_limits(own, system), Limits(torque=True, position=True, velocity=True)):
        lower, upper = limits.control_bounds(system, STEPS)
        np.testing.assert_array_equal(upper, np.tile(own.effort, (STEPS, 1)))
        np.testing.assert_array_equal(lower, -upper)
        position, velocity = limits.constraints(system)
        assert isinstance(position, Position) and isinstance(velocity, Velocity)
        lower, upper = position.bounds(system, KNOTS)
        np.testing.assert_array_equal(lower[1:], np.tile(own.lower, (STEPS, 1)))
        np.testing.assert_array_equal(upper[1:], np.tile(own.upper, (STEPS, 1)))
        lower, upper = velocity.bounds(system, KNOTS)
        np.testing.assert_array_equal(upper[1:], np.tile(own.velocity, (STEPS, 1)))
        np.testing.assert_array_equal(lower[1:], -upper[1:])


def test_there_are_none_unless_asked_for():
    system = arm()
    for limits in (
        as_limits(None, system),
        Limits(),
        Limits(torque=False, position=False, velocity=False),
    ):
        assert limits.control_bounds(system, STEPS) is None
        assert limits.constraints(system) == ()


def test_the_start_is_free_of_constraints_of_the_state():
    system = arm()
    for c in constraints(system):
        c.targets(system, KNOTS)
        lower, upper = c.bounds(system, KNOTS)
        assert lower.shape == upper.shape == (KNOTS, c.size(system))
        free = -1 if c.uses_control else 0
        assert (lower[free] == -INF).all() and (upper[free] == INF).all()


def test_joints_with_several_freedoms_have_no_position_limits():
    system = SYSTEMS["all joint types"]()
    (position,) = Limits(position=1.5).constraints(system)
    single = sorted(j.q for j in system.model.joints if j.nq == 1 and not j.is_mimic)
    x, u = knot(system)
    assert position.residual(system, x, u, ()) == tuple(x[q] for q in single)
    lower, upper = position.bounds(system, KNOTS)
    assert (lower[1:] == -1.5).all() and (upper[1:] == 1.5).all()
    wide = np.full(system.nq, INF)
    wide[single[0]] = 1.0
    (position,) = Limits(position=(-wide, wide)).constraints(system)
    assert np.isfinite(position.bounds(system, KNOTS)[0]).sum() == STEPS
    other = next(q for q in range(system.nq) if q not in single)
    wide[other] = 1.0
    with pytest.raises(InputError, match="floating, spherical and planar"):
        Limits(position=(-wide, wide)).constraints(system)[0].bounds(system, KNOTS)


def test_a_robot_without_joints_of_one_freedom_has_no_position_limits():
    system = SYSTEMS["quadrotor"]()
    assert Limits(position=True).constraints(system) == ()
    with pytest.raises(InputError, match="no joints with one freedom"):
        Limits(position=1.0).constraints(system)


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (3.0, -3.0, 3.0),
        ((1.0, 2.0), 1.0, 2.0),
        ((None, 2.0), -INF, 2.0),
        ((-1.0, None), -1.0, INF),
        (np.full(7, 4.0), -4.0, 4.0),
        ([5.0] * 7, -5.0, 5.0),
        ((np.full(7, -4.0), 1.0), -4.0, 1.0),
        (INF, -INF, INF),
    ],
)
def test_limits_come_in_several_notations(value, lower, upper):
    system = arm()
    limits = Limits(torque=value, position=value, velocity=value)
    found = [
        limits.control_bounds(system, STEPS),
        *([b[1:] for b in c.bounds(system, KNOTS)] for c in limits.constraints(system)),
    ]
    for low, high in found:
        assert low.shape == high.shape == (STEPS, 7)
        assert (low == lower).all() and (high == upper).all()


def test_limits_may_differ_from_knot_to_knot_and_change():
    system = arm()
    rising = np.linspace(1, 2, KNOTS)[:, None] * np.ones(7)
    limits = Limits(torque=rising[:-1], position=rising, velocity=(-rising, 2 * rising))
    np.testing.assert_array_equal(limits.control_bounds(system, STEPS)[1], rising[:-1])
    position, velocity = limits.constraints(system)
    np.testing.assert_array_equal(position.bounds(system, KNOTS)[1][1:], rising[1:])
    np.testing.assert_array_equal(velocity.bounds(system, KNOTS)[1][1:], 2 * rising[1:])
    key = position.key()
    limits.position = 0.5
    assert (position.bounds(system, KNOTS)[1][1:] == 0.5).all()
    assert position.key() == key


def test_a_margin_keeps_to_the_middle_of_ranges_with_two_ends():
    system = arm()
    limits = Limits(torque=(-1.0, 3.0), velocity=(None, 3.0), margin=0.1)
    lower, upper = limits.control_bounds(system, STEPS)
    np.testing.assert_allclose(lower, -0.8)
    np.testing.assert_allclose(upper, 2.8)
    lower, upper = limits.constraints(system)[0].bounds(system, KNOTS)
    assert (upper[1:] == 3.0).all()


def test_efforts_of_joints_limit_the_controls_that_drive_them():
    robot = rg.load("iiwa14")
    effort = robot.limits.effort
    selector = np.eye(7)[:, [2, 0]] * [2.0, -0.5]
    lower, upper = Limits(torque=True).control_bounds(RobotSystem(robot, selector), STEPS)
    np.testing.assert_array_equal(upper[0], [effort[2] / 2, effort[0] / 0.5])
    np.testing.assert_array_equal(lower, -upper)
    with pytest.raises(InputError, match="several controls drive one joint"):
        Limits(torque=True).control_bounds(RobotSystem(robot, np.ones((7, 2))), STEPS)
    free = RobotSystem(rg.load("quadrotor"), np.ones((6, 4)))  # no efforts, so nothing to limit
    assert (Limits(torque=True).control_bounds(free, STEPS)[1] == INF).all()


def test_a_custom_system_has_limits_of_its_controls_and_of_functions():
    system = SYSTEMS["custom"]()
    limits = Limits(torque=(-1.0, 2.0), constraints=[Inequality(lambda x, u: x[0], upper=1.0)])
    lower, upper = limits.control_bounds(system, STEPS)
    assert (lower == -1).all() and (upper == 2).all() and lower.shape == (STEPS, 1)
    (c,) = limits.constraints(system)
    assert c.size(system) == 1


# --- obstacles ------------------------------------------------------------------------------------


def clearance(system, obstacles, spheres, **options):
    return Limits(obstacles=obstacles, spheres=spheres, **options).constraints(system)[0]


def test_clearance_is_the_distance_between_surfaces():
    system = arm()
    spheres = spheres_on(system)
    centers = np.random.default_rng(0).normal(size=(2, 3))
    c = clearance(system, [Obstacle(centers[0], 0.05), Obstacle(centers[1], 0.4)], spheres)
    x, u = knot(system)
    T = system.robot.forward_kinematics(np.array(x[:7]))
    found = np.array(c.residual(system, x, u, tuple(c.targets(system, KNOTS)[0].tolist())))
    expected = []
    for s in spheres:
        p = (T[s.frame] @ [*s.offset, 1])[:3]
        expected += [
            np.linalg.norm(p - centers[0]) - 0.05 - s.radius,
            np.linalg.norm(p - centers[1]) - 0.4 - s.radius,
        ]
    # smoothing changes a distance by less than (ε R)²/d
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert isinstance(c, Clearance)
    lower, upper = c.bounds(system, KNOTS)
    assert (lower[1:] == 0).all() and (upper == INF).all()


def touching(system, x, frame, gap, radius=0.2, sphere=0.1):
    """An obstacle whose surface is `gap` away from a sphere around a frame."""
    p = system.robot.forward_kinematics(np.array(x[: system.nq]))[frame][:3, 3]
    return Obstacle(p + [0, 0, radius + sphere + gap], radius), LinkSphere(frame, sphere)


def test_at_contact_the_distance_is_exactly_zero_and_its_slope_one():
    system = arm()
    x, u = knot(system)
    for gap in (0.0, 1e-4, -1e-4):
        obstacle, sphere = touching(system, x, "iiwa_link_7", gap)
        c = clearance(system, [obstacle], [sphere])
        target = tuple(c.targets(system, KNOTS)[0].tolist())
        # slope 1 up to ε² = 1e-6 of the gap
        assert abs(c.residual(system, x, u, target)[0] - gap) < 1e-9
        J = np.array(c.jacobian(system, x, u, target)[0], float)[0, :7]
        np.testing.assert_allclose(
            J, -system.robot.jacobian(np.array(x[:7]), "iiwa_link_7")[2], rtol=2e-6, atol=1e-12
        )


def test_the_centre_of_an_obstacle_gives_finite_numbers():
    system = arm()
    x, u = knot(system)
    obstacle, sphere = touching(system, x, "iiwa_link_7", -0.3)
    c = clearance(system, [obstacle], [sphere])
    target = tuple(c.targets(system, KNOTS)[0].tolist())
    assert abs(c.residual(system, x, u, target)[0] + 0.3) < 1e-3
    assert np.isfinite(np.array(c.jacobian(system, x, u, target)[0], float)).all()


def test_moving_obstacles_are_inputs_and_what_is_structure_is_in_the_key():
    system = arm()
    path, radii = np.random.default_rng(1).normal(size=(KNOTS, 3)), np.linspace(0.1, 0.2, KNOTS)
    sphere = LinkSphere("iiwa_link_7", 0.1)
    still, moving = (
        clearance(system, [o], [sphere]) for o in (Obstacle((1, 2, 3), 0.1), Obstacle(path, radii))
    )
    np.testing.assert_array_equal(
        moving.targets(system, KNOTS), np.c_[path, radii, np.full(KNOTS, 0.1)]
    )
    assert (
        still.key()
        == moving.key()
        == clearance(system, [Obstacle((1, 2, 3), 0.1)], [LinkSphere("iiwa_link_7", 0.5)]).key()
    )
    others = [
        clearance(system, [Obstacle((1, 2, 3), 0.1)] * 2, [sphere]),
        clearance(system, [Obstacle((1, 2, 3), 0.1)], [LinkSphere("iiwa_link_6", 0.1)]),
        clearance(system, [Obstacle((1, 2, 3), 0.1)], [LinkSphere("iiwa_link_7", 0.1, (0, 0, 1))]),
    ]
    assert len({still.key(), *(o.key() for o in others)}) == 4


def test_a_compiled_clearance_is_what_plain_floats_give():
    system = SYSTEMS["floating hyq"]()
    c = clearance(
        system, [Obstacle((0.3, 0.4, 0.5), 0.2), Obstacle((0, 0, 0), 0.1)], spheres_on(system)
    )
    shapes = {"x": (system.nx,), "p": (c.target_size(system),)}
    outputs = {"c": (4,), "J": (4, system.ndx)}
    program = record(
        shapes,
        outputs,
        lambda v: (
            c.residual(system, v["x"], (), v["p"]),
            c.jacobian(system, v["x"], (), v["p"])[0],
        ),
    )
    X, p = np.array([knot(system, s)[0] for s in range(9)]), c.targets(system, KNOTS)[0]
    found, J = Compiled(
        Job("clearance", "test", str(program), lambda: program), dtype="float64", threads=1
    )(X, p)
    for k, x in enumerate(X.tolist()):
        np.testing.assert_allclose(
            found[k], c.residual(system, tuple(x), (), tuple(p.tolist())), rtol=0, atol=1e-13
        )
        np.testing.assert_allclose(
            J[k],
            np.array(c.jacobian(system, tuple(x), (), tuple(p.tolist()))[0], float),
            rtol=0,
            atol=1e-13,
        )


# --- constraints that users write -----------------------------------------------------------------


def test_equalities_and_inequalities_hold_where_they_are_asked_to():
    system = SYSTEMS["custom"]()
    rows = {
        "all": [1, 2, 3, 4, 5],
        "final": [5],
        -1: [5],
        3: [3],
        (1, -2): [1, 4],
    }
    for at, held in rows.items():
        for c in (
            Inequality(lambda x, u: (x[0], x[1]), lower=-1.0, upper=(2.0, 3.0), at=at),
            Equality(lambda x, u: x, value=(4.0, 5.0), at=at),
        ):
            lower, upper = c.bounds(system, KNOTS)
            finite = np.flatnonzero(np.isfinite(lower).all(axis=1))
            assert finite.tolist() == held
            assert np.flatnonzero(np.isfinite(upper).any(axis=1)).tolist() == held
            if isinstance(c, Equality):
                assert (lower[held] == [4, 5]).all() and (upper[held] == [4, 5]).all()
            else:
                assert (lower[held] == -1).all() and (upper[held] == [2, 3]).all()


def test_a_constraint_of_the_control_holds_on_all_steps():
    system = SYSTEMS["custom"]()
    each = np.arange(float(STEPS))[:, None]
    lower, upper = Inequality(lambda x, u: u[0] + x[0], lower=each).bounds(system, KNOTS)
    np.testing.assert_array_equal(lower[:-1], each)
    assert lower[-1] == -INF and (upper == INF).all()


def test_a_term_can_be_a_constraint():
    system = arm()
    T = np.eye(4)
    T[:3, 3] = 0.3, 0.2, 0.7
    c = Equality(Reach("iiwa_link_7", T), at="final")
    x, u = knot(system)
    reach = Reach("iiwa_link_7", T)
    target = tuple(c.targets(system, KNOTS)[0].tolist())
    assert c.residual(system, x, u, target) == reach.residual(system, x, u, target)
    assert c.size(system) == 6 and c.key() != reach.key() and not c.uses_control
    floor = Inequality(Reach("iiwa_link_7", np.zeros(3)), lower=(-INF, -INF, 0.1))
    lower, _ = floor.bounds(system, KNOTS)
    np.testing.assert_array_equal(lower[1:], np.tile([-INF, -INF, 0.1], (STEPS, 1)))
    assert Inequality(Effort(), upper=1.0).uses_control
    assert isinstance(Equality(State(np.zeros(14))), Constraint)


def test_keys_of_functions_tell_them_apart_and_ignore_bounds():
    system = SYSTEMS["custom"]()
    made = [
        Inequality(lambda x, u: x[0], upper=1.0),
        Inequality(lambda x, u: x[1], upper=1.0),
        Equality(lambda x, u: x[0]),
        Inequality(lambda x, u: x[0], lower=3.0),
    ]
    for c in made:
        c.size(system)
    keys = [c.key() for c in made]
    assert keys[0] != keys[1] and keys[0] == keys[2] == keys[3]


def test_parameters_may_change():
    system = SYSTEMS["custom"]()
    c = Inequality(lambda x, u, p: x[0] - p[0], upper=0.0, parameters=[1.0])
    assert (c.targets(system, KNOTS) == 1).all()
    c.term.parameters = np.arange(float(KNOTS))[:, None]
    np.testing.assert_array_equal(c.targets(system, KNOTS)[:, 0], np.arange(KNOTS))


# --- the start ------------------------------------------------------------------------------------


def test_a_start_outside_of_position_limits_is_an_error_with_advice():
    system = arm()
    start = np.zeros(14)
    start[3] = 5.0
    (position,) = Limits(position=True).constraints(system)
    with pytest.raises(InputError, match=r"iiwa_joint_4.*5.*recover"):
        position.bounds(system, KNOTS, start)
    start[3] = system.robot.limits.upper[3] * (1 + 1e-12)
    position.bounds(system, KNOTS, start)


def test_a_start_inside_of_an_obstacle_is_an_error_with_advice():
    system = arm()
    x, _ = knot(system)
    obstacle, sphere = touching(system, x, "iiwa_link_7", 0.01)
    clearance(system, [obstacle], [sphere]).bounds(system, KNOTS, np.array(x))
    with pytest.raises(InputError, match=r"iiwa_link_7.*0\.01 m.*obstacle 0"):
        clearance(system, [obstacle], [sphere], clearance=0.02).bounds(system, KNOTS, np.array(x))


def test_recovering_bounds_go_evenly_from_the_start_to_their_place():
    system = arm()
    start = np.zeros(14)
    start[3], start[8] = -3.0, 4.0
    limits = Limits(position=1.0, velocity=1.5, recover=True)
    position, velocity = limits.constraints(system)
    lower, upper = position.bounds(system, KNOTS, start)
    np.testing.assert_allclose(lower[1:, 3], np.linspace(-3, -1, KNOTS)[1:])
    assert (np.delete(lower[1:], 3, axis=1) == -1).all() and (upper[1:] == 1).all()
    lower, upper = velocity.bounds(system, KNOTS, start)
    np.testing.assert_allclose(upper[1:, 1], np.linspace(4, 1.5, KNOTS)[1:])
    assert (lower[1:] == -1.5).all()
    x, _ = knot(system)
    obstacle, sphere = touching(system, x, "iiwa_link_7", -0.05)
    lower, _ = clearance(system, [obstacle], [sphere], recover=True).bounds(
        system, KNOTS, np.array(x)
    )
    np.testing.assert_allclose(lower[1:, 0], np.linspace(-0.05, 0, KNOTS)[1:], atol=1e-6)


def test_a_start_that_is_too_fast_is_left_to_the_solver():
    system = arm()
    start = np.r_[np.zeros(7), np.full(7, 50.0)]
    (velocity,) = Limits(velocity=True).constraints(system)
    for found, expected in zip(
        velocity.bounds(system, KNOTS, start), velocity.bounds(system, KNOTS), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


# --- errors ---------------------------------------------------------------------------------------


def read(limits, system):
    """All that a problem reads."""
    limits = as_limits(limits, system)
    limits.control_bounds(system, STEPS)
    for c in limits.constraints(system):
        c.size(system), c.targets(system, KNOTS), c.bounds(system, KNOTS)


SPHERE = LinkSphere("iiwa_link_7", 0.1)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (lambda: Limits(torque=(2.0, 1.0)), "nothing lies between"),
        (lambda: Limits(position=(2.0, 1.0)), "position limit 0 at knot 0 is from 2 to 1"),
        (lambda: Limits(velocity=(INF, INF)), "nothing lies between"),
        (lambda: Limits(velocity=(-INF, -INF)), "nothing lies between"),
        (lambda: Limits(torque=-1.0), "not negative"),
        (lambda: Limits(torque=NAN), "NaN"),
        (lambda: Limits(torque=np.ones(6)), "shape"),
        (lambda: Limits(position=np.ones(6)), "shape"),
        (lambda: Limits(velocity=np.ones((KNOTS - 1, 7))), "shape"),
        (lambda: Limits(torque="strong"), "numbers"),
        (lambda: Limits(position="far"), "numbers"),
        (lambda: Limits(torque=1.0, margin=1.0), "margin"),
        (lambda: Limits(torque=1.0, margin=-0.1), "margin"),
        (lambda: Limits(torque=1.0, margin=NAN), "NaN"),
        (lambda: Limits(obstacles=[Obstacle((0, 0, 0), 1.0)]), "both"),
        (lambda: Limits(spheres=[SPHERE]), "both"),
        (lambda: Limits(obstacles=[((0, 0, 0), 1.0)], spheres=[SPHERE]), "Obstacle"),
        (lambda: Limits(obstacles=3, spheres=[SPHERE]), "Obstacle"),
        (lambda: Limits(constraints=[lambda x, u: x[0]]), "Constraint"),
        (lambda: Limits(obstacles=Obstacle((0, 0, 0), -1.0), spheres=SPHERE), "positive"),
        (lambda: Limits(obstacles=Obstacle((0, 0, NAN), 1.0), spheres=SPHERE), "NaN"),
        (lambda: Limits(obstacles=Obstacle((0, 0), 1.0), spheres=SPHERE), "shape"),
        (
            lambda: Limits(
                obstacles=Obstacle((0, 0, 0), 1.0), spheres=LinkSphere("iiwa_link_7", 0.1, (0, 0))
            ),
            "shape",
        ),
        (
            lambda: Limits(obstacles=Obstacle((9, 9, 9), 1.0), spheres=SPHERE, clearance=-0.1),
            "clearance",
        ),
        (lambda: Limits(constraints=[Inequality(lambda x, u: x[0])]), "no finite bound"),
        (
            lambda: Limits(constraints=[Inequality(lambda x, u: x[0], 2.0, 1.0)]),
            "nothing lies between",
        ),
        (lambda: Limits(constraints=[Inequality(lambda x, u: x[0], NAN)]), "NaN"),
        (lambda: Limits(constraints=[Inequality(lambda x, u: x[0], (1.0, 2.0))]), "shape"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], INF)]), "nothing lies between"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], at=0)]), "start is given"),
        (lambda: Limits(constraints=[Equality(lambda x, u: u[0], at="final")]), "no control"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], at="last")]), "whole numbers"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], at=99)]), "knots 1 to 5"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], at=[])]), "knots 1 to 5"),
        (lambda: Limits(constraints=[Equality(lambda x, u: x[0], at=[1.5])]), "whole numbers"),
        (
            lambda: Limits(constraints=[Equality(State(np.zeros(14)), parameters=[1.0])]),
            "own targets",
        ),
        (lambda: 5.0, "robot.limits or rg.Limits"),
        (lambda: rg.load("hyq").limits, "another robot"),
    ],
)
def test_mistakes_are_told_when_a_problem_is_made(limits, words):
    with pytest.raises(InputError, match=words):
        read(limits(), arm())


@pytest.mark.parametrize(
    "limits",
    [
        {"torque": True},
        {"position": 1.0},
        {"velocity": 1.0},
        {"obstacles": [Obstacle((0, 0, 0), 1)], "spheres": [SPHERE]},
    ],
)
def test_limits_of_joints_and_links_need_a_robot(limits):
    with pytest.raises(InputError, match="robot"):
        read(Limits(**limits), SYSTEMS["custom"]())


def test_an_unknown_frame_lists_near_ones():
    with pytest.raises(UnknownNameError, match="iiwa_link_7"):
        read(
            Limits(obstacles=[Obstacle((9, 9, 9), 1.0)], spheres=[LinkSphere("iiwa_link_8", 0.1)]),
            arm(),
        )


def test_problems_of_a_batch_have_limits_of_their_own():
    robot = rg.load("double_pendulum")
    limits = Limits(
        torque=5.0,
        velocity=3.0,
        obstacles=[rg.Obstacle((1.0, 1.0, 1.0), 0.1)],
        spheres=[rg.LinkSphere("lower_rod", 0.05)],
        constraints=[rg.Inequality(lambda x, u, p: x[0] - p[0], upper=2.0, parameters=[0.0])],
    )
    problem = rg.Problem(robot, np.zeros(4), 3, 0.1, costs=[rg.costs.Effort(1.0)], limits=limits)
    first, second = problem.batch(start=np.zeros((2, 4)))
    before = second.p.copy(), second.bounds[1].copy(), problem.p.copy()
    first.limits.torque, first.limits.velocity = 1.0, 0.5
    first.limits.obstacles[0].radius = 0.3
    first.limits.spheres[0].radius = 0.2
    first.constraints[-1].upper = 1.0
    first.constraints[-1].term.parameters = [0.5]
    first.update()
    second.update()
    problem.update()
    assert (
        np.array_equal(second.p, before[0])
        and np.array_equal(second.bounds[1], before[1])
        and np.array_equal(problem.p, before[2])
    )
    assert np.all(first.bounds[1] == 1.0) and not np.array_equal(first.p, before[0])
    assert first.programs is second.programs
