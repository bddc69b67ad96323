"""Inverse dynamics along heavy paths: velocities and accelerations by a blocked scan of (X, v, a), forces by one of (X, f). No inverses.

A segment's transform, velocity and acceleration from rest compose: (X, v, a) then (Y, w, b) is (YX, Yv + w, Ya + Yv × w + b). So each segment is
walked once for these, a scan over segments tells where each starts from, and a second walk goes down and, while its numbers are in
the cache, up again. A thread takes neighbouring groups, the last one first, so that forces arrive in time; only what crosses from one thread's
groups to another's is added afterwards.
"""

from __future__ import annotations

import itertools

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import across_joint, add, body_force, compose, force_to_parent, jet_after, joint_motion
from rigidgrad.trees.heavy_paths import HeavyPaths
from rigidgrad.trees.lanes import W, filled, joint_transform, width
from rigidgrad.trees.packs import fetch, give, lanes, numbers, put_lanes, put_numbers, put_rows, take, take_rows
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan
from rigidgrad.trees.rnea_levels import AHEAD, subtract, turn

# components of a segment: its own E, r, v, a 0-23; v, a that it starts from 24-35; force from the next one, or late, 36-41; force on what it hangs on 42-47
_S = 48
# of a pack in a thread's workspace: E 0-8, r 9-11, f 12-17
_L = 18


def rnea(plan: Plan, q, v, a, base, external, tau, base_force, threads: int) -> None:
    """As `rnea_levels.rnea`."""
    t = plan.heavy_paths
    dtype = tau.dtype
    data = plan.packed("heavy_paths", dtype)
    groups = len(t.group_start) - 1
    tables = (t.group_start, t.body, data)
    longest = int(np.diff(t.group_start).max())
    hangs = (t.hang_start, t.hang_segment, t.hang_slot)
    states = len(tau)
    inner = threads if states < threads else 1

    def one(index: int, first: int, last: int) -> None:
        with (
            plan.workspace((1 + int(t.group_start[-1]), 12, W), dtype) as motion,
            plan.workspace((groups, W, _S), dtype) as segments,
            plan.workspace((inner, longest, _L, W), dtype) as local,
        ):
            for b in range(first, last):
                state = (b, q, v, a, external)
                _world(motion, base[b])
                for start, cut, stop in t.depths:
                    spread(inner, _aggregate, shares(t, start, cut, inner), *tables, segments, local, state)
                    _start(start, stop, t.source, t.goes_on, motion, segments)
                    spread(inner, _carry, shares(t, start, stop, inner), *tables, t.hang_start, motion, segments, local, state)
                for start, cut, stop in reversed(t.depths):
                    split = shares(t, start, stop, inner)
                    spread(inner, _down_and_up, split, *tables, t.goes_on, cut, hangs, segments, local, state, tau)
                    late = [(x, min(y, cut)) for (x, y) in split[:-1] if x < cut and t.goes_on[y * W - 1]]
                    if late:
                        _bridge(np.array(late), t.goes_on, segments)
                        pieces = [(x + i, x + j) for x, y in late for i, j in parts(y - x, inner)]
                        goes_late = segments[:, :, 36:42].any(axis=(1, 2))
                        spread(inner, _add_late, pieces, *tables, segments, goes_late, b, q, tau)
                base_force[b] = segments[t.base_segment // W, t.base_segment % W, 42:48]

    if inner > 1 or threads == 1 or states == 1:
        one(0, 0, states)
    else:
        spread(threads, one, parts(states, threads))


def shares(t: HeavyPaths, start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    """Groups start … stop shared out evenly by bodies; all at once where there are few."""
    packs = int(t.group_start[stop] - t.group_start[start])
    if pieces == 1 or packs < 2048:
        return [(start, stop)] if stop > start else []
    cuts = [int(t.group_start[start]) + packs * k // pieces for k in range(1, pieces)]
    edges = [start, *t.group_start.searchsorted(cuts).tolist(), stop]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


@kernel
def _world(motion, base):
    for k in range(12):
        for j in range(W):
            motion[0, k, j] = base[k]


@kernel
def _transform(g, e, p, group_start, data, work, q, v, a, body, base):
    """Of the bodies in pack p of a group, for the lanes from segment e on: their slots, transforms and what the joints do."""
    s = p * W + e % W
    if e % W == 0:
        fetch(data, (s + AHEAD) * 24, 24)
    c = lanes(data, s, 24, 0, 12)
    ang, lin = lanes(data, s, 24, 22, 2)
    sine, cosine = lanes(work, s - group_start[g] * W, _L, 0, 2)
    E, r = across_joint(c[0:9], c[9:12], sine, cosine, lin * take(q, base, body, s))
    return s, E, r, (ang, lin, take(v, base, body, s), take(a, base, body, s))


@kernel
def _aggregate(part, start, stop, group_start, body, data, segments, local, state):
    """Transform, velocity and acceleration of each segment from rest."""
    b, q, v, a, _external = state
    base = b * q.shape[1]
    work = local[part]
    o = filled(q, 0.0)
    one = o + 1.0
    for g in range(start, stop):
        turn(group_start[g] * W, group_start[g + 1] * W, -group_start[g] * W, body, data, work, b, q)
        for e in range(g * W, g * W + W, width(q)):
            E, r = (one, o, o, o, one, o, o, o, one), (o, o, o)
            vel, acc = (o, o, o, o, o, o), (o, o, o, o, o, o)
            for p in range(group_start[g], group_start[g + 1]):
                _, F, d, joint = _transform(g, e, p, group_start, data, work, q, v, a, body, base)
                E, r = compose(E, r, F, d)
                vel, acc = joint_motion(F, d, joint[0], joint[1], joint[2], joint[3], vel, acc)
            put_rows(segments, e, _S, 0, E + r + vel + acc)


@kernel
def _start(start, stop, source, goes_on, motion, segments):
    """What each segment starts from: the body that its path hangs on, or the end of the segment before."""
    goes = False
    for s in range(start * W, stop * W):
        g, j = s // W, s % W
        if goes:
            x = numbers(segments, (s - 1) * _S, 36)
            vel, acc = jet_after(x[0:9], x[9:12], x[12:18], x[18:24], x[24:30], x[30:36])
            put_numbers(segments, s * _S + 24, vel + acc)
        else:
            p = source[s]
            for k in range(12):
                segments[g, j, 24 + k] = motion[p // W, k, p % W]
        goes = goes_on[s]


@kernel
def _carry(part, start, stop, group_start, body, data, hang_start, motion, segments, local, state):
    """Velocities and accelerations of bodies that other paths hang on."""
    b, q, v, a, _external = state
    base = b * q.shape[1]
    work = local[part]
    for g in range(start, stop):
        if hang_start[g + 1] > hang_start[g]:
            turn(group_start[g] * W, group_start[g + 1] * W, -group_start[g] * W, body, data, work, b, q)
            for e in range(g * W, g * W + W, width(q)):
                vel, acc = take_rows(segments, e, _S, 24, 6), take_rows(segments, e, _S, 30, 6)
                for p in range(group_start[g], group_start[g + 1]):
                    s, E, r, joint = _transform(g, e, p, group_start, data, work, q, v, a, body, base)
                    vel, acc = joint_motion(E, r, joint[0], joint[1], joint[2], joint[3], vel, acc)
                    put_lanes(motion, s + W, 12, 0, vel + acc)


@kernel
def _forward(g, group_start, body, data, segments, work, state):
    b, q, v, a, external = state
    base, first = b * q.shape[1], group_start[g] * W
    turn(first, group_start[g + 1] * W, -first, body, data, work, b, q)
    for e in range(g * W, g * W + W, width(q)):
        vel, acc = take_rows(segments, e, _S, 24, 6), take_rows(segments, e, _S, 30, 6)
        for p in range(group_start[g], group_start[g + 1]):
            s, E, r, joint = _transform(g, e, p, group_start, data, work, q, v, a, body, base)
            vel, acc = joint_motion(E, r, joint[0], joint[1], joint[2], joint[3], vel, acc)
            put_lanes(work, s - first, _L, 0, E + r + body_force(lanes(data, s, 24, 12, 10), vel, acc))
    if external.shape[0] > 0:
        subtract(first, group_start[g + 1] * W, -first, body, work, external[b])


@kernel
def _down_and_up(part, start, stop, group_start, body, data, goes_on, cut, hangs, segments, local, state, tau):
    hang_start, hang_segment, hang_slot = hangs
    work = local[part]
    for g in range(stop - 1, start - 1, -1):
        _forward(g, group_start, body, data, segments, work, state)
        first, count = group_start[g], group_start[g + 1] - group_start[g]
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h] - (first + 1) * W
            for k in range(6):
                work[s // W, 12 + k, s % W] += segments[e // W, e % W, 42 + k]
        if g < cut:
            _from_next(g, stop, count, goes_on, segments, work)
        _backward(first, count, body, data, segments, g, g < cut, work, state[0], tau)


@kernel
def _from_next(g, stop, count, goes_on, segments, work):
    """The force that each segment of the group gets from the next one; none comes from beyond `stop` yet."""
    o = filled(work, 0.0)
    for e in range(g * W, g * W + W, width(work)):
        f = (o, o, o, o, o, o)
        for k in range(count - 1, -1, -1):
            x = lanes(work, k * W + e % W, _L, 0, 18)
            f = force_to_parent(x[0:9], x[9:12], add(f, x[12:18]))
        put_rows(segments, e, _S, 42, f)
    z = work.dtype.type(0)
    for s in range(g * W + W - 1, g * W - 1, -1):
        y = (z, z, z, z, z, z)
        if goes_on[s] and s + 1 < stop * W:
            y = numbers(segments, (s + 1) * _S + 42, 6)
            x = numbers(segments, s * _S, 12)
            put_numbers(segments, s * _S + 42, add(numbers(segments, s * _S + 42, 6), force_to_parent(x[0:9], x[9:12], y)))
        put_numbers(segments, s * _S + 36, y)


@kernel
def _backward(first, count, body, data, segments, g, goes, work, b, tau):
    n = tau.shape[1]
    o = filled(work, 0.0)
    for e in range(g * W, g * W + W, width(work)):
        f = take_rows(segments, e, _S, 36, 6) if goes else (o, o, o, o, o, o)
        for k in range(count - 1, -1, -1):
            s = k * W + e % W
            x = lanes(work, s, _L, 0, 18)
            w = lanes(data, first * W + s, 24, 22, 2)
            f = add(f, x[12:18])
            give(tau, b * n, body, first * W + s, w[0] * f[2] + w[1] * f[5])
            f = force_to_parent(x[0:9], x[9:12], f)
        put_rows(segments, e, _S, 42, f)


@kernel
def _bridge(late, goes_on, segments):
    """What crosses from one share to the share before it, for every segment of the path that crosses; 0 for the others."""
    for k in range(len(late) - 1, -1, -1):
        start, stop = late[k]
        f = numbers(segments, stop * W * _S + 42, 6)
        open_ = True
        for s in range(stop * W - 1, start * W - 1, -1):
            open_ = open_ and goes_on[s]
            if open_:
                put_numbers(segments, s * _S + 36, f)
                x = numbers(segments, s * _S, 12)
                f = force_to_parent(x[0:9], x[9:12], f)
                put_numbers(segments, s * _S + 42, add(numbers(segments, s * _S + 42, 6), f))
            else:
                for j in range(6):
                    segments[s // W, s % W, 36 + j] = 0


@kernel
def _add_late(part, start, stop, group_start, body, data, segments, goes_late, b, q, tau):
    n = tau.shape[1]
    for e in range(start * W, stop * W, width(q)):
        g = e // W
        if goes_late[g]:
            f = take_rows(segments, e, _S, 36, 6)
            for p in range(group_start[g + 1] - 1, group_start[g] - 1, -1):
                s = p * W + e % W
                if e % W == 0:
                    fetch(data, (s - AHEAD) * 24, 24)
                w = lanes(data, s, 24, 22, 2)
                give(tau, b * n, body, s, take(tau, b * n, body, s) + (w[0] * f[2] + w[1] * f[5]))
                c = lanes(data, s, 24, 0, 12)
                E, r = joint_transform(c[0:9], c[9:12], w[0], w[1], take(q, b * n, body, s))
                f = force_to_parent(E, r, f)
