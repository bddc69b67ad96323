"""A folder of results: a manifest that says what they are of, and one Parquet file per chunk.

Each file appears under its name only when it is whole and on the disk. A part carries the run that
it belongs to, its rows' numbers and a checksum of each column, so that a damaged part, or one of
another place or another folder, is noticed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError

MANIFEST = "manifest.json"
_FORMAT = 2  # of the folder: parts with checksums
_UNFINISHED = ".unfinished-"  # what names of files that are being written begin with


@dataclass(frozen=True)
class Results:
    """What a folder holds. `results["cost"]` is an array over all rows, in their order; unfinished
    rows make it an error, and so do damaged or misplaced files.
    """

    folder: Path
    """Where files are."""
    rows: int
    """How many there are to be."""
    chunk: int
    """Rows of one file."""
    run: str  # a hash of the manifest, which every part carries
    """A hash of the manifest, which every part carries."""

    @property
    def chunks(self) -> int:
        """How many files there are to be."""
        return math.ceil(self.rows / self.chunk)

    @property
    def parts(self) -> list[Path]:
        """The finished chunks' files."""
        return [path for k in range(self.chunks) if (path := self.part(k)).exists()]

    def part(self, number: int) -> Path:
        """The file of a chunk, finished or not."""
        return self.folder / f"part-{number:06d}.parquet"

    @property
    def finished(self) -> bool:
        """Whether all files are there."""
        return len(self.parts) == self.chunks

    @property
    def columns(self) -> list[str]:
        """Names of what a row has."""
        parts = self.parts
        return (
            [name for name in _opened(parts[0]).schema_arrow.names if name != "row"]
            if parts
            else []
        )

    def __getitem__(self, name: str) -> np.ndarray:
        if not self.finished:
            raise RigidgradError(
                f"{self.folder} has {len(self.parts)} of {self.chunks} chunks: run the same call"
                " again, it computes what is missing"
            )
        if name not in self.columns:
            raise InputError(
                f"there is no column {name!r} in {self.folder}; there are {', '.join(self.columns)}"
            )
        return np.concatenate([self.read(k, [name])[name] for k in range(self.chunks)])

    def check(self) -> None:
        """Reads every part that is there; one that is damaged or in a wrong place is an error."""
        for k in range(self.chunks):
            if self.part(k).exists():
                self.read(k)

    def read(self, number: int, names: list[str] | None = None) -> dict[str, np.ndarray]:
        """Columns of one part, all unless named, after checking them."""
        path, first = self.part(number), number * self.chunk
        file = _opened(path)
        if (file.schema_arrow.metadata or {}).get(b"run") != self.run.encode():
            raise _damaged(path, "it belongs to another run")
        wanted = file.schema_arrow.names if names is None else ["row", *names]
        if missing := [name for name in wanted if name not in file.schema_arrow.names]:
            raise _damaged(path, f"it has no column {missing[0]!r}")
        try:
            table = file.read(columns=wanted)
            found = {name: _column(table, name) for name in wanted}
            sums = {
                name: (table.schema.field(name).metadata or {}).get(b"checksum", b"").decode()
                for name in wanted
            }
        except Exception as error:  # whatever pyarrow, NumPy and JSON make of damaged bytes
            raise _damaged(path, f"it cannot be read: {error}") from None
        for name, values in found.items():
            if _checksum(values) != sums[name]:
                raise _damaged(path, f"column {name!r} does not have its checksum")
        if not np.array_equal(found["row"], np.arange(first, min(first + self.chunk, self.rows))):
            raise _damaged(
                path, f"its rows are not {first} to {min(first + self.chunk, self.rows) - 1}"
            )
        return found

    def write(self, number: int, table: dict[str, Any]) -> None:
        """One part; rows of arrays are lists of a fixed size, their shape is in the field's
        metadata.
        """
        import pyarrow as pa

        fields, columns = [], []
        for name, values in table.items():
            array = np.asarray(values)
            metadata = {}
            if array.ndim <= 1 and array.dtype.kind in "fiub":
                column = pa.array(array)
            elif array.ndim <= 1:
                words = [str(v) for v in values]
                column, array = pa.array(words, pa.string()), np.array(words)
            else:
                column = pa.FixedSizeListArray.from_arrays(
                    pa.array(array.reshape(-1)), math.prod(array.shape[1:])
                )
                metadata["shape"] = json.dumps(array.shape[1:])
            fields.append(
                pa.field(name, column.type, metadata=metadata | {"checksum": _checksum(array)})
            )
            columns.append(column)
        # numbers hardly repeat: looking for repetition would take most of the time
        repeating = [field.name for field in fields if field.type == "string"]
        whole = pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata={"run": self.run}))
        path = self.part(number)
        _write_whole(
            path,
            lambda scratch: parquet().write_table(whole, scratch, use_dictionary=repeating),
            os.replace,
        )


def load(folder: str | Path) -> Results:
    """The results that a folder holds, finished or not."""
    manifest = _manifest(Path(folder))
    if manifest is None:
        raise InputError(f"{folder} holds no results: it has no {MANIFEST}")
    return _results(Path(folder), manifest)


def begin(folder: Path, rows: dict[str, np.ndarray], count: int, chunk: int, name: str) -> Results:
    """The manifest is written, or must say the same. Of two that begin at once one writes it, and
    the other finds it.
    """
    digest = hashlib.sha256()
    for key in sorted(rows):
        array = np.ascontiguousarray(rows[key])
        digest.update(repr((key, array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    wanted = {
        "format": _FORMAT,
        "rows": count,
        "chunk": chunk,
        "task": name,
        "inputs": digest.hexdigest(),
    }
    found = _manifest(folder)
    if (
        found is None
        and folder.is_dir()
        and any(not path.name.startswith(_UNFINISHED) for path in folder.iterdir())
    ):
        found = _manifest(folder)  # another call may have begun meanwhile
        if found is None:
            raise InputError(f"{folder} is not empty and holds no results: name another folder")
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(wanted, indent=1) + "\n"
        _write_whole(folder / MANIFEST, lambda scratch: scratch.write_text(text), _link)
        found = _manifest(folder)
    if found != wanted:
        other = ", ".join(key for key in wanted if found is None or found.get(key) != wanted[key])
        raise InputError(
            f"{folder} was begun with other {other}: name another folder, or delete this one"
        )
    return _results(folder, wanted)


def parquet() -> Any:
    try:
        import pyarrow.parquet as module
    except ImportError:
        raise RigidgradError(
            "results are kept as Parquet files: pip install 'rigidgrad[cluster]'"
        ) from None
    return module


def _results(folder: Path, manifest: dict[str, Any]) -> Results:
    run = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return Results(folder, manifest["rows"], manifest["chunk"], run)


def _manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is damaged: name another folder") from None
    if isinstance(found, dict) and "format" not in found and "inputs" in found:
        raise InputError(
            f"{folder} was written by an earlier version, without checksums: its Parquet files are"
            " readable by others; name another folder"
        )
    whole = isinstance(found, dict) and all(
        type(found.get(key)) is int and found[key] > 0 for key in ("format", "rows", "chunk")
    )
    if not whole or found["format"] != _FORMAT:
        raise InputError(f"{path} is damaged, or of another version: name another folder")
    return dict(found)


def _write_whole(
    path: Path, write: Callable[[Path], Any], place: Callable[[Path, Path], None]
) -> None:
    """The file is under its name when all of it is on the disk."""
    scratch = path.with_name(f"{_UNFINISHED}{path.name}.{uuid.uuid4().hex}")
    try:
        write(scratch)
        _sync(scratch)
        place(scratch, path)
        _sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _link(scratch: Path, path: Path) -> None:
    """To a name that is not taken: whoever is first wins."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            os.replace(scratch, path)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _opened(path: Path) -> Any:
    parquet()
    import pyarrow

    try:
        return parquet().ParquetFile(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise _damaged(path, f"it cannot be read: {error}") from None


def _column(table: Any, name: str) -> np.ndarray:
    metadata = table.schema.field(name).metadata or {}
    column = table.column(name).combine_chunks()
    if b"shape" in metadata:
        return np.asarray(column.flatten()).reshape(len(column), *json.loads(metadata[b"shape"]))
    return np.array(column.to_pylist()) if column.type == "string" else np.asarray(column)


def _checksum(array: np.ndarray) -> str:
    """Of the numbers or words, their type and their shape."""
    words = array.dtype.kind == "U"
    digest = hashlib.blake2b(
        repr(("words" if words else array.dtype.str, array.shape)).encode(), digest_size=16
    )
    digest.update(
        json.dumps(array.tolist()).encode() if words else np.ascontiguousarray(array).data
    )
    return digest.hexdigest()


def _damaged(path: Path, why: str) -> RigidgradError:
    return RigidgradError(
        f"{path} is damaged or misplaced: {why}. Delete it, and the call that made it computes it"
        " again"
    )
