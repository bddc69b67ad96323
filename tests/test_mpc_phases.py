"""Controllers of problems with several phases: phases pass with time, and the last one goes on."""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError

DT = 0.02
CART = """
<robot name="cart">
  <link name="rail"/>
  <link name="cart"><inertial><mass value="2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/><limit lower="-3" upper="3" velocity="10" effort="100"/></joint>
</robot>"""
HOPPER = """
<robot name="hopper">
  <link name="rail"/>
  <link name="body"><inertial><mass value="5"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <link name="foot"><inertial><mass value="0.3"/><inertia ixx="0.001" ixy="0" ixz="0" iyy="0.001" iyz="0" izz="0.001"/></inertial></link>
  <joint name="height" type="prismatic"><parent link="rail"/><child link="body"/><axis xyz="0 0 1"/><limit lower="0" upper="3" velocity="10" effort="0"/></joint>
  <joint name="leg" type="prismatic"><parent link="body"/><child link="foot"/><axis xyz="0 0 -1"/><limit lower="0.2" upper="0.7" velocity="10" effort="300"/></joint>
</robot>"""


def there_and_back(robot, last=20, weaker=None):
    """A cart that is wanted at 0, at 1 and at 0.5, for 0.4 s each; the last control limits are
    narrower if asked for.
    """

    def phase(steps, goal, final=0.0, limits=None):
        return rg.Phase(
            steps,
            costs=[rg.costs.State((goal, 0.0), weight=(10.0, 0.1), final=final)],
            limits=limits,
        )

    phases = [phase(20, 0.0), phase(20, 1.0), phase(last, 0.5, final=(1e3, 1e2), limits=weaker)]
    return rg.Problem(robot, (0.0, 0.0), dt=DT, phases=phases, costs=[rg.costs.Effort(1e-4)])


def driven(mpc, seconds, x=(0.0, 0.0)):
    """States at the knots, when the controller acts on what it believes in."""
    x, states = np.array(x), []
    plant = rg.plants.Simulator(mpc.system, x, dt=DT, integrator="semi_implicit_euler")
    for _ in range(round(seconds / DT)):
        states.append(plant.x)
        plant.advance(mpc.step(plant.x, plant.time))
    return np.array(states)


@pytest.fixture(scope="module")
def cart():
    return rg.load(CART)


def test_phases_pass_and_the_last_one_goes_on(cart):
    """The cart anticipates each phase as the optimum of the whole motion does, which is another
    solve, and stays where the last one wants it.
    """
    mpc = rg.MPC(there_and_back(cart), rg.PDDP(iterations=2), period=DT)
    states = driven(mpc, 2.0)
    optimum = rg.solve(there_and_back(cart, last=60)).x
    np.testing.assert_allclose(states[:60, 0], optimum[:60, 0], rtol=0, atol=0.02)
    assert states[10, 0] < 0.2 and states[35, 0] > 0.8
    np.testing.assert_allclose(states[-20:, 0], 0.5, rtol=0, atol=5e-3)
    assert not any(mpc.counts.values()), mpc.counts
    mpc.reset()
    np.testing.assert_array_equal(driven(mpc, 0.6), states[:30])  # it begins anew


def test_limits_pass_with_their_phase(cart):
    mpc = rg.MPC(
        there_and_back(cart, weaker=rg.Limits(torque=4.0)), rg.PDDP(iterations=2), period=DT
    )
    driven(mpc, 1.6)
    forces = np.abs(mpc.log.u[:, 0])
    assert forces[:39].max() > 8.0 and forces[41:].max() <= 4.0 + 1e-9


def test_an_update_is_of_the_whole_motion(cart):
    problem = there_and_back(cart)
    mpc = rg.MPC(problem, rg.PDDP(iterations=2), period=DT)
    driven(mpc, 1.0)
    part = mpc.problem.programs.slices[1]
    assert mpc.problem.p[0, part["target"]].tolist() == [0.5, 0.0]
    mpc.problem.phases[2].costs[0].goal = (0.8, 0.0)
    mpc.update()
    mpc.step(np.array([0.5, 0.0]), 1.0)
    # and the phases that are over stay so
    np.testing.assert_array_equal(mpc.problem.p[:, part["target"]], np.tile((0.8, 0.0), (61, 1)))


def test_contacts_pass():
    """A hopper stands, flies and stands: the numbers that say when its foot holds come nearer with
    each plan.
    """
    hopper, foot, stand = (
        rg.load(HOPPER),
        rg.Contact("foot", gains=(0.0, 0.5 / DT)),
        np.array([0.5, 0.5, 0.0, 0.0]),
    )
    costs = [rg.costs.State(stand, weight=[1.0, 1.0, 0.1, 0.1], final=10.0), rg.costs.Effort(1e-4)]
    phases = [
        rg.Phase(8, foot, costs[:1]),
        rg.Phase(4, (), costs[:1]),
        rg.Phase(8, foot, costs[:1]),
    ]
    phases = [
        rg.Phase(
            p.steps,
            p.contacts,
            [rg.costs.State(stand, weight=[1.0, 1.0, 0.1, 0.1], final=10.0 * (k == 2))],
        )
        for k, p in enumerate(phases)
    ]
    mpc = rg.MPC(
        rg.Problem(hopper, stand, dt=DT, actuation=["leg"], phases=phases, costs=costs[1:]),
        rg.PDDP(iterations=1),
        period=DT,
    )
    whole = np.array([1.0] * 8 + [0.0] * 4 + [1.0] * 60)
    for k in range(30):
        mpc.step(stand, DT * k)
        rows = mpc.problem.p[:-1, mpc.problem.programs.inputs][:, mpc.system.contact_numbers]
        np.testing.assert_array_equal(rows[:, 0], whole[k : k + 20])


def test_phases_whose_steps_differ_pass(cart):
    """Knots of plans are those of the motion, whenever a plan begins: the cart moves as the optimum
    of the whole motion, which is another solve.
    """

    def motion(last):
        phases = [
            rg.Phase(20, costs=[rg.costs.State((0.0, 0.0), weight=(10.0, 0.1))]),
            rg.Phase(40, costs=[rg.costs.State((1.0, 0.0), weight=(5.0, 0.05))], dt=0.01),
            rg.Phase(
                last,
                costs=[rg.costs.State((0.5, 0.0), weight=(10.0, 0.1), final=(1e3, 1e2))],
            ),
        ]
        return rg.Problem(cart, (0.0, 0.0), dt=DT, phases=phases, costs=[rg.costs.Effort(1e-4)])

    optimum = rg.solve(motion(60))
    for period in (DT, 0.013):
        mpc = rg.MPC(motion(20), rg.PDDP(iterations=2), period=period)
        plant = rg.plants.Simulator(mpc.system, (0.0, 0.0), dt=1e-3)
        while plant.time < 2.0 - 1e-9:
            u = mpc.step(plant.x, plant.time)
            planned = np.interp(plant.time, optimum.times, optimum.x[:, 0])
            assert abs(plant.x[0] - planned) < 0.04, plant.time
            plant.advance(u)
            # whatever has passed, a plan's knots are at moments in which the motion's are
            knots = mpc.plan.start + mpc.plan.knots[1:]
            whole = np.append(optimum.times, optimum.times[-1] + DT * np.arange(1, 80))
            assert np.abs(knots[:, None] - whole).min(axis=1).max() < 1e-3 * DT + 1e-9
        assert plant.x[0] == pytest.approx(0.5, abs=5e-3)
        assert not any(mpc.counts.values()), mpc.counts


def test_a_rest_of_a_step_is_charged_for_as_much_as_it_lasts(cart):
    costs = [rg.costs.State((1.0, 0.0), weight=10.0), rg.costs.Effort(1e-4)]
    phases = [rg.Phase(5, costs=costs, dt=0.01), rg.Phase(5, costs=costs, dt=0.02)]
    mpc = rg.MPC(rg.Problem(cart, (0.0, 0.0), phases=phases), period=0.005)
    for k in range(14):
        mpc.step(np.zeros(2), 0.005 * k)
    # 65 ms have passed: the second phase is on, and a quarter of its first step is left
    assert mpc.problem.h == pytest.approx([0.005, *[0.02] * 9])
    weight = mpc.problem.programs.slices[0]["weight"]
    assert mpc.problem.p[:-1, weight][:, 0] == pytest.approx([2.5, *[10.0] * 9])
    mpc.problem.phases[1].costs[0].weight = 4.0
    mpc.update()
    mpc.step(np.zeros(2), 0.07)
    assert mpc.problem.p[:-1, weight][:, 0] == pytest.approx([4.0] * 10)


def test_a_time_step_may_change_where_phases_leave_it_open(cart):
    costs = [rg.costs.State((1.0, 0.0), weight=10.0), rg.costs.Effort(1e-4)]
    phases = [rg.Phase(5, costs=costs, dt=0.01), rg.Phase(5, costs=costs)]
    mpc = rg.MPC(rg.Problem(cart, (0.0, 0.0), phases=phases, dt=0.02), period=0.01)
    mpc.step(np.zeros(2), 0.0)
    mpc.problem.update(dt=0.04)
    mpc.step(np.zeros(2), 0.0)
    assert mpc.problem.h == pytest.approx([0.01] * 5 + [0.04] * 5)
    mpc.problem.update(dt=0.01)  # all alike would be another program
    mpc.step(np.zeros(2), 0.01)
    assert mpc.counts["refused"] == 1 and "make another problem" in mpc.trouble
    assert mpc.problem.h == pytest.approx([0.01] * 4 + [0.04] * 6)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"repeat": 2}, "from 0 to 1, not 2"),
        ({"repeat": -1}, "from 0 to 1, not -1"),
        ({"repeat": True}, "not True"),
        ({"repeat": "all"}, "not 'all'"),
    ],
)
def test_wrong_repeats_are_errors(cart, options, match):
    costs = [rg.costs.State((0.0, 0.0), weight=1.0)]
    phases = [rg.Phase(5, costs=costs), rg.Phase(5, costs=costs)]
    with pytest.raises(InputError, match=match):
        rg.MPC(rg.Problem(cart, (0.0, 0.0), dt=DT, phases=phases), **options)
    whole = rg.Problem(cart, (0.0, 0.0), 5, DT, costs=costs)
    with pytest.raises(InputError, match="repeat= is for problems with phases"):
        rg.MPC(whole, repeat=0)


def test_phases_come_again(cart):
    """From one place to another and back, without end, at steps that are all alike: as the optimum
    of a motion that has the phases three times.
    """

    def phases(times):
        return [
            rg.Phase(15, costs=[rg.costs.State((goal, 0.0), weight=(10.0, 0.1))])
            for goal in (0.5, -0.5) * times
        ]

    def motion(times):
        return rg.Problem(
            cart, (0.0, 0.0), dt=DT, phases=phases(times), costs=[rg.costs.Effort(1e-4)]
        )

    mpc = rg.MPC(motion(1), rg.PDDP(iterations=2), period=DT, repeat=0)
    states = driven(mpc, 1.8)
    optimum = rg.solve(motion(4)).x
    np.testing.assert_allclose(states[:90, 0], optimum[:90, 0], rtol=0, atol=0.05)
    np.testing.assert_allclose(states[30:60, 0], states[60:90, 0], rtol=0, atol=0.02)
    assert not any(mpc.counts.values()), mpc.counts
