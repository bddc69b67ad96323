"""An attack on rg.MPC: minutes of simulated time with random faults, and every control checked:
finite, and within the bounds of that moment.

    python tools/attack_mpc.py [--minutes 60] [--scenes pendulum cartpole iiwa14 quadrotor hyq]
    [--seed 0]

Samples are lost, delayed, repeated, huge, not numbers, of a wrong kind or with a quaternion that is
none; the clock jumps and stands still; targets raise; torque limits, obstacles and weights change,
some of them to nonsense. HyQ walks in MuJoCo under a `Walker`, whose commands, feet and terrain are
attacked as well; it may fall. The exit code is 1 where a control was wrong or an exception left
`step`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rigidgrad as rg


@dataclass
class Scene:
    """A controller and its plant, what may change meanwhile, and the bounds (nu,) that hold now."""

    mpc: rg.MPC
    plant: Any
    start: np.ndarray
    targets: Callable[[np.random.Generator], Any]
    limits: rg.Limits
    torque: float
    quaternion: slice | None = None  # where in a state

    def __post_init__(self) -> None:
        self.most, self.middle = (
            self.torque,
            self.limits.obstacles[0].center if self.limits.obstacles else None,
        )

    def change(self, rng: np.random.Generator) -> str:
        """A number, right or wrong, becomes another."""
        kind = str(
            rng.choice(["torque", "weight", "nonsense", *["obstacle"] * (self.middle is not None)])
        )
        if kind == "torque":
            self.limits.torque = self.torque = float(rng.uniform(0.3, 1.0) * self.most)
        elif kind == "weight":
            self.mpc.problem.costs[-1].weight = float(10.0 ** rng.uniform(-4, 0))
        elif kind == "obstacle":
            self.limits.obstacles[0].center = np.asarray(self.middle) + rng.normal(
                scale=0.1, size=3
            )
        else:
            self.limits.torque = float(rng.choice([np.nan, -1.0]))
        self.mpc.update()
        return kind

    def aim(self, rng: np.random.Generator) -> str:
        """Another target."""
        self.mpc.target = self.targets(rng)
        return "target"

    def break_aim(self, rng: np.random.Generator, until: float) -> str:
        """A target that fails for a while."""
        self.mpc.target = _raising(self.targets(rng), until)
        return "raising target"

    def mend(self) -> None:
        """Nonsense lasts for a step; the bounds of before hold meanwhile."""
        self.limits.torque = self.torque


class Walking(Scene):
    """A robot on its feet; its target is a Walker."""

    @property
    def walker(self) -> rg.gaits.Walker:
        return self.mpc.target

    def aim(self, rng: np.random.Generator) -> str:
        kind = str(rng.choice(["command", "absurd command", "no command", "touching"]))
        if kind == "touching":
            self.walker.touching = [None, rng.random(4) < 0.5, True, self.plant.touching][
                rng.integers(4)
            ]
        elif kind == "no command":
            with contextlib.suppress(rg.errors.RigidgradError):
                self.walker.command = [
                    (np.nan, 0.0, 0.0),
                    (1.0, 2.0),
                    "forward",
                    (np.inf, 0.0, 0.0),
                ][rng.integers(4)]
        else:
            size = 0.4 if kind == "command" else 10.0 ** rng.uniform(0, 300)
            self.walker.command = size * rng.uniform(-1, 1, 3)
        return kind

    def break_aim(self, rng: np.random.Generator, until: float) -> str:
        kind = str(rng.choice(["raising terrain", "bottomless terrain", "wrong feet"]))
        if kind == "wrong feet":
            self.walker.touching = [np.ones(3), "all", np.nan, [[None]]][rng.integers(4)]
        else:
            self.walker.terrain = (
                _nothing if kind == "raising terrain" else lambda x, y: np.nan * np.asarray(x)
            )
        return kind

    def mend(self) -> None:
        """Ground that was gone is back some steps later, feet are known again, and commands are
        those of a robot that can.
        """
        super().mend()
        self.broken = getattr(self, "broken", 0) + 1
        if self.broken >= 25:
            self.broken = 0
            self.walker.terrain = self.walker.touching = None
            if np.abs(self.walker.command).max() > 1.0:
                self.walker.command = (0.2, 0.0, 0.0)


def _nothing(x: Any, y: Any) -> Any:
    raise RuntimeError("the map of the terrain is gone")


def scene(name: str) -> Scene:
    make = {
        "pendulum": _pendulum,
        "cartpole": _cartpole,
        "iiwa14": _arm,
        "quadrotor": _quadrotor,
        "hyq": _walking,
    }
    if name not in make:
        raise SystemExit(f"there is no scene {name!r}; these are: {', '.join(make)}")
    return make[name]()


def _pendulum() -> Scene:
    robot, start, limits = rg.load("pendulum"), np.zeros(2), rg.Limits(torque=5.0, velocity=8.0)
    costs = [rg.costs.State([np.pi, 0.0], weight=1.0, final=50.0), rg.costs.Effort(0.01)]
    problem = rg.Problem(robot, start=start, steps=20, dt=0.05, costs=costs, limits=limits)
    mpc = rg.MPC(problem, period=0.04, observer=True, log=1000)
    return Scene(
        mpc,
        rg.plants.Simulator(robot, start, dt=0.02),
        start,
        lambda rng: [rng.uniform(-3, 3), 0.0],
        limits,
        5.0,
    )


def _cartpole() -> Scene:
    robot, drive, start = rg.load("cartpole"), [[1.0], [0.0]], np.array([0.0, np.pi, 0.0, 0.0])
    limits = rg.Limits(torque=30.0, position=([-2.0, -np.inf], [2.0, np.inf]))
    costs = [rg.costs.State(start, weight=[1.0, 1.0, 0.1, 0.1], final=50.0), rg.costs.Effort(0.01)]
    problem = rg.Problem(
        rg.RobotSystem(robot, drive), start=start, steps=25, dt=0.04, costs=costs, limits=limits
    )
    mpc = rg.MPC(problem, period=0.04, latency=0.04, log=1000)
    plant = rg.plants.Simulator(robot, start, dt=0.02, actuation=drive)
    return Scene(mpc, plant, start, lambda rng: [rng.uniform(-1, 1), np.pi, 0.0, 0.0], limits, 30.0)


def _arm() -> Scene:
    robot, start = rg.load("iiwa14"), np.r_[-0.5, 0.6, 0.0, -1.4, 0.0, 1.0, 0.0, np.zeros(7)]
    still = np.r_[np.zeros(7), np.ones(7)]
    limits = rg.Limits(
        torque=200.0,
        velocity=2.0,
        obstacles=[rg.Obstacle([0.65, 0.0, 0.5], 0.08)],
        spheres=[rg.LinkSphere("iiwa_link_7", 0.05)],
    )
    costs = [
        rg.costs.Reach("iiwa_link_7", [0.55, 0.3, 0.5], weight=20.0, final=1000.0),
        rg.costs.State(np.zeros(14), weight=0.1 * still, final=10 * still),
        rg.costs.Effort(1e-3, reference="gravity"),
    ]
    problem = rg.Problem(robot, start=start, steps=20, dt=0.025, costs=costs, limits=limits)
    mpc = rg.MPC(problem, period=0.04, observer=True, integral=True, log=1000)
    plant = rg.plants.Simulator(robot, start, dt=0.01)

    def target(rng: np.random.Generator) -> Any:
        return [rng.uniform(0.45, 0.65), rng.uniform(-0.4, 0.4), rng.uniform(0.35, 0.7)]

    return Scene(mpc, plant, start, target, limits, 200.0)


def _quadrotor() -> Scene:
    robot, arm, yaw = rg.load("quadrotor"), 0.175, 0.0245
    drive = np.array(
        [
            [0, 0, 0, 0],
            [0, 0, 0, 0],
            [1, 1, 1, 1],
            [0, arm, 0, -arm],
            [-arm, 0, arm, 0],
            [yaw, -yaw, yaw, -yaw],
        ],
        dtype=float,
    )
    start = np.r_[0, 0, 1.0, 0, 0, 0, 1.0, np.zeros(6)]
    limits = rg.Limits(torque=6.0)
    costs = [
        rg.costs.State(start, weight=np.r_[np.ones(6), 0.1 * np.ones(6)], final=50.0),
        rg.costs.Effort(0.1, reference=0.5 * 9.81 / 4),
    ]
    problem = rg.Problem(
        rg.RobotSystem(robot, drive), start=start, steps=20, dt=0.03, costs=costs, limits=limits
    )
    mpc = rg.MPC(problem, period=0.04, log=1000)
    plant = rg.plants.Simulator(robot, start, dt=0.01, actuation=drive)
    return Scene(
        mpc,
        plant,
        start,
        lambda rng: np.r_[rng.uniform(-1, 1, 3) + [0, 0, 2], 0, 0, 0, 1.0, np.zeros(6)],
        limits,
        6.0,
        slice(3, 7),
    )


def _walking() -> Scene:
    from rigidgrad.play.walking import walking

    site = walking("hyq")
    walker = site.walker()
    walker.limits = limits = rg.Limits(torque=150.0)
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker, log=1000)
    plant = site.plant(mpc.system, 0.8, 0.0)
    return Walking(mpc, plant, plant.x.copy(), lambda rng: None, limits, 150.0, slice(3, 7))


def _spoilt(x: np.ndarray, rng: np.random.Generator, quaternion: slice | None = None) -> Any:
    """A measurement as no sensor should give it."""
    kind, bad = rng.integers(7 if quaternion is None else 8), x.copy()
    if kind == 0:
        bad[rng.integers(len(x))] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 1:
        bad[rng.integers(len(x))] = rng.choice([-1, 1]) * 10.0 ** rng.uniform(1, 308)
    elif kind == 2:
        bad[len(x) // 2 :] = rng.choice([-1, 1]) * 10.0 ** rng.uniform(1, 160)
    elif kind == 3:
        bad += rng.normal(scale=10.0 ** rng.uniform(-2, 4), size=len(x))
    elif kind == 4:
        return None
    elif kind == 5:
        return rng.choice(["state", 3.0, -1])
    elif kind == 7:
        bad[quaternion] *= rng.choice([0.0, -1.0, 1e-200, 1e-3, 2.0, 1e11, np.nan])
    else:
        return bad[: rng.integers(len(x))]
    return bad


def _raising(value: Any, until: float) -> Callable[[Any], Any]:
    """A target that works when it is set and fails for a while."""
    left = [1]

    def target(t: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
        elif np.min(t) < until:
            raise RuntimeError("the target is gone")
        return np.broadcast_to(value, (*np.shape(t), len(value)))

    return target


def attack(s: Scene, minutes: float, rng: np.random.Generator) -> tuple[Counter[str], list[str]]:
    """What was done, and what went wrong (the first few)."""
    done: Counter[str] = Counter()
    wrong: list[str] = []
    mpc, plant, offset, seen = s.mpc, s.plant, 0.0, [(s.plant.x.copy(), s.plant.time)]
    steps = round(60.0 * minutes / plant.dt)
    for k in range(steps):
        x, measured = plant.x, plant.time + offset
        now: Any = measured
        chance = rng.random()
        if chance < 0.02:
            x, done["spoilt"] = _spoilt(plant.x, rng, s.quaternion), done["spoilt"] + 1
        elif chance < 0.04:
            (x, measured), done["delayed"] = (
                seen[-rng.integers(1, len(seen) + 1)],
                done["delayed"] + 1,
            )
        elif chance < 0.045:
            measured, done["wrong age"] = (
                rng.choice([np.nan, -1e300, 1e300, now - 1.0]),
                done["wrong age"] + 1,
            )
        elif chance < 0.05:
            now, done["wrong time"] = (
                rng.choice([np.nan, np.inf, now - 3.0, now + 1e6, now * 0.5, 1e300]),
                done["wrong time"] + 1,
            )
        elif chance < 0.051:
            offset, done["clock moved"] = (
                offset + float(rng.normal(scale=2.0)),
                done["clock moved"] + 1,
            )
        elif chance < 0.055:
            done[s.change(rng)] += 1
        elif chance < 0.058:
            done[s.aim(rng)] += 1
        elif chance < 0.059:
            done[s.break_aim(rng, measured + 0.5)] += 1
        elif chance < 0.0595:
            plant.reset(s.start)  # the robot is carried somewhere else
            offset += float(rng.normal())
            done["carried"] += 1
        try:
            u = mpc.step(x, now, measured)
            if not (np.isfinite(u).all() and (np.abs(u) <= s.torque).all()):
                wrong.append(f"step {k}: the control {u} is not finite or not within {s.torque:g}")
                u = np.zeros(len(u))
        except Exception as error:
            wrong.append(f"step {k}: {type(error).__name__}: {error}")
            u = np.zeros(mpc.system.nu)
        s.mend()
        try:
            plant.advance(u)
        except (
            rg.errors.RigidgradError
        ):  # torques within bounds can throw a light robot out of all numbers
            plant.reset(s.start)
            done["ran away"] += 1
        seen = [*seen[-15:], (plant.x.copy(), plant.time + offset)]
        if len(wrong) >= 10:
            break
    done["steps"] = k + 1
    return done, wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of simulated time, for each scene"
    )
    parser.add_argument(
        "--scenes", nargs="+", default=["pendulum", "cartpole", "iiwa14", "quadrotor", "hyq"]
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    failed = 0
    for name in options.scenes:
        began = time.perf_counter()
        s = scene(name)
        done, wrong = attack(s, options.minutes, np.random.default_rng([options.seed, len(name)]))
        failed += bool(wrong)
        said = ", ".join(
            f"{what} {count}" for what, count in sorted(done.items()) if what != "steps"
        )
        counts = ", ".join(f"{what} {count}" for what, count in s.mpc.counts.items() if count)
        found = "WRONG" if wrong else "every control finite and within bounds"
        print(
            f"{name}: {done['steps']} steps, {done['steps'] * s.plant.dt / 60:.1f} minutes"
            f" simulated in {time.perf_counter() - began:.0f} s; {found}"
        )
        print(f"  done: {said}\n  counted: {counts}", flush=True)
        for line in wrong:
            print(f"  {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
