"""The ground that a robot in MuJoCo stands on: a plane, steps on it, round feet and soles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigidgrad.control.numeric_input import numbers, shape_of
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD, Model


@dataclass(frozen=True)
class Ground:
    """A plane through the origin that feet touch."""

    feet: Mapping[str, Any]
    """{frame: radius in metres}, a sphere around the origin of each frame, or {frame: (radius,
    offset)} around a point (3,) in the frame's axes, or several points (n, 3), such as the corners
    of a sole.
    """
    friction: float = 0.8
    """Of sliding."""
    slope: float = 0.0
    """Radians by which the plane rises along +x."""
    boxes: Sequence[tuple[Any, Any]] = field(default=())
    """Steps and kerbs, each (centre, half lengths), in metres, standing upright in the world."""
    bodies: bool = True
    """Links other than feet touch the ground with a small sphere around their body's origin, so
    that a robot that falls lies down.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.feet, Mapping) or not self.feet:
            raise InputError(
                'feet of a ground are {frame: radius}, such as {"lf_foot": 0.02}, or {frame:'
                " (radius, offset)}, or {frame: (radius, offsets of its corners)}"
            )
        for frame in self.feet:
            if not isinstance(frame, str):
                raise InputError(
                    f"feet of a ground are named by their frames, texts such as 'lf_foot', not"
                    f" {frame!r}"
                )
            radius, _ = self.foot(frame)
            if not (isinstance(radius, int | float) and 0 < radius < 10):
                raise InputError(
                    f"the radius of foot {frame!r} is a positive number of metres, not {radius!r}"
                )
        if not (isinstance(self.friction, int | float) and 0 <= self.friction < math.inf):
            raise InputError(
                f"friction of a ground is a finite number from 0 on, not {self.friction!r}"
            )
        if not (isinstance(self.slope, int | float) and abs(self.slope) < 1.0):
            raise InputError(
                f"slope of a ground is an angle in radians, between -1 and 1, not {self.slope!r}"
            )
        for box in self.boxes:
            if not isinstance(box, Sequence) or len(box) != 2:
                raise InputError(f"a box of a ground is (centre, half lengths), not {box!r}")
            numbers("the centre of a box", box[0], (3,))
            if not (numbers("the half lengths of a box", box[1], (3,)) > 0).all():
                raise InputError(f"half lengths of a box are positive metres, not {box[1]!r}")

    def foot(self, frame: str) -> tuple[Any, np.ndarray]:
        """The radius of a foot's spheres, and where in its frame their centres are, (spheres,
        3).
        """
        given = self.feet[frame]
        if not isinstance(given, Sequence) or isinstance(given, str):
            return given, np.zeros((1, 3))
        if len(given) != 2:
            raise InputError(
                f"foot {frame!r} is a radius, or a pair (radius, offset), not {given!r}"
            )
        corners = shape_of(given[1])[0] if len(shape_of(given[1])) == 2 else None
        return given[0], np.atleast_2d(
            numbers(
                f"the offset of foot {frame!r}", given[1], (3,) if corners is None else (corners, 3)
            )
        )

    @staticmethod
    def foot_of(shape: str) -> str:
        """The frame of the foot that a shape of MuJoCo's belongs to; nothing for others."""
        kind, _, rest = shape.partition(":")
        return rest.partition(":")[2] if kind == "foot" else ""

    @property
    def normal(self) -> np.ndarray:
        """In the world (3,)."""
        return np.array([-math.sin(self.slope), 0.0, math.cos(self.slope)])

    def height(self, x: Any) -> Any:
        """Of the plane, at places along x."""
        return math.tan(self.slope) * np.asarray(x, dtype=float)

    def build(self, spec: Any, bodies: Sequence[Any], model: Model, library: Any) -> None:
        """Adds the plane and the feet to a MuJoCo model that is being made."""
        kinds = library.mjtGeom
        half = 0.5 * self.slope
        rubbing = (self.friction, 0.005, 0.0001)
        plane = {
            "type": kinds.mjGEOM_PLANE,
            "size": (100.0, 100.0, 0.1),
            "quat": (math.cos(half), 0.0, -math.sin(half), 0.0),
        }
        spec.worldbody.add_geom(name="ground", friction=rubbing, contype=2, conaffinity=1, **plane)
        for k, (center, size) in enumerate(self.boxes):
            spec.worldbody.add_geom(
                name=f"box:{k}",
                type=kinds.mjGEOM_BOX,
                pos=np.asarray(center, dtype=float),
                size=np.asarray(size, dtype=float),
                friction=rubbing,
                contype=2,
                conaffinity=1,
            )
        for name in self.feet:
            frame = model.frame(name)
            radius, offsets = self.foot(name)
            if frame.body == WORLD:
                raise InputError(f"frame {name!r} is fixed to the world: it is no foot")
            for k, offset in enumerate(offsets):
                bodies[frame.body].add_geom(
                    name=f"foot:{k}:{name}",
                    type=kinds.mjGEOM_SPHERE,
                    pos=(frame.placement.matrix() @ np.append(offset, 1.0))[:3],
                    size=(radius, 0, 0),
                    friction=rubbing,
                    contype=1,
                    conaffinity=2,
                    mass=0.0,
                )
        if self.bodies:
            own = {model.frame(name).body for name in self.feet}
            for i, body in enumerate(bodies):
                if i not in own:
                    body.add_geom(
                        name=f"body:{i}",
                        type=kinds.mjGEOM_SPHERE,
                        size=(0.03, 0, 0),
                        friction=rubbing,
                        contype=1,
                        conaffinity=2,
                        mass=0.0,
                    )

    def set_friction(self, model: Any) -> None:
        """Writes the friction into a MuJoCo model that stands on this ground."""
        for k in range(model.ngeom):
            if model.geom(k).name == "ground" or model.geom(k).name.partition(":")[0] in (
                "box",
                "foot",
                "body",
            ):
                model.geom_friction[k, 0] = self.friction

    def forces(self, model: Any, data: Any, library: Any) -> dict[str, np.ndarray]:
        """What the ground exerts on each foot, in world axes."""
        total = {name: np.zeros(3) for name in self.feet}
        wrench = np.zeros(6)
        for k in range(data.ncon):
            touch = data.contact[k]
            # a contact's force is that of the first shape on the second
            for side, sign in ((touch.geom1, -1.0), (touch.geom2, 1.0)):
                name = self.foot_of(model.geom(side).name)
                if name in total:
                    library.mj_contactForce(model, data, k, wrench)
                    total[name] += sign * (wrench[:3] @ np.array(touch.frame).reshape(3, 3))
        return total
