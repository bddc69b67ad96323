"""Forward dynamics as the textbook has it: down for velocities, up for articulated inertias, down for accelerations (Featherstone 2008, table 7.1)."""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import add, joint_motion
from rigidgrad.trees.articulated import acceleration, eliminate, of_body, to_parent
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.tree import Tree

# a body's workspace: E 0-8, r 9-11, v 12-17, c 18-23, inertia 24-44, bias force 45-50, U 51-56, 1/D 57, u 58, a 59-64
_C = 65


def aba(tree: Tree, q, v, tau, armature, base, external, settle, out, threads: int) -> None:
    """Accelerations out (B, N) of the joints. `settle(b, J, p)` gives the acceleration (6,) of what the roots stand on, from the load on it."""
    data = tree.plan.rows(q.dtype)
    tables = tree.parents, tree.topology.order, data
    with tree.plan.workspace((tree.bodies, _C), q.dtype) as work:
        for b in range(len(q)):
            load = np.zeros(27, q.dtype)
            _inwards(b, *tables, q, v, tau, armature, base, external, work, load)
            _outwards(b, *tables, settle(b, load[:21], load[21:]), work, out)


@kernel
def _inwards(b, parents, order, data, q, v, tau, armature, base, external, work, load):
    n = len(parents)
    o = q.dtype.type(0)
    zero = (o, o, o, o, o, o)
    vb = numbers(base, b * 12, 6)
    for k in range(n):
        i = order[k]
        p = parents[i]
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[b, i])
        vel, bias = joint_motion(E, r, c[22], c[23], v[b, i], o, numbers(work, p * _C + 12, 6) if p >= 0 else vb, zero)
        J, f = of_body(c[12:22], vel)
        if external.shape[0] > 0:
            x = external[b]
            f = (f[0] - x[0, i], f[1] - x[1, i], f[2] - x[2, i], f[3] - x[3, i], f[4] - x[4, i], f[5] - x[5, i])
        put_numbers(work, i * _C, E + r + vel + bias + J + f)
    for k in range(n - 1, -1, -1):
        i = order[k]
        p = parents[i]
        x = numbers(work, i * _C, 12)
        y = numbers(work, i * _C + 18, 33)
        U, d, u = eliminate(y[6:27], y[27:33], data[i, 22], data[i, 23], tau[b, i], armature[i])
        put_numbers(work, i * _C + 51, U + (d, u))
        J, f = to_parent(x[0:9], x[9:12], y[6:27], y[27:33], y[0:6], U, d, u)
        if p >= 0:
            at = p * _C + 24
            for j in range(21):
                work[p, 24 + j] += J[j]
            put_numbers(work, at + 21, add(numbers(work, at + 21, 6), f))
        elif k == 0:
            put_numbers(load, 0, J + f)


@kernel
def _outwards(b, parents, order, data, base, work, out):
    ab = numbers(base, 0, 6)
    for k in range(len(parents)):
        i = order[k]
        p = parents[i]
        x = numbers(work, i * _C, 12)
        c = numbers(work, i * _C + 18, 6)
        y = numbers(work, i * _C + 51, 8)
        ap = numbers(work, p * _C + 59, 6) if p >= 0 else ab
        acc, out[b, i] = acceleration(x[0:9], x[9:12], data[i, 22], data[i, 23], c, y[0:6], y[6], y[7], ap)
        put_numbers(work, i * _C + 59, acc)
