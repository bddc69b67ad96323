"""Problems with a cost or a bound of the control's rate, as solvers see them: with the control of
the step before as a part of the state.

Users give and get states x (N + 1, nx). A solver works on [x, u₋] (N + 1, nx + nu), whose first
knot has the control before the first one; where there is none, the first change is free. An impact
has no control, and the one before it is kept. Both problems have the same rows of numbers, since
all other terms are the same with other eyes (`unaware`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rigidgrad.control.constrained import FAR
from rigidgrad.control.programs import Programs
from rigidgrad.control.remembering import Remembering
from rigidgrad.control.terms.control_rate import rate_of
from rigidgrad.control.unaware import unaware
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem

_KEY = "remembering"  # among the problem's workspaces


def remembering(problem: Problem) -> Problem:
    """What a solver is given: the problem itself, or, where it charges for the control's rate, the
    same with the control of the step before in its states.
    """
    if not problem.charges_rate:
        return problem
    # of this call alone, whoever else solves the same problem; solvers' buffers stay
    inner = problem.private_copy()
    inner.programs = remembering_programs(problem.programs)
    inner.system, inner.workspaces = inner.programs.system, problem.workspaces.setdefault(_KEY, {})
    before = problem.previous
    if before is None:
        before = problem.guess[0]
    rows = problem.h == 0.0  # impacts have no control
    if problem.previous is None:
        rows[: int(np.argmin(rows)) + 1] = True  # nor is there one before the first
    for term, part in zip(
        (*problem.costs, *problem.constraints), problem.programs.slices, strict=False
    ):
        if rate_of(term) is not None:
            for name, free in (("weight", 0.0), ("lower", -FAR), ("upper", FAR)):
                if name in part:
                    inner.p[:-1, part[name]][rows] = free
    inner.start = np.concatenate([problem.start, before])
    if problem.guess_states is not None:
        inner.guess_states = with_controls(problem.guess_states, problem.guess, before, problem.h)
    return inner


def remembering_programs(known: Programs) -> Programs:
    """The same with states that hold the control of the step before; made once."""
    made: Programs = known.once(_remembering_programs, known)
    return made


def _remembering_programs(known: Programs) -> Programs:
    costs, constraints = ([unaware(t) for t in terms] for terms in (known.costs, known.constraints))
    return Programs(
        Remembering(known.system),
        known.integrator,
        costs,
        constraints,
        known.bounded,
        known.uniform,
    )


def with_controls(x: np.ndarray, u: np.ndarray, before: np.ndarray, h: np.ndarray) -> np.ndarray:
    """States (…, N + 1, nx) with the control of the step before each, from controls (…, N, nu) in
    steps of h (N,) seconds: that of an impact, which lasts none, is not counted.
    """
    first = np.broadcast_to(before, (*u.shape[:-2], 1, u.shape[-1]))
    last = np.maximum.accumulate(np.where(np.append(1.0, h) > 0.0, np.arange(len(h) + 1), 0))
    return np.concatenate([x, np.concatenate([first, u], axis=-2)[..., last, :]], axis=-1)


def control_before(problem: Problem) -> np.ndarray | None:
    """What costs and bounds say the control before the first one was, (nu,); None where none of
    them does.
    """
    rates = (rate_of(t) for part in problem.parts for t in (*part.costs, *part.constraints))
    given = [
        u for c in rates if c is not None and (u := c.control_before(problem.system)) is not None
    ]
    if any(not np.array_equal(u, given[0]) for u in given):
        raise InputError(
            "the ControlRate of one problem have different previous=: there is one control before"
            " the first one"
        )
    return given[0] if given else None
