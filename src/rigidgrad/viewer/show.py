"""`rg.view`: the one door to everything that shows a robot."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.robot import Robot
from rigidgrad.viewer.page import content, page


def view(
    robot: Robot,
    solution: Any = None,
    *,
    dt: float | None = None,
    q: Any = None,
    frame: str | None = None,
    paths: Mapping[str, Any] | None = None,
    points: Mapping[str, Any] | None = None,
    problem: Any = None,
    scene: Any = None,
    title: str = "",
    html: str | os.PathLike[str] | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool = True,
    announce: bool = True,
) -> Any:
    """Shows a robot with a slider a joint, or plays a motion of it, in a browser.

    `solution` is a Solution, a controller's log, or an array of positions (frames, nq) or states (frames, nq + nv), `dt` seconds apart (default: as the solution says).
    `q` is the position shown without a motion, `frame` the one whose path is drawn (default: the robot's tool). `paths` {"name": (n, 3)} and `points`
    {"name": (3,)} are drawn too, in the world. Obstacles, link spheres and targets are those of the solution; with an array or a log, those of `problem`, a Problem or an MPC.
    `scene`, an `rg.Scene`, is drawn in place of the one that the solution, the path or the problem brings.

    With `html`, writes a page that needs nothing but a browser, and gives its path. Otherwise serves one at host:port (needs the [view] extra), prints its address unless
    announce=False, and waits for Ctrl-C; with block=False it gives a `Stage` at once: `.url`, `.stop()`.
    """
    if not isinstance(robot, Robot):
        raise InputError(f"view shows a Robot, not {type(robot).__name__}; rg.load makes one")
    if html is not None:
        data = content(robot, solution, dt=dt, q=q, frame=frame, paths=paths, points=points, problem=problem, scene=scene)
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
        title=title,
        port=port,
        host=host,
        block=block,
        announce=announce,
    )


def _write(path: Path, text: str) -> Path:
    """All or nothing: a page that was there stays until the new one is whole."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o666 & ~_umask())
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written ({error.strerror}); choose another place") from None
    return path


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
