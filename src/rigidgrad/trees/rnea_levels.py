"""Inverse dynamics by levels: bodies of a level side by side in lanes, tasks that stay in the cache, all cores."""

from __future__ import annotations

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import across_joint, body_force, force_to_parent, joint_motion
from rigidgrad.trees.lanes import W, filled, sincos, width
from rigidgrad.trees.packs import fetch, gather, give, lanes, put_lanes, scatter_add, take
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan

# components of a workspace pack: E 0-8, r 9-11, f 12-17; v and a are kept apart
_C = 18
THREADED = 30_000  # bodies from which on threads are worth their calls
_BLOCK = 64  # slots whose sines and cosines are worked out together
AHEAD = 128  # slots: bodies' numbers are asked for so long before their turn, as memory is slow and its own foresight ends with a page


def rnea(plan: Plan, q, v, a, base, external, tau, base_force, threads: int) -> None:
    """tau of every state. q, v, a, tau: (B, N) in the bodies' order; base (B, 12): velocity and acceleration of what the roots stand on.

    external: (B, N, 6) forces [moment, force] in body frames, or empty. base_force (B, 6): what that base has to bear (of the first root).
    """
    t = plan.levels
    dtype = tau.dtype
    data = plan.packed("levels", dtype)
    tables = (t.pack_start, t.entry_start, t.home, t.body, t.parent, t.leaf, t.source, t.hang_start, t.hang_entry, t.hang_slot)
    states = len(tau)
    # threads share states where there are enough of them, else tasks
    inner = threads if states < threads and plan.topology.bodies >= THREADED else 1
    pieces = 1 if inner == 1 else 4 * inner

    def one(index: int, first: int, last: int) -> None:
        with (
            plan.workspace((1, t.upper_packs, _C, W), dtype) as home,
            plan.workspace((1, t.upper_packs, 12, W), dtype) as home_motion,
            plan.workspace((int(t.entry_start[-1]), 6, W), dtype) as up,
            plan.workspace((pieces, t.largest + 1, _C, W), dtype) as local,
            plan.workspace((pieces, t.ring, 12, W), dtype) as ring,
        ):
            for b in range(first, last):
                rest = (tables, data, home_motion[0], up, (b, q, v, a, external), tau)
                _world(home_motion[0], base[b])
                for start, stop in t.strata[:-1]:
                    spread(inner, _walk, shares(start, stop, inner), (home, home_motion), True, False, *rest)
                spread(inner, _walk, shares(*t.strata[-1], pieces), (local, ring), True, True, *rest)
                for start, stop in reversed(t.strata[:-1]):
                    spread(inner, _walk, shares(start, stop, inner), (home, home_motion), False, True, *rest)
                base_force[b] = up[0, :, 0]

    if inner > 1 or threads == 1 or states == 1:
        one(0, 0, states)
    else:
        spread(threads, one, parts(states, threads))


def shares(start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    return [(start + a, start + b) for a, b in parts(stop - start, pieces)]


@kernel
def _world(motion, base):
    for k in range(12):
        for j in range(W):
            motion[0, k, j] = base[k]


@kernel
def _enter(task, entry_start, source, home_motion, work, motion, first):
    """Velocities and accelerations of what a task's roots hang on; no force yet."""
    o = filled(work, 0.0)
    begin, end = entry_start[task] * W, entry_start[task + 1] * W
    for e in range(begin, end, width(work)):
        place = first * W + e - begin
        put_lanes(work, place, _C, 12, (o, o, o, o, o, o))
        put_lanes(motion, place, 12, 0, gather(home_motion, source, e, 0, -1, 12, 0, 12))


@kernel
def turn(begin, end, shift, body, data, work, b, q):
    """Sines and cosines of the joints, where E comes to lie: a loop of its own, as each is a long chain of steps that depend on each other."""
    for s in range(begin, end, width(work)):
        fetch(data, ((s + AHEAD) // W * 24 + 22) * W, 1)
        ang = lanes(data, s, 24, 22, 1)[0]
        put_lanes(work, s + shift, _C, 0, sincos(ang * take(q, b * q.shape[1], body, s)))


@kernel
def _forward(begin, end, shift, first, tables, data, work, motion, mask, state, tau):
    """Slots begin … end, whose numbers lie `shift` slots up; parents count from slot `first`. Leaves go up again at once, unless other forces act on them."""
    body, parent, leaf = tables
    b, q, v, a, external = state
    base = b * q.shape[1]
    spare = (len(work) - 1) * W
    for s in range(begin, end, width(work)):
        if (s - begin) % _BLOCK == 0:
            turn(s, min(s + _BLOCK, end), shift, body, data, work, b, q)
        fetch(data, (s + AHEAD) * 24, 12)
        ahead = base + body[min(s + AHEAD, len(body) - 1)]
        fetch(q, ahead, 1)
        fetch(v, ahead, 1)
        fetch(a, ahead, 1)
        fetch(tau, ahead, 1)
        if body[s] >= 0:
            ang, lin = lanes(data, s, 24, 22, 2)
            sine, cosine = lanes(work, s + shift, _C, 0, 2)
            c = lanes(data, s, 24, 0, 22)
            E, r = across_joint(c[0:9], c[9:12], sine, cosine, lin * take(q, base, body, s))
            m = gather(motion, parent, s, first, mask, 12, 0, 12)
            vel, acc = joint_motion(E, r, ang, lin, take(v, base, body, s), take(a, base, body, s), m[0:6], m[6:12])
            put_lanes(motion, (s + shift) & mask, 12, 0, vel + acc)
            ends = leaf[s // W] and external.shape[0] == 0
            place = spare if ends else s + shift
            put_lanes(work, place, _C, 0, E + r + body_force(c[12:22], vel, acc))
            if ends:
                _up(s, place, first, body, parent, data, work, base, tau)


@kernel
def subtract(begin, end, shift, body, work, external):
    for s in range(begin, end, width(work)):
        for k in range(6):
            f = lanes(work, s + shift, _C, 12 + k, 1)[0]
            put_lanes(work, s + shift, _C, 12 + k, (f - take(external[k], 0, body, s),))


@kernel
def _up(s, place, first, body, parent, data, work, base, tau):
    x = lanes(work, place, _C, 0, 18)
    w = lanes(data, s, 24, 22, 2)
    give(tau, base, body, s, w[0] * x[14] + w[1] * x[17])
    scatter_add(work, parent, s, first, _C, 12, force_to_parent(x[0:9], x[9:12], x[12:18]))


@kernel
def _backward(begin, end, shift, first, tables, data, work, base, tau, ended):
    """… and up again, without leaves if these have ended already."""
    body, parent, leaf = tables
    for s in range(end - width(work), begin - 1, -width(work)):
        if body[s] >= 0 and not (ended and leaf[s // W]):
            _up(s, s + shift, first, body, parent, data, work, base, tau)


@kernel
def _walk(part, start, stop, spaces, down, upwards, tables, data, home_motion, up, state, tau):
    """Tasks start … stop down, up, or down and then up. `spaces` are those at home, or one a part for tasks that leave nothing behind, where
    velocities and accelerations of two successive levels are kept.
    """
    pack_start, entry_start, home_start, body, parent, leaf, source, hang_start, hang_entry, hang_slot = tables
    works, motions = spaces
    work, motion = works[part % len(works)], motions[part % len(motions)]
    passing = down and upwards
    mask = len(motion) * W - 1 if passing else -1
    b, external = state[0], state[4]
    ended = external.shape[0] == 0
    slots = (body, parent, leaf)
    for task in range(start, stop):
        begin, end, first = pack_start[task] * W, pack_start[task + 1] * W, 0 if passing else home_start[task]
        shift = (first + entry_start[task + 1] - entry_start[task]) * W - begin
        if down:
            _enter(task, entry_start, source, home_motion, work, motion, first)
            _forward(begin, end, shift, first * W, slots, data, work, motion, mask, state, tau)
            if not ended:
                subtract(begin, end, shift, body, work, external[b])
        if upwards:
            for h in range(hang_start[task], hang_start[task + 1]):
                e, s = hang_entry[h], hang_slot[h]
                for k in range(6):
                    work[s // W, 12 + k, s % W] += up[e // W, k, e % W]
            _backward(begin, end, shift, first * W, slots, data, work, b * tau.shape[1], tau, ended)
            _leave(task, entry_start, work, first, up)


@kernel
def _leave(task, entry_start, work, first, up):
    begin, end = entry_start[task] * W, entry_start[task + 1] * W
    for e in range(begin, end, width(work)):
        put_lanes(up, e, 6, 0, lanes(work, first * W + e - begin, _C, 12, 6))
