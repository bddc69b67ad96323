"""Live pages keep to themselves: names are text, requests from other pages are refused, values from
a browser are checked.
"""

from __future__ import annotations

import http.client
import importlib.util
import math

import numpy as np
import pytest
from browser import eventually, launched, missing
from live_pages import connected, set_value

import rigidgrad as rg
from rigidgrad.errors import RigidgradError
from rigidgrad.viewer import view
from rigidgrad.viewer.guard import refusal, well_formed
from rigidgrad.viewer.inputs import as_text, point_within, within

EVIL = "x<img src=q onerror='window.broken = 1'> ![f](/etc/hostname) **b** `c`\n# h"
with_viser = pytest.mark.skipif(
    importlib.util.find_spec("viser") is None, reason="needs viser (pip install)"
)
with_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))


def two_links(name: str, link: str = "tip"):
    """A small robot whose names are hostile."""
    made = rg.Builder(name).link("base").link("arm", 1.0, (0, 0, 0.3), (0.1, 0.1, 0.01)).link(link)
    made = made.joint(
        f"j {name}", "revolute", "base", "arm", axis=(0, 1, 0), limit=(-2.0, 2.0, 10.0, 50.0)
    )
    return made.joint("end", "fixed", "arm", link, xyz=(0, 0, 0.5)).build()


# --- text -----------------------------------------------------------------------------------------


def test_text_has_no_structure_of_markdown_or_html():
    made = as_text(EVIL)
    assert not set("<>!`*_#\n\"'[]()") - {"#"} & set(made)
    assert made.count("#") == made.count("&#")  # of character references alone
    assert as_text("an arm, 3.5 kg") == "an arm, 3.5 kg"
    assert as_text("a\u202eb\x00c") == "a b c"


@with_viser
def test_names_and_errors_on_the_playing_page_are_text():
    from rigidgrad.play.page import _status, play

    page = play(two_links(EVIL, EVIL), port=0, block=False, announce=False)
    try:
        hostile = [
            h._content
            for h in page.stage.server.gui._container_handle_from_uuid["root"]._children.values()
            if hasattr(h, "_content")
        ]
        assert "follows" in hostile[0] and "<" not in hostile[0] and "onerror" in hostile[0]
        page.session._trouble = EVIL
        page.session._publish()
        text = _status(page.session.now, page.session.settings)
        assert "<" not in text and "onerror" in text
    finally:
        page.stop()


@with_viser
def test_the_playing_page_draws_obstacles_of_its_scene():
    from dataclasses import replace

    from rigidgrad.play.page import Page
    from rigidgrad.play.scenes import scene

    limits = rg.Limits(
        obstacles=[rg.Obstacle((1.0, 0.0, 0.5), 0.1)], spheres=[rg.LinkSphere("tip", 0.05)]
    )
    page = Page(replace(scene(two_links("arm")), limits=limits), port=0)
    try:
        nodes = [
            page.stage.server.scene.get_handle_by_name(name)
            for name in ("/around/ball_0", "/robot/body_0/ball_1")
        ]
        np.testing.assert_allclose([n.position for n in nodes], [(1.0, 0.0, 0.5), (0, 0, 0.5)])
        assert [n.scale for n in nodes] == [0.1, 0.05]
    finally:
        page.stop()


@with_page
def test_a_browser_shows_names_and_runs_nothing():
    from rigidgrad.play.page import play

    robot = two_links(EVIL, EVIL)
    names = {"paths": {EVIL: np.eye(3)}, "points": {EVIL: np.ones(3)}, "title": EVIL}
    page = play(robot, port=0, block=False, announce=False)
    moving = view(
        robot, np.linspace(0, 1, 20)[:, None], dt=0.1, port=0, block=False, announce=False, **names
    )
    still = view(robot, port=0, block=False, announce=False)
    try:
        with launched() as browser:
            for stage in (page.stage, moving, still):
                window = browser.new_page(viewport={"width": 640, "height": 400})
                window.goto(stage.url)
                eventually(lambda: stage.watched, "connected", 60)  # noqa: B023
                eventually(
                    lambda: (
                        "onerror='window.broken = 1'" in window.locator("body").inner_text()  # noqa: B023
                    ),
                    "names are shown as they are",
                )
                assert window.evaluate("window.broken") is None
                assert window.locator("img[src='q']").count() == 0
                window.close()
    finally:
        for served in (page, moving, still):
            served.stop()


# --- who is served --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "origins", "served"),
    [
        (["localhost:8080"], [], True),
        (["localhost:8080"], ["http://localhost:8080"], True),
        (["127.0.0.1:9000"], ["http://127.0.0.1:9000"], True),
        (["[::1]:8080"], ["http://[::1]:8080"], True),
        (["Lab-7:8080"], ["http://lab-7:8080"], True),
        (["192.0.2.7"], ["https://192.0.2.7"], True),
        (["localhost:8080"], ["http://evil.example"], False),
        (["localhost:8080"], ["http://localhost:8081"], False),
        (["localhost:8080"], ["null"], False),
        (["localhost:8080"], ["http://localhost:8080.evil.example"], False),
        (
            ["evil.example:8080"],
            ["http://evil.example:8080"],
            False,
        ),  # a name that was made to point here
        (["127.0.0.1.evil.example"], [], False),
        (["localhost", "evil.example"], [], False),
        (["localhost"], ["http://localhost", "http://evil.example"], False),
        ([], [], False),
    ],
)
def test_only_addresses_of_this_machine_and_its_own_page_are_served(hosts, origins, served):
    assert (refusal(hosts, origins, frozenset({"lab-7"})) == "") is served


@pytest.fixture
def stage():
    shown = view(two_links("arm"), port=0, block=False, announce=False)
    yield shown
    shown.stop()


def status(port, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@with_viser
def test_pages_from_elsewhere_are_refused(stage):
    from websockets.exceptions import InvalidStatus

    assert status(stage.port) == 200
    assert status(stage.port, Host="evil.example") == 403
    assert status(stage.port, Origin="http://evil.example") == 403
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": f"http://127.0.0.1:{stage.port + 1}"},
    ):
        with pytest.raises(InvalidStatus, match="403"), connected(stage, **headers):
            pass
    assert not stage.watched
    with connected(stage, origin=f"http://127.0.0.1:{stage.port}"):
        eventually(lambda: stage.watched, "its own page is served")


@with_viser
def test_a_viser_that_cannot_be_guarded_is_not_served(monkeypatch):
    import viser

    monkeypatch.setattr(viser, "ViserServer", lambda **_: None)
    with pytest.raises(RigidgradError, match="requests cannot be checked"):
        view(two_links("arm"), port=0, block=False)


# --- what a browser says --------------------------------------------------------------------------


def test_values_are_clamped_and_what_is_no_number_is_refused():
    check = within(-1.0, 2.0)
    assert [check(x) for x in (0.5, 1e9, -1e9, math.nan, math.inf, "7", None)] == [
        0.5,
        2.0,
        -1.0,
        None,
        None,
        None,
        None,
    ]
    assert type(within(0, 50)(10**9)) is int
    check = point_within(np.zeros(3), np.ones(3))
    np.testing.assert_array_equal(check((0.5, 1e9, -1)), (0.5, 1, 0))
    assert check((math.nan, 0, 0)) is None and check((0, 0)) is None and check("abc") is None


def test_messages_out_of_shape_are_passed_over():
    msgspec = pytest.importorskip("msgspec")
    good = {"type": "TransformControlsUpdateMessage", "wxyz": (1, 0, 0, 0), "position": (1.5, 0, 0)}
    assert well_formed(msgspec.msgpack.encode(good))
    for bad in (
        {"position": (0, 0)},
        {"wxyz": (math.nan, 0, 0, 0)},
        {"updates": {"update_cb": []}},
        {"updates": 3},
        {"position": 7},
    ):
        assert not well_formed(msgspec.msgpack.encode(good | bad))
    assert (
        not well_formed("text")
        and not well_formed(b"\xc1")
        and not well_formed(msgspec.msgpack.encode([1]))
    )


@with_viser
def test_sliders_of_a_robot_keep_to_their_range_whatever_a_browser_sends():
    stage = view(two_links("arm"), port=0, block=False, announce=False)
    try:
        [slider] = [
            h
            for h in stage.server.gui._gui_input_handle_from_uuid.values()
            if "j arm" in str(getattr(h, "label", ""))
        ]
        arm = stage.server.scene.get_handle_by_name("/robot/body_0")
        with connected(stage) as send:
            set_value(send, slider, 1e9)
            eventually(
                lambda: (
                    slider.value == 2.0 and np.allclose(arm.wxyz, (math.cos(1), 0, math.sin(1), 0))
                ),
                "clamped",
            )
            set_value(send, slider, math.nan)
            set_value(send, slider, 0.5)
            eventually(
                lambda: (
                    slider.value == 0.5
                    and np.allclose(arm.wxyz, (math.cos(0.25), 0, math.sin(0.25), 0))
                ),
                "and goes on",
            )
    finally:
        stage.stop()


@with_viser
def test_nothing_beyond_the_sliders_reaches_the_controller():
    from rigidgrad.play.page import play

    page = play("cartpole", port=0, block=False, announce=False)
    settings = lambda: page.session.settings  # noqa: E731
    try:
        with connected(page.stage) as send:
            set_value(send, page.latency, 1e9)
            eventually(
                lambda: settings().latency == pytest.approx(0.05) and page.latency.value == 50,
                "latency",
            )
            set_value(send, page.iterations, 10**9)
            eventually(lambda: settings().iterations == 10, "iterations")
            set_value(send, page.period, -3)
            eventually(lambda: settings().period == pytest.approx(0.002), "period")
            before = settings().horizon
            set_value(send, page.horizon, math.nan)
            set_value(send, page.noise, 1e300)
            eventually(lambda: settings().noise == pytest.approx(0.005), "noise")
            assert settings().horizon == before == page.horizon.value
            set_value(send, page.solver, "os.system")
            set_value(send, page.blocks, "1000000")
            for name in page.weights:
                set_value(send, page.weights[name], 400.0)
            eventually(lambda: settings().weights.effort == pytest.approx(1.0), "weights")
            assert settings().solver == page.solver.value == "PDDP" and settings().blocks == 1
            for at in ((math.nan, 0, 0), (1e300, 0, 0), (0, 0)):
                send(
                    "TransformControlsUpdateMessage",
                    name="/target",
                    wxyz=(0, 1, 0, 0),
                    position=at,
                    owner="",
                )
            send("GuiUpdateMessage", uuid=page.latency._impl.uuid, updates={"update_cb": []})
            eventually(
                lambda: page.session.now.target[0] == page._reachable((1e300, 0, 0))[0],
                "the target is clamped",
            )
            assert np.all(np.isfinite(page.target.position)) and np.array_equal(
                page.target.wxyz, (1, 0, 0, 0)
            )
            assert page.latency._impl.update_cb
            began = page.session.now.t
            eventually(lambda: page.session.now.t > began + 0.1, "time goes on")
    finally:
        page.stop()
