"""The kernels that devices run, without a device: what they need, and hashes of their text."""

from __future__ import annotations

import hashlib
import re
from typing import cast

from rigidgrad.model.model import Model
from rigidgrad.runtime.gpu import Device, DeviceFunction, Engine
from rigidgrad.runtime.job import described
from rigidgrad.targets.gpu.kernel import DTYPES, SHAPES, Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.wgsl import PRELUDE, Shader

__all__ = ["DTYPES", "SHAPES", "Kernel", "hash_of", "hash_of_model", "kernel_of"]


class _Nowhere:
    """In place of a device of a kind, for what depends on the kind alone."""

    name = "no device"

    def __init__(self, kind: str):
        self.loops = kind != "webgpu"


def kernel_of(kind: str, model: Model, name: str, shape: str) -> Kernel:
    """The kernel of a function, "thread" or "block", that devices of a kind run."""
    return DeviceFunction(Engine(cast(Device, _Nowhere(kind))), model, name, {}).kernel(shape)


_NUMBER = re.compile(r"\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+")


def _hash(text: str) -> str:
    """With numbers to twelve digits: the last of a model depend on the machine's linear algebra."""
    rounded = _NUMBER.sub(lambda found: f"{float(found[0]):.12g}", text)
    return hashlib.sha256(rounded.encode()).hexdigest()


def hash_of_model(model: Model) -> str:
    """Of all of a model's numbers and names that results depend on."""
    return _hash(described(model))


def hash_of(kind: str, kernel: Kernel, dtype: str) -> str:
    """Of what a driver for "cuda", "opencl" or "webgpu" compiles."""
    if kind == "webgpu":
        assert isinstance(kernel.function, ThreadFunction)
        text = PRELUDE + "".join(Shader(kernel.function.program).passes)
    else:
        text = kernel.source(kind, dtype)
    return _hash(text)
