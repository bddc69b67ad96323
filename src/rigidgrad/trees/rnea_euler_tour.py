"""Inverse dynamics by scans over the Euler tour with inverses, as Lynghus (2026) has it: any tree
is one array of 2N steps.

Leaving a body undoes what entering it did, so rounding errors of the whole tour pile up: kept for
comparison, not for use. The scan of velocities and accelerations is either that of their recurrence
(X, v), or "simulated": transforms to the root alone are scanned, and motions are summed in the
root's frame. Forces are summed there in both.
"""

from __future__ import annotations

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.scalars import Scalar
from rigidgrad.trees.algebra import (
    Flat,
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
from rigidgrad.trees.tours import Tour
from rigidgrad.trees.tree import Tree

VARIANTS = ("simulated", "native", "work_efficient", "blocked")
IDENTITY = np.array([1.0, 0, 0, 0, 1.0, 0, 0, 0, 1.0, 0, 0, 0])


@kernel
def add_rows(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(x)):
        out[k] = x[k] + y[k]


@kernel
def negate_row(x: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(x)):
        out[k] = -x[k]


@kernel
def compose_rows(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """Transforms (E, r): x, then y."""
    u, w = numbers(x, 0, 12), numbers(y, 0, 12)
    E, r = compose(u[0:9], u[9:12], w[0:9], w[9:12])
    put_numbers(out, 0, E + r)


@kernel
def invert_row(x: np.ndarray, out: np.ndarray) -> None:
    put_numbers(out, 0, inverted(numbers(x, 0, 12)))


def inverted(X: Flat) -> Flat:
    """The transform back."""
    E = X[0:9]
    r = rotate(E, X[9:12])
    return (E[0], E[3], E[6], E[1], E[4], E[7], E[2], E[5], E[8], -r[0], -r[1], -r[2])


@kernel
def recur_rows(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """(X, m) then (Y, n): (Y X, Y m + n), rows of 18."""
    u, w = numbers(x, 0, 18), numbers(y, 0, 18)
    E, r = compose(u[0:9], u[9:12], w[0:9], w[9:12])
    put_numbers(out, 0, E + r + add(motion_to_child(w[0:9], w[9:12], u[12:18]), w[12:18]))


@kernel
def unrecur_row(x: np.ndarray, out: np.ndarray) -> None:
    """(X⁻¹, -X⁻¹ m)."""
    u = numbers(x, 0, 18)
    m = motion_to_parent(u[0:9], u[9:12], u[12:18])
    invert_row(x, out)
    put_numbers(out, 12, (-m[0], -m[1], -m[2], -m[3], -m[4], -m[5]))


def rnea(
    tree: Tree,
    data: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    external: np.ndarray,
    tau: np.ndarray,
    base_force: np.ndarray,
    threads: int,
    variant: str = "simulated",
    block: int = BLOCK,
) -> None:
    """One state after the other; arguments as for `rnea_levels.rnea`."""
    n, dtype = tree.bodies, tau.dtype
    with (
        tree.plan.workspace((n, 12), dtype) as X,
        tree.plan.workspace((4, n, 6), dtype) as motions,
    ):
        vel, acc, own, total = motions
        for b in range(len(tau)):
            state = data, q[b], v[b], a[b], base[b]
            if variant == "simulated":
                _simulated(Tour(tree, "blocked", block, threads), *state, X, vel, acc, own, total)
            else:
                _recurrence(Tour(tree, variant, block, threads), *state, X, vel, acc)
            sums = Tour(tree, "mapped", block, threads)
            some = external[b] if len(external) else np.empty((0, n), dtype)
            sums.each(_forces_in_root, n, data, X, vel, acc, some, own)
            sums.leaffix(own, add_rows, negate_row, np.zeros(6, dtype), total)
            sums.each(_torques, n, data, X, total, tau[b])
            base_force[b] = total[tree.topology.order[0]]


def transforms(tour: Tour, data: np.ndarray, q: np.ndarray, X: np.ndarray) -> None:
    """From the root to every body."""
    n = tour.tree.bodies
    with tour.tree.plan.workspace((n, 12), X.dtype) as up:
        tour.each(_transforms, n, data, q, up)
        tour.rootfix(up, compose_rows, invert_row, IDENTITY.astype(X.dtype), X)


def _simulated(
    tour: Tour,
    data: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    X: np.ndarray,
    vel: np.ndarray,
    acc: np.ndarray,
    own: np.ndarray,
    total: np.ndarray,
) -> None:
    """Transforms to the root are scanned; motions are summed there."""
    n, nothing = len(X), np.zeros(6, X.dtype)
    sums = tour._replace(variant="mapped")
    transforms(tour, data, q, X)
    tour.each(_joint_velocities, n, data, v, X, own)
    sums.rootfix(own, add_rows, negate_row, nothing, total)
    tour.each(_to_body, n, X, total, base[:6], vel)
    tour.each(_joint_accelerations, n, data, v, a, vel, X, own)
    sums.rootfix(own, add_rows, negate_row, nothing, total)
    tour.each(_to_body, n, X, total, base[6:], acc)


def _recurrence(
    tour: Tour,
    data: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    base: np.ndarray,
    X: np.ndarray,
    vel: np.ndarray,
    acc: np.ndarray,
) -> None:
    """Twice that of (X, v): velocities first, then accelerations, which depend on them."""
    n = len(X)
    neutral = np.append(IDENTITY, np.zeros(6)).astype(X.dtype)
    with tour.tree.plan.workspace((2, n, 18), X.dtype) as both:
        full, done = both
        tour.each(_set_velocities, n, data, q, v, full)
        tour.rootfix(full, recur_rows, unrecur_row, neutral, done)
        tour.each(_apart, n, done, base[:6], X, vel)
        tour.each(_set_accelerations, n, data, v, a, vel, full)
        tour.rootfix(full, recur_rows, unrecur_row, neutral, done)
        tour.each(_apart, n, done, base[6:], X, acc)


@kernel
def _transforms(
    part: int, first: int, last: int, data: np.ndarray, q: np.ndarray, out: np.ndarray
) -> None:
    width = out.shape[1]
    for i in range(first, last):
        c = numbers(data, i * 24, 24)
        E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
        put_numbers(out, i * width, E + r)


@kernel
def _to_body(
    part: int,
    first: int,
    last: int,
    X: np.ndarray,
    total: np.ndarray,
    base: np.ndarray,
    out: np.ndarray,
) -> None:
    m = numbers(base, 0, 6)
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        put_numbers(out, i * 6, motion_to_child(x[0:9], x[9:12], add(numbers(total, i * 6, 6), m)))


@kernel
def _apart(
    part: int,
    first: int,
    last: int,
    done: np.ndarray,
    base: np.ndarray,
    X: np.ndarray,
    own: np.ndarray,
) -> None:
    """Transforms and motions, which those of the base are added to."""
    m = numbers(base, 0, 6)
    for i in range(first, last):
        x = numbers(done, i * 18, 18)
        put_numbers(X, i * 12, x[0:12])
        put_numbers(own, i * 6, add(x[12:18], motion_to_child(x[0:9], x[9:12], m)))


@kernel
def _joint_acceleration(ang: Scalar, lin: Scalar, v: Scalar, a: Scalar, vel: Flat) -> Flat:
    s = cross_motion(vel, (0.0, 0.0, ang * v, 0.0, 0.0, lin * v))
    return (s[0], s[1], s[2] + ang * a, s[3], s[4], s[5] + lin * a)


@kernel
def _joint_velocities(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    v: np.ndarray,
    X: np.ndarray,
    out: np.ndarray,
) -> None:
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        m = (0.0, 0.0, data[i, 22] * v[i], 0.0, 0.0, data[i, 23] * v[i])
        put_numbers(out, i * 6, motion_to_parent(x[0:9], x[9:12], m))


@kernel
def _joint_accelerations(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    vel: np.ndarray,
    X: np.ndarray,
    out: np.ndarray,
) -> None:
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        m = _joint_acceleration(data[i, 22], data[i, 23], v[i], a[i], numbers(vel, i * 6, 6))
        put_numbers(out, i * 6, motion_to_parent(x[0:9], x[9:12], m))


@kernel
def _set_velocities(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    full: np.ndarray,
) -> None:
    _transforms(part, first, last, data, q, full)
    for i in range(first, last):
        m = (0.0, 0.0, data[i, 22] * v[i], 0.0, 0.0, data[i, 23] * v[i])
        put_numbers(full, i * 18 + 12, m)


@kernel
def _set_accelerations(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    vel: np.ndarray,
    full: np.ndarray,
) -> None:
    for i in range(first, last):
        m = _joint_acceleration(data[i, 22], data[i, 23], v[i], a[i], numbers(vel, i * 6, 6))
        put_numbers(full, i * 18 + 12, m)


@kernel
def _forces_in_root(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    X: np.ndarray,
    vel: np.ndarray,
    acc: np.ndarray,
    external: np.ndarray,
    out: np.ndarray,
) -> None:
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        f = body_force(
            numbers(data, i * 24 + 12, 10), numbers(vel, i * 6, 6), numbers(acc, i * 6, 6)
        )
        if external.shape[0] > 0:
            e = external
            f = (
                f[0] - e[0, i],
                f[1] - e[1, i],
                f[2] - e[2, i],
                f[3] - e[3, i],
                f[4] - e[4, i],
                f[5] - e[5, i],
            )
        put_numbers(out, i * 6, force_to_parent(x[0:9], x[9:12], f))


@kernel
def _torques(
    part: int,
    first: int,
    last: int,
    data: np.ndarray,
    X: np.ndarray,
    total: np.ndarray,
    tau: np.ndarray,
) -> None:
    for i in range(first, last):
        x = numbers(X, i * 12, 12)
        f = force_to_child(x[0:9], x[9:12], numbers(total, i * 6, 6))
        tau[i] = data[i, 22] * f[2] + data[i, 23] * f[5]
