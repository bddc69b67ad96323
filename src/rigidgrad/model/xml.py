"""A small XML reader for files that nobody vouches for: no entities, no other files, bounded time
and memory.

It keeps elements, attributes and line numbers; text between elements, which URDF has no use for,
only where it is asked to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn
from xml.parsers import expat

from rigidgrad.errors import InputError, UrdfError
from rigidgrad.files import Unreadable, file_name, read_regular

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_ELEMENTS = 1_000_000
MAX_TOKEN_BYTES = 1 << 20  # one tag or one comment: expat holds it, and all its attributes, at once
LARGEST = 1e50  # of the numbers in a description: products of several such numbers are still finite

_CHUNK = 1 << 16
_name = re.compile(rb"[A-Za-z_][\w:.-]{0,99}").match
# those that expat itself decodes
_ENCODINGS = {"utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1"}
_NOTHING: dict[str, str] = {}  # one for all elements without attributes


class Element:
    """An XML element: its tag and attributes as written, its child elements in order, the line it
    starts on.
    """

    __slots__ = ("attrib", "children", "line", "tag", "text")

    def __init__(self, tag: str, attrib: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attrib = attrib
        self.children: Sequence[Element] = ()  # a list once there is a child
        self.line = line
        self.text = ""  # kept only where `parse_xml` is asked to

    def __repr__(self) -> str:
        return f"<{self.tag}> on line {self.line}"


def quoted(text: object, length: int = 60) -> str:
    """`text` in quotes for a message, shortened, with control characters escaped."""
    text = str(text)
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """What is in a regular file of at most MAX_BYTES; pipes, devices and directories are refused
    unread.
    """
    try:
        return read_regular(path, MAX_BYTES)
    except Unreadable as reason:
        advice = ", or pass the text of a URDF itself" if "no such file" in str(reason) else ""
        raise UrdfError(f"{quoted(file_name(path), 200)}: {reason}{advice}") from None


def root_tag(text: str | bytes) -> str:
    """The name of the first element, found without parsing; empty if there is none."""
    document = text.encode("utf-8", "replace") if isinstance(text, str) else text
    at = document.find(b"<")
    while at >= 0:
        if document.startswith(b"<?", at):
            end = document.find(b"?>", at)
        elif document.startswith(b"<!--", at):
            end = document.find(b"-->", at)
        elif document.startswith(b"<!", at):
            end = document.find(b">", at)
        else:
            found = _name(document, at + 1)
            return "" if found is None else found[0].decode()
        at = document.find(b"<", end) if end >= 0 else -1
    return ""


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise UrdfError(
            f"the XML is larger than {MAX_BYTES >> 20} MB, which no robot description needs; is it"
            " the right file?"
        )


def parse_xml(text: str | bytes, *, texts: bool = False, macros: bool = False) -> Element:
    """The root element. Bytes are decoded as their XML declaration says (UTF-8 if it does not), a
    str as it is. `texts`: what stands in elements is kept; `macros`: those of xacro are elements
    like others.
    """
    if isinstance(text, str):
        _check_size(len(text))
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise UrdfError(
                f"line {line}: the text holds a lone surrogate, which is no character; read the"
                " file as UTF-8"
            ) from None
        reader = _Reader("utf-8", texts, macros)
    elif isinstance(text, (bytes, bytearray)):
        data, reader = bytes(text), _Reader(None, texts, macros)
    else:
        raise InputError(f"XML is given as str or bytes, not {type(text).__name__}")
    _check_size(len(data))
    return reader.read(_begun(data))


def _begun(data: bytes) -> bytes:
    """With blank lines before the declaration put behind it, where XML allows them and lines keep
    their numbers.
    """
    blank = len(data) - len(data.lstrip(b" \t\r\n"))
    end = data.find(b"?>", blank) + 2
    if not blank or not data.startswith(b"<?xml", blank) or end < 2:
        return data
    return data[blank:end] + data[:blank] + data[end:]


class _Reader:
    """One pass of expat over one document."""

    def __init__(self, encoding: str | None, texts: bool, macros: bool) -> None:
        self.parser: Any = expat.ParserCreate(encoding)
        self.decoded = encoding is not None
        self.macros = macros
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        if texts:
            self.parser.buffer_text = True
            self.parser.CharacterDataHandler = self.add_text
        self.parser.XmlDeclHandler = self.declaration
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse
        self.parser.ExternalEntityRefHandler = self.refuse

    def read(self, data: bytes) -> Element:
        try:
            self.feed(data)
        except expat.ExpatError as error:
            raise UrdfError(_advice(error, data)) from None
        finally:
            del self.parser  # it holds our methods: without it no cycle keeps the tree alive
        assert self.root is not None  # expat refuses a document without an element
        return self.root

    def feed(self, data: bytes) -> None:
        seen = 0  # bytes up to the start of the last token that expat looked at
        for begin in range(0, len(data), _CHUNK):
            end = begin + _CHUNK
            self.parser.Parse(data[begin:end], False)
            seen = max(seen, self.parser.CurrentByteIndex)
            if end - seen > MAX_TOKEN_BYTES + _CHUNK:
                self.fail(
                    f"a single tag or comment is longer than {MAX_TOKEN_BYTES >> 20} MB; is this"
                    " the right file?"
                )
        self.parser.Parse(b"", True)

    def fail(self, problem: str) -> NoReturn:
        raise UrdfError(f"line {self.parser.CurrentLineNumber}: {problem}")

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        element = Element(tag, attrib or _NOTHING, self.parser.CurrentLineNumber)
        self.count += 1
        if self.count > MAX_ELEMENTS:
            self.fail(
                f"there are more than {MAX_ELEMENTS:,} elements, which no robot description needs;"
                " is it the right file?"
            )
        stack = self.open
        if len(stack) >= MAX_DEPTH:
            self.fail(
                f"elements are nested more than {MAX_DEPTH} deep; a URDF needs fewer than 10"
                " levels, so flatten them"
            )
        if stack:
            parent = stack[-1]
            if parent.children:
                parent.children.append(element)  # type: ignore[attr-defined]
            else:
                parent.children = [element]
        else:
            self.root = element
        stack.append(element)
        if ":" in tag and not self.macros:
            self.check_namespace(tag)

    def check_namespace(self, tag: str) -> None:
        """Refuses xacro's elements, under whatever prefix; others are for other programs."""
        prefix = tag.partition(":")[0]
        declared = (
            e.attrib[f"xmlns:{prefix}"]
            for e in reversed(self.open)
            if f"xmlns:{prefix}" in e.attrib
        )
        if prefix == "xacro" or "xacro" in next(declared, ""):
            self.fail(
                f"<{quoted(tag)[1:-1]}> is an unexpanded macro; run xacro first (xacro"
                " robot.urdf.xacro > robot.urdf) and load its output, or pass xacro_args={}"
            )

    def add_text(self, text: str) -> None:
        if self.open and (self.open[-1].text or not text.isspace()):
            self.open[-1].text += text
            if len(self.open[-1].text) > MAX_TOKEN_BYTES:
                self.fail(f"a text is longer than {MAX_TOKEN_BYTES >> 20} MB; is it a robot?")

    def end(self, tag: str) -> None:
        self.open.pop()

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding and not self.decoded and encoding.lower() not in _ENCODINGS:
            self.fail(
                f"the encoding {quoted(encoding)} is not supported; save the file as UTF-8 and"
                ' declare encoding="utf-8"'
            )

    def refuse(self, *_: object) -> NoReturn:
        self.fail(
            "a DOCTYPE or an entity is declared, which is refused for safety; a URDF needs none, so"
            " delete the declaration"
        )


def _advice(error: expat.ExpatError, data: bytes) -> str:
    """What expat found wrong and where, with what to do about it."""
    codes = expat.errors.codes
    problem = expat.ErrorString(error.code)
    where = f"line {error.lineno}, column {error.offset + 1}: "
    if error.code == codes[expat.errors.XML_ERROR_NO_ELEMENTS]:
        if not data.strip():
            return "the XML is empty; a URDF is a <robot> element with links and joints"
        return where + "the XML ends before its root element is closed; is the file complete?"
    if error.code == codes[expat.errors.XML_ERROR_DUPLICATE_ATTRIBUTE]:
        return where + "an attribute is given twice in one tag; keep one of them"
    if error.code == codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]:
        return (
            where
            + "there is something after the end of the root element; keep a single <robot> and"
            " nothing after it"
        )
    if error.code == codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]:
        return (
            where
            + "an entity is used that XML does not know; write the characters themselves, & as"
            " &amp;"
        )
    encodings = (expat.errors.XML_ERROR_UNKNOWN_ENCODING, expat.errors.XML_ERROR_INCORRECT_ENCODING)
    if error.code in {codes[e] for e in encodings}:
        return where + f"{problem}; save the file as UTF-8"
    return (
        where
        + f"not well-formed XML ({problem}); correct the file, saved as UTF-8 text, at this place"
    )
