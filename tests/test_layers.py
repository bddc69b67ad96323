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


def imported(path: Path):
    """Dotted names of what a file imports from rigidgrad."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [f"{alias.name}.__init__" if alias.name == "rigidgrad" else alias.name for alias in node.names]
        yield from (name for name in names if name.split(".")[0] == "rigidgrad")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_go_down(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no line in the architecture"
    for name in {dotted.split(".")[1] for dotted in imported(path)}:
        assert name == own or LEVEL[name] > LEVEL[own], f"{own} must not import {name}"


# folders of one line that do not know each other either
APART = [("algorithms/textbook", "algorithms/fast")]


@pytest.mark.parametrize(("one", "other"), [*APART, *((b, a) for a, b in APART)])
def test_folders_that_do_not_know_each_other(one, other):
    files = sorted((ROOT / one).glob("*.py"))
    assert len(files) > 1
    forbidden = "rigidgrad." + other.replace("/", ".")
    for path in files:
        found = [name for name in imported(path) if f"{name}.".startswith(f"{forbidden}.")]
        assert not found, f"{path.relative_to(ROOT)} must not import {', '.join(found)}"


def test_importing_prints_nothing_and_loads_no_heavy_part():
    import subprocess
    import sys

    code = "import sys, rigidgrad; print(sorted({'numba', 'jax', 'torch', 'mujoco', 'viser', 'pinocchio'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
    assert result.stderr == ""
