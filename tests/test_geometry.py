"""Shapes, meshes and their covers, scenes from files: what is read, what is refused, and that
covers keep their word.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from coal_oracle import coal, of_triangles, pose, random_rotation, signed

import rigidgrad as rg
from rigidgrad.collisions.tree import ball_tree
from rigidgrad.errors import InputError, ModelWarning
from rigidgrad.geometry import cover as covers
from rigidgrad.geometry.cover import cover, subdivided, winding
from rigidgrad.geometry.files import mesh_file
from rigidgrad.geometry.links import box_surface
from rigidgrad.geometry.meshes import read_mesh, triangles
from rigidgrad.geometry.scene import Scene


def collada(vertices, faces):
    """In millimetres, in two parts."""
    points = " ".join(map(str, vertices.ravel()))
    parts = "".join(
        f'<triangles count="{len(part)}"><input semantic="VERTEX" source="#v" offset="0"/>'
        f"<p>{' '.join(map(str, part.ravel()))}</p></triangles>"
        for part in (faces[:5], faces[5:])
        if len(part)
    )
    return (
        '<COLLADA><asset><unit meter="0.001"/></asset><library_geometries><geometry id="g"><mesh>'
        f'<source id="s"><float_array id="n">{points}</float_array><technique_common>'
        '<accessor source="#n" stride="3"/></technique_common></source>'
        '<vertices id="v"><input semantic="POSITION" source="#s"/></vertices>'
        f"{parts}</mesh></geometry></library_geometries><library_visual_scenes>"
        '<visual_scene id="a"><node><instance_geometry url="#g"/></node></visual_scene>'
        '</library_visual_scenes><scene><instance_visual_scene url="#a"/></scene></COLLADA>'
    )


def cube(folder, kind: str, lengths=(1, 1, 1), faces=slice(None)):
    solid = box_surface(lengths)
    chosen = solid.faces[faces]
    path = folder / f"cube.{kind.split()[0]}"
    if kind == "obj":
        lines = [f"v {x} {y} {z}" for x, y, z in solid.vertices] + [
            f"f {a + 1}//1 {b + 1}//1 {c - len(solid.vertices)}//1" for a, b, c in chosen
        ]
        path.write_text("# a cube\n" + "\n".join(lines) + "\n")
    elif kind == "dae":
        path.write_text(collada(solid.vertices * 1e3, chosen))
    elif kind == "stl text":
        body = "".join(
            "facet normal 0 0 0\nouter loop\n"
            + "".join(f"vertex {x} {y} {z}\n" for x, y, z in t)
            + "endloop\nendfacet\n"
            for t in solid.vertices[chosen]
        )
        path.write_text(f"solid cube\n{body}endsolid cube\n")
    else:
        rows = b"".join(
            struct.pack("<12fH", 0, 0, 0, *t.ravel(), 0) for t in solid.vertices[chosen]
        )
        path.write_bytes(
            b"solid but binary".ljust(80, b" ") + struct.pack("<I", len(chosen)) + rows
        )
    return path


def test_collada_of_robots_is_read_as_assimp_does():
    """Of example-robot-data, with coal's loader: as many triangles, as large."""
    pin = pytest.importorskip("pinocchio")
    places = (p for p in Path(pin.__file__).parents if p.name == "cmeel.prefix")
    folder = next(places, Path("nowhere")) / "share/example-robot-data/robots"
    files = [
        folder / f"icub_description/meshes/upmc/collision/icub_simple_collision_{name}.dae"
        for name in ("l_hand", "l_hip_2", "neck_1", "chest")
    ]
    if not files[0].is_file():
        pytest.skip("example-robot-data is not installed")
    for file in files:
        found, theirs = read_mesh(file), coal.MeshLoader().load(str(file), np.ones(3))
        assert len(found.faces) == theirs.num_tris
        points = theirs.vertices()
        for end in (np.min, np.max):
            assert np.allclose(end(found.vertices, axis=0), end(points, axis=0), atol=1e-7)
        if not found.open_edges:
            assert found.volume == pytest.approx(theirs.computeVolume(), rel=1e-5)


@pytest.mark.parametrize("kind", ["stl", "stl text", "obj", "dae"])
def test_files_of_one_solid_give_one_solid(kind, tmp_path):
    found = read_mesh(cube(tmp_path, kind, (1, 2, 3)))
    assert len(found.vertices) == 8
    assert len(found.faces) == 12
    assert found.volume == pytest.approx(6)
    assert found.open_edges == 0
    # inside out
    assert read_mesh((found.vertices, found.faces[:, ::-1])).volume == pytest.approx(6)
    assert found.scaled(np.array([1, 1, -2.0])).volume == pytest.approx(12)


def test_damaged_and_open_meshes_are_refused_with_advice(tmp_path):
    with pytest.raises(InputError, match="open: 4 edges lack a neighbour"):
        rg.Mesh(cube(tmp_path, "stl", faces=slice(2, None)))
    with pytest.raises(InputError, match="no such file"):
        rg.Mesh(tmp_path / "none.stl")
    whole = cube(tmp_path, "stl").read_bytes()
    for k, (content, said) in enumerate(
        [
            (whole[:-7], "is no text STL"),
            (b"", "is no STL"),
            (b"solid x\nvertex 1 2\n", "is no text STL"),
            (b"solid x\n" + b"vertex 1 2 a\n" * 3 + b"end of file", "damaged"),
            (whole[:80] + struct.pack("<I", 4_000_000_000), "is no text STL"),
        ]
    ):
        path = tmp_path / f"{k}.stl"
        path.write_bytes(content)
        with pytest.raises(InputError, match=said):
            rg.Mesh(path)
    for k, (content, said) in enumerate(
        [
            ("v 0 0 0\nf 1 2 3\n", "names vertex"),
            ("v 0 0\n", "three numbers"),
            ("v 0 0 0\nf 1 1\n", "three corners"),
            ("v 0 0 nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "NaN"),
            ("", "no triangles"),
            ("v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 2\n", "no triangle of positive area"),
        ]
    ):
        path = tmp_path / f"{k}.obj"
        path.write_text(content)
        with pytest.raises(InputError, match=said):
            rg.Mesh(path)
    with pytest.raises(InputError, match="directory"):
        rg.Mesh(tmp_path)


def test_shapes_without_a_size_or_a_place_are_refused():
    for make, said in (
        (lambda: rg.Sphere(0), "radius of a sphere is a positive number"),
        (lambda: rg.Sphere(0.1, (0, 0, np.nan)), "three finite numbers"),
        (lambda: rg.Box((1, 0, 1)), "3 positive numbers"),
        (lambda: rg.Box((1, 1, 1), np.ones((4, 4))), "pose of a box"),
        (lambda: rg.Box((1, 1, 1), (1e9, 0, 0)), "further away"),
        (lambda: rg.Capsule(0.1), "a length and a pose, or a start and an end"),
        (lambda: rg.Capsule(0.1, -1), "length of a capsule"),
        (lambda: rg.Plane((0, 0, 0)), "has no direction"),
        (lambda: rg.Mesh("x.stl", error=0), "error of a cover"),
        (lambda: rg.Mesh(box_surface((1, 1, 1)), scale=0), "scale of a mesh"),
        (lambda: rg.Mesh(3), "a mesh is a path"),
        (lambda: rg.Points(np.zeros((0, 3))), "one at least"),
        (lambda: rg.Points([[0, 0, np.nan], [0, 0, 1]]), "drop_nan=True"),
        (lambda: rg.Points(np.full((2, 3), np.nan), drop_nan=True), "all points"),
        (lambda: rg.Points([[0, 0, 1e6]]), "millimetres"),
        (lambda: rg.Points([[0, 0, 1]], radius=-1), "radius of a cloud"),
        (lambda: rg.Points(np.zeros((5_000_001, 3))), "at most 5000000"),
        (lambda: rg.Scene([1]), "a scene is a list of"),
        (lambda: rg.Scene([rg.Sphere(1, name="a"), rg.Sphere(2, name="a")]), "two shapes"),
    ):
        with pytest.raises(InputError, match=said):
            make()
    assert len(rg.Points([[0, 0, np.nan], [0, 0, 1]], drop_nan=True).xyz) == 1


def solids():
    """A box, one turned, a sheet that is much thinner than the error, and two bars through each
    other, whose inner walls are no surface.
    """
    rng = np.random.default_rng(0)
    yield box_surface((0.3, 0.1, 0.2))
    yield box_surface((0.2, 0.2, 0.02)).moved(random_rotation(rng), (0.4, 0, 0))
    yield box_surface((0.2, 0.15, 0.003))
    a, b = box_surface((0.4, 0.08, 0.08)), box_surface((0.08, 0.4, 0.07))
    yield triangles(
        np.concatenate([a.vertices, b.vertices]), np.concatenate([a.faces, b.faces + 8]), "a cross"
    )


@pytest.mark.parametrize("solid", list(solids()), ids=["box", "plate", "sheet", "cross"])
def test_a_cover_holds_the_solid_and_sticks_out_by_no_more_than_it_says(solid):
    found = cover(solid, 0.02)
    rng = np.random.default_rng(1)
    corners = solid.corners[rng.integers(len(solid.faces), size=4000)]
    weights = rng.dirichlet([1, 1, 1], size=4000)
    surface = np.einsum("sc,scx->sx", weights, corners)
    low, high = solid.vertices.min(axis=0), solid.vertices.max(axis=0)
    inner = rng.uniform(low, high, (4000, 3))
    inner = inner[winding(solid, inner) > 0.5]
    exact = of_triangles(solid.vertices, solid.faces)
    place = pose(np.eye(3), np.zeros(3))
    for points, held in ((surface, 1.0), (inner, 0.995)):
        reached = (
            np.linalg.norm(points[:, None] - found.centers[None], axis=2) <= found.radii + 1e-9
        ).any(axis=1)
        assert reached.mean() >= held  # what is inside and near the surface may be in none
    shell = rng.normal(size=(1500, 3))
    ball = rng.integers(len(found.radii), size=1500)
    shell = (
        found.centers[ball]
        + found.radii[ball, None] * shell / np.linalg.norm(shell, axis=1)[:, None]
    )
    shell = shell[winding(solid, shell) < 0.5]
    speck = coal.Sphere(1e-9)
    out = [signed((speck, pose(np.eye(3), p)), (exact, place)) for p in shell]
    assert max(out) <= found.error + 1e-7
    assert len(found.radii) < 150


@pytest.mark.parametrize("name", ["fine", "thin", "long"])
def test_covers_of_fine_long_and_thin_surfaces_keep_their_word(name, monkeypatch):
    """Those that are rounded to a grid first, and those whose triangles are cut by halves, with
    smaller numbers of what is too many than in earnest; and a very long ribbon, which is open.
    """
    monkeypatch.setattr(covers, "_MOST_VERTICES", 1000)
    if name == "thin":
        monkeypatch.setattr(covers, "_MOST_SAMPLES", 12_000)
    angle = np.linspace(0, np.pi, 40)
    ball = np.column_stack([0.3 * np.sin(angle), 0.2 * np.cos(angle)]).round(12)
    solid = {
        "fine": turned(ball, 40),
        "thin": turned([(0, -0.4), (0.1, -0.4), (0.1, 0.4), (0, 0.4)], 60),
        "long": triangles(
            np.array([(0, 0, 0), (30, 0, 0), (30, 0.03, 0), (0, 0.03, 0)]),
            np.array([(0, 1, 2), (0, 2, 3)]),
            "a ribbon",
        ),
    }[name]
    error, rng = 0.05, np.random.default_rng(2)
    steps = np.ceil(np.ptp(solid.corners, axis=1).max(axis=1) / (3**0.5 * error / 2))
    assert {
        "fine": len(solid.vertices) > 1000,
        "thin": (steps * (steps + 1) / 2).sum() > 12_000,
        "long": True,
    }[name], "the claim was not tried"
    found = cover(solid, error)
    corners = solid.corners[rng.integers(len(solid.faces), size=2000)]
    points = np.einsum("sc,scx->sx", rng.dirichlet([1, 1, 1], size=2000), corners)
    away = np.linalg.norm(points[:, None] - found.centers[None], axis=2) - found.radii
    assert away.min(axis=1).max() <= 1e-9
    ball = rng.integers(len(found.radii), size=300)
    way = rng.normal(size=(300, 3))
    ends = found.centers[ball] + found.radii[ball, None] * way / np.linalg.norm(
        way, axis=1, keepdims=True
    )
    ends = ends[winding(solid, ends) < 0.5]
    exact, here = of_triangles(solid.vertices, solid.faces), pose(np.eye(3), np.zeros(3))
    speck = coal.Sphere(1e-9)
    out = [signed((speck, pose(np.eye(3), p)), (exact, here)) for p in ends]
    assert max(out) <= found.error + 1e-7


def turned(profile, sides):
    """A profile (k, 2) of radii and heights turned about z; it begins and ends on the axis."""
    angle = np.arange(sides) * 2 * np.pi / sides
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    points = np.array([(*(r * xy), z) for r, z in profile for xy in ring])
    k = np.arange(len(points)).reshape(len(profile), sides)
    a, b, c, d = k[:-1], k[1:], np.roll(k, -1, axis=1)[1:], np.roll(k, -1, axis=1)[:-1]
    faces = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)]).reshape(-1, 3)
    return triangles(points, faces, "what was turned")


def test_small_triangles_are_the_same_surface():
    solid = box_surface((0.3, 0.1, 0.2))
    points, parts = subdivided(solid, 0.01)
    corners = points[parts]
    area = (
        np.linalg.norm(
            np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
        ).sum()
        / 2
    )
    assert area == pytest.approx(2 * (0.03 + 0.06 + 0.02))
    assert (
        np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max() <= 3**0.5 * 0.01 + 1e-9
    )


def test_what_is_too_large_for_its_error_is_refused_in_bounded_time():
    with pytest.raises(InputError, match="allow a larger one"):
        cover(box_surface((10, 10, 10)), 0.01)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_a_tree_of_balls_holds_each_ball_once_and_within_its_nodes(count):
    rng = np.random.default_rng(count)
    centers, radii = rng.normal(size=(count, 3)), rng.uniform(0, 0.1, count)
    tree = ball_tree(centers, radii)
    assert np.array_equal(
        np.unique(tree.balls, axis=0), np.unique(np.column_stack([centers, radii]), axis=0)
    )
    seen = np.zeros(count, int)
    node = 0
    for node in range(len(tree.nodes)):
        after, first, held = tree.steps[node]
        below = [k for k in range(node, after) if tree.steps[k, 2]]
        for k in below:
            own = tree.balls[tree.steps[k, 1] :][: tree.steps[k, 2]]
            assert (
                np.linalg.norm(own[:, :3] - tree.nodes[node, :3], axis=1) + own[:, 3]
                <= tree.nodes[node, 3] + 1e-9
            ).all()
        seen[first : first + held] += 1
    assert (seen == 1).all()


def test_scenes_are_read_from_files(tmp_path):
    cube(tmp_path, "stl", (0.1, 0.1, 0.1))
    path = tmp_path / "scene.toml"
    path.write_text(
        """[[shape]]\nkind = "box"\nsize = [1, 1, 0.1]\nxyz = [0.5, 0, 0.4]\nrpy = [0, 0, 0.3]\nname = "table"\n
        [[shape]]\nkind = "sphere"\nradius = 0.1\ncenter = [1, 2, 3]\n[[shape]]\nkind = "plane"\noffset = -0.1\n
        [[shape]]\nkind = "mesh"\npath = "cube.stl"\nxyz = [1, 0, 0]\n[[shape]]\nkind = "points"\nxyz = [[0, 0, 1]]\nradius = 0.01\n[[shape]]\nkind = "capsule"\nradius = 0.1\nlength = 0.2\n"""
    )
    scene = Scene.read(path)
    assert scene.names == ("table", "sphere 0", "plane 0", "mesh 0", "points 0", "capsule 0")
    assert scene["table"].pose.p == (0.5, 0.0, 0.4)
    for text, said in (
        ('[[shape]]\nkind = "cone"\n', "number 1: kind is one of box"),
        ('[[shape]]\nkind = "box"\nsize = [1, 0, 1]\n', "number 1: the lengths"),
        ('[[shape]]\nkind = "box"\nsice = [1, 1, 1]\n', "number 1: .*'sice'. Did you mean 'size'"),
        ('[[shape]]\nkind = "box"\nname = "b"\n', "number 1: Box missing .*'size'"),
        ('[[shape]]\nkind = "sphere"\nradius = 1\nrpy = [0, 0, 1]\n', "key of sphere .*'rpy'"),
        ('[[shape]]\nkind = ["box"]\n', "number 1: kind is one of box"),
        ('[[shape]]\nkind = "mesh"\npath = "../cube.stl"\n', "outside of"),
        ('[[shape]]\nkind = "mesh"\npath = "/etc/passwd"\n', "outside of"),
        ("[shapes]\n", "tables alone"),
        ("[[shape\n", "no TOML"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            Scene.read(path)
    with pytest.raises(InputError, match="no such file"):
        Scene.read(tmp_path / "none.toml")


def test_meshes_of_a_robot_are_read_from_its_own_folders_alone(tmp_path):
    package = tmp_path / "maker_description"
    (package / "urdf").mkdir(parents=True)
    (package / "meshes").mkdir()
    (package / "package.xml").write_text("<package/>")
    inside, outside = cube(package / "meshes", "stl"), cube(tmp_path, "stl")
    folder = str(package / "urdf")
    for name in (
        "../meshes/cube.stl",
        "package://maker_description/meshes/cube.stl",
        "package:///maker_description/meshes/cube.stl",
        str(inside),
        f"file://{inside}",
    ):
        assert mesh_file(name, folder) == str(inside), name
    (package / "meshes" / "link.stl").symlink_to(outside)
    for name in ("../../cube.stl", str(outside), "../meshes/link.stl"):
        with pytest.raises(InputError, match="outside of the robot's folder"):
            mesh_file(name, folder)
        assert mesh_file(name, folder, [str(tmp_path)]) == str(outside)
    for name in (
        "package://maker_description/../cube.stl",
        "package://other/cube.stl",
        "package://../cube.stl",
        "package:///etc/passwd",
    ):
        with pytest.raises(InputError, match="name it: roots="):
            mesh_file(name, folder)
    assert mesh_file("package://other/cube.stl", folder, {"other": str(tmp_path)}) == str(outside)
    with pytest.raises(InputError, match="not fetched"):
        mesh_file("http://example.com/cube.stl", folder)
    with pytest.raises(InputError, match="given as text"):
        mesh_file("cube.stl", None)


def robot_of(mesh, folder):
    path = folder / "r.urdf"
    path.write_text(
        '<robot name="r"><link name="hull"><collision><geometry><mesh'
        f' filename="{mesh}"/></geometry></collision></link></robot>'
    )
    return rg.load(path)


def test_of_a_links_open_mesh_the_triangles_are_covered_and_a_warning_names_it(tmp_path):
    """Points of the triangles are in balls, which nowhere leave them by more than the error."""
    cube(tmp_path, "stl", (0.4, 0.3, 0.2), faces=slice(2, None))
    robot = robot_of("cube.stl", tmp_path)
    with pytest.warns(ModelWarning, match=r"open.*hull \(4 edges lack a neighbour\)"):
        (link,) = robot.collisions.links
    assert link.error == 0.02
    centers = np.array([e.start for e in link.elements])
    radii = np.array([e.radius for e in link.elements])
    open_cube = read_mesh(tmp_path / "cube.stl")
    rng = np.random.default_rng(0)
    corners = open_cube.corners[rng.integers(len(open_cube.faces), size=3000)]
    points = np.einsum("sc,scx->sx", rng.dirichlet([1, 1, 1], size=3000), corners)
    away = np.linalg.norm(points[:, None] - centers[None], axis=2) - radii
    assert away.min(axis=1).max() <= 1e-9
    exact, speck = of_triangles(open_cube.vertices, open_cube.faces), coal.Sphere(1e-9)
    here = pose(np.eye(3), np.zeros(3))
    out = [signed((speck, pose(np.eye(3), c)), (exact, here)) for c in centers]
    assert (np.array(out) + radii).max() <= 0.02 + 1e-7
    boxed = robot.with_collisions(shapes={"hull": [rg.Box((0.4, 0.3, 0.2))]})
    assert boxed.collisions.links[0].error == 0


@pytest.mark.parametrize(("parted", "is_closed"), [(3e-8, True), (3e-6, True), (1e-4, False)])
def test_corners_that_rounding_has_parted_are_one(parted, is_closed, tmp_path):
    solid = box_surface((1.0, 0.5, 0.4))
    corners = solid.corners.reshape(-1, 3)
    corners = corners + parted * np.random.default_rng(1).uniform(-0.5, 0.5, corners.shape)
    found = read_mesh((corners, np.arange(len(corners)).reshape(-1, 3)))
    assert (found.open_edges == 0) == is_closed
    if is_closed:
        assert found.volume == pytest.approx(0.2, rel=1e-4)
        assert 0 < found.rounded <= 1e-5
        nearest = np.linalg.norm(corners[:, None] - found.vertices[None], axis=2).min(axis=1)
        assert nearest.max() <= found.rounded


def test_a_collision_shape_that_cannot_be_read_keeps_no_robot_from_loading_but_is_no_hole():
    robot = rg.load(
        '<robot name="r"><link name="a"><collision><geometry><box size="1 x'
        ' 1"/></geometry></collision></link></robot>'
    )
    with pytest.raises(InputError, match=r"link 'a'.*size.*shapes of your own"):
        _ = robot.collisions
