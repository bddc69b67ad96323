"""Two feet to stand on: a humanoid in MuJoCo that keeps its balance while a hand follows the
player's target and its weight goes where the player wants it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rigidgrad.control.limits import Limits
from rigidgrad.control.mpc import MPC
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import RobotSystem
from rigidgrad.gaits import Balancer, Stance
from rigidgrad.model.contacts import Contact
from rigidgrad.model.mjcf_names import library
from rigidgrad.plants import Ground, MuJoCo
from rigidgrad.play.legged import Legged, OnFeet
from rigidgrad.play.live import PLANT_STEP
from rigidgrad.robot import Robot, load
from rigidgrad.viewer.poses import body_poses, frame_path

_FRICTION = 0.6  # that plans rely on
_PERIOD = 0.02
_RADIUS = 0.01  # metres, of the balls at the corners of a sole
# metres forward and to the left, that the weight can be shifted by
FARTHEST = np.array([0.04, 0.06])
# Atlas: knees, elbows and shoulders bent; its soles are 26 by 13 cm, 8 cm under the ankles
_ATLAS = {
    **{
        f"{s}_leg_{joint}": angle
        for s in "lr"
        for joint, angle in (("hpy", -0.4), ("kny", 0.8), ("aky", -0.4))
    },
    **{f"{s}_arm_ely": 1.6 for s in "lr"},
    "l_arm_shx": -1.3,
    "r_arm_shx": 1.3,
    "l_arm_elx": 1.0,
    "r_arm_elx": -1.0,
}
_SOLE, _HALF = (0.0426, 0.0, -0.08), (0.13, 0.065)


@dataclass(frozen=True)
class BalanceScene:
    """A robot on two soles: its feet, the hand that follows the target, the posture it starts from,
    and what troubles it.
    """

    robot: Robot
    feet: tuple[Contact, ...]
    hand: str
    start: np.ndarray
    trunk: str  # the frame that is pushed
    payload: float  # kg, in the hand
    push: tuple[float, float]  # newtons, seconds
    hint: str = (
        "The robot keeps its balance. Drag the target: its hand follows. Violet: where its feet are"
        " planned to be; red: forces of the ground; orange: the centre of mass."
    )

    @property
    def height(self) -> float:
        """Of the trunk above the ground."""
        return float(self.start[2])

    @property
    def system(self) -> RobotSystem:
        return RobotSystem(self.robot)

    @property
    def home(self) -> np.ndarray:
        """Where the hand is at first, and the target."""
        return self.points(self.start[: self.robot.nq])

    @property
    def space(self) -> np.ndarray:
        """What the camera shall see."""
        return np.array([[-0.5, -0.7, 0.0], [0.8, 0.7, 1.9 * self.height]])

    def points(self, q: np.ndarray) -> np.ndarray:
        """Where the hand is (…, 3), at positions (…, nq)."""
        return frame_path(self.robot.model, body_poses(self.robot.model, q), self.hand)

    def balancer(self) -> Balancer:
        """Knows neither the friction nor the payload."""
        return Balancer(
            self.robot,
            self.feet,
            self.start,
            hands=[self.hand],
            half_lengths=_HALF,
            limits=Limits(torque=True),
            dt=_PERIOD,
        )

    def plant(self, system: Any, friction: float) -> MuJoCo:
        """The robot on its feet."""
        (x, y, z), (along, across) = _SOLE, _HALF
        corners = [(x + a * along, y + b * across, z + _RADIUS) for a in (1, -1) for b in (1, -1)]
        ground = Ground({f.frame: (_RADIUS, corners) for f in self.feet}, friction=friction)
        return MuJoCo(system, self.start, dt=PLANT_STEP, ground=ground, clamp=True)


def balancing(hand: str | None = None) -> BalanceScene:
    """Atlas, whose neck and wrists are locked. Needs the [plants] extra."""
    library()  # before anything is compiled for it
    whole = load("atlas", floating_base=True)
    robot = whole.reduced(
        {j.name: 0.0 for j in whole.model.joints[1:] if "_wr" in j.name or "neck" in j.name}
    )
    hand = "r_hand" if hand is None else hand
    robot.model.frame(hand)
    feet = tuple(
        Contact(f"{side}_foot", "surface", offset=_SOLE, friction=_FRICTION) for side in "lr"
    )
    start = np.concatenate([robot.neutral(), np.zeros(robot.nv)])
    for joint in robot.model.joints:
        start[joint.q] = _ATLAS.get(joint.name, start[joint.q])
    start[2] = -Stance(robot, feet, start).ground
    return BalanceScene(
        robot=robot,
        feet=feet,
        hand=hand,
        start=start,
        trunk="utorso",
        payload=3.0,
        push=(160.0, 0.3),
    )


@dataclass(frozen=True)
class BalanceSettings:
    """What can be chosen. `shift`: of the weight, forward and to the left, in metres; `noise` as in
    `session.Settings`.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    friction: float = 0.8
    iterations: int = 2
    period: float = _PERIOD
    latency: float = 0.0
    noise: float = 0.0

    @property
    def controller(self) -> BalanceSettings:
        """What the controller depends on; it knows the shift, but not the friction."""
        return replace(self, noise=0.0, shift=(0.0, 0.0), friction=0.0)


@dataclass(frozen=True)
class Balanced(OnFeet):
    """`error` is how far the hand is from the target."""

    target: np.ndarray


class Balance(Legged):
    """A robot that stands, in motion."""

    settings: BalanceSettings
    scene: BalanceScene

    def __init__(self, scene: BalanceScene):
        first = BalanceSettings()
        self._point = scene.home
        self._balancer = scene.balancer()
        self._stance = self._balancer.stance
        self._problem = self._balancer.problem()
        super().__init__(scene, first, scene.plant(self._problem.system, first.friction))

    @property
    def problem(self) -> Problem:
        return self._problem

    # --- wishes: any thread -----------------------------------------------------------------------

    def aim(self, point: Any) -> None:
        """The hand goes here."""
        wanted = np.array(point, dtype=float)
        if wanted.shape == (3,) and np.all(np.isfinite(wanted)):
            self._wish(lambda: self._set_target(wanted))

    def shift_weight(self, shift: Any) -> None:
        """The weight goes forward and to the left by so many metres; no farther than the soles
        bear.
        """
        wanted = np.array(shift, dtype=float)
        if wanted.shape == (2,) and np.all(np.isfinite(wanted)):
            wanted = np.clip(wanted, -FARTHEST, FARTHEST)
            self.change(shift=(float(wanted[0]), float(wanted[1])))

    def carry(self, loaded: bool) -> None:
        """Takes the payload into its hand, which the controller does not know of, or lays it
        down.
        """
        self._carry(loaded, self.scene.payload, self.scene.hand, (0.0, 0.0, 0.0))

    # --- time: one thread -------------------------------------------------------------------------

    def _make(self, wanted: BalanceSettings) -> MPC:
        solver = PDDP(iterations=wanted.iterations)
        return MPC(
            self._problem,
            solver,
            period=wanted.period,
            latency=wanted.latency,
            target=self._balancer,
            log=256,
        )

    def _heed(self) -> None:
        super()._heed()
        self._balancer.shift = self.settings.shift

    def _set_target(self, point: np.ndarray) -> None:
        self._point = point
        self._balancer.reach(self.scene.hand, point)

    def _begin_again(self) -> None:
        self._balancer.reset()
        self._set_target(self.scene.home)
        super()._begin_again()
        self.change(shift=(0.0, 0.0))

    # --- keeping account --------------------------------------------------------------------------

    def _error(self) -> float:
        return float(np.linalg.norm(self.scene.points(self.plant.x[: self.robot.nq]) - self._point))

    def _see(self, **seen: Any) -> Balanced:
        return Balanced(target=self._point.copy(), **vars(super()._see(**seen)))
