"""A status rests on measures of optimality and feasibility, whatever the units; and what a solve
has learnt of its constraints goes into the next.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from constrained import problem_of
from constrained_cases import case

SOLVERS = [rg.PDDP(), rg.Direct()]

# optimal costs of bench/constrained_cases.py by IPOPT 3.14 (CasADi 3.8.2, tolerance 1e-9), which
# bench/constrained.py compares afresh
IPOPT = {
    0: 471.7512617380804, 1: 0.006335260315329918, 2: 0.24007020921418362, 3: 3.904803089145921, 6: 53320.645329669824, 7: 99.9138877217045,
    8: 55403.0503109009, 9: 4.827957290201867, 13: 91.97513047597118, 16: 25.89074576565683, 17: 17153.459904570198,
}  # fmt: skip


def disc(cost=1.0, unit=1.0, weight=20.0):
    """A point mass around a disc that is in its way, with costs and constraints in any units."""
    mass = rg.CustomSystem(lambda x, u: (x[2], x[3], u[0], u[1]), nx=4, nu=2, name="mass")
    away = rg.Inequality(
        lambda x, u: unit * (rg.math.hypot(x[0] - 0.5, x[1] - 0.02) - 0.2), lower=0.0
    )
    fast = rg.Inequality(lambda x, u: (unit * x[2], unit * x[3]), -1.2 * unit, 1.2 * unit)
    costs = [
        rg.costs.State([1.0, 0, 0, 0], weight=weight * cost, final=1000.0 * cost),
        rg.costs.Effort(0.1 * cost),
    ]
    limits = rg.Limits(constraints=[away, fast])
    return rg.Problem(mass, start=np.zeros(4), steps=40, dt=0.04, costs=costs, limits=limits)


def clearance(solution):
    return np.hypot(solution.x[:, 0] - 0.5, solution.x[:, 1] - 0.02).min() - 0.2


@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
@pytest.mark.parametrize(("a", "b", "steps"), [(-1.4, 0.047, 127), (1.5, 0.5, 100), (0.7, 2.0, 30)])
def test_a_scalar_lq_problem_ends_at_the_riccati_equations_cost(solver, a, b, steps):
    """Unstable ones too: a guess that runs away to 1e18 leaves costs that no subtraction
    survives.
    """
    q, r, final, x0 = 0.0032, 0.0011, 0.0075, 7.0
    P = final
    for _ in range(steps):
        P = q + a * P * a - (a * P * b) ** 2 / (r + b * P * b)
    system = rg.CustomSystem(lambda x, u: (a * x[0] + b * u[0],), nx=1, nu=1, discrete=True)
    costs = [rg.costs.State([0.0], weight=q, final=final), rg.costs.Effort(r)]
    found = rg.solve(rg.Problem(system, [x0], steps, 0.1, costs=costs), solver)
    assert found.status == "converged"
    assert found.cost == pytest.approx(0.5 * P * x0 * x0, rel=1e-7)


@pytest.mark.parametrize("number", IPOPT)
def test_converged_means_the_optimum_that_ipopt_finds(number):
    problem, ended = problem_of(case(number)), []
    for solver in (*SOLVERS, rg.PDDP(second_order=True)):
        found = rg.solve(problem, solver)
        ended.append(found.status)
        if found.status == "converged":
            assert found.cost == pytest.approx(IPOPT[number], rel=1e-5), solver
            assert (
                found.stats["optimality"] <= 100 * solver.tolerance
                and found.stats["violation"] <= solver.violation
            )
            assert found.stats["complementarity"] <= 1e-6
        else:
            assert number == 6, (
                "of these only the fuel of a landing, flat in the thrust, may be too hard, and"
                " says so"
            )
            assert found.message and found.stats["optimality"] > 0
    assert number == 6 or ended == ["converged"] * 3


LANDINGS = {
    14: 18526.53395820665,
    46: 38.623974262054084,
    70: 0.6301092617634334,
    110: 10400860.802442878,
    182: 432.1849611018764,
}


@pytest.mark.parametrize("number", LANDINGS)
def test_a_landing_that_is_too_flat_for_the_default_is_solved_by_what_the_message_names(number):
    """Fuel is flat in the thrust: what curvature there is comes from the dynamics, whose mass
    falls.
    """
    problem = problem_of(case(number))
    for solver in SOLVERS:
        found = rg.solve(problem, solver)
        assert found.status == "converged" or "rg.PDDP(second_order=True)" in found.message
    found = rg.solve(problem, rg.PDDP(second_order=True))
    assert is_kkt(found, rg.PDDP())
    assert found.cost == pytest.approx(LANDINGS[number], rel=1e-5)


@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
def test_the_gradient_of_the_lagrangian_vanishes_where_a_solve_converged(solver):
    """By central differences of the roll-out with the solution's own multipliers, relative to what
    its parts would be alone.
    """
    problem = disc()
    found = rg.solve(problem, solver)
    assert found.status == "converged"

    def parts(u):
        x = [problem.start]
        for control in u:
            x.append(problem.programs.step(x[-1], control, np.array(problem.dt)))
        x = np.array(x)
        c = problem.programs.constraint_values(x, np.concatenate([u, u[-1:]]), problem.p)
        return problem.cost(x, u), float((found.multipliers * c).sum())

    step, gradient = 1e-5, []
    for k in np.ndindex(found.u.shape):
        e = np.zeros_like(found.u)
        e[k] = step
        gradient.append((np.array(parts(found.u + e)) - np.array(parts(found.u - e))) / (2 * step))
    both = np.array(gradient)
    assert np.abs(found.multipliers).max() > 1.0  # the disc is in the way
    # a promise of 1e-8 of the cost leaves about its root
    assert np.abs(both.sum(axis=1)).max() <= 1e-2 * np.abs(both[:, 0]).max()


@pytest.mark.parametrize(
    ("cost", "unit"), [(1e6, 1.0), (1e-3, 1.0), (1.0, 1e-2), (1.0, 1e2), (1e3, 1e-2)]
)
@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
def test_the_units_of_costs_and_constraints_change_nothing(solver, cost, unit):
    plain, scaled = rg.solve(disc(), solver), rg.solve(disc(cost, unit), solver)
    assert scaled.status == "converged"
    assert scaled.cost == pytest.approx(cost * plain.cost, rel=1e-5)
    np.testing.assert_allclose(scaled.x, plain.x, atol=2e-3)
    # 1e-4 m, whatever the constraint is multiplied by, and rounding of the distance
    assert clearance(scaled) > -2e-4


def test_a_violated_equality_counts_on_both_of_its_sides():
    """A multiplier that pushes up must not hide that the value is below."""
    system = rg.CustomSystem(lambda x, u: (u[0],), nx=1, nu=1)
    limits = rg.Limits(constraints=[rg.Equality(lambda x, u: x[0], 1.0, at="final")])
    problem = rg.Problem(system, [0.0], 2, 0.5, costs=[rg.costs.Effort(1.0)], limits=limits)
    problem.p[:, problem.programs.columns["multiplier"]] = 100.0
    x, u = np.array([[0.0], [0.4], [0.8]]), np.array([[0.8], [0.8]])
    assert problem.constraint_status(x, u).excess == pytest.approx([0.2])


@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
def test_a_solution_as_a_guess_brings_its_multipliers(solver):
    problem = disc()
    first = rg.solve(problem, solver)
    start = np.array([0.001, -0.001, 0.0, 0.002])
    problem.update(start=start, guess=first.u)
    by_controls = rg.solve(problem, solver)
    problem.update(start=start, guess=first)
    warm = rg.solve(problem, solver)
    assert warm.status == by_controls.status == "converged"
    assert warm.cost == pytest.approx(by_controls.cost, rel=1e-5)
    assert warm.iterations <= by_controls.iterations * 2 / 3, (
        warm.iterations,
        by_controls.iterations,
    )


def test_rounding_does_not_raise_the_penalty_of_defects():
    """An acrobot with a weak motor: once defects were rounding alone, the penalty rose to 1e13 of
    noise, and every step was refused.
    """
    robot = rg.load("double_pendulum")
    costs = [rg.costs.State([np.pi, 0, 0, 0], weight=0.01, final=1000.0), rg.costs.Effort(1e-3)]
    acrobot = rg.RobotSystem(robot, actuation=np.array([[0.0], [1.0]]))
    problem = rg.Problem(
        acrobot, np.zeros(4), 100, 0.03, integrator="rk4", costs=costs, limits=rg.Limits(torque=5.0)
    )
    found = rg.solve(problem, rg.Direct(iterations=240))
    assert found.status != "stalled"
    assert found.stats["penalty"] < 1e9


def test_side_by_side_a_batch_has_the_same_measures():
    problem = disc()
    starts = np.random.default_rng(0).uniform(-0.05, 0.05, (6, 4))
    for found, start in zip(rg.solve(problem.batch(start=starts)), starts, strict=True):
        problem.update(start=start)
        alone = rg.solve(problem)
        assert found.status == alone.status == "converged"
        assert found.cost == pytest.approx(alone.cost, rel=1e-6)
        assert found.stats["optimality"] <= 1e-6 and found.stats["complementarity"] <= 1e-6
        assert found.multipliers.shape == alone.multipliers.shape


H = 2 / 30
CART = rg.CustomSystem(lambda x, u: (x[0] + H * x[1], x[1] + H * u[0]), nx=2, nu=1, discrete=True)
CARTS = rg.CustomSystem(
    lambda x, u: (x[0] + H * x[2], x[1] + H * x[3], x[2] + H * u[0], x[3] + H * u[1]),
    nx=4,
    nu=2,
    discrete=True,
)


def is_kkt(found, solver):
    """Whether what `converged` promises holds."""
    stats = found.stats
    small = (
        stats["optimality"] <= 100 * solver.tolerance and stats.get("complementarity", 0.0) <= 1e-6
    )
    return found.status == "converged" and small and stats.get("violation", 0.0) <= solver.violation


@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
def test_equalities_settle_and_their_solution_is_a_start_of_one_iteration(solver):
    """A last step that promises little still moves what renewed multipliers look at: left out, they
    were renewed 60 times for nothing.
    """
    system = rg.CustomSystem(
        lambda x, u: (x[0] + 0.1 * x[2], x[1] + 0.1 * x[3], x[2] + 0.1 * u[0], x[3] + 0.1 * u[1]),
        nx=4,
        nu=2,
        discrete=True,
    )
    costs = [
        rg.costs.State([2.0, 0, 0, 0], weight=[1, 1, 0.01, 0.01], final=1.0),
        rg.costs.Effort(1e-4),
    ]
    limits = rg.Limits(constraints=[rg.Equality(lambda x, u: u[0] + 0.5 * u[1] + 0.7 * x[2] - 0.2)])
    problem = rg.Problem(system, [1.0, -0.5, 0.3, 0.2], 20, 1.0, costs=costs, limits=limits)
    found = rg.solve(problem, solver)
    assert is_kkt(found, solver) and found.iterations <= 30
    assert found.cost == pytest.approx(6.5971493, rel=1e-6)
    problem.update(guess=found)
    again = rg.solve(problem, solver)
    assert is_kkt(again, solver) and again.iterations <= 3


def test_multipliers_that_do_not_settle_are_not_called_converged(monkeypatch):
    monkeypatch.setattr("rigidgrad.control.augmented.TIMES", 1)
    problem = disc()
    for solver in SOLVERS:
        assert rg.solve(problem, solver).status in ("slow", "stalled", "infeasible")


@pytest.mark.parametrize(
    "solver", [*SOLVERS, rg.PDDP(second_order=True)], ids=["pddp", "direct", "second order"]
)
def test_a_maximum_is_not_called_converged(solver):
    costs = [
        rg.costs.CustomValue(lambda x, u: -x[0] * x[0], weight=1.0, final=1.0),
        rg.costs.Effort(1e-3),
    ]
    found = rg.solve(rg.Problem(CART, [0, 0], 30, 1.0, costs=costs), solver)
    assert found.status == "stalled" and found.stats["optimality"] == np.inf


def flat(which):
    """Problems whose Hessian is singular."""
    if which == "a control without a cost":
        at = rg.Equality(lambda x, u: (x[0], x[1] - 1.0), at="final")
        return rg.Problem(
            CARTS,
            [1, 0, 0, 0],
            30,
            1.0,
            costs=[rg.costs.Effort([1.0, 0.0])],
            limits=rg.Limits(constraints=[at]),
        )
    if which == "a control that changes nothing":
        costs = [
            rg.costs.Custom(lambda x, u: (x[0], x[2]), weight=1.0, final=1.0),
            rg.costs.Effort([1.0, 0.0]),
        ]
        return rg.Problem(CARTS, [1, 0, 0, 0], 30, 1.0, costs=costs)
    return rg.Problem(
        CART,
        [0, 0],
        30,
        1.0,
        costs=[rg.costs.Custom(lambda x, u: x[0] - 1, final=1.0)],
        guess=np.ones((30, 1)),
    )


@pytest.mark.parametrize(("which", "cost"), [("a control without a cost", 2.958796), ("a control that changes nothing", 12.046676), ("many ways to one end", 0.0)])  # fmt: skip
def test_where_the_hessian_is_singular_optimality_is_still_measured(which, cost):
    problem = flat(which)
    for solver in (
        *SOLVERS,
        rg.PDDP(second_order=True),
        rg.PDDP(dtype="float32"),
        rg.PDDP(blocks=3),
    ):
        found = rg.solve(problem, solver)
        assert is_kkt(found, solver), solver
        assert found.cost == pytest.approx(cost, rel=1e-6, abs=1e-15)
    for found in rg.solve([problem] * 4):
        assert is_kkt(found, rg.PDDP())


@pytest.mark.parametrize("solver", SOLVERS, ids=["pddp", "direct"])
def test_a_cost_of_zero_is_an_optimum_at_once(solver):
    limits = rg.Limits(constraints=[rg.Equality(lambda x, u: x[0], at="final")])
    found = rg.solve(
        rg.Problem(CART, [0, 0], 30, 1.0, costs=[rg.costs.Effort(1.0)], limits=limits), solver
    )
    assert is_kkt(found, solver) and found.iterations <= 3


@pytest.mark.filterwarnings("error")
def test_costs_that_bend_downwards_leave_penalties_that_float32_holds():
    value = rg.costs.CustomValue(
        lambda x, u: (
            rg.math.sin(2.0 * x[0]) * rg.math.cos(2.0 * x[1]) + 0.05 * (x[0] ** 2 + x[1] ** 2)
        ),
        weight=1.0,
        final=1.0,
    )
    inside = rg.Inequality(lambda x, u: (x[0] + x[1], x[2]), [-2.6, -2.5], [2.6, 2.5])
    limits = rg.Limits(torque=8.0, constraints=[inside])
    problem = rg.Problem(
        CARTS, [0.1, 0.2, 0.3, -0.2], 30, 1.0, costs=[value, rg.costs.Effort(1e-2)], limits=limits
    )
    for solver in (*SOLVERS, rg.PDDP(dtype="float32")):
        found = rg.solve(problem, solver)
        assert is_kkt(found, solver) and found.cost == pytest.approx(-21.2827433, rel=1e-6)
        assert found.penalties.min() > 1e-12


@pytest.mark.parametrize("solver", [*SOLVERS, rg.PDDP(blocks=3)], ids=["pddp", "direct", "blocks"])
def test_a_cost_that_is_no_number_is_not_blamed_on_the_states(solver):
    costs = [
        rg.costs.Effort(1.0),
        rg.costs.Custom(lambda x, u: rg.math.sqrt(x[0] - 1.0), final=1.0),
    ]
    problem = rg.Problem(CART, [0, 0], 30, 1.0, costs=costs)
    for found in (rg.solve(problem, solver), rg.solve([problem] * 4)[0]):
        assert (
            found.status == "undefined"
            and "a cost" in found.message
            and "first guess" not in found.message
        )


@pytest.mark.parametrize("solver", [rg.PDDP, rg.Direct])
@pytest.mark.parametrize("option", [{"tolerance": -1e-8}, {"tolerance": np.nan}, {"violation": 0.0}, {"iterations": 10.0}, {"iterations": -1}, {"regularization": (1.0, 0.1)}, {"accept": 3}])  # fmt: skip
def test_options_that_mean_nothing_are_errors(solver, option):
    with pytest.raises(InputError, match=next(iter(option))):
        solver(**option)
