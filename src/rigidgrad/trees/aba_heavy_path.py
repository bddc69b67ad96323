"""Forward dynamics along heavy paths: segments as two-handled bodies, joined by the Redheffer star
product (after Featherstone 1999).

A segment whose tail is free answers the acceleration a of what it hangs on with the force J a + e,
its tail accelerating with A a + b; a force φ from the tail on changes the tail's acceleration by -C
φ, and the force at the head by Aᵀ φ. Prepending a body is a step of the articulated-body algorithm,
and changes A, b and C by rank one; joining two segments solves a 6x6 system.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import Flat, add, motion_to_child, plus
from rigidgrad.trees.articulated import Rows, prepended, rank_one, tail_step
from rigidgrad.trees.heavy_paths import inwards, nothing, outwards, shares
from rigidgrad.trees.lanes import W, filled_pack
from rigidgrad.trees.operators import (
    FORWARD,
    Place,
    State,
    accelerate,
    articulate,
    eliminated,
    extend_velocity,
    of_inertias,
    ready,
    still,
    turn,
    weigh,
)
from rigidgrad.trees.packs import lanes, numbers, put_numbers, put_rows, take_rows
from rigidgrad.trees.parallel import spread
from rigidgrad.trees.plan import packed_weights, world
from rigidgrad.trees.states import Settle
from rigidgrad.trees.tree import Tree

# of a segment whose tail is free: J and e, the rows of A, b, C
Handles = tuple[Flat, Rows, Flat, Flat]

# components of a segment: E, r with v from rest 0-17; v that it starts from 18-23; J, e on what it
# hangs on 24-50; A 51-86, b 87-92, C 93-113; J, e from the next segment 114-140; a that it starts
# from 141-146; closed-loop A, b 147-188
_S = 189


def aba(
    tree: Tree,
    q: np.ndarray,
    v: np.ndarray,
    tau: np.ndarray,
    armature: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    settle: Settle,
    out: np.ndarray,
    threads: int,
) -> None:
    """As `aba_sequential.aba`."""
    t, dtype = tree.plan.heavy_paths, q.dtype
    data, weights = tree.plan.packed("heavy_paths", dtype), packed_weights(armature, t.body)
    packs, root = int(t.group_start[-1]), t.base_segment
    with (
        tree.plan.workspace((1 + packs, FORWARD, W), dtype) as work,
        tree.plan.workspace((1 + packs, 6, W), dtype) as motion,
        tree.plan.workspace((len(t.source), _S), dtype) as segments,
    ):
        for b in range(len(q)):
            rest = ((b, q, v), (tau, weights, external, out), segments)
            state = (t.group_start, (t.body, data, work, motion, *rest))
            ends = (t.source, t.goes_on, motion, segments)
            hangs = (t.hang_start, t.hang_segment, t.hang_slot, work, segments)
            from_rest, velocity, handles, articulated, acceleration = (
                f.over(*state)
                for f in (_from_rest, _velocity, _handles, _articulated, _acceleration)
            )
            velocities, accelerations = (
                _start_velocities.over(*ends),
                _start_accelerations.over(*ends),
            )
            collect, join = _collect.over(*hangs), _join.over(t.goes_on, segments)
            world(motion, base[b, :6])
            spread(threads, _turned, shares(t, 0, len(t.group_start) - 1, threads), *state)
            for start, cut, stop in t.depths:
                spread(threads, from_rest, shares(t, start, cut, threads))
                velocities(0, start, stop)
                spread(threads, velocity, shares(t, start, stop, threads))
            for start, cut, stop in reversed(t.depths):
                spread(threads, collect, shares(t, start, stop, threads))
                spread(threads, handles, shares(t, start, cut, threads))
                join(cut, start, stop)
                spread(threads, articulated, shares(t, start, stop, threads))
            world(motion, settle(b, segments[root, 24:45].copy(), segments[root, 45:51].copy()))
            for start, _, stop in t.depths:
                accelerations(0, start, stop)
                spread(threads, acceleration, shares(t, start, stop, threads))


@kernel
def _turned(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    for s in range(group_start[start] * W, group_start[stop] * W, W):
        turn((s, s + W, W, s + W), state)


# --- operators: a pack at a time, as each step needs the one before; the state goes on with
# segments


@kernel
def _pack(state: State) -> int:
    return W


@kernel
def _at_rest(e: int, state: State) -> Flat:
    o = filled_pack(state[2], 0.0)
    return (o + 1.0, o, o, o, o + 1.0, o, o, o, o + 1.0) + (o,) * 9


@kernel
def _put_motion(carried: Flat, e: int, state: State) -> None:
    put_rows(state[6], e, _S, 0, carried)


@kernel
def _start_velocity(e: int, state: State) -> Flat:
    return take_rows(state[6], e, _S, 18, 6, W)


@kernel
def _free_tail(e: int, state: State) -> Handles:
    o = filled_pack(state[2], 0.0)
    one = o + 1.0
    J = (o,) * 21
    zero = (o, o, o, o, o, o)
    A = (
        (one, o, o, o, o, o),
        (o, one, o, o, o, o),
        (o, o, one, o, o, o),
        (o, o, o, one, o, o),
        (o, o, o, o, one, o),
        (o, o, o, o, o, one),
    )
    return J + zero, A, zero, J


@kernel
def _apart(state: State) -> tuple[()]:
    return ()


@kernel
def _prepend(carried: Handles, place: Place, state: State) -> Handles:
    load, A, tail, C = carried
    own = lanes(state[2], place[1], FORWARD, 12, 27, W)
    w, (E, r), c, (U, d, u), up = eliminated(plus(load, own), place, state)
    after = tail_step(A, tail, w[0], w[1], c, U, d, u)
    rows, along = prepended(A, E, r, w[0], w[1], U, d)
    return up, rows, after, rank_one(C, d, along)


@kernel
def _put_handles(carried: Handles, e: int, state: State) -> None:
    load, A, tail, C = carried
    put_rows(state[6], e, _S, 24, load + A[0] + A[1] + A[2] + A[3] + A[4] + A[5] + tail + C)


@kernel
def _load(e: int, state: State) -> Flat:
    return take_rows(state[6], e, _S, 114, 27, W)


@kernel
def _put_load(carried: Flat, e: int, state: State) -> None:
    put_rows(state[6], e, _S, 24, carried)


@kernel
def _start_acceleration(e: int, state: State) -> Flat:
    return take_rows(state[6], e, _S, 141, 6, W)


# transform and velocity of a segment that starts from rest
FROM_REST = (_pack, _at_rest, ready, still, extend_velocity, _put_motion)
# with transforms, inertias and bias forces of the bodies alone
VELOCITY = (_pack, _start_velocity, ready, still, weigh, nothing)
# J, e, A, b, C of a segment of a cut path
TWO_HANDLED = (_pack, _free_tail, _apart, still, _prepend, _put_handles)
# from what a segment gets from the next one
ARTICULATED = (_pack, _load, of_inertias, still, articulate, _put_load)
ACCELERATION = (_pack, _start_acceleration, ready, still, accelerate, nothing)


@kernel
def _from_rest(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    outwards(part, start, stop, FROM_REST, group_start, W, (), state)


@kernel
def _velocity(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    outwards(part, start, stop, VELOCITY, group_start, W, (state[3],), state)


@kernel
def _handles(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    inwards(part, start, stop, TWO_HANDLED, group_start, W, state)


@kernel
def _articulated(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    inwards(part, start, stop, ARTICULATED, group_start, W, state)


@kernel
def _acceleration(part: int, start: int, stop: int, group_start: np.ndarray, state: State) -> None:
    outwards(part, start, stop, ACCELERATION, group_start, W, (state[3],), state)


# --- segments, one after the other


@kernel
def _start_velocities(
    part: int,
    start: int,
    stop: int,
    source: np.ndarray,
    goes_on: np.ndarray,
    motion: np.ndarray,
    segments: np.ndarray,
) -> None:
    goes = False
    for s in range(start * W, stop * W):
        if goes:
            x = numbers(segments, (s - 1) * _S, 24)
            y = add(motion_to_child(x[0:9], x[9:12], x[18:24]), x[12:18])
            put_numbers(segments, s * _S + 18, y)
        else:
            p = source[s]
            for k in range(6):
                segments[s, 18 + k] = motion[p // W, k, p % W]
        goes = goes_on[s]


@kernel
def _collect(
    part: int,
    start: int,
    stop: int,
    hang_start: np.ndarray,
    hang_segment: np.ndarray,
    hang_slot: np.ndarray,
    work: np.ndarray,
    segments: np.ndarray,
) -> None:
    """Adds what hangs on these paths."""
    for g in range(start, stop):
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h]
            for k in range(27):
                work[s // W, 12 + k, s % W] += segments[e, 24 + k]


@kernel
def _dense(x: np.ndarray, first: int, M: np.ndarray) -> None:
    """The 6x6 matrix of 21 numbers of x from `first` on."""
    place = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    for k in range(6):
        i, j = place[k]
        M[i, j] = M[j, i] = x[first + k]
        M[3 + i, 3 + j] = M[3 + j, 3 + i] = x[first + 15 + k]
    for i in range(3):
        for j in range(3):
            M[i, 3 + j] = M[3 + j, i] = x[first + 6 + 3 * i + j]


@kernel
def _solve(M: np.ndarray, B: np.ndarray) -> None:
    """M⁻¹ B in place of B, by elimination with pivots."""
    n = len(M)
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[best, k]):
                best = i
        if best != k:
            for j in range(n):
                M[k, j], M[best, j] = M[best, j], M[k, j]
            for j in range(B.shape[1]):
                B[k, j], B[best, j] = B[best, j], B[k, j]
        for i in range(k + 1, n):
            f = M[i, k] / M[k, k]
            for j in range(k + 1, n):
                M[i, j] -= f * M[k, j]
            for j in range(B.shape[1]):
                B[i, j] -= f * B[k, j]
    for k in range(n - 1, -1, -1):
        for j in range(B.shape[1]):
            total = B[k, j]
            for i in range(k + 1, n):
                total -= M[k, i] * B[i, j]
            B[k, j] = total / M[k, k]


@kernel
def _join(cut: int, start: int, stop: int, goes_on: np.ndarray, segments: np.ndarray) -> None:
    """From the last segment of each path on: what it gets from the next one, its closed-loop A and
    b, and what it then does to the one before.
    """
    place = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    J, C, M = (
        np.empty((6, 6), segments.dtype),
        np.empty((6, 6), segments.dtype),
        np.empty((6, 6), segments.dtype),
    )
    right, load, more = (
        np.empty((6, 7), segments.dtype),
        np.empty((6, 7), segments.dtype),
        np.empty((6, 7), segments.dtype),
    )
    for s in range(stop * W - 1, start * W - 1, -1):
        x = segments[s]
        joined = goes_on[s] and s < cut * W
        for k in range(27):
            x[114 + k] = segments[s + 1, 24 + k] if joined else 0
        if not joined:
            continue
        _dense(x, 114, J)
        _dense(x, 93, C)
        # (1 + C J) [closed A, closed b] = [A, b - C e]
        for i in range(6):
            right[i, 6] = x[87 + i]
            for j in range(6):
                right[i, j] = x[51 + 6 * i + j]
                right[i, 6] -= C[i, j] * x[135 + j]
                M[i, j] = 1 if i == j else 0
                for k in range(6):
                    M[i, j] += C[i, k] * J[k, j]
        _solve(M, right)
        # J and e at the head grow by Aᵀ (J [closed A, closed b] + [0, e])
        for i in range(6):
            for j in range(7):
                load[i, j] = x[135 + i] if j == 6 else 0
                for k in range(6):
                    load[i, j] += J[i, k] * right[k, j]
        for i in range(6):
            x[183 + i] = right[i, 6]
            for j in range(7):
                more[i, j] = 0
                for k in range(6):
                    more[i, j] += x[51 + 6 * k + i] * load[k, j]
                if j < 6:
                    x[147 + 6 * i + j] = right[i, j]
        for k in range(6):
            i, j = place[k]
            x[24 + k] += (more[i, j] + more[j, i]) / 2
            x[39 + k] += (more[3 + i, 3 + j] + more[3 + j, 3 + i]) / 2
            x[45 + k] += more[k, 6]
        for i in range(3):
            for j in range(3):
                x[30 + 3 * i + j] += (more[i, 3 + j] + more[3 + j, i]) / 2


@kernel
def _start_accelerations(
    part: int,
    start: int,
    stop: int,
    source: np.ndarray,
    goes_on: np.ndarray,
    motion: np.ndarray,
    segments: np.ndarray,
) -> None:
    goes = False
    for s in range(start * W, stop * W):
        if goes:
            x = segments[s - 1]
            for i in range(6):
                total = x[183 + i]
                for k in range(6):
                    total += x[147 + 6 * i + k] * x[141 + k]
                segments[s, 141 + i] = total
        else:
            p = source[s]
            for k in range(6):
                segments[s, 141 + k] = motion[p // W, k, p % W]
        goes = goes_on[s]
