"""A robot as a table for people."""

from __future__ import annotations

import math

from rigidgrad.errors import printable
from rigidgrad.model.actuation import own_actuators, undriven
from rigidgrad.model.contacts import own_loops
from rigidgrad.model.model import WORLD, Joint, Model


def table(model: Model) -> str:
    """One line a joint: what it joins, how it moves, what hangs on it, where its numbers lie in q
    and v.
    """
    mass = sum(m for m, _, _ in model.inertias)
    base = "floating base" if model.floating_base else "fixed base"
    g = " ".join(f"{x:g}" for x in model.gravity)
    frames = len(model.frames)
    head = (
        f"{printable(model.name)}: {_count(len(model.joints), 'moving joint')}, nq = {model.nq}, nv"
        f" = {model.nv}, {mass:.4g} kg moving, {base}, {_count(frames, 'frame')}, gravity ({g})"
        " m/s²"
    )
    rows: list[tuple[str, ...]] = [
        ("#", "joint", "type", "axis", "parent → child link", "kg", "limits", "effort", "q", "v")
    ]
    for i, joint in enumerate(model.joints):
        parent = "world" if model.parents[i] == WORLD else model.body_names[model.parents[i]]
        kind = joint.type
        if joint.is_mimic:
            master = next(j for j in model.joints if j.q == joint.q and not j.is_mimic)
            kind += f" = {joint.multiplier:g}·{master.name}" + (
                f" {joint.offset:+g}" if joint.offset else ""
            )
        rows.append(
            (
                str(i),
                joint.name,
                kind,
                _axis(joint),
                f"{parent} → {model.body_names[i]}",
                f"{model.inertias[i][0]:.4g}",
                _limits(joint),
                f"{joint.limit.effort:g}" if math.isfinite(joint.limit.effort) else "",
                "" if joint.is_mimic else _range(joint.q, joint.nq),
                "" if joint.is_mimic else _range(joint.v, joint.nv),
            )
        )
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    rule = "  ".join("─" * w for w in widths)
    motors = _count(len(own_actuators(model)), "motor")
    free = ", ".join(j.name for j in undriven(model, own_actuators(model)))
    driven = f"driven by {motors} of its own" + (f"; without a motor: {free}" if free else "")
    foot = (
        "limits in rad and rad/s, or m and m/s; effort in N m or N; q and v: where a joint's"
        " numbers lie"
    )
    loops = len(own_loops(model))
    closed = (
        [
            f"{_count(loops, 'loop')}: open in aba and all that takes no contacts; pass"
            " contacts=robot.loops to contact_dynamics"
        ]
        if loops
        else []
    )
    return "\n".join([head, driven, *closed, "", lines[0], rule, *lines[1:], "", foot])


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _axis(joint: Joint) -> str:
    if not joint.kind.has_axis:
        return ""
    named = {(1.0, 0.0, 0.0): "x", (0.0, 1.0, 0.0): "y", (0.0, 0.0, 1.0): "z"}
    text = named.get(joint.axis) or {
        tuple(-x + 0.0 for x in k): f"-{v}" for k, v in named.items()
    }.get(joint.axis)
    return text or " ".join(f"{x:.3g}" for x in joint.axis)


def _limits(joint: Joint) -> str:
    lower, upper = joint.kind.limits(joint.limit)
    position = "" if math.isinf(lower) and math.isinf(upper) else f"{lower:.4g} … {upper:.4g}"
    speed = f"≤ {joint.limit.velocity:g}/s" if math.isfinite(joint.limit.velocity) else ""
    return ", ".join(x for x in (position, speed) if x)


def _range(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start}:{start + count}"
