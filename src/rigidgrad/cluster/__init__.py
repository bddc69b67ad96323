"""Many problems on many processes or machines: rows shared out in chunks by dask, results kept as
Parquet files, so that nothing finished is ever done again.

A folder holds a manifest and one file per chunk (`folder`). After a crash, or with more workers,
the same call goes on where it was; two such calls at once share the work.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.cluster.folder import Results, begin, load, parquet
from rigidgrad.control.problem import Problem
from rigidgrad.control.solve import solve as solve_all
from rigidgrad.errors import InputError, RigidgradError

Task = Callable[[dict[str, np.ndarray]], Mapping[str, Any]]
__all__ = ["Results", "load", "local", "map", "solve"]
_PATIENCE = 10  # seconds for a scheduler to answer, and for files of workers to be seen here
_LOST = 60  # seconds without any worker, after which those of this machine will not come back
# states of a future; one that is "lost" is computed again
_FINAL = ("finished", "error", "cancelled")
_CHUNK = 240  # rows: enough for lanes and to hide what a task costs, few enough to share out
# dask looks at its processes up to a hundred times a second, on the cores and under the lock that
# their work needs
_SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    # a worker that is not back after this is given up for good, also while it starts again for the
    # second time, or slowly
    "distributed.deploy.lost-worker-timeout": "8760h",
}


def map(  # noqa: A001 - it is rg.cluster.map
    task: Task,
    rows: Mapping[str, Any],
    folder: str | Path,
    *,
    chunk: int = _CHUNK,
    cluster: Any = None,
    workers: int | None = None,
    security: Any = None,
    name: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """`task` of all rows, `chunk` of them at a time, into `folder`, which all workers must see.

    `rows` are arrays whose first axes agree; `task` gets a dict of them, cut, and returns a dict of
    arrays or lists with as many rows. `cluster` is None for processes on this machine (`workers` of
    them, else one per core), the address of a dask scheduler, or a cluster or client of dask's,
    such as dask_jobqueue.SLURMCluster(…). `security` is a dask.distributed.Security, for
    connections by TLS to that address or among processes here. What `folder` has is not computed
    again; rows, chunk and `name` (or the task's own) must be those that it was begun with.
    `progress(done, all)` hears of chunks. It returns when every chunk is finished; else it raises.
    """
    given = {key: np.asarray(value) for key, value in rows.items()}
    count = _same_length(given)
    _check_whole("chunk", chunk)
    if workers is not None:
        _check_whole("workers", workers)
    parquet()
    results = begin(Path(folder), given, count, chunk, name or _name_of(task))
    results.check()
    missing = [k for k in range(results.chunks) if not results.part(k).exists()]
    if missing:
        report = progress or _bar
        report(results.chunks - len(missing), results.chunks)
        with _client(
            cluster, min(workers or os.cpu_count() or 1, len(missing)), security
        ) as client:
            failures = _share_out(client, task, given, results, missing, report)
        if failures:
            raise RigidgradError(
                f"{len(failures)} of {len(missing)} chunks failed; the others are kept in {folder},"
                f" and the same call tries these again. The first said: {failures[0]}"
            )
        _wait_for_files(results)
    return results


def _share_out(
    client: Any,
    task: Task,
    rows: dict[str, np.ndarray],
    results: Results,
    missing: list[int],
    report: Callable[[int, int], None],
) -> list[str]:
    """What each chunk that failed said. A chunk carries the task itself: nothing that other chunks
    need is lost with a worker.
    """
    import cloudpickle  # dask's own

    sent = cloudpickle.dumps(task)
    there = Results(results.folder.resolve(), results.rows, results.chunk, results.run)
    futures = {}
    for k in missing:
        cut = {
            key: value[k * results.chunk : (k + 1) * results.chunk] for key, value in rows.items()
        }
        futures[client.submit(_work, sent, cut, there, k, pure=False)] = k
    done, failures = results.chunks - len(missing), []
    for future in _ended(client, futures):
        number = futures.pop(future)  # dask need not repeat it when its worker is lost
        status = future.status
        if status == "finished" or results.part(number).exists():
            done += 1
            report(done, results.chunks)
        elif status == "error":
            failures.append(str(future.exception()))
        else:
            failures.append(
                f"dask gave chunk {number} up ({status}): its workers or the scheduler were lost"
            )
    return failures


def _ended(client: Any, futures: Collection[Any]) -> Iterator[Any]:
    """Futures as they end. dask waits for workers without a word, for ever: here an error where
    they are of this machine, and a warning where they may still come.

    Their states are read, which asks nobody: dask's own iterator belongs to the client that was
    opened last, and waits for ever where that is another one and closes.
    """
    from dask.distributed import LocalCluster

    waiting = list(futures)
    seen = asked = time.monotonic()
    while waiting:
        began = time.monotonic()
        ended: list[Any] = []
        left: list[Any] = []
        for future in waiting:
            (ended if future.status in _FINAL else left).append(future)
        waiting = left
        now = time.monotonic()
        time.sleep(max(0.01, 10.0 * (now - began)))  # most of the time is the workers'
        yield from ended
        if ended:
            seen = now
        elif now - asked > 1:
            asked = now
            if _workers(client):
                seen = now
            elif now - seen > _LOST:
                if isinstance(client.cluster, LocalCluster):
                    raise RigidgradError(
                        "no worker is left on this machine; finished chunks are kept, and the same"
                        " call, with new workers, goes on there"
                    )
                warnings.warn(
                    f"there has been no worker at {client.scheduler.address} for {_LOST} s: waiting"
                    " for one",
                    stacklevel=4,
                )
                seen = math.inf  # said once


def _workers(client: Any) -> int:
    try:
        return len(client.nthreads())
    except (OSError, TimeoutError):
        return 0


def _wait_for_files(results: Results) -> None:
    """Workers have written all files; a network file system may show them late."""
    until = time.monotonic() + _PATIENCE
    while not results.finished:
        if time.monotonic() > until:
            raise RigidgradError(
                f"workers finished all {results.chunks} chunks, but {results.folder} has"
                f" {len(results.parts)} of them here: is it a folder that all machines share?"
            )
        time.sleep(0.1)


def solve(
    problem: Problem,
    folder: str | Path,
    *,
    start: Any = None,
    targets: Mapping[Any, Any] | None = None,
    weights: Mapping[Any, Any] | None = None,
    solver: Any = None,
    keep: tuple[str, ...] = ("x", "u"),
    **options: Any,
) -> Results:
    """A library of motions: `problem` with other starts, targets and weights, as `problem.batch`
    takes them; `options` are those of `map`.

    Columns: status, message, cost, iterations, those of `keep` (of "x", "u", "gains"), and what was
    varied: start, target_0, weight_0, …. A row that is no problem (a start with NaN, say) gets the
    status "invalid" and the reason as its message. `folder` is where results go; `solver` as of
    `rg.solve`.
    """
    unknown = [name for name in keep if name not in ("x", "u", "gains")]
    if unknown:
        raise InputError(f"keep is some of 'x', 'u' and 'gains', not {unknown[0]!r}")
    rows = {} if start is None else {"start": start}
    rows |= {f"target_{_told(k)}": values for k, values in (targets or {}).items()}
    rows |= {f"weight_{_told(k)}": values for k, values in (weights or {}).items()}
    if not rows:
        raise InputError("nothing differs from row to row: give start, targets or weights")
    parts = (
        problem.system.key(),
        problem.integrator,
        [t.identity() for t in (*problem.costs, *problem.constraints)],
        problem.dt if problem.uniform else problem.h.tobytes(),
        None if problem.timing is None else [a.tobytes() for a in problem.timing],
        problem.p.tobytes(),
        solver,
        keep,
    )
    identity = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return map(
        _Solve(problem, solver, tuple(keep)),
        rows,
        folder,
        name=f"solve {problem.system.name} {identity}",
        **options,
    )


@contextmanager
def local(
    workers: int | None = None, *, security: Any = None, dashboard: str | None = "127.0.0.1:0"
) -> Iterator[Any]:
    """A client of so many processes on this machine, one per core by default: for several calls of
    `map` or `solve`, each with `cluster=client`.

    Everything listens on 127.0.0.1 alone. `security` is a dask.distributed.Security: other users of
    this machine can then not connect. `dashboard` is where dask's web page is served (None: no
    page); it has no password. `workers`: how many.
    """
    if workers is not None:
        _check_whole("workers", workers)
    distributed = _distributed()
    _check_security(security)
    from dask import config

    options: dict[str, Any] = {
        "n_workers": workers or os.cpu_count(),
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
    }
    # without a page the scheduler serves its health all the same, on all interfaces by default
    # where
    options |= {
        "dashboard_address": dashboard or "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": dashboard is not None},
        "security": security,
    }
    with (
        config.set(_SELDOM),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@dataclass(frozen=True)
class _Solve:
    problem: Problem
    solver: Any
    keep: tuple[str, ...]

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, Any]:
        count = len(next(iter(rows.values())))
        problems: list[Problem | str] = []
        for k in range(count):
            try:
                problems += self._batch({name: values[k : k + 1] for name, values in rows.items()})
            except RigidgradError as error:
                problems.append(str(error))
        fine = [p for p in problems if isinstance(p, Problem)]
        solutions = iter(solve_all(fine, self.solver, threads=1) if fine else [])
        found = [None if isinstance(p, str) else next(solutions) for p in problems]
        system, steps = self.problem.system, self.problem.steps
        shapes = {
            "x": (steps + 1, system.nx),
            "u": (steps, system.nu),
            "gains": (steps, system.nu, system.ndx),
        }
        table: dict[str, Any] = {
            "status": [s.status if s else "invalid" for s in found],
            "message": [s.message if s else p for s, p in zip(found, problems, strict=True)],
            "cost": [s.cost if s else math.nan for s in found],
            "iterations": [s.iterations if s else 0 for s in found],
        }
        return table | {
            name: np.array(
                [getattr(s, name) if s else np.full(shapes[name], math.nan) for s in found]
            )
            for name in self.keep
        }

    def _batch(self, rows: dict[str, np.ndarray]) -> list[Problem]:
        numbered: dict[str, dict[Any, np.ndarray]] = {"target": {}, "weight": {}}
        for name, values in rows.items():
            kind, _, number = name.partition("_")
            if number:
                numbered[kind][cost_index(number)] = values
        return self.problem.batch(
            rows.get("start"),
            targets=numbered["target"] or None,
            weights=numbered["weight"] or None,
        )


def _told(index: Any) -> str:
    """Which cost: 0, or 2_0 of phase 2."""
    return "_".join(str(k) for k in index) if isinstance(index, tuple) else str(index)


def cost_index(text: str) -> int | tuple[int, ...]:
    """What `problem.batch` calls it."""
    found = tuple(int(n) for n in text.split("_"))
    return found[0] if len(found) == 1 else found


# --- workers --------------------------------------------------------------------------------------


def _work(sent: bytes, rows: dict[str, np.ndarray], results: Results, number: int) -> int:
    """One chunk, unless its file is there: dask repeats what a lost worker had answered, and
    another call may have been quicker.
    """
    if not results.part(number).exists():
        first, count = number * results.chunk, len(next(iter(rows.values())))
        table: dict[str, Any] = {"row": np.arange(first, first + count)} | dict(rows)
        for name, values in _received(sent)(dict(rows)).items():
            if name in table:
                raise InputError(f"the task's result {name!r} has the name of an input")
            if len(values) != count:
                raise InputError(
                    f"the task's result {name!r} has {len(values)} rows; it was given {count}"
                )
            table[name] = values
        results.write(number, table)
    return number


@lru_cache(maxsize=2)
def _received(sent: bytes) -> Task:
    """The task, once per worker: what it compiled stays with it."""
    import pickle

    task: Task = pickle.loads(sent)
    return task


@contextmanager
def _client(cluster: Any, workers: int, security: Any) -> Iterator[Any]:
    distributed = _distributed()
    _check_security(security)
    if security is not None and cluster is not None and not isinstance(cluster, str):
        raise InputError(
            "security is for an address or for processes here: a cluster or client of dask's has"
            " its own"
        )
    if isinstance(cluster, distributed.Client):
        yield cluster
    elif cluster is not None:
        try:
            client = distributed.Client(
                cluster,
                timeout=_PATIENCE,
                **({"security": security} if security is not None else {}),
            )
        except (OSError, TimeoutError, ValueError, TypeError, AssertionError) as error:
            # an assertion fails where dask's own thread does not start within ten seconds
            said = str(error) or "dask's event loop did not start"
            raise RigidgradError(f"there is no dask scheduler at {cluster!r}: {said}") from None
        with client:
            yield client
    else:
        with local(workers, security=security) as client:
            yield client


# --- small things ---------------------------------------------------------------------------------


def _same_length(rows: dict[str, np.ndarray]) -> int:
    lengths = {key: len(value) if value.ndim else None for key, value in rows.items()}
    if not lengths or None in lengths.values() or len(set(lengths.values())) != 1:
        raise InputError(f"rows are arrays whose first axes agree; these have {lengths or 'none'}")
    count = next(iter(lengths.values()))
    if not count:
        raise InputError("there are no rows")
    if "row" in rows:
        raise InputError("the column 'row' is the row's number: name yours otherwise")
    return int(count)


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is a whole number of at least 1, not {value!r}")


def _check_security(security: Any) -> None:
    if security is not None and not isinstance(security, _distributed().Security):
        raise InputError(f"security is a dask.distributed.Security, not {type(security).__name__}")


def _name_of(task: Any) -> str:
    return f"{getattr(task, '__module__', '')}.{getattr(task, '__qualname__', type(task).__qualname__)}"


def _bar(done: int, total: int) -> None:
    if sys.stderr.isatty():
        filled = 30 * done // total
        print(
            f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} chunks",
            end="\n" if done == total else "",
            file=sys.stderr,
            flush=True,
        )


def _distributed() -> Any:
    try:
        from dask import distributed
    except ImportError:
        raise RigidgradError("sharing out needs dask: pip install 'rigidgrad[cluster]'") from None
    return distributed
