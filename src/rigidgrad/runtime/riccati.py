"""The compiled backward pass (`targets.llvm_riccati`), bound to fixed buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.groups import Groups
from rigidgrad.runtime.shared import Shared
from rigidgrad.targets import llvm_riccati
from rigidgrad.targets.llvm_riccati import RESULTS
from rigidgrad.targets.riccati_layout import Layout

__all__ = ["RESULTS", "Layout", "Riccati"]  # all that control needs to know of the code


class Riccati:
    """Compiled code for one layout."""

    def __init__(self, layout: Layout):
        self.layout = layout
        key = cache.key_of(layout)
        stored = cache.read(key)
        if stored is None:
            code = native.compile_ir(llvm_riccati.render(layout, native.host().registers), opt=1)
            stored = cache.Entry({"function": "riccati", "robot": f"{layout.n} states, {layout.m} controls"}, code)
            cache.write(key, stored)
        self._loaded = native.load_object(stored.code)
        self.address = self._loaded.address("riccati")

    @staticmethod
    def of(layout: Layout) -> Riccati:
        """The code of a layout, which all problems of its sizes share."""
        return _shared.get(repr(layout), lambda: Riccati(layout))

    def bind(self, arrays: Mapping[str, np.ndarray]) -> Groups:
        """Buffers by the names of `llvm_riccati.CONTEXT`; those of features that the layout does not have may be left out. A group is a block of knots."""
        if apart := [name for name, a in arrays.items() if not a.flags.c_contiguous]:
            raise InputError(f"buffers of a backward pass are contiguous; these are not: {', '.join(apart)}")
        words = [arrays[n].ctypes.data if n in arrays else 0 for n in llvm_riccati.CONTEXT]
        return Groups(self.address, words, len(arrays["ranges"]), (self, dict(arrays)))


_shared: Shared[Riccati] = Shared()
