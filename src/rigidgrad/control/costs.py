"""Costs: ½ Σ w r² of a residual r, per knot. Targets and weights are inputs of the compiled problem and may change at any time.

A cost gives its residual and the residual's Jacobian over any scalar; second derivatives are Gauss-Newton's.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rigidgrad.algorithms import kinematics
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.errors import InputError
from rigidgrad.model.pose import IDENTITY_POSE, Pose


class Cost(ABC):
    """`weight` of every knot but the last, `final` of the last: a number, one a residual, or (for `weight`) one set a knot."""

    uses_control = False

    def __init__(self, weight: Any = 0.0, final: Any = 0.0):
        self.weight, self.final = weight, final

    @abstractmethod
    def size(self, system: System) -> int:
        """Numbers in the residual."""

    @abstractmethod
    def target_size(self, system: System) -> int: ...

    @abstractmethod
    def targets(self, system: System, knots: int) -> np.ndarray:
        """(knots, target_size)."""

    @abstractmethod
    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector: ...

    @abstractmethod
    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Matrix:
        """∂r/∂dx, or ∂r/∂u where `uses_control`."""

    def key(self) -> str:
        return type(self).__name__

    def weights(self, system: System, knots: int) -> np.ndarray:
        """(knots, size)."""
        result = np.zeros((knots, self.size(system)))
        result[:-1] = _numbers(f"the weight of {self.key()}", self.weight, (knots - 1, self.size(system)))
        result[-1] = 0.0 if self.uses_control else _numbers(f"the final weight of {self.key()}", self.final, (self.size(system),))
        if (result < 0).any():
            raise InputError(f"a weight of {self.key()} is negative; a cost must have a minimum")
        return result


class State(Cost):
    """Be at a state: r = x ⊖ goal, with goal (nx,) or one a knot (knots, nx)."""

    def __init__(self, goal: Any, weight: Any = 0.0, final: Any = 0.0):
        super().__init__(weight, final)
        self.goal = goal

    def size(self, system: System) -> int:
        return system.ndx

    def target_size(self, system: System) -> int:
        return system.nx

    def targets(self, system: System, knots: int) -> np.ndarray:
        return _numbers("the goal of State", self.goal, (knots, system.nx))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return system.minus(x, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Matrix:
        rows: list[list[Any]] = [[0.0] * system.ndx for _ in range(system.ndx)]
        start = 0
        for block in system.minus_jacobian(system.minus(x, target)):
            for i, row in enumerate(block):
                rows[start + i][start : start + len(row)] = row
            start += len(block)
        return tuple(tuple(row) for row in rows)


class Effort(Cost):
    """Spend little control: r = u - reference; the reference is 0 unless given, (nu,) or one a knot (knots - 1, nu)."""

    uses_control = True

    def __init__(self, weight: Any = 0.0, reference: Any = 0.0):
        super().__init__(weight)
        self.reference = reference

    def size(self, system: System) -> int:
        return system.nu

    def target_size(self, system: System) -> int:
        return system.nu

    def targets(self, system: System, knots: int) -> np.ndarray:
        result = np.zeros((knots, system.nu))
        result[:-1] = _numbers("the reference of Effort", self.reference, (knots - 1, system.nu))
        return result

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return tuple(a - b for a, b in zip(u, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Matrix:
        return tuple(tuple(1.0 if i == j else 0.0 for j in range(system.nu)) for i in range(system.nu))


class Reach(Cost):
    """Bring a point of a frame to a position in the world: r = p(q) - target, with target (3,) or one a knot."""

    def __init__(self, frame: str, target: Any, offset: Any = (0.0, 0.0, 0.0), weight: Any = 0.0, final: Any = 0.0):
        super().__init__(weight, final)
        self.frame, self.target = frame, target
        self.offset = tuple(_numbers("the offset of Reach", offset, (3,)).tolist())

    def key(self) -> str:
        return f"Reach {self.frame} {self.offset}"

    def size(self, system: System) -> int:
        return 3

    def target_size(self, system: System) -> int:
        return 3

    def targets(self, system: System, knots: int) -> np.ndarray:
        return _numbers("the target of Reach", self.target, (knots, 3))

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        robot = _robot(system)
        X = kinematics.frame_transform(robot.model, robot.split(x)[0], self._point(robot))
        return tuple(a - b for a, b in zip(X.r, target, strict=True))

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Matrix:
        robot = _robot(system)
        J = kinematics.jacobian(robot.model, robot.split(x)[0], self._point(robot), "world")
        return tuple((*row, *((0.0,) * robot.nv)) for row in J[:3])

    def _point(self, robot: RobotSystem) -> Any:
        frame = robot.model.frame(self.frame)
        return dataclasses.replace(frame, placement=frame.placement @ Pose(IDENTITY_POSE.R, self.offset))


def _robot(system: System) -> RobotSystem:
    if not isinstance(system, RobotSystem):
        raise InputError("Reach needs a robot")
    return system


def _numbers(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers, broadcast to a shape."""
    try:
        array = np.asarray(value, dtype=float)
        result = np.broadcast_to(array, shape)
    except (TypeError, ValueError):
        raise InputError(f"{what} is {value!r}; it must broadcast to the shape {shape}") from None
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} holds NaN or infinity")
    return np.array(result)
