"""Claims about reading URDF; Pinocchio, and urdfdom under it, is the oracle."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
from math import inf, pi
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings, strategies as st

from rigidgrad.errors import InputError, ModelWarning, UrdfError
from rigidgrad.model.description import JointLimit, Link, Mimic, Visual
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.model.urdf import parse_urdf, read_urdf

EXAMPLES = (
    next(p for p in Path(pin.__file__).parents if p.name == "cmeel.prefix")
    / "share/example-robot-data/robots"
)

INERTIAL = (
    '<inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0"'
    ' izz="1"/></inertial>'
)


def robot(inside: str, attributes: str = 'name="r"') -> str:
    return f"<robot {attributes}>{inside}</robot>"


def two_links_text(joint: str, kind: str = "revolute", attributes: str = 'name="r"') -> str:
    """A robot of two links, with `joint` written inside of their joint."""
    return robot(
        f'<link name="a"/><link name="b">{INERTIAL}</link><joint name="j" type="{kind}"><parent'
        f' link="a"/><child link="b"/>{joint}</joint>',
        attributes,
    )


def two_links(joint: str, kind: str = "revolute"):
    (result,) = parse_urdf(two_links_text(joint, kind)).joints
    return result


def one_link(inside: str, beside: str = "") -> Link:
    (link,) = parse_urdf(robot(f'<link name="a">{inside}</link>{beside}')).links
    return link


def numbers(values) -> str:
    return " ".join(repr(float(x)) for x in values)


def random_chain(seed: int, joints: int = 6) -> str:
    """Revolute joints, each with a random origin and a body whose inertial frame is turned at
    random.
    """
    rng = np.random.default_rng(seed)
    text = '<link name="l0"/>'
    for i in range(joints):
        a, b = rng.uniform(0.1, 1, 2)
        turn = pin.rpy.rpyToMatrix(rng.uniform(-pi, pi, 3))
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = (
            turn @ np.diag([a, b, rng.uniform(abs(a - b), a + b)]) @ turn.T
        )
        text += (
            f'<link name="l{i + 1}"><inertial><origin xyz="{numbers(rng.normal(size=3))}"'
            f' rpy="{numbers(rng.uniform(-4, 4, 3))}"/><mass'
            f' value="{float(rng.uniform(0.1, 9))!r}"/><inertia ixx="{xx}" ixy="{xy}" ixz="{xz}"'
            f' iyy="{yy}" iyz="{yz}" izz="{zz}"/></inertial></link><joint name="j{i}"'
            f' type="revolute"><origin xyz="{numbers(rng.normal(size=3))}"'
            f' rpy="{numbers(rng.uniform(-4, 4, 3))}"/><parent link="l{i}"/><child'
            f' link="l{i + 1}"/><axis xyz="{numbers(rng.normal(size=3))}"/><limit lower="-1"'
            f' upper="{i}" velocity="2" effort="{i}.5"/></joint>'
        )
    return robot(text)


@pytest.mark.parametrize("seed", range(5))
def test_turned_inertial_frames_and_origins_are_those_of_pinocchio(seed):
    text = random_chain(seed)
    model = pin.buildModelFromXML(text)
    description = parse_urdf(text)
    for i, (joint, link) in enumerate(
        zip(description.joints, description.links[1:], strict=True), start=1
    ):
        assert link.mass == model.inertias[i].mass
        np.testing.assert_allclose(link.com, model.inertias[i].lever, rtol=0, atol=1e-15)
        np.testing.assert_allclose(link.inertia, model.inertias[i].inertia, rtol=0, atol=1e-14)
        assert (np.array(link.inertia) == np.array(link.inertia).T).all()
        np.testing.assert_allclose(
            joint.placement.matrix(), model.jointPlacements[i].homogeneous, rtol=0, atol=1e-14
        )
        assert (joint.limit.lower, joint.limit.upper) == (
            model.lowerPositionLimit[i - 1],
            model.upperPositionLimit[i - 1],
        )
        assert (joint.limit.velocity, joint.limit.effort) == (
            model.upperVelocityLimit[i - 1],
            model.upperEffortLimit[i - 1],
        )


def example_files() -> list[Path]:
    files = sorted(EXAMPLES.rglob("*.urdf"))
    assert len(files) > 60, f"example-robot-data is not where it was: {EXAMPLES}"
    return files


def spatial_inertia(link: Link, placement: pin.SE3) -> np.ndarray:
    """6x6, linear part first, about the origin of the frame in which the link is placed."""
    R, c = placement.rotation, pin.skew(placement.act(np.array(link.com)))
    return np.block(
        [
            [link.mass * np.eye(3), -link.mass * c],
            [link.mass * c, R @ np.array(link.inertia) @ R.T - link.mass * c @ c],
        ]
    )


@pytest.mark.parametrize("path", example_files(), ids=lambda path: path.stem)
def test_every_published_robot_is_read_as_pinocchio_reads_it(path):
    """Names, joint placements, axes' joints and limits of all joints, and the inertia of every body
    with its fixed links merged.
    """
    try:
        model = pin.buildModelFromUrdf(str(path))
    except ValueError:  # one file of the package is an empty <robot>
        with pytest.raises(UrdfError, match="name"):
            read_urdf(path)
        return
    description = read_urdf(path)
    frames = {(frame.name, frame.type == pin.FrameType.BODY): frame for frame in model.frames}
    assert {link.name for link in description.links} == {
        name for name, is_link in frames if is_link
    }
    assert {j.name for j in description.joints} == {
        name for name, is_link in frames if not is_link and name != "universe"
    }

    bodies = [np.zeros((6, 6)) for _ in model.inertias]
    for link in description.links:
        frame = frames[link.name, True]
        bodies[frame.parentJoint] += spatial_inertia(link, frame.placement)
    for ours, theirs in zip(bodies, model.inertias, strict=True):
        np.testing.assert_allclose(
            ours, theirs.matrix(), rtol=0, atol=1e-12 * max(1, abs(theirs.matrix()).max())
        )

    for joint in description.joints:
        frame = frames[joint.name, False]
        parent = frames[joint.parent, True]
        assert frame.name == model.frames[frames[joint.child, True].parentFrame].name
        index = frame.parentJoint
        placement = (
            model.jointPlacements[index] if frame.type == pin.FrameType.JOINT else frame.placement
        )
        np.testing.assert_allclose(
            joint.placement.matrix(),
            (parent.placement.inverse() * placement).homogeneous,
            rtol=0,
            atol=1e-12,
        )
        if (
            joint.type in ("revolute", "prismatic")
            and math.isfinite(joint.limit.lower)
            and math.isfinite(joint.limit.upper)
        ):
            q, v = model.idx_qs[index], model.idx_vs[index]
            assert (joint.limit.lower, joint.limit.upper) == (
                model.lowerPositionLimit[q],
                model.upperPositionLimit[q],
            )
            assert (joint.limit.velocity, joint.limit.effort) == (
                model.upperVelocityLimit[v],
                model.upperEffortLimit[v],
            )


def test_a_quarter_turn_leaves_exact_zeros():
    inertial = (
        '<inertial><origin rpy="0 0 1.5707963267948966"/><mass value="1"/><inertia ixx="1" ixy="0"'
        ' ixz="0" iyy="2" iyz="0" izz="2.5"/>'
    )
    assert one_link(inertial + "</inertial>").inertia == (
        (2.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0, 0.0, 2.5),
    )


def test_quaternions_of_urdf_1_1_turn_as_in_pinocchio():
    origin = (
        '<origin xyz="1 2 3" quat_xyzw="0.1 -0.4 0.6 2"/><axis xyz="0 0 1"/><limit lower="0"'
        ' upper="1" velocity="1" effort="1"/>'
    )
    text = two_links_text(origin, attributes='name="r" version="1.1"')
    (joint,) = parse_urdf(text).joints
    model = pin.buildModelFromXML(text)
    np.testing.assert_allclose(
        joint.placement.matrix(), model.jointPlacements[1].homogeneous, atol=1e-15
    )


def test_links_and_joints_keep_their_order_and_names():
    text = robot(
        '<joint name="z" type="fixed"><parent link="b"/><child link="ä ö"/></joint><link'
        ' name="c"/><link name="ä ö"/><joint name="y" type="floating"><parent link="b"/><child'
        ' link="c"/></joint><link name="b"/>',
        'name="two words"',
    )
    description = parse_urdf(text)
    assert description.name == "two words"
    assert [link.name for link in description.links] == ["c", "ä ö", "b"]
    assert [(j.name, j.type, j.parent, j.child) for j in description.joints] == [
        ("z", "fixed", "b", "ä ö"),
        ("y", "floating", "b", "c"),
    ]


def test_what_is_absent_gets_its_default():
    joint = two_links("")
    assert joint.placement == IDENTITY_POSE
    assert (joint.axis, joint.mimic) == (None, None)
    assert joint.limit == JointLimit(-inf, inf, inf, inf)
    assert (joint.armature, joint.damping, joint.friction) == (0.0, 0.0, 0.0)
    assert two_links('<limit upper="1.5"/>').limit == JointLimit(-inf, 1.5, inf, inf)
    assert two_links('<origin xyz="1 2 3"/>').placement == Pose(IDENTITY_POSE.R, (1.0, 2.0, 3.0))
    assert two_links("<origin/>").placement == IDENTITY_POSE
    assert one_link("") == Link("a")


def test_axis_is_kept_as_given_where_the_joint_has_one():
    assert two_links('<axis xyz="0 -3 4"/>').axis == (0.0, -3.0, 4.0)
    assert two_links('<axis xyz="none"/>', "floating").axis is None


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic", "planar", "floating"])
def test_positions_are_limited_only_where_a_joint_has_one(kind):
    limit = two_links('<limit lower="-1" upper="2" velocity="3" effort="4"/>', kind).limit
    assert limit == JointLimit(
        *((-1.0, 2.0) if kind in ("revolute", "prismatic") else (-inf, inf)), 3.0, 4.0
    )


def test_a_continuous_joint_does_not_even_read_its_position_limits():
    assert two_links(
        '<limit lower="2" upper="-inf" effort="1"/>', "continuous"
    ).limit == JointLimit(-inf, inf, inf, 1.0)


def test_the_largest_float_stands_for_no_limit():
    limit = (
        '<limit lower="-1.7976931348623157e308" upper="1e308" velocity="1e51"'
        ' effort="1.7976931348623157e+308"/>'
    )
    assert two_links(limit).limit == JointLimit()
    with pytest.raises(UrdfError, match=r"joint 'j'.*lower='1e308' is too large"):
        two_links('<limit lower="1e308"/>')


def test_a_fixed_joint_reads_its_origin_alone():
    joint = two_links(
        '<origin xyz="0 0 1"/><axis xyz="0 0 0"/><limit lower="1" upper="0"/><mimic/><dynamics'
        ' damping="x"/>',
        "fixed",
    )
    assert (joint.placement.p, joint.axis, joint.limit, joint.mimic) == (
        (0.0, 0.0, 1.0),
        None,
        JointLimit(),
        None,
    )


def test_dynamics_and_our_armature():
    joint = two_links('<dynamics damping="0.5" friction="0.25" armature="0.125"/>')
    assert (joint.damping, joint.friction, joint.armature) == (0.5, 0.25, 0.125)


def test_mimic():
    assert two_links('<mimic joint="k"/>').mimic == Mimic("k", 1.0, 0.0)
    assert two_links('<mimic joint="k" multiplier="-2" offset="0.5"/>').mimic == Mimic(
        "k", -2.0, 0.5
    )


def test_shapes():
    shapes = {
        '<box size="1 2 3"/>': Visual("box", (1.0, 2.0, 3.0)),
        '<cylinder length="2" radius="0.5"/>': Visual("cylinder", (0.5, 2.0)),
        '<capsule length="2" radius="0.5"/>': Visual("capsule", (0.5, 2.0)),
        '<sphere radius="3"/>': Visual("sphere", (3.0,)),
        '<mesh filename="package://p/../a b.dae"/>': Visual(
            "mesh", (1.0, 1.0, 1.0), mesh="package://p/../a b.dae"
        ),
        '<mesh filename="/dev/zero" scale="1 -1 0.001"/>': Visual(
            "mesh", (1.0, -1.0, 0.001), mesh="/dev/zero"
        ),
    }
    link = one_link("".join(f"<visual><geometry>{text}</geometry></visual>" for text in shapes))
    assert link.visuals == tuple(shapes.values())
    placed = one_link(
        '<visual><origin xyz="1 2 3" rpy="0 0 3.141592653589793"/><geometry><sphere'
        ' radius="1"/></geometry></visual>'
    ).visuals[0]
    assert placed.placement == Pose(
        ((-1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0)), (1.0, 2.0, 3.0)
    )


def colors(*materials: str, beside: str = ""):
    visuals = "".join(
        f'<visual><geometry><sphere radius="1"/></geometry>{m}</visual>' for m in materials
    )
    return [visual.color for visual in one_link(visuals, beside).visuals]


def test_colors():
    red, blue = '<color rgba="1 0 0 1"/>', '<color rgba="0 0 1 0.5"/>'
    r, b = (1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.5)
    named = '<material name="m"/>'
    assert colors("", f"<material>{red}</material>", f'<material name="">{blue}</material>') == [
        None,
        r,
        b,
    ]
    assert colors(named, beside=f'<material name="m">{red}</material>') == [r], (
        "defined under <robot>, after its use"
    )
    assert colors(named, f'<material name="m">{blue}</material>', named) == [
        b,
        b,
        b,
    ], "defined in another visual"
    assert colors(
        f'<material name="m">{blue}</material>',
        named,
        beside=f'<material name="m">{red}</material>',
    ) == [b, r], "own colour first"
    assert colors(named, '<material name="n"><texture filename="x.png"/></material>') == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    "visual",
    [
        "<visual/>",
        "<visual><geometry/></visual>",
        "<visual><geometry><cone/></geometry></visual>",
        '<visual><geometry><box size="1 2"/></geometry></visual>',
        '<visual><origin xyz="nan 0 0"/><geometry><sphere radius="1"/></geometry></visual>',
        "<visual><geometry><mesh/></geometry></visual>",
        (
            '<visual><geometry><sphere radius="1"/></geometry><material name="m"><color rgba="1 1'
            ' 1"/></material></visual>'
        ),
    ],
)
def test_a_bad_visual_is_left_out_with_a_warning(visual):
    sphere = '<visual><geometry><sphere radius="2"/></geometry></visual>'
    with pytest.warns(ModelWarning, match=r"line 1: link 'a': .*2 such problems"):
        link = one_link(visual + sphere + visual + INERTIAL)
    assert link.visuals == (Visual("sphere", (2.0,)),)
    assert link.mass == 2.0


def test_a_bad_global_material_is_left_out_with_a_warning():
    with pytest.warns(ModelWarning, match="material 'm'"):
        assert colors(
            '<material name="m"/>', beside='<material name="m"><color rgba="a b c d"/></material>'
        ) == [None]


def test_what_urdf_does_not_know_is_left_out_by_name():
    text = robot(
        '<?play me?><!-- <link name="c"/> --><link name="a"'
        ' kind="x"><sensor/><collision><geometry><box'
        ' size="?"/></geometry></collision>text</link><gazebo reference="a"><link name="a"/><joint'
        ' name="?"/><sensor:ray xmlns:sensor="http://x"/></gazebo><transmission><joint'
        ' name="j"/></transmission><xi:include xmlns:xi="http://www.w3.org/2001/XInclude"'
        ' href="/etc/passwd"/>',
        'name="r" version="1.0" xmlns:xacro="http://www.ros.org/wiki/xacro"',
    )
    with pytest.warns(ModelWarning, match="in <gazebo> 'a'.*<xi:include>; passed over") as caught:
        description = parse_urdf(text)
    assert len(caught) == 1
    (link,) = description.links
    assert (dataclasses.replace(link, collisions=()), description.joints, description.frames) == (
        Link("a"),
        (),
        (),
    )
    assert "size='?'" in link.collisions[0].problem  # told when collisions are asked for


def test_text_bytes_and_files_in_any_common_encoding_are_the_same_robot(tmp_path):
    text = robot('<link name="größe"/>')
    expected = parse_urdf(text)
    variants = [
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.encode("utf-16"),
        ('<?xml version="1.0" encoding="iso-8859-1"?>' + text).encode("latin-1"),
        ('<?xml version="1.0" encoding="UTF-16"?>' + text).encode("utf-16"),
        ('<?xml version="1.0" encoding="utf-8"?>\r\n' + text + "\r\n").encode(),
    ]
    path = tmp_path / "robot.urdf"
    for data in variants:
        path.write_bytes(data)
        assert parse_urdf(data) == read_urdf(path) == read_urdf(str(path)) == expected
    assert parse_urdf('<?xml version="1.0" encoding="koi8-r"?>' + text) == expected, (
        "a str is decoded already"
    )
    assert parse_urdf("\ufeff" + text) == expected
    assert expected.links[0].name == "größe"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_error_names_file_line_element_and_what_was_there(tmp_path, newline):
    lines = [
        "<?xml version='1.0'?>",
        '<robot name="r">',
        '<link name="a"/><link name="b"/>',
        '<joint name="elbow" type="revolute">',
    ]
    lines += [
        '<parent link="a"/>',
        '<child link="b"/>',
        '<limit lower="0,5"/>',
        "</joint>",
        "</robot>",
    ]
    path = tmp_path / "my.urdf"
    path.write_text(newline.join(lines), newline="")
    with pytest.raises(UrdfError) as caught:
        read_urdf(path)
    assert str(caught.value).startswith(f"{path}: line 7: joint 'elbow': <limit> lower='0,5'")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1.0),
        ("+1.", 1.0),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("007", 7.0),
        ("\n 2\t", 2.0),
        ("1e-999", 0.0),
    ],
)
def test_decimal_numbers_in_every_usual_form(word, value):
    joint = two_links(f'<mimic joint="k" offset="{word}"/><axis xyz="{word} {word}&#10;{word}"/>')
    assert joint.axis == (value,) * 3
    assert joint.mimic.offset == value


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e50, 1e50), min_size=3, max_size=3))
def test_a_number_is_read_to_the_last_bit(values):
    joint = two_links(
        f'<origin xyz="{numbers(values)}"/><axis xyz="{numbers(values)}"/><mimic joint="k"'
        f' offset="{values[0]!r}"/>'
    )
    assert joint.axis == joint.placement.p == tuple(values)
    assert joint.mimic.offset == values[0]


def test_ten_thousand_links_are_read():
    link = f'<link name="l{{}}">{INERTIAL}</link>'
    joint = (
        '<joint name="j{0}" type="continuous"><parent link="l{1}"/><child link="l{0}"/><origin'
        ' xyz="0 0 0.1"/></joint>'
    )
    text = robot(
        link.format(0) + "".join(link.format(i) + joint.format(i, i - 1) for i in range(1, 10_000))
    )
    description = parse_urdf(text)
    assert len(description.links) == 10_000
    assert description.joints[-1].parent == "l9998"


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("text", ['<robot name="r"><link name="a"/></robot>', "<robot"])
def test_the_garbage_collector_is_left_as_it_was(enabled, text):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.suppress(UrdfError):
            parse_urdf(text)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("argument", [None, 3, ["<robot/>"], memoryview(b"<robot/>")])
def test_arguments_of_another_type_are_refused(argument):
    with pytest.raises(InputError, match="str"):
        parse_urdf(argument)
    with pytest.raises(InputError, match="path"):
        read_urdf(argument)
