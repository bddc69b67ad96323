"""States and controls between two processes, through shared memory: exchanges of which none may be
lost or torn, while other processes keep the cores busy, and how long one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
import numpy as np
from peers import build

import rigidgrad as rg

WIDTH, SLOTS = 14, 64  # of an arm of seven joints


def program(folder: Path) -> Path:
    """The side in C, `peers/link.c`."""
    (folder / rg.link.HEADER).write_text(rg.link.header())
    compiler = next(iter(build.compilers("c").values()))
    out = folder / "link"
    source = str(build.SOURCES / "link.c")
    subprocess.run([compiler, "-std=c99", "-O2", f"-I{folder}", source, "-o", str(out)], check=True)
    return out


def start(path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen([str(path), *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the C side ended with {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Processes that keep cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextmanager
def named() -> Iterator[str]:
    """A link of this run alone."""
    name = f"bench-{os.getpid()}"
    rg.link.remove(name)
    try:
        yield name
    finally:
        rg.link.remove(name)


def answer(link: rg.link.Link, count: int) -> dict[str, Any]:
    """The controller of `stream` in Python: looks at every number of every state."""
    index, torn, wrong = np.arange(float(link.shape.states)), 0, 0
    begin = time.monotonic()
    for got in range(1, count + 1):
        message = link.receive(60.0, order="next")
        if message is None:
            raise SystemExit("no state came for a minute")
        wrong += message.number != got or message.skipped != 0
        torn += not (message.values == 65536.0 * message.number + index).all()
        link.send(65536.0 * got + index, wait=60.0)
    spent = time.monotonic() - begin
    return {"done": got, "torn": torn, "out_of_order": wrong, "skipped": 0, "seconds": spent}


def exchanges(path: Path, name: str, count: int, python: bool) -> dict[str, Any]:
    """`count` states one way and controls the other, none to be lost; both sides look."""
    robot = start(path, "stream", name, count, WIDTH, SLOTS)
    if python:
        with rg.link.Link(name, "controller", states=WIDTH, controls=WIDTH, slots=SLOTS) as link:
            controller = answer(link, count)
            sides = [result(robot), controller]
    else:
        controller = result(start(path, "answer", name, count, WIDTH, SLOTS))
        sides = [result(robot), controller]
    return {
        "exchanges": min(side["done"] for side in sides),
        "lost": sum(side["skipped"] + side["out_of_order"] for side in sides),
        "torn": sum(side["torn"] for side in sides),
        "seconds": sides[0]["seconds"],
        "us_each": 1e6 * sides[0]["seconds"] / count,
    }


def overwritten(path: Path, name: str, count: int) -> dict[str, Any]:
    """A writer that waits for nobody, two slots of 64 numbers, and `count` reads."""
    writer = start(path, "flood", name, 1, 64, 2)
    reader = result(start(path, "watch", name, count, 64, 2))
    return {
        "reads": reader["done"],
        "written": result(writer)["done"],
        "passed_over": reader["skipped"],
        "torn": reader["torn"],
    }


def latency(path: Path, name: str, count: int, python: bool) -> dict[str, Any]:
    """One exchange after the other: state sent, control received, µs as the robot in C sees it."""
    robot = start(path, "ping", name, count, WIDTH, SLOTS)
    if python:
        with rg.link.Link(
            name, "controller", states=WIDTH, controls=WIDTH, slots=SLOTS, spin=1.0
        ) as link:
            index, sent = np.arange(float(WIDTH)), 0
            while link.connected or not sent:
                message = link.receive(0.1)
                if message is not None:
                    sent += 1
                    link.send(65536.0 * sent + index)
    else:
        result(start(path, "serve", name, 0, WIDTH, SLOTS))
    found = result(robot)
    return {
        key: found[key] for key in ("done", "missed", "torn", "median_us", "p99_us", "worst_us")
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"load": arguments.load}
    with tempfile.TemporaryDirectory() as folder:
        path = program(Path(folder))
        with load(arguments.load):
            for key, count in (("c", arguments.count), ("python", arguments.python)):
                with named() as name:
                    found[f"exchanges_{key}"] = exchanges(path, name, count, key == "python")
                print(f"exchanges, C and {key}, under load:", found[f"exchanges_{key}"], flush=True)
            with named() as name:
                found["overwritten"] = overwritten(path, name, arguments.reads)
            print("reads while being overwritten, under load:", found["overwritten"], flush=True)
        for key, count in (("c", 200_000), ("python", 50_000)):
            with named() as name:
                found[f"latency_{key}"] = latency(path, name, count, key == "python")
            print(f"one exchange, C and {key}:", found[f"latency_{key}"], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--count", type=int, default=10_000_000, help="exchanges of two C processes"
    )
    parser.add_argument("--python", type=int, default=1_000_000, help="exchanges of C and Python")
    parser.add_argument("--reads", type=int, default=1_000_000, help="reads that are overwritten")
    parser.add_argument("--load", type=int, default=2, help="busy processes beside; default: 2")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    found = measure(arguments)
    broken = sum(
        part.get(key, 0)
        for part in found.values()
        if isinstance(part, dict)
        for key in ("lost", "torn", "missed")
    )
    print("none lost, none torn" if not broken else f"{broken} LOST OR TORN")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"machine": machine.describe({}), "link": found}, indent=1) + "\n"
        )
    sys.exit(broken != 0)


if __name__ == "__main__":
    main()
