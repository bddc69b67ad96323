"""Releases: version and changelog are changed in one place each, wrong ones are refused, and the
wheel that is built from the sdist holds all files and runs without the tree.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import rigidgrad as rg

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import release  # noqa: E402

DAY = datetime.date(2026, 2, 3)


def test_the_version_is_found_and_changed_where_it_is_written():
    for name, before, behind in release.PLACES:
        text = (ROOT / name).read_text()
        assert f"{before}{rg.__version__}{behind}" in text
        changed = release.numbered(text, before, behind, "9.8.7")
        assert f"{before}9.8.7{behind}" in changed
        assert release.numbered(changed, before, behind, rg.__version__) == text
    with pytest.raises(SystemExit, match="stands 0 times"):
        release.numbered("nothing", "version: ", "\n", "1.0.0")


def test_what_is_unreleased_in_the_changelog_gets_a_name_and_a_day():
    text = "# Changelog\n\n## Unreleased\n\n- More.\n\n## 0.1.0, 2025-01-01\n\n- Some.\n"
    changed = release.changed(text, "0.2.0", DAY)
    assert "## Unreleased\n\n## 0.2.0, 2026-02-03\n\n- More.\n\n## 0.1.0" in changed
    with pytest.raises(SystemExit, match="already"):
        release.changed(changed, "0.2.0", DAY)
    with pytest.raises(SystemExit, match="nothing under Unreleased"):
        release.changed(changed, "0.3.0", DAY)


def test_the_citation_has_the_day_of_its_version():
    text = (ROOT / "CITATION.cff").read_text()
    for _ in range(2):  # of a text with a day, too
        text = release.cited(text, DAY)
        assert text.count("date-released: ") == 1
        assert f"version: {rg.__version__}\ndate-released: 2026-02-03\n" in text


def test_the_locked_packages_are_those_that_are_asked_for():
    """`uv lock --check` in CI compares all of it; here that nobody forgot to lock again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {p["name"]: p for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    own = locked["rigidgrad"]["metadata"]

    def name(requirement: str) -> str:
        letters = requirement.replace("[", " ").replace(">", " ").replace("=", " ").split()[0]
        return letters.lower().replace("_", "-")

    asked = {(name(r), None) for r in project["dependencies"]}
    for extra, requirements in project["optional-dependencies"].items():
        asked |= {(name(r), extra) for r in requirements}
    found = {
        (r["name"], r["marker"].split("'")[1] if "extra ==" in r.get("marker", "") else None)
        for r in own["requires-dist"]
    }
    assert found == asked
    assert {n for n, _ in asked} <= locked.keys()
    assert set(own["provides-extras"]) == project["optional-dependencies"].keys()


def test_the_wheel_of_the_sdist_holds_all_files_and_runs_without_the_tree(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    try:
        archives = release.build(tmp_path / "dist")
    except SystemExit as error:
        if "No matching distribution" in str(error) or "Could not find a version" in str(error):
            pytest.skip("build and hatchling cannot be installed here")
        raise
    (wheel,) = (a for a in archives if a.suffix == ".whl")
    (sdist,) = (a for a in archives if a.suffixes[-2:] == [".tar", ".gz"])
    listed = subprocess.run(
        ["git", "ls-files", "src/rigidgrad"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    wanted = {path.removeprefix("src/") for path in listed if (ROOT / path).exists()}
    with zipfile.ZipFile(wheel) as packed:
        assert wanted <= set(packed.namelist())
        packed.extractall(tmp_path / "site")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "uv.lock", "tests/test_release.py"} <= names
    ran = subprocess.run(
        [sys.executable, "-c", "import rigidgrad as rg; print(rg.__file__, rg.load('hyq').nv)"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [str(tmp_path / "site/rigidgrad/__init__.py"), "12"]
