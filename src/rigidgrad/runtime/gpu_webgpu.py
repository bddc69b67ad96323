"""WebGPU through wgpu: any GPU with a driver for Vulkan, Metal or Direct3D 12, in float32."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.wgsl import GROUPS, PRELUDE, THREADS, Shader

_HELP = "pip install wgpu, and a driver for Vulkan, Metal or Direct3D 12"


class WebGpuDevice:
    """An adapter and its queue."""

    loops = False

    def __init__(self, device: Any = None):
        try:
            import wgpu
        except ImportError as error:
            raise InputError(
                f'robot.to("webgpu") needs wgpu, which cannot be imported ({error}): {_HELP}'
            ) from error
        self.gpu = wgpu
        adapter = self._choose(device)
        self.name, self.info = _name(adapter), dict(adapter.info)
        wanted = ("max-buffer-size", "max-storage-buffer-binding-size")
        self.device = adapter.request_device_sync(
            required_limits={key: adapter.limits[key] for key in wanted}
        )
        self.bytes: int = min(self.device.limits[key] for key in wanted)

    def _choose(self, wanted: Any) -> Any:
        if wanted is None:
            try:
                return self.gpu.gpu.request_adapter_sync(power_preference="high-performance")
            except RuntimeError as error:
                raise InputError(f'robot.to("webgpu") finds no GPU ({error}): {_HELP}') from error
        adapters = self.gpu.gpu.enumerate_adapters_sync()
        if isinstance(wanted, int) and 0 <= wanted < len(adapters):
            return adapters[wanted]
        for adapter in adapters:
            if isinstance(wanted, str) and wanted.lower() in _name(adapter).lower():
                return adapter
        listed = ", ".join(f"{i}: {_name(a)}" for i, a in enumerate(adapters))
        raise InputError(f"there is no WebGPU device {wanted!r}; there are {listed or 'none'}")

    def has(self, dtype: str) -> bool:
        return dtype == "float32"

    def facts(self) -> dict[str, str]:
        wanted = ("device", "description", "vendor", "architecture", "backend_type")
        return {"name": self.name, **{k: str(self.info[k]) for k in wanted if self.info.get(k)}}

    def shared_limit(self) -> int:
        return sys.maxsize  # shaders share none: any tile of a thread kernel fits

    def processors(self) -> int:
        return 1  # WebGPU does not say, and kernels have one shape

    def holds(self, array: Any) -> bool:
        return False

    def run_there(
        self, loaded: Any, inputs: Mapping[str, Any], kernel: Kernel, dtype: str, out: Any
    ) -> list[Any]:
        raise InputError("arrays on WebGPU devices are not taken: pass arrays on the host")

    def load(self, kernel: Kernel, dtype: str) -> WebGpuKernel:
        if dtype == "float64":
            raise InputError("WebGPU has no double precision: pass float32 arrays")
        if not isinstance(kernel.function, ThreadFunction):
            raise InputError("kernels for WebGPU have one thread per state: leave shape= out")
        return WebGpuKernel(self, Shader(kernel.function.program))


class WebGpuKernel:
    """Compiled, with buffers that grow to the largest batch."""

    def __init__(self, device: WebGpuDevice, shader: Shader):
        self._device, self._shader = device, shader
        usage = device.gpu.BufferUsage
        size = device.device.create_buffer(size=16, usage=usage.UNIFORM | usage.COPY_DST)
        self._size = size
        kinds = ("read-only-storage", "storage", "storage", "uniform")
        self._layout = device.device.create_bind_group_layout(
            entries=[
                {"binding": i, "visibility": device.gpu.ShaderStage.COMPUTE, "buffer": {"type": k}}
                for i, k in enumerate(kinds)
            ]
        )
        layout = device.device.create_pipeline_layout(bind_group_layouts=[self._layout])
        self._passes = [
            device.device.create_compute_pipeline(
                layout=layout,
                compute={
                    "module": device.device.create_shader_module(code=PRELUDE + text),
                    "entry_point": "main",
                },
            )
            for text in shader.passes
        ]
        self._states = 0
        self._numbers = max(shader.input_numbers, len(shader.results), shader.work, 1)

    @property
    def most(self) -> int:
        """States of one dispatch, at most: what fits a buffer."""
        fitting: int = self._device.bytes // (4 * self._numbers)
        return min(fitting, GROUPS * THREADS)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], count: int) -> None:
        for start in range(0, count, self.most):
            stop = min(start + self.most, count)
            columns = self._dispatch(
                self._shader.columns([x[start:stop] for x in inputs]), stop - start
            )
            self._shader.scatter(columns, [x[start:stop] for x in outputs])

    def _dispatch(self, columns: np.ndarray, states: int) -> np.ndarray:
        results = len(self._shader.results)
        if not results:
            return np.empty((0, states), np.float32)
        self._reserve(states)
        queue = self._device.device.queue
        queue.write_buffer(self._size, 0, np.array([states, 0, 0, 0], np.uint32))
        queue.write_buffer(self._x, 0, columns)
        encoder = self._device.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_bind_group(0, self._group)
        for pipeline in self._passes:
            compute.set_pipeline(pipeline)
            compute.dispatch_workgroups(-(-states // THREADS))
        compute.end()
        queue.submit([encoder.finish()])
        read = queue.read_buffer(self._y, 0, 4 * results * states)
        return np.frombuffer(read, np.float32).reshape(results, states)

    def _reserve(self, states: int) -> None:
        if states <= self._states:
            return
        usage, device = self._device.gpu.BufferUsage, self._device.device
        self._states = states
        self._x, self._y, self._work = (
            device.create_buffer(size=4 * max(numbers, 1) * states, usage=usage.STORAGE | more)
            for numbers, more in (
                (self._shader.input_numbers, usage.COPY_DST),
                (len(self._shader.results), usage.COPY_SRC),
                (self._shader.work, 0),
            )
        )
        self._group = device.create_bind_group(
            layout=self._layout,
            entries=[
                {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for i, b in enumerate((self._x, self._y, self._work, self._size))
            ],
        )


def _name(adapter: Any) -> str:
    info = adapter.info
    return str(info.get("device") or info.get("description") or info.get("vendor") or "WebGPU")
