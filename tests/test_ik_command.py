"""`rigidgrad ik`, and the page on which its target is dragged."""

from __future__ import annotations

import importlib.util
import json
import math

import numpy as np
import pytest
from browser import eventually
from live_pages import connected, set_value

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.model.pose import rotation_from_rpy

TIP = "iiwa_link_ee"
with_viser = pytest.mark.skipif(
    importlib.util.find_spec("viser") is None, reason="needs viser (pip install)"
)


def ran(capsys, *arguments, code=0):
    assert main(["ik", *arguments]) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_the_pose_asked_for_is_reached(capsys):
    out, _ = ran(capsys, "iiwa14", "--pose", "0.5,0.2,0.6,3.0,0.1,-0.4", "--json")
    found = json.loads(out)
    assert found["success"] is True
    assert found["frame"] == TIP
    T = rg.load("iiwa14").forward_kinematics(found["q"])[TIP]
    np.testing.assert_allclose(T[:3, 3], (0.5, 0.2, 0.6), atol=1e-6)
    np.testing.assert_allclose(T[:3, :3], rotation_from_rpy((3.0, 0.1, -0.4)), atol=2e-6)


def test_it_prints_joints_with_limits_and_what_to_do_next(capsys):
    out, _ = ran(capsys, "iiwa14", "--pose", "0.5,0.2,0.6", "--best", "2")
    assert "iiwa_joint_7" in out and "q 2" in out and "2.967" in out
    assert "reached, 2 solutions" in out
    assert f"--frame {TIP} --page" in out


def test_what_is_out_of_reach_ends_with_1_and_says_how_far(capsys):
    out, _ = ran(capsys, "iiwa14", "--pose", "2,0,0.4", code=1)
    assert "out of reach" in out and "1.054 m" in out


def test_a_picture_is_saved(capsys, tmp_path):
    out, _ = ran(capsys, "iiwa14", "--pose", "0.5,0.2,0.6", "--html", str(tmp_path / "reach.html"))
    assert "reach.html" in out
    assert "rigidgrad-view" in (tmp_path / "reach.html").read_text()


def test_a_start_and_free_axes_are_handed_on(capsys):
    start = [0.1, 0.6, 0.0, -1.2, 0.0, 0.8, 0.0]
    T = rg.load("iiwa14").forward_kinematics(start)[TIP]
    pose = ",".join(f"{x:.6f}" for x in T[:3, 3])
    found = json.loads(
        ran(capsys, "iiwa14", "--pose", pose, "--start", ",".join(map(str, start)), "--json")[0]
    )
    np.testing.assert_allclose(found["q"], start, atol=1e-5)
    out, _ = ran(capsys, "iiwa14", "--pose", f"{pose},0,3.14,0", "--free", "rx,ry,rz", "--json")
    assert json.loads(out)["success"] is True


def test_a_scene_is_kept_clear_of(capsys, tmp_path):
    shape = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
    mass = (
        '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"'
        ' iyz="0"/></inertial>'
    )
    joint = (
        '<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="{3}'
        ' 0 0"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" velocity="1" effort="1"/></joint>'
    )
    links = (
        f'<link name="base"/><link name="upper">{mass}</link><link'
        f' name="lower">{mass}{shape}</link><link name="tool"/>'
    )
    joints = joint.format("j1", "base", "upper", 0) + joint.format("j2", "upper", "lower", 1)
    fixed = (
        '<joint name="end" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="1 0'
        ' 0"/></joint>'
    )
    (tmp_path / "arm.urdf").write_text(f'<robot name="arm">{links}{joints}{fixed}</robot>')
    arguments = (str(tmp_path / "arm.urdf"), "--pose", "1.2,0,0", "--frame", "tool", "--json")
    elbows = {}
    for y in (0.8, -0.8):  # the elbow is on one side of the line, or on the other
        (tmp_path / "scene.toml").write_text(
            f'[[shape]]\nkind = "sphere"\nradius = 0.5\ncenter = [0.6, {y}, 0.0]\n'
        )
        found = json.loads(ran(capsys, *arguments, "--scene", str(tmp_path / "scene.toml"))[0])
        assert found["success"] is True
        elbows[y] = np.sin(found["q"][0])
    assert elbows[0.8] < -0.5 and elbows[-0.8] > 0.5
    (tmp_path / "scene.toml").write_text(
        '[[shape]]\nkind = "sphere"\nradius = 1.0\ncenter = [0.6, 0.0, 0.0]\n'
    )
    out, _ = ran(capsys, *arguments[:-1], "--scene", str(tmp_path / "scene.toml"), code=1)
    assert "collide" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--pose"),
        (("--pose", "1,2"), "3 or 6 numbers"),
        (("--pose", "1,2,nan"), "3 or 6 numbers"),
        (("--pose", "1,2,3", "--start", "0,0"), "7 numbers"),
        (("--pose", "1,2,3", "--margin", "0.1"), "--scene"),
    ],
)
def test_wrong_usage_is_said_in_a_line(capsys, arguments, said):
    _, err = ran(capsys, "iiwa14", *arguments, code=2)
    assert said in err
    assert err.count("\n") == 1


def test_a_frame_that_there_is_not_is_told_the_nearest(capsys):
    _, err = ran(capsys, "iiwa14", "--frame", "iiwa_link_e", "--pose", "0.5,0,0.5", code=1)
    assert TIP in err


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
def page():
    from rigidgrad.play.reach_page import reach

    made = reach(
        rg.load("iiwa14"),
        q=[0.0, 0.6, 0.0, -1.2, 0.0, 0.8, 0.0],
        port=0,
        block=False,
        announce=False,
    )
    yield made
    made.stop()


@with_viser
def test_the_robot_follows_the_target_that_is_dragged(page):
    robot, target = page.robot, page.target.copy()
    goal = target[:3, 3] + [0.1, 0.15, -0.1]
    with connected(page.stage) as send:
        send(
            "TransformControlsUpdateMessage",
            name="/target",
            wxyz=tuple(np.asarray(page.handle.wxyz).tolist()),
            position=tuple(goal.tolist()),
            owner="",
        )
        eventually(
            lambda: np.allclose(robot.forward_kinematics(page.q)[TIP][:3, 3], goal, atol=1e-5),
            "the tool is there",
        )
        np.testing.assert_allclose(
            robot.forward_kinematics(page.q)[TIP][:3, :3], target[:3, :3], atol=1e-5
        )
        before = page.q
        page._want(seed=True)  # what the button does
        eventually(lambda: np.abs(page.q - before).max() > 0.05, "another solution")
        np.testing.assert_allclose(robot.forward_kinematics(page.q)[TIP][:3, 3], goal, atol=1e-5)


@with_viser
def test_what_a_browser_sends_cannot_lead_the_page_astray(page):
    with connected(page.stage) as send:
        for at, turn in (
            ((math.nan, 0, 0), (1, 0, 0, 0)),
            ((0, 0), (1, 0, 0, 0)),
            ((0.3, 0, 0.3), (0, 0, 0, 0)),
            ((1e300, 0, 0), (1, 0, 0, 0)),
        ):
            send("TransformControlsUpdateMessage", name="/target", wxyz=turn, position=at, owner="")
        edge = page._reachable((1e300, 0, 0))
        eventually(lambda: page.target[0, 3] == edge[0], "the target is clamped")
        eventually(lambda: "out of reach" in page.status.content, "it says so")
        set_value(send, page.oriented, False)
        eventually(lambda: not page._oriented, "rotation is free")
        assert np.isfinite(page.q).all()
        assert ((page.q >= page.robot.limits.lower) & (page.q <= page.robot.limits.upper)).all()
