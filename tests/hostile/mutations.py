"""Random damage to URDF and MJCF, task files and logs, from single bits to whole subtrees. The same
seed gives the same damage.
"""

from __future__ import annotations

import io
import random
import re
import zipfile

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
NUMBERS += [
    "1 2",
    "0 0 0",
    "9" * 400,
    "0." + "0" * 400 + "1",
    "3.14159265358979",
    "${x}",
    "½",
    "1e-",
    "- 1",
]
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
TYPES = [
    "hinge",
    "slide",
    "ball",
    "free",
    "box",
    "mesh",
    "revolute",
    "continuous",
    "prismatic",
    "fixed",
    "floating",
    "planar",
    "spherical",
    "helical",
    "hinge",
    "",
]
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
SNIPPETS += [
    '<replicate count="7">',
    "</replicate>",
    '<include file="x.xml"/>',
    '<frame pos="0 0 1">',
    '<composite count="3 3"/>',
    "<inertial/>",
    "<freejoint/>",
]
SNIPPETS += [
    '<mimic joint="wrist"/>',
    '<limit lower="1" upper="0"/>',
    '<axis xyz="0 0 0"/>',
    '<dynamics armature="1e40"/>',
    "<inertial/>",
]

_NUMBER = re.compile(r"(?<=[\" ])-?[0-9.]+(?=[\" ])")
_VALUE = re.compile(r'(?<==")[^"]*(?=")')
_ATTRIBUTE = re.compile(r' \w+="[^"]*"')
_TOKEN = re.compile(r"<[^>]*>")
_SUBTREE = re.compile(
    r"<(link|joint|inertial|visual|geometry|body|worldbody|default)\b[^>]*[^/>]>.*?</\1>|<\w+"
    r" [^>]*/>",
    re.DOTALL,
)
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
    places = (
        [match.end() for match in _TOKEN.finditer(text)] if rng.random() < 0.7 else range(len(text))
    )
    place = rng.choice(places or [0])
    return text[:place] + rng.choice(SNIPPETS) + text[place:]


OF_TEXT = [
    lambda rng, text: _replace(rng, text, _NUMBER, NUMBERS),
    lambda rng, text: _replace(
        rng, text, _NUMBER, [repr(rng.uniform(-3, 3)), repr(10 ** rng.uniform(-300, 50))]
    ),
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
    del data[rng.randrange(len(data)) + 1 :]


OF_BYTES = [_flip, _flip, _delete, _overwrite, _repeat, _truncate]


def mutant(seed: int, text: str, damages=OF_TEXT) -> bytes:
    """`text` with one to three damages, mostly ones that leave it well-formed."""
    rng = random.Random(seed)
    bytes_too = rng.random() < 0.25
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(damages)(rng, text)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if bytes_too and data:
        rng.choice(OF_BYTES)(rng, data)
    return bytes(data)


# --- tasks ----------------------------------------------------------------------------------------

VALUES = [
    "0",
    "-1",
    "1",
    "0.5",
    "-0.0",
    "1e308",
    "1e-308",
    "-1e308",
    "inf",
    "-inf",
    "nan",
    "9" * 30,
    "9" * 5000,
    "0x" + "f" * 300,
    "1_0",
    "true",
    "false",
]
VALUES += [
    '""',
    '"start"',
    '"neutral"',
    '"gravity"',
    '"model"',
    '"../x.npz"',
    '"/x.html"',
    '"iiwa14"',
    '"pendulum"',
    '"\\u0000"',
    '"\\uFFFF"',
    "'x'",
    '"""a\nb"""',
]
VALUES += [
    "[]",
    "[0]",
    "[0, 0, 0]",
    "[1e308, 1e308]",
    "[[]]",
    "[[1.0], [0.0]]",
    "[nan]",
    "{}",
    "{ lower = 0 }",
    "{ type = 'reach' }",
    "{ elbow = 0.1 }",
    "[{}]",
]
VALUES += [
    "2020-01-01",
    "07:32:00",
    "[" * 200,
    "[" * 200 + "]" * 200,
    "{a=" * 200,
    "-9223372036854775809",
    "1e400",
    "[" + "0.1, " * 2000 + "]",
]
LINES = [
    "a" + ".a" * 100 + " = 1",
    "[mpc]",
    "[limits]",
    "[[costs]]",
    "[solver]",
    "x = 1",
    "=",
    "[",
    "]]",
    "#",
    "\0",
    "\ufeff",
    "lock = { elbow = 0.1 }",
    "steps = 3",
]
LINES += [
    "[output]",
    'solution = "x.npz"',
    "[mpc.plant]",
    "dt = 1e-9",
    "[mpc.target]",
    "type = 'direct'",
    "iterations = -1",
    "[a.b.c]",
    "costs = []",
    "dt = 0.1",
]
LINES += [
    "[[phases]]",
    "impact = true",
    "restitution = 2",
    'contacts = ["foot"]',
    'contacts = ["foot", "foot"]',
    (
        'contacts = [{ frame = "foot", kind = "plane", friction = -1, normal = [0, 0, 0], gains ='
        " [1] }]"
    ),
    "contacts = [{}]",
]

_SAID = re.compile(r"(?<== ).*")
_NUMBER_OF_TOML = re.compile(r"(?<=[ \[])-?[0-9][0-9.e-]*")
_WORD_OF_TOML = re.compile(r"(?<=\")\w+(?=\")")
_LINE = re.compile(r".*\n")
_KEY = re.compile(r"\w+(?= =)")

OF_TASKS = [
    lambda rng, text: _replace(rng, text, _SAID, VALUES),
    lambda rng, text: _replace(rng, text, _SAID, VALUES),
    lambda rng, text: _replace(rng, text, _NUMBER_OF_TOML, VALUES[:17]),
    lambda rng, text: _replace(
        rng,
        text,
        _NUMBER_OF_TOML,
        [repr(rng.uniform(-3, 3)), repr(10 ** rng.uniform(-300, 300)), str(rng.randrange(100))],
    ),
    lambda rng, text: _replace(
        rng,
        text,
        _WORD_OF_TOML,
        [
            "",
            "x",
            "elbow",
            "rk4",
            "direct",
            "state",
            "circle",
            "mujoco",
            "foot",
            "friction_cone",
            "height",
            "x" * 300,
        ],
    ),
    lambda rng, text: _replace(rng, text, _LINE, ["", *(line + "\n" for line in LINES)]),
    lambda rng, text: _swap(rng, text, _SAID),
    lambda rng, text: _swap(rng, text, _KEY),
    lambda rng, text: _swap(rng, text, _LINE),
    lambda rng, text: _copy(rng, text, _LINE),
]


def mutant_task(seed: int, text: str) -> bytes:
    """A task file with one to three damages."""
    return mutant(seed, text, OF_TASKS)


# --- logs -----------------------------------------------------------------------------------------

_HEADERS = [
    b"<f8",
    b"|O",
    b"<c16",
    b"<U4",
    b"|b1",
    b"<i4",
    b"<f2",
    b"<M8",
    b"|V8",
    b"False",
    b"True",
    b"(",
    b")",
    b",",
    b"0",
    b"9" * 25,
    b"-1",
    b"1e9",
    b"'x':",
]


def mutant_log(seed: int, data: bytes) -> bytes:
    """An .npz file damaged as a whole, or with damaged arrays in a sound archive."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        damaged = bytearray(data)
        rng.choice(OF_BYTES)(rng, damaged)
        return bytes(damaged)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(parts))
        part, way = parts[name], rng.randrange(6)
        if way == 0 and len(parts) > 1:
            del parts[name]
        elif way == 1:
            parts[name] = bytearray(parts[rng.choice(list(parts))])
        elif way == 2:
            parts[
                rng.choice(
                    ("", "x", "../x.npy", "count_.npy", "count_x.npy", "\x1b.npy", "x" * 300)
                )
            ] = part
        elif way == 3 and len(part) > 20:  # a word of the header, its length kept or not
            word = rng.choice(_HEADERS)
            at = rng.randrange(10, min(len(part), 100))
            part[at : at + rng.choice((0, 1, len(word)))] = word
        elif part:
            rng.choice(OF_BYTES)(rng, part)
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for name, part in parts.items():
            archive.writestr(name or "-", bytes(part))
    return out.getvalue()
