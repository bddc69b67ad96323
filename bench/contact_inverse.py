"""Inverse dynamics through contacts: time, how many states converge, and what the weights cost, one
core: `python bench/contact_inverse.py`.

Upright states that move slowly, with accelerations of 0.3 m/s² and rad/s² (standing) and 3
(pushed), of which more cannot be had. HyQ on four points, atlas on two surfaces.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import rigidgrad as rg

ROBOTS = {
    "hyq": [
        rg.Contact(f"{leg}_lowerleg", offset=(0, 0, -0.33)) for leg in ("lf", "lh", "rf", "rh")
    ],
    "atlas": [rg.Contact(f"{side}_foot", "surface") for side in "lr"],
}


def states(robot: rg.Robot, count: int, push: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    q = robot.random(batch=(count,), seed=0).q
    q[:, 3:7] = (0, 0, 0, 1)
    return q, 0.1 * rng.normal(size=(count, robot.nv)), push * rng.normal(size=(count, robot.nv))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name, contacts in ROBOTS.items():
        robot = rg.load(name, floating_base=True)
        for push in (0.3, 3.0):
            asked = states(robot, options.count, push)
            size = np.linalg.norm(robot.rnea(*asked), axis=1)
            for dtype in ("float64", "float32"):
                call = robot.compile(
                    "contact_inverse_dynamics", contacts=contacts, dtype=dtype, threads=1
                )
                inputs = [x.astype(dtype) for x in asked]
                s = call(*inputs)
                out, times = tuple(np.empty_like(x) for x in s), []
                for _ in range(options.rounds):
                    before = time.perf_counter()
                    call(*inputs, out=out)
                    times.append(time.perf_counter() - before)
                missing = np.linalg.norm(s.residual, axis=1) / size
                had = missing < (1e-5 if dtype == "float64" else 1e-3)
                print(
                    f"{name:6} a {push:3} {dtype} {min(times) / options.count * 1e6:6.2f} µs a"
                    f" state, {100 * np.mean(s.converged == 1):.2f}% converged,"
                    f" {100 * had.mean():.0f}% can be had: residual there"
                    f" {np.median(missing[had]):.0e} of |w| (median), {missing[had].max():.0e}"
                    " (most)"
                )


if __name__ == "__main__":
    main()
