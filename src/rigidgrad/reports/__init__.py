"""Reports: one HTML file that needs no network, with tables, charts, the motion to play back, and
all numbers attached as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from rigidgrad.reports import plots
from rigidgrad.reports.document import drawing, environment, page, side_by_side, table, write
from rigidgrad.reports.plots import Line, Plot
from rigidgrad.reports.sections import Section, is_table, section
from rigidgrad.robot import Robot

__all__ = ["drawing", "environment", "page", "report", "table", "write"]

_OPEN = 4  # charts of a comparison that are shown at once; more are behind a heading


def report(
    what: Any,
    path: str | os.PathLike[str] = "report.html",
    *,
    title: str = "rigidgrad",
    robot: Robot | None = None,
    problem: Any = None,
) -> Path:
    """Writes a page about a Solution, a Path of `plan`, a controller's Log or its Tracking, or
    several of them, {"heading": item}. Gives the path.

    Several runs, {"gentle": solution, "fast": another}, are compared first: a table, and charts
    with a line for each run. All their charts have the same scales.

    `rg.tracking(log, controller, after=…)` adds to a log the target's path, the tool's, and the
    distance between them. An item may also be a table, {"name": value}. `robot` is what moves,
    where an item does not know it; `problem`, a Problem or an MPC, has the obstacles and targets
    that are drawn around a Log, and the names of its controls. `title`: of the page.
    """
    items = what if isinstance(what, Mapping) and not is_table(what) else {"": what}
    made = {heading: section(item, robot, problem) for heading, item in items.items()}
    runs = {heading: s for heading, s in made.items() if s.compared}
    body = []
    if len(runs) > 1:
        scaled = iter(plots.together(p for s in runs.values() for p in s.plots))
        runs = {
            heading: replace(s, plots=tuple(next(scaled) for _ in s.plots))
            for heading, s in runs.items()
        }
        made |= runs
        body.append(f"<h2>{escape(', '.join(runs))}: compared</h2>{_comparison(runs)}")
    for heading, shown in made.items():
        body.append((f"<h2>{escape(heading)}</h2>" if heading else "") + _section(shown))
    attached = {heading or "report": s.data for heading, s in made.items()}
    return write(page(title, "".join(body), attached), path)


def _section(shown: Section) -> str:
    drawn = [part for p in plots.together(shown.plots) for part in plots.split(p)]
    return shown.picture + table(shown.facts) + plots.drawing(drawn)


def _comparison(runs: Mapping[str, Section]) -> str:
    """What the runs have in common, a line for each run: a chart for each number."""
    keys = dict.fromkeys(p.key for s in runs.values() for p in s.plots)
    single: list[Plot] = []
    several: dict[str, list[Plot]] = {}
    for key in keys:
        found = {run: p for run, s in runs.items() for p in s.plots if p.key == key}
        if len(found) < 2:
            continue
        names = dict.fromkeys(line.name for p in found.values() for line in p.lines)
        overlaid = [_overlaid(name, found, alone=len(names) == 1) for name in names]
        if len(overlaid) == 1:
            single += overlaid
        else:
            title, unit = key
            several[f"{title} [{unit}]" if unit else title] = overlaid
    shown = sum(len(drawn) for drawn in several.values()) <= _OPEN
    return (
        side_by_side({run: s.compared for run, s in runs.items()})
        + plots.drawing(single)
        + "".join(
            f"<details{' open' if shown else ''}><summary>{escape(title)}</summary>"
            f"{plots.drawing(drawn)}</details>"
            for title, drawn in several.items()
        )
    )


def _overlaid(name: str, found: Mapping[str, Plot], alone: bool) -> Plot:
    """The line of that name of each run."""
    lines = [
        Line(run, line.x, line.y, line.levels)
        for run, p in found.items()
        for line in p.lines
        if line.name == name
    ]
    first = next(iter(found.values()))
    return replace(first, title=first.title if alone else name, lines=tuple(lines))
