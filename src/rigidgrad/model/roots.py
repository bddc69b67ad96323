"""Packages that robots' files name, as `package://NAME/…` or `$(find NAME)`: folders near the
file, or ones that a user names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rigidgrad.errors import InputError

Roots = Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]


def checked_roots(roots: Roots) -> Roots:
    """A folder, folders, or {package: folder}."""
    try:
        if all(isinstance(r, str) for r in folders_of(roots)):
            return roots
    except TypeError:  # one is no path, or they are no sequence
        pass
    raise InputError("roots are folders that hold packages, or {package: folder}")


def folders_of(roots: Roots) -> list[str]:
    """All folders of `roots`."""
    return [
        os.fspath(r)
        for r in (
            roots.values()
            if isinstance(roots, Mapping)
            else [roots]
            if isinstance(roots, str | os.PathLike)
            else roots
        )
    ]


def package_folders(package: str, folder: str | None, roots: Roots) -> list[str]:
    """Folders that may be a package of this name: one that `roots` names, one in a folder of
    `roots`, or one above or beside `folder`.
    """
    if package in ("", ".", ".."):
        return []
    found = [os.fspath(roots[package])] if isinstance(roots, Mapping) and package in roots else []
    found += [os.path.join(r, package) for r in folders_of(roots)]
    if folder:
        real = Path(os.path.realpath(folder))
        found += [str(p) for p in (real, *real.parents) if p.name == package]
        found += [str(p / package) for p in real.parents if (p / package / "package.xml").is_file()]
    return found
