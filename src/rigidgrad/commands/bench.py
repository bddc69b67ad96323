"""`rigidgrad bench [ROBOT]`: how long a robot's functions take on this machine, beside the peers
that are installed.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigidgrad.commands.terminal import (
    Progress,
    add_output,
    add_robot,
    load_robot,
    positive,
    progress,
    show,
    table,
    write_text,
)

if TYPE_CHECKING:
    from rigidgrad.robot import Robot

FUNCTIONS = ("rnea", "aba", "crba", "minv", "rnea_derivatives", "aba_derivatives")
SIZES = (1, 16, 256, 4096)
SLICE = 0.002  # seconds that one timing lasts at least
ROUNDS = 7


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "bench",
        help="time a robot's functions on this machine, beside Pinocchio and MuJoCo",
        description=(
            "Times a robot's functions on this machine: one state a call and batches, beside Python"
            " calls of Pinocchio and MuJoCo where these are installed. All take turns, so that a"
            " slow moment hits all of them; the best of several rounds counts."
        ),
    )
    add_robot(parser, default="iiwa14")
    parser.add_argument(
        "--function", choices=FUNCTIONS, action="append", help="may be repeated; default: all"
    )
    parser.add_argument(
        "--batch",
        type=positive(int),
        action="append",
        metavar="N",
        help=f"may be repeated; default: {', '.join(map(str, SIZES))}",
    )
    parser.add_argument(
        "--threads",
        type=positive(int),
        default=1,
        metavar="N",
        help="for batches; default: 1, as peers have",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the times as SVG")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.reports import environment

    robot = load_robot(arguments)
    functions = tuple(dict.fromkeys(arguments.function or FUNCTIONS))
    sizes = sorted(set(arguments.batch or SIZES))
    peers, absent = _peers(robot, arguments.robot)
    with progress(arguments, f"measuring {robot.name}", len(functions) * ROUNDS) as step:
        times = {f: _measured(robot, f, sizes, arguments.threads, peers, step) for f in functions}
    names = [peer.name for peer in peers]
    columns = [*map(str, sizes), *names]
    rows = [
        (
            "µs a state",
            *(f"batch {n}" if n > 1 else "one state" for n in sizes),
            *names,
            *(f"{n} / batch {sizes[-1]}" for n in names),
        )
    ]
    for function in functions:
        found = times[function]
        cells = [f"{found[c]:.3g}" if c in found else "-" for c in columns]
        ratios = [f"{found[n] / found[str(sizes[-1])]:.3g}x" if n in found else "-" for n in names]
        rows.append((function, *cells, *ratios))
    data = {
        "robot": robot.name,
        "threads": arguments.threads,
        "microseconds": times,
        "absent": absent,
        "environment": environment(),
    }
    head = (
        f"{robot.name}, float64, {arguments.threads}"
        f" {'thread' if arguments.threads == 1 else 'threads'}, {data['environment']['processor']}"
    )
    notes = [
        (
            "peers are called from Python, one state a call; bench/ has the published measurements,"
            " with their C++"
        ),
        *absent.values(),
    ]
    text = "\n\n".join([head, table(rows, right=range(1, len(rows[0]))), "\n".join(notes)])
    if arguments.plot:
        write_text(arguments.plot, _plot(robot, times, sizes, names, head))
        data["files"] = [arguments.plot]
        text += f"\nwrote {arguments.plot}"
    show(arguments, data, text)


def _peers(robot: Robot, source: str) -> tuple[list[Any], dict[str, str]]:
    """Those that are there, and why the others are not."""
    from rigidgrad.commands.peers import PEERS, Absent

    found, absent = [], {}
    for peer in PEERS:
        try:
            found.append(peer(robot, source))
        except Absent as reason:
            absent[peer.name] = f"without {peer.name}: {reason}"
    return found, absent


def _measured(
    robot: Robot, function: str, sizes: list[int], threads: int, peers: list[Any], step: Progress
) -> dict[str, float]:
    """Microseconds a state, by the size of the batch or the peer's name: the best of several
    rounds, in which all take turns.
    """
    import numpy as np

    rng = np.random.default_rng(1)
    fast = robot.compile(function, threads=threads)
    calls: dict[str, tuple[Callable[[], Any], int]] = {}

    def inputs(count: int) -> list[np.ndarray]:
        q, v, tau = robot.random((count,), seed=0)
        third = tau if function.startswith("aba") else rng.uniform(-1, 1, v.shape)
        return [q, v, third][: len(fast.inputs)]

    for n in sizes:
        arrays = inputs(n) if n > 1 else [x[0] for x in inputs(1)]
        out = fast(*arrays)
        kept = tuple(out) if isinstance(out, tuple) else out
        calls[str(n)] = partial(fast, *arrays, out=kept), n
    for peer in peers:
        if function in peer.calls:
            state = [x[0] for x in peer.inputs(function, *inputs(1))]
            calls[peer.name] = partial(peer.calls[function], *state), 1
    repeats = {name: _calibrated(call) for name, (call, _) in calls.items()}
    best = dict.fromkeys(calls, math.inf)
    gc.disable()
    try:
        for _ in range(ROUNDS):
            step(function)
            for name, (call, count) in calls.items():
                best[name] = min(
                    best[name], 1e6 * _seconds(call, repeats[name]) / (repeats[name] * count)
                )
    finally:
        gc.enable()
    return best


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - began


def _calibrated(call: Callable[[], Any]) -> int:
    """Calls that fill a slice of time."""
    repeats = 1
    while (taken := _seconds(call, repeats)) < SLICE:
        repeats = max(
            2 * repeats,
            math.ceil(repeats * SLICE / max(taken, 1e-9)) if taken > SLICE / 20 else 10 * repeats,
        )
    return repeats


def _plot(
    robot: Robot, times: dict[str, dict[str, float]], sizes: list[int], names: list[str], foot: str
) -> str:
    from rigidgrad import charts

    across = [math.log2(n) for n in sizes]
    drawn = []
    for function, found in times.items():
        series = {"rigidgrad": (across, [found[str(n)] for n in sizes])}
        series |= {
            name: ([across[0], across[-1]], [found[name]] * 2) for name in names if name in found
        }
        drawn.append(charts.lines(function, "log₂ of the states in a batch", "µs a state", series))
    return charts.page(f"{robot.name} on this machine", drawn, foot)
