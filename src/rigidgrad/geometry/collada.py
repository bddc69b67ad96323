"""COLLADA files that nobody vouches for: the triangles of their scene in metres, with the diffuse
colours of their materials.

Read are polygons of the scene's nodes with their transforms; animations, skins, textures and
transparency are not. The axis that the file calls up is left alone, as ROS does. COLLADA 1.4.1:
M. Barnes and E. L. Finch, Digital Asset Schema Release 1.4.1, Khronos Group, 2008.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np

from rigidgrad.errors import InputError

MAX_TRIANGLES = 1_000_000
_MOST_ELEMENTS, _DEEPEST = 200_000, 64
_POLYGONS = ("triangles", "polylist", "polygons")

Color = tuple[float, float, float, float]


class Part(NamedTuple):
    """A surface of one colour (None: the file has none): vertices (n, 3), faces (m, 3)."""

    vertices: np.ndarray
    faces: np.ndarray
    color: Color | None


@dataclass
class _Element:
    tag: str
    attrib: dict[str, str]
    children: list[_Element] = field(default_factory=list)
    text: str = ""

    def all(self, *tags: str) -> list[_Element]:
        return [c for c in self.children if c.tag in tags]

    def first(self, *path: str) -> _Element | None:
        """What a path of tags leads to."""
        found: _Element | None = self
        for tag in path:
            found = next((c for c in found.children if c.tag == tag), None) if found else None
        return found

    def below(self, tag: str) -> Iterator[_Element]:
        """All with this tag, at any depth."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.below(tag)

    def numbers(self) -> np.ndarray:
        return np.array(self.text.split(), dtype=float)


def read_collada(data: bytes, shown: str) -> list[Part]:
    """The parts of a scene. `shown` is what errors call the file."""
    root = _parsed(data, shown)
    try:
        return _Scene(root, shown).parts()
    except InputError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        said = f"{type(error).__name__}: {str(error)[:100]}"
        raise InputError(f"{shown} is damaged: {said}") from None


def _parsed(data: bytes, shown: str) -> _Element:
    """Elements with their text. Entities and a DOCTYPE are refused."""
    top = _Element("", {})
    stack, count, texts = [top], 0, [[""]]

    def start(tag: str, attrib: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ELEMENTS or len(stack) > _DEEPEST:
            raise InputError(f"{shown} has too many elements, or they are nested too deep")
        made = _Element(tag.rpartition(":")[2], attrib)
        stack[-1].children.append(made)
        stack.append(made)
        texts.append([])

    def end(tag: str) -> None:
        stack.pop().text = "".join(texts.pop())

    def refuse(*_: object) -> NoReturn:
        raise InputError(f"{shown} declares a DOCTYPE or an entity, which is refused for safety")

    parser: Any = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: texts[-1].append(text)
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"{shown} is not well-formed XML: {error}") from None
    if top.children[0].tag != "COLLADA":
        raise InputError(f"{shown} is no COLLADA file: its first element is {top.children[0].tag}")
    return top.children[0]


class _Scene:
    def __init__(self, root: _Element, shown: str):
        self.shown, self.root = shown, root
        kinds = ("geometry", "material", "effect", "node", "visual_scene")
        self.known = {
            kind: {e.attrib["id"]: e for e in root.below(kind) if "id" in e.attrib}
            for kind in kinds
        }
        unit = root.first("asset", "unit")
        self.unit = float(unit.attrib.get("meter", "1")) if unit is not None else 1.0
        self.read: dict[str, list[tuple[np.ndarray, np.ndarray, str]]] = {}
        self.left = MAX_TRIANGLES

    def parts(self) -> list[Part]:
        found: list[Part] = []
        wanted = self.root.first("scene", "instance_visual_scene")
        scenes = self.known["visual_scene"]
        scene = (
            scenes[_target(wanted, "url")]
            if wanted is not None
            else next(iter(scenes.values()), None)
        )
        scale = np.diag([self.unit, self.unit, self.unit, 1.0])
        if scene is not None:
            for node in scene.all("node"):
                found += self._node(node, scale, 0)
        if not found:
            raise InputError(f"{self.shown} has no triangles in its scene")
        return found

    def _node(self, node: _Element, above: np.ndarray, depth: int) -> Iterator[Part]:
        if depth > _DEEPEST:
            raise InputError(f"{self.shown} has nodes nested too deep, or in each other")
        T = above @ _transform(node)
        for instance in node.all("instance_geometry"):
            colors = {
                m.attrib.get("symbol", ""): self._color(_target(m, "target"))
                for m in instance.below("instance_material")
            }
            for points, faces, material in self._geometry(_target(instance, "url")):
                self.left -= len(faces)
                if self.left < 0:
                    raise InputError(
                        f"{self.shown} has more than {MAX_TRIANGLES} triangles: simplify it"
                    )
                placed = points @ T[:3, :3].T + T[:3, 3]
                if not np.all(np.isfinite(placed)):
                    raise InputError(f"{self.shown} has vertices that are not finite")
                yield Part(placed, faces, colors.get(material))
        for child in node.all("node"):
            yield from self._node(child, T, depth + 1)
        for other in node.all("instance_node"):
            yield from self._node(self.known["node"][_target(other, "url")], T, depth + 1)

    def _color(self, material: str) -> Color | None:
        made = self.known["material"].get(material)
        effect = made.first("instance_effect") if made is not None else None
        if effect is None:
            return None
        look = self.known["effect"].get(_target(effect, "url"))
        diffuse = next(look.below("diffuse"), None) if look is not None else None
        color = diffuse.first("color") if diffuse is not None else None
        if color is None:  # a texture
            return None
        r, g, b = (min(max(float(c), 0.0), 1.0) for c in color.numbers()[:3])
        return r, g, b, 1.0

    def _geometry(self, name: str) -> list[tuple[np.ndarray, np.ndarray, str]]:
        """Of each set of polygons: the vertices and faces, and the name of the material."""
        if name not in self.read:
            mesh = self.known["geometry"][name].first("mesh")
            self.read[name] = [] if mesh is None else list(self._polygons(mesh))
        return self.read[name]

    def _polygons(self, mesh: _Element) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
        sources = {s.attrib.get("id", ""): s for s in mesh.all("source")}
        vertices = {v.attrib.get("id", ""): v for v in mesh.all("vertices")}
        for polygons in mesh.all(*_POLYGONS):
            inputs = polygons.all("input")
            [own] = [i for i in inputs if i.attrib["semantic"] == "VERTEX"]
            offset = int(own.attrib.get("offset", "0"))
            stride = 1 + max(int(i.attrib.get("offset", "0")) for i in inputs)
            of = vertices[_target(own, "source")]
            [at] = [i for i in of.all("input") if i.attrib["semantic"] == "POSITION"]
            points = _positions(sources[_target(at, "source")])
            faces = _triangulated(polygons, offset, stride)
            if not len(faces):
                continue
            if faces.min() < 0 or faces.max() >= len(points):
                raise InputError(f"{self.shown}: a face names a vertex that is not there")
            used, which = np.unique(faces, return_inverse=True)
            yield points[used], which.reshape(-1, 3), polygons.attrib.get("material", "")


def _target(element: _Element, attribute: str) -> str:
    return element.attrib.get(attribute, "").removeprefix("#")


def _positions(source: _Element) -> np.ndarray:
    array, accessor = source.first("float_array"), source.first("technique_common", "accessor")
    if array is None:
        raise ValueError("a source has no numbers")
    stride = int(accessor.attrib.get("stride", "1")) if accessor is not None else 3
    if stride < 3:
        raise ValueError("positions have fewer than three numbers")
    return array.numbers().reshape(-1, stride)[:, :3]


def _triangulated(polygons: _Element, offset: int, stride: int) -> np.ndarray:
    """Faces (m, 3); polygons are fans about their first corner."""
    rows = [np.array(p.text.split(), dtype=np.int64) for p in polygons.all("p")]
    if not rows:
        return np.zeros((0, 3), dtype=np.int64)
    if polygons.tag == "triangles":
        return rows[0].reshape(-1, stride)[:, offset].reshape(-1, 3)
    if polygons.tag == "polylist":
        counts = polygons.first("vcount")
        sizes = np.array(counts.text.split() if counts is not None else [], dtype=np.int64)
        corners = rows[0].reshape(-1, stride)[:, offset]
    else:
        each = [row.reshape(-1, stride)[:, offset] for row in rows]
        sizes, corners = np.array([len(e) for e in each]), np.concatenate(each)
    if sizes.sum() != len(corners) or (sizes < 3).any():
        raise ValueError("polygons do not have the corners that they count")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    begin = np.repeat(first, sizes - 2)
    within = np.arange(len(begin)) - np.repeat(np.cumsum(sizes - 2) - (sizes - 2), sizes - 2)
    fan = np.stack([begin, begin + within + 1, begin + within + 2], axis=1)
    triangles: np.ndarray = corners[fan]
    return triangles


def _transform(node: _Element) -> np.ndarray:
    """Of a node (4, 4): its matrices, moves, turns and scales in turn."""
    T = np.eye(4)
    for step in node.children:
        if step.tag == "matrix":
            T = T @ step.numbers().reshape(4, 4)
        elif step.tag == "translate":
            T = T @ np.block([[np.eye(3), step.numbers()[:3, None]], [np.zeros((1, 3)), 1.0]])
        elif step.tag == "scale":
            T = T @ np.diag([*step.numbers()[:3], 1.0])
        elif step.tag == "rotate":
            x, y, z, degrees = step.numbers()
            axis = np.array([x, y, z]) / (np.linalg.norm([x, y, z]) or 1.0)
            K = np.array(
                [[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]]
            )
            R, angle = np.eye(4), np.radians(degrees)
            R[:3, :3] += np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
            T = T @ R
    return T
