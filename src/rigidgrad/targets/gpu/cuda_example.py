"""An example and a benchmark for the generated CUDA library, and the CMake file that builds both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any, Protocol

from rigidgrad.kernels import language as kernels
from rigidgrad.kernels.interpret import results_of
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program
from rigidgrad.targets.c import MARK
from rigidgrad.targets.gpu.block_code import CODE
from rigidgrad.targets.gpu.kernel import REAL, Kernel


class Entry(Protocol):
    """A function with its names in C and its kernels."""

    name: str
    program: Program | kernels.Kernel
    block: Kernel | None
    ins: dict[str, str]
    outs: dict[str, str]

    @property
    def kernels(self) -> list[Kernel]: ...
    def sizes(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]: ...


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)


def example(
    prefix: str, entries: Mapping[str, Entry], dtypes: Sequence[str], samples: Mapping[str, Mapping[str, Any]], splits: bool
) -> str:
    dtype = "float64" if "float64" in dtypes else dtypes[0]
    real, tolerance = REAL[dtype], "1e-9" if dtype == "float64" else "1e-2"
    calls = []
    for key, e in entries.items():
        lines = [f"  {{ /* {e.name} */"]
        expected = results_of(e.program, samples[key])
        for k, c in e.ins.items():
            lines.append(f"    const std::vector<{real}> {c} = repeated({{{_numbers(list(flatten(samples[key][k])))}}});")
        for (k, c), value in zip(e.outs.items(), expected, strict=True):
            size = math.prod(e.program.outputs[k])
            lines.append(f"    const std::vector<double> expected_{c} = {{{_numbers(value)}}};")
            lines.append(f"    std::vector<{real}> {c}(ROWS * {size});")
        arguments = ", ".join([f"{c}.data()" for c in e.ins.values()] + [f"{c}.data()" for c in e.outs.values()])
        for kernel in e.kernels:
            lines.append(f"    {prefix}::{e.name}(workspace, ROWS, {arguments}, rigidgrad::Shape::{kernel.shape});")
            lines += [f'    compare("{e.name}, a {kernel.shape} a state: {c}", {c}, expected_{c});' for c in e.outs.values()]
        if key == "fused_gradient" and splits:
            for how in ("split", "fused", "completely_fused"):
                lines.append(f"    {prefix}::gradient_{how}(workspace, ROWS, {arguments});")
                lines += [f'    compare("gradient_{how}: {c}", {c}, expected_{c});' for c in e.outs.values()]
        calls.append("\n".join([*lines, "  }"]))
    return _MAIN.substitute(name=prefix, mark=MARK, real=real, tolerance=tolerance, calls="\n".join(calls))


_TABLE = {"ID": "rnea", "Minv": "minv", "FD": "aba", "gradient of ID": "rnea_derivatives", "gradient of FD": "aba_derivatives"}


def benchmark(
    prefix: str, entries: Mapping[str, Entry], dtypes: Sequence[str], samples: Mapping[str, Mapping[str, Any]], splits: bool
) -> str:
    body: list[str] = []
    # robots so large that their functions are loops are beyond what is measured here
    entries = {key: e for key, e in entries.items() if isinstance(e.program, Program)}
    chosen = {title: entries[key] for title, key in _TABLE.items() if key in entries}
    if "float32" not in dtypes:
        body.append('  std::printf("the benchmark measures float32: generate with dtypes including it\\n");')
        chosen, splits = {}, False

    def data(e: Entry, key: str, n: str) -> list[str]:
        lines = [f"    const std::vector<real> {c} = rows({{{_numbers(list(flatten(samples[key][k])))}}}, {n});" for k, c in e.ins.items()]
        return lines + [f"    std::vector<real> {c}({n} * {math.prod(e.program.outputs[k])});" for k, c in e.outs.items()]

    if chosen:
        body.append(
            '  std::printf("\\nTable 5.2 and figure 5.7: one computation, without copies (figure 5.7 is the ratio between robots)\\n");'
        )
    for title, e in chosen.items():
        ins, outs = e.sizes()
        total = sum(s for _, s in ins + outs)
        place, pointers = 0, []
        for _, size in ins + outs:
            pointers.append(f"memory + {place}")
            place += size
        body += [
            "  {",
            f"    rigidgrad::Memory device(false);\n    real *memory = (real *)device.reserve({total} * sizeof(real));",
            *data(e, _TABLE[title], "1"),
            *(
                f'    rigidgrad::check(cudaMemcpy({p}, {c}.data(), {s} * sizeof(real), cudaMemcpyHostToDevice), "copy");'
                for p, (c, s) in zip(pointers, ins, strict=False)
            ),
            f'    std::printf("  %-16s block a state %8.2f   thread a state %8.2f   one CPU core %8.2f\\n", "{title}",',
            f"      kernel_alone(stream, [&] {{ {prefix}::{e.name}_launch(1, {', '.join(pointers)}, Shape::{'block' if e.block else 'thread'}, stream); }}, 2000),",
            f"      kernel_alone(stream, [&] {{ {prefix}::{e.name}_launch(1, {', '.join(pointers)}, Shape::thread, stream); }}, 2000),",
            f"      each([&] {{ {prefix}::f32::{e.name}_state({', '.join(f'{c}.data()' for c in (*e.ins.values(), *e.outs.values()))}); }}, 2000));",
            "  }",
        ]
    if splits:
        e = entries["fused_gradient"]
        pointers = [f"{c}.data()" for c in (*e.ins.values(), *e.outs.values())]
        row = ", ".join(
            [f"{e.ins[k]}.data() + k * {math.prod(s)}" for k, s in e.program.inputs.items()]
            + [f"{e.outs[k]}.data() + k * {math.prod(s)}" for k, s in e.program.outputs.items()]
        )
        body += [
            "  std::printf(\"\\nFigures 5.5 and 5.6: gradient of FD with known q'', M^-1, copies included\\n\");",
            "  for (int n : {16, 32, 64, 128}) {",
            *data(e, "fused_gradient", "n"),
            *(
                f"    const double {how} = each([&] {{ {prefix}::gradient_{how}(workspace, n, {', '.join(pointers)}); }}, 500);"
                for how in ("split", "fused", "completely_fused")
            ),
            f"    const double cpu = each([&] {{ on_cpu(n, [&](int k) {{ {prefix}::f32::{e.name}_state({row}); }}); }}, 200);",
            '    std::printf("  N = %3d   split %9.1f   fused %9.1f   completely fused %9.1f   CPU, all cores %9.1f\\n", n, split, fused, completely_fused, cpu);',
            "  }",
        ]
    if "aba_derivatives" in entries and chosen:
        e = entries["aba_derivatives"]
        ins, outs = e.sizes()
        pointers = [f"{c}.data()" for c in (*e.ins.values(), *e.outs.values())]
        row = ", ".join(f"{c}.data() + k * {s}" for c, s in ins + outs)
        places, place = [], 0
        for _, size in ins + outs:
            places.append(f"memory + n * {place}")
            place += size
        body += [
            '  std::printf("\\nFigure 5.8: gradient of FD of N states\\n");',
            "  for (int n : {16, 32, 64, 128, 256}) {",
            f"    rigidgrad::Memory device(false);\n    real *memory = (real *)device.reserve((size_t)n * {place} * sizeof(real));",
            *data(e, "aba_derivatives", "n"),
            *(
                f'    rigidgrad::check(cudaMemcpy({p}, {c}.data(), n * {s} * sizeof(real), cudaMemcpyHostToDevice), "copy");'
                for p, (c, s) in zip(places, ins, strict=False)
            ),
            f"    const double alone = kernel_alone(stream, [&] {{ {prefix}::{e.name}_launch(n, {', '.join(places)}, Shape::block, stream); }}, 500);",
            f"    const double copied = each([&] {{ {prefix}::{e.name}(workspace, n, {', '.join(pointers)}, Shape::block); }}, 500);",
            f"    const double cpu = each([&] {{ on_cpu(n, [&](int k) {{ {prefix}::f32::{e.name}_state({row}); }}); }}, 200);",
            '    std::printf("  N = %3d   kernel %9.1f   with copies %9.1f   CPU, all cores %9.1f\\n", n, alone, copied, cpu);',
            "  }",
        ]
    template = Template((CODE / "benchmark_cuda.in").read_text(encoding="utf-8"))
    return template.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:], body="\n".join(body))


def cmake(prefix: str) -> str:
    return _CMAKE.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:])


_MAIN = Template("""\
/* An example for $name.cuh, $mark: each function at one state, in both shapes, compared with values computed in Python. */
#include "$name.cuh"

#include <cmath>
#include <cstdio>
#include <vector>

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

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("there is no CUDA device here\\n");
    return 77;
  }
  rigidgrad::Workspace workspace;
$calls
  return failures != 0;
}
""")

_CMAKE = Template("""\
# $Mark
cmake_minimum_required(VERSION 3.20)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-virtual) # runs on every GPU since 2018; name yours for its own code
endif()
project($name LANGUAGES CXX CUDA)
find_package(Threads REQUIRED)

add_library($name INTERFACE)
target_include_directories($name INTERFACE $${CMAKE_CURRENT_SOURCE_DIR})
target_compile_features($name INTERFACE cxx_std_17 cuda_std_17)

add_executable(${name}_example main.cu)
target_link_libraries(${name}_example PRIVATE $name)
add_executable(${name}_benchmark benchmark.cu)
target_link_libraries(${name}_benchmark PRIVATE $name Threads::Threads)

enable_testing()
add_test(NAME ${name}_example COMMAND ${name}_example)
set_tests_properties(${name}_example PROPERTIES SKIP_RETURN_CODE 77)
""")
