"""Where all bodies of a robot are, at one position or many, without compiling anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import body_transforms
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD, Model
from rigidgrad.spatial import IDENTITY, Transform


def body_poses(model: Model, q: np.ndarray) -> np.ndarray:
    """Placements in the world (…, bodies + 1, 4, 4) at q (…, nq); the last is the world itself, so
    that body WORLD = -1 finds it.
    """
    X: list[Transform] = []
    for i, step in enumerate(body_transforms(model, tuple(np.moveaxis(q, -1, 0)))):
        X.append(step @ (X[model.parents[i]] if model.parents[i] != WORLD else IDENTITY))
    poses = np.zeros((*q.shape[:-1], len(X) + 1, 4, 4))
    poses[..., 3, 3] = 1.0
    for i, (E, r) in enumerate([*X, IDENTITY]):
        for row in range(3):
            poses[..., i, row, 3] = r[row]
            for column in range(3):
                poses[..., i, row, column] = E[column][row]
    return poses


def frame_path(
    model: Model, poses: np.ndarray, frame: str, offset: Any = (0.0, 0.0, 0.0)
) -> np.ndarray:
    """A point of a frame in the world (…, 3), from the placements of the bodies."""
    found = model.frame(frame)
    point = found.placement.matrix() @ np.append(np.asarray(offset, dtype=float), 1.0)
    points: np.ndarray = (poses[..., found.body, :, :] @ point)[..., :3]
    return points


def posture(model: Model, q: Any = None) -> np.ndarray:
    """A position (nq,) to show: as given, or neutral, moved into the limits."""
    from rigidgrad.algorithms.manifold import neutral

    if q is None:
        found: np.ndarray = np.clip(
            np.array(neutral(model), dtype=float), model.limits.lower, model.limits.upper
        )
        return found
    try:
        array = np.array(q, dtype=float)
    except (TypeError, ValueError):
        raise InputError("a position is an array of numbers") from None
    if array.shape != (model.nq,) or not np.all(np.isfinite(array)):
        raise InputError(
            f"a position of {model.name!r} is {model.nq} finite numbers; this has shape"
            f" {array.shape}"
        )
    return array


def quaternions(rotations: np.ndarray) -> np.ndarray:
    """Unit quaternions wxyz (…, 4) of rotation matrices (…, 3, 3), by the largest of the four
    numbers, which loses no digits.
    """
    R = np.asarray(rotations, dtype=float)
    trace = R[..., 0, 0] + R[..., 1, 1] + R[..., 2, 2]
    # 4w², 4x², 4y², 4z²
    squares = np.stack([trace, *(2 * R[..., k, k] - trace for k in range(3))], axis=-1) + 1
    # 4wx, 4wy, 4wz
    turn = [R[..., (k + 2) % 3, (k + 1) % 3] - R[..., (k + 1) % 3, (k + 2) % 3] for k in range(3)]
    pair = [R[..., k, (k + 1) % 3] + R[..., (k + 1) % 3, k] for k in range(3)]  # 4xy, 4yz, 4zx
    products = np.stack(
        [
            np.stack([squares[..., 0], turn[0], turn[1], turn[2]], axis=-1),
            np.stack([turn[0], squares[..., 1], pair[0], pair[2]], axis=-1),
            np.stack([turn[1], pair[0], squares[..., 2], pair[1]], axis=-1),
            np.stack([turn[2], pair[2], pair[1], squares[..., 3]], axis=-1),
        ],
        axis=-2,
    )  # row k: 4 k·(w, x, y, z)
    best = np.argmax(squares, axis=-1)[..., None, None]
    row = np.take_along_axis(products, np.broadcast_to(best, (*best.shape[:-1], 4)), axis=-2)[
        ..., 0, :
    ]
    unit: np.ndarray = row / np.linalg.norm(row, axis=-1, keepdims=True)
    return unit
