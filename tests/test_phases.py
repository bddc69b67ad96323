"""Phases and impacts of a motion, on a hopper: what they mean, that numbers change without
compiling, all solvers, pages, files and errors.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hopper import DRIVEN, FREE, START, foot, forces, hopper, stance_costs, torques

import rigidgrad as rg
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.runtime import native

costs = rg.costs
FOOT = foot()
FLIGHT, LANDING = slice(12, 27), 27
GOAL = START.copy()
GOAL[:2] += 0.2, 0.02


@pytest.fixture(scope="module")
def robot():
    return hopper()


def jump(robot, **options):
    """Push off, fly, land, stand; the first phase has longer steps."""

    def near():
        return [costs.State(GOAL, [1.0, 1.0, 0.1, 0.1] + [0.01] * 4), costs.Effort(1e-3)]

    stand = [costs.State(GOAL, [1.0, 1.0, 0.1, 0.1] + [0.01] * 4, final=100.0), costs.Effort(1e-3)]
    phases = [
        rg.Phase(12, [FOOT], near(), dt=0.02),
        rg.Phase(15, [], near()),
        rg.Impact([FOOT], [costs.Height("foot", 0.0, 1e4)]),
        rg.Phase(10, [FOOT], stand),
    ]
    return rg.Problem(robot, START, phases=phases, dt=0.01, actuation=DRIVEN, **options)


@pytest.fixture(scope="module")
def solved(robot):
    problem = jump(robot)
    solution = rg.solve(problem)
    assert solution.converged
    return problem, solution


# --- what phases mean -----------------------------------------------------------------------------


def test_one_phase_without_contacts_is_a_problem_without_phases(robot):
    plain = rg.Problem(robot, START, 20, 0.01, costs=stance_costs())
    phased = rg.Problem(robot, START, phases=[rg.Phase(20, costs=stance_costs())], dt=0.01)
    assert phased.programs is plain.programs
    a, b = rg.solve(plain), rg.solve(phased)
    assert a.converged and a.iterations == b.iterations
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.u, b.u)
    np.testing.assert_array_equal(a.times, 0.01 * np.arange(21))


def test_two_phases_with_the_same_costs_are_one(robot):
    """The knots are shared out; alike costs take the same place in the programs."""
    whole = rg.Problem(robot, START, 20, 0.01, costs=stance_costs())
    first = [costs.State(stance_costs()[0].goal, stance_costs()[0].weight), costs.Effort(1e-3)]
    cut = rg.Problem(
        robot, START, phases=[rg.Phase(8, costs=first), rg.Phase(12, costs=stance_costs())], dt=0.01
    )
    assert len(cut.costs) == 2
    np.testing.assert_allclose(rg.solve(cut).x, rg.solve(whole).x, rtol=0, atol=1e-12)


def test_times_of_knots_follow_the_phases(solved):
    problem, solution = solved
    expected = np.concatenate(
        [0.02 * np.arange(13), 0.24 + 0.01 * np.arange(1, 16), 0.39 + 0.01 * np.arange(11)]
    )
    np.testing.assert_allclose(solution.times, expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(problem.times, solution.times)
    assert problem.dt == 0.01
    assert "37 steps, 0.49 s, 1 impact" in str(problem)


def test_each_step_is_that_of_its_phase(robot, solved):
    """v⁺ = v + h a, q⁺ = q ⊕ h v⁺, with the accelerations of the robot's own functions under the
    phase's contacts and step.
    """
    _, s = solved
    q, v, tau = s.x[:-1, :FREE], s.x[:-1, FREE:], torques(s.u)
    touching = np.ones(len(q), dtype=bool)
    touching[FLIGHT] = False
    a = np.where(
        touching[:, None], robot.contact_dynamics(q, v, tau, [FOOT]).a, robot.aba(q, v, tau)
    )
    h = np.diff(s.times)[:, None]
    after = np.concatenate([robot.integrate(q, h * (v + h * a)), v + h * a], axis=1)
    steps = np.arange(len(q)) != LANDING
    np.testing.assert_allclose(s.x[1:][steps], after[steps], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_an_impact_changes_velocities_as_the_robot_says_and_leaves_positions(
    robot, solved, restitution
):
    problem, s = solved
    if restitution:
        phases = list(problem.phases)
        phases[2] = rg.Impact([FOOT], phases[2].costs, restitution)
        s = rg.solve(rg.Problem(robot, START, phases=phases, dt=0.01, actuation=DRIVEN))
    before, after = s.x[LANDING], s.x[LANDING + 1]
    np.testing.assert_array_equal(after[:FREE], before[:FREE])
    expected = np.asarray(robot.impact(before[:FREE], before[FREE:], [FOOT], restitution).v)
    np.testing.assert_allclose(after[FREE:], expected, rtol=0, atol=1e-9 * np.abs(before).max())
    assert np.abs(after[FREE:] - before[FREE:]).max() > 0.05
    J = robot.jacobian(before[:FREE], "foot")[:3]
    np.testing.assert_allclose(J @ after[FREE:], -restitution * J @ before[FREE:], atol=1e-6)


def test_contact_forces_of_a_cost_are_the_robots(robot, solved):
    problem, s = solved
    knots = slice(0, 12)
    found = []
    term = costs.ContactForce(FOOT)
    for k in range(12):
        system = problem.system.given(tuple(problem.p[k, problem.programs.inputs].tolist()))
        found.append(
            term.residual(system, tuple(s.x[k].tolist()), tuple(s.u[k].tolist()), (0.0,) * 3)
        )
    np.testing.assert_allclose(
        np.array(found, float), forces(robot, s, knots, FOOT), rtol=1e-7, atol=1e-6
    )
    assert np.array(found)[:, 2].min() > 10.0  # it carries the body


def test_the_jacobians_of_every_step_are_exact(robot, solved):
    """A and B of all knots, the impact's and the longer ones' included, against central differences
    of the step.
    """
    problem, s = solved
    e = problem.linearize(s.x, s.u)
    d = 1e-6
    for k in (3, 20, LANDING, 33):
        x, u, inputs, h = s.x[k], s.u[k], problem.inputs_at(k), problem.h[k]

        def stepped(dx, du, x=x, u=u, inputs=inputs, h=h):
            return problem.programs.step(x + dx, u + du, np.array(h), *inputs)

        A = np.stack(
            [(stepped(w, 0.0) - stepped(-w, 0.0)) / (2 * d) for w in d * np.eye(len(x))], axis=1
        )
        B = np.stack(
            [(stepped(0.0, w) - stepped(0.0, -w)) / (2 * d) for w in d * np.eye(len(u))], axis=1
        )
        # central differences: d² times third derivatives, and rounding / d
        np.testing.assert_allclose(e.A[k], A, rtol=0, atol=1e-6 * np.abs(A).max())
        np.testing.assert_allclose(e.B[k], B, rtol=0, atol=1e-6 * max(np.abs(B).max(), 1.0))


# --- numbers change without compiling -------------------------------------------------------------


def test_numbers_of_phases_change_without_compiling(robot, solved):
    problem = jump(robot)
    rg.solve(problem)
    count = native.compiled_count()
    stand = problem.phases[3].costs[0]
    stand.goal = START
    problem.update()
    nearer = rg.solve(problem)
    assert native.compiled_count() == count
    assert abs(nearer.x[-1, 0]) < abs(solved[1].x[-1, 0]) - 0.05
    stand.goal = GOAL
    problem.update(dt=0.011)
    np.testing.assert_allclose(problem.h[[0, 20, LANDING, 30]], [0.02, 0.011, 0.0, 0.011])
    assert rg.solve(problem).converged and native.compiled_count() == count


def test_another_gait_of_the_same_robot_compiles_nothing(robot, solved):
    """Which contacts hold is an input: other lengths and orders of phases use the same programs."""
    count = native.compiled_count()
    kinds = solved[0].phases
    again = [
        kinds[0],
        kinds[1],
        kinds[2],
        rg.Phase(4, [FOOT], kinds[0].costs),
        rg.Phase(6, [], kinds[1].costs),
        kinds[2],
        kinds[3],
    ]
    longer = rg.Problem(robot, START, phases=again, dt=0.01, actuation=DRIVEN)
    assert longer.programs is solved[0].programs
    assert rg.solve(longer).converged
    assert native.compiled_count() == count


def test_a_batch_has_other_targets_in_a_phase(solved):
    problem, s = solved
    found = rg.solve(problem.batch(targets={(3, 0): [GOAL, START]}, weights={(0, 1): [1e-3, 1e-3]}))
    assert found[0].cost == pytest.approx(s.cost, rel=1e-9)
    assert found[1].cost < 0.95 * s.cost
    np.testing.assert_array_equal(problem.phases[3].costs[0].goal, GOAL)


@pytest.mark.parametrize("index", [(4, 0), (0, 2), (-1, 0), 0, (0,), ("a", 0)])
def test_a_batch_of_a_cost_that_is_not_there_is_an_error(solved, index):
    with pytest.raises(InputError, match="numbered from 0"):
        solved[0].batch(targets={index: [GOAL]})


def test_problems_of_phases_can_be_pickled(robot, solved):
    """Also those of a batch, whose targets are their own; and where most steps are not of the
    problem's dt.
    """
    problem, s = solved
    again = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(again.p, problem.p)
    np.testing.assert_array_equal(again.h, problem.h)
    assert rg.solve(again).cost == s.cost
    (other,) = problem.batch(targets={(3, 0): [START]})
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(other)).p, other.p)
    mixed = rg.Problem(
        robot,
        START,
        phases=[rg.Phase(5, costs=stance_costs()[1:], dt=0.02), rg.Phase(2, costs=stance_costs())],
        dt=0.01,
        actuation=DRIVEN,
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mixed)).h, mixed.h)


# --- solvers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver",
    [
        rg.Direct(),
        rg.Direct(linear_solver="block_cholesky"),
        rg.PDDP(second_order=True),
        rg.PDDP(dtype="float32"),
    ],
    ids=["direct", "block_cholesky", "second order", "float32"],
)
def test_all_solvers_find_the_same_optimum(robot, solved, solver):
    found = rg.solve(jump(robot), solver)
    assert found.converged
    assert found.cost == pytest.approx(solved[1].cost, rel=1e-6)
    # states are as near as the square root of the cost
    np.testing.assert_allclose(found.x, solved[1].x, rtol=1e-3, atol=1e-3)


def test_blocks_need_a_guess_of_controls(robot, solved):
    with pytest.raises(
        InputError,
        match=r"stand at the start, and blocks need controls alone: give guess=problem\.guess",
    ):
        rg.solve(jump(robot), rg.PDDP(blocks=3))
    found = rg.solve(jump(robot, guess=solved[0].guess), rg.PDDP(forward_blocks=3))
    assert found.converged
    assert found.cost == pytest.approx(solved[1].cost, rel=1e-6)


def test_second_derivatives_of_an_impact_are_exact(solved):
    problem, s = solved
    rng = np.random.default_rng(0)
    n = problem.system.ndx
    v = rng.normal(size=n)
    o = problem.programs.layout
    own = [o.state(i) for i in range(n)]
    for k in (3, LANDING):
        H = problem.programs.step_curvature(
            s.x[k], s.u[k], np.array(problem.h[k]), v, *problem.inputs_at(k)
        )[:n][:, own]
        x, d, columns = s.x.copy(), 1e-5, []
        for w in d * np.eye(n):
            sides = []
            for sign in (1, -1):
                x[k] = s.x[k] + sign * w
                sides.append(v @ problem.linearize(x, s.u).A[k])
            columns.append((sides[0] - sides[1]) / (2 * d))
        np.testing.assert_allclose(H, np.stack(columns), rtol=0, atol=1e-5 * np.abs(H).max())


def test_a_solution_is_a_guess(robot, solved):
    again = rg.solve(jump(robot, guess=solved[1]))
    assert again.converged and again.iterations <= 2
    assert again.cost == pytest.approx(solved[1].cost, rel=1e-8)


def test_an_impact_may_come_first_or_last(robot):
    falling = np.r_[START[:FREE], 0.0, -1.0, 0.0, 0.0]
    s = rg.solve(
        rg.Problem(
            robot,
            falling,
            phases=[rg.Impact([FOOT]), rg.Phase(10, [FOOT], stance_costs())],
            dt=0.01,
            actuation=DRIVEN,
        )
    )
    assert s.converged
    np.testing.assert_allclose(
        s.x[1, FREE:], robot.impact(falling[:FREE], falling[FREE:], [FOOT]).v, atol=1e-9
    )
    phases = [rg.Phase(10, [], stance_costs()[1:]), rg.Impact([FOOT])]
    s = rg.solve(
        rg.Problem(robot, START, phases=phases, costs=stance_costs()[:1], dt=0.01, actuation=DRIVEN)
    )
    assert s.converged
    np.testing.assert_allclose(
        s.x[-1, FREE:], robot.impact(s.x[-2, :FREE], s.x[-2, FREE:], [FOOT]).v, atol=1e-9
    )


def test_systems_of_ones_own_have_phases_without_contacts():
    """Steps of different lengths: Euler's, by hand."""
    cart = rg.CustomSystem(lambda x, u: (x[1], u[0]), 2, 1)

    def near():
        return [costs.State([1.0, 0.0], 1.0), costs.Effort(0.1)]

    s = rg.solve(
        rg.Problem(
            cart,
            [0.0, 0.0],
            phases=[rg.Phase(5, costs=near()), rg.Phase(4, costs=near(), dt=0.25)],
            dt=0.1,
        )
    )
    assert s.converged
    h = np.r_[np.full(5, 0.1), np.full(4, 0.25)][:, None]
    np.testing.assert_allclose(
        s.x[1:], s.x[:-1] + h * np.column_stack([s.x[:-1, 1], s.u]), atol=1e-12
    )
    with pytest.raises(InputError, match="a contact needs a robot"):
        rg.Problem(cart, [0.0, 0.0], phases=[rg.Phase(5, [FOOT], near())], dt=0.1)


# --- pages and files ------------------------------------------------------------------------------


def test_reports_and_pages_have_the_times_of_the_knots(robot, solved, tmp_path):
    _, s = solved
    from rigidgrad.viewer.motion import as_motion

    text = rg.report(s, tmp_path / "jump.html").read_text()
    assert "0.49" in text
    assert rg.view(robot, s, html=tmp_path / "view.html").exists()
    motion = as_motion(robot.model, s)
    assert len(motion.t) == len(s.x) - 1  # the two knots of the impact are one moment
    np.testing.assert_allclose(motion.t, np.delete(s.times, LANDING))


def test_solutions_are_saved_and_viewed_with_their_times(robot, solved, tmp_path):
    from rigidgrad.commands.solve import save
    from rigidgrad.commands.view import read_motion
    from rigidgrad.viewer.motion import as_motion

    _, s = solved
    read = read_motion(save(s, tmp_path / "s.npz"))
    np.testing.assert_array_equal(read.t, s.times)
    np.testing.assert_allclose(as_motion(robot.model, read).t, np.delete(s.times, LANDING))


def test_targets_and_obstacles_of_phases_are_drawn(robot, tmp_path):
    """A target of each phase, at its time; an obstacle that only a phase avoids."""
    near, far = (0.1, 0.0, 0.4), (0.3, 0.0, 0.3)
    around = rg.Limits(
        obstacles=[rg.Obstacle((5.0, 0.0, 0.0), 0.2)], spheres=[rg.LinkSphere("body", 0.1)]
    )
    phases = [
        rg.Phase(3, costs=[costs.Reach("foot", near, weight=1.0), costs.Effort(1e-3)]),
        rg.Phase(
            4, costs=[costs.Reach("foot", far, weight=1.0), costs.Effort(1e-3)], limits=around
        ),
    ]
    s = rg.solve(rg.Problem(robot, START, phases=phases, dt=0.01))
    (target,) = s.surroundings.targets
    np.testing.assert_array_equal(target.point, [near] * 3 + [far] * 5)
    assert len(s.surroundings.obstacles) == len(s.surroundings.spheres) == 1
    assert "targets" in rg.report(s, tmp_path / "page.html").read_text()


# --- limits of phases -----------------------------------------------------------------------------


def stance(robot, limits, steps=30, contact=FOOT):
    return rg.Problem(
        robot,
        START,
        phases=[rg.Phase(steps, [contact], stance_costs(), limits)],
        dt=0.01,
        actuation=DRIVEN,
    )


@pytest.mark.parametrize("facets", [4, None])
def test_forces_keep_to_their_friction_cone(robot, facets):
    """A push forward that would slip without the constraint."""
    free = rg.solve(stance(robot, None))
    f = forces(robot, free, slice(None), FOOT)
    assert (np.abs(f[:, 0]) / f[:, 2]).max() > 0.5
    cone = rg.Limits(constraints=[rg.Inequality(costs.FrictionCone(FOOT, facets=facets), upper=0)])
    kept = rg.solve(stance(robot, cone))
    assert kept.converged
    f = forces(robot, kept, slice(None), FOOT)
    slip = (np.hypot(f[:, 0], f[:, 1]) - FOOT.friction * f[:, 2]) / f[:, 2]
    assert slip.max() <= 1e-3
    assert slip.max() > -1e-2  # the constraint is active
    assert kept.cost > free.cost


def test_a_cost_of_a_cone_keeps_near_to_it(robot):
    soft = rg.Problem(
        robot,
        START,
        phases=[rg.Phase(30, [FOOT], [*stance_costs(), costs.FrictionCone(FOOT, 10.0)])],
        dt=0.01,
        actuation=DRIVEN,
    )
    s = rg.solve(soft)
    assert s.converged
    f = forces(robot, s, slice(None), FOOT)
    assert ((np.abs(f[:, 0]) - FOOT.friction * f[:, 2]) / f[:, 2]).max() < 0.02


def test_a_slope_is_climbed_within_a_tilted_cone(robot):
    normal = np.array([-0.25, 0.0, 1.0])
    tilted = foot(normal=normal, friction=0.4)
    s = rg.solve(
        stance(
            robot,
            rg.Limits(
                constraints=[rg.Inequality(costs.FrictionCone(tilted, facets=None), upper=0)]
            ),
            contact=tilted,
        )
    )
    assert s.converged
    f = forces(robot, s, slice(None), tilted)
    n = normal / np.linalg.norm(normal)
    up = f @ n
    side = np.linalg.norm(f - up[:, None] * n, axis=1)
    assert ((side - 0.4 * up) / up).max() <= 1e-3 and up.min() > 0


def test_limits_hold_in_their_phase_alone(robot):
    """A torque limit of the second phase; a position limit of the third."""
    free = rg.solve(jump(robot))
    phases = jump(robot).phases
    most, widest = (
        0.5 * np.abs(free.u[FLIGHT]).max(),
        0.5 * (free.x[LANDING + 2 :, 2].min() + free.x[LANDING + 2 :, 2].max()),
    )
    phases[1].limits = rg.Limits(torque=most)
    above = np.array([-np.inf, -np.inf, widest, -np.inf]), np.full(4, np.inf)
    phases[3].limits = rg.Limits(position=above)
    s = rg.solve(rg.Problem(robot, START, phases=phases, dt=0.01, actuation=DRIVEN))
    assert s.converged
    assert np.abs(s.u[FLIGHT]).max() <= most + 1e-12
    assert np.abs(s.u[:12]).max() > most
    assert s.x[LANDING + 1 :, 2].min() >= widest - 1e-4
    assert free.x[LANDING + 1 :, 2].min() < widest - 1e-3
    assert s.stats["violation"] < 1e-4


def test_constraints_hold_on_the_knots_of_their_phase(robot):
    """Those of an impact on the state before it; later phases from their first knot on, which none
    of the phase before holds.
    """
    base = jump(robot)
    phases = list(base.phases)
    phases[2] = rg.Impact(
        [FOOT], limits=rg.Limits(constraints=[rg.Equality(costs.Height("foot", 0.0))])
    )
    landing = rg.Problem(robot, START, phases=phases, dt=0.01, actuation=DRIVEN)
    s = rg.solve(landing)
    assert s.converged
    height = np.array([robot.forward_kinematics(x[:FREE])["foot"][2, 3] for x in s.x])
    assert abs(height[LANDING]) <= 1e-4 < abs(height[LANDING - 1])
    columns = landing.programs.columns["upper"]
    assert np.flatnonzero(landing.p[:, columns[0]] < 1e11).tolist() == [LANDING]
    phases[1].limits = rg.Limits(constraints=[rg.Inequality(costs.Height("foot"), lower=-0.1)])
    held = rg.Problem(robot, START, phases=phases, dt=0.01, actuation=DRIVEN)
    low = held.p[:, held.programs.columns["lower"]]
    assert np.flatnonzero((low > -1e11).any(axis=1)).tolist() == list(range(12, LANDING + 1))


def sole():
    """The hopper with a foot that turns at an ankle."""
    build = (
        rg.Builder("standing")
        .link("rail")
        .link("cart")
        .link("body", 4.0, (0, 0, 0), (0.1, 0.1, 0.1))
    )
    build.joint("x", "prismatic", "rail", "cart", axis=(1, 0, 0)).joint(
        "z", "prismatic", "cart", "body", axis=(0, 0, 1)
    )
    build.link("leg", 0.5, (0, 0, -0.2), (0.02, 0.02, 0.001)).joint(
        "hip", "revolute", "body", "leg", axis=(0, 1, 0)
    )
    build.link("sole", 0.2, (0, 0, 0), (0.001, 0.001, 0.001)).joint(
        "ankle", "revolute", "leg", "sole", xyz=(0, 0, -0.4), axis=(0, 1, 0)
    )
    return build.build()


def test_the_centre_of_pressure_keeps_to_the_sole():
    robot = sole()
    start, goal = np.r_[0.0, 0.4, np.zeros(6)], np.r_[0.05, 0.4, np.zeros(6)]
    surface = rg.Contact("sole", kind="surface", gains=(0.0, 50.0))

    def pressed(limits):
        aim = [
            costs.State(
                goal, [10.0, 0.0, 0.1, 0.1] + [0.1] * 4, [1e3, 0.0, 1.0, 1.0, 10.0, 0.0, 1.0, 1.0]
            ),
            costs.Effort(1e-3),
        ]
        s = rg.solve(
            rg.Problem(
                robot,
                start,
                phases=[rg.Phase(20, [surface], aim, limits)],
                dt=0.01,
                actuation=["hip", "ankle"],
            )
        )
        assert s.converged
        f = np.asarray(
            robot.contact_dynamics(s.x[:-1, :4], s.x[:-1, 4:], torques(s.u), [surface]).force
        ).reshape(20, 6)
        return -f[:, 4] / f[:, 2]

    assert np.abs(pressed(None)).max() > 0.08
    inside = rg.Limits(
        constraints=[rg.Inequality(costs.CenterOfPressure(surface, (0.06, 0.03)), upper=0)]
    )
    assert 0.0595 < np.abs(pressed(inside)).max() <= 0.06 + 1e-4


# --- errors ---------------------------------------------------------------------------------------

OTHER = rg.Contact("body")
WRONG = {
    "no phase of the problem has this contact; contacts of its phases: foot": lambda r: stance(
        r, rg.Limits(constraints=[rg.Inequality(costs.FrictionCone(OTHER), upper=0)])
    ),
    "facets": lambda r: costs.FrictionCone(FOOT, facets=2),
    "FrictionCone is about a rg.Contact, not 'foot'": lambda r: costs.FrictionCone("foot"),
    "a Barrier with 3 bounds does not fit a residual of 8 numbers": lambda r: rg.Problem(
        r,
        START,
        5,
        0.01,
        costs=[costs.State(START, 1.0, activation=costs.Barrier(upper=[1, 2, 3]))],
    ),
    "the width of Huber is positive, not 0": lambda r: costs.Huber(0),
    "a Barrier needs a bound": lambda r: costs.Barrier(),
    "exchange them": lambda r: costs.Barrier(1.0, 0.0),
    "steps is a whole number of at least 1": lambda r: rg.Phase(0),
    "steps is a whole number": lambda r: rg.Phase(2.5),
    "write rg.Contact\\('foot'\\)": lambda r: rg.Phase(5, ["foot"]),
    "an impact needs contacts": lambda r: rg.Impact([]),
    "from 0 \\(plastic\\) to 1 \\(elastic\\), not 2": lambda r: rg.Impact([FOOT], restitution=2),
    "final= belongs to the last knot of the problem": lambda r: rg.Problem(
        r,
        START,
        phases=[rg.Phase(5, [FOOT], stance_costs()), rg.Phase(5, [FOOT], stance_costs())],
        dt=0.01,
        actuation=DRIVEN,
    ),
    "phase 1 has no dt, nor has the problem": lambda r: rg.Problem(
        r,
        START,
        phases=[rg.Phase(5, costs=stance_costs()[1:], dt=0.01), rg.Phase(5, costs=stance_costs())],
    ),
    "steps or phases, not both": lambda r: rg.Problem(
        r, START, 5, 0.01, phases=[rg.Phase(5, costs=stance_costs())]
    ),
    "at least one rg.Phase": lambda r: rg.Problem(
        r, START, phases=[rg.Impact([FOOT], stance_costs())], dt=0.01
    ),
    "a list of rg.Phase and rg.Impact": lambda r: rg.Problem(r, START, phases=[5], dt=0.01),
    "CenterOfPressure is about a surface": lambda r: costs.CenterOfPressure(FOOT, (0.1, 0.1)),
    "positive metres": lambda r: costs.CenterOfPressure(
        rg.Contact("foot", kind="surface"), (0.1, 0.0)
    ),
    "leave nothing between them": lambda r: rg.Problem(
        r,
        START,
        phases=[rg.Phase(5, [FOOT], stance_costs(), rg.Limits(torque=(5.0, 10.0)))],
        dt=0.01,
        limits=rg.Limits(torque=1.0),
        actuation=DRIVEN,
    ),
    "holds 'foot' twice": lambda r: rg.Problem(
        r, START, phases=[rg.Phase(5, [FOOT, foot()], stance_costs())], dt=0.01, actuation=DRIVEN
    ),
    'impacts need integrator="semi_implicit_euler"': lambda r: jump(r, integrator="rk4"),
    "at= names the knot after its phase": lambda r: rg.Problem(
        r,
        START,
        phases=[
            rg.Phase(
                5,
                costs=stance_costs()[1:],
                limits=rg.Limits(constraints=[rg.Equality(costs.Height("foot"), at="final")]),
            ),
            rg.Phase(5, costs=stance_costs()),
        ],
        dt=0.01,
    ),
    "every phase has a dt of its own": (
        lambda r: rg.Problem(r, START, phases=[rg.Phase(5, costs=stance_costs(), dt=0.01)]).update(
            dt=0.02
        )
    ),
    "is for problems without phases": lambda r: jump(r, guess="line"),
    "repeat is the number of the phase": lambda r: rg.MPC(jump(r), rg.PDDP(), repeat=9),
    "the weight of Height": lambda r: rg.Problem(
        r, START, phases=[rg.Phase(5, costs=[costs.Height("foot", 0.1, [1, 2, 3])])], dt=0.01
    ),
    "has shape \\(7,\\)": lambda r: rg.Problem(
        r, START, phases=[rg.Phase(5, costs=[costs.Height("foot", [0.1] * 7, 1.0)])], dt=0.01
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_a_clear_error(robot, message):
    with pytest.raises(InputError, match=message):
        WRONG[message](robot)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda r: rg.Problem(
            r, START, phases=[rg.Phase(5, [rg.Contact("paw")], stance_costs())], dt=0.01
        ),
        lambda r: rg.Problem(
            r,
            START,
            phases=[rg.Phase(5, [FOOT], stance_costs()), rg.Impact([rg.Contact("paw")])],
            dt=0.01,
        ),
        lambda r: rg.Problem(
            r, START, phases=[rg.Phase(5, [FOOT], [costs.Height("paw", 0.0, 1.0)])], dt=0.01
        ),
        lambda r: rg.Problem(
            r, START, phases=[rg.Phase(5, [FOOT], [costs.FrameVelocity("paw", 0.0, 1.0)])], dt=0.01
        ),
        lambda r: costs.FrameVelocity("foot", expressed_in="body"),
    ],
)
def test_names_that_are_not_there_are_errors(robot, wrong):
    with pytest.raises(UnknownNameError):
        wrong(robot)
