"""The compiled backward pass, bound to fixed buffers: of one problem (`targets.llvm_riccati`), or
of many side by side (`kernels.riccati`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.kernels.riccati import Sizes, knot
from rigidgrad.runtime import cache
from rigidgrad.runtime.bound import Bound
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job, Knots
from rigidgrad.targets import llvm_riccati
from rigidgrad.targets.llvm_riccati import RESULTS
from rigidgrad.targets.riccati_layout import Layout

# all that control needs to know of the code
__all__ = ["RESULTS", "Layout", "Sizes", "bind", "bind_side_by_side"]

# float64, whatever the type of the pass
_WIDE = frozenset({"gains", "results", "rho", "held", "lower", "upper", "u", "h"})


def job(layout: Layout) -> Job:
    """The pass of one problem."""
    owner = f"{layout.n} states, {layout.m} controls"
    return Job(
        "riccati",
        owner,
        cache.text_of(layout),
        lambda: layout,
        dtype=layout.dtype,
        width=layout.width,
    )


def bind(layout: Layout, arrays: Mapping[str, np.ndarray]) -> Bound:
    """The pass of one problem over buffers by the names of `llvm_riccati.CONTEXT`; those of
    features that the layout does not have may be left out. A group is a block of knots.
    """
    if apart := [name for name, a in arrays.items() if not a.flags.c_contiguous]:
        raise InputError(
            f"buffers of a backward pass are contiguous; these are not: {', '.join(apart)}"
        )
    _check(layout, arrays)
    code = Code.of(job(layout))
    words = [arrays[n].ctypes.data if n in arrays else 0 for n in llvm_riccati.CONTEXT]
    return Bound(code.address, words, len(arrays["ranges"]), (code, dict(arrays)))


def _check(o: Layout, arrays: Mapping[str, np.ndarray]) -> None:
    """Native code reads and writes as many numbers as the layout says, of every block and of
    every knot that `ranges` names.
    """
    double = "float64"
    blocks = {"ranges": (2, "int64"), "numbers": (len(llvm_riccati.NUMBERS), double)}
    blocks |= {"results": (len(RESULTS), double), "scratch": (o.scratch_size, o.dtype)}
    blocks |= dict.fromkeys(("end", "start"), (o.value_size, o.dtype))
    knots = {
        "F": (o.rows * o.columns, o.dtype),
        "l": (o.columns, o.dtype),
        "L": (o.columns * (1 if o.diagonal else o.n + o.m), o.dtype),
    }
    knots |= {"gains": (o.m * o.gain_columns, double)}
    knots |= {"defects": (o.n, double)} if o.gaps else {}
    knots |= {"move": (o.move_size, o.dtype)} if o.form == "floating" else {}
    knots |= dict.fromkeys(("lower", "upper", "u", "active"), (o.m, double)) if o.bounded else {}
    missing = [name for name in (*blocks, *knots) if name not in arrays]
    if missing:
        raise InputError(f"buffers of this backward pass are missing: {', '.join(missing)}")
    count, last = len(arrays["ranges"]), int(arrays["ranges"].max(initial=0))
    wanted = {name: (count * size, dtype) for name, (size, dtype) in blocks.items()}
    wanted |= {name: (last * size, dtype) for name, (size, dtype) in knots.items()}
    for name, (size, dtype) in wanted.items():
        if arrays[name].dtype != dtype or arrays[name].size < size:
            have = f"{arrays[name].dtype}{arrays[name].shape}"
            raise InputError(
                f"buffer {name} of a backward pass is {have}; it must be {dtype}, {size}"
                " numbers or more"
            )


def bind_side_by_side(sizes: Sizes, arrays: Mapping[str, np.ndarray], dtype: str) -> Bound:
    """The pass of many problems, a problem in each lane: arrays (groups, steps, …, lanes) by the
    names of `Sizes.of_knot`, `gains` and, with bounds, `held`; for all knots together `rho`
    (groups, lanes), `results` (groups, 3, lanes), which is to be 0, 0, 1 before a pass, and `V`
    (groups, n + 1, n, lanes), the cost-to-go at the end before it and at the start after it.
    """
    groups, steps, *_, lanes = arrays["F"].shape
    code = Code.of(
        Job(
            "riccati",
            f"{sizes.n} states, {sizes.m} controls",
            str(sizes),
            lambda: knot(sizes, dtype != "float64"),
            dtype=dtype,
            width=lanes,
            knots=Knots(wide=_WIDE),
        )
    )

    def placed(name: str, size: int) -> np.ndarray:
        """From the last knot to the first."""
        array = arrays[name]
        if name in ("V", "results", "rho"):
            return np.broadcast_to(
                array.reshape(groups, 1, size, lanes), (groups, steps, size, lanes)
            )
        flat = array.view()
        flat.shape = (groups, steps, size, lanes)  # never a copy
        return flat[:, ::-1]

    sources, targets = (
        {name: placed(name, math.prod(shape)) for name, shape in of.items()}
        for of in (code.inputs, code.carried | code.outputs)
    )
    return code.bind(sources, targets)
