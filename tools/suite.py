"""How long the tests take from a fresh clone, how many there are, and what they cover: clones what
is committed, sets its environment up, and runs commands of the Makefile there.

    python tools/suite.py quick coverage --json bench/results/suite.json

`quick` and `test` are run twice: a second run finds the compiled code of the first. Of each run the
files and the tests that took most of the CPU are printed, children included; of a file of such
times, as `pytest --cpu-times FILE` writes it, alone:

    python tools/suite.py --times FILE
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import machine  # noqa: E402

RUNS = {"quick": 2, "test": 2, "coverage": 1}
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
_COVERED = re.compile(r"^TOTAL .* (\d+)%$", re.M)


def report(times: str, count: int = 25) -> dict[str, int]:
    """Prints where CPU time went, and gives the seconds of each file."""
    tests: dict[str, float] = defaultdict(float)
    for line in times.splitlines():
        seconds, name = line.split(" ", 1)
        tests[name] += float(seconds)
    files: dict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        files[name.partition("::")[0].removeprefix("tests/")] += seconds
    print(f"{sum(files.values()):.0f} s of CPU in {len(tests)} tests")
    for found in (files, tests):
        for name, seconds in sorted(found.items(), key=lambda x: -x[1])[:count]:
            print(f"{seconds:8.1f} s  {name}")
        print(flush=True)
    return {name: round(x) for name, x in sorted(files.items(), key=lambda x: -x[1])}


def run(command: str, clone: Path) -> dict[str, Any]:
    times = clone / "times.txt"
    times.unlink(missing_ok=True)
    environment = os.environ | {"PYTEST_ADDOPTS": f"--cpu-times={times}"}
    began = time.monotonic()
    done = subprocess.run(
        ["make", command], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    row: dict[str, Any] = {"seconds": round(time.monotonic() - began)}
    if times.exists():
        row["cpu"] = sum(report(times.read_text()).values())
    lines = done.stdout.strip().splitlines()
    last = next((line for line in reversed(lines) if _COUNTS.search(line)), "")
    row |= {word: int(count) for count, word in _COUNTS.findall(last)}
    if covered := _COVERED.search(done.stdout):
        row["covered"] = int(covered[1])
    if done.returncode:
        print(done.stdout[-5000:], done.stderr[-2000:], file=sys.stderr)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", help=", ".join(RUNS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--times", type=Path, help="a file of CPU times to report")
    arguments = parser.parse_args()
    if arguments.times:
        report(arguments.times.read_text())
        return 0
    if not arguments.commands or not RUNS.keys() >= set(arguments.commands):
        parser.error(f"name what to run: {', '.join(RUNS)}")
    rows: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        began = time.monotonic()
        subprocess.run(["make", ".venv/.test"], cwd=clone, check=True)
        installed = round(time.monotonic() - began)
        print(f"set up in {installed} s", flush=True)
        for command in arguments.commands:
            for _ in range(RUNS[command]):
                row = run(command, clone)
                print(f"make {command}: {row}", flush=True)
                rows.setdefault(command, []).append(row)
    if arguments.json:
        kept = json.loads(arguments.json.read_text())["rows"] if arguments.json.exists() else {}
        result = {"machine": machine.describe({}), "installed": installed, "rows": kept | rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row.get("failed") or not row.get("passed") for x in rows.values() for row in x))


if __name__ == "__main__":
    os.environ.pop("RIGIDGRAD_CACHE", None)
    sys.exit(main())
