"""CasADi: adam-robotics' functions of fixed-base robots as generated C."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from cases import Missing, Subject

from peers import build

ENVIRONMENT = build.FOLDER / "casadi"
DYNAMICS, GRADIENTS = ("rnea", "aba"), ("rnea_derivatives", "aba_derivatives")
# the C of a 30-dof gradient has 120,000 statements: only clang compiles it in minutes, and only
# with few optimisations
PIECES = {
    "iiwa14": [(DYNAMICS + GRADIENTS, "-O3", ("clang", "gcc"))],
    "hyq": [(DYNAMICS + GRADIENTS, "-O3", ("clang", "gcc"))],
    "atlas": [(DYNAMICS, "-O3", ("clang", "gcc")), (GRADIENTS, "-O1", ("clang",))],
}
ADVICE = f"""python -m venv {os.path.relpath(ENVIRONMENT)} && {os.path.relpath(ENVIRONMENT)}/bin/pip install 'adam-robotics[casadi]',
  or name an interpreter that has it in RIGIDGRAD_BENCH_CASADI"""


def interpreter() -> str:
    """A Python that has adam-robotics: it pins other versions than ours, so it may live in an
    environment of its own.
    """
    build.compilers("c")
    for python in (
        os.environ.get("RIGIDGRAD_BENCH_CASADI"),
        str(ENVIRONMENT / "bin" / "python"),
        sys.executable,
    ):
        if (
            python
            and Path(python).exists()
            and not subprocess.run(
                [python, "-c", "import casadi, adam.casadi"], capture_output=True
            ).returncode
        ):
            return python
    raise Missing(ADVICE)


def versions(python: str) -> dict[str, str]:
    packages = ("casadi", "adam-robotics")
    code = f"import importlib.metadata as m; print(*(m.version(p) for p in {packages!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def generated(subject: Subject, python: str, functions: tuple[str, ...]) -> Path:
    path = build.FOLDER / f"casadi_{subject.name}_{'_'.join(functions)}.c"
    generator = build.SOURCES / "casadi_generate.py"
    newest = max(source.stat().st_mtime for source in (generator, subject.urdf))
    if not path.exists() or path.stat().st_mtime < newest:
        command = [
            python,
            str(generator),
            str(subject.urdf),
            str(path),
            ",".join(functions),
            *subject.robot.joints,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def contenders(subject: Subject, python: str) -> list[build.CLoop]:
    found = []
    for functions, level, families in PIECES.get(subject.label, []):
        code = generated(subject, python, functions)
        flags = [
            level,
            "-march=native",
            "-ffp-contract=fast",
            f"-DNV={subject.robot.nv}",
            f'-DGENERATED="{code}"',
        ]
        flags += (
            ["-DDYNAMICS"] * (DYNAMICS[0] in functions)
            + ["-DGRADIENTS"] * (GRADIENTS[0] in functions)
            + ["-lm"]
        )
        for family, compiler in build.compilers("c").items():
            if family in families:
                path = build.shared_library(
                    code.stem + f"_{family}",
                    build.SOURCES / "casadi_harness.c",
                    compiler,
                    flags,
                    code.read_text(),
                )
                found.append(
                    build.CLoop(f"casadi {family}", ctypes.CDLL(str(path)), None, functions)
                )
    return found
