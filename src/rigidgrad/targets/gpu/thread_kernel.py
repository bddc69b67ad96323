"""Kernels of `rigidgrad.kernels` on a GPU, one thread a state.

A state's numbers are in global memory that the host brings: thousands of threads would need more
private memory than there is. The numbers of a block's threads are interleaved there, so that
neighbouring threads have neighbouring addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.kernels.language import Kernel
from rigidgrad.targets.cstyle_kernel import Dialect, KernelText, Step, array, indented
from rigidgrad.targets.gpu import thread
from rigidgrad.targets.gpu.text import real_number

THREADS = 32  # of a block: registers and caches limit them, not shared memory, which is not used

Names = Mapping[str, str]


@dataclass(frozen=True)
class LoopFunction:
    """A kernel with what its launch needs. `kept` are the places of each output that leave it, one
    after the other; by default all.
    """

    name: str
    kernel: Kernel
    kept: Mapping[str, Sequence[int]] | None = None

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        return self.kernel.inputs

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        if self.kept is None:
            return self.kernel.outputs
        return {key: (len(places),) for key, places in self.kept.items()}

    threads = THREADS

    def shared_bytes(self, dtype: str) -> int:
        return 0

    @cached_property
    def work(self) -> int:
        """Numbers in global memory that each thread needs."""
        return sum(a.size for role in ("input", "output", "scratch") for a in self.kernel.of(role))


class Gpu(Dialect):
    real = "real"
    function = "PART void"
    state = "GLOBAL "
    constant = "FROM "
    stride = THREADS

    def name(self, name: str) -> str:
        return name

    def constant_name(self, name: str) -> str:
        return name

    def constant_type(self) -> str:
        return "real"

    def widened(self, constant: str) -> str:
        return constant

    def number(self, x: float) -> str:
        return real_number(x)

    def step(self, step: Step) -> str:
        return thread.render_step(step)


def render(f: LoopFunction, prefix: str, ins: Names, outs: Names) -> str:
    """The kernel `{prefix}_thread_kernel(n, inputs, outputs, work)` and its functions."""
    kernel = f.kernel
    placed = [*kernel.of("input"), *kernel.of("output"), *kernel.of("scratch")]
    text = KernelText(Gpu(), kernel, f"{prefix}_loops", placed)
    offsets, at = {}, 0  # names of arrays are different, whatever their role
    for a in placed:
        offsets[a.name] = at
        at += a.size
    tables = [
        array(f"TABLE int {name}", [str(x) for x in t.numbers]) for t, name in text.tables.items()
    ]
    kept = {k: f"{prefix}_kept{i}" for i, (k, p) in enumerate((f.kept or {}).items()) if p}
    tables += [
        array(f"TABLE int {name}", [str(x) for x in (f.kept or {})[k]]) for k, name in kept.items()
    ]
    constants = [
        array(f"TABLE real {text.constant_name(k)}", [real_number(x) for x in a.values])
        for k, a in enumerate(kernel.of("constant"))
    ]

    def moved(name: str, size: int, to: bool) -> str:
        place = f"{kept[name]}[k]" if name in kept and not to else "k"
        here = f"own[{THREADS} * ({offsets[name]} + {place})]"
        there = f"{(ins if to else outs)[name]}[(size_t)row * {size} + k]"
        return (
            f"for (int k = 0; k < {size}; ++k) {here if to else there} = {there if to else here};"
        )

    arguments = [f"GLOBAL const real *{ins[k]}" for k in kernel.inputs] + [
        f"GLOBAL real *{outs[k]}" for k in kernel.outputs
    ]
    body = [
        f"GLOBAL real *own = work + (size_t)BID * {THREADS * f.work} + TID;",
        f"for (int k = 0; k < {f.work}; ++k) own[{THREADS} * k] = 0;",
        f"for (int row = BID * {THREADS} + TID; row < n; row += NBLK * {THREADS}) {{",
        *indented([moved(k, math.prod(s), True) for k, s in kernel.inputs.items()]),
        f"    {prefix}_loops(own);",
        *indented([moved(k, math.prod(s), False) for k, s in f.outputs.items()]),
        "}",
    ]
    entry = (
        f"KERNEL THREADS({THREADS}) {prefix}_thread_kernel(int n, {', '.join(arguments)}, GLOBAL"
        " real *work) {"
    )
    return "\n".join([*tables, *constants, *text.functions, entry, *indented(body), "}"])
