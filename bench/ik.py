"""Inverse kinematics against mink, pink and OptIK, one core, in turns: `python bench/ik.py [--json
FILE]`.

Random reachable poses within the limits of iiwa14, Panda and UR5; a humanoid with four frames at
once; one target from Python; a figure eight tracked by differential inverse kinematics; and arms
as in the peers' own examples. Every result is judged by Pinocchio's kinematics: both errors at most
1e-6.

The examples (`--parts examples`): pink's `arm_ur5.py`, whose target moves on a line, its seconds
and weights; and mink's `arm_iiwa.py`, its weights, thresholds and up to 20 steps of 2 ms a target,
which there is dragged by hand, and here goes round a figure eight from its keyframe. Both give the
frame a Levenberg-Marquardt damping, which ours has not. Models are example-robot-data's UR5 and the
bundled iiwa14; all solve their programs by DAQP, where ours does not.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import machine
import numpy as np
import pinocchio as pin
from contacts import load_example
from peers import environment

import rigidgrad as rg

ROBOTS = {
    "iiwa14": ("iiwa14", "base", "iiwa_link_ee"),
    "panda": ("panda.urdf", "panda_link0", "panda_hand_tcp"),
    "ur5": ("ur5_robot.urdf", "base_link", "ee_link"),
}
TALOS = (
    "talos_reduced.urdf",
    ("left_sole_link", "right_sole_link", "gripper_left_base_link", "gripper_right_base_link"),
)
WANTED = {
    "mink": "1.3.0",
    "pin-pink": "4.4.0",
    "optik-py": "0.5.0",
    "pin": "4.1.0",
    "mujoco": "4.0.0",
    "daqp": "0.11.0",
}
PARTS = ("reaching", "humanoid", "tracking", "examples")
NEAR = 1e-6
COUNT, DT, POSTURE = 10_000, 0.005, 1e-4
MANY = 1024  # robots that are tracked at once
PEERS = {"optik": 200, "mink": 25, "pink": 25}  # targets of a round


class Judge:
    """Errors of configurations by Pinocchio, metres and radians."""

    def __init__(self, robot: rg.Robot):
        self.model = robot.to_pinocchio()
        self.data = self.model.createData()

    def errors(self, q: np.ndarray, frame: str, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = self.model.getFrameId(frame)
        found = []
        for x, wanted in zip(q.astype(float), T, strict=True):
            if not np.isfinite(x).all():
                found.append((np.inf, np.inf))
                continue
            pin.framesForwardKinematics(self.model, self.data, x)
            placement = self.data.oMf[index]
            turned = pin.log3(placement.rotation.T @ wanted[:3, :3])
            found.append(
                (np.linalg.norm(placement.translation - wanted[:3, 3]), np.linalg.norm(turned))
            )
        return tuple(np.array(found).T)

    def share(self, q: np.ndarray, frame: str, T: np.ndarray) -> float:
        return float((np.maximum(*self.errors(q, frame, T)) <= NEAR).mean())


def arm(label: str) -> rg.Robot:
    robot = load_example(ROBOTS[label][0], floating_base=False)
    fingers = {j.name: 0.0 for j in robot.model.joints if "finger" in j.name and not j.is_mimic}
    return robot.reduced(lock=fingers) if fingers else robot


def summary(times: list[float], count: int) -> dict[str, float]:
    """Of seconds: microseconds each."""
    return {
        "best": 1e6 * min(times) / count,
        "median": 1e6 * float(np.median(times)) / count,
        "rounds": len(times),
    }


def timed(function) -> tuple[float, object]:
    before = time.process_time()
    result = function()
    return time.process_time() - before, result


def reaching(label: str, rounds: int, worker: environment.Worker | None) -> dict:
    robot, frame = arm(label), ROBOTS[label][2]
    judge = Judge(robot)
    q = robot.random((COUNT,), seed=0).q
    T = robot.forward_kinematics(q)[frame]
    starts = robot.random((COUNT,), seed=1).q
    limits = robot.limits
    times: dict[str, list[float]] = {}
    shares: dict[str, float] = {}
    if worker:
        # velocities that the models state; the frame is the tool's
        worker.ask(
            "open",
            urdf=robot.to_urdf(),
            base=ROBOTS[label][1],
            frame=frame,
            names=list(robot.joints),
            weight=POSTURE,
            fastest=limits.velocity.tolist(),
        )
    found: dict[str, list] = {name: [] for name in PEERS}
    inside = True
    for turn in range(rounds):
        for dtype in ("float64", "float32"):
            wanted = T.astype(dtype)
            robot.inverse_kinematics({frame: wanted[:100]})
            taken, r = timed(lambda wanted=wanted: robot.inverse_kinematics({frame: wanted}))
            times.setdefault(dtype, []).append(taken)
            if not turn:
                shares[dtype] = judge.share(r.q, frame, T)
                inside &= bool(
                    (
                        (r.q.astype(float) >= limits.lower) & (r.q.astype(float) <= limits.upper)
                    ).all()
                )
        for peer, count in PEERS.items() if worker else ():
            part = slice(turn * count, (turn + 1) * count)
            answer = worker.ask(
                "reach", peer=peer, targets=T[part].tolist(), starts=starts[part].tolist()
            )
            times.setdefault(peer, []).append(answer["seconds"])
            found[peer] += [([np.nan] * robot.nq if x is None else x) for x in answer["q"]]
    for peer, answers in found.items():
        if answers:
            shares[peer] = judge.share(np.array(answers), frame, T[: len(answers)])
    result = {
        "robot": label,
        "count": COUNT,
        "within limits": inside,
        "solved": shares,
        "us": {
            name: summary(x, COUNT if name.startswith("float") else PEERS[name])
            for name, x in times.items()
        },
        "one": one_target(robot, frame, T),
    }
    result["per second"] = {name: 1e6 / x["best"] for name, x in result["us"].items()}
    far = T[:2000].copy()
    far[:, :3, 3] += 3.0 * far[:, :3, 3] / np.linalg.norm(far[:, :3, 3], axis=1, keepdims=True)
    taken, r = timed(lambda: robot.inverse_kinematics({frame: far}))
    result["unreachable"] = {"success": float(r.success.mean()), "us": 1e6 * taken / len(far)}
    for name, x in result["per second"].items():
        print(
            f"{label:7} {name:8} {x:10,.0f} a second, {100 * shares[name]:.2f}% right", flush=True
        )
    print(
        f"{label:7} one target, 32 seeds: {result['one']['median']:.1f} µs (wall, median),"
        f" unreachable {result['unreachable']}",
        flush=True,
    )
    return result


def one_target(robot: rg.Robot, frame: str, T: np.ndarray) -> dict[str, float]:
    """Wall time of single calls from Python, microseconds."""
    taken = []
    for pose in T[:600]:
        pose = pose.copy()
        before = time.perf_counter()
        robot.inverse_kinematics({frame: pose}, seeds=32)
        taken.append(1e6 * (time.perf_counter() - before))
    taken = taken[100:]
    return {
        "median": float(np.median(taken)),
        "p90": float(np.quantile(taken, 0.9)),
        "best": min(taken),
    }


def humanoid(rounds: int) -> dict:
    """Four frames at once: configurations of joints at random within their limits, the pelvis
    upright at a height of a metre.
    """
    robot = load_example(TALOS[0], floating_base=True)
    q = robot.random((2000,), seed=0).q
    q[:, :7] = (0, 0, 1, 0, 0, 0, 1)
    T = robot.forward_kinematics(q)
    targets = {frame: T[frame] for frame in TALOS[1]}
    robot.inverse_kinematics({frame: x[:100] for frame, x in targets.items()})
    times = []
    for _ in range(rounds):
        taken, r = timed(lambda: robot.inverse_kinematics(targets))
        times.append(taken)
    judge = Judge(robot)
    right = np.all(
        [np.maximum(*judge.errors(r.q, frame, x)) <= NEAR for frame, x in targets.items()], axis=0
    )
    result = {
        "robot": "talos, four frames",
        "count": len(q),
        "solved": float(right.mean()),
        "us": summary(times, len(q)),
    }
    result["per second"] = 1e6 / result["us"]["best"]
    print(
        f"talos, four frames: {result['per second']:,.0f} a second, {100 * result['solved']:.2f}%"
        " right",
        flush=True,
    )
    return result


def tracking(label: str, rounds: int, worker: environment.Worker | None) -> dict:
    """A figure eight at constant orientation, 400 steps: time of a step, and how far the frame is
    from the target after each.
    """
    robot, frame = arm(label), ROBOTS[label][2]
    judge = Judge(robot)
    q0 = robot.limits.lower + 0.65 * (robot.limits.upper - robot.limits.lower)
    T0 = robot.forward_kinematics(q0)[frame]
    phase = np.linspace(0, 2 * np.pi, 400)
    T = np.repeat(T0[None], len(phase), axis=0)
    T[:, 1, 3] += 0.08 * np.sin(phase)
    T[:, 2, 3] += 0.04 * np.sin(2 * phase)
    task, rest = rg.ik.Frame(frame, T0), rg.ik.Posture(q0, weight=POSTURE)
    velocity = rg.ik.Velocity(robot, [task, rest])
    times: dict[str, list[float]] = {}
    paths: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        q, path = q0, []
        before = time.process_time()
        for pose in T:
            task.target = pose
            q = velocity.step(q, DT).q
            path.append(q)
        times.setdefault("rigidgrad", []).append(time.process_time() - before)
        paths["rigidgrad"] = np.array(path)
        for peer in ("mink", "pink") if worker else ():
            answer = worker.ask("follow", peer=peer, targets=T.tolist(), start=q0.tolist(), dt=DT)
            times.setdefault(peer, []).append(answer["seconds"])
            paths[peer] = np.array(answer["q"])
    rg_batch(velocity, task, q0, T, times)
    errors = {name: judge.errors(path, frame, T) for name, path in paths.items()}
    result = {
        "robot": label,
        "steps": len(T),
        "us": {
            name: summary(x, len(T) * (MANY if name == "rigidgrad, many" else 1))
            for name, x in times.items()
        },
        "error": {
            name: {"m": float(p.max()), "rad": float(r.max())} for name, (p, r) in errors.items()
        },
        "apart": {
            name: float(np.abs(path - paths["rigidgrad"]).max()) for name, path in paths.items()
        },
    }
    for name, x in result["us"].items():
        e = result["error"].get(name, result["error"]["rigidgrad"])
        print(
            f"{label:7} {name:9} a step {x['best']:6.1f} µs, off by at most {1e3 * e['m']:.3f} mm,"
            f" {1e3 * e['rad']:.3f} mrad; q differs by {result['apart'].get(name, 0.0):.0e}",
            flush=True,
        )
    return result


class Example(NamedTuple):
    """Of a peer: its robot and frame, where it starts, its targets from there, and its numbers; the
    first `settling` steps, on the way to the target, do not count for the error.
    """

    robot: str
    frame: str
    q0: list[float]
    dt: float
    posture: float  # its cost, the root of a weight
    damping: float
    most: int  # steps a target
    near: float
    settling: int
    limits: list[rg.ik.VelocityLimit]


EXAMPLES = {
    "pink": Example(
        "ur5", "tool0", [1, 1, 1, 0, 0, 0], 5e-3, 1e-3, 1e-12, 1, 0, 400, [rg.ik.VelocityLimit()]
    ),
    "mink": Example(
        "iiwa14",
        "iiwa_link_ee",
        [0, 0, 0, -1.5708, 0, 1.5708, 0],
        2e-3,
        1e-2,
        1e-3,
        20,
        1e-4,
        0,
        [],
    ),
}


def targets_of(peer: str, T0: np.ndarray, dt: float) -> np.ndarray:
    """Two rounds."""
    t = dt * np.arange(int(2 * np.pi / dt))
    T = np.repeat(T0[None], len(t), axis=0)
    if peer == "pink":
        T[:, 1, 3], T[:, 2, 3] = 0.5 + 0.1 * np.sin(2.0 * t), 0.2
    else:
        T[:, 1, 3] += 0.1 * np.sin(2.0 * t)
        T[:, 2, 3] += 0.05 * np.sin(4.0 * t)
    return T


def example(peer: str, rounds: int, worker: environment.Worker | None) -> dict:
    """A peer's own example of an arm, by it and by us in turns."""
    e = EXAMPLES[peer]
    robot = arm(e.robot)
    judge, q0 = Judge(robot), np.array(e.q0, dtype=float)
    T = targets_of(peer, robot.forward_kinematics(q0)[e.frame], e.dt)
    task = rg.ik.Frame(e.frame, T[0])
    tasks = [task, rg.ik.Posture(q0, weight=e.posture**2)]
    velocity = rg.ik.Velocity(robot, tasks, e.limits, damping=e.damping)
    velocity.step(q0, e.dt)
    if worker:
        worker.ask(
            "open",
            urdf=robot.to_urdf(),
            base=ROBOTS[e.robot][1],
            frame=e.frame,
            names=list(robot.joints),
            weight=POSTURE,
            fastest=robot.limits.velocity.tolist(),
        )
    times: dict[str, list[float]] = {}
    paths: dict[str, np.ndarray] = {}
    steps: dict[str, int] = {}
    for _ in range(rounds):
        q, path, count = q0, [], 0
        before = time.process_time()
        for pose in T:
            task.target = pose
            for _ in range(e.most):
                q = velocity.step(q, e.dt).q
                count += 1
                if e.most > 1 and is_near(robot.forward_kinematics(q), pose, e):
                    break
            path.append(q)
        times.setdefault("rigidgrad", []).append(time.process_time() - before)
        paths["rigidgrad"], steps["rigidgrad"] = np.array(path), count
        if worker:
            numbers = {k: getattr(e, k) for k in ("dt", "posture", "damping", "most", "near")}
            answer = worker.ask(
                "example", peer=peer, targets=T.tolist(), start=q0.tolist(), **numbers
            )
            times.setdefault(peer, []).append(answer["seconds"])
            paths[peer], steps[peer] = np.array(answer["q"]), answer["steps"]
    errors = {
        name: judge.errors(path[e.settling :], e.frame, T[e.settling :])
        for name, path in paths.items()
    }
    result = {
        "example": peer,
        "targets": len(T),
        "steps": steps,
        "us": {name: summary(x, len(T)) for name, x in times.items()},
        "error": {
            name: {
                "m": float(p.max()),
                "rad": float(r.max()),
                "mean m": float(p.mean()),
                "mean rad": float(r.mean()),
            }
            for name, (p, r) in errors.items()
        },
    }
    for name, x in result["us"].items():
        off = result["error"][name]
        print(
            f"{peer}'s arm, {name:9} a target {x['best']:6.1f} µs, {steps[name] / len(T):.2f} steps,"
            f" off by {1e3 * off['m']:.4f} mm, {1e3 * off['rad']:.4f} mrad at most,"
            f" {1e3 * off['mean m']:.4f} mm, {1e3 * off['mean rad']:.4f} mrad on average",
            flush=True,
        )
    return result


def is_near(frames: Any, wanted: np.ndarray, e: Example) -> bool:
    d = (frames[e.frame] - wanted).ravel()
    x, y, z = d[3:12:4].tolist()
    p = x * x + y * y + z * z
    turn = (float(d @ d) - p) / 2  # 4 sin²(θ/2)
    return p <= e.near**2 and turn <= e.near**2


def rg_batch(
    velocity: rg.ik.Velocity,
    task: rg.ik.Frame,
    q0: np.ndarray,
    T: np.ndarray,
    times: dict[str, list[float]],
) -> None:
    """The same for many robots at once, each a little further on the figure than the one before."""
    q = np.repeat(q0[None], MANY, axis=0)
    before = time.process_time()
    for k in range(len(T)):
        task.target = T[(k + np.arange(MANY)) % len(T)]
        q = velocity.step(q, DT).q
    times["rigidgrad, many"] = [time.process_time() - before]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=list(ROBOTS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    worker = None
    if not options.alone:
        python = environment.interpreter("ik", WANTED)
        worker = environment.Worker(
            python, Path(__file__).parent / "peers" / "ik_worker.py", options.core
        )
    machine.pin_to(options.core)
    found: dict = {"tracking": []}
    if "reaching" in options.parts:
        found["reaching"] = [reaching(label, options.rounds, worker) for label in options.robots]
    if "humanoid" in options.parts:
        found["humanoid"] = humanoid(options.rounds)
    for label in options.robots if "tracking" in options.parts else ():
        if worker:
            robot = arm(label)
            worker.ask(
                "open",
                urdf=robot.to_urdf(),
                base=ROBOTS[label][1],
                frame=ROBOTS[label][2],
                names=list(robot.joints),
                weight=POSTURE,
                fastest=robot.limits.velocity.tolist(),
            )
        found["tracking"].append(tracking(label, max(3, options.rounds // 2), worker))
    if "examples" in options.parts:
        found["examples"] = [
            example(peer, max(3, options.rounds // 2), worker) for peer in EXAMPLES
        ]
    if worker:
        worker.close()
    if options.json:
        options.json.write_text(
            json.dumps(
                {"machine": machine.describe({} if options.alone else WANTED), **found}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
