"""Forward dynamics by levels: the articulated-body algorithm, bodies of a level side by side, tasks on all cores."""

from __future__ import annotations

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import joint_motion
from rigidgrad.trees.articulated import acceleration, eliminate, of_body, to_parent
from rigidgrad.trees.lanes import W, filled, joint_transform, width
from rigidgrad.trees.packs import gather, give, lanes, put_lanes, scatter_add, take
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
        begin, end = entry_start[task] * W, entry_start[task + 1] * W
        for e in range(begin, end, width(q)):
            place = first * W + e - begin
            put_lanes(home, place, _C, 0, gather(home, source, e, 0, -1, _C, 0, 6))
            for k in range(27):
                put_lanes(home, place, _C, 12 + k, (o,))
        shift = first * W + end - begin - pack_start[task] * W
        for s in range(pack_start[task] * W, pack_start[task + 1] * W, width(q)):
            c = lanes(data, s, 24, 0, 24)
            E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], take(q, b * n, body, s))
            vp = gather(home, parent, s, first * W, -1, _C, 0, 6)
            vel, bias = joint_motion(E, r, c[22], c[23], take(v, b * n, body, s), o, vp, zero)
            J, f = of_body(c[12:22], vel)
            if external.shape[0] > 0:
                x = external[b]
                for k in range(6):
                    f = (f[1], f[2], f[3], f[4], f[5], f[0] - take(x[k], 0, body, s))
            put_lanes(home, s + shift, _C, 0, vel)
            put_lanes(home, s + shift, _C, 12, J + f + E + r + bias)


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
        begin, end = entry_start[task] * W, entry_start[task + 1] * W
        shift = first * W + end - begin - pack_start[task] * W
        for s in range(pack_start[task + 1] * W - width(q), pack_start[task] * W - 1, -width(q)):
            w = lanes(data, s, 24, 22, 2)
            x = lanes(home, s + shift, _C, 12, 45)
            J, f, E, r, c = x[0:21], x[21:27], x[27:36], x[36:39], x[39:45]
            U, d, u = eliminate(J, f, w[0], w[1], take(tau, b * n, body, s), take(armature, 0, body, s))
            put_lanes(home, s + shift, _C, 57, U + (d, u))
            K, g = to_parent(E, r, J, f, c, U, d, u)
            scatter_add(home, parent, s, first * W, _C, 12, K + g)
        for e in range(begin, end, width(q)):
            put_lanes(up, e, 27, 0, lanes(home, first * W + e - begin, _C, 12, 27))


@kernel
def _outwards(part, start, stop, tables, data, home, b, out):
    pack_start, entry_start, home_start, body, parent, source, _hang_start, _hang_entry, _hang_slot = tables
    n = out.shape[1]
    for task in range(start, stop):
        first = home_start[task]
        begin, end = entry_start[task] * W, entry_start[task + 1] * W
        for e in range(begin, end, width(out)):
            put_lanes(home, first * W + e - begin, _C, 6, gather(home, source, e, 0, -1, _C, 6, 6))
        shift = first * W + end - begin - pack_start[task] * W
        for s in range(pack_start[task] * W, pack_start[task + 1] * W, width(out)):
            w = lanes(data, s, 24, 22, 2)
            x = lanes(home, s + shift, _C, 39, 26)
            ap = gather(home, parent, s, first * W, -1, _C, 6, 6)
            acc, a = acceleration(x[0:9], x[9:12], w[0], w[1], x[12:18], x[18:24], x[24], x[25], ap)
            put_lanes(home, s + shift, _C, 6, acc)
            give(out, b * n, body, s, a)
