"""Makes a release: `python tools/release.py 0.2.0`.

Sets the version where it is written, gives the changelog's unreleased part its name and date,
builds the wheel and the sdist, and installs each in an environment of its own, outside of the tree,
where an example has to run. `--tag` then commits and tags; nothing is uploaded.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")
# where the version is written: file, what stands before it, what stands behind
PLACES = (
    ("src/rigidgrad/__init__.py", '__version__ = "', '"'),
    ("CITATION.cff", "version: ", "\n"),
)


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(x) for x in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def numbered(text: str, before: str, behind: str, version: str) -> str:
    """The text of a file with another version at its place."""
    pattern = rf"(?m)^({re.escape(before)})[^\"\n]+({re.escape(behind)})"
    result, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text)
    if count != 1:
        sys.exit(f"the version stands {count} times after {before!r}")
    return result


def cited(text: str, day: datetime.date) -> str:
    """CITATION.cff with the day of its version."""
    without = re.sub(r"(?m)^date-released: .*\n", "", text)
    return re.sub(r"(?m)^(version: .*\n)", rf"\g<1>date-released: {day.isoformat()}\n", without)


def changed(changelog: str, version: str, day: datetime.date) -> str:
    """The changelog, its unreleased part under the version's heading."""
    if f"\n## {version}" in changelog:
        sys.exit(f"CHANGELOG.md has a version {version} already")
    heading, released = "## Unreleased\n", f"## Unreleased\n\n## {version}, {day.isoformat()}\n"
    if not re.search(r"## Unreleased\n\s*\S(?<!#)", changelog):
        sys.exit("CHANGELOG.md has nothing under Unreleased")
    return changelog.replace(heading, released, 1)


def interpreter(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def build(out: Path) -> list[Path]:
    """The sdist, and the wheel that is built of it, in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "venv"
        run(sys.executable, "-m", "venv", tools)
        python = interpreter(tools)
        run(python, "-m", "pip", "install", "--quiet", "build", "hatchling")
        run(python, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return sorted(out.glob("rigidgrad-*"))


def try_out(archive: Path) -> None:
    """Installs the archive in an environment of its own and runs an example there."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "venv", place / "venv")
        python = interpreter(place / "venv")
        run(python, "-m", "pip", "install", "--quiet", archive)
        run(python, ROOT / "examples" / "01_dynamics.py", cwd=place)
        run(python, "-m", "rigidgrad", "doctor", cwd=place)
        run(python, "-m", "rigidgrad", "check", "iiwa14", cwd=place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.2.0 or 0.2.0rc1")
    parser.add_argument("--tag", action="store_true", help="commit and tag afterwards")
    options = parser.parse_args()
    if not VERSION.fullmatch(options.version):
        parser.error(f"{options.version!r} is no version such as 0.2.0")
    if run("git", "status", "--porcelain"):
        sys.exit("commit first: the tree has changes")
    for name, before, behind in PLACES:
        path = ROOT / name
        path.write_text(numbered(path.read_text(), before, behind, options.version))
    today = datetime.date.today()
    citation, log = ROOT / "CITATION.cff", ROOT / "CHANGELOG.md"
    citation.write_text(cited(citation.read_text(), today))
    log.write_text(changed(log.read_text(), options.version, today))
    for archive in build(ROOT / "dist"):
        if not archive.name.startswith(f"rigidgrad-{options.version}"):
            continue  # of a version before
        try_out(archive)
        print(f"{archive.relative_to(ROOT)} installs and runs")
    if options.tag:
        run("git", "commit", "-aqm", f"Version {options.version}")
        run("git", "tag", "-a", f"v{options.version}", "-m", f"rigidgrad {options.version}")
        print(f"tagged v{options.version}; push it, and upload dist/ with twine")
    else:
        print("look at `git diff`, then commit and tag, or begin again with --tag")


if __name__ == "__main__":
    main()
