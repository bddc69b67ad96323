"""The positions that a search moves in: within limits, along straight lines of the tangent space,
measured by how far points of the robot move at most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.geometry.links import LinkShape
from rigidgrad.model.model import Model
from rigidgrad.robot import Robot


class Space:
    """Of a robot. `weights` (nv,): no point of a collision shape moves further than Σ weights·|Δv|
    metres along a line.
    """

    def __init__(self, robot: Robot):
        self.robot = robot
        self.lower, self.upper = robot.limits.lower, robot.limits.upper
        self.weights = np.maximum(travel(robot.model, robot.collisions.links), 1e-3)
        fastest = robot.limits.velocity  # 1 where a robot has no limit
        self.velocity = np.where(np.isfinite(fastest) & (fastest > 0), fastest, 1.0)
        self.is_flat = robot.nq == robot.nv and not robot.model.directions
        self._is_box = self.is_flat and bool(np.isfinite(self.upper - self.lower).all())

    def difference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """From a to b (…, nv)."""
        return b - a if self.is_flat else self.robot.difference(*np.broadcast_arrays(a, b))

    def moved(self, a: np.ndarray, v: np.ndarray) -> np.ndarray:
        return a + v if self.is_flat else self.robot.integrate(a, v)

    def distance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Metres that a point of the robot moves at most between a and b (…)."""
        length: np.ndarray = np.abs(self.difference(a, b)) @ self.weights
        return length

    def within(self, q: np.ndarray) -> Any:
        """Whether positions keep the limits (…), but for rounding."""
        slack = 1e-6
        return np.all((q >= self.lower - slack) & (q <= self.upper + slack), axis=-1)

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        if self._is_box:
            q: np.ndarray = self.lower + rng.random((count, self.robot.nq)) * (
                self.upper - self.lower
            )
            return q
        q = np.empty((count, self.robot.nq))
        for j in self.robot.model.joints:
            if not j.is_mimic:
                own = slice(j.q, j.q + j.nq)
                q[:, own] = j.kind.random(rng, (count,), self.lower[own], self.upper[own])
        return q


def travel(model: Model, links: tuple[LinkShape, ...]) -> np.ndarray:
    """Metres, or metres a radian, that a point of the links can move when one number of v changes:
    (nv,).

    A turn moves a point by no more than its distance from the joint, which is no more than the way
    along the tree: from joint to joint, and within the last link.
    """
    below = np.zeros(len(model.joints))
    for link in links:
        if link.body >= 0:
            below[link.body] = max(below[link.body], math.dist((0, 0, 0), link.center) + link.reach)
    result = np.zeros(model.nv)
    for i in reversed(model.bodies):
        joint = model.joints[i]
        slide = 0.0
        if joint.type in ("prismatic", "helical", "planar", "floating") and not joint.is_mimic:
            low, high = (x[joint.q : joint.q + 1] for x in (model.limits.lower, model.limits.upper))
            reach = np.abs(np.concatenate([low, high])).max()
            slide = float(reach) if joint.type == "prismatic" and np.isfinite(reach) else 0.0
        parent = model.parents[i]
        if parent >= 0:
            below[parent] = max(
                below[parent], math.dist((0, 0, 0), model.placements[i].p) + slide + below[i]
            )
        multiplier = abs(float(joint.multiplier))
        for k in range(joint.nv):
            turns = joint.type != "prismatic" and not (
                joint.type in ("floating", "planar")
                and k < joint.nv - (3 if joint.type == "floating" else 1)
            )
            rate = below[i] if turns else 1.0
            if joint.type == "helical":
                rate = below[i] + abs(float(joint.pitch))
            result[joint.v + k] += multiplier * rate
    return result


def check_shape(space: Space, name: str, q: object) -> np.ndarray:
    """Finite positions (n, nq)."""
    try:
        found = np.asarray(q, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} is a position of {space.robot.nq} numbers, not {type(q).__name__}"
        ) from None
    if found.ndim not in (1, 2) or found.shape[-1] != space.robot.nq or not found.size:
        raise InputError(
            f"{name} has shape {found.shape}; a position of {space.robot.name!r} has"
            f" {space.robot.nq} numbers"
        )
    if not np.isfinite(found).all():
        raise InputError(f"{name} holds NaN or infinity")
    return np.atleast_2d(found)
