"""Phases of a motion: some steps with some contacts, costs and limits; and impacts between them,
which take no time.

All phases share one compiled program. Its contacts, costs and constraints are those of any phase;
where one does not act, its contact is off, its weight is 0, and its bounds are infinite. So the
numbers of a motion say when feet touch the ground, and a change of gait compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from rigidgrad.control.costs import Cost
from rigidgrad.control.durations import Duration, Span, as_duration
from rigidgrad.control.held import Held, Touch
from rigidgrad.control.limits import Constraint, Limits, as_limits
from rigidgrad.control.system import System
from rigidgrad.control.terms.notation import CONTACTS
from rigidgrad.control.terms.robot import robot_of
from rigidgrad.control.terms.term import Term
from rigidgrad.errors import InputError
from rigidgrad.model.contacts import Contacts, constraints, listed
from rigidgrad.model.model import Limits as JointLimits
from rigidgrad.schema import number, numbers, whole

_MOST_STEPS = 10_000_000
_LONGEST_STEP = 1e12  # seconds
AnyTerm = TypeVar("AnyTerm", bound=Term)


class Phase:
    """Some steps of a motion.

    `steps`: how many; `contacts`: what holds meanwhile, a list of `rg.Contact` and `rg.Loop`;
    `costs`: what acts on its knots, with weights per knot as everywhere. Numbers per knot are as in
    a problem of these steps: weights (steps, …), targets and bounds (steps + 1, …), whose last row
    is the next phase's, and so only read in the last one; `final` belongs to the last knot of the
    problem, and so to its last phase. `limits` as of a problem; `dt`: seconds of a step, the
    problem's own unless given.

    With `duration=(low, high)` a solve chooses how many seconds all steps last, in steps of one
    length; `dt` is then a first guess. An `rg.Duration` is one that several phases share.

        flight = rg.Phase(20, duration=(0.1, 0.6), costs=[rg.costs.Duration(weight=0.1)])
    """

    costs: tuple[Cost, ...]
    limits: Limits | JointLimits | None
    duration: Duration | tuple[float, float] | None

    def __init__(
        self,
        steps: Annotated[int, whole(1, _MOST_STEPS), "how many"],
        contacts: Annotated[
            Contacts, CONTACTS, "what holds meanwhile: names of frames, or tables of contacts"
        ] = (),
        costs: Sequence[Cost] = (),
        limits: Limits | JointLimits | None = None,
        dt: Annotated[
            float | None, number(above=0), "seconds of a step; those of the task unless given"
        ] = None,
        duration: Annotated[
            Duration | tuple[float, float] | None,
            numbers(2, least=0),
            "`[low, high]`: the solver chooses how many seconds all steps last; `dt` is a first"
            " guess",
        ] = None,
    ):
        self.steps = whole_steps(steps)
        self.contacts = listed(contacts)
        self.costs: tuple[Cost, ...] = listed_costs(costs)
        self.limits: Any = limits
        self.dt = None if dt is None else seconds(dt)
        self.duration = as_duration(duration)

    def with_terms(self, costs: Sequence[Cost], limits: Limits | JointLimits | None) -> Phase:
        """The same with other costs and limits."""
        return Phase(self.steps, self.contacts, costs, limits, self.dt, self.duration)

    def __repr__(self) -> str:
        free = as_duration(self.duration)
        lasts = "" if free is None else f" in {free.low:g} to {free.high:g} s"
        return f"<Phase: {self.steps} steps{lasts}, {_told(self.contacts)}>"


class Impact:
    """The moment in which contacts take hold: J v⁺ = -restitution J v. It has one knot, with the
    state before it, and no time passes. `costs` act on that knot. `limits` as of a problem.
    """

    steps = 1
    dt = 0.0
    duration = None
    restitution: float
    costs: tuple[Cost, ...]
    limits: Limits | JointLimits | None

    def __init__(
        self,
        contacts: Annotated[
            Contacts, CONTACTS, "what lands: names of frames, or tables of contacts"
        ],
        costs: Sequence[Cost] = (),
        restitution: Annotated[
            float, number(least=0, most=1), "from 0 (plastic) to 1 (elastic)"
        ] = 0.0,
        limits: Limits | JointLimits | None = None,
    ):
        self.contacts = listed(contacts)
        if not self.contacts:
            raise InputError("an impact needs contacts: the feet that land")
        if (
            isinstance(restitution, bool)
            or not isinstance(restitution, Real)
            or not 0 <= restitution <= 1
        ):
            raise InputError(
                f"restitution is a number from 0 (plastic) to 1 (elastic), not {restitution!r}"
            )
        self.costs: tuple[Cost, ...] = listed_costs(costs)
        self.restitution = float(restitution)
        self.limits: Any = limits

    def with_terms(self, costs: Sequence[Cost], limits: Limits | JointLimits | None) -> Impact:
        """The same with other costs and limits."""
        return Impact(self.contacts, costs, self.restitution, limits)

    def __repr__(self) -> str:
        return f"<Impact: {_told(self.contacts)}>"


class Part(NamedTuple):
    """Knots and the terms that act on them; `last`: the problem's last knot is theirs, too."""

    first: int
    steps: int
    last: bool
    costs: tuple[Cost, ...]
    limits: Limits
    constraints: tuple[Constraint, ...]

    @property
    def knots(self) -> slice:
        return slice(self.first, self.first + self.steps + self.last)

    def rows(self, all_: np.ndarray) -> np.ndarray:
        """Of one row per step and one for the end, those of its knots."""
        return all_ if self.last else all_[:-1]


Slot = dict[int, Term]  # by the number of the part: the term that has this place in the programs


def as_phases(phases: Any) -> tuple[Phase | Impact, ...]:
    """Checked."""
    found = (
        tuple(phases) if isinstance(phases, Iterable) and not isinstance(phases, str) else (phases,)
    )
    for phase in found:
        if not isinstance(phase, Phase | Impact):
            raise InputError(f"phases are a list of rg.Phase and rg.Impact, not {phase!r}")
    if not any(isinstance(phase, Phase) for phase in found):
        raise InputError("phases need at least one rg.Phase; an impact takes no time")
    return found


def parts_of(
    system: System, phases: Sequence[Phase | Impact], steps: int, costs: Sequence[Cost], limits: Any
) -> tuple[Part, ...]:
    """The whole motion first, then each phase."""

    def part(first: int, count: int, terms: Sequence[Cost], asked: Any) -> Part:
        own = as_limits(asked, system)
        return Part(
            first, count, first + count == steps, tuple(terms), own, own.constraints(system)
        )

    found, first = [part(0, steps, costs, limits)], 0
    for phase in phases:
        found.append(part(first, phase.steps, phase.costs, phase.limits))
        first += phase.steps
    return tuple(found)


def spans_of(phases: Sequence[Phase | Impact], dt: float | None) -> list[Span]:
    """How long the steps of each phase last; `dt`: those of phases that do not say."""
    found, first = [], 0
    for k, phase in enumerate(phases):
        own, free = dt if phase.dt is None else phase.dt, as_duration(phase.duration)
        if own is None and free is None:
            raise InputError(
                f"phase {k} has no dt, nor has the problem: give dt=, the seconds of a step, or"
                " duration=(low, high), between which a solve chooses"
            )
        found.append(Span(first, phase.steps, own, free))
        first += phase.steps
    return found


def slots(system: System, terms: Sequence[Sequence[AnyTerm]]) -> list[dict[int, AnyTerm]]:
    """Terms of all parts, so that alike terms of different phases share a place. Those of the whole
    motion, which come first, have their own.
    """
    found: list[dict[int, AnyTerm]] = [{0: term} for term in terms[0]]
    shared: dict[tuple[Any, ...], list[dict[int, AnyTerm]]] = {}
    for k, own in enumerate(terms[1:], 1):
        for term in own:
            # sizes first: they record what a user wrote
            kind = (term.size(system), term.target_size(system), term.identity())
            places = shared.setdefault(kind, [])
            place = next((p for p in places if k not in p), None)
            if place is None:
                place = {}
                places.append(place)
                found.append(place)
            place[k] = term
    return found


def held_by(system: System, phases: Sequence[Phase | Impact]) -> Held | None:
    """The contacts of all phases; None where there are none."""
    asked = [phase.contacts for phase in phases]
    every = list(dict.fromkeys(c.constraint for contacts in asked for c in contacts))
    if not every:
        return None
    robot = robot_of(system, "a contact").robot
    for contacts in asked:
        constraints(robot.model, contacts)
        twice = [
            c.frame
            for c in (t.constraint for t in contacts)
            if sum(t.constraint == c for t in contacts) > 1
        ]
        if twice:
            raise InputError(
                f"a phase holds {twice[0]!r} twice in the same way: leave one of its contacts out"
            )
    sets = {tuple(c.constraint for c in contacts): contacts for contacts in asked if contacts}
    found = (robot.constraint_set("contact_dynamics", contacts) for contacts in sets.values())
    redundant = any(c is not None and c.redundant for c in found)
    return Held(tuple(every), any(isinstance(p, Impact) for p in phases), redundant)


def contact_rows(held: Held, phases: Sequence[Phase | Impact]) -> np.ndarray:
    """(knots, numbers): what holds at each knot; the last one is as the one before, but no
    impact.
    """
    rows = [
        np.tile(held.values(p.contacts, getattr(p, "restitution", None)), (p.steps, 1))
        for p in phases
    ]
    return np.concatenate([*rows, held.values(phases[-1].contacts)[None]])


def whole_steps(steps: Any) -> int:
    if (
        isinstance(steps, bool)
        or not isinstance(steps, int | np.integer)
        or not 1 <= steps <= _MOST_STEPS
    ):
        raise InputError(
            f"steps is a whole number of at least 1, and at most {_MOST_STEPS}, not {steps!r}"
        )
    return int(steps)


def seconds(dt: Any) -> float:
    number = isinstance(dt, Real) or (
        isinstance(dt, np.ndarray) and dt.ndim == 0 and dt.dtype.kind in "fiu"
    )
    if isinstance(dt, bool | np.bool_) or not number or not 0 < dt < _LONGEST_STEP:
        raise InputError(f"dt is a positive number of seconds, one for all steps, not {dt!r}")
    return float(dt)


def listed_costs(costs: Any) -> tuple[Cost, ...]:
    found = (
        (costs,)
        if isinstance(costs, Cost)
        else tuple(costs)
        if isinstance(costs, Iterable) and not isinstance(costs, str)
        else None
    )
    if found is None or not all(isinstance(c, Cost) for c in found):
        raise InputError("costs are a list of rg.costs.State, Effort, Reach, …")
    return found


def _told(contacts: Sequence[Touch]) -> str:
    return ", ".join(c.constraint.frame for c in contacts) or "no contacts"
