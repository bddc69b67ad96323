"""Where a robot comes from: a bundled name, one of robot_descriptions, a file, or text; URDF,
xacro, MJCF or SDF.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from rigidgrad.errors import InputError, ModelError, UrdfError, unknown_name
from rigidgrad.model.description import Description
from rigidgrad.model.installed import installed_robot, is_name
from rigidgrad.model.mjcf import parse_mjcf, read_mjcf
from rigidgrad.model.roots import Roots, checked_roots, folders_of
from rigidgrad.model.sdf import parse_sdf, read_sdf
from rigidgrad.model.urdf import in_folder, parse_urdf, read_urdf
from rigidgrad.model.xacro import checked_arguments, expanded_file, expanded_text
from rigidgrad.model.xml import quoted, read_bytes, root_tag

SUFFIXES = (".urdf", ".xml", ".mjcf", ".xacro", ".sdf")  # of robots' files
_named = re.compile(rb"<robot\b[^>]*\bname\s*=", re.S)


class Described(NamedTuple):
    """A robot's description, and the folders in which its packages are."""

    description: Description
    roots: Roots


def bundled() -> tuple[str, ...]:
    """Names of the robots that come with the package."""
    folder = resources.files("rigidgrad.model") / "robots"
    return tuple(
        sorted(f.name.removesuffix(".urdf") for f in folder.iterdir() if f.name.endswith(".urdf"))
    )


def describe(
    source: Any, roots: Roots = (), xacro_args: Mapping[str, Any] | None = None
) -> Described:
    """The description in a bundled robot's name, that of one of robot_descriptions, a path to a
    file, or the text of one; and `roots`, with what the robot's own package adds to them.
    """
    roots = checked_roots(roots)
    if isinstance(source, bytes | bytearray):
        return Described(_parsed(bytes(source), roots, xacro_args), roots)
    if isinstance(source, os.PathLike):
        return Described(_read(Path(source), roots, xacro_args), roots)
    if not isinstance(source, str):
        raise InputError(
            "a robot is loaded from a bundled name, a path, URDF, SDF or MJCF text, not from"
            f" {type(source).__name__}"
        )
    if source.lstrip("\ufeff \t\r\n").startswith("<"):
        return Described(_parsed(source, roots, xacro_args), roots)
    if source in bundled():
        text = (resources.files("rigidgrad.model") / "robots" / f"{source}.urdf").read_bytes()
        return Described(_parsed(text, roots, xacro_args), roots)
    looks_like_path = os.sep in source or "/" in source or "." in source or "\0" in source
    if looks_like_path or (len(source) < 1000 and os.path.exists(source)):
        return Described(_read(source, roots, xacro_args), roots)
    if len(source) > 200:
        raise UrdfError("this text is no URDF: it does not start with '<'")
    if is_name(source):
        robot = installed_robot(source)
        own = roots if isinstance(roots, Mapping) else {f: f for f in folders_of(roots)}
        more = robot.roots | dict(own)
        if robot.arguments is not None:
            xacro_args = robot.arguments | checked_arguments(xacro_args or {})
        return Described(_read(robot.path, more, xacro_args), more)
    raise unknown_name("bundled robot or file", source, bundled())


def is_description(path: Path) -> bool:
    """Whether a file is called as robots' files are, and begins as one."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        data = read_bytes(path)
    except ModelError:
        return False
    # macros alone are no robot
    return root_tag(data) in _READERS and (path.suffix != ".xacro" or bool(_named.search(data)))


def _parsed(text: str | bytes, roots: Roots, xacro_args: Mapping[str, Any] | None) -> Description:
    tag = root_tag(text)
    if xacro_args is not None:
        _check_macros(tag)
        return parse_urdf(expanded_text(text, xacro_args, roots))
    return _READERS.get(tag, _URDF)[0](text)


def _read(
    path: str | os.PathLike[str], roots: Roots, xacro_args: Mapping[str, Any] | None
) -> Description:
    tag = root_tag(read_bytes(path))
    if xacro_args is not None or os.fsdecode(path).endswith(".xacro"):
        _check_macros(tag)
        text = expanded_file(path, xacro_args, roots)
        try:
            return in_folder(parse_urdf(text), os.path.dirname(os.path.abspath(path)))
        except UrdfError as error:
            name = quoted(os.fsdecode(path), 200)[1:-1]
            raise UrdfError(f"{name}: of what xacro made of it: {error}") from None
    return _READERS.get(tag, _URDF)[1](path)


def _check_macros(tag: str) -> None:
    if tag in ("mujoco", "sdf"):
        raise InputError(f"xacro_args are for xacro files; the root element of this one is <{tag}>")


_URDF = parse_urdf, read_urdf
_READERS: dict[str, tuple[Callable[..., Description], Callable[..., Description]]] = {
    "robot": _URDF,
    "mujoco": (parse_mjcf, read_mjcf),
    "sdf": (parse_sdf, read_sdf),
}
