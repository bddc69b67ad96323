"""Tables of what dynamics.py measured, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from cases import FUNCTIONS

PEER_COLUMNS = ("pinocchio", "mujoco", "casadi")


def number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}f}" if value < 100 else f"{value:.0f}"


def times(comparison: dict | None) -> str:
    """27.1x (26.5-28.0)"""
    return (
        ""
        if comparison is None
        else f"{comparison['ratio']:.1f}x ({comparison['low']:.1f}-{comparison['high']:.1f})"
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def render(line: list[str]) -> str:
        return "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()

    return "\n".join(
        [render(lines[0]), "  ".join("-" * w for w in widths), *map(render, lines[1:])]
    )


def best_of(cell: dict, prefix: str) -> float | None:
    """The fastest build of a peer, in µs per evaluation; its Python binding does not count here."""
    found = [
        t["best"]
        for name, t in cell["times"].items()
        if name.startswith(prefix) and not name.endswith("python")
    ]
    return min(found, default=None)


def ours(cell: dict, dtype: str, way: str) -> float | None:
    timing = cell["times"].get(f"ours {dtype} {way}")
    return timing and timing["best"]


def batch_table(cells: list[dict], count: int) -> str:
    ways = {"C": "from C"} if count == 1 else {}
    ways |= {
        "out": "out=",
        "fresh": "fresh",
        "packed": "packed",
        "factored": "factored",
        "method": "method",
    }
    header = ["robot", "function", *PEER_COLUMNS, *ways.values(), "float32", "f32 packed"]
    header += [
        "vs pinocchio",
        "vs fastest peer",
        "packed",
        "factored",
        "f32/f64",
        "GFLOP/s",
        "of peak",
    ]
    rows = []
    for cell in (cell for cell in cells if cell["count"] == count):
        compared = cell["ratios"]
        single, double = ours(cell, "float32", "out"), ours(cell, "float64", "out")
        others = [compared.get(way) for way in ("packed", "factored")]
        peak = cell.get("of_peak")
        rows.append(
            [
                cell["robot"],
                FUNCTIONS[cell["function"]],
                *(number(best_of(cell, peer)) for peer in PEER_COLUMNS),
                *(number(ours(cell, "float64", way)) for way in ways),
                number(single),
                number(ours(cell, "float32", "packed")),
                times(compared.get("pinocchio")),
                times(compared.get("fastest")),
                *(f"{other['ratio']:.1f}x" if other else "" for other in others),
                f"{double / single:.2f}x" if single and double else "",
                number(cell.get("gflops"), 1),
                f"{100 * peak:.0f}%" if peak else "",
            ]
        )
    return f"N = {count}: µs per evaluation, one thread\n{table(header, rows)}"


def single_table(cells: list[dict]) -> str:
    """One state at a time, from Python: Pinocchio's own call beside ours."""
    rows = []
    for cell in (
        cell for cell in cells if cell["count"] == 1 and "pinocchio python" in cell["times"]
    ):
        theirs = cell["times"]["pinocchio python"]["best"]
        fast, plain = ours(cell, "float64", "out"), ours(cell, "float64", "method")
        ratios = [f"{theirs / value:.2f}x" if value else "" for value in (fast, plain)]
        rows.append(
            [
                cell["robot"],
                FUNCTIONS[cell["function"]],
                number(theirs),
                number(fast),
                number(plain),
                *ratios,
            ]
        )
    header = [
        "robot",
        "function",
        "pinocchio python",
        "compile",
        "method",
        "compile faster",
        "method faster",
    ]
    return f"one state from Python: µs per call\n{table(header, rows)}" if rows else ""


def builds_table(cells: list[dict], count: int) -> str:
    """Every build of every peer, at the size where all were measured."""
    names = sorted(
        {
            name
            for cell in cells
            if cell["count"] == count
            for name in cell["times"]
            if not name.startswith("ours")
        }
    )
    rows = [
        [
            cell["robot"],
            FUNCTIONS[cell["function"]],
            *(number(cell["times"].get(name, {}).get("best")) for name in names),
        ]
        for cell in cells
        if cell["count"] == count
    ]
    return (
        f"N = {count}: peers by build, µs per"
        f" evaluation\n{table(['robot', 'function', *names], rows)}"
        if names
        else ""
    )


def startup_table(startup: dict) -> str:
    rows = [
        [label, FUNCTIONS[function], number(t["load"]), number(t["cold"]), number(t["cached"])]
        for (label, function, t) in startup["first_calls"]
    ]
    return f"import rigidgrad: {startup['import']:.3f} s; first call after loading, s\n" + table(
        ["robot", "function", "load", "cold", "cached"], rows
    )


def threads_table(threads: list[dict]) -> str:
    rows = [
        [
            t["robot"],
            FUNCTIONS[t["function"]],
            str(t["count"]),
            number(t["one"]),
            number(t["two"]),
            times(t["ratio"]),
        ]
        for t in threads
    ]
    return "two threads, back-to-back calls, µs per evaluation\n" + table(
        ["robot", "function", "N", "one", "two", "gain"], rows
    )
