"""What users read: a cause and a cure for every error, in words that the pages explain."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import rigidgrad
import rigidgrad as rg
from rigidgrad.errors import RigidgradError

DOCS = Path(__file__).parents[1] / "docs"


def exceptions() -> dict[str, type]:
    """All that users can catch: subclasses of our error, and our warnings."""
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(rigidgrad.__path__, "rigidgrad."):
        text = Path(importlib.util.find_spec(module.name).origin).read_text(encoding="utf-8")
        if not re.search(r"^class \w+\(.*(Error|Warning|Unreadable)", text, re.M):
            continue
        for name, member in inspect.getmembers(
            importlib.import_module(module.name), inspect.isclass
        ):
            ours = issubclass(member, RigidgradError) or (
                issubclass(member, Warning) and member.__module__.startswith("rigidgrad")
            )
            if ours and not name.startswith("_"):
                found[name] = member
    return found


def test_every_error_has_its_place_on_the_page_of_errors():
    headings = set(re.findall(r"^## (\w+)$", (DOCS / "errors.md").read_text(), re.M))
    assert set(exceptions()) == headings
    assert {"ModelError", "TooLargeError", "AccuracyWarning"} <= headings


def heavy_on_top() -> str:
    bodies = (
        '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0"'
        ' izz="9"/></inertial>'
    )
    joint = '<joint name="j" type="revolute"><parent link="a"/><child link="b"/></joint>'
    return f'<robot name="r"><link name="a"/><link name="b">{bodies}</link>{joint}</robot>'


def arm():
    return rg.load("pendulum")


# what the page quotes, and what brings that message about
QUOTED = {
    ("ModelError", "has an impossible inertia"): lambda: rg.load(heavy_on_top(), strict=True),
    ("ModelError", "both robots have a"): lambda: arm().attach(arm(), arm().frames[-1], np.eye(4)),
    ("ModelError", "there already is a frame of that name"): (
        lambda: arm().add_frame(arm().frames[-1], arm().frames[-1], np.eye(4))
    ),
    ("UrdfError", "not well-formed XML"): lambda: rg.load("<robot name='a'><link"),
    ("UrdfError", "<joint> has no <child>"): lambda: rg.load(
        "<robot name='a'><link name='b'/><joint name='j' type='fixed'><parent"
        " link='b'/></joint></robot>"
    ),
    ("UrdfError", "are nested more than 64 deep"): lambda: rg.load(
        "<robot>" + "<a>" * 70 + "</a>" * 70 + "</robot>"
    ),
    ("InputError", "has shape (4, 6); expected (…, 7)"): (
        lambda: rg.load("iiwa14").gravity_torque(np.zeros((4, 6)))
    ),
    ("InputError", "the batch axes do not broadcast"): (
        lambda: arm().bias(np.zeros((3, 1)), np.zeros((2, 1)))
    ),
    ("InputError", "is complex"): lambda: arm().gravity_torque(np.zeros(1, complex)),
}


@pytest.mark.parametrize(("name", "words"), QUOTED)
def test_messages_that_the_page_of_errors_quotes_are_those_that_come(name, words):
    with pytest.raises(exceptions()[name], match=re.escape(words)):
        QUOTED[name, words]()


def test_the_page_of_errors_quotes_no_other_messages():
    sections = (DOCS / "errors.md").read_text().split("\n## ")[1:]
    rows = [
        (s.splitlines()[0], row.split(" | ")[0][2:])
        for s in sections
        for row in s.splitlines()
        if row.startswith("| ")
    ]
    assert {row for row in rows if row[1] != "message says"} == set(QUOTED)


def test_the_glossary_is_in_order():
    words = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text(), re.M)[1:]
    words = [w for w in words if not w.startswith("-")]
    assert words == sorted(words, key=str.lower)


# --- columns --------------------------------------------------------------------------------------

ROOT = DOCS.parent
COLUMNS = 100


def long_lines_of_prose(text: str) -> list[int]:
    """Numbers of lines that are too long in Markdown: text, Python and shell. Tables, addresses,
    what a tool fills in and a command on a line of its own may be longer.
    """
    found, fence, filled = [], "", False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = "" if fence else line[3:].partition(" ")[0] or "text"
        filled = (filled or line.startswith("<!-- table")) and not line.startswith("<!-- end")
        free = (
            filled
            or "http" in line
            or line.lstrip().startswith("|")
            or re.fullmatch(r"\s*`[^`]+`[.,;:]?", line)
        )
        if len(line) > COLUMNS and not free and fence in ("", "python", "sh"):
            found.append(number)
    return found


def long_lines_of_python(text: str) -> list[int]:
    """Numbers of lines that are too long in Python: code, comments, docstrings. Other texts (pages,
    code of other languages, robots) may be longer, as may what the formatter is to leave alone.
    """
    long = {n for n, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS}
    if not long:
        return []
    tree = ast.parse(text)
    documents: set[int] = set()
    texts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documents |= set(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            texts |= set(range(node.lineno, node.end_lineno + 1))
    lines = text.splitlines()
    left = {n for n in long if "# type:" in lines[n - 1]}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr) and "fmt: skip" in lines[node.end_lineno - 1]:
            left |= set(range(node.lineno, node.end_lineno + 1))
    return sorted((long & documents) | (long - texts - left))


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "bench" / "README.md"]


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_no_line_of_a_page_is_longer_than_a_hundred_columns(page):
    assert long_lines_of_prose(page.read_text()) == []


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "tools", "examples"])
def test_no_line_of_code_is_longer_than_a_hundred_columns(folder):
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "build" not in path.parts  # what benchmarks install
        for number in long_lines_of_python(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_lines_that_are_too_long_are_found():
    assert long_lines_of_prose("a " * 51) == [1]
    assert long_lines_of_prose("| " + "a " * 51) == []
    assert long_lines_of_prose(f"```python\n{'a' * 101}\n```\n```text\n{'a' * 101}\n```") == [2]
    assert long_lines_of_python(f'x = 1\n"""{"a" * 101}"""\n') == [2]
    assert long_lines_of_python(f"x = 1  # {'a' * 101}\n") == [1]
    assert long_lines_of_python(f'x = "{"a" * 101}"\n') == []


# words that only this project knew, and what stands for them now
DIALECT = (
    r"\b(abreast|keep_to_touched|one a knot|one set a knot|a slider a joint|by twos|from cold|anew|"
    r"doze)\b"
)


def test_private_words_do_not_come_back():
    files = [*pages(), *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    found = [
        str(path)
        for path in files
        if path.name != "writing.md" and re.search(DIALECT, path.read_text(encoding="utf-8"))
    ]
    assert found == []
