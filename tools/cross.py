"""Kernels for other processors than this one: compiled by our own code generator, linked with a
small harness in C, run under QEMU, and compared with this machine's results bit for bit.

    python tools/cross.py    # every target, all bundled robots, three on a floating base as well
    python tools/cross.py neon --robots iiwa14 --functions rnea,aba --states 20
    python tools/cross.py --symbols        # what object code asks of other systems

Needs qemu-user, and for ARM gcc-aarch64-linux-gnu with libc6-dev-arm64-cross (Debian's names).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import rigidgrad as rg
from rigidgrad.algorithms import catalog
from rigidgrad.errors import RigidgradError
from rigidgrad.runtime import emit, native
from rigidgrad.runtime.job import OPTIMISATION, Job, function_job
from rigidgrad.runtime.lanes import LaneKernel
from rigidgrad.targets import llvm, llvm_math

ROBOTS = (*rg.bundled(), "hyq-floating", "atlas-floating", "iiwa14-floating")
FUNCTIONS = (
    "rnea",
    "aba",
    "crba",
    "minv",
    "rnea_derivatives",
    "aba_derivatives",
    "fused_gradient",
    "bias",
    "gravity_torque",
    "coriolis_matrix",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum",
    "energy",
    "torque_regressor",
    "integrate",
    "difference",
)
HARNESS = Path(__file__).with_name("cross_harness.c")


@dataclass(frozen=True)
class Target:
    """A processor: how LLVM names it, who links for it, who runs it, and Debian's packages."""

    name: str
    host: native.Host
    compiler: tuple[str, ...] = ()
    runner: tuple[str, ...] = ()
    packages: str = ""
    words: tuple[str, ...] = ()  # of instructions that must not, or must, be there

    def missing(self) -> str:
        """What of its programs is not here; empty if all are."""
        programs = [p[0] for p in (self.compiler, self.runner) if p]
        return ", ".join(p for p in programs if shutil.which(p) is None)


X86 = "x86_64-unknown-linux-gnu"
TARGETS = {
    target.name: target
    for target in (
        Target(
            "neon",
            native.Host("aarch64-unknown-linux-gnu", "generic", "+neon", 128),
            ("aarch64-linux-gnu-gcc", "-static"),
            ("qemu-aarch64", "-cpu", "cortex-a57"),
            "qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        ),
        Target(
            "sse2",
            native.Host(X86, "x86-64", "+sse2", 128),
            ("gcc", "-static"),
            ("qemu-x86_64", "-cpu", "Opteron_G1"),
            "qemu-user gcc",
        ),
        Target(
            "avx-without-fma",
            native.Host(X86, "sandybridge", "+avx,-fma,-fma4", 256),
            ("gcc", "-static"),
            ("qemu-x86_64", "-cpu", "SandyBridge"),
            "qemu-user gcc",
        ),
        Target(
            "avx2",
            native.Host(X86, "haswell", "+avx2,+fma", 256),
            ("gcc", "-static"),
            ("qemu-x86_64", "-cpu", "Haswell"),
            "qemu-user gcc",
        ),
    )
}
# systems whose code cannot be run here: what it asks of them is looked at
ELSEWHERE = {
    "windows": native.Host("x86_64-pc-windows-msvc-elf", "haswell", "+avx2,+fma", 256),
    "windows, SSE2": native.Host("x86_64-pc-windows-msvc-elf", "x86-64", "+sse2", 128),
    "macos": native.Host("arm64-apple-macosx14.0.0", "apple-m1", "", 128),
    "macos, Intel": native.Host("x86_64-apple-macosx13.0.0", "haswell", "+avx2,+fma", 256),
}


@contextlib.contextmanager
def compiling_for(host: native.Host) -> Iterator[None]:
    """All that is rendered meanwhile is for that processor."""
    _initialise()
    with mock.patch.object(native, "host", return_value=host):
        yield


@cache
def _initialise() -> None:
    import llvmlite.binding as binding

    native.host()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def object_code(host: native.Host, ir: str, **options: Any) -> bytes:
    """Object code for a processor, from IR that was rendered for it."""
    import llvmlite.binding as binding

    _initialise()
    with native._lock(), mock.patch.object(emit, "_check_symbols", return_value=None):
        return emit.emit(
            binding,
            emit.Request(
                ir,
                host.triple,
                host.cpu,
                host.features,
                options.get("opt", OPTIMISATION),
                options.get("misched", False),
                options.get("form", "object"),
                join=not llvm.in_blocks(ir),
            ),
        )


def kernel(host: native.Host, job: Job, form: str = "object") -> bytes:
    """A function's kernel for a processor, as `runtime.code` makes it for this one."""
    with compiling_for(host):
        return object_code(host, job.ir(), form=form)


def inputs_of(robot: rg.Robot, job: Job, states: int) -> list[np.ndarray]:
    """Random states; matrices and tangents as the functions expect them."""
    made = LaneKernel(job)
    drawn = robot.random(batch=(states,), seed=0)
    other = robot.random(batch=(states,), seed=1)
    known = {
        "q": drawn.q,
        "v": drawn.v,
        "a": other.v,
        "tau": drawn.tau,
        "q0": drawn.q,
        "q1": other.q,
        "dv": 0.1 * other.v,
    }
    rng = np.random.default_rng(2)
    arrays = []
    for name, shape in made.inputs.items():
        if name == "minv":
            array = robot.minv(drawn.q)
        else:
            array = known.get(name)
            if array is None or array.shape[1:] != shape:
                array = rng.uniform(-1, 1, (states, *shape))
        arrays.append(np.ascontiguousarray(array, job.dtype))
    return arrays


def here(job: Job, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of this machine's kernel."""
    made = LaneKernel(job)
    count = len(arrays[0])
    results = [np.zeros((count, *shape), job.dtype) for shape in made.outputs.values()]
    both = [*arrays, *results]
    made.run(both, [int(np.prod(a.shape[1:])) for a in both], count, None)
    return results


def there(target: Target, job: Job, arrays: Sequence[np.ndarray], folder: Path) -> list[np.ndarray]:
    """Results of the target's kernel, under QEMU."""
    made = LaneKernel(job)  # shapes do not depend on the processor
    count = len(arrays[0])
    shapes = [(count, *shape) for shape in made.outputs.values()]
    (folder / "kernel.o").write_bytes(kernel(target.host, job))
    program = link(target, [folder / "kernel.o"], folder / "program")
    word = arrays[0].itemsize
    numbers = [len(arrays), len(shapes), count, int(job.dtype == "float32")]
    numbers += [a.size // count for a in arrays] + [int(np.prod(s)) // count for s in shapes]
    data = struct.pack(f"{len(numbers)}q", *numbers) + b"".join(a.tobytes() for a in arrays)
    done = subprocess.run(
        [*target.runner, str(program)], input=data, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{target.name}, {job.name}: ended with {done.returncode}: {done.stderr.decode()}"
        )
    results, at = [], 0
    for shape in shapes:
        size = word * int(np.prod(shape))
        results.append(np.frombuffer(done.stdout[at : at + size], job.dtype).reshape(shape))
        at += size
    assert at == len(done.stdout)
    return results


def link(target: Target, objects: Sequence[Path], out: Path) -> Path:
    """A program of object code and the harness."""
    harness = out.with_name("harness.o")
    if not harness.exists():
        compile_only = [*target.compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-c"]
        subprocess.run([*compile_only, str(HARNESS), "-o", str(harness)], check=True)
    command = [*target.compiler, *map(str, objects), str(harness), "-lm", "-o", str(out)]
    subprocess.run(command, check=True)
    return out


def symbols(code: bytes) -> set[str]:
    """Names that object code asks for and does not have, as `nm` sees them."""
    program = next((p for p in ("llvm-nm", "llvm-nm-14", "nm") if shutil.which(p)), None)
    if program is None:
        raise SystemExit("nm is not installed: apt-get install binutils")
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(code)
        file.flush()
        said = subprocess.run(
            [program, "-u", file.name], capture_output=True, text=True, check=True
        ).stdout
    return {line.split()[-1] for line in said.splitlines() if line.strip()}


def load(name: str) -> rg.Robot:
    plain = name.removesuffix("-floating")
    return rg.load(plain, floating_base=plain != name)


def job_of(robot: rg.Robot, function: str, dtype: str = "float64") -> Job:
    return function_job(robot.model, function, dtype=dtype)


def compare(target: Target, robot: rg.Robot, function: str, states: int, dtype: str) -> dict:
    """Whether results are the same, every bit; if not, by how much they differ."""
    job = job_of(robot, function, dtype)
    arrays = inputs_of(robot, job, states)
    with tempfile.TemporaryDirectory() as folder:
        far = there(target, job, arrays, Path(folder))
    near = here(job, arrays)
    kind = np.uint64 if dtype == "float64" else np.uint32
    differing = sum(
        int((a.view(kind) != b.view(kind)).sum()) for a, b in zip(near, far, strict=True)
    )
    scale = max(float(np.abs(a).max(initial=0.0)) for a in near) or 1.0
    worst = max(float(np.abs(a - b).max(initial=0.0)) for a, b in zip(near, far, strict=True))
    return {
        "function": function,
        "dtype": dtype,
        "numbers": sum(a.size for a in near),
        "differing": differing,
        "relative_error": worst / scale,
        "finite": all(bool(np.isfinite(a).all()) for a in near),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--robots", default=",".join(ROBOTS))
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--symbols", action="store_true", help="what other systems are asked for")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.symbols:
        for name, found in asked(
            arguments.robots.split(","), arguments.functions.split(",")
        ).items():
            print(f"{name}: {', '.join(sorted(found)) or 'nothing'}")
        return 0
    if wrong := set(arguments.targets) - set(TARGETS):
        parser.error(f"no target is called {', '.join(wrong)}; there are {', '.join(TARGETS)}")
    rows, broken = [], 0
    for name in arguments.targets or TARGETS:
        target = TARGETS[name]
        if gone := target.missing():
            print(f"{name}: NOT RUN, {gone} not installed: apt-get install {target.packages}")
            broken += 1
            continue
        for robot_name in arguments.robots.split(","):
            robot = load(robot_name)
            for function in arguments.functions.split(","):
                if function not in catalog.FUNCTIONS:
                    parser.error(f"no function is called {function}")
                for dtype in arguments.dtypes.split(","):
                    try:
                        found = compare(target, robot, function, arguments.states, dtype)
                    except RigidgradError as error:
                        print(f"{name} {robot_name} {function}: {error}")
                        broken += 1
                        continue
                    rows.append({"target": name, "robot": robot_name, **found})
                    broken += found["differing"] > 0
                    if found["differing"]:
                        print(name, robot_name, found, flush=True)
            mine = [r for r in rows if r["target"] == name and r["robot"] == robot_name]
            same = sum(r["differing"] == 0 for r in mine)
            total = sum(r["numbers"] for r in mine)
            print(
                f"{name}, {robot_name}: {same} of {len(mine)} kernels the same bits,"
                f" {total} numbers, {arguments.states} states",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return int(broken > 0)


def asked(robots: Sequence[str], functions: Sequence[str]) -> dict[str, set[str]]:
    """Names that kernels and the code of threads ask of each system."""
    from rigidgrad.link import code
    from rigidgrad.runtime import crew_code, entry

    found: dict[str, set[str]] = {}
    for name, host in ELSEWHERE.items():
        names: set[str] = set()
        for robot_name in robots:
            robot = load(robot_name)
            for function in functions:
                names |= symbols(kernel(host, job_of(robot, function)))
        for ir in (crew_code.render(host.triple), code.render(host.triple), entry._ir(24)):
            names |= symbols(object_code(host, ir, opt=2))
        found[name] = names
    return found


assert llvm_math.C_FUNCTIONS == ("sin", "cos", "atan2")  # in the harness, too

if __name__ == "__main__":
    sys.exit(main())
