"""Pendulum and cart-pole swung up by MPC with three solvers: the experiment of Plancher 2022,
section 6.3.2 (Figures 6.4 and 6.5).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dynamics import say
from preconditioners import Task, tasks

import rigidgrad as rg
from rigidgrad import charts

SOLVERS: dict[str, Any] = {
    "iLQR": rg.PDDP(),
    "KKT": rg.Direct(linear_solver="kkt"),
    "Schur-PCG": rg.Direct(linear_solver="pcg", preconditioner="symmetric_stair"),
}
STEPS = {"pendulum": 60, "cart-pole": 240}  # control steps: 6 s and 3 s


def measure() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, steps in STEPS.items():
        task = tasks()[name]
        runs = {}
        for label, solver in SOLVERS.items():
            say(f"{name}: {label}")
            runs[label] = driven(task, solver, steps)
        found[name] = {"dt": task.dt, "goal": task.goal, "solvers": runs, "apart": apart(runs)}
    say("")
    return found


def driven(task: Task, solver: Any, steps: int) -> dict[str, Any]:
    """One plan a control step, warm started by shifting; the system moves by the model itself, as
    in the dissertation.
    """
    problem = task.problem()
    mpc = rg.MPC(problem, solver, period=task.dt)
    x = np.array(task.start)
    states, controls = [x], []
    for k in range(steps):
        u = mpc.step(x, k * task.dt)
        x = problem.programs.step(x, u, np.array(task.dt))
        states.append(x)
        controls.append(u)
    away = np.linalg.norm(np.array(states) - task.goal, axis=1)
    return {
        "x": np.array(states).round(9).tolist(),
        "u": np.array(controls)[:, 0].round(9).tolist(),
        "final_error": float(away[-1]),
        "iterations": float(np.mean(mpc.log.solve_iterations)),
        "counts": {name: count for name, count in mpc.counts.items() if count},
    }


def apart(runs: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest differences of states and controls between each two solvers, and relative to
    their range.
    """
    found = {}
    for a, b in (("KKT", "Schur-PCG"), ("iLQR", "KKT")):
        row = {}
        for what in ("x", "u"):
            left, right = np.array(runs[a][what]), np.array(runs[b][what])
            row[what] = float(np.abs(left - right).max())
            row[f"{what}_relative"] = row[what] / float(np.ptp(left, axis=0).max())
        found[f"{a} and {b}"] = row
    return found


def picture(result: dict[str, Any], info: dict[str, Any]) -> str:
    drawn = []
    for name, found in ((name, result[name]) for name in STEPS):
        dt, runs = found["dt"], found["solvers"]
        if name == "pendulum":
            angles = {
                label: ([row[0] for row in run["x"]], [row[1] for row in run["x"]])
                for label, run in runs.items()
            }
            drawn.append(
                charts.lines("Pendulum", "angle, rad", "velocity, rad/s", angles, log=False)
            )
        else:
            goal = np.array(found["goal"])
            away = {
                label: (
                    dt * np.arange(len(run["x"])),
                    np.linalg.norm(np.array(run["x"]) - goal, axis=1).tolist(),
                )
                for label, run in runs.items()
            }
            drawn.append(
                charts.lines("Cart-pole", "s", "distance to the goal state", away, log=False)
            )
        controls = {label: (dt * np.arange(len(run["u"])), run["u"]) for label, run in runs.items()}
        drawn.append(
            charts.lines(
                f"{name.capitalize()}: controls",
                "s",
                "N m" if name == "pendulum" else "N",
                controls,
                log=False,
            )
        )
    return charts.page(
        "Swing-up by MPC with three solvers",
        drawn,
        f"{info['cpu']}, {info['date'][:10]}; bench/mpc.py --parts swing_up",
    )


def table(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, found in ((name, result[name]) for name in STEPS):
        for label, run in found["solvers"].items():
            rows.append([name, label, f"{run['iterations']:.1f}", f"{run['final_error']:.2e}"])
        for pair, row in found["apart"].items():
            rows.append([name, f"{pair} apart", f"x {row['x']:.1e}", f"u {row['u']:.1e}"])
    return rows
