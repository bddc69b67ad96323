"""`rigidgrad solve TASK.toml`: the motion that a task file asks for."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigidgrad.commands import library
from rigidgrad.commands.terminal import add_output, facts, progress, seconds, show
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.solution import Solution

_FEW = 2  # iterations


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "solve",
        help="plan the motion of a task file",
        description=(
            "Plans the motion that a task file asks for, and writes it as solution.npz: x, u,"
            " gains, t, dt, cost, status. The exit code is 1 unless it converged."
        ),
    )
    add_task(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: what the task says, or solution.npz"
    )
    library.add_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def add_task(parser: argparse.ArgumentParser) -> None:
    """A task file, and a report about what became of it."""
    parser.add_argument("task", help="a task file; `rigidgrad init ROBOT` writes one")
    parser.add_argument(
        "--report",
        nargs="?",
        type=Path,
        const=Path("report.html"),
        metavar="FILE",
        help="write a page; default: report.html",
    )
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the task's [output] name files outside of the task's folder",
    )


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.control.solve import solve
    from rigidgrad.tasks import load_task
    from rigidgrad.tasks.words import in_words_of_tasks

    task = load_task(arguments.task, allow_outside=arguments.allow_outside)
    if arguments.rows or arguments.cluster is not None:
        return library.solve_rows(arguments, task)
    with progress(arguments, f"solving for {task.robot.name}", 2) as step:
        step("compiling")
        with Compiling() as compiling:
            problem, solver = task.problem, task.solver
            # a short solve needs all the code of a long one
            solve(
                problem.private_copy(),
                dataclasses.replace(solver, iterations=min(solver.iterations, _FEW)),
            )
        step("solving")
        began = time.perf_counter()
        solution = solve(problem, solver)
        spent = time.perf_counter() - began
    out = save(solution, arguments.out or task.output("solution") or Path("solution.npz"))
    files = [out]
    if page := arguments.report or task.output("report"):
        from rigidgrad.reports import report

        files.append(
            report(
                solution,
                page,
                title=f"{task.robot.name}: {Path(arguments.task).name}",
                robot=task.robot,
            )
        )
    message = in_words_of_tasks(solution.message)
    data: dict[str, Any] = {
        "driven": problem.system.driven,
        "status": solution.status,
        "message": message,
        "cost": solution.cost,
        "iterations": solution.iterations,
        "seconds": spent,
        "compile_seconds": compiling.seconds,
        "remaining": {name: left.by_name() for name, left in solution.remaining.items()},
        "violation": solution.stats.get("violation"),
        "files": files,
    }
    lines = {
        "task": (
            f"{task.robot.name}, "
            + (
                f"{problem.steps} steps of {seconds(problem.dt)}"
                if problem.uniform
                else problem.steps_summary
            )
        ),
        "driven": problem.system.driven,
        **free_base(task),
        "status": f"{solution.status}: {message}",
        "cost": f"{solution.cost:.6g}",
        "compiled": str(compiling),
        "solved": f"in {seconds(spent)}, {solution.iterations} iterations",
        **{f"left of {name}": str(left) for name, left in solution.remaining.items()},
    }
    if problem.timing is not None:
        lines["lasts"] = f"{solution.times[-1]:.6g} s, as chosen"
    if problem.constraints:
        lines["limits"] = f"kept to within {solution.stats['violation']:.2g}"
    lines["wrote"] = ", ".join(map(str, files))
    lines["next"] = to_view(arguments.task, out) + (
        f"; rigidgrad mpc {shlex.quote(arguments.task)} --report" if task.mpc else ""
    )
    show(arguments, data, facts(lines))
    return 0 if solution.converged else 1


class Compiling:
    """Seconds of a block that makes code: `str` says whether that was compiled now, or found in the
    cache.
    """

    def __enter__(self) -> Compiling:
        from rigidgrad.runtime import native

        self._count, self._began = native.compiled_count(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        from rigidgrad.runtime import cache, native

        self.seconds = time.perf_counter() - self._began
        kept = "once: the cache keeps it" if cache.folder() else "at every run: there is no cache"
        self._how = kept if native.compiled_count() > self._count else "found in the cache"

    def __str__(self) -> str:
        return f"in {seconds(self.seconds)} ({self._how})"


def free_base(task: Any) -> dict[str, str]:
    """What becomes of a base that nothing drives; empty where there is none."""
    from rigidgrad.tasks.first_motion import falling

    if not falling(task.system) or any(phase.contacts for phase in task.phases):
        return {}
    falls = (
        "it falls under gravity"
        if any(task.robot.model.gravity)
        else "it floats, without gravity, as it would while falling"
    )
    return {
        "free base": f"nothing holds it, since the task has no contacts ([[phases]] have): {falls}"
    }


def to_view(task: str, motion: Path) -> str:
    """The command that shows a motion of a task's robot."""
    return f"rigidgrad view {shlex.quote(task)} {shlex.quote(str(motion))} --html motion.html"


def save(solution: Solution, path: Path) -> Path:
    """A solution as .npz, which `rigidgrad view` plays."""
    import numpy as np

    dt = solution.dt or 1.0
    arrays: dict[str, Any] = {
        "x": solution.x,
        "u": solution.u,
        "gains": solution.gains,
        "t": solution.times,
    }
    arrays |= solution.drawn.arrays()  # drawn by `view`
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, dt=dt, cost=solution.cost, status=solution.status, **arrays)
    except OSError as error:
        raise InputError(
            f"the solution cannot be written to {str(path)!r}: {error.strerror}"
        ) from None
    return path
