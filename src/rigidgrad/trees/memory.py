"""Refusing what would not fit into memory, before it is tried."""

from __future__ import annotations

import os
from pathlib import Path

from rigidgrad.errors import RigidgradError


class TooLargeError(RigidgradError, MemoryError):
    """A result that the machine's memory cannot hold."""


def available() -> int:
    """Bytes that this process can still get, as far as the system tells."""
    try:
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def require(what: str, size: int, advice: str) -> None:
    """Raises TooLargeError if `size` bytes are more than nine tenths of the memory that is left."""
    left = available()
    if size > 0.9 * left:
        raise TooLargeError(
            f"{what} would take {size / 2**30:.1f} GiB, and {left / 2**30:.1f} GiB are left;"
            f" {advice}"
        )
