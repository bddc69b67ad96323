"""Tracking error against control period, iterations, shooting blocks M, model error and latency:
Figure 4.11 of Plancher 2022, in simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from typing import Any

from dynamics import say
from mpc_cases import LAP, Course, Tracking, tracked

import rigidgrad as rg
from rigidgrad import charts
from rigidgrad.control.mpc.iterations import Iterations
from rigidgrad.plants import Faults

BLOCKS, ITERATIONS = (1, 2, 4, 8), (1, 2, 4)
PERIODS = (1, 2, 4, 8, 16, 32, 64)  # ms
MODEL_ERRORS = (0.0, 0.1, 0.3)
LATENCIES = (0, 2, 5, 10, 15, 20)  # ms
PERIOD = 4  # ms, where something else varies
BUDGET = 10  # ms: a plan's in section 4.4.1
MPC_BLOCKS, MPC_ITERATIONS = (1, 2, 4, 8, 16, 32), (1, 3, 5)
GRAVITY = 9.81
SHARE, QUICK_SHARE = 0.5, 0.25  # of a lap: in half a lap all heights, and by symmetry all places


def measure(quick: bool) -> dict[str, Any]:
    runs = list(cases(quick))
    found = []
    seconds = (QUICK_SHARE if quick else SHARE) * LAP
    for k, case in enumerate(runs):
        say(f"figure: run {k + 1} of {len(runs)}, {case}")
        found.append(case | run(**case, seconds=seconds))
    say("")
    return {"runs": found, "seconds_each": seconds, "differences": DIFFERENCES}


def by_blocks(quick: bool) -> dict[str, Any]:
    """Tracking error by shooting blocks M, a plan every 10 ms, where the first backward pass of a
    plan goes through all blocks (fresh), where blocks begin with the cost-to-go that the last plan
    ended with (stale), and where they begin with none but their own (alone).
    """
    found = []
    seconds = (QUICK_SHARE if quick else SHARE) * LAP
    counts = MPC_ITERATIONS[::2] if quick else MPC_ITERATIONS
    for first_pass, count, M in product(("alone", "stale", "fresh"), counts, MPC_BLOCKS):
        say(f"blocks: {first_pass}, {count} iterations, M = {M}")
        case = {"first_pass": first_pass, "iterations": count, "blocks": M}
        fields = {"model_error": 0.0, "period_ms": BUDGET, "latency_ms": BUDGET}
        found.append(case | run("blocks", **case, **fields, seconds=seconds))
    say("")
    return {"runs": found, "seconds_each": seconds, "period_ms": BUDGET}


@contextmanager
def forgetful() -> Iterator[None]:
    """No plan knows the cost-to-go of the one before."""
    kept = Iterations._roll_out

    def alone(self: Iterations, *last: Any) -> bool:
        self.run.backward.forget()
        return kept(self, *last)

    Iterations._roll_out = alone  # type: ignore[method-assign]
    try:
        yield
    finally:
        Iterations._roll_out = kept  # type: ignore[method-assign]


def cases(quick: bool) -> Iterator[dict[str, Any]]:
    blocks, iterations = (BLOCKS[:2], ITERATIONS[:1]) if quick else (BLOCKS, ITERATIONS)
    periods, latencies = (PERIODS[2::2], LATENCIES[::2]) if quick else (PERIODS, LATENCIES)
    for error, M, count, period in product(MODEL_ERRORS, blocks, iterations, periods):
        yield {
            "kind": "period",
            "model_error": error,
            "blocks": M,
            "iterations": count,
            "period_ms": period,
            "latency_ms": period,
        }
    for error, latency in product(MODEL_ERRORS, latencies):
        yield {
            "kind": "latency",
            "model_error": error,
            "blocks": 1,
            "iterations": 1,
            "period_ms": PERIOD,
            "latency_ms": latency,
        }
    for known, latency in product((True, False), latencies):
        yield {
            "kind": "age",
            "known": known,
            "model_error": 0.1,
            "blocks": 1,
            "iterations": 1,
            "period_ms": PERIOD,
            "latency_ms": latency,
        }
    for observer, error, period in product((False, True), MODEL_ERRORS, periods):
        fields = {
            "kind": "gravity",
            "model_error": error,
            "blocks": 1,
            "iterations": 1,
            "period_ms": period,
            "latency_ms": period,
        }
        yield fields | {"observer": observer}


def run(
    kind: str,
    model_error: float,
    blocks: int,
    iterations: int,
    period_ms: float,
    latency_ms: float,
    seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """In the kind "age" measurements are late, and the controller knows how late or not; in the
    others plans are. A loop that lets the arm run away has no error.
    """
    task = Tracking(mass_error=model_error, limits=True)
    if kind == "gravity":
        task = replace(task, gravity=GRAVITY)
    plant, course = task.plant(), Course()
    known, first_pass = more.get("known", True), more.get("first_pass", "fresh")
    if kind == "age":
        plant.faults = Faults(latency=1e-3 * latency_ms)
    mpc = rg.MPC(
        task.problem(),
        rg.PDDP(
            blocks=blocks,
            iterations=iterations,
            first_pass="fresh" if first_pass == "fresh" else "stale",
        ),
        period=1e-3 * period_ms,
        latency=0.0 if kind == "age" else 1e-3 * latency_ms,
        target=course,
        observer=more.get("observer", False),
    )
    try:
        with forgetful() if first_pass == "alone" else nullcontext():
            found = tracked(mpc, plant, course, seconds, known).summary()
    except rg.errors.RigidgradError as unstable:
        found = {"settled_s": None, "mean_mm": None, "max_mm": None, "lost": str(unstable)}
    return found | {"counts": {name: count for name, count in mpc.counts.items() if count}}


DIFFERENCES = (
    (
        "Simulated time on MuJoCo; the dissertation's was a physical arm. The period is chosen, not"
        " what a solver needs: bench/mpc.py --parts fastest has that."
    ),
    (
        "Weights mid, preview of the goal, torque limits; between plans u_k + K (x - x_k) at 1 kHz."
        " The dissertation's weights leave 20 mm whatever the solver does."
    ),
    (
        "With few iterations M blocks do not fail here: each solve's first backward pass hands the"
        " cost-to-go through all blocks, and each ends with a roll-out."
    ),
    (
        "Model error: all masses and inertias of the plant larger by this much. Without gravity"
        " that hardly matters at these speeds; so there is a panel with gravity."
    ),
)


# --- the picture ----------------------------------------------------------------------------------


def picture(result: dict[str, Any], info: dict[str, Any]) -> str:
    runs = result["runs"]

    def line(**wanted: Any) -> tuple[list[float], list[float]]:
        chosen = [
            r
            for r in runs
            if all(r.get(name) == value for name, value in wanted.items())
            and r["mean_mm"] is not None
        ]
        across = "latency_ms" if wanted["kind"] in ("latency", "age") else "period_ms"
        return [r[across] for r in chosen], [r["mean_mm"] for r in chosen]

    def has(**wanted: Any) -> bool:
        return any(all(r.get(name) == value for name, value in wanted.items()) for r in runs)

    up = "mean error, mm"
    drawn = []
    for error in MODEL_ERRORS:
        series = {
            f"M={M}, {count} it.": line(
                kind="period", model_error=error, blocks=M, iterations=count
            )
            for M, count in ((1, 1), (1, 4), (2, 1), (4, 1), (4, 4), (8, 4))
            if has(kind="period", blocks=M, iterations=count)
        }
        drawn.append(
            charts.lines(
                f"Model error {100 * error:.0f}%",
                "control period = latency, ms",
                up,
                series,
                log=False,
            )
        )
    series = {
        f"{100 * error:.0f}% model error": line(kind="latency", model_error=error)
        for error in MODEL_ERRORS
    }
    drawn.append(
        charts.lines(f"Late plans, period {PERIOD} ms", "latency, ms", up, series, log=False)
    )
    series = {
        label: line(kind="age", known=known)
        for label, known in (("brought forward", True), ("taken for new", False))
    }
    drawn.append(charts.lines("Late measurements, model error 10%", "their age, ms", up, series))
    series = {
        f"{100 * error:.0f}%{', observer' if observer else ''}": line(
            kind="gravity", model_error=error, observer=observer
        )
        for observer in (False, True)
        for error in MODEL_ERRORS
    }
    drawn.append(
        charts.lines("With gravity, by model error", "control period = latency, ms", up, series)
    )
    title = "Figure eight by MPC: tracking error"
    return charts.page(
        title, drawn, f"{info['cpu']}, {info['date'][:10]}; bench/mpc.py --parts figure", columns=3
    )


def table(result: dict[str, Any]) -> list[list[str]]:
    """Rows of (kind, model error, M, iterations, then the mean errors by period or latency)."""
    rows: dict[tuple, dict[float, float | None]] = {}
    for r in result["runs"]:
        across = r["latency_ms"] if r["kind"] in ("latency", "age") else r["period_ms"]
        more = {True: "known", False: "unknown"}.get(r.get("known"), "") + (
            " observer" if r.get("observer") else ""
        )
        key = (
            f"{r['kind']} {more}".strip(),
            f"{100 * r['model_error']:.0f}%",
            str(r["blocks"]),
            str(r["iterations"]),
        )
        rows.setdefault(key, {})[across] = r["mean_mm"]
    said = {
        key: [f"{at:g}: {'lost' if value is None else f'{value:.2f}'}" for at, value in row.items()]
        for key, row in rows.items()
    }
    return [[*key, "  ".join(each)] for key, each in said.items()]


def table_by_blocks(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows: dict[tuple[str, str], list[str]] = {}
    for r in result["runs"]:
        said = "lost" if r["mean_mm"] is None else f"{r['mean_mm']:.1f}"
        mark = "" if r["settled_s"] is not None else "!"
        rows.setdefault((r["first_pass"], str(r["iterations"])), []).append(said + mark)
    header = ["first pass", "iterations", *(f"M = {m}" for m in MPC_BLOCKS)]
    return header, [[*key, *each] for key, each in rows.items()]
