"""Python functions to be translated, as their sources say."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

Result = TypeVar("Result")


class Loops:
    """A Python function to be translated."""

    def __init__(
        self,
        function: Callable[..., Any],
        reorder: bool = False,
        recorded: Callable[..., Any] | None = None,
    ) -> None:
        self.reorder = reorder  # whether sums may be reordered
        self.recorded = recorded or function  # what Python runs
        self.function = function
        self.__name__ = function.__name__
        # names that begin as whole numbers and become others in a loop
        self.reals: set[str] = set()

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The source; an OSError where there is none, or something else at its place in the
        file.
        """
        try:
            found = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        except (TypeError, SyntaxError, tokenize.TokenError) as error:
            raise OSError(str(error)) from None
        if not isinstance(found, ast.FunctionDef) or found.name != self.function.__name__:
            raise OSError("only functions made by def are compiled")
        return found

    @cached_property
    def parameters(self) -> list[str]:
        return list(inspect.signature(self.function).parameters)

    @cached_property
    def cells(self) -> set[str]:
        """Names that are assigned in more than one place."""
        count = Counter(self.parameters)
        loops = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                loops.add(id(node.target))
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and id(node) not in loops
            ):
                count[node.id] += 1
        return {name for name, times in count.items() if times > 1}

    @cached_property
    def outside(self) -> dict[str, Any]:
        """What names mean that the function does not assign."""
        closure = inspect.getclosurevars(self.function)
        return {**vars(builtins), **self.function.__globals__, **closure.nonlocals}


class Recorder:
    """Memory of a kernel that Python runs, with a method for each of the words below that it knows:
    what the kernel does to it is written down instead of compiled.
    """


def emits(function: Callable[..., Result]) -> Callable[..., Result]:
    """Marks a function that writes IR itself: its first argument is the `Code`. Called from Python,
    it is the method of that name of a `Recorder`, its first argument.
    """

    @wraps(function)
    def word(first: Any, *rest: Any) -> Result:
        if isinstance(first, Recorder):
            recorded: Result = getattr(first, function.__name__)(*rest)
            return recorded
        return function(first, *rest)

    word.writes_code = True  # type: ignore[attr-defined]
    return word
