"""`rg.solve`: one problem, or many together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, overload

from rigidgrad.control.batch import solve_side_by_side, supported
from rigidgrad.control.hidden import as_asked, check_solver, for_solvers
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.solution import Solution
from rigidgrad.errors import InputError
from rigidgrad.runtime.threads import default_crew, thread_count

_IN_TURN = "in turn"  # among the workspaces of a problem


class Solver(Protocol):
    def solve(self, problem: Problem) -> Solution: ...


@overload
def solve(
    problem: Problem, solver: Solver | None = None, *, threads: int | None = None
) -> Solution: ...
@overload
def solve(
    problem: Sequence[Problem], solver: Solver | None = None, *, threads: int | None = None
) -> list[Solution]: ...
def solve(
    problem: Problem | Sequence[Problem],
    solver: Solver | None = None,
    *,
    threads: int | None = None,
) -> Solution | list[Solution]:
    """The solution of a problem, or of each of several; by iLQR unless a solver is given.

    Several problems are shared out to `threads` (all cores unless given), each with its own
    convergence. Those that differ in numbers alone (`problem.batch`) run in lockstep, a problem in
    each SIMD lane, or, where the solver has a `device`, together on that.

    Example:

        >>> import rigidgrad as rg
        >>> robot = rg.load("double_pendulum")
        >>> swing = rg.costs.State([3.14, 0, 0, 0], final=[100, 100, 10, 10])
        >>> costs = [swing, rg.costs.Effort(1e-3)]
        >>> problem = rg.Problem(robot, [0, 0, 0, 0], steps=50, dt=0.02, costs=costs)
        >>> solution = rg.solve(problem)
        >>> solution.status, solution.x.shape
        ('converged', (51, 4))
        >>> starts = [[0.1, 0, 0, 0], [0.2, 0, 0, 0]]
        >>> [s.status for s in rg.solve(problem.batch(start=starts))]
        ['converged', 'converged']
    """
    chosen: Solver = PDDP() if solver is None else solver
    if not hasattr(chosen, "solve"):
        raise InputError(f"a solver is rg.PDDP(…) or rg.Direct(…), not {type(chosen).__name__}")
    if isinstance(problem, Problem):
        return _solve(chosen, problem)
    problems = _checked(problem)
    if problems and getattr(chosen, "device", None) is not None:
        from rigidgrad.control.device import solve_on_device

        for p in problems:
            check_solver(chosen, p)
        return [
            _again(chosen, p, s)
            for p, s in zip(problems, solve_on_device(problems, chosen), strict=True)
        ]
    workers = min(thread_count(threads), len(problems))
    alike: dict[tuple[Any, ...], list[int]] = {}
    for k, p in enumerate(problems):
        free = None if p.timing is None else p.timing.size
        key = (id(p.programs), p.steps, free) if p.guess_states is None else (k,)
        alike.setdefault(key, []).append(k)
    found: dict[int, Solution] = {}
    for numbers in alike.values():
        own = [for_solvers(problems[k]) for k in numbers]
        if isinstance(chosen, PDDP) and supported(chosen, own):
            together = [
                as_asked(problems[k], s)
                for k, s in zip(numbers, solve_side_by_side(own, chosen, workers), strict=True)
            ]
            found |= {
                k: s
                for k, s in zip(numbers, together, strict=True)
                if not _retry(chosen, problems[k], s)
            }
    one = partial(_solve, chosen)
    others = [k for k in range(len(problems)) if k not in found]
    given = [problems[k] for k in others]
    if isinstance(chosen, PDDP):
        one = partial(_solve_in_turn, chosen, _shared_buffers(given))
    alone = (
        default_crew(workers).map(one, given)
        if workers > 1 and len(given) > 1
        else [one(p) for p in given]
    )
    found |= dict(zip(others, alone, strict=True))
    return [found[k] for k in range(len(problems))]


def _solve(solver: Solver, problem: Problem) -> Solution:
    return _again(solver, problem, solver.solve(problem))


def _shared_buffers(problems: Sequence[Problem]) -> dict[tuple[int, int], list[dict[Any, Any]]]:
    """Workspaces for problems that are solved in turn, of each kind that there are several of: one
    for each thread, kept with the first of them for the next time. Few buffers stay in the cache.
    """
    kinds: dict[tuple[int, int], list[Problem]] = {}
    for p in problems:
        kinds.setdefault(_kind(p), []).append(p)
    return {
        kind: own[0].workspaces.setdefault(_IN_TURN, [])
        for kind, own in kinds.items()
        if len(own) > 1
    }


def _kind(problem: Problem) -> tuple[int, int]:
    return id(problem.programs), problem.steps


def _solve_in_turn(
    solver: PDDP, buffers: Mapping[tuple[int, int], list[dict[Any, Any]]], problem: Problem
) -> Solution:
    """In the buffers of a problem of its kind that was solved before."""
    shared = buffers.get(_kind(problem))
    if shared is None:
        return _solve(solver, problem)
    try:  # one operation of a list: no other thread comes between
        own = shared.pop()
    except IndexError:
        own = {}
    found = _solve(solver, problem.in_buffers(own))
    shared.append(own)
    return found


def _again(solver: Solver, problem: Problem, solution: Solution) -> Solution:
    """The solution, or, if the default guess ran away, another from states held at the start: gains
    then keep what open loop does not.
    """
    if not _retry(solver, problem, solution):
        return solution
    other = problem.with_held_states()
    assert isinstance(solver, PDDP) and other is not None
    again = replace(solver, blocks=1, forward_blocks=None, backward_blocks=None).solve(other)
    if not math.isfinite(again.cost):
        return solution
    blocks = "" if max(solver.M_f, solver.M_b) == 1 else ", with blocks=1"
    return replace(
        again,
        stats=again.stats
        | {
            "guess": (
                f"states held at the start{blocks}, since its gravity compensation runs away in"
                " open loop"
            )
        },
    )


def _retry(solver: Solver, problem: Problem, solution: Solution) -> bool:
    return (
        solution.status == "diverged"
        and isinstance(solver, PDDP)
        and problem.with_held_states() is not None
    )


def _checked(problems: Any) -> list[Problem]:
    if isinstance(problems, str) or not isinstance(problems, Sequence):
        raise InputError(f"solve needs a Problem or a list of them, not {type(problems).__name__}")
    for p in problems:
        if not isinstance(p, Problem):
            raise InputError(
                f"solve needs a Problem or a list of them; the list holds a {type(p).__name__}"
            )
    return list(problems)
