"""The compiled backward pass against the same recursion written out in NumPy, for every form,
width, type and feature.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from rigidgrad.errors import InputError
from rigidgrad.runtime.riccati import bind
from rigidgrad.targets.riccati_layout import Layout

H = 0.01  # the time step of Euler's forms


class Case:
    """A random linear-quadratic problem, in the layout of the compiled pass and as plain
    matrices.
    """

    def __init__(self, layout: Layout, steps: int, seed: int = 0):
        rng, o = np.random.default_rng(seed), layout
        self.layout, self.steps = o, steps
        n, m = o.n, o.m
        self.own = [o.state(i) for i in range(n)] + [o.control(i) for i in range(m)]
        part = 0.3 * rng.normal(size=(steps, o.rows, n + m))
        if o.form != "dense":
            part[:, :, o.half : n] += np.eye(o.half)
        # of a free base: ∂q'/∂q, and ∂q'/∂v' / h
        self.turn, self.steer = np.eye(o.base) + 0.2 * rng.normal(size=(2, steps, o.base, o.base))
        self.h = H * rng.uniform(0.0, 2.0, steps)  # of each knot, which only that form has
        self.F = self.full(part)
        self.l = rng.normal(size=(steps, n + m))
        root = rng.normal(size=(steps, n + m, n + m))
        self.L = root @ root.transpose(0, 2, 1) / (n + m) + 0.1 * np.eye(n + m)
        if o.diagonal:
            self.L *= np.eye(n + m)
        root = rng.normal(size=(n, n))
        self.V, self.v = root @ root.T + np.eye(n), rng.normal(size=n)
        self.defects = 0.1 * rng.normal(size=(steps, n))
        self.u = rng.uniform(-0.2, 0.2, (steps, m))
        self.bound = 0.3
        self.part = part

    def full(self, part: np.ndarray) -> np.ndarray:
        """[A, B] from ∂v'/∂(q, v, u)."""
        o = self.layout
        if o.form == "dense":
            return part
        eye = np.zeros((o.half, o.n + o.m))
        eye[:, : o.half] = np.eye(o.half)
        if o.form == "floating":
            P, S, b = (
                np.tile(eye, (self.steps, 1, 1)),
                self.h[:, None, None] * np.eye(o.half),
                o.base,
            )
            P[:, :b, :b], S[:, :b, :b] = self.turn, H * self.steer
            return np.concatenate([P + S @ part, part], axis=1)
        if o.form == "implicit":
            return np.concatenate([eye + H * part, part], axis=1)
        eye[:, o.half : o.n] = H * np.eye(o.half)
        return np.concatenate([np.broadcast_to(eye, part.shape), part], axis=1)

    def spread(self, rows: np.ndarray, own: list[int], columns: int) -> np.ndarray:
        result = np.zeros((*rows.shape[:-1], columns), self.layout.dtype)
        result[..., own] = rows
        return result

    def arrays(self, rho: float = 0.0, starts=None, ends=None) -> dict[str, np.ndarray]:
        o, steps, n = self.layout, self.steps, self.layout.n
        starts = np.array([0, steps] if starts is None else starts, np.int64)
        blocks = len(starts) - 1
        ends = [(self.V, self.v)] * blocks if ends is None else ends
        own = self.own[:n]
        L = np.diagonal(self.L, axis1=1, axis2=2) if o.diagonal else self.L
        moves = {"move": self.move()} if o.form == "floating" else {}
        return moves | {
            "ranges": np.stack([starts[:-1], starts[1:]], axis=1),
            "F": self.spread(self.part, self.own, o.columns),
            "l": self.spread(self.l, self.own, o.columns),
            "L": self.spread(L, self.own, o.columns),
            "gains": np.zeros((steps, o.m, o.gain_columns)),
            "end": np.stack(
                [self.spread(np.vstack([V, v]), own, o.state_columns) for V, v in ends]
            ),
            "start": np.zeros((blocks, n + 1, o.state_columns), o.dtype),
            "numbers": np.tile([rho, H], (blocks, 1)),
            "results": np.full((blocks, 3), np.nan),
            "defects": self.defects,
            "lower": np.full((steps, o.m), -self.bound),
            "upper": np.full((steps, o.m), self.bound),
            "u": self.u,
            "active": np.zeros((steps, o.m)),
            "scratch": np.full((blocks, o.scratch_size), np.nan, o.dtype),
        }

    def move(self) -> np.ndarray:
        o = self.layout
        own = [
            self.spread(a, list(range(o.base)), o.base_columns).reshape(self.steps, -1)
            for a in (self.turn, H * self.steer)
        ]
        return np.concatenate([*own, np.repeat(self.h[:, None], o.width, axis=1)], axis=1).astype(
            o.dtype
        )

    def compiled(self, rho: float = 0.0, starts=None, ends=None):
        arrays = self.arrays(rho, starts, ends)
        bind(self.layout, arrays).run()
        return self.found(arrays, self.layout)

    def found(self, arrays: dict[str, np.ndarray], layout: Layout):
        """(K, κ, V at the starts, results)."""
        own, gains = self.own[: self.layout.n], arrays["gains"]
        return (
            gains[:, :, own],
            gains[:, :, layout.correction],
            arrays["start"][:, :, own],
            arrays["results"],
        )

    def expected(self, rho: float = 0.0, first: int = 0, last: int | None = None):
        """(K, κ, V and v at the start, Σ κᵀg_u, Σ κᵀH_uu κ)."""
        o, n = self.layout, self.layout.n
        V, v = self.V, self.v
        K, kappa = np.zeros((self.steps, o.m, n)), np.zeros((self.steps, o.m))
        slope = curve = 0.0
        for k in range((self.steps if last is None else last) - 1, first - 1, -1):
            F = self.F[k]
            if o.gaps:
                v = v + V @ self.defects[k]
            Q, g = self.L[k] + F.T @ V @ F, self.l[k] + F.T @ v
            R = Q + rho * F.T @ F
            kappa[k], free = self.controls(R[n:, n:], g[n:], k)
            if free.any():
                K[k][free] = -np.linalg.solve(R[n:, n:][np.ix_(free, free)], R[n:, :n][free])
            slope += kappa[k] @ g[n:]
            curve += kappa[k] @ Q[n:, n:] @ kappa[k]
            v = g[:n] + K[k].T @ Q[n:, n:] @ kappa[k] + K[k].T @ g[n:] + Q[:n, n:] @ kappa[k]
            V = Q[:n, :n] + K[k].T @ Q[n:, n:] @ K[k] + K[k].T @ Q[n:, :n] + Q[:n, n:] @ K[k]
        return K, kappa, V, v, slope, curve

    def controls(self, R: np.ndarray, g: np.ndarray, k: int):
        """The minimum of ½ κᵀRκ + gᵀκ, within bounds by trying every set of active ones."""
        m = self.layout.m
        if not self.layout.bounded:
            return -np.linalg.solve(R, g), np.ones(m, bool)
        low, high = -self.bound - self.u[k], self.bound - self.u[k]
        for signs in itertools.product((0, -1, 1), repeat=m):
            side = np.array(signs)
            free, x = side == 0, np.where(side > 0, high, np.where(side < 0, low, 0.0))
            if free.any():
                x[free] = np.linalg.solve(R[np.ix_(free, free)], -(g + R @ x)[free])
            slope = g + R @ x
            inside = (x <= high + 1e-12).all() and (x >= low - 1e-12).all()
            if inside and (slope[side > 0] <= 1e-12).all() and (slope[side < 0] >= -1e-12).all():
                return x, free
        raise AssertionError("a convex problem has a minimum")


FORMS = ["dense", "explicit", "implicit"]
FEATURES = [
    {},
    {"diagonal": True},
    {"gaps": True},
    {"bounded": True},
    {"bounded": True, "gaps": True, "diagonal": True},
]


@pytest.mark.parametrize("rho", [0.0, 0.4])
@pytest.mark.parametrize("features", FEATURES, ids=lambda f: "+".join(f) or "plain")
@pytest.mark.parametrize(("n", "m"), [(2, 1), (6, 3), (14, 4)])
@pytest.mark.parametrize("form", FORMS)
def test_equals_the_recursion_written_out(form, n, m, features, rho):
    case = Case(Layout(n, m, form, "float64", 4, **features), steps=12)
    K, kappa, start, results = case.compiled(rho)
    K0, kappa0, V, v, slope, curve = case.expected(rho)
    # clamped controls are held by a diagonal of 1e12, which leaves 1e-12 of the others' size
    for found, known in (
        (K, K0),
        (kappa, kappa0),
        (start[0, :n], V),
        (start[0, n], v),
        (results[0], [slope, curve, 1.0]),
    ):
        np.testing.assert_allclose(found, known, rtol=0, atol=2e-11 * max(1.0, np.abs(known).max()))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_every_width_and_type(form, dtype, width):
    case = Case(Layout(10, 5, form, dtype, width), steps=9)
    K, kappa, start, _ = case.compiled(0.1)
    K0, kappa0, V, _, _, _ = case.expected(0.1)
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for found, known in ((K, K0), (kappa, kappa0), (start[0, :10], V)):
        np.testing.assert_allclose(
            found, known, rtol=0, atol=tolerance * max(1.0, np.abs(known).max())
        )


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize(
    "features",
    [{}, {"gaps": True}, {"bounded": True, "gaps": True}],
    ids=lambda f: "+".join(f) or "plain",
)
@pytest.mark.parametrize(("n", "m", "base"), [(12, 4, 6), (14, 3, 3), (26, 5, 6)])
def test_a_free_base_moves_as_its_own_maps_say(n, m, base, features, rho):
    case = Case(Layout(n, m, "floating", "float64", 8, base=base, **features), steps=7)
    K, kappa, start, results = case.compiled(rho)
    K0, kappa0, V, v, slope, curve = case.expected(rho)
    # clamped controls are held by a diagonal of 1e12, which leaves 1e-12 of the others' size
    for found, known in (
        (K, K0),
        (kappa, kappa0),
        (start[0], np.vstack([V, v])),
        (results[0], [slope, curve, 1.0]),
    ):
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-11 * np.abs(known).max())
    assert (start[0, :n] == start[0, :n].T).all()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_free_base_of_every_width_and_type(dtype, width):
    case = Case(Layout(22, 5, "floating", dtype, width, base=6), steps=5)
    K, kappa, start, _ = case.compiled(0.1)
    K0, kappa0, V, _, _, _ = case.expected(0.1)
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for found, known in ((K, K0), (kappa, kappa0), (start[0, :22], V)):
        np.testing.assert_allclose(
            found, known, rtol=0, atol=tolerance * max(1.0, np.abs(known).max())
        )


@pytest.mark.parametrize(("n", "m", "form"), [(37, 14, "dense"), (40, 18, "implicit")])
def test_sizes_beyond_unrolling(n, m, form):
    case = Case(Layout(n, m, form, "float64", 8), steps=3)
    K, kappa, start, _ = case.compiled(0.2)
    K0, kappa0, V, _, _, _ = case.expected(0.2)
    for found, known in ((K, K0), (kappa, kappa0), (start[0, :n], V)):
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-11 * np.abs(known).max())


def test_blocks_start_from_their_own_cost_to_go():
    case = Case(Layout(6, 3, "implicit", "float64", 4), steps=11)
    K, _, start, results = case.compiled(starts=[0, 4, 8, 11])
    for b, (first, last) in enumerate([(0, 4), (4, 8), (8, 11)]):
        K0, _, V, v, slope, curve = case.expected(first=first, last=last)
        np.testing.assert_allclose(K[first:last], K0[first:last], atol=1e-12)
        np.testing.assert_allclose(start[b], np.vstack([V, v]), atol=1e-12 * np.abs(V).max())
        np.testing.assert_allclose(results[b], [slope, curve, 1.0], rtol=1e-12)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("bad", [-50.0, np.nan])
def test_an_indefinite_control_hessian_is_reported(bounded, bad):
    case = Case(Layout(4, 2, "dense", "float64", 4, bounded=bounded), steps=5)
    case.L[2, 5, 5] = bad
    assert case.compiled()[3][0, 2] == 0.0
    assert case.compiled(rho=1e6)[3][0, 2] == (0.0 if np.isnan(bad) else 1.0)


def test_layouts_of_different_features_do_not_share_code():
    base = Layout(4, 2, "dense", "float64", 4)
    assert len({repr(replace(base, **f)) for f in FEATURES}) == len(FEATURES)


def test_buffers_that_are_too_small_missing_or_of_another_type_are_refused():
    case = Case(Layout(4, 2, "dense", "float64", 4, bounded=True, gaps=True), 5, 0)
    layout, good = case.layout, case.arrays()
    bind(layout, good)
    for name in good:
        if name != "ranges":  # it says how many blocks there are
            with pytest.raises(InputError, match=f"buffer {name} "):
                bind(layout, good | {name: good[name].reshape(-1)[:-1]})
        with pytest.raises(InputError, match=f"buffer {name} "):
            bind(layout, good | {name: good[name].astype("float32")})
        with pytest.raises(InputError, match=f"missing: {name}"):
            bind(layout, {other: array for other, array in good.items() if other != name})
    with pytest.raises(InputError, match="buffer F "):
        bind(layout, good | {"ranges": good["ranges"] + [[0, 1]]})
