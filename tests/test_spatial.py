"""Spatial algebra costs what Featherstone's tables say, and means what 6x6 matrices mean."""

from __future__ import annotations

import itertools
from typing import ClassVar

import numpy as np
import pytest

from rigidgrad.spatial import (
    ArticulatedInertia,
    Force,
    Inertia,
    Motion,
    Transform,
    multiply3,
    rotate_matrix,
    rotate_symmetric,
    symmetric_matrix,
    transpose,
)


class Counted:
    """A number that counts the operations done on it."""

    tally: ClassVar[dict[str, int]] = {"mul": 0, "add": 0}

    def __init__(self, x):
        self.x = float(x)

    def _do(self, kind, x):
        self.tally[kind] += 1
        return Counted(x)

    def __add__(self, other):
        return self._do("add", self.x + _value(other))

    def __sub__(self, other):
        return self._do("add", self.x - _value(other))

    def __mul__(self, other):
        return self._do("mul", self.x * _value(other))

    __rmul__ = __mul__

    def __neg__(self):
        return Counted(-self.x)  # signs are free: they join the next addition


def _value(x):
    return x.x if isinstance(x, Counted) else x


def rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else q[:, ::-1]


def nested(array, kind=float):
    return tuple(nested(x, kind) for x in array) if np.ndim(array) else kind(array)


def make(rng, kind=float):
    """Random dense operands."""
    X = Transform(nested(rotation(rng), kind), nested(rng.normal(size=3), kind))
    Y = Transform(nested(rotation(rng), kind), nested(rng.normal(size=3), kind))
    m = Motion(nested(rng.normal(size=3), kind), nested(rng.normal(size=3), kind))
    n = Motion(nested(rng.normal(size=3), kind), nested(rng.normal(size=3), kind))
    f = Force(nested(rng.normal(size=3), kind), nested(rng.normal(size=3), kind))
    inertia = Inertia(
        kind(rng.uniform(1, 2)), nested(rng.normal(size=3), kind), nested(rng.normal(size=6), kind)
    )
    articulated = ArticulatedInertia(
        nested(rng.normal(size=6), kind),
        nested(rng.normal(size=(3, 3)), kind),
        nested(rng.normal(size=6), kind),
    )
    return X, Y, m, n, f, inertia, articulated


@pytest.mark.parametrize(
    ("operation", "multiplications", "additions"),
    [
        (lambda X, Y, m, n, f, i, a: X.motion(m), 24, 18),
        (lambda X, Y, m, n, f, i, a: X.motion_back(m), 24, 18),
        (lambda X, Y, m, n, f, i, a: X.force(f), 24, 18),
        (lambda X, Y, m, n, f, i, a: X.force_back(f), 24, 18),
        (lambda X, Y, m, n, f, i, a: X @ Y, 33, 24),
        (lambda X, Y, m, n, f, i, a: m.cross(n), 18, 12),
        (lambda X, Y, m, n, f, i, a: m.cross_force(f), 18, 12),
        (lambda X, Y, m, n, f, i, a: i.times(m), 24, 18),
        (lambda X, Y, m, n, f, i, a: a.times(m), 36, 30),
        (lambda X, Y, m, n, f, i, a: f.dot(m), 6, 5),
        (lambda X, Y, m, n, f, i, a: rotate_symmetric(X.E, i.I), 28, 29),
        (lambda X, Y, m, n, f, i, a: i + i, 0, 10),
        (lambda X, Y, m, n, f, i, a: X.inertia_back(i), 52, 56),
    ],
)
def test_dense_operations_cost_what_the_tables_say(operation, multiplications, additions):
    operands = make(np.random.default_rng(0), Counted)
    Counted.tally.update(mul=0, add=0)
    operation(*operands)
    assert Counted.tally["mul"] == multiplications
    assert Counted.tally["add"] <= additions


def cross_matrix(a):
    x, y, z = a
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def matrix(X):
    """The 6x6 motion transform."""
    E, r = np.array(X.E), np.array(X.r)
    return np.block([[E, np.zeros((3, 3))], [-E @ cross_matrix(r), E]])


def inertia_matrix(i):
    h = cross_matrix(i.h)
    return np.block([[np.array(symmetric_matrix(i.I)), h], [h.T, i.m * np.eye(3)]])


def articulated_matrix(a):
    return np.block(
        [
            [np.array(symmetric_matrix(a.A)), np.array(a.B)],
            [np.array(a.B).T, np.array(symmetric_matrix(a.C))],
        ]
    )


def motion_cross_matrix(m):
    w, v = cross_matrix(m.angular), cross_matrix(m.linear)
    return np.block([[w, np.zeros((3, 3))], [v, w]])


def flat(pair):
    return np.concatenate([pair.angular, pair.linear])


@pytest.mark.parametrize("seed", range(5))
def test_compact_operations_equal_six_by_six_matrices(seed):
    X, Y, m, n, f, i, a = make(np.random.default_rng(seed))
    XX = matrix(X)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)  # noqa: E731
    close(flat(X.motion(m)), XX @ flat(m))
    close(flat(X.motion_back(m)), np.linalg.inv(XX) @ flat(m))
    close(flat(X.force_back(f)), XX.T @ flat(f))
    close(flat(X.force(f)), np.linalg.inv(XX).T @ flat(f))
    close(matrix(X @ Y), XX @ matrix(Y))
    close(matrix(X.inverse()), np.linalg.inv(XX))
    close(flat(m.cross(n)), motion_cross_matrix(m) @ flat(n))
    close(flat(m.cross_force(f)), -motion_cross_matrix(m).T @ flat(f))
    close(flat(i.times(m)), inertia_matrix(i) @ flat(m))
    close(inertia_matrix(X.inertia_back(i)), XX.T @ inertia_matrix(i) @ XX)
    close(articulated_matrix(i.articulated()), inertia_matrix(i))
    close(flat(a.times(m)), articulated_matrix(a) @ flat(m))
    close(articulated_matrix(X.articulated_back(a)), XX.T @ articulated_matrix(a) @ XX)
    u = flat(f)
    close(articulated_matrix(a.minus_outer(f, f)), articulated_matrix(a) - np.outer(u, u))
    R = np.array(X.E)
    close(symmetric_matrix(rotate_symmetric(X.E, i.I)), R @ np.array(symmetric_matrix(i.I)) @ R.T)
    close(transpose(X.E), R.T)


def test_structural_zeros_cost_nothing_and_survive_nan():
    X = Transform(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0))
    m = Motion((np.float64("nan"), 0.0, 0.0), (0.0, 0.0, np.float64(2.0)))
    moved = X.motion(m)
    assert moved.angular[1] == 0.0 and type(moved.angular[1]) is float
    assert np.isnan(moved.angular[0])
    assert moved.linear[2] == 2.0


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("turn", range(24))
def test_turns_about_a_coordinate_axis_are_cheaper_and_right(axis, turn):
    rng = np.random.default_rng(turn)
    signed = [m for m in _signed_permutations() if np.linalg.det(m) > 0][turn]
    angle = rng.uniform(-3, 3)
    k, other = [x for x in range(3) if x != axis]
    spin = [[0.0] * 3 for _ in range(3)]
    c, s = Counted(np.cos(angle)), Counted(np.sin(angle))
    spin[axis][axis] = 1.0
    spin[k][k], spin[k][other], spin[other][k], spin[other][other] = c, -s, s, c
    R = multiply3(nested(signed), tuple(tuple(row) for row in spin))
    plain = np.array([[_value(x) for x in row] for row in R])
    S, K = nested(rng.normal(size=6), Counted), nested(rng.normal(size=(3, 3)), Counted)
    Counted.tally.update(mul=0, add=0)
    result = rotate_symmetric(R, S)
    assert Counted.tally["mul"] <= 13
    expected = plain @ np.array([[_value(x) for x in row] for row in symmetric_matrix(S)]) @ plain.T
    np.testing.assert_allclose(
        [[_value(x) for x in row] for row in symmetric_matrix(result)], expected, rtol=0, atol=1e-13
    )
    Counted.tally.update(mul=0, add=0)
    result = rotate_matrix(R, K)
    assert Counted.tally["mul"] <= 19  # instead of 24
    expected = plain @ np.array([[_value(x) for x in row] for row in K]) @ plain.T
    np.testing.assert_allclose(
        [[_value(x) for x in row] for row in result], expected, rtol=0, atol=1e-13
    )


def _signed_permutations():
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            yield np.eye(3)[list(order)] * np.array(signs)[:, None]
