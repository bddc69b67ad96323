"""The backward pass of one problem, in two forms: columns of its matrices in lanes, as solvers run
it (`targets/llvm_riccati.py`), and the kernel of `kernels/riccati.py` in one lane. The arm's sizes,
by the semi-implicit Euler method; minima of turns.

.venv/bin/python bench/backward_pass.py
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.job import host_lanes
from rigidgrad.runtime.riccati import Layout, Sizes, bind, bind_side_by_side

STEP = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("states", 14), ("controls", 7), ("steps", 63), ("rounds", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    n, m, steps = given.states, given.controls, given.steps
    rng, half, z = np.random.default_rng(0), n // 2, n + m
    G = 0.1 * rng.normal(size=(steps, half, z))
    G[:, :, half:n] += np.eye(half)
    l, L = rng.normal(size=(steps, z)), np.full((steps, z), 0.1)

    layout = Layout(n, m, "implicit", "float64", host_lanes("float64"), diagonal=True)
    own = [layout.state(i) for i in range(n)] + [layout.control(i) for i in range(m)]

    def spread(rows: np.ndarray, columns: int) -> np.ndarray:
        found = aligned_zeros((*rows.shape[:-1], columns))
        found[..., own[: rows.shape[-1]]] = rows
        return found

    arrays = {
        "ranges": np.array([[0, steps]], np.int64),
        **{k: spread(x, layout.columns) for k, x in (("F", G), ("l", l), ("L", L))},
        "gains": aligned_zeros((steps, m, layout.gain_columns)),
        "end": spread(np.eye(n + 1, n), layout.state_columns)[None],
        "start": aligned_zeros((1, n + 1, layout.state_columns)),
        "numbers": np.array([[0.0, STEP]]),
        "results": aligned_zeros((1, 3)),
        "scratch": aligned_zeros((1, layout.scratch_size)),
    }
    columns = bind(layout, arrays)

    one = {
        "F": G,
        "h": np.full((steps, 1), STEP),
        "l": l,
        "L": L,
        "gains": np.zeros((steps, m, n + 1)),
    }
    lane = {}
    for name, x in one.items():
        lane[name] = aligned_zeros((1, steps, x[0].size, 1))
        lane[name][0, :, :, 0] = x.reshape(steps, -1)
    lane |= {"V": aligned_zeros((1, n + 1, n, 1)), "rho": aligned_zeros((1, 1))}
    lane["results"] = aligned_zeros((1, 3, 1))
    alone = bind_side_by_side(Sizes(n, m, "implicit", diagonal=True), lane, "float64")

    def kernel() -> None:
        lane["V"][0, :, :, 0], lane["results"][0, :, 0] = np.eye(n + 1, n), (0.0, 0.0, 1.0)
        alone.run()

    best = {}
    for _ in range(given.rounds):
        for name, run in (("columns in lanes", columns.run), ("kernel, one lane", kernel)):
            before = time.perf_counter()
            run()
            best[name] = min(best.get(name, 1.0), time.perf_counter() - before)
    gains = arrays["gains"][:, :, own[:n]]
    ours = lane["gains"].reshape(steps, m, n + 1)[:, :, :n]
    error = float(np.abs(gains - ours).max() / np.abs(gains).max())
    found = {name: round(1e6 * x, 1) for name, x in best.items()}
    print(json.dumps({"microseconds": found, "gains differ by": error, "lanes": layout.width}))


if __name__ == "__main__":
    main()
