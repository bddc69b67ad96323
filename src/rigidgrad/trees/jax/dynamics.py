"""Dynamics of one state of a tree over any walk: what `levels` and `paths` carry down and up, put
together.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.trees import algebra
from rigidgrad.trees.jax.operators import (
    ACCELERATION,
    ARTICULATED,
    DRIVEN,
    FORCE,
    MOTION,
    PLACEMENT,
    joint_of,
)
from rigidgrad.trees.jax.states import base_motion, base_placement, joint_forces, own, turned
from rigidgrad.trees.tree import ANG, INERTIA, LIN, Tree


def transforms(data: Any, q: Any) -> tuple[Any, ...]:
    """E, r across every joint: 12 arrays."""
    E, r = algebra.across_joint(
        tuple(data[:9]),
        tuple(data[9:12]),
        jnp.sin(data[ANG] * q),
        jnp.cos(data[ANG] * q),
        data[LIN] * q,
    )
    return E + r


def rnea(
    tree: Tree,
    walk: Any,
    tables: Any,
    q: Any,
    v: Any,
    a: Any,
    external: Any = None,
    in_root: bool = False,
) -> Any:
    """tau (nv,)."""

    def newton_euler(t: Any, base: Any, start: Any, q: Any, v: Any, a: Any, external: Any) -> Any:
        q, v, a = (x[t.body] for x in (q, v, a))
        X = walk.across(t, transforms(t.data, q))
        z = jnp.stack([*X, t.data[ANG], t.data[LIN], v, a])
        motion = walk.down(t, MOTION, z, base)
        f = jnp.stack(
            algebra.body_force(tuple(t.data[INERTIA]), tuple(motion[:6]), tuple(motion[6:]))
        )
        if external is not None:
            wrench = external[:, t.body]
            if in_root:
                where = walk.down(t, PLACEMENT, z[:12], start)
                wrench = jnp.stack(
                    algebra.force_to_child(tuple(where[:9]), tuple(where[9:]), tuple(wrench))
                )
            f = f - wrench
        total, load = walk.up(t, FORCE, z[:12], f)
        return t.data[ANG] * total[2] + t.data[LIN] * total[5] + t.armature * a, load

    base, start = base_motion(tree, q, v, a), base_placement(tree, q)
    external = None if external is None else turned(tree, external, in_root)
    tau, load = walk.spread(
        newton_euler, tables, base, start, own(tree, q), own(tree, v), own(tree, a), external
    )
    return joint_forces(tree, tau, load)


def product(tree: Tree, walk: Any, tables: Any, q: Any, a: Any) -> Any:
    """The forces (nv,) that accelerations take at rest without gravity, H a."""

    def newton(t: Any, base: Any, q: Any, a: Any) -> Any:
        q, a = q[t.body], a[t.body]
        z = jnp.stack([*transforms(t.data, q), t.data[ANG], t.data[LIN], a])
        f = jnp.stack(
            algebra.inertia_times(tuple(t.data[INERTIA]), tuple(walk.down(t, DRIVEN, z, base)))
        )
        total, load = walk.up(t, FORCE, z[:12], f)
        return t.data[ANG] * total[2] + t.data[LIN] * total[5] + t.armature * a, load

    base = jnp.concatenate([a[3:6], a[:3]]) if tree.floating_base else jnp.zeros(6, a.dtype)
    tau, load = walk.spread(newton, tables, base, own(tree, q), own(tree, a))
    return joint_forces(tree, tau, load)


def solve(tree: Tree, walk: Any, tables: Any, q: Any, tau: Any) -> Any:
    """The accelerations (nv,) that tau causes at rest without gravity, H⁻¹ tau: articulated bodies
    (Featherstone 2008, table 7.1).
    """

    def articulated_bodies(t: Any, q: Any, tau: Any, wrench: Any) -> Any:
        q, tau = q[t.body], tau[t.body]
        ang, lin = t.data[ANG], t.data[LIN]
        stuck = (ang == 0) & (lin == 0)  # no joint, or padding: it must not move anything
        z = jnp.stack([*transforms(t.data, q), ang, lin, tau, jnp.where(stuck, 1, t.armature)])
        total, load = walk.up(
            t,
            ARTICULATED,
            z,
            jnp.concatenate([inertia_matrices(t.data[INERTIA]), jnp.zeros((6, len(q)), q.dtype)]),
        )
        base = jnp.zeros(6, q.dtype)
        if tree.floating_base:
            base = jnp.linalg.solve(load[:36].reshape(6, 6), wrench - load[36:])
        x = walk.down(
            t, ACCELERATION, jnp.concatenate([z[:14], joint_of(z, total)]), jnp.append(base, 0)
        )
        return x[6], base

    wrench = jnp.concatenate([tau[3:6], tau[:3]]) if tree.floating_base else jnp.zeros(6, tau.dtype)
    a, base = walk.spread(articulated_bodies, tables, own(tree, q), own(tree, tau), wrench)
    return joint_forces(tree, a, base)


def inertia_matrices(I: Any) -> Any:
    """6x6 matrices (36, P) of rigid bodies."""
    I = tuple(I)
    columns = (algebra.inertia_times(I, unit) for unit in np.eye(6, dtype=I[0].dtype))
    return jnp.concatenate([jnp.stack(x) for x in columns])


def forward_dynamics(
    tree: Tree,
    walk: Any,
    tables: Any,
    q: Any,
    v: Any,
    tau: Any,
    external: Any,
    in_root: bool,
    refinements: int,
) -> tuple[Any, Any]:
    """a (nv,), and the residual relative to max(|tau|, |bias|)."""
    still = jnp.zeros_like(v)
    bias = rnea(tree, walk, tables, q, v, still, external, in_root)
    scale = jnp.maximum(jnp.abs(tau).max(), jnp.abs(bias).max())
    scale = jnp.where(scale == 0, 1, scale)

    def times(a: Any) -> Any:
        return product(tree, walk, tables, q, a)

    def refined(_: Any, force: Any) -> tuple[Any, Any]:
        def again(_: int, best: tuple[Any, Any]) -> tuple[Any, Any]:
            a, rest = best
            better = a + solve(tree, walk, tables, q, rest)
            left = force - times(better)
            helps = jnp.abs(left).max() < jnp.abs(rest).max()
            return jnp.where(helps, better, a), jnp.where(helps, left, rest)

        a, rest = jax.lax.fori_loop(0, refinements + 1, again, (still, force))
        return a, jnp.abs(rest).max()

    # derivatives are those of H a = tau - bias, whatever the way to its solution
    a, rest = jax.lax.custom_linear_solve(times, tau - bias, refined, symmetric=True, has_aux=True)
    return a, rest / scale


def placements(tree: Tree, walk: Any, tables: Any, q: Any) -> tuple[Any, Any]:
    """R (N, 3, 3) and p (N, 3) of every body in the world."""

    def place(t: Any, start: Any, q: Any) -> Any:
        X = walk.across(t, transforms(t.data, q[t.body]))
        return walk.down(t, PLACEMENT, jnp.stack(X), start), None

    X, _ = walk.spread(place, tables, base_placement(tree, q), own(tree, q))
    R = X[:9].reshape(3, 3, -1).T
    return R if tree.turn is None else R @ tree.turn.astype(q.dtype), X[9:].T


def moments(tree: Tree, walk: Any, tables: Any, q: Any, v: Any) -> tuple[Any, ...]:
    """Kinetic and potential energy, centre of mass (3,), momentum [linear, angular] (6,) about
    it.
    """

    def move(t: Any, base: Any, start: Any, q: Any, v: Any) -> Any:
        q, v = q[t.body], v[t.body]
        X = walk.across(t, transforms(t.data, q))
        velocity = walk.down(
            t, MOTION, jnp.stack([*X, t.data[ANG], t.data[LIN], v, jnp.zeros_like(v)]), base
        )[:6]
        return (
            jnp.concatenate(
                [velocity, walk.down(t, PLACEMENT, jnp.stack(X), start), t.data[INERTIA]]
            ),
            None,
        )

    base, start = base_motion(tree, q, v, jnp.zeros_like(v)), base_placement(tree, q)
    x = tuple(walk.spread(move, tables, base, start, own(tree, q), own(tree, v))[0])
    velocity, E, p, inertia = x[:6], x[6:15], x[15:18], x[18:]
    h = algebra.inertia_times(inertia, velocity)
    kinetic = 0.5 * (jnp.stack(velocity) * jnp.stack(h)).sum()
    if tree.has_armature:
        kinetic += 0.5 * (tree.armature.astype(q.dtype) * own(tree, v) ** 2).sum()
    weighted = (jnp.stack(algebra.unrotate(E, inertia[1:4])) + inertia[0] * jnp.stack(p)).sum(
        axis=1
    )
    centre = weighted / inertia[0].sum()
    momentum = jnp.stack(algebra.force_to_parent(E, p, h)).sum(axis=1)
    angular = momentum[:3] - jnp.cross(centre, momentum[3:])
    return (
        kinetic,
        -weighted @ np.array(tree.gravity, q.dtype),
        centre,
        jnp.append(momentum[3:], angular),
    )
