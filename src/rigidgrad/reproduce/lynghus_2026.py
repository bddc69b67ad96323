"""Lynghus 2026: data-parallel rigid body dynamics of huge trees."""

from __future__ import annotations

import math
from collections.abc import Callable

from rigidgrad import charts
from rigidgrad.reproduce import readings
from rigidgrad.reproduce.entry import (
    GPU,
    Entry,
    Reading,
    Results,
    Row,
    Span,
    device,
    fact,
    number,
    statement,
)

SEED = "Lynghus 2026"
HARDWARE = "NVIDIA A100 40GB PCIe; CPU code on an AMD EPYC 7413; Futhark 0.26, float64"
BRANCHINGS = (1.0, 1.01, 1.5, 2.0)
BECAUSE = (
    "The same algorithms on this machine's cores, compiled by Numba and LLVM; the vector trees of"
    " the thesis run on a GPU there."
)


def _at(
    r: Results,
    figure: str,
    chosen: Callable[[Reading], bool],
    value: Callable[[Reading], float | None],
) -> Span | None:
    """Least and largest of a quantity over the chosen rows of a figure."""
    return readings.span(value(row) for row in readings.rows(r, "trees", figure) if chosen(row))


def _fig_10(r: Results) -> list[Row]:
    def gain(name: str, chosen: Callable[[Reading], bool]) -> Span | None:
        return _at(r, "figure_10", chosen, lambda row: row["speedup"].get(name))

    return [
        number(
            "compact data, RNEA by the plain loop, all sizes",
            (1.33, 1.9),
            gain("rnea sequential", lambda row: True),
            "x",
            better="higher",
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


def _large(row: Reading) -> bool:
    return bool(row["bodies"] >= 100_000)


def _fig_11(r: Results) -> list[Row]:
    def gain(name: str) -> Span | None:
        return _at(
            r, "figure_11", _large, lambda row: row["seconds"]["native"] / row["seconds"][name]
        )

    return [
        number(
            "blocked scan (64) against the native one, large trees",
            2.5,
            gain("blocked"),
            "x",
            better="higher",
        ),
        number(
            "work-efficient scan, slightly faster",
            (1.0, 1.3),
            gain("work_efficient"),
            "x",
            better="higher",
        ),
        number("simulated scan", 3.0, gain("simulated"), "x", better="higher"),
        fact("by levels, without inverses", gain("levels, no inverse"), "x"),
        fact("by heavy paths, without inverses", gain("heavy_path, no inverse"), "x"),
        *_threads(r),
        *_blocks(r),
    ]


def _threads(r: Results) -> list[Row]:
    """What a second thread gives: by the CPU time of the thread with the most, as the wall clock
    tells of the machine's other work.
    """
    return [
        fact(
            f"{row['what']}, {row['bodies']:,} bodies: two threads against one",
            f"{row['speedup']['longest_thread']:.2f}x (wall {row['speedup']['wall']:.2f}x)",
        )
        for row in readings.rows(r, "trees_work", "scan_times")
    ]


def _blocks(r: Results) -> list[Row]:
    rows = readings.rows(r, "trees_work", "blocks")
    said = {
        n: ", ".join(
            f"{row['block']}: {1e3 * row['cpu_seconds_of_longest_thread']['1']:.3g} ms"
            for row in rows
            if row["bodies"] == n
        )
        for n in dict.fromkeys(row["bodies"] for row in rows)
    }
    return [fact(f"blocked scan by block size, {n:,} bodies", text) for n, text in said.items()]


def _growth(r: Results, quantity: str, what: str, **wanted: object) -> tuple[float, int] | None:
    """How many times larger a counted quantity is for the largest size than for the smallest, and
    how many times larger that size is.
    """
    rows = readings.rows(r, "trees_work", "work", what=what, **wanted)
    size = "size" if what.startswith("scan") else "bodies"
    by_size = {row[size]: row[quantity] for row in rows}
    if len(by_size) < 2:
        return None
    least, most = min(by_size), max(by_size)
    return by_size[most] / by_size[least], most // least


def _table_1(r: Results) -> list[Row]:
    def grows(label: str, quantity: str, what: str, **wanted: object) -> Row:
        found = _growth(r, quantity, what, **wanted)
        size = "size" if what.startswith("scan") else "bodies"
        sizes = [row[size] for row in readings.rows(r, "trees_work", "work", what=what, **wanted)]
        if found is None:
            return number(label, 1.0, None, "x")
        # a leaf and its way back: a tour has two places a body
        first, last = (math.log2(n if size == "size" else 2 * n) for n in (min(sizes), max(sizes)))
        expected = float(found[1]) if quantity == "work" else last / first
        return number(f"{label}, N grows {found[1]}x", expected, found[0], "x", better="lower")

    scans = [
        grows("scan, work: O(N)", "work", "scan, work_efficient", threads=2),
        grows("scan, span: O(log N)", "span", "scan, work_efficient", threads=2),
    ]
    dynamics = [
        grows(f"{label}, branching {b:g}", quantity, what, branching=b)
        for label, quantity, what in (
            ("RNEA, work: O(N)", "work", "rnea, in flops"),
            ("RNEA, span: O(log N)", "span", "rnea, in flops"),
            ("CRBA, span: O(log N)", "span", "crba, in flops"),
        )
        for b in (1.0, 1.01, 2.0)
    ]
    crba = [
        fact(
            f"CRBA, operations an entry that is not zero, branching {b:g}",
            readings.span(
                row.get("flops_per_entry")
                for row in readings.rows(
                    r, "trees_work", "work", what="crba, in flops", branching=b
                )
            ),
        )
        for b in (1.0, 1.01, 2.0)
    ]
    return [*scans, *dynamics, *crba]


def _devices(r: Results) -> list[Row]:
    rows = readings.rows(r, "trees_work", "devices")
    found = []
    for name in ("rnea, euler_tour", "crba"):
        errors = readings.span(row["error"][name] for row in rows)
        found.append(
            statement(
                f"{name.split(',')[0].upper()} as kernels gives the CPU's numbers, four decimals",
                None if errors is None else errors[1] < 5e-5,  # as there
                "" if errors is None else f"{errors[1]:.1e} apart at most",
            )
        )
    for row in rows:
        shared = row.get("shared_memory")
        raced = f"; {shared['races']} races" if shared else ""
        said = ", ".join(f"{name} {e:.1e}" for name, e in row["error"].items())
        found.append(
            fact(
                f"{row['device']}, {row['bodies']:,} bodies, branching {row['branching']:g}",
                said + raced,
            )
        )
    return [*found, device("a GPU's times of RNEA, 1,000,000 bodies", 10.0, GPU, "ns a body")]


def _fig_12(r: Results) -> list[Row]:
    gain = _at(r, "figure_12", lambda row: True, lambda row: row["speedup"])
    return [
        number(
            "a rootfix of vector addition against one of the recurrence",
            (6.0, 16.0),
            gain,
            "x",
            better="higher",
        )
    ]


def _time(
    r: Results,
    bodies: int,
    branching: float,
    method: str | None = None,
    figure: str = "figures_13_14",
) -> float | None:
    """ns a body on one core, by a method or by the one that is chosen by default."""
    row = readings.one(r, "trees", figure, bodies=bodies, branching=branching)
    return None if row is None else row["ns_per_body"].get(method or row["default"])


def _fig_13(r: Results) -> list[Row]:
    def slower(bodies: int, method: str | None) -> Span | None:
        chain = _time(r, bodies, 1.0, method)
        others = [_time(r, bodies, b, method) for b in (1.5, 2.0)]
        return (
            None
            if chain is None
            else readings.span(None if t is None else 100 * (t / chain - 1) for t in others)
        )

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
    rows = [
        row
        for row in readings.rows(r, "trees", "figures_13_14", branching=1.0)
        if row["bodies"] >= 1_000_000
    ]

    def best(row: Reading) -> float:
        both = row["ns_per_body_two_threads"]
        alone: float = row["ns_per_body"][row["default"]]
        together: float = both.get(row["default"], math.inf)
        return min(alone, together)

    sequential = readings.span(row["ns_per_body"]["sequential"] for row in rows)
    ours = readings.span(best(row) for row in rows)
    gain = readings.span(row["ns_per_body"]["sequential"] / best(row) for row in rows)
    error = readings.span(row["error"].get(row["default"]) for row in rows)
    return [
        number(
            "RNEA of a chain of 1 to 4 million bodies, plain loop",
            184.0,
            sequential,
            "ns a body",
            better="lower",
        ),
        number("data-parallel", 10.0, ours, "ns a body", better="lower"),
        number("data-parallel against the plain loop", (16.0, 18.0), gain, "x", better="higher"),
        fact(
            "data-parallel here against the published plain loop",
            None if ours is None else (184 / ours[1], 184 / ours[0]),
            "x",
        ),
        fact("error against long double, relative to the largest force", error),
    ]


def _crba(r: Results, bodies: int, branching: float, name: str = "crba") -> float | None:
    row = readings.one(r, "trees", "figures_15_16", bodies=bodies, branching=branching)
    seconds: float | None = readings.part(row or {}, "seconds", name)
    return seconds


def _fig_15(r: Results) -> list[Row]:
    def gain(bodies: int) -> float | None:
        return readings.ratio(_crba(r, bodies, 1.0), _crba(r, bodies, 2.0))

    sizes = sorted({row["bodies"] for row in readings.rows(r, "trees", "figures_15_16")})
    return [
        number(
            "CRBA of 40,000 bodies: branching 2 against a chain",
            20.0,
            gain(40_000),
            "x",
            better="higher",
        ),
        *(fact(f"the same, {n:,} bodies", gain(n), "x") for n in sizes if n != 40_000),
    ]


def _fig_16(r: Results) -> list[Row]:
    def gain(bodies: int, branching: float) -> float | None:
        return readings.ratio(_crba(r, bodies, branching, "dense"), _crba(r, bodies, branching))

    milliseconds = _crba(r, 40_000, 2.0)
    return [
        number(
            "CRBA against the plain walk, chain of 1,000",
            16.5,
            gain(1_000, 1.0),
            "x",
            better="higher",
        ),
        number("chain of 40,000", 163.0, gain(40_000, 1.0), "x", better="higher"),
        number("40,000 bodies, branching 1.01", 160.0, gain(40_000, 1.01), "x", better="higher"),
        number(
            "40,000 bodies, branching 2: the CPU's plain walk there, ours here",
            850.0,
            None if milliseconds is None else 1e3 * milliseconds,
            "ms",
            better="lower",
        ),
        statement(
            "the gain grows with the size of a chain",
            *_growing({n: gain(n, 1.0) for n in (100, 1_000, 5_000, 10_000)}),
        ),
    ]


def _growing(gains: dict[int, float | None]) -> tuple[bool | None, str]:
    known = {n: g for n, g in gains.items() if g is not None}
    if len(known) < 2:
        return None, ""
    first, last = known[min(known)], known[max(known)]
    return last > first, ", ".join(f"{n:,}: {g:.2g}x" for n, g in known.items())


# --- charts ---------------------------------------------------------------------------------------


def _chart(
    figure: str,
    title: str,
    up: str,
    values: Callable[[Reading], dict[str, float]],
    chosen: Callable[[Reading], bool] = lambda row: True,
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


def _by_branching(row: Reading) -> dict[str, float]:
    return {f"branching {row['branching']:g}": row["ns_per_body"][row["default"]]}


def _crba_times(row: Reading) -> dict[str, float]:
    return {f"{row['branching']:g}": 1e3 * row["seconds"]["crba"]} if "seconds" in row else {}


_SCANS = {
    "native": "native",
    "work_efficient": "efficient",
    "blocked": "blocked",
    "simulated": "simulated",
    "levels, no inverse": "levels",
}

ENTRIES = (
    Entry(
        SEED,
        "Fig. 10",
        "What compact data structures save",
        HARDWARE,
        ("trees",),
        _fig_10,
        f"{BECAUSE} Dense and compact code both run from the same compiler; a call from Python"
        " weighs on trees of a hundred bodies.",
        "section 7.2",
        _chart("figure_10", "Compact against dense", "times faster", lambda row: row["speedup"]),
    ),
    Entry(
        SEED,
        "Fig. 11",
        "Scans for rootfix",
        HARDWARE,
        ("trees", "trees_work"),
        _fig_11,
        f"{BECAUSE} One core gains nothing from a scan with more parallelism: only fewer operations"
        " and better use of the cache count.",
        "section 7.3",
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
        "section 7.3",
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
        "section 7.4",
        _chart("figures_13_14", "RNEA, our default, one core", "ns a body", _by_branching),
    ),
    Entry(
        SEED,
        "Fig. 14",
        "RNEA against the plain loop (claim: 18x)",
        HARDWARE,
        ("trees",),
        _fig_14,
        "An A100 there, two cores here, and the recursion is bound by memory. A faster plain loop"
        " makes the ratio to it smaller.",
        "section 7.4",
        _chart(
            "figures_13_14",
            "RNEA of a chain, one core",
            "ns a body",
            lambda row: row["ns_per_body"],
            lambda row: row["branching"] == 1.0,
        ),
    ),
    Entry(
        SEED,
        "Fig. 15",
        "CRBA by branching factor",
        HARDWARE,
        ("trees",),
        _fig_15,
        "Ours writes only the entries that are not zero, the thesis a whole N x N matrix: branching"
        " saves more.",
        "section 7.5",
        _chart("figures_15_16", "CRBA, one core, by branching", "ms", _crba_times),
    ),
    Entry(
        SEED,
        "Fig. 16",
        "CRBA against the plain walk (claim: 163x)",
        HARDWARE,
        ("trees",),
        _fig_16,
        "Two ways of using one core are compared, an A100 against one there. The plain walk here is"
        " compiled code with 6x6 matrices.",
        "section 7.5",
        _chart("figures_15_16", "CRBA, one core, by branching", "ms", _crba_times),
    ),
    Entry(
        SEED,
        "Table 1",
        "Work and span, as counts",
        "none: asymptotics",
        ("trees_work",),
        _table_1,
        "Operations of the scans and of dynamics, run on numbers that count them; flops and their"
        " longest chain by operator. Ours writes the entries of the mass matrix that are not zero,"
        " so its work grows with them and not with N².",
        "section 3.2; and sections 5.3, 6.3",
    ),
    Entry(
        SEED,
        "Claim: kernels",
        "Inverse dynamics and mass matrix as kernels",
        HARDWARE,
        ("trees_work",),
        _devices,
        "Kernels by PoCL, and by a shim of CUDA on the CPU that watches shared memory: numbers and"
        " races, no times; the same in JAX, by levels, paths and Euler tour. Beside the text's own"
        " comparison with spatial_v2 stand our tests against a port of it. Trees have no closed"
        " loops; `rg.Loop` closes those of robots.",
        "section 7.1",
        device="trees.rnea(tree, q, v, a, method='euler_tour', device='cuda') runs it there",
    ),
)
