"""What is drawn of a robot on its feet: where they are planned to go, forces of the ground on them,
the centre of mass and the point below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rigidgrad.play.legged import OnFeet
from rigidgrad.play.live_page import PLAN
from rigidgrad.viewer.poses import body_poses, frame_path

_FORCE = (220, 60, 50)
_CENTER = (242, 115, 26)


class FeetDrawing:
    """On a stage, for a scene with `robot`, `feet` and `height`; `size` is that of what the camera
    sees.
    """

    def __init__(self, stage: Any, scene: Any, size: float):
        self.stage, self.scene = stage, scene
        weight = 9.81 * sum(m for m, _, _ in scene.robot.model.inertias)
        # metres per newton: half the height for all the weight
        self._longest = 0.5 * scene.height / weight
        self.center, self.below = (
            stage.server.scene.add_icosphere(f"/{name}", radius=share * size, color=_CENTER)
            for name, share in (("center", 0.02), ("below", 0.012))
        )

    def draw(self, now: OnFeet, ground: Any) -> None:
        model = self.scene.robot.model
        poses = body_poses(model, now.plan[:, : self.scene.robot.nq])
        for k, foot in enumerate(self.scene.feet):
            self.stage.line(
                f"plan_{k}", frame_path(model, poses, foot.frame, foot.offset), PLAN, 4.0
            )
            self.stage.show_line(f"plan_{k}", not now.fallen)
            tip = now.feet[k] + self._longest * now.forces[k]
            self.stage.arrow(f"force_{k}", now.feet[k], tip, _FORCE)
        below = np.array([*now.center[:2], ground.height(now.center[0])])
        self.center.position, self.below.position = now.center, below
        self.stage.line("center", np.stack([now.center, below]), _CENTER, 3.0)
