"""The functions that `rg.jax` and `rg.torch` offer, written once; each brings its arrays and its way to evaluate and differentiate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rigidgrad.interop import columns
from rigidgrad.interop.gradients import Differentiable, Shape, batch_of
from rigidgrad.model.contacts import ConstraintSet, Contact, checked_restitution, listed


class ContactMotion(NamedTuple):
    """Accelerations (…, nv), and the forces of all contacts in turn (…, rows), world axes, on the robot."""

    a: Any
    force: Any


class Impact(NamedTuple):
    """Velocities after an impact (…, nv), and the impulses of all contacts in turn (…, rows), world axes, on the robot."""

    v: Any
    impulse: Any


class Functions:
    """Arrays may have any leading batch axes, which broadcast against each other. `xp` is the library of the arrays."""

    xp: Any

    def __init__(self) -> None:
        # the functions must not hold the robot, or it would live for ever
        self._known: WeakKeyDictionary[Any, dict[tuple[str, str | None, ConstraintSet | None], Any]] = WeakKeyDictionary()

    def bind(self, function: Differentiable) -> Any:
        """A callable of arrays that `arrays` has prepared."""
        raise NotImplementedError

    def arrays(self, *inputs: Any) -> list[Any]:
        """Arrays of the library, all of one dtype."""
        raise NotImplementedError

    def constant(self, x: Any, dtype: Any) -> Any:
        """An array of the library through which no gradient flows."""
        raise NotImplementedError

    def rnea(self, robot: Any, q: Any, v: Any, a: Any, *, inertia: Any = None) -> Any:
        """Inverse dynamics: joint forces (…, nv). `inertia` (…, bodies, 10) takes the place of the bodies' own, laid out as in `robot.torque_regressor`."""
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

    def center_of_mass(self, robot: Any, q: Any) -> Any:
        """Of all moving bodies, in the world: (…, 3)."""
        return self._apply(robot, "center_of_mass", q)

    def contact_dynamics(
        self, robot: Any, q: Any, v: Any, tau: Any, contacts: Any, *, active: Any = None, damped: bool | None = None
    ) -> ContactMotion:
        """Forward dynamics of a robot whose contacts and loops hold; options as for `robot.contact_dynamics`. Neither `active` nor places of contacts have gradients."""
        x = self._with_contacts(robot, "contact_dynamics", (q, v, tau), [], contacts, active, damped)
        return ContactMotion(x[..., : robot.nv], x[..., robot.nv :])

    def impact(
        self, robot: Any, q: Any, v: Any, contacts: Any, restitution: Any = 0.0, *, active: Any = None, damped: bool | None = None
    ) -> Impact:
        """Velocities right after contacts take hold, and their impulses; options as for `robot.impact`. Neither `active` nor places of contacts have gradients."""
        if hasattr(restitution, "dtype"):  # an array, by which there is a gradient
            x = self._with_contacts(robot, "impact", (q, v, restitution), [], contacts, active, damped)
        else:
            x = self._with_contacts(robot, "impact", (q, v), [checked_restitution(restitution)], contacts, active, damped)
        return Impact(x[..., : robot.nv], x[..., robot.nv :])

    def integrate(self, robot: Any, q: Any, dv: Any) -> Any:
        """q ⊕ dv (…, nq): the position reached from q along the tangent dv (velocity times time)."""
        q, dv = self._prepared("integrate", {"q": (robot.nq,), "dv": (robot.nv,)}, q, dv)
        return columns.integrate(self.xp, robot.model, q, dv)

    def difference(self, robot: Any, q0: Any, q1: Any) -> Any:
        """q1 ⊖ q0 (…, nv): the tangent at q0 that leads to q1."""
        q0, q1 = self._prepared("difference", {"q0": (robot.nq,), "q1": (robot.nq,)}, q0, q1)
        return columns.difference(self.xp, robot.model, q0, q1)

    def _with_contacts(
        self, robot: Any, name: str, inputs: tuple, numbers: list[Any], contacts: Any, active: Any, damped: bool | None
    ) -> Any:
        """Outputs in one vector. Plain numbers, and what comes with contacts, do not decide the precision."""
        found = listed(contacts)
        held = robot.constraint_set(name, found, active is not None, damped)
        arrays = self.arrays(*inputs)
        more = numbers + [np.asarray(c.place) for c in found if isinstance(c, Contact) and c.constraint.placed]
        more += [] if active is None else [active]
        return self._apply(robot, name, *arrays, *(self.constant(x, arrays[0].dtype) for x in more), contacts=held)

    def _apply(self, robot: Any, name: str, *inputs: Any, frame: str | None = None, contacts: ConstraintSet | None = None) -> Any:
        functions = self._known.setdefault(robot, {})
        key = name, frame, contacts
        if key not in functions:
            function = Differentiable(robot.model, *key)
            functions[key] = function, self.bind(function)
        function, bound = functions[key]
        return bound(*self._prepared(name, function.kernel(name, len(inputs)).inputs, *inputs))

    def _prepared(self, name: str, shapes: Mapping[str, Shape], *inputs: Any) -> list[Any]:
        arrays = self.arrays(*inputs)
        batch = batch_of(name, dict(zip(shapes, arrays, strict=True)), shapes)
        return [self.xp.broadcast_to(x, batch + shape) for x, shape in zip(arrays, shapes.values(), strict=True)]
