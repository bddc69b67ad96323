"""`rg.torch` and `rg.jax` of a robot on a CUDA device: arrays that lie there stay, with their
derivatives. The device is one that counts; the host's arrays count as lying there.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu_shim.runner import CXX

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.interop import contact_forces, gradients
from rigidgrad.runtime import gpu_cuda

pytestmark = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")


@pytest.fixture
def robots(mock_cuda, monkeypatch):
    """A small robot on the CPU and on the device; NumPy's arrays are refused there."""
    monkeypatch.setattr(gpu_cuda, "_CUDA", 1)  # DLPack's number for the host
    robot = rg.load("double_pendulum")
    return robot, robot.to("cuda"), mock_cuda.counts


def numbers(robot, count=3):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, (count, robot.nv)) for _ in range(3)]


CALLS = {
    "rnea": lambda f, r, q, v, a: f.rnea(r, q, v, a),
    "aba": lambda f, r, q, v, a: f.aba(r, q, v, a),
    "crba": lambda f, r, q, v, a: f.crba(r, q),  # its derivative multiplies by a constant
    "forward_kinematics": lambda f, r, q, v, a: f.forward_kinematics(r, q, "lower_rod"),
    "energy": lambda f, r, q, v, a: f.energy(r, q, v).kinetic,  # by a Program's derivative
}


@pytest.mark.parametrize("name", CALLS)
def test_tensors_and_their_gradients_stay_on_the_device(robots, name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import rigidgrad.torch as rt

    robot, device, counts = robots
    found = []
    for r in (robot, device):
        given = [torch.tensor(x, requires_grad=True) for x in numbers(robot)]
        value = CALLS[name](rt, r, *given)
        (value**2).sum().backward()
        found.append([value.detach(), *(x.grad for x in given)])
    for x, y in zip(*found, strict=True):
        assert (x is None) == (y is None)
        assert x is None or torch.allclose(x, y, rtol=1e-10, atol=1e-10)
    assert counts.copies == [] and counts.launches


def test_constants_of_derivatives_lie_where_tensors_do():
    """On PyTorch's "meta" device, which refuses operands that lie elsewhere."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    robot = rg.load("double_pendulum")
    meta = torch.zeros(3, 2, dtype=torch.float64, device="meta")

    def call(name, *inputs):
        shapes = gradients.Differentiable(robot.model, name, "lower_rod")
        outputs = shapes.kernel(name, len(inputs)).outputs.values()
        batch = np.broadcast_shapes(*(tuple(x.shape[:-1]) for x in inputs))
        return tuple(torch.zeros((*batch, *s), dtype=meta.dtype, device="meta") for s in outputs)

    for name in ("crba", "minv", "frame_placement"):
        for J in gradients._RULES[name](robot.model, call, torch, meta):
            assert J.device.type == "meta"
    assert contact_forces.columns.constant(torch, np.eye(2), meta).device.type == "meta"


@pytest.mark.parametrize("name", CALLS)
def test_jax_arrays_and_their_gradients_stay_on_the_device(robots, name):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    import rigidgrad.jax as rj

    robot, device, counts = robots
    given = [jax.numpy.asarray(x.astype(np.float32)) for x in numbers(robot)]
    found = []
    for r in (robot, device):
        value = jax.value_and_grad(lambda *x, r=r: (CALLS[name](rj, r, *x) ** 2).sum(), (0, 1, 2))
        found.append(value(*given))
    for x, y in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        assert np.allclose(x, y, rtol=1e-4, atol=1e-4)
    assert counts.copies == [] and counts.launches
    for bad in (jax.jit, jax.vmap):
        with pytest.raises(errors.RigidgradError, match=r"not under jax\.jit or jax\.vmap"):
            bad(lambda *x: CALLS[name](rj, device, *x))(*given)


def test_inertias_as_inputs_have_gradients_there_too(robots):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import rigidgrad.torch as rt

    robot, device, _ = robots
    q, v, a = map(torch.tensor, numbers(robot))
    masses = torch.tensor(np.random.default_rng(1).uniform(0.5, 1, (2, 10)), requires_grad=True)
    (there,) = torch.autograd.grad(rt.rnea(device, q, v, a, inertia=masses).sum(), masses)
    (here,) = torch.autograd.grad(rt.rnea(robot, q, v, a, inertia=masses).sum(), masses)
    assert torch.allclose(here, there, rtol=1e-10)
