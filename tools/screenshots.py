"""Pictures of Panda, UR5, Talos and Go2 with their own meshes, for docs/pictures: in `view`, in a
report, and under model predictive control: `python tools/screenshots.py [view] [report] [mpc]
[iiwa14] [--out FOLDER]`. Needs Chromium, playwright and example-robot-data.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import rigidgrad as rg
from rigidgrad.play.walking import published

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import eventually, launched, missing

ROOT = Path(__file__).parents[1]

FILES = {
    "panda": "panda_description/urdf/panda.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "talos": "talos_data/robots/talos_full_v2.urdf",
    "go2": "go2_description/urdf/go2.urdf",
}
FLOATING = ("talos", "go2")  # in `view`; a motion of Talos is one with its base held
FEET = tuple(f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR"))
PANDA = [0.0, -0.5, 0.0, -2.2, 0.0, 1.7, 0.8, 0.04]
UR5 = [0.0, -1.2, 1.4, -1.8, -1.57, 0.0]
# knees and elbows of Talos, hips and knees of Go2
BENT = {
    **{
        f"leg_{side}_{number}_joint": angle
        for side in ("left", "right")
        for number, angle in ((3, -0.4), (4, 0.8), (5, -0.4))
    },
    **{f"arm_{side}_4_joint": -1.2 for side in ("left", "right")},
    **{
        f"{leg}_{part}_joint": angle
        for leg in ("FL", "FR", "RL", "RR")
        for part, angle in (("thigh", 0.8), ("calf", -1.5))
    },
}
LARGEST = 150_000  # bytes of a picture


def robot_of(name: str, floating: tuple[str, ...] = FLOATING) -> Any:
    return rg.load(published(name, FILES[name]), floating_base=name in floating, strict=False)


def posture_of(name: str, robot: Any) -> np.ndarray:
    if name in ("panda", "ur5"):
        return np.array(PANDA if name == "panda" else UR5)
    q = np.array(robot.neutral())
    for joint in robot.model.joints:
        if joint.name in BENT:
            q[joint.q] = BENT[joint.name]
    if robot.model.floating_base:
        q[2] -= min(T[2, 3] for T in robot.forward_kinematics(q).values())
    return q


def motion_of(name: str, robot: Any, q: np.ndarray) -> Any:
    """A motion to report: the tool moves by some decimetres, or the robot trots or squats."""
    if name == "go2":
        feet = [rg.Contact(frame, friction=0.6) for frame in FEET]
        start = np.r_[rg.gaits.standing(robot, feet, ground=0.022)]
        phases = rg.gaits.trot(robot, feet, start, step_length=0.15, step_height=0.06)
        return rg.Problem(robot, start, phases=phases, limits=rg.Limits(torque=True))
    still = np.zeros(robot.nv)
    frame = {"panda": "panda_hand_tcp", "ur5": "tool0", "talos": "gripper_left_base_link"}[name]
    goal = robot.forward_kinematics(q)[frame][:3, 3] + [0.1, 0.3, 0.15]
    weights = np.r_[np.full(robot.nv, 1e-3), np.full(robot.nv, 1e-2)]
    costs = [
        rg.costs.Reach(frame, goal, weight=1.0, final=1e4),
        rg.costs.State(
            np.r_[q, still], weight=weights, final=np.r_[1e-3 + still, np.full(robot.nv, 1e2)]
        ),
        rg.costs.Effort(1e-4, reference="gravity"),
    ]
    return rg.Problem(
        robot, np.r_[q, still], steps=50, dt=0.02, costs=costs, limits=rg.Limits(torque=True)
    )


@contextmanager
def window(browser: Any, width: int, height: int) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": width, "height": height})
    try:
        yield page
    finally:
        page.close()


def shot(page: Any, **options: Any) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(page.screenshot(timeout=120_000, **options))).convert("RGB")


def save(pictures: list[Any], path: Path, columns: int = 2) -> None:
    """Several pictures of one size as one, small enough for a page."""
    from PIL import Image

    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    whole = Image.new("RGB", (columns * width, rows * height), "white")
    for k, picture in enumerate(pictures):
        whole.paste(picture, (k % columns * width, k // columns * height))
    for quality in (85, 75, 65, 55, 45):
        whole.save(path, quality=quality, method=6)
        if path.stat().st_size <= LARGEST:
            break
    print(f"{path}  {whole.size[0]} x {whole.size[1]}, {path.stat().st_size} bytes")


def viewed(browser: Any, folder: Path) -> list[Any]:
    found = []
    for name in FILES:
        robot = robot_of(name)
        page = folder / f"{name}.html"
        rg.view(robot, q=posture_of(name, robot), html=page)
        with window(browser, 520, 420) as shown:
            shown.goto(page.as_uri())
            shown.wait_for_selector("canvas")
            time.sleep(1.0)
            found.append(shot(shown))
    return found


def reported(browser: Any, folder: Path) -> list[Any]:
    found = []
    for name in FILES:
        robot = robot_of(name, ("go2",))
        solution = rg.solve(motion_of(name, robot, posture_of(name, robot)))
        print(name, solution.status)
        page = folder / f"{name}_report.html"
        rg.report(solution, page, robot=robot)
        with window(browser, 760, 900) as shown:
            shown.goto(page.as_uri())
            shown.wait_for_selector("canvas")
            shown.evaluate(
                "for (const v of document.querySelectorAll('.rigidgrad-view'))"
                " { v.player.pause(); v.player.seek(0.7); }"
            )
            time.sleep(1.0)
            moving = shot(shown.locator(".rigidgrad-view"))
            plots = shown.locator(".plot")
            titles = [plots.nth(k).inner_text().splitlines()[0] for k in range(plots.count())]
            charts = [
                shot(plots.nth(k))
                for k, title in enumerate(titles)
                if title.startswith(("Position", "Velocity"))
            ][:2]
            found.append(stacked(moving, charts))
    return found


def stacked(above: Any, below: list[Any], height: int = 285) -> Any:
    """A picture over others that stand side by side."""
    from PIL import Image

    whole = Image.new("RGB", (above.width + 16, above.height + height), "white")
    whole.paste(above, (8, 4))
    for k, picture in enumerate(below):
        whole.paste(picture, (8 + k * above.width // 2, above.height + 12))
    return whole


def controlled(browser: Any, folder: Path) -> list[Any]:
    """Runs under control in simulated time: reaching on plants 10% heavier than the model, and a
    trot in MuJoCo.
    """
    found = []
    for name in FILES:
        robot = robot_of(name, ("go2",))
        if name == "go2":
            feet = [rg.Contact(frame, friction=0.6) for frame in FEET]
            start = rg.gaits.standing(robot, feet, ground=0.022)
            walker = rg.gaits.Walker(robot, feet, start, step_height=0.06)
            walker.command = (0.3, 0.0, 0.0)
            mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
            ground = rg.plants.Ground(dict.fromkeys(FEET, 0.022), friction=0.8)
            plant: Any = rg.plants.MuJoCo(mpc.system, start, 1e-3, ground=ground)
        else:
            problem = motion_of(name, robot, posture_of(name, robot))
            mpc = rg.MPC(problem, period=0.02)
            plant = rg.plants.Simulator(robot, problem.start, mass_error=0.1)
        log = mpc.run(plant, duration=1.0)
        page = folder / f"{name}_mpc.html"
        rg.view(robot, log, problem=mpc, html=page, title=f"{name} under MPC")
        with window(browser, 520, 420) as shown:
            shown.goto(page.as_uri(), timeout=180_000)
            shown.wait_for_selector("canvas", timeout=180_000)
            shown.evaluate(
                "const p = document.querySelector('.rigidgrad-view').player; p.pause(); p.seek(0.8)"
            )
            time.sleep(1.0)
            found.append(shot(shown))
        print(name, {count: n for count, n in mpc.counts.items() if n})
    return found


def prefer(process: int) -> None:
    """Gives all threads of a process priority, where the system allows it."""
    with contextlib.suppress(PermissionError, AttributeError, FileNotFoundError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -10)


def played(browser: Any, names: list[str]) -> list[Any]:
    """The page of live control, while it holds its rate. On a busy machine the sessions get a
    higher priority than what draws them, where that is allowed.
    """
    from rigidgrad.play.page import play

    found = []
    for name in names:
        robot: Any = name if name in ("go2", "iiwa14") else robot_of(name, ())
        page = play(robot, port=0, block=False, announce=False, own_process=True)
        assert page is not None
        prefer(page.session.process)
        try:
            with window(browser, 1000, 700) as shown:
                shown.goto(page.url, timeout=180_000)
                eventually(lambda page=page: page.stage.watched, "connected", 180)
                shown.wait_for_selector("[role=alert] button", timeout=180_000)
                shown.evaluate("document.querySelector('[role=alert] button').click()")
                time.sleep(3.0)
                if name == "go2":
                    page.session.steer(0.6 * page.scene.fastest * [1, 0, 0])
                else:
                    page.session.figure_eight(True)
                until = time.monotonic() + 120.0
                prefer(page.session.process)
                time.sleep(11.0)  # seconds of the plots
                while page.session.now.rate < 0.995 and time.monotonic() < until:
                    time.sleep(0.2)
                time.sleep(1.0)
                now = page.session.now
                print(f"{name}: {now.rate:.2f} times real time, {now.late} late, {now.trouble!r}")
                found.append(shot(shown))
        finally:
            page.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[], help="view, report, mpc, iiwa14")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args()
    if missing("viser"):
        parser.error(missing("viser"))
    kinds = arguments.kinds or ["view", "report", "mpc", "iiwa14"]
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if "view" in kinds:
            save(viewed(browser, Path(folder)), arguments.out / "view_robots.webp")
        if "report" in kinds:
            save(reported(browser, Path(folder)), arguments.out / "report_robots.webp")
        if "mpc" in kinds:
            save(controlled(browser, Path(folder)), arguments.out / "mpc_robots.webp")
        if "iiwa14" in kinds:
            save(played(browser, ["iiwa14"]), arguments.out / "play_iiwa14.webp", 1)


if __name__ == "__main__":
    main()
