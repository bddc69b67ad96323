"""A controller that answers each state which comes over a link."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.link.channel import Message
from rigidgrad.link.ends import Link

_PIECE = 0.1  # s of waiting after which it is asked whether to go on


@dataclass
class Served:
    """What happened: states that were answered, states passed over because newer ones were there,
    answers that took longer than `deadline`, times that no state came for `timeout` s; and how long
    each answer took, s.
    """

    answered: int = 0
    skipped: int = 0
    late: int = 0
    waited: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list, repr=False)

    def percentile(self, percent: float) -> float:
        """Seconds within which that many percent of the answers were sent."""
        return float(np.percentile(self.seconds, percent)) if self.seconds else float("nan")


def serve(
    controller: Any,
    link: Link,
    *,
    duration: float | None = None,
    timeout: float = 1.0,
    patience: float = math.inf,
    deadline: float | None = None,
    until: Callable[[Message], bool] | None = None,
    keep: int = 100_000,
) -> Served:
    """Answers states with controls until the robot's process has gone, `duration` seconds of the
    states' time have passed, or `until(message)` is true.

    `controller` has `step(x, t)`, as `rg.MPC`, or is a function of both. Each answer is the
    controller's control for the newest state; who has `prepare(t)` uses the time until the next
    one, at the pace of the last two. No state for `timeout` seconds is counted; a robot that has
    not come yet is waited for, for `patience` seconds. The times of the last `keep` answers are
    kept. Ctrl-C ends it as well.
    """
    step = getattr(controller, "step", controller)
    if not callable(step):
        raise InputError("serve needs a controller with step(x, t), or a function of x and t")
    if link.role != "controller":
        raise InputError(f"serve needs a link as controller, not as {link.role}")
    prepare = getattr(controller, "prepare", None)
    served = Served()
    first = last = None
    began = heard = time.perf_counter()
    seen = False
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            message = link.receive(_PIECE)
            now = time.perf_counter()
            if message is None:
                seen |= link.connected
                if seen and not link.connected:
                    break
                if not seen and now - began >= patience:
                    break
                if now - heard >= timeout:
                    heard = now
                    served.waited += served.answered > 0
                continue
            heard, seen = now, True
            u = step(message.values, message.time)
            link.send(u, message.time, message.number)
            spent = time.perf_counter() - now
            served.answered += 1
            served.skipped += message.skipped
            served.late += deadline is not None and spent > deadline
            served.seconds.append(spent)
            if len(served.seconds) >= 2 * keep:
                del served.seconds[:-keep]
            first = message.time if first is None else first
            if until is not None and until(message):
                break
            if duration is not None and message.time - first >= duration:
                break
            if prepare is not None and last is not None:
                prepare(2 * message.time - last)
            last = message.time
    served.counts = dict(getattr(controller, "counts", {}))
    return served
