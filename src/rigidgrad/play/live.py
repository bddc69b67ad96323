"""What moves on a live page: a robot, its controller and what the player wants of them. One thread
moves it; others only write wishes, and read what happened.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rigidgrad.control.mpc import MPC
from rigidgrad.control.problem import Problem
from rigidgrad.errors import RigidgradError
from rigidgrad.plants import Faults
from rigidgrad.plants.plant import Plant
from rigidgrad.robot import Robot

PLANT_STEP = 0.002  # seconds for which a control is held
_SAMPLE = 0.05  # seconds from one point of the plots to the next
_KEPT = 200  # points
_FASTEST = 1e3  # rad/s or m/s: a robot that is faster has run away
_BEHIND = 0.1  # seconds behind the clock after which time itself is slowed


@dataclass(frozen=True)
class Sample:
    """A point of the plots: how far off, the cost, and of the solves since the last point the
    slowest, in seconds, and how many took longer than the period.
    """

    t: float
    error: float
    cost: float
    solve: float
    late: int


@dataclass(frozen=True)
class Seen:
    """What is to be shown of every robot: time, state and how far off it is; the states of the
    newest plan, as far as they are finite; how many times real time it goes.
    """

    t: float
    x: np.ndarray
    error: float
    plan: np.ndarray
    rate: float
    counts: dict[str, int]
    late: int  # of the samples kept
    trouble: str


class Live(ABC):
    """A robot in motion. `advance` moves it in simulated time; `start` lets a thread do so by the
    clock, until `stop`.

    `settings` is a frozen dataclass with `noise`, `latency`, `iterations`, `period`, and
    `controller`: that part of it which the controller depends on.
    """

    plant: Plant
    _mpc: MPC
    # what a page reads of this kind, beside the snapshot, the settings and the samples
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, robot: Robot, settings: Any, plant: Plant):
        self.robot, self.settings, self.plant = robot, settings, plant
        self._lock = threading.Lock()
        self._wishes: deque[Callable[[], None]] = deque()
        self._samples: deque[Sample] = deque(maxlen=_KEPT)
        self._made: Any = None
        self._slowest, self._late = 0.0, 0
        self._rate, self._trouble = 1.0, ""
        self._quit = threading.Event()
        self._thread: threading.Thread | None = None
        self._control()
        self._tick()  # compiles what is not compiled yet
        self._tick()
        self._begin_again()
        self._publish()

    # --- what each kind does in its own way -------------------------------------------------------

    @abstractmethod
    def _make(self, wanted: Any) -> MPC:
        """The controller that settings ask for."""

    @abstractmethod
    def _decide(self, x: np.ndarray | None) -> np.ndarray:
        """The control for a measured state; None where the measurement is lost."""

    @abstractmethod
    def _error(self) -> float:
        """How far the robot is from what is wanted."""

    @abstractmethod
    def _see(self, **seen: Any) -> Any:
        """What is to be shown, with all that `Seen` has."""

    def _solve_seconds(self) -> float:
        """Of the last plan."""
        return self._mpc.seconds["solve"]

    # --- wishes: any thread -----------------------------------------------------------------------

    def change(self, **settings: Any) -> None:
        """Takes other settings."""
        with self._lock:
            self.settings = replace(self.settings, **settings)

    def _push(self, direction: Any, force: float, seconds: float, frame: str) -> None:
        along = np.asarray(direction, dtype=float)
        along = force * along / (np.linalg.norm(along) or 1.0)
        self._wish(lambda: self.plant.push(along, seconds, frame))

    def _carry(self, loaded: bool, mass: float, frame: str, offset: Any) -> None:
        self._wish(
            lambda: (
                self.plant.set_payload(mass, frame, offset)
                if loaded
                else self.plant.remove_payload()
            )
        )

    def reset(self) -> None:
        """Everything from the start, but for settings."""
        self._wish(self._begin_again)

    def _wish(self, wish: Callable[[], None]) -> None:
        with self._lock:
            self._wishes.append(wish)

    # --- what happened: any thread ----------------------------------------------------------------

    @property
    def now(self) -> Any:
        return self._snapshot

    def shown(self) -> dict[str, Any]:
        """All that a page reads and that changes, by name; of methods, what they return."""
        found = {name: getattr(self, name) for name in ("now", "settings", *self.reads)}
        return {name: value() if callable(value) else value for name, value in found.items()}

    def fixed(self) -> dict[str, Any]:
        """What a page reads once."""
        return {}

    @property
    def problem(self) -> Problem:
        """What the controller solves."""
        return self._mpc.problem

    @property
    def samples(self) -> list[Sample]:
        with self._lock:
            return list(self._samples)

    # --- time: one thread -------------------------------------------------------------------------

    def advance(self, seconds: float) -> Any:
        """Moves on in simulated time, as fast as it goes. Not while a thread does so."""
        for _ in range(round(seconds / PLANT_STEP)):
            self._tick()
        self._publish()
        return self._snapshot

    def start(self, watched: Callable[[], bool] = lambda: True) -> None:
        """Moves on by the clock, on a thread of its own, while somebody watches."""
        self._thread = threading.Thread(
            target=self._run, args=(watched,), name="rigidgrad-play", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._quit.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, watched: Callable[[], bool]) -> None:
        clock, begun = time.perf_counter(), self.plant.time
        shown = counted = clock
        counted_from = begun
        while not self._quit.is_set():
            if not watched():
                time.sleep(0.1)
                clock, begun = time.perf_counter(), self.plant.time
                continue
            self._tick()
            now = time.perf_counter()
            ahead = clock + (self.plant.time - begun) - now
            # too slow for the clock, or begun again
            if ahead < -_BEHIND or self.plant.time < begun:
                clock, begun = now, self.plant.time
            if now - shown > 0.02:
                shown = now
                self._publish()
            if now - counted > 1.0:
                self._rate = max(self.plant.time - counted_from, 0.0) / (now - counted)
                counted, counted_from = now, self.plant.time
            if ahead > 0.001:
                time.sleep(ahead)

    def _tick(self) -> None:
        """One step of the plant, after what was wished for. Whatever fails, the scene goes on."""
        try:
            self._heed()
            before = self._mpc.log.solves
            sample = self.plant.measure()
            x = None if sample is None else sample.x
            self.plant.advance(self._decide(x))
            self._check_speed()
            self._note(before)
        except Exception as error:
            self._trouble = f"begun again after: {error}"
            self._begin_again()

    def _check_speed(self) -> None:
        """The plant itself only stops where numbers end."""
        speed = float(np.abs(self.plant.x[self.robot.nq :]).max())
        if speed > _FASTEST:
            raise RigidgradError(
                f"the robot ran away, a joint at {speed:.2g} rad/s or m/s; is the payload too heavy"
                " for what carries it?"
            )

    def _heed(self) -> None:
        with self._lock:
            wishes, wanted = list(self._wishes), self.settings
            self._wishes.clear()
        for wish in wishes:
            wish()
        if wanted.noise != self.plant.faults.noise_position:
            self.plant.faults = Faults(
                noise_position=wanted.noise, noise_velocity=10 * wanted.noise
            )
        if wanted.controller != self._made:
            self._control()

    def _control(self) -> None:
        """Makes the controller that the settings ask for; where that cannot be, the last one
        stays.
        """
        wanted = self.settings.controller
        try:
            mpc = self._make(wanted)
        except RigidgradError as error:
            if self._made is None:
                raise
            self._trouble = str(error)
        else:
            self._mpc, self._trouble = mpc, ""
        self._made = wanted

    def _begin_again(self) -> None:
        self.plant.reset()
        self._mpc.reset()
        with self._lock:
            self._samples.clear()
        self._slowest, self._late = 0.0, 0

    # --- keeping account --------------------------------------------------------------------------

    def _note(self, solves_before: int) -> None:
        log = self._mpc.log
        if log.solves > solves_before:
            spent = self._solve_seconds()
            self._slowest = max(self._slowest, spent)
            self._late += spent > self._mpc.period
        t = self.plant.time
        last = self._samples[-1].t if self._samples else -math.inf
        if t - last >= _SAMPLE - 1e-9:
            cost = float(log.solve_cost[-1]) if log.solves else math.nan
            # of a solve that failed: the plan of before is still in use
            if not math.isfinite(cost):
                cost = self._samples[-1].cost if self._samples else 0.0
            with self._lock:
                self._samples.append(Sample(t, self._error(), cost, self._slowest, self._late))
            self._slowest, self._late = 0.0, 0

    def _publish(self) -> None:
        mpc, x = self._mpc, self.plant.x
        plan = mpc.plan.x.copy() if mpc.log.solves else x[None]
        self._snapshot = self._see(
            t=self.plant.time,
            x=x,
            error=self._error(),
            plan=plan[np.cumprod(np.isfinite(plan).all(axis=1)).astype(bool)],
            rate=self._rate,
            counts=dict(mpc.counts),
            late=sum(s.late for s in self._samples),
            trouble=self._trouble or mpc.trouble,
        )
