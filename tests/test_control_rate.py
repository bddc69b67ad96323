"""The cost of the control's rate: solvers find the optimum of ½ Σ w (u_k - u_{k-1})² with all other
costs, and plans under control go on from the control that acts.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.tasks import Task

STEPS, DT = 20, 0.1
SOLVERS = {
    "iLQR": rg.PDDP(),
    "blocks": rg.PDDP(blocks=4),
    "second order": rg.PDDP(second_order=True),
    "direct": rg.Direct(),
    "PCG": rg.Direct(linear_solver="pcg"),
}
ARM = rg.load("double_pendulum")
A, B = np.array([[1.0, DT], [0.0, 1.0]]), np.array([0.0, DT])
Q, LAST, R = np.diag([1.0, 0.3]), np.diag([10.0, 5.0]), 0.1


def rolled(start, u, step):
    x = [np.asarray(start, dtype=float)]
    for k, control in enumerate(u):
        x.append(step(x[-1], control, k))
    return np.array(x)


def changes(u, previous=None):
    return (
        np.diff(u, axis=0)
        if previous is None
        else np.diff(u, axis=0, prepend=[np.broadcast_to(previous, u.shape[1:])])
    )


def slope(function, u, step=1e-5):
    """Central differences of a function of controls."""
    found = np.zeros(u.shape)
    for i in np.ndindex(u.shape):
        moved = np.zeros(u.shape)
        moved[i] = step
        found[i] = (function(u + moved) - function(u - moved)) / (2 * step)
    return found


# --- a double integrator, whose optimum linear algebra knows --------------------------------------

INTEGRATOR = rg.CustomSystem(
    lambda x, u: (x[0] + DT * x[1], x[1] + DT * u[0]), 2, 1, discrete=True, name="double integrator"
)


def integrator(weight=2.0, previous=None, **more):
    costs = [
        rg.costs.State(np.zeros(2), weight=np.diag(Q), final=np.diag(LAST)),
        rg.costs.Effort(R),
        rg.costs.ControlRate(weight, previous=previous),
    ]
    return rg.Problem(INTEGRATOR, [1.0, 0.2], STEPS, DT, costs=costs, **more)


def integrator_cost(u, weight, previous, start=(1.0, 0.2)):
    x = rolled(start, u, lambda x, u, k: A @ x + B * u)
    state = 0.5 * sum(y @ Q @ y for y in x[:-1]) + 0.5 * x[-1] @ LAST @ x[-1]
    return (
        state + 0.5 * R * u @ u + 0.5 * float(np.sum(weight * changes(u[:, None], previous) ** 2))
    )


def least_squares(weight, previous):
    """The minimum of a quadratic function of all controls, from its values."""
    e, f = np.eye(STEPS), lambda u: integrator_cost(u, weight, previous)
    none, one = f(np.zeros(STEPS)), [f(x) for x in e]
    g = np.array([(a - f(-x)) / 2 for a, x in zip(one, e, strict=True)])
    H = np.array(
        [[f(e[i] + e[j]) - one[i] - one[j] + none for j in range(STEPS)] for i in range(STEPS)]
    )
    return -np.linalg.solve(H, g)


@pytest.mark.parametrize("previous", [None, -0.5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_optimum_is_that_of_linear_algebra(solver, previous):
    s = rg.solve(integrator(2.0, previous), SOLVERS[solver])
    u = least_squares(2.0, previous)
    assert s.converged
    # values of a quadratic of size 10 tell it to 1e-13
    np.testing.assert_allclose(s.u[:, 0], u, atol=1e-9)
    np.testing.assert_allclose(s.cost, integrator_cost(u, 2.0, previous), rtol=1e-12)
    assert s.x.shape == (STEPS + 1, 2) and s.gains.shape == (STEPS, 1, 2)


def test_single_precision_finds_it_too():
    u = rg.solve(integrator(2.0, 0.3), rg.PDDP(dtype="float32")).u
    np.testing.assert_allclose(u[:, 0], least_squares(2.0, 0.3), atol=1e-5)


def test_weights_may_differ_from_step_to_step():
    weight = np.linspace(0.0, 3.0, STEPS)[:, None]
    np.testing.assert_allclose(
        rg.solve(integrator(weight, 0.3)).u[:, 0], least_squares(weight, 0.3), atol=1e-9
    )


def test_gains_are_those_of_the_riccati_recursion_with_the_control_before_as_a_state():
    F, G = np.zeros((3, 3)), np.array([*B, 1.0])
    F[:2, :2] = A
    w, V, gains = 2.0, np.zeros((3, 3)), []
    V[:2, :2] = LAST
    for _ in range(STEPS):
        cost, mixed = np.zeros((3, 3)), np.array([0.0, 0.0, -w])
        cost[:2, :2], cost[2, 2] = Q, w
        bend, cross = R + w + G @ V @ G, mixed + G @ V @ F
        gains.append(-cross / bend)
        V = cost + F.T @ V @ F - np.outer(cross, cross) / bend
    s = rg.solve(integrator(w, 0.4))
    np.testing.assert_allclose(s.gains[:, 0], np.array(gains[::-1])[:, :2], rtol=1e-9)
    x = np.array([1.0, 0.2, 0.4])
    np.testing.assert_allclose(s.cost, 0.5 * x @ V @ x, rtol=1e-12)


def test_limits_hold_as_a_general_solver_keeps_them():
    w, bound, fastest = 0.5, 0.8, 0.3
    slow = rg.Inequality(lambda x, u: x[1], lower=-fastest, upper=fastest)
    problem = integrator(w, 0.0, limits=rg.Limits(torque=[bound], constraints=[slow]))
    s = rg.solve(problem, rg.PDDP(violation=1e-7))
    speeds = lambda u: rolled([1.0, 0.2], u, lambda x, u, k: A @ x + B * u)[1:, 1]  # noqa: E731
    sides = [
        {"type": "ineq", "fun": lambda u, sign=sign: fastest + sign * speeds(u)} for sign in (-1, 1)
    ]
    found = minimize(
        integrator_cost,
        np.zeros(STEPS),
        (w, 0.0),
        "SLSQP",
        bounds=[(-bound, bound)] * STEPS,
        constraints=sides,
        options={"ftol": 1e-12},
    )
    assert found.success and s.converged
    assert np.abs(s.u).max() <= bound and np.abs(s.x[1:, 1]).max() < fastest + 1e-6
    # both are active
    assert np.abs(speeds(found.x)).max() > fastest - 1e-6 and np.abs(found.x).max() > bound - 1e-6
    np.testing.assert_allclose(s.cost, found.fun, rtol=1e-6)
    np.testing.assert_allclose(s.u[:, 0], found.x, atol=1e-3)


def test_a_batch_finds_what_each_problem_finds():
    starts = np.array([[1.0, 0.2], [0.5, -0.3], [-1.0, 0.0], [0.0, 0.7]])
    problem = integrator(2.0, 0.1)
    for s, start in zip(rg.solve(problem.batch(starts)), starts, strict=True):
        problem.update(start=start)
        alone = rg.solve(problem)
        np.testing.assert_allclose(s.u, alone.u, atol=1e-10)
        assert s.x.shape == alone.x.shape and s.cost == pytest.approx(alone.cost, rel=1e-12)


# --- robots ---------------------------------------------------------------------------------------


def swing(weight, previous=None, **more):
    costs = [rg.costs.State([2.0, 0.5, 0, 0], weight=0.1, final=20.0), rg.costs.Effort(1e-2)]
    rate = [] if weight is None else [rg.costs.ControlRate(weight, previous)]
    return rg.Problem(ARM, np.zeros(4), 12, 0.05, costs=costs + rate, **more)


def test_a_weight_of_zero_changes_nothing():
    drone = rg.load("quadrotor")
    start = np.r_[drone.neutral(), np.zeros(drone.nv)]
    goal = np.r_[0.5, 0.0, 0.5, start[3:]]
    costs = [rg.costs.State(goal, weight=0.1, final=10.0), rg.costs.Effort(0.01)]
    plain, weightless = (
        rg.solve(rg.Problem(drone, start, 15, 0.04, costs=c))
        for c in (costs, [*costs, rg.costs.ControlRate(0.0)])
    )
    assert plain.converged and weightless.converged
    np.testing.assert_allclose(weightless.u, plain.u, rtol=1e-9)
    np.testing.assert_allclose(weightless.gains, plain.gains, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("previous", [None, (1.0, -0.5)])
def test_nothing_near_the_optimum_of_an_arm_is_better(previous):
    w = np.array([0.02, 0.05])
    problem, plain = swing(w, previous), swing(None)
    s = rg.solve(problem, rg.PDDP(tolerance=1e-14))

    def cost(u):
        x = rolled(np.zeros(4), u, lambda x, u, k: plain.programs.step(x, u, np.array(0.05)))
        return plain.cost(x, u) + 0.5 * float(np.sum(w * changes(u, previous) ** 2))

    assert s.cost == pytest.approx(cost(s.u), rel=1e-12) and problem.cost(
        s.x, s.u
    ) == pytest.approx(s.cost, rel=1e-12)
    away = s.u + 0.1 * np.random.default_rng(0).standard_normal(s.u.shape)
    assert np.abs(slope(cost, s.u)).max() < 1e-5 * np.abs(slope(cost, away)).max()
    assert (
        np.square(changes(s.u, previous)).sum()
        < 0.8 * np.square(changes(rg.solve(plain).u, previous)).sum()
    )


def test_the_derivatives_of_a_trajectory_are_those_of_differences():
    problem = swing(0.3, (1.0, 0.0))
    rng = np.random.default_rng(1)
    u = rng.standard_normal((12, 2))
    x = rolled(np.zeros(4), u, lambda x, u, k: problem.programs.step(x, u, np.array(0.05)))
    found = problem.linearize(x, u)
    np.testing.assert_allclose(
        found.lu, slope(lambda u: _running(problem, x, u), u) - _later(found, 4), atol=1e-6
    )
    assert found.A.shape == (12, 6, 6) and found.B.shape == (12, 6, 2)
    np.testing.assert_array_equal(found.B[:, 4:], np.tile(np.eye(2), (12, 1, 1)))


def _running(problem, x, u):
    return float(problem.evaluate(x, u)[1].sum())


def _later(found, n):
    """What a control costs at the next knot, as its control before."""
    return found.lx[1:, n:]


def test_guesses_of_states_and_changed_numbers_lead_to_the_same_optimum():
    problem = swing(0.05)
    s = rg.solve(problem)
    plain = rg.solve(swing(None))
    near = rg.solve(swing(0.05, guess=(plain.x, plain.u)))
    np.testing.assert_allclose(near.u, s.u, atol=1e-2)
    np.testing.assert_allclose(near.cost, s.cost, rtol=1e-6)
    problem.costs[-1].previous = s.u[0] + 1.0
    problem.update()
    away = rg.solve(problem)
    assert np.all(away.u[0] > s.u[0] + 0.1)
    again = rg.solve(pickle.loads(pickle.dumps(problem)))
    np.testing.assert_allclose(again.u, away.u, rtol=1e-12)
    problem.update(guess=away)
    assert rg.solve(problem).iterations <= 2


def test_phases_count_changes_from_one_to_the_next_and_over_impacts():
    hopper = rg.load(
        """<robot name="hopper"><link name="rail"/>
      <link name="body"><inertial><mass value="5"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
      <link name="foot"><inertial><mass value="0.3"/><inertia ixx="0.001" ixy="0" ixz="0" iyy="0.001" iyz="0" izz="0.001"/></inertial></link>
      <joint name="height" type="prismatic"><parent link="rail"/><child link="body"/><axis xyz="0 0 1"/></joint>
      <joint name="leg" type="prismatic"><parent link="body"/><child link="foot"/><axis xyz="0 0 -1"/></joint></robot>"""
    )
    foot, stand = rg.Contact("foot"), np.array([0.5, 0.5, 0.0, 0.0])
    w = 1e-3

    def problem(rate):
        fall = [rg.costs.Reach("foot", (0, 0, 0), weight=1e4)]
        phases = [
            rg.Phase(6, foot, costs=rate),
            rg.Phase(6, costs=rate),
            rg.Impact(foot, costs=fall),
        ]
        phases += [rg.Phase(6, foot, costs=[rg.costs.State(stand, final=1e3), *rate])]
        costs = [rg.costs.Effort(1e-4), rg.costs.State(stand, weight=[0, 0.1, 0, 0.01])]
        return rg.Problem(hopper, stand, dt=0.01, actuation=["leg"], phases=phases, costs=costs)

    plain, smooth = problem([]), problem([rg.costs.ControlRate(w)])
    s = rg.solve(smooth, rg.PDDP(tolerance=1e-12))
    moving = smooth.h > 0

    def cost(u):
        whole = s.u.copy()
        whole[moving] = u
        x = rolled(
            stand,
            whole,
            lambda x, u, k: plain.programs.step(x, u, np.array(plain.h[k]), *plain.inputs_at(k)),
        )
        return plain.cost(x, whole) + 0.5 * w * float(np.sum(changes(u) ** 2))

    u = s.u[moving]
    assert s.converged and s.cost == pytest.approx(cost(u), rel=1e-10)
    assert (
        np.abs(slope(cost, u, 1e-3)).max()
        < 1e-5 * np.abs(slope(cost, u + 1.0 + np.arange(len(u))[:, None] % 2, 1e-3)).max()
    )


# --- control --------------------------------------------------------------------------------------


def driven(weight, prepare=False, **more):
    """An arm under control, whose goal jumps half-way: (controls, the controller)."""
    mpc = rg.MPC(
        swing(weight, limits=rg.Limits(torque=[8.0, 8.0], velocity=6.0)),
        rg.PDDP(iterations=2),
        period=0.02,
        **more,
    )
    plant, controls = rg.plants.Simulator(ARM, np.zeros(4), dt=0.01), []
    for k in range(60):
        if k == 30:
            mpc.target = np.array([1.0, -0.5, 0.0, 0.0])
        controls.append(mpc.step(plant.x, plant.time))
        plant.advance(controls[-1])
        if prepare:
            mpc.prepare(plant.time)
    trouble = {name: n for name, n in mpc.counts.items() if n and name != "violated"}
    assert not trouble, (trouble, mpc.trouble)
    return np.array(controls), mpc


@pytest.mark.parametrize(
    "more", [{}, {"latency": 0.02}, {"observer": True}, {"prepare": True}], ids=str
)
def test_controls_change_less_from_step_to_step(more):
    (rough, _), (smooth, mpc) = driven(None, **more), driven(0.1, **more)
    later = slice(5, None)  # the first plan is free
    assert np.abs(changes(smooth)[later]).max() < 0.6 * np.abs(changes(rough)[later]).max()
    assert np.abs(changes(smooth)[later]).sum() < 0.8 * np.abs(changes(rough)[later]).sum()
    assert mpc.plan.x.shape[1] == 4


def test_a_plan_goes_on_from_the_control_that_acts():
    u, _ = driven(1e4)  # hardly anything else counts
    assert np.abs(changes(u)[2:]).max() < 0.02
    assert np.ptp(driven(None)[0]) > 1.0


@pytest.mark.parametrize(
    "solver", [rg.PDDP(blocks=3, iterations=3), rg.Direct(iterations=3)], ids=["blocks", "direct"]
)
def test_other_solvers_plan_on_from_the_control_that_acts(solver):
    mpc = rg.MPC(swing(1e4), solver, period=0.02)
    plant = rg.plants.Simulator(ARM, np.zeros(4), dt=0.01)
    controls = []
    for k in range(20):
        if k == 5:
            mpc.target = np.array([-1.0, 0.5, 0.0, 0.0])
        controls.append(mpc.step(plant.x, plant.time))
        plant.advance(controls[-1])
    assert not any(n for name, n in mpc.counts.items() if name != "late"), (mpc.counts, mpc.trouble)
    assert np.abs(changes(np.array(controls))).max() < 0.05


def test_a_quadruped_trots_with_smoother_torques():
    pytest.importorskip("mujoco")
    robot = rg.load("hyq", floating_base=True)
    feet = [
        rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6)
        for leg in ("lf", "rf", "lh", "rh")
    ]
    x0 = np.zeros(robot.nq + robot.nv)
    x0[6] = 1.0
    x0[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x0[2] = 0.02 - rg.gaits.Stance(robot, feet, x0).ground
    rough = []
    for rate in ([], [rg.costs.ControlRate(1e-4)]):
        walker = rg.gaits.Walker(robot, feet, x0)
        known = walker.problem().phases[0]
        problem = rg.Problem(
            robot, x0, phases=[known.with_terms([*known.costs, *rate], known.limits)]
        )
        mpc = rg.MPC(problem, rg.PDDP(iterations=1), period=0.02, target=walker)
        floor = rg.plants.Ground({f.frame: (0.02, f.offset) for f in feet}, friction=0.8)
        plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=floor)
        walker.command = (0.3, 0.0, 0.0)
        while plant.time < 1.5:
            plant.advance(mpc.step(plant.x, plant.time))
        assert not any(n for name, n in mpc.counts.items() if name != "late"), (
            mpc.counts,
            mpc.trouble,
        )
        assert plant.x[0] > 0.25 and abs(plant.x[1]) < 0.05 and plant.x[2] > 0.5
        rough.append(np.square(changes(mpc.log.u)).sum())
    assert rough[1] < 0.7 * rough[0]


def test_a_reset_controller_does_not_go_on_from_its_last_control():
    used, new = (rg.MPC(swing(1e3), rg.PDDP(iterations=2), period=0.02) for _ in range(2))
    for k in range(5):
        used.step(np.array([0.5, 0.2, 0.0, 0.0]), 0.02 * k)
    used.reset()
    x = np.array([0.1, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(used.step(x, 0.0), new.step(x, 0.0), rtol=1e-9)


# --- what is said about it ------------------------------------------------------------------------


def test_tasks_have_it():
    said = {"type": "control_rate", "weight": [0.1, 0.2], "previous": [1.0, -1.0]}
    task = Task(
        {
            "robot": "double_pendulum",
            "steps": 12,
            "dt": 0.05,
            "costs": [{"type": "effort", "weight": 0.01}, said],
        }
    )
    cost = task.problem.costs[1]
    assert isinstance(cost, rg.costs.ControlRate)
    np.testing.assert_array_equal(cost.weight, [0.1, 0.2])
    np.testing.assert_array_equal(cost.previous, [1.0, -1.0])


def test_what_does_not_go_with_it_is_refused():
    with pytest.raises(InputError, match="forward form"):
        rg.solve(swing(0.1), rg.PDDP(form="inverse"))
    for one_or_more in (swing(0.1), [swing(0.1), swing(0.1)]):
        with pytest.raises(InputError, match="on the CPU"):
            rg.solve(one_or_more, rg.PDDP(device="opencl"))
    with pytest.raises(InputError, match="on the CPU"):
        rg.MPC(swing(0.1), rg.PDDP(device="opencl"))


@pytest.mark.parametrize(
    ("weight", "previous", "said"),
    [
        (-1.0, None, "negative"),
        (0.1, [1.0, 2.0, 3.0], "previous control"),
        (0.1, "none", "numbers"),
        ([1.0, 2.0, 3.0], None, "weight"),
    ],
)
def test_wrong_numbers_are_refused(weight, previous, said):
    with pytest.raises(InputError, match=said):
        swing(weight, previous)


def test_two_that_disagree_about_the_control_before_are_refused():
    costs = [rg.costs.ControlRate(0.1, previous=p) for p in (0.0, 1.0)]
    with pytest.raises(InputError, match="different previous"):
        rg.Problem(ARM, np.zeros(4), 5, 0.05, costs=costs)
