"""What all plants share: the clock, held controls, pushes and payloads, faulty measurements, a log.
Simulators only move the state.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.limits import Limits
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.system import Actuation, CustomSystem, RobotSystem, System
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.model.actuation import own_actuators
from rigidgrad.model.description import Actuator
from rigidgrad.plants import mismatch
from rigidgrad.plants.faults import Counts, Faults, Sample, Sensor, Space
from rigidgrad.plants.log import Log
from rigidgrad.plants.mismatch import Friction, Loaded, Payload, Push, exactly
from rigidgrad.robot import Robot

LONGEST_STEP = 1e-3  # of the integrator, in seconds
_INSTANT = 1e-9  # times nearer than this are the same
_LARGEST = 1e10  # a state beyond this, in SI units, is that of no machine


class Plant(ABC):
    """A machine with a state and a clock of its own. `dt` is how long a control is held; the
    integrator steps at most 1 ms at a time.

    All its functions may be called from several threads.

    `system` starts at `x0` (nx,); `faults` are those of measurements, drawn by `seed`; `log=True`
    keeps `.log`. `actuation`, `friction`, `springs`, `servos`, `payload`, `mass_error`, `pushes`
    and `clamp`: see `Simulator`.
    """

    def __init__(
        self,
        system: Robot | System,
        x0: ArrayLike,
        dt: float,
        *,
        actuation: Actuation | None = None,
        friction: Friction | None = None,
        springs: str | None = None,
        servos: bool = False,
        payload: Payload | None = None,
        mass_error: ArrayLike = 0.0,
        faults: Faults | None = None,
        pushes: Iterable[Push] = (),
        clamp: bool | Limits = False,
        seed: int = 0,
        log: bool = False,
    ):
        self._servos = _checked_servos(system, actuation, servos, clamp)
        self._driven = _driven(system, "joints" if servos else actuation)
        self.robot: Robot | None = None if self._driven is None else self._driven.robot
        self.actuation = (
            None
            if self._driven is None or self._driven.actuation is None
            else np.array(self._driven.actuation)
        )
        self.dt = _seconds("dt", dt)
        self._substeps, self._h = _divided(self.dt)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"seed is a whole number of at least 0, not {seed!r}")
        self.seed = int(seed)
        self._lock = threading.RLock()
        if self.robot is None:
            others = (friction, springs, payload)
            if any(x is not None for x in others) or np.any(mass_error) or list(pushes):
                raise InputError(
                    "friction, springs, payload, mass_error and pushes need a Robot: of dynamics of"
                    " your own only you know the bodies"
                )
            assert isinstance(system, System)
            self.nx, self.nu = system.nx, system.nu
            space = Space(self.nx, 0, np.zeros(self.nx), np.add, np.subtract)
        else:
            model = self.robot.model
            self.nx = model.nq + model.nv
            self.nu = model.nv if self.actuation is None else self.actuation.shape[1]
            space = _robot_space(self.robot)
            self._factors = mismatch.mass_factors(model, mass_error)
            self._resistance = mismatch.resistance(model, friction)
            self._springs = mismatch.has_springs(model, springs)
            self._payload = None if payload is None else _as(Payload, payload)
            # complains now, not when it is first used
            mismatch.inertial_parameters(model, self._factors, self._payload)
        self._scheduled = (
            [mismatch.loaded(self.robot.model, _as(Push, p)) for p in pushes] if self.robot else []
        )
        self._bounds = self._control_bounds(clamp)
        self._x0 = self._state(x0)
        self._x = self._x0.copy()
        self._u = np.zeros(self.nu)
        self.counts = Counts()
        self.log = Log(self.nx, self.nu) if log else None
        self._sensor = Sensor(faults or Faults(), space, self.counts, self.seed)

    # --- what it is now ---------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds since the last reset."""
        return self._time

    @property
    def x(self) -> np.ndarray:
        """The true state (nx,): for a robot [q, v]. A copy."""
        with self._lock:
            return self._x.copy()

    @property
    def u(self) -> np.ndarray:
        """The control (nu,) that acts now, clamped where it was clamped. A copy."""
        with self._lock:
            return self._u.copy()

    @property
    def payload(self) -> Payload | None:
        """What is carried, or None."""
        return self._payload if self.robot else None

    @property
    def faults(self) -> Faults:
        """May be set at any time."""
        return self._sensor.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        with self._lock:
            delayed = self._sensor.delayed
            self._sensor.faults = faults
            if not delayed and self._sensor.delayed:
                self._sensor.see(self._x, self._time)

    # --- driving it -------------------------------------------------------------------------------

    def measure(self) -> Sample | None:
        """(x, t): what a controller sees, and when it was so; None where the measurement is lost.
        Each call is a new measurement.
        """
        with self._lock:
            return self._sensor.read(self._x, self._time)

    def spoil(self, kind: str, count: int = 1) -> None:
        """The next `count` measurements are faulty: "drop", "repeat" or "nan"."""
        with self._lock:
            self._sensor.force(kind, count)

    def advance(self, u: ArrayLike, duration: float | None = None) -> None:
        """Holds u (nu,) for `duration` seconds, or for dt. A control with NaN or infinities is
        refused and counted: the last good one (at first zeros) stays.
        """
        with self._lock:
            count, h = (
                (self._substeps, self._h)
                if duration is None
                else _divided(_seconds("duration", duration))
            )
            self._take(u)
            for _ in range(count):
                if self._pushes or self._active:
                    self._move_between_pushes(h)
                else:
                    self._move(h)

    def acceleration(self, u: ArrayLike) -> np.ndarray:
        """dv/dt (nv,) that a control would cause now, by the true masses, with friction and
        pushes.
        """
        self._need_robot("acceleration")
        with self._lock:
            self._engage()
            a = self._acceleration(exactly("u", u, (self.nu,)))
        if not np.all(np.isfinite(a)):
            raise RigidgradError(
                "the acceleration is not finite: are the controls too large, or the bodies too"
                " light?"
            )
        return a

    def reset(self, x0: ArrayLike | None = None) -> None:
        """Back to time 0 and the first state, or a new one, with the same random numbers and the
        pushes it was made with. Payload and faults stay.
        """
        with self._lock:
            if x0 is not None:
                self._x0 = self._state(x0)
            self._time = self._lost = 0.0
            self._x[:] = self._x0
            self._u[:] = 0.0
            self.counts = Counts()
            self._sensor.reset(self.counts)
            if self._sensor.delayed:
                self._sensor.see(self._x, self._time)
            if self.log is not None:
                self.log.clear()
            self._pushes = list(self._scheduled)
            self._active: list[Loaded] = []
            if self.robot:
                self._bear(
                    mismatch.inertial_parameters(self.robot.model, self._factors, self._payload)
                )
                self._press(self._active)
            self._place(self._x)

    def push(self, force: ArrayLike, duration: float, frame: str, at: float | None = None) -> None:
        """A force (3,) along the world's axes on the origin of a frame, from now, or from the time
        `at`, on.
        """
        robot = self._need_robot("a push")
        with self._lock:
            found = mismatch.loaded(
                robot.model, Push(force, duration, frame, self._time if at is None else at)
            )
            if found.start < self._time - _INSTANT:
                raise InputError(
                    f"a push at {found.start:g} s comes too late: it is {self._time:g} s"
                )
            self._pushes.append(found)

    def set_payload(
        self,
        mass: float,
        frame: str,
        offset: ArrayLike = (0.0, 0.0, 0.0),
        inertia: ArrayLike | None = None,
    ) -> None:
        """Fixes a payload to a frame, in place of an earlier one; see Payload. It takes on the
        frame's velocity: that of the joints stays.
        """
        self._carry(Payload(mass, frame, offset, inertia))

    def remove_payload(self) -> None:
        """Nothing is carried any more."""
        self._carry(None)

    def _carry(self, payload: Payload | None) -> None:
        robot = self._need_robot("a payload")
        with self._lock:
            inertias = mismatch.inertial_parameters(robot.model, self._factors, payload)
            self._payload = payload
            self._bear(inertias)

    # --- how it moves -----------------------------------------------------------------------------

    @abstractmethod
    def _place(self, x: np.ndarray) -> None:
        """Takes on a state."""

    @abstractmethod
    def _step(self, h: float) -> np.ndarray:
        """The state h seconds after self._x under self._u; the array may be used again by the next
        call.
        """

    @abstractmethod
    def _acceleration(self, u: np.ndarray) -> np.ndarray:
        """dv/dt."""

    @abstractmethod
    def _bear(self, inertias: tuple[tuple[Any, ...], ...]) -> None:
        """Takes on inertias (m, h, I) of the bodies."""

    @abstractmethod
    def _press(self, pushes: list[Loaded]) -> None:
        """These forces act from now on."""

    def _take(self, u: Any) -> None:
        array = u if type(u) is np.ndarray and u.dtype == np.float64 else _numbers(u)
        if array.shape != (self.nu,):
            raise InputError(
                f"u has shape {array.shape}; expected ({self.nu},); plans of a problem drive a"
                " plant of problem.system"
            )
        if not math.isfinite(math.hypot(*array.tolist())):
            self.counts.refused += 1
            return
        if self._bounds is None:
            self._u[:] = array
        else:
            np.maximum(array, self._bounds[0], out=self._u)
            np.minimum(self._u, self._bounds[1], out=self._u)
            if (self._u != array).any():
                self.counts.clamped += 1

    def _move(self, h: float) -> None:
        after = self._step(h)
        if not math.hypot(*after.tolist()) < _LARGEST:
            self._place(self._x)
            raise RigidgradError(
                f"the plant's state ran away after {self._time:.6g} s; it stays as it was before."
                f" Are the controls too large, or the bodies too light for steps of {h:g} s?"
            )
        if self.log is not None:
            self.log.add(self._time, self._x, self._u)
        self._x[:] = after
        increment = h - self._lost  # summed with compensation: millions of steps lose nothing
        time = self._time + increment
        self._lost = (time - self._time) - increment
        self._time = time
        self.counts.steps += 1
        if self._sensor.delayed:
            self._sensor.see(self._x, time)

    def _move_between_pushes(self, h: float) -> None:
        """Steps that end where a push begins or ends, so that its impulse is exact."""
        end = self._time + h
        while end - self._time > _INSTANT:
            self._engage()
            changes = [
                t
                for p in self._pushes
                for t in (p.start, p.end)
                if self._time + _INSTANT < t < end - _INSTANT
            ]
            self._move(min(changes) - self._time if changes else end - self._time)

    def _engage(self) -> None:
        self._pushes = [p for p in self._pushes if p.end > self._time + _INSTANT]
        active = [p for p in self._pushes if p.start <= self._time + _INSTANT]
        if len(active) != len(self._active) or any(
            a is not b for a, b in zip(active, self._active, strict=True)
        ):
            self._active = active
            self._press(active)

    # --- what it is given -------------------------------------------------------------------------

    def _need_robot(self, what: str) -> Robot:
        if self.robot is None:
            raise InputError(
                f"{what} needs a Robot: of dynamics of your own only you know the bodies"
            )
        return self.robot

    def _state(self, x0: Any) -> np.ndarray:
        x = exactly("x0", x0, (self.nx,))
        if self.robot:
            with np.errstate(all="ignore"):
                q = self.robot.normalize(x[: self.robot.nq])
            if not np.abs(q - x[: self.robot.nq]).max() < 1e-6:
                raise InputError(
                    "x0: a quaternion or (cos, sin) pair is not of length one; pass q through"
                    " robot.normalize"
                )
            x[: self.robot.nq] = q
        return x

    def _control_bounds(self, clamp: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if clamp is False or clamp is None:
            return None
        if clamp is True:
            self._need_robot("clamp=True")
            assert self._driven is not None
            bounds = Limits(torque=True).control_bounds(self._driven, 1)
            return None if bounds is None else (bounds[0][0], bounds[1][0])
        try:
            low, high = clamp
        except (TypeError, ValueError):
            raise InputError(
                "clamp is True for the robot's effort limits, or a pair (lower, upper) of bounds"
                " of u"
            ) from None
        lower, upper = (
            numbers(f"clamp's {side} bound", b, (self.nu,), infinite=True)
            for side, b in (("lower", low), ("upper", high))
        )
        if (lower > upper).any():
            raise InputError("clamp: a lower bound is above the upper one")
        return lower, upper


def _checked_servos(system: Any, actuation: Any, servos: bool, clamp: Any) -> tuple[Actuator, ...]:
    """The robot's own actuators, whose commands are the controls; none unless asked for."""
    if not servos:
        return ()
    if not isinstance(system, Robot) or actuation is not None:
        raise InputError("servos=True is for a Robot and its own actuators, without actuation=")
    if clamp is not False and clamp is not None:
        raise InputError("servos have ranges of their own: leave clamp= out")
    found = own_actuators(system.model)
    if not any(a.servo for a in found):
        raise InputError(f"no actuator of {system.name!r} is a servo; leave servos= out")
    return found


def _driven(system: Any, actuation: Any) -> RobotSystem | None:
    """The robot with its actuation; None for dynamics of the user's own."""
    if isinstance(system, CustomSystem):
        if actuation is not None:
            raise InputError("actuation belongs to a Robot; dynamics of your own see u as it is")
        return None
    # as it is, with a force on every freedom; what drives it is for a system to say
    if isinstance(system, Robot):
        system = RobotSystem(system, "all" if actuation is None else actuation)
    elif not isinstance(system, RobotSystem):
        raise InputError(f"a plant is made of a Robot or a system, not {type(system).__name__}")
    elif actuation is not None:
        raise InputError("actuation goes with a Robot; this RobotSystem has one already")
    driven: RobotSystem = system
    return driven


def _robot_space(robot: Robot) -> Space:
    nq, nv = robot.nq, robot.nv
    if nq == nv:
        return Space(nv, nv, np.zeros(2 * nv), np.add, np.subtract)

    def plus(x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        return np.concatenate([robot.integrate(x[:nq], dx[:nv]), x[nq:] + dx[nv:]])

    def minus(x: np.ndarray, origin: np.ndarray) -> np.ndarray:
        return np.concatenate([robot.difference(origin[:nq], x[:nq]), x[nq:] - origin[nq:]])

    return Space(nv, nv, np.concatenate([robot.neutral(), np.zeros(nv)]), plus, minus)


def _as(kind: type, value: Any) -> Any:
    """A Payload or Push, or a tuple of its fields."""
    if isinstance(value, kind):
        return value
    if isinstance(value, tuple | list):
        try:
            return kind(*value)
        except TypeError:
            pass
    raise InputError(f"{value!r} is no rg.plants.{kind.__name__}(…)")


def _numbers(u: Any) -> np.ndarray:
    try:
        return np.asarray(u, dtype=float)
    except (TypeError, ValueError):
        raise InputError("u is not an array of numbers") from None


def _seconds(what: str, value: Any) -> float:
    seconds = float(numbers(what, value, ()))
    if seconds <= 0:
        raise InputError(f"{what} is a positive number of seconds, not {value!r}")
    return seconds


def _divided(duration: float) -> tuple[int, float]:
    """A duration as equal steps of at most LONGEST_STEP."""
    count = max(1, math.ceil(duration / LONGEST_STEP - 1e-6))
    return count, duration / count
