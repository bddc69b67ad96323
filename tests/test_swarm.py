"""`rigidgrad page`: robots on the page move as on the CPU, and are drawn."""

from __future__ import annotations

import browser
import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.swarm import swarm_page


def rolled_out(robot, q, steps, dt, friction):
    v = np.zeros_like(q)
    for _ in range(steps):
        v = v + dt * robot.aba(q, v, -friction * v)
        q = q + dt * v
    return np.concatenate([q, v])


def test_robots_on_the_page_move_as_on_the_cpu(tmp_path):
    if missing := browser.missing():
        pytest.skip(missing)
    robot = rg.load("double_pendulum")
    path = tmp_path / "swarm.html"
    path.write_text(swarm_page(robot, count=64, dt=0.004))
    with browser.launched(*browser.WEBGPU) as chromium:
        page = chromium.new_page(viewport={"width": 700, "height": 500})
        said = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"file://{path}")
        page.wait_for_function("globalThis.swarm?.taken > 0", timeout=120_000)
        page.click("#pause")
        found = page.evaluate(
            """async () => { swarm.start(64, 0.5, 0.1);
                const before = await swarm.states();
                swarm.advance(50);
                return [[...before], [...await swarm.states()]]; }"""
        )
        picture = browser.picture(page)
    before, after = (np.array(x).reshape(2 * robot.nv, 64).T for x in found)
    for x, y in zip(before[:8], after[:8], strict=True):
        expected = rolled_out(robot, x[: robot.nv], 50, 0.004, 0.1)
        assert np.abs(y - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())
    assert np.abs(after - before).max() > 0.1
    drawn = np.abs(picture - np.array([13, 17, 23])).max(axis=-1) > 40
    assert drawn[:, 350:].mean() > 0.002, said  # beside the panel


def test_what_a_page_cannot_show_is_refused():
    with pytest.raises(errors.InputError, match="single axes"):
        swarm_page(rg.load("hyq", floating_base=True))
    for options in ({"count": 0}, {"dt": 0.0}):
        with pytest.raises(errors.InputError, match=next(iter(options))):
            swarm_page(rg.load("pendulum"), **options)
