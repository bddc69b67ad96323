"""Kernels as C, CUDA and OpenCL: loops stay loops, and the text of a large robot computes what the
robot and Pinocchio do.
"""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gpu_shim.runner import CXX, HERE
from random_trees import random_tree
from test_kernels import chain, everything, relative, run
from test_target_c import CC, GUARD, SAME_BITS, VECTORS, WARNINGS, guarded, middle, needs_compiler

import rigidgrad as rg
from rigidgrad.codegen import generate, write
from rigidgrad.kernels.language import Kernel
from rigidgrad.robot import Robot
from rigidgrad.runtime import code, formulation
from rigidgrad.runtime.formulation import source_of
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import c

NVCC = shutil.which("nvcc")
LARGE = ["crba", "minv", "rnea_derivatives", "aba_derivatives", "torque_regressor"]
INPUTS = {"crba": 1, "minv": 1, "rnea_derivatives": 3, "aba_derivatives": 3, "torque_regressor": 3}


class CLibrary:
    """Generated C of kernels; every array, and the work, stand between guards."""

    def __init__(self, folder: Path, name: str, kernels: dict[str, Kernel], flags=()):
        path = folder / f"{name}.so"
        command = [
            CC,
            "-shared",
            "-fPIC",
            *WARNINGS,
            "-Wshadow",
            "-Wconversion",
            *SAME_BITS,
            *VECTORS,
            *flags,
        ]
        subprocess.run([*command, "-o", path, folder / f"{name}.c", "-lm"], check=True)
        self.dll, self.name, self.kernels = ctypes.CDLL(str(path)), name, kernels
        self.header = (folder / f"{name}.h").read_text()

    def work(self, function, dtype, batch):
        if not batch:
            return int(
                re.search(rf"{self.name.upper()}_{function.upper()}_WORK (\d+)", self.header).group(
                    1
                )
            )
        symbol = getattr(
            self.dll, f"{self.name}_{function}_batch_work{'_f32' if dtype == np.float32 else ''}"
        )
        symbol.restype = ctypes.c_long
        return symbol()

    def call(self, function, inputs, dtype=np.float64, batch=True):
        kernel, n = self.kernels[function], len(inputs[0])
        sizes = [math.prod(s) for s in (*kernel.inputs.values(), *kernel.outputs.values())]
        outputs = [np.full((n, size), 7.0) for size in sizes[len(inputs) :]]
        arrays = [guarded(x.reshape(n, -1).astype(dtype)) for x in (*inputs, *outputs)]
        work = guarded(np.full(self.work(function, dtype, batch), np.nan, dtype))  # needs no values
        work[GUARD:-GUARD] = 3.0
        symbol = getattr(
            self.dll,
            f"{self.name}_{function}{'_batch' if batch else ''}{'_f32' if dtype == np.float32 else ''}",
        )
        symbol.restype = None
        for row in range(1 if batch else n):
            pointers = [middle(x, row * size) for x, size in zip(arrays, sizes, strict=True)]
            symbol(*([ctypes.c_long(n)] if batch else []), *pointers, middle(work))
        for x in (*arrays, work):
            assert np.all(np.isnan(x[:GUARD])) and np.all(np.isnan(x[-GUARD:])), (
                "written outside of the array"
            )
        return [
            x[GUARD:-GUARD].reshape(n, size)
            for x, size in list(zip(arrays, sizes, strict=True))[len(inputs) :]
        ]


def rows(robot, function, n, seed=0):
    q, v, x = robot.random(batch=(n,), seed=seed)
    return [q, v, x][: INPUTS[function]]


def results(robot, function, inputs):
    found = getattr(robot, function)(*inputs)
    return list(found) if isinstance(found, tuple) else [found]


@needs_compiler
@pytest.mark.parametrize(
    ("rows", "columns", "terms"), [(1, 1, 1), (2, 9, 3), (7, 13, 5), (13, 7, 20)]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_c_has_the_bits_of_lanes(tmp_path, rows, columns, terms, dtype):
    """No function of libm is called, so that nothing but the order of roundings matters."""
    k = everything(rows, columns, terms)
    write(tmp_path, c.render({"f": k}, "every"))
    library = CLibrary(tmp_path, "every", {"f": k})
    rng = np.random.default_rng(rows)
    inputs = [rng.normal(size=(11, a.size)).astype(dtype) for a in k.of("input")]
    expected = run(
        k,
        dict(zip(k.inputs, inputs, strict=True)),
        f"everything_{rows}_{columns}_{terms}",
        dtype=np.dtype(dtype).name,
    )
    for batch in (False, True):
        for x, y in zip(library.call("f", inputs, dtype, batch), expected, strict=True):
            assert np.array_equal(x, y.reshape(x.shape))


@pytest.fixture(scope="module")
def of_sixty(tmp_path_factory):
    robot, folder = chain(60), tmp_path_factory.mktemp("chain")
    files = generate(robot, LARGE, out=folder)
    # straight-line code of these functions is some 100 MB
    assert next(f for f in files if f.name == "chain.c").stat().st_size < 700_000
    return robot, folder


@needs_compiler
def test_c_of_a_chain_of_sixty_joints_is_the_robots_and_pinocchios(of_sixty):
    pin = pytest.importorskip("pinocchio")
    robot, folder = of_sixty
    library = CLibrary(folder, "chain", {f: source_of(robot.model, f) for f in LARGE})
    for function in LARGE:
        inputs = rows(robot, function, 5)
        together, alone = (library.call(function, inputs, batch=batch) for batch in (True, False))
        for x, y, z in zip(together, alone, results(robot, function, inputs), strict=True):
            assert np.array_equal(x, y)
            # sines are libm's, not those of lanes: the last bit of a rotation, times the condition
            # of M (5e5) where it is solved with
            assert relative(x.reshape(z.shape), z) < (
                1e-13 if function in ("crba", "rnea_derivatives") else 1e-10
            ), function
    model = pin.buildModelFromXML(robot.to_urdf())
    data = model.createData()
    q, v, a = rows(robot, "rnea_derivatives", 2, seed=1)
    dq, dv, _ = library.call("rnea_derivatives", [q, v, a])
    adq, adv, minv = library.call("aba_derivatives", [q, v, a])
    for i in range(2):
        pin.computeRNEADerivatives(model, data, q[i], v[i], a[i])
        assert relative(dq[i].reshape(60, 60), data.dtau_dq) < 1e-12
        assert relative(dv[i].reshape(60, 60), data.dtau_dv) < 1e-12
        pin.computeABADerivatives(model, data, q[i], v[i], a[i])
        assert relative(adq[i].reshape(60, 60), data.ddq_dq) < 1e-9
        assert relative(adv[i].reshape(60, 60), data.ddq_dv) < 1e-9
        full = np.triu(data.Minv) + np.triu(data.Minv, 1).T
        assert relative(minv[i].reshape(60, 60), full) < 1e-9


@pytest.fixture
def loops(monkeypatch):
    """Robots of any size take the way of large ones."""
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    monkeypatch.setattr(code, "_codes", Shared())
    monkeypatch.setattr(formulation, "_LOOPS_FROM", 0)


@needs_compiler
@pytest.mark.parametrize("flags", [(), ("-DTREE_VECTOR_BYTES=0",)])
def test_c_of_a_tree_with_all_joint_types_is_pinocchios(tmp_path, loops, flags):
    pytest.importorskip("pinocchio")
    tree = random_tree(5, 60, True, False)
    assert len({j.type for j in tree.joints}) >= 7
    robot = Robot(tree.robot().model)
    generate(robot, LARGE, out=tmp_path, dtypes=["float64"])
    library = CLibrary(tmp_path, "tree", {f: source_of(robot.model, f) for f in LARGE}, flags)
    oracle, rng = tree.oracle(), np.random.default_rng(0)
    q, v, x = tree.random_state(rng, (5,))
    for function in LARGE:
        inputs = [q, v, x][: INPUTS[function]]
        together, alone = (library.call(function, inputs, batch=batch) for batch in (True, False))
        assert all(np.array_equal(y, z) for y, z in zip(together, alone, strict=True))
        for row in range(2):
            expected = getattr(oracle, function)(*(y[row] for y in inputs))
            for y, z in zip(
                together, expected if isinstance(expected, tuple) else (expected,), strict=False
            ):
                assert relative(y[row].reshape(z.shape), z) < (
                    1e-12 if function in ("crba", "rnea_derivatives") else 1e-8
                ), function


@needs_compiler
def test_nan_of_one_row_stays_there(of_sixty):
    robot, folder = of_sixty
    library = CLibrary(folder, "chain", {f: source_of(robot.model, f) for f in LARGE})
    q, v, x = rows(robot, "aba_derivatives", 9)
    clean = library.call("aba_derivatives", [q, v, x])
    q[2] = np.nan
    spoiled = library.call("aba_derivatives", [q, v, x])
    others = np.arange(9) != 2
    for y, z in zip(clean, spoiled, strict=True):
        assert np.array_equal(y[others], z[others])
    assert np.isnan(spoiled[0][2]).any()


@needs_compiler
@pytest.mark.parametrize("width", [0, 32])
def test_sanitizers_find_nothing_in_c_of_a_chain(of_sixty, tmp_path, width):
    _, folder = of_sixty
    example = tmp_path / "example"
    flags = [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-ffp-contract=off",
        "-O1",
        *VECTORS,
        f"-DCHAIN_VECTOR_BYTES={width}",
    ]
    built = subprocess.run(
        [CC, *flags, "-o", example, folder / "main.c", folder / "chain.c", "-lm"],
        capture_output=True,
        text=True,
    )
    if built.returncode and "cannot find" in built.stderr:
        pytest.skip(f"no sanitizers: {built.stderr[-200:]}")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([example], capture_output=True, text=True)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout, ran.stdout + ran.stderr


def tiled_robot(monkeypatch):
    monkeypatch.setattr(formulation, "_TILED_FROM", 0)
    return rg.load("hyq", floating_base=True)


@needs_compiler
def test_a_long_program_and_products_as_c(tmp_path, loops, monkeypatch):
    """The gradient of a robot whose products alone are loops: its Program is cut into parts."""
    monkeypatch.setattr(formulation, "_LOOPS_FROM", 10**9)
    robot = tiled_robot(monkeypatch)
    kernel = source_of(robot.model, "aba_derivatives")
    assert isinstance(kernel, Kernel)
    generate(robot, ["aba_derivatives"], out=tmp_path)
    library = CLibrary(tmp_path, "hyq", {"aba_derivatives": kernel})
    inputs = rows(robot, "aba_derivatives", 7)
    for x, y in zip(
        library.call("aba_derivatives", inputs),
        results(robot, "aba_derivatives", inputs),
        strict=True,
    ):
        assert relative(x.reshape(y.shape), y) < 1e-12


# --- devices --------------------------------------------------------------------------------------


def on_device(robot, functions, folder, target):
    """Runs the example of a generated library, which compares with the interpreter, 37 states by
    one thread each.
    """
    generate(robot, functions, target=target, out=folder, dtypes=["float64"])
    example = folder / "example"
    if target == "opencl":
        subprocess.run(
            [
                "c++",
                "-std=c++17",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-o",
                example,
                folder / "main.cpp",
                "-lOpenCL",
            ],
            check=True,
        )
        command = [example, next(folder.glob("*.cl"))]
    else:
        subprocess.run(
            [
                CXX,
                "-std=c++17",
                "-O0",
                "-w",
                "-x",
                "c++",
                "-I",
                HERE / "fake",
                "-o",
                example,
                folder / "main.cu",
            ],
            check=True,
        )
        command = [example]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode == 77:
        pytest.skip(ran.stdout)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout, ran.stdout + ran.stderr
    return ran.stdout


TARGETS = [
    pytest.param(
        "opencl",
        marks=pytest.mark.skipif(
            not shutil.which("c++") or not Path("/usr/include/CL/cl.h").exists(), reason="no OpenCL"
        ),
    ),
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim"),
    ),
]


@pytest.mark.parametrize("target", TARGETS)
def test_devices_compute_a_chain(tmp_path, target):
    out = on_device(chain(60), LARGE, tmp_path, target)
    assert out.count("a thread a state") == 9
    if target == "cuda":
        assert (
            "left over: 0 allocations, 0 streams" in out
            and "races 0, unwritten 0, outside 0, divergent 0" in out
        )


@pytest.mark.parametrize("target", TARGETS)
def test_devices_compute_every_joint_type(tmp_path, loops, target):
    tree = random_tree(5, 60, True, False)
    on_device(Robot(tree.robot().model), ["rnea_derivatives", "crba"], tmp_path, target)


@pytest.mark.parametrize("target", TARGETS)
def test_devices_compute_a_long_program_and_products(tmp_path, loops, monkeypatch, target):
    monkeypatch.setattr(formulation, "_LOOPS_FROM", 10**9)
    assert "a thread a state" in on_device(
        tiled_robot(monkeypatch), ["aba_derivatives"], tmp_path, target
    )


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_nvcc_takes_loops_without_warnings(tmp_path):
    generate(chain(60), LARGE, target="cuda", out=tmp_path)
    command = [
        NVCC,
        "-cubin",
        "-arch",
        "sm_80",
        "-std=c++17",
        "-o",
        tmp_path / "x.cubin",
        tmp_path / "main.cu",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]


@needs_compiler
def test_c_of_second_derivatives_by_a_loop(tmp_path, monkeypatch):
    robot = rg.load("double_pendulum")
    q, v, a = robot.random(batch=(5,), seed=0)
    expected = robot.rnea_second_derivatives(q, v, a)
    monkeypatch.setattr(formulation, "_TENSOR_LOOPS_FROM", 1)
    name = "rnea_second_derivatives"
    generate(robot, [name], out=tmp_path)
    library = CLibrary(tmp_path, "double_pendulum", {name: source_of(robot.model, name)})
    for batch in (False, True):
        for x, y in zip(library.call(name, [q, v, a], batch=batch), expected, strict=True):
            assert relative(x.reshape(y.shape), y) < 1e-13


@pytest.mark.parametrize("loops_from", [1, 10**9])
@pytest.mark.parametrize("target", TARGETS)
def test_devices_compute_second_derivatives(tmp_path, monkeypatch, target, loops_from):
    monkeypatch.setattr(formulation, "_TENSOR_LOOPS_FROM", loops_from)
    on_device(
        rg.load("double_pendulum"), ["rnea_second_derivatives", "rnea_hessian"], tmp_path, target
    )
