"""A robot as URDF text: links with their shapes, joints, and extra frames as massless links.
Numbers are written so that reading gives them back.
"""

from __future__ import annotations

import sys
from math import atan2, cos, hypot, inf, sin
from xml.etree import ElementTree as xml

import numpy as np

from rigidgrad.errors import ModelError
from rigidgrad.model.description import JointDescription, JointLimit, Link, Visual
from rigidgrad.model.joints import FIXED, joint_type
from rigidgrad.model.joints.joint_type import X, Z
from rigidgrad.model.model import Model
from rigidgrad.model.pose import IDENTITY_POSE, Pose

_ATTRIBUTES = {
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "sphere": ("radius",),
}


def to_urdf(model: Model) -> str:
    """The text. URDF knows neither gravity nor floating bases, which are options of `load`;
    armature and actuators are our extensions.
    """
    description = model.description
    robot = xml.Element("robot", name=description.name)
    for link in description.links:
        _add_link(robot, link)
    names = {link.name for link in description.links} | {joint.name for joint in description.joints}
    for joint in description.joints:
        _add_joint(robot, joint)
    for frame in description.frames:
        parent = model.frames[frame.parent]
        on = parent.name
        # a joint's frame lies on the link that it moves, the floating base's on the root
        if parent.kind == "joint":
            on = next(
                (j.child for j in description.joints if j.name == parent.name),
                next(iter(model.frames)),
            )
        name = f"{frame.name}_frame"
        while name in names:
            name += "_"
        names.add(name)
        _add_link(robot, Link(frame.name))
        _add_joint(robot, JointDescription(name, FIXED, on, frame.name, frame.placement))
    for actuator in description.actuators or ():
        for moved, forces in actuator.forces:
            block = robot.find("rigidgrad")
            bounds = {
                key: _text(x)
                for key, x in (("lower", actuator.lower), ("upper", actuator.upper))
                if abs(x) < inf
            }
            element = xml.SubElement(robot, "rigidgrad") if block is None else block
            xml.SubElement(
                element,
                "actuator",
                {"name": actuator.name, "joint": moved, "force": _text(*forces), **bounds},
            )
    xml.indent(robot)
    return xml.tostring(robot, encoding="unicode") + "\n"


def _add_link(robot: xml.Element, link: Link) -> None:
    element = xml.SubElement(robot, "link", name=link.name)
    if link.mass or any(map(any, link.inertia)):
        inertial = xml.SubElement(element, "inertial")
        xml.SubElement(inertial, "origin", xyz=_text(*link.com))
        xml.SubElement(inertial, "mass", value=_text(link.mass))
        (xx, xy, xz), (_, yy, yz), (_, _, zz) = link.inertia
        moments = {"ixx": xx, "ixy": xy, "ixz": xz, "iyy": yy, "iyz": yz, "izz": zz}
        xml.SubElement(inertial, "inertia", {key: _text(x) for key, x in moments.items()})
    for visual in link.visuals:
        if visual.numbers is None:  # what has no file cannot be named
            _add_visual(element, visual)


def _add_visual(link: xml.Element, visual: Visual) -> None:
    element = xml.SubElement(link, "visual")
    _add_origin(element, visual.placement)
    geometry = xml.SubElement(element, "geometry")
    if visual.shape == "mesh":
        xml.SubElement(geometry, "mesh", filename=visual.mesh or "", scale=_text(*visual.size))
    elif visual.shape == "box":
        xml.SubElement(geometry, "box", size=_text(*visual.size))
    else:
        sizes = zip(_ATTRIBUTES[visual.shape], visual.size, strict=True)
        xml.SubElement(geometry, visual.shape, {key: _text(x) for key, x in sizes})
    if visual.color is not None:
        color = _text(*visual.color)
        xml.SubElement(
            xml.SubElement(element, "material", name=f"rgba {color}"), "color", rgba=color
        )


def _add_joint(robot: xml.Element, joint: JointDescription) -> None:
    kind = None if joint.type == FIXED else joint_type(joint.type, f"joint '{joint.name}'")
    word = kind.urdf if kind else FIXED
    if word is None:
        raise ModelError(
            f"joint '{joint.name}' is {joint.type}: URDF has no such joint; lock it with"
            " robot.reduced, or keep the robot in Python"
        )
    element = xml.SubElement(robot, "joint", name=joint.name, type=word)
    _add_origin(element, joint.placement)
    xml.SubElement(element, "parent", link=joint.parent)
    xml.SubElement(element, "child", link=joint.child)
    if kind is None:
        return
    if kind.axis != "none":
        xml.SubElement(element, "axis", xyz=_text(*(Z if kind.axis == "z" else joint.axis or X)))
    if kind.bounded or joint.limit != JointLimit():  # other readers insist on limits of these types
        limit = {"effort": joint.limit.effort, "velocity": joint.limit.velocity}
        if kind.bounded:
            limit |= {"lower": joint.limit.lower, "upper": joint.limit.upper}
        xml.SubElement(element, "limit", {key: _text(x) for key, x in limit.items()})
    dynamics = {"damping": joint.damping, "friction": joint.friction, "armature": joint.armature}
    if any(dynamics.values()):  # other readers insist on damping or friction beside our armature
        xml.SubElement(element, "dynamics", {key: _text(x) for key, x in dynamics.items()})
    if joint.mimic is not None:
        multiplier, offset = _text(joint.mimic.multiplier), _text(joint.mimic.offset)
        xml.SubElement(
            element, "mimic", joint=joint.mimic.joint, multiplier=multiplier, offset=offset
        )


def _add_origin(element: xml.Element, pose: Pose) -> None:
    if pose != IDENTITY_POSE:
        xml.SubElement(element, "origin", xyz=_text(*pose.p), rpy=_text(*_angles(np.array(pose.R))))


def _angles(R: np.ndarray) -> tuple[float, float, float]:
    """Roll, pitch and yaw of Rz(yaw) Ry(pitch) Rx(roll); where pitch is a right angle, roll makes
    up for whatever yaw was taken.
    """
    yaw = atan2(R[1, 0], R[0, 0])
    pitch = atan2(-R[2, 0], hypot(R[0, 0], R[1, 0]))
    s, c = sin(yaw), cos(yaw)
    roll = atan2(s * R[0, 2] - c * R[1, 2], c * R[1, 1] - s * R[0, 1])
    return roll, pitch, yaw


def _text(*numbers: float) -> str:
    """Numbers in the fewest digits that give them back; the largest one for infinity, which URDF
    has no word for.
    """
    largest = sys.float_info.max
    return " ".join(
        repr(float(largest if x == inf else -largest if x == -inf else x)) for x in numbers
    )
