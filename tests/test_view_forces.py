"""Forces of the ground along a solved motion: as Pinocchio finds them, and drawn as arrows on live
and saved pages, in files and in reports.
"""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest
from browser import launched, missing, picture
from hopper import DRIVEN, START, hopper

import rigidgrad as rg
from rigidgrad.control.surroundings import Surroundings
from rigidgrad.viewer.around import FORCE, around, arrow
from rigidgrad.viewer.page import content

SLOPE = np.array([0.0, 0.1, 1.0]) / np.hypot(0.1, 1.0)


@pytest.fixture(scope="module")
def robot():
    return hopper()


@pytest.fixture(scope="module")
def solution(robot):
    """On the ground, a landing that takes no time, and in the air."""
    foot = rg.Contact("foot", normal=(0, 0.1, 1))
    costs = [rg.costs.Effort(1e-3), rg.costs.State(START, weight=0.1, final=1.0)]
    phases = [rg.Phase(6, [foot], dt=0.02), rg.Impact([foot]), rg.Phase(4, dt=0.02)]
    problem = rg.Problem(robot, START, costs=costs, phases=phases, dt=0.02, actuation=DRIVEN)
    return rg.solve(problem, rg.PDDP(iterations=20))


def test_forces_are_those_of_pinocchio_where_something_holds(robot, solution):
    pin = pytest.importorskip("pinocchio")
    (force,) = solution.ground_forces
    assert force.frame == "foot" and force.newtons.shape == force.point.shape == (11, 3)
    assert not force.newtons[6:].any(), "an impact has impulses; the air bears nothing"
    model = robot.to_pinocchio()
    data = model.createData()
    foot = model.getFrameId("foot")
    for k in range(6):
        q, v = solution.x[k, :4], solution.x[k, 4:]
        a = (solution.x[k + 1, 4:] - v) / 0.02
        J = pin.computeFrameJacobian(model, data, q, foot, pin.LOCAL_WORLD_ALIGNED)[:3]
        tau = np.r_[0.0, 0.0, solution.u[k]] + J.T @ force.newtons[k]
        assert pin.rnea(model, data, q, v, a) == pytest.approx(tau, abs=1e-6)
        assert force.pressing[k] == pytest.approx(force.newtons[k] @ SLOPE)
        assert force.newtons[k, 2] > 10.0
        pin.framesForwardKinematics(model, data, q)
        assert force.point[k] == pytest.approx(data.oMf[foot].translation, abs=1e-9)
    arm = rg.load("double_pendulum")
    swing = rg.Problem(arm, np.zeros(4), steps=3, dt=0.1, costs=[rg.costs.Effort(1.0)])
    assert rg.solve(swing).ground_forces == ()


def test_an_arrow_is_a_shaft_and_a_head():
    start, tip = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0])
    segments = arrow(start, tip)
    assert segments.shape == (5, 2, 3) and np.array_equal(segments[0], [start, tip])
    assert np.array_equal(segments[1:, 0], np.tile(tip, (4, 1)))
    ends = segments[1:, 1]
    assert np.allclose(ends[:, 2], 4.6) and np.allclose(ends.mean(axis=0)[:2], start[:2])
    assert np.allclose(np.hypot(*(ends - tip)[:, :2].T), 0.16)
    assert arrow(start, start).shape == (0, 2, 3)


def test_pages_and_files_have_an_arrow_as_long_as_the_force(robot, solution, tmp_path):
    drawn = around(robot.model, solution.drawn, lambda n: solution.times[:n], 2.0)
    (one,) = drawn.arrows
    assert any("forces of the ground" in note for note in drawn.notes)
    weight = 9.81 * sum(m for m, *_ in robot.model.inertias)
    (force,) = solution.ground_forces
    assert one.tip - one.start == pytest.approx(0.7 / weight * force.newtons, rel=1e-6)
    assert np.array_equal(one.when(0.03)[0], [one.start[1], one.tip[1]])
    assert not len(one.when(10.0))
    (saved,) = content(robot, solution)["arrows"]
    rows = np.frombuffer(base64.b64decode(saved["segments"]), "<f4").reshape(-1, 5, 2, 3)
    assert len(rows) == len(np.frombuffer(base64.b64decode(saved["t"]), "<f4")) == 11
    page = around(robot.model, solution.drawn, lambda n: solution.times[:n], 1.0).arrows[0]
    shaft, along = rows[2, 0, 1] - rows[2, 0, 0], page.tip[2] - page.start[2]
    assert np.cross(shaft, along) == pytest.approx(0.0, abs=1e-4) and shaft @ along > 0
    assert not rows[6:].any() and tuple(saved["color"]) == FORCE
    again = Surroundings.from_arrays(solution.drawn.arrays())
    for name in ("point", "newtons", "normal"):
        assert np.array_equal(getattr(again.forces[0], name), getattr(force, name))
    assert not content(robot, solution.x)["arrows"]


def test_a_report_has_a_chart_of_normal_forces(robot, solution, tmp_path):
    text = rg.report(solution, tmp_path / "page.html").read_text()
    assert "Normal forces" in text
    bare = rg.report(rg.solve(
        rg.Problem(robot, START, steps=2, dt=0.01, costs=[rg.costs.Effort(1.0)])
    ), tmp_path / "bare.html")  # fmt: skip
    assert "Normal forces" not in bare.read_text()


def test_a_live_page_moves_the_arrow_with_time(robot, solution):
    pytest.importorskip("viser")
    stage = rg.view(robot, solution, port=0, block=False, announce=False)
    with stage:
        line = stage._lines["arrow_0"]
        assert line.visible and line.points.shape == (5, 2, 3)
        stage.surround_at(0.05)
        force = solution.ground_forces[0]
        assert line.points[0, 0] == pytest.approx(force.point[2], abs=1e-5)
        stage.surround_at(solution.times[-2])
        assert not line.visible, "in the air"


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_arrow_is_seen_on_a_saved_page(robot, solution, tmp_path):
    shown = []
    with launched() as browser:
        for seen in (solution, dataclasses.replace(solution, holding=None)):
            file = tmp_path / "page.html"
            file.write_text(f"<!doctype html>{rg.viewer.fragment(robot, seen, autoplay=False)}")
            page = browser.new_page(viewport={"width": 600, "height": 400})
            page.goto(file.as_uri())
            page.wait_for_timeout(500)
            pixels = picture(page).astype(int)[..., :3]
            red = (pixels[..., 0] > 190) & (np.abs(pixels[..., 1:] - (61, 51)) < 30).all(axis=-1)
            shown.append(int(red.sum()))
    assert shown[0] > shown[1] + 30
