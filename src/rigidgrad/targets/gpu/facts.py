"""What a generated library for C++ says of its robot: sizes, names, limits, and where it came from,
as constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rigidgrad.model.model import Model


@dataclass(frozen=True)
class Facts:
    """`digest` is a hash of all numbers and names of the model that results depend on."""

    model: Model
    version: str
    digest: str

    def text(self) -> str:
        """C++ of a namespace; needs <limits>."""
        model, limits = self.model, self.model.limits
        moving = [j for j in model.joints if not j.is_mimic]
        lines = [
            "/* The robot. Joints that follow others have no place in q and v. */",
            f"constexpr char rigidgrad_version[] = {_string(self.version)};",
            f"constexpr char model_hash[] = {_string(self.digest)};",
            f"constexpr int nq = {model.nq}, nv = {model.nv};",
            f"constexpr int joints = {len(moving)}, bodies = {len(model.joints)};",
            _array("const char *const ", "joint_names", [_string(j.name) for j in moving]),
            "/* where each joint begins in q and in v */",
            _array("int ", "joint_q", [str(j.q) for j in moving]),
            _array("int ", "joint_v", [str(j.v) for j in moving]),
            "/* of q, and of v; infinite where there is none */",
            *(
                _array("double ", f"{name}_limits", map(_number, numbers))
                for name, numbers in (
                    ("lower", limits.lower),
                    ("upper", limits.upper),
                    ("velocity", limits.velocity),
                    ("effort", limits.effort),
                )
            ),
        ]
        return "\n".join(filter(None, lines))


def sizes(
    name: str,
    numbers: Sequence[tuple[str, int]],
    block: tuple[int, int] | None,
    threads_from: int | None,
) -> str:
    """Numbers of a state in each array of a function; of its block kernel, the threads and the
    numbers in shared memory; where there are both shapes, from how many states for each processor
    on threads are chosen.
    """
    fields = list(numbers) + (
        [("block_threads", block[0]), ("block_numbers", block[1])] if block else []
    )
    fields += [("threads_from", threads_from)] if threads_from else []
    listed = ", ".join(f"{key} = {n}" for key, n in fields)
    return f"struct {name}_sizes {{ static constexpr int {listed}; }};"


def _array(kind: str, name: str, entries: Iterable[str]) -> str:
    listed = ", ".join(entries)
    return f"constexpr {kind}{name}[] = {{{listed}}};" if listed else ""  # none in C++ is empty


def _number(x: float) -> str:
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}std::numeric_limits<double>::infinity()"
    return repr(float(x))


def _string(text: str) -> str:
    """A literal; what is neither a letter nor a digit of ASCII is bytes of UTF-8, in octal."""
    plain = (
        chr(b) if (chr(b).isalnum() and b < 128) or chr(b) in "_ .-" else f"\\{b:03o}"
        for b in text.encode()
    )
    return f'"{"".join(plain)}"'
