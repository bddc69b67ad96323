"""A Program or a kernel applied knot after knot: what one knot gives, the next may take.

The module's function `knot(context, group, knot)` runs it for W lanes, at one knot of one group of
lanes. The context has of each argument an address and two strides in bytes, from knot to knot and
from group to group, then libm's functions; where an output's address is one knot ahead of an
input's, a state is carried along. All buffers are in lane order (number by number, W lanes each)
except inputs that the lanes share, which are plain numbers.
"""

from __future__ import annotations

import math

from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.targets import llvm, llvm_kernel, llvm_math


def render(
    source: Program | Kernel,
    dtype: str,
    width: int,
    shared: frozenset[str],
    wide: frozenset[str],
    registers: int,
) -> str:
    """The module's text. A kernel's arguments are its inputs, what is carried, outputs and work; of
    float32, those named `wide` are float64.
    """
    if isinstance(source, Program):
        return _of_program(source, dtype, width, shared)
    count = sum(len(source.of(role)) for role in ("input", "carried", "output"))
    return "\n".join(
        [llvm_kernel.render_knot(source, dtype, width, wide, registers), _knot(count + 1)]
    )


def _of_program(program: Program, dtype: str, width: int, shared: frozenset[str]) -> str:
    sizes = [math.prod(shape) for shape in program.outputs.values()]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    layouts = [
        llvm.OutputLayout(tuple(range(start, start + size)))
        for start, size in zip(starts, sizes, strict=True)
    ]
    lanes = llvm.Lanes(dtype, width)
    parts = [
        llvm_math.functions(lanes, program),
        llvm.kernel_function(lanes, program, llvm.Buffers(lanes, layouts), shared),
        _knot(len(program.inputs) + len(program.outputs)),
        llvm.declarations(lanes),
    ]
    return "\n".join(parts)


def _knot(count: int) -> str:
    lines = ["define void @knot(ptr %context, i64 %g, i64 %k) nounwind {"]
    for k in range(count):
        for j, name in enumerate(("a", "k", "g")):
            lines.append(f"  %{name}p{k} = getelementptr i64, ptr %context, i64 {3 * k + j}")
            lines.append(f"  %{name}{k} = load i64, ptr %{name}p{k}, align 8")
        lines += [f"  %s{k} = mul i64 %g, %g{k}", f"  %b{k} = add i64 %a{k}, %s{k}"]
        lines += [
            f"  %o{k} = mul i64 %k, %k{k}",
            f"  %x{k} = add i64 %b{k}, %o{k}",
            f"  %p{k} = inttoptr i64 %x{k} to ptr",
        ]
    arguments = [f"ptr %p{k}" for k in range(count)]
    lines += [
        f"  %libm = getelementptr i64, ptr %context, i64 {3 * count}",
        f"  call void @kernel(ptr %libm, {', '.join(arguments)})",
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines)
