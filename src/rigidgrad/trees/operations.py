"""The functions of `algebra` and `articulated` for compiled code."""

from __future__ import annotations

from rigidgrad.trees import algebra, articulated
from rigidgrad.trees.compiled import inlined
from rigidgrad.trees.lanes import sincos
from rigidgrad.trees.traced import traced

rotate = traced(algebra.rotate)
add = traced(algebra.add)
motion_to_child = traced(algebra.motion_to_child)
motion_to_parent = traced(algebra.motion_to_parent)
force_to_parent = traced(algebra.force_to_parent)
force_to_child = traced(algebra.force_to_child)
compose = traced(algebra.compose)
inertia_times = traced(algebra.inertia_times)
joint_momentum = traced(algebra.joint_momentum)
cross_motion = traced(algebra.cross_motion)
joint_motion = traced(algebra.joint_motion)
jet_after = traced(algebra.jet_after)
body_force = traced(algebra.body_force)
inertia_to_parent = traced(algebra.inertia_to_parent)
across_joint = traced(algebra.across_joint)
of_body = traced(articulated.of_body)
eliminate = traced(articulated.eliminate)
to_parent = traced(articulated.to_parent)
acceleration = traced(articulated.acceleration)
two_sums = traced(articulated.two_sums)
rank_one = traced(articulated.rank_one)
prepended = traced(articulated.prepended)
tail_step = traced(articulated.tail_step)


@inlined
def joint_transform(E, r, ang, lin, q):
    """From parent to child across a joint that turns by ang·q about z and moves by lin·q along it."""
    s, c = sincos(ang * q)
    return across_joint(E, r, s, c, lin * q)
