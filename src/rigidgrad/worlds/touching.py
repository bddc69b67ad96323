"""Which functions find the contacts of two shapes, by their kinds, the first the lesser."""

from __future__ import annotations

from collections.abc import Callable

from rigidgrad.worlds.box_box import MOST as EIGHT, box_box
from rigidgrad.worlds.capsule_box import capsule_box
from rigidgrad.worlds.capsule_cylinder import capsule_cylinder
from rigidgrad.worlds.hulls import capsule_mesh, sphere_mesh
from rigidgrad.worlds.narrow import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    FIELD,
    MESH,
    PLANE,
    SPHERE,
    Contact,
    capsule_capsule,
    plane_box,
    plane_capsule,
    plane_cylinder,
    plane_sphere,
    sphere_box,
    sphere_capsule,
    sphere_cylinder,
    sphere_sphere,
)
from rigidgrad.worlds.plane_mesh import MOST, plane_ellipsoid, plane_mesh
from rigidgrad.worlds.prisms import field_box, field_capsule, field_sphere

# the function, and its slots; of height fields, that of one prism
FUNCTIONS: dict[tuple[int, int], tuple[Callable[..., list[Contact]], int]] = {
    (PLANE, SPHERE): (plane_sphere, 1),
    (PLANE, CAPSULE): (plane_capsule, 2),
    (PLANE, CYLINDER): (plane_cylinder, 4),
    (PLANE, BOX): (plane_box, 4),
    (SPHERE, SPHERE): (sphere_sphere, 1),
    (SPHERE, CAPSULE): (sphere_capsule, 1),
    (SPHERE, CYLINDER): (sphere_cylinder, 1),
    (SPHERE, BOX): (sphere_box, 1),
    (CAPSULE, CAPSULE): (capsule_capsule, 2),
    (CAPSULE, CYLINDER): (capsule_cylinder, 2),
    (CAPSULE, BOX): (capsule_box, 2),
    (BOX, BOX): (box_box, EIGHT),
    (PLANE, ELLIPSOID): (plane_ellipsoid, 1),
    (PLANE, MESH): (plane_mesh, MOST),
    (SPHERE, MESH): (sphere_mesh, 1),
    (CAPSULE, MESH): (capsule_mesh, 2),
    (FIELD, SPHERE): (field_sphere, 1),
    (FIELD, CAPSULE): (field_capsule, 1),
    (FIELD, BOX): (field_box, 1),
}
