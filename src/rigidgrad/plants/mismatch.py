"""How a plant differs from its model: masses, a payload, friction, pushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.numeric_input import numbers
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD, Frame, Model
from rigidgrad.robot import Robot


@dataclass(frozen=True)
class Payload:
    """A body fixed to a frame."""

    mass: float
    """In kg."""
    frame: str
    """The body is fixed to it."""
    offset: ArrayLike = (0.0, 0.0, 0.0)
    """The body's centre in the frame (3,), in metres."""
    inertia: ArrayLike | None = None
    """(3, 3) about that centre along the frame's axes; none for a point mass."""


@dataclass(frozen=True)
class Push:
    """A force on a frame for some time."""

    force: ArrayLike
    """Newtons (3,), along the world's axes."""
    duration: float
    """Seconds."""
    frame: str
    """The force acts on its origin."""
    at: float = 0.0
    """When it begins, in seconds."""


@dataclass(frozen=True)
class Friction:
    """Joint forces against the motion: viscous·v, and dry friction coulomb·v/√(v² + smoothing²)."""

    viscous: ArrayLike = 0.0
    """Newton metres per rad/s, or newtons per m/s: one number or one a velocity."""
    coulomb: ArrayLike = 0.0
    """Of dry friction: one number or one a velocity."""
    smoothing: float = 1e-3
    """rad/s or m/s below which dry friction fades."""


class Loaded(NamedTuple):
    """A push in a body's coordinates."""

    start: float
    end: float
    body: int
    point: np.ndarray
    force: np.ndarray


class Resistance(NamedTuple):
    """Checked numbers of a Friction, each (nv,)."""

    viscous: np.ndarray
    coulomb: np.ndarray
    smoothing: float

    def ratio(self, v: np.ndarray) -> np.ndarray:
        """k with friction = -k v."""
        k: np.ndarray = self.viscous + self.coulomb / np.sqrt(v * v + self.smoothing**2)
        return k


def exactly(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of one shape, not broadcast."""
    try:
        given = np.shape(value)
    except ValueError:
        raise InputError(f"{what} is not an array of numbers") from None
    array = numbers(what, value, given)
    if given != shape:
        raise InputError(f"{what} has shape {given}; expected {shape}")
    return array


def random_errors(robot: Robot, size: float, seed: int = 0) -> np.ndarray:
    """Relative errors, one a body, drawn evenly from ±size: for `mass_error`. Of a `robot`, the
    same for a `seed`.
    """
    if not 0 <= float(numbers("the size of relative errors", size, ())) < 1:
        raise InputError(f"the size of relative errors is from 0 to below 1, not {size!r}")
    return np.random.default_rng([seed, 2]).uniform(-size, size, len(robot.model.joints))


def mass_factors(model: Model, error: Any) -> np.ndarray:
    """1 + error, one a body."""
    factors = 1.0 + numbers("mass_error", error, (len(model.joints),))
    if (factors <= 0).any():
        raise InputError("a mass_error of -1 or less leaves no mass")
    return factors


def inertial_parameters(
    model: Model, factors: np.ndarray, payload: Payload | None
) -> tuple[tuple[Any, ...], ...]:
    """(m, h, I) of every body with its errors and the payload. Errors scale a body's mass and
    inertia alike; armature stays.
    """
    result = [
        (f * m, tuple(f * x for x in h), tuple(f * x for x in rotational))
        for f, (m, h, rotational) in zip(factors.tolist(), model.inertias, strict=True)
    ]
    if payload is not None:
        frame = moving_frame(model, payload.frame, "payload")
        m, h, rotational = result[frame.body]
        more = _payload_numbers(payload, frame)
        result[frame.body] = (
            m + more[0],
            tuple(x + y for x, y in zip(h, more[1], strict=True)),
            tuple(x + y for x, y in zip(rotational, more[2], strict=True)),
        )
    return tuple(result)


def _payload_numbers(payload: Payload, frame: Frame) -> tuple[float, list[float], list[float]]:
    """(m, h, I) of the payload about its body's origin."""
    mass = float(numbers("the payload's mass", payload.mass, ()))
    offset = exactly("the payload's offset", payload.offset, (3,))
    inertia = (
        np.zeros((3, 3))
        if payload.inertia is None
        else exactly("the payload's inertia", payload.inertia, (3, 3))
    )
    if mass < 0:
        raise InputError(f"a payload has a mass of at least 0, not {mass:g}")
    if (
        abs(inertia - inertia.T).max() > 1e-9 * max(abs(inertia).max(), 1e-300)
        or np.linalg.eigvalsh(inertia)[0] < -1e-12
    ):
        raise InputError(
            "the payload's inertia is not a symmetric matrix without negative eigenvalues"
        )
    R, p = np.array(frame.placement.R), np.array(frame.placement.p)
    c = p + R @ offset
    about = R @ inertia @ R.T + mass * (c @ c * np.eye(3) - np.outer(c, c))
    return (
        mass,
        (mass * c).tolist(),
        [about[i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))],
    )


def has_springs(model: Model, springs: Any) -> bool:
    """Whether the joints' springs act: "model" asks for those of the description."""
    if springs is None:
        return False
    if not isinstance(springs, str) or springs != "model":
        raise InputError(f'springs are None, or "model" for those of the robot, not {springs!r}')
    return any(j.spring for j in model.joints)


def moving_frame(model: Model, name: str, what: str) -> Frame:
    frame = model.frame(name)
    if frame.body == WORLD:
        raise InputError(
            f"frame '{name}' is fixed to the world, so a {what} there has no effect; name a frame"
            " that moves"
        )
    return frame


def loaded(model: Model, push: Push) -> Loaded:
    """A push, checked."""
    frame = moving_frame(model, push.frame, "push")
    force = exactly("the push's force", push.force, (3,))
    duration = float(numbers("the push's duration", push.duration, ()))
    if duration <= 0:
        raise InputError(f"a push lasts some time, not {push.duration!r} s")
    start = float(numbers("the push's time", push.at, ()))
    return Loaded(start, start + duration, frame.body, np.array(frame.placement.p), force)


def resistance(model: Model, friction: Any) -> Resistance | None:
    """Friction's numbers: "model" takes the description's damping and friction."""
    if friction is None:
        return None
    if isinstance(friction, str) and friction == "model":
        viscous, coulomb = np.zeros(model.nv), np.zeros(model.nv)
        for j in model.joints:  # a mimic joint's friction is felt by its master
            viscous[j.v : j.v + j.nv] += j.multiplier**2 * j.damping
            coulomb[j.v : j.v + j.nv] += abs(j.multiplier) * j.friction
        friction = Friction(viscous, coulomb)
    if not isinstance(friction, Friction):
        raise InputError(
            'friction is None, "model" for the numbers of the robot\'s description, or an'
            " rg.plants.Friction(…)"
        )
    viscous = numbers("viscous friction", friction.viscous, (model.nv,))
    coulomb = numbers("coulomb friction", friction.coulomb, (model.nv,))
    smoothing = float(numbers("the friction's smoothing", friction.smoothing, ()))
    if (viscous < 0).any() or (coulomb < 0).any() or smoothing <= 0:
        raise InputError(
            "friction resists motion: its numbers are not negative, and its smoothing is positive"
        )
    return Resistance(viscous, coulomb, smoothing)
