"""The squares of what a user's function returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from rigidgrad.control.terms.activation import Activation
from rigidgrad.control.terms.cost import Cost, Final, Weight
from rigidgrad.control.terms.function import Function


class Custom(Function, Cost):
    """½ Σ w r² of a residual r that a Python function returns, a number or a tuple of them (see
    `Function`). `name` is what reports call it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        weight: Weight = 0.0,
        final: Final = 0.0,
        *,
        parameters: ArrayLike | None = None,
        name: str | None = None,
        activation: Activation | None = None,
    ):
        Function.__init__(self, function, parameters, name)
        Cost.__init__(self, weight, final, activation)
