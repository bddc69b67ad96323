"""Reports: one file that needs no network, with its numbers attached."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.control.mpc.log import Log
from rigidgrad.errors import InputError
from rigidgrad.viewer.page import content


def solved():
    robot = rg.load("double_pendulum")
    costs = [rg.costs.State(np.zeros(4), 1.0, 10.0), rg.costs.Effort(0.1)]
    return rg.solve(rg.Problem(robot, start=[0.5, 0.2, 0, 0], steps=20, dt=0.02, costs=costs))


def attached(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    )


def test_a_solution(tmp_path):
    solution = solved()
    path = rg.report(solution, tmp_path / "report.html", title="<b>Pendulum & co</b>")
    text = path.read_text()
    assert "<b>Pendulum" not in text and "&lt;b&gt;Pendulum &amp; co" in text
    assert text.count("<svg") >= 4 and "converged" in text
    assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
    data = attached(text)
    np.testing.assert_allclose(data["report"]["x"], solution.x)
    assert (
        data["report"]["cost"] == solution.cost
        and data["environment"]["rigidgrad"] == rg.__version__
    )


def test_several_things(tmp_path):
    log = Log(4, 2)
    for k in range(30):
        log.add_step(0.01 * k, None if k == 7 else np.full(4, 0.01 * k), np.array([k, np.nan]))
    for k in range(3):
        log.add_solve(0.1 * k, 1e-4, np.nan if k else 1.0, 2)
    log.counts["kept"] = 3
    path = rg.report(
        {"Motion": solved(), "Run": log, "Table": {"a</script>": 1}},
        tmp_path / "r.html",
        robot=rg.load("double_pendulum"),
    )
    data = attached(path.read_text())
    assert (
        data["Run"]["steps"] == 30
        and data["Run"]["u"][3] == [3.0, None]
        and data["Table"] == {"a</script>": 1}
    )
    assert "fallback “kept”" in path.read_text()


@pytest.fixture(scope="module")
def circling():
    """The tip of a double pendulum behind a target that goes round, some samples lost."""
    robot = rg.load("double_pendulum")
    tip = (0.0, 0.0, -0.5)

    def target(t):
        q = np.stack(
            [0.5 + 0.2 * np.sin(3 * np.asarray(t)), 0.6 + 0.2 * np.cos(3 * np.asarray(t))], axis=-1
        )
        T = robot.forward_kinematics(q)["lower_rod"]
        return T[..., :3, 3] + T[..., :3, :3] @ np.array(tip)

    costs = [
        rg.costs.Reach("lower_rod", target(0.0), offset=tip, weight=100.0, final=100.0),
        rg.costs.Effort(1e-4, reference="gravity"),
    ]
    problem = rg.Problem(robot, start=np.zeros(4), steps=20, dt=0.02, costs=costs)
    mpc = rg.MPC(problem, period=0.02, target=target)
    log = mpc.run(
        rg.plants.Simulator(robot, np.zeros(4), dt=0.01, faults=rg.plants.Faults(drop=0.1)),
        duration=3.0,
    )
    return robot, mpc, log, target, tip


def test_tracking_is_the_distance_to_the_target_and_names_its_window(circling):
    robot, mpc, log, target, tip = circling
    run = rg.tracking(log, mpc, after=1.0)
    seen = np.isfinite(log.x).all(axis=1)
    assert 0 < seen.sum() < log.steps and len(run.t) == seen.sum()
    T = robot.forward_kinematics(log.x[seen, :2])["lower_rod"]
    away = np.linalg.norm(T[:, :3, 3] + T[:, :3, :3] @ np.array(tip) - target(log.t[seen]), axis=1)
    np.testing.assert_allclose(run.error, away, atol=1e-12)
    late = away[log.t[seen] >= log.t[seen][0] + 1.0 - 1e-9]
    first, whole = run.summary().items()
    assert first[0].startswith("tracking error after the first 1.0 s of 3.0 s") or first[
        0
    ].endswith("of 2.9 s")
    assert first[1] == f"{1e3 * late.mean():.1f} mm mean, {1e3 * late.max():.1f} mm at most"
    assert (
        whole[0].startswith("over all ")
        and whole[1] == f"{1e3 * away.mean():.1f} mm mean, {1e3 * away.max():.1f} mm at most"
    )
    # what the first second hides is told as well
    assert away.max() > 5 * late.max() and str(run).count(" mm at most") == 2
    assert list(rg.tracking(log, mpc).summary()) == [f"tracking error over all {run.seconds:.1f} s"]


def test_a_report_of_a_run_shows_target_path_error_and_window(circling, tmp_path):
    robot, mpc, log, target, _ = circling
    run = rg.tracking(log, mpc, after=1.0)
    text = rg.report({"Run": run}, tmp_path / "r.html").read_text()
    assert (
        f"Distance to the target, {run.window}" in text
        and "does not count" in text
        and "The tool and its target" in text
    )
    data = attached(text)["Run"]
    np.testing.assert_allclose(data["error"], run.error)
    assert data["after"] == 1.0
    shown = json.loads(
        re.search(
            r'<div class="rigidgrad-view"><script type="application/json">(.*?)</script>',
            text,
            re.S,
        )[1]
    )
    [ball] = shown["balls"]
    path = np.frombuffer(base64.b64decode(ball["at"]), "<f4").reshape(-1, 3)
    times = np.frombuffer(base64.b64decode(ball["t"]), "<f4") + run.t[0]
    # the target moves in the picture as it did in the run
    np.testing.assert_allclose(path, target(times), atol=2e-3)
    assert shown["trace"]["label"] == "lower_rod" and len(shown["paths"]) == 1
    assert content(robot, run)["balls"][0]["at"] == ball["at"]  # a view of it shows the same


def test_obstacles_are_drawn_around_a_log_and_a_tracking(circling, tmp_path):
    robot, mpc, log, *_ = circling
    limits = rg.Limits(
        obstacles=[rg.Obstacle((2.0, 0, 0), 0.1)], spheres=[rg.LinkSphere("lower_rod", 0.05)]
    )
    problem = rg.Problem(
        robot, start=np.zeros(4), steps=5, dt=0.02, costs=mpc.problem.costs, limits=limits
    )
    text = rg.report(log, tmp_path / "r.html", robot=robot, problem=problem).read_text()
    assert (
        "Red: obstacles." in text
        and "Red: obstacles." not in rg.report(log, tmp_path / "r.html", robot=robot).read_text()
    )
    run = rg.tracking(log, rg.MPC(problem, period=0.02, target=mpc.target))
    assert (
        "drawn where they are at the end of the run"
        in rg.report(run, tmp_path / "r.html").read_text()
    )


def test_what_has_no_tracking_is_told(circling):
    robot, mpc, log, *_ = circling
    with pytest.raises(InputError, match="no two measured states"):
        rg.tracking(log, mpc, after=5.0)
    with pytest.raises(InputError, match="seconds"):
        rg.tracking(log, mpc, after=-1.0)
    state = rg.Problem(
        robot,
        start=np.zeros(4),
        steps=5,
        dt=0.02,
        costs=[rg.costs.State(np.zeros(4), 1.0), rg.costs.Effort(0.1)],
    )
    with pytest.raises(InputError, match="Reach"):
        rg.tracking(log, rg.MPC(state, period=0.02))


def test_hostile_names_are_text_in_reports(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    robot = (
        rg.Builder(evil)
        .link("a")
        .link(evil, 1.0, (0, 0, 0.1), (1, 1, 1))
        .joint(evil, "revolute", "a", evil, axis=(0, 1, 0))
        .build()
    )
    costs = [rg.costs.Reach(evil, (0.1, 0, 0.1), weight=1.0), rg.costs.Effort(0.1)]
    solution = rg.solve(
        rg.Problem(robot, start=np.zeros(2), steps=5, dt=0.02, costs=costs), rg.PDDP(iterations=2)
    )
    text = rg.report(
        {evil: solution, "Table": {evil: evil}}, tmp_path / "r.html", title=evil
    ).read_text()
    assert "<img" not in text and text.count('class="head">Distance of ') == 1


def test_what_cannot_be_reported(tmp_path):
    with pytest.raises(InputError, match="not str"):
        rg.report("hello", tmp_path / "r.html")
    with pytest.raises(InputError, match="cannot be written"):
        rg.report(solved(), tmp_path / "no" / "folder" / "r.html")
