"""Distances and collisions of whole robots, against coal, finite differences and brute force."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from coal_oracle import coal, collide, of_capsule, of_shape, of_triangles, pose, random_pose, signed

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelWarning, UnknownNameError
from rigidgrad.runtime import native

ROBOTS = next(
    (
        p / "share/example-robot-data/robots"
        for p in Path(pin.__file__).parents
        if p.name == "cmeel.prefix"
    ),
    Path("nowhere"),
)
PANDA = ROBOTS / "panda_description/urdf/panda_collision.urdf"
needs_panda = pytest.mark.skipif(not PANDA.is_file(), reason="example-robot-data is not installed")


def arm(**shapes) -> rg.Robot:
    """Three joints with a capsule, a ball and a box, the last one moved by the first, too."""
    build = rg.Builder("arm").link("base")
    parent = "base"
    for k, (link, axis) in enumerate(
        {"upper": (0, 0, 1), "fore": (0, 1, 0), "hand": (1, 0, 0)}.items()
    ):
        mimic = {"mimic": ("j0", 0.5)} if k == 2 else {}
        build.link(link, 1.0, (0, 0, 0.1), np.diag([0.01] * 3)).joint(
            f"j{k}", "revolute", parent, link, xyz=(0, 0, 0.3), axis=axis, limit=(-2, 2), **mimic
        )
        parent = link
    default = {
        "base": [rg.Sphere(0.1)],
        "upper": [rg.Capsule(0.05, 0.2, (0, 0, 0.1))],
        "fore": [
            rg.Sphere(0.06, (0, 0.05, 0.1)),
            rg.Capsule(0.04, start=(0, 0, 0), end=(0.1, 0, 0.2)),
        ],
        "hand": [rg.Sphere(0.05, (0, 0, 0.1)), rg.Sphere(0.03, (0.05, 0, 0.15))],
    }
    return build.build().with_collisions(
        shapes=default | shapes, pairs=[("hand", "base"), ("fore", "base"), ("hand", "upper")]
    )


def boxed() -> rg.Robot:
    """The same with boxes: alone, beside a capsule and a ball, and turned."""
    rng = np.random.default_rng(12)
    return arm(
        base=[rg.Box((0.2, 0.3, 0.1))],
        upper=[rg.Box((0.08, 0.06, 0.25), random_pose(rng, 0.05)), rg.Capsule(0.03, 0.2)],
        hand=[
            rg.Sphere(0.03, (0.05, 0, 0.15)),
            rg.Box((0.1, 0.02, 0.15), random_pose(rng, 0.1)),
            rg.Box((0.05, 0.05, 0.05), (0, 0, 0.1)),
        ],
    )


def around(seed: int, clouds: bool = True) -> rg.Scene:
    rng = np.random.default_rng(seed)
    shapes = [rg.Box(rng.uniform(0.05, 0.4, 3), random_pose(rng, 0.5)) for _ in range(4)]
    shapes += [rg.Sphere(0.1, rng.uniform(-0.5, 0.5, 3)), rg.Sphere(0.2, rng.uniform(-0.5, 0.5, 3))]
    shapes += [rg.Capsule(0.07, 0.3, random_pose(rng, 0.5)), rg.Plane((0.1, 0, 1), -0.3)]
    return rg.Scene(
        shapes
        + (
            [rg.Points(rng.uniform(-0.8, 0.8, (400, 3)), rng.uniform(0, 0.02, 400))]
            if clouds
            else []
        )
    )


def placed(robot: rg.Robot, q, name: str):
    """coal's geometries of a link at one position."""
    link = next(x for x in robot.collisions.links if x.link == name)
    frame = robot.model.frames[name]
    T = robot.forward_kinematics(q)[name] @ np.linalg.inv(frame.placement.matrix())
    for e in link.elements:
        if e.is_box:
            at = T[:3, :3] @ e.center + T[:3, 3]
            yield coal.Box(*(2 * np.array(e.half))), pose(T[:3, :3] @ np.array(e.rotation), at)
            continue
        a, b = (T[:3, :3] @ p + T[:3, 3] for p in (e.start, e.end))
        yield of_capsule(e.radius, a, b)


def by_coal(robot: rg.Robot, q, pair, scene: rg.Scene) -> float:
    first, second = pair
    if second in scene.names:
        shape = scene[second]
        others = (
            [(rg.Sphere(max(r, 1e-9), c)) for c, r in zip(shape.xyz, shape.radius, strict=True)]
            if isinstance(shape, rg.Points)
            else [shape]
        )
        return min(signed(a, of_shape(b)) for a in placed(robot, q, first) for b in others)
    return min(signed(a, b) for a in placed(robot, q, first) for b in placed(robot, q, second))


@pytest.mark.parametrize("make", [arm, boxed])
def test_distances_of_all_pairs_are_those_of_coal(make):
    robot, scene = make(), around(3)
    q = robot.random(12, seed=0).q
    found = robot.distances(q, scene)
    assert found.distance.shape == (12, len(found.pairs)) == (12, 3 * 9 + 3)
    expected = np.array([[by_coal(robot, x, pair, scene) for pair in found.pairs] for x in q])
    assert np.abs(found.distance - expected).max() < 1e-6
    assert (expected < 0).any()
    assert (expected > 0).any()


@needs_panda
def test_distances_of_a_panda_are_those_of_coal():
    """The capsules of its file, written as cylinders and balls, are exact."""
    robot, scene = rg.load(PANDA), around(2, clouds=False)
    capsules = [link for link in robot.collisions.links if link.error == 0]
    assert len(capsules) >= 8
    q = robot.random(6, seed=1).q
    found = robot.distances(q, scene, gradient=False)
    expected = np.array([[by_coal(robot, x, pair, scene) for pair in found.pairs] for x in q])
    assert np.abs(found.distance - expected).max() < 1e-6
    single = robot.distances(q.astype(np.float32), scene, gradient=False).distance
    assert single.dtype == np.float32
    assert np.abs(single - expected).max() < 5e-6  # a metre has 1.2e-7 in single precision


@pytest.mark.parametrize("make", [arm, boxed])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_in_collision_is_a_negative_distance(dtype, make):
    robot, scene = make(), around(3)
    q = robot.random(1000, seed=1).q.astype(dtype)
    for margin in (0.0, 0.03):
        least = robot.distances(q, scene, gradient=False).least
        sure = np.abs(least - margin) > 1e-5
        assert (robot.in_collision(q, scene, margin=margin) == (least < margin))[sure].all()
    free = ~robot.in_collision(q, scene)
    assert 20 < free.sum() < 980


def test_without_a_scene_links_are_checked_among_themselves():
    robot = arm()
    q = robot.random(200, seed=2).q
    found = robot.distances(q)
    assert found.pairs == (("hand", "base"), ("fore", "base"), ("hand", "upper"))
    assert (robot.in_collision(q) == (found.least < 0)).all()
    assert not robot.in_collision(q, self_pairs=False).any()


def test_gradients_are_those_of_finite_differences():
    floating = (
        rg.Builder("free")
        .link("body", 1.0, (0, 0, 0), np.diag([0.1] * 3))
        .link("leg", 1.0, (0, 0, 0), np.diag([0.1] * 3))
    )
    floating = floating.joint(
        "hip", "revolute", "body", "leg", xyz=(0.1, 0, 0), axis=(0, 1, 0), limit=(-2, 2)
    ).build(floating_base=True)
    floating = floating.with_collisions(
        shapes={
            "body": [rg.Sphere(0.1)],
            "leg": [rg.Capsule(0.05, start=(0, 0, 0), end=(0, 0, -0.4))],
        }
    )
    for robot in (arm(), floating, boxed()):
        scene = around(4)
        q = robot.random(30, seed=3).q
        found = robot.distances(q, scene)
        assert found.gradient.shape == (*found.distance.shape, robot.nv)
        h = 1e-6
        for k in range(robot.nv):
            step = np.eye(robot.nv)[k] * h
            ahead, back = (
                robot.distances(robot.integrate(q, s * step), scene, gradient=False).distance
                for s in (1, -1)
            )
            error = np.abs((ahead - back) / (2 * h) - found.gradient[..., k])
            # where two pairs of balls are equally near, the gradient has a jump between the two
            # sides
            assert np.mean(error > 1e-6) < 2e-3
            assert np.quantile(error, 0.99) < 1e-7


@pytest.mark.parametrize("make", [arm, boxed])
def test_nearest_points_lie_on_both_shapes_and_the_normal_between_them(make):
    robot, scene = make(), around(5)
    q = robot.random(20, seed=4).q
    found = robot.distances(q, scene, points=True)
    assert np.allclose(
        found.point - found.other, found.distance[..., None] * found.normal, atol=1e-9
    )
    assert np.allclose(np.linalg.norm(found.normal, axis=-1), 1)
    for k, (_, name) in enumerate(found.pairs):
        if name.startswith("sphere"):
            ball = scene[name]
            assert np.allclose(
                np.linalg.norm(found.other[:, k] - ball.center, axis=-1), ball.radius
            )


@pytest.mark.parametrize(
    ("make", "count"), [(arm, 1), (arm, 3), (arm, 8), (arm, 17), (arm, 33), (boxed, 9)]
)
def test_rows_do_not_depend_on_their_batch(make, count):
    robot, scene = make(), around(6)
    q = robot.random(40, seed=5).q
    whole, part = (
        robot.distances(q, scene, points=True),
        robot.distances(q[:count], scene, points=True),
    )
    for name in ("distance", "gradient", "point", "other", "normal"):
        assert np.array_equal(getattr(whole, name)[:count], getattr(part, name)), name
    assert np.array_equal(
        robot.in_collision(q, scene)[:count], robot.in_collision(q[:count], scene)
    )


def test_batches_have_any_shape():
    robot, scene = arm(), around(6)
    q = robot.random((2, 3), seed=5).q
    assert robot.in_collision(q, scene).shape == (2, 3)
    assert robot.distances(q, scene).gradient.shape == (2, 3, 30, robot.nv)
    assert type(robot.in_collision(q[0, 0], scene)) is bool
    assert robot.distances(q[0, 0], scene).distance.shape == (30,)
    assert robot.in_collision(np.zeros((0, robot.nq)), scene).shape == (0,)
    assert robot.distances(np.zeros((0, robot.nq)), scene).distance.shape == (0, 30)
    with pytest.raises(InputError, match="q has shape"):
        robot.in_collision(np.zeros(7), scene)


def test_nan_is_never_free():
    robot = arm()
    q = np.zeros((20, robot.nq))
    q[3, 0] = np.nan
    found = robot.in_collision(q, [])
    assert found[3]
    assert not np.delete(found, 3).any()
    assert np.isnan(robot.distances(q, around(1)).distance[3]).any()


def test_another_scene_compiles_nothing():
    robot = arm()
    q = robot.random(4, seed=0).q
    robot.distances(q, around(1))
    robot.in_collision(q, around(1))
    before = native.compiled_count()
    for scene in (
        around(7),
        rg.Scene([]),
        rg.Scene([rg.Box((1, 1, 1), (0, 0, 3))]),
        rg.Scene([rg.Points(np.random.default_rng(0).normal(size=(3000, 3)))]),
    ):
        robot.distances(q, scene)
        robot.in_collision(q, scene)
    assert native.compiled_count() == before


def test_a_million_points_are_searched_as_by_brute_force():
    robot = arm()
    rng = np.random.default_rng(8)
    directions = rng.normal(size=(1_000_000, 3))
    cloud = (
        directions
        / np.linalg.norm(directions, axis=1)[:, None]
        * rng.uniform(0.55, 1.5, (1_000_000, 1))
    )
    scene = rg.Scene([rg.Points(cloud, 0.01, name="cloud")])
    q = robot.random(6, seed=6).q
    found = robot.distances(q, scene, gradient=False)
    for k, x in enumerate(q):
        T = robot.forward_kinematics(x)["hand"]
        expected = min(
            (np.linalg.norm(cloud - (T[:3, :3] @ c + T[:3, 3]), axis=1) - r - 0.01).min()
            for c, r in (((0, 0, 0.1), 0.05), ((0.05, 0, 0.15), 0.03))
        )
        assert found.of("hand", "cloud")[k] == pytest.approx(expected, abs=1e-9)
    assert (
        robot.in_collision(q, scene, self_pairs=False) == (found.distance[:, :3].min(axis=1) < 0)
    ).all()


def test_links_that_never_move_against_each_other_are_no_pair():
    robot = arm()
    assert "base" not in robot.collisions.moving
    default = robot.with_collisions(pairs=None)
    assert all(
        {"upper", "fore"} != set(pair) and {"fore", "hand"} != set(pair)
        for pair in default.collisions.self_pairs
    )
    assert {frozenset(p) for p in default.collisions.self_pairs} <= {
        frozenset(p) for p in [("hand", "base"), ("fore", "base"), ("hand", "upper")]
    }
    big = robot.with_collisions(
        shapes={"base": [rg.Sphere(0.5)], "hand": [rg.Sphere(0.1)], "upper": [], "fore": []},
        pairs=None,
    )
    touching = big.distances(big.random(200, seed=0).q)
    assert all((touching.distance[:, k] > 0).any() for k in range(len(touching.pairs)))


def test_boxes_of_links_are_exact_and_cylinders_covered_within_the_stated_error():
    text = """<robot name="r"><link name="w"/><link name="a"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0.1 0 0.2" rpy="0.3 0.2 0.1"/><geometry>{}</geometry></collision></link>
    <joint name="j" type="revolute"><parent link="w"/><child link="a"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint></robot>"""
    from rigidgrad.model.pose import pose_from_xyz_rpy

    place = pose_from_xyz_rpy((0.1, 0, 0.2), (0.3, 0.2, 0.1))
    import coal

    rng = np.random.default_rng(0)
    for shape, other in (
        ('<box size="0.2 0.1 0.3"/>', coal.Box(0.2, 0.1, 0.3)),
        ('<cylinder radius="0.1" length="0.3"/>', coal.Cylinder(0.1, 0.3)),
        ('<cylinder radius="0.03" length="0.3"/>', coal.Cylinder(0.03, 0.3)),
        ('<sphere radius="0.1"/>', coal.Sphere(0.1)),
    ):
        robot = rg.load(text.format(shape)).with_collisions(error=0.03)
        error = robot.collisions.error
        assert error <= 0.031
        assert (error == 0) == ("cylinder" not in shape)
        for _ in range(150):
            ball = rg.Sphere(rng.uniform(0.01, 0.1), rng.uniform(-0.3, 0.4, 3))
            found = float(robot.distances(np.zeros(1), [ball], gradient=False).distance[0])
            exact = signed((other, pose(place.R, place.p)), of_shape(ball))
            assert exact - error - 1e-6 <= found <= exact + 1e-6 or (
                exact < 0 and found < exact + error
            )


def ring() -> tuple[np.ndarray, np.ndarray]:
    """A torus: closed, and not convex."""
    n, m, R, r = 16, 8, 0.25, 0.07
    u, v = np.meshgrid(2 * np.pi * np.arange(n) / n, 2 * np.pi * np.arange(m) / m, indexing="ij")
    points = np.stack(
        [(R + r * np.cos(v)) * np.cos(u), (R + r * np.cos(v)) * np.sin(u), r * np.sin(v)], axis=-1
    ).reshape(-1, 3)
    at = lambda i, j: (i % n) * m + j % m  # noqa: E731
    faces = [
        t
        for i in range(n)
        for j in range(m)
        for t in (
            (at(i, j), at(i + 1, j), at(i + 1, j + 1)),
            (at(i, j), at(i + 1, j + 1), at(i, j + 1)),
        )
    ]
    return points, np.array(faces)


def test_a_covered_mesh_is_never_free_where_coal_finds_it_penetrated():
    vertices, faces = ring()
    mesh = rg.Mesh((vertices, faces), pose=(0.3, 0.1, 0.4), error=0.025)
    robot, scene = arm(), rg.Scene([mesh])
    exact = of_triangles(vertices, faces), pose(np.eye(3), (0.3, 0.1, 0.4))
    q = robot.random(100, seed=7).q
    found = robot.distances(q, scene, gradient=False, self_pairs=False)
    free = 0
    for k, x in enumerate(q):
        for column, (link, _) in enumerate(found.pairs):
            shapes = list(placed(robot, x, link))
            distance = min(signed(s, exact) for s in shapes)
            if any(collide(s, exact) for s in shapes):
                assert found.distance[k, column] < 1e-7
            else:
                assert distance - mesh.error - 1e-6 <= found.distance[k, column] <= distance + 1e-6
                free += 1
    assert 30 < free < 295
    assert not robot.in_collision(
        np.zeros(robot.nq),
        [rg.Mesh((vertices, faces), pose=(0, 0, 0.5), error=0.025)],
        self_pairs=False,
    )  # through its hole


def test_a_robot_keeps_its_shapes_through_pickle():
    robot, scene = arm(), around(1)
    q = robot.random(3, seed=0).q
    again, other = pickle.loads(pickle.dumps((robot, scene)))
    assert np.array_equal(again.distances(q, other).distance, robot.distances(q, scene).distance)


def test_shapes_of_mjcf_are_read():
    pytest.importorskip("mujoco")
    robot = rg.load(
        """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="a"><joint axis="0 0 1"/><geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.05"/>
        <body name="b" pos="0 0 0.4"><joint axis="1 0 0"/><geom type="sphere" size="0.1"/><geom type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0"/>
        <geom type="ellipsoid" size="0.1 0.2 0.3"/></body></body></worldbody></mujoco>"""
    )
    with pytest.warns(ModelWarning, match="plane of 'world'"):
        links = {link.link: link for link in robot.collisions.links}
    assert [e.radius for e in links["a"].elements] == [0.05]
    assert links["b"].elements[0].radius == 0.1 and len(links["b"].elements) > 1  # an ellipsoid
    assert robot.distances(np.zeros(2), [rg.Plane(offset=-0.1)], gradient=False).of(
        "a", "plane 0"
    ) == pytest.approx(0.05)


def test_collision_shapes_are_drawn_where_nothing_else_is():
    from rigidgrad.viewer.shapes import draw

    robot = rg.load(
        '<robot name="r"><link name="a"><collision><geometry><box size="1 2'
        ' 3"/></geometry></collision></link></robot>'
    )
    assert [(s.kind, s.size) for s in draw(robot.model).shapes] == [("box", (1.0, 2.0, 3.0))]


def test_wrong_questions_are_answered_with_advice():
    robot = arm()
    q = np.zeros(robot.nq)
    with pytest.raises(InputError, match="margin is a distance to keep"):
        robot.in_collision(q, [], margin=-1)
    with pytest.raises(InputError, match=r"a scene is rg\.Scene"):
        robot.distances(q, "table")
    with pytest.raises(UnknownNameError, match="fore"):
        robot.with_collisions(shapes={"forearm": []}).distances(q)
    with pytest.raises(UnknownNameError, match="pairs"):
        robot.with_collisions(pair=[])
    with pytest.raises(UnknownNameError, match="hand"):
        robot.with_collisions(pairs=[("hnd", "base")]).distances(q)
    with pytest.raises(InputError, match="cover"):
        robot.with_collisions(error=0).distances(q)
    with pytest.raises(UnknownNameError, match="box 0"):
        robot.distances(q, [rg.Box((1, 1, 1))]).of("hand", "box")
    bare, box = rg.load("pendulum"), [rg.Box((1, 1, 1))]
    with pytest.warns(ModelWarning, match="no collision shapes"):
        assert bare.in_collision(np.zeros(1), box) is False
    with pytest.warns(ModelWarning, match="no collision shapes"):
        assert bare.distances(np.zeros(1), box).pairs == ()
    with pytest.raises(InputError, match="no collision shapes"):
        rg.plan(bare, [0.0], [1.0], box)


def test_covers_too_coarse_to_tell_links_apart_are_said(tmp_path):
    """Two cylinders with a joint between them and a gap of 24 mm: covers of 2 cm always overlap,
    finer ones do not.
    """
    link = (
        '<link name="{}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"'
        ' ixz="0" iyz="0"/></inertial>{}</link>'
    )
    solid = (
        '<collision><origin xyz="0 0 {}"/><geometry><cylinder radius="0.01" length="0.04"/>'
        "</geometry></collision>"
    )
    joint = (
        '<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><axis xyz="0 0'
        ' 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
    )
    text = (
        '<robot name="r">'
        + link.format("a", solid.format(0))
        + link.format("b", "")
        + link.format("c", solid.format(0.064))
        + joint.format("j", "a", "b")
        + joint.format("k", "b", "c")
        + "</robot>"
    )
    with pytest.warns(ModelWarning, match=r"too coarse.*c, a"):
        assert rg.load(text).collisions.self_pairs == ()
    fine = rg.load(text).with_collisions(error=0.008)
    assert fine.collisions.self_pairs == (("c", "a"),)
    assert not fine.in_collision(np.zeros(2))
