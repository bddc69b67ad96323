"""Objects that all of a process shares, such as compiled code: made once, however many threads ask
for one at the same time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Objects by key, each for as long as someone holds it, or for ever.

    While a thread makes one, others that ask for it wait; if it fails or is interrupted, the next
    one tries.
    """

    def __init__(self, *, forever: bool = False):
        self._found: MutableMapping[str, Any] = {} if forever else weakref.WeakValueDictionary()
        self._reset()
        _all.add(self)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str, make: Callable[[], T]) -> T:
        found = self._found.get(key)
        if found is None:
            with self._guard:
                turn = self._turns.get(key)
                if turn is None:
                    # gone with the last thread that waits for it
                    turn = self._turns[key] = threading.Lock()
            with turn:
                found = self._found.get(key)
                if found is None:
                    found = self._found[key] = make()
        return found

    def _reset(self) -> None:
        """No thread makes anything: at first, and in the child of a fork, in which the threads that
        did are not.
        """
        self._guard = threading.Lock()
        self._turns: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


_all: weakref.WeakSet[Shared[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for shared in list(_all):
        shared._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
