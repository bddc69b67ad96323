"""Optimised motions that keep out of boxes and a mesh: random motions of Panda, `python
bench/avoidance.py`.

Each is planned by `rg.plan`, which is the first guess of a problem with limits of torque, velocity,
position and `rg.Limits(scene=…, self_clearance=…)` (`Path.problem`); all are solved on all cores.
At every knot coal then measures the distance of the links, as covered, to the boxes, the triangles
themselves and each other. A violation is what is missing there of the clearance asked for; the
solver's own tolerance is 1e-4 m. The robot is example-robot-data's Panda with the shapes of its
`panda_collision.urdf`; the mesh is a ring with a square section, made here, covered by balls within
`--error` metres.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import machine
import numpy as np
from coal_peer import Peer
from planning import robots

import rigidgrad as rg

_AROUND = 24  # corners of the ring


def ring(radius: float, half: float) -> tuple[np.ndarray, np.ndarray]:
    """A closed surface: a square of half length `half` turned about z at a distance."""
    angle = 2 * np.pi * np.arange(_AROUND) / _AROUND
    square = half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    out = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    vertices = np.concatenate([[(*(radius + r) * o, z) for r, z in square] for o in out])
    faces = []
    for k in range(_AROUND):
        a, b = 4 * k, 4 * ((k + 1) % _AROUND)
        for i in range(4):
            j = (i + 1) % 4
            faces += [(a + i, b + i, b + j), (a + i, b + j, a + j)]
    return vertices, np.array(faces)


def scene(rng: np.random.Generator, error: float) -> rg.Scene:
    """Two boxes on a table, and a ring that stands somewhere around the robot."""

    def around(low: float, high: float) -> tuple[float, float]:
        angle, r = rng.uniform(-2.5, 2.5), rng.uniform(low, high)
        return r * np.cos(angle), r * np.sin(angle)

    place = np.eye(4)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    place[:3, :3] = turn * np.sign(np.linalg.det(turn))
    place[:3, 3] = (*around(0.45, 0.65), rng.uniform(0.3, 0.7))
    return rg.Scene(
        [
            rg.Box((1.0, 1.6, 0.05), (0.75, 0, -0.05), name="table"),
            rg.Box((0.12, 0.12, 0.5), (*around(0.4, 0.6), 0.25)),
            rg.Box((0.3, 0.1, 0.2), (*around(0.4, 0.7), rng.uniform(0.4, 0.8))),
            rg.Mesh(ring(0.12, 0.03), place, error=error, name="ring"),
        ]
    )


def motions(
    robot: rg.Robot, count: int, clearance: float, error: float, steps: int, seed: int
) -> list[tuple[rg.Scene, rg.planning.Path, rg.Problem]]:
    """Motions that a plan was found for, and their problems."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        around = scene(rng, error)
        q = robot.random(200, seed=int(rng.integers(1 << 30))).q
        q = q[~robot.in_collision(q, around, margin=clearance + 0.01)]
        if len(q) < 2:
            continue
        path = rg.plan(robot, q[0], q[1], around, margin=clearance, torque=True)
        if path.solved:
            found.append((around, path, path.problem(robot, steps)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--clearance", type=float, default=0.01, help="metres")
    parser.add_argument("--error", type=float, default=0.03, help="metres, of the ring's cover")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    robot = robots()["panda"]()
    given = motions(
        robot, options.count, options.clearance, options.error, options.steps, options.seed
    )
    problems = [problem for _, _, problem in given]
    solver = rg.PDDP(iterations=options.iterations)
    rg.solve(problems[0], rg.PDDP(iterations=1))  # what is compiled
    before = time.perf_counter()
    solutions = rg.solve(problems, solver)
    seconds = time.perf_counter() - before
    rows: list[dict[str, Any]] = []
    for (around, path, _), s in zip(given, solutions, strict=True):
        peer = Peer(robot, around)
        q = s.x[:, : robot.nq]
        exact = min(peer.least(x) for x in q)
        cover = float(robot.distances(q, around, gradient=False).least.min())
        rows.append(
            {
                "status": s.status,
                "corners": len(path.corners),
                "iterations": s.iterations,
                "missing_by_coal": options.clearance - exact,
                "missing_by_cover": options.clearance - cover,
                "stated": float(s.stats["violation"]),
                "end": float(np.abs(q[-1] - path.q[-1]).max()),
                "torque": float((np.abs(s.u) / robot.limits.effort).max()),
            }
        )
    said = Counter(r["status"] for r in rows)
    done = [r for r in rows if r["status"] in ("converged", "slow")]
    summary = {
        "motions": len(rows),
        "statuses": dict(said),
        "seconds": seconds,
        "with_corners": sum(r["corners"] > 2 for r in rows),
        "median_iterations": float(np.median([r["iterations"] for r in rows])),
        "worst_by_coal": max(r["missing_by_coal"] for r in rows),
        "worst_by_coal_of_converged": max((r["missing_by_coal"] for r in done), default=None),
        "worst_by_cover_of_converged": max((r["missing_by_cover"] for r in done), default=None),
        "furthest_end_of_converged": max((r["end"] for r in done), default=None),
        "most_of_torque": max(r["torque"] for r in rows),
    }
    print(json.dumps(summary, indent=1))
    for r in rows:
        if r["status"] != "converged":
            print(r)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine.describe({}), "summary": summary, "rows": rows})
        )


if __name__ == "__main__":
    main()
