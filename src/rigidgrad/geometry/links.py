"""What a robot's links are as balls, capsules and boxes: exactly where they are such, covered with
a stated error where they are cylinders or meshes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelWarning, unknown_name
from rigidgrad.geometry.files import Roots, mesh_file
from rigidgrad.geometry.meshes import Triangles, read_mesh, triangles
from rigidgrad.geometry.scene import bounding_ball
from rigidgrad.geometry.shapes import (
    LARGEST,
    Box,
    Capsule,
    Covering,
    Cylinder as CylinderShape,
    Ellipsoid,
    HeightField,
    Mesh,
    Plane,
    Shape,
    Sphere,
)
from rigidgrad.geometry.surfaces import SIDES, round_prism
from rigidgrad.model.description import Collision
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.pose import Pose

_GROUND = ("plane", "hfield")  # which no link can be
LINK_ERROR = 0.02  # metres that the cover of a link may stick out, unless said


@dataclass(frozen=True)
class Element:
    """All that is within `radius` of the segment from `start` to `end`, in the frame of the body; a
    ball where these are the same.
    """

    radius: float
    start: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def is_ball(self) -> bool:
        return self.start == self.end

    @property
    def is_box(self) -> bool:
        return False

    @property
    def numbers(self) -> int:
        """How many place it: its centre, and of a capsule the way from end to end."""
        return 3 if self.is_ball else 6


@dataclass(frozen=True)
class BoxElement:
    """A box in the frame of the body: its middle, the matrix that turns its axes into those of the
    body, row by row, and its half lengths.
    """

    center: tuple[float, ...]
    rotation: tuple[tuple[float, ...], ...]
    half: tuple[float, ...]

    @property
    def is_ball(self) -> bool:
        return False

    @property
    def is_box(self) -> bool:
        return True

    @property
    def radius(self) -> float:
        """Of the ball around it."""
        return float(np.linalg.norm(self.half))

    @property
    def numbers(self) -> int:
        """How many place it: its middle and its rotation."""
        return 12


@dataclass(frozen=True)
class Cylinder:
    """Along z, about the origin."""

    radius: float
    length: float

    def __post_init__(self) -> None:
        if not (0 < self.radius < LARGEST and 0 < self.length < LARGEST):
            raise InputError(
                f"a cylinder has a positive radius and length, not {self.radius!r} and"
                f" {self.length!r}"
            )


@dataclass(frozen=True)
class Prism:
    """What stands for a cylinder while it is covered: it sticks out by `extra` metres itself."""

    surface: Triangles
    extra: float


@dataclass(frozen=True)
class LinkShape:
    """A link's elements, balls first and boxes last, in the frame of the body that it is fixed to;
    a ball around them; and by how much they stick out of what the file describes.
    """

    link: str
    body: int
    elements: tuple[Element | BoxElement, ...]
    error: float
    center: tuple[float, ...] = field(init=False)
    reach: float = field(init=False)

    def __post_init__(self) -> None:
        balls = [ball for e in self.elements for ball in _balls(e)]
        center, reach = bounding_ball(
            np.array([at for at, _ in balls]), np.array([radius for _, radius in balls])
        )
        object.__setattr__(self, "center", tuple(center.tolist()))
        object.__setattr__(self, "reach", reach)


def link_shapes(
    model: Model,
    error: float,
    covering: Covering,
    roots: Roots = (),
    shapes: Mapping[str, Any] | None = None,
) -> tuple[LinkShape, ...]:
    """Of all links that have solids. `shapes` has solids of links in place of those of the file, in
    the links' frames: {"link": [rg.Capsule(…)]}, or [] for none.
    """
    given = dict(shapes or {})
    links = {link.name: link for link in model.description.links}
    for name in given:
        if name not in links:
            raise unknown_name("link", name, links)
    found: list[LinkShape] = []
    left_out: list[str] = []
    opened: list[str] = []
    for name, link in links.items():
        frame = model.frames[name]
        solids = (
            _given(name, given[name])
            if name in given
            else _described(name, link.collisions, roots, left_out)
        )
        elements: list[Element | BoxElement] = []
        worst = 0.0
        for solid, place in solids:
            if isinstance(solid, Triangles) and solid.open_edges:
                opened.append(f"{name} ({solid.open_edges} edges lack a neighbour)")
            own, sticks_out = _elements(solid, frame.placement @ place, error, covering)
            elements += own
            worst = max(worst, sticks_out)
        if elements:
            elements.sort(key=lambda e: (e.is_box, not e.is_ball))
            found.append(LinkShape(name, frame.body, tuple(elements), worst))
    if left_out:
        warnings.warn(
            f"these have no part in collisions: {', '.join(left_out)}. What is fixed to the world is"
            " in robot.collisions.scene, which calls take as their scene; give other links shapes of"
            " their own",
            ModelWarning,
            stacklevel=4,
        )
    if opened:
        warnings.warn(
            f"meshes of these links are open and have no inside: {', '.join(opened)}. Their"
            " triangles are covered, and what is wholly inside touches nothing; close them, or give"
            " these links shapes of your own",
            ModelWarning,
            stacklevel=4,
        )
    return tuple(found)


def ground_of(model: Model) -> list[Shape]:
    """Planes and height fields of the file that are fixed to the world, named after their link."""
    found: list[Shape] = []
    for name, link in ((link.name, link) for link in model.description.links):
        frame = model.frames[name]
        for c in link.collisions if frame.body == WORLD else ():
            at = frame.placement @ c.placement
            own = f"{c.shape} {len(found)} of {name}"
            if c.shape == "plane":
                normal = np.array(at.R)[:, 2]
                found.append(Plane(normal, float(normal @ at.p), own))
            elif c.shape == "hfield" and c.numbers is not None:
                x, y, base, rows = c.size
                heights = np.frombuffer(c.numbers[0], np.float64).reshape(int(rows), -1)
                found.append(HeightField(heights, (x, y), at, base, name=own))
    return found


def _balls(e: Element | BoxElement) -> list[tuple[tuple[float, ...], float]]:
    """Whose convex hull it is."""
    if isinstance(e, Element):
        return [(e.start, e.radius), (e.end, e.radius)]
    R, middle = np.array(e.rotation), np.array(e.center)
    corners = np.array(list(product((-1.0, 1.0), repeat=3))) * e.half
    return [(tuple(p), 0.0) for p in (corners @ R.T + middle).tolist()]


def _given(link: str, shapes: Any) -> Iterator[tuple[Any, Pose]]:
    for shape in [shapes] if isinstance(shapes, Shape) else shapes:
        solid = isinstance(shape, Sphere | Capsule | Box | Mesh)
        if not solid or isinstance(shape, HeightField):
            raise InputError(
                f"the shapes of link {link!r} are rg.Sphere, rg.Capsule, rg.Box, rg.Cylinder,"
                f" rg.Ellipsoid or rg.Mesh, not {type(shape).__name__}"
            )
        if isinstance(shape, CylinderShape):
            yield Cylinder(shape.radius, shape.length), shape.pose
            continue
        yield shape, Pose(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0))


def _described(
    link: str, collisions: tuple[Collision, ...], roots: Roots, left_out: list[str]
) -> Iterator[tuple[Any, Pose]]:
    for c in _joined(collisions):
        if c.shape in _GROUND:
            left_out.append(f"{c.shape} of {link!r}")
            continue
        if c.problem is not None:
            raise InputError(
                f"a collision shape cannot be read: {c.problem}; or give link {link!r} shapes of"
                " your own"
            )
        try:
            yield _solid(c, roots), c.placement
        except InputError as error:
            raise InputError(f"link {link!r}: {error}") from None


def _joined(collisions: tuple[Collision, ...]) -> list[Collision]:
    """With a capsule in place of a cylinder that has a ball of its radius at either end, as URDF,
    which has no capsules, writes them.
    """
    rest = list(collisions)
    for c in [c for c in collisions if c.shape == "cylinder"]:
        half = np.array(c.placement.R)[:, 2] * c.size[1] / 2
        ends = [
            _ball_at(rest, np.array(c.placement.p) + side * half, c.size[0]) for side in (-1, 1)
        ]
        if all(end is not None for end in ends):
            rest = [
                replace(c, shape="capsule") if x is c else x
                for x in rest
                if not any(x is end for end in ends)
            ]
    return rest


def _ball_at(collisions: list[Collision], p: np.ndarray, radius: float) -> Collision | None:
    near = (
        c
        for c in collisions
        if c.shape == "sphere"
        and abs(c.size[0] - radius) < 1e-9
        and np.abs(np.array(c.placement.p) - p).max() < 1e-6
    )
    return next(near, None)


def _solid(c: Collision, roots: Roots) -> Any:
    match c.shape:
        case "sphere":
            return Sphere(c.size[0])
        case "capsule":
            return Capsule(c.size[0], c.size[1])
        case "box":
            return Box(c.size)
        case "cylinder":
            return Cylinder(*c.size)
        case "ellipsoid":
            return Ellipsoid(c.size)
    if c.numbers is not None:
        vertices, faces = (
            np.frombuffer(c.numbers[0], np.float64),
            np.frombuffer(c.numbers[1], np.int32),
        )
        return triangles(vertices.reshape(-1, 3), faces.reshape(-1, 3), "its mesh").scaled(
            np.array(c.size)
        )
    assert c.mesh is not None
    return read_mesh(mesh_file(c.mesh, c.folder, roots)).scaled(np.array(c.size))


def _elements(
    solid: Any, place: Pose, error: float, covering: Covering
) -> tuple[list[Element] | list[BoxElement], float]:
    R, p = np.array(place.R), np.array(place.p)
    extra = 0.0

    def moved(x: np.ndarray) -> tuple[float, ...]:
        return tuple((R @ x + p).tolist())

    match solid:
        case Sphere():
            return [Element(solid.radius, moved(solid.center), moved(solid.center))], 0.0
        case Capsule():
            return [Element(solid.radius, moved(solid.start), moved(solid.end))], 0.0
        case Box():
            turned = R @ np.array(solid.pose.R)
            rows = tuple(tuple(row) for row in turned.tolist())
            half = tuple((np.array(solid.size) / 2).tolist())
            return [BoxElement(moved(np.array(solid.pose.p)), rows, half)], 0.0
        case Ellipsoid():
            turn, at = np.array(solid.pose.R), np.array(solid.pose.p)
            cover = Ellipsoid(solid.radii, error=error).cover(covering)
            return [
                Element(float(r), moved(turn @ c + at), moved(turn @ c + at))
                for c, r in zip(cover.centers, cover.radii, strict=True)
            ], cover.error
        case Mesh():
            surface = solid.triangles.moved(np.array(solid.pose.R), np.array(solid.pose.p))
        case Cylinder(radius, length):
            thin = _around_thin(solid, error)
            if thin is not None:
                end = np.array((0.0, 0.0, thin[1]))
                return [Element(thin[0], moved(-end), moved(end))], thin[2]
            around = prism(radius, length)
            surface, extra = around.surface, around.extra
        case _:
            surface = solid
    found = covering(surface, error)
    return [
        Element(float(r), moved(c), moved(c))
        for c, r in zip(found.centers, found.radii, strict=True)
    ], found.error + extra


def _around_thin(solid: Cylinder, error: float) -> tuple[float, float, float] | None:
    """Radius, half length of the segment, and error of one capsule around a cylinder; None where
    that sticks out too far.

    With R = r + e the rim, at (r, l/2), is within R of the end of the segment where that is √(R² -
    r²) before the cylinder's, or nearer; the cap then sticks out by R - √(R² - r²).
    """
    R = solid.radius + error
    inset = min(float(np.sqrt(R * R - solid.radius**2)), solid.length / 2)
    return (R, solid.length / 2 - inset, max(error, R - inset)) if R - inset <= error else None


def box_surface(lengths: Any) -> Triangles:
    corners = np.array(
        [(x, y, z) for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)]
    ) * np.asarray(lengths)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    return triangles(corners, np.array(faces), "a box")


def prism(radius: float, length: float) -> Prism:
    """Around a cylinder along z, whose sides touch it."""
    outer = radius / np.cos(np.pi / SIDES)
    return Prism(round_prism(outer, length), outer - radius)
