"""robot.to("opencl"): the same functions and shapes as on the CPU, run by PoCL or a GPU where one
is installed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_kernels import chain

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.algorithms import catalog
from rigidgrad.codegen import generate
from rigidgrad.kernels.language import Kernel
from rigidgrad.runtime import formulation
from rigidgrad.runtime.formulation import source_of
from rigidgrad.targets.gpu import kernel as gpu_kernel

cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
try:
    DEVICES = [d for p in cl.get_platforms() for d in p.get_devices()]
except cl.Error:
    DEVICES = []
pytestmark = pytest.mark.skipif(
    not DEVICES, reason="no OpenCL device: apt-get install pocl-opencl-icd"
)

FRAMED = tuple(name for name, function in catalog.FUNCTIONS.items() if function.frame)


def states(robot, count):
    q, v, _ = robot.random(batch=count, seed=2)
    rng = np.random.default_rng(5)
    a, tau, dv = (rng.uniform(-1, 1, (count, robot.nv)) for _ in range(3))
    return {
        "q": q,
        "v": v,
        "a": a,
        "w": tau,
        "tau": tau,
        "dv": dv,
        "minv": robot.minv(q),
        "q0": q,
        "q1": robot.integrate(q, dv),
    }


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
# options of a function, not functions
PARTS = ("aba_state_derivatives", "aba_derivatives_factored")


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
        if (
            name in PARTS
            or catalog.FUNCTIONS[name].contacts
            or (shape == "block" and name not in BLOCKS)
        ):
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
        q, v, a = (
            values[k][: max(int(np.prod(batch)), 0)].reshape(*batch, 7) if batch else values[k][0]
            for k in ("q", "v", "a")
        )
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
    packed, reference = (
        device.rnea_derivatives(q, v, a, packed=True),
        robot.rnea_derivatives(q, v, a),
    )
    for x, y, places in zip(packed, reference, device.pattern("rnea_derivatives"), strict=True):
        assert np.max(abs(x - y[:, *places])) <= 1e-10 * np.max(abs(y))
    link, wrench = robot.frames[-1], np.ones((5, 6))
    x, y = (r.rnea(q, v, a, external={link: wrench}) for r in (device, robot))
    assert np.max(abs(x - y)) <= 1e-10 * np.max(abs(y))


LARGE = ("crba", "minv", "rnea_derivatives", "aba_derivatives")


def close(found, expected, tolerance):
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True)
    for x, y in pairs:
        assert x.shape == y.shape and x.dtype == y.dtype
        assert np.max(abs(x - y)) <= tolerance * np.max(abs(y))


def test_a_chain_of_sixty_joints_is_loops_as_on_the_cpu(monkeypatch):
    """Dense and packed, in batches of which a part fits the memory that loops compute in."""
    robot = chain(60)
    device = robot.to("opencl", shape="thread")
    q, v, x = robot.random(batch=(70,), seed=0)
    # of M's inverse, whose condition is 5e5, the last digits depend on the sines
    for name in LARGE:
        inputs = (q, v, x)[: len(catalog.FUNCTIONS[name].inputs)]
        assert isinstance(source_of(robot.model, name), Kernel)
        tolerance = 1e-10 if name in ("minv", "aba_derivatives") else 1e-14
        close(getattr(device, name)(*inputs), getattr(robot, name)(*inputs), tolerance)
    monkeypatch.setattr(gpu_kernel, "MOST_WORK", 1)  # so that one block of 32 threads does it all
    packed = (r.rnea_derivatives(q, v, x, packed=True) for r in (device, robot))
    close(*packed, 1e-14)
    single = device.crba(q[:3].astype(np.float32))
    assert single.dtype == np.float32
    close(single, robot.crba(q[:3]).astype(np.float32), 1e-5)


def test_large_tensors_are_loops_as_on_the_cpu(monkeypatch):
    robot = rg.load("double_pendulum")
    state = robot.random(batch=(3,), seed=1)
    monkeypatch.setattr(formulation, "_TENSOR_LOOPS_FROM", 1)
    assert isinstance(source_of(robot.model, "rnea_second_derivatives"), Kernel)
    device = robot.to("opencl", shape="thread")
    expected = rg.load("double_pendulum", engine="numpy").rnea_second_derivatives(*state)
    close(device.rnea_second_derivatives(*state), expected, 1e-12)


def test_forces_for_a_motion_are_found_in_rounds():
    robot = rg.load("iiwa14")
    held = rg.Contact("iiwa_link_7", friction=0.5, normal=(0, 1, 1))
    q, v, a = robot.random(batch=(5,), seed=2)
    found, expected = (
        r.contact_inverse_dynamics(q, v, a, held, actuation=robot.joints[1:])
        for r in (robot.to("opencl"), robot)
    )
    close(tuple(found), tuple(expected), 1e-9)
    assert found.converged.all()


def test_a_call_is_one_copy_each_way_and_allocates_once(monkeypatch):
    robot = rg.load("double_pendulum", engine="numpy")
    device, counts = robot.to("opencl", shape="thread"), {"copies": [], "buffers": 0}
    copy, buffer = cl.enqueue_copy, cl.Buffer

    def counted(queue, to, start, **options):
        counts["copies"].append((to if isinstance(to, np.ndarray) else start).nbytes)
        return copy(queue, to, start, **options)

    def made(*arguments):
        counts["buffers"] += 1
        return buffer(*arguments)

    monkeypatch.setattr(cl, "enqueue_copy", counted)
    monkeypatch.setattr(cl, "Buffer", made)
    values = states(robot, 1000)
    many = [values[k] for k in ("q", "v", "a")]
    for count in (1000, 1, 37, 1, 1000):
        counts["copies"].clear()
        given = [x[:count] for x in many]
        assert np.max(abs(device.rnea(*given) - robot.rnea(*given))) <= 1e-10
        inwards, back = counts["copies"]
        apart = DEVICES[0].mem_base_addr_align // 8
        assert inwards <= 3 * (16 * count + apart) and back <= 16 * count + apart
    assert counts["buffers"] == 2


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
    assert "iiwa14" in repr(device) and robot.to("cpu").rnea(
        np.zeros(7), np.zeros(7), np.zeros(7)
    ).shape == (7,)


@pytest.mark.skipif(
    not shutil.which("c++") or not Path("/usr/include/CL/cl.h").exists(),
    reason="no C++ compiler or OpenCL headers",
)
def test_the_generated_library_finds_what_python_found(tmp_path):
    generate(
        rg.load("double_pendulum"),
        ["rnea", "fused_gradient", "energy"],
        target="opencl",
        out=tmp_path,
    )
    example = tmp_path / "example"
    subprocess.run(
        [
            "c++",
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            example,
            tmp_path / "main.cpp",
            "-lOpenCL",
        ],
        check=True,
    )
    ran = subprocess.run([example, tmp_path / "double_pendulum.cl"], capture_output=True, text=True)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout and ran.stdout.count("error") == 14, (
        ran.stdout + ran.stderr
    )
