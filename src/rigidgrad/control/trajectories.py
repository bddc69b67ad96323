"""Functions of a problem over whole trajectories: dynamics and costs of all knots at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rigidgrad.control.programs import Programs
from rigidgrad.control.solution import knot_times
from rigidgrad.control.system import System


class Expansion(NamedTuple):
    """A trajectory to second order, in the tangent space: N steps, n = ndx, m = nu. `next` is
    f(x_k, u_k); costs have N + 1 knots where they concern the state.
    """

    next: np.ndarray  # (N, nx)
    A: np.ndarray  # (N, n, n)
    B: np.ndarray  # (N, n, m)
    l: np.ndarray  # (N + 1,)
    lx: np.ndarray  # (N + 1, n)
    lu: np.ndarray  # (N, m)
    lxx: np.ndarray  # (N + 1, n, n)
    lux: np.ndarray  # (N, m, n)
    luu: np.ndarray  # (N, m, m)


class Trajectories:
    """What is compiled for a problem, applied to states x (N + 1, nx) and controls u (N, nu) with
    its numbers: `p`, one row per knot, and `h` (N,), seconds of each step.
    """

    system: System
    steps: int
    dt: float  # of all steps, or of most
    programs: Programs
    p: np.ndarray
    h: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]  # of the controls, (N, nu) each

    @property
    def uniform(self) -> bool:
        """Whether all steps last equally long."""
        return bool((self.h == self.h[0]).all())

    @property
    def times(self) -> np.ndarray:
        """Of all knots, in seconds from the start, (steps + 1,)."""
        return knot_times(self.h)

    def linearize(self, x: np.ndarray, u: np.ndarray) -> Expansion:
        """The trajectory x (N + 1, nx), u (N, nu) to second order."""
        after, A, B, running, lx, lu, lxx, lux, luu = self.programs.linearization(
            x[:-1], u, self.h, self.p[:-1]
        )
        last, last_lx, last_lxx = self.programs.final_linearization(x[-1:], self.p[-1:])
        both = (np.concatenate(pair) for pair in ((running, last), (lx, last_lx), (lxx, last_lxx)))
        total, gradient, hessian = both
        return Expansion(after, A, B, total, gradient, lu, hessian, lux, luu)

    def evaluate(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(f(x_k, u_k), costs with penalties of all knots) of trajectories (…, N + 1, nx), (…, N,
        nu).
        """
        batch = x.shape[:-2]
        p = self.p if not batch else np.broadcast_to(self.p, (*batch, *self.p.shape))
        after, running = self._at_all_knots(x, u, p)
        last = self.programs.final_evaluation(x[..., -1, :], p[..., -1, :])
        costs = running.sum(axis=-1)
        costs[..., -1] = last.sum(axis=-1)
        return after[..., :-1, :], costs

    def cost(self, x: np.ndarray, u: np.ndarray) -> float:
        """The cost of a trajectory, without penalties."""
        running = self._at_all_knots(x, u, self.p)[1]
        return float(
            running[:-1, 0].sum() + self.programs.final_evaluation(x[-1:], self.p[-1:])[0, 0]
        )

    def _at_all_knots(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Next states and running costs; the last knot, with the control before it, only keeps
        arrays whole and is to be ignored.
        """
        padded = np.concatenate([u, u[..., -1:, :]], axis=-2)
        h = np.broadcast_to(np.append(self.h, self.h[-1]), x.shape[:-1])
        found: tuple[np.ndarray, np.ndarray] = self.programs.evaluation(x, padded, h, p)
        return found

    def minus(self, x: np.ndarray, origin: np.ndarray) -> np.ndarray:
        """x ⊖ origin, states of any batch shape."""
        if self.system.flat:
            flat: np.ndarray = x - origin
            return flat
        difference: np.ndarray = self.programs.difference(x, origin)
        return difference

    def plus(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """x ⊕ dx."""
        if self.system.flat:
            flat: np.ndarray = x + dx
            return flat
        moved: np.ndarray = self.programs.displacement(x, dx)
        return moved
