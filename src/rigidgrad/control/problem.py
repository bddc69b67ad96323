"""A trajectory optimisation problem: a system, a start, a horizon, costs and limits; and its functions over all knots."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control.costs import Cost, CustomValue
from rigidgrad.control.integrators import check_method
from rigidgrad.control.limits import as_limits
from rigidgrad.control.programs import shared_programs
from rigidgrad.control.system import RobotSystem, System, as_system
from rigidgrad.errors import InputError

FIRST_PENALTY = 10.0
_FAR = 1e12  # stands for an infinite bound
_NOTHING = 1e-12  # a residual as good as none
_SHARP = 1e-30  # the softness of a corner that is as good as sharp


class Expansion(NamedTuple):
    """A trajectory to second order, in the tangent space: N steps, n = ndx, m = nu. `next` is f(x_k, u_k); costs have N + 1 knots where they concern the state."""

    next: np.ndarray  # (N, nx)
    A: np.ndarray  # (N, n, n)
    B: np.ndarray  # (N, n, m)
    l: np.ndarray  # (N + 1,)
    lx: np.ndarray  # (N + 1, n)
    lu: np.ndarray  # (N, m)
    lxx: np.ndarray  # (N + 1, n, n)
    lux: np.ndarray  # (N, m, n)
    luu: np.ndarray  # (N, m, m)


class Stand(NamedTuple):
    """How a trajectory stands to its constraints: the largest violation, the multipliers that it calls for (knots, constraints), and Σ |multiplier| · distance to the bound."""

    violation: float
    multiplier: np.ndarray
    gap: float


class Aim(NamedTuple):
    """What a cost wants of the last knot."""

    name: str
    cost: Cost
    target: tuple[float, ...]
    weighted: tuple[bool, ...]  # which of its residuals have a weight there

    def distance(self, system: System, x: np.ndarray) -> float:
        """The norm of the residuals that have a weight."""
        residual = self.cost.residual(system, tuple(x.tolist()), (0.0,) * system.nu, self.target)
        return math.sqrt(sum(float(r) ** 2 for r, counts in zip(residual, self.weighted, strict=True) if counts))


class Problem:
    """Minimise the costs over `steps` controls of `dt` seconds from `start`, within `limits`.

    `start` (nx,): for a robot [q, v]. Weights are per knot, not times dt. The first guess is `guess`, controls (steps, nu) or a pair of states (steps + 1, nx) and
    controls, or else to hold the start under gravity compensation. `limits` is None, `robot.limits` or `rg.Limits(…)`. `start`, `dt`, `guess`, and the costs' and
    limits' numbers may be changed by `update`: nothing is recorded or compiled again.
    """

    def __init__(
        self,
        system: Any,
        start: Any,
        steps: int,
        dt: float,
        *,
        integrator: str = "semi_implicit_euler",
        costs: Sequence[Cost] = (),
        limits: Any = None,
        guess: Any = None,
    ):
        self.system: System = as_system(system)
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise InputError(f"steps is a whole number of at least 1, not {steps!r}")
        if isinstance(costs, Cost):
            costs = [costs]
        if not costs or not all(isinstance(c, Cost) for c in costs):
            raise InputError("a problem needs costs: a list of rg.costs.State, Effort, Reach, …")
        self.steps = int(steps)
        self.integrator = check_method(integrator)
        self.costs = tuple(costs)
        self.limits = as_limits(limits, self.system)
        self.constraints = self.limits.constraints(self.system)
        bounded = self.limits.control_bounds(self.system, self.steps) is not None
        self.programs = shared_programs(self.system, self.integrator, self.costs, self.constraints, bounded)
        self.p = np.zeros((self.steps + 1, self.programs.parameters))
        self.workspaces: dict[Any, Any] = {}  # solvers' buffers
        self.update(start=start, dt=dt, guess=guess)

    def update(self, *, start: Any = None, dt: float | None = None, guess: Any = None) -> None:
        """Takes a new start, time step or first guess, and reads the numbers of costs and limits anew."""
        if start is not None:
            self.start = _finite("start", start, (self.system.nx,))
            if isinstance(self.system, RobotSystem):
                unit = self.system.robot.normalize(self.start[: self.system.nq])
                if not np.allclose(unit, self.start[: self.system.nq], rtol=0, atol=1e-6):
                    raise InputError("start has a quaternion or (cos, sin) whose length is not 1; pass its q through robot.normalize")
        if dt is not None:
            if not np.isfinite(dt) or dt <= 0:
                raise InputError(f"dt is a positive number of seconds, not {dt!r}")
            self.dt = float(dt)
        self._read_terms()
        # of the controls, (lower, upper), each (steps, nu)
        free = np.full((self.steps, self.system.nu), np.inf)
        self.bounds = self.limits.control_bounds(self.system, self.steps) or (-free, free)
        self.guess_states: np.ndarray | None = None
        if guess is None:
            self.guess = self._hold()
        elif isinstance(guess, tuple):
            states, controls = guess
            self.guess_states = _finite("the guess of states", states, (self.steps + 1, self.system.nx))
            self.guess = _finite("the guess of controls", controls, (self.steps, self.system.nu))
        else:
            self.guess = _finite("guess", guess, (self.steps, self.system.nu))
        self.guess = np.clip(self.guess, *self.bounds)

    def _read_terms(self) -> None:
        knots, parts = self.steps + 1, iter(self.programs.slices)
        for cost in self.costs:
            part = next(parts)
            self.p[:, part["target"]] = cost.targets(self.system, knots)
            self.p[:, part["weight"]] = cost.weights(self.system, knots)
        if self.negligible() == 0.0:
            raise InputError("all weights are zero, so that every motion is as good as any other: give the costs a weight= or final=")
        for constraint in self.constraints:
            part = next(parts)
            self.p[:, part["target"]] = constraint.targets(self.system, knots)
            bounds = constraint.bounds(self.system, knots, self.start)
            self.p[:, part["lower"]], self.p[:, part["upper"]] = np.clip(bounds, -_FAR, _FAR)
        self.forget_multipliers()

    def __reduce__(self):
        guess = self.guess if self.guess_states is None else (self.guess_states, self.guess)
        return _restore, (self.system, self.start, self.steps, self.dt, self.integrator, self.costs, self.limits, guess)

    def private_copy(self) -> Problem:
        """The same problem with numbers of its own."""
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__)
        other.p, other.workspaces = self.p.copy(), {}
        return other

    def copy_numbers(self, other: Problem) -> None:
        """Takes over all numbers of a problem with the same programs and length, without copying what solvers only read."""
        self.p[:] = other.p
        self.start, self.dt, self.bounds, self.guess, self.guess_states = (
            other.start,
            other.dt,
            other.bounds,
            other.guess,
            other.guess_states,
        )

    def batch(
        self, start: Any = None, *, targets: Mapping[int, Any] | None = None, weights: Mapping[int, Any] | None = None, guess: Any = None
    ) -> list[Problem]:
        """Copies of this problem that differ in their start (B, nx), their first guess (B, steps, nu), or in targets and weights of costs.

        `targets` and `weights` are {number of the cost: array whose first axis is the batch}; what follows that axis is what the cost itself takes as its goal, target
        or weight. All share what is compiled: `rg.solve(problem.batch(…))` solves them together.
        """
        given = [v for v in (start, guess, *(targets or {}).values(), *(weights or {}).values()) if v is not None]
        lengths = {len(v) for v in given}
        if len(lengths) != 1:
            raise InputError(f"a batch needs arrays whose first axes agree; these have {sorted(lengths) or 'none'}")
        for index in (*(targets or {}), *(weights or {})):
            if not 0 <= index < len(self.costs):
                raise InputError(f"this problem has {len(self.costs)} costs, numbered from 0; there is no cost {index}")
        result = []
        for b in range(lengths.pop()):
            one = self.private_copy()
            one.costs = tuple(copy.copy(c) for c in self.costs)
            for index, values in (targets or {}).items():
                _retarget(one.costs[index], values[b])
            for index, values in (weights or {}).items():
                one.costs[index].weight = values[b]
            one.update(start=None if start is None else start[b], guess=None if guess is None else guess[b])
            result.append(one)
        return result

    def _hold(self) -> np.ndarray:
        """The controls that come nearest to holding the start under gravity."""
        u = np.zeros(self.system.nu)
        if isinstance(self.system, RobotSystem):
            u = self.system.robot.gravity_torque(self.start[: self.system.nq])
            if self.system.actuation is not None:
                u = np.linalg.lstsq(np.array(self.system.actuation), u, rcond=None)[0]
        return np.tile(u, (self.steps, 1))

    def negligible(self) -> float:
        """A cost as good as none: that of residuals of 1e-12."""
        return 0.5 * _NOTHING**2 * sum(float(self.p[:, part["weight"]].sum()) for part in self.programs.slices[: len(self.costs)])

    def aims(self) -> tuple[Aim, ...]:
        """What the costs want of the last knot, where they have a weight there."""
        found: list[Aim] = []
        for cost, part in zip(self.programs.costs, self.programs.slices, strict=False):
            weighted = self.p[-1, part["weight"]] > 0.0
            if weighted.any() and not isinstance(cost, CustomValue):
                name, known = cost.label(), {aim.name for aim in found}
                name = next(n for n in (name, *(f"{name} ({k})" for k in range(2, len(self.costs) + 1))) if n not in known)
                found.append(Aim(name, cost, tuple(self.p[-1, part["target"]].tolist()), tuple(weighted.tolist())))
        return tuple(found)

    # --- constraints, as the augmented Lagrangian sees them ------------------------------------------------------------------------------

    def forget_multipliers(self, penalty: float = FIRST_PENALTY) -> None:
        columns = self.programs.columns
        self.p[:, columns["multiplier"]] = 0.0
        self.p[:, columns["penalty"]] = penalty
        self.p[:, columns["softness"]] = _SHARP

    def soften(self, width: float) -> None:
        """Rounds the corners of the penalties over `width` times half of a constraint's range, or times its unit where it has only one bound; equalities have none."""
        columns = self.programs.columns
        lower, upper = self.p[:, columns["lower"]], self.p[:, columns["upper"]]
        half = np.where((lower > -_FAR) & (upper < _FAR), 0.5 * (upper - lower), 1.0)
        self.p[:, columns["softness"]] = (2.0 * width * half) ** 2 + _SHARP

    def excess(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """How far each constraint is violated, signed, (knots, constraints); 0 where it holds."""
        c, lower, upper = self._constraint_numbers(x, u)
        return c - np.clip(c, lower, upper)

    def violation(self, x: np.ndarray, u: np.ndarray) -> float:
        """The largest excess."""
        return float(np.max(np.abs(self.excess(x, u)), initial=0.0)) if self.constraints else 0.0

    def stand(self, x: np.ndarray, u: np.ndarray) -> Stand:
        """How a trajectory stands to its constraints."""
        c, lower, upper = self._constraint_numbers(x, u)
        columns = self.programs.columns
        mu, softness = self.p[:, columns["penalty"]], self.p[:, columns["softness"]]
        y = c + self.p[:, columns["multiplier"]] / mu
        over, under = y - upper, lower - y
        above = over > under
        t = np.where(above, over, under)
        q = np.sqrt(t * t + softness)
        a = 0.5 * (q + np.abs(t))
        r = np.where(t < 0.0, 0.25 * softness / a, a)
        multiplier = mu * r * r / q
        slack = np.where(above, upper - c, c - lower)
        violation = max(0.0, -float(slack.min(initial=0.0)))
        return Stand(violation, np.where(above, multiplier, -multiplier), float(np.vdot(multiplier, np.abs(slack))))

    def renew_multipliers(self, x: np.ndarray, u: np.ndarray, grow: float, most: float) -> None:
        """λ becomes the slope of the penalty, then μ grows, up to `most`."""
        self.take_multipliers(self.stand(x, u).multiplier, grow, most)

    def take_multipliers(self, multiplier: np.ndarray, grow: float, most: float) -> None:
        columns = self.programs.columns
        self.p[:, columns["multiplier"]] = multiplier
        if grow != 1.0:
            self.p[:, columns["penalty"]] = np.minimum(self.p[:, columns["penalty"]] * grow, most)

    def _constraint_numbers(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values and bounds of all constraints; the last knot, which has no control, is free of those that use it."""
        c = self.programs.constraint_values(x, np.concatenate([u, u[-1:]]), self.p)
        lower, upper = (self.p[:, self.programs.columns[name]] for name in ("lower", "upper"))
        last = self.programs.controlled
        lower[-1, last], upper[-1, last] = -_FAR, _FAR
        return c, lower, upper

    # --- functions over whole trajectories -----------------------------------------------------------------------------------------------

    def linearize(self, x: np.ndarray, u: np.ndarray) -> Expansion:
        """The trajectory x (N + 1, nx), u (N, nu) to second order."""
        h = np.full(self.steps, self.dt)
        after, A, B, running, lx, lu, lxx, lux, luu = self.programs.linearization(x[:-1], u, h, self.p[:-1])
        last, last_lx, last_lxx = self.programs.final_linearization(x[-1:], self.p[-1:])
        both = (np.concatenate(pair) for pair in ((running, last), (lx, last_lx), (lxx, last_lxx)))
        total, gradient, hessian = both
        return Expansion(after, A, B, total, gradient, lu, hessian, lux, luu)

    def evaluate(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(f(x_k, u_k), costs with penalties of all knots) of trajectories (…, N + 1, nx), (…, N, nu)."""
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
        return float(running[:-1, 0].sum() + self.programs.final_evaluation(x[-1:], self.p[-1:])[0, 0])

    def _at_all_knots(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Next states and running costs; the last knot, with the control before it, only keeps arrays whole and is to be ignored."""
        padded = np.concatenate([u, u[..., -1:, :]], axis=-2)
        return self.programs.evaluation(x, padded, np.full(x.shape[:-1], self.dt), p)

    def minus(self, x: np.ndarray, origin: np.ndarray) -> np.ndarray:
        """x ⊖ origin, states of any batch shape."""
        if self.system.flat:
            return x - origin
        return self.programs.difference(x, origin)

    def plus(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """x ⊕ dx."""
        if self.system.flat:
            return x + dx
        return self.programs.displacement(x, dx)


def _restore(system: System, start: Any, steps: int, dt: float, integrator: str, costs: Any, limits: Any, guess: Any) -> Problem:
    return Problem(system, start, steps, dt, integrator=integrator, costs=costs, limits=limits, guess=guess)


def _retarget(cost: Cost, value: Any) -> None:
    """Each kind of cost has its own word for what it aims at."""
    for name in ("goal", "target", "reference", "parameters"):
        if hasattr(cost, name):
            setattr(cost, name, value)
            return
    raise InputError(f"{type(cost).__name__} has no target")


def _finite(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} is not an array of numbers") from None
    if array.shape != shape:
        raise InputError(f"{what} has shape {array.shape}; expected {shape}")
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} holds NaN or infinity")
    return array
