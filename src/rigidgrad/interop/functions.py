"""The functions that `rg.jax` and `rg.torch` offer, written once; each brings its arrays and its
way to evaluate and differentiate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rigidgrad.interop import columns
from rigidgrad.interop.gradients import Differentiable, Shape, batch_of
from rigidgrad.model.contacts import ConstraintSet, Contact, checked_restitution, listed


class ContactMotion(NamedTuple):
    """Accelerations (…, nv), and the forces of all contacts in turn (…, rows), world axes, on the
    robot.
    """

    a: Any
    force: Any


class Impact(NamedTuple):
    """Velocities after an impact (…, nv), and the impulses of all contacts in turn (…, rows), world
    axes, on the robot.
    """

    v: Any
    impulse: Any


class ContactInverse(NamedTuple):
    """Joint forces (…, nv), forces of all contacts in turn (…, rows), the generalised forces that
    are missing (…, nv), and 1 where these are optimal, else 0 (…).
    """

    tau: Any
    force: Any
    residual: Any
    converged: Any


class Energy(NamedTuple):
    """Each (…)."""

    kinetic: Any
    potential: Any


class Functions:
    """Arrays may have any leading batch axes, which broadcast against each other. `xp` is the
    library of the arrays.
    """

    xp: Any

    def __init__(self) -> None:
        # the functions must not hold the robot, or it would live for ever
        self._known: WeakKeyDictionary[
            Any, dict[tuple[str, str | None, ConstraintSet | None, str], Any]
        ] = WeakKeyDictionary()

    def bind(self, function: Differentiable, device: Any) -> Any:
        """A callable of arrays that `arrays` has prepared. `device` is the robot's, or None for the
        CPU.
        """
        raise NotImplementedError

    def arrays(self, *inputs: Any) -> list[Any]:
        """Arrays of the library, all of one dtype."""
        raise NotImplementedError

    def constant(self, x: Any, dtype: Any) -> Any:
        """An array of the library through which no gradient flows."""
        raise NotImplementedError

    def rnea(self, robot: Any, q: Any, v: Any, a: Any, *, inertia: Any = None) -> Any:
        """Inverse dynamics: joint forces (…, nv). `inertia` (…, bodies, 10) takes the place of the
        bodies' own, laid out as in `robot.torque_regressor`.
        """
        return self._apply(robot, "rnea", q, v, a, *(() if inertia is None else (inertia,)))

    def aba(self, robot: Any, q: Any, v: Any, tau: Any, *, inertia: Any = None) -> Any:
        """Forward dynamics: accelerations (…, nv). `inertia` as for `rnea`."""
        return self._apply(robot, "aba", q, v, tau, *(() if inertia is None else (inertia,)))

    def bias(self, robot: Any, q: Any, v: Any) -> Any:
        """Coriolis, centrifugal and gravity forces (…, nv)."""
        return self._apply(robot, "bias", q, v)

    def gravity_torque(self, robot: Any, q: Any) -> Any:
        """The joint forces (…, nv) that hold the robot still."""
        return self._apply(robot, "gravity_torque", q)

    def crba(self, robot: Any, q: Any) -> Any:
        """The mass matrix (…, nv, nv)."""
        return self._apply(robot, "crba", q)

    def minv(self, robot: Any, q: Any) -> Any:
        """The inverse of the mass matrix (…, nv, nv)."""
        return self._apply(robot, "minv", q)

    def forward_kinematics(self, robot: Any, q: Any, frame: str) -> Any:
        """The placement (…, 4, 4) of a frame in the world."""
        return self._apply(robot, "frame_placement", q, frame=frame)

    def frame_velocity(
        self, robot: Any, q: Any, v: Any, frame: str, *, expressed_in: str = "world"
    ) -> Any:
        """The frame's velocity (…, 6), linear first."""
        return self._apply(robot, "frame_velocity", q, v, frame=frame, expressed_in=expressed_in)

    def frame_acceleration(
        self, robot: Any, q: Any, v: Any, a: Any, frame: str, *, expressed_in: str = "world"
    ) -> Any:
        """The time derivative of `frame_velocity` (…, 6), linear first, without gravity."""
        return self._apply(
            robot, "frame_acceleration", q, v, a, frame=frame, expressed_in=expressed_in
        )

    def jacobian(self, robot: Any, q: Any, frame: str, *, expressed_in: str = "world") -> Any:
        """J (…, 6, nv) of a frame, linear first."""
        return self._apply(robot, "jacobian", q, frame=frame, expressed_in=expressed_in)

    def jacobian_derivative(
        self, robot: Any, q: Any, v: Any, frame: str, *, expressed_in: str = "world"
    ) -> Any:
        """How J changes in time along v, (…, 6, nv)."""
        return self._apply(
            robot, "jacobian_derivative", q, v, frame=frame, expressed_in=expressed_in
        )

    def center_of_mass(self, robot: Any, q: Any) -> Any:
        """Of all moving bodies, in the world: (…, 3)."""
        return self._apply(robot, "center_of_mass", q)

    def center_of_mass_jacobian(self, robot: Any, q: Any) -> Any:
        """(…, 3, nv), in world axes."""
        return self._apply(robot, "center_of_mass_jacobian", q)

    def centroidal_momentum(self, robot: Any, q: Any, v: Any) -> Any:
        """(…, 6), linear first, about the centre of mass, in world axes."""
        return self._apply(robot, "centroidal_momentum", q, v)

    def coriolis_matrix(self, robot: Any, q: Any, v: Any) -> Any:
        """C (…, nv, nv), with C v the forces by velocities, and Ṁ - 2 C skew."""
        return self._apply(robot, "coriolis_matrix", q, v)

    def energy(self, robot: Any, q: Any, v: Any) -> Energy:
        """Kinetic and potential energy, (…) each."""
        x = self._apply(robot, "energy", q, v)
        return Energy(x[..., 0], x[..., 1])

    def contact_dynamics(
        self,
        robot: Any,
        q: Any,
        v: Any,
        tau: Any,
        contacts: Any,
        *,
        active: Any = None,
        damped: bool | None = None,
    ) -> ContactMotion:
        """Forward dynamics of a robot whose contacts and loops hold; options as for
        `robot.contact_dynamics`. Neither `active` nor places of contacts have gradients.
        """
        x = self._with_contacts(
            robot, "contact_dynamics", (q, v, tau), [], contacts, active, damped
        )
        return ContactMotion(x[..., : robot.nv], x[..., robot.nv :])

    def impact(
        self,
        robot: Any,
        q: Any,
        v: Any,
        contacts: Any,
        restitution: Any = 0.0,
        *,
        active: Any = None,
        damped: bool | None = None,
    ) -> Impact:
        """Velocities right after contacts take hold, and their impulses; options as for
        `robot.impact`. Neither `active` nor places of contacts have gradients.
        """
        if hasattr(restitution, "dtype"):  # an array, by which there is a gradient
            x = self._with_contacts(
                robot, "impact", (q, v, restitution), [], contacts, active, damped
            )
        else:
            x = self._with_contacts(
                robot,
                "impact",
                (q, v),
                [checked_restitution(restitution)],
                contacts,
                active,
                damped,
            )
        return Impact(x[..., : robot.nv], x[..., robot.nv :])

    def contact_jacobian(self, robot: Any, q: Any, contacts: Any) -> Any:
        """J (…, rows, nv) of all contacts and loops in turn, in world axes, linear first."""
        held = robot.constraint_set("contact_jacobian", contacts)
        return self._apply(robot, "contact_jacobian", q, contacts=held)

    def delassus(self, robot: Any, q: Any, contacts: Any) -> Any:
        """J M⁻¹ Jᵀ (…, rows, rows), in world axes: how contacts accelerate by forces on them."""
        held = robot.constraint_set("delassus", contacts, damped=False)
        return self._apply(robot, "delassus", q, contacts=held)

    def contact_inverse_dynamics(
        self,
        robot: Any,
        q: Any,
        v: Any,
        a: Any,
        contacts: Any,
        *,
        active: Any = None,
        actuation: Any = "joints",
    ) -> ContactInverse:
        """Joint forces and contact forces inside of their friction cones that realise an
        acceleration with the least effort, as `robot.contact_inverse_dynamics`. `converged` and
        `active` have no gradients. Gradients need float64; where a force is about to slip or to
        lift off there are two, of which one is given.
        """
        held = robot.constraint_set(
            "contact_inverse_dynamics", contacts, active is not None, actuation=actuation
        )
        arrays = self.arrays(q, v, a)
        more = [] if active is None else [self.constant(active, arrays[0].dtype)]
        x = self._apply(robot, "contact_inverse_dynamics", *arrays, *more, contacts=held)
        one, two = robot.nv, robot.nv + held.rows
        return ContactInverse(x[..., :one], x[..., one:two], x[..., two:-1], x[..., -1])

    def integrate(self, robot: Any, q: Any, dv: Any) -> Any:
        """q ⊕ dv (…, nq): the position reached from q along the tangent dv (velocity times
        time).
        """
        q, dv = self._prepared("integrate", {"q": (robot.nq,), "dv": (robot.nv,)}, q, dv)
        return columns.integrate(self.xp, robot.model, q, dv)

    def difference(self, robot: Any, q0: Any, q1: Any) -> Any:
        """q1 ⊖ q0 (…, nv): the tangent at q0 that leads to q1."""
        q0, q1 = self._prepared("difference", {"q0": (robot.nq,), "q1": (robot.nq,)}, q0, q1)
        return columns.difference(self.xp, robot.model, q0, q1)

    def _with_contacts(
        self,
        robot: Any,
        name: str,
        inputs: tuple[Any, ...],
        numbers: list[Any],
        contacts: Any,
        active: Any,
        damped: bool | None,
    ) -> Any:
        """Outputs in one vector. Plain numbers, and what comes with contacts, do not decide the
        precision.
        """
        found = listed(contacts)
        held = robot.constraint_set(name, found, active is not None, damped)
        arrays = self.arrays(*inputs)
        more = numbers + [
            np.asarray(c.place) for c in found if isinstance(c, Contact) and c.constraint.placed
        ]
        more += [] if active is None else [active]
        return self._apply(
            robot, name, *arrays, *(self.constant(x, arrays[0].dtype) for x in more), contacts=held
        )

    def _apply(
        self,
        robot: Any,
        name: str,
        *inputs: Any,
        frame: str | None = None,
        contacts: ConstraintSet | None = None,
        expressed_in: str = "world",
    ) -> Any:
        functions = self._known.setdefault(robot, {})
        key = name, frame, contacts, expressed_in
        if key not in functions:
            function = Differentiable(robot.model, *key)
            functions[key] = function, self.bind(function, robot.device)
        function, bound = functions[key]
        return bound(*self._prepared(name, function.kernel(name, len(inputs)).inputs, *inputs))

    def _prepared(self, name: str, shapes: Mapping[str, Shape], *inputs: Any) -> list[Any]:
        arrays = self.arrays(*inputs)
        batch = batch_of(name, dict(zip(shapes, arrays, strict=True)), shapes)
        return [
            self.xp.broadcast_to(x, batch + shape)
            for x, shape in zip(arrays, shapes.values(), strict=True)
        ]
