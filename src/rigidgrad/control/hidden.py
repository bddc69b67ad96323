"""Problems as solvers see them: with all that x and u do not tell in their states and controls. The
control of the step before is there for costs of its rate (`memory`), durations where a solve
chooses them (`durations`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from rigidgrad.control.durations import Timing
from rigidgrad.control.memory import remembering, with_controls
from rigidgrad.control.programs import Programs
from rigidgrad.control.solution import Solution, most_common
from rigidgrad.control.surroundings import Surroundings
from rigidgrad.control.timed import Timed
from rigidgrad.control.unaware import untimed
from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from rigidgrad.control.problem import Problem

_CONJUGATE = ("pcg", "red_black")  # linear solvers of rg.Direct by conjugate gradients
_KEY = "timed"  # among the problem's workspaces


def for_solvers(problem: Problem) -> Problem:
    """The problem itself, or the same with hidden states and controls."""
    return _with_durations(remembering(problem))


def hidden_from(
    problem: Problem, inner: Problem, x: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A user's states (…, N + 1, nx) and controls (…, N, nu) as those of `inner`, what solvers see
    of the problem: with durations as they are at first.
    """
    if problem.charges_rate:
        n, m = problem.system.nx, problem.system.nu
        free = problem.previous is None  # nothing changes before the first one
        before = u[..., :1, :] if free else inner.start[n : n + m]
        x = with_controls(x, u, before, problem.h)
    if problem.timing is not None:
        x, u = with_first_guess(x, problem.timing.size), with_first_guess(u, 1)
    return x, u


def as_asked(problem: Problem, found: Solution) -> Solution:
    """What a solver found, in the states and controls that the user knows. Feedback is of these
    alone.
    """
    if not problem.hides:
        return found
    s = problem.system
    h = found.h
    if problem.timing is not None:
        h = chosen_steps(problem.timing, found.x, found.u)
    return dataclasses.replace(
        found,
        x=found.x[:, : s.nx].copy(),
        u=found.u[:, : s.nu].copy(),
        gains=found.gains[:, : s.nu, : s.ndx].copy(),
        dt=found.dt if h is None else most_common(h),
        h=h,
        system=s,
        aims=problem.aims(),
        surroundings=Surroundings.of(problem),
    )


def solved(solver: Any, problem: Problem) -> Solution:
    """By one of our solvers, of a problem that hides something."""
    check_solver(solver, problem)
    return as_asked(problem, solver.solve(for_solvers(problem)))


def check_solver(solver: Any, problem: Problem) -> None:
    """Raises where a solver's options leave out what a problem hides."""
    if not problem.hides:
        return
    what = "free durations" if problem.timing is not None else "costs.ControlRate"
    if getattr(solver, "device", None) is not None:
        raise InputError(f"problems with {what} are solved on the CPU: leave device out")
    if getattr(solver, "form", "forward") != "forward":
        raise InputError(f'problems with {what} have the forward form: leave form="inverse" out')
    if problem.timing is None:
        return
    if getattr(solver, "linear_solver", "riccati") in _CONJUGATE:
        raise InputError(
            "conjugate gradients do not get along with a cost that is flat in time: problems with"
            ' free durations take rg.Direct(linear_solver="riccati")'
        )
    if max(getattr(solver, n, 1) for n in ("M_f", "M_b")) > 1:
        raise InputError("problems with free durations are not cut into blocks: leave blocks out")


def _with_durations(problem: Problem) -> Problem:
    """The problem itself, or, where it has free durations, the same with these in its states and
    controls.
    """
    timing = problem.timing
    if timing is None:
        return problem
    inner = problem.private_copy()
    inner.timing = None
    inner.programs = problem.programs.once(_timed_programs, problem.programs, timing.size)
    inner.system = inner.programs.system
    inner.workspaces = problem.workspaces.setdefault((_KEY, timing.size), {})
    inner.p = np.concatenate([inner.p, timing.marks], axis=1)
    inner.start = np.concatenate([problem.start, np.ones(timing.size)])
    inner.guess = with_first_guess(problem.guess, 1)
    if problem.guess_states is not None:
        inner.guess_states = with_first_guess(problem.guess_states, timing.size)
    lower, upper = problem.bounds
    inner.bounds = np.c_[lower, timing.lower], np.c_[upper, timing.upper]
    return inner


def _timed_programs(known: Programs, count: int) -> Programs:
    costs, constraints = ([untimed(t) for t in terms] for terms in (known.costs, known.constraints))
    system = Timed(known.system, count)
    return Programs(system, known.integrator, costs, constraints, bounded=True, uniform=False)


def with_first_guess(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows (…, n) with τ or w besides, as they are at first."""
    return np.concatenate([rows, np.ones((*rows.shape[:-1], count))], axis=-1)


def chosen_steps(timing: Timing, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Seconds of each step (steps,), of what a solver found: τ are the last numbers of x, w is that
    of u.
    """
    n = timing.size
    acts, sets = timing.marks[:-1, :n], timing.marks[:-1, n:]
    tau = np.where(sets > 0.0, u[:, -1:], x[:-1, -n:])
    h: np.ndarray = timing.h * (1.0 + (acts * (tau - 1.0)).sum(axis=1))
    return h
