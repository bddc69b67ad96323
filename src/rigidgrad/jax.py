"""A robot's functions in JAX: under jit, vmap, jvp and grad, with our compiled kernels and analytical derivatives, on the CPU.

XLA calls the kernels itself through its foreign function interface, without Python in between; each call runs on one thread. Results are float32, JAX's
default, or float64 where an input is, which needs `jax_enable_x64`.

Derivatives by q are by its coordinates; where it holds quaternions or (cos, sin) pairs of length one, they are those of f(normalize(q)). Derivatives of second
order are an error, but for `integrate` and `difference`, which are JAX's own throughout.
"""

from __future__ import annotations

import ctypes
import dataclasses
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.errors import RigidgradError
from rigidgrad.interop.functions import Functions
from rigidgrad.interop.gradients import SECOND, Differentiable
from rigidgrad.runtime import xla
from rigidgrad.runtime.lanes import Job, lane_kernel

try:
    import jax
    import jax.ffi
    import jax.numpy as jnp
except ImportError:
    raise RigidgradError("rg.jax needs JAX, 0.5 or newer: pip install 'rigidgrad[jax]'") from None

# fmt: off
__all__ = [
    "aba", "bias", "center_of_mass", "contact_dynamics", "crba", "difference", "forward_kinematics", "gravity_torque", "impact", "integrate", "minv", "rnea",
]
# fmt: on

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Jax(Functions):
    xp = jnp

    def arrays(self, *inputs: Any) -> list[Any]:
        arrays = [jnp.asarray(x) for x in inputs]
        whole = any(jnp.issubdtype(x.dtype, jnp.integer) for x in arrays)
        dtype = jnp.promote_types(jnp.result_type(*arrays), jnp.result_type(float) if whole else jnp.float32)
        return [x.astype(dtype) for x in arrays]

    def constant(self, x: Any, dtype: Any) -> Any:
        return jax.lax.stop_gradient(jnp.asarray(x, dtype=dtype))

    def bind(self, function: Differentiable) -> Any:
        kernels = _Kernels(function)

        @jax.custom_jvp
        def value(*inputs: Any) -> Any:
            return function.value(kernels, jnp, *inputs)

        @value.defjvp
        def rule(inputs: tuple, tangents: tuple) -> tuple[Any, Any]:
            def call(name: str, *arguments: Any) -> tuple[Any, ...]:
                return _only_once(partial(kernels, name))(*self._prepared(name, function.kernel(name, len(arguments)).inputs, *arguments))

            result = value(*inputs)
            change = jnp.zeros_like(result)
            for J, tangent in zip(function.jacobians(call, jnp, *inputs), tangents, strict=False):  # the last inputs may have none
                flat = tangent.reshape(*J.shape[:-2], J.shape[-1])
                change += jnp.einsum("...ij,...j->...i", J, flat).reshape(result.shape)
            return result, change

        return value


def _only_once(derivative: Any) -> Any:
    """A function that is a derivative already, and has none of its own."""
    value = jax.custom_jvp(derivative)

    @value.defjvp
    def refuse(inputs: tuple, tangents: tuple) -> Any:
        raise RigidgradError(SECOND)

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
            self._names[key] = _target(Job(self._function.model, **kernel.options, dtype=dtype))
        batch = inputs[0].shape[:-1]  # the first is always a vector
        outputs = tuple(jax.ShapeDtypeStruct(batch + shape, dtype) for shape in kernel.outputs.values())
        return tuple(jax.ffi.ffi_call(self._names[key], outputs, vmap_method="broadcast_all")(*inputs))


_targets: dict[str, tuple[Any, ...]] = {}  # XLA keeps the addresses for ever, so their code stays


def _target(job: Job) -> str:
    """The name under which XLA knows the kernel of a job."""
    name = f"rigidgrad_{job.key()}"
    if name not in _targets:
        batch, single = lane_kernel(job), lane_kernel(dataclasses.replace(job, width=1))
        loaded = xla.handler(batch, single)
        address = _HANDLER(loaded.address("handler"))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
        _targets[name] = (batch, single, loaded, address)
    return name


_functions = _Jax()
rnea, aba, bias, gravity_torque = _functions.rnea, _functions.aba, _functions.bias, _functions.gravity_torque
crba, minv = _functions.crba, _functions.minv
forward_kinematics, center_of_mass = _functions.forward_kinematics, _functions.center_of_mass
contact_dynamics, impact = _functions.contact_dynamics, _functions.impact
integrate, difference = _functions.integrate, _functions.difference
