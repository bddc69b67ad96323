"""How functions of this package are compiled: by numba, without the GIL, with multiply-adds, kept on disk.

Numba's cache looks at the file of a function alone. Kernels here call functions of other files, so the stamp of every entry is a hash over
all sources of this package: an entry made from other sources is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}


@cache
def _stamp() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


def kernel(function: Callable[..., Any], *, inlined: bool = False) -> Any:
    """The function, compiled for each set of argument types on first use; `inlined` into the code of its callers, where calls would empty all registers."""
    options = _OPTIONS | ({"forceinline": True} if inlined else {})
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
        with contextlib.suppress(AttributeError, OSError):  # numba's internals may change: its own stamp then has to do
            dispatcher._cache._cache_file._source_stamp = _stamp()
    except RuntimeError:  # nowhere to keep anything
        dispatcher = numba.njit(**options)(function)
    return dispatcher


inlined = partial(kernel, inlined=True)


_users: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()


def as_kernel(function: Any) -> Any:
    """A user's function, compiled unless it already is; once for each function object, and not kept on disk."""
    if hasattr(function, "py_func"):
        return function
    found = _users.get(function)
    if found is None:
        found = _users[function] = numba.njit(**_OPTIONS)(function)
    return found
