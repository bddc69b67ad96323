"""Forces for a motion in JAX and PyTorch: their gradients are those of the solutions themselves,
whether feet stand firmly, slip, hang in the air, or cannot give what is asked for; and kinematics
of contacts are Pinocchio's.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gradient_cases import FEET, hopper

import rigidgrad as rg
from rigidgrad.errors import RigidgradError

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'rigidgrad[jax]'")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
jnp = jax.numpy
LEGS = ("lf", "rf", "lh", "rh")


def feet(friction):
    return [rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=friction) for leg in LEGS]


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def hyq():
    return rg.load("hyq", floating_base=True)


@pytest.fixture(scope="module")
def stand(hyq):
    return rg.gaits.standing(hyq, feet(0.6))[: hyq.nq]


def near(hyq, stand, seed, pull=(0.0, 0.0, 0.0)):
    """A state near standing, and an acceleration."""
    rng = np.random.default_rng(seed)
    q = hyq.integrate(stand, 0.1 * rng.normal(size=18))
    v, a = 0.3 * rng.normal(size=18), 2.0 * rng.normal(size=18)
    a[:3] += pull
    return q, v, a


def moved(hyq, q, v, a, direction, h):
    return hyq.integrate(q, h * direction[0]), v + h * direction[1], a + h * direction[2]


# friction, acceleration asked for besides, seed, and whether each foot stands Firmly, Slips or is
# Lifted
CASES = {
    "all stand firmly": (0.3, (0, 0, 0), 10, "FFFF"),
    "two slip": (0.3, (0, 0, 0), 12, "FFSS"),
    "one is lifted and more is asked for than the others can give": (0.3, (4, 0, 0), 2, "SLSS"),
    "without friction": (0.0, (0, 0, 0), 4, "SSSS"),
}


def what_feet_do(force, friction):
    rows = np.reshape(force, (4, 3))
    return "".join(
        "L" if f[2] < 1e-3 else "S" if np.hypot(*f[:2]) >= 0.999 * friction * f[2] else "F"
        for f in rows
    )


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_solutions(hyq, stand, case):
    """Differences over steps of 1e-3, since solutions are known to some 1e-5 N."""
    friction, pull, seed, expected = CASES[case]
    state, held = near(hyq, stand, seed, pull), feet(friction)
    solve = lambda *x: rg.jax.contact_inverse_dynamics(hyq, *x, held)  # noqa: E731
    direction = np.random.default_rng(seed).normal(size=(3, 18))
    ahead, behind = (moved(hyq, *state, direction, h) for h in (1e-3, -1e-3))
    rates = (ahead[0] - behind[0]) / 2e-3, direction[1], direction[2]
    found, change = jax.jit(lambda x, d: jax.jvp(solve, x, d))(state, rates)
    exact = hyq.contact_inverse_dynamics(*state, held)
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert what_feet_do(exact.force, friction) == expected and exact.converged == 1.0
    there = [hyq.contact_inverse_dynamics(*x, held) for x in (ahead, behind)]
    for name in ("tau", "force", "residual"):
        slope = (getattr(there[0], name) - getattr(there[1], name)) / 2e-3
        scale = max(1.0, np.abs(slope).max())
        assert np.abs(getattr(change, name) - slope).max() < 5e-4 * scale, name
    assert change.converged == 0.0


def test_reverse_mode_vmap_scan_and_torch_agree():
    robot, held = hopper(), FEET
    q, v, _ = robot.random((3,), seed=1)
    a = np.random.default_rng(0).normal(size=(3, robot.nv)) + 9.0 * (np.arange(robot.nv) < 3)
    on = np.array([[1, 1], [1, 0], [1, 1]])

    def effort(lib, *x):
        s = lib.contact_inverse_dynamics(robot, *x[:3], held, active=x[3])
        return (s.tau**2).sum() + s.force[..., 2].sum()

    loss = jax.grad(lambda *x: effort(rg.jax, *x), (0, 1, 2))
    together = jax.jit(loss)(q, v, a, on)
    mapped = jax.jit(jax.vmap(loss))(q, v, a, on)
    _, one_by_one = jax.lax.scan(lambda c, x: (c, loss(*x)), 0, (q, v, a, on))
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, v, a)]
    effort(rg.torch, *tensors, torch.tensor(on)).backward()
    theirs = torch.func.vmap(torch.func.grad(lambda *x: effort(rg.torch, *x), (0, 1, 2)))(
        *(x.detach() for x in tensors), torch.tensor(on)
    )
    for k, g in enumerate(together):
        for other in (mapped[k], one_by_one[k], tensors[k].grad, theirs[k]):
            np.testing.assert_allclose(g, other, rtol=1e-6, atol=1e-7 * np.abs(g).max())
    slope = jax.jit(lambda a, d: jax.jvp(lambda a: effort(rg.jax, q, v, a, on), (a,), (d,))[1])
    change = slope(a, v)
    assert change == pytest.approx((np.asarray(together[2]) * v).sum(), rel=1e-6)
    force = np.asarray(rg.jax.contact_inverse_dynamics(robot, q, v, a, held, active=on).force)
    assert force[0, 3:].any() and not force[1, 3:].any()


def test_an_arm_that_all_of_whose_joints_are_driven_and_a_surface():
    """Nothing is missing, and moments of a surface are free."""
    arm = rg.load("iiwa14")
    hand = [rg.Contact("iiwa_link_7", kind="surface", friction=0.4)]
    q, v, a = arm.random(seed=3)
    solve = lambda *x: rg.jax.contact_inverse_dynamics(arm, *x, hand)  # noqa: E731
    d = np.random.default_rng(0).normal(size=(3, 7))
    change = jax.jit(lambda x, d: jax.jvp(solve, x, d)[1])((q, v, a), tuple(d))
    ahead, behind = (
        arm.contact_inverse_dynamics(q + h * d[0], v + h * d[1], a + h * d[2], hand)
        for h in (1e-3, -1e-3)
    )
    for name in ("tau", "force"):
        slope = (getattr(ahead, name) - getattr(behind, name)) / 2e-3
        assert np.abs(getattr(change, name) - slope).max() < 1e-4 * np.abs(slope).max()
    assert not np.asarray(change.residual).any()


def test_single_precision_has_values_but_no_gradients(hyq, stand):
    state, held = [x.astype(np.float32) for x in near(hyq, stand, 10)], feet(0.6)
    expected = hyq.contact_inverse_dynamics(*state, held)
    with jax.enable_x64(False):
        found = rg.jax.contact_inverse_dynamics(hyq, *state, held)
        assert found.tau.dtype == jnp.float32
        np.testing.assert_array_equal(found.tau, expected.tau)
        with pytest.raises(RigidgradError, match="need float64"):
            jax.grad(lambda a: rg.jax.contact_inverse_dynamics(hyq, *state[:2], a, held).tau.sum())(
                state[2]
            )
    tensors = [torch.tensor(x, requires_grad=True) for x in state]
    tau = rg.torch.contact_inverse_dynamics(hyq, *tensors, held).tau
    assert tau.dtype == torch.float32
    with pytest.raises(RigidgradError, match="need float64"):
        tau.sum().backward()


def test_second_derivatives_are_an_error(hyq, stand):
    q, v, a = near(hyq, stand, 10)
    one = jax.grad(lambda a: rg.jax.contact_inverse_dynamics(hyq, q, v, a, feet(0.6)).tau.sum())
    with pytest.raises(RigidgradError, match="second derivatives"):
        jax.jit(lambda a: jax.jvp(one, (a,), (v,)))(a)
    two = jax.grad(lambda q: rg.jax.energy(hyq, q, v).kinetic)
    with pytest.raises(RigidgradError, match="second derivatives"):
        jax.jit(lambda q: jax.jvp(two, (q,), (q,)))(q)


def test_gradients_are_pinocchios(hyq, stand):
    """By v of energy and momentum, by q of frames' velocities and potential energy, and Jacobians
    turned into gradients by hand.
    """
    pin = pytest.importorskip("pinocchio")
    model = hyq.to_pinocchio()
    data = model.createData()
    q, v, a = near(hyq, stand, 1)
    M = pin.crba(model, data, q)
    M = np.triu(M) + np.triu(M, 1).T
    by_v = jax.grad(lambda v: rg.jax.energy(hyq, q, v).kinetic)(v)
    np.testing.assert_allclose(by_v, M @ v, rtol=1e-9, atol=1e-9)
    by_v = jax.jacrev(lambda v: rg.jax.centroidal_momentum(hyq, q, v))(v)
    np.testing.assert_allclose(by_v, pin.ccrba(model, data, q, v), atol=1e-9)

    def tangent(function):
        """Along the tangent of q, by JAX throughout."""
        return jax.jacfwd(lambda d: function(rg.jax.integrate(hyq, q, d)))(np.zeros(18))

    slope = tangent(lambda q: rg.jax.energy(hyq, q, v).potential)
    np.testing.assert_allclose(
        slope, pin.computeGeneralizedGravity(model, data, q), rtol=1e-8, atol=1e-8
    )
    pin.computeForwardKinematicsDerivatives(model, data, q, v, a)
    frame = model.getFrameId("lf_lowerleg")
    for axes, theirs in (("local", pin.LOCAL), ("world", pin.LOCAL_WORLD_ALIGNED)):
        expected = pin.getFrameVelocityDerivatives(model, data, frame, theirs)
        velocity = partial(rg.jax.frame_velocity, hyq, frame="lf_lowerleg", expressed_in=axes)
        by_v = jax.jacfwd(lambda v, at=velocity: at(q, v))(v)
        np.testing.assert_allclose(by_v, expected[1], atol=1e-9)
        if axes == "local":  # Pinocchio's aligned ones leave the turning of the axes out
            by_q = tangent(lambda q, at=velocity: at(q, v))
            np.testing.assert_allclose(by_q, expected[0], atol=1e-9)


def test_new_functions_work_in_single_precision():
    robot = hopper()
    q, v, _ = (x.astype(np.float32) for x in robot.random(seed=2))
    with jax.enable_x64(False):
        for name, x in (
            ("coriolis_matrix", (q, v)),
            ("centroidal_momentum", (q, v)),
            ("center_of_mass_jacobian", (q,)),
        ):
            found = getattr(rg.jax, name)(robot, *x)
            assert found.dtype == jnp.float32
            np.testing.assert_array_equal(found, getattr(robot, name)(*x))
        J = jax.jit(jax.jacrev(lambda q: rg.jax.delassus(robot, q, FEET)))(q)
    with jax.enable_x64(True):
        exact = jax.jacrev(lambda q: rg.jax.delassus(robot, q, FEET))(q.astype(float))
    assert J.dtype == jnp.float32
    assert np.abs(J - exact).max() < 1e-4 * np.abs(exact).max()
    x = torch.tensor(q, requires_grad=True)
    rg.torch.contact_jacobian(robot, x, FEET).sum().backward()
    assert x.grad.dtype == torch.float32
