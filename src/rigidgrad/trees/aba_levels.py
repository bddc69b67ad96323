"""Forward dynamics by levels: the articulated-body algorithm, eight bodies of a level at once, tasks on all cores."""

from __future__ import annotations

from rigidgrad.trees.compiled import kernel
from rigidgrad.trees.lanes import W, filled, gather, give, lanes, put_lanes, scatter_add, take
from rigidgrad.trees.operations import acceleration, eliminate, joint_motion, joint_transform, of_body, to_parent
from rigidgrad.trees.parallel import spread
from rigidgrad.trees.rnea_levels import shares
from rigidgrad.trees.tree import Tree

# components of a workspace pack: v 0-5, a 6-11, inertia and bias force 12-38, E 39-47, r 48-50, c 51-56, U 57-62, 1/D 63, u 64
_C = 65


def aba(tree: Tree, q, v, tau, armature, base, external, settle, out, threads: int) -> None:
    """As `aba_sequential.aba`."""
    t, dtype = tree.plan.levels, q.dtype
    data = tree.plan.packed("levels", dtype)
    tables = (t.pack_start, t.entry_start, t.home, t.body, t.parent, t.source, t.hang_start, t.hang_entry, t.hang_slot)
    with (
        tree.plan.workspace((t.all_packs, _C, W), dtype) as home,
        tree.plan.workspace((int(t.entry_start[-1]), 27, W), dtype) as up,
    ):
        for b in range(len(q)):
            state = (b, q, v, tau, armature, external)
            _world(home, base[b, :6], 0)
            for start, stop in t.strata:
                spread(threads, _inwards_down, shares(start, stop, threads), tables, data, home, state)
            for start, stop in reversed(t.strata):
                spread(threads, _inwards_up, shares(start, stop, threads), tables, data, home, up, state)
            _world(home, settle(b, up[0, :21, 0].copy(), up[0, 21:, 0].copy()), 6)
            for start, stop in t.strata:
                spread(threads, _outwards, shares(start, stop, threads), tables, data, home, b, out)


@kernel
def _world(home, base, first):
    for k in range(6):
        for j in range(W):
            home[0, first + k, j] = base[k]


@kernel
def _inwards_down(part, start, stop, tables, data, home, state):
    pack_start, entry_start, home_start, body, parent, source, _hang_start, _hang_entry, _hang_slot = tables
    b, q, v, _tau, _armature, external = state
    n = q.shape[1]
    o = filled(q, 0.0)
    zero = (o, o, o, o, o, o)
    for task in range(start, stop):
        first = home_start[task]
        for e in range(entry_start[task], entry_start[task + 1]):
            place = (first + e - entry_start[task]) * _C * W
            put_lanes(home, place, gather(home, 0, _C, source, e * W, 6))
            for k in range(27):
                put_lanes(home, place + (12 + k) * W, (o,))
        shift = first + entry_start[task + 1] - entry_start[task] - pack_start[task]
        for p in range(pack_start[task], pack_start[task + 1]):
            c = lanes(data, p * 24 * W, 24)
            E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], take(q, b * n, body, p * W))
            vp = gather(home, first * _C * W, _C, parent, p * W, 6)
            vel, bias = joint_motion(E, r, c[22], c[23], take(v, b * n, body, p * W), o, vp, zero)
            J, f = of_body(c[12:22], vel)
            if external.shape[0] > 0:
                x = external[b]
                for k in range(6):
                    f = (f[1], f[2], f[3], f[4], f[5], f[0] - take(x[k], 0, body, p * W))
            put_lanes(home, (p + shift) * _C * W, vel)
            put_lanes(home, ((p + shift) * _C + 12) * W, J + f + E + r + bias)


@kernel
def _inwards_up(part, start, stop, tables, data, home, up, state):
    pack_start, entry_start, home_start, body, parent, _source, hang_start, hang_entry, hang_slot = tables
    b, q, _v, tau, armature, _external = state
    n = q.shape[1]
    for task in range(start, stop):
        for h in range(hang_start[task], hang_start[task + 1]):
            e, s = hang_entry[h], hang_slot[h]
            for k in range(27):
                home[s // W, 12 + k, s % W] += up[e // W, k, e % W]
        first = home_start[task]
        shift = first + entry_start[task + 1] - entry_start[task] - pack_start[task]
        for p in range(pack_start[task + 1] - 1, pack_start[task] - 1, -1):
            s = lanes(data, (p * 24 + 22) * W, 2)
            x = lanes(home, ((p + shift) * _C + 12) * W, 45)
            J, f, E, r, c = x[0:21], x[21:27], x[27:36], x[36:39], x[39:45]
            U, d, u = eliminate(J, f, s[0], s[1], take(tau, b * n, body, p * W), take(armature, 0, body, p * W))
            put_lanes(home, ((p + shift) * _C + 57) * W, U + (d, u))
            K, g = to_parent(E, r, J, f, c, U, d, u)
            scatter_add(home, (first * _C + 12) * W, _C, parent, p * W, K + g)
        for e in range(entry_start[task], entry_start[task + 1]):
            put_lanes(up, e * 27 * W, lanes(home, ((first + e - entry_start[task]) * _C + 12) * W, 27))


@kernel
def _outwards(part, start, stop, tables, data, home, b, out):
    pack_start, entry_start, home_start, body, parent, source, _hang_start, _hang_entry, _hang_slot = tables
    n = out.shape[1]
    for task in range(start, stop):
        first = home_start[task]
        for e in range(entry_start[task], entry_start[task + 1]):
            put_lanes(home, ((first + e - entry_start[task]) * _C + 6) * W, gather(home, 6 * W, _C, source, e * W, 6))
        shift = first + entry_start[task + 1] - entry_start[task] - pack_start[task]
        for p in range(pack_start[task], pack_start[task + 1]):
            s = lanes(data, (p * 24 + 22) * W, 2)
            x = lanes(home, ((p + shift) * _C + 39) * W, 26)
            ap = gather(home, (first * _C + 6) * W, _C, parent, p * W, 6)
            acc, a = acceleration(x[0:9], x[9:12], s[0], s[1], x[12:18], x[18:24], x[24], x[25], ap)
            put_lanes(home, ((p + shift) * _C + 6) * W, acc)
            give(out, b * n, body, p * W, a)
