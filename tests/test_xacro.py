"""xacro files, packages with named roots, and robots of robot_descriptions that are on this
computer.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import InputError, ModelWarning, RigidgradError, UnknownNameError, UrdfError

XMLNS = 'xmlns:xacro="http://www.ros.org/wiki/xacro"'
LINK = (
    '<link name="{n}"><inertial><mass value="{m}"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0"'
    ' ixz="0" iyz="0"/></inertial>{shape}</link>'
)
MACROS = f"""<robot {XMLNS}><xacro:macro name="rod" params="name mass">
{LINK.format(n="${name}", m="${2 * mass}", shape="")}</xacro:macro></robot>"""
CUBE = """v -1 -1 -1\nv 1 -1 -1\nv 1 1 -1\nv -1 1 -1\nv -1 -1 1\nv 1 -1 1\nv 1 1 1\nv -1 1 1
f 1 3 2\nf 1 4 3\nf 5 6 7\nf 5 7 8\nf 1 2 6\nf 1 6 5\nf 2 3 7\nf 2 7 6\nf 3 4 8\nf 3 8 7\nf 4 1 5\nf 4 5 8
"""
MESH = '<collision><geometry><mesh filename="package://shapes/cube.obj" scale=".05 .05 .05"/></geometry></collision>'


@pytest.fixture
def arm(tmp_path):
    """arm_description/urdf/arm.urdf.xacro, with macros beside it and in another package."""
    pytest.importorskip("xacrodoc")
    folder = tmp_path / "arm_description" / "urdf"
    folder.mkdir(parents=True)
    shapes = tmp_path / "far" / "shapes"
    shapes.mkdir(parents=True)
    (folder / "rod.xacro").write_text(MACROS)
    (shapes / "tip.xacro").write_text(
        f"<robot {XMLNS}>{LINK.format(n='tip', m='$(arg load)', shape=MESH)}</robot>"
    )
    (shapes / "cube.obj").write_text(CUBE)
    path = folder / "arm.urdf.xacro"
    path.write_text(f"""<?xml version="1.0"?><robot name="arm" {XMLNS}>
      <xacro:arg name="load" default="3"/><xacro:arg name="turns" default="true"/>
      <xacro:include filename="rod.xacro"/><xacro:include filename="$(find arm_description)/urdf/rod.xacro"/>
      <xacro:include filename="$(find shapes)/tip.xacro"/>
      <link name="base"/><xacro:rod name="upper" mass="1.5"/>
      <joint name="a" type="continuous"><parent link="base"/><child link="upper"/></joint>
      <xacro:if value="$(arg turns)"><joint name="b" type="continuous"><parent link="upper"/><child link="tip"/><origin xyz="${{pi / 4}} 0 0"/></joint></xacro:if>
      <xacro:unless value="$(arg turns)"><joint name="b" type="fixed"><parent link="upper"/><child link="tip"/></joint></xacro:unless>
      </robot>""")
    return path, tmp_path / "far"


def test_macros_arguments_and_packages(arm):
    path, far = arm
    robot = rg.load(path, roots=[far])
    assert (robot.name, robot.joints) == ("arm", ("a", "b"))
    assert [m for m, *_ in robot.model.inertias] == [3.0, 3.0]
    assert robot.model.placements[1].p[0] == pytest.approx(np.pi / 4)
    other = rg.load(
        str(path), roots={"shapes": far / "shapes"}, xacro_args={"load": 0.5, "turns": False}
    )
    assert other.joints == ("a",) and other.model.inertias[0][0] == 3.5
    # meshes are found where macros were
    cubes = robot.distances([0.0, 0.0], [rg.Sphere(5.0, (20, 0, 0))])
    assert cubes.pairs and np.isfinite(cubes.distance).all()
    with pytest.raises(UrdfError, match=r"arm\.urdf\.xacro: xacro: .*shapes"):
        rg.load(path)


def test_a_file_of_another_name_is_expanded_if_arguments_are_given(arm, tmp_path):
    path, far = arm
    renamed = path.with_name("arm.urdf")
    renamed.write_text(path.read_text())
    with pytest.raises(UrdfError, match=r"unexpanded macro.*xacro_args=\{\}"):
        rg.load(renamed, roots=[far])
    assert rg.load(renamed, roots=[far], xacro_args={}).joints == ("a", "b")
    text = (
        f'<robot name="t" {XMLNS}><xacro:property name="n" value="x"/><link name="${{n}}"/></robot>'
    )
    assert rg.load(text, xacro_args={}).frames == ("x",)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<xacro:rod name="x"/>', "xacro: "),
        ('<link name="${unknown}"/>', "xacro: .*unknown"),
        ('<xacro:include filename="absent.xacro"/>', "absent.xacro"),
        ('<link name="a"><inertial/></link>', "of what xacro made of it: line .*<mass>"),
        ("<link", "not well-formed"),
    ],
)
def test_what_goes_wrong_in_macros_is_an_error_of_ours(tmp_path, body, said):
    pytest.importorskip("xacrodoc")
    path = tmp_path / "bad.xacro"
    path.write_text(f'<robot name="bad" {XMLNS}>{body}</robot>')
    with pytest.raises(UrdfError, match=said) as caught:
        rg.load(path)
    assert "bad.xacro" in str(caught.value)


def test_entities_are_refused_before_macros_see_them(tmp_path):
    path = tmp_path / "bomb.xacro"
    path.write_text('<!DOCTYPE r [<!ENTITY a "aaaa">]><robot name="&a;"/>')
    with pytest.raises(UrdfError, match="refused for safety"):
        rg.load(path)


def test_wrong_arguments_and_roots_are_named(arm):
    path, far = arm
    with pytest.raises(InputError, match="xacro_args is a dictionary"):
        rg.load(path, roots=[far], xacro_args=["load"])
    for roots in (3, [3], {"parts": 3}, [far, None]):
        with pytest.raises(InputError, match="roots are folders"):
            rg.load(path, roots=roots)
    with pytest.raises(InputError, match="root element of this one is <mujoco>"):
        rg.load("<mujoco/>", xacro_args={})


def test_without_xacrodoc_the_error_says_what_to_install(arm, monkeypatch):
    path, far = arm
    monkeypatch.setitem(sys.modules, "xacrodoc", None)
    with pytest.raises(RigidgradError, match=r"rigidgrad\[xacro\]"):
        rg.load(path, roots=[far])


def test_a_folder_with_macros_is_checked(arm, capsys):
    path, far = arm
    (far / "shapes").rename(path.parent.parent.parent / "shapes")
    (path.parent.parent.parent / "shapes" / "package.xml").write_text("<package/>")
    assert main(["check", str(path.parent), "--quiet"]) == 0


# --- robot_descriptions ---------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    pytest.importorskip("robot_descriptions")
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path))
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")  # nothing may be fetched
    return tmp_path


def test_a_robot_in_the_cache_is_loaded_by_its_name(cache):
    from robot_descriptions._repositories import REPOSITORIES

    inside = REPOSITORIES["example-robot-data"].cache_path
    folder = cache / inside / "robots" / "panda_description" / "urdf"
    folder.mkdir(parents=True)
    (folder / "panda.urdf").write_text(rg.load("iiwa14").to_urdf())
    robot = rg.load("panda_description")
    assert robot.joints == rg.load("iiwa14").joints
    assert "robot_descriptions.panda_description" not in sys.modules
    mesh = triangle(cache / "more" / "parts")
    (folder / "panda.urdf").write_text(
        '<robot name="r"><link name="hull"><collision><geometry><mesh'
        ' filename="package://parts/one.obj"/></geometry></collision></link></robot>'
    )
    for roots in ([cache / "more"], {"parts": mesh.parent}):
        with pytest.warns(ModelWarning, match="hull"):
            assert rg.load("panda_description", roots=roots).collisions.links[0].link == "hull"


def triangle(folder):
    folder.mkdir(parents=True)
    (folder / "one.obj").write_text("v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nf 1 2 3\n")
    return folder / "one.obj"


def test_a_robot_that_is_not_in_the_cache_is_not_fetched(cache):
    with pytest.raises(InputError, match=r"not on this computer.*robot_descriptions pull panda"):
        rg.load("panda_description")
    assert list(cache.iterdir()) == []


def test_names_that_nobody_knows_have_near_ones(cache, monkeypatch):
    with pytest.raises(UnknownNameError, match="panda_description"):
        rg.load("pandas_description")
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    with pytest.raises(RigidgradError, match="pip install robot_descriptions"):
        rg.load("panda_description")
