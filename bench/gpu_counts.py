"""What the PTX of GPU kernels does when it is executed (`tests/ptx`), counted; and times of block
kernels by a model of a device, which are an estimate.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.gpu import block
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

ROBOTS = ("iiwa14", "hyq", "go2-floating", "atlas")
FUNCTIONS = ("rnea", "rnea_derivatives", "aba_derivatives", "minv")
# of a device like GRiD's, an RTX 5090: processors, cycles a microsecond, what a launch takes
PROCESSORS, CLOCK, LAUNCH_US = 170, 2400.0, 3.0
SCHEDULERS = 4  # of a processor, each with one instruction a cycle
SHARED, WARPS, BLOCKS = 100 * 1024, 32, 24  # of a processor; warps with 64 registers a thread
# µs for N gradients of inverse dynamics, float32, as published for an RTX 5090 (GRiD 2026)
PUBLISHED = {
    ("iiwa14", 256): 15.1,
    ("iiwa14", 1024): 30.8,
    ("go2-floating", 1024): 117.0,
}


def load(name: str) -> rg.Robot:
    base, _, floating = name.partition("-")
    folders = (Path(p) / "share/example-robot-data/robots" for p in _prefixes())
    known = {"go2": "go2_description/urdf/go2.urdf"}
    if base in known:
        path = next((f / known[base] for f in folders if (f / known[base]).is_file()), None)
        if path is None:
            raise SystemExit(f"{base} comes with the package example-robot-data")
        return rg.load(path, floating_base=bool(floating))
    return rg.load(base, floating_base=bool(floating))


def _prefixes() -> list[str]:
    return [p for p in sys.path if "site-packages" in p] + [
        str(Path(p) / "cmeel.prefix") for p in sys.path if "site-packages" in p
    ]


def states(robot: rg.Robot, name: str, count: int) -> list[np.ndarray]:
    q, v, _ = robot.random(batch=count, seed=4)
    rng = np.random.default_rng(7)
    a, tau = (rng.uniform(-1, 1, (count, robot.nv)) for _ in range(2))
    known = {"q": q, "v": v, "a": a, "tau": tau}
    return [known[k] for k in catalog.FUNCTIONS[name].inputs]


def counts(
    robots: list[str], functions: list[str], dtypes: list[str], shapes: list[str]
) -> list[dict]:
    from ptx.runner import Interpreted

    rows = []
    for which in robots:
        robot = load(which)
        for name in functions:
            for shape in shapes:
                function = (
                    block.block_function(robot.model, name)
                    if shape == "block"
                    else ThreadFunction(name, program_of(robot.model, name))
                )
                kernel = Kernel(name, function)
                for dtype in dtypes:
                    inputs = states(robot, name, kernel.states)
                    run = Interpreted(kernel, dtype).run(inputs)
                    row = {"robot": which, "function": name, "shape": shape, "dtype": dtype}
                    row |= {"threads": kernel.threads, "states": kernel.states}
                    row |= {"shared_bytes": kernel.shared_bytes(dtype)} | run.report.row()
                    row |= {"races": run.findings.races, "unwritten": run.findings.unwritten}
                    rows.append(row)
                    print(
                        f"{which:<13}{name:<18}{shape:<7}{dtype:<8}"
                        f"{row['instructions']:>9.1f} instructions"
                        f" {row['floating']:>4.0%} floating point {row['control']:>4.0%} control"
                        f" {row['lanes']:>5.1f} lanes {row['barriers']:>5.1f} barriers"
                        f" {row['conflicts']:>5.2f} conflicts {row['sectors']:>7.1f} sectors"
                        f" {row['local_bytes']:>6} B local {row['races']:>2} races"
                        f" {row['unwritten']:>2} unwritten",
                        flush=True,
                    )
    return rows


def times(rows: list[dict]) -> list[dict]:
    """µs of N gradients of inverse dynamics by block kernels: instructions issued, or the length of
    a block times the rounds that it takes. NOT measured; within a factor of two at best.
    """
    print("\nESTIMATE, not a measurement: gradient of ID, float32, a block a state, microseconds")
    found = []
    for row in rows:
        if (row["function"], row["shape"], row["dtype"]) != (
            "rnea_derivatives",
            "block",
            "float32",
        ):
            continue
        for count in (256, 1024, 4096):
            warps = row["threads"] // 32
            blocks = math.ceil(count / row["states"])
            at_once = min(BLOCKS, WARPS // warps, SHARED // (row["shared_bytes"] + 1024))
            rounds = math.ceil(blocks / (PROCESSORS * at_once))
            busiest = math.ceil(blocks / PROCESSORS) * row["states"]
            issued = busiest * row["instructions"] / SCHEDULERS
            # a block's cycles are those of all its states, one after the other
            length = rounds * row["cycles"]
            us = LAUNCH_US + max(issued, length) / CLOCK
            published = PUBLISHED.get((row["robot"], count))
            found.append(
                {"robot": row["robot"], "states": count, "us": round(us, 1), "grid": published}
            )
            beside = f"   GRiD 2026, published: {published}" if published else ""
            print(f"  {row['robot']:<13} N = {count:<5} {us:7.1f}{beside}")
    return found
