"""Four legs to play with: a robot on the ground in MuJoCo, the gait that it walks in, and what the
player wants of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rigidgrad.control.limits import Limits
from rigidgrad.control.mpc import MPC
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.gaits import Walker, standing
from rigidgrad.gaits.stance import heading, turn
from rigidgrad.model.contacts import Contact
from rigidgrad.model.mjcf_names import library
from rigidgrad.plants import Ground, MuJoCo
from rigidgrad.play.legged import Legged
from rigidgrad.play.live import PLANT_STEP
from rigidgrad.robot import Robot, load
from rigidgrad.rotations import rotation_from_quaternion

GAITS = ("trot", "walk", "pace", "bound")
STEEPEST = math.radians(10.0)
_RADIUS = 0.02  # metres, of feet that are given by their frames alone
_ASSUMED = 0.6  # friction that plans rely on
_PERIOD = 0.02  # seconds from plan to plan
_FROUDE = 0.3  # the fastest walk, as a share of √(g·height)
# robots of example-robot-data that are known by name: their files, and the frames of their feet
PUBLISHED = {"go2": ("go2_description/urdf/go2.urdf", ("FL_foot", "FR_foot", "RL_foot", "RR_foot"))}
# the ends of its shins
_HYQ = {f"{leg}_lowerleg": (0.33, 0.0, 0.0) for leg in ("lf", "rf", "lh", "rh")}


@dataclass(frozen=True)
class WalkingScene:
    """A robot that walks: its feet and their radius, the posture it starts from, the fastest
    command (forward, sideways, turning), and what troubles it.
    """

    robot: Robot
    feet: tuple[Contact, ...]
    radius: float
    start: np.ndarray
    trunk: str  # the frame that is pushed, and that bears the payload
    fastest: np.ndarray
    limits: Limits
    push: tuple[float, float]  # newtons, seconds
    payload: float  # kg
    hint: str = (
        "The robot walks as you steer it. Violet: where its feet are planned to go; red: forces of"
        " the ground; orange: the centre of mass."
    )

    @property
    def height(self) -> float:
        """Of the trunk above the ground."""
        return float(self.start[2])

    @property
    def space(self) -> np.ndarray:
        """What the camera shall see."""
        reach = np.abs(self.walker().stance.places[:, :2]).max(axis=0) + 0.3 * self.height
        return np.array([[*-reach, 0.0], [*reach, self.height]])

    @property
    def system(self) -> RobotSystem:
        return RobotSystem(self.robot)

    def walker(self, gait: str = "trot", slope: float = 0.0) -> Walker:
        """Knows the slope, but neither the friction nor the payload."""
        surface = self.radius / math.cos(slope)

        def terrain(x: Any, y: Any) -> Any:
            return surface + math.tan(slope) * np.asarray(x, dtype=float)

        return Walker(
            self.robot,
            self.feet,
            self.start,
            gait=gait,
            dt=_PERIOD,
            limits=self.limits,
            terrain=terrain,
        )

    def plant(self, system: Any, friction: float, slope: float) -> MuJoCo:
        """The robot on its feet; on a slope, leaning with it."""
        ground = Ground(
            {f.frame: (self.radius, tuple(f.offset)) for f in self.feet},
            friction=friction,
            slope=slope,
        )
        x, half = self.start.copy(), 0.5 * slope
        x[0], x[2] = -math.sin(slope) * x[2], math.cos(slope) * x[2]
        x[3:7] = 0.0, -math.sin(half), 0.0, math.cos(half)
        return MuJoCo(system, x, dt=PLANT_STEP, ground=ground, clamp=True)


def walking(robot: Any, feet: Sequence[str] | None = None) -> WalkingScene:
    """The scene of a robot with four legs: "hyq", "go2", which example-robot-data has, or a path,
    URDF text or Robot with the names of the frames of its feet. Needs the [plants] extra.
    """
    library()  # before anything is compiled for it
    if isinstance(robot, str) and robot in PUBLISHED:
        file, named = PUBLISHED[robot]
        robot, feet = (
            load(published(robot, file), floating_base=True, strict=False),
            named if feet is None else feet,
        )
    if feet is None:
        offsets, radius = _HYQ, 0.026
    else:
        offsets, radius = dict.fromkeys(feet, (0.0, 0.0, 0.0)), _RADIUS
        if len(offsets) != 4 or len(feet) != 4:
            raise InputError(
                "feet are the frames of four feet, such as FL_foot,FR_foot,RL_foot,RR_foot, not"
                f" {', '.join(map(str, feet)) or 'none'}"
            )
    made = robot if isinstance(robot, Robot) else load(robot, floating_base=True)
    held = tuple(
        Contact(frame, offset=offset, friction=_ASSUMED) for frame, offset in offsets.items()
    )
    start = standing(made, held, ground=radius)
    model, mass = made.model, sum(m for m, _, _ in made.model.inertias)
    trunk = next(name for name in model.frames if model.frame(name).body == 0)
    speed = float(f"{_FROUDE * math.sqrt(9.81 * start[2]):.1g}")
    return WalkingScene(
        robot=made,
        feet=held,
        radius=radius,
        start=start,
        trunk=trunk,
        fastest=np.array([speed, 0.5 * speed, 0.6]),
        limits=Limits(torque=True) if np.all(np.isfinite(model.limits.effort[6:])) else Limits(),
        push=(float(f"{4.0 * mass:.1g}"), 0.1),
        payload=float(f"{0.1 * mass:.1g}"),
    )


def published(name: str, file: str) -> Path:
    """Where example-robot-data has a robot; an error where it is not installed."""
    homes = [
        *(Path(p) / "cmeel.prefix" for p in sys.path),
        Path(sys.prefix),
        Path("/opt/openrobots"),
        Path("/usr"),
    ]
    for home in homes:
        path = home / "share/example-robot-data/robots" / file
        if path.is_file():
            return path
    raise InputError(
        f"{name!r} does not come along: pip install example-robot-data, or give its URDF and the"
        " frames of its feet, --feet FL_foot,FR_foot,RL_foot,RR_foot"
    )


@dataclass(frozen=True)
class WalkSettings:
    """What can be chosen. `command`: forward and sideways, m/s, and turning, rad/s; `slope` in
    radians, rising ahead; `noise` as in `session.Settings`.
    """

    command: tuple[float, float, float] = (0.0, 0.0, 0.0)
    gait: str = "trot"
    friction: float = 0.8
    slope: float = 0.0
    iterations: int = 1
    period: float = _PERIOD
    latency: float = 0.0
    noise: float = 0.0

    @property
    def controller(self) -> WalkSettings:
        """What the controller depends on; it knows the command, but not the friction."""
        return replace(self, noise=0.0, command=(0.0, 0.0, 0.0), friction=0.0)


class Walk(Legged):
    """A walking scene in motion. Once it has fallen the joints hold their posture, until it is told
    to begin again.
    """

    settings: WalkSettings
    scene: WalkingScene
    reads: ClassVar[tuple[str, ...]] = ("ground", "velocity")

    def __init__(self, scene: WalkingScene):
        first = WalkSettings()
        self._problem = scene.walker().problem()
        super().__init__(
            scene, first, scene.plant(self._problem.system, first.friction, first.slope)
        )

    @property
    def problem(self) -> Problem:
        return self._problem

    # --- wishes: any thread -----------------------------------------------------------------------

    def steer(self, command: Any) -> None:
        """Forward and sideways, m/s, and turning, rad/s; no faster than the scene's fastest."""
        wanted = np.array(command, dtype=float)
        if wanted.shape == (3,) and np.all(np.isfinite(wanted)):
            wanted = np.clip(wanted, -self.scene.fastest, self.scene.fastest)
            self.change(command=(float(wanted[0]), float(wanted[1]), float(wanted[2])))

    # --- time: one thread -------------------------------------------------------------------------

    def _make(self, wanted: WalkSettings) -> MPC:
        walker = self.scene.walker(wanted.gait, wanted.slope)
        mpc = MPC(
            self._problem,
            PDDP(iterations=wanted.iterations),
            period=wanted.period,
            latency=wanted.latency,
            target=walker,
            log=256,
        )
        if wanted.slope != self.ground.slope:  # another world
            payload = self.plant.payload
            self.plant = self.scene.plant(
                self._problem.system, self.settings.friction, wanted.slope
            )
            if payload is not None:
                self.plant.set_payload(payload.mass, payload.frame, payload.offset)
        walker.touching = lambda: self.plant.touching
        self._walker, self._stance, self._mpc = walker, walker.stance, mpc
        self._begin_again()
        return mpc

    def _heed(self) -> None:
        super()._heed()
        self._walker.command = self.settings.command

    def _give_up(self) -> None:
        self.change(command=(0.0, 0.0, 0.0))

    def _begin_again(self) -> None:
        self._walker.reset()
        super()._begin_again()
        self.change(command=(0.0, 0.0, 0.0))

    # --- keeping account --------------------------------------------------------------------------

    def velocity(self) -> np.ndarray:
        """Forward and sideways, m/s, and turning, rad/s: the trunk's, over the ground."""
        x, nq = self.plant.x, self.robot.nq
        R: np.ndarray = np.array(rotation_from_quaternion(*x[3:7]))
        linear, angular = R @ x[nq : nq + 3], R @ x[nq + 3 : nq + 6]
        return np.array([*(linear @ turn(heading(x[3:7])))[:2], angular[2]])

    def _error(self) -> float:
        return float(np.linalg.norm((self.velocity() - self.settings.command)[:2]))
