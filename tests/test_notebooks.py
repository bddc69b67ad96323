"""Notebooks in docs/notebooks: what they show is what happens, cell by cell, and they are files
that Jupyter opens.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from browser import eventually, launched, missing, picture, share

import rigidgrad as rg
from rigidgrad.viewer import fragment

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebooks)

every = pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda p: p.stem)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_there_is_one_for_each_of_the_commonest_jobs():
    assert {p.stem for p in notebooks.NOTEBOOKS} == {"dynamics", "reaching", "motion", "mpc"}
    pages = (ROOT / "docs" / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for page in pages:
        assert all(f"notebooks/{p.stem}." in page for p in notebooks.NOTEBOOKS)


@every
def test_what_a_notebook_shows_is_what_its_cells_print(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = read(path)
    shown = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebooks.run(notebook, path.name) == shown  # else: python tools/notebooks.py


@every
def test_a_notebook_is_one_by_the_rules_of_its_format(path):
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(len(x) <= 64 for x in ids)
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
        assert all(len(line.rstrip("\n")) <= 100 for line in cell["source"])


@every
def test_links_of_a_notebook_lead_somewhere(path):
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown":
            for link in notebooks.links(notebooks.source(cell)):
                assert (path.parent / link).exists(), link


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_fragment_is_a_picture_in_a_cell():
    robot = rg.load("iiwa14")
    made = fragment(robot, height="300px")
    assert isinstance(made, str) and "iiwa14" in repr(made) and len(repr(made)) < 100
    with launched() as browser:
        page = browser.new_page(viewport={"width": 500, "height": 400})
        page.set_content(f"<body style='background: white'>{made._repr_html_()}</body>")
        inside = page.frames[-1]
        eventually(lambda: inside.locator("canvas").count() > 0, "the figure is there")
        box = page.locator("iframe").bounding_box()
        assert box["height"] == 300
        eventually(
            lambda: share(picture(page, clip=box), (237, 237, 240)) > 0.01, "the arm is drawn"
        )
        assert np.unique(picture(page, clip=box).reshape(-1, 3), axis=0).shape[0] > 100
