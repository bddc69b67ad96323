"""robot.to("opencl"): the same functions and shapes as on the CPU, run by PoCL or a GPU where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.algorithms import catalog
from rigidgrad.codegen import generate

cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
try:
    DEVICES = [d for p in cl.get_platforms() for d in p.get_devices()]
except cl.Error:
    DEVICES = []
pytestmark = pytest.mark.skipif(not DEVICES, reason="no OpenCL device: apt-get install pocl-opencl-icd")

FRAMED = tuple(name for name, function in catalog.FUNCTIONS.items() if function.frame)


def states(robot, count):
    q, v, _ = robot.random(batch=count, seed=2)
    rng = np.random.default_rng(5)
    a, tau, dv = (rng.uniform(-1, 1, (count, robot.nv)) for _ in range(3))
    return {"q": q, "v": v, "a": a, "w": tau, "tau": tau, "dv": dv, "minv": robot.minv(q), "q0": q, "q1": robot.integrate(q, dv)}


def both(robot, device, name, inputs):
    if name == "frame_placement":
        return [(r.forward_kinematics(*inputs)[robot.frames[-1]],) for r in (robot, device)]
    options = {"frame": robot.frames[-1]} if catalog.FUNCTIONS[name].frame else {}
    results = [getattr(r, name)(*inputs, **options) for r in (robot, device)]
    return [r if isinstance(r, tuple) else (r,) for r in results]


def check(robot, device, name, count, tolerance=1e-10):
    values = states(robot, count)
    cpu, gpu = both(robot, device, name, [values[k] for k in catalog.FUNCTIONS[name].inputs])
    assert type(cpu) is type(gpu)
    for x, y in zip(gpu, cpu, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        assert np.max(abs(x - y)) <= tolerance * max(np.max(abs(y)), 1e-300), name


BLOCKS = (
    "rnea",
    "crba",
    "minv",
    "aba",
    "rnea_derivatives",
    "aba_derivatives",
    "fused_gradient",
    "frame_placement",
    "frame_velocity",
    "jacobian",
    "jacobian_derivative",
)
PARTS = ("aba_state_derivatives", "aba_derivatives_factored")  # options of a function, not functions


def test_parts_of_a_gradient():
    robot = rg.load("iiwa14")
    device = robot.to("opencl")
    q, v, tau = robot.random(batch=(37,), seed=0)
    d, f = robot.aba_derivatives(q, v, tau), device.aba_derivatives(q, v, tau, factored=True)
    two = device.aba_derivatives(q, v, tau, dtau=False)
    assert two.dtau is None
    for x, y in ((two.dq, d.dq), (two.dv, d.dv), (f.W @ f.Z_dq, d.dq), (f.W @ f.Z_dv, d.dv)):
        assert np.max(abs(x - y)) <= 1e-10 * np.max(abs(y))


@pytest.mark.parametrize("shape", ["thread", "block"])
def test_every_function_of_an_arm(shape):
    robot = rg.load("iiwa14", engine="numpy")
    device = robot.to("opencl", shape=shape)
    for name in catalog.FUNCTIONS:
        if name in PARTS or catalog.FUNCTIONS[name].contacts or (shape == "block" and name not in BLOCKS):
            continue
        check(robot, device, name, 37)


@pytest.mark.parametrize("name", ["rnea", "minv", "aba"])
@pytest.mark.parametrize("which", ["hyq", "atlas", "hyq floating", "atlas floating"])
def test_other_robots(which, name):
    base, _, floating = which.partition(" ")
    robot = rg.load(base, floating_base=bool(floating), engine="numpy")
    for shape in ("thread", "block"):
        check(robot, robot.to("opencl", shape=shape), name, 3)


@pytest.mark.parametrize("which", ["hyq floating", "atlas"])
def test_gradients_of_other_robots_in_blocks(which):
    base, _, floating = which.partition(" ")
    robot = rg.load(base, floating_base=bool(floating), engine="numpy")
    check(robot, robot.to("opencl", shape="block"), "aba_derivatives", 3)


def test_batches_of_any_shape_and_float32():
    robot = rg.load("iiwa14", engine="numpy")
    device = robot.to("opencl", shape="thread")
    values = states(robot, 300)
    for batch in ((), (1,), (31,), (32,), (33,), (3, 100), (0, 4)):
        q, v, a = (values[k][: max(int(np.prod(batch)), 0)].reshape(*batch, 7) if batch else values[k][0] for k in ("q", "v", "a"))
        x, y = device.rnea(q, v, a), robot.rnea(q, v, a)
        assert x.shape == y.shape
        assert np.max(abs(x - y), initial=0.0) <= 1e-10 * np.max(abs(y), initial=1.0)
    small = [values[k].astype(np.float32) for k in ("q", "v", "a")]
    assert device.rnea(*small).dtype == np.float32
    out = np.empty((300, 7))
    assert device.rnea(values["q"], values["v"], values["a"], out=out) is out
    assert np.max(abs(out - robot.rnea(values["q"], values["v"], values["a"]))) <= 1e-9
    one = device.rnea(values["q"], values["v"][0], values["a"])  # broadcast
    assert np.max(abs(one - robot.rnea(values["q"], values["v"][0], values["a"]))) <= 1e-9


def test_packed_results_wrenches_and_patterns():
    robot = rg.load("hyq", engine="numpy")
    device = robot.to("opencl")
    values = states(robot, 5)
    q, v, a = values["q"], values["v"], values["a"]
    packed, reference = device.rnea_derivatives(q, v, a, packed=True), robot.rnea_derivatives(q, v, a)
    for x, y, places in zip(packed, reference, device.pattern("rnea_derivatives"), strict=True):
        assert np.max(abs(x - y[:, *places])) <= 1e-10 * np.max(abs(y))
    link, wrench = robot.frames[-1], np.ones((5, 6))
    x, y = (r.rnea(q, v, a, external={link: wrench}) for r in (device, robot))
    assert np.max(abs(x - y)) <= 1e-10 * np.max(abs(y))


def test_wrong_input_is_said_as_on_the_cpu():
    robot = rg.load("iiwa14", engine="numpy")
    device = robot.to("opencl")
    with pytest.raises(errors.InputError, match="shape"):
        device.rnea(np.zeros(6), np.zeros(7), np.zeros(7))
    with pytest.raises(errors.InputError, match="NaN"):
        device.rnea(np.full(7, np.nan), np.zeros(7), np.zeros(7), check=True)
    with pytest.raises(errors.UnknownNameError):
        device.jacobian(np.zeros(7), "nowhere")
    with pytest.raises(errors.InputError, match="there is no OpenCL device"):
        robot.to("opencl", device="no such device")
    assert "iiwa14" in repr(device) and robot.to("cpu").rnea(np.zeros(7), np.zeros(7), np.zeros(7)).shape == (7,)


@pytest.mark.skipif(not shutil.which("c++") or not Path("/usr/include/CL/cl.h").exists(), reason="no C++ compiler or OpenCL headers")
def test_the_generated_library_finds_what_python_found(tmp_path):
    generate(rg.load("double_pendulum"), ["rnea", "fused_gradient", "energy"], target="opencl", out=tmp_path)
    example = tmp_path / "example"
    subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", example, tmp_path / "main.cpp", "-lOpenCL"], check=True)
    ran = subprocess.run([example, tmp_path / "double_pendulum.cl"], capture_output=True, text=True)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout and ran.stdout.count("error") == 8, ran.stdout + ran.stderr
