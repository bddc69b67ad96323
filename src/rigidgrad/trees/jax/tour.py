"""The walk along the Euler tour in JAX, on one device: scans with inverses, as Lynghus (2026) has
it. For comparison: it loses digits.

Transforms from the root to all bodies are one scan, and what is carried is summed in the root's
frame; so it serves what can be undone there, and no articulated bodies. A scan is one of blocks,
about as many as each has steps: few operations to compile, whatever the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.trees import algebra
from rigidgrad.trees.jax.operators import DRIVEN, FORCE, INERTIA, MOTION, PLACEMENT, Down, Up
from rigidgrad.trees.rnea_euler_tour import IDENTITY, inverted
from rigidgrad.trees.tree import Tree


class Tables(NamedTuple):
    """Body i is at place i."""

    data: Any  # (24, N) as `Tree.data`
    armature: Any  # (N,)
    body: Any  # (N,)
    lp: Any  # (N,) the step in which a body is entered
    rp: Any  # (N,) … and left


class Tour:
    """The steps of a tree's tour."""

    def __init__(self, tree: Tree) -> None:
        self.bodies = tree.bodies

    def tables(self, tree: Tree, dtype: Any) -> Tables:
        lp, rp = (x.astype(np.int32) for x in tree.topology.tour)
        body = np.arange(tree.bodies, dtype=np.int32)
        data, armature = tree.data.T.astype(dtype), tree.armature.astype(dtype)
        return Tables(data, armature, body, lp, rp)

    def spread(self, algorithm: Callable[..., Any], tables: Tables, *inputs: Any) -> Any:
        """As `Levels.spread`."""
        return algorithm(tables, *inputs)

    def across(self, tables: Tables, X: tuple[Any, ...]) -> tuple[Any, ...]:
        """Transforms from the root, of those across joints."""
        rows = jnp.stack(X)
        back = jnp.stack(inverted(tuple(X)))
        steps = jnp.zeros((12, 2 * self.bodies), rows.dtype)
        steps = steps.at[:, tables.lp].set(rows).at[:, tables.rp].set(back)
        return tuple(_scan(_joined, steps, IDENTITY)[:, tables.lp])

    def down(self, tables: Tables, operator: Down, z: Any, start: Any) -> Any:
        """As `Levels.down`; z begins with transforms from the root."""
        start = jnp.broadcast_to(start[:, None], (len(start), self.bodies))
        if operator is PLACEMENT:
            return operator.step(z, start)
        z, X = tuple(z), (tuple(z[:9]), tuple(z[9:12]))
        o = jnp.zeros_like(z[0])

        def carried(motion: tuple[Any, ...], base: Any) -> tuple[Any, ...]:
            own = jnp.stack(algebra.motion_to_parent(*X, motion))
            return algebra.motion_to_child(*X, tuple(self._sums(tables, own) + base))

        if operator is DRIVEN:
            return jnp.stack(carried((o, o, z[12] * z[14], o, o, z[13] * z[14]), start))
        _only(operator, MOTION)
        speed = o, o, z[12] * z[14], o, o, z[13] * z[14]
        v = carried(speed, start[:6])
        s = algebra.cross_motion(v, speed)
        a = (s[0], s[1], s[2] + z[12] * z[15], s[3], s[4], s[5] + z[13] * z[15])
        return jnp.stack(v + carried(a, start[6:]))

    def up(self, tables: Tables, operator: Up, z: Any, own: Any) -> tuple[Any, Any]:
        """As `Levels.up`; z begins with transforms from the root."""
        there = algebra.inertia_to_parent if operator is INERTIA else algebra.force_to_parent
        if operator is not INERTIA:
            _only(operator, FORCE)
        back = inverted(tuple(z[:12]))
        total, load = self._subtrees(
            tables, jnp.stack(there(tuple(z[:9]), tuple(z[9:12]), tuple(own)))
        )
        return jnp.stack(there(back[:9], back[9:], tuple(total))), load

    def _sums(self, tables: Tables, own: Any) -> Any:
        """Over all that a body hangs on, and itself."""
        steps = jnp.zeros((len(own), 2 * self.bodies), own.dtype)
        steps = steps.at[:, tables.lp].set(own).at[:, tables.rp].set(-own)
        return jnp.cumsum(steps, axis=1)[:, tables.lp]

    def _subtrees(self, tables: Tables, own: Any) -> tuple[Any, Any]:
        """Over all that hangs on a body, and itself; and over all bodies."""
        steps = jnp.zeros((len(own), 2 * self.bodies), own.dtype).at[:, tables.lp].set(own)
        before = jnp.pad(jnp.cumsum(steps, axis=1), ((0, 0), (1, 0)))
        return before[:, tables.rp] - before[:, tables.lp], before[:, -1]


def _only(operator: Any, known: Any) -> None:
    if operator is not known:
        raise ValueError("along the Euler tour nothing is carried that cannot be undone")


def _joined(x: Any, y: Any) -> Any:
    return PLACEMENT.step(y, x)


def _scan(op: Callable[[Any, Any], Any], rows: Any, neutral: np.ndarray) -> Any:
    """The inclusive scan of columns (C, M): op(x, y) is x, then y."""
    width, count = rows.shape
    blocks = max(1, math.isqrt(count))
    length = -(-count // blocks)
    unit = jnp.asarray(neutral, rows.dtype)[:, None]
    padded = jnp.concatenate(
        [rows, jnp.broadcast_to(unit, (width, blocks * length - count))], axis=1
    )
    by_step = jnp.moveaxis(padded.reshape(width, blocks, length), 2, 0)

    def step(total: Any, row: Any) -> tuple[Any, Any]:
        total = op(total, row)
        return total, total

    def before(total: Any, row: Any) -> tuple[Any, Any]:
        return op(total, row), total

    sums, within = jax.lax.scan(step, jnp.broadcast_to(unit, (width, blocks)), by_step)
    starts = jax.lax.scan(before, unit[:, 0], sums.T)[1].T
    whole = op(
        jnp.broadcast_to(starts[:, None, :], (width, length, blocks)), jnp.moveaxis(within, 0, 1)
    )
    return jnp.moveaxis(whole, 1, 2).reshape(width, -1)[:, :count]
