"""A controller as source code: what C needs beside the solver that it plans by."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rigidgrad.control.held import Held
from rigidgrad.control.mpc import guard, integral, iterations, live, posture
from rigidgrad.control.mpc.controller import MPC
from rigidgrad.control.mpc.live import LiveProblem
from rigidgrad.control.mpc.planner import COLD
from rigidgrad.control.mpc.target import aim_of
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.kernels.language import Kernel
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.runtime.formulation import source_of
from rigidgrad.solver_code import Recorded, parts_of, rendered
from rigidgrad.targets.names import identifier

# numbers of what controllers make of constraints, by C's names
_OF_LIMITS = {
    "plan_ratio": iterations.RATIO,
    "plan_width": iterations.WIDTH,
    "plan_fall": iterations.FALL,
    "plan_grow": iterations.GROW,
    "plan_most": iterations.MOST,
    "renewed": iterations.RENEWED,
    "same": iterations.SAME,
    "settled": iterations.SETTLED,
    "wait": iterations.WAIT,
    "fade": iterations.FADE,
    "ahead": guard.AHEAD,
    "ahead_part": guard.AHEAD_PART,
    "braking": guard.BRAKING,
    "recovery_rate": live.RECOVERY_RATE,
    "longest_recovery": live.LONGEST_RECOVERY,
    "margin_growth": live.MARGIN_GROWTH,
    "margin_decay": live.MARGIN_DECAY,
    "largest_margin": live.LARGEST_MARGIN,
    "margin_part": live.MARGIN_PART,
}


def controller_files(mpc: MPC, name: str | None) -> dict[str, str]:
    """The files of a controller, with its solver, by name."""
    options = check_controller(mpc)
    problem = _at_first(mpc)
    system = problem.system
    parts = parts_of(problem, options, name or f"{system.name}_mpc")
    programs = Recorded(problem.programs)
    narrow = dict(parts.narrow) | {"step": programs.step.job.source()}
    robot = isinstance(system, RobotSystem)
    if isinstance(system, RobotSystem):
        narrow["inverse_dynamics"] = programs.inverse_dynamics.job.source()
        touches = system.held is not None
        wanted: dict[str, dict[str, Any]] = {}
        if mpc.posture.driven or touches:
            wanted["crba"] = {}
        if touches or not system.inputs:
            wanted["gravity_torque"] = {}
        if system.held is not None:
            wanted["contact_jacobian"] = {"contacts": ConstraintSet(system.held.constraints)}
            narrow["contact_forces"] = programs.contact_forces.job.source()
        for what, asked in wanted.items():
            found = source_of(system.robot.model, what, **asked)
            if isinstance(found, Kernel):
                raise InputError("controllers in C are for robots of up to some 50 joints")
            narrow["hold" if what == "gravity_torque" else what] = found
    if not system.flat:
        narrow["plus"] = programs.displacement.job.source()
    macros = {
        "period": repr(mpc.period),
        "latency": repr(mpc.latency),
        "budget": "INFINITY" if mpc.budget is None else repr(float(mpc.budget)),
        "waiting": str(math.ceil(mpc.latency / mpc.period)),
        "iterations": str(options.iterations),
        "cold": str(COLD),
        "rate": repr(posture.RATE),
        "brisk": repr(min(posture.BRISK, posture.BRISK_PART / mpc.period)),
        "robot": str(int(robot)),
        "flat": str(int(system.flat)),
        "inputs": str(system.inputs),
        "observer": str(int(mpc.observer is not None)),
        "phases": str(int(len(problem.phases) > 1)),
        "contacts": "0",
    }
    if isinstance(system, RobotSystem):
        macros |= {
            "nq": str(system.nq),
            "nv": str(system.nv),
            "driven": str(int(mpc.posture.driven)),
            "actuated": str(int(system.actuation is not None)),
        }
    if isinstance(system, RobotSystem) and system.held is not None:
        macros |= _contacts(problem, system, system.held)
    macros["integral"] = str(int(mpc.integral is not None))
    if mpc.integral is not None and isinstance(system, RobotSystem):
        cost = mpc.integral.cost
        found = source_of(system.robot.model, "frame_placement", frame=cost.frame)
        narrow["placement"] = found
        macros |= {
            "integral_rate": repr(mpc.integral.rate),
            "target_place": str(aim_of(problem).part.start),
            "target_offset": "{" + ", ".join(map(repr, map(float, cost.offset))) + "}",
            "near_target": repr(integral.NEAR),
            "longest_gap": repr(integral.LONGEST),
            "most_shift": repr(integral.MOST),
        }
    if problem.constraints:
        macros |= {name: repr(value) for name, value in _OF_LIMITS.items()}
        macros["tolerances"] = "{" + ", ".join(map(repr, mpc.allowed.tolist())) + "}"
        macros["policy"] = str(("report", "slow", "hold").index(mpc.on_violation))
    if mpc.observer is not None:
        macros["bandwidth"] = repr(mpc.observer.bandwidth)
        macros["most_force"] = "{" + ", ".join(map(repr, mpc.observer.most.tolist())) + "}"
    tables = {}
    if isinstance(system, RobotSystem) and system.actuation is not None:
        B = np.array(system.actuation)
        tables = {"actuation_inverse": np.linalg.pinv(B)}
        tables |= {"actuation": B} if mpc.observer or system.held is not None else {}
    parts = replace(parts, narrow=narrow, controller=macros, tables=tables)
    solved = options.solve(problem.private_copy())
    parts = replace(parts, sample={"x": solved.x, "u": solved.u})
    return rendered(parts, identifier(parts.name), options, solved)


def check_controller(mpc: MPC) -> PDDP:
    """The controller's solver; raises where there is no code for it."""
    problem, options = mpc.problem, mpc.solver
    if not isinstance(options, PDDP):
        raise InputError(f"controllers in C plan by rg.PDDP(…), not {type(options).__name__}")
    system = problem.system
    held = system.held if isinstance(system, RobotSystem) else None
    if not problem.uniform or (held is not None and held.impacts):
        raise InputError(
            "controllers in C take phases whose steps last equally long, and no impacts: feet land"
            " by their contacts' gain on the velocity"
        )
    if isinstance(system, CustomSystem) and system.discrete:
        raise InputError("controllers in C are for dynamics in continuous time")
    if callable(mpc.target):
        raise InputError(
            "controllers in C take no function as a target: leave it out, and write its rows in a"
            " function of yours that steers (…_mpc_set_steering)"
        )
    return options


def _at_first(mpc: MPC) -> LiveProblem:
    """The controller's problem with the numbers of its motion from the first step on, its target,
    and where there are contacts states to stand in.
    """
    problem = mpc.problem.private_copy()
    assert isinstance(problem, LiveProblem)
    problem.begin_motion()
    if mpc.target is not None and not hasattr(mpc.target, "steer"):
        aim = aim_of(problem)
        times = problem.dt * np.arange(problem.steps + 1)
        problem.p[:, aim.part] = aim.rows(problem, mpc.target, times)
    if mpc.posture.touching is not None:
        problem.guess_states, problem.guess = problem.held_states()
    return problem


def _contacts(problem: Problem, system: RobotSystem, held: Held) -> dict[str, str]:
    contact_of_row = [str(k) for k, c in enumerate(held.constraints) for _ in range(c.rows)]
    return {
        "contacts": str(len(held.constraints)),
        "rows": str(len(contact_of_row)),
        "contact_of_row": "{" + ", ".join(contact_of_row) + "}",
        "input_place": str(problem.programs.inputs.start),
        "active_place": str(system.contact_numbers.start),
        "rank": "1e-13",  # of singular values, the part of the largest that is none
    }


__all__ = ["controller_files"]
