"""Model predictive control: owns time, keeps a plan, follows it by feedback, and knows what to do when something fails."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rigidgrad.control.mpc.guard import Guard
from rigidgrad.control.mpc.integral import Integral
from rigidgrad.control.mpc.iterations import COLD, Iterations
from rigidgrad.control.mpc.live import LiveProblem, with_payload
from rigidgrad.control.mpc.log import Log
from rigidgrad.control.mpc.loop import Running, drive
from rigidgrad.control.mpc.measured import HUGE, Measured, Missing, Outlier
from rigidgrad.control.mpc.observer import DisturbanceObserver
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.posture import Bounds, Posture
from rigidgrad.control.mpc.target import Aim, aim_of, sampled
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError

_FAILURES = 2  # in a row, after which the plan is made from cold
_PREDICTION_STEP = 0.002  # seconds
_ROUNDING = 1e-9
_NONE = np.zeros(0)
FALLBACKS = ("missing", "outlier", "clock", "kept", "cold", "held", "late", "violated", "refused")


class MPC:
    """A controller for a problem whose start is wherever the robot is.

    Every `period` seconds the plan is made anew: the last one is shifted in time, rolled out from the measured state, and improved by `solver`'s iterations, or, with PDDP,
    for `budget` seconds. In between, `step` follows it: u_k + K (x - x_k). A plan made from a measurement acts `latency` seconds later; the state until then is predicted.
    Who calls `prepare` once a control is sent waits less for the next one.

    `target` is what the first Reach or State cost aims at: a value, or a function of time that takes an array of times and gives one row each, previewed over
    the horizon; it may be set at any time. `observer` (True, or a bandwidth in rad/s) estimates unknown joint forces and cancels them. `integral` (True, or a rate in 1/s) moves the target
    of a point until nothing lasting is left between them, whatever the weights.

    Numbers of costs and limits may change at any time: set them, then call `update()`. `payload`, {frame: mass or {"mass": …, "offset": (3,)}} in kg and m, is what the robot carries, and may
    be set at any time on the frames that it was made with.

    If a measurement is missing, not finite or too old, the plan goes on without feedback ("missing"); likewise if no actuator could have brought the robot there ("outlier"), until three in a row
    agree. A time that goes back, or is none, moves the controller's own ("clock"). If a solve fails, the last plan's feedback goes on ("kept"); after two
    failures, or a plan that has run out, a plan is made from cold ("cold"); if that fails, too, the posture is held with gravity compensation ("held"). A plan outside of limits other than
    those of the controls by more than `violation` (m or rad; ten times as many m/s or rad/s) is "violated", and `on_violation` says what is done: "slow" follows it slowly enough to come to rest before (the default for robots all of
    whose joints are driven), "hold" holds the posture, "report" only counts. Numbers or targets that cannot be used are "refused", the last good ones stay. "late" counts
    deadlines missed in real time, or plans that took longer than a period in a simulated `run`. All are in `counts`, and the last reason in `trouble`. `seconds` are those of the last plan's phases, of all in a
    step ("solve"), and, where there is one, of the last preparation ("prepare").
    """

    def __init__(
        self,
        problem: Problem,
        solver: Any = None,
        period: float = 0.002,
        *,
        latency: float = 0.0,
        budget: float | None = None,
        target: Any = None,
        observer: bool | float = False,
        integral: bool | float = False,
        payload: Mapping[str, Any] | None = None,
        on_violation: str | None = None,
        violation: float = 1e-3,
        log: int = 100_000,
    ):
        if not isinstance(problem, Problem):
            raise InputError(f"MPC needs a Problem, not {type(problem).__name__}")
        for name, value, least in (("period", period, _ROUNDING), ("latency", latency, 0.0), ("budget", budget, _ROUNDING)):
            if value is not None and not (isinstance(value, int | float | np.number) and math.isfinite(value) and value >= least):
                raise InputError(f"{name} is a number of seconds of at least {least:g}, not {value!r}")
        if not (isinstance(violation, int | float | np.number) and math.isfinite(violation) and violation >= 0.0):
            raise InputError(f"violation is how far a plan may be outside of its limits, a number of at least 0, not {violation!r}")
        self.solver = PDDP(iterations=1) if solver is None else solver
        if not hasattr(self.solver, "solve"):
            raise InputError(f"a solver is rg.PDDP(…) or rg.Direct(…), not {type(self.solver).__name__}")
        self.period, self.latency, self.budget = float(period), float(latency), budget
        live = LiveProblem.of(problem if payload is None else with_payload(problem, payload))
        allowed = live.tolerances(float(violation))
        self._iterations = Iterations(live, self.solver, allowed) if isinstance(self.solver, PDDP) else None
        if budget is not None and self._iterations is None:
            raise InputError("a time budget needs rg.PDDP; give other solvers a number of iterations")
        self.problem: LiveProblem = self._iterations.problem if self._iterations else live
        self.system = self.problem.system
        self._measured = Measured(self.problem)
        if self._measured.discrete and abs(self.latency / problem.dt - round(self.latency / problem.dt)) > 1e-6:
            raise InputError("discrete dynamics have no time between their steps: the latency must be a multiple of the problem's dt")
        self._aim = Aim.of(self.problem)
        self._posture = Posture(self.problem, self.period)
        self._guard = Guard(self.problem, self._posture, on_violation, allowed)
        rate = 20.0 if observer is True else float(observer or 0.0)
        self.observer = DisturbanceObserver(self.system, rate, self._posture.forces) if observer else None
        cost = self._aim.cost if self._aim else None
        self.integral = Integral(self.system, cost, 4.0 if integral is True else float(integral)) if integral else None
        # the plan that acts, those that wait for the latency to pass, and room for the next
        self._plan = Plan(self.problem)
        self._waiting: deque[Plan] = deque()
        self._spare = [Plan(self.problem) for _ in range(math.ceil(self.latency / self.period) + 2)]
        self._times = self.problem.dt * np.arange(self.problem.steps + 1)
        self._gains = np.zeros_like(self._plan.gains)
        self._now = -math.inf
        self._prepared = math.nan  # when the plan begins whose iteration `prepare` has begun
        self._log_size = log
        self.target = self.integral.cost.target if target is None and self.integral else target
        self.reset()

    def __reduce__(self) -> Any:
        raise InputError(
            "a controller is not pickled: it holds plans, buffers and compiled code. Send its problem and options, and make it there: rg.MPC(problem, …)"
        )

    def reset(self) -> None:
        """Forgets all plans and logs."""
        self.log = Log(self.system.nx, self.system.nu, self._log_size)
        self.counts = self.log.counts
        self.counts.update(dict.fromkeys(FALLBACKS, 0))
        self.trouble = ""
        self._plan.start, self._due = -math.inf, -math.inf
        self._spare += self._waiting
        self._waiting.clear()
        self._failures = 0
        self._hold: np.ndarray | None = None
        self._now, self._prepared, self._fitted = -math.inf, math.nan, math.nan
        self._u = np.zeros(self.system.nu)
        self.seconds = dict.fromkeys(("predict", "shift", "iterate", "solve"), 0.0)
        self._measured.reset()
        if self.observer:
            self.observer.reset()
        if self.integral:
            self.integral.reset()
        self.problem.forget_margins()
        if self._iterations:
            self._iterations.reset()

    @property
    def _engine(self) -> Any:
        """The run of parallel DDP, where that is the solver."""
        return self._iterations.run if self._iterations else None

    # --- the target and other numbers ------------------------------------------------------------------------------------------------

    @property
    def target(self) -> Any:
        return self._target

    @target.setter
    def target(self, value: Any) -> None:
        if value is not None:
            aim_of(self.problem).rows(
                self.problem, value, max(self._now, 0.0) + self.latency + self._times
            )  # complains now, not when a plan is made
        self._target, self._prepared = value, math.nan

    def _aim_at(self, t: float) -> None:
        """Writes the target of a horizon from t on into the compiled problem's numbers."""
        if self._target is not None and self._aim is not None:
            rows = self._aim.rows(self.problem, self._target, t + self._times)
            self.problem.p[:, self._aim.part] = rows + self.integral.shift if self.integral else rows

    def update(self) -> None:
        """Numbers that were set on costs, obstacles and limits count from the next step on; wrong ones are refused there, and counted."""
        self.problem.update()

    @property
    def payload(self) -> dict[str, Any]:
        """What the robot carries, {frame: mass or {"mass": …, "offset": (3,)}}; a change counts from the next step on."""
        return dict((self.problem.changed or self.problem.parameters).get("payload", {}))

    @payload.setter
    def payload(self, value: Mapping[str, Any]) -> None:
        self.problem.update(parameters={"payload": value})

    def _read(self) -> None:
        self._prepared = math.nan
        dt = self.problem.dt
        try:
            changed = self.problem.read()
        except Exception as error:  # a controller must go on, whatever it is told
            self._refuse(error)
            return
        if changed and self._iterations:
            self._iterations.rescale()
        if self.problem.dt != dt:
            self._times = self.problem.dt * np.arange(self.problem.steps + 1)
            self._failures = _FAILURES  # plans of other steps are no warm start

    def _refuse(self, error: Exception, count: str = "refused") -> None:
        self.counts[count] += 1
        self.trouble = f"{type(error).__name__}: {error}"

    # --- a user's loop -------------------------------------------------------------------------------------------------------------

    def step(self, x: Any, t: float, measured_at: float | None = None) -> np.ndarray:
        """The control for now, from a measured state (None if there is none); makes a new plan when it is time to.

        Nothing that is measured is an error: what cannot be used is counted, and the control is finite and within its bounds in every case. A state that was `measured_at` an earlier time is brought forward
        by the model and the controls given since.
        """
        t = self._tick(t)
        if self.problem.stale:
            self._read()
        measured = self._checked(x, t, measured_at)
        self._activate(t)
        if measured is not None and t >= self._due - _ROUNDING:
            self._due = t + self.period if t - self._due > self.period or self._due == -math.inf else self._due + self.period
            self._make_plan(measured, t)
            self._activate(t)
        u = self._command(measured, t)
        if measured is not None:
            self._learn(measured, t, u)
        self._u = u
        self._measured.remember(t, u)
        self.log.add_step(t, measured, u)
        return u.copy()  # what a caller does to it was not given

    def prepare(self, t: float) -> None:
        """Between two steps: what the one at time t, if it makes a plan, can do without its measurement.

        That is the roll-out from where the last plan will be then, the derivatives and the backward pass; the step only rolls out its first iteration from where the robot
        really is, with the gains for the difference. If it comes at another time or the target changes, or with another solver than parallel DDP, it does everything itself.
        """
        began = time.perf_counter()
        try:
            begin = float(t) + self.latency
        except (TypeError, ValueError, OverflowError):
            return  # `step` counts a time that is none
        if self._iterations is None or self.problem.stale or not begin - self.latency >= self._due - _ROUNDING or not self._is_warm(begin):
            return
        self._prepared = math.nan
        with contextlib.suppress(Exception):  # `step` meets it again, and knows what to do
            self._foresee(begin)
            self.problem.start = self._latest.state(self._latest.phase(begin))
            self._fit(begin)
            if self._iterations.prepare(self._latest, begin, self._posture):
                self._prepared = begin
        self.seconds["prepare"] = time.perf_counter() - began

    def _tick(self, t: Any) -> float:
        """The time of a step. Where it goes back, everything that the controller remembers goes back with it; where it is none, it stands still."""
        try:
            now = float(t)
        except (TypeError, ValueError, OverflowError):
            now = math.nan
        if not abs(now) < HUGE:
            self._refuse(InputError(f"the time {t!r} is not a number of seconds"), "clock")
            now = max(self._now, 0.0)
        elif now < self._now:
            self._refuse(InputError(f"the time went from {self._now!r} back to {now!r}"), "clock")
            self._turn_back(now - self._now)
        self._now = now
        return now

    def _turn_back(self, seconds: float) -> None:
        for plan in (self._plan, *self._waiting):
            plan.start += seconds
        self._due += seconds
        self._prepared, self._fitted = math.nan, self._fitted + seconds
        self._measured.shift(seconds)
        if self.observer:
            self.observer.shift(seconds)
        if self.integral:
            self.integral.shift_time(seconds)

    def _checked(self, x: Any, t: float, measured_at: Any) -> np.ndarray | None:
        """A measurement as the state now; None, and counted, where it cannot be used."""
        if self.observer:
            self._measured.cancelled = self.observer.control
        try:
            state = self._measured.state(x, t, measured_at, self._u, self.problem.own_bounds)
        except Missing:
            self.counts["missing"] += 1
            return None
        except Outlier:
            self.counts["outlier"] += 1
            return None
        except Exception as error:
            self._refuse(error, "missing")
            return None
        if self.observer and self._measured.jumped:
            self.observer.skip()
        return state

    def _activate(self, t: float) -> None:
        """The newest plan whose time has come acts."""
        while self._waiting and t >= self._waiting[0].start - _ROUNDING:
            self._spare.append(self._plan)
            self._plan = self._waiting.popleft()

    def _command(self, x: np.ndarray | None, t: float) -> np.ndarray:
        """What acts now, within bounds; where its feedback is not finite, without that, or else the last control again."""
        lower, upper = self.problem.own_bounds
        lower, upper = lower[0], upper[0]
        for state in (x, None):
            if self.observer:
                shift = self.observer.control
                u = self._wanted(state, t, (lower + shift, upper + shift)) - shift
            else:
                u = self._wanted(state, t, (lower, upper))
            np.minimum(np.maximum(u, lower, out=u), upper, out=u)
            if math.isfinite(u.sum()):
                return u
            self._refuse(ArithmeticError("the feedback is not finite"), "kept")
        return np.minimum(np.maximum(self._u, lower), upper)

    def _wanted(self, x: np.ndarray | None, t: float, bounds: Bounds) -> np.ndarray:
        if self._hold is not None:
            with np.errstate(all="ignore"):
                return self._posture.holding(self._hold, x, bounds, brisk=self._failures == 0)
        if self._plan.start == -math.inf:
            return self.problem.guess[0].copy() if x is None else self._posture.resting(x)
        return self._follow(self._plan, t, x, bounds)

    def _follow(self, plan: Plan, t: float, x: np.ndarray | None, bounds: Bounds) -> np.ndarray:
        return plan.control(t, x) if plan.pace == 1.0 else self._posture.slowed(plan, t, x, bounds)

    def _learn(self, x: np.ndarray, t: float, u: np.ndarray) -> None:
        """What observer and integral action make of a measurement and the control that acts from now on."""
        if self.observer:
            with np.errstate(all="ignore"):
                self.observer.update(x, t, u)
        if self.integral and self._target is not None:
            try:
                wanted = sampled(self._target, np.array([t]))[0] if callable(self._target) else self._target
                self.integral.update(x, t, wanted)
            except Exception as error:
                self._refuse(error)

    def _resting(self, x: np.ndarray) -> np.ndarray:
        """The controls that come nearest to holding a state under gravity."""
        return self._posture.resting(x)

    # --- making a plan -------------------------------------------------------------------------------------------------------------

    def _make_plan(self, x: np.ndarray, t: float) -> None:
        began = time.perf_counter()
        cost, iterations, outside = math.nan, 0, math.nan
        warm = self._is_warm(t + self.latency)
        try:
            plan, cost, iterations, (outside, violated) = self._solve(x, t, began, warm)
            self.counts["cold"] += not warm and self.log.solves > 0
            self.counts["violated"] += violated
            self._failures = 0
            if not plan.held:
                self._hold = None
            else:
                self._begin_hold(x)
        except Exception as error:  # a controller must go on, whatever a solver does
            self.trouble = f"{type(error).__name__}: {error}"
            self._failures += 1
            if warm:
                self.counts["kept"] += 1
            if not warm or t >= self._plan.end:
                self._begin_hold(x)
        self.seconds["solve"] = time.perf_counter() - began
        self.log.add_solve(t, self.seconds["solve"], cost, iterations, outside)

    def _begin_hold(self, x: np.ndarray) -> None:
        self.counts["held"] += 1
        if self._hold is None:
            self._hold = x.copy()

    @property
    def plan(self) -> Plan:
        """The newest plan, which may still have to wait for the latency: `x`, `u`, `start`, `dt`."""
        return self._latest

    @property
    def _latest(self) -> Plan:
        return self._waiting[-1] if self._waiting else self._plan

    def _is_warm(self, begin: float) -> bool:
        """Whether a plan can be made from the last one."""
        return -math.inf < self._latest.start and begin < self._latest.end and self._failures < _FAILURES

    def _foresee(self, begin: float) -> None:
        """Bounds of the controls and target of a plan, as they are known now."""
        self.problem.bounds = self.problem.own_bounds
        if self.observer:
            shift = self.observer.control
            self.problem.bounds = (self.problem.bounds[0] + shift, self.problem.bounds[1] + shift)
        self._aim_at(begin)

    def _fit(self, begin: float) -> np.ndarray:
        """Bounds of the state for a plan from the problem's start on; how far that is outside."""
        if not self.problem.constraints:
            return _NONE
        elapsed = begin - self._fitted
        self._fitted = begin
        return self.problem.fit(elapsed if elapsed > 0.0 else 0.0)

    def _solve(self, x: np.ndarray, t: float, began: float, warm: bool) -> tuple[Plan, float, int, tuple[float, bool]]:
        p, begin = self.problem, t + self.latency
        prepared = warm and abs(begin - self._prepared) < _ROUNDING
        self._prepared = math.nan
        if not prepared:
            self._foresee(begin)
        p.start = self._predict(x, t) if self.latency else x
        outside = self._fit(begin)
        predicted = time.perf_counter()
        self.seconds["predict"] = predicted - began
        if self._iterations is not None:
            finite = self._iterations.begin(self._latest if warm else None, begin, self._posture, prepared)
            shifted = time.perf_counter()
            if finite or warm:
                if finite:
                    self._iterations.improve(began, warm, prepared, self.budget)
                x_new, u_new, gains, cost, used = self._iterations.result()
            else:
                x_new, u_new, gains, cost, used = self._solve_from_held_states()
            self.seconds["shift"], self.seconds["iterate"] = shifted - predicted, time.perf_counter() - shifted
        else:
            x_new, u_new, K, cost, used = self._solve_elsewhere(begin, began, warm)
            gains = self._gains
            gains[:, :, self._plan.columns] = K
        if not math.isfinite(cost + x_new.sum() + u_new.sum() + gains.sum()):
            raise ArithmeticError("the solve did not end with finite numbers")
        plan = self._spare.pop() if self._spare else self._waiting.pop()
        plan.start, plan.dt = begin, p.dt
        plan.x[:], plan.u[:], plan.gains[:] = x_new, u_new, gains
        self._waiting.append(plan)
        if self._iterations is not None:
            self._iterations.keep()
        return plan, cost, used, self._guard.judge(plan, outside)

    def _solve_elsewhere(self, begin: float, began: float, warm: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """By a solver that takes whole problems."""
        p, solver = self.problem, self.solver
        if warm:
            last = self._latest
            x, u = np.empty_like(last.x), np.empty_like(last.u)
            last.shifted_into(last.phase(begin), x, u, self._gains, self._resting(last.x[-1]))
            x[0] = p.start
            p.guess_states, p.guess = x, np.clip(u, *p.bounds)
        else:
            p.guess_states, p.guess = None, np.clip(np.tile(self._resting(p.start), (p.steps, 1)), *p.bounds)
            if dataclasses.is_dataclass(solver) and getattr(solver, "iterations", COLD) < COLD:
                solver = dataclasses.replace(solver, iterations=COLD)  # type: ignore[type-var]
        shifted = time.perf_counter()
        self.seconds["shift"] = shifted - began - self.seconds["predict"]
        found = solver.solve(p)
        self.seconds["iterate"] = time.perf_counter() - shifted
        return found.x, found.u, found.gains, found.cost, found.iterations

    def _solve_from_held_states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """From states that stay at the start, where no roll-out does: very light links run away even from a posture held by feedback, if steps are long."""
        p, options = self.problem, self.solver
        p.guess_states, p.guess = p.held_states()
        try:
            cold = dataclasses.replace(
                options, iterations=max(COLD, options.iterations), blocks=1, forward_blocks=None, backward_blocks=None
            )
            found = cold.solve(p)
        finally:
            p.guess_states = None
        if found.multipliers is not None:
            p.p[:, p.programs.columns["multiplier"]] = found.multipliers
        self._gains[:] = 0.0
        self._gains[:, :, self._plan.columns] = found.gains
        return found.x, found.u, self._gains, found.cost, found.iterations

    def _predict(self, x: np.ndarray, t: float) -> np.ndarray:
        """The state after the latency, under the control that will act until then."""
        lower, upper = (b[0] for b in self.problem.bounds)
        now, end = t, t + self.latency
        while end - now > _ROUNDING:
            h = self.problem.dt if self._measured.discrete else min(_PREDICTION_STEP, end - now)
            acting = next((p for p in reversed(self._waiting) if p.start <= now + _ROUNDING), self._plan)
            u = self._u
            if acting.start > -math.inf:
                u = self._follow(acting, now, x, (lower, upper))
                np.minimum(np.maximum(u, lower, out=u), upper, out=u)
            x = self.problem.programs.step(x, u, np.array(h), *self.problem.inputs_at(0))
            now += h
        return x

    def violation_of(self, x: Any) -> tuple[float, bool]:
        """(how far states (…, nx) are outside of the limits of now at most, whether that is more than `violation`); control limits are always kept."""
        excess = self.problem.states_outside(np.asarray(x, dtype=float)) if self.problem.constraints else np.zeros(0)
        return float(excess.max(initial=0.0)), bool((excess > self._guard.tolerance).any())

    # --- whole runs ------------------------------------------------------------------------------------------------------------------

    def run(self, plant: Any, duration: float, *, realtime: bool = False, until: Callable[[Any], bool] | None = None) -> Log:
        """Drives a plant for a while: in its own simulated time, where "late" counts plans that took longer than a period on this machine, or with `realtime` by the clock, counting deadlines missed.

        `until(plant)` ends it early. Gives the log.
        """
        return drive(self, plant, duration, realtime, until)

    def start(self, plant: Any, duration: float = math.inf) -> Running:
        """As `run` in real time, on a thread of its own."""
        return Running(self, plant, duration)

    def replay(self, log: Log) -> np.ndarray:
        """Feeds a log's measurements to this controller, from a reset; the controls that it gives now, (steps, nu)."""
        self.reset()
        return np.array([self.step(None if np.isnan(x).any() else x, float(t)) for t, x in zip(log.t, log.x, strict=True)])
