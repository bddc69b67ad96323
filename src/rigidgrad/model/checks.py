"""Merging of links that move together, and the physical sense of the bodies that result."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from rigidgrad.errors import ModelError, ModelWarning

# Published inertias are rounded to a few digits; principal moments may break an inequality by this part of the largest.
_ROUNDED = 1e-6


def check_bodies(name: str, joints, parents, armature, body_names, merged, strict: bool) -> tuple[tuple, ...]:
    """(m, h, I) of every moving body about its own frame, links merged; refuses, or warns about, what no real body can have."""
    inertias = []
    for links in merged:
        m, h, rotational = 0.0, np.zeros(3), np.zeros((3, 3))
        for link, placement in links:
            numbers = np.array([link.mass, *link.com, *(x for row in link.inertia for x in row)], dtype=float)
            if not np.all(np.isfinite(numbers)):
                raise ModelError(f"link '{link.name}': its mass, centre or inertia is not finite")
            r = np.array(placement.R)
            c = r @ np.array(link.com) + placement.p
            m += link.mass
            h += link.mass * c
            rotational += r @ np.array(link.inertia) @ r.T + link.mass * (c @ c * np.eye(3) - np.outer(c, c))
        inertias.append((m, h, rotational))
    problems = [p for i, x in enumerate(inertias) if (p := _problem(f"link '{body_names[i]}' (with what is fixed to it)", *x))]
    if not problems:
        problems = _unfelt(joints, parents, armature, body_names, inertias)
    for problem in problems:
        if strict:
            raise ModelError(f"robot '{name}': {problem}, or load it with strict=False")
        warnings.warn(f"robot '{name}': {problem}", ModelWarning, stacklevel=4)
    return tuple(_compact(*x) for x in inertias)


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
    # about the origin the inertia of a far-off centre may drown the central one: allow for the rounding of that
    slack = _ROUNDED * size + 1e-14 * abs(rotational).max()
    low, middle, high = np.linalg.eigvalsh((central + central.T) / 2)
    if low <= 1e-14 * abs(rotational).max():
        return f"{where} has an inertia that is not positive definite (principal moments {low:.3g}, {middle:.3g}, {high:.3g}); correct its <inertia>"
    if high > low + middle + slack:
        return (
            f"{where} has an impossible inertia: its largest principal moment {high:.4g} exceeds the sum of the others "
            f"{low + middle:.4g} (triangle inequality); correct its <inertia>"
        )
    return None


def _unfelt(joints, parents, armature, body_names, inertias) -> list[str]:
    """Joints that would move nothing: massless bodies are fine only where something massive hangs on them or the joint has armature."""
    mass = [m for m, _, _ in inertias]
    for i in reversed(range(len(joints))):
        if parents[i] >= 0:
            mass[parents[i]] += mass[i]
    problems = []
    for i, joint in enumerate(joints):
        moved = mass[i] > 0 or all(armature[joint.dof + k] > 0 for k in range(joint.nv))
        if not moved:
            problems.append(
                f"joint '{joint.name}' moves link '{body_names[i]}', which has no mass and carries none; give it a mass and an inertia"
            )
    if not problems and any(m == 0 for m, _, _ in inertias):
        problems = _singular(joints, parents, armature, body_names, inertias)
    return problems


def _singular(joints, parents, armature, body_names, inertias) -> list[str]:
    """Chains of massless links with more freedom than what they carry can feel, found by counting: six numbers place a rigid body."""
    problems = []
    freedom = [0] * len(joints)  # unfelt freedoms on the way to each massless body
    for i, joint in enumerate(joints):
        above = freedom[parents[i]] if parents[i] >= 0 and inertias[parents[i]][0] == 0 else 0
        own = sum(1 for k in range(joint.nv) if armature[joint.dof + k] == 0)
        freedom[i] = above + own
        if freedom[i] > 6:
            problems.append(
                f"joint '{joint.name}' is one of {freedom[i]} degrees of freedom between links without mass; "
                f"at most 6 can be felt by the next massive link; give link '{body_names[i]}' a mass"
            )
    return problems
