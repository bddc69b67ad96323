"""A robot's functions in JAX: the same values, derivatives that finite differences confirm, under every transformation, and a policy that learns."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gradient_cases import FUNCTIONS, OPTIONS, close, creature, inertias, inputs_of, numeric_jacobians

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError, UnknownNameError

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'rigidgrad[jax]'")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def robot():
    return creature()


def of(robot, name):
    return lambda *inputs: getattr(rg.jax, name)(robot, *inputs, *OPTIONS.get(name, ()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives(robot, name):
    inputs = inputs_of(robot, name)
    reference = FUNCTIONS[name][1]
    function = of(robot, name)
    np.testing.assert_array_equal(function(*inputs), reference(robot, *inputs))
    expected = numeric_jacobians(robot, lambda *x: reference(robot, *x), inputs)
    numbers = tuple(range(len(inputs)))
    for transform in (jax.jacrev, jax.jacfwd):
        for J, numeric in zip(transform(function, numbers)(*inputs), expected, strict=True):
            close(J, numeric)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_jit_and_vmap_agree_to_the_bit(robot, name):
    inputs = inputs_of(robot, name, (2, 3))
    expected = FUNCTIONS[name][1](robot, *inputs)
    function = of(robot, name)
    for way in (function, jax.jit(function), jax.vmap(function), jax.jit(jax.vmap(jax.vmap(function)))):
        np.testing.assert_array_equal(way(*inputs), expected)


def test_batched_gradients_are_those_of_single_states(robot):
    q, v, tau = inputs_of(robot, "aba", (5,))
    loss = jax.grad(lambda *x: jnp.sin(rg.jax.aba(robot, *x)).sum(), (0, 1, 2))
    together = jax.jit(loss)(q, v, tau)
    mapped = jax.vmap(loss)(q, v, tau)
    for k in range(5):
        for a, b, c in zip(together, mapped, loss(q[k], v[k], tau[k]), strict=True):
            np.testing.assert_allclose(a[k], c, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(b[k], c, rtol=1e-12, atol=1e-12)


def test_inputs_broadcast_and_their_gradients_sum_up(robot):
    q, v, tau = inputs_of(robot, "aba", (4,))
    shared = jax.grad(lambda v: rg.jax.aba(robot, q, v, tau).sum())(v[0])
    single = jax.grad(lambda v: rg.jax.aba(robot, q, v, tau).sum())(np.repeat(v[:1], 4, axis=0))
    np.testing.assert_allclose(shared, single.sum(0), rtol=1e-12, atol=1e-9)
    over = jax.vmap(lambda q, v: rg.jax.aba(robot, q, v, tau[0]), in_axes=(0, None))(q, v[0])
    np.testing.assert_array_equal(over, robot.aba(q, v[0], tau[0]))


@pytest.mark.parametrize("name", ["rnea", "aba"])
def test_derivatives_by_inertias(robot, name):
    inputs = [*inputs_of(robot, name), inertias(robot)]
    compiled = robot.compile(name, parameters=("inertia",))

    def function(*x):
        return getattr(rg.jax, name)(robot, *x[:-1], inertia=x[-1])

    np.testing.assert_array_equal(function(*inputs), compiled(*inputs))
    expected = numeric_jacobians(robot, compiled, inputs)
    for J, numeric in zip(jax.jacrev(function, (0, 1, 2, 3))(*inputs), expected, strict=True):
        close(J, numeric, 1e-5)


def test_steps_on_the_manifold(robot):
    q, v, _ = inputs_of(robot, "aba", (3,))
    integrate, difference = (jax.jit(lambda *x, f=f: f(robot, *x)) for f in (rg.jax.integrate, rg.jax.difference))
    for scale in (1.0, 1e-3, 0.0):
        reached = robot.integrate(q, scale * v)
        close(integrate(q, scale * v), reached, 1e-14)
        close(difference(q, reached), robot.difference(q, reached), 1e-12)
    jacobians = jax.jit(jax.jacfwd(lambda q, dv: rg.jax.integrate(robot, normalized(robot, q), dv), (0, 1)))(q[0], 0.3 * v[0])
    for J, numeric in zip(jacobians, numeric_jacobians(robot, robot.integrate, [q[0], 0.3 * v[0]]), strict=True):
        close(J, numeric)


def normalized(robot, q):
    """normalize, in JAX: the gradient of f(normalize(q)) is what finite differences see."""
    parts = []
    for j in robot.model.joints:
        if not j.is_mimic:
            part = q[..., j.q : j.q + j.nq]
            start = {"spherical": 0, "planar": 2, "floating": 3}.get(j.type, j.nq)
            parts += [part[..., :start], part[..., start:] / jnp.linalg.norm(part[..., start:], axis=-1, keepdims=True)]
    return jnp.concatenate(parts, -1)


def test_a_step_of_dynamics_differentiates_as_a_whole(robot):
    """Coordinates of positions go through aba, integrate and forward kinematics; finite differences see the chain from outside."""
    q, v, tau = inputs_of(robot, "aba")

    def ours(tau):
        after = v + 0.1 * rg.jax.aba(robot, q, v, tau)
        reached = rg.jax.integrate(robot, q, 0.1 * after)
        again = rg.jax.integrate(robot, reached, 0.1 * (after + 0.1 * rg.jax.aba(robot, reached, after, tau)))
        return rg.jax.forward_kinematics(robot, again, "thumb")

    def numpy(q, tau):
        after = v + 0.1 * robot.aba(q, v, tau)
        reached = robot.integrate(q, 0.1 * after)
        again = robot.integrate(reached, 0.1 * (after + 0.1 * robot.aba(reached, after, tau)))
        return robot.forward_kinematics(again)["thumb"]

    close(jax.jit(jax.jacrev(ours))(tau), numeric_jacobians(robot, numpy, [q, tau])[1])


def test_single_precision_is_the_default():
    arm = rg.load("double_pendulum")
    q, v, tau = (x.astype(np.float32) for x in arm.random((8,), seed=0))
    with jax.enable_x64(False):
        result = jax.jit(lambda *x: rg.jax.aba(arm, *x))(q, v, tau)
        assert result.dtype == jnp.float32
        np.testing.assert_array_equal(result, arm.aba(q, v, tau))
        assert rg.jax.aba(arm, [0, 0], [0, 0], [0, 0]).dtype == jnp.float32
    assert rg.jax.aba(arm, [0, 0], [0, 0], [0, 0]).dtype == jnp.float64
    assert rg.jax.aba(arm, q, v, tau.astype(np.float64)).dtype == jnp.float64


def test_a_large_batch_and_an_empty_one():
    arm = rg.load("double_pendulum")
    q, v, tau = arm.random((100_001,), seed=0)
    np.testing.assert_array_equal(rg.jax.aba(arm, q, v, tau), arm.aba(q, v, tau))
    assert rg.jax.aba(arm, q[:0], v[:0], tau[:0]).shape == (0, 2)


def test_second_derivatives_are_an_error_that_says_so(robot):
    q, v, tau = inputs_of(robot, "aba")
    with pytest.raises(RigidgradError, match="second derivatives"):
        jax.hessian(lambda tau: (rg.jax.aba(robot, q, v, tau) ** 2).sum())(tau)

    def along(t):
        return rg.jax.integrate(robot, q, t * v)

    second = jax.jit(jax.jacfwd(jax.jacfwd(along)))(0.5)
    numeric = (robot.integrate(q, 0.501 * v) - 2 * robot.integrate(q, 0.5 * v) + robot.integrate(q, 0.499 * v)) / 1e-6
    close(second, numeric, 1e-5)


def test_wrong_shapes_and_frames_are_explained(robot):
    q, v, tau = inputs_of(robot, "aba")
    with pytest.raises(InputError, match=r"v has shape \(3,\)"):
        rg.jax.aba(robot, q, v[:3], tau)
    with pytest.raises(InputError, match="broadcast"):
        jax.jit(lambda *x: rg.jax.aba(robot, *x))(np.stack([q] * 2), np.stack([v] * 3), tau)
    with pytest.raises(UnknownNameError, match="thumb"):
        rg.jax.forward_kinematics(robot, q, "thum")


def test_without_jax_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "rigidgrad.jax", raising=False)
    monkeypatch.delattr(rg, "jax", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(RigidgradError, match=r"pip install 'rigidgrad\[jax\]'"):
        rg.jax  # noqa: B018


def test_a_policy_learns_to_hold_a_pendulum_upright():
    """Gradients through a hundred simulated steps, by scan: a linear feedback that starts at nothing ends near the top from every start."""
    robot = rg.load("pendulum")
    up, dt = np.pi, 0.02  # it hangs at 0
    starts = jnp.array([[up - 0.3, 0.0], [up + 0.2, 0.5], [up, -0.5]])

    def cost(gains):
        def step(x, _):
            q, v = x[..., :1], x[..., 1:]
            tau = -((q - up) * gains[0] + v * gains[1])
            v = v + dt * rg.jax.aba(robot, q, v, tau)
            x = jnp.concatenate([q + dt * v, v], -1)
            return x, ((x - jnp.array([up, 0.0])) ** 2).sum() + 1e-4 * (tau**2).sum()

        return jax.lax.scan(step, starts, None, length=100)[1].mean()

    learn = jax.jit(jax.value_and_grad(cost))
    gains, speed, spread = jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)
    first, _ = learn(gains)
    for k in range(1, 101):  # Adam
        value, gradient = learn(gains)
        speed, spread = 0.9 * speed + 0.1 * gradient, 0.99 * spread + 0.01 * gradient**2
        gains -= 0.5 * (speed / (1 - 0.9**k)) / (jnp.sqrt(spread / (1 - 0.99**k)) + 1e-9)
    assert value < first / 50
