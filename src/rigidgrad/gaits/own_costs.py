"""Costs whose numbers a controller of legs writes by place: they come first in its problem."""

from __future__ import annotations

from collections.abc import Iterable

from rigidgrad.control.costs import Reach
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError


def check_own_costs(problem: Problem, kinds: Iterable[type], reached: Iterable[str], who: str) -> None:
    """Raises unless costs of these kinds come first, and then those that reach with these frames."""
    asked = [(kind, None) for kind in kinds] + [(Reach, frame) for frame in reached]
    found = [(type(c), c.frame if isinstance(c, Reach) else None) for c in problem.costs[: len(asked)]]
    if found != asked:
        raise InputError(
            f"a {who} writes numbers of its own costs, which come first: give further costs at the end of its phase's, "
            f"phase.with_terms([*phase.costs, …], phase.limits) of phase = {who.lower()}.problem().phases[0]"
        )
