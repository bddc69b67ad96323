"""The compiled backward pass (`targets.llvm_riccati`), bound to fixed buffers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping

import numpy as np

from rigidgrad.runtime import cache, native
from rigidgrad.runtime.threads import Crew
from rigidgrad.targets import llvm_riccati
from rigidgrad.targets.llvm_riccati import Layout

_PASS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Riccati:
    """Compiled code for one layout."""

    def __init__(self, layout: Layout):
        self.layout = layout
        key = cache.key({"riccati": repr(layout)})
        stored = cache.read(key)
        if stored is None:
            code = native.compile_ir(llvm_riccati.render(layout, native.host().registers), opt=1)
            stored = cache.Entry({"function": "riccati", "robot": f"{layout.n} states, {layout.m} controls"}, code)
            cache.write(key, stored)
        self._loaded = native.load_object(stored.code)
        self.address = self._loaded.address("riccati")
        self.function = _PASS(self.address)

    @staticmethod
    @functools.cache
    def of(layout: Layout) -> Riccati:
        """The code of a layout, which all problems of its sizes share."""
        return Riccati(layout)

    def bind(self, arrays: Mapping[str, np.ndarray]) -> BoundRiccati:
        """Buffers by the names of `llvm_riccati.CONTEXT`; those of features that the layout does not have may be left out."""
        return BoundRiccati(self, arrays)


class BoundRiccati:
    def __init__(self, kernel: Riccati, arrays: Mapping[str, np.ndarray]):
        assert all(a.flags.c_contiguous for a in arrays.values())
        self.arrays = dict(arrays)
        self._kept = kernel
        self._function, self._target = kernel.function, kernel.address
        self._context = np.array([arrays[n].ctypes.data if n in arrays else 0 for n in llvm_riccati.CONTEXT], np.int64)
        self._address = self._context.ctypes.data
        self.blocks = len(arrays["ranges"])

    def run(self, crew: Crew | None = None, blocks: int | None = None) -> None:
        """All blocks, or the first few; with a crew on several threads."""
        count = self.blocks if blocks is None else blocks
        if crew is not None and crew.threads > 1 and count > 1:
            crew.run(self._target, self._address, count, 1)
        else:
            self._function(self._address, 0, count)

    def run_block(self, block: int) -> None:
        self._function(self._address, block, block + 1)
