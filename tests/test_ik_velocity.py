"""Differential inverse kinematics: optimality conditions of a step, limits along motions, batches,
and bad input.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import random_tree
from scipy.optimize import lsq_linear

import rigidgrad as rg
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.ik import quadratic

pin = pytest.importorskip("pinocchio")

TIP = "iiwa_link_ee"
DT = 0.01


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


def posture(arm, seed, n=()):
    return 0.5 * arm.random(n, seed=seed).q


def pose(arm, seed, n=()):
    return arm.forward_kinematics(posture(arm, seed, n))[TIP]


# --- the quadratic program ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_rounds_end_where_the_optimality_conditions_hold(seed):
    rng = np.random.default_rng(seed)
    n, states = 6, 50
    J, e = rng.normal(size=(states, 4, n)), rng.normal(size=(states, 4))
    H, c = np.swapaxes(J, 1, 2) @ J + 1e-3 * np.eye(n), -np.einsum("kij,ki->kj", J, e)
    # a quarter of the bounds stop at zero
    high = rng.uniform(0.01, 0.5, (states, n)) * rng.integers(0, 4, (states, n)).clip(0, 1)
    low = -rng.uniform(0.01, 0.5, (states, n))
    G, h = rng.normal(size=(states, 2, n)), rng.uniform(0, 0.1, (states, 2))
    rows = (
        [{i: 1.0} for i in range(n)]
        + [{i: -1.0} for i in range(n)]
        + [{i: G[:, r, i] for i in range(n)} for r in range(2)]
    )
    b = [*high.T, *-low.T, *h.T]
    columns = [[H[:, i, j] for j in range(n)] for i in range(n)]
    at = quadratic.first(list(c.T), b, quadratic.largest([abs(x) for x in b]))
    for _ in range(9):
        at = quadratic.advance(columns, list(c.T), rows, b, at)
    x, z = np.stack(at.x, 1), np.stack(at.z, 1)
    A = np.concatenate(
        [np.broadcast_to(np.eye(n), H.shape), np.broadcast_to(-np.eye(n), H.shape), G], axis=1
    )
    slack = np.stack(b, 1) - np.einsum("kij,kj->ki", A, x)
    stationary = np.einsum("kij,kj->ki", H, x) + c + np.einsum("kij,ki->kj", A, z)
    assert abs(stationary).max() < 1e-8
    assert slack.min() > -1e-8
    assert z.min() > 0
    assert abs(slack * z).max() < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_exchanges_of_active_bounds_end_at_the_optimum_that_scipy_finds(seed):
    rng = np.random.default_rng(seed)
    n, states = 6, 40
    J, e = rng.normal(size=(states, 8, n)), rng.normal(size=(states, 8))
    H, c = np.swapaxes(J, 1, 2) @ J, -np.einsum("kij,ki->kj", J, e)
    high, low = rng.uniform(0.02, 0.8, (states, n)), -rng.uniform(0.02, 0.8, (states, n))
    columns = [[H[:, i, j] for j in range(n)] for i in range(n)]
    bounds = dict(enumerate(low.T)), dict(enumerate(high.T))
    held = {i: np.zeros(states) for i in range(n)}
    rounds = np.zeros(states)
    for _ in range(8):
        x, after = quadratic.exchange(columns, list(c.T), *bounds, held)
        changed = np.any([after[i] != held[i] for i in range(n)], axis=0)
        rounds += changed
        held = after
    expected = [
        lsq_linear(J[k], e[k], (low[k], high[k]), method="bvls", tol=1e-14).x for k in range(states)
    ]
    assert not changed.any()
    assert (rounds == 0).any() or seed, "no state ended in the first round"
    assert (rounds > 1).any()
    np.testing.assert_allclose(np.stack(x, 1), expected, atol=1e-11)


# --- a step ---------------------------------------------------------------------------------------


def test_a_step_is_optimal_within_its_bounds(arm):
    """Where no bound holds a joint, the gradient of the cost vanishes; where one does, it pushes
    outwards.
    """
    q, T, rest = posture(arm, 0, (100,)), pose(arm, 1, (100,)), posture(arm, 2)
    tasks = [rg.ik.Frame(TIP, T[:, :3, 3], weight=4.0, gain=0.5), rg.ik.Posture(rest, weight=0.01)]
    step = rg.ik.Velocity(arm, tasks, [rg.ik.VelocityLimit(4.0)]).step(q, DT)
    assert step.success.all()
    delta = step.v * DT
    p, J = arm.forward_kinematics(q)[TIP][:, :3, 3], arm.jacobian(q, TIP)[:, :3]
    miss = np.einsum("kij,kj->ki", J, delta) - 0.5 * (T[:, :3, 3] - p)
    gradient = 4.0 * np.einsum("kij,ki->kj", J, miss) + 0.01 * (delta - (rest - q)) + 1e-8 * delta
    low, high = (
        np.maximum(-4.0 * DT, arm.limits.lower - q),
        np.minimum(4.0 * DT, arm.limits.upper - q),
    )
    held_low, held_high = delta <= low + 1e-9, delta >= high - 1e-9
    free = ~held_low & ~held_high
    assert free.sum() > 20 and held_low.sum() > 20 and held_high.sum() > 20
    scale = abs(gradient).max()
    assert abs(gradient[free]).max() < 1e-7 * scale
    assert gradient[held_low].min() > -1e-7 * scale
    assert gradient[held_high].max() < 1e-7 * scale
    np.testing.assert_allclose(step.q, q + delta, atol=1e-15)


def test_a_step_without_active_bounds_is_the_solution_of_its_normal_equations(arm):
    q = posture(arm, 21)
    T = arm.forward_kinematics(q + 0.01)[TIP][:3, 3]
    step = rg.ik.Velocity(arm, [rg.ik.Frame(TIP, T), rg.ik.Posture(q, weight=0.1)]).step(q, 10.0)
    J = arm.jacobian(q, TIP)[:3]
    wanted = J.T @ (T - arm.forward_kinematics(q)[TIP][:3, 3])
    expected = np.linalg.solve(J.T @ J + (0.1 + 1e-8) * np.eye(7), wanted)
    assert step.success
    np.testing.assert_allclose(step.v * 10.0, expected, atol=1e-14)
    np.testing.assert_allclose(step.q, q + expected, atol=1e-14)


def test_steps_lead_to_the_target_as_pinocchio_sees_it(arm):
    T, q = pose(arm, 3), posture(arm, 4)
    velocity = rg.ik.Velocity(arm, rg.ik.Frame(TIP, T))
    for _ in range(200):
        q = velocity.step(q, DT).q
    robot = arm.to_pinocchio()
    data = robot.createData()
    pin.framesForwardKinematics(robot, data, q)
    np.testing.assert_allclose(data.oMf[robot.getFrameId(TIP)].homogeneous, T, atol=1e-7)


def test_velocities_accelerations_and_positions_stay_within_their_limits(arm):
    T = pose(arm, 5, (20,)) + 0.0
    T[:, :3, 3] *= 3.0  # most are out of reach, so that joints run into their limits
    q, v = posture(arm, 6, (20,)), np.zeros((20, 7))
    velocity = rg.ik.Velocity(
        arm, rg.ik.Frame(TIP, T), [rg.ik.VelocityLimit(1.5), rg.ik.AccelerationLimit(8.0)]
    )
    fastest = strongest = 0.0
    for _ in range(400):
        step = velocity.step(q, DT, v)
        assert ((step.q >= arm.limits.lower) & (step.q <= arm.limits.upper)).all()
        fastest, strongest = (
            max(fastest, abs(step.v).max()),
            max(strongest, abs(step.v - v).max() / DT),
        )
        q, v = step.q, step.v
    assert fastest <= 1.5 * (1 + 1e-12)
    assert strongest <= 8.0 * (1 + 1e-9)
    near = np.minimum(q - arm.limits.lower, arm.limits.upper - q).min()
    assert near < 1e-3, "no joint came to a limit: the claim was not tried"


@pytest.mark.parametrize("acceleration", [None, 10.0])
def test_joints_outside_their_limits_come_back_no_faster_than_they_may(arm, acceleration):
    limits = [rg.ik.VelocityLimit(1.0)]
    limits += [rg.ik.AccelerationLimit(acceleration)] if acceleration else []
    velocity = rg.ik.Velocity(arm, rg.ik.Frame(TIP, pose(arm, 3)), limits)
    q, v = np.zeros(7), np.zeros(7)
    q[1], q[3] = arm.limits.lower[1] - 0.03, arm.limits.upper[3] + 0.1
    for k in range(1, 13):
        step = velocity.step(q, DT, v) if acceleration else velocity.step(q, DT)
        assert step.success and abs(step.v).max() <= 1.0 + 1e-12
        np.testing.assert_allclose(step.q - q, DT * step.v, atol=1e-12)
        q, v = step.q, step.v
        left = max(arm.limits.lower[1] - q[1], 0.0), max(q[3] - arm.limits.upper[3], 0.0)
        np.testing.assert_allclose(left, [max(x - k * DT, 0.0) for x in (0.03, 0.1)], atol=1e-12)


def test_a_frame_stays_on_its_side_of_a_plane_and_away_from_a_point(arm):
    q, goal = np.array([0.0, 0.6, 0.0, -1.2, 0.0, 0.8, 0.0]), np.array([0.5, 0.3, 0.3])
    ball = np.array([0.5, 0.0, 0.6])
    limits = [
        rg.ik.VelocityLimit(),
        rg.ik.Halfspace(TIP, (0, 0, 2.0), 1.0),
        rg.ik.Apart(TIP, ball, 0.2),
    ]
    velocity = rg.ik.Velocity(arm, [rg.ik.Frame(TIP, goal), rg.ik.Posture(q)], limits)
    start = arm.forward_kinematics(q)[TIP][:3, 3]
    assert np.linalg.norm(start - ball) > 0.2 and start[2] > 0.5
    for _ in range(300):
        step = velocity.step(q, DT)
        q = step.q
        p = arm.forward_kinematics(q)[TIP][:3, 3]
        assert step.success
        assert p[2] > 0.5 - 1e-3
        assert np.linalg.norm(p - ball) > 0.2 - 1e-3
    assert p[2] < 0.501, "the plane was not tried"


def test_links_stay_clear_of_a_scene_and_of_each_other(arm):
    robot = arm.with_collisions(
        shapes={
            "iiwa_link_4": [rg.Sphere(0.1)],
            "iiwa_link_6": [rg.Sphere(0.09)],
            TIP: [rg.Sphere(0.05)],
        }
    )
    scene = rg.Scene([rg.Sphere(0.15, (0.55, 0.1, 0.55)), rg.Box((2.0, 2.0, 0.1), (0.0, 0.0, 0.1))])
    q = np.array([[-0.9, 0.6, 0.0, -1.2, 0.0, 0.8, 0.0], [0.9, 0.6, 0.0, -1.2, 0.0, 0.8, 0.0]])
    assert not robot.in_collision(q, scene, margin=0.01).any()
    tasks = [rg.ik.Frame(TIP, (0.55, 0.1, 0.4)), rg.ik.Posture(q, weight=1e-4)]
    velocity = rg.ik.Velocity(robot, tasks, [rg.ik.VelocityLimit(), rg.ik.Clear(scene, 0.01)])
    nearest = np.inf
    for _ in range(200):
        step = velocity.step(q, DT)
        q = step.q
        nearest = min(nearest, robot.distances(q, scene).least.min())
        assert step.success.all()
    assert 0.01 - 2e-3 < nearest < 0.0105, "the margin was not tried, or not kept"
    with pytest.raises(InputError, match="no collision shapes"):
        rg.ik.Velocity(arm, rg.ik.Frame(TIP, np.eye(4)), [rg.ik.Clear(scene)])


def test_frames_keep_apart_from_each_other():
    dog = rg.load("hyq", floating_base=True)
    q = dog.neutral()
    q[7:] = np.clip(0.0, dog.limits.lower[7:], dog.limits.upper[7:])
    feet = ("lf_lowerleg", "rf_lowerleg")
    T = dog.forward_kinematics(q)
    middle = 0.5 * (T[feet[0]][:3, 3] + T[feet[1]][:3, 3])
    tasks = [
        *(rg.ik.Frame(f, middle) for f in feet),
        rg.ik.Frame("base_link_0", T["base_link_0"]),
        rg.ik.Posture(q),
    ]
    velocity = rg.ik.Velocity(dog, tasks, [rg.ik.Apart(*feet, 0.25)])
    for _ in range(200):
        q = velocity.step(q, DT).q
        T = dog.forward_kinematics(q)
        apart = np.linalg.norm(T[feet[0]][:3, 3] - T[feet[1]][:3, 3])
        assert apart > 0.25 - 1e-3
    assert apart < 0.26, "the distance was not tried"
    np.testing.assert_allclose(np.linalg.norm(q[3:7]), 1, atol=1e-9)


def test_a_bound_that_cannot_be_kept_is_told(arm):
    q = posture(arm, 7)
    high = arm.forward_kinematics(q)[TIP][2, 3] + 1.0
    step = rg.ik.Velocity(
        arm, rg.ik.Posture(q), [rg.ik.VelocityLimit(0.1), rg.ik.Halfspace(TIP, (0, 0, 1), high)]
    ).step(q, DT)
    assert not step.success
    assert abs(step.v).max() <= 0.1 * (1 + 1e-12)
    assert np.isfinite(step.q).all()


def test_targets_can_be_set_between_steps_and_not_be_written_into(arm):
    q, task = posture(arm, 8), rg.ik.Frame(TIP, pose(arm, 9))
    velocity = rg.ik.Velocity(arm, task)
    first = velocity.step(q, DT).v
    task.target = pose(arm, 10)
    second = velocity.step(q, DT).v
    assert abs(first - second).max() > 0.1
    np.testing.assert_array_equal(
        second, rg.ik.Velocity(arm, rg.ik.Frame(TIP, pose(arm, 10))).step(q, DT).v
    )
    with pytest.raises(ValueError, match="read-only"):
        task.target[0, 3] = 1.0
    task.target = pose(arm, 10)[:3, 3]  # a point from now on
    np.testing.assert_array_equal(
        velocity.step(q, DT).v,
        rg.ik.Velocity(arm, rg.ik.Frame(TIP, pose(arm, 10)[:3, 3])).step(q, DT).v,
    )


@pytest.mark.parametrize(("seed", "floating"), [(0, True), (3, False), (5, True), (8, False)])
def test_robots_of_all_joint_types_are_led_to_their_targets(seed, floating):
    tree = random_tree(seed, 6, floating=floating, mimic=True)
    slow, oracle, link = tree.robot(), tree.oracle(), tree.moving[-1].child
    robot = rg.Robot(slow.model)
    rng = np.random.default_rng(seed)
    q = tree.random_q(rng, (3,))
    T = np.array(
        [
            oracle.placement(x, link)
            for x in robot.integrate(q, 0.1 * rng.normal(size=(3, robot.nv)))
        ]
    )
    tasks, limits = (
        [rg.ik.Frame(link, T), rg.ik.Posture(q, weight=1e-8)],
        [rg.ik.VelocityLimit(1.0)],
    )
    velocity = rg.ik.Velocity(robot, tasks, limits)
    same = rg.ik.Velocity(slow, tasks, limits).step(q, 0.02)  # by NumPy
    np.testing.assert_allclose(velocity.step(q, 0.02).v, same.v, atol=1e-7)
    for _ in range(120):
        step = velocity.step(q, 0.02)
        assert step.success.all()
        q = step.q
    np.testing.assert_allclose(
        [oracle.placement(x, link) for x in q], T, atol=1e-4, err_msg=str(tree)
    )


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 17])
def test_rows_of_a_batch_are_single_steps(arm, n):
    q, T = posture(arm, 11, (17,)), pose(arm, 12, (17,))
    velocity = rg.ik.Velocity(arm, [rg.ik.Frame(TIP, T), rg.ik.Posture(np.zeros(7))])
    whole = velocity.step(q, DT)
    velocity.tasks[0].target = T[:n]
    part = velocity.step(q[:n], DT)
    assert part.v.shape == (n, 7)
    np.testing.assert_array_equal(part.v, whole.v[:n])
    np.testing.assert_array_equal(part.q, whole.q[:n])


@pytest.mark.parametrize("strong", [False, True])
def test_one_robot_takes_the_step_that_it_takes_in_a_batch(arm, strong):
    """One state goes straight into native code; what it is given as a list or in a batch does
    not.
    """
    q, T = posture(arm, 17, (40,)), pose(arm, 18, (40,))
    v = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 7))
    limits = [rg.ik.VelocityLimit(1.0), rg.ik.Halfspace(TIP, (0, 0, 1), 0.6)]
    limits += [rg.ik.AccelerationLimit(20.0)] if strong else []
    task = rg.ik.Frame(TIP, T, gain=0.8)
    velocity = rg.ik.Velocity(arm, [task, rg.ik.Posture(np.zeros(7))], limits)
    whole = velocity.step(q, DT, v)
    assert not whole.success.all() and whole.success.any()
    for k in range(40):
        task.target = T[k]
        for given in ((q[k], DT, v[k]), (q[k].tolist(), DT, v[k].tolist())):
            step = velocity.step(*given)
            np.testing.assert_array_equal(step.v, whole.v[k])
            np.testing.assert_array_equal(step.q, whole.q[k])
            assert step.success == whole.success[k]
            assert step.v.shape == step.q.shape == (7,)
    first, second = velocity.step(q[0], DT, v[0]), velocity.step(q[1], DT, v[1])
    assert not np.shares_memory(first.q, second.q)


def test_weights_and_gains_of_a_task_can_be_set_between_steps(arm):
    q, T = posture(arm, 19), pose(arm, 20)
    tasks = rg.ik.Frame(TIP, T), rg.ik.Posture(np.zeros(7), weight=0.1)
    velocity = rg.ik.Velocity(arm, tasks)
    velocity.step(q, DT)
    for name, value in (("weight", (2.0, 0.5)), ("gain", 0.25), ("target", pose(arm, 22))):
        setattr(tasks[0], name, value)
        velocity.step(q, DT)
    tasks[1].weight = 0.7
    same = rg.ik.Velocity(
        arm,
        [
            rg.ik.Frame(TIP, pose(arm, 22), weight=(2.0, 0.5), gain=0.25),
            rg.ik.Posture(np.zeros(7), weight=0.7),
        ],
    )
    np.testing.assert_array_equal(velocity.step(q, DT).v, same.step(q, DT).v)


def test_axes_broadcast_and_float32_stays(arm):
    velocity = rg.ik.Velocity(arm, rg.ik.Frame(TIP, pose(arm, 13, (3, 1))))
    step = velocity.step(posture(arm, 14, (4,)), DT)
    assert step.v.shape == step.q.shape == (3, 4, 7)
    assert step.success.shape == (3, 4)
    single = velocity.step(posture(arm, 14, (4,)).astype(np.float32), DT)
    assert single.v.dtype == single.q.dtype == np.float32
    np.testing.assert_allclose(single.q, step.q, atol=1e-5)


def test_nan_stays_in_its_row(arm):
    q, T = posture(arm, 15, (9,)), pose(arm, 16)
    velocity = rg.ik.Velocity(arm, rg.ik.Frame(TIP, T))
    clean = velocity.step(q, DT)
    q[4, 2] = np.nan
    step = velocity.step(q, DT)
    others = np.arange(9) != 4
    np.testing.assert_array_equal(step.v[others], clean.v[others])
    assert np.isnan(step.v[4]).any()
    assert not step.success[4]


# --- bad input ------------------------------------------------------------------------------------


def test_bad_input_is_refused(arm):
    task, q = rg.ik.Frame(TIP, np.eye(4)), arm.neutral()
    for make, message in [
        (lambda: rg.ik.Velocity(arm, []), "a task"),
        (lambda: rg.ik.Velocity(arm, [np.eye(4)]), "one of rg.ik"),
        (lambda: rg.ik.Velocity(arm, task, [3.0]), "one of rg.ik"),
        (lambda: rg.ik.Velocity(arm, task, [rg.ik.VelocityLimit(-1.0)]), "positive"),
        (lambda: rg.ik.Velocity(arm, task, [rg.ik.VelocityLimit([1.0, 2.0])]), "velocity limit"),
        (lambda: rg.ik.Velocity(arm, task, damping=0.0), "damping"),
        (lambda: rg.ik.Velocity(arm, rg.ik.Frame(TIP, np.eye(4), gain=2.0)), "gain"),
        (lambda: rg.ik.Halfspace(TIP, (0, 0, 0)), "normal"),
        (lambda: rg.ik.Velocity(arm, task, [rg.ik.Apart(TIP, "iiwa_link_7", 0.1)]), "same body"),
        (lambda: rg.ik.Velocity(arm, task).step(q, 0.0), "dt"),
        (lambda: rg.ik.Velocity(arm, task).step(q[:3], DT), "q has shape"),
        (lambda: rg.ik.Velocity(arm, task).step(q, float("nan")), "dt"),
        (lambda: rg.ik.Velocity(arm, task).step(q + 0j, DT), "complex"),
        (
            lambda: rg.ik.Velocity(arm, task, [rg.ik.AccelerationLimit(1.0)]).step(q, DT, q[:1]),
            "v has shape",
        ),
        (
            lambda: rg.ik.Velocity(arm, task, [rg.ik.AccelerationLimit(1.0)]).step(q, DT),
            "velocity before",
        ),
        (lambda: arm.inverse_kinematics(rg.ik.Posture(q)), "posture="),
    ]:
        with pytest.raises(InputError, match=message):
            make()
    velocity = rg.ik.Velocity(arm, task)
    velocity.step(q, DT)
    for target, message in ((np.ones((4, 4)), "last row"), (np.eye(5), "a pose")):
        task.target = target
        with pytest.raises(InputError, match=message):
            velocity.step(q, DT)
    with pytest.raises(UnknownNameError, match="iiwa_joint_1"):
        rg.ik.Velocity(arm, task, [rg.ik.VelocityLimit({"iiwa_joint_11": 1.0})])
