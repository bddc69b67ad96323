"""Model predictive path integral control: what a step costs in many worlds decides what is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.errors import InputError
from rigidgrad.worlds.worlds import Worlds


class MPPI:
    """Controls by sampling: `u = mppi(qpos, qvel)`.

    Each world of `worlds` tries the plan with noise of its own (`noise`, a number or (nu,), held
    for `hold` steps), for `horizon` controls of `steps` steps each. The next plan is the mean of
    what was tried, with weights exp(-(cost - least)/(temperature · spread of costs)); its first
    control is returned, and the rest is where the next call begins. The same `seed` gives the
    same noise.

    `cost(worlds, u)` gives the cost of all worlds (count,) as they are, with the controls (count,
    nu) that led there. Reference: Williams, Aldrich and Theodorou 2017.
    """

    def __init__(
        self,
        worlds: Worlds,
        cost: Callable[[Worlds, np.ndarray], Any],
        *,
        horizon: int = 20,
        steps: int = 1,
        noise: ArrayLike = 0.3,
        hold: int = 1,
        temperature: float = 0.1,
        seed: int = 0,
    ):
        if not worlds.nu:
            raise InputError("MPPI needs a model with actuators")
        for name, value in (("horizon", horizon), ("steps", steps), ("hold", hold)):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} is a whole number from 1 on, not {value!r}")
        if not temperature > 0:
            raise InputError(f"temperature is a positive number, not {temperature!r}")
        self.worlds, self.cost = worlds, cost
        self.horizon, self.steps, self.hold = horizon, steps, hold
        self.noise = np.broadcast_to(np.asarray(noise, float), (worlds.nu,))
        self.temperature = temperature
        self.plan = np.zeros((horizon, worlds.nu))
        self._rng = np.random.default_rng(seed)
        self._bounds = np.full((2, worlds.nu), [[-np.inf], [np.inf]])
        for k, a in enumerate(worlds.world.physics.actuators):
            if a.control:
                self._bounds[:, k] = a.control

    def __call__(self, qpos: Any, qvel: Any) -> np.ndarray:
        w = self.worlds
        w.reset(qpos=qpos, qvel=qvel)
        lost = w.lost.copy()
        draws = -(-self.horizon // self.hold)
        noise = self.noise * self._rng.normal(size=(draws, w.count, w.nu))
        noise[:, 0] = 0.0  # one world follows the plan
        tried = self.plan[:, None] + np.repeat(noise, self.hold, axis=0)[: self.horizon]
        tried = np.clip(tried, *self._bounds)
        costs = np.zeros(w.count)
        for u in tried:
            w.step(u, self.steps)
            costs += np.asarray(self.cost(w, u), float)
        costs[(w.lost > lost) | ~np.isfinite(costs)] = np.inf
        least = costs.min()
        if np.isfinite(least):
            spread = max(float(np.std(costs[np.isfinite(costs)])), 1e-12)
            weights = np.exp(-(costs - least) / (self.temperature * spread))
            self.plan = np.einsum("k,tkj->tj", weights / weights.sum(), tried)
        first: np.ndarray = self.plan[0].copy()
        self.plan = np.concatenate([self.plan[1:], self.plan[-1:]])
        return first
