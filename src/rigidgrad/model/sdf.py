"""Reading SDF models into a Description: http://sdformat.org/spec. No other file is opened, and
`<include>` is refused, as the links in it would be missing.

Poses are `relative_to` any link, joint, frame or nested model; from 1.7 on a link's pose is
relative to its model, a joint's to its child, a frame's to what it is attached to. The tree's root
is `world` where a joint says so, or where the root link does not lie at the world's origin; else
the root link. Whether a model that hangs on nothing is free to fly is for `floating_base` to say.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from math import inf, pi, radians
from typing import Any, NoReturn

from rigidgrad.errors import UrdfError
from rigidgrad.model.description import (
    Collision,
    Description,
    FrameDescription,
    JointDescription,
    JointLimit,
    Link,
    Mimic,
    Spring,
    Vector,
    Visual,
)
from rigidgrad.model.joints import FIXED
from rigidgrad.model.left_out import counted, tell
from rigidgrad.model.pose import IDENTITY_POSE, Pose, pose_from_quaternion, pose_from_xyz_rpy
from rigidgrad.model.urdf import in_folder, number_text, rotated_inertia
from rigidgrad.model.xml import LARGEST, Element, parse_xml, quoted, read_bytes

_WORLD = "world"  # or a link of that name, in older files
_ORIGINS = (_WORLD, "__model__")
_UNLIMITED = 1e15  # limits beyond this mean that there is none: 1e16 is the format's default
_TYPES = {
    "revolute": "revolute",
    "continuous": "continuous",
    "prismatic": "prismatic",
    "ball": "spherical",
    "screw": "helical",
    "fixed": FIXED,
    "universal": "revolute",
    "revolute2": "revolute",
}
# of each element what is read, or neither moves bodies nor says where they are
_READ = {
    "sdf": {"model", "world"},
    "world": {"model", "gravity", "frame"},
    "model": {
        "pose", "link", "joint", "frame", "model", "self_collide", "allow_auto_disable",
        "enable_wind", "static", "placement_frame", "include",
    },
    "link": {
        "pose", "visual", "collision", "inertial", "gravity", "self_collide", "enable_wind",
        "must_be_base_link", "velocity_decay", "particle_emitter", "kinematic",
    },
    "joint": {
        "pose", "parent", "child", "axis", "axis2", "thread_pitch", "screw_thread_pitch",
        "gearbox_ratio", "gearbox_reference_body",
    },
    "axis": {"xyz", "limit", "dynamics", "mimic", "use_parent_model_frame", "initial_position"},
    "axis2": {"xyz", "limit", "dynamics", "mimic", "use_parent_model_frame", "initial_position"},
    "limit": {"lower", "upper", "velocity", "effort"},
    "dynamics": {"damping", "friction", "spring_stiffness", "spring_reference"},
}  # fmt: skip
# for simulators
_OTHERS = {
    "plugin", "gripper", "sensor", "light", "physics", "scene", "gui", "projector", "audio",
    "audio_sink", "audio_source", "battery", "spherical_coordinates", "state", "actor",
    "atmosphere", "magnetic_field", "wind", "road", "population", "stiffness", "dissipation", "provide_feedback",
}  # fmt: skip


def read_sdf(path: str | os.PathLike[str]) -> Description:
    """The model in an SDF file."""
    data = read_bytes(path)
    try:
        return in_folder(parse_sdf(data), os.path.dirname(os.path.abspath(path)))
    except UrdfError as error:
        raise UrdfError(f"{quoted(os.fsdecode(path), 200)[1:-1]}: {error}") from None


def parse_sdf(text: str | bytes) -> Description:
    """The one model in the text of an SDF."""
    root = parse_xml(text, texts=True)
    version = _version(root)
    models = _children(root, "model") + [
        m for world in _children(root, "world") for m in _children(world, "model")
    ]
    if len(models) != 1:
        names = ", ".join(quoted(m.attrib.get("name", "")) for m in models)
        said = f"{len(models)} models ({names})" if models else "no <model>"
        _fail(root, "document", f"it holds {said}; a robot is one model")
    reader = _Reader(version)
    reader.read(models[0], "")
    reader.pass_over(root, "")
    gravity: Vector = (0.0, 0.0, -9.81)
    for world in _children(root, "world"):
        for element in _children(world, "gravity"):
            gravity = _floats(element, 3, "world")
    return reader.description(models[0], gravity)


def _version(root: Element) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(\.\d+)?", root.attrib.get("version", ""))
    if found is None:
        _fail(root, "document", 'it has no version; write <sdf version="1.9">, or the one it is of')
    return int(found[1]), int(found[2])


@dataclass
class _Posed:
    """Something with a pose in another frame, by full names."""

    relative_to: str
    pose: Pose
    element: Element


@dataclass
class _Reader:
    """A model and the models in it, flattened: names in them begin with `model::`."""

    version: tuple[int, int]
    posed: dict[str, _Posed] = field(default_factory=dict)
    links: dict[str, Element] = field(default_factory=dict)
    joints: dict[str, tuple[Element, str]] = field(default_factory=dict)  # and their model's prefix
    frames: dict[str, str] = field(default_factory=dict)  # what each is attached to
    canonical: dict[str, str] = field(default_factory=dict)  # the link that each model hangs on
    left_out: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    placed: dict[str, Pose] = field(default_factory=dict)

    # --- what there is ----------------------------------------------------------------------------

    def read(self, model: Element, prefix: str) -> None:
        """Takes in a model; `prefix` is that of names in it."""
        own = prefix.removesuffix("::")
        for element in model.children:
            if element.tag == "include":
                _fail(
                    element,
                    f"model {quoted(model.attrib.get('name', ''))}",
                    "<include> is not followed; put the model in its place",
                )
            if element.tag not in ("link", "joint", "frame", "model"):
                continue
            name = prefix + _name(element)
            if name in self.posed:
                _fail(element, f"{element.tag} {quoted(name)}", "there already is one of that name")
            default = f"{prefix}__model__"
            if element.tag == "link":
                self.links[name] = element
                self.canonical.setdefault(own, name)
            elif element.tag == "joint":
                self.joints[name] = element, prefix
                default = self.resolved(_text_of(element, "child", f"joint {quoted(name)}"), prefix)
            elif element.tag == "frame":
                attached = element.attrib.get("attached_to", "")
                self.frames[name] = self.resolved(attached, prefix) if attached else default
                default = self.frames[name]
            else:
                self.read(element, f"{name}::")
                self.posed[f"{name}::__model__"] = self._pose(element, prefix, f"{prefix}__model__")
            self.posed[name] = (
                self.posed[f"{name}::__model__"]
                if element.tag == "model"
                else self._pose(element, prefix, default)
            )
        stated = model.attrib.get("canonical_link")
        if stated:
            self.canonical[own] = self.resolved(stated, prefix)
        nested = [c for m, c in self.canonical.items() if m.startswith(prefix) and m != own]
        if own not in self.canonical and nested:
            self.canonical[own] = nested[0]

    def pass_over(self, element: Element, owner: str) -> None:
        """Notes what is not read of an element, and of those in it that are."""
        for child in element.children:
            if child.tag in _OTHERS:
                self.passed_over.append(f"<{child.tag}>")
            elif child.tag not in _READ[element.tag]:
                self.left_out.append(f"<{child.tag}> of {owner or 'the file'}")
            elif child.tag in _READ:
                name = child.attrib.get("name")
                self.pass_over(child, f"{child.tag} {quoted(name)}" if name else owner)

    def resolved(self, name: str, prefix: str) -> str:
        """The full name of what is called `name` in a model."""
        return name if name == _WORLD else prefix + name

    def _pose(self, element: Element, prefix: str, default: str) -> _Posed:
        pose = next(iter(_children(element, "pose")), None)
        if pose is None:
            return _Posed(default, IDENTITY_POSE, element)
        relative_to = pose.attrib.get("relative_to") or pose.attrib.get("frame", "")
        return _Posed(
            self.resolved(relative_to, prefix) if relative_to else default,
            _pose_of(pose, quoted(element.attrib.get("name", ""))),
            element,
        )

    # --- where it is ------------------------------------------------------------------------------

    def place(self, name: str, asker: Element) -> Pose:
        """Of a link, joint, frame or nested model in the outermost model."""
        chain: list[str] = []
        while name not in self.placed and (name in self.posed or name not in _ORIGINS):
            if name in chain:
                _fail(asker, quoted(name), "its pose is relative to itself, by way of others")
            if name not in self.posed:
                _fail(asker, quoted(name), "there is no link, joint, frame or model of that name")
            chain.append(name)
            asker, name = self.posed[name].element, self.posed[name].relative_to
        for one in reversed(chain):
            base = self.placed.get(self.posed[one].relative_to, IDENTITY_POSE)
            self.placed[one] = base @ self.posed[one].pose
        return self.placed[chain[0]] if chain else self.placed.get(name, IDENTITY_POSE)

    def link_of(self, name: str, asker: Element) -> str:
        """The link that something is fixed to."""
        seen = set()
        while name not in self.links and name != _WORLD:
            if name in seen:
                _fail(asker, quoted(name), "it is attached to itself, by way of others")
            seen.add(name)
            if name in self.frames:
                name = self.frames[name]
            elif name in self.joints:
                element, prefix = self.joints[name]
                name = self.resolved(_text_of(element, "child", quoted(name)), prefix)
            elif name.removesuffix("__model__").removesuffix("::") in self.canonical:
                name = self.canonical[name.removesuffix("__model__").removesuffix("::")]
            else:
                _fail(asker, quoted(name), "there is no link, joint, frame or model of that name")
        return name

    # --- the robot --------------------------------------------------------------------------------

    def description(self, model: Element, gravity: Vector) -> Description:
        name = _name(model)
        links = {n: self._link(n, element) for n, element in self.links.items()}
        if not links:
            _fail(model, f"model {quoted(name)}", "it has no <link>; a robot has at least one")
        if any(_text(e) in ("true", "1") for e in _children(model, "static")):
            self.left_out.append("<static>: its joints move")
        own = next(iter(_children(model, "pose")), None)
        in_world = IDENTITY_POSE if own is None else _pose_of(own, f"model {quoted(name)}")
        joints: list[JointDescription] = []
        for joint, (element, prefix) in self.joints.items():
            joints += self._joint(joint, element, prefix, in_world, links)
        children = {j.child for j in joints}
        roots = [n for n in links if n not in children]
        attached = _WORLD not in self.links and any(j.parent == _WORLD for j in joints)
        if len(roots) == 1 and not attached:
            pose = in_world @ self.place(roots[0], model)
            if pose != IDENTITY_POSE and _WORLD not in links:
                joints.append(JointDescription(f"{roots[0]}_place", FIXED, _WORLD, roots[0], pose))
        else:
            for root in roots:
                self.left_out.append(f"link {quoted(root)} is free to fly")
                pose = in_world @ self.place(root, model)
                joints += [
                    JointDescription(f"{root}_free", "floating", _WORLD, f"{root}_flying"),
                    JointDescription(f"{root}_place", FIXED, f"{root}_flying", root, pose),
                ]
                links[f"{root}_flying"] = Link(f"{root}_flying")
        if _WORLD not in links and any(j.parent == _WORLD for j in joints):
            links = {_WORLD: Link(_WORLD), **links}
        taken = set(links) | {j.name for j in joints}
        frames = []
        for frame, attached_to in self.frames.items():
            link = self.link_of(attached_to, self.posed[frame].element)
            if frame not in taken:
                at = self.place(frame, model)
                base = self._base(link, in_world, model)
                frames.append(FrameDescription(frame, link, base.inverse() @ at))
        tell(name, list(dict.fromkeys(self.left_out)), counted(self.passed_over), self.kept)
        if _WORLD not in links:
            frames = [f for f in frames if f.parent != _WORLD]
        return Description(name, tuple(links.values()), tuple(joints), tuple(frames), gravity)

    def _base(self, link: str, in_world: Pose, asker: Element) -> Pose:
        """Of a link, or of the world, in the outermost model."""
        is_world = link == _WORLD and _WORLD not in self.links
        return in_world.inverse() if is_world else self.place(link, asker)

    def _link(self, name: str, element: Element) -> Link:
        where = f"link {quoted(name)}"
        visuals, collisions = [], []
        for child in element.children:
            if child.tag == "visual":
                visual = _solid(child, where)
                if not isinstance(visual, str):
                    visuals.append(Visual(*visual[:2], visual[2], _color(child, where), visual[3]))
            elif child.tag == "collision":
                solid = _solid(child, where)
                collisions.append(
                    Collision("unreadable", (), problem=solid)
                    if isinstance(solid, str)
                    else Collision(*solid)
                )
            elif child.tag == "gravity" and _text(child) in ("false", "0"):
                self.left_out.append(f"{where} without gravity")
            elif child.tag == "kinematic" and _text(child) in ("true", "1"):
                self.left_out.append(f"<kinematic> of {where}")
            elif child.tag in ("velocity_decay", "particle_emitter") and child.children:
                self.left_out.append(f"<{child.tag}> of {where}")
        inertial = next(iter(_children(element, "inertial")), None)
        mass, com, inertia = _inertial(inertial, where)
        if inertial is not None and _children(inertial, "fluid_added_mass"):
            self.left_out.append(f"<fluid_added_mass> of {where}")
        return Link(name, mass, com, inertia, tuple(visuals), tuple(collisions))

    def _joint(
        self, name: str, element: Element, prefix: str, in_world: Pose, links: dict[str, Link]
    ) -> list[JointDescription]:
        where = f"joint {quoted(name)}"
        word = element.attrib.get("type", "")
        if word == "gearbox":
            self.left_out.append(f"gearbox {quoted(name)}")
            return []
        if word not in _TYPES:
            known = ", ".join(_TYPES)
            _fail(element, where, f"it has the type {quoted(word)}; known are {known}")
        parent, child = (
            self.link_of(self.resolved(_text_of(element, end, where), prefix), element)
            for end in ("parent", "child")
        )
        if child == _WORLD:
            _fail(element, where, "its child is the world, which does not move; exchange the ends")
        at, link = self.place(name, element), self.place(child, element)
        placement = self._base(parent, in_world, element).inverse() @ at
        stated = self.posed[name]
        # the child in the joint's frame
        back = stated.pose.inverse() if stated.relative_to == child else at.inverse() @ link
        kind, axes = _TYPES[word], [a for a in element.children if a.tag in ("axis", "axis2")]
        needed = {"universal": 2, "revolute2": 2, "ball": 0, "fixed": 0}.get(word, 1)
        if len(axes) < needed:
            _fail(element, where, f"a {word} joint has {needed} of <axis>, <axis2>")
        if needed == 0:
            parts = [JointDescription(name, kind, parent, child, placement)]
        else:
            parts = []
            for k, axis in enumerate(axes[:needed]):
                own = name if k == 0 else f"{name}:{k + 1}"
                end = child if k == needed - 1 else f"{name}:between"
                parts.append(
                    self._moving(own, kind, parent, end, placement, axis, element, prefix, at)
                )
                parent, placement = end, IDENTITY_POSE
                if end != child:
                    links[end] = Link(end)
        if back != IDENTITY_POSE and parts[-1].type != FIXED:
            # the child's own frame lies elsewhere than the joint's
            moved, between = parts[-1], f"{name}:moved"
            links[between] = Link(between)
            parts[-1] = JointDescription(**{**vars(moved), "child": between})
            parts.append(JointDescription(f"{name}:child", FIXED, between, child, back))
        elif back != IDENTITY_POSE:
            parts[-1] = JointDescription(name, FIXED, parent, child, placement @ back)
        return parts

    def _moving(
        self,
        name: str,
        kind: str,
        parent: str,
        child: str,
        placement: Pose,
        axis: Element,
        element: Element,
        prefix: str,
        at: Pose,
    ) -> JointDescription:
        where = f"joint {quoted(name)}"
        direction = self._axis(axis, prefix, at, where)
        limit, dynamics = (next(iter(_children(axis, t)), None) for t in ("limit", "dynamics"))
        lower, upper, velocity, effort = -inf, inf, inf, inf
        if limit is not None:
            lower = _limit(limit, "lower", where, -inf)
            upper = _limit(limit, "upper", where, inf)
            velocity, effort = (_limit(limit, w, where, inf) for w in ("velocity", "effort"))
            # a negative one is the format's word for none
            velocity, effort = (inf if x < 0 else x for x in (velocity, effort))
        if lower > upper:
            _fail(axis, where, f"its lower limit {lower:g} is above its upper limit {upper:g}")
        if kind == "revolute" and lower == -inf and upper == inf:
            kind = "continuous"
        damping, friction, stiffness, rest = (
            _value(dynamics, w, where) if dynamics is not None else 0.0
            for w in ("damping", "friction", "spring_stiffness", "spring_reference")
        )
        if stiffness:
            self.kept.append(f'spring of {where}: springs="model"')
        return JointDescription(
            name,
            kind,
            parent,
            child,
            placement,
            direction,
            pitch=self._pitch(element, where) if kind == "helical" else 0.0,
            damping=damping,
            friction=friction,
            limit=JointLimit(lower, upper, velocity, effort),
            mimic=self._mimic(axis, prefix, where),
            spring=Spring(stiffness, (rest,)) if stiffness else None,
        )

    def _axis(self, axis: Element, prefix: str, at: Pose, where: str) -> Vector:
        """In the joint's frame."""
        xyz = next(iter(_children(axis, "xyz")), None)
        if xyz is None:
            return (0.0, 0.0, 1.0)
        direction = _floats(xyz, 3, where)
        frame = xyz.attrib.get("expressed_in")
        parents = [_text(e) for e in _children(axis, "use_parent_model_frame")]
        if frame:
            turned = self.place(self.resolved(frame, prefix), xyz)
        elif self.version < (1, 5) or any(p in ("true", "1") for p in parents):
            turned = self.place(f"{prefix}__model__", xyz) if prefix else IDENTITY_POSE
        else:
            return direction
        R = (at.inverse() @ Pose(turned.R, (0.0, 0.0, 0.0))).R
        x, y, z = (sum(r * d for r, d in zip(row, direction, strict=True)) for row in R)
        return x, y, z

    def _pitch(self, element: Element, where: str) -> float:
        """Metres per radian."""
        turn, thread = (_value(element, t, where) for t in ("screw_thread_pitch", "thread_pitch"))
        if not turn and not thread:
            _fail(element, where, "a screw has a <screw_thread_pitch>, in metres per turn")
        return turn / (2 * pi) if turn else -1.0 / thread

    def _mimic(self, axis: Element, prefix: str, where: str) -> Mimic | None:
        for found in _children(axis, "mimic"):
            master = self.resolved(found.attrib.get("joint", ""), prefix)
            if found.attrib.get("axis", "axis") == "axis2":
                master += ":2"
            times, offset, reference = (
                _value(found, w, where, default)
                for w, default in (("multiplier", 1.0), ("offset", 0.0), ("reference", 0.0))
            )
            return Mimic(master, times, offset - times * reference)
        return None


# --- elements -------------------------------------------------------------------------------------


def _fail(element: Element, where: str, problem: str) -> NoReturn:
    raise UrdfError(f"line {element.line}: {where}: {problem}")


def _children(element: Element, tag: str) -> list[Element]:
    return [child for child in element.children if child.tag == tag]


def _name(element: Element) -> str:
    name = element.attrib.get("name", "")
    if not name.strip() or len(name) > 500 or name.startswith("__"):
        said = f"its name {quoted(name)} is none that a {element.tag} may have"
        _fail(element, f"<{element.tag}>", said)
    return name


def _text(element: Element) -> str:
    return element.text.strip()


def _text_of(element: Element, tag: str, where: str) -> str:
    """The word in a child element."""
    found = _children(element, tag)
    if not found or not _text(found[0]):
        _fail(element, where, f"it has no <{tag}>; add it")
    return _text(found[0])


def _floats(
    element: Element, count: int, where: str, *, infinite: bool = False
) -> tuple[float, ...]:
    """The numbers in an element."""
    words = element.text.split()
    found = (number_text(w, infinite=infinite) for w in words)
    values = tuple(v for v in found if v is not None)
    if len(words) != count or len(values) != count:
        what = "a finite number" if count == 1 else f"{count} finite numbers"
        said = quoted(" ".join(words))
        _fail(element, where, f"<{element.tag}> holds {said}, but is {what} below {LARGEST:g}")
    return values


def _value(element: Element, tag: str, where: str, default: float = 0.0) -> float:
    found = _children(element, tag)
    return float(_floats(found[0], 1, where)[0]) if found else default


def _limit(element: Element, tag: str, where: str, absent: float) -> float:
    for found in _children(element, tag):
        value = float(_floats(found, 1, where, infinite=True)[0])
        return value if abs(value) < _UNLIMITED else (inf if value > 0 else -inf)
    return absent


def _pose_of(element: Element, where: str) -> Pose:
    form = element.attrib.get("rotation_format", "euler_rpy")
    degrees = element.attrib.get("degrees", "false") in ("true", "1")
    if not element.text.strip():
        return IDENTITY_POSE
    if form == "quat_xyzw":
        numbers = _floats(element, 7, where)
        if not any(numbers[3:]):
            _fail(element, where, "its quaternion has no direction")
        return pose_from_quaternion(numbers[:3], numbers[3:])
    if form != "euler_rpy":
        _fail(element, where, f"rotation_format is euler_rpy or quat_xyzw, not {quoted(form)}")
    numbers = _floats(element, 6, where)
    angles = tuple(radians(x) for x in numbers[3:]) if degrees else numbers[3:]
    if not any(angles):
        return Pose(IDENTITY_POSE.R, numbers[:3])
    return pose_from_xyz_rpy(numbers[:3], angles)


def _inertial(element: Element | None, where: str) -> tuple[float, Vector, Any]:
    """Mass, centre and inertia about it, along the link's axes; by default those of the format:
    1 kg and 1 kg m².
    """
    if element is None:
        return 1.0, (0.0, 0.0, 0.0), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    if element.attrib.get("auto", "false") in ("true", "1"):
        said = "auto: masses from shapes are not computed; write <mass> and <inertia>"
        _fail(element, where, f"<inertial> is {said}")
    pose = next(iter(_children(element, "pose")), None)
    if pose is not None and pose.attrib.get("relative_to"):
        _fail(pose, where, "the pose of an <inertial> is relative to its link")
    at = IDENTITY_POSE if pose is None else _pose_of(pose, where)
    inertia = next(iter(_children(element, "inertia")), None)
    xx, yy, zz, xy, xz, yz = (
        _value(inertia, f"i{w}", where, default) if inertia is not None else default
        for w, default in (
            ("xx", 1.0),
            ("yy", 1.0),
            ("zz", 1.0),
            ("xy", 0.0),
            ("xz", 0.0),
            ("yz", 0.0),
        )
    )
    rows = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))
    return _value(element, "mass", where, 1.0), at.p, rotated_inertia(at.R, rows)


_SIZES = {
    "box": (("size", 3),),
    "sphere": (("radius", 1),),
    "cylinder": (("radius", 1), ("length", 1)),
    "capsule": (("radius", 1), ("length", 1)),
}


def _solid(element: Element, where: str) -> tuple[str, tuple[float, ...], Pose, str | None] | str:
    """Shape, sizes, placement and mesh of a visual or collision; or why it cannot be read, which
    dynamics need not know.
    """
    try:
        pose = next(iter(_children(element, "pose")), None)
        if pose is not None and pose.attrib.get("relative_to"):
            return f"line {pose.line}: {where}: a shape's pose relative to another frame"
        at = IDENTITY_POSE if pose is None else _pose_of(pose, where)
        shape = next((s for g in _children(element, "geometry") for s in g.children), None)
        if shape is None:
            return f"line {element.line}: {where}: it has no geometry"
        if shape.tag == "mesh":
            scale = _children(shape, "scale")
            size = _floats(scale[0], 3, where) if scale else (1.0, 1.0, 1.0)
            return "mesh", size, at, _text_of(shape, "uri", where)
        if shape.tag == "plane":
            return "plane", (), at, None
        if shape.tag not in _SIZES:
            return f"line {shape.line}: {where}: <{shape.tag}> is no shape that is known here"
        size = ()
        for tag, count in _SIZES[shape.tag]:
            found = _children(shape, tag)
            if not found:
                return f"line {shape.line}: {where}: <{shape.tag}> has no <{tag}>"
            size += _floats(found[0], count, where)
        return shape.tag, size, at, None
    except UrdfError as error:
        return str(error)


def _color(element: Element, where: str) -> tuple[float, ...] | None:
    for material in _children(element, "material"):
        for color in _children(material, "diffuse"):
            words = color.text.split()
            values = [number_text(w) for w in words]
            if len(values) in (3, 4) and None not in values:
                red, green, blue, *alpha = (float(v) for v in values if v is not None)
                return red, green, blue, alpha[0] if alpha else 1.0
    return None
