"""Gaits as phases of a motion that is planned: `rg.Problem(robot, start,
phases=rg.gaits.trot(robot, feet, start))`.

All feet have all costs in all phases, in one order, and each motion begins with all feet on the
ground. So gaits of one robot differ in numbers alone, and share one compiled program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.costs import ContactForce, Cost, Effort, FrictionCone, Reach, State
from rigidgrad.control.limits import Inequality, Limits
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.options import check_number, check_whole
from rigidgrad.control.phases import Impact, Phase, seconds
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.gaits.footholds import foothold, swing_curve
from rigidgrad.gaits.path import Path
from rigidgrad.gaits.rhythm import Rhythm, groups_of
from rigidgrad.gaits.stance import Stance, turn, turned
from rigidgrad.gaits.standing import standing
from rigidgrad.gaits.weights import MotionWeights, weights_of
from rigidgrad.model.contacts import Contact
from rigidgrad.robot import Robot

Phases = list[Phase | Impact]
_MOST_STEPS = 100_000  # of a motion: each has rows of all costs
_ENDS = 0.05  # seconds that a gait begins and ends on all feet at least
_CONES = ("cost", "constraint")


@dataclass(frozen=True)
class Gait:
    """Phases of a gait: `rg.gaits.walk`, `trot`, `pace` and `bound` are such, and called like
    functions.

    `feet`: a `rg.Contact` for each foot; `start`: the posture to go from, q or x, in which all feet
    stand, `rg.gaits.standing(robot, feet)` unless given. In each of the `cycles` every foot swings
    once, for `swing` seconds and `step_height` metres high, with `support` seconds before each
    swing in which all feet stand; it begins and ends with 50 ms of that at least. A cycle brings
    the robot `step_length` metres forward and `sideways` metres to its left, and turns it by `turn`
    radians. Durations are rounded to steps of `dt`. `cones="constraint"` keeps contact forces
    inside of their friction cones; "cost" charges for what is outside. `weights`: an
    `rg.gaits.MotionWeights`.
    """

    name: str
    """What it is called."""
    about: str
    """A line about it."""

    def __call__(
        self,
        robot: Robot,
        feet: Iterable[Contact],
        start: ArrayLike | None = None,
        *,
        step_length: float = 0.15,
        step_height: float = 0.1,
        cycles: int = 1,
        swing: float = 0.25,
        support: float = 0.05,
        dt: float = 0.01,
        sideways: float = 0.0,
        turn: float = 0.0,
        weights: MotionWeights | None = None,
        cones: str = "cost",
    ) -> Phases:
        motion = _Motion(_stance(robot, feet, start), dt, weights, cones)
        rhythm = Rhythm(groups_of(self.name, motion.stance.places[:, :2]), swing, support)
        check_whole("cycles", cycles, 1)
        return motion.steps(rhythm, _step(step_length, sideways, turn), step_height, cycles)


walk = Gait(
    "walk",
    "Feet swing one after the other: right hind, right front, left hind, left front. Two feet walk"
    " in the order in which they are given.",
)
trot = Gait("trot", "Diagonal feet swing together.")
pace = Gait("pace", "The feet of one side swing together.")
bound = Gait("bound", "The front feet swing together, then the hind feet.")


def jump(
    robot: Robot,
    feet: Iterable[Contact],
    start: ArrayLike | None = None,
    *,
    length: float = 0.0,
    height: float = 0.1,
    push: float = 0.3,
    land: float = 0.3,
    dt: float = 0.01,
    sideways: float = 0.0,
    turn: float = 0.0,
    weights: MotionWeights | None = None,
    cones: str = "cost",
) -> Phases:
    """All feet push for `push` seconds, fly as long as it takes to rise by `height` metres and to
    fall again, land `length` metres ahead, and stand for `land` seconds. The rest as for
    `rg.gaits.trot`.
    """
    motion = _Motion(_stance(robot, feet, start), dt, weights, cones)
    check_number("height", height, positive=True)
    gravity = float(np.linalg.norm(robot.model.gravity))
    check_number("the gravity of a robot that jumps", gravity, positive=True)
    flight = (
        motion.count("the flight of a jump", 2.0 * math.sqrt(2.0 * height / gravity)) * motion.dt
    )
    return motion.jump(
        Rhythm(groups_of("jump", motion.stance.places), flight, push),
        _step(length, sideways, turn),
        land,
        gravity,
    )


def stand(
    robot: Robot,
    feet: Iterable[Contact],
    start: ArrayLike | None = None,
    *,
    time: float = 0.5,
    rise: float = 0.0,
    dt: float = 0.01,
    weights: MotionWeights | None = None,
    cones: str = "cost",
) -> Phases:
    """All feet stand for `time` seconds, and the trunk rises by `rise` metres meanwhile. Any number
    of feet, one or more. `robot`, `feet`, `start`, `dt`, `weights` and `cones` as for
    `rg.gaits.trot`.
    """
    motion = _Motion(_stance(robot, feet, start), dt, weights, cones)
    return motion.stand(motion.count("time", time), float(numbers("rise", rise, ())))


def _stance(robot: Robot, feet: Iterable[Contact], start: ArrayLike | None) -> Stance:
    if start is not None:
        return Stance(robot, feet, start)
    feet = Stance(robot, feet, robot.neutral()).feet
    return Stance(robot, feet, standing(robot, feet))


def _step(forward: Any, sideways: Any, turn: Any) -> np.ndarray:
    return np.array(
        [
            float(numbers(name, value, ()))
            for name, value in (("step_length", forward), ("sideways", sideways), ("turn", turn))
        ]
    )


class _Motion:
    """Phases in the making. Feet are rows (x, y, z, angle by which they are turned since the
    start); states of a phase have a row for each of its knots, the last of which is the next one's
    first.
    """

    def __init__(self, stance: Stance, dt: Any, weights: MotionWeights | None, cones: str):
        self.stance, self.dt = stance, seconds(dt)
        if cones not in _CONES:
            raise unknown_name("cones", cones, _CONES)
        self.weights = weights_of(weights, MotionWeights)
        self.constrained = cones == "constraint"
        self.contacts = stance.contacts(self.dt)
        self.start = np.column_stack([stance.feet_of(stance.x), np.zeros(len(stance.feet))])
        self.rotations = stance.rotations_of(stance.x)
        self.nq, self.nv = stance.robot.nq, stance.robot.nv

    def count(self, name: str, duration: Any, least: int = 1) -> int:
        """Steps of a duration."""
        check_number(name, duration)
        if not duration / self.dt <= _MOST_STEPS:
            raise InputError(
                f"{name} is {duration:g} s, which is more than {_MOST_STEPS:,} steps of {self.dt:g}"
                " s; make it shorter, or dt longer"
            )
        steps: int = max(least, round(duration / self.dt))
        return steps

    # --- whole motions ----------------------------------------------------------------------------

    def steps(self, rhythm: Rhythm, step: np.ndarray, height: Any, cycles: int) -> Phases:
        """A gait: all feet stand, some swing, they land; and so on."""
        swing, support = self.count("swing", rhythm.swing), self.count("support", rhythm.support, 0)
        check_number("step_height", height)
        rise = float(height)
        groups, turns = len(rhythm.groups), len(rhythm.groups) * cycles
        ends = max(support, self.count("support", _ENDS))
        steps = 2 * ends + (turns - 1) * support + turns * swing
        if steps > _MOST_STEPS:
            raise InputError(
                f"{cycles} cycles are more than {_MOST_STEPS:,} steps of {self.dt:g} s; take fewer,"
                " or a longer dt"
            )
        duration = steps * self.dt
        path = Path(
            self.stance.x[:2],
            self.stance.yaw,
            cycles * step[:2],
            cycles * step[2],
            duration,
            0.5 * rhythm.cycle,
        )
        found: Phases = []
        feet, t = self.start, 0.0
        for k in range(turns):
            group = rhythm.groups[k % groups]
            if before := support if k else ends:
                found.append(self._phase(self._trunk(path, t, before), feet))
            t += before * self.dt
            lands = t + swing * self.dt
            # under the hip in the middle of the stance that follows; the last ones where the robot
            # ends
            under = path.at(duration if k + groups >= turns else lands + 0.5 * rhythm.stance)
            landing = self._landing(feet, group, *under)
            found.append(self._phase(self._trunk(path, t, swing), feet, landing, group, rise))
            found.append(self._impact(self._trunk(path, lands, 0), landing, group))
            feet, t = landing, lands
        found.append(self._phase(self._trunk(path, t, ends), feet, last=True))
        return found

    def jump(self, rhythm: Rhythm, step: np.ndarray, land: Any, gravity: float) -> Phases:
        """All feet push, fly and land."""
        push, flight, rest = (
            self.count(n, d)
            for n, d in (("push", rhythm.support), ("flight", rhythm.swing), ("land", land))
        )
        group, T = rhythm.groups[0], flight * self.dt
        path = Path(self.stance.x[:2], self.stance.yaw, step[:2], step[2], T, 0.0)
        flying = self._trunk(path, 0.0, flight)
        ahead = self.dt * np.arange(flight + 1)
        flying[:, 2] += 0.5 * gravity * ahead * (T - ahead)
        flying[:, self.nq + 2] = gravity * (0.5 * T - ahead)
        before, after = np.tile(self.stance.x, (push + 1, 1)), np.tile(flying[-1], (rest + 1, 1))
        after[:, self.nq :] = 0.0
        landing = self._landing(self.start, group, *path.at(T))
        # to crouch, to push and to give way
        free = replace(self.weights, position=(0.0, 0.0, 0.0), velocity=(0.0, 0.0, 0.0))
        return [
            self._phase(before, self.start, weights=free),
            self._phase(flying, self.start, landing, group, gravity * T * T / 8.0),
            self._impact(after[:1], landing, group, free),
            self._phase(after, landing, last=True),
        ]

    def stand(self, steps: int, rise: float) -> Phases:
        """All feet stay."""
        s = np.linspace(0.0, 1.0, steps + 1)
        states = np.tile(self.stance.x, (steps + 1, 1))
        states[:, 2] += rise * s * s * (3.0 - 2.0 * s)
        states[:, self.nq + 2] = rise * 6.0 * s * (1.0 - s) / (steps * self.dt)
        return [self._phase(states, self.start, last=True)]

    # --- parts of them ----------------------------------------------------------------------------

    def _trunk(self, path: Path, t: float, steps: int) -> np.ndarray:
        """States from a time on: the trunk along the path, the joints as in the stance."""
        states = np.tile(self.stance.x, (steps + 1, 1))
        for x, now in zip(states, t + self.dt * np.arange(steps + 1), strict=True):
            x[:2], yaw = path.at(now)
            x[3:7] = turned(x[3:7], yaw - self.stance.yaw)
            x[self.nq : self.nq + 2], x[self.nq + 5] = path.velocity(now)
        return states

    def _landing(
        self, feet: np.ndarray, group: Sequence[int], position: np.ndarray, heading: float
    ) -> np.ndarray:
        """The feet after those of a group have landed under a trunk, as high as they were at the
        start.
        """
        landing = feet.copy()
        for k in group:
            landing[k, :2] = foothold(self.stance.places[k], position, heading)[:2]
            landing[k, 3] = heading - self.stance.yaw
        return landing

    def _phase(
        self,
        states: np.ndarray,
        feet: np.ndarray,
        landing: np.ndarray | None = None,
        group: Sequence[int] = (),
        rise: float = 0.0,
        weights: MotionWeights | None = None,
        last: bool = False,
    ) -> Phase:
        """Feet of a group swing, the others stand."""
        steps = len(states) - 1
        s = np.linspace(0.0, 1.0, steps + 1)
        rows = np.repeat(feet[:, None], steps + 1, axis=1)
        if landing is not None:
            for k in group:
                rows[k, :, :3] = swing_curve(feet[k, :3], landing[k, :3], s, rise)
                rows[k, :, 3] += s * (landing[k, 3] - feet[k, 3])
        weights = self.weights if weights is None else weights
        held = [c for k, c in enumerate(self.contacts) if k not in group]
        costs = self._costs(
            states,
            rows,
            group,
            weights,
            self.dt,
            self.dt * weights.foot,
            weights.last if last else 0.0,
        )
        cones = (
            [Inequality(FrictionCone(c, facets=None), upper=0.0) for c in self.contacts]
            if self.constrained
            else []
        )
        return Phase(steps, held, costs, Limits(constraints=cones), dt=self.dt)

    def _impact(
        self,
        states: np.ndarray,
        landing: np.ndarray,
        group: Sequence[int],
        weights: MotionWeights | None = None,
    ) -> Impact:
        """Feet of a group land, and the others stay."""
        weights = self.weights if weights is None else weights
        return Impact(
            self.contacts,
            self._costs(states, landing[:, None], group, weights, self.dt, weights.landing, 0.0),
        )

    def _costs(
        self,
        states: np.ndarray,
        feet: np.ndarray,
        group: Sequence[int],
        weights: MotionWeights,
        h: float,
        foot: float,
        last: float,
    ) -> list[Cost]:
        """Those of all motions, in one order, so that they share their places in a program; `feet`
        are (feet, knots, 4).
        """
        state = weights.state(self.nv)
        costs: list[Cost] = [
            State(states, weight=h * state, final=last * state),
            Effort(h * weights.effort),
        ]
        for k, contact in enumerate(self.contacts):
            target = feet[k, :, :3]
            if contact.kind == "surface":
                target = np.tile(np.eye(4), (len(target), 1, 1))
                target[:, :3, 3] = feet[k, :, :3]
                target[:, :3, :3] = [turn(angle) @ self.rotations[k] for angle in feet[k, :, 3]]
            costs.append(
                Reach(
                    contact.frame, target, offset=contact.offset, weight=foot if k in group else 0.0
                )
            )
        costs += [
            FrictionCone(c, 0.0 if self.constrained else h * weights.cone, facets=None)
            for c in self.contacts
        ]
        return costs + [ContactForce(c, h * weights.force) for c in self.contacts]
