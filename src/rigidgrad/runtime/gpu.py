"""Functions of a robot on a GPU: the kernels of `targets.gpu` behind the same calls as on the CPU.

`open_device("cuda")` or `open_device("opencl")` gives an `Engine`; its functions take and return
what a Robot's do. Arrays on the host are copied over and back; arrays on a CUDA device stay there.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from rigidgrad.algorithms.textbook.rnea import rnea_sweep
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.kernels import language as kernels, structure
from rigidgrad.model.canonical import canonical
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.model import Model
from rigidgrad.program.fuse import fuse
from rigidgrad.program.order import best_order
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record
from rigidgrad.runtime import arrays
from rigidgrad.runtime.formulation import program_of, source_of
from rigidgrad.runtime.job import Job, RobotFunction, digest
from rigidgrad.targets.gpu import block, work
from rigidgrad.targets.gpu.facts import Facts
from rigidgrad.targets.gpu.kernel import SHAPES as KERNEL_SHAPES, Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.thread_kernel import LoopFunction
from rigidgrad.targets.names import identifier

DEVICES = ("cuda", "opencl", "webgpu")
SHAPES = ("auto", *KERNEL_SHAPES)
_REGISTERS = 200


class Loaded(Protocol):
    """A kernel that is ready to run."""

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        """Rows of numbers on the host, inputs then outputs; returns when the outputs are there."""


class Device(Protocol):
    """What a backend offers."""

    name: str
    loops: bool  # whether it runs kernels with loops, beside Programs

    def load(self, kernel: Kernel, dtype: str) -> Loaded: ...

    def holds(self, array: Any) -> bool:
        """Whether an array lies on the device."""

    def run_there(
        self, loaded: Any, inputs: Mapping[str, Any], kernel: Kernel, dtype: str, out: Any
    ) -> list[Any]:
        """Runs on arrays that lie on the device, and leaves the results there: in the arrays `out`,
        or in fresh ones of the caller's kind.
        """

    def shared_limit(self) -> int:
        """Bytes of shared memory that a block can have."""

    def processors(self) -> int:
        """Multiprocessors, or compute units."""

    def has(self, dtype: str) -> bool:
        """Whether it computes in this type."""

    def facts(self) -> dict[str, str]:
        """What it is, and its driver."""


def open_device(
    name: str, *, device: Any = None, shape: str = "auto", stream: Any = None
) -> Engine:
    """The engine of a device. `device` chooses among several: a number, or for OpenCL also a part
    of its name. `stream` is the caller's, for CUDA.
    """
    if name not in DEVICES:
        raise InputError(f"a robot can go to one of {', '.join(map(repr, DEVICES))}, not {name!r}")
    if shape not in SHAPES:
        raise unknown_name("shape of kernels", shape, SHAPES)
    if name == "cuda":
        from rigidgrad.runtime.gpu_cuda import CudaDevice

        return Engine(CudaDevice(device, stream), shape)
    if stream is not None:
        raise InputError(f'stream= is for robot.to("cuda"), not for {name!r}')
    if name == "webgpu":
        from rigidgrad.runtime.gpu_webgpu import WebGpuDevice

        if shape == "block":
            raise InputError("kernels for WebGPU have one thread per state: leave shape= out")
        return Engine(WebGpuDevice(device), "thread")
    from rigidgrad.runtime.gpu_opencl import OpenClDevice

    return Engine(OpenClDevice(device), shape)


@dataclasses.dataclass(frozen=True)
class Engine:
    """A device, and which kernels run there: one thread a state, one block a state, or by the size
    of the batch.
    """

    device: Device
    shape: str = "auto"

    def function(
        self,
        model: Model,
        name: str,
        *,
        external: tuple[str, ...] = (),
        frame: str | None = None,
        expressed_in: str = "world",
        contacts: ConstraintSet | None = None,
        packed: bool = False,
        result: Callable[..., Any] | None = None,
        check: Callable[[arrays.Batch], None] | None = None,
    ) -> DeviceFunction:
        options: dict[str, Any] = {
            "external": external,
            "frame": frame,
            "expressed_in": expressed_in,
        }
        if contacts is not None:
            options["contacts"] = contacts
        return DeviceFunction(self, model, name, options, packed, result, check)

    def compiled(self, job: Job) -> DeviceFunction:
        """What a job computes, for functions of other libraries' arrays."""
        known = job.source
        if isinstance(known, RobotFunction) and not known.parameters:
            return self.function(
                known.model,
                known.name,
                external=known.external,
                frame=known.frame,
                expressed_in=known.expressed_in,
                contacts=known.contacts,
            )
        source = job.source()
        if not (isinstance(source, Program) or self.device.loops):
            raise InputError(
                f"{job.name} of a robot this large is a loop, which {self.device.name} has none of"
            )
        return DeviceFunction(self, None, identifier(job.name), {}, source=source)


class DeviceFunction:
    """A function on a device; called as a compiled one is. Without a model it is what was recorded,
    one thread per state.
    """

    def __init__(
        self,
        engine: Engine,
        model: Model | None,
        name: str,
        options: dict[str, Any],
        packed: bool = False,
        result: Callable[..., Any] | None = None,
        check: Callable[[arrays.Batch], None] | None = None,
        source: Program | kernels.Kernel | None = None,
    ):
        self._own = source
        self._engine, self._model, self._name, self._options = engine, model, name, options
        self._packed, self._result, self._check = packed, result, check
        self._loaded: dict[tuple[str, str], Loaded] = {}
        if engine.shape == "block" and model and not self._has_block:
            block.block_function(model, name, **options)  # says why
            raise InputError("packed results come from kernels with one thread a state")

    def __repr__(self) -> str:
        owner = f" of {self._model.name!r}" if self._model else ""
        return f"<{self._name}{owner} on {self._engine.device.name}>"

    @cached_property
    def source(self) -> Program | kernels.Kernel:
        """What a thread runs: what lanes do, or a Program where a device has no loops."""
        found = self._own
        if found is None:
            recorded = source_of if self._engine.device.loops else program_of
            found = recorded(self.model, self._name, **self._options)
        return best_order(found, _REGISTERS) if isinstance(found, Program) else found

    @property
    def model(self) -> Model:
        assert self._model is not None
        return self._model

    @cached_property
    def masks(self) -> Mapping[str, np.ndarray]:
        """Which entries of each output are not structurally zero."""
        return {
            k: np.array(mask, bool).reshape(self.source.outputs[k])
            for k, mask in structure.pattern(self.source).items()
        }

    @property
    def _has_block(self) -> bool:
        return (
            self._model is not None
            and self._name in block.FUNCTIONS
            and not self._packed
            and block.has_block(self._model)
        )

    def kernel(self, shape: str) -> Kernel:
        """The kernel of a shape, "thread" or "block"."""
        return self._thread if shape == "thread" else self._block

    @cached_property
    def _thread(self) -> Kernel:
        if isinstance(self.source, Program):
            program = packed_program(self.source) if self._packed else self.source
            return Kernel(self._name, ThreadFunction(self._name, program))
        places = {k: np.flatnonzero(mask).tolist() for k, mask in self.masks.items()}
        kept = places if self._packed else None
        return Kernel(self._name, LoopFunction(self._name, self.source, kept))

    @cached_property
    def _block(self) -> Kernel:
        return Kernel(self._name, block.block_function(self.model, self._name, **self._options))

    @cached_property
    def _threads_from(self) -> int:
        return work.threads_from(self._block, self._thread)

    def _shape(self, rows: int, dtype: str) -> str:
        if self._own is not None:
            return "thread"
        if self._engine.shape != "auto":
            return self._engine.shape
        fits = (
            self._has_block
            and rows < self._threads_from * self._engine.device.processors()
            and self._block.shared_bytes(dtype) <= self._engine.device.shared_limit()
        )
        return "block" if fits else "thread"

    def _ready(self, rows: int, dtype: str) -> tuple[Kernel, Loaded]:
        shape = self._shape(rows, dtype)
        kernel = self.kernel(shape)
        if (shape, dtype) not in self._loaded:
            limit, needed = self._engine.device.shared_limit(), kernel.shared_bytes(dtype)
            if needed > limit:
                raise InputError(
                    f"{self._name} with a block a state needs {needed} bytes of shared memory,"
                    f" {self._engine.device.name} has {limit}: use shape='thread'"
                )
            self._loaded[shape, dtype] = self._engine.device.load(kernel, dtype)
        return kernel, self._loaded[shape, dtype]

    def __call__(self, *inputs: Any, out: Any = None, check: bool = False) -> Any:
        names = list(self._inputs)
        if len(inputs) != len(names):
            raise InputError(
                f"{self._name} takes {len(names)} arrays ({', '.join(names)}), not {len(inputs)}"
            )
        given = dict(zip(names, inputs, strict=True))
        if any(self._engine.device.holds(x) for x in inputs):
            return self._on_device(given, out, check)
        batch = arrays.gather(given, self._inputs)
        if check and self._check:
            self._check(batch)
        count = math.prod(batch.shape)
        kernel, loaded = self._ready(count, batch.dtype.name)
        results = arrays.allocate(batch, kernel.outputs, out)
        targets = {
            key: array if self._takes_rows(array, batch) else np.empty(array.shape, array.dtype)
            for key, array in results.items()
        }
        if count:
            rows = [x.reshape(count, math.prod(x.shape) // count) for x in targets.values()]
            loaded.run([batch.rows[name] for name in kernel.inputs], rows, count)
        for key, array in results.items():
            if targets[key] is not array:
                array[...] = targets[key]
        if out is not None:
            return self._wrapped(list(results.values())) if arrays.has_remark(out) else out
        return self._wrapped([batch.back(a) if batch.back else a for a in results.values()])

    @staticmethod
    def _takes_rows(array: np.ndarray, batch: arrays.Batch) -> bool:
        """Whether results of some rows can be written while inputs of others are still read."""
        apart = not any(np.may_share_memory(array, x) for x in batch.rows.values())
        return array.flags.c_contiguous and apart

    @cached_property
    def _inputs(self) -> Mapping[str, Shape]:
        return (
            self.source.inputs
            if self._packed or not self._has_block or self._engine.shape == "thread"
            else self._block.inputs
        )

    def _on_device(self, given: Mapping[str, Any], out: Any, check: bool) -> Any:
        if check:
            raise InputError(
                "check= is for arrays on the host: looking at others would wait for the device"
            )
        device = self._engine.device
        for name, x in given.items():
            if not device.holds(x):
                raise InputError(
                    f"{name} lies on the host and another input on the device: move it there first"
                )
        dtype = _dtype_of(next(iter(given.values())))
        rows = _rows_of(given, self._inputs)
        kernel, loaded = self._ready(rows, dtype)
        targets = None
        if out is not None:
            targets = (out,) if len(kernel.outputs) == 1 else out
            if not isinstance(targets, tuple | list) or len(targets) != len(kernel.outputs):
                raise InputError(
                    f"out must be {len(kernel.outputs)} arrays, for {', '.join(kernel.outputs)}"
                )
        results = device.run_there(loaded, given, kernel, dtype, targets)
        return self._wrapped(results) if out is None else out

    def _wrapped(self, outputs: Sequence[Any]) -> Any:
        if len(outputs) == 1:
            return outputs[0]
        return self._result(*outputs) if self._result else tuple(outputs)


def _dtype_of(array: Any) -> str:
    name = str(array.dtype).rpartition(".")[2]
    if name not in ("float64", "float32"):
        raise InputError(f"arrays on the device hold float64 or float32, not {array.dtype}")
    return name


def _rows_of(given: Mapping[str, Any], shapes: Mapping[str, Shape]) -> int:
    """The number of states; arrays on a device are not broadcast."""
    leading: dict[str, Shape] = {}
    for name, x in given.items():
        shape, tail = tuple(x.shape), shapes[name]
        split = len(shape) - len(tail)
        if split < 0 or shape[split:] != tail:
            raise InputError(
                f"{name} has shape {shape}; expected {tail}, with any batch axes in front"
            )
        leading[name] = shape[:split]
    if len(set(leading.values())) > 1:
        listed = ", ".join(f"{k} {v}" for k, v in leading.items())
        raise InputError(f"arrays on the device need the same batch axes: {listed}")
    if len({_dtype_of(x) for x in given.values()}) > 1:
        raise InputError(
            "arrays on the device need one dtype: "
            + ", ".join(f"{k} {x.dtype}" for k, x in given.items())
        )
    return math.prod(next(iter(leading.values())))


def packed_program(program: Program) -> Program:
    """The same with the structural zeros of its outputs left out."""
    outputs: dict[str, Shape] = {}
    results: list[Any] = []
    start = 0
    for (key, shape), mask in zip(program.outputs.items(), program.pattern().values(), strict=True):
        size = math.prod(shape)
        kept = [
            r for r, keep in zip(program.results[start : start + size], mask, strict=True) if keep
        ]
        outputs[key] = (len(kept),)
        results += kept
        start += size
    return Program.from_graph(program.inputs, outputs, program.nodes, results)


def for_devices(
    model: Model, requests: Mapping[str, tuple[str, Mapping[str, Any]]], shapes: Sequence[str]
) -> dict[str, Any]:
    """What generated code has besides Programs: facts of the robot, block functions of the requests
    that can have one, and of the partitionings of the gradient.
    """
    version = sys.modules["rigidgrad"].__version__  # of the package, whose modules are below it
    found: dict[str, Any] = {"shapes": shapes, "facts": Facts(model, version, digest(model))}
    if not block.has_block(model) or "block" not in shapes:
        return found
    blocks = {
        key: block.block_function(model, name, **options)
        for key, (name, options) in requests.items()
        if name in block.FUNCTIONS
    }
    found["blocks"] = blocks
    if "fused_gradient" in blocks:
        found["partitionings"] = {
            key: block.block_function(model, key) for key in ("gradient_split", "gradient_fused")
        }
        found["sweep"] = sweep_program(model)
    return found


def sweep_program(model: Model) -> Program:
    """What the host computes for the split gradient: per body of the canonical model v, a and
    the force across its joint.
    """
    reduced = canonical(model)
    bodies = len(reduced.joints)

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        sweep = rnea_sweep(reduced, values["q"], values["v"], values["a"])
        return tuple(
            tuple((*x.angular, *x.linear) for x in xs) for xs in (sweep.v, sweep.a, sweep.f)
        )

    inputs = {"q": (model.nq,), "v": (model.nv,), "a": (model.nv,)}
    names = ("velocities", "accelerations", "forces")
    return fuse(record(inputs, dict.fromkeys(names, (bodies, 6)), evaluate))
