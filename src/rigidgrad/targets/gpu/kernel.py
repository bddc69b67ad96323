"""A kernel of either shape, with what a host needs to compile and launch it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rigidgrad.errors import unknown_name
from rigidgrad.program.program import Shape
from rigidgrad.targets.gpu import block_code, block_kernel, thread, thread_kernel
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.block_kernel import BlockLoops
from rigidgrad.targets.gpu.text import argument_names
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.thread_kernel import LoopFunction

LANGUAGES = ("cuda", "opencl")
SHAPES = ("thread", "block")
DTYPES = ("float64", "float32")
MOST_WORK = 1 << 30  # bytes that kernels with loops compute in
REAL = {"float64": "double", "float32": "float"}


@dataclass(frozen=True)
class Kernel:
    """`prefix` names it in C: its entry is `{prefix}_{shape}_kernel(int n, inputs…, outputs…)`,
    each array n rows; those of kernels with loops take their work, too.
    """

    prefix: str
    function: ThreadFunction | BlockFunction | LoopFunction | BlockLoops

    @property
    def shape(self) -> str:
        return "block" if isinstance(self.function, BlockFunction | BlockLoops) else "thread"

    @property
    def entry(self) -> str:
        return f"{self.prefix}_{self.shape}_kernel"

    @property
    def inputs(self) -> Mapping[str, Shape]:
        return self.function.inputs

    @property
    def outputs(self) -> Mapping[str, Shape]:
        return self.function.outputs

    @property
    def threads(self) -> int:
        return self.function.threads

    @property
    def states(self) -> int:
        """States that a block works on at once."""
        if self.shape == "thread":
            return self.threads
        return self.function.states if isinstance(self.function, BlockFunction) else 1

    def blocks(self, rows: int) -> int:
        """How many blocks n rows keep busy; kernels take any number."""
        return max(1, min(-(-rows // self.states), 65535))

    @property
    def work(self) -> int:
        """Numbers in global memory that each thread, or block, needs beside the arrays."""
        return self.function.work if isinstance(self.function, LoopFunction | BlockLoops) else 0

    def grid(self, rows: int, dtype: str) -> tuple[int, int]:
        """How many blocks n rows keep busy, and the bytes of global memory that they compute in: at
        most a gigabyte, or what one block needs.
        """
        of_block = self.work * (self.threads if self.shape == "thread" else 1)
        size = of_block * (8 if dtype == "float64" else 4)
        blocks = self.blocks(rows)
        if size:
            blocks = max(1, min(blocks, MOST_WORK // size))
        return blocks, blocks * size

    def shared_bytes(self, dtype: str) -> int:
        return self.function.shared_bytes(dtype)

    @cached_property
    def names(self) -> tuple[dict[str, str], dict[str, str]]:
        """C names of inputs and of outputs."""
        return argument_names(self.inputs, self.outputs)

    @property
    def sizes(self) -> dict[str, int]:
        """C names of all arguments, inputs first, and their numbers a row."""
        ins, outs = self.names
        return {ins[k]: math.prod(s) for k, s in self.inputs.items()} | {
            outs[k]: math.prod(s) for k, s in self.outputs.items()
        }

    def text(self) -> str:
        """The kernel without what comes before it."""
        ins, outs = self.names
        if isinstance(self.function, BlockFunction):
            return block_code.render(self.function, self.prefix, ins, outs)
        if isinstance(self.function, BlockLoops):
            return block_kernel.render(self.function, self.prefix, ins, outs)
        if isinstance(self.function, LoopFunction):
            return thread_kernel.render(self.function, self.prefix, ins, outs)
        return thread.render(self.function, self.prefix, ins, outs)

    def source(self, language: str, dtype: str) -> str:
        """A whole file for one kernel."""
        parts = [prelude(language, dtype)]
        if isinstance(self.function, BlockFunction):
            parts += [block_code.common_code(), block_code.robot_code(self.function.model)]
        return "\n".join([*parts, self.text(), ""])


def prelude(language: str, dtype: str) -> str:
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    code = (block_code.CODE / f"prelude_{language}.h").read_text(encoding="utf-8")
    if language == "cuda":
        return f"{code}typedef {REAL[dtype]} real;\n"
    return f"#define REAL64 {int(dtype == 'float64')}\n{code}"
