"""Model predictive control: owns time, keeps a plan, follows it by feedback, and knows what to do
when something fails.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.mpc.clock import ROUNDING, Clock, Stopwatch, check_seconds
from rigidgrad.control.mpc.fallback import Fallback
from rigidgrad.control.mpc.guard import Guard
from rigidgrad.control.mpc.integral import Integral
from rigidgrad.control.mpc.iterations import planner_of
from rigidgrad.control.mpc.live import LiveProblem, with_payload
from rigidgrad.control.mpc.log import Log
from rigidgrad.control.mpc.loop import Running, drive
from rigidgrad.control.mpc.measured import Measured, Missing, Outlier
from rigidgrad.control.mpc.observer import DisturbanceObserver
from rigidgrad.control.mpc.plan import Plan
from rigidgrad.control.mpc.schedule import Schedule
from rigidgrad.control.mpc.target import Target, TargetedCost, aim_of, sampled
from rigidgrad.control.pddp import PDDP, Iterate
from rigidgrad.control.problem import Problem
from rigidgrad.errors import FallenError, InputError

if TYPE_CHECKING:
    from rigidgrad.control.solve import Solver

_PREDICTION_STEP = 0.002  # seconds
FALLBACKS = (
    "missing",
    "outlier",
    "clock",
    "kept",
    "cold",
    "held",
    "late",
    "violated",
    "refused",
    "fallen",
    "slips",
)


class MPC:
    """A controller for a problem whose start is wherever the robot is.

    Every `period` seconds the plan is made again: the last one is shifted in time, rolled out from
    the measured state, and improved by `solver`'s iterations, or, with PDDP, for `budget` seconds.
    In between, `step` follows it: u_k + K (x - x_k). A plan made from a measurement acts `latency`
    seconds later; the state until then is predicted. Who calls `prepare` once a control is sent
    waits less for the next one.

    `target` is what the first Reach or State cost aims at: a value, or a function of time that
    takes an array of times and gives one row each, previewed over the horizon; it may be set at any
    time. `observer` (True, or a bandwidth in rad/s) estimates unknown joint forces and cancels
    them. `integral` (True, or a rate in 1/s) moves the target of a point until nothing lasting is
    left between them, whatever the weights.

    A problem of several phases passes with time: the first begins with the first plan, steps that
    are over are left out, impacts once they are in the past, and the last phase goes on. With
    `repeat` the phases from that number on come again and again instead. `reset` begins again.

    Numbers of costs and limits may change at any time: set them, then call `update()`. `payload`,
    {frame: mass or {"mass": …, "offset": (3,)}} in kg and m, is what the robot carries, and may be
    set at any time on the frames that it was made with.

    If a measurement is missing, not finite or too old, the plan goes on without feedback
    ("missing"); likewise if no actuator could have brought the robot there ("outlier"), until three
    in a row agree. A time that goes back, or is none, moves the controller's own ("clock"). If a
    solve fails, the last plan's feedback goes on ("kept"); after two failures, or a plan that has
    run out, a plan is made without a warm start ("cold"); if that fails, too, the posture is held
    with gravity compensation ("held"). A plan outside of limits other than those of the controls by
    more than `violation` (m or rad; ten times as many m/s or rad/s) is "violated", and
    `on_violation` says what is done: "slow" follows it slowly enough to come to rest before (the
    default for robots all of whose joints are driven), "hold" holds the posture, "report" only
    counts. Numbers or targets that cannot be used are "refused", the last good ones stay. A plan
    that a target which steers does not accept, as `rg.gaits.Walker` where forces leave friction
    cones, gets up to five more iterations, or 20 where it was made without a warm start, within the
    `budget`; if that does not help, it is followed, and is one of the
    "slips". "late" counts deadlines missed in real time, or plans that
    took longer than a period in a simulated `run`. All are in `counts`, and the last reason in
    `trouble`. `seconds` are those of the last plan's phases, of all in a step ("solve"), and, where
    there is one, of the last preparation ("prepare").

    `log`: how many of the last steps are kept for reports.

    Example:

        >>> import rigidgrad as rg
        >>> robot = rg.load("double_pendulum")
        >>> swing = rg.costs.State([3.14, 0, 0, 0], final=[100, 100, 10, 10])
        >>> costs = [swing, rg.costs.Effort(1e-3)]
        >>> problem = rg.Problem(robot, [0, 0, 0, 0], steps=50, dt=0.02, costs=costs)
        >>> controller = rg.MPC(problem, rg.PDDP(iterations=1), period=0.02)
        >>> controller.step([0.1, 0, 0, 0], t=0.0).shape
        (2,)
    """

    def __init__(
        self,
        problem: Problem,
        solver: Solver | None = None,
        period: float = 0.002,
        *,
        latency: float = 0.0,
        budget: float | None = None,
        target: Target = None,
        observer: bool | float = False,
        integral: bool | float = False,
        payload: Mapping[str, Any] | None = None,
        repeat: int | None = None,
        on_violation: str | None = None,
        violation: float = 1e-3,
        log: int = 100_000,
    ):
        if not isinstance(problem, Problem):
            raise InputError(f"MPC needs a Problem, not {type(problem).__name__}")
        if problem.timing is not None:
            raise InputError(
                "MPC takes steps whose length is given: leave duration= out, and give dt, as"
                " rg.solve found it perhaps"
            )
        check_seconds("period", period, ROUNDING)
        check_seconds("latency", latency, 0.0)
        if budget is not None:
            check_seconds("budget", budget, ROUNDING)
        self.solver = PDDP(iterations=1) if solver is None else solver
        if not hasattr(self.solver, "solve"):
            raise InputError(
                f"a solver is rg.PDDP(…) or rg.Direct(…), not {type(self.solver).__name__}"
            )
        self.period, self.latency, self.budget = float(period), float(latency), budget
        live = LiveProblem.of(
            problem if payload is None else with_payload(problem, payload), repeat
        )
        allowed = live.tolerances(violation)
        self._planner = planner_of(live, self.solver, self.period, allowed, budget)
        self.problem: LiveProblem = self._planner.problem
        self.system = self.problem.system
        self._measured = Measured(self.problem)
        if (
            self._measured.discrete
            and abs(self.latency / problem.dt - round(self.latency / problem.dt)) > 1e-6
        ):
            raise InputError(
                "discrete dynamics have no time between their steps: the latency must be a multiple"
                " of the problem's dt"
            )
        self._aim = TargetedCost.of(self.problem)
        posture = self._planner.posture
        self.posture = posture
        self._fallback = Fallback(posture)
        self._guard = Guard(self.problem, posture, on_violation, allowed)
        # what is done about violations, and of each constraint what is none
        self.on_violation, self.allowed = self._guard.policy, allowed
        rate = 20.0 if observer is True else float(observer or 0.0)
        self.observer = DisturbanceObserver(self.system, rate, posture.forces) if observer else None
        cost = self._aim.cost if self._aim else None
        self.integral = (
            Integral(self.system, cost, 4.0 if integral is True else float(integral))
            if integral
            else None
        )
        self._clock = Clock(self.period)
        self._schedule = Schedule(self.problem, math.ceil(self.latency / self.period))
        self._prepared = math.nan  # when the plan begins whose iteration `prepare` has begun
        self._log_size = log
        self.target = self.integral.cost.target if target is None and self.integral else target
        self.reset()

    def __reduce__(self) -> Any:
        raise InputError(
            "a controller is not pickled: it holds plans, buffers and compiled code. Send its"
            " problem and options, and make it there: rg.MPC(problem, …)"
        )

    def reset(self) -> None:
        """Forgets all plans and logs."""
        self.log = Log(self.system.nx, self.system.nu, self._log_size)
        self.counts = self.log.counts
        self.counts.update(dict.fromkeys(FALLBACKS, 0))
        self.trouble = ""
        self._clock.reset()
        self._watch = Stopwatch()
        self._schedule.clear()
        self._fallback.reset()
        self._prepared = math.nan
        self._u = np.zeros(self.system.nu)
        self._measured.reset()
        if self.observer:
            self.observer.reset()
        if self.integral:
            self.integral.reset()
        self.problem.forget_margins()
        self.problem.begin_motion()
        self._planner.reset()

    @property
    def seconds(self) -> dict[str, float]:
        """Of the last plan, by its phases."""
        return self._watch.seconds

    @property
    def plan(self) -> Plan:
        """The newest plan, which may still have to wait for the latency: `x`, `u`, `start`,
        `dt`.
        """
        return self._schedule.latest

    # --- the target and other numbers -------------------------------------------------------------

    @property
    def target(self) -> Any:
        """What the first Reach or State cost aims at: a value, a function of time, or None."""
        return self._target

    @target.setter
    def target(self, value: Any) -> None:
        # complains now, not when a plan is made
        if value is not None and not hasattr(value, "steer"):
            aim_of(self.problem).rows(
                self.problem,
                value,
                max(self._clock.now, 0.0) + self.latency + self.problem.seconds_ahead,
            )
        self._target, self._prepared = value, math.nan

    def write_target(self, t: float) -> None:
        """Writes the target of a horizon from t on into the compiled problem's numbers."""
        if (
            self._target is not None
            and self._aim is not None
            and not hasattr(self._target, "steer")
        ):
            rows = self._aim.rows(self.problem, self._target, t + self.problem.seconds_ahead)
            self.problem.p[:, self._aim.part] = (
                rows + self.integral.shift if self.integral else rows
            )

    def update(self) -> None:
        """Numbers that were set on costs, obstacles and limits count from the next step on; wrong
        ones are refused there, and counted.
        """
        self.problem.update()

    @property
    def payload(self) -> dict[str, Any]:
        """What the robot carries, {frame: mass or {"mass": …, "offset": (3,)}}; a change counts
        from the next step on.
        """
        return dict((self.problem.changed or self.problem.parameters).get("payload", {}))

    @payload.setter
    def payload(self, value: Mapping[str, Any]) -> None:
        self.problem.update(parameters={"payload": value})

    def _read(self) -> None:
        self._prepared = math.nan
        dt = self.problem.dt
        try:
            changed = self.problem.read()
        except Exception as error:  # a controller must go on, whatever its inputs are
            self._refuse(error)
            return
        if changed:
            self._planner.rescale()
        if self.problem.dt != dt:
            self._fallback.exhaust()  # plans of other steps are no warm start

    def _refuse(self, error: Exception, count: str = "refused") -> None:
        self.counts[count] += 1
        self.trouble = f"{type(error).__name__}: {error}"

    # --- a user's loop ----------------------------------------------------------------------------

    def step(self, x: ArrayLike | None, t: float, measured_at: float | None = None) -> np.ndarray:
        """The control for now, from a measured state (None if there is none); makes a new plan when
        it is time to.

        Nothing that is measured is an error: what cannot be used is counted, and the control is
        finite and within its bounds in every case. A state that was `measured_at` an earlier time
        is brought forward by the model and the controls given since.
        """
        t = self._tick(t)
        if self.problem.stale:
            self._read()
        measured = self._checked(x, t, measured_at)
        self._schedule.activate(t)
        if measured is not None and self._clock.is_due(t):
            self._clock.set_next()
            self._make_plan(measured, t)
            self._schedule.activate(t)
        u = self._command(measured, t)
        if measured is not None:
            self._learn(measured, t, u)
        self._u = u
        self._measured.remember(t, u)
        self.log.add_step(t, measured, u)
        return u.copy()  # what a caller does to it was not given

    def prepare(self, t: float) -> None:
        """Between two steps: what the one at time t, if it makes a plan, can do without its
        measurement.

        That is the roll-out from where the last plan will be then, the derivatives and the backward
        pass; the step only rolls out its first iteration from where the robot really is, with the
        gains for the difference. If it comes at another time or the target changes, or with another
        solver than parallel DDP, it does everything itself.
        """
        try:
            begin = float(t) + self.latency
        except (TypeError, ValueError, OverflowError):
            return  # `step` counts a time that is none
        ready = (
            self._planner.prepares
            and not self.problem.stale
            and self._clock.is_due(begin - self.latency)
        )
        if not (ready and self._is_warm(begin)):
            return
        self._watch.start()
        self._prepared = math.nan
        with contextlib.suppress(Exception):  # `step` meets it again, and knows what to do
            self._foresee(begin)
            self.problem.start = self.plan.state(self.plan.phase(begin))
            self._go_on_from(self._acting)
            self._steer(begin)
            self.problem.fit_at(begin)
            if self._planner.prepare(self.plan, begin):
                self._prepared = begin
        self._watch.stop("prepare")

    def _tick(self, t: Any) -> float:
        """The time of a step. Where it goes back, everything that the controller remembers goes
        back with it.
        """
        wrong = self._clock.tick(t)
        if wrong is not None:
            self._refuse(wrong, "clock")
        if self._clock.turned:
            self._turn_back(self._clock.turned)
        return self._clock.now

    def _turn_back(self, seconds: float) -> None:
        self._prepared = math.nan
        self._schedule.shift(seconds)
        self.problem.shift(seconds)
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
            state = self._measured.state(x, t, measured_at, self._u, self.problem.bounds_now)
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

    def _command(self, x: np.ndarray | None, t: float) -> np.ndarray:
        """What acts now, within bounds; where its feedback is not finite, without that, or else the
        last control again.
        """
        lower, upper = self.problem.bounds_now
        for state in (x, None):
            if self.observer:
                shift = self.observer.control
                u: np.ndarray = (
                    self._fallback.wanted(self._schedule, state, t, (lower + shift, upper + shift))
                    - shift
                )
            else:
                u = self._fallback.wanted(self._schedule, state, t, (lower, upper))
            np.minimum(np.maximum(u, lower, out=u), upper, out=u)
            if math.isfinite(u.sum()):
                return u
            self._refuse(ArithmeticError("the feedback is not finite"), "kept")
        kept: np.ndarray = np.minimum(np.maximum(self._u, lower), upper)
        return kept

    def _learn(self, x: np.ndarray, t: float, u: np.ndarray) -> None:
        """What observer and integral action make of a measurement and the control that acts from
        now on.
        """
        if self.observer:
            with np.errstate(all="ignore"):
                self.observer.update(x, t, u)
        if self.integral and self._target is not None and not hasattr(self._target, "steer"):
            try:
                wanted = (
                    sampled(self._target, np.array([t]))[0]
                    if callable(self._target)
                    else self._target
                )
                self.integral.update(x, t, wanted)
            except Exception as error:
                self._refuse(error)

    # --- making a plan ----------------------------------------------------------------------------

    def _make_plan(self, x: np.ndarray, t: float) -> None:
        self._watch.start()
        cost, iterations, outside = math.nan, 0, math.nan
        warm = self._is_warm(t + self.latency)
        try:
            plan, found, (outside, violated) = self._solve(x, t, warm)
            cost, iterations = found.J, found.iterations
            self.counts["cold"] += not warm and self.log.solves > 0
            self.counts["violated"] += violated
            self._fallback.failures = 0
            if plan.held:
                self._hold(x)
            else:
                self._fallback.release()
        except FallenError as error:
            self._refuse(error, "fallen")
            self._schedule.clear()  # plans of a robot on its feet are none for one that lies
            self._fallback.failures = 0
            self._hold(x)
        except Exception as error:  # a controller must go on, whatever a solver does
            self.trouble = f"{type(error).__name__}: {error}"
            self._fallback.failures += 1
            if warm:
                self.counts["kept"] += 1
            if not warm or t >= self._schedule.acting.end:
                self._hold(x)
        self._watch.stop("solve")
        self.log.add_solve(t, self.seconds["solve"], cost, iterations, outside)

    def _hold(self, x: np.ndarray) -> None:
        self.counts["held"] += 1
        self._fallback.hold(x)

    def _is_warm(self, begin: float) -> bool:
        """Whether a plan can be made from the last one."""
        last = self.plan
        return -math.inf < last.start and begin < last.end and not self._fallback.exhausted

    def _foresee(self, begin: float) -> None:
        """Phases, bounds of the controls and target of a plan, as they are known now."""
        self.problem.pass_on(begin)
        self.problem.bounds = self.problem.own_bounds
        if self.observer:
            shift = self.observer.control
            self.problem.bounds = (self.problem.bounds[0] + shift, self.problem.bounds[1] + shift)
        self.write_target(begin)

    def _steer(self, begin: float) -> None:
        """A target that steers writes more than one cost's numbers, and asks where the robot is:
        contacts, feet, the trunk.
        """
        if hasattr(self._target, "steer"):
            self._target.steer(self.problem, begin)

    def _solve(
        self, x: np.ndarray, t: float, warm: bool
    ) -> tuple[Plan, Iterate, tuple[float, bool]]:
        """(a plan, what the solver said of it, what the guard says of it)."""
        begin = t + self.latency
        prepared = warm and abs(begin - self._prepared) < ROUNDING
        self._prepared = math.nan
        if not prepared:
            self._foresee(begin)
        self.problem.start, before = self._predict(x, t)
        self._go_on_from(before)
        if not prepared:
            self._steer(begin)
        outside = self.problem.fit_at(begin)
        self._watch.lap("predict")
        found = self._planner.make(self.plan if warm else None, begin, self._watch, prepared)
        if hasattr(self._target, "accepts"):
            found = self._accepted(found)
        if not math.isfinite(found.J + found.x.sum() + found.u.sum() + found.gains.sum()):
            raise ArithmeticError("the solve did not end with finite numbers")
        plan = self._schedule.add(begin, found)
        self._planner.keep()
        return plan, found, self._guard.judge(plan, outside)

    def _accepted(self, found: Iterate) -> Iterate:
        """A plan that the target accepts, by more iterations if need be; one that it does not
        accept in the end is counted.
        """
        deadline = math.inf if self.budget is None else self._watch.began + self.budget
        for _ in range(self._planner.further):
            if self._target.accepts(self.problem, found.x, found.u):
                return found
            better = self._planner.improve(deadline)
            if better is None:
                break
            found = better
        self.counts["slips"] += not self._target.accepts(self.problem, found.x, found.u)
        self._watch.lap("improve")
        return found

    @property
    def _acting(self) -> np.ndarray:
        """The control given last, as plans have it: with what an observer cancels."""
        return self._u + self.observer.control if self.observer else self._u

    def _go_on_from(self, u: np.ndarray) -> None:
        """The control that acts when a plan begins; of a controller that has not given any, what
        the cost of the rate says, or none.
        """
        if self.problem.charges_rate and self.log.steps:
            self.problem.previous = u

    def _predict(self, x: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
        """The state after the latency, and the control that acts until then."""
        before = self._acting
        lower, upper = (b[self.problem.now] for b in self.problem.bounds)
        now = t
        for inputs, seconds in self.problem.meanwhile(t, t + self.latency):
            end = now + seconds
            if not seconds:  # an impact
                x = self.problem.programs.step(x, before, np.zeros(()), *inputs)
            while end - now > ROUNDING:
                h = self.problem.dt if self._measured.discrete else min(_PREDICTION_STEP, end - now)
                acting, u = self._schedule.acting_at(now), self._u
                if acting.start > -math.inf:
                    u = self._fallback.follow(acting, x, now, (lower, upper))
                    np.minimum(np.maximum(u, lower, out=u), upper, out=u)
                    before = u
                x = self.problem.programs.step(x, u, np.array(h), *inputs)
                now += h
        return x, before

    def violation_of(self, x: ArrayLike) -> tuple[float, bool]:
        """(how far states (…, nx) are outside of the limits of now at most, whether that is more
        than `violation`); control limits are always kept.
        """
        excess = (
            self.problem.states_outside(np.asarray(x, dtype=float))
            if self.problem.constraints
            else np.zeros(0)
        )
        return float(excess.max(initial=0.0)), bool((excess > self._guard.tolerance).any())

    # --- whole runs -------------------------------------------------------------------------------

    def run(
        self,
        plant: Any,
        duration: float,
        *,
        realtime: bool = False,
        until: Callable[[Any], bool] | None = None,
    ) -> Log:
        """Drives a plant for a while: in its own simulated time, where "late" counts plans that
        took longer than a period on this machine, or with `realtime` by the clock, counting
        deadlines missed.

        `until(plant)` ends it early. Gives the log.
        """
        return drive(self, plant, duration, realtime, until)

    def start(self, plant: Any, duration: float = math.inf) -> Running:
        """As `run` in real time, on a thread of its own."""
        return Running(self, plant, duration)

    def replay(self, log: Log) -> np.ndarray:
        """Feeds a log's measurements to this controller, from a reset; the controls that it gives
        now, (steps, nu).
        """
        self.reset()
        return np.array(
            [
                self.step(None if np.isnan(x).any() else x, float(t))
                for t, x in zip(log.t, log.x, strict=True)
            ]
        )
