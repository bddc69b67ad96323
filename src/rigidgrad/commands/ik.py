"""`rigidgrad ik ROBOT --pose x,y,z,roll,pitch,yaw`: a configuration that brings a frame there, or a
page on which the target is dragged.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.commands.terminal import add_output, add_robot, facts, load_robot, show, table
from rigidgrad.commands.view import add_address
from rigidgrad.errors import UsageError

if TYPE_CHECKING:
    from rigidgrad.ik import InverseKinematics
    from rigidgrad.robot import Robot


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "ik",
        help="which configuration brings a frame to a pose",
        description=(
            "Finds configurations within the joint limits that bring a frame to a point or a pose,"
            " or says how near it comes; or serves a page on which the target is dragged."
        ),
    )
    add_robot(parser)
    parser.add_argument(
        "--frame", help="what goes there (default: the robot's tool; rigidgrad info lists frames)"
    )
    parser.add_argument(
        "--pose",
        metavar="X,Y,Z[,R,P,Y]",
        help=(
            "metres in the world, and roll, pitch, yaw in radians; --pose=-0.3,… where the first is"
            " negative"
        ),
    )
    parser.add_argument(
        "--start", metavar="Q,…", help="where the search begins: one number for each of q"
    )
    parser.add_argument(
        "--free",
        metavar="AXES",
        default="",
        help="axes of the target that do not count, such as rz or x,rotation",
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-6, help="metres and radians; default: 1e-6"
    )
    parser.add_argument("--seeds", type=int, default=64, help="starts, at most; default: 64")
    parser.add_argument(
        "--best", type=int, default=1, help="how many different solutions; default: 1"
    )
    parser.add_argument(
        "--scene",
        metavar="FILE",
        help="a scene (.toml) that solutions keep clear of, as links do of each other",
    )
    parser.add_argument(
        "--margin", type=float, default=0.0, help="metres that they keep clear; default: 0"
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="save a picture of the robot there, a page that needs nothing but a browser",
    )
    parser.add_argument(
        "--page", action="store_true", help="serve a page on which the target is dragged"
    )
    add_address(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rigidgrad.ik import Frame
    from rigidgrad.model.tool_frame import tool_frame

    robot = load_robot(arguments)
    frame = arguments.frame or tool_frame(robot.model)
    start = (
        None
        if arguments.start is None
        else np.array(_numbers("--start", arguments.start, (robot.nq,)))
    )
    if arguments.page:
        return _serve(arguments, robot, frame, start)
    if arguments.pose is None:
        raise UsageError("ik needs --pose x,y,z or x,y,z,roll,pitch,yaw, or --page")
    goal = _goal(_numbers("--pose", arguments.pose, (3, 6)))
    options: dict[str, Any] = {
        "tolerance": arguments.tolerance,
        "seeds": arguments.seeds,
        "best": arguments.best,
    }
    if arguments.scene is not None:
        from rigidgrad.geometry.scene import Scene

        options |= {"scene": Scene.read(arguments.scene), "margin": arguments.margin}
    elif arguments.margin:
        raise UsageError("--margin is kept from a scene: give one with --scene scene.toml")
    r = robot.inverse_kinematics(Frame(frame, goal, free=arguments.free), start, **options)
    solutions = r.q.reshape(-1, robot.nq)
    solved = r.success.reshape(-1)
    if not solved.any():
        solutions, solved = solutions[:1], solved[:1]
    else:
        solutions, solved = solutions[solved], solved[solved]
    data = {"robot": robot.name, "frame": frame, "target": goal, "joints": robot.joints} | {
        name: getattr(r, name) for name in r._fields
    }
    lines = _outcome(arguments, frame, r)
    if arguments.html:
        from rigidgrad.viewer.show import view

        place = goal if goal.shape == (3,) else goal[:3, 3]
        data["html"] = view(robot, q=solutions[0], points={"target": place}, html=arguments.html)
        lines["wrote"] = arguments.html
    again = f"rigidgrad ik {shlex.quote(arguments.robot)} --frame {shlex.quote(frame)}"
    floating = " --floating-base" if arguments.floating_base else ""
    lines["next"] = f"{again}{floating} --page, to drag the target" + (
        "" if arguments.html else "; --html FILE saves a picture"
    )
    show(arguments, data, f"{_joints(robot, solutions)}\n\n{facts(lines)}")
    return 0 if solved.all() else 1


def _outcome(arguments: argparse.Namespace, frame: str, r: InverseKinematics) -> dict[str, object]:
    k = int(np.argmin(np.where(r.success, 0.0, r.error)))
    position, rotation, steps = (
        float(x.reshape(-1)[k]) for x in (r.position_error, r.rotation_error, r.iterations)
    )
    if not r.success.any():
        if arguments.scene is not None and r.error.reshape(-1)[k] <= arguments.tolerance:
            return {
                "target": (
                    f"in reach, but all solutions of {arguments.seeds} starts collide; this is one"
                    " of them"
                )
            }
        return {
            "target": (
                f"out of reach, or not found from {arguments.seeds} starts; this is the nearest"
            ),
            frame: f"{position:.4g} m and {rotation:.4g} rad away",
        }
    found = (
        f"{int(r.success.sum())} solutions" if r.success.size > 1 else f"after {steps:.0f} steps"
    )
    return {"target": f"reached, {found}", frame: f"{position:.1e} m and {rotation:.1e} rad away"}


def _joints(robot: Robot, solutions: np.ndarray) -> str:
    """A row for each number of q, a column for each solution."""
    rows = [
        (
            "",
            *(["q"] if len(solutions) == 1 else [f"q {k + 1}" for k in range(len(solutions))]),
            "lower",
            "upper",
        )
    ]
    lower, upper = robot.limits.lower, robot.limits.upper
    for joint in robot.model.joints:
        for k in range(0 if joint.is_mimic else joint.nq):
            name = joint.name if joint.nq == 1 else f"{joint.name} {k}"
            place = joint.q + k
            rows.append(
                (
                    name,
                    *(f"{q[place]:.4f}" for q in solutions),
                    *(f"{x[place]:.4g}" for x in (lower, upper)),
                )
            )
    return table(rows, right=range(1, len(solutions) + 3))


def _serve(
    arguments: argparse.Namespace, robot: Robot, frame: str, start: np.ndarray | None
) -> int:
    from rigidgrad.play.reach_page import reach

    announce = not (arguments.json or arguments.quiet)
    page = reach(
        robot,
        frame=frame,
        q=start,
        host=arguments.host,
        port=arguments.port,
        block=False,
        announce=announce,
    )
    assert page is not None
    with page:
        if arguments.json:
            show(arguments, {"url": page.url, "port": page.stage.port}, "")
        page.stage.wait()
    return 0


def _numbers(option: str, text: str, counts: tuple[int, ...]) -> list[float]:
    try:
        found = [float(x) for x in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in counts or not np.isfinite(found).all():
        raise UsageError(
            f"{option} is {text!r}; it is {' or '.join(map(str, counts))} numbers with commas"
            " between them"
        )
    return found


def _goal(numbers: list[float]) -> np.ndarray:
    from rigidgrad.model.pose import rotation_from_rpy

    if len(numbers) == 3:
        return np.array(numbers)
    T = np.eye(4)
    T[:3, 3], T[:3, :3] = numbers[:3], rotation_from_rpy(numbers[3:])
    return T
