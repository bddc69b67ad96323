"""The set-up of the direct method's Schur complement: CPU time of forming its blocks from the
matrices of an LQ problem, for the arm's sizes. Under `PYTHONPATH=…/src` of another revision, that
one's.

.venv/bin/python bench/schur.py
.venv/bin/python bench/schur.py --states 24 --controls 12 --steps 31
"""

from __future__ import annotations

import argparse
import json
import time

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
        times = []
        for _ in range(given.rounds):
            before = time.perf_counter()
            solver.factor(lq)
            times.append(time.perf_counter() - before)
        found["with S" if cross else "without S"] = round(1e6 * min(times), 1)
    print(json.dumps({"microseconds": found, "sizes": sizes, "of": rigidgrad.__file__}))


if __name__ == "__main__":
    main()
