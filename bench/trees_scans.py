"""Scans of trees: their time on one and two threads, block sizes, operations counted one by one,
and devices. Parts of `bench/trees.py`.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from trees_oracle import error

from rigidgrad import trees
from rigidgrad.runtime.loops import Kernel, kernel
from rigidgrad.trees import crba_euler_tour, device_kernels, parallel, scans, tours
from rigidgrad.trees.packed import pattern_of
from rigidgrad.trees.rnea_euler_tour import (
    IDENTITY,
    add_rows,
    compose_rows,
    invert_row,
    negate_row,
    recur_rows,
    unrecur_row,
)

RECURRENCE = np.append(IDENTITY, np.zeros(6))
OPERATORS = {
    "recurrence (X, v)": (18, recur_rows, RECURRENCE),
    "transforms": (12, compose_rows, IDENTITY),
    "sums": (6, add_rows, np.zeros(6)),
}
BLOCKS = (16, 32, 64, 128, 256, 512)


class LongestWay:
    """The CPU seconds of the longest way through calls that share work: what runs alone, and of
    each shared call the thread with the most, parts handed out to the least busy one. Of every part
    the least of all rounds counts.

    On a machine that has other work, wall-clock time tells of that; this does not wait for others,
    but shares their caches and memory.
    """

    def __init__(self) -> None:
        self.alone = math.inf
        self.calls: list[tuple[int, list[float]]] = []
        self.inside = 0.0
        self.at = 0

    def run(self, function: Callable[[int], Any], threads: int) -> None:
        """One round."""
        self.inside, self.at = 0.0, 0
        begun = time.thread_time()
        function(threads)
        self.alone = min(self.alone, time.thread_time() - begun - self.inside)

    def spread(
        self, threads: int, function: Any, ranges: list[tuple[int, int]], *args: Any
    ) -> None:
        started = time.thread_time()
        call = function.over(*args) if isinstance(function, Kernel) else function
        if self.at == len(self.calls):
            self.calls.append((threads, [math.inf] * len(ranges)))
        least = self.calls[self.at][1]
        self.at += 1

        def timed(k: int, start: int, stop: int) -> None:
            begun = time.thread_time()
            call(k, start, stop)
            least[k] = min(least[k], time.thread_time() - begun)

        parallel.spread(threads, timed, ranges)
        self.inside += time.thread_time() - started

    @property
    def seconds(self) -> float:
        total = self.alone
        for threads, parts in self.calls:
            loads = [0.0] * threads
            for seconds in sorted(parts, reverse=True):
                loads[loads.index(min(loads))] += seconds
            total += max(loads)
        return total


@contextlib.contextmanager
def watched(way: LongestWay) -> Iterator[None]:
    modules = scans, tours, crba_euler_tour
    for module in modules:
        module.spread = way.spread
    try:
        yield
    finally:
        for module in modules:
            module.spread = parallel.spread


def times(function: Callable[[int], Any], budget: float) -> dict[str, Any]:
    """Of function(threads): seconds of the longest way and of the wall clock, on one and two
    threads, in rounds in turns.
    """
    ways = {threads: LongestWay() for threads in (1, 2)}
    wall = dict.fromkeys(ways, math.inf)
    for threads in ways:
        function(threads)
    end, rounds = time.perf_counter() + budget, 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 200):
        rounds += 1
        for threads, way in ways.items():
            with watched(way):
                way.run(function, threads)
        for threads in wall:
            clock = time.perf_counter()
            function(threads)
            wall[threads] = min(wall[threads], time.perf_counter() - clock)
    seconds = {threads: way.seconds for threads, way in ways.items()}
    return {
        "rounds": rounds,
        "cpu_seconds_of_longest_thread": seconds,
        "wall_seconds": wall,
        "speedup": {"longest_thread": seconds[1] / seconds[2], "wall": wall[1] / wall[2]},
    }


@kernel
def _stream(part: int, first: int, last: int, x: np.ndarray) -> None:
    for k in range(first, last):
        x[k] = x[k] * 0.999999


def scan_times(study: Any, progress: Any) -> list[dict]:
    """Native, work-efficient, blocked and mapped scans, and what is made of them, on one and two
    threads.
    """
    n = min(1_000_000, study.largest)
    rng = np.random.default_rng(0)
    rows = []

    def add(
        what: str, function: Callable[[int], Any], size: int | None = None, **more: Any
    ) -> None:
        row = {"what": what, "bodies": n, **more, **times(function, study.budget)}
        if size:
            seconds = row["cpu_seconds_of_longest_thread"]
            row["bytes_per_second"] = {k: size / s for k, s in seconds.items()}
        rows.append(row)
        progress.step(what)

    numbers = np.ones(8 * n)

    def stream(threads: int, x=numbers) -> None:
        scans.spread(threads, _stream, parallel.parts(len(x), threads), x)

    add("memory, read and written", stream, 128 * n)
    for name, (width, op, neutral) in OPERATORS.items():
        if width == 6:
            data = rng.normal(size=(n, 6))
        else:
            tree, full, X = study._velocities(n)
            data = X if width == 12 else full
        out = np.zeros_like(data)
        for variant in scans.SCANS[: 4 if width == 6 else 3]:

            def run(threads: int, d=data, o=op, e=neutral, v=variant, out=out) -> None:
                trees.scan(d, o, e, variant=v, threads=threads, out=out)

            add(f"scan of {name}, {variant}", run, 2 * data.nbytes, variant=variant)
    for branching in (1.0, 2.0):
        tree, q, v, a = study.tree(n, branching)
        tau = np.empty(n)
        for variant in ("simulated", "native", "work_efficient", "blocked"):

            def rnea(threads: int, t=tree, s=(q, v, a), w=variant, out=tau) -> None:
                trees.rnea(t, *s, method="euler_tour", variant=w, threads=threads, out=out)

            add(f"rnea, branching {branching}, {variant}", rnea, variant=variant)
        tree.plan.release()
    return rows


def block_sizes(study: Any, progress: Any) -> list[dict]:
    """The blocked scan of the recurrence (X, v) along a tour, by the size of a block."""
    rows = []
    for n in [n for n in (100_000, 1_000_000) if n <= study.scans]:
        tree, full, _ = study._velocities(n)
        for block in BLOCKS:

            def run(threads: int, t=tree, f=full, b=block) -> None:
                trees.rootfix(
                    t, f, recur_rows, RECURRENCE, inverse=unrecur_row, method="euler_tour",
                    variant="blocked", block=b, threads=threads,
                )  # fmt: skip

            rows.append({"bodies": n, "block": block, **times(run, study.budget)})
            progress.step(f"blocks of {block}, {n:,} bodies")
        tree.plan.release()
    return rows


# --- operations, counted


def _counting() -> tuple[Any, Any, list[int]]:
    """Addition, and its inverse, of numbers that know how many operations lie one after the other
    behind them; without a source, so that Python runs the scans' own code on them.
    """
    names: dict[str, Any] = {"count": (count := [0, 0])}
    exec(
        "def op(x, y, out):\n"
        "    count[0] += 1\n"
        "    out[0], out[1] = x[0] + y[0], max(x[1], y[1]) + 1\n"
        "def inverse(x, out):\n"
        "    count[1] += 1\n"
        "    out[0], out[1] = -x[0], x[1]\n",
        names,
    )
    return names["op"], names["inverse"], count


@contextlib.contextmanager
def _shared() -> Iterator[None]:
    """However few rows there are."""
    kept = scans._THREADED, tours.THREADED
    scans._THREADED = tours.THREADED = 0
    try:
        yield
    finally:
        scans._THREADED, tours.THREADED = kept


def work(study: Any, progress: Any) -> list[dict]:
    """Operations of scans, of what flows along trees, and of dynamics: how many (work), and how
    many one after the other (span), counted, beside what Lynghus' table 1 and sections 5.3 and 6.3
    say of their growth.
    """
    rows = []
    with _shared():
        for m in [2**k for k in range(8, 15, 2)]:
            for variant, threads in SCANNED:
                count, deepest = _counted_scan(m, variant, threads(m))
                rows.append(
                    {
                        "what": f"scan, {variant}",
                        "size": m,
                        "threads": threads(m),
                        "work": count,
                        "span": deepest,
                        "work_per_row": count / m,
                        "span_per_log2": deepest / math.log2(m),
                    }
                )
        progress.step("scans")
        for n in (256, 1024, 4096):
            for branching in (1.0, 1.01, 2.0):
                rows += _counted_dynamics(n, branching)
        progress.step("dynamics")
    return rows


SCANNED: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("native", lambda m: 1),
    ("native", lambda m: 2),
    ("native", lambda m: math.isqrt(m)),
    ("work_efficient", lambda m: 1),
    ("work_efficient", lambda m: 2),
    ("blocked", lambda m: 1),
)


def _counted_scan(m: int, variant: str, threads: int) -> tuple[int, int]:
    op, _, count = _counting()
    given = np.stack([np.ones(m), np.zeros(m)], axis=1)
    found = trees.scan(given, op, 0.0, variant=variant, threads=threads)
    if not np.array_equal(found[:, 0], np.arange(1, m + 1)):
        raise RuntimeError(f"{variant} scans wrongly")
    return count[0], int(found[:, 1].max())


def _counted_dynamics(n: int, branching: float) -> Iterator[dict]:
    tree = trees.auto_tree(n, branching)
    start = np.stack([np.ones(n), np.zeros(n)], axis=1)
    taken = {}
    for name, flow in (("rootfix", trees.rootfix), ("leaffix", trees.leaffix)):
        op, inverse, count = _counting()
        found = flow(
            tree, start, op, 0.0, inverse=inverse, method="euler_tour", variant="work_efficient"
        )
        if name == "rootfix" and not np.array_equal(found[:, 0], tree.topology.depth + 1):
            raise RuntimeError("rootfix flows wrongly")
        taken[name] = count[0], count[1], int(found[:, 1].max())
        yield {
            "what": name,
            "bodies": n,
            "branching": branching,
            "work": count[0] + count[1],
            "span": taken[name][2],
            "work_per_body": (count[0] + count[1]) / n,
            "span_per_log2": taken[name][2] / math.log2(2 * n),
        }
    entries = pattern_of(tree).entries
    for name, parts in FLOPS.items():
        total = deepest = 0
        for each, (flow, times_) in parts.items():
            one, inverse = counts_of(each)
            if flow == "map":
                size = n if each != "entries" else entries
                total, deepest = total + one[0] * size * times_, deepest + one[1] * times_
            else:
                ops, inverses, span = taken[flow]
                total += times_ * (ops * one[0] + inverses * inverse[0])
                deepest += times_ * (span * one[1] + inverse[1])
        more = {"flops_per_body": total / n, "span_per_log2": deepest / math.log2(2 * n)}
        if name == "crba":
            more["entries"] = entries
            more["flops_per_entry"] = total / entries
        yield {
            "what": f"{name}, in flops",
            "bodies": n,
            "branching": branching,
            "work": total,
            "span": deepest,
            **more,
        }


# what the simulated scan's RNEA, and CRBA, are made of, each so many times
FLOPS: dict[str, dict[str, tuple[str, int]]] = {
    "rnea": {
        "across_joints": ("map", 1),
        "transforms": ("rootfix", 1),
        "joint_velocities": ("map", 1),
        "sums": ("rootfix", 2),
        "to_body_vel": ("map", 2),
        "joint_accelerations": ("map", 1),
        "forces_in_root": ("map", 1),
        "forces": ("leaffix", 1),
        "torques": ("map", 1),
    },
    "crba": {
        "across_joints": ("map", 1),
        "transforms": ("rootfix", 1),
        "to_root": ("map", 1),
        "inertias": ("leaffix", 1),
        "momenta": ("map", 1),
        "entries": ("map", 1),
    },
}


def counts_of(name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Flops, and those one after the other, of an operator and its inverse, or of a map: of the
    Programs that devices run.
    """
    ops = {
        "transforms": (12, compose_rows, invert_row),
        "sums": (6, add_rows, negate_row),
        "forces": (6, add_rows, negate_row),
        "inertias": (10, add_rows, negate_row),
    }
    if name in ops:
        width, op, inverse = ops[name]
        back = device_kernels.unary(width, inverse)
        return _flops(device_kernels.binary(width, op)), _flops(back)
    recorded = device_kernels.of_entry() if name == "entries" else device_kernels.of_body(name)
    return _flops(recorded), (0, 0)


def _flops(program: Any) -> tuple[int, int]:
    counts = program.counts()
    return counts.flops, counts.depth


# --- devices


def devices(study: Any, progress: Any) -> list[dict]:
    """Kernels by PoCL, and by the CUDA shim with every access to shared memory checked, against the
    CPU: 100,000 bodies; the mass matrix of a chain has 5,000, as its entries grow with the square.
    """
    rows = []
    n = min(100_000, study.largest)
    for device, checker in _devices():
        for branching in (1.0, 1.01, 2.0):
            tree, q, v, a = study.tree(n, branching)
            expected = trees.rnea(tree, q, v, a)
            row: dict = {"device": device, "bodies": n, "branching": branching, "error": {}}
            for method in ("levels", "heavy_path", "euler_tour"):
                found = trees.rnea(tree, q, v, a, method=method, device=device)
                row["error"][f"rnea, {method}"] = error(found, expected)
            row["error"]["rnea, euler_tour on the CPU"] = error(
                trees.rnea(tree, q, v, a, method="euler_tour"), expected
            )
            small = n if branching > 1 else min(n, 5_000)
            if device == "cuda" and branching < 2:
                small = min(small, 5_000)  # the shim takes a thread's steps one by one
            tree, q, _, _ = study.tree(small, branching)
            H = trees.crba(tree, q).values
            row |= {"crba_bodies": small, "crba_entries": int(H.size)}
            row["error"]["crba"] = error(trees.crba(tree, q, device=device).values, H)
            if checker is not None:
                r = checker.report
                row["shared_memory"] = {"barriers": r.barriers, "races": r.races}
            rows.append(row)
            progress.step(f"{device}, branching {branching}")
    return rows


def _devices() -> Iterator[tuple[str, Any]]:
    try:
        import pyopencl

        if any(p.get_devices() for p in pyopencl.get_platforms()):
            yield "opencl", None
    except Exception as reason:  # not installed, or no platform
        print(f"no OpenCL device: {reason}", file=sys.stderr)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import os
    import tempfile

    from gpu_shim.built import CXX, FOLDER
    from gpu_shim.cuda_device import ShimDevice

    from rigidgrad.runtime import gpu_solver

    if not CXX:
        print("no C++ compiler for the CUDA shim", file=sys.stderr)
        return
    kept = gpu_solver._device, gpu_solver.compile_cubin
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(FOLDER, folder)
        shim = ShimDevice(effort="-O2")
        gpu_solver._device, gpu_solver.compile_cubin = (lambda name: shim), shim.compile_cubin
        try:
            yield "cuda", shim
        finally:
            gpu_solver._device, gpu_solver.compile_cubin = kept
