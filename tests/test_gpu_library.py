"""Generated libraries for CUDA and OpenCL as users of C++ meet them: constants, macros that clash,
several libraries in one program, kernels that were not asked for.
"""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from gpu_shim.runner import CXX, HERE
from test_gpu_cuda import NVCC, FakeDevice, needs_nvcc

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.cli import main
from rigidgrad.codegen import generate
from rigidgrad.runtime.gpu import Engine
from rigidgrad.runtime.job import digest
from rigidgrad.targets.gpu import work

needs_cxx = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")

# names that programs use for themselves, and the kernels, too
CLASHES = (
    "KERNEL TID NTHR BID LOCAL GLOBAL TABLE SYNC FIRST PART BOTH DEVICE ARENA FMA THREADS TEAM MEET"
)


def compiled(folder, text, *options):
    """What a program prints that includes libraries, on the shim in place of a device."""
    source, program = folder / "program.cpp", folder / "program"
    source.write_text(text)
    include = ["-I", HERE / "fake", "-I", folder]
    done = subprocess.run(
        [CXX, "-std=c++17", "-O0", "-w", *include, *options, "-o", program, source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_every_macro_has_the_prefix_and_ends_with_the_file(tmp_path, target):
    robot = rg.load("double_pendulum")
    paths = generate(robot, ["fused_gradient", "energy"], target=target, out=tmp_path)
    texts = {p.name: p.read_text() for p in paths if p.suffix in (".cuh", ".h", ".hpp")}
    defined = {x for t in texts.values() for x in re.findall(r"^ *# *define (\w+)", t, re.M)}
    ended = {x for t in texts.values() for x in re.findall(r"^ *# *undef (\w+)", t, re.M)}
    assert defined - ended <= {"CL_TARGET_OPENCL_VERSION"}  # the user's, if there is one
    assert all(x.startswith("RIGIDGRAD_") for x in defined - {"CL_TARGET_OPENCL_VERSION"})
    for name, text in texts.items():
        if not name.endswith(("_kernels.h", "_sweep.h")):
            assert "SPDX-License-Identifier: MIT" in text[:400], name


@needs_cxx
def test_a_library_chooses_as_the_engine_does(tmp_path):
    robot = rg.load("double_pendulum")
    generate(robot, ["rnea"], target="cuda", out=tmp_path, dtypes="float32")
    function = Engine(FakeDevice()).function(robot.model, "rnea")
    each = work.threads_from(function.kernel("block"), function.kernel("thread"))
    printed = compiled(
        tmp_path,
        f"""#define SHIM_PROCESSORS 3
#include "double_pendulum.cuh"
static_assert(double_pendulum::rnea_sizes::threads_from == {each}, "");
int main() {{
  using rigidgrad::Shape;
  for (int n : {{1, {3 * each - 1}, {3 * each}}})
    std::puts(rigidgrad::choose(n, double_pendulum::rnea_sizes::threads_from) == Shape::block ? "block" : "thread");
}}""",
    ).split()
    assert printed[:3] == ["block", "block", "thread"]


@needs_cxx
def test_constants_say_what_the_robot_is(tmp_path):
    robot = rg.load("hyq", floating_base=True)
    generate(robot, ["rnea"], target="cuda", out=tmp_path, shapes="block", dtypes="float32")
    names = ("lower", "upper", "velocity", "effort")
    shown = "\n".join(
        f'for (double x : hyq::{name}_limits) std::printf("%.17g ", x); std::puts("");'
        for name in names
    )
    printed = compiled(
        tmp_path,
        f"""#include "hyq.cuh"
static_assert(hyq::nq == {robot.nq} && hyq::nv == {robot.nv}, "constants of the compiler");
static_assert(hyq::rnea_sizes::tau == {robot.nv} && hyq::rnea_sizes::block_numbers > 0, "");
static_assert(hyq::joint_q[1] == 7 && hyq::joint_v[1] == 6, "");
int main() {{
  std::puts(hyq::rigidgrad_version);
  std::puts(hyq::model_hash);
  for (auto name : hyq::joint_names) std::printf("%s ", name);
  std::puts("");
  {shown}
}}""",
    ).splitlines()
    assert printed[:2] == [rg.__version__, digest(robot.model)]
    assert printed[2].split() == [j.name for j in robot.model.joints]
    for line, name in zip(printed[3:7], names, strict=True):
        assert np.array_equal([float(x) for x in line.split()], getattr(robot.limits, name))
    other = rg.load("iiwa14")
    assert digest(other.model) != printed[1]


@needs_cxx
def test_two_libraries_in_one_program_whose_macros_clash(tmp_path):
    """Each gives its robot's numbers; macros that the program defines later do no harm."""
    for name in ("double_pendulum", "cartpole"):
        generate(rg.load(name), ["rnea"], target="cuda", out=tmp_path, dtypes="float64")
    q, v, a = (np.array(x) for x in ([0.3, -0.2], [0.5, 0.1], [1.0, -2.0]))
    clashes = "\n".join(f"#undef {x}\n#define {x} @" for x in CLASHES.split())
    call = """{ const double q[] = {0.3, -0.2}, v[] = {0.5, 0.1}, a[] = {1.0, -2.0};
    double tau[2];
    NAME::rnea(w, 1, q, v, a, tau, rigidgrad::Shape::SHAPE);
    std::printf("%.17g %.17g\\n", tau[0], tau[1]); }"""
    calls = "\n".join(
        call.replace("NAME", name).replace("SHAPE", shape)
        for name in ("double_pendulum", "cartpole")
        for shape in ("thread", "block")
    )
    printed = compiled(
        tmp_path,
        f"""#include "double_pendulum.cuh"
#include "double_pendulum.cuh"
#include "cartpole.cuh"
{clashes}
int main() {{ rigidgrad::Workspace w; {calls} }}""",
    ).splitlines()
    for k, name in enumerate(("double_pendulum", "cartpole")):
        expected = rg.load(name).rnea(q, v, a)
        for line in printed[2 * k : 2 * k + 2]:
            assert np.allclose([float(x) for x in line.split()], expected, rtol=1e-12, atol=1e-12)


@needs_nvcc
def test_nvcc_takes_libraries_twice_and_between_clashing_macros(tmp_path):
    """Two files of one program, linked; each includes both libraries."""
    for name in ("double_pendulum", "cartpole"):
        generate(
            rg.load(name), ["rnea"], target="cuda", out=tmp_path, dtypes="float32", shapes="block"
        )
    clashes = "\n".join(f"#define {x} @" for x in CLASHES.split())
    kept = "\n".join(f"#ifndef {x}\n#error {x} is gone\n#endif" for x in CLASHES.split())
    text = f"""#include <cuda_runtime.h>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
#include <algorithm>
#include <cstring>
#include <limits>
{clashes}
#include "double_pendulum.cuh"
#include "cartpole.cuh"
#include "double_pendulum.cuh"
{kept}
#ifdef RIGIDGRAD_TID
#error a macro of the library is left
#endif
"""
    (tmp_path / "one.cu").write_text(text + "void other();\nint main() { other(); }\n")
    (tmp_path / "two.cu").write_text(
        text + "void other() { if (cartpole::nq == 3) { rigidgrad::Workspace w; float x[2];"
        " cartpole::rnea(w, 1, x, x, x, x); } }\n"
    )
    command = [NVCC, "-std=c++17", "-arch=sm_75", "one.cu", "two.cu", "-o", "program"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stderr[:2000]
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 0


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_shapes_choose_kernels(tmp_path, target):
    robot = rg.load("iiwa14")
    sizes, texts = {}, {}
    for shapes in (("thread", "block"), "thread", ["block"]):
        folder = tmp_path / "_".join(shapes)
        paths = generate(
            robot, ["rnea", "fused_gradient"], target=target, out=folder, shapes=shapes
        )
        key = shapes[0] if len(shapes) == 1 else str(shapes)
        sizes[key] = sum(p.stat().st_size for p in paths)
        texts[key] = "".join(p.read_text() for p in paths)
    both = str(("thread", "block"))
    assert max(sizes["thread"], sizes["block"]) < sizes[both]
    for key, text in texts.items():
        assert ("rnea_thread_kernel(" in text) == (key != "block")
        assert ("rnea_block_kernel(" in text) == (key != "thread")
        assert ("gradient_split(" in text) == (key != "thread")
    with pytest.raises(errors.InputError, match=r"energy has no kernel with a block.*add 'thread'"):
        generate(robot, ["energy"], target=target, out=tmp_path / "x", shapes="block")
    with pytest.raises(errors.UnknownNameError, match="warp"):
        generate(robot, ["rnea"], target=target, out=tmp_path / "x", shapes="warp")
    folder = tmp_path / "command"
    command = ["generate", "iiwa14", "rnea", "--target", target, "--shape", "block", "--quiet"]
    assert main([*command, "--out", str(folder)]) == 0
    assert not any("rnea_thread_kernel(" in p.read_text() for p in folder.iterdir())
    with pytest.raises(errors.InputError, match="at least one"):
        generate(robot, ["rnea"], target=target, out=tmp_path / "x", shapes=())
    with pytest.raises(errors.UnknownNameError, match="option of target='c'"):
        generate(robot, ["rnea"], target="c", out=tmp_path / "x", shapes="block")


def test_the_benchmark_compares_with_optimised_code_alone(tmp_path):
    generate(rg.load("iiwa14"), ["rnea", "aba_derivatives"], target="cuda", out=tmp_path)
    cmake = (tmp_path / "CMakeLists.txt").read_text()
    assert "CMAKE_BUILD_TYPE Release" in cmake and "-Xcompiler=-O3,-march=native" in cmake
    assert "one CPU core" in (tmp_path / "benchmark.cu").read_text()
    generate(rg.load("iiwa14"), ["rnea"], target="cuda", out=tmp_path / "b", shapes="block")
    text = (tmp_path / "b/benchmark.cu").read_text()
    assert "one CPU core" not in text and "generate with shapes including them" in text
