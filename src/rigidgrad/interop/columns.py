"""Functions of the configuration manifold run on arrays of JAX or PyTorch: these trace and
differentiate them by themselves, to any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rigidgrad.algorithms import manifold
from rigidgrad.model.model import Model


class Column:
    """One number of every state of a batch, as a scalar of our algorithms. `xp` is `jax.numpy` or
    `torch`.
    """

    __slots__ = ("value", "xp")

    def __init__(self, xp: Any, value: Any):
        self.xp, self.value = xp, value

    def _new(self, value: Any) -> Column:
        return Column(self.xp, value)

    def __add__(self, other: Any) -> Column:
        return self._new(self.value + _plain(other))

    def __sub__(self, other: Any) -> Column:
        return self._new(self.value - _plain(other))

    def __rsub__(self, other: Any) -> Column:
        return self._new(_plain(other) - self.value)

    def __mul__(self, other: Any) -> Column:
        return self._new(self.value * _plain(other))

    def __truediv__(self, other: Any) -> Column:
        return self._new(self.value / _plain(other))

    def __rtruediv__(self, other: Any) -> Column:
        return self._new(_plain(other) / self.value)

    def __neg__(self) -> Column:
        return self._new(-self.value)

    def __lt__(self, other: Any) -> Column:
        return self._new(self.value < _plain(other))

    __radd__, __rmul__ = __add__, __mul__

    def sincos(self) -> tuple[Column, Column]:
        return self._new(self.xp.sin(self.value)), self._new(self.xp.cos(self.value))

    def sqrt(self) -> Column:
        return self._new(self.xp.sqrt(self.value))

    def atan2(self, y: Any, x: Any) -> Column:
        return self._new(self.xp.arctan2(_plain(y), _plain(x)))

    def select(self, a: Any, b: Any) -> Column:
        return self._new(self.xp.where(self.value, _plain(a), _plain(b)))


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Column) else x


def integrate(xp: Any, model: Model, q: Any, dv: Any) -> Any:
    """q ⊕ dv."""
    return q + dv if model.nq == model.nv else _columns(xp, manifold.integrate, model, q, dv)


def difference(xp: Any, model: Model, q0: Any, q1: Any) -> Any:
    """q1 ⊖ q0."""
    return q1 - q0 if model.nq == model.nv else _columns(xp, manifold.difference, model, q0, q1)


def _columns(xp: Any, function: Callable[..., Any], model: Model, *inputs: Any) -> Any:
    columns = [tuple(Column(xp, x[..., k]) for k in range(x.shape[-1])) for x in inputs]
    return xp.stack([_plain(y) for y in function(model, *columns)], -1)


def constant(xp: Any, x: np.ndarray, like: Any) -> Any:
    """An array of the kind of another, where that one lies."""
    if hasattr(like, "new_tensor"):  # PyTorch's
        return like.new_tensor(x)
    return xp.asarray(x, dtype=like.dtype)
