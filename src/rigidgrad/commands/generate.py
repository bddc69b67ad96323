"""`rigidgrad generate ROBOT FUNCTIONS`, or `TASK.toml`: source code for use without Python."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show
from rigidgrad.errors import InputError, UsageError

TARGETS = ("c", "cuda", "opencl", "verilog", "wgsl")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "generate",
        help="source code: a robot's functions (C, GPUs, circuits, WebGPU), a task's solver (C, CUDA)",
        description=(
            "Writes source code for functions of a robot. A function of a frame is written with it:"
            " jacobian:tool. With a task file instead of a robot, and no functions, it is the"
            " task's problem and solver, as C or for CUDA."
        ),
        epilog=(
            "Files that an earlier call wrote are replaced; a file of yours that is in the way is"
            " an error."
        ),
    )
    add_robot(parser)
    parser.add_argument(
        "functions",
        nargs="*",
        metavar="FUNCTION",
        help="rnea, aba, aba_derivatives, jacobian:FRAME, …",
    )
    parser.add_argument("--target", choices=TARGETS, default="c", help="default: c")
    parser.add_argument("--out", default="build", metavar="FOLDER", help="default: build")
    parser.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        action="append",
        help="may be repeated; default: both (not for verilog and wgsl)",
    )
    parser.add_argument(
        "--shape",
        choices=("thread", "block"),
        action="append",
        help="of kernels for cuda and opencl; may be repeated; default: both",
    )
    parser.add_argument("--name", help="prefix of what is generated; default: the robot's name")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.codegen import generate

    if arguments.robot.endswith(".toml"):
        _write_solver(arguments)
        return
    if not arguments.functions:
        raise UsageError(
            "which functions? For example `rigidgrad generate iiwa14 rnea`; a task file needs none"
        )
    requests: list[Any] = []
    for text in arguments.functions:
        function, _, frame = text.partition(":")
        requests.append((function, {"frame": frame}) if frame else function)
    robot = load_robot(arguments)
    options = {"dtypes": arguments.dtype} if arguments.dtype else {}
    if arguments.shape:
        options["shapes"] = arguments.shape
    files = generate(
        robot, requests, target=arguments.target, out=arguments.out, name=arguments.name, **options
    )
    _tell(arguments, robot.name, files)


def _write_solver(arguments: argparse.Namespace) -> None:
    from rigidgrad.codegen import generate
    from rigidgrad.tasks import load_task

    if arguments.functions or arguments.dtype or arguments.shape:
        raise InputError(
            "a task's solver is written as it is: leave functions, --dtype and --shape out"
        )
    task = load_task(arguments.robot)
    files = generate(
        task.problem,
        task.solver,
        target=arguments.target,
        out=arguments.out,
        name=arguments.name or Path(arguments.robot).stem,
    )
    _tell(arguments, task.robot.name, files)


def _tell(arguments: argparse.Namespace, robot: str, files: list[Path]) -> None:
    lines = [f"wrote {path} ({path.stat().st_size / 1000:.0f} kB)" for path in files]
    data = {"robot": robot, "target": arguments.target, "files": files}
    show(arguments, data, "\n".join(lines))
