"""How many lines of code what was written several times took at 0.1, and takes now: the table of
docs/kernels.md, "What is written once".

    python tools/lines.py [REV]

REV is by default the commit whose changelog is the first to list 0.1.0 by itself. Both trees are
formatted by ruff as this one is; docstrings, comments and blank lines do not count. Of C, lines
that are not blank count.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
WALKS = [f"trees/{what}_{walk}.py" for what in ("rnea", "aba") for walk in ("levels", "heavy_path")]
MPC = "gate guard integral iterations live loop measured mpc mpc_log observer plan posture target"
HEADERS = "targets/gpu/code/solver"
# what, at 0.1, now: patterns under src/rigidgrad
SUBJECTS: list[tuple[str, list[str], list[str]]] = [
    ("joint types", [], ["model/joints/*.py"]),
    (
        "costs and constraints",
        ["control/costs.py", "control/limits.py"],
        ["control/costs.py", "control/limits.py", "control/terms/*.py"],
    ),
    (
        "MPC",
        [f"control/{x}.py" for x in (*MPC.split(), "tracking")],
        ["control/mpc/*.py"],
    ),
    (
        "loops over arrays",
        ["trees/compiled.py", "trees/traced.py", "trees/lanes.py"],
        ["targets/loops/*.py", "runtime/loops.py", "trees/lanes.py"],
    ),
    (
        "walks of trees",
        [*WALKS, "trees/*_sequential.py", "trees/heavy_paths.py", "trees/operations.py"],
        [
            *WALKS,
            "trees/*_sequential.py",
            "trees/heavy_paths.py",
            *(f"trees/{x}.py" for x in ("levels", "operators", "sequential")),
        ],
    ),
    (
        "what is compiled, and bound",
        ["runtime/lanes.py", "runtime/sweep.py", "runtime/groups.py"],
        [f"runtime/{x}.py" for x in ("bound", "code", "job", "lanes")],
    ),
    (
        "tails of gradients, large robots",
        [],
        [
            f"kernels/{x}.py"
            for x in (
                *("blocks", "bodies", "contact_gradient", "factor", "forward_gradient"),
                *("large_robots", "unit_weights"),
            )
        ],
    ),
    (
        "backward passes",
        [
            *("control/riccati.py", "control/linear/riccati.py", "runtime/riccati.py"),
            *("targets/llvm_riccati.py", "targets/riccati_layout.py"),
        ],
        [
            *("control/riccati.py", "control/linear/riccati.py", "runtime/riccati.py"),
            *("targets/llvm_riccati.py", "targets/riccati_layout.py", "kernels/riccati*.py"),
            "kernels/parallel_ddp.py",
        ],
    ),
    (
        "Schur complements",
        ["control/linear/schur.py", f"{HEADERS}_schur.h"],
        ["control/linear/schur.py", f"{HEADERS}_schur.h", "kernels/schur.py"],
    ),
    (
        "cyclic reduction",
        ["control/linear/reduction.py"],
        ["control/linear/reduction.py", "kernels/reduction.py"],
    ),
    (
        "conjugate gradients",
        ["control/linear/pcg.py", f"{HEADERS}_pcg.h"],
        ["control/linear/pcg.py", f"{HEADERS}_pcg*.h", "kernels/pcg.py"],
    ),
    ("policy of step sizes", [], ["kernels/search.py", "control/search.py"]),
    ("headers of solvers on devices", [f"{HEADERS}*.h"], [f"{HEADERS}*.h"]),
]


def first_release() -> str:
    """The commit that `git log -S` names."""
    command = ["git", "log", "--reverse", "--format=%h", "-S## 0.1.0", "--", "CHANGELOG.md"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if not found:
        raise SystemExit("no commit here lists 0.1.0 by itself: name one")
    return found.split()[0]


def tree(revision: str, folder: Path) -> Path:
    """The sources of a revision, formatted."""
    command = ["git", "archive", revision, "src/rigidgrad"]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    settings = ["--config", str(ROOT / "pyproject.toml")]
    subprocess.run(["ruff", "format", "-q", *settings, str(folder)], check=True)
    return folder / "src" / "rigidgrad"


def lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return sum(bool(line.strip()) for line in text.splitlines())
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    ignored = {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - told)


def count(root: Path, patterns: list[str]) -> int:
    """Of all files of the patterns, each of which must name one."""
    paths: set[Path] = set()
    for pattern in patterns:
        matching = set(root.glob(pattern))
        if not matching:
            raise SystemExit(f"{pattern} names no file of {root}")
        paths |= matching
    return sum(map(lines, paths))


def main(revision: str) -> None:
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after:
        old, new = tree(revision, Path(before)), tree("HEAD", Path(after))
        print("| what | lines at 0.1 | now |\n|---|---|---|")
        for what, was, is_now in SUBJECTS:
            at_first = f"{count(old, was):,}" if was else "in files of others"
            print(f"| {what} | {at_first} | {count(new, is_now):,} |")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else first_release())
