"""Where a robot comes from: a bundled name, a file, or text; URDF or MJCF."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any

from rigidgrad.errors import InputError, UrdfError, unknown_name
from rigidgrad.model.description import Description
from rigidgrad.model.mjcf import is_mjcf, parse_mjcf, read_mjcf
from rigidgrad.model.urdf import parse_urdf, read_urdf
from rigidgrad.model.xml import read_bytes


def bundled() -> tuple[str, ...]:
    """Names of the robots that come with the package."""
    folder = resources.files("rigidgrad.model") / "robots"
    return tuple(sorted(f.name.removesuffix(".urdf") for f in folder.iterdir() if f.name.endswith(".urdf")))


def describe(source: Any) -> Description:
    """The description in a bundled robot's name, a path to a URDF or MJCF file, or the text of one."""
    if isinstance(source, bytes | bytearray):
        return _parsed(bytes(source))
    if isinstance(source, os.PathLike):
        return _read(Path(source))
    if not isinstance(source, str):
        raise InputError(f"a robot is loaded from a bundled name, a path, URDF or MJCF text, not from {type(source).__name__}")
    if source.lstrip("\ufeff \t\r\n").startswith("<"):
        return _parsed(source)
    if source in bundled():
        return parse_urdf((resources.files("rigidgrad.model") / "robots" / f"{source}.urdf").read_bytes())
    looks_like_path = os.sep in source or "/" in source or "." in source or "\0" in source
    if looks_like_path or (len(source) < 1000 and os.path.exists(source)):
        return _read(source)
    if len(source) > 200:
        raise UrdfError("this text is no URDF: it does not start with '<'")
    raise unknown_name("bundled robot or file", source, bundled())


def _parsed(text: str | bytes) -> Description:
    return parse_mjcf(text) if is_mjcf(text) else parse_urdf(text)


def _read(path: str | os.PathLike[str]) -> Description:
    return read_mjcf(path) if is_mjcf(read_bytes(path)) else read_urdf(path)
