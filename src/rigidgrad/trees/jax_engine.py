"""Inverse dynamics of a tree as a JAX function, for GPUs, TPUs and several devices: by levels, or along heavy paths.

Levels of similar width share one compiled loop, so a tree of any size compiles in seconds. With several devices, the top of the tree is computed on all of
them, each takes some of the subtrees below it (`jax.shard_map`), and forces on the top are summed over devices.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.trees.tree import Tree

METHODS = ("levels", "heavy_path")
_NARROW = 16  # levels up to this width share a loop
_WASTE = 4  # padding of heavy paths, relative to the bodies, above which levels are walked instead


def compile_rnea(
    tree: Tree, *, dtype: Any = "float64", method: str | None = None, devices: Sequence[Any] | None = None
) -> Callable[..., Any]:
    """A jitted f(q, v, a) → tau for arrays (N,) or (B, N) of JAX or NumPy, without armature and external forces. Needs the extra `jax`; fixed bases.

    devices: those to share the tree between, by default the first one. float64 is used inside even where JAX's default is float32.
    """
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        raise RigidgradError("this needs JAX: pip install 'rigidgrad[jax]'") from None
    if tree.floating_base or tree.has_armature:
        raise InputError("the JAX engine knows neither floating bases nor armature; use the default engine")
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS)
    where = list(devices) if devices is not None else jax.devices()[:1]
    if not where:
        raise InputError("at least one device is needed")
    what = np.dtype(dtype)
    if what not in (np.float32, np.float64):
        raise InputError(f"dtype is float64 or float32, not {what}")
    how = method or ("heavy_path" if tree.plan.method == "heavy_path" and _path_padding(tree) <= _WASTE else "levels")
    if how == "heavy_path" and len(where) > 1:
        raise InputError("heavy paths run on one device; choose method='levels', or one device")
    with _wide(jax):
        single = _by_paths(jax, tree, what) if how == "heavy_path" else _by_levels(jax, tree, what, where)
        one, many = jax.jit(single), jax.jit(jax.vmap(single))

    def call(q: Any, v: Any, a: Any) -> Any:
        with _wide(jax):
            inputs = [jax.numpy.asarray(x, what) for x in (q, v, a)]
            shape = np.broadcast_shapes(*(x.shape for x in inputs))
            if shape[-1:] != (tree.nv,) or len(shape) > 2:
                raise InputError(f"q, v and a have shapes {[x.shape for x in inputs]}; needed is ({tree.nv},) or (B, {tree.nv})")
            inputs = [jax.numpy.broadcast_to(x, shape) for x in inputs]
            return (one if len(shape) == 1 else many)(*inputs)

    return call


def _wide(jax: Any) -> Any:
    """float64 allowed, whatever the caller's configuration."""
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


# --- algebra over arrays (components, bodies) ----------------------------------------------------------------------------------------


def _cross(jnp: Any, a: Any, b: Any) -> Any:
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _rotate(E: Any, x: Any) -> Any:
    return E[:, 0] * x[0] + E[:, 1] * x[1] + E[:, 2] * x[2]


def _unrotate(E: Any, x: Any) -> Any:
    return E[0] * x[0] + E[1] * x[1] + E[2] * x[2]


class _Algebra:
    """`algebra.py` for JAX: jets z are E 0-8, r 9-11, S q̇ 12-17, S q̈ 18-23; motions va are v 0-5, a 6-11."""

    def __init__(self, jnp: Any) -> None:
        self.jnp = jnp

    def parts(self, z: Any) -> tuple[Any, Any]:
        return z[:9].reshape((3, 3) + z.shape[1:]), z[9:12]

    def jets(self, data: Any, q: Any, v: Any, a: Any) -> Any:
        jnp = self.jnp
        E, ang, lin = data[:9].reshape(3, 3, -1), data[22], data[23]
        c, s = jnp.cos(ang * q), jnp.sin(ang * q)
        turned = jnp.stack([c * E[0] + s * E[1], c * E[1] - s * E[0], E[2]]).reshape(9, -1)
        o = jnp.zeros_like(q)
        steps = jnp.stack([o, o, ang * v, o, o, lin * v, o, o, ang * a, o, o, lin * a])
        return jnp.concatenate([turned, data[9:12] + E[2] * (lin * q), steps])

    def to_child(self, E: Any, r: Any, m: Any) -> Any:
        return self.jnp.concatenate([_rotate(E, m[:3]), _rotate(E, m[3:] - _cross(self.jnp, r, m[:3]))])

    def force_to_parent(self, z: Any, f: Any) -> Any:
        E, r = self.parts(z)
        l = _unrotate(E, f[3:])
        return self.jnp.concatenate([_unrotate(E, f[:3]) + _cross(self.jnp, r, l), l])

    def move(self, z: Any, va: Any) -> Any:
        """Velocity and acceleration after a jet, from those before it."""
        jnp = self.jnp
        E, r = self.parts(z)
        u, b, s = self.to_child(E, r, va[:6]), self.to_child(E, r, va[6:]), z[12:18]
        turn = _cross(jnp, u[:3], s[:3])
        shift = _cross(jnp, u[3:], s[:3]) + _cross(jnp, u[:3], s[3:])
        return jnp.concatenate([u + s, b + jnp.concatenate([turn, shift]) + z[18:]])

    def compose(self, x: Any, y: Any) -> Any:
        """Jet x, then jet y."""
        E, r = self.parts(x)
        F, s = self.parts(y)
        G = self.jnp.stack([_unrotate(E, F[k]) for k in range(3)]).reshape((9,) + x.shape[1:])
        return self.jnp.concatenate([G, r + _unrotate(E, s), self.move(y, x[12:])])

    def momentum(self, data: Any, m: Any) -> Any:
        h, J = data[13:16], data[16:22]
        w, u = m[:3], m[3:]
        turn = self.jnp.stack(
            [J[0] * w[0] + J[3] * w[1] + J[4] * w[2], J[3] * w[0] + J[1] * w[1] + J[5] * w[2], J[4] * w[0] + J[5] * w[1] + J[2] * w[2]]
        )
        return self.jnp.concatenate([turn + _cross(self.jnp, h, u), data[12] * u - _cross(self.jnp, h, w)])

    def body_force(self, data: Any, va: Any) -> Any:
        w, u, h = va[:3], va[3:6], self.momentum(data, va[:6])
        turn = _cross(self.jnp, w, h[:3]) + _cross(self.jnp, u, h[3:])
        return self.momentum(data, va[6:]) + self.jnp.concatenate([turn, _cross(self.jnp, w, h[3:])])


# --- by levels -----------------------------------------------------------------------------------------------------------------------


class _Walk(NamedTuple):
    """Levels side by side: bodies 0 … n, padding up to `entries`, then what the first level hangs on, then a place for padding to hang on."""

    starts: np.ndarray
    buckets: tuple[tuple[int, int, int], ...]  # (first level, last level + 1, width of the loop)
    n: int
    entries: int


def _walk(widths: np.ndarray) -> _Walk:
    buckets: list[tuple[int, int, int]] = []
    for level, width in enumerate(widths.tolist()):
        room = max(_NARROW, 1 << (width - 1).bit_length())
        if buckets and buckets[-1][2] == room:
            buckets[-1] = buckets[-1][0], level + 1, room
        else:
            buckets.append((level, level + 1, room))
    starts = np.concatenate([[0], np.cumsum(widths)])
    n = int(starts[-1])
    return _Walk(starts, tuple(buckets), n, n + max((b[2] for b in buckets), default=0))


def _descend(jax: Any, alg: _Algebra, walk: _Walk, z: Any, parent: Any, va: Any) -> Any:
    starts = jax.numpy.asarray(walk.starts)
    for first, last, width in walk.buckets:

        def level(k: Any, va: Any, width: int = width) -> Any:
            s = starts[k]
            above = va[:, jax.lax.dynamic_slice(parent, (s,), (width,))]
            # what is written beyond the level is written again by the next one
            return jax.lax.dynamic_update_slice(va, alg.move(jax.lax.dynamic_slice(z, (0, s), (24, width)), above), (0, s))

        va = jax.lax.fori_loop(first, last, level, va)
    return va


def _ascend(jax: Any, alg: _Algebra, walk: _Walk, z: Any, parent: Any, f: Any) -> Any:
    jnp = jax.numpy
    starts = jnp.asarray(walk.starts)
    for first, last, width in reversed(walk.buckets):

        def level(k: Any, f: Any, width: int = width, last: int = last, first: int = first) -> Any:
            l = last - 1 - (k - first)
            s = starts[l]
            up = alg.force_to_parent(jax.lax.dynamic_slice(z, (0, s), (24, width)), jax.lax.dynamic_slice(f, (0, s), (6, width)))
            own = jnp.arange(width) < starts[l + 1] - s
            return f.at[:, jax.lax.dynamic_slice(parent, (s,), (width,))].add(jnp.where(own, up, 0))

        f = jax.lax.fori_loop(first, last, level, f)
    return f


def _by_levels(jax: Any, tree: Tree, dtype: np.dtype, devices: list[Any]) -> Callable[..., Any]:
    jnp, alg = jax.numpy, _Algebra(jax.numpy)
    topology, count = tree.topology, len(devices)
    depth = _cut_depth(np.diff(topology.level_start), count)
    top, local, tables = _split(tree, depth, count, dtype)
    world = np.zeros((12, 1), dtype)
    world[9:, 0] = np.negative(tree.gravity)
    top_data, top_parent, top_body, data, parent, body, source, back = tables
    several = count > 1

    def forces(walk: _Walk, data: Any, z: Any, parent: Any, entry: Any) -> Any:
        room = jnp.zeros((12, walk.entries), dtype)
        va = _descend(jax, alg, walk, z, parent, jnp.concatenate([room, entry, jnp.zeros((12, 1), dtype)], axis=1))
        return va, alg.body_force(data, va[:, : walk.entries])

    def share(data: Any, parent: Any, body: Any, source: Any, q: Any, v: Any, a: Any) -> Any:
        data, parent, body, source = (x[0] for x in (data, parent, body, source))
        z_top = alg.jets(top_data, q[top_body], v[top_body], a[top_body])
        va, f_top = forces(top, top_data, z_top, top_parent, jnp.asarray(world))
        z = alg.jets(data, q[body], v[body], a[body])
        _, f = forces(local, data, z, parent, va[:, source])
        f = _ascend(jax, alg, local, z, parent, jnp.pad(f, ((0, 0), (0, len(source) + 1))))
        tau = data[22] * f[2, : local.entries] + data[23] * f[5, : local.entries]
        hung = jnp.zeros((6, top.entries + 2), dtype).at[:, source].add(f[:, local.entries : local.entries + len(source)])
        hung = jax.lax.psum(hung, "devices") if several else hung
        f_top = _ascend(jax, alg, top, z_top, top_parent, jnp.pad(f_top, ((0, 0), (0, 2))) + hung)
        return tau[None], top_data[22] * f_top[2, : top.entries] + top_data[23] * f_top[5, : top.entries]

    if several:
        P = jax.sharding.PartitionSpec
        mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
        sharded = jax.shard_map(share, mesh=mesh, in_specs=(P("devices"),) * 4 + (P(),) * 3, out_specs=(P("devices"), P()), check_vma=False)
    else:
        sharded = share

    def rnea(q: Any, v: Any, a: Any) -> Any:
        tau, tau_top = sharded(data, parent, body, source, q, v, a)
        return jnp.concatenate([tau_top, tau.reshape(-1)])[back]

    return rnea


def _cut_depth(widths: np.ndarray, count: int) -> int:
    """The level from which on subtrees are shared: the first with several for each device; 0 for one device."""
    wide = np.flatnonzero(widths >= 4 * count)
    return 0 if count == 1 or not wide.size else int(wide[0])


def _split(tree: Tree, depth: int, count: int, dtype: np.dtype) -> tuple[_Walk, _Walk, tuple]:
    """The levels above `depth`, and the subtrees below shared by `count`, each share's levels padded to the widest."""
    topology, n = tree.topology, tree.bodies
    parents, order, level = tree.parents, topology.order, topology.depth
    roots = order[level[order] == depth]
    # neighbouring subtrees of about the same number of bodies for each share
    weight = np.cumsum(topology.size[roots])
    share = np.full(n, -1, np.int64)
    share[roots] = np.minimum((weight - topology.size[roots]) * count // weight[-1], count - 1)
    for start, stop in zip(topology.level_start[depth + 1 : -1], topology.level_start[depth + 2 :], strict=True):
        share[order[start:stop]] = share[parents[order[start:stop]]]
    levels = topology.levels - depth
    sizes = np.zeros((count, levels), np.int64)
    inside = order[level[order] >= depth]
    np.add.at(sizes, (share[inside], level[inside] - depth), 1)
    top, local = _walk(np.diff(topology.level_start[: depth + 1])), _walk(sizes.max(axis=0))
    # positions: a level's bodies side by side from its start on, in breadth-first order
    position = np.empty(n, np.int64)
    position[order[: top.n]] = np.arange(top.n)
    key = share[inside] * levels + level[inside] - depth
    first = np.concatenate([[0], np.cumsum(sizes.reshape(-1))])
    ranked = np.argsort(key, kind="stable")
    rank = np.empty(len(inside), np.int64)
    rank[ranked] = np.arange(len(inside)) - first[key[ranked]]
    position[inside] = local.starts[level[inside] - depth] + rank
    entries = int(sizes[:, 0].max())

    top_body = np.zeros(top.entries, np.int32)
    top_body[: top.n] = order[: top.n]
    top_parent = np.full(top.entries, top.entries + 1, np.int32)
    above = parents[order[: top.n]]
    top_parent[: top.n] = np.where(above >= 0, position[above], top.entries)
    top_data = np.zeros((24, top.entries), dtype)
    top_data[:, : top.n] = tree.data[order[: top.n]].T
    body = np.zeros((count, local.entries), np.int32)
    parent = np.full((count, local.entries), local.entries + entries, np.int32)
    data = np.zeros((count, 24, local.entries), dtype)
    source = np.full((count, entries), top.entries + 1, np.int32)
    s, p = share[inside], position[inside]
    body[s, p] = inside
    data[s, :, p] = tree.data[inside]
    root = level[inside] == depth
    parent[s, p] = np.where(root, local.entries + p, position[np.maximum(parents[inside], 0)])
    above = parents[inside[root]]
    source[s[root], p[root]] = np.where(above >= 0, position[np.maximum(above, 0)], top.entries)
    back = np.empty(n, np.int64)
    back[order[: top.n]] = np.arange(top.n)
    back[inside] = top.entries + s * local.entries + p
    return top, local, (top_data, top_parent, top_body, data, parent, body, source, back)


# --- along heavy paths ---------------------------------------------------------------------------------------------------------------


def _lengths(tree: Tree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Segments' lengths, their bodies (segments, longest) with -1 for padding, and whether the next one continues the path."""
    t = tree.plan.heavy_paths
    steps = np.diff(t.group_start)
    width = len(t.source) // len(steps)
    table = np.full((len(t.source), int(steps.max())), -1, np.int64)
    for g in range(len(steps)):
        table[g * width : (g + 1) * width, : steps[g]] = (
            t.body[t.group_start[g] * width : t.group_start[g + 1] * width].reshape(-1, width).T
        )
    return (table >= 0).sum(axis=1), table, t.goes_on


def _path_padding(tree: Tree) -> float:
    t = tree.plan.heavy_paths
    longest = np.diff(t.group_start)
    room = sum((stop - start) * 8 * int(longest[start:stop].max()) for start, _, stop in t.depths)
    return room / tree.bodies


def _by_paths(jax: Any, tree: Tree, dtype: np.dtype) -> Callable[..., Any]:
    jnp, alg, n = jax.numpy, _Algebra(jax.numpy), tree.bodies
    t = tree.plan.heavy_paths
    _, table, goes_on = _lengths(tree)
    all_data = np.zeros((24, n + 1), dtype)
    all_data[:, :n] = tree.data.T
    all_data[[0, 4, 8], n] = 1  # padding: no mass, no transform
    parents = np.append(tree.parents, -1)
    depths = []
    for start, _, stop in t.depths:
        rows = table[start * 8 : stop * 8]
        rows = np.where(rows >= 0, rows, n)[:, : max(1, int((rows >= 0).sum(axis=1).max()))]
        follows = np.append(False, goes_on[start * 8 : stop * 8 - 1])
        above = np.where(rows[:, 0] < n, parents[rows[:, 0]], -1)
        depths.append((rows, follows, np.where(follows | (above < 0), n, above)))
    rest = np.zeros((24, 1), dtype)
    rest[[0, 4, 8]] = 1

    def rnea(q: Any, v: Any, a: Any) -> Any:
        data = jnp.asarray(all_data)
        pad = [jnp.append(x, jnp.zeros(1, dtype)) for x in (q, v, a)]
        z = alg.jets(data, *pad)
        va = jnp.zeros((12, n + 1), dtype).at[9:, n].set(-jnp.asarray(tree.gravity, dtype))
        kept = []
        for rows, follows, above in depths:
            steps = z[:, rows].transpose(2, 0, 1)  # (length, 24, segments)
            own, _ = jax.lax.scan(lambda c, x: (alg.compose(c, x), None), jnp.broadcast_to(rest, (24, len(rows))), steps)

            def enter(end: Any, x: Any) -> Any:
                goes, first, jet = x
                start = jnp.where(goes, end, first)
                return alg.move(jet[:, None], start[:, None])[:, 0], start

            _, entry = jax.lax.scan(enter, jnp.zeros(12, dtype), (follows, va[:, above].T, own.T))

            def down(m: Any, x: Any) -> Any:
                m = alg.move(x, m)
                return m, m

            _, motion = jax.lax.scan(down, entry.T, steps)
            va = va.at[:, rows.T.reshape(-1)].set(motion.transpose(1, 0, 2).reshape(12, -1)).at[:, n].set(va[:, n])
            kept.append(own)
        f = alg.body_force(data, va)
        for (rows, follows, above), own in zip(reversed(depths), reversed(kept), strict=True):
            steps = z[:, rows].transpose(2, 0, 1)
            forces = f[:, rows].transpose(2, 0, 1) * (n > rows.T)[:, None, :]

            def up(c: Any, x: Any) -> Any:
                jet, force = x
                total = c + force
                return alg.force_to_parent(jet, total), total

            alone, _ = jax.lax.scan(up, jnp.zeros((6, len(rows)), dtype), (steps, forces), reverse=True)

            def link(after: Any, x: Any) -> Any:
                goes, jet, force = x  # of the segment; `after` acts on its tail if the next one continues it
                at_head = force + alg.force_to_parent(jet[:, None], after[:, None])[:, 0]
                return jnp.where(goes, at_head, 0), (after, at_head)

            _, (late, heads) = jax.lax.scan(link, jnp.zeros(6, dtype), (follows, own.T, alone.T), reverse=True)
            _, totals = jax.lax.scan(up, late.T, (steps, forces), reverse=True)
            f = f.at[:, rows.T.reshape(-1)].set(totals.transpose(1, 0, 2).reshape(6, -1))
            f = f.at[:, above].add(jnp.where(follows, 0, heads.T)).at[:, n].set(0)
        return (data[22] * f[2] + data[23] * f[5])[:n]

    return rnea
