"""CUDA code as compilers see it: nvcc and NVRTC take it without warnings, registers suffice, and
what is missing is said. There is no device in these tests.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.codegen import generate
from rigidgrad.runtime.formulation import program_of
from rigidgrad.runtime.gpu import Engine
from rigidgrad.targets.gpu import block, block_code, work
from rigidgrad.targets.gpu.kernel import Kernel, prelude
from rigidgrad.targets.gpu.thread import ThreadFunction

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
needs_nvrtc = pytest.mark.skipif(
    not importlib.util.find_spec("cuda"), reason="cuda-core and nvidia-cuda-nvrtc are not installed"
)


def device_found():
    try:
        rg.load("pendulum").to("cuda")
    except errors.InputError:
        return False
    return True


def together(kernels, dtype):
    models = [k.function.model for k in kernels if k.shape == "block"]
    parts = [prelude("cuda", dtype)]
    if models:
        parts += [block_code.common_code(), block_code.robot_code(models[0])]
    return "\n".join([*parts, *(k.text() for k in kernels), ""])


def resources(text):
    """{kernel: (registers, spilled bytes)} from ptxas."""
    found = {}
    for part in text.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        spills = sum(map(int, re.findall(r"(\d+) bytes spill", part.split("Compiling entry")[0])))
        found[name] = int(re.search(r"Used (\d+) registers", part).group(1)), spills
    return found


# registers of block kernels in float32, so that a processor has 32 warps, or 24 where there are
# articulated inertias
REGISTERS = {"rnea": 64, "rnea_derivatives": 64, "minv": 80, "aba_derivatives": 80}


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_nvcc_takes_blocks_without_warnings_or_spills(tmp_path, arch):
    model = rg.load("iiwa14").model
    names = (
        ["rnea", "minv", "rnea_derivatives", "aba_derivatives"]
        if arch == "sm_75"
        else ["rnea_derivatives"]
    )
    source = tmp_path / "blocks.cu"
    source.write_text(
        together([Kernel(n, block.block_function(model, n)) for n in names], "float32")
    )
    command = [
        NVCC,
        "-cubin",
        "-arch",
        arch,
        "-std=c++17",
        "-Xptxas",
        "-v",
        "-Xptxas",
        "-warn-spills",
        "-o",
        tmp_path / "x.cubin",
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]
    found = resources(done.stderr)
    assert len(found) == len(names)
    for name, (registers, spills) in found.items():
        most = REGISTERS[name.removesuffix("_block_kernel")]
        assert registers <= most and spills == 0, (name, registers, spills)


@needs_nvcc
def test_nvcc_takes_threads_without_warnings(tmp_path):
    model = rg.load("iiwa14").model
    source = tmp_path / "threads.cu"
    kernels = [
        Kernel(n, ThreadFunction(n, program_of(model, n)))
        for n in ("rnea", "minv", "energy", "normalize")
    ]
    source.write_text(together(kernels, "float64"))
    done = subprocess.run(
        [
            NVCC,
            "-cubin",
            "-arch",
            "sm_80",
            "-std=c++17",
            "-Xptxas",
            "-v",
            "-o",
            tmp_path / "x.cubin",
            source,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]
    assert all(spills == 0 for _, spills in resources(done.stderr).values())


@needs_nvrtc
@pytest.mark.parametrize(("arch", "shape"), [("sm_86", "block"), ("sm_100", "thread")])
def test_nvrtc_alone_suffices(arch, shape):
    from rigidgrad.runtime.gpu_cuda import compile_cubin

    model = rg.load("hyq", floating_base=True).model
    function = (
        block.block_function(model, "rnea")
        if shape == "block"
        else ThreadFunction("rnea", program_of(model, "rnea"))
    )
    kernel = Kernel("rnea", function)
    for dtype in ("float64", "float32"):
        code = compile_cubin(kernel.source("cuda", dtype), arch).code
        assert bytes(code).startswith(b"\x7fELF") and kernel.entry.encode() in bytes(code)


@needs_nvcc
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_the_generated_library_builds_with_cmake(tmp_path):
    generate(
        rg.load("double_pendulum"),
        ["fused_gradient"],
        target="cuda",
        out=tmp_path,
        dtypes=["float32"],
    )
    built = tmp_path / "built"
    quiet = {"check": True, "capture_output": True, "text": True}
    subprocess.run(["cmake", "-S", tmp_path, "-B", built, f"-DCMAKE_CUDA_COMPILER={NVCC}"], **quiet)
    done = subprocess.run(["cmake", "--build", built], **quiet)
    assert "warning" not in (done.stdout + done.stderr).lower()
    for program in ("example", "benchmark"):
        ran = subprocess.run([built / f"double_pendulum_{program}"], capture_output=True, text=True)
        assert ran.returncode in (0, 77) and (ran.returncode == 0 or "no CUDA device" in ran.stdout)


def test_what_is_generated(tmp_path):
    paths = generate(rg.load("iiwa14"), ["fused_gradient", "energy"], target="cuda", out=tmp_path)
    assert [p.name for p in paths] == [
        "iiwa14.cuh",
        "iiwa14_kernels.h",
        "rigidgrad_cuda.h",
        "main.cu",
        "benchmark.cu",
        "CMakeLists.txt",
    ]
    header = (tmp_path / "iiwa14.cuh").read_text()
    for how in ("split", "fused", "completely_fused"):
        assert (
            f"inline void gradient_{how}(rigidgrad::Workspace &workspace, int n, const float *q"
            in header
        )
    assert (
        "energy_launch(int n, const double *q, const double *v, double *kinetic, double *potential"
        in header
    )
    kernels = (tmp_path / "iiwa14_kernels.h").read_text()
    assert "fused_gradient_block(" in kernels and "energy_block(" not in kernels
    with pytest.raises(errors.UnknownNameError, match="float16"):
        generate(rg.load("iiwa14"), ["rnea"], target="cuda", out=tmp_path / "x", dtypes=["float16"])


def test_without_a_device_the_error_says_what_is_missing():
    if device_found():
        pytest.skip("there is a CUDA device")
    with pytest.raises(errors.InputError, match=r"robot\.to\(\"cuda\"\).*driver"):
        rg.load("iiwa14").to("cuda")
    with pytest.raises(errors.InputError, match="'cuda', 'opencl', 'webgpu'"):
        rg.load("iiwa14").to("tpu")


@needs_nvrtc
def test_cuda_core_offers_what_the_runtime_calls():
    """The runtime cannot run here: at least every name that it uses exists."""
    from cuda import core
    from cuda.bindings import driver, nvrtc
    from cuda.core import graph, utils

    uses = {
        core: [
            "Device",
            "Program",
            "ProgramOptions",
            "ObjectCode",
            "LaunchConfig",
            "launch",
            "LegacyPinnedMemoryResource",
        ],
        core.Device: [
            "set_current",
            "create_stream",
            "allocate",
            "properties",
            "arch",
            "device_id",
            "name",
        ],
        core.Buffer: ["copy_from", "copy_to", "fill", "handle"],
        core.Stream: ["sync", "handle", "from_handle", "create_graph_builder"],
        graph.GraphBuilder: ["begin_building", "end_building", "complete"],
        graph.Graph: ["launch"],
        core.ObjectCode: ["from_cubin", "get_kernel", "code"],
        core.Kernel: ["handle"],
        core.LegacyPinnedMemoryResource: ["allocate"],
        utils.StridedMemoryView: [
            "from_dlpack",
            "from_buffer",
            "ptr",
            "shape",
            "strides",
            "readonly",
            "__dlpack__",
        ],
        driver: [
            "cuKernelSetAttribute",
            "CUfunction_attribute",
            "CUresult",
            "cuMemcpyAsync",
            "cuDriverGetVersion",
        ],
        nvrtc: ["nvrtcVersion"],
    }
    for owner, names in uses.items():
        for name in names:
            assert hasattr(owner, name), (owner, name)
    assert hasattr(driver.CUfunction_attribute, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")


# --- the runtime without a device -----------------------------------------------------------------


class OnDevice:
    """Something that says it lies on a CUDA device."""

    def __init__(self, shape=(3, 7), dtype="float32"):
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __dlpack__(self, **_):
        raise BufferError("there is no device")

    def __dlpack_device__(self):
        return (2, 0)


class FakeDevice:
    """A device in name: remembers what it was asked to run."""

    name = "fake"
    loops = True

    def __init__(self, processors=64):
        self.count = processors

    def holds(self, array):
        return isinstance(array, OnDevice)

    def shared_limit(self):
        return 48 * 1024

    def processors(self):
        return self.count

    def load(self, kernel, dtype):
        return kernel.shape, dtype

    def run_there(self, loaded, inputs, kernel, dtype, out):
        return [loaded]


@pytest.mark.parametrize("processors", [2, 64, 170])
def test_threads_are_chosen_by_counted_work_and_processors(processors):
    engine, model = Engine(FakeDevice(processors)), rg.load("iiwa14", engine="numpy").model
    last = 0
    for name in ("rnea", "rnea_derivatives"):  # a thread has more to do in the latter
        function = engine.function(model, name)
        each = work.threads_from(function.kernel("block"), function.kernel("thread"))
        for count, shape in (
            (1, "block"),
            (each * processors - 1, "block"),
            (each * processors, "thread"),
        ):
            x = OnDevice((count, 7), "float32")
            assert function(x, x, x) == (shape, "float32")
        assert each > last
        last = each


def test_a_state_that_is_less_work_for_a_block_stays_there():
    found = Engine(FakeDevice()).function(rg.load("iiwa14").model, "rnea")
    block, thread = found.kernel("block"), found.kernel("thread")
    program = program_of(rg.load("atlas", floating_base=True).model, "aba_derivatives")
    slow = Kernel("rnea", ThreadFunction("rnea", program))
    assert work.threads_from(block, slow) == work.NEVER > work.threads_from(block, thread)


def test_estimates_of_work_are_near_what_the_interpreter_of_ptx_counted():
    stored = json.loads((Path(__file__).parents[1] / "bench/results/ptx.json").read_text())
    engine, compared = Engine(FakeDevice()), 0
    for row in stored["counts"]:
        if row["robot"] not in ("iiwa14", "hyq", "atlas") or row["dtype"] != "float32":
            continue
        function = engine.function(rg.load(row["robot"]).model, row["function"])
        estimate = work.of_state(function.kernel(row["shape"])) / row["instructions"]
        assert 0.6 < estimate < 1.4, row
        compared += 1
    assert compared == 18


def test_arrays_on_a_device_stay_there_or_are_refused():
    robot = rg.load("iiwa14", engine="numpy")
    with pytest.raises(errors.InputError, match="another device"):
        robot.rnea(OnDevice(), OnDevice(), OnDevice())
    rnea = Engine(FakeDevice()).function(robot.model, "rnea")
    assert rnea(OnDevice(), OnDevice(), OnDevice()) == ("block", "float32")
    many = OnDevice((10, 1000, 7), "float64")
    assert rnea(many, many, many) == ("thread", "float64")
    for bad, message in (
        ((OnDevice(), OnDevice(), np.zeros((3, 7))), "lies on the host"),
        ((OnDevice(), OnDevice(), OnDevice((4, 7))), "same batch axes"),
        ((OnDevice(), OnDevice(), OnDevice((3, 6))), "expected"),
        ((OnDevice(), OnDevice(), OnDevice(dtype="float64")), "one dtype"),
        ((OnDevice(dtype="int32"),) * 3, "float64 or float32"),
    ):
        with pytest.raises(errors.InputError, match=message):
            rnea(*bad)
