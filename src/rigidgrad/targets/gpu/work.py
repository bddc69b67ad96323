"""Which shape of kernel suits a batch: the work of both, counted, and the processors of a device.

The model: a processor issues instructions of warps on four schedulers. Blocks, one a state, keep
them busy from the first states on. A warp of threads, one a state, waits for its own results, so
that few warps take as long as one: LATENCY cycles for each instruction. Threads are chosen from the
number of states on at which this is less than what the blocks take; never, where a state by itself
is less work for a block.

Numbers of instructions are estimates from counts, and LATENCY is a device's in the interpreter of
PTX (`tests/ptx`; 6.0 to 7.7 cycles over kernels of four robots): nothing here was measured on a
GPU. Memory is as fast as it has to be.
"""

from __future__ import annotations

import math

from rigidgrad.kernels import structure
from rigidgrad.targets.gpu.block import BlockFunction
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.schedule import SPECIAL, WARP
from rigidgrad.targets.gpu.thread import ThreadFunction

SCHEDULERS = 4  # of a processor
LATENCY = 7  # cycles
NEVER = 2**31 - 1
# instructions of a warp: of an operation of a block, of each entry of its table, and for 32 numbers
# of inputs and results; of a thread's operation, and of each number that it brings or takes away.
# They are within a third of those that the interpreter counts
_OPERATION, _ENTRY, _ROW = 14.0, 24.0, 31.0
_THREAD, _NUMBER = 2.5, 20.0


def of_state(kernel: Kernel) -> float:
    """Instructions of warps that a state costs."""
    f = kernel.function
    numbers = sum(kernel.sizes.values())
    if isinstance(f, BlockFunction):
        s = f.schedule
        instructions = numbers / WARP * _ROW
        for group in (g for stage in s.stages for g in stage if not g.kind.startswith(SPECIAL[0])):
            entries = len(s.tables[group.kind][group.start]) if s.tables[group.kind] else 0
            instructions += -(-group.count // WARP) * (_OPERATION + _ENTRY * entries)
        return instructions
    source = f.program if isinstance(f, ThreadFunction) else f.kernel
    each = _THREAD * structure.counts(source).instructions + _NUMBER * numbers
    return each / WARP if kernel.shape == "thread" else each


def threads_from(block: Kernel, thread: Kernel) -> int:
    """States for each processor of a device from which on a thread a state is faster than a block,
    or NEVER.
    """
    by_block, by_thread = of_state(block), of_state(thread)
    if by_thread >= by_block:
        return NEVER
    return math.ceil(SCHEDULERS * LATENCY * WARP * by_thread / by_block)
