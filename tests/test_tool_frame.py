"""The frame that does a robot's work is its tool, never a finger."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import rigidgrad as rg
from rigidgrad.errors import UnknownNameError
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.tasks.template import template
from rigidgrad.viewer.page import content


def robots() -> Path:
    pin = pytest.importorskip("pinocchio")
    found = next(
        (
            p / "share/example-robot-data/robots"
            for p in Path(pin.__file__).parents
            if p.name == "cmeel.prefix"
        ),
        Path("nowhere"),
    )
    if not found.is_dir():
        pytest.skip("example-robot-data is not installed")
    return found


@pytest.mark.parametrize(
    ("file", "frame"),
    [
        ("panda_description/urdf/panda.urdf", "panda_hand_tcp"),
        ("ur_description/urdf/ur5_robot.urdf", "tool0"),
        ("ur_description/urdf/ur10_robot.urdf", "tool0"),
        ("kinova_description/robots/kinova.urdf", "j2s6s200_end_effector"),
        ("talos_data/robots/talos_left_arm.urdf", "wrist_left_ft_tool_link"),
        ("talos_data/robots/talos_full_v2.urdf", "wrist_left_ft_tool_link"),
        ("tiago_description/robots/tiago.urdf", "hand_tool_link"),
        ("tiago_pro_description/robots/tiago_pro.urdf", "arm_left_tool_link"),
        ("pr2_description/urdf/pr2.urdf", "l_gripper_tool_frame"),
        ("baxter_description/urdf/baxter.urdf", "left_gripper"),
        ("xarm_description/urdf/xarm7.urdf", "link_eef"),
        ("z1_description/urdf/z1.urdf", "gripperStator"),
        ("so_arm_description/urdf/so101.urdf", "gripper_frame_link"),
        ("g1_description/urdf/g1_29dof_with_hand_rev_1_0.urdf", "left_hand_palm_link"),
        ("go2_description/urdf/go2.urdf", "FL_foot"),
        ("finger_edu_description/robots/finger_edu.urdf", "finger_tip_link"),
    ],
)
def test_published_robots(file, frame):
    path = robots() / file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tool_frame(rg.load(path, strict=False).model) == frame


def test_bundled_robots():
    assert tool_frame(rg.load("iiwa14").model) == "iiwa_link_ee"
    assert tool_frame(rg.load("cartpole").model) == "rod"
    assert tool_frame(rg.load("hyq").model) == "lf_lowerleg"
    assert tool_frame(rg.load("hyq", floating_base=True).model) == "base_link_0"
    assert tool_frame(rg.Builder("rock").link("rock", 1.0).build().model) == "rock"


def gripper(
    *ends: str,
    second: str = "prismatic",
    mimic: str | None = None,
    names: tuple[str, str] = ("a", "b"),
):
    """An arm of two joints, links fixed to its end, and two more links that slide or turn there."""
    ball = (1.0, (0, 0, 0.1), (0.01, 0.01, 0.01))
    made = rg.Builder("arm").link("base").link("upper", *ball).link("lower", *ball)
    made = made.joint("j1", "revolute", "base", "upper", axis=(0, 1, 0)).joint(
        "j2", "revolute", "upper", "lower", axis=(0, 1, 0)
    )
    for end in ends:
        made = made.link(end).joint(f"to {end}", "fixed", "lower", end)
    for k, name in enumerate(names):
        more = {"mimic": mimic} if mimic and k else {}
        made = made.link(name, *ball).joint(f"s{k}", second, "lower", name, axis=(0, 1, 0), **more)
    return made.build().model


def test_fingers_are_passed_over():
    assert tool_frame(gripper("mount", "plate")) == "plate"
    assert tool_frame(gripper("mount", second="revolute", mimic="s0")) == "mount"
    assert tool_frame(gripper("mount", second="revolute", names=("jaw_1", "jaw_2"))) == "mount"
    # nothing says that these are fingers
    assert tool_frame(gripper("mount", second="revolute")) in ("a", "b")


def test_names_are_words():
    assert tool_frame(gripper("flange", "myToolFrame2", "hand", "camera")) == "myToolFrame2"
    assert tool_frame(gripper("TCP", "handle", "committee")) == "TCP"
    # no words of ours: the last
    assert tool_frame(gripper("handle", "tool_changer", "wheel")) == "wheel"
    assert tool_frame(gripper("flange", "end_effector", "plate")) == "end_effector"


def test_an_arm_with_a_parallel_linkage_has_no_fingers():
    ball = (1.0, (0, 0, 0.1), (0.01, 0.01, 0.01))
    made = (
        rg.Builder("palletizer")
        .link("base")
        .link("turret", *ball)
        .link("main", *ball)
        .link("bar", *ball)
        .link("fore", *ball)
    )
    made = made.joint("j1", "revolute", "base", "turret", axis=(0, 0, 1)).joint(
        "j2", "revolute", "turret", "main", axis=(0, 1, 0)
    )
    made = made.joint("j2b", "revolute", "turret", "bar", axis=(0, 1, 0), mimic="j2")
    made = made.joint("j3", "revolute", "main", "fore", axis=(0, 1, 0)).link("level", *ball)
    made = made.joint("j4", "revolute", "fore", "level", axis=(0, 1, 0), mimic=("j3", -1.0))
    assert tool_frame(made.build().model) == "level"


def test_a_task_and_a_view_are_about_the_tool_or_the_frame_that_is_named():
    robot = rg.Robot(gripper("mount", "tool0"))
    assert (
        'frame = "tool0"' in template(robot, "arm.urdf")
        and content(robot)["trace"]["label"] == "tool0"
    )
    assert (
        'frame = "upper"' in template(robot, "arm.urdf", frame="upper")
        and content(robot, frame="upper")["trace"]["label"] == "upper"
    )
    with pytest.raises(UnknownNameError, match="nothing"):
        template(robot, "arm.urdf", frame="nothing")
