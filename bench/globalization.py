"""Ways to make steps of the direct method descend, counted: `python bench/globalization.py [--json
FILE]`.

Iterations and LQ problems of a line search, a trust region and alternating directions, on the arm
across its workspace with both sets of weights, the quadrotor, and a pendulum that swings up with
little torque. Counts do not depend on the machine's load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import machine
import numpy as np
from control_cases import Arm, Quadrotor

import rigidgrad as rg
from rigidgrad.math import sin

WAYS = ("line_search", "trust_region", "admm")


def pendulum() -> rg.Problem:
    system = rg.CustomSystem(lambda x, u: (x[1], u[0] - 9.81 * sin(x[0])), 2, 1, name="pendulum")
    costs = [rg.costs.State([np.pi, 0.0], weight=0.01, final=1000.0), rg.costs.Effort(0.01)]
    limits = rg.Limits(torque=4.0)
    return rg.Problem(system, [0.0, 0.0], 100, 0.03, integrator="rk4", costs=costs, limits=limits)


def problems() -> dict[str, rg.Problem]:
    return {
        "arm, weights of the code": Arm("code", "semi_implicit_euler").problem(),
        "arm, weights of the text": Arm("text", "euler").problem(),
        "quadrotor": Quadrotor().problem(),
        "pendulum, 4 Nm": pendulum(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, problem in problems().items():
        for way in WAYS:
            s = rg.solve(problem, rg.Direct(globalization=way))
            row = {
                "problem": name,
                "way": way,
                "status": s.status,
                "iterations": s.iterations,
                "lq_problems": s.stats["linear_solves"],
                "cost": s.cost,
            }
            rows.append(row)
            print(
                f"{name:26} {way:13} {s.status:10} {s.iterations:4} iterations,"
                f" {row['lq_problems']:5} LQ problems, cost {s.cost:.8g}"
            )
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine.describe({}), "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
