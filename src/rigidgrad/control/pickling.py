"""Functions that users write go to other processes by their names: those that cannot are named,
with what to do.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rigidgrad.errors import InputError

# callers that take functions along, or do not need to
_ABLE = ("cloudpickle", "dill", "copy")


def check_functions(functions: Iterable[tuple[str, Callable[..., Any]]], depth: int = 2) -> None:
    """An error if one of these, with what it serves, cannot be pickled by whoever pickles `depth`
    frames above.
    """
    if sys._getframe(depth).f_globals.get("__name__", "").partition(".")[0] in _ABLE:
        return
    for what, function in functions:
        try:
            pickle.dumps(function)
        except Exception:
            name = getattr(function, "__qualname__", type(function).__name__)
            where = getattr(function, "__module__", None)
            raise InputError(
                f"{what} is the function {name!r} of {where!r}, a lambda or a function inside of"
                " another, which no other process finds by its name, so that this cannot be"
                " pickled: write it with `def` at the top level of a module that can be imported"
                " there"
            ) from None
