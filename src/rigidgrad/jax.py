"""A robot's functions in JAX: under jit, vmap, jvp and grad, with our compiled kernels and
analytical derivatives, on the CPU.

Functions of a robot on a GPU (`robot.to("cuda")`) run on JAX's arrays there, which stay there, with
grad and jvp; not under jit and vmap, where there are no arrays yet: batches are leading axes.

XLA calls the kernels itself through its foreign function interface, without Python in between; each
call runs on one thread. Results are float32, JAX's default, or float64 where an input is, which
needs `jax_enable_x64`.

Derivatives by q are by its coordinates; where it holds quaternions or (cos, sin) pairs of length
one, they are those of f(normalize(q)). Derivatives of second order are an error, but for
`integrate` and `difference`, which are JAX's own throughout.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.errors import RigidgradError
from rigidgrad.interop.functions import Functions
from rigidgrad.interop.gradients import SECOND, Differentiable
from rigidgrad.runtime import xla

try:
    import jax
    import jax.ffi
    import jax.numpy as jnp
except ImportError:
    raise RigidgradError("rg.jax needs JAX, 0.5 or newer: pip install 'rigidgrad[jax]'") from None

__all__ = [
    "aba",
    "bias",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum",
    "contact_dynamics",
    "contact_inverse_dynamics",
    "contact_jacobian",
    "coriolis_matrix",
    "crba",
    "delassus",
    "difference",
    "energy",
    "forward_kinematics",
    "frame_acceleration",
    "frame_velocity",
    "gravity_torque",
    "impact",
    "integrate",
    "jacobian",
    "jacobian_derivative",
    "minv",
    "rnea",
]


class _Jax(Functions):
    xp = jnp

    def arrays(self, *inputs: Any) -> list[Any]:
        arrays = [jnp.asarray(x) for x in inputs]
        whole = any(jnp.issubdtype(x.dtype, jnp.integer) for x in arrays)
        dtype = jnp.promote_types(
            jnp.result_type(*arrays), jnp.result_type(float) if whole else jnp.float32
        )
        return [x.astype(dtype) for x in arrays]

    def constant(self, x: Any, dtype: Any) -> Any:
        return jax.lax.stop_gradient(jnp.asarray(x, dtype=dtype))

    def bind(self, function: Differentiable, device: Any) -> Any:
        kernels = _OnDevice(function, device) if device else _Kernels(function)

        def plain(*inputs: Any) -> Any:
            return function.value(kernels, jnp, *inputs)

        value = jax.custom_jvp(plain)

        def rule(inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            def call(name: str, *arguments: Any) -> tuple[Any, ...]:
                found: tuple[Any, ...] = _only_once(partial(kernels, name))(
                    *self._prepared(name, function.kernel(name, len(arguments)).inputs, *arguments)
                )
                return found

            result = value(*inputs)
            change = jnp.zeros_like(result)
            # the last inputs may have none
            for J, tangent in zip(function.jacobians(call, jnp, *inputs), tangents, strict=False):
                flat = tangent.reshape(*J.shape[:-2], J.shape[-1])
                change += jnp.einsum("...ij,...j->...i", J, flat).reshape(result.shape)
            return result, change

        value.defjvp(rule)
        return value


def _only_once(derivative: Any) -> Any:
    """A function that is a derivative already, and has none of its own."""
    value = jax.custom_jvp(derivative)

    def refuse(inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        raise RigidgradError(SECOND)

    value.defjvp(refuse)
    return value


class _Kernels:
    """Compiled functions of a model, called by name."""

    def __init__(self, function: Differentiable):
        self._function = function
        self._names: dict[tuple[str, int, str], str] = {}

    def __call__(self, name: str, *inputs: Any) -> tuple[Any, ...]:
        kernel, dtype = self._function.kernel(name, len(inputs)), np.dtype(inputs[0].dtype).name
        key = name, len(inputs), dtype
        if key not in self._names:
            self._names[key] = xla.registered(dataclasses.replace(kernel.job, dtype=dtype))
        batch = inputs[0].shape[:-1]  # the first is always a vector
        outputs = tuple(
            jax.ShapeDtypeStruct(batch + shape, dtype) for shape in kernel.outputs.values()
        )
        return tuple(
            jax.ffi.ffi_call(self._names[key], outputs, vmap_method="broadcast_all")(*inputs)
        )


class _OnDevice:
    """The same on a GPU, on arrays as they are."""

    def __init__(self, function: Differentiable, device: Any):
        self._function, self._device = function, device
        self._compiled: dict[tuple[str, int], Any] = {}

    def __call__(self, name: str, *inputs: Any) -> tuple[Any, ...]:
        if any(isinstance(x, jax.core.Tracer) for x in inputs):
            raise RigidgradError(
                "functions of a robot on a GPU run on arrays, not under jax.jit or jax.vmap: call"
                " them outside, with batches as leading axes, or take the robot on the CPU"
            )
        key = name, len(inputs)
        if key not in self._compiled:
            self._compiled[key] = self._device.compiled(self._function.kernel(*key).job)
        result = self._compiled[key](*inputs)
        return result if isinstance(result, tuple) else (result,)


_functions = _Jax()
rnea, aba, bias, gravity_torque = (
    _functions.rnea,
    _functions.aba,
    _functions.bias,
    _functions.gravity_torque,
)
crba, minv, coriolis_matrix = _functions.crba, _functions.minv, _functions.coriolis_matrix
forward_kinematics, jacobian = _functions.forward_kinematics, _functions.jacobian
jacobian_derivative = _functions.jacobian_derivative
frame_velocity, frame_acceleration = _functions.frame_velocity, _functions.frame_acceleration
center_of_mass, energy = _functions.center_of_mass, _functions.energy
center_of_mass_jacobian = _functions.center_of_mass_jacobian
centroidal_momentum = _functions.centroidal_momentum
contact_dynamics, impact = _functions.contact_dynamics, _functions.impact
contact_jacobian, delassus = _functions.contact_jacobian, _functions.delassus
contact_inverse_dynamics = _functions.contact_inverse_dynamics
integrate, difference = _functions.integrate, _functions.difference
