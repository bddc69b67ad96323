"""An equivalent model with fewer numbers: the same joint-space dynamics, from frames and inertias
in which many constants vanish.

Three exact steps. *Align*: turn each body's frame so that a joint with an axis moves about or along
z. *Slide*: move a body's origin along its joint's axis (for a prismatic joint anywhere), so that
offsets vanish. *Regroup*: hand the parts of a body's inertia that its joint cannot move to the
parent: with the pseudo-inertia J = [Σ h; hᵀ m] and a joint motion Ẋ, the part with Ẋ J = 0.

Only joint-space quantities survive: masses, centres and frames of bodies are no longer the robot's
own. Named frames keep their place.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any

import numpy as np

from rigidgrad.model.model import WORLD, Frame, Joint, Model
from rigidgrad.model.pose import Pose, pose_from_matrix
from rigidgrad.spatial import skew

# positions and inertias this small beside the robot's size are rounding of the steps above
_ROUNDING = 1e-15


def canonical(model: Model) -> Model:
    """An equivalent model for dynamics in joint space."""
    moves = moved_frames(model)
    placements = [_placement(model, i, moves) for i in model.bodies]
    inverses = [np.linalg.inv(m) for m in moves]
    inertias = [
        inv @ pseudo_inertia(x) @ inv.T for inv, x in zip(inverses, model.inertias, strict=True)
    ]
    for i in reversed(model.bodies):
        rows = _unmoved(_about_z(model.joints[i]))
        part = np.zeros((4, 4))
        part[np.ix_(rows, rows)] = inertias[i][np.ix_(rows, rows)]
        inertias[i] = inertias[i] - part
        if model.parents[i] != WORLD:
            inertias[model.parents[i]] = (
                inertias[model.parents[i]] + placements[i] @ part @ placements[i].T
            )
    frames = {
        name: (
            f
            if f.body == WORLD
            else Frame(
                name, f.body, pose_from_matrix(inverses[f.body] @ f.placement.matrix()), f.kind
            )
        )
        for name, f in model.frames.items()
    }
    size = max((abs(p[:3, 3]).max() for p in placements), default=1.0) or 1.0
    weight = max((abs(x).max() for x in inertias), default=1.0) or 1.0
    return dataclasses.replace(
        model,
        joints=tuple(_about_z(j) for j in model.joints),
        placements=tuple(_clean_pose(p, size) for p in placements),
        inertias=tuple(_compact(x, weight) for x in inertias),
        frames=MappingProxyType(frames),
    )


def moved_frames(model: Model) -> list[np.ndarray]:
    """The frame of each body of the equivalent model in the body's own one, (4, 4) each."""
    turns = [_turn(j.axis) if j.kind.has_axis else np.eye(3) for j in model.joints]
    moves = []
    for turn, shift in zip(turns, _slide(model, turns), strict=True):
        move = np.eye(4)
        move[:3, :3], move[:3, 3] = turn, turn @ shift
        moves.append(move)
    return moves


def _about_z(joint: Joint) -> Joint:
    return dataclasses.replace(joint, axis=(0.0, 0.0, 1.0)) if joint.kind.has_axis else joint


def _unmoved(joint: Joint) -> list[int]:
    """Which of the pseudo-inertia's rows x, y, z, 1 a joint's motion leaves alone: Ẋ = [ω× v; 0 0]
    has zeros in those columns.
    """
    moved = np.zeros(4, bool)
    for w, v in joint.kind.subspace(joint):
        moved[:3] |= np.any(skew(w), axis=0)
        moved[3] |= np.any(v)
    return np.flatnonzero(~moved).tolist()


def _turn(axis: tuple[float, ...]) -> np.ndarray:
    """A rotation that takes z to the axis; of zeros and ones where the axis is a coordinate
    axis.
    """
    k = int(np.argmax(np.abs(axis)))
    if abs(axis[k]) == 1.0:
        order = np.roll(np.eye(3), k + 1, axis=0)  # a cyclic permutation: z to axis k
        turned: np.ndarray = order if axis[k] > 0 else order @ np.diag((1.0, -1.0, -1.0))
        return turned
    z = np.array(axis)
    x = np.cross(np.eye(3)[int(np.argmin(np.abs(axis)))], z)
    x /= np.linalg.norm(x)
    return np.column_stack((x, np.cross(z, x), z))


def _placement(model: Model, i: int, moves: list[np.ndarray]) -> np.ndarray:
    base = np.eye(4) if model.parents[i] == WORLD else np.linalg.inv(moves[model.parents[i]])
    placed: np.ndarray = base @ model.placements[i].matrix() @ moves[i]
    return placed


def _slide(model: Model, turns: list[np.ndarray]) -> list[np.ndarray]:
    """Shifts of the bodies' origins, in their turned frames, chosen one after the other to leave
    few non-zero offsets.
    """
    shifts = [np.zeros(3) for _ in model.joints]
    rotations, offsets = [], []
    for i, pose in enumerate(model.placements):
        base = np.eye(3) if model.parents[i] == WORLD else turns[model.parents[i]]
        rotations.append(base.T @ np.array(pose.R) @ turns[i])
        offsets.append(base.T @ np.array(pose.p))

    def offset(i: int) -> np.ndarray:
        parent = model.parents[i]
        own = offsets[i] + rotations[i] @ shifts[i]
        between: np.ndarray = own if parent == WORLD else own - shifts[parent]
        return between

    def cost(i: int) -> int:
        near = [k for k in (i, *model.children[i]) if model.parents[k] != WORLD]
        return sum(int(np.count_nonzero(abs(offset(k)) > 1e-12)) for k in near)

    # an origin that slides far away to meet an axis that is nearly parallel would cost digits
    reach = 2 * max((np.linalg.norm(x) for x in offsets), default=0.0)
    for sweep in range(4):
        order = list(model.bodies) if sweep % 2 == 0 else list(reversed(model.bodies))
        for i in order:
            for candidate in _shift_candidates(model, i, shifts, rotations, offsets):
                if np.linalg.norm(candidate) > reach:
                    continue
                before, old = cost(i), shifts[i]
                shifts[i] = candidate
                if cost(i) >= before:
                    shifts[i] = old
    return shifts


def _shift_candidates(
    model: Model,
    i: int,
    shifts: list[np.ndarray],
    rotations: list[np.ndarray],
    offsets: list[np.ndarray],
) -> list[np.ndarray]:
    """Shifts that would make an offset of body i, or of a child, vanish in some coordinate."""
    joint = model.joints[i]
    if not joint.kind.has_axis:
        return []
    z = np.array((0.0, 0.0, 1.0))
    parent = model.parents[i]
    at = offsets[i] - (0.0 if parent == WORLD else shifts[parent])
    children = [offsets[c] + rotations[c] @ shifts[c] for c in model.children[i]]
    # it does not turn: any origin will do
    if not any(any(w) for w, _ in joint.kind.subspace(joint)):
        return [-rotations[i].T @ at, *children]
    direction = rotations[i] @ z
    along = (
        [-at[k] / direction[k] for k in range(3) if abs(direction[k]) > 1e-9]
        if parent != WORLD
        else []
    )
    return [z * x for x in (*along, *(c[2] for c in children))]


def pseudo_inertia(inertia: tuple[Any, ...]) -> np.ndarray:
    """[Σ h; hᵀ m] with Σ = ½ tr(I)·1 - I."""
    m, h, (xx, xy, yy, xz, yz, zz) = inertia
    rotational = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    result = np.empty((4, 4))
    result[:3, :3] = np.trace(rotational) / 2 * np.eye(3) - rotational
    result[:3, 3] = result[3, :3] = h
    result[3, 3] = m
    return result


def _compact(pseudo: np.ndarray, weight: float) -> tuple[Any, ...]:
    clean = np.where(abs(pseudo) < _ROUNDING * weight, 0.0, pseudo)
    sigma = clean[:3, :3]
    rotational = np.trace(sigma) * np.eye(3) - sigma
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = (rotational + 0.0).tolist()
    return float(clean[3, 3]), tuple((clean[:3, 3] + 0.0).tolist()), (xx, xy, yy, xz, yz, zz)


def _clean_pose(matrix: np.ndarray, size: float) -> Pose:
    pose = pose_from_matrix(matrix)
    return Pose(pose.R, tuple(0.0 if abs(x) < _ROUNDING * size else x for x in pose.p))
