"""Gaits: phases of planned motions, checked with Pinocchio's dynamics, and a walker that steers
MPC, checked with MuJoCo's contacts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import FallenError, InputError, RigidgradError
from rigidgrad.gaits.footholds import foothold, swing_curve
from rigidgrad.gaits.path import Path
from rigidgrad.gaits.rhythm import Rhythm, groups_of, sorted_feet
from rigidgrad.gaits.stance import heading, turn, turned

LEGS = ("lf", "rf", "lh", "rh")
FRICTION, RADIUS = 0.6, 0.02
MOTIONS = {
    "trot": {"step_length": 0.2, "turn": 0.2},
    "pace": {"swing": 0.2},
    "bound": {},
    "walk": {"sideways": 0.05, "cycles": 2},
    "jump": {"length": 0.2},
}


@pytest.fixture(scope="module")
def robot():
    return rg.load("hyq", floating_base=True)


@pytest.fixture(scope="module")
def feet():
    # the end of each shin
    return [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=FRICTION) for leg in LEGS]


@pytest.fixture(scope="module")
def x0(robot, feet):
    """Knees bent, the spheres around its feet on the plane z = 0."""
    x = np.zeros(robot.nq + robot.nv)
    x[6] = 1.0
    x[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x[2] = RADIUS - rg.gaits.Stance(robot, feet, x).ground
    return x


def problem_of(robot, feet, x0, name, **options):
    return rg.Problem(
        robot,
        x0,
        phases=getattr(rg.gaits, name)(robot, feet, x0, **options),
        limits=rg.Limits(torque=True),
    )


# --- rhythm, paths and curves ---------------------------------------------------------------------


def test_a_rhythm_repeats_and_each_foot_swings_once_a_cycle():
    rhythm = Rhythm(((0, 3), (1, 2)), swing=0.25, support=0.05)
    assert rhythm.cycle == pytest.approx(0.6) and rhythm.stance == pytest.approx(0.35)
    assert [rhythm.lift_off(k) for k in range(5)] == [
        0.05,
        pytest.approx(0.35),
        pytest.approx(0.35),
        0.05,
        None,
    ]
    t = np.array([0.0, 0.05, 0.2, 0.2999, 0.3, 0.64, 0.66])
    airborne, began = rhythm.swing_of(0, t)
    assert airborne.tolist() == [False, True, True, True, False, False, True]
    np.testing.assert_allclose(
        began, [0.05, 0.05, 0.05, 0.05, 0.65, 0.65, 0.65], rtol=0, atol=1e-12
    )
    # over a long time, each foot is in the air for its part of it; diagonal feet never at once
    times = np.arange(0.0, 60.0, 1e-3)
    first, second = rhythm.swing_of(0, times)[0], rhythm.swing_of(1, times)[0]
    assert first.mean() == pytest.approx(0.25 / 0.6, abs=1e-4) and not (first & second).any()


def test_feet_are_told_apart_by_where_they_stand():
    places = np.array([[-0.3, 0.2], [0.3, -0.2], [0.3, 0.2], [-0.3, -0.2]])
    assert sorted_feet(places) == {"lh": 0, "rf": 1, "lf": 2, "rh": 3}
    assert groups_of("trot", places) == ((0, 1), (2, 3))
    assert groups_of("pace", places) == ((1, 3), (2, 0))
    assert groups_of("bound", places) == ((2, 1), (0, 3))
    assert groups_of("walk", places) == ((3,), (1,), (0,), (2,)) and groups_of(
        "walk", places[:2]
    ) == ((0,), (1,))
    with pytest.raises(InputError, match="cannot be told apart"):
        sorted_feet(places * (1.0, 0.0))


def test_a_swing_goes_from_rest_to_rest_and_up_between():
    s = np.linspace(0.0, 1.0, 1001)
    rows = swing_curve(np.array([1.0, 2.0, 0.1]), np.array([1.2, 1.9, 0.2]), s, 0.08)
    np.testing.assert_allclose(
        rows[[0, -1]], [[1.0, 2.0, 0.1], [1.2, 1.9, 0.2]], rtol=0, atol=1e-12
    )
    assert rows[500, 2] == pytest.approx(0.15 + 0.08)
    assert np.abs(np.diff(rows, axis=0)[[0, -1]]).max() < 1e-6  # of 1e-3 of the way
    np.testing.assert_allclose(
        foothold(np.array([0.3, 0.2, -0.5]), np.array([1.0, 1.0]), math.pi / 2),
        [0.8, 1.3, -0.5],
        atol=1e-12,
    )


@pytest.mark.parametrize("turning", [0.0, 1e-9, 0.7, -4.0])
def test_a_path_is_the_integral_of_its_velocity(turning):
    path = Path(np.array([1.0, -1.0]), 0.4, np.array([0.5, 0.2]), turning, 2.0, 0.3)
    times = np.linspace(0.0, 2.0, 5001)
    h = times[1]
    where, yaw = path.begin.copy(), path.heading
    for t in times[:-1] + 0.5 * h:
        forward, rate = path.velocity(t)
        where = where + h * turn(path.at(t)[1])[:2, :2] @ forward
        yaw += h * rate
    # the midpoint rule's error is h²
    np.testing.assert_allclose(path.at(2.0)[0], where, rtol=0, atol=1e-6)
    assert (
        path.at(2.0)[1] == pytest.approx(yaw, abs=1e-9)
        and path.velocity(0.0)[1] == path.velocity(2.0)[1] == 0.0
    )


def test_headings():
    q = np.array([0.1, -0.2, 0.3, 0.9])
    q /= np.linalg.norm(q)
    assert heading(turned(q, 0.5)) - heading(q) == pytest.approx(0.5)


# --- motions --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved(robot, feet, x0):
    """All motions, which share what is compiled."""
    problems = {
        name: problem_of(robot, feet, x0, name, **options) for name, options in MOTIONS.items()
    }
    return {name: (problem, rg.solve(problem)) for name, problem in problems.items()}


def test_gaits_differ_in_numbers_alone(solved):
    programs = {name: problem.programs for name, (problem, _) in solved.items()}
    assert all(own is programs["trot"] for own in programs.values())


@pytest.mark.parametrize("name", MOTIONS)
def test_a_motion_lands_on_its_footholds_and_ends_where_asked(name, solved, robot, feet, x0):
    problem, solution = solved[name]
    assert solution.status == "converged"
    assert np.abs(solution.u).max() <= 150.0 * (1 + 1e-12)  # what HyQ's motors can do
    stance, knot, landed = rg.gaits.Stance(robot, feet, x0), 0, 0
    for phase in problem.phases:
        if isinstance(phase, rg.Impact):
            places = stance.feet_of(solution.x[knot])
            for k in range(4):
                reach = phase.costs[2 + k]
                if np.any(reach.weight):
                    assert np.linalg.norm(places[k] - reach.target) < 0.01
                    landed += 1
        knot += phase.steps
    options = MOTIONS[name]
    cycles = options.get("cycles", 1)
    assert landed == 4 * cycles
    angle = cycles * options.get("turn", 0.0)
    ahead = cycles * np.array(
        [options.get("step_length", options.get("length", 0.15)), options.get("sideways", 0.0)]
    )
    end = stance.feet_of(solution.x[-1]) - stance.feet_of(x0)
    np.testing.assert_allclose(
        end.mean(axis=0), [*(turn(0.5 * angle)[:2, :2] @ ahead), 0.0], rtol=0, atol=0.01
    )
    assert heading(solution.x[-1, 3:7]) == pytest.approx(angle, abs=0.02)
    assert np.abs(solution.x[-1, 19:25]).max() < 0.05  # the trunk is at rest


def ground_forces(robot, problem, solution):
    """(forces of the feet that stand, (feet, 3), and what they leave over, (nv,)) at each knot but
    impacts, by Pinocchio's M a + c = τ + Jᵀ f, with the acceleration that the trajectory has.
    """
    pin = pytest.importorskip("pinocchio")
    model = robot.to_pinocchio()
    data = model.createData()
    held = [p.contacts for p in problem.phases for _ in range(p.steps)]
    for knot in np.flatnonzero(problem.h):
        q, v = solution.x[knot, :19], solution.x[knot, 19:]
        a = (solution.x[knot + 1, 19:] - v) / problem.h[knot]
        missing = pin.rnea(model, data, q, v, a) - np.concatenate([np.zeros(6), solution.u[knot]])
        pin.computeJointJacobians(model, data, q)
        pin.updateFramePlacements(model, data)
        rows = []
        for contact in held[knot]:
            frame = model.getFrameId(contact.frame)
            J = pin.getFrameJacobian(model, data, frame, pin.LOCAL_WORLD_ALIGNED)
            arm = data.oMf[frame].rotation @ np.array(contact.offset)
            rows.append(J[:3] - pin.skew(arm) @ J[3:])
        J = np.concatenate(rows) if rows else np.zeros((0, 18))
        f = np.linalg.lstsq(J.T, missing, rcond=None)[0]
        yield f.reshape(-1, 3), missing - J.T @ f


@pytest.mark.parametrize("name", MOTIONS)
def test_forces_of_a_motion_are_the_grounds(name, solved, robot):
    """Cones are costs here: forces leave them by less than 1e-3 of the normal force, and nothing
    else pushes.
    """
    problem, solution = solved[name]
    weight, loads = 86.77 * 9.81, []
    for forces, missing in ground_forces(robot, problem, solution):
        assert np.abs(missing).max() < 1e-6 * weight  # roundings of 1/h
        for f in forces:
            assert f[2] > 0 and math.hypot(f[0], f[1]) <= (FRICTION + 1e-3) * f[2]
        loads.append(forces[:, 2].sum())
    steps = problem.h[problem.h > 0]
    # from rest to rest at the same height, the ground carries the weight in the mean
    assert np.dot(loads, steps) / steps.sum() == pytest.approx(
        weight, rel=0.02 if name != "jump" else 0.03
    )


def test_a_jump_flies(solved):
    problem, solution = solved["jump"]
    flight = next(p for p in problem.phases if not p.contacts)
    first = problem.phases[0].steps
    z = solution.x[first : first + flight.steps + 1, 2]
    assert flight.steps == round(2 * math.sqrt(2 * 0.1 / 9.81) / 0.01)  # up by 0.1 m and down again
    assert z.max() - z[0] > 0.08 and abs(z[-1] - z[0]) < 0.05


def test_cones_as_constraints(robot, feet, x0):
    """What is charged for is then kept to: the problem has inequalities, and no weight on cones."""
    problem = problem_of(robot, feet, x0, "trot", cones="constraint")
    assert len(problem.constraints) == 4 and all(
        type(c).__name__ == "Inequality" for c in problem.constraints
    )
    cones = [c for c in problem.costs if isinstance(c, rg.costs.FrictionCone)]
    assert len(cones) == 4 and not any(np.any(c.weight) for c in cones)


@pytest.mark.parametrize("name", ["trot", "jump", "stand"])
def test_without_a_start_a_motion_begins_in_the_standing_posture(name, robot, feet):
    make = getattr(rg.gaits, name)
    ours = make(robot, iter(feet))
    theirs = make(robot, feet, rg.gaits.standing(robot, feet))
    assert [repr(phase) for phase in ours] == [repr(phase) for phase in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for one, other in zip(a.costs, b.costs, strict=True):
            target = [getattr(cost, "target", None) for cost in (one, other)]
            assert np.array_equal(*target) or target == [None, None]


def test_standing_takes_any_number_of_feet(robot, feet, x0):
    for count in (1, 3, 4):
        (phase,) = rg.gaits.stand(robot, feet[:count], x0, time=0.3, rise=-0.05, dt=0.02)
        assert phase.steps == 15 and len(phase.contacts) == count
        goal = phase.costs[0].goal
        assert goal[-1, 2] - x0[2] == pytest.approx(-0.05) and goal[[0, -1], 21].tolist() == [
            0.0,
            0.0,
        ]
        # the velocity of the reference is that of its height
        assert np.trapezoid(goal[:, 21], dx=0.02) == pytest.approx(-0.05, rel=0.01)


def test_two_soles_walk():
    """Feet of a biped are surfaces: they land flat, turned with the trunk. Atlas, of which the legs
    move.
    """
    atlas = rg.load("atlas", floating_base=True)
    legs = atlas.reduced({j.name: 0.0 for j in atlas.model.joints[1:] if "_leg_" not in j.name})
    x = np.zeros(legs.nq + legs.nv)
    x[6] = 1.0
    x[7:19] = (0.0, 0.0, -0.4, 0.8, -0.4, 0.0) * 2  # knees bent, soles level
    soles = [rg.Contact(f"{side}_foot", "surface") for side in "lr"]
    phases = rg.gaits.walk(
        legs, soles, x, step_length=0.2, turn=0.1, swing=0.4, support=0.1, dt=0.02
    )
    assert [len(p.contacts) for p in phases] == [2, 1, 2, 2, 1, 2, 2]
    left, right = (phases[k].costs[2 + n].target[-1] for n, k in enumerate((2, 5)))
    for pose in (left, right):
        np.testing.assert_allclose(pose[:3, :3], turn(0.1), rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        left[:3, 3] - right[:3, 3], turn(0.1) @ (0.0, 0.223, 0.0), rtol=0, atol=1e-9
    )  # as far apart as its hips
    solution = rg.solve(rg.Problem(legs, x, phases=phases, limits=rg.Limits(torque=True)))
    assert solution.status == "converged"
    for side, landed in zip("lr", (left, right), strict=True):
        found = legs.forward_kinematics(solution.x[-1, : legs.nq])[f"{side}_foot"]
        np.testing.assert_allclose(found[:3, 3], landed[:3, 3], rtol=0, atol=0.01)
        np.testing.assert_allclose(found[:3, :3], landed[:3, :3], rtol=0, atol=0.01)


def test_wrong_gaits_are_refused(robot, feet, x0):
    def build(name="trot", feet=feet, start=x0, robot=robot, **options):
        return getattr(rg.gaits, name)(robot, feet, start, **options)

    with pytest.raises(InputError, match="four feet, and 3 were given"):
        build(feet=feet[:3])
    with pytest.raises(InputError, match="floating_base=True"):
        build(robot=rg.load("hyq"), start=np.zeros(12))
    with pytest.raises(RigidgradError, match="lf_lowreleg"):
        build(feet=[rg.Contact("lf_lowreleg"), *feet[1:]])
    with pytest.raises(InputError, match=r"rg\.Contact"):
        build(feet=["lf_lowerleg"])
    for wrong in (
        {"swing": -0.1},
        {"swing": 0.0},
        {"support": -1.0},
        {"support": math.nan},
        {"dt": 0.0},
        {"cycles": 0},
        {"cycles": 1.5},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            build(**wrong)
    for wrong in (
        {"step_length": math.inf},
        {"step_height": "high"},
        {"turn": math.nan},
        {"cones": "pyramid"},
        {"weights": rg.gaits.Weights()},
    ):
        with pytest.raises(RigidgradError, match=next(iter(wrong))):
            build(**wrong)
    for wrong in ({"height": 0.0}, {"push": -0.1}, {"land": -0.1}):
        with pytest.raises(InputError):
            build("jump", **wrong)
    for endless in (
        {"cycles": 10**9},
        {"dt": 1e-9},
        {"support": 900.0, "cycles": 2},
        {"step_height": -0.1},
    ):
        with pytest.raises(InputError, match=r"steps of|step_height"):
            build("trot", **endless)
    for endless in ({"land": 1e9}, {"push": 999.0, "dt": 1e-3}):
        with pytest.raises(InputError, match="more than 100,000 steps"):
            build("jump", **endless)
    long = x0.copy()
    long[6] = 2.0
    for start in ("home", np.zeros(37), long, np.array([None] * 19)):
        with pytest.raises(InputError, match=r"start of a gait|quaternion"):
            build(start=start)
    with pytest.raises(InputError, match="time"):
        build("stand", time=-1.0)
    with pytest.raises(InputError, match="start of a gait"):
        build(start=np.zeros(5))


# --- walking under control ------------------------------------------------------------------------


@pytest.fixture
def walker(robot, feet, x0):
    return rg.gaits.Walker(robot, feet, x0)


def contacts_of(problem):
    return problem.p[:, problem.programs.inputs][:, problem.system.contact_numbers].copy()


def steer(walker, problem, begin, steps=1):
    for k in range(steps):
        walker.steer(problem, begin + k * 0.02)


def test_without_a_command_all_feet_stand(walker, x0):
    problem = walker.problem()
    steer(walker, problem, 0.0, 50)
    assert contacts_of(problem).all()
    for part in problem.programs.slices[2:6]:
        assert not problem.p[:, part["weight"]].any()
    np.testing.assert_allclose(
        problem.p[:, problem.programs.slices[0]["target"]], np.tile(x0, (26, 1)), rtol=0, atol=1e-12
    )


def test_a_command_starts_swings_at_the_end_of_the_horizon_and_ends_them_there(walker):
    problem = walker.problem()
    walker.command = (0.3, 0.0, 0.0)
    seen = []
    for k in range(40):
        walker.steer(problem, k * 0.02)
        seen.append(contacts_of(problem))
    assert seen[0][:-1].all()  # nothing that is about to happen changes
    first = [int(np.flatnonzero(~rows.all(axis=1))[0]) if not rows.all() else 26 for rows in seen]
    # it comes nearer, knot by knot
    assert first[1] >= 23 and np.diff(first[3:20]).tolist() == [-1] * 16
    lifted = seen[30][0]
    assert lifted.tolist() in ([1, 0, 0, 1], [0, 1, 1, 0])  # a diagonal pair is in the air
    walker.command = (0.0, 0.0, 0.0)
    for k in range(40, 140):
        before = contacts_of(problem)
        walker.steer(problem, k * 0.02)
        now = contacts_of(problem)
        # plans change where the horizon ends alone
        np.testing.assert_array_equal(now[:-2], before[1:-1])
    assert now.all()


def test_commands_are_ramped_and_the_trunk_moves_by_them(walker, x0):
    problem = walker.problem()
    walker.command = (0.3, -0.1, 0.5)
    steer(walker, problem, 0.0, 11)
    # 1 m/s² and rad/s² for 0.2 s
    np.testing.assert_allclose(walker.moving, (0.2, -0.1, 0.2), rtol=0, atol=1e-9)
    steer(walker, problem, 0.22, 30)
    np.testing.assert_allclose(walker.moving, walker.command)
    trunk = problem.p[:, problem.programs.slices[0]["target"]]
    np.testing.assert_allclose(trunk[:, [19, 20, 24]], np.tile((0.3, -0.1, 0.5), (26, 1)))
    angles = np.array([heading(x[3:7]) for x in trunk])
    np.testing.assert_allclose(np.diff(angles), 0.5 * 0.02, rtol=1e-9)
    assert np.hypot(*(trunk[-1, :2] - x0[:2])) == pytest.approx(
        math.hypot(0.3, 0.1) * 0.5, rel=0.01
    )  # the chord of an arc of a quarter radian


def test_feet_swing_to_where_the_trunk_will_be(walker, x0):
    problem = walker.problem()
    walker.command = (0.3, 0.0, 0.0)
    steer(walker, problem, 0.0, 30)
    off = contacts_of(problem) == 0
    for k in range(4):
        part = problem.programs.slices[2 + k]
        swinging = problem.p[:, part["weight"]].any(axis=1)
        assert (
            swinging == off[:, k]
        ).mean() > 0.9 and swinging.any()  # knots at its ends may differ
        rows = problem.p[swinging][:, part["target"]]
        assert rows[:, 2].min() >= RADIUS - 1e-9 and 0.05 < rows[:, 2].max() <= RADIUS + 0.08 + 1e-9
        ahead = rows[:, 0].max() - walker.stance.feet_of(x0)[k, 0]
        # not beyond what the horizon and half a stance bring, and Raibert's term
        assert 0.0 < ahead < 0.3 * 0.5 + 0.3 * 0.35 + 0.1


def test_a_fallen_robot_is_not_steered(walker, x0):
    problem = walker.problem()
    problem.start = x0.copy()
    problem.start[3:7] = (math.sin(0.7), 0.0, 0.0, math.cos(0.7))
    assert walker.has_fallen(problem.start)
    with pytest.raises(FallenError):
        walker.steer(problem, 0.0)


def test_walkers_refuse_what_they_cannot_do(robot, feet, x0, walker):
    with pytest.raises(RigidgradError, match="gallop"):
        rg.gaits.Walker(robot, feet, x0, gait="gallop")
    with pytest.raises(InputError, match="four feet"):
        rg.gaits.Walker(robot, feet[:3], x0)
    with pytest.raises(InputError, match="command"):
        walker.command = (math.nan, 0.0, 0.0)
    other = rg.Problem(robot, x0, steps=3, dt=0.02, costs=[rg.costs.Effort(1.0)])
    with pytest.raises(InputError, match="its own problem"):
        walker.steer(other, 0.0)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"steps": 0}, "steps"), ({"steps": 1.5}, "steps"), ({"dt": 0.0}, "dt"), ({"dt": math.nan}, "dt"), ({"weights": 3}, "Weights"), ({"terrain": 3}, "terrain"),
        ({"acceleration": -1.0}, "acceleration"), ({"acceleration": 0.0}, "acceleration"), ({"step_height": -0.1}, "step_height"),
    ],
)  # fmt: skip
def test_a_walker_of_senseless_options_is_an_error_at_once(robot, feet, x0, option, said):
    with pytest.raises(InputError, match=said):
        rg.gaits.Walker(robot, feet, x0, **option)


def test_further_costs_stand_behind_those_that_a_walker_writes(walker, robot, x0):
    own = walker.problem()
    before = rg.Problem(robot, x0, phases=own.phases, costs=[rg.costs.Effort(1e-6)])
    with pytest.raises(InputError, match="further costs at the end"):
        walker.steer(before, 0.0)
    (phase,) = own.phases
    behind = rg.Problem(
        robot, x0, phases=[phase.with_terms([*phase.costs, rg.costs.Effort(1e-6)], phase.limits)]
    )
    walker.reset()
    walker.steer(behind, 0.0)
    walker.steer(own, 0.0)
    shared = behind.programs.slices[1]["target"].start
    np.testing.assert_array_equal(behind.p[:, :shared], own.p[:, :shared])


def test_ground_that_is_no_number_is_not_planned_for(robot, feet, x0):
    walker = rg.gaits.Walker(robot, feet, x0)
    problem = walker.problem()
    walker.terrain = lambda x, y: np.nan * np.asarray(x)
    with pytest.raises(InputError, match="height of the terrain holds NaN"):
        walker.steer(problem, 0.0)
    walker.terrain = lambda x, y: None
    with pytest.raises(InputError, match="height of the terrain"):
        walker.steer(problem, 0.02)


def test_it_trots_as_fast_as_commanded(walker, x0, feet):
    """Two seconds in MuJoCo, whose contacts the controller does not know."""
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rigidgrad[plants]'")
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    ground = rg.plants.Ground({f.frame: (RADIUS, f.offset) for f in feet})
    plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=ground)
    walker.command = (0.3, 0.0, 0.0)
    begun, lifted = None, np.zeros(4, bool)
    while plant.time < 2.0:
        if begun is None and plant.time >= 0.8:  # under way: two cycles are left
            begun = plant.x[0]
        u = mpc.step(plant.x, plant.time)
        assert np.abs(u).max() <= 150.0
        plant.advance(u)
        lifted |= walker.stance.feet_of(plant.x)[:, 2] > RADIUS + 0.03
    assert (plant.x[0] - begun) / 1.2 == pytest.approx(0.3, rel=0.15)
    assert lifted.all() and abs(plant.x[1]) < 0.05 and abs(plant.x[2] - x0[2]) < 0.05
    assert not any(mpc.counts.values()), mpc.counts
