"""Inverse dynamics by scans over the Euler tour with inverses, as Lynghus (2026) has it: any tree is one array of 2N steps.

Leaving a body undoes what entering it did, so rounding errors of the whole tour pile up: kept for comparison, not for use. The scan of
velocities and accelerations is either that of their recurrence (X, v), or "simulated": transforms to the root alone are scanned, and
motions are summed in the root's frame. Forces are summed there in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import (
    add,
    body_force,
    compose,
    cross_motion,
    force_to_child,
    force_to_parent,
    motion_to_child,
    motion_to_parent,
    rotate,
)
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.tree import Tree
from rigidgrad.trees.vector_tree import leaffix, rootfix

VARIANTS = ("simulated", "native", "work_efficient", "blocked")
IDENTITY = np.array([1.0, 0, 0, 0, 1.0, 0, 0, 0, 1.0, 0, 0, 0])


@kernel
def add_rows(x, y, out):
    for k in range(len(x)):
        out[k] = x[k] + y[k]


@kernel
def negate_row(x, out):
    for k in range(len(x)):
        out[k] = -x[k]


@kernel
def compose_rows(x, y, out):
    """Transforms (E, r): x, then y."""
    u, w = numbers(x, 0, 12), numbers(y, 0, 12)
    E, r = compose(u[0:9], u[9:12], w[0:9], w[9:12])
    put_numbers(out, 0, E + r)


@kernel
def invert_row(x, out):
    u = numbers(x, 0, 12)
    E = u[0:9]
    r = rotate(E, u[9:12])
    put_numbers(out, 0, (E[0], E[3], E[6], E[1], E[4], E[7], E[2], E[5], E[8], -r[0], -r[1], -r[2]))


@kernel
def recur_rows(x, y, out):
    """(X, m) then (Y, n): (Y X, Y m + n), rows of 18."""
    u, w = numbers(x, 0, 18), numbers(y, 0, 18)
    E, r = compose(u[0:9], u[9:12], w[0:9], w[9:12])
    put_numbers(out, 0, E + r + add(motion_to_child(w[0:9], w[9:12], u[12:18]), w[12:18]))


@kernel
def unrecur_row(x, out):
    """(X⁻¹, -X⁻¹ m)."""
    u = numbers(x, 0, 18)
    m = motion_to_parent(u[0:9], u[9:12], u[12:18])
    invert_row(x, out)
    put_numbers(out, 12, (-m[0], -m[1], -m[2], -m[3], -m[4], -m[5]))


def rnea(tree: Tree, data, q, v, a, base, external, tau, base_force, threads: int, variant: str = "simulated", block: int = BLOCK) -> None:
    """One state after the other; arguments as for `rnea_levels.rnea`."""
    scan = "blocked" if variant == "simulated" else variant
    for b in range(len(tau)):
        up = np.empty((tree.bodies, 12), tau.dtype)
        _transforms(data, q[b], up)
        if variant == "simulated":
            X = rootfix(
                tree, up, compose_rows, IDENTITY, inverse=invert_row, method="euler_tour", variant=scan, block=block, threads=threads
            )
            parts = np.empty((tree.bodies, 6), tau.dtype)
            _joint_velocities(data, v[b], X, parts)
            vel = _sum_in_root(tree, X, parts, base[b, :6], threads)
            _joint_accelerations(data, v[b], a[b], vel, X, parts)
            acc = _sum_in_root(tree, X, parts, base[b, 6:], threads)
        else:
            full = np.concatenate([up, np.zeros((tree.bodies, 6), tau.dtype)], axis=1)
            neutral = np.concatenate([IDENTITY, np.zeros(6)])
            options: dict[str, Any] = {"inverse": unrecur_row, "method": "euler_tour", "variant": scan, "block": block, "threads": threads}
            _set_velocities(data, v[b], full)
            done = rootfix(tree, full, recur_rows, neutral, **options)
            X = np.ascontiguousarray(done[:, :12])
            vel = np.ascontiguousarray(done[:, 12:])
            _add_base(X, base[b, :6], vel)
            _set_accelerations(data, v[b], a[b], vel, full)
            acc = np.ascontiguousarray(rootfix(tree, full, recur_rows, neutral, **options)[:, 12:])
            _add_base(X, base[b, 6:], acc)
        f = np.empty((tree.bodies, 6), tau.dtype)
        _forces_in_root(data, X, vel, acc, external[b] if len(external) else np.empty((0, tree.bodies), tau.dtype), f)
        total = leaffix(tree, f, add_rows, np.zeros(6), inverse=negate_row, method="euler_tour", variant="mapped", threads=threads)
        _torques(data, X, total, tau[b])
        base_force[b] = total[tree.topology.order[0]]


def _sum_in_root(tree: Tree, X, parts, base, threads: int) -> np.ndarray:
    total = rootfix(tree, parts, add_rows, np.zeros(6), inverse=negate_row, method="euler_tour", variant="mapped", threads=threads)
    out = np.empty_like(total)
    _to_body(X, total, base, out)
    return out


@kernel
def _transforms(data, q, out):
    for i in range(len(data)):
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
        put_numbers(out, i * 12, E + r)


@kernel
def _to_body(X, total, base, out):
    m = numbers(base, 0, 6)
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        put_numbers(out, i * 6, motion_to_child(x[0:9], x[9:12], add(numbers(total, i * 6, 6), m)))


@kernel
def _add_base(X, base, own):
    m = numbers(base, 0, 6)
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        put_numbers(own, i * 6, add(numbers(own, i * 6, 6), motion_to_child(x[0:9], x[9:12], m)))


@kernel
def _joint_acceleration(ang, lin, v, a, vel):
    s = cross_motion(vel, (0.0, 0.0, ang * v, 0.0, 0.0, lin * v))
    return (s[0], s[1], s[2] + ang * a, s[3], s[4], s[5] + lin * a)


@kernel
def _joint_velocities(data, v, X, out):
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        m = (0.0, 0.0, data[i, 22] * v[i], 0.0, 0.0, data[i, 23] * v[i])
        put_numbers(out, i * 6, motion_to_parent(x[0:9], x[9:12], m))


@kernel
def _joint_accelerations(data, v, a, vel, X, out):
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        m = _joint_acceleration(data[i, 22], data[i, 23], v[i], a[i], numbers(vel, i * 6, 6))
        put_numbers(out, i * 6, motion_to_parent(x[0:9], x[9:12], m))


@kernel
def _set_velocities(data, v, full):
    for i in range(len(full)):
        full[i, 14] = data[i, 22] * v[i]
        full[i, 17] = data[i, 23] * v[i]


@kernel
def _set_accelerations(data, v, a, vel, full):
    for i in range(len(full)):
        put_numbers(full, i * 18 + 12, _joint_acceleration(data[i, 22], data[i, 23], v[i], a[i], numbers(vel, i * 6, 6)))


@kernel
def _forces_in_root(data, X, vel, acc, external, out):
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        f = body_force(numbers(data, i * 24 + 12, 10), numbers(vel, i * 6, 6), numbers(acc, i * 6, 6))
        if external.shape[0] > 0:
            e = external
            f = (f[0] - e[0, i], f[1] - e[1, i], f[2] - e[2, i], f[3] - e[3, i], f[4] - e[4, i], f[5] - e[5, i])
        put_numbers(out, i * 6, force_to_parent(x[0:9], x[9:12], f))


@kernel
def _torques(data, X, total, tau):
    for i in range(len(X)):
        x = numbers(X, i * 12, 12)
        f = force_to_child(x[0:9], x[9:12], numbers(total, i * 6, 6))
        tau[i] = data[i, 22] * f[2] + data[i, 23] * f[5]
