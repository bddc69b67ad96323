"""A robot's functions in PyTorch: gradcheck passes, torch.func composes, and a mass is found by
gradient descent.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gradient_cases import (
    FUNCTIONS,
    HELD,
    OPTIONS,
    close,
    creature,
    hopper,
    inertias,
    inputs_of,
    numeric_jacobians,
)

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'rigidgrad[torch]'"
)


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
        result = getattr(rg.torch, name)(robot, *inputs, *OPTIONS.get(name, ()))
        if name == "energy":
            return torch.stack(result, -1)
        return torch.cat(result, -1) if isinstance(result, tuple) else result

    return function


def tensors(*arrays, grad=False):
    return tuple(torch.tensor(x, requires_grad=grad) for x in arrays)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives(robots, name):
    robot = robots[name]
    inputs = inputs_of(robot, name)
    reference = FUNCTIONS[name][1]
    result = of(robot, name)(*tensors(*inputs))
    np.testing.assert_array_equal(result, reference(robot, *inputs))
    jacobians = torch.func.jacrev(of(robot, name), tuple(range(len(inputs))))(*tensors(*inputs))
    for J, numeric in zip(
        jacobians, numeric_jacobians(robot, lambda *x: reference(robot, *x), inputs), strict=True
    ):
        close(J, numeric)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in HELD])
def test_gradcheck(name):
    """On a robot without quaternions, whose coordinates may be varied freely; two batch axes."""
    arm = rg.load("double_pendulum")
    function = (
        (lambda *x: getattr(rg.torch, name)(arm, *x, arm.frames[2]))
        if "thumb" in OPTIONS.get(name, ())
        else of(arm, name)
    )
    inputs = tensors(*inputs_of(arm, name, (2, 2)), grad=True)
    assert torch.autograd.gradcheck(
        function, inputs, check_forward_ad=True, check_batched_grad=True
    )


def test_gradcheck_with_contacts():
    """Accelerations, forces and impulses of an arm whose hand is held: by position, velocity,
    torque and restitution, not by the mask.
    """
    arm = rg.load("iiwa14")
    hand = rg.Contact("iiwa_link_7", gains=(20.0, 4.0), place=(0.4, 0.1, 0.5))
    q, v, tau = tensors(*inputs_of(arm, "aba", (2,)), grad=True)
    on, e = (
        torch.tensor([[1], [0]]),
        torch.tensor([0.2, 0.5], dtype=torch.float64, requires_grad=True),
    )

    def dynamics(*x):
        return tuple(rg.torch.contact_dynamics(arm, *x, hand, active=on))

    def struck(q, v, e):
        return tuple(rg.torch.impact(arm, q, v, rg.Contact("iiwa_link_7"), e))

    # forces are hundreds of newtons, which central differences of 1e-6 rad know to some 1e-5 of
    # them
    scale = max(x.detach().abs().max().item() for x in dynamics(q, v, tau))
    assert torch.autograd.gradcheck(
        dynamics, (q, v, tau), atol=1e-4 * scale, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradcheck(
        struck, (q, v, e), check_forward_ad=True, check_batched_grad=True
    )
    mapped = torch.func.vmap(lambda *x: rg.torch.contact_dynamics(arm, *x[:3], hand, active=x[3]))(
        *(x.detach() for x in (q, v, tau)), on
    )
    assert torch.equal(mapped.force, dynamics(q, v, tau)[1])
    weight = on.double().requires_grad_()
    rg.torch.contact_dynamics(arm, q, v, tau, hand, active=weight).a.sum().backward()
    assert weight.grad is None and tau.grad is not None
    single = (x.detach().float() for x in (q, v, tau))
    assert rg.torch.contact_dynamics(arm, *single, hand, active=on).force.dtype == torch.float32


def test_torch_func_composes(robot):
    q, v, tau = inputs_of(robot, "aba", (4,))
    loss = torch.func.grad(lambda *x: torch.sin(rg.torch.aba(robot, *x)).sum(), (0, 1, 2))
    mapped = torch.func.vmap(loss)(*tensors(q, v, tau))
    together = loss(*tensors(q, v, tau))
    for a, b in zip(mapped, together, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    forward = torch.func.vmap(torch.func.jacfwd(lambda q, v, t: rg.torch.aba(robot, q, v, t), 2))(
        *tensors(q, v, tau)
    )
    np.testing.assert_allclose(forward, robot.minv(q), atol=1e-10 * abs(robot.minv(q)).max())


@pytest.mark.parametrize("name", ["rnea", "aba"])
def test_derivatives_by_inertias(robot, name):
    inputs = [*inputs_of(robot, name), inertias(robot)]
    compiled = robot.compile(name, parameters=("inertia",))
    jacobians = torch.func.jacrev(
        lambda *x: getattr(rg.torch, name)(robot, *x[:-1], inertia=x[-1]), (0, 1, 2, 3)
    )(*tensors(*inputs))
    for J, numeric in zip(jacobians, numeric_jacobians(robot, compiled, inputs), strict=True):
        close(J, numeric, 1e-5)


def test_steps_on_the_manifold(robot):
    q, v, _ = inputs_of(robot, "aba", (3,))
    reached = robot.integrate(q, 0.3 * v)
    close(rg.torch.integrate(robot, *tensors(q, 0.3 * v)), reached, 1e-14)
    close(rg.torch.difference(robot, *tensors(q, reached)), 0.3 * v, 1e-12)
    J = torch.func.jacrev(lambda dv: rg.torch.integrate(robot, torch.tensor(q[0]), dv))(
        torch.tensor(0.3 * v[0])
    )
    close(J, numeric_jacobians(robot, robot.integrate, [q[0], 0.3 * v[0]])[1])


def test_dtypes_and_broadcasting():
    arm = rg.load("double_pendulum")
    q, v, tau = (torch.tensor(x, dtype=torch.float32) for x in arm.random((8,), seed=0))
    assert rg.torch.aba(arm, q, v, tau).dtype == torch.float32
    assert rg.torch.aba(arm, q, v, tau.double()).dtype == torch.float64
    shared = v[0].double().requires_grad_()
    rg.torch.aba(arm, q, shared, tau).sum().backward()
    each = v[:1].double().repeat(8, 1).requires_grad_()
    rg.torch.aba(arm, q, each, tau).sum().backward()
    np.testing.assert_allclose(shared.grad, each.grad.sum(0), rtol=1e-10)


def test_second_derivatives_are_an_error_that_says_so(robot):
    q, v, tau = tensors(*inputs_of(robot, "aba"), grad=True)
    (gradient,) = torch.autograd.grad(
        (rg.torch.aba(robot, q, v, tau) ** 2).sum(), q, create_graph=True
    )
    with pytest.raises(RigidgradError, match="second derivatives"):
        gradient.sum().backward()


def test_wrong_shapes_are_explained(robot):
    q, v, tau = tensors(*inputs_of(robot, "aba"))
    with pytest.raises(InputError, match=r"v has shape \(3,\)"):
        rg.torch.aba(robot, q, v[:3], tau)


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "rigidgrad.torch", raising=False)
    monkeypatch.delitem(vars(rg), "torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RigidgradError, match=r"pip install 'rigidgrad\[torch\]'"):
        rg.torch  # noqa: B018


def test_a_payload_is_found_by_gradient_descent():
    """Accelerations of an arm that holds an unknown point mass; the mass and where it is are learnt
    through forward dynamics.
    """
    arm = rg.load("iiwa14")
    own = torch.tensor(inertias(arm))
    x, z = 0.05, 0.1

    def loaded(mass, height):
        """With a point mass at (x, 0, height) on the last body."""
        one = torch.ones(())
        change = (
            torch.stack(
                [
                    one,
                    one * x,
                    0 * one,
                    height,
                    height**2,
                    0 * one,
                    x**2 + height**2,
                    -x * height,
                    0 * one,
                    x**2 * one,
                ]
            )
            * mass
        )
        return torch.cat([own[:-1], (own[-1] + change)[None]])

    q, v, tau = (torch.tensor(y) for y in arm.random((64,), seed=1))
    truth = loaded(torch.tensor(3.0, dtype=torch.float64), torch.tensor(z, dtype=torch.float64))
    measured = rg.torch.aba(arm, q, v, tau, inertia=truth)
    mass, height = (torch.tensor(y, dtype=torch.float64, requires_grad=True) for y in (0.5, 0.0))
    descent = torch.optim.LBFGS([mass, height], max_iter=40, line_search_fn="strong_wolfe")

    def loss():
        descent.zero_grad()
        error = rg.torch.aba(arm, q, v, tau, inertia=loaded(mass, height)) - measured
        value = (error**2).mean() / (measured**2).mean()
        value.backward()
        return value

    descent.step(loss)
    assert abs(mass.item() - 3.0) < 1e-3 and abs(height.item() - z) < 1e-4
