"""Articulated-body algebra over any scalars (Featherstone 2008, chapter 7).

An articulated inertia [[A, B], [Bᵀ, M]] is a tuple of 21: A and M as xx yy zz xy xz yz (0-5,
15-20), B row by row (6-14).
"""

from __future__ import annotations

from rigidgrad.scalars import Scalar
from rigidgrad.trees.algebra import (
    Flat,
    add,
    cross,
    cross_force,
    force_to_parent,
    inertia_times,
    motion_to_child,
    unrotate,
)

Rows = tuple[Flat, ...]


def of_body(I: Flat, v: Flat) -> tuple[Flat, Flat]:
    """The inertia of a body alone, and its bias force v ×* I v."""
    m, o = I[0], 0.0
    J = (
        I[4],
        I[5],
        I[6],
        I[7],
        I[8],
        I[9],
        o,
        -I[3],
        I[2],
        I[3],
        o,
        -I[1],
        -I[2],
        I[1],
        o,
        m,
        m,
        m,
        o,
        o,
        o,
    )
    return J, cross_force(v, inertia_times(I, v))


def eliminate(
    J: Flat, p: Flat, ang: Scalar, lin: Scalar, tau: Scalar, armature: Scalar
) -> tuple[Flat, Scalar, Scalar]:
    """U = J S, 1 / (Sᵀ U + armature), and tau - Sᵀ p."""
    U = (
        J[4] * ang + J[8] * lin,
        J[5] * ang + J[11] * lin,
        J[2] * ang + J[14] * lin,
        J[12] * ang + J[19] * lin,
        J[13] * ang + J[20] * lin,
        J[14] * ang + J[17] * lin,
    )
    return U, 1.0 / (ang * U[2] + lin * U[5] + armature), tau - (ang * p[2] + lin * p[5])


def times(J: Flat, x: Flat) -> Flat:
    """J x."""
    return (
        J[0] * x[0] + J[3] * x[1] + J[4] * x[2] + (J[6] * x[3] + J[7] * x[4] + J[8] * x[5]),
        J[3] * x[0] + J[1] * x[1] + J[5] * x[2] + (J[9] * x[3] + J[10] * x[4] + J[11] * x[5]),
        J[4] * x[0] + J[5] * x[1] + J[2] * x[2] + (J[12] * x[3] + J[13] * x[4] + J[14] * x[5]),
        J[6] * x[0] + J[9] * x[1] + J[12] * x[2] + (J[15] * x[3] + J[18] * x[4] + J[19] * x[5]),
        J[7] * x[0] + J[10] * x[1] + J[13] * x[2] + (J[18] * x[3] + J[16] * x[4] + J[20] * x[5]),
        J[8] * x[0] + J[11] * x[1] + J[14] * x[2] + (J[19] * x[3] + J[20] * x[4] + J[17] * x[5]),
    )


def scaled(s: Scalar, x: Flat) -> Flat:
    return (s * x[0], s * x[1], s * x[2], s * x[3], s * x[4], s * x[5])


def _without_joint(J: Flat, U: Flat, d: Scalar) -> Flat:
    """J - U Uᵀ d."""
    a, b, c, x, y, z = U
    s = scaled(d, U)
    return (
        J[0] - s[0] * a,
        J[1] - s[1] * b,
        J[2] - s[2] * c,
        J[3] - s[0] * b,
        J[4] - s[0] * c,
        J[5] - s[1] * c,
        J[6] - s[0] * x,
        J[7] - s[0] * y,
        J[8] - s[0] * z,
        J[9] - s[1] * x,
        J[10] - s[1] * y,
        J[11] - s[1] * z,
        J[12] - s[2] * x,
        J[13] - s[2] * y,
        J[14] - s[2] * z,
        J[15] - s[3] * x,
        J[16] - s[4] * y,
        J[17] - s[5] * z,
        J[18] - s[3] * y,
        J[19] - s[3] * z,
        J[20] - s[4] * z,
    )


def _turned(E: Flat, B: Flat) -> Flat:
    """Eᵀ B E of a 3x3 matrix, row by row."""
    # rows of B E are Eᵀ of rows of B
    x = unrotate(E, (B[0], B[1], B[2]))
    y = unrotate(E, (B[3], B[4], B[5]))
    z = unrotate(E, (B[6], B[7], B[8]))
    a = unrotate(E, (x[0], y[0], z[0]))
    b = unrotate(E, (x[1], y[1], z[1]))
    c = unrotate(E, (x[2], y[2], z[2]))
    return (a[0], b[0], c[0], a[1], b[1], c[1], a[2], b[2], c[2])


def inertia_to_parent(E: Flat, r: Flat, J: Flat) -> Flat:
    """Xᵀ J X."""
    A = _turned(E, (J[0], J[3], J[4], J[3], J[1], J[5], J[4], J[5], J[2]))
    B = _turned(E, J[6:15])
    M = _turned(E, (J[15], J[18], J[19], J[18], J[16], J[20], J[19], J[20], J[17]))
    # B + r× M, by columns
    x = cross(r, (M[0], M[3], M[6]))
    y = cross(r, (M[1], M[4], M[7]))
    z = cross(r, (M[2], M[5], M[8]))
    G = (
        B[0] + x[0],
        B[1] + y[0],
        B[2] + z[0],
        B[3] + x[1],
        B[4] + y[1],
        B[5] + z[1],
        B[6] + x[2],
        B[7] + y[2],
        B[8] + z[2],
    )
    # A + r× Bᵀ - G r×: columns of r× Bᵀ are r × rows of B; rows of G r× are rows of G × r
    u = cross(r, (B[0], B[1], B[2]))
    v = cross(r, (B[3], B[4], B[5]))
    w = cross(r, (B[6], B[7], B[8]))
    s = cross(r, (G[0], G[1], G[2]))
    t = cross(r, (G[3], G[4], G[5]))
    q = cross(r, (G[6], G[7], G[8]))
    return (
        A[0] + u[0] + s[0],
        A[4] + v[1] + t[1],
        A[8] + w[2] + q[2],
        A[1] + v[0] + s[1],
        A[2] + w[0] + s[2],
        A[5] + w[1] + t[2],
        G[0],
        G[1],
        G[2],
        G[3],
        G[4],
        G[5],
        G[6],
        G[7],
        G[8],
        M[0],
        M[4],
        M[8],
        M[1],
        M[2],
        M[5],
    )


def to_parent(
    E: Flat,
    r: Flat,
    J: Flat,
    p: Flat,
    c: Flat,
    U: Flat,
    d: Scalar,
    u: Scalar,
) -> tuple[Flat, Flat]:
    """What an articulated body adds to its parent's inertia and bias force, across a joint with
    force; c is the body's v × S q̇.
    """
    K = _without_joint(J, U, d)
    return inertia_to_parent(E, r, K), force_to_parent(
        E, r, add(add(p, times(K, c)), scaled(d * u, U))
    )


def acceleration(
    E: Flat,
    r: Flat,
    ang: Scalar,
    lin: Scalar,
    c: Flat,
    U: Flat,
    d: Scalar,
    u: Scalar,
    parent: Flat,
) -> tuple[Flat, Scalar]:
    """A body's acceleration from its parent's, and its joint's."""
    b = add(motion_to_child(E, r, parent), c)
    a = d * (
        u - (U[0] * b[0] + U[1] * b[1] + U[2] * b[2] + (U[3] * b[3] + U[4] * b[4] + U[5] * b[5]))
    )
    return (b[0], b[1], b[2] + ang * a, b[3], b[4], b[5] + lin * a), a


def two_sums(J: Flat, e: Flat, K: Flat, g: Flat) -> tuple[Flat, Flat]:
    """J + K and e + g."""
    return tuple(x + y for x, y in zip(J, K, strict=True)), add(e, g)


def rank_one(C: Flat, d: Scalar, s: Flat) -> Flat:
    """C + d s sᵀ."""
    return _without_joint(C, s, -d)


def prepended(
    A: Rows, E: Flat, r: Flat, ang: Scalar, lin: Scalar, U: Flat, d: Scalar
) -> tuple[Rows, Flat]:
    """The rows of A after prepending a body, A (1 - S Uᵀ/D) X, and A S."""
    rows, along = [], []
    for x in A:
        s = ang * x[2] + lin * x[5]
        along.append(s)
        rows.append(force_to_parent(E, r, tuple(y - s * d * u for y, u in zip(x, U, strict=True))))
    return tuple(rows), tuple(along)


def tail_step(
    A: Rows, b: Flat, ang: Scalar, lin: Scalar, c: Flat, U: Flat, d: Scalar, u: Scalar
) -> Flat:
    """b after prepending a body: b + A (c + S (u - U·c)/D)."""
    h = d * (u - sum((x * y for x, y in zip(U, c, strict=True)), 0.0))
    step = (c[0], c[1], c[2] + ang * h, c[3], c[4], c[5] + lin * h)
    return tuple(
        y + sum((x * z for x, z in zip(row, step, strict=True)), 0.0)
        for row, y in zip(A, b, strict=True)
    )
