"""What all live pages share: a robot on a stage, buttons for trouble, plots of how it does, and a
thread that draws.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from rigidgrad.play.live import Seen
from rigidgrad.viewer.inputs import as_text, listen, within
from rigidgrad.viewer.stage import Stage

PLAN = (150, 50, 210)
_RATE = 30.0  # pictures a second
_PLOT_RATE = 4.0
_PUSH = (220, 30, 60)
_PAYLOAD = (70, 75, 85)


class LivePage(ABC):
    """A session on a stage. viser's callbacks only write wishes; the session's thread moves the
    robot, ours draws it.
    """

    error_title: str  # of the first plot
    error_scale = 1.0  # from what is sampled to what is plotted
    status: Any  # what is status_lines, on the panel

    def __init__(
        self,
        scene: Any,
        session: Any,
        start: np.ndarray,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
    ):
        self.scene, self.session = scene, session
        robot = scene.robot
        self.size = float(np.linalg.norm(np.ptp(scene.space, axis=0)))
        self.stage = Stage(
            robot, start[: robot.nq], host=host, port=port, title=f"rigidgrad play: {robot.name}"
        )
        self.url = self.stage.url
        self._turn = 0  # of the pushes, each from another side
        self._push_until = 0.0
        try:
            self.stage.look(*scene.space)
            self._build()
            self._build_light(self.stage.server.gui)
        except BaseException:
            self.stage.stop()
            raise
        self.session.start(watched=lambda: self.stage.watched)
        self.stage.run("page", self._draw_on)

    def stop(self) -> None:
        self.session.stop()
        self.stage.stop()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what each kind does in its own way -------------------------------------------------------

    @abstractmethod
    def _build(self) -> None:
        """Puts everything on the page."""

    @abstractmethod
    def _draw(self, now: Any) -> None:
        """Shows what happened."""

    @abstractmethod
    def _status(self, now: Any) -> str:
        """What there is to say, as Markdown."""

    @abstractmethod
    def _pushed(self) -> tuple[np.ndarray, np.ndarray]:
        """The direction (3,) of the next push, and the point (3,) that it acts on."""

    # --- its parts --------------------------------------------------------------------------------

    def _build_trouble(self, gui: Any) -> None:
        """Buttons: a push, a payload, to begin again."""
        newtons, seconds = self.scene.push
        self.push = gui.add_button(f"Push: {newtons:.3g} N for {1e3 * seconds:.3g} ms", color="red")
        self.push.on_click(lambda _: self._on_push())
        self.payload = gui.add_button(self._payload_label(False))
        self.payload.on_click(lambda _: self._on_payload())
        self.again = gui.add_button("Begin again", color="gray")
        self.again.on_click(lambda _: self._on_again())

    def _build_load(self, place: tuple[str, Any], radius: float) -> None:
        frame, offset = place
        at = self.scene.robot.model.frame(frame)
        point = at.placement.matrix() @ np.append(offset, 1.0)
        self.load = self.stage.server.scene.add_icosphere(
            f"/robot/body_{at.body}/payload",
            radius=radius,
            color=_PAYLOAD,
            position=point[:3],
            visible=False,
        )

    def _build_senses(self, gui: Any) -> None:
        """Sliders: latency and noise."""
        change = self.session.change
        self.latency = slider(
            gui,
            "Latency [ms]",
            (0, 50, 1, 0),
            lambda ms: change(latency=1e-3 * ms),
            "from a measurement to the plan made of it; the controller knows it",
        )
        self.noise = slider(
            gui,
            "Noise [mrad, mm]",
            (0.0, 5.0, 0.1, 0.0),
            lambda noise: change(noise=1e-3 * noise),
            "standard deviation of measured positions; of velocities, ten times that a second",
        )

    def _build_iterations(self, gui: Any) -> None:
        self.iterations = slider(
            gui,
            "Iterations",
            (1, 10, 1, self.session.settings.iterations),
            lambda count: self.session.change(iterations=int(count)),
            "of the solver, in each period",
        )

    def _build_plots(self, gui: Any) -> None:
        empty = np.zeros(1)

        def plot(title: str, color: str, *more: dict[str, Any]) -> Any:
            series = ({"label": "s"}, {"label": title, "stroke": color, "width": 2}, *more)
            return gui.add_uplot(
                (empty,) * len(series),
                series,
                title=title,
                scales={"x": {"time": False}},
                legend={"show": False},
                height=115,
            )

        self.errors = plot(self.error_title, "#1a66d9")
        self.solves = plot(
            "Slowest solve, and the period [ms]",
            "#1ea05f",
            {"label": "period", "stroke": "#dc1e3c", "width": 1},
        )
        self.costs = plot("log10 of the cost", "#f2731a")

    def _build_light(self, gui: Any) -> None:
        self.plain_light = gui.add_checkbox(
            "Simple light", False, hint="many more pictures a second without a graphics card"
        )
        self._ambient = self.stage.server.scene.add_light_ambient("/light", visible=False)
        listen(self.plain_light, bool, self._on_light)

    # --- what the player does: callbacks, which only write wishes ---------------------------------

    def _on_light(self, plain: bool) -> None:
        view = self.stage.server.scene
        view.configure_environment_map(None if plain else "warehouse")
        view.configure_default_lights(cast_shadow=not plain)
        self._ambient.visible = plain

    def _on_push(self) -> None:
        self._turn += 1
        along, at = self._pushed()
        self.stage.line("push", np.stack([at - 0.15 * self.size * along, at]), _PUSH, 8.0)
        self.stage.show_line("push", True)
        self._push_until = time.perf_counter() + 0.6
        self.session.push(along)

    def _around(self) -> np.ndarray:
        """A level direction (3,), another one for each push."""
        return np.array([math.cos(2.4 * self._turn), math.sin(2.4 * self._turn), 0.0])

    def _on_payload(self) -> None:
        loaded = not self.load.visible
        self.load.visible = loaded
        self.payload.label = self._payload_label(loaded)
        self.session.carry(loaded)

    def _payload_label(self, loaded: bool) -> str:
        return f"{'Remove' if loaded else 'Add'} a payload of {self.scene.payload:.3g} kg"

    def _on_again(self) -> None:
        self.session.reset()

    # --- drawing ----------------------------------------------------------------------------------

    def _draw_on(self) -> None:
        plotted = 0.0
        while self.stage.alive:
            began = time.perf_counter()
            if self.stage.watched:
                now = self.session.now
                self._draw(now)
                self._forget_push()
                if began - plotted > 1.0 / _PLOT_RATE:
                    plotted = began
                    self._plot()
                    self.status.content = self._status(now)
            time.sleep(max(1.0 / _RATE - (time.perf_counter() - began), 0.005))

    def _forget_push(self) -> None:
        if self._push_until and time.perf_counter() > self._push_until:
            self._push_until = 0.0
            self.stage.show_line("push", False)

    def _plot(self) -> None:
        samples = self.session.samples
        if len(samples) < 2:
            return
        t = np.array([s.t for s in samples])
        solve = 1e3 * np.array([s.solve for s in samples])
        cost = np.log10(np.maximum([s.cost for s in samples], 1e-12))
        # less is not worth a look
        self.errors.data = (t, np.round(self.error_scale * np.array([s.error for s in samples]), 2))
        self.solves.data = (t, solve, np.full(len(t), 1e3 * self.session.settings.period))
        self.costs.data = (t, cost)


def slider(
    gui: Any,
    label: str,
    span: tuple[float, float, float, float],
    changed: Callable[[float], None],
    hint: str | None = None,
) -> Any:
    """A slider with span = (lowest, highest, step, first); `changed` gets values within it
    alone.
    """
    return listen(gui.add_slider(label, *span, hint=hint), within(span[0], span[1]), changed)


def status_lines(now: Seen, period: float) -> list[str]:
    """Of every robot, what there is to say: solves that are late, fallbacks, trouble."""
    lines = []
    fallen = ", ".join(f"{name} {count}" for name, count in now.counts.items() if count)
    if now.late:
        lines.append(f"{now.late} solves of the last 10 s took longer than {1e3 * period:.3g} ms")
    if fallen:
        lines.append(f"fallbacks: {fallen}")
    if now.trouble:
        lines.append(as_text(now.trouble))
    return lines
