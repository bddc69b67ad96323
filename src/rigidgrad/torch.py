"""A robot's functions in PyTorch: under autograd and torch.func, with our compiled kernels and analytical derivatives, on the CPU.

Results are float32 where all inputs are, else float64.

Derivatives by q are by its coordinates; where it holds quaternions or (cos, sin) pairs of length one, they are those of f(normalize(q)). Derivatives of second
order are an error, but for `integrate` and `difference`, which are PyTorch's own throughout.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rigidgrad.errors import RigidgradError
from rigidgrad.interop.functions import Functions
from rigidgrad.interop.gradients import SECOND, Differentiable
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.lanes import Job

try:
    import torch
except ImportError:
    raise RigidgradError("rg.torch needs PyTorch: pip install 'rigidgrad[torch]'") from None

# fmt: off
__all__ = [
    "aba", "bias", "center_of_mass", "contact_dynamics", "crba", "difference", "forward_kinematics", "gravity_torque", "impact", "integrate", "minv", "rnea",
]
# fmt: on


class _Torch(Functions):
    xp = torch

    def arrays(self, *inputs: Any) -> list[Any]:
        tensors = [torch.as_tensor(x) for x in inputs]
        dtype = torch.float32 if all(x.dtype == torch.float32 for x in tensors) else torch.float64
        return [x.to(dtype) for x in tensors]

    def constant(self, x: Any, dtype: Any) -> Any:
        return torch.as_tensor(x, dtype=dtype).detach()

    def bind(self, function: Differentiable) -> Any:
        return partial(_Value.apply, _Bound(function))


class _Bound:
    """A function on tensors without a graph: its value and its Jacobians."""

    def __init__(self, function: Differentiable):
        self.function = function
        self._compiled: dict[tuple[str, int], Compiled] = {}

    def call(self, name: str, *inputs: Any) -> tuple[Any, ...]:
        key = name, len(inputs)
        if key not in self._compiled:
            kernel = self.function.kernel(*key)
            self._compiled[key] = Compiled(Job(self.function.model, **kernel.options))
        result = self._compiled[key](*(x.detach() for x in inputs))
        return result if isinstance(result, tuple) else (result,)

    def value(self, *inputs: Any) -> Any:
        return self.function.value(self.call, torch, *inputs)

    def jacobians(self, *inputs: Any) -> tuple[Any, ...]:
        return self.function.jacobians(self.call, torch, *inputs)


class _Function(torch.autograd.Function):
    """What both have in common: the inputs are kept, and vmap is one more batch axis."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.bound, *tensors = inputs
        ctx.shape = None if isinstance(output, tuple) else output.shape
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def with_batch(info: Any, in_dims: Any, tensors: Any) -> list[Any]:
        return [x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0) for x, d in zip(tensors, in_dims[1:], strict=True)]


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
        for J, tangent in zip(_Jacobians.apply(ctx.bound, *ctx.saved_tensors), tangents, strict=False):
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
rnea, aba, bias, gravity_torque = _functions.rnea, _functions.aba, _functions.bias, _functions.gravity_torque
crba, minv = _functions.crba, _functions.minv
forward_kinematics, center_of_mass = _functions.forward_kinematics, _functions.center_of_mass
contact_dynamics, impact = _functions.contact_dynamics, _functions.impact
integrate, difference = _functions.integrate, _functions.difference
