"""The set-up of the direct method's Schur complement: the time of forming its blocks from the
matrices of an LQ problem, and of cyclic reduction to one block, for the arm's sizes. Under
`PYTHONPATH=…/src` of another revision, that one's.

.venv/bin/python bench/schur.py
.venv/bin/python bench/schur.py --states 24 --controls 12 --steps 31
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import rigidgrad
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.solvers import linear_solver


def problem(steps: int, n: int, m: int, cross: bool) -> LQ:
    """A convex one, with random numbers."""
    rng, z = np.random.default_rng(0), n + m
    F, half = rng.normal(size=(steps, n, z)) / n, rng.normal(size=(steps + 1, z, z)) / z
    H = half @ half.swapaxes(1, 2) + np.eye(z)
    S = H[:-1, n:, :n] if cross else np.zeros((steps, m, n))
    vectors = rng.normal(size=(steps + 1, n)), rng.normal(size=(steps, m))
    return LQ(
        F[:, :, :n],
        F[:, :, n:],
        H[:, :n, :n],
        S,
        H[:-1, n:, n:],
        *vectors,
        np.zeros((steps + 1, n)),
    )


def best(run: Callable[[], object], rounds: int) -> float:
    """Microseconds, the least of all rounds."""
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return round(1e6 * min(times), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("states", 14), ("controls", 7), ("steps", 63), ("rounds", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    sizes = given.steps, given.states, given.controls
    found = {}
    for cross in (False, True):
        solver, lq = linear_solver("block_cholesky", *sizes), problem(*sizes, cross)
        solver.factor_schur = lambda: True  # the set-up alone
        assert solver.factor(lq)
        name = "with S" if cross else "without S"
        found[name] = best(partial(solver.factor, lq), given.rounds)
    solver, lq = linear_solver("cyclic_reduction", *sizes), problem(*sizes, cross=False)
    assert solver.factor(lq)
    levels = solver.reduction
    found["cyclic reduction"] = best(lambda: levels.factor(solver.D, solver.E), given.rounds)

    def substitute() -> None:
        levels.reduce(solver.gamma)
        levels.expand(solver.lam)

    found["its right-hand side"] = best(substitute, given.rounds)
    print(json.dumps({"microseconds": found, "sizes": sizes, "of": rigidgrad.__file__}))


if __name__ == "__main__":
    main()
