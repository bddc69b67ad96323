"""Plancher 2022, chapter 4: parallel DDP and MPC."""

from __future__ import annotations

import math
from typing import Any

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import Entry, Results, Row, fact, number, statement
from rigidgrad.robot import load

SEED = "Plancher 2022"
LAPTOP = "Intel i7-7700HQ, 4 cores, 2.8 GHz; NVIDIA GTX 1060; float32"
DDP_BECAUSE = "One core with step sizes and blocks in SIMD lanes, float64; the dissertation had a thread a block on four cores, or a GPU. All step sizes are always simulated, as on its GPU."
START = tuple(math.pi * x for x in (-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5))
GOAL = tuple(math.pi * x for x in (0.0, 0.0, 0.0, -0.25, 0.0, 0.25, 0.5))


# --- parallel DDP ------------------------------------------------------------------------------------------------------------------------


def _failures(r: Results, experiment: str, few: bool) -> float | None:
    """Percent of the trials with up to four blocks, or with more, that failed."""
    rows = [row for m, row in readings.blocks(r, experiment).items() if (int(m) <= 4) == few]
    trials = sum(row["trials"] for row in rows)
    return 100 * sum(row["failed"] for row in rows) / trials if trials else None


def _ends(values: dict[int, Any]) -> tuple[Any, Any]:
    """The value of one block, and of the most."""
    return (values[min(values)], values[max(values)]) if values else (None, None)


def _fig_4_3(r: Results) -> list[Row]:
    needed = readings.per_block(r, "quadrotor", "iterations_to_1%")
    first, last = _ends(needed)
    slower = None if not needed or first is None else last is None or last > first
    depth = readings.per_block(r, "quadrotor", "line_search_depth", "median")
    said = ", ".join(f"M={m}: {'never' if n is None else f'{n:.0f}'}" for m, n in needed.items())
    return [
        statement("more blocks, slower convergence by iteration", slower, said and f"iterations to 1%: {said}"),
        number("trials that fail, M up to 4", 0.0, _failures(r, "quadrotor", True), "%", better="lower"),
        number("trials that fail, M from 8 (GPU 5%, CPU over 30%)", 5.0, _failures(r, "quadrotor", False), "%", better="lower"),
        number("depth of the line search, median, M = 1", (0.0, 1.0), depth.get(1), better="lower"),
        number("the same, M = 4 (GPU 3, CPU 5)", (3.0, 5.0), depth.get(4), better="lower"),
    ]


def _time_per_iteration(experiment: str, published: float) -> Any:
    def rows(r: Results) -> list[Row]:
        times = readings.per_block(r, experiment, "ms_per_iteration", "median")
        known = readings.span(times.values())
        return [
            number("an iteration, the slowest M", (0.0, published), known and known[1], "ms"),
            *(fact(f"M = {m}", ms, "ms") for m, ms in times.items()),
        ]

    return rows


def _parts_chart(experiment: str) -> Any:
    def drawn(r: Results) -> list[str]:
        parts = {m: row["parts_ms"] for m, row in readings.blocks(r, experiment).items()}
        return [charts.bars("Time of an iteration, median", "blocks M", "ms", parts)] if parts else []

    return drawn


def _cost_chart(experiment: str, by_time: bool) -> Any:
    def drawn(r: Results) -> list[str]:
        series = {}
        for m, row in readings.blocks(r, experiment).items():
            costs = row["cost"]["median"]
            last = next((k for k, c in enumerate(costs) if abs(c - costs[-1]) <= 1e-4 * abs(costs[-1])), len(costs) - 1) + 3
            step = row["ms_per_iteration"]["median"] if by_time else 1.0
            kept = costs[: last + 1]
            series[f"M={m}"] = ([k * step for k in range(len(kept))], kept)
        return [charts.lines("Cost, median", "ms" if by_time else "iterations", "cost", series)] if series else []

    return drawn


def _fig_4_5(r: Results) -> list[Row]:
    times = {m: ms for m, ms in readings.per_block(r, "quadrotor", "ms_to_1%").items() if ms is not None}
    best = min(times, key=lambda m: times[m]) if times else None
    said = ", ".join(f"M={m}: {ms:.2g} ms" for m, ms in times.items())
    return [
        statement("the quadrotor is solved soonest with one block on the CPU", None if best is None else best == 1, said),
        number("time of it until the cost is near its end", (0.0, 20.0), times.get(best) if best else None, "ms"),
    ]


def _fig_4_6(r: Results) -> list[Row]:
    failed = readings.per_block(r, "arm_text", "failed")
    cost = readings.part(readings.one(r, "parallel_ddp", "experiments", experiment="arm_text") or {}, "lowest")
    return [
        fact("start, rad", ", ".join(f"{x:.3g}" for x in START)),
        fact("goal, rad", ", ".join(f"{x:.3g}" for x in GOAL)),
        statement("the motion between them is found, M = 1", None if 1 not in failed else failed[1] == 0),
        fact("cost of it, weights of the text, explicit Euler", cost),
    ]


def _poses(_: Results) -> list[str]:
    """The arm from the side, its joints as corners."""
    robot = load("iiwa14")
    series = {}
    for label, q in (("start", START), ("goal", GOAL)):
        placements = robot.forward_kinematics(q)
        points = [placements[name][:3, 3] for name in robot.model.body_names]
        series[label] = ([0.0, *(float(p[0]) for p in points)], [0.0, *(float(p[2]) for p in points)])
    return [charts.lines("The arm from the side", "x, m", "z, m", series, log=False)]


def _fig_4_8(r: Results) -> list[Row]:
    times = {m: ms for m, ms in readings.per_block(r, "arm_text", "ms_to_1%").items() if ms is not None}
    best = min(times, key=lambda m: times[m]) if times else None
    said = ", ".join(f"M={m}: {ms:.3g} ms" for m, ms in times.items())
    return [
        statement("more than one block solves the arm sooner than one", None if best is None or 1 not in times else best > 1, said),
        number("time until the cost is near its end, best M", (0.0, 70.0), times.get(best) if best else None, "ms"),
    ]


# --- MPC ---------------------------------------------------------------------------------------------------------------------------------


def _fig_4_9(r: Results) -> list[Row]:
    found = readings.part(r, "claims", "figure_eight") or {}
    mean, plan = found.get("mean_mm"), found.get("plan_ms")
    return [
        statement(
            "the figure eight is followed, 10 ms a plan",
            None if mean is None else bool(found["settled_s"] is not None and mean < 50),
            "" if mean is None else f"{mean:.1f} mm off on average",
        ),
        number("an iteration of the solver, four blocks", 1.2, found.get("iteration_ms"), "ms", better="lower"),
        number("a whole plan: shifting, rolling out, solving; at most", (0.0, 10.0), plan, "ms"),
        fact("largest error", found.get("max_mm"), "mm"),
    ]


def _path_chart(r: Results) -> list[str]:
    found = readings.part(r, "claims", "figure_eight")
    if not found:
        return []
    series = {name: ([p[0] for p in found[name]], [p[1] for p in found[name]]) for name in ("goal", "path")}
    return [charts.lines("Figure eight", "y, m", "z, m", series, log=False)]


def _periods(r: Results, **wanted: Any) -> dict[float, float]:
    runs = readings.rows(r, "mpc", "figure", "runs", **wanted)
    return {row["period_ms"]: row["mean_mm"] for row in runs}


def _fig_4_11(r: Results) -> list[Row]:
    by_period = _periods(r, kind="gravity", model_error=0.1, observer=False)
    first, last = _ends(by_period)  # type: ignore[arg-type]
    worst = readings.span(
        row["mean_mm"] for row in readings.rows(r, "mpc", "figure", "runs", kind="period", model_error=0.0) if row["period_ms"] <= 10
    )
    said = ", ".join(f"{p:g} ms: {e:.1f} mm" for p, e in by_period.items())
    few = [row for row in readings.rows(r, "mpc", "figure", "runs", kind="period") if row["blocks"] > row["iterations"] > 0]
    failed = [row for row in few if row["settled_s"] is None]
    return [
        statement(
            "the error is larger at the longest control period than at the shortest (model error 10%, gravity)",
            None if first is None else last > first,
            said,
        ),
        statement(
            "many solvers follow well at short periods",
            None if worst is None else worst[1] < 50,
            "" if worst is None else f"{worst[0]:.1f} to {worst[1]:.1f} mm up to 10 ms",
        ),
        fact(
            "solvers with fewer iterations than blocks",
            f"{len(failed)} of {len(few)} runs did not settle" if few else None,
            published="begin to fail",
        ),
    ]


def _period_chart(r: Results) -> list[str]:
    series = {}
    for error in (0.0, 0.1, 0.3):
        line = _periods(r, kind="gravity", model_error=error, observer=False)
        if line:
            series[f"{100 * error:.0f}% model error"] = (list(line), list(line.values()))
    return [charts.lines("Tracking error with gravity", "control period, ms", "mean error, mm", series)] if series else []


ENTRIES = (
    Entry(
        SEED,
        "Fig. 4.3",
        "Quadrotor: cost by iteration",
        LAPTOP,
        ("parallel_ddp",),
        _fig_4_3,
        f"{DDP_BECAUSE} The first backward pass of a solve goes through all blocks, so that they lose little where few iterations are needed.",
        _cost_chart("quadrotor", False),
    ),
    Entry(
        SEED,
        "Fig. 4.4",
        "Quadrotor: time of an iteration",
        LAPTOP,
        ("parallel_ddp",),
        _time_per_iteration("quadrotor", 3.0),
        DDP_BECAUSE,
        _parts_chart("quadrotor"),
    ),
    Entry(SEED, "Fig. 4.5", "Quadrotor: cost by time", LAPTOP, ("parallel_ddp",), _fig_4_5, DDP_BECAUSE, _cost_chart("quadrotor", True)),
    Entry(SEED, "Fig. 4.6", "Arm: start and goal", "none: a picture", ("parallel_ddp",), _fig_4_6, "The published iiwa14.urdf.", _poses),
    Entry(
        SEED,
        "Fig. 4.7",
        "Arm: time of an iteration",
        LAPTOP,
        ("parallel_ddp",),
        _time_per_iteration("arm_text", 5.0),
        DDP_BECAUSE,
        _parts_chart("arm_text"),
    ),
    Entry(
        SEED,
        "Fig. 4.8",
        "Arm: cost by time",
        LAPTOP,
        ("parallel_ddp",),
        _fig_4_8,
        f"{DDP_BECAUSE} Lanes already take the step sizes of one block together, so that more blocks save little time and cost iterations.",
        _cost_chart("arm_text", True),
    ),
    Entry(
        SEED,
        "Fig. 4.9",
        "MPC: figure eight in simulation",
        LAPTOP,
        ("claims",),
        _fig_4_9,
        "MuJoCo at 1 kHz, weights of the text, goal previewed, five iterations a plan and one period of latency; the picture there has no numbers.",
        _path_chart,
    ),
    Entry(
        SEED,
        "Fig. 4.11",
        "MPC: tracking error by control period",
        "a physical iiwa; GTX 1060 and i7-7700HQ",
        ("mpc",),
        _fig_4_11,
        "Simulated in MuJoCo with a wrong model instead of a physical arm; the period is chosen, not what a solver needs. Few iterations do not make blocks fail here: the first"
        " backward pass of a solve goes through all blocks, and a roll-out ends it.",
        _period_chart,
    ),
)
