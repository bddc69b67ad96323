"""What `rg.jax` and `rg.torch` are tested on: a robot with every kind of joint, its functions, and
their Jacobians by central differences.
"""

from __future__ import annotations

import numpy as np
from random_trees import random_inertia

import rigidgrad as rg

STEP = 1e-5


def creature() -> rg.Robot:
    """A floating body with a spherical, a planar, a prismatic, a continuous and a mimic joint."""
    rng = np.random.default_rng(4)
    builder = rg.Builder("creature")
    parents = {
        "trunk": None,
        "head": "trunk",
        "skate": "trunk",
        "arm": "trunk",
        "hand": "arm",
        "thumb": "hand",
    }
    types = {
        "head": "spherical",
        "skate": "planar",
        "arm": "prismatic",
        "hand": "continuous",
        "thumb": "revolute",
    }
    for name, parent in parents.items():
        mass, com, inertia = random_inertia(rng)
        builder.link(name, mass=mass, com=com, inertia=inertia)
        if parent is not None:
            mimic = ("hand_joint", -0.7, 0.2) if name == "thumb" else None
            axis = None if types[name] in ("spherical", "planar") else rng.normal(size=3)
            builder.joint(
                f"{name}_joint",
                types[name],
                parent,
                name,
                xyz=rng.normal(size=3) * 0.2,
                rpy=rng.normal(size=3),
                axis=axis,
                mimic=mimic,
            )
    return builder.build(floating_base=True)


def hopper() -> rg.Robot:
    """A floating body with one leg: small, for functions that take long to compile."""
    rng = np.random.default_rng(6)
    builder = rg.Builder("hopper")
    for name in ("trunk", "thumb"):
        mass, com, inertia = random_inertia(rng)
        builder.link(name, mass=mass, com=com, inertia=inertia)
    builder.joint(
        "leg",
        "continuous",
        "trunk",
        "thumb",
        xyz=rng.normal(size=3) * 0.2,
        rpy=rng.normal(size=3),
        axis=rng.normal(size=3),
    )
    return builder.build(floating_base=True)


def inertias(robot: rg.Robot) -> np.ndarray:
    return np.array([[m, *h, *i] for m, h, i in robot.model.inertias])


CONTACTS = [rg.Contact("thumb", offset=(0.1, 0.0, 0.2), gains=(30.0, 5.0), place=(0.1, 0.2, -0.3))]


# without gains and places; what feet of a hopper can do about a motion
FEET = [rg.Contact("thumb", offset=(0.1, 0.0, 0.2), friction=0.6), rg.Contact("trunk")]


def joined(result) -> np.ndarray:
    """Outputs in one vector, without what says how they were found."""
    return np.concatenate(result[:2], -1)


# name: its inputs, and the function of a robot and NumPy arrays
FUNCTIONS = {
    "rnea": ("q v a", lambda r, q, v, a: r.rnea(q, v, a)),
    "aba": ("q v a", lambda r, q, v, a: r.aba(q, v, a)),
    "bias": ("q v", lambda r, q, v: r.bias(q, v)),
    "gravity_torque": ("q", lambda r, q: r.gravity_torque(q)),
    "crba": ("q", lambda r, q: r.crba(q)),
    "minv": ("q", lambda r, q: r.minv(q)),
    "coriolis_matrix": ("q v", lambda r, q, v: r.coriolis_matrix(q, v)),
    "energy": ("q v", lambda r, q, v: np.stack(r.energy(q, v), -1)),
    "forward_kinematics": ("q", lambda r, q: r.forward_kinematics(q)["thumb"]),
    "jacobian": ("q", lambda r, q: r.jacobian(q, "thumb")),
    "jacobian_derivative": ("q v", lambda r, q, v: r.jacobian_derivative(q, v, "thumb")),
    "frame_velocity": ("q v", lambda r, q, v: r.frame_velocity(q, v, "thumb")),
    "frame_acceleration": (
        "q v a",
        lambda r, q, v, a: r.frame_acceleration(q, v, a, "thumb"),
    ),
    "center_of_mass": ("q", lambda r, q: r.center_of_mass(q)),
    "center_of_mass_jacobian": ("q", lambda r, q: r.center_of_mass_jacobian(q)),
    "centroidal_momentum": ("q v", lambda r, q, v: r.centroidal_momentum(q, v)),
    "contact_dynamics": ("q v a", lambda r, q, v, a: joined(r.contact_dynamics(q, v, a, CONTACTS))),
    "impact": ("q v", lambda r, q, v: joined(r.impact(q, v, CONTACTS, 0.3))),
    "contact_jacobian": ("q", lambda r, q: r.contact_jacobian(q, FEET)),
    "delassus": ("q", lambda r, q: r.delassus(q, FEET)),
}
_FRAME = ("thumb",)
OPTIONS = {
    "forward_kinematics": _FRAME,
    "jacobian": _FRAME,
    "jacobian_derivative": _FRAME,
    "frame_velocity": _FRAME,
    "frame_acceleration": _FRAME,
    "contact_dynamics": (CONTACTS,),
    "impact": (CONTACTS, 0.3),
    "contact_jacobian": (FEET,),
    "delassus": (FEET,),
}
HELD = ("contact_dynamics", "impact", "contact_jacobian", "delassus")


def inputs_of(robot: rg.Robot, name: str, batch=(), seed: int = 0) -> list[np.ndarray]:
    state = robot.random(batch, seed=seed)
    values = {"q": state.q, "v": state.v, "a": state.tau}
    return [values[key] for key in FUNCTIONS[name][0].split()]


def numeric_jacobians(robot: rg.Robot, function, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """∂ function(normalize(q), …) by each input, (*output, *input), by central differences of all
    directions at once.
    """
    result = []
    for k, x in enumerate(inputs):
        size = x.size
        steps = np.concatenate([np.eye(size), -np.eye(size)]).reshape(2 * size, *x.shape) * STEP
        moved = [
            x + steps if i == k else np.broadcast_to(y, (2 * size, *y.shape))
            for i, y in enumerate(inputs)
        ]
        moved[0] = robot.normalize(moved[0])
        values = function(*moved)
        J = (values[:size] - values[size:]) / (2 * STEP)
        result.append(np.moveaxis(J, 0, -1).reshape(*J.shape[1:], *x.shape))
    return result


def close(found, expected, tolerance: float = 1e-6) -> None:
    expected = np.asarray(expected)
    assert np.shape(found) == expected.shape
    assert np.abs(np.asarray(found) - expected).max() <= tolerance * max(
        1.0, np.abs(expected).max()
    )
