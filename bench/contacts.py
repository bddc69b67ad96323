"""Dynamics with contacts and their derivatives against Pinocchio's C++, one core, in turns: `python
bench/contacts.py [--json FILE]`.

Quadrupeds on four points, humanoids on two surfaces. Contacts do not move, so that both compute the
same; results are compared before anything is measured.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path

import machine
import measure
import numpy as np
from cases import Batch, Task
from peers import build, ours, pinocchio_cpp

import rigidgrad as rg

COUNT = 4096
ROBOTS = {
    "hyq": (
        "hyq",
        [rg.Contact(f"{leg}_lowerleg", offset=(0, 0, -0.33)) for leg in ("lf", "lh", "rf", "rh")],
    ),
    "atlas": ("atlas", [rg.Contact(f"{side}_foot", "surface") for side in "lr"]),
    "go2": (
        "go2_description/urdf/go2.urdf",
        [rg.Contact(f"{leg}_foot") for leg in ("FL", "FR", "RL", "RR")],
    ),
    "g1": (
        "g1_description/urdf/g1_29dof_rev_1_0.urdf",
        [rg.Contact(f"{side}_ankle_roll_link", "surface") for side in ("left", "right")],
    ),
}
FUNCTIONS = {"contact_dynamics": "dynamics", "contact_dynamics_derivatives": "with derivatives"}


def load(label: str) -> rg.Robot:
    return load_example(ROBOTS[label][0], floating_base=True)


def load_example(source: str, floating_base: bool) -> rg.Robot:
    """A bundled robot, or a URDF of example-robot-data."""
    if not source.endswith(".urdf"):
        return rg.load(source, floating_base=floating_base)
    import pinocchio

    roots = [
        p / "share" / "example-robot-data" / "robots"
        for p in Path(pinocchio.__file__).parents
        if p.name == "cmeel.prefix"
    ]
    path = next((found for root in roots for found in sorted(root.rglob(Path(source).name))), None)
    if path is None:
        raise SystemExit(f"example-robot-data has no {Path(source).name}")
    return rg.load(path, floating_base=floating_base, strict=False)


def state_batch(robot: rg.Robot, contacts: list[rg.Contact], count: int) -> Batch:
    """Random states whose contacts do not move."""
    q, v, tau = robot.random(batch=(count,), seed=0)
    J = robot.contact_jacobian(q, contacts)
    v = v - np.einsum("bij,bj->bi", np.linalg.pinv(J), np.einsum("bij,bj->bi", J, v))
    return Batch(q, v, tau)


def from_python(
    robot: rg.Robot, name: str, contacts: list[rg.Contact], batch: Batch, dtype: str
) -> tuple[Task, dict]:
    call = robot.compile(name, contacts=contacts, dtype=dtype, threads=1)
    inputs = [x.astype(dtype) for x in batch]
    outputs = tuple(call(*inputs)[:-1])

    def run(repeats: int) -> None:
        for _ in range(repeats):
            call(*inputs, out=outputs)

    return Task(run, lambda: outputs), dict(call.counts)


def from_c(
    robot: rg.Robot,
    name: str,
    contacts: list[rg.Contact],
    batch: Batch,
    outputs: tuple[np.ndarray, ...],
) -> dict[str, Task]:
    """One state by a call of the kernel's machine code in a C loop, if there is a C compiler."""
    library = ours.loop_in_c()
    if library is None:
        return {}
    kernel = robot.compile(name, contacts=contacts)._kernel("float64", "single")
    arrays = [*batch, *(np.empty_like(x) for x in outputs)]
    context = np.array(
        [*(x for array in arrays for x in (array.ctypes.data, array.size)), *kernel.linked],
        np.int64,
    )
    rows, pointer = ctypes.c_void_p(kernel.address), ctypes.c_void_p(context.ctypes.data)

    def run(repeats: int, _alive=(kernel, context)) -> None:
        library.loop(rows, pointer, ctypes.c_long(repeats))

    return {"rigidgrad from C": Task(run, lambda: tuple(arrays[len(batch) :]))}


def theirs(
    library,
    robot: rg.Robot,
    name: str,
    contacts: list[rg.Contact],
    batch: Batch,
    shapes: list[tuple[int, ...]],
) -> Task:
    places = []
    for c in contacts:
        frame = robot.model.frame(c.frame)
        pose = frame.placement.matrix().copy()
        pose[:3, 3] += pose[:3, :3] @ np.array(c.offset)
        places.append((frame.body + 1, c.rows, pose))
    handle = pinocchio_cpp.hold(library, robot.to_pinocchio(), places)
    loop = build.CLoop("pinocchio clang", library, handle, tuple(FUNCTIONS))
    return loop.bind(name, batch, tuple(np.empty(shape) for shape in shapes))


def cells(label: str, count: int, rounds: int, library) -> list[dict]:
    robot, contacts = load(label), ROBOTS[label][1]
    batch = state_batch(robot, contacts, count)
    found = []
    for name in FUNCTIONS:
        task, counts = from_python(robot, name, contacts, batch, "float64")
        outputs = task.results()
        peer = theirs(library, robot, name, contacts, batch, [x.shape for x in outputs])
        peer.run(1)
        error = max(
            float(abs(x - y).max() / abs(y).max())
            for x, y in zip(outputs[:1], peer.results()[:1], strict=True)
        )
        tasks = {
            "rigidgrad": task,
            "rigidgrad float32": from_python(robot, name, contacts, batch, "float32")[0],
            "pinocchio clang": peer,
        }
        if count == 1:
            tasks |= from_c(robot, name, contacts, batch, outputs)
        timings = measure.interleaved(tasks, count, rounds, 20.0, "cpu")
        best = timings["rigidgrad"].best
        found.append(
            {
                "robot": label,
                "function": name,
                "count": count,
                "nv": robot.nv,
                "flops": counts["flops"],
                "gflops": counts["flops"] / best / 1e3,
                "relative difference": error,
                "times": {key: timing.summary() for key, timing in timings.items()},
                "faster": measure.ratio(timings["pinocchio clang"], timings["rigidgrad"]),
            }
        )
        in_c = ""
        if "rigidgrad from C" in tasks:
            assert all(
                np.array_equal(x, y)
                for x, y in zip(tasks["rigidgrad from C"].results(), outputs, strict=True)
            )
            found[-1]["faster from C"] = f = measure.ratio(
                timings["pinocchio clang"], timings["rigidgrad from C"]
            )
            in_c = f"; from C {timings['rigidgrad from C'].best:.3f} µs, {f['ratio']:.1f}x"
        f = found[-1]["faster"]
        print(
            f"{label:6} {FUNCTIONS[name]:17} {count:5} {best:7.3f} µs"
            f" ({timings['rigidgrad float32'].best:.3f} float32), Pinocchio"
            f" {timings['pinocchio clang'].best:7.2f} µs: {f['ratio']:.1f}x ({f['low']:.1f} to"
            f" {f['high']:.1f}), {found[-1]['gflops']:.0f} GFLOP/s, differ by {error:.0e}{in_c}",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=list(ROBOTS))
    parser.add_argument("--counts", nargs="+", type=int, default=[COUNT, 1])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    library = pinocchio_cpp.contact_library()
    found = [
        cell
        for label in options.robots
        for count in options.counts
        for cell in cells(label, count, options.rounds, library)
    ]
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine.describe({}), "cells": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
