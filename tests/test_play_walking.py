"""Robots that walk on a page: postures to stand in, feet on the ground of MuJoCo, sessions in
simulated time, and the page in a real browser.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import pytest
from browser import eventually, launched, missing, picture, share
from live_pages import connected, set_value

import rigidgrad as rg
from rigidgrad.commands import play as command
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.play.scenes import scene
from rigidgrad.play.walking import Walk, WalkingScene, WalkSettings, walking

mujoco = pytest.importorskip("mujoco", reason="needs MuJoCo (pip install rigidgrad[plants])")
with_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))
FEET = [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0)) for leg in ("lf", "rf", "lh", "rh")]


# --- standing -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hyq():
    return rg.load("hyq", floating_base=True)


def feet_of(robot, x):
    T = robot.forward_kinematics(x[: robot.nq])
    return np.array([(T[f.frame] @ np.append(f.offset, 1.0))[:3] for f in FEET])


@pytest.mark.parametrize("height", [None, 0.5])
def test_a_posture_stands_with_feet_under_hips_and_knees_bent(hyq, height):
    x = rg.gaits.standing(hyq, FEET, height, ground=0.026)
    T, feet = hyq.forward_kinematics(x[: hyq.nq]), feet_of(hyq, x)
    hips = np.array([T[f"{leg}_hfe_joint"][:3, 3] for leg in ("lf", "rf", "lh", "rh")])
    np.testing.assert_allclose(feet[:, 2], 0.026, atol=1e-4)
    # feet are in place to 1e-4 of a leg
    np.testing.assert_allclose(feet[:, :2], hips[:, :2], atol=1e-4)
    np.testing.assert_array_equal(x[3:7], (0, 0, 0, 1))
    lower, upper = hyq.model.limits.lower, hyq.model.limits.upper
    assert np.all((lower <= x[: hyq.nq]) & (x[: hyq.nq] <= upper)) and not x[hyq.nq :].any()
    # of thigh and shin; the hip's swinging joint is 8 cm under the trunk's origin
    down = 0.73 * 0.68 if height is None else height - 0.08
    knee = math.acos((down**2 - 0.35**2 - 0.33**2) / (2 * 0.35 * 0.33))  # by the law of cosines
    np.testing.assert_allclose(np.abs(x[[9, 12, 15, 18]]), knee, atol=2e-3)


def test_straight_knees_are_bent_backwards():
    made = rg.Builder("table").link("trunk", 10.0, (0, 0, 0), (0.1, 0.2, 0.2))
    for x in (-0.3, 0.3):
        for y in (-0.2, 0.2):
            n = f"{'f' if x > 0 else 'h'}{'l' if y > 0 else 'r'}"
            made = made.link(f"{n}_thigh", 0.5, (0, 0, -0.1), (0.01, 0.01, 0.001)).link(
                f"{n}_shin", 0.3, (0, 0, -0.1), (0.01, 0.01, 0.001)
            )
            made = made.joint(
                f"{n}_hip",
                "revolute",
                "trunk",
                f"{n}_thigh",
                axis=(0, 1, 0),
                xyz=(x, y, 0),
                limit=(-3, 3, 50, 20),
            )
            made = made.joint(
                f"{n}_knee",
                "revolute",
                f"{n}_thigh",
                f"{n}_shin",
                axis=(0, 1, 0),
                xyz=(0, 0, -0.2),
                limit=(-3, 3, 50, 20),
            )
    robot = made.build(floating_base=True)
    feet = [rg.Contact(f"{n}_shin", offset=(0, 0, -0.2)) for n in ("fl", "fr", "hl", "hr")]
    x = rg.gaits.standing(robot, feet)
    bent = 2 * math.acos(0.73)  # of two links of the same length
    np.testing.assert_allclose(x[7 : robot.nq], np.tile([bent / 2, -bent], 4), atol=2e-3)
    with pytest.raises(RigidgradError, match="found no posture in which 'table' stands"):
        rg.gaits.standing(robot, feet, 0.6)


# --- the ground -----------------------------------------------------------------------------------


def stilt():
    """A mass over a foot that is given by an offset."""
    return (
        rg.Builder("stilt").link("ball", 2.0, (0, 0, 0), (0.1, 0.1, 0.1)).build(floating_base=True)
    )


def test_a_foot_given_by_an_offset_bears_the_weight_where_it_is():
    robot, ground = stilt(), rg.plants.Ground({"ball": (0.1, (0.0, 0.0, -0.3))}, friction=0.5)
    plant = rg.plants.MuJoCo(robot, np.r_[0, 0, 0.4, 0, 0, 0, 1, np.zeros(6)], ground=ground)
    plant.advance(np.zeros(6), 0.5)
    assert plant.x[2] == pytest.approx(0.4, abs=2e-3)  # the ground is a little soft
    np.testing.assert_allclose(plant.foot_forces["ball"], (0, 0, 2 * 9.81), atol=0.2)
    plant.set_ground_friction(0.0)
    plant.advance(np.r_[0.5, np.zeros(5)], 0.1)  # slides, as on ice: a = F / m
    assert plant.x[7] == pytest.approx(0.5 / 2 * 0.1, rel=0.01) and plant.ground.friction == 0.0
    with pytest.raises(InputError, match="a pair"):
        rg.plants.Ground({"ball": (0.1, (0, 0, 0), 3)})
    with pytest.raises(InputError, match="offset of foot"):
        rg.plants.Ground({"ball": (0.1, (0, 0))})
    with pytest.raises(InputError, match="needs a ground"):
        _ = rg.plants.MuJoCo(robot, plant.x).foot_forces


# --- without a page -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared():
    return Walk(walking("hyq"))


@pytest.fixture
def walk(shared):
    """HyQ, standing."""
    shared.carry(False)
    shared.change(**vars(WalkSettings()))
    shared.reset()
    shared.advance(0.1)
    return shared


def test_it_walks_the_way_it_is_told_and_stands_when_told_nothing(walk):
    assert np.linalg.norm(walk.advance(0.5).x[:2]) < 0.02
    weight = 9.81 * sum(m for m, _, _ in walk.robot.model.inertias)
    assert walk.now.forces[:, 2].sum() == pytest.approx(weight, rel=0.05)
    walk.steer((0.4, 0.0, 0.0))
    began = walk.advance(1.0)
    now = walk.advance(1.2)  # two cycles
    np.testing.assert_allclose(now.x[:2] - began.x[:2], (0.4 * 1.2, 0.0), atol=0.08)
    walk.steer((0.0, 0.2, 0.5))
    began = walk.advance(1.0)
    now = walk.advance(0.6)
    turned = 2 * (math.atan2(*now.x[5:7]) - math.atan2(*began.x[5:7]))
    assert turned == pytest.approx(0.5 * 0.6, rel=0.2) and now.x[1] > began.x[1] + 0.05
    assert not now.fallen and not now.trouble and not any(now.counts.values())


def test_a_push_and_a_payload_are_survived_and_a_fall_ends_in_a_stop(walk):
    walk.steer((0.3, 0.0, 0.0))
    walk.carry(True)
    walk.advance(1.0)
    assert walk.plant.payload.mass == walk.scene.payload == 9.0
    walk.push((0.0, 1.0, 0.0))
    assert walk.advance(0.15).x[walk.robot.nq + 1] > 0.15  # 300 N for 100 ms on 96 kg is 0.3 m/s
    now = walk.advance(1.5)
    assert not now.fallen and now.x[2] > 0.55 and now.error < 0.3
    walk._push((0.0, 1.0, 0.0), 3000.0, 0.1, walk.scene.trunk)
    now = walk.advance(1.5)
    assert "fell" in now.fallen and walk.settings.command == (0.0, 0.0, 0.0)
    now = walk.advance(1.0)
    # lies, and does not thrash about
    assert np.abs(now.x[walk.robot.nq :]).max() < 2.0 and np.all(np.isfinite(now.x))
    walk.reset()
    now = walk.advance(0.5)
    assert not now.fallen and now.x[2] > 0.55


def test_slope_friction_and_gait(walk):
    walk.change(slope=0.15, gait="walk")
    walk.steer((0.0, 0.0, 0.0))
    walk.advance(0.2)
    assert walk.plant.ground.slope == 0.15
    walk.steer((0.4, 0.0, 0.0))
    began = walk.advance(1.0)
    now = walk.advance(1.2)
    climbed = now.x[0] - began.x[0]
    assert (
        climbed > 0.3
        and now.x[2] - began.x[2] == pytest.approx(climbed * math.tan(0.15), abs=0.03)
        and not now.fallen
    )
    walk.change(friction=0.05)
    assert walk.advance(2.5).fallen  # slides down
    assert walk.plant.ground.friction == 0.05


def test_commands_beyond_the_fastest_are_clamped_and_what_is_no_command_is_passed_over(walk):
    walk.steer((1e9, -1e9, 0.0))
    np.testing.assert_array_equal(walk.settings.command, walk.scene.fastest * (1, -1, 0))
    for bad in ((math.nan, 0, 0), (0, 0), (math.inf, 0, 0)):
        walk.steer(bad)
    np.testing.assert_array_equal(walk.settings.command, walk.scene.fastest * (1, -1, 0))


def test_scenes_of_robots_that_walk():
    with pytest.raises(InputError, match="four feet"):
        scene("hyq", feet=["lf_lowerleg", "rf_lowerleg"])
    with pytest.raises(InputError, match="follows no target"):
        scene("hyq", "lf_lowerleg", feet=["a", "b", "c", "d"])
    with pytest.raises(RigidgradError, match="lf_foot"):
        scene("hyq", feet=["lf_foot", "rf_foot", "lh_foot", "rh_foot"])
    made = scene("hyq")
    assert isinstance(made, WalkingScene) and made.system.driven


def test_go2_walks_where_it_is_installed(monkeypatch):
    from rigidgrad.play import walking as module

    pytest.importorskip("pinocchio", reason="example-robot-data comes with pinocchio")
    made = scene("go2")
    assert isinstance(made, WalkingScene) and [f.frame for f in made.feet] == [
        "FL_foot",
        "FR_foot",
        "RL_foot",
        "RR_foot",
    ]
    go2 = Walk(made)
    go2.steer((0.4, 0.0, 0.0))
    began = go2.advance(1.0)
    now = go2.advance(1.2)
    assert (
        (now.x[0] - began.x[0]) / 1.2 == pytest.approx(0.4, rel=0.15)
        and not now.fallen
        and not any(now.counts.values())
    )
    monkeypatch.setattr(module.sys, "path", [])
    monkeypatch.setattr(module.sys, "prefix", "/nowhere")
    if not (
        module.Path("/usr/share/example-robot-data").exists()
        or module.Path("/opt/openrobots").exists()
    ):
        with pytest.raises(InputError, match=r"pip install example-robot-data.*--feet"):
            scene("go2")


def test_without_mujoco_the_page_says_what_to_install(monkeypatch):
    from rigidgrad.play import walking as module

    def absent(*_):
        raise RigidgradError("this needs MuJoCo: pip install rigidgrad[plants]")

    monkeypatch.setattr(module, "library", absent)
    with pytest.raises(RigidgradError, match=r"pip install rigidgrad\[plants\]"):
        scene("hyq")


def test_the_command_takes_feet():
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    assert parser.parse_args(["play", "go2.urdf", "--feet", "a,b,c,d"]).feet == "a,b,c,d"
    parsed = parser.parse_args(["play", "hyq", "--feet", "a,b"])
    with pytest.raises(InputError, match="four feet"):
        parsed.run(parsed)


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served():
    from rigidgrad.play.page import play

    page = play("hyq", port=0, block=False, announce=False)
    page.stage.server.scene.configure_environment_map(None)  # graphics by software are slow
    page.stage.server.scene.configure_default_lights(cast_shadow=False)
    yield page
    page.stop()


@with_page
def test_the_page_is_steered_by_buttons_and_keys(served, tmp_path):
    session = served.session
    with launched() as browser:
        window = browser.new_page(viewport={"width": 800, "height": 560})
        window.goto(served.url)
        eventually(lambda: served.stage.watched, "connected", 60)
        window.get_by_role("alert").get_by_role("button").click()  # that graphics are by software
        eventually(lambda: session.now.t > 0.3, "time goes on", 60)
        for _ in range(2):
            window.get_by_role("button", name="Forward", exact=True).click()
        eventually(
            lambda: session.settings.command[0] == pytest.approx(0.5 * served.scene.fastest[0]),
            "it is told so",
        )
        eventually(lambda: session.now.x[0] > 0.3, "the trunk moves forward", 60)
        assert abs(session.now.x[1]) < 0.1 and not session.now.fallen
        eventually(
            lambda: served.command[0].value == pytest.approx(0.5 * served.scene.fastest[0]),
            "the slider shows it",
        )
        window.mouse.click(150, 300)
        window.keyboard.press("q")
        eventually(
            lambda: session.settings.command[2] == pytest.approx(0.25 * served.scene.fastest[2]),
            "a key turns it",
        )
        window.get_by_role("button", name="Add a payload of 9 kg").click()
        eventually(
            lambda: session.plant.payload is not None and served.load.visible,
            "it carries the payload",
        )
        began = session.now.t
        window.get_by_role("button", name="Push: 300 N for 100 ms").click()
        eventually(lambda: session.now.t > began + 1.5, "time goes on", 60)
        assert not session.now.fallen and session.now.x[2] > 0.5
        image = picture(window, path=str(tmp_path / "walking.png"))
        assert share(image, (150, 50, 210)) > 2e-4, "planned feet are seen"
        assert share(image, (220, 60, 50), 25) > 1e-4, "forces are seen"
        assert session.now.forces[:, 2].sum() > 200
        [client] = served.stage.server.get_clients().values()
        eventually(
            lambda: np.linalg.norm(client.camera.look_at[:2] - session.now.x[:2]) < 0.3,
            "the camera follows",
        )
        pushed = float("-inf")

        def fell() -> bool:
            """Is pushed again every few seconds: what has begun again stands again, too."""
            nonlocal pushed
            if (not session.now.fallen and session.now.t > pushed + 2.0) or session.now.t < pushed:
                pushed = session.now.t
                session._push((0.0, 1.0, 0.0), 3000.0, 0.1, served.scene.trunk)
            return "It fell" in window.locator("body").inner_text()

        eventually(fell, "a fall is told", 120)
        window.get_by_role("button", name="Begin again").click()
        eventually(
            lambda: not session.now.fallen and session.now.x[2] > 0.55, "it stands again", 60
        )


_GAMEPAD = """
window.pad = {axes: [0, 0, 0, 0], buttons: [], connected: true, index: 0, mapping: "standard"};
navigator.getGamepads = () => [null, window.pad];
"""


@with_page
def test_the_page_is_steered_by_a_joystick(served):
    session, fastest = served.session, served.scene.fastest

    def told(*parts):
        return lambda: session.settings.command == pytest.approx(tuple(fastest * parts), abs=0.02)

    with launched() as browser:
        window = browser.new_page(viewport={"width": 800, "height": 560})
        window.add_init_script(_GAMEPAD)
        window.goto(served.url)
        eventually(lambda: served.stage.watched, "connected", 60)
        session.reset()
        eventually(told(0, 0, 0), "a stick at rest")
        window.evaluate("pad.axes = [0.05, -1, 0.56, 0]")  # pushed forward; the other to the right
        eventually(told(1, 0, -0.5), "told by both sticks")
        began = session.now.x
        eventually(lambda: session.now.x[0] > began[0] + 0.2, "the trunk moves forward", 60)
        window.evaluate("pad.axes = [-0.56, 0, 0, 0]")
        eventually(told(0, 0.5, 0), "sideways")
        assert served.joystick.value == "0 0.50 0"
        # a stick that is not touched leaves keys alone
        window.evaluate("pad.axes = [0, 0, 0, 0]")
        eventually(told(0, 0, 0), "let go")
        session.steer(0.25 * fastest)
        time.sleep(0.3)
        assert session.settings.command == pytest.approx(tuple(0.25 * fastest))
        window.evaluate("pad.axes = [0, -0.56, 0, 0]")
        eventually(told(0.5, 0, 0), "taken again")
        window.evaluate("pad.connected = false")
        eventually(told(0, 0, 0), "unplugged")
        assert not session.now.trouble and not session.now.fallen


@with_page
def test_nothing_beyond_the_sliders_reaches_the_robot(served):
    session = served.session
    settings = lambda: session.settings  # noqa: E731
    with connected(
        served.stage, close_timeout=0.5
    ) as send:  # it reads nothing that it could answer
        session.reset()
        time.sleep(0.2)
        set_value(send, served.friction, 1e9)
        eventually(
            lambda: (
                settings().friction == pytest.approx(1.2)
                and session.plant.ground.friction == pytest.approx(1.2)
            ),
            "friction",
        )
        set_value(send, served.command[0], 1e300)
        eventually(lambda: settings().command[0] == served.scene.fastest[0], "forward")
        set_value(send, served.command[1], math.nan)
        set_value(send, served.gait, "gallop")
        for senseless in ("1 2 3", "nan 0 0", "0 0", "up", "0 " * 4, 7):
            set_value(send, served.joystick, senseless)
        set_value(send, served.slope, -90.0)
        eventually(lambda: settings().slope == pytest.approx(-math.radians(10)), "slope")
        eventually(lambda: session.plant.ground.slope == settings().slope, "another ground")
        assert settings().gait == "trot" and settings().command[1] == 0.0
        assert not session.now.trouble
