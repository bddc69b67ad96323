"""A header-only CUDA C++ library of a robot's functions, with an example, a benchmark and a CMake
file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from string import Template
from typing import Any

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.kernels import language as kernels
from rigidgrad.program.program import Program
from rigidgrad.targets.c import MARK
from rigidgrad.targets.gpu import block_code, cuda_example, macros, thread, work
from rigidgrad.targets.gpu.block import SHARED_BYTES, BlockFunction
from rigidgrad.targets.gpu.facts import Facts, sizes
from rigidgrad.targets.gpu.kernel import DTYPES, REAL, SHAPES, Kernel
from rigidgrad.targets.gpu.text import argument_names
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.thread_kernel import LoopFunction
from rigidgrad.targets.names import comment, identifier, identifiers

LICENSE = "MIT"  # of what is generated: it holds parts of this library
SPACE = {"float64": "f64", "float32": "f32"}
# what the host computes for the split partitioning
SPLIT = ("velocities", "accelerations", "forces")


class Entry:
    """A function with its kernels, of the shapes that are asked for, and its names in C. There is
    none by block if no GPU has the shared memory.
    """

    def __init__(
        self,
        name: str,
        program: Program | kernels.Kernel,
        blocked: BlockFunction | None,
        shapes: Sequence[str] = SHAPES,
    ):
        self.name = name
        self.program = program
        self.thread = self.block = None
        if "thread" in shapes:
            self.thread = Kernel(
                self.name,
                (
                    ThreadFunction(name, program)
                    if isinstance(program, Program)
                    else LoopFunction(name, program)
                ),
            )
        fits = blocked is not None and blocked.shared_bytes("float32") <= SHARED_BYTES
        if "block" in shapes and blocked and fits:
            self.block = Kernel(self.name, blocked)
        if not self.kernels:
            raise InputError(
                f"{name} has no kernel with a block per state"
                f"{' that a GPU has the shared memory for' if blocked else ''}: add 'thread' to"
                " shapes="
            )
        self.ins, self.outs = argument_names(program.inputs, program.outputs)

    thread: Kernel | None
    block: Kernel | None

    @property
    def kernels(self) -> list[Kernel]:
        return [kernel for kernel in (self.thread, self.block) if kernel]

    @cached_property
    def threads_from(self) -> int | None:
        """States for each processor from which on threads are chosen; None where there is one
        shape.
        """
        return work.threads_from(self.block, self.thread) if self.block and self.thread else None

    @property
    def work(self) -> int:
        """Numbers that each thread of the thread kernel computes in, in global memory."""
        return self.thread.work if self.thread else 0

    @property
    def has_state(self) -> bool:
        """Whether there is a function of one state by one thread."""
        return self.thread is not None and isinstance(self.thread.function, ThreadFunction)

    def arguments(self, real: str) -> str:
        return ", ".join(
            [f"const {real} *{x}" for x in self.ins.values()]
            + [f"{real} *{x}" for x in self.outs.values()]
        )

    @property
    def passed(self) -> str:
        return ", ".join((*self.ins.values(), *self.outs.values()))

    def sizes(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        p = self.program
        return (
            [(self.ins[k], math.prod(s)) for k, s in p.inputs.items()],
            [(self.outs[k], math.prod(s)) for k, s in p.outputs.items()],
        )


_SUFFIXES = ("", "_launch", "_state", "_block", "_thread_kernel", "_block_kernel", "_sizes")


def entries_of(
    programs: Mapping[str, Program | kernels.Kernel],
    blocks: Mapping[str, BlockFunction | None],
    shapes: Sequence[str] = SHAPES,
) -> dict[str, Entry]:
    if not programs:
        raise InputError("there is nothing to generate: name at least one function")
    for shape in shapes:
        if shape not in SHAPES:
            raise unknown_name("shape of kernels", shape, SHAPES)
    if not shapes:
        raise InputError(f"shapes= names at least one of {', '.join(map(repr, SHAPES))}")
    names = identifiers(programs, suffixes=_SUFFIXES)
    return {
        key: Entry(names[key], program, blocks.get(key), shapes)
        for key, program in programs.items()
    }


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
    """Files by name. `blocks` are block functions of the programs that have one; `partitionings`
    those of the split and fused gradient, and `sweep` the Program that gives the host's part of the
    split one. `shapes` are those of the kernels that are written, `facts` what the library says of
    the robot.
    """
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
    prefix = identifier(name)
    entries = entries_of(programs, blocks or {}, shapes)
    splits = splits_of(entries, partitionings)
    text = _kernels(name, entries, splits, sweep if splits else None)
    names = macros.defined([_prelude(), text, "#define KERNEL"])
    header = _header(prefix, name, entries, dtypes, notes or {}, splits, facts, names)
    files = {
        f"{prefix}.cuh": header,
        f"{prefix}_kernels.h": macros.prefixed(text, names),
        "rigidgrad_cuda.h": (block_code.CODE / "host_cuda.h").read_text(encoding="utf-8"),
    }
    if samples:
        files["main.cu"] = cuda_example.example(prefix, entries, dtypes, samples, bool(splits))
        files["benchmark.cu"] = cuda_example.benchmark(
            prefix, entries, dtypes, samples, bool(splits)
        )
        files["CMakeLists.txt"] = cuda_example.cmake(prefix)
    return files


def splits_of(
    entries: Mapping[str, Entry], partitionings: Mapping[str, BlockFunction] | None
) -> dict[str, Kernel]:
    """Kernels of the split and the fused gradient, beside that which does all of it."""
    whole = entries.get("fused_gradient")
    if not (whole and whole.block):
        return {}
    return {key: Kernel(key, f) for key, f in (partitionings or {}).items()}


def _kernels(
    name: str, entries: Mapping[str, Entry], splits: Mapping[str, Kernel], sweep: Program | None
) -> str:
    """Included once a type of number, within a namespace of its own."""
    parts = [
        f"/* {comment(name)}: {MARK}; do not edit. Included by the header, once for each type of"
        " number. */"
    ]
    blocked = [e.block for e in entries.values() if e.block] + list(splits.values())
    if blocked:
        model = blocked[0].function.model  # type: ignore[union-attr]
        parts += [block_code.common_code(), block_code.robot_code(model)]
    for entry in entries.values():
        if entry.thread and isinstance(f := entry.thread.function, ThreadFunction):
            parts.append(thread.render_state(f, entry.name, entry.ins, entry.outs))
        parts += [kernel.text() for kernel in entry.kernels]
    parts += [kernel.text() for kernel in splits.values()]
    if sweep is not None:
        f = ThreadFunction("sweep", sweep)
        parts.append(
            thread.render_state(f, "gradient_sweep", *argument_names(sweep.inputs, sweep.outputs))
        )
    return "\n\n".join([*parts, ""])


def _header(
    prefix: str,
    name: str,
    entries: Mapping[str, Entry],
    dtypes: Sequence[str],
    notes: Mapping[str, str],
    splits: Mapping[str, Kernel],
    facts: Facts | None,
    names: Sequence[str],
) -> str:
    listed = "\n".join(_summary(e, notes.get(key, "")) for key, e in entries.items())
    text = [
        _TOP.substitute(
            name=prefix, title=comment(name), mark=MARK, license=LICENSE, listed=listed
        ),
        f"namespace {prefix} {{",
        constants(entries, facts),
        macros.prefixed(f"{_KERNEL}\n{_prelude().strip()}", names),
    ]
    for dtype in dtypes:
        text.append(
            f"namespace {SPACE[dtype]} {{\ntypedef {REAL[dtype]} real;\n#include"
            f' "{prefix}_kernels.h"\n}}  // namespace {SPACE[dtype]}'
        )
    for dtype in dtypes:
        text += [_host_functions(e, dtype) for e in entries.values()]
        if splits:
            text.append(_partitionings(entries["fused_gradient"], splits, dtype))
    text += [
        f"}}  // namespace {prefix}",
        f"#ifndef RIGIDGRAD_OWN_PRELUDE\n{macros.ended(names)}\n#endif\n",
    ]
    return "\n\n".join(text)


def constants(entries: Mapping[str, Entry], facts: Facts | None) -> str:
    """Of the robot, and of each function."""
    lines = [facts.text()] if facts else []
    lines.append(
        "/* Numbers of a state in the arrays of each function; its block kernel's threads, and"
        " numbers in shared memory. */"
    )
    for e in entries.values():
        ins, outs = e.sizes()
        block = (e.block.threads, e.block.shared_bytes("float32") // 4) if e.block else None
        lines.append(sizes(e.name, ins + outs, block, e.threads_from))
    return "\n".join(lines)


def _prelude() -> str:
    return (block_code.CODE / "prelude_cuda.h").read_text(encoding="utf-8")


def _summary(e: Entry, note: str) -> str:
    ins, outs = e.sizes()
    shapes = " -> ".join(", ".join(f"{k} ({n})" for k, n in part) for part in (ins, outs))
    return f" *   {e.name}: {shapes}{f'. {comment(note)}' if note else ''}"


def _host_functions(e: Entry, dtype: str) -> str:
    real, space = REAL[dtype], SPACE[dtype]
    ins, outs = e.sizes()
    work = e.work * e.thread.threads if e.thread else 0  # of a block
    memory = "rigidgrad::Memory &memory, " if work else ""
    lines = [
        (
            f"/* {e.name} of n states at device"
            f" addresses{'; memory is what it computes in, one for each stream' if work else ''} */"
        ),
        (
            f"inline void {e.name}_launch({memory}int n, {e.arguments(real)}, rigidgrad::Shape"
            " shape = rigidgrad::Shape::automatic, cudaStream_t stream = 0) {"
        ),
        "  if (n <= 0) return;",
    ]
    start = (
        "  rigidgrad::start({space}::{entry}<0>, rigidgrad::blocks_for(n, {states}), {threads},"
        " {shared}, stream, n, {passed});"
    )

    def launch(kernel: Kernel) -> str:
        if kernel.work:
            reserve = f"({real} *)memory.reserve((size_t)blocks * {work} * sizeof({real}))"
            blocks = (
                f"const int blocks = rigidgrad::blocks_within(n, {kernel.states}, {work} *"
                f" sizeof({real}));"
            )
            return (
                f"  {{\n    {blocks}\n    rigidgrad::start({space}::{kernel.entry}<0>, blocks,"
                f" {kernel.threads}, 0, stream, n, {e.passed}, {reserve});\n  }}"
            )
        return start.format(
            space=space,
            entry=kernel.entry,
            states=kernel.states,
            threads=kernel.threads,
            shared=kernel.shared_bytes(dtype),
            passed=e.passed,
        )

    if e.block and e.thread:
        lines += [
            (
                "  if (shape == rigidgrad::Shape::automatic) shape ="
                f" rigidgrad::choose(n, {e.name}_sizes::threads_from);"
            ),
            "  if (shape == rigidgrad::Shape::block)",
            "  " + launch(e.block),
            "  else",
            "  " + launch(e.thread),
        ]
    else:
        (only,) = e.kernels
        lines += [f"  (void)shape; /* there is one kernel, by {only.shape} */", launch(only)]
    chosen = f"rigidgrad::choose(n, {e.name}_sizes::threads_from)"
    automatic = "shape == rigidgrad::Shape::automatic"
    # chunks of a large batch are not small ones
    whole = f"{automatic} ? {chosen} : shape" if e.threads_from else "shape"
    moved = ", ".join(
        [f"in[{i}]" for i in range(len(ins))] + [f"out[{i}]" for i in range(len(outs))]
    )
    lines += [
        "}",
        f"/* {e.name} of n states on the host: copies over, computes, copies back */",
        (
            f"inline void {e.name}(rigidgrad::Workspace &workspace, int n, {e.arguments(real)},"
            " rigidgrad::Shape shape = rigidgrad::Shape::automatic) {"
        ),
        (
            f"  rigidgrad::run<{real}>(workspace, n,"
            f" {{{', '.join(f'{{{k}, {s}}}' for k, s in ins)}}},"
            f" {{{', '.join(f'{{{k}, {s}}}' for k, s in outs)}}},"
        ),
        (
            f"    [&](int rows, const std::vector<const {real} *> &in, const std::vector<{real} *>"
            " &out, cudaStream_t stream) {"
        ),
        (
            f"      {e.name}_launch({'workspace.memory(stream), ' if work else ''}rows, {moved},"
            f" {whole}, stream);"
        ),
        "    });",
        "}",
    ]
    return "\n".join(lines)


def _partitionings(e: Entry, splits: Mapping[str, Kernel], dtype: str) -> str:
    """Plancher et al. 2021, section IV-B: how much of the gradient of forward dynamics runs on the
    device.
    """
    real, space = REAL[dtype], SPACE[dtype]
    split, fused = splits["gradient_split"], splits["gradient_fused"]
    n = split.outputs["dq"][0]
    nq = math.prod(split.inputs["q"])
    bodies = split.inputs["velocities"][0]
    words = {
        "real": real,
        "space": space,
        "n": n,
        "nq": nq,
        "nn": n * n,
        "wide": 6 * bodies,
        "split_threads": split.threads,
        "split_shared": split.shared_bytes(dtype),
        "fused_threads": fused.threads,
        "fused_shared": fused.shared_bytes(dtype),
    }
    return _PARTITIONINGS.substitute(words)


_KERNEL = """\
#ifndef RIGIDGRAD_OWN_PRELUDE
#define KERNEL template <int rigidgrad_once> __global__ void
#endif
"""

_TOP = Template("""\
/* $title: $mark; do not edit. A header-only CUDA C++ library; needs nothing but CUDA.
 * SPDX-License-Identifier: $license
 *
 * For each function f of n states, rows of numbers one after the other, in double and in float:
 *   f(workspace, n, inputs, outputs, shape)       arrays on the host: copied over and back, pinned, on two streams
 *   f_launch(n, inputs, outputs, shape, stream)   arrays on the device
 *   f64::f_state(inputs, outputs)                 one state by one thread, on the device or the host; f32:: in float
 *   f64::f_block(s, inputs, outputs)              one state by all threads of a block, for kernels of your own: how many threads and how much shared memory s stands there
 *   f64::f_thread_kernel, f_block_kernel<0>       the kernels
 *   f_sizes                                       numbers of a state in each array
 * Functions of robots so large that they are loops over bodies have no f_state, and their f_launch and f_thread_kernel take memory to compute in; without
 * kernels of one thread per state there is no f_state either. Macros of this file end with it. Errors are std::runtime_error. Functions:
$listed
 */
#pragma once
#include <limits>

#include "rigidgrad_cuda.h"
""")

_PARTITIONINGS = Template("""\
/* The gradient of forward dynamics from q, v, a and M^-1, in three partitionings. Completely fused: all of it on the device. */
inline void gradient_completely_fused(rigidgrad::Workspace &workspace, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  fused_gradient(workspace, n, q, v, a, minv, dq, dv, rigidgrad::Shape::block);
}
/* Fused: the gradient of inverse dynamics on the device, the product with M^-1 on the host. */
inline void gradient_fused(rigidgrad::Workspace &workspace, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  std::vector<$real> cq((size_t)n * $nn), cv((size_t)n * $nn);
  rigidgrad::run<$real>(workspace, n, {{q, $nq}, {v, $n}, {a, $n}}, {{cq.data(), $nn}, {cv.data(), $nn}},
    [&](int rows, const std::vector<const $real *> &in, const std::vector<$real *> &out, cudaStream_t stream) {
      rigidgrad::start($space::gradient_fused_block_kernel<0>, rigidgrad::blocks_for(rows, 1), $fused_threads, $fused_shared, stream, rows, in[0], in[1], in[2], out[0], out[1]);
    });
  for (size_t k = 0; k < (size_t)n; ++k) {
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cq.data() + k * $nn, dq + k * $nn);
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cv.data() + k * $nn, dv + k * $nn);
  }
}
/* Split: velocities, accelerations and forces on the host, only the columns of the gradient on the device, the product with M^-1 on the host. */
inline void gradient_split(rigidgrad::Workspace &workspace, int n, const $real *q, const $real *v, const $real *a, const $real *minv, $real *dq, $real *dv) {
  std::vector<$real> cq((size_t)n * $nn), cv((size_t)n * $nn), sweep[3];
  for (auto &x : sweep) x.resize((size_t)n * $wide);
  for (size_t k = 0; k < (size_t)n; ++k)
    $space::gradient_sweep_state(q + k * $nq, v + k * $n, a + k * $n, sweep[0].data() + k * $wide, sweep[1].data() + k * $wide, sweep[2].data() + k * $wide);
  rigidgrad::run<$real>(workspace, n,
    {{q, $nq}, {v, $n}, {sweep[0].data(), $wide}, {sweep[1].data(), $wide}, {sweep[2].data(), $wide}}, {{cq.data(), $nn}, {cv.data(), $nn}},
    [&](int rows, const std::vector<const $real *> &in, const std::vector<$real *> &out, cudaStream_t stream) {
      rigidgrad::start($space::gradient_split_block_kernel<0>, rigidgrad::blocks_for(rows, 1), $split_threads, $split_shared, stream, rows, in[0], in[1], in[2], in[3], in[4],
        out[0], out[1]);
    });
  for (size_t k = 0; k < (size_t)n; ++k) {
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cq.data() + k * $nn, dq + k * $nn);
    rigidgrad::minus_product<$real>($n, minv + k * $nn, cv.data() + k * $nn, dv + k * $nn);
  }
}
""")
