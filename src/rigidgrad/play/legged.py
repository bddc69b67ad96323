"""What robots on their feet share: a ground in MuJoCo, falls, forces on the feet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rigidgrad.gaits.stance import Stance
from rigidgrad.plants import Ground, MuJoCo
from rigidgrad.play.live import PLANT_STEP, Live, Seen
from rigidgrad.rotations import rotation_from_quaternion

# of the height in the stance; a trunk below, or tilted more, has fallen
_LOWEST, _MOST_TILTED = (0.5, math.radians(45.0))
_DAMPING = 0.03  # seconds, of joints that hold their posture
_MOST_DAMPED = (
    0.5  # of a velocity that is gone after a step: with more, sampled damping shakes light links
)


@dataclass(frozen=True)
class OnFeet(Seen):
    """What is to be shown: places of the feet and forces on them (feet, 3); the centre of mass."""

    feet: np.ndarray
    forces: np.ndarray
    center: np.ndarray
    fallen: str  # how, if it fell


class Legged(Live):
    """A scene with `robot`, `feet`, `start`, `height`, `trunk`, `push` and `payload` in motion.
    Once the robot has fallen the joints hold their posture, until `reset`.
    """

    plant: MuJoCo
    reads: ClassVar[tuple[str, ...]] = ("ground",)
    _stance: Stance

    def __init__(self, scene: Any, settings: Any, plant: MuJoCo):
        self.scene, self.fallen = scene, ""
        self._held = scene.start
        effort = scene.robot.model.limits.effort[6:]
        # N m per radian
        stiff = 0.3 * 9.81 * sum(m for m, _, _ in scene.robot.model.inertias) * scene.height
        # of what hangs on each joint
        free = np.diag(scene.robot.crba(scene.start[: scene.robot.nq]))[6:]
        held = np.where(np.isfinite(effort), 2.0 * effort, stiff)
        self._stiff = np.minimum(
            np.minimum(stiff, held), _MOST_DAMPED * free / (_DAMPING * PLANT_STEP)
        )
        super().__init__(scene.robot, settings, plant)

    @property
    def ground(self) -> Ground:
        assert self.plant.ground is not None
        return self.plant.ground

    def push(self, direction: Any) -> None:
        """A push of the scene's strength on the trunk."""
        newtons, seconds = self.scene.push
        self._push(direction, newtons, seconds, self.scene.trunk)

    def carry(self, loaded: bool) -> None:
        """Takes up the payload, which the controller does not know of, or lays it down."""
        self._carry(loaded, self.scene.payload, self.scene.trunk, (0.0, 0.0, 0.0))

    def _give_up(self) -> None:
        """What is wanted no longer is: the robot has fallen."""

    def _heed(self) -> None:
        super()._heed()
        if self.settings.friction != self.ground.friction:
            self.plant.set_ground_friction(self.settings.friction)

    def _decide(self, x: np.ndarray | None) -> np.ndarray:
        if not self.fallen:
            self.fallen = self._fall()
            self._held = self.plant.x
            if self.fallen:
                self._give_up()
        if not self.fallen:
            return self._mpc.step(x, self.plant.time)
        now = self.plant.x if x is None else x
        nq = self.robot.nq
        tau: np.ndarray = self._stiff * (self._held[7:nq] - now[7:nq] - _DAMPING * now[nq + 6 :])
        return tau

    def _fall(self) -> str:
        """How the robot has fallen; empty if it stands."""
        x, ground = self.plant.x, self.ground
        height, tilt = (
            float(x[2] - ground.height(x[0])),
            math.acos(max(-1.0, min(1.0, rotation_from_quaternion(*x[3:7])[2][2]))),
        )
        if height < _LOWEST * self.scene.height:
            return f"fell: the trunk is {height:.2g} m above the ground"
        if tilt > _MOST_TILTED:
            return f"fell: the trunk is tilted by {math.degrees(tilt):.0f} degrees"
        if self._mpc.counts["held"]:
            return "fell: no plan was found that keeps it up"
        return ""

    def _begin_again(self) -> None:
        self.fallen = ""
        super()._begin_again()

    def _see(self, **seen: Any) -> OnFeet:
        x, forces = seen["x"], self.plant.foot_forces
        return OnFeet(
            feet=self._stance.feet_of(x),
            forces=np.array([forces[f.frame] for f in self.scene.feet]),
            center=np.array(self.robot.center_of_mass(x[: self.robot.nq])),
            fallen=self.fallen,
            **seen,
        )
