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
from rigidgrad.trees.heavy_paths import HeavyPaths, inwards, nothing, outwards
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
                tables = (t.group_start, t.body, data, segments, motion, local, state, tau)
                aggregate, carry = _aggregate.over(*tables), _carry.over(*tables, t.hang_start)
                _world(motion, base[b])
                for start, cut, stop in t.depths:
                    spread(inner, aggregate, shares(t, start, cut, inner))
                    _start(start, stop, t.source, t.goes_on, motion, segments)
                    spread(inner, carry, shares(t, start, stop, inner))
                for start, cut, stop in reversed(t.depths):
                    split = shares(t, start, stop, inner)
                    spread(inner, _down_and_up, split, *tables, t.goes_on, cut, hangs)
                    late = [(x, min(y, cut)) for (x, y) in split[:-1] if x < cut and t.goes_on[y * W - 1]]
                    if late:
                        _bridge(np.array(late), t.goes_on, segments)
                        pieces = [(x + i, x + j) for x, y in late for i, j in parts(y - x, inner)]
                        arrives = segments[:, :, 36:42].any(axis=(1, 2))
                        spread(inner, _add_late, pieces, *tables, arrives)
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


# --- operators; their state: bodies, their numbers, a thread's workspace and the first slot in it, segments, motions, (b, q, v, a, external), tau


@kernel
def _register(state):
    return width(state[2])


@kernel
def _transform(s, state):
    """Of the bodies in slots from s on: their transforms and what the joints do."""
    body, data, work, first, _segments, _motion, (b, q, v, a, _external), _tau = state
    base = b * q.shape[1]
    if s % W == 0:
        fetch(data, (s + AHEAD) * 24, 24)
    c = lanes(data, s, 24, 0, 12)
    ang, lin = lanes(data, s, 24, 22, 2)
    sine, cosine = lanes(work, s - first, _L, 0, 2)
    E, r = across_joint(c[0:9], c[9:12], sine, cosine, lin * take(q, base, body, s))
    return E, r, (ang, lin, take(v, base, body, s), take(a, base, body, s))


@kernel
def _at_rest(e, state):
    o = filled(state[2], 0.0)
    one = o + 1.0
    return (one, o, o, o, one, o, o, o, one), (o, o, o), (o, o, o, o, o, o), (o, o, o, o, o, o)


@kernel
def _move(carried, s, state):
    E, r, vel, acc = carried
    F, d, joint = _transform(s, state)
    G, x = compose(E, r, F, d)
    after = joint_motion(F, d, joint[0], joint[1], joint[2], joint[3], vel, acc)
    return G, x, after[0], after[1]


@kernel
def _put_motion(carried, e, state):
    put_rows(state[4], e, _S, 0, carried[0] + carried[1] + carried[2] + carried[3])


FROM_REST = (_register, _at_rest, _move, _put_motion)  # transform, velocity and acceleration of a segment that starts from rest


@kernel
def _start_motion(e, state):
    return take_rows(state[4], e, _S, 24, 6), take_rows(state[4], e, _S, 30, 6)


@kernel
def _motions(carried, s, state):
    E, r, joint = _transform(s, state)
    after = joint_motion(E, r, joint[0], joint[1], joint[2], joint[3], carried[0], carried[1])
    put_lanes(state[5], s + W, 12, 0, after[0] + after[1])
    return after


MOTION = (_register, _start_motion, _motions, nothing)  # kept for other paths


@kernel
def _forces(carried, s, state):
    E, r, joint = _transform(s, state)
    vel, acc = joint_motion(E, r, joint[0], joint[1], joint[2], joint[3], carried[0], carried[1])
    put_lanes(state[2], s - state[3], _L, 0, E + r + body_force(lanes(state[1], s, 24, 12, 10), vel, acc))
    return vel, acc


BODY_FORCE = (_register, _start_motion, _forces, nothing)  # with transforms, in the workspace


@kernel
def _no_force(e, state):
    o = filled(state[2], 0.0)
    return o, o, o, o, o, o


@kernel
def _late_force(e, state):
    return take_rows(state[4], e, _S, 36, 6)


@kernel
def _collected(f, s, state):
    x = lanes(state[2], s - state[3], _L, 0, 18)
    return force_to_parent(x[0:9], x[9:12], add(f, x[12:18]))


@kernel
def _torques(f, s, state):
    body, data, work, first, _segments, _motion, (b, _q, _v, _a, _external), tau = state
    x = lanes(work, s - first, _L, 0, 18)
    w = lanes(data, s, 24, 22, 2)
    own = add(f, x[12:18])
    give(tau, b * tau.shape[1], body, s, w[0] * own[2] + w[1] * own[5])
    return force_to_parent(x[0:9], x[9:12], own)


@kernel
def _more_torque(f, s, state):
    body, data, _work, _first, _segments, _motion, (b, q, _v, _a, _external), tau = state
    base = b * q.shape[1]
    if s % W == 0:
        fetch(data, (s - AHEAD) * 24, 24)
    w = lanes(data, s, 24, 22, 2)
    give(tau, base, body, s, take(tau, base, body, s) + (w[0] * f[2] + w[1] * f[5]))
    c = lanes(data, s, 24, 0, 12)
    E, r = joint_transform(c[0:9], c[9:12], w[0], w[1], take(q, base, body, s))
    return force_to_parent(E, r, f)


@kernel
def _put_force(f, e, state):
    put_rows(state[4], e, _S, 42, f)


FORCE = (_register, _no_force, _collected, _put_force)  # on what a segment hangs on, from its own bodies
TORQUE = (_register, _no_force, _torques, _put_force)  # of the joints, of a whole path
TORQUE_GOING_ON = (_register, _late_force, _torques, _put_force)  # … of a segment, from what it gets from the next one
LATE_TORQUE = (_register, _late_force, _more_torque, nothing)  # of a force that arrives when the others are done


# --- walks


@kernel
def _aggregate(part, start, stop, group_start, body, data, segments, motion, local, state, tau):
    """Transform, velocity and acceleration of each segment from rest."""
    for g in range(start, stop):
        own = (body, data, local[part], group_start[g] * W, segments, motion, state, tau)
        turn(group_start[g] * W, group_start[g + 1] * W, -group_start[g] * W, body, data, local[part], state[0], state[1])
        outwards(part, g, g + 1, FROM_REST, group_start, own)


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
def _carry(part, start, stop, group_start, body, data, segments, motion, local, state, tau, hang_start):
    """Velocities and accelerations of bodies that other paths hang on."""
    for g in range(start, stop):
        if hang_start[g + 1] > hang_start[g]:
            own = (body, data, local[part], group_start[g] * W, segments, motion, state, tau)
            turn(group_start[g] * W, group_start[g + 1] * W, -group_start[g] * W, body, data, local[part], state[0], state[1])
            outwards(part, g, g + 1, MOTION, group_start, own)


@kernel
def _down_and_up(part, start, stop, group_start, body, data, segments, motion, local, state, tau, goes_on, cut, hangs):
    hang_start, hang_segment, hang_slot = hangs
    work = local[part]
    external = state[4]
    for g in range(stop - 1, start - 1, -1):
        first, last = group_start[g] * W, group_start[g + 1] * W
        own = (body, data, work, first, segments, motion, state, tau)
        turn(first, last, -first, body, data, work, state[0], state[1])
        outwards(part, g, g + 1, BODY_FORCE, group_start, own)
        if external.shape[0] > 0:
            subtract(first, last, -first, body, work, external[state[0]])
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h] - first - W
            for k in range(6):
                work[s // W, 12 + k, s % W] += segments[e // W, e % W, 42 + k]
        if g < cut:
            inwards(part, g, g + 1, FORCE, group_start, own)
            _from_next(g, stop, goes_on, segments)
            inwards(part, g, g + 1, TORQUE_GOING_ON, group_start, own)
        else:
            inwards(part, g, g + 1, TORQUE, group_start, own)


@kernel
def _from_next(g, stop, goes_on, segments):
    """The force that each segment of the group gets from the next one; none comes from beyond `stop` yet."""
    z = segments.dtype.type(0)
    for s in range(g * W + W - 1, g * W - 1, -1):
        y = (z, z, z, z, z, z)
        if goes_on[s] and s + 1 < stop * W:
            y = numbers(segments, (s + 1) * _S + 42, 6)
            x = numbers(segments, s * _S, 12)
            put_numbers(segments, s * _S + 42, add(numbers(segments, s * _S + 42, 6), force_to_parent(x[0:9], x[9:12], y)))
        put_numbers(segments, s * _S + 36, y)


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
def _add_late(part, start, stop, group_start, body, data, segments, motion, local, state, tau, late):
    for g in range(start, stop):
        if late[g]:
            inwards(part, g, g + 1, LATE_TORQUE, group_start, (body, data, local[part % len(local)], 0, segments, motion, state, tau))
