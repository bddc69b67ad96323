"""Numbers out of what the scripts of `bench/` wrote; None where they were not measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigidgrad.reproduce.entry import Results, Span

Point = tuple[list[float], list[float]]


def part(results: Results, *path: str) -> Any:
    """What stands at a path of names, or None if the measurement or the part is not there."""
    found: Any = results
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def rows(results: Results, *path: str, **wanted: Any) -> list[dict]:
    """Of a list of rows, those with these values."""
    return [row for row in part(results, *path) or [] if all(row.get(key) == value for key, value in wanted.items())]


def one(results: Results, *path: str, **wanted: Any) -> dict | None:
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
        machine = next((p["machine"] for p in data.values() if isinstance(p, dict) and isinstance(p.get("machine"), dict)), {})
    found = {key: machine.get(key, data.get(key)) for key in ("cpu", "cores", "date", "command", "system")}
    found["commit"] = machine.get("versions", {}).get("commit")
    found["load"] = machine["load"][0] if machine.get("load") else None
    return {key: value for key, value in found.items() if value is not None}


# --- dynamics.py, claims.py --------------------------------------------------------------------------------------------------------------


def cell(results: Results, robot: str, function: str, count: int) -> dict | None:
    return one(results, "dynamics", "cells", robot=robot, function=function, count=count)


def one_state(results: Results, robot: str, function: str) -> float | None:
    """µs of one state on one core, called from C."""
    found = cell(results, robot, function, 1)
    if found and "ours float64 C" in found["times"]:
        return found["times"]["ours float64 C"]["best"]
    return part(results, "claims", "single", robot, function, "best")


def pinocchio(results: Results, robot: str, function: str, count: int = 1) -> float | None:
    """µs of Pinocchio's C++ for one state, its fastest build."""
    found = cell(results, robot, function, count)
    times = found["times"] if found else {}
    return min((t["best"] for name, t in times.items() if name.startswith("pinocchio") and not name.endswith("python")), default=None)


def batch(results: Results, robot: str, count: int) -> dict | None:
    """N gradients of forward dynamics: claims.py's row."""
    return one(results, "claims", "batches", "rows", robot=robot, count=count)


def batch_us(results: Results, robot: str, count: int) -> float | None:
    found = batch(results, robot, count)
    return None if found is None else min(found["us"][label]["best"] for label in ("one", "kept"))


# --- parallel_ddp.py ---------------------------------------------------------------------------------------------------------------------


def blocks(results: Results, experiment: str) -> dict[str, dict]:
    """By the number of blocks M as text; those with the same number forward and backward."""
    found = one(results, "parallel_ddp", "experiments", experiment=experiment)
    return {m: row for m, row in found["blocks"].items() if m.isdigit()} if found else {}


def per_block(results: Results, experiment: str, *path: str) -> dict[int, Any]:
    """A quantity by M."""
    return {int(m): part(row, *path) for m, row in blocks(results, experiment).items()}


# --- preconditioners.py ------------------------------------------------------------------------------------------------------------------

SYSTEMS = ("double integrator", "pendulum", "cart-pole", "arm")


def stair_gain(results: Results, other: str, quantity: str) -> Span | None:
    """How many times better the symmetric stair is than another preconditioner, least and largest over the four systems."""
    studied = part(results, "preconditioners", "study")
    if studied is None:
        return None
    known = [studied[name]["preconditioners"] for name in SYSTEMS]
    return span(p[other][quantity] / p["symmetric_stair"][quantity] for p in known)
