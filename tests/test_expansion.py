"""The kernel that expands a knot with contacts gives what the straight-line program of the same
knot gives, in the place of which it runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.control import expansion
from rigidgrad.control.held import Held
from rigidgrad.control.programs import Programs
from rigidgrad.control.system import RobotSystem

costs = rg.costs
KNOTS = 11


def touching(redundant: bool):
    """A floating tree that holds a point and a surface; redundant, the surface is held twice."""
    robot = random_tree(3, 3, floating=True, types=("revolute", "spherical")).robot()
    far = sorted((f for f in robot.model.frames.values() if f.body > 0), key=lambda f: f.body)
    point = rg.Contact(far[-1].name, offset=(0.1, -0.2, 0.3), friction=0.3, gains=(0.0, 20.0))
    surface = rg.Contact(far[0].name, kind="surface", friction=0.2, normal=(0.3, -0.2, 0.9))
    held = [point.constraint, surface.constraint]
    if redundant:
        held.append(rg.Contact(far[0].name, offset=(0.1, 0.0, 0.0)).constraint)
    return (
        RobotSystem(robot, "all").holding(Held(tuple(held), impacts=True, redundant=redundant)),
        point,
        surface,
    )


def terms(point, surface, start):
    """Costs and constraints with and without forces, and some that also turn with the foot."""
    charged = [
        costs.State(start, 1.0),
        costs.Effort(0.1),
        costs.Reach(point.frame, (0.1, 0.2, 0.3), weight=3.0),
        costs.CenterOfMass((0, 0, 1), weight=2.0),
    ]
    charged += [
        costs.FrictionCone(point, 0.7),
        costs.FrictionCone(surface, 0.2, facets=None),
        costs.ContactForce(surface, 0.1, activation=costs.Huber(5.0)),
    ]
    return charged + [costs.CenterOfPressure(surface, (0.1, 0.05), 0.4)], [
        rg.Inequality(costs.ContactForce(point), lower=-1.0, upper=1.0)
    ]


@pytest.mark.parametrize(
    ("redundant", "integrator", "acting"),
    [
        (False, "semi_implicit_euler", "forces"),
        (True, "euler", "no forces"),
        (True, "semi_implicit_euler", "no forces"),
    ],
)
def test_a_knot_in_tiles_is_the_same_knot(redundant, integrator, acting, monkeypatch):
    system, point, surface = touching(redundant)
    random = np.random.default_rng(0)
    start = np.concatenate([np.asarray(system.robot.neutral()), np.zeros(system.nv)])
    charged, kept = (
        terms(point, surface, start)
        if acting == "forces"
        else ([costs.State(start, 1.0), costs.Effort(0.1)], [])
    )
    programs = Programs(system, integrator, charged, kept, bounded=False, uniform=False)
    x = np.array(
        [
            np.array(system.plus(tuple(start), tuple(random.normal(size=system.ndx))), float)
            for _ in range(KNOTS)
        ]
    )
    u, h = random.normal(scale=30.0, size=(KNOTS, system.nu)), random.uniform(0.01, 0.05, KNOTS)
    p = random.uniform(0.2, 1.0, (KNOTS, programs.parameters))  # of targets, weights, penalties
    goal = programs.slices[0]["target"]
    p[:, goal] = start
    holds = system.held.values([point, surface])
    p[:, programs.inputs] = holds
    p[3, programs.inputs] = system.held.values([point])
    p[4, programs.inputs], h[4] = system.held.values([surface], 0.3), 0.0
    found = {}
    for name, least in (("tiles", 0), ("straight", 10**9)):
        monkeypatch.setattr(expansion, "_TILED_FROM", least)
        programs._made.clear()
        kernel = programs.expansion()
        assert ("tiles" in kernel.job.name) == (name == "tiles")
        found[name] = [np.asarray(a) for a in kernel(x, u, h, p)]
    # sums in another order, of terms that are up to the condition of the contacts, about 1e3,
    # larger than their sum; damping adds 1e3 for redundant ones
    for a, b in zip(found["tiles"], found["straight"], strict=True):
        np.testing.assert_allclose(
            a, b, rtol=0, atol=(1e-7 if system.held.redundant else 1e-10) * np.abs(b).max()
        )
