"""Pinocchio and coal as the judge of what touches: a robot's balls, capsules and boxes against a
scene's own shapes, one state a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import coal
import numpy as np
import pinocchio as pin

import rigidgrad as rg
from rigidgrad.geometry.links import BoxElement, Element
from rigidgrad.planning.space import Space


class Peer:
    """The links of a robot as covered, against boxes, balls, capsules, planes and meshes of a
    scene; with `objects`, pairs of a coal shape and its place, against these instead. A mesh is its
    triangles: its surface.
    """

    def __init__(
        self,
        robot: rg.Robot,
        scene: rg.Scene,
        objects: Iterable[tuple[Any, pin.SE3]] | None = None,
        self_pairs: bool = True,
    ):
        self.model = robot.to_pinocchio()
        self.data, geometry = self.model.createData(), pin.GeometryModel()
        own: dict[str, list[int]] = {}

        def add(name: str, joint: int, shape: Any, place: pin.SE3) -> int:
            return geometry.addGeometryObject(pin.GeometryObject(name, joint, place, shape))

        for link in robot.collisions.links:
            for k, e in enumerate(link.elements):
                number = add(f"{link.link} {k}", link.body + 1, *of_element(e))
                own.setdefault(link.link, []).append(number)
        if objects is None:
            objects = [of_shape(scene[name]) for name in scene.names]
        world = [add(f"object {k}", 0, *found) for k, found in enumerate(objects)]
        for link in robot.collisions.moving:
            for a in own[link]:
                for b in world:
                    geometry.addCollisionPair(pin.CollisionPair(a, b))
        self.with_world = len(geometry.collisionPairs)
        for i, j in robot.collisions.self_pairs if self_pairs else ():
            for a in own[i]:
                for b in own[j]:
                    geometry.addCollisionPair(pin.CollisionPair(a, b))
        self.geometry, self.places = geometry, geometry.createData()

    def touches(self, q: np.ndarray) -> bool:
        return bool(
            pin.computeCollisions(self.model, self.data, self.geometry, self.places, q, True)
        )

    def least(self, q: np.ndarray) -> float:
        """The least distance of all pairs, negative inside."""
        pin.updateGeometryPlacements(self.model, self.data, self.geometry, self.places, q)
        pin.computeDistances(self.geometry, self.places)
        return min(r.min_distance for r in self.places.distanceResults)


def of_element(e: Element | BoxElement) -> tuple[Any, pin.SE3]:
    """A ball, capsule or box of a link, in the frame of its body."""
    if isinstance(e, BoxElement):
        sizes = 2 * np.array(e.half)
        return coal.Box(*sizes), pin.SE3(np.array(e.rotation), np.array(e.center))
    return rounded(e.radius, np.array(e.start), np.array(e.end))


def rounded(radius: float, a: np.ndarray, b: np.ndarray) -> tuple[Any, pin.SE3]:
    """A ball, or a capsule from a to b."""
    length = float(np.linalg.norm(b - a))
    if length < 1e-9:
        return coal.Sphere(radius), pin.SE3(np.eye(3), a)
    z = (b - a) / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return coal.Capsule(radius, length), pin.SE3(
        np.column_stack([x, np.cross(z, x), z]), (a + b) / 2
    )


def of_shape(shape: Any) -> tuple[Any, pin.SE3]:
    """A shape of a scene as coal's."""
    if isinstance(shape, rg.Box):
        return coal.Box(*shape.size), pin.SE3(np.array(shape.pose.R), np.array(shape.pose.p))
    if isinstance(shape, rg.Sphere):
        return coal.Sphere(shape.radius), pin.SE3(np.eye(3), shape.center)
    if isinstance(shape, rg.Capsule):
        return rounded(shape.radius, shape.start, shape.end)
    if isinstance(shape, rg.Plane):
        return coal.Halfspace(shape.normal, shape.offset), pin.SE3.Identity()
    if not isinstance(shape, rg.Mesh):
        raise TypeError(f"{type(shape).__name__} is not compared with coal")
    surface = coal.BVHModelOBBRSS()
    corners = np.asarray(shape.triangles.vertices, dtype=float)[shape.triangles.faces]
    surface.beginModel(len(corners), 3 * len(corners))
    for a, b, c in corners:
        surface.addTriangle(a, b, c)
    surface.endModel()
    return surface, pin.SE3(np.array(shape.pose.R), np.array(shape.pose.p))


def fine(space: Space, corners: np.ndarray, most: float) -> np.ndarray:
    """States of a path between which no point of the robot moves more than `most` metres."""
    rows = []
    for k in range(len(corners) - 1):
        way = space.difference(corners[k], corners[k + 1])
        count = int(np.ceil(np.abs(way) @ space.weights / most)) + 1
        rows.append(space.moved(corners[k], np.linspace(0, 1, count)[:, None] * way))
    return np.concatenate(rows)
