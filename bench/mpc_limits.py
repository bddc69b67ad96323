"""Limits in closed loop: how near the tool of an iiwa14 comes to an obstacle under MPC, for weights
of any scale and 1, 3 and 10 iterations per plan. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report

import rigidgrad as rg

POINT = (0.0, 0.0, 0.0635)
READY = np.r_[0.0, 0.4, 0.0, -1.4, 0.0, 1.0, 0.0, np.zeros(7)]
START, END = READY + np.r_[-0.5, np.zeros(13)], READY + np.r_[0.5, np.zeros(13)]
OBSTACLE, TOOL = 0.08, 0.05  # radii, metres
SCALES, ITERATIONS = (1e3, 1.0, 1e-1, 1e-2, 1e-3), (1, 3, 10)
PERIOD = 0.01

robot = rg.load("iiwa14")


def tip(x: np.ndarray) -> np.ndarray:
    T = robot.forward_kinematics(x[..., :7])["iiwa_link_7"]
    return T[..., :3, 3] + T[..., :3, :3] @ np.array(POINT)


def problem(center: np.ndarray, scale: float = 1.0) -> rg.Problem:
    """From one side to the other, within the robot's torques and around a sphere; all weights times
    `scale`.
    """
    still = np.r_[np.zeros(7), np.ones(7)]
    costs = [
        rg.costs.Reach(
            "iiwa_link_7", tip(END), offset=POINT, weight=20.0 * scale, final=1000.0 * scale
        ),
        rg.costs.State(np.zeros(14), weight=0.1 * scale * still, final=10.0 * scale * still),
        rg.costs.Effort(1e-3 * scale, reference="gravity"),
    ]
    limits = rg.Limits(
        torque=True,
        obstacles=[rg.Obstacle(center, OBSTACLE)],
        spheres=[rg.LinkSphere("iiwa_link_7", TOOL, POINT)],
    )
    return rg.Problem(robot, start=START, steps=40, dt=0.0125, costs=costs, limits=limits)


def drive(
    own: rg.Problem,
    iterations: int,
    seconds: float,
    center: Callable[[float, np.ndarray], np.ndarray],
    **options: Any,
) -> dict[str, Any]:
    """`center(t, x)`: where the obstacle is now; the controller is told so, and no more."""
    mpc = rg.MPC(own, rg.PDDP(iterations=iterations), period=PERIOD, **options)
    plant = rg.plants.Simulator(robot, START, dt=0.002)
    least, fastest = np.inf, 0.0
    for _ in range(round(seconds / plant.dt)):
        at = center(plant.time, plant.x)
        if not np.array_equal(at, own.limits.obstacles[0].center):
            own.limits.obstacles[0].center = at
            mpc.update()
        plant.advance(mpc.step(plant.x, plant.time))
        least = min(least, float(np.linalg.norm(tip(plant.x) - at)) - OBSTACLE - TOOL)
        fastest = max(
            fastest,
            float(np.linalg.norm(robot.jacobian(plant.x[:7], "iiwa_link_7")[:3] @ plant.x[7:])),
        )
    left = float(np.linalg.norm(tip(plant.x) - tip(END)))
    return {
        "least_mm": 1e3 * least,
        "end_mm": 1e3 * left,
        "violated": mpc.counts["violated"],
        "fastest": fastest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    options = parser.parse_args()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    between = 0.5 * (tip(START) + tip(END)) + np.array([0.04, 0.0, 0.02])
    result: dict[str, Any] = {
        "machine": machine.describe({}),
        "standing": [],
        "coming": [],
        "appearing": [],
    }
    for scale in SCALES:
        for iterations in ITERATIONS:
            found = drive(problem(between, scale), iterations, 1.2, lambda t, x: between)
            result["standing"].append({"scale": scale, "iterations": iterations} | found)
    for speed in (0.1, 0.2, 0.3):
        own = problem(np.full(3, 5.0))
        coming = drive(
            own,
            1,
            0.6 / speed,
            lambda t, x, v=speed: tip(START) + np.array([0.03, 0.3 - v * t, 0.02]),
            target=tip(START),
        )
        result["coming"].append({"speed": speed} | coming)
    for policy in ("slow", "hold", "report"):
        placed: list[np.ndarray] = []

        def appears(t: float, x: np.ndarray, placed: list[np.ndarray] = placed) -> np.ndarray:
            v = robot.jacobian(x[:7], "iiwa_link_7")[:3] @ x[7:]
            if not placed and t >= 0.15:
                placed.append(tip(x) + (OBSTACLE + TOOL + 0.02) * v / np.linalg.norm(v))
            return placed[0] if placed else np.full(3, 5.0)

        result["appearing"].append(
            {"policy": policy}
            | drive(problem(np.full(3, 5.0)), 1, 1.0, appears, on_violation=policy)
        )

    def numbers(r):
        return [
            f"{r['least_mm']:+.2f}",
            f"{r['end_mm']:.1f}",
            str(r["violated"]),
        ]

    columns = ["least clearance, mm", "from the target, mm", "violated"]
    print(
        "an obstacle in the way\n"
        + report.table(
            ["weights times", "iterations", *columns],
            [[f"{r['scale']:g}", str(r["iterations"]), *numbers(r)] for r in result["standing"]],
        )
    )
    print(
        "\none that comes, known only where it is now\n"
        + report.table(
            ["m/s", "", columns[0], columns[2]],
            [[f"{r['speed']:g}", "", numbers(r)[0], numbers(r)[2]] for r in result["coming"]],
        )
    )
    print(
        "\none that appears 2 cm ahead of the moving tool\n"
        + report.table(
            ["on_violation", "", columns[0], columns[2], "fastest, m/s"],
            [
                [r["policy"], "", numbers(r)[0], numbers(r)[2], f"{r['fastest']:.2f}"]
                for r in result["appearing"]
            ],
        )
    )
    if options.json == "-":
        sys.__stdout__.write(json.dumps(result, indent=1) + "\n")
    elif options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
