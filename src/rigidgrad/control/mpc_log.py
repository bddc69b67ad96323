"""What a controller saw and did: bounded in memory, saved to .npz, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import InputError

_STEP = ("t", "x", "u", "slack")
_SOLVE = ("solve_t", "solve_seconds", "solve_cost", "solve_iterations")


class Log:
    """The last `capacity` steps (time, state, control, slack) and solves (time, seconds, cost, iterations), and how often each fallback was taken.

    A state is NaN where none was measured. The slack is what was left of a step's time, in seconds, in a real-time run: negative where the deadline was missed, else NaN.
    """

    def __init__(self, nx: int, nu: int, capacity: int = 100_000):
        self.capacity = max(int(capacity), 1)
        self._shapes = {"t": (), "x": (nx,), "u": (nu,), "slack": (), **dict.fromkeys(_SOLVE, ())}
        self._rows = {name: np.zeros((min(self.capacity, 1024), *shape)) for name, shape in self._shapes.items()}
        self.steps = self.solves = 0
        self.counts: dict[str, int] = {}

    def add_step(self, t: float, x: np.ndarray | None, u: np.ndarray) -> None:
        k = self._slot(_STEP, self.steps)
        rows = self._rows
        rows["t"][k], rows["u"][k] = t, u
        rows["x"][k] = np.nan if x is None else x
        rows["slack"][k] = np.nan
        self.steps += 1

    def add_slack(self, seconds: float) -> None:
        """Of the last step."""
        rows = self._rows["slack"]
        rows[(self.steps - 1) % len(rows)] = seconds

    def add_solve(self, t: float, seconds: float, cost: float, iterations: int) -> None:
        k = self._slot(_SOLVE, self.solves)
        for name, value in zip(_SOLVE, (t, seconds, cost, iterations), strict=True):
            self._rows[name][k] = value
        self.solves += 1

    def _slot(self, names: tuple[str, ...], count: int) -> int:
        size = len(self._rows[names[0]])
        if count >= size and size < self.capacity:
            for name in names:
                grown = np.zeros((min(2 * size, self.capacity), *self._shapes[name]))
                grown[:size] = self._rows[name]
                self._rows[name] = grown
            size = len(self._rows[names[0]])
        return count % size

    def __getattr__(self, name: str) -> np.ndarray:
        """The kept rows of t, x, u, solve_t, …, oldest first."""
        if name.startswith("_") or name not in self._shapes:
            raise AttributeError(name)
        rows, count = self._rows[name], self.steps if name in _STEP else self.solves
        if count <= len(rows):
            return rows[:count].copy()
        return np.roll(rows, -(count % len(rows)), axis=0)

    def save(self, path: Any) -> None:
        """As a .npz file, which `Log.load` reads."""
        arrays = {name: getattr(self, name) for name in self._shapes}
        arrays |= {f"count_{name}": np.array(value) for name, value in self.counts.items()}
        np.savez_compressed(path, allow_pickle=False, **arrays)

    @staticmethod
    def load(path: Any) -> Log:
        try:
            with np.load(Path(path)) as file:
                data = {name: file[name] for name in file.files}
            log = Log(data["x"].shape[1], data["u"].shape[1], max(len(data["t"]), len(data["solve_t"]), 1))
        except (OSError, KeyError, ValueError, IndexError) as error:
            raise InputError(f"{str(path)!r} is no log of a controller: {error}") from None
        for t, x, u, slack in zip(*(data[name] for name in _STEP), strict=True):
            log.add_step(float(t), x, u)
            log.add_slack(float(slack))
        for t, seconds, cost, iterations in zip(*(data[name] for name in _SOLVE), strict=True):
            log.add_solve(float(t), float(seconds), float(cost), int(iterations))
        log.counts = {name.removeprefix("count_"): int(v) for name, v in data.items() if name.startswith("count_")}
        return log
