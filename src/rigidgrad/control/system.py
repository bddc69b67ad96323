"""What is controlled, over any scalar: a robot, or dynamics that a user wrote. States live on a manifold; tangents are [dq, dv]."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.algorithms import manifold, tangent_maps
from rigidgrad.algorithms.gauge import Gauge
from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.algorithms.subtree_gradient import forward_gradient
from rigidgrad.errors import InputError
from rigidgrad.model.canonical import canonical
from rigidgrad.model.model import Model
from rigidgrad.robot import Robot
from rigidgrad.runtime.formulation import best_gauge, solved_dynamics
from rigidgrad.runtime.lanes import digest
from rigidgrad.scalars import Scalar, add, mul, total


class System(ABC):
    """A state of `nx` numbers whose tangent has `ndx`, driven by `nu` controls."""

    nx: int
    ndx: int
    nu: int
    name: str

    @property
    def flat(self) -> bool:
        """Whether states are a vector space."""
        return self.nx == self.ndx

    @abstractmethod
    def key(self) -> str:
        """What distinguishes this system's recorded programs from others'."""

    def plus(self, x: Vector, dx: Vector) -> Vector:
        """x ⊕ dx."""
        return tuple(add(a, b) for a, b in zip(x, dx, strict=True))

    def minus(self, x: Vector, origin: Vector) -> Vector:
        """x ⊖ origin, a tangent at the origin."""
        return tuple(a - b for a, b in zip(x, origin, strict=True))

    def minus_jacobian(self, difference: Vector) -> list[Matrix]:
        """∂(x ⊖ origin)/∂x as diagonal blocks, where x ⊖ origin = difference."""
        return [((1.0,),)] * self.ndx


class RobotSystem(System):
    """x = [q, v]; a control is a joint force, or goes through `actuation` (nv, nu): tau = actuation · u."""

    def __init__(self, robot: Robot, actuation: Any = None):
        self.robot, self.model = robot, robot.model
        self.name = robot.name
        self.nq, self.nv = robot.nq, robot.nv
        self.nx, self.ndx = self.nq + self.nv, 2 * self.nv
        self.actuation: tuple[tuple[float, ...], ...] | None = None
        if actuation is not None:
            matrix = np.asarray(actuation, dtype=float)
            if matrix.ndim != 2 or matrix.shape[0] != self.nv or not np.all(np.isfinite(matrix)):
                raise InputError(f"actuation is a finite matrix of shape ({self.nv}, nu); this has shape {matrix.shape}")
            self.actuation = tuple(tuple(row) for row in matrix.tolist())
        self.nu = self.nv if self.actuation is None else len(self.actuation[0])

    def __reduce__(self):
        return RobotSystem, (self.robot, self.actuation)

    @cached_property
    def lean(self) -> Model:
        """The same dynamics with fewer operations."""
        return canonical(self.model)

    @cached_property
    def _gauge(self) -> Gauge:
        return best_gauge(self.lean)

    def key(self) -> str:
        return f"{digest(self.model)} {self.actuation!r}"

    def forces(self, u: Vector) -> Vector:
        if self.actuation is None:
            return u
        return tuple(total(mul(b, x) for b, x in zip(row, u, strict=True)) for row in self.actuation)

    def acceleration(self, q: Vector, v: Vector, u: Vector) -> Vector:
        return solved_dynamics(self.lean, q, v, self.forces(u))

    def acceleration_gradient(self, q: Vector, v: Vector, u: Vector) -> tuple[Vector, Matrix, Matrix, Matrix]:
        """a, ∂a/∂q, ∂a/∂v, ∂a/∂u."""
        a, d = forward_gradient(self.lean, q, v, self.forces(u), gauge=self._gauge)
        if self.actuation is None:
            return a, d.dq, d.dv, d.dtau
        columns = list(zip(*self.actuation, strict=True))
        by_u = tuple(tuple(total(mul(x, y) for x, y in zip(row, c, strict=True)) for c in columns) for row in d.dtau)
        return a, d.dq, d.dv, by_u

    def weigh_acceleration(self, q: Vector, w: Vector) -> Vector:
        """M⁻¹ w."""
        still = dataclasses.replace(self.lean, gravity=(0.0, 0.0, 0.0))
        return solved_dynamics(still, q, (0.0,) * self.nv, w)

    def split(self, x: Vector) -> tuple[Vector, Vector]:
        return tuple(x[: self.nq]), tuple(x[self.nq :])

    def plus(self, x: Vector, dx: Vector) -> Vector:
        q, v = self.split(x)
        return (*manifold.integrate(self.model, q, tuple(dx[: self.nv])), *(add(a, b) for a, b in zip(v, dx[self.nv :], strict=True)))

    def minus(self, x: Vector, origin: Vector) -> Vector:
        (q, v), (q0, v0) = self.split(x), self.split(origin)
        return (*manifold.difference(self.model, q0, q), *(a - b for a, b in zip(v, v0, strict=True)))

    def minus_jacobian(self, difference: Vector) -> list[Matrix]:
        one: Matrix = ((1.0,),)
        return tangent_maps.right_jacobian_inverse(self.model, tuple(difference[: self.nv])) + [one] * self.nv


class CustomSystem(System):
    """Dynamics written in Python over scalars: `function(x, u)` gives dx/dt or, with `discrete=True`, the next state."""

    def __init__(self, function: Callable[..., Sequence[Scalar]], nx: int, nu: int, *, discrete: bool = False, name: str = "custom"):
        if nx < 1 or nu < 0:
            raise InputError(f"a system needs at least one state and no fewer than 0 controls, not {nx} and {nu}")
        self.function, self.discrete = function, discrete
        self.nx = self.ndx = int(nx)
        self.nu = int(nu)
        self.name = name

    def key(self) -> str:
        return ""  # what a Python function does is only known from its recording

    def rate(self, x: Vector, u: Vector) -> Vector:
        result = tuple(self.function(x, u))
        if len(result) != self.nx:
            raise InputError(f"the dynamics returned {len(result)} numbers for a state of {self.nx}")
        return result


def as_system(system: Any) -> System:
    if isinstance(system, System):
        return system
    if isinstance(system, Robot):
        return RobotSystem(system)
    raise InputError(f"a problem is about a Robot or a system, not {type(system).__name__}")
