"""Inverse dynamics as the textbook has it: one loop down, one loop up (Featherstone 2008, table 5.1). The baseline of all others."""

from __future__ import annotations

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import add, body_force, force_to_parent, joint_motion
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.packs import numbers, put_numbers

# a body's workspace: E 0-8, r 9-11, v 12-17, a 18-23, f 24-29
_C = 30


@kernel
def rnea(first, last, parents, order, data, q, v, a, base, external, work, tau, base_force):
    n = len(parents)
    for b in range(first, last):
        vb, ab = numbers(base, b * 12, 6), numbers(base, b * 12 + 6, 6)
        for k in range(n):
            i = order[k]
            p = parents[i]
            c = numbers(data, i * 24, 24)
            E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[b, i])
            if p >= 0:
                vp, ap = numbers(work, p * _C + 12, 6), numbers(work, p * _C + 18, 6)
            else:
                vp, ap = vb, ab
            vel, acc = joint_motion(E, r, c[22], c[23], v[b, i], a[b, i], vp, ap)
            f = body_force(c[12:22], vel, acc)
            if external.shape[0] > 0:
                x = external[b]
                f = (f[0] - x[0, i], f[1] - x[1, i], f[2] - x[2, i], f[3] - x[3, i], f[4] - x[4, i], f[5] - x[5, i])
            put_numbers(work, i * _C, E + r + vel + acc + f)
        for k in range(n - 1, -1, -1):
            i = order[k]
            p = parents[i]
            x = numbers(work, i * _C, 12)
            f = numbers(work, i * _C + 24, 6)
            tau[b, i] = data[i, 22] * f[2] + data[i, 23] * f[5]
            g = force_to_parent(x[0:9], x[9:12], f)
            if p >= 0:
                put_numbers(work, p * _C + 24, add(numbers(work, p * _C + 24, 6), g))
            elif k == 0:
                put_numbers(base_force, b * 6, g)
