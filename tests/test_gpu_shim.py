"""Generated CUDA kernels, run on the CPU with every access to shared memory checked: the right numbers, no races, and the checker finds planted bugs."""

from __future__ import annotations

import math
import re
import subprocess

import numpy as np
import pytest
from gpu_shim.runner import CXX, HERE, Library
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.codegen import generate
from rigidgrad.runtime.formulation import program_of
from rigidgrad.runtime.gpu import sweep_program
from rigidgrad.targets.gpu import block
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction

pytestmark = pytest.mark.skipif(not CXX, reason="there is no C++ compiler for the CUDA shim")

ROBOTS = ["iiwa14", "hyq", "atlas", "hyq floating", "atlas floating"]
FRAMED = tuple(name for name, function in catalog.FUNCTIONS.items() if function.frame)
BLOCKS = [name for name in block.FUNCTIONS if not name.startswith("gradient_")]
COUNT = 5


def load(name):
    base, _, floating = name.partition(" ")
    return rg.load(base, floating_base=bool(floating), engine="numpy")


def options(robot, name):
    return {"frame": robot.frames[-1]} if name in FRAMED else {}


def states(robot, count=COUNT):
    q, v, _ = robot.random(batch=count, seed=4)
    rng = np.random.default_rng(7)
    a, tau, dv = (rng.uniform(-1, 1, (count, robot.nv)) for _ in range(3))
    return {"q": q, "v": v, "a": a, "w": tau, "tau": tau, "dv": dv, "minv": robot.minv(q), "q0": q, "q1": robot.integrate(q, dv)}


def expected(robot, name, values):
    inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
    if name == "frame_placement":
        return inputs, [robot.forward_kinematics(inputs[0])[robot.frames[-1]]]
    result = getattr(robot, name)(*inputs, **options(robot, name))
    return inputs, list(result) if isinstance(result, tuple) else [result]


def block_kernels(robot, names=BLOCKS):
    return [Kernel(name, block.block_function(robot.model, name, **options(robot, name))) for name in names]


def thread_kernels(robot, names):
    return [Kernel(name, ThreadFunction(name, program_of(robot.model, name, **options(robot, name)))) for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shim")


@pytest.fixture(scope="module")
def blocks(folder):
    known = {}

    def build(name):
        if name not in known:
            robot = load(name)
            known[name] = robot, Library(folder, block_kernels(robot), "float64")
        return known[name]

    return build


def error(x, y):
    # relative to the largest entry; a matrix of structural zeros alone has none
    return np.max(abs(x - y), initial=0.0) / max(np.max(abs(y), initial=0.0), 1e-300)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("which", ROBOTS)
def test_blocks_compute_what_the_cpu_does_without_races(blocks, which, name):
    robot, library = blocks(which)
    inputs, results = expected(robot, name, states(robot))
    for order in (0, 1):
        outputs, report = library.run(name, "block", inputs, order=order)
        assert report.clean, report
        for x, y in zip(outputs, results, strict=True):
            assert error(x, y) <= 1e-10
    states_of_blocks = COUNT  # each state meets all its barriers once, whichever block has it
    assert report.barriers == states_of_blocks * (library.kernels[name, "block"].function.barriers)


@pytest.mark.parametrize("threads", [32, 64, 256])
def test_any_power_of_two_of_threads_serves(blocks, threads):
    robot, library = blocks("hyq floating")
    inputs, results = expected(robot, "aba_derivatives", states(robot))
    outputs, report = library.run("aba_derivatives", "block", inputs, threads=threads, order=1)
    assert report.clean, report
    assert max(error(x, y) for x, y in zip(outputs, results, strict=True)) <= 1e-10


@pytest.mark.parametrize("which", ["iiwa14", "hyq floating"])
def test_threads_compute_what_the_cpu_does_without_races(folder, which):
    robot = load(which)
    parts = ("aba_state_derivatives", "aba_derivatives_factored")  # options of a function, not functions
    long = ("torque_regressor", "coriolis_matrix", "rnea_second_derivatives")
    names = [n for n, f in catalog.FUNCTIONS.items() if n not in (*long, *parts) and not f.contacts]
    if which != "iiwa14":  # large programs take the host's compiler long
        names = ["rnea", "minv", "aba", "integrate", "difference", "normalize", "rnea_derivatives"]
    library = Library(folder, thread_kernels(robot, names), "float64")
    for name in names:
        for count in (1, 33, 129):  # one more than a block's states, one row alone
            inputs, results = expected(robot, name, states(robot, count))
            outputs, report = library.run(name, "thread", inputs, order=count % 2, blocks=2)
            assert report.clean, (name, report)
            for x, y in zip(outputs, results, strict=True):
                assert error(x, y.reshape(x.shape)) <= 1e-10, name


@pytest.mark.parametrize("which", ["iiwa14", "hyq", "atlas"])
def test_floats_are_about_as_good_as_on_the_cpu(folder, which):
    robot, exact = rg.load(which), load(which)
    names = ["rnea", "crba", "minv", "aba", "rnea_derivatives"] + (["fused_gradient", "aba_derivatives"] if which != "atlas" else [])
    library = Library(folder, block_kernels(robot, names), "float32")
    values = {k: x.astype(np.float32) for k, x in states(exact, 40).items()}
    for name in names:
        inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
        _, results = expected(exact, name, {k: x.astype(float) for k, x in values.items()})
        ours, report = library.run(name, "block", inputs)
        assert report.clean, report
        cpu = getattr(robot, name)(*inputs)
        cpu = cpu if isinstance(cpu, tuple) else (cpu,)
        # the worst of all outputs; measured: at most 2.2 times the CPU's
        assert max(map(error, ours, results)) <= 4 * max(map(error, cpu, results)), name


@pytest.mark.parametrize("seed", range(4))
def test_random_trees_with_every_joint_type(folder, seed):
    robot = random_tree(seed, bodies=8, mimic=False).robot()
    names = ["rnea", "crba", "minv", "aba", "rnea_derivatives", "aba_derivatives", "jacobian", "jacobian_derivative", "frame_velocity"]
    library = Library(folder, block_kernels(robot, names), "float64")
    values = states(robot)
    for name in names:
        inputs, results = expected(robot, name, values)
        outputs, report = library.run(name, "block", inputs, order=seed % 2)
        assert report.clean, (name, report)
        for x, y in zip(outputs, results, strict=True):
            assert error(x, y) <= 1e-9, name  # drawn inertias can be badly conditioned


def test_external_wrenches_and_other_frames_of_expression(folder):
    robot = load("hyq floating")
    link = robot.frames[-1]
    wrench = np.random.default_rng(0).normal(size=(COUNT, 6))
    values = states(robot)
    for name in ("rnea", "aba", "rnea_derivatives"):
        library = Library(folder, [Kernel(name, block.block_function(robot.model, name, external=(link,)))], "float64")
        inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
        result = getattr(robot, name)(*inputs, external={link: wrench})
        outputs, report = library.run(name, "block", [*inputs, wrench])
        assert report.clean, report
        for x, y in zip(outputs, result if isinstance(result, tuple) else (result,), strict=True):
            assert error(x, y) <= 1e-10, name
    for axes in ("local", "spatial"):
        names = ("jacobian", "jacobian_derivative", "frame_velocity")
        kernels = [Kernel(n, block.block_function(robot.model, n, frame=link, expressed_in=axes)) for n in names]
        library = Library(folder, kernels, "float64")
        for name in names:
            inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
            (x,), report = library.run(name, "block", inputs)
            assert report.clean, report
            assert error(x, getattr(robot, name)(*inputs, frame=link, expressed_in=axes)) <= 1e-10, (name, axes)


@pytest.mark.parametrize("which", ["iiwa14", "hyq floating"])
def test_three_partitionings_of_the_gradient_agree(folder, which):
    robot = load(which)
    values = states(robot)
    names = ("gradient_split", "gradient_fused", "fused_gradient")
    library = Library(folder, [Kernel(n, block.block_function(robot.model, n)) for n in names], "float64")
    q, v, a, minv = (values[k] for k in ("q", "v", "a", "minv"))
    sweep = sweep_program(robot.model)
    columns = sweep.interpret({"q": tuple(q.T), "v": tuple(v.T), "a": tuple(a.T)})
    host = [np.array([[np.broadcast_to(x, COUNT) for x in body] for body in part]).transpose(2, 0, 1) for part in columns]
    reference = robot.fused_gradient(q, v, a, minv)
    given = {"gradient_split": [q, v, *host], "gradient_fused": [q, v, a], "fused_gradient": [q, v, a, minv]}
    for name, inputs in given.items():
        outputs, report = library.run(name, "block", inputs, order=1)
        assert report.clean, report
        if name != "fused_gradient":
            outputs = [-minv @ x for x in outputs]
        for x, y in zip(outputs, reference, strict=True):
            assert error(x, y) <= 1e-10, name


# --- the checker finds what it must ------------------------------------------------------------------------------------------------------


def without(pattern, by="", count=1):
    def change(text):
        changed, found = re.subn(pattern, by, text, count=count)
        assert found == count, pattern
        return changed

    return change


def entry(table, row, field, by):
    """Changes one number of a table of entries with eight numbers each."""

    def change(text):
        start = text.index("{", text.index(f" {table}[")) + 1
        end = text.index("}", start)
        numbers = text[start:end].replace("\n", " ").split(",")
        at = 8 * row + field
        numbers[at] = f" {by(int(numbers[at]), numbers)}"
        return text[:start] + ",".join(numbers) + text[end:]

    return change


BUGS = {
    "no barrier between stages": without(r"    SYNC\n  \}\n", "  }\n"),
    "no barrier after the inputs": without(r"(_constants\[t\]\);\n)  SYNC\n", r"\1"),
    "no barrier between states": without(r"(    hyq_block\(s,[^\n]*\n)    SYNC\n", r"\1"),
    "a barrier that some threads miss": without(r"    SYNC\n  \}\n", "    if (TID < 32) { SYNC }\n  }\n"),
    "a result at another's place": entry("hyq_column_1", 1, 6, lambda _, numbers: int(numbers[6])),
    "an operand read where its writer is at work": entry("hyq_column_1", 0, 1, lambda _, numbers: int(numbers[8 + 6])),
    "an address beyond the end": entry("hyq_column_1", 0, 6, lambda *_: 60000),
    "a pair at an odd address": entry("hyq_column_1", 0, 6, lambda a, _: a + 1),
    "a constant that nobody brings": without(r"  for \(int t = TID; t < \d+; t \+= NTHR\) st\(s, \d+ \+ t, hyq_constants\[t\]\);\n"),
    "one operation too many": without(r"for \(int t = first; t < count; t", "for (int t = first; t < count + 1; t"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(folder, bug):
    # with joints of one freedom each, threads read of q only what they brought themselves
    robot = load("hyq floating" if bug == "no barrier after the inputs" else "hyq")
    kernel = Kernel("hyq", block.block_function(robot.model, "rnea_derivatives"))
    values = states(robot)
    library = Library(folder, [kernel], "float64", BUGS[bug])
    for order in (0, 1):
        _, report = library.run("hyq", "block", [values[k] for k in ("q", "v", "a")], order=order)
        assert not report.clean, bug


def test_a_missing_barrier_of_the_tile_is_found(folder):
    robot = load("iiwa14")
    inputs, _ = expected(robot, "crba", states(robot, 40))
    kernels = thread_kernels(robot, ["crba"])
    assert Library(folder, kernels, "float64").run("crba", "thread", inputs)[1].clean
    _, report = Library(folder, kernels, "float64", without(r"SYNC\n", "\n")).run("crba", "thread", inputs)
    assert report.races


def test_nan_stays_in_its_state(blocks):
    robot, library = blocks("iiwa14")
    inputs, _ = expected(robot, "rnea", states(robot))
    clean, _ = library.run("rnea", "block", inputs)
    inputs[1] = inputs[1].copy()
    inputs[1][2] = math.nan
    spoiled, _ = library.run("rnea", "block", inputs)
    assert np.isnan(spoiled[0][2]).all()
    assert np.array_equal(np.delete(clean[0], 2, 0), np.delete(spoiled[0], 2, 0))


# --- generated host functions --------------------------------------------------------------------------------------------------------------


def test_the_generated_cuda_library_runs_with_the_shim_for_a_device(tmp_path):
    """Memory, copies, launches, the three partitionings and the example's own comparison; nothing is left over."""
    generate(load("hyq"), ["rnea", "fused_gradient", "energy"], target="cuda", out=tmp_path, dtypes=["float64"])
    example = tmp_path / "example"
    command = [CXX, "-std=c++17", "-O0", "-w", "-x", "c++", "-I", HERE / "fake", "-o", example, tmp_path / "main.cu"]
    subprocess.run(command, check=True)
    ran = subprocess.run([example], capture_output=True, text=True)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout
    for how in ("split", "fused", "completely_fused"):
        assert f"gradient_{how}: dq" in ran.stdout
    assert "left over: 0 allocations, 0 streams" in ran.stdout and "races 0, unwritten 0, outside 0, divergent 0" in ran.stdout
