"""Gradients of steps of worlds, against finite differences of the steps themselves."""

from __future__ import annotations

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import worlds_cases as cases  # noqa: E402

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, UnknownNameError  # noqa: E402

COUNT = 12
VARIED = ("mass", "gain", "kp", "kd", "damping", "armature", "friction")


def differences(f, arguments, name, h=1e-6):
    """∂f/∂(one argument), number by number."""
    columns = []
    for k in range(arguments[name].shape[1]):
        ends = []
        for sign in (1, -1):
            moved = arguments[name].copy()
            moved[:, k] += sign * h
            ends.append(f(**arguments | {name: moved}))
        columns.append((ends[0] - ends[1]) / (2 * h))
    return np.stack(columns, axis=1)


@pytest.mark.filterwarnings("ignore:pairs of shapes")
@pytest.mark.parametrize("case", ["toys", "quadruped"])
def test_gradients_are_those_of_finite_differences(case):
    if case == "toys":
        m = mujoco.MjModel.from_xml_string(cases.TOYS)
        height = (0.0, 0.3)
    else:
        m = cases.quadruped('cone="elliptic" integrator="implicitfast"', alone=True)
        height = (0.1, 0.3)
    more = {"vary": VARIED, "push": "trunk"} if case == "quadruped" else {}
    exact = {"dtype": "float64", "tolerance": 1e-20, "iterations": 100}
    worlds = rg.worlds.Worlds(m, COUNT, dt=None, **exact, **more)
    qpos, qvel, u = cases.states(m, COUNT, height, seed=3)
    rng = np.random.default_rng(0)
    of_qpos, of_qvel = rng.normal(size=(COUNT, m.nq)), rng.normal(size=(COUNT, m.nv))

    def weighted(qpos, qvel, u, **parameters):
        worlds.qpos[:], worlds.qvel[:] = qpos, qvel
        for name, x in parameters.items():
            getattr(worlds, name)[:] = x.reshape(getattr(worlds, name).shape)
        worlds.step(u)
        return (worlds.qpos * of_qpos).sum(axis=1) + (worlds.qvel * of_qvel).sum(axis=1)

    arguments = {"qpos": qpos, "qvel": qvel, "u": u}
    for name in worlds.parameters:
        size = getattr(worlds, name).reshape(COUNT, -1).shape
        forces = name in ("push", "applied")
        arguments[name] = rng.normal(size=size) if forces else rng.uniform(0.7, 1.3, size)
    weighted(**arguments)
    found = worlds.pullback(qpos, qvel, u, worlds.qacc.copy(), of_qpos, of_qvel)
    assert set(found) == set(arguments)
    touching = [d.ncon for d in cases.mujoco_forward(m, qpos, qvel, u)]
    assert np.mean(touching) > 1
    for name in arguments:
        expected = differences(weighted, arguments, name)
        scale = np.abs(expected).max(axis=1).clip(1e-3)
        error = np.abs(found[name].reshape(expected.shape) - expected).max(axis=1) / scale
        assert np.sort(error)[: COUNT - 1].max() < 1e-5, name  # one may be at a kink
        assert np.isfinite(found[name]).all()


# a shape, its size, and where a ball of 10 cm meets it
MEETINGS = [
    ("box", ".3 .3 .3", (0, 0, 0)),
    ("box", ".3 .3 .3", (0, 0, 0.3)),
    ("sphere", ".2", (0, 0, 0)),
    ("cylinder", ".3 .2", (0, 0, 0.25)),
    ("cylinder", ".3 .2", (0, 0, 0)),
    ("capsule", ".1 .2", (0, 0, 0.1)),
    ("plane", "1 1 1", (0, 0, 0.09)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_finite_where_a_root_is_zero(dtype):
    """Centres inside, on an axis, on each other, and a ball joint at rest."""
    spec = mujoco.MjSpec()
    soft = [0.9, 0.95, 0.001, 0.5, 1.5]
    for k, (kind, size, pos) in enumerate(MEETINGS):
        own = {"contype": 1 << k, "conaffinity": 1 << k, "solimp": soft}
        sizes = [*map(float, size.split()), 0, 0][:3]
        shape = getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
        spec.worldbody.add_geom(type=shape, size=sizes, pos=(9 * k, 0, 0), **own)
        body = spec.worldbody.add_body(pos=np.add((9 * k, 0, 0), pos))
        for axis in np.eye(3):
            body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
        body.add_geom(size=[0.1, 0, 0], **own)
    hand = body.add_body(pos=(0, 0, 5))
    hand.add_geom(size=[0.1, 0, 0], contype=0, conaffinity=0)
    ball = {"limited": True, "range": [0, 0.7], "margin": 1.0}
    hand.add_joint(type=mujoco.mjtJoint.mjJNT_BALL, **ball)
    worlds = rg.worlds.Worlds(spec.compile(), 1, dt=None, dtype=dtype)
    qpos, qvel = worlds.qpos.copy(), worlds.qvel.copy()
    assert worlds.forward().contacts.touching.all()
    worlds.step()
    found = worlds.pullback(
        qpos, qvel, worlds.u, worlds.qacc, np.ones_like(qpos), np.ones_like(qvel)
    )
    for name, x in found.items():
        assert np.isfinite(x).all(), name
        assert np.abs(x).max() < 1e3


def test_torch_goes_back_through_several_steps():
    torch = pytest.importorskip("torch")
    robot = rg.load("cartpole")
    worlds = rg.worlds.Worlds(robot, 4, dt=0.01, dtype="float64", tolerance=1e-18)
    step = rg.worlds.torch_step(worlds)

    def cost(u):
        qpos = torch.tensor(np.tile([0.1, 0.5], (4, 1)))
        qvel = torch.zeros(4, 2, dtype=torch.float64)
        for k in range(10):
            qpos, qvel = step(qpos, qvel, u[:, k : k + 1])
        return (qpos**2).sum() + (qvel**2).sum()

    u = torch.randn(4, 10, dtype=torch.float64, generator=torch.manual_seed(0)) * 5
    u.requires_grad_()
    assert torch.autograd.gradcheck(cost, (u,), eps=1e-5, atol=1e-6)


def test_torch_holds_what_the_forward_call_had():
    """Gradients by masses, and steps whose other parameters change before anyone goes back."""
    torch = pytest.importorskip("torch")
    exact = {"dtype": "float64", "tolerance": 1e-18}
    worlds = rg.worlds.Worlds(rg.load("cartpole"), 3, dt=0.01, vary=("mass",), **exact)
    step = rg.worlds.torch_step(worlds)
    mass = 1 + 0.2 * torch.rand(worlds.mass.shape, dtype=torch.float64)
    mass.requires_grad_()
    start = torch.tensor([[0.1, 0.5]] * 3, dtype=torch.float64), torch.zeros(3, 2).double()
    u = torch.ones(3, 1).double()

    def cost(mass, changed=0.0):
        worlds.applied[:] = 0.3
        qpos, qvel = step(*step(*start, u, mass=mass), u, mass=mass)
        worlds.applied[:], worlds.mass[:] = changed, 1 + changed
        return (qpos**2).sum() + (qvel**2).sum()

    assert torch.autograd.gradcheck(cost, (mass,), eps=1e-5, atol=1e-8)
    expected = torch.autograd.grad(cost(mass), mass)[0]
    np.testing.assert_array_equal(torch.autograd.grad(cost(mass, 7.0), mass)[0], expected)
    with pytest.raises(UnknownNameError, match="mass"):
        step(*start, u, friction=mass)


def test_jax_goes_through_several_steps():
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    jnp = jax.numpy
    exact = {"dtype": "float64", "tolerance": 1e-18}
    worlds = rg.worlds.Worlds(rg.load("cartpole"), 2, dt=0.01, vary=("mass",), **exact)
    with jax.enable_x64(True):
        step = rg.worlds.jax_step(worlds)

        def cost(u, mass):
            state = jnp.tile(jnp.array([0.1, 0.5]), (2, 1)), jnp.zeros((2, 2))
            for x in u:
                state = step(*state, x, mass=mass)
            return (state[0] ** 2).sum() + (state[1] ** 2).sum()

        u, mass = jnp.array([[[3.0], [1.0]]] * 4), jnp.full(worlds.mass.shape[1], 1.1)
        check_grads(jax.jit(cost), (u, mass), 1, modes=["rev"], atol=1e-7, rtol=1e-6)
        qpos, _ = jax.vmap(step)(jnp.array(worlds.qpos), jnp.zeros((2, 2)), u[0])
    worlds.step(np.array(u[0]))
    np.testing.assert_allclose(qpos, worlds.qpos, atol=1e-12)


def test_mppi_swings_a_pole_up():
    worlds = rg.worlds.Worlds(rg.load("cartpole"), 512, dt=0.02)

    def cost(w, u):
        x, angle = w.qpos[:, 0], w.qpos[:, 1]
        return 1 + np.cos(angle) + 0.05 * x**2 + 0.005 * (w.qvel**2).sum(axis=1)

    mppi = rg.MPPI(worlds, cost, horizon=40, noise=12.0, hold=4, temperature=0.05, seed=0)
    plant = rg.worlds.Worlds(rg.load("cartpole"), 1, dt=0.02, dtype="float64")
    for _ in range(200):
        plant.step(mppi(plant.qpos[0], plant.qvel[0]))
    assert np.cos(plant.qpos[0, 1]) < -0.9  # upright is half a turn
    with pytest.raises(InputError, match="horizon"):
        rg.MPPI(worlds, cost, horizon=0)
