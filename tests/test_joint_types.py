"""Laws that every registered joint type keeps, its way through other programs, and a new type that
works everywhere by being registered.
"""

from __future__ import annotations

import re
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelError
from rigidgrad.model import joints
from rigidgrad.model.description import Description, JointDescription, Link
from rigidgrad.model.joints import JOINT_TYPES, joint_type, register
from rigidgrad.model.joints.joint_type import JointType
from rigidgrad.model.model import Joint, assemble
from rigidgrad.model.structure import joint_pose
from rigidgrad.rotations import rotation_about
from rigidgrad.scalars import sincos
from rigidgrad.spatial import ZERO3, Motion, Transform, scale3, skew, transpose
from rigidgrad.targets.gpu.block import block_function
from rigidgrad.viewer.dials import dials, position
from rigidgrad.viewer.poses import body_poses

AXIS = np.array([2.0, -3.0, 6.0]) / 7
GEOMETRY = SimpleNamespace(axis=tuple(AXIS.tolist()), pitch=0.35)
TINY = 1e-100  # of complex steps, which lose no digits

every_type = pytest.mark.parametrize("kind", JOINT_TYPES.values(), ids=lambda kind: kind.name)


def robot_with(kind: JointType, axis=AXIS, **options):
    """A body on one joint of a type."""
    more = {"axis": axis} if kind.has_axis else {}
    builder = (
        rg.Builder(kind.name).link("base").link("body", 2.0, (0.1, -0.2, 0.3), (0.4, 0.5, 0.6))
    )
    builder.joint(
        "joint",
        kind.name,
        "base",
        "body",
        (0.3, 0.1, -0.2),
        (0.4, -0.5, 0.6),
        pitch=0.35 * kind.has_pitch,
        **more,
        **options,
    )
    return builder.build(engine="numpy")


def states(kind: JointType, count: int = 6):
    """Positions with tangents that turn by less than half a turn; the last one is tiny, where
    quotients are series.
    """
    rng = np.random.default_rng(7)
    free = np.full(kind.nq, np.inf)
    for k in range(count):
        dv = rng.uniform(-1.5, 1.5, kind.nv) * (1e-3 if k == count - 1 else 1.0)
        yield tuple(kind.random(rng, (), -free, free).tolist()), tuple(dv.tolist())


def along(kind: JointType, k: int, size) -> tuple:
    return tuple(size if i == k else 0.0 for i in range(kind.nv))


def rate(values) -> np.ndarray:
    """The derivative that a complex step of TINY leaves in the imaginary parts."""
    return np.imag(np.array(values, dtype=complex)) / TINY


# --- laws -----------------------------------------------------------------------------------------


@every_type
def test_sizes_and_names_agree(kind):
    assert len(kind.neutral) == kind.nq
    assert len(kind.units) == len(kind.freedoms) == len(kind.coordinates) == kind.nv
    assert set(kind.units) <= {"rad", "m"}
    assert joint_type(kind.name) is kind


@every_type
def test_a_tangent_of_zero_leads_nowhere_and_every_other_one_back(kind):
    for q, dv in states(kind):
        np.testing.assert_allclose(kind.integrate(q, (0.0,) * kind.nv), q, atol=1e-15)
        np.testing.assert_allclose(kind.difference(q, kind.integrate(q, dv)), dv, atol=1e-14)


@every_type
def test_the_subspace_is_the_derivative_of_the_transform_along_the_tangent(kind):
    """In the child's frame: Ė = -ω× E and ṙ = Eᵀ v."""
    for q, _ in states(kind):
        E = np.array(kind.transform(GEOMETRY, q).E, dtype=float)
        np.testing.assert_allclose(E @ E.T, np.eye(3), atol=1e-15)
        for k, (w, v) in enumerate(kind.subspace(GEOMETRY)):
            moved = kind.transform(GEOMETRY, kind.integrate(q, along(kind, k, 1j * TINY)))
            np.testing.assert_allclose(rate(moved.E), -np.array(skew(w)) @ E, atol=1e-14)
            np.testing.assert_allclose(rate(moved.r), E.T @ np.array(v), atol=1e-14)


@every_type
def test_tangent_maps_are_derivatives(kind):
    for q, dv in states(kind):
        end = kind.integrate(q, dv)
        transport, jacobian = np.array(kind.transport(dv)), np.array(kind.right_jacobian(dv))
        for k in range(kind.nv):
            step = along(kind, k, 1j * TINY)
            moved = kind.integrate(kind.integrate(q, step), dv)
            np.testing.assert_allclose(
                rate(kind.difference(end, moved)), transport[:, k], atol=1e-13
            )
            further = kind.integrate(q, tuple(x + y for x, y in zip(dv, step, strict=True)))
            np.testing.assert_allclose(
                rate(kind.difference(end, further)), jacobian[:, k], atol=1e-13
            )
            np.testing.assert_allclose(
                np.array(kind.rates(q)) @ rate(kind.integrate(q, step)),
                along(kind, k, 1.0),
                atol=1e-14,
            )
        np.testing.assert_allclose(
            np.array(kind.right_jacobian_inverse(dv)) @ jacobian, np.eye(kind.nv), atol=1e-13
        )


@every_type
def test_separation_is_as_far_as_the_body_moved(kind):
    """Straight where `difference` follows a screw; both turn by the same angles."""
    for q, dv in states(kind):
        end = kind.integrate(q, dv)
        apart = kind.separation(q, end)
        np.testing.assert_allclose(apart[kind.carried :], dv[kind.carried :], atol=1e-14)
        moved = np.subtract(kind.transform(GEOMETRY, end).r, kind.transform(GEOMETRY, q).r)
        if kind.carried:
            np.testing.assert_allclose(
                np.linalg.norm(apart[: kind.carried]), np.linalg.norm(moved), atol=1e-14
            )


@every_type
def test_normalizing_twice_is_normalizing_once(kind):
    for q, _ in states(kind):
        scaled = (*q[: kind.plain], *(3.7 * x for x in q[kind.plain :]))
        once = kind.normalize(scaled)
        np.testing.assert_allclose(once, q, atol=1e-15)
        np.testing.assert_allclose(kind.normalize(once), once, atol=1e-15)


@every_type
def test_in_the_neutral_position_the_body_is_on_its_joint(kind):
    assert kind.normalize(kind.neutral) == kind.neutral
    X = kind.transform(GEOMETRY, kind.neutral)
    np.testing.assert_array_equal(X.E, np.eye(3))
    np.testing.assert_array_equal(X.r, np.zeros(3))
    np.testing.assert_array_equal(robot_with(kind).neutral(), kind.neutral)


@every_type
def test_a_joint_locked_at_a_position_stays_there_and_needs_a_direction(kind):
    robot = robot_with(kind)
    q = robot.random(seed=9).q
    scaled = np.concatenate([q[: kind.plain], 1e-200 * q[kind.plain :]])
    placed = robot.reduced(lock={"joint": scaled}).model.frames["body"].placement
    np.testing.assert_allclose(placed.matrix(), body_poses(robot.model, q)[0], atol=1e-14)
    if kind.direction is not None:
        with pytest.raises(
            InputError, match=re.escape(f"its {kind.direction.name} has length zero")
        ):
            robot.reduced(lock={"joint": np.zeros(kind.nq)})


@every_type
def test_random_positions_are_within_limits(kind):
    robot = robot_with(kind, limit=(-0.25, 0.75))
    q = robot.random((500,), seed=3).q
    assert np.all((robot.limits.lower <= q) & (q <= robot.limits.upper))
    plain, direction = q[:, : kind.plain], q[:, kind.plain :]
    if kind.bounded:
        assert (robot.limits.lower[0], robot.limits.upper[0]) == (-0.25, 0.75)
        assert plain.min() < -0.2 and plain.max() > 0.7
    else:
        assert np.all(np.isinf(robot.limits.lower)) and np.all(np.isinf(robot.limits.upper))
    if kind.direction is not None:
        np.testing.assert_allclose(np.linalg.norm(direction, axis=1), 1.0, atol=1e-15)


# --- other programs -------------------------------------------------------------------------------


@every_type
@pytest.mark.parametrize(
    "axis",
    [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, -1), tuple(AXIS)],
    ids=["x", "y", "z", "-z", "skew"],
)
def test_pinocchio_moves_every_type_as_we_do(kind, axis):
    pin = pytest.importorskip("pinocchio")
    robot = robot_with(kind, axis)
    model = robot.to_pinocchio()
    data = model.createData()
    convert = rg.interop.states(robot, model)
    assert model.nqs[1] in kind.pinocchio_widths()
    joint = robot.model.joints[0]
    for q, dv in states(kind):
        theirs = convert.to(np.array(q)).q
        pin.forwardKinematics(model, data, theirs)
        X = kind.transform(joint, q)
        placement = model.jointPlacements[1].inverse() * data.oMi[1]
        np.testing.assert_allclose(placement.rotation, np.transpose(X.E), atol=1e-14)
        np.testing.assert_allclose(placement.translation, X.r, atol=1e-14)
        S = np.array([(*v, *w) for w, v in kind.subspace(joint)], dtype=float).T
        np.testing.assert_allclose(
            np.reshape(pin.computeJointJacobian(model, data, theirs, 1), S.shape), S, atol=1e-14
        )
        end = pin.integrate(model, theirs, np.array(dv))
        np.testing.assert_allclose(convert.to(np.array(kind.integrate(q, dv))).q, end, atol=1e-13)
        np.testing.assert_allclose(
            kind.difference(q, kind.integrate(q, dv)),
            pin.difference(model, theirs, end),
            atol=1e-12,
        )
        np.testing.assert_allclose(
            kind.transport(dv),
            pin.dIntegrate(model, theirs, np.array(dv), pin.ArgumentPosition.ARG0),
            atol=1e-12,
        )
        theirs_by_dv = pin.dIntegrate(model, theirs, np.array(dv), pin.ArgumentPosition.ARG1)
        # at small angles Pinocchio loses digits
        np.testing.assert_allclose(kind.right_jacobian(dv), theirs_by_dv, atol=1e-10)
    back = rg.from_pinocchio(model).model.joints[0]
    # Pinocchio's hinges along any axis may have limits, or none
    expected = "revolute" if kind.name == "continuous" and model.nqs[1] == 1 else kind.name
    assert back.type == expected
    np.testing.assert_allclose(back.axis, joint.axis, atol=1e-15)
    assert back.pitch == pytest.approx(joint.pitch)


@every_type
def test_urdf_has_a_type_or_says_that_it_has_not(kind):
    robot = robot_with(kind)
    if kind.urdf is None:
        with pytest.raises(ModelError, match=f"'joint' is {kind.name}: URDF has no such joint"):
            robot.to_urdf()
        return
    again = rg.load(robot.to_urdf(), engine="numpy")
    assert again.model.joints[0].type == kind.name
    q = robot.random((4,), seed=1).q
    np.testing.assert_allclose(body_poses(again.model, q), body_poses(robot.model, q), atol=1e-14)


@every_type
def test_mujoco_moves_a_type_as_we_do_or_we_say_that_it_has_none(kind):
    mujoco = pytest.importorskip("mujoco")
    robot = robot_with(kind)
    if not kind.mujoco:
        with pytest.raises(ModelError, match=f"'joint' is {kind.name}: MuJoCo has no such joint"):
            robot.to_mujoco()
        return
    model = robot.to_mujoco()
    data = mujoco.MjData(model)
    convert = rg.interop.states(robot, model)
    for q, _ in states(kind):
        data.qpos[:] = convert.to(np.array(q)).q
        np.testing.assert_allclose(convert.back(data.qpos).q, q, atol=1e-14)
        mujoco.mj_kinematics(model, data)
        placed = body_poses(robot.model, np.array(q))[0]
        np.testing.assert_allclose(data.xpos[1], placed[:3, 3], atol=1e-14)
        np.testing.assert_allclose(data.xmat[1].reshape(3, 3), placed[:3, :3], atol=1e-14)


@every_type
def test_sliders_pages_and_blocks_of_threads_know_every_type(kind, tmp_path):
    robot = robot_with(kind)
    q = robot.random(seed=5).q
    shown = dials(robot.model, q)
    assert [d.label for d in shown] == [f"joint {name}".strip() for name in kind.coordinates]
    again = position(robot.model, [d.start for d in shown])
    np.testing.assert_allclose(
        body_poses(robot.model, again), body_poses(robot.model, q), atol=1e-14
    )
    player = (resources.files("rigidgrad") / "viewer/player/joints.js").read_text()
    threads = (resources.files("rigidgrad") / "targets/gpu/code/operations.h").read_text()
    assert f'case "{kind.moves_as}":' in player
    assert rg.view(robot, html=tmp_path / "page.html").exists()
    assert f"void joint_{kind.moves_as}(" in threads


# --- types that there are not ---------------------------------------------------------------------


def _described(name: str) -> Description:
    links = (
        Link("base"),
        Link("body", 1.0, inertia=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))),
    )
    return Description("robot", links, (JointDescription("joint", name, "base", "body"),))


@pytest.mark.parametrize("name", ["hinge", "Revolute", "", None, ["revolute"]], ids=str)
@pytest.mark.parametrize(
    "ask",
    [
        lambda name: (
            rg.Builder("robot").link("base").link("body").joint("joint", name, "base", "body")
        ),
        lambda name: assemble(_described(name)),
        lambda name: Joint("joint", name, 0, 0, 0, (0.0, 0.0, 1.0)).nq,
        lambda name: joint_pose(_described(name).joints[0], (0.0,)),
        joint_type,
    ],
    ids=["builder", "description", "joint", "pose", "register"],
)
def test_an_unknown_type_is_the_same_error_everywhere(ask, name):
    known = "revolute, continuous, prismatic, helical, spherical, planar, floating, fixed"
    with pytest.raises(InputError, match=re.escape(f"joint type {name!r}; there are {known}")):
        ask(name)


def test_a_name_is_given_once():
    for name in ("revolute", "fixed"):
        same = type("Same", (Cylindrical,), {"name": name})
        with pytest.raises(InputError, match=f"there already is a joint type '{name}'"):
            register(same())


# --- a type of one's own --------------------------------------------------------------------------


class Cylindrical(JointType):
    """Turns about its axis and slides along it, each by itself."""

    name = "cylindrical"
    units = ("rad", "m")
    freedoms = ("turn", "slide")
    coordinates = ("turn", "slide")
    axis = "own"
    hub = "cylinder"

    def transform(self, joint, q):
        return Transform(
            transpose(rotation_about(joint.axis, *sincos(q[0]))), scale3(q[1], joint.axis)
        )

    def subspace(self, joint):
        return Motion(joint.axis, ZERO3), Motion(ZERO3, joint.axis)


@pytest.fixture
def cylindrical():
    register(Cylindrical())
    yield JOINT_TYPES["cylindrical"]
    del joints._registered["cylindrical"]


def arm(*, split: bool):
    """Two links; the middle joint is cylindrical, or a hinge and a slide about the same axis."""
    builder = rg.Builder("arm").link("base")
    for name in ("upper", "middle", "tip"):
        builder.link(name, 1.5, (0.1, 0.2, -0.1), (0.4, 0.5, 0.6))
    builder.joint("shoulder", "revolute", "base", "upper", rpy=(0.3, 0.2, 0.1), axis=(0, 1, 0))
    place = {"xyz": (0.2, 0.1, 0.3), "rpy": (0.5, -0.4, 0.2)}
    if split:
        builder.link("turning").joint("a", "revolute", "upper", "turning", **place, axis=AXIS)
        builder.joint("b", "prismatic", "turning", "middle", axis=AXIS)
    else:
        builder.joint("a", "cylindrical", "upper", "middle", **place, axis=AXIS)
    builder.joint("wrist", "spherical", "middle", "tip", xyz=(0.1, 0.0, 0.4))
    return builder.build()


def test_a_new_type_works_by_being_registered(cylindrical):
    """As the two joints that it is made of: dynamics and their derivatives, compiled and not, the
    manifold, tables, pictures.
    """
    ours, theirs = arm(split=False), arm(split=True)
    assert (ours.nq, ours.nv) == (theirs.nq, theirs.nv) == (7, 6)
    state = theirs.random((8,), seed=2)
    a = np.random.default_rng(2).normal(size=state.v.shape)
    for name, inputs in {
        "rnea": (state.q, state.v, a),
        "aba": (state.q, state.v, state.tau),
        "crba": (state.q,),
        "integrate": (state.q, state.v),
        "difference": (state.q, theirs.integrate(state.q, 0.3 * state.v)),
    }.items():
        np.testing.assert_allclose(
            getattr(ours, name)(*inputs),
            getattr(theirs, name)(*inputs),
            rtol=1e-11,
            atol=1e-12,
            err_msg=name,
        )
    for x, y in zip(
        ours.aba_derivatives(state.q, state.v, state.tau),
        theirs.aba_derivatives(state.q, state.v, state.tau),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    q = ours.random((20,), seed=4).q
    assert np.abs(q[:, 1]).max() <= np.pi and np.abs(q[:, 2]).max() <= 1.0
    assert "cylindrical" in str(ours)
    assert "a turn" in ours.actuation and "a slide" in ours.actuation
    np.testing.assert_allclose(
        body_poses(ours.model, state.q)[:, 1], body_poses(theirs.model, state.q)[:, 2], atol=1e-14
    )
    labels = [d.label for d in dials(ours.model, ours.neutral())]
    assert labels == ["shoulder", "a turn", "a slide", "wrist roll", "wrist pitch", "wrist yaw"]
    locked = ours.reduced(lock={"a": (0.3, 0.2)}), theirs.reduced(lock={"a": 0.3, "b": 0.2})
    q = locked[0].random((3,), seed=1).q
    np.testing.assert_allclose(locked[0].crba(q), locked[1].crba(q), rtol=1e-12)


def test_programs_that_do_not_know_a_new_type_say_so(cylindrical, tmp_path):
    robot = arm(split=False)
    for convert, program in (
        (robot.to_urdf, "URDF"),
        (robot.to_pinocchio, "Pinocchio"),
        (robot.to_mujoco, "MuJoCo"),
    ):
        with pytest.raises(ModelError, match=f"'a' is cylindrical: {program} has no such joint"):
            convert()
    with pytest.raises(ModelError, match="'a' is cylindrical, which a saved page cannot move"):
        rg.view(robot, html=tmp_path / "page.html")
    with pytest.raises(
        ModelError, match="'a' is cylindrical; joints of a tree are revolute, prismatic or helical"
    ):
        rg.trees.Tree.from_model(robot)
    with pytest.raises(
        InputError, match="'a' is cylindrical: kernels with a block a state have no such joint"
    ):
        block_function(robot.model, "rnea")
