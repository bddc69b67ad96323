"""SDF models: the same robot as the URDF that says the same, poses in whatever frame they are
stated, joints of all types, and refusals that name the element.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import ModelWarning, UrdfError
from rigidgrad.model.pose import pose_from_xyz_rpy
from rigidgrad.rotations import rotation_from_quaternion

INERTIAL = (
    "<inertial><pose>{at}</pose><mass>{m}</mass><inertia><ixx>.05</ixx><iyy>.06</iyy><izz>.07</izz>"
    "<ixy>.003</ixy><ixz>-.002</ixz><iyz>.004</iyz></inertia></inertial>"
)


def sdf(body, version="1.9", model='name="r"'):
    return f'<?xml version="1.0"?><sdf version="{version}"><model {model}>{body}</model></sdf>'


def quietly(text, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return rg.load(text, engine="numpy", **options)


def matrix(text):
    numbers = [float(x) for x in text.split()]
    return pose_from_xyz_rpy(numbers[:3], numbers[3:]).matrix()


def inertial(m, at):
    return INERTIAL.format(m=m, at=at)


ARM = f"""
<link name="base"/>
<link name="upper"><pose>.1 .2 .3 .4 .5 .6</pose>{inertial(2, "0 .1 .2 .3 .2 .1")}</link>
<link name="lower"><pose relative_to="upper">.3 -.2 .1 -.4 .2 .3</pose>{inertial(1.5, ".1 0 .2 0 0 0")}
  <visual name="v"><pose>0 0 .1 0 0 0</pose><geometry><box><size>.1 .2 .3</size></box></geometry><material><diffuse>1 .5 0 1</diffuse></material></visual>
  <collision name="c"><geometry><sphere><radius>.2</radius></sphere></geometry></collision></link>
<joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>
<joint name="shoulder" type="revolute"><parent>base</parent><child>upper</child><axis><xyz>0 1 1</xyz>
  <limit><lower>-1</lower><upper>2</upper><effort>30</effort><velocity>-1</velocity></limit>
  <dynamics><damping>.3</damping><friction>.2</friction></dynamics></axis></joint>
<joint name="elbow" type="prismatic"><parent>upper</parent><child>lower</child><axis><xyz>1 0 .5</xyz></axis></joint>
<frame name="tool" attached_to="lower"><pose>0 0 .4 0 .1 0</pose></frame>
"""
# the same, by hand
URDF_INERTIAL = (
    '<inertial><origin xyz="{xyz}" rpy="{rpy}"/><mass value="{m}"/><inertia ixx=".05" iyy=".06"'
    ' izz=".07" ixy=".003" ixz="-.002" iyz=".004"/></inertial>'
)
URDF = f"""<robot name="r"><link name="world"/><link name="base"/>
<link name="upper">{URDF_INERTIAL.format(m=2, xyz="0 .1 .2", rpy=".3 .2 .1")}</link>
<link name="lower">{URDF_INERTIAL.format(m=1.5, xyz=".1 0 .2", rpy="0 0 0")}</link>
<link name="tool"/>
<joint name="fix" type="fixed"><parent link="world"/><child link="base"/></joint>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz=".1 .2 .3" rpy=".4 .5 .6"/><axis xyz="0 1 1"/><limit lower="-1" upper="2" effort="30"/><dynamics damping=".3" friction=".2"/></joint>
<joint name="elbow" type="prismatic"><parent link="upper"/><child link="lower"/><origin xyz=".3 -.2 .1" rpy="-.4 .2 .3"/><axis xyz="1 0 .5"/></joint>
<joint name="t" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="0 0 .4" rpy="0 .1 0"/></joint></robot>"""


def test_the_same_robot_as_its_urdf():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = rg.load(sdf(ARM), engine="numpy")
    same = rg.load(URDF, engine="numpy")
    assert ours.name == "r" and ours.joints == same.joints == ("shoulder", "elbow")
    agree(ours, same, ("upper", "lower", "tool"))
    for side in ("lower", "upper", "velocity", "effort"):
        np.testing.assert_array_equal(getattr(ours.limits, side), getattr(same.limits, side))
    damped = [(j.damping, j.friction) for j in ours.model.joints]
    assert damped == [(0.3, 0.2), (0.0, 0.0)]
    assert [v.shape for _, v in ours.model.visuals] == ["box"]


def agree(ours, same, frames):
    q, v, a = np.random.default_rng(1).normal(size=(3, same.nv))
    np.testing.assert_allclose(ours.rnea(q, v, a), same.rnea(q, v, a), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.aba(q, v, a), same.aba(q, v, a), rtol=1e-9, atol=1e-12)
    for frame in frames:
        T, other = (r.forward_kinematics(q)[frame] for r in (ours, same))
        np.testing.assert_allclose(T, other, atol=1e-12, err_msg=frame)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the same place, stated in other frames
        (
            '<link name="lower"><pose relative_to="upper">.3 -.2 .1 -.4 .2 .3</pose>',
            '<frame name="f" attached_to="upper"><pose>.3 -.2 .1 -.4 .2 .3</pose></frame>'
            '<link name="lower"><pose relative_to="f"/>',
        ),
        (
            '<link name="lower"><pose relative_to="upper">.3 -.2 .1 -.4 .2 .3</pose>',
            '<link name="lower"><pose relative_to="upper" degrees="true">.3 -.2 .1'
            f" {np.degrees(-0.4)} {np.degrees(0.2)} {np.degrees(0.3)}</pose>",
        ),
        (
            '<link name="lower"><pose relative_to="upper">.3 -.2 .1 -.4 .2 .3</pose>',
            '<link name="lower"><pose relative_to="elbow"/>',
        ),
        # the joint's own frame: the child's, or stated
        ('<child>lower</child>', '<child>lower</child><pose relative_to="lower"/>'),
        (
            '<child>lower</child><axis><xyz>1 0 .5</xyz>',
            '<child>lower</child><axis><xyz expressed_in="lower">1 0 .5</xyz>',
        ),
        ('<parent>upper</parent>', '<parent>f</parent><pose/>'),
        ('attached_to="lower"><pose>', 'attached_to="elbow"><pose>'),
        ('attached_to="lower"><pose>', 'attached_to="base"><pose relative_to="lower">'),
    ],
)  # fmt: skip
def test_poses_are_relative_to_what_they_say(old, new):
    text = ARM.replace(old, new)
    if 'relative_to="elbow"/>' in new:
        text = text.replace(
            "<child>lower</child>",
            '<child>lower</child><pose relative_to="upper">.3 -.2 .1 -.4 .2 .3</pose>',
        )
    if "<parent>f" in new:
        text += '<frame name="f" attached_to="upper"><pose>1 2 3 0 0 0</pose></frame>'
    assert text != ARM
    frames = ("upper", "lower") if 'attached_to="base"' in new else ("upper", "lower", "tool")
    agree(quietly(sdf(text)), rg.load(URDF, engine="numpy"), frames)


def test_a_joint_that_lies_elsewhere_than_its_child_turns_there():
    text = ARM.replace(
        "<child>upper</child>", "<child>upper</child><pose>.2 -.1 .3 .5 -.3 .2</pose>"
    )
    robot, q = quietly(sdf(text)), np.array([0.7, 0.0])
    X, P = matrix(".1 .2 .3 .4 .5 .6"), matrix(".2 -.1 .3 .5 -.3 .2")
    axis = np.array([0, 1, 1]) / np.sqrt(2)
    turn = np.eye(4)
    turn[:3, :3] = rotation_from_quaternion(*(np.sin(0.35) * axis), np.cos(0.35))
    expected = X @ P @ turn @ np.linalg.inv(P)
    np.testing.assert_allclose(robot.forward_kinematics(q)["upper"], expected, atol=1e-12)
    np.testing.assert_allclose(robot.forward_kinematics([0, 0])["upper"], X, atol=1e-12)
    M, Jt = robot.crba(q), robot.jacobian(q, "lower")
    assert np.linalg.eigvalsh(M).min() > 0 and Jt.shape == (6, 2)


@pytest.mark.parametrize(
    ("version", "xyz"),
    [("1.4", "<xyz>{}</xyz>"), ("1.6", "<xyz>{}</xyz><use_parent_model_frame>1</use_parent_model_frame>")],
)  # fmt: skip
def test_axes_of_older_versions_are_in_the_models_frame(version, xyz):
    R = matrix(".1 .2 .3 .4 .5 .6")[:3, :3]
    turned = " ".join(map(str, R @ [0, 1, 1]))
    text = ARM.replace("<xyz>0 1 1</xyz>", xyz.format(turned))
    second = matrix(".1 .2 .3 .4 .5 .6") @ matrix(".3 -.2 .1 -.4 .2 .3")
    along = " ".join(map(str, second[:3, :3] @ [1, 0, 0.5]))
    text = text.replace("<xyz>1 0 .5</xyz>", xyz.format(along))
    agree(quietly(sdf(text, version)), rg.load(URDF, engine="numpy"), ("upper", "lower"))


def test_joints_of_all_types():
    def two(joint):
        return sdf(f'<link name="a"/><link name="b">{inertial(1, "0 .1 .2 0 0 0")}</link>'
                   f'<joint name="w" type="fixed"><parent>world</parent><child>a</child></joint>{joint}')  # fmt: skip

    ends = "<parent>a</parent><child>b</child>"
    axes = "<axis><xyz>0 0 1</xyz></axis><axis2><xyz>0 1 0</xyz></axis2>"
    ball = quietly(two(f'<joint name="j" type="ball">{ends}</joint>'))
    assert [j.type for j in ball.model.joints] == ["spherical"]
    screw = quietly(two(f'<joint name="j" type="screw">{ends}<axis><xyz>0 0 1</xyz></axis><screw_thread_pitch>.2</screw_thread_pitch></joint>'))  # fmt: skip
    T = screw.forward_kinematics([np.pi])["b"]
    np.testing.assert_allclose(T[2, 3], 0.1, atol=1e-12)  # half a turn
    old = quietly(two(f'<joint name="j" type="screw">{ends}<axis><xyz>0 0 1</xyz></axis><thread_pitch>{-2 * np.pi / 0.2}</thread_pitch></joint>'))  # fmt: skip
    np.testing.assert_allclose(old.forward_kinematics([np.pi])["b"], T, atol=1e-12)
    for word in ("universal", "revolute2"):
        robot = quietly(two(f'<joint name="j" type="{word}">{ends}{axes}</joint>'))
        assert robot.joints == ("j", "j:2")
        Rz, Ry = (matrix(f"0 0 0 {t}") for t in ("0 0 .3", "0 .4 0"))
        np.testing.assert_allclose(robot.forward_kinematics([0.3, 0.4])["b"], Rz @ Ry, atol=1e-12)
        assert np.isfinite(robot.aba([0.1, 0.2], [0, 0], [1, 1])).all()


def test_mimic_springs_and_unlimited_joints():
    text = ARM.replace(
        "<axis><xyz>1 0 .5</xyz></axis>",
        '<axis><xyz>1 0 .5</xyz><mimic joint="shoulder" axis="axis"><multiplier>2</multiplier>'
        "<offset>.1</offset><reference>.3</reference></mimic></axis>",
    ).replace(
        "<friction>.2</friction>",
        "<spring_stiffness>7</spring_stiffness><spring_reference>.4</spring_reference>",
    )
    text = text.replace("<upper>2</upper>", "<upper>1e16</upper>").replace(
        "<lower>-1</lower>", "<lower>-inf</lower>"
    )
    with pytest.warns(ModelWarning, match="spring of joint 'shoulder'"):
        robot = rg.load(sdf(text), engine="numpy")
    elbow = next(j for j in robot.model.joints if j.name == "elbow")
    assert robot.nv == 1 and (elbow.multiplier, elbow.offset) == (2.0, pytest.approx(-0.5))
    shoulder = robot.model.joints[0]
    assert shoulder.type == "continuous"
    assert (shoulder.spring.stiffness, shoulder.spring.rest) == (7.0, (0.4,))


def test_nested_models_have_their_own_frames():
    inner = (
        f'<model name="hand"><pose relative_to="lower">.1 0 .2 0 .3 0</pose><link name="palm"><pose>0 0 .1 0 0 0</pose>{inertial(1, "0 0 0 0 0 0")}</link>'
        f'<link name="finger"><pose relative_to="palm">0 .1 0 0 0 0</pose>{inertial(0.2, "0 0 .1 0 0 0")}</link>'
        '<joint name="knuckle" type="revolute"><parent>palm</parent><child>finger</child><axis><xyz>1 0 0</xyz></axis></joint></model>'
        '<joint name="mount" type="fixed"><parent>lower</parent><child>hand::palm</child></joint>'
    )
    robot = quietly(sdf(ARM + inner))
    assert set(robot.joints) == {"shoulder", "elbow", "hand::knuckle"}
    T = robot.forward_kinematics(np.zeros(3))
    expected = T["lower"] @ matrix(".1 0 .2 0 .3 0") @ matrix("0 0 .1 0 0 0")
    np.testing.assert_allclose(T["hand::palm"], expected, atol=1e-12)
    np.testing.assert_allclose(T["hand::finger"], expected @ matrix("0 .1 0 0 0 0"), atol=1e-12)


def test_a_model_that_hangs_on_nothing_is_where_it_is_put():
    free = ARM.replace(
        '<joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>', ""
    )
    robot = quietly(sdf(free))
    assert next(iter(robot.model.frames)) == "base"
    agree(robot, rg.load(URDF, engine="numpy"), ("upper", "lower"))
    placed = quietly(sdf(f"<pose>1 2 3 .1 .2 .3</pose>{free}"))
    T = placed.forward_kinematics(np.zeros(2))
    np.testing.assert_allclose(T["base"], matrix("1 2 3 .1 .2 .3"), atol=1e-12)
    flying = quietly(sdf(free), floating_base=True)
    assert flying.joints[0] == "root_joint" and flying.nv == 8


def test_what_is_absent_has_the_defaults_of_the_format():
    robot = quietly(sdf('<link name="a"/><link name="b"/><joint name="j" type="revolute"><parent>a</parent><child>b</child><axis/></joint>'))  # fmt: skip
    np.testing.assert_allclose(robot.crba([0.0]), [[1.0]])


def test_what_is_left_out_is_named():
    more = (
        '<link name="cog"><gravity>false</gravity></link>'
        '<joint name="gears" type="gearbox"><parent>upper</parent><child>cog</child></joint>'
        '<joint name="cog_joint" type="revolute"><parent>upper</parent><child>cog</child><axis/></joint>'
        "<static>true</static>"
    )
    with pytest.warns(ModelWarning) as caught:
        rg.load(sdf(ARM + more), engine="numpy")
    (said,) = (str(w.message) for w in caught)
    for what in ("gearbox 'gears'", "link 'cog' without gravity", "<static>"):
        assert what in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('<link name="base"/>', '<include><uri>model://x</uri></include><link name="base"/>', "<include> is not followed"),
        ("<mass>2</mass>", "<mass>2 3</mass>", "link 'upper': <mass> holds '2 3'"),
        ("<mass>2</mass>", "<mass>nan</mass>", "link 'upper': <mass> holds 'nan'"),
        ("<mass>2</mass>", "<mass>1e60</mass>", "<mass> holds '1e60'"),
        (".4 .5 .6</pose>", ".4 .5</pose>", "<pose> holds"),
        ('type="prismatic"', 'type="rail"', "joint 'elbow': it has the type 'rail'"),
        ("<parent>upper</parent>", "<parent>uper</parent>", "'uper': there is no link"),
        ("<child>lower</child>", "", "joint 'elbow': it has no <child>"),
        ('relative_to="upper"', 'relative_to="tool"', "relative to itself"),
        ('<link name="lower">', '<link name="upper">', "there already is one of that name"),
        ("<lower>-1</lower>", "<lower>3</lower>", "its lower limit 3 is above"),
        ("<inertial>", '<inertial auto="true">', "not computed"),
        ("<xyz>0 1 1</xyz>", '<xyz expressed_in="moon">0 1 1</xyz>', "'moon': there is no link"),
        ('attached_to="lower"', 'attached_to="tool"', "by way of others"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(old, new, said):
    assert old in ARM
    with pytest.raises(UrdfError, match=r"^line \d+: ") as caught:
        rg.load(sdf(ARM.replace(old, new)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<sdf version="1.9"><model name="a"><link name="l"/></model><model name="b"/></sdf>', "2 models ('a', 'b')"),
        ('<sdf version="1.9"/>', "no <model>"),
        ('<sdf><model name="a"/></sdf>', "no version"),
        ('<sdf version="1.9"><model name="a"/></sdf>', "it has no <link>"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><sdf version="1.9"/>', "refused for safety"),
    ],
)  # fmt: skip
def test_documents_that_are_no_robot_are_refused(text, said):
    with pytest.raises(UrdfError) as caught:
        rg.load(text)
    assert said in str(caught.value)


def test_worlds_with_one_model_have_their_gravity(tmp_path):
    world = f'<sdf version="1.9"><world name="w"><gravity>0 0 -1.6</gravity><model name="m">{ARM}</model></world></sdf>'  # fmt: skip
    path = tmp_path / "moon.sdf"
    path.write_text(world)
    robot = rg.load(path, engine="numpy")
    assert robot.model.gravity == (0.0, 0.0, -1.6)
    assert robot.forward_kinematics(np.zeros(2))["tool"].shape == (4, 4)
