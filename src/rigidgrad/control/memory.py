"""Problems with a cost of the control's rate, as solvers see them: with the control of the step before as a part of the state.

Users give and get states x (N + 1, nx). A solver works on [x, u₋] (N + 1, nx + nu), whose first knot has the control before the first one; where there is none, the weight of the first change is 0. An impact has no control, and the one before it is kept. Both problems
have the same rows of numbers, since all other terms are the same with other eyes (`unaware`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.control.programs import Programs
from rigidgrad.control.remembering import Remembering
from rigidgrad.control.solution import Solution
from rigidgrad.control.surroundings import Surroundings
from rigidgrad.control.terms.control_rate import ControlRate
from rigidgrad.control.unaware import unaware
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem

_KEY = "remembering"  # among the problem's workspaces


def remembering(problem: Problem) -> Problem:
    """What a solver is given: the problem itself, or, where it charges for the control's rate, the same with the control of the step before in its states."""
    if not problem.charges_rate:
        return problem
    inner = problem.private_copy()  # of this call alone, whoever else solves the same problem; solvers' buffers stay
    inner.programs = problem.programs.once(_remembering_programs, problem.programs)
    inner.system, inner.workspaces = inner.programs.system, problem.workspaces.setdefault(_KEY, {})
    before = problem.previous
    if before is None:
        before = problem.guess[0]
    rows = problem.h == 0.0  # impacts have no control
    if problem.previous is None:
        rows[: int(np.argmin(rows)) + 1] = True  # nor is there one before the first
    for cost, part in zip(problem.costs, problem.programs.slices, strict=False):
        if isinstance(cost, ControlRate):
            inner.p[:-1, part["weight"]][rows] = 0.0
    inner.start = np.concatenate([problem.start, before])
    if problem.guess_states is not None:
        inner.guess_states = with_controls(problem.guess_states, problem.guess, before, problem.h)
    return inner


def _remembering_programs(known: Programs) -> Programs:
    costs, constraints = ([unaware(t) for t in terms] for terms in (known.costs, known.constraints))
    return Programs(Remembering(known.system), known.integrator, costs, constraints, known.bounded, known.uniform)


def with_controls(x: np.ndarray, u: np.ndarray, before: np.ndarray, h: np.ndarray) -> np.ndarray:
    """States (…, N + 1, nx) with the control of the step before each, from controls (…, N, nu) in steps of h (N,) seconds: that of an impact, which lasts none, is not counted."""
    first = np.broadcast_to(before, (*u.shape[:-2], 1, u.shape[-1]))
    last = np.maximum.accumulate(np.where(np.append(1.0, h) > 0.0, np.arange(len(h) + 1), 0))
    return np.concatenate([x, np.concatenate([first, u], axis=-2)[..., last, :]], axis=-1)


def as_asked(problem: Problem, found: Solution) -> Solution:
    """What a solver found, in the states that the user knows. Feedback is of these alone."""
    if not problem.charges_rate:
        return found
    s = problem.system
    return dataclasses.replace(
        found,
        x=found.x[:, : s.nx].copy(),
        gains=found.gains[:, :, : s.ndx].copy(),
        system=s,
        aims=problem.aims(),
        surroundings=Surroundings.of(problem),
    )


def solved(solver: Any, problem: Problem) -> Solution:
    """By one of our solvers, of a problem that charges for the control's rate."""
    check_solver(solver)
    return as_asked(problem, solver.solve(remembering(problem)))


def check_solver(solver: Any) -> None:
    """Raises where a solver's options leave the control of the step before out."""
    if getattr(solver, "device", None) is not None:
        raise InputError("problems with costs.ControlRate are solved on the CPU: leave device out")
    if getattr(solver, "form", "forward") != "forward":
        raise InputError('problems with costs.ControlRate have the forward form: leave form="inverse" out')


def control_before(problem: Problem) -> np.ndarray | None:
    """What the costs say the control before the first one was, (nu,); None where none of them does."""
    costs = (c for part in problem.parts for c in part.costs if isinstance(c, ControlRate))
    given = [u for c in costs if (u := c.control_before(problem.system)) is not None]
    if any(not np.array_equal(u, given[0]) for u in given):
        raise InputError("costs ControlRate of one problem have different previous=: there is one control before the first one")
    return given[0] if given else None
