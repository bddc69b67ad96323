"""Limits of a motion: a box for the controls, and constraints, which are terms kept between bounds
(terms/). There are none unless asked for.

Bounds, obstacles and parameters are inputs of the compiled problem and may change at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad import schema
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.avoidance import Avoidance, SelfAvoidance
from rigidgrad.control.terms.constraint import Bounds, Constraint, check_order
from rigidgrad.control.terms.equality import Equality
from rigidgrad.control.terms.inequality import Inequality
from rigidgrad.control.terms.limit import is_own, is_pair, own_limits
from rigidgrad.control.terms.notation import BOUND
from rigidgrad.control.terms.obstacles import Clearance, LinkSphere, Obstacle
from rigidgrad.control.terms.position import Position
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.velocity import Velocity
from rigidgrad.errors import InputError
from rigidgrad.geometry.scene import Scene, as_scene
from rigidgrad.geometry.shapes import Shape
from rigidgrad.model.model import Limits as JointLimits

__all__ = [
    "Clearance",
    "Constraint",
    "Equality",
    "Inequality",
    "Limits",
    "LinkSphere",
    "Obstacle",
    "Position",
    "Velocity",
    "as_limits",
]

# True, numbers b for ±b, or (lower, upper)
Bound = ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | JointLimits | None


class Limits:
    """Limits of torque, joint position and velocity, spheres that avoid obstacles, and constraints
    of your own.

    `torque` (nu,) or (steps, nu), `position` (nq,) or (knots, nq), and `velocity` (nv,) or (knots,
    nv) are each None (no limit), True (the robot's own), a number or an array b (from -b to b), or
    a tuple (lower, upper) of these, in which None stands for no bound. Positions are limited for
    joints with one freedom; a number means all of these. `margin=0.1` keeps to the middle 90% of
    every range that has two ends.

    Every one of the `spheres` stays out of every obstacle, `clearance` metres apart; so does every
    link with collision shapes (`robot.collisions`) of everything in `scene`, an `rg.Scene`. Which
    shapes a scene has is compiled; where they are may change. Links that can touch each other
    (`robot.collisions.self_pairs`) stay `self_clearance` metres apart, unless that is None.
    `constraints` are `Inequality` and `Equality`.

    A start outside of its position limits or inside of an obstacle is an error, because no control
    can undo it within a step. With `recover=True` the bound in question begins at the start and
    moves evenly to its place, which it reaches at the last knot; likewise for velocities.

    Example:

        >>> import rigidgrad as rg
        >>> limits = rg.Limits(torque=10.0, position=(-3.0, 3.0), velocity=True)
    """

    def __init__(
        self,
        torque: Annotated[
            Bound,
            BOUND,
            "of the controls: `true` for the robot's own, a number for ±, one per control, or `{"
            " lower = …, upper = … }`",
        ] = None,
        position: Annotated[
            Bound, BOUND, "of joints with one freedom, likewise; one per position"
        ] = None,
        velocity: Annotated[Bound, BOUND, "of all joints, likewise; one per velocity"] = None,
        *,
        obstacles: Annotated[
            Sequence[Obstacle], schema.objects(Obstacle), "spheres in the world to keep out of"
        ] = (),
        spheres: Annotated[
            Sequence[LinkSphere],
            schema.objects(LinkSphere),
            "spheres on links that keep out of them",
        ] = (),
        scene: Annotated[
            Scene | Sequence[Shape] | None,
            schema.file(".toml"),
            "solids that all links keep out of: a file in the task's folder with `[[shape]]`"
            " tables",
        ] = None,
        constraints: Sequence[Constraint] = (),
        margin: Annotated[
            float, schema.number(least=0), "the part of a range with two ends that is left unused"
        ] = 0.0,
        clearance: Annotated[
            float,
            schema.number(least=0),
            "metres between spheres and obstacles, and between links and the scene",
        ] = 0.0,
        self_clearance: Annotated[
            float | None,
            schema.number(least=0),
            "metres between links that can touch each other; none: they may",
        ] = None,
        recover: Annotated[
            bool,
            schema.flag,
            "`true`: a start outside of these limits is no error; it comes back by the last knot",
        ] = False,
    ):
        self.torque, self.position, self.velocity = torque, position, velocity
        self.obstacles, self.spheres = (
            _all(Obstacle, "obstacles", obstacles),
            _all(LinkSphere, "spheres", spheres),
        )
        self.added = _all(Constraint, "constraints", constraints)
        if bool(self.obstacles) != bool(self.spheres):
            raise InputError(
                "obstacles are avoided by spheres on links: give both, obstacles=[Obstacle(…)] and"
                " spheres=[LinkSphere(…)]"
            )
        self.scene = as_scene(scene)
        if scene is not None and not len(self.scene):
            raise InputError("the scene of these limits is empty: leave scene= out")
        self.self_clearance = self_clearance
        self.margin, self.clearance, self.recover = margin, clearance, bool(recover)

    def __copy__(self) -> Limits:
        """With obstacles, spheres and constraints of its own, so that their numbers change
        apart.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in ("obstacles", "spheres", "added"):
            setattr(other, name, tuple(copy.copy(x) for x in getattr(self, name)))
        return other

    def control_bounds(self, system: System, steps: int) -> Bounds | None:
        """(lower, upper), each (steps, nu), ±inf where there is none; None without torque
        limits.
        """
        value = self.torque
        if _is_absent(value):
            return None
        if is_own(value):
            robot = robot_of(system, "torque=True")
            value = _control_limits(robot, own_limits(robot, value).effort)
        return self.bounds_of("torque", value, (steps, system.nu))

    def constraints(self, system: System) -> tuple[Constraint, ...]:
        """All limits but those of the controls."""
        result: list[Constraint] = []
        if not _is_absent(self.position):
            position = Position(self)
            if position.size(system):
                result.append(position)
            elif not is_own(self.position):
                raise InputError(
                    f"{system.name!r} has no joints with one freedom, so no positions to limit:"
                    " write an Inequality"
                )
        if not _is_absent(self.velocity):
            result.append(Velocity(self))
        if self.obstacles:
            result.append(Clearance(self))
        if len(self.scene):
            result.append(Avoidance(self))
        if self.self_clearance is not None:
            result.append(SelfAvoidance(self))
        return (*result, *self.added)

    def bounds_of(self, what: str, value: Bound, shape: tuple[int, int]) -> Bounds:
        """(lower, upper) of one kind of limit, checked and drawn in by the margin."""
        pair: Any = value
        if is_pair(value):
            sides = [s * np.inf if b is None else b for b, s in zip(pair, (-1, 1), strict=True)]
            lower, upper = (
                numbers(f"{side} {what} limit", b, shape, infinite=True)
                for side, b in zip(("lower", "upper"), sides, strict=True)
            )
        else:
            upper = numbers(f"{what} limit", value, shape, infinite=True)
            if (upper < 0).any():
                raise InputError(
                    f"one {what} limit b means from -b to b, so it is not negative; give a tuple"
                    " (lower, upper) for other ranges"
                )
            lower = -upper
        check_order(what + " limit", lower, upper)
        margin = float(numbers("margin", self.margin, ()))
        if not 0 <= margin < 1:
            raise InputError(
                f"margin is a part of the range, at least 0 and below 1, not {margin:g}"
            )
        with np.errstate(invalid="ignore"):
            inset = np.where(
                np.isfinite(lower) & np.isfinite(upper), margin * (upper - lower) / 2, 0.0
            )
        return lower + inset, upper - inset


def as_limits(limits: Limits | JointLimits | None, system: System) -> Limits:
    """What a problem was given: None, Limits, or a robot's own `robot.limits` for torque, position
    and velocity.
    """
    if limits is None:
        return Limits()
    if isinstance(limits, JointLimits):
        own_limits(robot_of(system, "robot.limits"), limits)
        return Limits(torque=limits, position=limits, velocity=limits)
    if isinstance(limits, Limits):
        return limits
    raise InputError(
        "limits are robot.limits or rg.Limits(torque=…, position=…, velocity=…, …), not"
        f" {type(limits).__name__}"
    )


def _all(kind: type, what: str, values: Any) -> tuple[Any, ...]:
    result = tuple(values) if isinstance(values, Iterable) else (values,)
    for value in result:
        if not isinstance(value, kind):
            raise InputError(f"{what} are {kind.__name__} objects, not {type(value).__name__}")
    return result


def _is_absent(value: Any) -> bool:
    return value is None or value is False


def _control_limits(robot: RobotSystem, effort: np.ndarray) -> Bounds:
    """Limits of the joints' forces as limits of the controls, within what the actuators can do."""
    least, most = (
        np.array([getattr(a, side) for a in robot.actuators]) for side in ("lower", "upper")
    )
    limit = effort if robot.actuation is None else _effort_of_controls(robot, effort)
    return np.maximum(-limit, least), np.minimum(limit, most)


def _effort_of_controls(robot: RobotSystem, effort: np.ndarray) -> np.ndarray:
    assert robot.actuation is not None
    limit = np.full(robot.nu, np.inf)
    for row, most in zip(robot.actuation, effort, strict=True):
        driving = np.flatnonzero(row)
        if np.isfinite(most) and driving.size > 1:
            raise InputError(
                "several controls drive one joint here, so its effort is no limit of a single one;"
                " give torque=(lower, upper) of the controls"
            )
        if np.isfinite(most) and driving.size:
            limit[driving[0]] = min(limit[driving[0]], most / abs(row[driving[0]]))
    return limit
