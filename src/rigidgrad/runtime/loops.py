"""Loops over arrays as compiled functions: translated for the types of their arguments on first
use, kept on disk, called without the GIL.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import weakref
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.program.recorder import Value
from rigidgrad.runtime import cache as disk, native
from rigidgrad.targets.loops.render import ArrayType, Fixed, render
from rigidgrad.targets.loops.source import Loops, Recorder
from rigidgrad.targets.loops.values import C_FUNCTIONS

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_BOOL, _INT, _FLOAT = (bool, np.bool_), (int, np.integer), (float, np.floating)
_RESULTS = 8  # numbers that a function may return
_guard = threading.RLock()
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
_function_type = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)


class Kernel(Loops, Generic[*Arguments, Result]):
    """A function of arrays, numbers, other kernels, and tuples of these."""

    def __init__(
        self,
        function: Callable[[*Arguments], Result],
        reorder: bool = False,
        recorded: Callable[[*Arguments], Result] | None = None,
    ) -> None:
        super().__init__(function, reorder, recorded)
        self._compiled: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def __call__(self, *arguments: *Arguments) -> Result:
        words: list[int] = []
        try:
            call, returned, _ = self._for(_described(arguments, words))
        except _NotCompiledError:
            recorded: Result = self.recorded(*arguments)
            return recorded
        if call is None:
            own: Result = self.function(*_plain(arguments))
            return own
        given = struct.pack(f"{len(words)}q", *words)
        if returned is None:
            call(given, None, _library())
            return None  # type: ignore[return-value]  # Result is None
        result = (ctypes.c_int64 * _RESULTS)()
        call(given, result, _library())
        found: Result = _result(returned, iter(result))
        return found

    def over(self, *rest: Any) -> Callable[[int, int, int], None]:
        """The function of three whole numbers that calls this one with them and the rest: what it
        costs is paid once for many calls.
        """
        words: list[int] = []
        call, _, _ = self._for(("int", "int", "int", *_described(rest, words)))
        if call is None:
            plain = _plain(rest)
            return lambda part, start, stop: self.function(part, start, stop, *plain)
        given, library = struct.pack(f"{len(words)}q", *words), _library()

        def one(
            part: int, start: int, stop: int, held: Any = rest
        ) -> None:  # the arrays must outlive the call
            call(struct.pack("3q", part, start, stop) + given, None, library)

        return one

    def _for(self, described: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """What is compiled for these types: the function to call, what it returns, and its code,
        which must be kept.

        No function where a user's has no source, as one that was typed into a prompt: Python then
        runs it itself.
        """
        found = self._compiled.get(described)
        if found is None:
            with _guard:
                found = self._compiled.get(described) or self._compile(_types(described))
                self._compiled[described] = found
        return found

    def _compile(self, types: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        name = _name(self, types)
        key = None if name is None else disk.key({"loops": name})
        entry = None if key is None else disk.read(key)
        if entry is None:
            try:
                text, returned = render(self, types)
            except OSError:
                return None, None, None
            except (TypeError, NameError, AttributeError, KeyError, ValueError) as error:
                if name is not None:
                    raise
                names = (
                    ", ".join(t.value.__name__ for t in types if isinstance(t, Fixed))
                    or self.__name__
                )
                raise InputError(
                    f"{names} cannot be compiled: {error}. Use loops over range, conditions, and"
                    " arithmetic on elements."
                ) from error
            entry = disk.Entry(
                {"function": self.__name__, "robot": "", "returned": returned},
                native.compile_ir(text, misched=True, passes=True),
            )
            if key is not None:
                disk.write(key, entry)
        loaded = native.load_object(entry.code)
        returned = entry.meta["returned"]
        return _function_type(loaded.address("kernel")), returned, loaded


class _NotCompiledError(InputError):
    """What only Python can work with: a function without a source, or what records."""


AnyKernel = Kernel[*tuple[Any, ...], Any]


@cache
def _library() -> Any:
    """Addresses of functions in the C library."""
    return (ctypes.c_int64 * len(C_FUNCTIONS))(*(native.symbol(name) for name in C_FUNCTIONS))


def kernel(
    function: Callable[[*Arguments], Result], *, reorder: bool = False
) -> Kernel[*Arguments, Result]:
    """The function, compiled when it is called; with `reorder`, sums may be reordered for SIMD. For
    arguments that record, Python runs it.
    """
    return Kernel(function, reorder)


_users: weakref.WeakKeyDictionary[Callable[..., Any], AnyKernel] = weakref.WeakKeyDictionary()


def as_kernel(function: Any) -> AnyKernel:
    """A user's function, compiled unless it already is; once for each function object."""
    if isinstance(function, Kernel):
        return function
    plain = getattr(function, "py_func", function)  # of numba's
    found = _users.get(plain)
    if found is None:
        found = _users[plain] = Kernel(plain)
    return found


def _described(arguments: Any, words: list[int]) -> tuple[Any, ...]:
    """Types of arguments, as `_types` reads them; their values are appended to `words`."""
    types: list[Any] = []
    for x in arguments:
        if isinstance(x, np.ndarray):
            types.append((x.dtype.char, x.ndim, x.flags.c_contiguous))
            words.append(id(x))
        elif isinstance(x, _BOOL):
            types.append("bool")
            words.append(int(x))
        elif isinstance(x, _INT):
            types.append("int")
            words.append(int(x))
        elif isinstance(x, _FLOAT):
            types.append("float")
            words.append(struct.unpack("q", struct.pack("d", x))[0])
        elif isinstance(x, tuple):
            types.append(_described(x, words))
        elif isinstance(x, Kernel):
            types.append(Fixed(x))
        elif isinstance(x, FunctionType | Recorder | Value):
            raise _NotCompiledError(f"compiled code takes no {type(x).__name__}")
        else:
            raise InputError(f"compiled code takes no {type(x).__name__}")
    return tuple(types)


def _plain(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with Python's own functions in place of kernels."""
    return tuple(
        x.function if isinstance(x, Kernel) else _plain(x) if isinstance(x, tuple) else x
        for x in arguments
    )


def _types(described: tuple[Any, ...]) -> tuple[Any, ...]:
    """As `render` wants them; what is described is a plain tuple, as that is made for every
    call.
    """
    return tuple(
        (
            t
            if isinstance(t, (str, Fixed))
            else ArrayType(*t)
            if len(t) == 3 and isinstance(t[-1], bool)
            else _types(t)
        )
        for t in described
    )


def _name(function: AnyKernel, types: Any) -> str | None:
    """What tells this kernel from others on disk; None where it is made of a user's functions."""
    plain = function.function
    if (plain.__module__ or "").split(".")[0] != _PACKAGE:
        return None
    parts = [f"{plain.__module__}.{plain.__qualname__}"]
    for t in types:
        if isinstance(t, Fixed):
            parts.append(_name(t.value, ()) or "")
        elif isinstance(t, tuple) and not isinstance(t, ArrayType):
            parts.append(_name(function, t) or "")
        else:
            parts.append(repr(t))
    return None if "" in parts else f"({' '.join(parts)})"


def _result(returned: Any, words: Any) -> Any:
    if isinstance(returned, tuple | list):
        return tuple(_result(x, words) for x in returned)
    word = next(words)
    if returned == "float":
        return struct.unpack("d", struct.pack("q", word))[0]
    return bool(word) if returned == "bool" else word
