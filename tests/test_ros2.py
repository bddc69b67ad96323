"""Generated ROS 2 packages. There is no ROS here: files are held against their formats, the plug-in
is compiled against small headers of our own (`ros2_stand_in`) and driven, and the node runs against
modules of our own.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import threading
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from test_tasks import TASK

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import InputError
from rigidgrad.ros2.package import filled
from rigidgrad.tasks import load_task

HERE = Path(__file__).parent
STAND_IN = HERE / "ros2_stand_in"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ros2")
    (folder / "task.toml").write_text(TASK)
    rg.ros2.generate(folder / "task.toml", folder / "pendulum_mpc", email="me@example.org")
    return folder / "pendulum_mpc"


@pytest.fixture
def planner(package):
    return rg.ros2.Planner(load_task(package / "config" / "task.toml"))


# --- files ----------------------------------------------------------------------------------------


def test_package_xml_follows_format_3(package):
    """REP 149: these elements, in this order, with these attributes."""
    root = ElementTree.parse(package / "package.xml").getroot()
    assert root.tag == "package" and root.attrib == {"format": "3"}
    tags = [child.tag for child in root]
    assert tags[:5] == ["name", "version", "description", "maintainer", "license"]
    assert set(tags[5:]) == {"buildtool_depend", "depend", "exec_depend", "export"}
    assert root.findtext("name") == package.name
    assert re.fullmatch(r"\d+\.\d+\.\d+", root.findtext("version"))
    assert root.find("maintainer").attrib == {"email": "me@example.org"}
    assert root.findtext("export/build_type") == "ament_cmake"


def test_the_plugin_is_described_as_it_is_exported(package):
    library = ElementTree.parse(package / "controller_plugin.xml").getroot()
    (described,) = library.findall("class")
    exported = re.search(
        r"PLUGINLIB_EXPORT_CLASS\(([\w:]+), ([\w:]+)\)",
        (package / "src" / "controller.cpp").read_text(),
    )
    assert described.get("type") == exported[1] == "pendulum_mpc::Controller"
    assert described.get("base_class_type") == exported[2]
    cmake = (package / "CMakeLists.txt").read_text()
    assert library.get("path") == re.search(r"project\((\w+)", cmake)[1]
    assert (
        "pluginlib_export_plugin_description_file(controller_interface controller_plugin.xml)"
        in cmake
    )
    parameters = (package / "config" / "controllers.yaml").read_text()
    assert f"type: {described.get('name')}" in parameters


def test_cmake_finds_what_package_xml_depends_on_and_installs_what_is_there(package):
    cmake = (package / "CMakeLists.txt").read_text()
    root = ElementTree.parse(package / "package.xml").getroot()
    found = set(re.findall(r"find_package\((\w+) REQUIRED\)", cmake))
    assert found == {d.text for d in [*root.findall("depend"), *root.findall("buildtool_depend")]}
    sources = re.search(r"add_library\(\S+ SHARED (.+?)\)", cmake)[1].split()
    assert all((package / source).is_file() for source in sources)
    for installed in ("scripts/mpc_node", "config", "launch"):
        assert (package / installed).exists() and installed in cmake
    assert cmake.rstrip().endswith("ament_package()")


def test_no_name_of_a_template_is_left_and_scripts_are_python(package):
    for path in package.rglob("*"):
        if path.is_file() and path.suffix not in (".c", ".h"):
            assert not re.search(r"@[A-Z_]+@", path.read_text()), path
    for script in ("scripts/mpc_node", "launch/control.launch.py"):
        ast.parse((package / script).read_text())
    assert (package / "scripts" / "mpc_node").stat().st_mode & 0o111


def test_files_of_an_earlier_call_are_replaced_and_others_are_not(package, capsys):
    task = str(package.parent / "task.toml")
    assert main(["ros2", task, "--out", str(package), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert all(Path(path).is_file() for path in files) and len(files) == 14
    mine = package.parent / "mine"
    mine.mkdir()
    (mine / "package.xml").write_text("<package/>")
    assert main(["ros2", task, "--out", str(mine)]) == 1
    assert "exists and was not" in capsys.readouterr().err
    assert (mine / "package.xml").read_text() == "<package/>"


def test_what_ros_cannot_have_is_refused(tmp_path):
    (tmp_path / "task.toml").write_text(TASK)
    with pytest.raises(InputError, match="small letters"):
        rg.ros2.generate(tmp_path / "task.toml", tmp_path / "My-Robot")
    (tmp_path / "task.toml").write_text(TASK[: TASK.index("[mpc]")])
    with pytest.raises(InputError, match=r"\[mpc\]"):
        rg.ros2.generate(tmp_path / "task.toml", tmp_path / "arm")
    system = rg.RobotSystem(rg.load("cartpole"))
    with pytest.raises(InputError, match="drives"):
        rg.ros2.planner.check_robot(system.robot, system)
    quadrotor = rg.load("quadrotor")
    with pytest.raises(InputError, match="one freedom"):
        rg.ros2.planner.check_robot(quadrotor, rg.RobotSystem(quadrotor))
    assert filled("a @NAME@ b@c.d", {"NAME": "@NAME@"}) == "a @NAME@ b@c.d"


# --- the plug-in ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(package, tmp_path_factory):
    return built(package, tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def own_package(package):
    """Of the same task, whose plug-in plans itself."""
    folder = package.parent / "own_mpc"
    assert (
        main(["ros2", str(package.parent / "task.toml"), "--out", str(folder), "--planner", "c"])
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def own_driver(own_package, tmp_path_factory):
    return built(own_package, tmp_path_factory.mktemp("own"))


def built(package: Path, folder: Path) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    flags = [
        "-O1",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wpedantic",
        "-Werror",
    ]
    where = [f"-I{package / 'include'}", f"-I{package / 'generated'}", f"-I{STAND_IN / 'include'}"]
    objects, c = [], compiler.replace("g++", "gcc").replace("clang++", "clang")
    for generated in (package / "generated").glob("*.c"):
        objects.append(folder / f"{generated.stem}.o")
        strict = [c, "-std=c99", *flags, "-march=native", "-c", generated, "-o", objects[-1]]
        subprocess.run([flag for flag in strict if flag != "-Wpedantic"], check=True)
    sources = [package / "src" / "controller.cpp", STAND_IN / "drive.cpp"]
    command = [compiler, "-std=c++17", *flags, *where, *sources, *objects, "-lm"]
    subprocess.run([*map(str, command), "-o", str(folder / "drive")], check=True)
    return folder / "drive"


def driven(driver: Path, *arguments: object) -> tuple[list[float], int, str, dict[str, int]]:
    """The last commands and the largest; level, message and counts of the diagnostics."""
    said = subprocess.run(
        [str(driver), *map(str, arguments)], capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert said[0] == "elbow/effort elbow/position shoulder/velocity"
    *numbers, level, message = said[1].split(maxsplit=4)
    counts = dict(line.split("=") for line in said[2:])
    return [*map(float, numbers)], int(level), message, {k: int(v) for k, v in counts.items()}


def test_without_a_planner_the_plugin_holds_the_posture(driver, tmp_path):
    numbers, level, message, counts = driven(driver, tmp_path / "memory", 40, 0.0)
    weight = rg.load("double_pendulum").gravity_torque([0.3, -0.2])
    assert numbers[:2] == pytest.approx(np.clip(weight, -5.0, 5.0), abs=1e-6)
    assert level == 2 and "no controller is connected" in message
    assert counts["fallbacks"] == counts["updates"] == 40 and counts["invalid states"] == 1


def test_the_plugin_applies_what_the_planner_answers(driver, package, tmp_path):
    """In step with the planner: the commands are its controls, within the bounds."""
    name = tmp_path / "memory"
    answers = []
    with rg.link.Link(name, "controller", states=4, controls=2) as link:
        planner = rg.ros2.Planner(load_task(package / "config" / "task.toml"))

        def step(x, t):
            answers.append(planner.control(x, t))
            return answers[-1]

        found = {}
        thread = threading.Thread(target=lambda: found.update(all=driven(driver, name, 60, 20.0)))
        thread.start()
        served = rg.link.serve(step, link, until=lambda message: served_all(answers))
        thread.join()
    numbers, level, _, counts = found["all"]
    assert served.skipped == 0
    assert numbers[:2] == pytest.approx(np.clip(answers[-1], -5.0, 5.0), abs=1e-6)
    assert numbers[2] <= 5.0
    # the one state that was none was not sent, and the answer before it still counted
    assert counts == {
        "updates": 60,
        "answers": 59,
        "deadline misses": 1,
        "fallbacks": 0,
        "invalid states": 1,
    }
    assert level == 1


def test_the_plugin_plans_itself_by_generated_c(own_driver, own_package, tmp_path):
    """Its commands are those of the task's controller, target and failed encoder included."""
    target = (0.3, -0.95)
    numbers, level, message, counts = driven(own_driver, tmp_path / "memory", 60, 0.0, *target)
    mpc = load_task(own_package / "config" / "task.toml").controller()
    mpc.target = np.array([target[0], 0.0, target[1]])
    x, largest = np.array([0.3, -0.2, 0.0, 0.0]), 0.0
    for k in range(60):
        u = np.clip(mpc.step(None if k == 30 else x, 0.005 * k), -5.0, 5.0)
        largest = max(largest, np.abs(u).max())
    assert numbers == pytest.approx([*u, largest], abs=2e-6)
    assert counts["updates"] == counts["answers"] == 60 and counts["fallbacks"] == 0
    assert counts["plans"] == mpc.log.solves and counts["missing"] == counts["invalid states"] == 1
    assert counts["targets"] == counts["targets refused"] == 1 and counts["held"] == 0
    assert counts["violated"] == mpc.counts["violated"] > 0  # the stand-in's robot stands still
    assert level == 2 and message == "plans leave the limits"


def test_a_package_that_plans_itself_needs_no_node(own_package):
    cmake = (own_package / "CMakeLists.txt").read_text()
    root = ElementTree.parse(own_package / "package.xml").getroot()
    found = set(re.findall(r"find_package\((\w+) REQUIRED\)", cmake))
    assert found == {d.text for d in [*root.findall("depend"), *root.findall("buildtool_depend")]}
    sources = re.search(r"add_library\(\S+ SHARED (.+?)\)", cmake)[1].split()
    assert len(sources) == 3 and all((own_package / source).is_file() for source in sources)
    assert "mpc_node" not in (own_package / "launch" / "control.launch.py").read_text()
    assert "link" not in (own_package / "config" / "controllers.yaml").read_text()
    test_no_name_of_a_template_is_left_and_scripts_are_python(own_package)


def served_all(answers: list) -> bool:
    return len(answers) == 59


def test_answers_that_are_no_numbers_are_not_applied(driver, tmp_path):
    name = tmp_path / "memory"
    with rg.link.Link(name, "controller", states=4, controls=2) as link:
        found = {}
        thread = threading.Thread(target=lambda: found.update(all=driven(driver, name, 20, 20.0)))
        thread.start()
        count = []

        def step(x, t):
            count.append(t)
            return np.full(2, np.nan)

        rg.link.serve(step, link, until=lambda message: len(count) == 19)
        thread.join()
    _, level, _, counts = found["all"]
    assert counts["fallbacks"] == 20 and counts["answers"] == 0 and level == 2


# --- the planner ----------------------------------------------------------------------------------


def test_states_come_in_any_order_and_wrong_ones_are_told(planner):
    names = ["elbow", "gripper", "shoulder"]
    x = planner.state(names, [2.0, 9.0, 1.0], [4.0, 9.0, 3.0])
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    for wrong, said in {
        (("elbow",), (1.0,), (1.0,)): "without shoulder",
        (("elbow", "shoulder"), (1.0, 2.0), ()): "not as many",
        (("elbow", "shoulder"), (1.0, float("nan")), (0.0, 0.0)): "none",
    }.items():
        assert planner.state(*wrong) is None and said in planner.trouble
    (finding,) = planner.diagnostics()
    assert finding.level == 1 and "states refused 3" in finding.message
    (finding,) = planner.diagnostics()
    assert finding.level == 0 and finding.values["states refused"] == "3"


def test_targets_are_points_in_the_base_and_others_are_refused(planner):
    still = (0.0, 0.0, 0.0, 1.0)
    assert planner.aim("world", (0.3, 0.0, -0.9), still)
    assert planner.mpc.target.tolist() == [0.3, 0.0, -0.9]
    assert not planner.aim("camera", (0.3, 0.0, -0.9), still) and "camera" in planner.trouble
    assert not planner.aim("", (float("nan"), 0.0, 0.0), still)
    assert planner.mpc.target.tolist() == [0.3, 0.0, -0.9]
    assert planner.targets == 1 and planner.wrong_targets == 2


def test_an_old_state_counts_as_missing(planner):
    x = np.array([0.3, -0.2, 0.0, 0.0])
    assert np.isfinite(planner.control(x, 1.0, 1.0)).all()
    assert np.isfinite(planner.control(x, 1.01, 0.5)).all()
    assert planner.late == 1 and planner.mpc.counts["missing"] == 1


def test_another_robot_description_is_told(planner):
    source = (Path(rg.__file__).parent / "model" / "robots" / "double_pendulum.urdf").read_text()
    assert planner.described(source) == ""
    heavier = re.sub(
        r'<mass value="([\d.]+)"', lambda m: f'<mass value="{2 * float(m[1])}"', source
    )
    assert heavier != source and "other masses" in planner.described(heavier)
    assert "no joint" in planner.described(source.replace("elbow", "wrist"))
    assert "cannot be read" in planner.described("<robot>")


# --- the node -------------------------------------------------------------------------------------


class Message:
    """Any message: fields appear when they are used."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = [] if name in ("points", "status", "values") else Message()
        setattr(self, name, value)
        return value


class Clock:
    def __init__(self):
        self.nanoseconds = 10**9

    def now(self):
        return self

    def to_msg(self):
        return Message()


class Ros:
    """An rclpy node of topics in this process."""

    def __init__(self, **parameters):
        self.parameters, self.clock = parameters, Clock()
        self.subscribed, self.sent, self.timers, self.said = {}, {}, [], []

    def declare_parameter(self, name, default):
        return types.SimpleNamespace(value=self.parameters.get(name, default))

    def create_subscription(self, kind, topic, callback, qos):
        self.subscribed[topic] = callback

    def create_publisher(self, kind, topic, qos):
        sent = self.sent.setdefault(topic, [])
        return types.SimpleNamespace(publish=sent.append)

    def create_timer(self, period, callback):
        self.timers.append((period, callback))

    def get_clock(self):
        return self.clock

    def get_logger(self):
        return types.SimpleNamespace(warning=self.said.append, error=self.said.append)


@pytest.fixture
def ros(monkeypatch):
    """Modules of ROS, as far as the node uses them."""
    kinds = {
        "diagnostic_msgs.msg": ("DiagnosticArray", "DiagnosticStatus", "KeyValue"),
        "geometry_msgs.msg": ("PoseStamped",),
        "sensor_msgs.msg": ("JointState",),
        "std_msgs.msg": ("Float64MultiArray", "String"),
        "trajectory_msgs.msg": ("JointTrajectory", "JointTrajectoryPoint"),
    }
    for module, names in kinds.items():
        made = types.ModuleType(module)
        for name in names:
            setattr(made, name, type(name, (Message,), {}))
        monkeypatch.setitem(sys.modules, module.partition(".")[0], types.ModuleType(module[:-4]))
        monkeypatch.setitem(sys.modules, module, made)
    qos = types.ModuleType("rclpy.qos")
    qos.QoSProfile = lambda **options: options
    qos.DurabilityPolicy = types.SimpleNamespace(TRANSIENT_LOCAL=1)
    monkeypatch.setitem(sys.modules, "rclpy", types.ModuleType("rclpy"))
    monkeypatch.setitem(sys.modules, "rclpy.qos", qos)
    return Ros


def joint_state(x, seconds):
    message = Message()
    message.name, message.position, message.velocity = ["shoulder", "elbow"], x[:2], x[2:]
    message.header.stamp.sec, message.header.stamp.nanosec = int(seconds), 0
    return message


def test_the_node_turns_states_into_efforts(ros, package):
    from rigidgrad.ros2.node import Node

    session = ros(task=str(package / "config" / "task.toml"), mode="effort")
    node = Node(session, "pendulum_mpc")
    assert {"joint_states", "robot_description", "~/target"} == set(session.subscribed)
    node.tick()
    assert session.sent["~/commands"] == []  # no state yet
    session.subscribed["joint_states"](joint_state([0.3, -0.2, 0.0, 0.0], 1))
    node.tick()
    mpc = load_task(package / "config" / "task.toml").controller()
    expected = mpc.step(np.array([0.3, -0.2, 0.0, 0.0]), 1.0, 1.0)
    assert session.sent["~/commands"][0].data == expected.tolist()
    target = Message()
    target.header.frame_id = "map"
    for axis in "xyz":
        setattr(target.pose.position, axis, 0.1)
        setattr(target.pose.orientation, axis, 0.0)
    target.pose.orientation.w = 1.0
    session.subscribed["~/target"](target)
    assert "map" in session.said[-1]
    node.report()
    (status,) = session.sent["/diagnostics"][-1].status
    assert status.level == b"\1" and "targets refused 1" in status.message
    # another robot: nothing more is sent
    session.subscribed["robot_description"](types.SimpleNamespace(data="<robot/>"))
    node.tick()
    assert len(session.sent["~/commands"]) == 1
    node.report()
    assert session.sent["/diagnostics"][-1].status[0].level == b"\2"


def test_the_node_publishes_plans_as_trajectories(ros, package):
    from rigidgrad.ros2.node import Node

    session = ros(task=str(package / "config" / "task.toml"), mode="trajectory")
    node = Node(session, "pendulum_mpc")
    session.subscribed["joint_states"](joint_state([0.3, -0.2, 0.0, 0.0], 1))
    node.tick()
    (trajectory,) = session.sent["~/trajectory"]
    assert trajectory.joint_names == ["shoulder", "elbow"]
    assert len(trajectory.points) == 41
    last = trajectory.points[-1].time_from_start
    assert last.sec + 1e-9 * last.nanosec == pytest.approx(0.8)
    assert trajectory.points[0].positions == pytest.approx([0.3, -0.2], abs=1e-6)


def test_the_node_serves_a_plugin(ros, package, driver, tmp_path):
    from rigidgrad.ros2.node import Node

    name = str(tmp_path / "memory")
    session = ros(task=str(package / "config" / "task.toml"), mode="link", link=name)
    node = Node(session, "pendulum_mpc")
    found = {}
    thread = threading.Thread(target=lambda: found.update(all=driven(driver, name, 30, 20.0)))
    thread.start()
    count = []
    served = node.serve(until=lambda message: count.append(1) or len(count) == 29)
    thread.join()
    assert served.answered == 29 and found["all"][3]["answers"] == 29


def test_wrong_parameters_are_told(ros, package):
    from rigidgrad.ros2.node import Node

    with pytest.raises(InputError, match="mode is one of"):
        Node(ros(mode="speed"))
    with pytest.raises(InputError, match="names a task"):
        Node(ros())
