"""Model predictive control in closed loop, against Crocoddyl in the same loop; by the clock; over
half an hour. See docs/mpc.md.

Parts: `peers`, the same problem, period and latency for both; `fastest`, each at the shortest
period that it sustains, with a wrong model and torque limits; `real_time`; `figure`, error against
period, iterations, blocks, model error and latency; `swing_up`, pendulum and cart-pole by three
solvers; `soak`. A result file keeps the parts that are not run.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import mpc_figure
import mpc_real_time
import mpc_swing_up
import numpy as np
import report
from cases import Missing
from dynamics import say
from mpc_cases import LAP, TICK, Course, Tracking, advance, tracked
from peers import crocoddyl_process
from peers.crocoddyl_mpc import PHASES, Planner, TheirMPC

import rigidgrad as rg

PARTS = ("peers", "fastest", "real_time", "figure", "blocks", "swing_up", "soak")
PERIODS = (1, 2, 4, 10)  # ms
MODEL_ERROR = 0.2
GRAVITY = 9.81
TIMED = 3.0  # seconds of driving, at a period of 2 ms, to time plans
SOAK = 30  # simulated minutes
SOAK_TICK = 5e-3  # seconds: the plant's, and the control period


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def parts(text: str) -> list[str]:
        values = [part.strip() for part in text.split(",") if part.strip()]
        for value in values:
            if value not in PARTS:
                raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(PARTS)}")
        return values

    parser.add_argument("--parts", type=parts, default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument("--svg", metavar="FOLDER", help="draw the figures of figure and swing_up")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--without-peer", action="store_true", help="ours alone")
    parser.add_argument("--steps", type=int, default=10_000, help="of the real-time run")
    parser.add_argument(
        "--priority", action="store_true", help="ask for real-time priority in the real-time run"
    )
    parser.add_argument("--minutes", type=float, default=SOAK, help="of the soak run, simulated")
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    return parser.parse_args()


# --- one harness, two solvers ---------------------------------------------------------------------


class Loop:
    """A task with one solver in rg.MPC: ours, or with a Python that has it, Crocoddyl."""

    def __init__(self, task: Tracking, python: str | None, core: int):
        self.task, self._python, self._core = task, python, core

    def run(
        self, period_ms: float, lap: float, observer: bool = False, integral: bool = False
    ) -> tuple[dict[str, Any], Any]:
        """Mean and largest error; the controller."""
        course, period = Course(), 1e-3 * period_ms
        options: dict[str, Any] = {
            "period": period,
            "latency": period,
            "target": course,
            "observer": observer,
            "integral": integral,
        }
        if self._python is None:
            mpc = rg.MPC(self.task.problem(), rg.PDDP(iterations=1), **options)
            found = tracked(mpc, self.task.plant(), course, lap)
        else:
            with Planner(self._python, self.task, self._core) as planner:
                mpc = TheirMPC(planner, self.task.problem(), **options)
                found = tracked(mpc, self.task.plant(), course, lap)
        counts = {name: count for name, count in mpc.counts.items() if count}
        return found.summary() | {"counts": counts}, mpc


def same_period(python: str | None, options: argparse.Namespace) -> dict[str, Any]:
    """Errors of both at the same period and latency."""
    lap = LAP / 4 if options.quick else LAP
    rows = []
    for weights in ("mid", "text"):
        task = Tracking(weights)
        for period in PERIODS[1:3] if options.quick else PERIODS:
            row: dict[str, Any] = {"weights": weights, "period_ms": period}
            for name, interpreter in contenders(python):
                say(f"peers: {weights} weights, {period} ms, {name}")
                row[name] = Loop(task, interpreter, options.core).run(period, lap)[0]
            if python:
                row["ratio"] = row["ours"]["mean_mm"] / row["crocoddyl"]["mean_mm"]
            rows.append(row)
    say("")
    return {"rows": rows, "lap_s": lap, "floor": floor(lap)}


def floor(lap: float) -> dict[str, Any]:
    """What the mid weights alone leave: no latency, a true model, plans every millisecond, each
    solved to its optimum.
    """
    say("peers: the weights' own error")
    task, course = Tracking(), Course()
    mpc = rg.MPC(task.problem(), rg.PDDP(iterations=50), period=TICK, target=course)
    return tracked(mpc, task.plant(), course, lap).summary()


def contenders(python: str | None) -> list[tuple[str, str | None]]:
    return [("ours", None), *([("crocoddyl", python)] if python else [])]


def fastest_period(python: str | None, options: argparse.Namespace) -> dict[str, Any]:
    """Each at the period that 99% of its plans keep: ours with everything that rg.MPC does for a
    plan; of Crocoddyl's only what would be C++ in a program of C++.
    """
    lap = LAP / 4 if options.quick else LAP
    base = Tracking(mass_error=MODEL_ERROR, limits=True)
    taken = times_of_plans(base, python, options)
    periods = {
        name: math.ceil(row["p99_ms"] / (1e3 * TICK)) * (1e3 * TICK) for name, row in taken.items()
    }
    rows = []
    for gravity, observer, integral in itertools.product(
        (0.0, GRAVITY), (False, True), (False, True)
    ):
        task = replace(base, gravity=gravity)
        row: dict[str, Any] = {"gravity": gravity, "observer": observer, "integral": integral}
        for name, interpreter in contenders(python):
            say(f"fastest: gravity {gravity:g}, observer {observer}, integral {integral}, {name}")
            row[name] = Loop(task, interpreter, options.core).run(
                periods[name], lap, observer, integral
            )[0]
        if python:
            row["ratio"] = row["ours"]["mean_mm"] / row["crocoddyl"]["mean_mm"]
        rows.append(row)
    say("")
    result = {"plan": taken, "period_ms": periods, "model_error": MODEL_ERROR, "rows": rows}
    if python:
        plain = {
            row["gravity"]: row["crocoddyl"]["mean_mm"]
            for row in rows
            if not row["observer"] and not row["integral"]
        }
        for row in rows:
            row["ratio_to_crocoddyl_alone"] = row["ours"]["mean_mm"] / plain[row["gravity"]]
    return result


def times_of_plans(
    task: Tracking, python: str | None, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Milliseconds of a plan, in turns: ours, theirs."""
    turns = 1 if options.quick else 3
    times: dict[str, list[np.ndarray]] = {}
    phases: list[np.ndarray] = []
    for turn in range(turns):
        for name, interpreter in contenders(python):
            say(f"fastest: timing {name}, turn {turn + 1} of {turns}")
            gc.collect()
            gc.disable()
            _, mpc = Loop(task, interpreter, options.core).run(2.0, TIMED)
            gc.enable()
            if interpreter is None:
                taken = mpc.log.solve_seconds[1:]
            else:
                by_phase = np.array(mpc.taken["wall"])
                phases.append(by_phase)
                taken = by_phase[:, PHASES.index("roll_out") :].sum(axis=1)
            times.setdefault(name, []).append(1e3 * taken)
    found = {name: in_ms(np.concatenate(each)) for name, each in times.items()}
    if python:
        found["crocoddyl"]["median_with_python_ms"] = float(
            np.median(1e3 * np.concatenate(phases).sum(axis=1))
        )
    return found


def in_ms(values: np.ndarray) -> dict[str, float]:
    best, median, p99 = np.quantile(values, (0.0, 0.5, 0.99))
    return {
        "best_ms": float(best),
        "median_ms": float(median),
        "p99_ms": float(p99),
        "plans": len(values),
    }


# --- half an hour ---------------------------------------------------------------------------------


def soak(minutes: float) -> dict[str, Any]:
    """The figure eight over and over; memory and the CPU time of a step, minute by minute."""
    task, course = Tracking(limits=True), Course()
    mpc = rg.MPC(
        task.problem(),
        rg.PDDP(iterations=1),
        period=SOAK_TICK,
        latency=SOAK_TICK,
        target=course,
        log=10_000,
    )
    plant = task.plant(SOAK_TICK)
    course.since = 2.0
    rows: list[dict[str, float]] = []
    steps = round(60.0 / SOAK_TICK)
    whole = max(round(minutes), 1)
    for minute in range(whole):
        say(f"soak: minute {minute + 1} of {whole}")
        errors, clock, wall = [], time.process_time(), time.perf_counter()
        for k in range(steps):
            advance(mpc, plant)
            if k % 20 == 0:
                errors.append(plant.x)
        taken = time.process_time() - clock
        spent = time.perf_counter() - wall
        row = {
            "cpu_us_per_step": 1e6 * taken / steps,
            "wall_us_per_step": 1e6 * spent / steps,
            "memory_mb": resident(),
        }
        rows.append(row | {"solve_us_best": 1e6 * float(mpc.log.solve_seconds[-steps:].min())})
    say("")
    memory = [row["memory_mb"] for row in rows]
    half = len(rows) // 2
    early, late = (
        min(r["solve_us_best"] for r in part) for part in (rows[: half or 1], rows[half:])
    )
    return {
        "minutes": whole,
        "steps": whole * steps,
        "period_ms": 1e3 * SOAK_TICK,
        "rows": rows,
        # the log fills in the first minute
        "memory_growth_mb": memory[-1] - memory[min(1, whole - 1)],
        "fastest_plan_us": {"first_half": early, "second_half": late},
        "counts": {name: count for name, count in mpc.counts.items() if count},
    }


def resident() -> float:
    """Megabytes that this process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# --- tables ---------------------------------------------------------------------------------------


def show(part: str, result: dict[str, Any]) -> str:
    if part == "peers":
        head = (
            "Figure eight, 1 iteration, latency = period; the mid weights alone leave"
            f" {result['floor']['mean_mm']:.2f} mm"
        )
        header = [
            "weights",
            "period, ms",
            "ours, mm mean (max)",
            "Crocoddyl, mm mean (max)",
            "ratio",
        ]
        rows = [[r["weights"], str(r["period_ms"]), *both(r)] for r in result["rows"]]
    elif part == "fastest":
        head = (
            f"Plant {100 * result['model_error']:.0f}% heavier, torque limits, each at its fastest"
            f" sustained period: {result['period_ms']} ms\n"
            + "\n".join(
                f"  a plan, {name}: {', '.join(f'{key} {value:.3g}' for key, value in row.items())}"
                for name, row in result["plan"].items()
            )
        )
        header = [
            "gravity",
            "observer",
            "integral",
            "ours, mm mean (max)",
            "Crocoddyl, mm mean (max)",
            "ratio",
            "to Crocoddyl without either",
        ]
        rows = [
            [
                f"{r['gravity']:g}",
                *("yes" if r[name] else "no" for name in ("observer", "integral")),
                *both(r),
            ]
            + [f"{r['ratio_to_crocoddyl_alone']:.2f}" if "ratio_to_crocoddyl_alone" in r else ""]
            for r in result["rows"]
        ]
    elif part == "real_time":
        head, header, rows = (
            "Real time, plant in another process",
            ["", "ours", "empty, before", "empty, after"],
            mpc_real_time.table(result),
        )
    elif part == "figure":
        head = "Mean tracking error, mm, by period or latency in ms"
        header, rows = (
            ["kind", "model error", "M", "iterations", "mean errors"],
            mpc_figure.table(result),
        )
    elif part == "swing_up":
        head, header, rows = (
            "Swing-up",
            ["system", "solver", "iterations", "final error"],
            mpc_swing_up.table(result),
        )
    elif part == "blocks":
        head = (
            f"Figure eight, a plan every {result['period_ms']} ms: mean error by shooting blocks,"
            " mm (not settled: !)"
        )
        header, rows = mpc_figure.table_by_blocks(result)
    else:
        head = (
            f"{result['minutes']} simulated minutes, {result['steps']} steps: memory grew by"
            f" {result['memory_growth_mb']:.1f} MB"
        )
        header = ["minute", "CPU µs a step", "fastest plan, µs", "MB"]
        kept = [0, *range(4, len(result["rows"]), 5)]
        rows = [
            [
                str(k + 1),
                *(
                    f"{result['rows'][k][name]:.1f}"
                    for name in ("cpu_us_per_step", "solve_us_best", "memory_mb")
                ),
            ]
            for k in kept
        ]
    return f"{head}\n{report.table(header, rows)}"


def both(row: dict[str, Any]) -> list[str]:
    cells = [
        f"{row[name]['mean_mm']:.3f} ({row[name]['max_mm']:.1f})" if name in row else "-"
        for name in ("ours", "crocoddyl")
    ]
    return [*cells, f"{row['ratio']:.3f}" if "ratio" in row else "-"]


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    kept = Path(options.json) if options.json and options.json != "-" else None
    result: dict[str, Any] = {}
    python = None
    if not options.without_peer and {"peers", "fastest"} & set(options.parts):
        say("looking for Crocoddyl")
        try:
            python = crocoddyl_process.interpreter()
        except Missing as absent:
            print(f"missing peer crocoddyl: {absent}")
    versions = (
        {f"{name} (peer)": version for name, version in crocoddyl_process.VERSIONS.items()}
        if python
        else {}
    )
    work = {
        "peers": lambda: same_period(python, options),
        "fastest": lambda: fastest_period(python, options),
        "real_time": lambda: mpc_real_time.measure(options.steps, options.core, options.priority),
        "figure": lambda: mpc_figure.measure(options.quick),
        "blocks": lambda: mpc_figure.by_blocks(options.quick),
        "swing_up": mpc_swing_up.measure,
        "soak": lambda: soak(options.minutes),
    }
    pictures = {"figure": mpc_figure.picture, "swing_up": mpc_swing_up.picture}
    for part in options.parts:
        machine.pin_to(options.core)
        info = machine.describe(versions if part in ("peers", "fastest") else {})
        result[part] = work[part]() | {"machine": info}
        print(show(part, result[part]), end="\n\n")
        if options.svg and part in pictures:
            Path(options.svg).mkdir(parents=True, exist_ok=True)
            (Path(options.svg) / f"mpc_{part}.svg").write_text(pictures[part](result[part], info))
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            before = json.loads(kept.read_text()) if kept.exists() else {}
            kept.write_text(json.dumps(before | result, indent=1) + "\n")
    if options.json == "-":
        sys.__stdout__.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
