"""Shapes that users put into a scene or on a link: what they are made of, checked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.errors import InputError
from rigidgrad.geometry.cover import Cover
from rigidgrad.geometry.meshes import Triangles, read_mesh
from rigidgrad.geometry.octree import filled
from rigidgrad.geometry.surfaces import around_ellipsoid, field_surface, round_prism
from rigidgrad.model.pose import IDENTITY_POSE, Placement, Pose, as_pose

LARGEST = (
    1e4  # metres, of coordinates and sizes: beyond it single precision has less than a millimetre
)
MOST_POINTS = 5_000_000
Covering = Callable[[Triangles, float], Cover]
COVER_ERROR = 0.01  # metres that the cover of a mesh may stick out, unless said

# defaults as users would write them; `__post_init__` makes arrays of them
_ORIGIN: Any = (0.0, 0.0, 0.0)
_UP: Any = (0.0, 0.0, 1.0)
_ZERO: Any = 0.0
_NONE: Any = None


class Shape:
    """A solid in the world."""

    name: str | None

    @property
    def kind(self) -> str:
        """What kind of shape it is, in lower case: "box", "sphere", …"""
        return type(self).__name__.lower()


@dataclass
class Sphere(Shape):
    """A ball."""

    radius: float
    """In metres."""
    center: np.ndarray = _ORIGIN
    """In the world (3,), in metres."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self, radius: float, center: ArrayLike = ..., name: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        self.radius = size("the radius of a sphere", self.radius)
        self.center = point("the centre of a sphere", self.center)


@dataclass
class Box(Shape):
    """A box."""

    size: np.ndarray
    """Whole lengths along the box' own axes (3,), in metres."""
    pose: Pose = IDENTITY_POSE
    """Where its middle is: a position (3,), a matrix (4, 4) or a Pose."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self, size: ArrayLike, pose: Placement = ..., name: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        self.size = sizes("the lengths of a box", self.size, 3)
        self.pose = place("the pose of a box", self.pose)


@dataclass
class Capsule(Shape):
    """All that is within `radius` of a segment."""

    radius: float
    """In metres."""
    length: float | None = None
    """Of the segment, without the round ends; or give `start` and `end`."""
    pose: Pose = IDENTITY_POSE
    """Its origin is the middle of the segment, which lies along its z axis."""
    start: np.ndarray = _NONE
    """One end of the segment (3,), instead of `length` and `pose`."""
    end: np.ndarray = _NONE
    """The other end (3,)."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self,
            radius: float,
            length: float | None = None,
            pose: Placement = ...,
            start: ArrayLike | None = None,
            end: ArrayLike | None = None,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self.radius = size("the radius of a capsule", self.radius)
        if (self.length is None) == (self.start is None) or (self.start is None) != (
            self.end is None
        ):
            raise InputError("a capsule has a length and a pose, or a start and an end")
        if self.length is not None:
            half = size("the length of a capsule", self.length) / 2
            self.pose = place("the pose of a capsule", self.pose)
            axis, middle = np.array(self.pose.R)[:, 2], np.array(self.pose.p)
            self.start, self.end = middle - half * axis, middle + half * axis
        else:
            self.start, self.end = (
                point("the start of a capsule", self.start),
                point("the end of a capsule", self.end),
            )


@dataclass
class Plane(Shape):
    """All that is below a plane: the points x with normal · x ≤ offset."""

    normal: np.ndarray = _UP
    """Points out of the solid (3,); of any length."""
    offset: float = 0.0
    """Metres from the origin along the normal."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self, normal: ArrayLike = ..., offset: float = 0.0, name: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        normal = point("the normal of a plane", self.normal)
        length = math.sqrt(float(normal @ normal))
        if length < 1e-9:
            raise InputError("the normal of a plane has no direction: it is zero")
        self.normal = normal / length
        self.offset = float(point("the offset of a plane", (self.offset, 0.0, 0.0))[0])


@dataclass
class Mesh(Shape):
    """A closed surface of triangles, covered by spheres.

    The cover holds the whole solid, so a distance to it is never more than that to the mesh, and
    never less by more than `error`. An open surface has no inside and is an error.
    """

    path: str | os.PathLike[str] | tuple[ArrayLike, ArrayLike] | None
    """An STL, OBJ or COLLADA file (others with trimesh), or (vertices (n, 3), faces (m, 3)).
    """
    pose: Pose = IDENTITY_POSE
    """Where the mesh' own origin is."""
    scale: ArrayLike = 1.0
    """Of coordinates: one number or three, not zero."""
    error: float = COVER_ERROR
    """Metres by which the spheres that cover it stick out, at most."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""
    triangles: Triangles = field(init=False, repr=False)
    """What was read, scaled."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self,
            path: str | os.PathLike[str] | tuple[ArrayLike, ArrayLike],
            pose: Placement = ...,
            scale: ArrayLike = 1.0,
            error: float = ...,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self.pose = place("the pose of a mesh", self.pose)
        self.error = size("the error of a cover", self.error)
        scale = (
            np.broadcast_to(np.asarray(self.scale, dtype=float), (3,))
            if np.size(self.scale) in (1, 3)
            else np.full(3, np.nan)
        )
        if not (np.all(np.isfinite(scale)) and np.all(scale != 0)):
            raise InputError(
                f"the scale of a mesh is one number or three, not zero; this is {self.scale!r}"
            )
        self.triangles = read_mesh(self.path).scaled(scale)
        self.triangles.check_closed()

    def cover(self, covering: Covering) -> Cover:
        """Balls, in the shape's own axes."""
        return covering(self.triangles, self.error)


class Filled(Mesh):
    """A solid that knows how deep points are, and so is filled with balls; its triangles are for
    pictures.
    """

    def depth(self, points: np.ndarray) -> np.ndarray:
        """(n,) of points (n, 3) in its own axes, negative outside; of no larger size than the
        distance to its surface.
        """
        raise NotImplementedError

    def beyond(self, points: np.ndarray) -> np.ndarray:
        """How far points are outside, at most."""
        return np.asarray(np.maximum(-self.depth(points), 0.0))

    def cover(self, covering: Covering) -> Cover:
        if self.filling is None:
            low, high = (end(self.triangles.corners.reshape(-1, 3)) for end in (_low, _high))
            what = f"this {self.kind}"
            self.filling = filled(self.depth, self.beyond, low, high, self.error, what)
        return self.filling

    def _begin(self, pose: Any, error: Any, name: str | None) -> None:
        self.pose = place(f"the pose of a {self.kind}", pose)
        self.error = size("the error of a cover", error)
        self.name, self.filling = name, None
        self.path, self.scale = "", 1.0

    filling: Cover | None


class Cylinder(Filled):
    """A cylinder of `radius` and `length` along the z axis of `pose`, whose origin is its middle,
    covered by balls that stick out of it by at most `error` metres.
    """

    def __init__(
        self,
        radius: float,
        length: float,
        pose: Placement = IDENTITY_POSE,
        error: float = COVER_ERROR,
        name: str | None = None,
    ):
        self._begin(pose, error, name)
        self.radius = size("the radius of a cylinder", radius)
        self.length = size("the length of a cylinder", length)
        self.triangles = round_prism(self.radius, self.length)

    def __reduce__(self) -> Any:
        return Cylinder, (self.radius, self.length, self.pose, self.error, self.name)

    def __repr__(self) -> str:
        return f"Cylinder(radius={self.radius:g}, length={self.length:g})"

    def depth(self, points: np.ndarray) -> np.ndarray:
        wall = self.radius - np.hypot(points[:, 0], points[:, 1])
        cap = self.length / 2 - np.abs(points[:, 2])
        outside = np.hypot(np.minimum(wall, 0.0), np.minimum(cap, 0.0))
        found: np.ndarray = np.where(outside > 0, -outside, np.minimum(wall, cap))
        return found


class Ellipsoid(Mesh):
    """An ellipsoid with three `radii` along the axes of `pose`, about its origin, covered by balls
    that stick out of it by at most `error` metres.
    """

    def __init__(
        self,
        radii: ArrayLike,
        pose: Placement = IDENTITY_POSE,
        error: float = COVER_ERROR,
        name: str | None = None,
    ):
        self.pose = place("the pose of an ellipsoid", pose)
        self.error = size("the error of a cover", error)
        self.name, self.path, self.scale = name, "", 1.0
        self.radii = sizes("the radii of an ellipsoid", radii, 3)
        self.triangles, self._beyond = around_ellipsoid(self.radii, self.error / 4)

    def __reduce__(self) -> Any:
        return Ellipsoid, (self.radii, self.pose, self.error, self.name)

    def __repr__(self) -> str:
        return f"Ellipsoid(radii={self.radii.tolist()})"

    def cover(self, covering: Covering) -> Cover:
        found = covering(self.triangles, self.error - self._beyond)
        return Cover(found.centers, found.radii, found.error + self._beyond)


class HeightField(Filled):
    """Ground whose height is given on a grid: `heights` (rows, columns) in metres, over a rectangle
    of `size` (along x, along y) about the origin of `pose`, columns along x and rows along y; solid
    down to `base` metres under its lowest point. Between four points it is two triangles. Balls
    that stick out by at most `error` metres cover it.
    """

    def __init__(
        self,
        heights: ArrayLike,
        size: ArrayLike,
        pose: Placement = IDENTITY_POSE,
        base: float = 0.1,
        error: float = COVER_ERROR,
        name: str | None = None,
    ):
        self._begin(pose, error, name)
        self.heights = numbers("the heights of a height field", heights)
        if self.heights.ndim != 2 or min(self.heights.shape) < 2:
            raise InputError(
                "the heights of a height field are rows and columns, two of each at least; this"
                f" has shape {self.heights.shape}"
            )
        if not np.all(np.abs(self.heights) <= LARGEST):
            raise InputError("the heights of a height field are finite numbers of metres")
        self.size = sizes("the size of a height field", size, 2)
        self.base = float(sizes("the base of a height field", [base], 1)[0])
        rows, columns = self.heights.shape
        self._steps = self.size / (columns - 1, rows - 1)
        slope_x = np.abs(np.diff(self.heights, axis=1)).max() / self._steps[0]
        slope_y = np.abs(np.diff(self.heights, axis=0)).max() / self._steps[1]
        self._steep = math.sqrt(1.0 + float(slope_x) ** 2 + float(slope_y) ** 2)
        self._bottom = float(self.heights.min()) - self.base
        self.triangles = field_surface(self.heights, self.size, self._bottom)

    def __reduce__(self) -> Any:
        own = (self.heights, self.size, self.pose, self.base, self.error, self.name)
        return HeightField, own

    def __repr__(self) -> str:
        rows, columns = self.heights.shape
        return f"HeightField({rows} x {columns} heights)"

    def height(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """At places in its own axes; beyond its edges, that of the edge."""
        rows, columns = self.heights.shape
        s = np.clip((x + self.size[0] / 2) / self._steps[0], 0.0, columns - 1)
        t = np.clip((y + self.size[1] / 2) / self._steps[1], 0.0, rows - 1)
        i, j = (
            np.minimum(t.astype(int), rows - 2),
            np.minimum(s.astype(int), columns - 2),
        )
        s, t = s - j, t - i
        h = self.heights
        corner, across = h[i, j], h[i + 1, j + 1]
        low = corner + s * (h[i, j + 1] - corner) + t * (across - h[i, j + 1])
        high = corner + t * (h[i + 1, j] - corner) + s * (across - h[i + 1, j])
        found: np.ndarray = np.where(s >= t, low, high)
        return found

    def depth(self, points: np.ndarray) -> np.ndarray:
        """Straight down, divided by how steep it is at most; or from a side or the bottom."""
        x, y, z = points.T
        under = (self.height(x, y) - z) / self._steep
        sides = np.minimum(self.size[0] / 2 - np.abs(x), self.size[1] / 2 - np.abs(y))
        found: np.ndarray = np.minimum(np.minimum(under, sides), z - self._bottom)
        return found

    def beyond(self, points: np.ndarray) -> np.ndarray:
        x, y, z = points.T
        over, under = z - self.height(x, y), self._bottom - z
        aside = np.abs(points[:, :2]) - self.size / 2
        parts = np.column_stack([np.maximum(over, under), aside])
        return np.asarray(np.linalg.norm(np.maximum(parts, 0.0), axis=1))


def _low(points: np.ndarray) -> np.ndarray:
    return np.asarray(points.min(axis=0))


def _high(points: np.ndarray) -> np.ndarray:
    return np.asarray(points.max(axis=0))


@dataclass
class Points(Shape):
    """A cloud of balls around points."""

    xyz: np.ndarray
    """Points (n, 3), in metres."""
    radius: np.ndarray = _ZERO
    """Of the balls around them: one number, or one for each."""
    drop_nan: bool = False
    """Leaves points out that are NaN: what a camera did not see."""
    name: str | None = None
    """What a scene calls it; by its kind and number unless given."""

    if TYPE_CHECKING:  # what is taken; the fields are what becomes of it

        def __init__(
            self,
            xyz: ArrayLike,
            radius: ArrayLike = 0.0,
            drop_nan: bool = False,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        xyz = numbers("the points of a cloud", self.xyz)
        if xyz.ndim != 2 or xyz.shape[1] != 3 or not len(xyz):
            raise InputError(
                "the points of a cloud are rows of three numbers, one at least; this has shape"
                f" {xyz.shape}"
            )
        if len(xyz) > MOST_POINTS:
            raise InputError(
                f"a cloud has at most {MOST_POINTS} points, not {len(xyz)}: thin it out, one point"
                " every few millimetres is enough"
            )
        radius = (
            np.broadcast_to(numbers("the radius of a cloud", self.radius), len(xyz)).copy()
            if np.ndim(self.radius) < 2 and np.size(self.radius) in (1, len(xyz))
            else None
        )
        if radius is None or not np.all((radius >= 0) & (radius < LARGEST)):
            raise InputError(
                "the radius of a cloud is one number, or one for each point, not negative"
            )
        seen = np.isfinite(xyz).all(axis=1)
        if not seen.all():
            if not self.drop_nan:
                first = int(np.flatnonzero(~seen)[0])
                raise InputError(
                    f"{int((~seen).sum())} points of a cloud are NaN or infinite, first in row"
                    f" {first}: pass drop_nan=True to leave them out"
                )
            xyz, radius = xyz[seen], radius[seen]
            if not len(xyz):
                raise InputError("all points of a cloud are NaN or infinite")
        if np.abs(xyz).max() > LARGEST:
            raise InputError(
                f"points of a cloud are further away than {LARGEST:g} m: are they in millimetres?"
            )
        self.xyz, self.radius = xyz, radius


# --- checks ---------------------------------------------------------------------------------------


def numbers(what: str, x: Any) -> np.ndarray:
    try:
        return np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what}: numbers are expected, not {x!r}") from None


def point(what: str, x: Any) -> np.ndarray:
    found = numbers(what, x)
    if found.shape != (3,) or not np.all(np.abs(found) <= LARGEST):
        raise InputError(f"{what} is three finite numbers in metres, not {x!r}")
    return found


def sizes(what: str, x: Any, count: int) -> np.ndarray:
    found = numbers(what, x)
    if found.shape != (count,) or not np.all((found > 0) & (found <= LARGEST)):
        raise InputError(f"{what}: {count} positive numbers in metres are expected, not {x!r}")
    return found


def size(what: str, x: Any) -> float:
    found = numbers(what, x)
    if found.shape != () or not 0 < float(found) <= LARGEST:
        raise InputError(f"{what} is a positive number of metres, not {x!r}")
    return float(found)


def place(what: str, pose: Any) -> Pose:
    try:
        found = as_pose(pose)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    if not all(abs(x) <= LARGEST for x in found.p):
        raise InputError(f"{what} is further away than {LARGEST:g} m")
    return found
