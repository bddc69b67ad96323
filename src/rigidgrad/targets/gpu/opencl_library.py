"""OpenCL kernels of a robot's functions as one file, with a C++ header of host functions, an
example and a CMake file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from rigidgrad.errors import unknown_name
from rigidgrad.kernels import language as kernels
from rigidgrad.kernels.interpret import results_of
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program
from rigidgrad.targets.c import MARK
from rigidgrad.targets.gpu import block_code, macros, thread
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.comparison import COMPARISON
from rigidgrad.targets.gpu.cuda_example import PARTITIONINGS
from rigidgrad.targets.gpu.cuda_library import (
    LICENSE,
    SPACE,
    Entry,
    constants,
    entries_of,
    splits_of,
)
from rigidgrad.targets.gpu.facts import Facts
from rigidgrad.targets.gpu.kernel import DTYPES, REAL, SHAPES, Kernel
from rigidgrad.targets.gpu.text import argument_names
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.names import comment, identifier


def render(
    programs: Mapping[str, Program | kernels.Kernel],
    name: str,
    *,
    dtypes: Sequence[str] = DTYPES,
    notes: Mapping[str, str] | None = None,
    samples: Mapping[str, Mapping[str, Any]] | None = None,
    blocks: Mapping[str, BlockFunction | None] | None = None,
    partitionings: Mapping[str, BlockFunction] | None = None,
    sweep: Program | None = None,
    shapes: Sequence[str] = SHAPES,
    facts: Facts | None = None,
) -> dict[str, str]:
    """Files by name; arguments as for the library for CUDA."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
    prefix = identifier(name)
    entries = entries_of(programs, blocks or {}, shapes)
    splits = splits_of(entries, partitionings)
    files = {
        f"{prefix}.cl": _kernels(name, entries, splits),
        f"{prefix}.hpp": _header(prefix, name, entries, dtypes, notes or {}, splits, facts),
        "rigidgrad_opencl.h": (block_code.CODE / "host_opencl.h").read_text(encoding="utf-8"),
    }
    if splits and sweep is not None:
        files[f"{prefix}_sweep.h"] = _sweep(name, sweep)
    if samples:
        files["main.cpp"] = _example(prefix, entries, dtypes, samples, bool(splits))
        files["CMakeLists.txt"] = _CMAKE.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:])
    return files


def _sweep(name: str, program: Program) -> str:
    """The host's part of the split gradient, in C++."""
    text = thread.render_state(
        ThreadFunction("sweep", program),
        "gradient_sweep",
        *argument_names(program.inputs, program.outputs),
    )
    return (
        f"/* {comment(name)}: {MARK}; do not edit. Included by the header, once for each type of"
        f" number. */\n{macros.prefixed(text, _HOST)}\n"
    )


def _kernels(name: str, entries: Mapping[str, Entry], splits: Mapping[str, Kernel]) -> str:
    parts = [
        (
            f"/* {comment(name)}: {MARK}; do not edit. Build with -DREAL64=1 for double, -DREAL64=0"
            " for float. */"
        ),
        "#ifndef REAL64\n#define REAL64 0\n#endif",
        (block_code.CODE / "prelude_opencl.h").read_text(encoding="utf-8"),
    ]
    blocked = [e.block for e in entries.values() if e.block]
    if blocked:
        parts += [block_code.common_code(), block_code.robot_code(blocked[0].function.model)]  # type: ignore[union-attr]
    parts += [kernel.text() for e in entries.values() for kernel in e.kernels]
    parts += [kernel.text() for kernel in splits.values()]
    return "\n\n".join([*parts, ""])


def _header(
    prefix: str,
    name: str,
    entries: Mapping[str, Entry],
    dtypes: Sequence[str],
    notes: Mapping[str, str],
    splits: Mapping[str, Kernel],
    facts: Facts | None,
) -> str:
    functions = [constants(entries, facts)]
    if splits:
        functions.append(_MACROS)
        for dtype in dtypes:
            functions.append(
                f"namespace {SPACE[dtype]} {{\ntypedef {REAL[dtype]} real;\n#include"
                f' "{prefix}_sweep.h"\n}}  // namespace {SPACE[dtype]}'
            )
        functions.append(macros.ended(_HOST))
    for key, e in entries.items():
        ins, outs = e.sizes()
        rows = (
            f"{{{', '.join(f'{{{k}, {s}}}' for k, s in ins)}}},"
            f" {{{', '.join(f'{{{k}, {s}}}' for k, s in outs)}}}"
        )
        functions.append(f"/* {comment(notes[key])} */" if notes.get(key) else "")
        for dtype in dtypes:
            real = REAL[dtype]
            launches = {kernel.shape: _launch(kernel) for kernel in e.kernels}
            few, many = (launches.get(shape) for shape in ("block", "thread"))
            chosen = (
                f"device.choose(shape, n, {e.threads_from}) == rigidgrad::Shape::block ?"
                f" {few} : {many}"
                if few and many
                else f"((void)shape, {few or many})"
            )
            functions.append(
                f"inline void {e.name}(rigidgrad::Device &device, int n, {e.arguments(real)},"
                " rigidgrad::Shape shape = rigidgrad::Shape::automatic) {\n "
                f" rigidgrad::run<{real}>(device, n, {rows}, {chosen});\n}}"
            )
    if splits:
        functions += [_partitioned(splits, dtype) for dtype in dtypes]
    return _TOP.substitute(
        name=prefix,
        title=comment(name),
        mark=MARK,
        license=LICENSE,
        functions="\n".join(filter(None, functions)),
    )


def _launch(kernel: Kernel) -> str:
    return (
        f'rigidgrad::Launch{{"{kernel.entry}", {kernel.threads}, {kernel.states}, {kernel.work}}}'
    )


def _partitioned(splits: Mapping[str, Kernel], dtype: str) -> str:
    """How much of the gradient of forward dynamics runs on the device: all, none of the product
    with M⁻¹, or only the columns of the gradient of inverse dynamics.
    """
    split = splits["gradient_split"]
    n = split.outputs["dq"][0]
    words = {
        "real": REAL[dtype],
        "space": SPACE[dtype],
        "n": n,
        "nn": n * n,
        "nq": math.prod(split.inputs["q"]),
        "wide": math.prod(split.inputs["velocities"]),
        "split": _launch(split),
        "fused": _launch(splits["gradient_fused"]),
    }
    return _PARTITIONINGS.substitute(words)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)


def _example(
    prefix: str,
    entries: Mapping[str, Entry],
    dtypes: Sequence[str],
    samples: Mapping[str, Mapping[str, Any]],
    splits: bool,
) -> str:
    # not every device has doubles; functions of large robots lose too many digits without
    large = any(e.work for e in entries.values()) and "float64" in dtypes
    dtype = "float32" if "float32" in dtypes and not large else "float64"
    real = REAL[dtype]
    calls = []
    for key, e in entries.items():
        lines = ["  {"]
        expected = results_of(e.program, samples[key])
        for k, c in e.ins.items():
            lines.append(
                f"    const std::vector<{real}> {c} ="
                f" repeated({{{_numbers(list(flatten(samples[key][k])))}}});"
            )
        for (k, c), value in zip(e.outs.items(), expected, strict=True):
            lines.append(f"    const std::vector<double> expected_{c} = {{{_numbers(value)}}};")
            lines.append(f"    std::vector<{real}> {c}(ROWS * {math.prod(e.program.outputs[k])});")
        arguments = ", ".join(f"{c}.data()" for c in (*e.ins.values(), *e.outs.values()))
        for kernel in e.kernels:
            lines.append(
                f"    {prefix}::{e.name}(device, ROWS, {arguments},"
                f" rigidgrad::Shape::{kernel.shape});"
            )
            lines += [
                f'    compare("{e.name}, a {kernel.shape} a state: {c}", {c}, expected_{c});'
                for c in e.outs.values()
            ]
        if key == "fused_gradient" and splits:
            for how in PARTITIONINGS:
                lines.append(f"    {prefix}::gradient_{how}(device, ROWS, {arguments});")
                lines += [
                    f'    compare("gradient_{how}: {c}", {c}, expected_{c});'
                    for c in e.outs.values()
                ]
        calls.append("\n".join([*lines, "  }"]))
    tolerance = "1e-3" if dtype == "float32" else "1e-9"
    return _MAIN.substitute(
        name=prefix,
        mark=MARK,
        real=real,
        tolerance=tolerance,
        doubles=int(dtype == "float64"),
        calls="\n".join(calls),
    )


_TOP = Template("""\
/* $title: $mark; do not edit. Functions of n states, rows of numbers one after the other on the host; kernels are in $name.cl.
 * SPDX-License-Identifier: $license
 *
 *   rigidgrad::Device device("$name.cl", doubles);   the first GPU, or else any device; doubles: whether real is double
 *   $name::f(device, n, inputs, outputs, shape);
 * Errors are std::runtime_error.
 */
#pragma once
#include <limits>

#include "rigidgrad_opencl.h"

namespace $name {

$functions

}  // namespace $name
""")

# what the host's part of the split gradient is written in
_HOST = ("BOTH", "BOTH_PART", "FMA", "SINCOS", "SQRT", "ATAN2")
_MACROS = """\
#define RIGIDGRAD_BOTH inline
#define RIGIDGRAD_BOTH_PART inline
#define RIGIDGRAD_FMA(a, b, c) ((a) * (b) + (c))
#define RIGIDGRAD_SINCOS rigidgrad::sincos<real>
#define RIGIDGRAD_SQRT std::sqrt
#define RIGIDGRAD_ATAN2 std::atan2"""

_PARTITIONINGS = Template("""\
/* The gradient of forward dynamics from q, v, a and M^-1, in three partitionings. Completely fused: all of it on the device. */
inline void gradient_completely_fused(rigidgrad::Device &device, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  fused_gradient(device, n, q, v, a, minv, dq, dv, rigidgrad::Shape::block);
}
/* The product with M^-1 on the host. */
inline void gradient_product(int n, const $real *minv, const std::vector<$real> &cq, const std::vector<$real> &cv, $real *dq, $real *dv) {
  for (size_t k = 0; k < (size_t)n; ++k) {
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cq.data() + k * $nn, dq + k * $nn);
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cv.data() + k * $nn, dv + k * $nn);
  }
}
/* Fused: the gradient of inverse dynamics on the device. */
inline void gradient_fused(rigidgrad::Device &device, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  std::vector<$real> cq((size_t)n * $nn), cv((size_t)n * $nn);
  rigidgrad::run<$real>(device, n, {{q, $nq}, {v, $n}, {a, $n}}, {{cq.data(), $nn}, {cv.data(), $nn}}, $fused);
  gradient_product(n, minv, cq, cv, dq, dv);
}
/* Split: velocities, accelerations and forces on the host, only the columns of the gradient on the device. */
inline void gradient_split(rigidgrad::Device &device, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  std::vector<$real> cq((size_t)n * $nn), cv((size_t)n * $nn), sweep[3];
  for (auto &x : sweep) x.resize((size_t)n * $wide);
  for (size_t k = 0; k < (size_t)n; ++k)
    $space::gradient_sweep_state(q + k * $nq, v + k * $n, a + k * $n, sweep[0].data() + k * $wide, sweep[1].data() + k * $wide, sweep[2].data() + k * $wide);
  rigidgrad::run<$real>(device, n,
    {{q, $nq}, {v, $n}, {sweep[0].data(), $wide}, {sweep[1].data(), $wide}, {sweep[2].data(), $wide}}, {{cq.data(), $nn}, {cv.data(), $nn}},
    $split);
  gradient_product(n, minv, cq, cv, dq, dv);
}""")

_MAIN = Template(
    """\
/* An example for $name.hpp, $mark: each function at one state, in both shapes, compared with values computed in Python. */
#include "$name.hpp"

#include <cmath>
#include <cstdio>

"""
    + COMPARISON
    + """
int main(int count, char **arguments) {
  if (!rigidgrad::Device::any()) {
    std::printf("there is no OpenCL device here\\n");
    return 77;
  }
  rigidgrad::Device device(count > 1 ? arguments[1] : "$name.cl", $doubles);
  std::printf("%s\\n", device.name().c_str());
$calls
  return failures != 0;
}
"""
)

_CMAKE = Template("""\
# $Mark
cmake_minimum_required(VERSION 3.10)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "how code is compiled" FORCE)
endif()
project($name CXX)
find_package(OpenCL REQUIRED)

add_library($name INTERFACE)
target_include_directories($name INTERFACE $${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries($name INTERFACE OpenCL::OpenCL)
target_compile_features($name INTERFACE cxx_std_17)

add_executable(${name}_example main.cpp)
target_link_libraries(${name}_example PRIVATE $name)
enable_testing()
add_test(NAME ${name}_example COMMAND ${name}_example $${CMAKE_CURRENT_SOURCE_DIR}/$name.cl)
set_tests_properties(${name}_example PROPERTIES SKIP_RETURN_CODE 77)
""")
