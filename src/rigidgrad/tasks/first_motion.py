"""Where a robot of which nothing else is known starts and goes: a posture in front of it, and a
point that it can reach from there and has to move for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.model.actuation import undriven
from rigidgrad.model.model import WORLD, Model
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.viewer.poses import body_poses, frame_path, posture

_BEND = (0.3, 0.6, -0.9)  # rad or m, away from the neutral position, which is often singular
_TURN = (0.5, -0.3, 0.3)  # from there to where the target is
_FLIGHT = (0.5, 0.3, 0.3)  # m, of what flies
_ALTITUDE, _SWAY = 1.0, 0.25  # m, of what flies
_POSTURES, _NEIGHBOURS = 1000, 500  # of an arm, that are compared
_WIDEST, _LONGEST = 2.0, 0.5  # rad and m either way of the neutral position that are tried
_AWAY = 0.7  # rad or m of each joint, from the start to the target
# of the reach: how far in front and how high the tip starts, and how far it goes
_OUT, _UP, _PART = (0.55, 0.4, 0.3)
_LEAST, _NOTHING = 0.12, 1e-3  # m that it goes, and that are no motion
_DURATIONS = (1.0, 2.0, 4.0)  # seconds
_OF_SPEED = 0.5  # part of their largest speed that joints may need in the mean
_OFF_AXIS = 0.05  # m


@dataclass(frozen=True)
class FirstMotion:
    """A position (nq,) to start from, and the target (3,) of a point of a frame; `sway` is half the
    width of a figure eight around the start in metres, 0 where the point cannot move every way.
    """

    start: np.ndarray
    frame: str
    offset: np.ndarray
    tip: np.ndarray  # where the point is at the start
    target: np.ndarray
    duration: float
    sway: float


def falling(system: RobotSystem) -> bool:
    """Whether a floating base is not driven."""
    return any(j.kind.flies for j in undriven(system.model, system.actuators))


def first_motion(system: RobotSystem, frame: str, *, beyond: bool = False) -> FirstMotion:
    """Of a frame's origin; `beyond`, or if the origin does not move: of a link whose origin is on
    its own hinge, of its centre of mass.
    """
    model = system.model
    resting = undriven(model, system.actuators)
    body = model.frames[frame].body
    joints = [model.joints[i] for i in (model.ancestors[body] if body != WORLD else ())]
    moving = sorted(
        {j.v + k for j in joints if not any(j.v == r.v for r in resting) for k in range(j.nv)}
    )
    if not moving:
        raise InputError(
            f"no motor moves frame {frame!r}; name another by frame=, the tool of {system.name!r}"
            f" is {tool_frame(model, base=not falling(system))!r}"
        )
    make = _Postures(
        system, frame, _beyond_joint(model, frame) if beyond else np.zeros(3), np.array(moving)
    )
    flies = any(j.kind.flies for j in joints) and not falling(system)
    motion = make.flight() if flies else make.spatial() or make.planar()
    if np.linalg.norm(motion.target - motion.tip) > _NOTHING:
        return motion
    if not beyond:
        return first_motion(system, frame, beyond=True)
    raise InputError(
        f"within the joints' limits no motor moves frame {frame!r} by a millimetre; correct the"
        " limits, or name another frame by frame="
    )


def _beyond_joint(model: Model, frame: str) -> np.ndarray:
    """A point of a frame (3,): its origin, or where that is on the link's own hinge, which does not
    move it, the centre of mass.
    """
    found = model.frames[frame]
    joint, (mass, moment, _) = model.joints[found.body], model.inertias[found.body]
    if not joint.kind.is_hinge or np.any(found.placement.p) or mass <= 0:
        return np.zeros(3)
    center = np.array(moment) / mass
    if np.linalg.norm(np.cross(joint.axis, center)) < _OFF_AXIS:
        return np.zeros(3)
    point: np.ndarray = np.array(found.placement.R).T @ center
    return point


class _Postures:
    """Positions of a robot, and where a point of it is then; `moving` are the velocities that move
    the point and are driven.
    """

    def __init__(self, system: RobotSystem, frame: str, offset: np.ndarray, moving: np.ndarray):
        self.system, self.robot, self.model = system, system.robot, system.model
        self.frame, self.offset, self.moving = frame, offset, moving
        lower, upper = self.robot.limits.lower, self.robot.limits.upper
        inset = np.where(np.isfinite(upper - lower), 0.1 * (upper - lower), 0.0)
        self.lower, self.upper = lower + inset, upper - inset
        self.arm = [
            i
            for i in self.model.ancestors[self.model.frames[frame].body]
            if self.model.joints[i].v in moving
        ]  # the first last
        self.neutral = np.clip(posture(self.model), self.lower, self.upper)

    def tip(self, q: np.ndarray) -> np.ndarray:
        return frame_path(self.model, body_poses(self.model, q), self.frame, self.offset)

    def motion(self, start: np.ndarray, end: np.ndarray, sway: float) -> FirstMotion:
        """From one position to another, in a time that the velocity limits allow; longer where not
        every joint is driven.
        """
        speed = self.robot.limits.velocity[self.moving]
        way = np.abs(self.robot.difference(start, end))[self.moving]
        least = 1.0 if self.system.nu >= self.robot.nv or falling(self.system) else 2.0
        enough = [t for t in _DURATIONS if t >= least and np.all(way <= _OF_SPEED * t * speed)]
        return FirstMotion(
            start,
            self.frame,
            self.offset,
            self.tip(start),
            self.tip(end),
            min(enough, default=_DURATIONS[-1]),
            sway,
        )

    def flight(self) -> FirstMotion:
        """Of a floating base that is driven: level, at some height."""
        start = self.neutral.copy()
        base = next(j for j in self.model.joints if j.kind.flies)
        start[base.q + 2] += _ALTITUDE
        end = start.copy()
        end[base.q : base.q + 3] += _FLIGHT
        return self.motion(start, end, _SWAY)

    def planar(self) -> FirstMotion:
        """Of a point that moves in a plane or on a line."""
        start = self._moved(self.neutral, np.array(_BEND))
        tip = self.tip(start)
        for times in (1.0, 2.0, 3.0):
            end = self._moved(start, times * np.array(_TURN))
            if np.linalg.norm(self.tip(end) - tip) > _LEAST:
                break
        return self.motion(start, end, 0.0)

    def _moved(self, q: np.ndarray, by: np.ndarray) -> np.ndarray:
        """A position a bit away, within the limits."""
        step = np.zeros(self.robot.nv)
        step[self.moving] = np.resize(by, len(self.moving))
        for joint in self.model.joints:
            if (
                joint.nq == 1
                and not self.lower[joint.q] <= q[joint.q] + step[joint.v] <= self.upper[joint.q]
            ):
                step[joint.v] *= -1.0  # the other way is free, or less bad
        inside: np.ndarray = np.clip(self.robot.integrate(q, step), self.lower, self.upper)
        return inside

    # --- a point that moves every way -------------------------------------------------------------

    def spatial(self) -> FirstMotion | None:
        """In front of the robot, above the plane that it stands on, away from singular positions
        and limits; None where the point cannot move every way.
        """
        random = np.random.default_rng(0)
        q = self._near(
            self.neutral, random.uniform(-1.0, 1.0, (_POSTURES, len(self.moving))) * self._range()
        )
        if len(self.moving) < 3 or np.median(self._roundness(q)) < 0.02:
            return None
        shoulder = body_poses(self.model, self.neutral)[self.arm[-1], :3, 3]
        tips = self.tip(q)
        reach = float(np.percentile(np.linalg.norm(tips - shoulder, axis=1), 98))
        # arms and legs that hang from a trunk do not
        stands = not falling(self.system) and float(np.mean(tips[:, 2] > 0)) > 0.45
        start = q[np.argmin(self._penalty(q, shoulder, reach, stands))]
        tip = self.tip(start)
        wanted = max(_PART * reach, _LEAST)
        for duration in _DURATIONS:
            step = np.minimum(_AWAY, _OF_SPEED * duration * self.robot.limits.velocity[self.moving])
            near = self._near(
                start, random.uniform(-1.0, 1.0, (_NEIGHBOURS, len(self.moving))) * step
            )
            way = np.linalg.norm(self.tip(near) - tip, axis=1)
            if np.mean(way > 0.8 * wanted) > 0.02:
                break
        penalty = (
            self._penalty(near, shoulder, reach, stands) + 20.0 * ((way - wanted) / reach) ** 2
        )
        end = near[
            np.argmin(
                np.where(way > 0.8 * wanted, penalty, np.inf)
                if np.any(way > 0.8 * wanted)
                else -way
            )
        ]
        return self.motion(start, end, 0.1 * float(np.linalg.norm(tip - shoulder)))

    def _range(self) -> np.ndarray:
        """How far each moving joint may go either way."""
        result = np.full(self.robot.nv, _LONGEST)
        for joint in self.model.joints:
            if joint.kind.is_hinge:
                result[joint.v] = _WIDEST
        ranges: np.ndarray = result[self.moving]
        return ranges

    def _near(self, q: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Positions (n, nq) that differ by steps (n, moving), those beyond limits put back between
        them.
        """
        step = np.zeros((len(by), self.robot.nv))
        step[:, self.moving] = by
        moved = self.robot.integrate(np.tile(q, (len(by), 1)), step)
        for joint in self.model.joints:
            if joint.nq == 1:  # reflected, since what is clipped is at the limit
                low, high = self.lower[joint.q], self.upper[joint.q]
                value = moved[:, joint.q]
                value = np.where(value < low, 2 * low - value, value)
                moved[:, joint.q] = np.where(value > high, 2 * high - value, value)
        inside: np.ndarray = np.clip(moved, self.lower, self.upper)
        return inside

    def _roundness(self, q: np.ndarray) -> np.ndarray:
        """The least speed of the point that unit speeds of the joints bring, as a part of the
        largest (n,): 0 where the position is singular.
        """
        J = self.robot.jacobian(q, self.frame)
        arm = (
            body_poses(self.model, q)[:, self.model.frames[self.frame].body, :3, :3]
            @ np.array(self.model.frames[self.frame].placement.R)
        ) @ self.offset
        rows = J[:, :3] - np.cross(arm[:, None, :], J[:, 3:].swapaxes(1, 2)).swapaxes(1, 2)
        stretch = np.linalg.svd(rows[:, :, self.moving], compute_uv=False)
        return (
            stretch[:, -1] / np.maximum(stretch[:, 0], 1e-12)
            if stretch.shape[1] == 3
            else np.zeros(len(q))
        )

    def _penalty(
        self, q: np.ndarray, shoulder: np.ndarray, reach: float, stands: bool
    ) -> np.ndarray:
        """What a user would not expect (n,): a tip far out, close in or behind; low; links below
        the plane; singular, far from neutral, or too heavy to hold.
        """
        poses = body_poses(self.model, q)
        tip = frame_path(self.model, poses, self.frame, self.offset)
        x, y, _ = ((tip - shoulder) / reach).T
        result: np.ndarray = 4.0 * (np.hypot(x, y) - _OUT) ** 2 + 0.5 * np.arctan2(y, x) ** 2
        if stands:
            lowest = (
                np.minimum(poses[:, self.arm, 2, 3].min(axis=1), tip[:, 2] - 0.15 * reach) / reach
            )
            result += 50.0 * np.minimum(lowest, 0.0) ** 2 + (tip[:, 2] / reach - _UP) ** 2
        result += 10.0 * np.maximum(0.2 - self._roundness(q), 0.0) ** 2
        away = self.robot.difference(np.tile(self.neutral, (len(q), 1)), q)[:, self.moving]
        result += 0.1 * np.mean(away**2, axis=1)
        for joint in self.model.joints:
            if (
                joint.nq == 1
                and joint.v in self.moving
                and np.isfinite(self.upper[joint.q] - self.lower[joint.q])
            ):
                low, high = self.lower[joint.q], self.upper[joint.q]
                # near a limit
                result += 0.1 * ((2 * q[:, joint.q] - low - high) / max(high - low, 1e-9)) ** 4
        effort = self.robot.limits.effort[self.moving]
        if not falling(self.system) and np.any(effort > 0):
            load = (
                np.abs(self.robot.gravity_torque(q))[:, self.moving][:, effort > 0]
                / effort[effort > 0]
            )
            result += 10.0 * np.maximum(load.max(axis=1) - 0.6, 0.0) ** 2
        return result
