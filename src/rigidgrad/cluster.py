"""Many problems on many processes or machines: rows shared out in chunks by dask, results kept as Parquet files, so that nothing finished is ever done again.

A folder holds a manifest and one file a chunk. A worker writes a chunk's file under another name and renames it when it is whole: what is there is finished. After a
crash, or with more workers, the same call goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.control.problem import Problem
from rigidgrad.control.solve import solve as solve_all
from rigidgrad.errors import InputError, RigidgradError

Task = Callable[[dict[str, np.ndarray]], Mapping[str, Any]]
_MANIFEST = "manifest.json"
_PATIENCE = 10  # seconds for a scheduler to answer
_CHUNK = 240  # rows: enough for lanes and to hide what a task costs, few enough to share out
# dask looks at its processes up to a hundred times a second, on the cores and under the lock that their work needs
_SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}


@dataclass(frozen=True)
class Results:
    """What a folder holds. `results["cost"]` is an array over all rows, in their order; unfinished rows make it an error."""

    folder: Path
    rows: int
    chunk: int

    @property
    def parts(self) -> list[Path]:
        """The finished chunks' files."""
        return sorted(self.folder.glob("part-*.parquet"))

    @property
    def finished(self) -> bool:
        return len(self.parts) == math.ceil(self.rows / self.chunk)

    @property
    def columns(self) -> list[str]:
        parts = self.parts
        return [name for name in _parquet().read_schema(parts[0]).names if name != "row"] if parts else []

    def __getitem__(self, name: str) -> np.ndarray:
        if not self.finished:
            raise RigidgradError(
                f"{self.folder} has {len(self.parts)} of {math.ceil(self.rows / self.chunk)} chunks: run the same call again, it goes on there"
            )
        if name not in self.columns:
            raise InputError(f"there is no column {name!r} in {self.folder}; there are {', '.join(self.columns)}")
        return np.concatenate([_read(part, name) for part in self.parts])


def load(folder: str | Path) -> Results:
    """The results that a folder holds, finished or not."""
    manifest = _manifest(Path(folder))
    if manifest is None:
        raise InputError(f"{folder} holds no results: it has no {_MANIFEST}")
    return Results(Path(folder), manifest["rows"], manifest["chunk"])


def map(  # noqa: A001 - it is rg.cluster.map
    task: Task,
    rows: Mapping[str, Any],
    folder: str | Path,
    *,
    chunk: int = _CHUNK,
    cluster: Any = None,
    workers: int | None = None,
    name: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """`task` of all rows, `chunk` of them at a time, into `folder`, which all workers must see.

    `rows` are arrays whose first axes agree; `task` gets a dict of them, cut, and returns a dict of arrays or lists with as many rows. `cluster` is None for processes
    on this machine (`workers` of them, else one a core), the address of a dask scheduler, or a cluster or client of dask's, such as dask_jobqueue.SLURMCluster(…).
    What `folder` has is not computed again; rows, chunk and `name` (or the task's own) must be those that it was begun with. `progress(done, all)` hears of chunks.
    """
    given = {key: np.asarray(value) for key, value in rows.items()}
    count = _same_length(given)
    _check_whole("chunk", chunk)
    if workers is not None:
        _check_whole("workers", workers)
    _parquet()
    results = _begin(Path(folder), given, count, chunk, name or _name_of(task))
    missing = [k for k in range(math.ceil(count / chunk)) if not _part(results.folder, k).exists()]
    if missing:
        report = progress or _bar
        done = math.ceil(count / chunk) - len(missing)
        report(done, done + len(missing))
        failures: list[str] = []
        with _client(cluster, min(workers or os.cpu_count() or 1, len(missing))) as client:
            cut = {k: {key: value[k * chunk : (k + 1) * chunk] for key, value in given.items()} for k in missing}
            shared = client.scatter(task, broadcast=True, hash=False)
            futures = [client.submit(_work, shared, cut[k], str(results.folder.resolve()), k, k * chunk, pure=False) for k in missing]
            from dask.distributed import as_completed

            for future in as_completed(futures):
                if future.status == "error":
                    failures.append(str(future.exception()))
                else:
                    done += 1
                    report(done, len(missing) + math.ceil(count / chunk) - len(missing))
        if failures:
            raise RigidgradError(
                f"{len(failures)} of {len(missing)} chunks failed; the others are kept in {folder}, and the same call tries these again. The first said: {failures[0]}"
            )
    return results


def solve(
    problem: Problem,
    folder: str | Path,
    *,
    start: Any = None,
    targets: Mapping[int, Any] | None = None,
    weights: Mapping[int, Any] | None = None,
    solver: Any = None,
    keep: tuple[str, ...] = ("x", "u"),
    **options: Any,
) -> Results:
    """A library of motions: `problem` with other starts, targets and weights, as `problem.batch` takes them; `options` are those of `map`.

    Columns: status, message, cost, iterations, those of `keep` (of "x", "u", "gains"), and what was varied: start, target_0, weight_0, …. A row that is no
    problem (a start with NaN, say) gets the status "invalid" and the reason as its message.
    """
    unknown = [name for name in keep if name not in ("x", "u", "gains")]
    if unknown:
        raise InputError(f"keep is some of 'x', 'u' and 'gains', not {unknown[0]!r}")
    rows = {} if start is None else {"start": start}
    rows |= {f"target_{k}": values for k, values in (targets or {}).items()} | {
        f"weight_{k}": values for k, values in (weights or {}).items()
    }
    if not rows:
        raise InputError("nothing differs from row to row: give start, targets or weights")
    parts = (
        problem.system.key(),
        problem.integrator,
        [t.key() for t in (*problem.costs, *problem.constraints)],
        problem.dt,
        problem.p.tobytes(),
        solver,
        keep,
    )
    identity = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return map(_Solve(problem, solver, tuple(keep)), rows, folder, name=f"solve {problem.system.name} {identity}", **options)


@contextmanager
def local(workers: int | None = None) -> Iterator[Any]:
    """A client of so many processes on this machine, one a core unless told: for several calls of `map` or `solve`, each with `cluster=client`."""
    if workers is not None:
        _check_whole("workers", workers)
    distributed = _distributed()
    from dask import config

    options = {"n_workers": workers or os.cpu_count(), "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with config.set(_SELDOM), distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
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
        shapes = {"x": (steps + 1, system.nx), "u": (steps, system.nu), "gains": (steps, system.nu, system.ndx)}
        table: dict[str, Any] = {
            "status": [s.status if s else "invalid" for s in found],
            "message": [s.message if s else p for s, p in zip(found, problems, strict=True)],
            "cost": [s.cost if s else math.nan for s in found],
            "iterations": [s.iterations if s else 0 for s in found],
        }
        return table | {name: np.array([getattr(s, name) if s else np.full(shapes[name], math.nan) for s in found]) for name in self.keep}

    def _batch(self, rows: dict[str, np.ndarray]) -> list[Problem]:
        numbered: dict[str, dict[int, np.ndarray]] = {"target": {}, "weight": {}}
        for name, values in rows.items():
            kind, _, number = name.partition("_")
            if number:
                numbered[kind][int(number)] = values
        return self.problem.batch(rows.get("start"), targets=numbered["target"] or None, weights=numbered["weight"] or None)


# --- workers ------------------------------------------------------------------------------------------------------------------------------


def _work(task: Task, rows: dict[str, np.ndarray], folder: str, number: int, first: int) -> int:
    """One chunk, unless its file is there: dask repeats what a lost worker had answered."""
    path = _part(Path(folder), number)
    if not path.exists():
        count = len(next(iter(rows.values())))
        table: dict[str, Any] = {"row": np.arange(first, first + count)} | dict(rows)
        for name, values in task(dict(rows)).items():
            if name in table:
                raise InputError(f"the task's result {name!r} has the name of an input")
            if len(values) != count:
                raise InputError(f"the task's result {name!r} has {len(values)} rows; it was given {count}")
            table[name] = values
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            _write(scratch, table)
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
    return number


@contextmanager
def _client(cluster: Any, workers: int) -> Iterator[Any]:
    distributed = _distributed()
    if isinstance(cluster, distributed.Client):
        yield cluster
    elif cluster is not None:
        try:
            client = distributed.Client(cluster, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            raise RigidgradError(f"there is no dask scheduler at {cluster!r}: {error}") from None
        with client:
            yield client
    else:
        with local(workers) as client:
            yield client


# --- the folder ---------------------------------------------------------------------------------------------------------------------------


def _begin(folder: Path, rows: dict[str, np.ndarray], count: int, chunk: int, name: str) -> Results:
    """The manifest is written, or must say the same."""
    digest = hashlib.sha256()
    for key in sorted(rows):
        array = np.ascontiguousarray(rows[key])
        digest.update(repr((key, array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    wanted = {"rows": count, "chunk": chunk, "task": name, "inputs": digest.hexdigest()}
    found = _manifest(folder)
    if found is None:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no results: name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MANIFEST).write_text(json.dumps(wanted, indent=1) + "\n")
    elif found != wanted:
        other = ", ".join(key for key in wanted if found.get(key) != wanted[key])
        raise InputError(f"{folder} was begun with other {other}: name another folder, or delete this one")
    return Results(folder, count, chunk)


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / _MANIFEST).read_text()))
    except FileNotFoundError:
        return None
    except ValueError:
        raise InputError(f"{folder / _MANIFEST} is damaged: name another folder") from None


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.parquet"


def _write(path: Path, table: dict[str, Any]) -> None:
    """Rows of arrays are lists of a fixed size; their shape is in the field's metadata."""
    import pyarrow as pa

    fields, columns = [], []
    for name, values in table.items():
        array = np.asarray(values)
        if array.ndim <= 1:
            column = pa.array(array if array.dtype.kind in "fiub" else [str(v) for v in values])
            fields.append(pa.field(name, column.type))
        else:
            column = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), math.prod(array.shape[1:]))
            fields.append(pa.field(name, column.type, metadata={"shape": json.dumps(array.shape[1:])}))
        columns.append(column)
    # numbers hardly repeat: looking for repetition would take most of the time
    words = [field.name for field in fields if field.type == "string"]
    _parquet().write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path, use_dictionary=words)


def _read(path: Path, name: str) -> np.ndarray:
    table = _parquet().read_table(path, columns=[name])
    metadata = table.schema.field(name).metadata or {}
    column = table.column(name).combine_chunks()
    if b"shape" in metadata:
        return np.asarray(column.flatten()).reshape(len(column), *json.loads(metadata[b"shape"]))
    return np.array(column.to_pylist()) if column.type == "string" else np.asarray(column)


# --- small things -------------------------------------------------------------------------------------------------------------------------


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


def _name_of(task: Any) -> str:
    return f"{getattr(task, '__module__', '')}.{getattr(task, '__qualname__', type(task).__qualname__)}"


def _bar(done: int, total: int) -> None:
    if sys.stderr.isatty():
        filled = 30 * done // total
        print(
            f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} chunks", end="\n" if done == total else "", file=sys.stderr, flush=True
        )


def _parquet() -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise RigidgradError("results are kept as Parquet files: pip install 'rigidgrad[cluster]'") from None
    return parquet


def _distributed() -> Any:
    try:
        from dask import distributed
    except ImportError:
        raise RigidgradError("sharing out needs dask: pip install 'rigidgrad[cluster]'") from None
    return distributed
