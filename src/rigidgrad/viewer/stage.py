"""A robot on a live page, drawn by viser; what `view` and `play` stand on."""

from __future__ import annotations

import contextlib
import io
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, printable
from rigidgrad.geometry.files import Roots
from rigidgrad.robot import Robot
from rigidgrad.viewer.around import Around, Arrow, Ball, arrow
from rigidgrad.viewer.guard import guarded, own_names
from rigidgrad.viewer.inputs import as_text
from rigidgrad.viewer.meshes import LIVE_TRIANGLES
from rigidgrad.viewer.poses import body_poses, quaternions
from rigidgrad.viewer.shapes import Drawing, Shape, draw

_AXIS_COLOR = (190, 25, 140)
_FURTHEST = 1e6  # metres: what is further out cannot be drawn
_BRAND = (26, 102, 217)


class Stage:
    """A page at `url` that shows a robot; `pose(q)` moves it. `server` is viser's own, for whatever
    else shall be on the page.
    """

    def __init__(
        self,
        robot: Robot,
        q: np.ndarray,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        title: str = "",
        roots: Roots = (),
    ):
        self.robot, self.drawing = robot, draw(robot.model, roots, LIVE_TRIANGLES)
        self.server = _open(host, port, title or robot.name)
        self.host, self.port = host, int(self.server.get_port())
        self.server.gui.configure_theme(
            show_logo=False, show_share_button=False, brand_color=_BRAND
        )
        self.server.gui.main_panel.dock_right()
        self._bodies = self._add_shapes(self.drawing)
        self._axes = self._add_axes()
        self._lines: dict[str, Any] = {}
        self._moving: list[tuple[Any, Ball]] = []
        self._arrows: tuple[Arrow, ...] = ()
        self.alive = True
        self._threads: list[threading.Thread] = []
        self.pose(q)

    @property
    def url(self) -> str:
        shown = "localhost" if self.host in ("127.0.0.1", "0.0.0.0", "::", "::1") else self.host
        return f"http://{shown}:{self.port}"

    def announce(self) -> None:
        """Where the page is, also from another machine."""
        print(f"{printable(self.robot.name)} is at {self.url} (Ctrl-C ends)")
        if self.host in ("127.0.0.1", "::1"):
            print(
                f"from another machine: ssh -L {self.port}:localhost:{self.port}"
                f" {socket.gethostname()}, then open the same address there"
            )
        else:
            print(f"anyone who can reach {self.host}:{self.port} can open it", file=sys.stderr)

    # --- the robot --------------------------------------------------------------------------------

    def _add_shapes(self, drawing: Drawing) -> dict[int, Any]:
        scene, bodies = self.server.scene, {}
        for body in sorted({s.body for s in drawing.shapes} | set(self.robot.model.bodies)):
            bodies[body] = scene.add_frame(_node(body), show_axes=False)
        for k, shape in enumerate(drawing.shapes):
            _add_shape(scene, f"{_node(shape.body)}/shape_{k}", shape)
        return bodies

    def _add_axes(self) -> list[Any]:
        model, made = self.robot.model, []
        low, high = self.drawing.bounds(body_poses(model, np.array(self.robot.neutral())))
        reach = 0.06 * float(np.linalg.norm(high - low))
        for i, joint in enumerate(model.joints):
            if joint.kind.has_axis:
                along = reach * np.array(joint.axis)
                ends = np.array([[-along, along]])
                line = {"thickness": 3.0, "thickness_units": "screen", "visible": False}
                made.append(
                    self.server.scene.add_line_segments(
                        f"{_node(i)}/axis", ends, _AXIS_COLOR, **line
                    )
                )
        return made

    def show_axes(self, shown: bool) -> None:
        for line in self._axes:
            line.visible = shown

    def pose(self, q: np.ndarray) -> None:
        """Moves the robot to a position (nq,). Where that is not finite, it stays where it is: a
        browser is never sent NaN.
        """
        q = np.asarray(q, dtype=float)
        if not np.all(np.isfinite(q)) or not np.all(
            np.abs(poses := body_poses(self.robot.model, q)) < _FURTHEST
        ):
            return
        turns = quaternions(poses[:, :3, :3])
        with self.server.atomic():
            for body, node in self._bodies.items():
                if body >= 0:
                    node.position = poses[body, :3, 3]
                    node.wxyz = turns[body]

    # --- around it --------------------------------------------------------------------------------

    def look(self, low: np.ndarray, high: np.ndarray) -> None:
        """Puts the camera where it sees a box, and the ground under it."""
        middle, size = (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, 1e-3)
        camera = self.server.initial_camera
        camera.look_at = tuple(middle)
        camera.position = tuple(middle + 1.9 * size * np.array([0.62, -0.72, 0.38]))
        camera.near, camera.far = size / 100, 100 * size
        decade = 10.0 ** math.floor(math.log10(size / 3))
        cell = max(m * decade for m in (1, 2, 5) if m * decade <= size / 3)
        width = 2 * cell * math.ceil(5 * size / cell)
        self.ground = self.server.scene.add_grid(
            "/ground",
            width=width,
            height=width,
            cell_size=cell,
            cell_color=(225, 228, 233),
            section_size=5 * cell,
            section_color=(190, 196, 205),
            position=(0.0, 0.0, min(0.0, float(low[2])) - 1e-3 * size),
        )

    def line(
        self, name: str, points: np.ndarray, color: tuple[int, int, int], width: float = 4.0
    ) -> None:
        """Draws a path through points (n, 3), or moves the one of that name. A single point is no
        path, and one that is not finite is left out.
        """
        points = np.asarray(points, dtype=float)
        points = points[np.all(np.abs(points) < _FURTHEST, axis=1)].astype(np.float32)
        if len(points) < 2:
            return
        segments = np.stack([points[:-1], points[1:]], axis=1)
        known = self._lines.get(name)
        if known is None:
            line = {"thickness": width, "thickness_units": "screen"}
            self._lines[name] = self.server.scene.add_line_segments(
                f"/lines/{name}", segments, color, **line
            )
        else:
            known.points = segments

    def arrow(self, name: str, start: np.ndarray, tip: np.ndarray, color: tuple[int, ...]) -> None:
        """Draws an arrow, or moves the one of that name; one without length is hidden."""
        self._segments(name, arrow(start, tip), color)

    def _segments(self, name: str, segments: np.ndarray, color: tuple[int, ...]) -> None:
        shown = len(segments) > 0 and bool(np.all(np.abs(segments) < _FURTHEST))
        known = self._lines.get(name)
        if shown and known is None:
            line = {"thickness": 5.0, "thickness_units": "screen"}
            known = self._lines[name] = self.server.scene.add_line_segments(
                f"/lines/{name}", segments.astype(np.float32), color, **line
            )
        elif known is not None:
            known.visible = shown
            if shown:
                known.points = segments.astype(np.float32)

    def surround(self, drawn: Around) -> None:
        """Draws a scene, obstacles, link spheres, targets and forces."""
        self._arrows = drawn.arrows
        for k, (line, color) in enumerate(drawn.lines):
            self.line(f"around_{k}", line, _bytes(color), 3.0)
        for k, solid in enumerate(drawn.solids):
            _add_shape(self.server.scene, f"/around/solid_{k}", solid)
        for k, ball in enumerate(drawn.balls):
            at, radius = ball.when(0.0)
            above = _node(ball.body) if ball.body >= 0 else "/around"
            opacity = None if ball.color[3] >= 1 else ball.color[3]
            made = self.server.scene.add_icosphere(
                f"{above}/ball_{k}",
                radius=1.0,
                scale=radius,
                color=_bytes(ball.color),
                opacity=opacity,
                position=at,
            )
            if len(ball.t) > 1:
                self._moving.append((made, ball))
        self.surround_at(0.0)

    def surround_at(self, seconds: float) -> None:
        """Moves what moves around the robot to where it is at a time."""
        for made, ball in self._moving:
            made.position, made.scale = ball.when(seconds)
        for k, one in enumerate(self._arrows):
            self._segments(f"arrow_{k}", one.when(seconds), _bytes(one.color))

    def note(self, text: str) -> None:
        """A line of text on the panel, shown as it is."""
        self.server.gui.add_markdown(as_text(text))

    def show_line(self, name: str, shown: bool) -> None:
        if name in self._lines:
            self._lines[name].visible = shown

    @property
    def watched(self) -> bool:
        """Whether anybody has the page open."""
        return bool(self.server.get_clients())

    # --- its end ----------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600.0)

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Calls `work` on a thread, which is to end when `alive` does."""
        thread = threading.Thread(target=work, name=f"rigidgrad-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.alive = False
        for thread in self._threads:
            thread.join()
        with _quiet():
            self.server.stop()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _node(body: int) -> str:
    # links' names may hold slashes, which mean something to viser
    return f"/robot/body_{body}" if body >= 0 else "/robot/world"


def _bytes(color: tuple[float, float, float, float]) -> tuple[int, int, int]:
    r, g, b = (round(255 * c) for c in color[:3])
    return r, g, b


def _add_shape(scene: Any, name: str, shape: Shape) -> None:
    look = {
        "color": _bytes(shape.color),
        "opacity": None if shape.color[3] >= 1 else shape.color[3],
        "position": shape.placement.p,
        "wxyz": quaternions(np.array(shape.placement.R)),
    }
    if shape.kind == "box":
        scene.add_box(name, dimensions=shape.size, **look)
    elif shape.kind == "sphere":
        scene.add_icosphere(name, radius=shape.size[0], **look)
    elif shape.kind == "cylinder":
        scene.add_cylinder(name, radius=shape.size[0], height=shape.size[1], **look)
    elif shape.surface is not None:
        # normals are made there from vertices, which are apart at edges
        vertices = shape.surface.vertices.astype(np.float32)
        scene.add_mesh_simple(name, vertices, shape.surface.faces, side="double", **look)
    elif shape.corners is not None:
        vertices = shape.corners.reshape(-1, 3)
        scene.add_mesh_simple(
            name, vertices, np.arange(len(vertices)).reshape(-1, 3), flat_shading=True, **look
        )
    else:
        import trimesh  # comes with viser

        mesh = trimesh.creation.capsule(radius=shape.size[0], height=shape.size[1])
        mesh.apply_translation([0, 0, -mesh.bounds.mean(axis=0)[2]])
        scene.add_mesh_simple(name, mesh.vertices, mesh.faces, **look)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """viser prints a banner of its own; ours says more."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _open(host: str, port: int, label: str) -> Any:
    try:
        import viser
    except ImportError:
        raise RigidgradError(
            "a live page needs viser: pip install 'rigidgrad[view]'; html= saves one without it"
        ) from None
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise InputError(f"port is a whole number up to 65535, not {port!r}")
    # viser tries port after port, whatever the reason: an address that is not this machine's would
    # hang
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except (OSError, TypeError, OverflowError, UnicodeError):
        raise InputError(
            f"{host!r} is no address of this machine; 127.0.0.1 serves this machine alone, 0.0.0.0"
            " everyone"
        ) from None
    with _quiet(), guarded(own_names(host)):
        return viser.ViserServer(host=host, port=port, label=label, verbose=False)
