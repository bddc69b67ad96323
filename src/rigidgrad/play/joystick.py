"""A joystick on a live page: a script reads it in the browser and writes what it says into a text
field of the page, so that it takes the way of every other input.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rigidgrad.viewer.inputs import listen

_SCRIPT = Path(__file__).with_name("joystick.js")
LABEL = "Joystick"


def add_joystick(gui: Any, moved: Callable[[np.ndarray], None]) -> Any:
    """A field that shows the joystick of whoever looks at the page; `moved` gets (3,) when it moves
    or is let go: forward, to the left and turning to the left, each from -1 to 1.
    """
    hint = "left stick: forward and sideways; right stick, or the twist: turning"
    field = gui.add_text(LABEL, "0 0 0", hint=hint)
    # viser makes elements of this text as it is, which runs no <script>; an image that cannot be
    # loaded says so to a handler, which does run
    script = html.escape(_SCRIPT.read_text(encoding="utf-8"), quote=True)
    gui.add_html(f'<img src="data:," hidden alt="" onerror="{script}">')

    def changed(text: str) -> None:
        said = axes(text)
        assert said is not None
        moved(said)

    return listen(field, lambda text: None if axes(text) is None else text, changed)


def axes(text: Any) -> np.ndarray | None:
    """(3,) of "forward left turn"; None unless these are three numbers from -1 to 1."""
    try:
        said = np.array([float(word) for word in str(text)[:60].split()])
    except ValueError:
        return None
    return said if said.shape == (3,) and np.all(np.abs(said) <= 1.0) else None
