"""xacro: macros that make a URDF, expanded by `xacrodoc`.

Macros evaluate expressions and include files, so that a file is as trusted as a program. It is
expanded only where its name ends in .xacro, or arguments are given.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from rigidgrad.errors import InputError, RigidgradError, UrdfError
from rigidgrad.model.roots import Roots, package_folders
from rigidgrad.model.xml import parse_xml, quoted, read_bytes

_lock = threading.Lock()  # xacro and xacrodoc keep what they look up in global variables
_named = re.compile(r"""<robot\b[^>]*?\bname\s*=\s*(["'])(.*?)\1""", re.S)
_HEAD = '<robot name={} xmlns:xacro="http://www.ros.org/wiki/xacro">'


def library() -> Any:
    """xacrodoc, or an error that says how to get it."""
    try:
        return importlib.import_module("xacrodoc")
    except ImportError:
        raise RigidgradError(
            "expanding xacro needs xacrodoc: pip install 'rigidgrad[xacro]'"
        ) from None


def checked_arguments(arguments: Any) -> dict[str, str]:
    """{name: value} as text, as xacro takes it."""
    if not isinstance(arguments, Mapping) or not all(isinstance(k, str) for k in arguments):
        raise InputError("xacro_args is a dictionary {name: value}")
    words = {True: "true", False: "false"}
    return {k: words[v] if isinstance(v, bool) else str(v) for k, v in arguments.items()}


def expanded_file(
    path: str | os.PathLike[str], arguments: Mapping[str, Any] | None, roots: Roots
) -> str:
    """The URDF that a xacro file makes; what it includes is found beside it, in the packages that
    it lies in, and in `roots`.
    """
    file = Path(os.fsdecode(path)).absolute()
    data = read_bytes(file)
    where = f"{quoted(file, 200)[1:-1]}: "
    try:
        parse_xml(data, macros=True)  # no entities, bounded depth and size
    except UrdfError as error:
        raise UrdfError(f"{where}{error}") from None
    if "$" in str(file):
        raise InputError(f"{quoted(file, 200)}: xacro cannot include a path with a '$'; rename it")
    found = _named.search(data.decode("utf-8", "replace"))
    name = file.name.partition(".")[0] if found is None or "$" in found[2] else found[2]
    text = (
        f"{_HEAD.format(quoteattr(name))}<xacro:include filename={quoteattr(str(file))}/></robot>"
    )
    return _expanded(text, arguments, roots, file.parent, where)


def expanded_text(text: str | bytes, arguments: Mapping[str, Any] | None, roots: Roots) -> str:
    """The URDF that a xacro file's text makes; it includes files from the current folder on."""
    parse_xml(text, macros=True)
    plain = text.decode() if isinstance(text, bytes | bytearray) else text
    return _expanded(plain, arguments, roots, Path.cwd(), "")


def _expanded(
    text: str, arguments: Mapping[str, Any] | None, roots: Roots, folder: Path, where: str
) -> str:
    xacrodoc = library()
    given = checked_arguments(arguments or {})
    with _lock, _packages(roots, folder):
        try:
            document = xacrodoc.XacroDoc.from_string(text, subargs=given, resolve_packages=False)
            made: str = document.dom.toxml()
        except (Exception, SystemExit) as error:  # xacro's are of many kinds
            said = " ".join(str(error).split()) or type(error).__name__
            raise UrdfError(f"{where}xacro: {said[:400]}") from None
    return made


@contextlib.contextmanager
def _packages(roots: Roots, folder: Path) -> Iterator[None]:
    """Packages are looked up in our roots while this lasts."""
    packages: Any = importlib.import_module("xacrodoc.packages")

    def found(name: str) -> str:
        places = package_folders(name, str(folder), roots)
        place = next((p for p in places if os.path.isdir(p)), None)
        if place is None:
            raise packages.PackageNotFoundError(
                f"{name}; pass roots={{'{name}': folder}}, or the folder that holds it"
            )
        return place

    before = packages._finder
    packages._finder = packages.PackageFinder()
    packages._finder.finder_funcs.insert(0, (found, packages.PackageNotFoundError))
    try:
        yield
    finally:
        packages._finder = before
