"""Draws docs/pictures/program.svg: inverse dynamics of a double pendulum as rigidgrad runs it, one
column a step, by what depends on what.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import rigidgrad as rg
from rigidgrad.program.program import FUSED, LEAVES, Program, operands
from rigidgrad.runtime.formulation import program_of

COLORS = {
    "input": "#64748b",
    "sum": "#0d9488",
    "product": "#2563eb",
    "multiply-add": "#7c3aed",
    "other": "#d97706",
}
STEP, ROW, LEFT, TOP = 74, 24, 20, 76


def kind(operation: str) -> str:
    if operation in ("input", "add", "sub"):
        return "input" if operation == "input" else "sum"
    return "multiply-add" if operation in FUSED else "product" if operation == "mul" else "other"


def steps(program: Program) -> dict[int, int]:
    """The earliest step at which each value can be there; constants are left out."""
    at: dict[int, int] = {}
    for i, node in enumerate(program.nodes):
        if node[0] != "const":
            at[i] = (
                0
                if node[0] in LEAVES
                else 1 + max((at[j] for j in operands(node) if j in at), default=0)
            )
    return at


def draw(program: Program, title: str) -> str:
    at = steps(program)
    rows: dict[int, int] = {}
    place: dict[int, tuple[float, float]] = {}
    for i, column in at.items():
        row = rows[column] = rows.get(column, -1) + 1
        place[i] = (LEFT + STEP * column, TOP + ROW * row)
    lines, boxes = [], []
    for i, (x, y) in place.items():
        operation = program.nodes[i][0]
        for j in operands(program.nodes[i]):
            if j in place:
                a, b = place[j]
                lines.append(
                    f'<path d="M{a + 48:.0f} {b + 8:.0f}C{a + 62:.0f} {b + 8:.0f} {x - 14:.0f}'
                    f' {y + 8:.0f} {x:.0f} {y + 8:.0f}"/>'
                )
        name = str(program.nodes[i][1]) if operation == "input" else operation
        boxes.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="48" height="16" rx="4"'
            f' fill="{COLORS[kind(operation)]}"/><text x="{x + 24:.0f}" y="{y + 12:.0f}"'
            f' text-anchor="middle" class="op">{escape(name)}</text>'
        )
    legend = "".join(
        f'<rect x="{LEFT + 120 * k}" y="44" width="12" height="10" rx="3" fill="{color}"/><text'
        f' x="{LEFT + 18 + 120 * k}" y="53">{name}</text>'
        for k, (name, color) in enumerate(COLORS.items())
    )
    width, height = (
        2 * LEFT + max(STEP * max(at.values()) + 48, 9 * len(title)),
        TOP + ROW * (max(rows.values()) + 1) + 16,
    )
    style = (
        "text{font:11px"
        " system-ui,sans-serif;fill:#475569}.title{font-size:15px;font-weight:600;fill:#0f172a}.op{font-size:10px;fill:#fff}"
        "path{fill:none;stroke:#94a3b8;stroke-width:.7}@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.title{fill:#f8fafc}.op{fill:#fff}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
        f' aria-label="{escape(title)}"><style>{style}</style><text x="{LEFT}" y="26"'
        f' class="title">{escape(title)}</text>{legend}{"".join(lines)}{"".join(boxes)}</svg>\n'
    )


if __name__ == "__main__":
    program = program_of(rg.load("double_pendulum").model, "rnea")
    counts = program.counts()
    title = (
        f"rnea of double_pendulum: {counts['instructions']} operations, the longest chain"
        f" {counts['depth']}, at most {counts['live']} values alive"
    )
    Path(sys.argv[1]).write_text(draw(program, title))
