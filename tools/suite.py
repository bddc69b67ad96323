"""How long the tests take from a fresh clone, how many there are, and what they cover: clones what
is committed, sets its environment up, and runs commands of the Makefile there.

    python tools/suite.py quick coverage --json bench/results/suite.json

`quick` and `test` are run twice: a second run finds the compiled code of the first.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import machine  # noqa: E402

RUNS = {"quick": 2, "test": 2, "coverage": 1}
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
_COVERED = re.compile(r"^TOTAL .* (\d+)%$", re.M)


def run(command: str, clone: Path) -> dict[str, Any]:
    began = time.monotonic()
    done = subprocess.run(["make", command], cwd=clone, capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"seconds": round(time.monotonic() - began)}
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
    parser.add_argument("commands", nargs="+", choices=RUNS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
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
