"""What gaits charge for, per second of the motion and in SI units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rigidgrad.errors import InputError

Own = TypeVar("Own", bound="Weights")


@dataclass(frozen=True)
class Weights:
    """Of a walker. `position` and `orientation` of the trunk, `velocity` and `rate` of it, `posture` and `speed` of the joints, `effort` of the controls, `foot` of
    swinging feet, `cone` of friction, `force` of contact forces, `pressure` of the centre of pressure within soles; `last`: by how much the state at the horizon's end counts for more."""

    position: tuple[float, float, float] = (0.0, 0.0, 3000.0)
    orientation: tuple[float, float, float] = (500.0, 500.0, 300.0)
    velocity: tuple[float, float, float] = (200.0, 200.0, 50.0)
    rate: float = 10.0
    posture: float = 10.0
    speed: float = 0.1
    effort: float = 1e-3
    foot: float = 2e4
    cone: float = 1.0
    force: float = 1e-4
    pressure: float = 1.0
    last: float = 1.0

    def state(self, nv: int) -> np.ndarray:
        """Of a state's numbers, (2 nv,)."""
        joints = nv - 6
        trunk, moving = [*self.position, *self.orientation], [*self.velocity, *[self.rate] * 3]
        return np.array([*trunk, *[self.posture] * joints, *moving, *[self.speed] * joints], dtype=float)


@dataclass(frozen=True)
class BipedWeights(Weights):
    """Of a walker on two soles, which falls slowly at first: the horizon's end counts for more."""

    position: tuple[float, float, float] = (0.0, 0.0, 1000.0)
    orientation: tuple[float, float, float] = (500.0, 500.0, 500.0)
    velocity: tuple[float, float, float] = (1500.0, 1500.0, 100.0)
    rate: float = 20.0
    speed: float = 0.5
    last: float = 10.0


@dataclass(frozen=True)
class MotionWeights(Weights):
    """Of a motion that is planned: those of a walker, and `landing` of feet where they touch the ground, not per second; `last`: seconds that the state at the end counts for."""

    position: tuple[float, float, float] = (1e4, 1e4, 1e4)
    orientation: tuple[float, float, float] = (5e3, 5e3, 5e3)
    velocity: tuple[float, float, float] = (100.0, 100.0, 100.0)
    rate: float = 100.0
    posture: float = 10.0
    speed: float = 1.0
    effort: float = 1e-2
    foot: float = 1e6
    cone: float = 10.0
    force: float = 1e-4
    landing: float = 1e7
    last: float = 10.0


@dataclass(frozen=True)
class BalanceWeights(Weights):
    """Of a robot that stands: those of a walker, `center` of the centre of mass over its feet, `hand` of hands that reach, `pressure` of the centre of pressure within the soles; `last`: by how much the state
    and the centre of mass at the horizon's end count for more."""

    position: tuple[float, float, float] = (0.0, 0.0, 200.0)
    orientation: tuple[float, float, float] = (100.0, 100.0, 100.0)
    velocity: tuple[float, float, float] = (300.0, 300.0, 300.0)
    posture: float = 10.0
    speed: float = 1.0
    center: float = 2e4
    hand: float = 5000.0
    pressure: float = 1.0
    last: float = 10.0


def weights_of(given: Own | None, kind: type[Own]) -> Own:
    """What was given, if it is of this kind, or its defaults."""
    if given is not None and not isinstance(given, kind):
        raise InputError(f"weights are rg.gaits.{kind.__name__}(…) here, not {type(given).__name__}")
    return kind() if given is None else given
