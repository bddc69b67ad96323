"""Robots go to other programs and come back: URDF text, Pinocchio's and MuJoCo's models, and states
between them.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from random_trees import assert_close, random_inertia, random_tree

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelError, RigidgradError, UnknownNameError
from rigidgrad.interop.urdf_export import _angles
from rigidgrad.model.pose import rotation_from_rpy

pin = pytest.importorskip("pinocchio")
mujoco = pytest.importorskip("mujoco")

EPS = np.finfo(float).eps
IN_URDF = ("revolute", "revolute", "continuous", "prismatic", "planar", "floating", "fixed")
BUNDLED = [("iiwa14", False), ("hyq", True), ("atlas", True), ("quadrotor", False)]


def tree_without(*, seed: int, types, armature: bool = True, mimic: bool = False):
    tree = random_tree(seed, 8, mimic=mimic, types=types)
    if not armature:
        bodies = {
            link.name: link for link in random_tree(seed + 1000, 8, types=("revolute",)).links
        }
        links = tuple(
            dataclasses.replace(bodies[x.name], name=x.name) if x.mass == 0 else x
            for x in tree.links
        )
        joints = tuple(
            dataclasses.replace(j, armature=0.0) if j.type in ("planar", "floating") else j
            for j in tree.joints
        )
        tree = dataclasses.replace(tree, links=links, joints=joints)
    return tree


def bundled(name, floating):
    return rg.load(name, floating_base=floating, engine="numpy")


def same_dynamics(a: rg.Robot, b: rg.Robot, label: str = "") -> None:
    assert a.joints == b.joints, label
    state = a.random((4,), seed=3)
    loss = np.linalg.cond(a.crba(state.q)).max()
    assert_close(b.rnea(*state), a.rnea(*state), 1e-12, label)
    assert_close(b.aba(*state), a.aba(*state), 50 * EPS * loss, label)


# --- URDF -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "floating"), BUNDLED)
def test_a_bundled_robot_comes_back_from_urdf(name, floating):
    robot = bundled(name, floating)
    again = rg.load(robot.to_urdf(), floating_base=floating, engine="numpy")
    same_dynamics(robot, again)
    assert again.frames == robot.frames and again.name == robot.name
    for limit in ("lower", "upper", "velocity", "effort"):
        np.testing.assert_array_equal(getattr(again.limits, limit), getattr(robot.limits, limit))
    assert [(j.damping, j.friction) for j in again.model.joints] == [
        (j.damping, j.friction) for j in robot.model.joints
    ]
    assert [(link, v.shape, v.size, v.color, v.mesh) for link, v in again.model.visuals] == [
        (link, v.shape, v.size, v.color, v.mesh) for link, v in robot.model.visuals
    ]


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_come_back_from_urdf(seed):
    tree = tree_without(seed=seed, types=IN_URDF, mimic=seed % 2 == 0)
    robot = tree.robot()
    again = rg.load(
        robot.to_urdf(), floating_base=tree.floating, gravity=tuple(tree.gravity), engine="numpy"
    )
    same_dynamics(robot, again, str(tree))


def test_added_frames_become_links():
    robot = (
        bundled("iiwa14", False)
        .add_frame("tip", "iiwa_link_7", (0.1, 0.2, 0.3))
        .add_frame("beyond", "tip", (0, 0, 1))
    )
    again = rg.load(robot.to_urdf(), engine="numpy")
    q = robot.random(seed=0).q
    for frame in ("tip", "beyond"):
        np.testing.assert_allclose(
            again.forward_kinematics(q)[frame], robot.forward_kinematics(q)[frame], atol=1e-14
        )


def test_pinocchio_reads_the_urdf():
    for seed in range(4):
        robot = tree_without(
            seed=seed, types=("revolute", "continuous", "prismatic", "fixed"), armature=False
        ).robot()
        robot = rg.load(robot.to_urdf(), engine="numpy")  # its own gravity
        theirs = pin.buildModelFromXML(robot.to_urdf())
        assert list(theirs.names)[1:] == list(robot.joints)
        theirs.armature = np.array(robot.model.armature)  # which only we read
        agrees_with_pinocchio(robot, theirs)


@pytest.mark.parametrize("name", ["iiwa14", "hyq", "atlas"])
def test_mujoco_reads_the_urdf(name):
    robot = bundled(name, False)
    model = mujoco.MjModel.from_xml_string(robot.to_urdf())
    model.dof_damping[:], model.dof_frictionloss[:] = 0, 0  # no part of our dynamics
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    agrees_with_mujoco(robot, model)


@pytest.mark.parametrize(
    "rpy",
    [
        (0.3, np.pi / 2, -0.7),
        (1.0, -np.pi / 2, 2.0),
        (0.1, np.pi / 2 - 1e-9, 0.2),
        (3.0, 0.5, -3.0),
        (0, 0, 0),
    ],
)
def test_angles_give_the_rotation_back_even_where_they_are_not_unique(rpy):
    R = rotation_from_rpy(rpy)
    np.testing.assert_allclose(rotation_from_rpy(_angles(R)), R, atol=2e-15)


# --- Pinocchio ------------------------------------------------------------------------------------


def agrees_with_pinocchio(robot, model) -> None:
    states = rg.interop.states(robot, model)
    state = robot.random((3,), seed=5)
    ours = robot.aba(*state)
    theirs = states.to(state.q, state.v, ours, state.tau)
    data = model.createData()
    loss = 50 * EPS * np.linalg.cond(robot.crba(state.q)).max()
    for k in range(3):
        assert_close(
            pin.aba(model, data, theirs.q[k], theirs.v[k], theirs.tau[k]),
            theirs.a[k],
            loss,
            robot.name,
        )
    back = states.back(*theirs)
    assert abs(robot.difference(back.q, state.q)).max() < 1e-12 or "continuous" in {
        j.type for j in robot.model.joints
    }
    np.testing.assert_allclose(np.sin(back.q), np.sin(state.q), atol=1e-12)
    for x, y in zip(back[1:], (state.v, ours, state.tau), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_go_to_pinocchio_and_back(seed):
    robot = random_tree(seed, 8, mimic=False).robot()
    model = robot.to_pinocchio()
    assert list(model.names)[1:] == list(robot.joints)
    agrees_with_pinocchio(robot, model)
    again = rg.from_pinocchio(model, engine="numpy")
    same_dynamics(robot, again)
    assert set(robot.frames) <= set(again.frames)
    assert again.model.gravity == robot.model.gravity
    agrees_with_pinocchio(again, model)


@pytest.mark.parametrize(("name", "floating"), BUNDLED)
def test_frames_limits_and_friction_go_to_pinocchio_and_back(name, floating):
    robot = bundled(name, floating)
    model = robot.to_pinocchio()
    again = rg.from_pinocchio(model, engine="numpy")
    for limit in ("lower", "upper", "velocity", "effort"):
        np.testing.assert_array_equal(getattr(again.limits, limit), getattr(robot.limits, limit))
    assert [(j.damping, j.friction) for j in again.model.joints] == [
        (j.damping, j.friction) for j in robot.model.joints
    ]
    q = robot.random(seed=1).q
    data = model.createData()
    pin.framesForwardKinematics(model, data, rg.interop.states(robot, model).to(q).q)
    for frame in robot.frames:
        placement = data.oMf[
            (
                model.getFrameId(frame, pin.FrameType.BODY)
                if model.existBodyName(frame)
                else model.getFrameId(frame)
            )
        ]
        np.testing.assert_allclose(
            robot.forward_kinematics(q)[frame], placement.homogeneous, atol=1e-12
        )
        np.testing.assert_allclose(
            again.forward_kinematics(q)[frame], placement.homogeneous, atol=1e-12
        )


def built(*joints):
    """A Pinocchio model of (name, joint, parent's index), with possible inertias."""
    rng = np.random.default_rng(0)
    model = pin.Model()
    for name, joint, parent in joints:
        index = model.addJoint(parent, joint, pin.SE3.Random(), name)
        model.appendBodyToJoint(index, pin.Inertia(*random_inertia(rng)), pin.SE3.Identity())
    return model


def test_siblings_keep_their_order_whatever_their_names():
    model = built(
        ("right", pin.JointModelRUBX(), 0),
        ("left", pin.JointModelSpherical(), 0),
        ("middle", pin.JointModelPY(), 0),
    )
    robot = rg.from_pinocchio(model, engine="numpy")
    assert robot.joints == ("right", "left", "middle")
    agrees_with_pinocchio(robot, model)


def test_a_model_that_is_not_depth_first_is_converted_by_name():
    model = built(
        ("a", pin.JointModelRX(), 0),
        ("b", pin.JointModelFreeFlyer(), 0),
        ("c", pin.JointModelHZ(0.1), 1),
    )
    robot = rg.from_pinocchio(model, engine="numpy")
    assert robot.joints == ("a", "c", "b")
    agrees_with_pinocchio(robot, model)


# --- MuJoCo ---------------------------------------------------------------------------------------


def agrees_with_mujoco(robot, model) -> None:
    states = rg.interop.states(robot, model)
    state = robot.random((3,), seed=6)
    ours = robot.aba(*state)
    theirs = states.to(state.q, state.v, ours, state.tau)
    data = mujoco.MjData(model)
    # MuJoCo keeps principal moments and a quaternion for each inertia, which costs some digits of
    # light bodies
    loss = 1e4 * EPS * np.linalg.cond(robot.crba(state.q)).max()
    for k in range(3):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = theirs.q[k], theirs.v[k], theirs.tau[k]
        mujoco.mj_forward(model, data)
        assert_close(data.qacc, theirs.a[k], loss, robot.name)
    back = states.back(*theirs)
    assert abs(robot.difference(back.q, state.q)).max() < 1e-12
    for x, y in zip(back[1:], (state.v, ours, state.tau), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12 * abs(y).max())


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_go_to_mujoco_and_back(seed):
    types = ("revolute", "continuous", "prismatic", "spherical", "planar", "floating", "fixed")
    robot = tree_without(seed=seed, types=types, armature=False).robot()
    model = robot.to_mujoco()
    agrees_with_mujoco(robot, model)
    # floating and planar joints inside the tree come back as several joints, with the same dynamics
    # in MuJoCo's own coordinates
    agrees_with_mujoco(rg.from_mujoco(model, engine="numpy"), model)


@pytest.mark.parametrize(("name", "floating"), BUNDLED)
def test_bundled_robots_go_to_mujoco_and_back(name, floating):
    robot = bundled(name, floating)
    model = robot.to_mujoco(friction=True)
    again = rg.from_mujoco(model, engine="numpy")
    same_dynamics(robot, again)
    for limit in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(again.limits, limit), getattr(robot.limits, limit))
    assert [(j.damping, j.friction) for j in again.model.joints] == [
        (j.damping, j.friction) for j in robot.model.joints
    ]
    agrees_with_mujoco(robot, robot.to_mujoco())


def test_a_free_body_that_turns_while_it_flies_accelerates_in_its_own_frame():
    """No force, a steady throw: MuJoCo sees no acceleration, ours is -ω×v."""
    robot = rg.load("quadrotor", gravity=(0, 0, 0), engine="numpy")
    states = rg.interop.states(robot, robot.to_mujoco())
    state = robot.random(seed=0)
    v = np.r_[1.0, 2.0, 3.0, 0.5, -0.25, 2.0]
    ours = states.back(states.to(state.q).q, states.to(state.q, v).v, np.zeros(6))
    np.testing.assert_allclose(ours.a, np.r_[-np.cross(v[3:], v[:3]), 0, 0, 0], atol=1e-14)


# --- what cannot be done is said ------------------------------------------------------------------


def pair(**joint):
    box = {"mass": 1.0, "inertia": np.eye(3)}
    builder = rg.Builder("pair").link("a").link("b", **box).link("c", **box)
    return (
        builder.joint("one", "revolute", "a", "b")
        .joint("two", parent="b", child="c", **joint)
        .build(engine="numpy")
    )


def test_what_another_program_has_not_is_refused():
    for call, what in (
        (pair(type="helical", pitch=0.1).to_urdf, "URDF has no such joint"),
        (pair(type="spherical").to_urdf, "URDF has no such joint"),
        (pair(type="helical", pitch=0.1).to_mujoco, "MuJoCo has no such joint"),
        (pair(type="revolute", mimic="one").to_mujoco, "mimics"),
        (pair(type="planar", armature=0.1).to_mujoco, "armature"),
        (pair(type="revolute", mimic="one").to_pinocchio, "mimics"),
    ):
        with pytest.raises(ModelError, match=what):
            call()
    strange = pin.Model()
    strange.appendBodyToJoint(
        strange.addJoint(0, pin.JointModelSphericalZYX(), pin.SE3.Identity(), "gimbal"),
        pin.Inertia.Random(),
        pin.SE3.Identity(),
    )
    with pytest.raises(ModelError, match="JointModelSphericalZYX"):
        rg.from_pinocchio(strange)


def test_wrong_models_and_shapes_are_explained():
    robot = bundled("quadrotor", False)
    states = rg.interop.states(robot, robot.to_mujoco())
    q = robot.neutral()
    for call, what in (
        (lambda: rg.from_pinocchio("iiwa14"), "pinocchio.Model"),
        (lambda: rg.from_mujoco("iiwa14"), "mujoco.MjModel"),
        (lambda: rg.interop.states(robot, robot), "Pinocchio or MuJoCo"),
        (lambda: states.to(q[:-1]), r"q has shape \(6,\)"),
        (lambda: states.to(q, np.zeros((2, 6))), r"v has shape \(2, 6\)"),
        (lambda: states.to(q, a=np.zeros(6)), "also velocities"),
        (
            lambda: rg.interop.states(
                robot, bundled("iiwa14", False).attach(robot, "iiwa_link_7").to_pinocchio()
            ),
            "nq = 14",
        ),
    ):
        with pytest.raises((InputError, ModelError), match=what):
            call()
    with pytest.raises(UnknownNameError, match="joint of that model"):
        rg.interop.states(robot, bundled("iiwa14", False).to_mujoco())


@pytest.mark.parametrize(
    ("package", "call"), [("pinocchio", "to_pinocchio"), ("mujoco", "to_mujoco")]
)
def test_without_the_package_the_error_says_what_to_install(monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RigidgradError, match="pip install"):
        getattr(bundled("iiwa14", False), call)()
