"""A robot that follows a target, its controller and what the player wants of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rigidgrad.control.direct import Direct
from rigidgrad.control.mpc import MPC
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.surroundings import Surroundings
from rigidgrad.plants import Simulator
from rigidgrad.play.live import PLANT_STEP, Live, Seen
from rigidgrad.play.scenes import Scene, Weights

SOLVERS = ("PDDP", "Direct, Riccati", "Direct, PCG")


@dataclass(frozen=True)
class Settings:
    """What can be chosen. `noise` is the standard deviation of measured positions, in radians and
    metres, and a tenth of that of velocities a second.
    """

    weights: Weights
    horizon: float
    solver: str = "PDDP"
    blocks: int = 1  # M, of PDDP
    iterations: int = 1
    period: float = 0.01
    latency: float = 0.0
    noise: float = 0.0
    observer: bool = False

    @property
    def controller(self) -> Settings:
        """What the controller depends on."""
        return replace(self, noise=0.0)


def first_settings(scene: Scene) -> Settings:
    return Settings(scene.weights, scene.horizon, observer=scene.observer)


@dataclass(frozen=True)
class Snapshot(Seen):
    """What is to be shown: `error` is the distance to the target."""

    target: np.ndarray


class Session(Live):
    """A scene in motion. `advance` moves it in simulated time; `start` lets a thread do so by the
    clock, until `stop`.
    """

    settings: Settings
    reads: ClassVar[tuple[str, ...]] = ("swaying",)

    def __init__(self, scene: Scene):
        self.scene = scene
        self._point, self._eight_since = scene.home.copy(), math.nan
        super().__init__(
            scene.robot, first_settings(scene), Simulator(scene.system, scene.start, dt=PLANT_STEP)
        )

    # --- wishes: any thread -----------------------------------------------------------------------

    def weigh(self, **weights: float) -> None:
        with self._lock:
            self.settings = replace(
                self.settings, weights=replace(self.settings.weights, **weights)
            )

    def aim(self, point: Any) -> None:
        """The target is here from now on; ends the figure eight."""
        point = np.array(point, dtype=float)
        if point.shape == (3,) and np.all(np.isfinite(point)):
            self._wish(lambda: self._set_target(point, math.nan))

    def figure_eight(self, on: bool) -> None:
        self._wish(
            lambda: self._set_target(
                self._target(self.plant.time), self.plant.time if on else math.nan
            )
        )

    def push(self, direction: Any) -> None:
        """A push of the scene's strength on the point that follows."""
        self._push(direction, *self.scene.push, self.scene.frame)

    def carry(self, loaded: bool) -> None:
        """Takes up the payload, which the controller does not know of, or lays it down."""
        self._carry(loaded, self.scene.payload, *self.scene.loaded)

    # --- what happened: any thread ----------------------------------------------------------------

    def fixed(self) -> dict[str, Any]:
        return {"surroundings": self.surroundings}

    @property
    def surroundings(self) -> Surroundings:
        """What is around the robot. The target is in the player's hand."""
        return replace(Surroundings.of(self.problem).first_rows, targets=())

    @property
    def swaying(self) -> bool:
        """Whether the target runs along the figure eight."""
        return not math.isnan(self._eight_since)

    # --- time: one thread -------------------------------------------------------------------------

    def _make(self, wanted: Settings) -> MPC:
        s = self.scene
        steps = max(round(wanted.horizon / s.knot), 2)
        problem = Problem(
            s.system,
            start=self.plant.x,
            steps=steps,
            dt=s.knot,
            costs=s.costs(wanted.weights),
            limits=s.limits,
        )
        return MPC(
            problem,
            _solver(wanted),
            period=wanted.period,
            latency=wanted.latency,
            observer=wanted.observer,
            log=256,
        )

    def _decide(self, x: np.ndarray | None) -> np.ndarray:
        self._aim(x)
        return self._mpc.step(x, self.plant.time)

    def _aim(self, x: np.ndarray | None) -> None:
        """Tells the controller where the target is, and where it will be."""
        s, x = self.scene, self.plant.x if x is None else x
        if self.swaying:
            self._mpc.target = lambda t: s.goal(s.eight(t - self._eight_since), x)
        else:
            self._mpc.target = s.goal(self._point, x)

    def _set_target(self, point: np.ndarray, eight_since: float) -> None:
        self._point, self._eight_since = point, eight_since

    def _target(self, t: float) -> np.ndarray:
        return self.scene.eight(t - self._eight_since) if self.swaying else self._point

    def _begin_again(self) -> None:
        self._set_target(self.scene.home.copy(), math.nan)
        super()._begin_again()

    def _solve_seconds(self) -> float:
        return (
            super()._solve_seconds()
            if self.settings.solver == "PDDP"
            else float(self._mpc.log.solve_seconds[-1])
        )

    def _error(self) -> float:
        away = self.scene.points(self.plant.x[: self.scene.robot.nq]) - self._target(
            self.plant.time
        )
        return float(np.linalg.norm(away[list(self.scene.axes)]))

    def _see(self, **seen: Any) -> Snapshot:
        return Snapshot(target=np.array(self._target(self.plant.time)), **seen)


def _solver(s: Settings) -> Any:
    if s.solver == "PDDP":
        return PDDP(blocks=s.blocks, iterations=s.iterations)
    return Direct(
        linear_solver="pcg" if s.solver == "Direct, PCG" else "riccati", iterations=s.iterations
    )
