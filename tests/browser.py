"""A real headless Chromium for tests of pages; where there is none, tests are skipped and say
why.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# graphics by software, which is there on every machine
_OPTIONS = (
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-dev-shm-usage",
)

WEBGPU = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--use-vulkan=swiftshader",
)


def chromium() -> str | None:
    return os.environ.get("RIGIDGRAD_CHROMIUM") or next(
        (path for name in _NAMES if (path := shutil.which(name))), None
    )


def missing(*packages: str) -> str:
    """What a test of a page lacks here; empty if nothing."""
    absent = [p for p in ("playwright", *packages) if importlib.util.find_spec(p) is None]
    if absent:
        return f"needs {', '.join(absent)} (pip install)"
    return "" if chromium() else "needs Chromium (Debian: apt-get install chromium)"


@contextmanager
def launched(*options: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=[*_OPTIONS, *options])
        try:
            yield browser
        finally:
            browser.close()


def picture(page: Any, **options: Any) -> np.ndarray:
    """What the page shows, (height, width, 3) in 0…255."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")).astype(int)


def share(image: np.ndarray, color: tuple[int, int, int], within: int = 40) -> float:
    """The part of a picture's pixels that are near a colour."""
    return float((np.abs(image - np.array(color)).max(axis=-1) < within).mean())


def eventually(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"after {seconds:g} s still not: {what}")
        time.sleep(0.05)


class Cable:
    """A connection to a local port by way of another one, which can be cut and mended."""

    def __init__(self, port: int):
        self._to, self._whole, self._ends = port, True, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://localhost:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections; new ones end at once."""
        self._whole = False
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                if not self._whole:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    @staticmethod
    def _carry(a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for end in (a, b):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
