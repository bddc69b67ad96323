"""Reading URDF into a Description. Numbers are strict, elements that are not read are named in one
warning (`left_out`), no other file is opened.

The format: https://wiki.ros.org/urdf/XML. Ours beyond it: `<dynamics armature="…"/>`, the rotor's
inertia seen at the joint; and `<rigidgrad>` with `<actuator name="…" joint="…" force="…" lower="…"
upper="…"/>`: all controls that the robot has, each with the joint's forces per unit, and its
bounds.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import inf
from typing import Any, NoReturn, TypeVar

import numpy as np

from rigidgrad.errors import ModelWarning, UrdfError
from rigidgrad.model.description import (
    Actuator,
    Collision,
    Description,
    JointDescription,
    JointLimit,
    Link,
    Mimic,
    Rows,
    Vector,
    Visual,
)
from rigidgrad.model.joints import FIXED, JOINT_TYPES, JointType, joint_type
from rigidgrad.model.left_out import tell_urdf
from rigidgrad.model.pose import IDENTITY_POSE, Pose, pose_from_matrix, pose_from_xyz_rpy
from rigidgrad.model.xml import LARGEST, Element, parse_xml, quoted, read_bytes

Color = tuple[float, float, float, float]

# shape: the attributes that make up Visual.size, and how many numbers each holds
_SHAPES = {
    "box": (("size", 3),),
    "cylinder": (("radius", 1), ("length", 1)),
    "capsule": (("radius", 1), ("length", 1)),
    "sphere": (("radius", 1),),
    "mesh": (("scale", 3),),
}
_INERTIA = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_ZERO = (0.0, 0.0, 0.0)

# no backtracking over digits, so that the time is linear in the length of a word
_is_number = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_LONGEST_NAME = 500


def number_text(word: str, *, infinite: bool = False) -> float | None:
    """A plain finite decimal of a size that can be computed with; None of anything else."""
    if infinite and word.lower().lstrip("+-") in ("inf", "infinity"):
        return -inf if word.startswith("-") else inf
    value = float(word) if _is_number(word) else inf
    return value if abs(value) <= LARGEST or (infinite and _is_number(word)) else None


Shape = TypeVar("Shape", Visual, Collision)


def read_urdf(path: str | os.PathLike[str]) -> Description:
    """The robot in a URDF file. No other file is opened: names of meshes are kept as text."""
    data = read_bytes(path)
    try:
        return in_folder(parse_urdf(data), os.path.dirname(os.path.abspath(path)))
    except UrdfError as error:
        raise UrdfError(f"{quoted(os.fsdecode(path), 200)[1:-1]}: {error}") from None


def in_folder(description: Description, folder: str | bytes) -> Description:
    """With the folder from which files of meshes are named."""
    name = os.fsdecode(folder)

    def of(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return tuple(dataclasses.replace(s, folder=name) if s.mesh else s for s in shapes)

    links = tuple(
        (
            dataclasses.replace(link, visuals=of(link.visuals), collisions=of(link.collisions))
            if any(v.mesh for v in link.visuals) or any(c.mesh for c in link.collisions)
            else link
        )
        for link in description.links
    )
    return dataclasses.replace(description, links=links)


def parse_urdf(text: str | bytes) -> Description:
    """The robot in the text of a URDF.

    Links and joints keep the order of the text. Whether they form a tree, and whether the bodies
    make physical sense, is for `assemble`.
    """
    with _collector_paused():
        root = parse_xml(text)
        description = _robot(root)
        tell_urdf(root, lambda: parse_xml(text, texts=True), description.doubts)
        return description


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Elements form no cycles, yet the collector would scan the growing tree over and over: as long
    again as reading it.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _robot(robot: Element) -> Description:
    if robot.tag != "robot":
        hint = "is it a URDF?"
        _fail(
            robot,
            "document",
            f"the root element is <{quoted(robot.tag)[1:-1]}>, but a URDF starts with <robot"
            f" name=…>; {hint}",
        )
    name = robot.attrib.get("name")
    if name is None:
        _fail(robot, "robot", 'it has no name; write <robot name="…">')
    materials, problems = _materials(robot)
    links: dict[str, Link] = {}
    joints: dict[str, JointDescription] = {}
    lines: dict[tuple[str, str], int] = {}
    doubts: list[str] = []
    for element in robot.children:
        if element.tag not in ("link", "joint"):
            continue
        own_name = _name(element, "name", f"robot {quoted(name)}")
        first = lines.setdefault((element.tag, own_name), element.line)
        if own_name in (links if element.tag == "link" else joints):
            problem = (
                f"there already is a {element.tag} of that name, on line {first}; rename one of"
                " them"
            )
            _fail(element, f"{element.tag} {quoted(own_name)}", problem)
        if element.tag == "link":
            links[own_name] = _link(element, own_name, materials, problems)
        else:
            joints[own_name] = _joint(element, own_name, doubts)
    if not links:
        _fail(robot, f"robot {quoted(name)}", "it has no <link>; a robot has at least one")
    if problems:
        more = f" ({len(problems)} such problems in all)" if len(problems) > 1 else ""
        # whoever called rg.load
        warnings.warn(f"left out of the display: {problems[0]}{more}", ModelWarning, stacklevel=5)
    return Description(
        name,
        tuple(links.values()),
        tuple(joints.values()),
        actuators=_actuators(robot, joints),
        doubts=tuple(doubts),
    )


def _actuators(robot: Element, joints: dict[str, JointDescription]) -> tuple[Actuator, ...] | None:
    """What <rigidgrad> states; elements with one name are one control that drives several
    joints.
    """
    blocks = [element for element in robot.children if element.tag == "rigidgrad"]
    found: dict[str, Actuator] = {}
    for element in (
        child for block in blocks for child in block.children if child.tag == "actuator"
    ):
        name = _name(element, "name", "rigidgrad")
        where = f"actuator {quoted(name)}"
        joint = joints.get(_name(element, "joint", where))
        if joint is None or joint.type == FIXED or joint.mimic is not None:
            _fail(
                element,
                where,
                f"{quoted(element.attrib['joint'])} is no joint that can be driven: it must move"
                " and mimic no other",
            )
        force = joint.name, _numbers(element, "force", joint_type(joint.type).nv, where)
        lower, upper = (
            _number(element, a, where, inf * s) for a, s in (("lower", -1), ("upper", 1))
        )
        if lower > upper:
            _fail(element, where, f"lower={lower:g} is above upper={upper:g}; exchange them")
        before = found.get(name, Actuator(name, ()))
        found[name] = Actuator(
            name, (*before.forces, force), max(lower, before.lower), min(upper, before.upper)
        )
    return tuple(found.values()) or None


def _fail(element: Element, where: str, problem: str) -> NoReturn:
    raise UrdfError(f"line {element.line}: {where}: {problem}")


def _name(element: Element, attribute: str, where: str) -> str:
    name = element.attrib.get(attribute, "")
    if not name.strip():
        _fail(
            element,
            where,
            f'<{element.tag}> has no {attribute}; write <{element.tag} {attribute}="…">',
        )
    if len(name) > _LONGEST_NAME:
        _fail(
            element,
            where,
            f"<{element.tag}> {attribute} {quoted(name)} is longer than {_LONGEST_NAME} characters;"
            " shorten it",
        )
    return name


def _parts(element: Element, where: str, *tags: str) -> dict[str, Element]:
    """The child elements with these tags, each of which may stand there once."""
    parts: dict[str, Element] = {}
    for child in element.children:
        if child.tag in tags and parts.setdefault(child.tag, child) is not child:
            _fail(
                child,
                where,
                f"<{child.tag}> is already given on line {parts[child.tag].line}; keep one of them",
            )
    return parts


def _part(parts: dict[str, Element], tag: str, owner: Element, where: str) -> Element:
    if tag not in parts:
        _fail(owner, where, f"<{owner.tag}> has no <{tag}>; add it")
    return parts[tag]


def _numbers(
    element: Element,
    attribute: str,
    count: int,
    where: str,
    default: Any = None,
    largest: float = LARGEST,
) -> Any:
    """The tuple of the `count` numbers of an attribute, or the default, if there is one, where it
    is absent.
    """
    text = element.attrib.get(attribute)
    if text is None:
        if default is None:
            _fail(
                element,
                where,
                f'<{element.tag}> has no {attribute}; write {attribute}="{" ".join(["0"] * count)}"'
                " with your values",
            )
        return default
    words = text.split()
    values = tuple(map(float, words)) if len(words) == count and all(map(_is_number, words)) else ()
    if not values or max(map(abs, values)) > largest:
        _refuse_numbers(element, attribute, count, where, largest)
    return values


def _refuse_numbers(
    element: Element, attribute: str, count: int, where: str, largest: float
) -> NoReturn:
    text = element.attrib[attribute]
    what = f"<{element.tag}> {attribute}={quoted(text)}"
    if "${" in text or "$(" in text:
        _fail(
            element,
            where,
            f"{what} is an unexpanded xacro expression; run xacro first and load its output, or"
            " pass xacro_args={}",
        )
    words = text.split()
    for word in words:
        if not _is_number(word):
            advice = (
                "write plain decimals such as 0.5 or -1e-3, separated by spaces, and leave a limit"
                " out where there is none"
            )
            _fail(
                element, where, f"{what}: {quoted(word)} is not a finite decimal number; {advice}"
            )
    if len(words) != count:
        numbers = "1 number" if count == 1 else f"{count} numbers separated by spaces"
        _fail(element, where, f"{what} needs {numbers}, but holds {len(words)}")
    _fail(element, where, f"{what} is too large (over {largest:.2g}); correct it")


def _number(
    element: Element,
    attribute: str,
    where: str,
    default: float | None = None,
    largest: float = LARGEST,
) -> float:
    text = element.attrib.get(attribute)
    if text is None and default is not None:
        return default
    if text is not None and _is_number(text) and abs(value := float(text)) <= largest:
        return value
    (only,) = _numbers(element, attribute, 1, where, None, largest)
    return float(only)


def _at_least_zero(
    element: Element, attribute: str, where: str, default: float, largest: float = LARGEST
) -> float:
    value = _number(element, attribute, where, default, largest)
    if value < 0:
        _fail(
            element,
            where,
            f"<{element.tag}> {attribute}={quoted(element.attrib[attribute])} is negative; make it"
            " 0 or more, or leave it out",
        )
    return value


def _origin(element: Element | None, where: str) -> Pose:
    if element is None:
        return IDENTITY_POSE
    xyz = _numbers(element, "xyz", 3, where, _ZERO)
    rpy = _numbers(element, "rpy", 3, where, _ZERO)
    if "quat_xyzw" in element.attrib:  # of URDF 1.1
        if "rpy" in element.attrib:
            _fail(element, where, "<origin> has both rpy and quat_xyzw; keep one of them")
        return _pose_from_quaternion(xyz, _numbers(element, "quat_xyzw", 4, where), element, where)
    if not any(rpy):
        return Pose(IDENTITY_POSE.R, xyz)
    return Pose(_rotation(rpy), xyz)


@lru_cache(maxsize=4096)
def _rotation(rpy: Vector) -> Rows:
    """In a long chain of like links the same angles come again and again."""
    return pose_from_xyz_rpy(_ZERO, rpy).R


def _pose_from_quaternion(
    xyz: tuple[float, ...], quaternion: tuple[float, ...], element: Element, where: str
) -> Pose:
    length = math.hypot(*quaternion)
    if length < 1e-12:
        _fail(element, where, "<origin> quat_xyzw has no direction; the identity is 0 0 0 1")
    x, y, z, w = (c / length for c in quaternion)
    matrix = np.eye(4)
    matrix[:3, :3] = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    matrix[:3, 3] = xyz
    return pose_from_matrix(matrix)


def _link(element: Element, name: str, materials: dict[str, Color], problems: list[str]) -> Link:
    where = f"link {quoted(name)}"
    visuals, collisions = [], []
    for child in element.children:
        if child.tag == "visual":
            try:
                visuals.append(_visual(child, where, materials))
            except UrdfError as error:  # dynamics can do without
                problems.append(str(error))
        elif child.tag == "collision":
            collisions.append(_collision(child, where))
    inertial = _parts(element, where, "inertial").get("inertial")
    if inertial is None:
        return Link(name, visuals=tuple(visuals), collisions=tuple(collisions))
    parts = _parts(inertial, where, "origin", "mass", "inertia")
    mass = _number(_part(parts, "mass", inertial, where), "value", where)
    inertia = _part(parts, "inertia", inertial, where)
    xx, xy, xz, yy, yz, zz = (_number(inertia, component, where) for component in _INERTIA)
    rotation, com = _origin(parts.get("origin"), where)
    return Link(
        name,
        mass,
        com,
        rotated_inertia(rotation, ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))),
        tuple(visuals),
        tuple(collisions),
    )


def rotated_inertia(R: Rows, inertia: Rows) -> Rows:
    """R I Rᵀ, symmetric to the last bit."""
    if R == IDENTITY_POSE.R:
        return inertia
    (a, b, c), (d, e, f), (g, h, i) = R
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = inertia
    # rows of R I
    ax, ay, az = (a * xx + b * xy + c * xz, a * xy + b * yy + c * yz, a * xz + b * yz + c * zz)
    dx, dy, dz = d * xx + e * xy + f * xz, d * xy + e * yy + f * yz, d * xz + e * yz + f * zz
    gx, gy, gz = g * xx + h * xy + i * xz, g * xy + h * yy + i * yz, g * xz + h * yz + i * zz
    upper = ax * d + ay * e + az * f, ax * g + ay * h + az * i, dx * g + dy * h + dz * i
    return (
        (ax * a + ay * b + az * c, upper[0], upper[1]),
        (upper[0], dx * d + dy * e + dz * f, upper[2]),
        (upper[1], upper[2], gx * g + gy * h + gz * i),
    )


def _materials(robot: Element) -> tuple[dict[str, Color], list[str]]:
    """Colours by name. A material may be defined under <robot>, or in any visual for all others;
    and what could not be read.
    """
    colors: dict[str, Color] = {}
    problems: list[str] = []
    for child in robot.children:
        if child.tag == "material":
            try:
                color = _color(child, f"material {quoted(child.attrib.get('name', ''))}")
            except UrdfError as error:
                problems.append(str(error))
                continue
            if color is not None:
                colors[child.attrib.get("name", "")] = color
    for link in robot.children:
        if link.tag == "link":
            for visual in link.children:
                if visual.tag == "visual":
                    _collect(visual, colors)
    return colors, problems


def _collect(visual: Element, colors: dict[str, Color]) -> None:
    for material in visual.children:
        if (
            material.tag == "material"
            and material.children
            and material.attrib.get("name", "") not in colors
        ):
            try:
                color = _color(material, "")
            except UrdfError:
                continue  # told when the visual itself is read
            if color is not None and material.attrib.get("name"):
                colors[material.attrib["name"]] = color


def _color(material: Element, where: str) -> Color | None:
    color = _parts(material, where, "color").get("color")
    return None if color is None else _numbers(color, "rgba", 4, where)


def _visual(element: Element, where: str, materials: dict[str, Color]) -> Visual:
    parts = _parts(element, where, "origin", "geometry", "material")
    shape, size, mesh = _geometry(parts, element, where)
    color = None
    if "material" in parts:
        color = _color(parts["material"], where) or materials.get(
            parts["material"].attrib.get("name", "")
        )
    return Visual(shape, size, _origin(parts.get("origin"), where), color, mesh)


def _collision(element: Element, where: str) -> Collision:
    """What cannot be read is told to whoever asks for collisions: dynamics can do without."""
    try:
        parts = _parts(element, where, "origin", "geometry")
        shape, size, mesh = _geometry(parts, element, where)
        return Collision(shape, size, _origin(parts.get("origin"), where), mesh)
    except UrdfError as error:
        return Collision("unreadable", (), problem=str(error))


def _geometry(
    parts: dict[str, Element], element: Element, where: str
) -> tuple[str, tuple[float, ...], str | None]:
    """What a solid is called, its sizes, and the file of a mesh."""
    geometry = _part(parts, "geometry", element, where)
    shape = next((child for child in geometry.children if child.tag in _SHAPES), None)
    if shape is None:
        _fail(geometry, where, f"<geometry> holds none of {', '.join(_SHAPES)}; give it one")
    mesh = _name(shape, "filename", where) if shape.tag == "mesh" else None
    default = (1.0, 1.0, 1.0) if mesh else None
    return (
        shape.tag,
        tuple(
            x
            for attribute, count in _SHAPES[shape.tag]
            for x in _numbers(shape, attribute, count, where, default)
        ),
        mesh,
    )


def _joint(element: Element, name: str, doubts: list[str]) -> JointDescription:
    where = f"joint {quoted(name)}"
    word = element.attrib.get("type")
    kind = (
        next((t for t in JOINT_TYPES.values() if t.urdf == word), None)
        if word is not None
        else None
    )
    if kind is None and word != FIXED:
        said = (
            "has no type"
            if word is None
            else f"has the type {quoted(word)}, which URDF does not know"
        )
        known = ", ".join(t.urdf for t in JOINT_TYPES.values() if t.urdf)
        others = " and ".join(t.name for t in JOINT_TYPES.values() if not t.urdf)
        _fail(
            element,
            where,
            f"it {said}; use one of {known}, {FIXED} ({others} joints come from rg.Builder)",
        )
    parts = _parts(
        element, where, "origin", "parent", "child", "axis", "limit", "dynamics", "mimic"
    )
    parent = _name(_part(parts, "parent", element, where), "link", where)
    child = _name(_part(parts, "child", element, where), "link", where)
    placement = _origin(parts.get("origin"), where)
    if kind is None:  # whatever else a fixed joint says means nothing
        return JointDescription(name, FIXED, parent, child, placement)
    axis: Vector | None = None
    if "axis" in parts and kind.axis != "none":
        axis = _numbers(parts["axis"], "xyz", 3, where)
    armature = damping = friction = 0.0
    if "dynamics" in parts:
        armature, damping, friction = (
            _at_least_zero(parts["dynamics"], a, where, 0.0)
            for a in ("armature", "damping", "friction")
        )
    return JointDescription(
        name,
        kind.name,
        parent,
        child,
        placement,
        axis,
        armature=armature,
        damping=damping,
        friction=friction,
        limit=_limit(parts["limit"], kind, where, doubts) if "limit" in parts else JointLimit(),
        mimic=_mimic(parts["mimic"], where) if "mimic" in parts else None,
    )


def _limit(element: Element, kind: JointType, where: str, doubts: list[str]) -> JointLimit:
    """Limits that cannot be count as none: some programs mean that by them."""
    lower, upper = -inf, inf
    if kind.bounded:
        lower = _bound(element, "lower", where, -inf)
        upper = _bound(element, "upper", where, inf)
        if lower > upper:
            doubts.append(
                f"line {element.line}: {where}: its lower limit {lower:g} is above its upper limit"
                f" {upper:g}; exchange or correct them"
            )
            lower, upper = -inf, inf
    velocity = _bound(element, "velocity", where, inf)
    effort = _bound(element, "effort", where, inf)
    if velocity < 0 or effort < 0:
        doubts.append(
            f"line {element.line}: {where}: its velocity or effort limit is negative; make it 0 or"
            " more, or leave it out where there is none"
        )
        velocity, effort = (inf if x < 0 else x for x in (velocity, effort))
    return JointLimit(lower, upper, velocity, effort)


def _bound(element: Element, attribute: str, where: str, absent: float) -> float:
    """A limit. Some programs write the largest float where there is none."""
    value = _number(element, attribute, where, absent, sys.float_info.max)
    if abs(value) <= LARGEST:
        return value
    if math.copysign(inf, value) != absent:
        _refuse_numbers(element, attribute, 1, where, LARGEST)
    return absent


def _mimic(element: Element, where: str) -> Mimic:
    master = _name(element, "joint", where)
    return Mimic(
        master, _number(element, "multiplier", where, 1.0), _number(element, "offset", where, 0.0)
    )
