"""The files of a ROS 2 package that controls the robot of a task."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from rigidgrad import codegen, link
from rigidgrad.control.costs import Reach
from rigidgrad.control.mpc.target import aim_of
from rigidgrad.errors import InputError
from rigidgrad.ros2.planner import check_robot
from rigidgrad.solver_code import member_at
from rigidgrad.targets.c import MARK
from rigidgrad.targets.names import comment, identifier
from rigidgrad.tasks import Task, load_task

# where each template goes
_FILES = {
    "package.xml": "package.xml",
    "CMakeLists.txt": "CMakeLists.txt",
    "controller_plugin.xml": "controller_plugin.xml",
    "controller.hpp": "include/{package}/controller.hpp",
    "controller.cpp": "src/controller.cpp",
    "source_{planner}.hpp": "include/{package}/source.hpp",
    "controllers.yaml": "config/controllers.yaml",
    "launch.txt": "launch/control.launch.py",
    "mpc_node": "scripts/mpc_node",
    "README.md": "README.md",
}
_LATE = 5.0  # plans after which an answer is too old
_STIFF, _DAMP = 50.0, 5.0  # of a joint that holds, N m/rad and N m s/rad, at most
# what the templates say where the plans come from Python, and where they are generated C
_LINKED = {
    "FIND": "",
    "DEPEND": "",
    "GEOMETRY": "",
    "SOURCE": "",
    "NATIVE": "",
    "EXEC": "  <exec_depend>geometry_msgs</exec_depend>\n",
    "LINK_LINE": '    link: "@LINK@"  # rigidgrad link, as the node\'s\n',
    "WAIT_LINE": "    wait: 0.0  # s that an update waits for the answer to its own state; 0: the"
    " answer to the one before acts\n",
    "WHERE": "a planner in another process",
    "LAUNCH": "The planner beside a controller manager that is running: the node, and the"
    " plug-in's spawner.",
    "LAUNCH_NODE": """\
            Node(
                package="@PACKAGE@",
                executable="mpc_node",
                parameters=[
                    {"task": str(share / "config" / "@TASK@"), "mode": "link", "link": "@LINK@"}
                ],
                output="screen",
            ),
""",
    "NODE": "@PACKAGE@",
    "HOW": "The plug-in sends each state through shared memory and applies what comes back; where no"
    " answer is\nyounger than `max_age`, it holds the posture (generated C: gravity, springs,"
    " dampers).",
}
_GENERATED = {
    "FIND": "find_package(geometry_msgs REQUIRED)\n",
    "DEPEND": "  <depend>geometry_msgs</depend>\n",
    "GEOMETRY": "geometry_msgs ",
    "SOURCE": " generated/@PLANNER@.c",
    "NATIVE": ";-march=native",
    "EXEC": "",
    "LINK_LINE": "",
    "WAIT_LINE": "",
    "WHERE": "generated C",
    "LAUNCH": "The plug-in's spawner, beside a controller manager that is running.",
    "LAUNCH_NODE": "",
    "NODE": "@PACKAGE@_controller",
    "HOW": "The plug-in plans itself, by generated C in its updates: the whole controller of the"
    " task. The node is\nfor trying things.",
}
_WRITE = """\
        for (auto & knot : {planner}_mpc_numbers(mpc_)->knot)
          for (int k = 0; k < 3; ++k) knot.{member}[k] = target_[k];
"""
_NAME = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]")


def generate(
    task: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    planner: str = "python",
    rate: float = 1000.0,
    maintainer: str = "nobody",
    email: str = "nobody@example.com",
    license: str = "Proprietary",
    allow_outside: bool = False,
) -> list[Path]:
    """Writes a package into the folder `out`, such as ws/src/arm_mpc; returns its files.

    It holds a plug-in of ros2_control in C++ (effort in, position and velocity out of the hardware;
    generated C for what it does alone), the node that plans, their parameters, a launch file, the
    task and its robot. With planner="c" the plug-in plans itself: the whole controller is generated
    C. `name` is the package's, by default that of the folder; `rate` the updates a
    second of the controller manager. Files that an earlier call wrote are replaced; a file of yours
    that is in the way is an error.
    """
    folder = Path(out)
    package = name or folder.name
    if not _NAME.fullmatch(package) or "__" in package:
        raise InputError(
            f"a ROS package is called by small letters, digits and single underscores, not"
            f" {package!r}: give another name= (--name)"
        )
    if not (np.isfinite(rate) and rate > 0):
        raise InputError(f"rate is a number of updates a second above zero, not {rate!r}")
    if planner not in ("python", "c"):
        raise InputError(f'planner is "python" or "c", not {planner!r}')
    source = Path(task)
    loaded = load_task(source, allow_outside=allow_outside)
    if not loaded.mpc:
        raise InputError(f"{source} has no [mpc] table: `rigidgrad init ROBOT` writes one")
    period = float(loaded.mpc["period"])
    robot = loaded.robot
    check_robot(robot, loaded.system)
    prefix = identifier(robot.name)
    effort = np.where(np.isfinite(robot.limits.effort), robot.limits.effort, 1e9)
    written_c, aim = f"{package}_planner", None
    mpc = loaded.controller() if planner == "c" else None
    if mpc is not None:
        found = aim_of(mpc.problem)
        if isinstance(found.cost, Reach) and not found.cost.pose:
            aim = member_at(mpc.problem, found.part.start)
    root = [robot.frames[0]] if robot.frames else []
    values = {
        "PLANNER": written_c,
        "AIMED": "true" if aim else "false",
        "WRITE": _WRITE.format(planner=written_c, member=aim) if aim else "",
        "STATES": str(2 * robot.nv),
        "TARGETS": comment(
            f"its frame is {' or '.join(['world', *root])}, and its numbers are finite"
            if aim
            else "the first cost of the task aims at no point"
        ).replace('"', "_"),
        "FRAME_NAMES": ", ".join(json.dumps(x) for x in ["", "world", *root]),
        "MARK": f"{package}: {MARK}",
        "PACKAGE": package,
        "ROBOT": comment(robot.name).replace('"', "_").replace("--", "-"),
        "PREFIX": prefix,
        "HEADER": f"{prefix}.h",
        "JOINTS": str(robot.nv),
        "NAMES": json.dumps(list(robot.joints)),
        "EFFORT": _row(effort),
        "STIFFNESS": _row(_gains(effort, _STIFF)),
        "DAMPING": _row(_gains(effort, _DAMP)),
        "MAX_AGE": f"{max(_LATE * period, 2.0 / rate):g}",
        "RATE": f"{max(1, round(rate))}",
        "LINK": package,
        "TASK": "task.toml",
        "MAINTAINER": escape(comment(maintainer)),
        "EMAIL": escape(comment(email) if "@" not in email else _address(email)),
        "LICENSE": escape(comment(license)),
    }
    parts = _GENERATED if planner == "c" else _LINKED
    values |= {key: filled(text, values) for key, text in parts.items()}
    kind = "c" if planner == "c" else "link"
    files = {
        place.format(package=package): filled(_template(template.format(planner=kind)), values)
        for template, place in _FILES.items()
    }
    files |= _task_files(source, loaded)
    for inner in sorted({str(Path(path).parent) for path in files} | {"generated"}):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    written = []
    for path, text in files.items():
        if Path(path).parent == Path("config") and Path(path).name != "controllers.yaml":
            (folder / path).write_text(text, "utf-8")  # copies of the user's own
            written.append(folder / path)
        else:
            place = folder / path
            written += codegen.write(place.parent, {place.name: text})
    written += codegen.generate(
        robot, ["gravity_torque"], target="c", out=folder / "generated", dtypes=["float64"]
    )
    if mpc is not None:
        written += codegen.generate(mpc, target="c", out=folder / "generated", name=written_c)
        written = list(dict.fromkeys(written))
    for beside in ("main.c", "CMakeLists.txt"):  # of a library that stands alone
        (folder / "generated" / beside).unlink()
        written.remove(folder / "generated" / beside)
    header = folder / "generated" / link.HEADER
    header.write_text(link.header(), "utf-8")
    written.append(header)
    script = folder / "scripts" / "mpc_node"
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return written


def filled(text: str, values: Mapping[str, str]) -> str:
    """A template with its @NAMES@ replaced, once; an unknown one is an error of ours."""
    return re.sub(r"@([A-Z]+(?:_[A-Z]+)*)@", lambda found: values[found[1]], text)


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def _task_files(source: Path, task: Task) -> dict[str, str]:
    """The task, and the robot's file if it has one, side by side."""
    text = source.read_text("utf-8")
    files = {"config/task.toml": text}
    beside = source.parent / str(task.data["robot"])
    if beside.is_file():
        try:
            files[f"config/{beside.name}"] = beside.read_text("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{beside} is not UTF-8, so it cannot go into the package") from None
        if Path(str(task.data["robot"])) != Path(beside.name):
            files["config/task.toml"] = re.sub(
                r'(?m)^robot\s*=\s*("[^"\n]*"|\'[^\'\n]*\')',
                lambda _: f"robot = {json.dumps(beside.name)}",
                text,
                count=1,
            )
    return files


def _row(values: Sequence[float] | np.ndarray) -> str:
    return "[" + ", ".join(_number(float(v)) for v in values) + "]"


def _number(value: float) -> str:
    """As YAML has a float: with a point."""
    text = f"{value:.6g}"
    return text if re.search(r"[.e]", text) and "e" not in text else f"{value:.1f}"


def _gains(effort: np.ndarray, most: float) -> np.ndarray:
    """Of weak joints less: 0.1 rad or rad/s never ask for more than a fifth of the effort."""
    return np.minimum(most, 2.0 * effort)


def _address(email: str) -> str:
    local, _, domain = email.partition("@")
    return f"{comment(local)}@{comment(domain)}"
