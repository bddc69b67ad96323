"""Numbers out of what the scripts of `bench/` wrote; None where they were not measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigidgrad.reproduce.entry import Reading, Results, Span

Point = tuple[list[float], list[float]]


def part(results: Results, *path: str) -> Any:
    """What stands at a path of names, or None if the measurement or the part is not there."""
    found: Any = results
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def rows(results: Results, *path: str, **wanted: Any) -> list[Reading]:
    """Of a list of rows, those with these values."""
    return [
        row
        for row in part(results, *path) or []
        if all(row.get(key) == value for key, value in wanted.items())
    ]


def one(results: Results, *path: str, **wanted: Any) -> Reading | None:
    return next(iter(rows(results, *path, **wanted)), None)


def span(values: Iterable[float | None]) -> Span | None:
    """Least and largest of what is known."""
    known = [v for v in values if v is not None]
    return (min(known), max(known)) if known else None


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def yes(*values: Any) -> bool:
    """Whether everything that a statement needs is known."""
    return all(v is not None for v in values)


def origin(data: Any) -> dict[str, Any]:
    """On what, when and how a result was measured, as far as its file says."""
    if not isinstance(data, dict):
        return {}
    machine = data.get("machine")
    if isinstance(machine, str):
        machine = {"cpu": machine}
    elif machine is None:  # mpc.py: one a part
        machine = next(
            (
                p["machine"]
                for p in data.values()
                if isinstance(p, dict) and isinstance(p.get("machine"), dict)
            ),
            {},
        )
    found = {
        key: machine.get(key, data.get(key))
        for key in ("cpu", "cores", "date", "command", "system")
    }
    found["commit"] = machine.get("versions", {}).get("commit")
    found["load"] = machine["load"][0] if machine.get("load") else None
    return {key: value for key, value in found.items() if value is not None}


def idle(results: Results, name: str) -> bool:
    """Whether the machine had a core to spare when a measurement began; what does not say is
    believed.
    """
    found = origin(part(results, name))
    return bool(found.get("load", 0.0) < found.get("cores", 1))


# --- dynamics.py, claims.py -----------------------------------------------------------------------


def cell(results: Results, robot: str, function: str, count: int) -> Reading | None:
    return one(results, "dynamics", "cells", robot=robot, function=function, count=count)


def one_state(results: Results, robot: str, function: str) -> float | None:
    """µs of one state on one core, called from C."""
    found = cell(results, robot, function, 1)
    if found and "ours float64 C" in found["times"]:
        best: float | None = found["times"]["ours float64 C"]["best"]
    else:
        best = part(results, "claims", "single", robot, function, "best")
    return best


def pinocchio(results: Results, robot: str, function: str, count: int = 1) -> float | None:
    """µs of Pinocchio's C++ for one state, its fastest build."""
    found = cell(results, robot, function, count)
    times = found["times"] if found else {}
    return min(
        (
            t["best"]
            for name, t in times.items()
            if name.startswith("pinocchio") and not name.endswith("python")
        ),
        default=None,
    )


def batch(results: Results, robot: str, count: int) -> Reading | None:
    """N gradients of forward dynamics: claims.py's row."""
    return one(results, "claims", "batches", "rows", robot=robot, count=count)


def batch_us(results: Results, robot: str, count: int) -> float | None:
    found = batch(results, robot, count)
    return None if found is None else min(found["us"][label]["best"] for label in ("one", "kept"))


# --- parallel_ddp.py ------------------------------------------------------------------------------


def blocks(results: Results, experiment: str, stale: bool = False) -> dict[str, Reading]:
    """By the number of blocks M as text; those with the same number forward and backward, with a
    first backward pass through all of them, or without.
    """
    found = one(results, "parallel_ddp", "experiments", experiment=experiment)
    rows: dict[str, Reading] = found["blocks"] if found else {}
    if not stale:
        return {m: row for m, row in rows.items() if m.isdigit()}
    own = {m.removesuffix(" stale"): row for m, row in rows.items() if m.endswith(" stale")}
    first = {"1": rows["1"]} if own and "1" in rows else {}  # one block has nothing to be stale
    return first | {m: row for m, row in own.items() if m.isdigit()}


def per_block(results: Results, experiment: str, *path: str, stale: bool = False) -> dict[int, Any]:
    """A quantity by M."""
    return {int(m): part(row, *path) for m, row in blocks(results, experiment, stale).items()}


def mixed(results: Results, experiment: str, label: str) -> Reading | None:
    """A row with other numbers of blocks forward than backward, "2/4"."""
    found = one(results, "parallel_ddp", "experiments", experiment=experiment)
    row: Reading | None = found["blocks"].get(label) if found else None
    return row


# --- preconditioners.py ---------------------------------------------------------------------------

SYSTEMS = ("double integrator", "pendulum", "cart-pole", "arm")


def stair_gain(results: Results, other: str, quantity: str) -> Span | None:
    """How many times better the symmetric stair is than another preconditioner, least and largest
    over the four systems.
    """
    studied = part(results, "preconditioners", "study")
    if studied is None:
        return None
    known = [studied[name]["preconditioners"] for name in SYSTEMS]
    return span(p[other][quantity] / p["symmetric_stair"][quantity] for p in known)
