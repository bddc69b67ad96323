"""A rigid placement of one frame in another, in plain floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.errors import InputError
from rigidgrad.rotations import rotation_from_quaternion

Row = tuple[float, ...]  # three
Numbers = Sequence[float] | np.ndarray


class Pose(NamedTuple):
    """R turns child coordinates into parent coordinates; p is the child's origin in parent
    coordinates.
    """

    R: tuple[Row, ...]
    p: Row

    def __matmul__(self, other: Pose) -> Pose:
        if self == IDENTITY_POSE:
            return other
        if other == IDENTITY_POSE:
            return self
        return pose_from_matrix(self.matrix() @ other.matrix())

    def inverse(self) -> Pose:
        """The parent in the child."""
        if self == IDENTITY_POSE:
            return self
        R = np.array(self.R).T
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = R, -R @ np.array(self.p)
        return pose_from_matrix(matrix)

    def matrix(self) -> np.ndarray:
        """The homogeneous 4x4 matrix."""
        result = np.eye(4)
        result[:3, :3] = self.R
        result[:3, 3] = self.p
        return result


IDENTITY_POSE = Pose(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0))

# Entries of a rotation this near to 0 or ±1 are rounding of sin and cos at multiples of a right
# angle.
_ROUNDING = 1e-15


def _snapped(x: float) -> float:
    if abs(x) < _ROUNDING:
        return 0.0
    if abs(abs(x) - 1.0) < _ROUNDING:
        return math.copysign(1.0, x)
    return float(x)


def pose_from_matrix(matrix: np.ndarray) -> Pose:
    rotation: Any = tuple(tuple(_snapped(x) for x in row) for row in matrix[:3, :3])
    return Pose(rotation, (float(matrix[0, 3]), float(matrix[1, 3]), float(matrix[2, 3])))


def rotation_from_rpy(rpy: Numbers) -> np.ndarray:
    """Rz(yaw) Ry(pitch) Rx(roll)."""
    (sr, cr), (sp, cp), (sy, cy) = ((math.sin(x), math.cos(x)) for x in rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


Placement = Pose | ArrayLike  # what `as_pose` reads


def pose_from_xyz_rpy(xyz: Numbers = (0.0, 0.0, 0.0), rpy: Numbers = (0.0, 0.0, 0.0)) -> Pose:
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_from_rpy(rpy)
    matrix[:3, 3] = xyz
    return pose_from_matrix(matrix)


def pose_from_quaternion(position: Numbers, quaternion: Numbers) -> Pose:
    """Of a quaternion (x, y, z, w) of any length but zero."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_from_quaternion(*(np.array(quaternion) / math.hypot(*quaternion)))
    matrix[:3, 3] = position
    return pose_from_matrix(matrix)


def as_pose(placement: Placement) -> Pose:
    """A placement given by a user: a Pose, a homogeneous 4x4 matrix, or a position of three
    numbers.
    """
    if isinstance(placement, Pose):
        return placement
    try:
        array = np.asarray(placement, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a placement is a 4x4 matrix or three numbers, not {placement!r}"
        ) from error
    if not np.all(np.isfinite(array)):
        raise InputError("a placement must be finite, but holds NaN or infinity")
    if array.shape == (3,):
        return Pose(IDENTITY_POSE.R, (float(array[0]), float(array[1]), float(array[2])))
    if array.shape != (4, 4):
        raise InputError(
            f"a placement is a 4x4 matrix or three numbers; this has shape {array.shape}"
        )
    rotation = array[:3, :3]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-6) or np.linalg.det(rotation) < 0:
        raise InputError("the upper left 3x3 part of a placement must be a rotation")
    if not np.allclose(array[3], (0, 0, 0, 1)):
        raise InputError("the last row of a placement must be 0 0 0 1")
    return pose_from_matrix(array)
