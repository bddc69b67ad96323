"""Meshes of robots: read from STL, OBJ, COLLADA and MJCF with their colours, from nowhere but the
robot's folder; few triangles that keep the shape; the same on saved and live pages.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import launched, missing, picture

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.geometry.collada import read_collada
from rigidgrad.viewer import view
from rigidgrad.viewer.meshes import LIVE_TRIANGLES, PAGE_TRIANGLES
from rigidgrad.viewer.page import content, fragment, without_repeated_meshes
from rigidgrad.viewer.shapes import draw
from rigidgrad.viewer.surfaces import shares, simplified, surface

with_browser = pytest.mark.skipif(bool(missing()), reason=missing())
with_live_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))


def ball(rings=60, radius=0.1):
    """Vertices and faces of a ball, counter-clockwise seen from outside."""
    u, w = np.linspace(0, np.pi, rings + 1), np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    u, w = (g.ravel() for g in np.meshgrid(u, w, indexing="ij"))
    points = radius * np.stack([np.sin(u) * np.cos(w), np.sin(u) * np.sin(w), np.cos(u)], axis=1)
    i, j = (g.ravel() for g in np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij"))
    a, b, c, d = (
        (i + p) * 2 * rings + (j + q) % (2 * rings) for p, q in ((0, 0), (1, 0), (1, 1), (0, 1))
    )
    faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    corners = points[faces]
    area = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    return points, faces[area > 1e-9]


def cube(size=0.2, cells=2):
    """One whose sides have `cells` by `cells` squares each, with corners of their own."""
    grid = np.linspace(-0.5, 0.5, cells + 1)
    points, faces = [], []
    for axis in range(3):
        for side in (-0.5, 0.5):
            first = len(points)
            for a in grid:
                for b in grid:
                    p = np.empty(3)
                    p[axis], p[(axis + 1) % 3], p[(axis + 2) % 3] = side, a, b
                    points.append(size * p)
            for i in range(cells):
                for j in range(cells):
                    a, b, c, d = (
                        first + (cells + 1) * (i + k) + j + m
                        for k, m in ((0, 0), (1, 0), (1, 1), (0, 1))
                    )
                    faces += [(a, b, c), (a, c, d)] if side > 0 else [(a, c, b), (a, d, c)]
    return np.array(points), np.array(faces)


def write_stl(path: Path, points, faces):
    rows = b"".join(struct.pack("<12fH", 0, 0, 0, *points[face].ravel(), 0) for face in faces)
    path.write_bytes(bytes(80) + struct.pack("<I", len(faces)) + rows)


def write_obj(path: Path):
    """A cube of 0.2 m of which one face is green; the colours stand in a file beside it."""
    points, faces = cube()
    lines = ["mtllib looks.mtl"] + [f"v {x} {y} {z}" for x, y, z in points]
    for name, part in (("red", faces[8:]), ("green", faces[:8])):
        lines += [f"usemtl {name}"] + [f"f {a + 1}/1/1 {b + 1} {c + 1}" for a, b, c in part]
    path.write_text("\n".join(lines))
    (path.parent / "looks.mtl").write_text("newmtl red\nKd 1 0 0\nnewmtl green\nKd 0 1 0\n")


COLLADA = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><unit name="millimeter" meter="0.001"/><up_axis>Z_UP</up_axis></asset>
<library_effects>
  <effect id="e1"><profile_COMMON><technique sid="common"><lambert>
    <diffuse><color>0.2 0.4 0.8 1</color></diffuse></lambert></technique></profile_COMMON></effect>
  <effect id="e2"><profile_COMMON><technique sid="common"><phong>
    <diffuse><texture texture="t"/></diffuse></phong></technique></profile_COMMON></effect>
</library_effects>
<library_materials>
  <material id="m1"><instance_effect url="#e1"/></material>
  <material id="m2"><instance_effect url="#e2"/></material>
</library_materials>
<library_geometries><geometry id="g"><mesh>
  <source id="p"><float_array id="pa" count="12">0 0 0 100 0 0 100 100 0 0 100 0</float_array>
    <technique_common><accessor source="#pa" count="4" stride="3"/></technique_common></source>
  <vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
  <triangles material="A" count="1"><input semantic="VERTEX" source="#v" offset="0"/>
    <input semantic="NORMAL" source="#n" offset="1"/><p>0 0 1 0 2 0</p></triangles>
  <polylist material="B" count="1"><input semantic="VERTEX" source="#v" offset="0"/>
    <vcount>4</vcount><p>0 1 2 3</p></polylist>
  <polygons material="B"><input semantic="VERTEX" source="#v" offset="0"/><p>0 2 3</p></polygons>
</mesh></geometry></library_geometries>
<library_visual_scenes><visual_scene id="s">
  <node><translate>0 0 500</translate><node><rotate>0 0 1 90</rotate><scale>2 1 1</scale>
    <instance_geometry url="#g"><bind_material><technique_common>
      <instance_material symbol="A" target="#m1"/><instance_material symbol="B" target="#m2"/>
    </technique_common></bind_material></instance_geometry></node></node>
</visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene>
</COLLADA>"""


def robot_with(folder: Path, *visuals: str, inside="urdf"):
    """A URDF in a package whose link has these visuals."""
    (folder / "package.xml").write_text("<package/>")
    (folder / inside).mkdir(exist_ok=True)
    body = "".join(visuals)
    (folder / inside / "r.urdf").write_text(
        f'<robot name="r"><link name="a"/><joint name="j" type="revolute"><parent link="a"/>'
        f'<child link="b"/><axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/>'
        f'</joint><link name="b"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0"'
        f' iyy="1" iyz="0" izz="1"/></inertial>{body}</link></robot>'
    )
    return rg.load(folder / inside / "r.urdf")


def mesh(name, more="", extra=""):
    return f'<visual>{extra}<geometry><mesh filename="{name}" {more}/></geometry></visual>'


def surfaces(drawing):
    return [s for s in drawing.shapes if s.surface is not None]


# --- reading --------------------------------------------------------------------------------------


def test_a_mesh_is_drawn_where_the_file_says_in_the_colour_of_the_urdf(tmp_path):
    write_stl(tmp_path / "ball.stl", *ball())
    red = '<material name="red"><color rgba="1 0 0 0.5"/></material>'
    text = mesh("../ball.stl", 'scale="1 1 -2"', '<origin xyz="0 0 0.3"/>')
    robot = robot_with(tmp_path, text.replace("</visual>", red + "</visual>"))
    drawing = draw(robot.model)
    [shape] = surfaces(drawing)
    assert len(drawing.shapes) == 1 and shape.color == (1, 0, 0, 0.5) and shape.link == "b"
    low, high = drawing.bounds(np.eye(4)[None].repeat(2, 0))
    np.testing.assert_allclose(low, (-0.1, -0.1, 0.1), atol=2e-3)
    np.testing.assert_allclose(high, (0.1, 0.1, 0.5), atol=2e-3)
    # normals point out of the ball, mirrored as it is
    s = shape.surface
    assert (np.einsum("ij,ij->i", s.normals, s.vertices * [1, 1, 0.25]) > 0).all()


def test_colours_of_an_obj_are_those_of_its_material_file(tmp_path):
    write_obj(tmp_path / "cube.obj")
    robot = robot_with(tmp_path, mesh("../cube.obj"))
    colors = {s.color for s in surfaces(draw(robot.model))}
    assert colors == {(1, 0, 0, 1), (0, 1, 0, 1)}
    # a material file is looked for beside the mesh, and nowhere else
    (tmp_path / "cube.obj").write_text(
        (tmp_path / "cube.obj").read_text().replace("looks.mtl", "../../../../etc/hostname")
    )
    assert {s.color for s in surfaces(draw(robot.model))} == {draw(robot.model).shapes[0].color}


def test_collada_nodes_units_polygons_and_materials():
    parts = read_collada(COLLADA.encode(), "m")
    assert [len(p.faces) for p in parts] == [1, 2, 1]
    assert [p.color for p in parts] == [(0.2, 0.4, 0.8, 1.0), None, None]  # a texture has none
    points = parts[1].vertices
    # scaled, then turned about z, then moved up, in metres
    expected = [(0, 0, 0.5), (0, 0.2, 0.5), (-0.1, 0.2, 0.5), (-0.1, 0, 0.5)]
    np.testing.assert_allclose(points, expected, atol=1e-12)


def test_collada_agrees_with_mujocos_reader_of_stl_of_the_same_robot():
    """Of example-robot-data: the visual (DAE) and collision (STL) meshes of the Panda's links are
    of one size."""
    folder = next(
        (
            p / "cmeel.prefix/share/example-robot-data/robots"
            for p in map(Path, sys.path)
            if (p / "cmeel.prefix/share/example-robot-data/robots").is_dir()
        ),
        None,
    )
    if folder is None:
        pytest.skip("example-robot-data is not installed")
    from rigidgrad.geometry.meshes import read_mesh

    meshes = folder / "panda_description/meshes"
    for link in ("link0", "link3", "link7", "hand"):
        parts = read_collada((meshes / f"visual/{link}.dae").read_bytes(), link)
        points = np.concatenate([p.vertices for p in parts])
        solid = read_mesh(meshes / f"collision/{link}.stl").vertices
        np.testing.assert_allclose(points.min(axis=0), solid.min(axis=0), atol=0.01)
        np.testing.assert_allclose(points.max(axis=0), solid.max(axis=0), atol=0.01)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("<a/>", "no COLLADA"),
        ("<COLLADA", "well-formed"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><COLLADA/>', "DOCTYPE"),
        ("<COLLADA/>", "no triangles"),
        (COLLADA.replace("0 1 2 3</p>", "0 1 2 9</p>"), "not there"),
        (COLLADA.replace("0 1 2 3</p>", "0 1 2</p>"), "damaged"),
        (COLLADA.replace("0 0 0 100", "0 0 x 100"), "damaged"),
        (COLLADA.replace("0 0 0 100", "0 0 nan 100"), "not finite"),
        (COLLADA.replace('url="#g"', 'url="#h"'), "damaged"),
        ("<COLLADA>" + "<a>" * 99 + "</a>" * 99 + "</COLLADA>", "nested too deep"),
        (
            '<COLLADA><library_visual_scenes><visual_scene id="s"><node id="n"><instance_node'
            ' url="#n"/></node></visual_scene></library_visual_scenes></COLLADA>',
            "in each other",
        ),
    ],
)
def test_collada_that_nobody_vouches_for(data, said):
    with pytest.raises(InputError, match=said):
        read_collada(data.encode(), "mesh 'x.dae'")


def test_nothing_outside_of_the_robots_folder_is_read(tmp_path):
    robot_folder, other = tmp_path / "robot", tmp_path / "other"
    robot_folder.mkdir()
    other.mkdir()
    write_stl(other / "ball.stl", *ball())
    robot = robot_with(robot_folder, mesh("../../other/ball.stl"), mesh("package://pack/ball.stl"))
    drawing = draw(robot.model)
    assert not surfaces(drawing) and {s.kind for s in drawing.shapes} == {"box", "cylinder"}
    assert "2 meshes are not drawn; simple shapes stand for them" in drawing.notes[0]
    assert "outside of the robot's folder" in drawing.notes[0]
    assert len(surfaces(draw(robot.model, roots={"pack": other}))) == 2
    assert len(surfaces(draw(robot.model, roots=[other]))) == 1
    shown = view(robot, html=tmp_path / "r.html", roots={"pack": other}).read_text()
    assert "data-rigidgrad-mesh" in shown and "not drawn" not in shown


def test_what_cannot_be_read_is_told_and_simple_collision_shapes_stand_in(tmp_path):
    (tmp_path / "bad.stl").write_bytes(b"nonsense")
    box = '<collision><geometry><box size="0.1 0.2 0.3"/></geometry></collision>'
    drawing = draw(robot_with(tmp_path, mesh("../bad.stl"), box).model)
    assert [(s.kind, s.size) for s in drawing.shapes if s.link == "b"] == [("box", (0.1, 0.2, 0.3))]
    assert "1 mesh is not drawn; what is beside them is drawn" in drawing.notes[0] or (
        "1 mesh is not drawn" in drawing.notes[0]
    )
    assert "no STL" in drawing.notes[0]


def test_meshes_of_an_mjcf_are_drawn_in_their_colours():
    pytest.importorskip("mujoco")
    text = """<mujoco><asset><mesh name="m" vertex="0 0 0 .1 0 0 0 .2 0 0 0 .3"/></asset><worldbody>
      <body><joint axis="0 0 1"/><geom type="mesh" mesh="m" pos="0 0 1" rgba="0 0.5 1 1"/></body>
      </worldbody></mujoco>"""
    robot = rg.load(text)
    [shape] = surfaces(draw(robot.model))
    assert shape.color == pytest.approx((0, 0.5, 1, 1))
    placed = shape.placement.matrix() @ np.c_[shape.surface.vertices, np.ones(12)].T
    np.testing.assert_allclose(placed[:3].min(axis=1), (0, 0, 1), atol=1e-6)
    np.testing.assert_allclose(placed[:3].max(axis=1), (0.1, 0.2, 1.3), atol=1e-6)


# --- few triangles --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [200, 1000, 4000])
def test_a_ball_of_few_triangles_is_still_a_ball(most):
    points, faces = ball()
    less, kept, moved = simplified(points, faces, most)
    assert 0.6 * most < len(kept) <= most and moved > 0
    radii = np.linalg.norm(less, axis=1)
    cell = np.sqrt(4 * np.pi * 0.1**2 / most)
    assert np.abs(radii - 0.1).max() < cell**2 / 0.1  # of second order in the size of a triangle
    nearest = np.linalg.norm(points[:, None] - less[None], axis=2).min(axis=1)
    assert nearest.max() <= moved + 1e-12


def test_corners_and_edges_of_a_cube_stay_where_they_are():
    points, faces = cube(cells=20)
    rough, kept, _ = simplified(points, faces, 500)
    assert len(kept) <= 500
    corners = 0.1 * np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    away = np.linalg.norm(corners[:, None] - rough[None], axis=2).min(axis=1)
    assert away.max() < 1e-9 and np.abs(np.abs(rough).max(axis=1) - 0.1).max() < 1e-9


def test_a_surface_is_smooth_but_at_its_edges():
    s = surface(*ball(), 10**6)
    away = s.vertices / np.linalg.norm(s.vertices, axis=1, keepdims=True)
    assert np.einsum("ij,ij->i", s.normals, away).min() > 0.99
    c = surface(*cube(), 10**6)
    assert np.sort(np.abs(c.normals), axis=1) == pytest.approx(
        np.tile([0, 0, 1], (len(c.normals), 1))
    )
    assert len(np.unique(c.vertices, axis=0)) == 26 and len(c.vertices) == 54


def test_shares_are_by_weight_and_no_more_than_there_is():
    assert shares([10, 1000, 1000], [1, 1, 1], 610) == [10, 300, 300]
    assert shares([10, 10], [1, 1], 100) == [10, 10]
    assert shares([1000, 1000], [3, 1], 400) == [300, 100]


def test_a_page_is_bounded_and_says_what_was_left_out(tmp_path):
    write_stl(tmp_path / "ball.stl", *ball(rings=150))  # 89,400 triangles
    robot = robot_with(
        tmp_path, mesh("../ball.stl"), mesh("../ball.stl", "", '<origin xyz="1 0 0"/>')
    )
    page = view(robot, html=tmp_path / "r.html")
    assert page.stat().st_size < 800_000
    data = content(robot)
    assert len(data["meshes"]) == 1 and len([s for s in data["shapes"] if "mesh" in s]) == 2
    [drawn] = data["meshes"].values()
    faces = np.frombuffer(base64.b64decode(drawn["faces"]), "<u2").reshape(-1, 3)
    assert 0.6 * PAGE_TRIANGLES < len(faces) <= PAGE_TRIANGLES < LIVE_TRIANGLES
    assert re.search(
        r"Meshes of 89,400 triangles are drawn with [\d,]+, whose corners", str(data["notes"])
    )
    # vertices of 16 bits are within a step of where they are
    at = np.frombuffer(base64.b64decode(drawn["vertices"]), "<u2").reshape(-1, 3)
    radii = np.linalg.norm(np.array(drawn["low"]) + at * np.array(drawn["step"]), axis=1)
    assert np.abs(radii - 0.1).max() < 2e-4


def test_several_motions_on_a_page_have_the_triangles_once(tmp_path):
    write_stl(tmp_path / "ball.stl", *ball())
    robot = robot_with(tmp_path, mesh("../ball.stl"))
    both = fragment(robot) + fragment(robot, np.zeros((3, 1)), dt=0.1)
    assert both.count('json" data-rigidgrad-mesh="') == 2
    once = without_repeated_meshes(both)
    assert (
        once.count('json" data-rigidgrad-mesh="') == 1
        and once.count('"rigidgrad-view"><script') == 2
    )


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with launched() as made:
        yield made


@with_browser
def test_meshes_are_seen_on_a_saved_page(browser, tmp_path):
    write_obj(tmp_path / "cube.obj")
    robot = robot_with(tmp_path, mesh("../cube.obj"))
    page = browser.new_page(viewport={"width": 400, "height": 400}, color_scheme="light")
    errors = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(view(robot, html=tmp_path / "r.html").as_uri())
    page.wait_for_timeout(300)
    page.get_by_label("Joint sliders").click() if page.locator(".joints").is_visible() else None
    page.wait_for_timeout(200)
    seen = picture(page)
    red = (seen[..., 0] > 120) & (seen[..., 1] < 60) & (seen[..., 2] < 60)
    assert red.mean() > 0.01 and not errors
    page.close()


@with_live_page
def test_a_live_page_has_the_same_triangles(tmp_path):
    write_stl(tmp_path / "ball.stl", *ball())
    robot = robot_with(tmp_path, mesh("../ball.stl"))
    stage = view(robot, port=0, block=False, announce=False)
    try:
        handle = stage.server.scene.get_handle_by_name("/robot/body_0/shape_0")
        [shape] = surfaces(stage.drawing)
        np.testing.assert_allclose(handle.vertices, shape.surface.vertices, atol=1e-6)
        np.testing.assert_array_equal(handle.faces, shape.surface.faces)
    finally:
        stage.stop()
