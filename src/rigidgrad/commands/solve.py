"""`rigidgrad solve TASK.toml`: the motion that a task file asks for."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigidgrad.commands import library
from rigidgrad.commands.terminal import add_output, facts, progress, seconds, show
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.solution import Solution


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "solve",
        help="plan the motion of a task file",
        description="Plans the motion that a task file asks for, and writes it as solution.npz: x, u, gains, t, dt, cost, status. The exit code is 1 unless it converged.",
    )
    add_task(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: what the task says, or solution.npz")
    library.add_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def add_task(parser: argparse.ArgumentParser) -> None:
    """A task file, and a report about what became of it."""
    parser.add_argument("task", help="a task file; `rigidgrad init ROBOT` writes one")
    parser.add_argument(
        "--report", nargs="?", type=Path, const=Path("report.html"), metavar="FILE", help="write a page; default: report.html"
    )


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.control.solve import solve
    from rigidgrad.tasks import load_task

    task = load_task(arguments.task)
    if arguments.rows or arguments.cluster is not None:
        return library.solve_rows(arguments, task)
    with progress(arguments, f"solving for {task.robot.name}", 2) as step:
        step("compiling")
        problem = task.problem
        began = time.perf_counter()
        solution = solve(problem, task.solver)
        spent = time.perf_counter() - began
    out = save(solution, arguments.out or task.output("solution") or Path("solution.npz"))
    files = [out]
    if page := arguments.report or task.output("report"):
        from rigidgrad.reports import report

        files.append(report(solution, page, title=f"{task.robot.name}: {Path(arguments.task).name}", robot=task.robot))
    data: dict[str, Any] = {
        "status": solution.status,
        "message": solution.message,
        "cost": solution.cost,
        "iterations": solution.iterations,
        "seconds": spent,
        "remaining": solution.remaining,
        "violation": solution.stats.get("violation"),
        "files": files,
    }
    lines = {
        "task": f"{task.robot.name}, {task.steps} steps of {seconds(task.dt)}",
        "status": f"{solution.status}: {solution.message}",
        "cost": f"{solution.cost:.6g} after {solution.iterations} iterations, {seconds(spent)}",
        **{f"left of {name}": f"{distance:.3g}" for name, distance in solution.remaining.items()},
    }
    if problem.constraints:
        lines["limits"] = f"kept to within {solution.stats['violation']:.2g}"
    lines["wrote"] = ", ".join(map(str, files))
    show(arguments, data, facts(lines))
    return 0 if solution.converged else 1


def save(solution: Solution, path: Path) -> Path:
    """A solution as .npz, which `rigidgrad view` plays."""
    import numpy as np

    dt = solution.dt or 1.0
    arrays: dict[str, Any] = {"x": solution.x, "u": solution.u, "gains": solution.gains, "t": dt * np.arange(len(solution.x))}
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, dt=dt, cost=solution.cost, status=solution.status, **arrays)
    except OSError as error:
        raise InputError(f"the solution cannot be written to {str(path)!r}: {error.strerror}") from None
    return path
