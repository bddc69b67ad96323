"""Dynamics of trees with thousands to millions of bodies, over arrays: by levels, along heavy
paths, by scans.

Robots become straight-line code (`rigidgrad.Robot`); such trees are too large for that.
"""

from typing import Any

from rigidgrad.trees.auto_tree import auto_tree
from rigidgrad.trees.crba import crba
from rigidgrad.trees.forward_dynamics import AccuracyWarning, ForwardDynamics, forward_dynamics
from rigidgrad.trees.inverse_dynamics import bias, rnea
from rigidgrad.trees.kinematics import (
    center_of_mass,
    centroidal_momentum,
    energy,
    forward_kinematics,
)
from rigidgrad.trees.memory import TooLargeError
from rigidgrad.trees.packed import PackedMatrix
from rigidgrad.trees.scans import scan
from rigidgrad.trees.tree import Tree
from rigidgrad.trees.vector_tree import leaffix, rootfix

__all__ = [
    "AccuracyWarning",
    "ForwardDynamics",
    "PackedMatrix",
    "TooLargeError",
    "Tree",
    "auto_tree",
    "bias",
    "center_of_mass",
    "centroidal_momentum",
    "crba",
    "energy",
    "forward_dynamics",
    "forward_kinematics",
    "leaffix",
    "rnea",
    "rootfix",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name == "jax":  # on first use, as it needs an extra
        import rigidgrad.trees.jax as found

        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
