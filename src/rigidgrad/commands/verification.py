"""What `rigidgrad check` checks of a robot: its masses and limits, identities of mechanics, finite
differences, Pinocchio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rigidgrad.commands.peers import Absent, Pinocchio
from rigidgrad.model.joints import FIXED, joint_type
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.robot import Robot

# of finite differences of fourth order: truncation and rounding both stay far below what is allowed
_STEP = 1e-3
_DIFFERENCES = 1e-6  # allowed of gradients, relative to the largest entry
_EXACT = 1e-9  # allowed of everything without a linear system, relative to the largest entry
_FASTEST = 10.0  # rad/s or m/s, of the states
_MOST_TURN = 4 * np.pi  # rad: more than that from the middle is rare for a joint with limits
_FAST = 100.0  # rad/s, of a joint's limit
_DENSEST = 22_600.0  # kg/m³, of osmium
_STIFF = 1e10  # a condition number of the mass matrix that leaves few digits


class Check(NamedTuple):
    """One line: passed, failed, or (None) a note; what was found, and what is allowed."""

    name: str
    passed: bool | None
    found: float | None = None
    allowed: float | None = None
    about: str = ""

    def numbers(self) -> tuple[str, str]:
        return (
            ("", "")
            if self.found is None
            else (f"{self.found:.1e}", "" if self.allowed is None else f"{self.allowed:.1e}")
        )


def _within(name: str, found: float, allowed: float, about: str) -> Check:
    return Check(name, bool(found <= allowed), float(found), float(allowed), about)


# --- the description ------------------------------------------------------------------------------


class Body(NamedTuple):
    """A moving body with all that is fixed to it."""

    name: str
    mass: float
    center: float  # metres from the joint
    moments: tuple[float, float, float]  # principal, about the centre

    @property
    def gyration(self) -> float:
        """The radius at which all its mass would have its largest moment."""
        return float(np.sqrt(max(self.moments[2], 0.0) / self.mass)) if self.mass > 0 else 0.0


def measured_bodies(robot: Robot) -> list[Body]:
    found = []
    for name, (m, h, (xx, xy, yy, xz, yz, zz)) in zip(
        robot.model.body_names, robot.model.inertias, strict=True
    ):
        c = np.array(h) / m if m else np.zeros(3)
        about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        low, middle, high = np.linalg.eigvalsh(
            about_origin - m * (c @ c * np.eye(3) - np.outer(c, c))
        )
        found.append(
            Body(name, m, float(np.linalg.norm(c)), (float(low), float(middle), float(high)))
        )
    return found


def bodies(robot: Robot) -> list[tuple[str, ...]]:
    """A table of all moving bodies."""
    rows: list[tuple[str, ...]] = [
        ("body", "mass", "centre", "gyration", "least moment", "middle", "largest", "slack")
    ]
    for b in measured_bodies(robot):
        low, middle, high = b.moments
        slack = f"{(low + middle - high) / high:.0%}" if high > 0 else "-"
        rows.append(
            (
                b.name,
                f"{b.mass:.4g}",
                f"{b.center:.3g}",
                f"{b.gyration:.3g}",
                f"{low:.3g}",
                f"{middle:.3g}",
                f"{high:.3g}",
                slack,
            )
        )
    return rows


def body_notes(robot: Robot) -> list[Check]:
    """What is possible, but odd."""
    found, all_bodies = [], measured_bodies(robot)
    reach = sum(float(np.linalg.norm(p.p)) for p in robot.model.placements) + max(
        (b.center for b in all_bodies), default=0.0
    )
    carried = [b.mass for b in all_bodies]
    for i in reversed(robot.model.bodies):
        if robot.model.parents[i] >= 0:
            carried[robot.model.parents[i]] += carried[i]
    bare = [b.name for i, b in enumerate(all_bodies) if b.mass == 0 and carried[i] > 0]
    if bare:
        found.append(
            Check("massless bodies", None, about=f"{_some(bare)}: they move what hangs on them")
        )
    for b in all_bodies:
        if reach > 0 and b.gyration > reach:
            said = (
                f"{b.name!r} is larger than the whole robot ({b.gyration:.2g} m against {reach:.2g}"
                " m): is its inertia in kg m²?"
            )
            found.append(Check("large inertia", None, b.gyration, reach, said))
    for b, size in zip(all_bodies, drawn_sizes(robot), strict=True):
        if size is not None and size + b.center < b.gyration <= reach:
            said = (
                f"{b.name!r} is larger than the shapes that it is drawn with ({b.gyration:.2g} m"
                f" against {size:.2g} m): is its inertia in kg m²?"
            )
            found.append(Check("large inertia", None, b.gyration, size + b.center, said))
        # of a ball with this mass
        densest = float(np.sqrt(0.4) * np.cbrt(3 * b.mass / (4 * np.pi * _DENSEST)))
        if 0 < b.gyration < densest:
            said = (
                f"{b.name!r} would have to be denser than any metal: is its inertia in kg m², and"
                " its mass in kg?"
            )
            found.append(Check("small inertia", None, b.gyration, densest, said))
    return found


def drawn_sizes(robot: Robot) -> list[float | None]:
    """How far each body's simple shapes reach from its joint, in metres; None where there are none,
    or meshes, which are not read.
    """
    model = robot.model
    found: list[float | None] = [None] * len(model.joints)
    meshes = {model.frames[link].body for link, visual in model.visuals if visual.shape == "mesh"}
    for link, visual in model.visuals:
        body = model.frames[link].body
        if body >= 0 and body not in meshes:
            at = (model.frames[link].placement @ visual.placement).p
            # a cylinder's radius and length: never too small
            half = {"sphere": 1.0, "box": 0.5, "cylinder": 1.0, "capsule": 1.0}[visual.shape]
            found[body] = max(
                found[body] or 0.0,
                float(np.linalg.norm(at)) + half * float(np.linalg.norm(visual.size)),
            )
    return found


def limit_notes(robot: Robot) -> list[Check]:
    """Limits that leave no room, that look like degrees, or that are missing."""
    found = []
    without: dict[str, list[str]] = {"effort": [], "velocity": []}
    large: dict[str, list[str]] = {"position": [], "velocity": []}
    for j in robot.model.joints:
        if j.is_mimic or j.kind.flies:
            continue
        for kind, names in without.items():
            value = getattr(j.limit, kind)
            if value == 0:
                found.append(
                    Check(
                        f"{kind} limit",
                        None,
                        about=(
                            f"joint {j.name!r} has a limit of 0: it may not"
                            f" {'push' if kind == 'effort' else 'move'} at all"
                        ),
                    )
                )
            elif not np.isfinite(value):
                names.append(j.name)
        if j.kind.is_hinge:
            far = max(
                (abs(x) for x in (j.limit.lower, j.limit.upper) if np.isfinite(x)), default=0.0
            )
            for kind, value, most, unit in (
                ("position", far, _MOST_TURN, "rad"),
                ("velocity", j.limit.velocity, _FAST, "rad/s"),
            ):
                if most < value < np.inf:
                    large[kind].append(f"{j.name} ({value:g} {unit})")
        if j.kind.bounded and j.limit.lower == j.limit.upper:
            found.append(
                Check(
                    "position limit",
                    None,
                    j.limit.lower,
                    None,
                    f"joint {j.name!r} has lower = upper: should it be fixed?",
                )
            )
    for kind, names in large.items():
        if names:
            found.append(
                Check(
                    f"{kind} limit",
                    None,
                    about=(
                        f"{_some(names)}: are these degrees? Where there is no limit, leave it out"
                    ),
                )
            )
    for kind, names in without.items():
        if names:
            found.append(Check(f"no {kind} limit", None, about=_some(names)))
    return found


def axis_notes(robot: Robot) -> list[Check]:
    """Joints whose axis is taken for granted."""
    bare = [
        j.name
        for j in robot.model.description.joints
        if j.type != FIXED and joint_type(j.type).has_axis and j.axis is None
    ]
    return (
        [
            Check(
                "no axis",
                None,
                about=f"{_some(bare)}: x is taken, as URDF says; write <axis xyz=…/>",
            )
        ]
        if bare
        else []
    )


def mesh_notes(robot: Robot, source: str) -> list[Check]:
    """Mesh files that are not where the robot's file says. Dynamics reads none; other programs
    do.
    """
    if not os.path.isfile(source):
        return []
    folder = Path(source).resolve().parent
    names = dict.fromkeys(v.mesh for _, v in robot.model.visuals if v.mesh)
    missing = [name for name in names if not any(map(os.path.isfile, _places(name, folder)))]
    if not missing:
        return []
    return [
        Check(
            "missing meshes",
            None,
            about=f"{_some(missing)}: not found; dynamics does not need them",
        )
    ]


def _places(name: str, folder: Path) -> Iterator[Path]:
    """Where a mesh may be: a path of its own, or in a package, which is a folder at or above the
    robot's file, or beside one of these.
    """
    scheme, mark, rest = name.partition("://")
    if not mark:
        yield folder / name
    elif scheme == "file":
        yield Path("/") / rest
    else:
        inside = rest.partition("/")[2]
        for above in (folder, *folder.parents):
            yield above / rest
            if above.name == rest.partition("/")[0]:
                yield above / inside


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


# --- mechanics ------------------------------------------------------------------------------------


class States(NamedTuple):
    """Random states, with accelerations and joint forces that belong together."""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray


def random_states(robot: Robot, count: int, seed: int) -> States:
    q, v, _ = robot.random((count,), seed=seed)
    v = np.clip(v, -_FASTEST, _FASTEST)
    a = np.random.default_rng(seed + 1).uniform(-1, 1, v.shape)
    return States(q, v, a, robot.rnea(q, v, a))


def identities(robot: Robot, count: int, seed: int) -> list[Check]:
    """Our functions against each other, against conservation laws, and against finite
    differences.
    """
    if not robot.nv:
        return [Check("dynamics", None, about="there are no moving joints")]
    s = random_states(robot, count, seed)
    M = robot.crba(s.q)
    eigenvalues = np.linalg.eigvalsh(M)
    least = float(eigenvalues.min())
    condition = float((eigenvalues[:, -1] / np.maximum(np.abs(eigenvalues[:, 0]), 1e-300)).max())
    solving = max(_EXACT, 1e-14 * condition)  # what a linear system with M may lose
    states = f"{count} random states"
    found = [
        Check("mass matrix positive", least > 0, least, about=f"smallest eigenvalue, {states}"),
        Check(
            "mass matrix conditioned",
            True if condition < _STIFF else None,
            condition,
            _STIFF,
            "largest by smallest eigenvalue",
        ),
        _within(
            "forward inverts inverse",
            _error(robot.aba(s.q, s.v, s.tau), s.a),
            solving,
            "aba(q, v, rnea(q, v, a)) = a",
        ),
        _within(
            "minv inverts crba",
            _error(robot.minv(s.q) @ M, np.broadcast_to(np.eye(robot.nv), M.shape)),
            solving,
            "minv(q) crba(q) = 1",
        ),
        _within(
            "energy balance",
            _energy_error(robot, s),
            _DIFFERENCES,
            "power of joint forces = rate of energy, by finite differences",
        ),
    ]
    by_rnea, by_aba = robot.rnea_derivatives(s.q, s.v, s.a), robot.aba_derivatives(s.q, s.v, s.tau)
    loose = max(_DIFFERENCES, 1e-11 * condition)
    for name, gradient, function, third, allowed in (
        ("inverse dynamics", by_rnea, robot.rnea, s.a, _DIFFERENCES),
        ("forward dynamics", by_aba, robot.aba, s.tau, loose),
    ):
        for k, letter in enumerate(("q", "v", "a" if function == robot.rnea else "tau")):
            expected = _differences(robot, function, (s.q, s.v, third), k)
            found.append(
                _within(
                    f"gradient of {name} by {letter}",
                    _error(np.asarray(gradient[k]), expected),
                    allowed,
                    "finite differences",
                )
            )
    frame = tool_frame(robot.model)
    expected = _differences(
        robot, lambda q: robot.forward_kinematics(q)[frame][..., :3, 3], (s.q,), 0
    )
    found.append(
        _within(
            "Jacobian",
            _error(robot.jacobian(s.q, frame)[..., :3, :], expected),
            _DIFFERENCES,
            f"of {frame!r}, finite differences",
        )
    )
    return found


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest error, relative to the largest entry of its state, or to 1."""
    axes = tuple(range(1, expected.ndim))
    return float(
        (
            np.abs(found - expected).max(axis=axes)
            / np.maximum(np.abs(expected).max(axis=axes), 1.0)
        ).max()
    )


def _differences(
    robot: Robot, function: Callable[..., Any], inputs: tuple[np.ndarray, ...], which: int
) -> np.ndarray:
    """∂f/∂inputs[which] (…, f, nv) by central differences of fourth order; positions (input 0) are
    varied along the tangent space.
    """
    columns = []
    for k in range(robot.nv):
        step = np.zeros(robot.nv)
        step[k] = _STEP

        def at(times: float, step: np.ndarray = step) -> np.ndarray:
            moved = list(inputs)
            moved[which] = (
                robot.integrate(inputs[0], times * step)
                if which == 0
                else inputs[which] + times * step
            )
            return np.asarray(function(*moved))

        columns.append((8 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12 * _STEP))
    return np.stack(columns, axis=-1)


def _energy_error(robot: Robot, s: States) -> float:
    """Of d/dt (kinetic + potential) = v·tau, along the motion, relative to the largest of the
    powers at play.
    """

    def energy(t: float) -> np.ndarray:
        # q ⊕ t v has the velocity v at t = 0; the acceleration enters the energy's rate by v alone
        e = robot.energy(robot.integrate(s.q, t * s.v), s.v + t * s.a)
        return np.asarray(e.kinetic + e.potential)

    h = _STEP / max(1.0, float(np.abs(s.v).max()))
    rate = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    armature = _armature_power(robot, s)
    power = np.einsum("ni,ni->n", s.v, s.tau) - armature
    size = np.abs(s.v * s.tau).sum(axis=1)
    return float((np.abs(rate - power) / np.maximum(size, 1.0)).max())


def _armature_power(robot: Robot, s: States) -> np.ndarray:
    """What rotors take up: their energy is not that of bodies."""
    heavy = np.zeros(robot.nv)
    for j in robot.model.joints:
        for k in range(j.nv):
            heavy[j.v + k] += j.multiplier**2 * robot.model.armature[j.dof + k]
    power: np.ndarray = np.einsum("ni,ni->n", s.v, heavy * s.a)
    return power


# --- Pinocchio ------------------------------------------------------------------------------------


def against_pinocchio(robot: Robot, source: str, count: int, seed: int) -> list[Check]:
    """Every function against Pinocchio, which reads the file itself; a note where it is not there
    or cannot.
    """
    if not robot.nv:
        return []
    try:
        peer = Pinocchio(robot, source)
    except Absent as reason:
        return [Check("against Pinocchio", None, about=str(reason))]
    s = random_states(robot, count, seed)
    condition = float(np.linalg.cond(robot.crba(s.q)).max())
    solving = max(_EXACT, 1e-13 * condition)
    inputs = {"rnea": (s.q, s.v, s.a), "aba": (s.q, s.v, s.tau), "crba": (s.q,), "minv": (s.q,)}
    inputs |= {"rnea_derivatives": inputs["rnea"], "aba_derivatives": inputs["aba"]}
    found = []
    for name, arrays in inputs.items():
        ours = getattr(robot, name)(*arrays)
        ours = list(ours) if isinstance(ours, tuple) else [ours]
        error = max(_error(a, b) for a, b in zip(ours, peer.results(name, *arrays), strict=True))
        found.append(
            _within(
                name,
                error,
                solving if name in ("aba", "minv", "aba_derivatives") else _EXACT,
                f"Pinocchio {peer.pin.__version__}",
            )
        )
    return found
