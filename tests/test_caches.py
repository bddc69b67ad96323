"""Caches are listed on one page, and what guards raw pointers is a check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import rigidgrad

ROOT = Path(rigidgrad.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "caches.md"
MEMOISERS = {"cache", "lru_cache"}
MADE = {"dict", "set", "list", "defaultdict", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "Shared"}
NO_MEMO = {("model/xml.py", "_NOTHING")}  # one empty dictionary for all


def last_name(node: ast.AST) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def begins_empty(value: ast.AST | None) -> bool:
    """What a module fills later: {}, [], dict(), Shared(forever=True), …"""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    return isinstance(value, ast.Call) and last_name(value) in MADE and not value.args


def caches(text: str) -> list[str]:
    tree = ast.parse(text)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and MEMOISERS & set(map(last_name, node.decorator_list)):
            found.append(node.name)
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and begins_empty(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [target.id for target in targets if isinstance(target, ast.Name)]
    return found


def test_caches_are_recognised():
    text = """
import functools, weakref
from functools import cache, cached_property
@cache
def a(): ...
class C:
    @functools.lru_cache(maxsize=2)
    def b(self): ...
    @cached_property
    def no(self): ...
c: weakref.WeakKeyDictionary[int, str] = weakref.WeakKeyDictionary()
d = {}
e: Shared[int] = Shared(forever=True)
f = Shared[int]()
table = {1: 2}
words = set("abc")
"""
    assert caches(text) == ["a", "b", "c", "d", "e", "f"]


def test_every_cache_is_on_the_page():
    page = PAGE.read_text()
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for name in caches(path.read_text()):
            if (where, name) not in NO_MEMO:
                assert re.search(rf"^\| `{re.escape(where)}` [^|]*`{name}`", page, re.MULTILINE), f"docs/caches.md: {where} `{name}`"


def test_the_page_names_no_cache_that_is_gone():
    for where, names in re.findall(r"^\| `([\w/]+\.py)` ([^|]*)\|", PAGE.read_text(), re.MULTILINE):
        text = (ROOT / where).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(?:def )?{name}\b", text, re.MULTILINE), f"{where} has no {name}"


@pytest.mark.parametrize("part", ["runtime", "control", "plants"])
def test_asserts_tell_types_and_guard_nothing(part):
    """An assert may say to a type checker what is known; `python -O` must not lose more than that."""
    for path in sorted((ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                terms = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
                for term in terms:
                    told = isinstance(term, ast.Call) and last_name(term) == "isinstance"
                    told |= (
                        isinstance(term, ast.Compare) and isinstance(term.ops[0], ast.IsNot) and ast.unparse(term.comparators[0]) == "None"
                    )
                    assert told, f"{path}:{node.lineno}"
