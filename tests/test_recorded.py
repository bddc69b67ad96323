"""robot.at(x) is the robot's functions over any scalar: the same numbers, and derivatives in
functions that users write.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.math import cos, norm

TIP, WRIST = "iiwa_link_7", "iiwa_link_4"
START = np.r_[0.3, 0.4, 0.5, -0.6, 0.2, 0.3, 0.1, np.zeros(7)]


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


@pytest.mark.parametrize(
    ("name", "frame"), [("iiwa14", TIP), ("quadrotor", "rotor_2"), ("hyq", "lf_lowerleg")]
)
def test_the_same_numbers_as_the_robot(name, frame):
    robot = rg.load(name, floating_base=name == "hyq")
    s = robot.random(seed=3)
    at = robot.at(np.r_[s.q, s.v])
    wrench = np.arange(1.0, 7.0)
    T = robot.forward_kinematics(s.q)[frame]
    offset = np.array([0.1, -0.2, 0.3])
    J = robot.jacobian(s.q, frame)
    expected = {
        "placement": (at.placement(frame), T),
        "rotation": (at.rotation(frame), T[:3, :3]),
        "position": (at.position(frame, offset.tolist()), T[:3, 3] + T[:3, :3] @ offset),
        "velocity": (at.velocity(frame), robot.frame_velocity(s.q, s.v, frame)),
        "local velocity": (
            at.velocity(frame, "local"),
            robot.frame_velocity(s.q, s.v, frame, expressed_in="local"),
        ),
        "velocity of a point": (
            at.velocity(frame, offset=offset)[:3],
            J[:3] @ s.v + np.cross(J[3:] @ s.v, T[:3, :3] @ offset),
        ),
        "center_of_mass": (at.center_of_mass(), robot.center_of_mass(s.q)),
        "momentum": (at.momentum(), robot.centroidal_momentum(s.q, s.v)),
        "energy": (tuple(at.energy()), tuple(robot.energy(s.q, s.v))),
        "acceleration": (
            at.acceleration(s.tau, external={frame: wrench}),
            robot.aba(s.q, s.v, s.tau, external={frame: wrench}),
        ),
        "inverse_dynamics": (
            at.inverse_dynamics(s.v, external={frame: wrench}),
            robot.rnea(s.q, s.v, s.v, external={frame: wrench}),
        ),
        "gravity_torque": (robot.at(s.q).gravity_torque(), robot.gravity_torque(s.q)),
        "mass_matrix": (at.mass_matrix(), robot.crba(s.q)),
    }
    for what, (found, known) in expected.items():
        scale = max(1.0, np.abs(known).max())
        assert np.abs(np.array(found, dtype=float) - known).max() < 1e-9 * scale, what


def test_distances_between_spheres_on_links(arm):
    q = START[:7]
    T = arm.forward_kinematics(q)
    between = np.linalg.norm(T[TIP][:3, 3] - T[WRIST][:3, 3])
    at = arm.at(q)
    assert at.distance(TIP, WRIST, radius=0.05, other_radius=0.1) == pytest.approx(
        between - 0.15, abs=1e-7
    )
    assert at.distance(TIP, (0.1, 0.2, 0.3)) == pytest.approx(
        np.linalg.norm(T[TIP][:3, 3] - [0.1, 0.2, 0.3]), abs=1e-7
    )
    assert at.distance(TIP, TIP, offset=(0, 0, 0.2)) == pytest.approx(0.2, abs=1e-7)


def test_derivatives_by_complex_steps(arm):
    """Of what `differentiate` makes of a recorded function, here through the gradient of a cost."""

    def function(x, u):
        at = arm.at(x)
        a = at.acceleration(tuple(3.0 * w for w in u))
        return (
            norm(a, smooth=1.0)
            + at.distance(TIP, WRIST, radius=0.05)
            + at.momentum()[2]
            + cos(at.velocity(TIP, "local")[4])
        )

    problem = rg.Problem(
        arm, start=START, steps=1, dt=0.01, costs=[rg.costs.CustomValue(function, weight=1.0)]
    )
    rng = np.random.default_rng(0)
    x, u = START + 0.1 * rng.normal(size=14), rng.normal(size=7)
    e = problem.linearize(np.tile(x, (2, 1)), u[None])
    h = 1e-30
    for k in range(14):
        moved = (x + 0j).tolist()
        moved[k] += h * 1j
        assert e.lx[0, k] == pytest.approx(
            function(tuple(moved), tuple(u.tolist())).imag / h, rel=1e-9, abs=1e-9
        )
    for k in range(7):
        moved = (u + 0j).tolist()
        moved[k] += h * 1j
        assert e.lu[0, k] == pytest.approx(
            function(tuple(x.tolist()), tuple(moved)).imag / h, rel=1e-9, abs=1e-9
        )


def test_a_residual_of_ones_own_is_the_built_in_one(arm):
    target, offset = np.array([0.4, 0.3, 0.6]), (0.0, 0.0, 0.0635)
    ours = rg.costs.Reach(TIP, target, offset=offset, weight=1.0, final=100.0)
    own = rg.costs.Custom(
        lambda x, u, p: tuple(
            a - b for a, b in zip(arm.at(x).position(TIP, offset), p, strict=True)
        ),
        1.0,
        100.0,
        parameters=target,
    )
    x, u = START + 0.1 * np.random.default_rng(0).normal(size=(4, 14)), np.zeros((3, 7))
    first, second = (
        rg.Problem(arm, start=START, steps=3, dt=0.01, costs=[c, rg.costs.Effort(1e-3)]).linearize(
            x, u
        )
        for c in (ours, own)
    )
    for name in ("l", "lx", "lxx"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-9)


def test_actuators_with_dynamics_of_their_own():
    """Motors that lag: x = [q, v, tau], tau' = (u - tau) / 0.05; very quick ones are as none."""
    robot = rg.load("double_pendulum")

    def lagging(seconds):
        def rate(x, u):
            q, v, tau = x[:2], x[2:4], x[4:]
            return (
                *v,
                *robot.at(q, v).acceleration(tau),
                *((a - b) / seconds for a, b in zip(u, tau, strict=True)),
            )

        return rg.CustomSystem(rate, 6, 2, name="lagging")

    costs = [
        rg.costs.State(np.r_[0.3, -0.2, np.zeros(4)], final=np.r_[np.full(4, 1e4), 0, 0]),
        rg.costs.Effort(0.01),
    ]
    start = np.zeros(6)
    solution = rg.solve(rg.Problem(lagging(0.05), start, 40, 0.02, integrator="rk4", costs=costs))
    assert solution.converged and solution.x[-1, :2] == pytest.approx([0.3, -0.2], abs=0.02)
    problem = rg.Problem(lagging(1.0), start, 1, 0.02, integrator="rk4", costs=costs)
    x = np.r_[0.3, -0.2, 0.4, 0.5, 1.0, -1.0]
    e = problem.linearize(np.tile(x, (2, 1)), np.zeros((1, 2)))
    d = robot.aba_derivatives(x[:2], x[2:4], x[4:])
    assert (e.A[0, 2:4, :2] / 0.02) == pytest.approx(d.dq, rel=0.1, abs=0.2) and (
        e.A[0, 2:4, 4:] / 0.02
    ) == pytest.approx(d.dtau, rel=0.1, abs=0.05)


def test_a_constraint_keeps_links_apart(arm):
    goal = np.r_[0.3, 0.4, 0.5, -2.0, 0.2, 0.3, 0.1, np.zeros(7)]
    apart = rg.Inequality(
        lambda x, u: arm.at(x).distance(TIP, "iiwa_link_2", radius=0.1, other_radius=0.1),
        lower=0.28,
    )
    costs = [rg.costs.State(goal, weight=0.01, final=100.0), rg.costs.Effort(1e-4)]

    def least(limits):
        solution = rg.solve(
            rg.Problem(arm, start=START, steps=20, dt=0.05, costs=costs, limits=limits)
        )
        T = arm.forward_kinematics(solution.x[:, :7])
        return (np.linalg.norm(T[TIP][:, :3, 3] - T["iiwa_link_2"][:, :3, 3], axis=1) - 0.2).min()

    assert least(None) < 0.25 and least(rg.Limits(constraints=[apart])) > 0.28 - 2e-4


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda r: r.at(None), "a sequence"),
        (lambda r: r.at(np.zeros(3)), "7 and 7 numbers; this has 3"),
        (lambda r: r.at(np.zeros(7)).momentum(), "needs a velocity"),
        (lambda r: r.at(np.zeros(14)).placement("iiwa_link_77"), "iiwa_link_7"),
        (lambda r: r.at(np.zeros(14)).acceleration(np.zeros(3)), "7 freedoms"),
        (lambda r: r.at(np.zeros(14)).velocity(TIP, "wold"), "world"),
        (lambda r: r.at(np.zeros(14)).position(TIP, (1.0, 2.0)), "three numbers"),
        (
            lambda r: r.at(np.zeros(14)).acceleration(np.zeros(7), external={TIP: np.zeros(3)}),
            "six numbers",
        ),
    ],
)
def test_what_is_wrong_is_said(arm, call, text):
    with pytest.raises(RigidgradError, match=text):
        call(arm)


def test_compiled_functions_in_a_recorded_one_point_to_the_way(arm):
    cost = rg.costs.Custom(lambda x, u: arm.center_of_mass(x[:7])[0], 1.0)
    with pytest.raises(InputError, match=r"robot\.at\(x\)"):
        rg.Problem(arm, start=START, steps=1, dt=0.01, costs=[cost])
