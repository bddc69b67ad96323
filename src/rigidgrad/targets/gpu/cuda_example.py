"""An example and a benchmark for the generated CUDA library, and the CMake file that builds
both.
"""

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
from rigidgrad.targets.gpu.comparison import COMPARISON
from rigidgrad.targets.gpu.kernel import REAL, Kernel


class Entry(Protocol):
    """A function with its names in C and its kernels."""

    name: str
    program: Program | kernels.Kernel
    thread: Kernel | None
    block: Kernel | None
    ins: dict[str, str]
    outs: dict[str, str]

    @property
    def kernels(self) -> list[Kernel]: ...
    @property
    def has_state(self) -> bool: ...
    def sizes(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]: ...


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(repr(float(x)) for x in values)


def example(
    prefix: str,
    entries: Mapping[str, Entry],
    dtypes: Sequence[str],
    samples: Mapping[str, Mapping[str, Any]],
    splits: bool,
) -> str:
    dtype = "float64" if "float64" in dtypes else dtypes[0]
    real, tolerance = REAL[dtype], "1e-9" if dtype == "float64" else "1e-2"
    calls = []
    for key, e in entries.items():
        lines = [f"  {{ /* {e.name} */"]
        expected = results_of(e.program, samples[key])
        for k, c in e.ins.items():
            lines.append(
                f"    const std::vector<{real}> {c} ="
                f" repeated({{{_numbers(list(flatten(samples[key][k])))}}});"
            )
        for (k, c), value in zip(e.outs.items(), expected, strict=True):
            size = math.prod(e.program.outputs[k])
            lines.append(f"    const std::vector<double> expected_{c} = {{{_numbers(value)}}};")
            lines.append(f"    std::vector<{real}> {c}(ROWS * {size});")
        arguments = ", ".join(
            [f"{c}.data()" for c in e.ins.values()] + [f"{c}.data()" for c in e.outs.values()]
        )
        for kernel in e.kernels:
            lines.append(
                f"    {prefix}::{e.name}(workspace, ROWS, {arguments},"
                f" rigidgrad::Shape::{kernel.shape});"
            )
            lines += [
                f'    compare("{e.name}, a {kernel.shape} a state: {c}", {c}, expected_{c});'
                for c in e.outs.values()
            ]
        if key == "fused_gradient" and splits:
            for how in PARTITIONINGS:
                lines.append(f"    {prefix}::gradient_{how}(workspace, ROWS, {arguments});")
                lines += [
                    f'    compare("gradient_{how}: {c}", {c}, expected_{c});'
                    for c in e.outs.values()
                ]
        calls.append("\n".join([*lines, "  }"]))
    return _MAIN.substitute(
        name=prefix, mark=MARK, real=real, tolerance=tolerance, calls="\n".join(calls)
    )


PARTITIONINGS = ("split", "fused", "completely_fused")
_TABLE = {
    "ID": "rnea",
    "Minv": "minv",
    "FD": "aba",
    "gradient of ID": "rnea_derivatives",
    "gradient of FD": "aba_derivatives",
}


def benchmark(
    prefix: str,
    entries: Mapping[str, Entry],
    dtypes: Sequence[str],
    samples: Mapping[str, Mapping[str, Any]],
    splits: bool,
) -> str:
    body: list[str] = []
    # robots so large that their functions are loops are beyond what is measured here
    entries = {key: e for key, e in entries.items() if isinstance(e.program, Program)}
    chosen = {title: entries[key] for title, key in _TABLE.items() if key in entries}
    if "float32" not in dtypes:
        body.append(
            '  std::printf("the benchmark measures float32: generate with dtypes including it\\n");'
        )
        chosen, splits = {}, False
    elif not all(e.has_state for e in chosen.values()):
        body.append(
            '  std::printf("the CPU is compared where there are kernels of one thread per state:'
            ' generate with shapes including them\\n");'
        )
    chosen_keys = {_TABLE[title] for title in chosen}

    def data(e: Entry, key: str, n: str) -> list[str]:
        lines = [
            f"    const std::vector<real> {c} ="
            f" rows({{{_numbers(list(flatten(samples[key][k])))}}}, {n});"
            for k, c in e.ins.items()
        ]
        return lines + [
            f"    std::vector<real> {c}({n} * {math.prod(e.program.outputs[k])});"
            for k, c in e.outs.items()
        ]

    if chosen:
        body.append(
            '  std::printf("\\nTable 5.2 and figure 5.7: one computation, without copies (figure'
            ' 5.7 is the ratio between robots)\\n");'
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
            (
                "    rigidgrad::Memory device(false);\n    real *memory = (real"
                f" *)device.reserve({total} * sizeof(real));"
            ),
            *data(e, _TABLE[title], "1"),
            *(
                f"    rigidgrad::check(cudaMemcpy({p}, {c}.data(), {s} * sizeof(real),"
                ' cudaMemcpyHostToDevice), "copy");'
                for p, (c, s) in zip(pointers, ins, strict=False)
            ),
            *_printed(
                f"  {title:<16}",
                [
                    (
                        f"{kernel.shape} per state",
                        f"kernel_alone(stream, [&] {{ {prefix}::{e.name}_launch(1,"
                        f" {', '.join(pointers)}, Shape::{kernel.shape}, stream); }}, 2000)",
                    )
                    for kernel in reversed(e.kernels)
                ]
                + [("one CPU core", f"each([&] {{ {_on_host(prefix, e, '')}; }}, 2000)")]
                * e.has_state,
            ),
            "  }",
        ]
    if splits:
        e = entries["fused_gradient"]
        pointers = [f"{c}.data()" for c in (*e.ins.values(), *e.outs.values())]
        body += [
            (
                "  std::printf(\"\\nFigures 5.5 and 5.6: gradient of FD with known q'', M^-1,"
                ' copies included\\n");'
            ),
            "  for (int n : {16, 32, 64, 128}) {",
            *data(e, "fused_gradient", "n"),
            *_printed(
                "  N = %3d",
                [
                    (
                        how.replace("_", " "),
                        f"each([&] {{ {prefix}::gradient_{how}(workspace, n,"
                        f" {', '.join(pointers)}); }}, 500)",
                    )
                    for how in PARTITIONINGS
                ]
                + _all_cores(prefix, e),
                "n",
            ),
            "  }",
        ]
    if "aba_derivatives" in chosen_keys:
        e = entries["aba_derivatives"]
        ins, outs = e.sizes()
        pointers = [f"{c}.data()" for c in (*e.ins.values(), *e.outs.values())]
        places, place = [], 0
        for _, size in ins + outs:
            places.append(f"memory + n * {place}")
            place += size
        body += [
            '  std::printf("\\nFigure 5.8: gradient of FD of N states\\n");',
            "  for (int n : {16, 32, 64, 128, 256}) {",
            (
                "    rigidgrad::Memory device(false);\n    real *memory = (real"
                f" *)device.reserve((size_t)n * {place} * sizeof(real));"
            ),
            *data(e, "aba_derivatives", "n"),
            *(
                f"    rigidgrad::check(cudaMemcpy({p}, {c}.data(), n * {s} * sizeof(real),"
                ' cudaMemcpyHostToDevice), "copy");'
                for p, (c, s) in zip(places, ins, strict=False)
            ),
            *_printed(
                "  N = %3d",
                [
                    (
                        "kernel",
                        f"kernel_alone(stream, [&] {{ {prefix}::{e.name}_launch(n,"
                        f" {', '.join(places)}, Shape::automatic, stream); }}, 500)",
                    ),
                    (
                        "with copies",
                        f"each([&] {{ {prefix}::{e.name}(workspace, n, {', '.join(pointers)}); }},"
                        " 500)",
                    ),
                    *_all_cores(prefix, e),
                ],
                "n",
            ),
            "  }",
        ]
    template = Template((CODE / "benchmark_cuda.in").read_text(encoding="utf-8"))
    return template.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:], body="\n".join(body))


def _printed(first: str, columns: Sequence[tuple[str, str]], *numbers: str) -> list[str]:
    """A line of the benchmark: what it begins with, and times in microseconds."""
    texts = "".join(f"   {label} %9.2f" for label, _ in columns)
    return [
        f"    const double time{k} = {measured};" for k, (_, measured) in enumerate(columns)
    ] + [
        f'    std::printf("{first}{texts}\\n",'
        f" {', '.join((*numbers, *(f'time{k}' for k in range(len(columns)))))});"
    ]


def _on_host(prefix: str, e: Entry, row: str) -> str:
    """A state by the CPU: the first, or that at `row`."""
    ins, outs = e.sizes()
    arguments = ", ".join(f"{c}.data(){f' + {row} * {s}' if row else ''}" for c, s in ins + outs)
    return f"{prefix}::f32::{e.name}_state({arguments})"


def _all_cores(prefix: str, e: Entry) -> list[tuple[str, str]]:
    call = f"each([&] {{ crew.run(n, [&](int k) {{ {_on_host(prefix, e, 'k')}; }}); }}, 200)"
    return [("CPU, all cores", call)] * e.has_state


def cmake(prefix: str) -> str:
    return _CMAKE.substitute(name=prefix, Mark=MARK[0].upper() + MARK[1:])


_MAIN = Template(
    """\
/* An example for $name.cuh, $mark: each function at one state, in both shapes, compared with values computed in Python. */
#include "$name.cuh"

#include <cmath>
#include <cstdio>
#include <vector>

"""
    + COMPARISON
    + """
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
"""
)

_CMAKE = Template("""\
# $Mark
# SPDX-License-Identifier: MIT
cmake_minimum_required(VERSION 3.20)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "how code is compiled" FORCE)
endif()
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
if(NOT MSVC) # the CPU that the GPU is compared with: all that this machine has
  target_compile_options(${name}_benchmark PRIVATE $$<$$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-O3,-march=native>)
endif()

enable_testing()
add_test(NAME ${name}_example COMMAND ${name}_example)
set_tests_properties(${name}_example PROPERTIES SKIP_RETURN_CODE 77)
""")
