"""The tutorials as a newcomer types them: clones the repository, makes an environment of its own in
a folder beside the clone, and types every line of the pages in order, down to the reports. What
serves a page (`rigidgrad play`, `rigidgrad view` without `--html`) is opened and ended.

    python tools/new_user.py [FOLDER]

Needs `pip`'s index for NumPy, llvmlite, viser, MuJoCo and example-robot-data.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# pages, and what lies in the folder after their last line
PAGES = {
    "tutorial_mpc.md": (
        "report.html", "motion.html", "around.html", "control.html", "harder.html",
        "ur5.html", "ur5_motion.html", "ur5_control.html",
        "panda.html", "panda_motion.html", "panda_control.html", "my_panda/report.html",
    ),
    "tutorial_quadruped.md": ("go2.html", "go2_walk.html"),
}  # fmt: skip
SERVED = 15.0  # seconds that a page is served


def steps(page: str) -> list[tuple[str, str, str]]:
    """What the page has to be done, in order: (kind, title, text)."""
    found = re.findall(
        r'^```(python|sh|console|xml|toml)(?: title="([^"]+)")?\n(.*?)^```', page, re.S | re.M
    )
    return [(kind, title, text) for kind, title, text in found]


def typed(kind: str, text: str) -> list[str]:
    lines = text.replace("\\\n", "").splitlines()
    if kind == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip()]


class User:
    """Types lines into a shell, one after the other, in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.variables = ""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "RIGIDGRAD_CACHE")
        self.surroundings = {k: v for k, v in os.environ.items() if k not in hidden}
        self.surroundings |= {"XDG_CACHE_HOME": str(folder / ".cache")}

    def type(self, line: str) -> None:
        line = line.replace("python -m venv", f"{sys.executable} -m venv")
        activate = ". .venv/bin/activate; " if (self.folder / ".venv").exists() else ""
        words = line.split("#")[0].split()
        serves = words[:2] == ["rigidgrad", "play"] or (
            words[:2] == ["rigidgrad", "view"] and "--html" not in words
        )
        if re.match(r"[A-Z]+=", line):  # a shell keeps it; ours lasts for a line
            self.variables += f"{line}; "
            return
        began = time.monotonic()
        if serves:
            line = f"timeout -s INT {SERVED} {line.split('#')[0].strip()} --port 0 || [ $? = 124 ]"
        done = subprocess.run(
            ["bash", "-c", activate + self.variables + line], cwd=self.folder, env=self.surroundings,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(f"{time.monotonic() - began:6.1f} s  {line[:110]}", flush=True)
        if done.returncode or (done.stderr.strip() and not line.startswith("pip")):
            raise SystemExit(f"failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")

    def follow(self, page: Path, ends: tuple[str, ...]) -> None:
        print(f"\n{page.name}")
        self.folder.mkdir()
        code: list[str] = []
        for kind, title, text in steps(page.read_text()):
            if title:
                (self.folder / title).write_text(text)
            elif kind == "python":
                code.append(text)
            elif kind in ("sh", "console"):
                self.run_code(code)
                for line in typed(kind, text):
                    self.type(line)
        self.run_code(code)
        for name in ends:
            size = (self.folder / name).stat().st_size
            assert size > 10_000, f"{name} has {size} bytes"
        print("there are", ", ".join(ends))

    def run_code(self, code: list[str]) -> None:
        """The Python blocks since the last run, with those before: they are one program."""
        text = "\n".join(code)
        path = self.folder / "typed.py"
        if code and (not path.exists() or path.read_text() != text):
            path.write_text(text)
            self.type("python typed.py")


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else made).resolve()
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "rigidgrad"], check=True)
        for page, ends in PAGES.items():
            place = folder / page.removesuffix(".md")
            User(place).follow(ROOT / "docs" / page, ends)


if __name__ == "__main__":
    main()
