"""A trajectory optimisation problem: a system, a start, a horizon, costs; and its compiled functions over all knots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rigidgrad.algorithms.joints import Matrix, Vector
from rigidgrad.control.costs import Cost
from rigidgrad.control.integrators import check_method, linearize, step
from rigidgrad.control.system import CustomSystem, RobotSystem, System, as_system
from rigidgrad.errors import InputError
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.lanes import Recording
from rigidgrad.scalars import Scalar, add, mul, total

Shapes = Mapping[str, tuple[int, ...]]


class Problem:
    """Minimise the costs over `steps` controls of `dt` seconds from `start`.

    `start` (nx,): for a robot [q, v]. Weights are per knot, not times dt. The first guess is `guess` (steps, nu), or to hold the start under
    gravity compensation. `start`, `dt`, and the costs' targets and weights may be changed by `update`: nothing is compiled again.
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
        if not isinstance(steps, int | np.integer) or steps < 1:
            raise InputError(f"steps is a whole number of at least 1, not {steps!r}")
        if limits is not None:
            raise InputError("limits are not supported yet; leave them out")
        if not costs or not all(isinstance(c, Cost) for c in costs):
            raise InputError("a problem needs costs: a list of State, Effort, Reach, …")
        self.steps = int(steps)
        self.integrator = check_method(integrator)
        self.costs = tuple(costs)
        self.update(start=start, dt=dt, guess=guess)

    def update(self, *, start: Any = None, dt: float | None = None, guess: Any = None) -> None:
        """Takes a new start, time step or first guess, and reads the costs' targets and weights anew."""
        if start is not None:
            self.start = _finite("start", start, (self.system.nx,))
        if dt is not None:
            if not np.isfinite(dt) or dt <= 0:
                raise InputError(f"dt is a positive number of seconds, not {dt!r}")
            self.dt = float(dt)
        self.guess = self._hold() if guess is None else _finite("guess", guess, (self.steps, self.system.nu))
        knots = self.steps + 1
        self.targets = [c.targets(self.system, knots) for c in self.costs]
        self.weights = [c.weights(self.system, knots) for c in self.costs]

    def _hold(self) -> np.ndarray:
        """The controls that come nearest to holding the start under gravity."""
        u = np.zeros(self.system.nu)
        if isinstance(self.system, RobotSystem):
            u = self.system.robot.gravity_torque(self.start[: self.system.nq])
            if self.system.actuation is not None:
                u = np.linalg.lstsq(np.array(self.system.actuation), u, rcond=None)[0]
        return np.tile(u, (self.steps, 1))

    # --- compiled functions -------------------------------------------------------------------------------------------------------

    def parameters(self, repeat: int = 1) -> list[np.ndarray]:
        """Targets and weights of all running knots, as the compiled functions take them; each knot `repeat` times."""
        arrays = [a[:-1] for pair in zip(self.targets, self.weights, strict=True) for a in pair]
        return [np.ascontiguousarray(np.repeat(a[:, None], repeat, axis=1)) if repeat > 1 else np.ascontiguousarray(a) for a in arrays]

    def final_parameters(self, repeat: int = 1) -> list[np.ndarray]:
        pairs = zip(self.costs, self.targets, self.weights, strict=True)
        arrays = [a[-1] for c, t, w in pairs if not c.uses_control for a in (t, w)]
        return [np.ascontiguousarray(np.tile(a, (repeat, 1))) for a in arrays]

    @cached_property
    def policy(self) -> Compiled:
        """(x, x_ref, u_ref, kappa, K, alpha, h) → the control u_ref + alpha·kappa + K (x ⊖ x_ref), and the state that it leads to."""
        s = self.system
        shapes = {"x": (s.nx,), "x_ref": (s.nx,), "u_ref": (s.nu,), "kappa": (s.nu,), "K": (s.nu, s.ndx), "alpha": (), "h": ()}

        def evaluate(p: dict[str, Any]) -> tuple:
            dx = s.minus(p["x"], p["x_ref"])
            feedback = [total(mul(k, d) for k, d in zip(row, dx, strict=True)) for row in p["K"]]
            u = tuple(add(add(a, mul(p["alpha"], b)), c) for a, b, c in zip(p["u_ref"], p["kappa"], feedback, strict=True))
            return u, step(s, self.integrator, p["x"], u, p["h"])

        return self._compiled("policy", shapes, {"u": (s.nu,), "x": (s.nx,)}, evaluate)

    @cached_property
    def expansion(self) -> Compiled:
        """(x, u, h, targets, weights) → A, B and the running cost's derivatives lx, lu, lxx, luu."""
        s = self.system
        outputs = {"A": (s.ndx, s.ndx), "B": (s.ndx, s.nu), "lx": (s.ndx,), "lu": (s.nu,), "lxx": (s.ndx, s.ndx), "luu": (s.nu, s.nu)}

        def evaluate(p: dict[str, Any]) -> tuple:
            _, A, B = linearize(s, self.integrator, p["x"], p["u"], p["h"])
            lx, lxx = self._derivatives(p, s.ndx, False)
            lu, luu = self._derivatives(p, s.nu, True)
            return A, B, lx, lu, lxx, luu

        return self._compiled("expansion", self._running_shapes({"h": ()}), outputs, evaluate)

    @cached_property
    def running_cost(self) -> Compiled:
        return self._compiled("running_cost", self._running_shapes({}), {"l": ()}, lambda p: (self._value(p, range(len(self.costs))),))

    @cached_property
    def final_expansion(self) -> Compiled:
        """(x, targets, weights) → the final cost l and its derivatives lx, lxx."""
        s = self.system
        kept = [i for i, c in enumerate(self.costs) if not c.uses_control]
        shapes = {"x": (s.nx,)} | {k: v for i in kept for k, v in self._cost_shapes(i).items()}

        def evaluate(p: dict[str, Any]) -> tuple:
            p = p | {"u": (0.0,) * s.nu}
            return self._value(p, kept), *self._derivatives(p, s.ndx, False)

        return self._compiled("final_expansion", shapes, {"l": (), "lx": (s.ndx,), "lxx": (s.ndx, s.ndx)}, evaluate)

    def _running_shapes(self, more: Shapes) -> Shapes:
        costs = {k: v for i in range(len(self.costs)) for k, v in self._cost_shapes(i).items()}
        return {"x": (self.system.nx,), "u": (self.system.nu,)} | dict(more) | costs

    def _cost_shapes(self, i: int) -> dict[str, tuple[int, ...]]:
        cost = self.costs[i]
        return {f"target{i}": (cost.target_size(self.system),), f"weight{i}": (cost.size(self.system),)}

    def _value(self, p: Mapping[str, Any], which: Sequence[int]) -> Scalar:
        terms = []
        for i in which:
            r = self.costs[i].residual(self.system, p["x"], p["u"], p[f"target{i}"])
            terms += [mul(w, mul(x, x)) for w, x in zip(p[f"weight{i}"], r, strict=True)]
        return total(terms) / 2

    def _derivatives(self, p: Mapping[str, Any], n: int, by_control: bool) -> tuple[Vector, Matrix]:
        """Jᵀ W r and Jᵀ W J, summed over the costs of the state or of the control."""
        gradient: list[Scalar] = [0.0] * n
        hessian: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
        for k, cost in enumerate(self.costs):
            if cost.uses_control != by_control:
                continue
            r = cost.residual(self.system, p["x"], p["u"], p[f"target{k}"])
            J = cost.jacobian(self.system, p["x"], p["u"], p[f"target{k}"])
            for weight, x, row in zip(p[f"weight{k}"], r, J, strict=True):
                for i in range(n):
                    scaled = mul(weight, row[i])
                    gradient[i] = add(gradient[i], mul(scaled, x))
                    for j in range(i + 1):
                        hessian[i][j] = add(hessian[i][j], mul(scaled, row[j]))
        return tuple(gradient), tuple(tuple(hessian[max(i, j)][min(i, j)] for j in range(n)) for i in range(n))

    def _compiled(self, name: str, inputs: Shapes, outputs: Shapes, evaluate: Callable[[dict[str, Any]], tuple]) -> Compiled:
        def build():
            return fuse(record(inputs, outputs, evaluate))

        costs = " ".join(c.key() for c in self.costs)
        identity = f"{self.system.key()} {self.integrator} {costs} {dict(inputs)}"
        if isinstance(self.system, CustomSystem):
            identity += str(build())
        return Compiled(Recording(name, self.system.name, identity, build), dtype="float64", threads=1)


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
