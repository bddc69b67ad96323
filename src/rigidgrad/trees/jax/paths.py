"""The walk along heavy paths in JAX, for deep trees on one device: segments of paths side by side,
and a scan over segments for what each starts from.

Light depths that follow each other are padded to one shape, so that few compiled loops serve all of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rigidgrad.trees.jax.operators import Down, Up
from rigidgrad.trees.lanes import W
from rigidgrad.trees.tree import COLUMNS, Tree

_LOOPS = 2  # shapes that light depths are padded to, at most
_LOOP = 20_000  # bodies of padding that one shape less is worth, as it is compiled in less time


class Depths(NamedTuple):
    """Light depths (D, …) of one shape: S segments of L bodies, the first C of them pieces of
    longer paths.
    """

    body: Any  # (D, L, S)
    above: Any  # (D, S) what a path hangs on, for its first segment
    follows: Any  # (D, C) whether a segment continues the one before it


class Tables(NamedTuple):
    """Body i is at place i; place N is padding, a body that does nothing; N + 1 is the world."""

    data: Any  # (24, N + 1) as `Tree.data`
    armature: Any  # (N + 1,)
    body: Any  # (N + 1,)
    depths: tuple[Depths, ...]


class Paths:
    """Where bodies are computed, and in which order."""

    def __init__(self, tree: Tree) -> None:
        self.bodies = tree.bodies
        self._depths = _depths(tree)

    @property
    def padding(self) -> float:
        """Bodies computed for each body of the tree."""
        padding: float = sum(x.body.size for x in self._depths) / self.bodies
        return padding

    def tables(self, tree: Tree, dtype: Any) -> Tables:
        n = self.bodies
        data = np.zeros((COLUMNS, n + 1), dtype)
        data[:, :n] = tree.data.T
        data[[0, 4, 8], n] = 1
        return Tables(
            data,
            np.append(tree.armature, 0).astype(dtype),
            np.append(np.arange(n), 0).astype(np.int32),
            self._depths,
        )

    def spread(self, algorithm: Callable[..., Any], tables: Tables, *inputs: Any) -> Any:
        """As `Levels.spread`."""
        rows, rest = algorithm(tables, *inputs)
        return rows[..., : self.bodies], rest

    def across(self, tables: Tables, X: tuple[Any, ...]) -> tuple[Any, ...]:
        """What operators get of transforms across joints: these themselves."""
        return X

    def down(self, tables: Tables, operator: Down, z: Any, start: Any) -> Any:
        """As `Levels.down`."""
        n = self.bodies

        def depth(x: Any, t: Depths) -> tuple[Any, None]:
            steps = _by_step(z, t.body)
            entry, cut = x[:, t.above], t.follows.shape[0]
            if cut:
                fold = jax.lax.scan(
                    lambda c, y: (operator.fold(c, y), None),
                    _rest(operator.rest, cut, z),
                    steps[:, :, :cut],
                )[0]

                def enter(end: Any, y: Any) -> tuple[Any, Any]:
                    follows, first, stretch = y
                    begin = jnp.where(follows, end, first)
                    return operator.apply(stretch, begin), begin

                begins = jax.lax.scan(
                    enter, jnp.zeros(len(start), z.dtype), (t.follows, entry[:, :cut].T, fold.T)
                )[1]
                entry = entry.at[:, :cut].set(begins.T)

            def step(above: Any, y: Any) -> tuple[Any, Any]:
                here = operator.step(y, above)
                return here, here

            states = jax.lax.scan(step, entry, steps)[1]
            return x.at[:, t.body].set(jnp.moveaxis(states, 1, 0)), None

        x = jnp.zeros((len(start), n + 2), z.dtype).at[:, n + 1].set(start)
        for t in tables.depths:
            x = jax.lax.scan(depth, x, t)[0]
        return x[:, : n + 1]

    def up(self, tables: Tables, operator: Up, z: Any, own: Any) -> tuple[Any, Any]:
        """As `Levels.up`."""
        n, size = self.bodies, len(own)

        def depth(x: Any, t: Depths) -> tuple[Any, None]:
            steps, alone = (
                _by_step(z, t.body),
                jnp.where((t.body < n)[:, None], _by_step(x, t.body), 0),
            )
            enter, cut = jnp.zeros((size, t.body.shape[1]), z.dtype), t.follows.shape[0]
            follows = jnp.pad(t.follows, (0, t.body.shape[1] - cut))
            if cut:
                fold = jax.lax.scan(
                    lambda c, y: (operator.fold(c, *y), None),
                    _rest(operator.rest, cut, z),
                    (steps[:, :, :cut], alone[:, :, :cut]),
                    reverse=True,
                )[0]

                def link(after: Any, y: Any) -> tuple[Any, Any]:
                    goes, stretch = (
                        y  # `after` acts on this segment's tail, if the next one continues it
                    )
                    return jnp.where(goes, operator.apply(stretch, after), 0), after

                loads = jax.lax.scan(
                    link, jnp.zeros(size, z.dtype), (t.follows, fold.T), reverse=True
                )[1]
                enter = enter.at[:, :cut].set(loads.T)

            def step(below: Any, y: Any) -> tuple[Any, Any]:
                total = below + y[1]
                return operator.step(y[0], total), total

            heads, totals = jax.lax.scan(step, enter, (steps, alone), reverse=True)
            x = x.at[:, t.body].set(jnp.moveaxis(totals, 1, 0))
            return x.at[:, t.above].add(jnp.where(follows, 0, heads)), None

        x = jnp.pad(own, ((0, 0), (0, 1)))
        for t in reversed(tables.depths):
            x = jax.lax.scan(depth, x, t, reverse=True)[0]
        return x[:, : n + 1], x[:, n + 1]


def _by_step(x: Any, body: Any) -> Any:
    """(L, K, S)."""
    return jnp.moveaxis(x[:, body], 1, 0)


def _rest(rest: np.ndarray, count: int, like: Any) -> Any:
    return jnp.broadcast_to(jnp.asarray(rest, like.dtype)[:, None], (len(rest), count))


def _depths(tree: Tree) -> tuple[Depths, ...]:
    t, n = tree.plan.heavy_paths, tree.bodies
    packs = np.arange(int(t.group_start[-1]))
    group = np.searchsorted(t.group_start, packs, side="right") - 1
    step = np.repeat(packs - t.group_start[group], W)
    segment = np.repeat(group * W, W) + np.tile(np.arange(W), len(packs))
    used = t.body >= 0
    body, step, segment = t.body[used], step[used], segment[used]
    head = np.full(len(t.goes_on), n, np.int64)
    head[segment[step == 0]] = body[step == 0]
    longest = np.diff(t.group_start)
    shapes = [
        (int(longest[start:stop].max()), (stop - start) * W, (cut - start) * W)
        for start, cut, stop in t.depths
    ]
    result = []
    for first, last in _merged(shapes):
        L, S, C = (max(x) for x in zip(*shapes[first:last], strict=True))
        where = np.full((last - first, L, S), n, np.int32)
        above, follows = np.full((last - first, S), n, np.int32), np.zeros((last - first, C), bool)
        for d, (start, cut, stop) in enumerate(t.depths[first:last]):
            inside = (segment >= start * W) & (segment < stop * W)
            where[d, step[inside], segment[inside] - start * W] = body[inside]
            goes_on = t.goes_on[start * W : cut * W]
            follows[d, 1 : len(goes_on)] = goes_on[:-1]
            heads = head[start * W : stop * W]
            hangs = (heads < n) & ~np.pad(follows[d], (0, S - C))[: len(heads)]
            parent = tree.parents[heads[hangs]]
            above[d, np.flatnonzero(hangs)] = np.where(parent >= 0, parent, n + 1)
        result.append(Depths(where, above, follows))
    return tuple(result)


def _merged(shapes: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Ranges of depths that are padded to one shape, with the least padding."""

    def ranges(cuts: tuple[int, ...]) -> list[tuple[int, int]]:
        return [(a, b) for a, b in pairwise((0, *cuts, len(shapes))) if a < b]

    def room(cuts: tuple[int, ...]) -> int:
        return sum(
            _LOOP + (b - a) * max(x[0] for x in shapes[a:b]) * max(x[1] for x in shapes[a:b])
            for a, b in ranges(cuts)
        )

    return ranges(min(combinations_with_replacement(range(len(shapes) + 1), _LOOPS - 1), key=room))
