"""Draws the README's picture, ratios to Pinocchio at N = 4096, from a result of dynamics.py:
`picture.py results.json picture.svg`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FUNCTIONS = {
    "rnea": "inverse dynamics",
    "aba": "forward dynamics",
    "rnea_derivatives": "gradient of inverse dynamics",
    "aba_derivatives": "gradient of forward dynamics",
}
COLORS = {"float64": "#2563eb", "float64 packed": "#60a5fa", "float32": "#f59e0b"}


def main(source: str, target: str) -> None:
    result = json.loads(Path(source).read_text())
    machine = result["machine"]
    Path(target).write_text(
        draw(
            bars(result),
            machine["date"][:10],
            f"{machine['cpu']} ({', '.join(machine['features'])})",
        )
    )


def bars(result: dict) -> list[tuple[str, str, dict[str, float]]]:
    """(robot, function, ratio by kind)."""
    rows = []
    ways = {
        "float64": "ours float64 out",
        "float64 packed": "ours float64 packed",
        "float32": "ours float32 out",
    }
    for cell in result["cells"]:
        if cell["count"] == 4096:
            times = {name: timing["best"] for name, timing in cell["times"].items()}
            peer = min(
                t
                for name, t in times.items()
                if name.startswith("pinocchio") and not name.endswith("python")
            )
            rows.append(
                (
                    cell["robot"],
                    cell["function"],
                    {kind: peer / times[way] for kind, way in ways.items() if way in times},
                )
            )
    return rows


def draw(rows: list[tuple[str, str, dict[str, float]]], date: str, cpu: str) -> str:
    left, top, height, wide = 250, 64, 11, 560
    most = max(x for _, _, ratios in rows for x in ratios.values())
    y, parts = top, []
    robot = ""
    for name, function, ratios in rows:
        if name != robot:
            y += 14
            parts.append(f'<text x="16" y="{y + 10}" class="robot">{name}</text>')
            robot = name
        parts.append(
            f'<text x="{left - 10}" y="{y + 10 + (len(ratios) - 1) * height / 2}"'
            f' text-anchor="end">{FUNCTIONS[function]}</text>'
        )
        for kind, ratio in ratios.items():
            length = wide * ratio / most
            parts.append(
                f'<rect x="{left}" y="{y + 1}" width="{length:.1f}" height="{height - 2}" rx="2"'
                f' fill="{COLORS[kind]}"/>'
            )
            parts.append(
                f'<text x="{left + length + 5:.1f}" y="{y + 9}" class="small">{ratio:.0f}x</text>'
            )
            y += height
        y += 7
    legend = "".join(
        f'<rect x="{left + 150 * k}" y="44" width="12" height="9" rx="2" fill="{c}"/><text'
        f' x="{left + 150 * k + 18}" y="52">{kind}</text>'
        for k, (kind, c) in enumerate(COLORS.items())
    )
    style = (
        "text{font:12px"
        " system-ui,sans-serif;fill:#475569}.robot{font-weight:600;fill:#0f172a}.small{font-size:10px}.title{font-size:15px;"
        "font-weight:600;fill:#0f172a}@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.robot,.title{fill:#f8fafc}}"
    )
    title = "Times faster than Pinocchio (C++, clang), one core, batches of 4096 states"
    foot = f"{cpu}, {date}; bench/dynamics.py"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {y + 30}" role="img"'
        f' aria-label="{title}"><style>{style}</style><text x="16" y="26"'
        f' class="title">{title}</text>{legend}{"".join(parts)}<text x="16" y="{y + 20}"'
        f' class="small">{foot}</text></svg>\n'
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
