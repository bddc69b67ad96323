"""A controller at work on a plant: in simulated time, by the clock, or on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rigidgrad.control.mpc.log import Log

if TYPE_CHECKING:
    from rigidgrad.control.mpc.controller import MPC


def drive(
    mpc: MPC, plant: Any, duration: float, realtime: bool, until: Callable[[Any], bool] | None
) -> Log:
    """Drives a plant for a while. By the clock, "late" counts deadlines missed; in simulated time
    it counts plans that took longer than a period.
    """
    dt = plant.dt
    mpc.log.simulated = not realtime
    clock = time.perf_counter()
    for k in range(round(duration / dt)):
        x, seen = plant.measure() or (None, None)
        solves = mpc.log.solves
        plant.advance(mpc.step(x, plant.time, seen))
        if realtime:
            ahead = clock + (k + 1) * dt - time.perf_counter()
            mpc.log.add_slack(ahead)
            if ahead < 0.0:
                mpc.counts["late"] += 1
                clock -= ahead  # do not hurry after a stall
            else:
                _wait(ahead)
        elif mpc.log.solves > solves:
            mpc.counts["late"] += mpc.seconds["solve"] > mpc.period
        if until is not None and until(plant):
            break
    return mpc.log


class Running:
    """A controller at work on a thread; `stop()` ends it and gives the log, or raises what went
    wrong.
    """

    def __init__(self, mpc: MPC, plant: Any, duration: float):
        self._mpc, self._stop = mpc, threading.Event()
        self._error: BaseException | None = None

        def work() -> None:
            try:
                mpc.run(
                    plant, min(duration, 1e9), realtime=True, until=lambda _: self._stop.is_set()
                )
            except BaseException as error:  # handed to whoever stops it
                self._error = error

        self._thread = threading.Thread(target=work, name="rigidgrad-mpc", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> Log:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._mpc.log


def _wait(seconds: float) -> None:
    """Sleeps, and spins for the last bit: sleeping alone wakes too late."""
    end = time.perf_counter() + seconds
    if seconds > 0.0005:
        time.sleep(seconds - 0.0003)
    while time.perf_counter() < end:
        pass
