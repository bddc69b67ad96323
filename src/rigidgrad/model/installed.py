"""Robots of the package `robot_descriptions`, by name, such as "panda_description".

Its modules clone repositories when they are imported. Here nothing is fetched: what a module asks
for must be in the package's cache already.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rigidgrad.errors import InputError, RigidgradError, unknown_name

_lock = threading.Lock()  # a function of the package is exchanged while a module runs
is_name = re.compile(r"[a-z0-9_]+_description").fullmatch


class Installed(NamedTuple):
    """A robot's file; of xacro the arguments; and the folder of its package, by its name."""

    path: str
    arguments: dict[str, str] | None
    roots: dict[str, str]


def installed_robot(name: str) -> Installed:
    """Where a robot of `robot_descriptions` is on this computer."""
    module = _module(name)
    found = {key: getattr(module, key, None) for key in ("URDF_PATH", "MJCF_PATH", "XACRO_PATH")}
    path = next((p for p in found.values() if p), None)
    if path is None:
        raise InputError(f"{name!r} of robot_descriptions has neither a URDF, an MJCF nor a xacro")
    if not os.path.isfile(path):
        raise _absent(name, str(path))
    package = getattr(module, "PACKAGE_PATH", None) or os.path.dirname(path)
    arguments = getattr(module, "XACRO_ARGS", None) or {}
    return Installed(
        str(path),
        {k: str(v) for k, v in arguments.items()} if path == found["XACRO_PATH"] else None,
        {os.path.basename(os.path.normpath(package)): str(package)},
    )


def _module(name: str) -> ModuleType:
    """The module of a robot, run without the network, and not kept."""
    try:
        cache: Any = importlib.import_module("robot_descriptions._cache")
        package = importlib.import_module("robot_descriptions")
    except ImportError:
        raise RigidgradError(
            f"{name!r} is neither a bundled robot nor a file; robots of this kind come with pip"
            " install robot_descriptions"
        ) from None
    spec = importlib.util.find_spec(f"robot_descriptions.{name}")
    if spec is None or spec.loader is None:
        folder = Path(str(package.__file__)).parent
        known = [p.stem for p in folder.glob("*_description.py") if not p.stem.startswith("_")]
        raise unknown_name("robot of robot_descriptions", name, known)
    module = importlib.util.module_from_spec(spec)

    def cached(repository: str, commit: str | None = None) -> str:
        own = importlib.import_module("robot_descriptions._repositories").REPOSITORIES[repository]
        inside = own.cache_path if commit is None else f"{own.cache_path}-{commit}/{own.cache_path}"
        place = os.environ.get("ROBOT_DESCRIPTIONS_CACHE", "~/.cache/robot_descriptions")
        folder = os.path.join(os.path.expanduser(place), inside)
        if not os.path.isdir(folder):
            raise _absent(name, folder)
        return folder

    with _lock:
        before = cache.clone_to_cache
        cache.clone_to_cache = cached
        try:
            spec.loader.exec_module(module)
        finally:
            cache.clone_to_cache = before
    return module


def _absent(name: str, place: str) -> InputError:
    return InputError(
        f"{name!r} of robot_descriptions is not on this computer ({place}), and rigidgrad opens no"
        f" network: fetch it once by `python -m robot_descriptions pull {name}`"
    )
