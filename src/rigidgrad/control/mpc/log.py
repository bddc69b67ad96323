"""What a controller saw and did: bounded in memory, saved to .npz, replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.files import numbers_in, read_arrays

if TYPE_CHECKING:
    from rigidgrad.control.surroundings import Surroundings

_STEP = ("t", "x", "u", "slack")
_SOLVE = ("solve_t", "solve_seconds", "solve_cost", "solve_iterations", "solve_violation")


class Log:
    """The last `capacity` steps (time, state, control, slack) and solves (time, seconds, cost,
    iterations, violation), and how often each fallback was taken.

    A state is NaN where none was measured. The violation is how far the plan, from its start on, is
    outside of limits (m, rad, rad/s, …; NaN without a plan); `simulated` says that time was. The
    slack is what was left of a step's time, in seconds, in a real-time run: negative where the
    deadline was missed, else NaN.
    """

    def __init__(self, nx: int, nu: int, capacity: int = 100_000):
        self.capacity = max(int(capacity), 1)
        self._shapes = {"t": (), "x": (nx,), "u": (nu,), "slack": (), **dict.fromkeys(_SOLVE, ())}
        self._rows = {
            name: np.zeros((min(self.capacity, 1024), *shape))
            for name, shape in self._shapes.items()
        }
        self.steps = self.solves = 0
        self.counts: dict[str, int] = {}
        self.simulated = True

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

    def add_solve(
        self, t: float, seconds: float, cost: float, iterations: int, violation: float = np.nan
    ) -> None:
        k = self._slot(_SOLVE, self.solves)
        for name, value in zip(_SOLVE, (t, seconds, cost, iterations, violation), strict=True):
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

    def save(self, path: Any, surroundings: Surroundings | None = None) -> None:
        """As a .npz file, which `Log.load` reads; `surroundings` are for pictures alone."""
        arrays = {name: getattr(self, name) for name in self._shapes}
        arrays |= {f"count_{name}": np.array(value) for name, value in self.counts.items()} | {
            "simulated": np.array(self.simulated)
        }
        np.savez_compressed(
            path, allow_pickle=False, **arrays, **(surroundings.arrays() if surroundings else {})
        )

    @staticmethod
    def load(path: Any) -> Log:
        """What `save` wrote."""
        try:
            data = read_arrays(path)
            # older logs have none
            data.setdefault("solve_violation", np.full(np.shape(data["solve_t"]), np.nan))
            steps, solves = (
                [numbers_in(name, data[name]) for name in names] for names in (_STEP, _SOLVE)
            )
            counts = {
                name.removeprefix("count_"): int(numbers_in(name, v)[()])
                for name, v in data.items()
                if name.startswith("count_")
            }
            if (
                steps[1].ndim != 2
                or steps[2].ndim != 2
                or any(a.ndim != 1 for a in (steps[0], steps[3], *solves))
            ):
                raise ValueError("an array has not the shape that a log has")
            if any(len({len(a) for a in arrays}) != 1 for arrays in (steps, solves)):
                raise ValueError("its arrays differ in length")
        except KeyError as error:
            raise InputError(
                f"{str(path)!r} is no log of a controller: it has no array {error}"
            ) from None
        except (ValueError, TypeError, OverflowError) as error:  # InputError is a ValueError
            raise InputError(f"{str(path)!r} is no log of a controller: {error}") from None
        log = Log(steps[1].shape[1], steps[2].shape[1], max(len(steps[0]), len(solves[0]), 1))
        for names, arrays in ((_STEP, steps), (_SOLVE, solves)):
            if len(arrays[0]):
                log._rows.update(zip(names, arrays, strict=True))
        log.steps, log.solves = len(steps[0]), len(solves[0])
        log.counts = counts
        log.simulated = bool(np.all(data.get("simulated", True)))
        return log
