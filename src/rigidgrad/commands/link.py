"""`rigidgrad link TASK.toml`: the controller of a task file serves a robot's process."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from rigidgrad.commands.solve import Compiling, free_base
from rigidgrad.commands.terminal import add_output, complain, facts, positive, seconds, show
from rigidgrad.errors import InputError, UsageError


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "link",
        help="run the controller of a task file for a robot in another process",
        description=(
            "Answers the states that another process writes into shared memory with the controls of"
            " a task file's controller, until that process ends. --header writes what C and C++"
            " need for the other side."
        ),
        epilog="The exit code is 1 if no robot came, or if the controller had to give up planning.",
    )
    parser.add_argument("task", nargs="?", help="a task file; `rigidgrad init ROBOT` writes one")
    parser.add_argument(
        "--name", metavar="NAME", help="of the link, or a path; default: the robot's name"
    )
    parser.add_argument(
        "--slots",
        type=positive(int),
        default=64,
        help="messages that each direction holds, a power of two; default: 64",
    )
    parser.add_argument(
        "--duration",
        type=positive(float),
        metavar="SECONDS",
        help="of the robot's time; default: until it ends",
    )
    parser.add_argument(
        "--wait",
        type=positive(float),
        metavar="SECONDS",
        default=math.inf,
        help="for the robot to come; default: for ever",
    )
    parser.add_argument(
        "--header", type=Path, metavar="FOLDER", help="write rigidgrad_link.h there, and end"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad import link

    if arguments.header is not None:
        path = arguments.header / link.HEADER
        try:
            arguments.header.mkdir(parents=True, exist_ok=True)
            path.write_text(link.header(), "utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None
        show(arguments, {"files": [path]}, f"wrote {path}")
        return 0
    if arguments.task is None:
        raise UsageError("link needs a task file, or --header FOLDER")
    from rigidgrad.tasks import load_task

    task = load_task(arguments.task)
    with Compiling() as compiling:
        controller, plant = task.controller(), task.plant()
        task.controller().run(task.plant(), max(3 * task.mpc["period"], 2 * plant.dt))
    system = controller.system
    name = arguments.name or task.robot.name
    with link.Link(
        name, "controller", states=system.nx, controls=system.nu, slots=arguments.slots
    ) as memory:
        if not (arguments.json or arguments.quiet):
            complain(
                f"ready at {memory.path}: {system.nx} states, {system.nu} controls; Ctrl-C ends"
            )
        served = link.serve(
            controller,
            memory,
            duration=arguments.duration,
            deadline=task.mpc["period"],
            patience=arguments.wait,
        )
    data = {
        "link": str(memory.path),
        "states": system.nx,
        "controls": system.nu,
        "driven": task.system.driven,
        "answered": served.answered,
        "skipped": served.skipped,
        "late": served.late,
        "seconds": {p: served.percentile(q) for p, q in (("median", 50), ("p99", 99))},
        "counts": served.counts,
        "trouble": controller.trouble,
        "compile_seconds": compiling.seconds,
    }
    lines = {
        "link": f"{memory.path}, {system.nx} states, {system.nu} controls",
        "driven": task.system.driven,
        **free_base(task),
        "compiled": str(compiling),
        "answered": f"{served.answered} states; {served.skipped} were passed over for newer ones",
    }
    if served.answered:
        lines["an answer took"] = (
            f"{seconds(served.percentile(50))} (median), 99% below"
            f" {seconds(served.percentile(99))}; {served.late} longer than the period"
        )
    used = [f"{name} {count}" for name, count in served.counts.items() if count]
    lines["fallbacks"] = ", ".join(used) or "none"
    if controller.trouble:
        lines["trouble"] = controller.trouble
    show(arguments, data, facts(lines))
    return 0 if served.answered and not served.counts.get("held") else 1
