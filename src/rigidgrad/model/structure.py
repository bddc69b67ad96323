"""The tree in a description: its order, its joints' axes, its mimic joints; every contradiction is
an error that names its place.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelError, ModelWarning, unknown_name
from rigidgrad.model.description import Description, JointDescription, Mimic
from rigidgrad.model.joints import FIXED, joint_type
from rigidgrad.model.pose import Pose, pose_from_matrix


def tree_order(description: Description) -> tuple[str, list[JointDescription]]:
    """The root link and all joints, depth first, siblings sorted by the bytes of their joint's
    name.
    """
    if not description.links:
        raise ModelError(f"robot '{description.name}' has no links")
    _unique("link", (link.name for link in description.links))
    _unique("joint", (joint.name for joint in description.joints))
    names = {link.name for link in description.links}
    parent_joint: dict[str, JointDescription] = {}
    children: dict[str, list[JointDescription]] = {}
    for joint in description.joints:
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in names:
                raise ModelError(
                    f"joint '{joint.name}': its {role} link is missing:"
                    f" {unknown_name('link', link, names)}"
                )
        if joint.parent == joint.child:
            raise ModelError(
                f"joint '{joint.name}' joins link '{joint.child}' to itself; name another parent or"
                " child"
            )
        if joint.child in parent_joint:
            other = parent_joint[joint.child].name
            raise ModelError(
                f"link '{joint.child}' is the child of two joints, '{other}' and '{joint.name}'; "
                "closed loops are not supported, so remove one of them"
            )
        parent_joint[joint.child] = joint
        children.setdefault(joint.parent, []).append(joint)
    roots = [link.name for link in description.links if link.name not in parent_joint]
    if not roots:
        raise ModelError(
            f"robot '{description.name}': its joints form a cycle through link"
            f" '{description.links[0].name}'; a tree needs a root"
        )
    if len(roots) > 1:
        shown = ", ".join(f"'{r}'" for r in roots[:6])
        raise ModelError(
            f"robot '{description.name}' has {len(roots)} root links ({shown}); a tree has one:"
            " join the others to it or remove them"
        )
    order: list[JointDescription] = []
    by_name = {
        name: sorted(js, key=lambda j: j.name.encode(), reverse=True)
        for name, js in children.items()
    }
    pending: list[JointDescription] = list(by_name.get(roots[0], ()))
    while pending:
        joint = pending.pop()
        order.append(joint)
        pending.extend(by_name.get(joint.child, ()))
    if len(order) != len(description.joints):
        lost = set(parent_joint) - {j.child for j in order}
        raise ModelError(
            f"the joints of link '{min(lost)}' form a cycle that never reaches the root"
            f" '{roots[0]}'; remove one joint of it"
        )
    return roots[0], order


def _unique(kind: str, names: Iterable[Any]) -> None:
    for name, count in Counter(names).items():
        if not isinstance(name, str) or not name:
            raise ModelError(f"a {kind} has no name; give it one")
        if count > 1:
            raise ModelError(f"{count} {kind}s are called '{name}'; names must be unique")


def check_joint(joint: JointDescription) -> tuple[float, float, float]:
    """The joint's unit axis, after checking type, axis, pitch, placement, armature and limits."""
    kind = joint_type(joint.type, f"joint '{joint.name}'")
    numbers = [
        *joint.placement.p,
        *(x for row in joint.placement.R for x in row),
        joint.pitch,
        joint.armature,
    ]
    if not all(math.isfinite(x) for x in numbers):
        raise ModelError(f"joint '{joint.name}': its placement, pitch or armature is not finite")
    if joint.armature < 0:
        raise ModelError(
            f"joint '{joint.name}' has the negative armature {joint.armature}; it must be 0 or more"
        )
    for what, value in (("damping", joint.damping), ("friction", joint.friction)):
        if not (math.isfinite(value) and value >= 0):
            raise ModelError(
                f"joint '{joint.name}' has the {what} {value}; it must be finite, and 0 or more"
            )
    if (
        math.isnan(joint.limit.lower)
        or math.isnan(joint.limit.upper)
        or joint.limit.lower > joint.limit.upper
    ):
        raise ModelError(
            f"joint '{joint.name}': its lower limit {joint.limit.lower} is above its upper limit"
            f" {joint.limit.upper}"
        )
    if not (joint.limit.velocity >= 0 and joint.limit.effort >= 0):
        raise ModelError(f"joint '{joint.name}': its velocity and effort limits must be 0 or more")
    axis = (1.0, 0.0, 0.0) if joint.axis is None else tuple(float(x) for x in joint.axis)
    if not kind.has_axis:
        if kind.axis == "z" and joint.axis is not None and axis != (0.0, 0.0, 1.0):
            warnings.warn(
                f"joint '{joint.name}': a {joint.type} joint moves in the xy plane of its own"
                " frame, whatever its axis; turn its rpy instead, and write axis 0 0 1",
                ModelWarning,
                stacklevel=2,
            )
        return (0.0, 0.0, 1.0)
    length = math.hypot(*axis) if len(axis) == 3 else 0.0
    if not math.isfinite(length) or length < 1e-12:
        raise ModelError(
            f"joint '{joint.name}' has the axis {axis}, which has no direction; give it three"
            " numbers, not all zero"
        )
    return axis[0] / length + 0.0, axis[1] / length + 0.0, axis[2] / length + 0.0


def check_gravity(gravity: Any) -> tuple[float, float, float]:
    try:
        array = np.asarray(gravity, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"gravity is three numbers in m/s², not {gravity!r}") from None
    if array.shape != (3,) or not np.all(np.isfinite(array)):
        raise InputError(f"gravity is three finite numbers in m/s², not {gravity!r}")
    return float(array[0]) + 0.0, float(array[1]) + 0.0, float(array[2]) + 0.0


def resolve_mimics(description: Description) -> Mapping[str, Mimic]:
    """For each mimic joint the joint at the end of its chain, with the multiplier and offset of the
    whole chain.
    """
    by_name = {j.name: j for j in description.joints}
    resolved: dict[str, Mimic] = {}
    for joint in description.joints:
        chain: dict[
            str, Mimic
        ] = {}  # from this joint on, until a joint that moves by itself or is resolved already
        while joint.mimic is not None and joint.type != FIXED and joint.name not in resolved:
            _check_mimic(joint, by_name)
            if joint.name in chain:
                raise ModelError(
                    f"joint '{joint.name}': its mimics form a cycle; one of them must move by"
                    " itself"
                )
            chain[joint.name] = joint.mimic
            joint = by_name[joint.mimic.joint]
        end = resolved.get(joint.name, Mimic(joint.name))
        for name, mimic in reversed(chain.items()):
            multiplier, offset = (
                mimic.multiplier * end.multiplier,
                mimic.multiplier * end.offset + mimic.offset,
            )
            if not (math.isfinite(multiplier) and math.isfinite(offset)):
                raise ModelError(
                    f"joint '{name}': the multiplier and offset of its mimic must be finite"
                )
            end = resolved[name] = Mimic(end.joint, multiplier, offset)
    return resolved


def _check_mimic(joint: JointDescription, by_name: Mapping[str, JointDescription]) -> None:
    master = joint.mimic.joint if joint.mimic else ""
    if not _has_one_number(joint):
        raise ModelError(
            f"joint '{joint.name}' is {joint.type} and cannot mimic; only joints with one degree of"
            " freedom can"
        )
    if master not in by_name:
        raise ModelError(
            f"joint '{joint.name}' mimics a joint that is missing:"
            f" {unknown_name('joint', master, by_name)}"
        )
    if not _has_one_number(by_name[master]):
        raise ModelError(
            f"joint '{joint.name}' mimics '{master}', which is {by_name[master].type}; only joints"
            " with one degree of freedom can be followed"
        )


def _has_one_number(joint: JointDescription) -> bool:
    return joint.type != FIXED and joint_type(joint.type, f"joint '{joint.name}'").nq == 1


def joint_pose(joint: JointDescription, q: tuple[float, ...]) -> Pose:
    """Placement of the child in the joint's frame at position q, in floats."""
    kind = joint_type(joint.type, f"joint '{joint.name}'")
    X = kind.transform(dataclasses.replace(joint, axis=check_joint(joint)), q)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = np.transpose(X.E), X.r
    return pose_from_matrix(matrix)
