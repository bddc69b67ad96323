"""MJCF, read through MuJoCo: the same robot as MuJoCo's own, with every kind of joint, anchor,
reference and default.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings

import numpy as np
import pytest
from random_trees import assert_close

import rigidgrad as rg
from rigidgrad.errors import ModelError, ModelWarning, RigidgradError
from rigidgrad.model.xml import root_tag

mujoco = pytest.importorskip("mujoco")

EPS = np.finfo(float).eps
CRANE = """<?xml version="1.0"?>
<!-- not a <robot> -->
<mujoco model="crane">
  <compiler angle="radian"/>
  <option gravity="0.3 0.2 -5"/>
  <default>
    <joint armature="0.02" damping="0.3" frictionloss="0.1"/>
    <default class="heavy"><joint armature="0.5"/></default>
  </default>
  <worldbody>
    <body name="base" pos="1 2 3" quat="1 2 3 4">
      <freejoint name="root"/>
      <geom size="0.1 0.2 0.3" type="box" rgba="1 0 0 1"/>
      <site name="tip" pos="0.1 0 0" euler="1 2 3"/>
      <body name="mast" pos="0.1 0.2 0.3" euler="0.5 0.3 0.1">
        <joint name="z" axis="1 1 0" pos="0.1 0 0.2" range="-1.5 1.2" ref="0.3" class="heavy" actuatorfrcrange="-7 7"/>
        <joint name="a" type="slide" axis="0 1 2" ref="0.3"/>
        <geom size="0.1 0.2" type="capsule" pos="0.1 0.1 0" euler="0.1 0.2 0.3"/>
        <body pos="0 0 0.1"><geom size="0.05"/>
          <body name="hook" pos="0 0 0.2">
            <joint type="ball" pos="0 0.1 0"/>
            <inertial pos="0.1 0 0" mass="2" fullinertia="0.02 0.03 0.04 0.001 0.002 0.003"/>
          </body>
        </body>
      </body>
      <body name="drum" pos="0 0 -0.4"><joint name="h" axis="0 0 1"/><geom size="0.1 0.2" type="cylinder" pos="0.3 0 0"/></body>
    </body>
    <body name="post"><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""


def bare(model):
    """MuJoCo's model without what is no part of our dynamics."""
    model.jnt_stiffness[:] = 0
    model.dof_damping[:] = 0
    model.dof_frictionloss[:] = 0
    model.opt.disableflags |= int(
        mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    )
    return model


def agrees(robot, text) -> None:
    """Accelerations, and placements of bodies and sites, at random states."""
    model = bare(mujoco.MjModel.from_xml_string(text))
    data = mujoco.MjData(model)
    state = robot.random((4,), seed=2)
    theirs = rg.interop.states(robot, model).to(state.q, state.v, robot.aba(*state), state.tau)
    loss = 1e4 * EPS * np.linalg.cond(robot.crba(state.q)).max()
    placements = robot.forward_kinematics(state.q)
    for k in range(4):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = theirs.q[k], theirs.v[k], theirs.tau[k]
        mujoco.mj_forward(model, data)
        assert_close(data.qacc, theirs.a[k], loss, robot.name)
        for i in range(model.nbody):
            T = placements[model.body(i).name or f"body{i}"][k]
            np.testing.assert_allclose(T[:3, :3].ravel(), data.xmat[i], atol=1e-12)
            np.testing.assert_allclose(T[:3, 3], data.xpos[i], atol=1e-12)
        for i in range(model.nsite):
            np.testing.assert_allclose(
                placements[model.site(i).name][k][:3, 3], data.site_xpos[i], atol=1e-12
            )


def test_every_kind_of_joint_moves_as_in_mujoco():
    robot = rg.load(CRANE, engine="numpy")
    assert robot.name == "crane"
    assert robot.joints == ("root", "h", "z", "a", "hook_joint")
    assert [j.type for j in robot.model.joints] == [
        "floating",
        "continuous",
        "revolute",
        "prismatic",
        "spherical",
    ]
    assert robot.model.gravity == (0.3, 0.2, -5.0)
    agrees(robot, CRANE)


def test_defaults_limits_and_friction_are_read():
    robot = rg.load(CRANE, engine="numpy")
    joints = {j.name: j for j in robot.model.joints}
    np.testing.assert_array_equal(robot.model.armature, [0] * 6 + [0.02, 0.5, 0.02] + [0.02] * 3)
    assert (joints["z"].limit.lower, joints["z"].limit.upper, joints["z"].limit.effort) == (
        -1.5,
        1.2,
        7.0,
    )
    assert joints["h"].limit.upper == np.inf
    assert (joints["a"].damping, joints["a"].friction) == (0.3, 0.1)
    shapes = [(link, v.shape, v.size) for link, v in robot.model.visuals]
    assert ("base", "box", (0.2, 0.4, 0.6)) in shapes and ("drum", "cylinder", (0.1, 0.4)) in shapes


def random_mjcf(seed: int) -> str:
    """A random tree: joints of all types, several on a body, off its origin, with references;
    bodies without joints or names.
    """
    rng = np.random.default_rng(seed)
    count = itertools.count()

    def numbers(n, scale=0.3):
        return " ".join(f"{x:.6g}" for x in rng.normal(size=n) * scale)

    def joint(kind):
        name = f'name="{rng.choice(["z", "a", "M"])}{next(count)}"' if rng.uniform() < 0.8 else ""
        ref = f'ref="{rng.uniform(-1, 1):.4g}"' if kind != "ball" and rng.uniform() < 0.5 else ""
        axis = "" if kind == "ball" else f'axis="{numbers(3)}"'
        return (
            f'<joint {name} type="{kind}" {axis} pos="{numbers(3)}"'
            f' armature="{rng.uniform(0, 0.1):.4g}" {ref}/>'
        )

    def body(depth):
        kinds = [(), ("hinge",), ("slide", "ball"), ("hinge", "slide", "hinge"), ("ball",)][
            rng.integers(5)
        ]  # nothing may turn after a ball
        joints = (
            "<freejoint/>" if depth == 0 and rng.uniform() < 0.5 else "".join(map(joint, kinds))
        )
        inside = "".join(body(depth + 1) for _ in range(rng.integers(1, 3))) if depth < 2 else ""
        name = f'name="link {next(count)}"' if rng.uniform() < 0.8 else ""
        geom = (
            f'<geom type="box" size="{rng.uniform(0.05, 0.2):.4g} 0.1 0.15" pos="{numbers(3)}"'
            f' euler="{numbers(3, 60)}"/>'
        )
        return (
            f'<body {name} pos="{numbers(3)}"'
            f' euler="{numbers(3, 60)}">{joints}{geom}{inside}</body>'
        )

    # one joint at least, so that there is something to compare
    first = '<body name="first"><joint name="first" type="hinge"/><geom size="0.1"/></body>'
    return f"<mujoco><worldbody>{first}{body(0)}{body(0)}</worldbody></mujoco>"


@pytest.mark.parametrize("seed", range(20))
def test_random_models_move_as_in_mujoco(seed):
    text = random_mjcf(seed)
    agrees(rg.load(text, engine="numpy"), text)


def test_files_and_what_they_include(tmp_path):
    head, tail = CRANE.split('<body name="post">')
    (tmp_path / "post.xml").write_text(
        '<mujocoinclude><body name="post"><geom size="0.1"/></body></mujocoinclude>'
    )
    path = tmp_path / "crane.xml"
    path.write_text(head + '<include file="post.xml"/>' + tail.partition("</body>")[2])
    expected = rg.load(CRANE, engine="numpy")
    state = expected.random((2,), seed=0)
    for source in (path, str(path), CRANE.encode()):
        robot = rg.load(source, engine="numpy")
        assert robot.joints == expected.joints and "post" in robot.frames
        np.testing.assert_array_equal(robot.aba(*state), expected.aba(*state))


def test_the_crane_compiled_in_mujoco_is_the_same_robot():
    robot, expected = (
        rg.from_mujoco(mujoco.MjModel.from_xml_string(CRANE), engine="numpy"),
        rg.load(CRANE, engine="numpy"),
    )
    assert robot.model == expected.model
    assert rg.load(CRANE, gravity=(0, 0, -1)).model.gravity == (0, 0, -1)


def test_what_is_left_out_is_named():
    more = """<tendon><fixed name="rope" stiffness="2"><joint joint="h" coef="1"/></fixed></tendon>
      <equality><connect body1="base" body2="mast" anchor="0 0 0"/></equality>
      <actuator><motor joint="h"/><motor joint="z"/></actuator></mujoco>"""
    text = (
        CRANE.replace("</mujoco>", more)
        .replace('name="h" ', 'name="h" stiffness="3" ')
        .replace('name="drum" ', 'name="drum" gravcomp="1" ')
    )
    with pytest.warns(ModelWarning) as caught:
        rg.load(text)
    assert caught[0].filename == __file__
    for what in (
        "spring of tendon 'rope'",
        "spring of joint 'h'",
        "body with gravity compensation 'drum'",
    ):
        assert what in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rg.load(CRANE)


def test_armature_of_a_free_joint_is_left_out_and_said():
    text = (
        '<mujoco><worldbody><body><joint type="free" armature="0.1"/><geom'
        ' size="0.1"/></body></worldbody></mujoco>'
    )
    with pytest.warns(ModelWarning, match="armature of a free joint"):
        robot = rg.load(text)
    assert not any(robot.model.armature)


def test_what_mujoco_refuses_is_an_error_of_ours(tmp_path):
    path = tmp_path / "bad.xml"
    path.write_text("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>")
    with pytest.raises(ModelError, match=r"bad\.xml: MuJoCo does not accept"):
        rg.load(path)
    with pytest.raises(ModelError, match="MuJoCo does not accept"):
        rg.load("<mujoco><nonsense/></mujoco>")


def test_without_mujoco_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(RigidgradError, match=r"pip install rigidgrad\[plants\]"):
        rg.load(CRANE)


def test_urdf_with_an_element_for_mujoco_stays_urdf():
    assert root_tag('<robot name="r"><mujoco/></robot>') == "robot"
    assert root_tag("<!-- <mujoco> --><robot/>") == "robot"
    assert root_tag("<!-- <mujoco>") == root_tag("") == ""
    assert root_tag(b"<?xml version='1.0'?>\n<!-- <robot> --> <mujoco/>") == "mujoco"


# --- files of others ------------------------------------------------------------------------------

ONE = (
    '<mujoco><worldbody><body name="a"><joint name="{name}" {joint}/><geom'
    ' size="0.1"/></body></worldbody></mujoco>'
)


@pytest.mark.filterwarnings("ignore:MuJoCo")
@pytest.mark.parametrize("what", ["damping", "frictionloss", "armature"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1", "1e300"])
def test_numbers_that_nothing_can_be_computed_with_are_refused(what, number):
    with pytest.raises(
        ModelError, match=f"joint 'j'.*{'friction' if what == 'frictionloss' else what}"
    ):
        rg.load(ONE.format(name="j", joint=f'{what}="{number}"'))


def test_warnings_of_mujoco_are_ours_and_leave_no_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.warns(ModelWarning, match="MuJoCo: XML contains a 'NaN'"),
        pytest.raises(ModelError),
    ):
        rg.load(ONE.format(name="j", joint='damping="nan"'))
    assert capfd.readouterr().err == "" and list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:MuJoCo")
def test_infinite_places_and_sizes_are_refused():
    for old, new in (
        ('<body name="a"', '<body name="a" pos="0 inf 0"'),
        ("<joint", '<joint axis="0 nan 1"'),
        ('size="0.1"', 'size="0.1" pos="inf 0 0"'),
    ):
        with pytest.raises(ModelError):
            rg.load(ONE.format(name="j", joint="").replace(old, new))


def test_names_that_are_not_utf_8_are_refused(tmp_path):
    (tmp_path / "r.xml").write_bytes(ONE.format(name="ÿ", joint="").encode("latin-1"))
    for source in (
        tmp_path / "r.xml",
        (tmp_path / "r.xml").read_bytes(),
        ONE.format(name="&#xD800;", joint=""),
        ONE.format(name="\ud800", joint=""),
    ):
        with pytest.raises(ModelError, match="UTF-8"):
            rg.load(source)
    assert rg.load(ONE.format(name="größe", joint="")).joints == ("größe",)


BOMBS = {
    "one replicate": (
        '<worldbody><replicate count="1000000" offset="1 0 0"><geom'
        ' size="0.1"/></replicate></worldbody>'
    ),
    "nested replicates": (
        "<worldbody>"
        + '<replicate count="10">' * 9
        + '<geom size="0.1"/>'
        + "</replicate>" * 9
        + "</worldbody>"
    ),
    "a count that is spelt otherwise": (
        '<worldbody><replicate count="&#49;000000"><geom size="0.1"/></replicate></worldbody>'
    ),
    "hidden behind a comment": (
        '<!-- --> <x> --><worldbody><replicate count="1000000"><geom'
        ' size="0.1"/></replicate></worldbody>'
    ),
    "flexcomp": '<worldbody><flexcomp name="f" type="grid" count="300 300 300"/></worldbody>',
    "composite": (
        '<worldbody><body><composite type="cable" count="900000000 1 1"/></body></worldbody>'
    ),
    "height field": '<asset><hfield name="h" nrow="90000" ncol="90000" size="1 1 1 1"/></asset>',
    "texture": '<asset><texture name="h" builtin="flat" width="90000" height="90000"/></asset>',
    "user data": '<size nuser_body="900000000"/>',
    "keys": '<size nkey="900000000"/>',
    "many textures": (
        "<asset>" + '<texture builtin="flat" width="4096" height="4096"/>' * 60 + "</asset>"
    ),
    "a sensor": '<sensor><user dim="500000000"/></sensor>',
    "many sensors": "<sensor>" + '<user dim="100000"/>' * 3000 + "</sensor>",
    "states of actuators by default": (
        '<default><general actdim="100000"/></default><actuator>'
        + '<general joint="j"/>' * 3000
        + "</actuator>"
    ),
    "pictures of distances": (
        '<worldbody><camera name="c" resolution="30000 30000"/></worldbody><sensor><rangefinder'
        ' camera="c"/></sensor>'
    ),
    "a fine mesh": '<asset><mesh name="m" builtin="cone" params="20000000 1"/></asset>',
    "a mesh that is no number": '<asset><mesh name="m" builtin="cone" params="nan 1"/></asset>',
    "many fine meshes": (
        "<asset>" + '<mesh builtin="supersphere" params="300 1 1"/>' * 10 + "</asset>"
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_would_grow_beyond_bounds_is_refused_before_mujoco_reads_it(bomb, monkeypatch):
    monkeypatch.setattr(
        mujoco.MjModel, "from_xml_string", lambda *_: pytest.fail("MuJoCo has read it")
    )
    with pytest.raises(ModelError, match=r"no robot needs|not a whole number|not well-formed"):
        rg.load(f"<mujoco>{BOMBS[bomb]}</mujoco>")


def test_sizes_in_bounds_are_read():
    camera = '<camera name="c" resolution="1920 1080"/>'
    rest = (
        '<asset><mesh name="m" builtin="cone" params="12 0.5"/><texture name="t" builtin="flat"'
        ' width="2048" height="2048"/></asset><sensor><user dim="6"/></sensor>'
    )
    assert (
        rg.load(
            ONE.format(name="j", joint="").replace(
                "</mujoco>", f"<worldbody>{camera}</worldbody>{rest}</mujoco>"
            )
        ).nv
        == 1
    )


def test_exceptions_inside_mujoco_are_errors_of_ours(monkeypatch):
    def fail(_):
        raise RuntimeError("Caught an unknown exception!")  # as its binding does

    monkeypatch.setattr(mujoco.MjModel, "from_xml_string", fail)
    with pytest.raises(ModelError, match="does not accept"):
        rg.load(ONE.format(name="j", joint=""))


def test_copies_in_bounds_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = '<replicate count="20" offset="1 0 0"><body><joint/><geom size="0.1"/></body></replicate>'
    assert rg.load(f"<mujoco><!-- --- a row --- --><worldbody>{row}</worldbody></mujoco>").nv == 20
    (tmp_path / "part.xml").write_text(f"<mujoco><worldbody>{row}</worldbody></mujoco>")
    assert rg.load('<mujoco><include file="part.xml"/></mujoco>').nv == 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_files_that_an_mjcf_names_are_regular_and_not_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.stl")
    os.symlink("pipe.stl", "link.xml")
    for part in ('<include file="pipe.stl"/>', '<include file="link.xml"/>', '<asset><mesh file="pipe.stl"/></asset>', '<asset><mesh file="/dev/zero"/></asset>',
                 '<compiler meshdir=".."/><asset><mesh file="' + tmp_path.name + '/pipe.stl"/></asset>'):  # fmt: skip
        with pytest.raises(ModelError, match="not a regular file"):
            rg.load(f"<mujoco>{part}</mujoco>")
    (tmp_path / "a.xml").write_text('<mujoco><include file="b.xml"/></mujoco>')
    (tmp_path / "b.xml").write_text('<mujoco><include file="./a.xml"/></mujoco>')
    with pytest.raises(ModelError, match="includes itself"):
        rg.load("a.xml")
