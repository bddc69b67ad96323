"""OpenCL kernels of a robot's functions as one file, with a C++ header of host functions, an example and a CMake file."""

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
from rigidgrad.targets.gpu import block_code
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.cuda_library import Entry, entries_of
from rigidgrad.targets.gpu.kernel import DTYPES, REAL
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
) -> dict[str, str]:
    """Files by name; the partitionings of the gradient are for CUDA."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
    prefix = identifier(name)
    entries = entries_of(programs, blocks or {})
    files = {
        f"{prefix}.cl": _kernels(name, entries),
        f"{prefix}.hpp": _header(prefix, name, entries, dtypes, notes or {}),
        "rigidgrad_opencl.h": (block_code.CODE / "host_opencl.h").read_text(encoding="utf-8"),
    }
    if samples:
        files["main.cpp"] = _example(prefix, entries, dtypes, samples)
        files["CMakeLists.txt"] = _CMAKE.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:])
    return files


def _kernels(name: str, entries: Mapping[str, Entry]) -> str:
    parts = [
        f"/* {comment(name)}: {MARK}; do not edit. Build with -DREAL64=1 for double, -DREAL64=0 for float. */",
        "#ifndef REAL64\n#define REAL64 0\n#endif",
        (block_code.CODE / "prelude_opencl.h").read_text(encoding="utf-8"),
    ]
    blocked = [e.block for e in entries.values() if e.block]
    if blocked:
        parts += [block_code.common_code(), block_code.robot_code(blocked[0].function.model)]  # type: ignore[union-attr]
    parts += [kernel.text() for e in entries.values() for kernel in e.kernels]
    return "\n\n".join([*parts, ""])


def _header(prefix: str, name: str, entries: Mapping[str, Entry], dtypes: Sequence[str], notes: Mapping[str, str]) -> str:
    functions = []
    for key, e in entries.items():
        ins, outs = e.sizes()
        rows = f"{{{', '.join(f'{{{k}, {s}}}' for k, s in ins)}}}, {{{', '.join(f'{{{k}, {s}}}' for k, s in outs)}}}"
        functions.append(f"/* {comment(notes[key])} */" if notes.get(key) else "")
        for dtype in dtypes:
            real = REAL[dtype]
            many = f'rigidgrad::Launch{{"{e.thread.entry}", {e.thread.threads}, {e.thread.states}, {e.thread.work}}}'
            few = f'rigidgrad::Launch{{"{e.block.entry}", {e.block.threads}, 1}}' if e.block else many
            functions.append(
                f"inline void {e.name}(rigidgrad::Device &device, int n, {e.arguments(real)}, rigidgrad::Shape shape = rigidgrad::Shape::automatic) {{\n"
                f"  rigidgrad::run<{real}>(device, n, {rows}, rigidgrad::choose(shape, n) == rigidgrad::Shape::block ? {few} : {many});\n}}"
            )
    return _TOP.substitute(name=prefix, title=comment(name), mark=MARK, functions="\n".join(filter(None, functions)))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)


def _example(prefix: str, entries: Mapping[str, Entry], dtypes: Sequence[str], samples: Mapping[str, Mapping[str, Any]]) -> str:
    # not every device has doubles; functions of large robots lose too many digits without
    large = any(e.thread.work for e in entries.values()) and "float64" in dtypes
    dtype = "float32" if "float32" in dtypes and not large else "float64"
    real = REAL[dtype]
    calls = []
    for key, e in entries.items():
        lines = ["  {"]
        expected = results_of(e.program, samples[key])
        for k, c in e.ins.items():
            lines.append(f"    const std::vector<{real}> {c} = repeated({{{_numbers(list(flatten(samples[key][k])))}}});")
        for (k, c), value in zip(e.outs.items(), expected, strict=True):
            lines.append(f"    const std::vector<double> expected_{c} = {{{_numbers(value)}}};")
            lines.append(f"    std::vector<{real}> {c}(ROWS * {math.prod(e.program.outputs[k])});")
        arguments = ", ".join(f"{c}.data()" for c in (*e.ins.values(), *e.outs.values()))
        for kernel in e.kernels:
            lines.append(f"    {prefix}::{e.name}(device, ROWS, {arguments}, rigidgrad::Shape::{kernel.shape});")
            lines += [f'    compare("{e.name}, a {kernel.shape} a state: {c}", {c}, expected_{c});' for c in e.outs.values()]
        calls.append("\n".join([*lines, "  }"]))
    tolerance = "1e-3" if dtype == "float32" else "1e-9"
    return _MAIN.substitute(name=prefix, mark=MARK, real=real, tolerance=tolerance, doubles=int(dtype == "float64"), calls="\n".join(calls))


_TOP = Template("""\
/* $title: $mark; do not edit. Functions of n states, rows of numbers one after the other on the host; kernels are in $name.cl.
 *
 *   rigidgrad::Device device("$name.cl", doubles);   the first GPU, or else any device; doubles: whether real is double
 *   $name::f(device, n, inputs, outputs, shape);
 * Errors are std::runtime_error.
 */
#pragma once
#include "rigidgrad_opencl.h"

namespace $name {

$functions

}  // namespace $name
""")

_MAIN = Template("""\
/* An example for $name.hpp, $mark: each function at one state, in both shapes, compared with values computed in Python. */
#include "$name.hpp"

#include <cmath>
#include <cstdio>

static const int ROWS = 37; /* the same state again and again */
inline int failures = 0;

inline std::vector<$real> repeated(const std::vector<double> &row) {
  std::vector<$real> rows;
  for (int k = 0; k < ROWS; ++k) rows.insert(rows.end(), row.begin(), row.end());
  return rows;
}

inline void compare(const char *what, const std::vector<$real> &computed, const std::vector<double> &expected) {
  double largest = 1.0, error = 0.0;
  for (double x : expected) largest = std::fmax(largest, std::fabs(x));
  for (size_t k = 0; k < computed.size(); ++k) {
    const double difference = std::fabs(computed[k] - expected[k % expected.size()]) / largest;
    if (!(difference <= error)) error = difference; /* NaN too */
  }
  const bool right = error <= $tolerance;
  failures += !right;
  std::printf("%-56s %7zu numbers, error %.1e%s\\n", what, computed.size(), error, right ? "" : "   WRONG");
}

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
""")

_CMAKE = Template("""\
# $Mark
cmake_minimum_required(VERSION 3.10)
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
