"""Dynamics of trees as functions of JAX, for GPUs, TPUs and several devices: under jit, vmap, jvp
and grad. Needs the extra `jax`.

Each function is compiled for a tree when it is first called. Arrays of JAX give the dtype of
results; NumPy's are float64, unless all are float32, whatever JAX's default. `method` is "levels"
or "heavy_path", the tree's shape decides if it is left out, or "euler_tour", for comparison, as it
loses digits; `devices` are those that share the
tree's subtrees, by levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.trees.crba import METHODS as MASS_MATRIX, require_room
from rigidgrad.trees.forward_dynamics import ForwardDynamics, warn_if_poor
from rigidgrad.trees.kinematics import Energy, Placements
from rigidgrad.trees.memory import TooLargeError
from rigidgrad.trees.packed import PackedMatrix, pattern_of
from rigidgrad.trees.tree import Tree

try:
    import jax
except ImportError:
    raise RigidgradError("rg.trees.jax needs JAX: pip install 'rigidgrad[jax]'") from None

import jax.numpy as jnp

from rigidgrad.trees.jax import dynamics, mass_matrix
from rigidgrad.trees.jax.levels import Levels
from rigidgrad.trees.jax.paths import Paths
from rigidgrad.trees.jax.states import States, external_forces, precise, states
from rigidgrad.trees.jax.tour import Tour

__all__ = [
    "bias",
    "center_of_mass",
    "centroidal_momentum",
    "crba",
    "energy",
    "forward_dynamics",
    "forward_kinematics",
    "rnea",
]

jax.tree_util.register_pytree_node(
    PackedMatrix, lambda m: ((m.values,), m.pattern), lambda pattern, x: PackedMatrix(pattern, x[0])
)

METHODS = ("levels", "heavy_path", "euler_tour")
_WASTE = 4  # padding of heavy paths, relative to the bodies, above which levels are walked instead


def rnea(
    tree: Tree,
    q: Any,
    v: Any,
    a: Any,
    *,
    method: str | None = None,
    external: Any = None,
    external_in: str = "body",
    devices: Sequence[Any] | None = None,
) -> Any:
    """The joint forces tau (…, nv) that cause the accelerations a, as `trees.rnea`."""
    state = states(tree, q=q, v=v, a=a)
    return _run(
        dynamics.rnea,
        tree,
        state,
        method,
        devices,
        external_forces(tree, external, external_in, state),
        external_in == "root",
    )


def bias(tree: Tree, q: Any, v: Any, **options: Any) -> Any:
    """Coriolis, centrifugal and gravity forces, minus external ones: `rnea` with a = 0, and its
    options.
    """
    state = states(tree, q=q, v=v)
    return rnea(tree, q, v, np.zeros(tree.nv, state.dtype), **options)


def crba(tree: Tree, q: Any, *, method: str | None = None, device: Any = None) -> PackedMatrix:
    """The mass matrix, packed, as `trees.crba`, on one device, by "ancestors" or "euler_tour".
    `values` is an array of JAX; products and solutions are computed on the host.
    """
    if method is not None and method not in MASS_MATRIX:
        raise unknown_name("method", method, MASS_MATRIX)
    state = states(tree, q=q)
    require_room(tree, math.prod(state.batch), state.dtype)
    if pattern_of(tree).entries >= 2**31:
        raise TooLargeError(
            "JAX counts the entries of a mass matrix with 32 bits; trees.crba takes larger ones"
        )
    along = method == "euler_tour"
    values = _run(
        mass_matrix.by_tour if along else mass_matrix.crba,
        tree,
        state,
        "euler_tour" if along else "levels",
        None if device is None else [device],
    )
    return PackedMatrix(pattern_of(tree), values)


def forward_dynamics(
    tree: Tree,
    q: Any,
    v: Any,
    tau: Any,
    *,
    method: str | None = None,
    external: Any = None,
    external_in: str = "body",
    refinements: int = 2,
    devices: Sequence[Any] | None = None,
) -> ForwardDynamics:
    """The accelerations that joint forces tau cause, and how well they fulfil the equations of
    motion, as `trees.forward_dynamics`: by the articulated-body algorithm over levels, or by star
    products along heavy paths, refined. An AccuracyWarning names a poor residual, but not within a
    jitted function.
    """
    state = states(tree, q=q, v=v, tau=tau)
    if method == "euler_tour":
        raise InputError(
            "articulated bodies cannot be undone, as the Euler tour would have it: choose"
            " method='levels' or 'heavy_path'"
        )
    if refinements < 0:
        raise InputError(f"refinements is {refinements}; it is 0 or more")
    forces = external_forces(tree, external, external_in, state)
    found = ForwardDynamics(
        *_run(
            dynamics.forward_dynamics,
            tree,
            state,
            method,
            devices,
            forces,
            external_in == "root",
            refinements,
        )
    )
    if not isinstance(found.residual, jax.core.Tracer):
        warn_if_poor(tree, np.asarray(found.residual))
    return found


def forward_kinematics(
    tree: Tree, q: Any, *, method: str | None = None, devices: Sequence[Any] | None = None
) -> Placements:
    """Where every body is, as `trees.forward_kinematics`."""
    state = states(tree, q=q)
    return Placements(*_run(dynamics.placements, tree, state, method, devices))


def energy(
    tree: Tree, q: Any, v: Any, *, method: str | None = None, devices: Sequence[Any] | None = None
) -> Energy:
    """Kinetic energy, armature included, and potential energy, 0 at the world's origin, as
    `trees.energy`.
    """
    return Energy(*_run(dynamics.moments, tree, states(tree, q=q, v=v), method, devices)[:2])


def center_of_mass(
    tree: Tree, q: Any, *, method: str | None = None, devices: Sequence[Any] | None = None
) -> Any:
    """(…, 3), in the world."""
    return _run(
        dynamics.moments, tree, states(tree, q=q, v=np.zeros(tree.nv, np.float32)), method, devices
    )[2]


def centroidal_momentum(
    tree: Tree, q: Any, v: Any, *, method: str | None = None, devices: Sequence[Any] | None = None
) -> Any:
    """(…, 6), linear first, about the centre of mass, in world axes."""
    return _run(dynamics.moments, tree, states(tree, q=q, v=v), method, devices)[3]


# --- compiled once for a tree ---------------------------------------------------------------------


def _run(
    algorithm: Callable[..., Any],
    tree: Tree,
    state: States,
    method: str | None,
    devices: Sequence[Any] | None,
    external: Any = None,
    *options: Any,
) -> Any:
    """algorithm(tree, walk, tables, *inputs of one state, external, *options) for all states."""
    where = None if devices is None else tuple(devices)
    walk = _walk(tree, method, where)
    arrays = list(state.inputs.values()) + ([] if external is None else [external])
    more = len(state.inputs)

    def one(tables: Any, *inputs: Any) -> Any:
        last = (inputs[more] if external is not None else None, *options) if options else ()
        return algorithm(tree, walk, tables, *inputs[:more], *last)

    def program() -> Any:
        function = one
        for _ in state.batch:
            function = jax.vmap(function, in_axes=(None, *(0 for _ in arrays)))
        return jax.jit(function)

    with precise(state.dtype):
        key = "jax", walk, algorithm, len(state.batch), external is not None, *options
        tables = tree.plan.kept(
            ("jax", walk, state.dtype.name),
            lambda: _placed(walk, walk.tables(tree, state.dtype), where),
        )
        return tree.plan.kept(key, program)(tables, *arrays)


def _walk(tree: Tree, method: str | None, devices: tuple[Any, ...] | None) -> Any:
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if devices is not None and not devices:
        raise InputError("at least one device is needed")
    several = devices is not None and len(devices) > 1
    if method in ("heavy_path", "euler_tour") and several:
        raise InputError(
            "heavy paths and Euler tours run on one device; choose method='levels', or one device"
        )

    def paths() -> Paths:
        return Paths(tree)

    if method is None:
        deep = tree.plan.method == "heavy_path" and not several
        method = (
            "heavy_path"
            if deep and tree.plan.kept(("jax", "heavy_path", devices), paths).padding <= _WASTE
            else "levels"
        )
    make: Callable[[], Any] = {
        "heavy_path": paths,
        "levels": lambda: Levels(tree, devices or ()),
        "euler_tour": lambda: Tour(tree),
    }[method]
    return tree.plan.kept(("jax", method, devices), make)


def _placed(walk: Any, tables: Any, devices: tuple[Any, ...] | None) -> Any:
    """Tables on their devices: never a part of what is being traced."""
    with jax.ensure_compile_time_eval():
        if devices is None:
            return jax.tree.map(jnp.asarray, tables)
        where = devices[0]
        if len(devices) > 1:
            where = jax.sharding.NamedSharding(walk.mesh, jax.sharding.PartitionSpec("devices"))
        return jax.device_put(tables, where)
