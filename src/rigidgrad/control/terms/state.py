"""Be at a state."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import manifold
from rigidgrad.algorithms.joints import Vector
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import RobotSystem, System
from rigidgrad.control.terms.activation import Barrier
from rigidgrad.control.terms.cost import Activated, Cost
from rigidgrad.control.terms.notation import GOAL, STATE_WEIGHT
from rigidgrad.control.terms.term import Jacobians
from rigidgrad.errors import InputError


class State(Cost):
    """Be at a state: r = x ⊖ goal, with goal (nx,) or one per knot (knots, nx)."""

    def __init__(
        self,
        goal: Annotated[ArrayLike, GOAL, '`"start"`, or a state as the task writes its `start`'],
        weight: Annotated[
            ArrayLike,
            STATE_WEIGHT,
            "of every knot but the last: a number, one per number of the residual, or `{ position ="
            " …, velocity = … }`",
        ] = 0.0,
        final: Annotated[ArrayLike, STATE_WEIGHT, "of the last knot, likewise"] = 0.0,
        activation: Activated = None,
    ):
        super().__init__(weight, final, activation)
        self.goal = goal

    def size(self, system: System) -> int:
        return system.ndx

    def target_size(self, system: System) -> int:
        return system.nx

    def units(self, system: System) -> tuple[str, ...]:
        if not isinstance(system, RobotSystem):
            return super().units(system)
        joints = sorted((j for j in system.model.joints if not j.is_mimic), key=lambda j: j.v)
        of_q = [unit for j in joints for unit in j.kind.units]
        return (*of_q, *(f"{unit}/s" for unit in of_q))

    def remaining(self, system: System, x: Vector, target: Vector) -> Vector:
        r = super().remaining(system, x, target)
        if not isinstance(system, RobotSystem) or isinstance(self.activation, Barrier):
            return r
        return (
            *manifold.separation(system.model, system.split(target)[0], system.split(x)[0]),
            *r[system.nv :],
        )

    def targets(self, system: System, knots: int) -> np.ndarray:
        result = numbers("the goal of State", self.goal, (knots, system.nx))
        if isinstance(system, RobotSystem):
            q = tuple(result[:, : system.nq].T)
            with np.errstate(all="ignore"):  # a quaternion of zeros becomes NaN
                unit = np.array(manifold.normalize(system.model, q))
            if not np.allclose(unit, q, rtol=0, atol=1e-6):
                raise InputError(
                    "the goal of State has a quaternion or (cos, sin) whose length is not 1; pass"
                    " its q through robot.normalize"
                )
        return result

    def residual(self, system: System, x: Vector, u: Vector, target: Vector) -> Vector:
        return system.minus(x, target)

    def jacobian(self, system: System, x: Vector, u: Vector, target: Vector) -> Jacobians:
        rows: list[list[Any]] = [[0.0] * system.ndx for _ in range(system.ndx)]
        start = 0
        for block in system.minus_jacobian(system.minus(x, target)):
            for i, row in enumerate(block):
                rows[start + i][start : start + len(row)] = row
            start += len(block)
        return tuple(tuple(row) for row in rows), None
