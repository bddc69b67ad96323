"""The page to play with: scenes and sessions in simulated time, and the page itself in a real
browser.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import pytest
from browser import Cable, eventually, launched, missing, picture, share

import rigidgrad as rg
from rigidgrad.commands import play as command
from rigidgrad.control.direct import Direct
from rigidgrad.control.pddp import PDDP
from rigidgrad.errors import InputError, RigidgradError, UnknownNameError
from rigidgrad.play.scenes import NAMES, scene
from rigidgrad.play.session import PLANT_STEP, SOLVERS, Session, first_settings
from rigidgrad.viewer.poses import body_poses

with_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))
ASIDE = {
    "iiwa14": (-0.1, 0.2, 0.1),
    "cartpole": (0.4, 0.0, 0.0),
    "quadrotor": (0.3, -0.4, 0.2),
    "hyq_held": (0.1, 0.05, 0.1),
}


@pytest.fixture(scope="module")
def settled():
    """Sessions of the four robots, at rest at their first targets; tests leave them so."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Session(scene(name))
        session = made[name]
        session.reset()
        session.carry(False)
        session.change(**vars(first_settings(session.scene)))
        session.advance(4.5 if name == "cartpole" else 1.5)
        return session

    return get


# --- without a page -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_robot_follows_a_target_that_is_moved(settled, name):
    session = settled(name)
    assert session.now.error < 0.02
    session.aim(session.scene.home + ASIDE[name])
    session.advance(PLANT_STEP)
    assert session.now.error > 0.09
    now = session.advance(3.0)
    np.testing.assert_allclose(now.target, session.scene.home + ASIDE[name])
    tip = session.scene.points(now.x[: session.scene.robot.nq])
    assert np.linalg.norm(tip - now.target) < 0.01 and now.error < 0.01
    assert not any(now.counts.values()) and not now.trouble


def test_the_pole_is_swung_up_from_hanging():
    session = Session(scene("cartpole"))
    assert session.now.x[1] == 0
    now = session.advance(4.5)
    assert now.x[1] == pytest.approx(math.pi, abs=0.05) and abs(now.x[0]) < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_a_push_is_recovered_from(settled, name):
    session = settled(name)
    session.push((0.7, 0.0, 0.0) if name == "cartpole" else (0.0, 1.0, 0.0))
    assert session.advance(0.15).error > 0.003
    assert session.advance(3.0).error < 0.01


@pytest.mark.parametrize("name", ["iiwa14", "hyq_held"])
def test_the_observer_carries_a_payload_that_the_controller_does_not_know(settled, name):
    session = settled(name)
    session.carry(True)
    assert session.advance(0.1).error > 0.001
    assert session.plant.payload.mass == session.scene.payload
    assert session.advance(2.5).error < 0.002
    session.change(observer=False)
    assert session.advance(2.0).error > 0.01  # without it, the arm hangs low
    session.carry(False)
    session.advance(0.1)
    assert session.plant.payload is None


@pytest.mark.parametrize(
    ("name", "most"), [("iiwa14", 0.01), ("cartpole", 0.3), ("quadrotor", 0.1), ("hyq_held", 0.02)]
)
def test_the_figure_eight_is_followed(settled, name, most):
    session = settled(name)
    session.figure_eight(True)
    session.advance(2.0)
    assert session.swaying
    errors, targets = [], []
    for _ in range(30):
        now = session.advance(session.scene.sway_period / 30)
        errors.append(now.error)
        targets.append(now.target)
    assert np.mean(errors) < most
    assert np.ptp(targets, axis=0).max() == pytest.approx(
        2 * np.abs(session.scene.sway).max(), rel=0.05
    )
    session.figure_eight(False)
    stopped = session.advance(0.1).target
    np.testing.assert_array_equal(session.advance(0.5).target, stopped)  # where it was
    assert not session.swaying


def test_every_setting_reaches_plant_and_controller(settled):
    session = settled("iiwa14")
    session.change(noise=0.002)
    session.advance(PLANT_STEP)
    assert (
        session.plant.faults.noise_position == 0.002 and session.plant.faults.noise_velocity == 0.02
    )
    session.change(latency=0.02, horizon=1.0, period=0.02, iterations=3, blocks=2, observer=False)
    session.weigh(target=3.0, effort=1e-3, motion=0.5)
    session.advance(0.3)
    mpc = session._mpc
    assert (mpc.latency, mpc.period, mpc.problem.steps, mpc.observer) == (0.02, 0.02, 80, None)
    assert mpc.solver == PDDP(blocks=2, iterations=3)
    assert [c.weight for c in (mpc.problem.costs[0], mpc.problem.costs[2])] == [3.0, 1e-3]
    assert mpc.problem.costs[1].weight[-1] == 0.5
    assert session.now.error < 0.05 and not session.now.trouble


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_target(settled, solver):
    session = settled("cartpole")
    session.change(solver=solver, period=0.02)
    session.aim((0.2, 0.0, 0.0))
    now = session.advance(3.0)
    assert isinstance(session._mpc.solver, PDDP if solver == "PDDP" else Direct)
    assert now.error < 0.01 and abs(now.x[1] - math.pi) < 0.05 and not now.trouble


def test_settings_that_cannot_be_are_told_and_the_last_controller_stays(settled):
    session = settled("cartpole")
    before = session._mpc
    session.change(period=-1.0)
    now = session.advance(0.2)
    assert "period" in now.trouble and session._mpc is before and now.error < 0.05
    session.change(period=0.02)
    assert session.advance(0.1).trouble == "" and session._mpc.period == 0.02


def test_whatever_fails_the_scene_begins_again(settled, monkeypatch):
    session = settled("cartpole")

    def fail(*_):
        monkeypatch.undo()
        raise RigidgradError("the state became infinite")

    monkeypatch.setattr(session.plant, "advance", fail)
    session.advance(PLANT_STEP)
    assert (
        "begun again after: the state became infinite" in session.now.trouble and session.now.t == 0
    )
    assert session.advance(4.5).error < 0.05


def test_a_robot_that_runs_away_begins_again_and_nothing_but_finite_numbers_is_shown(
    settled, monkeypatch
):
    session = settled("cartpole")
    session.push((1, 0, 0))
    monkeypatch.setattr(session.plant, "_x", np.array([0.0, 3.0, 2e3, 0.0]))
    now = session.advance(PLANT_STEP)
    assert "ran away" in now.trouble and now.t == 0 and np.all(np.isfinite(now.x))
    session.advance(0.1)
    session._mpc.plan.x[3:] = np.nan
    session._publish()
    assert len(session.now.plan) == 3 and np.all(np.isfinite(session.now.plan))
    note = session._mpc.log.add_solve
    monkeypatch.setattr(
        session._mpc.log,
        "add_solve",
        lambda t, seconds, cost, *rest: note(t, seconds, math.nan, *rest),
    )
    session.advance(0.2)
    assert len(session.samples) > 3 and all(math.isfinite(s.cost) for s in session.samples)


def test_a_payload_on_a_finger_shows_nothing_but_finite_numbers():
    """A Panda's finger slides off under it, since limits of positions are not simulated; from then
    on solves fail.
    """
    pin = pytest.importorskip("pinocchio")
    found = next(
        (
            p / "share/example-robot-data/robots"
            for p in Path(pin.__file__).parents
            if p.name == "cmeel.prefix"
        ),
        Path("nowhere"),
    )
    if not found.is_dir():
        pytest.skip("example-robot-data is not installed")
    panda = found / "panda_description/urdf/panda.urdf"
    assert scene(panda).frame == "panda_hand_tcp"
    session = Session(scene(panda, frame="panda_leftfinger"))
    session.advance(0.5)
    session.carry(True)
    for _ in range(35):
        now = session.advance(0.1)
        assert all(np.all(np.isfinite(a)) for a in (now.x, now.plan, now.target, now.error))
        assert all(math.isfinite(s.cost) and math.isfinite(s.error) for s in session.samples)


def test_any_frame_can_follow():
    robot = rg.load("double_pendulum")
    assert (
        scene(robot).frame == "lower_rod" and scene(robot, frame="upper_rod").frame == "upper_rod"
    )
    assert scene("iiwa14", frame="iiwa_link_5").frame == "iiwa_link_5"
    with pytest.raises(InputError, match="does not move"):
        scene("iiwa14", frame="base")
    with pytest.raises(InputError, match="leave the frame out"):
        scene("cartpole", frame="rod")
    with pytest.raises(UnknownNameError, match="nothing"):
        scene(robot, frame="nothing")


def test_targets_that_are_no_points_are_passed_over(settled):
    session = settled("cartpole")
    for point in ((np.nan, 0, 0), (0, 0), (np.inf, 0, 0)):
        session.aim(point)
    np.testing.assert_array_equal(session.advance(0.1).target, session.scene.home)


def test_samples_are_kept_for_the_plots(settled):
    session = settled("cartpole")
    session.advance(12.0)
    samples = session.samples
    assert len(samples) == 200  # and no more
    np.testing.assert_allclose(np.diff([s.t for s in samples]), 0.05, atol=1e-9)
    assert all(0 < s.solve < 10 and s.cost >= 0 and s.error >= 0 for s in samples)


def test_other_robots_follow_with_the_end_of_their_longest_chain():
    robot = (
        rg.Builder("two")
        .link("base")
        .link("a", 2, (0, 0, 0.2), (0.1, 0.1, 0.01))
        .link("b", 1, (0, 0, 0.15), (0.05, 0.05, 0.01))
        .link("tip")
    )
    robot = robot.joint("j1", "revolute", "base", "a", axis=(0, 1, 0), xyz=(0, 0, 0.1)).joint(
        "j2", "revolute", "a", "b", axis=(1, 0, 0), xyz=(0, 0, 0.4)
    )
    session = Session(scene(robot.joint("j3", "fixed", "b", "tip", xyz=(0, 0, 0.3)).build()))
    assert session.scene.frame == "tip"
    q = session.scene.start[:2] + (0.2, -0.2)
    session.aim(session.scene.points(q))
    assert session.advance(3.0).error < 0.01
    with pytest.raises(InputError, match="fixed base"):
        scene(rg.load("hyq", floating_base=True))
    with pytest.raises(InputError, match="no joints"):
        scene(rg.Builder("rock").link("rock", 1.0).build())


def test_time_goes_by_the_clock_and_only_while_somebody_watches():
    session, watched = Session(scene("cartpole")), [False]
    session.start(lambda: watched[0])
    try:
        time.sleep(0.3)
        assert session.now.t == 0
        watched[0] = True
        eventually(lambda: session.now.t > 0.5, "half a second passes")
        watched[0] = False
        time.sleep(0.3)
        stopped = session.now.t
        time.sleep(0.3)
        assert session.now.t == stopped
    finally:
        session.stop()


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def served():
    """The arm's page."""
    from rigidgrad.play.page import play

    page = play("iiwa14", port=0, block=False, announce=False)
    page.stage.server.scene.configure_environment_map(None)  # graphics by software are slow
    page.stage.server.scene.configure_default_lights(cast_shadow=False)
    yield page
    page.stop()


@pytest.fixture
def opened(browser, served):
    """The page in a new window, connected, everything as at the start."""
    served.session.reset()
    window = browser.new_page(viewport={"width": 800, "height": 560})
    window.goto(served.url)
    eventually(lambda: served.stage.watched, "connected", 60)
    window.get_by_role("alert").get_by_role("button").click()  # that graphics are by software
    yield window
    window.close()
    eventually(lambda: not served.stage.watched, "disconnected")


def pixel(stage, window, points):
    """Where points of the world (…, 3) are on the page."""
    [client] = stage.server.get_clients().values()
    w, x, y, z = client.camera.wxyz
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    seen = (np.asarray(points) - client.camera.position) @ R  # right, down, ahead
    box = window.locator("canvas").first.bounding_box()
    focal = box["height"] / 2 / math.tan(client.camera.fov / 2)
    return np.stack(
        [
            box["x"] + box["width"] / 2 + focal * seen[..., 0] / seen[..., 2],
            box["y"] + box["height"] / 2 + focal * seen[..., 1] / seen[..., 2],
        ],
        -1,
    )


@with_page
def test_dragging_the_target_moves_the_arm(opened, served):
    session, home = served.session, served.scene.home
    eventually(
        lambda: share(picture(opened), (242, 115, 26), 70) > 0.0005, "the arm's rings are seen", 60
    )
    eventually(lambda: session.now.error < 0.005, "at the first target", 60)
    # along the upward arrow
    start, end = pixel(served.stage, opened, home + np.array([[0, 0, 0.1], [0, 0, 0.25]]))
    opened.mouse.move(*start)
    opened.mouse.down()
    for k in range(1, 9):
        opened.mouse.move(*(start + (end - start) * k / 8))
        opened.wait_for_timeout(60)
    opened.mouse.up()
    eventually(
        lambda: abs(session.now.target[2] - home[2] - 0.15) < 0.03,
        "the target was dragged up by 15 cm",
    )
    np.testing.assert_allclose(session.now.target[:2], home[:2], atol=1e-3)
    # the gizmo's last position may arrive after the checks above
    eventually(
        lambda: (
            np.linalg.norm(served.scene.points(session.now.x[:7]) - served.target.position) < 0.01
        ),
        "the tip is within 1 cm of the gizmo",
        60,
    )
    drawn = served.stage.server.scene.get_handle_by_name("/robot/body_6")
    eventually(
        lambda: np.allclose(
            drawn.position,
            body_poses(served.scene.robot.model, session.now.x[:7])[6, :3, 3],
            atol=5e-3,
        ),
        "and drawn there",
    )


@with_page
def test_buttons_do_what_they_say(opened, served):
    session = served.session
    eventually(lambda: session.now.error < 0.01, "at the first target", 60)
    opened.get_by_role("button", name="Figure eight").click()
    eventually(
        lambda: session.swaying and abs(session.now.target[1]) > 0.05, "the target moves", 60
    )
    eventually(
        lambda: abs(served.target.position[1] - session.now.target[1]) < 0.05,
        "the gizmo moves with it",
    )
    opened.get_by_role("button", name="Stop the figure eight").click()
    eventually(lambda: not session.swaying, "it stops")
    eventually(lambda: session.now.error < 0.01, "it is reached", 60)
    opened.get_by_role("button", name="Push: 100 N for 50 ms").click()
    eventually(lambda: max(s.error for s in session.samples[-20:]) > 0.004, "it was pushed", 60)
    opened.get_by_role("button", name="Add a payload of 5 kg").click()
    eventually(lambda: session.plant.payload is not None and served.load.visible, "it carries")
    opened.get_by_role("button", name="Remove a payload of 5 kg").click()
    eventually(
        lambda: session.plant.payload is None and not served.load.visible, "it carries no longer"
    )
    opened.get_by_role("button", name="Begin again").click()
    eventually(lambda: np.allclose(session.now.target, served.scene.home), "the first target again")


def enter(window, label, value):
    """Writes a number beside a slider."""
    box = window.locator(f"xpath=//p[.='{label}']/following::input[@type='text' or not(@type)][1]")
    box.scroll_into_view_if_needed()
    box.fill(str(value))
    box.press("Enter")


def choose(window, label, option):
    box = window.get_by_role("combobox", name=label)
    box.scroll_into_view_if_needed()
    box.click()
    window.get_by_role("option", name=option, exact=True).click()


@with_page
def test_sliders_and_choices_reach_the_controller(opened, served):
    session = served.session

    def told(name, value):
        eventually(
            lambda: getattr(session.settings, name) == pytest.approx(value), f"{name} is {value}"
        )

    enter(opened, "Latency [ms]", 12)
    told("latency", 0.012)
    enter(opened, "Noise [mrad, mm]", 0.5)
    told("noise", 0.0005)
    enter(opened, "Iterations", 2)
    told("iterations", 2)
    enter(opened, "Period [ms]", 20)
    told("period", 0.02)
    enter(opened, "Horizon [s]", 0.4)
    told("horizon", 0.4)
    choose(opened, "M (blocks)", "4")
    told("blocks", 4)
    eventually(
        lambda: (
            session._mpc.solver == PDDP(blocks=4, iterations=2) and session._mpc.latency == 0.012
        ),
        "the controller is made anew",
        60,
    )
    eventually(lambda: session.now.error < 0.02, "it works", 60)
    choose(opened, "Solver", "Direct, Riccati")
    eventually(
        lambda: session.settings.solver == "Direct, Riccati" and served.blocks.disabled,
        "another solver",
    )
    choose(opened, "Solver", "PDDP")
    opened.get_by_label("Observe disturbances").click()
    eventually(lambda: not session.settings.observer, "no observer")
    opened.get_by_text("Weights, powers of ten").click()
    enter(opened, "Target", 0.5)
    eventually(lambda: session.settings.weights.target == pytest.approx(10**0.5), "another weight")
    assert not session.now.trouble


@with_page
def test_the_page_survives_that_its_window_goes_and_comes(opened, served):
    session = served.session
    session.aim((0.5, 0.2, 0.6))
    eventually(
        lambda: session.now.error < 0.01 and session.now.target[1] == 0.2, "at the target", 60
    )
    opened.goto("about:blank")
    eventually(lambda: not served.stage.watched, "gone", 60)
    time.sleep(0.3)
    stopped = session.now.t
    np.testing.assert_allclose(session.now.target, (0.5, 0.2, 0.6))
    opened.goto(served.url)
    eventually(lambda: session.now.t > stopped + 0.3, "time goes on", 60)
    eventually(
        lambda: "from the target" in opened.locator("body").inner_text(), "its state is told"
    )
    assert session.now.error < 0.02


@with_page
def test_the_page_connects_again_by_itself(opened, served):
    opened.goto("about:blank")
    eventually(lambda: not served.stage.watched, "gone", 60)
    cable = Cable(served.stage.port)
    try:
        opened.goto(cable.url)
        eventually(lambda: served.stage.watched, "connected", 60)
        cable.cut()
        eventually(lambda: not served.stage.watched, "cut off", 60)
        served.session.aim((0.5, 0.2, 0.6))
        cable.mend()
        eventually(lambda: served.stage.watched, "connected again", 60)
        eventually(
            lambda: served.session.now.target[1] == 0.2 and served.session.now.error < 0.01,
            "what happened meanwhile counts",
            60,
        )
        opened.get_by_role("button", name="Begin again").click()
        eventually(
            lambda: np.allclose(served.session.now.target, served.scene.home), "its buttons work"
        )
    finally:
        cable.close()


def test_the_command_has_its_options():
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["play"])
    assert (parsed.robot, parsed.port, parsed.host, parsed.json) == (
        "iiwa14",
        8080,
        "127.0.0.1",
        False,
    )
    assert parsed.frame is None and parser.parse_args(["play", "--frame", "tool0"]).frame == "tool0"
    parsed = parser.parse_args(["play", "cartpole", "--port", "0", "--host", "203.0.113.7"])
    with pytest.raises(RigidgradError):
        parsed.run(parsed)
