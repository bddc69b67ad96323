"""The page of a robot that stands: a target for its hand to drag, its weight to shift by sliders;
forces on its feet and its centre of mass are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.play.balancing import FARTHEST, Balance, Balanced, BalanceScene
from rigidgrad.play.feet_drawing import FeetDrawing
from rigidgrad.play.live_page import slider, status_lines
from rigidgrad.play.target_page import TargetPage
from rigidgrad.viewer.inputs import as_text


class BalancePage(TargetPage):
    """A standing robot on a stage."""

    scene: BalanceScene
    session: Balance
    error_title, error_scale = "From the hand to the target [mm]", 1e3

    def __init__(
        self, scene: BalanceScene, session: Any = None, *, host: str = "127.0.0.1", port: int = 8080
    ):
        super().__init__(scene, session or Balance(scene), scene.start, host=host, port=port)

    def _build(self) -> None:
        gui = self.stage.server.gui
        self._shown = self.session.settings.shift
        self.feet = FeetDrawing(self.stage, self.scene, self.size)
        self._build_target(self.scene.home)
        self._build_load((self.scene.hand, (0.0, 0.0, 0.0)), 0.03 * self.size)
        self.stage.note(self.scene.hint)
        self.status = gui.add_markdown("")
        self.shift = [
            self._shift_slider(gui, k, label)
            for k, label in enumerate(("Weight forward [m]", "Weight left [m]"))
        ]
        self._build_trouble(gui)
        self._build_plots(gui)
        self.friction = slider(
            gui,
            "Friction",
            (0.05, 1.2, 0.05, self.session.settings.friction),
            lambda friction: self.session.change(friction=friction),
            "plans rely on 0.6, whatever it is",
        )
        with gui.add_folder("Trouble", expand_by_default=False):
            self._build_senses(gui)
            self._build_iterations(gui)

    def _shift_slider(self, gui: Any, k: int, label: str) -> Any:
        most = float(FARTHEST[k])

        def changed(value: float) -> None:
            shift = list(self.session.settings.shift)
            shift[k] = value
            self.session.shift_weight(shift)

        return slider(gui, label, (-most, most, most / 20, 0.0), changed)

    def _pushed(self) -> tuple[np.ndarray, np.ndarray]:
        return self._around(), self.session.now.x[:3] + [0.0, 0.0, 0.4 * self.scene.height]

    # --- drawing ----------------------------------------------------------------------------------

    def _draw(self, now: Balanced) -> None:
        self.stage.pose(now.x[: self.scene.robot.nq])
        self.feet.draw(now, self.session.ground)
        self._draw_target(now)
        shift = self.session.settings.shift
        if shift != self._shown:  # it was begun again
            self._shown = shift
            for handle, value in zip(self.shift, shift, strict=True):
                if handle.value != value:
                    handle.value = value

    def _status(self, now: Balanced) -> str:
        lines = [f"**{1e3 * now.error:.1f} mm** from the target, at {now.rate:.2f} times real time"]
        if now.fallen:
            lines = [
                f"**It {as_text(now.fallen)}.** The joints hold their posture. Press Begin again."
            ]
        return "  \n".join([*lines, *status_lines(now, self.session.settings.period)])
