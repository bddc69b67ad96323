"""`rigidgrad mpc TASK.toml`: the robot of a task file under model predictive control."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rigidgrad.commands.solve import add_task
from rigidgrad.commands.terminal import add_output, facts, positive, progress, seconds, show
from rigidgrad.errors import InputError


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "mpc",
        help="run the controller of a task file on a simulated robot",
        description="Controls the plant of a task file's [mpc] table, and writes what happened as log.npz. The exit code is 1 if the controller had to give up "
        "planning and hold its posture, or was further from the target than `within` allows.",
    )
    add_task(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the log; default: what the task says, or log.npz")
    parser.add_argument("--duration", type=positive(float), metavar="SECONDS", help="instead of the task's")
    parser.add_argument("--realtime", action="store_true", help="by the clock, as `realtime = true` in the task")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.tasks import load_task

    task = load_task(arguments.task)
    controller, plant = task.controller(), task.plant()
    duration = arguments.duration or task.mpc["duration"]
    with progress(arguments, f"controlling {task.robot.name}", round(duration / plant.dt)) as step:

        def tell(plant: Any) -> bool:
            step(f"{plant.time:.1f} s")
            return False

        log = controller.run(plant, duration, realtime=arguments.realtime or task.mpc["realtime"], until=tell)
    out = arguments.out or task.output("log") or Path("log.npz")
    try:
        with out.open("wb") as file:
            log.save(file)
    except OSError as error:
        raise InputError(f"the log cannot be written to {str(out)!r}: {error.strerror}") from None
    data = summary(task, log) | {"trouble": controller.trouble, "files": [out]}
    lines = told(task, data)
    if page := arguments.report or task.output("report"):
        from rigidgrad.reports import report

        title = f"{task.robot.name}: {Path(arguments.task).name}"
        data["files"].append(report({"Summary": lines, "Log": log}, page, title=title, robot=task.robot))
    lines["wrote"] = ", ".join(map(str, data["files"]))
    show(arguments, data, facts(lines))
    return 0 if data["succeeded"] else 1


def summary(task: Any, log: Any) -> dict[str, Any]:
    """How a run went."""
    import numpy as np

    spent = log.solve_seconds
    data: dict[str, Any] = {
        "steps": log.steps,
        "solves": log.solves,
        "solve_seconds": {"median": float(np.median(spent)), "p99": float(np.percentile(spent, 99)), "worst": float(spent.max())},
        "counts": dict(log.counts),
        "distance": None,
        "succeeded": not log.counts["held"],
    }
    if task.tracked is not None:
        seen = np.isfinite(log.x).all(axis=1)  # without the samples that were lost
        late = seen & (log.t >= log.t[0] + 0.5 * (log.t[-1] - log.t[0]))
        distance = task.tracked.distance(log.t[late], log.x[late])
        data["distance"] = {"mean": float(distance.mean()), "worst": float(distance.max()), "last": float(distance[-1])}
        within = task.mpc["within"]
        data["succeeded"] &= within is None or data["distance"]["mean"] <= within
    return data


def told(task: Any, data: dict[str, Any]) -> dict[str, str]:
    """The same for people."""
    time, counts = data["solve_seconds"], data["counts"]
    lines = {
        "task": f"{task.robot.name} on {task.mpc['plant']['type']}, a plan every {seconds(task.mpc['period'])}",
        "steps": f"{data['steps']}, with {data['solves']} plans",
        "a plan took": f"{seconds(time['median'])} (median), 99% below {seconds(time['p99'])}, worst {seconds(time['worst'])}",
        "fallbacks": ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none",
    }
    if data["trouble"]:
        lines["trouble"] = data["trouble"]
    if distance := data["distance"]:
        within = task.mpc["within"]
        allowed = "" if within is None else f"; {'within' if distance['mean'] <= within else 'NOT within'} {1e3 * within:g} mm"
        lines["to the target"] = (
            f"{1e3 * distance['mean']:.1f} mm in the mean of the second half, {1e3 * distance['worst']:.1f} at most{allowed}"
        )
    return lines
