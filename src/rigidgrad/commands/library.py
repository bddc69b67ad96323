"""`rigidgrad solve TASK.toml --rows rows.npz --cluster`: a task solved for every row of some
arrays, on many processes.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import facts, seconds, show
from rigidgrad.errors import InputError, UsageError
from rigidgrad.files import read_arrays

_VARIED = re.compile(r"start|(target|weight)_(\d+(?:_\d+)?)")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        type=Path,
        metavar="FILE",
        help=(
            ".npz with arrays start, target_0, weight_0, … (0 is the task's first cost, 2_0 the"
            " first one of phase 2): solve for every row; --out is then a folder"
        ),
    )
    parser.add_argument(
        "--cluster",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="share rows out: to processes here, or to the dask scheduler at an address",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes here; default: one per core"
    )


def solve_rows(arguments: argparse.Namespace, task: Any) -> int:
    """Results go into a folder, which the same command completes if it was interrupted."""
    from rigidgrad import cluster

    if arguments.rows is None:
        raise UsageError("--cluster shares out rows: name a file of them with --rows")
    varied = read_rows(arguments.rows)
    folder = arguments.out or Path("library")
    began = time.perf_counter()
    results = cluster.solve(
        task.problem,
        folder,
        **varied,
        solver=task.solver,
        cluster=arguments.cluster or None,
        workers=1 if arguments.cluster is None and arguments.workers is None else arguments.workers,
        progress=(lambda done, total: None) if arguments.quiet or arguments.json else None,
    )
    spent = time.perf_counter() - began
    statuses = dict(Counter(results["status"].tolist()))
    data = {
        "driven": task.system.driven,
        "rows": results.rows,
        "statuses": statuses,
        "seconds": spent,
        "folder": folder,
    }
    lines = {
        "driven": data["driven"],
        "rows": str(results.rows),
        "statuses": ", ".join(f"{count} {name}" for name, count in statuses.items()),
        "time": seconds(spent),
        "wrote": f"{len(results.parts)} files in {folder}",
    }
    show(arguments, data, facts(lines))
    return 0 if set(statuses) == {"converged"} else 1


def read_rows(path: Path) -> dict[str, Any]:
    """As `rg.cluster.solve` takes them."""
    from rigidgrad import cluster

    try:
        arrays = read_arrays(path)
    except InputError as error:
        raise UsageError(str(error)) from None
    found: dict[str, Any] = {"targets": {}, "weights": {}}
    for name, values in arrays.items():
        match = _VARIED.fullmatch(name)
        if not match:
            raise UsageError(
                f"{path} has an array {name!r}; rows are called start, target_0, weight_0, …"
            )
        if match[1]:
            found[f"{match[1]}s"][cluster.cost_index(match[2])] = values
        else:
            found["start"] = values
    return found
