"""Times of several tasks, taken in turns: a slow moment of the machine then hits all of them."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import asdict, dataclass

import numpy as np
from cases import Task

SLICE = 0.004  # seconds that one timing should last at least
# CPU time does not see other processes take the core away
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Timing:
    """Microseconds per evaluation."""

    best: float
    median: float
    rounds: tuple[float, ...]

    @property
    def spread(self) -> float:
        """How far the median lies above the minimum, as a fraction."""
        return self.median / self.best - 1

    def summary(self) -> dict:
        return {key: value for key, value in asdict(self).items() if key != "rounds"} | {
            "spread": self.spread,
            "rounds": len(self.rounds),
        }


def seconds(task: Task, repeats: int, clock: str) -> float:
    now = CLOCKS[clock]
    start = now()
    task.run(repeats)
    return now() - start


def calibrated(task: Task, clock: str) -> tuple[int, float]:
    """How many repeats fill a slice, and the seconds they take."""
    task.run(1)  # compiles, touches pages
    repeats, taken = 1, seconds(task, 1, clock)
    while taken < SLICE / 2:
        repeats = min(20 * repeats, math.ceil(repeats * SLICE / max(taken, 1e-9)))
        taken = seconds(task, repeats, clock)
    return repeats, taken


def interleaved(
    tasks: dict[str, Task], count: int, rounds: int, budget: float, clock: str
) -> dict[str, Timing]:
    """Each round times every task once, in rotating order; slow batches get fewer rounds, at least
    three, so that `budget` seconds hold.
    """
    repeats, lasting = {}, 0.0
    for name, task in tasks.items():
        repeats[name], taking = calibrated(task, clock)
        lasting += taking
    rounds = max(3, min(rounds, int(budget / lasting)))
    names = list(tasks)
    taken: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                taken[name].append(
                    1e6 * seconds(tasks[name], repeats[name], clock) / (repeats[name] * count)
                )
    finally:
        gc.enable()
    return {
        name: Timing(min(times), float(np.median(times)), tuple(times))
        for name, times in taken.items()
    }


def ratio(slow: Timing, fast: Timing) -> dict[str, float]:
    """Times faster, by the minima; low and high are the quartiles of the rounds' own ratios."""
    each = np.array(slow.rounds) / np.array(fast.rounds)
    low, high = np.quantile(each, (0.25, 0.75))
    return {"ratio": slow.best / fast.best, "low": float(low), "high": float(high)}
