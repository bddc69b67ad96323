"""`view` on a live page: sliders for a robot, playback for a motion."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from rigidgrad.geometry.files import Roots
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.robot import Robot
from rigidgrad.viewer.around import around, surroundings_of
from rigidgrad.viewer.dials import Dial, dials, position
from rigidgrad.viewer.inputs import listen, one_of, within
from rigidgrad.viewer.motion import Motion, as_motion, row_times
from rigidgrad.viewer.poses import body_poses, frame_path, posture
from rigidgrad.viewer.stage import Stage

_RATE = 40.0  # frames a second
_PATH = (26, 102, 217)
_SPEEDS = ("0.1×", "0.25×", "0.5×", "1×", "2×", "4×")


def serve(
    robot: Robot,
    solution: Any,
    *,
    dt: float | None,
    q: Any,
    frame: str | None,
    paths: Mapping[str, Any] | None,
    points: Mapping[str, Any] | None,
    problem: Any,
    scene: Any,
    roots: Roots,
    title: str,
    port: int,
    host: str,
    block: bool,
    announce: bool,
) -> Stage | None:
    """The page behind `rg.view`; see there."""
    model = robot.model
    motion = None if solution is None else as_motion(model, solution, dt)
    start = posture(model, q) if motion is None else motion.q[0]
    what = surroundings_of(solution, problem, scene)
    aimed = what.targets[0] if what.targets and frame is None else None
    tip = aimed.frame if aimed else model.frame(tool_frame(model) if frame is None else frame).name
    stage = Stage(robot, start, host=host, port=port, title=title, roots=roots)
    try:
        poses = body_poses(model, start[None] if motion is None else motion.thinned().q)
        low, high = stage.drawing.bounds(poses)
        size = float(np.linalg.norm(high - low))
        drawn = around(model, what, row_times(solution, dt), size, (low + high) / 2)
        seen = np.concatenate([low[None], high[None], drawn.points(size)])
        stage.look(seen.min(axis=0), seen.max(axis=0))
        for note in (*stage.drawing.notes, *(motion.notes if motion else ()), *drawn.notes):
            stage.note(note)
        stage.surround(drawn)
        _add_extras(stage, paths or {}, points or {})
        if motion is None:
            _Sliders(stage, start)
        else:
            stage.line(
                "trace",
                frame_path(model, poses, tip, aimed.offset if aimed else (0.0, 0.0, 0.0)),
                _PATH,
            )
            _Playback(stage, motion, tip)
        listen(stage.server.gui.add_checkbox("Joint axes", False), bool, stage.show_axes)
        if announce:
            stage.announce()
    except BaseException:
        stage.stop()
        raise
    if not block:
        return stage
    with stage:
        stage.wait()
    return None


def _add_extras(stage: Stage, paths: Mapping[str, Any], points: Mapping[str, Any]) -> None:
    # the same checks and colours as on a saved page
    from rigidgrad.viewer.page import _paths, _points

    for k, (path, drawn) in enumerate(zip(paths.values(), _paths(paths), strict=True)):
        r, g, b, _ = drawn["color"]
        stage.line(
            f"path_{k}",
            np.asarray(path, dtype=float),
            (round(255 * r), round(255 * g), round(255 * b)),
            3.0,
        )
    for k, spot in enumerate(_points(points)):
        color = tuple(round(255 * c) for c in spot["color"][:3])
        stage.server.scene.add_icosphere(
            f"/points/{k}", radius=0.015, color=color, position=tuple(spot["at"])
        )


class _Sliders:
    """One a degree of freedom, within the limits."""

    def __init__(self, stage: Stage, start: np.ndarray):
        self.stage, self.start = stage, start
        self.lock = threading.Lock()
        gui, model = stage.server.gui, stage.robot.model
        self.dials = dials(model, start)
        self.values = [dial.start for dial in self.dials]
        with gui.add_folder("Joints"):
            self.inputs = [self._slider(k, dial) for k, dial in enumerate(self.dials)]
            reset = gui.add_button("Back to the start")
        reset.on_click(self._reset)

    def _slider(self, k: int, dial: Dial) -> Any:
        span = dial.high - dial.low
        if span <= 0:
            return None
        step = 10.0 ** math.floor(math.log10(span)) / 1000
        slider = self.stage.server.gui.add_slider(dial.label, dial.low, dial.high, step, dial.start)
        return listen(slider, within(dial.low, dial.high), lambda value: self._moved(k, value))

    def _moved(self, k: int, value: float) -> None:
        # viser calls from many threads: the last to come must be the last to be drawn
        with self.lock:
            self.values[k] = value
            self.stage.pose(position(self.stage.robot.model, self.values))

    def _reset(self, _: Any) -> None:
        for dial, slider in zip(self.dials, self.inputs, strict=True):
            if slider is not None:
                slider.value = dial.start
        with self.lock:
            self.values = [dial.start for dial in self.dials]
            self.stage.pose(position(self.stage.robot.model, self.values))


class _Playback:
    """Plays a motion: a thread moves time and robot, callbacks only write what is wanted."""

    def __init__(self, stage: Stage, motion: Motion, tip: str):
        self.stage, self.motion = stage, motion
        self.lock = threading.Lock()
        self.time, self.speed, self.playing = 0.0, 1.0, True
        gui, duration = stage.server.gui, max(motion.duration, 1e-3)
        with gui.add_folder("Playback"):
            self.button = gui.add_button("Pause")
            self.slider = gui.add_slider(
                "Time [s]", 0.0, duration, 10.0 ** math.floor(math.log10(duration)) / 1000, 0.0
            )
            self.speeds = gui.add_dropdown("Speed", _SPEEDS, initial_value="1×")
            self.path = gui.add_checkbox(f"Path of {tip}", True)
        self.button.on_click(lambda _: self._toggle())
        listen(self.slider, within(0.0, duration), self._scrub)
        listen(self.speeds, one_of(_SPEEDS), self._set_speed)
        listen(self.path, bool, lambda shown: stage.show_line("trace", shown))
        stage.run("playback", self._run)

    def _toggle(self) -> None:
        with self.lock:
            self.playing = not self.playing
            self.button.label = "Pause" if self.playing else "Play"

    def _set_speed(self, speed: str) -> None:
        with self.lock:
            self.speed = float(speed.rstrip("×"))

    def _scrub(self, seconds: float) -> None:
        with self.lock:
            self.time, self.playing = seconds, False
            self.button.label = "Play"
            self._show(self.time)

    def _show(self, seconds: float) -> None:
        self.stage.pose(self.motion.at(seconds, self.stage.robot.model))
        self.stage.surround_at(seconds)

    def _run(self) -> None:
        last = time.perf_counter()
        while self.stage.alive:
            time.sleep(1.0 / _RATE)
            now = time.perf_counter()
            with self.lock:
                if self.playing and self.stage.watched:
                    self.time += self.speed * (now - last)
                    # rests a moment at the end
                    if self.time > self.motion.duration + 0.6 * self.speed:
                        self.time = 0.0
                    shown = min(self.time, self.motion.duration)
                    self._show(shown)
                    self.slider.value = shown
            last = now
