"""A trajectory optimisation problem: a system, a start, a horizon or phases, costs and limits; and
its functions over all knots.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.constrained import FAR, Constrained
from rigidgrad.control.costs import Cost, CustomValue, Function
from rigidgrad.control.durations import Duration, Span, Timing, as_duration, check_timed, timing_of
from rigidgrad.control.extended import Extended
from rigidgrad.control.guess import KINDS, Guess, goal_of, hold, line, reaching, stand
from rigidgrad.control.hidden import for_solvers, hidden_from
from rigidgrad.control.integrators import check_method
from rigidgrad.control.limits import Constraint, Limits
from rigidgrad.control.memory import control_before
from rigidgrad.control.numeric_input import plain, shape_of
from rigidgrad.control.parameters import Varied, leaves, merged, row_of
from rigidgrad.control.penalty import RATIO
from rigidgrad.control.phases import (
    Impact,
    Part,
    Phase,
    as_phases,
    contact_rows,
    held_by,
    listed_costs,
    parts_of,
    seconds,
    slots,
    spans_of,
    whole_steps,
)
from rigidgrad.control.pickling import check_functions
from rigidgrad.control.programs import shared_programs
from rigidgrad.control.remaining import UNITS, Remaining
from rigidgrad.control.solution import Solution, most_common
from rigidgrad.control.system import Actuation, CustomSystem, RobotSystem, System, as_system
from rigidgrad.control.terms.control_rate import rate_of
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.trajectories import Expansion
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.model.model import Limits as JointLimits
from rigidgrad.robot import Robot


class FinalAim(NamedTuple):
    """What a cost wants of the last knot."""

    name: str
    cost: Cost
    target: tuple[float, ...]
    weighted: tuple[bool, ...]  # which of its residuals have a weight there

    def remaining(self, system: System, x: np.ndarray) -> Remaining:
        """How far a state is from it: of the numbers that have a weight, the norm of those of each
        unit.
        """
        left = self.cost.remaining(system, tuple(x.tolist()), self.target)
        squares: dict[str, float] = {}
        for r, unit, counts in zip(left, self.cost.units(system), self.weighted, strict=True):
            if counts:
                kind = unit if unit in UNITS else ""
                squares[kind] = squares.get(kind, 0.0) + float(r) ** 2
        return Remaining(*(math.sqrt(squares[unit]) if unit in squares else None for unit in UNITS))


Guessed = str | ArrayLike | tuple[ArrayLike, ArrayLike] | Solution | None


class Problem(Constrained):
    """Minimise the costs over `steps` controls of `dt` seconds from `start`, within `limits`.

    `start` (nx,): for a robot [q, v]. Weights are per knot, not times dt. The first guess is
    `guess`: "hold" (the default), the start under gravity compensation; "line", along a line in
    joint space to the goal of State; "reach", along a line to where the frames of Reach are at
    their targets; controls (steps, nu); a pair of states (steps + 1, nx) and controls; or a
    `Solution`, whose multipliers a solve goes on from. It is kept when the start changes. `limits`
    is None, `robot.limits` or `rg.Limits(…)`. `start`, `dt`, `guess`, and the costs' and limits'
    numbers may be changed by `update`: nothing is recorded or compiled again.

    `actuation` says what drives a robot: "joints" (the default), its own motors, and none on a
    floating base; "all", a force on every freedom; names of joints; a map {control: {joint: forces
    per unit}}, or a matrix B (nv, nu) with tau = B u. `print(problem)` tells.

    `parameters` are numbers of a robot's dynamics that vary, each of them one or one per knot:
    {"gravity": (3,), "payload": {frame: mass, or {"mass": …, "offset": (3,)}}, "external": {link:
    wrench}, "inertia": (bodies, 10)}. `update(parameters=…)` changes some of them.

    Robots that touch the world go through `phases`, a list of `rg.Phase(steps, contacts=…, costs=…,
    limits=…, dt=…)` and `rg.Impact(contacts, costs=…)`, instead of `steps`. What `costs` and
    `limits` say then holds for the whole motion besides, and `dt` for phases without their own.
    With contacts, the first guess is to stand at the start: states that stay, and the least forces
    that hold them.

    With `duration=(low, high)`, of a problem or of an `rg.Phase`, a solve also chooses how long its
    steps last; `dt` is then a first guess, which `cost`, `evaluate` and `times` of the problem
    itself keep to. `solution.times` are what was chosen.

    `system` is an `rg.Robot`, or an `rg.CustomSystem`. `integrator` is "euler",
    "semi_implicit_euler", "midpoint", "rk3" or "rk4".

    Example:

        >>> import rigidgrad as rg
        >>> robot = rg.load("double_pendulum")
        >>> swing = rg.costs.State([3.14, 0, 0, 0], final=[100, 100, 10, 10])
        >>> costs = [swing, rg.costs.Effort(1e-3)]
        >>> problem = rg.Problem(robot, [0, 0, 0, 0], steps=50, dt=0.02, costs=costs)
        >>> problem.update(start=[0.1, 0, 0, 0])  # nothing is compiled again
    """

    dt: float
    asked_dt: float | None  # that of phases without their own
    previous: np.ndarray | None  # the control before the first one, for ControlRate
    timing: Timing | None  # of the durations that a solve chooses

    def __init__(
        self,
        system: Robot | System,
        start: ArrayLike,
        steps: int | None = None,
        dt: float | None = None,
        *,
        phases: Sequence[Phase | Impact] | None = None,
        integrator: str = "semi_implicit_euler",
        costs: Sequence[Cost] = (),
        limits: Limits | JointLimits | None = None,
        guess: Guessed = None,
        actuation: Actuation | None = None,
        parameters: Mapping[str, Any] | None = None,
        duration: Duration | tuple[float, float] | None = None,
    ):
        self.system: System = as_system(system, actuation)
        self.parameters: dict[str, Any] = {}
        if parameters is not None:
            robot = robot_of(self.system, "a parameter of the dynamics")
            self.system = robot.varying(Varied.of(robot.model, parameters))
            self.parameters = dict(parameters)
        self.phases: tuple[Phase | Impact, ...] = () if phases is None else as_phases(phases)
        if phases is None:
            self.steps = whole_steps(steps)
        elif steps is not None:
            raise InputError(
                "a problem has steps or phases, not both: each rg.Phase has its own steps"
            )
        else:
            self.steps = sum(phase.steps for phase in self.phases)
        self.bare_system = self.system  # without contacts
        held = held_by(self.system, self.phases)
        if held is not None:
            robot = robot_of(self.system, "a contact")
            self.system = robot.holding(held)
        self.integrator = check_method(integrator)
        if held is not None and held.impacts and integrator != "semi_implicit_euler":
            raise InputError('impacts need integrator="semi_implicit_euler"')
        self.parts = parts_of(self.system, self.phases, self.steps, listed_costs(costs), limits)
        self.limits = self.parts[0].limits  # of the whole motion
        self._take_places()
        if not self.costs:
            raise InputError("a problem needs costs: a list of rg.costs.State, Effort, Reach, …")
        bounded = any(
            part.limits.control_bounds(self.system, part.steps) is not None for part in self.parts
        )
        if self.phases and duration is not None:
            raise InputError("a problem with phases has no duration: give each rg.Phase its own")
        self.duration = as_duration(duration)
        self.known_steps: np.ndarray | None = None  # seconds of each, of a solution as a guess
        self._read_steps(dt)
        if self.timing is not None:
            check_timed(self.system)
        self.programs = shared_programs(
            self.system, self.integrator, self.costs, self.constraints, bounded, self.uniform
        )
        self.p = np.zeros((self.steps + 1, self.programs.parameters))
        self.workspaces: dict[Any, Any] = {}  # solvers' buffers
        self.asked_guess: Any = "hold"
        self.learnt = None
        if start is None:
            raise InputError(f"a problem needs a start: {self.system.nx} numbers")
        self.update(start=start, guess=guess)

    def _take_places(self) -> None:
        """Which terms of which phases share a place in the programs."""
        self.cost_slots = slots(self.system, [part.costs for part in self.parts])
        self.constraint_slots = slots(self.system, [part.constraints for part in self.parts])
        # one of each place: all that programs need to know
        self.costs: tuple[Cost, ...] = tuple(next(iter(slot.values())) for slot in self.cost_slots)
        self.constraints: tuple[Constraint, ...] = tuple(
            next(iter(slot.values())) for slot in self.constraint_slots
        )
        # whether a cost or a constraint is of the control's rate
        self.rated = any(rate_of(term) is not None for term in (*self.costs, *self.constraints))

    @property
    def charges_rate(self) -> bool:
        """Whether solvers have to know the control of the step before, which the states of this
        problem do not tell.
        """
        return self.rated and not isinstance(self.system, Extended)

    @property
    def bounds_rate(self) -> bool:
        """Whether constraints cannot be told from the states of this problem."""
        return self.charges_rate and any(rate_of(c) is not None for c in self.constraints)

    @property
    def hides(self) -> bool:
        """Whether solvers are given another problem (`hidden`), whose states tell more."""
        return self.charges_rate or self.timing is not None

    @property
    def uniform(self) -> bool:
        """Whether all steps last equally long, whatever a solve does."""
        return self.timing is None and super().uniform

    def _read_steps(self, dt: Any) -> None:
        """`h` (steps,), seconds of each step, 0 of an impact; `dt` is that of all, or of most of
        them.
        """
        free = as_duration(self.duration)
        asked = None if dt is None and (self.phases or free is not None) else seconds(dt)
        spans = spans_of(self.phases, asked) or [Span(0, self.steps, asked, free)]
        found = timing_of(spans, self.known_steps)
        self.h, self.timing = found.h, found if found.size else None
        self.asked_dt, self.dt = asked, most_common(self.h)

    def update(
        self,
        *,
        start: ArrayLike | None = None,
        dt: float | None = None,
        guess: Guessed = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes a new start, time step, first guess or parameters, and reads the numbers of costs
        and limits again.
        """
        if parameters is not None:
            changed = merged(self.parameters, parameters)
            self._read_inputs(changed)
            self.parameters = changed
        if start is not None:
            self.start = _finite("start", start, (self.system.nx,))
            if isinstance(self.system, RobotSystem):
                unit = self.system.robot.normalize(self.start[: self.system.nq])
                if not np.allclose(unit, self.start[: self.system.nq], rtol=0, atol=1e-6):
                    raise InputError(
                        "start has a quaternion or (cos, sin) whose length is not 1; pass its q"
                        " through robot.normalize"
                    )
        self._take_steps(dt, guess)
        self._read_terms()
        self.bounds = self._control_bounds()
        learnt = self.learnt if guess is None else None
        if isinstance(guess, Solution):
            learnt = self._learnt(guess)
            guess = guess.u
        asked = self.asked_guess if guess is None else guess
        states, controls = self._guessed(asked)
        self.asked_guess, self.learnt = asked, learnt
        self.guess_states: np.ndarray | None = states
        self.guess = np.clip(controls, *self.bounds)

    def _take_steps(self, dt: float | None, guess: Any) -> None:
        """A new time step, or other durations: their bounds may have changed, and a solution as a
        guess says how long steps last.
        """
        if dt is not None and self.phases and all(phase.dt is not None for phase in self.phases):
            raise InputError(
                "every phase has a dt of its own: make another problem, or leave those out that"
                " shall change"
            )
        if dt is not None or guess is not None:
            self.known_steps = None
        if isinstance(guess, Solution) and guess.h is not None and len(guess.h) == self.steps:
            self.known_steps = guess.h
        free = any(part.duration is not None for part in (self, *self.phases))
        if dt is None and self.timing is None and not free:
            return
        before, was = (self.h, self.dt, self.asked_dt, self.timing), self.uniform
        self._read_steps(self.asked_dt if dt is None else dt)
        freed = (self.timing is None) != (before[-1] is None)
        if self.uniform != was or freed:
            self.h, self.dt, self.asked_dt, self.timing = before
            raise InputError(
                "a duration that was free no longer is, or the other way round: make another"
                " problem"
                if freed
                else "this dt makes steps differ that were alike, or the other way round: make"
                " another problem"
            )

    def _control_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the controls, (lower, upper), each (steps, nu): the narrower of a phase's and the
        whole motion's. Impacts have no controls.
        """
        upper = np.full((self.steps, self.system.nu), np.inf)
        lower = -upper
        for part in self.parts:
            found = part.limits.control_bounds(self.system, part.steps)
            if found is not None:
                own = slice(part.first, part.first + part.steps)
                lower[own], upper[own] = (
                    np.maximum(lower[own], found[0]),
                    np.minimum(upper[own], found[1]),
                )
        if (lower > upper).any():
            raise InputError(
                "the torque limits of a phase and those of the whole motion leave nothing between"
                " them: widen one of them"
            )
        lower[self.h == 0.0], upper[self.h == 0.0] = -np.inf, np.inf
        return lower, upper

    def _guessed(self, guess: Any) -> Guess:
        """A guess as it was asked for, from the start as it is now."""
        system, knots = self.system, self.steps + 1
        if isinstance(guess, str):
            if guess not in KINDS:
                raise unknown_name("guess", guess, KINDS)
            if guess == "hold":
                if isinstance(system, RobotSystem) and system.held is not None:
                    return stand(self._system_at_knots(), self.start, self.steps)
                return Guess(None, hold(self._system_at_knots(), self.start, self.steps))
            if self.phases:
                raise InputError(
                    f'guess={guess!r} is for problems without phases: take "hold", controls, or'
                    " states and controls"
                )
            find = goal_of if guess == "line" else reaching
            return line(
                self._system_at_knots(),
                self.start,
                find(system, self.costs, knots, self.start),
                self.steps,
                self.dt,
            )
        if not isinstance(guess, tuple):
            return Guess(None, _finite("guess", guess, (self.steps, system.nu)))
        if len(guess) != 2:
            raise InputError(
                f"a guess as a tuple is (states, controls); this has {len(guess)} entries"
            )
        return Guess(
            _finite("the guess of states", guess[0], (knots, system.nx)),
            _finite("the guess of controls", guess[1], (self.steps, system.nu)),
        )

    def _system_at_knots(self) -> System:
        """The system with its inputs at all knots but the last, arrays (steps,) each."""
        return self.system.given(tuple(self.p[:-1, self.programs.inputs].T))

    def with_held_states(self) -> Problem | None:
        """This problem with a guess of states that stay at the start, for where holding it in open
        loop runs away.

        None where the user gave a guess, or has dynamics without a known way to hold them.
        """
        if (
            not isinstance(self.system, RobotSystem)
            or not isinstance(self.asked_guess, str)
            or self.asked_guess != "hold"
        ):
            return None
        if self.guess_states is not None:
            return None
        other = self.private_copy()
        other.guess_states, other.guess = self.held_states()
        return other

    def held_states(self) -> tuple[np.ndarray, np.ndarray]:
        """(states that stay at the start, controls that come nearest to that within their
        bounds).
        """
        if isinstance(self.system, RobotSystem) and self.system.held is not None:
            states, controls = stand(self._system_at_knots(), self.start, self.steps)
            assert states is not None
            return states, np.clip(controls, *self.bounds)
        states, controls = line(
            self._system_at_knots(), self.start, self.start, self.steps, self.dt
        )
        assert states is not None
        return states, np.clip(controls, *self.bounds)

    def __repr__(self) -> str:
        return f"<Problem of {self.system.name!r}: {self.steps_summary}; {self.system.driven}>"

    @property
    def steps_summary(self) -> str:
        """How many steps there are, and how long they last, for people."""
        if self.uniform:
            return f"{self.steps} steps of {self.dt:g} s"
        free = "" if self.timing is None else " at first, until durations are chosen"
        return f"{np.count_nonzero(self.h)} steps, {self.h.sum():g} s{free}" + (
            f", {n} impact{'s' if n > 1 else ''}" if (n := np.count_nonzero(self.h == 0)) else ""
        )

    def __str__(self) -> str:
        limits = ["Torque"] * self.programs.bounded + [c.label() for c in self.constraints]
        lines = {
            "driven": self.system.driven,
            "costs": ", ".join(c.label() for c in self.costs),
            "limits": ", ".join(limits) or "none",
        }
        if isinstance(self.system, RobotSystem) and self.system.varied is not None:
            lines["varied"] = str(self.system.varied)
        if self.phases:
            lines["phases"] = "; ".join(str(phase).strip("<>") for phase in self.phases)
        if (
            isinstance(self.system, RobotSystem)
            and self.system.held is not None
            and self.system.held.redundant
        ):
            lines["damped"] = (
                "contacts are redundant: their forces are those that small, equal springs would"
                " share"
            )
        head = f"Problem of {self.system.name!r}: {self.steps_summary}, {self.integrator}"
        return "\n".join([head, *(f"  {key:<7} {text}" for key, text in lines.items())])

    def _read_inputs(self, parameters: Mapping[str, Any]) -> None:
        if not isinstance(self.system, RobotSystem) or not self.system.inputs:
            return
        rows = self.p[:, self.programs.inputs]
        if self.system.varied is not None:
            rows[:, : self.system.varied.count] = self.system.varied.values(
                parameters, self.steps + 1
            )
        if self.system.held is not None:
            rows[:, self.system.contact_numbers] = contact_rows(self.system.held, self.phases)

    def inputs_at(self, knot: int) -> tuple[np.ndarray, ...]:
        """The inputs of the dynamics at a knot, as a step takes them: nothing, or one array."""
        return (self.p[knot, self.programs.inputs],) if self.system.inputs else ()

    def _read_terms(self) -> None:
        parts = iter(self.programs.slices)
        self._read_inputs(self.parameters)
        self.previous = control_before(self)
        for slot in self.cost_slots:
            self._read_cost(slot, next(parts))
        if self.negligible() == 0.0:
            raise InputError(
                "all weights are zero, so that every motion is as good as any other: give the costs"
                " a weight= or final="
            )
        for bounded in self.constraint_slots:
            self._read_constraint(bounded, next(parts))
        self.forget_multipliers()

    def _read_cost(self, slot: Mapping[int, Cost], columns: Mapping[str, slice]) -> None:
        """Targets and weights of the phases that have this cost; the others have any target, and no
        weight.
        """
        targets, weights = self.p[:, columns["target"]], self.p[:, columns["weight"]]
        weights[:] = 0.0
        for k, (part, cost) in enumerate((self.parts[k], cost) for k, cost in slot.items()):
            target, weight = (
                cost.targets(self.system, part.steps + 1),
                cost.weights(self.system, part.steps + 1),
            )
            if not part.last and weight[-1].any():
                raise InputError(
                    f"{cost.label()}: final= belongs to the last knot of the problem, and so to its"
                    " last phase or to the costs of the problem itself"
                )
            if not k:
                targets[:] = target[0]
            if cost.is_per_second:
                weight[:-1] *= self.h[part.first : part.first + part.steps, None]
            targets[part.knots], weights[part.knots] = part.rows(target), part.rows(weight)

    def _read_constraint(
        self, slot: Mapping[int, Constraint], columns: Mapping[str, slice]
    ) -> None:
        """Targets and bounds of the phases that have this constraint; the others have any target,
        and no bounds.
        """
        targets = self.p[:, columns["target"]]
        sides = self.p[:, columns["lower"]], self.p[:, columns["upper"]]
        sides[0][:], sides[1][:] = -FAR, FAR
        for k, (part, constraint) in enumerate(
            (self.parts[k], constraint) for k, constraint in slot.items()
        ):
            knots = part.steps + 1
            target = constraint.targets(self.system, knots)
            # the start is given; later phases begin with a state that limits hold for
            bounds = (
                constraint.asked(self.system, knots)
                if part.first
                else constraint.bounds(self.system, knots, self.start)
            )
            named = constraint.named_knots(knots)
            if not part.last and named is not None and (named == part.steps).any():
                raise InputError(
                    f"{constraint.label()}: at= names the knot after its phase, which is the first"
                    " one of the next: give it to that, with at=0"
                )
            if not k:
                targets[:] = target[0]
            targets[part.knots] = part.rows(target)
            for side, bound in zip(sides, bounds, strict=True):
                side[part.knots] = np.clip(part.rows(bound), -FAR, FAR)

    def _learnt(self, solution: Solution) -> tuple[np.ndarray, np.ndarray] | None:
        """Multipliers and penalties of a solution, if it is of a problem with the same
        constraints.
        """
        shape = self.multipliers.shape
        if (
            solution.multipliers is None
            or solution.penalties is None
            or solution.multipliers.shape != shape
        ):
            return None
        return solution.multipliers, solution.penalties

    def _functions(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Those that the user wrote, and what they serve."""
        if isinstance(self.system, CustomSystem):
            yield "the dynamics", self.system.function
        for kind, terms in (("cost", self.costs), ("constraint", self.constraints)):
            for k, term in enumerate(terms):
                inner = getattr(term, "term", term)
                if isinstance(inner, Function):
                    yield f"{kind} {k}", inner.function

    def __reduce__(self) -> tuple[Any, ...]:
        check_functions(self._functions())
        return _restore, (
            self.bare_system,
            self.start,
            None if self.phases else self.steps,
            self.asked_dt,
            self.phases or None,
            self.integrator,
            self.parts[0].costs,
            self.limits,
            self.asked_guess,
            self.parameters or None,
            self.learnt,
            self.duration,
            self.known_steps,
        )

    def private_copy(self) -> Problem:
        """The same problem with numbers of its own."""
        other = self.in_buffers({})
        other.p = self.p.copy()
        return other

    def in_buffers(self, workspaces: dict[Any, Any]) -> Problem:
        """This very problem, numbers and all, for a solve in other buffers."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.workspaces = workspaces
        return other

    def copy_numbers(self, other: Problem) -> None:
        """Takes over all numbers of a problem with the same programs and length, without copying
        what solvers only read, and the costs and limits that have them.
        """
        self.p[:] = other.p
        self.phases, self.parts, self.limits = other.phases, other.parts, other.limits
        self.cost_slots, self.constraint_slots = other.cost_slots, other.constraint_slots
        self.costs, self.constraints = other.costs, other.constraints
        self.corner, self.learnt, self.previous = other.corner, other.learnt, other.previous
        self.start, self.dt, self.h, self.bounds, self.guess, self.guess_states = (
            other.start,
            other.dt,
            other.h,
            other.bounds,
            other.guess,
            other.guess_states,
        )

    def batch(
        self,
        start: ArrayLike | None = None,
        *,
        targets: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, Any] | None = None,
        guess: Guessed = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> list[Problem]:
        """Copies of this problem that differ in their start (B, nx), their first guess, or in
        targets and weights of costs.

        `guess` is controls (B, steps, nu), a pair of states (B, steps + 1, nx) and controls, or
        "hold", "line" or "reach" for all. `targets` and `weights` are {number of the cost, or
        (number of the phase, number of its cost): array whose first axis is the batch}; what
        follows that axis is what the cost itself takes as its goal, target or weight. `parameters`
        are as of the problem, each number with the batch as its first axis. All share what is
        compiled: `rg.solve(problem.batch(…))` solves them together.
        """
        for name, value in (("targets", targets), ("weights", weights), ("parameters", parameters)):
            if value is not None and not isinstance(value, Mapping):
                raise InputError(f"{name} of a batch are a dict, not {type(value).__name__}")
        guessed: Any = guess
        starts: Any = start
        guesses = guess if isinstance(guess, tuple) else () if isinstance(guess, str) else (guess,)
        given = [
            v
            for v in (
                start,
                *guesses,
                *(targets or {}).values(),
                *(weights or {}).values(),
                *leaves(parameters or {}),
            )
            if v is not None
        ]
        lengths = {len(v) if isinstance(v, Sequence) or shape_of(v) else -1 for v in given}
        if len(lengths) != 1 or -1 in lengths:
            raise InputError(
                "a batch needs arrays whose first axes agree; these have"
                f" {sorted(lengths - {-1}) or 'none'}"
            )
        for index in (*(targets or {}), *(weights or {})):
            self.cost_at(index)
        result = []
        for b in range(lengths.pop()):
            one = self.private_copy()
            one.own_terms()
            for index, values in (targets or {}).items():
                _retarget(one.cost_at(index), values[b])
            for index, values in (weights or {}).items():
                one.cost_at(index).weight = values[b]
            own = (
                guess
                if guess is None or isinstance(guess, str)
                else tuple(g[b] for g in guessed)
                if isinstance(guess, tuple)
                else guessed[b]
            )
            one.update(
                start=None if start is None else starts[b],
                guess=own,
                parameters=row_of(parameters, b) if parameters else None,
            )
            result.append(one)
        return result

    def own_terms(self) -> None:
        """Copies of all costs and limits take the place of those that other problems share."""

        def own(part: Part) -> Part:
            limits = copy.copy(part.limits)
            return part._replace(
                costs=tuple(copy.copy(c) for c in part.costs),
                limits=limits,
                constraints=limits.constraints(self.system),
            )

        self.parts = tuple(own(part) for part in self.parts)
        self.limits = self.parts[0].limits
        self.phases = tuple(
            phase.with_terms(part.costs, part.limits)
            for phase, part in zip(self.phases, self.parts[1:], strict=True)
        )
        self._take_places()

    def cost_at(self, index: Any) -> Cost:
        """A cost by its number, or by those of its phase and its own there."""
        pair = isinstance(index, tuple)
        if (
            pair
            and len(index) == 2
            and isinstance(index[0], int | np.integer)
            and 0 <= index[0] < len(self.parts) - 1
        ):
            part, number = self.parts[index[0] + 1], index[1]
        elif not pair:
            part, number = self.parts[0], index
        else:
            raise InputError(
                f"this problem has {len(self.parts) - 1} phases, numbered from 0; there is no cost"
                f" {index}"
            )
        if not isinstance(number, int | np.integer) or not 0 <= number < len(part.costs):
            where = "this phase" if pair else "this problem"
            raise InputError(
                f"{where} has {len(part.costs)} costs, numbered from 0; there is no cost {number}"
            )
        return part.costs[number]

    # --- where solvers know more than x and u -----------------------------------------------------

    def linearize(self, x: np.ndarray, u: np.ndarray) -> Expansion:
        """The trajectory x (N + 1, nx), u (N, nu) to second order; where something is hidden, by
        the states and controls of solvers: with ControlRate, by [dx, du₋], where u₋ is the control
        of the step before.
        """
        if not self.hides:
            return super().linearize(x, u)
        inner = for_solvers(self)
        return inner.linearize(*hidden_from(self, inner, x, u))

    def evaluate(self, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(f(x_k, u_k), costs with penalties of all knots) of trajectories (…, N + 1, nx), (…, N,
        nu).
        """
        if not self.hides:
            return super().evaluate(x, u)
        inner = for_solvers(self)
        after, costs = inner.evaluate(*hidden_from(self, inner, x, u))
        return after[..., : self.system.nx], costs

    def cost(self, x: np.ndarray, u: np.ndarray) -> float:
        """The cost of a trajectory, without penalties."""
        if not self.hides:
            return super().cost(x, u)
        inner = for_solvers(self)
        return inner.cost(*hidden_from(self, inner, x, u))

    def _constraint_numbers(
        self, x: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not self.bounds_rate:
            return super()._constraint_numbers(x, u)
        inner = for_solvers(self)
        return inner._constraint_numbers(*hidden_from(self, inner, x, u))

    def constraint_units(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        if not self.bounds_rate:
            return super().constraint_units(x, u)
        inner = for_solvers(self)
        return inner.constraint_units(*hidden_from(self, inner, x, u))

    def scale_penalty(self, x: np.ndarray, u: np.ndarray, ratio: float = RATIO) -> None:
        """Penalties become as strong as the costs around a trajectory call for, times `ratio`
        (penalty.py); multipliers stay.
        """
        if not self.hides:
            super().scale_penalty(x, u, ratio)
            return
        inner = for_solvers(self)
        inner.scale_penalty(*hidden_from(self, inner, x, u), ratio)
        self.p[:, self.programs.columns["penalty"]] = inner.penalties

    def aims(self) -> tuple[FinalAim, ...]:
        """What the costs want of the last knot, where they have a weight there."""
        found: list[FinalAim] = []
        positive = (self.p[-1] > 0.0).tolist()
        for cost, part in zip(self.programs.costs, self.programs.slices, strict=False):
            weighted = tuple(positive[part["weight"]])
            if any(weighted) and not isinstance(cost, CustomValue):
                name, known = cost.label(), {aim.name for aim in found}
                name = next(
                    n
                    for n in (name, *(f"{name} ({k})" for k in range(2, len(self.costs) + 1)))
                    if n not in known
                )
                found.append(
                    FinalAim(
                        name,
                        cost,
                        tuple(self.p[-1, part["target"]].tolist()),
                        weighted,
                    )
                )
        return tuple(found)


def _restore(
    system: System,
    start: Any,
    steps: int | None,
    dt: float | None,
    phases: Any,
    integrator: str,
    costs: Any,
    limits: Any,
    guess: Any,
    parameters: dict[str, Any] | None,
    learnt: Any,
    duration: Any,
    known_steps: Any,
) -> Problem:
    problem = Problem(
        system,
        start,
        steps,
        dt,
        phases=phases,
        integrator=integrator,
        costs=costs,
        limits=limits,
        guess=guess,
        parameters=parameters,
        duration=duration,
    )
    problem.learnt = learnt
    if known_steps is not None:
        problem.known_steps = known_steps
        problem.update()
    return problem


def _retarget(cost: Cost, value: Any) -> None:
    """Each kind of cost has its own word for what it aims at."""
    for name in ("goal", "target", "reference", "parameters"):
        if hasattr(cost, name):
            setattr(cost, name, value)
            return
    raise InputError(f"{type(cost).__name__} has no target")


def _finite(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = plain(value).copy()
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} is not an array of numbers") from None
    if array.shape != shape:
        raise InputError(f"{what} has shape {array.shape}; expected {shape}")
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} holds NaN or infinity")
    return array
