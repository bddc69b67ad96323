"""A walker under faults: whatever is measured and whatever a solver does, no exception leaves
`mpc.step`, torques keep to their limits, and a fall ends in a safe stop.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.pddp import Run

mujoco = pytest.importorskip(
    "mujoco", reason="MuJoCo is not installed: pip install 'rigidgrad[plants]'"
)
LEGS, RADIUS = ("lf", "rf", "lh", "rh"), 0.02


@pytest.fixture(scope="module")
def made():
    robot = rg.load("hyq", floating_base=True)
    feet = [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6) for leg in LEGS]
    x0 = rg.gaits.standing(robot, feet, ground=RADIUS)
    walker = rg.gaits.Walker(robot, feet, x0)
    mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
    plant = rg.plants.MuJoCo(
        mpc.system, x0, 1e-3, ground=rg.plants.Ground({f.frame: (RADIUS, f.offset) for f in feet})
    )
    return walker, mpc, plant


@pytest.fixture
def walking(made):
    walker, mpc, plant = made
    walker.reset()
    walker.command = (0.3, 0.0, 0.0)
    plant.faults = rg.plants.Faults()
    plant.reset()
    mpc.reset()
    return made


def run(made, seconds, measured):
    """Walks on what `measured(plant, k)` gives, (x, time it was measured at), and checks every
    control.
    """
    walker, mpc, plant = made
    lower, upper = (b[0] for b in mpc.problem.own_bounds)
    for k in range(round(seconds / 1e-3)):
        x, at = measured(plant, k)
        u = mpc.step(x, plant.time, at)
        assert np.all(np.isfinite(u)) and np.all((lower <= u) & (u <= upper))
        plant.advance(u)
    return walker.has_fallen(plant.x)


def test_dropped_measurements_are_counted_and_survived(walking):
    random = np.random.default_rng(0)
    fell = run(walking, 1.5, lambda plant, k: (None if random.random() < 0.2 else plant.x, None))
    assert not fell and walking[1].counts["missing"] > 200 and walking[2].x[0] > 0.15


def test_measurements_that_are_none_are_counted_and_survived(walking):
    random = np.random.default_rng(1)

    def measured(plant, k):
        x = plant.x
        if random.random() < 0.1:
            x[random.integers(len(x))] = random.choice([math.nan, math.inf, -math.inf])
        if random.random() < 0.02:
            x = x[:5]
        return x, None

    assert (
        not run(walking, 1.5, measured)
        and walking[1].counts["missing"] > 100
        and walking[2].x[0] > 0.15
    )


def test_late_measurements_are_brought_forward(walking):
    """Ten milliseconds old, with the time that they are of."""
    kept = []

    def measured(plant, k):
        kept.append((plant.x, plant.time))
        return kept[max(k - 10, 0)]

    assert not run(walking, 1.5, measured) and walking[2].x[0] > 0.15


def test_a_solver_that_fails_is_counted_and_the_last_plan_goes_on(walking, monkeypatch):
    iterate, calls = Run.iterate, []

    def failing(self, *arguments, **options):
        calls.append(None)
        if len(calls) % 4 == 0:
            raise ArithmeticError("no solution")
        return iterate(self, *arguments, **options)

    monkeypatch.setattr(Run, "iterate", failing)
    assert not run(walking, 1.5, lambda plant, k: (plant.x, None))
    assert walking[1].counts["kept"] > 10 and walking[2].x[0] > 0.15


def test_a_solver_that_always_fails_ends_in_a_held_posture(walking, monkeypatch):
    walking[0].command = (0.0, 0.0, 0.0)
    run(walking, 0.3, lambda plant, k: (plant.x, None))

    def failing(self, *arguments, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr(Run, "iterate", failing)
    monkeypatch.setattr(rg.PDDP, "solve", failing)
    # a robot that stands stays standing
    assert not run(walking, 1.0, lambda plant, k: (plant.x, None))
    assert walking[1].counts["held"] and np.abs(walking[2].x[19:]).max() < 0.5


def test_a_fall_is_a_safe_stop(walking):
    _, mpc, plant = walking
    run(walking, 0.8, lambda plant, k: (plant.x, None))
    plant.push((0.0, 2500.0, 0.0), 0.2, "base_link_0")
    assert run(walking, 1.5, lambda plant, k: (plant.x, None))
    assert mpc.counts["fallen"] and "fallen" in mpc.trouble
    run(walking, 1.0, lambda plant, k: (plant.x, None))
    assert np.abs(plant.x[19:]).max() < 3.0  # it lies
