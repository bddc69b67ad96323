"""What a type checker tells a user about results."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import functools
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest

import rigidgrad

ROOT = Path(__file__).parents[1]
PARTS = ("costs", "ik", "gaits", "plants", "trees", "interop", "math")
ANY = {  # arguments that no type of ours describes
    "Builder.frame": "notations of a pose",
    "Builder.joint": "notations of limits and of mimicry",
    "Builder.link": "notations of an inertia",
    "MPC.run": "whatever has x, dt and advance(u)",
    "MPC.start": "whatever has x, dt and advance(u)",
    "Problem.cost_at": "a number, or a pair of them",
    "Problem.take_multipliers": "numbers",
    "Robot.at": "recorded numbers",
    "Robot.jacobian_of": "recorded numbers",
    "Solution.__init__": "what moves, which solutions do not import",
    "from_mujoco": "MuJoCo's",
    "from_pinocchio": "Pinocchio's",
    "generate": "of each of its overloads, not of all at once",
    "ik.Apart.__init__": "a name or a point",
    "interop.states": "Pinocchio's or MuJoCo's",
    "plan": "of each of its overloads, not of all at once",
    "plants.Ground.build": "MuJoCo's",
    "plants.Ground.forces": "MuJoCo's",
    "plants.Ground.height": "numbers of any kind",
    "plants.Ground.set_friction": "MuJoCo's",
    "report": "all that reports are about",
    "trees.PackedMatrix.__init__": "arrays of NumPy or JAX",
    "trees.Tree.from_model": "whatever rg.load takes, or a robot",
}

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
reveal_type(robot.aba([0.0] * 7, [0.0] * 7, robot.rnea(q, q, q)))
reveal_type(robot.integrate(q, q))
reveal_type(robot.crba(q))
reveal_type(robot.forward_kinematics(q)["iiwa_link_7"])
reveal_type(robot.jacobian(q, "iiwa_link_7"))
reveal_type(robot.inverse_kinematics([0.5, 0.2, 0.6]).q)
print(robot.in_collision(robot.random(batch=(4,), seed=0).q).sum())
"""

WRONG = """
import rigidgrad as rg

robot = rg.load(7)  # a source
robot.aba("q", None, print)  # arrays
robot.jacobian([0.0] * 7, frame=3)  # a name
robot.rnea([0.0], [0.0], [0.0], external=[1.0])  # by link
robot.crba([0.0], out=[0.0])  # an array
robot.energy([0.0], [0.0]).total  # an attribute
robot.centre_of_mass([0.0])  # a method
rg.Box(None)  # lengths
rg.Problem("iiwa14", [0.0])  # a robot
rg.solve(robot)  # a problem
rg.Phase(steps=[1])  # a number
rg.trees.rnea(robot, [0.0], [0.0], [0.0])  # a tree
rg.plants.Simulator(robot, None)  # a state
rg.MPC(3)  # a problem
"""


PUBLIC = """
import numpy as np
import rigidgrad as rg

robot: rg.Robot = rg.load("iiwa14")
limits = rg.Limits(torque=True, position=(-3.0, [3.0] * 7), scene=[rg.Sphere(0.1, center=[1, 0, 0])])
costs = [rg.costs.Effort(1e-4), rg.costs.Reach("tool0", np.zeros(3), weight=[1, 1, 1])]
problem = rg.Problem(robot, np.zeros(14), steps=10, dt=0.01, costs=costs, limits=limits)
reveal_type(problem)
reveal_type(rg.solve(problem, rg.PDDP(blocks=2)))
reveal_type(rg.solve(problem.batch(start=np.zeros((3, 14)))))
reveal_type(rg.solve(problem).gains)
reveal_type(rg.MPC(problem, rg.PDDP(), period=0.01, target=lambda t: np.zeros((len(t), 3))))
reveal_type(rg.MPC(problem).step([0.0] * 14, 0.0))
reveal_type(rg.costs.Effort(1.0))
reveal_type(rg.generate)
reveal_type(rg.plan(robot, [0.0] * 7, {"tool0": (0.5, 0.2, 0.6)}, [rg.Box((1, 1, 1))]).q)
reveal_type(rg.Box((1, 1, 1), pose=[0.0, 0.0, 1.0]).size)
reveal_type(rg.ik.Velocity(robot, rg.ik.Frame("tool0", [0, 0, 1])).step(np.zeros(7), 0.01).v)
tree = rg.trees.auto_tree(100)
reveal_type(rg.trees.rnea(tree, np.zeros(100), np.zeros(100), [0.0] * 100))
reveal_type(rg.trees.forward_dynamics(tree, np.zeros(100), np.zeros(100), np.zeros(100)).a)
feet = [rg.Contact("lf_foot", place=[0, 0, 0], gains=(1, 50))]
reveal_type(rg.gaits.Walker(robot, feet, np.zeros(19), half_lengths=(0.1, 0.05)))
reveal_type(rg.Phase(10, contacts=feet, duration=(0.1, 0.5), limits=limits))
reveal_type(rg.plants.Simulator(robot, np.zeros(14), friction=rg.plants.Friction([1.0] * 7)).x)
"""


@pytest.fixture(scope="module")
def revealed(tmp_path_factory):
    """What mypy, as strict as it can be, says of the types in users' files."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("users")
    files = {"results": USER, "public": PUBLIC, "wrong": WRONG}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--strict",
        "--follow-imports=silent",
        f"--cache-dir={folder}",
    ]
    run = subprocess.run(
        [*command, *(str(folder / f"{name}.py") for name in files)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    errors = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert all("wrong.py" in line for line in errors), run.stdout + run.stderr
    lines = [*errors, *(line for line in run.stdout.splitlines() if "Revealed type" in line)]
    return {name: [line for line in lines if f"{name}.py" in line] for name in files}


def test_results_are_arrays_to_a_type_checker(revealed):
    assert len(revealed["results"]) == 13
    assert all("numpy.ndarray[" in line for line in revealed["results"])


def test_a_type_checker_finds_what_no_robot_takes(revealed):
    found = {int(line.split(":")[1]) for line in revealed["wrong"]}
    wrong = {k for k, line in enumerate(WRONG.splitlines(), 1) if line.count("#")}
    assert found == wrong


def test_public_names_have_types_to_a_type_checker(revealed):
    assert len(revealed["public"]) == PUBLIC.count("reveal_type(")
    assert not any('"Any"' in line for line in revealed["public"])


def test_what_tools_see_is_what_is_loaded_on_first_use():
    tree = ast.parse(Path(rigidgrad.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    parts = {name for name, (_, attribute) in rigidgrad._LATER.items() if attribute is None}
    assert set(seen) == set(rigidgrad._LATER)
    for name, (module, attribute) in rigidgrad._LATER.items():
        parent, _, last = module.rpartition(".")
        assert seen[name] == ((parent, last) if name in parts else (module, attribute))
        assert not name.startswith("_")


def test_every_public_name_is_completed_with_its_signature():
    jedi = pytest.importorskip("jedi")
    for part in ("", *PARTS):
        text = f"import rigidgrad as rg\nrg.{part}{'.' if part else ''}"
        found = {c.name for c in jedi.Script(text).complete(2, len(text.splitlines()[1]))}
        assert {name.rpartition(".")[2] for name in public_names(part)} <= found, part
    calls = [f"rg.{name}()" for part in ("", *PARTS) for name, x in functions(part)]
    calls += [
        f"robot.{name}()"
        for name, x in methods(rigidgrad.Robot).items()
        if len(inspect.signature(x).parameters) > 1
    ]
    text = "\n".join(["import rigidgrad as rg", "robot = rg.load('iiwa14')", *calls])
    script = jedi.Script(text)
    for line, call in enumerate(calls, 3):
        shown = script.get_signatures(line, len(call) - 1)
        assert shown, call
        empty = {"rg.bundled()", "rg.costs.Activation()", "rg.costs.Term()"}
        assert shown[0].params or call in empty, call


def test_every_public_name_is_annotated_and_described():
    everything = {f"rg.{name}": x for part in ("", *PARTS) for name, x in functions(part)}
    for name, x in list(everything.items()):
        if inspect.isclass(x):
            everything |= {f"{name}.{k}": y for k, y in methods(x).items()}
    assert len(everything) > 700
    for name, x in everything.items():
        assert documentation(name), f"{name} has no docstring"
        signature = inspect.signature(x)
        bare = [
            p.name
            for p in signature.parameters.values()
            if p.annotation is p.empty and p.name not in ("self", "cls")
        ]
        assert not bare, f"{name}: {', '.join(bare)} without annotation"
        if not inspect.isclass(x):
            assert signature.return_annotation is not signature.empty, f"{name} returns what?"


def test_public_functions_say_which_arrays_they_take():
    """`Any` is for numbers that are recorded, for functions, and for what other programs make."""
    loose = {}
    for part in ("", *PARTS):
        for name, x in functions(part):
            own = {"__init__": x} if inspect.isclass(x) else {"": x}
            for k, y in {**own, **(methods(x) if inspect.isclass(x) else {})}.items():
                for p in inspect.signature(y).parameters.values():
                    plain = str(p.annotation).removesuffix(" | None") in ("Any", "typing.Any")
                    if plain and p.kind is not p.VAR_KEYWORD:
                        loose.setdefault(f"{name}.{k}" if k else name, []).append(p.name)
    assert {name: kinds for name, kinds in loose.items() if name not in ANY} == {}
    assert set(ANY) <= set(loose), "no longer loose"


def test_every_option_is_described():
    """In the docstring, beside its field, or as an annotation; or in that of what it names."""
    for part in ("", *PARTS):
        for name, x in functions(part):
            said = words(x)
            missing = [
                p.name
                for p in inspect.signature(x).parameters.values()
                if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
                and p.name not in said
                and "Annotated" not in str(p.annotation)
                and p.annotation not in ("Weight", "Final", "Activated")
            ]
            assert not missing, f"rg.{name}: {', '.join(missing)}"


def test_every_field_of_a_public_class_has_a_docstring_of_its_own():
    count = 0
    for part in ("", *PARTS):
        for name, x in functions(part):
            if inspect.isclass(x) and (dataclasses.is_dataclass(x) or hasattr(x, "_fields")):
                fields = x._fields if hasattr(x, "_fields") else [f.name for f in init_fields(x)]
                described = set().union(*(documented_fields(c) for c in x.__mro__))
                assert set(fields) <= described, f"rg.{name}: {set(fields) - described}"
                count += len(fields)
    assert count > 150


def test_examples_in_docstrings_run():
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    seen, ran = set(), set()
    for part in ("", *PARTS):
        for name, x in functions(part):
            if id(x) not in seen:
                seen.add(id(x))
                for test in finder.find(x, name, module=False, globs={"np": np, "rg": rigidgrad}):
                    if test.examples:
                        assert runner.run(test).failed == 0, test.name
                        ran.add(test.name)
    main = {"load", "Robot.rnea", "Robot.forward_kinematics", "Robot.jacobian", "Problem", "solve"}
    main |= {"MPC", "plan", "Limits", "ik.Velocity", "trees.rnea", "plants.Simulator"}
    assert main <= ran


def test_the_whole_package_is_checked_strictly():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] is True
    for own in settings["overrides"]:
        assert set(own) <= {"module", "ignore_missing_imports", "follow_imports"}
        assert not any(m.startswith("rigidgrad") for m in own["module"])


# --- what is public -------------------------------------------------------------------------------


def public_names(part=""):
    """Of `rigidgrad` itself, or of a part of it, with the part's name before theirs."""
    owner = getattr(rigidgrad, part) if part else rigidgrad
    names = getattr(owner, "__all__", None) or [
        name
        for name, x in vars(owner).items()
        if not name.startswith("_") and callable(x) and (x.__module__ or "").startswith("rigidgrad")
    ]
    found = {name: getattr(owner, name) for name in names}
    return {f"{part}.{name}" if part else name: x for name, x in found.items()}


def functions(part=""):
    return [
        (name, x)
        for name, x in public_names(part).items()
        if callable(x)
        and not inspect.ismodule(x)
        and not (inspect.isclass(x) and issubclass(x, Exception))
    ]


def methods(of):
    """What is public of a class; properties by the functions that give them."""
    found = {}
    for name, x in inspect.getmembers_static(of):
        owner = next(c for c in of.__mro__ if name in vars(c))
        if name.startswith("_") or not owner.__module__.startswith("rigidgrad"):
            continue
        if isinstance(x, property):
            x = x.fget
        elif isinstance(x, classmethod | staticmethod):
            x = x.__func__
        elif isinstance(x, functools.cached_property):
            x = x.func
        if inspect.isfunction(x):
            found[name] = x
    return found


def documentation(name):
    """The docstring of a name, as users see it: of methods also what they inherit."""
    *path, last = name.removeprefix("rg.").split(".")
    owner = rigidgrad
    for step in path:
        owner = getattr(owner, step)
    if not inspect.isclass(owner):
        return inspect.getdoc(getattr(owner, last))
    inherited = (inspect.getdoc(vars(c)[last]) for c in owner.__mro__ if last in vars(c))
    return next((text for text in inherited if text), None)


def words(x, deep=True):
    """What a class or a function, and what it refers to by name, says about its options."""
    texts = [c.__doc__ or "" for c in (x.__mro__ if inspect.isclass(x) else (x,))]
    if not inspect.isclass(x) and not inspect.isfunction(x):
        texts.append(type(x).__doc__ or "")
    said = set().union(*(re.findall(r"\w+", text) for text in texts))
    if inspect.isclass(x):
        said |= set().union(*(documented_fields(c) for c in x.__mro__))
    for name in re.findall(r"`([\w.]+)`", " ".join(texts)) if deep else ():
        short = name.removeprefix("rg.")
        owner = sys.modules.get(getattr(x, "__module__", None))
        other = public_everywhere().get(short) or getattr(owner, short, None)
        if callable(other) and other is not x:
            said |= words(other, deep=False)
    # vectors and numbers of mathematics have no other names
    return said | ({"x", "y", "a", "b", "n"} if x.__module__ == "rigidgrad.math" else set())


@functools.cache
def public_everywhere():
    return {name: x for part in ("", *PARTS) for name, x in public_names(part).items()}


def init_fields(of):
    return [f for f in dataclasses.fields(of) if not f.name.startswith("_")]


@functools.cache
def documented_fields(of):
    """Names of a class's own fields that a docstring follows, or whose annotation says it."""
    if not of.__module__.startswith("rigidgrad"):
        return frozenset()
    body = ast.parse(textwrap.dedent(inspect.getsource(of))).body[0].body
    return frozenset(
        one.target.id
        for one, after in itertools.pairwise(body)
        if isinstance(one, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    )
