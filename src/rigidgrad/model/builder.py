"""A robot described in Python, link by link and joint by joint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.model.description import (
    Description,
    FrameDescription,
    JointDescription,
    JointLimit,
    Link,
    Mimic,
    Visual,
)
from rigidgrad.model.joints import FIXED, joint_type
from rigidgrad.model.pose import as_pose, pose_from_xyz_rpy


def numbers(what: str, value: Any, count: int) -> tuple[float, ...]:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} is {count} numbers, not {value!r}") from None
    if array.shape != (count,) or not np.all(np.isfinite(array)):
        raise InputError(f"{what} is {count} finite numbers, not {value!r}")
    return tuple(array.tolist())


def number(what: str, value: Any, *, finite: bool = True) -> float:
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what} is a number, not {value!r}") from None
    if finite and not np.isfinite(result):
        raise InputError(f"{what} must be finite, not {value!r}")
    return result


class DescriptionBuilder:
    """Collects links, joints and frames; every method returns the builder, so that calls can be
    chained.
    """

    def __init__(self, name: str):
        self.name = str(name)
        self._links: list[Link] = []
        self._joints: list[JointDescription] = []
        self._frames: list[FrameDescription] = []

    def link(
        self,
        name: str,
        mass: float = 0.0,
        com: Sequence[float] = (0.0, 0.0, 0.0),
        inertia: Any = None,
        visuals: Sequence[Visual] = (),
    ) -> Self:
        """A link. `inertia` about `com` along the link's axes, in kg m²: a 3x3 matrix, the three
        numbers of a diagonal one, or URDF's six.

        Those six are ixx, ixy, ixz, iyy, iyz, izz, in that order or as a dict with these keys.
        """
        com_ = numbers(f"link '{name}': its com", com, 3)
        rows = _inertia(f"link '{name}': its inertia", inertia)
        self._links.append(
            Link(name, number(f"link '{name}': its mass", mass), com_, rows, tuple(visuals))
        )
        return self

    def joint(
        self,
        name: str,
        type: str,
        parent: str,
        child: str,
        xyz: Sequence[float] = (0.0, 0.0, 0.0),
        rpy: Sequence[float] = (0.0, 0.0, 0.0),
        axis: Sequence[float] | None = None,
        pitch: float = 0.0,
        armature: float = 0.0,
        limit: Any = None,
        mimic: Any = None,
        damping: float = 0.0,
        friction: float = 0.0,
    ) -> Self:
        """A joint placed in its parent link by xyz (m) and rpy (rad).

        type: revolute, continuous, prismatic, helical (with `pitch` in metres per radian),
        spherical, planar, floating or fixed. axis: in the joint's frame, any length; x if left out.
        limit: (lower, upper), (lower, upper, velocity, effort), or a dict with these keys. mimic:
        the name of another joint, or (name, multiplier, offset).
        """
        where = f"joint '{name}'"
        if type != FIXED:
            joint_type(type, where)
        placement = pose_from_xyz_rpy(
            numbers(f"{where}: xyz", xyz, 3), numbers(f"{where}: rpy", rpy, 3)
        )
        axis_: Any = None if axis is None else numbers(f"{where}: axis", axis, 3)
        self._joints.append(
            JointDescription(
                name,
                type,
                parent,
                child,
                placement,
                axis_,
                number(f"{where}: pitch", pitch),
                number(f"{where}: armature", armature),
                number(f"{where}: damping", damping),
                number(f"{where}: friction", friction),
                _limit(where, limit),
                _mimic(where, mimic),
            )
        )
        return self

    def frame(self, name: str, parent: str, placement: Any = (0.0, 0.0, 0.0)) -> Self:
        """A named frame on a link or another frame: a 4x4 placement, or a position."""
        self._frames.append(FrameDescription(name, parent, as_pose(placement)))
        return self

    def describe(self) -> Description:
        """The description that a robot is made of."""
        return Description(self.name, tuple(self._links), tuple(self._joints), tuple(self._frames))


def _limit(where: str, limit: Any) -> JointLimit:
    if limit is None or isinstance(limit, JointLimit):
        return limit or JointLimit()
    if isinstance(limit, dict):
        unknown = sorted(set(limit) - {"lower", "upper", "velocity", "effort"})
        if unknown:
            raise InputError(
                f"{where}: its limit has no {unknown[0]!r}; there are lower, upper, velocity,"
                " effort"
            )
        return JointLimit(
            **{key: number(f"{where}: limit {key}", x, finite=False) for key, x in limit.items()}
        )
    try:
        values = [number(f"{where}: limit", x, finite=False) for x in limit]
    except TypeError:
        values = []
    if len(values) not in (2, 4):
        raise InputError(
            f"{where}: its limit is (lower, upper), (lower, upper, velocity, effort) or a dict, not"
            f" {limit!r}"
        )
    return JointLimit(*values)


def _inertia(what: str, inertia: Any) -> tuple[tuple[float, ...], ...]:
    """Rows of the 3x3 matrix."""
    names = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    if isinstance(inertia, dict):
        unknown = sorted(set(inertia) - set(names))
        if unknown:
            raise InputError(f"{what} has no {unknown[0]!r}; there are {', '.join(names)}")
        inertia = [inertia.get(n, 0.0) for n in names]
    try:
        array = np.zeros((3, 3)) if inertia is None else np.asarray(inertia, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} is a 3x3 matrix, or three or six numbers, not {inertia!r}"
        ) from None
    if array.shape == (3,):
        array = np.diag(array)
    elif array.shape == (6,):
        array = array[[0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(3, 3)
    if array.shape != (3, 3):
        raise InputError(
            f"{what} is a 3x3 matrix, or three or six numbers; this has shape {array.shape}"
        )
    return tuple(tuple(row) for row in array.tolist())


def _mimic(where: str, mimic: Any) -> Mimic | None:
    if mimic is None or isinstance(mimic, Mimic):
        return mimic
    if isinstance(mimic, str):
        return Mimic(mimic)
    try:
        if isinstance(mimic, dict):
            return Mimic(**mimic)
        name, *rest = mimic
        return Mimic(name, *(number(f"{where}: mimic", x) for x in rest))
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: mimic is a joint's name or (name, multiplier, offset), not {mimic!r}"
        ) from None
