"""`rigidgrad new`: three questions, then a folder with a script that runs, for the user's own
robot.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rigidgrad.commands.terminal import add_output, facts, show, write_text
from rigidgrad.errors import InputError, ModelWarning, UsageError, unknown_name

# what a script can be about, and how the question puts it
JOBS = {
    "motion": "plan a motion within the robot's limits",
    "control": "follow a path under model predictive control, in simulation",
    "reach": "find joint positions that reach a pose (inverse kinematics)",
    "dynamics": "compute dynamics and gradients of many states",
}
_ANSWER = "an answer was expected; name the robot, --job and --out on the command line instead"


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "new",
        help="ask three questions and write a script for your robot",
        description=(
            "Asks which robot, what for and where, and writes a folder with a script that runs."
            " Answers can be given as arguments; what is not given is asked for."
        ),
    )
    parser.add_argument(
        "robot", nargs="?", help="a URDF or MJCF file, or the name of a bundled robot"
    )
    parser.add_argument("--job", choices=list(JOBS), help="what the script does")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where it is written")
    parser.add_argument(
        "--floating-base", action="store_true", help="put a free-flyer under the root link"
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rigidgrad.model.source import bundled
    from rigidgrad.robot import load

    ask = Questions(sys.stdin.isatty() and not arguments.quiet and not arguments.json)
    source = arguments.robot or ask.text(
        f"Which robot? A URDF or MJCF file, or one of {', '.join(bundled())}", "iiwa14", _existing
    )
    robot = load(source, floating_base=arguments.floating_base)
    job = arguments.job or ask.choice("What for?", JOBS)
    folder = arguments.out or Path(ask.text("In which folder?", f"my_{_plain(robot.name)}"))
    script = folder / f"{job}.py"
    files = [folder / "task.toml", script] if job in ("motion", "control") else [script]
    for path in files:
        if path.exists() and not arguments.force:
            raise UsageError(
                f"{str(path)!r} exists; --force replaces it, --out FOLDER names another"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be made: {error.strerror}") from None
    if source not in bundled():
        source = Path(os.path.relpath(source, folder)).as_posix()
    for path in files:
        write_text(path, _text(path, job, robot, source))
    line = f"cd {shlex.quote(str(folder))} && python {script.name}"
    data = {"robot": robot.name, "job": job, "files": files, "next": line}
    show(arguments, data, facts({"wrote": ", ".join(map(str, files)), "next": line}))


class Questions:
    """Asked on a terminal; without one, a question is an error that names the options."""

    def __init__(self, terminal: bool):
        self.terminal = terminal

    def text(self, question: str, default: str, check: Callable[[str], str] | None = None) -> str:
        """One line; the default where it is empty. Asked again until `check` accepts it."""
        if not self.terminal:
            raise UsageError(_ANSWER)
        while True:
            print(f"{question} [{default}]: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise UsageError(_ANSWER)
            try:
                answer = line.strip() or default
                return check(answer) if check else answer
            except InputError as error:
                print(error, file=sys.stderr)

    def choice(self, question: str, options: dict[str, str]) -> str:
        """One of the options, by number or by name."""
        names = list(options)

        def check(answer: str) -> str:
            if answer.isdigit() and 1 <= int(answer) <= len(names):
                return names[int(answer) - 1]
            if answer not in options:
                raise InputError(f"{answer!r} is none of 1 to {len(names)}, {', '.join(names)}")
            return answer

        if self.terminal:
            print(question, file=sys.stderr)
            for number, (name, about) in enumerate(options.items(), 1):
                print(f"  {number}  {name:9} {about}", file=sys.stderr)
        return self.text("Number or name", names[0], check)


def _existing(source: str) -> str:
    """A bundled robot, or a file."""
    from rigidgrad.model.source import bundled

    if source in bundled():
        return source
    path = Path(source).expanduser()
    if not path.is_file():
        if path.suffix or len(path.parts) > 1:
            raise InputError(f"there is no file {source!r}")
        raise InputError(str(unknown_name("bundled robot", source, bundled())))
    return str(path)


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower() or "robot"


def _text(path: Path, job: str, robot: Any, source: str) -> str:
    from rigidgrad.model.tool_frame import tool_frame
    from rigidgrad.tasks.template import template

    if path.name == "task.toml":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)  # said when the robot was loaded
            return template(robot, source)
    frame = tool_frame(robot.model, base=False)
    text = {"motion": _MOTION, "control": _CONTROL, "reach": _REACH, "dynamics": _DYNAMICS}[job]
    return text.format(
        name=_plain(robot.name),
        load=_loading(robot, source),
        frame=ascii(frame),
        path="from pathlib import Path\n\n" if "/" in source or "." in source else "",
    )


def _loading(robot: Any, source: str) -> str:
    """The line of Python that loads the robot."""
    from rigidgrad.model.source import bundled

    what = ascii(source) if source in bundled() else f"Path(__file__).parent / {source!a}"
    more = ["floating_base=True"] if robot.model.floating_base else []
    return f"rg.load({', '.join([what, *more])})"


_MOTION = '''\
"""A motion of {name}, planned within its limits. Run it, then change task.toml and this file."""

from pathlib import Path

import rigidgrad as rg
from rigidgrad.tasks import load_task

here = Path(__file__).parent
task = load_task(here / "task.toml")       # robot, start, costs and limits, with comments
solution = rg.solve(task.problem, task.solver)

print(solution.status, "after", solution.iterations, "iterations:", solution.message)
for name, left in solution.remaining.items():
    print(name, "ends", left, "away")
print("states", solution.x.shape, "controls", solution.u.shape)
print("wrote", rg.report(solution, here / "report.html", robot=task.robot))
'''

_CONTROL = '''\
"""{name} follows a path under model predictive control, in simulation. Change task.toml and this file."""

from pathlib import Path

import rigidgrad as rg
from rigidgrad.tasks import load_task

here = Path(__file__).parent
task = load_task(here / "task.toml")       # robot, costs, limits, the target and the simulated plant
mpc, plant = task.controller(), task.plant()

while plant.time < 2.0:                     # put your own robot here: measure, step, send
    x, seen = plant.measure()
    plant.advance(mpc.step(x, plant.time, seen))
print("fallbacks:", {{name: count for name, count in mpc.counts.items() if count}} or "none")
print("wrote", rg.report(mpc.log, here / "report.html", robot=task.robot, problem=mpc))
'''

_REACH = '''\
"""Joint positions of {name} that reach poses: inverse kinematics, many targets at once."""

{path}import rigidgrad as rg

robot = {load}
frame = {frame}                            # robot.frames lists all of them

# a thousand poses that can be reached: those of random positions
poses = robot.forward_kinematics(robot.random(batch=(1000,), seed=0).q)[frame]
found = robot.inverse_kinematics({{frame: poses}})
print("reached", found.success.mean() * 100, "% of", len(poses), "poses")
print("largest error", found.error[found.success].max())
print("one of them:", found.q[0])
'''

_DYNAMICS = '''\
"""Dynamics and exact gradients of many states of {name}."""

{path}import rigidgrad as rg

robot = {load}
print(robot)                               # joints, masses, limits

q, v, tau = robot.random(batch=(4096,), seed=0)
a = robot.aba(q, v, tau)                   # forward dynamics, (4096, nv)
d = robot.aba_derivatives(q, v, tau)       # d.dq, d.dv, d.dtau, each (4096, nv, nv)
print("accelerations", a.shape, "gradients", d.dq.shape, d.dv.shape, d.dtau.shape)

back = robot.rnea(q, v, a)                 # inverse dynamics gives the torques again
print("largest error of the way back", abs(back - tau).max() / abs(tau).max())
'''
