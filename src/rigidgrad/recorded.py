"""A robot in one state, over any scalar: for costs, constraints and dynamics that users write, and
which are recorded and differentiated with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import Any

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.catalog import FRAMES_OF_EXPRESSION
from rigidgrad.algorithms.crba import crba
from rigidgrad.algorithms.fast.factored import solved_dynamics
from rigidgrad.algorithms.fast.newton_euler import newton_euler
from rigidgrad.algorithms.joints import External, Matrix, Vector
from rigidgrad.algorithms.results import Energy
from rigidgrad.algorithms.textbook import momentum
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.canonical import canonical
from rigidgrad.model.model import WORLD, Frame, Model
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.scalars import Scalar, add, sqrt
from rigidgrad.spatial import Force, Vector3, dot3, rotate, sub3, transpose


class At:
    """A robot at q (nq numbers) and v (nv numbers): what its functions give there, as tuples of
    scalars, in the conventions of `Robot`.

    Scalars may be recorded numbers, floats or NumPy arrays of one shape. `external={"link":
    wrench}` are six numbers each, force first, in the link's frame.
    """

    def __init__(self, model: Model, q: Sequence[Scalar], v: Sequence[Scalar] | None = None):
        q = _sequence(q)
        v = None if v is None else _sequence(v)
        if v is None and len(q) == model.nq + model.nv:
            q, v = q[: model.nq], q[model.nq :]
        if len(q) != model.nq or (v is not None and len(v) != model.nv):
            counts = f"{len(q)}" if v is None else f"{len(q)} and {len(v)}"
            raise InputError(
                f"at takes q, or x = [q, v], or q and v, of {model.nq} and {model.nv} numbers; this"
                f" has {counts}"
            )
        self.model, self.q = model, q
        self._v = v

    @property
    def v(self) -> Vector:
        if self._v is None:
            raise InputError(
                "this needs a velocity: write robot.at(x) with x = [q, v], or robot.at(q, v)"
            )
        return self._v

    # --- kinematics -------------------------------------------------------------------------------

    def placement(self, frame: str) -> Matrix:
        """Of a frame in the world, 4 rows of 4."""
        return kinematics.frame_placement(self.model, self.q, self.model.frame(frame))

    def rotation(self, frame: str) -> Matrix:
        """Of a frame in the world, 3 rows of 3."""
        return transpose(kinematics.frame_transform(self.model, self.q, self.model.frame(frame)).E)

    def position(self, frame: str, offset: Sequence[float] = (0.0, 0.0, 0.0)) -> Vector3:
        """In the world, of the point at `offset` in a frame."""
        return kinematics.frame_transform(self.model, self.q, self._point(frame, offset)).r

    def velocity(
        self, frame: str, expressed_in: str = "world", offset: Sequence[float] = (0.0, 0.0, 0.0)
    ) -> Vector:
        """Six numbers, linear first, of the point at `offset` in a frame; in world axes, "local" or
        "spatial".
        """
        if expressed_in not in FRAMES_OF_EXPRESSION:
            raise unknown_name("choice of axes", expressed_in, FRAMES_OF_EXPRESSION)
        return kinematics.frame_velocity(
            self.model, self.q, self.v, self._point(frame, offset), expressed_in
        )

    def distance(
        self,
        frame: str,
        other: str | Sequence[Scalar],
        *,
        offset: Sequence[float] = (0.0, 0.0, 0.0),
        other_offset: Sequence[float] = (0.0, 0.0, 0.0),
        radius: Scalar = 0.0,
        other_radius: Scalar = 0.0,
        smooth: float = 1e-4,
    ) -> Scalar:
        """Metres between two spheres around points of frames, or between one and a point of the
        world; negative where they overlap.

        The distance d of the centres is taken as √(d² + smooth²), so that it has a derivative
        everywhere; `smooth` is in metres.
        """
        p = self.position(frame, offset)
        o = (
            self.position(other, other_offset)
            if isinstance(other, str)
            else _three("a point of the world", other)
        )
        away = sub3(p, o)
        between = sqrt(add(dot3(away, away), float(smooth) ** 2))
        return between - add(radius, other_radius)

    def _point(self, frame: str, offset: Sequence[float]) -> Frame:
        found, point = self.model.frame(frame), _three("offset", offset)
        if not all(isinstance(x, Real) for x in point):
            raise InputError(
                "an offset is three plain numbers; of others, write placement(frame) and multiply"
            )
        placement = found.placement @ Pose(IDENTITY_POSE.R, tuple(map(float, point)))
        return Frame(found.name, found.body, placement, found.kind)

    # --- the whole robot --------------------------------------------------------------------------

    def center_of_mass(self) -> Vector3:
        return momentum.center_of_mass(self.model, self.q)

    def momentum(self) -> Vector:
        """Six numbers, linear first, about the centre of mass, in world axes."""
        return momentum.centroidal_momentum(self.model, self.q, self.v)

    def energy(self) -> Energy[Scalar]:
        """`.kinetic` and `.potential`."""
        return momentum.energy(self.model, self.q, self.v)

    # --- dynamics ---------------------------------------------------------------------------------

    def acceleration(
        self, tau: Sequence[Scalar], external: Mapping[str, Sequence[Scalar]] | None = None
    ) -> Vector:
        """Forward dynamics: nv accelerations that joint forces cause."""
        return solved_dynamics(
            self._lean, self.q, self.v, self._freedoms("tau", tau), self._wrenches(external)
        )

    def inverse_dynamics(
        self, a: Sequence[Scalar], external: Mapping[str, Sequence[Scalar]] | None = None
    ) -> Vector:
        """The nv joint forces that cause accelerations."""
        return newton_euler(
            self._lean, self.q, self.v, self._freedoms("a", a), self._wrenches(external)
        )

    def gravity_torque(self) -> Vector:
        """The nv joint forces that hold the robot still."""
        still = (0.0,) * self.model.nv
        return newton_euler(self._lean, self.q, still, still)

    def mass_matrix(self) -> Matrix:
        return crba(self._lean, self.q)

    @cached_property
    def _lean(self) -> Model:
        """The same dynamics with fewer operations."""
        return canonical(self.model)

    def _freedoms(self, name: str, values: Sequence[Scalar]) -> Vector:
        result = tuple(values)
        if len(result) != self.model.nv:
            raise InputError(
                f"{name} has {len(result)} numbers; {self.model.name!r} has {self.model.nv}"
                " freedoms"
            )
        return result

    def _wrenches(self, external: Mapping[str, Sequence[Scalar]] | None) -> External | None:
        return wrenches_on(self._lean, external) if external else None


def wrenches_on(model: Model, external: Mapping[str, Sequence[Scalar]]) -> External:
    """Wrenches on links, force first, in their frames, as forces on bodies, in theirs."""
    result: dict[int, Force] = {}
    for link, wrench in external.items():
        numbers, frame = tuple(wrench), model.frame(link)
        if len(numbers) != 6:
            raise InputError(
                f"a wrench is six numbers, force first; that on {link!r} has {len(numbers)}"
            )
        if frame.body != WORLD:
            force = kinematics.frame_offset(frame).force_back(Force(numbers[3:], numbers[:3]))
            result[frame.body] = result[frame.body] + force if frame.body in result else force
    return result


def loaded(model: Model, frame: str, mass: Scalar, offset: Sequence[Scalar]) -> Model:
    """The model with a point mass at a point of a frame; the mass and the offset may be any
    scalars.
    """
    found = model.frame(frame)
    if found.body == WORLD:
        raise InputError(f"frame {frame!r} does not move, so that a load on it is not felt")
    turned = rotate(found.placement.R, _three("offset", offset))
    r = tuple(add(a, b) for a, b in zip(turned, found.placement.p, strict=True))
    m, h, (xx, xy, yy, xz, yz, zz) = model.inertias[found.body]
    x, y, z = r
    more = (y * y + z * z, -(x * y), x * x + z * z, -(x * z), -(y * z), x * x + y * y)
    inertia = (
        add(m, mass),
        tuple(add(a, mass * b) for a, b in zip(h, r, strict=True)),
        tuple(add(a, mass * b) for a, b in zip((xx, xy, yy, xz, yz, zz), more, strict=True)),
    )
    return replace(
        model, inertias=(*model.inertias[: found.body], inertia, *model.inertias[found.body + 1 :])
    )


def _sequence(values: Any) -> tuple[Scalar, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InputError(
            f"at takes numbers in a sequence, q or [q, v], not {type(values).__name__}"
        ) from None


def _three(what: str, values: Sequence[Scalar]) -> Vector3:
    result: Vector3 = tuple(values)
    if len(result) != 3:
        raise InputError(f"{what} is three numbers, not {len(result)}")
    return result
