"""A library of motions on one worker process and on two, in turns, start-up apart; as a control,
plain processes that share nothing. See docs/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import machine
import numpy as np

import rigidgrad as rg

CHUNK = 240  # motions that a plain process solves at a time, as workers do
CONTROL = 4  # of so many motions, plain processes solve one


def library(count: int) -> tuple[rg.Problem, np.ndarray]:
    robot = rg.load("iiwa14")
    costs = [rg.costs.State(np.zeros(14), weight=0.1, final=100.0), rg.costs.Effort(1e-3)]
    return (
        rg.Problem(robot, start=np.zeros(14), steps=63, dt=0.5 / 63, costs=costs),
        np.c_[robot.random(batch=(count,), seed=0).q, np.zeros((count, 7))],
    )


def solved(problem: rg.Problem, goals: np.ndarray) -> int:
    """How many of these motions converge, by this process alone, which keeps none of them."""
    parts = [goals[k : k + CHUNK] for k in range(0, len(goals), CHUNK)]
    return sum(
        s.status == "converged"
        for part in parts
        for s in rg.solve(problem.batch(targets={0: part}), threads=1)
    )


class Shared:
    """Workers of rg.cluster.local; each call fills a folder."""

    def __init__(self, workers: int, problem: rg.Problem, stack: ExitStack):
        self.problem, self.client = problem, stack.enter_context(rg.cluster.local(workers))
        self.folder, self.calls = Path(stack.enter_context(tempfile.TemporaryDirectory())), 0

    def __call__(self, goals: np.ndarray) -> int:
        self.calls += 1
        results = rg.cluster.solve(
            self.problem,
            self.folder / str(self.calls),
            targets={0: goals},
            chunk=CHUNK,
            cluster=self.client,
        )
        return int((results["status"] == "converged").sum())


class Plain:
    """Processes that each solve their share."""

    def __init__(self, workers: int, problem: rg.Problem, stack: ExitStack):
        self.problem, self.workers = problem, workers
        self.pool = stack.enter_context(
            ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        )

    def __call__(self, goals: np.ndarray) -> int:
        return sum(
            self.pool.map(
                solved, [self.problem] * self.workers, np.array_split(goals, self.workers)
            )
        )


def measure(count: int, rounds: int) -> dict[str, Any]:
    problem, goals = library(count)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        ways = {
            kind: [maker(n, problem, stack) for n in (1, 2)]
            for kind, maker in (("cluster", Shared), ("plain", Plain))
        }
        for kind, pair in ways.items():
            for way in pair:
                way(goals[:480])
            rows = [{"workers": n, "motions": 0, "seconds": 0.0, "converged": 0} for n in (1, 2)]
            found[kind] = {"rows": rows, "speed_up_of_rounds": []}
        for k in range(rounds):
            for kind, pair in ways.items():
                part, taken = goals[k :: rounds * (CONTROL if kind == "plain" else 1)], []
                for way, row in zip(pair, found[kind]["rows"], strict=True):
                    began = time.perf_counter()
                    row["converged"] += way(part)
                    taken.append(time.perf_counter() - began)
                    row["motions"] += len(part)
                    row["seconds"] += taken[-1]
                found[kind]["speed_up_of_rounds"].append(taken[0] / taken[1])
    for kind in found:
        one, two = found[kind]["rows"]
        found[kind]["speed_up"] = one["seconds"] / two["seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them",
    )
    parser.add_argument("--count", type=int, default=100_000, help="motions in the library")
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="parts of the library, each solved by one worker, then by two",
    )
    options = parser.parse_args()
    if options.json == "-":
        sys.stdout = sys.stderr
    result = measure(options.count, options.rounds)
    for kind, found in result.items():
        for row in found["rows"]:
            rate = row["motions"] / row["seconds"]
            print(
                f"{kind}, {row['workers']}: {rate:.0f} motions a second, {row['converged']} of"
                f" {row['motions']} converged"
            )
        print(
            f"{kind}: speed-up {found['speed_up']:.2f}, by rounds"
            f" {', '.join(f'{x:.2f}' for x in found['speed_up_of_rounds'])}"
        )
    text = json.dumps({"machine": machine.describe({})} | result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
