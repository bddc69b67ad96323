"""Kernels and operators of trees as Programs: Python runs them once, on memory that writes down
what is done to its numbers. What is compiled for the CPU's lanes is so rendered for other devices.

Loops over bodies are run for one body, whose rows are the first ones of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program
from rigidgrad.program.recorder import record
from rigidgrad.scalars import Scalar
from rigidgrad.targets.loops.source import Recorder
from rigidgrad.trees.algebra import Flat


class Memory(Recorder):
    """An array of one body's rows: what it is read from is an input, what is written to it an
    output; what was written is read again.
    """

    def __init__(self, name: str, shape: tuple[int, ...], given: Flat = ()) -> None:
        self.name, self.shape, self.ndim = name, shape, len(shape)
        self.numbers_: dict[int, Scalar] = dict(enumerate(given))
        self.start = 0

    def _part(self, start: int, shape: tuple[int, ...]) -> Memory:
        part = Memory(self.name, shape)
        part.numbers_, part.start = self.numbers_, start
        return part

    def __len__(self) -> int:
        return self.shape[0]

    def _place(self, key: Any) -> tuple[int, tuple[int, ...]]:
        keys = key if isinstance(key, tuple) else (key,)
        start, shape = self.start, self.shape
        for k in keys:
            size = 1
            for n in shape[1:]:
                size *= n
            start, shape = start + k * size, shape[1:]
        return start, shape

    def __getitem__(self, key: Any) -> Any:
        start, shape = self._place(key)
        return self._part(start, shape) if shape else self.numbers_[start]

    def __setitem__(self, key: Any, value: Any) -> None:
        start, shape = self._place(key)
        values = [value] if not shape else [value[k] for k in range(shape[0])]
        self.numbers_.update(enumerate(values, start))

    # --- the words of `packs`, for places of one body

    def numbers(self, start: int, count: int) -> Flat:
        return tuple(self.numbers_[self.start + start + k] for k in range(count))

    def put_numbers(self, start: int, values: Flat) -> None:
        self.numbers_.update(enumerate(values, self.start + start))

    def lanes(
        self, slot: int, components: int, first: int, count: int, wide: int | None = None
    ) -> Flat:
        return self.numbers(first, count)

    def put_lanes(self, slot: int, components: int, first: int, values: Flat) -> None:
        self.put_numbers(first, values)

    def take(self, first: Any, indices: Any, place: Any, wide: int | None = None) -> Scalar:
        return self.numbers_[self.start]

    def give(self, first: Any, indices: Any, place: Any, value: Scalar) -> None:
        self.numbers_[self.start] = value


Shapes = Mapping[str, tuple[int, ...]]


def program(inputs: Shapes, outputs: Shapes, function: Callable[[dict[str, Any]], Any]) -> Program:
    """What a function does to memory of these names and shapes; what an output gets nowhere is
    zero. A tuple that it returns is the output `result`, if there is one.
    """

    def size(shape: tuple[int, ...]) -> int:
        total = 1
        for n in shape:
            total *= n
        return total

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        memory = {name: Memory(name, shape, values[name]) for name, shape in inputs.items()}
        for name, shape in outputs.items():
            memory.setdefault(name, Memory(name, shape))
        returned = function(memory)
        if "result" in outputs:
            memory["result"].put_numbers(0, returned)
        return tuple(
            tuple(memory[name].numbers_.get(k, 0.0) for k in range(size(shape)))
            for name, shape in outputs.items()
        )

    flat = {name: (size(shape),) for name, shape in inputs.items()}
    recorded = record(flat, {name: (size(shape),) for name, shape in outputs.items()}, evaluate)
    return fuse(recorded)
