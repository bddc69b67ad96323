"""Names in generated text. What the author of a model chose (names of robots, links, joints,
frames) reaches code, comments and file names through here alone.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rigidgrad.targets.c_types import MACROS

LONGEST = 80  # characters of an identifier: files are named after it
# of a comment; no pair of them begins or ends anything in C, C++, CUDA, OpenCL, Verilog, CMake or
# HTML
_SIGNS = " _.,:;=+-/()…·⁻⊕⊖"
_C = """auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short
    signed sizeof static struct switch typedef union unsigned void volatile while asm typeof NAN INFINITY main"""
_CPP = """and bool catch class delete explicit export false friend mutable namespace new not operator or private protected public template this
    throw true try typename using virtual xor"""
_OURS = (
    "work row rows n i k compare repeat failures LANES rigidgrad rigidgrad_cuda rigidgrad_opencl"
    " std f32 f64 real benchmark"
)
# headers that generated files include, targets that CMake keeps for itself, files that Windows has
# for devices
_OTHERS = """assert complex ctype errno float immintrin arm_neon limits math memory stddef stdint stdio stdlib string tgmath time vector cmath cstdio
    all clean depend edit_cache help install package rebuild_cache test aux con nul prn"""
_TAKEN = frozenset(f"{_C} {_CPP} {_OURS} {_OTHERS}".split()).union(MACROS)


def comment(text: str) -> str:
    """The text for a comment: letters, digits and a few signs in one line; whatever else becomes an
    underscore.
    """
    kept = "".join(c if c.isalnum() or c in _SIGNS else "_" for c in " ".join(text.split()))
    return kept if len(kept) <= 200 else kept[:197] + "..."


def identifier(name: str) -> str:
    """The name as an identifier of every target: ASCII letters, digits and single underscores.

    Separators (spaces and ``_ - . / :``) become underscores. Where more is lost, a hash of the name
    is appended, so that other names give other identifiers.
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    lost = len(plain) > LONGEST or not re.fullmatch(r"[A-Za-z0-9 _./:-]*", name)
    plain = plain[:LONGEST].strip("_")
    if not plain or plain[0].isdigit():
        plain = f"robot_{plain}".strip("_")
    if lost:
        plain = f"{plain}_{_digest(name)}"
    return plain + "_" if plain in _TAKEN or re.fullmatch(r"t\d+", plain) else plain


def identifiers(
    names: Iterable[str],
    taken: Collection[str] = (),
    suffixes: Sequence[str] = ("",),
    otherwise: str = "_2",
) -> dict[str, str]:
    """Identifiers of several names, all different, also with each of the suffixes appended,
    whatever their order.

    Names that would become the same identifier get a hash, but for one that is that identifier
    itself. One that is `taken` gets `otherwise` appended.
    """
    plain = {name: identifier(name) for name in names}
    count = Counter(plain.values())
    used, found = set(taken), {}
    for name in sorted(plain, key=lambda name: (plain[name] != name, name)):
        chosen = plain[name]
        if count[chosen] > 1 and chosen != name:
            chosen = f"{chosen}_{_digest(name)}"
        while any(chosen + suffix in used for suffix in suffixes):
            chosen += otherwise
        used.update(chosen + suffix for suffix in suffixes)
        found[name] = chosen
    return {name: found[name] for name in plain}


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
