"""The row of badges on top of README, from what the tree says of itself: pyproject.toml, and
`bench/results/suite.json` (tools/suite.py).

    python tools/badges.py docs/pictures/badges.svg
"""

from __future__ import annotations

import json
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LETTER, _GAP, _HEIGHT = 6.6, 6, 20  # pixels


def facts() -> list[tuple[str, str]]:
    """What each badge says: a name and a value."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = [
        ("python", project["project"]["requires-python"].removeprefix(">=") + " or newer"),
        ("licence", project["project"]["license"]),
    ]
    if project["tool"]["mypy"]["strict"]:
        found.append(("types", "mypy --strict"))
    measured = ROOT / "bench" / "results" / "suite.json"
    if measured.exists():
        rows = [row for rows in json.loads(measured.read_text())["rows"].values() for row in rows]
        found.append(("tests", str(max(row["passed"] for row in rows))))
        if covered := [row["covered"] for row in rows if "covered" in row]:
            found.append(("coverage", f"{covered[-1]}%"))
    return found


def render() -> str:
    parts, x = [], 0.0
    for name, value in facts():
        left, right = (_LETTER * len(text) + 12 for text in (name, value))
        parts.append(
            f'<rect x="{x:.0f}" width="{left:.0f}" height="{_HEIGHT}" fill="#475569"/>'
            f'<rect x="{x + left:.0f}" width="{right:.0f}" height="{_HEIGHT}" fill="#2563eb"/>'
            f'<text x="{x + left / 2:.0f}" y="14">{escape(name)}</text>'
            f'<text x="{x + left + right / 2:.0f}" y="14">{escape(value)}</text>'
        )
        x += left + right + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - _GAP:.0f}" height="{_HEIGHT}">'
        "<style>text{font:11px system-ui,sans-serif;fill:#fff;text-anchor:middle}</style>"
        + "".join(parts)
        + "</svg>\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
