"""What README and docs show is what happens: their Python and console blocks run, in a folder with the files that the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))


def blocks(page: Path) -> str:
    """The page's Python blocks as one program; lines with a path or a text that only stands for one are left out."""
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    return "\n".join(line for block in found for line in block.splitlines() if "path/to" not in line and "<robot …" not in line)


def write_files(page: Path, folder: Path) -> None:
    """The files that a page shows: blocks with a title."""
    for name, text in re.findall(r'^```\w+ title="([^"/]+)"\n(.*?)^```', page.read_text(), re.S | re.M):
        (folder / name).write_text(text)


def commands(page: Path) -> list[str]:
    """What is typed in the page's console blocks, after the prompt."""
    found = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.S | re.M)
    return [line.removeprefix("$ ") for block in found for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    exec(compile(blocks(page), str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_what_a_page_types_works(page, tmp_path):
    write_files(page, tmp_path)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0 and done.stderr == "", f"$ {command}\n{done.stdout}{done.stderr}"


def test_commands_that_are_shown_without_running_them_exist():
    from rigidgrad.cli import parser

    shown = 0
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M):
            for line in block.splitlines():
                if line.startswith("rigidgrad "):
                    parser().parse_args(shlex.split(line.partition(" | ")[0], comments=True)[1:])
                    shown += 1
    assert shown >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run_and_are_short(example, tmp_path):
    assert len(example.read_text().splitlines()) <= 60
    subprocess.run([sys.executable, example], check=True, capture_output=True, timeout=300, cwd=tmp_path)
