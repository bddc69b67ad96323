"""What of a robot's file is not read is said once, by name: what acts on its bodies as a warning of
the model, what is for other programs in one line that may be silenced by its own category, and
nothing where nothing is missing.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import ModelWarning, PassedOverWarning

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import corpus

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
URDF = (
    f'<robot name="r"><link name="a"/><link name="b">{{link}}{INERTIAL}</link><joint name="j"'
    ' type="continuous"><parent link="a"/><child link="b"/>{joint}</joint>{robot}</robot>'
)


def said(text: str) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rg.load(text)
    return caught


def urdf(**parts: str) -> str:
    return URDF.format(**({"link": "", "joint": "", "robot": ""} | parts))


DYNAMICS = {
    "transmission with a rotor": (
        {
            "robot": '<transmission name="t"><type>x/SimpleTransmission</type><joint name="j"/>'
            '<actuator name="m"><drake:rotor_inertia value="1"/></actuator></transmission>'
        },
        "rotor inertia of <transmission> 't'",
    ),
    "loop joint": ({"robot": '<loop_joint name="loop"/>'}, "<loop_joint> 'loop'"),
    "gravity off in gazebo": (
        {"robot": '<gazebo reference="b"><turnGravityOff>true</turnGravityOff></gazebo>'},
        "no gravity of link 'b'",
    ),
    "gravity off in a link": ({"link": "<gravity>0</gravity>"}, "no gravity of link 'b'"),
    "joint in gazebo": (
        {"robot": '<gazebo><joint name="knee" type="revolute"/></gazebo>'},
        "joint in <gazebo> 'knee'",
    ),
    "spring in gazebo": (
        {"robot": '<gazebo reference="j"><springStiffness>3</springStiffness></gazebo>'},
        "<springStiffness> of 'j'",
    ),
    "a misspelt axis": ({"joint": '<axis xyz="1 0 0" rpy="0 0 1"/>'}, "rpy of <axis> of joint 'j'"),
    "unknown in a joint": ({"joint": '<joint_properties damping="1"/>'}, "of joint 'j'"),
    "unknown in a link": ({"link": '<flesh thickness="1"/>'}, "<flesh> of link 'b'"),
    "unknown": ({"robot": '<force_element name="wind"/>'}, "<force_element> 'wind'"),
}
OTHERS = {
    "plugins": (
        {"robot": '<gazebo><plugin name="x"/></gazebo><gazebo reference="b"><mu1>1</mu1></gazebo>'},
        "2 × <gazebo>",
    ),
    "gravity on": (
        {"robot": '<gazebo reference="b"><gravity>true</gravity></gazebo>'},
        "need it: <gazebo>",
    ),
    "transmission": (
        {
            "robot": '<transmission name="t"><type>transmission_interface/SimpleTransmission</type>'
            '<joint name="j"/><actuator name="m"/></transmission>'
        },
        "need it: <transmission>",
    ),
    "transmission that couples": (
        {"robot": '<transmission name="t"><type>x/DifferentialTransmission</type></transmission>'},
        "coupling <transmission>",
    ),
    "ros2_control": ({"robot": "<ros2_control/>"}, "<ros2_control>"),
    "sensor": ({"robot": '<sensor name="imu"/>'}, "<sensor>"),
    "soft limits": ({"joint": '<safety_controller k_velocity="1"/>'}, "<safety_controller>"),
    "dynamics of other kinds": (
        {"joint": '<dynamics damping="1" K="7000" mu_coulomb="2"/>'},
        "K, mu_coulomb of <dynamics>",
    ),
    "limits of other kinds": (
        {"joint": '<limit effort="1" velocity="1" current="3"/>'},
        "current of <limit>",
    ),
}


@pytest.mark.parametrize("case", DYNAMICS)
def test_what_acts_on_bodies_is_named_in_one_warning(case):
    parts, words = DYNAMICS[case]
    (warning,) = said(urdf(**parts))
    assert warning.category is ModelWarning
    assert "left out of 'r', as rigidgrad does not model it: " in str(warning.message)
    assert words in str(warning.message)


@pytest.mark.parametrize("case", OTHERS)
def test_what_other_programs_need_is_said_in_one_line_of_its_own_category(case):
    parts, words = OTHERS[case]
    (warning,) = said(urdf(**parts))
    assert warning.category is PassedOverWarning
    assert words in str(warning.message) and len(str(warning.message)) < 100


def test_looks_contacts_and_calibration_go_without_saying():
    quiet = urdf(
        link='<visual><geometry><box size="1 1 1"/></geometry><material name="m"/></visual>'
        "<contact><lateral_friction value='1'/></contact><self_collision_checking/>",
        joint='<calibration rising="0"/><axis xyz="0 0 1"/><dynamics damping="1"/>',
        robot='<material name="m"/><collision_filter_group name="g"/>',
    )
    assert said(quiet) == []


def test_both_kinds_make_one_warning_and_names_are_listed_once():
    both = DYNAMICS["loop joint"][0]["robot"] * 2 + OTHERS["plugins"][0]["robot"]
    (warning,) = said(urdf(robot=both))
    assert str(warning.message) == (
        "left out of 'r', as rigidgrad does not model it: <loop_joint> 'loop'; passed over, as other"
        " programs need it: 2 × <gazebo>"
    )


SDF = (
    '<sdf version="1.9">{world}<model name="m"><link name="a"/><link name="b">{link}</link>'
    '<joint name="j" type="revolute"><parent>a</parent><child>b</child><axis><xyz>0 0 1</xyz>{axis}'
    "</axis>{joint}</joint>{model}</model></sdf>"
)


@pytest.mark.parametrize(
    ("parts", "category", "words"),
    [
        ({"model": "<plugin name='x'/>", "link": "<sensor name='s'/>"}, True, "<plugin>"),
        ({"joint": "<physics><ode/></physics>", "world": "<light/>"}, True, "<light>"),
        ({"axis": "<limit><stiffness>1</stiffness></limit>"}, True, "<stiffness>"),
        ({"link": "<tail/>"}, False, "<tail> of link 'b'"),
        ({"joint": "<clutch/>"}, False, "<clutch> of joint 'j'"),
        ({"link": "<kinematic>true</kinematic>"}, False, "<kinematic> of link 'b'"),
        ({"world": "<wheel/>"}, False, "<wheel> of the file"),
    ],
)
def test_sdf_tells_the_same(parts, category, words):
    text = SDF.format(**({"world": "", "link": "", "axis": "", "joint": "", "model": ""} | parts))
    (warning,) = said(text)
    assert warning.category is (PassedOverWarning if category else ModelWarning)
    assert words in str(warning.message)


def test_mjcf_tells_the_same():
    pytest.importorskip("mujoco")
    body = '<body name="{}" pos="{} 0 0"><joint name="j{}"/><geom size="0.1"/></body>'
    text = (
        f'<mujoco model="m"><worldbody>{body.format("a", 0, 1)}{body.format("b", 2, 2)}</worldbody>'
        '<contact><exclude body1="a" body2="b"/></contact>'
        '<sensor><jointpos name="angle" joint="j1"/><jointvel joint="j1"/></sensor>'
        '<keyframe><key name="home" qpos="0 0"/></keyframe></mujoco>'
    )
    (warning,) = said(text)
    assert warning.category is PassedOverWarning
    assert str(warning.message) == (
        "passed over in 'm', as other programs need it: sensor 'angle', sensor without a name,"
        " keyframe 'home', contact exclusion 'a-b'"
    )


def test_a_folder_with_parts_for_other_programs_is_loaded_without_warnings(tmp_path, capsys):
    for name, parts in (("ros", OTHERS["plugins"][0]), ("loop", DYNAMICS["loop joint"][0])):
        (tmp_path / f"{name}.urdf").write_text(urdf(**parts))
    assert main(["check", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["loaded"], found["warned"], found["refused"]) == (1, 1, 0)
    said = {robot["file"]: robot["reasons"] for robot in found["robots"]}
    assert "<gazebo>" in said["ros.urdf"][0] and "<loop_joint>" in said["loop.urdf"][0]


def test_robots_of_folders_are_compared_with_pinocchio(tmp_path):
    pytest.importorskip("pinocchio")
    for name, text in (
        ("two", urdf()),
        ("macro", urdf(robot='<xacro:hand xmlns:xacro="http://ros.org/xacro"/>')),
        ("broken", "<robot"),
    ):
        (tmp_path / f"{name}.urdf").write_text(text)
    found = corpus.summary(tmp_path)
    counts = ("urdfs", "pinocchio", "of_these", "others", "compared", "same")
    assert [found[name] for name in counts] == [3, 2, 1, 0, 1, 1]
    assert [row["file"] for row in found["refused"]] == ["macro.urdf"]
    heavier = rg.load(urdf().replace('ixx="1"', 'ixx="1.5"'), engine="numpy")
    assert corpus.difference(heavier, tmp_path / "two.urdf") > 0.1
