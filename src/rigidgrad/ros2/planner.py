"""What the node does, without ROS: states by joint names in, controls out, targets, and trouble.

`rigidgrad.ros2.node` connects it to topics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigidgrad.control.mpc import MPC
from rigidgrad.control.mpc.target import aim_of
from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.robot import Robot, load
from rigidgrad.tasks import Task

OK, WARN, ERROR = 0, 1, 2  # as diagnostic_msgs has them
_OLD = 0.2  # s: older states are not used
# of rigidgrad's counts, those that mean that the robot is not controlled as planned
_GRAVE = ("held", "fallen", "violated")


@dataclass
class Finding:
    """A state of diagnostics: level, message, and values by name."""

    name: str
    level: int
    message: str
    values: dict[str, str] = field(default_factory=dict)


def check_robot(robot: Robot, system: Any) -> None:
    """Hardware has one interface per joint: each joint has one freedom, and is driven."""
    if robot.nq != robot.nv or len(robot.joints) != robot.nv:
        raise InputError(
            "ROS control has joints of one freedom each: lock the base or the joints that have"
            f" more ({robot.name} has {len(robot.joints)} joints, {robot.nv} freedoms)"
        )
    if system.nu != robot.nv or system.nx != 2 * robot.nv:
        raise InputError(
            f"the plug-in drives every joint by its effort; this task drives {system.driven}"
        )


class Planner:
    """The controller of a task, fed by messages.

    States come as in JointState: names in any order, positions and velocities; a joint that is not
    there is an error in the diagnostics, and the state is not used. Nothing that a message contains
    raises.
    """

    def __init__(self, task: Task, *, frames: Sequence[str] = ("", "world")):
        check_robot(task.robot, task.system)
        self.robot: Robot = task.robot
        self.joints = tuple(self.robot.joints)
        self.mpc: MPC = task.controller()
        self.period = float(task.mpc["period"])
        root = self.robot.frames[0] if self.robot.frames else ""
        self.frames = {*frames, root}
        self.states = self.refused = self.late = self.targets = self.wrong_targets = 0
        self.trouble = ""
        self._reported: dict[str, int] = {}

    def state(
        self, names: Sequence[str], positions: Sequence[float], velocities: Sequence[float]
    ) -> np.ndarray | None:
        """[q, v] in the model's order, or None with `trouble` told."""
        places = {name: k for k, name in enumerate(names)}
        absent = [joint for joint in self.joints if joint not in places]
        if absent:
            return self._refused(f"a state without {', '.join(absent)}")
        if len(positions) != len(names) or len(velocities) != len(names):
            return self._refused(
                "a state whose positions or velocities are not as many as its names"
            )
        order = [places[joint] for joint in self.joints]
        x = np.array([*(positions[k] for k in order), *(velocities[k] for k in order)], float)
        if not np.isfinite(x).all():
            return self._refused("a state with numbers that are none")
        self.states += 1
        return x

    def control(self, x: np.ndarray | None, now: float, measured_at: float | None = None) -> Any:
        """The efforts for now, s; None as a state counts as missing."""
        if measured_at is not None and not (0.0 <= now - measured_at <= _OLD):
            self.late += 1
            x = None
        return self.mpc.step(x, now, measured_at if x is not None else None)

    def plan(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The newest plan as a trajectory: times from its start, positions, velocities, efforts."""
        plan = self.mpc.plan
        n = self.robot.nv
        x, u = np.asarray(plan.x), np.asarray(plan.u)
        efforts = np.concatenate([u, u[-1:]])
        return plan.dt * np.arange(len(x)), x[:, :n], x[:, n:], efforts

    def aim(self, frame: str, position: Sequence[float], orientation: Sequence[float]) -> bool:
        """A target as in PoseStamped: metres, and a quaternion [x, y, z, w]; whether it is used.

        Only the robot's own base and the world are known: nothing transforms others.
        """
        try:
            if frame.lstrip("/") not in self.frames:
                raise unknown_name("frame of targets", frame, self.frames)
            self.mpc.target = self._target(position, orientation)
        except RigidgradError as error:
            self.wrong_targets += 1
            self.trouble = f"a target was refused: {error}"
            return False
        self.targets += 1
        return True

    def _target(self, position: Sequence[float], orientation: Sequence[float]) -> np.ndarray:
        point, quaternion = np.array(position, float), np.array(orientation, float)
        if not np.isfinite(point).all():
            raise InputError("its position has numbers that are none")
        cost = aim_of(self.mpc.problem).cost
        if not getattr(cost, "pose", False):
            return point
        length = float(np.linalg.norm(quaternion))
        if not math.isfinite(length) or abs(length - 1.0) > 1e-2:
            raise InputError(f"its quaternion has length {length:.3g}, not 1")
        x, y, z, w = quaternion / length
        pose = np.eye(4)
        pose[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        pose[:3, 3] = point
        return pose

    def described(self, urdf: str) -> str:
        """Compares a robot_description with the robot of the task; what differs, or ""."""
        try:
            other = load(urdf, strict=False)
            absent = set(self.joints) - set(other.joints)
            if absent:
                return f"robot_description has no joint {', '.join(sorted(absent))}"
            if other.nv == self.robot.nv:
                drawn = self.robot.random(batch=(4,), seed=0)
                order = [other.joints.index(joint) for joint in self.joints]
                q = np.empty_like(drawn.q)
                q[:, order] = drawn.q
                masses = other.crba(q)[:, order][:, :, order]
                if not np.allclose(masses, self.robot.crba(drawn.q), rtol=1e-6, atol=1e-9):
                    return "robot_description has other masses or lengths than the task's robot"
        except (RigidgradError, ValueError) as error:
            return f"robot_description cannot be read: {error}"
        return ""

    def diagnostics(self, description: str = "", missed: int = 0) -> list[Finding]:
        """What happened since the last call, and in all."""
        counts = dict(self.mpc.counts) | {
            "states refused": self.refused,
            "states too old": self.late,
            "targets refused": self.wrong_targets,
            "deadlines missed": missed,
        }
        new = {k: v - self._reported.get(k, 0) for k, v in counts.items()}
        self._reported = counts
        happened = [f"{name} {count}" for name, count in new.items() if count > 0]
        level, message = OK, "plans"
        if not self.states:
            level, message = WARN, "no state has come yet"
        elif happened:
            grave = any(new.get(name, 0) > 0 for name in _GRAVE)
            level, message = (ERROR if grave else WARN), ", ".join(happened)
        if description:
            level, message = ERROR, description
        values = {name: str(count) for name, count in counts.items()}
        values |= {"states": str(self.states), "targets": str(self.targets)}
        if self.mpc.seconds.get("solve") is not None:
            values["last plan took, ms"] = f"{1e3 * self.mpc.seconds['solve']:.3f}"
        if self.trouble or self.mpc.trouble:
            values["trouble"] = self.trouble or self.mpc.trouble
        return [Finding("rigidgrad: planner", level, message, values)]

    def _refused(self, trouble: str) -> np.ndarray | None:
        self.refused += 1
        self.trouble = trouble
        return None
