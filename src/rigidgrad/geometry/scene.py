"""A scene: named solids that stand still while a robot moves among them."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.files import Unreadable, file_name, read_regular
from rigidgrad.geometry.outlines import Outline, outlines
from rigidgrad.geometry.shapes import (
    Box,
    Capsule,
    Cylinder,
    Ellipsoid,
    HeightField,
    Mesh,
    Plane,
    Points,
    Shape,
    Sphere,
)
from rigidgrad.model.pose import pose_from_xyz_rpy

KINDS = {
    "box": Box,
    "sphere": Sphere,
    "capsule": Capsule,
    "plane": Plane,
    "cylinder": Cylinder,
    "ellipsoid": Ellipsoid,
    "heightfield": HeightField,
    "mesh": Mesh,
    "points": Points,
}
_MAX_BYTES = 16 << 20


class Scene:
    """Shapes by name; those without one are called by their kind and their number, as `box 0`. It
    is read when it is made: change it with `with_shapes`, not in place. `shapes` are `rg.Box`,
    `rg.Sphere`, `rg.Capsule`, `rg.Plane`, `rg.Cylinder`, `rg.Ellipsoid`, `rg.HeightField`,
    `rg.Mesh` and `rg.Points`.
    """

    def __init__(self, shapes: Iterable[Shape] = ()):
        found = tuple(shapes) if isinstance(shapes, Iterable) else (shapes,)
        self._shapes: dict[str, Shape] = {}
        count: dict[str, int] = {}
        for shape in found:
            if not isinstance(shape, Shape):
                raise InputError(
                    f"a scene is a list of rg.{', rg.'.join(k.__name__ for k in KINDS.values())}; this"
                    f" holds {type(shape).__name__}"
                )
            number = count.get(shape.kind, 0)
            count[shape.kind] = number + 1
            name = f"{shape.kind} {number}" if shape.name is None else str(shape.name)
            if name in self._shapes:
                raise InputError(f"two shapes of a scene are called {name!r}")
            self._shapes[name] = shape
        self._numbers: dict[
            np.dtype, tuple[np.ndarray, ...]
        ] = {}  # what compiled code reads, by dtype

    @property
    def names(self) -> tuple[str, ...]:
        """Of the shapes, in order."""
        return tuple(self._shapes)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """In the order of their names."""
        return tuple(self._shapes.values())

    @cached_property
    def outlines(self) -> tuple[Outline, ...]:
        """What its shapes look like, for pictures."""
        return outlines(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __getitem__(self, name: str) -> Shape:
        try:
            return self._shapes[name]
        except (KeyError, TypeError):
            raise unknown_name("shape", name, self._shapes) from None

    def __repr__(self) -> str:
        return (
            f"<Scene of {len(self)} shapes:"
            f" {', '.join(self.names[:8])}{', …' if len(self) > 8 else ''}>"
        )

    def __reduce__(self) -> Any:
        return Scene, (self.shapes,)

    def with_shapes(self, shapes: Iterable[Shape]) -> Scene:
        """A scene with more shapes; one with the name of another takes its place."""
        added = Scene(shapes)
        names = [n for n in self.names if self[n].name is None or n not in added.names]
        return Scene([*(self[n] for n in names), *added.shapes])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Scene:
        """From a TOML file: `[[shape]]` tables with a `kind` and the arguments of that kind; `xyz`
        and `rpy` stand for a pose. Files of meshes lie in the file's folder.
        """
        name = file_name(path)
        try:
            table = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
        except Unreadable as reason:
            raise InputError(f"scene {name!r}: {reason}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"scene {name!r} is no TOML: {error}") from None
        entries = table.pop("shape", [])
        if table or not isinstance(entries, list):
            raise InputError(
                f"scene {name!r} holds [[shape]] tables alone, not"
                f" {', '.join(table) or 'a single [shape]'}"
            )
        return cls([_shape(entry, k, Path(name).parent) for k, entry in enumerate(entries)])


def _shape(entry: Any, k: int, folder: Path) -> Shape:
    where = f"[[shape]] number {k + 1}"
    word = entry.get("kind") if isinstance(entry, Mapping) else None
    if not isinstance(word, str) or word not in KINDS:
        raise InputError(f"{where}: kind is one of {', '.join(KINDS)}")
    values = {key: value for key, value in entry.items() if key != "kind"}
    kind = KINDS[word]
    keys = set(inspect.signature(kind).parameters)
    if kind is not Points:
        keys = (keys - {"pose"}) | ({"xyz", "rpy"} if "pose" in keys else set())
    for key in values:
        if key not in keys:
            raise InputError(f"{where}: {unknown_name(f'key of {word}', key, keys)}")
    if kind is not Points and ("rpy" in values or "xyz" in values):
        try:
            values["pose"] = pose_from_xyz_rpy(
                values.pop("xyz", (0.0, 0.0, 0.0)), values.pop("rpy", (0.0, 0.0, 0.0))
            )
        except (TypeError, ValueError):
            raise InputError(f"{where}: xyz and rpy are three numbers each") from None
    if isinstance(values.get("path"), str):
        values["path"] = inside(folder, values["path"])
    try:
        shape: Shape = kind(**values)
        return shape
    except TypeError as error:
        # a key is missing
        raise InputError(f"{where}: {str(error).replace('.__init__()', '')}") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def inside(folder: str | os.PathLike[str], name: str) -> str:
    """The path of a file in a folder; one that leads out of it, by `..` or by a link, is an
    error.
    """
    root = os.path.realpath(folder)
    found = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([root, found]) != root:
        raise InputError(f"file {name!r} is outside of {root!r}, and is not read")
    return found


def as_scene(scene: Any) -> Scene:
    if scene is None:
        return Scene()
    if isinstance(scene, Scene):
        return scene
    if isinstance(scene, list | tuple):
        return Scene(scene)
    raise InputError(f"a scene is rg.Scene([…]), not {type(scene).__name__}")


def bounding_ball(points: np.ndarray, radii: np.ndarray) -> tuple[np.ndarray, float]:
    """A ball around balls: about the middle of their box, which is near the least."""
    low, high = (points - radii[:, None]).min(axis=0), (points + radii[:, None]).max(axis=0)
    middle = (low + high) / 2
    return middle, float((np.linalg.norm(points - middle, axis=1) + radii).max())
