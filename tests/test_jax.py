"""A robot's functions in JAX: the same values, derivatives that finite differences confirm, under
every transformation, and a policy that learns.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gradient_cases import (
    FUNCTIONS,
    HELD,
    OPTIONS,
    STEP,
    close,
    creature,
    hopper,
    inertias,
    inputs_of,
    numeric_jacobians,
)

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


@pytest.fixture(scope="module")
def robots(robot):
    """By the name of a function."""
    small = hopper()
    return {name: small if name in HELD else robot for name in FUNCTIONS}


def of(robot, name):
    def function(*inputs):
        result = getattr(rg.jax, name)(robot, *inputs, *OPTIONS.get(name, ()))
        if name == "energy":
            return jnp.stack(result, -1)
        return jnp.concatenate(result, -1) if isinstance(result, tuple) else result

    return function


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives(robots, name):
    robot = robots[name]
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
def test_batches_jit_and_vmap_agree_to_the_bit(robots, name):
    robot = robots[name]
    inputs = inputs_of(robot, name, (2, 3))
    expected = FUNCTIONS[name][1](robot, *inputs)
    function = of(robot, name)
    for way in (
        function,
        jax.jit(function),
        jax.vmap(function),
        jax.jit(jax.vmap(jax.vmap(function))),
    ):
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
def test_derivatives_by_inertias(name):
    robot = rg.load("double_pendulum")  # every joint: see test_torch
    inputs = [*inputs_of(robot, name), inertias(robot)]
    compiled = robot.compile(name, parameters=("inertia",))

    def function(*x):
        return getattr(rg.jax, name)(robot, *x[:-1], inertia=x[-1])

    np.testing.assert_array_equal(function(*inputs), compiled(*inputs))
    expected = numeric_jacobians(robot, compiled, inputs)
    for J, numeric in zip(jax.jacrev(function, (0, 1, 2, 3))(*inputs), expected, strict=True):
        close(J, numeric, 1e-5)


def slope(function, *inputs_and_directions):
    """How a NumPy function changes along a direction, by central differences."""
    half = len(inputs_and_directions) // 2
    inputs, directions = inputs_and_directions[:half], inputs_and_directions[half:]
    ahead, behind = (
        function(*(x + h * d for x, d in zip(inputs, directions, strict=True)))
        for h in (STEP, -STEP)
    )
    return (ahead - behind) / (2 * STEP)


def test_steps_on_the_manifold(robot):
    q, v, _ = inputs_of(robot, "aba", (3,))
    dv = 0.3 * v
    for scale in (1.0, 1e-3, 0.0):
        reached = robot.integrate(q, scale * v)
        close(rg.jax.integrate(robot, q, scale * v), reached, 1e-14)
        close(rg.jax.difference(robot, q, reached), robot.difference(q, reached), 1e-12)
    other = np.cos(np.arange(v.size)).reshape(v.shape)
    along = (
        robot.integrate(q, 1e-6 * other) - robot.integrate(q, -1e-6 * other)
    ) / 2e-6  # keeps quaternions at length one
    _, found = jax.jvp(lambda *x: rg.jax.integrate(robot, *x), (q, dv), (along, other))
    close(found, slope(lambda q, dv: robot.integrate(robot.normalize(q), dv), q, dv, along, other))


def test_a_step_of_dynamics_differentiates_as_a_whole(robot):
    """Coordinates of positions go through aba, integrate and forward kinematics; finite differences
    see the chain from outside.
    """
    q, v, tau = inputs_of(robot, "aba")
    direction = np.cos(np.arange(robot.nv))

    def thumb(functions, tau):
        """Two steps of semi-implicit Euler."""
        aba, integrate, placement = functions
        after = v + 0.1 * aba(q, v, tau)
        reached = integrate(q, 0.1 * after)
        again = integrate(reached, 0.1 * (after + 0.1 * aba(reached, after, tau)))
        return placement(again)

    ours = (
        of(robot, "aba"),
        lambda *x: rg.jax.integrate(robot, *x),
        of(robot, "forward_kinematics"),
    )
    numpy = (robot.aba, robot.integrate, lambda q: robot.forward_kinematics(q)["thumb"])
    _, found = jax.jvp(lambda tau: thumb(ours, tau), (tau,), (direction,))
    close(found, slope(lambda tau: thumb(numpy, tau), tau, direction))


def test_contacts_that_hold_in_part_and_restitution():
    """A mask beside the state, under jit; gradients are those of the derivative functions, and
    finite differences by the restitution.
    """
    arm = rg.load("iiwa14")
    hand = rg.Contact("iiwa_link_7", gains=(20.0, 4.0), place=(0.4, 0.1, 0.5))
    q, v, tau = inputs_of(arm, "contact_dynamics", (3,))
    active = np.array([[1], [0], [1]])
    found = jax.jit(lambda *x: rg.jax.contact_dynamics(arm, *x, hand, active=active))(q, v, tau)
    expected = arm.contact_dynamics(q, v, tau, hand, active=active)
    np.testing.assert_array_equal(found.a, expected.a)
    np.testing.assert_array_equal(found.force, expected.force)
    J = jax.vmap(
        jax.jacrev(
            lambda q, v, tau, on: rg.jax.contact_dynamics(arm, q, v, tau, hand, active=on),
            (0, 1, 2),
        )
    )(q, v, tau, active)
    d = arm.contact_dynamics_derivatives(q, v, tau, hand, active=active)
    for ours, theirs in zip((*J.a, *J.force), d[:6], strict=True):
        close(ours, theirs, 1e-12)
    assert not jax.grad(
        lambda on: rg.jax.contact_dynamics(arm, q, v, tau, hand, active=on).a.sum()
    )(active.astype(float)).any()
    e, hit = np.array(0.4), rg.Contact("iiwa_link_7")
    by_e = jax.jacfwd(lambda e: rg.jax.impact(arm, q, v, hit, e))(e)
    for part in ("v", "impulse"):
        ahead, behind = (getattr(arm.impact(q, v, hit, e + h), part) for h in (STEP, -STEP))
        close(getattr(by_e, part), (ahead - behind) / (2 * STEP))
    with pytest.raises(InputError, match="restitution"):
        rg.jax.impact(arm, q, v, hit, 1.5)
    with pytest.raises(UnknownNameError):
        rg.jax.contact_dynamics(arm, q, v, tau, [rg.Contact("nowhere")])
    single = [x.astype(np.float32) for x in (q, v, tau)]
    with jax.enable_x64(False):
        assert rg.jax.contact_dynamics(arm, *single, hand, active=active).force.dtype == jnp.float32
        assert rg.jax.impact(arm, *single[:2], hit, 0.5).impulse.dtype == jnp.float32


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
    first = jax.grad(lambda tau: (rg.jax.aba(robot, q, v, tau) ** 2).sum())
    with pytest.raises(RigidgradError, match="second derivatives"):
        jax.jvp(first, (tau,), (v,))


def test_integrate_has_second_derivatives():
    drone = rg.load("quadrotor")
    q, v, _ = drone.random(seed=0)
    second = jax.jacfwd(jax.jacfwd(lambda t: rg.jax.integrate(drone, q, t * v)))(0.5)
    numeric = (
        drone.integrate(q, 0.501 * v)
        - 2 * drone.integrate(q, 0.5 * v)
        + drone.integrate(q, 0.499 * v)
    ) / 1e-6
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
    monkeypatch.delitem(vars(rg), "jax", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(RigidgradError, match=r"pip install 'rigidgrad\[jax\]'"):
        rg.jax  # noqa: B018


def test_a_policy_learns_to_hold_a_pendulum_upright():
    """Gradients through a hundred simulated steps, by scan: a linear feedback that starts at
    nothing ends near the top from every start.
    """
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
