"""The border between users' arrays and JAX's walks: dtypes, batch axes, floating bases, external
forces.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.runtime import arrays
from rigidgrad.trees.states import check_tree, quaternion_rows
from rigidgrad.trees.tree import Tree


class States(NamedTuple):
    """Inputs of a call, all of one dtype, and the batch axes that they broadcast to."""

    inputs: dict[str, Any]
    batch: tuple[int, ...]
    dtype: np.dtype


def states(tree: Tree, **inputs: Any) -> States:
    """Checks q and what is laid out like v. Where some are JAX's own, these give the dtype; else
    float32 alone gives float32.
    """
    check_tree(tree)
    own = [x.dtype for x in inputs.values() if isinstance(x, jax.Array)]
    given = {
        name: x if isinstance(x, jax.Array) else arrays.to_numpy(name, x)[0]
        for name, x in inputs.items()
    }
    if own:
        dtype = np.dtype(np.float64 if np.float64 in own else np.float32)
    else:
        dtype = np.dtype(
            np.float32 if all(x.dtype == np.float32 for x in given.values()) else np.float64
        )
    _, batch = arrays.batch_axes(
        given, {name: (tree.nq if name == "q" else tree.nv,) for name in inputs}
    )
    with precise(dtype):
        return States(
            {name: _broadcast(x, (*batch, x.shape[-1]), dtype) for name, x in given.items()},
            batch,
            dtype,
        )


def _broadcast(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """NumPy's stay NumPy's: each operation of JAX outside of a compiled function is a function that
    is compiled.
    """
    if isinstance(x, jax.Array):
        return jnp.broadcast_to(x.astype(dtype), shape)
    return np.broadcast_to(x.astype(dtype, copy=False), shape)


def precise(dtype: np.dtype) -> Any:
    """float64 allowed where it is asked for, whatever the caller's configuration."""
    if dtype != np.float64:
        return contextlib.nullcontext()
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def external_forces(tree: Tree, external: Any, external_in: str, state: States) -> Any:
    """Wrenches (…, N, 6), force first, on all bodies; None without any."""
    if external is None:
        return None
    if external_in not in ("body", "root"):
        raise unknown_name("frame for external forces", external_in, ("body", "root"))
    shape = (*state.batch, tree.bodies, 6)
    with precise(state.dtype):
        if not isinstance(external, Mapping):
            return _wrench(external, shape, state.dtype)
        some = {
            body: _wrench(one, (*state.batch, 6), state.dtype) for body, one in external.items()
        }
        for body in some:
            if not isinstance(body, int | np.integer) or not 0 <= body < tree.bodies:
                raise InputError(
                    f"external: there is no body {body!r}; there are 0 to {tree.bodies - 1}"
                )
        if any(isinstance(x, jax.Array) for x in some.values()):
            return (
                jnp.zeros(shape, state.dtype)
                .at[..., np.array(list(some)), :]
                .set(jnp.stack(list(some.values()), axis=-2))
            )
        wrench = np.zeros(shape, state.dtype)
        for body, one in some.items():
            wrench[..., body, :] = one
        return wrench


def _wrench(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    array = value if isinstance(value, jax.Array) else arrays.to_numpy("external", value)[0]
    try:
        return _broadcast(array, shape, dtype)
    except ValueError:
        raise InputError(
            f"external has shape {array.shape}; expected {shape}, force first, or {{body: wrench"
            " (…, 6)}"
        ) from None


def turned(tree: Tree, external: Any, in_root: bool) -> Any:
    """One state's wrenches (6, N), [moment, force], in the frames that walks use, or in the
    root's.
    """
    force, moment = external[:, :3], external[:, 3:]
    if not in_root and tree.turn is not None:
        moment, force = (
            jnp.einsum("nij,nj->ni", tree.turn.astype(external.dtype), x) for x in (moment, force)
        )
    return jnp.concatenate([moment, force], axis=1).T


def own(tree: Tree, x: Any) -> Any:
    """The joints' numbers (N,) of one state's q, v, a or tau; a floating base's place is taken by
    any one of its own.
    """
    return x[-tree.bodies :]


def base_rotation(tree: Tree, q: Any) -> Any:
    """A floating base's axes in the world, (3, 3)."""
    return tree.base_rotation.astype(q.dtype) @ jnp.array(quaternion_rows(*q[3:7]))


def base_motion(tree: Tree, q: Any, v: Any, a: Any) -> Any:
    """Velocity and acceleration (12,) of what the roots stand on, gravity included."""
    up = -jnp.array(tree.gravity, q.dtype)
    if not tree.floating_base:
        return jnp.concatenate([jnp.zeros(9, q.dtype), up])
    return jnp.concatenate([v[3:6], v[:3], a[3:6], a[:3] + base_rotation(tree, q).T @ up])


def base_placement(tree: Tree, q: Any) -> Any:
    """The transform (12,) from the world to what the roots stand on."""
    if not tree.floating_base:
        return jnp.concatenate([jnp.eye(3, dtype=q.dtype).ravel(), jnp.zeros(3, q.dtype)])
    position = tree.base_rotation.astype(q.dtype) @ q[:3] + tree.base_position.astype(q.dtype)
    return jnp.concatenate([base_rotation(tree, q).T.ravel(), position])


def joint_forces(tree: Tree, tau: Any, load: Any) -> Any:
    """(nv,), from those of the joints and the wrench [moment, force] on the base."""
    return jnp.concatenate([load[3:], load[:3], tau[1:]]) if tree.floating_base else tau
