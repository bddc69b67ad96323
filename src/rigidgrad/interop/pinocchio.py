"""Our models as Pinocchio's, and the other way round. Joint order and layouts are the same, but for
continuous joints, which are (cos, sin) there.

Its Python has no such joints along any axis: those are revolute without limits, and one angle there
too.
"""

from __future__ import annotations

import importlib
from math import inf
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelError, RigidgradError
from rigidgrad.model.description import (
    Description,
    FrameDescription,
    JointDescription,
    JointLimit,
    Link,
)
from rigidgrad.model.joints import FIXED, JOINT_TYPES
from rigidgrad.model.joints.joint_type import X, Y, Z
from rigidgrad.model.model import Joint, Model
from rigidgrad.model.pose import Pose

_LARGE = 1e50  # limits above this mean that there is none


def library() -> Any:
    """Pinocchio, or an error that says how to get it."""
    try:
        return importlib.import_module("pinocchio")
    except ImportError:
        raise RigidgradError("this needs Pinocchio: pip install pin") from None


def to_pinocchio(model: Model) -> Any:
    """A pinocchio.Model with our joints, bodies, frames, limits, armature, damping, friction and
    gravity.
    """
    pin = library()
    result = pin.Model()
    result.name = model.name
    result.gravity.linear = np.array(model.gravity)
    for i, joint in enumerate(model.joints):
        if joint.is_mimic:
            raise ModelError(
                f"joint '{joint.name}' mimics another, which Pinocchio's forward dynamics cannot;"
                " lock it with robot.reduced"
            )
        limit, nq, nv = joint.limit, joint.nq, joint.nv
        theirs = _joint_model(pin, joint)
        lower, upper = (np.full(nq, x) for x in joint.kind.limits(limit))
        if theirs.nq != nq:  # (cos, sin) of an angle; as its own URDF reader does
            lower, upper = np.full(theirs.nq, -1.01), np.full(theirs.nq, 1.01)
        index = result.addJoint(
            model.parents[i] + 1,
            theirs,
            _se3(pin, model.placements[i]),
            joint.name,
            np.full(nv, limit.effort),
            np.full(nv, limit.velocity),
            lower,
            upper,
        )
        if index != i + 1:
            raise AssertionError(f"Pinocchio numbers joint {joint.name!r} {index}, not {i + 1}")
        m, h, (xx, xy, yy, xz, yz, zz) = model.inertias[i]
        parameters = np.array([m, *h, xx, xy, yy, xz, yz, zz])
        inertia = pin.Inertia.FromDynamicParameters(parameters) if m > 0 else pin.Inertia.Zero()
        result.appendBodyToJoint(index, inertia, pin.SE3.Identity())
        result.addJointFrame(index, -1)
    result.armature = np.array(model.armature)
    result.damping = np.array([j.damping for j in model.joints for _ in range(j.nv)])
    friction = np.array([j.friction for j in model.joints for _ in range(j.nv)])
    result.lowerDryFrictionLimit, result.upperDryFrictionLimit = -friction, friction
    kinds = {
        "link": pin.FrameType.BODY,
        "joint": pin.FrameType.FIXED_JOINT,
        "frame": pin.FrameType.OP_FRAME,
    }
    moving = {j.name for j in model.joints}
    for frame in model.frames.values():
        if frame.name not in moving or frame.kind == "link":
            result.addFrame(
                pin.Frame(
                    frame.name, frame.body + 1, 0, _se3(pin, frame.placement), kinds[frame.kind]
                ),
                False,
            )
    return result


def _joint_model(pin: Any, joint: Joint) -> Any:
    kind = joint.kind
    if not kind.pinocchio:
        raise ModelError(
            f"joint '{joint.name}' is {joint.type}: Pinocchio has no such joint; lock it with"
            " robot.reduced"
        )
    if not kind.has_axis:
        return getattr(pin, kind.pinocchio[0])()
    pitch = (joint.pitch,) if kind.has_pitch else ()
    if joint.axis in (X, Y, Z):
        return getattr(pin, kind.pinocchio[(X, Y, Z).index(joint.axis)])(*pitch)
    return getattr(pin, kind.pinocchio[3])(np.array(joint.axis), *pitch)


def _se3(pin: Any, pose: Pose) -> Any:
    return pin.SE3(np.array(pose.R), np.array(pose.p))


def describe_pinocchio(model: Any) -> Description:
    """The description of a pinocchio.Model: a link a joint, with what was merged into it, and all
    of its frames.
    """
    pin = library()
    if not isinstance(model, pin.Model):
        raise InputError(f"this is no pinocchio.Model, but {type(model).__name__}")
    names = _link_names(pin, model)
    links = [Link(names[0])]
    joints = []
    order = _kept_order(model, names)
    for i in range(1, model.njoints):
        inertia = model.inertias[i]
        rows = tuple(tuple(row) for row in np.asarray(inertia.inertia).tolist())
        links.append(
            Link(names[i], float(inertia.mass), tuple(np.asarray(inertia.lever).tolist()), rows)
        )
        parent = names[model.parents[i]]
        if i in order:
            links.append(Link(order[i]))
            joints.append(JointDescription(order[i], FIXED, parent, order[i]))
            parent = order[i]
        joints.append(_joint(model, i, parent, names[i]))
    taken = set(names) | set(model.names)
    frames = []
    for frame in model.frames:
        if frame.name not in taken:
            taken.add(frame.name)
            frames.append(
                FrameDescription(frame.name, names[frame.parentJoint], _pose(frame.placement))
            )
    gravity = tuple(np.asarray(model.gravity.linear).tolist())
    return Description(
        model.name or "pinocchio", tuple(links), tuple(joints), tuple(frames), gravity
    )


def _link_names(pin: Any, model: Any) -> list[str]:
    """For the world and each joint, the first body frame that lies on it."""
    names: dict[int, str] = {}
    for frame in model.frames:
        if (
            frame.type == pin.FrameType.BODY
            and frame.placement.isIdentity()
            and frame.name not in names.values()
        ):
            names.setdefault(frame.parentJoint, frame.name)
    return [
        names.get(i, "universe" if i == 0 else f"{model.names[i]}_link")
        for i in range(model.njoints)
    ]


def _kept_order(model: Any, names: list[str]) -> dict[int, str]:
    """Names of fixed links before those joints whose place among their siblings is not that of
    their names: where fixed joints were merged, say.
    """
    children: dict[int, list[int]] = {}
    for i in range(1, model.njoints):
        children.setdefault(model.parents[i], []).append(i)
    result: dict[int, str] = {}
    for parent, siblings in children.items():
        if siblings != sorted(siblings, key=lambda i: model.names[i].encode()):
            result |= {i: f"{names[parent]}:{k:04d}" for k, i in enumerate(siblings)}
    return result


def _joint(model: Any, i: int, parent: str, child: str) -> JointDescription:
    name, joint = model.names[i], model.joints[i]
    # one name may stand for a type with limits and for one without: the first has them
    kind = next((t for t in JOINT_TYPES.values() if joint.shortname() in t.pinocchio), None)
    if kind is None:
        along = ", ".join(t.name for t in JOINT_TYPES.values() if t.has_axis)
        raise ModelError(
            f"joint '{name}' is Pinocchio's {joint.shortname()}, which there is not here; build it"
            f" from {along} joints"
        )
    v, q = slice(joint.idx_v, joint.idx_v + joint.nv), joint.idx_q
    numbers: dict[str, Any] = {}
    for what, values in (
        ("armature", model.armature),
        ("damping", model.damping),
        ("friction", model.upperDryFrictionLimit),
        ("velocity", model.upperVelocityLimit),
        ("effort", model.upperEffortLimit),
    ):
        own = np.asarray(values)[v]
        if what == "armature" and np.ptp(own) > 0:
            raise ModelError(
                f"joint '{name}' has another armature along each axis, {own.tolist()}; here a joint"
                " has one number"
            )
        numbers[what] = float(own.min())
    axis, pitch = None, 0.0
    lower, upper = -inf, inf
    if kind.has_axis:
        axis, pitch = _screw(joint)
        if kind.bounded:
            lower, upper = float(model.lowerPositionLimit[q]), float(model.upperPositionLimit[q])
    limit = JointLimit(
        *(
            x if abs(x) < _LARGE else np.copysign(inf, x)
            for x in (lower, upper, numbers.pop("velocity"), numbers.pop("effort"))
        )
    )
    return JointDescription(
        name,
        kind.name,
        parent,
        child,
        _pose(model.jointPlacements[i]),
        axis,
        pitch,
        limit=limit,
        **numbers,
    )


def _screw(joint: Any) -> tuple[tuple[float, ...], float]:
    """Axis and pitch of a joint with one freedom, from the velocity that it causes."""
    data = joint.createData()
    joint.calc(
        data,
        (
            np.zeros(joint.idx_q + joint.nq)
            if joint.nq == 1
            else np.eye(1, joint.idx_q + 2, joint.idx_q)[0]
        ),
    )
    subspace = np.asarray(data.S).reshape(6)
    linear, angular = subspace[:3], subspace[3:]
    axis = angular if angular.any() else linear
    return tuple((axis + 0.0).tolist()), float(linear @ angular)


def _pose(placement: Any) -> Pose:
    return Pose(
        tuple(map(tuple, np.asarray(placement.rotation).tolist())),
        tuple(np.asarray(placement.translation).tolist()),
    )
