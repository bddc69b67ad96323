"""Parallel DDP over the number of shooting blocks M: the quadrotor and manipulator experiments of
Plancher 2022, section 4.3.

Per M, over noisy trials: cost against iteration and against time, time of an iteration by its
parts, depth of the line search, failures, and the gradients' share of the time (Figure 5.1). Where
it differs from the dissertation stands in DIFFERENCES, which goes into the results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report
from control_cases import Arm, Quadrotor, noisy
from dynamics import say

import rigidgrad as rg
from rigidgrad import charts

EXPERIMENTS: dict[str, Any] = {
    "quadrotor": Quadrotor(),
    "quadrotor_body": Quadrotor("body"),
    "arm_text": Arm("text", "euler"),
    "arm_code": Arm("code", "euler"),
}
BLOCKS = {"quadrotor": (1, 2, 4, 8, 16, 32, 64), "arm": (1, 2, 4, 8, 16, 32)}
# (forward, backward) blocks: the dissertation's best on a CPU for the arm
MIXED = {"arm": [(2, 4)]}
SIGMA = 0.001  # rad/s and m/s
# the published code's: 16 step sizes, halved each time; the best of those whose fall is 0.05 to
# 1.25 of the expected and whose defects are below 1
PUBLISHED = {"alphas": 16, "accept": (0.05, 1.25), "choose": "best", "defect": 1.0}
GRADIENTS = "expansion"  # the phase that computes the derivatives of dynamics and costs
FAILED = 1.1  # times the lowest cost that any M found in that trial: one that ends above has failed
SEEN = 0.01  # relatively from that cost: where it counts as reached
NEAR = (1e-2, 1e-3, 1e-4)  # and how the answer depends on it

DIFFERENCES = (
    (
        "Hardware: one core of a CPU, step sizes and blocks in SIMD lanes; the dissertation had"
        " four cores with a thread a block, and a GPU. All step sizes are always simulated, as on"
        " its GPU, so that a deeper line search costs nothing more."
    ),
    "Arithmetic: float64; the published code is float32.",
    (
        "Noise: on the velocities of the start, from which the first guess is rolled out. The"
        " published code adds it to each knot of a first trajectory that stands still and is not"
        " simulated."
    ),
    (
        "Steps with open defects are judged by J + σ Σ|d|, with σ large enough that it falls along"
        " the step; (4.2) as printed compares costs of trajectories that nothing can follow. The"
        " final cost is that of a simulation without defects."
    ),
    (
        "Signs and terms: the corrected expected decrease (4.1), one sign of the defect in (4.5),"
        " (4.7) and Algorithm 2, and the full V_x of (2.9)."
    ),
    (
        "Regularisation: starts at 0 and grows tenfold where needed; the published code starts at 1"
        " (quadrotor) or 12.5 (arm) and changes by factors of 1.25."
    ),
    (
        "Stopping: when the cost no longer falls by 1e-9 of itself, or after as many iterations as"
        " the published code does; its trials all run to the end, and their times are cut by hand."
    ),
    (
        "Failure is not defined in the text: here, ending more than 10% above the lowest cost that"
        " any M found in the same trial."
    ),
    (
        "Arm: the published iiwa14.urdf; the published experiment used another, heavier set of"
        " inertias. Weights: the text's and the code's, both. The text says explicit Euler, which"
        " is used here."
    ),
    (
        "Quadrotor, angles: the dissertation's twelve states. Its published dynamics and gradients"
        " have yaw torques that differ by a factor of ten; 0.0245 m (the gradients') is used here."
        " Text and code have the same weights."
    ),
    (
        "Quadrotor, body: quaternion, errors in the tangent space, velocities in the body frame."
        " Its costs are not those of the angles."
    ),
)


@dataclass(frozen=True)
class Variant:
    """How many blocks the forward and the backward pass have, and whether the first backward pass
    goes through all of them ("fresh") or not ("stale").
    """

    forward: int
    backward: int
    first_pass: str = "fresh"

    @property
    def label(self) -> str:
        m = str(self.forward)
        blocks = m if self.forward == self.backward else f"{m}/{self.backward}"
        return blocks if self.first_pass == "fresh" else f"{blocks} {self.first_pass}"

    def solver(self, iterations: int, settings: dict[str, Any]) -> Any:
        own = {"iterations": iterations, "tolerance": 1e-9, "first_pass": self.first_pass}
        options = own | settings
        if self.forward == self.backward:
            return rg.PDDP(blocks=self.forward, **options)
        return rg.PDDP(forward_blocks=self.forward, backward_blocks=self.backward, **options)


@dataclass
class Trials:
    """What the solves of one variant left."""

    costs: list[list[float]] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)
    sweeps: list[float] = field(default_factory=list)  # part of the forward pass
    iterations: list[int] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)

    def add(self, solution: Any) -> None:
        self.costs.append([float(cost) for cost in solution.stats["history"]])
        self.final.append(float(solution.cost))
        self.seconds.append(dict(solution.stats["seconds"]))
        self.sweeps.append(float(solution.stats.get("sweep_seconds", 0.0)))
        self.iterations.append(max(1, solution.iterations))
        self.statuses.append(solution.status)
        self.depths += [max(0.0, -math.log2(alpha)) for alpha in solution.stats["steps"]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help=(
            "store the results, beside experiments that are there and not measured now; without a"
            " file, print them instead of tables"
        ),
    )
    parser.add_argument("--svg", metavar="FOLDER", help="draw a page of charts for each experiment")
    parser.add_argument(
        "--experiments", default=",".join(EXPERIMENTS), help=f"some of {','.join(EXPERIMENTS)}"
    )
    parser.add_argument(
        "--blocks", default="", help="numbers of blocks M, instead of the dissertation's"
    )
    parser.add_argument(
        "--first-pass",
        default="fresh,stale",
        help="fresh: the first backward pass goes through all blocks; stale: as the dissertation's",
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument(
        "--threads",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="of the comparison with one thread, which is not pinned to a core; 1 leaves it out",
    )
    parser.add_argument("--iterations", type=int, default=100, help="at most, of a solve")
    parser.add_argument(
        "--settings",
        choices=("published", "default"),
        default="published",
        help="of the line search: the published code's, or rigidgrad's own",
    )
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    options = parser.parse_args()
    options.experiments = [name.strip() for name in options.experiments.split(",") if name.strip()]
    unknown = [name for name in options.experiments if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(EXPERIMENTS)}")
    return options


def variants(name: str, options: argparse.Namespace) -> list[Variant]:
    kind = name.split("_")[0]
    asked = [int(m) for m in options.blocks.split(",") if m] or BLOCKS[kind]
    mixed = [] if options.blocks else MIXED.get(kind, [])
    pairs = [(m, m) for m in asked] + mixed
    return [
        Variant(forward, backward, first)
        for first in options.first_pass.split(",")
        for forward, backward in pairs
        if first == "fresh" or backward > 1
    ]


def run(name: str, options: argparse.Namespace) -> dict:
    """All trials of one experiment; each trial runs every variant, so that a slow moment of the
    machine hits all.
    """
    task = EXPERIMENTS[name]
    settings = PUBLISHED if options.settings == "published" else {}
    problem = task.problem()
    solvers = {
        variant: variant.solver(options.iterations, settings) for variant in variants(name, options)
    }
    for variant in solvers:
        say(f"{task.label}: compiling for M = {variant.label}")
        rg.solve(problem, variant.solver(1, settings))
    trials = {variant: Trials() for variant in solvers}
    controls = problem.guess
    for trial in range(options.trials):
        say(f"{task.label}: trial {trial + 1} of {options.trials}")
        problem.update(start=noisy(task, SIGMA, trial).start, guess=controls)
        for variant, solver in solvers.items():
            trials[variant].add(rg.solve(problem, solver))
    # of each trial: starts differ a little, and so do costs
    lowest = np.min([found.final for found in trials.values()], axis=0)
    rows = {
        variant.label: summary(found, lowest, options.iterations)
        for variant, found in trials.items()
    }
    median = float(np.median(lowest))
    return {
        "experiment": name,
        "problem": task.label,
        "integrator": task.integrator,
        "lowest": median,
        "blocks": rows,
    }


def threaded(name: str, options: argparse.Namespace) -> dict:
    """Times of an iteration's parts on one thread and on several, by the number of blocks: the
    least of the trials, each of which runs every variant. Threads need cores: nothing is pinned.
    """
    task = EXPERIMENTS[name]
    settings = PUBLISHED if options.settings == "published" else {}
    problem = task.problem()
    solvers = {
        (variant.label, threads): variant.solver(
            options.iterations, settings | {"threads": threads}
        )
        for variant in variants(name, options)
        if variant.first_pass == "fresh"
        for threads in (1, options.threads)
    }
    machine.pin_to(None)
    trials = {key: Trials() for key in solvers}
    controls = problem.guess
    for solver in solvers.values():
        rg.solve(problem, solver)
    for trial in range(max(5, options.trials // 3)):
        say(f"{task.label}: {options.threads} threads, trial {trial + 1}")
        problem.update(start=noisy(task, SIGMA, trial).start, guess=controls)
        for key, solver in solvers.items():
            trials[key].add(rg.solve(problem, solver))
    machine.pin_to(options.core)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for (label, threads), found in trials.items():
        least = {
            phase: 1e3
            * min(s[phase] / k for s, k in zip(found.seconds, found.iterations, strict=True))
            for phase in found.seconds[0]
        }
        rows.setdefault(label, {})[str(threads)] = least
    return {"experiment": name, "threads": options.threads, "least_ms": rows}


def summary(trials: Trials, lowest: np.ndarray, iterations: int) -> dict:
    padded = np.array(
        [
            costs[: iterations + 1] + [costs[-1]] * (iterations + 1 - len(costs))
            for costs in trials.costs
        ]
    )
    each = {
        phase: np.array([s.get(phase, 0.0) for s in trials.seconds]) / trials.iterations
        for phase in trials.seconds[0]
    }
    per_iteration = sum(each.values())
    found = {f"{near:g}": reached(trials, lowest, per_iteration, near) for near in NEAR}
    seen = found[f"{SEEN:g}"]
    sweep = np.array(trials.sweeps) / trials.iterations / per_iteration
    share = each[GRADIENTS] / per_iteration if GRADIENTS in each else None
    low, median, high = np.quantile(padded, (0.25, 0.5, 0.75), axis=0)
    return {
        "trials": len(trials.final),
        "failed": sum(
            not cost <= FAILED * best for cost, best in zip(trials.final, lowest, strict=True)
        ),
        "statuses": dict(Counter(trials.statuses)),
        "final": {"median": float(np.median(trials.final)), "worst": max(trials.final)},
        "cost": {"median": median.tolist(), "low": low.tolist(), "high": high.tolist()},
        "iterations": float(np.median(trials.iterations)),
        "iterations_to_1%": seen["iterations"],
        "ms_to_1%": seen["ms"],
        "reached": found,
        "sweep_share": float(np.median(sweep)),
        "ms_per_iteration": {
            "median": 1e3 * float(np.median(per_iteration)),
            "best": 1e3 * float(per_iteration.min()),
        },
        "parts_ms": {phase: 1e3 * float(np.median(seconds)) for phase, seconds in each.items()},
        "gradient_share": None if share is None else float(np.median(share)),
        "line_search_depth": (
            {
                "median": float(np.median(trials.depths)),
                "mean": float(np.mean(trials.depths)),
            }
            if trials.depths
            else None
        ),
    }


def reached(
    trials: Trials, lowest: np.ndarray, per_iteration: np.ndarray, near: float
) -> dict[str, float | None]:
    """Medians of the iterations and the time until the cost stays this near to the best one; None
    where most trials do not get there.
    """
    counts = [settled(c, best, near) for c, best in zip(trials.costs, lowest, strict=True)]
    known = [math.inf if n is None else n for n in counts]
    times = [1e3 * n * t for n, t in zip(known, per_iteration, strict=True)]
    return {"iterations": finite(np.median(known)), "ms": finite(np.median(times))}


def settled(costs: list[float], best: float, near: float = SEEN) -> int | None:
    """Iterations after which the cost stays near the best one, from either side: trajectories with
    defects may cost less than any that is feasible.
    """
    away = [k for k, cost in enumerate(costs) if not abs(cost - best) <= near * best]
    last = away[-1] + 1 if away else 0
    return last if last < len(costs) else None


def finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def table(result: dict) -> str:
    rows = []
    for label, row in result["blocks"].items():
        depth, share = row["line_search_depth"], row["gradient_share"]
        parts = " + ".join(f"{phase} {1e3 * ms:.0f}" for phase, ms in row["parts_ms"].items())
        rows.append(
            [
                label,
                f"{row['failed']} of {row['trials']}",
                report.number(row["iterations_to_1%"], 0) or "-",
                f"{row['iterations']:.0f}",
                f"{row['final']['median']:.7g}",
                f"{depth['median']:.1f}" if depth else "-",
                f"{row['ms_per_iteration']['median']:.3f}",
                report.number(row["ms_to_1%"], 2) or "-",
                f"{100 * share:.0f}%" if share is not None else "-",
                parts,
            ]
        )
    header = [
        "M",
        "failed",
        "iterations to 1%",
        "in all",
        "cost",
        "depth",
        "ms/iteration",
        "ms to 1%",
        "gradients",
        "parts, µs an iteration",
    ]
    head = (
        f"{result['problem']}, {result['integrator']}; median of the trials' lowest costs"
        f" {result['lowest']:.7g}"
    )
    return f"{head}\n{report.table(header, rows)}"


def beside(result: dict) -> str:
    rows = [
        [label, *(f"{1e3 * row[threads][phase]:.0f}" for phase in row["1"] for threads in row)]
        for label, row in result["least_ms"].items()
    ]
    first = next(iter(result["least_ms"].values()))
    header = ["M", *(f"{phase}, {n} thr." for phase in first["1"] for n in first)]
    return f"µs an iteration, least of the trials\n{report.table(header, rows)}"


def picture(result: dict, info: dict) -> str:
    rows = {f"M={label}": row for label, row in result["blocks"].items()}
    last = 5 + max(
        next(
            k
            for k, cost in enumerate(row["cost"]["median"])
            if cost <= 1.0001 * row["cost"]["median"][-1]
        )
        for row in rows.values()
    )
    by_iteration = {
        label: (range(len(row["cost"]["median"][:last])), row["cost"]["median"][:last])
        for label, row in rows.items()
    }
    shown = max((row["ms_to_1%"] or 0.0) for row in rows.values()) * 1.5 or math.inf
    by_time = {}
    for label, row in rows.items():
        step, costs = row["ms_per_iteration"]["median"], row["cost"]["median"]
        kept = [k for k in range(len(costs)) if k * step <= shown]
        by_time[label] = ([k * step for k in kept], [costs[k] for k in kept])
    drawn = [
        charts.lines("Cost against iteration, median", "iterations", "cost", by_iteration),
        charts.lines("Cost against time, median", "ms", "cost", by_time),
        charts.bars(
            "Time of an iteration, median",
            "blocks M",
            "ms",
            {label[2:]: row["parts_ms"] for label, row in rows.items()},
        ),
        charts.bars(
            "Gradients' share of the time",
            "blocks M",
            "%",
            {label[2:]: {"": 100 * (row["gradient_share"] or 0.0)} for label, row in rows.items()},
        ),
        charts.bars(
            "Trials that failed",
            "blocks M",
            "%",
            {label[2:]: {"": 100 * row["failed"] / row["trials"]} for label, row in rows.items()},
        ),
    ]
    if all(row["line_search_depth"] is not None for row in rows.values()):
        depths = {label[2:]: {"": row["line_search_depth"]["mean"]} for label, row in rows.items()}
        drawn.append(charts.bars("Depth of the line search, mean", "blocks M", "halvings", depths))
    trials = next(iter(rows.values()))["trials"]
    return charts.page(
        f"Parallel DDP: {result['problem']}, {trials} noisy trials",
        drawn,
        f"{info['cpu']}, {info['date'][:10]}; bench/parallel_ddp.py",
    )


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    result: dict[str, Any] = {
        "machine": machine.describe({}),
        "settings": options.settings,
        "sigma": SIGMA,
        "differences": DIFFERENCES,
        "experiments": [],
        "threads": [],
    }
    kept = Path(options.json) if options.json and options.json != "-" else None
    before = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for name in options.experiments:
        result["experiments"].append(run(name, options) | {"machine": machine.describe({})})
        say("")
        print(table(result["experiments"][-1]), end="\n\n")
        if options.threads > 1:
            result["threads"].append(threaded(name, options))
            print(beside(result["threads"][-1]), end="\n\n")
    if options.svg:
        folder = Path(options.svg)
        folder.mkdir(parents=True, exist_ok=True)
        for found in result["experiments"]:
            (folder / f"parallel_ddp_{found['experiment']}.svg").write_text(
                picture(found, result["machine"])
            )
    for part in ("experiments", "threads"):
        others = [e for e in before.get(part, []) if e["experiment"] not in options.experiments]
        result[part] += [{"machine": before["machine"]} | e for e in others]
    text = json.dumps(result, indent=1) + "\n"
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
    elif options.json:
        sys.__stdout__.write(text)


if __name__ == "__main__":
    main()
