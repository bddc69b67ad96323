"""Plancher 2022, section 4.3: parallel DDP by the number of shooting blocks."""

from __future__ import annotations

import math
from typing import Any

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import (
    GPU,
    Entry,
    Results,
    Row,
    device,
    fact,
    number,
    statement,
    trend,
)
from rigidgrad.robot import load

SEED = "Plancher 2022"
LAPTOP = "Intel i7-7700HQ, 4 cores, 2.8 GHz; NVIDIA GTX 1060; float32"
DDP_BECAUSE = (
    "One core with step sizes and blocks in SIMD lanes, float64; the dissertation had a thread a"
    " block on four cores, or a GPU. All step sizes are always simulated, as on its GPU."
)
TIME_BECAUSE = (
    f"{DDP_BECAUSE} Each value is the least of several trials that run every M in turns. Curves"
    " are judged only if the machine's load was below the number of its cores when it began: where"
    " others use them, a second thread gains nothing."
)
START = tuple(math.pi * x for x in (-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5))
GOAL = tuple(math.pi * x for x in (0.0, 0.0, 0.0, -0.25, 0.0, 0.25, 0.5))


# --- parallel DDP ---------------------------------------------------------------------------------


NEAR = {"0.01": "1e-2", "0.001": "1e-3", "0.0001": "1e-4"}  # of the lowest cost


def _failures(r: Results, experiment: str, few: bool, stale: bool) -> float | None:
    """Percent of the trials with up to four blocks, or with more, that failed."""
    found = readings.blocks(r, experiment, stale)
    rows = [row for m, row in found.items() if (int(m) <= 4) == few]
    trials = sum(row["trials"] for row in rows)
    return 100 * sum(row["failed"] for row in rows) / trials if trials else None


def _failed(r: Results, experiment: str, stale: bool) -> str:
    found = readings.blocks(r, experiment, stale)
    return ", ".join(f"M={m}: {row['failed']} of {row['trials']}" for m, row in found.items())


def said_by(values: dict[int, Any], unit: str = "") -> str:
    """By M; a number that is not there is none that most trials came to."""
    return ", ".join(
        f"M={m}: {'never' if n is None else f'{n:.3g}{unit}'}" for m, n in values.items()
    )


def _reached(r: Results, experiment: str, quantity: str, stale: bool) -> dict[str, dict[int, Any]]:
    """By how near to the lowest cost, and by M."""
    if not any("reached" in row for row in readings.blocks(r, experiment, stale).values()):
        return {}
    return {
        near: readings.per_block(r, experiment, "reached", near, quantity, stale=stale)
        for near in NEAR
    }


def _fig_4_3(r: Results) -> list[Row]:
    depth = {
        m: readings.part(row, "line_search_depth", "median")
        for m, row in readings.blocks(r, "quadrotor", stale=True).items()
    }
    rows: list[Row] = []
    for stale in (True, False):
        how = "as written" if stale else "first pass through all blocks"
        curves = _reached(r, "quadrotor", "iterations", stale)
        for near, label in NEAR.items():
            values = curves.get(near, {})
            if stale:
                what = f"more blocks, more iterations to {label}, {how}"
                rows.append(trend(what, values, up=True))
            else:
                rows.append(fact(f"iterations to {label}, {how}", said_by(values) or None))
    return [
        *rows,
        number(
            "trials that fail, M up to 4, as written",
            0.0,
            _failures(r, "quadrotor", True, True),
            "%",
            better="lower",
        ),
        number(
            "trials that fail, M from 8, as written (CPU; on the GPU 5%)",
            (30.0, 100.0),
            _failures(r, "quadrotor", False, True),
            "%",
        ),
        fact("failures by M, as written", _failed(r, "quadrotor", True) or None),
        fact(
            "trials that fail, M from 8, first pass through all blocks",
            _failures(r, "quadrotor", False, False),
            "%",
        ),
        number(
            "depth of the line search, median, M = 1", (0.0, 1.0), depth.get("1"), better="lower"
        ),
        number(
            "the same, M = 4, as written (GPU 3, CPU 5)", (3.0, 5.0), depth.get("4"), better="lower"
        ),
    ]


def _least(r: Results, experiment: str, threads: int, phase: str = "") -> dict[int, float]:
    """Least time of a phase, or of an iteration, by M, on so many threads."""
    found = readings.one(r, "parallel_ddp", "threads", experiment=experiment)
    if found is None or str(threads) not in found["least_ms"]["1"]:
        return {}
    return {
        int(m): row[str(threads)][phase] if phase else sum(row[str(threads)].values())
        for m, row in found["least_ms"].items()
        if m.isdigit()
    }


def _time_per_iteration(experiment: str, published: float) -> Any:
    def rows(r: Results) -> list[Row]:
        found = readings.one(r, "parallel_ddp", "threads", experiment=experiment)
        threads = found["threads"] if found else 2
        idle = readings.idle(r, "parallel_ddp")
        back = _least(r, experiment, threads, "backward")
        few = {m: ms for m, ms in back.items() if m <= threads}
        one = _least(r, experiment, 1)
        ahead = _least(r, experiment, 1, "forward")
        shares = readings.per_block(r, experiment, "sweep_share")
        swept = {m: 100 * x for m, x in shares.items() if x and m > 1}
        pair = readings.mixed(r, experiment, "2/4")
        said = said_by(swept, "%")
        if experiment == "quadrotor":
            own = [
                trend(
                    "more blocks, slower forward simulation, M from 8, one thread",
                    {m: ms for m, ms in ahead.items() if m >= 8},
                    up=True,
                    unit="ms",
                    counts=idle,
                ),
                device("the consensus sweep's share, M = 2", 17.0, GPU, "%", said or "-"),
                device("the consensus sweep's share, M = 64", "almost a third", GPU),
            ]
        else:
            own = [
                trend(
                    f"an iteration takes less time, M up to the cores, {threads} threads",
                    {m: t for m, t in _least(r, experiment, threads).items() if m <= threads},
                    up=False,
                    unit="ms",
                    counts=idle,
                ),
                fact("forward simulation, one thread", said_by(ahead, " ms") or None),
            ]
        return [
            trend(
                f"the backward pass takes less time, M up to the cores, {threads} threads",
                few,
                up=False,
                unit="ms",
                counts=idle,
            ),
            fact(f"backward pass, {threads} threads", said_by(back, " ms") or None),
            *own,
            fact(
                "an iteration, one thread",
                said_by(one, " ms") or None,
                published=f"under {published:g} ms",
            ),
            *([fact("M_f = 2, M_b = 4", pair["ms_per_iteration"]["best"], "ms")] if pair else []),
            fact("the consensus sweep's share of an iteration here", said or None),
        ]

    return rows


def _parts_chart(experiment: str) -> Any:
    def drawn(r: Results) -> list[str]:
        parts = {m: row["parts_ms"] for m, row in readings.blocks(r, experiment).items()}
        return (
            [charts.bars("Time of an iteration, median", "blocks M", "ms", parts)] if parts else []
        )

    return drawn


def _cost_chart(experiment: str, by_time: bool) -> Any:
    def drawn(r: Results) -> list[str]:
        series = {}
        for m, row in readings.blocks(r, experiment).items():
            costs = row["cost"]["median"]
            last = (
                next(
                    (k for k, c in enumerate(costs) if abs(c - costs[-1]) <= 1e-4 * abs(costs[-1])),
                    len(costs) - 1,
                )
                + 3
            )
            step = row["ms_per_iteration"]["median"] if by_time else 1.0
            kept = costs[: last + 1]
            series[f"M={m}"] = ([k * step for k in range(len(kept))], kept)
        return (
            [charts.lines("Cost, median", "ms" if by_time else "iterations", "cost", series)]
            if series
            else []
        )

    return drawn


def _soonest(times: dict[int, Any]) -> int | None:
    known = {m: ms for m, ms in times.items() if ms is not None}
    return min(known, key=lambda m: known[m]) if known else None


def _fig_4_5(r: Results) -> list[Row]:
    curves = _reached(r, "quadrotor", "ms", True)
    rows = []
    for near, label in NEAR.items():
        best = _soonest(curves.get(near, {}))
        rows.append(
            statement(
                f"the quadrotor is solved soonest with one block on the CPU, to {label}",
                None if best is None else best == 1,
                said_by(curves.get(near, {}), " ms"),
            )
        )
    return rows


def _fig_4_6(r: Results) -> list[Row]:
    failed = readings.per_block(r, "arm_text", "failed")
    cost = readings.part(
        readings.one(r, "parallel_ddp", "experiments", experiment="arm_text") or {}, "lowest"
    )
    return [
        fact("start, rad", ", ".join(f"{x:.3g}" for x in START)),
        fact("goal, rad", ", ".join(f"{x:.3g}" for x in GOAL)),
        statement(
            "the motion between them is found, M = 1", None if 1 not in failed else failed[1] == 0
        ),
        fact("cost of it, weights of the text, explicit Euler", cost),
    ]


def _poses(_: Results) -> list[str]:
    """The arm from the side, its joints as corners."""
    robot = load("iiwa14")
    series = {}
    for label, q in (("start", START), ("goal", GOAL)):
        placements = robot.forward_kinematics(q)
        points = [placements[name][:3, 3] for name in robot.model.body_names]
        series[label] = (
            [0.0, *(float(p[0]) for p in points)],
            [0.0, *(float(p[2]) for p in points)],
        )
    return [charts.lines("The arm from the side", "x, m", "z, m", series, log=False)]


def _fig_4_8(r: Results) -> list[Row]:
    curves = _reached(r, "arm_text", "ms", True)
    rows = []
    for near, label in NEAR.items():
        times = curves.get(near, {})
        best = _soonest(times)
        rows.append(
            statement(
                f"on the CPU more than one block solves the arm sooner than one, to {label}",
                None if best is None or times.get(1) is None else best > 1,
                said_by(times, " ms"),
            )
        )
    for stale in (True, False):
        how = "as written" if stale else "first pass through all blocks"
        found = readings.blocks(r, "arm_text", stale)
        pair = readings.mixed(r, "arm_text", "2/4 stale" if stale else "2/4")
        for m, row in {**found, **({"2 forward, 4 backward": pair} if pair else {})}.items():
            taken = {near: row.get("reached", {}).get(near, {}).get("ms") for near in NEAR}
            sooner = ", ".join(
                f"to {NEAR[near]} {'never' if ms is None else f'{ms:.3g} ms'}"
                for near, ms in taken.items()
            )
            said = f"{row['failed']} of {row['trials']} fail; {sooner}"
            rows.append(fact(f"M = {m}, {how}", said))
    return rows


ENTRIES = (
    Entry(
        SEED,
        "Fig. 4.3",
        "Quadrotor: cost by iteration",
        LAPTOP,
        ("parallel_ddp",),
        _fig_4_3,
        f"{DDP_BECAUSE} As written: blocks begin with their own cost-to-go"
        ' (rg.PDDP(first_pass="stale")); by default the first backward pass of a solve goes through'
        " all blocks, so that they lose little where few iterations are needed. A trial fails that"
        " ends more than 10% above the lowest cost of any M; the text does not define it.",
        "section 4.3.1",
        _cost_chart("quadrotor", False),
    ),
    Entry(
        SEED,
        "Fig. 4.4",
        "Quadrotor: time of an iteration",
        LAPTOP,
        ("parallel_ddp",),
        _time_per_iteration("quadrotor", 3.0),
        TIME_BECAUSE,
        "section 4.3.1",
        _parts_chart("quadrotor"),
        "rg.solve(problem, rg.PDDP(blocks=M, device='cuda')) runs it there; time the call",
    ),
    Entry(
        SEED,
        "Fig. 4.5",
        "Quadrotor: cost by time",
        LAPTOP,
        ("parallel_ddp",),
        _fig_4_5,
        f"{DDP_BECAUSE} As written, and cost to three tolerances of the lowest one.",
        "section 4.3.1",
        _cost_chart("quadrotor", True),
    ),
    Entry(
        SEED,
        "Fig. 4.6",
        "Arm: start and goal",
        "none: a picture",
        ("parallel_ddp",),
        _fig_4_6,
        "The published iiwa14.urdf.",
        "section 4.3.2",
        _poses,
    ),
    Entry(
        SEED,
        "Fig. 4.7",
        "Arm: time of an iteration",
        LAPTOP,
        ("parallel_ddp",),
        _time_per_iteration("arm_text", 5.0),
        TIME_BECAUSE,
        "section 4.3.2",
        _parts_chart("arm_text"),
    ),
    Entry(
        SEED,
        "Fig. 4.8",
        "Arm: cost by time",
        LAPTOP,
        ("parallel_ddp",),
        _fig_4_8,
        f"{DDP_BECAUSE} Lanes already take the step sizes of one block together, so that more"
        " blocks save little time and cost iterations. Failures are trials that end more than 10%"
        " above the lowest cost of any M.",
        "section 4.3.2",
        _cost_chart("arm_text", True),
    ),
)
