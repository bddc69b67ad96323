"""The first ten minutes: `init`, then what each command says comes next, down to a page that shows
the motion; for robots of all kinds.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_tool_frame import robots

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.control.guess import reaching
from rigidgrad.control.mpc import MPC
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.runtime import native
from rigidgrad.tasks import load_task
from rigidgrad.tasks.template import template

PANDA, UR5 = "panda_description/urdf/panda.urdf", "ur_description/urdf/ur5_robot.urdf"
GO2, TALOS = "go2_description/urdf/go2.urdf", "talos_data/robots/talos_full_v2.urdf"
FLOATING = "--floating-base"
# robot, options, and what must be said to be driven
JOURNEYS = {
    "pendulum": ("pendulum", [], "1 control: hinge"),
    "cartpole": ("cartpole", [], "1 control: slider; not driven: pole"),
    "quadrotor": ("quadrotor", [], "4 controls: rotor_1, rotor_2, rotor_3, rotor_4"),
    "panda": (PANDA, [], "7 controls: panda_joint1, panda_joint2,"),
    "ur5": (UR5, [], "6 controls: shoulder_pan_joint,"),
    "go2": (GO2, [FLOATING], "12 controls: FL_hip_joint,"),
    "talos": (TALOS, [FLOATING], "30 controls: leg_left_1_joint,"),
}
# seconds under control, where a whole figure eight would take too long for a test
SLOW = {"go2": 1.0, "talos": 0.5}


def path_of(robot: str) -> str:
    return str(robots() / robot) if "/" in robot else robot


def typed(line: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, str]:
    """What a command line prints: names and values."""
    words = shlex.split(line)
    assert words[0] == "rigidgrad"
    assert main(words[1:]) == code, capsys.readouterr()
    printed = capsys.readouterr()
    assert printed.err == ""
    return dict(
        re.split(r"  +", row, maxsplit=1) for row in printed.out.splitlines() if "  " in row
    )


@pytest.mark.parametrize("name", JOURNEYS)
def test_each_command_leads_to_the_next(name, tmp_path, monkeypatch, capsys):
    robot, options, driven = JOURNEYS[name]
    source = path_of(robot)
    monkeypatch.chdir(tmp_path)
    said = typed(shlex.join(["rigidgrad", "init", source, *options]), capsys)
    assert said["driven"].startswith(driven)
    file = Path(said["wrote"])
    if name in SLOW:
        file.write_text(
            re.sub(r"(?m)^duration = 6\.0", f"duration = {SLOW[name]}", file.read_text())
        )
    task = load_task(file)
    model, falls = task.robot.model, bool(options)

    # nothing hangs in the air unsaid: what is not driven is named, and no control acts on it
    assert (
        falls
        == ("not driven: root_joint (6 freedoms)" in said["driven"])
        == ("nothing holds the free base" in said.get("gravity", ""))
    )
    assert model.gravity == ((0.0, 0.0, 0.0) if falls else (0.0, 0.0, -9.81))
    if falls:
        assert not np.array(task.system.actuation)[:6].any()

    solved = typed(said["next"], capsys)
    assert solved["driven"] == said["driven"] and solved["status"].startswith(
        "converged: an optimum"
    )
    assert falls == ("nothing holds it" in solved.get("free base", ""))
    assert re.fullmatch(
        r"in .*s \((once: the cache keeps it|found in the cache)\)", solved["compiled"]
    )
    assert re.fullmatch(r"in .*s, \d+ iterations", solved["solved"])
    with np.load("solution.npz") as file_:
        x, u = file_["x"], file_["u"]
    assert u.shape[1] == task.system.nu
    away = task.costs[0].target
    tip = [
        task.robot.forward_kinematics(row[: task.robot.nq])[task.costs[0].frame]
        @ [*task.costs[0].offset, 1.0]
        for row in x[[0, -1]]
    ]
    first, last = (float(np.linalg.norm(point[:3] - away)) for point in tip)
    assert first > 0.1  # the target needs motion
    assert last < 1e-3 or f"ends {last:.3g} m" in solved["status"]
    assert np.abs(x[-1, task.robot.nq :]).max() < 0.1  # and it ends at rest
    # without gravity and forces from outside, the centre of mass stays where it is, but for errors
    # of the integrator
    if falls:
        start, end = (task.robot.center_of_mass(row[: task.robot.nq]) for row in x[[0, -1]])
        assert np.linalg.norm(end - start) < 0.03 * first

    look, control = solved["next"].split("; ")
    typed(look, capsys)
    assert (
        "Green: targets." in Path("motion.html").read_text()
        and "Green: targets." in Path("report.html").read_text()
    )

    controlled = typed(control, capsys)
    assert controlled["driven"] == said["driven"] and controlled["time"].startswith("simulated: ")
    assert falls == ("nothing holds it" in controlled.get("free base", ""))
    assert controlled["fallbacks"] == "none" and "; within 20 mm" in controlled["to the target"]
    Path("motion.html").unlink()
    typed(controlled["next"], capsys)
    assert (
        "Green: targets." in Path("motion.html").read_text()
        and "Green: targets." in Path("report.html").read_text()
    )


def test_a_base_that_falls_is_said_to_fall(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mass = (
        '<link name="mount"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"'
        ' ixz="0" iyz="0"/></inertial>'
    )
    Path("arm.urdf").write_text(
        rg.load("double_pendulum").to_urdf().replace('<link name="mount">', mass)
    )
    assert main(["init", "arm.urdf", "--floating-base", "--quiet"]) == 0
    text = Path("task.toml").read_text()
    assert "gravity = [0.0, 0.0, 0.0]" in text
    Path("task.toml").write_text(
        text.replace("gravity = [0.0, 0.0, 0.0]", "").replace("duration = 6.0", "duration = 0.1")
    )
    for command in ("solve", "mpc"):
        main([command, "task.toml"])
        assert "it falls under gravity" in capsys.readouterr().out
    Path("task.toml").write_text(text.replace('actuation = "joints"', 'actuation = "all"'))
    main(["solve", "task.toml"])
    said = capsys.readouterr().out
    assert (
        "forces that no motor of the robot exerts: on root_joint" in said
        and "free base" not in said
    )


def test_obstacles_are_in_every_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = typed("rigidgrad init double_pendulum", capsys)
    text = Path("task.toml").read_text()
    around = (
        "obstacles = [{ center = [0.5, 0.0, 0.5], radius = 0.1 }]\nspheres = [{ frame ="
        ' "lower_rod", radius = 0.05 }]\n'
    )
    Path("task.toml").write_text(
        re.sub(r"(\[limits\].*\n)", lambda m: m[0] + around, text).replace(
            "duration = 6.0", "duration = 0.5"
        )
    )
    look, control = typed(said["next"], capsys)["next"].split("; ")
    typed(look, capsys)
    assert main([*shlex.split(control)[1:], "--quiet"]) in (0, 1)
    typed("rigidgrad view task.toml log.npz --html log.html", capsys)
    for page in ("motion.html", "log.html", "report.html"):
        assert (
            "Red: obstacles." in Path(page).read_text()
            and "Blue: the spheres" in Path(page).read_text()
        ), page


# --- where it goes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("robot", "in_front", "above"),
    [
        (PANDA, True, True),
        (UR5, True, True),
        ("ur_description/urdf/ur10_robot.urdf", True, True),
        ("kinova_description/robots/kinova.urdf", True, True),
        ("tiago_description/robots/tiago.urdf", True, True),
        ("iiwa14", True, True),
        ("talos_data/robots/talos_left_arm.urdf", True, False),  # hangs from a shoulder
        (GO2, True, False),
        ("hyq", True, False),
        ("atlas", True, True),
        ("pendulum", False, False),
        ("double_integrator", False, False),
    ],
)
def test_targets_are_where_a_user_expects_them(robot, in_front, above, tmp_path):
    source = path_of(robot)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "task.toml").write_text(template(rg.load(source), source))
        task = load_task(tmp_path / "task.toml")
    reach, nq, limits = task.costs[0], task.robot.nq, task.robot.limits
    target = np.array(reach.target)

    def points(q):
        T = task.robot.forward_kinematics(q)
        return T[reach.frame][:3, :3] @ reach.offset + T[reach.frame][:3, 3], np.array(
            [T[name][2, 3] for name in task.robot.model.body_names]
        )

    tip, heights = points(task.start[:nq])
    assert np.linalg.norm(target - tip) > 0.1
    assert np.all(task.start[:nq] >= limits.lower) and np.all(task.start[:nq] <= limits.upper)
    goal = reaching(task.system, [reach], task.steps + 1, task.start)[:nq]
    assert np.linalg.norm(points(goal)[0] - target) < 1e-3  # within reach and limits
    assert np.all(goal >= limits.lower) and np.all(goal <= limits.upper)
    if in_front:
        assert target[0] > 0.1 and abs(target[1]) < target[0]
    if above:
        assert target[2] > 0.1 and tip[2] > 0.1
    if robot in (UR5, PANDA):
        assert heights.min() > -1e-3  # the elbow is not in the table, either


def test_fingers_do_not_move(tmp_path, monkeypatch, capsys):
    source = path_of(PANDA)
    monkeypatch.chdir(tmp_path)
    said = typed(shlex.join(["rigidgrad", "init", source]), capsys)
    assert said["locked"] == "1 joint of fingers: panda_finger_joint1"
    task = load_task("task.toml")
    assert "panda_finger_joint1" in task.data["lock"] and task.robot.nq == 7
    assert (
        main(["init", source, "--frame", "panda_leftfinger", "--out", "finger.toml", "--quiet"])
        == 0
    )
    # what is asked for moves
    assert "panda_finger_joint1" not in load_task("finger.toml").data["lock"]


def test_a_frame_that_no_motor_moves_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "hyq", "--floating-base", "--frame", "base_link_0"]) == 1
    assert (
        "no motor moves frame 'base_link_0'; name another by --frame, the tool of 'hyq' is"
        " 'lf_lowerleg'" in capsys.readouterr().err
    )
    assert main(["init", "cartpole", "--frame", "rail"]) == 1 and not Path("task.toml").exists()
    capsys.readouterr()
    stuck = re.sub(r"<limit [^>]*/>", "", rg.load("double_pendulum").to_urdf()).replace(
        'type="continuous">', 'type="revolute"><limit lower="0" upper="0" effort="9" velocity="9"/>'
    )
    Path("stuck.urdf").write_text(stuck)
    assert main(["init", "stuck.urdf"]) == 1
    assert (
        "within the joints' limits no motor moves frame 'lower_rod' by a millimetre"
        in capsys.readouterr().err
    )


def test_the_tool_of_a_hand_that_flies_is_a_finger_that_moves():
    hand = rg.load(
        path_of("allegro_hand_description/urdf/allegro_left_hand.urdf"), floating_base=True
    )
    assert (
        tool_frame(hand.model) == "palm_link"
        and tool_frame(hand.model, base=False) == "link_3.0_tip"
    )


def test_what_was_loaded_with_checks_is_solved_with_checks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    odd = rg.load("double_pendulum").to_urdf()
    Path("odd.urdf").write_text(re.sub(r'ixx="[^"]*"', 'ixx="9.0"', odd))
    assert main(["init", "odd.urdf"]) == 0
    assert main(["solve", "task.toml", "--quiet"]) == 0
    assert "strict" not in Path("task.toml").read_text()
    assert main(["init", "double_pendulum", "--strict", "--out", "strict.toml"]) == 0
    text = Path("strict.toml").read_text()
    assert "strict = true" in text
    Path("strict.toml").write_text(text.replace('"double_pendulum"', '"odd.urdf"'))
    assert main(["solve", "strict.toml", "--quiet"]) == 2


# --- compiling is not solving ---------------------------------------------------------------------


@pytest.fixture
def unseen(tmp_path, monkeypatch):
    """A task of a robot that nobody has compiled anything for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path / "cache"))
    mass = 1.0 + np.random.default_rng().random()
    Path("one.urdf").write_text(
        re.sub(r'<mass value="[^"]*"', f'<mass value="{mass!r}"', rg.load("pendulum").to_urdf())
    )
    assert main(["init", "one.urdf", "--quiet"]) == 0
    return "task.toml"


def counting(function, seen):
    def counted(*arguments, **options):
        before = native.compiled_count()
        result = function(*arguments, **options)
        seen.append(native.compiled_count() - before)
        return result

    return counted


def test_compile_time_is_not_solve_time(unseen, monkeypatch, capsys):
    from rigidgrad.control import solve

    compiled: list[int] = []
    monkeypatch.setattr(solve, "solve", counting(solve.solve, compiled))
    assert main(["solve", unseen, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    # the one whose time is told compiles nothing
    assert len(compiled) == 2 and compiled[0] > 0 == compiled[1]
    assert data["compile_seconds"] > data["seconds"] > 0
    assert main(["solve", unseen]) == 0
    assert "(found in the cache)" in capsys.readouterr().out


def test_compile_time_is_no_plan_s_time(unseen, monkeypatch, capsys):
    compiled: list[int] = []
    monkeypatch.setattr(MPC, "run", counting(MPC.run, compiled))
    assert main(["mpc", unseen, "--duration", "0.5", "--json"]) in (0, 1)
    data = json.loads(capsys.readouterr().out)
    assert len(compiled) == 2 and compiled[0] > 0 == compiled[1]
    assert (
        data["compile_seconds"] > data["solve_seconds"]["worst"]
        and data["solves"] == 50
        and data["steps"] == 500
    )
