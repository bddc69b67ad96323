"""A small neural network learns to swing a cart-pole's pole up and to keep it there: its gradient
goes through 150 simulated steps, 16 states at a time.
"""

import jax
import jax.numpy as jnp
import numpy as np

import rigidgrad as rg

robot = rg.load("cartpole")
steps, dt, batch, hidden = 150, 0.02, 16, 32
UP = np.pi  # the pole hangs at 0


def policy(weights, q, v):
    """The cart's force; the pole has none."""
    features = jnp.concatenate([q[..., :1], jnp.cos(q[..., 1:]), jnp.sin(q[..., 1:]), v], -1)
    force = 20 * jnp.tanh(jnp.tanh(features @ weights["in"] + weights["bias"]) @ weights["out"])
    return jnp.concatenate([force, jnp.zeros_like(force)], -1)


def cost(weights, q, v):
    def step(state, _):
        q, v = state
        tau = policy(weights, q, v)
        v = v + dt * rg.jax.aba(robot, q, v, tau)
        q = rg.jax.integrate(robot, q, dt * v)
        upright = 1 - jnp.cos(q[..., 1] - UP)
        small = 1e-3 * (v**2).sum(-1) + 1e-5 * (tau**2).sum(-1)
        return (q, v), upright + 0.1 * q[..., 0] ** 2 + small

    (q, v), costs = jax.lax.scan(step, (q, v), None, length=steps)
    return costs[steps // 3 :].mean(), 1 - jnp.cos(q[..., 1] - UP)


learn = jax.jit(jax.value_and_grad(cost, has_aux=True))
rng = np.random.default_rng(0)
weights = {
    "in": rng.normal(size=(5, hidden)) * 0.5,
    "bias": np.zeros(hidden),
    "out": rng.normal(size=(hidden, 1)) * 0.1,
}
weights = jax.tree.map(jnp.asarray, weights)
mean, square = jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)
for k in range(1, 301):  # Adam
    q, v = 0.3 * rng.normal(size=(2, batch, 2)).astype(np.float32)
    (value, tilt), gradient = learn(weights, q, v)
    size = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / size), gradient)  # noqa: B023
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, square, gradient)
    rate, unbiased = 0.03 * (1 - k / 301), (1 - 0.9**k, 1 - 0.99**k)
    change = jax.tree.map(
        lambda m, s: rate * (m / unbiased[0]) / (jnp.sqrt(s / unbiased[1]) + 1e-8),  # noqa: B023
        mean,
        square,
    )
    weights = jax.tree.map(jnp.subtract, weights, change)
    if k == 1 or k % 50 == 0:
        up = int((tilt < 0.1).sum())
        print(f"round {k:4d}: cost {value:7.3f}, {up:2d} of {batch} poles up at the end")
