"""Durations that a solve chooses: they are optimal as everything else is, by closed forms, by IPOPT
and by scans over durations that are given; and users see states and controls as always.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hopper import DRIVEN, START, foot, hopper

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.control.hidden import for_solvers
from rigidgrad.errors import InputError
from rigidgrad.runtime import native
from rigidgrad.tasks import Task, TaskError

CART = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1, name="cart")
ROD = rg.CustomSystem(
    lambda x, u: (x[1], u[0] - 9.81 * rg.math.sin(x[0]) - 0.1 * x[1]), 2, 1, name="rod"
)
STILL = [0.0, 0.0]


def ends(goal):
    return rg.Equality(lambda x, u: (x[0] - goal, x[1]), at="final", name=f"at {goal}")


def quickest(
    system=CART,
    goal=1.0,
    most=2.0,
    steps=20,
    effort=1e-3,
    per_second=False,
    first=2.0,
    duration=(0.2, 10.0),
    **more,
):
    """From rest to rest in little time."""
    cost = rg.costs.Effort(effort)
    return rg.Problem(
        system,
        STILL,
        steps=steps,
        dt=first / steps,
        duration=duration,
        integrator="rk4",
        costs=[rg.costs.Duration(1.0), cost.per_second() if per_second else cost],
        limits=rg.Limits(torque=most, constraints=[ends(goal)]),
        **more,
    )


# --- optima ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [20, 40])
@pytest.mark.parametrize("first", [0.5, 2.0, 9.0])
def test_the_quickest_way_of_a_cart_pushes_with_all_force_and_then_pulls(steps, first):
    found = rg.solve(quickest(steps=steps, effort=1e-6, first=first))
    assert found.converged
    assert found.times[-1] == pytest.approx(2 * np.sqrt(1.0 / 2.0), rel=1e-5)
    pushes = np.where(np.arange(steps) < steps // 2, 2.0, -2.0)
    assert np.allclose(found.u[:, 0], pushes, atol=1e-3)
    assert np.allclose(np.diff(found.times), found.times[-1] / steps)


@pytest.mark.parametrize("steps", [10, 33])
@pytest.mark.parametrize("weight", [0.1, 30.0])
def test_time_and_energy_are_balanced_as_in_the_closed_form(steps, weight):
    """½ ∫ r u² dt is 6 r d² / (T³ (1 - 1/N²)) with controls that are held over steps; with w T its
    minimum is at T⁴ = 18 r d² / (w (1 - 1/N²)).
    """
    problem = rg.Problem(
        CART,
        STILL,
        steps=steps,
        duration=(0.1, 20.0),
        integrator="rk4",
        costs=[rg.costs.Duration(weight), rg.costs.Effort(0.7).per_second()],
        limits=rg.Limits(constraints=[ends(1.3)]),
    )
    found = rg.solve(problem)
    rest = 1.0 - 1.0 / steps**2
    best = (18 * 0.7 * 1.3**2 / (weight * rest)) ** 0.25
    assert found.converged
    assert found.times[-1] == pytest.approx(best, rel=1e-4)
    assert found.cost == pytest.approx(
        6 * 0.7 * 1.3**2 / (best**3 * rest) + weight * best, rel=1e-6
    )


# IPOPT 3.14 by CasADi 3.8.2 on the same steps (RK4, X, U and T as unknowns, tol=1e-12), from
# T = 2 (cart) and 1 (rod) and a line of states: minimise T + ½ 1e-3 Σ u² [T/N], -15 ≤ u ≤ 15 and
# 0.1 ≤ T ≤ 5 for the rod to π/2
IPOPT = {
    ("cart", False, 20): (1.4541603302508912, 1.4150245616781059),
    ("cart", False, 31): (1.4746756904988256, 1.4164890729600506),
    ("cart", True, 31): (1.4176885459793138, 1.4149499331507545),
    ("rod", False, 20): (1.371790586598079, 0.9061388796150557),
    ("rod", True, 20): (0.6706786118409911, 0.6115171610524683),
    ("rod", True, 31): (0.6705277900585421, 0.6112726900721194),
}
SOLVERS = {
    "iLQR": rg.PDDP(),
    "second order": rg.PDDP(second_order=True),
    "float32": rg.PDDP(dtype="float32"),
    "direct": rg.Direct(),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", IPOPT, ids=lambda case: " ".join(map(str, case)))
def test_solvers_find_what_ipopt_finds(case, solver):
    name, per_second, steps = case
    rod = {"system": ROD, "goal": np.pi / 2, "most": 15.0, "first": 1.0, "duration": (0.1, 5.0)}
    problem = quickest(per_second=per_second, steps=steps, **(rod if name == "rod" else {}))
    cost, seconds = IPOPT[case]
    found = rg.solve(problem, SOLVERS[solver])
    assert found.converged and found.stats["violation"] < 1e-5
    assert found.cost == pytest.approx(cost, rel=2e-6)
    assert found.times[-1] == pytest.approx(seconds, rel=1e-4)


# --- a jump ---------------------------------------------------------------------------------------

MASS, SHARE = 5.3, 0.3 / 5.3
JUMPER = (
    rg.Builder("jumper")
    .link("rail")
    .link("body", 5.0, (0, 0, 0), (0.1, 0.1, 0.1))
    .link("foot", 0.3, (0, 0, 0), (1e-3, 1e-3, 1e-3))
    .joint("height", "prismatic", "rail", "body", axis=(0, 0, 1))
    .joint("leg", "prismatic", "body", "foot", axis=(0, 0, -1), limit=(0.2, 0.7, 10.0, 300.0))
    .build()
)
SOLE = rg.Contact("foot")
UPRIGHT = np.array([0.5, 0.5, 0.0, 0.0])


def jump(flight=0.2, stance=0.3):
    """Numbers are durations that are given, pairs are free."""

    def phase(steps, asked, *contacts, **more):
        free = isinstance(asked, tuple | rg.Duration)
        return rg.Phase(
            steps,
            contacts,
            dt=0.01 if free else asked / steps,
            duration=asked if free else None,
            **more,
        )

    pushes = rg.Inequality(rg.costs.ContactForce(SOLE), lower=(-np.inf, -np.inf, 0.0))
    held = rg.Limits(constraints=[pushes])
    top = np.zeros((20, 1))
    top[10] = 1e3
    return rg.Problem(
        JUMPER,
        UPRIGHT,
        actuation=["leg"],
        phases=[
            phase(30, stance, SOLE, limits=held),
            phase(20, flight, costs=[rg.costs.Reach("body", (0, 0, 0.8), weight=top)]),
            rg.Impact(SOLE, costs=[rg.costs.Reach("foot", (0, 0, 0), weight=1e4)]),
            rg.Phase(30, SOLE, costs=[rg.costs.State(UPRIGHT, final=1e3)], limits=held, dt=0.01),
        ],
        costs=[
            rg.costs.Effort(1e-4),
            rg.costs.State(UPRIGHT, weight=[0, 0.1, 0, 0.01]),
            rg.costs.Duration(1.0),
        ],
        limits=rg.Limits(torque=True, position=True),
    )


def test_the_flight_of_a_jump_is_as_long_as_the_best_of_all_that_are_given():
    found = rg.solve(jump(flight=(0.1, 1.0)))
    T = found.times[50] - found.times[30]
    assert found.converged and 0.15 < T < 0.25

    def cost(seconds):
        given = rg.solve(jump(flight=seconds))
        assert given.converged
        return given.cost

    scan = {seconds: cost(seconds) for seconds in np.linspace(0.8 * T, 1.2 * T, 9)}
    assert found.cost <= min(scan.values()) * (1 + 1e-6)
    assert found.cost == pytest.approx(cost(T), rel=1e-6)
    # a parabola through the neighbours has its minimum here
    low, high = cost(0.98 * T), cost(1.02 * T)
    apart = 0.5 * 0.02 * T * (low - high) / (low + high - 2 * found.cost)
    assert abs(apart) < 1e-3 * T


def test_a_flight_is_ballistic():
    """Steps of semi-implicit Euler fall by ½ g T² (1 + 1/N)."""
    found = rg.solve(jump(flight=(0.1, 1.0)))
    T, x = found.times[50] - found.times[30], found.x
    height, speed = x[:, 0] - SHARE * x[:, 1], x[:, 2] - SHARE * x[:, 3]
    assert height[50] - height[30] == pytest.approx(speed[30] * T - 0.5 * 9.81 * T**2 * 1.05)
    assert speed[50] - speed[30] == pytest.approx(-9.81 * T)
    assert x[50, 0] == pytest.approx(x[50, 1], abs=1e-2)  # the foot is on the ground,
    assert x[51, 2] == pytest.approx(x[51, 3], abs=1e-9)  # and stays there


def test_two_free_durations_are_as_good_as_the_best_of_one_with_the_other_given():
    both = rg.solve(jump(flight=(0.1, 1.0), stance=(0.1, 1.5)))
    stance, flight = both.times[30], both.times[50] - both.times[30]
    assert both.converged and 0.11 < stance < 1.49
    for off in (0.97, 1.0, 1.03):
        one = rg.solve(jump(flight=(0.1, 1.0), stance=stance * off))
        assert one.cost >= both.cost * (1 - 1e-6)
        if off == 1.0:
            assert one.cost == pytest.approx(both.cost, rel=1e-6)
            assert one.times[50] - one.times[30] == pytest.approx(flight, rel=1e-3)


def test_phases_of_one_duration_last_equally_long():
    shared = rg.Duration(0.1, 0.6)
    problem = jump(flight=shared, stance=shared)
    found = rg.solve(problem)
    T = found.times[30]
    assert found.converged
    assert found.times[50] - found.times[30] == pytest.approx(T)
    assert found.cost == pytest.approx(rg.solve(jump(T, T)).cost, rel=1e-6)
    assert all(rg.solve(jump(t, t)).cost > found.cost for t in (0.97 * T, 1.03 * T))


def test_the_state_of_solvers_holds_as_many_durations_as_there_are_at_once():
    own, shared = lambda: (0.1, 0.3), rg.Duration(0.1, 0.3)

    def states(*durations):
        phases = [rg.Phase(3, dt=0.05, duration=d) for d in durations]
        problem = rg.Problem(CART, STILL, phases=phases, costs=[rg.costs.Effort(1.0)])
        return for_solvers(problem).system.nx - 2

    assert states(own(), own(), None, own()) == 1
    assert states(shared, None, shared, own()) == 1
    assert states(shared, own(), shared) == 2


# --- what solvers see -----------------------------------------------------------------------------


def phases_of_all_kinds():
    contact, stance = foot(), rg.Duration(0.1, 0.3)
    cone = rg.costs.FrictionCone(contact, weight=1.0).per_second()
    return rg.Problem(
        hopper(),
        START,
        dt=0.02,
        actuation=DRIVEN,
        phases=[
            rg.Phase(2, contact, duration=stance),
            rg.Phase(2, duration=(0.05, 0.3)),
            rg.Impact(contact),
            rg.Phase(3, contact, duration=stance, costs=[cone]),
            rg.Phase(1, dt=0.01),
        ],
        costs=[
            rg.costs.State(START, weight=1.0, final=10.0).per_second(),
            rg.costs.Duration(0.3),
            rg.costs.Effort(1e-3, activation=rg.costs.Huber(0.5)).per_second(),
            rg.costs.ControlRate(1e-3),
        ],
        limits=rg.Limits(torque=True),
    )


@pytest.mark.parametrize(
    "make",
    [phases_of_all_kinds, lambda: quickest(ROD, steps=5, effort=0.3, per_second=True)],
    ids=["phases", "RK4"],
)
def test_derivatives_by_durations_are_those_of_differences(make):
    problem = make()
    inner, rng = for_solvers(problem), np.random.default_rng(0)
    s, N = inner.system, inner.steps
    x = inner.plus(np.tile(inner.start, (N + 1, 1)), 0.1 * rng.normal(size=(N + 1, s.ndx)))
    u = inner.guess + 0.3 * rng.normal(size=(N, s.nu))
    e, step = inner.linearize(x, u), 1e-6

    def slopes(count, moved):
        by_next, by_cost = [], []
        for j in range(count):
            (up, high), (down, low) = (
                inner.evaluate(*moved(j, sign * step)) for sign in (1.0, -1.0)
            )
            by_next.append((inner.minus(up, e.next) - inner.minus(down, e.next)) / (2 * step))
            by_cost.append((high - low) / (2 * step))
        return np.stack(by_next, axis=-1), np.stack(by_cost, axis=-1)

    def at_other_states(j, by):
        d = np.zeros((N + 1, s.ndx))
        d[:, j] = by
        return inner.plus(x, d), u

    def at_other_controls(j, by):
        return x, u + by * np.eye(s.nu)[j]

    A, lx = slopes(s.ndx, at_other_states)
    B, lu = slopes(s.nu, at_other_controls)
    for exact, found in ((A, e.A), (B, e.B), (lx, e.lx), (lu[:-1], e.lu)):
        assert np.abs(found - exact).max() <= 1e-7 * max(1.0, np.abs(exact).max())


def test_users_see_their_own_states_and_controls():
    problem = phases_of_all_kinds()
    found = rg.solve(problem)
    N, m = problem.steps, 2
    assert found.x.shape == (N + 1, 8) and found.u.shape == (N, m)
    assert found.gains.shape == (N, m, 8)
    assert found.times.shape == (N + 1,) and found.system is problem.system
    assert np.array_equal(found.x[0], START)
    h = np.diff(found.times)
    assert h[4] == 0.0 and h[-1] == pytest.approx(0.01)
    assert np.ptp(h[:2]) == np.ptp(h[5:8]) == 0.0
    assert 2 * h[0] == pytest.approx(3 * h[5])  # one duration


def test_a_motion_follows_from_its_controls_in_the_times_that_were_chosen():
    found = rg.solve(quickest(ROD, np.pi / 2, 15.0, first=1.0))
    x = np.array(STILL)
    given = rg.Problem(
        ROD,
        STILL,
        steps=20,
        dt=found.times[1],
        integrator="rk4",
        costs=[rg.costs.Duration(1.0), rg.costs.Effort(1e-3)],
    )
    for k, u in enumerate(found.u):
        x = given.programs.step(x, u, np.array(found.times[k + 1] - found.times[k]))
    assert x == pytest.approx(found.x[-1], abs=1e-12)
    assert given.cost(found.x, found.u) == pytest.approx(found.cost)


def test_bounds_of_a_duration_hold():
    assert rg.solve(quickest(duration=(0.5, 1.0))).status == "infeasible"  # 1.41 s are needed
    slow = rg.solve(quickest(duration=(2.0, 3.0)))
    assert slow.converged and slow.times[-1] == pytest.approx(2.0, rel=1e-12)


def test_weights_per_second_are_weights_times_the_seconds_of_steps():
    kwargs = {"start": STILL, "steps": 10, "dt": 0.1}
    goal = [1.0, 0.0]
    weights = np.linspace(1.0, 2.0, 10)[:, None] * [3.0, 1.0]
    two = [
        rg.Problem(CART, costs=[rg.costs.State(goal, w, 5.0), rg.costs.Effort(e)], **kwargs)
        for w, e in ((weights * 0.1, 0.02),)
    ] + [
        rg.Problem(
            CART,
            costs=[
                rg.costs.State(goal, weights, 5.0).per_second(),
                rg.costs.Effort(0.2).per_second(),
            ],
            **kwargs,
        )
    ]
    one, other = map(rg.solve, two)
    assert other.cost == pytest.approx(one.cost) and np.allclose(one.u, other.u)
    for problem in two:
        problem.update(dt=0.2)
    two[0].costs[1].weight, two[0].costs[0].weight = 0.04, weights * 0.2
    two[0].update()
    one, other = map(rg.solve, two)
    assert other.cost == pytest.approx(one.cost) and np.allclose(one.u, other.u)


# --- changes, copies, batches ---------------------------------------------------------------------


def test_updates_compile_nothing():
    problem = quickest()
    first = rg.solve(problem)
    count = native.compiled_count()
    problem.duration = (2.0, 4.0)
    problem.update()
    slower = rg.solve(problem)
    problem.duration = (0.2, 10.0)
    problem.update(dt=0.05, start=[0.1, 0.0])
    nearer = rg.solve(problem)
    assert native.compiled_count() == count
    assert slower.times[-1] == pytest.approx(2.0) and nearer.times[-1] < first.times[-1]
    assert problem.times[-1] == pytest.approx(1.0)  # still the first guess


def test_a_solution_as_a_guess_brings_its_durations():
    problem = quickest()
    first = rg.solve(problem)
    problem.update(guess=first)
    assert problem.times[-1] == pytest.approx(first.times[-1])
    assert problem.cost(first.x, first.u) == pytest.approx(first.cost)
    again = rg.solve(problem)
    assert again.converged and again.iterations <= 5 < first.iterations
    assert again.cost == pytest.approx(first.cost, rel=1e-7)
    copied = pickle.loads(pickle.dumps(jump(flight=(0.1, 1.0))))
    assert np.array_equal(copied.h, jump(flight=(0.1, 1.0)).h)


def test_pickled_problems_keep_what_is_free_and_shared():
    shared = rg.Duration(0.1, 0.6)
    problem = jump(flight=shared, stance=shared)
    found = rg.solve(problem)
    problem.update(guess=found)
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.phases[0].duration is copy.phases[1].duration
    assert np.array_equal(copy.h, problem.h)
    assert rg.solve(copy).cost == pytest.approx(found.cost, rel=1e-8)


def test_a_batch_is_solved_as_each_alone():
    problem = quickest(steps=12)
    starts = np.array([[0.1 * k, 0.05 * k] for k in range(7)])
    alone = []
    for start in starts:
        problem.update(start=start)
        alone.append(rg.solve(problem))
    together = rg.solve(problem.batch(start=starts))
    for one, other in zip(alone, together, strict=True):
        assert other.converged and other.times[-1] == pytest.approx(one.times[-1], rel=1e-5)
        assert other.cost == pytest.approx(one.cost, rel=1e-6)
    assert len({s.times[-1] for s in together}) == len(starts)


def test_problems_with_and_without_free_durations_may_be_solved_together():
    free = [quickest(steps=12, first=f) for f in (1.0, 1.5, 2.0, 2.5)]
    given = [quickest(steps=12, first=f, duration=None) for f in (1.6, 1.8, 2.0, 2.5)]
    found = rg.solve([p for pair in zip(free, given, strict=True) for p in pair])
    for k, seconds in enumerate((1.6, 1.8, 2.0, 2.5)):
        assert found[2 * k + 1].times[-1] == pytest.approx(seconds)
        assert found[2 * k].times[-1] == pytest.approx(found[0].times[-1], rel=1e-4)


def test_a_guess_of_states_may_have_gaps():
    line = np.linspace(STILL, [1.0, 0.0], 21)
    found = rg.solve(quickest(guess=(line, np.zeros((20, 1)))))
    assert found.converged
    assert found.cost == pytest.approx(IPOPT["cart", False, 20][0], rel=2e-6)


# --- an arm ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0.6, 2.0])
def test_the_quickest_motion_of_an_arm_uses_its_limits(first):
    arm = rg.load("double_pendulum")
    goal, limits = np.array([1.2, -0.6, 0.0, 0.0]), {"torque": 12.0, "velocity": 3.0}
    problem = rg.Problem(
        arm,
        np.zeros(4),
        steps=30,
        dt=first / 30,
        duration=(0.1, 4.0),
        costs=[rg.costs.Duration(1.0), rg.costs.Effort(1e-5)],
        limits=rg.Limits(constraints=[rg.Equality(rg.costs.State(goal), at="final")], **limits),
    )
    found = rg.solve(problem)
    T = found.times[-1]
    assert found.converged and found.x[-1] == pytest.approx(goal, abs=1e-4)
    assert np.abs(found.u).max() <= 12.0 and np.abs(found.x[:, 2:]).max() <= 3.0 + 1e-3
    near = (np.abs(found.u) > 11.9).any(axis=1) | (np.abs(found.x[:-1, 2:]) > 2.99).any(axis=1)
    assert near.mean() > 0.8  # at any time something is at its limit
    problem.duration = (0.95 * T, 0.96 * T)
    problem.update()
    assert not rg.solve(problem).converged  # there is no way that is quicker


# --- what is refused, and tasks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        (rg.PDDP(form="inverse"), "forward form"),
        (rg.PDDP(blocks=2), "blocks"),
        (rg.PDDP(device="opencl"), "on the CPU"),
        (rg.Direct(linear_solver="pcg"), "riccati"),
    ],
    ids=str,
)
def test_what_does_not_know_durations_says_so(solver, said):
    problem = quickest()
    for asked in (problem, [problem, problem]):
        with pytest.raises(InputError, match=said):
            rg.solve(asked, solver)


def test_controllers_take_steps_of_a_given_length():
    with pytest.raises(InputError, match="duration"):
        rg.MPC(quickest())


@pytest.mark.parametrize(
    "duration", [(0.5, 0.2), (0.0, 1.0), (0.1, np.inf), (-1.0, 1.0), (np.nan, 1.0), 0.5, "1", (1,)]
)
def test_durations_have_two_positive_bounds(duration):
    with pytest.raises(InputError, match="duration"):
        quickest(duration=duration)
    with pytest.raises(InputError, match="duration"):
        rg.Phase(3, duration=duration)


def test_what_has_no_duration_is_told():
    costs = [rg.costs.Effort(1.0)]
    jumps = rg.CustomSystem(lambda x, u: (x[0] + u[0],), 1, 1, discrete=True)
    with pytest.raises(InputError, match="discrete"):
        rg.Problem(jumps, [0.0], steps=3, dt=1.0, duration=(0.1, 1.0), costs=costs)
    with pytest.raises(InputError, match=r"each rg\.Phase"):
        rg.Problem(CART, STILL, phases=[rg.Phase(3)], dt=0.1, duration=(0.1, 1.0), costs=costs)
    with pytest.raises(InputError, match="no dt"):
        rg.Problem(CART, STILL, phases=[rg.Phase(3)], costs=costs)
    problem = rg.Problem(CART, STILL, steps=3, dt=0.1, costs=costs)
    problem.duration = (0.1, 1.0)
    with pytest.raises(InputError, match="another problem"):
        problem.update()


TASK = """
robot = "pendulum"
steps = 20
duration = [0.2, 3.0]
costs = [
  { type = "duration", weight = 5.0 },
  { type = "effort", weight = 0.1, per_second = true },
  { type = "state", goal = [1.0, 0.0], final = 1000.0 },
]
"""


def test_a_task_may_leave_durations_to_the_solver(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.toml").write_text(TASK)
    assert main(["solve", "quick.toml", "--report"]) == 0
    with np.load("solution.npz") as saved:
        T = saved["t"][-1]
    said = capsys.readouterr().out
    assert (
        f"{T:.6g} s, as chosen" in said and f"{T:.6g} s" in (tmp_path / "report.html").read_text()
    )
    robot = rg.load("pendulum")
    same = rg.Problem(
        robot,
        np.zeros(2),
        steps=20,
        duration=(0.2, 3.0),
        costs=[
            rg.costs.Duration(5.0),
            rg.costs.Effort(0.1).per_second(),
            rg.costs.State([1.0, 0.0], final=1000.0),
        ],
    )
    found = rg.solve(same)
    assert found.times[-1] == pytest.approx(T, rel=1e-9) and 0.2 < T < 3.0


def test_phases_of_a_task_may_have_free_durations():
    said = {
        "robot": "pendulum",
        "dt": 0.02,
        "costs": [{"type": "state", "goal": [1.0, 0.0], "final": 10.0}],
        "phases": [{"steps": 3}, {"steps": 4, "duration": [0.1, 0.2]}],
    }
    task = Task(said)
    free = task.problem.phases[1].duration
    assert (free.low, free.high) == (0.1, 0.2) and task.problem.phases[0].duration is None
    assert task.problem.times[-1] == pytest.approx(0.06 + 0.1)  # 4 · 0.02 s, moved into the bounds
    said["phases"][1]["duration"] = [0.2, 0.1]
    with pytest.raises(TaskError, match=r"phases\[1\].*smaller one first"):
        Task(said)
