"""Spatial algebra over any scalars: single numbers or lanes (Featherstone 2008, appendix A).

Everything is a flat tuple: a rotation E has 9 numbers, row by row, and turns parent into child
coordinates; r is the child's origin in parent coordinates; motions and forces are [angular, linear]
with 6; a body's inertia is (m, h, Ixx Iyy Izz Ixy Ixz Iyz) about its origin, with h = m·c. A joint
moves about and along its z axis: `ang` radians and `lin` metres for each unit of q.
"""

from __future__ import annotations

from rigidgrad.scalars import Scalar

Flat = tuple[Scalar, ...]
Transform = tuple[Flat, Flat]  # E and r


def cross(a: Flat, b: Flat) -> Flat:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def rotate(E: Flat, x: Flat) -> Flat:
    """E x."""
    return (
        E[0] * x[0] + E[1] * x[1] + E[2] * x[2],
        E[3] * x[0] + E[4] * x[1] + E[5] * x[2],
        E[6] * x[0] + E[7] * x[1] + E[8] * x[2],
    )


def unrotate(E: Flat, x: Flat) -> Flat:
    """Eᵀ x."""
    return (
        E[0] * x[0] + E[3] * x[1] + E[6] * x[2],
        E[1] * x[0] + E[4] * x[1] + E[7] * x[2],
        E[2] * x[0] + E[5] * x[1] + E[8] * x[2],
    )


def add(x: Flat, y: Flat) -> Flat:
    return (x[0] + y[0], x[1] + y[1], x[2] + y[2], x[3] + y[3], x[4] + y[4], x[5] + y[5])


def plus(x: Flat, y: Flat) -> Flat:
    """Of as many numbers as there are."""
    return tuple(a + b for a, b in zip(x, y, strict=True))


def motion_to_child(E: Flat, r: Flat, v: Flat) -> Flat:
    """X v."""
    w = (v[0], v[1], v[2])
    t = cross(r, w)
    a = rotate(E, w)
    b = rotate(E, (v[3] - t[0], v[4] - t[1], v[5] - t[2]))
    return (a[0], a[1], a[2], b[0], b[1], b[2])


def motion_to_parent(E: Flat, r: Flat, v: Flat) -> Flat:
    """X⁻¹ v."""
    w = unrotate(E, (v[0], v[1], v[2]))
    u = unrotate(E, (v[3], v[4], v[5]))
    t = cross(r, w)
    return (w[0], w[1], w[2], u[0] + t[0], u[1] + t[1], u[2] + t[2])


def force_to_parent(E: Flat, r: Flat, f: Flat) -> Flat:
    """Xᵀ f."""
    n = unrotate(E, (f[0], f[1], f[2]))
    l = unrotate(E, (f[3], f[4], f[5]))
    t = cross(r, l)
    return (n[0] + t[0], n[1] + t[1], n[2] + t[2], l[0], l[1], l[2])


def force_to_child(E: Flat, r: Flat, f: Flat) -> Flat:
    """X* f, the inverse of `force_to_parent`."""
    l = (f[3], f[4], f[5])
    t = cross(r, l)
    a = rotate(E, (f[0] - t[0], f[1] - t[1], f[2] - t[2]))
    b = rotate(E, l)
    return (a[0], a[1], a[2], b[0], b[1], b[2])


def compose(E: Flat, r: Flat, F: Flat, s: Flat) -> Transform:
    """The transform (E, r) followed by (F, s): (F E, r + Eᵀ s)."""
    a = unrotate(E, (F[0], F[1], F[2]))
    b = unrotate(E, (F[3], F[4], F[5]))
    c = unrotate(E, (F[6], F[7], F[8]))
    t = unrotate(E, s)
    return (a[0], a[1], a[2], b[0], b[1], b[2], c[0], c[1], c[2]), (
        r[0] + t[0],
        r[1] + t[1],
        r[2] + t[2],
    )


def inertia_times(I: Flat, v: Flat) -> Flat:
    """I v: the momentum of motion v."""
    m = I[0]
    h = (I[1], I[2], I[3])
    w = (v[0], v[1], v[2])
    u = (v[3], v[4], v[5])
    s = cross(h, u)
    t = cross(h, w)
    return (
        I[4] * w[0] + I[7] * w[1] + I[8] * w[2] + s[0],
        I[7] * w[0] + I[5] * w[1] + I[9] * w[2] + s[1],
        I[8] * w[0] + I[9] * w[1] + I[6] * w[2] + s[2],
        m * u[0] - t[0],
        m * u[1] - t[1],
        m * u[2] - t[2],
    )


def joint_momentum(I: Flat, ang: Scalar, lin: Scalar) -> Flat:
    """I S: the momentum of a unit velocity of the joint."""
    return (
        I[8] * ang + I[2] * lin,
        I[9] * ang - I[1] * lin,
        I[6] * ang,
        -I[2] * ang,
        I[1] * ang,
        I[0] * lin,
    )


def cross_motion(v: Flat, m: Flat) -> Flat:
    """v × m."""
    w = (v[0], v[1], v[2])
    a = cross(w, (m[0], m[1], m[2]))
    b = cross((v[3], v[4], v[5]), (m[0], m[1], m[2]))
    c = cross(w, (m[3], m[4], m[5]))
    return (a[0], a[1], a[2], b[0] + c[0], b[1] + c[1], b[2] + c[2])


def cross_force(v: Flat, f: Flat) -> Flat:
    """v ×* f."""
    w = (v[0], v[1], v[2])
    a = cross(w, (f[0], f[1], f[2]))
    b = cross((v[3], v[4], v[5]), (f[3], f[4], f[5]))
    c = cross(w, (f[3], f[4], f[5]))
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], c[0], c[1], c[2])


def across_joint(E: Flat, r: Flat, s: Scalar, c: Scalar, d: Scalar) -> Transform:
    """From parent to child across a joint: a turn about z, given by its sine and cosine, and a
    shift d along it after the fixed transform (E, r).
    """
    return (
        c * E[0] + s * E[3],
        c * E[1] + s * E[4],
        c * E[2] + s * E[5],
        c * E[3] - s * E[0],
        c * E[4] - s * E[1],
        c * E[5] - s * E[2],
        E[6],
        E[7],
        E[8],
    ), (r[0] + E[6] * d, r[1] + E[7] * d, r[2] + E[8] * d)


def joint_velocity(
    E: Flat, r: Flat, ang: Scalar, lin: Scalar, v: Scalar, vp: Flat
) -> tuple[Flat, Flat]:
    """Velocity of a body from its parent's, X vp + S q̇, and its bias v × S q̇."""
    x = ang * v
    y = lin * v
    w = motion_to_child(E, r, vp)
    own = (w[0], w[1], w[2] + x, w[3], w[4], w[5] + y)
    return own, (w[1] * x, -(w[0] * x), 0.0, w[4] * x + w[1] * y, -(w[3] * x + w[0] * y), 0.0)


def joint_motion(
    E: Flat,
    r: Flat,
    ang: Scalar,
    lin: Scalar,
    v: Scalar,
    a: Scalar,
    vp: Flat,
    ap: Flat,
) -> tuple[Flat, Flat]:
    """Velocity and acceleration of a body from its parent's: v = X vp + S q̇, a = X ap + S q̈ + v ×
    S q̇.
    """
    x = ang * v
    y = lin * v
    w = motion_to_child(E, r, vp)
    b = motion_to_child(E, r, ap)
    return (w[0], w[1], w[2] + x, w[3], w[4], w[5] + y), (
        b[0] + w[1] * x,
        b[1] - w[0] * x,
        b[2] + ang * a,
        b[3] + (w[4] * x + w[1] * y),
        b[4] - (w[3] * x + w[0] * y),
        b[5] + lin * a,
    )


def jet_after(E: Flat, r: Flat, v: Flat, a: Flat, vp: Flat, ap: Flat) -> tuple[Flat, Flat]:
    """Velocity and acceleration at the end of a block that turns rest into (v, a) across (E, r),
    when it starts from (vp, ap).
    """
    u = motion_to_child(E, r, vp)
    return add(u, v), add(add(motion_to_child(E, r, ap), cross_motion(u, v)), a)


def body_force(I: Flat, v: Flat, a: Flat) -> Flat:
    """I a + v ×* I v."""
    return add(inertia_times(I, a), cross_force(v, inertia_times(I, v)))


def inertia_to_parent(E: Flat, r: Flat, I: Flat) -> Flat:
    """Xᵀ I X of a rigid body's inertia, as 10 numbers."""
    m = I[0]
    h = unrotate(E, (I[1], I[2], I[3]))
    # columns of J E, then Eᵀ of each
    c0 = unrotate(
        E,
        (
            I[4] * E[0] + I[7] * E[3] + I[8] * E[6],
            I[7] * E[0] + I[5] * E[3] + I[9] * E[6],
            I[8] * E[0] + I[9] * E[3] + I[6] * E[6],
        ),
    )
    c1 = unrotate(
        E,
        (
            I[4] * E[1] + I[7] * E[4] + I[8] * E[7],
            I[7] * E[1] + I[5] * E[4] + I[9] * E[7],
            I[8] * E[1] + I[9] * E[4] + I[6] * E[7],
        ),
    )
    c2 = unrotate(
        E,
        (
            I[4] * E[2] + I[7] * E[5] + I[8] * E[8],
            I[7] * E[2] + I[5] * E[5] + I[9] * E[8],
            I[8] * E[2] + I[9] * E[5] + I[6] * E[8],
        ),
    )
    g = (h[0] + m * r[0], h[1] + m * r[1], h[2] + m * r[2])
    s = (h[0] + g[0], h[1] + g[1], h[2] + g[2])
    xx, yy, zz = r[0] * s[0], r[1] * s[1], r[2] * s[2]
    return (
        m,
        g[0],
        g[1],
        g[2],
        c0[0] + (yy + zz),
        c1[1] + (xx + zz),
        c2[2] + (xx + yy),
        c0[1] - (h[0] * r[1] + r[0] * g[1]),
        c0[2] - (h[0] * r[2] + r[0] * g[2]),
        c1[2] - (h[1] * r[2] + r[1] * g[2]),
    )
