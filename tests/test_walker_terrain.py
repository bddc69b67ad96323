"""Ground that a walker was not told of: feet that land early stand, late ones are brought down, and
steps and holes are crossed.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.plants import Ground

LEGS = ("lf", "rf", "lh", "rh")
RADIUS = 0.02


@pytest.fixture(scope="module")
def robot():
    return rg.load("hyq", floating_base=True)


@pytest.fixture(scope="module")
def feet():
    return [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6) for leg in LEGS]


@pytest.fixture(scope="module")
def x0(robot, feet):
    """Knees bent, the spheres around its feet on the plane z = 0."""
    x = np.zeros(robot.nq + robot.nv)
    x[6] = 1.0
    x[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x[2] = RADIUS - rg.gaits.Stance(robot, feet, x).ground
    return x


def contacts_of(problem):
    return problem.p[:, problem.programs.inputs][:, problem.system.contact_numbers] > 0.5


def target_of(problem, foot):
    part = problem.programs.slices[2 + foot]["target"]
    return problem.p[:, part.start : part.start + 3]


def under_way(robot, feet, x0):
    """A walker whose first foot swings, its problem, the time of the plan and when that swing
    began.
    """
    walker = rg.gaits.Walker(robot, feet, x0)
    problem = walker.problem()
    walker.command = (0.2, 0.0, 0.0)
    for k in range(60):
        walker.steer(problem, 0.02 * k)
        if k > 30 and contacts_of(problem)[0].all():
            break
    for more in range(1, 40):
        t = 0.02 * (k + more)
        walker.steer(problem, t)
        stands = contacts_of(problem)[0]
        if not stands.all():
            return walker, problem, t, int(np.flatnonzero(~stands)[0])
    raise AssertionError("no foot swings")


def test_a_foot_that_lands_early_stands_from_then_on(robot, feet, x0):
    walker, problem, t, foot = under_way(robot, feet, x0)
    others = np.delete(np.arange(4), foot)
    touching = contacts_of(problem)[0]
    touching[foot] = True
    walker.touching = touching
    for begin in (t + 0.02, t + 0.04):  # it has just left the ground: it still touches, maybe
        walker.steer(problem, begin)
        assert not contacts_of(problem)[0, foot]
    asked = []
    walker.touching = lambda: asked.append(1) or touching
    walker.steer(problem, t + 0.16)  # past the middle of a swing of 0.25 s
    assert asked == [1] and contacts_of(problem)[0, foot]
    after = contacts_of(problem)
    walker.touching = None
    walker.steer(problem, t + 0.16)
    before = contacts_of(problem)
    assert not before[0, foot] and np.array_equal(before[:, others], after[:, others])
    swing = int(np.argmax(before[:, foot]))
    assert after[:swing, foot].all() and np.array_equal(before[swing:, foot], after[swing:, foot])


def test_a_foot_that_finds_no_ground_is_brought_down(robot, feet, x0):
    walker, problem, t, foot = under_way(robot, feet, x0)
    begin = t
    while not contacts_of(problem)[0, foot]:
        begin += 0.02
        walker.steer(problem, begin)
    z = walker.stance.feet_of(problem.start)[foot, 2]
    touching = contacts_of(problem)[0]
    touching[foot] = False
    walker.touching = touching
    begin += 0.02  # half a step before, a foot may still be on its way
    walker.steer(problem, begin)
    assert not contacts_of(problem)[:2, foot].any() and contacts_of(problem)[2, foot]
    down = target_of(problem, foot)[:3, 2]
    assert (np.diff(np.r_[z, down]) < -0.005).all(), "in each step further"
    walker.steer(problem, begin + 0.06)  # it has looked for long enough
    assert contacts_of(problem)[0, foot]


@pytest.fixture
def crossing(robot, feet, x0):
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rigidgrad[plants]'")

    def run(boxes, height, seconds, touching=True):
        """On boxes `height` high, which is all that the walker knows."""
        walker = rg.gaits.Walker(robot, feet, x0, terrain=lambda x, y: RADIUS + height + 0 * x)
        found, landed = [], walker._landed
        walker._landed = lambda now: found.append(landed(now)) or found[-1]
        mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
        ground = Ground({f.frame: (RADIUS, f.offset) for f in feet}, friction=0.8, boxes=boxes)
        start = x0.copy()
        start[2] += height
        plant = rg.plants.MuJoCo(mpc.system, start, 1e-3, ground=ground)
        if touching:
            walker.touching = lambda: plant.touching
        walker.command = (0.3, 0.0, 0.0)
        while plant.time < seconds and not walker.has_fallen(plant.x):
            plant.advance(mpc.step(plant.x, plant.time))
        lowest = walker.stance.feet_of(plant.x)[:, 2].min()
        return plant, mpc, lowest, [one for row in found for one in row]

    return run


def test_hyq_walks_up_a_step_that_it_was_not_told_of(crossing, x0):
    plant, mpc, lowest, found = crossing([((1.6, 0, 0.025), (1.15, 1.0, 0.025))], 0.0, 4.2)
    assert plant.time >= 4.2 and lowest > 0.05, "all feet are on it"
    assert plant.x[0] > 0.8 and plant.x[2] > x0[2]
    assert found.count(True) > 3 and not mpc.counts["fallen"] and not mpc.counts["held"]


def test_a_foot_over_a_hole_is_late_and_hyq_goes_on(crossing):
    height, begins, ends = 0.04, 0.66, 0.86
    sides = [(-1.5, begins), (ends, 4.0)]
    boxes = [(((a + b) / 2, 0, height / 2), ((b - a) / 2, 1.0, height / 2)) for a, b in sides]
    plant, mpc, _, found = crossing(boxes, height, 4.0)
    assert found.count(False) > 0, "a foot was late"
    assert plant.time >= 4.0 and plant.x[0] > 0.8 and plant.x[2] > 0.5
    assert not mpc.counts["fallen"] and not mpc.counts["held"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Ground({3: 0.02}), "named by their frames, texts such as 'lf_foot', not 3"),
        (lambda: Ground({("a", "b"): 0.02}), "named by their frames"),
        (lambda: Ground({"a": 0.02}, boxes=[3]), "centre, half lengths"),
        (lambda: Ground({"a": 0.02}, boxes=[((0, 0, 0), (1, 1))]), "half lengths of a box"),
        (lambda: Ground({"a": 0.02}, boxes=[((0, 0, 0), (1, 1, 0))]), "positive metres"),
        (lambda: Ground({"a": 0.02}, boxes=[((0, np.nan, 0), (1, 1, 1))]), "centre of a box"),
    ],
)
def test_a_ground_that_makes_no_sense_is_refused_when_it_is_made(made, said):
    with pytest.raises(InputError, match=said):
        made()


def test_boxes_stand_on_the_ground(robot, feet, x0):
    mujoco = pytest.importorskip("mujoco")
    ground = Ground(
        {f.frame: (RADIUS, f.offset) for f in feet},
        slope=0.05,
        boxes=[((1.0, 0.2, 0.1), (0.3, 0.2, 0.15))],
    )
    mpc = rg.gaits.Walker(robot, feet, x0).problem()
    plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=ground)
    mujoco.mj_forward(plant.model, plant.data)
    down, which = np.array([0.0, 0.0, -1.0]), np.zeros(1, np.int32)
    for x, y in ((1.2, 0.1), (0.8, 0.35), (1.4, 0.2), (1.0, -0.1)):
        far = mujoco.mj_ray(
            plant.model, plant.data, np.array([x, y, 3.0]), down, None, 1, -1, which
        )
        on_box = abs(x - 1.0) < 0.3 and abs(y - 0.2) < 0.2
        assert 3.0 - far == pytest.approx(0.25 if on_box else ground.height(x))
        assert plant.model.geom(which[0]).name == ("box:0" if on_box else "ground")
