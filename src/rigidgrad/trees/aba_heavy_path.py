"""Forward dynamics along heavy paths: segments as two-handled bodies, joined by the Redheffer star product (after Featherstone 1999).

A segment whose tail is free answers the acceleration a of what it hangs on with the force J a + e, its tail accelerating with A a + b; a force φ from
the tail on changes the tail's acceleration by -C φ, and the force at the head by Aᵀ φ. Prepending a body is a step of the articulated-body
algorithm, and changes A, b and C by rank one; joining two segments solves a 6x6 system.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import compose, joint_motion, motion_to_child
from rigidgrad.trees.articulated import acceleration, eliminate, of_body, prepended, rank_one, tail_step, to_parent, two_sums
from rigidgrad.trees.heavy_paths import inwards, nothing, outwards
from rigidgrad.trees.lanes import W, filled_pack, joint_transform, width, with_lane
from rigidgrad.trees.packs import give, lanes, put_lanes, put_rows, take, take_rows
from rigidgrad.trees.parallel import spread
from rigidgrad.trees.rnea_heavy_path import shares
from rigidgrad.trees.tree import Tree

# components of a workspace pack: v 0-5, a 6-11, inertia and bias force of the body and what hangs on it 12-38, E 39-47, r 48-50, c 51-56, U 57-62, 1/D 63, u 64
_C = 65
# components of a segment: v from rest with E, r 0-17; v that it starts from 18-23; J, e on what it hangs on 24-50; A 51-86, b 87-92, C 93-113;
# J, e from the next segment 114-140; a that it starts from 141-146; closed-loop A, b 147-188
_S = 189


def aba(tree: Tree, q, v, tau, armature, base, external, settle, out, threads: int) -> None:
    """As `aba_sequential.aba`."""
    t, dtype = tree.plan.heavy_paths, q.dtype
    data = tree.plan.packed("heavy_paths", dtype)
    hangs = (t.hang_start, t.hang_segment, t.hang_slot)
    root = t.base_segment
    with (
        tree.plan.workspace((1 + int(t.group_start[-1]), _C, W), dtype) as work,
        tree.plan.workspace((len(t.source), _S), dtype) as segments,
    ):
        for b in range(len(q)):
            state = (t.body, data, work, segments, (b, q, v, tau, armature, external))
            rest, velocity = (outwards.over(operator, t.group_start, state) for operator in (FROM_REST, VELOCITY))
            handles, articulate = (inwards.over(operator, t.group_start, state) for operator in (TWO_HANDLED, ARTICULATED))
            accelerate = outwards.over(ACCELERATION, t.group_start, (*state[:4], (b, out)))
            _world(work, base[b, :6], 0)
            for start, cut, stop in t.depths:
                spread(threads, rest, shares(t, start, cut, threads))
                _start_velocities(start, stop, t.source, t.goes_on, work, segments)
                spread(threads, velocity, shares(t, start, stop, threads))
            for start, cut, stop in reversed(t.depths):
                spread(threads, _collect, shares(t, start, stop, threads), *hangs, work, segments)
                spread(threads, handles, shares(t, start, cut, threads))
                _join(start, cut, stop, t.goes_on, segments)
                spread(threads, articulate, shares(t, start, stop, threads))
            _world(work, settle(b, segments[root, 24:45].copy(), segments[root, 45:51].copy()), 6)
            for start, _, stop in t.depths:
                _start_accelerations(start, stop, t.source, t.goes_on, work, segments)
                spread(threads, accelerate, shares(t, start, stop, threads))


@kernel
def _world(work, base, first):
    for k in range(6):
        for j in range(W):
            work[0, first + k, j] = base[k]


@kernel
def _pack(state):
    return W


@kernel
def _at_rest(e, state):
    _body, _data, _work, _segments, (_b, q, _v, _tau, _armature, _external) = state
    o = filled_pack(q, 0.0)
    return (o + 1.0, o, o, o, o + 1.0, o, o, o, o + 1.0), (o, o, o), (o, o, o, o, o, o)


@kernel
def _move(carried, s, state):
    body, data, _work, _segments, (b, q, v, _tau, _armature, _external) = state
    E, r, vel = carried
    o = filled_pack(q, 0.0)
    c = lanes(data, s, 24, 0, 12, W)
    w = lanes(data, s, 24, 22, 2, W)
    n = b * q.shape[1]
    F, d = joint_transform(c[0:9], c[9:12], w[0], w[1], take(q, n, body, s, W))
    G, x = compose(E, r, F, d)
    after, _ = joint_motion(F, d, w[0], w[1], take(v, n, body, s, W), o, vel, (o, o, o, o, o, o))
    return G, x, after


@kernel
def _put_motion(carried, e, state):
    put_rows(state[3], e, _S, 0, carried[2] + carried[0] + carried[1])


FROM_REST = (_pack, _at_rest, _move, _put_motion)  # transform and velocity of a segment that starts from rest


@kernel
def _start_velocities(start, stop, source, goes_on, work, segments):
    goes = False
    for s in range(start * W, stop * W):
        if goes:
            x = segments[s - 1]
            E = (x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13], x[14])
            y = motion_to_child(E, (x[15], x[16], x[17]), (x[18], x[19], x[20], x[21], x[22], x[23]))
            for k in range(6):
                segments[s, 18 + k] = y[k] + x[k]
        else:
            p = source[s]
            for k in range(6):
                segments[s, 18 + k] = work[p // W, k, p % W]
        goes = goes_on[s]


@kernel
def _start_velocity(e, state):
    return take_rows(state[3], e, _S, 18, 6, W)


@kernel
def _bodies(vel, s, state):
    body, data, work, _segments, (b, q, v, _tau, _armature, external) = state
    o = filled_pack(q, 0.0)
    n = b * q.shape[1]
    c = lanes(data, s, 24, 0, 24, W)
    E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], take(q, n, body, s, W))
    own, bias = joint_motion(E, r, c[22], c[23], take(v, n, body, s, W), o, vel, (o, o, o, o, o, o))
    J, f = of_body(c[12:22], own)
    if external.shape[0] > 0:
        x = external[b]
        for k in range(6):
            f = (f[1], f[2], f[3], f[4], f[5], f[0] - take(x[k], 0, body, s, W))
    put_lanes(work, s + W, _C, 0, own)
    put_lanes(work, s + W, _C, 12, J + f + E + r + bias)
    return own


VELOCITY = (_pack, _start_velocity, _bodies, nothing)  # with transforms, inertias and bias forces of the bodies alone


@kernel
def _collect(part, start, stop, hang_start, hang_segment, hang_slot, work, segments):
    """Adds what hangs on these paths."""
    for g in range(start, stop):
        for h in range(hang_start[g], hang_start[g + 1]):
            e, s = hang_segment[h], hang_slot[h]
            for k in range(27):
                work[s // W, 12 + k, s % W] += segments[e, 24 + k]


@kernel
def _torque(tau, b, body, s):
    return take(tau, b * tau.shape[1], body, s, W)


@kernel
def _weight(armature, body, s):
    """Armature; 1 for padding, whose joint must not move anything."""
    x = take(armature, 0, body, s, W)
    for j in range(width(x)):
        if body[s + j] < 0:
            x = with_lane(x, j, armature.dtype.type(1))
    return x


@kernel
def _eliminated(J, e, s, state):
    """A body with what comes from the next one, before and after its joint is eliminated."""
    body, data, work, _segments, (b, _q, _v, tau, armature, _external) = state
    w = lanes(data, s, 24, 22, 2, W)
    x = lanes(work, s + W, _C, 12, 45, W)
    E, r, c = x[27:36], x[36:39], x[39:45]
    J, e = two_sums(J, e, x[0:21], x[21:27])
    U, d, u = eliminate(J, e, w[0], w[1], _torque(tau, b, body, s), _weight(armature, body, s))
    return E, r, w, c, (U, d, u), to_parent(E, r, J, e, c, U, d, u)


@kernel
def _free_tail(e, state):
    o = filled_pack(state[2], 0.0)
    one = o + 1.0
    J = (o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o)
    zero = (o, o, o, o, o, o)
    A = (
        (one, o, o, o, o, o),
        (o, one, o, o, o, o),
        (o, o, one, o, o, o),
        (o, o, o, one, o, o),
        (o, o, o, o, one, o),
        (o, o, o, o, o, one),
    )
    return J, zero, A, zero, J


@kernel
def _prepend(carried, s, state):
    J, e, A, tail, C = carried
    E, r, w, c, joint, up = _eliminated(J, e, s, state)
    U, d, u = joint
    after = tail_step(A, tail, w[0], w[1], c, U, d, u)
    rows, along = prepended(A, E, r, w[0], w[1], U, d)
    return up[0], up[1], rows, after, rank_one(C, d, along)


@kernel
def _put_handles(carried, e, state):
    J, f, A, tail, C = carried
    put_rows(state[3], e, _S, 24, J + f + A[0] + A[1] + A[2] + A[3] + A[4] + A[5] + tail + C)


TWO_HANDLED = (_pack, _free_tail, _prepend, _put_handles)  # J, e, A, b, C of a segment of a cut path


@kernel
def _dense(x, first, M):
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
def _solve(M, B):
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
def _join(start, cut, stop, goes_on, segments):
    """From the last segment of each path on: what it gets from the next one, its closed-loop A and b, and what it then does to the one before."""
    place = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    J, C, M = np.empty((6, 6), segments.dtype), np.empty((6, 6), segments.dtype), np.empty((6, 6), segments.dtype)
    right, load, more = np.empty((6, 7), segments.dtype), np.empty((6, 7), segments.dtype), np.empty((6, 7), segments.dtype)
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
def _load(e, state):
    y = take_rows(state[3], e, _S, 114, 27, W)
    return y[0:21], y[21:27]


@kernel
def _articulate(carried, s, state):
    _E, _r, _w, _c, joint, up = _eliminated(carried[0], carried[1], s, state)
    U, d, u = joint
    put_lanes(state[2], s + W, _C, 57, U + (d, u))
    return up


@kernel
def _put_load(carried, e, state):
    put_rows(state[3], e, _S, 24, carried[0] + carried[1])


ARTICULATED = (_pack, _load, _articulate, _put_load)  # from what a segment gets from the next one


@kernel
def _start_accelerations(start, stop, source, goes_on, work, segments):
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
                segments[s, 141 + k] = work[p // W, 6 + k, p % W]
        goes = goes_on[s]


@kernel
def _start_acceleration(e, state):
    return take_rows(state[3], e, _S, 141, 6, W)


@kernel
def _accelerate(parent, s, state):
    body, data, work, _segments, (b, out) = state
    w = lanes(data, s, 24, 22, 2, W)
    x = lanes(work, s + W, _C, 39, 26, W)
    acc, a = acceleration(x[0:9], x[9:12], w[0], w[1], x[12:18], x[18:24], x[24], x[25], parent)
    put_lanes(work, s + W, _C, 6, acc)
    give(out, b * out.shape[1], body, s, a)
    return acc


ACCELERATION = (_pack, _start_acceleration, _accelerate, nothing)
