"""What README and docs show is what happens: their Python and console blocks run, in a folder with
the files that the page shows.
"""

from __future__ import annotations

import json
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
    """The page's Python blocks as one program; lines with a path or a text that only stands for one
    are left out.
    """
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    return "\n".join(
        line
        for block in found
        for line in block.splitlines()
        if "path/to" not in line and "<robot …" not in line
    )


def write_files(page: Path, folder: Path) -> None:
    """The files that a page shows: blocks with a title."""
    for name, text in re.findall(
        r'^```\w+ title="([^"/]+)"\n(.*?)^```', page.read_text(), re.S | re.M
    ):
        (folder / name).write_text(text)


def commands(page: Path) -> list[str]:
    """What is typed in the page's console blocks, after the prompt."""
    found = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.S | re.M)
    return [
        line.removeprefix("$ ")
        for block in found
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def shown_after(page: Path) -> dict[str, str]:
    """Of console blocks with a block of text right after them: the last command, and what the page
    says that it prints.
    """
    found = re.findall(
        r"^```console\n((?:(?!^```).)*)^```\n+```text\n(.*?)^```", page.read_text(), re.S | re.M
    )
    return {typed.splitlines()[-1].removeprefix("$ "): text for typed, text in found}


def rows(text: str) -> dict[str, str]:
    """Names and values of what a command prints."""
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines() if "  " in line)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    exec(compile(blocks(page), str(page), "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out.splitlines()
    for line in blocks(page).splitlines():  # a comment "→ …, → …" is what the line prints
        for said in line.split("→ ")[1:]:
            assert said.strip().removesuffix(",") in printed, said


def test_the_first_example_ends_at_rest_after_few_iterations():
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        names: dict = {}
        exec(compile(blocks(page), str(page), "exec"), names)
        solution = names["solution"]
        assert solution.converged and solution.iterations <= 30 and "Note" not in solution.message
        assert abs(solution.x[-1, 7:]).max() < 0.05  # rad/s
        assert solution.remaining["Reach 'iiwa_link_7'"].position < 1e-3


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_what_a_page_types_works(page, tmp_path):
    write_files(page, tmp_path)
    shown = shown_after(page)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert done.returncode == 0 and done.stderr == "", (
            f"$ {command}\n{done.stdout}{done.stderr}"
        )
        if rows(shown.get(command, "")):
            said, printed = rows(shown[command]), rows(done.stdout)
            assert list(said) == list(printed), command
            for name, text in said.items():  # "…" stands for what differs from machine to machine
                assert re.fullmatch(re.escape(text).replace("…", ".*"), printed[name]), (
                    f"{name}: {text}, but {printed[name]}"
                )


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
    assert len(example.read_text().splitlines()) <= 80
    subprocess.run(
        [sys.executable, example], check=True, capture_output=True, timeout=300, cwd=tmp_path
    )


def test_tables_are_what_the_measurements_say():
    path = ROOT / "tools" / "performance_tables.py"
    tables: dict = {"__name__": "tables", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), tables)
    for page in tables["PAGES"]:
        assert (
            tables["filled"](page.read_text(), "" if page.parent == ROOT else "../")
            == page.read_text()
        ), page.name
    # of the README's: no peer, by minimum or by median, is closer than the figure says
    result = json.loads((ROOT / "bench" / "results" / "dynamics.json").read_text())
    said = re.findall(
        r"\b([\d.]+)x \((?:Pinocchio|MuJoCo|CasADi)\)", (ROOT / "README.md").read_text()
    )
    cells = [cell["times"] for cell in result["cells"] if cell["count"] == 4096]
    assert len(said) == len(cells)
    for figure, times in zip(said, cells, strict=True):
        ours = times["ours float64 out"]
        peers = [
            t
            for name, t in times.items()
            if not name.startswith("ours") and not name.endswith("python")
        ]
        least = min(t[key] / ours[key] for t in peers for key in ("best", "median"))
        assert float(figure) <= least < float(figure) + 1


def test_badges_say_what_the_tree_says():
    path = ROOT / "tools" / "badges.py"
    badges: dict = {"__name__": "badges", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), badges)
    assert badges["render"]() == (ROOT / "docs" / "pictures" / "badges.svg").read_text()
