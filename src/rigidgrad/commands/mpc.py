"""`rigidgrad mpc TASK.toml`: the robot of a task file under model predictive control."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from rigidgrad.commands.solve import Compiling, add_task, free_base, to_view
from rigidgrad.commands.terminal import add_output, facts, positive, progress, seconds, show
from rigidgrad.errors import InputError

_FEW = 3  # periods


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "mpc",
        help="run the controller of a task file on a simulated robot",
        description=(
            "Controls the plant of a task file's [mpc] table, and writes what happened as log.npz."
            " The exit code is 1 if the controller had to give up planning and hold its posture,"
            " was outside of limits, or was further from the target than `within` allows."
        ),
    )
    add_task(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the log; default: what the task says, or log.npz"
    )
    parser.add_argument(
        "--duration", type=positive(float), metavar="SECONDS", help="instead of the task's"
    )
    parser.add_argument(
        "--realtime", action="store_true", help="by the clock, as `realtime = true` in the task"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.tasks import load_task

    task = load_task(arguments.task, allow_outside=arguments.allow_outside)
    with Compiling() as compiling:
        controller, plant = task.controller(), task.plant()
        # a few plans of another controller on another plant need all the code of many
        task.controller().run(task.plant(), max(_FEW * task.mpc["period"], 2 * plant.dt))
    duration = arguments.duration or task.mpc["duration"]
    with progress(arguments, f"controlling {task.robot.name}", round(duration / plant.dt)) as step:

        def tell(plant: Any) -> bool:
            step(f"{plant.time:.1f} s")
            return False

        log = controller.run(
            plant, duration, realtime=arguments.realtime or task.mpc["realtime"], until=tell
        )
    out = arguments.out or task.output("log") or Path("log.npz")
    try:
        with out.open("wb") as file:
            log.save(file, around(task, log))  # what `view` draws
    except OSError as error:
        raise InputError(f"the log cannot be written to {str(out)!r}: {error.strerror}") from None
    data = summary(task, controller, log) | {
        "compile_seconds": compiling.seconds,
        "trouble": controller.trouble,
        "files": [out],
    }
    lines = format_summary(task, data, str(compiling))
    if page := arguments.report or task.output("report"):
        from rigidgrad.control.mpc.tracking import tracking
        from rigidgrad.reports import report

        run = (
            log
            if task.tracked is None
            else tracking(log, controller, after=0.5 * float(log.t[-1] - log.t[0]))
        )
        title = f"{task.robot.name}: {Path(arguments.task).name}"
        data["files"].append(
            report(
                {"Summary": lines, "Log": run},
                page,
                title=title,
                robot=task.robot,
                problem=controller,
            )
        )
    lines["wrote"] = ", ".join(map(str, data["files"]))
    lines["next"] = to_view(arguments.task, out)
    show(arguments, data, facts(lines))
    return 0 if data["succeeded"] else 1


def around(task: Any, log: Any) -> Any:
    """The obstacles of a task, and its target at the times of a log."""
    from rigidgrad.control.surroundings import Surroundings

    found = Surroundings.of(task.problem).first_rows
    if task.tracked is None or not found.targets:
        return found
    first, *others = found.targets
    path = task.tracked.target(log.t)
    still = (path == path[:1]).all()
    return dataclasses.replace(
        found, targets=(first._replace(point=path[:1] if still else path, rotation=None), *others)
    )


def summary(task: Any, controller: Any, log: Any) -> dict[str, Any]:
    """How a run went."""
    import numpy as np

    spent = log.solve_seconds
    data: dict[str, Any] = {
        "driven": task.system.driven,
        "steps": log.steps,
        "solves": log.solves,
        "solve_seconds": {
            "median": float(np.median(spent)),
            "p99": float(np.percentile(spent, 99)),
            "worst": float(spent.max()),
        },
        "counts": dict(log.counts),
        "simulated": log.simulated,
        "distance": None,
        "succeeded": not log.counts["held"],
    }
    if task.problem.constraints:
        seen = np.isfinite(log.x).all(axis=1)
        data["violation"], outside = controller.violation_of(log.x[seen])
        data["succeeded"] &= not outside
    if task.tracked is not None:
        seen = np.isfinite(log.x).all(axis=1)  # without the samples that were lost
        late = seen & (log.t >= log.t[0] + 0.5 * (log.t[-1] - log.t[0]))
        distance = task.tracked.distance(log.t[late], log.x[late])
        data["distance"] = {
            "mean": float(distance.mean()),
            "worst": float(distance.max()),
            "last": float(distance[-1]),
        }
        within = task.mpc["within"]
        data["succeeded"] &= within is None or data["distance"]["mean"] <= within
    return data


def format_summary(task: Any, data: dict[str, Any], compiled: str) -> dict[str, str]:
    """The same for people."""
    time, counts = data["solve_seconds"], data["counts"]
    fallen = {
        name: count
        for name, count in counts.items()
        if count and not (name == "late" and data["simulated"])
    }
    lines = {
        "task": (
            f"{task.robot.name} on {task.mpc['plant']['type']}, a plan every"
            f" {seconds(task.mpc['period'])}"
        ),
        "driven": data["driven"],
        **free_base(task),
        "steps": f"{data['steps']}, with {data['solves']} plans",
        "compiled": compiled,
        "a plan took": (
            f"{seconds(time['median'])} (median), 99% below {seconds(time['p99'])}, worst"
            f" {seconds(time['worst'])}"
        ),
        "time": f"by the clock, {counts['late']} of {data['steps']} deadlines missed",
        "fallbacks": ", ".join(f"{name} {count}" for name, count in fallen.items()) or "none",
    }
    if data["simulated"]:
        missed = (
            f"{counts['late']} of {data['solves']} plans took longer than the period on this"
            " machine"
        )
        lines["time"] = f"simulated: {missed}" + (
            "; on a robot they would come late" if counts["late"] else ""
        )
    if "violation" in data:
        lines["limits"] = (
            f"outside of them by {data['violation']:.2g} at most (m, rad, rad/s);"
            f" {counts['violated']} of {data['solves']} plans were"
        )
    if data["trouble"]:
        lines["trouble"] = data["trouble"]
    if distance := data["distance"]:
        within = task.mpc["within"]
        allowed = (
            ""
            if within is None
            else f"; {'within' if distance['mean'] <= within else 'NOT within'} {1e3 * within:g} mm"
        )
        lines["to the target"] = (
            f"{1e3 * distance['mean']:.1f} mm in the mean of the second half,"
            f" {1e3 * distance['worst']:.1f} at most{allowed}"
        )
    return lines
