"""Inverse dynamics along heavy paths: velocities and accelerations by a blocked scan of (X, v, a), forces by one of (X, f). No inverses.

A segment's transform, velocity and acceleration from rest compose: (X, v, a) then (Y, w, b) is (YX, Yv + w, Ya + Yv × w + b). So each segment is
walked once for these, a scan over segments tells where each starts from, and a second walk goes down and, while its numbers are in
the cache, up again. A thread takes neighbouring groups, the last one first, so that forces arrive in time; only what crosses from one thread's
groups to another's is added afterwards.
"""

from __future__ import annotations

import itertools

import numpy as np

from rigidgrad.trees.compiled import kernel
from rigidgrad.trees.heavy_paths import HeavyPaths
from rigidgrad.trees.lanes import (
    W,
    filled,
    give,
    lane,
    lanes,
    numbers,
    put_lanes,
    put_numbers,
    put_segments,
    take,
    take_segments,
    with_lane,
)
from rigidgrad.trees.operations import add, body_force, compose, force_to_parent, jet_after, joint_motion, joint_transform
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan

# components of a segment: its own E, r, v, a 0-23; v, a that it starts from 24-35; force that comes late 36-41; force on what it hangs on 42-47
_S = 48
# of a pack in a thread's workspace: E 0-8, r 9-11, f 12-17
_L = 18
_EXTRA = 1.3  # a share that needs forces added later costs so much more


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
                    spread(inner, _aggregate, shares(t, start, cut, inner), *tables, segments, state)
                    _start(start, stop, t.source, t.goes_on, motion, segments)
                    spread(inner, _carry, shares(t, start, stop, inner), *tables, t.hang_start, motion, segments, state)
                for start, cut, stop in reversed(t.depths):
                    split = shares(t, start, stop, inner, _EXTRA)
                    spread(inner, _down_and_up, split, *tables, t.goes_on, cut, hangs, segments, local, state, tau)
                    late = [(x, min(y, cut)) for (x, y) in split[:-1] if x < cut and t.goes_on[y * W - 1]]
                    if late:
                        _bridge(np.array(late), t.goes_on, segments)
                        spread(inner, _add_late, late, *tables, segments, b, q, tau)
                base_force[b] = segments[t.base_segment // W, t.base_segment % W, 42:48]

    if inner > 1 or threads == 1 or states == 1:
        one(0, 0, states)
    else:
        spread(threads, one, parts(states, threads))


def shares(t: HeavyPaths, start: int, stop: int, pieces: int, extra: float = 1.0) -> list[tuple[int, int]]:
    """Groups start … stop shared out evenly by bodies, the last share `extra` times larger; all at once where there are few."""
    packs = int(t.group_start[stop] - t.group_start[start])
    if pieces == 1 or packs < 256:
        return [(start, stop)] if stop > start else []
    cuts = [int(t.group_start[start]) + int(packs * k / (pieces - 1 + extra)) for k in range(1, pieces)]
    edges = [start, *t.group_start.searchsorted(cuts).tolist(), stop]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


@kernel
def _world(motion, base):
    for k in range(12):
        for j in range(W):
            motion[0, k, j] = base[k]


@kernel
def _aggregate(part, start, stop, group_start, body, data, segments, state):
    """Transform, velocity and acceleration of each segment from rest."""
    b, q, v, a, _external = state
    n = q.shape[1]
    o = filled(q, 0.0)
    one = o + 1.0
    for g in range(start, stop):
        E, r = (one, o, o, o, one, o, o, o, one), (o, o, o)
        vel, acc = (o, o, o, o, o, o), (o, o, o, o, o, o)
        for p in range(group_start[g], group_start[g + 1]):
            c = lanes(data, p * 24 * W, 12)
            s = lanes(data, (p * 24 + 22) * W, 2)
            F, d = joint_transform(c[0:9], c[9:12], s[0], s[1], take(q, b * n, body, p * W))
            E, r = compose(E, r, F, d)
            vel, acc = joint_motion(F, d, s[0], s[1], take(v, b * n, body, p * W), take(a, b * n, body, p * W), vel, acc)
        put_segments(segments, g, _S, 0, E + r + vel + acc)


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
def _carry(part, start, stop, group_start, body, data, hang_start, motion, segments, state):
    """Velocities and accelerations of bodies that other paths hang on."""
    b, q, v, a, _external = state
    n = q.shape[1]
    for g in range(start, stop):
        if hang_start[g + 1] > hang_start[g]:
            vel, acc = take_segments(segments, g, _S, 24, 6), take_segments(segments, g, _S, 30, 6)
            for p in range(group_start[g], group_start[g + 1]):
                c = lanes(data, p * 24 * W, 12)
                s = lanes(data, (p * 24 + 22) * W, 2)
                E, r = joint_transform(c[0:9], c[9:12], s[0], s[1], take(q, b * n, body, p * W))
                vel, acc = joint_motion(E, r, s[0], s[1], take(v, b * n, body, p * W), take(a, b * n, body, p * W), vel, acc)
                put_lanes(motion, (p + 1) * 12 * W, vel + acc)


@kernel
def _forward(g, group_start, body, data, segments, work, state):
    b, q, v, a, external = state
    n = q.shape[1]
    vel, acc = take_segments(segments, g, _S, 24, 6), take_segments(segments, g, _S, 30, 6)
    for p in range(group_start[g], group_start[g + 1]):
        c = lanes(data, p * 24 * W, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], take(q, b * n, body, p * W))
        vel, acc = joint_motion(E, r, c[22], c[23], take(v, b * n, body, p * W), take(a, b * n, body, p * W), vel, acc)
        f = body_force(c[12:22], vel, acc)
        if external.shape[0] > 0:
            x = external[b]
            for k in range(6):
                f = (f[1], f[2], f[3], f[4], f[5], f[0] - take(x[k], 0, body, p * W))
        put_lanes(work, (p - group_start[g]) * _L * W, E + r + f)


@kernel
def _down_and_up(part, start, stop, group_start, body, data, goes_on, cut, hangs, segments, local, state, tau):
    hang_start, hang_segment, hang_slot = hangs
    work = local[part]
    o = filled(tau, 0.0)
    for g in range(stop - 1, start - 1, -1):
        _forward(g, group_start, body, data, segments, work, state)
        first, count = group_start[g], group_start[g + 1] - group_start[g]
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h] - (first + 1) * W
            for k in range(6):
                work[s // W, 12 + k, s % W] += segments[e // W, e % W, 42 + k]
        f = (o, o, o, o, o, o)
        if g < cut:
            f = _from_next(g, stop, count, goes_on, segments, work)
        _backward(first, count, body, data, segments, g, work, f, state[0], tau)


@kernel
def _from_next(g, stop, count, goes_on, segments, work):
    """The force that each segment of the group gets from the next one; none comes from beyond `stop` yet."""
    o = filled(work, 0.0)
    f = (o, o, o, o, o, o)
    for p in range(count - 1, -1, -1):
        x = lanes(work, p * _L * W, 18)
        f = force_to_parent(x[0:9], x[9:12], add(f, x[12:18]))
    own = f
    f = (o, o, o, o, o, o)
    for k in range(W):
        j = W - 1 - k
        s = g * W + j
        if goes_on[s] and s + 1 < stop * W:
            y = numbers(segments, (s + 1) * _S + 42, 6)
            f = (
                with_lane(f[0], j, y[0]),
                with_lane(f[1], j, y[1]),
                with_lane(f[2], j, y[2]),
                with_lane(f[3], j, y[3]),
                with_lane(f[4], j, y[4]),
                with_lane(f[5], j, y[5]),
            )
            x = numbers(segments, s * _S, 12)
            z = force_to_parent(x[0:9], x[9:12], y)
            total = (
                z[0] + lane(own[0], j),
                z[1] + lane(own[1], j),
                z[2] + lane(own[2], j),
                z[3] + lane(own[3], j),
                z[4] + lane(own[4], j),
                z[5] + lane(own[5], j),
            )
        else:
            total = (lane(own[0], j), lane(own[1], j), lane(own[2], j), lane(own[3], j), lane(own[4], j), lane(own[5], j))
        put_numbers(segments, s * _S + 42, total)
    return f


@kernel
def _backward(first, count, body, data, segments, g, work, f, b, tau):
    n = tau.shape[1]
    for k in range(count - 1, -1, -1):
        x = lanes(work, k * _L * W, 18)
        s = lanes(data, ((first + k) * 24 + 22) * W, 2)
        f = add(f, x[12:18])
        give(tau, b * n, body, (first + k) * W, s[0] * f[2] + s[1] * f[5])
        f = force_to_parent(x[0:9], x[9:12], f)
    put_segments(segments, g, _S, 42, f)


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
def _add_late(part, start, stop, group_start, body, data, segments, b, q, tau):
    n = tau.shape[1]
    for g in range(start, stop):
        if np.any(segments[g, :, 36:42]):
            f = take_segments(segments, g, _S, 36, 6)
            for p in range(group_start[g + 1] - 1, group_start[g] - 1, -1):
                c = lanes(data, p * 24 * W, 12)
                s = lanes(data, (p * 24 + 22) * W, 2)
                old = take(tau, b * n, body, p * W)
                give(tau, b * n, body, p * W, old + (s[0] * f[2] + s[1] * f[5]))
                E, r = joint_transform(c[0:9], c[9:12], s[0], s[1], take(q, b * n, body, p * W))
                f = force_to_parent(E, r, f)
