"""A robot's functions in PyTorch: under autograd and torch.func, with our compiled kernels and
analytical derivatives, on the CPU; of a robot on a GPU (`robot.to("cuda")`) with our kernels there:
tensors on the GPU stay on it, and so do their gradients.

Results are float32 where all inputs are, else float64.

Derivatives by q are by its coordinates; where it holds quaternions or (cos, sin) pairs of length
one, they are those of f(normalize(q)). Derivatives of second order are an error, but for
`integrate` and `difference`, which are PyTorch's own throughout.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rigidgrad.errors import RigidgradError
from rigidgrad.interop.functions import Functions
from rigidgrad.interop.gradients import SECOND, Differentiable, batch_of
from rigidgrad.runtime.compiled import Compiled

try:
    import torch
except ImportError:
    raise RigidgradError("rg.torch needs PyTorch: pip install 'rigidgrad[torch]'") from None

# the names of rg.jax, said again: editors and type checkers read no others
# pylint: disable=duplicate-code
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


class _Torch(Functions):
    xp = torch

    def arrays(self, *inputs: Any) -> list[Any]:
        tensors = [torch.as_tensor(x) for x in inputs]
        dtype = torch.float32 if all(x.dtype == torch.float32 for x in tensors) else torch.float64
        return [x.to(dtype) for x in tensors]

    def constant(self, x: Any, dtype: Any) -> Any:
        return torch.as_tensor(x, dtype=dtype).detach()

    def bind(self, function: Differentiable, device: Any) -> Any:
        return partial(_Value.apply, _Bound(function, device))


class _Bound:
    """A function on tensors without a graph: its value and its Jacobians."""

    def __init__(self, function: Differentiable, device: Any):
        self.function, self.device = function, device
        self._compiled: dict[tuple[str, int], Any] = {}

    def call(self, name: str, *inputs: Any) -> tuple[Any, ...]:
        key = name, len(inputs)
        if key not in self._compiled:
            job = self.function.kernel(*key).job
            self._compiled[key] = self.device.compiled(job) if self.device else Compiled(job)
        given = [x.detach() for x in inputs]
        if self.device:  # takes arrays as they are
            shapes = self.function.kernel(*key).inputs
            batch = batch_of(name, dict(zip(shapes, given, strict=True)), shapes)
            given = [
                x.broadcast_to(batch + shape).contiguous()
                for x, shape in zip(given, shapes.values(), strict=True)
            ]
        result = self._compiled[key](*given)
        return result if isinstance(result, tuple) else (result,)

    def value(self, *inputs: Any) -> Any:
        return self.function.value(self.call, torch, *inputs)

    def jacobians(self, *inputs: Any) -> tuple[Any, ...]:
        return self.function.jacobians(self.call, torch, *inputs)


class _Function(torch.autograd.Function):  # type: ignore[misc]  # mypy does not follow torch
    """What both have in common: the inputs are kept, and vmap is one more batch axis."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.bound, *tensors = inputs
        ctx.shape = None if isinstance(output, tuple) else output.shape
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def with_batch(info: Any, in_dims: Any, tensors: Any) -> list[Any]:
        return [
            x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(tensors, in_dims[1:], strict=True)
        ]


class _Value(_Function):
    @staticmethod
    def forward(bound: _Bound, *inputs: Any) -> Any:
        return bound.value(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        inputs = ctx.saved_tensors
        jacobians = _Jacobians.apply(ctx.bound, *inputs)
        row = gradient.reshape(*jacobians[0].shape[:-2], 1, jacobians[0].shape[-2])
        found = [(row @ J).reshape(x.shape) for J, x in zip(jacobians, inputs, strict=False)]
        return None, *found, *[None] * (len(inputs) - len(found))  # the last inputs may have none

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        change: Any = 0.0
        for J, tangent in zip(
            _Jacobians.apply(ctx.bound, *ctx.saved_tensors), tangents, strict=False
        ):
            if tangent is not None:
                change = change + J @ tangent.reshape(*J.shape[:-2], J.shape[-1], 1)
        return change.reshape(ctx.shape)

    @staticmethod
    def vmap(info: Any, in_dims: Any, bound: _Bound, *tensors: Any) -> Any:
        return _Value.apply(bound, *_Function.with_batch(info, in_dims, tensors)), 0


class _Jacobians(_Function):
    """Derivatives, which have none of their own."""

    @staticmethod
    def forward(bound: _Bound, *inputs: Any) -> Any:
        return bound.jacobians(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RigidgradError(SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RigidgradError(SECOND)

    @staticmethod
    def vmap(info: Any, in_dims: Any, bound: _Bound, *tensors: Any) -> Any:
        result = _Jacobians.apply(bound, *_Function.with_batch(info, in_dims, tensors))
        return result, (0,) * len(result)


_functions = _Torch()
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
