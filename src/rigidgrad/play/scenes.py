"""What there is to play with: for each robot, what follows the target, how it is controlled, and
what troubles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigidgrad.control.costs import Cost, Effort, Reach, State
from rigidgrad.control.limits import Limits
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.model.model import WORLD
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.play.balancing import balancing
from rigidgrad.play.walking import PUBLISHED, walking
from rigidgrad.robot import Robot, load
from rigidgrad.viewer.poses import body_poses, frame_path, posture

NAMES = ("iiwa14", "cartpole", "quadrotor", "hyq_held")


@dataclass(frozen=True)
class Weights:
    """Of being at the target, of moving (and of leaving the posture), of control."""

    target: float
    motion: float
    effort: float


@dataclass(frozen=True)
class Scene:
    """A robot, the point of it that follows a target (3,), and the problem that makes it do so.

    `costs(weights)` makes the costs; `goal(targets, x)` what their first aims at, for targets (…,
    3), when the state is x. `sway` are the amplitudes (2, 3) of the figure eight: of a wave with
    its period and of one twice as fast.
    """

    robot: Robot
    system: RobotSystem
    start: np.ndarray
    frame: str
    home: np.ndarray
    weights: Weights
    costs: Callable[[Weights], list[Cost]]
    goal: Callable[[np.ndarray, np.ndarray], Any]
    knot: float  # seconds from knot to knot
    horizon: float  # seconds
    limits: Limits | None
    sway: np.ndarray
    sway_period: float
    push: tuple[float, float]  # newtons, seconds
    payload: float  # kg
    observer: bool
    hint: str
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    end: tuple[str, tuple[float, float, float]] | None = (
        None  # where the payload is fixed, and the frame that is pushed; None: where the point is
    )
    axes: tuple[bool, bool, bool] = (True, True, True)  # along which the target can be dragged
    space: np.ndarray = field(
        default_factory=lambda: np.array([[-1.0, -1.0, 0.0], [1.0, 1.0, 1.4]])
    )  # what the camera shall see

    @property
    def loaded(self) -> tuple[str, tuple[float, float, float]]:
        """The frame, and the place in it, that bears the payload."""
        return self.end or (self.frame, self.offset)

    def points(self, q: np.ndarray) -> np.ndarray:
        """Where the point that follows is (…, 3), at positions (…, nq)."""
        return frame_path(
            self.robot.model, body_poses(self.robot.model, q), self.frame, self.offset
        )

    def eight(self, t: Any) -> np.ndarray:
        """The figure eight (…, 3), after Plancher 2022, section 4.4.1."""
        phase = 2 * np.pi * np.asarray(t, dtype=float)[..., None] / self.sway_period
        eight: np.ndarray = (
            self.home + self.sway[0] * np.sin(phase) + self.sway[1] * np.sin(2 * phase)
        )
        return eight


def scene(
    robot: Any = "iiwa14", frame: str | None = None, feet: Sequence[str] | None = None
) -> Any:
    """The scene of a robot: a bundled name, a path, URDF text or a Robot. `frame` follows the
    target; by default its tool (`model.tool_frame`). A robot with four `feet`, "hyq" or "go2" walks
    instead; "atlas" stands on two, and `frame` is its hand.
    """
    if feet is not None or (
        isinstance(robot, str) and (robot in PUBLISHED or (robot == "hyq" and frame is None))
    ):
        if frame is not None:
            raise InputError(
                "a robot that walks follows no target: leave out the frame, or the feet"
            )
        return walking(robot, feet)
    if isinstance(robot, str) and robot == "atlas":
        return balancing(frame)
    known = {"iiwa14": _arm, "cartpole": _cartpole, "quadrotor": _quadrotor, "hyq_held": _legs}
    if (
        isinstance(robot, str)
        and robot in known
        and (frame is None or robot in ("cartpole", "quadrotor"))
    ):
        made = known[robot](load("hyq" if robot == "hyq_held" else robot))
        if frame not in (None, made.frame):
            raise InputError(
                f"what follows in the scene of {robot!r} is its {made.frame}; leave the frame out"
            )
        return made
    return _any(robot if isinstance(robot, Robot) else load(robot), frame)


def _same(targets: np.ndarray, x: np.ndarray) -> np.ndarray:
    return targets


def _reaching(
    robot: Robot,
    frame: str,
    offset: tuple[float, float, float],
    resting: np.ndarray,
    stiffness: float,
) -> Callable[[Weights], list[Cost]]:
    """Costs of a point that follows a target: `stiffness` is the weight of staying near a posture,
    as a share of that of moving.
    """
    n = robot.nv

    def costs(w: Weights) -> list[Cost]:
        still = w.motion * np.r_[np.full(n, stiffness), np.ones(n)]
        return [
            Reach(frame, np.zeros(3), offset=offset, weight=w.target, final=100 * w.target),
            State(
                np.r_[resting, np.zeros(n)], weight=still, final=np.r_[still[:n], 100 * still[n:]]
            ),
            Effort(w.effort, reference="gravity"),
        ]

    return costs


def _arm(robot: Robot) -> Scene:
    q = np.array([0.0, 0.6, 0.0, -1.4, 0.0, 1.0, 0.0])
    frame, offset = "iiwa_link_7", (0.0, 0.0, 0.0635)
    return Scene(
        robot=robot,
        system=RobotSystem(robot),
        start=np.r_[q, np.zeros(7)],
        frame=frame,
        offset=offset,
        home=np.array([0.6556, 0.0, 0.486]),
        weights=Weights(10.0, 0.1, 1e-4),
        costs=_reaching(robot, frame, offset, q, 0.0),
        goal=_same,
        knot=0.5 / 40,
        horizon=0.5,
        limits=Limits(torque=True),
        sway=np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.2]]),
        sway_period=10.0,
        push=(100.0, 0.05),
        payload=5.0,
        observer=True,
        hint="Drag the target: the arm's tip follows.",
        space=np.array([[-0.3, -0.6, 0.0], [0.8, 0.6, 1.1]]),
    )


def _legs(robot: Robot) -> Scene:
    """HyQ held at its trunk: it keeps a posture, and its left front foot follows the target."""
    q = np.array([-0.2, 0.75, -1.5, -0.2, -0.75, 1.5, -0.2, 0.75, -1.5, -0.2, -0.75, 1.5])
    frame, offset = "lf_lowerleg", (0.33, 0.0, 0.0)
    home = frame_path(robot.model, body_poses(robot.model, q), frame, offset)
    return Scene(
        robot=robot,
        system=RobotSystem(robot),
        start=np.r_[q, np.zeros(12)],
        frame=frame,
        offset=offset,
        home=home,
        weights=Weights(100.0, 0.1, 1e-4),
        costs=_reaching(robot, frame, offset, q, 1.0),
        goal=_same,
        knot=0.5 / 25,
        horizon=0.5,
        limits=Limits(torque=True),
        sway=np.array([[0.15, 0.0, 0.0], [0.0, 0.0, 0.06]]),
        sway_period=4.0,
        push=(150.0, 0.05),
        payload=1.0,
        observer=True,
        hint=(
            "HyQ is held at its trunk and keeps its posture. Drag the target: the left front foot"
            " follows."
        ),
        space=np.array([[-0.6, -0.5, -0.8], [0.7, 0.5, 0.2]]),
    )


def _cartpole(robot: Robot) -> Scene:
    """The pole is swung up and balanced, while the cart follows the target along its rail."""

    def costs(w: Weights) -> list[Cost]:
        each = np.array([w.target, w.target, w.motion, w.motion])
        return [State(np.zeros(4), weight=each, final=1000 * each), Effort(w.effort)]

    up = np.pi

    def goal(targets: np.ndarray, x: np.ndarray) -> np.ndarray:
        nonlocal up
        if abs(x[1] - up) > 1.5 * np.pi:
            # another way up is much nearer; were the nearest taken, a swing past the bottom would
            # change the goal
            up = np.pi * (2 * np.floor(x[1] / (2 * np.pi)) + 1)
        state = np.zeros((*np.shape(targets)[:-1], 4))
        state[..., 0], state[..., 1] = np.asarray(targets)[..., 0], up
        return state

    return Scene(
        robot=robot,
        system=RobotSystem(robot),
        start=np.zeros(4),
        frame="cart",
        home=np.zeros(3),
        weights=Weights(1.0, 0.1, 0.01),
        costs=costs,
        goal=goal,
        knot=0.04,
        horizon=1.6,
        limits=Limits(torque=30.0),
        sway=np.array([[0.8, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        sway_period=8.0,
        push=(30.0, 0.05),
        payload=0.2,
        end=("rod", (0.0, 0.0, -1.0)),
        observer=False,
        hint="The pole is swung up and balanced. Drag the target along the rail: the cart follows.",
        axes=(True, False, False),
        space=np.array([[-1.5, -0.5, -1.1], [1.5, 0.5, 1.1]]),
    )


def _quadrotor(robot: Robot) -> Scene:
    """Four thrusts, each up to twice what hovering takes."""
    hover = 0.5 * 9.81 / 4

    def costs(w: Weights) -> list[Cost]:
        each = np.r_[np.full(3, w.target), np.full(3, 0.1 * w.target), np.full(6, w.motion)]
        return [
            State(goal(np.zeros(3), start), weight=each, final=20 * each),
            Effort(w.effort, reference=hover),
        ]

    def goal(targets: np.ndarray, x: np.ndarray) -> np.ndarray:
        state = np.zeros((*np.shape(targets)[:-1], 13))
        state[..., :3], state[..., 6] = targets, 1.0
        return state

    home = np.array([0.0, 0.0, 1.0])
    start = np.r_[home, 0.0, 0.0, 0.0, 1.0, np.zeros(6)]
    return Scene(
        robot=robot,
        system=RobotSystem(robot),
        start=start,
        frame="body",
        home=home,
        weights=Weights(10.0, 0.3, 0.1),
        costs=costs,
        goal=goal,
        knot=0.03,
        horizon=0.9,
        limits=Limits(torque=True),
        sway=np.array([[0.4, 0.35, 0.0], [0.0, 0.0, 0.2]]),
        sway_period=6.0,
        push=(10.0, 0.1),
        payload=0.1,
        observer=False,
        hint="Drag the waypoint: the quadrotor flies there.",
        space=np.array([[-0.5, -0.6, 0.6], [0.5, 0.6, 1.3]]),
    )


def _any(robot: Robot, frame: str | None) -> Scene:
    """A robot fixed to the ground, a frame of which follows the target."""
    model = robot.model
    if not model.joints:
        raise InputError(f"{robot.name!r} has no joints, so nothing to play with")
    if any(j.kind.flies for j in model.joints):
        raise InputError(
            f"{robot.name!r} flies freely: name its four feet if it walks, load it with a fixed"
            f" base, or play with {', '.join(NAMES)}, hyq or atlas"
        )
    q, frame = posture(model), tool_frame(model) if frame is None else frame
    if model.frame(frame).body == WORLD:
        raise InputError(
            f"frame {frame!r} does not move, so it cannot follow a target; the tool of"
            f" {robot.name!r} is {tool_frame(model)!r}"
        )
    # away from the neutral position, which is often singular
    bend = robot.integrate(q, np.resize([0.3, 0.5, -0.4], robot.nv))
    q = np.clip(bend, model.limits.lower, model.limits.upper)
    home = frame_path(model, body_poses(model, q), frame)
    size = 0.2 * float(np.linalg.norm(home - body_poses(model, q)[0, :3, 3]) or 1.0)
    limited = bool(np.all(np.isfinite(model.limits.effort)))
    low = home - 4 * size
    # the ground is under the robot, not under all that the camera sees
    low[2] = max(low[2], min(0.0, float(body_poses(model, q)[:, 2, 3].min())))
    return Scene(
        robot=robot,
        system=RobotSystem(robot),
        start=np.r_[q, np.zeros(robot.nv)],
        frame=frame,
        home=home,
        weights=Weights(10.0, 0.1, 1e-4),
        costs=_reaching(robot, frame, (0.0, 0.0, 0.0), q, 0.0),
        goal=_same,
        knot=0.5 / 40,
        horizon=0.5,
        limits=Limits(torque=True) if limited else None,
        sway=np.array([[0.0, size, 0.0], [0.0, 0.0, size / 2]]),
        sway_period=6.0,
        push=(3.0 * sum(m for m, _, _ in model.inertias), 0.05),
        payload=0.1 * sum(m for m, _, _ in model.inertias),
        observer=True,
        hint=f"Drag the target: {frame} follows.",
        space=np.array([low, home + 4 * size]),
    )
