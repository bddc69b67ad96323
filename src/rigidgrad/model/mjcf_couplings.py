"""Equality constraints of joints and fixed tendons in MuJoCo's models. Where they are linear and
tie two joints, one joint mimics the other: exactly here, softly in MuJoCo.

A `joint` constraint says y - y₀ = p(x - x₀), with the polynomial p and the joints' references x₀,
y₀. A `tendon` constraint says the same of lengths Σ c q.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigidgrad.model.mjcf_actuators import Follower, fixed_tendon
from rigidgrad.model.mjcf_names import HINGE, SLIDE, number_of
from rigidgrad.model.xml import quoted

Followers = dict[int, Follower]
Line = tuple[dict[int, float], float]  # Σ coefficient · q(joint) + constant = 0


def read_couplings(model: Any, names: Sequence[str]) -> tuple[Followers, list[str]]:
    """Joints that follow others, and the constraints that are left out; names of the constraints
    are empty where there is none.
    """
    followers: Followers = {}
    left_out = []
    for k, name in enumerate(names):
        kind = int(model.eq_type[k])
        if kind not in (number_of("mjtEq", "JOINT"), number_of("mjtEq", "TENDON")):
            continue
        what = "joints" if kind == number_of("mjtEq", "JOINT") else "tendons"
        said = f"equality constraint of {what}" + (f" {quoted(name)}" if name else "")
        if not model.eq_active0[k]:
            left_out.append(f"inactive {said}")
            continue
        line = _line(model, k, what)
        if line is None:
            left_out.append(f"{said}, which is not linear")
        elif not _follow(model, line, followers):
            left_out.append(f"{said}, which ties no two joints that are free to move")
    return followers, left_out


def _line(model: Any, k: int, what: str) -> Line | None:
    """A constraint as a linear equation; None for one that is not linear."""
    polynomial = model.eq_data[k, :5].tolist()
    if any(polynomial[2:]):
        return None
    first, second = int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
    left = _length(model, first, what)
    if left is None:
        return None
    coefficients, constant = dict(left[0]), left[1] - polynomial[0]
    if second >= 0:
        right = _length(model, second, what)
        if right is None:
            return None
        constant -= polynomial[1] * right[1]
        for joint, c in right[0].items():
            coefficients[joint] = coefficients.get(joint, 0.0) - polynomial[1] * c
    return coefficients, constant


def _length(model: Any, index: int, what: str) -> Line | None:
    """The position of a joint, or the length of a fixed tendon, from its reference on."""
    parts = [(index, 1.0)] if what == "joints" else fixed_tendon(model, index)
    if parts is None or any(int(model.jnt_type[j]) not in (HINGE, SLIDE) for j, _ in parts):
        return None
    coefficients: dict[int, float] = {}
    for joint, c in parts:
        coefficients[joint] = coefficients.get(joint, 0.0) + c
    reference = sum(c * float(model.qpos0[model.jnt_qposadr[j]]) for j, c in parts)
    return coefficients, -reference


def _follow(model: Any, line: Line, followers: Followers) -> bool:
    """Makes a joint of the equation follow the other; False if it does not tie two joints."""
    total: dict[int, float] = {}
    constant = line[1]
    for joint, c in line[0].items():
        while joint in followers:
            f = followers[joint]
            constant, c, joint = constant + c * f.offset, c * f.multiplier, f.master
        total[joint] = total.get(joint, 0.0) + c
    tied = [j for j, c in total.items() if c != 0.0]
    if len(tied) != 2:
        return False
    # the first of a constraint is the one that MuJoCo states by the other
    follower, master = tied
    multiplier = -total[master] / total[follower]
    followers[follower] = Follower(master, multiplier, -constant / total[follower])
    return True
