"""Quadrupeds that trot in MuJoCo under live control, in simulated time: `python bench/walking.py [--robots hyq go2] [--seconds 60] [--json FILE]`.

Each case is a robot and a scene: commanded speeds, pushes, another mass, friction or slope than the controller knows. Printed are the speed held against the one commanded, whether it fell, the
fallbacks counted, and how long plans took: the median and the 99% quantile, on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gait_cases
import machine
import numpy as np

import rigidgrad as rg

PERIOD = 0.02
GO2 = "go2_description/urdf/go2.urdf"


@dataclass
class Walking:
    """A robot, its feet, the posture that it walks in, and the radius of its feet."""

    robot: rg.Robot
    feet: tuple[str, ...]
    x0: np.ndarray
    radius: float
    torque: Any
    swing: float = 0.25
    height: float = 0.08

    def controller(self, friction: float = 0.6, terrain: Any = None) -> tuple[rg.gaits.Walker, rg.MPC]:
        contacts = [rg.Contact(f, friction=friction) for f in self.feet]
        walker = rg.gaits.Walker(
            self.robot,
            contacts,
            self.x0,
            swing=self.swing,
            step_height=self.height,
            steps=25,
            dt=PERIOD,
            limits=rg.Limits(torque=self.torque),
            terrain=terrain,
        )
        return walker, rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=PERIOD, target=walker)


def on_its_feet(robot: rg.Robot, feet: tuple[str, ...], q: np.ndarray, radius: float) -> np.ndarray:
    """A posture moved up or down so that its feet touch the plane z = 0, at rest."""
    T = robot.forward_kinematics(q)
    q = q.copy()
    q[2] -= min(T[f][2, 3] for f in feet) - radius
    return np.concatenate([q, np.zeros(robot.nv)])


def hyq() -> Walking:
    robot, feet = gait_cases.robot_of("hyq"), ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
    q = np.array(gait_cases.numbers_of("hyq")["trotting"]["x0"])[: robot.nq]
    return Walking(robot, feet, on_its_feet(robot, feet, q, 0.02), 0.02, 100.0)


def go2() -> Walking:
    robot, feet = gait_cases.load(GO2), ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
    q = robot.neutral()
    q[7:] = np.tile((0.0, 0.8, -1.5), 4)
    return Walking(robot, feet, on_its_feet(robot, feet, q, 0.022), 0.022, True, height=0.06)


ROBOTS: dict[str, Callable[[], Walking]] = {"hyq": hyq, "go2": go2}


@dataclass
class Scene:
    """What is commanded, and what the controller does not know."""

    command: Callable[[float], tuple[float, float, float]]
    friction: float = 0.8
    slope: float = 0.0
    mass_error: float = 0.0
    pushes: bool = False
    told_slope: bool = True
    faults: Any = None


def steady(forward: float, sideways: float = 0.0, turning: float = 0.0) -> Callable[[float], tuple[float, float, float]]:
    return lambda t: (forward, sideways, turning) if t >= 0.5 else (0.0, 0.0, 0.0)


def start_and_stop(t: float) -> tuple[float, float, float]:
    return (0.4, 0.0, 0.0) if t % 10.0 >= 3.0 else (0.0, 0.0, 0.0)


SCENES = {
    "forward 0.3": Scene(steady(0.3)),
    "forward 0.5": Scene(steady(0.5)),
    "sideways 0.2": Scene(steady(0.0, 0.2)),
    "turning 0.5": Scene(steady(0.0, 0.0, 0.5)),
    "start and stop": Scene(start_and_stop),
    "pushes": Scene(steady(0.3), pushes=True),
    "20% heavier": Scene(steady(0.3), mass_error=0.2),
    "friction 0.5": Scene(steady(0.3), friction=0.5),
    "slope of 10°": Scene(steady(0.2), slope=math.radians(10.0)),
}


@dataclass
class Outcome:
    """Of a run: seconds that it stood, the mean velocity over whole seconds after the command, in the trunk's axes, and what was counted."""

    seconds: float
    fell: bool
    speed: list[float]
    asked: list[float]
    counts: dict[str, int]
    plan_ms: list[float] = field(default_factory=list)
    pushes: int = 0
    torque: float = 0.0


def run(walking: Walking, scene: Scene, seconds: float, seed: int = 0) -> Outcome:
    terrain = (lambda x, y: math.tan(scene.slope) * np.asarray(x) + walking.radius / math.cos(scene.slope)) if scene.slope else None
    walker, mpc = walking.controller(friction=min(0.6, 0.9 * scene.friction), terrain=terrain)
    ground = rg.plants.Ground(dict.fromkeys(walking.feet, walking.radius), friction=scene.friction, slope=scene.slope)
    robot, x0 = walking.robot, walking.x0
    plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=ground, mass_error=scene.mass_error)
    rng = np.random.default_rng(seed)
    weight = 9.81 * float(sum(m for m, *_ in robot.model.inertias))
    pushes = np.sort(rng.uniform(3.0, seconds - 2.0, 10)) if scene.pushes and seconds > 6.0 else np.zeros(0)
    pending, given = list(pushes), 0
    moved, commanded, most = np.zeros(3), np.zeros(3), 0.0
    frame = robot.model.body_names[0]
    counted, fell = 0.0, False
    while plant.time < seconds:
        t = plant.time
        if pending and t >= pending[0]:
            angle = rng.uniform(0.0, 2.0 * math.pi)
            plant.push((0.1 * weight * math.cos(angle), 0.1 * weight * math.sin(angle), 0.0), 0.3, frame)
            pending.pop(0)
            given += 1
        walker.command = scene.command(t)
        u = mpc.step(plant.x, t)
        most = max(most, float(np.abs(u).max()))
        plant.advance(u)
        x = plant.x
        if t > 3.0:
            v = x[robot.nq : robot.nq + 6]
            moved += 1e-3 * np.array([v[0], v[1], v[5]])
            commanded += 1e-3 * np.array(walker.moving)
            counted += 1e-3
        up = 1.0 - 2.0 * (x[3] ** 2 + x[4] ** 2)
        if up < 0.7 or x[2] - math.tan(scene.slope) * x[0] < 0.5 * x0[2]:
            fell = True
            break
    solve = 1e3 * mpc.log.solve_seconds[1:]  # the first plan compiles
    spent = [float(np.median(solve)), float(np.quantile(solve, 0.99))]
    counts = {k: int(v) for k, v in mpc.counts.items() if v}
    return Outcome(
        plant.time, fell, (moved / max(counted, 1e-9)).tolist(), (commanded / max(counted, 1e-9)).tolist(), counts, spent, given, most
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--scenes", nargs="+", default=list(SCENES), choices=list(SCENES))
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated, of each scene (default 60)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": machine.describe({}), "seconds": arguments.seconds, "cases": {}}
    for name in arguments.robots:
        walking = ROBOTS[name]()
        for label in arguments.scenes:
            o = run(walking, SCENES[label], arguments.seconds)
            found["cases"][f"{name}, {label}"] = vars(o)
            told = "fell" if o.fell else "stood"
            pushes = f", {o.pushes} pushes" if o.pushes else ""
            print(
                f"{name:5} {label:15} {told} {o.seconds:5.1f} s{pushes}; speed {np.round(o.speed, 3)} of {np.round(o.asked, 3)}; plans {o.plan_ms[0]:.1f} ms, "
                f"99% {o.plan_ms[1]:.1f}; torque {o.torque:.0f}; counted {o.counts or 'nothing'}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
