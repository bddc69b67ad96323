"""`rigidgrad play [ROBOT]`."""

from __future__ import annotations

import argparse
from typing import Any

from rigidgrad.commands.terminal import add_output, show
from rigidgrad.commands.view import add_address


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "play",
        help="a robot under live model predictive control, in a browser",
        description=(
            "Serves a page on which a robot follows a target under model predictive control, in"
            " real time: drag the target, push the robot, load it, change the controller. Robots"
            " with four legs walk as you steer them, and Atlas keeps its balance."
        ),
    )
    parser.add_argument(
        "robot",
        nargs="?",
        default="iiwa14",
        help=(
            "iiwa14 (default), cartpole, quadrotor, hyq, which walks, and go2, if"
            " example-robot-data is installed, atlas, which stands on two feet and reaches,"
            " hyq_held, or a URDF file of a robot with a fixed base, or with --feet"
        ),
    )
    parser.add_argument(
        "--frame",
        help="what follows the target (default: the robot's tool; rigidgrad info lists frames)",
    )
    parser.add_argument(
        "--feet",
        help=(
            "the frames of the four feet of a robot that is to walk, such as"
            " FL_foot,FR_foot,RL_foot,RR_foot; needs MuJoCo"
        ),
    )
    add_address(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.play.page import play

    page = play(
        arguments.robot,
        frame=arguments.frame,
        feet=(
            None if arguments.feet is None else [name.strip() for name in arguments.feet.split(",")]
        ),
        host=arguments.host,
        port=arguments.port,
        block=False,
        own_process=True,
        announce=not (arguments.json or arguments.quiet),
    )
    assert page is not None
    driven = page.scene.system.driven
    with page:
        show(
            arguments,
            {"url": page.url, "port": page.stage.port, "driven": driven},
            f"driven: {driven}",
        )
        page.stage.wait()
