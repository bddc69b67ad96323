"""Dynamics with contacts as generated code: C, OpenCL (PoCL), CUDA (the shim, and NVRTC's compiler)
against the readable engine.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gpu_shim.runner import CXX, Library as Shim
from random_trees import assert_close
from test_contact_robots import HANDS, planar_leg, slack_of, two_arms
from test_contacts import feet
from test_gpu_cuda import needs_nvrtc, together
from test_kernel_code import CLibrary
from test_target_c import SAME_BITS, VECTORS, Library, needs_compiler

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.kernels.language import Kernel
from rigidgrad.runtime.formulation import source_of
from rigidgrad.targets.gpu.kernel import Kernel as GpuKernel
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.thread_kernel import LoopFunction
from rigidgrad.targets.names import identifier

COUNT = 3


def walker():
    """A trunk on two legs of four and three joints, each with a sole."""
    b = rg.Builder("walker").link("trunk", 4.0, (0, 0, 0.1), np.diag([0.2, 0.2, 0.1]))
    for side, y, first in (("left", 0.1, 0), ("right", -0.1, 1)):
        parent, at = "trunk", (0, y, 0)
        for k, axis in list(enumerate(((1, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0, 1))))[first:]:
            b = b.link(f"{side}{k}", 1.0, (0.01, 0, -0.15), np.diag([0.02, 0.02, 0.01]))
            b = b.joint(f"{side}_{k}", "revolute", parent, f"{side}{k}", xyz=at, axis=axis)
            parent, at = f"{side}{k}", (0, 0, -0.3)
    return b.build(floating_base=True, engine="numpy")


CASES = {
    "points": (lambda: rg.load("hyq", floating_base=True, engine="numpy"), feet(), True, ()),
    "surfaces": (
        walker,
        [rg.Contact(f"{side}3", "surface", gains=(0, 3)) for side in ("left", "right")],
        False,
        (),
    ),
    "loop": (lambda: two_arms("numpy"), HANDS, False, ()),
    "wrench": (
        lambda: planar_leg("numpy"),
        [rg.Contact("foot", gains=(9, 5), place=(0.1, 0.2, 0.3))],
        False,
        ("upper",),
    ),
}
FUNCTIONS = ("contact_dynamics", "contact_dynamics_derivatives", "impact", "delassus")
each = pytest.mark.parametrize(("case", "name"), [(c, f) for c in CASES for f in FUNCTIONS])


class Task:
    """A function of a robot that is held, with states and what the readable engine finds there."""

    def __init__(self, case: str, name: str):
        make, self.contacts, masked, links = CASES[case]
        self.robot, self.name, self.masked = make(), name, masked and name != "delassus"
        q, v, tau = self.robot.random(batch=(COUNT,), seed=6)
        rng = np.random.default_rng(0)
        self.arguments = {"delassus": (q,), "impact": (q, v)}.get(name, (q, v, tau))
        self.external = {} if name in ("impact", "delassus") else dict.fromkeys(links, None)
        self.external = {link: rng.normal(size=(COUNT, 6)) for link in self.external}
        self.active = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0]], float)
        known = dict(zip(("q", "v", "tau"), (q, v, tau), strict=True))
        known |= {"active": self.active, "restitution": np.full((COUNT, 1), 0.4)}
        known |= {f"external:{link}": wrench for link, wrench in self.external.items()}
        places = [getattr(c, "place", None) for c in self.contacts]
        known |= {f"place:{k}": np.tile(p, (COUNT, 1)) for k, p in enumerate(places) if p}
        self.source = source_of(
            self.robot.model,
            name,
            contacts=self.robot.constraint_set(name, self.contacts, self.masked),
            **({"external": tuple(self.external)} if self.external else {}),
        )
        self.inputs = [known[key] for key in self.source.inputs]

    def of(self, robot) -> list[np.ndarray]:
        """The results of a robot."""
        more = {"external": self.external} if self.external else {}
        more |= {"active": self.active} if self.masked else {}
        if self.name == "impact":
            more["restitution"] = 0.4
        found = getattr(robot, self.name)(*self.arguments, self.contacts, **more)
        return list(found[: len(self.source.outputs)]) if isinstance(found, tuple) else [found]

    def check(self, found):
        slack = 10 * max(slack_of(self.robot, q, self.contacts) for q in self.arguments[0])
        assert slack < 1e-7
        for x, y, key in zip(found, self.of(self.robot), self.source.outputs, strict=True):
            assert_close(x.reshape(y.shape), y, slack, key)

    @property
    def gpu_kernel(self) -> GpuKernel:
        of = LoopFunction if isinstance(self.source, Kernel) else ThreadFunction
        return GpuKernel(self.name, of(self.name, self.source))


task = cache(Task)


def test_the_gradient_of_a_quadruped_has_a_tiled_tail():
    assert isinstance(task("points", "contact_dynamics_derivatives").source, Kernel)
    assert not isinstance(task("loop", "contact_dynamics_derivatives").source, Kernel)


@needs_compiler
@each
def test_c(tmp_path, case, name):
    t = task(case, name)
    options = {"contacts": t.contacts, "masked": t.masked}
    options |= {"external": tuple(t.external)} if t.external else {}
    files = rg.generate(t.robot, [(name, options)], out=tmp_path, dtypes=["float64"])
    assert ("active" in next(f for f in files if f.suffix == ".h").read_text()) == t.masked
    code, sources = identifier(t.robot.name), {name: t.source}
    if isinstance(t.source, Kernel):
        library = CLibrary(tmp_path, code, sources)
    else:
        library = Library(tmp_path, code, [*SAME_BITS, *VECTORS], sources)
    for batch in (True, False):
        t.check(library.call(name, t.inputs, np.float64, batch))


@each
def test_opencl(case, name):
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    t = task(case, name)
    try:
        device = t.robot.to("opencl", shape="thread")
    except InputError as error:
        pytest.skip(str(error))
    t.check(t.of(device))


@pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")
@each
def test_cuda_as_the_shim_runs_it(case, name):
    t = task(case, name)
    found, report = Shim([t.gpu_kernel], "float64").run(name, "thread", t.inputs, order=1)
    assert report.clean, report
    t.check(found)


@needs_nvrtc
def test_cuda_as_nvrtc_compiles_it(monkeypatch):
    """A gradient with a wrench, as straight-line code and with a tiled tail."""
    from rigidgrad.runtime.gpu_cuda import compile_cubin

    name = "contact_dynamics_derivatives"
    straight = GpuKernel("straight", task("wrench", name).gpu_kernel.function)
    monkeypatch.setattr("rigidgrad.runtime.formulation._CONTACTS_TILED_FROM", 0)
    tiled = GpuKernel("tiled", Task("wrench", name).gpu_kernel.function)
    assert isinstance(tiled.function, LoopFunction) and tiled.work
    code = compile_cubin(together([straight, tiled], "float64"), "sm_90").code
    for kernel in (straight, tiled):
        assert kernel.entry.encode() in bytes(code)
