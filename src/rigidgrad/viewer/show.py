"""`rg.view`: the one door to everything that shows a robot."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from rigidgrad.errors import InputError
from rigidgrad.geometry.files import Roots
from rigidgrad.robot import Robot
from rigidgrad.viewer.page import content, page

if TYPE_CHECKING:
    from rigidgrad.control.mpc import MPC
    from rigidgrad.control.mpc.log import Log
    from rigidgrad.control.problem import Problem
    from rigidgrad.control.solution import Solution
    from rigidgrad.geometry.scene import Scene
    from rigidgrad.geometry.shapes import Shape
    from rigidgrad.viewer.motion import Timed


def view(
    robot: Robot,
    solution: Solution | Log | Timed | ArrayLike | None = None,
    *,
    dt: float | None = None,
    q: ArrayLike | None = None,
    frame: str | None = None,
    paths: Mapping[str, ArrayLike] | None = None,
    points: Mapping[str, ArrayLike] | None = None,
    problem: Problem | MPC | None = None,
    scene: Scene | Sequence[Shape] | None = None,
    roots: Roots = (),
    title: str = "",
    html: str | os.PathLike[str] | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool = True,
    announce: bool = True,
) -> Any:
    """Shows a robot with a slider for each joint, or plays a motion, in a browser.

    `solution` is a Solution, a controller's log, or an array of positions (frames, nq) or states
    (frames, nq + nv), `dt` seconds apart (default: as the solution says). `q` is the position shown
    without a motion, `frame` the one whose path is drawn (default: the robot's tool). `paths`
    {"name": (n, 3)} and `points` {"name": (3,)} are drawn too, in the world. Obstacles, link
    spheres and targets are those of the solution; with an array or a log, those of `problem`, a
    Problem or an MPC. `scene`, an `rg.Scene`, is drawn in place of the one that the solution, the
    path or the problem brings. Meshes are read from the robot's folder; `roots` names other places,
    {"package": folder}, or folders that have the packages.

    With `html`, writes a page that needs nothing but a browser, and gives its path. Otherwise
    serves one at host:port (needs the [view] extra), prints its address unless announce=False, and
    waits for Ctrl-C; with block=False it gives a `Stage` at once: `.url`, `.stop()`. `title`: of
    the page.
    """
    if not isinstance(robot, Robot):
        raise InputError(f"view shows a Robot, not {type(robot).__name__}; rg.load makes one")
    if html is not None:
        data = content(
            robot,
            solution,
            dt=dt,
            q=q,
            frame=frame,
            paths=paths,
            points=points,
            problem=problem,
            scene=scene,
            roots=roots,
        )
        text = page(data | {"title": title})
        return _write(Path(html), text)
    from rigidgrad.viewer.server import serve

    return serve(
        robot,
        solution,
        dt=dt,
        q=q,
        frame=frame,
        paths=paths,
        points=points,
        problem=problem,
        scene=scene,
        roots=roots,
        title=title,
        port=port,
        host=host,
        block=block,
        announce=announce,
    )


def _write(path: Path, text: str) -> Path:
    """All or nothing: a page that was there stays until the new one is whole."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            file.write(text)
        os.chmod(file.name, 0o666 & ~_umask())
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(
            f"{str(path)!r} cannot be written ({error.strerror}); choose another place"
        ) from None
    return path


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
