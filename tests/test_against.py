"""`bench/against.py`: two revisions side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IN_GIT = (
    shutil.which("git") is not None
    and subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode == 0
)
ONE_CELL = ("--parts", "dynamics", "--cells", "iiwa14 ID, N = 1", "--rounds", "3")

pytestmark = pytest.mark.skipif(not IN_GIT, reason="needs git and a repository")


def against(repository: Path, revision: str, file: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(repository / "bench" / "against.py"),
        revision,
        *ONE_CELL,
        "--json",
        str(file),
    ]
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=repository, env=environment, check=False
    )


def test_both_trees_are_measured_in_turns_and_compared_with_a_tree_against_itself(tmp_path):
    done = against(ROOT, "HEAD", tmp_path / "found.json")
    result = json.loads((tmp_path / "found.json").read_text())
    assert result["revision"] == "HEAD"
    (row,) = result["cells"]
    assert set(row["times"]) == {"this", "same", "that"}
    assert all(times["best"] > 0 and times["rounds"] == 3 for times in row["times"].values())
    assert row["spread"] >= 1
    assert row["holds"] == (
        min(row["against"]["ratio"], row["against"]["median"]) <= max(row["limit"], row["spread"])
    )
    assert done.returncode == (0 if row["holds"] else 1), done.stderr
    assert row["cell"] in done.stdout


def test_what_the_other_revision_lacks_is_skipped_and_said(tmp_path):
    """The other revision is this one, but its robots cannot compile functions."""
    repository = tmp_path / "repository"
    for name in ("src", "bench"):
        shutil.copytree(
            ROOT / name,
            repository / name,
            ignore=shutil.ignore_patterns("__pycache__", "build", "results"),
        )
    robot = repository / "src" / "rigidgrad" / "robot.py"
    present = robot.read_text()
    assert "    def compile(" in present
    robot.write_text(present.replace("    def compile(", "    def compile_under_another_name("))
    git = [
        "git",
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@localhost",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "without compile"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    robot.write_text(present)
    done = against(repository, "HEAD", tmp_path / "found.json")
    (row,) = json.loads((tmp_path / "found.json").read_text())["cells"]
    assert row["absent"] == "that" and row["holds"] is None
    assert "compile" in row["why"]
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout and "that tree cannot: AttributeError" in done.stdout


def test_an_unknown_revision_is_an_error_that_names_it(tmp_path):
    done = against(ROOT, "no-such-revision", tmp_path / "found.json")
    assert done.returncode != 0
    assert "no-such-revision" in done.stderr
