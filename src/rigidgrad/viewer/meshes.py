"""The meshes of a robot's description, read from the robot's folder or named ones, with the colours
of their files, and made of few triangles.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from rigidgrad.errors import InputError, printable
from rigidgrad.files import Unreadable, read_regular
from rigidgrad.geometry.collada import Color, Part, read_collada
from rigidgrad.geometry.files import Roots, mesh_file
from rigidgrad.geometry.meshes import MAX_BYTES, read_mesh, triangles
from rigidgrad.model.description import Visual
from rigidgrad.viewer.surfaces import Surface, area, shares, surface

PAGE_TRIANGLES = 30_000  # of a robot on a saved page: below 0.8 MB
LIVE_TRIANGLES = 40_000  # of one on a live page, which browsers without a graphics card draw, too

_KEPT = 64  # files whose parts are kept
_LARGEST = 1e4  # metres


@dataclass(frozen=True)
class Looks:
    """What is drawn for a mesh: surfaces in the link's frame before the visual's placement, with
    their colours.
    """

    parts: tuple[tuple[Surface, Color | None], ...]


@dataclass
class Meshes:
    """Those of a robot, by visual; and why others are not drawn."""

    looks: dict[int, Looks] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    had: int = 0  # triangles in the files, of what is drawn
    drawn: int = 0
    moved: float = 0.0  # metres that a corner was moved at most

    @property
    def note(self) -> str:
        if self.drawn >= self.had:
            return ""
        return (
            f"Meshes of {self.had:,} triangles are drawn with {self.drawn:,}, whose corners are up"
            f" to {1e3 * self.moved:.2g} mm off."
        )


def read_meshes(visuals: Sequence[Visual], roots: Roots, most: int) -> Meshes:
    """Of visuals that are meshes, of at most `most` triangles together; one that several links
    have counts once. Keys are their indices.
    """
    found = Meshes()
    sources: dict[object, tuple[Part, ...]] = {}
    of: dict[int, object] = {}
    for k, visual in enumerate(visuals):
        if visual.shape != "mesh":
            continue
        try:
            name, parts = _parts(visual, roots)
            scale = np.array(visual.size, dtype=float)
            if scale.shape != (3,) or not np.all(np.isfinite(scale)) or not scale.all():
                raise InputError(f"mesh {printable(str(visual.mesh))!r} has no finite scale")
            key = (name, visual.size)
            if key not in sources:
                placed = tuple(_scaled(p, scale) for p in parts)
                if any(np.abs(p.vertices).max() > _LARGEST for p in placed):
                    raise InputError(
                        f"mesh {printable(str(visual.mesh))!r} is larger than {_LARGEST:g} m: is"
                        " its scale right?"
                    )
                sources[key] = placed
            of[k] = key
        except InputError as error:
            found.problems.append(str(error))
    kept = [(source, part) for source, parts in sources.items() for part in parts]
    counts = [len(part.faces) for _, part in kept]
    # between the same error for all, and the same number for all
    weights = [area(part.vertices, part.faces) ** 0.75 for _, part in kept]
    made: dict[object, list[tuple[Surface, Color | None]]] = {}
    for (source, part), count in zip(kept, shares(counts, weights, most), strict=True):
        drawn = surface(part.vertices, part.faces, count)
        made.setdefault(source, []).append((drawn, part.color))
        found.had += len(part.faces)
        found.drawn += len(drawn.faces)
        found.moved = max(found.moved, drawn.moved)
    looks = {source: Looks(tuple(own)) for source, own in made.items()}
    found.looks = {k: looks[source] for k, source in of.items()}
    return found


def _scaled(part: Part, scale: np.ndarray) -> Part:
    """Mirrored ones keep their outside."""
    faces = part.faces if np.prod(scale) > 0 else part.faces[:, ::-1]
    return Part(part.vertices * scale, faces, part.color)


def _parts(visual: Visual, roots: Roots) -> tuple[object, tuple[Part, ...]]:
    """What names a mesh, and its parts before scaling."""
    if visual.numbers is not None:
        vertices, faces = (
            np.frombuffer(visual.numbers[0], np.float64).reshape(-1, 3),
            np.frombuffer(visual.numbers[1], np.int32).reshape(-1, 3),
        )
        read = triangles(vertices, faces, "a mesh of the MJCF")
        return visual.numbers, (Part(read.vertices, read.faces, None),)
    assert visual.mesh is not None
    path = mesh_file(visual.mesh, visual.folder, roots)
    status = os.stat(path)
    return path, _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=_KEPT)
def _read(path: str, changed: int, size: int) -> tuple[Part, ...]:
    """The parts of a file, as it was when it `changed`."""
    kind = os.path.splitext(path)[1].lower()
    if kind == ".dae":
        return tuple(read_collada(_bytes(path), f"mesh {printable(path)!r}"))
    if kind == ".obj":
        return tuple(_colored(path))
    read = read_mesh(path)
    return (Part(read.vertices, read.faces, None),)


def _colored(path: str) -> list[Part]:
    """The parts of an OBJ file by material, with the diffuse colours of the material files beside
    it.
    """
    read = read_mesh(path)
    lines = _bytes(path).decode("utf-8", "replace").splitlines()
    colors: dict[str, Color] = {}
    faces: dict[str, list[list[int]]] = {}
    material, vertices = "", []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "mtllib":
            colors |= _materials(os.path.dirname(path), rest.strip())
        elif word == "usemtl":
            material = rest.strip()
        elif word == "v":
            vertices.append(rest.split()[:3])
        elif word == "f":
            corners = [int(c.split("/")[0]) for c in rest.split()]
            at = [c - 1 if c > 0 else len(vertices) + c for c in corners]
            own = faces.setdefault(material, [])
            own += [[at[0], at[k], at[k + 1]] for k in range(1, len(at) - 1)]
    if len(faces) < 2:
        return [Part(read.vertices, read.faces, colors.get(material))]
    points = np.array(vertices, dtype=float)
    return [Part(points, np.array(own), colors.get(name)) for name, own in faces.items()]


def _materials(folder: str, name: str) -> dict[str, Color]:
    """The diffuse colours of a material file; none where it is missing or leads elsewhere."""
    path = os.path.realpath(os.path.join(folder, name))
    if os.path.commonpath([os.path.realpath(folder), path]) != os.path.realpath(folder):
        return {}
    found: dict[str, Color] = {}
    own = ""
    try:
        for line in _bytes(path).decode("utf-8", "replace").splitlines():
            words = line.split()
            if words[:1] == ["newmtl"]:
                own = " ".join(words[1:])
            elif words[:1] == ["Kd"]:
                r, g, b = (min(max(float(x), 0.0), 1.0) for x in words[1:4])
                found[own] = (r, g, b, 1.0)
    except (InputError, ValueError):
        return {}
    return found


def _bytes(path: str) -> bytes:
    try:
        return read_regular(path, MAX_BYTES)
    except Unreadable as reason:
        raise InputError(f"mesh {printable(path)!r}: {reason}") from None
