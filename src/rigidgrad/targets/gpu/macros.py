"""Macros of generated libraries: with a prefix, and gone where the library ends, so that they meet
none of their user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX = "RIGIDGRAD_"
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def defined(texts: Iterable[str]) -> list[str]:
    """Names of macros without the prefix."""
    found = {name for text in texts for name in _DEFINED.findall(text)}
    return sorted(name for name in found if not name.startswith(PREFIX))


def prefixed(text: str, names: Iterable[str]) -> str:
    return re.sub(rf"\b({'|'.join(names)})\b", rf"{PREFIX}\1", text)


def ended(names: Iterable[str]) -> str:
    """Undefines macros."""
    return "\n".join(f"#undef {PREFIX}{name}" for name in names)
