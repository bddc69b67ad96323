"""A page on which a target is dragged, and the robot reaches there: inverse kinematics at every
move of the hand.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from rigidgrad.ik import Frame
from rigidgrad.model.tool_frame import tool_frame
from rigidgrad.robot import Robot
from rigidgrad.rotations import rotation_from_quaternion
from rigidgrad.viewer.inputs import as_text, listen, point_within
from rigidgrad.viewer.poses import body_poses, posture, quaternions
from rigidgrad.viewer.stage import Stage

_RATE = 60.0  # times a second that wishes are looked at
_FAR = (220, 30, 60)
_SEEDS = 32  # starts, beside where the robot is


def reach(
    robot: Robot,
    *,
    frame: str | None = None,
    q: Any = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool = True,
    announce: bool = True,
) -> ReachPage | None:
    """Serves the page and, with `block`, waits for Ctrl-C. Needs the [view] extra.

    `frame` is what is dragged (default: the robot's tool), `q` where the robot begins. With
    block=False it gives the page: `.url`, `.q`, `.stop()`.
    """
    page = ReachPage(robot, frame, posture(robot.model, q), host=host, port=port)
    if announce:
        page.stage.announce()
    if not block:
        return page
    with page:
        page.stage.wait()
    return None


class ReachPage:
    """A robot on a stage with a target in the player's hand. viser's callbacks only write wishes; a
    thread solves and draws.
    """

    def __init__(self, robot: Robot, frame: str | None, start: np.ndarray, *, host: str, port: int):
        self.robot, self.frame = robot, frame or tool_frame(robot.model)
        self.q, self.start = start, start
        self.found: Any = None  # the last result
        self.target = np.array(robot.forward_kinematics(start)[self.frame])
        self._asked = self._seed = 0
        self._oriented, self._fresh = True, False
        self._wish = threading.Condition()
        # compiles, before anybody waits, and names a frame that does not move
        self._solve(self.target, start, True, 0)
        self.q = start
        self.stage = Stage(robot, start, host=host, port=port, title=f"rigidgrad ik: {robot.name}")
        self.url = self.stage.url
        try:
            self._build()
        except BaseException:
            self.stage.stop()
            raise
        self.stage.run("reach", self._run)

    def _build(self) -> None:
        low, high = self.stage.drawing.bounds(body_poses(self.robot.model, self.start[None]))
        size = max(float(np.linalg.norm(high - low)), 1e-3)
        middle = 0.5 * (low + high)
        self._reachable = point_within(middle - 5 * size, middle + 5 * size)
        self.stage.look(low - 0.2 * size, high + 0.2 * size)
        for note in self.stage.drawing.notes:
            self.stage.note(note)
        view, gui = self.stage.server.scene, self.stage.server.gui
        self.handle = view.add_transform_controls(
            "/target", scale=0.18 * size, depth_test=False, position=self.target[:3, 3]
        )
        self.handle.wxyz = quaternions(self.target[:3, :3])
        self.handle.on_update(self._on_drag)
        self.stage.note(f"Drag the target: {self.frame} follows, within the limits of the joints.")
        self.status = gui.add_markdown("")
        self.oriented = gui.add_checkbox("Rotation counts", True)
        listen(self.oriented, bool, self._on_oriented)
        self.other = gui.add_button("Another solution")
        self.other.on_click(lambda _: self._want(seed=True))
        self.again = gui.add_button("Back to the start", color="gray")
        self.again.on_click(lambda _: self._on_again())

    # --- what the player does: callbacks, which only write wishes ---------------------------------

    async def _on_drag(self, event: Any) -> None:
        point = self._reachable(event.target.position)
        turn = np.array(event.target.wxyz, dtype=float)
        length = float(np.linalg.norm(turn)) if turn.shape == (4,) else 0.0
        if point is None or not 1e-3 < length < 1e3:
            event.target.position, event.target.wxyz = (
                self.target[:3, 3],
                quaternions(self.target[:3, :3]),
            )
            return
        if not np.array_equal(point, event.target.position):
            event.target.position = point
        T = np.eye(4)
        w, x, y, z = turn / length
        T[:3, :3], T[:3, 3] = rotation_from_quaternion(x, y, z, w), point
        self._want(T)

    def _on_oriented(self, counts: bool) -> None:
        self._oriented = counts
        self._want()

    def _on_again(self) -> None:
        T = np.array(self.robot.forward_kinematics(self.start)[self.frame])
        self.handle.position, self.handle.wxyz = T[:3, 3], quaternions(T[:3, :3])
        with self._wish:
            self.q = self.start
        self._want(T)

    def _want(self, T: np.ndarray | None = None, seed: bool = False) -> None:
        with self._wish:
            self.target = self.target if T is None else T
            self._seed += seed
            self._asked += 1
            self._fresh = seed
            self._wish.notify()

    # --- solving and drawing ----------------------------------------------------------------------

    def _solve(
        self, T: np.ndarray, q: np.ndarray, oriented: bool, seed: int, fresh: bool = False
    ) -> None:
        began = time.perf_counter()
        task = Frame(self.frame, T, free=() if oriented else "rotation")
        self.found = self.robot.inverse_kinematics(
            task, None if fresh else q, seeds=_SEEDS + 1, seed=seed
        )
        self.taken = time.perf_counter() - began
        self.q = self.found.q

    def _run(self) -> None:
        done = 0
        while self.stage.alive:
            with self._wish:
                if self._asked == done:
                    self._wish.wait(1.0 / _RATE)
                if self._asked == done:
                    continue
                done, T, q, oriented, seed, fresh = (
                    self._asked,
                    self.target,
                    self.q,
                    self._oriented,
                    self._seed,
                    self._fresh,
                )
            self._solve(T, q, oriented, seed, fresh)
            self.stage.pose(self.q)
            self.status.content = self._status()
            ends = np.stack([T[:3, 3], self.robot.forward_kinematics(self.q)[self.frame][:3, 3]])
            self.stage.line("miss", ends, _FAR, 4.0)
            self.stage.show_line("miss", not self.found.success)

    def _status(self) -> str:
        r = self.found
        if r.success:
            said = f"**reached** in {1e6 * self.taken:.0f} µs, {int(r.iterations)} steps"
        else:
            said = (
                f"**out of reach** by {1e3 * float(r.position_error):.1f} mm and"
                f" {np.degrees(float(r.rotation_error)):.1f}°"
            )
        numbers = as_text(", ".join(f"{x:.3f}" for x in self.q))
        return f"{said}  \n{numbers}"

    def stop(self) -> None:
        self.stage.stop()

    def __enter__(self) -> ReachPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
