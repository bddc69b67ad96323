"""Kernels in C, over macros for the type of their numbers: for one state, and for as many as a
vector has lanes.

What a kernel needs beyond its arguments is brought by the caller, since it can be more than a stack
holds: `work`, whose numbers need no values.
"""

from __future__ import annotations

from functools import cached_property
from string import Template

import numpy as np

from rigidgrad.kernels.language import Kernel
from rigidgrad.targets import c_program, c_types
from rigidgrad.targets.cstyle_kernel import Dialect, KernelText, Step, array


class _C(Dialect):
    real = "REAL"
    restrict = "restrict "

    def name(self, name: str) -> str:
        return f"NAME({name})"

    def constant_name(self, name: str) -> str:
        return f"TABLE({name})"

    def constant_type(self) -> str:
        return "SCALAR"

    def widened(self, constant: str) -> str:
        return f"WIDE({constant})"

    def ended(self, x: str) -> str:
        return f"ENDED({x})"

    def number(self, x: float) -> str:
        return c_program.number(x)

    def step(self, step: Step) -> str:
        return c_program.render(step)


class CKernel:
    """The text of a kernel: what all types share, what each type of number has, and functions over
    REAL.
    """

    def __init__(self, name: str, kernel: Kernel):
        self.name, self.kernel = name, kernel

    @cached_property
    def _text(self) -> KernelText:
        return KernelText(_C(), self.kernel, self.name, self.kernel.of("scratch"))

    @property
    def work(self) -> int:
        """Numbers of work for one state."""
        return max(self._text.work, 1)

    def tables(self) -> list[str]:
        return [
            array(f"static const int {name}", [str(x) for x in table.numbers])
            for table, name in self._text.tables.items()
        ]

    def constants(self, dtype: str) -> list[str]:
        real, bits = c_types.SCALARS[dtype][0], dtype.removeprefix("float")
        suffix = "f" if dtype == "float32" else ""
        return [
            array(
                f"static const {real} {self._text.constant_name(k)}__{bits}",
                [f"{float(x)!r}{suffix}" for x in np.array(a.values, dtype)],
            )
            for k, a in enumerate(self.kernel.of("constant"))
        ]

    def body(self) -> str:
        return "\n\n".join(self._text.functions)

    def public(
        self,
        prefix: str,
        dtype: str,
        parameters: str,
        inputs: dict[str, int],
        outputs: dict[str, int],
    ) -> str:
        """The functions for one state and for a batch, and the one that says how much work a batch
        needs.
        """
        real, suffix = c_types.SCALARS[dtype]
        bits = dtype.removeprefix("float")
        sizes = inputs | outputs
        at, columns = 0, {}
        for name, size in sizes.items():
            columns[name] = f"columns + {at}" if at else "columns"
            at += size
        words = {
            "prefix": prefix,
            "f": self.name,
            "real": real,
            "suffix": suffix,
            "bits": bits,
            "parameters": f"{parameters}, {real} *work",
            "numbers": self.work,
            "columns": at + self.work,
            "zeros": "\n".join(
                f"    for (i = 0; i < {size}; ++i) {name}[i] = 0;" for name, size in outputs.items()
            ),
            "passed": ", ".join([*sizes, "work"]),
            "moved": ", ".join(
                [*(f"{name} + row * {size}" for name, size in sizes.items()), "work"]
            ),
            "gathered": "\n".join(
                f"        gather{bits}({k} + row * {s}, {s}, rows, {columns[k]});"
                for k, s in inputs.items()
            ),
            "scattered": "\n".join(
                f"        scatter{bits}({columns[k]}, {s}, rows, {k} + row * {s});"
                for k, s in outputs.items()
            ),
            "lanes": ", ".join([*columns.values(), f"columns + {at}"]),
        }
        return _PUBLIC.substitute(words)


_PUBLIC = Template("""\
void ${prefix}_$f$suffix($parameters)
{
    long i;
    for (i = 0; i < $numbers; ++i) work[i] = 0;
$zeros
    ${f}__$bits($passed);
}

long ${prefix}_${f}_batch_work$suffix(void) { return LANES ? LANES$bits * ($columns + 1L) : $numbers; }

void ${prefix}_${f}_batch$suffix(long n, $parameters)
{
    long row;
#if LANES
    /* columns of vectors begin where vectors may; what no state writes stays zero for all of them */
    lanes$bits *const columns = (lanes$bits *)(void *)((char *)work + (LANES - (uintptr_t)work % LANES) % LANES);
    for (row = 0; row < $columns; ++row) columns[row] = (lanes$bits){0};
    for (row = 0; row < n; row += LANES$bits) {
        const long rows = n - row < LANES$bits ? n - row : LANES$bits;
$gathered
        ${f}__lanes$bits($lanes);
$scattered
    }
#else
    for (row = 0; row < n; ++row)
        ${prefix}_$f$suffix($moved);
#endif
}""")
