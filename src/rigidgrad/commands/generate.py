"""`rigidgrad generate ROBOT FUNCTIONS`: source code for use without Python."""

from __future__ import annotations

import argparse
from typing import Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, show

TARGETS = ("c", "cuda", "opencl", "verilog")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "generate",
        help="source code for a robot's functions: C, CUDA, OpenCL, Verilog",
        description="Writes source code for functions of a robot. A function of a frame is written with it: jacobian:tool.",
        epilog="Files that an earlier call wrote are replaced; a file of yours that is in the way is an error.",
    )
    add_robot(parser)
    parser.add_argument("functions", nargs="+", metavar="FUNCTION", help="rnea, aba, aba_derivatives, jacobian:FRAME, …")
    parser.add_argument("--target", choices=TARGETS, default="c", help="default: c")
    parser.add_argument("--out", default="build", metavar="FOLDER", help="default: build")
    parser.add_argument("--dtype", choices=("float64", "float32"), action="append", help="may be repeated; default: both (not for verilog)")
    parser.add_argument("--name", help="prefix of what is generated; default: the robot's name")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.codegen import generate

    requests: list[Any] = []
    for text in arguments.functions:
        function, _, frame = text.partition(":")
        requests.append((function, {"frame": frame}) if frame else function)
    robot = load_robot(arguments)
    options = {"dtypes": arguments.dtype} if arguments.dtype else {}
    files = generate(robot, requests, target=arguments.target, out=arguments.out, name=arguments.name, **options)
    lines = [f"wrote {path} ({path.stat().st_size / 1000:.0f} kB)" for path in files]
    show(arguments, {"robot": robot.name, "target": arguments.target, "files": files}, "\n".join(lines))
