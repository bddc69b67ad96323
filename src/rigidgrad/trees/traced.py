"""Plain Python functions over scalars as numba sees them: traced into straight-line code where they are called, for numbers and for lanes.

Numba would type, lower and optimise every small function by itself, again in every function that calls it: seconds for a kernel. Tracing takes milliseconds.
Arguments and results are numbers, lanes, or nested tuples of them, all of one dtype.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from rigidgrad.trees.lanes import Lanes, intrinsic, splat_value


class _Shape:
    """Stands for a scalar when only the shape of a result is wanted."""

    def _same(self, other: Any = None) -> _Shape:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same

    def __neg__(self) -> _Shape:
        return self


class _Value:
    """A scalar of the code that is being written: a number or lanes."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, instruction: str, left: Any, right: Any) -> _Value:
        wide = self.value.type
        for x in (left, right):
            if isinstance(x, _Value) and isinstance(x.value.type, ir.VectorType):
                wide = x.value.type
        a, b = (fitted(self.builder, x, wide) for x in (left, right))
        return _Value(self.builder, getattr(self.builder, instruction)(a, b, flags=("contract",)))

    def __add__(self, other: Any) -> _Value:
        return self._with("fadd", self, other)

    def __radd__(self, other: Any) -> _Value:
        return self._with("fadd", other, self)

    def __sub__(self, other: Any) -> _Value:
        return self._with("fsub", self, other)

    def __rsub__(self, other: Any) -> _Value:
        return self._with("fsub", other, self)

    def __mul__(self, other: Any) -> _Value:
        return self._with("fmul", self, other)

    def __rmul__(self, other: Any) -> _Value:
        return self._with("fmul", other, self)

    def __truediv__(self, other: Any) -> _Value:
        return self._with("fdiv", self, other)

    def __rtruediv__(self, other: Any) -> _Value:
        return self._with("fdiv", other, self)

    def __neg__(self) -> _Value:
        return _Value(self.builder, self.builder.fneg(self.value))


def fitted(builder: Any, x: Any, wide: Any) -> Any:
    """The IR value of a scalar or a Python number as type `wide`."""
    if not isinstance(x, _Value):
        number = float(x)
        return ir.Constant(wide, [number] * wide.count if isinstance(wide, ir.VectorType) else number)
    if isinstance(wide, ir.VectorType) and not isinstance(x.value.type, ir.VectorType):
        return splat_value(builder, x.value, wide.count)
    return x.value


def traced(function: Callable[..., Any]) -> Any:
    """`function`, to be called in compiled code."""

    def define(typingctx: Any, *args: Any) -> Any:
        leaves = [leaf for a in args for leaf in _leaves(a)]
        scalar = next((t for t in leaves if isinstance(t, Lanes)), leaves[0])
        returned = _typed(function(*(_like(a, lambda t: _Shape()) for a in args)), scalar)

        def code(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            inputs = [_unpacked(builder, t, v) for t, v in zip(sig.args, values, strict=True)]
            wide = context.get_value_type(scalar)
            return _packed(context, builder, sig.return_type, function(*inputs), wide)

        return returned(*args), code

    names = [p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(function).parameters.values()]
    define.__signature__ = inspect.Signature([inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD), *names])  # type: ignore[attr-defined]
    define.__name__ = function.__name__
    return intrinsic(define)


def _is_tuple(type_: Any) -> bool:
    return isinstance(type_, types.BaseTuple)


def _leaves(type_: Any) -> list[Any]:
    return [leaf for t in type_ for leaf in _leaves(t)] if _is_tuple(type_) else [type_]


def _like(type_: Any, make: Callable[[Any], Any]) -> Any:
    return tuple(_like(t, make) for t in type_) if _is_tuple(type_) else make(type_)


def _typed(shape: Any, scalar: Any) -> Any:
    return types.BaseTuple.from_types([_typed(x, scalar) for x in shape]) if isinstance(shape, tuple) else scalar


def _unpacked(builder: Any, type_: Any, value: Any) -> Any:
    if not _is_tuple(type_):
        return _Value(builder, value)
    return tuple(_unpacked(builder, t, v) for t, v in zip(type_, cgutils.unpack_tuple(builder, value, len(type_)), strict=True))


def _packed(context: Any, builder: Any, type_: Any, result: Any, wide: Any) -> Any:
    if not _is_tuple(type_):
        return fitted(builder, result, wide)
    return context.make_tuple(builder, type_, [_packed(context, builder, t, x, wide) for t, x in zip(type_, result, strict=True)])
