"""Scenes in pictures: every shape where it is, of bounded size, with what is drawn otherwise said;
in pages, reports and files.
"""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.commands.view import read_motion
from rigidgrad.errors import InputError
from rigidgrad.geometry.outlines import MOST_POINTS, MOST_TRIANGLES, outlines
from rigidgrad.model.pose import pose_from_xyz_rpy
from rigidgrad.viewer.page import content

TETRAHEDRON = (
    np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]]),
    np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
)
TURNED = pose_from_xyz_rpy((0.7, -0.2, 0.4), (0.3, -0.5, 1.1))
HOSTILE = "</script><b>cloud</b>"


def torus(around=300, across=120):
    u, w = np.meshgrid(
        2 * np.pi * np.arange(around) / around,
        2 * np.pi * np.arange(across) / across,
        indexing="ij",
    )
    ring = 1 + 0.3 * np.cos(w)
    at = np.stack([ring * np.cos(u), ring * np.sin(u), 0.3 * np.sin(w)], axis=-1).reshape(-1, 3)
    k, j = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
    number = lambda a, b: ((a % around) * across + b % across).ravel()  # noqa: E731
    corner = number(k, j), number(k + 1, j), number(k + 1, j + 1), number(k, j + 1)
    return at, np.concatenate(
        [np.stack([corner[i] for i in face], axis=1) for face in ((0, 1, 2), (0, 2, 3))]
    )


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(
        shapes={"iiwa_link_6": [rg.Sphere(0.08)], "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))]}
    )


@pytest.fixture(scope="module")
def scene():
    rng = np.random.default_rng(3)
    return rg.Scene(
        [
            rg.Box((0.4, 0.03, 0.5), TURNED, name="wall"),
            rg.Sphere(0.1, (-0.5, 0.5, 0.2)),
            rg.Capsule(0.05, start=(-0.5, -0.5, 0), end=(-0.4, -0.6, 0.5)),
            rg.Plane((0.1, 0.2, 1.0), -0.3),
            rg.Mesh(TETRAHEDRON, TURNED),
            rg.Points(
                rng.uniform(-0.1, 0.1, (2 * MOST_POINTS + 7, 3)) - (0.6, 0, 0), 0.01, name=HOSTILE
            ),
        ]
    )


@pytest.fixture(scope="module")
def path(arm, scene):
    start = np.array([0.2, 0.4, 0, -1.5, 0, 1.0, 0])
    found = rg.plan(arm, start, start + 0.3, scene, seconds=60.0)
    assert found.solved
    return found


def unpacked(text):
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(float)


def around(data):
    """What a page draws around its robot: kind, size, rotation, middle and the triangles of each
    shape.
    """
    found = [s for s in data["shapes"] if s.get("around")]
    assert all(s["body"] == -1 for s in found)
    return [
        (
            s["kind"],
            s["size"],
            np.reshape(s["placement"][:9], (3, 3)),
            np.array(s["placement"][9:]),
            unpacked(s["corners"]).reshape(-1, 3, 3) if "corners" in s else None,
        )
        for s in found
    ]


def embedded(page):
    """What the player of a page is given."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])


def test_every_shape_of_a_scene_is_drawn_where_it_is(arm, scene):
    data = content(arm, scene=scene)
    box, sphere, capsule, plane, mesh, cloud = around(data)
    assert (box[0], box[1]) == ("box", pytest.approx([0.4, 0.03, 0.5]))
    np.testing.assert_allclose(box[2], TURNED.R, atol=1e-12)
    np.testing.assert_allclose(box[3], TURNED.p)
    assert (sphere[0], sphere[1]) == ("sphere", [0.1])
    np.testing.assert_allclose(sphere[3], (-0.5, 0.5, 0.2))
    radius, length = capsule[1]
    assert radius == 0.05
    for sign, end in ((-1, (-0.5, -0.5, 0)), (1, (-0.4, -0.6, 0.5))):
        np.testing.assert_allclose(
            capsule[3] + sign * length / 2 * capsule[2][:, 2], end, atol=1e-6
        )
    # the patch is a thin box below its plane, which its upper face lies in
    normal = np.array([0.1, 0.2, 1.0]) / np.linalg.norm([0.1, 0.2, 1.0])
    np.testing.assert_allclose(plane[2][:, 2], normal, atol=1e-12)
    assert normal @ plane[3] + plane[1][2] / 2 == pytest.approx(-0.3, abs=1e-6)
    assert plane[1][0] == plane[1][1] > 1 and any(
        "Planes have no end" in note for note in data["notes"]
    )
    np.testing.assert_allclose(
        mesh[4], scene["mesh 0"].triangles.moved(TURNED.R, TURNED.p).corners, atol=1e-6
    )
    # a point is an octahedron, whose corners are its radius away from it
    points = scene[HOSTILE].xyz[::3]
    octahedra = cloud[4].reshape(8, len(points), 9).transpose(1, 0, 2).reshape(len(points), 24, 3)
    np.testing.assert_allclose(octahedra.mean(axis=1), points, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(octahedra - points[:, None], axis=2), 0.01, atol=1e-6)
    assert not any("that large" in note for note in data["notes"])
    tiny = content(arm, scene=[rg.Points([[0.5, 0.0, 0.5]], 0.0)])
    seen = float(np.linalg.norm(around(tiny)[0][4] - (0.5, 0, 0.5), axis=2).max())
    assert any(f"below {1e3 * seen:.2g} mm are drawn that large" in note for note in tiny["notes"])
    a, b, c = cloud[4].transpose(1, 0, 2)
    outwards = np.einsum(
        "ij,ij->i", np.cross(b - a, c - a), cloud[4].mean(axis=1) - np.tile(points, (8, 1))
    )
    assert (outwards > 0).all()
    assert "Red: the scene." in data["notes"] and any(
        "8007 points" in note and "2669 are drawn" in note for note in data["notes"]
    )


def test_what_is_far_from_the_robot_does_not_move_the_camera_away(arm):
    near, floor = rg.Sphere(0.1, (1.5, 0, 0)), rg.Box((100, 100, 0.1), (0, 0, -0.05))
    plain = content(arm)
    assert content(arm, scene=[near, floor, rg.Plane()])["high"] == pytest.approx(
        [1.6, *plain["high"][1:]]
    )


def test_large_meshes_are_made_coarser_and_say_by_how_much():
    rings = {
        name: rg.Mesh(torus(), (3.0 * k, 0, 0), name=name)
        for k, name in enumerate(("left", "right"))
    }
    found = outlines(rings)
    assert (
        sum(len(o.rows) for o in found)
        <= MOST_TRIANGLES
        < sum(len(r.triangles.faces) for r in rings.values())
    )
    for outline, ring in zip(found, rings.values(), strict=True):
        assert outline.name in outline.note and f"{len(outline.rows)} are drawn" in outline.note
        moved = float(re.search(r"up to ([\d.]+) mm", outline.note)[1]) / 1e3
        assert moved < 0.06
        corners = outline.rows.reshape(-1, 3, 3)
        local = corners - ring.pose.p
        # of a torus: how far a point is from it. A mean of corners that were moved less than this
        # is no further away; said with two digits
        away = np.abs(np.hypot(np.hypot(local[..., 0], local[..., 1]) - 1, local[..., 2]) - 0.3)
        assert away.max() <= 1.05 * moved
        a, b, c = local.transpose(1, 0, 2)
        volume = np.einsum("ij,ij->", a, np.cross(b, c)) / 6
        # closed still, and its outside is outside
        assert volume == pytest.approx(ring.triangles.volume, rel=0.05)
    small = outlines({"left": rg.Mesh(torus(40, 20))})[0]
    assert len(small.rows) == 1600 and not small.note


def test_a_path_brings_its_scene_and_another_takes_its_place(arm, scene, path, tmp_path):
    shown = embedded(rg.view(arm, path, html=tmp_path / "path.html").read_text())
    assert [s[0] for s in around(shown)] == ["box", "sphere", "capsule", "box", "mesh", "mesh"]
    assert path.scene is scene
    assert [s[0] for s in around(content(arm, path, scene=[rg.Sphere(0.1)]))] == ["sphere"]
    assert not around(content(arm, path, scene=[]))
    assert [s[0] for s in around(content(arm, path.q, dt=0.01, scene=scene))] == [
        s[0] for s in around(shown)
    ]
    with pytest.raises(InputError, match=r"a scene is rg\.Scene"):
        rg.view(arm, path, scene="scene.toml", html=tmp_path / "never.html")
    assert not (tmp_path / "never.html").exists()


def test_the_scene_of_a_problem_is_drawn_around_its_solution(arm):
    scene = rg.Scene([rg.Box((0.2, 0.2, 0.2), (0.6, 0.6, 0.2)), rg.Sphere(0.1, (0.7, -0.6, 0.3))])
    start = np.r_[0.2, 0.4, 0, -1.5, 0, 1.0, 0, np.zeros(7)]
    problem = rg.Problem(
        arm,
        start=start,
        steps=3,
        dt=0.02,
        costs=[rg.costs.Effort(1e-3)],
        limits=rg.Limits(scene=scene),
    )
    drawn = around(content(arm, start[:7], problem=problem))
    assert [s[0] for s in drawn] == ["box", "sphere"]
    np.testing.assert_allclose(drawn[1][3], (0.7, -0.6, 0.3))
    solution = rg.solve(problem, rg.PDDP(iterations=2))
    assert [s[0] for s in around(content(arm, solution))] == ["box", "sphere"]


def test_a_file_keeps_the_scene(arm, path, tmp_path):
    np.savez(tmp_path / "path.npz", q=path.q, t=path.t, **path.surroundings.arrays())
    read = read_motion(tmp_path / "path.npz")
    for kept, own in zip(read.surroundings.solids, path.surroundings.solids, strict=True):
        assert (kept.name, kept.kind, kept.note) == (own.name, own.kind, own.note)
        np.testing.assert_array_equal(kept.rows, own.rows)
    for wrong in (
        {"solid_0_kind": np.array("cone")},
        {"solid_0": np.zeros((1, 3))},
        {"solid_0": np.full((1, 15), np.nan)},
    ):
        np.savez(tmp_path / "wrong.npz", **({"q": path.q} | path.surroundings.arrays() | wrong))
        with pytest.raises(InputError, match="is no motion"):
            read_motion(tmp_path / "wrong.npz")


def test_a_report_of_a_path_has_its_numbers_its_limits_and_its_distances(arm, path, tmp_path):
    text = rg.report(path, tmp_path / "plan.html", robot=arm).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])["report"]
    np.testing.assert_array_equal(data["q"], path.q)
    np.testing.assert_array_equal(data["corners"], path.corners)
    times = np.searchsorted(path.time, data["distance_t"])
    np.testing.assert_array_equal(path.time[times], data["distance_t"])
    for k in times[:: len(times) // 5]:
        least = arm.distances(path.q[k], path.scene).distance.min()
        assert data["distance"][int(np.flatnonzero(times == k)[0])] == pytest.approx(
            least, abs=1e-9
        )
    assert min(data["distance"]) > 0
    # a lower and an upper one, of positions and velocities: as a line, or beside the name
    beside = len(re.findall(r"iiwa_joint_\d \(±[\d.]+\)", text))
    assert (
        beside
        and text.count('class="level"')
        and beside * 2 + text.count('class="level"') >= (4 * arm.nq)
    )
    assert len(around(embedded(text))) == len(path.scene)
    assert "<b>cloud" not in text and "&lt;b&gt;cloud" in text


def test_a_level_of_a_chart_is_at_its_value():
    from rigidgrad import charts

    svg = charts.lines(
        "t", "s", "", {"a": ([0.0, 1.0], [-1.0, 1.0])}, log=False, levels={"a": (-1.0, 3.0, np.inf)}
    )
    line = [float(y) for y in re.findall(r'y1="([\d.]+)" y2="[\d.]+" class="level"', svg)]
    curve = [
        float(p.split(",")[1]) for p in re.search(r'<polyline points="([^"]+)"', svg)[1].split()
    ]
    assert line[0] == curve[0] and curve[0] - line[1] == pytest.approx(
        2 * (curve[0] - curve[1]), abs=0.2
    )
    assert len(line) == 2


def test_what_cannot_be_shown_of_a_path_is_told(arm, path, tmp_path):
    with pytest.raises(InputError, match="pass robot="):
        rg.report(path, tmp_path / "r.html")
    with pytest.raises(InputError, match="7 positions"):
        rg.report(path, tmp_path / "r.html", robot=rg.load("cartpole"))
    failed = rg.plan(arm, np.full(7, 9.0), np.zeros(7))
    assert (
        "start outside limits" in rg.report(failed, tmp_path / "failed.html", robot=arm).read_text()
    )
    with pytest.raises(InputError, match="no motion to show: start outside limits"):
        rg.view(arm, failed, html=tmp_path / "r.html")
    bare = rg.report(
        rg.plan(rg.load("cartpole"), [0.0, 0.0], [0.5, 0.0]),
        tmp_path / "bare.html",
        robot=rg.load("cartpole"),
    ).read_text()
    assert "nothing was avoided" in bare


def test_commands_report_a_plan_and_view_its_scene(tmp_path, monkeypatch, capsys):
    from rigidgrad.cli import main

    monkeypatch.chdir(tmp_path)
    Path("scene.toml").write_text(
        '[[shape]]\nkind = "sphere"\nradius = 0.1\ncenter = [-0.3, 0, 2]\n'
    )
    # the bundled robot has no collision shapes
    command = ["--scene", "scene.toml", "--goal=0.5,0", "--report", "--json"]
    assert main(["plan", "cartpole", *command]) == 1
    assert "no collision shapes" in capsys.readouterr().err
    bundled = files("rigidgrad.model") / "robots" / "cartpole.urdf"
    shape = '<collision><geometry><sphere radius="0.02"/></geometry></collision><visual>'
    Path("cart.urdf").write_text(bundled.read_text().replace("<visual>", shape, 1))
    assert main(["plan", "cart.urdf", *command]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == "report.html"
    assert [s[0] for s in around(embedded(Path("report.html").read_text()))] == ["sphere"]
    assert main(["view", "cartpole", "path.npz", "--html", "a.html"]) == 0
    assert main(["view", "cartpole", "--scene", "scene.toml", "--html", "b.html"]) == 0
    for page in ("a.html", "b.html"):
        assert around(embedded(Path(page).read_text()))[0][3].tolist() == [-0.3, 0, 2]
    assert main(["view", "cartpole", "--scene", "none.toml", "--html", "c.html"]) != 0
    assert "none.toml" in capsys.readouterr().err
