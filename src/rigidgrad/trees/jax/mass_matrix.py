"""The mass matrix of a tree in JAX, packed by ancestors (Featherstone 2008, table 6.2).

All bodies at once: each one's force under unit acceleration of its joint is moved one ancestor
further with every step. Places are sorted by level, so those that still have ancestors are the last
ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.trees import algebra
from rigidgrad.trees.jax import operators
from rigidgrad.trees.jax.dynamics import inertia_matrices, transforms
from rigidgrad.trees.jax.levels import Levels, Tables
from rigidgrad.trees.jax.states import own
from rigidgrad.trees.jax.tour import Tour
from rigidgrad.trees.packed import pattern_of
from rigidgrad.trees.tree import ANG, INERTIA, LIN, Tree

_LOOPS = 4  # over parts of the tree's depth, each for the bodies below where it starts


def crba(tree: Tree, walk: Levels, tables: Tables, q: Any) -> Any:
    """The packed entries, as `PackedMatrix.values`."""
    t = Tables(*(x[0] for x in tables))
    pattern, floating = pattern_of(tree), int(tree.floating_base)
    # without rows: padding, and what floats
    level, start = (np.full(walk.places, -1), np.full(walk.places, pattern.entries))
    joints = slice(floating, None)
    level[walk.place], start[walk.place[joints]] = (
        tree.topology.depth,
        pattern.start[:-1][6 * floating :],
    )
    X = jnp.stack(transforms(t.data, own(tree, q)[t.body]))
    composite, _ = walk.up(t, operators.INERTIA, X, t.data[INERTIA])
    ang, lin, o = t.data[ANG], t.data[LIN], jnp.zeros(walk.places, q.dtype)
    forces = jnp.stack(algebra.inertia_times(tuple(composite), (o, o, ang, o, o, lin)))
    ancestor = jnp.arange(walk.places, dtype=t.parent.dtype)
    values = jnp.zeros(pattern.entries, q.dtype)
    cuts = np.unique(np.linspace(0, tree.topology.levels, _LOOPS + 1).astype(int))
    for first, last in pairwise(cuts.tolist()):
        s = int(walk.level_start[first])
        has_row, place = start[s:] < pattern.entries, jnp.asarray(start[s:])
        entries, ancestors = (
            jnp.asarray(np.where(has_row, level[s:] + 1 - floating, 0)),
            jnp.asarray(level[s:]),
        )

        def further(
            k: Any,
            x: Any,
            entries: Any = entries,
            ancestors: Any = ancestors,
            place: Any = place,
            s: int = s,
        ) -> Any:
            values, f, i = x
            h = ang[i] * f[2] + lin[i] * f[5] + jnp.where(k == 0, t.armature[s:], 0)
            values = values.at[jnp.where(k < entries, place + k, pattern.entries)].set(
                h, mode="drop"
            )
            up = operators.FORCE.step(X[:, i], f)
            return values, jnp.where(k < ancestors, up, f), jnp.where(k < ancestors, t.parent[i], i)

        values, f, i = jax.lax.fori_loop(
            first, last, further, (values, forces[:, s:], ancestor[s:])
        )
        forces, ancestor = forces.at[:, s:].set(f), ancestor.at[s:].set(i)
    if not floating:
        return values
    row = jnp.asarray(np.where(start < pattern.entries, start + level, pattern.entries))
    return _with_base(values, row, forces, composite[:, walk.place[:1]])


def by_tour(tree: Tree, walk: Tour, t: Any, q: Any) -> Any:
    """The same, every entry by itself across transforms from and to the root (Lynghus 2026,
    listings 8 to 10).
    """
    pattern, floating = pattern_of(tree), int(tree.floating_base)
    X = jnp.stack(walk.across(t, transforms(t.data, own(tree, q)[t.body])))
    composite, _ = walk.up(t, operators.INERTIA, X, t.data[INERTIA])
    ang, lin = t.data[ANG], t.data[LIN]
    momenta = algebra.joint_momentum(tuple(composite), ang, lin)
    forces = jnp.stack(algebra.force_to_parent(tuple(X[:9]), tuple(X[9:]), momenta))
    row = np.repeat(np.arange(pattern.size, dtype=np.int32), np.diff(pattern.start))
    place = np.flatnonzero(pattern.columns >= 6 * floating)
    row, column = row[place] - 5 * floating, pattern.columns[place] - 5 * floating
    there = X[:, column]
    f = algebra.force_to_child(tuple(there[:9]), tuple(there[9:]), tuple(forces[:, row]))
    entries = (
        jnp.zeros(pattern.entries, q.dtype).at[place].set(ang[column] * f[2] + lin[column] * f[5])
    )
    own_entries = pattern.start[:-1][6 * floating :]
    diagonal = (ang * momenta[2] + lin * momenta[5] + t.armature)[floating:]
    values = entries.at[own_entries].set(diagonal)
    if not floating:
        return values
    ends = np.append(pattern.entries, pattern.start[7:] - 6)  # the base has no such row
    return _with_base(values, jnp.asarray(ends), forces, composite[:, :1])


def _with_base(values: Any, back: Any, forces: Any, composite: Any) -> Any:
    """What a floating base has: columns, at the ends of bodies' rows, and its own rows."""
    # freedoms of the base are [linear, angular], and rows go from their diagonal back
    for k, row in enumerate((2, 1, 0, 5, 4, 3)):
        values = values.at[back + k].set(forces[row], mode="drop")
    base = jnp.roll(inertia_matrices(composite).reshape(6, 6), (3, 3), (0, 1))
    rows, columns = np.array([(r, c) for r in range(6) for c in range(r, -1, -1)], np.int32).T
    return values.at[:21].set(base[rows, columns])
