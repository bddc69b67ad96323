"""The folder tree is the architecture: a module imports only from lines below its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rigidgrad

ROOT = Path(rigidgrad.__file__).parent

# top first; modules on one line do not know each other
LAYERS = [
    {"__main__"},
    {"cli"},
    {"commands"},
    {"__init__"},
    {"play", "reproduce"},
    {"reports", "tasks"},
    {"cluster", "fpga", "plants", "viewer"},
    {"control", "codegen", "jax", "torch"},
    {"robot", "trees"},
    {"interop", "recorded"},
    {"runtime"},
    {"targets"},
    {"fixed", "kernels"},
    {"program"},
    {"algorithms"},
    {"schema"},
    {"model"},
    {"rotations"},
    {"spatial"},
    {"math", "files"},
    {"errors", "scalars", "charts"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rigidgrad":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((a.name.split(".") + ["__init__"])[1] for a in node.names if a.name.split(".")[0] == "rigidgrad")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_go_down(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no line in the architecture"
    for name in imports(path):
        assert name == own or LEVEL[name] > LEVEL[own], f"{own} must not import {name}"


def test_importing_prints_nothing_and_loads_no_heavy_part():
    import subprocess
    import sys

    code = "import sys, rigidgrad; print(sorted({'numba', 'jax', 'torch', 'mujoco', 'viser', 'pinocchio'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
    assert result.stderr == ""
