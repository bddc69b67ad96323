"""The direct method as C: to the last bit what Python finds of robots in a vector space, with and
without bounds; elsewhere to rounding.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from c_solver_builds import COMPILERS, FLAGS, NATIVE, Solver, compiled, differences
from hopper import START, foot, stance_costs
from test_c_solver import LIBRARY, SANITIZERS, check_example, hop, pendulum, quadrotor, starts_of

import rigidgrad as rg

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def swing(steps: int = 20, **limits) -> rg.Problem:
    """Two links, with torques that are too small for the whole way at once."""
    costs = [rg.costs.State([0.8, -0.4, 0.0, 0.0], 0.1, 10.0), rg.costs.Effort(1e-3)]
    robot = rg.load("double_pendulum")
    kept = rg.Limits(**limits) if limits else None
    return rg.Problem(robot, np.zeros(4), steps=steps, dt=0.02, costs=costs, limits=kept)


CASES = {  # spread and speed of the starts, and whether bits are the same
    "free": (swing, 0.8, 0.3, True),
    "torque": (lambda: swing(torque=3.0), 0.8, 0.3, True),
    "largest": (lambda: swing(torque=8.0), 0.8, 0.3, True),
    "pendulum": (pendulum, 0.3, 0.3, True),
    "hop": (hop, 0.02, 0.1, False),
    "quadrotor": (quadrotor, 0.05, 0.1, False),
}


def options_of(name: str) -> rg.Direct:
    return rg.Direct(choose="largest", alphas=5) if name == "largest" else rg.Direct()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    known: dict[str, tuple] = {}

    def build(name: str):
        if name not in known:
            problem, options = CASES[name][0](), options_of(name)
            folder = tmp_path_factory.mktemp(name)
            rg.generate(problem, options, target="c", out=folder, name=name)
            library = compiled(folder, name, *NATIVE)
            known[name] = problem, options, folder, Solver(library, name, problem, options)
        return known[name]

    return build


@pytest.mark.parametrize("name", CASES)
def test_c_finds_what_python_finds(built, name):
    problem, options, _, solver = built(name)
    _, spread, speed, same_bits = CASES[name]
    at_bounds = False
    for k, start in enumerate(starts_of(problem, 20, spread, speed)):
        problem.update(start=start)
        solver.set(problem)
        expected, found = options.solve(problem), solver.solve()
        assert expected.status == "converged"
        at_bounds |= bool((expected.u == problem.bounds[1]).any())
        if same_bits:
            assert differences(found, expected) == [], k
            continue
        assert found[:2] == (expected.status, expected.iterations)
        for a, b in zip(found[2:], (expected.cost, expected.x, expected.u), strict=False):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert at_bounds or name in ("free", "pendulum", "hop")


def test_bounds_far_from_the_first_set_are_found_by_the_interior_point_method(built, monkeypatch):
    """Steps of which the active set went in circles."""
    from rigidgrad.control.linear import box

    problem, options, _, solver = built("torque")
    inside = []
    method = box._Box.interior_point
    monkeypatch.setattr(box._Box, "interior_point", lambda b: inside.append(1) or method(b))
    for start in starts_of(problem, 30, 2.5, 6.0):
        problem.update(start=start)
        solver.set(problem)
        expected, found = options.solve(problem), solver.solve()
        assert found[0] == expected.status
        np.testing.assert_allclose(found[4], expected.u, rtol=0, atol=1e-6)
    assert inside


def test_a_guess_of_states_and_one_that_runs_away(built):
    problem, options, _, solver = built("hop")
    problem.update(start=START, guess="hold")
    solver.set(problem)
    assert solver.solve()[0] == options.solve(problem).status
    problem, options, _, solver = built("free")
    for guess in (np.full((20, 2), 1e9), np.full((20, 2), 1e200)):
        problem.update(start=np.zeros(4), guess=guess)
        solver.set(problem)
        expected = options.solve(problem)
        assert solver.solve()[:2] == (expected.status, expected.iterations)
    problem.update(guess="hold")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["pendulum", "hop", "quadrotor"])
def test_the_example_is_clean_under_sanitizers(built, compiler, name):
    folder = built(name)[2]
    if CASES[name][-1]:
        check_example(compiler, folder, name, "-O0", *SANITIZERS)
        return
    program, files = folder / f"example_{compiler}", [folder / f"{name}.c", folder / "main.c"]
    command = [compiler, *FLAGS, *NATIVE, "-O0", *SANITIZERS, *files, "-o", program, "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([program], check=True)


def test_it_asks_for_no_memory_and_says_how_much_it_needs(built, tmp_path):
    for name in ("pendulum", "quadrotor"):
        _, _, folder, solver = built(name)
        compile_ = ["gcc", *FLAGS, *NATIVE, "-c", folder / f"{name}.c", "-o", tmp_path / "x.o"]
        subprocess.run(compile_, check=True)
        listed = subprocess.run(
            ["nm", "-u", tmp_path / "x.o"], capture_output=True, text=True, check=True
        )
        assert {line.split()[-1] for line in listed.stdout.splitlines()} <= LIBRARY
        first = (folder / f"{name}.h").read_text()[:900]
        promised = 1000 * int(first.split("at most ")[1].split(" kB")[0])
        assert 0.3 * promised < len(solver.memory) <= promised


def test_contacts_of_a_stance_are_solved(tmp_path):
    """Costs of the hopper's stance, whose steps are all alike."""
    from hopper import DRIVEN, hopper

    phases = [rg.Phase(10, [foot()], stance_costs(0.05), dt=0.02)]
    problem = rg.Problem(hopper(), START, phases=phases, actuation=DRIVEN)
    rg.generate(problem, rg.Direct(), target="c", out=tmp_path, name="stance")
    solver = Solver(compiled(tmp_path, "stance", *NATIVE), "stance", problem, rg.Direct())
    expected, found = rg.Direct().solve(problem), solver.solve()
    assert found[:2] == (expected.status, expected.iterations)
    np.testing.assert_allclose(found[3], expected.x, rtol=0, atol=1e-9)
