"""Limits of a motion: a box for the controls, and constraints, which are terms (costs.py) kept between bounds. There are none unless asked for.

Bounds, obstacles and parameters are inputs of the compiled problem and may change at any time. Constraints of the state alone hold on knots 1 … N, since the
start is given; those that use the control on knots 0 … N - 1.
"""

from __future__ import annotations

import copy
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.costs import Function, Jacobians, Term, numbers, point_of, robot_of, shape_of
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError
from rigidgrad.model.model import Joint
from rigidgrad.model.model import Limits as JointLimits
from rigidgrad.scalars import Scalar, sqrt
from rigidgrad.spatial import Vector3, dot3, sub3

Bounds = tuple[np.ndarray, np.ndarray]

# a distance d is smoothed to √(d² + (εR)²), R being the sum of radii, so that its gradient is finite at the centre, too; at contact it stays exact
_SOFT = 1e-3
# how far outside a start may be by rounding alone
_ROUNDING = 1e-9


class Constraint(Term):
    """lower ≤ r(x, u; target) ≤ upper."""

    @abstractmethod
    def asked(self, system: System, knots: int) -> Bounds:
        """Bounds (knots, size) as the user wrote them, ±inf where there is none."""

    def bounds(self, system: System, knots: int, start: np.ndarray | None = None) -> Bounds:
        """(lower, upper), each (knots, size), ±inf on the knot that it does not hold on. With a start (nx,), that is checked as well."""
        lower, upper = (np.array(b) for b in self.asked(system, knots))
        free = -1 if self.uses_control else 0
        lower[free], upper[free] = -np.inf, np.inf
        return lower, upper


class Limits:
    """Limits of torque, joint position and velocity, spheres that avoid obstacles, and constraints of your own.

    `torque` (nu,) or (steps, nu), `position` (nq,) or (knots, nq), and `velocity` (nv,) or (knots, nv) are each None (no limit), True (the robot's own), a number or an
    array b (from -b to b), or a tuple (lower, upper) of these, in which None stands for no bound. Positions are limited for joints with one freedom; a
    number means all of these. `margin=0.1` keeps to the middle 90% of every range that has two ends.

    Every one of the `spheres` stays out of every obstacle, `clearance` metres apart. `constraints` are `Inequality` and `Equality`.

    A start outside of its position limits or inside of an obstacle is an error, because no control can undo it within a step. With `recover=True` the bound in
    question begins at the start and moves evenly to its place, which it reaches at the last knot; likewise for velocities.
    """

    def __init__(
        self,
        torque: Any = None,
        position: Any = None,
        velocity: Any = None,
        *,
        obstacles: Sequence[Obstacle] = (),
        spheres: Sequence[LinkSphere] = (),
        constraints: Sequence[Constraint] = (),
        margin: float = 0.0,
        clearance: float = 0.0,
        recover: bool = False,
    ):
        self.torque, self.position, self.velocity = torque, position, velocity
        self.obstacles, self.spheres = _all(Obstacle, "obstacles", obstacles), _all(LinkSphere, "spheres", spheres)
        self.added = _all(Constraint, "constraints", constraints)
        if bool(self.obstacles) != bool(self.spheres):
            raise InputError("obstacles are avoided by spheres on links: give both, obstacles=[Obstacle(…)] and spheres=[LinkSphere(…)]")
        self.margin, self.clearance, self.recover = margin, clearance, bool(recover)

    def __copy__(self) -> Limits:
        """With obstacles, spheres and constraints of its own, so that their numbers change apart."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in ("obstacles", "spheres", "added"):
            setattr(other, name, tuple(copy.copy(x) for x in getattr(self, name)))
        return other

    def control_bounds(self, system: System, steps: int) -> Bounds | None:
        """(lower, upper), each (steps, nu), ±inf where there is none; None without torque limits."""
        value = self.torque
        if _is_absent(value):
            return None
        if _is_own(value):
            robot = robot_of(system, "torque=True")
            value = _control_limits(robot, _own(robot, value).effort)
        return self.bounds_of("torque", value, (steps, system.nu))

    def constraints(self, system: System) -> tuple[Constraint, ...]:
        """All limits but those of the controls."""
        result: list[Constraint] = []
        if not _is_absent(self.position):
            position = Position(self)
            if position.size(system):
                result.append(position)
            elif not _is_own(self.position):
                raise InputError(f"{system.name!r} has no joints with one freedom, so no positions to limit: write an Inequality")
        if not _is_absent(self.velocity):
            result.append(Velocity(self))
        if self.obstacles:
            result.append(Clearance(self))
        return (*result, *self.added)

    def bounds_of(self, what: str, value: Any, shape: tuple[int, int]) -> Bounds:
        """(lower, upper) of one kind of limit, checked and drawn in by the margin."""
        if _is_pair(value):
            sides = [s * np.inf if b is None else b for b, s in zip(value, (-1, 1), strict=True)]
            lower, upper = (
                numbers(f"{side} {what} limit", b, shape, infinite=True) for side, b in zip(("lower", "upper"), sides, strict=True)
            )
        else:
            upper = numbers(f"{what} limit", value, shape, infinite=True)
            if (upper < 0).any():
                raise InputError(
                    f"one {what} limit b means from -b to b, so it is not negative; give a tuple (lower, upper) for other ranges"
                )
            lower = -upper
        check_order(what + " limit", lower, upper)
        margin = float(numbers("margin", self.margin, ()))
        if not 0 <= margin < 1:
            raise InputError(f"margin is a part of the range, at least 0 and below 1, not {margin:g}")
        with np.errstate(invalid="ignore"):
            inset = np.where(np.isfinite(lower) & np.isfinite(upper), margin * (upper - lower) / 2, 0.0)
        return lower + inset, upper - inset


def as_limits(limits: Any, system: System) -> Limits:
    """What a problem was given: None, Limits, or a robot's own `robot.limits` for torque, position and velocity."""
    if limits is None:
        return Limits()
    if isinstance(limits, JointLimits):
        _own(robot_of(system, "robot.limits"), limits)
        return Limits(torque=limits, position=limits, velocity=limits)
    if isinstance(limits, Limits):
        return limits
    raise InputError(f"limits are robot.limits or rg.Limits(torque=…, position=…, velocity=…, …), not {type(limits).__name__}")


def check_order(what: str, lower: np.ndarray, upper: np.ndarray) -> None:
    """An error where nothing lies between two bounds."""
    bad = np.argwhere((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if bad.size:
        knot, k = bad[0]
        raise InputError(
            f"{what} {k} at knot {knot} is from {lower[knot, k]:g} to {upper[knot, k]:g}, and nothing lies between: exchange or widen them"
        )


def _all(kind: type, what: str, values: Any) -> tuple:
    result = tuple(values) if isinstance(values, Iterable) else (values,)
    for value in result:
        if not isinstance(value, kind):
            raise InputError(f"{what} are {kind.__name__} objects, not {type(value).__name__}")
    return result


def _is_absent(value: Any) -> bool:
    return value is None or value is False


def _is_own(value: Any) -> bool:
    return value is True or isinstance(value, JointLimits)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _own(robot: RobotSystem, value: Any) -> JointLimits:
    limits = robot.robot.limits if value is True else value
    if limits.lower.shape != (robot.nq,) or limits.effort.shape != (robot.nv,):
        raise InputError(f"these limits are another robot's: they have {len(limits.lower)} positions, and {robot.name!r} has {robot.nq}")
    return limits


def _control_limits(robot: RobotSystem, effort: np.ndarray) -> Bounds:
    """Limits of the joints' forces as limits of the controls, within what the actuators can do."""
    least, most = (np.array([getattr(a, side) for a in robot.actuators]) for side in ("lower", "upper"))
    limit = effort if robot.actuation is None else _effort_of_controls(robot, effort)
    return np.maximum(-limit, least), np.minimum(limit, most)


def _effort_of_controls(robot: RobotSystem, effort: np.ndarray) -> np.ndarray:
    assert robot.actuation is not None
    limit = np.full(robot.nu, np.inf)
    for row, most in zip(robot.actuation, effort, strict=True):
        driving = np.flatnonzero(row)
        if np.isfinite(most) and driving.size > 1:
            raise InputError(
                "several controls drive one joint here, so its effort is no limit of a single one; give torque=(lower, upper) of the controls"
            )
        if np.isfinite(most) and driving.size:
            limit[driving[0]] = min(limit[driving[0]], most / abs(row[driving[0]]))
    return limit


# --- position, velocity, obstacles ---------------------------------------------------------------------------------------------------


class _OfLimits(Constraint):
    """A constraint that reads its bounds from Limits each time, so that they may change."""

    start_matters = True

    def __init__(self, limits: Limits):
        self.limits = limits

    def target_size(self, system: System) -> int:
        return 0

    def targets(self, system: System, knots: int) -> np.ndarray:
        return np.zeros((knots, 0))

    def start_text(self, system: System, k: int, c: float) -> str:
        """Says that number k of the residual, c, is outside at the start."""
        raise NotImplementedError

    def bounds(self, system: System, knots: int, start: np.ndarray | None = None) -> Bounds:
        lower, upper = super().bounds(system, knots)
        if start is None:
            return lower, upper
        at_start = tuple(np.asarray(start, dtype=float).tolist()), (0.0,) * system.nu, tuple(self.targets(system, knots)[0].tolist())
        c = np.array(self.residual(system, *at_start), dtype=float)
        low, high = (b[0] for b in self.asked(system, knots))
        out = np.minimum(c - low, 0) + np.maximum(c - high, 0)
        out[abs(out) <= _ROUNDING * np.maximum(1, abs(c))] = 0
        if out.any() and not self.limits.recover:
            if self.start_matters:
                k = int(np.argmax(abs(out)))
                raise InputError(f"{self.start_text(system, k, c[k])}; start inside, widen the limits, or pass Limits(…, recover=True)")
            return lower, upper
        remaining = 1 - np.arange(knots)[:, None] / (knots - 1)
        return lower + remaining * np.minimum(out, 0), upper + remaining * np.maximum(out, 0)


class Position(_OfLimits):
    """The positions of all joints with one freedom."""

    def size(self, system: System) -> int:
        return len(self._joints(system))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return tuple(x[j.q] for j in self._joints(system))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return _units([j.v for j in self._joints(system)], system.ndx), None

    def asked(self, system: System, knots: int) -> Bounds:
        robot, value = robot_of(system, "a position limit"), self.limits.position
        if _is_own(value):
            limits = _own(robot, value)
            value = limits.lower, limits.upper
        single = np.zeros(robot.nq, dtype=bool)
        single[[j.q for j in self._joints(robot)]] = True

        def spread(b: Any, beyond: float) -> Any:
            return b if b is None or shape_of(b) else np.where(single, numbers("position limit", b, (), infinite=True), beyond)

        value = (spread(value[0], -np.inf), spread(value[1], np.inf)) if _is_pair(value) else spread(value, np.inf)
        lower, upper = self.limits.bounds_of("position", value, (knots, robot.nq))
        if np.isfinite(lower[:, ~single]).any() or np.isfinite(upper[:, ~single]).any():
            raise InputError("floating, spherical and planar joints have no position limits: leave ±inf there, or write an Inequality")
        return lower[:, single], upper[:, single]

    def start_text(self, system: System, k: int, c: float) -> str:
        return f"joint {self._joints(system)[k].name!r} starts at {c:g}, outside of its position limits"

    def _joints(self, system: System) -> list[Joint]:
        """In the order of their numbers in q."""
        joints = robot_of(system, "a position limit").model.joints
        return sorted((j for j in joints if j.nq == 1 and not j.is_mimic), key=lambda j: j.q)


class Velocity(_OfLimits):
    """All joint velocities. A start that is too fast may slow down within a step, so it is no error."""

    start_matters = False

    def size(self, system: System) -> int:
        return robot_of(system, "a velocity limit").nv

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return robot_of(system, "a velocity limit").split(x)[1]

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        n = self.size(system)
        return _units(range(n, 2 * n), 2 * n), None

    def asked(self, system: System, knots: int) -> Bounds:
        robot, value = robot_of(system, "a velocity limit"), self.limits.velocity
        if _is_own(value):
            value = _own(robot, value).velocity
        return self.limits.bounds_of("velocity", value, (knots, robot.nv))


@dataclass
class Obstacle:
    """A sphere to keep out of, in the world: centre (3,) and radius in metres, or one of them a knot, (knots, 3) and (knots,)."""

    center: Any
    radius: Any


@dataclass
class LinkSphere:
    """A sphere on a link: around a point of a frame, in metres."""

    frame: str
    radius: float
    offset: Any = (0.0, 0.0, 0.0)


class Clearance(_OfLimits):
    """The distance between each sphere and each obstacle, in metres, negative inside; at the centre its gradient is smoothed to zero.

    A distance converges as well as its square, which has another unit and a weaker gradient inside. The target is centre and radius of each obstacle, then the
    radius of each sphere.
    """

    def key(self) -> str:
        return f"Clearance {[(s.frame, self._offset(s)) for s in self.limits.spheres]} {len(self.limits.obstacles)}"

    def size(self, system: System) -> int:
        return len(self.limits.obstacles) * len(self.limits.spheres)

    def target_size(self, system: System) -> int:
        return 4 * len(self.limits.obstacles) + len(self.limits.spheres)

    def targets(self, system: System, knots: int) -> np.ndarray:
        robot = robot_of(system, "an obstacle")
        columns = []
        for i, o in enumerate(self.limits.obstacles):
            columns.append(numbers(f"the centre of obstacle {i}", o.center, (knots, 3)))
            columns.append(numbers(f"the radius of obstacle {i}", o.radius, (knots,))[:, None])
        for s in self.limits.spheres:
            point_of(robot, s.frame, self._offset(s))
            columns.append(numbers(f"the radius of the sphere on {s.frame!r}", s.radius, (knots,))[:, None])
        radii = np.concatenate([c for c in columns if c.shape[1] == 1], axis=1)
        if (radii <= 0).any():
            raise InputError("radii of obstacles and of spheres are positive")
        return np.concatenate(columns, axis=1)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = robot_of(system, "an obstacle")
        q = robot.split(x)[0]
        result = []
        for k, s in enumerate(self.limits.spheres):
            p = kinematics.frame_transform(robot.model, q, point_of(robot, s.frame, self._offset(s))).r
            for _, distance, radius in self._around(p, k, target):
                result.append(distance - radius * math.sqrt(1 + _SOFT**2))
        return tuple(result)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        robot = robot_of(system, "an obstacle")
        q, rows = robot.split(x)[0], []
        for k, s in enumerate(self.limits.spheres):
            point = point_of(robot, s.frame, self._offset(s))
            p = kinematics.frame_transform(robot.model, q, point).r
            columns = list(zip(*kinematics.jacobian(robot.model, q, point, "world")[:3], strict=True))
            for away, distance, _ in self._around(p, k, target):
                direction = tuple(a / distance for a in away)
                rows.append((*(dot3(direction, c) for c in columns), *((0.0,) * robot.nv)))
        return tuple(rows), None

    def asked(self, system: System, knots: int) -> Bounds:
        lower = numbers("clearance", self.limits.clearance, (knots, self.size(system)))
        if (lower < 0).any():
            raise InputError(f"clearance is a distance to keep, so it is not negative; this is {self.limits.clearance!r}")
        return lower, np.full(lower.shape, np.inf)

    def start_text(self, system: System, k: int, c: float) -> str:
        sphere, obstacle = divmod(k, len(self.limits.obstacles))
        return f"at the start, the sphere on {self.limits.spheres[sphere].frame!r} is {c:.3g} m from obstacle {obstacle}, less than the clearance"

    def _around(self, p: Vector3, sphere: int, target: Vector) -> Iterator[tuple[Vector3, Scalar, Scalar]]:
        """For each obstacle the way from its centre to p, its smoothed length, and the sum of radii."""
        count = len(self.limits.obstacles)
        for i in range(count):
            away = sub3(p, target[4 * i : 4 * i + 3])
            radius = target[4 * i + 3] + target[4 * count + sphere]
            soft = _SOFT * radius
            yield away, sqrt(dot3(away, away) + soft * soft), radius

    @staticmethod
    def _offset(sphere: LinkSphere) -> tuple[float, ...]:
        return tuple(numbers(f"the offset of the sphere on {sphere.frame!r}", sphere.offset, (3,)).tolist())


def _units(columns: Iterable[int], n: int) -> Matrix:
    return tuple(tuple(1.0 if i == k else 0.0 for i in range(n)) for k in columns)


# --- constraints that users write ------------------------------------------------------------------------------------------------


class Inequality(Constraint):
    """lower ≤ r ≤ upper, where r is what a Python function of x and u returns (as for `costs.Function`), or the residual of a term: `Inequality(Reach(…), …)`.

    Bounds are a number, one a number of r, or one set a knot, (knots, size), or (knots - 1, size) if r depends on the control. `at` is "all", "final", or the
    knots to hold on. Parameters may be changed as `constraint.term.parameters`.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Term,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        *,
        at: Any = "all",
        parameters: Any = None,
        name: str | None = None,
    ):
        if isinstance(function, Term) and parameters is not None:
            raise InputError("parameters belong to a function; a term has its own targets")
        self.term = function if isinstance(function, Term) else Function(function, parameters, name)
        self.lower, self.upper, self.at = lower, upper, at

    def __copy__(self) -> Inequality:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.term = copy.copy(self.term)
        return other

    def label(self) -> str:
        return f"{type(self).__name__} {self.term.label()}"

    @property
    def uses_state(self) -> bool:
        return self.term.uses_state

    @property
    def uses_control(self) -> bool:
        return self.term.uses_control

    def key(self) -> str:
        return f"Constraint {self.term.key()}"

    def size(self, system: System) -> int:
        return self.term.size(system)

    def target_size(self, system: System) -> int:
        return self.term.target_size(system)

    def targets(self, system: System, knots: int) -> np.ndarray:
        return self.term.targets(system, knots)

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return self.term.residual(system, x, u, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        return self.term.jacobian(system, x, u, target)

    def asked(self, system: System, knots: int) -> Bounds:
        size, name = self.size(system), self._name()
        acting = np.arange(knots - 1) if self.uses_control else np.arange(knots)
        given = [numbers(f"the {side} bound of {name}", b, (len(acting), size), infinite=True) for side, b in self._sides()]
        check_order(name, *given)
        if not np.isfinite(given).any():
            raise InputError(f"{name} has no finite bound: give it a lower or an upper one")
        lower, upper = np.full((knots, size), -np.inf), np.full((knots, size), np.inf)
        held = self._held(knots)
        lower[held], upper[held] = given[0][held], given[1][held]
        return lower, upper

    def _sides(self) -> tuple[tuple[str, Any], tuple[str, Any]]:
        return ("lower", self.lower), ("upper", self.upper)

    def _name(self) -> str:
        return getattr(self.term, "name", type(self.term).__name__)

    def _held(self, knots: int) -> np.ndarray:
        """The knots that it holds on."""
        first, last = (0, knots - 2) if self.uses_control else (1, knots - 1)
        if isinstance(self.at, str) and self.at == "all":
            return np.arange(first, last + 1)
        chosen = [knots - 1] if isinstance(self.at, str) and self.at == "final" else self.at
        try:
            held = np.atleast_1d(np.array([operator.index(k) for k in np.atleast_1d(chosen).tolist()], dtype=int))
        except TypeError:
            raise InputError(f'at is "all", "final", or knots as whole numbers, not {self.at!r}') from None
        held = np.where(held < 0, held + knots, held)
        if held.size == 0 or (held < first).any() or (held > last).any():
            reason = "the last knot has no control" if self.uses_control else "the start is given"
            raise InputError(f"{self._name()} can hold on the knots {first} to {last} ({reason}), not at {self.at!r}")
        return held


class Equality(Inequality):
    """r = value, where r is what a Python function of x and u returns, or the residual of a term; the rest as in `Inequality`."""

    def __init__(
        self, function: Callable[..., Any] | Term, value: Any = 0.0, *, at: Any = "all", parameters: Any = None, name: str | None = None
    ):
        super().__init__(function, at=at, parameters=parameters, name=name)
        self.value = value

    def _sides(self) -> tuple[tuple[str, Any], tuple[str, Any]]:
        return ("lower", self.value), ("upper", self.value)
