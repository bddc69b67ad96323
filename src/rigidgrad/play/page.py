"""The page: a robot under live control, a target to drag, buttons for trouble, sliders for the controller, and plots of how it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rigidgrad.control.surroundings import Surroundings
from rigidgrad.play.scenes import Scene, scene
from rigidgrad.play.session import SOLVERS, Session, Settings, Snapshot
from rigidgrad.viewer.around import around
from rigidgrad.viewer.inputs import as_text, listen, one_of, point_within, within
from rigidgrad.viewer.stage import Stage

_RATE = 30.0  # pictures a second
_PLOT_RATE = 4.0
_TARGET = (30, 160, 95)
_PLAN = (150, 50, 210)
_PUSH = (220, 30, 60)
_PAYLOAD = (70, 75, 85)
_UPRIGHT = (1.0, 0.0, 0.0, 0.0)  # the target's quaternion, always
_BLOCKS = ("1", "2", "4", "8")
_DECADES = 2.0  # by which weights can be changed, either way


def play(
    robot: Any = "iiwa14",
    *,
    frame: str | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool = True,
    announce: bool = True,
) -> Page | None:
    """Serves the page and, with `block`, waits for Ctrl-C. Needs the [view] extra.

    `robot` is a bundled name, a path, URDF text or a Robot; `frame` what follows the target (default: its tool). With block=False it gives the Page: `.url`, `.session`, `.stop()`.
    """
    page = Page(scene(robot, frame), host=host, port=port)
    if announce:
        page.stage.announce()
    if not block:
        return page
    with page:
        page.stage.wait()
    return None


class Page:
    """A session on a stage. viser's callbacks only write wishes; the session's thread moves the robot, ours draws it."""

    def __init__(self, scene: Scene, *, host: str = "127.0.0.1", port: int = 8080):
        self.scene, self.session = scene, Session(scene)
        self.stage = Stage(scene.robot, scene.start[: scene.robot.nq], host=host, port=port, title=f"rigidgrad play: {scene.robot.name}")
        self.url = self.stage.url
        self._swaying = False
        self._turn = 0  # of the pushes, each from another side
        self._push_until, self._dragged = 0.0, -math.inf
        try:
            self._build()
        except BaseException:
            self.stage.stop()
            raise
        self.session.start(watched=lambda: self.stage.watched)
        self.stage.run("page", self._draw_on)

    def stop(self) -> None:
        self.session.stop()
        self.stage.stop()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- its parts -----------------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        s, view, gui = self.scene, self.stage.server.scene, self.stage.server.gui
        low, high = s.space
        self.stage.look(low, high)
        size = float(np.linalg.norm(high - low))
        self._reachable = point_within(low - 2 * size, high + 2 * size)
        self.target = view.add_transform_controls(
            "/target",
            scale=0.11 * size,
            active_axes=s.axes,
            disable_rotations=True,
            disable_sliders=not all(s.axes),
            depth_test=False,
            position=s.home,
        )
        self.target.on_update(self._on_drag)
        view.add_icosphere("/target/ball", radius=0.012 * size, color=_TARGET, opacity=0.8)
        frame, offset = s.loaded
        at = s.robot.model.frame(frame)
        place = at.placement.matrix() @ np.append(offset, 1.0)
        self.load = view.add_icosphere(
            f"/robot/body_{at.body}/payload", radius=0.03 * size, color=_PAYLOAD, position=place[:3], visible=False
        )
        self.stage.note(s.hint)
        around_it = replace(Surroundings.of(self.session.problem).first_rows, targets=())  # the target is in the player's hand
        drawn = around(s.robot.model, around_it, np.arange, size)
        self.stage.surround(drawn)
        for note in drawn.notes:
            self.stage.note(note)
        self.status = gui.add_markdown("")
        self._build_buttons(gui)
        self._build_plots(gui)
        self._build_sliders(gui)
        self.stage.line("eight", s.eight(np.linspace(0.0, s.sway_period, 200)), _TARGET, 2.0)
        self.stage.show_line("eight", False)

    def _build_buttons(self, gui: Any) -> None:
        self.eight = gui.add_button("Figure eight")
        self.eight.on_click(lambda _: self.session.figure_eight(not self.session.swaying))
        newtons, seconds = self.scene.push
        self.push = gui.add_button(f"Push: {newtons:.3g} N for {1e3 * seconds:.3g} ms", color="red")
        self.push.on_click(lambda _: self._on_push())
        self.payload = gui.add_button(self._payload_label(False))
        self.payload.on_click(lambda _: self._on_payload())
        self.again = gui.add_button("Begin again", color="gray")
        self.again.on_click(lambda _: self._on_again())

    def _build_sliders(self, gui: Any) -> None:
        now, change = self.session.settings, self.session.change
        with gui.add_folder("Trouble"):
            self.latency = _slider(
                gui,
                "Latency [ms]",
                (0, 50, 1, 0),
                lambda ms: change(latency=1e-3 * ms),
                "from a measurement to the plan made of it; the controller knows it",
            )
            self.noise = _slider(
                gui,
                "Noise [mrad, mm]",
                (0.0, 5.0, 0.1, 0.0),
                lambda noise: change(noise=1e-3 * noise),
                "standard deviation of measured positions; of velocities, ten times that a second",
            )
        with gui.add_folder("Controller"):
            self.solver = gui.add_dropdown("Solver", SOLVERS, initial_value=now.solver)
            listen(self.solver, one_of(SOLVERS), self._on_solver)
            self.blocks = gui.add_dropdown("M (blocks)", _BLOCKS, initial_value=str(now.blocks), hint="shooting blocks of parallel DDP")
            listen(self.blocks, one_of(_BLOCKS), lambda blocks: change(blocks=int(blocks)))
            self.iterations = _slider(
                gui, "Iterations", (1, 10, 1, now.iterations), lambda count: change(iterations=int(count)), "of the solver, in each period"
            )
            self.period = _slider(
                gui, "Period [ms]", (2, 50, 1, round(1e3 * now.period)), lambda ms: change(period=1e-3 * ms), "from plan to plan"
            )
            self.horizon = _slider(
                gui, "Horizon [s]", (0.25 * now.horizon, 2 * now.horizon, 0.05, now.horizon), lambda seconds: change(horizon=seconds)
            )
            self.observer = gui.add_checkbox(
                "Observe disturbances", now.observer, hint="estimates unknown forces, such as the payload's weight, and cancels them"
            )
            listen(self.observer, bool, lambda on: change(observer=on))
        with gui.add_folder("Weights, powers of ten", expand_by_default=False):
            self.weights = {
                name: self._weight_slider(gui, name, label)
                for name, label in (("target", "Target"), ("motion", "Motion"), ("effort", "Effort"))
            }

    def _weight_slider(self, gui: Any, name: str, label: str) -> Any:
        middle = math.log10(getattr(self.session.settings.weights, name))
        span = (middle - _DECADES, middle + _DECADES, 0.1, middle)
        return _slider(gui, label, span, lambda power: self.session.weigh(**{name: 10.0**power}))

    def _build_plots(self, gui: Any) -> None:
        empty = np.zeros(1)

        def plot(title: str, color: str, *more: dict[str, Any]) -> Any:
            series = ({"label": "s"}, {"label": title, "stroke": color, "width": 2}, *more)
            return gui.add_uplot(
                (empty,) * len(series), series, title=title, scales={"x": {"time": False}}, legend={"show": False}, height=115
            )

        self.errors = plot("Distance to the target [mm]", "#1a66d9")
        self.solves = plot("Slowest solve, and the period [ms]", "#1ea05f", {"label": "period", "stroke": "#dc1e3c", "width": 1})
        self.costs = plot("log10 of the cost", "#f2731a")

    # --- what the player does: callbacks, which only write wishes ---------------------------------------------------------------------

    async def _on_drag(self, event: Any) -> None:
        self._dragged = math.inf if event.phase != "end" else time.perf_counter()
        point = self._reachable(event.target.position)
        if point is None or not np.array_equal(point, event.target.position):
            event.target.position = self.session.now.target if point is None else point
        if not np.array_equal(event.target.wxyz, _UPRIGHT):
            event.target.wxyz = _UPRIGHT
        if point is not None:
            self.session.aim(point)

    def _on_push(self) -> None:
        self._turn += 1
        along = np.zeros(3)
        if all(self.scene.axes):
            along[:2] = math.cos(2.4 * self._turn), math.sin(2.4 * self._turn)
        else:
            along[list(self.scene.axes).index(True)] = (-1) ** self._turn
        self._show_push(along)
        self.session.push(along)

    def _show_push(self, along: np.ndarray) -> None:
        now, size = self.session.now, float(np.linalg.norm(np.ptp(self.scene.space, axis=0)))
        tip = self.scene.points(now.x[: self.scene.robot.nq])
        self.stage.line("push", np.stack([tip - 0.15 * size * along, tip]), _PUSH, 8.0)
        self.stage.show_line("push", True)
        self._push_until = time.perf_counter() + 0.6

    def _on_payload(self) -> None:
        loaded = not self.load.visible
        self.load.visible = loaded
        self.payload.label = self._payload_label(loaded)
        self.session.carry(loaded)

    def _payload_label(self, loaded: bool) -> str:
        return f"{'Remove' if loaded else 'Add'} a payload of {self.scene.payload:.3g} kg"

    def _on_again(self) -> None:
        self._dragged = -math.inf
        self.session.reset()

    def _on_solver(self, solver: str) -> None:
        self.blocks.disabled = solver != "PDDP"
        self.session.change(solver=solver)

    # --- drawing ----------------------------------------------------------------------------------------------------------------------

    def _draw_on(self) -> None:
        plotted = 0.0
        while self.stage.alive:
            began = time.perf_counter()
            if self.stage.watched:
                now = self.session.now
                self._draw(now)
                if began - plotted > 1.0 / _PLOT_RATE:
                    plotted = began
                    self._plot()
                    self.status.content = _status(now, self.session.settings)
            time.sleep(max(1.0 / _RATE - (time.perf_counter() - began), 0.005))

    def _draw(self, now: Snapshot) -> None:
        nq = self.scene.robot.nq
        self.stage.pose(now.x[:nq])
        self.stage.line("plan", self.scene.points(now.plan[:, :nq]), _PLAN, 5.0)
        if self._swaying != self.session.swaying:
            self._swaying = self.session.swaying
            self.eight.label = "Stop the figure eight" if self._swaying else "Figure eight"
            self.stage.show_line("eight", self._swaying)
        held = time.perf_counter() - self._dragged < 0.5  # what is in the player's hand is not moved by ours
        shown = self._reachable(self.target.position)
        if not held and (shown is None or not np.allclose(shown, now.target, atol=1e-6)):
            self.target.position = now.target
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
        self.errors.data = (t, np.round(1e3 * np.array([s.error for s in samples]), 2))  # less is not worth a look
        self.solves.data = (t, solve, np.full(len(t), 1e3 * self.session.settings.period))
        self.costs.data = (t, cost)


def _slider(
    gui: Any, label: str, span: tuple[float, float, float, float], changed: Callable[[float], None], hint: str | None = None
) -> Any:
    """A slider with span = (lowest, highest, step, first); `changed` gets values within it alone."""
    return listen(gui.add_slider(label, *span, hint=hint), within(span[0], span[1]), changed)


def _status(now: Snapshot, settings: Settings) -> str:
    lines = [f"**{1e3 * now.error:.1f} mm** from the target, at {now.rate:.2f} times real time"]
    fallen = ", ".join(f"{name} {count}" for name, count in now.counts.items() if count)
    if now.late:
        lines.append(f"{now.late} solves of the last 10 s took longer than {1e3 * settings.period:.3g} ms")
    if fallen:
        lines.append(f"fallbacks: {fallen}")
    if now.trouble:
        lines.append(as_text(now.trouble))
    return "  \n".join(lines)
