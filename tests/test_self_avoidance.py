"""Problems whose links keep clear of each other: exact distances and Jacobians, constraints and
costs, in Python and in tasks.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from coal_oracle import coal, of_capsule, pose, signed

import rigidgrad as rg
from rigidgrad.control.limits import Limits
from rigidgrad.control.surroundings import Surroundings
from rigidgrad.control.system import RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.geometry.links import BoxElement

SHAPES = {
    "base": [rg.Box((0.2, 0.2, 0.2), (-0.1, 0, 0))],
    "upper": [rg.Capsule(0.04, start=(0.15, 0, 0), end=(0.45, 0, 0))],
    "lower": [rg.Capsule(0.03, start=(0.1, 0, 0), end=(0.4, 0, 0))],
    "hand": [rg.Box((0.25, 0.05, 0.04), (0.2, 0, 0)), rg.Sphere(0.04, (0.35, 0, 0))],
}
PAIRS = [("lower", "base"), ("hand", "base"), ("hand", "upper")]
START, END = np.array([0.0, 2.6, 3.68]), np.array([0.0, 2.6, 0.54])  # the hand swings by the arm


@pytest.fixture(scope="module")
def arm():
    """Three links of half a metre, in a level plane."""
    build = rg.Builder("folding").link("base")
    parent, at = "base", (0.0, 0.0, 0.0)
    for name in ("upper", "lower", "hand"):
        build = build.link(name, 1.0, (0.25, 0, 0), (1e-3, 0.02, 0.02)).joint(
            f"to_{name}", "revolute", parent, name, xyz=at, axis=(0, 0, 1), limit=(-4.0, 4.0)
        )
        parent, at = name, (0.5, 0.0, 0.0)
    return build.build().with_collisions(shapes=SHAPES, pairs=PAIRS)


def by_coal(robot, q, first, second):
    """The least distance of the elements of two links."""
    links = {link.link: link for link in robot.collisions.links}
    placed = []
    for name in (first, second):
        T, own = robot.forward_kinematics(q)[name], []
        for e in links[name].elements:
            at = [T[:3, :3] @ p + T[:3, 3] for p in map(np.array, _points(e))]
            if isinstance(e, BoxElement):
                R = T[:3, :3] @ np.array(e.rotation)
                own.append((coal.Box(*(2 * np.array(e.half))), pose(R, at[0])))
            else:
                own.append(of_capsule(e.radius, at[0], at[-1]))
        placed.append(own)
    return min(signed(a, b) for a in placed[0] for b in placed[1])


def _points(e):
    return [e.center] if isinstance(e, BoxElement) else [e.start, e.end]


def numbers(x):
    return np.array(x, dtype=float)


def test_distances_are_those_of_coal_and_jacobians_are_their_slopes(arm):
    system = RobotSystem(arm)
    (term,) = Limits(self_clearance=0.0).constraints(system)
    assert term.separation.pairs(system) == tuple(PAIRS) and term.size(system) == 3
    target, u = tuple(term.targets(system, 2)[0]), (0.0,) * 3
    assert target == ()
    same = rg.Inequality(rg.costs.Clearance(), lower=0.01)
    inside = 0
    for q in arm.random(40, seed=1).q:
        x = (*q, 0.0, 0.0, 0.0)
        d = numbers(term.residual(system, x, u, target))
        assert d == pytest.approx([by_coal(arm, q, *pair) for pair in PAIRS], abs=2e-6)
        assert tuple(same.residual(system, x, u, ())) == tuple(d)
        J = numbers(term.jacobian(system, x, u, target)[0])
        assert J.shape == (3, 6) and not J[:, 3:].any()
        slopes, h = [], 1e-6
        for k in range(3):
            near = [numbers(x) + s * h * np.eye(6)[k] for s in (1, -1)]
            above, below = (numbers(term.residual(system, tuple(y), u, target)) for y in near)
            slopes.append((above - below) / (2 * h))
        slopes = np.array(slopes).T
        smooth = np.abs(slopes - J[:, :3]).max(axis=1) < 1e-5
        assert smooth.sum() >= 2, "the nearest features may change at one of them"
        inside += int((d < 0).sum())
    assert inside > 5


def motion(arm, limits=None, costs=(), **more):
    x0, x1 = (np.r_[q, np.zeros(3)] for q in (START, END))
    costs = [rg.costs.State(x1, weight=1e-2, final=100.0), rg.costs.Effort(1e-3), *costs]
    problem = rg.Problem(arm, x0, steps=30, dt=0.05, costs=costs, limits=limits)
    return rg.solve(problem, rg.PDDP(iterations=300), **more)


def test_a_hand_goes_by_its_own_arm(arm):
    def least(solution):
        return float(arm.distances(solution.x[:, :3]).least.min())

    through = motion(arm)
    assert through.status == "converged" and least(through) < -0.02
    limited = motion(arm, rg.Limits(self_clearance=0.01))
    assert limited.status in ("converged", "slow") and least(limited) > 0.01 - 1e-4
    assert np.abs(limited.x[-1, :3] - END).max() < 0.02
    charged = motion(arm, costs=[rg.costs.Clearance(margin=0.05, weight=1e3, final=1e3)])
    assert charged.status == "converged" and least(charged) > 0.02


def test_the_cost_is_half_the_square_of_what_is_missing(arm):
    scene = rg.Scene([rg.Sphere(0.1, (0.5, 0.5, 0)), rg.Plane((0, 1, 0), -0.4)])
    system = RobotSystem(arm)
    for self_pairs in (True, False):
        cost = pickle.loads(
            pickle.dumps(rg.costs.Clearance(scene, 0.2, 3.0, self_pairs=self_pairs))
        )
        target, weight = (m[0] for m in (cost.targets(system, 3), cost.weights(system, 3)))
        assert set(cost.units(system)) == {"m"}
        charged = 0
        for q in arm.random(20, seed=2).q:
            x = (*q, 0.0, 0.0, 0.0)
            d = arm.distances(q, cost.scene, self_pairs=self_pairs).distance
            expected = 1.5 * np.sum(np.minimum(d - 0.2, 0.0) ** 2)
            found = cost.value(system, x, (0.0,) * 3, tuple(target), tuple(weight))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
            charged += expected > 0
        assert charged > 10


def test_shapes_of_a_cost_may_move_without_recording_again(arm):
    cost = rg.costs.Clearance([rg.Sphere(0.1, (5, 0, 0))], 0.1, 1.0)
    x0 = np.zeros(6)
    problem = rg.Problem(arm, x0, steps=2, dt=0.01, costs=[cost, rg.costs.Effort(1.0)])
    programs, far = problem.programs, rg.solve(problem, rg.PDDP(iterations=0)).cost
    cost.scene = rg.Scene([rg.Sphere(0.1, (0.5, 0.1, 0))])
    problem.update()
    assert problem.programs is programs
    assert rg.solve(problem, rg.PDDP(iterations=0)).cost > far + 0.01
    assert [o.name for o in Surroundings.of(problem).solids] == ["sphere 0"]
    # another robot's links are other numbers
    other = arm.with_collisions(shapes=SHAPES | {"hand": [rg.Sphere(0.04, (0.3, 0, 0))]})
    again = rg.Problem(other, x0, steps=2, dt=0.01, costs=[cost, rg.costs.Effort(1.0)])
    assert again.programs is not programs


def test_what_keeps_nothing_apart_is_an_error(arm):
    def problem(robot=arm, limits=None, costs=()):
        costs = [rg.costs.Effort(1.0), *costs]
        return rg.Problem(robot, np.zeros(6), steps=3, dt=0.1, costs=costs, limits=limits)

    for empty in (rg.Scene(), []):
        with pytest.raises(InputError, match="scene of these limits is empty: leave scene= out"):
            rg.Limits(scene=empty)
    with pytest.raises(InputError, match="nothing to keep clear of"):
        rg.costs.Clearance(self_pairs=False)
    with pytest.raises(InputError, match="not negative"):
        rg.costs.Clearance(margin=-0.1)
    with pytest.raises(InputError, match="self_clearance is a distance to keep"):
        problem(limits=rg.Limits(self_clearance=-0.1))
    alone = arm.with_collisions(shapes=SHAPES, pairs=[])
    with pytest.raises(InputError, match="no links of 'folding' can touch each other"):
        problem(alone, rg.Limits(self_clearance=0.0))
    with pytest.raises(InputError, match="no links of 'folding' can touch each other"):
        problem(alone, costs=[rg.costs.Clearance(weight=1.0)])
    many = [rg.Sphere(0.01, (0.2, 0, 0.001 * k)) for k in range(40)]
    crowded = arm.with_collisions(
        shapes=dict.fromkeys(("base", "upper", "lower", "hand"), many), pairs=PAIRS
    )
    with pytest.raises(InputError, match="at most 3000 pairs"):
        problem(crowded, rg.Limits(self_clearance=0.0))
    touching = arm.with_collisions(shapes=SHAPES | {"hand": [rg.Sphere(0.8)]}, pairs=PAIRS)
    with pytest.raises(
        InputError, match=r"link 'hand' is -.* m from 'upper', less than the self c"
    ):
        problem(touching, rg.Limits(self_clearance=0.0))


TASK = """robot = "folding.urdf"
steps = 5
dt = 0.05
limits = { self_clearance = 0.02, constraints = [{ type = "clearance", lower = 0.01 }] }
costs = [
  { type = "effort", weight = 1e-3 },
  { type = "clearance", scene = "scene.toml", margin = 0.1, weight = 5.0, self_pairs = false },
]
"""


def test_a_task_says_the_same(arm, tmp_path):
    from rigidgrad.tasks import TaskError, load_task

    solid = "<collision><geometry><sphere radius='0.05'/></geometry></collision>"
    text = arm.to_urdf()
    for name in ("base", "hand"):
        start = text.index(f'<link name="{name}"')
        end = text.index(">", start)
        if text[end - 1] == "/":
            text = text[: end - 1] + f">{solid}</link>" + text[end + 1 :]
        else:
            text = text[: end + 1] + solid + text[end + 1 :]
    (tmp_path / "folding.urdf").write_text(text)
    shape = "[[shape]]\nkind = 'sphere'\nradius = 0.1\ncenter = [0.0, 0.8, 0.0]\n"
    (tmp_path / "scene.toml").write_text(shape)
    (tmp_path / "task.toml").write_text(TASK)
    task = load_task(tmp_path / "task.toml")
    assert task.limits.self_clearance == 0.02
    cost = task.costs[1]
    assert isinstance(cost, rg.costs.Clearance) and cost.scene.names == ("sphere 0",)
    assert (cost.margin, cost.weight, cost.self_pairs) == (0.1, 5.0, False)
    (between,) = task.limits.added
    assert isinstance(between.term, rg.costs.Clearance) and between.term.self_pairs
    assert rg.solve(task.problem).status in ("converged", "slow")
    (tmp_path / "task.toml").write_text(TASK.replace("scene.toml", "../scene.toml"))
    with pytest.raises(TaskError, match=r"costs\[1\]\.scene.*outside of"):
        load_task(tmp_path / "task.toml")
    (tmp_path / "scene.toml").write_text("")
    both = TASK.replace("limits = {", 'limits = { scene = "scene.toml",').replace("false", "true")
    (tmp_path / "task.toml").write_text(both)
    with pytest.raises(TaskError, match="limits: the scene of these limits is empty"):
        load_task(tmp_path / "task.toml")
