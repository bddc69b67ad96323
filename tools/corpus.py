"""URDFs of folders against Pinocchio: how many it loads, how many of these we load, and whether
inverse dynamics and mass matrices are the same numbers.

    python tools/corpus.py FOLDER... --json bench/results/corpus.json

Links that mimic others are not compared: Pinocchio reads them as independent ones. What makes no
difference to kinematics and dynamics, such as limits, is not either.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rigidgrad as rg
from rigidgrad.commands.peers import Absent, Pinocchio
from rigidgrad.errors import RigidgradError
from rigidgrad.model.source import is_description
from rigidgrad.model.xml import root_tag

ALLOWED = 1e-9  # of the largest number
STATES = 5


def urdfs(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if ".xacro" in path.suffixes or not is_description(path):
                continue
            if root_tag(path.read_bytes()) == "robot":
                yield path


def loads_in_pinocchio(path: Path) -> bool:
    import pinocchio

    try:
        pinocchio.buildModelFromUrdf(str(path))
    except Exception:  # Boost's and urdfdom's are of many kinds
        return False
    return True


def difference(robot: rg.Robot, path: Path) -> float | None:
    """Of rnea and crba at random states, relative to the largest number; None if not comparable."""
    if not robot.nv or robot.model.has_mimic:
        return None
    try:
        peer = Pinocchio(robot, str(path))
    except Absent:
        return None
    q, v, _ = robot.random(batch=(STATES,), seed=0)
    v, a = np.clip(v, -1.0, 1.0), np.ones((STATES, robot.nv))
    worst = 0.0
    for name, arrays in {"rnea": (q, v, a), "crba": (q,)}.items():
        ours, (theirs, *_) = getattr(robot, name)(*arrays), peer.results(name, *arrays)
        away = float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), 1e-300)
        worst = max(worst, away if np.isfinite(away) else np.inf)
    return worst


def look_at(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"file": path.name, "pinocchio": loads_in_pinocchio(path)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            robot = rg.load(path, engine="numpy")
        except RigidgradError as error:
            return found | {
                "loads": False,
                "why": str(error).partition(f"{path.name}: ")[2] or str(error),
            }
        return found | {"loads": True, "difference": difference(robot, path)}


def summary(folder: Path) -> dict[str, Any]:
    rows = [look_at(path) for path in urdfs(folder)]
    theirs = [r for r in rows if r["pinocchio"]]
    compared = [r for r in theirs if r.get("difference") is not None]
    return {
        "folder": folder.name,
        "urdfs": len(rows),
        "pinocchio": len(theirs),
        "of_these": sum(r["loads"] for r in theirs),
        "others": sum(r["loads"] for r in rows if not r["pinocchio"]),
        "compared": len(compared),
        "same": sum(r["difference"] <= ALLOWED for r in compared),
        "refused": [r for r in theirs if not r["loads"]],
        "differing": [r for r in compared if not r["difference"] <= ALLOWED],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for folder in options.folders:
        found.append(summary(folder))
        print(json.dumps({k: v for k, v in found[-1].items() if k != "refused"}), flush=True)
        for row in found[-1]["refused"]:
            print(f"    {row['file']}: {row['why'][:200]}")
    theirs, ours = (sum(x[name] for x in found) for name in ("pinocchio", "of_these"))
    if theirs:
        print(f"{ours} of {theirs} URDFs that Pinocchio loads: {100 * ours / theirs:.1f}%")
    if options.json:
        options.json.write_text(json.dumps({"folders": found}, indent=1) + "\n")
    return int(any(x["differing"] for x in found))


if __name__ == "__main__":
    raise SystemExit(main())
