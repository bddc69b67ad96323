"""Of all tests: a cache of compiled code apart from the user's own, which the next run finds again;
markers; skips where an optional package is missing; and the shim of a CUDA device for solvers.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpu_shim import built

HERE = Path(__file__).parent
ROOT = HERE.parent
_KEPT = 7 * 86400.0  # seconds that a library which is not used stays
# markers of files: `-m "not browser"` leaves them out
MARKED = {
    "gpu": r"test_gpu_",
    "fpga": r"test_(verilog|fixed)",
    "browser": r"test_(live_pages|play|view)",
    "cluster": r"test_cluster",
}
# the level of LLVM's code generator in most files, where compiling takes longer than running: bits
# are the same, but numbers come later
_LEVEL = "RIGIDGRAD_LLVM_LEVEL"
# files that run the code which users run: tests of that code, and long runs
SHIPPED = re.compile(
    r"test_(border|bundled|cache|kernel|lanes|platforms|program|riccati|robot\.|sources|threads"
    r"|trees|worlds)"
)
# other names under which packages of the `test` extra are imported
IMPORTED = {"pin": {"pinocchio", "coal"}, "nvidia-cuda-nvrtc": {"cuda"}, "cuda-core": {"cuda"}}


def optional_packages() -> set[str]:
    """The names to import of what the `test` extra installs."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.match(r"[\w-]+", x).group() for x in extra["test"]}
    return {m for x in names for m in IMPORTED.get(x, {x.replace("-", "_")})}


class OptionalModule(pytest.Module):
    """A test file, skipped as a whole where it imports an optional package that is missing."""

    def _getobj(self):
        try:
            return super()._getobj()
        except self.CollectError as error:
            missing = error.__cause__
            if isinstance(missing, ModuleNotFoundError):
                package = (missing.name or "").partition(".")[0]
                if package in optional_packages():
                    pytest.skip(f"{package} is not installed", allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path, parent):
    return OptionalModule.from_parent(parent, path=module_path)


def slow_tests() -> dict[str, str]:
    """Functions in `slow.txt`, "file::function", and the one case of each that is quick all the
    same, or nothing; files all of whose tests count as slow.
    """
    rows = (line.split(" ", 1) for line in (HERE / "slow.txt").read_text().splitlines())
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows if not row[0].startswith("#")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Markers, and files with many slow functions first: what workers share out at the end is
    short.
    """
    slow = slow_tests()
    weights = Counter(row.partition("::")[0] for row in slow)
    items.sort(key=lambda item: -weights[item.path.name])
    for item in items:
        for marker, pattern in MARKED.items():
            if re.match(pattern, item.path.name):
                item.add_marker(marker)
        function, _, case = item.nodeid.removeprefix("tests/").partition("[")
        if function in slow or item.path.name in slow:
            item.add_marker("slow")
            if not case or f"[{case}" != slow.get(function):
                continue
        item.add_marker("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times", metavar="FILE", help="append seconds of CPU of each test, for slow_tests.py"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    before = sum(os.times()[:4])  # of this process and of those that it waited for
    done = yield
    file = item.config.getoption("--cpu-times")
    if file:
        with open(file, "a") as rows:
            print(f"{sum(os.times()[:4]) - before:.3f} {item.nodeid}", file=rows)
    return done


def pytest_configure(config: pytest.Config) -> None:
    """Compiled code lies in pytest's own cache, under keys that hold all that it depends on, our
    sources included. Without it: `rm -r .pytest_cache`, as with -n each worker of `--cache-clear`
    clears what all share. Workers of pytest-xdist inherit the folders.
    """
    kept = getattr(config, "cache", None)
    for variable, name in (("RIGIDGRAD_CACHE", "rigidgrad"), (built.FOLDER, "rigidgrad-builds")):
        if variable in os.environ:
            continue
        if kept is not None:
            os.environ[variable] = str(kept.mkdir(name))
        else:  # -p no:cacheprovider
            folder = tempfile.TemporaryDirectory(prefix="rigidgrad-test-")
            config.add_cleanup(folder.cleanup)
            os.environ[variable] = folder.name
    for path in Path(os.environ[built.FOLDER]).glob("*.so"):
        with contextlib.suppress(OSError):  # another worker was faster
            if time.time() - path.stat().st_mtime > _KEPT:
                path.unlink()


@pytest.fixture(scope="module", autouse=True)
def level(request):
    """The level at which a file's tests, and processes that they start, compile."""
    with pytest.MonkeyPatch.context() as patch:
        if _LEVEL not in os.environ and not SHIPPED.match(request.path.name):
            patch.setenv(_LEVEL, "0")
        yield


@pytest.fixture
def shim(monkeypatch):
    """Opens the shim in place of a CUDA device."""
    from gpu_shim.cuda_device import ShimDevice

    from rigidgrad.control import device_run
    from rigidgrad.runtime import gpu_solver

    def use(order=0, change=lambda text: text, blocks=65535, effort="-O0"):
        device = ShimDevice(order, change, effort)
        monkeypatch.setattr(device_run, "_sessions", type(device_run._sessions)())
        monkeypatch.setattr(gpu_solver, "_device", lambda name: device)
        monkeypatch.setattr(gpu_solver, "compile_cubin", device.compile_cubin)
        monkeypatch.setattr(gpu_solver, "_MOST_BLOCKS", blocks)
        return device

    return use


@pytest.fixture
def mock_cuda(monkeypatch):
    """`robot.to("cuda")` on a device that is none: the shim, which counts."""
    from gpu_shim.cuda_device import ShimDevice

    from rigidgrad.runtime import gpu_cuda

    device = ShimDevice()
    monkeypatch.setattr(gpu_cuda, "_packages", device.packages)
    monkeypatch.setattr(gpu_cuda, "compile_cubin", device.compile_cubin)
    return device
