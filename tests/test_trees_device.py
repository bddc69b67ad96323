"""Trees on devices: kernels of recorded operators give the CPU's numbers by PoCL and by the CUDA
shim, in any order of threads and without races, and the checker finds a barrier that is missing.
"""

from __future__ import annotations

import numpy as np
import pytest
from gpu_shim.runner import CXX
from test_gpu_cuda import needs_nvrtc
from test_gpu_solvers import OPENCL

import rigidgrad as rg
from rigidgrad import errors, trees
from rigidgrad.targets.gpu.kernel import prelude
from rigidgrad.targets.gpu.trees import entries
from rigidgrad.trees import device_kernels
from rigidgrad.trees.rnea_euler_tour import compose_rows

needs_opencl = pytest.mark.skipif(
    not OPENCL, reason="no OpenCL device: pip install pyopencl, apt-get install pocl-opencl-icd"
)
needs_shim = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")
DEVICES = [pytest.param("opencl", marks=needs_opencl), pytest.param("cuda", marks=needs_shim)]
METHODS = ("levels", "heavy_path", "euler_tour")
GRAVITY = (3.0, -4.0, -8.0)


def forest():
    return trees.Tree(
        [-1, 0, -1, 1, 3, 1, 2, 6, 7, 7],
        translation=(0.3, 0.1, -0.5),
        inertia=0.1 * np.eye(3),
        com=(0.1, 0.2, 0.3),
        joints=["revolute", "prismatic", "helical", "revolute", "prismatic"] * 2,
        axis=np.random.default_rng(4).normal(size=(10, 3)),
        pitch=0.2,
        armature=0.3,
    )


TREES = {
    "chain": lambda: trees.auto_tree(150, 1.0, skew=0.3, gravity=GRAVITY),
    "narrow": lambda: trees.auto_tree(220, 1.01, skew=0.3, gravity=GRAVITY),
    "wide": lambda: trees.auto_tree(700, 2.0, skew=0.3, gravity=GRAVITY),
    "forest": forest,
    "floating": lambda: trees.Tree.from_model(rg.load("hyq", floating_base=True)),
}


def opened(device, shim, **options):
    return shim(**options) if device == "cuda" else None


def states(tree, batch=2):
    rng = np.random.default_rng(tree.bodies)
    q, v, _ = tree.random(batch=batch, seed=1)
    return q, v, rng.normal(size=v.shape), rng.normal(size=(batch, tree.bodies, 6))


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    assert abs(found - expected).max() < tolerance * abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
def test_every_method_gives_the_cpus_joint_forces(shim, device):
    checker = opened(device, shim)
    for make in TREES.values():
        tree = make()
        q, v, a, wrench = states(tree)
        for external in (None, wrench):
            expected = trees.rnea(tree, q, v, a, external=external)
            for method in (*METHODS, None):
                found = trees.rnea(tree, q, v, a, external=external, method=method, device=device)
                close(found, expected, 1e-12 if method == "euler_tour" else 3e-14)
        blocked = {"method": "euler_tour", "variant": "blocked", "block": 5, "device": device}
        close(trees.rnea(tree, q, v, a, **blocked), trees.rnea(tree, q, v, a), 1e-12)
    if checker:
        assert checker.report.barriers > 100
        assert checker.report.races == checker.report.unwritten == checker.report.outside == 0
        assert checker.report.divergent == 0


@pytest.mark.parametrize("device", DEVICES)
def test_the_mass_matrix_is_the_cpus(shim, device):
    checker = opened(device, shim)
    for make in TREES.values():
        tree = make()
        q = states(tree)[0]
        expected = trees.crba(tree, q).values
        for variant in ("work_efficient", "blocked"):
            found = trees.crba(tree, q, device=device, variant=variant).values
            close(found, expected, 1e-12)
    if checker:
        assert checker.report.barriers > 100
        assert checker.report.races == checker.report.unwritten == checker.report.outside == 0


@needs_shim
def test_the_order_of_threads_and_the_number_of_blocks_change_no_bit(shim):
    """Nothing but shared memory is checked for races: here threads run in both orders, and one
    block does the work of all.
    """
    found = []
    for options in ({"order": 0}, {"order": 1}, {"blocks": 1}):
        shim(**options)
        for name in ("narrow", "wide"):
            tree = TREES[name]()
            q, v, a, _ = states(tree, batch=1)
            found += [trees.rnea(tree, q, v, a, method=m, device="cuda") for m in METHODS]
            found.append(trees.crba(tree, q, device="cuda").values)
    for k, one in enumerate(found[:8]):
        np.testing.assert_array_equal(one, found[8 + k])
        np.testing.assert_array_equal(one, found[16 + k])


@needs_shim
def test_a_missing_barrier_of_a_sweep_is_found(shim):
    """Between two steps up the tree, whose sums are each other's."""

    def change(text):
        cut = text.index("sums_sweep")
        at = text.index("      SYNC\n", cut)
        return text[:at] + text[at + len("      SYNC\n") :]

    checker = shim(change=change)
    tree = TREES["wide"]()
    q, v, a, _ = states(tree, batch=1)
    trees.rnea(tree, q, v, a, method="euler_tour", device="cuda")
    assert checker.report.races > 0


@pytest.mark.parametrize("device", DEVICES)
def test_floats_stay_floats(shim, device):
    opened(device, shim)
    tree = TREES["wide"]()
    q, v, a, _ = states(tree)
    single = [x.astype(np.float32) for x in (q, v, a)]
    for method in ("levels", "heavy_path"):
        found = trees.rnea(tree, *single, method=method, device=device)
        assert found.dtype == np.float32
        close(found, trees.rnea(tree, q, v, a), 3e-5)


@needs_opencl
@pytest.mark.parametrize("branching", [1.0, 1.01, 2.0])
def test_a_hundred_thousand_bodies(branching):
    tree = trees.auto_tree(100_000, branching, skew=0.3, gravity=GRAVITY)
    rng = np.random.default_rng(0)
    q, v, a = rng.uniform(-3, 3, tree.nv), 0.1 * rng.normal(size=tree.nv), rng.normal(size=tree.nv)
    expected = trees.rnea(tree, q, v, a)
    close(trees.rnea(tree, q, v, a, device="opencl"), expected, 1e-12)
    close(trees.rnea(tree, q, v, a, method="euler_tour", device="opencl"), expected, 1e-9)
    if branching == 2.0:  # deeper trees have 65 million and 5 billion entries
        matrix = trees.crba(tree, q)
        close(trees.crba(tree, q, device="opencl").values, matrix.values, 1e-9)


def test_transforms_are_joined_in_the_operations_that_the_paper_counts():
    """Lynghus (2026), 5.2.4: 33 products and 24 sums instead of 216 and 180; here it is r + Eᵀ s
    that takes the transform of a vector, of 9 products, 6 sums, and 3 more.
    """
    counts = device_kernels.binary(12, compose_rows).counts()
    assert counts.flops == 36 + 27


def test_what_devices_do_not_do_is_said():
    tree = TREES["forest"]()
    x = np.zeros(tree.nv)
    for options in ({"device": "webgpu"}, {"device": "opencl", "method": "sequential"}):
        with pytest.raises((errors.UnknownNameError, errors.InputError)):
            trees.rnea(tree, x, x, x, **options)
    with pytest.raises(errors.UnknownNameError, match="work_efficient"):
        trees.rnea(tree, x, x, x, device="opencl", method="euler_tour", variant="native")
    with pytest.raises(errors.InputError, match="two rows"):
        trees.rnea(tree, x, x, x, device="opencl", method="euler_tour", block=1)
    with pytest.raises(errors.InputError, match="Euler tour"):
        trees.crba(tree, x, device="opencl", method="ancestors")


@needs_nvrtc
def test_nvrtc_compiles_them():
    from rigidgrad.runtime.gpu_cuda import compile_cubin

    for source in (device_kernels.levels(True), device_kernels.mass_matrix()):
        code = bytes(compile_cubin(f"{prelude('cuda', 'float64')}{source}", "sm_86").code)
        for entry in entries(source, 8):
            assert entry.encode() in code
