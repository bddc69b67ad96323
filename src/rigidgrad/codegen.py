"""Source code for a robot's functions, in other languages, and for whole solvers in C, for use
without Python.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from rigidgrad import controller_code, solver_code
from rigidgrad.algorithms import catalog
from rigidgrad.control.direct import Direct
from rigidgrad.control.mpc.controller import MPC
from rigidgrad.control.pddp import PDDP
from rigidgrad.control.problem import Problem
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.kernels.language import Kernel
from rigidgrad.program.program import Program
from rigidgrad.robot import Robot
from rigidgrad.runtime import gpu
from rigidgrad.runtime.formulation import program_of, source_of
from rigidgrad.targets import c
from rigidgrad.targets.gpu import cuda_library, opencl_library, wgsl_library
from rigidgrad.targets.gpu.kernel import SHAPES
from rigidgrad.targets.verilog import design as verilog

TARGETS: dict[str, Callable[..., dict[str, str]]] = {
    "c": c.render,
    "cuda": cuda_library.render,
    "opencl": opencl_library.render,
    "verilog": verilog.render,
    "wgsl": wgsl_library.render,
}
OPTIONS = ("frame", "expressed_in", "external", "contacts", "masked", "damped", "actuation")

# One function: its name, or its name and options as Robot's method of that name takes them;
# `external` is then a sequence of links.
Request = str | tuple[str, Mapping[str, Any]]


@overload
def generate(
    robot: Robot,
    functions: Sequence[Request],
    target: str = "c",
    out: str | os.PathLike[str] = "build/",
    *,
    dtypes: Sequence[str] = c.DTYPES,
    name: str | None = None,
    **circuit: Any,
) -> list[Path]: ...
@overload
def generate(
    robot: Problem,
    functions: PDDP | Direct | None = None,
    target: str = "c",
    out: str | os.PathLike[str] = "build/",
    *,
    name: str | None = None,
) -> list[Path]: ...
@overload
def generate(
    robot: MPC,
    functions: None = None,
    target: str = "c",
    out: str | os.PathLike[str] = "build/",
    *,
    name: str | None = None,
) -> list[Path]: ...
def generate(
    robot: Any,
    functions: Any = None,
    target: str = "c",
    out: str | os.PathLike[str] = "build/",
    *,
    dtypes: Sequence[str] = c.DTYPES,
    name: str | None = None,
    **circuit: Any,
) -> list[Path]:
    """Writes source code for functions of a robot into the folder `out`; returns the files' paths.

    Instead of a robot and functions it takes a problem and its solver, `generate(problem,
    rg.PDDP(…), target="c", out=…)`, and writes all of it as C or for CUDA: docs/generate_solver.md.

    A function is named as Robot's method ("rnea", "aba_derivatives", …), or comes with options:
    `("jacobian", {"frame": "tool"})`, `("rnea", {"external": ["tool"]})`, `("contact_dynamics",
    {"contacts": feet, "masked": True})`; {function: options} is several such. `name`, by default
    the robot's, is the prefix of what is generated. Files that an earlier call wrote are replaced,
    each in one step; a file of yours that is in the way is an error, and nothing is written.

    target="cuda" and "opencl" take `shapes`, those of the kernels that are written: "thread",
    "block", or both. target="verilog" takes choices of the circuit instead of dtypes: multipliers,
    adders, format, trig, interval, floats, …, as `targets.verilog.design` lists them.
    """
    if isinstance(robot, Problem | MPC):
        return _solver(robot, functions, target, out, name, circuit)
    if not isinstance(robot, Robot):
        raise InputError(
            f"code is generated for a Robot, a Problem or an MPC, not for a {type(robot).__name__}"
        )
    if functions is None:
        raise InputError('which functions? For example rg.generate(robot, ["rnea"])')
    if target not in TARGETS:
        raise InputError(f"target is one of {', '.join(map(repr, TARGETS))}, not {target!r}")
    own = {"verilog": tuple(verilog.OPTIONS), "cuda": ("shapes",), "opencl": ("shapes",)}
    if unknown := sorted(circuit.keys() - own.get(target, ())):
        shared = () if target == "verilog" else ("dtypes", "name")
        raise unknown_name(
            f"option of target={target!r}", unknown[0], (*own.get(target, ()), *shared)
        )
    if isinstance(functions, Mapping):
        functions = list(functions.items())
    requests = [_request(r) for r in ([functions] if isinstance(functions, str) else functions)]
    programs: dict[str, Program | Kernel] = {}
    recorded = program_of if target in ("verilog", "wgsl") else source_of
    notes: dict[str, str] = {}
    for function, options in requests:
        key = "_".join(
            [function, *(str(options[k]) for k in ("frame", "expressed_in") if k in options)]
        )
        if key in programs:
            raise InputError(f"{key} is asked for twice")
        masked, damped, actuation = (
            options.pop("masked", False),
            options.pop("damped", None),
            options.pop("actuation", "joints"),
        )
        held = robot.constraint_set(
            function, options.get("contacts"), masked, damped, actuation=actuation
        )
        if held is not None:
            options["contacts"] = held
        programs[key] = recorded(robot.model, function, **options)
        method = getattr(Robot, function, None)
        notes[key] = (method.__doc__ or "").split("\n")[0] if method else ""
    dtypes = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    samples = {key: _sample(robot, program) for key, program in programs.items()}
    if target in ("cuda", "opencl"):
        shapes = circuit.get("shapes", SHAPES)
        shapes = (shapes,) if isinstance(shapes, str) else tuple(shapes)
        asked = dict(zip(programs, requests, strict=True))
        circuit = gpu.for_devices(robot.model, asked, shapes)
    files = TARGETS[target](
        programs, name or robot.name, dtypes=dtypes, notes=notes, samples=samples, **circuit
    )
    return write(Path(out), files)


def _solver(
    what: Problem | MPC, options: Any, target: str, out: Any, name: str | None, more: Any
) -> list[Path]:
    if target not in ("c", "cuda"):
        raise InputError(f'solvers are written as target="c" or "cuda", not {target!r}')
    if more:
        raise unknown_name("option of a generated solver", next(iter(more)), ("name",))
    if isinstance(what, MPC):
        if options is not None:
            raise InputError("a controller has its own solver: rg.generate(mpc, target=…)")
        if target != "c":
            raise InputError('controllers are written as target="c", not "cuda"')
        return write(Path(out), controller_code.controller_files(what, name))
    chosen = PDDP() if options is None else options
    written = solver_code.files if target == "c" else solver_code.cuda_files
    return write(Path(out), written(what, chosen, name))


def _request(request: Request) -> tuple[str, dict[str, Any]]:
    named = (request, {}) if isinstance(request, str) else request
    if not (isinstance(named, tuple | list) and len(named) == 2 and isinstance(named[1], Mapping)):
        raise InputError(
            f"a function is named, or a pair such as ('jacobian', {{'frame': 'tool'}}), not {named!r}"
        )
    function, options = named
    if function not in catalog.FUNCTIONS:
        raise unknown_name("function", function, catalog.FUNCTIONS)
    for option in options:
        if option not in OPTIONS:
            raise unknown_name("option of a generated function", option, OPTIONS)
    chosen = dict(options)
    if "external" in chosen:
        links = chosen["external"]
        chosen["external"] = (links,) if isinstance(links, str) else tuple(links)
    return function, chosen


def _sample(robot: Robot, program: Program | Kernel) -> dict[str, list[Any]]:
    """Inputs for an example: positions within the limits, the rest in ±1."""
    rng = np.random.default_rng(0)
    values: dict[str, list[Any]] = {}
    for seed, (key, shape) in enumerate(program.inputs.items()):
        if key in ("q", "q0", "q1"):
            values[key] = robot.random(seed=seed).q.tolist()
        elif key == "minv":
            values[key] = robot.minv(np.array(values["q"])).tolist()
        elif key == "active":
            values[key] = np.ones(shape).tolist()
        elif key == "restitution":
            values[key] = np.full(shape, 0.5).tolist()
        else:
            values[key] = rng.uniform(-1, 1, shape).tolist()
    return values


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Each file is complete under its name or not there at all."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: out names a folder")
    paths = {folder / name: text for name, text in files.items()}
    for path in paths:
        if path.exists() and not _is_ours(path):
            raise InputError(
                f"{path} exists and was not {c.MARK}: choose another folder, or move that file"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        temporary = folder / f".{path.name}.{secrets.token_hex(8)}"
        try:
            # made by this call alone, and with the mode that any new file of this user gets
            with open(temporary, "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return list(paths)


def _is_ours(path: Path) -> bool:
    return path.is_file() and c.MARK in path.read_bytes()[:400].decode("utf-8", "replace").lower()
