"""The problem of a controller: its numbers change while it runs, its start is wherever the robot
is, and neither is ever an error in the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rigidgrad.control.limits import Velocity
from rigidgrad.control.memory import control_before, remembering_programs
from rigidgrad.control.parameters import merged, with_loads
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError

_PER_SECOND = 10.0
_NONE = np.zeros(0)
_FAR = 1e12  # stands for an infinite bound
# units of a constraint per second (m/s, rad/s) in which a bound that the start is outside of comes
# back to its place
RECOVERY_RATE = 0.5
LONGEST_RECOVERY = 0.25  # at most in this part of the horizon
# seconds in which a margin grows by the violation, and forgets it
MARGIN_GROWTH, MARGIN_DECAY = (0.05, 1.0)
LARGEST_MARGIN, MARGIN_PART = 0.02, 0.05  # in the constraint's unit; as a part of its range


class LiveProblem(Problem):
    """A problem whose `update` is read by the controller before its next step, with multipliers and
    penalties kept.

    A start outside of its limits is no error: the bound in question begins at the start and comes
    back to its place at 0.5 m/s (rad/s), or within a quarter of the horizon. Bounds are drawn in by
    a `margin` a constraint, which grows with how far executed states were outside, and fades.
    """

    stale: bool
    time_step: float | None
    changed: dict[str, Any]
    _began: float  # when the first of several phases did
    _passed: int  # steps that are over
    _motion: np.ndarray | None  # the numbers of all knots, from the first phase on
    _motion_bounds: tuple[np.ndarray, np.ndarray]  # of the controls, likewise

    @classmethod
    def of(cls, problem: Problem) -> LiveProblem:
        live = object.__new__(cls)
        live.__dict__.update(problem.private_copy().__dict__)
        # controls alone, and the same after updates
        live.guess_states, live.asked_guess = (None, live.guess)
        live.stale, live.time_step, live.changed = False, None, {}
        live.forget_margins()
        live._began, live._passed, live._motion = math.nan, 0, None
        live.read()
        return live

    def forget_margins(self) -> None:
        self.margin = np.zeros(len(self.programs.columns["lower"]))
        self._fitted = math.nan  # when the last plan began

    def shift(self, seconds: float) -> None:
        """The clock was moved."""
        self._fitted += seconds
        self._began += seconds

    # --- phases that pass -------------------------------------------------------------------------

    def begin_motion(self) -> None:
        """The first phase begins with the next plan, after no control of the controller's."""
        self.previous = control_before(self)
        self._began, self._passed = math.nan, 0
        self._place()

    def pass_on(self, begin: float) -> None:
        """For a plan from a time on: of several phases, steps that are over are left out, and the
        last phase goes on for as many.
        """
        if len(self.phases) < 2:
            return
        self._began = begin if math.isnan(self._began) else self._began
        passed = max(int((begin - self._began) / self.dt + 1e-6), 0)
        if passed != self._passed:
            self._passed = passed
            self._place()

    def _place(self) -> None:
        """Writes the numbers of the motion from the step on that has come. Beyond its end targets
        are those of the end, and weights, contacts and bounds those of the last step.
        """
        columns, n = self.programs.columns, self.steps
        if len(self.phases) > 1:
            assert self._motion is not None
            ahead = self._passed + np.arange(n)
            rows = np.minimum(ahead, n - 1)
            moved = self._motion[[*rows, n]]
            for part in self.programs.slices:
                moved[:n][ahead >= n, part["target"]] = self._motion[n, part["target"]]
            for name in ("multiplier", "penalty", "softness"):
                moved[:, columns[name]] = self.p[:, columns[name]]
            self.p[:] = moved
            self.own_bounds = self.bounds = (
                self._motion_bounds[0][rows],
                self._motion_bounds[1][rows],
            )
        self.asked = self.p[:, columns["lower"]], self.p[:, columns["upper"]]

    def update(
        self,
        *,
        start: Any = None,
        dt: float | None = None,
        guess: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Numbers of costs and limits, a new time step and parameters count from the next step of
        the controller on; start and guess are the controller's own.
        """
        self.stale, self.time_step = True, dt if dt is not None else self.time_step
        if parameters is not None:
            self.changed = merged(self.changed or self.parameters, parameters)

    def read(self) -> bool:
        """Reads all numbers again; whether weights or the time step changed. Where one is wrong,
        all stay as they were, and the error says why.
        """
        columns, before = self.programs.columns, self.p.copy()
        start, dt, h, wanted = self.start, self.dt, self.h, self.time_step
        changed, known = self.changed, self.parameters
        self.stale, self.time_step, self.changed = False, None, {}
        try:
            self.parameters = changed or known
            if wanted is not None:
                if not (isinstance(wanted, int | float) and math.isfinite(wanted) and wanted > 0):
                    raise InputError(f"dt is a positive number of seconds, not {wanted!r}")
                self.dt = float(wanted)
                self.h = np.full(self.steps, self.dt)
            self.start = None  # type: ignore[assignment]  # bounds as they were asked for
            self._read_terms()
            bounds = self._control_bounds()
        except Exception:
            self.p[:], self.dt, self.h, self.parameters = before, dt, h, known
            raise
        finally:
            self.start = start
        self.own_bounds = self.bounds = bounds  # of the controls, as asked for
        for name in ("multiplier", "penalty", "softness"):
            self.p[:, columns[name]] = before[:, columns[name]]
        weights = [part["weight"] for part in self.programs.slices[: len(self.costs)]]
        known_rows = self._motion if self._motion is not None and len(self.phases) > 1 else before
        changed_weights = any(not np.array_equal(self.p[:, w], known_rows[:, w]) for w in weights)
        self._motion, self._motion_bounds = self.p.copy(), bounds
        self._place()
        return self.dt != dt or changed_weights

    def tolerances(self, violation: float) -> np.ndarray:
        """What is no violation of each constraint, (constraints,): of velocities what adds up to
        `violation` in a tenth of a second.
        """
        if not (
            isinstance(violation, int | float | np.number)
            and math.isfinite(violation)
            and violation >= 0.0
        ):
            raise InputError(
                "violation is how far a plan may be outside of its limits, a number of at least 0,"
                f" not {violation!r}"
            )
        parts = [
            np.full(
                c.size(self.system), violation * (_PER_SECOND if isinstance(c, Velocity) else 1.0)
            )
            for c in self.constraints
        ]
        return np.concatenate([*parts, np.zeros(0)])

    def set_multipliers(self, rows: np.ndarray) -> None:
        """(knots, constraints)."""
        self.p[:, self.programs.columns["multiplier"]] = rows

    def set_penalties(self, rows: np.ndarray) -> None:
        """(knots, constraints)."""
        self.p[:, self.programs.columns["penalty"]] = rows

    # --- bounds of a plan -------------------------------------------------------------------------

    def fit_at(self, begin: float) -> np.ndarray:
        """As `fit`, for a plan that begins at a time."""
        if not self.constraints:
            return _NONE
        elapsed, self._fitted = begin - self._fitted, begin
        return self.fit(elapsed if elapsed > 0.0 else 0.0)

    def fit(self, elapsed: float) -> np.ndarray:
        """Sets the bounds of a plan from `start` on, `elapsed` seconds after the last one; how far
        the start is outside of each (constraints,).
        """
        columns = self.programs.columns
        if elapsed > 0.0:
            self.margin = math.exp(-elapsed / MARGIN_DECAY) * self.margin
        now = self._values(self.start)
        lower, upper = (b[1] for b in self.asked)  # those of the start itself are open
        outside = self.states_outside(self.start)
        if outside.any():
            most = np.minimum(LARGEST_MARGIN, MARGIN_PART * (upper - lower))
            self.margin = np.minimum(
                self.margin + outside * min(elapsed / MARGIN_GROWTH, 1.0), np.maximum(most, 0.0)
            )
        if not (self.margin.any() or outside.any()):
            self.p[:, columns["lower"]], self.p[:, columns["upper"]] = self.asked
            return outside
        under, over = (
            np.where(self.programs.controlled, 0.0, np.maximum(d, 0.0))
            for d in (lower + self.margin - now, now - upper + self.margin)
        )
        passed = self.dt * np.arange(self.steps + 1)[:, None]
        for name, asked, sign, away in (
            ("lower", self.asked[0], 1.0, under),
            ("upper", self.asked[1], -1.0, over),
        ):
            rate = np.maximum(RECOVERY_RATE, away / (LONGEST_RECOVERY * self.steps * self.dt))
            drawn = asked + sign * (self.margin - np.maximum(away - rate * passed, 0.0))
            self.p[:, columns[name]] = np.where(np.abs(asked) < _FAR, drawn, asked)
        return outside

    def _values(self, x: np.ndarray) -> np.ndarray:
        """Of the constraints at states (…, nx)."""
        batch = x.shape[:-1]
        u = np.zeros((*batch, self.system.nu))
        programs = self.programs
        if self.bounds_rate:
            programs, x = remembering_programs(programs), np.concatenate([x, u], axis=-1)
        values: np.ndarray = programs.constraint_values(
            x, u, np.broadcast_to(self.p[0], (*batch, self.p.shape[1]))
        )
        return values

    def states_outside(self, x: np.ndarray) -> np.ndarray:
        """How far states (…, nx) are outside of the limits of now, (…, constraints); 0 for
        constraints that use the control.
        """
        c, (lower, upper) = self._values(x), (b[1] for b in self.asked)
        return np.where(
            self.programs.controlled, 0.0, np.maximum(np.maximum(lower - c, c - upper), 0.0)
        )

    def outside(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """How far a trajectory is outside of what was asked for, (knots, constraints)."""
        c, _, _ = self._constraint_numbers(x, u)
        excess: np.ndarray = np.maximum(np.maximum(self.asked[0] - c, c - self.asked[1]), 0.0)
        excess[-1, self.programs.controlled] = 0.0
        return excess


def with_payload(problem: Problem, payload: Any) -> Problem:
    """The problem with payloads, {frame: mass or {"mass": …, "offset": (3,)}}, among its
    parameters: recorded again where there was none on such a frame.
    """
    if not isinstance(payload, Mapping):
        raise InputError(
            'payload is a dict {frame: mass, or {"mass": …, "offset": (3,)}}, not'
            f" {type(payload).__name__}"
        )
    known = problem.parameters.get("payload", {})
    parameters = {**problem.parameters, "payload": with_loads(known, payload)}
    if set(payload) <= set(known):
        problem = problem.private_copy()
        problem.update(parameters={"payload": payload})
        return problem
    return Problem(
        problem.bare_system,
        problem.start,
        None if problem.phases else problem.steps,
        problem.asked_dt,
        phases=problem.phases or None,
        integrator=problem.integrator,
        costs=problem.parts[0].costs,
        limits=problem.limits,
        guess=problem.asked_guess,
        parameters=parameters,
    )
