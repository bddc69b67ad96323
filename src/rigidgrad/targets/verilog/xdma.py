"""A circuit on a board behind PCIe, through the character devices of Xilinx's XDMA driver: states
are written to one file, results are read from another.

The AXI4-Stream wrapper of `package` stands between; nothing else runs on the host. No board was at
hand: tests run this against a simulated device.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rigidgrad.errors import RigidgradError
from rigidgrad.targets.verilog.design import Design
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.package import flags_word
from rigidgrad.targets.verilog.render import lane_bits

CHUNK = 1 << 20  # bytes of one call


class DeviceError(RigidgradError):
    """The board's files are missing, or it does not answer."""


@dataclass(frozen=True)
class Results:
    """Outputs by name, (states, *shape); of each state whether a number saturated or an input was
    no number of the format, or None where results leave no word free for these flags.
    """

    outputs: dict[str, np.ndarray]
    saturated: np.ndarray | None
    invalid: np.ndarray | None


class Board:
    """`to` and `back` are the devices of an XDMA core's stream channels."""

    def __init__(
        self,
        design: Design,
        to: str | Path = "/dev/xdma0_h2c_0",
        back: str | Path = "/dev/xdma0_c2h_0",
        *,
        timeout: float = 5.0,
    ):
        self.design, self.to, self.back, self.timeout = design, Path(to), Path(back), timeout
        self.host = Coprocessor(design, 1.0)
        for path in (self.to, self.back):
            if not path.exists():
                raise DeviceError(
                    f"{path} is not there: is the XDMA driver loaded, and the board configured?"
                )

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Results:
        """Inputs as `Coprocessor` takes them. Sends and receives at the same time, as the board
        keeps few states.
        """
        words = self.host.stream(inputs)
        c, kind = self.design.circuit, "<i4" if lane_bits(self.design.circuit) == 32 else "<i8"
        beats = np.zeros((len(words), c.input_beats * c.lanes), kind)
        beats[:, : words.shape[1]] = words
        size = len(words) * c.output_beats * c.lanes * beats.itemsize
        rows = np.frombuffer(self._exchange(beats.tobytes(), size), kind).reshape(len(words), -1)
        return self._decoded(rows.astype(np.int64))

    def _decoded(self, rows: np.ndarray) -> Results:
        program, at = self.design.program, 0
        raw = rows[:, : len(program.results)]
        values = (
            raw.astype(np.int32).view(np.float32)
            if self.design.floats
            else self.design.format.value(np.ascontiguousarray(raw))
        )
        outputs = {}
        for name, shape in program.outputs.items():
            size = int(np.prod(shape))
            outputs[name] = values[:, at : at + size].reshape(len(rows), *shape)
            at += size
        word = flags_word(self.design)
        flags = None if word is None else rows[:, -self.design.circuit.lanes + word]
        return Results(
            outputs,
            None if flags is None else (flags & 1) != 0,
            None if flags is None else (flags & 2) != 0,
        )

    def _exchange(self, sent: bytes, size: int) -> bytes:
        failed: list[BaseException] = []

        def send() -> None:
            try:
                self._send(sent)
            except (OSError, DeviceError) as error:
                failed.append(error)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        try:
            received = self._receive(size, failed)
        except OSError as error:
            raise DeviceError(f"{self.back}: {error}") from None
        sender.join(self.timeout)
        return received

    def _send(self, data: bytes) -> None:
        device = os.open(self.to, os.O_WRONLY)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(device, view[:CHUNK]) :]
        finally:
            os.close(device)

    def _receive(self, size: int, failed: list[BaseException]) -> bytes:
        """A read may end with a result, before all that was asked for."""
        device = os.open(self.back, os.O_RDONLY)
        parts, missing = [], size
        try:
            while missing:
                if not select.select([device], [], [], self.timeout)[0]:
                    reason = f": {failed[0]}" if failed else ""
                    raise DeviceError(
                        f"{self.back} gave {size - missing} of {size} bytes and then nothing for"
                        f" {self.timeout:g} s{reason}"
                    )
                part = os.read(device, min(missing, CHUNK))
                if not part:
                    raise DeviceError(f"{self.back} ended after {size - missing} of {size} bytes")
                parts.append(part)
                missing -= len(part)
        finally:
            os.close(device)
        return b"".join(parts)
