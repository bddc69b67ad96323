"""`rigidgrad ros2 TASK.toml`: a ROS 2 package that controls the robot of a task file."""

from __future__ import annotations

import argparse
from typing import Any

from rigidgrad.commands.terminal import add_output, positive, show


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "ros2",
        help="a ROS 2 package for the controller of a task file",
        description=(
            "Writes a package: a plug-in of ros2_control in C++ that applies controls and holds the"
            " posture where none come, and the node that plans."
        ),
        epilog="Files that an earlier call wrote are replaced; a file of yours in the way is an error.",
    )
    parser.add_argument("task", help="a task file with [mpc]; `rigidgrad init ROBOT` writes one")
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="of the package, such as ws/src/arm_mpc"
    )
    parser.add_argument("--name", help="of the package; default: that of its folder")
    parser.add_argument(
        "--rate",
        type=positive(float),
        default=1000.0,
        metavar="HZ",
        help="updates a second of the controller manager; default: 1000",
    )
    parser.add_argument(
        "--planner",
        choices=("python", "c"),
        default="python",
        help="who plans: a node in Python, or the plug-in itself by generated C; default: python",
    )
    parser.add_argument("--maintainer", default="nobody", help="for package.xml")
    parser.add_argument("--email", default="nobody@example.com", help="for package.xml")
    parser.add_argument("--license", default="Proprietary", help="for package.xml")
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the task's [output] name files outside of the task's folder",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad import ros2

    files = ros2.generate(
        arguments.task,
        arguments.out,
        name=arguments.name,
        planner=arguments.planner,
        rate=arguments.rate,
        maintainer=arguments.maintainer,
        email=arguments.email,
        license=arguments.license,
        allow_outside=arguments.allow_outside,
    )
    show(arguments, {"files": files}, "\n".join(f"wrote {path}" for path in files))
