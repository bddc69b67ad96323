"""`rigidgrad doctor`: what works on this machine, and how to get the rest."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rigidgrad.commands.terminal import add_output, show, table

if TYPE_CHECKING:
    from rigidgrad.runtime import native

# module: the package that brings it, what it is for, how to get it
PACKAGES = {
    "viser": ("viser", "live pages: view, play", "pip install 'rigidgrad[view]'"),
    "mujoco": ("mujoco", "MuJoCo as a plant", "pip install 'rigidgrad[plants]'"),
    "jax": ("jax", "JAX", "pip install 'rigidgrad[jax]'"),
    "torch": ("torch", "PyTorch", "pip install 'rigidgrad[torch]'"),
    "distributed": ("distributed", "many machines", "pip install 'rigidgrad[cluster]'"),
    "scipy": ("scipy", "sparse matrices of trees", "pip install scipy"),
    "pinocchio": ("pin", "a peer: check, bench", "pip install pin"),
}
LABELS = {"cuda": "CUDA", "opencl": "OpenCL", "webgpu": "WebGPU"}  # of devices
TOOLS = {
    "C compiler": (
        ("cc", "gcc", "clang"),
        "to build generated C; rigidgrad itself needs none",
        "apt-get install gcc (Debian)",
    ),
    "nvcc": (
        ("nvcc",),
        "to build generated CUDA; robot.to('cuda') needs none",
        "NVIDIA's CUDA toolkit",
    ),
    "Chromium": (
        ("chromium", "chromium-browser", "google-chrome"),
        "tests of pages; any browser shows them",
        "apt-get install chromium (Debian)",
    ),
}


class Finding(NamedTuple):
    """One line: whether it works; if not, `note` says how to get it."""

    group: str
    name: str
    works: bool
    found: str
    note: str = ""


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "doctor",
        help="what works on this machine, and how to get the rest",
        description=(
            "Looks at the machine, compiles and runs a function, and looks for optional packages,"
            " devices and tools. The exit code is 1 if the core does not work."
        ),
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    found = [*machine(), *core(), *packages(), *devices(), *tools()]
    rows = [("", "", "", "found", "")]
    group = ""
    for f in found:
        rows.append(
            (f.group if f.group != group else "", "ok" if f.works else "-", f.name, f.found, f.note)
        )
        group = f.group
    broken = [f.name for f in found if f.group == "core" and not f.works]
    last = (
        f"broken: {', '.join(broken)}" if broken else "the core works; what is marked - is optional"
    )
    show(
        arguments,
        {"findings": [f._asdict() for f in found], "works": not broken},
        f"{table(rows[1:], head=False)}\n\n{last}",
    )
    return 1 if broken else 0


def machine() -> list[Finding]:
    from rigidgrad.runtime import native
    from rigidgrad.runtime.threads import thread_count

    host = native.host()
    lanes = (
        f"{host.vector_bits} bits: {host.vector_bits // 64} float64 or {host.vector_bits // 32}"
        " float32 at once"
    )
    return [
        Finding("machine", "processor", True, f"{host.cpu}, {platform.machine()}"),
        Finding("machine", "vectors", True, lanes),
        Finding(
            "machine",
            "multiply-adds",
            True,
            "instructions" if host.fused else "calls of the C library: right, but slow",
        ),
        _attempt("machine", "tested", lambda: _tested(host)),
        Finding(
            "machine",
            "threads",
            True,
            f"{thread_count()} of {os.cpu_count()} CPUs",
            "RIGIDGRAD_THREADS sets another number",
        ),
        Finding("machine", "system", True, f"{platform.system()} {platform.release()}"),
        Finding("machine", "Python", True, f"{platform.python_version()}, {sys.executable}"),
    ]


def _tested(host: native.Host) -> tuple[bool, str, str]:
    """What is known of this kind of system and interpreter; more runs in the hosted workflow."""
    from rigidgrad.runtime import entry

    linux = sys.platform == "linux"
    whole = linux and host.triple.startswith("x86_64")
    if whole:
        known = "Linux, x86-64: the whole suite"
    elif linux and host.is_arm:
        known = "Linux, ARM: kernels, under emulation"
    else:
        known = "this system is not tested before releases"
    note = "" if whole else "please report what does not work"
    if not entry.available():
        note = "not CPython on 64 bits: calls take the general way, some microseconds more"
    return linux, known, note


def core() -> list[Finding]:
    found = [
        Finding("core", name, True, metadata.version(name))
        for name in ("rigidgrad", "numpy", "llvmlite")
    ]
    return [
        *found,
        _attempt("core", "compiled code", _compiled),
        _attempt("core", "functions called", _library),
        _attempt("core", "cache", _cache),
    ]


def _attempt(group: str, name: str, attempt: Callable[[], tuple[bool, str, str]]) -> Finding:
    """Whatever goes wrong is the finding."""
    try:
        works, found, note = attempt()
    except Exception as error:
        works, found, note = False, "", f"{type(error).__name__}: {error}"
    return Finding(group, name, works, found, note)


def _compiled() -> tuple[bool, str, str]:
    """A function compiled again and compared with readable NumPy code."""
    import numpy as np

    from rigidgrad.robot import load

    states = [load("double_pendulum", engine=engine) for engine in ("lanes", "numpy")]
    q, v, tau = states[0].random((33,), seed=0)
    fast, slow = (robot.aba(q, v, tau) for robot in states)
    same = bool(np.allclose(fast, slow, rtol=1e-10))
    return (
        same,
        "runs, and agrees with NumPy" if same else "runs, and differs from NumPy",
        "" if same else "please report this machine",
    )


def _library() -> tuple[bool, str, str]:
    from rigidgrad.runtime import native

    missing = native.missing_symbols()
    if missing:
        return False, f"not in this process: {', '.join(missing)}", "please report this machine"
    return True, ", ".join(native.library()), ""


def _cache() -> tuple[bool, str, str]:
    from rigidgrad.runtime import cache

    folder = cache.folder()
    if folder is None:
        return True, "off", "each process compiles again; RIGIDGRAD_CACHE names a folder"
    entries = cache.contents()
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    if not os.access(at, os.W_OK):
        return (
            False,
            str(folder),
            "cannot be written: each process compiles again; RIGIDGRAD_CACHE names another folder",
        )
    return (
        True,
        f"{folder}, {len(entries)} entries, {sum(e.bytes for e in entries) / 1e6:.1f} MB",
        "",
    )


def packages() -> list[Finding]:
    found = []
    for module, (package, use, how) in PACKAGES.items():
        there = importlib.util.find_spec(module) is not None
        found.append(
            Finding(
                "packages",
                package,
                there,
                _version(package) if there else "",
                use if there else f"{use}: {how}",
            )
        )
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "installed"


def devices() -> list[Finding]:
    from rigidgrad.errors import RigidgradError
    from rigidgrad.runtime.gpu import DEVICES, open_device

    found = []
    for name in DEVICES:

        def attempt(name: str = name) -> tuple[bool, str, str]:
            try:
                return True, str(open_device(name).device.name), f"robot.to({name!r})"
            except RigidgradError as error:
                return False, "", str(error).removeprefix(f'robot.to("{name}") ')

        found.append(_attempt("devices", LABELS[name], attempt))
    return found


def tools() -> list[Finding]:
    from rigidgrad.targets.verilog import tools as circuit

    found = []
    for name, (programs, use, how) in TOOLS.items():
        path = next((p for program in programs if (p := shutil.which(program))), None)
        found.append(
            Finding(
                "tools", name, path is not None, _first_line(path), use if path else f"{use}: {how}"
            )
        )
    for name, use in (
        ("verilator", "simulates circuits: fpga"),
        ("iverilog", "simulates circuits with unknown bits: fpga"),
        ("yosys", "synthesises circuits: fpga"),
    ):
        command = circuit.find(name)
        found.append(
            Finding(
                "tools",
                name,
                command is not None,
                _first_line(*command or ()),
                use if command else f"{use}: {circuit.ADVICE[name]}",
            )
        )
    return found


def _first_line(*command: str | None) -> str:
    """What a program says of itself, or else where it is."""
    if not command or command[0] is None:
        return ""
    path = str(command[0])
    if Path(path).name.startswith(("chromium", "google-chrome")):  # starts slowly
        return path
    flag = "-V" if Path(path).name.endswith("yosys") else "--version"
    try:
        said = (
            subprocess.run([path, flag], capture_output=True, text=True, timeout=20, check=False)
            .stdout.strip()
            .splitlines()
        )
    except (OSError, subprocess.TimeoutExpired):
        return path
    lines = [
        line
        for line in said
        if any(c.isdigit() for c in line) and not line.startswith(("Copyright", "Built on"))
    ]
    return lines[0][:60].strip() if lines else path
