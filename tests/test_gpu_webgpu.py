"""robot.to("webgpu") and target="wgsl": shaders compute what the CPU does, through wgpu on any
adapter (software will do) and in headless Chromium.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import browser
import numpy as np
import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.gpu import wgsl

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
import webgpu

# All functions of all robots are `python bench/webgpu.py`'s, which takes hours on software; its
# results are checked below. These compile within seconds.
QUICK = ("bias", "gravity_torque", "crba", "center_of_mass", "energy", "integrate", "difference")
CASES = [
    *(("iiwa14", name) for name in ("rnea", "aba", "minv", "rnea_derivatives", *QUICK)),
    *(
        (name, function)
        for name in ("hyq", "hyq-floating", "iiwa14-floating")
        for function in ("rnea", "jacobian", "integrate")
    ),
    ("atlas", "center_of_mass"),
    ("atlas-floating", "integrate"),
]


@pytest.fixture(scope="module")
def on_device():
    pytest.importorskip("wgpu", reason="needs wgpu (pip install)")

    def moved(robot):
        try:
            return robot.to("webgpu")
        except errors.InputError as missing:
            pytest.skip(str(missing))

    return moved


def given(robot, count):
    """States for rnea and aba."""
    q, v, _ = robot.random(batch=(count,), seed=3)
    a = np.random.default_rng(4).uniform(-3, 3, v.shape)
    return [x.astype(np.float32) for x in (q, v, a)]


@pytest.fixture(scope="module")
def runner(on_device):
    on_device(rg.load("pendulum"))  # skips where there is no adapter
    return webgpu.Wgpu()


@pytest.mark.parametrize(("robot", "name"), CASES)
def test_shaders_are_as_near_as_single_precision_on_the_cpu(runner, robot, name):
    """Within four times the CPU's own error in float32."""
    one = webgpu.case(webgpu.load(robot), name)
    found, _ = runner.run(one)
    assert all(x.dtype == np.float32 for x in found)
    assert webgpu.judged(one, found)["ratio"] <= webgpu.FACTOR


def test_results_that_are_wrong_are_judged_so():
    one = webgpu.case(webgpu.load("double_pendulum"), "rnea", states=5)
    (right,) = one.on_cpu("float32")
    assert webgpu.judged(one, [right])["ratio"] <= 1
    for bad in (right * (1 + 3e-6), np.where(right == right[2], np.nan, right), right[::-1]):
        assert not webgpu.judged(one, [bad.astype(np.float32)])["ratio"] <= webgpu.FACTOR


RESULTS = Path(__file__).resolve().parents[1] / "bench/results/webgpu.json"


def test_all_that_was_measured_is_within_four_times_the_cpu():
    """bench/results/webgpu.json: what ran is near enough, on both adapters, for every robot."""
    rows = json.loads(RESULTS.read_text())["rows"]
    ran = [row for row in rows if "ratio" in row]
    assert all(row["ratio"] <= webgpu.FACTOR for row in ran)
    for through in ("wgpu", "Chromium"):
        own = {(r["robot"], r["function"]) for r in ran if r["through"].startswith(through)}
        assert {robot for robot, _ in own} == set(webgpu.ROBOTS), through
        assert {(robot, "rnea") for robot in webgpu.ROBOTS} <= own


def test_every_joint_type_and_mimic_joints(on_device):
    for seed in (1, 2):
        robot = random_tree(seed, 6, bool(seed % 2), mimic=True).robot()
        inputs = given(robot, 5)
        exact = robot.rnea(*[x.astype(float) for x in inputs])
        found = on_device(robot).rnea(*inputs)
        assert np.abs(found - exact).max() <= 1e-5 * np.abs(exact).max()


def test_a_long_program_is_several_passes_with_the_same_numbers(on_device, monkeypatch):
    robot = rg.load("double_pendulum")
    inputs = given(robot, 9)
    whole = on_device(robot).aba(*inputs)
    monkeypatch.setattr(wgsl, "STATEMENTS", 10)
    device = on_device(robot)
    assert np.allclose(device.aba(*inputs), whole, rtol=1e-6, atol=1e-5)
    assert len(wgsl.Shader(program_of(robot.model, "aba")).passes) > 1


def test_an_empty_batch_and_one_state(on_device):
    robot = on_device(rg.load("double_pendulum"))
    assert robot.rnea(*(np.zeros((0, 2), np.float32) for _ in range(3))).shape == (0, 2)
    assert robot.rnea(*(np.zeros(2, np.float32) for _ in range(3))).shape == (2,)


def test_sines_and_arctangents_are_right_to_some_roundings(on_device):
    """WGSL allows its own to be off by 2^-11, and 4096 units."""
    on_device(rg.load("double_pendulum"))  # skips where there is no adapter
    from rigidgrad import math
    from rigidgrad.runtime.gpu_webgpu import WebGpuDevice, WebGpuKernel

    def functions(values):
        a, b = values["a"]
        return ((math.sin(a), math.cos(a), math.atan2(a, b), math.atan2(b, a)),)

    program = record({"a": (2,)}, {"y": (4,)}, functions)
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (4000, 2)) * 10.0 ** rng.uniform(-4, 3, (4000, 1))
    a = a.astype(np.float32)
    y = np.empty((4000, 4), np.float32)
    WebGpuKernel(WebGpuDevice(), wgsl.Shader(program)).run([a], [y], 4000)
    x = a.astype(float)
    exact = (np.sin(x[:, 0]), np.cos(x[:, 0]), np.arctan2(x[:, 0], x[:, 1]))
    for found, right in zip(y.T, (*exact, np.arctan2(x[:, 1], x[:, 0])), strict=True):
        assert np.abs(found - right).max() < 4e-7 * max(1.0, np.abs(right).max())


def test_what_webgpu_cannot_do_is_said(on_device):
    robot = rg.load("double_pendulum")
    with pytest.raises(errors.InputError, match="no double precision: pass float32"):
        on_device(robot).rnea(np.zeros(2), np.zeros(2), np.zeros(2))
    with pytest.raises(errors.InputError, match="one thread per state"):
        robot.to("webgpu", shape="block")
    with pytest.raises(errors.InputError, match="no WebGPU device 'abacus'; there are"):
        robot.to("webgpu", device="abacus")
    with pytest.raises(errors.InputError, match="float32"):
        rg.generate(robot, ["rnea"], target="wgsl", out="nowhere", dtypes=["float64"])


def test_the_generated_page_agrees_with_python_in_a_browser(tmp_path):
    if missing := browser.missing():
        pytest.skip(missing)
    robot = rg.load("iiwa14")
    asked = ["rnea", "aba", "crba", ("jacobian", {"frame": "iiwa_link_7"})]
    rg.generate(robot, asked, target="wgsl", out=tmp_path)
    with browser.launched(*browser.WEBGPU) as chromium:
        page = chromium.new_page()
        page.goto(f"file://{tmp_path}/index.html#check")
        page.wait_for_function("document.getElementById('state').textContent", timeout=120_000)
        assert page.inner_text("#state") == "all functions agree with Python"
        shown = page.locator("tbody tr").all_inner_texts()
        assert len(shown) == 4 and all("WRONG" not in line for line in shown)


def test_numbers_are_literals_of_wgsl():
    for x, text in ((1.0, "1.0f"), (-0.5, "(-0.5f)"), (1e-30, "1e-30f"), (3e38, "3e+38f")):
        assert wgsl._number(x) == text
    assert "infinity" in wgsl._number(float("inf"))


def test_names_of_robots_do_not_reach_the_code(tmp_path):
    robot = rg.Builder("</script><b>")
    robot = robot.link("base").link("a", 1.0, (0, 0, 0.1), np.eye(3) * 0.01)
    robot = robot.joint("j", "revolute", "base", "a").build()
    for path in rg.generate(robot, ["rnea"], target="wgsl", out=tmp_path):
        assert "</script><b>" not in path.read_text()
        assert re.fullmatch(r"[\w.]+", path.name)
