"""What NVRTC makes of our kernels, executed instruction by instruction: it computes what the CPU
does, without races, and what is planted is found.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.gpu import block
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("cuda"), reason="nvidia-cuda-nvrtc is not installed"
)

if importlib.util.find_spec("cuda"):
    from ptx.runner import Interpreted, compiled

STATES = 3
TOLERANCE = {"float64": 1e-12, "float32": 3e-6}


def load(name):
    base, _, floating = name.partition(" ")
    return rg.load(base, floating_base=bool(floating), engine="numpy")


def kernel(robot, name, shape, **options):
    if shape == "block":
        return Kernel(name, block.block_function(robot.model, name, **options))
    return Kernel(name, ThreadFunction(name, program_of(robot.model, name, **options)))


def given(robot, name, dtype, count=STATES):
    q, v, _ = robot.random(batch=count, seed=4)
    rng = np.random.default_rng(7)
    a, tau = (rng.uniform(-1, 1, (count, robot.nv)) for _ in range(2))
    known = {"q": q, "v": v, "a": a, "tau": tau}
    # the same numbers on both sides
    return [known[k].astype(dtype).astype(float) for k in catalog.FUNCTIONS[name].inputs]


def errors(outputs, results):
    results = results if isinstance(results, tuple) else (results,)
    return [
        np.max(abs(x - y.reshape(x.shape))) / np.max(abs(y))
        for x, y in zip(outputs, results, strict=True)
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("which", "name", "shape"),
    [
        ("iiwa14", "rnea_derivatives", "block"),
        ("iiwa14", "minv", "block"),
        ("hyq floating", "aba", "block"),
        ("double_pendulum", "aba_derivatives", "block"),
        ("iiwa14", "rnea", "thread"),
        ("iiwa14", "aba_derivatives", "thread"),  # in parts: calls and local memory
        ("hyq floating", "integrate", "thread"),
    ],
)
def test_compiled_kernels_compute_what_the_cpu_does(which, name, shape, dtype):
    robot = load(which)
    if name == "integrate":
        q, v, _ = robot.random(batch=STATES, seed=4)
        inputs = [x.astype(dtype).astype(float) for x in (q, v)]
    else:
        inputs = given(robot, name, dtype)
    run = Interpreted(kernel(robot, name, shape), dtype).run(inputs, blocks=2)
    assert run.findings.clean, run.findings
    assert max(errors(run.outputs, getattr(robot, name)(*inputs))) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_angles_beyond_all_reason_are_reduced(dtype):
    """The way of large angles through a call or a loop over the digits of 2/π."""
    robot = load("pendulum")
    inputs = given(robot, "rnea", dtype)
    inputs[0] = np.array([[3e10], [-7e12], [1.0]]).astype(dtype).astype(float)
    run = Interpreted(kernel(robot, "rnea", "thread"), dtype).run(inputs)
    assert run.findings.clean
    assert max(errors(run.outputs, robot.rnea(*inputs))) <= TOLERANCE[dtype]


def test_both_orders_of_warps_give_the_same():
    robot = load("hyq")
    ours = Interpreted(kernel(robot, "rnea_derivatives", "block"), "float32")
    inputs = given(robot, "rnea_derivatives", "float32", 1)
    one, other = (ours.run(inputs, order=order) for order in (0, 1))
    for x, y in zip(one.outputs, other.outputs, strict=True):
        assert np.array_equal(x, y)


# --- limits ---------------------------------------------------------------------------------------

# warp instructions a state, the share of control, passes through the banks over as few as there
# could be; of float32. What a change of the generator must not exceed unnoticed.
LIMITS = {
    ("iiwa14", "rnea"): (1400, 0.10, 1.3),
    ("iiwa14", "rnea_derivatives"): (2100, 0.10, 1.2),
    ("iiwa14", "minv"): (4200, 0.15, 1.2),
    ("hyq", "rnea_derivatives"): (2300, 0.15, 1.3),
    ("go2 floating", "rnea_derivatives"): (3200, 0.20, 1.3),
}


def example(name):
    base, _, floating = name.partition(" ")
    robots = (Path(p) / "cmeel.prefix/share/example-robot-data/robots" for p in sys.path)
    urdf = f"{base}_description/urdf/{base}.urdf"
    path = next((f for r in robots if (f := r / urdf).is_file()), None)
    if path is None:
        pytest.skip("example-robot-data is not installed")
    return rg.load(path, floating_base=bool(floating), engine="numpy")


@pytest.mark.parametrize(("which", "name"), LIMITS)
def test_counts_of_block_kernels_stay_below_their_limits(which, name):
    robot = example(which) if which.startswith("go2") else load(which)
    made = kernel(robot, name, "block")
    inputs = given(robot, name, "float32", made.states)
    run = Interpreted(made, "float32").run(inputs)
    assert run.findings.clean, run.findings
    assert max(errors(run.outputs, getattr(robot, name)(*inputs))) <= TOLERANCE["float32"]
    instructions, control, conflicts = LIMITS[which, name]
    report = run.report
    assert report.instructions <= instructions and report.control <= control
    assert report.conflicts <= conflicts and report.local == 0


@pytest.mark.parametrize("name", ["rnea_derivatives", "aba_derivatives"])
def test_a_panda_with_its_gripper_has_block_kernels(name):
    """One finger follows the other."""
    robot = example("panda")
    assert robot.model.has_mimic
    inputs = given(robot, name, "float64")
    run = Interpreted(kernel(robot, name, "block"), "float64").run(inputs)
    assert run.findings.clean, run.findings
    assert max(errors(run.outputs, getattr(robot, name)(*inputs))) <= 1e-11


def test_threads_read_and_write_rows_together():
    """Sectors of global memory are as few as the rows have bytes, and nothing is local."""
    robot = load("iiwa14")
    made = kernel(robot, "rnea", "thread")
    run = Interpreted(made, "float32").run(given(robot, "rnea", "float32", made.threads))
    report = run.report
    assert report.sectors <= 1.05 * report.sectors_best and report.local == 0
    assert report.lanes > 31 and report.instructions <= 45


def test_local_memory_of_large_programs_is_shown():
    robot = load("iiwa14")
    made = kernel(robot, "aba_derivatives", "thread")
    run = Interpreted(made, "float32").run(given(robot, "aba_derivatives", "float32", made.threads))
    assert 0 < run.report.local_bytes <= 4600


# --- planted bugs ---------------------------------------------------------------------------------


def nth(pattern, which, by=""):
    """Changes one place of many."""

    def change(text):
        found = list(re.finditer(pattern, text))[which]
        return text[: found.start()] + found.expand(by) + text[found.end() :]

    return change


def found(robot, name, *, change=lambda text: text, edit=lambda text: text, blocks=1):
    inputs = given(robot, name, "float32", 1)
    run = Interpreted(kernel(robot, name, "block"), "float32", change, edit).run(
        inputs, blocks=blocks
    )
    right = max(errors(run.outputs, getattr(robot, name)(*inputs))) <= TOLERANCE["float32"]
    return run.findings, not right


def test_every_barrier_is_needed():
    """Without any one of them there is a race: none is redundant, and each loss is found."""
    robot = load("hyq floating")
    made = kernel(robot, "rnea_derivatives", "block")
    barrier = r"bar\.\w+(?:\.sync)?[^;]*;"
    barriers = len(re.findall(barrier, compiled(made.source("cuda", "float32"))))
    assert barriers == made.function.barriers
    races = [
        found(robot, "rnea_derivatives", change=nth(barrier, k))[0].races for k in range(barriers)
    ]
    assert all(races), races


def test_a_wrong_address_is_found():
    """A stray result shows as a race or as a read before any write; in a number, too."""
    robot = load("hyq")

    def stray(text):
        start = text.index("{", text.index(" rnea_derivatives_rate_1[")) + 1
        end = text.index("}", start)
        numbers = text[start:end].split(",")
        numbers[5] = str(int(numbers[5]) + 2)  # where J' of the first freedom goes
        return text[:start] + ",".join(numbers) + text[end:]

    findings, wrong = found(robot, "rnea_derivatives", edit=stray)
    assert not findings.clean and wrong


def test_a_read_before_any_write_is_found():
    robot = load("hyq")

    def unwritten(text):
        loop = (
            r"\n  for \(int t = [^;]*; t < \d+; t \+= team\) st\(s, \d+ \+ t, \w+_constants[^\n]*"
        )
        changed, count = re.subn(loop, "", text, count=1)
        assert count == 1
        return changed

    findings, _ = found(robot, "rnea_derivatives", edit=unwritten)
    assert findings.unwritten


def test_an_access_beyond_an_array_ends_the_kernel():
    robot = load("hyq")
    findings, _ = found(robot, "rnea", change=nth(r"(st\.global\.f32 \s*\[%\w+)\]", 0, r"\1+4096]"))
    assert findings.outside == 1


def test_a_barrier_that_some_threads_miss_is_found():
    robot = rg.load("atlas", engine="numpy")
    edit = nth(r"  MEET\(team\)\n", 3, "  if (TID < 64) MEET(team)\n")
    findings, _ = found(robot, "rnea_derivatives", edit=edit)
    assert findings.divergent
