"""Quadrupeds that trot in MuJoCo under live control, in simulated time: `python bench/walking.py
[--robots hyq go2] [--seconds 60] [--iterations 3] [--json FILE]`.

Each case is a robot and a scene: commanded speeds, pushes, another mass, friction or slope than the
controller knows. Printed are the speed held against the one commanded, whether it fell, the
fallbacks counted, how far the forces of all plans leave their friction cones at most, and how long
plans took: the median and the 99% quantile of CPU time and by the clock, on one core. After a push
that fells it the robot is put on its feet again, and the next push follows.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
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
    iterations: int = 3

    def controller(
        self, friction: float = 0.6, terrain: Any = None
    ) -> tuple[rg.gaits.Walker, rg.MPC]:
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
            # stiffer cones than by default need more iterations than one
            weights=rg.gaits.Weights(cone=10.0 if self.iterations > 1 else 1.0),
        )
        solver = rg.PDDP(iterations=self.iterations)
        return walker, rg.MPC(walker.problem(), solver, period=PERIOD, target=walker)


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


def steady(
    forward: float, sideways: float = 0.0, turning: float = 0.0
) -> Callable[[float], tuple[float, float, float]]:
    return lambda t: (forward, sideways, turning) if t >= 0.5 else (0.0, 0.0, 0.0)


def start_and_stop(t: float) -> tuple[float, float, float]:
    return (0.4, 0.0, 0.0) if t % 10.0 >= 3.0 else (0.0, 0.0, 0.0)


def all_in_turn(t: float) -> tuple[float, float, float]:
    """Forward, sideways, turning, an arc, backwards, a stop: ten seconds each."""
    return (
        (0.5, 0.0, 0.0),
        (0.0, 0.3, 0.0),
        (0.0, 0.0, 0.5),
        (0.3, 0.0, 0.4),
        (-0.3, 0.0, 0.0),
        (0.0, 0.0, 0.0),
    )[int(t / 10.0) % 6]


SCENES = {
    "forward 0.3": Scene(steady(0.3)),
    "forward 0.5": Scene(steady(0.5)),
    "sideways 0.2": Scene(steady(0.0, 0.2)),
    "sideways 0.5": Scene(steady(0.0, 0.5)),
    "turning 0.5": Scene(steady(0.0, 0.0, 0.5)),
    "start and stop": Scene(start_and_stop),
    "all in turn": Scene(all_in_turn),
    "pushes": Scene(steady(0.3), pushes=True),
    "20% heavier": Scene(steady(0.3), mass_error=0.2),
    "friction 0.5": Scene(steady(0.3), friction=0.5),
    "slope of 10°": Scene(steady(0.2), slope=math.radians(10.0)),
}


@dataclass
class Outcome:
    """Of a run: seconds that it went on, the mean velocity over whole seconds after the command, in
    the trunk's axes, and what was counted.
    """

    seconds: float
    falls: int
    speed: list[float]
    asked: list[float]
    counts: dict[str, int]
    # CPU time of a step that plans, median and 99%
    plan_ms: list[float] = field(default_factory=list)
    # the same by the clock, of the plan alone: with whatever else the machine did
    wall_ms: list[float] = field(default_factory=list)
    pushes: int = 0
    survived: int = 0
    torque: float = 0.0  # the largest, as a part of the motor's limit
    # how far a planned force leaves its pyramid at most, as a part of the normal force, or of a
    # hundredth of the weight if that is more
    cone: float = 0.0
    loaded: float = 0.0  # the same of feet that bear at least a tenth of the weight
    plans: int = 0
    # plans in which a loaded foot's force leaves its pyramid by more than 1e-3 of the normal force
    outside: int = 0
    # the same of all standing feet, beside a hundredth of the weight where they bear less
    any_outside: int = 0
    late: int = 0  # plans that took longer than a period, by the clock


class Cones:
    """Keeps account of how far the forces of plans leave the pyramids that the plans were charged
    for.
    """

    def __init__(self, walker: rg.gaits.Walker, problem: rg.Problem):
        self.walker, self.problem, self.contacts = (
            walker,
            problem,
            walker.stance.contacts(problem.dt),
        )
        self.weight = 9.81 * float(sum(m for m, *_ in walker.robot.model.inertias))
        self.worst = self.loaded = 0.0
        self.plans, self.outside, self.any_outside, self._seen = 0, 0, 0, -math.inf

    def forget(self) -> None:
        """Time begins anew."""
        self._seen = -math.inf

    def look(self, plan: Any) -> None:
        """At a plan, once."""
        if not plan.start > self._seen:
            return
        self._seen = plan.start
        self.plans += 1
        system, nq = self.problem.system, self.walker.robot.nq
        worst = every = 0.0
        rows = self.problem.p[:-1, self.problem.programs.inputs][:, system.contact_numbers]
        for stands in np.unique(rows, axis=0):
            knots = (rows == stands).all(axis=1)
            held = [c for c, on in zip(self.contacts, stands, strict=True) if on]
            if not held:
                continue
            x, u = plan.x[:-1][knots], plan.u[knots]
            tau = np.concatenate([np.zeros((len(u), 6)), u], axis=1)
            f = self.walker.robot.contact_dynamics(
                x[:, :nq], x[:, nq:], tau, contacts=held
            ).force.reshape(-1, 3)
            mu = np.tile([c.friction for c in held], int(knots.sum()))
            outside = np.abs(f[:, :2]).max(axis=1) - mu * f[:, 2]
            bears = np.maximum(f[:, 2], 0.01 * self.weight)
            every = max(every, float((outside / bears).max()))
            heavy = f[:, 2] > 0.1 * self.weight
            worst = max(worst, float((outside[heavy] / f[heavy, 2]).max(initial=0.0)))
        self.loaded, self.worst = max(self.loaded, worst), max(self.worst, every)
        self.outside += worst > 1e-3
        self.any_outside += every > 1e-3


def run(walking: Walking, scene: Scene, seconds: float, seed: int = 0) -> Outcome:
    terrain = (
        (
            lambda x, y: (
                math.tan(scene.slope) * np.asarray(x) + walking.radius / math.cos(scene.slope)
            )
        )
        if scene.slope
        else None
    )
    walker, mpc = walking.controller(friction=min(0.6, 0.9 * scene.friction), terrain=terrain)
    ground = rg.plants.Ground(
        dict.fromkeys(walking.feet, walking.radius), friction=scene.friction, slope=scene.slope
    )
    robot, x0 = walking.robot, walking.x0
    plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=ground, mass_error=scene.mass_error)
    walker.touching = lambda: plant.touching
    rng = np.random.default_rng(seed)
    weight = 9.81 * float(sum(m for m, *_ in robot.model.inertias))
    pushes = (
        np.sort(rng.uniform(3.0, seconds - 2.0, 10))
        if scene.pushes and seconds > 6.0
        else np.zeros(0)
    )
    pending, given = list(pushes), 0
    survived, judged = 0, math.inf
    moved, commanded, most = np.zeros(3), np.zeros(3), 0.0
    cones, limit = Cones(walker, mpc.problem), mpc.problem.own_bounds[1][0]
    frame = robot.model.body_names[0]
    counted, falls, passed = 0.0, 0, 0.0
    solve: list[float] = []
    spent: list[float] = []
    counts: Counter[str] = Counter()

    def settle() -> None:
        """Keeps what the controller's log and counts say; the first plan compiles."""
        solve.extend(1e3 * mpc.log.solve_seconds[1:])
        counts.update({k: int(v) for k, v in mpc.counts.items() if v})

    while passed + plant.time < seconds:
        t = passed + plant.time
        if t >= judged:
            survived, judged = survived + 1, math.inf
        if pending and t >= pending[0]:
            angle = rng.uniform(0.0, 2.0 * math.pi)
            plant.push(
                (0.1 * weight * math.cos(angle), 0.1 * weight * math.sin(angle), 0.0), 0.3, frame
            )
            pending.pop(0)
            survived += judged < math.inf  # the next one before it was judged
            given, judged = given + 1, t + 2.0
        walker.command = scene.command(t)
        began, before = time.thread_time(), mpc.log.solves
        u = mpc.step(plant.x, plant.time)
        if mpc.log.solves > max(before, 1):  # the first plan compiles
            spent.append(1e3 * (time.thread_time() - began))
        most = max(most, float((np.abs(u) / limit).max()))
        cones.look(mpc.plan)
        plant.advance(u)
        x = plant.x
        if t > 3.0:
            v = x[robot.nq : robot.nq + 6]
            moved += 1e-3 * np.array([v[0], v[1], v[5]])
            commanded += 1e-3 * np.array(walker.moving)
            counted += 1e-3
        up = 1.0 - 2.0 * (x[3] ** 2 + x[4] ** 2)
        if up < 0.7 or x[2] - math.tan(scene.slope) * x[0] < 0.5 * x0[2]:
            falls += 1
            if not pending:
                break
            settle()
            passed, judged = t, math.inf
            plant.reset()
            mpc.reset()
            walker.reset()
            cones.forget()
    settle()
    return Outcome(
        seconds=passed + plant.time,
        falls=falls,
        speed=(moved / max(counted, 1e-9)).tolist(),
        asked=(commanded / max(counted, 1e-9)).tolist(),
        counts=dict(counts),
        plan_ms=_quantiles(spent),
        wall_ms=_quantiles(solve),
        pushes=given,
        survived=survived,
        torque=most,
        cone=cones.worst,
        loaded=cones.loaded,
        plans=cones.plans,
        outside=cones.outside,
        any_outside=cones.any_outside,
        late=int(np.sum(np.array(solve) > 1e3 * PERIOD)),
    )


def _quantiles(milliseconds: list[float]) -> list[float]:
    return [float(np.median(milliseconds)), float(np.quantile(milliseconds, 0.99))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--scenes", nargs="+", default=list(SCENES), choices=list(SCENES))
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="simulated, of each scene (default 60)"
    )
    parser.add_argument(
        "--iterations", type=int, default=3, help="of a plan (default 3); 1 with default weights"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {
        "machine": machine.describe({}),
        "seconds": arguments.seconds,
        "iterations": arguments.iterations,
        "cases": {},
    }
    for name in arguments.robots:
        walking = ROBOTS[name]()
        walking.iterations = arguments.iterations
        for label in arguments.scenes:
            o = run(walking, SCENES[label], arguments.seconds)
            found["cases"][f"{name}, {label}"] = vars(o)
            told = f"fell {o.falls} times" if o.falls else "stood"
            pushes = f", {o.survived} of {o.pushes} pushes survived" if o.pushes else ""
            print(
                f"{name:5} {label:15} {told} {o.seconds:5.1f} s{pushes}; speed"
                f" {np.round(o.speed, 3)} of {np.round(o.asked, 3)}; plans {o.plan_ms[0]:.1f} ms,"
                f" 99% {o.plan_ms[1]:.1f} (by the clock {o.wall_ms[0]:.1f}, {o.wall_ms[1]:.1f},"
                f" {o.late} over {1e3 * PERIOD:g} ms); torque {o.torque:.2f} of the limit; cones"
                f" left by {o.cone:.1e}, by loaded feet {o.loaded:.1e}, by more than 1e-3 in"
                f" {o.any_outside} and {o.outside} of {o.plans} plans; counted"
                f" {o.counts or 'nothing'}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
