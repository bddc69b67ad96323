"""The sources of this package, as far as they decide what is compiled: comments, docstrings and
parts that compile nothing do not.

Parsing all of them takes longer than compiling a kernel. So two versions are compared instead: what
is parsed is what differs.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from pathlib import Path

Sources = dict[str, bytes]  # by path within the package

PACKAGE = Path(__file__).parent.parent
_IMPORT = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+(?:rigidgrad(?:\.(\w+)|[ \t]+import[ \t]+([\w, \t]+)|\b)|\.)",
    re.MULTILINE,
)
# all that is compiled is recorded by one and compiled by the other
_PROGRAMS, _KEYS = ("program", "runtime")
_LOOPS = b"rigidgrad.runtime.loops"  # but for loops over arrays, which are translated as they stand


def read(package: Path = PACKAGE) -> Sources:
    """Every module's source; nothing if one cannot be read, as in an archive or a frozen
    program.
    """
    found: Sources = {}
    pending = [""]
    try:
        while pending:
            below = pending.pop()
            with os.scandir(package / below) as items:
                for item in items:
                    if item.name.endswith(".py"):
                        with open(item.path, "rb") as file:
                            found[below + item.name] = file.read()
                    elif item.name != "__pycache__" and item.is_dir():
                        pending.append(f"{below}{item.name}/")
    except OSError:
        return {}
    return dict(sorted(found.items()))


def pack(sources: Sources) -> bytes:
    """All of them in one; `unpack` takes it apart."""
    return b"".join(
        b"%s\0%d\0%s" % (path.encode(), len(text), text) for path, text in sources.items()
    )


def unpack(packed: bytes) -> Sources:
    found: Sources = {}
    at = 0
    while at < len(packed):
        middle = packed.index(b"\0", at)
        start = packed.index(b"\0", middle + 1) + 1
        end = start + int(packed[middle + 1 : start - 1])
        found[packed[at:middle].decode()] = packed[start:end]
        at = end
    return found


def fingerprint(packed: bytes) -> str:
    """A hash of every byte."""
    return hashlib.sha256(packed).hexdigest()


def same_code(one: Sources, other: Sources) -> bool:
    """Whether both compile the same: all files of the parts that compile have the same
    statements.
    """
    parts = compiling_parts(one) | compiling_parts(other)
    paths = [
        path
        for path in one.keys() | other.keys()
        if part(path) in parts and one.get(path) != other.get(path)
    ]
    return all(
        path in one and path in other and _same_statements(one[path], other[path]) for path in paths
    )


def compiling_parts(sources: Sources) -> set[str]:
    """Parts that record programs or have loops to be translated, the runtime that compiles them,
    and all that these import.
    """
    imported: dict[str, set[str]] = {}
    for path, text in sources.items():
        imported.setdefault(part(path), set()).update(_imports(text))
    everything = imported.keys()
    found = {name for name, below in imported.items() if _PROGRAMS in below} | {_KEYS} & everything
    found |= {part(path) for path, text in sources.items() if _LOOPS in text}
    pending = list(found)
    while pending:
        below = imported[pending.pop()]
        new = (everything if "*" in below else below & everything) - found
        found |= new
        pending += new
    return found


def part(path: str) -> str:
    """The part of the package that a file belongs to: a folder, or a module beside the folders."""
    return path.split("/")[0].removesuffix(".py")


def _imports(text: bytes) -> set[str]:
    """Parts that a module imports anywhere; "*" for the package as a whole, or where it is not
    plain which.
    """
    found: set[str] = set()
    for name, names in _IMPORT.findall(text):
        found.update(
            alias.split()[0].decode()
            for alias in (name or names or b"*").split(b",")
            if alias.strip()
        )
    return found


def _same_statements(one: bytes, other: bytes) -> bool:
    try:
        return _statements(one) == _statements(other)
    except (SyntaxError, ValueError):
        return False


def _statements(text: bytes) -> str:
    """The syntax tree without docstrings; comments and the layout of lines are not in it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node, clean=False) is not None
        ):
            del node.body[0]
    return ast.dump(tree)
