"""`rigidgrad plan ROBOT --goal …`: a motion among the shapes of a scene file."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.commands.terminal import (
    add_output,
    add_robot,
    facts,
    load_robot,
    positive,
    progress,
    seconds,
    show,
)
from rigidgrad.errors import InputError, UsageError
from rigidgrad.files import numbers_in, read_arrays

if TYPE_CHECKING:
    from rigidgrad.robot import Robot


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "plan",
        help="plan a path that touches nothing",
        description=(
            "Plans a path from a start to a goal that touches nothing of a scene, and the fastest"
            " motion along it, and writes it as path.npz: q, v, t, corners. The exit code is 1"
            " unless it was solved."
        ),
    )
    add_robot(parser)
    parser.add_argument("--scene", metavar="FILE", help="a TOML file of [[shape]] tables")
    parser.add_argument(
        "--start",
        default="neutral",
        metavar="Q",
        help="numbers with commas, an .npy file, or neutral, the default",
    )
    parser.add_argument(
        "--goal",
        metavar="Q",
        help="likewise; an .npy file may hold several positions, of which one is reached",
    )
    parser.add_argument(
        "--frame", metavar="NAME", help="instead of --goal: the frame to bring to --pose"
    )
    parser.add_argument(
        "--pose",
        metavar="X,Y,Z[,R,P,Y]",
        help="where --frame is to be: metres, then roll, pitch and yaw in radians",
    )
    parser.add_argument(
        "--margin", type=float, default=0.0, metavar="M", help="metres to keep away from everything"
    )
    parser.add_argument(
        "--torque",
        action="store_true",
        help="keep the robot's own torque limits, too, not only those of velocity",
    )
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=5.0,
        metavar="S",
        help="for the search; default: 5",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another number, another search; default: 0"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("path.npz"), metavar="FILE", help="default: path.npz"
    )
    parser.add_argument(
        "--report",
        nargs="?",
        type=Path,
        const=Path("report.html"),
        metavar="FILE",
        help="write a page with the motion; default: report.html",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.geometry.scene import Scene
    from rigidgrad.planning import plan

    if (arguments.goal is None) == (arguments.frame is None) or (arguments.frame is None) != (
        arguments.pose is None
    ):
        raise UsageError("plan takes --goal, or --frame and --pose")
    robot = load_robot(arguments)
    scene = Scene.read(arguments.scene) if arguments.scene else Scene()
    start = _position(robot, "--start", arguments.start)
    goal: Any = (
        {arguments.frame: _pose(arguments.pose)}
        if arguments.frame
        else _position(robot, "--goal", arguments.goal)
    )
    with progress(arguments, f"planning for {robot.name}", arguments.seconds) as step:
        step("shapes of links", by=0.0)
        links = robot.collisions.links
        last = time.perf_counter()

        def searching(rounds: int, most: int) -> None:
            nonlocal last
            now = time.perf_counter()
            step(f"{rounds} rounds of at most {most}", by=now - last)
            last = now

        path = plan(
            robot,
            start,
            goal,
            scene,
            margin=arguments.margin,
            torque=True if arguments.torque else None,
            seconds=arguments.seconds,
            seed=arguments.seed,
            progress=searching,
        )
    data = {
        "status": path.status,
        "advice": path.advice,
        "duration": path.duration,
        "corners": len(path.corners),
        **path.stats,
    }
    if not links:
        data["note"] = "the robot's file has no collision shapes: nothing was avoided"
    if path.solved:
        around: dict[str, Any] = dict(path.surroundings.arrays())  # drawn by `view`
        with open(arguments.out, "wb") as file:
            np.savez(file, q=path.q, v=path.v, t=path.time, corners=path.corners, **around)
    said: dict[str, object] = {"status": path.status + (f"; {path.advice}" if path.advice else "")}
    if path.solved:
        said |= {
            "corners": len(path.corners),
            "lasts": seconds(path.duration),
            "written": str(arguments.out),
        }
    if arguments.report:
        from rigidgrad.reports import report

        data["report"] = said["report"] = report(
            path, arguments.report, title=f"{robot.name}: a planned path", robot=robot
        )
    said |= {"took": seconds(path.stats["seconds"])}
    if "note" in data:
        said["note"] = data["note"]
    if path.solved:
        said["next"] = (
            f"rigidgrad view {shlex.quote(arguments.robot)} {shlex.quote(str(arguments.out))}"
            " --html motion.html"
        )
    show(arguments, data, facts(said))
    return 0 if path.solved else 1


def _position(robot: Robot, option: str, text: str) -> np.ndarray:
    if text == "neutral":
        return robot.neutral()
    if text.endswith((".npy", ".npz")):
        arrays = read_arrays(text)
        name = next((n for n in ("", "q") if n in arrays), None)
        if name is None:
            raise InputError(f"{option}: {text!r} has no array q")
        return numbers_in(name, arrays[name])
    return _numbers(option, text)


def _numbers(option: str, text: str) -> np.ndarray:
    try:
        return np.array([float(x) for x in text.split(",")])
    except ValueError:
        raise UsageError(f"{option} is numbers with commas between them, not {text!r}") from None


def _pose(text: str) -> np.ndarray:
    from rigidgrad.model.pose import pose_from_xyz_rpy

    found = _numbers("--pose", text)
    if len(found) == 3:
        return found
    if len(found) != 6:
        raise UsageError(f"--pose is x,y,z or x,y,z,roll,pitch,yaw, not {len(found)} numbers")
    return pose_from_xyz_rpy(found[:3], found[3:]).matrix()
