"""What a type checker tells a user about results."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rigidgrad

USER = """
import numpy as np
import rigidgrad as rg

robot = rg.load("iiwa14")
q = robot.neutral()
reveal_type(q)
forward = robot.aba_derivatives(q, q, q)
reveal_type(forward.dq)
reveal_type(forward.dtau)
reveal_type(robot.rnea_derivatives(q, q, q).da)
reveal_type(robot.fused_gradient(q, q, q, np.eye(7)).dv)
reveal_type(robot.energy(q, q).kinetic)
print(forward.dq.shape, forward.dq @ q)
dq, dv, dtau = forward
reveal_type(dv)
"""


PUBLIC = """
import numpy as np
import rigidgrad as rg

robot: rg.Robot = rg.load("iiwa14")
problem = rg.Problem(robot, np.zeros(14), steps=10, dt=0.01, costs=[rg.costs.Effort(1e-4)])
reveal_type(problem)
reveal_type(rg.solve(problem, rg.PDDP(blocks=2)))
reveal_type(rg.MPC(problem, rg.PDDP(), period=0.01))
reveal_type(rg.costs.Effort(1.0))
reveal_type(rg.generate)
"""


@pytest.fixture(scope="module")
def revealed(tmp_path_factory):
    """What mypy, as strict as it can be, says of the types in users' files."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("users")
    files = {"results": USER, "public": PUBLIC}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent", f"--cache-dir={folder}"]
    run = subprocess.run(
        [*command, *(str(folder / f"{name}.py") for name in files)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if "Revealed type" in line]
    return {name: [line for line in lines if f"{name}.py" in line] for name in files}


def test_results_are_arrays_to_a_type_checker(revealed):
    assert len(revealed["results"]) == 7
    assert all("numpy.ndarray[" in line for line in revealed["results"])


def test_public_names_have_types_to_a_type_checker(revealed):
    assert len(revealed["public"]) == 5
    assert not any('"Any"' in line for line in revealed["public"])


def test_what_tools_see_is_what_is_loaded_on_first_use():
    tree = ast.parse(Path(rigidgrad.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: (node.module, alias.name) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    parts = {name for name, (_, attribute) in rigidgrad._LATER.items() if attribute is None}
    assert set(seen) == set(rigidgrad._LATER)
    for name, (module, attribute) in rigidgrad._LATER.items():
        parent, _, last = module.rpartition(".")
        assert seen[name] == ((parent, last) if name in parts else (module, attribute))
        assert not name.startswith("_")


def test_every_public_name_is_completed_with_its_signature():
    jedi = pytest.importorskip("jedi")
    script = jedi.Script("import rigidgrad as rg\nrg.")
    found = {completion.name for completion in script.complete(2, 3)}
    assert set(rigidgrad.__all__) <= found
    for name in ("Problem", "solve", "PDDP", "MPC", "Limits", "load", "generate", "report"):
        text = f"import rigidgrad as rg\nrg.{name}("
        (signature,) = jedi.Script(text).get_signatures(2, len(name) + 4)[:1]
        assert signature.params, name
