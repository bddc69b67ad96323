"""Inverse dynamics and mass matrix with 6x6 matrices for transforms and inertias: what compact data
save, measured. For comparison only.

A product of two transforms takes 216 multiplications and 180 additions here, 33 and 24 as (E, r)
(Lynghus 2026, section 5.2.4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.packed import PackedMatrix, pattern_of
from rigidgrad.trees.packs import numbers
from rigidgrad.trees.rnea_euler_tour import add_rows, negate_row
from rigidgrad.trees.scans import BLOCK
from rigidgrad.trees.tree import Tree
from rigidgrad.trees.vector_tree import leaffix, rootfix


def inertias(tree: Tree) -> np.ndarray:
    """(N, 6, 6)."""
    I = np.zeros((tree.bodies, 6, 6))
    m, h = tree.data[:, 12], tree.data[:, 13:16]
    xx, yy, zz, xy, xz, yz = tree.data[:, 16:22].T
    I[:, :3, :3] = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(-1, 3, 3)
    o = np.zeros_like(m)
    skew = np.stack(
        [o, -h[:, 2], h[:, 1], h[:, 2], o, -h[:, 0], -h[:, 1], h[:, 0], o], axis=1
    ).reshape(-1, 3, 3)
    I[:, :3, 3:], I[:, 3:, :3] = skew, np.swapaxes(skew, 1, 2)
    I[:, [3, 4, 5], [3, 4, 5]] = m[:, None]
    return I


def rnea(tree: Tree, I: np.ndarray, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """tau (N,), sequentially; fixed base, no armature."""
    base = np.zeros(6)
    base[3:] = np.negative(tree.gravity)
    n = tree.bodies
    X, work, tau = np.empty((n, 6, 6)), np.empty((n, 18)), np.empty(n)
    _rnea(tree.parents, tree.topology.order, tree.data, I, base, q, v, a, X, work, tau)
    return tau


def rnea_euler_tour(
    tree: Tree,
    I: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    *,
    block: int = BLOCK,
    threads: int | None = None,
) -> np.ndarray:
    """tau (N,), by scans over the Euler tour with inverses, motions summed in the root's frame;
    fixed base, no armature.
    """
    n = tree.bodies
    up = np.empty((n, 36))
    _ups(tree.data, q, up)
    options: dict[str, Any] = {"method": "euler_tour", "block": block, "threads": threads}
    X = rootfix(tree, up, multiply_rows, np.eye(6).reshape(-1), inverse=invert_row, **options)
    back = np.empty_like(X)
    _inverses(X, back)
    parts, vel, acc, zero = np.empty((n, 6)), np.empty((n, 6)), np.empty((n, 6)), np.zeros(6)
    sums: dict[str, Any] = {
        "inverse": negate_row,
        "method": "euler_tour",
        "variant": "mapped",
        "threads": threads,
    }
    _joint_motions(tree.data, v, a, vel, back, False, parts)
    _shift(X, rootfix(tree, parts, add_rows, 0.0, **sums), zero, vel)
    base = np.zeros(6)
    base[3:] = np.negative(tree.gravity)
    _joint_motions(tree.data, v, a, vel, back, True, parts)
    _shift(X, rootfix(tree, parts, add_rows, 0.0, **sums), base, acc)
    _forces(I, X, vel, acc, parts)
    total = leaffix(tree, parts, add_rows, 0.0, **sums)
    tau = np.empty(n)
    _torques(tree.data, back, total, tau)
    return tau


def crba(tree: Tree, I: np.ndarray, q: np.ndarray) -> PackedMatrix:
    """The mass matrix, every row walked by itself; fixed base, no armature."""
    pattern = pattern_of(tree)
    values = np.empty(pattern.entries)
    X = np.empty((tree.bodies, 36))
    _ups(tree.data, q, X)
    _crba(
        tree.parents,
        tree.topology.order,
        pattern.start,
        tree.data,
        X.reshape(-1, 6, 6),
        I.copy(),
        values,
    )
    return PackedMatrix(pattern, values)


@kernel
def _up(data: np.ndarray, i: int, q: float, X: np.ndarray) -> None:
    """The 6x6 transform across joint i."""
    c = numbers(data, i * 24, 24)
    E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q)
    for j in range(3):
        a, b, d = E[3 * j], E[3 * j + 1], E[3 * j + 2]
        X[j, 0], X[j, 1], X[j, 2] = a, b, d
        X[j, 3] = X[j, 4] = X[j, 5] = 0.0
        X[3 + j, 3], X[3 + j, 4], X[3 + j, 5] = a, b, d
        X[3 + j, 0], X[3 + j, 1], X[3 + j, 2] = (
            d * r[1] - b * r[2],
            a * r[2] - d * r[0],
            b * r[0] - a * r[1],
        )


@kernel
def _ups(data: np.ndarray, q: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(q)):
        _up(data, i, q[i], out[i].reshape(6, 6))


@kernel
def _times(M: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    for i in range(6):
        total = 0.0
        for j in range(6):
            total += M[i, j] * x[j]
        out[i] = total


@kernel
def _transpose_times(M: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    for i in range(6):
        total = 0.0
        for j in range(6):
            total += M[j, i] * x[j]
        out[i] = total


@kernel
def _cross_force(v: np.ndarray, h: np.ndarray, out: np.ndarray) -> None:
    out[0] += v[1] * h[2] - v[2] * h[1] + v[4] * h[5] - v[5] * h[4]
    out[1] += v[2] * h[0] - v[0] * h[2] + v[5] * h[3] - v[3] * h[5]
    out[2] += v[0] * h[1] - v[1] * h[0] + v[3] * h[4] - v[4] * h[3]
    out[3] += v[1] * h[5] - v[2] * h[4]
    out[4] += v[2] * h[3] - v[0] * h[5]
    out[5] += v[0] * h[4] - v[1] * h[3]


@kernel
def _bias(vel: np.ndarray, x: float, y: float, acc: np.ndarray) -> None:
    """acc += vel × (0, 0, x, 0, 0, y)."""
    acc[0] += vel[1] * x
    acc[1] -= vel[0] * x
    acc[3] += vel[4] * x + vel[1] * y
    acc[4] -= vel[3] * x + vel[0] * y


@kernel
def _rnea(
    parents: np.ndarray,
    order: np.ndarray,
    data: np.ndarray,
    I: np.ndarray,
    base: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    X: np.ndarray,
    work: np.ndarray,
    tau: np.ndarray,
) -> None:
    still, h = np.zeros(6), np.empty(6)
    for k in range(len(order)):
        i = order[k]
        p = parents[i]
        _up(data, i, q[i], X[i])
        vel, acc, f = work[i, :6], work[i, 6:12], work[i, 12:]
        _times(X[i], work[p, :6] if p >= 0 else still, vel)
        _times(X[i], work[p, 6:12] if p >= 0 else base, acc)
        ang, lin = data[i, 22], data[i, 23]
        vel[2] += ang * v[i]
        vel[5] += lin * v[i]
        _bias(vel, ang * v[i], lin * v[i], acc)
        acc[2] += ang * a[i]
        acc[5] += lin * a[i]
        _times(I[i], acc, f)
        _times(I[i], vel, h)
        _cross_force(vel, h, f)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        f = work[i, 12:]
        tau[i] = data[i, 22] * f[2] + data[i, 23] * f[5]
        if parents[i] >= 0:
            _transpose_times(X[i], f, h)
            for j in range(6):
                work[parents[i], 12 + j] += h[j]


@kernel
def multiply_rows(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """Transforms as rows of 36: x, then y."""
    held = np.empty(36)
    for i in range(6):
        for j in range(6):
            total = 0.0
            for k in range(6):
                total += y[6 * i + k] * x[6 * k + j]
            held[6 * i + j] = total
    out[:] = held


@kernel
def invert_row(x: np.ndarray, out: np.ndarray) -> None:
    """[[E, 0], [B, E]]⁻¹ = [[Eᵀ, 0], [Bᵀ, Eᵀ]]."""
    held = np.zeros(36)
    for i in range(3):
        for j in range(3):
            held[6 * i + j] = held[6 * (i + 3) + j + 3] = x[6 * j + i]
            held[6 * (i + 3) + j] = x[6 * (j + 3) + i]
    out[:] = held


@kernel
def _inverses(X: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(X)):
        invert_row(X[i], out[i])


@kernel
def _joint_motions(
    data: np.ndarray,
    v: np.ndarray,
    a: np.ndarray,
    vel: np.ndarray,
    back: np.ndarray,
    accelerations: bool,
    out: np.ndarray,
) -> None:
    m = np.zeros(6)
    for i in range(len(v)):
        ang, lin = data[i, 22], data[i, 23]
        m[:] = 0.0
        if accelerations:
            _bias(vel[i], ang * v[i], lin * v[i], m)
        m[2] += ang * (a[i] if accelerations else v[i])
        m[5] += lin * (a[i] if accelerations else v[i])
        _times(back[i].reshape(6, 6), m, out[i])


@kernel
def _shift(X: np.ndarray, total: np.ndarray, base: np.ndarray, out: np.ndarray) -> None:
    moved = np.empty(6)
    for i in range(len(X)):
        for k in range(6):
            moved[k] = total[i, k] + base[k]
        _times(X[i].reshape(6, 6), moved, out[i])


@kernel
def _forces(
    I: np.ndarray, X: np.ndarray, vel: np.ndarray, acc: np.ndarray, out: np.ndarray
) -> None:
    h, f = np.empty(6), np.empty(6)
    for i in range(len(X)):
        _times(I[i], acc[i], f)
        _times(I[i], vel[i], h)
        _cross_force(vel[i], h, f)
        _transpose_times(X[i].reshape(6, 6), f, out[i])


@kernel
def _torques(data: np.ndarray, back: np.ndarray, total: np.ndarray, tau: np.ndarray) -> None:
    f = np.empty(6)
    for i in range(len(tau)):
        _transpose_times(back[i].reshape(6, 6), total[i], f)
        tau[i] = data[i, 22] * f[2] + data[i, 23] * f[5]


@kernel
def _crba(
    parents: np.ndarray,
    order: np.ndarray,
    start: np.ndarray,
    data: np.ndarray,
    X: np.ndarray,
    I: np.ndarray,
    values: np.ndarray,
) -> None:
    half, f, h = np.empty((6, 6)), np.empty(6), np.empty(6)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if parents[i] >= 0:
            for x in range(6):
                _transpose_times(I[i], X[i][:, x], half[x])
            for x in range(6):
                for y in range(6):
                    total = 0.0
                    for z in range(6):
                        total += X[i, z, x] * half[y, z]
                    I[parents[i], x, y] += total
    for i in range(len(parents)):
        at = start[i]
        for x in range(6):
            f[x] = data[i, 22] * I[i, x, 2] + data[i, 23] * I[i, x, 5]
        values[at] = data[i, 22] * f[2] + data[i, 23] * f[5]
        j = i
        while parents[j] >= 0:
            at += 1
            _transpose_times(X[j], f, h)
            f[:] = h
            j = parents[j]
            values[at] = data[j, 22] * f[2] + data[j, 23] * f[5]
