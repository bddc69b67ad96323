"""Random constrained motions, each solved by rigidgrad and by IPOPT from the same guess: does
"converged" mean an optimum? See bench/README.md.

A converged solution must cost within 1e-5 of IPOPT's optimum, and keep its constraints; or, where
problems have several optima, be one: begun at it, IPOPT must not find a way to lower the cost by
more than 1e-5. Costs and constraints are in random units. The exit code is 1 if a converged
solution is neither.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import numpy as np
import report
from constrained_cases import Case, case
from dynamics import say
from peers import build, environment

import rigidgrad as rg

VERSIONS = {"casadi": "3.8.2"}
WORKER = build.SOURCES / "ipopt_worker.py"
SAME = 1e-5  # relative difference of costs
MATH = SimpleNamespace(sin=rg.math.sin, cos=rg.math.cos, sqrt=rg.math.sqrt)
SOLVERS = {"pddp": rg.PDDP(), "second_order": rg.PDDP(second_order=True), "direct": rg.Direct()}


def problem_of(c: Case) -> rg.Problem:
    system = rg.CustomSystem(
        lambda x, u: tuple(c.dynamics(x, u, MATH)), nx=c.nx, nu=c.nu, name=c.name
    )
    costs: list[Any] = []
    if c.weight.any() or c.final.any():
        costs.append(rg.costs.State(c.goal, weight=c.weight, final=c.final))
    if c.effort.any():
        costs.append(rg.costs.Effort(c.effort))
    if c.value is not None:
        value = c.value
        costs.append(rg.costs.CustomValue(lambda x, u: value(x, u, MATH), weight=c.charge))
    held = [
        rg.Inequality(lambda x, u, f=h.function: tuple(f(x, u, MATH)), h.lower, h.upper, at=h.at)
        for h in c.held
    ]
    limits = rg.Limits(torque=c.torque, constraints=held)
    return rg.Problem(
        system,
        c.start,
        c.steps,
        c.dt,
        integrator=c.integrator,
        costs=costs,
        limits=limits,
        guess=c.guess,
    )


def compare(
    number: int, seed: int, names: list[str], ipopt: environment.Worker
) -> list[dict[str, Any]]:
    """One row per solver."""
    c = case(number, seed)
    peer = ipopt.ask("solve", number=number, seed=seed)
    problem, rows = problem_of(c), []
    for name in names:
        began = time.perf_counter()
        found = rg.solve(problem, SOLVERS[name])
        seconds = time.perf_counter() - began
        again = (
            ipopt.ask("solve", number=number, seed=seed, x=found.x.tolist(), u=found.u.tolist())
            if np.isfinite(found.cost)
            else peer
        )
        size = abs(found.cost)
        row = {
            "number": number,
            "family": c.name,
            "solver": name,
            "status": found.status,
            "iterations": found.iterations,
            "seconds": seconds,
        }
        row |= {
            "cost": found.cost,
            "ipopt": peer["cost"],
            "ipopt_status": peer["status"],
            "ipopt_iterations": peer["iterations"],
        }
        row |= {key: found.stats.get(key) for key in ("optimality", "violation", "complementarity")}
        row |= {"from_ours": again["cost"], "from_ours_status": again["status"]}
        row["same"] = (
            peer["status"] == "Solve_Succeeded" and abs(found.cost - peer["cost"]) <= SAME * size
        )
        row["optimum"] = (
            again["status"] == "Solve_Succeeded" and abs(found.cost - again["cost"]) <= SAME * size
        )
        row["verdict"] = verdict(row)
        rows.append(row)
    return rows


def verdict(row: dict[str, Any]) -> str:
    if row["status"] != "converged":
        return row["status"]
    return "same optimum" if row["same"] else "another optimum" if row["optimum"] else "FALSE"


def table(rows: list[dict[str, Any]], names: list[str]) -> str:
    verdicts = [
        "same optimum",
        "another optimum",
        "FALSE",
        "slow",
        "stalled",
        "iterations",
        "infeasible",
    ]
    lines = []
    for name in names:
        for family in [*dict.fromkeys(r["family"] for r in rows), "all"]:
            own = [r for r in rows if r["solver"] == name and family in (r["family"], "all")]
            count = Counter(r["verdict"] for r in own)
            median = (
                f"{np.median([r['iterations'] for r in own]):.0f}",
                f"{np.median([r['ipopt_iterations'] for r in own]):.0f}",
            )
            lines.append([name, family, *(str(count[v] or "") for v in verdicts), *median])
    return report.table(["solver", "family", *verdicts, "iterations", "IPOPT's"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solvers", default="pddp,direct", help=f"some of {','.join(SOLVERS)}")
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    options = parser.parse_args()
    names = options.solvers.split(",")
    if options.json == "-":
        sys.stdout = sys.stderr  # tables are for people
    machine.pin_to(options.core)
    rows: list[dict[str, Any]] = []
    with environment.Worker(environment.interpreter("ipopt", VERSIONS), WORKER) as ipopt:
        for number in range(options.count):
            say(f"case {number + 1} of {options.count}")
            rows += compare(number, options.seed, names, ipopt)
    say("")
    print(table(rows, names))
    for row in (r for r in rows if r["verdict"] == "FALSE"):
        print(
            f"case {row['number']} ({row['family']}, {row['solver']}): {row['cost']:.10g}, IPOPT"
            f" {row['ipopt']:.10g}, from ours {row['from_ours']:.10g} {row['from_ours_status']}"
        )
    result = {
        "machine": machine.describe(VERSIONS),
        "count": options.count,
        "seed": options.seed,
        "rows": rows,
    }
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        sys.__stdout__.write(text)
    elif options.json:
        Path(options.json).write_text(text)
    return int(any(r["verdict"] == "FALSE" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
