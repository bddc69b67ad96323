"""Another revision beside this tree, measured in turns: is this tree slower? See bench/README.md.

.venv/bin/python bench/against.py main                                        # every gate, about
half an hour .venv/bin/python bench/against.py v0.1 --parts p1,dynamics --json against.json
.venv/bin/python bench/against.py HEAD~3 --cells 'atlas-floating' --rounds 40
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report
import startup
from cases import FUNCTIONS, ROBOTS
from dynamics import say
from measure import Timing, ratio
from peers.environment import Worker

ROOT = Path(__file__).resolve().parent.parent
WORKER = "against_worker.py"
# what this tree's time may be of the other's
LIMITS = {"p1": 1.03, "goals": 1.05, "trees": 1.05, "dynamics": 1.03, "start": 1.0}
SESSIONS = (
    4  # a cell is opened that often: where its arrays lie in memory can be worth more than a gate
)
P1_ITERATIONS, GOALS, GOAL_ITERATIONS = 8, 64, 10  # P1 is within 1e-6 of its optimum after eight
TREES = (
    ("rnea", 100_000, 1.0),
    ("rnea", 100_000, 1.01),
    ("rnea", 100_000, 2.0),
    ("crba", 2_000, 1.0),
    ("crba", 20_000, 2.0),
)
FIRST_CALLS = (
    *(("iiwa14", function) for function in FUNCTIONS),
    ("hyq-floating", "aba_derivatives"),
    ("atlas-floating", "aba_derivatives"),
)
FIRST_SOLVE = f"""{startup.CLOCK}
import json
import numpy as np
import rigidgrad as rg
robot = rg.load("iiwa14")
start = now()
costs = [rg.costs.State(np.zeros(14), weight=0.1, final=1000.0), rg.costs.Effort(1e-4)]
rg.solve(rg.Problem(robot, start=np.r_[np.full(7, 0.3), np.zeros(7)], steps=63, dt=0.5 / 63, costs=costs))
print(json.dumps({{"first_call": now() - start}}))
"""
FIRST_TREE = f"""{startup.CLOCK}
import json
import numpy as np
start = now()
from rigidgrad import trees
t, x = trees.auto_tree(2000, 2.0, 0.3), np.zeros(2000)
trees.rnea(t, x, x, x, threads=1)
print(json.dumps({{"first_call": now() - start}}))
"""


@dataclass(frozen=True)
class Cell:
    """What is timed: in a worker that stays (`arguments` are those of `against_worker`), or, with
    `code`, in a new process each time.
    """

    part: str
    label: str
    arguments: dict[str, Any] = field(default_factory=dict)
    unit: str = "µs"
    units: float = 1e6  # of an evaluation, in a second
    code: tuple[str, ...] = ()
    cold: bool = False


def cells() -> list[Cell]:
    found = []
    for dtype in ("float64", "float32"):
        arguments = {"dtype": dtype, "iterations": P1_ITERATIONS, "clock": "cpu"}
        found.append(
            Cell("p1", f"iteration, {dtype}", arguments, "µs/iteration", 1e6 / P1_ITERATIONS)
        )
    for dtype, threads in (("float64", 1), ("float64", 2), ("float32", 1)):
        arguments = {"count": GOALS, "dtype": dtype, "iterations": GOAL_ITERATIONS} | cores_of(
            threads
        )
        found.append(
            Cell(
                "goals",
                f"{GOALS} goals, {dtype}, {counted(threads)}",
                arguments,
                "µs/goal",
                1e6 / GOALS,
            )
        )
    for function, bodies, branching in TREES:
        for threads in (1, 2):
            arguments = {"function": function, "bodies": bodies, "branching": branching} | cores_of(
                threads
            )
            label = f"{function}, {bodies:,} bodies, branching {branching}, {counted(threads)}"
            found.append(Cell("trees", label, arguments, "ns/body", 1e9 / bodies))
    for robot in ROBOTS:
        for function, name in FUNCTIONS.items():
            for count in (1, 4096):
                arguments = {"robot": robot, "function": function, "count": count, "clock": "cpu"}
                found.append(
                    Cell(
                        "dynamics",
                        f"{robot} {name}, N = {count}",
                        arguments,
                        "µs/state",
                        1e6 / count,
                    )
                )
    found.append(Cell("start", "import", code=(startup.IMPORT,), unit="ms", units=1e3))
    firsts = [
        (f"{robot} {FUNCTIONS[f]}", (startup.FIRST_CALL, *startup.first_call_arguments(robot, f)))
        for robot, f in FIRST_CALLS
    ]
    for label, code in (*firsts, ("solve", (FIRST_SOLVE,)), ("trees.rnea", (FIRST_TREE,))):
        for cold in (True, False):
            found.append(
                Cell(
                    "start",
                    f"first {label}, {'cold' if cold else 'cached'}",
                    code=code,
                    cold=cold,
                    unit="ms",
                    units=1e3,
                )
            )
    return found


def cores_of(threads: int) -> dict[str, Any]:
    """Several threads by wall time: that of the CPU would count their waiting too."""
    return {"threads": threads, "clock": "cpu" if threads == 1 else "wall"}


def counted(threads: int) -> str:
    return "one core" if threads == 1 else "two cores"


class Absent(Exception):
    """A tree cannot run a cell; the message is its own error."""


class Tree:
    """A copy of a revision's `src` and `bench` in `folder`, and a worker that runs its code."""

    def __init__(self, folder: Path, core: int):
        self.folder, self._core = folder, core
        shutil.copy(Path(__file__).with_name(WORKER), folder / "bench" / WORKER)
        self._environment = {"PYTHONPATH": str(folder / "src")} | caches(folder / "cache")
        self.worker = self._started()

    def _started(self) -> Worker:
        folder = self.folder
        worker = Worker(sys.executable, folder / "bench" / WORKER, environment=self._environment)
        file = worker.ask("where")["file"]
        if not Path(file).is_relative_to(folder):
            sys.exit(f"a worker imports {file}, which is not in {folder}")
        return worker

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """A worker that ends, for want of memory say, takes its cell with it and nothing else."""
        try:
            return self.worker.ask(do, **arguments)
        except (RuntimeError, BrokenPipeError) as error:
            self.worker = self._started()
            raise Absent(str(error)) from None

    def open(self, cell: Cell) -> dict[str, Any]:
        """`repeats` that fill a slice, `bits` of the results."""
        if cell.code:
            self.seconds(cell, 1)  # fills the caches: those on disk, and Python's own
            return {"repeats": 1, "bits": None}
        cores = (
            list(range(os.cpu_count() or 1))
            if cell.arguments.get("threads", 1) > 1
            else [self._core]
        )
        answer = self._ask("open", part=cell.part, cores=cores, arguments=cell.arguments)
        if "missing" in answer:
            raise Absent(answer["missing"])
        return answer

    def seconds(self, cell: Cell, repeats: int) -> float:
        """Of one evaluation."""
        if not cell.code:
            return self._ask("time", repeats=repeats)["seconds"] / repeats
        with tempfile.TemporaryDirectory() as empty:
            environment = self._environment | (caches(Path(empty)) if cell.cold else {})
            try:
                printed = startup.fresh_process(*cell.code, clock="cpu", **environment)
            except RuntimeError as error:
                raise Absent(str(error).strip().splitlines()[-1]) from None
            found = json.loads(printed)
        return found["first_call"] if isinstance(found, dict) else found


def caches(folder: Path) -> dict[str, str]:
    return {"RIGIDGRAD_CACHE": str(folder / "rigidgrad"), "NUMBA_CACHE_DIR": str(folder / "numba")}


def extract(revision: str, folder: Path) -> None:
    """A committed revision."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "archive",
        f"--output={folder}.tar",
        revision,
        "src",
        "bench",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git has no revision {revision!r} with src and bench: {done.stderr.strip()}")
    shutil.unpack_archive(f"{folder}.tar", folder, filter="data")


def copy(folder: Path) -> None:
    """This tree, as it lies here."""
    for name in ("src", "bench"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "build", "results"),
        )


def measured(cell: Cell, trees: dict[str, Tree], rounds: int) -> dict[str, Any]:
    """One cell in all trees, in turns and in rotating order; what a tree cannot run is said."""
    row: dict[str, Any] = {
        "part": cell.part,
        "cell": cell.label,
        "unit": cell.unit,
        "limit": LIMITS[cell.part],
    }
    names = list(trees)
    taken: dict[str, list[float]] = {name: [] for name in names}
    sessions = 1 if cell.code else min(SESSIONS, rounds)
    for turn in range(rounds):
        if turn % math.ceil(rounds / sessions) == 0:
            opened = {}
            for name, tree in trees.items():
                try:
                    opened[name] = tree.open(cell)
                except Absent as absent:
                    return row | {
                        "absent": name,
                        "why": str(absent),
                        "holds": None if name == "that" else False,
                    }
            repeats = max(answer["repeats"] for answer in opened.values())
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            try:
                taken[name].append(cell.units * trees[name].seconds(cell, repeats))
            except Absent as absent:
                return row | {
                    "absent": name,
                    "why": str(absent),
                    "holds": None if name == "that" else False,
                }
    timings = {
        name: Timing(min(times), float(np.median(times)), tuple(times))
        for name, times in taken.items()
    }
    against, itself = (compared(timings["this"], timings[name]) for name in ("that", "same"))
    spread = max(max(value, 1 / value) for value in itself.values())
    row |= {
        "times": {name: timing.summary() for name, timing in timings.items()},
        "against": against,
        "itself": itself,
    }
    # slower is what both say: one lucky round makes a minimum
    row |= {"slower": min(against["ratio"], against["median"]), "spread": spread}
    row |= {"holds": row["slower"] <= max(row["limit"], spread)}
    return row | {
        "same_bits": None if cell.code else opened["this"]["bits"] == opened["that"]["bits"]
    }


def compared(this: Timing, that: Timing) -> dict[str, float]:
    """This tree's time as a multiple of the other's: of the minima, and the median of the rounds'
    own with its quartiles.
    """
    return ratio(this, that) | {
        "median": float(np.median(np.array(this.rounds) / np.array(that.rounds)))
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        head = [row["part"], row["cell"]]
        if "absent" in row:
            lines.append([*head, *[""] * 7, "skipped" if row["holds"] is None else "FAILS"])
            continue
        against, times = row["against"], row["times"]
        verdict = (
            "holds"
            if row["slower"] <= row["limit"]
            else "within itself"
            if row["holds"]
            else "FAILS"
        )
        lines.append(
            [
                *head,
                *(report.number(times[name]["best"]) for name in ("this", "that")),
                row["unit"],
                f"{against['ratio']:.3f}",
                f"{against['median']:.3f} ({against['low']:.3f}-{against['high']:.3f})",
                f"{row['spread']:.3f}",
                {True: "same", False: "differ", None: ""}[row["same_bits"]],
                f"{row['limit']:.2f} {verdict}",
            ]
        )
    header = [
        "part",
        "cell",
        "this",
        "that",
        "unit",
        "of minima",
        "median (quartiles)",
        "itself",
        "bits",
        "gate",
    ]
    notes = [
        f"{row['part']}, {row['cell']}: {row['absent']} tree cannot: {row['why']}"
        for row in rows
        if "absent" in row
    ]
    return "\n".join([report.table(header, lines), *notes])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="a commit, branch or tag of this repository")
    parser.add_argument("--parts", default=",".join(LIMITS), help=f"some of {','.join(LIMITS)}")
    parser.add_argument(
        "--cells", default="", metavar="TEXT", help="only cells whose names contain this"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="timings of each tree; of new processes a fifth, at least three",
    )
    parser.add_argument(
        "--core", type=int, default=(os.cpu_count() or 1) - 1, help="the core to run on"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the results")
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    if unknown := [part for part in options.parts if part not in LIMITS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(LIMITS)}")
    options.cells = [
        cell for cell in cells() if cell.part in options.parts and options.cells in cell.label
    ]
    if not options.cells:
        parser.error("no cell has such a name")
    return options


def main() -> None:
    options, here = arguments(), machine.describe({})
    with tempfile.TemporaryDirectory(prefix="rigidgrad-against-") as temporary:
        # names of the same length: all that differs between two copies of this tree is chance
        folders = {name: Path(temporary).resolve() / name for name in ("this", "same", "that")}
        extract(options.revision, folders["that"])
        copy(folders["this"])
        copy(folders["same"])
        trees = {name: Tree(folder, options.core) for name, folder in folders.items()}
        rows = []
        try:
            for done, cell in enumerate(options.cells):
                say(f"{done + 1}/{len(options.cells)} {cell.part}, {cell.label}")
                rows.append(
                    measured(
                        cell, trees, max(3, options.rounds // 5) if cell.code else options.rounds
                    )
                )
                if options.json:
                    # what is measured stays, whatever ends a run of an hour
                    store(options, here, rows)
        finally:
            for tree in trees.values():
                tree.worker.close()
    say("")
    print(f"this tree against {options.revision}: times as a multiple of that one's\n{table(rows)}")
    sys.exit(any(row["holds"] is False for row in rows))


def store(options: argparse.Namespace, here: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    result = {
        "machine": here,
        "revision": options.revision,
        "of": len(options.cells),
        "cells": rows,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
