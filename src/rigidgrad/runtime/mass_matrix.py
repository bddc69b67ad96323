"""Whether the mass matrix of a robot can be inverted: what some robots' descriptions do not allow,
where a body that a joint moves has no mass, or an inertia that no body has.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rigidgrad.algorithms import catalog, manifold
from rigidgrad.errors import ModelError
from rigidgrad.model.model import Joint, Model
from rigidgrad.runtime import reference

_POSITIONS = 6  # random ones: a single position may be singular by chance, as gimbals are
_ROUNDING = 1e-12  # of what a joint moves: less than this resists it by rounding alone


def check_function(model: Model, function: str, parameters: Collection[str] = ()) -> None:
    """Raises an error if a function of the catalog divides by a mass matrix that has no inverse;
    where its numbers are inputs nothing is known.
    """
    if catalog.FUNCTIONS[function].inverts and not {"inertia", "armature"} & set(parameters):
        require_inverse(model, function)


def require_inverse(model: Model, user: str, added: np.ndarray | None = None) -> None:
    """Raises an error that names the joint and its body if the mass matrix, which `user` divides
    by, is singular or not positive definite.

    Pivots of M = Lᵀ D L are what resists each joint while all that it carries is free. They are
    looked at in random positions, and only for models with massless or implausible bodies: others
    have a positive definite M. `added` (nv,) is what is added to the diagonal of M.
    """
    if not (model.problems or any(m == 0.0 for m, *_ in model.inertias)) or not model.nv:
        return
    q, n = _positions(model), model.nv
    M = reference.evaluate(catalog.bind(model, "crba"), {"q": q}, len(q), q.dtype)["M"]
    M = M.reshape(-1, n, n) + np.diag(np.zeros(n) if added is None else added)
    size = np.abs(np.diagonal(M, axis1=1, axis2=2)).copy()
    for k in reversed(range(n)):
        pivot = M[:, k, k]
        regular = np.abs(pivot) > _ROUNDING * size[:, k]
        if not regular.any():
            raise ModelError(_singular(model, user, k))
        if (pivot[regular] < 0).any():
            raise ModelError(_negative(model, user, k))
        M = M[regular]  # where a position is singular by chance, the pivots above mean nothing
        size = size[regular]
        M = M - M[:, :, k, None] * M[:, None, k, :] / M[:, k, k, None, None]


def _positions(model: Model) -> np.ndarray:
    rng = np.random.default_rng(0)
    q = np.tile(np.array(manifold.neutral(model)), (_POSITIONS, 1))
    for j in model.joints:
        if not j.is_mimic:
            own = slice(j.q, j.q + j.nq)
            lower, upper = model.limits.lower[own], model.limits.upper[own]
            q[:, own] = j.kind.random(rng, (_POSITIONS,), lower, upper)
    return q


def _at(model: Model, k: int) -> tuple[Joint, str, str]:
    """The joint of a velocity, what it moves, and what is known to be wrong there."""
    i, joint = next(
        (i, j) for i, j in enumerate(model.joints) if not j.is_mimic and j.v <= k < j.v + j.nv
    )
    wrong = next((p.text for p in model.problems if p.body == i), None)
    return joint, model.body_names[i], f" ({wrong})" if wrong else ""


def _singular(model: Model, user: str, k: int) -> str:
    joint, body, wrong = _at(model, k)
    return (
        f"{user} of '{model.name}' divides by the mass matrix, which is singular: nothing"
        f" resists joint '{joint.name}' (velocity {k} of v), which moves link '{body}'{wrong}; give"
        " what that joint moves a mass and an inertia, or the joint armature"
    )


def _negative(model: Model, user: str, k: int) -> str:
    joint, body, wrong = _at(model, k)
    others = "" if wrong else "".join(f" ({p.text})" for p in model.problems[:1])
    return (
        f"{user} of '{model.name}' divides by the mass matrix, which is not positive definite:"
        f" what joint '{joint.name}' (velocity {k} of v) moves, link '{body}' and what hangs on it,"
        f" has less than no inertia{wrong or others}; correct its masses and inertias"
    )
