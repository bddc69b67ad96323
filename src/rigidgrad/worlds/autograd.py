"""A step of worlds as a function of PyTorch, and of JAX."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.runtime import xla
from rigidgrad.runtime.job import Job
from rigidgrad.worlds.worlds import Worlds


def torch_step(worlds: Worlds) -> Callable[..., tuple[Any, Any]]:
    """`step(qpos, qvel, u, mass=…)`: (qpos, qvel) after one step of all worlds, tensors on the CPU
    with gradients by `Worlds.pullback`, also by those of `worlds.parameters` that are given; the
    others are what the worlds have when `step` is called. The solver starts where the last call's
    ended.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise RigidgradError("torch_step needs PyTorch: pip install rigidgrad[torch]") from None

    class _Step(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, given: tuple[str, ...], *tensors: Any) -> tuple[Any, Any]:
            for name, x in zip(given, tensors, strict=True):
                getattr(worlds, name)[...] = x.detach().numpy()
            ctx.given = given
            ctx.held = {x: getattr(worlds, x).copy() for x in (*worlds.inputs, *given)}
            worlds.step()
            ctx.held["qacc"] = worlds.qacc.copy()
            return torch.from_numpy(worlds.qpos.copy()), torch.from_numpy(worlds.qvel.copy())

        @staticmethod
        def backward(ctx: Any, of_qpos: Any, of_qvel: Any) -> tuple[Any, ...]:
            held = {"u": worlds.u} | ctx.held
            found = worlds.pullback(**held, of_qpos=of_qpos.numpy(), of_qvel=of_qvel.numpy())
            by = (found.get(x, np.zeros_like(ctx.held[x])) for x in ctx.given)
            return None, *(torch.from_numpy(np.array(x)) for x in by)

    def step(qpos: Any, qvel: Any, u: Any, **parameters: Any) -> tuple[Any, Any]:
        known(worlds, parameters)
        given = ("qpos", "qvel", "u", *parameters)
        found: tuple[Any, Any] = _Step.apply(given, qpos, qvel, u, *parameters.values())
        return found

    return step


def jax_step(worlds: Worlds) -> Callable[..., tuple[Any, Any]]:
    """`step(qpos, qvel, u, mass=…)`: (qpos, qvel) after one step, under jit, vmap and grad, for any
    number of worlds: XLA calls the kernels itself, each call on one thread. Derivatives are those
    of `Worlds.pullback`, in reverse alone, also by the `worlds.parameters` that are given, each of
    one world's shape behind the batch's axes; the others are those of the first world, now. The
    solver starts from accelerations of zero.
    """
    if worlds.on_fields:
        raise InputError(
            "jax_step has no height fields, as XLA calls the kernels and nobody fetches the heights"
            " below shapes; use Worlds.step or torch_step"
        )
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    dtype, names = worlds.dtype, worlds.inputs
    ahead = _registered(worlds.recording("step"), dtype)
    back = _registered(worlds.backward_recording(), dtype)
    sizes = {x: getattr(worlds, x).shape[1:] for x in names}
    now = {x: jnp.asarray(getattr(worlds, x)[0].copy()) for x in names}

    def call(target: str, shapes: list[Any], *inputs: Any) -> Any:
        batch = inputs[0].shape[:-1]
        outputs = [jax.ShapeDtypeStruct(batch + shape, dtype) for shape in shapes]
        return jax.ffi.ffi_call(target, outputs, vmap_method="broadcast_all")(*inputs)

    after = [sizes["qpos"], sizes["qvel"], sizes["qvel"], (1,)]
    after += [(1,)] if worlds.world.overflows else []

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def step_of(inputs: tuple[Any, ...]) -> Any:
        return tuple(call(ahead, after, *inputs)[:2])

    def forward(inputs: tuple[Any, ...]) -> Any:
        qpos, qvel, qacc, *_ = call(ahead, after, *inputs)
        return (qpos, qvel), (*inputs[:-1], qacc)

    def backward(kept: tuple[Any, ...], of: Any) -> Any:
        found = call(back, [sizes[x] for x in names[:-1]], *kept, *of)
        return ((*found, jnp.zeros_like(kept[-1])),)

    step_of.defvjp(forward, backward)

    def step(qpos: Any, qvel: Any, u: Any, **parameters: Any) -> tuple[Any, Any]:
        known(worlds, parameters)
        given = {"qpos": qpos, "qvel": qvel, "u": u, "qacc": jnp.zeros(worlds.nv)} | parameters
        arrays = {x: jnp.asarray(given.get(x, now[x]), dtype) for x in names}
        batches = [x.shape[: x.ndim - len(sizes[name])] for name, x in arrays.items()]
        batch = jnp.broadcast_shapes(*batches)
        filled = [jnp.broadcast_to(x, batch + sizes[name]) for name, x in arrays.items()]
        found: tuple[Any, Any] = step_of(tuple(filled))
        return found

    return step


def _registered(recording: Job, dtype: np.dtype) -> str:
    return xla.registered(dataclasses.replace(recording, dtype=dtype.name), alone=False)


def known(worlds: Worlds, parameters: Any) -> None:
    for name in parameters:
        if name not in worlds.parameters:
            raise unknown_name("parameter", name, worlds.parameters)
