"""Random damage to a URDF, from single bits to whole subtrees. The same seed gives the same damage."""

from __future__ import annotations

import random
import re

NUMBERS = [
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "-7.5",
    "1e-320",
    "1e-30",
    "1e20",
    "1e49",
    "-1e49",
    "1e308",
    "1e999",
    "nan",
    "-inf",
    "0x1p3",
    "1_0",
    "",
]
NUMBERS += ["1 2", "0 0 0", "9" * 400, "0." + "0" * 400 + "1", "3.14159265358979", "${x}", "½", "1e-", "- 1"]
WORDS = [
    "base",
    "upper",
    "hand",
    "tip",
    "elbow",
    "wrist",
    "throw",
    "",
    " ",
    "x" * 600,
    "&amp;",
    "&#x10FFFF;",
    "a'b",
    "../..",
    "\u202e",
    "0 0 0",
]
TYPES = ["revolute", "continuous", "prismatic", "fixed", "floating", "planar", "spherical", "helical", "hinge", ""]
SNIPPETS = [
    "<",
    ">",
    "&",
    "&#0;",
    "&x;",
    "]]>",
    "<![CDATA[",
    "<!--",
    "-->",
    "<!DOCTYPE r>",
    "<?x?>",
    "<xacro:if/>",
    "\0",
    "\ufeff",
    "<a>",
    "</a>",
]
SNIPPETS += ['<mimic joint="wrist"/>', '<limit lower="1" upper="0"/>', '<axis xyz="0 0 0"/>', '<dynamics armature="1e40"/>', "<inertial/>"]

_NUMBER = re.compile(r"(?<=[\" ])-?[0-9.]+(?=[\" ])")
_VALUE = re.compile(r'(?<==")[^"]*(?=")')
_ATTRIBUTE = re.compile(r' \w+="[^"]*"')
_TOKEN = re.compile(r"<[^>]*>")
_SUBTREE = re.compile(r"<(link|joint|inertial|visual|geometry)\b[^>]*[^/>]>.*?</\1>|<\w+ [^>]*/>", re.DOTALL)
_TYPE = re.compile(r'(?<=type=")\w+(?=")')


def _replace(rng: random.Random, text: str, pattern: re.Pattern, words: list[str]) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    at = rng.choice(found)
    return text[: at.start()] + rng.choice(words) + text[at.end() :]


def _swap(rng: random.Random, text: str, pattern: re.Pattern) -> str:
    found = list(pattern.finditer(text))
    if len(found) < 2:
        return text
    a, b = sorted(rng.sample(found, 2), key=lambda match: match.start())
    if a.end() > b.start():
        return text
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]


def _copy(rng: random.Random, text: str, pattern: re.Pattern) -> str:
    """What matches once, again behind another match."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    copy, place = rng.choice(found), rng.choice(found).end()
    return text[:place] + copy.group() + text[place:]


def _insert(rng: random.Random, text: str) -> str:
    places = [match.end() for match in _TOKEN.finditer(text)] if rng.random() < 0.7 else range(len(text))
    place = rng.choice(places or [0])
    return text[:place] + rng.choice(SNIPPETS) + text[place:]


OF_TEXT = [
    lambda rng, text: _replace(rng, text, _NUMBER, NUMBERS),
    lambda rng, text: _replace(rng, text, _NUMBER, [repr(rng.uniform(-3, 3)), repr(10 ** rng.uniform(-300, 50))]),
    lambda rng, text: _replace(rng, text, _VALUE, WORDS),
    lambda rng, text: _replace(rng, text, _TYPE, TYPES),
    lambda rng, text: _replace(rng, text, _ATTRIBUTE, [""]),
    lambda rng, text: _replace(rng, text, _TOKEN, [""]),
    lambda rng, text: _replace(rng, text, _SUBTREE, [""]),
    lambda rng, text: _swap(rng, text, _VALUE),
    lambda rng, text: _swap(rng, text, _TOKEN),
    lambda rng, text: _swap(rng, text, _SUBTREE),
    lambda rng, text: _copy(rng, text, _TOKEN),
    lambda rng, text: _copy(rng, text, _SUBTREE),
    _insert,
]


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 4, 32))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _delete(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 1, 2, 10, 100))]


def _overwrite(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    data[start : start + rng.choice((0, 1, 5))] = rng.randbytes(rng.choice((1, 2, 20)))


def _repeat(rng: random.Random, data: bytearray) -> None:
    start, place = rng.randrange(len(data)), rng.randrange(len(data))
    data[place:place] = data[start : start + rng.choice((1, 10, 300))]


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(1, len(data)) :]


OF_BYTES = [_flip, _flip, _delete, _overwrite, _repeat, _truncate]


def mutant(seed: int, text: str) -> bytes:
    """`text` with one to three damages, mostly ones that leave it well-formed."""
    rng = random.Random(seed)
    bytes_too = rng.random() < 0.25
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(OF_TEXT)(rng, text)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if bytes_too and data:
        rng.choice(OF_BYTES)(rng, data)
    return bytes(data)
