"""What ABA and the direct inverse share: a joint's apparent inertia, and what the parent feels
through the joint.
"""

from __future__ import annotations

from rigidgrad.algorithms import ltl
from rigidgrad.algorithms.joints import joint_space
from rigidgrad.algorithms.sparsity import dense
from rigidgrad.model.model import Model
from rigidgrad.scalars import add
from rigidgrad.spatial import ZERO_FORCE, ArticulatedInertia, Force, Motion


def joint_inertia(model: Model, i: int, S: tuple[Motion, ...], U: list[Force]) -> ltl.Factor:
    """D = SᵀU with the joint's armature, factorised."""
    rotor = model.armature[model.joints[i].dof :]
    D = [joint_space(S, u) for u in U]
    for k, row in enumerate(D):
        row[k] = add(row[k], rotor[k])
    return ltl.factorize(D, dense(len(D)))


def without_joint(inertia: ArticulatedInertia, U: list[Force], D: ltl.Factor) -> ArticulatedInertia:
    """Iᴬ - U D⁻¹ Uᵀ: what the parent feels through the joint."""
    inverse = ltl.inverse(D)
    for k, u in enumerate(U):
        w = ZERO_FORCE
        for x, other in zip(inverse[k], U, strict=True):
            w = w + other.scale(x)
        inertia = inertia.minus_outer(w, u)
    return inertia
