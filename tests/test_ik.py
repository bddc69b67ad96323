"""Inverse kinematics: Pinocchio's kinematics of what is returned, limits, batches, what cannot be
reached, and bad input.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.errors import InputError, UnknownNameError

pin = pytest.importorskip("pinocchio")

TIP = "iiwa_link_ee"
TOLERANCE = 1e-6  # the default, in metres and radians
BOTH = 1.01 * TOLERANCE  # two libraries' kinematics differ by rounding


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


@pytest.fixture(scope="module")
def oracle():
    path = Path(rg.__file__).parent / "model/robots/iiwa14.urdf"
    model = pin.buildModelFromUrdf(str(path))
    return model, model.createData()


def reachable(robot, frame, n, seed=0):
    """Poses of a frame in random configurations, and these."""
    q = robot.random((n,), seed=seed).q
    return robot.forward_kinematics(q)[frame], q


def misses(found, wanted):
    """How far placements (…, 4, 4) are from others: metres and radians."""
    turned = np.swapaxes(found[..., :3, :3], -1, -2) @ wanted[..., :3, :3]
    w = np.stack(
        [
            turned[..., 2, 1] - turned[..., 1, 2],
            turned[..., 0, 2] - turned[..., 2, 0],
            turned[..., 1, 0] - turned[..., 0, 1],
        ],
        -1,
    )
    angle = np.arctan2(np.linalg.norm(w, axis=-1), np.trace(turned, axis1=-2, axis2=-1) - 1)
    return np.linalg.norm(found[..., :3, 3] - wanted[..., :3, 3], axis=-1), angle


def inside(robot, q):
    return bool(((q >= robot.limits.lower) & (q <= robot.limits.upper)).all())


# --- reaching -------------------------------------------------------------------------------------


def test_random_poses_are_reached_as_pinocchio_sees_it(arm, oracle):
    T, _ = reachable(arm, TIP, 1000)
    r = arm.inverse_kinematics({TIP: T})
    assert r.success.mean() > 0.998
    model, data = oracle
    for q, wanted, ok in zip(r.q, T, r.success, strict=True):
        pin.framesForwardKinematics(model, data, q)
        meters, radians = misses(data.oMf[model.getFrameId(TIP)].homogeneous, wanted)
        assert (max(meters, radians) <= BOTH) == ok
    assert inside(arm, r.q)


def test_a_pose_alone_is_one_of_the_tool(arm):
    T, _ = reachable(arm, TIP, 3)
    np.testing.assert_array_equal(arm.inverse_kinematics(T).q, arm.inverse_kinematics({TIP: T}).q)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("floating", [False, True])
def test_robots_of_all_joint_types_reach_where_they_have_been(seed, floating):
    tree = random_tree(seed, 7, floating=floating, mimic=True)
    robot, oracle = tree.robot(), tree.oracle()
    link = tree.moving[-1].child
    q = tree.random_q(np.random.default_rng(seed), (6,))
    T = np.array([oracle.placement(x, link) for x in q])
    r = robot.inverse_kinematics({link: T}, seeds=96)
    for k in range(6):
        meters, radians = misses(oracle.placement(r.q[k], link), T[k])
        assert (max(meters, radians) <= BOTH) == r.success[k], str(tree)
    assert r.success.mean() >= 4 / 6, str(tree)
    for direction in robot.model.directions:
        np.testing.assert_allclose(np.linalg.norm(r.q[:, direction.q], axis=1), 1, atol=1e-9)


def test_points_leave_the_rotation_free(arm):
    T, _ = reachable(arm, TIP, 50)
    r = arm.inverse_kinematics({TIP: T[:, :3, 3]})
    assert r.success.all()
    np.testing.assert_allclose(arm.forward_kinematics(r.q)[TIP][:, :3, 3], T[:, :3, 3], atol=BOTH)
    assert (r.rotation_error == 0).all()


@pytest.mark.parametrize(("free", "kept"), [("rz", 2), ("rx", 0), ("ry", 1)])
def test_a_rotation_that_is_free_leaves_its_axis_where_it_is_to_be(arm, free, kept):
    T, _ = reachable(arm, TIP, 50, seed=1)
    r = arm.inverse_kinematics({TIP: T}, free=free)
    assert r.success.all()
    found = arm.forward_kinematics(r.q)[TIP]
    np.testing.assert_allclose(found[:, :3, kept], T[:, :3, kept], atol=BOTH)
    np.testing.assert_allclose(found[:, :3, 3], T[:, :3, 3], atol=BOTH)
    assert misses(found, T)[1].max() > 0.1, "the rotation was not free"


def test_axes_that_are_free_are_those_of_the_target(arm):
    T, _ = reachable(arm, TIP, 50, seed=2)
    r = arm.inverse_kinematics([rg.ik.Frame(TIP, T, free=("z", "rotation"))])
    assert r.success.all()
    off = np.einsum(
        "nji,nj->ni", T[:, :3, :3], arm.forward_kinematics(r.q)[TIP][:, :3, 3] - T[:, :3, 3]
    )
    assert np.abs(off[:, :2]).max() < BOTH
    assert np.abs(off[:, 2]).max() > 0.01


def test_an_offset_is_a_point_of_the_frame(arm):
    T, _ = reachable(arm, TIP, 20)
    r = arm.inverse_kinematics(rg.ik.Frame(TIP, T[:, :3, 3], offset=(0.0, 0.1, 0.2)))
    found = arm.forward_kinematics(r.q)[TIP] @ [0.0, 0.1, 0.2, 1.0]
    assert r.success.mean() > 0.9
    np.testing.assert_allclose(found[r.success, :3], T[r.success, :3, 3], atol=BOTH)


def test_opposite_directions_are_no_solution(arm):
    T, q = reachable(arm, TIP, 20, seed=3)
    r = arm.inverse_kinematics({TIP: T @ np.diag([1.0, -1.0, -1.0, 1.0])}, q, seeds=1, iterations=4)
    np.testing.assert_array_less(np.where(r.success, 0, 1e-3), r.error + 1e-9)
    again = arm.inverse_kinematics({TIP: T}, q)
    assert again.success.all()
    for k in np.flatnonzero(r.success):
        assert (
            misses(arm.forward_kinematics(r.q[k])[TIP], T[k] @ np.diag([1.0, -1.0, -1.0, 1.0]))[1]
            < BOTH
        )


# --- several tasks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dog():
    return rg.load("hyq", floating_base=True)


FEET = ("lf_lowerleg", "rf_lowerleg", "lh_lowerleg", "rh_lowerleg")


def test_several_frames_of_a_floating_base_are_reached_at_once(dog):
    q = dog.random((64,), seed=4).q
    T = dog.forward_kinematics(q)
    r = dog.inverse_kinematics(
        {**{f: T[f][:, :3, 3] for f in FEET}, "base_link_0": T["base_link_0"]}
    )
    assert r.success.mean() > 0.95
    found = dog.forward_kinematics(r.q[r.success])
    for f in FEET:
        np.testing.assert_allclose(found[f][:, :3, 3], T[f][r.success, :3, 3], atol=BOTH)
    assert misses(found["base_link_0"], T["base_link_0"][r.success])[1].max() < BOTH
    assert inside(dog, r.q)


def test_the_centre_of_mass_comes_over_a_point(dog):
    q = dog.random((16,), seed=5).q
    feet = {f: dog.forward_kinematics(q)[f][:, :3, 3] for f in FEET}
    goal = dog.center_of_mass(q) + [0.0, 0.0, 5.0]
    tasks = [rg.ik.Frame(f, p) for f, p in feet.items()] + [rg.ik.CenterOfMass(goal, free="z")]
    r = dog.inverse_kinematics(tasks, q)
    assert r.success.all()
    np.testing.assert_allclose(dog.center_of_mass(r.q)[:, :2], goal[:, :2], atol=BOTH)


def test_an_axis_looks_at_a_point(arm):
    points = np.random.default_rng(6).uniform(-2, 2, (40, 3))
    r = arm.inverse_kinematics(rg.ik.LookAt(TIP, points, axis=(0, 1, 1)))
    assert r.success.all()
    T = arm.forward_kinematics(r.q)[TIP]
    d = points - T[:, :3, 3]
    cross = np.cross(
        T[:, :3, :3] @ np.array([0, 1, 1]) / 2**0.5, d / np.linalg.norm(d, axis=1, keepdims=True)
    )
    assert np.linalg.norm(cross, axis=1).max() < BOTH
    assert (np.einsum("ni,ni->n", T[:, :3, :3] @ np.array([0, 1, 1]), d) > 0).all()


def test_a_frame_can_be_placed_in_another_one(dog):
    q = dog.random((12,), seed=7).q
    T = dog.forward_kinematics(q)
    relative = np.linalg.inv(T["lf_lowerleg"]) @ T["base_link_0"]
    r = dog.inverse_kinematics(rg.ik.Frame("base_link_0", relative, base="lf_lowerleg"))
    assert r.success.mean() > 0.8
    found = dog.forward_kinematics(r.q[r.success])
    meters, radians = misses(
        np.linalg.inv(found["lf_lowerleg"]) @ found["base_link_0"], relative[r.success]
    )
    assert max(meters.max(), radians.max()) < BOTH


def test_weights_decide_where_targets_contradict_each_other(arm):
    here, there = np.array([0.3, 0.0, 0.8]), np.array([0.5, 0.0, 0.8])
    point = "iiwa_link_7"
    arms = arm.add_frame("same", point)

    def meet(weights):
        r = arms.inverse_kinematics({point: here, "same": there}, weights=weights)
        assert not r.success
        return arms.forward_kinematics(r.q)[point][:3, 3]

    np.testing.assert_allclose(meet(None), 0.5 * (here + there), atol=1e-3)
    np.testing.assert_allclose(meet({"same": 9.0}), 0.1 * here + 0.9 * there, atol=1e-3)


def test_a_posture_is_approached_as_far_as_the_target_allows(arm):
    T, q = reachable(arm, TIP, 20, seed=8)
    lower, upper = arm.limits.lower, arm.limits.upper
    rest = np.clip(q + 0.2, 0.9 * lower, 0.9 * upper)
    r = arm.inverse_kinematics({TIP: T}, q, posture=rest)
    assert r.success.all()
    assert (np.linalg.norm(r.q - rest, axis=1) <= np.linalg.norm(q - rest, axis=1) + 1e-6).all()
    free = ((r.q > lower + 1e-6) & (r.q < upper - 1e-6)).all(axis=1)
    assert free.sum() > 10
    for k in np.flatnonzero(free):  # nothing is left of the way to the posture along the null space
        J = arm.jacobian(r.q[k], TIP)
        null = np.linalg.svd(J)[2][-1]
        assert abs(null @ (rest[k] - r.q[k])) < 1e-4


# --- limits, and what cannot be reached -----------------------------------------------------------


def test_what_cannot_be_reached_says_so_with_the_nearest(arm):
    shoulder, reach = np.array([0.0, 0.0, 0.36]), 0.0
    direction = np.array([0.6, 0.0, 0.8])
    r = arm.inverse_kinematics({TIP: shoulder + 3.0 * direction})
    assert not r.success
    tip = arm.forward_kinematics(r.q)[TIP][:3, 3]
    reach = np.linalg.norm(arm.forward_kinematics(arm.neutral())[TIP][:3, 3] - shoulder)
    assert abs(r.error - (3.0 - reach)) < 1e-3, "stretched out, the arm comes as near as it can"
    np.testing.assert_allclose(np.linalg.norm(tip - shoulder - 3.0 * direction), r.error, rtol=1e-9)
    assert inside(arm, r.q)


def test_limits_hold_exactly_where_targets_lie_beyond_them():
    narrow = (
        rg.Builder("narrow")
        .link("base")
        .link("a", mass=1, inertia=np.eye(3))
        .link("b", mass=1, inertia=np.eye(3))
    )
    narrow = narrow.joint(
        "j1", "revolute", "base", "a", axis=(0, 0, 1), limit={"lower": -0.1, "upper": 0.3}
    )
    robot = narrow.joint(
        "j2", "prismatic", "a", "b", axis=(1, 0, 0), limit={"lower": 0.5, "upper": 1.0}
    ).build()
    far = robot.inverse_kinematics({"b": [0.0, 2.0, 0.0]})
    assert not far.success
    assert inside(robot, far.q)
    assert far.q[0] == 0.3
    within = robot.inverse_kinematics({"b": [0.6, 0.1, 0.0]})
    assert within.success
    np.testing.assert_allclose(within.q, [np.arctan2(0.1, 0.6), np.hypot(0.1, 0.6)], atol=BOTH)


def test_float32_comes_back_as_float32_within_limits_and_tolerance(arm):
    T, _ = reachable(arm, TIP, 300, seed=9)
    r = arm.inverse_kinematics({TIP: T.astype(np.float32)})
    assert r.q.dtype == r.error.dtype == np.float32
    assert ((r.q.astype(float) >= arm.limits.lower) & (r.q.astype(float) <= arm.limits.upper)).all()
    meters, radians = misses(
        arm.forward_kinematics(r.q.astype(float))[TIP], T.astype(np.float32).astype(float)
    )
    assert max(meters[r.success].max(), radians[r.success].max()) < 1.1 * TOLERANCE
    assert r.success.mean() > 0.99


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 63, 64, 65])
def test_a_row_is_the_same_bits_in_a_batch_of_any_size(arm, n):
    T, _ = reachable(arm, TIP, 65, seed=10)
    T[3, :3, 3] += 10.0  # one that is out of reach
    whole, part = (
        arm.inverse_kinematics({TIP: T}, seeds=12),
        arm.inverse_kinematics({TIP: T[:n]}, seeds=12),
    )
    assert part.q.shape == (n, 7)
    for name in ("q", "success", "error", "iterations"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[:n])


def test_batch_axes_broadcast(arm):
    T, q = reachable(arm, TIP, 6, seed=11)
    r = arm.inverse_kinematics({TIP: T.reshape(2, 3, 4, 4)}, q[:3])
    assert r.q.shape == (2, 3, 7)
    assert r.success.shape == r.error.shape == r.iterations.shape == (2, 3)
    np.testing.assert_array_equal(r.q[1, 2], arm.inverse_kinematics({TIP: T[5]}, q[2]).q)


def test_nan_targets_stay_in_their_row(arm):
    T, _ = reachable(arm, TIP, 9, seed=12)
    clean = arm.inverse_kinematics({TIP: T})
    T[4, 1, 3] = np.nan
    r = arm.inverse_kinematics({TIP: T})
    assert np.isnan(r.q[4]).all()
    assert np.isnan(r.error[4])
    assert not r.success[4]
    others = np.arange(9) != 4
    np.testing.assert_array_equal(r.q[others], clean.q[others])


def test_the_same_call_gives_the_same_bits_and_another_seed_another_solution(arm):
    T, _ = reachable(arm, TIP, 20, seed=13)
    first, again = arm.inverse_kinematics({TIP: T}), arm.inverse_kinematics({TIP: T})
    np.testing.assert_array_equal(first.q, again.q)
    other = arm.inverse_kinematics({TIP: T}, seed=5)
    assert other.success.all()
    assert np.abs(other.q - first.q).max(axis=1).min() > 0
    assert np.abs(other.q - first.q).max() > 0.1


# --- starts and several solutions -----------------------------------------------------------------


def test_a_start_next_to_a_solution_leads_to_that_one(arm):
    T, q = reachable(arm, TIP, 100, seed=14)
    q = np.clip(q, 0.95 * arm.limits.lower, 0.95 * arm.limits.upper)
    T = arm.forward_kinematics(q)[TIP]
    r = arm.inverse_kinematics({TIP: T}, q + 0.01)
    assert r.success.all()
    assert np.median(np.abs(r.q - q).max(axis=1)) < 0.05


def test_given_seeds_are_the_only_starts(arm):
    T, q = reachable(arm, TIP, 4, seed=15)
    r = arm.inverse_kinematics({TIP: T}, seeds=np.stack([q + 0.02, q - 0.02], axis=1))
    assert r.success.all()
    stuck = arm.inverse_kinematics(
        {TIP: T + np.diag([0, 0, 0, 0.0])}, seeds=arm.neutral()[None], iterations=4
    )
    assert (stuck.iterations <= 4).all()


def test_several_solutions_differ_and_all_arrive(arm):
    from rigidgrad.ik.several import _APART

    T, q = reachable(arm, TIP, 5, seed=16)
    r = arm.inverse_kinematics({TIP: T}, q, best=4)
    assert r.q.shape == (5, 4, 7)
    assert r.success.shape == (5, 4)
    assert r.success.sum() >= 15
    for solutions, ok in zip(r.q, r.success, strict=True):
        apart = np.abs(solutions[ok, None] - solutions[None, ok]).max(axis=2)[
            ~np.eye(ok.sum(), dtype=bool)
        ]
        assert apart.min() > _APART
    distance = np.linalg.norm(r.q - q[:, None], axis=2)
    assert (np.diff(np.where(r.success, distance, np.inf), axis=1)[:, 0] >= 0).all(), (
        "the nearest to the start is first"
    )
    found = arm.forward_kinematics(r.q)[TIP]
    meters, radians = misses(found, np.broadcast_to(T[:, None], found.shape))
    assert max(meters[r.success].max(), radians[r.success].max()) < BOTH


def test_both_engines_find_the_same(arm):
    T, _ = reachable(arm, TIP, 3, seed=17)
    slow = rg.load("iiwa14", engine="numpy").inverse_kinematics({TIP: T}, seeds=4)
    fast = arm.inverse_kinematics({TIP: T}, seeds=4)
    np.testing.assert_array_equal(slow.success, fast.success)
    np.testing.assert_allclose(slow.q, fast.q, atol=1e-6)


def test_what_is_rejected_is_no_solution(arm):
    T, _ = reachable(arm, TIP, 60, seed=18)

    def low(q):
        """The elbow below 0.6 m."""
        return arm.forward_kinematics(q)["iiwa_link_4"][:, 2, 3] < 0.6

    free, kept = arm.inverse_kinematics({TIP: T}), arm.inverse_kinematics({TIP: T}, reject=low)
    assert low(free.q).sum() > 5, "the claim was not tried"
    assert not low(kept.q[kept.success]).any()
    assert kept.success.sum() > 30
    np.testing.assert_array_equal(kept.q[~low(free.q)], free.q[~low(free.q)])
    single = arm.inverse_kinematics({TIP: T[0]}, reject=low)
    np.testing.assert_array_equal(single.q, kept.q[0])
    several = arm.inverse_kinematics({TIP: T[:3]}, best=3, reject=low)
    assert not low(several.q[several.success]).any()
    nothing = arm.inverse_kinematics({TIP: T[:3]}, reject=lambda q: np.ones(len(q), bool))
    assert not nothing.success.any()
    assert (nothing.error < TOLERANCE).all(), "reached, and refused"


@pytest.fixture(scope="module")
def solid(arm):
    """The arm with balls along its links, and things around it."""
    shapes = {
        "iiwa_link_3": [rg.Sphere(0.12)],
        "iiwa_link_4": [rg.Sphere(0.1)],
        "iiwa_link_6": [rg.Sphere(0.09)],
        TIP: [rg.Sphere(0.05)],
    }
    scene = rg.Scene([rg.Sphere(0.25, (0.45, 0.0, 0.75)), rg.Box((3.0, 3.0, 0.1), (0.0, 0.0, 0.1))])
    return arm.with_collisions(shapes=shapes), scene


def test_solutions_keep_clear_of_a_scene(solid):
    robot, scene = solid
    q = robot.random((400,), seed=19).q
    T = robot.forward_kinematics(q[~robot.in_collision(q, scene, margin=0.02)])[TIP]
    blind, safe = (
        robot.inverse_kinematics({TIP: T}),
        robot.inverse_kinematics({TIP: T}, scene=scene, margin=0.02),
    )
    assert robot.in_collision(blind.q, scene, margin=0.02).mean() > 0.1, "the claim was not tried"
    assert safe.success.mean() > 0.98
    centers = {"iiwa_link_3": 0.12, "iiwa_link_4": 0.1, "iiwa_link_6": 0.09, TIP: 0.05}
    placed = robot.forward_kinematics(safe.q[safe.success])
    for link, radius in centers.items():
        away = np.linalg.norm(placed[link][:, :3, 3] - (0.45, 0.0, 0.75), axis=1)
        assert away.min() > 0.25 + radius + 0.02 - 1e-9
    both = robot.inverse_kinematics({TIP: T[:9]}, scene=scene, reject=lambda q: q[:, 0] > 0)
    assert (both.q[both.success, 0] <= 0).all()


def test_a_robot_without_shapes_cannot_keep_clear(arm):
    with pytest.raises(InputError, match="no collision shapes"):
        arm.inverse_kinematics({TIP: np.eye(4)}, scene=rg.Scene())


def test_a_margin_needs_a_scene_to_be_kept_from(arm):
    with pytest.raises(InputError, match="no scene to keep away from"):
        arm.inverse_kinematics({TIP: np.eye(4)}, margin=0.02)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({TIP: np.zeros(2)},), "a pose"),
        (({TIP: "here"},), "numbers"),
        (({TIP: 2 * np.eye(4)},), "last row"),
        (({TIP: np.diag([2.0, 1, 1, 1])},), "rotation"),
        (({TIP: np.diag([-1.0, 1, 1, 1])},), "rotation"),
        (({},), "nothing to reach"),
        (({"base": np.eye(4)},), "does not move"),
        (({TIP: np.eye(4)}, np.zeros(3)), "start has shape"),
        ((np.zeros((2, 4, 4)) + np.eye(4), np.zeros((3, 7))), "broadcast"),
    ],
)
def test_bad_targets_and_starts_are_refused(arm, arguments, message):
    with pytest.raises(InputError, match=message):
        arm.inverse_kinematics(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": "fine"}, "tolerance"),
        ({"tolerance": (1e-3, 1e-3, 1e-3)}, "tolerance"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": np.zeros((2, 3))}, "seeds"),
        ({"best": 0}, "best"),
        ({"best": 65}, "from 1 to 64"),
        ({"seeds": 10**9}, "from 1 to 65536"),
        ({"reject": 3}, "reject"),
        ({"reject": lambda q: True}, "reject"),
        ({"iterations": 1.5}, "iterations"),
        ({"seed": -1}, "seed"),
        ({"weights": -1.0}, "weight"),
        ({"weights": {"elbow": 1.0}}, "elbow"),
        ({"free": "rx ry"}, "one axis"),
        ({"free": "position rotation"}, "all axes"),
        ({"posture": np.zeros(3)}, "posture"),
    ],
)
def test_bad_options_are_refused(arm, options, message):
    with pytest.raises(InputError, match=message):
        arm.inverse_kinematics({TIP: reachable(arm, TIP, 1)[0][0]}, **options)


def test_unknown_names_are_told_the_nearest(arm):
    with pytest.raises(UnknownNameError, match="iiwa_link_ee"):
        arm.inverse_kinematics({"iiwa_link_e": np.eye(4)})
    with pytest.raises(InputError, match="rz"):
        arm.inverse_kinematics({TIP: np.eye(4)}, free="yaw")


def test_tasks_carry_their_own_weights(arm):
    with pytest.raises(InputError, match="weight="):
        arm.inverse_kinematics(rg.ik.Frame(TIP, np.eye(4)), weights=2.0)
