"""Task files: what they say is what is solved and controlled."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.tasks import Task, keys, load_task
from rigidgrad.tasks.paths import path_of
from rigidgrad.tasks.template import template

TASK = """
robot = "double_pendulum"
start = [0.3, -0.2]
steps = 40
duration = 0.8

[[costs]]
type = "reach"
frame = "lower_rod"
target = [0.4, 0.0, -0.9165]
weight = 10.0
final = 1000.0

[[costs]]
type = "state"
goal = "start"
weight = { position = 0.0, velocity = 0.01 }
final = { position = 0.0, velocity = 1.0 }

[[costs]]
type = "effort"
weight = 1e-4
reference = "gravity"

[limits]
torque = 60.0
velocity = [8.0, 8.0]

[mpc]
period = 0.01
duration = 0.5
"""


def task(**changes) -> Task:
    return Task(tomllib.loads(TASK) | changes)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text(TASK)
    return "task.toml"


# --- what is read ---------------------------------------------------------------------------------


def test_a_task_is_the_problem_that_it_describes():
    robot = rg.load("double_pendulum")
    start = np.array([0.3, -0.2, 0.0, 0.0])
    expected = rg.Problem(
        robot, start=start, steps=40, dt=0.02,
        costs=[
            rg.costs.Reach("lower_rod", (0.4, 0.0, -0.9165), weight=10.0, final=1000.0),
            rg.costs.State(start, weight=[0, 0, 0.01, 0.01], final=[0, 0, 1, 1]),
            rg.costs.Effort(1e-4, reference="gravity"),
        ],
        limits=rg.Limits(torque=60.0, velocity=8.0),
    )  # fmt: skip
    said = task()
    assert said.problem.dt == expected.dt and said.problem.start == pytest.approx(start)
    assert said.problem.p == pytest.approx(expected.p)
    assert said.problem.bounds[1] == pytest.approx(expected.bounds[1])
    assert rg.solve(said.problem, said.solver).cost == rg.solve(expected).cost


def test_dt_or_duration():
    assert task(duration=1.0).dt == 0.025
    without = {k: v for k, v in tomllib.loads(TASK).items() if k != "duration"}
    assert Task(without | {"dt": 0.01}).dt == 0.01


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("neutral", [0, 0, 0, 0]),
        ([0.1, 0.2], [0.1, 0.2, 0, 0]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ({"elbow": 0.5}, [0, 0.5, 0, 0]),
    ],
)
def test_states_in_all_notations(said, state):
    assert task(start=said, limits={}).start == pytest.approx(state)


def test_a_floating_base_starts_with_a_quaternion():
    costs = [{"type": "state", "goal": "start", "weight": 1.0}, {"type": "effort", "weight": 1.0}]
    said = Task(
        {
            "robot": "hyq",
            "floating_base": True,
            "steps": 2,
            "dt": 0.01,
            "costs": costs,
            "start": {"lf_hfe_joint": 0.5},
        }
    )
    assert said.start[6] == 1.0 and len(said.start) == 37 and said.start[8] == 0.5


def test_limits_in_all_notations():
    assert task(limits={"torque": {"lower": -1.0, "upper": [2.0, 3.0]}}).problem.bounds[1][
        0
    ] == pytest.approx([2, 3])
    own = Task(
        tomllib.loads(TASK)
        | {
            "robot": "iiwa14",
            "start": "neutral",
            "costs": [{"type": "effort", "weight": 1.0}],
            "limits": {"torque": True},
        }
    )
    assert own.problem.bounds[1][0] == pytest.approx(own.robot.limits.effort)
    around = task(
        limits={
            "obstacles": [{"center": [2, 2, 2], "radius": 0.1}],
            "spheres": [{"frame": "lower_rod", "radius": 0.1}],
        }
    )
    assert len(around.problem.constraints) == 1


def test_actuation_and_solvers():
    said = task(
        robot="cartpole", start="neutral", actuation=[[1.0], [0.0]], limits={"torque": 20.0}, mpc={},
        costs=[{"type": "state", "goal": [0.0, 3.14159], "weight": 1.0}, {"type": "effort", "weight": 0.01}],
        solver={"type": "direct", "linear_solver": "pcg", "iterations": 7},
    )  # fmt: skip
    assert said.problem.system.nu == 1 and said.solver == rg.Direct(
        linear_solver="pcg", iterations=7
    )
    assert task(solver={"blocks": 4, "alphas": [1.0, 0.5]}).solver == rg.PDDP(
        blocks=4, alphas=(1.0, 0.5)
    )


@pytest.mark.parametrize(("kind", "solver"), [("pddp", rg.PDDP), ("direct", rg.Direct)])
def test_every_option_of_a_solver_is_a_key(kind, solver):
    assert {f.name for f in dataclasses.fields(solver)} == set(keys.SOLVERS[kind])


def test_a_robot_is_found_beside_the_file(tmp_path, monkeypatch):
    from importlib import resources

    (tmp_path / "deep").mkdir()
    urdf = resources.files("rigidgrad.model") / "robots" / "double_pendulum.urdf"
    (tmp_path / "deep" / "mine.urdf").write_text(urdf.read_text())
    (tmp_path / "deep" / "task.toml").write_text(TASK.replace("double_pendulum", "mine.urdf"))
    monkeypatch.chdir(tmp_path)
    said = load_task("deep/task.toml")
    assert said.robot.name == "double_pendulum" and said.output("solution") is None
    assert Task({**tomllib.loads(TASK), "output": {"log": "a.npz"}}, folder=Path("deep")).output(
        "log"
    ) == Path("deep/a.npz")


# --- targets, plants ------------------------------------------------------------------------------


def test_paths_are_what_they_are_called():
    t = np.linspace(0, 8, 81)
    eight = path_of(
        {
            "type": "figure_eight",
            "center": [1, 2, 3],
            "size": [0.3, 0.2],
            "plane": "yz",
            "period": 8.0,
        }
    )(t)
    assert (
        eight[:, 0] == pytest.approx(1.0)
        and eight[20] == pytest.approx([1, 2.3, 3])
        and eight[10, 2] == pytest.approx(3.2)
    )
    circle = path_of(
        {"type": "circle", "center": [0, 0, 1], "radius": 0.5, "plane": "xy", "period": 8.0}
    )(t)
    assert np.linalg.norm(circle - [0, 0, 1], axis=1) == pytest.approx(0.5) and circle[
        0
    ] == pytest.approx(circle[-1])
    way = path_of(
        {"type": "waypoints", "points": [[0, 0, 0], [1, 0, 0], [1, 2, 0]], "times": [0.0, 1.0, 2.0]}
    )
    assert way(np.array([-1.0, 0.5, 1.5, 9.0])) == pytest.approx(
        np.array([[0, 0, 0], [0.5, 0, 0], [1, 1, 0], [1, 2, 0]])
    )
    assert path_of({"type": "point", "at": [1, 2, 3]})(0.0) == pytest.approx([1, 2, 3])


def test_a_plant_has_the_troubles_that_it_was_given():
    said = task(mpc={"plant": {
        "dt": 0.002, "start": [0.1, 0.1], "mass_error": 0.5, "integrator": "rk3", "seed": 4, "friction": {"viscous": 0.1},
        "payload": {"mass": 1.0, "frame": "lower_rod"}, "faults": {"drop": 0.5, "latency": 0.01},
        "pushes": [{"force": [1, 0, 0], "duration": 0.1, "frame": "lower_rod"}],
    }})  # fmt: skip
    plant = said.plant()
    assert (plant.dt, plant.integrator, plant.seed, plant.payload.mass) == (0.002, "rk3", 4, 1.0)
    assert plant.faults == rg.plants.Faults(drop=0.5, latency=0.01) and plant.x == pytest.approx(
        [0.1, 0.1, 0, 0]
    )


def test_mujoco_may_be_the_plant():
    pytest.importorskip("mujoco", reason="needs MuJoCo (pip install 'rigidgrad[plants]')")
    plant = task(mpc={"plant": {"type": "mujoco", "integrator": "rk4"}}).plant()
    assert type(plant) is rg.plants.MuJoCo and plant.integrator == "rk4"


def test_helps_of_a_controller():
    mpc = task(mpc={"observer": 12.0, "integral": True}).controller()
    assert mpc.observer.bandwidth == 12.0 and mpc.integral.rate == 4.0
    assert task(mpc={}).controller().integral is None


def test_the_distance_to_the_target_is_that_of_the_point():
    said = task(
        mpc={"target": {"type": "circle", "center": [0, 0, -1], "radius": 0.1, "period": 2.0}}
    )
    t, x = np.array([0.0, 0.5]), np.zeros((2, 4))
    tip = said.robot.forward_kinematics(np.zeros(2))["lower_rod"][:3, 3]
    assert said.tracked.distance(t, x) == pytest.approx(
        np.linalg.norm(tip - said.target(t), axis=1)
    )
    assert task().tracked.distance(t[:1], x[:1]) == pytest.approx(
        np.linalg.norm(tip - [0.4, 0.0, -0.9165])
    )


# --- the commands ---------------------------------------------------------------------------------


def test_solve_writes_a_solution_that_can_be_viewed_and_a_report(file, tmp_path, capsys):
    assert main(["solve", file, "--report", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == "converged" and said["files"] == ["solution.npz", "report.html"]
    expected = rg.solve(load_task(file).problem)
    with np.load("solution.npz") as found:
        assert found["x"] == pytest.approx(expected.x, abs=1e-9) and found["gains"].shape == (
            40,
            2,
            4,
        )
        assert (
            found["t"][-1] == pytest.approx(0.8)
            and str(found["status"]) == "converged"
            and float(found["cost"]) == said["cost"]
        )
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert main(["view", "double_pendulum", "solution.npz", "--html", "motion.html"]) == 0


def test_solve_prints_a_short_table(file, capsys):
    assert main(["solve", file, "--out", "other.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "task",
        "driven",
        "status",
        "cost",
        "compiled",
        "solved",
        "left of Reach 'lower_rod'",
        "left of State",
        "limits",
        "wrote",
        "next",
    ]
    assert lines[-2].endswith("other.npz")


def test_a_solve_that_does_not_converge_exits_with_one(file, capsys):
    Path(file).write_text(TASK + "\n[solver]\niterations = 1\n")
    assert main(["solve", file]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "iteration limit was reached" in said
    assert (
        "raise iterations in [solver], try second_order = true in [solver]" in said
        and "rg." not in said
    )


def test_mpc_runs_and_writes_a_log_that_can_be_viewed(file, capsys):
    assert main(["mpc", file, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"] == 500 and said["solves"] == 50 and said["counts"]["held"] == 0
    from rigidgrad.control.mpc.log import Log

    log = Log.load("log.npz")
    assert log.steps == 500 and said["distance"]["last"] == pytest.approx(
        float(load_task(file).tracked.distance(log.t, log.x)[-1])
    )
    assert main(["view", "double_pendulum", "log.npz", "--html", "motion.html"]) == 0


def test_mpc_fails_where_the_robot_stays_too_far_from_the_target(file, capsys):
    Path(file).write_text(TASK + "within = 1e-9\n")
    assert main(["mpc", file, "--duration", "0.1", "--report", "page.html"]) == 1
    assert "NOT within" in capsys.readouterr().out and "NOT within" in Path("page.html").read_text()


# --- init -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rg.bundled())
def test_init_writes_a_task_that_is_right_for_every_bundled_robot(name, tmp_path):
    robot = rg.load(name, floating_base=name == "hyq")
    (tmp_path / "task.toml").write_text(template(robot, name))
    said = load_task(tmp_path / "task.toml")
    assert said.robot.name == name and said.tracked is not None
    inside = said.start[: robot.nq]
    assert np.all(inside >= robot.limits.lower) and np.all(inside <= robot.limits.upper)


def test_what_init_writes_converges_and_tracks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "double_pendulum"]) == 0
    assert "next    rigidgrad solve task.toml --report" in capsys.readouterr().out
    assert (
        main(["solve", "task.toml", "--quiet"]) == 0 and main(["mpc", "task.toml", "--quiet"]) == 0
    )
    assert capsys.readouterr().out == "" and {"solution.npz", "log.npz"} <= {
        p.name for p in tmp_path.iterdir()
    }


@pytest.mark.parametrize(
    ("robot", "driven"),
    [("cartpole", "1 control: slider; not driven: pole"), ("quadrotor", "4 controls: rotor_1,")],
)
def test_commands_say_what_is_driven(robot, driven, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", robot]) == 0
    assert (
        driven in capsys.readouterr().out
        and 'actuation = "joints"' in Path("task.toml").read_text()
    )
    assert main(["solve", "task.toml"]) == 0
    assert driven in capsys.readouterr().out
    main(["mpc", "task.toml", "--duration", "0.05", "--json"])
    assert json.loads(capsys.readouterr().out)["driven"].startswith(driven)


def test_a_free_base_is_neither_held_nor_left_to_fall_in_silence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mass = (
        '<link name="mount"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"'
        ' ixz="0" iyz="0"/></inertial>'
    )
    Path("arm.urdf").write_text(
        rg.load("double_pendulum").to_urdf().replace('<link name="mount">', mass)
    )
    assert main(["init", "arm.urdf", "--floating-base"]) == 0
    said = capsys.readouterr().out
    assert "not driven: root_joint (6 freedoms)" in said and "nothing holds the free base" in said
    task = load_task("task.toml")
    assert task.system.nu == 2 and task.robot.model.gravity == (0.0, 0.0, 0.0)
    for value, controls in (
        ('"all"', 8),
        ('["elbow"]', 1),
        ("{ both = { shoulder = 1.0, elbow = [2.0] } }", 1),
    ):
        text = re.sub("(?m)^actuation = .*$", f"actuation = {value}", Path("task.toml").read_text())
        Path("other.toml").write_text(text)
        assert load_task("other.toml").system.nu == controls
    Path("other.toml").write_text(text.replace("elbow =", "elbo ="))
    with pytest.raises(rg.errors.UsageError, match=r"actuation.*'elbo'.*'elbow'"):
        load_task("other.toml")


def test_a_task_may_ask_for_a_guess(file):
    Path(file).write_text('guess = "reach"\n' + TASK)
    problem = load_task(file).problem
    (left,) = (
        aim.remaining(problem.system, problem.guess_states[-1]).position
        for aim in problem.aims()
        if "Reach" in aim.name
    )
    assert left < 1e-4  # the target is given in four digits
    Path(file).write_text('guess = "line"\n' + TASK)
    with pytest.raises(rg.errors.UsageError, match="needs a cost State"):
        load_task(file).problem  # noqa: B018


def test_init_names_the_robot_relative_to_the_task(tmp_path, monkeypatch):
    from importlib import resources

    monkeypatch.chdir(tmp_path)
    Path("robots").mkdir()
    Path("tasks").mkdir()
    Path("robots/mine.urdf").write_text(
        (resources.files("rigidgrad.model") / "robots" / "pendulum.urdf").read_text()
    )
    assert main(["init", "robots/mine.urdf", "--out", "tasks/mine.toml", "--quiet"]) == 0
    assert 'robot = "../robots/mine.urdf"' in Path("tasks/mine.toml").read_text()
    assert load_task("tasks/mine.toml").robot.name == "pendulum"


# --- the page about it ----------------------------------------------------------------------------


def test_every_key_is_documented():
    page = (Path(__file__).parents[1] / "docs" / "command_line.md").read_text()
    for group in (
        keys.TASK,
        keys.LIMITS,
        keys.MPC,
        keys.OUTPUT,
        keys.FAULTS,
        keys.PUSH,
        keys.FRICTION,
        *keys.COSTS.values(),
        *keys.SOLVERS.values(),
        *keys.PLANTS.values(),
        *keys.PATHS.values(),
    ):
        for name in group:
            assert re.search(rf"[`\[.]{name}[`\] ]", page), name
    for kind in (*keys.COSTS, *keys.SOLVERS, *keys.PLANTS, *keys.PATHS):
        assert re.search(rf"[`\"]{kind}[`\"]", page), kind


# --- files of others ------------------------------------------------------------------------------


def test_output_stays_in_the_folder_of_the_task_unless_it_is_allowed_out(
    tmp_path, monkeypatch, capsys
):
    home, folder = tmp_path / "home", tmp_path / "home" / "task"
    folder.mkdir(parents=True)
    (folder / "link.npz").symlink_to(home / "linked.npz")
    (folder / "out").symlink_to(home)
    monkeypatch.chdir(tmp_path)
    for value in ("../x.npz", str(home / "x.npz"), "link.npz", "out/x.npz", "a/../../x.npz"):
        for key in ("solution", "log"):
            (folder / "t.toml").write_text(TASK + f"[output]\n{key} = '{value}'\n")
            assert main(["solve" if key == "solution" else "mpc", "home/task/t.toml"]) == 2
            said = capsys.readouterr().err
            assert (
                f"output.{key}: " in said
                and "is outside of the task's folder" in said
                and "--allow-outside" in said
            )
    assert not [p for p in tmp_path.rglob("*.npz") if p.exists()]
    (folder / "t.toml").write_text(TASK + "[output]\nsolution = '../x.npz'\n")
    assert (
        main(["solve", "home/task/t.toml", "--quiet", "--allow-outside"]) == 0
        and (home / "x.npz").exists()
    )
    (folder / "t.toml").write_text(
        TASK + "[output]\nsolution = 'x.npz'\nreport = 'sub/../r.html'\n"
    )
    (folder / "sub").mkdir()
    assert (
        main(["solve", "home/task/t.toml", "--quiet"]) == 0
        and (folder / "x.npz").exists()
        and (folder / "r.html").exists()
    )


@pytest.mark.parametrize("said", ['report = ".bashrc"', 'solution = "x.py"', 'log = "task.toml"'])
def test_output_is_of_its_kind(said):
    with pytest.raises(rg.errors.UsageError, match="that ends in"):
        task(output=tomllib.loads(said))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 5000, "nested too deeply"),
        ("x = " + "{a=" * 5000, "nested too deeply"),
        ("x = " + "9" * 5000, "out of range"),
        ("a" + ".a" * 50_000 + " = 1", "a key of more than 32 parts"),
        ("[" + '"=" . ' * 50_000 + "a]", "a key of more than 32 parts"),
        ("x = { b = 1, " + "'a'." * 50_000 + "a = 1 }", "a key of more than 32 parts"),
        ("#" * (1 << 21), "larger than 1 MB"),
        ("k" * 100_000 + " = 1", "no key of a task is called '" + "k" * 200 + "…'"),
        (TASK.replace("steps = 40", "steps = 1000000000000"), "steps: this is 1000000000000; it must be a whole number of at least 1 and at most 100,000"),
        (TASK.replace("steps = 40", "steps = 0x" + "f" * 5000), "steps: this is a number of 20000 bits"),
        (TASK.replace("weight = 10.0", "weight = 1" + "0" * 400), "weight: this is a number of"),
        (TASK.replace("torque = 60.0", "torque = [" + "[" * 50 + "]" * 50 + "]"), "limits.torque: this is"),
        (TASK.replace("[limits]", "[solver]\ntolerance = -1e-6\n[limits]"), "solver.tolerance: this is -1e-06; it must be a number at least 0"),
        (TASK.replace("[limits]", "[solver]\niterations = 10.0\n[limits]"), "solver.iterations: this is 10.0; it must be a whole number"),
        (TASK.replace("[limits]", "[solver]\nregularization = [-1, 1]\n[limits]"), "solver.regularization: this is [-1, 1]; it must be an array of 2 numbers, each at least 0"),
        (TASK.replace("[limits]", "[solver]\nalphas = 1000000000\n[limits]"), "solver.alphas: this is 1000000000"),
        (TASK.replace("period = 0.01", "period = 0.01\nplant = { dt = 1e-300 }"), "mpc: this is a run of more than"),
    ],
)  # fmt: skip
def test_what_would_take_for_ever_or_break_the_reader_is_refused(text, said, file, capsys):
    Path(file).write_text(text)
    assert main(["solve", file]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_task(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("t.toml")
    assert main(["solve", "t.toml"]) == 2 and "not a regular file" in capsys.readouterr().err


def test_gravity_is_that_of_the_model(tmp_path, capsys, monkeypatch):
    """On the moon a hanging rod is held by a sixth of the torque."""
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rod.xml").write_text(
        """<mujoco><option gravity="0 0 -1.62"/><worldbody><body name="rod"><joint name="hinge" axis="0 1 0"/>
        <inertial pos="0.5 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body></worldbody></mujoco>"""
    )
    said = (
        "robot = 'rod.xml'\nsteps = 10\ndt = 0.01\ncosts = [{ type = 'state', goal = 'start',"
        " weight = 1e4 }, { type = 'effort', weight = 1e-6 }]\n"
    )
    held = {}
    for name, more in {
        "of the model": "",
        "by name": "gravity = 'model'\n",
        "given": "gravity = [0, 0, -9.81]\n",
    }.items():
        (tmp_path / "t.toml").write_text(more + said)
        assert main(["solve", "t.toml", "--quiet"]) == 0
        held[name] = np.load(tmp_path / "solution.npz")["u"][0]
    assert held == {
        "of the model": pytest.approx(-1.62, rel=1e-3),
        "by name": pytest.approx(-1.62, rel=1e-3),
        "given": pytest.approx(-9.81, rel=1e-3),
    }


def test_locked_joints_do_not_move():
    said = task(lock={"elbow": 0.5}, start=[0.3], limits={"torque": 60.0}, mpc={})
    assert said.robot.joints == ("shoulder",) and said.problem.start == pytest.approx([0.3, 0.0])
    expected = rg.load("double_pendulum").reduced(lock={"elbow": 0.5})
    assert said.robot.forward_kinematics([0.3])["lower_rod"] == pytest.approx(
        expected.forward_kinematics([0.3])["lower_rod"]
    )
    with pytest.raises(
        rg.errors.UsageError, match=r"lock: no moving joint is called 'elbw'\. Did you mean 'elbow'"
    ):
        task(lock={"elbw": 0.5})


def test_a_name_cannot_write_into_the_task_that_init_makes():
    name = 'tip"\n[output]\nreport = "x.html"\n#\\\x85'
    link = {"mass": 1.0, "com": (0, 0, 0.3), "inertia": (0.1, 0.1, 0.1)}
    robot = (
        rg.Builder("r")
        .link("a")
        .link(name, **link)
        .joint("j\n[output]\n#", "revolute", "a", name)
        .build()
    )
    data = tomllib.loads(template(robot, 'r"\n.urdf'))
    assert data["robot"] == 'r"\n.urdf' and data["costs"][0]["frame"] == name
    assert data["output"] == {"solution": "solution.npz", "log": "log.npz"}
