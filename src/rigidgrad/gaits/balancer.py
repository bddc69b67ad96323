"""Standing under control, as the target of `rg.MPC`: weight is shifted between the feet, hands
reach for points, and the robot keeps its balance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.costs import (
    CenterOfMass,
    Effort,
    FrictionCone,
    Reach,
    State,
)
from rigidgrad.control.limits import Limits
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.phases import Phase, seconds, whole_steps
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import FallenError, InputError, unknown_name
from rigidgrad.gaits.own_costs import check_own_costs, force_costs
from rigidgrad.gaits.stance import Stance, heading, turn
from rigidgrad.gaits.weights import BalanceWeights, weights_of
from rigidgrad.model.contacts import Contact
from rigidgrad.model.model import Limits as JointLimits
from rigidgrad.robot import Robot

_REACH = 3  # the place of the first hand among the costs
_AHEAD = 0.05  # metres that a hand's target is ahead of the hand at most
# m/s, of the centre of mass: slow against 0.3 m/s, at which it is caught no more from half a sole
# away
_SWAYS = 0.1


class Balancer:
    """Stands on all its feet: `shift = (forward, left)` in metres moves the centre of mass
    away from the middle of the feet, and `reach(hand, point)` brings a hand to a point of the
    world.

    `feet`: one `rg.Contact` for each, with `kind="surface"` for soles, and then `half_lengths`,
    half of a sole's length and width in metres around the contact's origin; `start`: the posture to
    stand in, q or x. `hands`: frames that reach, or {frame: offset}. Hands go at `speed`, m/s, the
    weight at 0.1 m/s. A robot whose trunk lies on its side or near the ground has fallen:
    controllers hold its joints, and count it, until it is up again. `problem()` is what
    `rg.MPC(problem, …, target=balancer)` solves; its last knot counts for more, since what falls
    over does so slowly at first. The horizon has `steps` of `dt` seconds; `weights` and `limits`
    are those of its problem.
    """

    def __init__(
        self,
        robot: Robot,
        feet: Iterable[Contact],
        start: ArrayLike,
        *,
        hands: Sequence[str] | Mapping[str, Any] = (),
        half_lengths: ArrayLike | None = None,
        steps: int = 25,
        dt: float = 0.02,
        weights: BalanceWeights | None = None,
        limits: Limits | JointLimits | None = None,
        speed: float = 0.3,
    ):
        self.stance = Stance(robot, feet, start)
        self.robot, self.feet = robot, self.stance.feet
        soles = [f for f in self.feet if f.kind == "surface"]
        if soles and half_lengths is None:
            raise InputError(
                "feet that are surfaces have edges: give half_lengths=(x, y), half of a sole's"
                " length and width in metres"
            )
        self.half_lengths = (
            None if half_lengths is None else numbers("half_lengths", half_lengths, (2,))
        )
        self.hands = {
            h: numbers(f"the offset of hand {h!r}", o, (3,)) for h, o in _offsets(hands).items()
        }
        for hand in self.hands:
            robot.model.frame(hand)
        self.steps, self.dt = whole_steps(steps), seconds(dt)
        self.weights = weights_of(weights, BalanceWeights)
        self.limits = Limits(torque=True) if limits is None else limits
        self.speed = float(numbers("speed", speed, ()))
        if not self.speed > 0:
            raise InputError(f"speed is a positive number of m/s, not {speed!r}")
        self._wanted: dict[str, np.ndarray] = {}
        self.shift = (0.0, 0.0)
        self.reset()

    @property
    def shift(self) -> np.ndarray:
        """Of the centre of mass from the middle of the feet: forward and to the left, in metres."""
        return self._shift.copy()

    @shift.setter
    def shift(self, value: Any) -> None:
        self._shift = numbers("a shift (forward, left)", value, (2,)).copy()

    def reach(self, hand: str, point: ArrayLike) -> None:
        """The hand goes to a point (3,) of the world; None lets go of it."""
        if hand not in self.hands:
            raise unknown_name("hand", hand, self.hands)
        if point is None:
            self._wanted.pop(hand, None)
        else:
            self._wanted[hand] = numbers(f"where {hand!r} reaches", point, (3,)).copy()

    def reset(self) -> None:
        """Forgets how far wishes are fulfilled, not the wishes."""
        self._last = math.nan
        self._moved = np.zeros(2)
        self._at: dict[str, np.ndarray] = {}

    # --- the problem ------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """Of `steps` knots `dt` apart, with all feet and all costs; `steer` writes their
        numbers.
        """
        w, h = self.weights, self.dt
        state, mass = w.state(self.robot.nv), np.array([w.center, w.center, 0.0])
        held = self.stance.contacts(h)
        costs: list[Any] = [
            State(self.stance.x, weight=h * state, final=h * w.last * state),
            Effort(h * w.effort),
        ]
        costs.append(
            CenterOfMass(self._middle(self.stance.x), weight=h * mass, final=h * w.last * mass)
        )
        costs += [
            Reach(
                hand,
                self._hand(self.stance.x, hand),
                offset=offset,
                weight=h * w.hand,
                final=h * w.hand,
            )
            for hand, offset in self.hands.items()
        ]
        costs += [FrictionCone(f, h * w.cone) for f in held]
        costs += force_costs(held, w, h, self.half_lengths)
        return Problem(
            self.robot,
            self.stance.x,
            phases=[Phase(self.steps, held, costs, dt=h)],
            limits=self.limits,
        )

    # --- before each plan -------------------------------------------------------------------------

    def steer(self, problem: Problem, begin: float) -> None:
        """Writes targets and weights of a horizon from `begin` on, for a robot that is at
        `problem.start` then.
        """
        system = problem.system
        if not isinstance(system, RobotSystem) or system.held is None:
            raise InputError(
                "a Balancer steers its own problem: rg.MPC(balancer.problem(), …, target=balancer)"
            )
        check_own_costs(problem, (State, Effort, CenterOfMass), self.hands, "Balancer")
        if begin < self._last - 1e-9:
            self.reset()
        if self.stance.has_fallen(problem.start, self.stance.ground):
            self.reset()
            raise FallenError("the robot has fallen: its joints are held until it is up again")
        passed = min(begin - self._last, 0.1) if self._last == self._last else 0.0
        self._last = begin
        x, p, slices = problem.start, problem.p, problem.programs.slices
        ahead = problem.times[:, None] * self.speed
        self._moved = _towards(self._moved, self._shift, _SWAYS * passed)
        moved = _towards(self._moved, self._shift, _SWAYS * problem.times[:, None])
        p[:, slices[_REACH - 1]["target"]] = self._middle(x, moved)
        for k, hand in enumerate(self.hands):
            part = slices[_REACH + k]
            wanted = self._wanted.get(hand)
            p[:, part["weight"]] = 0.0 if wanted is None else self.dt * self.weights.hand
            if wanted is None:
                self._at.pop(hand, None)
                continue
            now = self._hand(x, hand)
            at = _towards(self._at.get(hand, now), wanted, self.speed * passed)
            # it pulls no harder than that, wherever the wish is
            self._at[hand] = at = _towards(now, at, _AHEAD)
            p[:, part["target"]] = _towards(at, wanted, np.minimum(ahead, _AHEAD))

    def has_fallen(self, x: np.ndarray) -> bool:
        """Whether the trunk lies on its side, or nearer to its feet than half of how it stands."""
        return self.stance.has_fallen(x, self.stance.ground)

    def _middle(self, x: np.ndarray, shift: Any = (0.0, 0.0)) -> np.ndarray:
        """The middle of the feet, shifted; its height is not wanted."""
        shift = np.asarray(shift, dtype=float)
        away = (
            np.concatenate([shift, np.zeros((*shift.shape[:-1], 1))], axis=-1)
            @ turn(heading(x[3:7])).T
        )
        centre: np.ndarray = self.stance.feet_of(x).mean(axis=0) + away
        return centre

    def _hand(self, x: np.ndarray, hand: str) -> np.ndarray:
        """Where a hand is, (3,)."""
        T = self.robot.forward_kinematics(x[: self.robot.nq])[hand]
        point: np.ndarray = T[:3, 3] + T[:3, :3] @ self.hands[hand]
        return point


def _offsets(hands: Any) -> dict[str, Any]:
    if isinstance(hands, str):
        hands = (hands,)
    return dict(hands) if isinstance(hands, Mapping) else dict.fromkeys(hands, (0.0, 0.0, 0.0))


def _towards(at: np.ndarray, wanted: np.ndarray, most: Any) -> np.ndarray:
    """From a point on the way to another, by lengths (…, 1) or one."""
    way = wanted - at
    length = math.hypot(*way)
    nearer: np.ndarray = at + np.minimum(np.asarray(most) / max(length, 1e-12), 1.0) * way
    return nearer
