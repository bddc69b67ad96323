"""The study of huge trees: figures 10 to 16 of Lynghus (2026) on this machine's cores, with errors
beside times, and forward dynamics besides.

# all figures; small trees; some of it; scans on two threads, blocks, operations counted, devices
.venv/bin/python bench/trees.py --json bench/results/trees.json --plots docs/pictures
.venv/bin/python bench/trees.py --quick
.venv/bin/python bench/trees.py --parts figures_13_14,memory --sizes 1000000
.venv/bin/python bench/trees.py --parts scan_times,blocks,work,devices,first_call \\
    --json bench/results/trees_work.json
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import trees_scans
from trees_oracle import Oracle, error

from rigidgrad import trees
from rigidgrad.trees import dense
from rigidgrad.trees.rnea_euler_tour import (
    IDENTITY,
    add_rows,
    compose_rows,
    invert_row,
    negate_row,
    recur_rows,
    unrecur_row,
)

GRAVITY, SKEW = (3.0, -4.0, -8.0), 0.3
BRANCHINGS = (1.0, 1.01, 1.5, 2.0)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000, 2_000_000, 4_000_000)
CRBA_SIZES = (100, 1_000, 5_000, 10_000, 20_000, 40_000)
PUBLISHED = {
    "source": "T. Lynghus, Data Parallel Rigid Body Dynamics, Master's thesis, 2026, chapter 7",
    "hardware": (
        "NVIDIA A100 40GB PCIe (CUDA 12.2); CPU code: AMD EPYC 7413, Futhark 0.26.2, C backend;"
        " float64"
    ),
    "figure_10": (
        "compact data, speed-up: RNEA on GPU about 3 up to 100,000 bodies, about 5 from 1,000,000"
        " on; RNEA on CPU 1.33 to 1.9; CRBA on GPU about 1.5 for large N, on CPU none"
    ),
    "figure_11": (
        "against the native scan: blocked (64) about 2.5, work-efficient slightly faster, simulated"
        " close to 3, for large N"
    ),
    "figure_12": "a rootfix of vector addition is 6 to 16 times faster than one of the recurrence",
    "figure_13": (
        "RNEA deviates little with the branching factor; above 1,000,000 bodies a chain is 28 to 35"
        " % faster than branching 1.5 and 2"
    ),
    "figure_14": (
        "RNEA, chain: GPU against CPU 16 to 18 for 1,000,000 to 4,000,000 bodies; about 184 ns a"
        " body on CPU, about 10 ns on GPU"
    ),
    "figure_15": "CRBA at 40,000 bodies: branching 2 over 20 times faster than a chain",
    "figure_16": (
        "CRBA, GPU against CPU: 16.5 at 1,000 and 163 at 40,000 bodies (chain), about 160 at 40,000"
        " (branching 1.01); dense output, 850 ms on CPU for branching 2"
    ),
}


class Progress:
    """A bar on stderr, if that is a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def step(self, what: str) -> None:
        self.done += 1
        if sys.stderr.isatty():
            filled = 30 * self.done // self.total
            print(
                f"\r[{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} {what:<50.50}",
                end="",
                file=sys.stderr,
                flush=True,
            )
            if self.done == self.total:
                print(file=sys.stderr)


def best(
    functions: dict[str, Callable[[], Any]],
    budget: float,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Seconds of each, the least over rounds in turns, as many as fit the budget (at least
    three).
    """
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for f in functions.values():
        f()
    gc.disable()
    end = time.perf_counter() + budget
    while len(next(iter(taken.values()))) < 3 or (
        time.perf_counter() < end and len(next(iter(taken.values()))) < 200
    ):
        for name, f in functions.items():
            start = clock()
            f()
            taken[name].append(clock() - start)
    gc.enable()
    return {name: min(times) for name, times in taken.items()}


def _sums(tree: trees.Tree, parts: np.ndarray) -> np.ndarray:
    return trees.rootfix(
        tree,
        parts,
        add_rows,
        0.0,
        inverse=negate_row,
        method="euler_tour",
        variant="mapped",
        threads=1,
    )


class Study:
    def __init__(
        self,
        largest: int,
        budget: float,
        scans: int,
        sizes: tuple[int, ...] = SIZES,
        entries: int | None = None,
    ) -> None:
        self.sizes = [n for n in sizes if n <= largest]
        self.crba_sizes = [n for n in (CRBA_SIZES if sizes == SIZES else sizes) if n <= largest]
        self.largest, self.budget, self.scans, self.entries = largest, budget, scans, entries
        self.oracle = Oracle()
        self._kept: tuple[Any, Any] = (None, None)

    def tree(
        self, bodies: int, branching: float, dtype: Any = np.float64, joints: Any = "revolute"
    ) -> tuple:
        """A tree and a state; the last one is kept."""
        key = bodies, branching, np.dtype(dtype).name, joints
        if self._kept[0] != key:
            tree = trees.auto_tree(bodies, branching, SKEW, gravity=GRAVITY, joints=joints)
            rng = np.random.default_rng(0)
            state = (
                rng.uniform(-3, 3, bodies),
                0.1 * rng.normal(size=bodies),
                rng.normal(size=bodies),
            )
            self._kept = key, (tree, *(x.astype(dtype) for x in state))
        return self._kept[1]

    def exact(self, tree, q, v, a) -> np.ndarray | None:
        return self.oracle.rnea(tree, q, v, a) if self.oracle.available else None

    # --- figures ----------------------------------------------------------------------------------

    def figure_10(self, progress: Progress) -> list[dict]:
        """What compact data save: dense time / compact time, chains."""
        rows = []
        for n in [n for n in self.sizes if n <= self.scans]:
            tree, q, v, a = self.tree(n, 1.0)
            I = dense.inertias(tree)
            tasks = {
                "rnea sequential": lambda t=tree, s=(q, v, a): trees.rnea(
                    t, *s, method="sequential", threads=1
                ),
                "rnea sequential dense": lambda t=tree, s=(q, v, a), I=I: dense.rnea(t, I, *s),
                "rnea euler_tour": lambda t=tree, s=(q, v, a): trees.rnea(
                    t, *s, method="euler_tour", threads=1
                ),
                "rnea euler_tour dense": lambda t=tree, s=(q, v, a), I=I: dense.rnea_euler_tour(
                    t, I, *s, threads=1
                ),
            }
            if n <= 5_000:
                tasks["crba"] = lambda t=tree, q=q: trees.crba(t, q, threads=1)
                tasks["crba dense"] = lambda t=tree, q=q, I=I: dense.crba(t, I, q)
            seconds = best(tasks, self.budget)
            speedup = {
                name: seconds[f"{name} dense"] / s
                for name, s in seconds.items()
                if f"{name} dense" in seconds
            }
            rows.append({"bodies": n, "seconds": seconds, "speedup": speedup})
            progress.step(f"figure 10, {n:,} bodies")
        return rows

    def figure_11(self, progress: Progress) -> list[dict]:
        """The rootfix of velocities by each scan, branching 2; block sizes at 100,000 bodies."""
        rows = []
        neutral = np.concatenate([IDENTITY, np.zeros(6)])
        for n in [n for n in self.sizes if n <= self.scans]:
            tree, full, X = self._velocities(n)
            tasks = {}
            for variant in ("native", "work_efficient", "blocked"):
                options = {
                    "inverse": unrecur_row,
                    "method": "euler_tour",
                    "variant": variant,
                    "threads": 1,
                }
                tasks[variant] = lambda o=options, t=tree, f=full: trees.rootfix(
                    t, f, recur_rows, neutral, **o
                )
            if n == 100_000:
                for block in (512, 256, 128, 32, 16):
                    options = {
                        "inverse": unrecur_row,
                        "method": "euler_tour",
                        "variant": "blocked",
                        "threads": 1,
                        "block": block,
                    }
                    tasks[f"blocked {block}"] = lambda o=options, t=tree, f=full: trees.rootfix(
                        t, f, recur_rows, neutral, **o
                    )

            def simulated(t=tree, X=X, f=full) -> None:
                trees.rootfix(
                    t, X, compose_rows, IDENTITY, inverse=invert_row, method="euler_tour", threads=1
                )
                _sums(t, np.ascontiguousarray(f[:, 12:]))

            tasks["simulated"] = simulated
            for method in ("levels", "heavy_path"):
                tasks[f"{method}, no inverse"] = lambda m=method, t=tree, f=full: trees.rootfix(
                    t, f, recur_rows, neutral, method=m, threads=1
                )
            rows.append({"bodies": n, "seconds": best(tasks, self.budget)})
            progress.step(f"figure 11, {n:,} bodies")
        return rows

    def _velocities(self, n: int) -> tuple:
        tree, q, v, _ = self.tree(n, 2.0)
        X = np.empty((n, 12))
        from rigidgrad.trees.rnea_euler_tour import _set_velocities, _transforms

        _transforms(0, 0, n, tree.data, q, X)
        full = np.empty((n, 18))
        _set_velocities(0, 0, n, tree.data, q, v, full)
        return tree, full, X

    def figure_12(self, progress: Progress) -> list[dict]:
        """A rootfix of the recurrence against one of vector addition."""
        rows = []
        neutral = np.concatenate([IDENTITY, np.zeros(6)])
        for n in [n for n in self.sizes if n <= self.scans]:
            tree, full, _ = self._velocities(n)
            parts = np.ascontiguousarray(full[:, 12:])
            seconds = best(
                {
                    "recurrence": lambda t=tree, f=full: trees.rootfix(
                        t,
                        f,
                        recur_rows,
                        neutral,
                        inverse=unrecur_row,
                        method="euler_tour",
                        threads=1,
                    ),
                    "addition": lambda t=tree, p=parts: _sums(t, p),
                },
                self.budget,
            )
            rows.append(
                {
                    "bodies": n,
                    "seconds": seconds,
                    "speedup": seconds["recurrence"] / seconds["addition"],
                }
            )
            progress.step(f"figure 12, {n:,} bodies")
        return rows

    def figures_13_14(self, progress: Progress) -> list[dict]:
        """RNEA: every size, branching factor and method, time and error; two threads by wall
        clock.
        """
        rows = []
        for n in self.sizes:
            for branching in BRANCHINGS:
                rows.append(self._rnea(n, branching, np.float64))
                progress.step(f"figures 13 and 14, {n:,} bodies, branching {branching}")
        return rows

    def _rnea(self, n: int, branching: float, dtype: Any) -> dict:
        tree, q, v, a = self.tree(n, branching, dtype)
        exact = self.exact(tree, q, v, a)
        default = tree.plan.method
        methods = ["sequential", "levels", "heavy_path"] + (
            ["euler_tour"] if n <= 1_000_000 else []
        )
        if branching == 1.0 and n > 100_000:
            methods.remove("levels")  # a task a body
        out = np.empty(n, dtype)
        one = {
            m: lambda m=m: trees.rnea(tree, q, v, a, method=m, threads=1, out=out) for m in methods
        }
        seconds = best(one, self.budget)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        two = {}
        if n >= 10_000 and cores > 1:
            tasks = {
                m: lambda m=m: trees.rnea(tree, q, v, a, method=m, threads=2, out=out)
                for m in dict.fromkeys(("sequential", default))
            }
            two = best(tasks, self.budget, time.perf_counter)
        errors = (
            {}
            if exact is None
            else {m: error(trees.rnea(tree, q, v, a, method=m), exact) for m in methods}
        )
        tree.plan.release()
        return {
            "bodies": n,
            "branching": branching,
            "dtype": np.dtype(dtype).name,
            "default": default,
            "ns_per_body": {m: 1e9 * s / n for m, s in seconds.items()},
            "ns_per_body_two_threads": {m: 1e9 * s / n for m, s in two.items()},
            "error": errors,
            "speedup_over_sequential": {m: seconds["sequential"] / s for m, s in seconds.items()},
        }

    def single_precision(self, progress: Progress) -> list[dict]:
        rows = []
        for n in [n for n in self.sizes if n in (10_000, 1_000_000)]:
            for branching in BRANCHINGS:
                rows.append(self._rnea(n, branching, np.float32))
                progress.step(f"float32, {n:,} bodies, branching {branching}")
        return rows

    def figures_15_16(self, progress: Progress) -> list[dict]:
        """CRBA, packed, against the plain walk with 6x6 matrices; error of H a against inverse
        dynamics.
        """
        rows = []
        for n in self.crba_sizes:
            for branching in BRANCHINGS:
                tree, q, v, a = self.tree(n, branching)
                entries = int(tree.topology.depth.sum(dtype=np.int64)) + n
                row: dict = {"bodies": n, "branching": branching, "entries": entries}
                if entries * 8 > 0.5 * trees_memory():
                    row["skipped"] = "more than half of the memory"
                elif self.entries and entries > self.entries:
                    row["skipped"] = "more entries than asked for"
                else:
                    I = dense.inertias(tree)
                    tasks = {
                        "crba": lambda t=tree, q=q: trees.crba(t, q, threads=1),
                        "dense": lambda t=tree, q=q, I=I: dense.crba(t, I, q),
                    }
                    row["seconds"] = best(tasks, self.budget)
                    forces = trees.rnea(tree, q, v, a) - trees.bias(tree, q, v)
                    row["error"] = error(trees.crba(tree, q) @ a, forces)
                rows.append(row)
                progress.step(f"figures 15 and 16, {n:,} bodies, branching {branching}")
        return rows

    # --- scans, in `trees_scans`

    def scan_times(self, progress: Progress) -> list[dict]:
        return trees_scans.scan_times(self, progress)

    def blocks(self, progress: Progress) -> list[dict]:
        return trees_scans.block_sizes(self, progress)

    def work(self, progress: Progress) -> list[dict]:
        return trees_scans.work(self, progress)

    def devices(self, progress: Progress) -> list[dict]:
        return trees_scans.devices(self, progress)

    # --- beyond the thesis ------------------------------------------------------------------------

    def forward_dynamics(self, progress: Progress) -> list[dict]:
        rows = []
        for n in [n for n in (1_000, 10_000, 100_000) if n <= self.largest]:
            for branching in (1.0, 1.01, 2.0):
                tree, q, v, a = self.tree(n, branching)
                tau = trees.rnea(tree, q, v, a)
                row: dict = {"bodies": n, "branching": branching, "seconds": {}, "residual": {}}
                for method in ("sequential", "levels", "heavy_path"):
                    if method == "levels" and branching == 1.0 and n > 10_000:
                        continue
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", trees.AccuracyWarning)
                        task = {
                            method: lambda m=method, t=tree, s=(q, v, tau): trees.forward_dynamics(
                                t, *s, method=m, threads=1
                            )
                        }
                        row["seconds"] |= best(task, self.budget / 3)
                        row["residual"][method] = float(
                            trees.forward_dynamics(tree, q, v, tau, method=method).residual
                        )
                rows.append(row)
                progress.step(f"forward dynamics, {n:,} bodies, branching {branching}")
        return rows

    def memory(self, progress: Progress) -> list[dict]:
        """Peak memory of the default method, inputs aside, in a process of its own."""
        rows = []
        for branching in (1.0, 2.0):
            code = MEMORY.format(n=min(1_000_000, self.largest), branching=branching, skew=SKEW)
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            rows.append(json.loads(done.stdout))
            progress.step(f"memory, branching {branching}")
        return rows

    def first_call(self, progress: Progress) -> list[dict]:
        """Seconds of the first call in a fresh process: with nothing compiled, and with what the
        process before left on disk.
        """
        import tempfile

        rows = []
        for what, code in FIRST_CALLS.items():
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "RIGIDGRAD_CACHE": folder}
                times = []
                for _ in range(2):
                    done = subprocess.run(
                        [sys.executable, "-c", FIRST.format(code=code)],
                        env=environment,
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    times.append(json.loads(done.stdout))
            rows.append({"call": what, "compiled": times[0], "cached": times[1]})
            progress.step(f"first call, {what}")
        return rows


MEMORY = """
import json, resource, numpy as np
from rigidgrad import trees
small = trees.auto_tree(20_000, {branching}, {skew})
trees.rnea(small, *(np.zeros(20_000),) * 3)
n = {n}
tree = trees.auto_tree(n, {branching}, {skew})
q, v, a = np.random.default_rng(0).normal(size=(3, n))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def now(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
open("/proc/self/clear_refs", "w").write("5")
start = now()
trees.rnea(tree, q, v, a)
high = int([x for x in open("/proc/self/status").read().splitlines() if x.startswith("VmHWM")][0].split()[1]) * 1024
print(json.dumps({{"bodies": n, "branching": {branching}, "method": tree.plan.method, "bytes_per_body": (high - start) / n}}))
"""
FIRST = """
import json, time
start = time.process_time()
import numpy as np
from rigidgrad import trees
loaded = time.process_time()
{code}
print(json.dumps({{"import": loaded - start, "call": time.process_time() - loaded}}))
"""
_TREE = "t = trees.auto_tree(2000, {}, 0.3); x = np.zeros(2000)\n"
FIRST_CALLS = {
    "rnea, levels": _TREE.format(2.0) + "trees.rnea(t, x, x, x, threads=1)",
    "rnea, heavy_path": _TREE.format(1.0) + "trees.rnea(t, x, x, x, threads=1)",
    "rnea, sequential": (
        _TREE.format(2.0) + "trees.rnea(t, x, x, x, method='sequential', threads=1)"
    ),
    "crba": _TREE.format(2.0) + "trees.crba(t, x, threads=1)",
    "forward_dynamics, levels": _TREE.format(2.0) + "trees.forward_dynamics(t, x, x, x, threads=1)",
    "forward_dynamics, heavy_path": (
        _TREE.format(1.0) + "trees.forward_dynamics(t, x, x, x, threads=1)"
    ),
}
PARTS = (
    "figure_10",
    "figure_11",
    "figure_12",
    "figures_13_14",
    "figures_15_16",
    "single_precision",
    "forward_dynamics",
    "memory",
)
MORE = ("scan_times", "blocks", "work", "devices", "first_call")  # into a file of their own


def trees_memory() -> int:
    from rigidgrad.trees.memory import available

    return available()


def steps(study: Study, part: str) -> int:
    small = len([n for n in study.sizes if n <= study.scans])
    single = len([n for n in study.sizes if n in (10_000, 1_000_000)])
    forward = len([n for n in (1_000, 10_000, 100_000) if n <= study.largest])
    counts = {
        "figures_13_14": 4 * len(study.sizes),
        "figures_15_16": 4 * len(study.crba_sizes),
        "single_precision": 4 * single,
    }
    others = {
        "forward_dynamics": 3 * forward,
        "memory": 2,
        "first_call": len(FIRST_CALLS),
        "scan_times": 19,
        "blocks": 6 * len([n for n in (100_000, 1_000_000) if n <= study.scans]),
        "work": 2,
        "devices": 6,
    }
    return others.get(part, counts.get(part, small))


def show(part: str, rows: list[dict]) -> None:
    print(f"\n{part}")
    for row in rows:
        head = " ".join(
            f"{k}={v:,}" if isinstance(v, int) else f"{k}={v}"
            for k, v in row.items()
            if not isinstance(v, dict)
        )
        print(f"  {head}")
        for key, values in row.items():
            if isinstance(values, dict):
                print(f"    {key}: " + ", ".join(f"{k} {v:.3g}" for k, v in values.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS + MORE)}"
    )
    parser.add_argument("--largest", type=int, default=4_000_000, help="bodies")
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        help="bodies of figures 10 to 16 and in single precision; rows of others stay",
    )
    parser.add_argument("--scans", type=int, default=1_000_000, help="bodies, of figures 10 to 12")
    parser.add_argument(
        "--entries",
        type=int,
        help=(
            "most numbers of a mass matrix of figures 15 and 16; default: what half of the memory"
            " holds"
        ),
    )
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each comparison")
    parser.add_argument("--quick", action="store_true", help="up to 10,000 bodies, 0.2 s each")
    parser.add_argument(
        "--json",
        type=Path,
        help="where to write all figures; parts that are already there and not measured now stay",
    )
    parser.add_argument("--plots", type=Path, help="folder for pictures")
    options = parser.parse_args()
    names = options.parts.split(",")
    unknown = [name for name in names if name not in PARTS + MORE]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS + MORE)}")
    sizes = tuple(map(int, options.sizes.split(",")))
    study = (
        Study(10_000, 0.2, 10_000)
        if options.quick
        else Study(options.largest, options.budget, options.scans, sizes, options.entries)
    )
    progress = Progress(sum(steps(study, name) for name in names))
    result: dict[str, Any] = {}
    if options.json and options.json.exists():
        result = json.loads(options.json.read_text())
    result |= {"machine": machine.describe({}), "published": PUBLISHED}
    for name in names:
        rows = getattr(study, name)(progress)
        show(name, rows)
        if sizes != SIZES and "bodies" in rows[0] and name in PARTS:
            measured = {row["bodies"] for row in rows}
            rows = sorted(
                rows + [row for row in result.get(name, []) if row["bodies"] not in measured],
                key=lambda row: row["bodies"],
            )
        result[name] = rows
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.plots:
        from trees_plots import draw

        draw(result, options.plots)


if __name__ == "__main__":
    main()
