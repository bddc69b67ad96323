"""The joint types: one file each, and the register in which a type is found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rigidgrad.errors import InputError
from rigidgrad.model.joints.continuous import Continuous
from rigidgrad.model.joints.floating import Floating
from rigidgrad.model.joints.helical import Helical
from rigidgrad.model.joints.joint_type import JointType
from rigidgrad.model.joints.planar import Planar
from rigidgrad.model.joints.prismatic import Prismatic
from rigidgrad.model.joints.revolute import Revolute
from rigidgrad.model.joints.spherical import Spherical

__all__ = [
    "FIXED",
    "JOINT_TYPES",
    "Continuous",
    "Floating",
    "Helical",
    "JointType",
    "Planar",
    "Prismatic",
    "Revolute",
    "Spherical",
    "joint_type",
    "register",
]

FIXED = (
    "fixed"  # of a joint that does not move: in descriptions only, a Model has merged what it joins
)

_registered: dict[str, JointType] = {}
JOINT_TYPES: Mapping[str, JointType] = MappingProxyType(_registered)


def register(type: JointType) -> None:
    """Makes a type known. Compiled code is kept on disk under the type's name: a type that changes
    needs another one.
    """
    if type.name in (*_registered, FIXED):
        raise InputError(f"there already is a joint type '{type.name}'; give yours another name")
    _registered[type.name] = type


def joint_type(name: str, of: str = "joint") -> JointType:
    """The type of that name; `of` says whose it is, for the error."""
    try:
        return _registered[name]
    except (KeyError, TypeError):
        raise InputError(
            f"{of}: there is no joint type {name!r}; there are {', '.join((*_registered, FIXED))}"
        ) from None


for _type in (Revolute(), Continuous(), Prismatic(), Helical(), Spherical(), Planar(), Floating()):
    register(_type)
