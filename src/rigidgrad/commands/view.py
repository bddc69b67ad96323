"""`rigidgrad view ROBOT`: a robot, or a motion of one, in a browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show
from rigidgrad.errors import InputError


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "view",
        help="show a robot, or a motion of it, in a browser",
        description="Shows a robot with a slider a joint, or plays a motion of it, in a browser. Meshes are not read: simple shapes stand for them.",
    )
    add_robot(parser)
    parser.add_argument("motion", nargs="?", help="what to play: a controller's log (.npz), or positions or states, a row a frame (.npy)")
    parser.add_argument("--dt", type=float, help="seconds from frame to frame, where the file does not say")
    parser.add_argument("--frame", help="the frame whose path is drawn (default: the end of the longest chain)")
    parser.add_argument("--html", metavar="FILE", help="save a page that needs nothing but a browser, instead of serving one")
    add_address(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Where a page is served."""
    parser.add_argument("--port", type=int, default=8080, help="default: 8080, or the next that is free")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; default: 127.0.0.1, this machine alone")


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.viewer.show import view

    robot = load_robot(arguments)
    motion = None if arguments.motion is None else read_motion(Path(arguments.motion))
    shown = {"dt": arguments.dt, "frame": arguments.frame}
    if arguments.html:
        path = view(robot, motion, html=arguments.html, **shown)
        show(arguments, {"html": path}, f"wrote {path}")
        return
    stage = view(
        robot, motion, host=arguments.host, port=arguments.port, block=False, announce=not (arguments.json or arguments.quiet), **shown
    )
    with stage:
        if arguments.json:
            show(arguments, {"url": stage.url, "port": stage.port}, "")
        stage.wait()


def read_motion(path: Path) -> Any:
    """Positions or states from a file: arrays `x` or `q`, and `t` if there are times, of an .npz, or a single array."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            name = next((n for n in ("x", "q") if n in loaded.files), None)
            if name is None:
                raise InputError(f"{str(path)!r} has no array x or q; it has {', '.join(loaded.files) or 'none'}")
            return SimpleNamespace(x=loaded[name], t=loaded["t"] if "t" in loaded.files else None)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{str(path)!r} is no .npz or .npy file of numbers ({error})") from None
