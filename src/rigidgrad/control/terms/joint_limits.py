"""Stay within the robot's own limits, at a price."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.cost import Activated, Cost, Final, Weight
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.state import State
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError
from rigidgrad.scalars import less, select, sub
from rigidgrad.schema import number

_FAR = 1e12  # stands for an infinite bound


class JointLimits(Cost):
    """How far positions of joints with one freedom, and then velocities, are outside of the robot's
    own limits (`robot.limits`); 0 inside. Only limits that are finite count.

    `margin=0.1` charges for what is outside of the middle 90% of a range with two ends.
    `rg.Limits(position=True, velocity=True)` forbids what this charges for.
    """

    def __init__(
        self,
        weight: Weight = 0.0,
        final: Final = 0.0,
        margin: Annotated[
            float, number(least=0), "the part of a range with two ends that is left unused"
        ] = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.margin = margin

    def size(self, system: System) -> int:
        return len(_limited(robot_of(system, "JointLimits")))

    def target_size(self, system: System) -> int:
        return 2 * self.size(system)

    def units(self, system: System) -> tuple[str, ...]:
        robot = robot_of(system, "JointLimits")
        of_state = State(0.0).units(robot)
        return tuple(of_state[k] for _, k in _limited(robot))

    def targets(self, system: System, knots: int) -> np.ndarray:
        robot = robot_of(system, "JointLimits")
        margin = float(numbers("the margin of JointLimits", self.margin, ()))
        if not 0 <= margin < 1:
            raise InputError(
                "the margin of JointLimits is a part of the range, at least 0 and below 1, not"
                f" {margin:g}"
            )
        own = [i for i, _ in _limited(robot)]
        if not own:
            raise InputError(
                f"{robot.name!r} has no finite limits of position or velocity: leave JointLimits"
                " out, or give State a Barrier"
            )
        lower, upper = (b[own] for b in _bounds(robot))
        with np.errstate(invalid="ignore"):
            inset = np.where(
                np.isfinite(lower) & np.isfinite(upper), 0.5 * margin * (upper - lower), 0.0
            )
        return np.tile(
            np.clip(np.concatenate([lower + inset, upper - inset]), -_FAR, _FAR), (knots, 1)
        )

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        own = _limited(robot_of(system, "JointLimits"))
        n = len(own)
        found = []
        for (i, _), low, high in zip(own, target[:n], target[n:], strict=True):
            under, over = less(x[i], low), less(high, x[i])
            found.append(select(over, sub(x[i], high), select(under, sub(x[i], low), 0.0 * x[i])))
        return tuple(found)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        own = _limited(robot_of(system, "JointLimits"))
        n = len(own)
        rows = []
        for (i, k), low, high in zip(own, target[:n], target[n:], strict=True):
            one, none = 1.0 + 0.0 * x[i], 0.0 * x[i]
            slope = select(less(high, x[i]), one, select(less(x[i], low), one, none))
            rows.append(tuple(slope if c == k else 0.0 for c in range(system.ndx)))
        return tuple(rows), None


def _bounds(robot: RobotSystem) -> tuple[np.ndarray, np.ndarray]:
    """Of a whole state, (nx,) each."""
    limits: Any = robot.robot.limits
    return np.concatenate([limits.lower, -limits.velocity]), np.concatenate(
        [limits.upper, limits.velocity]
    )


def _limited(robot: RobotSystem) -> list[tuple[int, int]]:
    """Where numbers with a finite limit are in the state and in its tangent."""
    lower, upper = _bounds(robot)
    finite = np.isfinite(lower) | np.isfinite(upper)
    joints = sorted(
        (j for j in robot.model.joints if j.nq == 1 and not j.is_mimic), key=lambda j: j.q
    )
    places = [(j.q, j.v) for j in joints] + [(robot.nq + k, robot.nv + k) for k in range(robot.nv)]
    return [(i, k) for i, k in places if finite[i]]
