"""coal (formerly hpp-fcl) on shapes of ours: signed distances by closed forms, GJK and EPA that we
did not write.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.rotations import rotation_from_quaternion

coal = pytest.importorskip("coal")


def pose(R, p):
    return coal.Transform3s(np.array(R, float), np.array(p, float))


def of_shape(shape):
    """coal's geometry and its place."""
    match shape:
        case rg.Sphere():
            return coal.Sphere(shape.radius), pose(np.eye(3), shape.center)
        case rg.Capsule():
            return of_capsule(shape.radius, shape.start, shape.end)
        case rg.Box():
            return coal.Box(*shape.size), pose(shape.pose.R, shape.pose.p)
        case rg.Plane():
            return coal.Halfspace(shape.normal, shape.offset), pose(np.eye(3), np.zeros(3))
        case rg.Mesh():
            return of_triangles(shape.triangles.vertices, shape.triangles.faces), pose(
                shape.pose.R, shape.pose.p
            )
    raise TypeError(shape)


def of_triangles(vertices, faces):
    model = coal.BVHModelOBBRSS()
    model.beginModel(len(faces), len(vertices))
    model.addVertices(np.ascontiguousarray(vertices))
    model.addTriangles(np.ascontiguousarray(faces).astype(np.uint32))
    model.endModel()
    return model


def of_capsule(radius, start, end):
    start, end = np.asarray(start, float), np.asarray(end, float)
    length = np.linalg.norm(end - start)
    if length < 1e-12:
        return coal.Sphere(radius), pose(np.eye(3), start)
    z = (end - start) / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return coal.Capsule(radius, length), pose(
        np.column_stack([x, np.cross(z, x), z]), (start + end) / 2
    )


def signed(one, other):
    """coal's distance of (geometry, place) pairs, negative inside."""
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-9
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    return coal.distance(*one, *other, request, result)


def collide(one, other):
    return bool(coal.collide(*one, *other, coal.CollisionRequest(), coal.CollisionResult()))


def random_rotation(rng):
    q = rng.normal(size=4)
    return rotation_from_quaternion(*(q / np.linalg.norm(q)))


def random_pose(rng, reach):
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = random_rotation(rng), rng.uniform(-reach, reach, 3)
    return T
