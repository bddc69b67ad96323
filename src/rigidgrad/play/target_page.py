"""Pages with a target that the player drags."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from rigidgrad.play.live_page import LivePage
from rigidgrad.viewer.inputs import point_within

COLOR = (30, 160, 95)
_UPRIGHT = (1.0, 0.0, 0.0, 0.0)  # the target's quaternion, always


class TargetPage(LivePage):
    """A session with a point to go to: `session.aim(point)`, and `now.target`."""

    _dragged = -math.inf

    def _build_target(self, home: Any, axes: tuple[bool, bool, bool] = (True, True, True)) -> None:
        (low, high), size = self.scene.space, self.size
        self._reachable = point_within(low - 2 * size, high + 2 * size)
        view = self.stage.server.scene
        self.target = view.add_transform_controls(
            "/target",
            scale=0.11 * size,
            active_axes=axes,
            disable_rotations=True,
            disable_sliders=not all(axes),
            depth_test=False,
            position=home,
        )
        self.target.on_update(self._on_drag)
        view.add_icosphere("/target/ball", radius=0.012 * size, color=COLOR, opacity=0.8)

    async def _on_drag(self, event: Any) -> None:
        self._dragged = math.inf if event.phase != "end" else time.perf_counter()
        point = self._reachable(event.target.position)
        if point is None or not np.array_equal(point, event.target.position):
            event.target.position = self.session.now.target if point is None else point
        if not np.array_equal(event.target.wxyz, _UPRIGHT):
            event.target.wxyz = _UPRIGHT
        if point is not None:
            self.session.aim(point)

    def _on_again(self) -> None:
        self._dragged = -math.inf
        super()._on_again()

    def _draw_target(self, now: Any) -> None:
        # what is in the player's hand is not moved by ours
        held = time.perf_counter() - self._dragged < 0.5
        shown = self._reachable(self.target.position)
        if not held and (shown is None or not np.allclose(shown, now.target, atol=1e-6)):
            self.target.position = now.target
