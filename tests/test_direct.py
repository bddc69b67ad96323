"""Direct trajectory optimisation: every linear solver and preconditioner reaches the known optima;
defects close; bounds and constraints hold; what fails says so.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_control import P1_GOAL, P1_START, p1

import rigidgrad as rg
from rigidgrad.control.direct import Direct, Run, transport
from rigidgrad.control.linear.preconditioners import PRECONDITIONERS
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.scalars import sincos

PI = np.pi
# of P1 with the published code's weights
OPTIMA = {"semi_implicit_euler": 23.234346, "euler": 23.67524}
TEXT_OPTIMUM = 69.18687  # with the weights of the text
PENDULUM = rg.CustomSystem(
    lambda x, u: (x[1], u[0] - 9.81 * sincos(x[0])[0]), 2, 1, name="pendulum"
)


def swing_up(**options):
    costs = [rg.costs.State([PI, 0.0], weight=0.01, final=1000.0), rg.costs.Effort(0.01)]
    return rg.Problem(
        PENDULUM, start=[0.0, 0.0], steps=100, dt=0.03, integrator="rk4", costs=costs, **options
    )


def quadrotor():
    robot, arm, drag = rg.load("quadrotor"), 0.175, 0.0245
    actuation = np.zeros((6, 4))
    actuation[2] = 1.0
    actuation[3], actuation[4], actuation[5] = (
        (0, arm, 0, -arm),
        (-arm, 0, arm, 0),
        (drag, -drag, drag, -drag),
    )
    goal = np.r_[1.0, -0.5, 1.5, 0, 0, np.sin(0.4), np.cos(0.4), np.zeros(6)]
    start = np.r_[np.zeros(6), 1.0, np.zeros(6)]
    costs = [
        rg.costs.State(goal, weight=0.01, final=100.0),
        rg.costs.Effort(0.01, reference=0.5 * 9.81 / 4),
    ]
    return (
        robot,
        rg.Problem(rg.RobotSystem(robot, actuation), start=start, steps=40, dt=0.04, costs=costs),
        goal,
    )


def assert_feasible(problem, solution):
    """The states are what the controls lead to from the start, and the cost is theirs."""
    after, _ = problem.evaluate(solution.x, solution.u)
    assert abs(problem.minus(after, solution.x[1:])).max() < 1e-9
    np.testing.assert_array_equal(solution.x[0], problem.start)
    assert abs(problem.cost(solution.x, solution.u) - solution.cost) <= 1e-12 * abs(solution.cost)


# --- the same optimum by every way ----------------------------------------------------------------

WAYS = [
    {"linear_solver": "riccati"},
    {"linear_solver": "riccati", "choose": "largest"},
    {"linear_solver": "block_cholesky"},
    {"linear_solver": "cyclic_reduction"},
    *({"linear_solver": "pcg", "preconditioner": p} for p in PRECONDITIONERS if p != "none"),
    *(
        {"linear_solver": "red_black", "preconditioner": p}
        for p in ("jacobi", "block_jacobi", "stair", "symmetric_stair")
    ),
    {"linear_solver": "red_black", "preconditioner": "none", "reductions": 3},
    {"linear_solver": "pcg", "polynomial": 2},
    {"linear_solver": "pcg", "preconditioner": "block_jacobi", "polynomial": 3},
    {"linear_solver": "pcg", "reductions": 4},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda w: " ".join(map(str, w.values())))
def test_every_linear_solver_reaches_the_optimum(way):
    problem = p1()
    solution = rg.solve(problem, Direct(**way))
    assert solution.converged
    optimum = OPTIMA["semi_implicit_euler"]
    assert abs(solution.cost - optimum) < 1e-6 * optimum
    assert_feasible(problem, solution)
    assert solution.stats["linear_unsolved"] == 0


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"linear_solver": "block_cholesky"},
        {"linear_solver": "pcg"},
        {"linear_solver": "red_black"},
    ],
    ids=str,
)
def test_explicit_euler_and_the_text_weights_reach_theirs(way):
    solution = rg.solve(p1(integrator="euler"), Direct(**way))
    assert solution.converged and abs(solution.cost - OPTIMA["euler"]) < 1e-6 * OPTIMA["euler"]
    if way.get("linear_solver") != "pcg":  # which takes ten times as long
        solution = rg.solve(p1(0.01, 1e-3), Direct(**way))
        assert solution.converged and abs(solution.cost - TEXT_OPTIMUM) < 1e-6 * TEXT_OPTIMUM


@pytest.mark.parametrize("solver", ["kkt", "pcg"])
def test_the_slow_baselines_reach_the_optimum_of_a_smaller_problem(solver):
    costs = [rg.costs.State([PI, 0.0], weight=1.0, final=100.0), rg.costs.Effort(0.1)]
    problem = rg.Problem(
        PENDULUM, start=[0.0, 0.0], steps=19, dt=0.1, integrator="euler", costs=costs
    )
    best = rg.solve(problem, Direct()).cost
    solution = rg.solve(problem, Direct(linear_solver=solver, preconditioner="none"))
    assert solution.converged and abs(solution.cost - best) < 1e-6 * best
    assert abs(rg.solve(problem, rg.PDDP()).cost - best) < 1e-6 * best


def test_a_linear_system_with_quadratic_costs_takes_one_step():
    """And lands where the optimality conditions, written down densely, have their solution."""
    N, h = 9, 0.1
    system = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1, name="double_integrator")
    costs = [rg.costs.State([1.0, 0.0], weight=0.01, final=10.0), rg.costs.Effort(1e-4)]
    problem = rg.Problem(system, start=[0.0, 0.0], steps=N, dt=h, integrator="euler", costs=costs)
    solution = rg.solve(problem, Direct())
    assert solution.converged and solution.iterations == 2 and solution.stats["steps"] == [1.0]
    # x_k = Σ M_kj u_j: minimise over u alone
    A, B = np.array([[1, h], [0, 1]]), np.array([0, h])
    M = np.zeros((N + 1, 2, N))
    for k in range(N):
        M[k + 1] = A @ M[k]
        M[k + 1, :, k] += B
    weight = np.r_[np.full(N, 0.01), 10.0]
    H = np.einsum("k,kij,kil->jl", weight, M, M) + 1e-4 * np.eye(N)
    u = np.linalg.solve(H, np.einsum("k,kij,i->j", weight, M, [1.0, 0.0]))
    np.testing.assert_allclose(solution.u[:, 0], u, rtol=0, atol=1e-9 * abs(u).max())


def test_a_solution_is_feasible_and_its_cost_true():
    """By an independent simulation: Pinocchio's forward dynamics, and sums written out here."""
    pin = pytest.importorskip("pinocchio")
    from importlib import resources

    solution = rg.solve(p1(), Direct(linear_solver="red_black"))
    model = pin.buildModelFromUrdf(
        str(resources.files("rigidgrad.model") / "robots" / "iiwa14.urdf")
    )
    data = model.createData()
    q, v, h, cost = P1_START[:7].copy(), P1_START[7:].copy(), 0.5 / 63, 0.0
    weight = np.r_[np.full(7, 0.1), np.full(7, 0.001)]
    for k, u in enumerate(solution.u):
        np.testing.assert_allclose(np.r_[q, v], solution.x[k], rtol=0, atol=1e-7)
        e = np.r_[q, v] - P1_GOAL
        cost += e @ (weight * e) / 2 + 1e-4 * (u @ u) / 2
        v = v + h * pin.aba(model, data, q, v, u)
        q = q + h * v
    e = np.r_[q, v] - P1_GOAL
    assert abs(cost + 1000 * (e @ e) / 2 - solution.cost) < 1e-9 * solution.cost


def test_gains_are_those_of_the_optimum():
    direct, shooting = (
        rg.solve(p1(), Direct(tolerance=1e-12)),
        rg.solve(p1(), rg.PDDP(tolerance=1e-13)),
    )
    # both stop near the optimum, where gains differ by as much as trajectories do
    assert abs(direct.x - shooting.x).max() < 1e-3
    assert abs(direct.gains - shooting.gains).max() < 1e-2 * abs(shooting.gains).max()


# --- defects --------------------------------------------------------------------------------------


def test_a_guess_of_states_need_not_be_feasible_nor_begin_at_the_start():
    guess = np.linspace(P1_START, P1_GOAL, 64)
    guess[0] += 0.1
    problem = p1(guess=(guess, p1().guess))
    solution = rg.solve(problem, Direct())
    assert solution.stats["gaps"][0] > 1 and solution.stats["gaps"][-1] < 1e-4
    assert (
        solution.converged
        and abs(solution.cost - OPTIMA["semi_implicit_euler"]) < 1e-6 * solution.cost
    )
    assert_feasible(problem, solution)


def test_dynamics_that_explode_are_tamed_by_states_of_their_own():
    """The roll-out of the first guess is infinite; the states are held at the start instead, and
    the defects closed.
    """
    wild = rg.CustomSystem(lambda x, u: (x[0] * x[0] * x[0] + u[0],), 1, 1, name="wild")
    costs = [rg.costs.State([0.0], 1.0, 1.0), rg.costs.Effort(1e-4)]
    problem = rg.Problem(wild, start=[3.0], steps=40, dt=0.1, integrator="euler", costs=costs)
    assert rg.solve(problem, rg.PDDP()).status == "diverged"
    solution = rg.solve(problem, Direct())
    assert solution.converged
    assert_feasible(problem, solution)
    assert abs(solution.x[-1, 0]) < 0.1


def test_the_linearised_dynamics_lead_into_the_tangent_space_of_the_next_state():
    """By central differences of f(x ⊕ dx, u + du) ⊖ x_next, then moved by dx_next: exact also
    across large gaps in rotation.
    """
    robot, problem, _ = quadrotor()
    rng = np.random.default_rng(4)
    N, n, m = problem.steps, problem.system.ndx, problem.system.nu
    q = robot.random(batch=(N + 1,), seed=1).q
    x = np.c_[q, 0.3 * rng.normal(size=(N + 1, 6))]
    u = rng.normal(size=(N, m))
    e = problem.linearize(x, u)
    gap = problem.minus(e.next, x[1:])
    assert abs(gap[:, 3:6]).max() > 2  # rad
    A, B = transport(problem, e.A, e.B, gap)
    eps = 1e-6

    def left(dx, du, dx_next):
        """The gap after a step, seen from x_next: (x_next ⊕ dx_next) comes nearer by dx_next if it
        goes along the gap.
        """
        moved = problem.linearize(problem.plus(x, dx), u + du).next
        return problem.minus(moved, problem.plus(x[1:], dx_next))

    for _ in range(3):
        dx, du = rng.normal(size=(N + 1, n)), rng.normal(size=(N, m))
        dx_next = np.einsum("kij,kj->ki", A, dx[:-1]) + np.einsum("kij,kj->ki", B, du)
        # with dx_next as the linearised dynamics want it, the gap does not change to first order
        change = (
            left(eps * dx, eps * du, eps * dx_next) - left(-eps * dx, -eps * du, -eps * dx_next)
        ) / (2 * eps)
        usual = (
            left(eps * dx, eps * du, 0 * dx_next) - left(-eps * dx, -eps * du, 0 * dx_next)
        ) / (2 * eps)
        assert abs(change).max() < 1e-5 * abs(usual).max()


def test_a_quadrotor_flies_to_a_pose_from_an_infeasible_guess():
    robot, problem, goal = quadrotor()
    part = np.linspace(0, 1, 41)[:, None]
    poses = robot.integrate(problem.start[:7], part * robot.difference(problem.start[:7], goal[:7]))
    guess = np.c_[poses, np.zeros((41, 6))], problem.guess
    plain = rg.solve(problem, Direct())
    problem.update(guess=guess)
    solution = rg.solve(problem, Direct(linear_solver="cyclic_reduction"))
    for s in (plain, solution):
        assert s.converged
        assert_feasible(problem, s)
        assert np.linalg.norm(robot.difference(goal[:7], s.x[-1, :7])) < 0.1
    assert abs(plain.cost - solution.cost) < 1e-6 * plain.cost


# --- bounds and constraints -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [{}, {"linear_solver": "block_cholesky"}, {"linear_solver": "red_black", "reductions": 2}],
    ids=str,
)
def test_bounded_controls_stay_within_and_are_optimal_there(way):
    problem = swing_up(limits=rg.Limits(torque=4.0))
    solution = rg.solve(problem, Direct(**way))
    assert solution.converged
    assert_feasible(problem, solution)
    assert abs(solution.u).max() <= 4.0 and (abs(solution.u) == 4.0).sum() > 5
    # first-order conditions, by the adjoint of the trajectory: zero inside, outward at the bounds
    e = problem.linearize(solution.x, solution.u)
    lam, gradient = e.lx[-1], np.empty_like(solution.u)
    for k in range(problem.steps - 1, -1, -1):
        gradient[k] = e.lu[k] + e.B[k].T @ lam
        lam = e.lx[k] + e.A[k].T @ lam
    inside = abs(solution.u) < 4.0
    assert abs(gradient[inside]).max() < 1e-3 * abs(e.lu).max()
    assert (gradient[~inside] * np.sign(solution.u[~inside]) < 1e-6).all()
    other = rg.solve(problem, rg.PDDP())
    assert abs(solution.cost - other.cost) < 1e-6 * other.cost


def test_controls_bounded_on_one_side_or_held():
    free = rg.solve(swing_up(), Direct())
    least = np.full((100, 1), -np.inf)
    least[:50] = 0.0
    most = np.full((100, 1), np.inf)
    most[20:25], least[20:25] = 0.5, 0.5
    solution = rg.solve(swing_up(limits=rg.Limits(torque=(least, most))), Direct())
    assert solution.converged
    assert (solution.u >= least).all() and (solution.u <= most).all()
    assert solution.cost > free.cost


@pytest.mark.parametrize("way", [{}, {"linear_solver": "red_black", "reductions": 2}], ids=str)
def test_constraints_hold(way):
    """A speed limit by the augmented Lagrangian; the optimum is the one that parallel DDP finds."""
    problem = swing_up(
        limits=rg.Limits(constraints=[rg.Inequality(lambda x, u: (x[1],), -3.0, 3.0)])
    )
    solution = rg.solve(problem, Direct(**way))
    assert solution.converged
    assert_feasible(problem, solution)
    assert abs(rg.solve(swing_up(), Direct()).x[:, 1]).max() > 3.5
    assert abs(solution.x[:, 1]).max() < 3 + 1e-4 and solution.stats["violation"] <= 1e-4
    other = rg.solve(problem, rg.PDDP())
    assert abs(solution.cost - other.cost) < 1e-3 * other.cost


def test_an_arm_within_all_its_limits():
    robot, rng = rg.load("iiwa14"), np.random.default_rng(0)
    limits = robot.limits
    for _ in range(2):
        a, b = rng.uniform(0.9 * limits.lower, 0.9 * limits.upper, (2, 7))
        costs = [
            rg.costs.State(
                np.r_[b, np.zeros(7)], np.r_[np.full(7, 0.1), np.full(7, 0.001)], 1000.0
            ),
            rg.costs.Effort(1e-4),
        ]
        problem = rg.Problem(
            robot, start=np.r_[a, np.zeros(7)], steps=100, dt=0.015, costs=costs, limits=limits
        )
        solution = rg.solve(problem, Direct())
        assert solution.converged
        assert_feasible(problem, solution)
        assert abs(solution.x[-1, :7] - b).max() < 0.05
        assert (abs(solution.u) <= limits.effort).all()
        assert (solution.x[:, :7] >= limits.lower - 1e-4).all() and (
            solution.x[:, :7] <= limits.upper + 1e-4
        ).all()
        assert (abs(solution.x[:, 7:]) <= limits.velocity + 1e-4).all()


def test_contradictory_constraints_end_with_a_status():
    limits = rg.Limits(
        constraints=[
            rg.Inequality(lambda x, u: (x[0],), 1.0, 2.0),
            rg.Inequality(lambda x, u: (x[0],), -2.0, -1.0),
        ]
    )
    solution = rg.solve(swing_up(limits=limits), Direct())
    assert (
        solution.status in ("infeasible", "iterations", "stalled")
        and solution.stats["violation"] > 0.5
    )
    assert solution.message


# --- what is reported -----------------------------------------------------------------------------


def test_solves_of_one_run_are_alike():
    run = Run(p1(), Direct(linear_solver="red_black", reductions=3))
    first, second = run.solve(), run.solve()
    np.testing.assert_array_equal(first.u, second.u)
    assert (
        first.iterations == second.iterations and first.stats["history"] == second.stats["history"]
    )


def test_a_run_goes_over_to_other_numbers():
    problem = p1()
    other = problem.batch(start=[P1_GOAL])[0]
    run = Run(problem, Direct())
    run.solve()
    run.adopt(other)
    np.testing.assert_array_equal(run.solve().u, rg.solve(other, Direct()).u)


def test_several_problems_are_solved_as_each_alone():
    problem = swing_up()
    many = problem.batch(start=[[0.0, 0.0], [0.5, 0.0], [1.0, -1.0]])
    for one, together in zip(many, rg.solve(many, Direct(), threads=2), strict=True):
        alone = rg.solve(one, Direct())
        assert alone.cost == together.cost and alone.iterations == together.iterations


def test_what_happened_is_told():
    solution = rg.solve(p1(), Direct(linear_solver="pcg", iterations=3))
    assert solution.status == "iterations" and "iterations=" in solution.message
    stats = solution.stats
    assert set(stats["seconds"]) == {"linearize", "linear", "search", "roll_out"} and all(
        t > 0 for t in stats["seconds"].values()
    )
    assert len(stats["history"]) == len(stats["gaps"]) == 4 and len(stats["steps"]) == 3
    assert len(stats["linear_iterations"]) >= 3 and min(stats["linear_iterations"]) > 50
    assert_feasible(p1(), solution)


def test_few_iterations_are_no_worse_than_the_guess():
    """Broken off with open defects, a roll-out may lead anywhere."""
    first = p1().cost(np.tile(P1_START, (64, 1)), p1().guess)
    for count in (0, 1, 2, 5):
        solution = rg.solve(p1(), Direct(iterations=count))
        assert solution.cost <= first * (1 + 1e-12)
        assert_feasible(p1(), solution)


def test_an_optimum_of_zero_is_recognised():
    system = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1, name="double_integrator")
    for start, costs in (
        ([1.0, 0.0], [rg.costs.State([1.0, 0.0], 1.0, 1.0), rg.costs.Effort(1.0)]),  # there already
        ([0.0, 0.0], [rg.costs.State([1.0, 0.0], final=1.0), rg.costs.Effort(0.0)]),  # for free
    ):
        problem = rg.Problem(system, start=start, steps=9, dt=0.1, integrator="euler", costs=costs)
        for name in ("riccati", "block_cholesky", "red_black"):
            solution = rg.solve(problem, Direct(linear_solver=name))
            assert solution.converged and solution.cost < 1e-12, name


def test_conjugate_gradients_that_do_not_get_there_are_counted_and_never_called_converged():
    solution = rg.solve(swing_up(), Direct(linear_solver="pcg", linear_iterations=3, iterations=20))
    assert solution.stats["linear_unsolved"] > 0 and not solution.converged


def test_singular_weights_are_solved_by_all():
    """A cost of the last state alone: Q is zero on the way, where a Schur complement needs it
    positive definite.
    """
    costs = [rg.costs.State([PI, 0.0], final=1000.0), rg.costs.Effort(0.01)]
    problem = rg.Problem(
        PENDULUM, start=[0.0, 0.0], steps=50, dt=0.05, integrator="rk4", costs=costs
    )
    best = rg.solve(problem, Direct())
    assert best.converged
    for way in (
        {"linear_solver": "block_cholesky"},
        {"linear_solver": "cyclic_reduction"},
        {"linear_solver": "red_black", "reductions": 2},
    ):
        solution = rg.solve(problem, Direct(**way))
        assert solution.converged and abs(solution.cost - best.cost) < 1e-6 * best.cost, way


def test_no_cost_of_the_controls_at_all():
    costs = [rg.costs.State([PI, 0.0], weight=1.0, final=1000.0)]
    problem = rg.Problem(
        PENDULUM,
        start=[0.0, 0.0],
        steps=30,
        dt=0.05,
        integrator="rk4",
        costs=costs,
        limits=rg.Limits(torque=20.0),
    )
    for way in ({}, {"linear_solver": "block_cholesky"}):
        solution = rg.solve(problem, Direct(**way))
        assert (
            solution.status in ("converged", "stalled", "iterations")
            and abs(solution.u).max() <= 20.0
        )
        assert abs(solution.x[-1, 0] - PI) < 0.05
        assert_feasible(problem, solution)


def test_dynamics_without_end_give_a_status():
    wild = rg.CustomSystem(
        lambda x, u: (x[0] * x[0] * x[0] * x[0] * x[0],), 1, 1, name="out_of_reach"
    )
    costs = [rg.costs.State([0.0], 1.0, 1.0), rg.costs.Effort(1.0)]
    solution = rg.solve(
        rg.Problem(wild, start=[50.0], steps=50, dt=0.1, integrator="euler", costs=costs), Direct()
    )
    assert solution.status in ("diverged", "stalled") and solution.message


@pytest.mark.parametrize(
    ("options", "error", "fragment"),
    [
        ({"linear_solver": "choleski"}, UnknownNameError, "block_cholesky"),
        ({"preconditioner": "ilu"}, UnknownNameError, "block_jacobi"),
        ({"polynomial": -1}, InputError, "whole number"),
        ({"linear_solver": "pcg", "reductions": -2}, InputError, "levels"),
        ({"reductions": 2}, InputError, "red_black"),
        ({"tolerance": np.nan}, InputError, "tolerance"),
        ({"accept": (1.0, 0.5)}, InputError, "range"),
        ({"regularization": (0.0, 1.0)}, InputError, "range"),
        ({"linear_iterations": 0}, InputError, "at least 1"),
        ({"choose": "first"}, InputError, "largest"),
        ({"iterations": -1}, InputError, "at least 0"),
        ({"alphas": 0}, InputError, "at least 1"),
        ({"linear_tolerance": np.nan}, InputError, "at least 0"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_wrong_options_say_what_there_is(options, error, fragment):
    with pytest.raises(error, match=fragment):
        Direct(**options)
