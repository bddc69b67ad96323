"""One tree in `against.py`: opens a cell by its name and times it. A copy runs in the `bench/` of
every tree, beside its own cases.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
# seconds that one timing should last at least
SLICE = {"p1": 0.03, "goals": 0.03, "trees": 0.02, "dynamics": 0.004}
SKEW, GRAVITY = 0.3, (3.0, -4.0, -8.0)  # of trees, as in trees.py


class Cell(NamedTuple):
    seconds: Callable[[int], float]  # of that many evaluations
    results: Callable[[], tuple[np.ndarray, ...]]


def repeated(call: Callable[[], Any], clock: str) -> Callable[[int], float]:
    now = CLOCKS[clock]

    def seconds(repeats: int) -> float:
        start = now()
        for _ in range(repeats):
            call()
        return now() - start

    return seconds


def p1(dtype: str, iterations: int, clock: str) -> Cell:
    """Solves of the arm's motion with one set of buffers."""
    from control_cases import Arm
    from solvers import Ours

    contender = Ours(Arm(), dtype, clock)
    return Cell(
        lambda repeats: contender.seconds(iterations, repeats), lambda: (contender.solutions[0].u,)
    )


def goals(count: int, dtype: str, iterations: int, threads: int, clock: str) -> Cell:
    """The arm to several goals, all in one call."""
    from control_cases import goals as drawn

    import rigidgrad as rg

    problems = [task.problem() for task in drawn(count)]
    solver = rg.PDDP(dtype=dtype, iterations=iterations, tolerance=0.0)

    def solve() -> list[rg.Solution]:
        return rg.solve(problems, solver, threads=threads)

    return Cell(repeated(solve, clock), lambda: tuple(solution.u for solution in solve()))


def tree(function: str, bodies: int, branching: float, threads: int, clock: str) -> Cell:
    from rigidgrad import trees

    tree = trees.auto_tree(bodies, branching, SKEW, gravity=GRAVITY)
    rng = np.random.default_rng(0)
    q, v, a = rng.uniform(-3, 3, bodies), 0.1 * rng.normal(size=bodies), rng.normal(size=bodies)
    out = np.empty(bodies)
    call: Callable[[], Any] = {
        "rnea": lambda: trees.rnea(tree, q, v, a, threads=threads, out=out),
        "crba": lambda: trees.crba(tree, q, threads=threads),
    }[function]
    return Cell(repeated(call, clock), lambda: (out,) if function == "rnea" else (call() @ a,))


def dynamics(robot: str, function: str, count: int, clock: str) -> Cell:
    from cases import Subject, dense_outputs, random_batch
    from peers.ours import Ours

    subject = Subject(robot)
    batch, outputs = random_batch(subject, function, count), dense_outputs(subject, function, count)
    task = Ours(subject, "float64", "out").bind(function, batch, outputs)
    now = CLOCKS[clock]

    def seconds(repeats: int) -> float:
        start = now()
        task.run(repeats)  # loops by itself
        return now() - start

    return Cell(seconds, task.results)


KINDS: dict[str, Callable[..., Cell]] = {
    "p1": p1,
    "goals": goals,
    "trees": tree,
    "dynamics": dynamics,
}


def opened(part: str, cores: list[int], arguments: dict[str, Any]) -> tuple[Cell, dict[str, Any]]:
    """A cell that has been run, how often it fits into a slice, and a hash of its results."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    gc.enable()
    gc.collect()
    cell = KINDS[part](**arguments)
    cell.seconds(1)  # compiles, touches pages
    repeats, taken = 1, cell.seconds(1)
    while taken < SLICE[part] / 2:
        repeats = min(20 * repeats, math.ceil(repeats * SLICE[part] / max(taken, 1e-9)))
        taken = cell.seconds(repeats)
    gc.disable()
    bits = hashlib.sha256(
        b"".join(np.ascontiguousarray(array).tobytes() for array in cell.results())
    )
    return cell, {"repeats": repeats, "bits": bits.hexdigest()}


def main() -> None:
    # nothing that is printed in passing may look like an answer
    answers, sys.stdout = (sys.stdout, sys.stderr)
    cell: Cell | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any]
        if asked["do"] == "open":
            try:
                cell = None
                cell, answer = opened(asked["part"], asked["cores"], asked["arguments"])
            except Exception as error:  # another revision may lack anything
                answer = {"missing": f"{type(error).__name__}: {error}"}
        elif asked["do"] == "time" and cell is not None:
            answer = {"seconds": cell.seconds(asked["repeats"])}
        else:
            import rigidgrad

            answer = {"file": rigidgrad.__file__}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
