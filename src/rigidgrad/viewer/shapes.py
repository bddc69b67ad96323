"""What a robot looks like: the meshes, boxes, cylinders and spheres of its description, and
stand-ins where it has nothing that can be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rigidgrad.geometry.files import Roots
from rigidgrad.model.description import JointDescription, Link, Visual
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.viewer.meshes import PAGE_TRIANGLES, Looks, Meshes, read_meshes
from rigidgrad.viewer.poses import body_poses, posture
from rigidgrad.viewer.surfaces import Surface

Color = tuple[float, float, float, float]

PLAIN: Color = (0.72, 0.74, 0.77, 1.0)
STAND_IN: Color = (0.58, 0.65, 0.74, 1.0)
HUB: Color = (0.95, 0.45, 0.10, 1.0)

_DENSITY = 1000.0  # kg/m³: what a stand-in of a link's mass would be made of
_LARGEST = 1e4  # metres; beyond it single precision on a graphics card has no digits left
_COUNTS = {"box": 3, "cylinder": 2, "capsule": 2, "sphere": 1}


@dataclass(frozen=True)
class Shape:
    """A solid fixed to a body (WORLD is -1). Sizes: box (x, y, z), cylinder and capsule (radius,
    length along z), sphere (radius,).

    A capsule's length is that of its cylinder, without the caps. A mesh has no sizes, but a
    surface, or the corners of its triangles (m, 3, 3), which are drawn flat.
    """

    kind: str
    size: tuple[float, ...]
    placement: Pose  # in the body's frame
    color: Color
    body: int
    link: str
    corners: np.ndarray | None = None
    surface: Surface | None = None

    def reach(self, rotation: np.ndarray) -> np.ndarray:
        """Half of what it takes up along each axis (…, 3) when turned by rotation (…, 3, 3)."""
        R = np.abs(rotation @ np.array(self.placement.R))
        if self.kind == "box":
            half: np.ndarray = R @ (np.array(self.size) / 2)
            return half
        if self.kind == "sphere":
            return np.broadcast_to(self.size[0], R.shape[:-1])
        radius, length = self.size
        along = R[..., 2]
        across = radius if self.kind == "capsule" else radius * np.sqrt(np.maximum(1 - along**2, 0))
        reach: np.ndarray = along * length / 2 + across
        return reach


@dataclass(frozen=True)
class Drawing:
    """The shapes of a robot, and notes on what is drawn otherwise than described."""

    shapes: tuple[Shape, ...]
    notes: tuple[str, ...] = ()

    def bounds(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest corner of the box around all shapes at placements of bodies
        (…, bodies + 1, 4, 4).
        """
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for shape in self.shapes:
            T = poses[..., shape.body, :, :]
            if shape.surface is not None:
                T = T.reshape(-1, 4, 4) @ shape.placement.matrix()
                for coordinate in range(3):  # one at a time: poses may be many
                    along = shape.surface.outermost @ T[:, coordinate, :3].T + T[:, coordinate, 3]
                    low[coordinate] = min(low[coordinate], along.min())
                    high[coordinate] = max(high[coordinate], along.max())
                continue
            centre = (T @ np.append(shape.placement.p, 1.0))[..., :3].reshape(-1, 3)
            reach = shape.reach(T[..., :3, :3]).reshape(-1, 3)
            low, high = (
                np.minimum(low, (centre - reach).min(axis=0)),
                np.maximum(high, (centre + reach).max(axis=0)),
            )
        if not np.all(np.isfinite(low)):
            return np.full(3, -0.5), np.full(3, 0.5)
        return low, high


def draw(model: Model, roots: Roots = (), most: int = PAGE_TRIANGLES) -> Drawing:
    """The drawing of a robot. Meshes are read from the robot's folder or `roots` (as in
    `Robot.with_collisions`), and have at most `most` triangles together; links that have nothing
    that can be drawn get capsules between joints, or boxes.
    """
    description = {link.name: link for link in model.description.links}
    links = [f.name for f in model.frames.values() if f.kind == "link"]
    visuals = [(name, v) for name in links for v in description[name].visuals]
    meshes = read_meshes([v for _, v in visuals], roots, most)
    shapes: list[Shape] = []
    refused = 0
    bare: list[str] = []  # links of whose looks nothing can be drawn
    for name in links:
        own = [
            shape
            for k, (link, v) in enumerate(visuals)
            if link == name and k in meshes.looks
            for shape in _of_mesh(model, name, v, meshes.looks[k])
        ]
        given = [v for v in description[name].visuals if v.shape in _COUNTS]
        if not own and not given:
            given = [v for v in _collisions(description[name]) if v.shape in _COUNTS]
        simple = [shape for v in given if (shape := _drawable(model, name, v)) is not None]
        refused += len(given) - len(simple)
        shapes += simple + own
        if any(v.shape == "mesh" for v in description[name].visuals) and not (simple or own):
            bare.append(name)
    drawn = {shape.body for shape in shapes} | {model.frames[name].body for name in bare}
    empty = [i for i in model.bodies if i not in drawn and model.inertias[i][0] > 0]
    bare += [
        f.name
        for f in model.frames.values()
        if f.kind == "link" and (f.body in empty or (not drawn and f.body == WORLD))
    ]
    stand_ins = list(_StandIns(model).draw(bare)) if bare else []
    return Drawing(
        (*shapes, *stand_ins), tuple(_notes(meshes, refused, len(empty), bool(stand_ins)))
    )


def _of_mesh(model: Model, link: str, visual: Visual, looks: Looks) -> Iterator[Shape]:
    frame = model.frames[link]
    placement = frame.placement @ visual.placement
    if all(abs(x) < _LARGEST for x in placement.p):
        for surface, color in looks.parts:
            own = color or _color(visual)
            yield Shape("mesh", (), placement, own, frame.body, link, surface=surface)


def _collisions(link: Link) -> tuple[Visual, ...]:
    return tuple(Visual(c.shape, c.size, c.placement) for c in link.collisions)


def _notes(meshes: Meshes, refused: int, empty: int, stand_ins: bool) -> Iterator[str]:
    count = len(meshes.problems)
    if count:
        how = "simple shapes stand for them" if stand_ins else "what is beside them is drawn"
        more = "; the first: " if count > 1 else ": "
        yield (
            f"{count} mesh{'es are' if count > 1 else ' is'} not drawn; {how}{more}"
            f"{meshes.problems[0]}"
        )
    elif empty and stand_ins:
        yield (
            "The description has no shapes for some bodies; simple ones, sized by mass and joint"
            " distances, stand for them."
        )
    if meshes.note:
        yield meshes.note
    if refused:
        yield (
            f"{refused} shape{'s' if refused > 1 else ''} without a positive, finite size"
            f" {'are' if refused > 1 else 'is'} left out."
        )


def _drawable(model: Model, link: str, visual: Visual) -> Shape | None:
    size, frame = visual.size, model.frames[link]
    if len(size) != _COUNTS[visual.shape] or not all(0 < x < _LARGEST for x in size):
        return None
    placement = frame.placement @ visual.placement
    if not all(abs(x) < _LARGEST for x in placement.p):
        return None
    return Shape(
        visual.shape, tuple(float(x) for x in size), placement, _color(visual), frame.body, link
    )


def _color(visual: Visual) -> Color:
    # some programs write 0 0 0 0 where there is no colour
    if visual.color is None or visual.color[3] <= 0:
        return PLAIN
    r, g, b, a = (min(max(float(x), 0.0), 1.0) for x in visual.color)
    return r, g, b, a


class _StandIns:
    """Shapes for links without any, from where their joints are and how heavy they are."""

    def __init__(self, model: Model):
        self.model = model
        self.links = {link.name: link for link in model.description.links}
        self.children: dict[str, list[JointDescription]] = {}
        for joint in model.description.joints:
            self.children.setdefault(joint.parent, []).append(joint)
        self.extent = self._extent()

    def _extent(self) -> float:
        """The diagonal of the box around all link frames and centres of mass, with the robot in its
        first posture.
        """
        poses = body_poses(self.model, posture(self.model))
        points = []
        for name, link in self.links.items():
            frame = self.model.frames[name]
            T = poses[frame.body] @ frame.placement.matrix()
            points += [T[:3, 3], (T @ np.append(link.com, 1.0))[:3]]
        span = float(np.linalg.norm(np.ptp(np.array(points), axis=0)))
        return span if 1e-6 < span < _LARGEST else 1.0

    def draw(self, names: list[str]) -> Iterator[Shape]:
        for name in names:
            yield from self._link(name)
        for i, joint in enumerate(self.model.joints):
            hub = joint.kind.hub
            if self.model.body_names[i] in names and hub is not None:
                radius = 1.25 * self._radius(
                    self.model.inertias[i][0], self._length(self.model.body_names[i])
                )
                size = (radius,) if hub == "sphere" else (radius, 2.2 * radius)
                placement = IDENTITY_POSE if hub == "sphere" else along(joint.axis)
                yield Shape(hub, size, placement, HUB, i, self.model.body_names[i])

    def _ends(self, name: str) -> list[np.ndarray]:
        """Where a link leads to: its children's joints, or twice as far as its centre of mass."""
        near = 1e-3 * self.extent
        ends = [np.array(j.placement.p) for j in self.children.get(name, ())]
        ends = [p for p in ends if near < np.linalg.norm(p) < _LARGEST]
        com = np.array(self.links[name].com)
        if not ends and near < np.linalg.norm(com) < _LARGEST and self.links[name].mass > 0:
            ends = [2 * com]
        return ends

    def _length(self, name: str) -> float:
        return max((float(np.linalg.norm(p)) for p in self._ends(name)), default=0.0)

    def _radius(self, mass: float, length: float) -> float:
        """That of a round bar of this mass and length, within what looks like a robot."""
        radius = (
            math.sqrt(mass / (math.pi * _DENSITY * length))
            if length > 0
            else (mass / (8 * _DENSITY)) ** (1 / 3)
        )
        widest = min(0.08 * self.extent, 0.3 * length if length > 0 else math.inf)
        return max(min(radius, widest), 0.012 * self.extent)

    def _link(self, name: str) -> Iterator[Shape]:
        link, frame, ends = self.links[name], self.model.frames[name], self._ends(name)
        radius = self._radius(link.mass, self._length(name))

        def shape(kind: str, size: tuple[float, ...], placement: Pose) -> Shape:
            return Shape(kind, size, frame.placement @ placement, STAND_IN, frame.body, name)

        if len(ends) >= 3:  # a trunk or a palm
            low, high = (
                np.min([*ends, np.zeros(3)], axis=0) - radius,
                np.max([*ends, np.zeros(3)], axis=0) + radius,
            )
            yield shape(
                "box",
                tuple((high - low).tolist()),
                Pose(IDENTITY_POSE.R, tuple(((low + high) / 2).tolist())),
            )
        elif ends:
            for end in ends:
                length = float(np.linalg.norm(end))
                yield shape(
                    "capsule",
                    (radius, length),
                    Pose(along(end / length).R, tuple((end / 2).tolist())),
                )
        elif link.mass > 0 or frame.body == WORLD:
            at = tuple(float(x) if abs(x) < _LARGEST else 0.0 for x in link.com)
            yield shape("box", (2 * radius,) * 3, Pose(IDENTITY_POSE.R, at))


def along(axis: np.ndarray | tuple[float, ...]) -> Pose:
    """A placement whose z axis points along a unit vector."""
    z = np.asarray(axis, dtype=float)
    x = np.cross(np.eye(3)[int(np.argmin(np.abs(z)))], z)
    x /= np.linalg.norm(x)
    columns = np.column_stack([x, np.cross(z, x), z])
    return Pose(tuple(tuple(row) for row in columns.tolist()), (0.0, 0.0, 0.0))
