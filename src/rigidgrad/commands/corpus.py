"""`rigidgrad check FOLDER`: which of the robots in a folder load, which with warnings, and what
they can compute.
"""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rigidgrad.commands.terminal import Progress, progress, show, table
from rigidgrad.errors import InputError, PassedOverWarning, RigidgradError
from rigidgrad.model.checks import summary
from rigidgrad.model.source import is_description
from rigidgrad.robot import Robot, load
from rigidgrad.runtime.mass_matrix import check_function

_SHOWN = 20  # kinds of reasons, most frequent first


class Outcome(NamedTuple):
    """What became of one file: "loaded", "warned" (but of what other programs need) or "refused",
    and what was said. `kinematics`:
    placements of all frames and inverse dynamics are finite at a random position; `dynamics`: the
    mass matrix has an inverse.
    """

    file: str
    outcome: str
    reasons: tuple[str, ...]
    nq: int | None = None
    nv: int | None = None
    kinematics: bool = False
    dynamics: bool = False


def check_folder(arguments: argparse.Namespace) -> int:
    """Loads every robot in a folder. The exit code is 1 if one is refused or gives no numbers."""
    folder = Path(arguments.robot)
    files = sorted(robots_in(folder))
    if not files:
        raise InputError(f"there is no robot's file in the folder {str(folder)!r}")
    with progress(arguments, f"checking {len(files)} files", len(files)) as step:
        found = [_outcome(file, folder, arguments, step) for file in files]
    counts = Counter(x.outcome for x in found)
    moved, solved = sum(x.kinematics for x in found), sum(x.dynamics for x in found)
    kinds = {
        outcome: Counter(
            kind for x in found if x.outcome == outcome for kind in set(map(_kind, x.reasons))
        )
        for outcome in ("refused", "warned")
    }
    data = {
        "folder": str(folder),
        "files": len(found),
        **{outcome: counts[outcome] for outcome in ("loaded", "warned", "refused")},
        "kinematics": moved,
        "dynamics": solved,
        "reasons": {k: dict(v.most_common()) for k, v in kinds.items()},
        "robots": [x._asdict() for x in found],
    }
    rows = [("", "files", "reason")] + [
        (outcome, str(count), reason)
        for outcome, reasons in kinds.items()
        for reason, count in reasons.most_common(_SHOWN)
    ]
    refused = [(x.file, *x.reasons[:1]) for x in found if x.outcome == "refused"]
    last = (
        f"{len(found)} robots: {counts['loaded']} loaded, {counts['warned']} with warnings,"
        f" {counts['refused']} refused; kinematics and inverse dynamics of {moved}, forward"
        f" dynamics of {solved}"
    )
    parts = [table(rows, right=(1,))] if len(rows) > 1 else []
    parts += [table([("refused", "because"), *refused])] if refused else []
    show(arguments, data, "\n\n".join([*parts, last]))
    return 1 if moved < len(found) else 0


def robots_in(folder: Path) -> Iterator[Path]:
    """Files that begin as a robot's description does, whatever they are called."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (p for name in names if is_description(p := Path(root, name)))


def _outcome(file: Path, folder: Path, arguments: argparse.Namespace, step: Progress) -> Outcome:
    name = str(file.relative_to(folder))
    step(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            robot = load(
                file,
                floating_base=arguments.floating_base,
                strict=bool(arguments.strict),
                engine="numpy",
            )
        except RigidgradError as error:
            return Outcome(name, "refused", (str(error),))
        bodies = robot.model.problems
        known = summary(robot.name, bodies)
        said = tuple(p.text for p in bodies) + tuple(
            text for w in caught if (text := str(w.message)) != known
        )
        passed_over = sum(issubclass(w.category, PassedOverWarning) for w in caught)
        moves, why = _moves(robot, arguments.seed)
        try:
            check_function(robot.model, "aba")
        except RigidgradError as error:
            solved, why = False, (*why, str(error))
        else:
            solved = True
    outcome = "warned" if len(said) > passed_over else "loaded"
    return Outcome(name, outcome, (*said, *why), robot.nq, robot.nv, moves, solved)


def _moves(robot: Robot, seed: int) -> tuple[bool, tuple[str, ...]]:
    """Whether placements and inverse dynamics are finite, and why they are not."""
    q, v, _ = robot.random(seed=seed)
    try:
        numbers = [robot.rnea(q, np.clip(v, -1, 1), np.ones(robot.nv)), robot.crba(q)]
        placements = robot.forward_kinematics(q)
        numbers += [placements[frame] for frame in robot.frames]
    except RigidgradError as error:
        return False, (str(error),)
    if not all(np.isfinite(x).all() for x in numbers):
        return False, ("its kinematics or inverse dynamics are not finite",)
    return True, ()


def _kind(reason: str) -> str:
    """A reason without what is special to one file: quoted names, numbers and the file's name."""
    text = re.sub(r"^(?:.*?\.\w+: )?(?:line \d+: )?", "", reason, count=1, flags=re.S)
    text = re.sub(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", "'…'", text)
    text = re.sub(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?", "#", text)
    text = re.sub(r"'…'(?:(?:, | and )(?:'…'|# more))+", "'…'", " ".join(text.split()))
    return re.sub(r"# × (\w+)", r"\1", text)
