"""Where bodies are, how they move, and what energy and momentum they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rigidgrad.runtime.loops import kernel
from rigidgrad.trees.algebra import Flat, inertia_times, joint_velocity
from rigidgrad.trees.lanes import joint_transform
from rigidgrad.trees.operators import Memory, Place, State, of_placements, place_at, ready
from rigidgrad.trees.packs import numbers, put_numbers
from rigidgrad.trees.sequential import outwards
from rigidgrad.trees.states import Joints, base_rotation, joints, result
from rigidgrad.trees.tree import Tree

if TYPE_CHECKING:
    from rigidgrad.runtime.arrays import Numbers


class Placements(NamedTuple):
    """Bodies in the world."""

    rotation: np.ndarray
    """(…, N, 3, 3) turns body into world coordinates."""
    position: np.ndarray
    """(…, N, 3): the body's origin."""


class Energy(NamedTuple):
    """In joules."""

    kinetic: np.ndarray
    """(…), armature included."""
    potential: np.ndarray
    """(…), 0 at the world's origin."""


def forward_kinematics(tree: Tree, q: Numbers, *, check: bool = False) -> Placements:
    """Where every body is. `tree`, `q` and `check` as for `rnea`."""
    state = joints(tree, check=check, q=q)
    R, p = placements(tree, state)
    if tree.turn is not None:
        R = R @ tree.turn.astype(R.dtype)
    return Placements(result(state.batch, R), result(state.batch, p))


def energy(tree: Tree, q: Numbers, v: Numbers, *, check: bool = False) -> Energy:
    """Kinetic energy, armature included, and potential energy, 0 at the world's origin. `tree`,
    `q`, `v` and `check` as for `rnea`.
    """
    sums, state, v_rows = _sums(tree, q, v, check)
    kinetic = sums[:, 0]
    if tree.has_armature:
        kinetic = kinetic + 0.5 * (tree.armature * v_rows**2).sum(axis=1)
    potential = -(sums[:, 2:5] @ np.array(tree.gravity))
    dtype = state.batch.dtype
    return Energy(
        result(state.batch, kinetic.astype(dtype)), result(state.batch, potential.astype(dtype))
    )


def center_of_mass(tree: Tree, q: Numbers, *, check: bool = False) -> np.ndarray:
    """(…, 3), in the world. `tree`, `q` and `check` as for `rnea`."""
    sums, state, _ = _sums(tree, q, np.zeros(tree.nv), check)
    return result(state.batch, (sums[:, 2:5] / sums[:, 1:2]).astype(state.batch.dtype))


def centroidal_momentum(tree: Tree, q: Numbers, v: Numbers, *, check: bool = False) -> np.ndarray:
    """(…, 6), linear first, about the centre of mass, in world axes. `tree`, `q`, `v` and `check`
    as for `rnea`.
    """
    sums, state, _ = _sums(tree, q, v, check)
    linear, angular = sums[:, 8:11], sums[:, 5:8]
    centre = sums[:, 2:5] / sums[:, 1:2]
    about = angular - np.cross(centre, linear)
    return result(state.batch, np.concatenate([linear, about], axis=1).astype(state.batch.dtype))


def placements(tree: Tree, state: Joints) -> tuple[np.ndarray, np.ndarray]:
    """R (B, N, 3, 3) and p (B, N, 3) of the frames that kernels use."""
    q = state.inputs[0]
    count = len(q)
    X = np.empty((count, tree.bodies + 1, 12), q.dtype)
    start = X[:, 0]
    start[:] = 0
    start[:, [0, 4, 8]] = 1
    if tree.floating_base:
        rows = state.batch.rows["q"]
        start[:, :9] = np.swapaxes(base_rotation(tree, rows), 1, 2).reshape(count, 9)
        start[:, 9:] = rows[:, :3] @ tree.base_rotation.T + tree.base_position
    _absolute(tree.parents, tree.topology.order, tree.plan.rows(q.dtype), q, X)
    R = X[:, 1:, :9].reshape(count, tree.bodies, 3, 3)
    return np.swapaxes(R, 2, 3), np.ascontiguousarray(X[:, 1:, 9:])


@kernel
def _absolute(
    parents: np.ndarray, order: np.ndarray, data: np.ndarray, q: np.ndarray, X: np.ndarray
) -> None:
    """Transforms from the world to every body."""
    for b in range(len(q)):
        outwards(parents, order, (of_placements, ready, place_at), (q[b], data, X[b]))


def _sums(tree: Tree, q: Numbers, v: Numbers, check: bool) -> tuple[np.ndarray, Joints, np.ndarray]:
    """Kinetic energy, mass, mass times centre, momentum [angular, linear] about the origin: (B,
    11), in float64.
    """
    state = joints(tree, check=check, gravity=False, q=q, v=v)
    wide = tuple(x.astype(np.float64) for x in state.inputs)
    R, p = placements(tree, state._replace(inputs=wide))
    out = np.zeros((len(wide[0]), 11))
    work = np.empty((tree.bodies + 1, 6))
    _collect(
        tree.parents,
        tree.topology.order,
        tree.plan.rows(np.float64),
        wide[0],
        wide[1],
        state.base.astype(np.float64),
        R,
        p,
        work,
        out,
    )
    return out, state, wide[1]


@kernel
def _collect(
    parents: np.ndarray,
    order: np.ndarray,
    data: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    base: np.ndarray,
    R: np.ndarray,
    p: np.ndarray,
    work: np.ndarray,
    out: np.ndarray,
) -> None:
    for b in range(len(q)):
        put_numbers(work, 0, numbers(base, b * 12, 6))
        state = (q[b], v[b], data, work, R[b], p[b], out[b])
        outwards(parents, order, (_of_velocities, ready, _measure), state)


@kernel
def _of_velocities(state: State) -> Memory:
    return state[3], 6, 0, 6


@kernel
def _measure(parent: Flat, place: Place, state: State) -> Flat:
    """A body's velocity; its energy, mass and momentum are added up."""
    q, v, data, _, R, p, out = state
    i = place[0]
    c = numbers(data, i * 24, 24)
    E, r = joint_transform(c[0:9], c[9:12], c[22], c[23], q[i])
    vel, _bias = joint_velocity(E, r, c[22], c[23], v[i], parent)
    h = inertia_times(c[12:22], vel)
    for j in range(6):
        out[0] += 0.5 * vel[j] * h[j]
    A = R[i]
    out[1] += c[12]
    for x in range(3):
        turned = A[x, 0] * h[0] + A[x, 1] * h[1] + A[x, 2] * h[2]
        force = A[x, 0] * h[3] + A[x, 1] * h[4] + A[x, 2] * h[5]
        out[2 + x] += A[x, 0] * c[13] + A[x, 1] * c[14] + A[x, 2] * c[15] + c[12] * p[i, x]
        out[5 + x] += turned
        out[8 + x] += force
    f0 = A[0, 0] * h[3] + A[0, 1] * h[4] + A[0, 2] * h[5]
    f1 = A[1, 0] * h[3] + A[1, 1] * h[4] + A[1, 2] * h[5]
    f2 = A[2, 0] * h[3] + A[2, 1] * h[4] + A[2, 2] * h[5]
    out[5] += p[i, 1] * f2 - p[i, 2] * f1
    out[6] += p[i, 2] * f0 - p[i, 0] * f2
    out[7] += p[i, 0] * f1 - p[i, 1] * f0
    return vel
