"""rigidgrad, in the ways people call it from Python, and its kernels called from C. All that the
benchmark knows of ours is here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cases import Batch, Missing, Subject, Task, dense_outputs, is_gradient

import rigidgrad as rg
from peers import build


def flops(robot: rg.Robot, function: str) -> int:
    """Floating-point operations of one evaluation."""
    return int(robot.compile(function).counts["flops"])


def loop_in_c() -> ctypes.CDLL | None:
    try:
        compiler = next(iter(build.compilers("c").values()))
    except Missing:
        return None
    return ctypes.CDLL(
        str(build.shared_library("ours-loop", build.SOURCES / "ours_loop.c", compiler, ["-O2"]))
    )


class Ours:
    """`way` is "out" (arrays are reused), "fresh" (the callable allocates), "packed" (structural
    non-zeros only, reused), "factored" (W and Z, reused) or "method".
    """

    def __init__(self, subject: Subject, dtype: str, way: str):
        self.name = f"ours {dtype} {way}"
        self.dtype, self.way = dtype, way
        self._subject = subject

    def offers(self, function: str, count: int) -> bool:
        return (
            function == "aba_derivatives"
            if self.way == "factored"
            else self.way != "packed" or is_gradient(function)
        )

    def bind(
        self, function: str, batch: Batch, outputs: tuple[np.ndarray, ...], threads: int = 1
    ) -> Task:
        if self.way == "factored":
            return self._factored(batch)
        robot = self._subject.robot
        q, v, x = (np.ascontiguousarray(array, self.dtype) for array in batch)
        if self.way == "method":
            call = getattr(robot, function)
        else:
            call = robot.compile(
                function, dtype=self.dtype, threads=threads, packed=self.way == "packed"
            )
        if self.way in ("method", "fresh"):

            def run(repeats: int) -> None:
                for _ in range(repeats):
                    call(q, v, x)

            return Task(run, lambda: as_tuple(call(q, v, x)))

        arrays = (
            outputs
            if self.dtype == "float64"
            else dense_outputs(self._subject, function, batch.count, self.dtype)
        )
        if self.way == "packed":
            pattern = robot.pattern(function)
            arrays = tuple(np.empty((batch.count, len(rows)), self.dtype) for rows, _ in pattern)
        out: Any = arrays if is_gradient(function) else arrays[0]

        def run_into(repeats: int) -> None:
            for _ in range(repeats):
                call(q, v, x, out=out)

        def results() -> tuple[np.ndarray, ...]:
            return unpacked(arrays, pattern, robot.nv) if self.way == "packed" else arrays

        return Task(run_into, results)

    def _factored(self, batch: Batch) -> Task:
        robot = self._subject.robot
        call = robot.compile("aba_derivatives_factored", dtype=self.dtype)
        arguments = [np.ascontiguousarray(array, self.dtype) for array in batch]
        out = tuple(np.empty((batch.count, robot.nv, robot.nv), self.dtype) for _ in range(3))

        def run(repeats: int) -> None:
            for _ in range(repeats):
                call(*arguments, out=out)

        return Task(run, lambda: (out[0] @ out[1], out[0] @ out[2], robot.minv(arguments[0])))


class FromC:
    """One state by a call of the kernel's machine code, in a C loop: no Python."""

    name = "ours float64 C"

    def __init__(self, subject: Subject, library: ctypes.CDLL):
        self._subject, self._library = subject, library

    def offers(self, function: str, count: int) -> bool:
        return count == 1

    def bind(self, function: str, batch: Batch, outputs: tuple[np.ndarray, ...]) -> Task:
        kernel = self._subject.robot.compile(function)._kernel("float64", "single")
        arrays = [*batch, *outputs]
        context = np.array([(array.ctypes.data, array.size) for array in arrays], np.int64)
        rows, pointer = ctypes.c_void_p(kernel.address), ctypes.c_void_p(context.ctypes.data)

        def run(repeats: int, _alive=(arrays, context, kernel)) -> None:
            self._library.loop(rows, pointer, ctypes.c_long(repeats))

        return Task(run, lambda: outputs)


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def unpacked(arrays: tuple[np.ndarray, ...], pattern: Any, nv: int) -> tuple[np.ndarray, ...]:
    dense = []
    for values, (rows, columns) in zip(arrays, pattern, strict=True):
        matrix = np.zeros((len(values), nv, nv), values.dtype)
        matrix[:, rows, columns] = values
        dense.append(matrix)
    return tuple(dense)


def reference(subject: Subject, function: str, batch: Batch) -> tuple[np.ndarray, ...]:
    """What the contenders must agree with: the readable NumPy engine in float64."""
    robot = rg.load(subject.name, floating_base=subject.floating, engine="numpy")
    return as_tuple(getattr(robot, function)(*batch))


def contenders(subject: Subject, dtypes: list[str]) -> list[Ours | FromC]:
    ways: list[Ours | FromC] = [
        Ours(subject, dtype, way)
        for dtype in dtypes
        for way in ("out", "fresh", "packed", "factored", "method")
    ]
    library = loop_in_c()
    return [*ways, FromC(subject, library)] if library and "float64" in dtypes else ways
