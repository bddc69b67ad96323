"""What is controlled, over any scalar: a robot, or dynamics that a user wrote. States live on a
manifold; tangents are [dq, dv].
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.algorithms import manifold, tangent_maps
from rigidgrad.algorithms.fast.constraint_rows import Inputs
from rigidgrad.algorithms.fast.contact_dynamics import contact_dynamics, contact_gradient
from rigidgrad.algorithms.fast.factored import solved_dynamics
from rigidgrad.algorithms.fast.gauge import Gauge
from rigidgrad.algorithms.fast.second_gradient import rnea_hessian
from rigidgrad.algorithms.fast.subtree_gradient import forward_gradient
from rigidgrad.algorithms.joints import External, Matrix, Vector
from rigidgrad.algorithms.results import RneaSecondDerivatives
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.model.actuation import actuation_matrix, actuators_of, own_actuators, undriven
from rigidgrad.model.canonical import canonical
from rigidgrad.model.model import Model
from rigidgrad.robot import Robot
from rigidgrad.runtime.formulation import best_gauge
from rigidgrad.runtime.job import digest
from rigidgrad.runtime.mass_matrix import require_inverse
from rigidgrad.scalars import Scalar, add, mul, sub, total

if TYPE_CHECKING:
    from rigidgrad.control.held import Held
    from rigidgrad.control.parameters import Varied

_LISTED = 8  # names in one line
_MOST = 100_000  # states or controls

# what drives a robot: names, forces by control and joint, or a matrix (nv, nu)
Actuation = str | Iterable[str] | ArrayLike | Mapping[str, Mapping[str, float]]


class System(ABC):
    """A state of `nx` numbers whose tangent has `ndx`, driven by `nu` controls."""

    nx: int
    ndx: int
    nu: int
    name: str
    inputs: int = 0  # numbers of the dynamics that are inputs of a problem

    @property
    def bare(self) -> System:
        """The system without what was added to its state."""
        return self

    def given(self, numbers: Vector) -> System:
        """The system with these inputs."""
        return self

    @property
    def given_inputs(self) -> Vector:
        """What it was given."""
        return ()

    @property
    def flat(self) -> bool:
        """Whether states are a vector space."""
        return self.nx == self.ndx

    @property
    def at_rest(self) -> Scalar:
        """1 of an impact, in which no time passes and controls do nothing; else 0."""
        return 0.0

    @property
    def idle(self) -> Vector:
        """Of each control, 1 where it does nothing, else 0."""
        return (self.at_rest,) * self.nu

    @abstractmethod
    def key(self) -> str:
        """What distinguishes this system's recorded programs from others'."""

    @property
    def driven(self) -> str:
        """What the controls act on, for people."""
        return f"{self.nu} control{'' if self.nu == 1 else 's'} of dynamics of your own"

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
    """x = [q, v]; tau = B u.

    `actuation` is "joints" (the default: the motors that the robot has, `robot.actuation`, and none
    on a floating base), "all" (a force on every freedom, a wrench on a floating base too), names of
    joints, {control: {joint: forces per unit}}, or the matrix B (nv, nu). `controls` are the
    controls' names; `actuation` is B, or None where it is the identity. `varied` and `held`:
    parameters and contacts, which problems add.
    """

    def __init__(
        self,
        robot: Robot,
        actuation: Actuation | None = None,
        varied: Varied | None = None,
        held: Held | None = None,
    ):
        self.robot, self.model = robot, robot.model
        self.varied = varied if varied is not None and varied.count else None
        self.held = held
        self.inputs = (0 if self.varied is None else self.varied.count) + (
            0 if held is None else held.count
        )
        self.external: External | None = None
        self.touching: Inputs | None = None  # the contacts' numbers, where they are given
        self._solved: tuple[tuple[Any, ...], tuple[Any, ...]] | None = (
            None  # the last contact dynamics, and what they were asked of
        )
        self._given: tuple[RobotSystem, Vector] | None = None
        self.name = robot.name
        self.forces_apart = False
        self.forces_given: Vector | None = None
        self.nq, self.nv = robot.nq, robot.nv
        self.nx, self.ndx = self.nq + self.nv, 2 * self.nv
        self._asked = "joints" if actuation is None else actuation
        self.actuators = actuators_of(self.model, self._asked)
        if not self.actuators:
            raise InputError(
                f"nothing drives {self.name!r}: all its joints are free. State what does:"
                f" actuation={{control: {{joint: forces}}}}, a matrix ({self.nv}, nu), or"
                ' actuation="all" for a force on every freedom'
            )
        matrix = actuation_matrix(self.model, self.actuators)
        self.actuation = None if np.array_equal(matrix, np.eye(self.nv)) else matrix
        self.nu = len(self.actuators)

    def __reduce__(self) -> tuple[Any, ...]:
        return RobotSystem, (self.robot, self._asked, self.varied, self.held)

    def varying(self, varied: Varied) -> RobotSystem:
        """The same with numbers of its dynamics as inputs."""
        return RobotSystem(self.robot, self._asked, varied, self.held)

    def holding(self, held: Held) -> RobotSystem:
        """The same with contacts."""
        return RobotSystem(self.robot, self._asked, self.varied, held)

    @property
    def contact_numbers(self) -> slice:
        """Where the contacts' numbers are among the inputs."""
        return slice(0 if self.varied is None else self.varied.count, self.inputs)

    def given(self, numbers: Vector) -> RobotSystem:
        if not self.inputs:
            return self
        if self._given is not None:
            return self._given[0].given(numbers)
        result = copy.copy(self)
        numbers = tuple(numbers)
        result._given = self, numbers
        result.__dict__["gauge"] = self.gauge
        if self.varied is not None:
            result.model = self.varied.applied(self.model, numbers)
            result.__dict__["canonical_model"] = self.varied.applied(self.canonical_model, numbers)
            result.external = self.varied.wrenches(self.canonical_model, numbers)
        if self.held is not None:
            result.touching = self.held.inputs(numbers[self.contact_numbers])
        return result

    @property
    def given_inputs(self) -> Vector:
        return () if self._given is None else self._given[1]

    def with_forces(self, force: Vector) -> RobotSystem:
        """The same with contact forces that are known, for terms of them."""
        result = copy.copy(self)
        result.__dict__.update(self.__dict__, forces_given=force)
        return result

    def by_force(self) -> RobotSystem:
        """The same for terms of contact forces that are to be differentiated by these, in the place
        of the controls.
        """
        result = copy.copy(self)
        result.__dict__.update(self.__dict__, forces_apart=True)
        return result

    @property
    def controls(self) -> tuple[str, ...]:
        """The controls' names."""
        return tuple(a.name for a in self.actuators)

    @property
    def driven(self) -> str:
        """What is driven and what is not, for people."""
        free = [
            j.name + (f" ({j.nv} freedoms)" if j.nv > 1 else "")
            for j in undriven(self.model, self.actuators)
        ]
        text = f"{self.nu} control{'s' if self.nu > 1 else ''}: {_listed(self.controls)}"
        if borrowed := self.beyond_own:
            text += f"; forces that no motor of the robot exerts: on {_listed(borrowed)}"
        return text + (f"; not driven: {_listed(free)}" if free else "")

    @property
    def beyond_own(self) -> tuple[str, ...]:
        """The joints on which controls act as none of the robot's own motors can."""
        B = np.eye(self.nv) if self.actuation is None else np.array(self.actuation)
        own = np.array(actuation_matrix(self.model, own_actuators(self.model))).reshape(self.nv, -1)
        outside = (
            np.abs(B - own @ np.linalg.lstsq(own, B, rcond=None)[0]).max(axis=1)
            if own.size
            else np.abs(B).max(axis=1)
        )
        joints = (j for j in self.model.joints if not j.is_mimic)
        return tuple(j.name for j in joints if (outside[j.v : j.v + j.nv] > 1e-9).any())

    @cached_property
    def canonical_model(self) -> Model:
        """The same dynamics with fewer operations; where inertias vary, as they are."""
        return (
            self.model if self.varied is not None and self.varied.bodies else canonical(self.model)
        )

    @cached_property
    def gauge(self) -> Gauge:
        """Frames in which dynamics take the fewest operations."""
        return best_gauge(self.canonical_model)

    def key(self) -> str:
        return f"{digest(self.model)} {self.actuation!r}" + "".join(
            f" {x!r}" for x in (self.varied, self.held) if x
        )

    def forces(self, u: Vector) -> Vector:
        """tau = B u."""
        if self.actuation is None:
            return u
        return tuple(
            total(mul(b, x) for b, x in zip(row, u, strict=True)) for row in self.actuation
        )

    @property
    def at_rest(self) -> Scalar:
        return 0.0 if self.touching is None else sub(1.0, self.touching.flow)

    def acceleration(self, q: Vector, v: Vector, u: Vector) -> Vector:
        """Of an impact, how much velocities change."""
        if self.held is None:
            self._require_inverse()
            return solved_dynamics(self.canonical_model, q, v, self.forces(u), self.external)
        change: Vector = self._touched(contact_dynamics, q, v, u).a
        return change

    def acceleration_gradient(
        self, q: Vector, v: Vector, u: Vector
    ) -> tuple[Vector, Matrix, Matrix, Matrix]:
        """a, ∂a/∂q, ∂a/∂v, ∂a/∂u."""
        if self.held is None:
            self._require_inverse()
            a, d = forward_gradient(
                self.canonical_model, q, v, self.forces(u), self.external, gauge=self.gauge
            )
            return a, d.dq, d.dv, self.by_control(d.dtau)
        found, by = self._touched(contact_gradient, q, v, u)
        return found.a, by.a_dq, by.a_dv, self.by_control(by.a_dtau)

    def _require_inverse(self) -> None:
        """Of bodies whose masses are inputs nothing is known."""
        if self.varied is None or not self.varied.bodies:
            require_inverse(self.robot.model, "forward dynamics")

    def contact_forces(self, q: Vector, v: Vector, u: Vector) -> Vector:
        """Of all contacts in turn, in world axes, on the robot; of an impact its impulses."""
        return (
            self._touched(contact_dynamics, q, v, u).force
            if self.forces_given is None
            else self.forces_given
        )

    def contact_force_gradient(
        self, q: Vector, v: Vector, u: Vector
    ) -> tuple[Vector, Matrix, Matrix, Matrix]:
        """The forces, and their derivatives by q, v, u; of a system `by_force`, by q, v and
        themselves.
        """
        if self.forces_apart:
            force = self.contact_forces(q, v, u)
            none, one = (
                ((0.0,) * self.nv,) * len(force),
                tuple(tuple(float(i == j) for j in range(len(force))) for i in range(len(force))),
            )
            return force, none, none, one
        found, by = self._touched(contact_gradient, q, v, u)
        return found.force, by.force_dq, by.force_dv, self.by_control(by.force_dtau)

    def _touched(self, function: Callable[..., Any], q: Vector, v: Vector, u: Vector) -> Any:
        """Dynamics with contacts. The step and every term of the same knot ask for them: they are
        computed once for the same scalars.
        """
        assert self.held is not None and self.touching is not None
        self._require_inverse()
        asked = (function, *q, *v, *u, *self.given_inputs)
        root = self if self._given is None else self._given[0]
        known = root._solved
        if (
            known is None
            or len(known[0]) != len(asked)
            or any(x is not y for x, y in zip(known[0], asked, strict=True))
        ):
            options = {"gauge": self.gauge, "redundant": self.held.redundant}
            known = (
                asked,
                function(
                    self.canonical_model,
                    q,
                    v,
                    self.forces(u),
                    self.touching,
                    self.external,
                    **options,
                ),
            )
            root._solved = known
        return known[1]

    def by_control(self, by_force: Matrix) -> Matrix:
        """What follows forces, by the controls."""
        if self.actuation is None:
            return by_force
        columns = list(zip(*self.actuation, strict=True))
        return tuple(
            tuple(total(mul(x, y) for x, y in zip(row, c, strict=True)) for c in columns)
            for row in by_force
        )

    def weigh_acceleration(self, q: Vector, w: Vector) -> Vector:
        """M⁻¹ w."""
        self._require_inverse()
        still = dataclasses.replace(self.canonical_model, gravity=(0.0, 0.0, 0.0))
        return solved_dynamics(still, q, (0.0,) * self.nv, w)

    def force_hessian(
        self, q: Vector, v: Vector, a: Vector, w: Vector
    ) -> RneaSecondDerivatives[Matrix]:
        """Second derivatives of wᵀ ID(q, v, a)."""
        return rnea_hessian(self.canonical_model, q, v, a, w, self.external, gauge=self.gauge)

    def split(self, x: Vector) -> tuple[Vector, Vector]:
        """q and v of a state."""
        return tuple(x[: self.nq]), tuple(x[self.nq :])

    def plus(self, x: Vector, dx: Vector) -> Vector:
        q, v = self.split(x)
        return (
            *manifold.integrate(self.model, q, tuple(dx[: self.nv])),
            *(add(a, b) for a, b in zip(v, dx[self.nv :], strict=True)),
        )

    def minus(self, x: Vector, origin: Vector) -> Vector:
        (q, v), (q0, v0) = self.split(x), self.split(origin)
        return (
            *manifold.difference(self.model, q0, q),
            *(a - b for a, b in zip(v, v0, strict=True)),
        )

    def minus_jacobian(self, difference: Vector) -> list[Matrix]:
        one: Matrix = ((1.0,),)
        return (
            tangent_maps.right_jacobian_inverse(self.model, tuple(difference[: self.nv]))
            + [one] * self.nv
        )


class CustomSystem(System):
    """Dynamics written in Python over scalars: `function(x, u)` gives dx/dt or, with
    `discrete=True`, the next state. States have `nx` numbers, controls `nu`; `name` is what reports
    call it.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Scalar]],
        nx: int,
        nu: int,
        *,
        discrete: bool = False,
        name: str = "custom",
    ):
        if not callable(function):
            raise InputError(f"dynamics are a function of x and u, not {type(function).__name__}")
        for count, least in ((nx, 1), (nu, 0)):
            if (
                isinstance(count, bool)
                or not isinstance(count, int | np.integer)
                or not least <= count < _MOST
            ):
                raise InputError(
                    "a system needs at least one state and no fewer than 0 controls, in whole"
                    f" numbers, not {nx!r} and {nu!r}"
                )
        self.function, self.discrete = function, discrete
        self.nx = self.ndx = int(nx)
        self.nu = int(nu)
        self.name = name

    def key(self) -> str:
        return ""  # what a Python function does is only known from its recording

    def rate(self, x: Vector, u: Vector) -> Vector:
        """dx/dt at a state and a control."""
        try:
            result = tuple(self.function(x, u))
        except RigidgradError:
            raise
        except Exception as error:
            advice = (
                "they are run once on recorded numbers: use rg.math for functions, and"
                " rg.math.select(condition, a, b) for if"
            )
            raise InputError(
                f"the dynamics of {self.name!r} failed ({type(error).__name__}: {error}); {advice}"
            ) from error
        if len(result) != self.nx:
            raise InputError(
                f"the dynamics returned {len(result)} numbers for a state of {self.nx}"
            )
        return result


def as_system(system: Any, actuation: Actuation | None = None) -> System:
    """A system, or that of a robot with an actuation."""
    if isinstance(system, System):
        if actuation is not None:
            raise InputError(
                "actuation goes with a Robot; this is a system, which has its controls already"
            )
        return system
    if isinstance(system, Robot):
        return RobotSystem(system, actuation)
    raise InputError(f"a problem is about a Robot or a system, not {type(system).__name__}")


def _listed(names: Sequence[str]) -> str:
    return (
        ", ".join(names)
        if len(names) <= _LISTED
        else f"{', '.join(names[: _LISTED - 2])}, … {names[-1]}"
    )
