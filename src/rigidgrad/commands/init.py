"""`rigidgrad init ROBOT`: a task file to begin with."""

from __future__ import annotations

import argparse
import os
import shlex
import warnings
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, facts, load_robot, show, write_text
from rigidgrad.errors import ModelWarning, UsageError


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "init",
        help="write a task file for a robot",
        description=(
            "Writes a task file for a robot of yours, with comments: a motion to a point, limits,"
            " and control along a figure eight."
        ),
    )
    add_robot(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("task.toml"), metavar="FILE", help="default: task.toml"
    )
    parser.add_argument(
        "--frame",
        help="what goes to the target (default: the robot's tool; rigidgrad info lists frames)",
    )
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.control.costs import Reach
    from rigidgrad.model.source import bundled
    from rigidgrad.tasks import load_task
    from rigidgrad.tasks.first_motion import falling
    from rigidgrad.tasks.template import template

    robot, out = load_robot(arguments), arguments.out
    if out.exists() and not arguments.force:
        raise UsageError(f"{str(out)!r} exists; --force replaces it, --out FILE names another")
    source = arguments.robot
    if source not in bundled():
        source = Path(os.path.relpath(source, out.parent)).as_posix()
    write_text(out, template(robot, source, arguments.frame))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # said when the robot was loaded
        task = load_task(out)
    reach, lock, free = task.costs[0], task.data["lock"], falling(task.system)
    assert isinstance(reach, Reach)
    data = {
        "file": out,
        "robot": robot.name,
        "driven": task.system.driven,
        "free_base": free,
        "frame": reach.frame,
        "target": reach.target,
        "locked": list(lock),
    }
    lines = {"driven": task.system.driven}
    if lock:
        some = list(lock) if len(lock) <= 4 else [*list(lock)[:3], "…", list(lock)[-1]]
        lines["locked"] = (
            f"{len(lock)} joint{'s' if len(lock) > 1 else ''} of fingers: {', '.join(some)}"
        )
    if free:
        lines["gravity"] = (
            "none: nothing holds the free base, so the task is planned as if falling (see the file)"
        )
    what = f"a point of {reach.frame}" if any(reach.offset) else reach.frame
    lines["goes"] = f"{what} to {reach.target} m, in {task.duration:g} s"
    lines["wrote"] = str(out)
    lines["next"] = f"rigidgrad solve {shlex.quote(str(out))} --report"
    show(arguments, data, facts(lines))
