"""Loops of a robot's own: read from MJCF, kept by what is made of the robot, and the same equations
as MuJoCo's rows.
"""

from __future__ import annotations

import dataclasses
import pickle
import warnings

import numpy as np
import pytest
from random_trees import assert_close

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import ModelError, ModelWarning

mujoco = pytest.importorskip("mujoco")

EPS = np.finfo(float).eps
PIN = '<connect name="pin" body1="rod" body2="ram" anchor="0.5 0.1 0"/>'
GRIP = (
    '<weld name="grip" body1="box" body2="ram" relpose="0.1 0.2 0.3 0.9 0.1 0.2 0.3" anchor="0.01'
    ' 0.02 0.03"/>'
)
NAIL = '<connect body1="box" anchor="0.1 0.2 0.3"/>'
EYES = '<weld name="eyes" site1="eye" site2="lid"/>'
HINGE = '<connect name="hinge" site1="lid" site2="eye"/>'
LOOSE = '<weld name="loose" body1="rod" body2="box" torquescale="0"/>'
OFF = '<weld name="off" body1="box" body2="rod" active="false"/>'
COUPLED = '<joint joint1="a" joint2="b" polycoef="0 1 0 0 0"/>'
CURVED = '<joint joint1="a" joint2="b" polycoef="0 1 1 0 0"/>'
STIFF = '<weld name="stiff" body1="box" body2="lug"/>'


def press(*equalities):
    return f"""<mujoco model="press"><compiler angle="radian"/>
<worldbody>
 <body name="crank" pos="0 0 0.1"><joint name="a" axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0"/>
  <body name="rod" pos="0.3 0 0"><joint name="b" axis="0 1 0.2"/><geom type="capsule" size="0.02" fromto="0 0 0 0.5 0.1 0"/></body></body>
 <body name="ram" pos="0.8 0.1 0.1" euler="0.1 0.2 0.3">
  <joint name="c" type="slide" axis="1 0 0"/><joint name="d" type="ball"/><geom size="0.05"/><site name="eye" pos="0.01 0 0.02" euler="0.3 0 0"/></body>
 <body name="box" pos="0 1 1"><freejoint/><geom type="box" size="0.1 0.2 0.3"/><site name="lid" pos="0 0 0.3" euler="0 0.4 0"/>
  <body name="lug" pos="0 0 0.4"><geom size="0.03"/></body></body>
</worldbody>
<equality>{" ".join(equalities)}</equality></mujoco>"""


def quietly(text, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return rg.load(text, **options)


def rows_of_mujoco(model, data):
    """J and J̇ v of equality constraints of bodies and sites in world axes, rotations included, by
    its functions for points.
    """
    J, drift = [], []
    for k in range(model.neq):
        parts = []
        for end, obj in enumerate((model.eq_obj1id[k], model.eq_obj2id[k])):
            if model.eq_objtype[k] == mujoco.mjtObj.mjOBJ_SITE:
                body, point = model.site_bodyid[obj], data.site_xpos[obj]
            else:
                # its second anchor comes first
                swapped = model.eq_type[k] == mujoco.mjtEq.mjEQ_WELD
                anchor = model.eq_data[k, 3 * (end ^ swapped) :][:3]
                body, point = obj, data.xpos[obj] + data.xmat[obj].reshape(3, 3) @ anchor
            whole, rate = np.zeros((6, model.nv)), np.zeros((6, model.nv))
            mujoco.mj_jac(model, data, whole[:3], whole[3:], point, body)
            mujoco.mj_jacDot(model, data, rate[:3], rate[3:], point, body)
            parts.append((whole, rate @ data.qvel))
        full = model.eq_type[k] == mujoco.mjtEq.mjEQ_WELD and model.eq_data[k, 10] != 0
        J.append((parts[0][0] - parts[1][0])[: 6 if full else 3])
        drift.append((parts[0][1] - parts[1][1])[: 6 if full else 3])
    return J, np.concatenate(drift)


@pytest.mark.parametrize(
    "equalities", [(PIN,), (GRIP,), (NAIL,), (EYES, PIN), (HINGE,), (LOOSE,), (GRIP, NAIL)], ids=str
)
def test_equality_constraints_are_those_of_mujoco(equalities):
    """M, c and the rows by MuJoCo, solved densely: the same accelerations and forces. Its own efc_J
    and efc_pos say what is held where.
    """
    text = press(*equalities)
    robot = quietly(text, engine="numpy")
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    data = mujoco.MjData(model)
    convert = rg.interop.states(robot, model)
    for seed in range(3):
        q, v, tau = robot.random(seed=seed)
        s = robot.contact_dynamics(q, v, tau, robot.loops, damped=False)
        theirs = convert.to(q, v, s.a, tau)
        data.qpos[:], data.qvel[:] = theirs.q, theirs.v
        mujoco.mj_forward(model, data)
        J, drift = rows_of_mujoco(model, data)
        own, at = data.efc_J.reshape(-1, model.nv), 0
        poses = robot.forward_kinematics(q)
        for k, (loop, rows) in enumerate(zip(robot.loops, J, strict=True)):
            np.testing.assert_allclose(own[at : at + 3], rows[:3], atol=1e-12)
            a = poses[loop.frame_a if isinstance(loop, rg.Loop) else loop.frame]
            b = (
                poses[loop.frame_b]
                if isinstance(loop, rg.Loop)
                else np.vstack([np.c_[np.eye(3), loop.place], [0, 0, 0, 1]])
            )
            np.testing.assert_allclose(data.efc_pos[at : at + 3], a[:3, 3] - b[:3, 3], atol=1e-12)
            # ½ n sin ½θ twice: the imaginary part of the quaternion between the two
            if loop.rows == 6:
                half = np.sqrt((3 - np.trace(a[:3, :3].T @ b[:3, :3])) / 4)
                np.testing.assert_allclose(
                    np.linalg.norm(data.efc_pos[at + 3 : at + 6]), half, atol=1e-9
                )
            at += 6 if model.eq_type[k] == mujoco.mjtEq.mjEQ_WELD else 3
        J = np.concatenate(J)
        M, n, m = np.zeros((model.nv, model.nv)), model.nv, len(J)
        (
            mujoco.mj_fullM(model, data, M)
            if mujoco.__version__ >= "4"
            else mujoco.mj_fullM(model, M, data.qM)
        )
        K = np.block([[M, -J.T], [J, np.zeros((m, m))]])
        x = np.linalg.solve(K, np.concatenate([theirs.tau - data.qfrc_bias, -drift]))
        slack = 50 * EPS * np.linalg.cond(K)
        assert slack < 1e-6
        assert_close(theirs.a, x[:n], slack, "a")
        assert_close(s.force, x[n:], slack, "force")


def test_what_is_read_and_what_is_left_out_are_named():
    with pytest.warns(ModelWarning) as caught:
        robot = rg.load(press(PIN, NAIL, OFF, CURVED, STIFF))
    assert {w.filename for w in caught} == {__file__}
    left_out, closed = (str(w.message) for w in caught)
    for said in (
        "inactive equality constraint 'off'",
        "equality constraint of joints, which is not linear",
        "'stiff' between bodies that do not move",
    ):
        assert said in left_out
    assert (
        closed.startswith("2 loops of 'press' ('pin', 'connect1'): open in aba")
        and "contacts=robot.loops" in closed
    )
    pin, nail = robot.loops
    assert (pin.frame_a, pin.frame_b, pin.kind) == ("pin:rod", "ram", "point")
    assert isinstance(nail, rg.Contact) and np.allclose(nail.place, (0.1, 1.2, 1.3))
    assert "2 loops: open in aba" in str(robot) and "contacts=robot.loops" in str(robot)
    assert rg.load("iiwa14").loops == () and "loop" not in str(rg.load("iiwa14"))


def test_sites_are_held_as_they_are():
    eyes, hinge = quietly(press(EYES, HINGE)).loops
    assert (eyes.frame_a, eyes.frame_b, eyes.kind) == ("eye", "lid", "full")
    assert (hinge.frame_a, hinge.frame_b, hinge.kind) == ("lid", "eye", "point")


def test_check_notes_loops_and_does_not_fail_for_them(tmp_path, capsys):
    path = tmp_path / "press.xml"
    path.write_text(press(PIN, COUPLED))
    assert main(["check", str(path), "--states", "1"]) == 0
    assert "contacts=robot.loops" in capsys.readouterr().out


def same(ours, theirs):
    assert [dataclasses.asdict(x) for x in ours] == [dataclasses.asdict(x) for x in theirs]


def test_loops_survive_what_is_made_of_the_robot():
    robot = quietly(press(PIN, GRIP, NAIL))
    same(pickle.loads(pickle.dumps(robot)).loops, robot.loops)
    same(robot.add_frame("tip", "rod").loops, robot.loops)
    same(robot.reduced({"a": 0.3}).loops, robot.loops)
    # what can no longer move against anything is no loop any more, and what hangs on the world is a
    # contact
    held = robot.reduced({"a": 0.0, "b": 0.0})
    assert [type(x) for x in held.loops] == [rg.Contact, rg.Loop, rg.Contact] and held.loops[
        0
    ].frame == "ram"
    assert len(held.reduced({"c": 0.0, "d": (0, 0, 0, 1)}).loops) == 2
    arm = rg.load("iiwa14").attach(robot, "iiwa_link_7", prefix="tool_")
    assert [x.frame_a for x in arm.loops] == ["tool_pin:rod", "tool_grip:box", "tool_connect2:box"]
    assert arm.loops[2].frame_b == "tool_connect2:world"  # the press's world is now the flange
    assert robot.contact_dynamics(*robot.random(seed=0), robot.loops[:2]).force.shape == (9,)


def test_loops_go_to_mujoco_and_back():
    robot = quietly(press(PIN, GRIP, NAIL))
    with pytest.warns(ModelWarning, match="3 loops"):
        back = rg.from_mujoco(robot.to_mujoco())
    same(back.loops, robot.loops)
    q, v, tau = robot.random(seed=1)
    x, y = (r.contact_dynamics(q, v, tau, r.loops[:2], damped=False) for r in (robot, back))
    assert_close(x.a, y.a, 1e-9, "a")
    assert_close(x.force, y.force, 1e-9, "force")


def test_numbers_of_equality_constraints_are_checked():
    with pytest.raises(ModelError, match="equality constraint 0: its anchor or pose is not finite"):
        rg.load(press('<connect body1="rod" body2="ram" anchor="1e300 0 0"/>'))


def test_a_loop_beside_a_urdf_has_offsets_on_both_frames():
    """The same loop by offsets, and by frames that were added."""
    robot = rg.load("hyq", floating_base=True, engine="numpy")
    a, b = (0.1, -0.2, 0.3), (-0.05, 0.02, -0.1)
    beside = rg.Loop("lf_lowerleg", "rh_lowerleg", "full", offset_a=a, offset_b=b)
    framed = robot.add_frame("a", "lf_lowerleg", a).add_frame("b", "rh_lowerleg", b)
    state = robot.random(seed=3)
    x, y = (
        robot.contact_dynamics(*state, beside),
        framed.contact_dynamics(*state, rg.Loop("a", "b", "full")),
    )
    np.testing.assert_allclose(x.a, y.a, rtol=1e-12, atol=1e-12 * abs(x.a).max())
    np.testing.assert_allclose(x.force, y.force, rtol=1e-12, atol=1e-12 * abs(x.force).max())
