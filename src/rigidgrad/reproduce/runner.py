"""Runs the measurements, one after the other and each in a process of its own, and keeps what they
wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.reproduce.measurements import MEASUREMENTS, Measurement
from rigidgrad.runtime import native

PACKAGE = Path(__file__).resolve().parents[1]
_SHOWN = 1200  # characters of a failed script's output
# sources that no measurement runs through
_UNMEASURED = ("reproduce", "commands", "cli.py", "reports", "viewer", "play")

Say = Callable[[str, float], None]  # what is being done, and seconds of work that are done with


@dataclass
class Measured:
    """What the measurements left: results by name, how each came about, and how those that failed
    ended.
    """

    results: dict[str, Any] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)  # there was no time for them


def bench_folder(given: Path | None) -> Path:
    """Where the scripts are: as given, in the source tree that this package runs from, or in the
    one that the user is in.
    """
    places = [given] if given else [PACKAGE.parents[1] / "bench", Path("bench")]
    for place in places:
        if (place / "dynamics.py").is_file():
            return place.resolve()
    where = (
        f"{str(given)!r} has no dynamics.py"
        if given
        else "the installed package does not hold them"
    )
    raise InputError(
        f"the measurements are the scripts of rigidgrad's source tree, folder bench, and {where}."
        " Take the source tree (a clone of its repository, or the .tar.gz of a release), install"
        " it with `pip install -e '.[test]'`, and name its folder: rigidgrad reproduce --bench"
        " path/to/bench"
    )


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the results cannot be written to {str(out)!r}: {error.strerror}"
        ) from None


def stored(folder: Path, names: Iterable[str]) -> Measured:
    """Results that are there already, measured by whomever."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r} with results")
    found = Measured()
    for name in names:
        path = folder / f"{name}.json"
        if path.is_file():
            _read(found, name, path)
            found.how.setdefault(name, f"read from {path.name}")
        else:
            found.how[name] = f"there is no {path.name}"
    if not found.results and not found.troubles:
        raise InputError(
            f"{str(folder)!r} holds none of {', '.join(f'{name}.json' for name in names)}"
        )
    return found


def measure(
    names: Iterable[str],
    bench: Path,
    out: Path,
    fast: bool,
    say: Say = lambda note, done: None,
    minutes: float | None = None,
) -> Measured:
    """Runs what has not been run before with the same options, sources and machine; a script that
    fails does not stop the others. When the `minutes` are over, what has not ended is not measured.
    """
    make_folder(out)
    sources = digest(bench)
    found = Measured()
    end = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
    for name in names:
        _measure(MEASUREMENTS[name], bench, out, fast, sources, found, say, end)
        say(name, MEASUREMENTS[name].seconds)
    return found


def _measure(
    measurement: Measurement,
    bench: Path,
    out: Path,
    fast: bool,
    sources: str,
    found: Measured,
    say: Say,
    end: float,
) -> None:
    name = measurement.name
    options = measurement.options(fast, out)
    if options is None:
        found.how[name] = f"not measured: {' and '.join(measurement.missing())} not installed"
        return
    target, stamp = out / f"{name}.json", out / f"{name}.done"
    asked = {"options": list(options), "sources": sources, "machine": native.host().cpu}
    before = _stamp(stamp)
    if target.is_file() and {key: before.get(key) for key in asked} == asked:
        found.how[name] = f"measured before, in {before['seconds']:.0f} s"
        _read(found, name, target)
        return
    for old in (target, stamp):
        old.unlink(missing_ok=True)
    began = time.monotonic()
    trouble = None
    if began < end:
        trouble = _run(
            [sys.executable, str(bench / measurement.script), *options, "--json", str(target)],
            out / f"{name}.log",
            fast,
            lambda note: say(f"{name}, {note}", 0.0),
            end,
        )
    seconds = time.monotonic() - began
    if trouble is None:
        target.unlink(missing_ok=True)
        began_at = f"stopped after {seconds:.0f} s" if began < end else "not begun"
        found.unfinished[name] = f"{began_at}, as the time given by --minutes was over"
        found.how[name] = f"not measured: {found.unfinished[name]}"
        return
    if not trouble and not target.is_file():
        trouble = "it wrote no results"
    if trouble:
        found.troubles[name] = trouble
        found.how[name] = f"failed after {seconds:.0f} s"
        return
    stamp.write_text(json.dumps(asked | {"seconds": seconds}, indent=1) + "\n")
    found.how[name] = f"measured in {seconds:.0f} s"
    _read(found, name, target)


def _run(
    command: list[str], log: Path, fast: bool, say: Callable[[str], None], end: float
) -> str | None:
    """The end of what it said if it failed, nothing if it did not, None if it was stopped."""
    environment = os.environ | ({"RIGIDGRAD_BENCH_BUILD": "no"} if fast else {})
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while process.poll() is None:
                now = time.monotonic()
                if now > end:
                    return None
                say(f"{now - began:.0f} s")
                try:
                    process.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        code = process.returncode
        # a crash says nothing itself
        how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        return f"{log.read_text('utf-8', 'replace')[-_SHOWN:].strip()}\n{how}".strip()
    return ""


def digest(bench: Path) -> str:
    """A hash of the scripts and of all of the package that they measure."""
    own = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in _UNMEASURED]
    scripts = [p for p in (*bench.glob("*.py"), *(bench / "peers").glob("*")) if p.is_file()]
    total = hashlib.sha256()
    for root, paths in ((PACKAGE, own), (bench, scripts)):
        for path in sorted(paths):
            total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def _stamp(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(found: Measured, name: str, path: Path) -> None:
    try:
        found.results[name] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found.troubles[name] = f"{path.name} is no JSON: {error}"
        found.how[name] = "cannot be read"
