"""Generated CUDA kernels, run on the CPU with every access to shared memory checked: the right
numbers, no races, and the checker finds planted bugs.
"""

from __future__ import annotations

import math
import re
import subprocess

import numpy as np
import pytest
from gpu_shim.runner import CXX, HERE, Library
from random_trees import random_tree
from test_kernels import chain

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.codegen import generate
from rigidgrad.runtime.formulation import program_of, source_of
from rigidgrad.runtime.gpu import sweep_program
from rigidgrad.targets.gpu import block
from rigidgrad.targets.gpu.kernel import Kernel
from rigidgrad.targets.gpu.thread import ThreadFunction
from rigidgrad.targets.gpu.thread_kernel import LoopFunction

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
    return {
        "q": q,
        "v": v,
        "a": a,
        "w": tau,
        "tau": tau,
        "dv": dv,
        "minv": robot.minv(q),
        "q0": q,
        "q1": robot.integrate(q, dv),
    }


def expected(robot, name, values):
    inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
    if name == "frame_placement":
        return inputs, [robot.forward_kinematics(inputs[0])[robot.frames[-1]]]
    result = getattr(robot, name)(*inputs, **options(robot, name))
    return inputs, list(result) if isinstance(result, tuple) else [result]


def block_kernels(robot, names=BLOCKS):
    return [
        Kernel(name, block.block_function(robot.model, name, **options(robot, name)))
        for name in names
    ]


def thread_kernels(robot, names):
    return [
        Kernel(name, ThreadFunction(name, program_of(robot.model, name, **options(robot, name))))
        for name in names
    ]


@pytest.fixture(scope="module")
def blocks():
    known = {}

    def build(name):
        if name not in known:
            robot = load(name)
            known[name] = robot, Library(block_kernels(robot), "float64")
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
    # each state meets all its barriers once, whichever block has it; those of a block together
    function = library.kernels[name, "block"].function
    assert report.barriers == -(-COUNT // function.states) * function.barriers


@pytest.mark.parametrize("times", [2, 4])
def test_more_threads_serve_as_well(times):
    robot = load("hyq floating")
    (kernel,) = block_kernels(robot, ["aba_derivatives"])
    team = kernel.function.schedule.threads
    assert kernel.function.states == 1
    every = without(rf"_team\({team}, s", "_team(NTHR, s")
    library = Library([kernel], "float64", every)
    inputs, results = expected(robot, "aba_derivatives", states(robot))
    threads = times * team
    outputs, report = library.run("aba_derivatives", "block", inputs, threads=threads, order=1)
    assert report.clean, report
    assert max(error(x, y) for x, y in zip(outputs, results, strict=True)) <= 1e-10


@pytest.mark.parametrize("which", ["iiwa14", "hyq floating"])
def test_threads_compute_what_the_cpu_does_without_races(which):
    robot = load(which)
    # options of a function, not functions
    parts = ("aba_state_derivatives", "aba_derivatives_factored")
    long = ("torque_regressor", "coriolis_matrix", "rnea_second_derivatives")
    names = [n for n, f in catalog.FUNCTIONS.items() if n not in (*long, *parts) and not f.contacts]
    if which != "iiwa14":  # large programs take the host's compiler long
        names = ["rnea", "minv", "aba", "integrate", "difference", "normalize", "rnea_derivatives"]
    library = Library(thread_kernels(robot, names), "float64")
    for name in names:
        for count in (1, 33, 129):  # one more than a block's states, one row alone
            inputs, results = expected(robot, name, states(robot, count))
            outputs, report = library.run(name, "thread", inputs, order=count % 2, blocks=2)
            assert report.clean, (name, report)
            for x, y in zip(outputs, results, strict=True):
                assert error(x, y.reshape(x.shape)) <= 1e-10, name


def test_a_chain_of_sixty_joints_computes_in_loops():
    """One number of each state in global memory after the other, dense and packed."""
    robot, names = chain(60), ("crba", "rnea_derivatives")
    functions = [LoopFunction(n, source_of(robot.model, n)) for n in names]
    band = {"M": [61 * k for k in range(60)]}
    kernels = [Kernel(f.name, f) for f in functions]
    kernels.append(Kernel("diagonal", LoopFunction("crba", functions[0].kernel, band)))
    library = Library(kernels, "float64")
    for count in (1, 33):
        state = robot.random(batch=(count,), seed=1)
        for name in names:
            inputs = [state[k] for k in range(len(catalog.FUNCTIONS[name].inputs))]
            expected = getattr(robot, name)(*inputs)
            expected = expected if isinstance(expected, tuple) else (expected,)
            outputs, report = library.run(name, "thread", inputs, blocks=2)
            assert report.clean, report
            for x, y in zip(outputs, expected, strict=True):
                assert error(x, y) <= 1e-13, name
        (found,), report = library.run("diagonal", "thread", [state.q], blocks=2)
        assert report.clean
        assert error(found, np.diagonal(robot.crba(state.q), axis1=1, axis2=2)) <= 1e-13


@pytest.mark.parametrize("which", ["iiwa14", "hyq", "atlas"])
def test_floats_are_about_as_good_as_on_the_cpu(which):
    robot, exact = rg.load(which), load(which)
    names = ["rnea", "crba", "minv", "aba", "rnea_derivatives"] + (
        ["fused_gradient", "aba_derivatives"] if which != "atlas" else []
    )
    library = Library(block_kernels(robot, names), "float32")
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


@pytest.mark.parametrize("mimic", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_random_trees_with_every_joint_type(seed, mimic):
    robot = random_tree(seed, bodies=8, mimic=mimic).robot()
    assert mimic == robot.model.has_mimic
    names = [
        "rnea",
        "crba",
        "minv",
        "aba",
        "rnea_derivatives",
        "aba_derivatives",
        "jacobian",
        "jacobian_derivative",
        "frame_velocity",
    ]
    library = Library(block_kernels(robot, names), "float64")
    values = states(robot)
    for name in names:
        inputs, results = expected(robot, name, values)
        outputs, report = library.run(name, "block", inputs, order=seed % 2)
        assert report.clean, (name, report)
        for x, y in zip(outputs, results, strict=True):
            assert error(x, y) <= 1e-9, name  # drawn inertias can be badly conditioned


def test_external_wrenches_and_other_frames_of_expression():
    robot = load("hyq floating")
    link = robot.frames[-1]
    wrench = np.random.default_rng(0).normal(size=(COUNT, 6))
    values = states(robot)
    for name in ("rnea", "aba", "rnea_derivatives"):
        library = Library(
            [Kernel(name, block.block_function(robot.model, name, external=(link,)))],
            "float64",
        )
        inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
        result = getattr(robot, name)(*inputs, external={link: wrench})
        outputs, report = library.run(name, "block", [*inputs, wrench])
        assert report.clean, report
        for x, y in zip(outputs, result if isinstance(result, tuple) else (result,), strict=True):
            assert error(x, y) <= 1e-10, name
    for axes in ("local", "spatial"):
        names = ("jacobian", "jacobian_derivative", "frame_velocity")
        kernels = [
            Kernel(n, block.block_function(robot.model, n, frame=link, expressed_in=axes))
            for n in names
        ]
        library = Library(kernels, "float64")
        for name in names:
            inputs = [values[k] for k in catalog.FUNCTIONS[name].inputs]
            (x,), report = library.run(name, "block", inputs)
            assert report.clean, report
            assert (
                error(x, getattr(robot, name)(*inputs, frame=link, expressed_in=axes)) <= 1e-10
            ), (name, axes)


@pytest.mark.parametrize("which", ["iiwa14", "hyq floating"])
def test_three_partitionings_of_the_gradient_agree(which):
    robot = load(which)
    values = states(robot)
    names = ("gradient_split", "gradient_fused", "fused_gradient")
    library = Library([Kernel(n, block.block_function(robot.model, n)) for n in names], "float64")
    q, v, a, minv = (values[k] for k in ("q", "v", "a", "minv"))
    sweep = sweep_program(robot.model)
    columns = sweep.interpret({"q": tuple(q.T), "v": tuple(v.T), "a": tuple(a.T)})
    host = [
        np.array([[np.broadcast_to(x, COUNT) for x in body] for body in part]).transpose(2, 0, 1)
        for part in columns
    ]
    reference = robot.fused_gradient(q, v, a, minv)
    given = {
        "gradient_split": [q, v, *host],
        "gradient_fused": [q, v, a],
        "fused_gradient": [q, v, a, minv],
    }
    for name, inputs in given.items():
        outputs, report = library.run(name, "block", inputs, order=1)
        assert report.clean, report
        if name != "fused_gradient":
            outputs = [-minv @ x for x in outputs]
        for x, y in zip(outputs, reference, strict=True):
            assert error(x, y) <= 1e-10, name


# --- the checker finds what it must ---------------------------------------------------------------


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


def nth(text, which, by=""):
    """Changes one place of several."""

    def change(whole):
        parts = whole.split(text)
        assert len(parts) > which + 1, text
        return text.join(parts[: which + 1]) + by + text.join(parts[which + 1 :])

    return change


def one_more(match):
    return f"{match[1]}{int(match[2]) + 1}{match[3]}"


BUGS = {
    "no barrier between stages": nth("  MEET(team)\n", 4),
    "no barrier after the inputs": nth("  MEET(team)\n", 0),
    "no barrier between states": without(r"(    hyq_team\(\d+, s[^\n]*\n)    MEET\(\d+\)\n", r"\1"),
    "a barrier that some threads miss": nth("  MEET(team)\n", 4, "  if (TID < 32) MEET(team)\n"),
    "a result at another's place": entry("hyq_rate_1", 1, 7, lambda _, numbers: int(numbers[7])),
    "an operand read where its writer is at work": entry(
        "hyq_rate_1", 0, 1, lambda _, numbers: int(numbers[8 + 7])
    ),
    "an address beyond the end": entry("hyq_rate_1", 0, 7, lambda *_: 60000),
    "a pair at an odd address": entry("hyq_rate_1", 0, 7, lambda a, _: a + 1),
    "a constant that nobody brings": without(
        r"  for \(int t = [^;]*; t < \d+; t \+= team\) st\(s, \d+ \+ t, hyq_constants\[t\]\);\n"
    ),
    "one operation too many": without(
        r"(t < )(\d+)(; t \+= team\) \{\n    int e\[4\];\n    entry4\(hyq_compose)", one_more
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug):
    # with joints of one freedom each, threads read of q only what they brought themselves; poses of
    # bodies far from the root are composed in several stages
    floating = bug in ("no barrier after the inputs", "one operation too many")
    robot = load("hyq floating" if floating else "hyq")
    # the gradient's results lie where no input comes to
    name = "crba" if bug == "no barrier between states" else "rnea_derivatives"
    kernel = Kernel("hyq", block.block_function(robot.model, name))
    inputs, _ = expected(robot, name, states(robot))
    library = Library([kernel], "float64", BUGS[bug])
    for order in (0, 1):
        _, report = library.run("hyq", "block", inputs, order=order, blocks=1)
        assert not report.clean, bug


def test_a_missing_barrier_of_the_tile_is_found():
    robot = load("iiwa14")
    inputs, _ = expected(robot, "crba", states(robot, 40))
    kernels = thread_kernels(robot, ["crba"])
    assert Library(kernels, "float64").run("crba", "thread", inputs)[1].clean
    _, report = Library(kernels, "float64", without(r"SYNC\n", "\n")).run("crba", "thread", inputs)
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


# --- generated host functions ---------------------------------------------------------------------


def test_the_generated_cuda_library_runs_with_the_shim_for_a_device(tmp_path):
    """Memory, copies, launches, the three partitionings and the example's own comparison; nothing
    is left over.
    """
    generate(
        load("hyq"),
        ["rnea", "fused_gradient", "energy"],
        target="cuda",
        out=tmp_path,
        dtypes=["float64"],
    )
    example = tmp_path / "example"
    command = [
        CXX,
        "-std=c++17",
        "-O0",
        "-w",
        "-x",
        "c++",
        "-I",
        HERE / "fake",
        "-o",
        example,
        tmp_path / "main.cu",
    ]
    subprocess.run(command, check=True)
    ran = subprocess.run([example], capture_output=True, text=True)
    assert ran.returncode == 0 and "WRONG" not in ran.stdout
    for how in ("split", "fused", "completely_fused"):
        assert f"gradient_{how}: dq" in ran.stdout
    assert (
        "left over: 0 allocations, 0 streams" in ran.stdout
        and "races 0, unwritten 0, outside 0, divergent 0" in ran.stdout
    )
