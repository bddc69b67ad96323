"""Where files of meshes may lie: in the folder of the robot's file, in the package around it, or in
folders that a user names.
"""

from __future__ import annotations

import os
from pathlib import Path

from rigidgrad.errors import InputError, printable
from rigidgrad.model.roots import Roots, folders_of, package_folders

__all__ = ["Roots", "mesh_file"]


def mesh_file(name: str, folder: str | None, roots: Roots = ()) -> str:
    """The path of a mesh that a robot's file names.

    `package://NAME/rest`, or with three slashes, as some files have it, is `rest` in the nearest
    folder above the robot's file that is called NAME, or in one of the `roots`: {"NAME": folder},
    or folders that have a folder NAME. Other names are relative to the robot's file. What leads out
    of the package (the nearest folder above with a package.xml, or the one above the robot's file),
    by `..` or by a link, is not read.
    """
    said = printable(name)
    text = name.removeprefix("file://") if name.startswith("file://") else name
    if name.startswith(("package://", "model://")):
        package, _, rest = name.partition("://")[2].lstrip("/").partition("/")
        for root in package_folders(package, folder, roots):
            found = _within(root, rest)
            if found is not None and os.path.isfile(found):
                return found
        raise InputError(
            f"mesh {said!r}: no folder {package!r} with that file above the robot's own; name it:"
            f" roots={{{package!r}: folder}}"
        )
    if "://" in text:
        raise InputError(f"mesh {said!r} is not a file on this computer, and is not fetched")
    allowed = [
        *([_own_root(folder)] if folder else []),
        *(os.path.realpath(r) for r in folders_of(roots)),
    ]
    for base in [*([folder] if folder else []), *folders_of(roots)]:
        path = os.path.realpath(os.path.join(base, text))
        if os.path.isfile(path):
            if any(os.path.commonpath([root, path]) == root for root in allowed):
                return path
            raise InputError(
                f"mesh {said!r} is outside of the robot's folder: name the folder that it may be"
                " read from: roots=[folder]"
            )
    where = (
        f"in {folder!r}"
        if folder
        else "anywhere: the robot was given as text, so name a folder: roots=[folder]"
    )
    raise InputError(f"mesh {said!r} is not found {where}")


def _within(root: str, rest: str) -> str | None:
    base = os.path.realpath(root)
    path = os.path.realpath(os.path.join(base, rest))
    return path if os.path.commonpath([base, path]) == base else None


def _own_root(folder: str) -> str:
    real = Path(os.path.realpath(folder))
    for parent in (real, *list(real.parents)[:3]):
        if (parent / "package.xml").is_file():
            return str(parent)
    return str(real.parent if len(real.parts) > 2 else real)
