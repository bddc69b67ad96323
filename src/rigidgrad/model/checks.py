"""Merging of links that move together, and the physical sense of the bodies that result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rigidgrad.errors import ModelError, ModelWarning, warn

if TYPE_CHECKING:
    from rigidgrad.model.description import Link
    from rigidgrad.model.model import Joint
    from rigidgrad.model.pose import Pose

# Published inertias are rounded to a few digits; principal moments may break an inequality by this
# part of the largest.
_ROUNDED = 1e-6


_LISTED = 12  # bodies in one message


class Problem(NamedTuple):
    """What no real body has: which body of the model it is, its name, and what is wrong with it."""

    body: int
    name: str
    text: str
    weightless: bool = False  # it has no mass, and nothing that hangs on it has


Inertias = tuple[tuple[Any, ...], ...]


def check_bodies(
    name: str,
    joints: Sequence[Joint],
    parents: Sequence[int],
    armature: Sequence[float],
    body_names: Sequence[str],
    merged: Sequence[Sequence[tuple[Link, Pose]]],
    strict: bool,
    known: Sequence[str] = (),
) -> tuple[Inertias, tuple[Problem, ...]]:
    """(m, h, I) of every moving body about its own frame, links merged; and what no real body can
    have, which is refused, or warned about once. `known`: problems that are known already.
    """
    inertias = []
    for links in merged:
        m, h, rotational = 0.0, np.zeros(3), np.zeros((3, 3))
        for link, placement in links:
            numbers = np.array(
                [link.mass, *link.com, *(x for row in link.inertia for x in row)], dtype=float
            )
            if not np.all(np.isfinite(numbers)):
                raise ModelError(f"link '{link.name}': its mass, centre or inertia is not finite")
            r = np.array(placement.R)
            c = r @ np.array(link.com) + placement.p
            m += link.mass
            h += link.mass * c
            rotational += r @ np.array(link.inertia) @ r.T + link.mass * (
                c @ c * np.eye(3) - np.outer(c, c)
            )
        inertias.append((m, h, rotational))
    problems = [
        Problem(i, body_names[i], p)
        for i, x in enumerate(inertias)
        if (p := _problem(f"link '{body_names[i]}' (with what is fixed to it)", *x))
    ]
    wrong = {p.body for p in problems}
    problems += [
        p for p in _unfelt(joints, parents, armature, body_names, inertias) if p.body not in wrong
    ]
    if problems and strict:
        raise ModelError(f"robot '{name}': {_listed(problems)}, or load it with strict=False")
    new = [p for p in problems if p.text not in known]
    if new:
        warn(summary(name, new), ModelWarning)
    return tuple(_compact(*x) for x in inertias), tuple(problems)


def summary(name: str, problems: Sequence[Problem]) -> str:
    """What is said of a robot with implausible bodies that is loaded all the same."""
    count = "a body that makes" if len(problems) == 1 else f"{len(problems)} bodies that make"
    return (
        f"robot '{name}' has {count} no physical sense, taken as given: {_listed(problems)}."
        " Functions that need a mass that is missing raise an error; strict=True refuses such"
        " robots"
    )


def _listed(problems: Sequence[Problem]) -> str:
    """All of them, those of one kind together."""
    light = [p for p in problems if p.weightless]
    others = [p.text for p in problems if not p.weightless or len(light) == 1]
    parts = others[:_LISTED]
    if len(others) > _LISTED:
        parts.append(f"and {len(others) - _LISTED} more like these")
    if len(light) > 1:
        names = ", ".join(f"'{p.name}'" for p in light[:_LISTED])
        more = f" and {len(light) - _LISTED} more" if len(light) > _LISTED else ""
        parts.append(
            f"links {names}{more} are moved by joints, but have no mass and carry none; give them a"
            " mass and an inertia"
        )
    return "; ".join(parts)


def _compact(m: float, h: np.ndarray, rotational: np.ndarray) -> tuple[Any, ...]:
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = (rotational + 0.0).tolist()
    return float(m), tuple((h + 0.0).tolist()), (xx, xy, yy, xz, yz, zz)


def _problem(where: str, m: float, h: np.ndarray, rotational: np.ndarray) -> str | None:
    """What is physically impossible about a body, and what to do; None if nothing is."""
    if m < 0:
        return f"{where} has the negative mass {m:g} kg; correct its <mass>"
    if m == 0:
        if np.any(h) or np.any(rotational):
            return f"{where} has no mass but an inertia; give it a mass or remove the inertia"
        return None
    c = h / m
    central = rotational - m * (c @ c * np.eye(3) - np.outer(c, c))
    size = max(abs(np.diag(central)).max(), 1e-300)
    if np.max(abs(central - central.T)) > _ROUNDED * size:
        return f"{where} has an inertia that is not symmetric; correct it"
    # about the origin the inertia of a far-off centre may drown the central one: allow for the
    # rounding of that
    slack = _ROUNDED * size + 1e-14 * abs(rotational).max()
    low, middle, high = np.linalg.eigvalsh((central + central.T) / 2)
    if low <= 1e-14 * abs(rotational).max():
        return (
            f"{where} has an inertia that is not positive definite (principal moments {low:.3g},"
            f" {middle:.3g}, {high:.3g}); correct its <inertia>"
        )
    if high > low + middle + slack:
        return (
            f"{where} has an impossible inertia: its largest principal moment {high:.4g} exceeds"
            f" the sum of the others {low + middle:.4g} (triangle inequality); correct its"
            " <inertia>"
        )
    return None


def _unfelt(
    joints: Sequence[Joint],
    parents: Sequence[int],
    armature: Sequence[float],
    body_names: Sequence[str],
    inertias: Sequence[tuple[float, np.ndarray, np.ndarray]],
) -> list[Problem]:
    """Joints that would move nothing: massless bodies are fine only where something massive hangs
    on them or the joint has armature.
    """
    mass = [max(m, 0.0) for m, _, _ in inertias]
    for i in reversed(range(len(joints))):
        if parents[i] >= 0:
            mass[parents[i]] += mass[i]
    problems = []
    for i, joint in enumerate(joints):
        moved = mass[i] > 0 or all(armature[joint.dof + k] > 0 for k in range(joint.nv))
        if not moved:
            said = (
                f"joint '{joint.name}' moves link '{body_names[i]}', which has no mass and carries"
                " none; give it a mass and an inertia"
            )
            problems.append(Problem(i, body_names[i], said, True))
    if not problems and any(m == 0 for m, _, _ in inertias):
        problems = _singular(joints, parents, armature, body_names, inertias)
    return problems


def _singular(
    joints: Sequence[Joint],
    parents: Sequence[int],
    armature: Sequence[float],
    body_names: Sequence[str],
    inertias: Sequence[tuple[float, np.ndarray, np.ndarray]],
) -> list[Problem]:
    """Chains of massless links with more freedom than what they carry can feel, found by counting:
    six numbers place a rigid body.
    """
    problems = []
    freedom = [0] * len(joints)  # unfelt freedoms on the way to each massless body
    for i, joint in enumerate(joints):
        above = freedom[parents[i]] if parents[i] >= 0 and inertias[parents[i]][0] == 0 else 0
        own = sum(1 for k in range(joint.nv) if armature[joint.dof + k] == 0)
        freedom[i] = above + own
        if freedom[i] > 6:
            said = (
                f"joint '{joint.name}' is one of {freedom[i]} degrees of freedom between links"
                " without mass; at most 6 can be felt by the next massive link; give link"
                f" '{body_names[i]}' a mass"
            )
            problems.append(Problem(i, body_names[i], said))
    return problems
