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
    {"play", "reproduce", "ros2"},
    {"reports", "tasks"},
    {"worlds"},
    {"cluster", "codegen", "fpga", "gaits", "link", "planning", "plants", "swarm", "viewer"},
    {"controller_code"},
    {"solver_code"},
    {"control", "jax", "torch"},
    {"robot", "trees"},
    {"ik"},
    {"collisions", "interop", "recorded"},
    {"runtime"},
    {"targets"},
    {"fixed", "kernels"},
    {"program"},
    {"algorithms", "geometry"},
    {"schema"},
    {"model"},
    {"rotations"},
    {"spatial"},
    {"math", "files"},
    {"errors", "scalars", "charts"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# the same within a part: its modules and folders, top first
INSIDE = {
    "control": [
        {"solve"},
        {"batch", "device", "inverse", "mpc"},
        {"direct", "pddp"},
        {"device_run", "shooting", "trust"},
        {"augmented", "riccati"},
        {"problem"},
        {"hidden"},
        {"memory"},
        {"constrained"},
        {"penalty", "trajectories"},
        {"solution"},
        {"free_programs", "ground_forces"},
        {"guess", "phases", "programs", "surroundings"},
        {"knot_terms"},
        {"expansion"},
        {"costs", "curvature", "limits", "unaware"},
        {"durations", "held", "integrators", "parameters", "terms"},
        {"remembering", "timed"},
        {"extended"},
        {
            "__init__",
            "linear",
            "numeric_input",
            "options",
            "pickling",
            "remaining",
            "search",
            "system",
        },
    ],
    "targets": [
        {"c_solver"},
        {"llvm_riccati"},
        {"llvm_free_base"},
        {"llvm_controls"},
        {"llvm_sweep"},
        {"llvm_kernel", "llvm_matrix"},
        {"gpu", "llvm"},
        {"llvm_lines"},
        {"c", "c_math", "llvm_direct", "llvm_stream", "verilog"},
        {"c_kernel", "llvm_stream_loops"},
        {"c_program"},
        {"cstyle_kernel"},
        {"llvm_rows", "names"},
        {
            *("__init__", "c_example", "c_types", "llvm_math", "llvm_tiles", "llvm_to_c", "loops"),
            "riccati_layout",
        },
    ],
}
# who may import a part; of others, anyone above
# packs of `trees` are vectors of the target
ONLY = {
    "targets": {
        *(
            "targets",
            "runtime",
            "codegen",
            "controller_code",
            "solver_code",
            "ros2",
            "fpga",
            "swarm",
            "commands",
            "trees",
        ),
        "collisions",
    }
}
# imports within functions that go up: a solver hands over to one that knows it
UP = {
    ("control", "pddp", "device"),
    ("control", "pddp", "inverse"),
    ("control", "direct", "device"),
}


def is_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def statements(node: ast.AST):
    """All of a module but what type checkers alone read."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types(child):
            yield child
            yield from statements(child)


def imported(path: Path, types: bool = True):
    """Modules of ours that a module imports, as tuples of names: ("control", "mpc"), or
    ("control",).
    """
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if types else statements(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "rigidgrad"
        ):
            own = tuple(node.module.split(".")[1:])
            yield from (own[:2] if len(own) > 1 else (*own, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                tuple((a.name.split(".") + ["__init__"])[1:3])
                for a in node.names
                if a.name.split(".")[0] == "rigidgrad"
            )


def modules(part: str = ""):
    found = sorted((ROOT / part).rglob("*.py"))
    return pytest.mark.parametrize(
        "path", found, ids=[str(path.relative_to(ROOT)) for path in found]
    )


@modules()
def test_imports_only_go_down(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no line in the architecture"
    for name, *_ in imported(path):
        assert name == own or LEVEL[name] > LEVEL[own], f"{own} must not import {name}"
        assert own in ONLY.get(name, LEVEL), f"{own} must not import {name}"


@pytest.mark.parametrize("part", INSIDE)
def test_every_module_of_a_part_has_its_line(part):
    listed = [name for names in INSIDE[part] for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) == {
        path.stem
        for path in (ROOT / part).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }


@pytest.mark.parametrize("part", INSIDE)
def test_imports_within_a_part_only_go_down(part):
    level = {name: level for level, names in enumerate(INSIDE[part]) for name in names}
    up = set()
    for path in (ROOT / part).rglob("*.py"):
        own = path.relative_to(ROOT / part).parts[0].removesuffix(".py")
        below = {
            names[1] for names in imported(path, types=False) if names[0] == part and len(names) > 1
        } - {own}
        up |= {(part, own, name) for name in below if level.get(name, len(level)) <= level[own]}
    assert up == {edge for edge in UP if edge[0] == part}


# folders of one line that do not know each other either
APART = [("algorithms/textbook", "algorithms/fast")]


@pytest.mark.parametrize(("one", "other"), [*APART, *((b, a) for a, b in APART)])
def test_folders_that_do_not_know_each_other(one, other):
    files = sorted((ROOT / one).glob("*.py"))
    assert len(files) > 1
    forbidden = tuple(other.split("/"))
    for path in files:
        assert forbidden not in set(imported(path)), (
            f"{path.relative_to(ROOT)} must not import {other}"
        )


def test_importing_prints_nothing_and_loads_no_heavy_part():
    import subprocess
    import sys

    code = (
        "import sys, rigidgrad; print(sorted({'numba', 'jax', 'torch', 'mujoco', 'viser',"
        " 'pinocchio', 'llvmlite'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    assert result.stderr == ""
