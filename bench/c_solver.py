"""Generated solvers against Python's: how many random starts agree to the last bit, what an
iteration takes, in turns, by CPU time; and a step of MPC by the clock, at real-time priority where
the system permits that (`peers/mpc_step.c` is the loop in C).

    python bench/c_solver.py --json bench/results/c_solver.json
    python bench/c_solver.py --cases mpc --steps 2000
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gait_cases
import machine
import motion_cases
import numpy as np
from control_cases import Arm
from mpc_cases import Tracking, eight
from mpc_real_time import lower_priority, percentiles, raise_priority
from peers import build

import rigidgrad as rg

FLAGS = ["-std=c99", "-O2", "-ffp-contract=off", "-march=native", "-shared", "-fPIC"]


def arm(limits: Any) -> rg.Problem:
    """P1 within limits."""
    own = Arm().problem()
    return rg.Problem(
        own.system, own.start, own.steps, own.dt, costs=list(own.costs), limits=limits
    )


def figure_eight() -> rg.Problem:
    """P2: the arm's point along a figure eight for half a second, within torque limits."""
    task = Tracking(limits=True)
    problem = task.problem()
    problem.costs[0].target = eight(task.dt * np.arange(task.steps + 1))
    problem.update()
    return problem


def trot() -> rg.Problem:
    numbers = gait_cases.numbers_of("hyq")
    gaits = numbers.get("gaits", numbers)
    return gait_cases.problem_of(gait_cases.robot_of("hyq"), gaits["trotting"])


IIWA = rg.load("iiwa14").limits
# problem, how far positions and velocities of the start are drawn
CASES: dict[str, tuple[Callable[[], rg.Problem], float, float]] = {
    "P1": (lambda: Arm().problem(), 1.0, 0.5),
    "P1, torque limits": (lambda: arm(rg.Limits(torque=IIWA.effort)), 0.8, 0.2),
    "P1, all limits": (lambda: arm(IIWA), 0.8, 0.2),
    "P2, torque limits": (figure_eight, 0.8, 0.2),
    "quadrotor, waypoints": (motion_cases.waypoints, 0.3, 0.2),
    "HyQ, trot": (trot, 0.02, 0.05),
}


def starts_of(problem: rg.Problem, count: int, spread: float, speed: float) -> list[np.ndarray]:
    random, robot = np.random.default_rng(0), problem.system.robot
    q = problem.start[: robot.nq].copy()
    moved = random.uniform(-spread, spread, (count, robot.nv))
    speeds = random.normal(size=(count, robot.nv)) * speed
    return [np.r_[robot.integrate(q, dq), v] for dq, v in zip(moved, speeds, strict=True)]


BLOCKS = 10  # turns in which Python and C take the steps of MPC


def built(folder: Path, name: str) -> ctypes.CDLL:
    library = folder / f"{name}.so"
    subprocess.run(["gcc", *FLAGS, folder / f"{name}.c", "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


class Solver:
    """A generated solver; numbers are written where its structure has them."""

    def __init__(self, problem: rg.Problem, options: rg.PDDP):
        with tempfile.TemporaryDirectory() as place:
            rg.generate(problem, options, target="c", out=place, name="s")
            self.code = built(Path(place), "s")
        self.code.s_memory.restype = ctypes.c_size_t
        size = self.code.s_memory()
        self.memory = ctypes.create_string_buffer(size)
        self.code.s_init.restype = ctypes.c_void_p
        self.solver = ctypes.c_void_p(self.code.s_init(self.memory, ctypes.c_size_t(size)))
        N, s = problem.steps, problem.system
        self.shapes = [(N + 1, s.nx), (N, s.nu), (N, s.nu, s.ndx)]
        self.head, self.gaps = 5, problem.guess_states is not None
        self.found = np.zeros(self.head + sum(map(np.prod, self.shapes)))

    def numbers(self, p: rg.Problem) -> np.ndarray:
        parts = [p.start, p.h, p.guess]
        parts += [p.guess_states] if self.gaps else []
        parts += [*p.bounds] if p.programs.bounded else []
        return np.concatenate([np.ravel(x) for x in (*parts, p.p, [0.0])])

    def solve(self, numbers: np.ndarray) -> list[np.ndarray]:
        addresses = (ctypes.c_void_p(a.ctypes.data) for a in (numbers, self.found))
        self.code.s_solve(self.solver, *addresses)
        cuts = np.cumsum([self.head, *map(np.prod, self.shapes)])
        return [self.found[a:b] for a, b in itertools.pairwise(cuts)]


def compare(name: str, count: int) -> dict[str, Any]:
    make, spread, speed = CASES[name]
    problem, options = make(), rg.PDDP()
    solver = Solver(problem, options)
    same, iterations, times = 0, 0, {"python": 0.0, "c": 0.0}
    statuses: Counter[str] = Counter()
    for start in starts_of(problem, count, spread, speed):
        problem.update(start=start)
        numbers = solver.numbers(problem)
        began = time.process_time()
        expected = options.solve(problem)
        middle = time.process_time()
        found = solver.solve(numbers)
        times["python"] += middle - began
        times["c"] += time.process_time() - middle
        wanted = (expected.x, expected.u, expected.gains)
        same += all(
            np.array_equal(a, b.ravel(), equal_nan=True) for a, b in zip(found, wanted, strict=True)
        )
        iterations += expected.iterations
        statuses[expected.status] += 1
    each = {who: 1e6 * t / iterations for who, t in times.items()}
    print(
        f"{name}: {same} of {count} starts to the last bit; an iteration: Python"
        f" {each['python']:.0f} us, C {each['c']:.0f} us",
        flush=True,
    )
    return {
        "case": name,
        "starts": count,
        "same": same,
        "iterations": iterations,
        "statuses": dict(statuses.most_common()),
        "iteration_us": each,
    }


def controller() -> rg.MPC:
    """The arm with torque limits; every step makes a plan by one iteration."""
    return rg.MPC(arm(rg.Limits(torque=IIWA.effort)), rg.PDDP(iterations=1), period=0.001)


def motion(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Measured states of the arm under the controller, and the controls that Python gave."""
    mpc, x = controller(), Arm().start
    robot, states, controls = mpc.system.robot, np.empty((steps, 14)), np.empty((steps, 7))
    for k in range(steps):
        states[k] = x
        controls[k] = mpc.step(x, 0.001 * k)
        v = x[7:] + 0.001 * robot.aba(x[:7], x[7:], controls[k])
        x = np.r_[x[:7] + 0.001 * v, v]
    return states, controls


def python_times(states: np.ndarray) -> np.ndarray:
    """Seconds of each step, from a reset."""
    mpc, now, times = controller(), time.perf_counter, np.empty(len(states))
    gc.collect()
    gc.disable()
    for k, x in enumerate(states):
        began = now()
        mpc.step(x, 0.001 * k)
        times[k] = now() - began
    gc.enable()
    return times


def step_times(steps: int) -> dict[str, Any]:
    """Both are given the same measured states, one after the other, in turns."""
    states, controls = motion(steps)
    found: dict[str, list[np.ndarray]] = {"python": [], "c": []}
    locked = ctypes.CDLL(None, use_errno=True).mlockall(3) == 0  # what is, and what will be
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rg.generate(controller(), target="c", out=folder, name="m")
        source = str(build.SOURCES / "mpc_step.c")
        flags = [f for f in FLAGS if f not in ("-shared", "-fPIC", "-std=c99")]
        files = [source, folder / "m.c", f"-I{folder}", "-o", folder / "run"]
        subprocess.run(["gcc", "-std=gnu99", *flags, *files, "-lm"], check=True)
        states.tofile(folder / "states")
        python_times(states[:20])
        for _ in range(BLOCKS):
            raised = raise_priority()
            found["python"].append(python_times(states))
            command = [folder / "run", folder / "states", folder / "times", folder / "controls"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            lower_priority()
            found["c"].append(np.fromfile(folder / "times"))
        theirs = np.fromfile(folder / "controls").reshape(controls.shape)
    away = float(np.abs(theirs - controls).max())
    # the first plan, from nothing, is another thing
    each = {who: percentiles(1e6 * np.concatenate([t[1:] for t in x])) for who, x in found.items()}
    least = {who: 1e6 * min(float(t[1:].min()) for t in x) for who, x in found.items()}
    ratio = {name: each["c"][name] / each["python"][name] for name in ("p50", "p99", "p99.9")}
    c_raised, c_locked = (word == "1" for word in said.split())
    print(
        "a step of MPC, iiwa14 with torque limits: "
        + "; ".join(
            f"{who} {', '.join(f'{name} {us:.0f}' for name, us in times.items())} us"
            for who, times in each.items()
        )
        + f"; {'at' if raised and c_raised else 'without'} real-time priority, memory"
        f" {'locked' if locked and c_locked else 'not locked'}; controls differ by {away:.1e} N m",
        flush=True,
    )
    return {
        "steps": steps * BLOCKS,
        "real_time_priority": raised and c_raised,
        "memory_locked": locked and c_locked,
        "step_us": each,
        "least_us": least,
        "c_over_python": ratio,
        "controls_differ": away,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000, help="of MPC, in each of ten turns")
    parser.add_argument("--cases", nargs="*", default=[*CASES, "mpc"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine.describe({}), "cases": []}
    if options.json and options.json.exists() and set(options.cases) != {*CASES, "mpc"}:
        before = json.loads(options.json.read_text())
        result = {**before, "again": [*before.get("again", []), result["machine"]]}
    kept = [case for case in result["cases"] if case["case"] not in options.cases]
    for name in options.cases:
        if name == "mpc":
            result["mpc"] = step_times(options.steps)
        else:
            kept.append(compare(name, options.starts))
        result["cases"] = sorted(kept, key=lambda case: [*CASES].index(case["case"]))
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
