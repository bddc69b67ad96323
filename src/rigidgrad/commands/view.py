"""`rigidgrad view ROBOT`: a robot, or a motion of one, in a browser."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show
from rigidgrad.errors import InputError, UsageError
from rigidgrad.files import numbers_in, read_arrays


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "view",
        help="show a robot, or a motion of it, in a browser",
        description=(
            "Shows a robot with a slider for each joint, or plays a motion, in a browser. Meshes"
            " are read from the robot's folder and from those of --roots."
        ),
    )
    add_robot(parser, tasks=True)
    parser.add_argument(
        "motion",
        nargs="?",
        help=(
            "what to play: a controller's log (.npz), or positions or states, a row a frame (.npy)"
        ),
    )
    parser.add_argument(
        "--dt", type=float, help="seconds from frame to frame, where the file does not say"
    )
    parser.add_argument("--frame", help="the frame whose path is drawn (default: the robot's tool)")
    parser.add_argument(
        "--scene",
        metavar="FILE",
        help="a TOML file of [[shape]] tables to draw, instead of the motion's own",
    )
    parser.add_argument(
        "--roots",
        metavar="FOLDER",
        nargs="+",
        default=(),
        help="other folders that have packages with the robot's meshes",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="save a page that needs nothing but a browser, instead of serving one",
    )
    add_address(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Where a page is served."""
    parser.add_argument(
        "--port", type=int, default=8080, help="default: 8080, or the next that is free"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to serve at; default: 127.0.0.1, this machine alone",
    )


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.viewer.show import view

    if arguments.robot.endswith((".npz", ".npy")):
        raise UsageError(
            f"{arguments.robot!r} is a motion; name its robot or task first: rigidgrad view"
            f" task.toml {shlex.quote(arguments.robot)}"
        )
    motion = None if arguments.motion is None else read_motion(Path(arguments.motion))
    shown: dict[str, Any] = {
        "dt": arguments.dt,
        "frame": arguments.frame,
        "roots": arguments.roots,
    }
    if arguments.scene:
        from rigidgrad.geometry.scene import Scene

        shown["scene"] = Scene.read(arguments.scene)
    if arguments.robot.endswith(".toml"):
        from rigidgrad.tasks import load_task

        robot = load_task(arguments.robot).robot
    else:
        robot = load_robot(arguments)
    if arguments.html:
        path = view(robot, motion, html=arguments.html, **shown)
        show(arguments, {"html": path}, f"wrote {path}")
        return
    stage = view(
        robot,
        motion,
        host=arguments.host,
        port=arguments.port,
        block=False,
        announce=not (arguments.json or arguments.quiet),
        **shown,
    )
    with stage:
        if arguments.json:
            show(arguments, {"url": stage.url, "port": stage.port}, "")
        stage.wait()


def read_motion(path: Path) -> Any:
    """Positions or states from a file: arrays `x` or `q` of an .npz, `t` if there are times, and
    the obstacles, targets and forces of a solution; or a single array.
    """
    from rigidgrad.control.surroundings import Surroundings

    arrays = read_arrays(path)
    name = next((n for n in ("", "x", "q") if n in arrays), None)
    if name is None:
        raise InputError(
            f"{str(path)!r} has no array x or q; it has {', '.join(map(repr, arrays)) or 'none'}"
        )
    try:
        x, t, dt = (numbers_in(n, arrays[n]) if n in arrays else None for n in (name, "t", "dt"))
        step = None if dt is None else float(dt)
        if step is None and t is not None and t.ndim == 1 and len(t) > 1:
            step = float(t[-1] - t[0]) / (len(t) - 1)
        around = Surroundings.from_arrays(arrays)
    except (InputError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"{str(path)!r} is no motion: {error}") from None
    return SimpleNamespace(x=x, t=t, times=t, dt=step, surroundings=around) if name else x
