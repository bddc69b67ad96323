"""The controller of a live page in a process of its own: it does what the page says, the page shows
what it did, and neither outlives the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import eventually, launched, missing
from live_pages import connected

import rigidgrad as rg
from rigidgrad.errors import UnknownNameError
from rigidgrad.play.remote import Remote
from rigidgrad.play.scenes import scene

with_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{process}/stat")  # ended, and nobody has asked how
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def session():
    made = Remote("cartpole", None, None, scene("cartpole"))
    yield made
    made.stop()


def test_wishes_reach_the_other_process_and_what_happened_comes_back(session):
    assert session.process != os.getpid() and session.now.t == 0
    session.start()
    eventually(lambda: session.now.t > 0.2, "time passes")
    session.aim((0.4, 0.0, 0.0))
    eventually(lambda: np.allclose(session.now.target, (0.4, 0, 0)), "the target is there")
    session.change(horizon=1.0, noise=1e-4)
    eventually(lambda: (session.settings.horizon, session.settings.noise) == (1.0, 1e-4), "set")
    session.figure_eight(True)
    eventually(lambda: session.swaying, "the target moves")
    eventually(lambda: len(session.samples) > 3, "there are points for the plots")
    assert session.surroundings.obstacles == () and session.surroundings.targets == ()


def test_what_a_session_does_not_have_is_an_error_here(session):
    with pytest.raises(AttributeError):
        session.jump()


def test_it_moves_only_while_somebody_watches(session):
    watched = [False]
    session.start(lambda: watched[0])
    eventually(lambda: len(session.samples) == 0 and session.now.t == 0, "it waits")
    watched[0] = True
    eventually(lambda: session.now.t > 0.1, "it goes on")


def test_the_other_process_ends_with_the_page(session):
    other = session.process
    session.stop()
    assert gone(other)


def test_a_process_that_dies_is_told_and_the_last_picture_stays(session):
    session.start()
    eventually(lambda: session.now.t > 0.1, "time passes")
    os.kill(session.process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    eventually(lambda: "has ended" in session.now.trouble, "the page can say so")
    assert np.all(np.isfinite(session.now.x))
    session.aim((0.1, 0, 0))  # nobody is there; nothing fails


def test_errors_of_the_other_process_are_errors_here():
    with pytest.raises(UnknownNameError, match="no frame is called 'nose'"):
        Remote("iiwa14", "nose", None, scene("iiwa14"))


def test_a_page_whose_process_is_killed_leaves_none_behind():
    code = (
        "import time; from rigidgrad.play.remote import Remote; from rigidgrad.play.scenes import"
        " scene; r = Remote('cartpole', None, None, scene('cartpole')); print(r.process,"
        " flush=True); time.sleep(600)"
    )
    page = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    other = int(page.stdout.readline())
    assert not gone(other)
    page.kill()
    page.wait()
    eventually(lambda: gone(other), "it ends, too")


@with_page
def test_robots_can_be_given_as_such():
    from rigidgrad.play.page import play

    robot = rg.load("double_pendulum")
    with play(robot, port=0, block=False, announce=False, own_process=True) as page:
        assert isinstance(page.session, Remote)
        with connected(page.stage):
            eventually(lambda: page.session.now.t > 0.1, "time passes")
    eventually(lambda: gone(page.session.process), "it ends")


@with_page
def test_the_page_in_a_browser_says_how_many_times_real_time_it_goes():
    from rigidgrad.play.page import play

    page = play("iiwa14", port=0, block=False, announce=False, own_process=True)
    page.stage.server.scene.configure_environment_map(None)  # graphics by software are slow
    try:
        with launched() as browser:
            window = browser.new_page(viewport={"width": 800, "height": 560})
            window.goto(page.url)
            eventually(lambda: page.stage.watched, "connected", 60)
            # clicks that do not wait for a picture to stand still
            window.get_by_label("Simple light").dispatch_event("click")
            window.get_by_role("button", name="Figure eight").dispatch_event("click")
            eventually(lambda: page.session.swaying, "the button reaches the controller")
            eventually(
                lambda: "times real time" in window.locator("body").inner_text(), "it says so"
            )
            eventually(lambda: page.session.now.t > 1.0, "time passes", 60)
            assert 0 < page.session.now.rate < 1.5
            assert page.plain_light.value
    finally:
        page.stop()
