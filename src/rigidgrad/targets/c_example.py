"""An example program for generated C, which checks it against values from Python, and a CMake file
that builds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any, Protocol

from rigidgrad.kernels.interpret import results_of
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program


class Named(Protocol):
    """A function with its name in C, its Program or kernel and the C names of its arguments."""

    @property
    def name(self) -> str: ...
    @property
    def program(self) -> Program | Kernel: ...
    @property
    def inputs(self) -> dict[str, str]: ...
    @property
    def outputs(self) -> dict[str, str]: ...


_MAIN = Template("""\
/* An example for $name.h, $mark: each function at one state, compared with values computed in Python. */
#include "$name.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 5 /* of a batch: the same state again and again */

static int failures = 0;

static void compare(const char *what, int rows, int size, const double *computed, const double *expected)
{
    double largest = 1.0, error = 0.0;
    int i;
    for (i = 0; i < size; ++i) largest = fmax(largest, fabs(expected[i]));
    for (i = 0; i < rows * size; ++i) {
        const double difference = fabs(computed[i] - expected[i % size]) / largest;
        if (!(difference <= error)) error = difference; /* NaN too */
    }
    failures += !(error <= 1e-9);
    printf("%-40s %6d numbers, error %.1e%s\\n", what, rows * size, error, error <= 1e-9 ? "" : "   WRONG");
}

static void repeat(const double *row, int size, double *rows)
{
    int i;
    for (i = 0; i < ROWS * size; ++i) rows[i] = row[i % size];
}

$functions

int main(void)
{
$calls
    return failures != 0;
}
""")

_CMAKE = Template("""\
# $mark
cmake_minimum_required(VERSION 3.10)
project($name C)
include(CheckCCompilerFlag)

option(${name}_NATIVE "use every instruction of this computer's processor" ON)

add_library($name STATIC $name.c)
target_include_directories($name PUBLIC $${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties($name PROPERTIES C_STANDARD 99 POSITION_INDEPENDENT_CODE ON)
if(MSVC)
  target_compile_options($name PRIVATE /O2 /fp:precise)
else()
  # multiply-adds are chosen already: the compiler must not choose others
  target_compile_options($name PRIVATE -O2 -ffp-contract=off)
  check_c_compiler_flag(-march=native HAS_MARCH_NATIVE)
  if(${name}_NATIVE AND HAS_MARCH_NATIVE)
    target_compile_options($name PRIVATE -march=native)
  endif()
  target_link_libraries($name PUBLIC m)
endif()
""")

_CMAKE_EXAMPLE = Template("""
add_executable(${name}_example main.c)
target_link_libraries(${name}_example PRIVATE $name)
enable_testing()
add_test(NAME ${name}_example COMMAND ${name}_example)
""")


def cmake(name: str, mark: str, example: bool) -> str:
    words = {"name": name, "mark": mark[0].upper() + mark[1:]}
    return _CMAKE.substitute(words) + (_CMAKE_EXAMPLE.substitute(words) if example else "")


def main(
    name: str, mark: str, functions: Mapping[str, Named], samples: Mapping[str, Mapping[str, Any]]
) -> str:
    """Runs each function on its sample, once alone and once as a batch."""
    chosen = {key: f for key, f in functions.items() if key in samples}
    return _MAIN.substitute(
        name=name,
        mark=mark,
        functions="\n\n".join(_check(name, f, samples[key]) for key, f in chosen.items()),
        calls="\n".join(f"    check_{f.name}();" for f in chosen.values()),
    )


def _check(prefix: str, f: Named, sample: Mapping[str, Any]) -> str:
    inputs = {name: list(flatten(sample[key])) for key, name in f.inputs.items()}
    results = dict(zip(f.outputs.values(), results_of(f.program, sample), strict=True))
    work = isinstance(f.program, Kernel)
    lines = [f"static void check_{f.name}(void)", "{"]
    for name, values in inputs.items():
        lines += [_array(name, values), f"    static double {name}_rows[ROWS * {len(values)}];"]
    for name, values in results.items():
        lines += [
            _array(f"expected_{name}", values),
            f"    static double {name}[ROWS * {len(values)}];",
        ]
    brought = ["work"] if work else []
    if work:
        lines += [
            f"    double *work = malloc((size_t){prefix}_{f.name}_batch_work() * sizeof *work);",
            "    if (!work) exit(2);",
        ]
    lines += [f"    repeat({name}, {len(values)}, {name}_rows);" for name, values in inputs.items()]
    lines.append(f"    {prefix}_{f.name}({', '.join([*inputs, *results, *brought])});")
    lines += _comparisons(f.name, "1", results)
    lines.append(
        f"    {prefix}_{f.name}_batch(ROWS,"
        f" {', '.join([*(f'{k}_rows' for k in inputs), *results, *brought])});"
    )
    lines += _comparisons(f"{f.name}_batch", "ROWS", results)
    if work:
        lines.append("    free(work);")
    return "\n".join([*lines, "}"])


def _comparisons(function: str, rows: str, results: Mapping[str, list[float]]) -> list[str]:
    return [
        f'    compare("{function}: {name}", {rows}, {len(x)}, {name}, expected_{name});'
        for name, x in results.items()
    ]


def _array(name: str, values: list[float]) -> str:
    lines = [", ".join(repr(float(x)) for x in values[i : i + 6]) for i in range(0, len(values), 6)]
    return (
        f"    static const double {name}[{len(values)}] = {{\n        "
        + ",\n        ".join(lines)
        + "};"
    )
