"""What tasks ask of a configuration, over any scalar: errors that are to vanish, their Jacobians,
and what is compared with seeds.

An error e is what is left to go, so that a step dq with J dq = e leads there: lengths in metres,
rotations as 2 sin(θ/2) times their axis, which has one zero and grows up to θ = π.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rigidgrad.algorithms import kinematics, manifold
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.textbook import momentum
from rigidgrad.model.model import Frame, Model
from rigidgrad.model.pose import IDENTITY_POSE, Pose
from rigidgrad.scalars import Scalar, add, less, mul, select, sqrt, sub, total
from rigidgrad.spatial import (
    IDENTITY3,
    Vector3,
    add3,
    cross3,
    dot3,
    rotate,
    rotate_back,
    scale3,
    sub3,
    transpose,
)

Triple = tuple[float, float, float]
_AHEAD = 1e-12  # of 1 + cos: below, two directions are opposite, and each way around is as good
HALF_ROOT = 0.5**0.5


class Part(NamedTuple):
    """An error of one unit: its numbers, their Jacobian (rows, nv), and the square by which it is
    judged.
    """

    unit: Literal["m", "rad"]
    error: Vector
    jacobian: Matrix
    squared: Scalar


class Term(ABC):
    """A task without its numbers: what is compiled. Its `repr` tells it from others."""

    weighted: bool

    @property
    def size(self) -> int:
        """How many numbers its target has."""
        return 3

    @property
    @abstractmethod
    def units(self) -> tuple[Literal["m", "rad"], ...]:
        """Of its parts."""

    @abstractmethod
    def parts(self, model: Model, q: Vector, target: Vector) -> list[Part]: ...

    def observed(self, model: Model, q: Vector) -> Vector:
        """Numbers whose squared distance from `wanted` is the squared error, or nearly; none where
        that is not known.
        """
        return ()

    def wanted(self, target: Vector) -> Vector:
        return ()

    def skew(self, target: Vector) -> Scalar:
        """How far a matrix in the target is from a rotation."""
        return 0.0


@dataclass(frozen=True)
class FrameTerm(Term):
    """A frame, or the point at `offset` in it, at a point or pose of the world or of the frame
    `base`; `free` are axes of the target, x y z rx ry rz, that do not count.

    A pose is nine numbers of R, row by row, then p; a point is three.
    """

    frame: str
    base: str | None = None
    pose: bool = True
    free: frozenset[str] = frozenset()
    offset: Triple = (0.0, 0.0, 0.0)
    weighted: bool = False

    def __repr__(self) -> str:
        return (
            f"frame {self.frame!r} in {self.base!r} {'pose' if self.pose else 'point'} free"
            f" {sorted(self.free)} {self.offset} {self.weighted}"
        )

    @property
    def size(self) -> int:
        return 12 if self.pose else 3

    @property
    def turns(self) -> tuple[int, ...]:
        """Axes of the target about which rotation is free."""
        return tuple(k for k, name in enumerate(("rx", "ry", "rz")) if name in self.free)

    @property
    def slides(self) -> tuple[int, ...]:
        return tuple(k for k, name in enumerate("xyz") if name in self.free)

    @property
    def oriented(self) -> bool:
        return self.pose and len(self.turns) < 3

    @property
    def units(self) -> tuple[Literal["m", "rad"], ...]:
        place: tuple[Literal["m", "rad"], ...] = ("m",) if len(self.slides) < 3 else ()
        return (*place, "rad") if self.oriented else place

    def _seen(self, model: Model, q: Vector) -> tuple[Matrix, Vector3]:
        """Rotation and origin of the frame."""
        X = kinematics.frame_transform(model, q, placed(model, self.frame, self.offset))
        if self.base is None:
            return transpose(X.E), X.r
        B = kinematics.frame_transform(model, q, model.frame(self.base))
        return _product(B.E, transpose(X.E)), rotate(B.E, sub3(X.r, B.r))

    def _jacobian(self, model: Model, q: Vector) -> tuple[Matrix, Matrix]:
        """Of the origin and of the rotation, 3 x nv each."""
        frame = placed(model, self.frame, self.offset)
        J = kinematics.jacobian(model, q, frame, "world")
        if self.base is None:
            return J[:3], J[3:]
        base = model.frame(self.base)
        B, K = (
            kinematics.frame_transform(model, q, base),
            kinematics.jacobian(model, q, base, "world"),
        )
        arm = sub3(kinematics.frame_transform(model, q, frame).r, B.r)
        linear, angular = [], []
        for j, k in zip(zip(*J, strict=True), zip(*K, strict=True), strict=True):
            carried = add3(k[:3], cross3(k[3:], arm))
            linear.append(rotate(B.E, sub3(j[:3], carried)))
            angular.append(rotate(B.E, sub3(j[3:], k[3:])))
        return tuple(zip(*linear, strict=True)), tuple(zip(*angular, strict=True))

    def parts(self, model: Model, q: Vector, target: Vector) -> list[Part]:
        R, p = self._seen(model, q)
        Jp, Jr = self._jacobian(model, q)
        wanted_R: Matrix = (target[0:3], target[3:6], target[6:9]) if self.pose else IDENTITY3
        found: list[Part] = []
        if len(self.slides) < 3:
            e, J = sub3(target[-3:], p), Jp
            if self.slides:
                e, J = _along(
                    [axis for k, axis in enumerate(transpose(wanted_R)) if k not in self.slides],
                    e,
                    J,
                )
            found.append(Part("m", e, J, _dot(e, e)))
        if self.oriented:
            axes = transpose(wanted_R)
            if self.turns:
                (k,) = self.turns
                e, squared = _swing(transpose(R)[k], axes[k])
                e, J = _along([axis for i, axis in enumerate(axes) if i != k], e, Jr)
            else:
                e, squared = _turn(transpose(R), axes)
                J = Jr
            found.append(Part("rad", e, J, squared))
        return found

    def observed(self, model: Model, q: Vector) -> Vector:
        R, p = self._seen(model, q)
        return self._compared(R, p)

    def wanted(self, target: Vector) -> Vector:
        return self._compared((target[0:3], target[3:6], target[6:9]), target[-3:])

    def _compared(self, R: Matrix, p: Vector) -> Vector:
        place = () if self.slides else p
        if not self.oriented:
            return place
        if self.turns:
            return (*place, *transpose(R)[self.turns[0]])
        return (*place, *(mul(HALF_ROOT, x) for row in R for x in row))

    def skew(self, target: Vector) -> Scalar:
        if not self.pose:
            return 0.0
        x, y, z = target[0:3], target[3:6], target[6:9]
        handed = sub3(cross3(x, y), z)
        terms = [sub(dot3(x, x), 1.0), sub(dot3(y, y), 1.0), dot3(x, y), *handed]
        return total(mul(t, t) for t in terms)


@dataclass(frozen=True)
class CenterOfMassTerm(Term):
    """The centre of mass at a point of the world; `free` are axes that do not count."""

    free: frozenset[str] = frozenset()
    weighted: bool = False

    def __repr__(self) -> str:
        return f"centre of mass free {sorted(self.free)} {self.weighted}"

    @property
    def units(self) -> tuple[Literal["m", "rad"], ...]:
        return ("m",)

    @property
    def _kept(self) -> list[int]:
        return [k for k, name in enumerate("xyz") if name not in self.free]

    def parts(self, model: Model, q: Vector, target: Vector) -> list[Part]:
        c, J = momentum.center_of_mass(model, q), momentum.center_of_mass_jacobian(model, q)
        e = tuple(sub(target[k], c[k]) for k in self._kept)
        return [Part("m", e, tuple(J[k] for k in self._kept), _dot(e, e))]

    def observed(self, model: Model, q: Vector) -> Vector:
        c = momentum.center_of_mass(model, q)
        return tuple(c[k] for k in self._kept)

    def wanted(self, target: Vector) -> Vector:
        return tuple(target[k] for k in self._kept)


@dataclass(frozen=True)
class LookTerm(Term):
    """An axis of a frame, from the point at `offset` in it, towards a point of the world."""

    frame: str
    axis: Triple = (0.0, 0.0, 1.0)
    offset: Triple = (0.0, 0.0, 0.0)
    weighted: bool = False

    def __repr__(self) -> str:
        return f"look {self.frame!r} {self.axis} {self.offset} {self.weighted}"

    @property
    def units(self) -> tuple[Literal["m", "rad"], ...]:
        return ("rad",)

    def parts(self, model: Model, q: Vector, target: Vector) -> list[Part]:
        frame = placed(model, self.frame, self.offset)
        X = kinematics.frame_transform(model, q, frame)
        axis = rotate_back(X.E, self.axis)
        away = sub3(target, X.r)
        near = 1 / sqrt(add(dot3(away, away), 1e-12))
        d = scale3(near, away)
        e, squared = _swing(axis, d)
        J = kinematics.jacobian(model, q, frame, "world")
        # the axis turns, and so does the line of sight
        columns = [add3(j[3:], scale3(near, cross3(d, j[:3]))) for j in zip(*J, strict=True)]
        e, rows = _along(
            [rotate_back(X.E, t) for t in across(self.axis)], e, tuple(zip(*columns, strict=True))
        )
        return [Part("rad", e, rows, squared)]


@dataclass(frozen=True)
class PostureTerm(Term):
    """Every joint towards its place in a configuration; joints that fly do not count."""

    numbers: int
    weighted: bool = True

    def __repr__(self) -> str:
        return "posture"

    @property
    def size(self) -> int:
        return self.numbers

    @property
    def units(self) -> tuple[Literal["m", "rad"], ...]:
        return ("rad",)

    def parts(self, model: Model, q: Vector, target: Vector) -> list[Part]:
        way = manifold.difference(model, q, target)
        own = [
            j.v + k for j in model.joints if not (j.is_mimic or j.kind.flies) for k in range(j.nv)
        ]
        e = tuple(way[i] for i in own)
        return [
            Part(
                "rad",
                e,
                tuple(tuple(1.0 if i == k else 0.0 for k in range(model.nv)) for i in own),
                _dot(e, e),
            )
        ]


def placed(model: Model, name: str, offset: Sequence[float]) -> Frame:
    """A frame moved to a point in it."""
    found = model.frame(name)
    if tuple(offset) == (0.0, 0.0, 0.0):
        return found
    return Frame(
        found.name, found.body, found.placement @ Pose(IDENTITY_POSE.R, tuple(offset)), found.kind
    )


def across(axis: Sequence[float]) -> tuple[Triple, Triple]:
    """Two directions that make a right-handed frame with a unit vector."""
    x, y, z = axis
    other: Any = (1.0, 0.0, 0.0) if abs(x) < 0.6 else (0.0, 1.0, 0.0)
    a = cross3((x, y, z), other)
    length = float(dot3(a, a)) ** 0.5
    first: Any = tuple(float(k) / length for k in a)
    second: Any = tuple(float(k) for k in cross3((x, y, z), first))
    return first, second


def _turn(R: Matrix, wanted: Matrix) -> tuple[Vector3, Scalar]:
    """2 sin(θ/2) times the axis of the rotation from one frame to another, given by their axes, and
    4 sin²(θ/2).
    """
    w: Vector3 = (0.0, 0.0, 0.0)
    trace: Scalar = 0.0
    for r, d in zip(R, wanted, strict=True):
        w, trace = add3(w, cross3(r, d)), add(trace, dot3(r, d))
    ahead = add(trace, 1.0)  # 4 cos²(θ/2)
    w = scale3(1 / sqrt(_at_least(_AHEAD, ahead)), w)
    return w, select(less(1.0, trace), dot3(w, w), sub(3.0, trace))


def _swing(a: Vector3, d: Vector3) -> tuple[Vector3, Scalar]:
    """The same for the shortest rotation from one direction to another."""
    cosine = dot3(a, d)
    w = scale3(1 / sqrt(_at_least(_AHEAD, mul(0.5, add(cosine, 1.0)))), cross3(a, d))
    return w, select(less(0.0, cosine), dot3(w, w), sub(2.0, mul(2.0, cosine)))


def _at_least(low: float, x: Scalar) -> Scalar:
    return select(less(x, low), low, x)


def _along(axes: Sequence[Vector3], e: Vector3, J: Matrix) -> tuple[Vector, Matrix]:
    """Components of an error and its Jacobian."""
    columns = list(zip(*J, strict=True))
    return tuple(dot3(a, e) for a in axes), tuple(tuple(dot3(a, c) for c in columns) for a in axes)


def _product(A: Matrix, B: Matrix) -> Matrix:
    return tuple(tuple(dot3(row, column) for column in transpose(B)) for row in A)


def _dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    return total(mul(x, y) for x, y in zip(a, b, strict=True))
