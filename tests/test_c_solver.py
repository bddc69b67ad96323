"""Whole solvers as C: to the last bit what `rg.solve` finds, from random starts, as gcc and clang
build them; without allocation, and clean under sanitizers.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from c_solver_builds import COMPILERS, FLAGS, NATIVE, Solver, compiled, differences
from hopper import DRIVEN, START, foot, hopper, stance_costs

import rigidgrad as rg
from rigidgrad.errors import InputError

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
POINT = np.array([0.4, 0.2, 0.6])
LIBRARY = {  # all that a solver may ask of others: mathematics, and memory that is moved
    *("fma", "sqrt", "sin", "cos", "atan2", "frexp", "ldexp", "nearbyint"),
    *("memcpy", "memset", "memmove", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"),
}


def arm(limits=None, **more) -> rg.Problem:
    """The iiwa14 from rest to a posture and a point."""
    costs = [
        rg.costs.State(
            np.r_[0.0, 0.0, 0.0, -0.8, 0.0, 0.8, 1.5, np.zeros(7)], weight=0.01, final=10.0
        ),
        rg.costs.Effort(1e-4),
        rg.costs.Reach("iiwa_link_7", POINT, weight=1.0, final=100.0),
    ]
    robot = rg.load("iiwa14")
    start = np.zeros(robot.nq + robot.nv)
    return rg.Problem(robot, start, steps=30, dt=0.02, costs=costs, limits=limits, **more)


def figure_eight() -> rg.Problem:
    """The arm's point along a figure eight, within its torques."""
    phase = np.linspace(0.0, 1.0, 31)
    path = np.stack([0.6 + 0 * phase, 0.3 * np.sin(phase), 0.5 + 0.2 * np.sin(2 * phase)], axis=1)
    damping = np.r_[np.zeros(7), np.full(7, 0.1)]
    costs = [
        rg.costs.Reach("iiwa_link_7", path, weight=10.0, final=1000.0),
        rg.costs.State(np.zeros(14), weight=damping, final=damping),
        rg.costs.Effort(1e-4, reference="gravity"),
    ]
    start = np.r_[0.0, 0.5, 0.0, -1.2, 0.0, 0.8, 0.0, np.zeros(7)]
    limits = rg.Limits(torque=True)
    return rg.Problem(rg.load("iiwa14"), start, steps=30, dt=0.01, costs=costs, limits=limits)


def around_a_ball() -> rg.Problem:
    """The arm's wrist keeps out of a ball on its way."""
    ball = rg.Obstacle((0.35, 0.0, 0.55), 0.12)
    limits = rg.Limits(
        torque=True, obstacles=[ball], spheres=[rg.LinkSphere("iiwa_link_7", radius=0.06)]
    )
    return arm(limits)


def pendulum() -> rg.Problem:
    """Two links within limits of torque, position and velocity: quick to compile, all parts."""
    costs = [rg.costs.State([0.8, -0.4, 0.0, 0.0], 0.1, 10.0), rg.costs.Effort(1e-3)]
    robot = rg.load("double_pendulum")
    limits = rg.Limits(torque=15.0, position=(-0.7, 0.7), velocity=3.0)
    return rg.Problem(robot, np.zeros(4), steps=20, dt=0.02, costs=costs, limits=limits)


def quadrotor() -> rg.Problem:
    """Through a point and on to another, with rotors that only push, and a corridor."""
    start = np.r_[0, 0, 1, 0, 0, 0, 1, np.zeros(6)].astype(float)
    goal, weight = np.tile(start, (41, 1)), np.full((40, 12), 0.01)
    goal[20:, :3], weight[20, :3] = (0.8, 0.5, 1.3), 100.0
    costs = [rg.costs.State(goal, weight=weight, final=100.0), rg.costs.Effort(0.1)]

    def height(x, u):
        return (x[2],)

    corridor = rg.Inequality(height, lower=0.9, upper=1.25, name="height")
    return rg.Problem(
        rg.load("quadrotor"),
        start,
        steps=40,
        dt=0.03,
        costs=costs,
        limits=rg.Limits(torque=True, constraints=[corridor]),
    )


def hop() -> rg.Problem:
    """On the foot, an impact, and off the ground: contacts, a guess of states, no uniform step."""
    phases = [
        rg.Phase(8, [foot()], [rg.costs.State(START, 1.0), rg.costs.Effort(1e-3)], dt=0.02),
        rg.Impact([foot()], [rg.costs.State(START, 0.1)]),
        rg.Phase(6, costs=stance_costs(0.05), dt=0.02),
    ]
    return rg.Problem(hopper(), START, phases=phases, actuation=DRIVEN)


def trot() -> rg.Problem:
    """Two pairs of feet of HyQ swing once each."""
    robot = rg.load("hyq", floating_base=True)
    feet = [
        rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.7)
        for leg in ("lf", "rf", "lh", "rh")
    ]
    x = np.zeros(robot.nq + robot.nv)
    x[6] = 1.0
    x[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])
    x[2] = -rg.gaits.Stance(robot, feet, x).ground
    phases = rg.gaits.trot(robot, feet, x, cycles=1, dt=0.04)
    return rg.Problem(robot, x, phases=phases, limits=rg.Limits(torque=True))


def starts_of(problem: rg.Problem, count: int, spread: float, speed: float) -> list[np.ndarray]:
    random, robot = np.random.default_rng(0), problem.system.robot
    q, n = problem.start[: robot.nq].copy(), robot.nv
    moved = random.uniform(-spread, spread, (count, n))
    v = random.normal(size=(count, n)) * speed
    return [np.r_[robot.integrate(q, dq), dv] for dq, dv in zip(moved, v, strict=True)]


CASES = {
    "arm": (lambda: arm(), 200, 1.5, 0.5),
    "pendulum": (pendulum, 60, 0.3, 0.3),
    "torques": (lambda: arm(rg.Limits(torque=True)), 60, 0.8, 0.2),
    "eight": (figure_eight, 60, 0.4, 0.2),
    "ball": (around_a_ball, 40, 0.3, 0.1),
    "bounds": (lambda: arm(rg.load("iiwa14").limits), 100, 0.8, 0.2),
    "quadrotor": (quadrotor, 60, 0.05, 0.1),
    "hop": (hop, 60, 0.02, 0.1),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Generates and builds a case once."""
    known: dict[str, tuple] = {}

    def build(name: str):
        if name not in known:
            problem, options = CASES[name][0](), rg.PDDP()
            folder = tmp_path_factory.mktemp(name)
            rg.generate(problem, options, target="c", out=folder, name=name)
            library = compiled(folder, name, *NATIVE)
            known[name] = problem, options, folder, Solver(library, name, problem, options)
        return known[name]

    return build


@needs_gcc
@pytest.mark.parametrize("name", CASES)
def test_c_finds_the_bits_of_python_from_random_starts(built, name):
    problem, options, _, solver = built(name)
    _, count, spread, speed = CASES[name]
    found = set()
    for k, start in enumerate(starts_of(problem, count, spread, speed)):
        problem.update(start=start)
        solver.set(problem)
        expected = options.solve(problem)
        found.add(expected.status)
        assert differences(solver.solve(), expected) == [], (k, expected.status)
    assert "converged" in found


@needs_gcc
def test_numbers_change_at_run_time_as_problem_update_changes_them(built):
    problem, options, _, solver = built("arm")
    reach, effort = problem.costs[2], problem.costs[1]
    kept = reach.target, effort.weight
    try:
        reach.target, effort.weight = POINT + [0.1, -0.2, 0.1], 1e-3
        problem.update(start=np.full(14, 0.1), dt=0.015)
        solver.set(problem)
        assert differences(solver.solve(), options.solve(problem)) == []
    finally:
        reach.target, effort.weight = kept
        problem.update(dt=0.02)


@needs_gcc
def test_the_guess_is_gravity_compensation_at_the_start(built):
    import ctypes

    problem, _, _, solver = built("arm")
    problem.update(start=np.r_[np.full(7, 0.3), np.zeros(7)], guess="hold")
    solver["start"][:] = problem.start
    solver.function("hold", None, ctypes.c_void_p)(ctypes.byref(solver.numbers))
    assert np.array_equal(solver["u"].reshape(30, 7), problem.guess)


SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]


def check_example(compiler, folder, name, *flags):
    """All warnings are errors; what the example finds are the bits of Python."""
    program, files = folder / f"example_{compiler}", [folder / f"{name}.c", folder / "main.c"]
    command = [compiler, *FLAGS, *NATIVE, *flags, *files, "-o", program, "-lm"]
    subprocess.run(command, check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "states 0.0e+00, controls 0.0e+00, cost 0.0e+00" in ran.stdout


@needs_gcc
@pytest.mark.parametrize("name", ["pendulum", "hop", "torques", "eight", "ball", "quadrotor"])
def test_the_example_is_clean_under_sanitizers(built, name):
    """Of clang, where it is installed, and of gcc for the smallest; each at another level, too."""
    *_, last = COMPILERS
    for compiler in COMPILERS if name == "pendulum" else [last]:
        check_example(compiler, built(name)[2], name, "-O0", *SANITIZERS)
    check_example(last, built(name)[2], name, "-O2")


@needs_gcc
def test_a_trot_is_clean_under_sanitizers(tmp_path):
    """HyQ with contacts, on and off; gcc, to which the sanitizers are much more work, has none."""
    rg.generate(trot(), rg.PDDP(), target="c", out=tmp_path, name="trot")
    *_, last = COMPILERS
    check_example(last, tmp_path, "trot", "-O0", *(SANITIZERS if last == "clang" else []))


@needs_gcc
def test_without_vectors_and_without_their_multiply_adds_the_bits_are_the_same(built, tmp_path):
    problem, options, folder, _ = built("pendulum")
    problem.update(start=np.full(4, 0.2))
    expected = options.solve(problem)
    for flags in (["-DPENDULUM_VECTOR_BYTES=0", *NATIVE], []):
        library = compiled(folder, "pendulum", *flags)
        renamed = library.rename(tmp_path / f"lib{len(flags)}.so")
        solver = Solver(renamed, "pendulum", problem, options)
        solver.set(problem)
        assert differences(solver.solve(), expected) == []


@needs_gcc
def test_a_solver_asks_for_no_memory_and_calls_mathematics_alone(built, tmp_path):
    for name in ("pendulum", "hop"):
        _, _, folder, _ = built(name)
        compile_ = ["gcc", *FLAGS, *NATIVE, "-c", folder / f"{name}.c", "-o", tmp_path / "x.o"]
        subprocess.run(compile_, check=True)
        listed = subprocess.run(
            ["nm", "-u", tmp_path / "x.o"], capture_output=True, text=True, check=True
        )
        assert {line.split()[-1] for line in listed.stdout.splitlines()} <= LIBRARY


COUNTED = """
#include "pendulum.h"
#include <stdio.h>
#include <stdlib.h>
static long calls;
static int open_;
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n) { calls += open_; return __real_malloc(n); }
static pendulum_numbers numbers;
static pendulum_solution solution;
int main(void)
{
    pendulum_solver *s = pendulum_init(malloc(pendulum_memory()), pendulum_memory());
    int k;
    pendulum_defaults(&numbers);
    open_ = 1;
    for (k = 0; k < 5; ++k) {
        numbers.start[0] = 0.1 * k;
        pendulum_solve(s, &numbers, &solution);
    }
    open_ = 0;
    return calls != 0;
}
"""


@needs_gcc
def test_malloc_is_never_called_after_init(built, tmp_path):
    _, _, folder, _ = built("pendulum")
    (tmp_path / "counted.c").write_text(COUNTED)
    files = [folder / "pendulum.c", tmp_path / "counted.c"]
    options = ["-Wl,--wrap=malloc", f"-I{folder}", "-o", tmp_path / "counted", "-lm"]
    subprocess.run(["gcc", *FLAGS, *NATIVE, *files, *options], check=True)
    subprocess.run([tmp_path / "counted"], check=True)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_the_package_is_built_installed_and_found(built, tmp_path):
    _, _, folder, _ = built("pendulum")
    run = {"check": True, "capture_output": True, "text": True}
    build, place = tmp_path / "build", tmp_path / "installed"
    subprocess.run(["cmake", "-S", folder, "-B", build, f"-DCMAKE_INSTALL_PREFIX={place}"], **run)
    subprocess.run(["cmake", "--build", build], **run)
    subprocess.run(["ctest", "--output-on-failure"], cwd=build, **run)
    subprocess.run(["cmake", "--install", build], **run)
    user = tmp_path / "user"
    user.mkdir()
    (user / "use.cpp").write_text(
        '#include "pendulum.hpp"\nint main() { pendulum::Solver s; static pendulum::Numbers n; static'
        " pendulum::Solution f; pendulum::set_defaults(n); return s.solve(n, f) =="
        " PENDULUM_CONVERGED ? 0 : 1; }\n"
    )
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(use CXX)\nset(CMAKE_CXX_STANDARD 11)\n"
        "find_package(pendulum REQUIRED)\nadd_executable(use use.cpp)\n"
        "target_link_libraries(use pendulum::pendulum)\n"
    )
    options = [f"-DCMAKE_PREFIX_PATH={place}"]
    subprocess.run(["cmake", "-S", user, "-B", user / "build", *options], **run)
    subprocess.run(["cmake", "--build", user / "build"], **run)
    subprocess.run([user / "build" / "use"], **run)


ARM64 = shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64")


@pytest.mark.skipif(not ARM64, reason="needs aarch64-linux-gnu-gcc and qemu-user")
def test_on_aarch64_the_bits_are_the_same(built, tmp_path):
    _, _, folder, _ = built("hop")
    files = [folder / "hop.c", folder / "main.c"]
    subprocess.run(
        ["aarch64-linux-gnu-gcc", *FLAGS, "-static", *files, "-o", tmp_path / "run", "-lm"],
        check=True,
    )
    ran = subprocess.run(
        ["qemu-aarch64", tmp_path / "run"], capture_output=True, text=True, check=True
    )
    assert "states 0.0e+00, controls 0.0e+00" in ran.stdout


def test_the_header_names_numbers_and_counts_memory_and_operations(built):
    _, _, folder, solver = built("pendulum")
    text = (folder / "pendulum.h").read_text()
    first = text[:900]
    assert "Memory: at most" in first and "flops an iteration" in first
    promised = 1000 * int(first.split("at most ")[1].split(" kB")[0])
    assert 0.3 * promised < len(solver.memory) <= promised
    for member in ("state_target[4]", "effort_weight[2]", "position_lower[2]"):
        assert f"double {member};" in text


def test_what_cannot_be_generated_is_told(tmp_path):
    problem = arm()
    for options, word in (
        (rg.PDDP(blocks=2), "blocks"),
        (rg.PDDP(second_order=True), "second_order"),
        (rg.PDDP(dtype="float32"), "dtype"),
        (rg.PDDP(form="inverse"), "form"),
        (rg.Direct(linear_solver="pcg"), "linear_solver"),
        (rg.Direct(globalization="admm"), "globalization"),
        (object(), "PDDP"),
    ):
        with pytest.raises(InputError, match=word):
            rg.generate(problem, options, target="c", out=tmp_path)
    with pytest.raises(InputError, match='target="c"'):
        rg.generate(problem, rg.PDDP(), target="opencl", out=tmp_path)
    with pytest.raises(InputError, match="which functions"):
        rg.generate(rg.load("iiwa14"), out=tmp_path)
    assert not list(tmp_path.iterdir())
