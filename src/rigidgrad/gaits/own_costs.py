"""Costs whose numbers a controller of legs writes by place: they come first in its problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rigidgrad.control.costs import CenterOfPressure, ContactForce, Cost, Reach
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError
from rigidgrad.gaits.weights import Weights
from rigidgrad.model.contacts import Contact


def force_costs(
    held: Sequence[Contact], weights: Weights, dt: float, half_lengths: np.ndarray | None
) -> list[Cost]:
    """Of contact forces: their size and, where the half lengths of soles are known, their centres
    of pressure.
    """
    costs: list[Cost] = [ContactForce(f, dt * weights.force) for f in held]
    if half_lengths is not None:
        soles = [f for f in held if f.kind == "surface"]
        costs += [CenterOfPressure(f, half_lengths, dt * weights.pressure) for f in soles]
    return costs


def check_own_costs(
    problem: Problem, kinds: Iterable[type], reached: Iterable[str], who: str
) -> None:
    """Raises unless costs of these kinds come first, and then those that reach with these
    frames.
    """
    asked = [(kind, None) for kind in kinds] + [(Reach, frame) for frame in reached]
    found = [
        (type(c), c.frame if isinstance(c, Reach) else None) for c in problem.costs[: len(asked)]
    ]
    if found != asked:
        raise InputError(
            f"a {who} writes numbers of its own costs, which come first: give further costs at the"
            " end of its phase's, phase.with_terms([*phase.costs, …], phase.limits) of phase ="
            f" {who.lower()}.problem().phases[0]"
        )
