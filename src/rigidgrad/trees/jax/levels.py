"""The walk by levels in JAX, on one device or shared by several.

Levels are cut into pieces of few sizes, and pieces of one size share one compiled loop, so a tree
of any size compiles in seconds. With several devices, the top of the tree is computed on all of
them, each takes some of the subtrees below it, and what comes up from these is summed over devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.trees.jax.operators import Down, Up
from rigidgrad.trees.tree import COLUMNS, Tree

_SIZES = tuple(4**k for k in range(11))
_CALL = 256  # bodies that take as long as starting one piece, about
_LOOP = 20_000  # bodies of padding that one loop less is worth, as it is compiled in less time


class Tables(NamedTuple):
    """Of each device (devices, …): places 0 … P of bodies, padding among them; P is the world, P +
    1 what padding hangs on.
    """

    data: Any  # (D, 24, P) as `Tree.data`
    armature: Any  # (D, P)
    body: Any  # (D, P) which body is here
    parent: Any  # (D, P) its parent's place


class _Loop(NamedTuple):
    size: int
    start: np.ndarray  # (pieces,) the place from which on `size` bodies are computed
    own: np.ndarray  # (pieces,) how many of these belong to the piece


class Levels:
    """Where bodies are computed, and in which order."""

    def __init__(self, tree: Tree, devices: tuple[Any, ...] = ()) -> None:
        topology, count = tree.topology, max(1, len(devices))
        self.mesh = jax.sharding.Mesh(np.array(devices), ("devices",)) if count > 1 else None
        n, order, level = tree.bodies, topology.order, topology.depth
        cut = _cut(np.diff(topology.level_start), count)
        self.share = _shares(tree, cut, count)  # -1 for the top, which every device has
        device = np.maximum(self.share, 0)
        key = device[order].astype(np.int64) * topology.levels + level[order]
        sizes = np.bincount(key, minlength=count * topology.levels).reshape(count, -1)
        widths = sizes.max(axis=0)
        start = np.concatenate([[0], np.cumsum(widths)])
        ranked = np.argsort(key, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order[ranked]] = np.arange(n) - (np.cumsum(sizes) - sizes.ravel())[key[ranked]]
        self.level_start = start
        self.place = (start[level] + rank).astype(np.int32)  # 64 bits only where JAX has them
        self.top = int(start[cut])
        self.upper, self.lower = (
            _loops(widths[:cut], start[:cut]),
            _loops(widths[cut:], start[cut:-1]),
        )
        self.places = max(int(loop.start[-1]) + loop.size for loop in self.upper + self.lower)
        self.count = count
        self.back = (device * self.places + self.place).astype(np.int32)

    def tables(self, tree: Tree, dtype: Any) -> Tables:
        shape = (self.count, self.places)
        data, armature = np.zeros((self.count, COLUMNS, self.places), dtype), np.zeros(shape, dtype)
        body, parent = np.zeros(shape, np.int32), np.full(shape, self.places + 1, np.int32)
        for d in range(self.count):
            mine = np.flatnonzero((self.share == d) | (self.share < 0))
            at, above = self.place[mine], tree.parents[mine]
            data[d][:, at], armature[d, at], body[d, at] = (
                tree.data[mine].T,
                tree.armature[mine],
                mine,
            )
            parent[d, at] = np.where(above >= 0, self.place[above], self.places)
        return Tables(data, armature, body, parent)

    def across(self, tables: Tables, X: tuple[Any, ...]) -> tuple[Any, ...]:
        """What operators get of transforms across joints: these themselves."""
        return X

    def down(self, tables: Tables, operator: Down, z: Any, start: Any) -> Any:
        """Every body's numbers (K, P), from those of the world (K,)."""
        x = jnp.zeros((len(start), self.places + 2), z.dtype).at[:, self.places].set(start)
        for loop in self.upper + self.lower:

            def piece(k: Any, x: Any, loop: _Loop = loop) -> Any:
                s = jnp.asarray(loop.start)[k]
                above = x[:, _cut_out(tables.parent, s, loop.size)]
                # what is written beyond the piece is written again by the next one
                return jax.lax.dynamic_update_slice_in_dim(
                    x, operator.step(_cut_out(z, s, loop.size), above), s, axis=1
                )

            x = jax.lax.fori_loop(0, len(loop.start), piece, x)
        return x[:, : self.places]

    def up(self, tables: Tables, operator: Up, z: Any, own: Any) -> tuple[Any, Any]:
        """Every body's numbers (K, P) with those of all that hang on it, and what the world gets
        (K,).
        """
        x = jnp.pad(own, ((0, 0), (0, 2)))
        if self.count > 1:
            first = jax.lax.axis_index("devices") == 0
            x = x.at[:, : self.top].multiply(first)
        x = self._rise(tables, operator, z, x, self.lower)
        if self.count > 1:
            shared = np.append(np.arange(self.top), self.places)
            x = x.at[:, shared].set(jax.lax.psum(x[:, shared], "devices"))
        x = self._rise(tables, operator, z, x, self.upper)
        return x[:, : self.places], x[:, self.places]

    def _rise(self, tables: Tables, operator: Up, z: Any, x: Any, loops: list[_Loop]) -> Any:
        for loop in reversed(loops):

            def piece(k: Any, x: Any, loop: _Loop = loop) -> Any:
                s, own = (
                    jnp.asarray(loop.start[::-1].copy())[k],
                    jnp.asarray(loop.own[::-1].copy())[k],
                )
                up = operator.step(_cut_out(z, s, loop.size), _cut_out(x, s, loop.size))
                up = jnp.where(jnp.arange(loop.size) < own, up, 0)
                return x.at[:, _cut_out(tables.parent, s, loop.size)].add(up)

            x = jax.lax.fori_loop(0, len(loop.start), piece, x)
        return x

    def spread(self, algorithm: Callable[..., Any], tables: Tables, *inputs: Any) -> Any:
        """algorithm(tables, *inputs) → rows (…, P) and anything that is alike on all devices; here
        the rows are (…, N), by body.
        """

        def share(tables: Tables, *inputs: Any) -> Any:
            rows, rest = algorithm(Tables(*(x[0] for x in tables)), *inputs)
            return jnp.moveaxis(rows, -1, 0)[None], rest

        if self.count > 1:
            P = jax.sharding.PartitionSpec
            specs = (P("devices"), *(P() for _ in inputs))
            share = jax.shard_map(
                share,
                mesh=self.mesh,
                in_specs=specs,
                out_specs=(P("devices"), P()),
                check_vma=False,
            )
        rows, rest = share(tables, *inputs)
        return jnp.moveaxis(rows.reshape(-1, *rows.shape[2:])[self.back], 0, -1), rest


def _cut_out(x: Any, start: Any, size: int) -> Any:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=-1)


def _loops(widths: np.ndarray, starts: np.ndarray) -> list[_Loop]:
    """At most two loops, an upper and a lower one, with the sizes of pieces that take the least
    time together.
    """
    if not len(widths):
        return []
    sizes = np.array(_SIZES)[:, None]
    time = np.concatenate(
        [np.zeros_like(sizes), np.cumsum(-(-widths // sizes) * (sizes + _CALL), axis=1)], axis=1
    )
    total = time.min(axis=0) + (time[:, -1:] - time).min(axis=0)
    total[0] -= _LOOP
    cut = int(np.argmin(total))
    loops = []
    for first, last in ((0, cut), (cut, len(widths))):
        if first < last:
            size = _SIZES[int(np.argmin(time[:, last] - time[:, first]))]
            pieces = -(-widths[first:last] // size)
            level = np.repeat(np.arange(first, last), pieces)
            k = np.arange(len(level)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            first_place, own = starts[level] + k * size, np.minimum(size, widths[level] - k * size)
            loops.append(_Loop(size, first_place.astype(np.int32), own.astype(np.int32)))
    return loops


def _cut(widths: np.ndarray, count: int) -> int:
    """The level from which on subtrees are shared: the first with several for each device; 0 for
    one device.
    """
    wide = np.flatnonzero(widths >= 4 * count)
    return 0 if count == 1 or not wide.size else int(wide[0])


def _shares(tree: Tree, cut: int, count: int) -> np.ndarray:
    """Which device computes a body: neighbouring subtrees of about the same number of bodies for
    each; -1 above them.
    """
    topology = tree.topology
    share = np.full(tree.bodies, -1, np.int64)
    start, order = topology.level_start, topology.order
    roots = order[start[cut] : start[cut + 1]]
    weight = np.cumsum(topology.size[roots])
    share[roots] = np.minimum((weight - topology.size[roots]) * count // weight[-1], count - 1)
    for first, last in zip(start[cut + 1 : -1], start[cut + 2 :], strict=True):
        share[order[first:last]] = share[tree.parents[order[first:last]]]
    return share
