"""The link over a serial line.

pyserial opens and configures the line. Bytes are read and written by calls of the operating system, because
pyserial may write a part of a frame, and blocks for ever if the line accepts nothing.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
from collections.abc import Callable
from typing import Any

from efftam_flight.mavlink.links.connection import (
    AT_PRESENT,
    MAX_STALL_S,
    READ_SIZE,
    RETRY_S,
    STALLED_S,
    Connection,
    Piece,
)
from efftam_flight.mavlink.links.frame_queue import FrameQueue

# The queue of the operating system is filled with at most as many bytes as the line sends in this time, s.
# Bytes in that queue can't be dropped any more when a newer rate is due.
MAX_SYSTEM_QUEUE_S = 0.1
BITS_PER_BYTE = 10  # eight bits of data, a start bit and a stop bit

_NO_DEVICE = "check the cable and the device's name (ls /dev/serial/by-id)"
_NO_SERIAL_LINE = "the device is no serial line; check its name"
_NOT_PERMITTED = "add the user to the device's group, usually dialout, and log in again"
_REMEDIES = {
    errno.ENOENT: _NO_DEVICE,
    errno.ENXIO: _NO_DEVICE,
    errno.ENODEV: _NO_DEVICE,
    errno.EIO: _NO_DEVICE,
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.EBUSY: "end the other program that uses the device",
    errno.ENOTTY: _NO_SERIAL_LINE,
    errno.EISDIR: _NO_SERIAL_LINE,
    errno.EINVAL: "check the baud rate",
}
_NOT_TAKEN = "check that the autopilot runs, the wiring and the baud rate"


def _fault(error: Exception) -> str:
    """Return the operating system's text for an error of pyserial, with the remedy."""
    # If configuring the line fails, the exception of pyserial has no error number. The number is in the
    # original exception, which is its context.
    for each in (error, error.__context__):
        if each is not None and each.args and isinstance(each.args[0], int):
            number = each.args[0]
            return f"{os.strerror(number)}; {_REMEDIES.get(number, 'check device, cable and baud rate')}"
    return f"{' '.join(str(error).split())}; check device and baud rate"


class SerialLine(Connection):
    """A serial line. If the device disappears, it is opened again. Raises ModuleNotFoundError if pyserial is
    not installed."""

    def __init__(self, address: str, device: str, baud: int, clock: Callable[[], float]) -> None:
        super().__init__(address, clock)
        try:
            import serial
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{address} needs pyserial: pip install pyserial") from error
        self._serial = serial
        self._device, self._baud = device, baud
        self._next_try_s = -math.inf
        self._opened = 0
        self._line: Any = None
        self._queue = FrameQueue()
        self._open()

    def _open(self) -> Any:
        if self._line is None and self._clock() >= self._next_try_s:
            self._next_try_s = self._clock() + RETRY_S
            try:
                self._line = self._serial.Serial(self._device, self._baud, timeout=0, write_timeout=0)
                self._opened += 1
                self._queue.clear()
                self.fault = ""
            except (OSError, ValueError) as error:  # ValueError: the baud rate is invalid
                self.errors += 1
                self.fault = f"{self.address} can't be opened: {_fault(error)}"
        return self._line

    def _lose(self, error: OSError | None) -> None:
        """Close a device that has disappeared or failed. `_open` opens it again later."""
        if error is not None:
            self.errors += 1
        with contextlib.suppress(OSError):
            self._line.close()
        self._line = None

    def receive(self) -> list[Piece]:
        line = self._open()
        if line is None:
            return []
        data = b""
        try:
            # If select() reports data and the read returns none, the device has disappeared. Without
            # select(), an empty read could also mean that no data has arrived.
            if select.select([line], [], [], 0.0)[0]:
                data = os.read(line.fileno(), READ_SIZE)
                if not data:
                    self._lose(None)
        except OSError as error:
            if error.errno not in AT_PRESENT:
                self._lose(error)
        self._flush()
        return [(str(self._opened), data)] if data else []

    def send(self, data: bytes) -> None:
        if self._open() is not None:
            self._queue.put(data, self._clock())
            self._flush()

    def _flush(self) -> None:
        if self._line is None:
            return
        now_s = self._clock()
        try:
            self._queue.write(self._write, now_s)
        except OSError as error:
            if error.errno not in AT_PRESENT:
                self._lose(error)
                return
        self.dropped = self._queue.dropped
        stalled_s = self._queue.stalled_s(now_s)
        if stalled_s > MAX_STALL_S:
            self._lose(None)
        elif stalled_s > STALLED_S:
            self._stalled(_NOT_TAKEN)
        else:
            self._recover()

    def _write(self, data: bytes) -> int:
        if self._line.out_waiting > self._baud / BITS_PER_BYTE * MAX_SYSTEM_QUEUE_S:
            return 0
        return os.write(self._line.fileno(), data)

    def files(self) -> list[Any]:
        return [] if self._line is None else [self._line]

    def close(self) -> None:
        if self._line is not None:
            self._lose(None)
