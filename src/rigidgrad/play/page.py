"""The page: a robot under live control, a target to drag, buttons for trouble, sliders for the
controller, and plots of how it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rigidgrad.play.balance_page import BalancePage
from rigidgrad.play.balancing import BalanceScene
from rigidgrad.play.live_page import PLAN, slider, status_lines
from rigidgrad.play.remote import Remote
from rigidgrad.play.scenes import Scene, scene
from rigidgrad.play.session import SOLVERS, Session, Settings, Snapshot
from rigidgrad.play.target_page import COLOR as TARGET, TargetPage
from rigidgrad.play.walk_page import WalkPage
from rigidgrad.play.walking import WalkingScene
from rigidgrad.viewer.around import around
from rigidgrad.viewer.inputs import listen, one_of

_BLOCKS = ("1", "2", "4", "8")
_DECADES = 2.0  # by which weights can be changed, either way


def play(
    robot: Any = "iiwa14",
    *,
    frame: str | None = None,
    feet: Sequence[str] | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool = True,
    announce: bool = True,
    own_process: bool | None = None,
) -> Page | WalkPage | BalancePage | None:
    """Serves the page and, with `block`, waits for Ctrl-C. Needs the [view] extra.

    `robot` is a bundled name, a path, URDF text or a Robot; `frame` what follows the target
    (default: its tool); `feet` the frames of the four feet of a robot that walks. With block=False
    it gives the Page: `.url`, `.session`, `.stop()`.

    The controller and its plant run in a process of their own, so that drawing does not slow them,
    unless own_process=False (default with block=False: the session is then at hand).
    """
    made = scene(robot, frame, feet)
    kind = (
        WalkPage
        if isinstance(made, WalkingScene)
        else BalancePage
        if isinstance(made, BalanceScene)
        else Page
    )
    apart = block if own_process is None else own_process
    session = Remote(robot, frame, feet, made) if apart else None
    try:
        page: Page | WalkPage | BalancePage = kind(made, session, host=host, port=port)
    except BaseException:
        if session is not None:
            session.stop()
        raise
    if announce:
        page.stage.announce()
    if not block:
        return page
    with page:
        page.stage.wait()
    return None


class Page(TargetPage):
    """A session on a stage, with a target to drag."""

    session: Session
    error_title, error_scale = "Distance to the target [mm]", 1e3

    def __init__(
        self, scene: Scene, session: Any = None, *, host: str = "127.0.0.1", port: int = 8080
    ):
        self._swaying = False
        super().__init__(scene, session or Session(scene), scene.start, host=host, port=port)

    # --- its parts --------------------------------------------------------------------------------

    def _build(self) -> None:
        s, gui, size = self.scene, self.stage.server.gui, self.size
        self._build_target(s.home, s.axes)
        self._build_load(s.loaded, 0.03 * size)
        self.stage.note(s.hint)
        drawn = around(s.robot.model, self.session.surroundings, np.arange, size)
        self.stage.surround(drawn)
        for note in drawn.notes:
            self.stage.note(note)
        self.status = gui.add_markdown("")
        self._build_buttons(gui)
        self._build_plots(gui)
        self._build_sliders(gui)
        self.stage.line("eight", s.eight(np.linspace(0.0, s.sway_period, 200)), TARGET, 2.0)
        self.stage.show_line("eight", False)

    def _build_buttons(self, gui: Any) -> None:
        self.eight = gui.add_button("Figure eight")
        self.eight.on_click(lambda _: self.session.figure_eight(not self.session.swaying))
        self._build_trouble(gui)

    def _build_sliders(self, gui: Any) -> None:
        now, change = self.session.settings, self.session.change
        with gui.add_folder("Trouble"):
            self._build_senses(gui)
        with gui.add_folder("Controller"):
            self.solver = gui.add_dropdown("Solver", SOLVERS, initial_value=now.solver)
            listen(self.solver, one_of(SOLVERS), self._on_solver)
            self.blocks = gui.add_dropdown(
                "M (blocks)",
                _BLOCKS,
                initial_value=str(now.blocks),
                hint="shooting blocks of parallel DDP",
            )
            listen(self.blocks, one_of(_BLOCKS), lambda blocks: change(blocks=int(blocks)))
            self._build_iterations(gui)
            self.period = slider(
                gui,
                "Period [ms]",
                (2, 50, 1, round(1e3 * now.period)),
                lambda ms: change(period=1e-3 * ms),
                "from plan to plan",
            )
            self.horizon = slider(
                gui,
                "Horizon [s]",
                (0.25 * now.horizon, 2 * now.horizon, 0.05, now.horizon),
                lambda seconds: change(horizon=seconds),
            )
            self.observer = gui.add_checkbox(
                "Observe disturbances",
                now.observer,
                hint="estimates unknown forces, such as the payload's weight, and cancels them",
            )
            listen(self.observer, bool, lambda on: change(observer=on))
        with gui.add_folder("Weights, powers of ten", expand_by_default=False):
            self.weights = {
                name: self._weight_slider(gui, name, label)
                for name, label in (
                    ("target", "Target"),
                    ("motion", "Motion"),
                    ("effort", "Effort"),
                )
            }

    def _weight_slider(self, gui: Any, name: str, label: str) -> Any:
        middle = math.log10(getattr(self.session.settings.weights, name))
        span = (middle - _DECADES, middle + _DECADES, 0.1, middle)
        return slider(gui, label, span, lambda power: self.session.weigh(**{name: 10.0**power}))

    # --- what the player does: callbacks, which only write wishes ---------------------------------

    def _pushed(self) -> tuple[np.ndarray, np.ndarray]:
        along = self._around()
        if not all(self.scene.axes):
            along = np.zeros(3)
            along[list(self.scene.axes).index(True)] = (-1) ** self._turn
        return along, self.scene.points(self.session.now.x[: self.scene.robot.nq])

    def _on_solver(self, solver: str) -> None:
        self.blocks.disabled = solver != "PDDP"
        self.session.change(solver=solver)

    # --- drawing ----------------------------------------------------------------------------------

    def _draw(self, now: Snapshot) -> None:
        nq = self.scene.robot.nq
        self.stage.pose(now.x[:nq])
        self.stage.line("plan", self.scene.points(now.plan[:, :nq]), PLAN, 5.0)
        if self._swaying != self.session.swaying:
            self._swaying = self.session.swaying
            self.eight.label = "Stop the figure eight" if self._swaying else "Figure eight"
            self.stage.show_line("eight", self._swaying)
        self._draw_target(now)

    def _status(self, now: Snapshot) -> str:
        return _status(now, self.session.settings)


def _status(now: Snapshot, settings: Settings) -> str:
    first = f"**{1e3 * now.error:.1f} mm** from the target, at {now.rate:.2f} times real time"
    return "  \n".join([first, *status_lines(now, settings.period)])
