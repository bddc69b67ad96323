"""The command line: `rigidgrad COMMAND …`. Each command is a file in `commands/`; what is heavy is
loaded when a command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import rigidgrad
from rigidgrad.commands.terminal import complain, in_words_of_options
from rigidgrad.errors import ModelWarning, PassedOverWarning, RigidgradError, UsageError

# in the order of the help page
COMMANDS = (
    "info",
    "check",
    "bench",
    "generate",
    "new",
    "init",
    "solve",
    "mpc",
    "link",
    "ros2",
    "plan",
    "play",
    "ik",
    "view",
    "page",
    "fpga",
    "prove",
    "trees",
    "cache",
    "doctor",
    "reproduce",
    "completion",
)
EXIT_CODES = (
    "exit codes: 0 done; 1 a check or a solve failed, or it could not be done; 2 wrong usage or a"
    " wrong task file; 130 interrupted"
)
# what `rigidgrad` alone prints, before how to get help
FIRST_STEPS = (
    ("rigidgrad new", "write a script for your robot: three questions"),
    ("rigidgrad view iiwa14", "turn the joints of a robot by hand, in the browser"),
    ("rigidgrad play iiwa14", "drag the target of a robot under live control"),
    ("rigidgrad init iiwa14", "write a task file; `rigidgrad solve task.toml --report` plans it"),
    ("rigidgrad check ROBOT.urdf", "does it make physical sense, and are the dynamics right?"),
    ("rigidgrad doctor", "what works on this machine, and how to get the rest"),
)
# what brings a module that is not there
EXTRAS = {
    "viser": "'rigidgrad[view]'",
    "trimesh": "'rigidgrad[view]'",
    "mujoco": "'rigidgrad[plants]'",
    "jax": "'rigidgrad[jax]'",
    "torch": "'rigidgrad[torch]'",
    "cuda": "'rigidgrad[gpu]'",
    "pyopencl": "'rigidgrad[gpu]'",
    "distributed": "'rigidgrad[cluster]'",
    "pinocchio": "pin",
    "scipy": "scipy",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code. A wrong command line ends the process with 2, as argparse
    does.
    """
    if not (sys.argv[1:] if arguments is None else arguments):
        _print_what_can_be()
        print(first_steps())
        return 0
    _print_what_can_be()
    parsed = parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.simplefilter("always", ModelWarning)
        warnings.simplefilter("ignore", PassedOverWarning)  # `check` tells it
        try:
            return int(parsed.run(parsed) or 0)
        except RigidgradError as error:
            complain(in_words_of_options(str(error), vars(parsed)))
            return 2 if isinstance(error, UsageError) else 1
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            complain(
                f"{parsed.command} needs {package}, which is not installed: pip install"
                f" {EXTRAS[package]}"
            )
            return 1
        except KeyboardInterrupt:
            complain("interrupted")
            return 130
        except BrokenPipeError:
            # whoever read our output has gone; nothing of it may be written at exit, either
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0


def _print_what_can_be() -> None:
    """Where the output cannot have our rules and units, as on Windows into a file, a question mark
    stands for them.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            "─→█µ".encode(getattr(stream, "encoding", None) or "utf-8")
        except (LookupError, UnicodeEncodeError):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")


def first_steps() -> str:
    """What to type next, for those who typed `rigidgrad` alone."""
    width = max(len(line) for line, _ in FIRST_STEPS)
    lines = [f"  {line:{width}}  {about}" for line, about in FIRST_STEPS]
    return "\n".join(
        [
            (
                f"rigidgrad {rigidgrad.__version__}: dynamics, gradients, motions and control of"
                " robots."
            ),
            "Robots are URDF or MJCF files, or bundled ones such as iiwa14. To begin:",
            *lines,
            "`rigidgrad --help` lists all commands, `rigidgrad COMMAND --help` explains one.",
        ]
    )


class Parser(argparse.ArgumentParser):
    """As argparse has it, with the nearest word where one is misspelt."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        if wrong:
            near = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), n=1)
            message += f"; did you mean {near[0]}?" if near else ""
        super().error(message)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    result = Parser(
        prog="rigidgrad",
        description=(
            "Rigid-body dynamics, gradients, trajectory optimisation and model predictive control"
            " for robots."
        ),
        epilog=EXIT_CODES,
    )
    result.add_argument("--version", action="version", version=f"rigidgrad {rigidgrad.__version__}")
    result.set_defaults(parser=result)
    commands = result.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in COMMANDS:
        importlib.import_module(f"rigidgrad.commands.{name}").add_parser(commands)
    return result


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Warnings are for users, too: one line, without a place in our sources."""
    complain(f"warning: {message}")
