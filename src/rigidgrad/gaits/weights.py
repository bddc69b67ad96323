"""What gaits charge for, per second of the motion and in SI units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rigidgrad.errors import InputError

Own = TypeVar("Own", bound="Weights")


@dataclass(frozen=True)
class Weights:
    """Of a walker."""

    position: tuple[float, float, float] = (0.0, 0.0, 3000.0)
    """Of the trunk's position (x, y, z)."""
    orientation: tuple[float, float, float] = (500.0, 500.0, 300.0)
    """Of the trunk's rotation about x, y and z."""
    velocity: tuple[float, float, float] = (200.0, 200.0, 50.0)
    """Of the trunk's velocity (x, y, z)."""
    rate: float = 10.0
    """Of the trunk's angular velocity."""
    posture: float = 10.0
    """Of the joints' positions."""
    speed: float = 0.1
    """Of the joints' velocities."""
    effort: float = 1e-3
    """Of the controls."""
    foot: float = 2e4
    """Of where swinging feet are."""
    cone: float = 1.0
    """Of forces outside of friction cones."""
    force: float = 1e-4
    """Of contact forces."""
    pressure: float = 1.0
    """Of the centre of pressure within soles."""
    last: float = 1.0
    """By how much the state at the horizon's end counts for more."""

    def state(self, nv: int) -> np.ndarray:
        """Of a state's numbers, (2 nv,)."""
        joints = nv - 6
        trunk, moving = [*self.position, *self.orientation], [*self.velocity, *[self.rate] * 3]
        return np.array(
            [*trunk, *[self.posture] * joints, *moving, *[self.speed] * joints], dtype=float
        )


@dataclass(frozen=True)
class BipedWeights(Weights):
    """Of a walker on two soles, which falls slowly at first: the horizon's end counts for more."""

    position: tuple[float, float, float] = (0.0, 0.0, 1000.0)
    """Of the trunk's position (x, y, z)."""
    orientation: tuple[float, float, float] = (500.0, 500.0, 500.0)
    """Of the trunk's rotation."""
    velocity: tuple[float, float, float] = (1500.0, 1500.0, 100.0)
    """Of the trunk's velocity."""
    rate: float = 20.0
    """Of the trunk's angular velocity."""
    speed: float = 0.5
    """Of the joints' velocities."""
    last: float = 10.0
    """By how much the state at the horizon's end counts for more."""


@dataclass(frozen=True)
class MotionWeights(Weights):
    """Of a motion that is planned, per second but for some."""

    position: tuple[float, float, float] = (1e4, 1e4, 1e4)
    """Of the trunk's position (x, y, z)."""
    orientation: tuple[float, float, float] = (5e3, 5e3, 5e3)
    """Of the trunk's rotation."""
    velocity: tuple[float, float, float] = (100.0, 100.0, 100.0)
    """Of the trunk's velocity."""
    rate: float = 100.0
    """Of the trunk's angular velocity."""
    posture: float = 10.0
    """Of the joints' positions."""
    speed: float = 1.0
    """Of the joints' velocities."""
    effort: float = 1e-2
    """Of the controls."""
    foot: float = 1e6
    """Of where swinging feet are."""
    cone: float = 10.0
    """Of forces outside of friction cones."""
    force: float = 1e-4
    """Of contact forces."""
    landing: float = 1e7
    """Of feet where they touch the ground; not per second."""
    last: float = 10.0
    """Seconds that the state at the end counts for."""


@dataclass(frozen=True)
class BalanceWeights(Weights):
    """Of a robot that stands; the others are those of a walker."""

    position: tuple[float, float, float] = (0.0, 0.0, 200.0)
    """Of the trunk's position (x, y, z)."""
    orientation: tuple[float, float, float] = (100.0, 100.0, 100.0)
    """Of the trunk's rotation."""
    velocity: tuple[float, float, float] = (300.0, 300.0, 300.0)
    """Of the trunk's velocity."""
    posture: float = 10.0
    """Of the joints' positions."""
    speed: float = 1.0
    """Of the joints' velocities."""
    center: float = 2e4
    """Of the centre of mass over the feet."""
    hand: float = 5000.0
    """Of hands that reach."""
    pressure: float = 1.0
    """Of the centre of pressure within the soles."""
    last: float = 10.0
    """By how much the state and the centre of mass at the horizon's end count for more."""


def weights_of(given: Own | None, kind: type[Own]) -> Own:
    """What was given, if it is of this kind, or its defaults."""
    if given is not None and not isinstance(given, kind):
        raise InputError(
            f"weights are rg.gaits.{kind.__name__}(…) here, not {type(given).__name__}"
        )
    return kind() if given is None else given
