"""What a user's function returns, or a term, at a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from rigidgrad.control.terms.inequality import Inequality
from rigidgrad.control.terms.term import Term


class Equality(Inequality):
    """r = value, where r is what a Python function of x and u returns, or the residual of a term;
    the rest as in `Inequality`. `name` is what reports call it.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Term,
        value: ArrayLike = 0.0,
        *,
        at: ArrayLike = "all",
        parameters: ArrayLike | None = None,
        name: str | None = None,
    ):
        super().__init__(function, at=at, parameters=parameters, name=name)
        self.value = value

    def _sides(self) -> tuple[tuple[str, Any], tuple[str, Any]]:
        return ("lower", self.value), ("upper", self.value)
