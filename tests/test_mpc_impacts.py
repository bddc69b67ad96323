"""Controllers of problems with impacts: they pass as phases do, once or again and again."""

from __future__ import annotations

import numpy as np
import pytest
from test_mpc_phases import DT, HOPPER

import rigidgrad as rg
from rigidgrad.errors import InputError

STAND = np.array([0.5, 0.5, 0.0, 0.0])
FOOT = rg.Contact("foot")
TOP = 0.8
STANCE, FLIGHT = 10, 15


@pytest.fixture(scope="module")
def hopper():
    return rg.load(HOPPER)


def hop(steps=(STANCE, FLIGHT), stance_dt=DT):
    """To stand and push, to fly through 0.8 m, to land."""
    pushes = rg.Limits(
        constraints=[
            rg.Inequality(rg.costs.ContactForce(FOOT), lower=(-np.inf, -np.inf, 0.0)),
        ]
    )
    top = np.zeros((steps[1], 1))
    top[steps[1] // 2] = 1e3
    return [
        rg.Phase(steps[0], FOOT, limits=pushes, dt=stance_dt),
        rg.Phase(steps[1], costs=[rg.costs.Reach("body", (0, 0, TOP), weight=top)], dt=DT),
        rg.Impact(FOOT, costs=[rg.costs.Reach("foot", (0, 0, 0), weight=1e4)]),
    ]


def hopping(hopper, phases, *costs):
    still = rg.costs.State(STAND, weight=[0.1, 1.0, 0.01, 0.1], final=[0.0, 10.0, 0.0, 0.0])
    return rg.Problem(
        hopper,
        STAND,
        actuation=["leg"],
        phases=phases,
        costs=[rg.costs.Effort(1e-4), still, *costs],
        limits=rg.Limits(torque=True),
    )


class Ground:
    """The hopper on rigid ground, which pushes and does not pull, at 1 kHz: it decides by itself
    when the foot lands and lifts off.
    """

    dt = 1e-3

    def __init__(self, robot):
        self.robot, self.x, self.time = robot, STAND.copy(), 0.0
        self.stands, self.landed, self.heights = True, [], []

    def advance(self, u):
        q, v = self.x[:2], self.x[2:]
        tau = np.append(0.0, u)
        if self.stands:
            found = self.robot.contact_dynamics(q, v, tau, contacts=[FOOT])
            self.stands = found.force[2] > 0.0
        v = v + self.dt * (found.a if self.stands else self.robot.aba(q, v, tau))
        q = q + self.dt * v
        if not self.stands and q[0] < q[1] and v[0] < v[1]:
            self.landed.append(self.time)
            v, self.stands = self.robot.impact(q, v, contacts=[FOOT]).v, True
        self.x = np.concatenate([q, v])
        self.time += self.dt
        self.heights.append(q[0])

    def follow(self, mpc, seconds, seen=lambda plant: (plant.x, plant.time)):
        while self.time < seconds - 1e-9:
            self.advance(mpc.step(*seen(self)))
        return np.array(self.heights)


def tops(heights, cycle=500):
    return np.array(
        [heights[k : k + cycle].max() for k in range(0, len(heights) - cycle + 1, cycle)]
    )


@pytest.mark.parametrize(
    ("period", "options"),
    [
        (DT, {}),
        (0.007, {"latency": 0.004}),  # plans begin in the middle of steps, and across impacts
    ],
)
def test_hops_come_again_and_again(hopper, period, options):
    mpc = rg.MPC(
        hopping(hopper, hop() * 2), rg.PDDP(iterations=2), period=period, repeat=0, **options
    )
    plant = Ground(hopper)
    heights = plant.follow(mpc, 2.5)
    np.testing.assert_allclose(tops(heights), TOP, rtol=0, atol=0.025)
    # it lands when plans say it does, and only then
    np.testing.assert_allclose(plant.landed, [0.5, 1.0, 1.5, 2.0], rtol=0, atol=0.015)
    assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)


def test_impacts_pass_and_the_last_phase_goes_on(hopper):
    """Steps of two lengths; after one hop it stands."""
    phases = [*hop((20, FLIGHT), 0.01), rg.Phase(15, FOOT, limits=hop()[0].limits, dt=DT)]
    mpc = rg.MPC(hopping(hopper, phases), rg.PDDP(iterations=2), period=0.01)
    plant = Ground(hopper)
    heights = plant.follow(mpc, 1.6)
    assert tops(heights)[0] == pytest.approx(TOP, abs=0.03)
    assert len(plant.landed) == 1 and plant.landed[0] == pytest.approx(0.5, abs=0.015)
    np.testing.assert_allclose(plant.x, STAND, rtol=0, atol=0.03)
    assert (mpc.problem.h[1:] == DT).all() and not any(mpc.counts.values())
    mpc.reset()
    assert mpc.problem.h[0] == 0.01  # it begins anew
    np.testing.assert_array_equal(Ground(hopper).follow(mpc, 0.2), heights[:200])


def test_an_impact_at_this_moment_is_still_to_come(hopper):
    """It is over a moment later; controls are those of a step that lasts, within its limits."""
    mpc = rg.MPC(hopping(hopper, hop()), rg.PDDP(iterations=1), period=0.01, repeat=0)
    falling = np.array([0.5, 0.5, -1.0, 0.0])
    for k in range(50):
        mpc.step(falling, 0.01 * k)
        assert mpc.problem.h[0] > 0.0
    before = mpc.step(falling, 0.5)
    assert mpc.problem.h[0] == 0.0 and mpc.problem.now == 1
    assert np.isfinite(mpc.problem.bounds_now).all() and np.abs(before).max() <= 300.0
    # the foot stands after it
    after = mpc.plan.x[1]
    np.testing.assert_allclose(after[2] - after[3], 0.0, atol=1e-9)
    # feedback is of what was measured, which may be the state before the impact or after it
    planned = mpc.plan.u[1]
    for state in (falling, after):
        np.testing.assert_allclose(mpc.plan.control(0.5, state), planned, rtol=0, atol=1e-9)
    mpc.step(after, 0.51)
    assert mpc.problem.h[0] == pytest.approx(0.01) and mpc.problem.now == 0


@pytest.mark.parametrize(
    "solver",
    [
        rg.PDDP(iterations=2, dtype="float32"),
        rg.PDDP(iterations=2, blocks=2),
        rg.Direct(iterations=3),
    ],
    ids=["float32", "blocks", "direct"],
)
def test_other_solvers(hopper, solver):
    mpc = rg.MPC(hopping(hopper, hop() * 2), solver, period=DT, repeat=0)
    heights = Ground(hopper).follow(mpc, 1.0)
    np.testing.assert_allclose(tops(heights), TOP, rtol=0, atol=0.025)
    assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)


def test_the_control_s_rate_knows_of_impacts(hopper):
    problem = hopping(hopper, hop() * 2, rg.costs.ControlRate(1e-8))
    mpc = rg.MPC(problem, rg.PDDP(iterations=2), period=DT, repeat=0)
    heights = Ground(hopper).follow(mpc, 1.0)
    np.testing.assert_allclose(tops(heights), TOP, rtol=0, atol=0.025)
    assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)


def test_prepared_steps(hopper):
    """What is done ahead of a measurement that then is as foreseen changes nothing that matters."""
    heights = []
    for ahead in (False, True):
        mpc = rg.MPC(hopping(hopper, hop() * 2), rg.PDDP(iterations=1), period=0.01, repeat=0)
        plant = Ground(hopper)
        while plant.time < 1.0 - 1e-9:
            plant.advance(mpc.step(plant.x, plant.time))
            if ahead:
                mpc.prepare(plant.time)
        heights.append(np.array(plant.heights))
        assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)
    np.testing.assert_allclose(heights[1], heights[0], rtol=0, atol=0.02)


def test_faults(hopper):
    """Samples that are missing, are none, or nonsense, and a solver that fails: as without
    impacts, no exception and no control beyond its limits; it goes on to hop.
    """
    mpc = rg.MPC(hopping(hopper, hop() * 2), rg.PDDP(iterations=2), period=0.01, repeat=0)
    plant, rng = Ground(hopper), np.random.default_rng(0)

    def seen(plant):
        kind = rng.random()
        if kind < 0.2:
            return None, plant.time
        if kind < 0.3:
            return np.full(4, np.nan), plant.time
        if kind < 0.35:
            return plant.x + 30.0 * rng.normal(size=4), plant.time
        return plant.x, plant.time

    heights = plant.follow(mpc, 1.0, seen)
    make = mpc._planner.make

    def failing(*arguments):
        raise ArithmeticError("a solve that fails")

    mpc._planner.make = failing
    heights = plant.follow(mpc, 1.04)
    mpc._planner.make = make
    heights = plant.follow(mpc, 2.0, seen)
    np.testing.assert_allclose(tops(heights), TOP, rtol=0, atol=0.06)
    assert np.abs(mpc.log.u).max() <= 300.0 and np.isfinite(mpc.log.u).all()
    assert mpc.counts["missing"] and mpc.counts["outlier"] and mpc.counts["kept"]
    assert mpc.counts["cold"]


def test_a_landing_is_no_outlier(hopper):
    """A foot that stops at once from 6 m/s has had no force of an actuator, but an impact."""
    mpc = rg.MPC(hopping(hopper, hop()), rg.PDDP(iterations=1), period=0.02, repeat=0)
    flying = np.array([0.6, 0.59, -6.0, 0.0])
    landed = np.concatenate([flying[:2], hopper.impact(flying[:2], flying[2:], contacts=[FOOT]).v])
    for k in range(3):
        mpc.step(flying, 0.001 * k)
    assert np.abs(landed - flying).max() > 2.0
    before = dict(mpc.counts)
    mpc.step(landed, 0.003)
    assert mpc.counts == before
    mpc.step(landed + [0, 0, 20.0, -20.0], 0.004)
    assert mpc.counts["outlier"] == before["outlier"] + 1


def test_motions_that_cannot_go_on_are_errors(hopper):
    with pytest.raises(InputError, match=r"impact cannot: end with an rg\.Phase, or give repeat="):
        rg.MPC(hopping(hopper, hop()))
    with pytest.raises(InputError, match="from 2 on are impacts"):
        rg.MPC(hopping(hopper, hop()), repeat=2)


def test_a_quadruped_jumps_and_lands():
    """The phases of `rg.gaits.jump`, with its impact, in MuJoCo on ground that the plans do not
    know of.
    """
    robot = rg.load("hyq", floating_base=True)
    legs = ("lf", "rf", "lh", "rh")
    feet = [rg.Contact(f"{k}_lowerleg", offset=(0.33, 0, 0), friction=0.6) for k in legs]
    x0 = np.zeros(37)
    x0[6] = 1.0
    x0[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x0[2] = 0.02 - rg.gaits.Stance(robot, feet, x0).ground
    phases = rg.gaits.jump(robot, feet, x0, height=0.1, length=0.1, dt=0.02)
    assert any(isinstance(phase, rg.Impact) for phase in phases)
    mpc = rg.MPC(
        rg.Problem(robot, x0, phases=phases, limits=rg.Limits(torque=True)),
        rg.PDDP(iterations=1),
        period=0.02,
    )
    ground = rg.plants.Ground({f.frame: (0.02, f.offset) for f in feet}, friction=0.8)
    plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=ground)
    flying, top = 0, 0.0
    while plant.time < 1.5:
        plant.advance(mpc.step(plant.x, plant.time))
        flying += not any(plant.touching)
        top = max(top, plant.x[2])
    assert flying > 200 and top > x0[2] + 0.1
    assert plant.x[0] == pytest.approx(0.1, abs=0.03) and abs(plant.x[2] - x0[2]) < 0.04
    assert abs(plant.x[6]) > 0.999 and np.abs(plant.x[19:22]).max() < 0.1  # upright, and at rest
    assert not any(mpc.counts.values()), (mpc.counts, mpc.trouble)
