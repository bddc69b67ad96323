"""The border between users' arrays and kernels: shapes, batch axes, dtypes, foreign arrays,
`out=`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rigidgrad.errors import InputError

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.typing import ArrayLike

    class Exchanged(Protocol):
        """An array of a library that shares memory by DLPack."""

        def __dlpack__(self) -> Any: ...

    Numbers = ArrayLike | Exchanged  # what `to_numpy` reads

Shape = tuple[int, ...]
Back = Callable[[np.ndarray], Any]

# DLPack device types that the CPU can read: CPU, CUDA host-pinned, ROCm host-pinned
_HOST_DEVICES = (1, 3, 11)
_LINE = 64  # bytes of a cache line
_MOST_WORK = (
    100_000  # candidates that are tried to find out whether arrays with odd strides overlap
)
_BEGIN = 16  # where in its first line a large block of the C library begins


@dataclass(frozen=True)
class Batch:
    """Inputs of one call: rows (B, size) of one dtype, the user's batch axes, and the way back to
    the user's kind of array.
    """

    rows: dict[str, np.ndarray]
    shape: Shape
    dtype: np.dtype
    back: Back | None


def aligned_zeros(shape: Shape, dtype: Any = np.float64) -> np.ndarray:
    """Zeros from the start of a cache line on: vectors of an array that is used again and again do
    not lie across two lines.
    """
    return _placed(np.zeros, 0, shape, np.dtype(dtype))


def fresh(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """An empty array that begins in its cache line where large blocks of the C library do, so that
    one streaming kernel serves both.
    """
    return _placed(np.empty, _BEGIN, shape, dtype)


def _placed(
    make: Callable[..., np.ndarray], begin: int, shape: Shape, dtype: np.dtype
) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    room = make(size + _LINE, np.uint8)
    first = (begin - room.ctypes.data) % _LINE
    return room[first : first + size].view(dtype).reshape(shape)


def gather(
    inputs: Mapping[str, Any], shapes: Mapping[str, Shape], fixed_dtype: str | None = None
) -> Batch:
    """Checks every input against the shape of one state and broadcasts leading axes against each
    other.
    """
    arrays: dict[str, np.ndarray] = {}
    back: Back | None = None
    for name, value in inputs.items():
        arrays[name], own = to_numpy(name, value)
        back = back or own
    dtype = np.dtype(
        fixed_dtype
        or (np.float32 if all(a.dtype == np.float32 for a in arrays.values()) else np.float64)
    )
    leading, batch = batch_axes(arrays, shapes)
    count = math.prod(batch)
    rows = {}
    for name, array in arrays.items():
        size = math.prod(shapes[name])
        array = array.astype(dtype, copy=False)
        if leading[name] == ():  # one row for all
            rows[name] = np.broadcast_to(array.reshape(1, size), (count, size))
        else:
            rows[name] = np.broadcast_to(array, batch + shapes[name]).reshape(count, size)
    return Batch(rows, batch, dtype, back)


def batch_axes(
    arrays: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> tuple[dict[str, Shape], Shape]:
    """The axes in front of each array's shape of one state, and those that they broadcast to."""
    leading: dict[str, Shape] = {}
    for name, array in arrays.items():
        shape = shapes[name]
        split = array.ndim - len(shape)
        if split < 0 or array.shape[split:] != shape:
            raise InputError(
                f"{name} has shape {array.shape}; expected {_shape_text(shape)}, with any batch"
                " axes in front"
            )
        leading[name] = array.shape[:split]
    try:
        batch = np.broadcast_shapes(*leading.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise InputError(f"the batch axes do not broadcast against each other: {listed}") from None
    return leading, batch


def to_numpy(name: str, value: Any) -> tuple[np.ndarray, Back | None]:
    """A real NumPy array of float32 or float64 without copying where possible, and how to give
    results back in the caller's kind.
    """
    back: Back | None = None
    if isinstance(value, np.ndarray | np.generic | list | tuple | float | int):
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{name} is not an array of numbers: {error}") from None
    elif hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        array, back = _foreign(name, value)
    else:
        raise InputError(f"{name} is {type(value).__name__}, not an array of numbers")
    if array.dtype.kind == "c":
        raise InputError(f"{name} is complex; only real numbers are accepted")
    if array.dtype.kind not in "fiub":
        hint = (
            "; in a function that is recorded, write robot.at(x) for the robot's functions"
            if array.dtype.kind == "O"
            else ""
        )
        raise InputError(f"{name} holds {array.dtype}, not numbers{hint}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array, back


def _foreign(name: str, value: Any) -> tuple[np.ndarray, Back]:
    device = getattr(value, "__dlpack_device__", None)
    if device is not None and int(device()[0]) not in _HOST_DEVICES:
        raise InputError(f"{name} lies on another device than the CPU; move it to the CPU first")
    array = None
    if hasattr(value, "__dlpack__"):
        try:
            array = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            array = None
    if array is None:
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InputError(
                f"{name} ({type(value).__module__}.{type(value).__name__}) cannot be read as an"
                f" array: {error}"
            ) from error
    return array, _way_back(value)


def _way_back(value: Any) -> Back:
    namespace = None
    if hasattr(value, "__array_namespace__"):
        namespace = value.__array_namespace__()
    else:
        namespace = sys.modules.get(type(value).__module__.partition(".")[0])
    for function in ("from_dlpack", "asarray", "array"):
        if hasattr(namespace, function):
            back: Back = getattr(namespace, function)
            return back
    return lambda array: array


def check_finite(batch: Batch) -> None:
    for name, rows in batch.rows.items():
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            index = (
                tuple(int(i) for i in np.unravel_index(int(bad[0]), batch.shape))
                if batch.shape
                else ()
            )
            raise InputError(
                f"{name} holds NaN or infinity, first in row {index}"
                if index
                else f"{name} holds NaN or infinity"
            )


def allocate(batch: Batch, outputs: Mapping[str, Shape], out: Any) -> dict[str, np.ndarray]:
    """Arrays for the results, batch axes first: fresh, or those that the user gave."""
    if out is None:
        return {name: fresh(batch.shape + shape, batch.dtype) for name, shape in outputs.items()}
    if len(outputs) > 1 and not isinstance(out, tuple | list):
        raise InputError(
            f"out is {type(out).__name__}; it must be a tuple of {len(outputs)} arrays, for"
            f" {', '.join(outputs)}"
        )
    given: Sequence[Any] = (out,) if len(outputs) == 1 else out
    if has_remark(given):
        given = given[: len(outputs)]
    if len(given) != len(outputs):
        raise InputError(
            f"out has {len(given)} arrays; it needs {len(outputs)}, for {', '.join(outputs)}"
        )
    arrays: dict[str, np.ndarray] = {}
    for (name, shape), array in zip(outputs.items(), given, strict=True):
        if not isinstance(array, np.ndarray):
            raise InputError(f"out for {name} is {type(array).__name__}; it must be a NumPy array")
        if array.shape != batch.shape + shape or array.dtype != batch.dtype:
            raise InputError(
                f"out for {name} is {array.dtype}{array.shape}; it must be"
                f" {batch.dtype}{batch.shape + shape}"
            )
        if not array.flags.writeable:
            raise InputError(f"out for {name} is read-only")
        if not array.flags.c_contiguous and _overlaps_itself(array):
            raise InputError(
                f"out for {name} has the same memory for several of its entries; give it memory of"
                " its own, as numpy.empty does"
            )
        for other, earlier in arrays.items():
            if _share(earlier, array):
                raise InputError(
                    f"out for {other} and out for {name} share memory; each needs its own"
                )
        arrays[name] = array
    return arrays


def has_remark(out: Any) -> bool:
    """Whether `out` is a result that has, behind its arrays, how redundant contacts were solved: it
    may be given again, but the remark belongs to one call.
    """
    return hasattr(out, "damping")


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have an entry in common; those for which that is too hard to tell count as
    if they had.
    """
    try:
        # NumPy's own types know two numbers only
        return np.shares_memory(a, b, max_work=cast(Any, _MOST_WORK))
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: np.ndarray) -> bool:
    """Whether entries of an array have memory in common, or may have: where steps along an axis are
    shorter than what the finer axes span.
    """
    span = array.itemsize
    for stride, n in sorted(
        (abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1
    ):
        if stride < span:
            return True
        span = stride * n
    return False


def _shape_text(shape: Shape) -> str:
    return f"(…, {', '.join(map(str, shape))})" if shape else "(…)"
