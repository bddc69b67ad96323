"""The page of a robot that walks: it is steered by buttons, keys, sliders and a joystick; its
planned steps, forces on its feet and its centre of mass are drawn.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.play.feet_drawing import FeetDrawing
from rigidgrad.play.joystick import add_joystick
from rigidgrad.play.legged import OnFeet
from rigidgrad.play.live_page import LivePage, slider, status_lines
from rigidgrad.play.walking import GAITS, STEEPEST, Walk, WalkingScene
from rigidgrad.viewer.inputs import as_text, listen, one_of

_NOTCHES = 4  # presses of a button or key up to the fastest
# what a button and its key add to the command, in notches
_STEERING = {
    "Forward": ("W", (1, 0, 0)),
    "Back": ("S", (-1, 0, 0)),
    "Left": ("A", (0, 1, 0)),
    "Right": ("D", (0, -1, 0)),
    "Turn left": ("Q", (0, 0, 1)),
    "Turn right": ("E", (0, 0, -1)),
}
_STOP = ("Stop", "X")
_SETTLED = 2.0  # seconds after which a browser's camera is taken along


class WalkPage(LivePage):
    """A walking robot on a stage."""

    scene: WalkingScene
    session: Walk
    error_title = "Off the commanded velocity [m/s]"

    def __init__(
        self, scene: WalkingScene, session: Any = None, *, host: str = "127.0.0.1", port: int = 8080
    ):
        super().__init__(scene, session or Walk(scene), scene.start, host=host, port=port)

    # --- its parts --------------------------------------------------------------------------------

    def _build(self) -> None:
        gui = self.stage.server.gui
        self.stage.ground.infinite_grid = True
        self.stage.ground.fade_distance = 10 * self.size
        self._slope, self._shown = 0.0, self.session.settings.command
        self._met: dict[int, float] = {}  # when each browser came
        self.feet = FeetDrawing(self.stage, self.scene, self.size)
        self._build_load((self.scene.trunk, (0.0, 0.0, 0.2 * self.scene.height)), 0.06 * self.size)
        self.stage.note(self.scene.hint)
        self.status = gui.add_markdown("")
        self._build_steering(gui)
        self._build_trouble(gui)
        self.follow = gui.add_checkbox("Camera follows", True)
        self._build_plots(gui)
        self._build_ground(gui)

    def _build_steering(self, gui: Any) -> None:
        for names in (("Forward", "Back"), ("Left", "Right"), ("Turn left", "Turn right")):
            keys = " and ".join(_STEERING[name][0] for name in names)
            gui.add_button_group(f"{keys}", names).on_click(
                lambda event: self._on_steer(event.target.value)
            )
        gui.add_button(_STOP[0], color="gray").on_click(lambda _: self.session.steer(np.zeros(3)))
        if hasattr(gui, "add_command"):  # since viser 1.1
            for name, (key, _) in _STEERING.items():
                gui.add_command(name, hotkey=key).on_trigger(partial(self._on_key, name))
            gui.add_command(_STOP[0], hotkey=_STOP[1]).on_trigger(
                lambda _: self.session.steer(np.zeros(3))
            )
        labels = ("Forward [m/s]", "Sideways [m/s]", "Turning [rad/s]")
        self.command = [self._command_slider(gui, k, label) for k, label in enumerate(labels)]
        self.joystick = add_joystick(
            gui, lambda axes: self.session.steer(axes * self.scene.fastest)
        )

    def _command_slider(self, gui: Any, k: int, label: str) -> Any:
        most = float(self.scene.fastest[k])

        def changed(value: float) -> None:
            command = list(self.session.settings.command)
            command[k] = value
            self.session.steer(command)

        return slider(gui, label, (-most, most, most / 20, 0.0), changed)

    def _build_ground(self, gui: Any) -> None:
        now, change = self.session.settings, self.session.change
        self.gait = gui.add_dropdown(
            "Gait", GAITS, initial_value=now.gait, hint="another gait begins from standing"
        )
        listen(self.gait, one_of(GAITS), lambda gait: change(gait=gait))
        with gui.add_folder("Ground"):
            self.friction = slider(
                gui,
                "Friction",
                (0.05, 1.2, 0.05, now.friction),
                lambda friction: change(friction=friction),
                "plans rely on 0.6, whatever it is",
            )
            steepest = math.degrees(STEEPEST)
            self.slope = slider(
                gui,
                "Slope [degrees]",
                (-steepest, steepest, 1.0, 0.0),
                lambda degrees: change(slope=math.radians(degrees)),
                "rises ahead; on another slope the robot begins again",
            )
        with gui.add_folder("Trouble", expand_by_default=False):
            self._build_senses(gui)
            self._build_iterations(gui)

    # --- what the player does: callbacks, which only write wishes ---------------------------------

    def _on_key(self, name: str, _: Any) -> None:
        self._on_steer(name)

    def _on_steer(self, name: Any) -> None:
        if name in _STEERING:
            self.session.steer(
                self.session.settings.command + self.scene.fastest * _STEERING[name][1] / _NOTCHES
            )

    def _pushed(self) -> tuple[np.ndarray, np.ndarray]:
        return self._around(), self.session.now.x[:3]

    # --- drawing ----------------------------------------------------------------------------------

    def _draw(self, now: OnFeet) -> None:
        self.stage.pose(now.x[: self.scene.robot.nq])
        self.feet.draw(now, self.session.ground)
        self._show_command(self.session.settings.command)
        slope = self.session.ground.slope
        if slope != self._slope:
            self._slope = slope
            self.stage.ground.wxyz = (math.cos(0.5 * slope), 0.0, -math.sin(0.5 * slope), 0.0)
        if self.follow.value:
            self._look(now.x[:3] - [0.0, 0.0, 0.4 * self.scene.height])

    def _show_command(self, command: tuple[float, float, float]) -> None:
        """Moves the sliders to a command that did not come from them; one that is in the player's
        hand is not touched as long as the command stays.
        """
        if command != self._shown:
            self._shown = command
            for handle, value in zip(self.command, command, strict=True):
                if handle.value != value:
                    handle.value = value

    def _look(self, at: np.ndarray) -> None:
        """Takes every camera along, as far away and at the same angle as its user has it."""
        now, clients = time.perf_counter(), self.stage.server.get_clients()
        self._met = {k: self._met.get(k, now) for k in clients}
        for k, client in clients.items():
            camera = client.camera
            # at first a browser tells of a camera that it is about to change
            if (
                now - self._met[k] > _SETTLED
                and np.linalg.norm(camera.look_at - at) > 0.01 * self.size
            ):
                with client.atomic():  # the camera and what it looks at move together
                    camera.position = at + camera.position - camera.look_at

    def _status(self, now: OnFeet) -> str:
        v, w = self.session.velocity(), self.session.settings.command
        lines = [
            f"**{v[0]:.2f} m/s** forward, {v[1]:.2f} sideways, at {now.rate:.2f} times real time;"
            f" commanded {w[0]:.2f} and {w[1]:.2f}"
        ]
        if now.fallen:
            lines = [
                f"**It {as_text(now.fallen)}.** The joints hold their posture. Press Begin again."
            ]
        return "  \n".join([*lines, *status_lines(now, self.session.settings.period)])
