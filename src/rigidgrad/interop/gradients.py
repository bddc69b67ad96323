"""How our functions are differentiated in JAX and PyTorch, written once for both: Jacobians by
every input, from the analytical derivatives, or from a Program's where there are none.

A rule gets `call(name, *inputs)`, which evaluates a compiled function, and `xp`, which is
`jax.numpy` or `torch`. Inputs and outputs count as vectors: a Jacobian is (…, numbers of the
output, numbers of the input). Several outputs are one after the other in one vector. Our
derivatives by a position are in the tangent space; with δ = G(q) q̇, J G(q) is that by its
coordinates. G takes no notice of a change in a quaternion's length: the derivative is that of
f(normalize(q)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigidgrad.algorithms import catalog
from rigidgrad.errors import InputError
from rigidgrad.interop import columns, contact_forces, derivatives
from rigidgrad.interop.contact_forces import DERIVATIVES, NAME as _CONES
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.joints import JointType
from rigidgrad.model.model import Model
from rigidgrad.runtime.job import Job, function_job

Shape = tuple[int, ...]
Call = Callable[..., tuple[Any, ...]]

_CROSS = np.zeros((3, 3, 3))  # (a × b)_i = Σ CROSS_ijk a_j b_k
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _CROSS[_i, _j, _k], _CROSS[_i, _k, _j] = 1.0, -1.0

SECOND = (
    "second derivatives of rigidgrad's functions are not available in JAX and PyTorch;"
    " differentiate once, or take finite differences of the gradient; those of inverse dynamics are"
    " robot.rnea_second_derivatives and robot.rnea_hessian"
)


@dataclass(frozen=True)
class Compilable:
    """What is compiled, and the shapes of one state's inputs and outputs."""

    job: Job
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]


class Differentiable:
    """A function of a model, with its frame or contacts where it has them."""

    def __init__(
        self,
        model: Model,
        name: str,
        frame: str | None = None,
        contacts: ConstraintSet | None = None,
        expressed_in: str = "world",
    ):
        self.model, self.name, self.frame, self.contacts = model, name, frame, contacts
        self.expressed_in = expressed_in
        self._kernels: dict[tuple[str, int], Compilable] = {}

    def kernel(self, name: str, inputs: int) -> Compilable:
        """What `call(name, …)` calls: with one input more than the function has, the inertias of
        all bodies (bodies, 10) are its last. DERIVATIVES are those of the function itself.
        """
        if (name, inputs) not in self._kernels:
            self._kernels[name, inputs] = (
                self._derivatives() if name == DERIVATIVES else self._function(name, inputs)
            )
        return self._kernels[name, inputs]

    def _function(self, name: str, inputs: int) -> Compilable:
        options = self._options(name)
        bound = catalog.bind(self.model, name, **options)
        more = ("inertia",) if inputs > len(bound.inputs) else ()
        shapes = {
            **bound.inputs,
            **{parameter: (len(self.model.joints), 10) for parameter in more},
        }
        job = function_job(self.model, name, parameters=more, **options)
        return Compilable(job, shapes, bound.outputs)

    def _derivatives(self) -> Compilable:
        if self.name == _CONES:
            assert self.contacts is not None
            found = derivatives.of_contact_forces(self.model, self.contacts)
        else:
            by = tuple(catalog.FUNCTIONS[self.name].inputs)
            found = derivatives.of_function(self.model, self.name, by, **self._options(self.name))
        return Compilable(found.recording, found.inputs, found.outputs)

    def _options(self, name: str) -> dict[str, Any]:
        """Of a function that is called, as far as it has them."""
        function = catalog.FUNCTIONS[name]
        options: dict[str, Any] = {"frame": self.frame} if function.frame else {}
        if function.expressed_in:
            options["expressed_in"] = self.expressed_in
        if function.contacts and self.contacts is not None:
            options["contacts"] = self.contacts._replace(
                redundant=self.contacts.redundant and function.solves,
                grip=self.contacts.grip if function.grips else None,
            )
        return options

    def value(self, call: Call, xp: Any, *inputs: Any) -> Any:
        """The output; several of them, which are vectors or numbers then, one after the other."""
        results = call(self.name, *inputs)
        if len(results) == 1:
            return results[0]
        shapes = self.kernel(self.name, len(inputs)).outputs.values()
        rows = [x if s else x[..., None] for x, s in zip(results, shapes, strict=True)]
        return xp.concatenate(rows, -1)

    def jacobians(self, call: Call, xp: Any, *inputs: Any) -> tuple[Any, ...]:
        """By every input, (…, numbers of the output, numbers of the input); none by the last ones,
        where contacts belong and whether they hold.
        """
        if self.name in _RULES:
            by_q, *others = _RULES[self.name](self.model, call, xp, *inputs)
            return _by_coordinates(xp, self.model, inputs[0], by_q), *others
        if self.name == _CONES:
            assert self.contacts is not None
            return contact_forces.jacobians(self.contacts, call, xp, *inputs)
        return self._stacked(xp, call(DERIVATIVES, *inputs), inputs)

    def _stacked(self, xp: Any, found: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Derivatives of all outputs by each input, (…, *output, *input), as Jacobians."""
        kernel = self.kernel(self.name, len(inputs))
        batch = tuple(inputs[0].shape[:-1])
        by = [math.prod(kernel.inputs[x]) for x in catalog.FUNCTIONS[self.name].inputs]
        outputs = [math.prod(shape) for shape in kernel.outputs.values()]
        blocks = iter(found)
        rows = [[next(blocks).reshape((*batch, m, n)) for n in by] for m in outputs]
        return tuple(
            column[0] if len(column) == 1 else xp.concatenate(column, -2)
            for column in zip(*rows, strict=True)
        )


def batch_of(name: str, arrays: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Shape:
    """The batch axes of arrays whose last axes must have the given shapes."""
    leading = []
    for key, shape in shapes.items():
        own = tuple(arrays[key].shape)
        if len(own) < len(shape) or own[len(own) - len(shape) :] != shape:
            raise InputError(
                f"{name}: {key} has shape {own}; expected (…, {', '.join(map(str, shape))}), with"
                " any batch axes in front"
            )
        leading.append(own[: len(own) - len(shape)])
    try:
        return np.broadcast_shapes(*leading)
    except ValueError:
        listed = ", ".join(f"{key} {x}" for key, x in zip(shapes, leading, strict=True))
        raise InputError(
            f"{name}: the batch axes do not broadcast against each other: {listed}"
        ) from None


# --- one rule a function: the Jacobian by the tangent of q, then those by all other inputs --------


def _rnea(
    model: Model, call: Call, xp: Any, q: Any, v: Any, a: Any, *inertia: Any
) -> Sequence[Any]:
    derivatives = call("rnea_derivatives", q, v, a, *inertia)
    return (*derivatives, *(call("torque_regressor", q, v, a)[0] for _ in inertia))


def _aba(
    model: Model, call: Call, xp: Any, q: Any, v: Any, tau: Any, *inertia: Any
) -> Sequence[Any]:
    dq, dv, minv = call("aba_derivatives", q, v, tau, *inertia)
    if not inertia:
        return dq, dv, minv
    # tau = Y(q, v, a) π stays as it is: 0 = Y dπ + M da
    (a,) = call("aba", q, v, tau, *inertia)
    return dq, dv, minv, -xp.matmul(minv, call("torque_regressor", q, v, a)[0])


def _bias(model: Model, call: Call, xp: Any, q: Any, v: Any) -> Sequence[Any]:
    return call("rnea_derivatives", q, v, xp.zeros_like(v))[:2]


def _gravity_torque(model: Model, call: Call, xp: Any, q: Any) -> Sequence[Any]:
    rest = xp.zeros_like(q[..., : model.nv])
    return call("rnea_derivatives", q, rest, rest)[:1]


def _crba(model: Model, call: Call, xp: Any, q: Any) -> Sequence[Any]:
    by_q = _mass_matrix_derivative(model, call, xp, q)
    return (_flat(by_q, 2),)


def _minv(model: Model, call: Call, xp: Any, q: Any) -> Sequence[Any]:
    (minv,) = call("minv", q)
    return (
        _flat(
            -xp.einsum(
                "...ai,...ikj,...kb->...abj",
                minv,
                _mass_matrix_derivative(model, call, xp, q),
                minv,
            ),
            2,
        ),
    )


def _mass_matrix_derivative(model: Model, call: Call, xp: Any, q: Any) -> Any:
    """∂M_ik/∂δ_j: column k of M is rnea at rest with the acceleration e_k, less gravity's part."""
    rest = xp.zeros_like(q[..., : model.nv])
    units = columns.constant(xp, np.eye(model.nv), q)
    pushed = call("rnea_derivatives", q[..., None, :], rest[..., None, :], units)[0]
    held = call("rnea_derivatives", q, rest, rest)[0]
    return xp.swapaxes(pushed - held[..., None, :, :], -3, -2)


def _forward_kinematics(model: Model, call: Call, xp: Any, q: Any) -> Sequence[Any]:
    (T,), (J,) = call("frame_placement", q), call("jacobian", q)
    linear, angular = J[..., :3, :], J[..., 3:, :]
    turned = xp.einsum(
        "iab,...an,...bk->...ikn", columns.constant(xp, _CROSS, q), angular, T[..., :3, :3]
    )
    rows = xp.concatenate([turned, linear[..., :, None, :]], -2)
    return (_flat(xp.concatenate([rows, xp.zeros_like(rows[..., :1, :, :])], -3), 2),)


def _center_of_mass(model: Model, call: Call, xp: Any, q: Any) -> Sequence[Any]:
    return call("center_of_mass_jacobian", q)


def _frame_acceleration(model: Model, call: Call, xp: Any, *inputs: Any) -> Sequence[Any]:
    return call("frame_acceleration_derivatives", *inputs)


def _contact_dynamics(model: Model, call: Call, xp: Any, *inputs: Any) -> Sequence[Any]:
    *of_a, f_dq, f_dv, f_dtau = call("contact_dynamics_derivatives", *inputs)
    return [xp.concatenate(parts, -2) for parts in zip(of_a, (f_dq, f_dv, f_dtau), strict=True)]


def _impact(
    model: Model, call: Call, xp: Any, q: Any, v: Any, restitution: Any, *held: Any
) -> Sequence[Any]:
    v_dq, v_dv, impulse_dq, impulse_dv = call("impact_derivatives", q, v, restitution, *held)
    # the impulse, and with it the jump of v, is proportional to 1 + restitution
    after, impulse = call("impact", q, v, restitution, *held)
    by_restitution = xp.concatenate([after - v, impulse], -1) / (1 + restitution[..., None])
    return (
        xp.concatenate([v_dq, impulse_dq], -2),
        xp.concatenate([v_dv, impulse_dv], -2),
        by_restitution[..., None],
    )


_RULES: dict[str, Callable[..., Sequence[Any]]] = {
    "rnea": _rnea,
    "aba": _aba,
    "bias": _bias,
    "gravity_torque": _gravity_torque,
    "crba": _crba,
    "minv": _minv,
    "frame_placement": _forward_kinematics,
    "center_of_mass": _center_of_mass,
    "frame_acceleration": _frame_acceleration,
    "contact_dynamics": _contact_dynamics,
    "impact": _impact,
}


def _flat(x: Any, count: int) -> Any:
    """`count` axes before the last made one."""
    shape = tuple(x.shape)
    split = len(shape) - 1 - count
    return x.reshape((*shape[:split], math.prod(shape[split:-1]), shape[-1]))


# --- coordinates of positions ---------------------------------------------------------------------


def _by_coordinates(xp: Any, model: Model, q: Any, jacobian: Any) -> Any:
    """J G(q)."""
    if model.nq == model.nv:
        return jacobian
    parts = []
    for j in model.joints:
        if not j.is_mimic:
            part = jacobian[..., j.v : j.v + j.nv]
            parts.append(
                part
                if j.kind.direction is None
                else xp.matmul(part, _rates(xp, j.kind, q[..., j.q : j.q + j.nq]))
            )
    return xp.concatenate(parts, -1)


def _rates(xp: Any, kind: JointType, q: Any) -> Any:
    """G of one joint: its velocity from the rates of its coordinates."""
    zero = xp.zeros_like(q[..., 0])
    rows = kind.rates(tuple(q[..., k] for k in range(kind.nq)))
    return xp.stack(
        [xp.stack([zero + x if isinstance(x, float) else x for x in row], -1) for row in rows], -2
    )
