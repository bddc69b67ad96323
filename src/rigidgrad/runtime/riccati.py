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
        self._check(arrays)
        words = [arrays[n].ctypes.data if n in arrays else 0 for n in llvm_riccati.CONTEXT]
        return Groups(self.address, words, len(arrays["ranges"]), (self, dict(arrays)))

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Native code reads and writes as many numbers as the layout says, of every block and of every knot that `ranges` names."""
        o, double = self.layout, "float64"
        blocks = {"ranges": (2, "int64"), "numbers": (len(llvm_riccati.NUMBERS) * o.problems, double)}
        blocks |= {"results": (len(RESULTS) * o.problems, double), "scratch": (o.scratch_size * o.problems, o.dtype)}
        blocks |= dict.fromkeys(("end", "start"), (o.value_size * o.problems, o.dtype))
        knots = {
            "F": (o.rows * o.columns, o.dtype),
            "l": (o.columns, o.dtype),
            "L": (o.columns * (1 if o.diagonal else o.n + o.m), o.dtype),
        }
        knots |= {"gains": (o.m * o.gain_columns, double)}
        knots |= {"defects": (o.n, double)} if o.gaps else {}
        knots |= dict.fromkeys(("lower", "upper", "u", "active"), (o.m, double)) if o.bounded else {}
        missing = [name for name in (*blocks, *knots) if name not in arrays]
        if missing:
            raise InputError(f"buffers of this backward pass are missing: {', '.join(missing)}")
        count, last = len(arrays["ranges"]), int(arrays["ranges"].max(initial=0))
        wanted = {name: (count * size, dtype) for name, (size, dtype) in blocks.items()}
        wanted |= {name: (last * size * o.problems, dtype) for name, (size, dtype) in knots.items()}
        for name, (size, dtype) in wanted.items():
            if arrays[name].dtype != dtype or arrays[name].size < size:
                have = f"{arrays[name].dtype}{arrays[name].shape}"
                raise InputError(f"buffer {name} of a backward pass is {have}; it must be {dtype}, {size} numbers or more")


_shared: Shared[Riccati] = Shared()
