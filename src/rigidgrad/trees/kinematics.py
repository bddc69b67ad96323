"""Where bodies are, how they move, and what energy and momentum they have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import compose, inertia_times, joint_motion
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.states import Joints, base_rotation, joints, result
from rigidgrad.trees.tree import Tree


class Placements(NamedTuple):
    """Bodies in the world: rotation (…, N, 3, 3) turns body into world coordinates, position (…, N, 3) is the body's origin."""

    rotation: Any
    position: Any


class Energy(NamedTuple):
    """In joules."""

    kinetic: Any
    potential: Any


def forward_kinematics(tree: Tree, q, *, check: bool = False) -> Placements:
    """Where every body is."""
    state = joints(tree, check=check, q=q)
    R, p = placements(tree, state)
    if tree.turn is not None:
        R = R @ tree.turn.astype(R.dtype)
    return Placements(result(state.batch, R), result(state.batch, p))


def energy(tree: Tree, q, v, *, check: bool = False) -> Energy:
    """Kinetic energy, armature included, and potential energy, 0 at the world's origin."""
    sums, state, v_rows = _sums(tree, q, v, check)
    kinetic = sums[:, 0]
    if tree.has_armature:
        kinetic = kinetic + 0.5 * (tree.armature * v_rows**2).sum(axis=1)
    potential = -(sums[:, 2:5] @ np.array(tree.gravity))
    dtype = state.batch.dtype
    return Energy(result(state.batch, kinetic.astype(dtype)), result(state.batch, potential.astype(dtype)))


def center_of_mass(tree: Tree, q, *, check: bool = False) -> Any:
    """(…, 3), in the world."""
    sums, state, _ = _sums(tree, q, np.zeros(tree.nv), check)
    return result(state.batch, (sums[:, 2:5] / sums[:, 1:2]).astype(state.batch.dtype))


def centroidal_momentum(tree: Tree, q, v, *, check: bool = False) -> Any:
    """(…, 6), linear first, about the centre of mass, in world axes."""
    sums, state, _ = _sums(tree, q, v, check)
    linear, angular = sums[:, 8:11], sums[:, 5:8]
    centre = sums[:, 2:5] / sums[:, 1:2]
    about = angular - np.cross(centre, linear)
    return result(state.batch, np.concatenate([linear, about], axis=1).astype(state.batch.dtype))


def placements(tree: Tree, state: Joints) -> tuple[np.ndarray, np.ndarray]:
    """R (B, N, 3, 3) and p (B, N, 3) of the frames that kernels use."""
    q = state.inputs[0]
    count = len(q)
    X = np.empty((count, tree.bodies, 12), q.dtype)
    start = np.zeros((count, 12), q.dtype)
    start[:, [0, 4, 8]] = 1
    if tree.floating_base:
        rows = state.batch.rows["q"]
        start[:, :9] = np.swapaxes(base_rotation(tree, rows), 1, 2).reshape(count, 9)
        start[:, 9:] = rows[:, :3] @ tree.base_rotation.T + tree.base_position
    _absolute(tree.parents, tree.topology.order, tree.plan.rows(q.dtype), q, start, X)
    return np.swapaxes(X[:, :, :9].reshape(count, tree.bodies, 3, 3), 2, 3), X[:, :, 9:]


@kernel
def _absolute(parents, order, data, q, start, X):
    """Transforms from the world to every body."""
    n = len(parents)
    for b in range(len(q)):
        for k in range(n):
            i = order[k]
            p = parents[i]
            c = numbers(data, i * 24, 24)
            E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[b, i])
            x = numbers(X, (b * n + p) * 12, 12) if p >= 0 else numbers(start, b * 12, 12)
            F, s = compose(x[0:9], x[9:12], E, r)
            put_numbers(X, (b * n + i) * 12, F + s)


def _sums(tree: Tree, q, v, check: bool) -> tuple[np.ndarray, Joints, np.ndarray]:
    """Kinetic energy, mass, mass times centre, momentum [angular, linear] about the origin: (B, 11), in float64."""
    state = joints(tree, check=check, gravity=False, q=q, v=v)
    wide = tuple(x.astype(np.float64) for x in state.inputs)
    R, p = placements(tree, state._replace(inputs=wide))
    out = np.zeros((len(wide[0]), 11))
    work = np.empty((tree.bodies, 6))
    _collect(tree.parents, tree.topology.order, tree.plan.rows(np.float64), *wide, state.base.astype(np.float64), R, p, work, out)
    return out, state, wide[1]


@kernel
def _collect(parents, order, data, q, v, base, R, p, work, out):
    zero = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    for b in range(len(q)):
        for k in range(len(parents)):
            i = order[k]
            c = numbers(data, i * 24, 24)
            E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[b, i])
            vp = numbers(work, parents[i] * 6, 6) if parents[i] >= 0 else numbers(base, b * 12, 6)
            vel, _ = joint_motion(E, r, c[22], c[23], v[b, i], 0.0, vp, zero)
            put_numbers(work, i * 6, vel)
            h = inertia_times(c[12:22], vel)
            for j in range(6):
                out[b, 0] += 0.5 * vel[j] * h[j]
            A = R[b, i]
            out[b, 1] += c[12]
            for x in range(3):
                turned = A[x, 0] * h[0] + A[x, 1] * h[1] + A[x, 2] * h[2]
                force = A[x, 0] * h[3] + A[x, 1] * h[4] + A[x, 2] * h[5]
                out[b, 2 + x] += A[x, 0] * c[13] + A[x, 1] * c[14] + A[x, 2] * c[15] + c[12] * p[b, i, x]
                out[b, 5 + x] += turned
                out[b, 8 + x] += force
            f0 = A[0, 0] * h[3] + A[0, 1] * h[4] + A[0, 2] * h[5]
            f1 = A[1, 0] * h[3] + A[1, 1] * h[4] + A[1, 2] * h[5]
            f2 = A[2, 0] * h[3] + A[2, 1] * h[4] + A[2, 2] * h[5]
            out[b, 5] += p[b, i, 1] * f2 - p[b, i, 2] * f1
            out[b, 6] += p[b, i, 2] * f0 - p[b, i, 0] * f2
            out[b, 7] += p[b, i, 0] * f1 - p[b, i, 1] * f0
