"""Kills workers of `rg.cluster.map` at random moments; every result row must appear exactly once
and be right, or the call must say that it failed.

python tools/attack_cluster.py --kills 30 --seed 0
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as parquet

import rigidgrad as rg
from rigidgrad.errors import RigidgradError

ROWS, CHUNK = 600, 6


def task_of(log: Path):
    """A task whose workers say that they are at work."""

    def slow_square(rows):
        (log / str(os.getpid())).touch()
        time.sleep(0.05)
        return {"square": rows["x"] ** 2, "pair": np.stack([rows["x"], -rows["x"]], axis=1)}

    return slow_square


class Killer(threading.Thread):
    """Kills workers that are at work, one or all, at random intervals, so many times."""

    def __init__(self, kills: int, rng: np.random.Generator, log: Path):
        super().__init__(daemon=True)
        self.kills, self.rng, self.log, self.done, self.stop = kills, rng, log, 0, threading.Event()

    def run(self) -> None:
        while self.done < self.kills and not self.stop.wait(self.rng.uniform(0.1, 1.0)):
            children = {process.pid for process in psutil.Process().children(recursive=True)}
            workers = sorted(
                int(path.name) for path in self.log.iterdir() if int(path.name) in children
            )
            every = self.rng.random() < 0.3  # all at once: nothing that only workers hold survives
            for pid in workers if every else [int(self.rng.choice(workers))] if workers else []:
                if self.done < self.kills:
                    os.kill(pid, signal.SIGKILL)
                    (self.log / str(pid)).unlink()
                    self.done += 1


def rows_on_disk(folder: Path) -> list[int]:
    """Row numbers of all parts, read without rigidgrad."""
    return [
        row
        for part in sorted(folder.glob("part-*.parquet"))
        for row in parquet.read_table(part, columns=["row"])["row"].to_pylist()
    ]


def attack(kills: int, seed: int, seconds: float, workers: int) -> dict[str, int]:
    """Maps until so many workers were killed; raises AssertionError where a map returned and rows
    are missing, double or wrong.
    """
    rng = np.random.default_rng(seed)
    counts = {"maps": 0, "returned": 0, "said that they failed": 0}
    until = time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory() as scratch,
        rg.cluster.local(workers, dashboard=None) as client,
    ):
        log = Path(scratch) / "log"
        log.mkdir()
        killer = Killer(kills, rng, log)
        killer.start()
        try:
            library = 0
            while killer.done < kills or counts["returned"] == 0:
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"{killer.done} of {kills} kills in {seconds:.0f} s: give --seconds more"
                    )
                folder = Path(scratch) / str(library)
                x = np.arange(ROWS) + 1000.0 * library
                counts["maps"] += 1
                try:
                    results = rg.cluster.map(
                        task_of(log),
                        {"x": x},
                        folder,
                        chunk=CHUNK,
                        cluster=client,
                        progress=lambda *_: None,
                    )
                except RigidgradError:
                    counts["said that they failed"] += 1
                    kept = rows_on_disk(folder)
                    assert len(set(kept)) == len(kept), "a row is there twice"
                    continue  # the same call again
                counts["returned"] += 1
                library += 1
                assert rows_on_disk(folder) == list(range(ROWS)), "rows are missing or double"
                assert np.array_equal(results["square"], x**2) and np.array_equal(
                    results["pair"], np.stack([x, -x], axis=1)
                )
        finally:
            killer.stop.set()
            killer.join()
    return {"kills": killer.done} | counts


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="workers to kill (default 30)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most (default 600)")
    parser.add_argument("--workers", type=int, default=3)
    arguments = parser.parse_args(argv)
    # it tells of every worker that is gone
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    began = time.monotonic()
    try:
        found = attack(arguments.kills, arguments.seed, arguments.seconds, arguments.workers)
    except (AssertionError, TimeoutError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print(
        ", ".join(f"{count} {what}" for what, count in found.items())
        + f", in {time.monotonic() - began:.0f} s: every row exactly once"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
