"""Problems whose links keep out of a scene: exact distances and Jacobians, and motions that keep
clear.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.limits import Limits
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.geometry.links import box_surface

SHAPES = {
    "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06)), rg.Sphere(0.04, (0, 0, 0.15))],
}


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(shapes=SHAPES)


def around() -> rg.Scene:
    turned = np.eye(4)
    turned[:3, :3], turned[:3, 3] = (
        np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]]),
        (0.5, 0.2, 0.6),
    )
    surface = box_surface((0.2, 0.2, 0.2))
    return rg.Scene(
        [
            rg.Box((0.2, 0.3, 0.5), turned),
            rg.Sphere(0.1, (0.4, -0.4, 0.5)),
            rg.Capsule(0.05, start=(-0.3, -0.4, 0.2), end=(-0.3, 0.4, 0.9)),
            rg.Plane((0, 0.1, 1), -0.2),
            rg.Mesh((surface.vertices, surface.faces), (0.3, 0.3, 0.9), error=0.05),
        ]
    )


@pytest.mark.parametrize("boxes", [False, True])
def test_distances_and_jacobians_are_those_of_the_robot(arm, boxes):
    """The lanes' loops, which coal checks, are another program."""
    if boxes:
        hand = [rg.Sphere(0.06, (0, 0, 0.06)), rg.Box((0.2, 0.04, 0.1), (0, 0, 0.12))]
        arm = arm.with_collisions(shapes=SHAPES | {"iiwa_link_7": hand})
    scene, system = around(), RobotSystem(arm)
    (term,) = Limits(scene=scene).constraints(system)
    q = arm.random(40, seed=0).q
    target = term.targets(system, 2)[0]
    found = arm.distances(q, scene, self_pairs=False)
    assert term.size(system) == len(found.pairs) == 15
    order = [found.pairs.index(pair) for pair in term.separation.pairs(system)]
    for k, x in enumerate(np.concatenate([q, np.zeros_like(q)], axis=1)):
        c = np.array(term.residual(system, tuple(x), (0.0,) * 7, tuple(target)), dtype=float)
        J = np.array(term.jacobian(system, tuple(x), (0.0,) * 7, tuple(target))[0], dtype=float)
        assert np.allclose(c, found.distance[k, order], atol=1e-12)
        assert np.allclose(J[:, :7], found.gradient[k, order], atol=1e-9)
        assert not J[:, 7:].any()


@pytest.mark.parametrize(
    "solver", [rg.PDDP(iterations=300), rg.Direct(iterations=300)], ids=["PDDP", "Direct"]
)
def test_a_motion_goes_round_what_stands_in_its_way(arm, solver):
    left = np.array([0.6, 0.9, 0, -1.3, 0, 0.9, 0])
    x0, x1 = (np.concatenate([q, np.zeros(7)]) for q in (left, left * [-1, 1, 1, 1, 1, 1, 1]))

    def motion(limits):
        costs = [rg.costs.State(x1, weight=1e-2, final=100.0), rg.costs.Effort(1e-4)]
        return rg.solve(
            rg.Problem(arm, start=x0, steps=40, dt=0.05, costs=costs, limits=limits), solver
        )

    way = motion(None).x
    middle = arm.forward_kinematics(way[np.argmin(np.abs(way[:, 0])), :7])["iiwa_link_7"][:3, 3]
    surface = box_surface((0.08, 0.08, 0.08))
    scene = rg.Scene(
        [
            rg.Box((0.1, 0.1, 0.1), middle),
            rg.Mesh((surface.vertices, surface.faces), middle + [0, 0, -0.12], error=0.03),
        ]
    )
    assert arm.distances(way[:, :7], scene, self_pairs=False).least.min() < -0.05
    solution = motion(rg.Limits(scene=scene, clearance=0.01))
    assert solution.status in ("converged", "slow")
    assert arm.distances(solution.x[:, :7], scene, self_pairs=False).least.min() > 0.01 - 1e-4
    assert np.abs(solution.x[-1] - x1).max() < 0.05


def test_what_a_scene_of_a_problem_cannot_be_is_told(arm):
    def limits(scene, robot=arm, **options):
        return rg.Problem(
            robot,
            start=np.zeros(14),
            steps=5,
            dt=0.1,
            costs=[rg.costs.Effort(1.0)],
            limits=rg.Limits(scene=scene, **options),
        )

    with pytest.raises(InputError, match="no collision shapes"):
        limits([rg.Sphere(0.1, (1, 1, 1))], robot=rg.load("iiwa14"))
    with pytest.raises(InputError, match="pass a few spheres"):
        limits([rg.Points([[1, 1, 1]])])
    with pytest.raises(InputError, match="at most 3000 pairs"):
        limits([rg.Sphere(0.01, (1, 1, k)) for k in range(1000)])
    with pytest.raises(InputError, match=r"link 'iiwa_link_7' is -.* m from 'sphere 0'"):
        limits([rg.Sphere(0.2, (0, 0, 1.3))])
    with pytest.raises(InputError, match="a scene is"):
        rg.Limits(scene="table")
    with pytest.raises(InputError, match="needs a robot"):
        Limits(scene=[rg.Sphere(1.0)]).constraints(CustomSystem(lambda x, u: (x[1], u[0]), 2, 1))[
            0
        ].size(CustomSystem(lambda x, u: (x[1], u[0]), 2, 1))


URDF = """<robot name="rod"><link name="base"/><link name="arm"><inertial><origin xyz="0.3 0 0"/><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.05"
iyz="0" izz="0.05"/></inertial><collision><origin xyz="0.55 0 0"/><geometry><sphere radius="0.05"/></geometry></collision></link>
<joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" velocity="5" effort="20"/></joint></robot>"""
TASK = """robot = "rod.urdf"
steps = 40
dt = 0.05
limits = { scene = "%s", clearance = 0.02 }
costs = [{ type = "state", goal = [1.5, 0.0], weight = 0.1, final = 10.0 }, { type = "effort", weight = 1e-3 }]
"""


def test_a_task_names_a_scene_in_its_folder(tmp_path):
    from rigidgrad.tasks import TaskError, load_task

    (tmp_path / "inner").mkdir()
    (tmp_path / "rod.urdf").write_text(URDF)
    (tmp_path / "inner" / "rod.urdf").write_text(URDF)
    for folder in (tmp_path, tmp_path / "inner"):
        (folder / "scene.toml").write_text(
            "[[shape]]\nkind = 'sphere'\nradius = 0.1\ncenter = [0.0, 0.55, 0.0]\n"
        )
    (tmp_path / "task.toml").write_text(TASK % "scene.toml")
    task = load_task(tmp_path / "task.toml")
    assert task.limits.scene.names == ("sphere 0",)
    solution = rg.solve(task.problem)
    assert task.robot.distances(solution.x[:, :1], task.limits.scene).least.min() > 0.02 - 1e-4
    assert solution.x[-1, 0] < 1.4, "the ball stands at the goal"
    outside = tmp_path / "inner" / "task.toml"
    outside.write_text(TASK % "../scene.toml")
    with pytest.raises(TaskError, match=r"limits.*outside of"):
        load_task(outside)
    assert load_task(outside, allow_outside=True).limits.scene.names == ("sphere 0",)
    outside.write_text(TASK % "none.toml")
    with pytest.raises(TaskError, match=r"limits.*none\.toml"):
        load_task(outside)
