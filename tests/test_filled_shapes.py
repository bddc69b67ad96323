"""Cylinders, ellipsoids and fields of heights, in scenes and in files: distances by coal, within
the error that is stated and on the safe side of it.
"""

from __future__ import annotations

import pickle

import coal_oracle
import numpy as np
import pinocchio as pin
import pytest
from coal_oracle import of_shape, of_triangles, pose, random_pose, signed

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelWarning

coal = coal_oracle.coal
ERROR = 0.004


def hill(error=0.02, **more):
    x, y = np.linspace(-1, 1, 21), np.linspace(-0.75, 0.75, 16)
    heights = 0.15 * np.sin(3 * x)[None] * np.cos(2 * y)[:, None]
    heights[:, 15:] += 0.08  # a step
    return rg.HeightField(heights, (2.0, 1.5), error=error, **more)


def probe(shape):
    """A body that floats, with one shape."""
    build = rg.Builder("probe").link("body", 1.0, (0, 0, 0), (0.1, 0.1, 0.1))
    return build.build(floating_base=True).with_collisions(shapes={"body": [shape]})


def at(T):
    return np.r_[T[:3, 3], pin.Quaternion(T[:3, :3]).coeffs()]


@pytest.mark.parametrize(
    "shape",
    [
        rg.Sphere(0.06),
        rg.Capsule(0.04, start=(0, -0.1, 0), end=(0.05, 0.1, 0.02)),
        rg.Box((0.1, 0.2, 0.06)),
    ],
    ids=["ball", "capsule", "box"],
)
def test_distances_to_a_cylinder_are_those_of_coal_but_for_the_error(shape):
    rng = np.random.default_rng(1)
    robot = probe(shape)
    place = random_pose(rng, 0.2)
    scene = rg.Scene([rg.Cylinder(0.08, 0.3, place, error=ERROR)])
    other = coal.Cylinder(0.08, 0.3), pose(place[:3, :3], place[:3, 3])
    poses = [random_pose(rng, 0.4) for _ in range(80)]
    q = np.array([at(T) for T in poses])
    found = robot.distances(q, scene).distance[:, 0]
    touching = robot.in_collision(q, scene)
    geometry, own = of_shape(shape)
    met = 0
    for T, d, touches in zip(poses, found, touching, strict=True):
        known = signed((geometry, pose(T[:3, :3], T[:3, 3]) * own), other)
        if known > 0:
            assert known - ERROR - 1e-6 <= d <= known + 1e-6
        else:
            assert d <= 1e-6
        assert touches or known > -1e-6
        assert not touches or known <= ERROR + 1e-6
        met += known < 0
    assert met > 2


def kept_by(found, touching, known, error):
    """Whether what we say of positions is what coal says, but for the error of a cover."""
    apart = known > 0
    assert (found[apart] >= known[apart] - error - 1e-6).all()
    assert (found[apart] <= known[apart] + 1e-6).all() and (found[~apart] <= 1e-6).all()
    assert touching[known < -1e-6].all() and not touching[known > error + 1e-6].any()
    assert (known < -1e-3).sum() > 2 < (known > 0.01).sum()


@pytest.mark.parametrize("where", ["scene", "link"])
def test_distances_to_an_ellipsoid_are_those_of_coal_but_for_the_error(where):
    rng, radii, error = np.random.default_rng(4), (0.12, 0.06, 0.04), 0.015
    ball, place = rg.Sphere(0.06), random_pose(rng, 0.2)
    poses = [random_pose(rng, 0.3) for _ in range(150)]
    q = np.array([at(T) for T in poses])
    egg = rg.Ellipsoid(radii, place, error=error)
    assert egg.triangles.open_edges == 0
    if where == "scene":
        robot, scene, own = probe(ball), rg.Scene([egg]), coal.Sphere(0.06)
    else:
        robot = probe(rg.Ellipsoid(radii)).with_collisions(
            shapes={"body": [rg.Ellipsoid(radii)]}, error=error
        )
        assert 0 < robot.collisions.links[0].error <= error
        scene, own = rg.Scene([ball]), coal.Ellipsoid(*radii)
    other = (
        (coal.Ellipsoid(*radii), pose(place[:3, :3], place[:3, 3]))
        if where == "scene"
        else (coal.Sphere(0.06), pose(np.eye(3), (0, 0, 0)))
    )
    known = np.array([signed((own, pose(T[:3, :3], T[:3, 3])), other) for T in poses])
    kept_by(robot.distances(q, scene).distance[:, 0], robot.in_collision(q, scene), known, error)


EGG = """<mujoco><asset><hfield name="hill" nrow="3" ncol="4" size="1 0.8 0.5 0.1"
elevation="0 1 2 3  1 1 1 1  2 2 2 5"/></asset><worldbody>
<geom name="floor" type="plane" size="1 1 1" pos="0 0 -0.7" euler="10 0 0"/>
<geom type="hfield" hfield="hill" pos="0.2 0 -0.5"/>
<body name="egg" pos="0 0 1"><freejoint/>
<geom type="ellipsoid" size="0.12 0.06 0.04" pos="0.1 0 0" euler="0 30 0" mass="1"/></body>
</worldbody></mujoco>"""


def test_a_models_ellipsoids_are_links_and_its_ground_is_a_scene():
    """MuJoCo is the oracle: its contacts of the same positions, and its rays down to the ground."""
    mujoco = pytest.importorskip("mujoco")
    robot = rg.load(EGG)
    with pytest.warns(ModelWarning, match=r"plane of 'world', hfield of 'world'.*\.scene"):
        model = robot.collisions
    assert [link.link for link in model.links] == ["egg"] and model.error <= 0.02
    scene = model.scene
    assert scene.names == ("plane 0 of world", "hfield 1 of world")
    plane, hill = scene.shapes
    theirs = mujoco.MjModel.from_xml_string(EGG)
    data = mujoco.MjData(theirs)
    mujoco.mj_forward(theirs, data)
    rng, which = np.random.default_rng(5), np.zeros(1, np.int32)
    for x, y in rng.uniform((-0.7, -0.7), (1.1, 0.7), (40, 2)):
        far = mujoco.mj_ray(
            theirs, data, np.array([x, y, 3.0]), np.array([0, 0, -1.0]), None, 1, 1, which
        )
        if which[0] == 1:
            height = hill.height(np.array([x - 0.2]), np.array([y]))[0] - 0.5
        else:
            height = (plane.offset - plane.normal[:2] @ (x, y)) / plane.normal[2]
        assert 3.0 - far == pytest.approx(height, abs=1e-6)
    q = robot.random(300, seed=6).q
    q[:, :3] = rng.uniform((-0.8, -0.6, -0.6), (1.0, 0.6, 0.4), (300, 3))
    found = robot.distances(q, rg.Scene([plane])).distance[:, 0]
    known = []
    for x in q:
        data.qpos[:] = x[[0, 1, 2, 6, 3, 4, 5]]
        mujoco.mj_forward(theirs, data)
        known.append(mujoco.mj_geomDistance(theirs, data, 0, 2, 10.0, None))
    known = np.array(known)
    assert (found <= known + 1e-6).all() and (found >= known - model.error - 1e-6).all()
    assert (known < 0).sum() > 5 < (known > 0).sum()


def test_a_cover_holds_the_whole_solid_and_sticks_out_by_no_more_than_its_error():
    rng = np.random.default_rng(2)
    for solid in (rg.Cylinder(0.05, 0.3, error=ERROR), hill()):
        cover = solid.cover(None)
        assert cover.error <= solid.error
        points = rng.uniform(
            *(f(solid.triangles.vertices, axis=0) for f in (np.min, np.max)), (4000, 3)
        )
        inside = points[solid.depth(points) >= 0]
        assert len(inside) > 500
        nearest = [
            (np.linalg.norm(cover.centers - p, axis=1) - cover.radii).min() for p in inside[:150]
        ]
        assert max(nearest) <= 1e-12
        # whatever is outside of all balls is no deeper inside than nothing
        surface = of_triangles(solid.triangles.vertices, solid.triangles.faces)
        some = rng.integers(len(cover.radii), size=120)
        slack = 0.05 * (1 - np.cos(np.pi / 24)) if isinstance(solid, rg.Cylinder) else 0.0
        for c, r in zip(cover.centers[some], cover.radii[some], strict=True):
            away = signed(
                (coal.Sphere(1e-6), pose(np.eye(3), c)), (surface, pose(np.eye(3), [0, 0, 0]))
            )
            depth = abs(away) if solid.depth(c[None])[0] >= 0 else -abs(away)
            assert r - depth <= solid.error + slack + 2e-6


def test_ground_is_as_high_as_its_numbers_say():
    field = hill()
    x, y = np.meshgrid(np.linspace(-1, 1, 21), np.linspace(-0.75, 0.75, 16))
    np.testing.assert_allclose(
        field.height(x.ravel(), y.ravel()), field.heights.ravel(), atol=1e-12
    )
    # along a row, and along a diagonal, it is straight between two of them
    at_half = field.height(np.array([-0.95, -0.95]), np.array([-0.75, -0.7]))
    h = field.heights
    np.testing.assert_allclose(at_half, [(h[0, 0] + h[0, 1]) / 2, (h[0, 0] + h[1, 1]) / 2])
    assert field.triangles.open_edges == 0


def test_a_ball_over_a_hill_is_as_far_away_as_coal_says():
    rng = np.random.default_rng(3)
    T = np.eye(4)
    T[:3, 3] = (0.3, -0.2, 0.5)
    field = hill(pose=T)
    robot, scene = probe(rg.Sphere(0.05)), rg.Scene([field])
    surface = of_triangles(field.triangles.vertices, field.triangles.faces)
    centers = T[:3, 3] + rng.uniform((-0.9, -0.7, -0.2), (0.9, 0.7, 0.5), (80, 3))
    q = np.column_stack([centers, np.tile((0, 0, 0, 1.0), (80, 1))])
    found, touching = robot.distances(q, scene).distance[:, 0], robot.in_collision(q, scene)
    above = 0
    for c, d, touches in zip(centers, found, touching, strict=True):
        local = c - T[:3, 3]
        apart = signed(
            (coal.Sphere(0.05), pose(np.eye(3), c)), (surface, pose(np.eye(3), T[:3, 3]))
        )
        if local[2] < field.height(local[:1], local[1:2])[0]:
            assert touches  # deep inside, too
        elif apart > 0:
            above += 1
            assert apart - field.error - 1e-6 <= d <= apart + 1e-6
    assert above > 20


def test_they_come_from_files_are_stored_and_planned_around(tmp_path):
    (tmp_path / "scene.toml").write_text(
        '[[shape]]\nkind = "cylinder"\nradius = 0.1\nlength = 0.5\nxyz = [0.5, 0, 0.3]\n'
        '[[shape]]\nkind = "heightfield"\nheights = [[0.0, 0.1], [0.1, 0.0]]\nsize = [2, 2]\n'
        "xyz = [0, 0, -0.4]\n"
    )
    scene = rg.Scene.read(tmp_path / "scene.toml")
    assert scene.names == ("cylinder 0", "heightfield 0")
    again = pickle.loads(pickle.dumps(scene))
    assert again["cylinder 0"].radius == 0.1 and len(again.outlines) == 2
    arm = rg.load("iiwa14").with_collisions(shapes={"iiwa_link_6": [rg.Sphere(0.08)]})
    q = arm.random(400, seed=1).q
    np.testing.assert_array_equal(arm.in_collision(q, scene), arm.in_collision(q, again))
    free = q[~arm.in_collision(q, scene, margin=0.02)]
    assert rg.plan(arm, free[0], free[1], scene).solved
    link = rg.load("iiwa14").with_collisions(shapes={"iiwa_link_6": [rg.Cylinder(0.06, 0.2)]})
    assert link.collisions.links[0].error <= 0.03


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: rg.Cylinder(-1.0, 1.0), "radius of a cylinder"),
        (lambda: rg.Cylinder(0.1, 0.0), "length of a cylinder"),
        (lambda: rg.Ellipsoid((0.1, 0.1)), "radii of an ellipsoid"),
        (lambda: rg.Ellipsoid((0.1, 0.1, 0.0)), "radii of an ellipsoid"),
        (lambda: rg.Ellipsoid((90.0, 1.0, 1.0), error=1e-3), "too large"),
        (lambda: rg.HeightField([1.0, 2.0], (1, 1)), "rows and columns"),
        (lambda: rg.HeightField([[0.0, np.nan], [0, 0]], (1, 1)), "finite"),
        (lambda: rg.HeightField(np.zeros((3, 3)), (1, -1)), "size of a height field"),
        (lambda: rg.HeightField(np.zeros((3, 3)), (1, 1), base=0), "base of a height field"),
        (lambda: rg.HeightField(np.zeros((3, 3)), (90, 90), error=1e-3).cover(None), "too large"),
        (
            lambda: rg.load("iiwa14").with_collisions(shapes={"iiwa_link_6": [hill()]}).collisions,
            "are rg.Sphere",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(made, said):
    with pytest.raises(InputError, match=said):
        made()
