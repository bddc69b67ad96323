"""States and controls between processes, through shared memory: `rg.link`.

A controller in Python serves a robot's process in C, C++ or Python a thousand times a second,
without sockets. `header()` is what the other side includes.
"""

from __future__ import annotations

from importlib import resources

from rigidgrad.link.channel import Message
from rigidgrad.link.ends import Link
from rigidgrad.link.memory import path_of, remove
from rigidgrad.link.serve import Served, serve

HEADER = "rigidgrad_link.h"

__all__ = ["HEADER", "Link", "Message", "Served", "header", "path_of", "remove", "serve"]


def header() -> str:
    """The header of C and C++, `rigidgrad_link.h`, as text."""
    return resources.files(__name__).joinpath(HEADER).read_text("utf-8")
