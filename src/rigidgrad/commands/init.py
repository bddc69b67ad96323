"""`rigidgrad init ROBOT`: a task file to begin with."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show, write_text
from rigidgrad.errors import UsageError


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "init",
        help="write a task file for a robot",
        description="Writes a task file for a robot of yours, with comments: a motion to a point, limits, and control along a figure eight.",
    )
    add_robot(parser)
    parser.add_argument("--out", type=Path, default=Path("task.toml"), metavar="FILE", help="default: task.toml")
    parser.add_argument("--force", action="store_true", help="replace the file if there is one")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.model.source import bundled
    from rigidgrad.tasks.template import template

    robot, out = load_robot(arguments), arguments.out
    if out.exists() and not arguments.force:
        raise UsageError(f"{str(out)!r} exists; --force replaces it, --out FILE names another")
    source = arguments.robot
    if source not in bundled():
        source = Path(os.path.relpath(source, out.parent)).as_posix()
    write_text(out, template(robot, source))
    show(arguments, {"file": out, "robot": robot.name}, f"wrote {out}; next: rigidgrad solve {out} --report")
