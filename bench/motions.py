"""An arm between 1,000 random configurations within its limits, swing-ups, flights and postures:
how many succeed, how well, how fast. See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report
from dynamics import say
from measure import CLOCKS
from motion_cases import MOTIONS, MOVE_WEIGHTS, Moves, deviation, end_error, excess

import rigidgrad as rg

SIMULATED = 20  # moves that are checked by Pinocchio
QUANTILES = {"median": 50, "p90": 90, "p99": 99, "max": 100}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument(
        "--count", type=int, default=1000, help="random moves of each set of weights"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--weights", default=",".join(MOVE_WEIGHTS), help=f"some of {','.join(MOVE_WEIGHTS)}"
    )
    parser.add_argument("--without-motions", action="store_true", help="the arm alone")
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="cpu",
        help="CPU time, which other processes disturb less, or wall time",
    )
    options = parser.parse_args()
    options.weights = options.weights.split(",")
    for name in options.weights:
        if name not in MOVE_WEIGHTS:
            parser.error(f"weights are {', '.join(MOVE_WEIGHTS)}, not {name!r}")
    return options


def quantiles(values: list[float]) -> dict[str, float]:
    return {name: float(np.percentile(values, q)) for name, q in QUANTILES.items()}


def timed(clock: str, run: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and milliseconds."""
    start = CLOCKS[clock]()
    result = run()
    return result, 1e3 * (CLOCKS[clock]() - start)


def measure_moves(moves: Moves, clock: str) -> dict[str, Any]:
    """Each move alone, by the default solver, as a user's loop would: one problem, whose numbers
    change.
    """
    base = moves.problem()
    robot = base.system.robot  # type: ignore[attr-defined]
    rg.solve(base, rg.PDDP(iterations=2))  # compiles
    ms: list[float] = []
    kept: dict[str, list[float]] = {
        name: []
        for name in (
            "iterations",
            "end_position",
            "end_velocity",
            "position",
            "velocity",
            "torque",
            "simulated",
        )
    }
    statuses: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    for k, problem in enumerate(moves.each(base)):
        if k % 50 == 0:
            say(f"{moves.weights}: {k} of {moves.count}")
        solution, spent = timed(clock, lambda: rg.solve(base))
        ms.append(spent)
        statuses[solution.status] += 1
        kept["iterations"].append(solution.iterations)
        error = np.abs(end_error(problem, solution))
        kept["end_position"].append(float(error[:7].max()))
        kept["end_velocity"].append(float(error[7:].max()))
        for name, value in excess(robot, solution).items():
            kept[name].append(value)
        if k < SIMULATED:
            kept["simulated"].append(deviation(problem, solution) or 0.0)
        if not solution.converged:
            failed.append({"number": k, "status": solution.status, "message": solution.message})
    problems = moves.problems()
    say(f"{moves.weights}: together")
    solutions, together = timed(clock, lambda: rg.solve(problems, threads=1))
    result: dict[str, Any] = {
        "weights": moves.weights,
        "values": MOVE_WEIGHTS[moves.weights],
        "count": moves.count,
        "seed": moves.seed,
    }
    result |= {
        "statuses": dict(statuses),
        "converged": statuses["converged"] / moves.count,
        "ms": quantiles(ms),
    }
    result |= {name: quantiles(values) for name, values in kept.items()}
    result |= {
        "together_ms_each": together / moves.count,
        "together_converged": float(np.mean([s.converged for s in solutions])),
    }
    return result | {"failed": failed}


def measure_motions(clock: str) -> list[dict[str, Any]]:
    rows = []
    for name, make in MOTIONS.items():
        say(name)
        problem = make()
        rg.solve(problem)  # compiles
        solution, ms = min(
            (timed(clock, partial(rg.solve, problem)) for _ in range(5)), key=lambda pair: pair[1]
        )
        row = {
            "motion": name,
            "status": solution.status,
            "iterations": solution.iterations,
            "cost": solution.cost,
            "ms": ms,
        }
        row |= {
            "end_error": end_error(problem, solution).tolist(),
            "violation": solution.stats.get("violation"),
        }
        rows.append(row | {"simulated": deviation(problem, solution)})
    return rows


def moves_table(results: list[dict[str, Any]]) -> str:
    header = [
        "weights",
        "statuses",
        "converged",
        "ms median",
        "p90",
        "max",
        "iterations",
        "rad off (median)",
        "max",
        "violation",
        "together, ms",
    ]
    rows = []
    for r in results:
        violation = max(r[name]["max"] for name in ("position", "velocity", "torque"))
        times = [report.number(r["ms"][q], 1) for q in ("median", "p90", "max")]
        off = [f"{r['end_position'][q]:.4f}" for q in ("median", "max")]
        statuses = ", ".join(f"{count} {name}" for name, count in r["statuses"].items())
        rows.append(
            [
                r["weights"],
                statuses,
                f"{100 * r['converged']:.1f}%",
                *times,
                report.number(r["iterations"]["median"], 0),
                *off,
                f"{violation:.1e}",
                report.number(r["together_ms_each"], 1),
            ]
        )
    return (
        f"iiwa14 between {results[0]['count']} random configurations, 1.5 s, 100 knots, its limits"
        f" on\n{report.table(header, rows)}"
    )


def motions_table(rows: list[dict[str, Any]]) -> str:
    header = [
        "motion",
        "status",
        "iterations",
        "cost",
        "ms",
        "end error, largest",
        "against a simulation",
    ]
    lines = []
    for r in rows:
        checked = "" if r["simulated"] is None else f"{r['simulated']:.0e}"
        worst = f"{np.abs(r['end_error']).max():.3g}"
        lines.append(
            [
                r["motion"],
                r["status"],
                str(r["iterations"]),
                f"{r['cost']:.6g}",
                report.number(r["ms"], 1),
                worst,
                checked,
            ]
        )
    return report.table(header, lines)


def main() -> None:
    options = arguments()
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    result: dict[str, Any] = {
        "machine": machine.describe({}),
        "clock": options.clock,
        "moves": [],
        "motions": [],
    }
    began = time.perf_counter()
    for name in options.weights:
        result["moves"].append(
            measure_moves(Moves(options.count, name, options.seed), options.clock)
        )
    if not options.without_motions:
        result["motions"] = measure_motions(options.clock)
    say("")
    result["seconds"] = time.perf_counter() - began
    print(f"{result['machine']['cpu']}\n\n{moves_table(result['moves'])}")
    if result["motions"]:
        print(f"\n{motions_table(result['motions'])}")
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
