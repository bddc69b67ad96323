"""Model predictive control: owns time, keeps a plan, follows it by feedback, and knows what to do when something fails."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.control.costs import Cost, Reach, State
from rigidgrad.control.integral import Integral
from rigidgrad.control.mpc_log import Log
from rigidgrad.control.observer import DisturbanceObserver
from rigidgrad.control.pddp import PDDP, Run
from rigidgrad.control.plan import Plan
from rigidgrad.control.problem import Problem
from rigidgrad.control.shooting import Forward
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError

_COLD_ITERATIONS = 20
_FAILURES = 2  # in a row, after which the plan is made from cold
_PREDICTION_STEP = 0.002  # seconds
_OLDEST = 0.2  # seconds; what was measured longer ago is missing
_HOLD_RATE = 10.0  # rad/s, of the posture held when all else failed
_ROUNDING = 1e-9
_ANY = 1_000_000  # more iterations than any budget allows
FALLBACKS = ("missing", "kept", "cold", "held", "late")


class MPC:
    """A controller for a problem whose start is wherever the robot is.

    Every `period` seconds the plan is made anew: the last one is shifted in time, rolled out from the measured state, and improved by `solver`'s iterations, or, with PDDP,
    for `budget` seconds. In between, `step` follows it: u_k + K (x - x_k). A plan made from a measurement acts `latency` seconds later; the state until then is predicted.
    Who calls `prepare` once a control is sent waits less for the next one.

    `target` is what the first Reach or State cost aims at: a value, or a function of time that takes an array of times and gives one row each, previewed over
    the horizon; it may be set at any time. `observer` (True, or a bandwidth in rad/s) estimates unknown joint forces and cancels them. `integral` (True, or a rate in 1/s) moves the target
    of a point until nothing lasting is left between them, whatever the weights.

    If a measurement is missing, not finite or too old, the plan goes on without feedback ("missing"). If a solve fails, the last plan's feedback goes on ("kept"); after two
    failures, or a plan that has run out, a plan is made from cold ("cold"); if that fails, too, the posture is held with gravity compensation ("held"). "late" counts
    deadlines missed in real time. All are in `counts`, and the last reason in `trouble`. `seconds` are those of the last plan's phases, of all in a step ("solve"), and,
    where there is one, of the last preparation ("prepare").
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
        log: int = 100_000,
    ):
        if not isinstance(problem, Problem):
            raise InputError(f"MPC needs a Problem, not {type(problem).__name__}")
        for name, value, least in (("period", period, _ROUNDING), ("latency", latency, 0.0), ("budget", budget, _ROUNDING)):
            if value is not None and not (math.isfinite(value) and value >= least):
                raise InputError(f"{name} is a number of seconds of at least {least:g}, not {value!r}")
        self.solver = PDDP(iterations=1) if solver is None else solver
        if not hasattr(self.solver, "solve"):
            raise InputError(f"a solver is rg.PDDP(…) or rg.Direct(…), not {type(self.solver).__name__}")
        self.period, self.latency, self.budget = float(period), float(latency), budget
        problem = problem.private_copy()
        problem.guess_states = None
        self._engine = Run(problem, self.solver) if isinstance(self.solver, PDDP) else None
        if budget is not None and self._engine is None:
            raise InputError("a time budget needs rg.PDDP; give other solvers a number of iterations")
        self.problem = self._engine.problem if self._engine else problem
        self.system = self.problem.system
        self._discrete = isinstance(self.system, CustomSystem) and self.system.discrete
        if self._discrete and abs(self.latency / problem.dt - round(self.latency / problem.dt)) > 1e-6:
            raise InputError("discrete dynamics have no time between their steps: the latency must be a multiple of the problem's dt")
        if self._engine is not None:  # simulates shifted plans: a step size of 0 leaves the controls as they are
            self._simulated = Forward(self.problem, self._engine.backward, np.zeros(1), reference=(self._engine.x, self._engine.u))
        self._aim = self._aimed_cost()
        self.observer = DisturbanceObserver(self.system, 20.0 if observer is True else float(observer)) if observer else None
        cost = self._aim.cost if self._aim else None
        self.integral = Integral(self.system, cost, 4.0 if integral is True else float(integral)) if integral else None
        self._bounds = tuple(np.array(b) for b in self.problem.bounds)
        # the plan that acts, those that wait for the latency to pass, and room for the next
        self._plan = Plan(self.problem)
        self._waiting: deque[Plan] = deque()
        self._spare = [Plan(self.problem) for _ in range(math.ceil(self.latency / self.period) + 2)]
        self._times = self.problem.dt * np.arange(self.problem.steps + 1)
        self._gains = np.zeros_like(self._plan.gains)
        self._now = -math.inf
        self._prepared = math.nan  # when the plan begins whose iteration `prepare` has begun
        self._held_since = -math.inf  # when the plan begins that the constraints' multipliers belong to
        self._log_size = log
        self.target = self.integral.cost.target if target is None and self.integral else target
        self.reset()

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
        self._now, self._prepared = -math.inf, math.nan
        self._u = np.zeros(self.system.nu)
        self._given: deque[tuple[float, np.ndarray]] = deque()  # controls, and since when
        self.seconds = dict.fromkeys(("predict", "shift", "iterate", "solve"), 0.0)
        if self.observer:
            self.observer.reset()
        if self.integral:
            self.integral.reset()
        if self.problem.constraints:
            self.problem.forget_multipliers()

    # --- the target --------------------------------------------------------------------------------------------------------------

    def _aimed_cost(self) -> Aim | None:
        for kind, name in ((Reach, "target"), (State, "goal")):
            for k, cost in enumerate(self.problem.costs):
                if isinstance(cost, kind):
                    return Aim(cost, name, self.problem.programs.slices[k]["target"])
        return None

    @property
    def target(self) -> Any:
        return self._target

    @target.setter
    def target(self, value: Any) -> None:
        if value is not None:
            self._target_rows(value, max(self._now, 0.0) + self.latency)  # complains now, not when a plan is made
        self._target, self._prepared = value, math.nan

    def _aim_at(self, t: float) -> None:
        """Writes the target of a horizon from t on into the compiled problem's numbers."""
        if self._target is not None and self._aim is not None:
            rows = self._target_rows(self._target, t)
            self.problem.p[:, self._aim.part] = rows + self.integral.shift if self.integral else rows

    def _target_rows(self, value: Any, t: float) -> np.ndarray:
        """A target as the numbers of the knots of a horizon from t on."""
        if self._aim is None:
            raise InputError("this problem has neither a Reach nor a State cost that a target could be for")
        if callable(value):
            value = _sampled(value, t + self._times)
        size = self._aim.part.stop - self._aim.part.start
        with contextlib.suppress(TypeError, ValueError):
            rows = np.asarray(value, dtype=float)
            if rows.shape in ((size,), (len(self._times), size)) and self.system.flat and math.isfinite(rows.sum()):
                return rows
        cost = copy.copy(self._aim.cost)
        setattr(cost, self._aim.name, value)
        return cost.targets(self.system, len(self._times))

    # --- a user's loop -------------------------------------------------------------------------------------------------------------

    def step(self, x: Any, t: float, measured_at: float | None = None) -> np.ndarray:
        """The control for now, from a measured state (None if there is none); makes a new plan when it is time to.

        Times never go back; `reset` begins anew. A state that was `measured_at` an earlier time is brought forward by the model and the controls given since.
        """
        if not (math.isfinite(t) and t >= self._now):
            raise InputError(f"the time {t!r} is not after {self._now!r}; call reset() to begin anew")
        self._now = t
        measured = self._checked(x)
        if measured is not None and measured_at is not None and measured_at < t - _ROUNDING:
            measured = self._brought_forward(measured, measured_at, t)
        self._activate(t)
        due = t >= self._due - _ROUNDING
        if measured is None:
            self.counts["missing"] += 1
        if due and measured is not None:
            self._due = t + self.period if t - self._due > self.period or self._due == -math.inf else self._due + self.period
            self._make_plan(measured, t)
            self._activate(t)
        u = self._command(measured, t)
        if self.observer and measured is not None:
            self.observer.update(measured, t, u)
        if self.integral and measured is not None and self._target is not None:
            wanted = self._target
            self.integral.update(measured, t, _sampled(wanted, np.array([t]))[0] if callable(wanted) else wanted)
        self._u = u
        self._remember(t, u)
        self.log.add_step(t, measured, u)
        return u

    def prepare(self, t: float) -> None:
        """Between two steps: what the one at time t, if it makes a plan, can do without its measurement.

        That is the roll-out from where the last plan will be then, the derivatives and the backward pass; the step only rolls out its first iteration from where the robot
        really is, with the gains for the difference. If it comes at another time or the target changes, or with another solver than parallel DDP, it does everything itself.
        """
        began, begin = time.perf_counter(), t + self.latency
        if self._engine is None or t < self._due - _ROUNDING or not self._is_warm(begin):
            return
        self._prepared = math.nan
        with contextlib.suppress(Exception):  # `step` meets it again, and knows what to do
            self._foresee(begin)
            self.problem.start = self._latest.state(begin)
            self._roll_out(self._engine, begin, warm=True)
            if math.isfinite(self._engine.J):
                self._engine.linearize()
                self._prepared = begin
        self.seconds["prepare"] = time.perf_counter() - began

    def _remember(self, t: float, u: np.ndarray) -> None:
        self._given.append((t, u))
        while len(self._given) > 1 and self._given[1][0] < t - _OLDEST:
            self._given.popleft()

    def _brought_forward(self, x: np.ndarray, since: float, t: float) -> np.ndarray | None:
        """The state now, from an earlier one; None where that is too old."""
        if t - since > _OLDEST:
            return None
        if not self._given:
            return x
        cancelled = self.observer.control if self.observer else 0.0
        parts: list[tuple[np.ndarray, float]] = []  # controls and how long they acted, the last first
        end = t
        for begin, u in reversed(self._given):
            parts.append((u, end - max(begin, since)))
            if begin <= since:
                break
            end = begin
        for u, seconds in reversed(parts):
            if seconds > _ROUNDING:
                x = self._simulate(x, u + cancelled, seconds)
        return x

    def _activate(self, t: float) -> None:
        """The newest plan whose time has come acts."""
        while self._waiting and t >= self._waiting[0].start - _ROUNDING:
            self._spare.append(self._plan)
            self._plan = self._waiting.popleft()

    def _checked(self, x: Any) -> np.ndarray | None:
        if x is None:
            return None
        state = np.asarray(x, dtype=float)
        if state.shape != (self.system.nx,):
            raise InputError(f"the state has shape {state.shape}; expected ({self.system.nx},)")
        return state if math.isfinite(state.sum()) else None

    def _command(self, x: np.ndarray | None, t: float) -> np.ndarray:
        if self._hold is not None:
            u = self._hold_control(x)
        elif self._plan.start == -math.inf:
            u = self.problem.guess[0].copy() if x is None else self._resting(x)
        else:
            u = self._plan.control(t, x)
        if self.observer:
            u = u - self.observer.control
        np.maximum(u, self._bounds[0][0], out=u)
        return np.minimum(u, self._bounds[1][0], out=u)

    def _resting(self, x: np.ndarray) -> np.ndarray:
        """The controls that come nearest to holding a state under gravity."""
        s = self.system
        if not isinstance(s, RobotSystem):
            return np.zeros(s.nu)
        force = s.robot.gravity_torque(x[: s.nq])
        return force if s.actuation is None else np.linalg.lstsq(np.array(s.actuation), force, rcond=None)[0]

    # --- making a plan -------------------------------------------------------------------------------------------------------------

    def _make_plan(self, x: np.ndarray, t: float) -> None:
        began = time.perf_counter()
        cost, iterations = math.nan, 0
        warm = self._is_warm(t + self.latency)
        try:
            cost, iterations = self._solve(x, t, began, warm)
            self.counts["cold"] += not warm and self.log.solves > 0
            self._failures, self._hold = 0, None
        except Exception as error:  # a controller must go on, whatever a solver does
            self.trouble = f"{type(error).__name__}: {error}"
            self._failures += 1
            if warm:
                self.counts["kept"] += 1
            if not warm or t >= self._plan.end:
                self.counts["held"] += 1
                self._begin_hold(x)
        self.seconds["solve"] = time.perf_counter() - began
        self.log.add_solve(t, self.seconds["solve"], cost, iterations)

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
        """Bounds and target of a plan, as they are known now."""
        if self.observer:
            shift = self.observer.control
            self.problem.bounds = (self._bounds[0] + shift, self._bounds[1] + shift)
        self._aim_at(begin)

    def _solve(self, x: np.ndarray, t: float, began: float, warm: bool) -> tuple[float, int]:
        p, begin = self.problem, t + self.latency
        prepared = warm and abs(begin - self._prepared) < _ROUNDING
        self._prepared = math.nan
        if not prepared:
            self._foresee(begin)
        p.start = self._predict(x, t) if self.latency else x
        self.seconds["predict"] = time.perf_counter() - began
        if self._engine is not None:
            self._improve(self._engine, begin, began, warm, prepared)
            x_new, u_new, gains = self._engine.x, self._engine.u, self._engine.backward.gains
            cost, used = self._engine.J, self._engine.iterations
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
        return cost, used

    def _roll_out(self, run: Run, begin: float, warm: bool) -> None:
        """The last plan, shifted, or the start held, is rolled out from the start, in the buffers of parallel DDP."""
        p, rolled, gains = self.problem, self._simulated, run.backward.gains
        run.backward.prepare()
        if warm:
            last = self._latest
            last.shifted_into(begin, rolled.x, rolled.u, gains, self._resting(last.x[-1]))
            if p.constraints:
                for part in p.programs.slices[len(p.costs) :]:
                    last.shift_rows(begin - self._held_since, p.p[:, part["multiplier"]])
        else:
            rolled.x[:], rolled.u[:], gains[:] = p.start, self._resting(p.start), 0.0
            if p.constraints:
                p.forget_multipliers()
        self._held_since = begin
        self._measure(run)
        rolled.take(0)
        run.forward.gap[:] = 0.0

    def _measure(self, run: Run) -> None:
        """The cost of following the reference from the start."""
        run.forward.prepare()
        self._simulated.prepare()
        run.J = float(self._simulated.run()[0])

    def _improve(self, run: Run, begin: float, began: float, warm: bool, prepared: bool) -> None:
        """Iterates from the last plan, unless a preparation has begun that already."""
        p = self.problem
        run.forget()
        if prepared:
            self._measure(run)
        else:
            self._roll_out(run, begin, warm)
        rolled_out = time.perf_counter()
        self.seconds["shift"] = rolled_out - began - self.seconds["predict"]
        if math.isfinite(run.J):
            # a plan made from cold gets more iterations, within the budget if there is one
            run.most = self.solver.iterations if warm else max(_COLD_ITERATIONS, self.solver.iterations)
            run.deadline = math.inf
            if self.budget is not None:
                run.most, run.deadline = _ANY, began + self.budget
            run.descend(run.options.tolerance, prepared)
            if prepared and not run.steps_taken:
                self._simulated.take(0)
            if run.forward.open and np.any(run.forward.gap):
                run.roll_out(run.forward.u)
            if p.constraints:
                p.renew_multipliers(run.x, run.u, 1.0, math.inf)
        self.seconds["iterate"] = time.perf_counter() - rolled_out

    def _solve_elsewhere(self, begin: float, began: float, warm: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """By a solver that takes whole problems."""
        p, solver = self.problem, self.solver
        if warm:
            last = self._latest
            x, u = np.empty_like(last.x), np.empty_like(last.u)
            last.shifted_into(begin, x, u, self._gains, self._resting(last.x[-1]))
            x[0] = p.start
            p.guess_states, p.guess = x, np.clip(u, *p.bounds)
        else:
            p.guess_states, p.guess = None, np.clip(np.tile(self._resting(p.start), (p.steps, 1)), *p.bounds)
            if dataclasses.is_dataclass(solver) and getattr(solver, "iterations", _COLD_ITERATIONS) < _COLD_ITERATIONS:
                solver = dataclasses.replace(solver, iterations=_COLD_ITERATIONS)  # type: ignore[type-var]
        shifted = time.perf_counter()
        self.seconds["shift"] = shifted - began - self.seconds["predict"]
        found = solver.solve(p)
        self.seconds["iterate"] = time.perf_counter() - shifted
        return found.x, found.u, found.gains, found.cost, found.iterations

    def _predict(self, x: np.ndarray, t: float) -> np.ndarray:
        """The state after the latency, under the control that will act until then."""
        lower, upper = (b[0] for b in self.problem.bounds)
        now, end = t, t + self.latency
        while end - now > _ROUNDING:
            h = self.problem.dt if self._discrete else min(_PREDICTION_STEP, end - now)
            acting = next((p for p in reversed(self._waiting) if p.start <= now + _ROUNDING), self._plan)
            u = self._u
            if acting.start > -math.inf:
                u = acting.control(now, x)
                np.minimum(np.maximum(u, lower, out=u), upper, out=u)
            x = self.problem.programs.step(x, u, np.array(h))
            now += h
        return x

    def _simulate(self, x: np.ndarray, u: np.ndarray, duration: float) -> np.ndarray:
        """The state after holding a control for a while."""
        length = self.problem.dt if self._discrete else _PREDICTION_STEP
        count = round(duration / length) if self._discrete else max(1, math.ceil(duration / length - _ROUNDING))
        for _ in range(count):
            x = self.problem.programs.step(x, u, np.array(duration / count))
        return x

    def _begin_hold(self, x: np.ndarray) -> None:
        if self._hold is None:
            self._hold = x.copy()

    def _hold_control(self, x: np.ndarray | None) -> np.ndarray:
        """Gravity compensation and a critically damped spring to the posture, where the system is a robot."""
        assert self._hold is not None
        s, at = self.system, self._hold if x is None else x
        u = self._resting(at)
        if x is None or not isinstance(s, RobotSystem):
            return u
        q, v = x[: s.nq], x[s.nq :]
        away = s.robot.difference(self._hold[: s.nq], q)
        force = -s.robot.crba(q) @ (_HOLD_RATE**2 * away + 2 * _HOLD_RATE * v)
        return u + (force if s.actuation is None else np.linalg.lstsq(np.array(s.actuation), force, rcond=None)[0])

    # --- whole runs ------------------------------------------------------------------------------------------------------------------

    def run(self, plant: Any, duration: float, *, realtime: bool = False, until: Callable[[Any], bool] | None = None) -> Log:
        """Drives a plant for a while: in its own simulated time, or with `realtime` by the clock, counting deadlines missed. Gives the log.

        `until(plant)` ends it early.
        """
        dt = plant.dt
        steps = round(duration / dt)
        clock = time.perf_counter()
        for k in range(steps):
            x, seen = plant.measure() or (None, None)
            plant.advance(self.step(x, plant.time, seen))
            if realtime:
                ahead = clock + (k + 1) * dt - time.perf_counter()
                self.log.add_slack(ahead)
                if ahead < 0.0:
                    self.counts["late"] += 1
                    clock -= ahead  # do not hurry after a stall
                else:
                    _wait(ahead)
            if until is not None and until(plant):
                break
        return self.log

    def start(self, plant: Any, duration: float = math.inf) -> Running:
        """As `run` in real time, on a thread of its own."""
        return Running(self, plant, duration)

    def replay(self, log: Log) -> np.ndarray:
        """Feeds a log's measurements to this controller, from a reset; the controls that it gives now, (steps, nu)."""
        self.reset()
        return np.array([self.step(None if np.isnan(x).any() else x, float(t)) for t, x in zip(log.t, log.x, strict=True)])


class Aim(NamedTuple):
    """The cost that the target is for, what it calls it, and where its numbers are."""

    cost: Cost
    name: str
    part: slice


class Running:
    """A controller at work on a thread; `stop()` ends it and gives the log, or raises what went wrong."""

    def __init__(self, mpc: MPC, plant: Any, duration: float):
        self._mpc, self._stop = mpc, threading.Event()
        self._error: BaseException | None = None

        def work() -> None:
            try:
                mpc.run(plant, min(duration, 1e9), realtime=True, until=lambda _: self._stop.is_set())
            except BaseException as error:  # handed to whoever stops it
                self._error = error

        self._thread = threading.Thread(target=work, name="rigidgrad-mpc", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> Log:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._mpc.log


def _sampled(function: Callable[[Any], Any], times: np.ndarray) -> np.ndarray:
    """A function of time at many times: at once where it can, else one after the other."""
    try:
        rows = np.asarray(function(times), dtype=float)
        if rows.ndim >= 2 and len(rows) == len(times):
            return rows
    except (TypeError, ValueError):
        pass
    return np.array([function(float(t)) for t in times], dtype=float)


def _wait(seconds: float) -> None:
    """Sleeps, and spins for the last bit: sleeping alone wakes too late."""
    end = time.perf_counter() + seconds
    if seconds > 0.0005:
        time.sleep(seconds - 0.0003)
    while time.perf_counter() < end:
        pass
