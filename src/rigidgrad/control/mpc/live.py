"""The problem of a controller: its numbers change while it runs, its start is wherever the robot
is, and neither is ever an error in the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rigidgrad.control.limits import Velocity
from rigidgrad.control.memory import control_before, remembering_programs
from rigidgrad.control.mpc.motion import Motion, first_again
from rigidgrad.control.parameters import merged, with_loads
from rigidgrad.control.problem import Problem
from rigidgrad.control.solution import knot_times
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
    passed: int  # steps that are over
    seconds_ahead: np.ndarray  # of all knots, from the first one on
    now: int  # the step that a plan begins with, after impacts at that very moment
    _began: float  # when the first of several phases did
    _left: float  # seconds of the step in which a plan begins
    _motion: Motion | None  # all knots, from the first phase on
    _again: int | None  # the step from which on a motion is repeated

    @classmethod
    def of(cls, problem: Problem, repeat: int | None = None) -> LiveProblem:
        """`repeat`: the number of the phase that comes after the last one."""
        live = object.__new__(cls)
        live.__dict__.update(problem.private_copy().__dict__)
        # controls alone, and the same after updates
        live.guess_states, live.asked_guess = (None, live.guess)
        live.stale, live.time_step, live.changed = False, None, {}
        live.forget_margins()
        live._again = first_again(problem.phases, repeat)
        live._began, live.passed, live._left, live._motion = math.nan, 0, 0.0, None
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
        assert self._motion is not None
        self._began, self.passed, self._left = math.nan, 0, float(self._motion.h[0])
        self._place()

    def pass_on(self, begin: float) -> None:
        """For a plan from a time on: of several phases, steps that are over are left out, and the
        last phase goes on for as many, or others come again.
        """
        if self._motion is None or len(self.phases) < 2:
            return
        self._began = begin if math.isnan(self._began) else self._began
        passed, left = self._motion.passed(begin - self._began)
        if (passed, left) != (self.passed, self._left):
            self.passed, self._left = passed, left
            self._place()

    def _place(self) -> None:
        """Writes the numbers of the motion from the step on that has come. Beyond its end targets
        are those of the end, and weights, contacts and bounds those of the last step, unless steps
        come again.
        """
        columns, n, motion = self.programs.columns, self.steps, self._motion
        if len(self.phases) > 1:
            assert motion is not None
            rows = motion.rows(self.passed, n)
            moved = motion.p[[*rows, n]]
            if motion.cycle:
                self._close_cycle(moved, rows)
            else:
                beyond = self.passed + np.arange(n) >= n
                for part in self.programs.slices:
                    moved[:n][beyond, part["target"]] = motion.p[n, part["target"]]
            if not motion.even:
                self.h = motion.h[rows]
                if self.h[0]:  # of the first step only a part is left
                    for part in self.programs.slices[: len(self.costs)]:
                        moved[0, part["weight"]] *= self._left / self.h[0]
                    self.h[0] = self._left
            for name in ("multiplier", "penalty", "softness"):
                moved[:, columns[name]] = self.p[:, columns[name]]
            self.p[:] = moved
            self.own_bounds = self.bounds = (motion.bounds[0][rows], motion.bounds[1][rows])
        self.now = int(np.argmax(self.h > 0.0))
        self.seconds_ahead = (
            self.dt * np.arange(n + 1) if self.programs.uniform else knot_times(self.h)
        )
        self.asked = self.p[:, columns["lower"]], self.p[:, columns["upper"]]

    def _close_cycle(self, moved: np.ndarray, rows: np.ndarray) -> None:
        """The last knot, somewhere in a cycle, has the contacts of the last step, and is
        constrained as the next one is.
        """
        assert self._motion is not None
        motion, n = self._motion, self.steps
        steps = rows[motion.h[rows] > 0.0]
        moved[n, self.programs.inputs] = motion.p[steps[-1], self.programs.inputs]
        following = motion.p[motion.rows(self.passed + n, 1)[0]]
        for part in self.programs.slices[len(self.costs) :]:
            moved[n, part["target"]] = following[part["target"]]
        for name in ("lower", "upper"):
            moved[n, self.programs.columns[name]] = following[self.programs.columns[name]]

    @property
    def cycle(self) -> int:
        """How many steps come again and again; 0 where none do."""
        return self._motion.cycle if self._motion is not None else 0

    @property
    def bounds_now(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the controls that a user may give now, (nu,) each."""
        lower, upper = self.own_bounds
        return lower[self.now], upper[self.now]

    def inputs_now(self) -> tuple[np.ndarray, ...]:
        """The inputs of the dynamics at the beginning of a plan, as a step takes them."""
        return self.inputs_at(self.now)

    def meanwhile(
        self, since: float, until: float
    ) -> Iterator[tuple[tuple[np.ndarray, ...], float]]:
        """(inputs of the dynamics, for how many seconds), from one time to another before the plan;
        of an impact for none.
        """
        if self._motion is None or self._motion.even or math.isnan(self._began):
            if until > since:
                yield self.inputs_now(), until - since
            return
        for row, seconds in self._motion.between(since - self._began, until - self._began):
            yield self._inputs_of(row), seconds

    def landed(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """A state after each of the impacts that the motion has."""
        if self._motion is None:
            return
        still = np.zeros(self.system.nu)
        for row in np.flatnonzero(self._motion.h == 0.0):
            yield self.programs.step(x, still, np.zeros(()), *self._inputs_of(int(row)))

    def _inputs_of(self, row: int) -> tuple[np.ndarray, ...]:
        assert self._motion is not None
        return (self._motion.p[row, self.programs.inputs],) if self.system.inputs else ()

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
        changed, known, asked_dt = self.changed, self.parameters, self.asked_dt
        self.stale, self.time_step, self.changed = False, None, {}
        try:
            self.parameters = changed or known
            if self._motion is not None:
                self.h = self._motion.h  # of all steps, as they are read
            if wanted is not None:
                if not (isinstance(wanted, int | float) and math.isfinite(wanted) and wanted > 0):
                    raise InputError(f"dt is a positive number of seconds, not {wanted!r}")
                if self.programs.uniform:
                    self.dt = float(wanted)
                    self.h = np.full(self.steps, self.dt)
                else:
                    self._take_steps(wanted, None)
            self.start = None  # type: ignore[assignment]  # bounds as they were asked for
            self._read_terms()
            bounds = self._control_bounds()
        except Exception:
            self.p[:], self.dt, self.h, self.parameters = before, dt, h, known
            self.asked_dt = asked_dt
            raise
        finally:
            self.start = start
        self.own_bounds = self.bounds = bounds  # of the controls, as asked for
        for name in ("multiplier", "penalty", "softness"):
            self.p[:, columns[name]] = before[:, columns[name]]
        weights = [part["weight"] for part in self.programs.slices[: len(self.costs)]]
        several = self._motion is not None and len(self.phases) > 1
        known_rows = self._motion.p if several and self._motion is not None else before
        changed_weights = any(not np.array_equal(self.p[:, w], known_rows[:, w]) for w in weights)
        self._motion = Motion(self.p.copy(), bounds, self.h, self.programs.uniform, self._again)
        self._left = float(self.h[0]) if not self.passed else self._left
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
        passed = self.seconds_ahead[:, None]
        for name, asked, sign, away in (
            ("lower", self.asked[0], 1.0, under),
            ("upper", self.asked[1], -1.0, over),
        ):
            rate = np.maximum(RECOVERY_RATE, away / (LONGEST_RECOVERY * passed[-1]))
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
