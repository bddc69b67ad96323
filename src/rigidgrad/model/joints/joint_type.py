"""What a joint type knows: facts, kinematics over any scalar, its names in other programs and how
it is drawn.

A position is a vector of plain numbers, which may be followed by a direction: numbers of length
one, (cos, sin) or a quaternion (x, y, z, w). A tangent has one number per freedom, in the moving
frame. The base class has the kinematics of vectors, where ⊕ is +; `transform` and `subspace` are
for each type to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from math import inf, pi
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from rigidgrad.scalars import Scalar, sqrt
from rigidgrad.spatial import Motion, Transform

if TYPE_CHECKING:
    from rigidgrad.model.description import JointLimit

Vector = tuple[Scalar, ...]
Matrix = tuple[Vector, ...]

X: tuple[float, ...] = (1.0, 0.0, 0.0)
Y: tuple[float, ...] = (0.0, 1.0, 0.0)
Z: tuple[float, ...] = (0.0, 0.0, 1.0)


class Direction(NamedTuple):
    """Numbers of length one at the end of a position."""

    name: str
    neutral: tuple[float, ...]
    freedoms: int


PAIR = Direction("(cos, sin)", (1.0, 0.0), 1)
QUATERNION = Direction("quaternion", (0.0, 0.0, 0.0, 1.0), 3)


class Geometry(Protocol):
    """The numbers of a joint that its motion depends on."""

    @property
    def axis(self) -> Any: ...  # a unit vector
    @property
    def pitch(self) -> Any: ...  # metres per radian


class JointType(ABC):
    """A type of joint that moves."""

    name: ClassVar[str]
    units: ClassVar[tuple[str, ...]]  # of each freedom, "rad" or "m"
    freedoms: ClassVar[tuple[str, ...]] = (
        "",
    )  # their names after the joint's own; one that is alone needs none
    coordinates: ClassVar[tuple[str, ...]] = ("",)  # what people set instead of a direction: angles
    direction: ClassVar[Direction | None] = None
    axis: ClassVar[Literal["own", "z", "none"]] = (
        "none"  # each joint has its own; always z of its frame; there is none
    )
    has_pitch: ClassVar[bool] = False
    bounded: ClassVar[bool] = False  # whether its numbers have a lower and an upper limit
    is_hinge: ClassVar[bool] = False  # whether it turns about its axis, and nothing else
    flies: ClassVar[bool] = False  # whether its body moves as a free one

    # names in other programs
    urdf: ClassVar[str | None] = None
    mujoco: ClassVar[
        tuple[tuple[str, tuple[float, ...] | None], ...]
    ] = ()  # MuJoCo's joints, each with its axis (None: the joint's own)
    pinocchio: ClassVar[
        tuple[str, ...]
    ] = ()  # its classes; of types with an axis those along x, y, z and any axis come first
    moves_as: ClassVar[str | None] = (
        # in code that is not Python: `targets/gpu/code/operations.h` and `viewer/player/joints.js`
        None
    )

    hub: ClassVar[Literal["cylinder", "sphere"] | None] = (
        None  # what is drawn at the joint where a robot has no shapes of its own
    )

    # --- facts ------------------------------------------------------------------------------------

    @cached_property
    def nv(self) -> int:
        return len(self.units)

    @cached_property
    def plain(self) -> int:
        """How many numbers of a position come before its direction."""
        return self.nv - (self.direction.freedoms if self.direction else 0)

    @cached_property
    def nq(self) -> int:
        return self.plain + (len(self.direction.neutral) if self.direction else 0)

    @property
    def has_axis(self) -> bool:
        return self.axis == "own"

    @cached_property
    def carried(self) -> int:
        """How many of its velocities are linear ones along axes that turn with the body: those
        beside a direction.
        """
        return self.plain if self.direction else 0

    @cached_property
    def neutral(self) -> tuple[float, ...]:
        return (0.0,) * self.plain + (self.direction.neutral if self.direction else ())

    def is_free(self, at_root: bool) -> bool:
        """Whether it says how a robot may move about, and not how it moves itself: no motor is in
        it.
        """
        return False

    def pinocchio_widths(self) -> tuple[int, ...]:
        """How many numbers a position may have in Pinocchio."""
        return (self.nq,)

    def limits(self, limit: JointLimit) -> tuple[float, float]:
        """Of each of its plain numbers."""
        return (limit.lower, limit.upper) if self.bounded else (-inf, inf)

    def span(self, k: int, lower: float, upper: float) -> tuple[float, float]:
        """Where the plain number k is tried and shown: within its limits; where there is none, a
        turn or two metres.
        """
        reach = 1.0 if self.units[k] == "m" else pi
        low = lower if np.isfinite(lower) else (upper - 2 * reach if np.isfinite(upper) else -reach)
        return low, upper if np.isfinite(upper) else low + 2 * reach

    def random(
        self, rng: np.random.Generator, shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray
    ) -> np.ndarray:
        """Positions (…, nq) within limits (nq,)."""
        q = np.empty((*shape, self.nq))
        if self.direction is None:
            for k in range(self.nq):
                low, high = self.span(k, lower[k], upper[k])
                # half of the way there and back: -0 is 0, and the width of the widest limits is
                # finite
                q[..., k] = 2 * rng.uniform(low / 2 + 0.0, high / 2 + 0.0, shape)
            return q
        q[..., : self.plain] = rng.uniform(-1, 1, (*shape, self.plain))
        direction = rng.normal(size=(*shape, self.nq - self.plain))
        q[..., self.plain :] = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        return q

    # --- kinematics -------------------------------------------------------------------------------

    @abstractmethod
    def transform(self, joint: Geometry, q: Vector) -> Transform:
        """X_J: from the joint's frame on the parent to the child's frame."""

    @abstractmethod
    def subspace(self, joint: Geometry) -> tuple[Motion, ...]:
        """The columns of S, constant in the child's frame."""

    def integrate(self, q: Vector, dv: Vector) -> Vector:
        """q ⊕ dv."""
        return tuple(x + d for x, d in zip(q, dv, strict=True))

    def difference(self, q0: Vector, q1: Vector) -> Vector:
        """q1 ⊖ q0."""
        return self.separation(q0, q1)

    def separation(self, q0: Vector, q1: Vector) -> Vector:
        """How far apart positions are, in the layout of `difference` and the axes at q0, but along
        straight lines.
        """
        return tuple(b - a for a, b in zip(q0, q1, strict=True))

    def normalize(self, q: Vector) -> Vector:
        """q with its direction scaled to length one."""
        if self.direction is None:
            return q
        length = sqrt(sum(x * x for x in q[self.plain :]))
        return (*q[: self.plain], *(x / length for x in q[self.plain :]))

    def transport(self, dv: Vector) -> Matrix:
        """∂(q ⊕ dv)/∂q."""
        return self._identity()

    def right_jacobian(self, dv: Vector) -> Matrix:
        """∂(q ⊕ dv)/∂dv."""
        return self._identity()

    def right_jacobian_inverse(self, dv: Vector) -> Matrix:
        """∂(q1 ⊖ q0)/∂q1 where q1 ⊖ q0 = dv."""
        return self._identity()

    def rates(self, q: Vector) -> Matrix:
        """G, nv x nq: the velocity is G times the rates of the position's numbers."""
        return self._identity()

    def _identity(self) -> Matrix:
        return tuple(tuple(1.0 if i == j else 0.0 for j in range(self.nv)) for i in range(self.nv))
