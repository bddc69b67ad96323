"""The joint-torque regressor: inverse dynamics is linear in the ten inertial parameters of each
body.
"""

from __future__ import annotations

from rigidgrad.algorithms.joints import Matrix, Vector, joint_space, project_rows
from rigidgrad.algorithms.textbook.rnea import rnea_sweep
from rigidgrad.model.model import WORLD, Model
from rigidgrad.scalars import Scalar
from rigidgrad.spatial import Inertia

PARAMETERS = ("m", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")


def unit_inertias() -> list[Inertia]:
    """The inertia of each parameter alone, about the body's origin."""
    numbers = [[1.0 if row == column else 0.0 for column in range(10)] for row in range(10)]
    return [Inertia(x[0], (x[1], x[2], x[3]), tuple(x[4:])) for x in numbers]


def torque_regressor(model: Model, q: Vector, v: Vector, a: Vector) -> Matrix:
    """Y(q, v, a): nv x 10·bodies, with rnea(q, v, a) = Y·parameters where armature is zero."""
    sweep = rnea_sweep(model, q, v, a)
    Y: list[list[Scalar]] = [[0.0] * (10 * len(model.joints)) for _ in range(model.dofs)]
    for body in model.bodies:
        velocity, acceleration = sweep.v[body], sweep.a[body]
        for column, unit in enumerate(unit_inertias(), 10 * body):
            f = unit.times(acceleration) + velocity.cross_force(unit.times(velocity))
            for i in model.ancestors[body]:
                for row, x in enumerate(joint_space(sweep.S[i], f), model.joints[i].dof):
                    Y[row][column] = x
                if model.parents[i] != WORLD:
                    f = sweep.X[i].force_back(f)
    return project_rows(model, Y)
