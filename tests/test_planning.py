"""Planned motions: free by coal's word at every millimetre, within their limits, the same for a
seed; and what cannot be planned says why.
"""

from __future__ import annotations

from pathlib import Path

import coal_oracle
import numpy as np
import pinocchio as pin
import pytest
from coal_oracle import of_capsule, of_shape

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.planning.space import Space, travel

coal = coal_oracle.coal
ROBOTS = next(
    (
        p / "share/example-robot-data/robots"
        for p in Path(pin.__file__).parents
        if p.name == "cmeel.prefix"
    ),
    Path("nowhere"),
)
PANDA = ROBOTS / "panda_description/urdf/panda_collision.urdf"
IIWA = {
    "iiwa_link_2": [rg.Capsule(0.08, start=(0, 0, -0.05), end=(0, 0.2, 0))],
    "iiwa_link_3": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
    "iiwa_link_5": [rg.Capsule(0.06, start=(0, 0, 0), end=(0, 0, 0.2))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))],
}
SHELF = rg.Scene(
    [
        rg.Box((0.4, 1.2, 0.03), (0.65, 0, 0.35), name="lower board"),
        rg.Box((0.4, 1.2, 0.03), (0.65, 0, 0.8), name="upper board"),
        rg.Box((0.4, 0.03, 0.48), (0.65, 0, 0.575), name="wall"),
        rg.Plane(offset=-0.1),
    ]
)


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(shapes=IIWA)


def free(robot, scene, count, seed, margin=0.01):
    q = robot.random(50 * count, seed=seed).q
    return q[~robot.in_collision(q, scene, margin=margin)][:count]


def touches_by_coal(robot, q, scene) -> bool:
    shapes = {}
    for link in robot.collisions.links:
        frame = robot.model.frames[link.link]
        T = robot.forward_kinematics(q)[link.link] @ np.linalg.inv(frame.placement.matrix())
        shapes[link.link] = [
            of_capsule(e.radius, *(T[:3, :3] @ p + T[:3, 3] for p in (e.start, e.end)))
            for e in link.elements
        ]
    world = [of_shape(s) for s in scene.shapes]
    request = coal.CollisionRequest()

    def hit(one, other):
        return coal.collide(*one, *other, request, coal.CollisionResult())

    return any(
        hit(a, b) for link in robot.collisions.moving for a in shapes[link] for b in world
    ) or any(
        hit(a, b) for i, j in robot.collisions.self_pairs for a in shapes[i] for b in shapes[j]
    )


def fine(robot, path, most):
    """States of a path between which no point moves more than `most` metres."""
    space = Space(robot)
    for a, b in zip(path.corners[:-1], path.corners[1:], strict=True):
        way = space.difference(a, b)
        n = int(np.ceil(np.abs(way) @ space.weights / most))
        yield from (space.moved(a, t * way) for t in np.linspace(0, 1, n + 1))


def test_every_state_of_a_path_is_free_by_coal(arm):
    q = free(arm, SHELF, 8, seed=1)
    hard = 0
    for a, b in zip(q[::2], q[1::2], strict=True):
        path = rg.plan(arm, a, b, SHELF)
        assert path.status == "solved"
        assert path.advice == ""
        assert np.array_equal(path.q[0], a)
        assert np.array_equal(path.q[-1], b)
        assert not any(touches_by_coal(arm, x, SHELF) for x in [*fine(arm, path, 0.004), *path.q])
        assert not arm.in_collision(np.array(list(fine(arm, path, 0.001))), SHELF).any()
        hard += len(path.corners) > 2
    assert hard  # a straight line was not always enough


@pytest.mark.skipif(not PANDA.is_file(), reason="example-robot-data is not installed")
def test_a_panda_plans_with_the_shapes_of_its_file():
    robot = rg.load(PANDA).reduced(lock={"panda_finger_joint1": 0.02})
    scene = rg.Scene(
        [
            rg.Box((1.0, 1.6, 0.05), (0.75, 0, -0.05)),
            rg.Box((0.1, 0.1, 0.6), (0.5, 0.3, 0.3)),
            rg.Box((0.1, 0.4, 0.3), (0.5, -0.3, 0.15)),
        ]
    )
    q = free(robot, scene, 40, seed=2)
    paths = [rg.plan(robot, a, b, scene) for a, b in zip(q[::2], q[1::2], strict=True)]
    assert all(p.solved for p in paths)
    longest = max(paths, key=lambda p: len(p.corners))
    assert not any(touches_by_coal(robot, x, scene) for x in list(fine(robot, longest, 0.02)))


def test_motions_keep_limits_of_velocity_and_acceleration_and_stop_at_corners(arm):
    q = free(arm, SHELF, 2, seed=5)
    path = rg.plan(arm, q[0], q[1], SHELF, velocity=1.5, acceleration=3.0, dt=0.001)
    assert path.solved
    assert np.abs(path.v).max() <= 1.5 * (1 + 1e-9)
    slopes = np.diff(path.v, axis=0)[:-1] / 0.001
    assert np.abs(slopes).max() <= 3.0 * (1 + 1e-6)
    moved = np.diff(path.q, axis=0)[:-1]
    # q is what v adds up to
    assert np.abs(moved - 0.001 * (path.v[:-2] + path.v[1:-1]) / 2).max() < 3.0 * 0.001**2
    assert np.all(path.v[0] == 0)
    assert np.allclose(path.v[-1], 0, atol=1e-9)
    assert np.all(np.diff(path.time) > 0)
    # the slowest joint is at one of its two limits: nothing faster along these lines
    way = np.abs(np.diff(path.corners, axis=0))
    ramp = np.minimum(
        (1.5 / way).min(axis=1) / (3.0 / way).min(axis=1), 1 / np.sqrt((3.0 / way).min(axis=1))
    )
    assert path.duration == pytest.approx((1 / ((3.0 / way).min(axis=1) * ramp) + ramp).sum())
    standard = rg.plan(arm, q[0], q[1], SHELF)
    assert (np.abs(standard.v) <= arm.limits.velocity * (1 + 1e-9)).all()


def test_a_seed_gives_the_same_path(arm):
    q = free(arm, SHELF, 8, seed=1)
    one, again = (rg.plan(arm, q[0], q[1], SHELF, seed=3, seconds=60) for _ in range(2))
    assert np.array_equal(one.q, again.q)


def test_a_goal_may_be_several_positions_or_a_pose(arm):
    q = free(arm, SHELF, 6, seed=7)
    path = rg.plan(arm, q[0], q[1:], SHELF)
    assert path.solved
    assert (path.corners[-1] == q[1:]).all(axis=1).any()
    blocked = arm.random(2000, seed=9).q
    blocked = blocked[arm.in_collision(blocked, SHELF)][:3]
    assert np.array_equal(rg.plan(arm, q[0], np.vstack([blocked, q[1:2]]), SHELF).corners[-1], q[1])
    T = arm.forward_kinematics(q[2])["iiwa_link_ee"]
    path = rg.plan(arm, q[0], {"iiwa_link_ee": T}, SHELF)
    assert path.solved
    assert np.abs(arm.forward_kinematics(path.q[-1])["iiwa_link_ee"] - T).max() < 1e-5
    far = T.copy()
    far[:3, 3] = (9, 9, 9)
    assert rg.plan(arm, q[0], {"iiwa_link_ee": far}, SHELF).status == "goal out of reach"


def test_a_goal_may_be_several_poses_or_a_mixture(arm):
    q = free(arm, SHELF, 4, seed=7)
    T = arm.forward_kinematics(q[1:3])["iiwa_link_ee"]
    far = T[:1].copy()
    far[:, :3, 3] = 9.0
    for goal in (
        {"iiwa_link_ee": np.concatenate([far, T])},
        [{"iiwa_link_ee": far[0]}, {"iiwa_link_ee": T}, q[3]],
        [{"iiwa_link_ee": T[0]}, q[2:]],
    ):
        path = rg.plan(arm, q[0], goal, SHELF)
        assert path.solved
        there = arm.forward_kinematics(path.q[-1])["iiwa_link_ee"]
        known = np.concatenate([T, arm.forward_kinematics(q[2:])["iiwa_link_ee"]])
        assert np.abs(known - there).max(axis=(1, 2)).min() < 1e-5


def test_a_pose_most_of_whose_positions_touch_is_reached_by_those_that_do_not(arm):
    """A forearm's length of the shelf is filled: few ways to hold the hand there are left."""
    walls = [rg.Box((1.0, 0.02, 1.5), (0.3, y, 0.6)) for y in (-0.28, 0.28)]
    scene = rg.Scene([*SHELF.shapes, *walls])
    q = free(arm, scene, 30, seed=11)
    T = arm.forward_kinematics(q)["iiwa_link_ee"]
    for pose in T[1:8]:
        path = rg.plan(arm, q[0], {"iiwa_link_ee": pose}, scene, rounds=1)
        assert path.status != "goal in collision"


def test_many_are_planned_as_each_one_is(arm):
    q = free(arm, SHELF, 12, seed=5)
    told = []
    many = rg.plan(
        arm, q[:6], q[6:], SHELF, seconds=60, threads=2, progress=lambda k, n: told.append((k, n))
    )
    assert sorted(told) == [(k, 6) for k in range(1, 7)]
    for a, b, path in zip(q[:6], q[6:], many, strict=True):
        np.testing.assert_array_equal(path.q, rg.plan(arm, a, b, SHELF, seconds=60).q)
    T = arm.forward_kinematics(q[7])["iiwa_link_ee"]
    for goals in (q[7], {"iiwa_link_ee": T}, [q[7], {"iiwa_link_ee": T}, q[6:9]], q[6:9][:, None]):
        paths = rg.plan(arm, list(q[:3]), goals, [SHELF, rg.Scene(), SHELF])
        assert [p.status for p in paths] == ["solved"] * 3
    rounds = []
    rg.plan(arm, q[0], q[6], SHELF, rounds=7, progress=lambda k, n: rounds.append((k, n)))
    assert all(n == 7 for _, n in rounds)


def test_what_cannot_be_planned_says_why(arm):
    good = free(arm, SHELF, 2, seed=1)
    bad = arm.random(2000, seed=9).q
    bad = bad[arm.in_collision(bad, SHELF)][0]
    outside = good[1] + np.eye(arm.nq)[0] * 10
    for start, goal, status in (
        (bad, good[1], "start in collision"),
        (good[0], bad, "goal in collision"),
        (outside, good[1], "start outside limits"),
        (good[0], outside, "goal outside limits"),
    ):
        path = rg.plan(arm, start, goal, SHELF)
        assert (path.status, path.solved, path.q.shape) == (status, False, (0, arm.nq))
        assert path.advice
        assert path.duration == 0
    for wrong, said in (
        ({"start": np.zeros(3)}, "start has shape"),
        ({"goal": np.full(arm.nq, np.nan)}, "goal holds NaN"),
        ({"goal": "home"}, "goal is a position"),
        ({"start": good, "goal": [good[0]] * 3}, "3 goals for 2 starts"),
        ({"start": good, "scene": [SHELF] * 3}, "3 scenes for 2 starts"),
        ({"start": np.zeros((2, 3)), "goal": good}, "start has shape"),
        ({"velocity": -1}, "velocity is positive"),
        ({"acceleration": np.ones(3)}, "acceleration is a number, or 7"),
        ({"step": 0}, "step is a positive number"),
        ({"margin": -0.1}, "margin is a distance"),
    ):
        with pytest.raises(InputError, match=said):
            rg.plan(arm, **{"start": good[0], "goal": good[1], "scene": SHELF} | wrong)


@pytest.mark.parametrize("name", ["iiwa14", "hyq"])
def test_no_point_moves_further_than_the_bound_of_the_space(name):
    robot = rg.load(name)
    shapes = {
        link.name: [rg.Sphere(0.05, (0.1, 0, 0.05))]
        for link in robot.model.description.links
        if robot.model.frames[link.name].body >= 0
    }
    robot = robot.with_collisions(shapes=shapes, pairs=[])
    weights = travel(robot.model, robot.collisions.links)
    q = robot.random(200, seed=0).q
    v = np.random.default_rng(1).normal(size=(200, robot.nv)) * 0.01
    bound = np.abs(v) @ weights
    far = robot.integrate(q, v)
    for link in robot.collisions.links:
        here, there = (
            robot.forward_kinematics(x)[link.link] @ np.array([0.1, 0, 0.05, 1.0]) for x in (q, far)
        )
        assert (np.linalg.norm(there - here, axis=1) <= bound * (1 + 1e-9)).all()


def test_the_command_plans_and_its_file_is_a_motion(tmp_path, monkeypatch, capsys):
    from rigidgrad.cli import main
    from rigidgrad.commands.view import read_motion
    from rigidgrad.viewer.motion import as_motion

    monkeypatch.chdir(tmp_path)
    Path("robot.urdf").write_text(
        """<robot name="r"><link name="w"/><link name="a"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
        <collision><origin xyz="0.3 0 0"/><geometry><sphere radius="0.1"/></geometry></collision></link>
        <joint name="j" type="revolute"><parent link="w"/><child link="a"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint></robot>"""
    )
    Path("scene.toml").write_text(
        '[[shape]]\nkind = "sphere"\nradius = 0.1\ncenter = [-0.3, 0, 0]\n'
    )
    assert main(["plan", "robot.urdf", "--scene", "scene.toml", "--start=-2", "--goal=2"]) == 0
    said = capsys.readouterr().out
    assert "solved" in said
    assert "path.npz" in said
    robot = rg.load("robot.urdf")
    motion = as_motion(robot.model, read_motion(Path("path.npz")))
    assert (motion.q[0], motion.q[-1]) == (-2, 2)
    assert not robot.in_collision(motion.q, rg.Scene([rg.Sphere(0.1, (-0.3, 0, 0))])).any()
    assert main(["plan", "robot.urdf", "--scene", "scene.toml", "--start=-2", "--goal=3"]) == 1
    assert "goal in collision" in capsys.readouterr().out
    assert main(["plan", "robot.urdf", "--goal=2", "--frame=a"]) == 2
    assert main(["plan", "robot.urdf", "--goal=x"]) == 2
    assert main(["plan", "robot.urdf", "--frame=a", "--pose=0,0,0,0,0,0.5", "--json"]) == 0
    path = rg.plan(robot, [-1.0], [1.0])
    assert np.array_equal(as_motion(robot.model, path).t, path.time)


@pytest.fixture(scope="module")
def car():
    build = (
        rg.Builder("base")
        .link("ground")
        .link("car", 1.0, (0, 0, 0), np.diag([0.1] * 3))
        .joint("drive", "planar", "ground", "car")
    )
    return build.build().with_collisions(
        shapes={"car": [rg.Capsule(0.1, start=(-0.3, 0, 0), end=(0.3, 0, 0))]}
    )


def test_robots_that_are_no_list_of_angles_plan_too(car):
    wall = rg.Scene([rg.Box((0.05, 1.2, 1), (0, 0.5, 0)), rg.Box((0.05, 0.3, 1), (0, -0.75, 0))])
    path = rg.plan(
        car, np.array([-0.6, 0.4, 0, 1.0]), np.array([0.6, 0.4, 0, 1.0]), wall, velocity=1.0
    )
    assert path.solved
    assert len(path.corners) > 2
    assert np.allclose(np.hypot(path.q[:, 2], path.q[:, 3]), 1)
    assert not car.in_collision(path.q, wall).any()


def test_a_search_without_a_way_ends_in_the_rounds_or_seconds_given(car):
    walls = [rg.Box((0.05, 2, 1), (x, 0, 0)) for x in (-0.95, 0.95)] + [
        rg.Box((2, 0.05, 1), (0, y, 0)) for y in (-0.95, 0.95)
    ]
    start, goal = np.array([0, 0, 0, 1.0]), np.array([2.0, 0, 0, 1.0])
    path = rg.plan(car, start, goal, walls, rounds=25, seconds=1000)
    assert (path.status, path.stats["rounds"]) == ("no path", 25)
    assert "rounds=" in path.advice
    assert rg.plan(car, start, goal, walls, rounds=10**9, seconds=0.2).status == "no path"
