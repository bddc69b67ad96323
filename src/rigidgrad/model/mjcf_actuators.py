"""What drives the joints of a MuJoCo model.

An actuator's force acts along a joint or a fixed tendon, with the moment arms `gear` times the
tendon's coefficients. A plain one gives gain · control. A servo gives (g₀ + g₁ l + g₂ l̇) control +
b₀ + b₁ l + b₂ l̇, where l is the length along its arms: of it, controls of ours are the force, and
the law is kept for plants.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from rigidgrad.model.description import Actuator, Servo
from rigidgrad.model.left_out import named
from rigidgrad.model.mjcf_names import BALL, HINGE, SLIDE, name_at, number_of, unused

Arms = list[tuple[int, tuple[float, ...]]]  # joint of MuJoCo's, and the arm along each freedom


class Follower(NamedTuple):
    """q = multiplier · q(master) + offset, of joints of MuJoCo's."""

    master: int
    multiplier: float
    offset: float


class Drives(NamedTuple):
    """`actuators`: None where the file has none that acts on joints. `rotors`: armature and damping
    that actuators add to joints. `left_out`: what is not modelled, by name.
    """

    actuators: tuple[Actuator, ...] | None
    rotors: Mapping[int, tuple[float, float]]
    left_out: tuple[str, ...]


def read_actuators(model: Any, joints: list[str], followers: Mapping[int, Follower]) -> Drives:
    """All actuators of a model; `joints` are the names of its joints."""
    found: list[Actuator] = []
    rotors: dict[int, tuple[float, float]] = {}
    left_out: dict[str, list[str]] = {}
    for k in range(len(model.actuator_trntype)):
        own = name_at(model, model.name_actuatoradr[k])
        arms, where = _arms(model, k)
        if arms is None:
            left_out.setdefault(f"actuator {where}", []).append(own or str(k))
            continue
        target = own or (joints[arms[0][0]] if len(arms) == 1 else where)
        name = unused(target, {a.name for a in found})
        _add_rotor(model, k, name, arms, rotors, left_out)
        actuator, missing = _actuator(model, k, name, arms, joints, followers)
        for what in missing:
            left_out.setdefault(what, []).append(name)
        found.append(actuator)
    said = tuple(named(what, names) for what, names in left_out.items())
    return Drives(tuple(found) or None, rotors, said)


def _arms(model: Any, k: int) -> tuple[Arms | None, str]:
    """The joints that an actuator acts on, or None; and what it acts on, in words."""
    kind, target = int(model.actuator_trntype[k]), int(model.actuator_trnid[k, 0])
    gear = model.actuator_gear[k].tolist()
    if kind in (number_of("mjtTrn", "JOINT"), number_of("mjtTrn", "JOINTINPARENT")):
        joint = int(model.jnt_type[target])
        if joint in (HINGE, SLIDE):
            return [(target, (gear[0],))], "on a joint"
        if joint == BALL and kind == number_of("mjtTrn", "JOINT"):
            return [(target, tuple(gear[:3]))], "on a joint"
        return None, "along the parent's axes of a joint" if joint == BALL else "on a free joint"
    if kind == number_of("mjtTrn", "TENDON"):
        coefficients = fixed_tendon(model, target)
        if coefficients is None:
            return None, "on a spatial tendon"
        tendon = name_at(model, model.name_tendonadr[target])
        return [(j, (gear[0] * c,)) for j, c in coefficients], tendon or f"tendon{target}"
    return None, "that acts neither on joints nor on tendons"


def fixed_tendon(model: Any, tendon: int) -> list[tuple[int, float]] | None:
    """(joint, coefficient) of a tendon whose length is Σ coefficient · q; None of another."""
    first = int(model.tendon_adr[tendon])
    parts = range(first, first + int(model.tendon_num[tendon]))
    if any(int(model.wrap_type[w]) != number_of("mjtWrap", "JOINT") for w in parts):
        return None
    return [(int(model.wrap_objid[w]), float(model.wrap_prm[w])) for w in parts]


def _add_rotor(
    model: Any,
    k: int,
    name: str,
    arms: Arms,
    rotors: dict[int, tuple[float, float]],
    left_out: dict[str, list[str]],
) -> None:
    """Armature and damping of an actuator on one hinge or slide are the joint's."""
    armature, damping = (
        float(getattr(model, f"actuator_{what}", [0.0] * (k + 1))[k])
        for what in ("armature", "damping")
    )
    (joint, arm), *more = arms
    if not (armature or damping):
        return
    if more or len(arm) > 1:
        left_out.setdefault("armature and damping of actuator", []).append(name)
        return
    before = rotors.get(joint, (0.0, 0.0))
    rotors[joint] = before[0] + arm[0] ** 2 * armature, before[1] + arm[0] ** 2 * damping


def _actuator(
    model: Any, k: int, name: str, arms: Arms, joints: list[str], followers: Mapping[int, Follower]
) -> tuple[Actuator, list[str]]:
    """The control, and what of it is left out."""
    forces, offset = _on_masters(arms, joints, followers)
    low, high = _range(model, k, "force")
    least, most = _range(model, k, "ctrl")
    missing = []
    if float(getattr(model, "actuator_delay", [0.0] * (k + 1))[k]):
        missing.append("delay of actuator")
    if getattr(model, "actuator_dampingpoly", [[0.0]] * (k + 1))[k].any():
        missing.append("damping of higher order of actuator")
    gain_type, bias_type = int(model.actuator_gaintype[k]), int(model.actuator_biastype[k])
    fixed, none = number_of("mjtGain", "FIXED"), number_of("mjtBias", "NONE")
    known = (
        gain_type in (fixed, number_of("mjtGain", "AFFINE"))
        and bias_type in (none, number_of("mjtBias", "AFFINE"))
        and int(model.actuator_dyntype[k]) == number_of("mjtDyn", "NONE")
    )
    if not known:
        missing.append("how a force comes from the control of actuator")
        return Actuator(name, forces, low, high), missing
    g = [*model.actuator_gainprm[k, :3].tolist()]
    gain = (g[0], 0.0, 0.0) if gain_type == fixed else (g[0], g[1], g[2])
    b = model.actuator_biasprm[k, :3].tolist()
    bias = (0.0, 0.0, 0.0) if bias_type == none else (b[0], b[1], b[2])
    if any(bias) or any(gain[1:]) or gain[0] == 0.0:
        if any(len(force) > 1 for _, force in forces):
            missing.append("law on a ball joint of actuator")
            return Actuator(name, forces, low, high), missing
        servo = Servo(gain, bias, least, most, offset)
        return Actuator(name, forces, low, high, servo), missing
    bounds = sorted((low / gain[0], high / gain[0]))
    scaled = tuple((joint, tuple(gain[0] * f for f in force)) for joint, force in forces)
    return Actuator(name, scaled, max(least, bounds[0]), min(most, bounds[1])), missing


def _on_masters(
    arms: Arms, joints: list[str], followers: Mapping[int, Follower]
) -> tuple[tuple[tuple[str, tuple[float, ...]], ...], float]:
    """Arms along joints that follow no other, and the length where those are at zero."""
    total: dict[int, tuple[float, ...]] = {}
    offset = 0.0
    for joint, arm in arms:
        while joint in followers:
            follower = followers[joint]
            offset += arm[0] * follower.offset
            joint, arm = follower.master, (arm[0] * follower.multiplier,)
        before = total.get(joint, (0.0,) * len(arm))
        total[joint] = tuple(x + y for x, y in zip(before, arm, strict=True))
    return tuple((joints[j], arm) for j, arm in total.items()), offset


def _range(model: Any, k: int, what: str) -> tuple[float, float]:
    if not getattr(model, f"actuator_{what}limited")[k]:
        return -inf, inf
    low, high = getattr(model, f"actuator_{what}range")[k].tolist()
    return low, high
