"""Featherstone's model of a branched arm, its inverse dynamics, and its mass matrix with bias
forces, in plain NumPy: our own words for what spatial_v2 calls autoTree, ID and HandC, after *Rigid
Body Dynamics Algorithms* (2008). It shares no code and no data layout with rigidgrad.

Vectors are [angular, linear]; X[i] takes motions from the parent of body i to body i; bodies are
numbered from 0, and -1 is the fixed base.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, floor, sin

import numpy as np

S = np.array([0.0, 0, 1, 0, 0, 0])  # every joint turns about z


@dataclass
class Arm:
    parent: list[int]
    before: list[np.ndarray]  # the fixed part of a joint's transform
    inertia: list[np.ndarray]
    gravity: np.ndarray


def tilde(r):
    """r × (table 2.1)."""
    return np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])


def turned(E):
    """Motions in axes that E turns into (2.21)."""
    return np.block([[E, np.zeros((3, 3))], [np.zeros((3, 3)), E]])


def moved(r):
    """Motions about a point at r (2.22)."""
    return np.block([[np.eye(3), np.zeros((3, 3))], [-tilde(r), np.eye(3)]])


def about_x(a):
    return turned(np.array([[1, 0, 0], [0, cos(a), sin(a)], [0, -sin(a), cos(a)]]))


def about_z(a):
    return turned(np.array([[cos(a), sin(a), 0], [-sin(a), cos(a), 0], [0, 0, 1]]))


def cross_motion(v):
    """v × on motions (2.31)."""
    return np.block([[tilde(v[:3]), np.zeros((3, 3))], [tilde(v[3:]), tilde(v[:3])]])


def rigid(m, c, about_c):
    """The inertia of a body with its centre at c (2.63)."""
    C = tilde(c)
    return np.block([[about_c + m * C @ C.T, m * C], [m * C.T, m * np.eye(3)]])


def arm(bodies, branching, skew, gravity):
    """Section B.2 of spatial_v2's manual: body i hangs on floor((i - 2 + ceil(b)) / b), i from 1;
    links are thin-walled tubes 1 m long, 5 cm in radius and 1 kg heavy.
    """
    parent, before, inertia = [], [], []
    tube = rigid(1.0, np.array([0.5, 0, 0]), np.diag([0.0025, 1.015 / 12, 1.015 / 12]))
    for i in range(1, bodies + 1):
        p = floor((i - 2 + ceil(branching)) / branching)
        parent.append(p - 1)
        before.append(about_x(skew) @ moved(np.array([1.0, 0, 0])) if p > 0 else np.eye(6))
        inertia.append(tube)
    return Arm(parent, before, inertia, np.asarray(gravity, float))


def newton_euler(arm, q, v, a):
    """Joint forces (table 5.1)."""
    n = len(q)
    X, vel, acc, f, tau = [None] * n, [None] * n, [None] * n, [None] * n, np.zeros(n)
    still, base = np.zeros(6), np.concatenate([np.zeros(3), -arm.gravity])
    for i, p in enumerate(arm.parent):
        X[i] = about_z(q[i]) @ arm.before[i]
        vel[i] = X[i] @ (vel[p] if p >= 0 else still) + S * v[i]
        acc[i] = X[i] @ (acc[p] if p >= 0 else base) + S * a[i] + cross_motion(vel[i]) @ (S * v[i])
        momentum = arm.inertia[i] @ vel[i]
        f[i] = arm.inertia[i] @ acc[i] - cross_motion(vel[i]).T @ momentum
    for i in reversed(range(n)):
        tau[i] = S @ f[i]
        if arm.parent[i] >= 0:
            f[arm.parent[i]] = f[arm.parent[i]] + X[i].T @ f[i]
    return tau


def matrix_and_bias(arm, q, v):
    """H and C of H q̈ + C = τ (table 6.2, and 5.1 without accelerations)."""
    n = len(q)
    X = [about_z(q[i]) @ arm.before[i] for i in range(n)]
    composite = [np.array(I) for I in arm.inertia]
    H = np.zeros((n, n))
    for i in reversed(range(n)):
        p = arm.parent[i]
        if p >= 0:
            composite[p] += X[i].T @ composite[i] @ X[i]
        force = composite[i] @ S
        H[i, i] = S @ force
        j = i
        while arm.parent[j] >= 0:
            force = X[j].T @ force
            j = arm.parent[j]
            H[i, j] = H[j, i] = S @ force
    return H, newton_euler(arm, q, v, np.zeros(n))
