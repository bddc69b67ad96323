"""Which edits of this package's sources compile everybody's kernels again, and which do not."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rigidgrad.control.costs import Term
from rigidgrad.control.system import System
from rigidgrad.runtime import cache, sources

OWN = sources.read()
PARTS = sources.compiling_parts(OWN)


def edited(path: str, old: str, new: str) -> sources.Sources:
    text = OWN[path].decode()
    assert text.count(old) == 1
    return OWN | {path: text.replace(old, new).encode()}


# --- which parts compile --------------------------------------------------------------------------


def imports_by_syntax(text: bytes) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = (node.module or "").split(".")
            if module[0] == "rigidgrad":
                found |= {module[1]} if len(module) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                (alias.name + ".*").split(".")[1]
                for alias in node.names
                if alias.name.split(".")[0] == "rigidgrad"
            }
    return found


def test_imports_are_those_of_pythons_own_parser():
    for path, text in OWN.items():
        found = sources._imports(text)
        missing = imports_by_syntax(text) - found
        assert not missing or "*" in found, f"{path} imports {missing}"


def test_parts_that_compile_are_known_from_their_imports():
    assert {
        "algorithms",
        "control",
        "model",
        "plants",
        "program",
        "runtime",
        "scalars",
        "spatial",
        "targets",
        "trees",
    } <= PARTS
    assert not PARTS & {
        "__init__",
        "cli",
        "commands",
        "cluster",
        "play",
        "reports",
        "reproduce",
        "tasks",
        "viewer",
    }
    for name in PARTS:
        for path, text in OWN.items():
            if sources.part(path) == name:
                assert imports_by_syntax(text) <= PARTS, f"{path} imports what is not looked at"


def test_an_import_that_is_not_plain_counts_as_one_of_everything():
    for line in (
        b"import rigidgrad",
        b"import rigidgrad as rg",
        b"from rigidgrad import (\n    viewer,\n)",
        b"from . import other",
        b"from .other import x",
    ):
        assert "*" in sources._imports(b"x = 1\n" + line + b"\n")
    assert sources._imports(b"def f():\n    from rigidgrad import viewer as v, play\n") == {
        "viewer",
        "play",
    }
    changed = OWN | {"model/pose.py": OWN["model/pose.py"] + b"\nimport rigidgrad as rg\n"}
    assert sources.compiling_parts(changed) == {sources.part(path) for path in OWN}


def test_terms_and_systems_are_of_parts_that_compile():
    for base in (Term, System):
        pending = [base]
        while pending:
            cls = pending.pop()
            pending += cls.__subclasses__()
            if cls.__module__.startswith("rigidgrad."):
                assert cls.__module__.split(".")[1] in PARTS


def test_docstrings_are_not_read_and_modules_are_not_imported_by_text_where_code_is_made():
    for path, text in OWN.items():
        # source code that it writes is not cached
        if sources.part(path) not in PARTS - {"codegen"}:
            continue
        for node in ast.walk(ast.parse(text)):
            assert not (isinstance(node, ast.Attribute) and node.attr == "__doc__"), path
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "import_module"
            ):
                assert isinstance(node.args[0], ast.Constant) and not str(
                    node.args[0].value
                ).startswith("rigidgrad"), path


TRACED = """
import sys
import numpy as np
import rigidgrad as rg
from rigidgrad.runtime import code

files = set()
def note(frame, event, argument):
    files.add(frame.f_code.co_filename)
def traced(function):
    def run(*arguments):
        sys.setprofile(note)
        try:
            return function(*arguments)
        finally:
            sys.setprofile(None)
    return run
code._compile = traced(code._compile)

robot = rg.load("cartpole")
robot.compile("aba_derivatives")(*np.zeros((3, 8, robot.nv)))
tip = robot.frames[-1]
limits = rg.Limits(torque=50.0, velocity=9.0, obstacles=[rg.Obstacle((0, 5, 5), 0.1)], spheres=[rg.LinkSphere(tip, 0.01)])
costs = [rg.costs.State(np.zeros(4), weight=1.0, final=10.0), rg.costs.Effort(0.1), rg.costs.Reach(tip, (0, 0, 1))]
problem = rg.Problem(robot, start=[0.1, 0.1, 0, 0], steps=10, dt=0.02, costs=costs, limits=limits)
rg.solve(problem, rg.PDDP(iterations=3))
rg.solve([problem] * 4, rg.PDDP(iterations=3))
plant = rg.plants.Simulator(robot, np.zeros(4))
plant.advance(np.zeros_like(plant.u))
print("\\n".join(sorted(files)))
"""


def test_all_that_runs_while_code_is_made_is_of_parts_that_compile():
    environment = os.environ | {"RIGIDGRAD_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    ran = {
        os.path.relpath(file, sources.PACKAGE)
        for file in done.stdout.splitlines()
        if file.startswith(str(sources.PACKAGE))
    }
    assert {
        "program/recorder.py",
        "control/programs.py",
        "plants/simulator.py",
        "targets/llvm.py",
        "targets/llvm_riccati.py",
    } <= ran
    assert {sources.part(path) for path in ran} <= PARTS


# --- which edits count ----------------------------------------------------------------------------

HARMLESS = {
    "docstring of a module": (
        "spatial.py",
        OWN["spatial.py"].decode().split('"""')[1],
        "Another text.",
    ),
    "comment": (
        "scalars.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n# a comment\n\n",
    ),
    "code of a part that compiles nothing": (
        "viewer/poses.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\nX = 1\n",
    ),
}
CODE = {
    "number": ("targets/llvm_rows.py", "_LINE = 64 ", "_LINE = 32 "),
    "statement": (
        "scalars.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\nX = 1\n",
    ),
    "number in loops over arrays": ("trees/plan.py", "TASK = 1024 ", "TASK = 512 "),
    "sign of a zero": (
        "errors.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\nX = -0.0\n",
    ),
}


@pytest.mark.parametrize(("path", "old", "new"), HARMLESS.values(), ids=HARMLESS)
def test_an_edit_that_cannot_change_code_is_none(path, old, new):
    assert sources.same_code(OWN, edited(path, old, new))


@pytest.mark.parametrize(("path", "old", "new"), CODE.values(), ids=CODE)
def test_an_edit_of_code_is_one(path, old, new):
    assert not sources.same_code(OWN, edited(path, old, new))


def test_any_statement_in_any_part_that_compiles_counts():
    first = {sources.part(path): path for path in reversed(OWN)}
    for name in PARTS:
        path = first[name]
        assert not sources.same_code(OWN, OWN | {path: OWN[path] + b"\nanother = 1\n"}), path


def test_every_docstring_of_functions_and_classes_may_be_edited():
    text = (
        b'"""m"""\nclass A:\n    """a"""\n    x = 1\n    def f(self):\n        """f"""\n       '
        b' return "f"\nasync def g():\n    """g"""\n'
    )
    for letter in (b"m", b"a", b"f", b"g"):
        assert sources._same_statements(text, text.replace(b'"""%s"""' % letter, b"'another'", 1))
    assert not sources._same_statements(text, text.replace(b'return "f"', b'return "g"'))
    assert not sources._same_statements(b"x = 1.0", b"x = 1")
    assert not sources._same_statements(b"x = 1", b"x = (")


def test_files_that_come_and_go_count_where_code_is_made():
    assert not sources.same_code(OWN, OWN | {"targets/new.py": b""})
    assert not sources.same_code(OWN | {"targets/new.py": b""}, OWN)
    assert sources.same_code(OWN, OWN | {"viewer/new.py": b""})


def test_what_is_packed_is_unpacked():
    assert sources.unpack(sources.pack(OWN)) == OWN
    assert sources.unpack(b"") == {}


# --- in a folder ----------------------------------------------------------------------------------

KERNEL = """
import json
import numpy as np
import rigidgrad as rg
from rigidgrad.runtime import cache, native
rg.load("pendulum").rnea(np.zeros(1), np.zeros(1), np.zeros(1))
print(json.dumps([rg.__file__, native.compiled_count(), cache.source_identity()]))
"""


class Package:
    """A copy of this one, and a cache of its own."""

    def __init__(self, where: Path):
        self.folder, self.cache = where / "rigidgrad", where / "cache"
        shutil.copytree(sources.PACKAGE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self) -> tuple[int, str]:
        """How much was compiled, and the identity."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder.parent),
            "RIGIDGRAD_CACHE": str(self.cache),
        }
        done = subprocess.run(
            [sys.executable, "-c", KERNEL],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        file, count, identity = json.loads(done.stdout)
        assert file.startswith(str(self.folder))
        return count, identity

    def append(self, path: str, text: str) -> None:
        with (self.folder / path).open("a") as file:
            file.write(text)


def test_an_edited_comment_compiles_nothing_and_edited_code_does(tmp_path):
    package = Package(tmp_path)
    compiled, first = package.run()
    assert compiled > 0
    assert package.run() == (0, first)
    package.append("algorithms/textbook/rnea.py", "\n# a comment\n")
    package.append("commands/info.py", "\nX = 1\n")
    assert package.run() == (0, first)
    assert package.run() == (0, first)
    package.append("algorithms/textbook/rnea.py", "\nX = 1\n")
    count, second = package.run()
    assert count == compiled and second != first
    assert package.run() == (0, second)


def test_a_file_with_the_same_size_and_time_but_other_code_is_noticed(tmp_path):
    package = Package(tmp_path)
    package.append("algorithms/textbook/rnea.py", "\nX = 1\n")
    _, first = package.run()
    path = package.folder / "algorithms" / "textbook" / "rnea.py"
    status = path.stat()
    path.write_text(path.read_text().replace("\nX = 1\n", "\nX = 2\n"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert package.run()[1] != first


@pytest.fixture
def identity(tmp_path, monkeypatch):
    """The identity in a folder of sources that were edited in memory."""

    def found(own: sources.Sources) -> str:
        monkeypatch.setattr(sources, "read", lambda: own)
        cache._identity.cache_clear()
        return cache._identity(tmp_path)

    yield found
    cache._identity.cache_clear()


OTHER = edited(*HARMLESS["comment"])
CHANGED = edited(*CODE["number"])


def test_versions_that_compile_the_same_share_an_identity(identity):
    first = identity(OWN)
    assert identity(OTHER) == first
    changed = identity(CHANGED)
    assert changed != first
    assert [identity(OWN), identity(OTHER), identity(CHANGED)] == [first, first, changed]


@pytest.mark.parametrize(
    "damage",
    [lambda x: x[:-1], lambda x: x.replace(b"import", b"IMPORT", 1), lambda x: b""],
    ids=["cut", "changed", "empty"],
)
def test_damaged_sources_are_not_believed(identity, tmp_path, damage):
    first = identity(OWN)
    path = tmp_path / "sources" / first
    path.write_bytes(damage(path.read_bytes()))
    assert identity(OTHER) != first


def test_few_versions_are_kept_and_clearing_removes_them(identity, tmp_path, monkeypatch):
    for n in range(12):
        identity(OWN | {"scalars.py": OWN["scalars.py"] + b"\nX = %d\n" % n})
        identity(OWN | {"scalars.py": OWN["scalars.py"] + b"\nX = %d  # the same\n" % n})
    assert len(list((tmp_path / "sources").iterdir())) <= 16
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path))
    cache.clear()
    assert list(tmp_path.iterdir()) == []


def test_without_sources_nothing_is_shared(identity):
    assert identity({}) != identity({})
