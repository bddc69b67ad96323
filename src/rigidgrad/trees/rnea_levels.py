"""Inverse dynamics by levels: eight bodies of a level at once, tasks that stay in the cache, all cores."""

from __future__ import annotations

from rigidgrad.trees.compiled import kernel
from rigidgrad.trees.lanes import W, filled, gather, give, lanes, put_lanes, scatter_add, take
from rigidgrad.trees.operations import body_force, force_to_parent, joint_motion, joint_transform
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan

# components of a workspace pack: E 0-8, r 9-11, v 12-17, a 18-23, f 24-29
_C = 30


def rnea(plan: Plan, q, v, a, base, external, tau, base_force, threads: int) -> None:
    """tau of every state. q, v, a, tau: (B, N) in the bodies' order; base (B, 12): velocity and acceleration of what the roots stand on.

    external: (B, N, 6) forces [moment, force] in body frames, or empty. base_force (B, 6): what that base has to bear (of the first root).
    """
    t = plan.levels
    dtype = tau.dtype
    data = plan.packed("levels", dtype)
    tables = (t.pack_start, t.entry_start, t.home, t.body, t.parent, t.source, t.hang_start, t.hang_entry, t.hang_slot)
    states = len(tau)
    inner = threads if states < threads else 1  # threads share states where there are enough of them, else tasks
    pieces = 1 if inner == 1 else 4 * inner

    def one(index: int, first: int, last: int) -> None:
        with (
            plan.workspace((1, t.upper_packs, _C, W), dtype) as home,
            plan.workspace((int(t.entry_start[-1]), 6, W), dtype) as up,
            plan.workspace((pieces, t.largest, _C, W), dtype) as local,
        ):
            for b in range(first, last):
                rest = (tables, data, home[0], up, (b, q, v, a, external), tau)
                _world(home[0], base[b])
                for start, stop in t.strata[:-1]:
                    spread(inner, _walk, shares(start, stop, inner), home, True, False, *rest)
                spread(inner, _walk, shares(*t.strata[-1], pieces), local, True, True, *rest)
                for start, stop in reversed(t.strata[:-1]):
                    spread(inner, _walk, shares(start, stop, inner), home, False, True, *rest)
                base_force[b] = up[0, :, 0]

    if inner > 1 or threads == 1 or states == 1:
        one(0, 0, states)
    else:
        spread(threads, one, parts(states, threads))


def shares(start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    return [(start + a, start + b) for a, b in parts(stop - start, pieces)]


@kernel
def _world(home, base):
    for k in range(12):
        for j in range(W):
            home[0, 12 + k, j] = base[k]


@kernel
def _enter(task, entry_start, source, home, work, first):
    """Velocities and accelerations of what a task's roots hang on; no force yet."""
    zero = filled(work, 0.0)
    for e in range(entry_start[task], entry_start[task + 1]):
        place = (first + e - entry_start[task]) * _C * W
        put_lanes(work, place + 12 * W, gather(home, 12 * W, _C, source, e * W, 12))
        put_lanes(work, place + 24 * W, (zero, zero, zero, zero, zero, zero))


@kernel
def _forward(begin, end, first, shift, body, parent, data, work, state):
    """Packs begin … end. The task's workspace starts at pack `first`, its body packs `shift` packs before their own number."""
    b, q, v, a, external = state
    n = q.shape[1]
    base = first * _C * W
    for p in range(begin, end):
        c = lanes(data, p * 24 * W, 24)
        ang, lin = c[22], c[23]
        E, r = joint_transform(c[0:9], c[9:12], ang, lin, take(q, b * n, body, p * W))
        m = gather(work, base + 12 * W, _C, parent, p * W, 12)
        vel, acc = joint_motion(E, r, ang, lin, take(v, b * n, body, p * W), take(a, b * n, body, p * W), m[0:6], m[6:12])
        f = body_force(c[12:22], vel, acc)
        if external.shape[0] > 0:
            f = _without(f, external, b, body, p)
        put_lanes(work, (p + shift) * _C * W, E + r + vel + acc + f)


@kernel
def _without(f, external, b, body, p):
    x = external[b]
    g = f
    for k in range(6):
        g = (g[1], g[2], g[3], g[4], g[5], g[0] - take(x[k], 0, body, p * W))
    return g


@kernel
def _backward(begin, end, first, shift, body, parent, data, work, b, tau):
    n = tau.shape[1]
    base = first * _C * W
    for p in range(end - 1, begin - 1, -1):
        place = (p + shift) * _C * W
        x = lanes(work, place, 12)
        f = lanes(work, place + 24 * W, 6)
        s = lanes(data, (p * 24 + 22) * W, 2)
        give(tau, b * n, body, p * W, s[0] * f[2] + s[1] * f[5])
        scatter_add(work, base + 24 * W, _C, parent, p * W, force_to_parent(x[0:9], x[9:12], f))


@kernel
def _walk(part, start, stop, works, down, upwards, tables, data, home, up, state, tau):
    """Tasks start … stop down, up, or down and then up. `works` is `home`, or one workspace a part for tasks that leave nothing behind."""
    pack_start, entry_start, home_start, body, parent, source, hang_start, hang_entry, hang_slot = tables
    work = works[part % len(works)]
    passing = down and upwards
    for task in range(start, stop):
        begin, end, first = pack_start[task], pack_start[task + 1], 0 if passing else home_start[task]
        shift = first + entry_start[task + 1] - entry_start[task] - begin
        if down:
            _enter(task, entry_start, source, home, work, first)
            _forward(begin, end, first, shift, body, parent, data, work, state)
        if upwards:
            for h in range(hang_start[task], hang_start[task + 1]):
                e, s = hang_entry[h], hang_slot[h]
                for k in range(6):
                    work[s // W, 24 + k, s % W] += up[e // W, k, e % W]
            _backward(begin, end, first, shift, body, parent, data, work, state[0], tau)
            _leave(task, entry_start, work, first, up)


@kernel
def _leave(task, entry_start, work, first, up):
    for e in range(entry_start[task], entry_start[task + 1]):
        put_lanes(up, e * 6 * W, lanes(work, ((first + e - entry_start[task]) * _C + 24) * W, 6))
