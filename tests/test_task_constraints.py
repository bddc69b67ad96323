"""Tasks say what Python says: terms of costs between bounds, closed loops, and controllers of
several phases on a ground.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hopper import START, TASK, hopper
from test_terms import NEEDED, in_a_file

import rigidgrad as rg
from rigidgrad.tasks import Task, TaskError, keys

COST = {"type": "effort", "weight": 0.1}


def pendulum(*constraints, **more):
    limits = {"constraints": list(constraints)}
    return Task(
        {"robot": "double_pendulum", "steps": 12, "dt": 0.05, "costs": [COST], "limits": limits}
        | more
    )


@pytest.mark.parametrize("kind", sorted(set(NEEDED) - {"duration", "joint_limits"}))
def test_every_term_of_a_cost_stands_between_bounds(kind):
    said = {"type": kind, "lower": -1.0, "upper": 2.0, **in_a_file(NEEDED[kind])}
    (found,) = pendulum(said).limits.added
    assert isinstance(found, rg.Inequality) and not isinstance(found, rg.Equality)
    assert (found.lower, found.upper, found.at) == (-1.0, 2.0, "all")
    assert isinstance(found.term, keys.COST_TYPES[kind])
    (found,) = pendulum({"type": kind, "value": 0.5, **in_a_file(NEEDED[kind])}).limits.added
    assert isinstance(found, rg.Equality) and found.value == 0.5


def test_a_hand_ends_where_it_is_told_and_solves_as_in_python():
    arm = rg.load("double_pendulum")
    rod = arm.forward_kinematics([0.5, -0.4])["lower_rod"]
    target, middle = (rod @ [0.0, 0.0, -0.3, 1.0])[:3].tolist(), rod[2, 3] + 0.05
    there = {"frame": "lower_rod", "offset": [0.0, 0.0, -0.3]}
    tip = {"type": "reach", "target": target, "value": 0.0, "at": "final"} | there
    low = {"type": "height", "frame": "lower_rod", "upper": middle, "at": [10, 11]}
    start = {"start": {"shoulder": 0.3, "elbow": 0.2}}
    task = pendulum(tip, low, **start)
    costs = rg.costs
    same = rg.Problem(
        arm, task.start, 12, 0.05,
        costs=[costs.Effort(0.1)],
        limits=rg.Limits(
            constraints=[
                rg.Equality(costs.Reach("lower_rod", target, (0, 0, -0.3)), at="final"),
                rg.Inequality(costs.Height("lower_rod"), upper=middle, at=[10, 11]),
            ]
        ),
    )  # fmt: skip
    a, b = rg.solve(task.problem), rg.solve(same)
    assert a.converged
    np.testing.assert_array_equal(a.u, b.u)
    T = arm.forward_kinematics(a.x[:, :2])["lower_rod"]
    np.testing.assert_allclose((T[-1] @ [0.0, 0.0, -0.3, 1.0])[:3], target, atol=2e-4)
    assert np.all(T[10:12, 2, 3] < middle + 1e-4)


@pytest.fixture
def hop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hopper.urdf").write_text(hopper().to_urdf())
    return tomllib.loads(TASK)


def test_forces_stay_in_cones_because_a_file_says_so(hop):
    said = {"type": "friction_cone", "contact": "foot", "facets": "round", "upper": 0.0}
    hop["phases"][0]["limits"] = {"constraints": [said]}
    lean = {"type": "center_of_mass", "target": [0.3, 0.0, 0.34], "weight": [500.0, 0.0, 10.0]}
    hop["phases"][0]["costs"] = [lean]
    task = Task(hop)
    (found,) = task.phases[0].limits.added
    assert isinstance(found.term, rg.costs.FrictionCone) and found.term.facets is None
    assert found.term.contact is task.phases[0].contacts[0]
    s = rg.solve(task.problem)
    held = task.robot.contact_dynamics(
        s.x[:8, :4], s.x[:8, 4:], s.u[:8] @ np.array(task.system.actuation).T,
        contacts=task.phases[0].contacts,
    )  # fmt: skip
    slides = np.hypot(held.force[:, 0], held.force[:, 1])
    assert np.all(slides <= 0.3 * held.force[:, 2] + 1e-3), s
    assert np.any(slides > 0.25 * held.force[:, 2])


LOOP = {
    "frame_a": "coupler",
    "frame_b": "rocker",
    "offset_a": [0.8, 0, 0],
    "offset_b": [0, 0, -0.5],
}


def four_bar():
    """A parallelogram, whose coupler stays level."""
    inertia = 1.0 * 0.5**2 / 12
    rod = (1.0, (0, 0, -0.25), (inertia, inertia, 1e-4))
    build = rg.Builder("four_bar").link("ground", 1.0, (0, 0, 0), (1, 1, 1))
    build.link("crank", *rod).link("rocker", *rod).link(
        "coupler", 2.0, (0.4, 0, 0), (1e-3, 0.1, 0.1)
    )
    for name, parent, child, at in (
        ("a", "ground", "crank", (0, 0, 0)),
        ("b", "crank", "coupler", (0, 0, -0.5)),
        ("c", "ground", "rocker", (0.8, 0, 0)),
    ):
        build.joint(name, "revolute", parent, child, xyz=at, axis=(0, 1, 0))
    return build.build()


def pendulum_alike():
    """It moves as one pendulum does: both cranks turn alike, and the coupler does not turn."""
    inertia, weight = 2 * (0.25 / 12 + 0.25**2) + 2.0 * 0.5**2, (0.5 + 2.0 * 0.5) * 9.81

    def step(x, u):
        rate = x[1] + 0.02 * (u[0] - weight * rg.math.sin(x[0])) / inertia
        return x[0] + 0.02 * rate, rate

    return rg.CustomSystem(step, 2, 1, discrete=True)


def test_a_closed_chain_moves_as_the_pendulum_that_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("four_bar.urdf").write_text(four_bar().to_urdf())
    weight, final = [0.1, 0, 0, 0.01, 0, 0], [100.0, 0, 0, 10.0, 0, 0]
    task = Task(
        {
            "robot": "four_bar.urdf",
            "actuation": ["a"],
            "dt": 0.02,
            "costs": [{"type": "effort", "weight": 0.01}],
            "phases": [
                {
                    "steps": 40,
                    "contacts": [LOOP],
                    "costs": [
                        {
                            "type": "state",
                            "goal": [1.0, -1.0, 1.0],
                            "weight": weight,
                            "final": final,
                        }
                    ],
                }
            ],
        }
    )
    costs = [rg.costs.State([1.0, 0.0], [0.1, 0.01], [100.0, 10.0]), rg.costs.Effort(0.01)]
    alike = rg.solve(rg.Problem(pendulum_alike(), [0, 0], 40, 0.02, costs=costs))
    for solver in (rg.PDDP(), rg.PDDP(form="inverse"), rg.Direct()):
        s = rg.solve(task.problem, solver)
        assert s.converged and s.cost == pytest.approx(alike.cost, rel=1e-9)
        np.testing.assert_allclose(s.u, alike.u, atol=1e-4)
        np.testing.assert_allclose(s.x[:, 2], s.x[:, 0], atol=1e-10)
        np.testing.assert_allclose(s.x[:, 1], -s.x[:, 0], atol=1e-10)


def test_loops_of_an_mjcf_are_named_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = (
        '<body name="{0}" pos="{1} 0 0"><joint name="{0}" axis="0 1 0"/><geom size="0.05"/></body>'
    )
    Path("two.xml").write_text(
        '<mujoco><option gravity="0 0 0"/><worldbody>'
        + body.format("a", 0.0)
        + body.format("b", 1.0)
        + '</worldbody><equality><connect body1="a" body2="b" anchor="0.5 0 0"/></equality></mujoco>'
    )
    phase = {"steps": 3, "contacts": [{"loops": True}]}
    said = {"robot": "two.xml", "actuation": "all", "dt": 0.1, "costs": [COST], "phases": [phase]}
    with pytest.warns(rg.errors.ModelWarning, match="1 loop"):
        task = Task(said)
    (loop,) = task.phases[0].contacts
    assert isinstance(loop, rg.Loop) and (loop.frame_a, loop.frame_b) == (
        task.robot.loops[0].frame_a,
        task.robot.loops[0].frame_b,
    )


def test_a_hopper_stands_under_control_on_a_ground(hop):
    pytest.importorskip("mujoco")
    del hop["phases"][1]
    goal = {"type": "state", "goal": "start", "weight": [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1]}
    contact = {"frame": "foot", "friction": 0.6, "gains": [0.0, 50.0]}
    hop["costs"] = [{"type": "effort", "weight": 1e-5}, goal]
    hop["phases"] = [
        {"steps": 10, "contacts": [contact]},
        {"steps": 10, "contacts": [contact], "costs": [goal | {"final": 10.0}]},
    ]
    foot = {"radius": 0.02, "offset": [0.0, 0.0, 0.02]}
    hop["mpc"] = {
        "period": 0.01,
        "duration": 0.3,
        "iterations": 2,
        "plant": {"type": "mujoco", "ground": {"feet": {"foot": foot}, "friction": 0.7}},
    }
    task = Task(hop)
    mpc, plant = task.controller(), task.plant()
    assert plant.ground.friction == 0.7 and plant.ground.foot("foot")[0] == 0.02
    mpc.run(plant, 0.3)
    assert abs(plant.x[1] - START[1]) < 0.03 and not mpc.counts["held"], (plant.x, mpc.counts)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"type": "effort"}, r"limits.constraints\[0\].*no finite bound"),
        ({"type": "effort", "value": 0.0, "upper": 1.0}, "'value' is instead of"),
        ({"type": "effort", "lower": 2.0, "upper": 1.0}, "nothing lies between"),
        ({"type": "effort", "upper": [1.0, 2.0, 3.0]}, r"limits.constraints\[0\]: the upper bound"),
        ({"type": "effort", "upper": 1.0, "at": "final"}, r"limits.constraints\[0\]"),
        ({"type": "effort", "upper": 1.0, "at": [99]}, r"limits.constraints\[0\]"),
        ({"type": "height", "frame": "nose", "upper": 1.0}, r"constraints\[0\].frame: .*'nose'"),
        ({"type": "height", "frame": "lower_rod", "upper": 1.0, "weight": 1.0}, "'weight'"),
        ({"type": "duration", "upper": 1.0}, "type of constraint"),
        ({"type": "contact_force", "contact": "lower_rod", "upper": 1.0}, "in no contact here"),
    ],
)
def test_mistakes_name_their_place(constraint, said):
    with pytest.raises(TaskError, match=said):
        pendulum(constraint)


@pytest.mark.parametrize(
    ("ground", "said"),
    [
        ({"feet": {"paw": 0.02}}, "mpc.plant.ground.feet: .*'paw'"),
        ({"feet": {}}, "mpc.plant"),
        ({"feet": {"foot": -1.0}}, r"mpc.plant.ground.feet.foot"),
        ({"friction": 0.5}, "'feet' is missing"),
        ({"feet": {"foot": 0.02}, "slope": 3.0}, "slope"),
    ],
)
def test_a_wrong_ground_is_refused(hop, ground, said):
    del hop["phases"][1]
    hop["phases"][0]["dt"] = 0.01
    hop["mpc"] = {"plant": {"type": "mujoco", "ground": ground}}
    with pytest.raises(TaskError, match=said):
        Task(hop).plant()
