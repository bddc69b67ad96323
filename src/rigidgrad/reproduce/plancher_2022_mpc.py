"""Plancher 2022, sections 4.4 and 4.5: MPC, and other ways to make steps descend."""

from __future__ import annotations

import math
from typing import Any

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import Entry, Results, Row, fact, number, statement, trend
from rigidgrad.reproduce.plancher_2022_control import LAPTOP, SEED, said_by


def _fig_4_9(r: Results) -> list[Row]:
    found = readings.part(r, "claims", "figure_eight") or {}
    ways = {
        "without gravity": found,
        "with gravity": found.get("gravity", {}),
        "as written, without gravity": found.get("stale", {}),
        "as written, with gravity": found.get("stale, gravity", {}),
    }
    rows = []
    for way, run in ways.items():
        mean = run.get("mean_mm")
        rows.append(
            statement(
                f"the figure eight is followed, {way}",
                None if mean is None else bool(run["settled_s"] is not None and mean < 50),
                ""
                if mean is None
                else f"{mean:.1f} mm off on average, {run['max_mm']:.1f} at most",
            )
        )
    start, step = found.get("initialisation_ms"), found.get("iteration_ms")
    return [
        *rows,
        number(
            "initialisation of a plan (shifting, rolling out) against an iteration",
            1.4 / 1.2,
            readings.ratio(start, step),
            "x",
            better="lower",
        ),
        fact("initialisation of a plan", start, "ms", "almost 1.4 ms"),
        fact("an iteration of the solver, four blocks", step, "ms", "about 1.2 ms"),
        fact("a whole plan", found.get("plan_ms"), "ms", "10 ms at most"),
    ]


def _path_chart(r: Results) -> list[str]:
    found = readings.part(r, "claims", "figure_eight")
    if not found:
        return []
    series = {"goal": ([p[0] for p in found["goal"]], [p[1] for p in found["goal"]])}
    for name, run in (("path", found), ("gravity", found.get("gravity"))):
        if run:
            series[name] = ([p[0] for p in run["path"]], [p[1] for p in run["path"]])
    return [charts.lines("Figure eight", "y, m", "z, m", series, log=False)]


def _ends(values: dict[int, Any]) -> tuple[Any, Any]:
    """The value of one block, and of the most."""
    return (values[min(values)], values[max(values)]) if values else (None, None)


def _periods(r: Results, **wanted: Any) -> dict[float, float]:
    runs = readings.rows(r, "mpc", "figure", "runs", **wanted)
    return {row["period_ms"]: row["mean_mm"] for row in runs}


def _fig_4_11(r: Results) -> list[Row]:
    by_period = _periods(r, kind="gravity", model_error=0.1, observer=False)
    first, last = _ends(by_period)  # type: ignore[arg-type]
    worst = readings.span(
        row["mean_mm"]
        for row in readings.rows(r, "mpc", "figure", "runs", kind="period", model_error=0.0)
        if row["period_ms"] <= 10
    )
    said = ", ".join(f"{p:g} ms: {e:.1f} mm" for p, e in by_period.items())
    return [
        statement(
            "the error is larger at the longest control period than at the shortest (model error"
            " 10%, gravity)",
            None if first is None else last > first,
            said,
        ),
        statement(
            "many solvers follow well at short periods",
            None if worst is None else worst[1] < 50,
            "" if worst is None else f"{worst[0]:.1f} to {worst[1]:.1f} mm up to 10 ms",
        ),
        *_by_blocks(r),
    ]


ALONE = "blocks with no cost-to-go but their own"
FIRST = {
    "stale": "with the cost-to-go of the plan before",
    "fresh": "first pass through all blocks",
}


def _errors(r: Results, first_pass: str, iterations: int) -> dict[int, float | None]:
    """Mean error by M, mm; None where the arm was lost."""
    runs = readings.rows(r, "mpc", "blocks", "runs", first_pass=first_pass, iterations=iterations)
    return {run["blocks"]: run["mean_mm"] for run in runs}


def _by_blocks(r: Results) -> list[Row]:
    rows = []
    counts = sorted({run["iterations"] for run in readings.rows(r, "mpc", "blocks", "runs")})
    for count in counts or (1,):
        each = f"{count} iteration{'s' if count > 1 else ''} a plan"
        what = f"the more blocks, the worse it follows: {each}, {ALONE}"
        rows.append(trend(what, _errors(r, "alone", count), up=True, unit="mm"))
        for first in ("stale", "fresh"):
            said = said_by(_errors(r, first, count), " mm") or None
            rows.append(fact(f"{each}, {FIRST[first]}", said))
    return rows


def _blocks_chart(r: Results) -> list[str]:
    series = {}
    for first in ("alone", "stale", "fresh"):
        for count in (1, 5):
            known = {m: e for m, e in _errors(r, first, count).items() if e is not None}
            if known:
                points = ([math.log2(m) for m in known], list(known.values()))
                series[f"{first}, {count} it."] = points
    return (
        [charts.lines("Tracking error by blocks", "M, power of two", "mean error, mm", series)]
        if series
        else []
    )


def _globalization(r: Results) -> list[Row]:
    rows = readings.rows(r, "globalization", "rows")
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    ways = {"line_search": "a line search", "trust_region": "a trust region", "admm": "ADMM"}
    costs = {(row["problem"], row["way"]): row["cost"] for row in rows}
    found = []
    for way in ("trust_region", "admm"):
        off = {p: costs[p, way] / costs[p, "line_search"] - 1 for p in problems}
        worst = max(off, key=lambda p: off[p], default=None)
        found.append(
            fact(
                f"cost by {ways[way]} above a line search's, at most",
                None if worst is None else f"{100 * off[worst]:.2g}% ({worst})",
            )
        )
    texts = [
        fact(
            f"{row['problem']}: {ways[row['way']]}",
            f"{row['status']}, {row['iterations']} iterations, {row['lq_problems']} LQ problems,"
            f" cost {row['cost']:.7g}",
        )
        for row in rows
    ]
    return [
        *found,
        *texts,
    ]


def _period_chart(r: Results) -> list[str]:
    series = {}
    for error in (0.0, 0.1, 0.3):
        line = _periods(r, kind="gravity", model_error=error, observer=False)
        if line:
            series[f"{100 * error:.0f}% model error"] = (list(line), list(line.values()))
    drawn = _blocks_chart(r)
    if series:
        title = "Tracking error with gravity"
        drawn.insert(0, charts.lines(title, "control period, ms", "mean error, mm", series))
    return drawn


ENTRIES = (
    Entry(
        SEED,
        "Fig. 4.9",
        "MPC: figure eight in simulation",
        LAPTOP,
        ("claims",),
        _fig_4_9,
        "MuJoCo at 1 kHz, weights of the text, goal previewed, five iterations a plan and one"
        " period of latency; the picture there has no numbers. Followed means: on average within"
        " the 0.05 m at which the text lets the goal go.",
        "section 4.4.1",
        _path_chart,
    ),
    Entry(
        SEED,
        "Fig. 4.11",
        "MPC: tracking error by control period",
        "a physical iiwa; GTX 1060 and i7-7700HQ",
        ("mpc",),
        _fig_4_11,
        "Simulated in MuJoCo with a wrong model instead of a physical arm; the period is chosen,"
        " not what a solver needs. By blocks: a plan every 10 ms, without model error. What is"
        " published comes back where a plan's blocks begin with no cost-to-go but their own; with"
        " that of the plan before, a few iterations do for many blocks.",
        "section 4.4.2",
        _period_chart,
    ),
    Entry(
        SEED,
        "Claim: other ways to descend",
        "ADMM and trust regions, named as next",
        "none: future work",
        ("globalization",),
        _globalization,
        "rg.Direct(globalization=…) on a CPU; counts, no times.",
        "section 4.5",
    ),
)
