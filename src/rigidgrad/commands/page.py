"""`rigidgrad page ROBOT`: a page on which thousands of robots move on the visitor's GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show, write_text


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "page",
        help="write a page on which thousands of robots move on the visitor's GPU",
        description=(
            "Writes one file that needs nothing but a browser with WebGPU: copies of the robot fall"
            " from nearby postures, computed by generated shaders and drawn where they are."
        ),
    )
    add_robot(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="where to write the page; default: ROBOT.html, by its name"
    )
    parser.add_argument("--count", type=int, default=4096, help="robots at first; default: 4096")
    parser.add_argument("--dt", type=float, default=0.002, help="seconds of a step; default: 0.002")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.swarm import swarm_page
    from rigidgrad.targets.names import identifier

    robot = load_robot(arguments)
    page = swarm_page(robot, count=arguments.count, dt=arguments.dt)
    path = Path(arguments.out or f"{identifier(robot.name)}.html")
    write_text(path, page)
    show(
        arguments,
        {"robot": robot.name, "page": path, "bytes": path.stat().st_size},
        f"wrote {path} ({path.stat().st_size / 1000:.0f} kB); open it in a browser with WebGPU",
    )
