"""The command line: what it prints, for people and for machines, and its exit codes."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import cli
from rigidgrad.cli import COMMANDS, main
from rigidgrad.commands import verification
from rigidgrad.commands.terminal import Progress, plain, seconds, table

TWO = """
<robot name="two">
  <link name="base"/>
  <link name="arm"><inertial><origin xyz="0 0 0.3"/><mass value="2"/><inertia ixx="0.06" iyy="0.06" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="hand"><inertial><origin xyz="0 0 0.1"/><mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.005" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="1 0 0"/><limit lower="-2" upper="2" velocity="5" effort="40"/></joint>
  <joint name="wrist" type="continuous"><parent link="arm"/><child link="hand"/><origin xyz="0 0 0.6"/><axis xyz="0 1 0"/></joint>
</robot>
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RIGIDGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.urdf").write_text(TWO)
    return "two.urdf"


def output(capsys, *arguments, code=0):
    assert main([str(a) for a in arguments]) == code
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def data(capsys, *arguments, code=0):
    return json.loads(output(capsys, *arguments, "--json", code=code))


# --- what every command does ----------------------------------------------------------------------


def test_every_command_has_its_help_and_the_two_common_options():
    group = next(a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert tuple(group.choices) == COMMANDS
    for name, parser in group.choices.items():
        flags = {flag for action in parser._actions for flag in action.option_strings}
        assert {"--json", "--quiet"} <= flags, name
        assert parser.description and all(a.help for a in parser._actions), name


def test_help_loads_no_heavy_part():
    heavy = {"numba", "jax", "torch", "mujoco", "viser", "pinocchio", "distributed"}
    code = (
        "import sys\ntry:\n    from rigidgrad.cli import main; main(['--help'])\nexcept"
        f" SystemExit: print(sorted({heavy} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("\n[]\n") and "exit codes" in result.stdout


@pytest.mark.parametrize(
    "arguments", [("info", "pendulum"), ("cache",), ("check", "pendulum"), ("completion", "bash")]
)
def test_quiet_prints_nothing(arguments, capsys):
    assert output(capsys, *arguments, "--quiet") == ""


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rigidgrad.robot.load", interrupted)
    assert main(["info", "pendulum"]) == 130
    assert capsys.readouterr().err == "rigidgrad: interrupted\n"


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m rigidgrad info hyq | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("hyq: 12 moving joints") and result.stderr == ""


def test_a_warning_is_one_line_on_stderr(tmp_path, capsys):
    (tmp_path / "odd.urdf").write_text(TWO.replace('ixx="0.06"', 'ixx="0.6"'))
    assert main(["info", str(tmp_path / "odd.urdf"), "--no-strict"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("rigidgrad: warning: robot 'two'") and err.count("\n") == 1


def test_tables_times_and_json_numbers():
    assert table([("a", "bb"), ("ccc", "d")], right=(1,)) == "a    bb\n───  ──\nccc   d"
    assert [seconds(x) for x in (2.0, 0.0123, 5e-6, 2e-9)] == ["2 s", "12.3 ms", "5 µs", "0.002 µs"]
    assert plain({"x": np.array([1.0, np.inf]), "n": np.int64(3), "nan": float("nan")}) == {
        "x": [1.0, None],
        "n": 3,
        "nan": None,
    }


def test_progress_is_drawn_only_where_it_is_wanted(capsys):
    for shown in (True, False):
        with Progress("counting", 2, shown) as step:
            step("one")
        drawn = capsys.readouterr().err
        assert ("counting" in drawn) == shown and (not shown or drawn.endswith("\r\x1b[K"))


# --- info, cache ----------------------------------------------------------------------------------


def test_info_prints_table_tree_and_operations(capsys):
    robot = rg.load("hyq", floating_base=True)
    text = output(capsys, "info", "hyq", "--floating-base")
    assert text.startswith(str(robot))
    assert re.search(r"^│  └─ lf_upperleg +revolute 'lf_hfe_joint' +2.638 kg$", text, re.M)
    assert re.search(r"^└─ rh_hipassembly ", text, re.M)
    flops = robot.compile("aba_derivatives").counts["flops"]
    assert re.search(rf"^aba_derivatives +gradient of forward dynamics +{flops:,} ", text, re.M)


def test_info_tells_what_is_compiled(capsys, cache, tmp_path):
    own = (
        rg.Builder("of this test alone")
        .link("a")
        .link("b", 1.2345, (0, 0, 0.3), (1, 1, 1))
        .joint("j", "revolute", "a", "b")
        .build()
    )
    (tmp_path / "own.urdf").write_text(own.to_urdf())
    robot = rg.load(tmp_path / "own.urdf")
    robot.rnea([[0.1]], [[0.2]], [[0.3]])
    text = output(capsys, "info", str(tmp_path / "own.urdf"))
    assert re.search(r"^rnea .* float64$", text, re.M) and re.search(r"^crba .* -$", text, re.M)


def test_info_as_json(capsys):
    shown = data(capsys, "info", "pendulum")
    assert (
        shown["nv"] == 1
        and shown["joints"][0]["type"] == "continuous"
        and shown["limits"]["lower"] == [None]
    )
    assert (
        shown["mass"] == 2.0
        and shown["functions"]["rnea"]["flops"]
        == rg.load("pendulum").compile("rnea").counts["flops"]
    )


def test_the_cache_is_shown_and_cleared(cache, capsys):
    robot = (
        rg.Builder("shown")
        .link("a")
        .link("b", 1.5, (0, 0, 0.3), (1, 1, 1))
        .joint("j", "revolute", "a", "b")
        .build()
    )
    robot.rnea([0.1], [0.2], [0.3])
    robot.crba([0.1])
    # one line per robot
    line = next(line for line in output(capsys, "cache").split("\n") if line.startswith("shown "))
    assert re.match(r"shown +\d  crba, rnea +\d+  ", line)
    assert "shown" in (text := output(capsys, "cache")) and "rnea" in text and str(cache) in text
    assert any(e["robot"] == "shown" and e["bytes"] > 0 for e in data(capsys, "cache")["entries"])
    assert "removed" in output(capsys, "cache", "clear")
    assert data(capsys, "cache")["entries"] == []


def test_a_switched_off_cache_says_so(monkeypatch, capsys):
    monkeypatch.setenv("RIGIDGRAD_CACHE", "off")
    assert "off" in output(capsys, "cache")


# --- check ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", [("double_pendulum",), ("cartpole",), ("quadrotor",)])
def test_good_robots_pass_every_check(robot, capsys):
    found = data(capsys, "check", *robot, "--states", 5)
    assert found["failed"] == 0
    names = {c["name"] for c in found["checks"] if c["passed"]}
    assert {"energy balance", "gradient of forward dynamics by q", "Jacobian"} <= names


def test_a_robot_is_compared_with_pinocchios_own_reading_of_it(two, capsys):
    pytest.importorskip("pinocchio", reason="needs Pinocchio (pip install pin)")
    found = {c["name"]: c for c in data(capsys, "check", two)["checks"]}
    for name in ("rnea", "aba", "crba", "minv", "rnea_derivatives", "aba_derivatives"):
        assert (
            found[name]["passed"]
            and "Pinocchio" in found[name]["about"]
            and 0 < found[name]["found"] < 1e-9
        ), name


def test_a_wrong_gradient_is_found(two, capsys, monkeypatch):
    right = rg.Robot.rnea_derivatives
    monkeypatch.setattr(
        rg.Robot,
        "rnea_derivatives",
        lambda *a, **k: right(*a, **k)._replace(dv=1.001 * right(*a, **k).dv),
    )
    failed = {
        c["name"] for c in data(capsys, "check", two, code=1)["checks"] if c["passed"] is False
    }
    assert (
        "gradient of inverse dynamics by v" in failed
        and "gradient of inverse dynamics by q" not in failed
    )


def test_a_wrong_mass_matrix_is_found(two, capsys, monkeypatch):
    right = rg.Robot.crba
    monkeypatch.setattr(rg.Robot, "crba", lambda self, q, **k: 1.001 * right(self, q, **k))
    failed = {
        c["name"] for c in data(capsys, "check", two, code=1)["checks"] if c["passed"] is False
    }
    assert "minv inverts crba" in failed


def test_an_impossible_body_fails_and_odd_numbers_are_noted(two, tmp_path, capsys):
    (tmp_path / "odd.urdf").write_text(
        TWO.replace('ixx="0.06"', 'ixx="0.6"').replace('effort="40"', 'effort="0"')
    )
    text = output(capsys, "check", "odd.urdf", code=1)
    assert re.search(r"^FAILED +bodies +link 'arm' .* exceeds the sum of the others", text, re.M)
    assert re.search(r"^note +effort limit +joint 'shoulder' has a limit of 0", text, re.M)
    assert re.search(r"^note +no effort limit +wrist$", text, re.M) and re.search(
        r"^two: \d+ checks passed, 1 failed", text, re.M
    )
    assert data(capsys, "check", "odd.urdf", "--no-strict")["failed"] == 0


def test_a_singular_mass_matrix_fails_and_a_still_robot_is_noted(two, tmp_path, capsys):
    massless = TWO.replace(
        '<inertial><origin xyz="0 0 0.1"/><mass value="1"/><inertia ixx="0.01" iyy="0.01"'
        ' izz="0.005" ixy="0" ixz="0" iyz="0"/></inertial>',
        "",
    )
    (tmp_path / "light.urdf").write_text(massless)
    failed = [
        c["about"]
        for c in data(capsys, "check", "light.urdf", code=1)["checks"]
        if c["passed"] is False
    ]
    assert any("'wrist' moves link 'hand', which has no mass" in text for text in failed)
    assert any("singular" in text for text in failed)
    ball = (
        '<link name="ball"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0"'
        ' ixz="0" iyz="0"/></inertial></link>'
    )
    spin = '<joint name="spin" type="continuous"><parent link="hand"/><child link="ball"/></joint>'
    notes = verification.body_notes(rg.load(massless.replace("</robot>", f"{ball}{spin}</robot>")))
    assert "hand: they move what hangs on them" in [n.about for n in notes]
    (tmp_path / "still.urdf").write_text(
        re.sub(r'type="(revolute|continuous)"', 'type="fixed"', TWO)
    )
    assert "there are no moving joints" in output(capsys, "check", "still.urdf")


def test_a_body_larger_than_the_robot_is_noted():
    robot = rg.load(TWO.replace('ixx="0.06" iyy="0.06" izz="0.01"', 'ixx="60" iyy="60" izz="10"'))
    (note,) = verification.body_notes(robot)
    assert (
        note.passed is None
        and note.found == pytest.approx(np.sqrt(60 / 2))
        and "is its inertia in kg m²?" in note.about
    )


SOUND = """<robot name="sound"><link name="base"/><link name="rod"><inertial><origin xyz="0 0 0.2"/><mass value="2"/>
<inertia ixx="0.03" iyy="0.03" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial><visual><origin xyz="0 0 0.2"/><geometry><box size="0.1 0.1 0.4"/></geometry></visual>
</link><joint name="j" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/><limit lower="-2.9" upper="2.9" velocity="3" effort="9"/>
</joint></robot>"""


@pytest.mark.parametrize(
    ("old", "new", "name", "said"),
    [
        ("", "", "", ""),
        ('lower="-2.9" upper="2.9"', 'lower="-170" upper="170"', "position limit", "j (170 rad): are these degrees?"),
        ('velocity="3"', 'velocity="180"', "velocity limit", "j (180 rad/s): are these degrees?"),
        ('<axis xyz="0 1 0"/>', "", "no axis", "j: x is taken, as URDF says; write <axis xyz=…/>"),
        ('ixx="0.03" iyy="0.03"', 'ixx="1" iyy="1"', "large inertia", "'rod' is larger than the shapes that it is drawn with (0.71 m against 0.41 m)"),
        ('ixx="0.03" iyy="0.03" izz="0.002"', 'ixx="1e-6" iyy="1e-6" izz="1e-6"', "small inertia", "'rod' would have to be denser than any metal"),
        ('<box size="0.1 0.1 0.4"/>', '<mesh filename="package://sound/meshes/rod.stl"/>', "missing meshes", "package://sound/meshes/rod.stl: not found"),
        ('<box size="0.1 0.1 0.4"/>', '<mesh filename="package://sound/meshes/there.stl"/>', "", ""),
        ('<box size="0.1 0.1 0.4"/>', '<mesh filename="../meshes/there.stl"/>', "", ""),
    ],
)  # fmt: skip
def test_what_is_odd_in_a_description_is_noted(old, new, name, said, tmp_path, capsys):
    assert old in SOUND
    (tmp_path / "sound" / "meshes").mkdir(parents=True)
    (tmp_path / "sound" / "meshes" / "there.stl").touch()
    (tmp_path / "sound" / "urdf").mkdir()
    file = tmp_path / "sound" / "urdf" / "r.urdf"
    file.write_text(SOUND.replace(old, new) if old else SOUND)
    notes = [
        c
        for c in data(capsys, "check", str(file), "--states", "1")["checks"]
        if c["passed"] is None
    ]
    assert [n["name"] for n in notes] == ([name] if name else []) and all(
        said in n["about"] for n in notes
    )


@pytest.mark.filterwarnings("ignore:robot 'sound'")
def test_a_joint_that_nothing_resists_is_named():
    robot = rg.load(
        SOUND.replace('ixx="0.03" iyy="0.03" izz="0.002"', 'ixx="0" iyy="0" izz="0"')
        .replace('value="2"', 'value="0"')
        .replace("0 0 0.2", "0 0 0"),
        strict=False,
    )
    with pytest.raises(
        rg.errors.ModelError, match=r"nothing resists joint 'j' \(velocity 0 of v\)"
    ):
        robot.aba([0.0], [0.0], [0.0])


def test_a_missing_pinocchio_is_a_note(two, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    found = data(capsys, "check", two)
    (note,) = [c for c in found["checks"] if c["name"] == "against Pinocchio"]
    assert note["passed"] is None and note["about"] == "this needs Pinocchio: pip install pin"


# --- bench, generate, trees, doctor, fpga ---------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr("rigidgrad.commands.bench.SLICE", 1e-5)
    monkeypatch.setattr("rigidgrad.commands.bench.ROUNDS", 2)


def test_bench_measures_us_and_the_peers_that_are_there(two, hasty, capsys):
    pytest.importorskip("pinocchio", reason="needs Pinocchio (pip install pin)")
    pytest.importorskip("mujoco", reason="needs MuJoCo (pip install 'rigidgrad[plants]')")
    found = data(
        capsys,
        "bench",
        two,
        "--function",
        "rnea",
        "--function",
        "crba",
        "--batch",
        1,
        "--batch",
        32,
        "--plot",
        "times.svg",
    )
    assert found["microseconds"]["rnea"].keys() == {"1", "32", "Pinocchio", "MuJoCo"}
    assert found["microseconds"]["crba"].keys() == {"1", "32", "Pinocchio"}
    assert all(t > 0 for times in found["microseconds"].values() for t in times.values())
    assert ElementTree.parse("times.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "robot",
    [{"source": "iiwa14"}, {"source": "hyq", "floating_base": True}, {"source": TWO}],
    ids=["arm", "free", "angle"],
)
def test_mujoco_computes_what_we_compute(robot):
    pytest.importorskip("mujoco", reason="needs MuJoCo (pip install 'rigidgrad[plants]')")
    from rigidgrad.commands.peers import MuJoCo

    own = rg.load(**robot)
    q, v, tau = own.random((1,), seed=0)
    peer = MuJoCo(own, "iiwa14")
    states = rg.interop.states(own, peer.model)
    back = states.back(
        *(states.to(q, v)[:2]),
        None,
        peer.calls["rnea"](*(x[0] for x in peer.inputs("rnea", q, v, tau)))[None],
    ).tau
    assert back == pytest.approx(own.rnea(q, v, tau), rel=1e-9)
    assert states.back(
        *(states.to(q, v)[:2]),
        peer.calls["aba"](*(x[0] for x in peer.inputs("aba", q, v, tau)))[None],
    ).a == pytest.approx(own.aba(q, v, tau), rel=1e-8)


def test_bench_says_which_peers_are_not_there(two, hasty, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pinocchio", None)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    text = output(capsys, "bench", two, "--function", "rnea", "--batch", 8)
    assert (
        "without Pinocchio: this needs Pinocchio: pip install pin" in text
        and "without MuJoCo" in text
    )
    assert re.search(r"^rnea +[\d.e-]+$", text, re.M)


def test_generated_code_is_written_and_listed(two, capsys, tmp_path):
    files = data(
        capsys, "generate", two, "rnea", "jacobian:hand", "--out", "code", "--dtype", "float32"
    )["files"]
    source = (tmp_path / "code" / "two.c").read_text()
    assert (
        "code/two.c" in files
        and "two_rnea" in source
        and "two_jacobian_hand" in source
        and "double" not in source
    )
    assert "wrote code/two.c" in output(capsys, "generate", two, "rnea", "--out", "code")


def test_trees_are_timed(capsys):
    found = data(capsys, "trees", "--bodies", 300, "--repeat", 1)
    assert found["bodies"] == 300 and found["method"] == "sequential" and found["levels"] == 9
    assert found["functions"].keys() == {"rnea", "crba", "forward_dynamics"}
    assert (
        found["functions"]["forward_dynamics"]["best"] > 0
        and "residual" in found["functions"]["forward_dynamics"]["note"]
    )


def test_a_matrix_that_does_not_fit_is_told_not_tried(capsys, monkeypatch):
    monkeypatch.setattr("rigidgrad.trees.memory.available", lambda: 1000)
    text = output(capsys, "trees", "--bodies", 300, "--repeat", 1)
    assert re.search(r"^crba +mass matrix +- +- +- +a mass matrix .* would take", text, re.M)


def test_the_doctor_finds_the_core_working_and_says_how_to_get_the_rest(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = {f["name"]: f for f in data(capsys, "doctor")["findings"]}
    assert found["compiled code"]["works"] and found["vectors"]["found"].endswith("at once")
    assert not found["viser"]["works"] and "pip install 'rigidgrad[view]'" in found["viser"]["note"]
    assert not found["C compiler"]["works"] and "apt-get" in found["C compiler"]["note"]


def test_the_doctor_fails_if_compiled_code_is_wrong(capsys, monkeypatch):
    from rigidgrad.runtime.compiled import Compiled

    right = Compiled.__call__
    monkeypatch.setattr(Compiled, "__call__", lambda *a, **k: 1.1 * right(*a, **k))
    assert "broken: compiled code" in output(capsys, "doctor", code=1)


# --- completion -----------------------------------------------------------------------------------


def completed(script: str, line: str, folder) -> set[str]:
    words = line.split(" ")
    quoted = " ".join(f"'{w}'" for w in words)
    code = (
        f'{script}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n_rigidgrad\nprintf "%s\\n"'
        ' "${COMPREPLY[@]}"'
    )
    return set(
        subprocess.run(
            ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder
        ).stdout.split()
    )


def test_bash_completes_commands_options_choices_robots_and_files(two, capsys, tmp_path):
    (tmp_path / "reach.toml").touch()
    script = output(capsys, "completion", "bash")
    assert completed(script, "rigidgrad ", tmp_path) == {*COMMANDS, "--help", "--version"}
    assert completed(script, "rigidgrad c", tmp_path) == {"check", "cache", "completion"}
    assert completed(script, "rigidgrad info ", tmp_path) == {*rg.bundled(), "two.urdf"}
    assert completed(script, "rigidgrad info --f", tmp_path) == {"--floating-base"}
    assert completed(script, "rigidgrad generate two.urdf --target ", tmp_path) == {
        "c",
        "cuda",
        "opencl",
        "verilog",
        "wgsl",
    }
    assert completed(script, "rigidgrad solve ", tmp_path) == {"reach.toml"}
    assert completed(script, "rigidgrad completion z", tmp_path) == {"zsh"}


def script_for(shell, capsys, folder):
    text = output(capsys, "completion", shell)
    assert all(name in text for name in COMMANDS) and "iiwa14" in text
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell} (Debian: apt-get install {shell})")
    (folder / "script").write_text(text)
    return folder / "script"


def test_fish_completes_choices_and_robots(two, capsys, tmp_path):
    script = script_for("fish", capsys, tmp_path)
    for line, expected in (
        ("generate x --target ", {"c", "cuda", "opencl", "verilog", "wgsl"}),
        ("info dou", {"double_integrator", "double_pendulum"}),
    ):
        command = ["fish", "-c", f"source {script}; complete -C 'rigidgrad {line}'"]
        found = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"HOME": str(tmp_path)},
        )
        assert {
            row.split("\t")[0] for row in found.stdout.splitlines()
        } == expected and found.stderr == ""


def test_zsh_completes_commands_choices_robots_and_files(two, capsys, tmp_path):
    script = script_for("zsh", capsys, tmp_path)
    import pty
    import select
    import time

    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | {"TERM": "dumb", "HOME": str(tmp_path)})

    def typed(keys: str, *expected: str) -> str:
        os.write(terminal, keys.encode())
        seen, end = "", time.monotonic() + 30
        while not all(word in seen for word in expected) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")
        assert all(word in seen for word in expected) and "bad option" not in seen, seen
        return seen

    try:
        typed(
            f"autoload -U compinit; compinit -u -D; source {script}; LISTMAX=0; echo rea''dy\n",
            "ready",
        )
        typed("rigidgrad gen\t", "generate")
        typed("two.urdf rnea --target \t", "cuda", "opencl", "verilog", "wgsl")
        typed("\x15rigidgrad info \t", "double_pendulum", "two.urdf")
    finally:
        os.close(terminal)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
