"""A gait that goes on, as the target of `rg.MPC`: before each plan it says which feet stand at each
knot, where the others go, and how the trunk moves, for the velocity that is commanded now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rigidgrad.control.costs import (
    Effort,
    Reach,
    State,
)
from rigidgrad.control.limits import Limits
from rigidgrad.control.numeric_input import numbers
from rigidgrad.control.options import check_number
from rigidgrad.control.phases import Phase, seconds, whole_steps
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import FallenError, InputError, unknown_name
from rigidgrad.gaits.footholds import foothold, swing_curve
from rigidgrad.gaits.grip import ALLOWED, Grip
from rigidgrad.gaits.own_costs import check_own_costs, force_costs
from rigidgrad.gaits.rhythm import QUADRUPEDS, Rhythm, groups_of
from rigidgrad.gaits.stance import Stance, heading, turn
from rigidgrad.gaits.weights import Weights, weights_of
from rigidgrad.model.contacts import Contact
from rigidgrad.model.model import Limits as JointLimits
from rigidgrad.robot import Robot

_LATE = 2  # steps that a foot which finds no ground goes on looking for it
_MISSING = 0.2  # m/s that are asked for besides at most
_DOWN = 0.01  # metres that it goes down meanwhile, in each


class Walker:
    """Walks as commanded: `command = (forward, sideways, turning)` in m/s, m/s and rad/s, which may
    be set at any time.

    `feet`: one `rg.Contact` for each; `start`: the posture to walk from, q or x. `gait` is "trot",
    "walk", "pace", "bound" or "stand". `terrain(x, y)` gives the height of the ground where feet
    are to land. Where feet are known to touch, set `touching`, (feet,) before each step, or a
    function that gives it when a plan is made, such as `lambda: plant.touching`: a foot that lands
    early stands from then on, one that is late is brought down further. A robot whose trunk
    lies on its side or near the ground has fallen: controllers hold its joints, and count it, until
    it is up again. With `rests=True` it stands still while nothing is commanded. Commands are
    reached by `acceleration`, m/s² and rad/s²; `integral`, 1/s, is the rate at which a lasting
    error of the speed is added to the command. A biped walks with gait="walk" on soles: contacts
    with kind="surface", of which `half_lengths` (x, y) are half of the length and width in metres,
    and `rg.gaits.BipedWeights`. Feet begin and cease to swing at the far end of the horizon, so
    that plans see it coming. Plans keep forces in cones that are narrower than those of `feet` by
    the part `margin`, so that what costs give way does not leave the true ones (`accepts`): a tenth
    for point feet, nothing for soles, on which a biped needs all of its friction for balance.
    `problem()` is what `rg.MPC(problem, …, target=walker)` solves. Feet swing for `swing` seconds
    and `step_height` metres high, with `support` seconds between, in which all stand. The horizon
    has `steps` of `dt` seconds; `weights` and `limits` are those of its problem.
    """

    def __init__(
        self,
        robot: Robot,
        feet: Iterable[Contact],
        start: ArrayLike,
        *,
        gait: str = "trot",
        swing: float = 0.25,
        support: float = 0.05,
        step_height: float = 0.08,
        steps: int = 25,
        dt: float = 0.02,
        weights: Weights | None = None,
        limits: Limits | JointLimits | None = None,
        terrain: Callable[[Any, Any], Any] | None = None,
        rests: bool = True,
        acceleration: float = 1.0,
        half_lengths: ArrayLike | None = None,
        integral: float = 0.0,
        margin: float | None = None,
    ):
        self.stance = Stance(robot, feet, start)
        self.robot, self.feet = robot, self.stance.feet
        if gait not in QUADRUPEDS:
            raise unknown_name("gait", gait, QUADRUPEDS)
        self._rotations = self.stance.rotations_of(self.stance.x)
        self.rhythm = Rhythm(groups_of(gait, self.stance.places[:, :2]), swing, support)
        if half_lengths is None and any(f.kind == "surface" for f in self.feet):
            raise InputError(
                "feet that are surfaces have edges: give half_lengths=(x, y), half of a sole's"
                " length and width in metres"
            )
        self.half_lengths = (
            None if half_lengths is None else numbers("half_lengths", half_lengths, (2,))
        )
        check_number("step_height", step_height)
        check_number("acceleration", acceleration, positive=True)
        check_number("integral", integral)
        margin = (0.1 if half_lengths is None else 0.0) if margin is None else margin
        check_number("margin", margin)
        if margin >= 1.0:
            raise InputError(f"margin is a part of the friction, less than 1, not {margin!r}")
        self.grip = Grip(robot, self.feet, float(margin))
        self.step_height, self.acceleration, self.integral = (
            float(step_height),
            float(acceleration),
            float(integral),
        )
        self.steps, self.dt = whole_steps(steps), seconds(dt)
        self.weights = weights_of(weights, Weights)
        self.limits = Limits(torque=True) if limits is None else limits
        if terrain is not None and not callable(terrain):
            raise InputError(
                "terrain is a function of x and y that gives the height of the ground, not"
                f" {type(terrain).__name__}"
            )
        self.terrain, self.rests = terrain, rests
        self.command = (0.0, 0.0, 0.0)
        # which feet touch the ground now (feet,), where that is measured, or what gives it
        self.touching: Any = None
        self.reset()

    @property
    def command(self) -> np.ndarray:
        """Forward and sideways, m/s, and turning, rad/s."""
        return self._command

    @command.setter
    def command(self, value: Any) -> None:
        self._command = numbers("a command (forward, sideways, turning)", value, (3,)).copy()

    @property
    def moving(self) -> np.ndarray:
        """The part of the command that is reached by now."""
        return self._moving.copy()

    def reset(self) -> None:
        """Stands, and forgets where feet lifted off."""
        self._began: float | None = None  # when the first cycle begins; None while standing
        self._ends = math.inf  # when the last one ends
        # m/s added to the trunk's command, forward and to the left
        self._missing = np.zeros(2)
        self._moving = np.zeros(3)  # the command, reached as fast as `acceleration` allows
        self._lifted: dict[
            int, tuple[float, np.ndarray]
        ] = {}  # of feet in the air: when and where they left the ground
        self._heading: float | None = None
        self._last = math.nan

    # --- the problem ------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """Of `steps` knots `dt` apart, with all feet and all costs; `steer` writes their
        numbers.
        """
        w, h = self.weights, self.dt
        state = w.state(self.robot.nv)
        held = self.stance.contacts(h)
        places = self.stance.feet_of(self.stance.x)
        poses = np.tile(np.eye(4), (len(held), 1, 1))
        poses[:, :3, :3], poses[:, :3, 3] = self.stance.rotations_of(self.stance.x), places
        targets = [
            pose if f.kind == "surface" else pose[:3, 3]
            for f, pose in zip(held, poses, strict=True)
        ]
        costs: list[Any] = [
            State(self.stance.x, weight=h * state, final=h * w.last * state),
            Effort(h * w.effort),
        ]
        costs += [
            Reach(f.frame, p, offset=f.offset, weight=h * w.foot)
            for f, p in zip(held, targets, strict=True)
        ]
        costs += [self.grip.cost(f, h * w.cone) for f in held]
        costs += force_costs(held, w, h, self.half_lengths)
        return Problem(
            self.robot,
            self.stance.x,
            phases=[Phase(self.steps, held, costs, dt=h)],
            limits=self.limits,
        )

    # --- before each plan -------------------------------------------------------------------------

    def steer(self, problem: Problem, begin: float) -> None:
        """Writes contacts, targets and weights of a horizon from `begin` on, for a robot that is at
        `problem.start` then.
        """
        system = problem.system
        if (
            not isinstance(system, RobotSystem)
            or system.held is None
            or len(system.held.constraints) != len(self.feet)
        ):
            raise InputError(
                "a Walker steers its own problem: rg.MPC(walker.problem(), …, target=walker)"
            )
        check_own_costs(problem, (State, Effort), (f.frame for f in self.feet), "Walker")
        if begin < self._last - 1e-9:
            self.reset()
        if self.has_fallen(problem.start):
            self.reset()
            raise FallenError("the robot has fallen: its joints are held until it is up again")
        passed = begin - self._last if self._last == self._last else 0.0
        self._last = begin
        most = self.acceleration * min(passed, 0.1)
        self._moving = self._moving + np.clip(self._command - self._moving, -most, most)
        x, times = problem.start, begin + problem.times
        self._integrate(x, min(passed, 0.1))
        now = self.stance.feet_of(x)
        since = self._since(begin, times)
        trunk = self._trunk(x, times - begin)
        slices, inputs = problem.programs.slices, problem.programs.inputs
        p, feet = problem.p, len(self.feet)
        p[:, slices[0]["target"]] = trunk
        contacts = p[:, inputs][:, system.contact_numbers]
        middle = since + 0.5 * np.append(problem.h, problem.h[-1])
        landed = self._landed(since[0])
        for k in range(feet):
            airborne, lifts = self._airborne(k, since)
            off = self._airborne(k, middle)[0]
            early = landed[k]
            # this swing is over; or it is late, and the next knots go on with it
            if early is not None:
                airborne, off = self._corrected(early, airborne, off)
            contacts[:, k] = ~off
            part = slices[2 + k]
            p[:, part["weight"]] = np.where(airborne, self.dt * self.weights.foot, 0.0)[:, None]
            place = slice(part["target"].start, part["target"].start + 3)
            p[:, place] = now[k]
            if self.feet[k].kind == "surface":  # soles stay level, and turn with the trunk
                angles = 2.0 * np.arctan2(trunk[:, 5], trunk[:, 6]) - self.stance.yaw
                level = np.array([turn(a) @ self._rotations[k] for a in angles])
                p[:, place.stop : part["target"].stop] = level.reshape(len(level), 9)
            if airborne.any():
                p[airborne, place] = self._swing(k, now[k], x, trunk, since, airborne, lifts)
            if early is False:  # nothing there yet: down by so much in each step
                p[: _LATE + 1, part["target"].start + 2] = now[k][2] - _DOWN * np.arange(
                    1, _LATE + 2
                )
            if not airborne[0]:
                self._lifted.pop(k, None)

    def accepts(self, problem: Problem, x: np.ndarray, u: np.ndarray) -> bool:
        """Whether a plan's forces keep to the friction cones of all feet, within 1e-3 of the normal
        force. Controllers improve a plan further that is not accepted, and count it if that does
        not help.
        """
        return self.grip.outside(problem, x, u) <= ALLOWED

    def has_fallen(self, x: np.ndarray) -> bool:
        """Whether the trunk lies on its side, or nearer to its feet than half of how it stands."""
        return self.stance.has_fallen(x, float(self._ground(x[0], x[1])))

    def _landed(self, now: float) -> list[bool | None]:
        """Of each foot: True where it touches before its swing is over, False where it should and
        does not, else None.
        """
        given = self.touching() if callable(self.touching) else self.touching
        if given is None or self._began is None:
            return [None] * len(self.feet)
        found: list[bool | None] = []
        for k, touches in enumerate(np.broadcast_to(np.asarray(given, dtype=bool), len(self.feet))):
            (airborne,), (lift,) = self._airborne(k, np.array([now]))
            first = self.rhythm.lift_off(k)
            # the present or the last swing began
            since = now - (lift if airborne else lift - self.rhythm.cycle)
            if airborne and touches and since > 0.5 * self.rhythm.swing:
                found.append(True)
            elif (
                not airborne
                and not touches
                and first is not None
                and 0.0 <= since - self.rhythm.swing < _LATE * self.dt
                and now >= first
            ):
                found.append(False)
            else:
                found.append(None)
        return found

    @staticmethod
    def _corrected(
        early: bool, airborne: np.ndarray, off: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        airborne, off = airborne.copy(), off.copy()
        if early:
            airborne[: int(np.argmin(airborne)) if not airborne.all() else None] = False
            off[: int(np.argmin(off)) if not off.all() else None] = False
        else:
            airborne[: _LATE + 1], off[:_LATE] = True, True
        return airborne, off

    def _airborne(self, k: int, since: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At times since the gait began: whether foot k is in the air, and when that swing
        began.
        """
        if self._began is None:
            return np.zeros(len(since), bool), np.full(len(since), np.inf)
        airborne, lifts = self.rhythm.swing_of(k, since)
        return (
            airborne
            & (lifts >= 0.0)
            & (lifts + self.rhythm.swing <= self._ends - self._began + 1e-6),
            lifts,
        )

    def _since(self, begin: float, times: np.ndarray) -> np.ndarray:
        """Times since the gait began, which it does with a command; it ends with a cycle after the
        last. Both happen where the horizon ends.
        """
        wanted = (
            bool(np.abs(self._command).max() > 1e-6 or np.abs(self._moving).max() > 1e-6)
            or not self.rests
        )
        cycle, end = self.rhythm.cycle, float(times[-1])
        if not cycle:
            return times - begin
        if self._began is None and wanted:
            self._began, self._ends = end - self.rhythm.support, math.inf
        elif self._began is not None:
            if wanted and begin < self._ends < math.inf:
                self._ends = math.inf if self._ends > end else self._ends
            elif not wanted and self._ends == math.inf:
                self._ends = self._began + cycle * max(math.ceil((end - self._began) / cycle), 0)
            if begin >= self._ends:
                self._began = None
                self._lifted.clear()
        return times - (begin if self._began is None else self._began)

    def _integrate(self, x: np.ndarray, passed: float) -> None:
        """What speed lasts to be missing is asked for besides, while it walks."""
        if self._began is None:
            self._missing[:] = 0.0
        elif self.integral:
            speed = turn(heading(x[3:7])).T @ _rotate(x[3:7], x[self.robot.nq : self.robot.nq + 3])
            self._missing += self.integral * passed * (self._moving - speed)[:2]
            np.clip(self._missing, -_MISSING, _MISSING, out=self._missing)

    def _trunk(self, x: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """States (knots, nx): the trunk moves as commanded from where it is, over the ground, with
        the joints as in the stance.
        """
        yaw = heading(x[3:7])
        forward, sideways, turning = self._moving + [*self._missing, 0.0]
        if self._heading is None:
            self._heading = yaw
        # the heading is commanded, but never far from where the robot is
        self._heading = yaw + float(
            np.clip(math.remainder(self._heading - yaw, 2.0 * math.pi), -0.2, 0.2)
        )
        angles = self._heading + turning * ahead
        self._heading += turning * (ahead[1] if len(ahead) > 1 else 0.0)
        rows = np.tile(self.stance.x, (len(ahead), 1))
        nq = self.robot.nq
        speed = np.stack(
            [
                np.cos(angles) * forward - np.sin(angles) * sideways,
                np.sin(angles) * forward + np.cos(angles) * sideways,
            ],
            axis=1,
        )
        steps = np.diff(ahead, prepend=0.0)[:, None] * speed
        rows[:, :2] = x[:2] + np.cumsum(steps, axis=0)
        rows[:, 2] = self.stance.height + self._ground(rows[:, 0], rows[:, 1])
        rows[:, 3:7] = 0.0
        rows[:, 5], rows[:, 6] = np.sin(0.5 * angles), np.cos(0.5 * angles)
        rows[:, nq], rows[:, nq + 1], rows[:, nq + 5] = forward, sideways, turning
        return rows

    def _ground(self, x: Any, y: Any) -> Any:
        if self.terrain is None:
            return self.stance.ground * np.ones_like(np.asarray(x, dtype=float))
        return numbers("the height of the terrain", self.terrain(x, y), np.shape(x))

    def _swing(
        self,
        k: int,
        now: np.ndarray,
        x: np.ndarray,
        trunk: np.ndarray,
        since: np.ndarray,
        airborne: np.ndarray,
        lifts: np.ndarray,
    ) -> np.ndarray:
        """Where foot k is to be at the knots at which it is in the air, (knots, 3)."""
        rows = np.empty((int(airborne.sum()), 3))
        t, lift = since[airborne], lifts[airborne]
        swing = self.rhythm.swing
        for began in np.unique(lift):
            own = lift == began
            flying = began <= since[0] + 1e-9
            if flying:
                known = self._lifted.get(k)
                if known is None or abs(known[0] - began) > 1e-6:
                    self._lifted[k] = known = (began, now.copy())
                origin = known[1]
            else:
                origin = now
                if k in self._lifted and self._lifted[k][0] < began:
                    origin = self._landing(k, x, trunk, since, self._lifted[k][0] + swing)
            landing = self._landing(k, x, trunk, since, began + swing)
            rows[own] = swing_curve(origin, landing, (t[own] - began) / swing, self.step_height)
        return rows

    def _landing(
        self, k: int, x: np.ndarray, trunk: np.ndarray, since: np.ndarray, t: float
    ) -> np.ndarray:
        """Under the hip at the middle of the stance that begins at a time; shifted by how much
        faster the trunk is than commanded (Raibert).
        """
        knot = int(np.clip(np.searchsorted(since, t - 1e-9), 0, len(since) - 1))
        at = trunk[knot]
        yaw = 2.0 * math.atan2(at[5], at[6])
        beyond = t - since[knot]  # the horizon may end before
        world = turn(yaw)
        wanted = world @ np.array([self._moving[0], self._moving[1], 0.0])
        half = 0.5 * self.rhythm.stance
        excess = _rotate(x[3:7], x[self.robot.nq : self.robot.nq + 3]) - wanted
        height = max(self.stance.height, 1e-3)
        middle = at[:3] + (beyond + half) * wanted + 0.5 * math.sqrt(height / 9.81) * excess
        place = foothold(self.stance.places[k], middle, yaw + half * self._moving[2])
        place[2] = float(self._ground(place[0], place[1]))
        return place


def _rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A vector turned by a quaternion (x, y, z, w)."""
    axis = q[:3]
    cross = 2.0 * np.cross(axis, v)
    turned: np.ndarray = v + q[3] * cross + np.cross(axis, cross)
    return turned
