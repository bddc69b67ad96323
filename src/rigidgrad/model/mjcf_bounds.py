"""What an MJCF would make MuJoCo do, looked at before MuJoCo reads it: copies, grids and buffers
are bounded, and every file is a regular one.

MuJoCo's reader is lenient and so is this one: it follows tags and attributes as tinyxml2 does, and
leaves it to MuJoCo to say what is wrong with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

from rigidgrad.errors import ModelError, UrdfError
from rigidgrad.files import Unreadable, check_regular
from rigidgrad.model.xml import quoted, read_bytes

MAX_ELEMENTS = 100_000
# elements that replicate, composite, flexcomp and attach make: MuJoCo's time grows with their
# square
MAX_COPIES = 5_000
# of all textures, height fields, sensors and states of actuators: at most about 1 GB
MAX_NUMBERS = 1 << 26
MAX_VERTICES = 100_000  # of meshes that MuJoCo makes itself: about 4 s
MAX_FILES = 200
MAX_FILE_BYTES = 256 << 20  # of a mesh, a texture, …

# element: the attributes whose product is the size of a buffer, and the largest that is accepted
_BUFFERS = {"hfield": (("nrow", "ncol"), 1 << 22), "texture": (("width", "height"), 1 << 24)}
_GRIDS = ("composite", "flexcomp")
# of a sensor or an actuator, also by default: each may have as many numbers
_LENGTHS = ("dim", "actdim", "num", "nsample")
_SIZES = {"nkey": 1_000, "nuserdata": 1_000_000}  # of <size>; any other nuser_…: 100 numbers
_MODELS = ("include", "model")  # elements that bring in another MJCF

_TAG = re.compile(
    r"""<(/?)\s*([^\s/>"'=<]+)((?:\s*+[^\s/>"'=<]++\s*+=\s*+(?:"[^"]*+"|'[^']*+'))*+)\s*+(/?)>"""
)
_ATTRIBUTE = re.compile(r"""([^\s/>"'=<]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_SKIPPED = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<!": ">"}  # longer beginnings first


class Tag(NamedTuple):
    """A tag as it is written: the start of an element, its end, or both."""

    name: str
    attributes: dict[str, str]
    closes: bool  # </name>
    empty: bool  # <name/>


def check_mjcf(text: str | bytes, folder: Path) -> None:
    """Refuses what would take MuJoCo too much time or memory, or would have it open a device or a
    pipe.
    """
    _Look(folder).elements_of(_decoded(text), folder)


def _decoded(data: str | bytes) -> str:
    try:
        text = (
            data.decode("utf-8")
            if isinstance(data, bytes)
            else data.encode("utf-8").decode("utf-8")
        )
    except UnicodeError:
        raise ModelError("this MJCF is not a text in UTF-8; save it as UTF-8") from None
    if "\0" in text:
        raise ModelError("this MJCF holds a NUL character; correct the file")
    return text


def _tags(text: str) -> Iterator[Tag]:
    at = text.find("<")
    while at >= 0:
        begin = next((b for b in _SKIPPED if text.startswith(b, at)), None)
        if begin is not None:
            end = text.find(_SKIPPED[begin], at + len(begin))
            if end < 0:
                raise ModelError(
                    f"line {_line(text, at)}: {begin} is never closed; is the MJCF complete?"
                )
        else:
            match = _TAG.match(text, at)
            if match is None:
                raise ModelError(
                    f"line {_line(text, at)}: this MJCF is not well-formed at"
                    f" {quoted(text[at : at + 40])}; correct it"
                )
            found = {
                m[1]: m[2] if m[2] is not None else m[3] for m in _ATTRIBUTE.finditer(match[3])
            }
            yield Tag(match[2], found, bool(match[1]), bool(match[4]))
            end = match.end()
        at = text.find("<", end)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _whole(tag: Tag, attribute: str, default: str = "1") -> int:
    """The product of the whole numbers in an attribute."""
    said = tag.attributes.get(attribute, default)
    words = said.split()
    if not words or not all(re.fullmatch(r"[+-]?[0-9]{1,9}", word, re.ASCII) for word in words):
        raise ModelError(
            f"<{tag.name}> {attribute}={quoted(said)} is not a whole number of at most 9 digits;"
            " correct it"
        )
    return prod(max(int(word), 1) for word in words)


def _numbers(tag: Tag, attribute: str) -> list[float]:
    said = tag.attributes.get(attribute, "")
    try:
        return [float(word) for word in said.split()]
    except ValueError:
        raise ModelError(
            f"<{tag.name}> {attribute}={quoted(said)} is not a list of numbers; correct it"
        ) from None


class _Look:
    """One look at an MJCF and at all that it includes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[Path, int] = {}  # elements of each MJCF that was read, copies and all
        self.open: list[Path] = []
        # numbers of textures and height fields; vertices of meshes that are not in files
        self.buffers, self.vertices = (0, 0.0)
        # numbers of a sensor or an actuator, of a camera's picture
        self.longest, self.largest = (0, 0)
        # all that may be so long, and sensors that are as large as a picture
        self.elements, self.pictures = (0, 0)

    def elements_of(self, text: str, folder: Path) -> int:
        """How many elements an MJCF stands for."""
        # times: how often what stands here is copied, for each open element
        own, copies, times, models = (0, 0, [1], 0)
        files: list[str] = []
        folders = {self.folder, folder}
        for tag in _tags(text):
            if tag.closes:
                if len(times) > 1:
                    times.pop()
                continue
            own += 1
            here = times[-1]
            if here > 1:
                copies += here
            inside = here * (_whole(tag, "count") if tag.name == "replicate" else 1)
            if tag.name in _GRIDS:
                copies += here * _whole(tag, "count")
            elif tag.name == "attach":
                copies += here * models
            elif tag.name in _MODELS and "file" in tag.attributes:
                size = self.included(tag.attributes["file"], folder)
                models, own, copies = (
                    max(models, size),
                    own + size,
                    copies + (here * size if here > 1 else 0),
                )
            elif tag.name == "size":
                self.check_sizes(tag)
            elif tag.name == "compiler":
                folders |= {
                    d / tag.attributes[a]
                    for d in (self.folder, folder)
                    for a in tag.attributes
                    if a.endswith("dir")
                }
            self.count_numbers(tag)
            if copies > MAX_COPIES or own > MAX_ELEMENTS or inside > MAX_COPIES:
                raise ModelError(
                    f"this MJCF makes more than {MAX_COPIES:,} copies of elements, or has more than"
                    f" {MAX_ELEMENTS:,} of them, at <{quoted(tag.name)[1:-1]}>, which no robot"
                    " needs; reduce its counts"
                )
            files += [value for name, value in tag.attributes.items() if name.startswith("file")]
            if not tag.empty:
                times.append(inside)
        if len(files) > MAX_ELEMENTS // 10:
            raise ModelError(f"this MJCF names {len(files):,} files; no robot needs so many")
        for name in dict.fromkeys(files):
            self.check_file(name, folders)
        return own + copies

    def count_numbers(self, tag: Tag) -> None:
        """Bounds the memory that elements ask for by numbers in their attributes, one by one and
        together.
        """
        if tag.name in _BUFFERS:
            attributes, most = _BUFFERS[tag.name]
            size = prod(_whole(tag, a) for a in attributes)
            if size > most:
                raise ModelError(
                    f"<{tag.name}> has {' x '.join(attributes)} of more than {most:,}, which no"
                    " robot needs; make it smaller"
                )
            self.buffers += size
        elif tag.name == "mesh":
            self.vertices += max(
                (number * number for number in _numbers(tag, "params")), default=0.0
            )  # they grow with its square
            if not self.vertices <= MAX_VERTICES:
                raise ModelError(
                    f"the params of <mesh> ask for more than {MAX_VERTICES:,} vertices, which no"
                    " robot needs; make them smaller"
                )
        elif tag.name == "camera":
            self.largest = max(self.largest, _whole(tag, "resolution"))
        self.pictures += tag.name == "rangefinder" and "camera" in tag.attributes
        self.elements += 1
        self.longest = max(self.longest, *(_whole(tag, name) for name in _LENGTHS))
        if self.buffers + self.elements * self.longest + self.pictures * self.largest > MAX_NUMBERS:
            raise ModelError(
                "textures, height fields, sensors and actuators of this MJCF have more than"
                f" {MAX_NUMBERS:,} numbers, at <{quoted(tag.name)[1:-1]}>, which no robot needs;"
                " make them smaller"
            )

    def check_sizes(self, tag: Tag) -> None:
        for name, value in tag.attributes.items():
            most = _SIZES.get(name, 100 if name.startswith("nuser_") else None)
            if most is not None and _whole(tag, name) > most:
                raise ModelError(
                    f"<size> {name}={quoted(value)} is more than {most:,}, which no robot needs;"
                    " make it smaller"
                )

    def check_file(self, name: str, folders: set[Path]) -> None:
        for folder in folders:
            try:
                check_regular(folder / name, MAX_FILE_BYTES)
            except Unreadable as reason:
                raise ModelError(f"the MJCF names the file {quoted(name, 200)}: {reason}") from None

    def included(self, name: str, folder: Path) -> int:
        """The elements of another MJCF; MuJoCo itself says so where it is missing, or no MJCF."""
        total = 0
        for path in {self.folder / name, folder / name}:
            key = Path(*path.parts) if path.is_absolute() else path.absolute()
            if not os.path.exists(path):  # also where the name is too long, or no name
                continue
            if key in self.open:
                raise ModelError(
                    f"the MJCF includes itself by way of {quoted(name, 200)}; remove one <include>"
                )
            if key not in self.sizes:
                if len(self.sizes) >= MAX_FILES:
                    raise ModelError(
                        f"the MJCF includes more than {MAX_FILES} files; no robot needs so many"
                    )
                try:
                    text = _decoded(read_bytes(path))
                except UrdfError as error:
                    raise ModelError(str(error)) from None
                self.open.append(key)
                self.sizes[key] = self.elements_of(text, path.parent)
                self.open.pop()
            total = max(total, self.sizes[key])
        return total
