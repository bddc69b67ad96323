"""Exceptions and warnings of rigidgrad. Every error that a user can cause is one of these."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class RigidgradError(Exception):
    """Base of all errors that rigidgrad raises on purpose."""


class ModelError(RigidgradError, ValueError):
    """A robot description that is malformed, contradictory or physically impossible."""


class UrdfError(ModelError):
    """A URDF that cannot be read; the message names the element and its line."""


class InputError(RigidgradError, ValueError):
    """An argument with a wrong shape, type or value."""


class UsageError(InputError):
    """A command or a task file that asks for something that there is not; the command line exits
    with 2.
    """


class FallenError(RigidgradError):
    """A robot that was to walk lies on the ground."""


class UnknownNameError(RigidgradError, KeyError):
    """A joint, link, frame, robot or function that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])


class ModelWarning(UserWarning):
    """Something in a robot description that is odd, but was accepted."""


class PassedOverWarning(ModelWarning):
    """Parts of a robot description that are for other programs, such as sensors and plugins."""


def warn(text: str, category: type[Warning]) -> None:
    """A warning at the line that called rigidgrad, however deep inside it comes up."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def printable(text: object, keep: str = "") -> str:
    """`text` with characters escaped that a terminal would obey or hide (control characters,
    changes of direction, …), but those in `keep`.
    """
    said = str(text)
    if said.isprintable():
        return said
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii")
        for c in said
    )


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> UnknownNameError:
    """An error for `name`, listing the nearest of the `valid` names. `kind` is what it names."""
    names = sorted(valid)
    # comparing is slow: enough for every real robot, bounded for a hostile one
    candidates = [n for n in names[:2000] if len(n) <= 100]
    near = difflib.get_close_matches(str(name)[:100], candidates, n=4, cutoff=0.5)
    if near:
        hint = "Did you mean " + " or ".join(repr(n) for n in near) + "?"
    elif names:
        shown = ", ".join(repr(n) for n in names[:12])
        hint = f"There are: {shown}" + (f" and {len(names) - 12} more." if len(names) > 12 else ".")
    else:
        hint = "There are none."
    said = name if not isinstance(name, str) or len(name) <= 200 else name[:200] + "…"
    return UnknownNameError(f"no {kind} is called {said!r}. {hint}")
