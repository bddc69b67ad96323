"""A controller as source code: what C needs beside the solver that it plans by."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rigidgrad.control.mpc import guard, integral, iterations, live, posture
from rigidgrad.control.mpc.controller import MPC
from rigidgrad.control.mpc.planner import COLD
from rigidgrad.control.mpc.target import aim_of
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.system import CustomSystem, RobotSystem
from rigidgrad.errors import InputError
from rigidgrad.kernels.language import Kernel
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
    problem, options = mpc.problem, check_controller(mpc)
    mpc.write_target(0.0)
    system = problem.system
    parts = parts_of(problem, options, name or f"{system.name}_mpc")
    programs = Recorded(problem.programs)
    narrow = dict(parts.narrow) | {"step": programs.step.job.source()}
    robot = isinstance(system, RobotSystem)
    if isinstance(system, RobotSystem):
        narrow["inverse_dynamics"] = programs.inverse_dynamics.job.source()
        for what, wanted in {
            "crba": mpc.posture.driven,
            "gravity_torque": not system.inputs,
        }.items():
            found = source_of(system.robot.model, what) if wanted else None
            if isinstance(found, Kernel):
                raise InputError("controllers in C are for robots of up to some 50 joints")
            if found is not None:
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
    }
    if isinstance(system, RobotSystem):
        macros |= {
            "nq": str(system.nq),
            "nv": str(system.nv),
            "driven": str(int(mpc.posture.driven)),
            "actuated": str(int(system.actuation is not None)),
        }
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
        tables |= {"actuation": B} if mpc.observer else {}
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
    if problem.phases or (isinstance(system, RobotSystem) and system.held is not None):
        raise InputError("controllers in C know no phases and contacts")
    if isinstance(system, CustomSystem) and system.discrete:
        raise InputError("controllers in C are for dynamics in continuous time")
    if callable(mpc.target) or hasattr(mpc.target, "steer"):
        raise InputError(
            "controllers in C take no function as a target: write its rows to the numbers of the"
            " horizon, before each plan"
        )
    return options


__all__ = ["controller_files"]
