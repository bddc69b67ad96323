"""The page of live control while a headless Chromium draws it by software: seconds of the robot for
a second of the clock, with the session in a process of its own and in that of the page, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import machine

from rigidgrad.play.page import play

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import eventually, launched, missing

# pictures that the browser has drawn
_COUNT = """() => { window.drawn = 0;
const again = () => { window.drawn += 1; requestAnimationFrame(again); };
requestAnimationFrame(again); }"""


def moving(page: Any, robot: str) -> None:
    """What keeps the controller busy: a figure eight, or half of the fastest walk."""
    if robot in ("hyq", "go2"):
        page.session.steer(0.5 * page.scene.fastest * [1, 0, 0])
    else:
        page.session.figure_eight(True)


def measure(robot: str, own_process: bool, seconds: float, rounds: int) -> dict[str, Any]:
    page = play(robot, port=0, block=False, announce=False, own_process=own_process)
    assert page is not None
    factors, pictures = [], []
    try:
        with launched() as browser:
            window = browser.new_page(viewport={"width": 1280, "height": 800})
            window.goto(page.url)
            eventually(lambda: page.stage.watched, "connected", 60)
            window.evaluate(_COUNT)
            # a browser that draws by software takes seconds for its first pictures
            eventually(lambda: window.evaluate("window.drawn") > 10, "pictures", 120)
            moving(page, robot)
            for _ in range(rounds):
                t, clock = page.session.now.t, time.perf_counter()
                before = window.evaluate("window.drawn")
                time.sleep(seconds)
                spent = time.perf_counter() - clock
                factors.append((page.session.now.t - t) / spent)
                pictures.append((window.evaluate("window.drawn") - before) / spent)
            late = page.session.now.late
    finally:
        page.stop()
    return {
        "robot": robot,
        "own_process": own_process,
        "factor": round(statistics.median(factors), 3),
        "lowest": round(min(factors), 3),
        "pictures": round(statistics.mean(pictures), 2),
        "late": late,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robots", default="iiwa14,hyq")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if missing("viser"):
        parser.error(missing("viser"))
    rows = []
    print("robot   session in      times real time  lowest  pictures/s  late solves")
    for robot in arguments.robots.split(","):
        for own_process in (True, False):
            row = measure(robot, own_process, arguments.seconds, arguments.rounds)
            rows.append(row)
            where = "a process" if own_process else "the page's"
            print(
                f"{robot:8}{where:16}{row['factor']:<17.2f}{row['lowest']:<8.2f}"
                f"{row['pictures']:<12.2f}{row['late']}"
            )
    if arguments.json:
        result = {"machine": machine.describe({}), "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
