"""Pictures of `trees.py`'s figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from rigidgrad import charts

ACROSS = "bodies, as a power of ten"


def line(rows: list[dict], value: Callable[[dict], float]) -> tuple[list[float], list[float]]:
    return [math.log10(r["bodies"]) for r in rows], [value(r) for r in rows]


def by_branching(
    rows: list[dict], value: Callable[[dict], float]
) -> dict[str, tuple[list[float], list[float]]]:
    return {
        f"{b:g}": line([r for r in rows if r["branching"] == b], value)
        for b in sorted({r["branching"] for r in rows})
    }


def draw(result: dict, folder: Path) -> None:
    drawn = []
    rows = result.get("figures_13_14", [])
    if rows:
        wide = [r for r in rows if r["branching"] == 2.0]
        series = by_branching(rows, lambda r: r["ns_per_body"][r["default"]])
        series["2, plain loop"] = line(wide, lambda r: r["ns_per_body"]["sequential"])
        drawn.append(
            charts.lines("Inverse dynamics by branching, one core", ACROSS, "ns a body", series)
        )
        methods = ("levels", "heavy_path", "euler_tour")
        errors = {
            m: line([r for r in wide if m in r["error"]], lambda r, m=m: r["error"][m])
            for m in methods
        }
        drawn.append(
            charts.lines(
                "Error against long double, branching 2", ACROSS, "largest, relative", errors
            )
        )
    rows = [r for r in result.get("figures_15_16", []) if "seconds" in r]
    if rows:
        drawn.append(
            charts.lines(
                "Mass matrix by branching, packed",
                ACROSS,
                "ms",
                by_branching(rows, lambda r: 1e3 * r["seconds"]["crba"]),
            )
        )
    if drawn:
        info = result["machine"]
        folder.mkdir(parents=True, exist_ok=True)
        foot = f"{info['cpu']}, one core, float64, {info['date'][:10]}; bench/trees.py"
        (folder / "trees.svg").write_text(
            charts.page("Huge trees", drawn, foot, columns=len(drawn))
        )
