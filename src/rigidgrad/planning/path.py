"""What a plan came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.control.surroundings import Surroundings
from rigidgrad.geometry.scene import Scene
from rigidgrad.planning.refine import problem_of
from rigidgrad.robot import Robot

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem

ADVICE = {
    "solved": "",
    "start outside limits": "the start breaks a joint limit: move it inside",
    "goal outside limits": "every goal breaks a joint limit: move it inside",
    "start in collision": "the start touches something: robot.distances(start, scene) tells what",
    "goal in collision": "every goal touches something: robot.distances(goal, scene) tells what",
    "start beyond torque limits": (
        "holding the start takes more torque than allowed: choose another, or a larger torque="
    ),
    "goal beyond torque limits": (
        "holding any goal takes more torque than allowed: choose another, or a larger torque="
    ),
    "path beyond torque limits": (
        "no motion along the lines found keeps the torque limits: another seed=, or a larger torque="
    ),
    "goal out of reach": (
        "inverse kinematics found no position with the frame there: robot.inverse_kinematics tells"
        " how near it comes"
    ),
    "no path": (
        "no path was found in the time or rounds given: raise seconds= or rounds=, choose a smaller"
        " margin=, or another seed="
    ),
}


@dataclass(frozen=True)
class Path:
    """A motion: `.q` (n, nq) and `.v` (n, nv) at the times `.time` (n,), in seconds; `.corners` (m,
    nq), the path's own points; `.status`, which is "solved" or says what is wrong, and `.advice`.
    `.a` (n, nv) are accelerations from each time on: `robot.rnea(path.q, path.v, path.a)` gives the
    torques.

    Without a path the arrays are empty. `.clearance` is what every state keeps away from everything
    at least, by what was checked; `.stats` has rounds, positions that were checked, and seconds.
    `.scene` is what was avoided.
    """

    status: str
    q: np.ndarray
    v: np.ndarray
    time: np.ndarray
    corners: np.ndarray
    clearance: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)
    scene: Scene = field(default_factory=Scene, repr=False)
    a: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)), repr=False)

    @property
    def solved(self) -> bool:
        return self.status == "solved"

    @property
    def advice(self) -> str:
        return ADVICE[self.status]

    @property
    def x(self) -> np.ndarray:
        """States (n, nq + nv), as of a solution: `rg.view(robot, path)` shows them."""
        return np.concatenate([self.q, self.v], axis=1)

    @property
    def t(self) -> np.ndarray:
        return self.time

    @property
    def surroundings(self) -> Surroundings:
        """The scene, for pictures."""
        return Surroundings(solids=self.scene.outlines)

    @property
    def duration(self) -> float:
        """In seconds."""
        return float(self.time[-1]) if len(self.time) else 0.0

    def problem(
        self,
        robot: Robot,
        steps: int = 60,
        *,
        stretch: float = 1.2,
        costs: Sequence[Any] | None = None,
        limits: Any = None,
    ) -> Problem:
        """A problem for `rg.solve` whose first guess is this path, `stretch` times as slow: from
        its start in so many `steps` to rest at its end.

        `costs`: the end state with a great weight, small ones on velocities and torques, unless
        given. `limits`: the robot's own torques, positions and velocities, and all links clear of
        the scene, and of each other, by the path's clearance, unless given; at the knots alone.
        Every freedom of the robot has a motor.
        """
        return problem_of(self, robot, steps, stretch, costs, limits)

    def __repr__(self) -> str:
        if not self.solved:
            return f"<Path: {self.status}; {self.advice}>"
        return f"<Path: {len(self.corners)} corners, {self.duration:.3g} s, {len(self.q)} states>"
