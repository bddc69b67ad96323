"""Parallel DDP: every variant reaches the same optimum; batches equal single solves; second
derivatives; nothing is compiled twice.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_control import P1_GOAL, P1_START, p1

import rigidgrad as rg
from rigidgrad.control import integrators
from rigidgrad.control.batch import supported
from rigidgrad.control.curvature import curvature
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.program.recorder import record
from rigidgrad.runtime.job import host_lanes

OPTIMUM = 23.2343457  # of P1, as Crocoddyl and aligator find it


def iterations_to(solution, part):
    history = np.array(solution.stats["history"])
    return int(np.argmax(history <= OPTIMUM * (1 + part)))


def test_few_iterations():
    solution = rg.solve(p1())
    assert solution.converged and abs(solution.cost - OPTIMUM) < 1e-6 * OPTIMUM
    assert iterations_to(solution, 1e-6) <= 8


@pytest.mark.parametrize(
    "options",
    [
        {"choose": "largest"},
        {"choose": "best"},
        {"alphas": 8},
        {"alphas": (1.0, 0.5, 0.1)},
        {"alphas": 19},
        {"blocks": 2},
        {"blocks": 4},
        {"forward_blocks": 8},
        {"forward_blocks": 63},
        {"forward_blocks": 5, "threads": 2},
        {"backward_blocks": 2},
        {"backward_blocks": 5, "threads": 2},
        {"forward_blocks": 3, "backward_blocks": 2},
        {"dtype": "float32"},
        {"second_order": True},
    ],
    ids=str,
)
def test_every_variant_reaches_the_optimum(options):
    solution = rg.solve(p1(), rg.PDDP(**options))
    assert solution.converged, solution
    # with stale cost-to-go the last part is slow, and a solve stops where the cost falls by less
    # than 1e-8 of it
    assert (
        abs(solution.cost - OPTIMUM)
        < (1e-6 if options.get("backward_blocks", options.get("blocks", 1)) == 1 else 1e-5)
        * OPTIMUM
    )
    # feasible, whatever defects there were on the way
    after, _ = p1().evaluate(solution.x, solution.u)
    np.testing.assert_allclose(after, solution.x[1:], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(solution.x[0], P1_START)


def test_single_precision_ends_at_the_double_optimum():
    assert abs(rg.solve(p1(), rg.PDDP(dtype="float32")).cost - OPTIMUM) < 1e-5 * OPTIMUM


def test_second_order_converges_quadratically():
    first, second = (rg.solve(p1(0.01, 1e-3), rg.PDDP(second_order=s)) for s in (False, True))
    assert second.iterations < first.iterations / 2
    assert abs(second.cost - first.cost) < 1e-6 * first.cost


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_guess_of_states_is_made_feasible(dtype):
    q = np.linspace(P1_START[:7], P1_GOAL[:7], 64)
    x = np.c_[q, np.gradient(q, 0.5 / 63, axis=0)]
    robot = rg.load("iiwa14")
    problem = p1(guess=(x, np.array([robot.gravity_torque(a) for a in q[:-1]])))
    solution = rg.solve(problem, rg.PDDP(dtype=dtype))
    assert solution.converged and abs(solution.cost - OPTIMUM) < 1e-6 * OPTIMUM
    after, _ = problem.evaluate(solution.x, solution.u)
    np.testing.assert_allclose(after, solution.x[1:], rtol=0, atol=1e-9)
    with pytest.raises(InputError, match="blocks=1"):
        rg.solve(problem, rg.PDDP(blocks=2))


def curved_steps():
    small = [
        RobotSystem(rg.load("double_pendulum")),
        RobotSystem(rg.load("cartpole"), actuation=[[1.0], [0.0]]),
        CustomSystem(lambda x, u: (x[1] * u[0], u[0] * u[0] - rg.math.sin(x[0])), 2, 1),
    ]
    yield from ((system, method) for system in small for method in integrators.METHODS)
    # one implicit and one staged method are enough for the slowest system
    yield from (
        (RobotSystem(rg.load("quadrotor"), "all"), method)
        for method in ("semi_implicit_euler", "rk4")
    )


@pytest.mark.parametrize(
    ("system", "method"), list(curved_steps()), ids=lambda x: getattr(x, "name", x)
)
def test_curvature_is_the_derivative_of_the_jacobian(system, method):
    rng = np.random.default_rng(4)
    n, m, h = system.ndx, system.nu, 0.05
    x = (
        np.r_[system.robot.random(seed=1).q, rng.normal(size=system.nv)]
        if isinstance(system, RobotSystem)
        else rng.normal(size=system.nx)
    )
    u, v = rng.normal(size=m), rng.normal(size=n)
    shapes = {"x": (system.nx,), "u": (m,), "v": (n,)}
    program = record(
        shapes,
        {"H": (n + m, n + m)},
        lambda p: (curvature(system, method, p["x"], p["u"], h, p["v"]),),
    )
    H = np.array(program.interpret({"x": tuple(x), "u": tuple(u), "v": tuple(v)})[0], float)
    np.testing.assert_allclose(H, H.T, atol=1e-10 * max(1.0, abs(H).max()))

    def weighted(d):
        moved = integrators.step(
            system, method, system.plus(tuple(x), tuple(d[:n])), tuple(u + d[n:]), h
        )
        return v @ np.array(system.minus(moved, y), float)

    y = integrators.step(system, method, tuple(x), tuple(u), h)
    e = 1e-4 * np.eye(n + m)
    for i in range(n + m):
        for j in range(i + 1):
            numeric = (
                weighted(e[i] + e[j])
                - weighted(e[i] - e[j])
                - weighted(e[j] - e[i])
                + weighted(-e[i] - e[j])
            ) / 4e-8
            # rounding of 1e-16 over 4e-8, and fourth derivatives times 1e-8
            assert abs(H[i, j] - numeric) < 2e-6 * max(1.0, abs(H).max()), (i, j)


# --- batches --------------------------------------------------------------------------------------


def goals(count):
    limits = rg.load("iiwa14").limits
    return np.c_[
        np.random.default_rng(2).uniform(0.4 * limits.lower, 0.4 * limits.upper, (count, 7)),
        np.zeros((count, 7)),
    ]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_a_batch_equals_single_solves(count, threads):
    problems = p1().batch(targets={0: goals(count)})
    together = rg.solve(problems, threads=threads)
    assert len(together) == count
    for problem, found in zip(problems, together, strict=True):
        alone = rg.solve(problem)
        # lanes of problems factorise in another order: rounding, which wild first motions amplify
        # (as a start 1e-13 off does), and which can stretch a slow tail by an iteration
        assert (
            found.status == alone.status
            and abs(found.iterations - alone.iterations) <= 1 + alone.iterations // 20
        )
        np.testing.assert_allclose(
            found.stats["history"][:2], alone.stats["history"][:2], rtol=1e-8
        )
        assert found.cost == pytest.approx(alone.cost, rel=1e-7)
        if found.iterations == alone.iterations:
            np.testing.assert_allclose(found.x, alone.x, rtol=0, atol=1e-5)
            np.testing.assert_allclose(
                found.gains, alone.gains, rtol=0, atol=1e-4 * abs(alone.gains).max()
            )


@pytest.mark.parametrize(
    "options",
    [{"dtype": "float32"}, {"choose": "best", "alphas": 11}, {"iterations": 3}, {"blocks": 2}],
    ids=str,
)
def test_options_hold_for_batches(options):
    problems = p1().batch(targets={0: goals(3)})
    for problem, found in zip(problems, rg.solve(problems, rg.PDDP(**options)), strict=True):
        alone = rg.solve(problem, rg.PDDP(**options))
        # three iterations end among wild motions, which amplify rounding
        assert found.status == alone.status and found.cost == pytest.approx(
            alone.cost, rel=1e-2 if "iterations" in options else 1e-6
        )


def test_a_batch_with_limits_and_a_bad_start_among_good_ones():
    robot = rg.load("iiwa14")
    count = 9
    base = p1(limits=rg.Limits(torque=True, position=True, velocity=20.0))
    starts = np.tile(P1_START, (count, 1))
    starts[:, :7] += np.random.default_rng(0).uniform(-0.2, 0.2, (count, 7))
    starts[4, 7:] = 1e160  # overflows in the first step
    problems = base.batch(
        start=starts, targets={0: goals(count)}, weights={1: np.full(count, 2e-4)}
    )
    found = rg.solve(problems, rg.PDDP(tolerance=1e-6))
    assert found[4].status == "diverged"
    for k, solution in enumerate(found):
        if k != 4:
            assert solution.converged and solution.stats["violation"] <= 1e-4
            assert (abs(solution.u) <= robot.limits.effort).all()
            assert (abs(solution.x[:, 7:]) <= 20.0 + 1e-4).all()
            alone = rg.solve(problems[k], rg.PDDP(tolerance=1e-6))
            assert solution.cost == pytest.approx(alone.cost, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_problem_does_not_feel_its_neighbours(dtype):
    problems, options = (
        p1(limits=rg.Limits(torque=True)).batch(targets={0: goals(23)}),
        rg.PDDP(dtype=dtype, iterations=12),
    )
    one = rg.solve(problems, options, threads=1)
    for others in (
        rg.solve(problems, options, threads=2),
        rg.solve(problems[::-1], options, threads=1)[::-1],
        rg.solve(problems[:5], options),
    ):
        for a, b in zip(one, others, strict=False):
            assert (
                a.status == b.status
                and np.array_equal(a.x, b.x)
                and np.array_equal(a.u, b.u)
                and np.array_equal(a.gains, b.gains)
            )


def test_the_last_problem_alone_in_all_lanes_has_the_same_bits():
    limits = rg.Limits(torque=True, position=True, velocity=20.0)
    problems, options = p1(limits=limits).batch(targets={0: goals(6)}), rg.PDDP(tolerance=1e-6)
    forward, backward = (
        rg.solve(problems, options, threads=1),
        rg.solve(problems[::-1], options, threads=1)[::-1],
    )
    assert len({s.iterations for s in forward}) > 2  # so that they end one after the other
    for a, b in zip(forward, backward, strict=True):
        assert (
            a.status == b.status
            and a.iterations == b.iterations
            and np.array_equal(a.x, b.x)
            and np.array_equal(a.gains, b.gains)
        )


def test_a_problem_that_comes_last_into_a_free_lane():
    # one more than there is room for; all others end at once
    count, options = (4 * host_lanes("float64") + 1, rg.PDDP(iterations=3))
    problems = p1().batch(targets={0: goals(count)})
    last, known = (
        rg.solve(problems, options, threads=1)[-1],
        rg.solve(problems[-3:], options, threads=1)[-1],
    )
    assert (
        last.status == known.status
        and last.iterations == known.iterations
        and np.array_equal(last.x, known.x)
    )


def test_steps_of_a_batch_may_have_lengths_of_their_own():
    robot = rg.load("double_pendulum")
    phases = [rg.Phase(6), rg.Phase(6, dt=0.04)]
    costs = [rg.costs.State(np.r_[0.5, 0.2, 0.0, 0.0], 0.1, 100.0), rg.costs.Effort(1e-2)]
    problems = rg.Problem(robot, start=np.zeros(4), dt=0.02, phases=phases, costs=costs).batch(
        start=0.1 * np.eye(4)
    )
    assert supported(rg.PDDP(), problems)
    for problem, found in zip(problems, rg.solve(problems), strict=True):
        alone = rg.PDDP().solve(problem)
        assert found.converged and found.iterations == alone.iterations
        np.testing.assert_allclose(found.u, alone.u, rtol=0, atol=1e-9)


def test_a_batch_is_solved_again_in_the_same_buffers():
    """Also after the last problem was alone in its lanes, and with other numbers in between."""
    problems = p1().batch(targets={0: goals(5)})
    options = rg.PDDP(tolerance=1e-6)
    first = rg.solve(problems, options, threads=1)
    kept = [key for key in problems[0].workspaces if "side by side" in key]
    assert len(kept) == 1
    before = problems[2].start.copy()
    problems[2].start = before + 0.05
    rg.solve(problems, options, threads=1)
    problems[2].start = before
    for a, b in zip(first, rg.solve(problems, options, threads=1), strict=True):
        assert (
            a.status == b.status and np.array_equal(a.u, b.u) and np.array_equal(a.gains, b.gains)
        )
    assert [key for key in problems[0].workspaces if "side by side" in key] == kept


def test_batches_of_systems_of_every_form():
    """Quaternions (dense), explicit Euler, and a robot too large for lanes."""
    quadrotor, hyq = rg.load("quadrotor"), rg.load("hyq", floating_base=True)
    for robot, integrator in (
        (quadrotor, "semi_implicit_euler"),
        (rg.load("double_pendulum"), "euler"),
        (hyq, "semi_implicit_euler"),
    ):
        start = np.r_[robot.neutral(), np.zeros(robot.nv)]
        costs = [rg.costs.State(start, 1.0, 10.0), rg.costs.Effort(0.1)]
        base = rg.Problem(robot, start=start, steps=8, dt=0.02, integrator=integrator, costs=costs)
        starts = np.tile(start, (5, 1))
        starts[:, robot.nq :] = np.random.default_rng(0).normal(size=(5, robot.nv))
        problems = base.batch(start=starts)
        for problem, found in zip(problems, rg.solve(problems), strict=True):
            assert found.converged and found.cost == pytest.approx(rg.solve(problem).cost, rel=1e-7)


def test_mixed_lists_keep_their_order():
    short = rg.Problem(
        rg.load("double_pendulum"),
        start=[0.5, 0, 0, 0],
        steps=10,
        dt=0.02,
        costs=[rg.costs.State(np.zeros(4), 1.0, 10.0), rg.costs.Effort(0.1)],
    )
    problems = [p1(), short, p1()]
    found = rg.solve(problems)
    assert [s.x.shape for s in found] == [(64, 14), (11, 4), (64, 14)]
    assert rg.solve([]) == []


def test_wrong_batches_say_what_is_wrong():
    with pytest.raises(InputError, match="first axes agree"):
        p1().batch(start=np.zeros((3, 14)), targets={0: np.zeros((4, 14))})
    with pytest.raises(InputError, match="no cost 2"):
        p1().batch(targets={2: np.zeros((4, 14))})
    with pytest.raises(InputError, match="list holds a str"):
        rg.solve([p1(), "p1"])
    with pytest.raises(InputError, match=r"rg\.PDDP"):
        rg.solve(p1(), "pddp")


# --- what may change, and what is an error --------------------------------------------------------


def test_new_numbers_compile_nothing(monkeypatch):
    from rigidgrad.runtime import native

    robot = rg.load("iiwa14")
    limits = rg.Limits(
        torque=True,
        velocity=30.0,
        spheres=[rg.LinkSphere("iiwa_link_7", 0.05)],
        obstacles=[rg.Obstacle((0.4, 0.4, 0.9), 0.1)],
    )
    cost = rg.costs.Custom(lambda x, u, p: (x[0] - p[0],), weight=1.0, parameters=[0.3])
    reach = rg.costs.Reach("iiwa_link_7", (0.5, 0.0, 0.7), weight=1.0, final=10.0)
    problem = rg.Problem(
        robot,
        start=np.zeros(14),
        steps=12,
        dt=0.02,
        costs=[reach, cost, rg.costs.Effort(1e-3)],
        limits=limits,
    )
    rg.solve(problem)
    rg.solve([problem, problem])
    monkeypatch.setattr(native, "compile_ir", lambda *_, **__: pytest.fail("compiled again"))
    reach.target, reach.weight, cost.parameters = (0.4, 0.1, 0.8), 2.0, [0.1]
    limits.torque, limits.velocity = 200.0, 25.0
    limits.obstacles[0].center = (0.3, 0.3, 0.9)
    problem.update(start=np.full(14, 0.01), dt=0.01)
    assert rg.solve(problem).status in ("converged", "iterations")
    rg.solve([problem, problem])


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"blocks": 0}, "at least 1"),
        ({"forward_blocks": 1.5}, "whole number"),
        ({"choose": "worst"}, "largest"),
        ({"iterations": -1}, "at least 0"),
        ({"alphas": (0.5, 1.0)}, "largest first"),
        ({"alphas": ()}, "step sizes"),
        ({"dtype": "float16"}, "float32"),
        ({"second_order": True, "blocks": 2}, "backward_blocks=1"),
        ({"dtype": "float32", "blocks": 2}, "forward_blocks=1"),
    ],
)
def test_wrong_options_say_what_is_wrong(options, fragment):
    with pytest.raises(InputError, match=fragment):
        rg.PDDP(**options)


def test_more_blocks_than_steps_are_an_error():
    with pytest.raises(InputError, match="64 blocks"):
        rg.solve(p1(), rg.PDDP(blocks=64))


def test_a_guess_that_diverged_leaves_nothing_behind():
    problem = rg.Problem(
        rg.load("double_pendulum"),
        np.zeros(4),
        steps=20,
        dt=0.02,
        costs=[rg.costs.State([1.0, 0.0, 0.0, 0.0], 0.1, 10.0), rg.costs.Effort(0.01)],
    )
    first = rg.PDDP().solve(problem)
    problem.update(guess=np.full((20, 2), 1e9))
    assert rg.PDDP().solve(problem).status == "diverged"
    problem.update(guess="hold")
    assert rg.PDDP().solve(problem).cost == first.cost
