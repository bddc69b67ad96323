"""Inverse dynamics along heavy paths: velocities and accelerations by a blocked scan of (X, v, a),
forces by one of (X, f). No inverses.

A segment's transform, velocity and acceleration from rest compose: (X, v, a) then (Y, w, b) is (YX,
Yv + w, Ya + Yv × w + b). So each segment is walked once for these, a scan over segments tells where
each starts from, and a second walk goes down and, while its numbers are in the cache, up again. A
thread takes neighbouring groups, the last one first, so that forces arrive in time; only what
crosses from one thread's groups to another's is added afterwards.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import Flat, add, force_to_parent, jet_after
from rigidgrad.trees.heavy_paths import (
    inwards,
    nothing,
    outwards,
    shares,
)
from rigidgrad.trees.lanes import W, filled, joint_transform, width
from rigidgrad.trees.operators import (
    INVERSE,
    Place,
    State,
    bear,
    drive,
    extend,
    move,
    of_forces,
    pass_on,
    still,
    turn,
)
from rigidgrad.trees.packs import (
    fetch,
    give,
    lanes,
    numbers,
    put_numbers,
    put_rows,
    take,
    take_rows,
)
from rigidgrad.trees.parallel import parts, spread
from rigidgrad.trees.plan import Plan, world

# slots: bodies' numbers are asked for so long before their turn, as memory is slow and its own
# foresight ends with a page
AHEAD = 128
# components of a segment: its own E, r, v, a 0-23; v, a that it starts from 24-35; force from the
# next one, or late, 36-41; force on what it hangs on 42-47
_S = 48


def rnea(
    plan: Plan,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    tau: np.ndarray,
    base_force: np.ndarray,
    threads: int,
) -> None:
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
            plan.workspace((inner, longest, INVERSE, W), dtype) as local,
        ):
            for b in range(first, last):
                rest = (motion, (b, q, v), (a, external, tau), segments)
                tables = (t.group_start, t.body, data, local, rest)
                aggregate, carry = _aggregate.over(*tables), _carry.over(*tables, t.hang_start)
                world(motion, base[b])
                for start, cut, stop in t.depths:
                    spread(inner, aggregate, shares(t, start, cut, inner))
                    _start(start, stop, t.source, t.goes_on, motion, segments)
                    spread(inner, carry, shares(t, start, stop, inner))
                for start, cut, stop in reversed(t.depths):
                    split = shares(t, start, stop, inner)
                    spread(inner, _down_and_up, split, *tables, t.goes_on, cut, hangs)
                    late = [
                        (x, min(y, cut))
                        for (x, y) in split[:-1]
                        if x < cut and t.goes_on[y * W - 1]
                    ]
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


# --- operators; the state goes on with segments


@kernel
def _register(state: State) -> int:
    return width(state[2])


@kernel
def _ahead(s: int, state: State) -> None:
    if s % W == 0:
        fetch(state[1], (s + AHEAD) * 24, 24)


@kernel
def _behind(s: int, state: State) -> None:
    if s % W == 0:
        fetch(state[1], (s - AHEAD) * 24, 24)


@kernel
def _at_rest(e: int, state: State) -> Flat:
    o = filled(state[2], 0.0)
    one = o + 1.0
    return (one, o, o, o, one, o, o, o, one) + (o,) * 15


@kernel
def _put_motion(carried: Flat, e: int, state: State) -> None:
    put_rows(state[6], e, _S, 0, carried)


@kernel
def _start_motion(e: int, state: State) -> Flat:
    return take_rows(state[6], e, _S, 24, 12)


@kernel
def _no_force(e: int, state: State) -> Flat:
    return (filled(state[2], 0.0),) * 6


@kernel
def _late_force(e: int, state: State) -> Flat:
    return take_rows(state[6], e, _S, 36, 6)


@kernel
def _nowhere(state: State) -> tuple[()]:
    return ()


@kernel
def _more_torque(f: Flat, place: Place, state: State) -> Flat:
    """Of a force that arrives when the workspace has other numbers: the joint is turned again."""
    body, data, _work, _motion, (b, q, _v), (_a, _external, tau) = state[0:6]
    s = place[0]
    base = b * q.shape[1]
    w = lanes(data, s, 24, 22, 2)
    give(tau, base, body, s, take(tau, base, body, s) + (w[0] * f[2] + w[1] * f[5]))
    c = lanes(data, s, 24, 0, 12)
    E, r = joint_transform(c[0:9], c[9:12], w[0], w[1], take(q, base, body, s))
    return force_to_parent(E, r, f)


@kernel
def _put_force(f: Flat, e: int, state: State) -> None:
    put_rows(state[6], e, _S, 42, f)


# transform, velocity and acceleration of a segment that starts from rest
FROM_REST = (_register, _at_rest, turn, _ahead, extend, _put_motion)
# velocities and accelerations alone; with forces and transforms, in the workspace
MOTION = (_register, _start_motion, turn, _ahead, move, nothing)
BODY_FORCE = (_register, _start_motion, turn, _ahead, bear, nothing)
# the force on what a segment hangs on, from its own bodies
FORCE = (_register, _no_force, of_forces, still, pass_on, _put_force)
# with torques of the joints: of a whole path, and of a segment from what it gets from the next one
TORQUE = (_register, _no_force, of_forces, still, drive, _put_force)
TORQUE_GOING_ON = (_register, _late_force, of_forces, still, drive, _put_force)
# of a force that arrives when the others are done
LATE_TORQUE = (_register, _late_force, _nowhere, _behind, _more_torque, nothing)


# --- walks


@kernel
def _aggregate(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    data: np.ndarray,
    local: np.ndarray,
    rest: State,
) -> None:
    """Transform, velocity and acceleration of each segment from rest."""
    for g in range(start, stop):
        own = (body, data, local[part]) + rest
        outwards(part, g, g + 1, FROM_REST, group_start, -group_start[g] * W, (), own)


@kernel
def _start(
    start: int,
    stop: int,
    source: np.ndarray,
    goes_on: np.ndarray,
    motion: np.ndarray,
    segments: np.ndarray,
) -> None:
    """What each segment starts from: the body that its path hangs on, or the end of the segment
    before.
    """
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
def _carry(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    data: np.ndarray,
    local: np.ndarray,
    rest: State,
    hang_start: np.ndarray,
) -> None:
    """Velocities and accelerations of bodies that other paths hang on."""
    for g in range(start, stop):
        if hang_start[g + 1] > hang_start[g]:
            own = (body, data, local[part]) + rest
            outwards(part, g, g + 1, MOTION, group_start, -group_start[g] * W, (rest[0],), own)


@kernel
def _down_and_up(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    data: np.ndarray,
    local: np.ndarray,
    rest: State,
    goes_on: np.ndarray,
    cut: int,
    hangs: tuple[np.ndarray, ...],
) -> None:
    hang_start, hang_segment, hang_slot = hangs
    work, segments = local[part], rest[3]
    for g in range(stop - 1, start - 1, -1):
        shift = -group_start[g] * W
        own = (body, data, work) + rest
        outwards(part, g, g + 1, BODY_FORCE, group_start, shift, (), own)
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h] + shift - W
            for k in range(6):
                work[s // W, 12 + k, s % W] += segments[e // W, e % W, 42 + k]
        if g < cut:
            inwards(part, g, g + 1, FORCE, group_start, shift, own)
            _from_next(g, stop, goes_on, segments)
            inwards(part, g, g + 1, TORQUE_GOING_ON, group_start, shift, own)
        else:
            inwards(part, g, g + 1, TORQUE, group_start, shift, own)


@kernel
def _from_next(g: int, stop: int, goes_on: np.ndarray, segments: np.ndarray) -> None:
    """The force that each segment of the group gets from the next one; none comes from beyond
    `stop` yet.
    """
    z = segments.dtype.type(0)
    for s in range(g * W + W - 1, g * W - 1, -1):
        y: Flat = (z, z, z, z, z, z)
        if goes_on[s] and s + 1 < stop * W:
            y = numbers(segments, (s + 1) * _S + 42, 6)
            x = numbers(segments, s * _S, 12)
            put_numbers(
                segments,
                s * _S + 42,
                add(numbers(segments, s * _S + 42, 6), force_to_parent(x[0:9], x[9:12], y)),
            )
        put_numbers(segments, s * _S + 36, y)


@kernel
def _bridge(late: np.ndarray, goes_on: np.ndarray, segments: np.ndarray) -> None:
    """What crosses from one share to the share before it, for every segment of the path that
    crosses; 0 for the others.
    """
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
def _add_late(
    part: int,
    start: int,
    stop: int,
    group_start: np.ndarray,
    body: np.ndarray,
    data: np.ndarray,
    local: np.ndarray,
    rest: State,
    late: np.ndarray,
) -> None:
    for g in range(start, stop):
        if late[g]:
            own = (body, data, local[part % len(local)]) + rest
            inwards(part, g, g + 1, LATE_TORQUE, group_start, 0, own)
