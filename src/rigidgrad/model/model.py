"""The immutable Model that algorithms read, assembled from a Description."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError, ModelError, unknown_name
from rigidgrad.model.actuation import own_actuators
from rigidgrad.model.checks import Problem, check_bodies
from rigidgrad.model.description import (
    Actuator,
    Description,
    JointDescription,
    JointLimit,
    LoopDescription,
    Spring,
    Visual,
)
from rigidgrad.model.joints import FIXED, Floating, JointType, joint_type
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.model.structure import (
    check_gravity,
    check_joint,
    joint_pose,
    resolve_mimics,
    tree_order,
)

WORLD = -1


@dataclass(frozen=True)
class Joint:
    """A moving joint. Body i of the model hangs on joint i.

    `q` and `v` are where its numbers start in the user's arrays; a mimic joint points at its
    master's, with value = multiplier·q + offset. `dof` is where its velocities start among all
    joints' velocities, mimic joints included.
    """

    name: str
    type: str
    q: int
    v: int
    dof: int
    axis: tuple[Any, ...]
    pitch: Any = 0.0
    is_mimic: bool = False
    multiplier: Any = 1.0
    offset: Any = 0.0
    damping: float = 0.0
    friction: float = 0.0
    limit: JointLimit = field(default_factory=JointLimit)
    spring: Spring | None = None

    @property
    def kind(self) -> JointType:
        """What joints of its type know and do."""
        return joint_type(self.type)

    @property
    def nq(self) -> int:
        return self.kind.nq

    @property
    def nv(self) -> int:
        return self.kind.nv


@dataclass(frozen=True)
class Frame:
    """A named frame, fixed to a body (WORLD is -1)."""

    name: str
    body: int
    placement: Pose
    kind: str  # "link", "joint" or "frame"


class PlacedDirection(NamedTuple):
    """Numbers of length one in q: whose, what they are, and where."""

    joint: str
    name: str
    q: slice


@dataclass(frozen=True)
class Limits:
    """Joint limits as arrays, ±inf where absent: lower and upper (nq,), velocity and effort
    (nv,).
    """

    lower: np.ndarray
    upper: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


@dataclass(frozen=True)
class Model:
    """A tree of bodies and joints. Body i moves by joint i in its parent body `parents[i]` < i; -1
    is the world.

    The numbers (placements, inertias, gravity, armature, axes) are plain floats, or any scalars
    after `over`.
    """

    name: str
    joints: tuple[Joint, ...]
    parents: tuple[int, ...]
    placements: tuple[Pose, ...]
    # (m, h, (Ixx, Ixy, Iyy, Ixz, Iyz, Izz)) about the body frame's origin
    inertias: tuple[tuple[Any, ...], ...]
    armature: tuple[Any, ...]  # one number a degree of freedom, mimic joints included
    gravity: tuple[Any, ...]
    body_names: tuple[str, ...]
    frames: Mapping[str, Frame]
    visuals: tuple[tuple[str, Visual], ...]
    description: Description
    floating_base: bool
    strict: bool
    problems: tuple[Problem, ...] = ()  # bodies that make no physical sense

    @cached_property
    def nq(self) -> int:
        return sum(j.nq for j in self.joints if not j.is_mimic)

    @cached_property
    def nv(self) -> int:
        return sum(j.nv for j in self.joints if not j.is_mimic)

    @cached_property
    def dofs(self) -> int:
        """Velocities of all joints, mimic joints included."""
        return sum(j.nv for j in self.joints)

    @property
    def bodies(self) -> range:
        return range(len(self.joints))

    @cached_property
    def has_mimic(self) -> bool:
        return any(j.is_mimic for j in self.joints)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        result: list[list[int]] = [[] for _ in self.joints]
        for i, p in enumerate(self.parents):
            if p != WORLD:
                result[p].append(i)
        return tuple(tuple(c) for c in result)

    @cached_property
    def ancestors(self) -> tuple[tuple[int, ...], ...]:
        """For each body: itself, its parent, … up to the body next to the world."""
        result: list[tuple[int, ...]] = []
        for i, p in enumerate(self.parents):
            result.append((i,) + (result[p] if p != WORLD else ()))
        return tuple(result)

    @cached_property
    def directions(self) -> tuple[PlacedDirection, ...]:
        """All quaternions and (cos, sin) pairs in q."""
        found = ((j, j.kind.direction) for j in self.joints if not j.is_mimic)
        return tuple(
            PlacedDirection(j.name, d.name, slice(j.q + j.kind.plain, j.q + j.nq))
            for j, d in found
            if d is not None
        )

    @cached_property
    def limits(self) -> Limits:
        lower, upper = np.full(self.nq, -np.inf), np.full(self.nq, np.inf)
        velocity, effort = np.full(self.nv, np.inf), np.full(self.nv, np.inf)
        for j in self.joints:
            if j.is_mimic:
                continue
            plain = slice(j.q, j.q + j.kind.plain)
            lower[plain], upper[plain] = j.kind.limits(j.limit)
            velocity[j.v : j.v + j.nv] = j.limit.velocity
            effort[j.v : j.v + j.nv] = j.limit.effort
        for array in (lower, upper, velocity, effort):
            array.setflags(write=False)
        return Limits(lower, upper, velocity, effort)

    def frame(self, name: str) -> Frame:
        try:
            return self.frames[name]
        except (KeyError, TypeError):
            raise unknown_name("frame", name, self.frames) from None

    def over(self, convert: Callable[[float], Any]) -> Model:
        """The same model with every number but structural zeros converted, e.g.
        `model.over(Fraction)`.
        """

        def number(x: Any) -> Any:
            return x if type(x) is float and x == 0.0 else convert(x)

        def numbers(x: Any) -> Any:
            return tuple(numbers(y) for y in x) if isinstance(x, tuple) else number(x)

        return dataclasses.replace(
            self,
            joints=tuple(
                dataclasses.replace(
                    j,
                    axis=numbers(j.axis),
                    pitch=number(j.pitch),
                    multiplier=number(j.multiplier),
                    offset=number(j.offset),
                )
                for j in self.joints
            ),
            placements=tuple(Pose(numbers(x.R), numbers(x.p)) for x in self.placements),
            inertias=numbers(self.inertias),
            armature=numbers(self.armature),
            gravity=numbers(self.gravity),
        )


def assemble(
    description: Description,
    *,
    floating_base: bool = False,
    gravity: Any = (0.0, 0.0, -9.81),
    strict: bool = False,
    known: Sequence[str] = (),
) -> Model:
    """The Model of a description: tree checked and ordered, fixed joints merged, bodies checked for
    physical sense. `known`: problems of bodies that are no news.
    """
    gravity = check_gravity(gravity)
    if strict and description.doubts:
        said = "; ".join(description.doubts)
        raise ModelError(f"robot '{description.name}': {said}; or load it with strict=False")
    root, order = tree_order(description)
    links = {link.name: link for link in description.links}
    mimics = resolve_mimics(description)

    joints: list[Joint] = []
    parents: list[int] = []
    placements: list[Pose] = []
    armature: list[float] = []
    body_names: list[str] = []
    # link -> body and placement in it
    where: dict[str, tuple[int, Pose]] = {root: (WORLD, IDENTITY_POSE)}
    starts: dict[str, tuple[int, int]] = {}  # joint -> where its numbers start in q and v
    counters = {"q": 0, "v": 0, "dof": 0}

    def move(joint: JointDescription, parent: int, placement: Pose) -> None:
        axis = check_joint(joint)
        kind = joint_type(joint.type)
        mimic = mimics.get(joint.name)
        if mimic is None:
            starts[joint.name] = counters["q"], counters["v"]
            counters["q"] += kind.nq
            counters["v"] += kind.nv
        extra: dict[str, Any] = (
            {}
            if mimic is None
            else {"is_mimic": True, "multiplier": mimic.multiplier, "offset": mimic.offset}
        )
        joints.append(
            Joint(
                name=joint.name,
                type=joint.type,
                q=starts.get(joint.name, (-1, -1))[0],
                v=starts.get(joint.name, (-1, -1))[1],
                dof=counters["dof"],
                axis=axis,
                pitch=float(joint.pitch),
                damping=joint.damping,
                friction=joint.friction,
                limit=joint.limit,
                spring=joint.spring,
                **extra,
            )
        )
        counters["dof"] += kind.nv
        parents.append(parent)
        placements.append(placement)
        armature.extend([float(joint.armature)] * kind.nv)
        body_names.append(joint.child)
        where[joint.child] = len(joints) - 1, IDENTITY_POSE

    if floating_base:
        name = "root_joint"
        while any(j.name == name for j in description.joints):
            name += "_"
        move(JointDescription(name, Floating.name, "", root), WORLD, IDENTITY_POSE)
    for joint in order:
        body, placement = where[joint.parent]
        placement = placement @ joint.placement
        if joint.type == FIXED:
            where[joint.child] = body, placement
        else:
            move(joint, body, placement)
    # a mimic joint may come before its master, so their places are filled in last
    for i, joint_ in enumerate(joints):
        if joint_.is_mimic:
            q, v = starts[mimics[joint_.name].joint]
            joints[i] = dataclasses.replace(joint_, q=q, v=v)

    merged: list[list[tuple[Any, Pose]]] = [[] for _ in joints]
    for link_name, (body, placement) in where.items():
        if body != WORLD:
            merged[body].append((links[link_name], placement))
    inertias, problems = check_bodies(
        description.name,
        tuple(joints),
        tuple(parents),
        tuple(armature),
        body_names,
        merged,
        strict,
        known,
    )
    return Model(
        name=description.name,
        joints=tuple(joints),
        parents=tuple(parents),
        placements=tuple(placements),
        inertias=inertias,
        armature=tuple(armature),
        gravity=gravity,
        body_names=tuple(body_names),
        frames=_frames(description, where, joints),
        visuals=tuple((link, visual) for link in where for visual in links[link].visuals),
        description=description,
        floating_base=floating_base,
        strict=strict,
        problems=problems,
    )


def _frames(
    description: Description, where: dict[str, tuple[int, Pose]], joints: list[Joint]
) -> Mapping[str, Frame]:
    """Links in tree order, then joints whose name is no link's, then extra frames."""
    frames = {
        name: Frame(name, body, placement, "link") for name, (body, placement) in where.items()
    }
    child = {j.name: j.child for j in description.joints}
    if joints and joints[0].name not in child:  # the floating base
        child = {joints[0].name: next(iter(where)), **child}
    for name, link in child.items():
        if name not in frames:
            frames[name] = Frame(name, *where[link], kind="joint")
    for extra in description.frames:
        if extra.name in frames:
            raise ModelError(
                f"frame '{extra.name}': there already is a frame of that name; choose another"
            )
        if extra.parent not in frames:
            raise unknown_name("frame", extra.parent, frames)
        parent = frames[extra.parent]
        frames[extra.name] = Frame(
            extra.name, parent.body, parent.placement @ extra.placement, "frame"
        )
    return MappingProxyType(frames)


def rebuild(model: Model, description: Description, others: Sequence[Problem] = ()) -> Model:
    """A model of another description with the same base, gravity and strictness; `others` are
    problems that are known besides its own.
    """
    return assemble(
        description,
        floating_base=model.floating_base,
        gravity=model.gravity,
        strict=model.strict,
        known=[p.text for p in (*model.problems, *others)],
    )


def reduced(model: Model, lock: Mapping[str, Any]) -> Model:
    """The model with joints fixed at given positions (numbers as in q); mimic joints follow their
    locked master.
    """
    by_name = {j.name: j for j in model.description.joints}
    mimics = resolve_mimics(model.description)
    if model.floating_base and model.joints[0].name in lock:
        raise InputError(
            "the floating base cannot be locked; load the robot with floating_base=False"
        )
    values: dict[str, tuple[float, ...]] = {}
    for name, value in lock.items():
        if name not in by_name or by_name[name].type == FIXED:
            raise unknown_name("moving joint", name, (j.name for j in model.joints))
        if name in mimics:
            raise InputError(f"joint '{name}' mimics '{mimics[name].joint}': lock that one")
        kind = joint_type(by_name[name].type)
        nq = kind.nq
        try:
            numbers = np.atleast_1d(np.asarray(value, dtype=float))
        except (TypeError, ValueError):
            raise InputError(
                f"joint '{name}' is locked at {value!r}, which is not {nq} numbers"
            ) from None
        if numbers.shape != (nq,) or not np.all(np.isfinite(numbers)):
            raise InputError(
                f"joint '{name}' is locked at {value!r}, which is not {nq} finite numbers"
            )
        if kind.direction is not None:
            length = math.hypot(*numbers[kind.plain :])
            if length == 0.0:
                raise InputError(
                    f"joint '{name}' is locked at {value!r}: its {kind.direction.name} has length"
                    " zero, so no direction"
                )
            numbers = np.concatenate([numbers[: kind.plain], numbers[kind.plain :] / length])
        values[name] = tuple(numbers.tolist())
    for name, mimic in mimics.items():
        if mimic.joint in values:
            values[name] = (mimic.multiplier * values[mimic.joint][0] + mimic.offset,)

    def fixed(joint: JointDescription) -> JointDescription:
        if joint.name not in values:
            return joint
        pose = joint.placement @ joint_pose(joint, values[joint.name])
        return JointDescription(joint.name, FIXED, joint.parent, joint.child, pose)

    joints = tuple(fixed(j) for j in model.description.joints)
    return rebuild(
        model,
        dataclasses.replace(
            model.description,
            joints=joints,
            actuators=_without(model.description.actuators, values),
        ),
    )


def _without(
    actuators: tuple[Actuator, ...] | None, locked: Mapping[str, Any]
) -> tuple[Actuator, ...] | None:
    """What is left of actuators when joints no longer move."""
    if actuators is None:
        return None
    left = (
        dataclasses.replace(
            a, forces=tuple((name, f) for name, f in a.forces if name not in locked)
        )
        for a in actuators
    )
    return tuple(a for a in left if a.forces)


def attach(model: Model, other: Model, frame: str, placement: Pose, prefix: str) -> Model:
    """`other`, without its floating base if it has one, fixed to a frame of `model`."""
    base = model.frame(frame)

    def named(x: str) -> str:
        return prefix + x

    links = tuple(
        dataclasses.replace(link, name=named(link.name)) for link in other.description.links
    )
    joints = tuple(
        dataclasses.replace(
            j,
            name=named(j.name),
            parent=named(j.parent),
            child=named(j.child),
            mimic=dataclasses.replace(j.mimic, joint=named(j.mimic.joint)) if j.mimic else None,
        )
        for j in other.description.joints
    )
    frames = tuple(
        dataclasses.replace(f, name=named(f.name), parent=named(f.parent))
        for f in other.description.frames
    )
    loops = tuple(
        LoopDescription(named(x.name), named(x.frame_a), named(x.frame_b), x.full)
        for x in other.description.loops
    )
    mine = model.description
    clashes: tuple[tuple[str, Any, Any], ...] = (
        ("link", mine.links, links),
        ("joint", mine.joints, joints),
        ("frame", mine.frames, frames),
    )
    for kind, ours, theirs in clashes:
        clash = sorted({x.name for x in ours} & {x.name for x in theirs})
        if clash:
            raise ModelError(
                f"both robots have a {kind} '{clash[0]}'; pass prefix= to rename those of the"
                " attached one"
            )
    root = next(iter(other.frames))
    parent, offset = _link_of(model, base)
    fixture = JointDescription(
        f"{named(other.name)}_attachment", FIXED, parent, named(root), offset @ placement
    )
    if any(j.name == fixture.name for j in model.description.joints):
        raise ModelError(f"there already is a joint '{fixture.name}'; pass another prefix=")
    actuators = None
    if mine.actuators is not None or other.description.actuators is not None:
        moving = {j.name for j in other.description.joints}  # without its floating base
        theirs = (
            dataclasses.replace(
                a,
                name=named(a.name),
                forces=tuple((named(j), f) for j, f in a.forces if j in moving),
            )
            for a in own_actuators(other)
        )
        actuators = (*own_actuators(model), *(a for a in theirs if a.forces))
    description = dataclasses.replace(
        mine,
        links=mine.links + links,
        joints=mine.joints + (fixture,) + joints,
        frames=mine.frames + frames,
        actuators=actuators,
        loops=mine.loops + loops,
    )
    return rebuild(model, description, () if prefix else other.problems)


def _link_of(model: Model, frame: Frame) -> tuple[str, Pose]:
    """The link that a frame is fixed to, and the frame's placement in it."""
    if frame.kind == "link":
        return frame.name, IDENTITY_POSE
    if frame.kind == "frame":
        extra = next(f for f in model.description.frames if f.name == frame.name)
        link, offset = _link_of(model, model.frames[extra.parent])
        return link, offset @ extra.placement
    for joint in model.description.joints:
        if joint.name == frame.name:
            return joint.child, IDENTITY_POSE
    return next(iter(model.frames)), IDENTITY_POSE  # the floating base
