"""Lynghus 2026: data-parallel rigid body dynamics of huge trees."""

from __future__ import annotations

import math
from collections.abc import Callable

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import Entry, Results, Row, Span, fact, number, statement

SEED = "Lynghus 2026"
HARDWARE = "NVIDIA A100 40GB PCIe; CPU code on an AMD EPYC 7413; Futhark 0.26, float64"
BRANCHINGS = (1.0, 1.01, 1.5, 2.0)
BECAUSE = "The same algorithms on this machine's cores, compiled by Numba and LLVM; the vector trees of the thesis run on a GPU there."


def _at(r: Results, figure: str, chosen: Callable[[dict], bool], value: Callable[[dict], float | None]) -> Span | None:
    """Least and largest of a quantity over the chosen rows of a figure."""
    return readings.span(value(row) for row in readings.rows(r, "trees", figure) if chosen(row))


def _fig_10(r: Results) -> list[Row]:
    def gain(name: str, chosen: Callable[[dict], bool]) -> Span | None:
        return _at(r, "figure_10", chosen, lambda row: row["speedup"].get(name))

    return [
        number(
            "compact data, RNEA by the plain loop, all sizes", (1.33, 1.9), gain("rnea sequential", lambda row: True), "x", better="higher"
        ),
        number(
            "RNEA by vector trees, up to 100,000 bodies",
            3.0,
            gain("rnea euler_tour", lambda row: row["bodies"] <= 100_000),
            "x",
            better="higher",
        ),
        number(
            "RNEA by vector trees, from 1,000,000",
            5.0,
            gain("rnea euler_tour", lambda row: row["bodies"] >= 1_000_000),
            "x",
            better="higher",
        ),
        number("CRBA", 1.5, gain("crba", lambda row: row["bodies"] >= 1_000), "x", better="higher"),
    ]


def _large(row: dict) -> bool:
    return row["bodies"] >= 100_000


def _fig_11(r: Results) -> list[Row]:
    def gain(name: str) -> Span | None:
        return _at(r, "figure_11", _large, lambda row: row["seconds"]["native"] / row["seconds"][name])

    return [
        number("blocked scan (64) against the native one, large trees", 2.5, gain("blocked"), "x", better="higher"),
        number("work-efficient scan, slightly faster", (1.0, 1.3), gain("work_efficient"), "x", better="higher"),
        number("simulated scan", 3.0, gain("simulated"), "x", better="higher"),
        fact("by levels, without inverses", gain("levels, no inverse"), "x"),
        fact("by heavy paths, without inverses", gain("heavy_path, no inverse"), "x"),
    ]


def _fig_12(r: Results) -> list[Row]:
    gain = _at(r, "figure_12", lambda row: True, lambda row: row["speedup"])
    return [number("a rootfix of vector addition against one of the recurrence", (6.0, 16.0), gain, "x", better="higher")]


def _time(r: Results, bodies: int, branching: float, method: str | None = None, figure: str = "figures_13_14") -> float | None:
    """ns a body on one core, by a method or by the one that is chosen by default."""
    row = readings.one(r, "trees", figure, bodies=bodies, branching=branching)
    return None if row is None else row["ns_per_body"].get(method or row["default"])


def _fig_13(r: Results) -> list[Row]:
    def slower(bodies: int, method: str | None) -> Span | None:
        chain = _time(r, bodies, 1.0, method)
        others = [_time(r, bodies, b, method) for b in (1.5, 2.0)]
        return None if chain is None else readings.span(None if t is None else 100 * (t / chain - 1) for t in others)

    return [
        number(
            "vector trees: branching 1.5 and 2 slower than a chain, 1,000,000 bodies",
            (28.0, 35.0),
            slower(1_000_000, "euler_tour"),
            "%",
            better="lower",
        ),
        fact("the same, 100,000 bodies", slower(100_000, "euler_tour"), "%"),
        fact("our default, 1,000,000 bodies", slower(1_000_000, None), "%"),
    ]


def _fig_14(r: Results) -> list[Row]:
    rows = [row for row in readings.rows(r, "trees", "figures_13_14", branching=1.0) if row["bodies"] >= 1_000_000]

    def best(row: dict) -> float:
        both = row["ns_per_body_two_threads"]
        return min(row["ns_per_body"][row["default"]], both.get(row["default"], math.inf))

    sequential = readings.span(row["ns_per_body"]["sequential"] for row in rows)
    ours = readings.span(best(row) for row in rows)
    gain = readings.span(row["ns_per_body"]["sequential"] / best(row) for row in rows)
    error = readings.span(row["error"].get(row["default"]) for row in rows)
    return [
        number("RNEA of a chain of 1 to 4 million bodies, plain loop", 184.0, sequential, "ns a body", better="lower"),
        number("data-parallel", 10.0, ours, "ns a body", better="lower"),
        number("data-parallel against the plain loop", (16.0, 18.0), gain, "x", better="higher"),
        fact("data-parallel here against the published plain loop", None if ours is None else (184 / ours[1], 184 / ours[0]), "x"),
        fact("error against long double, relative to the largest force", error),
    ]


def _crba(r: Results, bodies: int, branching: float, name: str = "crba") -> float | None:
    row = readings.one(r, "trees", "figures_15_16", bodies=bodies, branching=branching)
    return readings.part(row or {}, "seconds", name)


def _fig_15(r: Results) -> list[Row]:
    def gain(bodies: int) -> float | None:
        return readings.ratio(_crba(r, bodies, 1.0), _crba(r, bodies, 2.0))

    sizes = sorted({row["bodies"] for row in readings.rows(r, "trees", "figures_15_16")})
    return [
        number("CRBA of 40,000 bodies: branching 2 against a chain", 20.0, gain(40_000), "x", better="higher"),
        *(fact(f"the same, {n:,} bodies", gain(n), "x") for n in sizes if n != 40_000),
    ]


def _fig_16(r: Results) -> list[Row]:
    def gain(bodies: int, branching: float) -> float | None:
        return readings.ratio(_crba(r, bodies, branching, "dense"), _crba(r, bodies, branching))

    milliseconds = _crba(r, 40_000, 2.0)
    return [
        number("CRBA against the plain walk, chain of 1,000", 16.5, gain(1_000, 1.0), "x", better="higher"),
        number("chain of 40,000", 163.0, gain(40_000, 1.0), "x", better="higher"),
        number("40,000 bodies, branching 1.01", 160.0, gain(40_000, 1.01), "x", better="higher"),
        number(
            "40,000 bodies, branching 2: the CPU's plain walk there, ours here",
            850.0,
            None if milliseconds is None else 1e3 * milliseconds,
            "ms",
            better="lower",
        ),
        statement("the gain grows with the size of a chain", *_growing({n: gain(n, 1.0) for n in (100, 1_000, 5_000, 10_000)})),
    ]


def _growing(gains: dict[int, float | None]) -> tuple[bool | None, str]:
    known = {n: g for n, g in gains.items() if g is not None}
    if len(known) < 2:
        return None, ""
    first, last = known[min(known)], known[max(known)]
    return last > first, ", ".join(f"{n:,}: {g:.2g}x" for n, g in known.items())


# --- charts ------------------------------------------------------------------------------------------------------------------------------


def _chart(
    figure: str, title: str, up: str, values: Callable[[dict], dict[str, float]], chosen: Callable[[dict], bool] = lambda row: True
) -> Callable[[Results], list[str]]:
    """One line a name over the number of bodies, as a power of ten."""

    def drawn(r: Results) -> list[str]:
        series: dict[str, tuple[list[float], list[float]]] = {}
        for row in readings.rows(r, "trees", figure):
            if chosen(row):
                for name, value in values(row).items():
                    line = series.setdefault(name, ([], []))
                    line[0].append(math.log10(row["bodies"]))
                    line[1].append(value)
        return [charts.lines(title, "bodies, power of ten", up, series)] if series else []

    return drawn


def _by_branching(row: dict) -> dict[str, float]:
    return {f"branching {row['branching']:g}": row["ns_per_body"][row["default"]]}


def _crba_times(row: dict) -> dict[str, float]:
    return {f"{row['branching']:g}": 1e3 * row["seconds"]["crba"]} if "seconds" in row else {}


_SCANS = {"native": "native", "work_efficient": "efficient", "blocked": "blocked", "simulated": "simulated", "levels, no inverse": "levels"}

ENTRIES = (
    Entry(
        SEED,
        "Fig. 10",
        "What compact data structures save",
        HARDWARE,
        ("trees",),
        _fig_10,
        f"{BECAUSE} Dense and compact code both run from the same compiler; a call from Python weighs on trees of a hundred bodies.",
        _chart("figure_10", "Compact against dense", "times faster", lambda row: row["speedup"]),
    ),
    Entry(
        SEED,
        "Fig. 11",
        "Scans for rootfix",
        HARDWARE,
        ("trees",),
        _fig_11,
        f"{BECAUSE} One core gains nothing from a scan with more parallelism: only fewer operations and better use of the cache count.",
        _chart(
            "figure_11",
            "Rootfix of velocities, branching 2",
            "s",
            lambda row: {label: row["seconds"][name] for name, label in _SCANS.items()},
        ),
    ),
    Entry(
        SEED,
        "Fig. 12",
        "Recurrence against addition",
        HARDWARE,
        ("trees",),
        _fig_12,
        BECAUSE,
        _chart("figure_12", "Rootfix", "s", lambda row: row["seconds"]),
    ),
    Entry(
        SEED,
        "Fig. 13",
        "RNEA by branching factor",
        HARDWARE,
        ("trees",),
        _fig_13,
        f"{BECAUSE} Our default takes another method for chains than for bushy trees.",
        _chart("figures_13_14", "RNEA, our default, one core", "ns a body", _by_branching),
    ),
    Entry(
        SEED,
        "Fig. 14",
        "RNEA against the plain loop (claim: 18x)",
        HARDWARE,
        ("trees",),
        _fig_14,
        "An A100 there, two cores here, and the recursion is bound by memory. A faster plain loop makes the ratio to it smaller.",
        _chart(
            "figures_13_14", "RNEA of a chain, one core", "ns a body", lambda row: row["ns_per_body"], lambda row: row["branching"] == 1.0
        ),
    ),
    Entry(
        SEED,
        "Fig. 15",
        "CRBA by branching factor",
        HARDWARE,
        ("trees",),
        _fig_15,
        "Ours writes only the entries that are not zero, the thesis a whole N x N matrix: branching saves more.",
        _chart("figures_15_16", "CRBA, one core, by branching", "ms", _crba_times),
    ),
    Entry(
        SEED,
        "Fig. 16",
        "CRBA against the plain walk (claim: 163x)",
        HARDWARE,
        ("trees",),
        _fig_16,
        "Two ways of using one core are compared, an A100 against one there. The plain walk here is compiled code with 6x6 matrices.",
        _chart("figures_15_16", "CRBA, one core, by branching", "ms", _crba_times),
    ),
)
