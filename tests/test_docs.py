"""What README and docs show is what happens: their Python blocks run."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(page), str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run_and_are_short(example, tmp_path):
    assert len(example.read_text().splitlines()) <= 60
    subprocess.run([sys.executable, example], check=True, capture_output=True, timeout=300, cwd=tmp_path)
