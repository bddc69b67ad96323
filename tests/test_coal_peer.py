"""The judge of benchmarks, coal through Pinocchio: it sees links and scenes as we do, and motions
that are optimised among boxes and a mesh keep clear by its word.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg

pytest.importorskip("coal")
pytest.importorskip("pinocchio")
sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

SHAPES = {
    "base": [rg.Box((0.24, 0.24, 0.1), (0, 0, 0.05))],
    "iiwa_link_4": [rg.Capsule(0.07, start=(0, 0, 0), end=(0, 0.2, 0))],
    "iiwa_link_6": [rg.Sphere(0.08)],
    "iiwa_link_7": [rg.Box((0.12, 0.06, 0.1), (0, 0, 0.06)), rg.Sphere(0.03, (0, 0, 0.14))],
}


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14").with_collisions(shapes=SHAPES)


def test_boxes_on_links_and_planes_are_compared(arm):
    from coal_peer import Peer, of_shape

    turned = np.eye(4)
    turned[:3, :3], turned[:3, 3] = [[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]], (0.5, 0.2, 0.6)
    scene = rg.Scene(
        [rg.Box((0.2, 0.3, 0.4), turned), rg.Plane((0, 0.1, 1), -0.05), rg.Sphere(0.1, (0, 0.5, 1))]
    )
    peer, q = Peer(arm, scene), arm.random(60, seed=3).q
    least = arm.distances(q, scene, gradient=False).least
    assert (least < -1e-3).sum() > 5 < (least > 1e-3).sum()
    # coal parts bodies that overlap deeply to within its own tolerance
    assert [peer.least(x) for x in q] == pytest.approx(least, abs=1e-5)
    assert [peer.touches(x) for x in q] == (least <= 0).tolist()
    with pytest.raises(TypeError, match="Points"):
        of_shape(rg.Points([[0, 0, 0]]))


def test_optimised_motions_keep_clear_of_boxes_a_mesh_and_themselves_by_coal():
    import avoidance
    from coal_peer import Peer

    upper = rg.Capsule(0.08, start=(0, 0, -0.02), end=(0, 0.2, 0))
    few = SHAPES | {"iiwa_link_2": [upper], "iiwa_link_7": [rg.Sphere(0.06, (0, 0, 0.06))]}
    robot = rg.load("iiwa14").with_collisions(shapes=few)
    given = avoidance.motions(robot, 2, clearance=0.01, error=0.1, steps=30, seed=1)
    assert any(len(path.corners) > 2 for _, path, _ in given)
    solutions = rg.solve([problem for *_, problem in given], rg.PDDP(iterations=300))
    for (scene, path, problem), solution in zip(given, solutions, strict=True):
        assert problem.limits.self_clearance == problem.limits.clearance == 0.01
        assert solution.status in ("converged", "slow")
        peer, q = Peer(robot, scene), solution.x[:, : robot.nq]
        assert min(peer.least(x) for x in q) > 0.01 - 1e-4
        assert np.abs(q[-1] - path.q[-1]).max() < 0.02
        assert (np.abs(solution.u) <= robot.limits.effort * (1 + 1e-9)).all()


def test_covered_meshes_never_say_free_where_coal_sees_them_meet():
    import distances

    files = [f for f in distances.meshes() if f.stem in ("wrist2", "wrist3")]
    if not files:
        pytest.skip("example-robot-data is not installed")
    for found in distances.covers(1500, files, error=0.03).values():
        assert 0 < found["stated"] <= 0.03 and found["pairs"] == 750
        assert found["meeting_by_coal"] > 100 and found["of_these_free_by_us"] == 0
        assert found["more_than_coal"] <= 1e-6 and found["less_than_coal_beyond_stated"] <= 1e-6
