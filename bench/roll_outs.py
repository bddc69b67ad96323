"""A roll-out of the arm over its 63 steps, in two forms: its Program run along the knots, as
solvers do it, and a kernel of one knot that calls this Program. With a step size in each lane (a
single solve, whose lanes share the trajectory and the gains) and with a problem in each lane;
minima of turns.

.venv/bin/python bench/roll_outs.py
"""

from __future__ import annotations

import argparse
import json
import math
import time

import numpy as np
from control_cases import Arm

import rigidgrad
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.runtime.arrays import aligned_zeros
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job, Knots, host_lanes


def in_a_kernel(program: Program) -> Kernel:
    k = Kernel()
    inputs = {name: k.input(f"from {name}", *shape) for name, shape in program.inputs.items()}
    outputs = {name: k.output(name, *shape) for name, shape in program.outputs.items()}
    views = ({name: a.at(0, a.size) for name, a in of.items()} for of in (inputs, outputs))
    k.call(program, *views)
    return k


def numbers(problem: rigidgrad.Problem, program: Program) -> dict[str, np.ndarray]:
    """Inputs at each knot (steps, numbers): the guess, and gains that do a little."""
    rng, steps = np.random.default_rng(0), problem.steps
    known = {
        "alpha": np.ones((steps, 1)),
        "h": problem.h[:, None],
        "u_ref": problem.guess,
        "x_ref": np.tile(problem.start, (steps, 1)),
        "p": problem.p[:-1],
        "gains": 1e-3 * rng.normal(size=(steps, math.prod(program.inputs["gains"]))),
    }
    return {name: known.get(name) for name in program.inputs if name in known}


def bound(code: Code, names: dict[str, str], given: dict[str, np.ndarray], start: np.ndarray):
    """What runs, and where the trajectory is; `names` of inputs of the Program in the code."""
    lanes, steps = code.lanes, len(given["h"])
    shared = code.job.knots.shared

    def spread(rows: np.ndarray) -> np.ndarray:
        found = aligned_zeros((1, len(rows), rows.shape[1], lanes))
        found[:] = rows[None, :, :, None]
        return found

    inputs = {
        names[name]: rows[None] if name in shared else spread(np.ascontiguousarray(rows))
        for name, rows in given.items()
    }
    carried = {}
    for name, first in (("x", start), ("cost", np.zeros(2))):
        carried[name] = aligned_zeros((1, steps + 1, len(first), lanes))
        carried[name][0, 0] = first[:, None]
        inputs[names[name]] = carried[name][:, :-1]
    outputs = {name: array[:, 1:] for name, array in carried.items()}
    outputs["u"] = aligned_zeros((1, steps, math.prod(code.outputs["u"]), lanes))
    return code.bind(inputs, outputs).run, carried["x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    problem, lanes = Arm().problem(), host_lanes("float64")
    found = {}
    for label, problems in (("a step size in each lane", 1), ("a problem in each lane", lanes)):
        code = problem.programs.roll_out(problems=problems)
        job = code.job
        program = job.source()
        own = Job(
            "roll_out in a kernel",
            job.owner,
            f"{job.name} {job.identity}",
            lambda program=program: in_a_kernel(program),
            knots=Knots(),
        )
        given = numbers(problem, program)
        plain = {name: name for name in program.inputs}
        runs = {
            "a Program": bound(code, plain, given, problem.start),
            "a kernel": bound(
                Code.of(own), {name: f"from {name}" for name in plain}, given, problem.start
            ),
        }
        best = dict.fromkeys(runs, math.inf)
        for _ in range(rounds):
            for name, (run, _) in runs.items():
                before = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - before)
        (_, x), (_, y) = runs.values()
        assert np.isfinite(x).all() and np.array_equal(x, y), "the forms differ"
        found[label] = {name: round(1e6 * best[name], 1) for name in best}
    print(json.dumps({"microseconds": found, "lanes": lanes}))


if __name__ == "__main__":
    main()
