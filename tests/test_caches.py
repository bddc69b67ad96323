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
MADE = {
    "dict",
    "set",
    "list",
    "defaultdict",
    "OrderedDict",
    "WeakKeyDictionary",
    "WeakValueDictionary",
    "WeakSet",
    "Shared",
}
NO_MEMO = {("model/xml.py", "_NOTHING")}  # one empty dictionary for all


def last_name(node: ast.AST) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


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
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and MEMOISERS & set(
            map(last_name, node.decorator_list)
        ):
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
                assert re.search(rf"^\| `{re.escape(where)}` [^|]*`{name}`", page, re.MULTILINE), (
                    f"docs/caches.md: {where} `{name}`"
                )


def test_the_page_names_no_cache_that_is_gone():
    for where, names in re.findall(r"^\| `([\w/]+\.py)` ([^|]*)\|", PAGE.read_text(), re.MULTILINE):
        text = (ROOT / where).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(?:def )?{name}\b", text, re.MULTILINE), f"{where} has no {name}"


def tells_a_type(test: ast.AST) -> bool:
    """What an assert may say: isinstance(…), not isinstance(…), … is not None, and all of these by
    `and`.
    """
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and all(map(tells_a_type, test.values))
    if isinstance(test, ast.Compare):
        return ast.unparse(test).endswith(" is not None") and len(test.ops) == 1
    if isinstance(test, ast.UnaryOp):
        return (
            isinstance(test.op, ast.Not)
            and isinstance(test.operand, ast.Call)
            and (tells_a_type(test.operand))
        )
    return isinstance(test, ast.Call) and last_name(test) == "isinstance"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("isinstance(x, int)", True),
        ("x is not None and y.z is not None", True),
        ("not isinstance(x, int)", True),
        ("x is not None or y > 0", False),
        ("x.flags.c_contiguous", False),
        ("0 < n is not None", False),
        ("not x", False),
        ("len(x) == n", False),
    ],
)
def test_guards_are_recognised(text, told):
    assert tells_a_type(ast.parse(text, mode="eval").body) == told


def test_asserts_tell_types_and_guard_nothing():
    """An assert may say to a type checker what is known; `python -O` must not lose more than that,
    wherever arrays become addresses, and so nowhere.
    """
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert tells_a_type(node.test), f"{path}:{node.lineno}"
