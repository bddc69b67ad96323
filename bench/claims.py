"""Claims of Plancher et al. 2021 and Plancher 2022 that no other script measures.

counts        what the gradient of a robot is made of (Table I, Figure 5.4): operations, their
longest chain, zeros, memory, bytes in and out memory        shared memory of the GPU kernels, with
and without the columns that the topology makes zero folding       multiplications that share a
multiplier of the circuit
single        one state at a time, called from C: the algorithms of Table 5.2
steps         the three steps of a gradient, each a compiled call of its own: v, a and f (inverse
dynamics), ∂c/∂u, and its product with M⁻¹ (Figures 1 and 5.4)
batches       N gradients of forward dynamics on one thread, on threads that stay, and on threads
launched and joined each time; how far timings spread figure_eight  MPC with four shooting blocks
and a plan every 10 ms, with gravity and without (Figure 4.9)
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import machine
import measure
import numpy as np
from cases import Missing, Subject, Task, dense_outputs, random_batch
from dynamics import say
from peers import build, ours

import rigidgrad as rg
from rigidgrad.program.recorder import record
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job

ROBOTS = ("iiwa14", "hyq", "atlas")
SINGLE = ("rnea", "minv", "aba", "rnea_derivatives", "aba_derivatives", "fused_gradient")
STEPS = ("rnea", "rnea_derivatives", "product")
SIZES = (16, 32, 64, 128, 256)
BATCHED = "aba_derivatives"
MULTIPLIERS = (32, 128)
NEAR = 0.01  # of the mean: timings within it count as steady
LAP, PERIOD, BLOCKS, ITERATIONS = 10.0, 0.01, 4, 5
KEPT = 250  # points of the path


# --- counts ---------------------------------------------------------------------------------------


def counts(_: bool) -> dict[str, Any]:
    return {name: robot_counts(rg.load(name)) for name in ROBOTS}


def robot_counts(robot: rg.Robot) -> dict[str, Any]:
    from rigidgrad.runtime.formulation import program_of
    from rigidgrad.targets.gpu import block

    program = program_of(robot.model, "fused_gradient")
    found = program.counts()
    flops = {
        name: int(program_of(robot.model, name).counts()["flops"])
        for name in ("rnea", "rnea_derivatives", "fused_gradient")
    }
    kernels = {
        name: block.block_function(robot.model, name)
        for name in ("gradient_split", "gradient_fused", "fused_gradient")
    }
    # a cross product's 6x6 matrix has three skew blocks of six numbers, and a zero one
    transforms, crossed = (transform_zeros(robot), 18 / 36)
    return {
        "nv": robot.nv,
        "flops": flops,
        "flops_dense": dense_flops(robot),
        "instructions": int(found["instructions"]),
        "longest_chain": int(found["depth"]),
        "parallelism": found["instructions"] / found["depth"],
        "live_numbers": int(found["live"]),
        "input_numbers": sum(math.prod(s) for s in program.inputs.values()),
        "output_numbers": sum(math.prod(s) for s in program.outputs.values()),
        "zeros_of_transforms": transforms,
        "zeros_of_cross_products": crossed,
        "barriers": {name: kernel.barriers for name, kernel in kernels.items()},
        "addresses": {
            name: sum(len(row) for t in kernel.schedule.tables.values() for row in t)
            for name, kernel in kernels.items()
        },
    }


def transform_zeros(robot: rg.Robot) -> float:
    """The share of zeros in the 6x6 transforms between neighbouring bodies, at a state where
    nothing vanishes by chance.
    """
    placements = robot.forward_kinematics(robot.random(seed=1).q)
    model, zeros = robot.model, []
    for i, parent in enumerate(model.parents):
        above = np.eye(4) if parent < 0 else placements[model.body_names[parent]]
        T = np.linalg.inv(above) @ placements[model.body_names[i]]
        E, (x, y, z) = T[:3, :3].T, T[:3, 3]
        lower = -E @ np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        zeros.append(np.mean(np.abs(np.block([[E, np.zeros((3, 3))], [lower, E]])) < 1e-9))
    return float(np.mean(zeros))


def dense_flops(robot: rg.Robot) -> int:
    """The gradient of forward dynamics from q, v, a and M⁻¹ with full 6x6 matrices, counted line by
    line (2021, Algorithms 1 to 3).
    """
    model, n, product, square = robot.model, robot.nv, 66, 396
    # of ∂v and ∂a, for q and v: those of the bodies above, and the own
    columns = sum(2 * len(a) for a in model.ancestors)
    back = 2 * sum(len(related(model, i)) for i in model.bodies)
    sweep = len(model.joints) * 7 * product
    forward = columns * 5 * product + len(model.joints) * (2 * product + square)
    return sweep + forward + back * (product + 12) + 2 * (2 * n - 1) * n * n


def related(model: Any, i: int) -> set[int]:
    """Bodies above and below, and the body itself."""
    return set(model.ancestors[i]) | {j for j in model.bodies if i in model.ancestors[j]}


def memory(_: bool) -> dict[str, Any]:
    """Numbers of shared memory: `full` keeps a place for every column of ∂v, ∂a and ∂f, `columns`
    for those that are not zero, `kernel` uses places again.
    """
    from rigidgrad.targets.gpu import block

    found = {}
    for name in ROBOTS:
        model = rg.load(name).model
        whole = len(model.joints) * model.nv
        kept = sum(len(a) for a in model.ancestors)
        zero = (
            2 * 6 * (2 * (whole - kept) + whole - sum(len(related(model, i)) for i in model.bodies))
        )
        found[name] = {}
        for function in ("rnea_derivatives", "aba_derivatives"):
            schedule = block.block_function(model, function).schedule
            found[name][function] = {
                "full": schedule.unshared + zero,
                "columns": schedule.unshared,
                "kernel": schedule.size,
            }
    return found


def folding(quick: bool) -> list[dict[str, Any]]:
    from rigidgrad import fpga

    rows = []
    for function in ("rnea_derivatives", "fused_gradient"):
        for multipliers in MULTIPLIERS[:1] if quick else MULTIPLIERS:
            say(f"folding: {function} on {multipliers} multipliers")
            d = fpga.build(rg.load("iiwa14"), function, multipliers=multipliers).describe()
            each = d["operations"]["multiplications"] / multipliers
            kept = {
                key: d[key]
                for key in (
                    "operations",
                    "multipliers",
                    "adders",
                    "cycles",
                    "critical_path",
                    "dsps_of_multipliers",
                )
            }
            rows.append({"function": function, "multiplications_each": each, **kept})
    return rows


# --- times ----------------------------------------------------------------------------------------


def context_of(kernel: Any, arrays: list[np.ndarray], count: int) -> np.ndarray:
    """What a kernel's machine code is given: each array with the numbers of its row, and C's own
    functions.
    """
    pairs = [x for array in arrays for x in (array.ctypes.data, array.size // count)]
    return np.array([*pairs, *kernel.linked], np.int64)


def in_c(name: str, flags: list[str]) -> ctypes.CDLL:
    try:
        compiler = next(iter(build.compilers("c").values()))
    except Missing as absent:
        raise SystemExit(f"timing from C: {absent}") from None
    return ctypes.CDLL(
        str(
            build.shared_library(
                name.replace("_", "-"), build.SOURCES / f"{name}.c", compiler, flags
            )
        )
    )


def single(quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ROBOTS:
        say(f"single: {name}")
        robot = rg.load(name)
        compiled = {function: robot.compile(function) for function in SINGLE}
        found[name] = timed(compiled, state_of(robot), quick)
    return found


def state_of(robot: rg.Robot) -> dict[str, np.ndarray]:
    state = robot.random((1,), seed=0)
    a, minv = 0.1 * state.v, robot.minv(state.q)
    return {"q": state.q, "v": state.v, "a": a, "tau": state.tau, "minv": minv}


def timed(compiled: dict[str, Any], given: dict[str, np.ndarray], quick: bool) -> dict[str, Any]:
    """µs of one state, each function called from C in turns."""
    library = in_c("ours_loop", ["-O2"])
    tasks, kept = {}, []
    for function, call in compiled.items():
        kernel = call._kernel("float64", "single")
        arrays = [np.ascontiguousarray(given[key]) for key in kernel.inputs]
        arrays += [np.zeros((1, *shape)) for shape in kernel.outputs.values()]
        context = context_of(kernel, arrays, 1)
        kept.append((kernel, arrays, context))
        address, pointer = ctypes.c_void_p(kernel.address), ctypes.c_void_p(context.ctypes.data)
        tasks[function] = Task(
            lambda r, a=address, p=pointer: library.loop(a, p, ctypes.c_long(r)), tuple
        )
    timings = measure.interleaved(tasks, 1, 7 if quick else 20, 2.0 if quick else 10.0, "cpu")
    return {function: timing.summary() for function, timing in timings.items()}


def steps(quick: bool) -> dict[str, Any]:
    """Of iiwa14. ∂c/∂u begins with the inverse dynamics, as the recursion needs v, a and f; what
    the call takes beyond them is the second step of the figures.
    """
    robot = rg.load("iiwa14")
    given = state_of(robot)
    dq, dv, _ = robot.rnea_derivatives(given["q"], given["v"], given["a"])
    compiled: dict[str, Any] = {name: robot.compile(name) for name in STEPS[:2]}
    compiled["product"] = Compiled(product_with_minv(robot.nv))
    compiled["fused_gradient"] = robot.compile("fused_gradient")
    one, both = (
        compiled["product"](given["minv"], dq, dv),
        compiled["fused_gradient"](*(given[key] for key in ("q", "v", "a", "minv"))),
    )
    apart = max(
        float(np.abs(x - y).max() / np.abs(y).max()) for x, y in zip(one, both, strict=True)
    )
    if apart > 1e-9:
        raise SystemExit(f"the steps give another gradient than one call: {apart:.1e} apart")
    found = timed(compiled, given | {"dq": dq, "dv": dv}, quick)
    found["derivatives_alone"] = found["rnea_derivatives"]["best"] - found["rnea"]["best"]
    return found | {"robot": "iiwa14", "apart": apart}


def product_with_minv(n: int) -> Job:
    """-M⁻¹ times both halves of ∂c/∂u."""

    def product(x: dict[str, Any]) -> tuple[Any, ...]:
        minv, r = x["minv"], range(n)
        return tuple(
            tuple(tuple(-sum(minv[i][k] * x[d][k][j] for k in r) for j in r) for i in r)
            for d in ("dq", "dv")
        )

    square = (n, n)
    inputs, outputs = dict.fromkeys(("minv", "dq", "dv"), square), {"q": square, "v": square}
    return Job(
        "product", "M⁻¹ ∂c/∂u", f"bench product of {n}", lambda: record(inputs, outputs, product)
    )


def batches(quick: bool) -> dict[str, Any]:
    threads = os.cpu_count() or 1
    library = in_c("ours_launch", ["-O2", "-pthread"])
    rows = []
    for name in ROBOTS:
        subject = Subject(name)
        for count in SIZES:
            say(f"batches: {name}, N = {count}")
            batch, outputs = (
                random_batch(subject, BATCHED, count),
                dense_outputs(subject, BATCHED, count),
            )
            way = ours.Ours(subject, "float64", "out")
            tasks = {
                "one": way.bind(BATCHED, batch, outputs, 1),
                "kept": way.bind(BATCHED, batch, outputs, threads),
            }
            tasks["launched"] = launched(subject, library, batch, outputs, count, threads)
            timings = measure.interleaved(
                tasks, 1, 7 if quick else 20, 1.0 if quick else 6.0, "wall"
            )
            row: dict[str, Any] = {
                "robot": name,
                "count": count,
                "us": {label: t.summary() for label, t in timings.items()},
            }
            row["shared"] = (
                count >= subject.robot.compile(BATCHED)._kernel("float64", "batch").least()
            )  # whether the batch is worth a second thread
            row["kept_against_launched"] = measure.ratio(timings["launched"], timings["kept"])
            row["steady"] = {
                label: steadiness(tasks[label], 1000 if quick else 20_000)
                for label in ("one", "kept")
            }
            rows.append(row)
    return {"function": BATCHED, "threads": threads, "rows": rows}


def launched(
    subject: Subject, library: ctypes.CDLL, batch: Any, outputs: Any, count: int, threads: int
) -> Task:
    kernel = subject.robot.compile(BATCHED, dtype="float64", threads=1)._kernel("float64", "batch")
    arrays = [*batch, *outputs]
    context = context_of(kernel, arrays, count)
    shape = [ctypes.c_long(x) for x in (count, threads, kernel.job.lanes)]

    def run(repeats: int, _alive: Any = (arrays, kernel)) -> None:
        failed = library.launched(
            ctypes.c_void_p(kernel.address),
            ctypes.c_void_p(context.ctypes.data),
            *shape,
            ctypes.c_long(repeats),
        )
        if failed:
            raise SystemExit(f"a thread could not be launched: {os.strerror(failed)}")

    return Task(run, tuple)


def steadiness(task: Task, calls: int) -> dict[str, float]:
    """The share of single calls whose time is within 1 % of the mean, and of the median."""
    now, times = time.perf_counter_ns, np.empty(calls)
    for k in range(calls):
        start = now()
        task.run(1)
        times[k] = now() - start
    mean, median = times.mean(), np.median(times)
    return {
        "of_mean": float((abs(times / mean - 1) < NEAR).mean()),
        "of_median": float((abs(times / median - 1) < NEAR).mean()),
    }


# --- model predictive control ---------------------------------------------------------------------


def figure_eight(_: bool) -> dict[str, Any]:
    """With what is ours; with blocks that begin with their own cost-to-go; with gravity."""
    return followed("fresh") | {
        "stale": followed("stale"),
        "gravity": followed("fresh", 9.81),
        "stale, gravity": followed("stale", 9.81),
    }


def followed(first_pass: str, gravity: float = 0.0) -> dict[str, Any]:
    from mpc_cases import Course, Tracking, advance, tip, tracked

    say(f"figure eight, {first_pass}, gravity {gravity}")
    task, course = Tracking("text", gravity), Course()
    solver = rg.PDDP(blocks=BLOCKS, iterations=ITERATIONS, first_pass=first_pass)
    mpc = rg.MPC(task.problem(), solver, period=PERIOD, latency=PERIOD, target=course)
    plant = task.plant()
    settled = tracked(mpc, plant, course, plant.dt).settled
    states, times, begun, made = [], [], [], mpc.log.solves
    for _ in range(round(LAP / plant.dt)):
        advance(mpc, plant)
        if mpc.log.solves > made:
            made = mpc.log.solves
            begun.append(1e3 * (mpc.seconds["predict"] + mpc.seconds["shift"]))
        states.append(plant.x)
        times.append(plant.time)
    path, goal = tip(plant.robot, np.array(states)), course(np.array(times))
    away = 1e3 * np.linalg.norm(path - goal, axis=1)
    every = len(path) // KEPT
    plans = 1e3 * mpc.log.solve_seconds[1:]
    return {
        "settled_s": settled,
        "period_ms": 1e3 * PERIOD,
        "blocks": BLOCKS,
        "iterations": ITERATIONS,
        "gravity": gravity,
        "mean_mm": float(away.mean()),
        "max_mm": float(away.max()),
        "plan_ms": float(np.median(plans)),
        "iteration_ms": float(np.median(plans / np.maximum(mpc.log.solve_iterations[1:], 1))),
        "initialisation_ms": float(np.median(begun)),
        "path": path[::every, 1:].round(5).tolist(),  # y and z
        "goal": goal[::every, 1:].round(5).tolist(),
    }


PARTS = {
    "counts": counts,
    "memory": memory,
    "folding": folding,
    "single": single,
    "steps": steps,
    "batches": batches,
    "figure_eight": figure_eight,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a minute")
    parser.add_argument(
        "--json",
        type=Path,
        help="where the results go; parts that are there and not measured now stay",
    )
    options = parser.parse_args()
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    result = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    result["machine"] = machine.describe({})
    for name in names:
        result.setdefault("machines", {})[name] = machine.describe({})  # parts are kept: one each
        result[name] = PARTS[name](options.quick)
        say("")
        print(f"{name}: {json.dumps(result[name])[:2000]}", flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
