"""`rigidgrad trees`: dynamics of a tree with as many bodies as you like, timed."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rigidgrad.commands.terminal import add_output, positive, progress, seconds, show, table

METHODS = ("sequential", "levels", "heavy_path", "euler_tour")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "trees",
        help="dynamics of a tree of up to millions of bodies, timed",
        description=(
            "Builds Featherstone's autoTree and runs inverse dynamics, the mass matrix and forward"
            " dynamics on it."
        ),
    )
    parser.add_argument(
        "--bodies", type=positive(int), default=100_000, metavar="N", help="default: 100000"
    )
    parser.add_argument(
        "--branching",
        type=float,
        default=2.0,
        metavar="B",
        help="children of a body on average, 1 for a chain; default: 2",
    )
    parser.add_argument(
        "--skew",
        type=float,
        default=0.3,
        metavar="RAD",
        help="between successive joint axes; default: 0.3",
    )
    parser.add_argument(
        "--method", choices=METHODS, help="of inverse dynamics; default: the plan's choice"
    )
    parser.add_argument("--threads", type=positive(int), metavar="N", help="default: all cores")
    parser.add_argument(
        "--repeat",
        type=positive(int),
        default=3,
        metavar="N",
        help="calls that are timed, of which the best counts; default: 3",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random state; default: 0")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    import numpy as np

    from rigidgrad import trees

    began = time.perf_counter()
    tree = trees.auto_tree(arguments.bodies, arguments.branching, arguments.skew)
    q, v, a = tree.random(seed=arguments.seed)
    plan = tree.plan
    built = time.perf_counter() - began
    threads = {"threads": arguments.threads}
    tau = np.zeros_like(v)
    tasks: dict[str, tuple[str, Callable[[], Any]]] = {
        "rnea": (
            "inverse dynamics",
            lambda: trees.rnea(tree, q, v, a, method=arguments.method, **threads),
        ),
        "crba": ("mass matrix", lambda: trees.crba(tree, q, **threads)),
        "forward_dynamics": (
            "forward dynamics",
            lambda: trees.forward_dynamics(tree, q, v, tau, **threads),
        ),
    }
    measured: dict[str, Any] = {}
    with progress(
        arguments, f"{arguments.bodies:,} bodies", len(tasks) * (arguments.repeat + 1)
    ) as step:
        for name, (_, call) in tasks.items():
            measured[name], result = _measure(call, arguments.repeat, partial(step, name))
            if name == "rnea":
                tau[:] = result
    rows = [("function", "", "first call", "best call", "ns a body", "notes")]
    for name, (said, _) in tasks.items():
        m = measured[name]
        times = (
            ("-", "-", "-")
            if m["best"] is None
            else (seconds(m["first"]), seconds(m["best"]), f"{1e9 * m['best'] / tree.bodies:.3g}")
        )
        rows.append((name, said, *times, m["note"]))
    head = (
        f"{tree.bodies:,} bodies on {tree.topology.levels:,} levels, walked by"
        f" {arguments.method or plan.method}; built and planned in {seconds(built)}"
    )
    foot = "the first call of a function also loads, or on a new machine compiles, its kernels"
    data = {
        "bodies": tree.bodies,
        "levels": int(tree.topology.levels),
        "branching": arguments.branching,
        "skew": arguments.skew,
        "method": arguments.method or plan.method,
        "build_seconds": built,
        "functions": measured,
    }
    show(arguments, data, "\n\n".join([head, table(rows, right=(2, 3, 4)), foot]))


def _measure(
    call: Callable[[], Any], repeat: int, step: Callable[[], None]
) -> tuple[dict[str, Any], Any]:
    """Seconds of the first call and of the best of the others, what is to be said about the result,
    and that itself.
    """
    from rigidgrad.trees import TooLargeError

    times = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(repeat + 1):
                step()
                began = time.perf_counter()
                result = call()
                times.append(time.perf_counter() - began)
    except TooLargeError as error:
        return {"first": None, "best": None, "note": str(error)}, None
    note = f"residual {float(result.residual):.1e}" if hasattr(result, "residual") else ""
    note = "; ".join([note, *dict.fromkeys(str(w.message) for w in caught)]).strip("; ")
    return {"first": times[0], "best": min(times[1:]), "note": note}, result
