"""Shapes that users put into a scene or on a link: what they are made of, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.meshes import Triangles, read_mesh
from rigidgrad.model.pose import IDENTITY_POSE, Pose, as_pose

LARGEST = 1e4  # metres, of coordinates and sizes: beyond it single precision has less than a millimetre
MOST_POINTS = 5_000_000
COVER_ERROR = 0.01  # metres that the cover of a mesh may stick out, unless said


class Shape:
    """A solid in the world."""

    name: str | None

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass
class Sphere(Shape):
    """A ball: radius in metres, centre (3,)."""

    radius: float
    center: Any = (0.0, 0.0, 0.0)
    name: str | None = None

    def __post_init__(self) -> None:
        self.radius = size("the radius of a sphere", self.radius)
        self.center = point("the centre of a sphere", self.center)


@dataclass
class Box(Shape):
    """A box: its whole lengths along its own axes (3,), and where its middle is: a position (3,), a matrix (4, 4) or a Pose."""

    size: Any
    pose: Any = IDENTITY_POSE
    name: str | None = None

    def __post_init__(self) -> None:
        self.size = sizes("the lengths of a box", self.size, 3)
        self.pose = place("the pose of a box", self.pose)


@dataclass
class Capsule(Shape):
    """All that is within `radius` of the segment of `length` along the z axis of `pose`, whose origin is its middle; or, with `start` and `end` (3,) instead, of that between two points."""

    radius: float
    length: float | None = None
    pose: Any = IDENTITY_POSE
    start: Any = None
    end: Any = None
    name: str | None = None

    def __post_init__(self) -> None:
        self.radius = size("the radius of a capsule", self.radius)
        if (self.length is None) == (self.start is None) or (self.start is None) != (self.end is None):
            raise InputError("a capsule has a length and a pose, or a start and an end")
        if self.length is not None:
            half = size("the length of a capsule", self.length) / 2
            self.pose = place("the pose of a capsule", self.pose)
            axis, middle = np.array(self.pose.R)[:, 2], np.array(self.pose.p)
            self.start, self.end = middle - half * axis, middle + half * axis
        else:
            self.start, self.end = point("the start of a capsule", self.start), point("the end of a capsule", self.end)


@dataclass
class Plane(Shape):
    """All that is below a plane: the points x with normal · x ≤ offset. The normal (3,) points out of the solid and has any length; `offset` is in metres along it."""

    normal: Any = (0.0, 0.0, 1.0)
    offset: float = 0.0
    name: str | None = None

    def __post_init__(self) -> None:
        normal = point("the normal of a plane", self.normal)
        length = math.sqrt(float(normal @ normal))
        if length < 1e-9:
            raise InputError("the normal of a plane has no direction: it is zero")
        self.normal = normal / length
        self.offset = float(point("the offset of a plane", (self.offset, 0.0, 0.0))[0])


@dataclass
class Mesh(Shape):
    """A closed surface of triangles, covered by spheres that stick out of it by at most `error` metres.

    `path` is an STL or OBJ file (others with `pip install trimesh`), or (vertices (n, 3), faces (m, 3)). The cover holds the whole solid, so a distance to it is never more than that to the mesh, and never less by
    more than `error`. An open surface has no inside and is an error.
    """

    path: Any
    pose: Any = IDENTITY_POSE
    scale: Any = 1.0
    error: float = COVER_ERROR
    name: str | None = None
    triangles: Triangles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.pose = place("the pose of a mesh", self.pose)
        self.error = size("the error of a cover", self.error)
        scale = np.broadcast_to(np.asarray(self.scale, dtype=float), (3,)) if np.size(self.scale) in (1, 3) else np.full(3, np.nan)
        if not (np.all(np.isfinite(scale)) and np.all(scale != 0)):
            raise InputError(f"the scale of a mesh is one number or three, not zero; this is {self.scale!r}")
        self.triangles = read_mesh(self.path).scaled(scale)
        self.triangles.check_closed()


@dataclass
class Points(Shape):
    """A cloud: balls of one radius, or one radius each, around points (n, 3). Points that are NaN are what a camera did not see; `drop_nan=True` leaves them out."""

    xyz: Any
    radius: Any = 0.0
    drop_nan: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        xyz = numbers("the points of a cloud", self.xyz)
        if xyz.ndim != 2 or xyz.shape[1] != 3 or not len(xyz):
            raise InputError(f"the points of a cloud are rows of three numbers, one at least; this has shape {xyz.shape}")
        if len(xyz) > MOST_POINTS:
            raise InputError(
                f"a cloud has at most {MOST_POINTS} points, not {len(xyz)}: thin it out, one point every few millimetres is enough"
            )
        radius = (
            np.broadcast_to(numbers("the radius of a cloud", self.radius), len(xyz)).copy()
            if np.ndim(self.radius) < 2 and np.size(self.radius) in (1, len(xyz))
            else None
        )
        if radius is None or not np.all((radius >= 0) & (radius < LARGEST)):
            raise InputError("the radius of a cloud is one number, or one for each point, not negative")
        seen = np.isfinite(xyz).all(axis=1)
        if not seen.all():
            if not self.drop_nan:
                first = int(np.flatnonzero(~seen)[0])
                raise InputError(
                    f"{int((~seen).sum())} points of a cloud are NaN or infinite, first in row {first}: pass drop_nan=True to leave them out"
                )
            xyz, radius = xyz[seen], radius[seen]
            if not len(xyz):
                raise InputError("all points of a cloud are NaN or infinite")
        if np.abs(xyz).max() > LARGEST:
            raise InputError(f"points of a cloud are further away than {LARGEST:g} m: are they in millimetres?")
        self.xyz, self.radius = xyz, radius


# --- checks ----------------------------------------------------------------------------------------------------------------------


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
