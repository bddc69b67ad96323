"""A library of motions on one worker process and on two: problems a second, start-up of the workers apart. See docs/cluster.md."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np

import rigidgrad as rg


def library(count: int) -> tuple[rg.Problem, np.ndarray]:
    robot = rg.load("iiwa14")
    costs = [rg.costs.State(np.zeros(14), weight=0.1, final=100.0), rg.costs.Effort(1e-3)]
    return rg.Problem(robot, start=np.zeros(14), steps=63, dt=0.5 / 63, costs=costs), np.c_[
        robot.random(batch=(count,), seed=0).q, np.zeros((count, 7))
    ]


def measure(workers: int, count: int, rounds: int) -> dict[str, Any]:
    """Seconds for all motions, the least of some rounds, once the workers have solved a few."""
    problem, goals = library(count)
    seconds = []
    with rg.cluster.local(workers) as client, tempfile.TemporaryDirectory() as folder:
        few = max(workers * 60, 60)
        rg.cluster.solve(problem, Path(folder) / "few", targets={0: goals[:few]}, chunk=10, cluster=client)
        for k in range(rounds):
            began = time.perf_counter()
            results = rg.cluster.solve(problem, Path(folder) / str(k), targets={0: goals}, cluster=client)
            seconds.append(time.perf_counter() - began)
        converged = float((results["status"] == "converged").mean())
    return {
        "workers": workers,
        "motions": count,
        "seconds": min(seconds),
        "motions_per_second": count / min(seconds),
        "converged": converged,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="store the results; without a file, print them")
    parser.add_argument("--count", type=int, default=100_000, help="motions in the library")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if options.json == "-":
        sys.stdout = sys.stderr
    rows = [measure(workers, options.count, options.rounds) for workers in (1, 2)]
    for row in rows:
        print(f"{row['workers']} workers: {row['motions_per_second']:.0f} motions a second, {100 * row['converged']:.2f}% converged")
    result = {"machine": machine.describe({}), "rows": rows, "speed_up": rows[1]["motions_per_second"] / rows[0]["motions_per_second"]}
    print(f"speed-up {result['speed_up']:.2f}")
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
