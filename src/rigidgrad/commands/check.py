"""`rigidgrad check ROBOT`: whether a robot makes physical sense, and whether our numbers for it are
right; of a folder, which of its robots load.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import TYPE_CHECKING, Any

from rigidgrad.commands.terminal import add_output, add_robot, positive, progress, show, table
from rigidgrad.errors import ModelWarning, RigidgradError

if TYPE_CHECKING:
    from rigidgrad.commands.verification import Check
    from rigidgrad.robot import Robot

WORDS = {True: "ok", False: "FAILED", None: "note"}


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "check",
        help="check a robot's description and our dynamics of it",
        description=(
            "Checks that a robot makes physical sense, and our dynamics and gradients against"
            " finite differences and, where it is installed, Pinocchio. The exit code is 1 if"
            " something fails; notes are no failures. Of a folder, all robots in it are loaded and"
            " moved, and counted: loaded, loaded with warnings, refused; the exit code is 1 if one"
            " is refused."
        ),
    )
    add_robot(parser, strict=None)
    parser.add_argument(
        "--states",
        type=positive(int),
        default=20,
        metavar="N",
        help="random states to check with; default: 20",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random states; default: 0")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if os.path.isdir(arguments.robot):
        from rigidgrad.commands.corpus import check_folder

        return check_folder(arguments)
    from rigidgrad.commands.verification import (
        Check,
        against_pinocchio,
        axis_notes,
        bodies,
        body_notes,
        identities,
        limit_notes,
        measured_bodies,
        mesh_notes,
    )

    robot, found = _loaded(arguments)
    found += (
        body_notes(robot)
        + limit_notes(robot)
        + axis_notes(robot)
        + mesh_notes(robot, arguments.robot)
    )
    with progress(arguments, f"checking {robot.name}", 3) as step:
        try:
            step("dynamics and gradients")
            found += identities(robot, arguments.states, arguments.seed)
            step("against Pinocchio")
            found += against_pinocchio(robot, arguments.robot, arguments.states, arguments.seed)
        except RigidgradError as error:  # a mass matrix that is singular, say
            verdict = None if arguments.strict is False else False
            found.append(Check("dynamics", verdict, about=str(error)))
    failed = sum(c.passed is False for c in found)
    rows = [
        ("", "check", "found", "allowed", "about"),
        *((WORDS[c.passed], c.name, *c.numbers(), c.about) for c in found),
    ]
    weights = table(bodies(robot), right=range(1, 7))
    passed, notes = sum(c.passed is True for c in found), sum(c.passed is None for c in found)
    last = (
        f"{robot.name}: {passed} checks passed, {failed} failed, {notes}"
        f" {'note' if notes == 1 else 'notes'}"
    )
    foot = (
        "masses in kg, centre of mass from the joint and radius of gyration in m, principal moments"
        " in kg m²; slack: how far the largest moment is below the sum of the others"
    )
    data = {
        "robot": robot.name,
        "passed": passed,
        "failed": failed,
        "checks": [c._asdict() for c in found],
        "bodies": [b._asdict() for b in measured_bodies(robot)],
    }
    show(arguments, data, "\n\n".join([weights, foot, table(rows, right=(2, 3)), last]))
    return 1 if failed else 0


def _loaded(arguments: argparse.Namespace) -> tuple[Robot, list[Check]]:
    """The robot, even if it makes no sense, and what loading it said."""
    from rigidgrad.commands.verification import Check
    from rigidgrad.model.checks import summary
    from rigidgrad.robot import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        robot = load(arguments.robot, floating_base=arguments.floating_base, strict=False)
    known = summary(robot.name, robot.model.problems)
    notes = [
        Check("description", None, about=text) for w in caught if (text := str(w.message)) != known
    ]
    # about bodies: with strict=True the same is an error
    verdict = None if arguments.strict is False else False
    impossible = [Check("bodies", verdict, about=p.text) for p in robot.model.problems]
    return robot, notes + (
        impossible or [Check("bodies", True, about="possible masses and inertias")]
    )
