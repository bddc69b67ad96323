"""Robots and motions as HTML that needs no network: a fragment to embed, or a page of its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelError
from rigidgrad.geometry.files import Roots
from rigidgrad.model.model import Model
from rigidgrad.model.pose import Pose
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.robot import Robot
from rigidgrad.viewer.around import Arrow, Ball, around, arrow, surroundings_of
from rigidgrad.viewer.dials import dials
from rigidgrad.viewer.motion import Motion, as_motion, row_times
from rigidgrad.viewer.poses import body_poses, posture
from rigidgrad.viewer.shapes import Shape, draw
from rigidgrad.viewer.surfaces import Surface

_SCRIPTS = ("joints", "motion", "solids", "picture", "camera", "figure", "mount")
_COLORS = (
    (0.1, 0.62, 0.38, 1.0),
    (0.85, 0.33, 0.1, 1.0),
    (0.55, 0.3, 0.75, 1.0),
    (0.8, 0.62, 0.1, 1.0),
)

# nothing may be fetched: what is in the file is all there is
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


class Fragment(str):
    """HTML of a figure: a text, which a cell of Jupyter shows in a frame of its own."""

    name: str
    height: str

    def __new__(cls, text: str, name: str, height: str) -> Fragment:
        made = super().__new__(cls, text)
        made.name, made.height = name, height
        return made

    def __repr__(self) -> str:
        return f"<{self.name}: a figure in HTML, which Jupyter shows>"

    def _repr_html_(self) -> str:
        document = (
            f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f"<style>body {{ margin: 0 }}</style>{self}"
        )
        return (
            f'<iframe srcdoc="{html.escape(document)}" sandbox="allow-scripts" width="100%"'
            f' style="border: 0; height: {html.escape(self.height)}"></iframe>'
        )


def fragment(
    robot: Robot,
    solution: Any = None,
    *,
    dt: float | None = None,
    q: Any = None,
    frame: str | None = None,
    offset: Any = (0.0, 0.0, 0.0),
    paths: Mapping[str, Any] | None = None,
    points: Mapping[str, Any] | None = None,
    problem: Any = None,
    scene: Any = None,
    roots: Roots = (),
    title: str = "",
    height: str = "420px",
    theme: str | None = None,
    autoplay: bool = True,
    script: bool = True,
) -> Fragment:
    """HTML to put into a page: the robot with joint sliders, or the motion with playback. As the
    last line of a cell of Jupyter it is shown.

    `solution`: what `view` takes. `frame`: whose path is drawn, or that of the point at `offset` in
    it. `paths` {"name": (n, 3)} and `points` {"name": (3,)} are drawn too, in the world; `problem`,
    `scene` and `roots`: as in `view`. `theme`: "light" or "dark" (default: as the reader's system).
    Several fragments on one page need the script once: script=False leaves it out, but for the
    last.
    """
    data = content(
        robot,
        solution,
        dt=dt,
        q=q,
        frame=frame,
        offset=offset,
        paths=paths,
        points=points,
        problem=problem,
        scene=scene,
        roots=roots,
    )
    if theme not in (None, "light", "dark"):
        raise InputError(f'theme is "light" or "dark", not {theme!r}')
    data |= {"title": title, "height": height, "theme": theme, "autoplay": autoplay, "page": False}
    text = _figure(data) + (f"<script>{player()}</script>\n" if script else "")
    return Fragment(text, title or robot.name, height)


def page(data: Mapping[str, Any]) -> str:
    """A whole page from what `content` gives."""
    name = html.escape(str(data["title"] or data["name"]))
    style = (
        "html, body { margin: 0; height: 100%; background: #16181d; } .rigidgrad-view { height:"
        " 100dvh; border-radius: 0; }"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{_figure(dict(data) | {'height': '100dvh', 'page': True})}<script>{player()}</script>\n</body>\n</html>\n"
    )


def _figure(data: Mapping[str, Any]) -> str:
    meshes = "".join(
        f'<script type="application/json" data-rigidgrad-mesh="{name}">{_text(mesh)}</script>\n'
        for name, mesh in data["meshes"].items()
    )
    text = _text({name: value for name, value in data.items() if name != "meshes"})
    return f'{meshes}<div class="rigidgrad-view"><script type="application/json">{text}</script></div>\n'


def _text(data: Any) -> str:
    """JSON in which no "<" ends the script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def without_repeated_meshes(text: str) -> str:
    """HTML of several fragments, with the triangles of each mesh once."""
    seen: set[str] = set()

    def once(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return match[0]

    return re.sub(
        r'<script type="application/json" data-rigidgrad-mesh="(\w+)">[^<]*</script>\n', once, text
    )


@lru_cache(maxsize=1)
def player() -> str:
    """The player's script."""
    folder = resources.files("rigidgrad.viewer") / "player"
    style = (folder / "figure.css").read_text("utf-8")
    parts = [
        f"const STYLE = {json.dumps(style)};",
        *((folder / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
    ]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();"


def content(
    robot: Robot,
    solution: Any = None,
    *,
    dt: float | None = None,
    q: Any = None,
    frame: str | None = None,
    offset: Any = (0.0, 0.0, 0.0),
    paths: Mapping[str, Any] | None = None,
    points: Mapping[str, Any] | None = None,
    problem: Any = None,
    scene: Any = None,
    roots: Roots = (),
) -> dict[str, Any]:
    """All that the player needs to know, ready for JSON."""
    model, drawing = robot.model, draw(robot.model, roots)
    motion = None if solution is None else as_motion(model, solution, dt).thinned()
    start = posture(model, q) if motion is None else motion.q[0]
    poses = body_poses(model, start[None] if motion is None else motion.q)
    low, high = drawing.bounds(poses)
    lines, spots = _paths(paths or {}), _points(points or {})
    what = surroundings_of(solution, problem, scene)
    size = float(np.linalg.norm(high - low))
    drawn = around(model, what, row_times(solution, dt), size, (low + high) / 2)
    more = drawn.points(size)
    for shown in (
        *(np.asarray(p).reshape(-1, 3) for p in (paths or {}).values()),
        *(np.reshape(s["at"], (1, 3)) for s in spots),
        more,
    ):
        if len(shown):
            low, high = np.minimum(low, shown.min(axis=0)), np.maximum(high, shown.max(axis=0))
    if frame is None and what.targets:  # the path that matters is that of the point with a target
        frame, offset = what.targets[0].frame, what.targets[0].offset
    return {
        "name": robot.name,
        "title": "",
        "notes": [*drawing.notes, *(motion.notes if motion else ()), *drawn.notes],
        "nq": robot.nq,
        "joints": _joints(model),
        "shapes": [
            *_shapes(drawing.shapes),
            *(s | {"around": True} for s in _shapes(drawn.solids)),
        ],
        "meshes": {
            _digest(s.surface): _packed_surface(s.surface)
            for s in drawing.shapes
            if s.surface is not None
        },
        "dials": [
            {"label": d.label, "low": d.low, "high": d.high, "joint": d.joint}
            for d in dials(model, start)
        ],
        "start": start.tolist(),
        "motion": _motion(motion),
        "trace": _trace(model, frame, offset),
        "paths": (
            lines
            + [
                {"label": "", "points": _packed(line), "color": color}
                for line, color in drawn.lines
            ]
        ),
        "balls": [_ball(ball) for ball in drawn.balls],
        "arrows": [_arrow(one) for one in drawn.arrows],
        "points": spots,
        "low": _rounded(low),
        "high": _rounded(high),
        "theme": None,
        "autoplay": True,
    }


def _joints(model: Model) -> list[dict[str, Any]]:
    for j in model.joints:
        if j.kind.moves_as is None:
            raise ModelError(
                f"joint '{j.name}' is {j.type}, which a saved page cannot move; a live one can:"
                " leave html= out"
            )
    return [
        {
            "name": j.name,
            "type": j.kind.moves_as,
            "plain": j.kind.plain,
            "parent": model.parents[i],
            "placement": _placement(model.placements[i]),
            "axis": list(j.axis) if j.kind.has_axis else None,
            "pitch": j.pitch,
            "q": j.q,
            "nq": j.nq,
            "mimic": j.is_mimic,
            "multiplier": j.multiplier,
            "offset": j.offset,
        }
        for i, j in enumerate(model.joints)
    ]


def _shapes(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    return [
        {
            "kind": s.kind,
            "size": _rounded(s.size),
            "placement": _placement(s.placement),
            "color": _rounded(s.color),
            "body": s.body,
        }
        | ({} if s.corners is None else {"corners": _packed(s.corners)})
        | ({} if s.surface is None else {"mesh": _digest(s.surface)})
        for s in shapes
    ]


def _digest(surface: Surface) -> str:
    """What names it on a page."""
    numbers = (surface.vertices, surface.normals, surface.faces)
    return hashlib.sha256(b"|".join(n.tobytes() for n in numbers)).hexdigest()[:16]


def _packed_surface(surface: Surface) -> dict[str, Any]:
    """Vertices as 16 bits along each axis of the box around them, normals as 8 bits."""
    low = surface.vertices.min(axis=0)
    span = np.maximum(np.ptp(surface.vertices, axis=0), 1e-9)
    wide = "<u4" if len(surface.vertices) > 1 << 16 else "<u2"
    return {
        "low": _rounded(low),
        "step": _rounded(span / 65535),
        "vertices": _bytes(np.round((surface.vertices - low) / span * 65535), "<u2"),
        "normals": _bytes(np.round(127 * surface.normals), "i1"),
        "faces": _bytes(surface.faces, wide),
        "wide": wide == "<u4",
    }


def _motion(motion: Motion | None) -> dict[str, str] | None:
    return (
        None if motion is None else {"t": _packed(motion.t - motion.t[0]), "q": _packed(motion.q)}
    )


def _trace(model: Model, frame: str | None, offset: Any) -> dict[str, Any]:
    found = model.frame(tool_frame(model) if frame is None else frame)
    point = found.placement.matrix() @ np.append(np.asarray(offset, dtype=float), 1.0)
    return {"label": found.name, "body": found.body, "point": _rounded(point[:3])}


def _ball(ball: Ball) -> dict[str, Any]:
    return {
        "body": ball.body,
        "t": _packed(ball.t),
        "at": _packed(ball.at),
        "radius": _packed(ball.radius),
        "color": ball.color,
    }


def _arrow(one: Arrow) -> dict[str, Any]:
    """Its segments, (5, 2, 3) of each row, zeros where there are none."""
    rows = np.zeros((len(one.t), 5, 2, 3))
    for k, (start, tip) in enumerate(zip(one.start, one.tip, strict=True)):
        segments = arrow(start, tip)
        rows[k, : len(segments)] = segments
    return {"t": _packed(one.t - one.t[0]), "segments": _packed(rows), "color": one.color}


def _paths(paths: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = []
    for k, (name, path) in enumerate(paths.items()):
        array = np.asarray(path, dtype=float)
        if (
            array.ndim != 2
            or array.shape[1] != 3
            or len(array) == 0
            or not np.all(np.isfinite(array))
        ):
            raise InputError(
                f"path {name!r} has shape {array.shape}; a path is finite numbers of shape (n, 3)"
            )
        made.append(
            {"label": str(name), "points": _packed(array), "color": _COLORS[k % len(_COLORS)]}
        )
    return made


def _points(points: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = []
    for k, (name, at) in enumerate(points.items()):
        array = np.asarray(at, dtype=float)
        if array.shape != (3,) or not np.all(np.isfinite(array)):
            raise InputError(f"point {name!r} has shape {array.shape}; a point is 3 finite numbers")
        made.append({"label": str(name), "at": _rounded(array), "color": _COLORS[k % len(_COLORS)]})
    return made


def _placement(pose: Pose) -> list[float]:
    return [float(x) for row in pose.R for x in row] + [float(x) for x in pose.p]


def _rounded(numbers: Sequence[float] | np.ndarray) -> list[float]:
    return [float(f"{x:.7g}") for x in numbers]


def _packed(array: np.ndarray) -> str:
    """As base64 of little-endian float32."""
    return _bytes(array, "<f4")


def _bytes(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")
