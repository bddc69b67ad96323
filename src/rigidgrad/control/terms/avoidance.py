"""Links that stay out of a scene: the balls and capsules of a robot against boxes, balls, capsules, planes and covered meshes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Vector
from rigidgrad.collisions.covers import covered
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import System
from rigidgrad.control.terms.constraint import Bounds
from rigidgrad.control.terms.limit import Limit
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.geometry import closest
from rigidgrad.geometry.closest import Nearest
from rigidgrad.geometry.links import Element, LinkShape
from rigidgrad.geometry.scene import Scene
from rigidgrad.geometry.shapes import Box, Capsule, Mesh, Plane, Shape, Sphere
from rigidgrad.model.model import WORLD, Frame
from rigidgrad.model.pose import IDENTITY_POSE
from rigidgrad.scalars import add
from rigidgrad.spatial import add3, cross3, dot3, rotate_back, sub3

_MOST = 3000  # pairs of an element and a solid: each is some 40 to 300 operations at every knot


class Solids(NamedTuple):
    """An object of a scene: the kind of its solids, and the numbers of each."""

    name: str
    kind: int
    rows: np.ndarray


class Avoidance(Limit):
    """The distance between each link that moves and each object of a scene, in metres, negative inside: the least of those of its balls and capsules.

    The target is the numbers of all solids. Which solids there are, and what the links are, is compiled.
    """

    def key(self) -> str:
        solids = [(s.name, s.kind, len(s.rows)) for s in self._solids()]
        return f"Avoidance {solids} {self._shape}"

    def __init__(self, limits: Any):
        super().__init__(limits)
        self._known: tuple[Scene, list[Solids]] | None = None
        self._shape = ""

    def size(self, system: System) -> int:
        return len(self._links(system)) * len(self._solids())

    def target_size(self, system: System) -> int:
        self._links(system)
        return sum(s.rows.size for s in self._solids())

    def targets(self, system: System, knots: int) -> np.ndarray:
        row = np.concatenate([s.rows.ravel() for s in self._solids()])
        return np.repeat(row[None], knots, axis=0)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return tuple(found[0] for _, found, _ in self._nearest(system, x, target))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "a scene")
        rows = []
        for _, (_, n, point), columns in self._nearest(system, x, target):
            moment = cross3(point, n)
            rows.append((*(add(dot3(n, c[:3]), dot3(moment, c[3:])) for c in columns), *((0.0,) * robot.nv)))
        return tuple(rows), None

    def asked(self, system: System, knots: int) -> Bounds:
        lower = numbers("clearance", self.limits.clearance, (knots, self.size(system)))
        if (lower < 0).any():
            raise InputError(f"clearance is a distance to keep, so it is not negative; this is {self.limits.clearance!r}")
        return lower, np.full(lower.shape, np.inf)

    def start_text(self, system: System, k: int, c: float) -> str:
        link, solid = divmod(k, len(self._solids()))
        return f"at the start, link {self._links(system)[link].link!r} is {c:.3g} m from {self._solids()[solid].name!r}, less than the clearance"

    # --- what is compared --------------------------------------------------------------------------------------------------------

    def _links(self, system: System) -> list[LinkShape]:
        robot = robot_of(system, "a scene")
        links = [link for link in robot.robot.collisions.links if link.body != WORLD]
        if not links:
            raise InputError(f"{system.name!r} has no collision shapes on links that move: give it some, robot.with_collisions(shapes=…)")
        count = sum(len(link.elements) for link in links) * sum(len(s.rows) for s in self._solids())
        if count > _MOST:
            raise InputError(
                f"a problem compares at most {_MOST} pairs of a link's ball or capsule and a solid, this would be {count}: allow a larger error (robot.with_collisions(error=…), rg.Mesh(…, error=…)), or leave out what is far away"
            )
        self._shape = hashlib.sha256(repr(links).encode()).hexdigest()
        return links

    def _solids(self) -> list[Solids]:
        scene = self.limits.scene
        if self._known is None or self._known[0] is not scene:
            self._known = scene, [_solids(name, scene[name]) for name in scene.names]
        return self._known[1]

    def _nearest(self, system: System, x: Vector, target: Vector) -> Iterator[tuple[str, Nearest, list[Vector]]]:
        """For each pair: its link, (d, n, x), and the columns of the link's Jacobian at the world's origin, linear first."""
        robot = robot_of(system, "a scene")
        q = robot.split(x)[0]
        for link in self._links(system):
            frame = Frame(link.link, link.body, IDENTITY_POSE, "link")
            X = kinematics.frame_transform(robot.model, q, frame)
            columns = list(zip(*kinematics.jacobian(robot.model, q, frame, "spatial"), strict=True))
            placed = [(e, add3(X.r, rotate_back(X.E, e.start)), rotate_back(X.E, sub3(e.end, e.start))) for e in link.elements]
            first = 0
            for solid in self._solids():
                best: Nearest | None = None
                for _ in solid.rows:
                    own = target[first : first + solid.rows.shape[1]]
                    first += len(own)
                    for e, a, d in placed:
                        found = _between(e, a, d, solid.kind, own)
                        best = found if best is None else closest.nearer(found, best)
                assert best is not None
                yield link.link, best, columns


def _solids(name: str, shape: Shape) -> Solids:
    match shape:
        case Sphere():
            return Solids(name, 0, np.array([[*shape.center, shape.radius]]))
        case Capsule():
            return Solids(name, 1, np.array([[*shape.start, *(shape.end - shape.start), shape.radius]]))
        case Box():
            return Solids(name, 2, np.concatenate([shape.pose.p, np.ravel(shape.pose.R), shape.size / 2])[None])
        case Plane():
            return Solids(name, 3, np.array([[*shape.normal, shape.offset]]))
        case Mesh():
            cover = covered(shape.triangles, shape.error)
            centers = cover.centers @ np.array(shape.pose.R).T + np.array(shape.pose.p)
            return Solids(name, 0, np.column_stack([centers, cover.radii]))
    raise InputError(
        f"{name!r}: a problem's scene holds boxes, spheres, capsules, planes and meshes, not {type(shape).__name__}: pass a few spheres around a cloud"
    )


def _between(e: Element, a: Vector, d: Vector, kind: int, own: Vector) -> Nearest:
    """Of an element, whose segment is a + t d, and a solid."""
    if kind == 2:
        box = own[:3], (own[3:6], own[6:9], own[9:12]), own[12:]
        found = closest.point_box(a, *box) if e.is_ball else closest.segment_box(a, d, *box)
    elif kind == 3:
        found = closest.point_plane(a, own[:3], own[3]) if e.is_ball else closest.segment_plane(a, d, own[:3], own[3])
    elif kind == 1:
        c, way = own[:3], own[3:6]
        found = closest.points(a, closest.on_segment(c, way, a)) if e.is_ball else closest.segments(a, d, c, way)
        found = found[0] - own[6], *found[1:]
    else:
        found = closest.points(a, own[:3]) if e.is_ball else closest.segment_point(a, d, own[:3])
        found = found[0] - own[3], *found[1:]
    return found[0] - e.radius, found[1], found[2]
